//! Deletion, copies and pruning.
//!
//! Invariant: a checkpoint that is to go is hidden before its space is reclaimed. *Absent:* the reclaiming itself,
//! which is the engine's.

use std::collections::{BTreeMap, BTreeSet};

use annals::store::StoreError;
use annals::store::log::{CheckpointQuery, LogExt, PruneSpan};
use annals::store::record::CheckpointRecord;
use annals_base::ThreadId;
use annals_base::limits::{PAGE_ROWS_MAX, UPDATE_ATTEMPTS_MAX};

use crate::aside::Aside;
use crate::inner::FoundPlace;
use crate::notes::Notes;
use crate::place::{SaverPlace, is_aside, thread_id, thread_text};
use crate::{PruneStrategy, Result, Saver, SaverError};

/// The metadata of threads with delta channels.
const DELTA_COUNTERS: &str = "counters_since_delta_snapshot";

/// The checkpoints of a thread, as LangGraph knows them, with their records.
struct Checkpoints(Vec<(String, String, CheckpointRecord)>);

impl Saver {
    /// Deletes a thread with everything in it. One that does not exist is passed over.
    ///
    /// # Errors
    /// [`SaverError::Store`].
    pub fn delete_thread(&self, thread: &str) -> Result<()> {
        let id = thread_id(thread)?;
        let inner = self.inner();
        inner.drop_writes(&id);
        // Writes that were taken out of the buffer are stored before the deletion, not after it.
        inner.wait_for_flush();
        inner.drop_writes(&id);
        inner.settle(Some(&id));
        _ = inner.store.delete_thread(&id)?;
        inner.forget(&id);
        Ok(())
    }

