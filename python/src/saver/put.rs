//! Puts of checkpoints.
//!
//! Invariant: the head that a put caches is what a read of the stored checkpoint gives. *Absent:* waiting for the disk
//! from a loop.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use annals_langgraph::{Config, NewValue, SaverCheckpoint, SaverItem, SaverVersion, Typed, UpdatedChannels};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::errors::invalid;
use crate::values::map_from_python;

use super::heads::{Head, HeadPlace, HeadValue};
use super::items::{ListBuilding, ListChunk, PrototypeList};
use super::prototype::{Prototype, message_id};
use super::{PySaver, version};

/// A list of at least so many items that are not messages is stored item by item.
const LIST_ITEMS_MIN: usize = 16;

/// A put that is ready to be stored.
pub(super) struct ReadyPut {
    pub(super) parent: Config,
    pub(super) new: SaverCheckpoint,
    pub(super) head: Arc<Head>,
    pub(super) place: HeadPlace,
}

/// A list of the checkpoint, compared with that of its parent.
#[derive(Default)]
struct ComparedList {
    items: Vec<SaverItem>,
    prototypes: ListBuilding,
}

impl PySaver {
    /// Encodes what differs from the parent.
    pub(super) fn ready(
        &self,
        thread: String,
        namespace: String,
        parent: Option<String>,
        checkpoint: &Bound<'_, PyDict>,
        metadata: &Bound<'_, PyAny>,
        new_versions: &Bound<'_, PyDict>,
    ) -> PyResult<ReadyPut> {
        let py = checkpoint.py();
        let place = (thread.clone(), namespace.clone());
        let known = self.heads.get(&place, self.serializer).filter(|head| parent.as_ref() == Some(&head.id));
        let mut config = Config::new(thread, namespace);
        config.checkpoint.clone_from(&parent);
        let required = |name: &str| {
            checkpoint.get_item(name)?.ok_or_else(|| invalid(format!("checkpoint: it has no member {name:?}")))
        };
        let id: String = required("id")?.extract()?;
        let mut new = SaverCheckpoint::new(id.clone(), "");
        new.v = optional(checkpoint, "v")?;
        new.ts = optional(checkpoint, "ts")?;
        new.versions = versions("channel_versions", &required("channel_versions")?)?;
        for (node, seen) in required("versions_seen")?.cast::<PyDict>()?.iter() {
            new.seen.push((node.extract()?, versions("versions_seen", &seen)?));
        }
        new.updated = match checkpoint.get_item(intern!(py, "updated_channels"))? {
            None => UpdatedChannels::Absent,
            Some(names) if names.is_none() => UpdatedChannels::Unknown,
            Some(names) => UpdatedChannels::Names(names.extract()?),
        };
        const MEMBERS: [&str; 7] =
            ["v", "ts", "id", "channel_values", "channel_versions", "versions_seen", "updated_channels"];
        for (name, value) in checkpoint.iter() {
            let name: String = name.extract()?;
            if !MEMBERS.contains(&&*name) {
                new.extra.push((name, self.encode(&value)?));
            }
        }
        new.metadata = map_from_python("metadata", metadata)?;
        let mut values = Vec::new();
        for (channel, value) in required("channel_values")?.cast::<PyDict>()?.iter() {
            let channel: String = channel.extract()?;
            let before = known.as_ref().and_then(|known| known.value(&channel));
            let number = new.versions.iter().find(|(name, _)| *name == channel).map(|(_, version)| version);
            let is_same_version = before.is_some()
                && known.as_ref().is_some_and(|known| known.version(&channel) == number)
                && !new_versions.contains(&channel)?;
            let (new_value, head_value) = self.value(&value, before, is_same_version)?;
            new.values.push((channel.clone(), new_value));
            values.push((channel, head_value));
        }
        values.sort_by(|a, b| a.0.cmp(&b.0));
        let head = Head {
            id,
            serializer: self.serializer,
            v: new.v,
            ts: new.ts.clone(),
            versions: sorted(new.versions.clone()),
            seen: sorted(new.seen.iter().map(|(node, seen)| (node.clone(), sorted(seen.clone()))).collect()),
            updated: new.updated.clone(),
            extra: new.extra.clone(),
            metadata: new.metadata.clone(),
            parent: parent.filter(|parent| !parent.is_empty()),
            values,
        };
        Ok(ReadyPut { parent: config, new, head: Arc::new(head), place })
    }

    /// Encodes the value of a channel as far as it differs from that of the parent.
    fn value(
        &self,
        value: &Bound<'_, PyAny>,
        before: Option<&Arc<HeadValue>>,
        is_same_version: bool,
    ) -> PyResult<(NewValue, Arc<HeadValue>)> {
        // A list whose version did not rise is that of the parent: to change it in place is noticed when it rises.
        if let Some(before) = before.filter(|before| is_same_version && matches!(&***before, HeadValue::Items(_))) {
            return Ok((NewValue::Same, Arc::clone(before)));
        }
        let list = if self.splits_lists { list_of(value) } else { None };
        if let Some(list) = list {
            let none = PrototypeList::default();
            let before_items = match before.map(|before| &**before) {
                Some(HeadValue::Items(items)) => items,
                _ => &none,
            };
            let is_split = before_items.len() > 0
                || list.len() >= LIST_ITEMS_MIN
                || list.get_item(0).is_ok_and(|item| self.classes.is_message(&item));
            if is_split && let Some(compared) = self.compared(&list, before_items)? {
                let prototypes = compared.prototypes.finish();
                return Ok((NewValue::Items(compared.items), Arc::new(HeadValue::Items(prototypes))));
            }
        }
        let typed = self.encode(value)?;
        if let Some(before) = before.filter(|_| is_same_version)
            && let HeadValue::One(known, _) = &**before
            && *known == typed
        {
            return Ok((NewValue::Same, Arc::clone(before)));
        }
        Ok((NewValue::Typed(typed.clone()), Arc::new(HeadValue::One(typed, OnceLock::new()))))
    }

