//! Leases: a second run on a thread learns of the first one before it has an effect, and a run that lost its lease
//! stores nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use annals::base::{Clock, SystemClock, Timestamp};
use annals::store::batch::Batch;
use annals::store::lease::NewLease;
use annals::store::{OpenOptions, StoreError};
use annals_graph::graph::Entrypoint;
use annals_graph::prelude::*;
use annals_graph::task::{RunControl, Task};
use annals_graph::{Durability, Error, ErrorKind, IntoInput, Run};
use macro_rules_attribute::apply;

use crate::backends::{GUARD, in_a_file, new_thread, place, place_with};
use crate::line_state::{Log, LogUpdate, line};

const LEASE: Duration = Duration::from_secs(30);

/// A clock that the test sets, in seconds.
#[derive(Clone, Default)]
struct Hands(Arc<AtomicI64>);

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst) * 1_000_000)
    }
}

/// A way in which a run is driven.
#[derive(Clone, Copy, Debug)]
enum Way {
    Blocking,
    Async,
    Stream,
}

const WAYS: [Way; 3] = [Way::Blocking, Way::Async, Way::Stream];

impl Way {
    fn invoke<M>(self, run: Run<'_, Log>, input: impl IntoInput<Log, M>) -> Result<Outcome<Log>, Error> {
        match self {
            Self::Blocking => run.invoke(input),
            Self::Async => annals_graph::block_on(run.ainvoke(input)),
            Self::Stream => {
                let mut stream = run.stream(input, &[StreamMode::Updates])?;
                for part in &mut stream {
                    part?;
                }
                Ok(stream.outcome().unwrap().clone())
            }
        }
    }
}

/// START -> name
fn one<M>(name: &str, node: impl annals_graph::graph::IntoNode<Log, M>) -> CompiledGraph<Log> {
    StateGraph::<Log>::new().node(name, node).edge(START, name).compile().unwrap()
}

/// A graph whose node counts how often it ran.
fn counting() -> (CompiledGraph<Log>, Arc<AtomicUsize>) {
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    let graph = one("count", move |_: &Log| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(line("rival"))
    });
    (graph, ran)
}

fn text(text: &str) -> Input {
    IntoInput::<Log, _>::into_input(line(text))
}

/// Returns another handle of the file of a thread; in memory, of the same backend.
fn elsewhere(thread: &Thread) -> Thread {
    let store = if in_a_file() { place() } else { thread.store().clone() };
    store.thread(thread.id()).unwrap()
}

/// Returns the epoch of the last lease, and whether it is held.
fn lease_of(thread: &Thread) -> (u64, bool) {
    thread.last_lease().unwrap().map_or((0, false), |lease| (lease.epoch, lease.expires_at.is_some()))
}

fn is_leased(result: &Result<Outcome<Log>, Error>) -> bool {
    matches!(result.as_ref().unwrap_err().as_store(), Some(StoreError::Leased { .. }))
}

fn is_lost(result: &Result<Outcome<Log>, Error>) -> bool {
    matches!(result.as_ref().unwrap_err().as_store(), Some(StoreError::LeaseLost { .. }))
}

