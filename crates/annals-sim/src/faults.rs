//! Errors of the disk, of the memory and of the locks at the n-th call of a kind.
//!
//! After each run the fault is over, and the store is opened five times: as the handle left it, as the end of the
//! process would have left it, and after power cuts. Everything that was acknowledged must be there, everything that an
//! error said was not written must not be, and only a call with an unknown outcome may be either.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annals::base::{Clock as _, SystemClock};
use annals::store::{OpenOptions, Store, StoreError, Synchronous};

use crate::cuts::lay;
use crate::disk::{CutMode, Disk};
use crate::log::{DiskLog, DiskOp, STORE};
use crate::model;
use crate::observe::{self, Deadline};
use crate::proxy::{Calls, StoreCall, StoreCallOutcome};
use crate::rng::Rng;
use crate::trace::{ScratchFolder, WorkloadKind};
use crate::watch::{FAULT_KINDS, FaultKind, FolderWatch, InjectedFault};
use crate::workload::{self, WorkloadShape};

/// Time that a run may take on a busy machine: a caller waits for a lock that is not there some times, and at most 10 s
/// each time.
const SLOW: Duration = Duration::from_secs(120);
/// Failures that are described.
const FAILURES_MAX: usize = 10;

/// The counts of the runs with one kind of fault.
#[derive(Clone, Debug, Default)]
pub(crate) struct KindCounts {
    /// Runs in which a call failed.
    pub(crate) fired: u64,
    /// Calls of the workload that were acknowledged, refused, and of unknown outcome.
    pub(crate) acknowledged: u64,
    pub(crate) refused: u64,
    pub(crate) unknown: u64,
}

/// The counts of all runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultCounts {
    pub(crate) run: u64,
    /// Runs after which a store did not show what its callers were told.
    pub(crate) lied: u64,
    /// Runs after which a power cut took acknowledged calls, because a sync before them had failed.
    pub(crate) lost_after_failed_sync: u64,
    /// Runs in which a store was not made, and a power cut left a file that is refused. Nothing was acknowledged.
    pub(crate) unmade: u64,
    /// Runs after which a store did not open, or its check found a problem.
    pub(crate) broken: u64,
    pub(crate) panics: u64,
    /// Runs that took longer than [`SLOW`].
    pub(crate) slow: u64,
    pub(crate) slowest_ms: u64,
    pub(crate) kinds: BTreeMap<&'static str, KindCounts>,
    pub(crate) failures: Vec<String>,
}

impl FaultCounts {
    /// Returns the number of runs that were not as they must be.
    pub(crate) fn bad(&self) -> u64 {
        self.lied + self.lost_after_failed_sync + self.broken + self.panics + self.slow
    }

    fn add(&mut self, other: Self) {
        self.run += other.run;
        self.lied += other.lied;
        self.lost_after_failed_sync += other.lost_after_failed_sync;
        self.unmade += other.unmade;
        self.broken += other.broken;
        self.panics += other.panics;
        self.slow += other.slow;
        self.slowest_ms = self.slowest_ms.max(other.slowest_ms);
        for (name, counts) in other.kinds {
            let sum = self.kinds.entry(name).or_default();
            sum.fired += counts.fired;
            sum.acknowledged += counts.acknowledged;
            sum.refused += counts.refused;
            sum.unknown += counts.unknown;
        }
        self.failures.extend(other.failures);
        self.failures.truncate(FAILURES_MAX);
    }
}

/// The faults to be injected.
#[derive(Clone, Debug)]
pub(crate) struct FaultPlan {
    pub(crate) seed: u64,
    /// Every so many calls of a kind.
    pub(crate) stride: u64,
    pub(crate) jobs: usize,
    /// One kind alone.
    pub(crate) only: Option<String>,
    /// One call alone.
    pub(crate) nth: Option<u64>,
}

fn shape(seed: u64) -> WorkloadShape {
    let shape = WorkloadKind::Single.shape(seed, 0, Synchronous::Full);
    WorkloadShape { acts: 8, rounds: 2, busy_ms: 20, ..shape }
}

