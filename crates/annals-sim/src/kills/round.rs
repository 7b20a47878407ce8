//! A round: workers on one file, the kills or the stop among them, and the verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annals::base::{Clock as _, SystemClock};
use annals::store::{OpenOptions, Store};
use parking_lot::Mutex;

use super::ledger::{EntityVerdict, Ledger, Reports, judge_proven};
use super::process::{WorkerProcess, lock_of, ranges_of};
use super::tally::{self, Author, EntityKind};
use super::{KillCounts, KillPlan, RoundKind, WorkerArgs, WorkerControl, WorkerRole};
use crate::log::STORE;
use crate::rng::Rng;
use crate::trace::{ScratchFolder, remove_store};

/// The processes of a round.
const WRITERS: usize = 3;
const MAINTAINERS: usize = 2;
const READERS: usize = 2;
/// Milliseconds that a call waits for a lock: of rounds with kills, and of those with a stopped process.
const BUSY_MS: u64 = 5_000;
const BUSY_SHORT_MS: u64 = 300;
/// Milliseconds by which a call may miss its limit on a machine that has much else to do.
const BUSY_SLACK_MS: u64 = 120_000;
/// The time within which a worker ends that was told to, and continues after a stop.
const PATIENCE: Duration = Duration::from_secs(180);
/// Stops of a worker until it holds a lock, at most.
const LOCK_ATTEMPTS: usize = 25;
/// Failures that are described.
const FAILURES_MAX: usize = 10;

/// A round.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) scratch: ScratchFolder,
    seed: u64,
    pub(super) rng: Rng,
    pub(super) ledger: Arc<Mutex<Ledger>>,
    pub(super) workers: Vec<WorkerProcess>,
    /// The number of workers that were started.
    started: Author,
    busy_ms: u64,
    control: Option<WorkerControl>,
    pub(super) counts: KillCounts,
    lost: Vec<String>,
    wrong: Vec<String>,
}

impl Round {
    /// Makes a file and starts the workers.
    pub(super) fn start(plan: &KillPlan, seed: u64, kind: RoundKind) -> Result<Self, String> {
        let mut round = Self {
            scratch: ScratchFolder::new().map_err(|error| error.to_string())?,
            seed,
            rng: Rng::new(seed),
            ledger: Arc::default(),
            workers: Vec::new(),
            started: 0,
            busy_ms: if kind == RoundKind::Stop { BUSY_SHORT_MS } else { BUSY_MS },
            control: plan.control,
            counts: KillCounts { rounds: 1, ..KillCounts::default() },
            lost: Vec::new(),
            wrong: Vec::new(),
        };
        // A reader finds a file.
        drop(Store::open(round.scratch.store()).map_err(|error| error.to_string())?);
        for slot in 0..WRITERS {
            round.add(WorkerRole::Writer, slot)?;
        }
        for slot in 0..MAINTAINERS {
            round.add(WorkerRole::Maintainer, slot)?;
        }
        for slot in 0..READERS {
            round.add(WorkerRole::Reader, slot)?;
        }
        Ok(round)
    }

    pub(super) fn add(&mut self, role: WorkerRole, slot: usize) -> Result<(), String> {
        self.started += 1;
        let job = WorkerArgs {
            role,
            folder: self.scratch.path().to_path_buf(),
            slot,
            writers: WRITERS,
            author: self.started,
            seed: self.seed,
            busy_ms: self.busy_ms,
            control: self.control,
        };
        self.workers.push(WorkerProcess::start(job, &self.ledger)?);
        Ok(())
    }

    /// Kills so many workers, and starts another one in the place of each.
    pub(super) fn kill(&mut self, kills: u64) -> Result<(), String> {
        while self.counts.run < kills && self.ledger.lock().problems.is_empty() {
            std::thread::sleep(Duration::from_micros(self.rng.below(60_000) as u64));
            let left = (kills - self.counts.run) as usize;
            // If all are killed, the next process to open the file recovers its WAL.
            let count = if self.rng.chance(8) { self.workers.len().min(left) } else { 1 };
            let mut ended = Vec::new();
            for _ in 0..count {
                let place = self.rng.below(self.workers.len());
                if count == 1 && self.rng.chance(50) {
                    self.wait_for_lock(place);
                }
                let victim = self.workers.swap_remove(place);
                ended.push(self.kill_one(victim));
            }
            if count > 1 || self.rng.chance(25) {
                ended.iter().filter(|job| job.role == WorkerRole::Writer).for_each(|job| self.look(job));
            }
            for job in ended {
                self.add(job.role, job.slot)?;
            }
        }
        Ok(())
    }

