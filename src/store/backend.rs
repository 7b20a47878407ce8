//! The storage trait: plain data and ids in, plain data and ids out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use crate::base::limits::{DELETED_THREADS_MAX, PAGE_ROWS_MAX, SPIN_BEFORE_PARK};
use crate::base::{CheckpointId, Namespace, RunId, ThreadId, Timestamp};

use super::batch::{Batch, CommitChain, ListRef};
use super::beside::Beside;
use super::check::{CheckReport, CheckedUpTo};
use super::cipher::Key;
use super::error::StoreError;
use super::lease::LeaseRecord;
use super::operation::{BranchRecord, NewOperation, OperationField, OperationQuery, OperationRecord, OperationValue};
use super::prune::{PruneSpan, Pruned};
use super::query::{CheckpointQuery, ItemRange};
use super::record::{
    ChannelRecord, ChannelValue, CheckpointRecord, CheckpointRef, ItemRow, ListChangeOp, StatePart, StateRecord,
    StoredHead, StoredListChange, ThreadRecord, ThreadSize, TimerRecord, VersionRecord, WriteRecord,
};
use super::search::{SearchIndex, SearchOptions, SearchPage, SearchQuery};
use super::spin::spin_until;
use super::sqlite::SqlTransaction;
use super::stats::{Compaction, FormatMigration, StoreStats};
use super::threads::{ThreadInfo, ThreadQuery};
use super::trash::{deletable, delete_unforked, trash_is_due};
use super::watch::LogWatch;

/// A storage of the log.
///
/// The contract is written down by the suite `store::conformance` (feature `conformance`), which every backend must
/// pass. All calls may come from several threads at once. Reads are batched, so that a backend across a network needs
/// no round trip per channel. Reads see everything that was committed before they began.
///
/// # Implementing
/// `commit` must call [`Batch::validate`] first and write in [`Batch::write_in_chain`], and `delete_threads` must call
/// [`validate_deleted`](super::batch::validate_deleted).
pub trait Backend: Send + Sync + fmt::Debug {
    /// Writes a batch: entirely, or not at all, or (a failed fsync) with unknown outcome. Returns when the batch is
    /// as durable as the backend was opened for.
    ///
    /// Repeating a batch is safe: if its checkpoints are already stored with the same content, nothing is written and
    /// the call succeeds. If one checkpoint of a batch with [others that go along](Batch::then) is stored, all of it
    /// was: writes on their own are passed over.
    ///
    /// # Errors
    /// [`StoreError::Leased`] and [`StoreError::LeaseLost`] for the [lease](Batch::lease) that it names;
    /// [`StoreError::Conflict`] if a head it builds on has moved; [`StoreError::Invalid`], [`StoreError::Duplicate`],
    /// [`StoreError::CheckpointNotFound`] for a bad batch; [`StoreError::Busy`], [`StoreError::Write`],
    /// [`StoreError::OutcomeUnknown`] for the disk.
    fn commit(&self, batch: &Batch) -> Result<(), StoreError>;

    /// Hands a batch to a background writer and returns at once. Batches of one caller are written in order.
    fn submit(&self, batch: Batch) -> CommitHandle;

