//! The part that the clones of a saver share: the store, caches of newest states, and the buffer of writes.
//!
//! Invariant: a cached state is that of a checkpoint that was committed or submitted; what fails is taken out again.
//! *Absent:* the operations.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use annals::store::log::{CommitHandle, HeadParts, Log, LogExt};
use annals::store::record::{StoredHead, WriteRecord};
use annals::store::{CheckpointRef, Store, StoreError};
use annals_base::{CheckpointId, Namespace, ThreadId};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::aside::{Aside, AsideIndex};
use crate::limits::{CACHED_MAX, HANDED_OUT_MAX, WRITES_LINGER};
use crate::notes::plain_id;
use crate::place::{ASIDE, SaverPlace, aside_of};
use crate::saver::SubmittedPut;
use crate::state::{DigestState, LoadedCheckpoint, load};
use crate::typed::MessageCache;
use crate::writes::TaskWrites;
use crate::{Result, SaverError};

/// The number of locks that hold writes and checkpoints back.
const SENDING_LOCKS: usize = 16;

pub(crate) struct SaverInner {
    pub(crate) store: Store,
    messages: MessageCache,
    caches: Mutex<SaverCaches>,
    buffer: Mutex<Buffer>,
    /// It is held while puts are ended whose handles were dropped, so that a read waits for them.
    ending: Mutex<()>,
    /// A lock for the threads of each hash. It is held while writes or a checkpoint of a thread are on their way to the
    /// store, so that a read waits for them, and a put finds the writes that came before it.
    sending: [Mutex<()>; SENDING_LOCKS],
    signal: Arc<FlushSignal>,
}

/// Tells the thread that flushes about buffered writes, and about the end of the saver.
#[derive(Default)]
struct FlushSignal {
    told: Mutex<FlushState>,
    changed: Condvar,
}

#[derive(Default)]
struct FlushState {
    has_writes: bool,
    is_closed: bool,
}

#[derive(Default)]
struct SaverCaches {
    states: HashMap<SaverPlace, (CheckpointId, Arc<DigestState>)>,
    indexes: HashMap<ThreadId, Arc<AsideIndex>>,
    /// The checkpoints that were handed out as the newest of a namespace; `None` if it had none.
    handed_out: HashMap<SaverPlace, Vec<Option<CheckpointId>>>,
    submitted: HashMap<SaverPlace, (CheckpointId, CommitHandle)>,
}

#[derive(Default)]
struct Buffer {
    writes: HashMap<ThreadId, Vec<TaskWrites>>,
    /// The puts whose handles were dropped, in their order.
    abandoned: Vec<(CommitHandle, Box<SubmittedPut>)>,
    errors: HashMap<ThreadId, SaverError>,
    /// The thread that flushes, once it was needed.
    flusher: Option<JoinHandle<()>>,
}

/// The result of a search for a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FoundPlace {
    Nowhere,
    /// It was deleted, or pruned.
    Deleted,
    At(CheckpointRef),
}

