//! Forgeries: files that somebody with an editor for SQLite files has changed, and content that no sane program writes.
//!
//! A watched child process makes each forged file and reads it by every call of the API, within limits of time and
//! memory; a child that dies or does not answer is the result of its case.

mod content;
mod forge;
mod reads;

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use annals::store::{OpenOptions, Store, Synchronous};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::log::DiskLog;
use crate::observe::{self, Deadline, StoreView, Unreadable};
use crate::proxy::Calls;
use crate::rng::Rng;
use crate::spent::Spent;
use crate::trace::{ScratchFolder, WorkloadKind};
use crate::workload::{self, WorkloadShape};
use forge::{Base, Forged, is_untraced};

/// Time on a processor that all reads of a file may take.
const SLOW: Duration = Duration::from_secs(5);
/// Time after which a child is ended.
const HUNG: Duration = Duration::from_secs(120);
/// Bytes of memory that a child may have.
const MEMORY_MAX: u64 = 500 << 20;
/// Cases of one child, all of the same store. Then a new one begins with another store, so that a leak is not one of
/// the next case.
const CASES_PER_CHILD: u64 = 500;
/// Failures that are described.
const FAILURES_MAX: usize = 20;

/// The counts of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct ForgeryCounts {
    pub(crate) run: u64,
    /// Reads that show the same as before.
    pub(crate) same: u64,
    /// Files that are refused when they are opened.
    pub(crate) refused: u64,
    /// Reads that end with a typed error.
    pub(crate) errors: u64,
    /// Reads that show something else.
    pub(crate) changed: u64,
    /// Files whose reads show a change or fail while `check` finds nothing.
    pub(crate) missed: u64,
    /// Files that lack a row that nothing counts, which `check` cannot notice.
    pub(crate) untraced: u64,
    /// Hostile content that was accepted and cannot be read.
    pub(crate) unreadable: u64,
    /// Panics, and children that ended.
    pub(crate) panics: u64,
    pub(crate) slow: u64,
    /// Cases whose child could not allocate memory.
    pub(crate) memory: u64,
    pub(crate) slowest_ms: u64,
    /// Missed, unreadable, panicking and slow cases by their kind.
    pub(crate) places: BTreeMap<String, u64>,
    pub(crate) failures: Vec<String>,
}

impl ForgeryCounts {
    fn add(&mut self, other: Self) {
        self.run += other.run;
        self.same += other.same;
        self.refused += other.refused;
        self.errors += other.errors;
        self.changed += other.changed;
        self.missed += other.missed;
        self.untraced += other.untraced;
        self.unreadable += other.unreadable;
        self.panics += other.panics;
        self.slow += other.slow;
        self.memory += other.memory;
        self.slowest_ms = self.slowest_ms.max(other.slowest_ms);
        other.places.into_iter().for_each(|(place, count)| *self.places.entry(place).or_default() += count);
        self.failures.extend(other.failures);
        self.failures.truncate(FAILURES_MAX);
    }

    /// Takes the result of a case: the output of a child, or its end.
    fn take(&mut self, seed: u64, case: u64, result: &str) {
        self.run += 1;
        let mut words = result.splitn(4, ' ');
        let (verdict, took, missed) = (words.next().unwrap_or_default(), words.next(), words.next());
        let kind = words.next().unwrap_or("unknown");
        let took: u64 = took.and_then(|took| took.parse().ok()).unwrap_or(0);
        self.slowest_ms = self.slowest_ms.max(took);
        let is_slow = Duration::from_millis(took) > SLOW || verdict == "hung" || verdict == "endless";
        let mut changes = kind.split(" and ");
        // With its last key, the namespace of a key may be gone as well.
        let leaves_trace = match missed {
            Some("missed-key-values") => !changes.any(is_untraced),
            _ => changes.any(|change| !is_untraced(change)),
        };
        let finds_none = missed.is_some_and(|missed| missed.starts_with("missed"));
        let is_missed = finds_none && leaves_trace;
        self.untraced += u64::from(finds_none && !leaves_trace);
        match verdict {
            "same" => self.same += 1,
            "refused" => self.refused += 1,
            "error" => self.errors += 1,
            "changed" => self.changed += 1,
            "unreadable" => self.unreadable += 1,
            "panic" | "died" => self.panics += 1,
            "memory" => self.memory += 1,
            _ => {}
        }
        self.slow += u64::from(is_slow);
        self.missed += u64::from(is_missed);
        let is_bad = matches!(verdict, "unreadable" | "panic" | "died" | "memory");
        if is_bad || is_slow || is_missed {
            let place = kind.split(':').next().unwrap_or(kind);
            let what = if is_missed { "missed" } else { verdict };
            *self.places.entry(format!("{what}: {place}")).or_default() += 1;
            let repeat = format!("annals-sim forgeries --seed {seed} --nth {case}");
            self.failures.push(format!("{verdict}, {}: {kind}; repeat: {repeat}", missed.unwrap_or("-")));
            self.failures.truncate(FAILURES_MAX);
        }
    }
}

