//! The turn: `{"n": i}` in, one node that returns one message of 500 bytes, three checkpoints.

use std::path::{Path, PathBuf};
use std::process::Command;

use annals::history::Thread;
use annals_graph::Durability;
use annals_graph::graph::CompiledGraph;
use annals_graph::prelude::*;

use crate::append::TEXT_BYTES;
use crate::disk::{self, Fsync, OpenedStore, same};
use crate::figures::FigureReport;
use crate::stats::{Side, best, interleave, median, text, timed};
use crate::{Bench, Result, raw_turns};

/// The hidden subcommand of the child whose memory is measured.
pub(crate) const RSS_CHILD: &str = "rss-child";
/// The id of the thread.
pub(crate) const THREAD: &str = "chat";
/// Turns measured at one length.
const MEASURED: usize = 200;
/// Turns that one side runs before the next has its turn.
pub(crate) const BLOCK: usize = 20;

/// The state of the turn.
#[derive(State, Clone, Default)]
pub(crate) struct Chat {
    /// The number of the turn.
    #[channel(last)]
    pub(crate) n: i64,
    /// The conversation.
    #[channel(messages)]
    pub(crate) messages: Messages,
}

/// Makes the graph of the turn.
pub(crate) fn graph() -> Result<CompiledGraph<Chat>> {
    graph_with(|| ())
}

/// Makes the graph of the turn, whose node calls `first` before anything else.
pub(crate) fn graph_with(first: impl Fn() + Send + Sync + 'static) -> Result<CompiledGraph<Chat>> {
    Ok(StateGraph::<Chat>::new()
        .node("answer", move |chat: &Chat, _: &Context| {
            first();
            Ok(Chat::update().messages([Message::ai(text(chat.n.unsigned_abs(), TEXT_BYTES))]))
        })
        .edge(START, "answer")
        .edge("answer", END)
        .compile()?)
}

/// A store with a conversation in it.
pub(crate) struct Talk {
    pub(crate) opened: OpenedStore,
    thread: Thread,
    turns: usize,
    durability: Durability,
}

impl Talk {
    pub(crate) fn open(path: &Path, synchronous: Synchronous, durability: Durability, turns: usize) -> Result<Self> {
        Self::on(disk::open(path, synchronous)?, THREAD, durability, turns)
    }

    /// Makes a conversation in a store that is open.
    pub(crate) fn on(opened: OpenedStore, thread: &str, durability: Durability, turns: usize) -> Result<Self> {
        let thread = opened.store.thread(thread)?;
        Ok(Self { opened, thread, turns, durability })
    }

    /// Runs one turn and drops its outcome; returns the microseconds until `invoke` returned.
    pub(crate) fn turn(&mut self, graph: &CompiledGraph<Chat>) -> Result<f64> {
        let update = Chat::update().n(self.turns as i64);
        let run = graph.run(&self.thread).durability(self.durability);
        let (us, done) = timed(|| Ok(run.invoke(update)?.is_done()))?;
        self.turns += 1;
        if done { Ok(us) } else { Err("a turn did not end".into()) }
    }

    fn turns_to(&mut self, graph: &CompiledGraph<Chat>, turns: usize) -> Result<()> {
        while self.turns < turns {
            self.turn(graph)?;
        }
        Ok(())
    }

    /// Verifies that everything a turn has to leave behind is there.
    fn verify(&self, graph: &CompiledGraph<Chat>) -> Result<()> {
        self.opened.verify(3 * self.turns as u64)?;
        self.verify_state(graph, self.turns)
    }

    /// Verifies that the stored state is the one after so many turns.
    pub(crate) fn verify_state(&self, graph: &CompiledGraph<Chat>, turns: usize) -> Result<()> {
        self.opened.store.clear_head_cache();
        let state = graph.get_state(&self.thread)?.values;
        same("messages", state.messages.len(), turns)?;
        same("n", state.n, turns as i64 - 1)?;
        let texts = state.messages.iter().all(|message| message.text().len() == TEXT_BYTES);
        same("every text has its length", texts, true)
    }
}

/// Makes a store with so many turns, closed.
pub(crate) fn build(path: &Path, turns: usize) -> Result<()> {
    let graph = graph()?;
    let mut talk = Talk::open(path, Synchronous::Normal, Durability::Sync, 0)?;
    talk.turns_to(&graph, turns)?;
    talk.opened.empty_wal()?;
    Ok(())
}

/// Returns the numbers of turns of the short and the long conversation.
pub(crate) fn lengths(bench: &Bench) -> (usize, usize) {
    (bench.runs(1_000, 100), bench.runs(10_000, 400))
}

/// Measures the turn figures.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    const NAMES: [&str; 8] = [
        "bytes_per_turn_1k",
        "bytes_per_turn_10k",
        "turn_us_1k",
        "turn_us_10k",
        "turn_full_us_1k",
        "fsync_us",
        "cold_turn_us_10k",
        "store_open_us",
    ];
    let mut runs: [Vec<f64>; 8] = Default::default();
    for at in 0..bench.runs(5, 1) {
        for (values, value) in runs.iter_mut().zip(run(bench, at == 0)?) {
            values.push(value);
        }
    }
    for (name, values) in NAMES.iter().zip(&runs) {
        if *name == "store_open_us" { report.extra(name, median(values)) } else { report.set(name, median(values)) }
    }
    report.extra("turn_best_us_1k", best(&runs[2]));
    report.extra("cold_turn_best_us_10k", best(&runs[6]));
    // The pair of one run is compared, then the median is taken: the disk changes its mind between runs.
    report.extra("turn_us_10k_over_1k", crate::stats::ratio(&runs[3], &runs[2]));
    let over: Vec<f64> = (0..runs[4].len()).map(|at| (runs[4][at] - runs[2][at]) / runs[5][at]).collect();
    report.extra("turn_full_fsyncs", median(&over));
    raw_turns::measure(bench, report)
}