    /// Stops a worker at some of its steps until one holds a lock, so that more kills meet a write.
    pub(super) fn wait_for_lock(&mut self, place: usize) {
        for _ in 0..LOCK_ATTEMPTS {
            let one = &self.workers[place];
            one.stop();
            if lock_of(&self.scratch.store(), one.id()).is_some() {
                return;
            }
            one.go_on();
            std::thread::sleep(Duration::from_micros(self.rng.below(1_500) as u64));
        }
    }

    pub(super) fn kill_one(&mut self, mut victim: WorkerProcess) -> WorkerArgs {
        // It stands still while its locks are read.
        victim.stop();
        let lock = lock_of(&self.scratch.store(), victim.id());
        if victim.kill() {
            self.counts.run += 1;
            let ledger = self.ledger.lock();
            let step = ledger.workers.get(&victim.job.author).map_or("", |reports| &reports.step);
            let step = if step.is_empty() { "start" } else { step };
            *self.counts.steps.entry(step.to_owned()).or_default() += 1;
            *self.counts.locks.entry(lock.unwrap_or("none")).or_default() += 1;
        } else {
            self.wrong.push(format!("process {} ended on its own", victim.job.author));
        }
        victim.job.clone()
    }

    /// Reads the entities of a killed writer, before another one goes on with them.
    fn look(&mut self, job: &WorkerArgs) {
        let options = OpenOptions::new().busy_timeout_ms(PATIENCE.as_millis() as u64).read_only(self.rng.chance(50));
        let store = match Store::open_with(self.scratch.store(), options) {
            Ok(store) => store,
            Err(error) => return self.wrong.push(format!("the file does not open after a kill: {error}")),
        };
        for kind in ["own", "pair", "memory", "walk"] {
            let entity = format!("{kind}-{}", job.slot);
            match tally::read(&store, &entity) {
                Ok(seen) => {
                    let verdict = self.ledger.lock().judge(&entity, &seen);
                    self.note(verdict);
                }
                Err(failure) => self.wrong.push(format!("after a kill: {failure}")),
            }
        }
        let proven = self.ledger.lock().proven("shared");
        match tally::read(&store, "shared") {
            Ok(seen) => self.note(judge_proven("shared", &seen, &proven)),
            Err(failure) => self.wrong.push(format!("after a kill: {failure}")),
        }
    }

    fn note(&mut self, verdict: EntityVerdict) {
        match verdict {
            EntityVerdict::Good => {}
            EntityVerdict::Lost(what) => self.lost.push(what),
            EntityVerdict::Wrong(what) => self.wrong.push(what),
        }
    }