#[apply(each_backend)]
fn a_second_run_is_refused_before_one_of_its_nodes_starts() {
    for way in WAYS {
        for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
            let thread = new_thread();
            // With Exit the thread has to exist before its run ends.
            thread.update(line("before")).unwrap();
            let (rival, ran) = counting();
            let (other, rivals) = (elsewhere(&thread), rival.clone());
            let graph = one("first", move |_: &Log| {
                assert!(lease_of(&other).1, "{way:?} {durability:?}");
                for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
                    let run = || rivals.run(&other).durability(durability);
                    assert!(is_leased(&way.invoke(run().lease(LEASE), line("x"))), "{way:?} {durability:?}");
                    assert!(is_leased(&way.invoke(run().lease(LEASE), Input::Continue)));
                    assert!(is_leased(&way.invoke(run(), Input::Continue)));
                    assert!(is_leased(&way.invoke(run().wait_for_lease(Duration::from_millis(20)), line("x"))));
                }
                let refused = way.invoke(rivals.run(&other), line("x"));
                assert!(is_leased(&refused) && refused.unwrap_err().kind() == ErrorKind::Busy);
                Ok(line("first"))
            });
            let run = graph.run(&thread).durability(durability).lease(LEASE);
            let done = way.invoke(run, line("input")).unwrap();
            assert_eq!(done.state().lines.to_vec(), ["before", "input", "first"]);
            assert_eq!(ran.load(Ordering::SeqCst), 0);
            assert_eq!(lease_of(&thread), (1, false), "{way:?} {durability:?}");
            let after = way.invoke(rival.run(&thread).lease(LEASE), line("again")).unwrap();
            assert_eq!(after.state().lines.to_vec(), ["before", "input", "first", "again", "rival"]);
            assert_eq!(lease_of(&thread), (2, false));
            assert!(thread.store().check().unwrap().problems.is_empty());
        }
    }
}

#[apply(each_backend)]
fn every_end_of_a_run_releases_its_lease() {
    for way in WAYS {
        let thread = new_thread();
        let control = RunControl::new();
        let drain = control.clone();
        let graph = StateGraph::<Log>::new()
            .node("one", move |log: &Log, ctx: &Context| match log.lines.last().map(String::as_str) {
                Some("ask") => Ok(line(ctx.interrupt("?")?.as_str().unwrap_or_default())),
                Some("fail") => Err("it fails".into()),
                Some("drain") => {
                    drain.request_drain("enough");
                    Ok(line("drained"))
                }
                _ => Ok(line("one")) as NodeResult<_>,
            })
            .node("two", |_: &Log| Ok(line("two")))
            .edge(START, "one")
            .edge("one", "two")
            .compile()
            .unwrap();
        let run = |input| way.invoke(graph.run(&thread).lease(LEASE), input);
        assert!(run(text("done")).unwrap().is_done());
        assert_eq!(lease_of(&thread), (1, false));
        assert_eq!(run(text("ask")).unwrap().interrupts().len(), 1);
        assert_eq!(lease_of(&thread), (2, false));
        assert!(run(Input::Command(Command::resume("answer"))).unwrap().is_done());
        assert_eq!(lease_of(&thread), (3, false));
        run(text("fail")).unwrap_err();
        // A run that failed releases in the background.
        thread.store().flush_abandoned();
        assert_eq!(lease_of(&thread), (4, false));
        let drained = way.invoke(graph.run(&thread).lease(LEASE).control(&control), line("drain")).unwrap();
        assert!(matches!(drained, Outcome::Drained { .. }));
        assert_eq!(lease_of(&thread), (5, false));
        let before = graph.run(&thread).lease(LEASE).interrupt_before(["two"]);
        way.invoke(before, line("break")).unwrap();
        assert_eq!(lease_of(&thread), (6, false));
    }
}

#[apply(each_backend)]
fn a_run_that_is_dropped_releases_its_lease() {
    let thread = new_thread();
    let graph = one("one", |_: &Log| Ok(line("one")));
    let mut stream = graph.run(&thread).lease(LEASE).stream(line("input"), &[StreamMode::Values]).unwrap();
    stream.next().unwrap().unwrap();
    assert_eq!(lease_of(&thread), (1, true));
    drop(stream);
    thread.store().flush_abandoned();
    assert_eq!(lease_of(&thread), (1, false));
    let done = graph.run(&thread).lease(LEASE).invoke(Input::Continue).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["input", "one"]);
    assert_eq!(lease_of(&thread), (2, false));
}

