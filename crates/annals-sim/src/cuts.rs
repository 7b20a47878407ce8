//! Power cuts: the store is opened and compared after a cut behind any operation of a recorded workload.

use std::collections::HashMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annals::base::ThreadId;
use annals::rusqlite::{self, Connection, OpenFlags};
use annals::store::batch::{Batch, NewCheckpoint};
use annals::store::{OpenOptions, Source, Store, Synchronous};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::disk::{CutMode, Disk, Image};
use crate::log::{DiskLog, DiskOp, STORE, StoreFile};
use crate::observe::{self, Deadline, StoreView};
use crate::rng::Rng;
use crate::trace::{CutVerdict, ScratchFolder, Trace};
use crate::watch::FolderWatch;

/// The counts of a run of cuts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Cuts that were judged.
    pub(crate) run: u64,
    /// Cuts whose files differ from those of every other cut of their trace.
    pub(crate) distinct: u64,
    /// Cuts after which the library opened the files: SQLite recovers those of each distinct one, and one of the cuts
    /// that leave equal content is opened and read.
    pub(crate) opened: u64,
    /// Cuts while space was reclaimed or returned.
    pub(crate) in_compaction: u64,
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
        self.opened += other.opened;
        self.in_compaction += other.in_compaction;
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
enum CutContent {
    Unopened(String),
    Problem(String),
    View(StoreView),
}

/// The places of the cuts of a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CutPlaces {
    /// So many random ones, in the modes in turn. Half of them are in work on the file, if the trace has such.
    Random(usize),
    /// After every n-th operation, in each mode.
    Every(usize),
}

/// Replays cuts of one trace.
pub(crate) struct CutReplay<'a> {
    trace: &'a Trace,
    seed: u64,
    scratch: ScratchFolder,
    /// The cuts by the hash of their files.
    seen: HashMap<u64, Arc<CutContent>>,
    /// The cuts by the hash of what SQLite recovers from their files.
    recovered: HashMap<u64, Arc<CutContent>>,
    /// The fault that the trace was given, for the command that repeats a failure.
    control: Option<&'static str>,
    repeat: String,
    pub(crate) counts: Counts,
}

/// One in so many distinct cuts is followed by a cut of its recovery.
const RECOVERY_EVERY: u64 = 16;
/// One in so many cuts that are opened is followed by a commit.
const COMMIT_EVERY: u64 = 8;
/// One in so many distinct cuts is opened by the library, also if it leaves equal content as another.
const OPEN_EVERY: u64 = 32;

impl<'a> CutReplay<'a> {
    /// Prepares to replay a trace.
    pub(crate) fn new(trace: &'a Trace, seed: u64, control: Option<&'static str>) -> Result<Self, String> {
        let scratch = ScratchFolder::new().map_err(|error| error.to_string())?;
        let counts = Counts { traces: 1, ops: trace.ops.len() as u64, ..Counts::default() };
        let (seen, recovered) = (HashMap::new(), HashMap::new());
        Ok(Self { trace, seed, scratch, seen, recovered, control, repeat: String::new(), counts })
    }

    /// Cuts at places that the seed of the trace decides.
    pub(crate) fn run(&mut self, places: CutPlaces) -> Result<(), String> {
        let compactions = self.trace.spans();
        self.repeat = match places {
            CutPlaces::Random(count) => format!("--cuts-per-trace {count}"),
            CutPlaces::Every(stride) => format!("--stride {stride}"),
        };
        let mut disk = Disk::new(self.seed);
        let mut done = 0;
        for (place, number) in self.places(places, &compactions) {
            self.trace.ops[done..place].iter().for_each(|op| disk.apply(op));
            done = place;
            self.counts.in_compaction += u64::from(compactions.iter().any(|span| span.contains(&place)));
            self.cut(&disk, place, number)?;
        }
        Ok(())
    }

