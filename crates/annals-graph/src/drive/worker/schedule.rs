//! Schedules: runs that are due again and again, by a cron expression in a time zone.
//!
//! A schedule is an entry of the key-value memory of the store. A worker with its graph enqueues the run of each due
//! time on a thread whose id holds the name and the time, under a deduplication key: so several workers in several
//! processes enqueue it once. The time up to which a schedule has fired is an entry of its own, which only workers
//! write. *Absent:* limits of the runs, which are those of the queue.

use std::fmt;
use std::time::Duration;

use annals_runs::{Queue, StoreRuns};

use serde::{Deserialize, Serialize};

use crate::base::limits::NAME_BYTES_MAX;
use crate::base::{Timestamp, Value};
use crate::limits::{SCHEDULE_LATE_MAX, SCHEDULE_PERIOD_MAX, SCHEDULE_PERIOD_MIN, SCHEDULE_RUNS_MAX};
use crate::store::kv::KvItem;
use crate::store::{Kv, KvQuery, Store, StoreError};

use super::wall_clock::{ClockChanges, WallClock};

/// The namespace of the schedules in the key-value memory.
const SCHEDULES: [&str; 2] = ["annals", "schedules"];
/// The namespace of the times up to which they have fired.
const FIRED: [&str; 2] = ["annals", "fired"];

/// The policy for the due times of a schedule at which no worker ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum MissedRuns {
    /// They are skipped: a due time that is more than a minute late does not run.
    #[default]
    Skip,
    /// The last of them runs.
    RunLast,
    /// The last ones run, the oldest first: at most so many, and at most 1,000.
    RunAll(u32),
}

/// A schedule: when a graph runs, and with which input. Two schedules are equal if all but a pause is equal.
///
/// # Example
/// ```
/// use annals::base::Timestamp;
/// use annals_graph::prelude::*;
/// use annals_graph::{MissedRuns, Schedule, Schedules};
///
/// # fn main() -> Result<()> {
/// let store = Store::memory();
/// let report = Schedule::new("nightly", "report", "30 2 * * MON-FRI")?
///     .zone("Europe/Zurich")?
///     .argument("all customers")
///     .missed(MissedRuns::RunLast);
/// let friday: Timestamp = "2026-11-27T12:00:00Z".parse().expect("a timestamp");
/// assert_eq!(report.next_after(friday), "2026-11-30T01:30:00Z".parse().ok());
///
/// let schedules = Schedules::of(&store);
/// schedules.add(&report)?;
/// schedules.pause("nightly")?;
/// assert!(schedules.list()?[0].is_paused());
/// schedules.resume("nightly")?;
/// assert!(schedules.remove("nightly")?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Schedule {
    stored: StoredSchedule,
    times: DueTimes,
}

/// The due times of a schedule.
#[derive(Clone)]
enum DueTimes {
    Cron(WallClock),
    /// The multiples of a period in microseconds.
    Every(i64),
}

/// A schedule, as its entry holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StoredSchedule {
    name: String,
    graph: String,
    cron: String,
    zone: String,
    input: Value,
    /// True if the input is an update by channel, and not the argument of an entrypoint.
    is_update: bool,
    priority: u8,
    missed: MissedRuns,
    #[serde(default)]
    clock_changes: ClockChanges,
    /// The period in microseconds, in place of an expression.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    period: Option<i64>,
    is_paused: bool,
}

impl Schedule {
    /// Names a schedule and the graph that it runs, at the times of a cron expression: minute, hour, day of the month,
    /// month and day of the week, as `30 2 * * MON-FRI` or `*/15 * L * *`. The time zone is UTC.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the expression does not follow the grammar, or if a name is empty or longer than 256
    /// bytes.
    pub fn new(name: impl Into<String>, graph: impl Into<String>, cron: impl Into<String>) -> Result<Self, StoreError> {
        Self::named(name.into(), graph.into(), cron.into(), None)
    }

    /// Names a schedule and the graph that it runs once in each period: at the multiples of the period since
    /// 1970-01-01T00:00:00Z, so every `30 min` is at :00 and :30 whenever the schedule was added. Changes of the clocks
    /// and the time zone do not count.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the period is shorter than a second or longer than 366 days, or as for
    /// [`Schedule::new`].
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    ///
    /// use annals::base::Timestamp;
    /// use annals_graph::Schedule;
    /// use annals_graph::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let sync = Schedule::every("sync", "mail", Duration::from_secs(90 * 60))?;
    /// let noon: Timestamp = "2026-11-27T12:00:00Z".parse().expect("a timestamp");
    /// assert_eq!(sync.next_after(noon), "2026-11-27T13:30:00Z".parse().ok());
    /// # Ok(())
    /// # }
    /// ```
    pub fn every(name: impl Into<String>, graph: impl Into<String>, period: Duration) -> Result<Self, StoreError> {
        let micros = i64::try_from(period.as_micros()).ok();
        let is_allowed = (SCHEDULE_PERIOD_MIN..=SCHEDULE_PERIOD_MAX).contains(&period);
        let Some(micros) = micros.filter(|_| is_allowed) else {
            let reason = format!("{period:?} is not from {SCHEDULE_PERIOD_MIN:?} to {SCHEDULE_PERIOD_MAX:?}");
            return Err(StoreError::Invalid { field: "period", reason });
        };
        Self::named(name.into(), graph.into(), String::new(), Some(micros))
    }

