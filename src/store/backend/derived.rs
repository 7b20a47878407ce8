//! Answers to questions that follow from other reads of a log, written once for all backends.
//!
//! A backend answers pages and points, whole states, ranges of items and versions itself. It may leave the other
//! questions to this module, or answer them by a short cut of its own. *Absent:* one snapshot over all the reads of an
//! answer: a backend that needs it passes a log that does not change.
//!
//! Invariant: a short cut gives the same answer. The suite compares both.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{pruned_metadata, without_timer};
use crate::base::{CheckpointId, Namespace, Payload, RunId, TaskId, ThreadId};
use crate::store::check::{Finding, Invariant};
use crate::store::error::StoreError;
use crate::store::log::batches::{in_order, records_of};
use crate::store::log::{
    HeadParts, Log, LogExt, LogReads, NamespaceRef, RecordQuery, StateQuery, UnprunablePlaces, VisitState,
};
use crate::store::operation::{BranchRecord, OperationChange, OperationField, OperationQuery, OperationValue};
use crate::store::query::ItemRange;
use crate::store::record::{
    ChannelValue, CheckpointRecord, CheckpointRef, ListChangeOp, StatePart, StoredHead, StoredListChange,
    VersionRecord, WriteRecord,
};

/// Answers a query of records by points and pages, which a backend answers itself.
///
/// # Errors
/// As [`Log::records`]; [`StoreError::Unsupported`] for points and pages.
pub fn records<L: Log + ?Sized>(log: &L, query: &RecordQuery<'_>) -> Result<Vec<Option<CheckpointRecord>>, StoreError> {
    match query {
        RecordQuery::At(_) | RecordQuery::Page(_) => Err(own("points and pages of checkpoints")),
        RecordQuery::Prefix { thread, prefix, limit } => by_prefix(log, thread, prefix, *limit),
        RecordQuery::Ordinals { at, ordinals } => ancestors(log, at, ordinals),
        RecordQuery::LastOfRun(place, run) => Ok(vec![last_of_run(log, *place, run)?]),
    }
}

/// Answers [`Log::writes_of`] by reads of the writes of one checkpoint each, which `read` returns.
///
/// # Errors
/// As `read`.
pub fn writes_of<E>(
    at: &[&CheckpointRef],
    bytes: usize,
    read: impl Fn(&CheckpointRef) -> Result<Vec<WriteRecord>, E>,
) -> Result<Vec<Vec<WriteRecord>>, E> {
    let (mut found, mut held) = (Vec::with_capacity(at.len()), 0);
    for at in at {
        let writes = read(at)?;
        held += writes.iter().flat_map(|write| write.value.payloads()).map(Payload::len).sum::<usize>();
        found.push(writes);
        if held >= bytes {
            break;
        }
    }
    Ok(found)
}

/// Visits a part of a state by means of the whole state and of items, which a backend visits itself.
///
/// # Errors
/// As [`Log::read`]; [`StoreError::Unsupported`] for whole states, ends, items and references of lists.
pub fn read<L: Log + ?Sized>(
    log: &L,
    at: &CheckpointRef,
    query: &StateQuery<'_>,
    visit: VisitState<'_>,
) -> Result<(), StoreError> {
    match query {
        StateQuery::Record => log.read(at, &StateQuery::Ends(&[]), &mut |part| match part {
            StatePart::Record(_) => visit(part).map(|_| false),
            _ => Ok(false),
        }),
        StateQuery::Item(channel, id) => {
            let mut is_found = false;
            log.items(at, channel, ItemRange::All, &mut |row| {
                if is_found || row.payload.index.is_none_or(|index| index.id != Some(*id)) {
                    return Ok(());
                }
                is_found = true;
                visit(StatePart::Item(row)).map(|_| ())
            })
        }
        StateQuery::Len(channel) => {
            let mut len = 0;
            log.items(at, channel, ItemRange::All, &mut |_| {
                len += 1;
                Ok(())
            })?;
            visit(StatePart::Len(len)).map(|_| ())
        }
        _ => Err(own("whole states, items and references of lists")),
    }
}

fn own(feature: &'static str) -> StoreError {
    StoreError::Unsupported { feature, reason: "the backend answers them itself".into() }
}

