//! The second simulator: workers on one store whose clock jumps, with signals, cancels, pauses, retries and queued
//! runs.
//!
//! One thing happens at a time. A task that runs gives its turn away, as if its process was suspended meanwhile: the
//! clock moves, perhaps past the expiry of the lease or back, another worker works, and calls come from outside. In
//! memory the power goes too; in a file each task has a transaction. The laws: a thread has one owner at a time, and
//! only the commits of that one are stored; no task of a run that lost its lease starts; a transaction of a task has
//! happened exactly once; a signal is received once; the limits of the queue hold at each claim; a schedule enqueues
//! each due time once, and all that its policy runs; all runs end, with the results of their programs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals::store::lease::LeaseOwner;
use annals::store::log::{Log, LogExt};
use annals::store::{OpenOptions, StoreError, Synchronous};
use annals_graph::graph::{Entry, Entrypoint};
use annals_graph::prelude::*;
use annals_graph::runs::ThreadStatus;
use annals_graph::task::{RunControl, Task};
use annals_graph::{Error, ErrorKind, QueueLimit, Worker};

use super::disk::{Crash, Disk, Mutant};
use super::queues::{self, SimSchedule};
use super::{Rng, seeds, seeds_of_environment};
use crate::cases;
use crate::test_clock::Hands;

type Flow = CompiledGraph<Entry<i64, Vec<i64>>>;

/// The numbers of seeds in memory, in a file, and with a broken backend: in the test command, and in all.
const IN_MEMORY: (u64, u64) = (60, 1_000);
const IN_FILES: (u64, u64) = (4, 40);
const BROKEN: (u64, u64) = (30, 300);
/// Seeds whose events are counted.
const COUNTED: (u64, u64) = (60, 200);
const LEASE: Duration = Duration::from_secs(30);
/// More recoveries than a seed has processes that die; a run that is stuck after them is tried again.
const RECOVERIES: u64 = 30;
/// The result of a step that received nothing before its timeout.
const TIMED_OUT: i64 = -1;
/// Number of notes after which a run is not to be continued any more; a seed makes some hundred.
const LOG_MAX: usize = 2_000;
/// The number of threads that a seed may use.
const THREADS: usize = 3;
/// The program of the runs of a schedule.
const SCHEDULED: i64 = -1;
const TABLE: &str = "CREATE TABLE app_steps (step TEXT NOT NULL)";

