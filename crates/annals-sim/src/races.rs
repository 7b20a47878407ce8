//! Races of undo and redo: handles and processes that move the head of a thread beside each other.
//!
//! A round has a file of its own. In the first part two handles race: one appends, undoes and rewinds, the other one
//! undoes. In the last round several processes make random calls on three threads. Afterwards nothing else writes, so
//! all operations can be undone and made again: a thread on which a call fails is stuck, and one that ends at another
//! head than it began with is astray.

use std::path::Path;
use std::process::{Command, Stdio};

use annals::ErrorKind;
use annals::base::CheckpointId;
use annals::prelude::*;
use annals::store::StoreError;

use crate::rng::Rng;
use crate::trace::remove_store;

/// The threads of the processes, the processes, and the calls of each.
const THREADS: usize = 3;
const PROCESSES: u64 = 6;
const CALLS: usize = 100;
/// Appends, each with an undo and a rewind, of a round of two handles, and undos beside them.
const MOVES: i64 = 12;
const UNDOS: usize = 24;
/// Rounds of two handles for each round of processes.
const PAIR_ROUNDS: u64 = 100;

/// The counts of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct RaceCounts {
    pub(crate) run: u64,
    /// Rounds of processes among them.
    pub(crate) of_processes: u64,
    /// Calls that were done.
    pub(crate) done: u64,
    /// Calls that lost a race.
    pub(crate) conflicts: u64,
    /// Threads on which an undo or a redo failed with nothing else writing.
    pub(crate) stuck: u64,
    /// Threads that ended at another checkpoint than they had to.
    pub(crate) astray: u64,
    /// Calls that failed otherwise, and problems that a check found.
    pub(crate) wrong: u64,
    pub(crate) failures: Vec<String>,
}

impl RaceCounts {
    fn fail(&mut self, round: u64, problem: impl std::fmt::Display) {
        if self.failures.len() < 20 {
            self.failures.push(format!("round {round}: {problem}"));
        }
    }
}

/// The calls of one participant: done, lost to another writer, failed otherwise.
#[derive(Clone, Copy, Debug, Default)]
struct CallTally {
    done: u64,
    conflicts: u64,
    wrong: u64,
}

impl CallTally {
    fn take<T>(&mut self, result: Result<T, annals::Error>) {
        match result {
            Ok(_) => self.done += 1,
            Err(error) if error.is_conflict() || error.kind() == ErrorKind::Busy => self.conflicts += 1,
            Err(_) => self.wrong += 1,
        }
    }
}

