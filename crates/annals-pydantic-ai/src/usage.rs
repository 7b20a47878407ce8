//! Usage of a request, or of a run: tokens, seconds of audio, cost.
//!
//! *Absent:* prices; the provider or the user states the cost.

use super::decimal::Decimal;
use super::error::{LoadError, PathPart};
use super::macros::serde_impls;
use super::wire::{Wire, WireReader, read_value};
use annals_base::DefaultSource;
use annals_base::{Map, Value};
use annals_messages::internal::{py_float, truthy};

/// Counts of one or several requests to a model.
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct UsageCounts {
    /// Tokens read.
    pub input_tokens: i64,
    /// Tokens written to the provider's cache.
    pub cache_write_tokens: i64,
    /// Of those, tokens cached for an hour.
    pub cache_write_1h_tokens: i64,
    /// Tokens read from the provider's cache.
    pub cache_read_tokens: i64,
    /// Tokens written.
    pub output_tokens: i64,
    /// Requests whose usage is not known; dumped unless it is 0.
    pub unmeasured_requests: i64,
    /// Tokens of reasoning, among those written.
    pub output_reasoning_tokens: i64,
    /// Tokens of audio read.
    pub input_audio_tokens: i64,
    /// Tokens of audio read from the cache.
    pub cache_audio_read_tokens: i64,
    /// Tokens of audio written.
    pub output_audio_tokens: i64,
    /// Seconds of audio.
    pub audio_seconds: f64,
    /// Counts of the provider's own.
    pub details: indexmap::IndexMap<String, i64>,
    /// The cost, if it is known.
    pub cost: Option<Decimal>,
    /// Fields that are declared nowhere, in the order of the input.
    pub extra: Map,
}

/// The usage of one request (`RequestUsage`). Its JSON also accepts the names of older releases.
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct RequestUsage {
    /// The counts.
    pub counts: UsageCounts,
}

/// The usage of a run (`RunUsage`).
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct RunUsage {
    /// The counts of all requests together.
    pub counts: UsageCounts,
    /// Requests made.
    pub requests: i64,
    /// Tool calls that succeeded.
    pub tool_calls: i64,
}

/// A count: its name in the dump, and where it stands.
pub(super) struct CountField {
    pub(super) name: &'static str,
    pub(super) get: fn(&UsageCounts) -> i64,
    pub(super) slot: fn(&mut UsageCounts) -> &mut i64,
}

macro_rules! counts {
    ($($name:ident),* $(,)?) => {
        [$(CountField { name: stringify!($name), get: |counts| counts.$name, slot: |counts| &mut counts.$name }),*]
    };
}

/// The counts in the order of the dump.
pub(super) const COUNTS: [CountField; 10] = counts![
    input_tokens,
    cache_write_tokens,
    cache_write_1h_tokens,
    cache_read_tokens,
    output_tokens,
    unmeasured_requests,
    output_reasoning_tokens,
    input_audio_tokens,
    cache_audio_read_tokens,
    output_audio_tokens,
];

/// Names between double underscores that every object of the reference has, without them.
const SPECIAL: [&str; 35] = [
    "add",
    "annotations",
    "class",
    "copy",
    "dataclass_fields",
    "dataclass_params",
    "delattr",
    "dict",
    "dir",
    "doc",
    "eq",
    "format",
    "ge",
    "get_pydantic_core_schema",
    "getattribute",
    "getstate",
    "gt",
    "hash",
    "init",
    "init_subclass",
    "le",
    "lt",
    "match_args",
    "module",
    "ne",
    "new",
    "pydantic_serializer",
    "reduce",
    "reduce_ex",
    "repr",
    "setattr",
    "sizeof",
    "str",
    "subclasshook",
    "weakref",
];

/// Names of the reference's methods and properties, which no field may have.
const TAKEN: [&str; 7] =
    ["total_tokens", "cache_hit_ratio", "has_values", "incr", "opentelemetry_attributes", "cost", "audio_seconds"];

impl UsageCounts {
    /// Takes the counts out of `map`; the members that stay there are unknown.
    fn take(map: &mut Map, old_names: bool, reader: &mut WireReader<'_>) -> Option<Self> {
        let mut counts = Self::default();
        let mut whole = true;
        if old_names {
            for (old, new) in [("request_tokens", "input_tokens"), ("response_tokens", "output_tokens")] {
                let value = map.shift_remove(old).filter(|_| !map.contains_key(new));
                if let Some(value) = value {
                    let read = reader.at(PathPart::Name(old.into()), |reader| Option::<i64>::read(value, reader));
                    whole &= read.is_some();
                    let slot = if new == "input_tokens" { &mut counts.input_tokens } else { &mut counts.output_tokens };
                    *slot = read.flatten().unwrap_or(0);
                }
            }
        }
        for CountField { name, slot, .. } in COUNTS {
            if let Some(value) = map.shift_remove(name) {
                let read = reader.at(PathPart::Name(name.into()), |reader| i64::read(value, reader));
                whole &= read.is_some();
                *slot(&mut counts) = read.unwrap_or(0);
            }
        }
        if let Some(Value::Float(x)) = map.get("cost").filter(|cost| matches!(cost, Value::Float(x) if x.is_finite())) {
            // The decimal of the text that Python shows, not of the number.
            let text = py_float(*x);
            map.insert("cost".into(), text.into());
        }
        let audio_seconds = reader.field::<f64>(map, &["audio_seconds"], |_| Some(0.0));
        let cost = reader.field::<Option<Decimal>>(map, &["cost"], |_| Some(None));
        let details = map.shift_remove("details").filter(truthy);
        let details = details.map_or(Some(indexmap::IndexMap::new()), |value| {
            reader.at(PathPart::Name("details".into()), |reader| read_details(value, reader))
        });
        for name in TAKEN {
            map.shift_remove(name);
        }
        map.retain(|name, _| {
            let inner = name.strip_prefix("__").and_then(|name| name.strip_suffix("__"));
            !inner.is_some_and(|name| SPECIAL.contains(&name))
        });
        counts.audio_seconds = audio_seconds?;
        counts.cost = cost?;
        counts.details = details?;
        whole.then_some(counts)
    }

