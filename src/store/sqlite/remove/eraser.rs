//! Drives erasures: hides threads at once, and reclaims their space in steps until the file and its log hold no byte.
//!
//! A call reclaims a few slices itself; the background does the rest, with a pause after each slice, and empties the
//! trash. It begins when there is something to reclaim, also after an open. *Absent:* which rows go ([`erase`]), and
//! the thread of the background ([`worker`]).
//!
//! [`erase`]: super::erase
//! [`worker`]: crate::store::sqlite::writer::background

use super::erase::{EraseJob, EraseStep, Tombstones};
use super::prune::NamespaceRemoval;
use crate::base::limits::DELETED_THREADS_MAX;
use crate::base::{Clock, ThreadId, Timestamp, debug_fields};
use crate::limits::{RECLAIM_INTERVAL, RECLAIM_RETRY, RECLAIM_SLICES, TRASH_INTERVAL};
use crate::store::error::StoreError;
use crate::store::log::Erasure;
use crate::store::prune::Pruned;
use crate::store::sqlite::fault::{Res, is_full};
use crate::store::sqlite::read::pool::ReaderPool;
use crate::store::sqlite::view::ReadView;
use crate::store::sqlite::writer::background::{Background, Upkeep, UpkeepKind};
use crate::store::sqlite::writer::job::JobRef;
use crate::store::sqlite::writer::role::SqliteWriter;
use crate::store::trash::deletable;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The eraser of a file that is open for writing.
pub(crate) struct Eraser {
    worker: Background,
    trash: Arc<TrashUpkeep>,
}

debug_fields!(Eraser { worker });

impl Eraser {
    /// Makes an eraser that leaves the rest of its work to a background.
    pub(crate) fn new(worker: Background, clock: Arc<dyn Clock>, pool: &Arc<ReaderPool>) -> Self {
        let trash = Arc::new(TrashUpkeep { clock, pool: Arc::downgrade(pool), schedule: Mutex::default() });
        Self { worker, trash }
    }

    /// Hides the threads whose time in the trash has ended, and reclaims their rows if they are few.
    pub(crate) fn erase_trash(&self, now: Timestamp) -> Result<Erasure, StoreError> {
        let left = step(self.worker.writer(), EraseStep::HideTrash(now, None))?;
        self.reclaim_some(left)
    }

    /// Lets the background look at the trash now: it deletes each thread when its time there has ended.
    pub(crate) fn watch_trash(&self) {
        self.worker.wake(UpkeepKind::Trash, Arc::clone(&self.trash) as Arc<dyn Upkeep>);
    }

    /// Lets the background look at the trash after the interval: another process may put threads there.
    pub(crate) fn watch_trash_later(&self) {
        self.worker.wake_after(UpkeepKind::Trash, Arc::clone(&self.trash) as Arc<dyn Upkeep>, TRASH_INTERVAL);
    }

    /// Hides threads, and reclaims their rows if they are few.
    pub(crate) fn delete(&self, threads: &[ThreadId]) -> Result<Erasure, StoreError> {
        let writer = self.worker.writer();
        let left = match step(writer, EraseStep::Hide(threads.to_vec())) {
            Err(error) if is_full(&error) => {
                // An emptied log has room for a few pages; if it cannot be emptied, its rest may have.
                _ = writer.checkpoint_wal();
                step(writer, EraseStep::HideAlone(threads.to_vec())).map_err(|_| full(error))?
            }
            // Rows that cannot be reclaimed, perhaps those of another deleted thread, do not keep these from being
            // hidden.
            Err(StoreError::Corrupt { .. }) => step(writer, EraseStep::HideAlone(threads.to_vec()))?,
            left => left?,
        };
        self.reclaim_some(left)
    }

    /// Takes namespaces out of their thread, and erases them.
    pub(crate) fn remove(&self, removal: NamespaceRemoval) -> Result<Pruned, StoreError> {
        let pruned = Arc::clone(&removal.pruned);
        let left = step(self.worker.writer(), EraseStep::Detach(removal))?;
        // The bytes may go later.
        let _: Erasure = self.reclaim_some(left)?;
        let pruned = *pruned.lock();
        Ok(pruned)
    }

    /// Reclaims rows of threads that were hidden, if they are few. From here on the threads are deleted: an error only
    /// delays the rest.
    fn reclaim_some(&self, left: Tombstones) -> Result<Erasure, StoreError> {
        let erasure = advance(self.worker.writer(), left.clone(), RECLAIM_SLICES, Duration::ZERO);
        let erasure = erasure.unwrap_or(Erasure::ErasePending { threads: left.len() as u64 });
        if erasure != Erasure::Erased {
            self.wake();
        }
        Ok(erasure)
    }

