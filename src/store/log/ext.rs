//! The reads of a log, one for each question, written once for all backends.

use super::batches::{self, ForkParents, ThreadBatches};
use super::{
    Checks, Erase, Erasure, Follow, HeadParts, Log, NamespaceRef, PruneTarget, Prunes, RecordQuery, Searches,
    StateQuery, ThreadParts, ThreadRow, ThreadRows, TimerQuery, UnprunablePlaces, VisitState,
};
use crate::base::{CheckpointId, Namespace, RunId, ThreadId, Timestamp};
use crate::store::backend::derived;
use crate::store::batch::{Batch, ListRef};
use crate::store::check::{CheckReport, CheckedUpTo};
use crate::store::claim::{ClaimCalls, ClaimQuery, Claims, claim_runs};
use crate::store::error::StoreError;
use crate::store::lease::LeaseRecord;
use crate::store::operation::{BranchRecord, OperationField, OperationValue};
use crate::store::prune::Pruned;
use crate::store::query::{CheckpointQuery, ItemRange};
use crate::store::record::{
    CheckpointRecord, CheckpointRef, ItemRow, StatePart, StateRecord, StoredHead, StoredListChange, ThreadRecord,
    ThreadSize, TimerRecord, WriteRecord,
};
use crate::store::side_tables::SideTables;
use crate::store::statements::SqlTransaction;
use crate::store::threads::{ThreadInfo, ThreadQuery};

