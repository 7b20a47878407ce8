//! Facts of a checkpoint of LangGraph for which the log has no column: one member of its metadata, and one list
//! channel.
//!
//! The metadata member [`MEMBER`] holds those of one checkpoint alone; the items of the channel [`CHANNEL`]
//! hold versions that are no plain numbers, which later checkpoints repeat. Invariant: a checkpoint as LangGraph
//! writes it with the versions of this saver has neither.

use annals::store::record::CheckpointRecord;
use annals::store::{Source, StoreError};
use annals_base::{CheckpointId, Codec, Encoded, Map, Namespace, RunId, Timestamp, Value, decode_value};
use data_encoding::BASE64;
use serde_json::{Value as Json, json};

use crate::version::VersionForm;
use crate::{Result, SaverError, Typed, UpdatedChannels};

/// The member of the metadata.
pub(crate) const MEMBER: &str = "langgraph";
/// The channel of versions and the like.
pub(crate) const CHANNEL: &str = "__langgraph__";
/// The format of checkpoints that LangGraph writes.
const FORMAT: i64 = 4;
/// Members that stand in columns.
const COLUMNS: [&str; 4] = ["source", "step", "parents", "run_id"];

/// The facts of one checkpoint, besides its channels and nodes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Notes {
    pub(crate) v: Option<i64>,
    pub(crate) ts: Option<String>,
    pub(crate) updated: UpdatedChannels,
    pub(crate) extra: Vec<(String, Typed)>,
    pub(crate) metadata: Map,
    /// The id of the parent.
    pub(crate) parent: Option<String>,
    pub(crate) form: VersionForm,
}

/// The columns of a record that notes fill.
#[derive(Debug)]
pub(crate) struct RecordColumns {
    pub(crate) step: i64,
    pub(crate) source: Source,
    pub(crate) created_at: Timestamp,
    pub(crate) run: Option<RunId>,
    pub(crate) parents: Vec<(Namespace, CheckpointId)>,
    pub(crate) metadata: Option<String>,
}

impl Notes {
    /// Returns the columns for a checkpoint whose parent in the log has the id `stored_parent`, and that changes the
    /// channels `updated`.
    pub(crate) fn columns(
        &self,
        stored_parent: Option<&str>,
        updated: &[String],
        fallback: Timestamp,
    ) -> Result<RecordColumns> {
        let mut member = serde_json::Map::new();
        if self.v != Some(FORMAT) {
            member.insert("v".into(), json!(self.v));
        }
        let created_at = self.ts.as_deref().and_then(|ts| ts.parse::<Timestamp>().ok()).unwrap_or(fallback);
        if self.ts.as_deref() != Some(&*iso(created_at)) {
            member.insert("ts".into(), json!(self.ts));
        }
        match &self.updated {
            UpdatedChannels::Names(names) if names == updated => {}
            UpdatedChannels::Names(names) => _ = member.insert("updated".into(), json!(names)),
            UpdatedChannels::Unknown => _ = member.insert("updated".into(), Json::Null),
            UpdatedChannels::Absent => _ = member.insert("updated".into(), json!(false)),
        }
        if !self.extra.is_empty() {
            let extra = self.extra.iter().map(|(name, value)| json!([name, value.tag, BASE64.encode(&value.bytes)]));
            member.insert("extra".into(), extra.collect());
        }
        if self.parent.as_deref() != stored_parent {
            member.insert("parent".into(), json!(self.parent));
        }
        if self.form == VersionForm::Integer {
            member.insert("integers".into(), json!(true));
        }
        self.with_metadata(created_at, member)
    }

    /// Returns the columns of the metadata.
    fn with_metadata(&self, created_at: Timestamp, mut member: serde_json::Map<String, Json>) -> Result<RecordColumns> {
        let mut columns = RecordColumns {
            step: 0,
            source: Source::Update,
            created_at,
            run: None,
            parents: Vec::new(),
            metadata: None,
        };
        let mut rest = self.metadata.clone();
        if let Some(Value::Int(step)) = rest.get("step")
            && step.unsigned_abs() < 1 << 53
        {
            columns.step = *step;
            rest.shift_remove("step");
        }
        if let Some(source) = rest.get("source").and_then(Value::as_str).and_then(|source| source.parse().ok()) {
            columns.source = source;
            rest.shift_remove("source");
        }
        let run = rest.get("run_id").and_then(Value::as_str);
        columns.run = run.and_then(|run| run.parse().ok().filter(|id: &RunId| id.to_string() == run));
        if columns.run.is_some() {
            rest.shift_remove("run_id");
        }
        if let Some(parents) = rest.get("parents").and_then(Value::as_map).and_then(parents) {
            columns.parents = parents;
            rest.shift_remove("parents");
        }
        let absent: Vec<&str> = COLUMNS[..3].iter().copied().filter(|name| !self.metadata.contains_key(name)).collect();
        if !absent.is_empty() {
            member.insert("absent".into(), json!(absent));
        }
        let mut text = serde_json::Map::new();
        if !rest.contains_key(MEMBER) && rest.values().all(is_json) {
            text.extend(rest.into_iter().map(|(name, value)| (name, value.to_json())));
        } else {
            let whole = Encoded::encode(&Value::Map(self.metadata.clone())).map_err(StoreError::from)?;
            member.insert("metadata".into(), json!(BASE64.encode(&whole.bytes)));
        }
        if !member.is_empty() {
            text.insert(MEMBER.into(), Json::Object(member));
        }
        columns.metadata = (!text.is_empty()).then(|| Json::Object(text).to_string());
        Ok(columns)
    }

