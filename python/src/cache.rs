//! The cache: results that may be computed again.

use std::time::Duration;

use annals::base::{Encoded, Value};
use annals::store::{Cache, CacheKey, StoreError};
use pyo3::prelude::*;

use crate::errors::{invalid, raise};
use crate::values::{from_python, to_python};

/// The cache of a store.
#[pyclass(frozen, name = "Cache", module = "annals")]
#[derive(Debug)]
pub(crate) struct PyCache(Cache);

impl PyCache {
    pub(crate) fn new(cache: Cache) -> Self {
        Self(cache)
    }
}

#[pymethods]
impl PyCache {
    /// Returns the values under keys, each of which is a pair of labels and key; `None` where there is none.
    fn get<'py>(&self, py: Python<'py>, keys: Vec<(Vec<String>, String)>) -> PyResult<Vec<Option<Bound<'py, PyAny>>>> {
        let keys: Vec<CacheKey> = keys.into_iter().map(|(namespace, key)| CacheKey::new(namespace, key)).collect();
        let values = py.detach(|| -> Result<Vec<Option<Value>>, StoreError> {
            let found = self.0.values(&keys)?.into_iter();
            found.map(|found| Ok(found.map(|found| found.decode()).transpose()?)).collect()
        });
        let found = values.map_err(raise)?;
        found.into_iter().map(|value| value.map(|value| to_python(py, &value)).transpose()).collect()
    }

    /// Stores a value under a key. `ttl` is in seconds.
    #[pyo3(signature = (namespace, key, value, *, ttl = None))]
    fn put(
        &self,
        py: Python<'_>,
        namespace: Vec<String>,
        key: String,
        value: &Bound<'_, PyAny>,
        ttl: Option<f64>,
    ) -> PyResult<()> {
        let lifetime = ttl.map(|seconds| {
            Duration::try_from_secs_f64(seconds)
                .map_err(|_| invalid(format!("ttl: {seconds} is not a number of seconds")))
        });
        let (lifetime, value) = (lifetime.transpose()?, from_python("value", value)?);
        let put = || -> Result<(), StoreError> {
            self.0.put(CacheKey::new(namespace, key), Encoded::encode(&value)?, lifetime).wait()
        };
        py.detach(put).map_err(raise)
    }

    /// Removes the values of some namespaces, or all.
    #[pyo3(signature = (namespaces = None))]
    fn clear(&self, py: Python<'_>, namespaces: Option<Vec<Vec<String>>>) -> PyResult<()> {
        let clear = || match namespaces {
            Some(namespaces) => self.0.clear_namespaces(namespaces),
            None => self.0.clear([""; 0]),
        };
        py.detach(clear).map_err(raise)
    }

    fn __repr__(&self) -> &'static str {
        "Cache()"
    }
}
