//! The writer role: its counts, its groups, and the callers and threads that it is given to.

use super::*;
use crate::base::Timestamp;
use crate::store::StoreError;
use crate::store::batch::Batch;
use crate::store::log::{Log, LogExt};
use crate::store::sqlite::SqliteBackend;
use crate::store::sqlite::tests::{Bench, checkpoint, options, raw, thread};

fn writer(bench: &Bench) -> &SqliteWriter {
    bench.store.writer.as_ref().unwrap()
}

/// Returns a batch that begins a thread.
fn first(bench: &mut Bench, name: &str) -> Batch {
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, None);
    let mut batch = Batch::new(thread(name), Namespace::root(), None);
    batch.checkpoints.push(checkpoint(id));
    batch
}

#[test]
fn the_counts_are_those_of_what_was_written() {
    let mut bench = Bench::new();
    let begun = writer(&bench).stats();
    let batch = first(&mut bench, "a");
    bench.store.commit(&batch).unwrap();
    for name in ["b", "c"] {
        let batch = first(&mut bench, name);
        bench.store.commit(&batch).unwrap();
    }
    let written = writer(&bench).stats();
    assert_eq!((written.commits - begun.commits, written.transactions - begun.transactions), (3, 3));
    assert_eq!(written.last_group, 1);
    // A refused batch counts nothing.
    let again = first(&mut bench, "a");
    assert!(matches!(bench.store.commit(&again), Err(StoreError::Conflict { .. })));
    assert_eq!(writer(&bench).stats(), written);
    for _ in 0..2 {
        bench.store.transact(&mut |_| Ok(None)).unwrap();
    }
    let transacted = writer(&bench).stats();
    assert_eq!((transacted.commits, transacted.transactions), (written.commits + 2, written.transactions + 2));
    assert_eq!(transacted.last_group, 1);
    let refused = bench.store.transact(&mut |_| Err(StoreError::ReadOnly));
    assert!(matches!(refused, Err(StoreError::ReadOnly)));
    assert_eq!(writer(&bench).stats(), transacted);
}

#[test]
fn another_thread_submits_while_a_transaction_runs() {
    let mut bench = Bench::new();
    let batch = first(&mut bench, "a");
    let mut submitted = None;
    let store = &bench.store;
    store
        .transact(&mut |_| {
            let batch = batch.clone();
            submitted = std::thread::scope(|scope| scope.spawn(move || store.submit(batch)).join().ok());
            Ok(None)
        })
        .unwrap();
    submitted.unwrap().wait().unwrap();
    assert_eq!(store.threads(None, 9).unwrap().len(), 1);
}

#[test]
fn the_threads_of_a_writer_end_with_it_and_its_connection_is_closed() {
    let mut bench = Bench::new();
    let batch = first(&mut bench, "a");
    bench.store.submit(batch).wait().unwrap();
    writer(&bench).wal.copy_soon();
    let shared = Arc::downgrade(&writer(&bench).shared);
    let core = Arc::downgrade(&writer(&bench).shared.core);
    let Bench { folder: _folder, store, .. } = bench;
    drop(store);
    assert!(shared.upgrade().is_none(), "the background thread has ended");
    assert!(core.upgrade().is_none(), "the thread of the WAL has ended");
}

/// Lets so many callers wait for the outcome of a job, as if another one had the role.
fn queue(shared: &WriterShared, batch: &Batch, count: usize) -> Vec<Arc<Slot>> {
    let slots: Vec<Arc<Slot>> = std::iter::repeat_with(Arc::default).take(count).collect();
    let mut queue = shared.queue.lock();
    queue.led = true;
    for slot in &slots {
        let end = WaitingEnd::Caller(Arc::clone(slot));
        queue.waiting.push_back(Waiting { job: JobRef::Log(batch).to_job(), end, waits: 0 });
    }
    drop(queue);
    slots
}

