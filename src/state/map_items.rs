//! How the entries of a map and the parts of a text are stored and shown.
//!
//! *Absent:* the rules of the channels.

use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::{Encoded, Map, Payload, PayloadRef, Value, decode_bytes};
use crate::channel::{Cell, Channel, ChannelError, List, ListShape, MapEntry, MergeEntries};

use super::error::StateError;
use super::field::{codec, misfit, wrong_type};
use super::lists::ListItems;

/// Entries of a map. In plain data a write is a map of its keys; a key with the value `{"__remove__": true}` is
/// removed.
pub(super) struct EntryItems<T>(PhantomData<fn() -> T>);

/// The name of the only member of a map that stands for a removed key.
const REMOVE: &str = "__remove__";

/// Returns the value of a key that is removed, in plain data.
pub(super) fn removed() -> Value {
    Value::Map([(REMOVE.to_owned(), Value::from(true))].into_iter().collect())
}

fn is_removed(value: &Value) -> bool {
    value.as_map().is_some_and(|map| map.len() == 1 && map.get(REMOVE).and_then(Value::as_bool) == Some(true))
}

impl<T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static> ListItems for EntryItems<T> {
    type Item = MapEntry<T>;

    const SHAPE: ListShape = ListShape::Map;
    const NULL_IS_EMPTY: bool = true;
    const MERGES: bool = true;

    fn empty() -> List<MapEntry<T>> {
        // The hash of a key says where it lies.
        List::new()
    }

    fn collect(items: Vec<MapEntry<T>>) -> Result<List<MapEntry<T>>, ChannelError> {
        let mut list = Self::empty();
        MergeEntries.update(Cell { value: &mut list, present: &mut false }, vec![items])?;
        Ok(list)
    }

    /// A write of entries is a map, and never one item.
    fn item(name: &Arc<str>, value: &Value) -> Result<MapEntry<T>, StateError> {
        Err(wrong_type::<Map>(name, value.kind()))
    }

    fn items(name: &Arc<str>, value: &Value) -> Option<Result<Vec<MapEntry<T>>, StateError>> {
        let entry = |(key, value): (&String, &Value)| match is_removed(value) {
            true => Ok(MapEntry::remove(key.as_str())),
            false => Ok(MapEntry::put(key.as_str(), value.to::<T>().map_err(codec::<T>(name))?)),
        };
        Some(value.as_map()?.iter().map(entry).collect())
    }

    fn to_value(name: &Arc<str>, items: &mut dyn Iterator<Item = &MapEntry<T>>) -> Result<Value, StateError> {
        let mut members = Vec::new();
        for entry in items {
            let value = match &entry.value {
                Some(value) => Value::from_serialize(value).map_err(codec::<T>(name))?,
                None => removed(),
            };
            members.push((entry.key.to_string(), value));
        }
        // Of writes to one key the last counts, which a stable order retains.
        members.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Value::Map(members.into_iter().collect()))
    }

    fn encode(name: &Arc<str>, entry: &MapEntry<T>) -> Result<Payload, StateError> {
        Encoded::encode(entry).map(Payload::from).map_err(codec::<T>(name))
    }

    fn decode(name: &Arc<str>, stored: PayloadRef<'_>) -> Result<MapEntry<T>, StateError> {
        decode_bytes(stored.codec, stored.data).map_err(misfit::<T>(name, stored))
    }
}

/// Parts of a text.
pub(super) struct TextItems;

impl ListItems for TextItems {
    type Item = String;

    const SHAPE: ListShape = ListShape::Text;
    const NULL_IS_EMPTY: bool = true;

    fn to_value(_: &Arc<str>, items: &mut dyn Iterator<Item = &String>) -> Result<Value, StateError> {
        Ok(Value::from(items.map(String::as_str).collect::<String>()))
    }

    fn encode(name: &Arc<str>, part: &String) -> Result<Payload, StateError> {
        Encoded::encode(part).map(Payload::from).map_err(codec::<String>(name))
    }

    fn decode(name: &Arc<str>, stored: PayloadRef<'_>) -> Result<String, StateError> {
        decode_bytes(stored.codec, stored.data).map_err(misfit::<String>(name, stored))
    }
}