    /// Returns the places in their order, each with a number that decides the mode and the randomness of the cut.
    fn places(&self, places: CutPlaces, work: &[Range<usize>]) -> Vec<(usize, usize)> {
        let end = self.trace.ops.len() + 1;
        let modes = CutMode::ALL.len();
        let count = match places {
            CutPlaces::Every(stride) => {
                let every = (0..end).step_by(stride);
                return every.flat_map(|place| (0..modes).map(move |mode| (place, place * modes + mode))).collect();
            }
            CutPlaces::Random(count) => count,
        };
        let mut rng = Rng::stream(self.seed, 2);
        let mut place = || match work.get(rng.below(2 * work.len())) {
            Some(span) => span.start + rng.below(span.len()),
            None => rng.below(end),
        };
        let mut places: Vec<(usize, usize)> = (0..count).map(|number| (place(), number)).collect();
        places.sort_unstable();
        places
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
        let log = Arc::new(DiskLog::memory());
        let watched = FolderWatch::register(self.scratch.path(), Some(Arc::clone(&log)));
        lay(self.scratch.path(), image)?;
        // The reads after it write nothing, and its error is found by a look.
        _ = catch_unwind(AssertUnwindSafe(|| drop(Store::open_with(self.scratch.store(), Self::options()))));
        drop(watched);
        let ops = log.take();
        let mut disk = Disk::with(image, rng.next());
        let end = rng.below(ops.len() + 1);
        ops[..end].iter().for_each(|op: &DiskOp| disk.apply(op));
        let again = disk.cut(CutMode::ALL[rng.below(CutMode::ALL.len())], rng);
        self.counts.run += 1;
        self.counts.in_recovery += 1;
        let (seen, _) = self.look(&again)?;
        self.judge(&seen, place, &format!("in recovery after {end}"));
        Ok(())
    }

    /// Reads the files of a cut. Equal files are read once, and so are files from which SQLite
    /// recovers equal content.
    fn look(&mut self, image: &Image) -> Result<(Arc<CutContent>, bool), String> {
        let hash = hash_of(image);
        if let Some(seen) = self.seen.get(&hash) {
            return Ok((Arc::clone(seen), false));
        }
        let folder = self.scratch.path();
        lay(folder, image)?;
        let content = recover(folder, image);
        let key = content.map(|content| content_key(image, &content));
        let is_opened = (self.seen.len() as u64).is_multiple_of(OPEN_EVERY);
        let known = key.and_then(|key| self.recovered.get(&key)).filter(|_| !is_opened).map(Arc::clone);
        let seen = match known {
            Some(seen) => seen,
            None => {
                lay(folder, image)?;
                self.counts.opened += 1;
                let commits = self.counts.opened.is_multiple_of(COMMIT_EVERY);
                let seen = Arc::new(open_and_look(folder, Self::options(), commits));
                if let Some(key) = key {
                    self.recovered.insert(key, Arc::clone(&seen));
                }
                seen
            }
        };
        self.seen.insert(hash, Arc::clone(&seen));
        Ok((seen, true))
    }

    fn options() -> OpenOptions {
        OpenOptions::new().synchronous(Synchronous::Full).head_cache_bytes(0)
    }