impl SaverInner {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            messages: MessageCache::default(),
            caches: Mutex::default(),
            buffer: Mutex::default(),
            ending: Mutex::default(),
            sending: Default::default(),
            signal: Arc::default(),
        }
    }

    pub(crate) fn backend(&self) -> &dyn Log {
        &**self.store.backend()
    }

    /// Returns the index of the checkpoints of a thread that do not stand in the log under their ids.
    pub(crate) fn index(&self, thread: &ThreadId) -> Result<Arc<AsideIndex>> {
        let head = self.stored_head(thread, &Namespace::new(ASIDE)?)?;
        self.index_at(thread, head)
    }

    /// Returns the index as [`SaverInner::index`], and the head of a namespace with its stored writes, in one read.
    pub(crate) fn index_and_head(&self, place: &SaverPlace) -> Result<(Arc<AsideIndex>, Option<StoredHead>)> {
        let aside = Namespace::new(ASIDE)?;
        let of = [(&place.thread, &place.namespace), (&place.thread, &aside)];
        let mut heads = self.backend().heads(&of, HeadParts::WRITES)?.into_iter();
        let (head, aside) = (heads.next().flatten(), heads.next().flatten());
        Ok((self.index_at(&place.thread, aside.map(|head| head.checkpoint))?, head))
    }

    /// Returns the index at the head of its namespace.
    fn index_at(&self, thread: &ThreadId, head: Option<CheckpointId>) -> Result<Arc<AsideIndex>> {
        let Some(id) = head else { return Ok(Arc::default()) };
        let known = self.caches.lock().indexes.get(thread).cloned();
        if let Some(known) = known.filter(|known| known.is_at(head)) {
            return Ok(known);
        }
        let index = Arc::new(AsideIndex::read(self.backend(), thread, id)?);
        let mut caches = self.caches.lock();
        if caches.indexes.len() >= CACHED_MAX {
            caches.indexes.clear();
        }
        caches.indexes.insert(thread.clone(), Arc::clone(&index));
        Ok(index)
    }

    /// Returns the checkpoint of a namespace that was submitted last, until its commit is written or refused.
    pub(crate) fn submitted_head(&self, place: &SaverPlace) -> Option<CheckpointId> {
        let submitted = self.caches.lock().submitted.get(place).cloned();
        submitted.filter(|(_, handle)| !handle.is_settled()).map(|(id, _)| id)
    }

    /// Returns the stored writes of a checkpoint of a place whose head was read.
    pub(crate) fn writes_beside(
        &self,
        at: &CheckpointRef,
        place: &SaverPlace,
        head: Option<StoredHead>,
    ) -> Result<Vec<WriteRecord>, StoreError> {
        match head.filter(|head| place.is_of(at) && head.checkpoint == at.checkpoint) {
            Some(head) => Ok(head.writes),
            None => self.backend().writes(at),
        }
    }

    pub(crate) fn stored_head(&self, thread: &ThreadId, namespace: &Namespace) -> Result<Option<CheckpointId>> {
        Ok(self.backend().head_id(thread, namespace)?)
    }

    /// Finds a checkpoint by its text.
    pub(crate) fn find(&self, place: &SaverPlace, index: &AsideIndex, id: &str) -> Result<FoundPlace> {
        match index.find(place.namespace.as_str(), id) {
            Aside::Deleted | Aside::Pruned => return Ok(FoundPlace::Deleted),
            Aside::Stored => {
                let namespace = aside_of(place.namespace.as_str(), id)?;
                let head = self.stored_head(&place.thread, &namespace)?;
                let at = |head| FoundPlace::At(CheckpointRef::new(place.thread.clone(), namespace, head));
                return Ok(head.map_or(FoundPlace::Nowhere, at));
            }
            Aside::Nowhere | Aside::Awaited => {}
        }
        let Some(id) = plain_id(id) else { return Ok(FoundPlace::Nowhere) };
        let at = place.at(id);
        if self.caches.lock().states.get(place).is_some_and(|(cached, _)| *cached == id) {
            return Ok(FoundPlace::At(at));
        }
        Ok(match self.backend().checkpoint(&at)? {
            None => FoundPlace::Nowhere,
            Some(record) if record.pruned => FoundPlace::Deleted,
            Some(_) => FoundPlace::At(at),
        })
    }

    /// Reads a checkpoint with its state; `None` if it is not stored, or was pruned.
    pub(crate) fn load(&self, at: &CheckpointRef) -> Result<Option<LoadedCheckpoint>> {
        load(self.backend(), &self.messages, at, None)
    }

    /// Reads a checkpoint as [`SaverInner::load`], beside one that was read before.
    pub(crate) fn load_beside(
        &self,
        at: &CheckpointRef,
        child: Option<&LoadedCheckpoint>,
    ) -> Result<Option<LoadedCheckpoint>> {
        load(self.backend(), &self.messages, at, child)
    }

    /// Returns the state at a checkpoint that is stored or submitted.
    pub(crate) fn state(&self, at: &CheckpointRef) -> Result<Option<Arc<DigestState>>> {
        let place = SaverPlace { thread: at.thread.clone(), namespace: at.namespace.clone() };
        let cached = self.caches.lock().states.get(&place).cloned();
        if let Some((_, state)) = cached.filter(|(id, _)| *id == at.checkpoint) {
            return Ok(Some(state));
        }
        Ok(self.load(at)?.map(|loaded| Arc::new(loaded.state)))
    }

    /// Returns whether states of a thread are cached.
    pub(crate) fn has_states(&self, thread: &ThreadId) -> bool {
        self.caches.lock().states.keys().any(|place| place.thread == *thread)
    }

    /// Caches the newest state of a namespace.
    pub(crate) fn remember(&self, at: &CheckpointRef, state: Arc<DigestState>) {
        let place = SaverPlace { thread: at.thread.clone(), namespace: at.namespace.clone() };
        let mut caches = self.caches.lock();
        if caches.states.len() >= CACHED_MAX {
            caches.states.clear();
        }
        caches.states.insert(place, (at.checkpoint, state));
    }

    /// Notes a checkpoint as submitted.
    pub(crate) fn submitted(&self, place: &SaverPlace, id: CheckpointId, handle: CommitHandle) {
        let mut caches = self.caches.lock();
        if caches.submitted.len() >= CACHED_MAX {
            caches.submitted.retain(|_, (_, handle)| !handle.is_settled());
        }
        caches.submitted.insert(place.clone(), (id, handle));
    }

    /// Waits for the submitted puts of a thread, or of all.
    pub(crate) fn settle(&self, thread: Option<&ThreadId>) {
        let caches = self.caches.lock();
        let of_thread = caches.submitted.iter().filter(|(place, _)| thread.is_none_or(|id| place.thread == *id));
        let handles: Vec<CommitHandle> = of_thread.map(|(_, (_, handle))| handle.clone()).collect();
        drop(caches);
        if handles.iter().any(|handle| !handle.is_settled()) {
            self.backend().flush();
            handles.iter().for_each(CommitHandle::wait_until_settled);
        }
    }

    /// Removes the caches of a thread.
    pub(crate) fn forget(&self, thread: &ThreadId) {
        let mut caches = self.caches.lock();
        caches.states.retain(|place, _| place.thread != *thread);
        caches.submitted.retain(|place, _| place.thread != *thread);
        caches.handed_out.retain(|place, _| place.thread != *thread);
        caches.indexes.remove(thread);
    }

    /// Forgets a checkpoint whose commit was refused.
    pub(crate) fn forget_put(&self, place: &SaverPlace, id: &str) {
        let Some(id) = plain_id(id) else { return };
        let mut caches = self.caches.lock();
        if caches.states.get(place).is_some_and(|(cached, _)| *cached == id) {
            caches.states.remove(place);
        }
        if caches.submitted.get(place).is_some_and(|(submitted, _)| *submitted == id) {
            caches.submitted.remove(place);
        }
        if let Some(ids) = caches.handed_out.get_mut(place) {
            ids.retain(|other| *other != Some(id));
        }
    }

    /// Notes the newest checkpoint of a namespace as handed out.
    pub(crate) fn hand_out(&self, place: &SaverPlace, id: Option<CheckpointId>) {
        let mut caches = self.caches.lock();
        if caches.handed_out.len() >= CACHED_MAX && !caches.handed_out.contains_key(place) {
            caches.handed_out.clear();
        }
        let ids = caches.handed_out.entry(place.clone()).or_default();
        ids.retain(|other| *other != id);
        ids.push(id);
        if ids.len() > HANDED_OUT_MAX {
            ids.remove(0);
        }
    }

    /// Notes that a checkpoint was asked for by its id: a put on it is time travel.
    pub(crate) fn asked_for(&self, place: &SaverPlace, id: Option<CheckpointId>) {
        if let Some(ids) = self.caches.lock().handed_out.get_mut(place) {
            ids.retain(|other| *other != id);
        }
    }

    pub(crate) fn was_handed_out(&self, place: &SaverPlace, id: Option<CheckpointId>) -> bool {
        self.caches.lock().handed_out.get(place).is_some_and(|ids| ids.contains(&id))
    }

    /// Returns the error of an earlier write or put of a thread whose caller did not wait for the outcome.
    pub(crate) fn earlier_error(&self, thread: &ThreadId) -> Result<()> {
        self.buffer.lock().errors.remove(thread).map_or(Ok(()), Err)
    }

    /// Buffers writes. Returns an error of earlier ones of the thread.
    pub(crate) fn buffer(self: &Arc<Self>, thread: ThreadId, writes: TaskWrites) -> Result<()> {
        let mut buffer = self.buffer.lock();
        if let Some(error) = buffer.errors.remove(&thread) {
            return Err(error);
        }
        buffer.writes.entry(thread).or_default().push(writes);
        // Without a thread that flushes, each call stores its own writes.
        if self.wake_flusher(buffer) { Ok(()) } else { self.flush(None) }
    }

    /// Takes over a put whose handle was dropped.
    pub(crate) fn abandon(self: &Arc<Self>, handle: CommitHandle, put: Box<SubmittedPut>) {
        let mut buffer = self.buffer.lock();
        buffer.abandoned.push((handle, put));
        if !self.wake_flusher(buffer) {
            self.end_abandoned();
        }
    }

    /// Tells the thread that flushes about something buffered. Returns whether there is such a thread.
    fn wake_flusher(self: &Arc<Self>, mut buffer: MutexGuard<'_, Buffer>) -> bool {
        if buffer.flusher.is_none() {
            let (weak, signal) = (Arc::downgrade(self), Arc::clone(&self.signal));
            let flusher = std::thread::Builder::new().name("annals-writes".into());
            buffer.flusher = flusher.spawn(move || flush_late(&weak, &signal)).ok();
        }
        if buffer.flusher.is_some() {
            self.signal.told.lock().has_writes = true;
            self.signal.changed.notify_one();
        }
        buffer.flusher.is_some()
    }

    /// Ends the puts whose handles were dropped. Errors are retained for the next call of their thread.
    fn end_abandoned(&self) {
        let _ending = self.ending.lock();
        let puts = std::mem::take(&mut self.buffer.lock().abandoned);
        for (handle, put) in puts {
            let thread = put.thread();
            let outcome = handle.wait();
            if let (Err(error), Ok(thread)) = (self.end_put(*put, outcome), thread) {
                self.buffer.lock().errors.entry(thread).or_insert(error);
            }
        }
    }

    /// Waits for what is on its way to the store.
    pub(crate) fn wait_for_flush(&self) {
        self.sending.iter().for_each(|lock| drop(lock.lock()));
    }

    /// Takes the buffered writes of a checkpoint.
    pub(crate) fn take_writes(&self, place: &SaverPlace, checkpoint: &str) -> Vec<TaskWrites> {
        let mut buffer = self.buffer.lock();
        let Some(writes) = buffer.writes.get_mut(&place.thread) else { return Vec::new() };
        let is_of =
            |writes: &mut TaskWrites| writes.checkpoint == checkpoint && writes.namespace == place.namespace.as_str();
        writes.extract_if(.., is_of).collect()
    }

    /// Puts writes back that a put had taken.
    pub(crate) fn put_back(&self, thread: &ThreadId, mut writes: Vec<TaskWrites>) {
        if !writes.is_empty() {
            let mut buffer = self.buffer.lock();
            let later = buffer.writes.entry(thread.clone()).or_default();
            writes.append(later);
            *later = writes;
        }
    }

    /// Drops the buffered writes and errors of a thread.
    pub(crate) fn drop_writes(&self, thread: &ThreadId) {
        let mut buffer = self.buffer.lock();
        buffer.writes.remove(thread);
        buffer.errors.remove(thread);
    }

    /// Stores the buffered writes of a thread, or of all, and returns an error of them.
    pub(crate) fn flush(&self, thread: Option<&ThreadId>) -> Result<()> {
        self.store_buffered(thread);
        let mut buffer = self.buffer.lock();
        let failed = thread.cloned().or_else(|| buffer.errors.keys().next().cloned());
        failed.and_then(|thread| buffer.errors.remove(&thread)).map_or(Ok(()), Err)
    }

    /// Stores the buffered writes of a thread, or of all. Errors are retained for the next call of their thread.
    fn store_buffered(&self, thread: Option<&ThreadId>) {
        self.end_abandoned();
        let threads: Vec<ThreadId> = match thread {
            Some(thread) => vec![thread.clone()],
            None => self.buffer.lock().writes.keys().cloned().collect(),
        };
        for thread in threads {
            let _sending = self.sending(&thread);
            let taken = self.buffer.lock().writes.remove(&thread);
            for group in groups(taken.unwrap_or_default()) {
                if let Err(error) = self.store_writes(&thread, &group) {
                    self.buffer.lock().errors.entry(thread.clone()).or_insert(error);
                }
            }
        }
    }

    /// Waits until nothing of a thread is on its way to the store, and holds it back.
    pub(crate) fn sending(&self, thread: &ThreadId) -> MutexGuard<'_, ()> {
        let hash = thread.as_str().bytes().fold(0_usize, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        self.sending[hash % SENDING_LOCKS].lock()
    }
}