    fn named(name: String, graph: String, cron: String, period: Option<i64>) -> Result<Self, StoreError> {
        for (field, text) in [("schedule", &name), ("graph", &graph)] {
            if text.is_empty() || text.len() > NAME_BYTES_MAX {
                let reason = format!("its name has {} bytes, and needs 1 to {NAME_BYTES_MAX}", text.len());
                return Err(StoreError::Invalid { field, reason });
            }
        }
        let (zone, input, is_update, priority, is_paused) = ("UTC".to_owned(), Value::Null, false, 0, false);
        let (missed, clock_changes) = (MissedRuns::default(), ClockChanges::default());
        Self::of(StoredSchedule {
            name,
            graph,
            cron,
            zone,
            input,
            is_update,
            priority,
            missed,
            clock_changes,
            period,
            is_paused,
        })
    }

    fn of(stored: StoredSchedule) -> Result<Self, StoreError> {
        if let Some(period) = stored.period.filter(|period| *period > 0) {
            return Ok(Self { stored, times: DueTimes::Every(period) });
        }
        // The expression ends with the zone, so a sixth field would be taken for one.
        let fields = stored.cron.split_whitespace().count();
        let times = match fields {
            5 => WallClock::new(&stored.cron, &stored.zone, stored.clock_changes),
            _ => {
                let reason = format!("{:?} has {fields} fields, not 5", stored.cron);
                return Err(StoreError::Invalid { field: "cron expression", reason });
            }
        };
        match times {
            Ok(times) => Ok(Self { stored, times: DueTimes::Cron(times) }),
            Err(reason) => Err(StoreError::Invalid { field: "cron expression", reason }),
        }
    }

    /// Sets the time zone in which the expression is read, by its name in the database of IANA, as `Europe/Zurich`.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for an unknown zone. The zones are those of the operating system.
    pub fn zone(self, zone: impl Into<String>) -> Result<Self, StoreError> {
        Self::of(StoredSchedule { zone: zone.into(), ..self.stored })
    }

    /// Sets the argument of an entrypoint. Default: null.
    pub fn argument(mut self, argument: impl Into<Value>) -> Self {
        (self.stored.input, self.stored.is_update) = (argument.into(), false);
        self
    }

    /// Sets the input of a graph that is not an entrypoint: an update by channel.
    pub fn update(mut self, update: impl IntoIterator<Item = (impl Into<String>, impl Into<Value>)>) -> Self {
        let update = update.into_iter().map(|(channel, value)| (channel.into(), value.into())).collect();
        (self.stored.input, self.stored.is_update) = (Value::Map(update), true);
        self
    }

    /// Sets the [priority](Queue::priority) of its runs. Default: 0.
    pub fn priority(mut self, priority: u8) -> Self {
        self.stored.priority = priority;
        self
    }

    /// Sets what becomes of the due times at which no worker ran. Default: [`MissedRuns::Skip`].
    pub fn missed(mut self, missed: MissedRuns) -> Self {
        self.stored.missed = missed;
        self
    }

    /// Sets what becomes of local times that a change of the clocks leaves out or repeats. Default:
    /// [`ClockChanges::Once`].
    ///
    /// # Example: every night, also in the night in which the clocks change
    /// ```
    /// use annals::base::Timestamp;
    /// use annals_graph::prelude::*;
    /// use annals_graph::{ClockChanges, Schedule};
    ///
    /// # fn main() -> Result<()> {
    /// let nightly = Schedule::new("nightly", "report", "30 2 * * *")?.zone("Europe/Zurich")?;
    /// let before: Timestamp = "2027-03-27T12:00:00Z".parse().expect("a timestamp");
    /// // On 28 March 2027 the clocks go from 02:00 to 03:00.
    /// assert_eq!(nightly.next_after(before), "2027-03-28T01:30:00Z".parse().ok());
    /// let shown = nightly.clock_changes(ClockChanges::AsShown)?;
    /// assert_eq!(shown.next_after(before), "2027-03-29T00:30:00Z".parse().ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Schedule::zone`].
    pub fn clock_changes(self, policy: ClockChanges) -> Result<Self, StoreError> {
        Self::of(StoredSchedule { clock_changes: policy, ..self.stored })
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.stored.name
    }