/// One run: builds the conversations, measures their sizes, lets the warm turns and the fsync take turns, then the
/// cold ones.
fn run(bench: &Bench, verify: bool) -> Result<[f64; 8]> {
    let graph = graph()?;
    let (short, long) = lengths(bench);
    let (long_path, short_path) = (bench.file("long.db")?, bench.file("short.db")?);
    let full_path = bench.file("full.db")?;
    build(&long_path, short)?;
    // Closed: a file that is opened beside SQLite and closed again takes SQLite's own locks with it.
    let bytes_short = std::fs::metadata(&long_path)?.len() as f64 / short as f64;
    std::fs::copy(&long_path, &short_path)?;
    std::fs::copy(&long_path, &full_path)?;
    let mut long_talk = Talk::open(&long_path, Synchronous::Normal, Durability::Sync, short)?;
    long_talk.turns_to(&graph, long)?;
    let bytes_long = long_talk.opened.bytes(&long_path)? as f64 / long as f64;
    let mut short_talk = Talk::open(&short_path, Synchronous::Normal, Durability::Sync, short)?;
    let mut full_talk = Talk::open(&full_path, Synchronous::Full, Durability::Async, short)?;
    let mut fsync = Fsync::new(bench, "fsync")?;
    let mut sides: [Side<'_>; 4] = [
        Box::new(|| block(BLOCK, || short_talk.turn(&graph))),
        Box::new(|| block(BLOCK, || long_talk.turn(&graph))),
        Box::new(|| block(BLOCK, || full_talk.turn(&graph))),
        Box::new(|| fsync.block(BLOCK)),
    ];
    // Blocks of turns whose medians are taken again: over equal blocks about the median of all of them.
    let warm = interleave(MEASURED / BLOCK, &mut sides)?;
    drop(sides);
    if verify {
        for talk in [&short_talk, &long_talk, &full_talk] {
            talk.verify(&graph)?;
        }
    }
    let turns = long_talk.turns;
    drop((long_talk, short_talk, full_talk));
    let (cold, open) = cold(bench, &graph, &long_path, turns)?;
    Ok([bytes_short, bytes_long, median(&warm[0]), median(&warm[1]), median(&warm[2]), median(&warm[3]), cold, open])
}

/// Returns the median of the costs of some turns.
pub(crate) fn block(turns: usize, mut one: impl FnMut() -> Result<f64>) -> Result<f64> {
    Ok(median(&(0..turns).map(|_| one()).collect::<Result<Vec<_>>>()?))
}

/// Returns the microseconds of a turn on a store opened afresh, and of opening it.
fn cold(bench: &Bench, graph: &CompiledGraph<Chat>, path: &Path, mut turns: usize) -> Result<(f64, f64)> {
    let (mut cold, mut open) = (Vec::new(), Vec::new());
    for _ in 0..bench.runs(5, 2) {
        let (us, mut talk) = timed(|| Talk::open(path, Synchronous::Normal, Durability::Sync, turns))?;
        open.push(us);
        cold.push(talk.turn(graph)?);
        turns = talk.turns;
    }
    Ok((median(&cold), median(&open)))
}

/// Measures `peak_rss_mb_10k`: the whole run in a process of its own.
pub(crate) fn rss(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let (_, turns) = lengths(bench);
    let (mut peaks, mut bases) = (Vec::new(), Vec::new());
    for _ in 0..bench.runs(5, 1) {
        let path = bench.file("rss.db")?;
        let output = Command::new(std::env::current_exe()?)
            .arg(RSS_CHILD)
            .arg(&path)
            .arg(turns.to_string())
            .stderr(std::process::Stdio::inherit())
            .output()?;
        let text = String::from_utf8(output.stdout)?;
        let mut numbers = text.split_whitespace().map(str::parse::<f64>);
        let (Some(Ok(base)), Some(Ok(peak)), true) = (numbers.next(), numbers.next(), output.status.success()) else {
            return Err(format!("the child that runs {turns} turns ended with {}: {text:?}", output.status).into());
        };
        bases.push(base);
        peaks.push(peak);
        disk::open(&path, Synchronous::Normal)?.verify(3 * turns as u64)?;
    }
    report.set("peak_rss_mb_10k", median(&peaks));
    report.extra("base_rss_mb", median(&bases));
    Ok(())
}

/// The child: runs the turns and prints the peak of its memory in MB, before and after.
pub(crate) fn rss_child(args: Vec<String>) -> Result<()> {
    let [path, turns] = <[String; 2]>::try_from(args).map_err(|_| "the child takes a path and a number of turns")?;
    let base = peak_mb()?;
    build(&PathBuf::from(path), turns.parse()?)?;
    println!("{base} {}", peak_mb()?);
    Ok(())
}

/// Returns the peak resident memory of this process in MB (10^6 bytes).
fn peak_mb() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM in /proc/self/status")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1_024.0 / 1e6)
}
