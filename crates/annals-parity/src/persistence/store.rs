//! The operations of the key-value memory.

use std::time::Duration;

use annals::base::{Map as ValueMap, Timestamp, Value};
use annals::store::kv::{Embedder, EmbedderError, KvIndex, KvItem, KvLifetimes, KvNamespaceQuery, KvOrder, KvWrite};
use annals::store::log::KvNamespace;
use annals::store::{Kv, KvQuery, Store};
use serde_json::{Value as Json, json};

use super::{CaseRunner, failure, labels, values};
use crate::RunnerResult;
use crate::program::Failure;

/// The embedding of the vectors: counts of letters.
struct Letters(usize);

impl Embedder for Letters {
    fn dims(&self) -> usize {
        self.0
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedderError> {
        let embed = |text: &&str| {
            let mut vector = vec![0.0; self.0];
            for letter in text.to_lowercase().bytes().filter(u8::is_ascii_lowercase) {
                vector[usize::from(letter - b'a') % self.0] += 1.0;
            }
            vector
        };
        Ok(texts.iter().map(embed).collect())
    }
}

pub(super) struct StoreRunner {
    kv: Kv,
    lifetimes: KvLifetimes,
}

impl StoreRunner {
    /// Makes a runner for a case with this configuration.
    pub(super) fn new(store: &Store, config: &Json) -> RunnerResult<Self> {
        let ttl = &config["ttl"];
        let prolong = ttl["refresh_on_read"].as_bool().unwrap_or(false);
        let lifetimes = KvLifetimes::new().lifetime(lifetime(&ttl["default_ttl"]));
        let lifetimes = lifetimes.prolong_on_read(prolong).retain_expired(true);
        let mut kv = store.kv().with_lifetimes(lifetimes);
        let index = &config["index"];
        if let Some(dims) = index["dims"].as_u64() {
            let mut made = KvIndex::new(Letters(usize::try_from(dims)?));
            if let Some(fields) = index["fields"].as_array() {
                made = made.fields(fields.iter().filter_map(Json::as_str))?;
            }
            kv = kv.with_index(made);
        }
        Ok(Self { kv, lifetimes })
    }

    /// Returns the handle of a read, which may be told not to prolong.
    fn reader(&self, op: &Json) -> Kv {
        match op["refresh_ttl"].as_bool() {
            Some(prolong) => self.kv.clone().with_lifetimes(self.lifetimes.prolong_on_read(prolong)),
            None => self.kv.clone(),
        }
    }

    fn get(&self, op: &Json) -> Result<Json, Failure> {
        let namespace = admitted(&op["namespace"])?;
        let item = self.reader(op).get(namespace.labels(), key(op)).map_err(failure)?;
        Ok(item.as_ref().map_or(Json::Null, shown))
    }

    fn search(&self, op: &Json) -> Result<Json, Failure> {
        let prefix = admitted(&op["prefix"])?;
        let mut query = KvQuery::new(prefix.labels()).order(KvOrder::LatestPut);
        if let Value::Map(filter) = values::read(&op["filter"]) {
            query = query.filter_object(ValueMap::from_iter(filter)).map_err(failure)?;
        }
        if let Some(text) = op["query"].as_str() {
            query = query.similar_to(text);
        }
        query = query.limit(bound(&op["limit"], 10, usize::MAX)).offset(bound(&op["offset"], 0, 0));
        let found = self.reader(op).search(query).map_err(failure)?;
        let with_score = |item: &KvItem| {
            let mut json = shown(item);
            json["score"] = json!(item.score);
            json
        };
        Ok(found.iter().map(with_score).collect())
    }

    fn list_namespaces(&self, op: &Json) -> Result<Json, Failure> {
        let mut query = KvNamespaceQuery::new();
        let condition = |at: &str, labels: &Json, query: KvNamespaceQuery| -> Result<KvNamespaceQuery, Failure> {
            let namespace = admitted(labels)?;
            Ok(if at == "prefix" { query.prefix(namespace.labels()) } else { query.suffix(namespace.labels()) })
        };
        for at in ["prefix", "suffix"] {
            query = condition(at, &op[at], query)?;
        }
        for pair in op["match_conditions"].as_array().into_iter().flatten() {
            query = condition(pair[0].as_str().unwrap_or_default(), &pair[1], query)?;
        }
        if let Some(depth) = op["max_depth"].as_u64() {
            query = query.max_depth(usize::try_from(depth).unwrap_or(usize::MAX));
        }
        query = query.limit(bound(&op["limit"], 100, usize::MAX)).offset(bound(&op["offset"], 0, 0));
        Ok(json!(self.kv.list_namespaces(query).map_err(failure)?))
    }

