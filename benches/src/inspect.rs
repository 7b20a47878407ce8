//! Questions about a history of 10,000 messages and of 100,000: differences, writers, values over time, and where a
//! text appeared.

use std::path::PathBuf;

use annals::history::{MessageQuery, PrunePolicy, Snapshot, Thread, diff};
use annals::store::Synchronous;
use rusqlite::OptionalExtension;

use crate::disk::{self, same};
use crate::figures::FigureReport;
use crate::stats::{Side, interleave, median, timed};
use crate::turns::{self, THREAD};
use crate::{Bench, Result, raw_state};

/// The item with an id, by hand: without the list that it is in.
const BY_ID: &str =
    "SELECT p.data, p.text FROM payload p WHERE substr(p.item_id, -6) = substr(?1, -6) AND p.item_id = ?1";
/// The first checkpoint that put an item with a text, by hand: each row of the list once, nothing verified.
const FIRST: &str = "SELECT min(i.ordinal) FROM item i JOIN payload p ON p.id = i.value WHERE instr(p.text, ?1) > 0";

/// A join of two views, as a user writes it.
const JOIN: &str =
    "SELECT m.id, m.text, m.node, c.created_at, c.step FROM v_messages m JOIN v_checkpoints c USING (seq)";

/// Measures the figures of inspection.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let (_, turns) = turns::lengths(bench);
    let history = LongHistory::build(bench, turns, "10k")?;
    history.reads(bench, report)?;
    history.by_hand(bench, report)?;
    history.join(bench, report)?;
    history.fresh(bench, report)?;
    prune(bench, report, &history.thread, turns)
}

/// Measures them at ten times the length.
pub(crate) fn measure_long(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let history = LongHistory::build(bench, bench.runs(100_000, 600), "100k")?;
    history.reads(bench, report)?;
    history.by_hand(bench, report)?;
    history.join(bench, report)
}

/// Prunes a copy of the file down to the last 100 checkpoints, with the pauses between the slices.
fn prune(bench: &Bench, report: &mut FigureReport, thread: &Thread, turns: usize) -> Result<()> {
    let (mut whole, mut planned) = (Vec::new(), Vec::new());
    for n in 0..bench.runs(3, 1) {
        let path = bench.file(&format!("pruned-{n}.db"))?;
        thread.store().backup(&path)?;
        let copy = disk::open(&path, Synchronous::Normal)?.store.thread(THREAD)?;
        let (us, plan) = timed(|| Ok(copy.prune_plan(&PrunePolicy::new().keep_last(100))?))?;
        planned.push(us / 1_000.0);
        let (us, pruned) = timed(|| Ok(plan.run()?))?;
        whole.push(us / pruned.checkpoints as f64);
        same("messages after the pruning", copy.at("@")?.len("messages")?, turns as u64)?;
    }
    report.set("prune_us_per_checkpoint", median(&whole));
    report.extra("prune_plan_ms_10k", median(&planned));
    Ok(())
}

/// A message in the middle of the history.
struct Sample {
    id: String,
    /// A part of its text that no other message has.
    needle: String,
    position: usize,
}

impl Sample {
    fn read(head: &Snapshot, turns: usize) -> Result<Self> {
        let position = turns / 2;
        let all = head.find_messages("messages", &MessageQuery::new())?;
        same("messages", all.len(), turns)?;
        let text = all[position].text().into_owned();
        // The words of a text repeat; its number does not.
        let needle = text.chars().take(40).collect::<String>();
        same("messages with the text", all.iter().filter(|message| message.text().contains(&needle)).count(), 1)?;
        Ok(Self { id: all[position].id.clone().ok_or("a message has no id")?, needle, position })
    }
}

/// A thread with a message for each turn, and the end of the names of its figures.
struct LongHistory {
    path: PathBuf,
    thread: Thread,
    sample: Sample,
    turns: usize,
    length: &'static str,
}

impl LongHistory {
    fn build(bench: &Bench, turns: usize, length: &'static str) -> Result<Self> {
        let path = bench.file(&format!("inspect-{length}.db"))?;
        turns::build(&path, turns)?;
        let thread = disk::open(&path, Synchronous::Normal)?.store.thread(THREAD)?;
        let sample = Sample::read(&thread.at("@")?, turns)?;
        Ok(Self { path, thread, sample, turns, length })
    }

    /// Returns the name of a figure at this length.
    fn named(&self, figure: &str) -> String {
        format!("{figure}_{}", self.length)
    }

