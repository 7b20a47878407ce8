//! The verbs of the command and their results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use annals::base::{Clock as _, SystemClock};
use annals::store::Synchronous;
use serde_json::{Value, json};

use crate::{accidents, controls, cuts, faults, flips, forgeries, kills, makers, races, recoveries, trace, vfs};

const USAGE: &str = "\
annals-sim cuts [N]     cuts the power N times behind operations of random workloads
annals-sim kills [N]    kills and stops processes that share a store
annals-sim makers [N]   N processes (100) make one new file at once, and each stores a thread
annals-sim controls     plants faults that the cuts and the kills must find, each within 1,000
annals-sim faults       makes the n-th call of each kind fail, and every STRIDE-th after it
annals-sim flips        changes every STRIDE-th byte of a store by two masks
annals-sim forgeries [N]  changes rows, the schema and bytes of N files, or writes hostile content, and reads them
annals-sim races [N]    races undo and redo against other moves of the head, in N rounds
annals-sim accidents    removes, replaces, overwrites and cuts files of a store that is closed, in use or was killed
annals-sim recover [N]  damages a store in 40 ways, N times where by chance, and counts what a recovery gives back

--seed N            the seed of the first workload (1)
--jobs N            threads (all cores)
--traces N          cuts: the number of workloads, in place of N / cuts-per-trace
--cuts-per-trace N  cuts, controls (100)
--stride N          faults, flips, recover (1); cuts: after every N-th operation in each mode, in place of random ones
--only NAME         faults: one kind; controls: one control; flips: the pages of one table or index; accidents: a part
                    of the name
--share N           accidents, recover: every N-th case (1)
--worker PROGRAM    accidents: another annals-sim, whose library is judged
--nth N             faults, forgeries: one case
--first N           flips: the first byte (0)
--count N           flips: the number of bytes
--stops N           kills: the number of processes that are stopped with the write lock (one for each 500 kills)
--stop-ms N         kills: the milliseconds for which they are stopped (10,000)
--rounds N          makers: the number of files (4)
--wait-ms N         makers: the milliseconds for which a process waits for the others (5,000)
--ratchet FILE      faults, flips, forgeries: compares known defects with the bounds in `ratchet` of this file of results

The result is one line of JSON. The exit status is 1 if a store was not as it must be.";

/// The arguments.
struct CommandArgs {
    verb: String,
    count: Option<u64>,
    options: BTreeMap<String, String>,
}

impl CommandArgs {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let verb = words.next().ok_or(USAGE)?;
        let (mut count, mut options) = (None, BTreeMap::new());
        while let Some(word) = words.next() {
            match word.strip_prefix("--") {
                Some(name) if USAGE.contains(&format!("\n--{name} ")) => {
                    options.insert(name.to_owned(), words.next().ok_or(format!("--{name} needs a value"))?);
                }
                Some(name) => return Err(format!("--{name} is not an option\n\n{USAGE}")),
                None => count = Some(word.parse().map_err(|_| format!("{word} is not a number\n\n{USAGE}"))?),
            }
        }
        Ok(Self { verb, count, options })
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    fn number(&self, name: &str) -> Result<Option<u64>, String> {
        let parse = |text: &str| text.parse().map_err(|_| format!("--{name} {text} is not a number"));
        self.text(name).map(parse).transpose()
    }

    fn jobs(&self) -> Result<usize, String> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Ok(self.number("jobs")?.map_or(cores, |jobs| jobs as usize))
    }
}

#[allow(clippy::print_stderr)]
/// Runs the command that the arguments name.
pub(crate) fn main() -> ExitCode {
    vfs::install();
    let mut words = std::env::args().skip(1);
    match std::env::args().nth(1).as_deref() {
        Some("writer") => return second_process(&words.skip(1).collect::<Vec<_>>()),
        Some("worker") => {
            let words: Vec<_> = words.skip(1).collect();
            return ExitCode::from(kills::work(&words).map_or(2, |good| u8::from(!good)));
        }
        Some("maker") => {
            return told(makers::work(&words.skip(1).collect::<Vec<_>>(), print).map(|outcome| print(&outcome)));
        }
        Some("forger") => {
            std::panic::set_hook(Box::new(|_| {}));
            return told(forgeries::work(&words.skip(1).collect::<Vec<_>>()));
        }
        Some("racer") => {
            return told(races::work(&words.skip(1).collect::<Vec<_>>()).map(|line| print(&line)));
        }
        Some("accident-worker") => {
            let words: Vec<_> = words.skip(1).collect();
            return accidents::work(&words).map_or(ExitCode::from(2), |()| ExitCode::SUCCESS);
        }
        _ => {}
    }
    // The cases report panics themselves.
    std::panic::set_hook(Box::new(|_| {}));
    let begin = SystemClock.elapsed();
    match CommandArgs::parse(&mut words).and_then(|args| run(&args)) {
        Ok((mut result, good)) => {
            result["seconds"] = json!((SystemClock.elapsed() - begin).as_secs_f64());
            print(&result.to_string());
            ExitCode::from(u8::from(!good))
        }
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(2)
        }
    }
}

