//! One chat superstep through `Store::commit`, beside the same rows written by hand.

use std::path::Path;

use annals::base::{CheckpointId, Clock, IdSource, Namespace, RunId, SystemClock, TaskId, ThreadId};
use annals::store::Synchronous;
use annals::store::batch::{
    Batch, Change, ChangeValue, Data, ItemChange, ItemIndex, ItemOp, NewCheckpoint, NewWrite, NewWrites, Parent,
    Payload, Seen, WriteRef, WriteValue,
};
use annals::store::record::{Source, TaskKind, TaskRecord};

use crate::disk::{self, Fsync, same};
use crate::figures::FigureReport;
use crate::raw::{self, OneRow, Raw, Template};
use crate::stats::{Side, best, interleave, median, ratio, text, timed};
use crate::{Bench, Result};

/// Bytes of the text of a message.
pub(crate) const TEXT_BYTES: usize = 500;
/// The node whose supersteps are written.
const NODE: &str = "answer";
/// The channel that makes it due.
const TRIGGER: &str = "branch:to:answer";

/// A checkpoint with one task due, on which the next superstep builds.
#[derive(Clone, Debug)]
pub(crate) struct ChainLink {
    pub(crate) id: CheckpointId,
    task: TaskRecord,
    step: i64,
    version: u64,
    /// Messages so far.
    pub(crate) messages: u64,
}

impl ChainLink {
    /// Returns the same state and tasks under the id of a fork of it.
    pub(crate) fn forked_as(&self, id: CheckpointId) -> Self {
        Self { id, step: self.step + 1, ..self.clone() }
    }
}

/// Makes the batches of a thread: each superstep adds one message.
pub(crate) struct Chain {
    thread: ThreadId,
    ids: IdSource,
    /// The newest checkpoint.
    pub(crate) head: Option<CheckpointId>,
    /// All checkpoints made.
    pub(crate) links: Vec<ChainLink>,
}

impl Chain {
    /// Starts a thread without checkpoints.
    pub(crate) fn new(thread: &str, seed: u64) -> Result<Self> {
        Ok(Self { thread: ThreadId::new(thread)?, ids: IdSource::from_seed(seed), head: None, links: Vec::new() })
    }

    /// Returns the next batch: the first checkpoint, or a superstep on the newest.
    pub(crate) fn next(&mut self) -> Batch {
        let parent = self.links.last().cloned();
        let (batch, link) = self.on(parent.as_ref());
        self.links.push(link);
        batch
    }

    /// Returns the next so many batches.
    pub(crate) fn take(&mut self, count: usize) -> Vec<Batch> {
        (0..count).map(|_| self.next()).collect()
    }

    /// Returns the batch of a superstep on `parent`, which becomes the newest checkpoint, and the link to that
    /// checkpoint.
    pub(crate) fn on(&mut self, parent: Option<&ChainLink>) -> (Batch, ChainLink) {
        let step = parent.map_or(-1, |parent| parent.step + 1);
        let id = self.ids.checkpoint(SystemClock.now(), step, self.head.as_ref());
        let kind = TaskKind::Pull { triggers: vec![TRIGGER.into()] };
        let task = TaskRecord::new(TaskId::from_bytes(*self.ids.uuid_v4().as_bytes()), NODE, kind);
        let source = if parent.is_some() { Source::Loop } else { Source::Input };
        let local = parent.map(|parent| Parent::Local(parent.id));
        let mut checkpoint = NewCheckpoint::new(id, local, step, source, SystemClock.now());
        checkpoint.run = Some(RunId::from_bytes([7; 16]));
        checkpoint.tasks = vec![task.clone()];
        if let Some(parent) = parent {
            self.superstep(&mut checkpoint, parent);
        }
        let mut batch = Batch::new(self.thread.clone(), Namespace::root(), self.head);
        batch.checkpoints.push(checkpoint);
        self.head = Some(id);
        let messages = parent.map_or(0, |parent| parent.messages + 1);
        (batch, ChainLink { id, task, step, version: parent.map_or(1, |parent| parent.version + 1), messages })
    }

    /// The task of the parent wrote one message, which the list takes over; its trigger is emptied and seen.
    fn superstep(&mut self, checkpoint: &mut NewCheckpoint, parent: &ChainLink) {
        let (version, slot) = (parent.version + 1, parent.messages);
        let mut index = ItemIndex::default();
        index.id = Some(self.ids.uuid_v4().to_string().into());
        index.kind = Some("ai".into());
        index.text = Some(text(slot, TEXT_BYTES));
        let message = Payload::default().with_index(index);
        let write = NewWrite::new(0, "messages", WriteValue::Items(vec![message]));
        checkpoint.consumed.push(NewWrites::new(parent.id, parent.task.id, parent.task.path()).with(vec![write]));
        let write = WriteRef::new(parent.task.id, 0);
        let put = ItemChange::new(slot, ItemOp::Put(Data::OfWrite(write)), Some(0));
        let change = |channel: &str, value, task| Change::new(channel, version, value).by(task);
        checkpoint.changes.push(change("messages", ChangeValue::Items(vec![put]), Some(0)));
        checkpoint.changes.push(change(TRIGGER, ChangeValue::Empty, None));
        checkpoint.seen.push(Seen::new(NODE, vec![(TRIGGER.into(), parent.version)]));
    }
}

