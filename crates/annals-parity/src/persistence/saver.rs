//! The operations of the saver: configs, checkpoints and values of the vectors, for `annals-langgraph`.
//!
//! The bytes of a value are MessagePack, as LangGraph's serializer writes them. *Absent:* the rules of the saver.

use annals::base::Codec;
use annals::base::{Encoded, Map, Value, decode_value};
use annals::store::Store;
use annals_langgraph::{
    Config, ListQuery, LostRace, NewValue, PruneStrategy, Saver, SaverCheckpoint, SaverError, SaverVersion, SaverWrite,
    SeenVersions, StoredValue, Tuple, Typed, UpdatedChannels,
};
use serde_json::{Map as JsonMap, Value as Json, json};

use super::{CaseRunner, values};
use crate::program::Failure;

/// The extension for the snapshot of a delta channel.
const DELTA_SNAPSHOT: i8 = 7;
/// Members of a checkpoint that are not `extra`.
const MEMBERS: [&str; 7] = ["v", "ts", "id", "channel_values", "channel_versions", "versions_seen", "updated_channels"];
/// Keys of configs that do not go into the metadata.
const RESERVED: [&str; 9] = [
    "thread_id",
    "checkpoint_id",
    "checkpoint_ns",
    "checkpoint_map",
    "langgraph_step",
    "langgraph_node",
    "langgraph_triggers",
    "langgraph_path",
    "langgraph_checkpoint_ns",
];

pub(super) struct SaverRunner {
    saver: Saver,
}

impl SaverRunner {
    pub(super) fn new(store: &Store) -> Self {
        Self { saver: Saver::new(store.clone()) }
    }

    fn put(&self, op: &Json) -> Result<Json, Failure> {
        let parent = config(&op["config"], true)?;
        let given = &op["checkpoint"];
        let mut new = SaverCheckpoint::new(given["id"].as_str().unwrap_or_default(), "");
        new.v = given["v"].as_i64();
        new.ts = given["ts"].as_str().map(ToOwned::to_owned);
        new.versions = versions(&given["channel_versions"]);
        let seen = given["versions_seen"].as_object().into_iter().flatten();
        new.seen = seen.map(|(node, seen)| (node.clone(), versions(seen))).collect();
        new.updated = match given.get("updated_channels") {
            None => UpdatedChannels::Absent,
            Some(Json::Array(names)) => {
                UpdatedChannels::Names(names.iter().filter_map(Json::as_str).map(ToOwned::to_owned).collect())
            }
            Some(_) => UpdatedChannels::Unknown,
        };
        for (name, value) in given.as_object().into_iter().flatten() {
            if !MEMBERS.contains(&&**name) {
                new.extra.push((name.clone(), typed(value)?));
            }
        }
        for (channel, value) in given["channel_values"].as_object().into_iter().flatten() {
            new.values.push((channel.clone(), NewValue::Typed(typed(value)?)));
        }
        new.metadata = metadata(&op["metadata"], &op["config"]);
        let mut shown = shown_config(&self.saver.put(&parent, new, LostRace::Branch).map_err(failure)?);
        // The reference returns the id of the thread as it was given, a number too.
        shown["configurable"]["thread_id"] = op["config"]["configurable"]["thread_id"].clone();
        Ok(shown)
    }

    fn put_writes(&self, op: &Json) -> Result<Json, Failure> {
        let config = config(&op["config"], false)?;
        if op["config"]["configurable"].get("checkpoint_id").is_none() {
            return Err(Failure::of("KeyError"));
        }
        let (task, path) = (op["task_id"].as_str(), op["task_path"].as_str());
        let write = |write: &Json| Ok((write[0].as_str().unwrap_or_default().to_owned(), typed_write(&write[1])?));
        let writes = op["writes"].as_array().into_iter().flatten().map(write).collect::<Result<_, Failure>>()?;
        self.saver.put_writes(&config, task.unwrap_or_default(), path.unwrap_or_default(), writes).map_err(failure)?;
        Ok(Json::Null)
    }

    fn tuple(&self, op: &Json) -> Result<Option<Json>, Failure> {
        let config = config(&op["config"], false)?;
        let Some(tuple) = self.saver.tuple(&config).map_err(failure)? else { return Ok(None) };
        let mut shown = shown_tuple(tuple)?;
        if config.checkpoint().is_some() {
            shown["config"] = op["config"].clone();
        }
        Ok(Some(shown))
    }

    fn list(&self, op: &Json) -> Result<Json, Failure> {
        let mut query = ListQuery::new();
        let configurable = &op["config"]["configurable"];
        if configurable.is_object() {
            let config = config(&op["config"], false)?;
            query.thread = Some(config.thread);
            query.namespace = configurable["checkpoint_ns"].as_str().map(ToOwned::to_owned);
            query.checkpoint = config.checkpoint.filter(|id| !id.is_empty());
        }
        if let Value::Map(filter) = values::read(&op["filter"]) {
            query.filter = filter;
        }
        let before = &op["before"]["configurable"]["checkpoint_id"];
        query.before = before.as_str().map(ToOwned::to_owned);
        query.limit = op["limit"].as_i64().and_then(|limit| usize::try_from(limit).ok());
        let listing = self.saver.list(query).map_err(failure)?;
        listing.map(|tuple| shown_tuple(tuple.map_err(failure)?)).collect()
    }