    /// Returns the name of the graph.
    pub fn graph(&self) -> &str {
        &self.stored.graph
    }

    /// Returns the cron expression, an empty text of a schedule with a [period](Schedule::period).
    pub fn cron(&self) -> &str {
        &self.stored.cron
    }

    /// Returns the period, `None` of a schedule with a cron expression.
    pub fn period(&self) -> Option<Duration> {
        self.stored.period.and_then(|micros| u64::try_from(micros).ok()).map(Duration::from_micros)
    }

    /// Returns whether it is paused: its due times pass, and do not count as missed.
    pub fn is_paused(&self) -> bool {
        self.stored.is_paused
    }

    /// Sets whether it is paused.
    #[doc(hidden)]
    #[must_use]
    pub fn paused(mut self, is_paused: bool) -> Self {
        self.stored.is_paused = is_paused;
        self
    }

    /// Returns the first due time after a timestamp; `None` if there is none.
    pub fn next_after(&self, at: Timestamp) -> Option<Timestamp> {
        let micros = match &self.times {
            DueTimes::Cron(times) => times.next_after(at.as_micros())?,
            DueTimes::Every(period) => at.as_micros().div_euclid(*period).checked_add(1)?.checked_mul(*period)?,
        };
        Some(Timestamp::from_micros(micros))
    }

    /// Returns the due times after `fired` up to `now` at which a run is enqueued, the oldest first, and the last due
    /// time that is over.
    fn due(&self, fired: Timestamp, now: Timestamp) -> (Vec<Timestamp>, Option<Timestamp>) {
        let limit = match self.stored.missed {
            MissedRuns::Skip | MissedRuns::RunLast => 1,
            MissedRuns::RunAll(runs) => (runs as usize).clamp(1, SCHEDULE_RUNS_MAX),
        };
        let (mut due, mut last) = (std::collections::VecDeque::new(), None);
        let mut at = match self.times {
            DueTimes::Cron(_) => fired,
            // Those that are not enqueued are not counted one by one.
            DueTimes::Every(period) => {
                let counted = period.saturating_mul(i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1));
                fired.max(Timestamp::from_micros(now.as_micros().saturating_sub(counted)))
            }
        };
        while let Some(next) = self.next_after(at).filter(|next| *next <= now) {
            (at, last) = (next, Some(next));
            due.push_back(next);
            if due.len() > limit {
                due.pop_front();
            }
        }
        debug_assert!(due.len() <= limit, "more runs are enqueued than the schedule allows");
        debug_assert!(
            last.is_none_or(|last| fired < last && last <= now),
            "a due time lies after the last one, up to now"
        );
        let late_max = i64::try_from(SCHEDULE_LATE_MAX.as_micros()).unwrap_or(i64::MAX);
        let is_late = |at: &Timestamp| now.as_micros() - at.as_micros() > late_max;
        due.retain(|at| self.stored.missed != MissedRuns::Skip || !is_late(at));
        (due.into(), last)
    }
}

impl PartialEq for Schedule {
    fn eq(&self, other: &Self) -> bool {
        let unpaused = |of: &StoredSchedule| StoredSchedule { is_paused: false, ..of.clone() };
        unpaused(&self.stored) == unpaused(&other.stored)
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stored.fmt(f)
    }
}

/// The schedules of a store. Any process can change them; a worker that runs notices a change within a second.
#[derive(Clone)]
pub struct Schedules {
    store: Store,
    kv: Kv,
}

impl Schedules {
    /// Returns the schedules of a store.
    pub fn of(store: &Store) -> Self {
        Self { store: store.clone(), kv: store.kv() }
    }

    /// Adds a schedule, or replaces the one with its name. Its first due time comes after now, or after the last time
    /// that the one before it has fired.
    ///
    /// # Errors
    /// As [`Kv::put`].
    pub fn add(&self, schedule: &Schedule) -> Result<(), StoreError> {
        if self.fired(schedule.name())?.is_none() {
            self.set_fired(schedule.name(), self.store.now())?;
        }
        self.kv.put(SCHEDULES, schedule.name(), Value::from_serialize(&schedule.stored)?)
    }

    /// Lists the schedules by name.
    ///
    /// # Errors
    /// As [`Kv::search`]; [`StoreError::Codec`] and [`StoreError::Invalid`] for an entry that is not a schedule.
    pub fn list(&self) -> Result<Vec<Schedule>, StoreError> {
        let found = self.kv.search(KvQuery::new(SCHEDULES).limit(usize::MAX))?;
        let schedules = found.into_iter().map(|item| Schedule::of(item.value.to()?));
        let mut schedules = schedules.collect::<Result<Vec<_>, StoreError>>()?;
        schedules.sort_by(|a, b| a.name().cmp(b.name()));
        Ok(schedules)
    }

