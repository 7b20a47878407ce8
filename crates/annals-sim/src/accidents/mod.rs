//! Accidents: files of a store are removed, replaced, overwritten, emptied or cut short, while it is closed, while
//! processes use it, or after they were killed.
//!
//! Each case has processes and files of its own. After the accident a process that lived through it commits and closes;
//! then the store is opened for reading, for writing, and for reading again, each time in a new process, and checked.
//! Either everything acknowledged is there, or an error or a report says that it is not. Controls run with each call.

mod cases;
mod files;
mod judge;
mod process;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cases::{AccidentCase, PlantedAccident};
use files::FileHistory;
use judge::{AccidentFault, AccidentResult};
use parking_lot::Mutex;
use process::WorkerProgram;

use crate::rng::Rng;
pub(crate) use worker::work;

/// The time within which an order must be answered. A busy machine takes a hundredth of it.
const ORDER_LIMIT: Duration = Duration::from_secs(120);
/// The limit of the control that does not answer.
const CONTROL_LIMIT: Duration = Duration::from_millis(500);
/// Failures that are described.
const FAILURES_MAX: usize = 200;

/// The cases of a run.
#[derive(Clone, Debug)]
pub(crate) struct AccidentPlan {
    pub(crate) seed: u64,
    /// Every how many-th case is run, in an order that the seed decides.
    pub(crate) share: usize,
    /// The program of the workers; this one if there is none.
    pub(crate) worker: Option<PathBuf>,
    /// A part of the name of the cases.
    pub(crate) only: Option<String>,
    pub(crate) jobs: usize,
}

/// The counts of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccidentCounts {
    /// Cases whose accident changed something, and others.
    pub(crate) run: u64,
    pub(crate) without_effect: u64,
    pub(crate) lost_silently: u64,
    pub(crate) changed_by_refused_open: u64,
    pub(crate) acked_for_nothing: u64,
    pub(crate) lies: u64,
    pub(crate) unsettled: u64,
    pub(crate) panics: u64,
    pub(crate) hangs: u64,
    /// Cases whose loss no program could tell, by their reasons.
    pub(crate) untold: BTreeMap<&'static str, u64>,
    /// Openings that were refused, that opened and reported, and that showed everything.
    pub(crate) refused: u64,
    pub(crate) reported: u64,
    pub(crate) whole: u64,
    /// Stores that were sound after a log was put aside.
    pub(crate) settled: u64,
    /// Cases in which the operating system ended the process.
    pub(crate) ended_by_system: u64,
    /// Controls, and those of them that were found.
    pub(crate) controls: u64,
    pub(crate) controls_found: u64,
    pub(crate) failures: Vec<String>,
}

impl AccidentCounts {
    /// Returns the number of failures.
    pub(crate) fn bad(&self) -> u64 {
        let missed = self.controls - self.controls_found;
        let untrue = self.lost_silently + self.acked_for_nothing + self.changed_by_refused_open + self.lies;
        untrue + self.unsettled + self.panics + self.hangs + missed
    }

    fn add(&mut self, case: &AccidentCase, result: &AccidentResult) {
        if !result.is_real {
            self.without_effect += 1;
            return;
        }
        self.run += 1;
        self.refused += result.refused;
        self.reported += result.reported;
        self.whole += result.whole;
        self.settled += result.settled;
        self.ended_by_system += u64::from(result.is_ended_by_system);
        // A case with a failure counts once for each kind.
        let kinds: BTreeSet<AccidentFault> = result.faults.iter().map(|(fault, _)| *fault).collect();
        for kind in &kinds {
            *match kind {
                AccidentFault::LostSilently => &mut self.lost_silently,
                AccidentFault::ChangedByRefusedOpen => &mut self.changed_by_refused_open,
                AccidentFault::AckedForNothing => &mut self.acked_for_nothing,
                AccidentFault::Lie => &mut self.lies,
                AccidentFault::Unsettled => &mut self.unsettled,
                AccidentFault::Panic => &mut self.panics,
                AccidentFault::Hang => &mut self.hangs,
            } += 1;
        }
        if let Some(reason) = result.untold.filter(|_| kinds.is_empty()) {
            *self.untold.entry(reason).or_default() += 1;
        }
        for (fault, what) in &result.faults {
            if self.failures.len() < FAILURES_MAX {
                self.failures.push(format!("{}: {fault:?}: {what}", case.name));
            }
        }
    }

    fn add_control(&mut self, planted: PlantedAccident, case: &AccidentCase, result: &AccidentResult) {
        let expected = match planted {
            PlantedAccident::ForgedAck | PlantedAccident::RawReplay | PlantedAccident::WithoutExcuse => {
                AccidentFault::LostSilently
            }
            PlantedAccident::ChangedFile => AccidentFault::ChangedByRefusedOpen,
            PlantedAccident::FalseRefusal => AccidentFault::Lie,
            PlantedAccident::Panic => AccidentFault::Panic,
            PlantedAccident::Hang => AccidentFault::Hang,
        };
        self.controls += 1;
        if result.faults.iter().any(|(fault, _)| *fault == expected) {
            self.controls_found += 1;
        } else {
            self.failures.push(format!("{}: the control was not found: {result:?}", case.name));
        }
    }
}

/// Runs accidents and the controls.
pub(crate) fn run(plan: &AccidentPlan) -> Result<AccidentCounts, String> {
    let path = match &plan.worker {
        Some(path) => path.clone(),
        None => std::env::current_exe().map_err(|error| error.to_string())?,
    };
    let program = WorkerProgram { path, limit: ORDER_LIMIT };
    let [plain, encrypted] = [FileHistory::make(&program, false)?, FileHistory::make(&program, true)?];
    let all = [cases::cases(&plain, &encrypted), cases::cases(&encrypted, &plain)].concat();
    let is_meant = |case: &AccidentCase| plan.only.as_ref().is_none_or(|only| case.name.contains(only.as_str()));
    let mut rng = Rng::new(plan.seed);
    let mut chosen: Vec<(u64, AccidentCase)> =
        all.into_iter().filter(is_meant).map(|case| (rng.next(), case)).collect();
    // A share has cases of all kinds.
    chosen.sort_by_key(|(at, _)| *at);
    let mut chosen: Vec<AccidentCase> = chosen.into_iter().map(|(_, case)| case).step_by(plan.share.max(1)).collect();
    chosen.extend(cases::controls(&plain, &encrypted));
    let next = AtomicUsize::new(0);
    let counts = Mutex::new(AccidentCounts::default());
    let problem = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..plan.jobs.max(1) {
            scope.spawn(|| {
                while let Some(case) = chosen.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let limit = if case.planted == Some(PlantedAccident::Hang) { CONTROL_LIMIT } else { ORDER_LIMIT };
                    let program = WorkerProgram { limit, ..program.clone() };
                    match (judge::run(&program, case, &plain.ten), case.planted) {
                        (Ok(result), None) => counts.lock().add(case, &result),
                        (Ok(result), Some(planted)) => counts.lock().add_control(planted, case, &result),
                        (Err(error), _) => *problem.lock() = Some(error),
                    }
                }
            });
        }
    });
    match problem.into_inner() {
        Some(problem) => Err(problem),
        None => Ok(counts.into_inner()),
    }
}