    fn delta_history(&self, op: &Json) -> Result<Json, Failure> {
        let config = config(&op["config"], false)?;
        let channels: Vec<&str> = op["channels"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
        let mut shown = JsonMap::new();
        for history in self.saver.delta_history(&config, &channels).map_err(failure)? {
            let mut entry = json!({"writes": shown_writes(history.writes)?});
            if let Some(seed) = history.seed {
                entry["seed"] = shown_value(&seed)?;
            }
            shown.insert(history.channel, entry);
        }
        Ok(shown.into())
    }

    fn next_version(&self, op: &Json) -> Result<Json, Failure> {
        let current = version(&op["current"]);
        let SaverVersion::Text(next) = self.saver.next_version(current.as_ref()) else {
            return Err(Failure::of("TypeError"));
        };
        let greater = match &current {
            Some(SaverVersion::Text(current)) => next > *current,
            _ => true,
        };
        Ok(json!({"counter": next.get(..32), "separator": next.get(32..33), "greater": greater}))
    }

    fn prune(&self, op: &Json) -> Result<Json, Failure> {
        let strategy = match op.get("strategy").and_then(Json::as_str).unwrap_or("keep_latest") {
            "keep_latest" => PruneStrategy::KeepLatest,
            "delete" => PruneStrategy::Delete,
            _ => return Err(Failure::of("ValueError")),
        };
        let Some(threads) = op["thread_ids"].as_array() else { return Err(Failure::of("TypeError")) };
        let threads: Vec<&str> = threads.iter().filter_map(Json::as_str).collect();
        self.saver.prune(&threads, strategy).map_err(failure)?;
        Ok(Json::Null)
    }
}

impl CaseRunner for SaverRunner {
    fn run(&mut self, op: &Json) -> Result<Json, Failure> {
        let text = |name: &str| op[name].as_str().unwrap_or_default();
        match op["op"].as_str() {
            Some("put") => self.put(op),
            Some("put_writes") => self.put_writes(op),
            Some("get_tuple") => Ok(self.tuple(op)?.unwrap_or_default()),
            Some("get") => Ok(self.tuple(op)?.map(|mut tuple| tuple["checkpoint"].take()).unwrap_or_default()),
            Some("list") => self.list(op),
            Some("get_delta_channel_history") => self.delta_history(op),
            Some("next_version") => self.next_version(op),
            Some("delete_thread") => self.saver.delete_thread(text("thread_id")).map(|()| Json::Null).map_err(failure),
            Some("copy_thread") => {
                self.saver.copy(text("source"), text("target")).map(|()| Json::Null).map_err(failure)
            }
            Some("delete_for_runs") => {
                let runs: Vec<&str> = op["run_ids"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
                self.saver.delete_for_runs(&runs).map(|()| Json::Null).map_err(failure)
            }
            Some("prune") => self.prune(op),
            _ => Err(Failure::of("Unsupported")),
        }
    }
}

fn failure(error: SaverError) -> Failure {
    Failure { class: error.class().into(), message: error.to_string() }
}

/// Reads a config. A number is the text of it; a put needs the namespace.
fn config(json: &Json, needs_namespace: bool) -> Result<Config, Failure> {
    let configurable = &json["configurable"];
    let thread = match configurable.get("thread_id") {
        Some(Json::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => return Err(Failure::of("KeyError")),
    };
    let namespace = configurable["checkpoint_ns"].as_str();
    if needs_namespace && namespace.is_none() {
        return Err(Failure::of("KeyError"));
    }
    let config = Config::new(thread, namespace.unwrap_or_default());
    Ok(match configurable["checkpoint_id"].as_str() {
        Some(id) => config.at(id),
        None => config,
    })
}

fn shown_config(config: &Config) -> Json {
    json!({"configurable": {
        "thread_id": config.thread,
        "checkpoint_ns": config.namespace,
        "checkpoint_id": config.checkpoint,
    }})
}

fn version(json: &Json) -> Option<SaverVersion> {
    match json {
        Json::String(text) => Some(SaverVersion::Text(text.clone())),
        Json::Number(number) => {
            number.as_i64().map(SaverVersion::Integer).or_else(|| number.as_f64().map(SaverVersion::Float))
        }
        _ => None,
    }
}

fn versions(json: &Json) -> SeenVersions {
    let all = json.as_object().into_iter().flatten();
    all.filter_map(|(channel, json)| Some((channel.clone(), version(json)?))).collect()
}

fn shown_versions(versions: &SeenVersions) -> Json {
    let shown = |(channel, version): &(String, SaverVersion)| {
        let json = match version {
            SaverVersion::Text(text) => json!(text),
            SaverVersion::Integer(number) => json!(number),
            SaverVersion::Float(number) => json!(number),
        };
        (channel.clone(), json)
    };
    Json::Object(versions.iter().map(shown).collect())
}

/// Returns metadata with the scalars of a config, as LangGraph adds them.
fn metadata(json: &Json, config: &Json) -> Map {
    let read = |json: &Json| match values::read(json) {
        Value::Str(text) => Value::Str(text.replace('\0', "")),
        other => other,
    };
    let mut metadata: Map =
        json.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), read(value))).collect();
    for part in ["metadata", "configurable"] {
        for (name, value) in config[part].as_object().into_iter().flatten() {
            let is_scalar = value.is_string() || value.is_number() || value.is_boolean();
            let is_reserved = RESERVED.contains(&&**name) || name.starts_with("__");
            if is_scalar && !is_reserved && !metadata.contains_key(name) {
                metadata.insert(name.clone(), read(value));
            }
        }
    }
    metadata
}