#[apply(each_backend)]
fn a_run_whose_lease_expired_loses_it_to_the_next_one_and_stores_nothing_more() {
    for way in WAYS {
        for durability in [Durability::Sync, Durability::Async] {
            let hands = Hands::default();
            let store = place_with(OpenOptions::new().clock(hands.clone()));
            let thread = store.thread(format!("{way:?} {durability:?}")).unwrap();
            let other = thread.clone();
            let rival = StateGraph::<Log>::new()
                .node("slow", |_: &Log| Ok(line("rival")))
                .node("after", |_: &Log| Ok(line("after")))
                .edge(START, "slow")
                .edge("slow", "after")
                .compile()
                .unwrap();
            let slow = move |_: &Log| {
                // The process is stopped for longer than its lease.
                hands.0.fetch_add(60, Ordering::SeqCst);
                let taken = rival.run(&other).lease(LEASE).invoke(Input::Continue).unwrap();
                assert_eq!(taken.state().lines.to_vec(), ["input", "rival", "after"]);
                Ok(line("slow"))
            };
            let after = |_: &Log| -> NodeResult<LogUpdate> { panic!("no task of a run that lost its lease starts") };
            let graph = StateGraph::<Log>::new()
                .node("slow", slow)
                .node("after", after)
                .edge(START, "slow")
                .edge("slow", "after")
                .compile()
                .unwrap();
            let lost = way.invoke(graph.run(&thread).durability(durability).lease(LEASE), line("input"));
            assert!(is_lost(&lost), "{way:?} {durability:?}: {lost:?}");
            assert!(lost.unwrap_err().is_conflict());
            let state = graph.get_state(&thread).unwrap();
            assert_eq!(state.values.lines.to_vec(), ["input", "rival", "after"]);
            assert_eq!(lease_of(&thread), (2, false));
            assert_eq!(thread.last_lease().unwrap().unwrap().recoveries, 1);
        }
    }
}

#[apply(each_backend)]
fn a_lease_is_renewed_as_long_as_its_run_lasts() {
    for way in [Way::Blocking, Way::Async] {
        let thread = new_thread();
        let other = elsewhere(&thread);
        let graph = one("slow", move |_: &Log| {
            let until = || other.last_lease().unwrap().unwrap().expires_at.expect("the run has its lease");
            for _ in 0..3 {
                let (before, begin) = (until(), SystemClock.elapsed());
                while until() == before {
                    assert!(SystemClock.elapsed() - begin < GUARD, "the lease is not renewed");
                    std::thread::sleep(Duration::from_millis(5));
                }
                assert!(until() > before);
            }
            Ok(line("slow"))
        });
        way.invoke(graph.run(&thread).lease(Duration::from_secs(3)), line("input")).unwrap();
        assert_eq!(lease_of(&thread), (1, false));
    }
}

#[apply(each_backend)]
fn a_broken_lease_ends_its_run() {
    let thread = new_thread();
    let other = thread.clone();
    let first = Task::new("first", move |n: i64| {
        let epoch = other.last_lease()?.unwrap().epoch;
        assert!(!other.break_lease(epoch + 1)?, "no such lease");
        assert!(other.break_lease(epoch)?);
        assert!(!other.break_lease(epoch)?, "it is broken already");
        Ok(n)
    });
    let second = Task::new("second", |n: i64| -> NodeResult<i64> {
        panic!("no task of a run that lost its lease starts: {n}");
    });
    let flow = Entrypoint::new("flow", move |n: i64, context: &Context| {
        let first = first.call(context, n)?;
        second.call(context, first)
    });
    let flow = flow.compile().unwrap();
    let error = flow.run(&thread).lease(LEASE).invoke(1).unwrap_err();
    assert!(matches!(error.as_store(), Some(StoreError::LeaseLost { .. })), "{error}");
    assert_eq!(lease_of(&thread), (2, false));
}

#[apply(each_backend)]
fn a_run_waits_for_the_lease_of_another_one() {
    for way in WAYS {
        let thread = new_thread();
        let (go, gone) = std::sync::mpsc::channel();
        let graph = one("slow", move |_: &Log| {
            go.send(()).unwrap();
            // So that mostly the other run waits; the outcome is the same if not.
            std::thread::sleep(Duration::from_millis(100));
            Ok(line("slow"))
        });
        let other = elsewhere(&thread);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| graph.run(&thread).lease(LEASE).invoke(line("input")).unwrap());
            gone.recv().unwrap();
            let (second, _) = counting();
            let run = second.run(&other).wait_for_lease(GUARD);
            let done = way.invoke(run, line("second")).unwrap();
            assert_eq!(done.state().lines.to_vec(), ["input", "slow", "second", "rival"]);
            first.join().unwrap();
        });
        assert_eq!(lease_of(&thread), (2, false));
    }
}