    /// Returns the schedule with a name.
    ///
    /// # Errors
    /// As [`Schedules::list`].
    pub fn get(&self, name: &str) -> Result<Option<Schedule>, StoreError> {
        self.kv.get(SCHEDULES, name)?.map(|item| Schedule::of(item.value.to()?)).transpose()
    }

    /// Pauses a schedule, and returns whether there is one with the name.
    ///
    /// # Errors
    /// As [`Schedules::list`] and [`Kv::put`].
    pub fn pause(&self, name: &str) -> Result<bool, StoreError> {
        self.set_paused(name, true)
    }

    /// Lets a paused schedule fire again, from its next due time on. Returns whether there is one with the name.
    ///
    /// # Errors
    /// As [`Schedules::pause`].
    pub fn resume(&self, name: &str) -> Result<bool, StoreError> {
        self.set_paused(name, false)
    }

    /// Removes a schedule, and returns whether there was one with the name. Runs that it has enqueued stay.
    ///
    /// # Errors
    /// As [`Schedules::pause`].
    pub fn remove(&self, name: &str) -> Result<bool, StoreError> {
        let is_there = self.kv.get(SCHEDULES, name)?.is_some();
        self.kv.delete(SCHEDULES, name)?;
        self.kv.delete(FIRED, name)?;
        Ok(is_there)
    }

    fn set_paused(&self, name: &str, is_paused: bool) -> Result<bool, StoreError> {
        let Some(mut schedule) = self.get(name)? else { return Ok(false) };
        if schedule.stored.is_paused && !is_paused {
            self.set_fired(name, self.store.now())?;
        }
        schedule.stored.is_paused = is_paused;
        self.kv.put(SCHEDULES, name, Value::from_serialize(&schedule.stored)?)?;
        Ok(true)
    }

    /// Returns the time up to which a schedule has fired.
    fn fired(&self, name: &str) -> Result<Option<Timestamp>, StoreError> {
        let fired = self.kv.get(FIRED, name)?;
        Ok(fired.and_then(|item| item.value.get("at").and_then(Value::as_int)).map(Timestamp::from_micros))
    }

    fn set_fired(&self, name: &str, at: Timestamp) -> Result<(), StoreError> {
        let value = [("at".to_owned(), Value::from(at.as_micros()))].into_iter().collect();
        self.kv.put(FIRED, name, Value::Map(value))
    }

    /// Enqueues the runs of the schedules of some graphs that are due. Returns the next due time of all of them.
    ///
    /// # Errors
    /// As [`Schedules::list`] and [`Queue::enqueue`].
    pub(super) fn fire(&self, is_of: impl Fn(&str) -> bool) -> Result<Option<Timestamp>, StoreError> {
        let mut first: Option<Timestamp> = None;
        // An entry that this process cannot read, for want of its time zone, is left to others.
        let readable = |item: KvItem| Schedule::of(item.value.to().ok()?).ok();
        let found = self.kv.search(KvQuery::new(SCHEDULES).limit(usize::MAX))?.into_iter().filter_map(readable);
        for schedule in &found.filter(|schedule| !schedule.is_paused() && is_of(schedule.graph())).collect::<Vec<_>>() {
            let now = self.store.now();
            let fired = self.fired(schedule.name())?.unwrap_or(now);
            let (due, last) = schedule.due(fired, now);
            for at in due {
                self.enqueue(schedule, at)?;
            }
            // After the runs are stored: a worker that dies before enqueues them again, under the same keys.
            if let Some(last) = last {
                self.set_fired(schedule.name(), last)?;
            }
            first = schedule.next_after(now.max(fired)).into_iter().chain(first).min();
        }
        Ok(first)
    }

    fn enqueue(&self, schedule: &Schedule, at: Timestamp) -> Result<(), StoreError> {
        let StoredSchedule { name, graph, input, is_update, priority, .. } = &schedule.stored;
        let due_at = at.to_string();
        let queue: Queue = self.store.queue(graph).priority(*priority).dedup(&*due_at);
        let queue = queue.metadata([("schedule", name.as_str()), ("due_at", &due_at)]);
        let thread = format!("{name}/{due_at}");
        if *is_update { queue.enqueue_stored(thread, input) } else { queue.enqueue(thread, input.clone()) }.map(|_| ())
    }
}

impl fmt::Debug for Schedules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedules").finish_non_exhaustive()
    }
}
