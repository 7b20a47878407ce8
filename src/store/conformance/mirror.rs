//! The mirror of a log: a map of what was committed, with which whole answers are compared after each step.
//!
//! A mirror is a layer. It takes each batch that the log below accepted, and derives from it alone what the new
//! checkpoints must show. *Absent:* leases, texts that are searched, and the rules by which a log refuses.

use super::build::*;
use std::cmp::Reverse;

/// The namespace of a thread.
type MirrorPlace = (ThreadId, Namespace);

/// The items of a list by their positions: ordinal, task and content.
type MirrorItems = BTreeMap<u64, (u64, Option<u32>, Payload)>;

/// What a checkpoint must show.
#[derive(Clone, Debug)]
struct MirrorPoint {
    /// Its state, with the channels by name.
    state: StateRecord,
    lists: BTreeMap<Arc<str>, (MirrorItems, Option<ListRef>)>,
    writes: BTreeMap<(Arc<str>, TaskId, i32), WriteRecord>,
    /// A range of the positions that it changed in each list.
    changed: BTreeMap<Arc<str>, Range<u64>>,
    /// The first checkpoint of its branch.
    opened: CheckpointRef,
}

/// What was committed to a log.
#[derive(Debug, Default)]
struct Mirrored {
    points: BTreeMap<MirrorPlace, BTreeMap<CheckpointId, MirrorPoint>>,
    /// The checkpoints in the order of the log.
    order: Vec<CheckpointRef>,
    heads: BTreeMap<MirrorPlace, Option<CheckpointId>>,
    fields: BTreeMap<ThreadId, BTreeMap<OperationField, OperationValue>>,
    timers: BTreeMap<(MirrorPlace, TaskId), (CheckpointId, Timestamp)>,
    pruned: BTreeSet<(MirrorPlace, CheckpointId)>,
    /// The number of whole comparisons: each compares other checkpoints in full.
    comparisons: usize,
}

/// The checkpoints of a whole comparison that are compared in full: all were when they were committed.
const DEEP_AT_ONCE: usize = 16;

/// The attempts to see the newest checkpoints, each 5 ms after the one before.
const ATTEMPTS: usize = 12_000;

/// Those that are left in this process: after a log that never shows them no other one is waited for.
static ATTEMPTS_LEFT: AtomicUsize = AtomicUsize::new(ATTEMPTS);

/// A log whose answers are compared with a mirror.
#[derive(Debug)]
pub(super) struct Mirror<'b> {
    log: &'b dyn Log,
    held: Mutex<Mirrored>,
}

/// Runs a case on a mirror of the backend, and compares all answers at its end.
pub(super) fn mirrored(backend: &dyn Log, case: super::Case) {
    let mirror = Mirror { log: backend, held: Mutex::default() };
    case(&mirror);
    mirror.held.lock().compare(backend);
}

impl Layer for Mirror<'_> {
    fn below(&self) -> &dyn Log {
        self.log
    }

    fn commit(&self, batch: &Batch) -> Result<(), StoreError> {
        self.log.commit(batch)?;
        let mut held = self.held.lock();
        let first = held.order.len();
        held.commit(batch);
        held.order[first..].iter().for_each(|at| held.compare_point(self.log, at));
        let is_of = |place: &MirrorPlace, part: &Batch| (&part.thread, &part.namespace) == (&place.0, &place.1);
        held.compare_heads(self.log, |place| batch.parts().any(|part| is_of(place, part)));
        Ok(())
    }

    fn submit(&self, batch: Batch) -> CommitHandle {
        CommitHandle::settled(Layer::commit(self, &batch))
    }

    fn operate(&self, operation: &NewOperation) -> Result<u64, StoreError> {
        let number = self.log.operate(operation)?;
        let mut held = self.held.lock();
        held.operate(&operation.changes);
        held.compare_heads(self.log, |_| true);
        Ok(number)
    }

    fn erase(&self, what: &Erase<'_>) -> Result<Erasure, StoreError> {
        let erasure = self.log.erase(what)?;
        if let Erase::Threads(threads) = what {
            self.held.lock().delete(threads);
        }
        Ok(erasure)
    }

    fn capabilities(&self) -> Capabilities<'_> {
        let parts = self.log.capabilities();
        Capabilities { prunes: parts.prunes.map(|_| self as &dyn Prunes), ..parts }
    }
}