/// Returns how many of the first callers were told their outcome, all of them the same, and whether the next one
/// was given the role.
fn told(slots: &[Arc<Slot>], succeeded: bool) -> (usize, bool) {
    let mut news = slots.iter().map(|slot| slot.state.lock().news.take());
    let mut count = 0;
    loop {
        match news.next().flatten() {
            Some(News::Done(outcome)) => assert_eq!(outcome.is_ok(), succeeded, "{count}: {outcome:?}"),
            Some(News::Lead) => return (count, true),
            Some(News::LockWait) | None => return (count, false),
        }
        count += 1;
    }
}

#[test]
fn a_leader_writes_a_few_groups_and_gives_the_role_to_the_next_caller() {
    let mut bench = Bench::new();
    let batch = first(&mut bench, "a");
    let writer = writer(&bench);
    let slots = queue(&writer.shared, &batch, LEADER_GROUPS_MAX * GROUP_BATCHES_MAX + 2);
    assert!(writer.shared.lead(None, &writer.wal).is_none());
    assert_eq!(told(&slots, true), (LEADER_GROUPS_MAX * GROUP_BATCHES_MAX, true));
    assert!(writer.shared.queue.lock().led);
    assert!(writer.shared.lead(None, &writer.wal).is_none());
    assert_eq!(told(&slots[LEADER_GROUPS_MAX * GROUP_BATCHES_MAX..], true), (2, false));
    assert!(!writer.shared.queue.lock().led, "nobody waits");
}

#[test]
fn a_group_has_a_limit_with_the_job_of_its_leader() {
    let mut bench = Bench::new();
    let batch = first(&mut bench, "a");
    let writer = writer(&bench);
    let slots = queue(&writer.shared, &batch, GROUP_BATCHES_MAX + 2);
    let led = writer.shared.lead_once(Some(JobRef::Log(&batch)), &writer.wal);
    assert!(matches!(led, LedGroup { own: Some(OwnEnd::Done(Ok(()))), closed: None, has_begun: true, .. }), "{led:?}");
    assert_eq!((led.told, writer.stats().last_group), (GROUP_BATCHES_MAX - 1, GROUP_BATCHES_MAX as u64));
    assert_eq!(told(&slots, true), (GROUP_BATCHES_MAX - 1, false));
    let led = writer.shared.lead_once(None, &writer.wal);
    assert!(led.own.is_none() && led.told == 3, "{led:?}");
}

#[test]
fn a_leader_that_was_refused_waits_once_and_gives_the_role_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.db");
    let options = options().busy_timeout_ms(5);
    let store = SqliteBackend::open(&path, &options).unwrap();
    let mut bench = Bench { folder, store, ids: crate::base::IdSource::from_seed(7) };
    let batch = first(&mut bench, "a");
    let mut other = raw(&path);
    let lock = other.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).unwrap();
    let writer = writer(&bench);
    let slots = queue(&writer.shared, &batch, GROUP_BATCHES_MAX + 2);
    assert!(writer.shared.lead(None, &writer.wal).is_none());
    assert_eq!(told(&slots, false), (GROUP_BATCHES_MAX, true));
    lock.rollback().unwrap();
    assert!(writer.shared.lead(None, &writer.wal).is_none());
    assert_eq!(told(&slots[GROUP_BATCHES_MAX..], true), (2, false));
}

#[test]
fn all_who_ask_get_the_signal_of_one_writer() {
    let bench = Bench::new();
    assert!(Arc::ptr_eq(&writer(&bench).signal(), &writer(&bench).signal()));
}

#[test]
fn a_writer_that_has_written_lends_its_connection_and_knows_heads() {
    let mut bench = Bench::new();
    assert!(writer(&bench).read_if_idle(|_| ()).is_none(), "it has written nothing yet");
    let batch = first(&mut bench, "a");
    bench.store.commit(&batch).unwrap();
    assert_eq!(writer(&bench).read_if_idle(|conn| conn.is_autocommit()), Some(true));
    let head = writer(&bench).bare_head(&thread("a"), &Namespace::root());
    assert_eq!(head.map(|head| head.checkpoint), batch.checkpoints.last().map(|last| last.id));
    let held = writer(&bench).shared.core.lock();
    assert!(writer(&bench).read_if_idle(|_| ()).is_none(), "another thread uses it");
    drop(held);
}