/// Writes a value as the serializer does inside another one.
fn typed(json: &Json) -> Result<Typed, Failure> {
    Ok(Typed::msgpack(Encoded::encode(&value(json)?).map_err(|_| Failure::of("TypeError"))?.bytes))
}

/// Writes a value as the serializer does on its own.
fn typed_write(json: &Json) -> Result<Typed, Failure> {
    match value(json)? {
        Value::Null => Ok(Typed::new("null", Vec::new())),
        Value::Bytes(bytes) => Ok(Typed::new("bytes", bytes)),
        _ => typed(json),
    }
}

fn value(json: &Json) -> Result<Value, Failure> {
    match json {
        Json::Object(map) if map.len() == 1 && map.contains_key("$delta_snapshot") => {
            let inner = typed(&map["$delta_snapshot"])?;
            Ok(Value::Ext(DELTA_SNAPSHOT, inner.bytes))
        }
        Json::Object(map) if map.len() == 1 && map.keys().all(|name| name.starts_with('$')) => Ok(values::read(json)),
        Json::Object(map) => {
            map.iter().map(|(name, json)| Ok((name.clone(), value(json)?))).collect::<Result<_, _>>().map(Value::Map)
        }
        Json::Array(items) => items.iter().map(value).collect::<Result<_, _>>().map(Value::List),
        plain => Ok(values::read(plain)),
    }
}

fn shown(value: &Typed) -> Result<Json, Failure> {
    let bytes = match &*value.tag {
        "null" => return Ok(Json::Null),
        "bytes" => return Ok(values::write(&Value::Bytes(value.bytes.clone()))),
        _ => &value.bytes,
    };
    let decoded = decode_value(Codec::MsgPack, bytes).map_err(|_| Failure::of("ValueError"))?;
    match decoded {
        Value::Ext(DELTA_SNAPSHOT, inner) => Ok(json!({"$delta_snapshot": shown(&Typed::msgpack(inner))?})),
        plain => Ok(values::write(&plain)),
    }
}

fn shown_value(value: &StoredValue) -> Result<Json, Failure> {
    match value {
        StoredValue::Typed(value) => shown(value),
        StoredValue::Items(items) => items.iter().map(|item| shown(item)).collect(),
    }
}

fn shown_writes(writes: Vec<SaverWrite>) -> Result<Json, Failure> {
    writes.iter().map(|write| Ok(json!([write.task, &*write.channel, shown(&write.value)?]))).collect()
}

fn shown_tuple(tuple: Tuple) -> Result<Json, Failure> {
    let mut checkpoint = JsonMap::new();
    if let Some(v) = tuple.v {
        checkpoint.insert("v".into(), json!(v));
    }
    if let Some(ts) = tuple.ts {
        checkpoint.insert("ts".into(), json!(ts));
    }
    checkpoint.insert("id".into(), json!(tuple.config.checkpoint));
    let values = tuple.values.iter().map(|(channel, value)| Ok((channel.clone(), shown_value(value)?)));
    checkpoint.insert("channel_values".into(), Json::Object(values.collect::<Result<_, Failure>>()?));
    checkpoint.insert("channel_versions".into(), shown_versions(&tuple.versions));
    let seen = tuple.seen.iter().map(|(node, versions)| (node.clone(), shown_versions(versions)));
    checkpoint.insert("versions_seen".into(), Json::Object(seen.collect()));
    match tuple.updated {
        UpdatedChannels::Absent => {}
        UpdatedChannels::Unknown => _ = checkpoint.insert("updated_channels".into(), Json::Null),
        UpdatedChannels::Names(names) => _ = checkpoint.insert("updated_channels".into(), json!(names)),
    }
    for (name, value) in &tuple.extra {
        checkpoint.insert(name.clone(), shown(value)?);
    }
    Ok(json!({
        "config": shown_config(&tuple.config),
        "checkpoint": checkpoint,
        "metadata": values::write(&Value::Map(tuple.metadata)),
        "parent_config": tuple.parent.as_ref().map(shown_config),
        "pending_writes": shown_writes(tuple.writes)?,
    }))
}