impl Prunes for Mirror<'_> {
    fn unprunable(&self, thread: &ThreadId, without: &[Namespace]) -> Result<UnprunablePlaces, StoreError> {
        self.log.unprunable(thread, without)
    }

    fn estimate(&self, thread: &ThreadId, what: PruneTarget<'_>) -> Result<Pruned, StoreError> {
        self.log.prune_estimate(thread, what)
    }

    /// Prunes, and compares what is left: of spans that goes on which nothing rests.
    fn prune(&self, thread: &ThreadId, what: PruneTarget<'_>) -> Result<Pruned, StoreError> {
        let mut held = self.held.lock();
        let unprunable = derived::unprunable(self.log, thread, &[])?;
        let all: Vec<&CheckpointRef> = held.order.iter().filter(|at| at.thread == *thread).collect();
        let kept = || -> Vec<CheckpointRecord> {
            let found = self.log.records(&RecordQuery::At(&all)).expect("reads").into_iter().flatten();
            found.filter(|record| !record.pruned).collect()
        };
        let own = kept();
        let pruned = self.log.prune(thread, what)?;
        let left: BTreeSet<u64> = kept().iter().map(|of| of.seq).collect();
        let gone: Vec<_> = own.iter().filter(|of| !left.contains(&of.seq)).collect();
        assert_eq!((pruned.checkpoints, pruned == Pruned::default()), (gone.len() as u64, gone.is_empty()));
        match what {
            PruneTarget::Spans(spans) => {
                let is_in = |of: &CheckpointRecord| spans.iter().any(|span| span.contains(of.branch, of.ordinal));
                let is_due = |of: &&CheckpointRecord| is_in(of) && !unprunable.contains(&(of.branch, of.ordinal));
                assert!(own.iter().filter(is_due).eq(gone.iter().copied()), "the checkpoints that go: {gone:?}");
                held.pruned.extend(gone.iter().map(|of| (place_of(&of.point), of.point.checkpoint)));
            }
            PruneTarget::Namespaces(_) => {
                let gone: BTreeSet<MirrorPlace> = gone.iter().map(|of| place_of(&of.point)).collect();
                held.points.retain(|place, _| !gone.contains(place));
                held.heads.retain(|place, _| !gone.contains(place));
                held.order.retain(|at| !gone.contains(&place_of(at)));
            }
        }
        held.compare(self.log);
        clean(self.log);
        Ok(pruned)
    }
}

fn place_of(at: &CheckpointRef) -> MirrorPlace {
    (at.thread.clone(), at.namespace.clone())
}

impl Mirrored {
    fn point(&self, at: &CheckpointRef) -> &MirrorPoint {
        &self.points[&place_of(at)][&at.checkpoint]
    }

    /// Adds a batch that was accepted; one that was stored before changes nothing.
    fn commit(&mut self, batch: &Batch) {
        let is_stored = |part: &Batch| {
            let of = self.points.get(&(part.thread.clone(), part.namespace.clone()));
            of.zip(part.checkpoints.last()).is_some_and(|(of, last)| of.contains_key(&last.id))
        };
        if batch.parts().any(is_stored) {
            return;
        }
        for part in batch.parts() {
            let place = (part.thread.clone(), part.namespace.clone());
            part.writes.iter().for_each(|new| self.write(&place, new));
            for timer in &part.timers {
                self.timers.remove(&(place.clone(), timer.task));
                let sleeps = timer.wake_at.map(|at| ((place.clone(), timer.task), (timer.checkpoint, at)));
                self.timers.extend(sleeps);
            }
            part.checkpoints.iter().for_each(|new| self.add(&place, new));
        }
        batch.operation.iter().for_each(|operation| self.operate(&operation.changes));
    }