#[allow(clippy::print_stdout)]
fn print(line: &str) {
    println!("{line}");
}

/// Ends the process with a result that holds a failure alone.
pub(crate) fn fail(problem: &str) -> ! {
    print(&json!({ "failures": [problem] }).to_string());
    std::process::exit(1)
}

#[allow(clippy::print_stderr)]
fn second_process(words: &[String]) -> ExitCode {
    let [folder, seed, synchronous] = words else { return ExitCode::from(2) };
    let synchronous = if synchronous == "full" { Synchronous::Full } else { Synchronous::Normal };
    match trace::second_process(Path::new(folder), seed.parse().unwrap_or(0), synchronous) {
        Ok(lines) => {
            print(lines.trim_end_matches('\n'));
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the problem of a child process.
#[allow(clippy::print_stderr)]
fn told(done: Result<(), String>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &CommandArgs) -> Result<(Value, bool), String> {
    match args.verb.as_str() {
        "cuts" => run_cuts(args),
        "controls" => run_controls(args),
        "kills" => run_kills(args),
        "accidents" => run_accidents(args),
        "makers" => run_makers(args),
        "faults" => run_faults(args),
        "forgeries" => run_forgeries(args),
        "flips" => run_flips(args),
        "races" => run_races(args),
        "recover" => recoveries::run(&recoveries::RecoverPlan {
            seed: args.number("seed")?.unwrap_or(1),
            rounds: args.count.unwrap_or(1),
            stride: args.number("stride")?.unwrap_or(1) as usize,
            share: args.number("share")?.unwrap_or(1) as usize,
            jobs: args.jobs()?,
        }),
        verb => Err(format!("{verb} is not a verb\n\n{USAGE}")),
    }
}

fn run_cuts(args: &CommandArgs) -> Result<(Value, bool), String> {
    let per_trace = args.number("cuts-per-trace")?.unwrap_or(100).max(1);
    let wanted = args.count.unwrap_or(2_000).div_ceil(per_trace);
    let places = match args.number("stride")? {
        Some(stride) => cuts::CutPlaces::Every(stride.max(1) as usize),
        None => cuts::CutPlaces::Random(per_trace as usize),
    };
    let plan = cuts::CutPlan {
        seed: args.number("seed")?.unwrap_or(1),
        traces: args.number("traces")?.unwrap_or(wanted),
        places,
        jobs: args.jobs()?,
    };
    let counts = cuts::run(plan, Synchronous::Full);
    let result = json!({
        "cuts_run": counts.run,
        "cuts_lost": counts.lost,
        "cuts_torn": counts.torn,
        "cuts_unopened": counts.unopened,
        "distinct": counts.distinct,
        "opened": counts.opened,
        "in_compaction": counts.in_compaction,
        "in_recovery": counts.in_recovery,
        "workloads": counts.traces,
        "operations": counts.ops,
        "seed": plan.seed,
        "failures": counts.failures,
    });
    Ok((result, counts.bad() == 0))
}

/// Cuts within which a control must be found.
const CONTROL_CUTS: u64 = 1_000;

fn run_controls(args: &CommandArgs) -> Result<(Value, bool), String> {
    let seed = args.number("seed")?.unwrap_or(1);
    let per_trace = args.number("cuts-per-trace")?.unwrap_or(100).max(1) as usize;
    let mut results = serde_json::Map::new();
    let mut good = true;
    for control in
        controls::TraceControl::ALL.into_iter().filter(|(_, name)| args.text("only").is_none_or(|only| only == *name))
    {
        let result = controls::run(control, seed, CONTROL_CUTS, per_trace)?;
        good &= result.found_after.is_some();
        let counts = result.counts;
        let details = json!({
            "found_after": result.found_after,
            "cuts_run": counts.run,
            "cuts_lost": counts.lost,
            "cuts_torn": counts.torn,
            "cuts_unopened": counts.unopened,
            "first": counts.failures.first(),
        });
        results.insert(result.name.to_owned(), details);
    }
    for (control, name) in
        kills::WorkerControl::ALL.into_iter().filter(|(_, name)| args.text("only").is_none_or(|only| only == *name))
    {
        let plan =
            kills::KillPlan { seed, kills: CONTROL_CUTS, stops: 0, stop: Duration::ZERO, control: Some(control) };
        let counts = kills::run(&plan)?;
        let is_found = counts.lost + counts.wrong > 0;
        good &= is_found;
        let details = json!({
            "found_after": is_found.then_some(counts.run),
            "kills_run": counts.run,
            "kills_lost": counts.lost,
            "kills_wrong": counts.wrong,
            "first": counts.failures.first(),
        });
        results.insert(name.to_owned(), details);
    }
    let found = results.values().filter(|result| !result["found_after"].is_null()).count();
    let all = results.len();
    Ok((json!({ "controls_run": all, "controls_found": found, "seed": seed, "controls": results }), good))
}

fn run_kills(args: &CommandArgs) -> Result<(Value, bool), String> {
    let kills = args.count.unwrap_or(500);
    let plan = kills::KillPlan {
        seed: args.number("seed")?.unwrap_or(1),
        kills,
        stops: args.number("stops")?.unwrap_or(kills.div_ceil(500)),
        stop: Duration::from_millis(args.number("stop-ms")?.unwrap_or(10_000)),
        control: None,
    };
    let counts = kills::run(&plan)?;
    let result = json!({
        "kills_run": counts.run,
        "kills_lost": counts.lost,
        "kills_wrong": counts.wrong,
        "rounds": counts.rounds,
        "stops": counts.stopped,
        "refused_by_stopped": counts.named,
        "refused_after_ms_max": counts.longest_refusal_ms,
        "refused": counts.busy,
        "calls_acknowledged": counts.acknowledged,
        "reads_of_everything": counts.passes,
        "erased": counts.erased,
        "erased_left": counts.erased_left,
        "backups_left": counts.backups,
        "killed_during": counts.steps,
        "killed_with_lock": counts.locks,
        "seed": plan.seed,
        "failures": counts.failures,
    });
    Ok((result, counts.lost + counts.wrong == 0))
}

fn run_accidents(args: &CommandArgs) -> Result<(Value, bool), String> {
    let plan = accidents::AccidentPlan {
        seed: args.number("seed")?.unwrap_or(1),
        share: args.number("share")?.unwrap_or(1) as usize,
        worker: args.text("worker").map(PathBuf::from),
        only: args.text("only").map(str::to_owned),
        jobs: args.jobs()?,
    };
    let counts = accidents::run(&plan)?;
    let result = json!({
        "accidents_run": counts.run,
        "lost_silently": counts.lost_silently,
        "acked_for_nothing": counts.acked_for_nothing,
        "changed_by_refused_open": counts.changed_by_refused_open,
        "lies": counts.lies,
        "unsettled": counts.unsettled,
        "panics": counts.panics,
        "hangs": counts.hangs,
        "untold": counts.untold.values().sum::<u64>(),
        "untold_reasons": counts.untold,
        "without_effect": counts.without_effect,
        "opens_refused": counts.refused,
        "opens_reported": counts.reported,
        "opens_whole": counts.whole,
        "settled": counts.settled,
        "ended_by_system": counts.ended_by_system,
        "seed": plan.seed,
        "controls_run": counts.controls,
        "controls_found": counts.controls_found,
        "failures": counts.failures,
    });
    Ok((result, counts.bad() == 0))
}

fn run_makers(args: &CommandArgs) -> Result<(Value, bool), String> {
    let plan = makers::MakersPlan {
        processes: args.count.unwrap_or(100).max(1),
        rounds: args.number("rounds")?.unwrap_or(4).max(1),
        wait_ms: args.number("wait-ms")?.unwrap_or(5_000),
    };
    let counts = makers::run(plan)?;
    let result = json!({
        "makers_run": counts.run,
        "makers_failed": counts.errors,
        "makers_lost": counts.lost,
        "problems": counts.problems,
        "processes": plan.processes,
        "rounds": plan.rounds,
        "failures": counts.failures,
    });
    Ok((result, counts.errors + counts.lost + counts.problems == 0))
}

fn run_faults(args: &CommandArgs) -> Result<(Value, bool), String> {
    let plan = faults::FaultPlan {
        seed: args.number("seed")?.unwrap_or(1),
        stride: args.number("stride")?.unwrap_or(1).max(1),
        jobs: args.jobs()?,
        only: args.text("only").map(str::to_owned),
        nth: args.number("nth")?,
    };
    let counts = faults::run(&plan)?;
    let kinds: serde_json::Map<String, Value> = counts
        .kinds
        .iter()
        .map(|(name, kind)| {
            let kind = json!({
                "fired": kind.fired,
                "acknowledged": kind.acknowledged,
                "refused": kind.refused,
                "unknown": kind.unknown,
            });
            ((*name).to_owned(), kind)
        })
        .collect();
    let result = json!({
        "faults_run": counts.run,
        "faults_lied": counts.lied,
        "faults_lost_after_failed_sync": counts.lost_after_failed_sync,
        "faults_unmade": counts.unmade,
        "faults_broken": counts.broken,
        "faults_panicked": counts.panics,
        "faults_slow": counts.slow,
        "slowest_ms": counts.slowest_ms,
        "stride": plan.stride,
        "seed": plan.seed,
        "kinds": kinds,
        "failures": counts.failures,
    });
    let known = match args.text("ratchet") {
        None => 0,
        Some(file) => bounds(file)?["ratchet"]["faults_lost_after_failed_sync"].as_u64().unwrap_or(0),
    };
    let good = counts.bad() - counts.lost_after_failed_sync == 0 && counts.lost_after_failed_sync <= known;
    Ok((result, good))
}

fn run_flips(args: &CommandArgs) -> Result<(Value, bool), String> {
    let plan = flips::FlipPlan {
        seed: args.number("seed")?.unwrap_or(1),
        stride: args.number("stride")?.unwrap_or(1).max(1) as usize,
        first: args.number("first")?.unwrap_or(0) as usize,
        count: args.number("count")?.map_or(usize::MAX, |count| count as usize),
        only: args.text("only").map(str::to_owned),
        jobs: args.jobs()?,
    };
    // The file is the same for a seed: so are its salts and pages.
    vfs::seed_randomness(plan.seed);
    let (counts, size) = flips::run(&plan)?;
    let shares = [
        ("flips_wrong", counts.wrong),
        ("flips_missed", counts.missed),
        ("flips_panicked", counts.panics),
        ("flips_slow", counts.slow),
    ];
    let result = json!({
        "flips_run": counts.run,
        "same": counts.same,
        "open_errors": counts.open_errors,
        "read_errors": counts.read_errors,
        "file_bytes": size,
        "stride": plan.stride,
        "seed": plan.seed,
        "places": counts.places,
        "examples": counts.examples,
    });
    judge(args, result, &shares, counts.run)
}

fn run_forgeries(args: &CommandArgs) -> Result<(Value, bool), String> {
    let nth = args.number("nth")?;
    let plan = forgeries::ForgeryPlan {
        seed: args.number("seed")?.unwrap_or(1),
        first: nth.unwrap_or(0),
        count: nth.map_or(args.count.unwrap_or(10_000), |_| 1),
        jobs: args.jobs()?,
    };
    let counts = forgeries::run(&plan)?;
    let shares = [
        ("forgeries_missed", counts.missed),
        ("forgeries_unreadable", counts.unreadable),
        ("forgeries_panicked", counts.panics),
        ("forgeries_slow", counts.slow),
        ("forgeries_memory", counts.memory),
    ];
    let result = json!({
        "forgeries_run": counts.run,
        "same": counts.same,
        "refused": counts.refused,
        "errors": counts.errors,
        "changed": counts.changed,
        "untraced": counts.untraced,
        "slowest_ms": counts.slowest_ms,
        "seed": plan.seed,
        "places": counts.places,
        "examples": counts.failures,
    });
    judge(args, result, &shares, counts.run)
}

fn run_races(args: &CommandArgs) -> Result<(Value, bool), String> {
    let seed = args.number("seed")?.unwrap_or(1);
    let counts = races::run(seed, args.count.unwrap_or(1_000))?;
    let result = json!({
        "undo_races_run": counts.run,
        "undo_race_stuck": counts.stuck,
        "undo_race_astray": counts.astray,
        "undo_race_wrong": counts.wrong,
        "rounds_of_processes": counts.of_processes,
        "calls_done": counts.done,
        "calls_refused": counts.conflicts,
        "seed": seed,
        "failures": counts.failures,
    });
    Ok((result, counts.stuck + counts.astray + counts.wrong == 0))
}

/// Adds the counts of known defects to a result: without a file of bounds each of them is a failure.
fn judge(args: &CommandArgs, mut result: Value, shares: &[(&str, u64)], run: u64) -> Result<(Value, bool), String> {
    for (name, count) in shares {
        result[name] = json!(count);
    }
    let above = match args.text("ratchet") {
        None => shares.iter().filter(|(_, count)| *count > 0).map(|(name, _)| (*name).to_owned()).collect(),
        Some(file) => above_ratchet(file, shares, run)?,
    };
    result["failures"] = json!(above);
    Ok((result, above.is_empty()))
}

/// Reads a file of results.
fn bounds(file: &str) -> Result<Value, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("{file}: {error}"))
}

/// Compares shares with the bounds in a file of results: counts per 10,000 flips.
fn above_ratchet(file: &str, shares: &[(&str, u64)], run: u64) -> Result<Vec<String>, String> {
    let bounds = bounds(file)?;
    let mut above = Vec::new();
    for (name, count) in shares {
        let bound = bounds["ratchet"][format!("{name}_per_10k")].as_f64();
        let bound = bound.ok_or(format!("{file} has no bound for {name}"))?;
        let share = 10_000.0 * *count as f64 / run.max(1) as f64;
        if share > bound {
            above.push(format!("{name}: {share:.2} per 10,000, the bound is {bound}"));
        }
    }
    Ok(above)
}