#[apply(each_backend)]
fn an_edit_from_outside_needs_no_lease_and_makes_the_run_a_conflict() {
    let thread = new_thread();
    let other = elsewhere(&thread);
    let graph = one("one", move |_: &Log| {
        other.update(line("edit"))?;
        Ok(line("one"))
    });
    let error = graph.run(&thread).lease(LEASE).invoke(line("input")).unwrap_err();
    assert!(matches!(error.as_store(), Some(StoreError::Conflict { .. })), "{error}");
    thread.store().flush_abandoned();
    assert_eq!(lease_of(&thread), (1, false));
    assert_eq!(graph.get_state(&thread).unwrap().values.lines.to_vec(), ["input", "edit"]);
}

#[apply(each_backend)]
fn the_outcome_of_an_earlier_run_with_a_key_is_shown_while_another_one_has_the_lease() {
    let thread = new_thread();
    let keyed = one("one", |_: &Log| Ok(line("one")));
    let run = |input| keyed.run(&thread).lease(LEASE).idempotency_key("k").invoke(input);
    run(line("input")).unwrap();
    assert_eq!(lease_of(&thread), (1, false));
    let lease = thread.lease(LEASE).unwrap();
    assert_eq!(run(line("input")).unwrap().state().lines.to_vec(), ["input", "one"]);
    assert!(is_leased(&keyed.run(&thread).lease(LEASE).idempotency_key("other").invoke(line("x"))));
    lease.release().unwrap();
    assert_eq!(lease_of(&thread), (2, false));
}

#[test]
fn a_lease_past_its_limits_is_refused() {
    let thread = Store::memory().thread("t").unwrap();
    let graph = one("one", |_: &Log| Ok(()));
    for duration in [Duration::ZERO, Duration::from_millis(9), Duration::from_secs(31 * 24 * 3_600)] {
        let error = graph.run(&thread).lease(duration).invoke(line("x")).unwrap_err();
        assert!(matches!(error.as_store(), Some(StoreError::Invalid { field: "lease", .. })), "{error}");
        assert!(matches!(thread.lease(duration), Err(StoreError::Invalid { field: "lease", .. })));
    }
}

/// A store whose clock the test sets, at 1,000 s.
fn by_hand() -> (Hands, Store) {
    let hands = Hands::default();
    hands.0.store(1_000, Ordering::SeqCst);
    let store = place_with(OpenOptions::new().clock(hands.clone()));
    (hands, store)
}

fn seconds(second: i64) -> Timestamp {
    Timestamp::from_micros(second * 1_000_000)
}

#[apply(each_backend)]
fn a_run_goes_on_after_a_suspension_or_a_jump_of_the_clock_if_nobody_took_its_thread() {
    for way in WAYS {
        // An hour later, an hour earlier, and forward and back again.
        for jumps in [&[4_600][..], &[-2_600], &[90_000, 900]] {
            let (hands, store) = by_hand();
            let thread = store.thread(format!("{way:?} {jumps:?}")).unwrap();
            let clock = hands.clone();
            let graph = StateGraph::<Log>::new()
                .node("slow", move |_: &Log| {
                    jumps.iter().for_each(|second| clock.0.store(*second, Ordering::SeqCst));
                    Ok(line("slow"))
                })
                .node("after", |_: &Log| Ok(line("after")))
                .edge(START, "slow")
                .edge("slow", "after")
                .compile()
                .unwrap();
            let done = way.invoke(graph.run(&thread).lease(LEASE), line("input")).unwrap();
            assert_eq!(done.state().lines.to_vec(), ["input", "slow", "after"], "{way:?} {jumps:?}");
            assert_eq!(lease_of(&thread), (1, false));
            // The next claim goes by the clock as it stands.
            way.invoke(graph.run(&thread).lease(LEASE), line("again")).unwrap();
            assert_eq!(lease_of(&thread), (2, false));
            assert_eq!(thread.last_lease().unwrap().unwrap().recoveries, 0);
        }
    }
}