    /// Reads the notes of a record. `updated` are the channels that it changed and that hold something.
    pub(crate) fn read(record: &CheckpointRecord, updated: impl FnOnce() -> Vec<String>) -> Result<Self> {
        let corrupt = |reason: &str| -> SaverError {
            StoreError::Corrupt { place: format!("metadata of {}", record.point), reason: reason.into() }.into()
        };
        let text = record.metadata.as_deref().unwrap_or("{}");
        let Ok(Json::Object(mut text)) = serde_json::from_str(text) else {
            return Err(corrupt("they are not a JSON object"));
        };
        let mut member = match text.remove(MEMBER) {
            Some(Json::Object(member)) => member,
            _ => serde_json::Map::new(),
        };
        let metadata = match member.remove("metadata").as_ref().and_then(Json::as_str) {
            Some(whole) => {
                let bytes =
                    BASE64.decode(whole.as_bytes()).map_err(|_| corrupt("the member `metadata` is not base64"))?;
                match decode_value(Codec::MsgPack, &bytes) {
                    Ok(Value::Map(map)) => map,
                    _ => return Err(corrupt("the member `metadata` is not an object")),
                }
            }
            None => metadata(record, text, member.get("absent")),
        };
        let extra = member.get("extra").and_then(Json::as_array).into_iter().flatten();
        let extra = extra.map(|entry| {
            let (name, tag) = (entry[0].as_str()?, entry[1].as_str()?);
            let bytes = BASE64.decode(entry[2].as_str()?.as_bytes()).ok()?;
            Some((name.to_owned(), Typed::new(tag.to_owned(), bytes)))
        });
        let extra = extra.collect::<Option<_>>().ok_or_else(|| corrupt("the member `extra` is not valid"))?;
        let texts = |list: &[Json]| list.iter().filter_map(Json::as_str).map(ToOwned::to_owned).collect();
        Ok(Self {
            v: member.get("v").map_or(Some(FORMAT), Json::as_i64),
            ts: match member.get("ts") {
                None => Some(iso(record.created_at)),
                Some(ts) => ts.as_str().map(ToOwned::to_owned),
            },
            updated: match member.get("updated") {
                None => UpdatedChannels::Names(updated()),
                Some(Json::Array(names)) => UpdatedChannels::Names(texts(names)),
                Some(Json::Null) => UpdatedChannels::Unknown,
                Some(_) => UpdatedChannels::Absent,
            },
            extra,
            metadata,
            parent: match member.get("parent") {
                None => record.parent.map(|parent| parent.to_string()),
                Some(parent) => parent.as_str().map(ToOwned::to_owned),
            },
            form: if member.contains_key("integers") { VersionForm::Integer } else { VersionForm::Text },
        })
    }
}

/// Returns the metadata of a record, with the members that stand in columns first.
fn metadata(record: &CheckpointRecord, text: serde_json::Map<String, Json>, absent: Option<&Json>) -> Map {
    let is_absent = |name: &str| {
        let absent = absent.and_then(Json::as_array);
        text.contains_key(name) || absent.is_some_and(|absent| absent.iter().any(|other| other == name))
    };
    let mut map = Map::new();
    if !is_absent("source") {
        map.insert("source".into(), record.source.as_str().into());
    }
    if !is_absent("step") {
        map.insert("step".into(), record.step.into());
    }
    if !is_absent("parents") {
        let parents = record.parents.iter();
        let parents = parents.map(|(namespace, id)| (namespace.as_str().to_owned(), Value::from(id.to_string())));
        map.insert("parents".into(), Value::Map(parents.collect()));
    }
    if let Some(run) = record.run.filter(|_| !is_absent("run_id")) {
        map.insert("run_id".into(), run.to_string().into());
    }
    map.extend(text.into_iter().map(|(name, value)| (name, Value::from(value))));
    map
}

/// Reads a map of namespaces and ids, if all are as the log writes them.
fn parents(map: &Map) -> Option<Vec<(Namespace, CheckpointId)>> {
    let parent = |(namespace, id): (&String, &Value)| Some((Namespace::new(namespace).ok()?, plain_id(id.as_str()?)?));
    (map.len() <= 256).then(|| map.iter().map(parent).collect())?
}

/// Returns the id of a checkpoint, if a text is exactly what the log writes for it.
pub(crate) fn plain_id(text: &str) -> Option<CheckpointId> {
    text.parse().ok().filter(|id: &CheckpointId| id.to_string() == text)
}

/// Returns whether JSON holds a value as it is.
fn is_json(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Str(_) => true,
        Value::Float(number) => number.is_finite(),
        Value::List(items) => items.iter().all(is_json),
        Value::Map(map) => map.values().all(is_json),
        Value::Bytes(_) | Value::Ext(..) => false,
    }
}

/// Returns a timestamp as Python's `isoformat` writes it.
fn iso(at: Timestamp) -> String {
    let text = at.to_string();
    let text = text.strip_suffix('Z').unwrap_or(&text);
    format!("{}+00:00", text.strip_suffix(".000000").unwrap_or(text))
}
