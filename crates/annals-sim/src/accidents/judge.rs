//! Runs an accident and judges the answers and the items of the store afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rustix::process::Signal;

use super::cases::{AccidentAct, AccidentCase, AccidentStep, ExcusedState, Moment, PlantedAccident};
use super::files::{AccidentTarget, StoreFiles, items, replay_older, restrict};
use super::process::{AnswerEnd, OrderAnswer, OrderedProcess, WorkerProgram};
use crate::trace::ScratchFolder;

/// The kinds of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AccidentFault {
    /// Acknowledged items are not there, or foreign ones are, and neither an error nor a report says so.
    LostSilently,
    /// An open was refused, or was for reading only, and file or log have changed.
    ChangedByRefusedOpen,
    /// A process acknowledged an item after the accident, and the store does not show it, whatever it reports.
    AckedForNothing,
    /// An error said that nothing was written or changed, and it was.
    Lie,
    /// A log that was refused was put aside, and the store does not open, or its check finds a problem.
    Unsettled,
    Panic,
    /// A process did not answer, or a lock without a holder was held.
    Hang,
}

/// The result of a case.
#[derive(Clone, Debug, Default)]
pub(super) struct AccidentResult {
    /// False if the accident changed nothing.
    pub(super) is_real: bool,
    pub(super) faults: Vec<(AccidentFault, String)>,
    /// Openings that were refused, that opened and reported, and that showed everything.
    pub(super) refused: u64,
    pub(super) reported: u64,
    pub(super) whole: u64,
    /// True if the log was put aside, and the store was sound without it.
    pub(super) settled: u64,
    /// The reason for which the loss could not be told.
    pub(super) untold: Option<&'static str>,
    /// True if the operating system ended the process, because memory that it had mapped was cut off.
    pub(super) is_ended_by_system: bool,
}

/// The texts by which an error claims that the disk is as before.
const CLAIMS: [&str; 4] = ["nothing was written", "not written", "was not changed", "changed nothing"];

/// The codes of a refusal because of the log, after which the log can be put aside.
const LOG_ERRORS: [&str; 2] = ["FOREIGN_LOG ", "LOG_MISSING "];

fn claims(text: &str) -> bool {
    CLAIMS.iter().any(|claim| text.contains(claim))
}

/// A run of one case.
struct Trial<'a> {
    program: &'a WorkerProgram,
    case: &'a AccidentCase,
    /// An older state of the store, for a control.
    older: &'a StoreFiles,
    scratch: ScratchFolder,
    /// Items that were acknowledged and that no report has given up.
    expected: BTreeSet<String>,
    /// Those among them that were acknowledged after the accident.
    after: BTreeSet<String>,
    attempted: BTreeSet<String>,
    /// Items of which an error said that they were not written.
    denied: BTreeMap<String, String>,
    /// The files that were moved to other names.
    away: Vec<(AccidentTarget, PathBuf)>,
    /// The files of the session when it had 25 items.
    earlier: StoreFiles,
    /// The error of a writer that was refused because of the log.
    refusal: Option<String>,
    result: AccidentResult,
}

/// Runs a case.
pub(super) fn run(program: &WorkerProgram, case: &AccidentCase, older: &StoreFiles) -> Result<AccidentResult, String> {
    let scratch = ScratchFolder::new().map_err(|error| error.to_string())?;
    let expected: BTreeSet<String> = items("mine", case.moment.acknowledged()).into_iter().collect();
    let mut trial = Trial {
        program,
        case,
        older,
        scratch,
        attempted: expected.clone(),
        expected,
        after: BTreeSet::new(),
        denied: BTreeMap::new(),
        away: Vec::new(),
        earlier: StoreFiles::default(),
        refusal: None,
        result: AccidentResult::default(),
    };
    trial.run()?;
    Ok(trial.result)
}