/// The reads of a log, one for each question. Every [`Log`] has them.
///
/// Errors are those of the call of [`Log`], or of the capability, that a method makes; [`StoreError::Unsupported`] if
/// the backend lacks the capability.
///
/// # Example
/// ```
/// use annals::base::{Namespace, ThreadId};
/// use annals::prelude::*;
/// use annals::store::log::LogExt;
///
/// # fn main() -> Result<()> {
/// let store = Store::memory();
/// store.thread("trip")?.set("city", "Bern")?;
/// let log = store.backend();
/// let head = log.head(&ThreadId::new("trip")?, &Namespace::root())?.expect("the thread has a head");
/// assert_eq!(log.state(&head.point)?.channels.len(), 1);
/// # Ok(())
/// # }
/// ```
pub trait LogExt: Log {
    /// Returns the head of a namespace, `None` if there is none.
    ///
    /// # Errors
    /// As [`Log::heads`].
    fn head(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Option<CheckpointRecord>, StoreError> {
        Ok(one_head(self, (thread, namespace), HeadParts::RECORD)?.and_then(|head| head.record))
    }

    /// Returns the id of the head of a namespace.
    ///
    /// # Errors
    /// As [`Log::heads`].
    fn head_id(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Option<CheckpointId>, StoreError> {
        Ok(one_head(self, (thread, namespace), HeadParts::ID)?.map(|head| head.checkpoint))
    }

    /// Returns the id of the head of a namespace with the stored writes of its tasks and the last lease. A caller with
    /// a cached head needs no more to continue from it.
    ///
    /// # Errors
    /// As [`Log::heads`].
    fn head_with_writes(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Option<StoredHead>, StoreError> {
        one_head(self, (thread, namespace), HeadParts::WRITES)
    }

    /// Returns a checkpoint, `None` if it is not stored. One that was pruned has a record that says so.
    ///
    /// # Errors
    /// As [`Log::records`].
    fn checkpoint(&self, at: &CheckpointRef) -> Result<Option<CheckpointRecord>, StoreError> {
        Ok(self.records(&RecordQuery::At(&[at]))?.pop().flatten())
    }

    /// Lists checkpoints, newest first, without touching any state. Those that were pruned are passed over.
    ///
    /// # Errors
    /// As [`Log::records`].
    fn checkpoints(&self, query: &CheckpointQuery) -> Result<Vec<CheckpointRecord>, StoreError> {
        stored(self.records(&RecordQuery::Page(query)))
    }

    /// Returns the checkpoints of the lineage of `at` that have these ordinals, in the order asked for; `None` for an
    /// ordinal above that of `at`.
    ///
    /// # Errors
    /// As [`Log::records`].
    fn ancestors(&self, at: &CheckpointRef, ordinals: &[u64]) -> Result<Vec<Option<CheckpointRecord>>, StoreError> {
        self.records(&RecordQuery::Ordinals { at, ordinals })
    }

    /// Returns the newest checkpoint of a namespace that a run made, `None` if it made none. Only runs whose id was
    /// made of an idempotency key ([`RunId::from_key`]) are found.
    ///
    /// # Errors
    /// As [`Log::records`].
    fn last_of_run(
        &self,
        thread: &ThreadId,
        namespace: &Namespace,
        run: &RunId,
    ) -> Result<Option<CheckpointRecord>, StoreError> {
        Ok(self.records(&RecordQuery::LastOfRun((thread, namespace), run))?.pop().flatten())
    }

    /// Returns the channels at a checkpoint, without the items of lists.
    ///
    /// # Errors
    /// As [`Log::read`].
    fn state(&self, at: &CheckpointRef) -> Result<StateRecord, StoreError> {
        let mut found = None;
        self.read(at, &StateQuery::Record, &mut |part| {
            if let StatePart::Record(record) = part {
                found = Some(record.into_owned());
            }
            Ok(false)
        })?;
        found.ok_or_else(|| StoreError::CheckpointNotFound { thread: at.thread.clone(), id: at.checkpoint.to_string() })
    }

    /// Visits the whole state at a checkpoint: its record as [`LogExt::state`] returns it, then its channels by name,
    /// each list followed by its items in their order. All parts come from one snapshot of the log: a commit or an
    /// erasure meanwhile does not show.
    ///
    /// The visitor returns whether it wants the items of the list that it was given; its result for the record and for
    /// an item is ignored.
    ///
    /// # Errors
    /// As [`Log::read`].
    fn read_state(&self, at: &CheckpointRef, visit: VisitState<'_>) -> Result<(), StoreError> {
        self.read(at, &StateQuery::All, visit)
    }

    /// Visits the items of a list channel at a checkpoint, in order. A channel that was never written has none. A
    /// visitor may take its time: no transaction is open while it runs. If the thread is deleted meanwhile, the visit
    /// ends with [`StoreError::CheckpointNotFound`].
    ///
    /// # Errors
    /// As [`Log::read`].
    fn items(
        &self,
        at: &CheckpointRef,
        channel: &str,
        range: ItemRange,
        visit: &mut dyn FnMut(ItemRow<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.read(at, &StateQuery::Items(channel, range), &mut |part| match part {
            StatePart::Item(row) => visit(row).map(|()| true),
            _ => Ok(true),
        })
    }

    /// Returns the number of items of a list channel at a checkpoint; 0 for a channel that is not a list.
    ///
    /// # Errors
    /// As [`Log::read`].
    fn list_len(&self, at: &CheckpointRef, channel: &str) -> Result<u64, StoreError> {
        let mut found = 0;
        self.read(at, &StateQuery::Len(channel), &mut |part| {
            if let StatePart::Len(len) = part {
                found = len;
            }
            Ok(false)
        })?;
        Ok(found)
    }

    /// Returns the list that the list of a channel references ([`ItemOp::Reference`]); `None` for a list without a
    /// reference, and for a channel that is not a list.
    ///
    /// # Errors
    /// As [`Log::read`].
    ///
    /// [`ItemOp::Reference`]: crate::store::batch::ItemOp::Reference
    fn list_reference(&self, at: &CheckpointRef, channel: &str) -> Result<Option<ListRef>, StoreError> {
        let mut found = None;
        self.read(at, &StateQuery::Reference(channel), &mut |part| {
            if let StatePart::Reference(of) = part {
                found = Some(of.clone());
            }
            Ok(false)
        })?;
        Ok(found)
    }

    /// Returns the writes of the tasks of a checkpoint, in the order of (path, task, index).
    ///
    /// # Errors
    /// As [`Log::writes_of`].
    fn writes(&self, at: &CheckpointRef) -> Result<Vec<WriteRecord>, StoreError> {
        Ok(self.writes_of(&[at], usize::MAX)?.pop().unwrap_or_default())
    }

    /// Lists threads by id, from after `after` on, at most `limit`. The cost is that of the page, however large the
    /// threads are.
    ///
    /// # Errors
    /// As [`Log::thread_rows`].
    fn threads(&self, after: Option<&ThreadId>, limit: usize) -> Result<Vec<ThreadRecord>, StoreError> {
        let rows = self.thread_rows(&ThreadRows::After(after, limit), ThreadParts::default())?;
        Ok(rows.into_iter().filter_map(|row| row.record).collect())
    }

    /// Lists threads with a root namespace, with their facts and their status. In the order of the last activity the
    /// cost is that of the page, for a query with at most one filter on project, label, graph, status or pin.
    ///
    /// # Errors
    /// As [`Log::thread_rows`].
    fn list_threads(&self, query: &ThreadQuery) -> Result<Vec<ThreadInfo>, StoreError> {
        let rows = self.thread_rows(&ThreadRows::Listed(query), ThreadParts::default())?;
        Ok(rows.into_iter().filter_map(|row| row.info).collect())
    }

    /// Returns a thread as a list shows it; `None` if it has no root namespace.
    ///
    /// # Errors
    /// As [`Log::thread_rows`].
    fn thread_info(&self, thread: &ThreadId) -> Result<Option<ThreadInfo>, StoreError> {
        Ok(one_thread(self, thread, |parts| parts.info = true)?.info)
    }

    /// Counts the checkpoints and branches of a thread; none if the thread does not exist. It reads the index of all
    /// its checkpoints, which a listing does not.
    ///
    /// # Errors
    /// As [`Log::thread_rows`].
    fn thread_size(&self, thread: &ThreadId) -> Result<ThreadSize, StoreError> {
        Ok(one_thread(self, thread, |parts| parts.size = true)?.size)
    }

    /// Returns the namespaces of a thread, sorted; none if the thread does not exist.
    ///
    /// # Errors
    /// As [`Log::thread_rows`].
    fn namespaces(&self, thread: &ThreadId) -> Result<Vec<Namespace>, StoreError> {
        Ok(one_thread(self, thread, |parts| parts.namespaces = true)?.namespaces)
    }

    /// Returns the last lease of a thread, which may have expired or be released; `None` if it never had one.
    ///
    /// # Errors
    /// As [`Log::thread_rows`].
    fn lease(&self, thread: &ThreadId) -> Result<Option<LeaseRecord>, StoreError> {
        Ok(one_thread(self, thread, |parts| parts.lease = true)?.lease)
    }

    /// Returns the branches of a namespace, the newest first, at the cost of some indexed reads for each.
    ///
    /// # Errors
    /// As [`Log::thread_rows`].
    fn branches(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Vec<BranchRecord>, StoreError> {
        let parts = ThreadParts { branches: Some(namespace), ..ThreadParts::default() };
        let row = self.thread_rows(&ThreadRows::Ids(&[thread]), parts)?.pop().unwrap_or_default();
        row.branches.map_or_else(|| derived::branches(self, (thread, namespace)), Ok)
    }

    /// Visits a thread as the batches that make it anew in an empty store, in the order of the log: each checkpoint,
    /// then the writes of its tasks. Pruned checkpoints are left out, and a kept one that follows them begins with its
    /// whole state, as does a fork of another thread. The law of all backends: these batches, committed to an empty
    /// one, give the same batches.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`]; and what `visit` returns.
    fn batches(
        &self,
        thread: &ThreadId,
        visit: &mut dyn FnMut(Batch) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let records = batches::records_of(self, thread)?;
        ThreadBatches::new(self, (thread, thread), ForkParents::None).each(&records, visit)
    }

    /// Lists the tasks of heads that sleep, by the timestamp at which they resume, then by thread, namespace and task,
    /// at most `limit`: all, or those that can go on at `due_by`.
    ///
    /// # Errors
    /// As [`Log::timer_rows`].
    fn timers(&self, due_by: Option<Timestamp>, limit: usize) -> Result<Vec<TimerRecord>, StoreError> {
        self.timer_rows(&TimerQuery::Due(due_by, limit))
    }

    /// Lists the tasks that sleep at the head of a namespace, by the timestamp at which they can go on, then by task;
    /// none of a namespace that does not exist. The cost is that of the timers of the namespace, however many others
    /// sleep.
    ///
    /// # Errors
    /// As [`Log::timer_rows`].
    fn timers_of(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Vec<TimerRecord>, StoreError> {
        self.timer_rows(&TimerQuery::Of((thread, namespace)))
    }

    /// Deletes threads with everything in them: all of them, or none. One that does not exist is passed over. Returns
    /// when that is as durable as a commit: no read shows them any more, and their ids can be used again. The result
    /// says if bytes of deleted threads are still stored; [`FileStore::reclaim`](super::FileStore::reclaim) continues
    /// then.
    ///
    /// # Errors
    /// As [`Log::erase`].
    fn delete_threads(&self, threads: &[ThreadId]) -> Result<Erasure, StoreError> {
        self.erase(&Erase::Threads(threads))
    }

    /// Claims runs that are due: in one transaction, or of a log without [`Queues`](super::Queues) by a commit for each
    /// run.
    ///
    /// # Errors
    /// As [`Queues::claim`](super::Queues::claim).
    fn claim(&self, query: &ClaimQuery) -> Result<Claims, StoreError> {
        if let Some(queues) = self.capabilities().queues {
            return queues.claim(query);
        }
        query.validate()?;
        claim_runs(query, usize::MAX, &mut ClaimCalls(self))
    }

    /// Returns the followers of the log.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] if the log cannot be followed.
    fn follow(&self) -> Result<&dyn Follow, StoreError> {
        self.capabilities().follow.ok_or_else(|| lacking("following the log", "this backend cannot be followed"))
    }

    /// Returns the searches of the log.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] if the log is not searched.
    fn searches(&self) -> Result<&dyn Searches, StoreError> {
        self.capabilities().searches.ok_or_else(|| lacking("search", "this backend does not search"))
    }

    /// Returns the places of the checkpoints of a thread that cannot be pruned.
    ///
    /// # Errors
    /// As [`Prunes::unprunable`].
    fn unprunable(&self, thread: &ThreadId, without: &[Namespace]) -> Result<UnprunablePlaces, StoreError> {
        prunes(self)?.unprunable(thread, without)
    }

    /// Prunes checkpoints of a thread in spans, or namespaces as a whole, each with its newest checkpoint.
    ///
    /// # Errors
    /// As [`Prunes::prune`].
    fn prune<'t>(&self, thread: &ThreadId, what: impl Into<PruneTarget<'t>>) -> Result<Pruned, StoreError> {
        prunes(self)?.prune(thread, what.into())
    }

    /// Estimates what [`LogExt::prune`] would report.
    ///
    /// # Errors
    /// As [`Prunes::estimate`].
    fn prune_estimate<'t>(&self, thread: &ThreadId, what: impl Into<PruneTarget<'t>>) -> Result<Pruned, StoreError> {
        prunes(self)?.estimate(thread, what.into())
    }

    /// Verifies every row and checksum, and reports the problems.
    ///
    /// # Errors
    /// As [`Checks::check`].
    fn check(&self) -> Result<CheckReport, StoreError> {
        checks(self)?.check()
    }

    /// Verifies the rows of the log that are newer than a point, at the cost of these.
    ///
    /// # Errors
    /// As [`Checks::check_since`].
    fn check_since(&self, point: &CheckedUpTo) -> Result<CheckReport, StoreError> {
        checks(self)?.check_since(point)
    }

    /// Runs the function of a [transaction](crate::store::Store::transaction) on the tables of an application.
    ///
    /// # Errors
    /// As [`Transactions::transact`](super::Transactions::transact). The function is not called if the backend lacks
    /// the capability.
    fn transact(
        &self,
        run: &mut dyn FnMut(&SqlTransaction<'_>) -> Result<Option<Batch>, StoreError>,
    ) -> Result<(), StoreError> {
        match self.capabilities().transactions {
            Some(transactions) => transactions.transact(&mut |conn| run(&SqlTransaction::new(conn))),
            None => Err(lacking("a transaction on the tables of an application", "this backend has no SQL")),
        }
    }

    /// Returns the key-value memory and the cache of the backend.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] if the backend has neither.
    fn side_tables(&self) -> Result<&dyn SideTables, StoreError> {
        self.capabilities().side_tables.ok_or_else(|| lacking("a key-value memory", "this backend has a log alone"))
    }
}

/// The reads that the engine alone makes, written once for all backends.
pub(crate) trait LogReads: Log {
    /// Returns the checkpoints of a thread whose id, as text, starts with `prefix`, oldest first, at most `limit`.
    ///
    /// # Errors
    /// As [`Log::records`].
    fn checkpoints_by_prefix(
        &self,
        thread: &ThreadId,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<CheckpointRecord>, StoreError> {
        stored(self.records(&RecordQuery::Prefix { thread, prefix, limit }))
    }

    /// Visits the item of a list channel at a checkpoint that has an id in its index; returns whether there is one. Of
    /// several items with one id, any one is visited.
    ///
    /// # Errors
    /// As [`Log::read`].
    fn find_item(
        &self,
        at: &CheckpointRef,
        channel: &str,
        id: &str,
        visit: &mut dyn FnMut(ItemRow<'_>) -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        let mut found = false;
        self.read(at, &StateQuery::Item(channel, id), &mut |part| {
            if let StatePart::Item(row) = part {
                found = true;
                visit(row)?;
            }
            Ok(false)
        })?;
        Ok(found)
    }

    /// Returns the contents of the fields of a thread that operations set, sorted by field, but for heads.
    ///
    /// # Errors
    /// As [`Log::thread_rows`].
    fn fields(&self, thread: &ThreadId) -> Result<Vec<(OperationField, OperationValue)>, StoreError> {
        Ok(one_thread(self, thread, |parts| parts.fields = true)?.fields)
    }

    /// Returns the threads that were forked from a thread, the first fork first.
    ///
    /// # Errors
    /// As [`Log::thread_rows`].
    fn forks(&self, thread: &ThreadId) -> Result<Vec<ThreadId>, StoreError> {
        Ok(one_thread(self, thread, |parts| parts.forks = true)?.forks)
    }

    /// Returns the checkpoint of another thread from which a thread was forked.
    ///
    /// # Errors
    /// As [`Log::thread_rows`].
    fn forked_from(&self, thread: &ThreadId) -> Result<Option<CheckpointRef>, StoreError> {
        Ok(one_thread(self, thread, |parts| parts.forked_from = true)?.forked_from)
    }

    /// Searches a list channel for a text, on the lineage of a checkpoint: returns the changes of the positions at
    /// which an item was ever put whose bytes, or a column of whose index, hold `text`, as [`StoredListChange::order`]
    /// brings them.
    ///
    /// # Errors
    /// As [`Log::read`].
    fn search_list(&self, at: &CheckpointRef, channel: &str, text: &str) -> Result<Vec<StoredListChange>, StoreError> {
        let searches = self.capabilities().searches;
        let found = searches.map(|searches| searches.search_list(at, channel, text)).transpose()?.flatten();
        found.map_or_else(|| derived::search_list(self, at, channel, text), Ok)
    }
}

impl<L: Log + ?Sized> LogExt for L {}

impl<L: Log + ?Sized> LogReads for L {}

fn one_head<L: Log + ?Sized>(
    log: &L,
    of: NamespaceRef<'_>,
    parts: HeadParts,
) -> Result<Option<StoredHead>, StoreError> {
    Ok(log.heads(&[of], parts)?.pop().flatten())
}

fn one_thread<L: Log + ?Sized>(
    log: &L,
    thread: &ThreadId,
    want: impl FnOnce(&mut ThreadParts<'_>),
) -> Result<ThreadRow, StoreError> {
    let mut parts = ThreadParts::default();
    want(&mut parts);
    Ok(log.thread_rows(&ThreadRows::Ids(&[thread]), parts)?.pop().unwrap_or_default())
}

fn stored(found: Result<Vec<Option<CheckpointRecord>>, StoreError>) -> Result<Vec<CheckpointRecord>, StoreError> {
    Ok(found?.into_iter().flatten().collect())
}

fn lacking(feature: &'static str, reason: &str) -> StoreError {
    StoreError::Unsupported { feature, reason: reason.into() }
}

fn prunes<L: Log + ?Sized>(log: &L) -> Result<&dyn Prunes, StoreError> {
    log.capabilities().prunes.ok_or_else(|| lacking("pruning", "this backend does not prune"))
}

fn checks<L: Log + ?Sized>(log: &L) -> Result<&dyn Checks, StoreError> {
    log.capabilities().checks.ok_or_else(|| lacking("a check", "this backend does not check itself"))
}