    /// Adds writes of a task: a special index replaces, any other one retains its first write.
    fn write(&mut self, place: &MirrorPlace, new: &NewWrites) {
        let of = self.points.get_mut(place).and_then(|of| of.get_mut(&new.checkpoint)).expect("the checkpoint");
        for NewWrite { index, channel, value, mark } in &new.writes {
            let record = WriteRecord::new(new.task, Arc::clone(&new.path), *index, Arc::clone(channel), value.clone());
            let (record, taken) =
                (record.with_mark(*mark), of.writes.values().find(|of| (of.task, of.index) == (new.task, *index)));
            let taken = taken.map(|of| (Arc::clone(&of.path), of.task, of.index));
            if *index < 0 || taken.is_none() {
                taken.into_iter().for_each(|key| _ = of.writes.remove(&key));
                of.writes.insert((Arc::clone(&record.path), record.task, *index), record);
            }
        }
    }

    fn add(&mut self, place: &MirrorPlace, new: &NewCheckpoint) {
        new.consumed.iter().for_each(|writes| self.write(place, writes));
        let at = CheckpointRef::new(place.0.clone(), place.1.clone(), new.id);
        let mut record = CheckpointRecord::new(at.clone(), 0, new.step, new.source, new.created_at);
        (record.parent, record.forked_from) = match &new.parent {
            None => (None, None),
            Some(Parent::Local(id)) => (Some(*id), None),
            Some(Parent::Fork(of)) => (None, Some(of.clone())),
        };
        (record.run, record.app_version) = (new.run, new.app_version.clone());
        (record.metadata, record.parents, record.tasks) =
            (new.metadata.clone(), new.parents.clone(), new.tasks.clone());
        let parent = record.parent_ref().map(|parent| self.point(&parent));
        record.ordinal = parent.map_or(0, |parent| parent.state.checkpoint.ordinal + 1);
        let newest = self.points.get(place).and_then(|of| of.keys().next_back()).copied();
        let opened = parent.filter(|_| record.parent.is_some() && record.parent == newest);
        let opened = opened.map_or(&at, |parent| &parent.opened).clone();
        let of_parent = parent.map(|parent| (parent.state.clone(), parent.lists.clone()));
        let (state, lists) = of_parent.unwrap_or_else(|| (StateRecord::new(record.clone()), BTreeMap::new()));
        let mut point = MirrorPoint { state, lists, writes: BTreeMap::new(), changed: BTreeMap::new(), opened };
        point.state.checkpoint = record;
        for seen in &new.seen {
            point.state.seen.retain(|of| of.node != seen.node);
            point.state.seen.push(seen.clone());
        }
        point.state.seen.sort_by(|a, b| a.node.cmp(&b.node));
        point.state.updated.clear();
        new.changes.iter().for_each(|change| self.change(&mut point, parent, change));
        point.state.updated.sort();
        point.state.channels.sort_by(|a, b| a.channel.cmp(&b.channel));
        let passed = point.state.checkpoint.parent;
        self.timers.retain(|(of, _), (checkpoint, _)| of != place || Some(*checkpoint) != passed);
        self.points.entry(place.clone()).or_default().insert(new.id, point);
        self.heads.insert(place.clone(), Some(new.id));
        self.order.push(at);
    }

