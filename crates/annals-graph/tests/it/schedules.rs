//! Schedules: each due time runs once, over workers and crashes; missed ones by policy; pauses and time zones.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use annals::base::{Clock, Timestamp};
use annals::history::ThreadQuery;
use annals::store::{OpenOptions, StoreError};
use annals_graph::graph::Entrypoint;
use annals_graph::prelude::*;
use annals_graph::runs::ThreadStatus;
use annals_graph::{ClockChanges, MissedRuns, Schedule, Schedules, Worker};
use macro_rules_attribute::apply;

use crate::backends::place_with;

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
    assert!(runs.iter().all(|run| ThreadStatus::of(run) == ThreadStatus::Done));
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

#[apply(each_backend)]
fn a_period_runs_at_its_multiples_and_misses_by_the_policy() {
    let hands = hands("2026-11-25T10:07:00Z");
    let store = place_with(OpenOptions::new().clock(hands.clone()));
    let graph = Entrypoint::new("report", |(): ()| Ok(1)).compile().unwrap();
    let every = |seconds| Schedule::every("p", "report", Duration::from_secs(seconds));
    let schedule = every(90 * 60).unwrap().missed(MissedRuns::RunAll(2));
    let schedules = Schedules::of(&store);
    schedules.add(&schedule).unwrap();
    schedules.pause("p").unwrap();
    schedules.resume("p").unwrap();
    let stored = schedules.get("p").unwrap().unwrap();
    assert!(stored == schedule && stored != every(3_600).unwrap(), "a pause does not count");
    assert_eq!((stored.cron(), stored.period()), ("", Some(Duration::from_secs(5_400))));
    let work = || Worker::new(&store).register(&graph).run_until_idle().unwrap().continued;
    assert_eq!(work(), 0);
    hands.set("2026-11-25T10:30:10Z");
    assert_eq!((work(), work()), (1, 0));
    hands.set("2026-11-29T00:00:00Z");
    assert_eq!(work(), 2);
    assert_eq!(runs(&store, "p"), ["2026-11-25T10:30:00", "2026-11-28T22:30:00", "2026-11-29T00:00:00"]);
    for seconds in [0, 367 * 86_400] {
        assert!(matches!(every(seconds), Err(StoreError::Invalid { field: "period", .. })), "{seconds}");
    }
}

/// The rule by which the clocks of a zone change twice a year.
struct ZoneRule {
    zone: &'static str,
    /// Seconds east of UTC in standard time and in summer time.
    standard: i64,
    summer: i64,
    /// Of the begin and the end of summer time: the month, the day from which on it is the first Sunday (0: the last
    /// Sunday), and the second of the day.
    begins: (u32, u32, i64),
    ends: (u32, u32, i64),
    /// True if the seconds are those of UTC, and not of the clocks before the change.
    is_utc: bool,
}

const DAY: i64 = 86_400;