/// The cases of a run.
#[derive(Clone, Debug)]
pub(crate) struct ForgeryPlan {
    pub(crate) seed: u64,
    pub(crate) first: u64,
    pub(crate) count: u64,
    pub(crate) jobs: usize,
}

/// Makes and reads forged files in child processes.
pub(crate) fn run(plan: &ForgeryPlan) -> Result<ForgeryCounts, String> {
    // A case has the same store whatever the first one is.
    let next = std::sync::atomic::AtomicU64::new(plan.first - plan.first % CASES_PER_CHILD);
    let end = plan.first + plan.count;
    let work = || -> Result<ForgeryCounts, String> {
        let mut counts = ForgeryCounts::default();
        loop {
            let first = next.fetch_add(CASES_PER_CHILD, std::sync::atomic::Ordering::SeqCst);
            if first >= end {
                return Ok(counts);
            }
            counts.add(watch(plan.seed, first.max(plan.first), end.min(first + CASES_PER_CHILD))?);
        }
    };
    let mut counts = ForgeryCounts::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.jobs.max(1)).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            counts.add(thread.join().unwrap_or_else(|_| Err("the harness panicked".into()))?);
        }
        Ok::<(), String>(())
    })?;
    Ok(counts)
}

/// Runs cases in children, one after the other: a child that ends early is followed by one for the rest.
fn watch(seed: u64, first: u64, end: u64) -> Result<ForgeryCounts, String> {
    let mut counts = ForgeryCounts::default();
    let mut next = first;
    while next < end {
        let (mut child, lines) = start(seed, next, end).map_err(|error| format!("a child does not start: {error}"))?;
        let (mut kind, mut note) = (String::new(), String::new());
        while next < end {
            match lines.recv_timeout(HUNG) {
                Ok(line) => match line.split_at_checked(2) {
                    Some(("K ", rest)) => rest.clone_into(&mut kind),
                    Some(("R ", rest)) => {
                        counts.take(seed, next, rest);
                        next += 1;
                        kind.clear();
                    }
                    // The runtime says why it ends the process.
                    _ => note = line,
                },
                Err(_) if kind.is_empty() => return Err(format!("a child ended outside of a case: {note}")),
                Err(error) => {
                    let how = match error {
                        RecvTimeoutError::Timeout => "hung",
                        _ if note.contains("memory allocation") => "memory",
                        RecvTimeoutError::Disconnected => "died",
                    };
                    counts.take(seed, next, &format!("{how} 0 - {kind} ({note})"));
                    next += 1;
                    _ = child.kill();
                    break;
                }
            }
        }
        // A child whose cases have ended removes its folder and ends by itself.
        _ = child.wait();
    }
    Ok(counts)
}

fn start(seed: u64, first: u64, end: u64) -> std::io::Result<(Child, Receiver<String>)> {
    let numbers = [seed, first, end].map(|number| number.to_string());
    let mut child = Command::new(std::env::current_exe()?)
        .arg("forger")
        .args(numbers)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (send, lines) = channel();
    let (output, errors) = (child.stdout.take(), child.stderr.take());
    let sender = send.clone();
    // The channel ends with both.
    std::thread::spawn(move || {
        let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines()).map_while(Result::ok);
        lines.for_each(|line| _ = sender.send(line));
    });
    std::thread::spawn(move || {
        let lines = errors.into_iter().flat_map(|errors| BufReader::new(errors).lines()).map_while(Result::ok);
        lines.for_each(|line| _ = send.send(line));
    });
    Ok((child, lines))
}

/// Runs cases as a child; the arguments are a seed, the first case and the end.
pub(crate) fn work(words: &[String]) -> Result<(), String> {
    let [seed, first, end] = words else { return Err("a child has three arguments".into()) };
    let number = |word: &String| word.parse::<u64>().map_err(|_| format!("{word} is not a number"));
    let (seed, first, end) = (number(seed)?, number(first)?, number(end)?);
    let limit = Rlimit { current: Some(MEMORY_MAX), maximum: getrlimit(Resource::Data).maximum };
    setrlimit(Resource::Data, limit).map_err(|error| error.to_string())?;
    let target = ForgedStore::make(seed.wrapping_add(first / CASES_PER_CHILD))?;
    for case in first..end {
        say(&format!("R {}", target.case(seed, case)?));
    }
    Ok(())
}

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    if writeln!(output, "{}", line.replace('\n', " ")).and_then(|()| output.flush()).is_err() {
        // The parent process is gone.
        std::process::exit(0);
    }
}

