//! Collects the entries that the next checkpoint of a random history can refer to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use annals::base::TaskId;
use annals::store::batch::{Change, ChangeValue, WriteRef, WriteValue};

/// The base of a new checkpoint: the versions, the positions and the writes.
#[derive(Clone, Default)]
pub(super) struct Base {
    pub(super) versions: BTreeMap<Arc<str>, u64>,
    pub(super) positions: BTreeMap<Arc<str>, Vec<u64>>,
    pub(super) ends: BTreeMap<Arc<str>, u64>,
    pub(super) writes: Vec<WriteRef>,
    /// The positions that are taken, also by what nothing can refer to.
    pub(super) taken: BTreeSet<(TaskId, i32)>,
    pub(super) tasks: u32,
}

impl Base {
    pub(super) fn add_write(&mut self, task: TaskId, index: i32, value: &WriteValue) {
        // A special index may be replaced later, so nothing refers to one; any other keeps its first write.
        if index < 0 || !self.taken.insert((task, index)) {
            return;
        }
        let parts = match value {
            WriteValue::Null => 0,
            WriteValue::One(_) => 1,
            WriteValue::Items(items) => items.len() as u32,
            WriteValue::Delta(delta) => delta.items.len() as u32,
        };
        self.writes.extend((0..parts).map(|part| WriteRef::new(task, index).with_part(part)));
    }

    pub(super) fn change(&mut self, changes: &mut Vec<Change>, channel: &str, value: ChangeValue, task: Option<u32>) {
        if changes.iter().any(|change| &*change.channel == channel) {
            return;
        }
        let version = self.versions.entry(channel.into()).or_insert(0);
        *version += 1;
        changes.push(Change::new(channel, *version, value).by(task));
    }
}