/// Returns the number of days from 1970 to a date, by counting.
fn days_to(year: i64, month: u32, day: u32) -> i64 {
    let is_leap = |year: i64| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let lengths = |year: i64| [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let years: i64 = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    let months: i64 = lengths(year).iter().take(month as usize - 1).sum();
    years + months + i64::from(day) - 1
}

/// Returns the day of the first Sunday of a month from a day on; 0 stands for the last one.
fn sunday(year: i64, month: u32, from: u32) -> i64 {
    let from = if from == 0 { days_to(year, month + 1, 1) - 7 } else { days_to(year, month, from) };
    // 1 January 1970 was a Thursday, the fourth day after a Sunday.
    from + (7 - (from + 4) % 7) % 7
}

impl ZoneRule {
    /// Returns the changes: the instant, and the offsets before and after it.
    fn changes(&self) -> Vec<(i64, i64, i64)> {
        let mut changes = Vec::new();
        for year in 2027..=2036 {
            for ((month, number, second), before, after) in
                [(self.begins, self.standard, self.summer), (self.ends, self.summer, self.standard)]
            {
                let local = sunday(year, month, number) * DAY + second;
                changes.push((if self.is_utc { local } else { local - before }, before, after));
            }
        }
        changes.sort_unstable();
        changes
    }

    /// Returns the instant at which a local second runs under the policy that runs each once.
    fn instant(&self, changes: &[(i64, i64, i64)], local: i64) -> i64 {
        for (at, before, after) in changes {
            let (was, is) = (at + before, at + after);
            if after > before && (was..is).contains(&local) {
                return local - before;
            }
            if after < before && (is..was).contains(&local) {
                return local - before;
            }
        }
        let offset_of = |offset: i64| {
            let at = local - offset;
            let last = changes.iter().rev().find(|(change, ..)| *change <= at);
            last.map_or_else(|| changes[0].1, |(.., after)| *after) == offset
        };
        let offset = [self.standard, self.summer].into_iter().find(|offset| offset_of(*offset));
        local - offset.expect("an offset of the local time")
    }
}

const RULES: [ZoneRule; 3] = [
    ZoneRule {
        zone: "Europe/Zurich",
        standard: 3_600,
        summer: 7_200,
        begins: (3, 0, 3_600),
        ends: (10, 0, 3_600),
        is_utc: true,
    },
    // At the midnight that ends the first Saturday of September and of April.
    ZoneRule {
        zone: "America/Santiago",
        standard: -14_400,
        summer: -10_800,
        begins: (9, 2, 0),
        ends: (4, 2, 0),
        is_utc: false,
    },
    // Half an hour.
    ZoneRule {
        zone: "Australia/Lord_Howe",
        standard: 37_800,
        summer: 39_600,
        begins: (10, 1, 7_200),
        ends: (4, 1, 7_200),
        is_utc: false,
    },
];

#[test]
fn each_local_time_runs_once_over_ten_years_of_clock_changes() {
    // In each zone one of these times is left out, and another one repeated.
    let minutes = [0, 15, 90, 105, 120, 130, 150, 155, 180, 1_380, 1_410];
    for rule in &RULES {
        let changes = rule.changes();
        for minute in minutes {
            let cron = format!("{} {} * * *", minute % 60, minute / 60);
            let schedule = Schedule::new("s", "g", cron).unwrap().zone(rule.zone).unwrap();
            // The days around each change; the times of the others are those of their half of the year.
            for (change, ..) in &changes {
                let days = change.div_euclid(DAY) - 2..=change.div_euclid(DAY) + 2;
                let instant =
                    |day: i64| Timestamp::from_micros(rule.instant(&changes, day * DAY + minute * 60) * 1_000_000);
                let mut at = Timestamp::from_micros(instant(*days.start()).as_micros() - 1);
                for day in days {
                    let next = schedule.next_after(at).unwrap();
                    assert_eq!(next, instant(day), "{} minute {minute} of day {day}", rule.zone);
                    at = next;
                }
            }
        }
    }
}

#[test]
fn a_schedule_that_runs_every_hour_runs_in_each_hour_that_passes() {
    for rule in &RULES {
        let schedule = |cron: &str| Schedule::new("s", "g", cron).unwrap().zone(rule.zone).unwrap();
        let (quarters, shown) = (schedule("*/15 * * * *"), schedule("*/15 * * * *"));
        let shown = shown.clock_changes(ClockChanges::AsShown).unwrap();
        for (change, ..) in rule.changes() {
            let (from, to) = (change - 7_200, change + 7_200);
            let mut at = Timestamp::from_micros((from - 1) * 1_000_000);
            for want in (from..to).step_by(900) {
                let next = quarters.next_after(at).unwrap();
                assert_eq!(next, Timestamp::from_micros(want * 1_000_000), "{}", rule.zone);
                assert_eq!(shown.next_after(at), Some(next), "{}", rule.zone);
                at = next;
            }
        }
    }
}

#[test]
fn a_schedule_can_follow_the_clock_on_the_wall() {
    for (rule, minutes) in RULES.iter().zip([(150, 150), (30, 1_410), (135, 105)]) {
        let schedule = |minute: i64| {
            let cron = format!("{} {} * * *", minute % 60, minute / 60);
            let schedule = Schedule::new("s", "g", cron).unwrap().zone(rule.zone).unwrap();
            schedule.clock_changes(ClockChanges::AsShown).unwrap()
        };
        let changes = rule.changes();
        let forward = changes.iter().find(|(_, before, after)| after > before).unwrap().0;
        let back = changes.iter().find(|(_, before, after)| after < before).unwrap().0;
        let between = |schedule: &Schedule, at: i64| {
            let (mut from, mut runs) = (Timestamp::from_micros((at - DAY / 2) * 1_000_000), 0);
            while let Some(next) =
                schedule.next_after(from).filter(|next| next.as_micros() < (at + DAY / 2) * 1_000_000)
            {
                (from, runs) = (next, runs + 1);
            }
            runs
        };
        assert_eq!(
            (between(&schedule(minutes.0), forward), between(&schedule(minutes.1), back)),
            (0, 2),
            "{}",
            rule.zone
        );
    }
}