    /// Compares a list with that of the parent, item by item; `None` if it must be encoded as a whole.
    fn compared(&self, list: &Bound<'_, PyList>, before: &PrototypeList) -> PyResult<Option<ComparedList>> {
        let py = list.py();
        let mut compared = ComparedList::default();
        // The places of the parent's messages by their ids, once an item is not where it was.
        let mut places: Option<HashMap<String, usize>> = None;
        let (mut at, mut next) = (0, 0);
        while at < list.len() {
            if let Some(chunk) = before.chunk_at(next) {
                let same = chunk.same_start(&self.classes, list, at, |item| self.encode_item(item))?;
                compared.same_start(next, chunk, same);
                (at, next) = (at + same, next + same);
                if same > 0 {
                    continue;
                }
            }
            // Code of the serializer may have changed the list.
            let Ok(item) = list.get_item(at) else { break };
            at += 1;
            let encode = || self.encode_item(&item);
            if let Some(known) = before.get(next)
                && known.is_of(&self.classes, &item, encode)?
            {
                compared.same(next, known);
                next += 1;
                continue;
            }
            if next < before.len() {
                let Some(id) = message_id(&item) else { return Ok(None) };
                let places = places.get_or_insert_with(|| {
                    let ids = before.iter().enumerate();
                    ids.filter_map(|(at, known)| Some((known.message_id(py)?, at))).collect()
                });
                if let Some(&at) = places.get(&id).filter(|at| **at >= next)
                    && let Some(known) = before.get(at)
                {
                    next = at + 1;
                    if known.is_of(&self.classes, &item, encode)? {
                        compared.same(at, known);
                        continue;
                    }
                }
            }
            let Some(typed) = self.encode_item(&item)? else { return Ok(None) };
            let prototype = Arc::new(self.item_prototype(&typed, &item)?);
            compared.items.push(SaverItem::New(typed));
            compared.prototypes.item(prototype);
        }
        Ok(Some(compared))
    }

    /// Decodes an item that was just encoded.
    fn item_prototype(&self, typed: &Typed, live: &Bound<'_, PyAny>) -> PyResult<Prototype> {
        let decoded = self.decode(live.py(), typed)?;
        Prototype::new(&self.classes, decoded, Some(live), typed)
    }
}

impl ComparedList {
    fn same(&mut self, at: usize, known: &Arc<Prototype>) {
        self.same_items(at, 1);
        self.prototypes.item(Arc::clone(known));
    }

    /// Adds so many items of the parent's list from a place on.
    fn same_items(&mut self, begin: usize, count: usize) {
        // A list has fewer items than an index can tell: they would not fit into memory.
        let (begin, end) = (begin as u32, (begin + count) as u32);
        match self.items.last_mut() {
            Some(SaverItem::Same(indexes)) if indexes.end == begin => indexes.end = end,
            _ => self.items.push(SaverItem::Same(begin..end)),
        }
    }

    /// Adds so many items at the start of a chunk, which begins at a place.
    fn same_start(&mut self, begin: usize, chunk: &Arc<ListChunk>, count: usize) {
        if count < chunk.len() {
            return chunk.prototypes[..count].iter().zip(begin..).for_each(|(known, at)| self.same(at, known));
        }
        self.same_items(begin, count);
        self.prototypes.chunk(chunk);
    }
}

/// Returns a list, and a tuple as one: a serializer writes them alike.
fn list_of<'py>(value: &Bound<'py, PyAny>) -> Option<Bound<'py, PyList>> {
    match value.cast_exact::<PyList>() {
        Ok(list) => Some(list.clone()),
        Err(_) => value.cast_exact::<PyTuple>().ok().map(|tuple| tuple.to_list()),
    }
}

fn optional<'a, 'py: 'a, T>(checkpoint: &'a Bound<'py, PyDict>, name: &str) -> PyResult<Option<T>>
where
    T: for<'b> FromPyObject<'b, 'py, Error = PyErr>,
{
    checkpoint.get_item(name)?.map(|value| value.extract()).transpose()
}

fn versions(field: &str, object: &Bound<'_, PyAny>) -> PyResult<Vec<(String, SaverVersion)>> {
    let read = |(channel, number): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
        let channel: String = channel.extract()?;
        let number = version(&format!("{field}[{channel:?}]"), &number)?;
        Ok((channel, number))
    };
    object.cast::<PyDict>()?.iter().map(read).collect()
}

fn sorted<T>(mut members: Vec<(String, T)>) -> Vec<(String, T)> {
    members.sort_by(|a, b| a.0.cmp(&b.0));
    members
}