#[apply(each_backend)]
fn a_clock_that_jumps_back_keeps_a_lease_for_its_owner_until_the_first_timestamp() {
    let (hands, store) = by_hand();
    let thread = store.thread("back").unwrap();
    thread.update(line("before")).unwrap();
    let id = thread.id().clone();
    let claim = |owner: &annals::store::lease::LeaseOwner| {
        let (now, until) = (store.now(), store.now().saturating_add(LEASE));
        store.commit(&Batch::of_lease(id.clone(), NewLease::claim(owner.clone(), now, until)))
    };
    let (owner, rival) = (store.mint_owner(), store.mint_owner());
    claim(&owner).unwrap();
    hands.0.store(100, Ordering::SeqCst);
    let refused = claim(&rival).unwrap_err();
    assert!(matches!(refused, StoreError::Leased { until, .. } if until == seconds(1_030)), "{refused}");
    let (counting, ran) = counting();
    assert!(is_leased(&counting.run(&thread).lease(LEASE).invoke(line("x"))));
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    // A renewal by the new time takes the long expiry back.
    let renew = NewLease::renew(owner.clone(), store.now().saturating_add(LEASE));
    store.commit(&Batch::of_lease(id.clone(), renew)).unwrap();
    assert_eq!(thread.last_lease().unwrap().unwrap().expires_at, Some(seconds(130)));
    hands.0.store(129, Ordering::SeqCst);
    assert!(claim(&rival).is_err());
    hands.0.store(130, Ordering::SeqCst);
    claim(&rival).unwrap();
    let late = store.commit(&Batch::of_lease(id, NewLease::hold(owner)));
    assert!(matches!(late, Err(StoreError::LeaseLost { .. })), "{late:?}");
    // A person ends a lease that is not renewed.
    hands.0.store(-50_000, Ordering::SeqCst);
    let epoch = thread.last_lease().unwrap().unwrap().epoch;
    assert!(thread.break_lease(epoch).unwrap());
    assert!(counting.run(&thread).lease(LEASE).invoke(line("x")).unwrap().is_done());
}

#[apply(each_backend)]
fn a_renewal_that_comes_an_hour_late_holds_the_thread_only_if_nobody_claimed_it() {
    let (hands, store) = by_hand();
    for claims_first in [false, true] {
        hands.0.store(1_000, Ordering::SeqCst);
        let thread = store.thread(format!("late {claims_first}")).unwrap();
        thread.update(line("before")).unwrap();
        let (owner, rival) = (store.mint_owner(), store.mint_owner());
        let commit = |lease: NewLease| store.commit(&Batch::of_lease(thread.id().clone(), lease));
        let claim = |owner: &annals::store::lease::LeaseOwner| {
            commit(NewLease::claim(owner.clone(), store.now(), store.now().saturating_add(LEASE)))
        };
        claim(&owner).unwrap();
        hands.0.fetch_add(3_600, Ordering::SeqCst);
        if claims_first {
            claim(&rival).unwrap();
        }
        let renewed = commit(NewLease::renew(owner.clone(), store.now().saturating_add(LEASE)));
        if claims_first {
            assert!(matches!(renewed, Err(StoreError::LeaseLost { .. })), "{renewed:?}");
            assert_eq!(lease_of(&thread), (2, true), "the rival keeps its lease");
            assert_eq!(thread.last_lease().unwrap().unwrap().recoveries, 1);
        } else {
            renewed.unwrap();
            let refused = claim(&rival);
            assert!(matches!(refused, Err(StoreError::Leased { .. })), "{refused:?}");
            assert_eq!(lease_of(&thread), (1, true));
        }
    }
}
