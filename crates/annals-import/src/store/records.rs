//! The records that were not understood, in the key-value memory.
//!
//! Namespace: `import`, a hash of the path that is imported, and the program. Invariant: after an import, the entries
//! of its path are those of that import, at most [`UNKNOWN_RECORDS_MAX`].

use std::collections::HashSet;
use std::path::Path;

use annals::base::limits::KV_CHANGES_MAX;
use annals::base::{Map, Value};
use annals::store::kv::KvWrite;
use annals::store::{KvQuery, Store};

use crate::arena::{bounded, fnv};
use crate::error::ImportError;
use crate::limits::{COMMIT_BYTES_MAX, COMMIT_RECORDS_MAX, RAW_BYTES_MAX, UNKNOWN_RECORDS_MAX};
use crate::model::{UnknownCounts, UnknownRecord};

/// The first label of the namespace.
const LABEL: &str = "import";

/// The records of one import.
pub(super) struct RecordLog {
    path: String,
    written: HashSet<(String, String)>,
    /// Entries that are not stored yet, and their bytes.
    waiting: Vec<KvWrite>,
    waiting_bytes: usize,
}

impl RecordLog {
    pub(super) fn new(paths: &[&Path]) -> Result<Self, ImportError> {
        let whole = |path: &&Path| path.canonicalize().map_err(|error| ImportError::io(*path, error));
        let whole = paths.iter().map(whole).collect::<Result<Vec<_>, _>>()?;
        let text: Vec<_> = whole.iter().map(|path| path.to_string_lossy()).collect();
        let path = format!("{:016x}", fnv(text.join("\n").as_bytes()));
        Ok(Self { path, written: HashSet::new(), waiting: Vec::new(), waiting_bytes: 0 })
    }

    pub(super) fn add(&mut self, store: &Store, record: UnknownRecord) -> Result<(), ImportError> {
        if self.written.len() >= UNKNOWN_RECORDS_MAX {
            return Ok(());
        }
        let source = record.source.map_or("files", |source| source.name());
        let key = bounded(format!("{} {}", record.place, record.kind).replace('\0', "\u{fffd}"));
        let mut raw = record.raw;
        if raw.len() > RAW_BYTES_MAX {
            let end = (0..=RAW_BYTES_MAX).rev().find(|end| raw.is_char_boundary(*end)).unwrap_or(0);
            raw.truncate(end);
        }
        let bytes = raw.len() + key.len();
        let fields = [("kind", record.kind), ("place", record.place), ("raw", raw)];
        let value: Map = fields.into_iter().map(|(name, text)| (name.to_owned(), Value::from(text))).collect();
        // An entry that is there already is not written again, and an earlier one of this import is not lost.
        if !self.written.insert((source.to_owned(), key.clone())) {
            self.flush(store)?;
        }
        let namespace = [LABEL, self.path.as_str(), source];
        if store.kv().get(namespace, &key)?.is_none_or(|found| found.value != Value::Map(value.clone())) {
            self.waiting_bytes += bytes;
            self.waiting.push(KvWrite::put(namespace, key, value)?);
            if self.waiting.len() >= COMMIT_RECORDS_MAX || self.waiting_bytes >= COMMIT_BYTES_MAX {
                self.flush(store)?;
            }
        }
        Ok(())
    }

    /// Stores the entries that wait, in one commit.
    fn flush(&mut self, store: &Store) -> Result<(), ImportError> {
        self.waiting_bytes = 0;
        match std::mem::take(&mut self.waiting) {
            waiting if waiting.is_empty() => Ok(()),
            waiting => Ok(store.kv().write_all(waiting)?),
        }
    }

    /// Removes the entries of earlier imports of the same path that this one did not meet: the line that was torn is
    /// whole.
    pub(super) fn finish(mut self, store: &Store) -> Result<(), ImportError> {
        self.flush(store)?;
        let kv = store.kv();
        let mut stale = Vec::new();
        for item in kv.search(KvQuery::new([LABEL, self.path.as_str()]).limit(u32::MAX as usize))? {
            let source = item.namespace.last().cloned().unwrap_or_default();
            if !self.written.contains(&(source, item.key.clone())) {
                stale.push(KvWrite::delete(&item.namespace, item.key)?);
            }
        }
        while !stale.is_empty() {
            let rest = stale.split_off(stale.len().min(KV_CHANGES_MAX));
            kv.write_all(std::mem::replace(&mut stale, rest))?;
        }
        Ok(())
    }
}

/// Returns the number of stored records, by kind.
pub(super) fn counts(store: &Store) -> Result<UnknownCounts, ImportError> {
    let mut counts = UnknownCounts::new();
    for item in store.kv().search(KvQuery::new([LABEL]).limit(u32::MAX as usize))? {
        let kind = item.value.get("kind").and_then(Value::as_str).unwrap_or("record");
        *counts.entry(kind.to_owned()).or_default() += 1;
    }
    Ok(counts)
}