/// Runs the workload with every kind of fault, transient and persistent, at every `stride`-th call.
pub(crate) fn run(plan: &FaultPlan) -> Result<FaultCounts, String> {
    let kinds = FAULT_KINDS.iter().filter(|kind| plan.only.as_ref().is_none_or(|only| only == kind.name));
    let calls = count_calls(plan.seed)?;
    let mut cases: Vec<InjectedFault> = Vec::new();
    for kind in kinds {
        let last = calls.iter().find(|(name, _)| *name == kind.name).map_or(0, |(_, count)| *count);
        // The kinds begin at different calls, so that a stride does not pass over the same ones in all of them.
        let first = 1 + cases.len() as u64 % plan.stride.min(last.max(1));
        for nth in (first..=last).step_by(plan.stride as usize).filter(|nth| plan.nth.is_none_or(|only| only == *nth)) {
            cases.extend([false, true].map(|persistent| InjectedFault { kind: *kind, nth, persistent }));
        }
    }
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut counts = FaultCounts::default();
        while let Some(fault) = cases.get(next.fetch_add(1, std::sync::atomic::Ordering::SeqCst)) {
            counts.add(one(plan.seed, *fault)?);
        }
        Ok::<_, String>(counts)
    };
    let mut counts = FaultCounts::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..plan.jobs.max(1)).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            counts.add(thread.join().unwrap_or_else(|_| Err("the harness panicked".into()))?);
        }
        Ok::<(), String>(())
    })?;
    Ok(counts)
}

/// Counts the calls of each kind in a run without a fault.
fn count_calls(seed: u64) -> Result<Vec<(&'static str, u64)>, String> {
    let scratch = ScratchFolder::new().map_err(|error| error.to_string())?;
    let log = Arc::new(DiskLog::memory());
    let watched = FolderWatch::register(scratch.path(), Some(Arc::clone(&log)));
    let failures = workload::run(&scratch.store(), &shape(seed), &Calls::new(log, 0, true));
    match failures.first() {
        Some(failure) => Err(format!("a call failed without a fault: {failure}")),
        None => Ok(FAULT_KINDS.iter().map(|kind| (kind.name, watched.calls(kind.call))).collect()),
    }
}

fn one(seed: u64, fault: InjectedFault) -> Result<FaultCounts, String> {
    let scratch = ScratchFolder::new().map_err(|error| error.to_string())?;
    let log = Arc::new(DiskLog::memory());
    let watched = FolderWatch::register(scratch.path(), Some(Arc::clone(&log)));
    watched.set_fault(Some(fault));
    let calls = Calls::new(Arc::clone(&log), 0, true);
    let begin = SystemClock.elapsed();
    let ran = catch_unwind(AssertUnwindSafe(|| workload::run(&scratch.store(), &shape(seed), &calls)));
    let took = SystemClock.elapsed() - begin;
    let fired = watched.fired() > 0;
    watched.set_fault(None);
    drop(watched);
    let mut counts = FaultCounts { run: 1, slowest_ms: took.as_millis() as u64, ..FaultCounts::default() };
    let jobs = calls.take();
    let kind = counts.kinds.entry(fault.kind.name).or_default();
    kind.fired = u64::from(fired);
    for (_, outcome) in &jobs {
        match outcome {
            StoreCallOutcome::Acknowledged => kind.acknowledged += 1,
            StoreCallOutcome::Refused(_) => kind.refused += 1,
            StoreCallOutcome::Unknown(_) | StoreCallOutcome::Open => kind.unknown += 1,
        }
    }
    let mut problems = Vec::new();
    if let Err(panic) = ran {
        counts.panics = 1;
        let text = panic.downcast_ref::<String>().cloned();
        problems.push(format!(
            "panic: {}",
            text.or(panic.downcast_ref::<&str>().map(|text| (*text).into())).unwrap_or_default()
        ));
    }
    if took > SLOW {
        counts.slow = 1;
        problems.push(format!("it took {} ms", took.as_millis()));
    }
    match judge(&scratch, &log.take(), &jobs, seed)? {
        Judged::Good => {}
        Judged::Unmade => counts.unmade = 1,
        Judged::Lied(problem) => {
            counts.lied = 1;
            problems.push(problem);
        }
        Judged::LostAfterFailedSync(problem) => {
            counts.lost_after_failed_sync = 1;
            problems.push(problem);
        }
        Judged::Broken(problem) => {
            counts.broken = 1;
            problems.push(problem);
        }
    }
    if !problems.is_empty() {
        counts.failures.push(format!("{}; repeat: {}", problems.join("; "), repeat(seed, fault.kind, fault)));
    }
    Ok(counts)
}