    fn read(&self, op: &Json) -> Result<Json, Failure> {
        match op["op"].as_str() {
            Some("get") => self.get(op),
            Some("search") => self.search(op),
            Some("list_namespaces") => self.list_namespaces(op),
            _ => Err(Failure::of("Unsupported")),
        }
    }

    /// Runs the reads of a batch, then its writes in one commit. A batch with a bad label runs nothing.
    fn batch(&self, op: &Json) -> Result<Json, Failure> {
        let ops: Vec<&Json> = op["ops"].as_array().into_iter().flatten().collect();
        let mut writes = Vec::new();
        for op in &ops {
            if op["op"] == "put" {
                writes.push(write(op)?);
            } else {
                admitted(&op["namespace"]).and_then(|_| admitted(&op["prefix"]))?;
            }
        }
        let result = |op: &&Json| if op["op"] == "put" { Ok(Json::Null) } else { self.read(op) };
        let results = ops.iter().map(result).collect::<Result<Vec<_>, _>>()?;
        self.kv.write_all(writes).map_err(failure)?;
        Ok(results.into())
    }
}

impl CaseRunner for StoreRunner {
    fn run(&mut self, op: &Json) -> Result<Json, Failure> {
        match op["op"].as_str() {
            Some("put") => {
                KvNamespace::new(labels(&op["namespace"])?).map_err(failure)?;
                self.kv.write_all([write(op)?]).map_err(failure)?;
                Ok(Json::Null)
            }
            Some("delete") => {
                let namespace = admitted(&op["namespace"])?;
                self.kv.delete(namespace.labels(), key(op)).map_err(failure)?;
                Ok(Json::Null)
            }
            Some("batch") => self.batch(op),
            Some("sweep_ttl") => Ok(json!(self.kv.sweep().map_err(failure)?)),
            _ => self.read(op),
        }
    }
}

/// Reads the labels of a namespace that may exist, as every operation checks them. The library finds nothing under a
/// bad label; the reference refuses it.
fn admitted(json: &Json) -> Result<KvNamespace, Failure> {
    KvNamespace::from_labels(labels(json)?).map_err(failure)
}

fn write(op: &Json) -> Result<KvWrite, Failure> {
    let namespace = admitted(&op["namespace"])?;
    if op["value"].is_null() {
        return KvWrite::delete(namespace.labels(), key(op)).map_err(failure);
    }
    let mut write = KvWrite::put(namespace.labels(), key(op), values::read_json(&op["value"])?).map_err(failure)?;
    if let Some(ttl) = op.get("ttl") {
        write = write.lifetime(lifetime(ttl));
    }
    match &op["index"] {
        Json::Bool(false) => write.fields([""; 0]),
        Json::Array(fields) => write.fields(fields.iter().filter_map(Json::as_str)),
        _ => Ok(write),
    }
    .map_err(failure)
}

/// Reads minutes. In the reference an entry expires after its last microsecond, here with it.
fn lifetime(minutes: &Json) -> Option<Duration> {
    minutes.as_f64().map(|minutes| Duration::from_secs_f64(minutes * 60.0) + Duration::from_micros(1))
}

/// Reads a limit or an offset.
fn bound(json: &Json, absent: usize, negative: usize) -> usize {
    match json.as_i64() {
        None => absent,
        Some(bound) => usize::try_from(bound).unwrap_or(negative),
    }
}

/// Reads a key; a number is turned into text.
fn key(op: &Json) -> String {
    op["key"].as_str().map_or_else(|| op["key"].to_string(), str::to_owned)
}

/// Shows an item. The reference replaces the row of an item that is put again, so that it is created anew; `annals`
/// retains the time of the first put, as the reference's PostgreSQL store does.
fn shown(item: &KvItem) -> Json {
    let put = seconds(item.updated_at);
    json!({"namespace": item.namespace, "key": item.key, "value": values::write(&item.value),
        "created_at": put, "updated_at": put})
}

fn seconds(at: Timestamp) -> String {
    at.to_string().replace(".000000Z", "Z")
}