/// Races so many rounds.
pub(crate) fn run(seed: u64, rounds: u64) -> Result<RaceCounts, String> {
    let mut counts = RaceCounts::default();
    for round in 0..rounds {
        let folder = std::env::temp_dir().join(format!("annals-races-{}-{seed}-{round}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let path = folder.join("store.db");
        let raced =
            race(&path, seed, round, round + 1 == rounds || (round + 1).is_multiple_of(PAIR_ROUNDS), &mut counts);
        remove_store(&path);
        // The folder may hold a file of a failed round, which stays.
        _ = std::fs::remove_dir(&folder);
        raced.map_err(|error| format!("round {round}: {error}"))?;
    }
    Ok(counts)
}

fn race(path: &Path, seed: u64, round: u64, processes: bool, counts: &mut RaceCounts) -> Result<(), String> {
    let text = |error: StoreError| error.to_string();
    let store = Store::open(path).map_err(text)?;
    let names: Vec<String> = (0..if processes { THREADS } else { 1 }).map(|n| format!("t{n}")).collect();
    let mut firsts = Vec::new();
    for name in &names {
        let thread = store.thread(name.as_str()).map_err(text)?;
        firsts.push(thread.set("n", 0).map_err(|error| error.to_string())?);
    }
    let calls = if processes { race_processes(path, seed, round)? } else { race_handles(path, &store)? };
    counts.run += 1;
    counts.of_processes += u64::from(processes);
    for call in calls {
        counts.done += call.done;
        counts.conflicts += call.conflicts;
        counts.wrong += call.wrong;
    }
    for (name, first) in names.iter().zip(firsts) {
        let thread = store.thread(name.as_str()).map_err(text)?;
        match settle(&thread) {
            Ok(ends) if ends == [first, ends[1], ends[1]] => {}
            Ok(ends) => {
                counts.astray += 1;
                counts.fail(round, format!("{name}: began at {first}, ended at {ends:?}"));
            }
            Err(error) => {
                counts.stuck += 1;
                counts.fail(round, format!("{name}: {error}"));
            }
        }
    }
    let problems = store.check().map_err(text)?.problems;
    if let Some(problem) = problems.first() {
        counts.wrong += 1;
        counts.fail(round, problem);
    }
    Ok(())
}

/// Makes all undone operations again, undoes all, and makes them again. Returns the head after the undos, and the ones
/// before and after these two.
fn settle(thread: &Thread) -> Result<[CheckpointId; 3], StoreError> {
    let head = || Ok::<_, StoreError>(thread.head()?.map(|head| head.id()).unwrap_or_default());
    while thread.redo()?.is_some() {}
    let last = head()?;
    while thread.undo()?.is_some() {}
    let first = head()?;
    while thread.redo()?.is_some() {}
    Ok([first, last, head()?])
}

fn race_handles(path: &Path, store: &Store) -> Result<Vec<CallTally>, String> {
    let other = Store::open(path).map_err(|error| error.to_string())?;
    let [own, other] = [store, &other].map(|store| store.thread("t0").map_err(|error| error.to_string()));
    let (own, other) = (own?, other?);
    Ok(std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            let mut tally = CallTally::default();
            for n in 0..MOVES {
                let at = own.head();
                tally.take(own.set("n", n));
                tally.take(own.undo().map_err(annals::Error::from));
                if let Ok(Some(at)) = at {
                    tally.take(own.rewind_to(&at).map_err(annals::Error::from));
                }
            }
            tally
        });
        let mut tally = CallTally::default();
        (0..UNDOS).for_each(|_| tally.take(other.undo().map_err(annals::Error::from)));
        let failed = CallTally { wrong: 1, ..CallTally::default() };
        vec![mover.join().unwrap_or(failed), tally]
    }))
}

fn race_processes(path: &Path, seed: u64, round: u64) -> Result<Vec<CallTally>, String> {
    let failed = |error: std::io::Error| format!("a process does not run: {error}");
    let program = std::env::current_exe().map_err(failed)?;
    let mut children = Vec::new();
    for process in 0..PROCESSES {
        let seed = Rng::stream(Rng::stream(seed, round).next(), process).next().to_string();
        let child = Command::new(&program).arg("racer").arg(path).arg(seed).stdout(Stdio::piped()).spawn();
        children.push(child.map_err(failed)?);
    }
    let mut calls = Vec::new();
    for child in children {
        let output = child.wait_with_output().map_err(failed)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let counts: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [done, conflicts, wrong] = counts[..] else {
            return Err(format!("a process ended with {}", output.status));
        };
        calls.push(CallTally { done, conflicts, wrong });
    }
    Ok(calls)
}

/// Makes the calls of one process: the arguments are the file and a seed. Returns the counts of its calls.
pub(crate) fn work(words: &[String]) -> Result<String, String> {
    let [path, seed] = words else { return Err("a file and a seed".into()) };
    let mut rng = Rng::new(seed.parse().map_err(|_| format!("{seed} is not a number"))?);
    let store = Store::open(path).map_err(|error| error.to_string())?;
    let mut tally = CallTally::default();
    for n in 0..CALLS {
        let thread = store.thread(format!("t{}", rng.below(THREADS))).map_err(|error| error.to_string())?;
        tally.take(call(&thread, n, &mut rng));
    }
    Ok(format!("{} {} {}", tally.done, tally.conflicts, tally.wrong))
}

/// Makes a random call.
fn call(thread: &Thread, n: usize, rng: &mut Rng) -> Result<(), annals::Error> {
    match rng.below(10) {
        0..=2 => thread.set("n", n as i64).map(|_| ()),
        3 | 4 => Ok(thread.undo().map(|_| ())?),
        5 | 6 => Ok(thread.redo().map(|_| ())?),
        7 => {
            let all: Vec<Snapshot> = thread.history()?.take(8).collect::<Result<_, _>>()?;
            Ok(thread.rewind_to(&all[rng.below(all.len())])?)
        }
        8 => Ok(thread.facts().title(format!("{}", rng.below(3))).save()?),
        _ => {
            let all = thread.all_branches()?;
            Ok(thread.switch(&all[rng.below(all.len())])?)
        }
    }
}
