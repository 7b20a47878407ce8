//! The seeded simulator: random graphs, a random order in which tasks end, failures, faults of the store, a crash at any
//! write, and runs that compete for a thread.
//!
//! Everything happens on one thread on the public API: runs are futures, asynchronous nodes wait until the simulator
//! lets them go on, and a backend around the one in memory loses what a power cut would lose. The law: *whatever
//! happened, the final state and history are those of a run that was left alone, and `check` passes after each crash.*

mod disk;
mod graphs;
mod turns;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use annals::base::{Clock, Timestamp};
use annals::prelude::*;
use annals::store::Backend;
use annals::{Durability, Error};

use disk::{Crash, Disk};
use graphs::{Plan, answer_to};
use turns::Turns;

/// How many seeds the test command runs.
const SEEDS: u64 = 20_000;
/// For how many of them every crash point is tried.
const THOROUGH: u64 = 200;

/// A source of numbers that a seed decides (SplitMix64).
#[derive(Clone)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// What is done to a run.
#[derive(Clone, Default)]
struct Trouble {
    crash: Option<Crash>,
    /// The writes that the store refuses.
    faults: Vec<u64>,
    /// Whether nodes fail on their first attempts.
    failures: bool,
    /// Whether the thread is continued twice at the same time.
    rivals: bool,
}

/// What a thread looks like in the end.
#[derive(Clone, Debug, PartialEq)]
struct Ending {
    state: BTreeMap<String, String>,
    checkpoints: usize,
}

/// Runs the graph of a seed to its end. Returns what the thread looks like, the log of what happened, and how many
/// writes there were.
fn simulate(seed: u64, trouble: &Trouble) -> (Ending, Vec<String>, u64) {
    let mut rng = Rng(seed ^ 0xa5a5);
    let plan = Plan::of(seed);
    let turns = Turns::default();
    let disk = Disk::new(rng.next(), trouble.crash, trouble.faults.clone());
    let clock = Hands::default();
    let options = annals::store::OpenOptions::new().clock(clock.clone());
    let store = Store::with_backend(Arc::clone(&disk) as Arc<dyn Backend>, options);
    let graph = plan.build(&turns, &store.cache(), trouble.failures);
    let thread = store.thread("t").unwrap();
    let durability = if plan.sync { Durability::Sync } else { Durability::Async };
    let mut rivals = trouble.rivals;
    let (mut stopped, mut requests, mut request) = (true, 0, Input::Continue);
    // Failures, faults and questions are bounded, so is the number of runs that end it all.
    for _ in 0..200 {
        let Ok((started, open)) = look(&graph, &thread) else {
            // What a run that failed had submitted met the crash.
            assert!(disk.revive());
            turns.note("restart".into());
            store.clear_head_cache();
            continue;
        };
        let (asleep, open): (Vec<_>, Vec<_>) = open.into_iter().partition(|question| question.wake_at.is_some());
        if open.is_empty() && !asleep.is_empty() {
            wake(&store, &clock, &asleep, stopped);
        }
        if !plan.keyed || stopped {
            requests += 1;
            request = match (started, open.as_slice()) {
                (false, _) => annals::IntoInput::<DynState>::into_input(plan.input()),
                (true, []) => Input::Continue,
                (true, [one]) if plan.keyed => Input::Command(Command::resume(answer_to(&one.value))),
                (true, open) => Input::Command(Command::resume(answers(open))),
            };
        }
        let runs = if rivals && started { 2 } else { 1 };
        rivals &= !started;
        let futures: Vec<_> = (0..runs)
            .map(|_| {
                let mut run = graph.run(&thread).durability(durability);
                if plan.keyed {
                    run = run.idempotency_key(format!("request {requests}"));
                }
                let input = request.clone();
                Box::pin(async move { run.ainvoke(input).await }) as Pin<Box<dyn Future<Output = _>>>
            })
            .collect();
        let ends: Vec<Result<Outcome<DynState>, Error>> = turns.run(futures, &disk, &mut rng);
        let mut done = false;
        stopped = ends.iter().all(Result::is_ok);
        for end in &ends {
            turns.note(match end {
                Ok(Outcome::Done(_)) => "done".into(),
                Ok(outcome) => format!("{} questions", outcome.interrupts().len()),
                Err(error) => format!("error {:?}", error.kind()),
            });
            done |= end.as_ref().is_ok_and(Outcome::is_done);
        }
        if disk.revive() {
            turns.note("restart".into());
            store.clear_head_cache();
            let report = store.check().unwrap();
            assert!(report.problems.is_empty(), "seed {seed}: {:?}", report.problems);
            continue;
        }
        if done {
            let snapshot = graph.get_state(&thread).unwrap();
            assert!(snapshot.next.is_empty(), "seed {seed}: {:?} is still to run", snapshot.next);
            let ending =
                Ending { state: graphs::shown(&snapshot.values), checkpoints: thread.history().unwrap().count() };
            return (ending, turns.log(), disk.writes());
        }
    }
    panic!("seed {seed} comes to no end: {:#?}", turns.log());
}