    /// Writes the counts, but not the unknown fields.
    fn put(&self, map: &mut Map) {
        for CountField { name, get, .. } in COUNTS {
            if name != "unmeasured_requests" || get(self) != 0 {
                map.insert(name.into(), get(self).into());
            }
        }
        map.insert("audio_seconds".into(), self.audio_seconds.into());
        map.insert("details".into(), self.details_map().into());
        map.insert("cost".into(), self.cost.write());
    }

    /// Returns the members that are not zero, and the unknown fields.
    pub(super) fn non_zero(&self) -> Map {
        let mut map = Map::new();
        for CountField { name, get, .. } in COUNTS {
            if get(self) != 0 {
                map.insert(name.into(), get(self).into());
            }
        }
        if self.audio_seconds != 0.0 {
            map.insert("audio_seconds".into(), self.audio_seconds.into());
        }
        if !self.details.is_empty() {
            map.insert("details".into(), self.details_map().into());
        }
        if let Some(cost) = &self.cost {
            map.insert("cost".into(), cost.write());
        }
        map.extend(self.extra.clone());
        map
    }

    fn details_map(&self) -> Map {
        self.details.iter().map(|(name, count)| (name.clone(), (*count).into())).collect()
    }

    /// Returns the tokens read and written.
    pub fn total_tokens(&self) -> i64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// Returns the share of the input that came from the cache, 0 to 1; 0 without input.
    pub fn cache_hit_ratio(&self) -> f64 {
        if self.input_tokens == 0 { 0.0 } else { self.cache_read_tokens as f64 / self.input_tokens as f64 }
    }

    /// Returns true if any count is not zero, apart from requests whose usage is unknown.
    pub fn has_values(&self) -> bool {
        let counted = COUNTS.iter().any(|count| count.name != "unmeasured_requests" && (count.get)(self) != 0);
        counted
            || self.audio_seconds != 0.0
            || self.details.values().any(|count| *count != 0)
            || self.cost.as_ref().is_some_and(|cost| !cost.is_zero())
            || self.extra.values().any(truthy)
    }
}

fn read_details(value: Value, reader: &mut WireReader<'_>) -> Option<indexmap::IndexMap<String, i64>> {
    let map = reader.object(value)?;
    let read: Vec<(String, Option<i64>)> = map
        .into_iter()
        .map(|(name, value)| {
            let count = reader.at(PathPart::Name(name.clone()), |reader| i64::read(value, reader));
            (name, count)
        })
        .collect();
    read.into_iter().map(|(name, count)| Some((name, count?))).collect()
}

impl RequestUsage {
    /// Reads the usage from its JSON, also that of older releases (`request_tokens`, `response_tokens`).
    ///
    /// # Errors
    /// [`LoadError`] naming the field.
    pub fn from_value(value: Value, defaults: &mut DefaultSource<'_>) -> Result<Self, LoadError> {
        read_value("usage", value, defaults)
    }

    /// Returns the value as JSON.
    pub fn to_value(&self) -> Value {
        self.write()
    }
}

impl RunUsage {
    /// Reads the value from its JSON.
    ///
    /// # Errors
    /// [`LoadError`] naming the field.
    pub fn from_value(value: Value, defaults: &mut DefaultSource<'_>) -> Result<Self, LoadError> {
        read_value("usage", value, defaults)
    }

    /// Returns the value as JSON.
    pub fn to_value(&self) -> Value {
        self.write()
    }

    /// Returns true if any count is not zero, apart from requests whose usage is unknown.
    pub fn has_values(&self) -> bool {
        self.counts.has_values() || self.requests != 0 || self.tool_calls != 0
    }
}

/// As the usage of one request.
impl Wire for UsageCounts {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        RequestUsage::read(value, reader).map(|usage| usage.counts)
    }

    fn write(&self) -> Value {
        let mut map = Map::new();
        self.put(&mut map);
        map.extend(self.extra.clone());
        map.into()
    }
}

impl Wire for RequestUsage {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        let mut map = reader.object(value)?;
        map.shift_remove("requests");
        let mut counts = UsageCounts::take(&mut map, true, reader)?;
        map.shift_remove("extract");
        counts.extra = map;
        Some(Self { counts })
    }

    fn write(&self) -> Value {
        self.counts.write()
    }

    fn absent(_: &mut DefaultSource<'_>) -> Option<Self> {
        Some(Self::default())
    }
}

impl Wire for RunUsage {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        let mut map = reader.object(value)?;
        let requests = reader.field::<i64>(&mut map, &["requests"], |_| Some(0));
        let tool_calls = reader.field::<i64>(&mut map, &["tool_calls"], |_| Some(0));
        let counts = UsageCounts::take(&mut map, false, reader);
        for name in ["requests", "tool_calls", "request_tokens", "response_tokens"] {
            map.shift_remove(name);
        }
        let mut counts = counts?;
        counts.extra = map;
        Some(Self { counts, requests: requests?, tool_calls: tool_calls? })
    }

    fn write(&self) -> Value {
        let mut map = Map::new();
        self.counts.put(&mut map);
        map.insert("requests".into(), self.requests.into());
        map.insert("tool_calls".into(), self.tool_calls.into());
        map.extend(self.counts.extra.clone());
        map.into()
    }
}

serde_impls!(UsageCounts, RequestUsage, RunUsage);
