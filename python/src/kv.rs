//! The key-value memory.
//!
//! Invariant: an embedding function is called without a lock of the store.

use std::time::Duration;

use annals::base::Value;
use annals::store::kv::{Embedder, EmbedderError, KvIndex, KvItem, KvLifetimes, KvNamespaceQuery, KvOrder, KvWrite};
use annals::store::log::KvNamespace;
use annals::store::{Kv, KvQuery};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{invalid, raise};
use crate::values::{datetime, map_from_python, to_python};

/// A function of Python that embeds texts.
struct PyEmbedder {
    dims: usize,
    embed: Py<PyAny>,
    /// The function for the text of a search; `None` if it is the same.
    embed_query: Option<Py<PyAny>>,
}

impl Embedder for PyEmbedder {
    fn dims(&self) -> usize {
        self.dims
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedderError> {
        let vectors: PyResult<Vec<Vec<f32>>> =
            Python::attach(|py| self.embed.call1(py, (texts.to_vec(),))?.extract(py));
        Ok(vectors?)
    }

    fn embed_query(&self, text: &str) -> Result<Vec<f32>, EmbedderError> {
        let Some(embed_query) = &self.embed_query else {
            return Ok(self.embed(&[text])?.pop().unwrap_or_default());
        };
        let vector: PyResult<Vec<f32>> = Python::attach(|py| embed_query.call1(py, (text,))?.extract(py));
        Ok(vector?)
    }
}

/// An entry of the key-value memory.
#[pyclass(frozen, name = "KvItem", module = "annals")]
#[derive(Debug)]
pub(crate) struct PyKvItem(KvItem);

#[pymethods]
impl PyKvItem {
    /// The labels of its namespace.
    #[getter]
    fn namespace<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
        pyo3::types::PyTuple::new(py, &self.0.namespace)
    }

    /// Its key.
    #[getter]
    fn key(&self) -> &str {
        &self.0.key
    }

    /// The value.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.0.value)
    }

    /// The time of the first put, in UTC.
    #[getter]
    fn created_at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        datetime(py, self.0.created_at)
    }

    /// The time of the last put, in UTC.
    #[getter]
    fn updated_at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        datetime(py, self.0.updated_at)
    }

    /// The time from which on it counts as absent.
    #[getter]
    fn expires_at<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.expires_at.map(|at| datetime(py, at)).transpose()
    }

    /// The cosine similarity in a search by meaning.
    #[getter]
    fn score(&self) -> Option<f64> {
        self.0.score
    }

    fn __repr__(&self) -> String {
        format!("KvItem({:?}, {:?})", self.0.namespace, self.0.key)
    }
}

/// The lifetime that a put names.
pub(crate) enum NamedLifetime {
    /// None: that of the handle.
    OfHandle,
    Given(Option<Duration>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for NamedLifetime {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is(object.py().Ellipsis()) {
            return Ok(Self::OfHandle);
        }
        let seconds: Option<f64> = object.extract()?;
        Ok(Self::Given(seconds.map(lifetime).transpose()?))
    }
}

fn lifetime(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds).map_err(|_| invalid(format!("ttl: {seconds} is not a number of seconds")))
}

/// The fields that a put indexes.
pub(crate) enum IndexedFields {
    /// Those of the index.
    OfIndex,
    /// None at all.
    None,
    Given(Vec<String>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for IndexedFields {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is_none() {
            return Ok(Self::OfIndex);
        }
        match object.extract::<bool>() {
            Ok(false) => Ok(Self::None),
            Ok(true) => Err(invalid("index: it is False, or a list of fields")),
            Err(_) => Ok(Self::Given(object.extract()?)),
        }
    }
}

/// The key-value memory of a store.
#[pyclass(frozen, name = "Kv", module = "annals")]
#[derive(Debug)]
pub(crate) struct PyKv {
    kv: Kv,
    lifetimes: KvLifetimes,
}

impl PyKv {
    pub(crate) fn new(
        kv: Kv,
        index: Option<&Bound<'_, PyDict>>,
        default_ttl: Option<f64>,
        refresh_on_read: bool,
        retain_expired: bool,
    ) -> PyResult<Self> {
        let lifetimes = KvLifetimes::new()
            .lifetime(default_ttl.map(lifetime).transpose()?)
            .prolong_on_read(refresh_on_read)
            .retain_expired(retain_expired);
        let mut kv = kv.with_lifetimes(lifetimes);
        if let Some(index) = index {
            let given = |name: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
                Ok(index.get_item(name)?.filter(|given| !given.is_none()))
            };
            let required = |name: &str| given(name)?.ok_or_else(|| invalid(format!("index: it has no {name:?}")));
            let (dims, embed) = (required("dims")?.extract()?, required("embed")?.unbind());
            let embed_query = given("embed_query")?.map(Bound::unbind);
            let mut made = KvIndex::new(PyEmbedder { dims, embed, embed_query });
            if let Some(fields) = given("fields")? {
                made = made.fields(fields.extract::<Vec<String>>()?).map_err(raise)?;
            }
            kv = kv.with_index(made);
        }
        Ok(Self { kv, lifetimes })
    }

    /// Returns the handle of a read, which may be told whether to prolong lifetimes.
    fn reader(&self, refresh: Option<bool>) -> Kv {
        match refresh {
            Some(refresh) => self.kv.clone().with_lifetimes(self.lifetimes.prolong_on_read(refresh)),
            None => self.kv.clone(),
        }
    }
}

