//! The writes that a copy holds in memory at once: those of a page, which ends at a number of bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annals::base::{Namespace, Payload, RunId, TaskId, ThreadId, WriteValue};
use annals::history::CopyOptions;
use annals::prelude::*;
use annals::store::batch::{Batch, NewCheckpoint, NewWrite, NewWrites, Parent};
use annals::store::log::{CommitHandle, Layer, Log, LogExt};
use annals::store::record::{CheckpointRef, TaskKind, TaskRecord, WriteRecord};
use annals::store::{MemoryBackend, OpenOptions, Source, StoreError};

const CHECKPOINTS: usize = 64;
const WRITE_BYTES: usize = 1 << 20;
/// The bytes at which a page of writes ends, and those at which a copy commits.
const BOUND: usize = 8 << 20;

/// The bytes of writes that were read and not yet passed on.
#[derive(Debug, Default)]
struct HeldBytes {
    now: AtomicUsize,
    most: AtomicUsize,
    all: AtomicUsize,
}

impl HeldBytes {
    fn read(&self, values: impl Iterator<Item = usize>) {
        let bytes: usize = values.sum();
        self.all.fetch_add(bytes, Ordering::Relaxed);
        self.most.fetch_max(self.now.fetch_add(bytes, Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }

    fn pass_on(&self, batch: &Batch) {
        let writes = batch.parts().flat_map(|part| &part.writes).flat_map(|of| &of.writes);
        let bytes = writes.flat_map(|write| write.value.payloads()).map(Payload::len).sum();
        self.now.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Asserts that everything was read once and passed on, and that at most so many bytes were held.
    fn assert_most(&self, bytes: usize) {
        let [now, most, all] = [&self.now, &self.most, &self.all].map(|of| of.load(Ordering::Relaxed));
        assert_eq!((now, all), (0, CHECKPOINTS * WRITE_BYTES));
        assert!(most <= bytes, "{most} bytes of writes were held at once, above {bytes}");
    }
}

/// A source that counts the writes it returns.
#[derive(Debug)]
struct CountedSource(Arc<dyn Log>, Arc<HeldBytes>);

impl Layer for CountedSource {
    fn below(&self) -> &dyn Log {
        &*self.0
    }

    fn writes_of(&self, at: &[&CheckpointRef], bytes: usize) -> std::result::Result<Vec<Vec<WriteRecord>>, StoreError> {
        let found = self.0.writes_of(at, bytes)?;
        self.1.read(found.iter().flatten().flat_map(|write| write.value.payloads()).map(Payload::len));
        Ok(found)
    }
}

/// A target that counts the writes it gets.
#[derive(Debug)]
struct CountedTarget(Arc<dyn Log>, Arc<HeldBytes>);

impl Layer for CountedTarget {
    fn below(&self) -> &dyn Log {
        &*self.0
    }

    fn submit(&self, batch: Batch) -> CommitHandle {
        self.1.pass_on(&batch);
        self.0.submit(batch)
    }
}

/// Returns a log with a thread in which a task of each checkpoint has written 1 MiB.
fn filled(thread: &ThreadId) -> Arc<dyn Log> {
    let log: Arc<dyn Log> = Arc::new(MemoryBackend::new());
    let store = Store::with_backend(Arc::clone(&log), OpenOptions::new());
    let (space, mut head) = (Namespace::root(), None);
    for n in 0..CHECKPOINTS {
        let (id, task) = (store.mint_checkpoint(n as i64, head.as_ref()), TaskId::from_bytes([n as u8; 16]));
        let parent = head.map(Parent::Local);
        let mut new = NewCheckpoint::new(id, parent, n as i64, Source::Loop, store.now());
        (new.run, new.tasks) =
            (Some(RunId::from_bytes([1; 16])), vec![TaskRecord::new(task, "node", TaskKind::Push { index: 0 })]);
        let mut batch = Batch::new(thread.clone(), space.clone(), head);
        batch.checkpoints.push(new);
        store.commit(&batch).unwrap();
        let value = WriteValue::One(Payload::new(vec![n as u8; WRITE_BYTES]));
        let mut batch = Batch::new(thread.clone(), space.clone(), Some(id));
        batch.writes.push(NewWrites::new(id, task, "a").with(vec![NewWrite::new(0, "blob", value)]));
        store.commit(&batch).unwrap();
        head = Some(id);
    }
    log
}

#[test]
fn writes_of_few_checkpoints_are_held_at_once() {
    let thread = ThreadId::new("t").unwrap();
    let log = filled(&thread);

    let held = Arc::new(HeldBytes::default());
    let source = CountedSource(Arc::clone(&log), Arc::clone(&held));
    let visit = &mut |batch: Batch| {
        held.pass_on(&batch);
        Ok(())
    };
    source.batches(&thread, visit).unwrap();
    held.assert_most(BOUND + WRITE_BYTES);

    let held = Arc::new(HeldBytes::default());
    let source = Store::with_backend(Arc::new(CountedSource(log, Arc::clone(&held))), OpenOptions::new());
    let target = CountedTarget(Arc::new(MemoryBackend::new()), Arc::clone(&held));
    let target = Store::with_backend(Arc::new(target), OpenOptions::new());
    let report = source.copy_to(&target, CopyOptions::new()).unwrap();
    assert_eq!((report.refused.len(), report.threads[0].checkpoints), (0, CHECKPOINTS as u64));
    // A page is read while a commit is gathered.
    held.assert_most(2 * (BOUND + WRITE_BYTES));
}