/// A clock that stands still until nothing else is to be done.
#[derive(Clone, Default)]
struct Hands(Arc<AtomicI64>);

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

/// Sets the clock to the moment of the first timer. If the last run has stopped and not failed, that is the moment of the
/// first who sleeps.
fn wake(store: &Store, clock: &Hands, asleep: &[Interrupt], stopped: bool) {
    let moments: Vec<_> = asleep.iter().filter_map(|question| question.wake_at).collect();
    let timers = store.timers(None).unwrap();
    assert!(timers.iter().all(|timer| moments.contains(&timer.wake_at)), "{timers:?} {moments:?}");
    let first = store.next_timer().unwrap();
    assert!(!stopped || first.as_ref().map(|timer| timer.wake_at) == moments.into_iter().min(), "{timers:?}");
    if let Some(first) = first {
        let now = clock.now().max(first.wake_at);
        clock.0.store(now.as_micros(), Ordering::SeqCst);
    }
}

/// Returns whether the thread has begun, and the questions that are open.
fn look(graph: &CompiledGraph<DynState>, thread: &Thread) -> Result<(bool, Vec<Interrupt>), Error> {
    let started = thread.head()?.is_some();
    Ok((started, if started { graph.get_state(thread)?.interrupts } else { Vec::new() }))
}

/// Answers all open questions by their ids: an answer without one goes to whoever asks first.
fn answers(open: &[Interrupt]) -> Value {
    Value::Map(open.iter().map(|question| (question.id.clone(), answer_to(&question.value))).collect())
}

/// Simulates a seed with one random trouble and compares with the run that is left alone.
fn one_seed(seed: u64) {
    let (calm, log, writes) = simulate(seed, &Trouble::default());
    let mut rng = Rng(seed.wrapping_mul(31));
    let crash = Crash { at: rng.below(writes as usize) as u64, kept: rng.chance(50) };
    let trouble = Trouble {
        crash: rng.chance(80).then_some(crash),
        faults: if rng.chance(30) { vec![rng.below(writes as usize) as u64] } else { Vec::new() },
        failures: rng.chance(40),
        rivals: rng.chance(25),
    };
    let (ending, troubled, _) = simulate(seed, &trouble);
    assert_eq!(ending, calm, "seed {seed}: {log:#?} {troubled:#?}");
    if seed.is_multiple_of(100) {
        assert_eq!(simulate(seed, &trouble).1, troubled, "seed {seed} is not repeatable");
    }
}

/// Runs seeds on two threads.
fn seeds(from: u64, to: u64, one: fn(u64)) {
    std::thread::scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || (from + half..to).step_by(2).for_each(one));
        }
    });
}

#[test]
fn whatever_happens_the_end_is_that_of_a_run_left_alone() {
    seeds(0, SEEDS, one_seed);
}

#[test]
fn a_crash_at_any_write_changes_nothing() {
    seeds(1_000_000, 1_000_000 + THOROUGH, |seed| {
        let (calm, _, writes) = simulate(seed, &Trouble::default());
        for at in 0..writes {
            for kept in [false, true] {
                let trouble = Trouble { crash: Some(Crash { at, kept }), ..Trouble::default() };
                let (ending, log, _) = simulate(seed, &trouble);
                assert_eq!(ending, calm, "seed {seed}, crash at {at} ({kept}): {log:#?}");
            }
        }
    });
}

/// A million seeds: `ANNALS_SIM_SEEDS=1000000 cargo test --test it sim::on_demand`.
#[test]
fn on_demand() {
    let count = std::env::var("ANNALS_SIM_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(2);
    seeds(10_000_000, 10_000_000 + count, one_seed);
}