/// A write: the labels, the key, the value (`None` removes the key), the lifetime, and the indexed fields.
type GivenWrite<'py> = (Vec<String>, String, Option<Bound<'py, PyAny>>, NamedLifetime, IndexedFields);

fn write_of(given: GivenWrite<'_>) -> PyResult<KvWrite> {
    let (labels, key, value, lifetime, fields) = given;
    let Some(value) = value else { return KvWrite::delete(labels, key).map_err(raise) };
    let value = Value::Map(map_from_python("value", &value)?);
    let mut write = KvWrite::put(labels, key, value).map_err(raise)?;
    if let NamedLifetime::Given(lifetime) = lifetime {
        write = write.lifetime(lifetime);
    }
    match fields {
        IndexedFields::OfIndex => Ok(write),
        IndexedFields::None => write.fields([""; 0]).map_err(raise),
        IndexedFields::Given(fields) => write.fields(fields).map_err(raise),
    }
}

#[pymethods]
impl PyKv {
    /// Returns the entry under a key, `None` if there is none. `refresh_ttl` begins its lifetime anew.
    #[pyo3(signature = (namespace, key, *, refresh_ttl = None))]
    fn get(
        &self,
        py: Python<'_>,
        namespace: Vec<String>,
        key: &str,
        refresh_ttl: Option<bool>,
    ) -> PyResult<Option<PyKvItem>> {
        let kv = self.reader(refresh_ttl);
        Ok(py.detach(|| kv.get(namespace, key)).map_err(raise)?.map(PyKvItem))
    }

    /// Stores a dict under a key, in place of one that is there. `ttl` is in seconds, `None` lets it stay.
    /// `index` names the fields that are embedded, `False` none.
    #[pyo3(signature = (namespace, key, value, *, ttl = NamedLifetime::OfHandle, index = IndexedFields::OfIndex))]
    fn put(
        &self,
        py: Python<'_>,
        namespace: Vec<String>,
        key: String,
        value: &Bound<'_, PyDict>,
        ttl: NamedLifetime,
        index: IndexedFields,
    ) -> PyResult<()> {
        KvNamespace::new(&namespace).map_err(raise)?;
        let write = write_of((namespace, key, Some(value.as_any().clone()), ttl, index))?;
        py.detach(|| self.kv.write_all([write])).map_err(raise)
    }

    /// Removes a key, if it is there.
    fn delete(&self, py: Python<'_>, namespace: Vec<String>, key: String) -> PyResult<()> {
        py.detach(|| self.kv.delete(namespace, key)).map_err(raise)
    }

    /// Returns the entries whose namespace begins with these labels and whose members fit the filter:
    /// `{"age": {"$gte": 18}}`. With `query` the nearest in meaning come first; else the first put, or with
    /// `newest_first` the last one.
    #[pyo3(signature = (prefix = Vec::new(), *, query = None, filter = None, limit = 10, offset = 0, newest_first = false, refresh_ttl = None))]
    fn search(
        &self,
        py: Python<'_>,
        prefix: Vec<String>,
        query: Option<String>,
        filter: Option<&Bound<'_, PyAny>>,
        limit: usize,
        offset: usize,
        newest_first: bool,
        refresh_ttl: Option<bool>,
    ) -> PyResult<Vec<PyKvItem>> {
        let mut search = KvQuery::new(prefix).limit(limit).offset(offset);
        if newest_first {
            search = search.order(KvOrder::LatestPut);
        }
        if let Some(filter) = filter {
            search = search.filter_object(map_from_python("filter", filter)?).map_err(raise)?;
        }
        search = query.into_iter().fold(search, KvQuery::similar_to);
        let kv = self.reader(refresh_ttl);
        let found = py.detach(|| kv.search(search)).map_err(raise)?;
        Ok(found.into_iter().map(PyKvItem).collect())
    }

    /// Returns the namespaces that begin with a prefix and end with a suffix, in which `*` stands for any
    /// label.
    #[pyo3(signature = (*, prefixes = Vec::new(), suffixes = Vec::new(), max_depth = None, limit = 100, offset = 0))]
    fn list_namespaces(
        &self,
        py: Python<'_>,
        prefixes: Vec<Vec<String>>,
        suffixes: Vec<Vec<String>>,
        max_depth: Option<usize>,
        limit: usize,
        offset: usize,
    ) -> PyResult<Vec<Vec<String>>> {
        let mut query = KvNamespaceQuery::new().limit(limit).offset(offset);
        query = prefixes.into_iter().fold(query, KvNamespaceQuery::prefix);
        query = suffixes.into_iter().fold(query, KvNamespaceQuery::suffix);
        query = max_depth.into_iter().fold(query, KvNamespaceQuery::max_depth);
        py.detach(|| self.kv.list_namespaces(query)).map_err(raise)
    }

    /// Removes the entries that have expired, and returns their number.
    fn sweep(&self, py: Python<'_>) -> PyResult<u64> {
        py.detach(|| self.kv.sweep()).map_err(raise)
    }

    /// Makes several writes in one commit: tuples of labels, key, value (`None` removes the key), `ttl`
    /// (`...` for the default) and `index`.
    fn write_all(&self, py: Python<'_>, writes: Vec<GivenWrite<'_>>) -> PyResult<()> {
        let writes = writes.into_iter().map(write_of).collect::<PyResult<Vec<_>>>()?;
        py.detach(|| self.kv.write_all(writes)).map_err(raise)
    }

    fn __repr__(&self) -> &'static str {
        "Kv()"
    }
}