    fn change(&self, point: &mut MirrorPoint, parent: Option<&MirrorPoint>, change: &Change) {
        let (Change { channel, version, value, task, .. }, ordinal) = (change, point.state.checkpoint.ordinal);
        let content = |data: &Data| match data {
            Data::New(payload) => payload.clone(),
            Data::OfWrite(of) => {
                let mut writes = parent.into_iter().flat_map(|parent| parent.writes.values());
                let write = writes.find(|write| (write.task, write.index) == (of.task, of.index)).expect("the write");
                write.value.payloads().get(of.part as usize).expect("the part of a write").clone()
            }
        };
        let before = point.lists.remove(channel);
        let value = match value {
            ChangeValue::Empty => ChannelValue::Empty,
            ChangeValue::Value(data) => ChannelValue::Value(content(data)),
            ChangeValue::Items(changes) => {
                let (held, mut reference) = before.unwrap_or_default();
                let mut items = held.clone();
                let (single, wide): (Vec<_>, Vec<_>) = changes.iter().partition(|change| change.op.is_of_position());
                for ItemChange { position, op, task, .. } in wide.into_iter().chain(single) {
                    match op {
                        ItemOp::Put(data) => _ = items.insert(*position, (ordinal, *task, content(data))),
                        ItemOp::Delete => _ = items.remove(position),
                        ItemOp::DeleteRange { end } => items.retain(|at, _| !(*position..*end).contains(at)),
                        ItemOp::Reference(of) => {
                            let thread = point.opened.thread.clone();
                            let of_point = &self.points[&(thread, of.namespace.clone())][&of.checkpoint];
                            items = of_point.lists.get(&*of.channel).cloned().unwrap_or_default().0;
                            items.values_mut().for_each(|item| (item.0, item.1) = (ordinal, *task));
                            reference = Some(of.clone());
                        }
                    }
                }
                let differs = |at: &&u64| held.get(at) != items.get(at);
                let differ: BTreeSet<u64> = held.keys().chain(items.keys()).filter(differs).copied().collect();
                let range = differ.first().zip(differ.last()).map_or(0..0, |(first, last)| *first..last + 1);
                point.changed.insert(Arc::clone(channel), range);
                point.lists.insert(Arc::clone(channel), (items, reference));
                ChannelValue::Items
            }
        };
        point.state.channels.retain(|of| of.channel != *channel);
        point.state.updated.extend((value != ChannelValue::Empty).then(|| Arc::clone(channel)));
        let mut record = ChannelRecord::new(Arc::clone(channel), *version, value, ordinal);
        record.task = *task;
        point.state.channels.push(record);
    }

    fn operate(&mut self, changes: &[OperationChange]) {
        for OperationChange { thread, namespace, field, after, .. } in changes {
            let fields = self.fields.entry(thread.clone()).or_default();
            match (field, after) {
                (OperationField::Head, after) => {
                    let head = if let Some(OperationValue::Checkpoint(id)) = after { Some(*id) } else { None };
                    self.heads.insert((thread.clone(), namespace.clone()), head);
                }
                (field, Some(value)) => _ = fields.insert(field.clone(), value.clone()),
                (field, None) => _ = fields.remove(field),
            }
        }
    }

    fn delete(&mut self, threads: &[ThreadId]) {
        self.points.retain(|(thread, _), _| !threads.contains(thread));
        self.heads.retain(|(thread, _), _| !threads.contains(thread));
        self.timers.retain(|((thread, _), _), _| !threads.contains(thread));
        self.fields.retain(|thread, _| !threads.contains(thread));
        self.order.retain(|at| !threads.contains(&at.thread));
    }

    fn is_pruned(&self, at: &CheckpointRef) -> bool {
        self.pruned.contains(&(place_of(at), at.checkpoint))
    }