    /// Runs the function of a [transaction](super::Store::transaction) on the tables of an application, once, and
    /// commits its statements together with the batch that it returns: all of it, or nothing. The function is not
    /// called if the backend has no SQL, as this implementation.
    ///
    /// # Errors
    /// The error of `run`; [`StoreError::Unsupported`]; as [`Backend::commit`].
    fn transact(
        &self,
        run: &mut dyn FnMut(&SqlTransaction<'_>) -> Result<Option<Batch>, StoreError>,
    ) -> Result<(), StoreError> {
        _ = run;
        let reason = "this backend has no SQL".into();
        Err(StoreError::Unsupported { feature: "a transaction on the tables of an application", reason })
    }

    /// Writes, on this thread, the submitted batches that no other thread has begun to write. A caller that is about to
    /// wait for a handle saves the hand-over to the background writer by calling this first. It need not do anything.
    fn write_submitted(&self) {}

    /// Returns whether reading may wait for a disk or a network, so that an asynchronous caller should read on another
    /// thread.
    fn waits(&self) -> bool {
        true
    }

    /// Returns the head of a namespace, `None` if there is none: its newest checkpoint, unless an
    /// [operation](Backend::operate) moved the head.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn head(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Option<CheckpointRecord>, StoreError>;

    /// Returns only the id of the head of a namespace.
    ///
    /// # Errors
    /// [`StoreError::Read`].
    fn head_id(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Option<CheckpointId>, StoreError> {
        Ok(self.head(thread, namespace)?.map(|record| record.point.checkpoint))
    }

    /// Returns the id of the head of a namespace with the stored writes of its tasks and the last lease. `None` means
    /// that the namespace has no head. A caller with a cached head needs no more to continue from it.
    ///
    /// This implementation reads several times; a backend overrides it with one read transaction.
    ///
    /// # Errors
    /// As [`Backend::writes`].
    fn head_with_writes(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Option<StoredHead>, StoreError> {
        let Some(id) = self.head_id(thread, namespace)? else { return Ok(None) };
        let point = CheckpointRef::new(thread.clone(), namespace.clone(), id);
        let writes = self.writes(&point)?;
        let lease = if namespace.is_root() { self.lease(thread)? } else { None };
        let mut newest = CheckpointQuery::new(thread.clone(), namespace.clone());
        newest.limit = 1;
        let is_newest = |record: &CheckpointRecord| record.point == point;
        if self.checkpoints(&newest)?.first().is_none_or(is_newest) {
            return Ok(Some(StoredHead::new(id, false, writes).with_lease(lease)));
        }
        let head = self.checkpoint(&point)?;
        let branches = self.branches(thread, namespace)?;
        let is_end = branches.iter().any(|branch| branch.last.point == point);
        let leaves = |branch: &BranchRecord| branch.leaves == head.as_ref().map(|head| (head.branch, head.ordinal));
        Ok(Some(StoredHead::new(id, !is_end || branches.iter().any(leaves), writes).with_lease(lease)))
    }

    /// Returns a checkpoint, `None` if it is not stored. One that was pruned has a record that says so.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn checkpoint(&self, at: &CheckpointRef) -> Result<Option<CheckpointRecord>, StoreError>;

    /// Returns the checkpoints whose id, as text, starts with `prefix`, oldest first, at most `limit`.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn checkpoints_by_prefix(
        &self,
        thread: &ThreadId,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<CheckpointRecord>, StoreError>;

    /// Lists checkpoints, newest first, without touching any state. Those that were pruned are passed over.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn checkpoints(&self, query: &CheckpointQuery) -> Result<Vec<CheckpointRecord>, StoreError>;

    /// Returns the channels at a checkpoint, without the items of lists.
    ///
    /// # Errors
    /// [`StoreError::CheckpointNotFound`]; [`StoreError::Read`], [`StoreError::Corrupt`].
    fn state(&self, at: &CheckpointRef) -> Result<StateRecord, StoreError>;

    /// Visits the whole state at a checkpoint: its record as [`Backend::state`] returns it, then its channels by name,
    /// each list followed by its items in their order. All parts come from one snapshot of the log: a commit or an
    /// erasure meanwhile does not show.
    ///
    /// The visitor returns whether it wants the items of the list that it was given; its result for the record and for
    /// an item is ignored.
    /// This implementation reads each list on its own; a backend overrides it with one read transaction.
    ///
    /// # Errors
    /// [`StoreError::CheckpointNotFound`]; [`StoreError::Read`], [`StoreError::Corrupt`]; and what `visit` returns.
    fn read_state(
        &self,
        at: &CheckpointRef,
        visit: &mut dyn FnMut(StatePart<'_>) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let state = self.state(at)?;
        visit(StatePart::Record(&state))?;
        for channel in &state.channels {
            if visit(StatePart::Channel(channel))? && channel.value == ChannelValue::Items {
                self.items(at, &channel.channel, ItemRange::All, &mut |row| visit(StatePart::Item(row)).map(|_| ()))?;
            }
        }
        Ok(())
    }

    /// Returns the checkpoints of the lineage of `at` that have these ordinals, in the order asked for; `None` for an
    /// ordinal above that of `at`. Of one that was pruned the record says so. The lineage is `at`, its parent, and so
    /// on, across forks; the ordinal of a checkpoint is its distance from the first one.
    ///
    /// This implementation reads one checkpoint at a time; a backend overrides it with one read transaction.
    ///
    /// # Errors
    /// [`StoreError::CheckpointNotFound`]; [`StoreError::Read`], [`StoreError::Corrupt`].
    fn ancestors(&self, at: &CheckpointRef, ordinals: &[u64]) -> Result<Vec<Option<CheckpointRecord>>, StoreError> {
        let not_found = || StoreError::CheckpointNotFound { thread: at.thread.clone(), id: at.checkpoint.to_string() };
        let mut found = vec![None; ordinals.len()];
        let lowest = ordinals.iter().min();
        let mut record = Some(self.checkpoint(at)?.ok_or_else(not_found)?);
        while let Some(current) = record.filter(|record| lowest.is_some_and(|lowest| record.ordinal >= *lowest)) {
            for (found, _) in found.iter_mut().zip(ordinals).filter(|(_, ordinal)| **ordinal == current.ordinal) {
                *found = Some(current.clone());
            }
            record = match current.parent_ref() {
                Some(parent) => self.checkpoint(&parent)?,
                None => None,
            };
        }
        Ok(found)
    }

    /// Visits the versions that the checkpoints of the lineage of `at` wrote, the newest checkpoint first, down to the
    /// one with the ordinal `down_to`: those of one channel, or of all. The visitor returns whether it wants the
    /// versions of older checkpoints too; the versions of one checkpoint come in any order. Those of checkpoints that
    /// were pruned are passed over.
    ///
    /// This implementation reads the state of one checkpoint at a time, and names all positions of a list.
    ///
    /// # Errors
    /// [`StoreError::CheckpointNotFound`]; [`StoreError::Read`], [`StoreError::Corrupt`]; and what `visit` returns.
    fn versions(
        &self,
        at: &CheckpointRef,
        channel: Option<&str>,
        down_to: u64,
        visit: &mut dyn FnMut(&VersionRecord) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        let mut next = Some(at.clone());
        while let Some(point) = next {
            let StateRecord { checkpoint, channels, .. } = self.state(&point)?;
            if checkpoint.ordinal < down_to {
                break;
            }
            let is_wanted = |record: &ChannelRecord| channel.is_none_or(|channel| channel == &*record.channel);
            let mut goes_on = true;
            for record in
                channels.into_iter().filter(|record| record.ordinal == checkpoint.ordinal && is_wanted(record))
            {
                let positions = (record.value == ChannelValue::Items).then_some(0..u64::MAX);
                goes_on &= visit(&VersionRecord::new(record, positions))?;
            }
            next = if goes_on { checkpoint.parent_ref() } else { None };
        }
        Ok(())
    }

    /// Visits the items of a list channel at a checkpoint, in order. A channel that was never written has none. A
    /// visitor may take its time: no transaction is open while it runs. If the thread is deleted meanwhile, the visit
    /// ends with
    /// [`StoreError::CheckpointNotFound`].
    ///
    /// # Errors
    /// [`StoreError::CheckpointNotFound`]; [`StoreError::Read`], [`StoreError::Corrupt`]; and what `visit` returns.
    fn items(
        &self,
        at: &CheckpointRef,
        channel: &str,
        range: ItemRange,
        visit: &mut dyn FnMut(ItemRow<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError>;

    /// Returns the number of items of a list channel at a checkpoint; 0 for a channel that is not a list.
    ///
    /// This implementation visits the items; a backend overrides it with one indexed read.
    ///
    /// # Errors
    /// As [`Backend::items`].
    fn list_len(&self, at: &CheckpointRef, channel: &str) -> Result<u64, StoreError> {
        let mut len = 0;
        self.items(at, channel, ItemRange::All, &mut |_| {
            len += 1;
            Ok(())
        })?;
        Ok(len)
    }

    /// Visits the item of a list channel at a checkpoint that has an id in its index; returns whether there is one. Of
    /// several items with one id, any one is visited.
    ///
    /// This implementation visits the items; a backend overrides it with an indexed read.
    ///
    /// # Errors
    /// As [`Backend::items`].
    fn find_item(
        &self,
        at: &CheckpointRef,
        channel: &str,
        id: &str,
        visit: &mut dyn FnMut(ItemRow<'_>) -> Result<(), StoreError>,
    ) -> Result<bool, StoreError> {
        let mut found = false;
        self.items(at, channel, ItemRange::All, &mut |row| {
            if found || row.payload.index.is_none_or(|index| index.id != Some(id)) {
                return Ok(());
            }
            found = true;
            visit(row)
        })?;
        Ok(found)
    }

    /// Searches a list channel for a text, on the lineage of a checkpoint: returns the changes of the positions at
    /// which an item was ever put whose bytes, or a column of whose index, hold `text`, as [`StoredListChange::order`]
    /// brings them. Each stored item is read once.
    ///
    /// This implementation reads the whole list at each of its versions.
    ///
    /// # Errors
    /// As [`Backend::items`].
    fn search_list(&self, at: &CheckpointRef, channel: &str, text: &str) -> Result<Vec<StoredListChange>, StoreError> {
        let mut ordinals = Vec::new();
        self.versions(at, Some(channel), 0, &mut |version| {
            ordinals.push((version.channel.ordinal, version.channel.task));
            Ok(true)
        })?;
        let (mut changes, mut before) = (Vec::new(), BTreeMap::new());
        for (ordinal, task) in ordinals.into_iter().rev() {
            let Some(record) = self.ancestors(at, &[ordinal])?.pop().flatten() else { continue };
            let mut after = BTreeMap::new();
            self.items(&record.point, channel, ItemRange::All, &mut |row| {
                after.insert(row.position, row.ordinal);
                if row.ordinal == ordinal {
                    let op = ListChangeOp::of(row.payload, text);
                    changes.push(StoredListChange::new(row.position..row.position + 1, ordinal, row.task, op));
                }
                Ok(())
            })?;
            let gone = before.keys().filter(|position| !after.contains_key(*position));
            changes
                .extend(gone.map(|at: &u64| StoredListChange::new(*at..*at + 1, ordinal, task, ListChangeOp::Delete)));
            before = after;
        }
        StoredListChange::order(&mut changes);
        Ok(changes)
    }

    /// Returns the list that the list of a channel references ([`ItemOp::Reference`]); `None` for a list without a
    /// reference, and for a channel that is not a list.
    ///
    /// # Errors
    /// As [`Backend::state`].
    ///
    /// [`ItemOp::Reference`]: super::batch::ItemOp::Reference
    fn list_reference(&self, at: &CheckpointRef, channel: &str) -> Result<Option<ListRef>, StoreError>;

    /// Returns the writes of the tasks of a checkpoint, in the order of (path, task, index).
    ///
    /// # Errors
    /// [`StoreError::CheckpointNotFound`]; [`StoreError::Read`], [`StoreError::Corrupt`].
    fn writes(&self, at: &CheckpointRef) -> Result<Vec<WriteRecord>, StoreError>;

    /// Lists threads by id, from after `after` on, at most `limit`. The cost is that of the page, however large the
    /// threads are.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn threads(&self, after: Option<&ThreadId>, limit: usize) -> Result<Vec<ThreadRecord>, StoreError>;

    /// Counts the checkpoints and branches of a thread; none if the thread does not exist. It reads the index of all
    /// its checkpoints, which a listing does not.
    ///
    /// # Errors
    /// [`StoreError::Read`].
    fn thread_size(&self, thread: &ThreadId) -> Result<ThreadSize, StoreError>;

    /// Returns the namespaces of a thread, sorted; none if the thread does not exist.
    ///
    /// # Errors
    /// [`StoreError::Read`].
    fn namespaces(&self, thread: &ThreadId) -> Result<Vec<Namespace>, StoreError>;

    /// Returns the newest checkpoint of a namespace that a run made, `None` if it made none. Only runs whose id was
    /// made of an idempotency key ([`RunId::from_key`]) are found.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn last_of_run(
        &self,
        thread: &ThreadId,
        namespace: &Namespace,
        run: &RunId,
    ) -> Result<Option<CheckpointRecord>, StoreError>;

    /// Returns checkpoints in the order of the log, from after `seq` on, at most `limit`: those of a thread, in all its
    /// namespaces, or all. Checkpoints of deleted threads are passed over. A call sees a prefix of the log: a later
    /// call never shows a checkpoint before one that this call has shown.
    ///
    /// This implementation refuses: the backend cannot be followed.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn records_after(
        &self,
        seq: u64,
        thread: Option<&ThreadId>,
        limit: usize,
    ) -> Result<Vec<CheckpointRecord>, StoreError> {
        let _ = (seq, thread, limit);
        Err(not_followed())
    }

    /// Returns the `seq` of the last checkpoint of the log; 0 for an empty log. This implementation refuses, as
    /// [`Backend::records_after`].
    ///
    /// # Errors
    /// [`StoreError::Read`].
    fn last_seq(&self) -> Result<u64, StoreError> {
        Err(not_followed())
    }

    /// Returns the signals of changes of the log, for one follower. This implementation refuses, as
    /// [`Backend::records_after`].
    ///
    /// # Errors
    /// [`StoreError::Read`].
    fn watch_log(&self) -> Result<LogWatch, StoreError> {
        Err(not_followed())
    }

    /// Lists the tasks of heads that sleep, by the timestamp at which they resume, then by thread, namespace and task,
    /// at most `limit`: all, or those that can go on at `due_by`.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn timers(&self, due_by: Option<Timestamp>, limit: usize) -> Result<Vec<TimerRecord>, StoreError>;

    /// Lists the tasks that sleep at the head of a namespace, by the timestamp at which they can go on, then by task;
    /// none of a namespace that does not exist. The cost is that of the timers of the namespace, however many others
    /// sleep.
    ///
    /// # Errors
    /// As [`Backend::timers`].
    fn timers_of(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Vec<TimerRecord>, StoreError>;

    /// Stores an operation with its changes: all of them, or none. Returns its number when it is as durable as a
    /// commit. Repeating an operation is safe: if the newest operation on its fields is the same, nothing is written.
    ///
    /// The head of a namespace is its newest checkpoint, or the one that an operation moved it to since. The next
    /// checkpoint of the namespace is the head again.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the head of a namespace is not the one that its change expects, and
    /// [`StoreError::FieldConflict`] for other fields, and if the newest operation of a thread is not the one that the
    /// operation states; [`StoreError::ThreadNotFound`],
    /// [`StoreError::CheckpointNotFound`]; [`StoreError::Invalid`]; and as [`Backend::commit`] for the disk.
    fn operate(&self, operation: &NewOperation) -> Result<u64, StoreError>;

    /// Lists operations, newest first.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn operations(&self, query: &OperationQuery) -> Result<Vec<OperationRecord>, StoreError>;

    /// Returns the contents of the fields of a thread that operations set, sorted by field, but for heads.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn fields(&self, thread: &ThreadId) -> Result<Vec<(OperationField, OperationValue)>, StoreError>;

    /// Returns the branches of a namespace, the newest first, at the cost of some indexed reads for each.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn branches(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Vec<BranchRecord>, StoreError>;

    /// Returns the items whose text holds every word of a query, the newest first.
    ///
    /// This implementation is that of a backend without searches.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the query is past a limit, or if the backend does not search; [`StoreError::Id`];
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn search(&self, _query: &SearchQuery) -> Result<SearchPage, StoreError> {
        Err(StoreError::Invalid { field: "search", reason: "this backend does not search".into() })
    }

    /// Indexes the texts that [`Backend::search`] reads, and returns when all are indexed. From then on the index
    /// follows the log; the results of searches stay the same. A backend that is indexed already indexes the rest.
    ///
    /// This implementation is that of a backend without an index.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the backend cannot have an index, or if it is encrypted and the options do not allow
    /// it; as [`Backend::commit`].
    fn enable_search(&self, _options: &SearchOptions) -> Result<(), StoreError> {
        Err(StoreError::Invalid { field: "search index", reason: "this backend does not index texts".into() })
    }

    /// Removes the index of texts, if there is one.
    ///
    /// # Errors
    /// As [`Backend::commit`].
    fn disable_search(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns the state of the index of texts; `None` without one.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn search_index(&self) -> Result<Option<SearchIndex>, StoreError> {
        Ok(None)
    }

    /// Returns the last lease of a thread, which may have expired or be released; `None` if it never had one.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn lease(&self, thread: &ThreadId) -> Result<Option<LeaseRecord>, StoreError>;

    /// Lists threads with a root namespace, with their facts and their status. A backend reads candidates in the order
    /// of the query and offers them to a [`ThreadPage`](super::ThreadPage). In the order of the last activity the cost
    /// is that of the page, for a query with at most one filter on project, label, graph, status or pin.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
    fn list_threads(&self, query: &ThreadQuery) -> Result<Vec<ThreadInfo>, StoreError>;

    /// Returns a thread as a list shows it; `None` if it has no root namespace.
    ///
    /// # Errors
    /// As [`Backend::list_threads`].
    fn thread_info(&self, thread: &ThreadId) -> Result<Option<ThreadInfo>, StoreError>;

    /// Makes the table anew by which threads are listed. This implementation has none.
    ///
    /// # Errors
    /// As [`Backend::commit`].
    fn rebuild_threads(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns the threads that were forked from a thread, the first fork first.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn forks(&self, thread: &ThreadId) -> Result<Vec<ThreadId>, StoreError>;

    /// Returns the checkpoint of another thread from which a thread was forked.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    fn forked_from(&self, thread: &ThreadId) -> Result<Option<CheckpointRef>, StoreError>;

    /// Deletes threads with everything in them: all of them, or none. One that does not exist is passed over. Returns
    /// when that is as durable as a commit: no read shows them any more, and their ids can be used again. The result
    /// says if bytes of deleted threads are still stored; [`Backend::reclaim`] continues then.
    ///
    /// # Errors
    /// [`StoreError::ForkedOff`] if a thread that stays was forked off one of them; [`StoreError::Invalid`] if they are
    /// too many; [`StoreError::Busy`], [`StoreError::Write`], [`StoreError::OutcomeUnknown`], [`StoreError::ReadOnly`].
    fn delete_threads(&self, threads: &[ThreadId]) -> Result<Erasure, StoreError>;

    /// Deletes the threads whose time in the trash has ended at `now`, as [`Backend::delete_threads`] does, at most
    /// 1,000. A thread from which another one was forked that stays is passed over. The fact `trashed` of a thread
    /// holds the end of its time in the trash.
    ///
    /// This implementation reads the facts of every thread.
    ///
    /// # Errors
    /// As [`Backend::delete_threads`], [`Backend::threads`] and [`Backend::fields`].
    fn erase_trash(&self, now: Timestamp) -> Result<Erasure, StoreError> {
        let (mut due, mut after) = (Vec::new(), None::<ThreadId>);
        loop {
            let page = self.threads(after.as_ref(), PAGE_ROWS_MAX)?;
            let Some(last) = page.last() else { break };
            after = Some(last.id.clone());
            for thread in page {
                let is_due = |(field, value): &(OperationField, OperationValue)| trash_is_due(field, value, now);
                if self.fields(&thread.id)?.iter().any(is_due) {
                    due.push(thread.id);
                }
            }
        }
        let due = deletable(due, DELETED_THREADS_MAX, |thread| self.forks(thread))?;
        let erasure = delete_unforked(due, |threads| self.delete_threads(threads), StoreError::forked_off)?;
        Ok(erasure.unwrap_or(Erasure::Erased))
    }

    /// Erases what deleted threads have left, in short transactions, until nothing is left or a reader is in the way.
    ///
    /// This implementation is that of a backend whose deletions leave nothing.
    ///
    /// # Errors
    /// [`StoreError::Busy`], [`StoreError::Write`], [`StoreError::OutcomeUnknown`], [`StoreError::ReadOnly`],
    /// [`StoreError::Corrupt`].
    fn reclaim(&self) -> Result<Erasure, StoreError> {
        Ok(Erasure::Erased)
    }

    /// Returns the places, branch and ordinal, of the checkpoints of a thread that cannot be pruned: heads, the last
    /// ones of branches, those that another branch leaves in this thread or in another one, and those whose lists are
    /// referenced.
    ///
    /// The namespaces `without` count as pruned as a whole: what rests on them alone can be pruned, and of their own
    /// checkpoints those are returned on which something else rests. One is also returned if the thread begins with its
    /// namespace, if an operation names that, if it begins with a checkpoint of another namespace, or if the metadata
    /// of one of its checkpoints have the member `usage`.
    ///
    /// This implementation is that of a backend that does not prune.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the backend does not prune; [`StoreError::Read`], [`StoreError::Corrupt`].
    fn unprunable(&self, _thread: &ThreadId, _without: &[Namespace]) -> Result<BTreeSet<(u64, u64)>, StoreError> {
        Err(not_pruned())
    }

    /// Prunes checkpoints of a thread: their states, writes and metadata go, as far as no kept checkpoint shows them.
    /// Those that [`Backend::unprunable`] names, and those that were pruned before, are passed over. The state of every
    /// other checkpoint stays as it is, also in threads that were forked.
    ///
    /// The checkpoints go in short transactions, the oldest first, and each transaction leaves a whole history: after a
    /// crash, or an error, some are pruned and the others are as they were. Returns when all are pruned as durably as a
    /// commit. A search index is emptied and follows the log anew; until it has, searches read the log.
    ///
    /// This implementation is that of a backend that does not prune.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the backend does not prune; as [`Backend::commit`] for the disk;
    /// [`StoreError::Corrupt`].
    fn prune(&self, _thread: &ThreadId, _spans: &[PruneSpan]) -> Result<Pruned, StoreError> {
        Err(not_pruned())
    }

    /// Estimates what [`Backend::prune`] would report. Nothing is written. A long span is estimated in parts, so
    /// values that only two of its parts hold together may be missing.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the backend does not prune; [`StoreError::Read`], [`StoreError::Corrupt`].
    fn prune_estimate(&self, _thread: &ThreadId, _spans: &[PruneSpan]) -> Result<Pruned, StoreError> {
        Err(not_pruned())
    }

    /// Prunes namespaces of a thread as a whole, in one commit: they do not exist any more. Each comes with its newest
    /// checkpoint; one that has another by now, one of which [`Backend::unprunable`] returns a checkpoint, and the root
    /// are passed over. The state of every checkpoint of other namespaces stays as it is.
    ///
    /// This implementation is that of a backend that does not prune.
    ///
    /// # Errors
    /// As [`Backend::prune`].
    fn prune_namespaces(
        &self,
        _thread: &ThreadId,
        _namespaces: &[(Namespace, CheckpointId)],
    ) -> Result<Pruned, StoreError> {
        Err(not_pruned())
    }

    /// Estimates what [`Backend::prune_namespaces`] would report. Nothing is written.
    ///
    /// # Errors
    /// As [`Backend::prune_estimate`].
    fn estimate_namespaces(
        &self,
        _thread: &ThreadId,
        _namespaces: &[(Namespace, CheckpointId)],
    ) -> Result<Pruned, StoreError> {
        Err(not_pruned())
    }

    /// Returns the key-value memory and the cache of the backend.
    fn beside(&self) -> &dyn Beside;

    /// Returns the sizes and the health of the backend. This implementation knows none.
    ///
    /// # Errors
    /// [`StoreError::Read`].
    fn stats(&self) -> Result<StoreStats, StoreError> {
        Ok(StoreStats::default())
    }

    /// Seals the root key of an encrypted store with another key of the caller. This implementation has none.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the store is not encrypted; [`StoreError::ReadOnly`], and as [`Backend::commit`].
    fn change_key(&self, _key: &Key) -> Result<(), StoreError> {
        Err(StoreError::Invalid { field: "key", reason: "the store is not encrypted".into() })
    }

    /// Seals new values of an encrypted store with a new data key. This implementation has none.
    ///
    /// # Errors
    /// As [`Backend::change_key`].
    fn rotate_data_key(&self) -> Result<(), StoreError> {
        Err(StoreError::Invalid { field: "key", reason: "the store is not encrypted".into() })
    }

    /// Returns the migration that opening the store did. This implementation has no file, and returns `None`.
    fn migration(&self) -> Option<FormatMigration> {
        None
    }

    /// Returns a description of a log that the store lacks. This implementation has no file, and returns `None`.
    fn missing_log(&self) -> Option<String> {
        None
    }

    /// Returns free space to the file system. This implementation has no file.
    ///
    /// # Errors
    /// [`StoreError::Busy`], [`StoreError::Write`], [`StoreError::ReadOnly`].
    fn compact(&self) -> Result<Compaction, StoreError> {
        Ok(Compaction::default())
    }

    /// Copies the store to a new file. This implementation has no file.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the path exists or cannot be written, or if the backend has no file;
    /// [`StoreError::Busy`], [`StoreError::Write`].
    fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let reason = format!("{}: the store has no file to copy", to.display());
        Err(StoreError::Invalid { field: "path of the backup", reason })
    }

    /// Verifies every row and checksum, and reports the problems.
    ///
    /// # Errors
    /// [`StoreError::Read`] if the file cannot be read at all.
    fn check(&self) -> Result<CheckReport, StoreError>;

    /// Verifies the rows of the log that are newer than a point, at the cost of these. This implementation verifies
    /// all.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the point is not one of this file; [`StoreError::Read`] if it cannot be read at all.
    fn check_since(&self, point: &CheckedUpTo) -> Result<CheckReport, StoreError> {
        let _ = point;
        self.check()
    }
}

fn not_pruned() -> StoreError {
    StoreError::Invalid { field: "prune", reason: "this backend does not prune".into() }
}

fn not_followed() -> StoreError {
    StoreError::Invalid { field: "watch", reason: "the log of this backend cannot be followed".into() }
}

/// The progress of erasing deleted threads. A deleted thread is hidden at once; its bytes go in steps.
#[must_use = "bytes of deleted threads may still be in the file or in its write-ahead log"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Erasure {
    /// No row of a deleted thread is in the file or in its write-ahead log, and its bytes are overwritten. SQLite may
    /// leave a copy of a row in the gap of a page that it rearranged earlier.
    Erased,
    /// Bytes of deleted threads are still stored: there are many rows, or a reader holds the write-ahead log. A handle
    /// that is open for writing continues in the background, and after an open;
    /// [`Store::reclaim`](super::Store::reclaim) continues at once.
    ErasePending {
        /// The number of deleted threads with bytes.
        threads: u64,
    },
}

impl Erasure {
    /// Returns whether no byte of a deleted thread is left.
    pub fn is_erased(self) -> bool {
        self == Self::Erased
    }
}

/// The outcome of a submitted batch, once it is known: wait for it, or await it.
#[derive(Clone, Debug)]
pub struct CommitHandle(
    /// `None` if the batch was durable when the handle was made.
    Option<Arc<CommitState>>,
);

#[derive(Debug, Default)]
struct CommitState {
    progress: parking_lot::Mutex<CommitProgress>,
    done: parking_lot::Condvar,
    settled: AtomicBool,
    awaited: AtomicBool,
    wakers: parking_lot::Mutex<Vec<Waker>>,
}

#[derive(Debug, Default)]
struct CommitProgress {
    outcome: Option<Result<(), StoreError>>,
    /// The chain of a commit that waits for a lock, until a caller that waits has reported it.
    waits_for_lock: Option<CommitChain>,
}

impl CommitHandle {
    /// Makes an open handle and the end that settles it.
    pub fn open() -> (Self, CommitSettler) {
        let state = Arc::new(CommitState::default());
        (Self(Some(Arc::clone(&state))), CommitSettler(Some(state)))
    }

    /// Makes a handle that is already settled.
    pub fn settled(outcome: Result<(), StoreError>) -> Self {
        if outcome.is_ok() {
            return Self(None);
        }
        let (handle, settle) = Self::open();
        settle.settle(outcome);
        handle
    }

    /// Returns whether the batch has been written or refused.
    pub fn is_settled(&self) -> bool {
        self.0.as_ref().is_none_or(|state| state.is_settled())
    }

    /// Waits until the batch is durable or refused. The outcome is given once; later calls return `Ok`.
    ///
    /// # Errors
    /// As [`Backend::commit`].
    pub fn wait(&self) -> Result<(), StoreError> {
        let Some(state) = &self.0 else { return Ok(()) };
        state.wait();
        state.progress.lock().outcome.take().unwrap_or(Ok(()))
    }

    /// Waits until the batch is durable or refused, and leaves the outcome to [`CommitHandle::wait`]. A backend that
    /// wraps another one uses it to keep batches in order.
    pub fn wait_until_settled(&self) {
        if let Some(state) = &self.0 {
            state.wait();
        }
    }
}

/// Awaits the outcome of [`CommitHandle::wait`].
impl Future for CommitHandle {
    type Output = Result<(), StoreError>;

    fn poll(self: Pin<&mut Self>, waiting: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(state) = &self.0 else { return Poll::Ready(Ok(())) };
        state.awaited.store(true, Ordering::Release);
        let mut progress = state.progress.lock();
        if state.is_settled() {
            return Poll::Ready(progress.outcome.take().unwrap_or(Ok(())));
        }
        let mut wakers = state.wakers.lock();
        wakers.retain(|waker| !waker.will_wake(waiting.waker()));
        wakers.push(waiting.waker().clone());
        drop(wakers);
        let waits = progress.waits_for_lock.take();
        drop(progress);
        waits.iter().for_each(CommitChain::report_lock_wait);
        Poll::Pending
    }
}

/// The end of a [`CommitHandle`] that a backend holds. Dropping it unsettled reports an unknown outcome.
#[derive(Debug)]
pub struct CommitSettler(Option<Arc<CommitState>>);

impl CommitSettler {
    /// Returns whether a caller waits for the outcome: a backend may delay a batch without one.
    pub fn is_awaited(&self) -> bool {
        self.0.as_ref().is_some_and(|state| state.awaited.load(Ordering::Acquire))
    }

    /// Lets a caller that waits report a lock wait to the chain of the batch
    /// ([`CommitChain::report_lock_wait`]).
    pub fn note_lock_wait(&self, chain: CommitChain) {
        if let Some(state) = &self.0 {
            state.progress.lock().waits_for_lock = Some(chain);
            state.done.notify_all();
            state.wakers.lock().drain(..).for_each(Waker::wake);
        }
    }

    /// Settles the handle and wakes the callers that wait.
    pub fn settle(mut self, outcome: Result<(), StoreError>) {
        if let Some(state) = self.0.take() {
            state.set(outcome);
        }
    }
}

impl CommitState {
    fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    fn wait(&self) {
        self.awaited.store(true, Ordering::Release);
        spin_until(SPIN_BEFORE_PARK, || self.is_settled());
        let mut progress = self.progress.lock();
        while !self.is_settled() {
            match progress.waits_for_lock.take() {
                Some(chain) => parking_lot::MutexGuard::unlocked(&mut progress, || chain.report_lock_wait()),
                None => self.done.wait(&mut progress),
            }
        }
    }

    fn set(&self, outcome: Result<(), StoreError>) {
        let mut progress = self.progress.lock();
        debug_assert!(progress.outcome.is_none(), "a commit has one outcome");
        progress.outcome = Some(outcome);
        // Stored under the lock, or a caller between its check and its park would miss the wake-up.
        self.settled.store(true, Ordering::Release);
        self.done.notify_all();
        drop(progress);
        self.wakers.lock().drain(..).for_each(Waker::wake);
    }
}

impl Drop for CommitSettler {
    fn drop(&mut self) {
        if let Some(state) = self.0.take() {
            state.set(Err(StoreError::OutcomeUnknown { reason: "the writer ended".into() }));
        }
    }
}