/// Returns all checkpoints of a thread, with those that were pruned, in the order of the log.
fn all<L: Log + ?Sized>(log: &L, thread: &ThreadId) -> Result<Vec<CheckpointRecord>, StoreError> {
    let (mut newer, mut found) = (records_of(log, thread)?, HashMap::new());
    // A pruned checkpoint has a descendant that is not.
    while !newer.is_empty() {
        let parents: Vec<_> = newer.iter().filter_map(CheckpointRecord::parent_ref).collect();
        found.extend(newer.into_iter().map(|record| (record.point.clone(), record)));
        let missing: Vec<_> =
            parents.iter().filter(|parent| parent.thread == *thread && !found.contains_key(parent)).collect();
        let records = log.records(&RecordQuery::At(&missing))?.into_iter().flatten();
        newer = records.filter(|record| !found.contains_key(&record.point)).collect();
    }
    let mut all: Vec<_> = found.into_values().collect();
    all.sort_by_key(|record| record.seq);
    Ok(all)
}

fn by_prefix<L: Log + ?Sized>(
    log: &L,
    thread: &ThreadId,
    prefix: &str,
    limit: usize,
) -> Result<Vec<Option<CheckpointRecord>>, StoreError> {
    let (mut found, prefix) = (all(log, thread)?, prefix.to_ascii_lowercase());
    found.retain(|record| {
        let id = record.point.checkpoint.to_string();
        id.starts_with(&prefix) || id.replace('-', "").starts_with(&prefix)
    });
    found.sort_by_key(|record| record.point.checkpoint);
    Ok(found.into_iter().take(limit).map(Some).collect())
}

fn ancestors<L: Log + ?Sized>(
    log: &L,
    at: &CheckpointRef,
    ordinals: &[u64],
) -> Result<Vec<Option<CheckpointRecord>>, StoreError> {
    let (mut found, lowest) = (vec![None; ordinals.len()], ordinals.iter().min());
    let not_found = || StoreError::CheckpointNotFound { thread: at.thread.clone(), id: at.checkpoint.to_string() };
    let mut next = Some(log.checkpoint(at)?.ok_or_else(not_found)?);
    while let Some(record) = next.filter(|record| lowest.is_some_and(|lowest| record.ordinal >= *lowest)) {
        let wanted = found.iter_mut().zip(ordinals).filter(|(_, ordinal)| **ordinal == record.ordinal);
        wanted.for_each(|(found, _)| *found = Some(record.clone()));
        let parent = record.parent_ref().map(|parent| log.checkpoint(&parent)).transpose()?.flatten();
        // The lineage of a damaged log ends at a record whose parent does not come before it.
        next = parent.filter(|parent| parent.ordinal < record.ordinal);
    }
    Ok(found)
}

fn last_of_run<L: Log + ?Sized>(
    log: &L,
    (thread, namespace): NamespaceRef<'_>,
    run: &RunId,
) -> Result<Option<CheckpointRecord>, StoreError> {
    if !run.is_of_key() {
        return Ok(None);
    }
    let is_of = |record: &CheckpointRecord| record.run == Some(*run) && record.point.namespace == *namespace;
    Ok(all(log, thread)?.into_iter().filter(is_of).max_by_key(|record| record.point.checkpoint))
}

/// Returns the branches of a namespace, the newest first: what [`LogExt::branches`] returns of a backend that leaves
/// them out.
///
/// # Errors
/// As [`Log::records`].
pub(crate) fn branches<L: Log + ?Sized>(log: &L, of: NamespaceRef<'_>) -> Result<Vec<BranchRecord>, StoreError> {
    let (all, mut found) = (all(log, of.0)?, Vec::<BranchRecord>::new());
    let mut own: Vec<_> = all.into_iter().filter(|record| record.point.namespace == *of.1).collect();
    own.sort_by_key(|record| std::cmp::Reverse(record.point.checkpoint));
    for record in own {
        let parent = record.parent_ref().map(|parent| log.checkpoint(&parent)).transpose()?.flatten();
        let leaves = parent.map(|parent| (parent.branch, parent.ordinal));
        match found.last_mut() {
            Some(last) if last.last.branch == record.branch => last.leaves = leaves,
            _ => found.push(BranchRecord::new(record, leaves)),
        }
    }
    Ok(found)
}

