//! Power cuts: the store is opened and compared after a cut behind any operation of a recorded workload.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annals::base::ThreadId;
use annals::store::{Batch, NewCheckpoint, OpenOptions, Source, Store, Synchronous};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::disk::{CutMode, Disk, Image};
use crate::log::{Log, Name, Op, STORE};
use crate::observe::{self, Deadline, View};
use crate::rng::Rng;
use crate::trace::{Scratch, Trace, Verdict};
use crate::watch::Watch;

/// The counts of a run of cuts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Cuts that were judged.
    pub(crate) run: u64,
    /// Cuts whose files differ from those of every other cut of their trace.
    pub(crate) distinct: u64,
    /// Cuts during the recovery from another cut.
    pub(crate) in_recovery: u64,
    /// Cuts after which an acknowledged change was not there.
    pub(crate) lost: u64,
    /// Cuts after which a change was there in part, or a check failed.
    pub(crate) torn: u64,
    /// Cuts after which the store did not open.
    pub(crate) unopened: u64,
    /// Workloads.
    pub(crate) traces: u64,
    /// Recorded operations.
    pub(crate) ops: u64,
    /// The first failures, each with the command that repeats it.
    pub(crate) failures: Vec<String>,
}

/// Failures that are described.
const FAILURES_MAX: usize = 10;

impl Counts {
    /// Returns the number of cuts after which the store was not as it must be.
    pub(crate) fn bad(&self) -> u64 {
        self.lost + self.torn + self.unopened
    }

    /// Adds the counts of another run.
    pub(crate) fn add(&mut self, other: Self) {
        self.run += other.run;
        self.distinct += other.distinct;
        self.in_recovery += other.in_recovery;
        self.lost += other.lost;
        self.torn += other.torn;
        self.unopened += other.unopened;
        self.traces += other.traces;
        self.ops += other.ops;
        self.failures.extend(other.failures);
        self.failures.truncate(FAILURES_MAX);
    }
}

/// The content of a store after a cut.
#[derive(Clone, Debug)]
enum Seen {
    Unopened(String),
    Problem(String),
    View(View),
}

/// Replays cuts of one trace.
pub(crate) struct Replay<'a> {
    trace: &'a Trace,
    seed: u64,
    scratch: Scratch,
    seen: HashMap<u64, Seen>,
    /// The fault that the trace was given, for the command that repeats a failure.
    control: Option<&'static str>,
    per_trace: usize,
    pub(crate) counts: Counts,
}

/// One in so many distinct cuts is followed by a cut of its recovery.
const RECOVERY_EVERY: u64 = 16;
/// One in so many distinct cuts is followed by a commit.
const COMMIT_EVERY: u64 = 8;

impl<'a> Replay<'a> {
    /// Prepares to replay a trace.
    pub(crate) fn new(trace: &'a Trace, seed: u64, control: Option<&'static str>) -> Result<Self, String> {
        let scratch = Scratch::new().map_err(|error| error.to_string())?;
        let counts = Counts { traces: 1, ops: trace.ops.len() as u64, ..Counts::default() };
        Ok(Self { trace, seed, scratch, seen: HashMap::new(), control, per_trace: 0, counts })
    }

    /// Cuts `count` times at places that the seed of the trace decides.
    pub(crate) fn run(&mut self, count: usize) -> Result<(), String> {
        self.per_trace = count;
        let mut rng = Rng::stream(self.seed, 2);
        let mut places: Vec<(usize, usize)> =
            (0..count).map(|number| (rng.below(self.trace.ops.len() + 1), number)).collect();
        places.sort_unstable();
        let mut disk = Disk::new(self.seed);
        let mut done = 0;
        for (place, number) in places {
            self.trace.ops[done..place].iter().for_each(|op| disk.apply(op));
            done = place;
            self.cut(&disk, place, number)?;
        }
        Ok(())
    }

    fn cut(&mut self, disk: &Disk, place: usize, number: usize) -> Result<(), String> {
        let mode = CutMode::ALL[number % CutMode::ALL.len()];
        let mut rng = Rng::stream(self.seed, 1_000 + number as u64);
        let image = disk.cut(mode, &mut rng);
        self.counts.run += 1;
        let (seen, is_new) = self.look(&image)?;
        self.judge(&seen, place, &format!("{mode:?} {number}"));
        if is_new {
            self.counts.distinct += 1;
            if self.counts.distinct.is_multiple_of(RECOVERY_EVERY) {
                self.cut_recovery(&image, place, &mut rng)?;
            }
        }
        Ok(())
    }

    /// Cuts the recovery from a cut: the writes of the first open may be lost as well.
    fn cut_recovery(&mut self, image: &Image, place: usize, rng: &mut Rng) -> Result<(), String> {
        let log = Arc::new(Log::memory());
        let watched = Watch::register(self.scratch.path(), Some(Arc::clone(&log)));
        lay(self.scratch.path(), image)?;
        open_and_look(self.scratch.path(), false);
        drop(watched);
        let ops = log.take();
        let mut disk = Disk::with(image, rng.next());
        let end = rng.below(ops.len() + 1);
        ops[..end].iter().for_each(|op: &Op| disk.apply(op));
        let again = disk.cut(CutMode::ALL[rng.below(CutMode::ALL.len())], rng);
        self.counts.run += 1;
        self.counts.in_recovery += 1;
        let (seen, _) = self.look(&again)?;
        self.judge(&seen, place, &format!("in recovery after {end}"));
        Ok(())
    }

