//! Puts into maps and appends to texts of three sizes, beside the same writes with a reducer, which stores the value
//! whole.

use std::collections::BTreeMap;

use annals::history::StateThread;
use annals::prelude::*;
use annals::state::{KeyMap, Text};
use annals::store::Synchronous;

use crate::disk::{self, same};
use crate::figures::FigureReport;
use crate::stats::{median, timed};
use crate::{Bench, Result};

/// Entries, or parts, that one commit of the preparation writes.
const BATCH: usize = 1_000;
/// Bytes of a value of a map, and of a part of a text.
const PART_BYTES: usize = 40;

fn merged(mut old: BTreeMap<String, String>, new: BTreeMap<String, String>) -> BTreeMap<String, String> {
    old.extend(new);
    old
}

fn longer(old: String, new: String) -> String {
    old + &new
}

#[derive(State, Clone, Default)]
struct Grown {
    #[channel(map)]
    files: KeyMap<String>,
    #[channel(text)]
    log: Text,
    #[channel(reduce = merged)]
    reduced_files: BTreeMap<String, String>,
    #[channel(reduce = longer)]
    reduced_log: String,
}

fn part(n: usize) -> String {
    format!("{n:>width$}", width = PART_BYTES)
}

/// Measures puts of one key and appends of one part.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let sizes: &[(&str, usize)] = match bench.quick {
        true => &[("1k", 1_000)],
        false => &[("1k", 1_000), ("10k", 10_000), ("100k", 100_000)],
    };
    for &(name, size) in sizes {
        let write = |n: usize| Grown::update().files([(format!("key {}", n % size), part(n))]);
        let build = |from: usize| Grown::update().files((from..from + BATCH).map(|n| (format!("key {n}"), part(n))));
        one(bench, report, &format!("map_put_{{}}_{name}"), size, build, write)?;
        let write = |n: usize| Grown::update().log(part(n));
        let build = |from: usize| (from..from + BATCH).fold(Grown::update(), |update, n| update.log(part(n)));
        one(bench, report, &format!("text_append_{{}}_{name}"), size, build, write)?;
        let entry = |n: usize| (format!("key {}", n % size), part(n));
        let write = |n: usize| Grown::update().reduced_files(BTreeMap::from([entry(n)]));
        let build =
            |from: usize| Grown::update().reduced_files((from..from + BATCH).map(entry).collect::<BTreeMap<_, _>>());
        one(bench, report, &format!("map_reduced_{{}}_{name}"), size, build, write)?;
        let write = |n: usize| Grown::update().reduced_log(part(n));
        let build = |from: usize| Grown::update().reduced_log((from..from + BATCH).map(part).collect::<String>());
        one(bench, report, &format!("text_reduced_{{}}_{name}"), size, build, write)?;
    }
    Ok(())
}

/// Measures one kind of write to a value of one size: microseconds and bytes in the file of a commit, and, of a map,
/// the read of one key.
fn one(
    bench: &Bench,
    report: &mut FigureReport,
    name: &str,
    size: usize,
    build: impl Fn(usize) -> GrownUpdate,
    write: impl Fn(usize) -> GrownUpdate,
) -> Result<()> {
    let path = bench.file("channels.db")?;
    let opened = disk::open(&path, Synchronous::Normal)?;
    let thread = opened.store.thread("t")?;
    let state: StateThread<Grown> = thread.with_state();
    for from in (0..size).step_by(BATCH) {
        state.update(build(from))?;
    }
    let reduced = name.contains("reduced");
    let runs = if reduced { bench.runs(21, 2) } else { bench.runs(400, 10) };
    state.update(write(size))?;
    let (before, mut costs) = (opened.bytes(&path)?, Vec::with_capacity(runs));
    for n in 1..=runs {
        // A step that is coprime to the sizes spreads the keys.
        let update = write(size + n * 7_919);
        costs.push(timed(|| Ok(state.update(update)?))?.0);
    }
    let bytes = (opened.bytes(&path)? - before) as f64 / runs as f64;
    report.set(&name.replace("{}", "us"), median(&costs));
    report.set(&name.replace("{}", "bytes"), bytes);
    if name.starts_with("map_put") {
        let (head, mut reads) = (thread.at("@")?, Vec::new());
        same("entries", head.len("files")?, size as u64)?;
        for n in 0..bench.runs(101, 3) {
            let key = format!("key {}", (n * 7_919) % size);
            let (us, found) = timed(|| Ok(head.entry("files", &key)?))?;
            same("an entry", found.is_some(), true)?;
            reads.push(us);
        }
        report.extra(&name.replace("put_{}", "entry_us"), median(&reads));
    }
    Ok(())
}
