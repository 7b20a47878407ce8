//! Schedules: each due time runs once, over workers and crashes; missed ones by policy; pauses and time zones.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use annals::base::{Clock, Timestamp};
use annals::history::{ThreadQuery, ThreadStatus};
use annals::store::{OpenOptions, StoreError};
use annals_graph::graph::Entrypoint;
use annals_graph::prelude::*;
use annals_graph::{MissedRuns, Schedule, Schedules, Worker};
use macro_rules_attribute::apply;

use crate::places::place_with;

#[derive(Clone)]
struct Hands(Arc<AtomicI64>);

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A clock that stands at a time, which the test sets.
fn hands(text: &str) -> Hands {
    Hands(Arc::new(AtomicI64::new(at(text).as_micros())))
}

impl Hands {
    fn set(&self, text: &str) {
        self.0.store(at(text).as_micros(), Ordering::SeqCst);
    }
}

/// Returns the times of the runs of a schedule.
fn runs(store: &Store, schedule: &str) -> Vec<String> {
    let runs = store.threads_with(ThreadQuery::new().graph("report").by_id()).unwrap();
    assert!(runs.iter().all(|run| run.status() == &ThreadStatus::Done));
    let of = runs.iter().filter_map(|run| run.id().as_str().strip_prefix(schedule)?.strip_prefix('/'));
    of.map(|at| at.trim_end_matches(".000000Z").to_owned()).collect()
}

#[apply(each_backend)]
fn each_due_time_runs_once_over_all_workers() {
    let hands = hands("2026-11-25T10:07:00Z");
    let store = place_with(OpenOptions::new().clock(hands.clone()));
    let graph = Entrypoint::new("report", |folder: String| Ok(folder.len() as i64)).compile().unwrap();
    let schedule = Schedule::new("hourly", "report", "*/30 * * * *").unwrap().argument("docs").priority(4);
    let schedules = Schedules::of(&store);
    schedules.add(&schedule).unwrap();
    let work = || {
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| Worker::new(&store).register(&graph).run_until_idle().unwrap().continued))
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum::<u64>()
        })
    };
    assert_eq!(work(), 0, "the first due time is to come");
    hands.set("2026-11-25T10:30:00Z");
    assert_eq!((work(), work()), (1, 0));
    hands.set("2026-11-25T11:00:01Z");
    assert_eq!((work(), work()), (1, 0));
    assert_eq!(runs(&store, "hourly"), ["2026-11-25T10:30:00", "2026-11-25T11:00:00"]);
    let thread = store.thread("hourly/2026-11-25T11:00:00.000000Z").unwrap();
    assert_eq!(graph.get_state(&thread).unwrap().values.value(), Some(&4));
    let metadata = thread.head().unwrap().unwrap().record().metadata.clone().unwrap();
    assert!(metadata.contains("\"schedule\":\"hourly\"") && metadata.contains("due_at"), "{metadata}");
    let other = Entrypoint::new("other", |n: i64| Ok(n)).compile().unwrap();
    hands.set("2026-11-25T11:30:00Z");
    Worker::new(&store).register(&other).run_until_idle().unwrap();
    assert_eq!(runs(&store, "hourly").len(), 2, "a worker fires the schedules of its graphs");
}

#[apply(each_backend)]
fn missed_due_times_follow_their_policy() {
    for (name, missed, expected) in [
        ("skip", MissedRuns::Skip, vec![]),
        ("last", MissedRuns::RunLast, vec!["2026-11-25T13:00:00"]),
        ("all", MissedRuns::RunAll(2), vec!["2026-11-25T12:00:00", "2026-11-25T13:00:00"]),
    ] {
        let hands = hands("2026-11-25T10:30:00Z");
        let store = place_with(OpenOptions::new().clock(hands.clone()));
        let graph = Entrypoint::new("report", |(): ()| Ok(1)).compile().unwrap();
        let schedule = Schedule::new(name, "report", "0 * * * *").unwrap().missed(missed);
        Schedules::of(&store).add(&schedule).unwrap();
        hands.set("2026-11-25T13:30:00Z");
        Worker::new(&store).register(&graph).run_until_idle().unwrap();
        assert_eq!(runs(&store, name), expected, "{missed:?}");
        hands.set("2026-11-25T14:00:30Z");
        Worker::new(&store).register(&graph).run_until_idle().unwrap();
        assert_eq!(runs(&store, name).len(), expected.len() + 1, "{missed:?}: one that is a little late");
    }
}

#[apply(each_backend)]
fn a_paused_schedule_misses_nothing_and_a_removed_one_is_gone() {
    let hands = hands("2026-11-25T10:30:00Z");
    let store = place_with(OpenOptions::new().clock(hands.clone()));
    let graph = Entrypoint::new("report", |(): ()| Ok(1)).compile().unwrap();
    let work = || Worker::new(&store).register(&graph).run_until_idle().unwrap().continued;
    let schedules = Schedules::of(&store);
    let schedule = Schedule::new("s", "report", "0 * * * *").unwrap().missed(MissedRuns::RunAll(10));
    schedules.add(&schedule).unwrap();
    assert!(schedules.pause("s").unwrap() && !schedules.pause("none").unwrap());
    assert!(schedules.get("s").unwrap().unwrap().is_paused());
    hands.set("2026-11-25T12:30:00Z");
    assert_eq!(work(), 0);
    assert!(schedules.resume("s").unwrap());
    hands.set("2026-11-25T13:00:00Z");
    assert_eq!(work(), 1, "from its next due time on");
    assert!(schedules.remove("s").unwrap() && !schedules.remove("s").unwrap());
    assert!(schedules.list().unwrap().is_empty());
    hands.set("2026-11-25T15:00:00Z");
    assert_eq!(work(), 0);
}

#[test]
fn times_are_those_of_the_zone_and_bad_ones_are_refused() {
    let zurich = Schedule::new("s", "g", "30 2 * * *").unwrap().zone("Europe/Zurich").unwrap();
    let next = |from: &str| zurich.next_after(at(from)).unwrap();
    assert_eq!(next("2026-07-01T00:00:00Z"), at("2026-07-01T00:30:00Z"), "in summer");
    assert_eq!(next("2026-12-01T00:00:00Z"), at("2026-12-01T01:30:00Z"), "in winter");
    assert_eq!(next("2026-12-01T01:30:00Z"), at("2026-12-02T01:30:00Z"), "after, not at");
    let refused = |cron: &str| Schedule::new("s", "g", cron).unwrap_err();
    for cron in ["", "* * * *", "60 * * * *", "* * * * * UTC", "x * * * *"] {
        assert!(matches!(refused(cron), StoreError::Invalid { field: "cron expression", .. }), "{cron}");
    }
    assert!(Schedule::new("s", "g", "* * * * *").unwrap().zone("Europe/Atlantis").is_err());
    assert!(Schedule::new("", "g", "* * * * *").is_err());
}
