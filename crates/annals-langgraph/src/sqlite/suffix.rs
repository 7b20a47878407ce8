//! The versions of channels as other savers need them: unique over all branches of a thread.
//!
//! The log counts the versions of a channel on each branch, and this saver writes the number alone. LangGraph's
//! PostgreSQL saver stores one value for a version, whichever branch wrote it. Invariant: a version of one lineage has
//! one text, in the versions of a checkpoint and in those that its nodes have seen. *Absent:* versions that came with a
//! suffix.

use std::collections::HashMap;
use std::sync::Arc;

use annals::store::CheckpointRef;
use annals::store::log::{Log, LogExt};
use annals::store::record::CheckpointRecord;
use xxhash_rust::xxh3::Xxh3;

use crate::version::VersionForm;
use crate::{Result, SaverVersion, Tuple};

/// The digits that LangGraph's savers write after the point.
const SUFFIX_DIGITS: usize = 16;

/// The branches of a lineage, and the checkpoints that wrote its versions.
#[derive(Default)]
pub(super) struct LineageVersions {
    /// The records of the lineage by their ordinals, from the first checkpoint on.
    records: Vec<CheckpointRecord>,
    /// The ordinals at which versions were written, by channel and number.
    written: HashMap<(Arc<str>, u64), u64>,
}

impl LineageVersions {
    /// Gives the versions of a tuple that were written on another branch than the first one the suffix of that branch.
    pub(super) fn rename(&mut self, backend: &dyn Log, at: &CheckpointRef, tuple: &mut Tuple) -> Result<()> {
        let Some(record) = backend.checkpoint(at)? else { return Ok(()) };
        let of_lineage = self.records.get(usize::try_from(record.ordinal).unwrap_or(usize::MAX));
        if of_lineage.is_none_or(|known| known.point != record.point) {
            *self = Self::of(backend, &record)?;
        }
        let seen = tuple.seen.iter_mut().flat_map(|(_, versions)| versions);
        for (channel, version) in tuple.versions.iter_mut().chain(seen) {
            let Some(number) = VersionForm::Text.number(version) else { continue };
            let written = self.written.get(&(channel.as_str().into(), number));
            if let Some(first) = written.and_then(|ordinal| self.first_of_branch(*ordinal))
                && let SaverVersion::Text(text) = version
            {
                text.push_str(&suffix(channel, first));
            }
        }
        Ok(())
    }

    /// Reads the lineage of a checkpoint.
    fn of(backend: &dyn Log, record: &CheckpointRecord) -> Result<Self> {
        let ordinals: Vec<u64> = (0..=record.ordinal).collect();
        let records: Vec<_> = backend.ancestors(&record.point, &ordinals)?.into_iter().flatten().collect();
        let mut written = HashMap::new();
        let is_forked = records.iter().any(|other| other.branch != record.branch);
        if is_forked && records.len() == ordinals.len() {
            backend.versions(&record.point, None, 0, &mut |version| {
                let channel = &version.channel;
                written.insert((Arc::clone(&channel.channel), channel.version), channel.ordinal);
                Ok(true)
            })?;
        }
        Ok(Self { records, written })
    }

    /// Returns the first checkpoint of the branch that holds an ordinal; `None` of the first branch.
    fn first_of_branch(&self, ordinal: u64) -> Option<&CheckpointRef> {
        let branch = self.records.get(usize::try_from(ordinal).ok()?)?.branch;
        let first = self.records.partition_point(|record| record.branch < branch);
        (first > 0).then(|| &self.records[first].point)
    }
}

/// Returns the digits that tell the versions of a branch from those of others.
fn suffix(channel: &str, first: &CheckpointRef) -> String {
    let mut hasher = Xxh3::new();
    for text in [first.thread.as_str(), first.namespace.as_str(), &first.checkpoint.to_string(), channel] {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    format!(".{:0SUFFIX_DIGITS$}", hasher.digest() % 10_u64.pow(SUFFIX_DIGITS as u32))
}