/// Searches a list channel for a text by its versions and the items that each has put: what `LogReads::search_list`
/// returns of a backend without a short cut. The changes of checkpoints that were pruned are left out.
///
/// # Errors
/// As [`Log::read`] and [`Log::versions`].
pub(crate) fn search_list<L: Log + ?Sized>(
    log: &L,
    at: &CheckpointRef,
    channel: &str,
    text: &str,
) -> Result<Vec<StoredListChange>, StoreError> {
    // A pruned checkpoint has versions, and no state.
    log.list_len(at, channel)?;
    let mut versions: Vec<VersionRecord> = Vec::new();
    log.versions(at, Some(channel), 0, &mut |version| {
        versions.push(version.clone());
        Ok(true)
    })?;
    let ordinals: Vec<u64> = versions.iter().map(|version| version.channel.ordinal).collect();
    let points = ancestors(log, at, &ordinals)?;
    let (mut changes, mut held) = (Vec::new(), BTreeSet::new());
    for (version, record) in versions.iter().zip(&points).rev() {
        let Some(record) = record else { continue };
        let range = version.positions.clone().unwrap_or(0..u64::MAX);
        let (ordinal, mut now) = (record.ordinal, BTreeMap::new());
        log.items(&record.point, channel, ItemRange::Positions(range.start, range.end), &mut |row| {
            let op = (row.ordinal == ordinal).then(|| (row.task, ListChangeOp::of(row.payload, text)));
            now.insert(row.position, op);
            Ok(())
        })?;
        let gone: Vec<u64> = held.range(range).filter(|at| !now.contains_key(at)).copied().collect();
        gone.iter().for_each(|at| _ = held.remove(at));
        held.extend(now.keys());
        let change = |at: u64, task, op| StoredListChange::new(at..at.saturating_add(1), ordinal, task, op);
        changes.extend(gone.into_iter().map(|at| change(at, version.channel.task, ListChangeOp::Delete)));
        let put = now.into_iter().filter_map(|(at, op)| Some((at, op?)));
        changes.extend(put.map(|(at, (task, op))| change(at, task, op)));
    }
    StoredListChange::order(&mut changes);
    Ok(changes)
}

/// Returns the places of the checkpoints of a thread that cannot be pruned, as
/// [`Prunes::unprunable`](crate::store::log::Prunes::unprunable) does.
///
/// # Errors
/// As [`Log::records`], [`Log::read`] and [`Log::thread_rows`].
pub fn unprunable<L: Log + ?Sized>(
    log: &L,
    thread: &ThreadId,
    without: &[Namespace],
) -> Result<UnprunablePlaces, StoreError> {
    let own = all(log, thread)?;
    let places: HashMap<&CheckpointRef, (u64, u64)> =
        own.iter().map(|record| (&record.point, (record.branch, record.ordinal))).collect();
    let goes = |namespace: &Namespace| !namespace.is_root() && without.contains(namespace);
    let (mut held, mut points, mut ends) = (UnprunablePlaces::new(), Vec::new(), BTreeMap::new());
    for record in own.iter().filter(|record| !goes(&record.point.namespace)) {
        let end = ends.entry(record.branch).or_insert(record.ordinal);
        *end = record.ordinal.max(*end);
        let is_left = |parent: &CheckpointRef| places.get(parent).is_some_and(|(branch, _)| *branch != record.branch);
        points.extend(record.parent_ref().filter(is_left));
        if !record.pruned {
            points.extend(referenced(log, record)?);
        }
    }
    for fork in log.forks(thread)? {
        points.extend(all(log, &fork)?.into_iter().filter_map(|record| record.forked_from));
    }
    for namespace in log.namespaces(thread)? {
        if !goes(&namespace) {
            points.extend(log.head(thread, &namespace)?.map(|head| head.point));
        } else if is_needed(log, &own, (thread, &namespace))? {
            points.extend(newest(&own, &namespace).map(|record| record.point.clone()));
        }
    }
    for (field, value) in log.fields(thread)? {
        if let (OperationField::Branch(_), OperationValue::Checkpoint(id)) = (field, value) {
            points.push(CheckpointRef::new(thread.clone(), Namespace::root(), id));
        }
    }
    held.extend(ends);
    held.extend(points.iter().filter_map(|point| places.get(point)));
    Ok(held)
}

/// Returns the newest checkpoint of a namespace.
fn newest<'r>(records: &'r [CheckpointRecord], namespace: &Namespace) -> Option<&'r CheckpointRecord> {
    records.iter().filter(|record| record.point.namespace == *namespace).max_by_key(|record| record.point.checkpoint)
}

/// Returns the checkpoints whose lists those of a checkpoint reference.
fn referenced<L: Log + ?Sized>(log: &L, of: &CheckpointRecord) -> Result<Vec<CheckpointRef>, StoreError> {
    let mut found = Vec::new();
    for channel in log.state(&of.point)?.channels.iter().filter(|channel| channel.value == ChannelValue::Items) {
        let list = log.list_reference(&of.point, &channel.channel)?;
        found.extend(list.map(|list| CheckpointRef::new(of.point.thread.clone(), list.namespace, list.checkpoint)));
    }
    Ok(found)
}