impl Trial<'_> {
    fn store(&self) -> PathBuf {
        self.scratch.store()
    }

    fn fault(&mut self, fault: AccidentFault, what: impl Into<String>) {
        self.result.faults.push((fault, what.into()));
    }

    fn start(&self, author: &str, access: &str) -> Result<OrderedProcess, String> {
        OrderedProcess::start(self.program, &self.store(), author, self.case.encrypted, access)
    }

    fn run(&mut self) -> Result<(), String> {
        self.case.start.lay(&self.store())?;
        if self.case.moment.is_live() {
            self.live()?;
        } else {
            self.befall(&self.case.steps)?;
        }
        match self.case.planted {
            Some(PlantedAccident::ForgedAck) => _ = self.expected.insert("mine-99".to_owned()),
            Some(PlantedAccident::RawReplay) => replay_older(&self.store(), self.older)?,
            _ => {}
        }
        self.open("reader", "read", 0)?;
        self.open("writer", "write", 3)?;
        self.open("reader afterwards", "read", 0)?;
        self.settle()
    }

    /// Puts a log aside that was refused, or accepts that one is missing: the file is a store without it.
    fn settle(&mut self) -> Result<(), String> {
        let Some(refusal) = self.refusal.take() else { return Ok(()) };
        let mut process = self.start("later", "write")?;
        let answers = ["settle", "open", "items", "check"].map(|order| process.order(order));
        let problem = ['E', 'K', 'X'].into_iter().find_map(|letter| answers.iter().find_map(|it| it.line(letter)));
        let problem = problem.map(|problem| format!("{problem}; the refusal: {refusal}"));
        if let Some(problem) = problem {
            self.fault(AccidentFault::Unsettled, problem);
        } else {
            self.result.settled += 1;
            let goes_on = self.commit(&mut process, "later", 11, 1);
            if goes_on && !self.after.contains("later-11") {
                self.fault(AccidentFault::Unsettled, "a commit after the log was put aside is refused");
            }
        }
        self.close(process);
        Ok(())
    }

    /// The accident of a store that a process has open.
    fn live(&mut self) -> Result<(), String> {
        let mut worker = self.start("mine", "write")?;
        worker.must("open")?;
        if self.case.moment != Moment::Idle {
            worker.must("commit 21 26")?;
            self.earlier = StoreFiles::read(&self.store());
            worker.must("commit 26 31")?;
        }
        let call = match self.case.moment {
            Moment::BeforeWrite => Some("halt write"),
            Moment::BeforeSync => Some("halt sync"),
            _ => None,
        };
        let mut goes_on = true;
        if let Some(halt) = call {
            worker.must(halt)?;
            self.attempted.insert("mine-31".to_owned());
            let halted = worker.must("commit 31 32")?;
            if !halted.is_halted() {
                return Err(format!("{}: the commit was not halted", self.case.name));
            }
            self.befall(&self.case.steps)?;
            let answer = worker.order("go");
            // The accident met this commit: it counts as one before it.
            goes_on = self.take(&answer, "mine", false);
        } else {
            self.befall(&self.case.steps)?;
        }
        if !goes_on {
            return Ok(());
        }
        if self.case.second { self.in_turn(worker) } else { self.go_on(worker) }
    }

    /// Lets the process commit and close.
    fn go_on(&mut self, mut worker: OrderedProcess) -> Result<(), String> {
        let goes_on = self.commit(&mut worker, "mine", 32, 3);
        self.befall(&self.case.later)?;
        if goes_on {
            self.close(worker);
        }
        Ok(())
    }

    /// Opens the store in a second process, and lets both commit in turn and close.
    fn in_turn(&mut self, mut worker: OrderedProcess) -> Result<(), String> {
        let mut goes_on = self.commit(&mut worker, "mine", 32, 1);
        let mut second = self.start("second", "write")?;
        let opened = second.order("open");
        let mut second_goes_on = self.take(&opened, "second", true) && opened.line('O').is_some();
        second_goes_on = second_goes_on && self.commit(&mut second, "second", 1, 1);
        goes_on = goes_on && self.commit(&mut worker, "mine", 33, 1);
        second_goes_on = second_goes_on && self.commit(&mut second, "second", 2, 1);
        if goes_on {
            self.close(worker);
        }
        if second_goes_on {
            self.close(second);
        }
        Ok(())
    }

    /// Lets a process commit. Returns whether it still answers.
    fn commit(&mut self, worker: &mut OrderedProcess, author: &str, first: u64, count: u64) -> bool {
        self.attempted.extend(items(author, first..=first + count - 1));
        let answer = worker.order(&format!("commit {first} {}", first + count));
        self.take(&answer, author, true)
    }

    fn close(&mut self, mut worker: OrderedProcess) {
        let answer = worker.order("close");
        if self.take(&answer, "", true) {
            let answer = worker.finish();
            self.take(&answer, "", true);
        }
    }

    /// Takes an answer. Returns whether the process still answers.
    fn take(&mut self, answer: &OrderAnswer, author: &str, is_after: bool) -> bool {
        for line in &answer.lines {
            let (kind, rest) = line.split_at(1);
            let (first, text) = rest.trim_start().split_once(' ').unwrap_or((rest.trim_start(), ""));
            let item = format!("{author}-{first}");
            match kind {
                "A" => {
                    self.expected.insert(item.clone());
                    if is_after {
                        self.after.insert(item);
                    }
                }
                "F" if claims(text) => _ = self.denied.insert(item, text.to_owned()),
                "X" => self.fault(AccidentFault::Panic, rest.trim_start()),
                _ => {}
            }
        }
        match answer.end {
            AnswerEnd::Complete => true,
            AnswerEnd::Hung => {
                self.fault(AccidentFault::Hang, "a process does not answer");
                false
            }
            // The memory map of a file that was cut off ends a process at its next access. No library can prevent it.
            AnswerEnd::Died(signal) if signal == Some(Signal::BUS.as_raw()) && self.cuts_memory() => {
                self.result.is_ended_by_system = true;
                false
            }
            AnswerEnd::Died(signal) => {
                self.fault(AccidentFault::Panic, format!("a process ended, signal {signal:?}"));
                false
            }
        }
    }

    /// Returns whether the accident cuts off the shared memory of a process.
    fn cuts_memory(&self) -> bool {
        let cuts = |step: &AccidentStep| {
            step.target == AccidentTarget::Memory
                && matches!(
                    step.act,
                    AccidentAct::Overwrite(_)
                        | AccidentAct::OverwriteByEarlier
                        | AccidentAct::Empty
                        | AccidentAct::Halve
                )
        };
        self.case.moment.is_live() && self.case.steps.iter().any(cuts)
    }

    /// Makes the steps of an accident.
    fn befall(&mut self, steps: &[AccidentStep]) -> Result<(), String> {
        for step in steps {
            let path = step.target.of(&self.store());
            let changed = self.step(step, &path).map_err(|error| format!("{}: {error}", self.case.name))?;
            self.result.is_real |= changed;
        }
        self.result.is_real |= steps.is_empty();
        Ok(())
    }

    /// Makes a step. Returns whether it changed anything.
    fn step(&mut self, step: &AccidentStep, path: &std::path::Path) -> Result<bool, String> {
        let failed = |error: std::io::Error| error.to_string();
        let before = std::fs::read(path).ok();
        let aside = path.with_extension("aside");
        match &step.act {
            AccidentAct::Remove => return Ok(before.is_some() && std::fs::remove_file(path).is_ok()),
            AccidentAct::Rename(bytes) => {
                std::fs::write(&aside, bytes).map_err(failed)?;
                restrict(&aside)?;
                std::fs::rename(&aside, path).map_err(failed)?;
                return Ok(true);
            }
            AccidentAct::Overwrite(bytes) => {
                std::fs::write(path, bytes).map_err(failed)?;
                restrict(path)?;
                return Ok(before.as_deref() != Some(bytes));
            }
            AccidentAct::OverwriteByEarlier => {
                let Some(bytes) = self.earlier.get(step.target) else { return Ok(false) };
                std::fs::write(path, bytes).map_err(failed)?;
                return Ok(before.as_deref() != Some(bytes));
            }
            AccidentAct::Empty | AccidentAct::Halve => {
                let length = before.map_or(0, |bytes| bytes.len() as u64);
                if length > 0 {
                    let file = std::fs::File::options().write(true).open(path).map_err(failed)?;
                    let left = if matches!(step.act, AccidentAct::Empty) { 0 } else { length / 2 };
                    file.set_len(left).map_err(failed)?;
                }
                return Ok(length > 0);
            }
            AccidentAct::MoveAway => {
                let away = self.scratch.path().join(format!("away-{:?}", step.target));
                if before.is_some() {
                    std::fs::rename(path, &away).map_err(failed)?;
                    self.away.push((step.target, away));
                }
            }
            AccidentAct::MoveBack => {
                for (target, away) in std::mem::take(&mut self.away) {
                    std::fs::rename(away, target.of(&self.store())).map_err(failed)?;
                }
            }
        }
        Ok(before.is_some())
    }

    /// Opens the store in a process of its own, reads and checks it, commits, and judges it.
    fn open(&mut self, who: &str, access: &str, commits: u64) -> Result<(), String> {
        let before = StoreFiles::read(&self.store());
        let mut process = self.start("later", access)?;
        let opened = process.order("open");
        if !self.take(&opened, "", true) {
            return Ok(());
        }
        if let Some(text) = opened.line('E') {
            return self.refused(who, text, process, &before);
        }
        let shown = process.order("items");
        let checked = if self.take(&shown, "", true) { process.order("check") } else { shown.clone() };
        if !self.take(&checked, "", true) {
            return Ok(());
        }
        let said = |letter| [&opened, &shown, &checked].into_iter().find_map(|answer| answer.line(letter));
        let report = said('E').or_else(|| said('K'));
        self.judge(who, &shown, report.map(str::to_owned));
        let goes_on = self.later_commits(&mut process, who, commits);
        if goes_on {
            self.close(process);
        }
        let now = StoreFiles::read(&self.store());
        // A reader may remove an empty log.
        if access == "read" && !now.is_same_store(&before) {
            self.fault(AccidentFault::ChangedByRefusedOpen, format!("{who}: {}", difference(&before, &now)));
        }
        Ok(())
    }

    /// The commits of a later process. Their numbers are its own.
    fn later_commits(&mut self, process: &mut OrderedProcess, who: &str, count: u64) -> bool {
        if count == 0 {
            return true;
        }
        let planted = match self.case.planted {
            Some(PlantedAccident::FalseRefusal) => "deny 9",
            Some(PlantedAccident::Panic) => "panic",
            Some(PlantedAccident::Hang) => "hang",
            _ => return self.commit(process, "later", 1, count),
        };
        let answer = process.order(planted);
        self.attempted.insert("later-9".to_owned());
        self.take(&answer, "later", true) && !who.is_empty()
    }

    /// Judges a refused open.
    fn refused(&mut self, who: &str, text: &str, process: OrderedProcess, before: &StoreFiles) -> Result<(), String> {
        self.result.refused += 1;
        let ended = process.finish();
        self.take(&ended, "", true);
        if text.starts_with("BUSY ") {
            self.fault(AccidentFault::Hang, format!("{who}: {text}"));
        }
        if self.case.planted == Some(PlantedAccident::ChangedFile) {
            std::fs::write(self.store(), "changed").map_err(|error| error.to_string())?;
        }
        self.refusal = LOG_ERRORS.iter().any(|code| text.starts_with(code)).then(|| text.to_owned());
        if !self.after.is_empty() {
            let lost = join(&self.after);
            self.acked_for_nothing(format!("{who}: {lost}; the refusal: {text}"));
        }
        let now = StoreFiles::read(&self.store());
        if !now.is_same_store(before) {
            let what = format!("{who}: {}; the error: {text}", difference(before, &now));
            if claims(text) {
                self.fault(AccidentFault::Lie, what.clone());
            }
            self.fault(AccidentFault::ChangedByRefusedOpen, what);
        }
        Ok(())
    }

    /// Judges the items that a store shows. Items that a report gives up, or whose loss the excuse of the case allows,
    /// are not expected later.
    fn judge(&mut self, who: &str, answer: &OrderAnswer, report: Option<String>) {
        let Some(shown) = answer.line('I') else {
            self.result.reported += 1;
            return;
        };
        let shown: BTreeSet<String> = shown.split_whitespace().map(str::to_owned).collect();
        let denied = self.denied.iter().filter(|(item, _)| shown.contains(*item));
        let lies: Vec<String> =
            denied.map(|(item, text)| format!("{who}: {item} is there; the error: {text}")).collect();
        lies.into_iter().for_each(|lie| self.fault(AccidentFault::Lie, lie));
        let lost: BTreeSet<String> = self.after.difference(&shown).cloned().collect();
        if !lost.is_empty() {
            self.acked_for_nothing(format!("{who}: {}; {report:?}", join(&lost)));
        }
        let missing: Vec<&String> = self.expected.difference(&shown).collect();
        let foreign: Vec<&String> = shown.difference(&self.attempted).collect();
        if report.is_some() {
            self.result.reported += 1;
        } else if missing.is_empty() && foreign.is_empty() {
            self.result.whole += 1;
        } else if let Some(reason) = self.excuse(&shown) {
            self.result.untold = Some(reason);
        } else {
            let foreign = foreign.len();
            let what = format!("{who}: {} missing ({}), {foreign} foreign", missing.len(), join(missing));
            self.fault(AccidentFault::LostSilently, what);
        }
        if who == "writer" {
            // From now on this is the store.
            self.attempted.extend(shown.iter().cloned());
            self.expected = shown;
            self.after.clear();
        }
    }

    /// Notes items that were acknowledged after the accident and are not there. A process does not read its file again
    /// before it copies the log: content that was written over the file in place is noticed then, or at the next open.
    fn acked_for_nothing(&mut self, what: String) {
        let is_over_file = |step: &AccidentStep| {
            let is_overwritten = matches!(step.act, AccidentAct::Overwrite(_) | AccidentAct::OverwriteByEarlier);
            step.target == AccidentTarget::Main && is_overwritten
        };
        if !self.case.steps.iter().any(is_over_file) {
            self.fault(AccidentFault::AckedForNothing, what);
        }
    }

    /// Returns the reason for which no program can tell that a store shows these items alone.
    fn excuse(&self, shown: &BTreeSet<String>) -> Option<&'static str> {
        let excuse = self.case.excuse.as_ref()?;
        // A process that lived through the accident and acknowledged commits has to have them, and could have told.
        if !self.after.is_empty() {
            return None;
        }
        let is_excused = match &excuse.shows {
            ExcusedState::Exactly(items) => *shown == items.iter().cloned().collect(),
            ExcusedState::Earlier => {
                let last = shown.len() as u64;
                last >= 20 && *shown == items("mine", 1..=last).into_iter().collect()
            }
        };
        is_excused.then_some(excuse.reason)
    }
}

fn join<'a>(items: impl IntoIterator<Item = &'a String>) -> String {
    items.into_iter().map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// Describes how two states of the files differ.
fn difference(before: &StoreFiles, now: &StoreFiles) -> String {
    let mut texts = Vec::new();
    for (target, name) in AccidentTarget::ALL {
        let length =
            |files: &StoreFiles| files.get(target).map_or("none".to_owned(), |bytes| format!("{} bytes", bytes.len()));
        if before.get(target) != now.get(target) && target != AccidentTarget::Memory {
            texts.push(format!("{name}: {} before, {} now", length(before), length(now)));
        }
    }
    texts.join(", ")
}