    /// Copies a thread, with its namespaces, ids and writes. A source that does not exist is passed over.
    ///
    /// # Errors
    /// [`SaverError::Store`] with [`StoreError::Conflict`] if the target has checkpoints.
    pub fn copy(&self, source: &str, target: &str) -> Result<()> {
        let inner = self.inner();
        let (source, target) = (thread_id(source)?, thread_id(target)?);
        inner.flush(Some(&source))?;
        inner.settle(Some(&source));
        match inner.store.thread(&source)?.copy_to(&target) {
            Ok(_) | Err(StoreError::ThreadNotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes the checkpoints of runs, which their metadata name (`run_id`), with their writes, in all threads and
    /// namespaces. The cost is that of the records of the whole log.
    ///
    /// # Errors
    /// [`SaverError::Store`]. A repeated call continues one that failed.
    pub fn delete_for_runs(&self, runs: &[&str]) -> Result<()> {
        if runs.is_empty() {
            return Ok(());
        }
        let inner = self.inner();
        inner.flush(None)?;
        inner.settle(None);
        for thread in self.threads()? {
            let checkpoints = self.checkpoints(&thread)?;
            let mut gone = BTreeMap::new();
            for (namespace, id, record) in &checkpoints.0 {
                let metadata = Notes::read(record, Vec::new)?.metadata;
                if metadata.get("run_id").and_then(|run| run.as_str()).is_some_and(|run| runs.contains(&run)) {
                    gone.insert((namespace.clone(), id.clone()), Aside::Deleted);
                }
            }
            self.remove(&thread, &checkpoints, gone)?;
        }
        Ok(())
    }

    /// Prunes threads. Unknown ones are passed over. The parent of a checkpoint that [`PruneStrategy::KeepLatest`]
    /// keeps is gone from its tuple.
    ///
    /// # Errors
    /// [`SaverError::Unsupported`] for [`PruneStrategy::KeepLatest`] if a thread has delta channels, whose histories
    /// need the ancestors; [`SaverError::Store`]. A repeated call continues one that failed.
    pub fn prune(&self, threads: &[&str], strategy: PruneStrategy) -> Result<()> {
        for thread in threads {
            match strategy {
                PruneStrategy::Delete => self.delete_thread(thread)?,
                PruneStrategy::KeepLatest => self.keep_latest(thread)?,
            }
        }
        Ok(())
    }

    fn keep_latest(&self, thread: &str) -> Result<()> {
        let id = thread_id(thread)?;
        let inner = self.inner();
        inner.flush(Some(&id))?;
        inner.settle(Some(&id));
        let checkpoints = self.checkpoints(&id)?;
        let mut latest: BTreeMap<&str, (&str, &CheckpointRecord)> = BTreeMap::new();
        for (namespace, id, record) in &checkpoints.0 {
            let newest = latest.entry(namespace).or_insert((id, record));
            if **id > *newest.0 {
                *newest = (id, record);
            }
        }
        let mut parents = BTreeSet::new();
        for (namespace, (_, record)) in &latest {
            let notes = Notes::read(record, Vec::new)?;
            if notes.metadata.contains_key(DELTA_COUNTERS) {
                let reason = format!("thread {thread:?} has delta channels, whose values are in the ancestors");
                return Err(SaverError::Unsupported { feature: "pruning with keep_latest", reason });
            }
            parents.extend(notes.parent.map(|parent| ((*namespace).to_owned(), parent)));
        }
        let goes = checkpoints.0.iter().filter(|(namespace, id, _)| latest[&**namespace].0 != *id);
        let mut gone: BTreeMap<(String, String), Aside> =
            goes.map(|(namespace, id, _)| ((namespace.clone(), id.clone()), Aside::Deleted)).collect();
        for parent in parents {
            gone.entry(parent).and_modify(|aside| *aside = Aside::Pruned);
        }
        self.remove(&id, &checkpoints, gone)
    }

    /// Returns the checkpoints of a thread.
    fn checkpoints(&self, thread: &ThreadId) -> Result<Checkpoints> {
        let inner = self.inner();
        let index = inner.index(thread)?;
        let mut found = Vec::new();
        for namespace in inner.backend().namespaces(thread)?.into_iter().filter(|name| !is_aside(name.as_str())) {
            let mut query = CheckpointQuery::new(thread.clone(), namespace);
            query.limit = PAGE_ROWS_MAX;
            loop {
                let page = inner.backend().checkpoints(&query)?;
                let Some(last) = page.last() else { break };
                query.before = Some(last.point.checkpoint);
                for record in page {
                    let (namespace, id) = (record.point.namespace.as_str(), record.point.checkpoint.to_string());
                    if matches!(index.find(namespace, &id), Aside::Nowhere | Aside::Awaited) {
                        found.push((namespace.to_owned(), id, record));
                    }
                }
            }
        }
        for (namespace, id) in index.stored() {
            let place = SaverPlace { thread: thread.clone(), namespace: annals_base::Namespace::new(namespace)? };
            if let FoundPlace::At(at) = inner.find(&place, &index, id)?
                && let Some(record) = inner.backend().checkpoint(&at)?
            {
                found.push((namespace.to_owned(), id.to_owned(), record));
            }
        }
        Ok(Checkpoints(found))
    }

    /// Removes checkpoints of a thread: those that the engine cannot prune, and the parents of kept ones, are listed
    /// in the index as gone; the others are pruned.
    fn remove(
        &self,
        thread: &ThreadId,
        checkpoints: &Checkpoints,
        gone: BTreeMap<(String, String), Aside>,
    ) -> Result<()> {
        if gone.is_empty() {
            return Ok(());
        }
        if gone.len() == checkpoints.0.len() {
            match self.delete_thread(&thread_text(thread)) {
                Err(SaverError::Store(StoreError::ForkedOff { .. })) => {}
                other => return other,
            }
        }
        let inner = self.inner();
        let held = inner.backend().unprunable(thread, &[])?;
        let (mut entries, mut places) = (Vec::new(), Vec::new());
        for (namespace, id, record) in &checkpoints.0 {
            let Some(aside) = gone.get(&(namespace.clone(), id.clone())) else { continue };
            let place = (record.branch, record.ordinal);
            let is_of_log = record.point.namespace.as_str() == namespace;
            if held.contains(&place) || *aside == Aside::Pruned || !is_of_log {
                entries.push((namespace.clone(), id.clone(), *aside));
            }
            if !held.contains(&place) {
                places.push(place);
            }
        }
        self.hide(thread, entries)?;
        places.sort_unstable();
        inner.backend().prune(thread, &spans(&places))?;
        inner.forget(thread);
        Ok(())
    }

    /// Lists checkpoints in the index.
    fn hide(&self, thread: &ThreadId, entries: Vec<(String, String, Aside)>) -> Result<()> {
        let inner = self.inner();
        for _ in 0..UPDATE_ATTEMPTS_MAX {
            if entries.is_empty() {
                return Ok(());
            }
            let batch = inner.index(thread)?.change(&inner.store, thread, entries.clone())?;
            match inner.store.commit(&batch) {
                Err(StoreError::Conflict { .. } | StoreError::StaleId { .. }) => {}
                outcome => return Ok(outcome?),
            }
        }
        Err(StoreError::Busy { waited_ms: 0, holder: None }.into())
    }
}

/// Returns the runs of neighbouring ordinals.
fn spans(places: &[(u64, u64)]) -> Vec<PruneSpan> {
    let mut spans: Vec<PruneSpan> = Vec::new();
    for (branch, ordinal) in places {
        match spans.last_mut() {
            Some(span) if span.branch == *branch && span.last + 1 == *ordinal => span.last = *ordinal,
            _ => spans.push(PruneSpan::new(*branch, *ordinal, *ordinal)),
        }
    }
    spans
}