    /// Stops a worker that holds the write lock for a time, and lets it go on. Without a listing of locks, as outside
    /// of Linux, nothing is stopped.
    pub(super) fn stop_and_go(&mut self, time: Duration) -> Result<(), String> {
        let Some(place) = self.stop_holder() else { return Ok(()) };
        self.counts.stopped = 1;
        let stopped = (self.workers[place].job.author, self.workers[place].id());
        let before = self.ledger.lock().workers.clone();
        let begin = SystemClock.elapsed();
        std::thread::sleep(time);
        let mut after = self.ledger.lock().workers.clone();
        while self.silent(stopped, &before, &after).is_some() && SystemClock.elapsed() - begin < time + PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
            after = self.ledger.lock().workers.clone();
        }
        self.judge_stop(stopped, &before, &after);
        self.workers[place].go_on();
        let begin = SystemClock.elapsed();
        let acknowledged = |ledger: &Ledger, author| ledger.workers.get(&author).map_or(0, |one| one.acknowledged);
        let writers: Vec<Author> =
            self.workers.iter().filter(|one| one.job.role == WorkerRole::Writer).map(|one| one.job.author).collect();
        while let Some(author) = {
            let ledger = self.ledger.lock();
            writers
                .iter()
                .find(|author| acknowledged(&ledger, **author) <= after.get(author).map_or(0, |one| one.acknowledged))
        } {
            if SystemClock.elapsed() - begin > PATIENCE {
                self.wrong.push(format!("process {author} acknowledges nothing after a stop of process {}", stopped.0));
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Stops workers until one holds the write lock. Returns its place.
    fn stop_holder(&mut self) -> Option<usize> {
        std::thread::sleep(Duration::from_millis(200));
        let begin = SystemClock.elapsed();
        while SystemClock.elapsed() - begin < PATIENCE {
            let place = self.rng.below(self.workers.len());
            let one = &self.workers[place];
            if one.job.role != WorkerRole::Reader {
                one.stop();
                let holds = || lock_of(&self.scratch.store(), one.id()) == Some("write");
                if holds() {
                    // Lines that were written before the stop arrive; a late one is told apart by its place before a
                    // refusal. A thread may still have been releasing the lock.
                    std::thread::sleep(Duration::from_millis(100));
                    if holds() {
                        return Some(place);
                    }
                }
                one.go_on();
            }
            std::thread::sleep(Duration::from_micros(self.rng.below(2_000) as u64));
        }
        if Path::new("/proc/locks").exists() {
            self.wrong.push(format!("no worker held the write lock within {PATIENCE:?}"));
        }
        None
    }

    /// Returns a worker that has not gone on during a stop: a writer is refused, a reader reads.
    fn silent(
        &self,
        (stopped, process): (Author, u32),
        before: &BTreeMap<Author, Reports>,
        after: &BTreeMap<Author, Reports>,
    ) -> Option<&WorkerProcess> {
        self.workers.iter().find(|one| {
            let reports = |of: &BTreeMap<Author, Reports>| of.get(&one.job.author).cloned().unwrap_or_default();
            let (before, after) = (reports(before), reports(after));
            match one.job.role {
                _ if one.job.author == stopped => false,
                WorkerRole::Writer => after.refused_by(process, &before).is_empty(),
                WorkerRole::Reader => after.passes == before.passes,
                WorkerRole::Maintainer => false,
            }
        })
    }

    /// Judges the reports of the workers during a stop: readers go on, writers are refused and told by whom.
    fn judge_stop(
        &mut self,
        (stopped, process): (Author, u32),
        before: &BTreeMap<Author, Reports>,
        after: &BTreeMap<Author, Reports>,
    ) {
        let held = ranges_of(&self.scratch.store(), process);
        let step = after.get(&stopped).map_or("", |reports| &reports.step);
        let told = format!("process {stopped} is stopped in {step} with the locks {held:?}");
        if let Some(one) = self.silent((stopped, process), before, after) {
            let (author, role) = (one.job.author, one.job.role);
            self.wrong.push(format!("process {author}, a {role:?}, does not go on: {told}"));
        }
        for one in self.workers.iter().filter(|one| one.id() != process) {
            let author = one.job.author;
            let (Some(before), Some(after)) = (before.get(&author), after.get(&author)) else { continue };
            let refusals = after.refused_by(process, before);
            for refusal in refusals {
                self.counts.longest_refusal_ms = self.counts.longest_refusal_ms.max(refusal.waited_ms);
                if refusal.holder == Some(process) {
                    self.counts.named += 1;
                } else {
                    self.wrong.push(format!("{refusal:?}: {told}"));
                }
            }
            let commits = refusals.first().is_some_and(|first| after.acknowledged > first.acknowledged);
            if one.job.role == WorkerRole::Writer && commits {
                self.wrong.push(format!("process {author} commits: {told}"));
            }
        }
    }

    /// Closes the workers and compares all that the file shows with the ledger. Returns whether something was not as it
    /// must be.
    pub(super) fn end(mut self, counts: &mut KillCounts) -> bool {
        self.workers.iter_mut().for_each(WorkerProcess::close);
        for mut one in std::mem::take(&mut self.workers) {
            self.wrong.extend(one.wait(PATIENCE));
        }
        if let Err(problem) = self.verify() {
            self.wrong.push(problem);
        }
        let ledger = std::mem::take(&mut *self.ledger.lock());
        for reports in ledger.workers.values() {
            self.counts.acknowledged += reports.acknowledged;
            self.counts.passes += reports.passes;
            self.counts.busy += reports.busy.len() as u64;
            let limit = self.busy_ms..self.busy_ms + BUSY_SLACK_MS;
            let wrong = reports.busy.iter().filter(|refusal| !limit.contains(&refusal.waited_ms));
            self.wrong.extend(wrong.map(|refusal| format!("the limit is {} ms: {refusal:?}", self.busy_ms)));
        }
        self.wrong.splice(..0, ledger.problems);
        let is_bad = !self.lost.is_empty() || !self.wrong.is_empty();
        self.counts.lost = u64::from(!self.lost.is_empty());
        self.counts.wrong = u64::from(!self.wrong.is_empty());
        let kept = if is_bad && self.control.is_none() { self.scratch.leave() } else { "none".into() };
        let told = self.lost.iter().map(|what| format!("lost: {what}")).chain(self.wrong.iter().cloned());
        self.counts.failures = told.take(6).map(|told| format!("{told} (seed {}, files: {kept})", self.seed)).collect();
        counts.add(self.counts);
        is_bad
    }

    fn verify(&mut self) -> Result<(), String> {
        let path = self.scratch.store();
        let store = Store::open(&path).map_err(|error| format!("the file does not open: {error}"))?;
        self.verify_store(&store).map_err(|failure| failure.to_string())?;
        drop(store);
        self.search_erased();
        self.verify_backups()
    }

    fn verify_store(&mut self, store: &Store) -> Result<(), tally::ReadFailure> {
        let is_clean = |when: &str| match store.check()?.problems.first() {
            Some(problem) => Err(tally::ReadFailure::Wrong(format!("check finds {problem} {when}"))),
            None => Ok(()),
        };
        is_clean("at the end")?;
        for entity in tally::entities(WRITERS) {
            let seen = tally::read(store, &entity)?;
            let verdict = self.ledger.lock().judge(&entity, &seen);
            self.note(verdict);
            tally::verify_history(store, &entity, seen.last())?;
        }
        self.verify_deleted(store)?;
        for _ in 0..100 {
            if store.reclaim()?.is_erased() {
                break;
            }
        }
        is_clean("after the deleted threads were erased")?;
        let pending = store.check()?.erasing;
        if pending > 0 {
            return Err(tally::ReadFailure::Wrong(format!("{pending} deleted threads are not erased")));
        }
        Ok(())
    }

    /// Deleted threads are gone, and those whose deletion was not acknowledged are there or gone with their forks.
    fn verify_deleted(&mut self, store: &Store) -> Result<(), tally::ReadFailure> {
        let threads = store.threads()?;
        let names: Vec<&str> = threads.iter().map(|record| record.id.as_str()).collect();
        for name in &names {
            if EntityKind::of(name) == EntityKind::Passing {
                tally::read(store, name)?;
            }
        }
        let deleted = self.ledger.lock().deleted.clone();
        for (name, is_acknowledged) in &deleted {
            let is_there = names.contains(&name.as_str());
            if *is_acknowledged && is_there {
                self.lost.push(format!("{name} was deleted and is shown"));
            }
            // A fork is deleted in the same call as its source.
            let source = name.strip_suffix(".fork").filter(|_| is_there);
            if source.is_some_and(|source| deleted.contains_key(source) && !names.contains(&source)) {
                self.wrong.push(format!("{name} is there without its source"));
            }
        }
        Ok(())
    }

    /// Backups that killed processes have left are whole, or have no name yet.
    fn verify_backups(&mut self) -> Result<(), String> {
        let files = std::fs::read_dir(self.scratch.path()).map_err(|error| error.to_string())?;
        for path in files.filter_map(|file| Some(file.ok()?.path())) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !name.starts_with("copy-") || !name.ends_with(".db") {
                continue;
            }
            let read = || {
                let copy = Store::open_with(&path, OpenOptions::new().read_only(true))?;
                if let Some(problem) = copy.check()?.problems.first() {
                    return Err(tally::ReadFailure::Wrong(format!("check finds {problem}")));
                }
                let entities = tally::entities(WRITERS);
                entities.into_iter().map(|entity| Ok((tally::read(&copy, &entity)?, entity))).collect()
            };
            let seen: Vec<_> = read().map_err(|failure| format!("the backup {name}: {failure}"))?;
            for (seen, entity) in seen {
                let verdict = self.ledger.lock().origin(&entity, &seen);
                self.note(verdict);
            }
            self.counts.backups += 1;
            remove_store(&path);
        }
        Ok(())
    }

    /// Counts the erased threads of which the closed file still holds a text: each begins with the name of its thread.
    /// SQLite leaves copies of rows in the gaps of pages that it rearranges, also with `secure_delete`.
    fn search_erased(&mut self) {
        let ledger = self.ledger.lock();
        let is_erased = |name: &String| ledger.deleted.get(name) == Some(&true);
        let mut left: BTreeSet<String> = BTreeSet::new();
        for file in [STORE.to_owned(), format!("{STORE}-wal")] {
            let bytes = std::fs::read(self.scratch.path().join(&file)).unwrap_or_default();
            let places = bytes.windows(8).enumerate().filter(|(_, window)| *window == b"passing-");
            let name_at = |at: usize| {
                let name = bytes[at..].iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'-');
                name.map(|byte| char::from(*byte)).collect()
            };
            left.extend(places.map(|(at, _)| name_at(at)).filter(is_erased));
        }
        self.counts.erased = ledger.deleted.values().filter(|is_acknowledged| **is_acknowledged).count() as u64;
        self.counts.erased_left = left.len() as u64;
    }
}

impl KillCounts {
    fn add(&mut self, other: Self) {
        self.run += other.run;
        self.lost += other.lost;
        self.wrong += other.wrong;
        self.rounds += other.rounds;
        self.stopped += other.stopped;
        self.named += other.named;
        self.acknowledged += other.acknowledged;
        self.passes += other.passes;
        self.backups += other.backups;
        self.longest_refusal_ms = self.longest_refusal_ms.max(other.longest_refusal_ms);
        self.erased += other.erased;
        self.erased_left += other.erased_left;
        self.busy += other.busy;
        other.steps.into_iter().for_each(|(step, count)| *self.steps.entry(step).or_default() += count);
        other.locks.into_iter().for_each(|(lock, count)| *self.locks.entry(lock).or_default() += count);
        self.failures.extend(other.failures);
        self.failures.truncate(FAILURES_MAX);
    }
}