fn repeat(seed: u64, kind: FaultKind, fault: InjectedFault) -> String {
    let lasts = if fault.persistent { "persistent" } else { "transient" };
    format!("annals-sim faults --seed {seed} --only {} --nth {} ({lasts})", kind.name, fault.nth)
}

/// The verdict on the stores that a run left.
enum Judged {
    Good,
    /// Every sync of a new file failed, and a power cut left a part of it, which is refused.
    Unmade,
    Lied(String),
    /// A sync failed, and a cut of the power took calls that were acknowledged after that.
    LostAfterFailedSync(String),
    Broken(String),
}

fn judge(
    scratch: &ScratchFolder,
    ops: &[DiskOp],
    jobs: &[(StoreCall, StoreCallOutcome)],
    seed: u64,
) -> Result<Judged, String> {
    let possible = match model::possible(jobs) {
        Ok(possible) => possible,
        Err(problem) => return Ok(Judged::Lied(problem)),
    };
    let look = |folder: &Path, how: &str| match view_of(folder) {
        Err(problem) => Some(Judged::Broken(format!("{how}: {problem}"))),
        Ok(view) => {
            let differences = model::differences(&view, &possible);
            (!differences.is_empty()).then(|| Judged::Lied(format!("{how}: {}", differences.join(", "))))
        }
    };
    if let Some(bad) = look(scratch.path(), "as the handle left it") {
        return Ok(bad);
    }
    // In a folder of its own, which no handle of the run has open.
    let after_cut = ScratchFolder::new().map_err(|error| error.to_string())?;
    let is_call = |op: &DiskOp| matches!(op, DiskOp::Begin { .. } | DiskOp::Ack { .. } | DiskOp::Fail { .. });
    let closing = ops.iter().rposition(is_call).map_or(ops.len(), |last| last + 1);
    let mut disk = Disk::new(seed);
    ops[..closing].iter().for_each(|op| disk.apply(op));
    let mut rng = Rng::stream(seed, 3);
    let is_acknowledged = jobs.iter().any(|(_, outcome)| *outcome == StoreCallOutcome::Acknowledged);
    let mut judged = Judged::Good;
    for mode in [CutMode::Everything, CutMode::Nothing, CutMode::Torn(50), CutMode::Subset] {
        let image = disk.cut(mode, &mut rng);
        lay(after_cut.path(), &image)?;
        if !is_acknowledged && mode != CutMode::Everything && is_refused(after_cut.path()) {
            judged = Judged::Unmade;
            continue;
        }
        if let Some(bad) = look(after_cut.path(), &format!("after a cut before closing ({mode:?})")) {
            let sync_failed = ops[..closing].iter().any(|op| matches!(op, DiskOp::SyncFailed { .. }));
            return Ok(match bad {
                Judged::Lied(problem) | Judged::Broken(problem) if sync_failed && mode != CutMode::Everything => {
                    Judged::LostAfterFailedSync(problem)
                }
                bad => bad,
            });
        }
    }
    Ok(judged)
}

/// Returns whether a file is refused as one that is not a store, or that is not whole.
fn is_refused(folder: &Path) -> bool {
    let opened = Store::open_with(folder.join(STORE), OpenOptions::new());
    matches!(opened, Err(StoreError::NotAStore { .. } | StoreError::Corrupt { .. }))
}

fn view_of(folder: &Path) -> Result<observe::StoreView, String> {
    let options = OpenOptions::new().head_cache_bytes(0);
    let opened = Store::open_with(folder.join(STORE), options);
    let store = opened.map_err(|error| format!("it does not open: {}: {error}", error.code()))?;
    let report = store.check().map_err(|error| format!("check: {error}"))?;
    if let Some(problem) = report.problems.first() {
        return Err(format!("check finds {problem}"));
    }
    observe::with_ledger(&store, Deadline::after(Duration::from_secs(300))).map_err(|error| format!("read: {error}"))
}