/// A step of a program.
#[derive(Clone, Copy, Debug)]
enum FlowStep {
    Call,
    Receive(&'static str, u64),
    Sleep(u64),
    Transact,
}

/// Returns the steps of the program that its argument names.
fn steps(program: i64) -> Vec<FlowStep> {
    if program == SCHEDULED {
        return vec![FlowStep::Call; 2];
    }
    let mut rng = Rng(program as u64 ^ 0x51e9);
    let mut draw = || match rng.below(10) {
        0..=4 => FlowStep::Call,
        5 => FlowStep::Receive("x", 1 + rng.below(90) as u64),
        6 => FlowStep::Receive("y", 1 + rng.below(90) as u64),
        7 | 8 => FlowStep::Sleep(1 + rng.below(60) as u64),
        _ => FlowStep::Transact,
    };
    (0..2 + program as usize % 4).map(|_| draw()).collect()
}

/// The parts of a seed that its tasks and its workers share.
struct WorkerSim {
    seed: u64,
    store: Store,
    hands: Hands,
    /// The backend in memory; `None` for a file.
    disk: Option<Arc<Disk>>,
    /// The limits of the queue; none in a file.
    limits: Vec<QueueLimit>,
    schedule: Option<SimSchedule>,
    flow: Mutex<Option<Flow>>,
    drawn: Mutex<Drawn>,
}

/// A thread, the name of a signal, and whether its sender was told that it is stored.
type SentSignal = (usize, &'static str, bool);

struct Drawn {
    rng: Rng,
    /// Number of events that may still happen before all is brought to its end.
    events: usize,
    /// Number of workers that work, each inside a task of the one before.
    depth: usize,
    seconds: i64,
    /// The latest time that the clock has shown.
    latest: i64,
    /// The signals that were sent: value, thread and name, and whether their sender was told that they are stored.
    sent: BTreeMap<i64, SentSignal>,
    programs: BTreeMap<usize, i64>,
    /// Owners whose process died with the lease.
    dead: Vec<LeaseOwner>,
    /// True once the power has gone: owners may have died at any commit.
    crashed: bool,
    keys: BTreeMap<String, String>,
    wrong: Vec<String>,
    log: Vec<String>,
}

/// The counts of a seed, by which a test verifies that something happened.
#[derive(Default)]
struct Happened {
    takeovers: u64,
    fenced: u64,
    received: u64,
    timeouts: u64,
    broken: u64,
    /// Claims beside others of a group with limits, those that a limit refused, and runs of schedules.
    beside: u64,
    limited: u64,
    scheduled: u64,
    wrong: Vec<String>,
}

fn name(thread: usize) -> String {
    format!("t{thread}")
}

impl WorkerSim {
    fn new(seed: u64, place: (Store, Hands, Option<Arc<Disk>>)) -> Arc<Self> {
        let (store, hands, disk) = place;
        let drawn = Drawn {
            rng: Rng(seed ^ 0x70_7a11),
            events: 12 + seed as usize % 20,
            depth: 0,
            seconds: 1_000_000,
            latest: 1_000_000,
            sent: BTreeMap::new(),
            programs: BTreeMap::new(),
            dead: Vec::new(),
            crashed: false,
            keys: BTreeMap::new(),
            wrong: Vec::new(),
            log: Vec::new(),
        };
        hands.set(drawn.seconds);
        let limits = if disk.is_some() { queues::limits(seed) } else { Vec::new() };
        let schedule = SimSchedule::add(&store, seed, drawn.seconds, SCHEDULED);
        let (flow, drawn) = (Mutex::default(), Mutex::new(drawn));
        let sim = Arc::new(Self { seed, store, hands, disk, limits, schedule, flow, drawn });
        let runs = Arc::clone(&sim);
        let body = move |program: i64, context: &Context| runs.body(program, context);
        *sim.flow.lock().unwrap() = Some(Entrypoint::new("flow", body).compile().unwrap());
        sim
    }

    fn below(&self, end: usize) -> usize {
        self.drawn.lock().unwrap().rng.below(end)
    }

    fn note(&self, what: String) {
        self.drawn.lock().unwrap().log.push(what);
    }

    fn verify(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.drawn.lock().unwrap().wrong.push(what());
        }
    }

    /// Passes a value on. Errors are those of a power that is off, of a race that was lost, and of a thread that has
    /// ended.
    fn allowed<T>(&self, result: Result<T, impl Into<Error>>) -> Option<T> {
        match result.map_err(Into::into) {
            Ok(value) => Some(value),
            Err(error) => {
                let store = error.as_store();
                let ended = matches!(store, Some(StoreError::ThreadEnded { .. } | StoreError::ThreadNotFound { .. }));
                let refused = matches!(store, Some(StoreError::Invalid { field: "thread", .. }));
                let is_off = self.is_off();
                self.verify(
                    ended || refused || is_off || error.kind() == ErrorKind::Busy || error.is_conflict(),
                    || error.to_string(),
                );
                self.note(format!("refused: {error}"));
                None
            }
        }
    }

    fn is_off(&self) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.is_dead())
    }

    fn thread(&self, thread: usize) -> Thread {
        self.store.thread(name(thread)).unwrap()
    }

    /// Returns the epoch of a thread; `None` while the power is off.
    fn epoch(&self, thread: &str) -> Option<u64> {
        let lease = self.store.thread(thread).unwrap().last_lease().ok()?;
        Some(lease.map_or(0, |lease| lease.epoch))
    }

    /// The program of a run.
    fn body(self: &Arc<Self>, program: i64, context: &Context) -> NodeResult<Vec<i64>> {
        let epoch = self.epoch(context.thread().unwrap().as_str());
        self.note(format!("{} runs program {program} at epoch {epoch:?}", context.thread().unwrap()));
        let has_end = self.drawn.lock().unwrap().log.len() < LOG_MAX;
        self.verify(has_end, || "a worker continues a run again and again".into());
        if !has_end {
            return Err("it is continued again and again".into());
        }
        let sim = Arc::clone(self);
        let call = Task::new("call", move |index: i64, context: &Context| sim.task(epoch, index, context));
        let step = |(index, step)| {
            let index = index as i64;
            match step {
                FlowStep::Call => call.call(context, index),
                FlowStep::Receive(name, seconds) => {
                    let received = context.receive::<i64>(name, Duration::from_secs(seconds))?;
                    Ok(received.unwrap_or(TIMED_OUT))
                }
                FlowStep::Sleep(seconds) => {
                    context.sleep_for(Duration::from_secs(seconds))?;
                    Ok(0)
                }
                FlowStep::Transact => {
                    self.row(index, context)?;
                    Ok(0)
                }
            }
        };
        steps(program).into_iter().enumerate().map(step).collect()
    }

    /// A task that is suspended while others act.
    fn task(&self, epoch: Option<u64>, index: i64, context: &Context) -> NodeResult<i64> {
        let thread = context.thread().unwrap().as_str();
        let (step, now) = (format!("{thread} {index}"), self.epoch(thread));
        self.verify(now.is_none() || now == epoch, || format!("{step} begins at epoch {now:?} in a run of {epoch:?}"));
        let key = context.step_key();
        let known = self.drawn.lock().unwrap().keys.entry(step.clone()).or_insert_with(|| key.clone()).clone();
        self.verify(known == key, || format!("{step} has the keys {known} and {key}"));
        self.note(format!("{step} begins"));
        while self.below(100) < 55 && self.event() {}
        let is_cancelled = self.store.thread(thread).unwrap().cancel_reason().is_ok_and(|reason| reason.is_some());
        let is_lost = self.epoch(thread) != epoch || is_cancelled;
        self.note(format!("{step} goes on, lost: {is_lost}"));
        let before = self.rows(&step);
        let stored = self.row(index, context);
        if self.disk.is_none() {
            self.verify(is_lost || stored.is_ok(), || format!("{step}: {stored:?}"));
            self.verify(!is_lost || self.rows(&step) == before, || format!("{step} stores a row in a run that lost"));
        }
        stored?;
        let fails = self.drawn.lock().unwrap().events > 0 && self.below(100) < 8;
        if fails { Err("it fails".into()) } else { Ok(index * 10) }
    }

    /// Adds the row of a step, in a file.
    fn row(&self, index: i64, context: &Context) -> NodeResult<()> {
        if self.disk.is_none() {
            let step = format!("{} {index}", context.thread().unwrap());
            context.transaction(|tx| tx.execute("INSERT INTO app_steps VALUES (?1)", [&step]))?;
        }
        Ok(())
    }

    fn rows(&self, step: &str) -> usize {
        if self.disk.is_some() {
            return 0;
        }
        let rows = self.store.transaction(|tx| tx.query("SELECT step FROM app_steps", (), |row| row.get::<String>(0)));
        rows.unwrap().iter().filter(|row| *row == step).count()
    }

    /// Lets one event happen. Returns `false` if none is left.
    fn event(&self) -> bool {
        let mut drawn = self.drawn.lock().unwrap();
        let Some(left) = drawn.events.checked_sub(1) else { return false };
        drawn.events = left;
        let (what, which, number) = (drawn.rng.below(20), drawn.rng.below(THREADS), drawn.rng.below(60) as i64);
        let deep = drawn.depth >= 3;
        drop(drawn);
        match what {
            0..=6 if !deep => _ = self.work(),
            0..=8 => self.pass(1 + number / 4),
            9 | 10 => self.pass(31 + number),
            11 => self.pass(-number / 2),
            12 | 13 => self.signal(which, ["x", "y"][number as usize % 2]),
            14 if number < 20 => _ = self.allowed(self.thread(which).cancel("by chance")),
            14 | 15 => _ = self.allowed(self.thread(which).pause()),
            16 => _ = self.allowed(self.thread(which).resume()),
            17 => _ = self.allowed(self.thread(which).retry()),
            18 => self.die(which),
            _ => self.enqueue(which, number),
        }
        true
    }

    fn pass(&self, seconds: i64) {
        let mut drawn = self.drawn.lock().unwrap();
        drawn.seconds += seconds;
        drawn.latest = drawn.latest.max(drawn.seconds);
        self.hands.set(drawn.seconds);
        let now = drawn.seconds;
        drawn.log.push(format!("it is {now} s"));
    }

    /// Lets a worker of its own work until nothing is due, or until a limit refuses a claim: what would make room may
    /// be suspended below it. Returns whether it came to its end.
    fn work(&self) -> bool {
        let depth = {
            let mut drawn = self.drawn.lock().unwrap();
            drawn.depth += 1;
            drawn.depth
        };
        self.note(format!("worker {depth} begins"));
        let flow = self.flow.lock().unwrap().clone().unwrap();
        let worker = Worker::new(&self.store).register(&flow).lease(LEASE).max_recoveries(RECOVERIES);
        let worker = self.limits.iter().fold(worker, |worker, limit| worker.queue(limit.clone()));
        let control = RunControl::new();
        self.disk.iter().for_each(|disk| disk.begin_worker(&control));
        let report = self.allowed(worker.run_until_idle_or(&control));
        self.disk.iter().for_each(|disk| disk.end_worker());
        self.note(format!("worker {depth} ends: {report:?}"));
        self.drawn.lock().unwrap().depth -= 1;
        report.is_some()
    }

    fn signal(&self, thread: usize, signal: &'static str) {
        let value = self.drawn.lock().unwrap().sent.len() as i64 + 1_000;
        self.note(format!("signal {value} for {thread}"));
        self.drawn.lock().unwrap().sent.insert(value, (thread, signal, false));
        let is_stored = self.allowed(self.thread(thread).signal(signal, value)).is_some();
        self.drawn.lock().unwrap().sent.insert(value, (thread, signal, is_stored));
    }

    /// A process claims a thread, and dies.
    fn die(&self, thread: usize) {
        if let Some(lease) = self.allowed(self.thread(thread).lease(LEASE / 3)) {
            self.note(format!("{thread} is claimed by a process that dies"));
            self.drawn.lock().unwrap().dead.push(lease.record().owner.clone());
            std::mem::forget(lease);
        }
    }

    /// Enqueues the one run of a thread.
    fn enqueue(&self, thread: usize, number: i64) {
        let program = (self.seed % 1_000) as i64 * 10 + thread as i64;
        let customer = ["ann", "bob"][thread % 2];
        let queue =
            self.store.queue("flow").dedup("once").priority(number as u8 % 3).metadata([("customer", customer)]);
        let queue = if number > 40 { queue.delay(Duration::from_secs(number as u64)) } else { queue };
        if self.allowed(queue.enqueue(name(thread), program)).is_some() {
            self.drawn.lock().unwrap().programs.insert(thread, program);
        }
    }

    /// Turns the power on again after a crash.
    fn revive(&self) {
        if self.disk.as_ref().is_some_and(|disk| disk.revive()) {
            self.note("restart".into());
            self.drawn.lock().unwrap().crashed = true;
            self.store.clear_head_cache();
            let problems = self.store.check().unwrap().problems;
            self.verify(problems.is_empty(), || format!("{problems:?}"));
        }
    }

    /// Lets all that was drawn happen, and then brings each run to its end.
    fn play(&self) {
        self.enqueue(0, 0);
        while self.event() {
            self.revive();
        }
        self.end_schedule();
        for _ in 0..90 {
            self.revive();
            for thread in 0..THREADS {
                self.enqueue(thread, 0);
                self.allowed(self.thread(thread).resume());
            }
            self.work();
            self.revive();
            if self.drawn.lock().unwrap().programs.len() == THREADS {
                let threads: Vec<(Thread, ThreadStatus)> =
                    self.runs().map(|run| (run.clone(), self.status(&run))).collect();
                let has_ended = |status: &_| matches!(status, ThreadStatus::Done | ThreadStatus::Cancelled(_));
                if threads.iter().all(|(_, status)| has_ended(status)) {
                    return;
                }
                let failed = threads.iter().filter(|(_, status)| matches!(status, ThreadStatus::Failed(_)));
                failed.for_each(|(run, _)| _ = self.allowed(run.retry()));
            }
            self.pass(40);
        }
        self.verify(false, || "the runs come to no end".into());
    }

    /// Lets a worker look at the schedule once more, and pauses it.
    fn end_schedule(&self) {
        let Some(schedule) = &self.schedule else { return };
        self.revive();
        while !self.work() {
            self.revive();
        }
        let (seconds, latest) = {
            let drawn = self.drawn.lock().unwrap();
            (drawn.seconds, drawn.latest)
        };
        SimSchedule::pause(&self.store);
        let threads = self.runs().map(|run| run.id().to_string()).collect();
        let wrong = schedule.violations(&threads, seconds, latest);
        self.verify(wrong.is_empty(), || format!("{wrong:?}"));
    }

    /// Returns the threads of the store.
    fn runs(&self) -> impl Iterator<Item = Thread> {
        let ids = self.store.backend().threads(None, 1_000).unwrap();
        ids.into_iter().map(|record| self.store.thread(record.id.as_str()).unwrap())
    }

    fn status(&self, run: &Thread) -> ThreadStatus {
        ThreadStatus::of(&run.info().unwrap())
    }

    /// Verifies the end, and returns the counts.
    fn end(&self) -> Happened {
        let flow = self.flow.lock().unwrap().take().unwrap();
        let (mut happened, sent) = (Happened::default(), self.drawn.lock().unwrap().sent.clone());
        let mut received = BTreeSet::new();
        let numbers: BTreeMap<String, usize> = (0..THREADS).map(|thread| (name(thread), thread)).collect();
        for run in self.runs() {
            let number = numbers.get(run.id().as_str()).copied();
            let program = number.map_or(SCHEDULED, |thread| self.drawn.lock().unwrap().programs[&thread]);
            happened.scheduled += u64::from(number.is_none());
            let is_done = self.status(&run) == ThreadStatus::Done;
            let values = flow.get_state(&run).unwrap().values.value().cloned().unwrap_or_default();
            self.verify_steps(&run, is_done, &steps(program), &values);
            for (step, value) in steps(program).iter().zip(values).filter(|_| is_done) {
                match step {
                    FlowStep::Receive(..) if value == TIMED_OUT => happened.timeouts += 1,
                    FlowStep::Receive(signal, _) => {
                        happened.received += 1;
                        let is_own =
                            sent.get(&value).is_some_and(|(of, name, _)| (Some(*of), name) == (number, signal));
                        let is_own = is_own && received.insert(value);
                        self.verify(is_own, || format!("{run:?} received {value}: {sent:?}"));
                    }
                    _ => {}
                }
            }
            if let Some(thread) = number {
                self.verify_mailbox(thread, is_done, &received, &sent);
            }
            self.verify_released(&run);
        }
        let timers = self.store.timers(None).unwrap();
        self.verify(timers.is_empty(), || format!("{timers:?}"));
        let problems = self.store.check().unwrap().problems;
        self.verify(problems.is_empty(), || format!("{problems:?}"));
        if let Some(disk) = &self.disk {
            let leases = disk.take_leases();
            (happened.takeovers, happened.fenced, happened.broken) = (leases.takeovers, leases.fenced, disk.broken());
            (happened.beside, happened.limited) = (leases.claims.beside, leases.limited);
            happened.wrong = leases.wrong;
        }
        happened.wrong.append(&mut self.drawn.lock().unwrap().wrong);
        happened
    }

    /// Verifies the results of the steps of a run, and the rows of their transactions.
    fn verify_steps(&self, run: &Thread, is_done: bool, program: &[FlowStep], values: &[i64]) {
        let thread = run.id();
        self.verify(!is_done || values.len() == program.len(), || format!("{thread}: {values:?} of {program:?}"));
        for (index, step) in program.iter().enumerate() {
            let transacts = self.disk.is_none() && matches!(step, FlowStep::Call | FlowStep::Transact);
            let rows = self.rows(&format!("{thread} {index}"));
            let expected = usize::from(transacts);
            let fits = rows == expected || !is_done && rows < expected;
            self.verify(fits, || format!("{thread} {index}: {rows} rows"));
            if let (FlowStep::Call, Some(value), true) = (step, values.get(index), is_done) {
                self.verify(*value == index as i64 * 10, || format!("{thread} {index}: {value}"));
            }
        }
    }

    /// Verifies that the signals of a thread are in its mailbox or were received.
    fn verify_mailbox(&self, thread: usize, is_done: bool, received: &BTreeSet<i64>, sent: &BTreeMap<i64, SentSignal>) {
        let waiting = self.thread(thread).signals().unwrap();
        let waiting: BTreeSet<i64> = waiting.iter().filter_map(|signal| signal.value.as_int()).collect();
        let own: BTreeSet<i64> = sent.iter().filter(|(_, sent)| sent.0 == thread).map(|(value, _)| *value).collect();
        self.verify(waiting.is_subset(&own), || format!("{thread} has the signals {waiting:?} of {own:?}"));
        self.verify(waiting.is_disjoint(received), || format!("{thread}: {waiting:?} were received: {received:?}"));
        // A signal whose sender was told of an error may be stored or not: the power went.
        let mut told = own.iter().filter(|value| sent[*value].2);
        let all = told.all(|value| waiting.contains(value) || received.contains(value));
        self.verify(!is_done || all, || format!("{thread} has lost signals: {own:?} {waiting:?} {received:?}"));
    }

    /// Verifies that only an owner that died has left its lease.
    fn verify_released(&self, run: &Thread) {
        let lease = run.last_lease().unwrap();
        let drawn = self.drawn.lock().unwrap();
        let is_left = lease.as_ref().is_some_and(|lease| lease.expires_at.is_some());
        let has_died = drawn.crashed || lease.as_ref().is_some_and(|lease| drawn.dead.contains(&lease.owner));
        drop(drawn);
        self.verify(!is_left || has_died, || format!("{run:?} ended with the lease {lease:?}"));
    }
}

