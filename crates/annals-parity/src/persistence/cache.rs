//! The operations of the cache.

use std::time::Duration;

use annals::base::{Encoded, Value};
use annals::store::{Cache, CacheKey, Store, StoreError};
use serde_json::{Value as Json, json};

use super::{CaseRunner, failure, labels, values};
use crate::program::Failure;

pub(super) struct CacheRunner {
    cache: Cache,
}

impl CacheRunner {
    pub(super) fn new(store: &Store) -> Self {
        Self { cache: store.cache() }
    }

    fn get(&self, op: &Json) -> Result<Json, Failure> {
        let mut keys = op["keys"].as_array().into_iter().flatten().map(key).collect::<Result<Vec<_>, _>>()?;
        keys.sort();
        keys.dedup();
        let found = self.cache.values(&keys).map_err(failure)?;
        let mut shown = Vec::new();
        for (key, value) in keys.iter().zip(found) {
            if let Some(value) = value {
                let value: Value = value.decode().map_err(|error| failure(StoreError::from(error)))?;
                shown.push(json!([key.namespace, key.key, values::write(&value)]));
            }
        }
        Ok(shown.into())
    }

    fn set(&self, op: &Json) -> Result<Json, Failure> {
        for entry in op["entries"].as_array().into_iter().flatten() {
            let value = Encoded::encode(&values::read(&entry[2])).map_err(|error| failure(StoreError::from(error)))?;
            // A time that has passed is as good as none left.
            let lifetime = entry[3].as_f64().map(|seconds| Duration::from_secs_f64(seconds.max(0.0)));
            self.cache.put(key(entry)?, value, lifetime).wait().map_err(failure)?;
        }
        Ok(Json::Null)
    }
}

impl CaseRunner for CacheRunner {
    fn run(&mut self, op: &Json) -> Result<Json, Failure> {
        match op["op"].as_str() {
            Some("get") => self.get(op),
            Some("set") => self.set(op),
            Some("clear") => {
                match op.get("namespaces").and_then(Json::as_array) {
                    None => self.cache.clear([""; 0]),
                    Some(all) => self.cache.clear_namespaces(all.iter().map(labels).collect::<Result<Vec<_>, _>>()?),
                }
                .map_err(failure)?;
                Ok(Json::Null)
            }
            _ => Err(Failure::of("Unsupported")),
        }
    }
}

fn key(entry: &Json) -> Result<CacheKey, Failure> {
    Ok(CacheKey::new(labels(&entry[0])?, entry[1].as_str().unwrap_or_default()))
}