/// Returns whether a namespace stays whatever a plan says: the thread begins with it, an operation names it, it begins
/// with a checkpoint of another namespace, or one of its checkpoints states what model calls used.
fn is_needed<L: Log + ?Sized>(
    log: &L,
    records: &[CheckpointRecord],
    (thread, namespace): NamespaceRef<'_>,
) -> Result<bool, StoreError> {
    let first = |namespace: &Namespace| records.iter().position(|record| record.point.namespace == *namespace);
    let states_or_forks = |record: &CheckpointRecord| {
        let from = record.forked_from.as_ref().filter(|from| from.thread == *thread);
        from.is_some_and(|from| from.namespace != *namespace)
            || record.pruned && record.metadata.is_some()
            || pruned_metadata(record.metadata.as_deref()).is_some()
    };
    let mut own = records.iter().filter(|record| record.point.namespace == *namespace);
    if first(&Namespace::root()).is_none_or(|root| first(namespace) < Some(root)) || own.any(states_or_forks) {
        return Ok(true);
    }
    let mut query = OperationQuery::new(Some(thread.clone()), 0);
    let names = |change: &OperationChange| change.thread == *thread && change.namespace == *namespace;
    loop {
        let page = log.operations(&query)?;
        let Some(last) = page.last().map(|operation| operation.id) else { return Ok(false) };
        if page.iter().any(|operation| operation.changes.iter().any(names)) {
            return Ok(true);
        }
        in_order("operations", last, query.before.replace(last))?;
    }
}

/// Returns those of some namespaces that still end with the given checkpoints, and on which nothing rests but one
/// another: they can be pruned together.
///
/// # Errors
/// As [`unprunable`].
pub fn removable<L: Log + ?Sized>(
    log: &L,
    thread: &ThreadId,
    namespaces: &[(Namespace, CheckpointId)],
) -> Result<Vec<Namespace>, StoreError> {
    let records = all(log, thread)?;
    let is_same = |(namespace, last): &&(Namespace, CheckpointId)| {
        !namespace.is_root() && newest(&records, namespace).is_some_and(|record| record.point.checkpoint == *last)
    };
    let found: BTreeSet<&Namespace> = namespaces.iter().filter(is_same).map(|(namespace, _)| namespace).collect();
    let mut found: Vec<Namespace> = found.into_iter().cloned().collect();
    loop {
        let (held, before) = (unprunable(log, thread, &found)?, found.len());
        let is_held = |record: &&CheckpointRecord| held.contains(&(record.branch, record.ordinal));
        let held: BTreeSet<_> = records.iter().filter(is_held).map(|record| &record.point.namespace).collect();
        found.retain(|namespace| !held.contains(namespace));
        if found.len() == before {
            return Ok(found);
        }
    }
}

/// Checks a thread: each checkpoint follows its parent, and each task that sleeps at the head has a timer.
///
/// # Errors
/// As [`Log::records`] and [`Log::heads`].
pub fn check<L: Log + ?Sized>(log: &L, thread: &ThreadId) -> Result<Vec<Finding>, StoreError> {
    let (mut found, root) = (Vec::new(), Namespace::root());
    for record in all(log, thread)? {
        let parent = record.parent_ref().map(|parent| log.checkpoint(&parent)).transpose()?;
        let reason = match &parent {
            Some(None) => "its parent is missing",
            _ if record.parent.is_some() && record.forked_from.is_some() => "it has two parents",
            None if record.ordinal == 0 => continue,
            Some(Some(parent)) if record.ordinal == parent.ordinal + 1 => continue,
            _ => "its ordinal does not follow that of its parent",
        };
        found.push(Finding::new(Invariant::Parents, format!("checkpoint {}", record.point.checkpoint), reason));
    }
    // The first child of a checkpoint deletes its timers, also if the head moves back to it.
    let parts = HeadParts { record: true, writes: true };
    let head = log.heads(&[(thread, &root)], parts)?.pop().flatten().filter(|head| !head.is_continued);
    if let Some(StoredHead { record: Some(record), writes, .. }) = head {
        let timers = log.timers_of(thread, &root)?;
        let has_timer = |task: TaskId| timers.iter().any(|timer| timer.task == task);
        for (task, _) in without_timer(&record, &writes, has_timer) {
            found.push(Finding::new(Invariant::Timers, format!("timer of task {task}"), "it is missing"));
        }
    }
    Ok(found)
}