/// Plays a seed in memory.
fn in_memory(seed: u64, mutant: Option<Mutant>) -> (Happened, Vec<String>) {
    let mut rng = Rng(seed.wrapping_mul(41) ^ 0xd15c);
    let crash = Crash { at: rng.below(60) as u64, kept: rng.chance(50) };
    let disk = Disk::new(rng.chance(30).then_some(crash), Vec::new());
    disk.write_at_once();
    disk.break_as(mutant);
    let hands = Hands::default();
    let options = OpenOptions::new().clock(hands.clone()).id_seed(seed);
    let store = Store::with_backend(Arc::clone(&disk) as Arc<dyn Log>, options);
    let sim = WorkerSim::new(seed, (store, hands, Some(disk)));
    sim.play();
    let happened = sim.end();
    let log = std::mem::take(&mut sim.drawn.lock().unwrap().log);
    (happened, log)
}

fn one_in_memory(seed: u64) {
    let (happened, log) = in_memory(seed, None);
    if std::env::var_os("ANNALS_SIM_LOG").is_some() {
        println!("seed {seed}: {log:#?}");
    }
    assert!(happened.wrong.is_empty(), "seed {seed}: {:#?} {log:#?}", happened.wrong);
}

/// Plays a seed in a file, with transactions.
fn one_in_a_file(seed: u64) {
    let folder = tempfile::tempdir().unwrap();
    let hands = Hands::default();
    let options = OpenOptions::new().clock(hands.clone()).id_seed(seed).synchronous(Synchronous::Normal);
    let store = Store::open_with(folder.path().join("store.db"), options).unwrap();
    store.transaction(|tx| tx.execute_batch(TABLE)).unwrap();
    let sim = WorkerSim::new(seed, (store, hands, None));
    sim.play();
    let happened = sim.end();
    let log = std::mem::take(&mut sim.drawn.lock().unwrap().log);
    assert!(happened.wrong.is_empty(), "seed {seed}: {:#?} {log:#?}", happened.wrong);
}

