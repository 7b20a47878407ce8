//! The threads that a worker knows to be due, in the order in which it claims them.
//!
//! An agenda holds the first runs of its queues; the others stay in the table of threads until it runs low. A run whose
//! claim a limit has refused is passed over, with all others of the group, until something has changed. *Absent:*
//! reading the store, and the limits over processes, which the store compares in the transaction of a claim.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::base::limits::PRIORITY_MAX;
use crate::base::{ThreadId, Timestamp};
use crate::error::Error;
use crate::history::ThreadInfo;
use crate::limits::WORKER_AGENDA_MAX;
use crate::store::lease::LeaseGroup;

/// The place of a run: the greatest priority first, then the oldest activity.
type QueuePlace = (u8, u64);

/// The runs that are due, and those that run.
#[derive(Default)]
pub(super) struct Agenda {
    due: BTreeMap<QueuePlace, DueRun>,
    queued: HashSet<ThreadId>,
    running: HashMap<ThreadId, Vec<LeaseGroup>>,
    /// The groups that have refused a claim, and from when on the rate allows one.
    refused: HashMap<String, Option<Timestamp>>,
    /// True if the tables may hold runs that are due and not in the agenda.
    pub(super) has_more: bool,
    /// The number of failures of a thread that left its run as it was, and the error of the last one.
    pub(super) failures: HashMap<ThreadId, (u64, String)>,
    /// The first error of the store, which ends the worker.
    pub(super) error: Option<Error>,
}

/// A run that is due.
#[derive(Clone)]
pub(super) struct DueRun {
    pub(super) thread: ThreadId,
    pub(super) groups: Vec<LeaseGroup>,
    place: QueuePlace,
}

impl DueRun {
    pub(super) fn of(info: &ThreadInfo, groups: Vec<LeaseGroup>) -> Self {
        Self { thread: info.id().clone(), groups, place: (PRIORITY_MAX - info.priority(), info.seq()) }
    }
}

impl Agenda {
    /// Returns whether a thread is due or runs.
    pub(super) fn knows(&self, thread: &ThreadId) -> bool {
        self.running.contains_key(thread) || self.queued.contains(thread)
    }

    /// Adds a run that is due. Returns `false` for one that is known already.
    pub(super) fn add(&mut self, run: DueRun) -> bool {
        if self.knows(&run.thread) {
            return false;
        }
        self.queued.insert(run.thread.clone());
        let replaced = self.due.insert(run.place, run);
        debug_assert!(replaced.is_none(), "two threads do not share a position in the log");
        if self.due.len() > WORKER_AGENDA_MAX
            && let Some((_, last)) = self.due.pop_last()
        {
            self.queued.remove(&last.thread);
            self.has_more = true;
        }
        true
    }

    /// Takes the first run that no group refuses, and counts it as running.
    pub(super) fn take(&mut self) -> Option<DueRun> {
        let is_free = |run: &DueRun| run.groups.iter().all(|group| self.allows(group));
        let place = *self.due.iter().find(|(_, run)| is_free(run))?.0;
        let run = self.due.remove(&place)?;
        self.queued.remove(&run.thread);
        self.running.insert(run.thread.clone(), run.groups.clone());
        Some(run)
    }

    /// Returns whether a claim in a group may succeed: none was refused, and the runs of this worker leave room.
    fn allows(&self, group: &LeaseGroup) -> bool {
        let own = || self.running.values().flatten().filter(|other| other.name == group.name).count() as u64;
        !self.refused.contains_key(&group.name) && group.live_max.is_none_or(|max| own() < max)
    }

    /// Counts a run as ended, which may make room in its groups.
    pub(super) fn end(&mut self, thread: &ThreadId) {
        self.running.remove(thread).into_iter().flatten().for_each(|group| _ = self.refused.remove(&group.name));
    }

    /// Puts a run back whose claim a group has refused.
    pub(super) fn refuse(&mut self, run: DueRun, group: String, until: Option<Timestamp>) {
        self.running.remove(&run.thread);
        self.refused.insert(group, until);
        self.add(run);
    }

    /// Lets the groups that have refused a claim be asked again.
    pub(super) fn ask_again(&mut self) {
        self.refused.clear();
    }

    /// Returns whether a group has refused a claim.
    pub(super) fn is_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Returns the timestamp from which on the rate of a group allows a claim.
    pub(super) fn allowed_at(&self) -> Option<Timestamp> {
        self.refused.values().flatten().min().copied()
    }

    /// Returns the number of runs that have been taken and have not ended.
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// Returns the number of runs that are due.
    pub(super) fn len(&self) -> usize {
        self.due.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str, priority: u8, seq: u64, groups: &[&str]) -> DueRun {
        let groups = groups.iter().map(|name| LeaseGroup::new(*name)).collect();
        let thread = ThreadId::new(name).expect("a thread id");
        DueRun { thread, groups, place: (PRIORITY_MAX - priority, seq) }
    }

    #[test]
    fn runs_are_taken_by_priority_then_age_and_a_refused_group_is_passed_over() {
        let mut agenda = Agenda::default();
        for due in [run("a", 0, 1, &["g"]), run("b", 0, 2, &[]), run("c", 3, 3, &["g"]), run("d", 3, 4, &["h"])] {
            assert!(agenda.add(due.clone()));
            assert!(!agenda.add(due), "it is known");
        }
        let first = agenda.take().expect("c is due");
        assert_eq!(first.thread.as_str(), "c");
        agenda.refuse(first, "g".into(), Some(Timestamp::from_micros(7)));
        let taken: Vec<String> = std::iter::from_fn(|| agenda.take()).map(|run| run.thread.to_string()).collect();
        assert_eq!(taken, ["d", "b"]);
        assert_eq!((agenda.allowed_at(), agenda.len(), agenda.running()), (Some(Timestamp::from_micros(7)), 2, 2));
        agenda.ask_again();
        assert_eq!(agenda.take().expect("c is due again").thread.as_str(), "c");
    }

    #[test]
    fn an_agenda_holds_the_first_runs_and_knows_that_there_are_more() {
        let mut agenda = Agenda::default();
        let count = WORKER_AGENDA_MAX as u64;
        (0..=count).for_each(|n| _ = agenda.add(run(&format!("t{n}"), 0, n, &[])));
        assert_eq!((agenda.len() as u64, agenda.has_more), (count, true));
        assert!(agenda.add(run(&format!("t{count}"), 9, count, &[])), "it was dropped, and comes back with a priority");
        assert_eq!(agenda.take().expect("a run").thread.as_str(), format!("t{count}"));
    }
}
