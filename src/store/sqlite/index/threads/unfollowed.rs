//! The tokens and the costs that the checkpoints of this handle add to their threads, until the table of threads
//! follows them.
//!
//! A commit knows the namespace, the tokens and the costs of the checkpoints that it writes, so the table follows them
//! without a read. *Absent:* the checkpoints of other handles, and the entries that a cache has dropped: the table
//! reads those.
//!
//! Invariant: an entry equals what [`usage_of_checkpoint`](super::counts::usage_of_checkpoint) reads.

use crate::limits::WRITER_CACHE_MAX;
use crate::store::batch::ItemIndex;
use crate::store::counts::ThreadCounts;
use crate::store::sqlite::number_map::NumberMap;
use crate::store::sqlite::rows::pack::ValueColumn;
use std::collections::BTreeMap;

/// The tokens and the costs of checkpoints that the table does not follow yet.
#[derive(Debug, Default)]
pub(crate) struct Unfollowed {
    /// The first payload of which the tokens are known, if it has any.
    first_payload: Option<i64>,
    tokens: NumberMap<i64, ThreadCounts>,
    /// Each with its namespace.
    checkpoints: BTreeMap<i64, (i64, ThreadCounts)>,
}

impl Unfollowed {
    /// Notes a payload that was stored.
    pub(crate) fn note_payload(&mut self, id: i64, index: Option<&ItemIndex>) {
        self.first_payload.get_or_insert(id);
        let tokens = index.and_then(|index| ThreadCounts::of_tokens(index.input_tokens, index.output_tokens));
        self.tokens.extend(tokens.map(|tokens| (id, tokens)));
    }

    /// Returns the tokens of a stored value, which may have none; `None` if they are not known.
    pub(crate) fn tokens(&self, value: ValueColumn) -> Option<Option<ThreadCounts>> {
        match value {
            ValueColumn::Payload(id) => {
                self.first_payload.filter(|first| *first <= id).map(|_| self.tokens.get(&id).copied())
            }
            _ => Some(None),
        }
    }

    /// Notes a checkpoint of a namespace, and the counts that it adds.
    pub(crate) fn note_checkpoint(&mut self, seq: i64, namespace: i64, usage: ThreadCounts) {
        self.checkpoints.insert(seq, (namespace, usage));
    }

    /// Returns the checkpoints after the mark up to the last one of the log, each with its namespace; `None` if one of
    /// them is not known.
    pub(crate) fn all_between(&self, mark: i64, last: i64) -> Option<Vec<(i64, i64)>> {
        let after = self.checkpoints.range(mark.checked_add(1)?..).take_while(|(seq, _)| **seq <= last);
        let known: Vec<(i64, i64)> = after.map(|(seq, (namespace, _))| (*seq, *namespace)).collect();
        (known.len() as i64 == last.checked_sub(mark)?).then_some(known)
    }

    /// Returns the counts that a checkpoint adds; `None` if they are not known.
    pub(super) fn usage(&self, seq: i64) -> Option<ThreadCounts> {
        self.checkpoints.get(&seq).map(|(_, usage)| *usage)
    }

    /// Drops the checkpoints up to the mark, which the table follows.
    pub(super) fn followed(&mut self, mark: i64) {
        self.checkpoints = self.checkpoints.split_off(&mark.saturating_add(1));
    }

    /// Drops everything if there is too much of it.
    pub(crate) fn bound(&mut self) {
        if self.tokens.len().max(self.checkpoints.len()) > WRITER_CACHE_MAX {
            *self = Self::default();
        }
    }
}