    fn judge(&mut self, seen: &CutContent, place: usize, how: &str) {
        let problem = match seen {
            CutContent::Unopened(error) => {
                self.counts.unopened += 1;
                format!("did not open: {error}")
            }
            CutContent::Problem(problem) => {
                self.counts.torn += 1;
                problem.clone()
            }
            CutContent::View(view) => match self.trace.judge(view, place) {
                CutVerdict::Good => return,
                CutVerdict::Lost(entity, count) => {
                    self.counts.lost += 1;
                    format!("{entity} lost {count} acknowledged changes")
                }
                CutVerdict::Wrong(problem) => {
                    self.counts.torn += 1;
                    problem
                }
            },
        };
        if self.counts.failures.len() < FAILURES_MAX {
            let control = self.control.map_or_else(|| "cuts".to_owned(), |name| format!("controls --only {name}"));
            let repeat = format!("annals-sim {control} --seed {} --traces 1 {}", self.seed, self.repeat);
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
    for (name, content) in StoreFile::ALL.into_iter().zip(image) {
        let path = folder.join(name.file());
        match content {
            Some(content) => std::fs::write(&path, content).map_err(|error| error.to_string())?,
            None => _ = std::fs::remove_file(&path),
        }
    }
    Ok(())
}

/// Lets SQLite recover the files of a cut, and returns the pages of the store: those in the log replace those in the
/// file, and torn frames are dropped. The result is `None` for files that the library has to open in any case.
fn recover(folder: &Path, image: &Image) -> Option<Vec<u8>> {
    let main = image[StoreFile::Main as usize].as_ref()?;
    if main.is_empty() || image[StoreFile::Journal as usize].is_some() {
        return None;
    }
    let path = folder.join(STORE);
    let copied = |path: &Path| -> rusqlite::Result<bool> {
        let conn =
            Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| Ok(row.get::<_, i64>(0)? == 0))
    };
    // An error of a damaged file is the library's to tell.
    copied(&path).ok().filter(|is_whole| *is_whole)?;
    std::fs::read(path).ok()
}

/// Returns the key of a cut: the recovered content, and the log that the library looks at besides.
fn content_key(image: &Image, content: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&xxh3_64(content).to_le_bytes());
    let log_bytes = image[StoreFile::Wal as usize].as_ref().map(|log| u8::from(!log.is_empty()));
    hash.update(&[log_bytes.map_or(2, |has_bytes| has_bytes)]);
    hash.digest()
}

/// Opens the store in a folder and reads everything; makes a commit as well, if it is told to.
fn open_and_look(folder: &Path, options: OpenOptions, commits: bool) -> CutContent {
    let path = folder.join(STORE);
    let opened = catch_unwind(AssertUnwindSafe(|| {
        let store = match Store::open_with(&path, options) {
            Ok(store) => store,
            Err(error) => return CutContent::Unopened(format!("{}: {error}", error.code())),
        };
        look(&store, commits).unwrap_or_else(CutContent::Problem)
    }));
    opened.unwrap_or_else(|_| CutContent::Problem("panic".into()))
}

fn look(store: &Store, commits: bool) -> Result<CutContent, String> {
    let report = store.check().map_err(|error| format!("check: {error}"))?;
    if let Some(problem) = report.problems.first() {
        return Err(format!("check finds {problem}"));
    }
    let read = || observe::with_ledger(store, Deadline::after(Duration::from_secs(300)));
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
    Ok(CutContent::View(view))
}

/// The workloads to be cut, and the number of cuts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CutPlan {
    /// The seed of the first workload; those after it count up.
    pub(crate) seed: u64,
    pub(crate) traces: u64,
    pub(crate) places: CutPlaces,
    pub(crate) jobs: usize,
}

/// Records workloads and cuts them, on several threads.
pub(crate) fn run(plan: CutPlan, synchronous: Synchronous) -> Counts {
    let next = std::sync::atomic::AtomicU64::new(0);
    let work = || {
        let mut counts = Counts::default();
        loop {
            let number = next.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            if number >= plan.traces {
                return counts;
            }
            let seed = plan.seed + number;
            counts.add(one(seed, plan.places, synchronous).unwrap_or_else(|problem| broken(seed, &problem)));
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

fn one(seed: u64, places: CutPlaces, synchronous: Synchronous) -> Result<Counts, String> {
    let trace = Trace::record(seed, synchronous)?;
    let mut replay = CutReplay::new(&trace, seed, None)?;
    replay.run(places)?;
    Ok(replay.counts)
}

/// Returns the counts of a workload that could not be recorded: it counts as torn.
fn broken(seed: u64, problem: &str) -> Counts {
    let failure = format!("seed {seed}: {problem}; repeat: annals-sim cuts --seed {seed} --traces 1");
    Counts { traces: 1, torn: 1, failures: vec![failure], ..Counts::default() }
}