#[test]
fn workers_that_are_suspended_keep_the_laws() {
    seeds(0, cases(IN_MEMORY.0, IN_MEMORY.1), one_in_memory);
}

#[test]
fn transactions_of_workers_that_are_suspended_happen_once() {
    seeds(0, cases(IN_FILES.0, IN_FILES.1), one_in_a_file);
}

/// `ANNALS_SIM_SEEDS` seeds from `ANNALS_SIM_FROM` on, as those of the first simulator; `ANNALS_SIM_LOG` shows what
/// happened.
#[test]
fn workers_on_demand() {
    seeds_of_environment(one_in_memory);
}

#[test]
fn workers_in_files_on_demand() {
    seeds_of_environment(one_in_a_file);
}

#[test]
fn leases_are_lost_and_signals_received() {
    let mut all = Happened::default();
    for seed in 0..cases(COUNTED.0, COUNTED.1) {
        let (happened, _) = in_memory(seed, None);
        all.takeovers += happened.takeovers;
        all.fenced += happened.fenced;
        all.received += happened.received;
        all.timeouts += happened.timeouts;
        all.beside += happened.beside;
        all.limited += happened.limited;
        all.scheduled += happened.scheduled;
    }
    let counts = (all.takeovers, all.fenced, all.received, all.timeouts);
    assert!(all.takeovers > 15 && all.fenced > 3 && all.received > 9 && all.timeouts > 9, "{counts:?}");
    let counts = (all.beside, all.limited, all.scheduled);
    assert!(all.beside > 15 && all.limited > 15 && all.scheduled > 1, "{counts:?}");
}