impl SaverInner {
    /// Ends the thread that flushes, waits for it, and stores what is buffered. The thread holds the store while it
    /// flushes; the store would be closed after the last handle.
    pub(crate) fn close(&self) {
        self.signal.told.lock().is_closed = true;
        self.signal.changed.notify_all();
        let flusher = self.buffer.lock().flusher.take();
        if let Some(flusher) = flusher.filter(|flusher| flusher.thread().id() != std::thread::current().id()) {
            // A panic of the thread was told by the thread.
            _ = flusher.join();
        }
        // Nobody is left to whom an error could be told.
        self.store_buffered(None);
    }
}

/// The body of the thread that stores buffered writes once they have waited.
fn flush_late(saver: &Weak<SaverInner>, signal: &FlushSignal) {
    loop {
        if !signal.wait_for_writes() {
            return;
        }
        match saver.upgrade() {
            Some(saver) => saver.store_buffered(None),
            None => return,
        }
    }
}

impl FlushSignal {
    /// Waits for writes, and lets them wait for their checkpoint. Writes that come meanwhile do not cut this short:
    /// most tasks have several. Returns `false` if the saver is closed.
    fn wait_for_writes(&self) -> bool {
        let mut told = self.told.lock();
        self.changed.wait_while(&mut told, |told| !told.has_writes && !told.is_closed);
        _ = self.changed.wait_while_for(&mut told, |told| !told.is_closed, WRITES_LINGER);
        told.has_writes = false;
        !told.is_closed
    }
}

/// Joins writes of one checkpoint, in their order.
fn groups(writes: Vec<TaskWrites>) -> Vec<Vec<TaskWrites>> {
    let mut groups: Vec<Vec<TaskWrites>> = Vec::new();
    for one in writes {
        let is_same = |group: &&mut Vec<TaskWrites>| {
            group.first().is_some_and(|f| f.checkpoint == one.checkpoint && f.namespace == one.namespace)
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use annals_base::{Clock, SystemClock};

    #[test]
    fn writes_that_come_meanwhile_do_not_cut_the_wait_short() {
        let signal = FlushSignal::default();
        std::thread::scope(|scope| {
            let begin = SystemClock.elapsed();
            let flusher = scope.spawn(|| signal.wait_for_writes());
            while !flusher.is_finished() {
                signal.told.lock().has_writes = true;
                signal.changed.notify_all();
                std::thread::yield_now();
            }
            assert!(flusher.join().unwrap(), "the saver is open");
            assert!(SystemClock.elapsed() - begin >= WRITES_LINGER);
        });
    }
}