    /// Opens the files of a cut and reads everything. Equal files are opened once.
    fn look(&mut self, image: &Image) -> Result<(Seen, bool), String> {
        let hash = hash_of(image);
        if let Some(seen) = self.seen.get(&hash) {
            return Ok((seen.clone(), false));
        }
        let commits = (self.seen.len() as u64).is_multiple_of(COMMIT_EVERY);
        lay(self.scratch.path(), image)?;
        let seen = open_and_look(self.scratch.path(), commits);
        self.seen.insert(hash, seen.clone());
        Ok((seen, true))
    }

    fn judge(&mut self, seen: &Seen, place: usize, how: &str) {
        let problem = match seen {
            Seen::Unopened(error) => {
                self.counts.unopened += 1;
                format!("did not open: {error}")
            }
            Seen::Problem(problem) => {
                self.counts.torn += 1;
                problem.clone()
            }
            Seen::View(view) => match self.trace.judge(view, place) {
                Verdict::Good => return,
                Verdict::Lost(entity, count) => {
                    self.counts.lost += 1;
                    format!("{entity} lost {count} acknowledged changes")
                }
                Verdict::Wrong(problem) => {
                    self.counts.torn += 1;
                    problem
                }
            },
        };
        if self.counts.failures.len() < FAILURES_MAX {
            let control = self.control.map_or_else(|| "cuts".to_owned(), |name| format!("controls --only {name}"));
            let (seed, cuts) = (self.seed, self.per_trace);
            let repeat = format!("annals-sim {control} --seed {seed} --traces 1 --cuts-per-trace {cuts}");
            self.counts.failures.push(format!("cut after {place} ({how}): {problem}; repeat: {repeat}"));
        }
    }
}

fn hash_of(image: &Image) -> u64 {
    let mut hash = Xxh3::new();
    for content in image {
        let part = content.as_ref().map_or([0, 0], |content| [xxh3_64(content), content.len() as u64 + 1]);
        part.iter().for_each(|number| hash.update(&number.to_le_bytes()));
    }
    hash.digest()
}

/// Puts the files of a cut into a folder, in place of those that are there.
pub(crate) fn lay(folder: &Path, image: &Image) -> Result<(), String> {
    // Shared memory never survives.
    _ = std::fs::remove_file(folder.join(format!("{STORE}-shm")));
    for (name, content) in Name::ALL.into_iter().zip(image) {
        let path = folder.join(name.file());
        match content {
            Some(content) => std::fs::write(&path, content).map_err(|error| error.to_string())?,
            None => _ = std::fs::remove_file(&path),
        }
    }
    Ok(())
}

/// Opens the store in a folder and reads everything; makes a commit as well, if it is told to.
fn open_and_look(folder: &Path, commits: bool) -> Seen {
    let path = folder.join(STORE);
    let opened = catch_unwind(AssertUnwindSafe(|| {
        let options = OpenOptions::new().synchronous(Synchronous::Full).head_cache_bytes(0);
        let store = match Store::open_with(&path, options) {
            Ok(store) => store,
            Err(error) => return Seen::Unopened(format!("{}: {error}", error.code())),
        };
        look(&store, commits).unwrap_or_else(Seen::Problem)
    }));
    opened.unwrap_or_else(|_| Seen::Problem("panic".into()))
}

fn look(store: &Store, commits: bool) -> Result<Seen, String> {
    let report = store.check().map_err(|error| format!("check: {error}"))?;
    if let Some(problem) = report.problems.first() {
        return Err(format!("check finds {problem}"));
    }
    let read = || observe::everything(store, Deadline::after(Duration::from_secs(10)));
    let view = read().map_err(|error| format!("read: {error}"))?;
    if commits {
        let thread = ThreadId::new("after-the-cut").map_err(|error| error.to_string())?;
        let id = store.mint_checkpoint(0, None);
        let mut batch = Batch::new(thread, annals::base::Namespace::root(), None);
        batch.checkpoints.push(NewCheckpoint::new(id, None, 0, Source::Update, store.now()));
        store.commit(&batch).map_err(|error| format!("a commit after the cut: {error}"))?;
        let mut after = read().map_err(|error| format!("read: {error}"))?;
        if after.remove("t:after-the-cut").is_none() || after != view {
            return Err("a commit after the cut changed other threads".into());
        }
        let report = store.check().map_err(|error| format!("check: {error}"))?;
        if let Some(problem) = report.problems.first() {
            return Err(format!("check finds {problem} after a commit"));
        }
    }
    Ok(Seen::View(view))
}

/// The workloads to be cut, and the number of cuts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The seed of the first workload; those after it count up.
    pub(crate) seed: u64,
    pub(crate) traces: u64,
    pub(crate) per_trace: usize,
    pub(crate) jobs: usize,
}

/// Records workloads and cuts them, on several threads.
pub(crate) fn run(plan: Plan, synchronous: Synchronous) -> Counts {
    let next = std::sync::atomic::AtomicU64::new(0);
    let work = || {
        let mut counts = Counts::default();
        loop {
            let number = next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            if number >= plan.traces {
                return counts;
            }
            let seed = plan.seed + number;
            counts.add(one(seed, plan.per_trace, synchronous).unwrap_or_else(|problem| broken(seed, &problem)));
        }
    };
    let mut counts = Counts::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.jobs.max(1)).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            match thread.join() {
                Ok(part) => counts.add(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    counts
}

fn one(seed: u64, per_trace: usize, synchronous: Synchronous) -> Result<Counts, String> {
    let trace = Trace::record(seed, synchronous)?;
    let mut replay = Replay::new(&trace, seed, None)?;
    replay.run(per_trace)?;
    Ok(replay.counts)
}

/// Returns the counts of a workload that could not be recorded: it counts as torn.
fn broken(seed: u64, problem: &str) -> Counts {
    let failure = format!("seed {seed}: {problem}; repeat: annals-sim cuts --seed {seed} --traces 1");
    Counts { traces: 1, torn: 1, failures: vec![failure], ..Counts::default() }
}