    /// Compares the heads, and the tasks that sleep at them.
    fn compare_heads(&self, log: &dyn Log, of: impl Fn(&MirrorPlace) -> bool) {
        let sleeps = |((place, task), (checkpoint, wake_at)): (&(MirrorPlace, TaskId), &(CheckpointId, Timestamp))| {
            let point = CheckpointRef::new(place.0.clone(), place.1.clone(), *checkpoint);
            (self.heads[place] == Some(*checkpoint)).then(|| TimerRecord::new(point, *task, *wake_at))
        };
        let mut timers: Vec<TimerRecord> = self.timers.iter().filter_map(sleeps).collect();
        timers.sort_by_key(|timer| timer.wake_at);
        assert_eq!(log.timers(None, 1_000).expect("timers are listed"), timers);
        for (due_by, limit) in timers.iter().map(|timer| timer.wake_at).zip([1, 9].into_iter().cycle()) {
            let due = timers.iter().filter(|timer| timer.wake_at <= due_by).take(limit);
            let found = log.timers(Some(due_by), limit).expect("timers are listed");
            assert!(found.iter().eq(due), "due by {due_by:?}");
        }
        for (place @ (thread, namespace), head) in self.heads.iter().filter(|(place, _)| of(place)) {
            let at = CasePlace { backend: log, thread: thread.clone(), namespace: namespace.clone() };
            assert_eq!(at.head(), head.map(number), "the head of {place:?}");
            let newest = self.points[place].keys().next_back().copied();
            let is_child = |of: &MirrorPoint| of.state.checkpoint.parent == *head;
            let is_continued = head.is_some() && *head != newest && self.points[place].values().any(is_child);
            let found = log.head_with_writes(thread, namespace).expect("reads the head with its writes");
            assert_eq!(found.is_some_and(|head| head.is_continued), is_continued, "whether {place:?} goes on");
            let own = |timer: &&TimerRecord| (&timer.point.thread, &timer.point.namespace) == (thread, namespace);
            let found = log.timers_of(thread, namespace).expect("timers of a namespace");
            assert!(found.iter().eq(timers.iter().filter(own)), "{found:?}");
        }
    }