    fn reads(&self, bench: &Bench, report: &mut FigureReport) -> Result<()> {
        let (thread, sample) = (&self.thread, &self.sample);
        let (head, parent) = (thread.at("@")?, thread.at("~1")?);
        let first = head.point();
        let mut adjacent = || {
            let (us, found) = timed(|| Ok(diff(&parent, &head)?))?;
            same("channels that differ or not", found.channels.len() + found.unchanged, 2)?;
            Ok(us)
        };
        let mut item = || {
            let (us, blame) = timed(|| Ok(head.blame("messages").item(&sample.id)?))?;
            same("a node", blame.and_then(|blame| blame.node).as_deref(), Some("answer"))?;
            Ok(us)
        };
        let mut message = || {
            let (us, found) = timed(|| Ok(head.message("messages", &sample.id)?))?;
            same("a message", found.is_some_and(|message| message.text().contains(&sample.needle)), true)?;
            Ok(us)
        };
        let mut history = || {
            let (us, all) = timed(|| Ok(thread.history()?.take(20).collect::<Result<Vec<_>, _>>()?))?;
            same("a page", (all.len(), all[0].point()), (20, first))?;
            Ok(us)
        };
        let mut title = || {
            let (us, found) = timed(|| Ok(head.evolution("n").take(20).collect::<Result<Vec<_>, _>>()?))?;
            same("versions", found.len(), 20)?;
            Ok(us)
        };
        let mut sides: [Side<'_>; 5] = [
            Box::new(&mut adjacent),
            Box::new(&mut item),
            Box::new(&mut message),
            Box::new(&mut history),
            Box::new(&mut title),
        ];
        let costs = interleave(bench.runs(101, 3), &mut sides)?;
        drop(sides);
        report.set(&self.named("diff_adjacent_us"), median(&costs[0]));
        report.set(&self.named("blame_item_us"), median(&costs[1]));
        report.set(&self.named("message_by_id_us"), median(&costs[2]));
        report.set(&self.named("history_20_us"), median(&costs[3]));
        report.extra(&self.named("evolution_20_us"), median(&costs[4]));
        let mut far = Vec::new();
        for _ in 0..bench.runs(11, 2) {
            let start = thread.at("{step:0}")?;
            far.push(timed(|| Ok(diff(&start, &head)?.channels.len()))?.0);
        }
        report.extra(&self.named("diff_whole_ms"), median(&far) / 1_000.0);
        let mut appearances = Vec::new();
        for _ in 0..bench.runs(11, 2) {
            let (us, found) = timed(|| Ok(head.pickaxe(&sample.needle)?))?;
            same(
                "appearances",
                found.iter().map(|change| change.position).collect(),
                vec![Some(sample.position as u64)],
            )?;
            appearances.push(us / 1_000.0);
        }
        report.set(&self.named("first_appearance_ms"), median(&appearances));
        Ok(())
    }

    /// The same rows by hand, not verified, in the file with its indexes.
    fn by_hand(&self, bench: &Bench, report: &mut FigureReport) -> Result<()> {
        let (conn, sample) = (raw_state::open(&self.path)?, &self.sample);
        let id = uuid(&sample.id)?;
        let (mut by_id, mut first) = (Vec::new(), Vec::new());
        for _ in 0..bench.runs(101, 3) {
            let read =
                || Ok(conn.prepare_cached(BY_ID)?.query_row([&id[..]], |row| row.get::<_, Vec<u8>>(0)).optional()?);
            let (us, found) = timed(read)?;
            same("a payload", found.is_some(), true)?;
            by_id.push(us);
        }
        for _ in 0..bench.runs(11, 2) {
            let read =
                || Ok(conn.prepare_cached(FIRST)?.query_row([&sample.needle], |row| row.get::<_, Option<i64>>(0))?);
            let (us, found) = timed(read)?;
            same("an ordinal", found.is_some(), true)?;
            first.push(us / 1_000.0);
        }
        report.extra(&self.named("message_by_id_by_hand_us"), median(&by_id));
        report.extra(&self.named("first_appearance_by_hand_ms"), median(&first));
        Ok(())
    }

    fn join(&self, bench: &Bench, report: &mut FigureReport) -> Result<()> {
        let (conn, turns) = (raw_state::open(&self.path)?, self.turns);
        let mut joins = Vec::new();
        for _ in 0..bench.runs(11, 2) {
            let read = || {
                let mut statement = conn.prepare(JOIN)?;
                let rows = statement.query_map([], |row| row.get::<_, Option<String>>(2))?;
                Ok(rows.collect::<Result<Vec<_>, _>>()?)
            };
            let (us, nodes) = timed(read)?;
            same("rows", nodes.len(), turns)?;
            same("rows with their node", nodes.iter().filter(|node| node.as_deref() == Some("answer")).count(), turns)?;
            joins.push(us / 1_000.0);
        }
        report.set(&self.named("sql_join_ms"), median(&joins));
        Ok(())
    }

    /// The first questions of a handle that was just opened.
    fn fresh(&self, bench: &Bench, report: &mut FigureReport) -> Result<()> {
        let (path, sample) = (&self.path, &self.sample);
        let (mut adjacent, mut message) = (Vec::new(), Vec::new());
        for _ in 0..bench.runs(11, 2) {
            let thread = disk::open(path, Synchronous::Normal)?.store.thread(THREAD)?;
            let (head, parent) = (thread.at("@")?, thread.at("~1")?);
            adjacent.push(timed(|| Ok(diff(&parent, &head)?))?.0);
            let thread = disk::open(path, Synchronous::Normal)?.store.thread(THREAD)?;
            let head = thread.at("@")?;
            message.push(timed(|| Ok(head.message("messages", &sample.id)?))?.0);
        }
        report.extra(&self.named("diff_adjacent_fresh_us"), median(&adjacent));
        report.extra(&self.named("message_by_id_fresh_us"), median(&message));
        Ok(())
    }
}

/// Returns the bytes of a UUID.
fn uuid(text: &str) -> Result<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let pairs = digits.chunks(2).map(|pair| Ok(u8::from_str_radix(std::str::from_utf8(pair)?, 16)?));
    pairs.collect()
}