/// The store that is forged.
struct ForgedStore {
    base: Base,
    view: StoreView,
    scratch: ScratchFolder,
}

/// Returns the workload that writes a store.
fn shape(seed: u64) -> WorkloadShape {
    let shape = WorkloadKind::Single.shape(seed, 0, Synchronous::Full);
    WorkloadShape { rounds: 1, text_max: 2_500, waits: true, ..shape }
}

impl ForgedStore {
    fn make(seed: u64) -> Result<Self, String> {
        crate::vfs::seed_randomness(seed);
        let scratch = ScratchFolder::new().map_err(|error| error.to_string())?;
        let calls = Calls::new(Arc::new(DiskLog::memory()), 0, false);
        if let Some(failure) = workload::run(&scratch.store(), &shape(seed), &calls).first() {
            return Err(format!("a call failed without a fault: {failure}"));
        }
        let store = open(&scratch, true).map_err(|error| error.to_string())?;
        let read = observe::everything(&store, Deadline::after(HUNG));
        let view = read.map_err(|error| format!("the file as it was written: {error}"))?;
        drop(store);
        let base = Base::of(&scratch.store())?;
        let target = Self { base, view, scratch };
        target.verify_unchanged()?;
        Ok(target)
    }

    /// Verifies that the check finds nothing in a file that was edited without a change: else it would miss no case.
    fn verify_unchanged(&self) -> Result<(), String> {
        self.base.unchanged(&self.scratch.store())?;
        let CaseReads { verdict, finds, .. } = self.read(false, &mut Rng::stream(0, 0));
        if verdict != "same" || finds {
            return Err(format!("a file that was edited without a change: {verdict}, a finding: {finds}"));
        }
        Ok(())
    }

    /// Makes a case and reads it. Returns its verdict, the milliseconds that it took, whether the check missed it, and
    /// its kind.
    fn case(&self, seed: u64, case: u64) -> Result<String, String> {
        let mut rng = Rng::stream(seed, 1_000_000 + case);
        let Forged { kind, accepted } = self.base.forge(&self.scratch.store(), &mut rng)?;
        say(&format!("K {kind}"));
        let begin = Spent::now();
        let writes = rng.chance(25);
        let result = catch_unwind(AssertUnwindSafe(|| {
            let CaseReads { verdict, finds, shows_log } = self.read(accepted.is_some(), &mut rng);
            if verdict != "refused" && writes {
                reads::write(&self.scratch);
            }
            let differs = matches!(verdict, "error" | "changed");
            match accepted {
                // Its checksums are right, and all that was written can be read.
                Some(_) if differs || finds => ("unreadable", "-"),
                None if differs && !finds && shows_log => (verdict, "missed-key-values"),
                None if differs && !finds => (verdict, "missed"),
                _ => (verdict, "-"),
            }
        }));
        let took = begin.elapsed().as_millis();
        let (verdict, missed) = result.unwrap_or(("panic", "-"));
        Ok(format!("{verdict} {took} {missed} {kind}"))
    }

    /// Reads a file by all calls. Beside hostile content, everything else must be as before.
    fn read(&self, is_content: bool, rng: &mut Rng) -> CaseReads {
        let Ok(store) = open(&self.scratch, true) else {
            return CaseReads { verdict: "refused", finds: true, shows_log: false };
        };
        let deadline = Deadline::after(HUNG);
        let mut view = observe::everything(&store, deadline);
        if let (Ok(view), true) = (&mut view, is_content) {
            view.retain(|entity, _| !entity.starts_with("t:hostile") && !entity.starts_with("k:hostile"));
        }
        reads::all(&store, rng, deadline);
        let finds = store.check().map_or(true, |report| !report.problems.is_empty());
        let log = |view: &StoreView| -> StoreView {
            let threads = view.iter().filter(|(entity, _)| entity.starts_with("t:"));
            threads.map(|(entity, hash)| (entity.clone(), *hash)).collect()
        };
        let shows_log = view.as_ref().is_ok_and(|view| log(view) == log(&self.view));
        let verdict = match view {
            Ok(view) if view == self.view => "same",
            Ok(_) => "changed",
            Err(Unreadable::Typed(_)) => "error",
            Err(Unreadable::Endless) => "endless",
        };
        CaseReads { verdict, finds, shows_log }
    }
}

/// The reads of a case.
struct CaseReads {
    verdict: &'static str,
    /// True if `check` finds a problem.
    finds: bool,
    /// True if all threads are shown as before.
    shows_log: bool,
}

fn open(scratch: &ScratchFolder, read_only: bool) -> Result<Store, annals::store::StoreError> {
    let options = OpenOptions::new().read_only(read_only).head_cache_bytes(0).busy_timeout_ms(100);
    Store::open_with(scratch.store(), options)
}