/// Measures the append figures.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let [store, raw, _, fsync] = compare(bench, Synchronous::Full, bench.runs(9, 2), bench.runs(300, 20))?;
    report.set("append_full_ratio", ratio(&raw, &store));
    report.extra("append_full_fsync_us", median(&fsync));
    report.extra("append_full_us", median(&store));
    report.extra("append_full_by_hand_us", median(&raw));
    let [store, raw, one, _] = compare(bench, Synchronous::Normal, bench.runs(9, 2), bench.runs(2_000, 100))?;
    report.set("append_normal_ratio", ratio(&raw, &store));
    report.set("append_normal_vs_one_row", ratio(&one, &store));
    report.extra("append_normal_best_ratio", best(&raw) / best(&store));
    report.extra("append_normal_us", median(&store));
    report.extra("append_normal_by_hand_us", median(&raw));
    report.extra("append_normal_one_row_us", median(&one));
    Ok(())
}

/// Writes the same supersteps on all sides, and returns the microseconds per superstep of each: through the store, by
/// hand, one row; and of an fsync meanwhile.
fn compare(bench: &Bench, synchronous: Synchronous, rounds: usize, supersteps: usize) -> Result<[Vec<f64>; 4]> {
    let (path, raw_path, one_path) = (bench.file("store.db")?, bench.file("raw.db")?, bench.file("one-row.db")?);
    let opened = disk::open(&path, synchronous)?;
    let mut chain = Chain::new("chat", 1)?;
    opened.store.commit(&chain.next())?;
    let template = template_beside(&path)?;
    let mut raw = Raw::open(&raw_path, synchronous, template)?;
    let mut one = OneRow::open(&one_path, synchronous)?;
    let mut fsync = Fsync::new(bench, "fsync")?;
    let mut sides: [Side<'_>; 4] = [
        Box::new(|| {
            let batches = chain.take(supersteps);
            per(supersteps, || Ok(batches.iter().try_for_each(|batch| opened.store.commit(batch))?))
        }),
        Box::new(|| {
            let rows = raw.prepare(supersteps);
            per(supersteps, || rows.iter().try_for_each(|row| raw.superstep(row)))
        }),
        Box::new(|| {
            let rows: Vec<String> = (0..supersteps as u64).map(|seed| text(seed, raw::ONE_ROW_BYTES)).collect();
            per(supersteps, || rows.iter().try_for_each(|row| one.append(row)))
        }),
        Box::new(|| fsync.block(20)),
    ];
    let costs = interleave(rounds, &mut sides)?;
    drop(sides);
    let total = ((rounds + 1) * supersteps) as u64;
    opened.verify(total + 1)?;
    opened.empty_wal()?;
    drop(opened);
    raw.close()?;
    same("rows of the one-row table", one.close()?, total as i64)?;
    equal_work(&path, &raw_path)?;
    <[Vec<f64>; 4]>::try_from(costs).map_err(|_| "four sides have four costs".into())
}

fn per(count: usize, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    Ok(timed(work)?.0 / count as f64)
}

/// Makes a store beside `path` from which the hand-written side learns its rows; long enough to hold an anchor.
pub(crate) fn template_beside(path: &Path) -> Result<Template> {
    let path = path.with_extension("example");
    let opened = disk::open(&path, Synchronous::Normal)?;
    let batches = Chain::new("chat", 1)?.take(80);
    batches.iter().try_for_each(|batch| opened.store.commit(batch))?;
    opened.verify(80)?;
    drop(opened);
    let template = raw::template(&path)?;
    std::fs::remove_file(path)?;
    Ok(template)
}

/// Both files must hold the same number of rows in every table, and about as many bytes.
fn equal_work(store: &Path, raw: &Path) -> Result<()> {
    same("rows written by hand", raw::rows(raw)?, raw::rows(store)?)?;
    let (store, raw) = (std::fs::metadata(store)?.len() as f64, std::fs::metadata(raw)?.len() as f64);
    if (store / raw - 1.0).abs() > 0.03 {
        return Err(format!("the store has {store} bytes, the file written by hand {raw}").into());
    }
    Ok(())
}