    /// Compares what followers see with the order of the log. A server shows the newest checkpoints once no other
    /// transaction that began before has any left to show.
    fn compare_order(&self, log: &dyn Log) {
        let kept: Vec<_> = self.order.iter().filter(|at| !self.is_pruned(at)).collect();
        loop {
            let changes = followed(log).changes_after(&LogPosition::START, None, 1_000).expect("reads the log").records;
            let shown: Vec<_> = changes.iter().map(|(_, record)| &record.point).collect();
            assert!(kept.starts_with(&shown), "followers see the order of the log");
            if shown.len() == kept.len() {
                return ATTEMPTS_LEFT.store(ATTEMPTS, Ordering::Relaxed);
            }
            let left = ATTEMPTS_LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            left.expect("followers see the newest checkpoints");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Compares all that a log shows.
    fn compare(&mut self, log: &dyn Log) {
        self.comparisons += 1;
        self.compare_heads(log, |_| true);
        let (mut branches, mut seq, step) = (BTreeMap::new(), 0, 1 + self.order.len() / DEEP_AT_ONCE);
        let all: Vec<&CheckpointRef> = self.order.iter().collect();
        let kept: Vec<&CheckpointRef> = all.iter().copied().filter(|at| !self.is_pruned(at)).collect();
        let records = log.records(&RecordQuery::At(&all)).expect("reads checkpoints");
        let mut writes = self.writes_in_pages(log, &kept).into_iter();
        assert_eq!((records.len(), writes.len()), (all.len(), kept.len()));
        for (n, (at, record)) in all.into_iter().zip(records).enumerate() {
            let record = record.filter(|record| record.point == *at).expect("it is stored");
            let stored = if self.is_pruned(at) { None } else { writes.next() };
            self.compare_found(log, &record, stored.filter(|_| (n + self.comparisons).is_multiple_of(step)));
            assert!(std::mem::replace(&mut seq, record.seq) < record.seq, "the order of the log at {at:?}");
            let opened = &self.point(at).opened;
            assert_eq!(branches.entry(record.branch).or_insert(opened), &opened, "the branch of {at:?}");
        }
        let opened: BTreeSet<String> = branches.values().map(|of| format!("{of:?}")).collect();
        assert_eq!(opened.len(), branches.len(), "each branch has a number of its own");
        self.compare_order(log);
        let threads: BTreeSet<&ThreadId> = self.order.iter().map(|at| &at.thread).collect();
        threads.iter().for_each(|thread| self.compare_thread(log, thread));
        let listed = log.threads(None, 1_000).expect("threads are listed");
        let has_head =
            |thread: &&&ThreadId| matches!(self.heads.get(&((**thread).clone(), Namespace::root())), Some(Some(_)));
        assert!(listed.iter().map(|of| &of.id).eq(threads.iter().filter(has_head).copied()), "{listed:?}");
        for ThreadRecord { id, head, created_at, .. } in &listed {
            assert_eq!(Some(head.point.checkpoint), self.heads[&(id.clone(), Namespace::root())]);
            let first = self.order.iter().find(|at| at.thread == *id).map(|at| self.point(at));
            assert_eq!(first.map(|first| first.state.checkpoint.created_at), Some(*created_at));
        }
    }

    /// Reads the writes of checkpoints, in turns at once and by pages of few bytes.
    fn writes_in_pages(&self, log: &dyn Log, kept: &[&CheckpointRef]) -> Vec<Vec<WriteRecord>> {
        let bytes = if self.comparisons.is_multiple_of(2) { 64 } else { usize::MAX };
        let mut found: Vec<Vec<WriteRecord>> = Vec::new();
        while found.len() < kept.len() {
            let page = log.writes_of(&kept[found.len()..], bytes).expect("reads writes");
            let values = page[..page.len() - 1].iter().flatten().flat_map(|write| write.value.payloads());
            assert!(values.map(Payload::len).sum::<usize>() < bytes, "a page ends at {bytes} bytes");
            found.extend(page);
        }
        found
    }

    fn compare_thread(&self, log: &dyn Log, thread: &ThreadId) {
        let own: Vec<&CheckpointRef> = self.order.iter().filter(|at| at.thread == *thread).collect();
        let spaces: BTreeSet<&Namespace> = own.iter().map(|at| &at.namespace).collect();
        let found = log.namespaces(thread).expect("lists namespaces");
        assert!(found.iter().eq(spaces.iter().copied()), "sorted namespaces");
        for namespace in spaces {
            let at = CasePlace { backend: log, thread: thread.clone(), namespace: namespace.clone() };
            let kept = |id: &&CheckpointId| !self.is_pruned(&at.point(number(**id)));
            let newest_first = self.points[&(thread.clone(), namespace.clone())].keys().rev().filter(kept);
            let newest_first: Vec<u64> = newest_first.map(|id| number(*id)).collect();
            assert_eq!(in_pages(&at), newest_first, "the pages of {namespace:?}");
        }
        let all = CheckpointQuery { namespace: None, ..CheckpointQuery::new(thread.clone(), Namespace::root()) };
        let kept = own.iter().filter(|at| !self.is_pruned(at));
        let mut newest_first: Vec<u64> = kept.map(|at| number(at.checkpoint)).collect();
        newest_first.sort_by_key(|n| Reverse(*n));
        assert_eq!(page(log, &all), newest_first, "the checkpoints of all namespaces");
        let first = page(log, &CheckpointQuery { limit: 3, ..all });
        assert_eq!(first, newest_first[..newest_first.len().min(3)], "a page of all namespaces");
        let opened: BTreeSet<_> = own.iter().map(|at| format!("{:?}", self.point(at).opened)).collect();
        let size = log.thread_size(thread).expect("a thread is counted");
        let sizes = (newest_first.len() as u64, opened.len() as u64);
        assert_eq!((size.checkpoints, size.branches), sizes, "the size of {thread}");
        let of_fork = |at: &CheckpointRef| self.point(at).state.checkpoint.forked_from.clone();
        let is_fork = |at: &&CheckpointRef| at.thread != *thread && of_fork(at).is_some_and(|of| of.thread == *thread);
        let mut seen = BTreeSet::new();
        let forks = self.order.iter().filter(is_fork).map(|at| &at.thread).filter(|fork| seen.insert(*fork));
        let found = log.forks(thread).expect("forks are listed");
        assert!(found.iter().eq(forks), "the first fork of {thread} comes first");
        let first = own.iter().filter(|at| at.namespace.is_root()).min_by_key(|at| at.checkpoint);
        let from = first.and_then(|at| of_fork(at)).filter(|from| from.thread != *thread);
        assert_eq!(log.forked_from(thread).expect("the origin is read"), from);
        let fields = self.fields.get(thread).into_iter().flatten().map(|(field, value)| (field.clone(), value.clone()));
        assert_eq!(log.fields(thread).expect("fields are read"), fields.collect::<Vec<_>>(), "the fields of {thread}");
    }

    /// Compares all that a new checkpoint shows.
    fn compare_point(&self, log: &dyn Log, at: &CheckpointRef) {
        let found = log.checkpoint(at).expect("reads a checkpoint").expect("it is stored");
        assert_eq!(found.point, *at);
        self.compare_found(log, &found, Some(log.writes(at).expect("reads writes")));
    }

    /// Compares a checkpoint whose record was read: with its writes also its state, its lists and its lineage.
    fn compare_found(&self, log: &dyn Log, found: &CheckpointRecord, stored: Option<Vec<WriteRecord>>) {
        let at = &found.point;
        let MirrorPoint { mut state, lists, writes, .. } = self.point(at).clone();
        (state.checkpoint.seq, state.checkpoint.branch) = (found.seq, found.branch);
        if self.is_pruned(at) {
            let record = &mut state.checkpoint;
            (record.pruned, record.parents, record.tasks) = (true, [].into(), found.tasks.clone());
            record.metadata = pruned_metadata(record.metadata.as_deref());
            let refused = [refusal(log.state(at)), refusal(log.writes(at)), refusal(log.list_len(at, "list"))];
            assert_eq!(refused, std::array::from_fn(|_| format!("{} is pruned", number(at.checkpoint))));
        }
        assert_eq!(*found, state.checkpoint, "the record");
        let Some(stored) = stored else { return };
        assert!(stored.iter().eq(writes.values()), "the writes of {at:?}: {stored:?}");
        assert!(log.state(at).expect("reads a state") == state, "the state at {at:?}");
        // The items of a list are visited only if they are wanted.
        let wants = |channel: &str| number(at.checkpoint).is_multiple_of(2) || channel != "other";
        let rows = |items: &MirrorItems| -> Vec<_> {
            items.iter().map(|(position, (ordinal, task, item))| (*position, *ordinal, *task, item.clone())).collect()
        };
        let mut whole: Vec<(ChannelRecord, Vec<_>)> = Vec::new();
        let read = log.read_state(at, &mut |part| {
            match part {
                StatePart::Record(record) => assert!(whole.is_empty() && *record == state, "it comes first"),
                StatePart::Channel(channel) => {
                    whole.push((channel.clone(), Vec::new()));
                    return Ok(wants(&channel.channel));
                }
                StatePart::Item(row) => {
                    let (_, rows) = whole.last_mut().expect("a list comes before its items");
                    rows.push((row.position, row.ordinal, row.task, row.payload.to_payload()));
                }
                other => panic!("no other part was asked for: {other:?}"),
            }
            Ok(true)
        });
        read.expect("reads a whole state");
        let items = |channel: &ChannelRecord| lists.get(&channel.channel).filter(|_| wants(&channel.channel));
        let expected =
            state.channels.iter().map(|of| (of.clone(), items(of).map_or(Vec::new(), |(items, _)| rows(items))));
        assert!(whole.iter().cloned().eq(expected), "the whole state at {at:?}: {whole:?}");
        let place = CasePlace { backend: log, thread: at.thread.clone(), namespace: at.namespace.clone() };
        let (n, from) = (number(at.checkpoint), number(at.checkpoint) % 17);
        for (channel, (items, reference)) in &lists {
            let all = rows(items);
            let read = |range| place.items(n, channel, range);
            assert_eq!(log.list_len(at, channel).expect("reads the length of a list"), all.len() as u64);
            assert_eq!(read(ItemRange::Tail(3)), all[all.len().saturating_sub(3)..], "the tail");
            let inside: Vec<_> = all.iter().filter(|of| (from..from + 9).contains(&of.0)).cloned().collect();
            assert_eq!(read(ItemRange::Positions(from, from + 9)), inside, "positions from {from} on");
            assert_eq!(log.list_reference(at, channel).expect("reads a list"), *reference);
        }
        if found.ordinal < 12 || found.ordinal.is_multiple_of(16) {
            self.compare_lineage(log, at);
        }
    }

    /// Compares the lineage of a checkpoint, and the versions in it.
    fn compare_lineage(&self, log: &dyn Log, at: &CheckpointRef) {
        let parent = |point: &&MirrorPoint| Some(self.point(&point.state.checkpoint.parent_ref()?));
        let lineage: Vec<&MirrorPoint> = std::iter::successors(Some(self.point(at)), parent).collect();
        let ordinals: Vec<u64> = (0..=lineage.len() as u64).rev().collect();
        let found = log.ancestors(at, &ordinals).expect("reads a lineage");
        let found = found.iter().map(|record| record.as_ref().map(|record| &record.point));
        let points = lineage.iter().map(|point| Some(&point.state.checkpoint.point));
        assert!(found.eq(std::iter::once(None).chain(points)), "the lineage of {at:?}");
        let channels = lineage[0].state.channels.iter().map(|of| Some(&*of.channel));
        // Of each channel the whole lineage or its newer half, at the next checkpoint the other one.
        let spans = [0, lineage.len() as u64 / 2].into_iter().cycle().skip(lineage.len() % 2);
        for (channel, down_to) in channels.chain([None, Some("never")]).zip(spans) {
            let kept = lineage.iter().filter(|point| !self.is_pruned(&point.state.checkpoint.point));
            let written = kept.flat_map(|point| {
                let ordinal = point.state.checkpoint.ordinal;
                let wanted = move |of: &&ChannelRecord| channel.is_none_or(|channel| channel == &*of.channel);
                let channels = point.state.channels.iter().filter(wanted).filter(move |of| of.ordinal == ordinal);
                let channels = channels.filter(move |_| ordinal >= down_to);
                channels.map(|of| (of.clone(), point.changed.get(&of.channel).cloned().unwrap_or(0..0)))
            });
            let (written, changed): (Vec<ChannelRecord>, Vec<Range<u64>>) = written.unzip();
            let mut found: Vec<VersionRecord> =
                seen(|found| log.versions(at, channel, down_to, &mut |version| see(found, version.clone())));
            let is_of_items = |of: &VersionRecord| of.positions.is_some() == (of.channel.value == ChannelValue::Items);
            assert!(found.iter().all(is_of_items), "{found:?}");
            assert!(found.is_sorted_by_key(|of| Reverse(of.channel.ordinal)), "newest first");
            found.sort_by_key(|of| (Reverse(of.channel.ordinal), Arc::clone(&of.channel.channel)));
            let shown = || format!("the versions of {channel:?} down to {down_to} at {at:?}");
            assert!(found.iter().map(|of| &of.channel).eq(&written), "{}: {found:?}", shown());
            let holds = |(of, changed): (&VersionRecord, &Range<u64>)| {
                let of = of.positions.clone().unwrap_or(0..0);
                of.start <= changed.start && changed.end <= of.end || changed.is_empty()
            };
            assert!(found.iter().zip(&changed).all(holds), "the positions of {}: {found:?}", shown());
        }
    }
}

/// Returns the checkpoints of a namespace from pages of 7.
fn in_pages(place: &CasePlace<'_>) -> Vec<u64> {
    // The first page lies before an id that is not stored.
    let [first, last] = [0, 255].map(|byte| CheckpointId::from_bytes([byte; 16]));
    let (mut query, mut found) = (CheckpointQuery { before: Some(last), limit: 7, ..place.query() }, Vec::new());
    assert!(page(place.backend, &CheckpointQuery { before: Some(first), ..query.clone() }).is_empty());
    loop {
        let page = page(place.backend, &query);
        query.before = page.last().map(|n| id(*n));
        found.extend(&page);
        assert!(found.is_sorted_by(|newer, older| newer > older), "a page repeats: {found:?}");
        if page.len() < 7 {
            return found;
        }
    }
}