    /// Reclaims until no deleted thread is left, or a reader holds the log for longer than a short read takes, as the
    /// background does when it looks at the trash.
    pub(crate) fn reclaim(&self) -> Result<Erasure, StoreError> {
        let writer = self.worker.writer();
        let mut erasure = advance(writer, step(writer, EraseStep::Reclaim)?, usize::MAX, RECLAIM_INTERVAL)?;
        let mut waited = Duration::ZERO;
        while erasure != Erasure::Erased && waited < RECLAIM_RETRY {
            std::thread::sleep(RECLAIM_INTERVAL);
            waited += RECLAIM_INTERVAL;
            erasure = advance(writer, step(writer, EraseStep::Reclaim)?, usize::MAX, RECLAIM_INTERVAL)?;
        }
        Ok(erasure)
    }

    /// Lets the background reclaim the rest.
    pub(crate) fn wake(&self) {
        self.worker.wake(UpkeepKind::Reclaim, Arc::new(ReclaimUpkeep));
    }
}

/// Makes a step. Returns the tombstones after it.
fn step(writer: &SqliteWriter, step: EraseStep) -> Result<Tombstones, StoreError> {
    let job = EraseJob { step, left: Arc::default() };
    writer.commit(JobRef::Erase(&job))?;
    let left = std::mem::take(&mut *job.left.lock());
    Ok(left)
}

