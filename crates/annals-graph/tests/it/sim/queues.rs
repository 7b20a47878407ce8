//! The queues of the second simulator: limits of the runs of a seed, an account of the claims under them, and a
//! schedule.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use annals::base::{ThreadId, Timestamp};
use annals::store::Store;
use annals::store::lease::LeaseGroup;
use annals_graph::{MissedRuns, QueueLimit, Schedule, Schedules};

use super::Rng;

/// The name of the schedule, with which the threads of its runs begin.
const SCHEDULE: &str = "tick";
/// The distance of its due times in seconds, as `CRON` has it.
const PERIOD: i64 = 300;
const CRON: &str = "*/5 * * * *";

/// Returns the limits of a seed; half of the seeds have none.
pub(crate) fn limits(seed: u64) -> Vec<QueueLimit> {
    let mut rng = Rng(seed ^ 0x11_417);
    if rng.chance(50) {
        return Vec::new();
    }
    let mut limit = QueueLimit::new("flow");
    if rng.chance(60) {
        limit = limit.concurrency(1 + rng.below(2) as u64);
    }
    if rng.chance(50) {
        limit = limit.rate(1 + rng.below(3) as u64, Duration::from_secs(5 + rng.below(40) as u64));
    }
    if rng.chance(50) {
        limit = limit.per_key("customer", 1);
    }
    vec![limit]
}

/// A claim that entered groups.
#[derive(Debug)]
struct EnteredClaim {
    at: Timestamp,
    groups: Vec<LeaseGroup>,
    /// True once it was released, or the thread was claimed without groups.
    has_left: bool,
}

/// An account of the claims that entered groups, kept beside the store.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// The last claim of each thread that entered groups.
    last: HashMap<ThreadId, EnteredClaim>,
    /// Number of claims beside live or counted ones of the same group.
    pub(crate) beside: u64,
}

impl Claims {
    /// Notes a claim that was stored. `is_live` tells of another thread whether its lease is live. Returns the limits
    /// that it broke.
    pub(crate) fn note(
        &mut self,
        thread: &ThreadId,
        now: Timestamp,
        groups: &[LeaseGroup],
        is_live: impl Fn(&ThreadId) -> bool,
    ) -> Vec<String> {
        let mut broken = Vec::new();
        for group in groups {
            let is_in = |claim: &EnteredClaim| claim.groups.iter().any(|other| other.name == group.name);
            let others = || self.last.iter().filter(|(of, claim)| *of != thread && is_in(claim));
            let live = others().filter(|(of, claim)| !claim.has_left && is_live(of)).count() as u64;
            let begun = group.rate.map_or(0, |(_, period)| {
                let counts = |at: Timestamp| at <= now && at.saturating_add(period) > now;
                others().filter(|(_, claim)| counts(claim.at)).count() as u64
            });
            self.beside += u64::from(live + begun > 0);
            if group.live_max.is_some_and(|max| live >= max) || group.rate.is_some_and(|(runs, _)| begun >= runs) {
                broken.push(format!("{thread}: claimed at {now} beside {live} live and {begun} begun of {group:?}"));
            }
        }
        self.last.insert(thread.clone(), EnteredClaim { at: now, groups: groups.to_vec(), has_left: false });
        broken
    }

    /// Notes that a thread was released, or claimed without groups.
    pub(crate) fn left(&mut self, thread: &ThreadId) {
        self.last.entry(thread.clone()).and_modify(|claim| claim.has_left = true);
    }
}

/// The schedule of a seed, and what it must have enqueued.
#[derive(Debug)]
pub(crate) struct SimSchedule {
    missed: MissedRuns,
    added_at: i64,
}

impl SimSchedule {
    /// Adds the schedule of a seed; two of three seeds have none.
    pub(crate) fn add(store: &Store, seed: u64, seconds: i64, argument: i64) -> Option<Self> {
        let mut rng = Rng(seed ^ 0x5c_4ed);
        if rng.below(3) > 0 {
            return None;
        }
        let missed = [MissedRuns::Skip, MissedRuns::RunLast, MissedRuns::RunAll(1_000)][rng.below(3)];
        let schedule = Schedule::new(SCHEDULE, "flow", CRON).unwrap().argument(argument).missed(missed);
        Schedules::of(store).add(&schedule).unwrap();
        Some(Self { missed, added_at: seconds })
    }

    /// Pauses it, so that the runs come to an end.
    pub(crate) fn pause(store: &Store) {
        assert!(Schedules::of(store).pause(SCHEDULE).unwrap(), "the schedule is there");
    }

    /// Returns the violations of the policy by the threads of a store, after a worker has looked at it at `seconds`,
    /// while the clock was never after `last`: each due time has one thread, and none is missing that the policy runs.
    pub(crate) fn violations(&self, threads: &BTreeSet<String>, seconds: i64, last: i64) -> Vec<String> {
        let due = |from: i64, to: i64| (from / PERIOD + 1..=to / PERIOD).map(|n| n * PERIOD);
        let name = |at: i64| format!("{SCHEDULE}/{}", Timestamp::from_micros(at * 1_000_000));
        let possible: BTreeMap<String, i64> = due(self.added_at, last).map(|at| (name(at), at)).collect();
        let runs = threads.iter().filter(|thread| thread.starts_with(SCHEDULE));
        let unknown = runs.filter(|run| !possible.contains_key(*run)).map(|run| format!("{run} was not due"));
        let mut passed = possible.iter().filter(|(_, at)| **at <= seconds);
        let is_there = |(run, _): &(&String, &i64)| threads.contains(*run);
        let missing = match self.missed {
            MissedRuns::RunAll(_) => passed.find(|run| !is_there(run)),
            MissedRuns::RunLast if !passed.clone().any(|run| is_there(&run)) => passed.next_back(),
            _ => None,
        };
        let missing = missing.map(|(run, _)| format!("{run} is missing"));
        unknown.chain(missing).collect()
    }
}
