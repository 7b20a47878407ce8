//! The copy of the key-value memory to another store.
//!
//! An entry that was put to the target later stays as it is there. *Absent:* lifetimes that a read prolongs, which no
//! backend returns: a copied entry expires when the original would have without another read.

use std::collections::HashMap;

use crate::base::Timestamp;
use crate::base::internal::hash::{Checksum, ChecksumBuilder};
use crate::base::limits::UPDATE_ATTEMPTS_MAX;
use crate::limits::COPY_PART_BYTES;
use crate::store::log::{KvChange, KvNamespace, KvRecord, KvVector, LogExt, SideTables};
use crate::store::{Store, StoreError};

/// Changes of one commit.
const KV_PART_CHANGES: usize = 512;

type KvPlace = (KvNamespace, String);

/// The entries of a store: when each was last put, and the checksum of its content.
type KvContents = HashMap<KvPlace, (Timestamp, Checksum)>;

/// The numbers of entries that were copied, or would be, and of all entries of the source.
pub(super) struct KvCopied {
    pub(super) copied: u64,
    pub(super) all: u64,
}

/// Copies the entries that the target lacks, or only counts them, and verifies the copy.
///
/// # Errors
/// [`StoreError::Unsupported`] if the target has no such memory; as [`SideTables::commit_kv`]; [`StoreError::Corrupt`]
/// if entries still differ after 64 copies.
pub(super) fn copy(source: &Store, target: &Store, dry_run: bool) -> Result<KvCopied, StoreError> {
    let Some(from) = source.backend().capabilities().side_tables else { return Ok(KvCopied { copied: 0, all: 0 }) };
    let mut total = KvCopied { copied: 0, all: 0 };
    for _ in 0..UPDATE_ATTEMPTS_MAX {
        let mut pass = KvPass::new(target, source.now(), dry_run)?;
        let done = pass.run(from)?;
        (total.all, total.copied) = (done.all, total.copied + done.copied);
        if dry_run || done.copied == 0 {
            return Ok(total);
        }
    }
    let reason = "entries differ from those of the original after 64 copies";
    Err(StoreError::Corrupt { place: "copy of the key-value memory".into(), reason: reason.into() })
}

/// One pass over the entries of the source.
struct KvPass<'a> {
    to: &'a dyn SideTables,
    now: Timestamp,
    dry_run: bool,
    there: KvContents,
    vectors_there: HashMap<KvPlace, Checksum>,
    changes: Vec<KvChange>,
    bytes: usize,
    done: KvCopied,
}

impl<'a> KvPass<'a> {
    fn new(target: &'a Store, now: Timestamp, dry_run: bool) -> Result<Self, StoreError> {
        let to = target.backend().side_tables()?;
        let (mut there, mut vectors_there) = (KvContents::new(), HashMap::new());
        to.kv_entries(None, now, &mut |entry| {
            there.insert(place_of(entry), (entry.updated_at, content_of(entry)));
            Ok(true)
        })?;
        to.kv_indexed(None, now, &mut |entry, vectors| {
            vectors_there.insert(place_of(entry), content_of_vectors(vectors));
            Ok(true)
        })?;
        let done = KvCopied { copied: 0, all: 0 };
        Ok(Self { to, now, dry_run, there, vectors_there, changes: Vec::new(), bytes: 0, done })
    }

    fn run(&mut self, from: &dyn SideTables) -> Result<KvCopied, StoreError> {
        from.kv_entries(None, self.now, &mut |entry| {
            self.done.all += 1;
            let place = place_of(entry);
            let (is_newer, content) = (self.is_newer(&place, entry), content_of(entry));
            if !is_newer && self.there.get(&place).is_none_or(|(_, there)| *there != content) {
                self.put(entry)?;
                self.there.insert(place.clone(), (entry.updated_at, content));
                // A put removes the vectors.
                self.vectors_there.remove(&place);
            }
            Ok(true)
        })?;
        from.kv_indexed(None, self.now, &mut |entry, vectors| {
            let place = place_of(entry);
            if !self.is_newer(&place, entry) && self.vectors_there.get(&place) != Some(&content_of_vectors(vectors)) {
                let (namespace, key) = place;
                let bytes = vectors.iter().map(|vector| vector.field.len() + vector.values.len() * 4).sum();
                self.change(KvChange::SetVectors { namespace, key, vectors: vectors.to_vec() }, bytes)?;
            }
            Ok(true)
        })?;
        self.flush()?;
        Ok(std::mem::replace(&mut self.done, KvCopied { copied: 0, all: 0 }))
    }

    /// Returns whether the target has a later put of the entry.
    fn is_newer(&self, place: &KvPlace, entry: &KvRecord) -> bool {
        self.there.get(place).is_some_and(|(updated_at, _)| *updated_at > entry.updated_at)
    }

    fn put(&mut self, entry: &KvRecord) -> Result<(), StoreError> {
        let KvRecord { namespace, key, value, created_at, updated_at, expires_at } = entry;
        let put = |now: Timestamp| KvChange::Put {
            namespace: namespace.clone(),
            key: key.clone(),
            value: value.clone(),
            now,
            expires_at: *expires_at,
        };
        self.done.copied += 1;
        // The first put gives the entry its time of creation.
        if created_at != updated_at && !self.there.contains_key(&place_of(entry)) {
            self.change(put(*created_at), value.bytes.len())?;
        }
        self.change(put(*updated_at), value.bytes.len())
    }

    fn change(&mut self, change: KvChange, bytes: usize) -> Result<(), StoreError> {
        if self.dry_run {
            return Ok(());
        }
        self.changes.push(change);
        self.bytes += bytes;
        if self.changes.len() >= KV_PART_CHANGES || self.bytes >= COPY_PART_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let changes = std::mem::take(&mut self.changes);
        self.bytes = 0;
        if changes.is_empty() { Ok(()) } else { self.to.commit_kv(&changes) }
    }
}

fn place_of(entry: &KvRecord) -> KvPlace {
    (entry.namespace.clone(), entry.key.clone())
}

fn content_of(entry: &KvRecord) -> Checksum {
    let mut content = ChecksumBuilder::new();
    content.int(entry.value.codec.to_tag().into()).bytes(&entry.value.bytes).int(entry.updated_at.as_micros());
    content.int(entry.expires_at.map_or(-1, Timestamp::as_micros)).finish()
}

fn content_of_vectors(vectors: &[KvVector]) -> Checksum {
    let mut content = ChecksumBuilder::new();
    for KvVector { field, values } in vectors {
        content.bytes(field.as_bytes()).int(values.len() as i64);
        values.iter().for_each(|value| _ = content.int(value.to_bits().into()));
    }
    content.finish()
}