/// Reclaims at most `slices` slices, with a pause before each, then empties the log if no rows are left.
fn advance(writer: &SqliteWriter, mut left: Tombstones, slices: usize, pause: Duration) -> Result<Erasure, StoreError> {
    for _ in 0..slices {
        if left.stored.is_empty() {
            break;
        }
        // A process that waits for the lock finds it free.
        std::thread::sleep(pause);
        left = step(writer, EraseStep::Reclaim)?;
    }
    if left.stored.is_empty() && !left.logged.is_empty() {
        // The log still holds the pages as they were.
        match writer.checkpoint_wal() {
            Ok(()) => left = step(writer, EraseStep::Forget(left.logged))?,
            Err(StoreError::Busy { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(match left.len() as u64 {
        0 => Erasure::Erased,
        threads => Erasure::ErasePending { threads },
    })
}

/// Reclaims the rows of deleted threads in the background, a slice in each step.
struct ReclaimUpkeep;

impl Upkeep for ReclaimUpkeep {
    fn step(&self, writer: &SqliteWriter, _worker: &Background) -> Result<Option<Duration>, StoreError> {
        let left = step(writer, EraseStep::Reclaim)?;
        let rows_are_left = !left.stored.is_empty();
        Ok(match (advance(writer, left, 0, Duration::ZERO)?, rows_are_left) {
            (Erasure::Erased, _) => None,
            (_, true) => Some(RECLAIM_INTERVAL),
            (_, false) => Some(RECLAIM_RETRY),
        })
    }
}

/// Empties the trash in the background. Each step reads the operations since the one before it, also those of other
/// processes, and deletes the threads that are due.
struct TrashUpkeep {
    clock: Arc<dyn Clock>,
    pool: Weak<ReaderPool>,
    schedule: Mutex<TrashSchedule>,
}

/// The threads in the trash, in the order in which their time there ends.
#[derive(Default)]
struct TrashSchedule {
    /// The newest operation that was read; `None` if none was.
    read: Option<i64>,
    ends: HashMap<ThreadId, Timestamp>,
    order: BTreeSet<(Timestamp, ThreadId)>,
}

impl TrashSchedule {
    /// Reads what operations changed since the last call.
    fn read(&mut self, view: ReadView<'_>) -> Res<()> {
        let newest = view.newest_operation()?;
        let changed = match self.read {
            Some(read) if newest <= read => return Ok(()),
            Some(read) => view.trash_since(read)?,
            None => view.trash()?.into_iter().map(|(thread, until)| (thread, Some(until))).collect(),
        };
        changed.into_iter().for_each(|(thread, until)| self.set(thread, until));
        self.read = Some(newest);
        Ok(())
    }

    fn set(&mut self, thread: ThreadId, until: Option<Timestamp>) {
        if let Some(before) = self.ends.remove(&thread) {
            _ = self.order.remove(&(before, thread.clone()));
        }
        if let Some(until) = until {
            _ = self.ends.insert(thread.clone(), until);
            _ = self.order.insert((until, thread));
        }
        debug_assert_eq!(self.ends.len(), self.order.len(), "a thread has one end");
    }

    fn due(&self, now: Timestamp) -> Vec<ThreadId> {
        self.order.iter().take_while(|(until, _)| *until <= now).map(|(_, thread)| thread.clone()).collect()
    }

    /// Returns the pause until the next thread is due. The time of day may be set, other processes put threads into the
    /// trash, and a thread from which others were forked waits for their deletion, so it is bounded.
    fn pause(&self, now: Timestamp) -> Duration {
        let next = self.order.iter().map(|(until, _)| until.as_micros().saturating_sub(now.as_micros()));
        let next = next.map(u64::try_from).find_map(|micros| micros.ok().filter(|micros| *micros > 0));
        next.map_or(TRASH_INTERVAL, |micros| Duration::from_micros(micros).min(TRASH_INTERVAL))
    }
}

impl TrashUpkeep {
    /// Returns whether a thread was deleted of which rows are left, and the pause before the next step.
    fn empty(&self, pool: &ReaderPool, writer: &SqliteWriter) -> Result<(bool, Duration), StoreError> {
        let now = self.clock.now();
        let mut schedule = self.schedule.lock();
        let due = pool.read(|view| {
            schedule.read(view)?;
            deletable(schedule.due(now), DELETED_THREADS_MAX, |thread| view.forks(thread))
        })?;
        if due.is_empty() {
            return Ok((false, schedule.pause(now)));
        }
        let left = step(writer, EraseStep::HideTrash(now, Some(due.clone())))?;
        let is_full = due.len() == DELETED_THREADS_MAX;
        pool.read(|view| {
            due.into_iter().try_for_each(|thread| {
                let until = view.trashed(&thread)?;
                schedule.set(thread, until);
                Ok(())
            })
        })?;
        Ok((left.len() > 0, if is_full { RECLAIM_INTERVAL } else { schedule.pause(now) }))
    }
}

impl Upkeep for TrashUpkeep {
    fn step(&self, writer: &SqliteWriter, worker: &Background) -> Result<Option<Duration>, StoreError> {
        let Some(pool) = self.pool.upgrade() else { return Ok(None) };
        match self.empty(&pool, writer) {
            // A check reports the damage, and nothing is deleted meanwhile.
            Err(StoreError::Corrupt { .. }) => {
                *self.schedule.lock() = TrashSchedule::default();
                Ok(Some(TRASH_INTERVAL))
            }
            Err(error) => Err(error),
            Ok((is_left, pause)) => {
                if is_left {
                    worker.wake(UpkeepKind::Reclaim, Arc::new(ReclaimUpkeep));
                }
                Ok(Some(pause))
            }
        }
    }
}

/// Returns the error of a deletion for which the disk has no room.
fn full(error: StoreError) -> StoreError {
    let reason = "the disk is full: a deletion first needs about 64 KiB for the log beside the file (`-wal`); free that \
                  much on its file system, or end the reads that hold the log, and delete again";
    StoreError::Write { reason: reason.into(), source: Some(Box::new(error)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{CheckpointId, Namespace};
    use crate::store::batch::{Batch, NewCheckpoint};
    use crate::store::log::{Log, LogExt};
    use crate::store::operation::{
        NewOperation, OperationChange, OperationField, OperationKind, OperationValue, TRASHED,
    };
    use crate::store::sqlite::SqliteBackend;
    use crate::store::sqlite::tests::until;
    use crate::store::{OpenOptions, Source};

    /// Puts a thread into the trash until a timestamp, or takes it out.
    fn trash(store: &SqliteBackend, thread: &ThreadId, before: Option<&str>, until: Option<&str>) {
        let mut operation = NewOperation::new(OperationKind::Facts, Timestamp::from_micros(1));
        let text = |until: Option<&str>| until.map(|until| OperationValue::Text(until.into()));
        let field = OperationField::Fact(TRASHED.to_owned());
        let change = OperationChange::new(thread.clone(), Namespace::root(), field, text(before), text(until));
        operation.changes.push(change);
        store.operate(&operation).unwrap();
    }

    #[test]
    fn a_step_empties_the_trash_of_another_handle() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.db");
        let open = |micros: i64| {
            SqliteBackend::open(&path, &OpenOptions::new().clock(Timestamp::from_micros(micros))).unwrap()
        };
        // For the clock of the other handle no thread is due.
        let (own, other) = (open(1_000), open(0));
        let threads = ["due", "restored", "later"].map(|name| ThreadId::new(name).unwrap());
        for thread in &threads {
            let mut batch = Batch::new(thread.clone(), Namespace::root(), None);
            let id = CheckpointId::first_at(Timestamp::from_micros(1));
            batch.checkpoints.push(NewCheckpoint::new(id, None, 0, Source::Update, Timestamp::from_micros(1)));
            other.commit(&batch).unwrap();
        }
        let eraser = own.eraser.as_ref().unwrap();
        let step = || eraser.trash.empty(&own.pool, eraser.worker.writer()).unwrap().1;
        assert_eq!(step(), TRASH_INTERVAL, "it looks again, although the trash is empty");
        for (thread, until) in threads.iter().zip(["500", "600", "5000"]) {
            trash(&other, thread, None, Some(until));
        }
        trash(&other, &threads[1], Some("600"), None);
        assert_eq!(step(), Duration::from_micros(4_000), "the pause ends with the period of the next thread");
        let heads = threads.each_ref().map(|thread| own.head_id(thread, &Namespace::root()).unwrap().is_some());
        assert_eq!(heads, [false, true, true]);
        assert_eq!(eraser.trash.schedule.lock().order.len(), 1, "a step holds the threads that are in the trash");
        assert_eq!(own.check().unwrap().problems, []);
    }

    #[test]
    fn a_thread_that_is_due_and_stays_is_looked_at_again_after_the_interval() {
        let now = Timestamp::from_micros(500);
        let mut schedule = TrashSchedule::default();
        assert_eq!(schedule.pause(now), TRASH_INTERVAL);
        for (name, until) in [("forked", 500), ("long ago", 3)] {
            schedule.set(ThreadId::new(name).unwrap(), Some(Timestamp::from_micros(until)));
        }
        assert_eq!(schedule.pause(now), TRASH_INTERVAL, "one that is due is passed over");
        schedule.set(ThreadId::new("soon").unwrap(), Some(Timestamp::from_micros(501)));
        assert_eq!(schedule.pause(now), Duration::from_micros(1));
        schedule.set(ThreadId::new("soon").unwrap(), None);
        assert_eq!(schedule.pause(now), TRASH_INTERVAL);
    }

    #[test]
    fn a_step_that_deletes_a_thread_tells_that_rows_are_left() {
        let folder = tempfile::tempdir().unwrap();
        let options = OpenOptions::new().clock(Timestamp::from_micros(0));
        let path = folder.path().join("x.db");
        let store = SqliteBackend::open(&path, &options).unwrap();
        let thread = ThreadId::new("due").unwrap();
        let mut batch = Batch::new(thread.clone(), Namespace::root(), None);
        let id = CheckpointId::first_at(Timestamp::from_micros(1));
        batch.checkpoints.push(NewCheckpoint::new(id, None, 0, Source::Update, Timestamp::from_micros(1)));
        store.commit(&batch).unwrap();
        trash(&store, &thread, None, Some("500"));
        let eraser = store.eraser.as_ref().unwrap();
        // A clock at which the thread is due, and a schedule of its own.
        let clock: Arc<dyn Clock> = Arc::new(Timestamp::from_micros(700));
        let upkeep = TrashUpkeep { clock, pool: Arc::downgrade(&store.pool), schedule: Mutex::default() };
        let empty = || upkeep.empty(&store.pool, eraser.worker.writer()).unwrap();
        assert_eq!(empty(), (true, TRASH_INTERVAL));
        assert_eq!(empty(), (false, TRASH_INTERVAL));

        // The rows go at once and then the log, for which a reader is waited for longer.
        let step = || ReclaimUpkeep.step(eraser.worker.writer(), &eraser.worker).unwrap();
        let reader = rusqlite::Connection::open(&path).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM namespace").unwrap();
        assert_eq!(step(), Some(RECLAIM_RETRY));
        drop(reader);
        // The background of the store may be at work on the log.
        until("the log is emptied", || step().is_none());
    }

    #[test]
    fn a_step_that_leaves_rows_is_followed_by_another_one_soon() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteBackend::open(&folder.path().join("x.db"), &OpenOptions::new()).unwrap();
        let thread = ThreadId::new("large").unwrap();
        let mut head = None;
        for part in 0..2 {
            let mut batch = Batch::new(thread.clone(), Namespace::root(), head);
            for n in 1..=250 {
                let at = Timestamp::from_micros(1);
                let id = CheckpointId::first_at(Timestamp::from_micros((part * 250 + n) * 10));
                let parent = head.map(crate::store::batch::Parent::Local);
                batch.checkpoints.push(NewCheckpoint::new(id, parent, 0, Source::Update, at));
                head = Some(id);
            }
            store.commit(&batch).unwrap();
        }
        let eraser = store.eraser.as_ref().unwrap();
        super::step(eraser.worker.writer(), EraseStep::HideAlone(vec![thread])).unwrap();
        let step = || ReclaimUpkeep.step(eraser.worker.writer(), &eraser.worker).unwrap();
        assert_eq!([step(), step()], [Some(RECLAIM_INTERVAL), None]);
    }
}