/// Returns how many seeds a mutant broke, and how many of all were caught.
fn broken_and_caught(mutant: Mutant) -> (usize, usize) {
    let (mut broken, mut caught) = (0, 0);
    for seed in 0..cases(BROKEN.0, BROKEN.1) {
        let (happened, _) = in_memory(seed, Some(mutant));
        broken += usize::from(happened.broken > 0);
        caught += usize::from(!happened.wrong.is_empty());
        assert!(happened.broken > 0 || happened.wrong.is_empty(), "seed {seed}: {:?}", happened.wrong);
    }
    (broken, caught)
}

#[test]
fn a_backend_that_stores_the_commits_of_lost_owners_is_caught() {
    let (broken, caught) = broken_and_caught(Mutant::IgnoresOwners);
    assert!(broken > 1, "{broken} seeds had a commit of a lost owner");
    assert_eq!(caught, broken, "seeds that were caught");
}

/// The store refuses a few claims that the account allows: beside claims that lie after a clock which went back, and
/// beside a thread that a process claimed without its groups after the lease had expired.
#[test]
fn a_backend_that_passes_over_limits_is_caught() {
    let (broken, caught) = broken_and_caught(Mutant::IgnoresLimits);
    assert!(broken > 5 && caught * 5 >= broken * 4, "{caught} of {broken} seeds were caught");
}
