//! New threads that are not stored yet: their batches are handed over together, so that one transaction stores many.
//!
//! Invariant: a thread that is read back, or that another one begins with, is stored before.

use std::collections::HashSet;

use annals::store::batch::Batch;
use annals::store::log::CommitHandle;
use annals::store::{Store, StoreError, ThreadQuery};

use super::ImportSummary;
use super::thread_id;
use crate::arena::fnv;
use crate::error::ImportError;
use crate::limits::{COMMIT_BYTES_MAX, COMMIT_THREADS_MAX};
use crate::model::{SourceSession, UnknownRecord};
use crate::sources::SourceKind;

/// A new thread as one batch.
pub(super) struct NewThread {
    pub(super) source: SourceKind,
    /// The id of the session.
    pub(super) session: String,
    pub(super) batch: Batch,
    pub(super) bytes: usize,
    pub(super) checkpoints: u64,
    pub(super) messages: u64,
}

/// A thread whose batch was handed over.
struct HandedThread {
    source: SourceKind,
    session: String,
    checkpoints: u64,
    messages: u64,
    handle: CommitHandle,
}

/// The new threads of an import.
pub(super) struct PendingThreads {
    waiting: Vec<NewThread>,
    handed: Vec<HandedThread>,
    bytes: usize,
    /// The ids of the threads in `waiting` and `handed`.
    ids: HashSet<String>,
    /// The hashes of the ids of all threads, if the store had none when the import began: then a thread without one of
    /// them does not exist, and is not looked up.
    known: Option<HashSet<u64>>,
}

impl PendingThreads {
    pub(super) fn new(store: &Store) -> Result<Self, ImportError> {
        let all = || ThreadQuery::new().limit(1);
        let queries = [all(), all().archived(true), all().trashed(true)];
        let mut has_threads = false;
        for query in queries {
            has_threads |= !store.threads_with(query)?.is_empty();
        }
        let known = (!has_threads).then(HashSet::new);
        Ok(Self { waiting: Vec::new(), handed: Vec::new(), bytes: 0, ids: HashSet::new(), known })
    }

    /// Returns whether a thread may exist: `false` is sure.
    pub(super) fn may_exist(&self, id: &str) -> bool {
        self.known.as_ref().is_none_or(|known| known.contains(&fnv(id.as_bytes())))
    }

    /// Notes a thread that is written.
    pub(super) fn note(&mut self, id: &str) {
        if let Some(known) = &mut self.known {
            known.insert(fnv(id.as_bytes()));
        }
    }

    /// Returns whether a session belongs to a thread that is not stored yet, or begins with one.
    pub(super) fn concerns(&self, session: &SourceSession) -> bool {
        let ids = std::iter::once(&session.id).chain(&session.earlier_ids);
        let mut ids = ids.map(String::as_str).chain(session.parent.iter().map(|parent| parent.id()));
        !self.ids.is_empty() && ids.any(|id| self.ids.contains(&thread_id(session.source, id)))
    }

    /// Takes a new thread. The threads before it are stored while further ones are read.
    pub(super) fn push(
        &mut self,
        store: &Store,
        thread: NewThread,
        summary: &mut ImportSummary,
    ) -> Result<Vec<UnknownRecord>, ImportError> {
        self.bytes += thread.bytes;
        self.ids.insert(thread.batch.thread.to_string());
        self.waiting.push(thread);
        if self.waiting.len() < COMMIT_THREADS_MAX && self.bytes < COMMIT_BYTES_MAX {
            return Ok(Vec::new());
        }
        let before = std::mem::take(&mut self.handed);
        self.hand_over(store);
        self.wait(before, summary)
    }

    /// Waits until all threads are stored. Returns a record of each that the store refuses.
    pub(super) fn settle(
        &mut self,
        store: &Store,
        summary: &mut ImportSummary,
    ) -> Result<Vec<UnknownRecord>, ImportError> {
        let mut handed = std::mem::take(&mut self.handed);
        self.hand_over(store);
        handed.append(&mut self.handed);
        let refused = self.wait(handed, summary)?;
        debug_assert!(self.ids.is_empty(), "all threads are stored or refused");
        Ok(refused)
    }

    fn hand_over(&mut self, store: &Store) {
        self.bytes = 0;
        for NewThread { source, session, batch, checkpoints, messages, .. } in self.waiting.drain(..) {
            let handle = store.submit(batch);
            self.handed.push(HandedThread { source, session, checkpoints, messages, handle });
        }
    }

    fn wait(
        &mut self,
        handed: Vec<HandedThread>,
        summary: &mut ImportSummary,
    ) -> Result<Vec<UnknownRecord>, ImportError> {
        let mut refused = Vec::new();
        for HandedThread { source, session, checkpoints, messages, handle } in handed {
            let id = thread_id(source, &session);
            match handle.wait() {
                Ok(()) => {
                    summary.threads_new += 1;
                    summary.checkpoints += checkpoints;
                    summary.messages += messages;
                }
                Err(error @ StoreError::Invalid { .. }) => {
                    refused.push(super::refused_session(source, &session, error.to_string()));
                }
                Err(error) => return Err(error.into()),
            }
            self.ids.remove(&id);
        }
        Ok(refused)
    }
}
