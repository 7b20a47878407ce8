//! The limits that the executor alone uses; those that others see are in `annals_base::limits`.

use std::time::Duration;

use crate::base::limits::{LEASE_DEFAULT, POOL_IDLE};

/// Continuations of a run whose process died, before a worker marks it as stuck, unless the worker sets another number.
pub(crate) const RECOVERIES_DEFAULT: u64 = 10;
/// Pause between two looks of a run with a lease at a cancel or a pause of its thread.
pub(crate) const CONTROL_INTERVAL: Duration = Duration::from_millis(50);
/// The shortest pause of a worker between two looks for the commits of other processes, where the system does not
/// announce them; and the time for which it gathers commits before it claims again.
pub(crate) const WORKER_POLL: Duration = Duration::from_millis(5);
/// The pause between two looks of a worker at the schedules that processes may have changed.
pub(crate) const SCHEDULE_LOOK: Duration = Duration::from_secs(1);
/// The delay past which a due time of a schedule counts as missed.
#[cfg(any(test, feature = "schedules"))]
pub(crate) const SCHEDULE_LATE_MAX: Duration = Duration::from_secs(60);
/// Missed runs of a schedule that a worker enqueues.
#[cfg(any(test, feature = "schedules"))]
pub(crate) const SCHEDULE_RUNS_MAX: usize = 1_000;
/// Attempts of a task whose errors are stored, the newest.
pub(crate) const ATTEMPTS_STORED_MAX: usize = 100;
/// Bytes of the stored error of an attempt that was followed by another one.
pub(crate) const ATTEMPT_ERROR_BYTES_MAX: usize = 2_048;
/// Duration for which the thread that renews leases waits for another one before it ends.
pub(crate) const RENEWAL_IDLE: Duration = Duration::from_secs(5);
/// The longest pause of a worker between two looks at its clock, which may jump.
pub(crate) const WORKER_IDLE: Duration = Duration::from_secs(1);
/// The longest pause between two attempts to claim a thread while waiting for its lease.
pub(crate) const LEASE_RETRY: Duration = Duration::from_secs(1);
/// The pause of a worker after which it claims again while a limit refuses runs, and the longest one between two looks
/// for the commits of other processes where the system does not announce them.
pub(crate) const WORKER_ASK: Duration = Duration::from_millis(500);
/// The shortest period of a schedule: a worker looks at its schedules once a second.
#[cfg(feature = "schedules")]
pub(crate) const SCHEDULE_PERIOD_MIN: Duration = SCHEDULE_LOOK;
/// The longest period of a schedule.
#[cfg(feature = "schedules")]
pub(crate) const SCHEDULE_PERIOD_MAX: Duration = Duration::from_secs(366 * 86_400);
/// Number of supersteps after which a run stores the version of its graph again, so that it is found without reading
/// the whole run.
pub(crate) const GRAPH_CODE_STEPS: i64 = 64;
/// Longest pause before another attempt in which a run that is recorded waits; before a longer one it ends, and the
/// task sleeps.
pub(crate) const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Pause before the second attempt of a task, unless its policy sets another one (as in LangGraph).
pub(crate) const RETRY_INTERVAL_DEFAULT: Duration = Duration::from_millis(500);
/// Longest pause between two attempts of a task, unless its policy sets another one (as in LangGraph).
pub(crate) const RETRY_INTERVAL_MAX_DEFAULT: Duration = Duration::from_secs(128);
/// Duration by which the cached writes of a call outlive its cached result, which is looked up first.
pub(crate) const CACHE_WRITES_MARGIN: Duration = Duration::from_secs(1);
/// Duration in which no task of a superstep is taken up, after which more threads are woken for its tasks.
pub(crate) const TASKS_ALONE: Duration = Duration::from_micros(10);
/// Events that are queued for a slow reader of a stream before the nodes that emit them wait too.
pub(crate) const QUEUED_EVENTS_MAX: usize = 256;
/// Supersteps that a drawing follows: a loop of plain edges never ends.
pub(crate) const DRAWING_STEPS_MAX: usize = 251;
/// Nodes of a graph whose drawing is stored for viewers.
pub(crate) const DRAWING_NODES_MAX: usize = 200;
/// Pairs of a graph and a store of which a process remembers that the store has the drawing.
pub(crate) const DRAWN_GRAPHS_MAX: usize = 1_024;
/// Supersteps of one run, unless set otherwise (the default of LangGraph 1.2).
pub(crate) const RECURSION_LIMIT_DEFAULT: u64 = 10_007;
/// Messages of a channel whose ids a stream copies when a task reads them; it searches a longer list.
pub(crate) const STREAM_IDS_COPIED_MAX: usize = 256;

const _: () = assert!(RENEWAL_IDLE.as_nanos() < LEASE_DEFAULT.as_nanos());
const _: () = assert!(RETRY_INTERVAL_DEFAULT.as_nanos() < RETRY_PAUSE_MAX.as_nanos());
const _: () = assert!(RETRY_PAUSE_MAX.as_nanos() < RETRY_INTERVAL_MAX_DEFAULT.as_nanos());
const _: () = assert!(TASKS_ALONE.as_nanos() < POOL_IDLE.as_nanos());
/// Threads that run the nodes of one process, unless set otherwise.
pub(crate) const NODE_THREADS_DEFAULT: usize = 32;

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;
    use crate::base::limits::{
        CLAIM_RUNS_MAX, LEASE_GROUPS_MAX, LEASE_MIN, PRIORITY_MAX, RUN_LOCK_WAITS_MAX, TASKS_MAX,
        TRANSACTION_STATEMENTS_MAX, TRANSACTION_TIME_MAX,
    };

    /// Asserts that a table of a document has exactly these limits, in this order.
    fn states(document: &str, expected: &[(&str, &dyn Debug)]) {
        let rows = document.lines().filter_map(|line| {
            let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
            let [_, constant, value] = cells[..] else { return None };
            Some((constant.strip_prefix('`')?.strip_suffix('`')?.to_owned(), value.to_owned()))
        });
        let expected: Vec<_> =
            expected.iter().map(|(name, value)| ((*name).to_owned(), format!("{value:?}"))).collect();
        assert_eq!(rows.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_page_of_workflows_states_the_limits_of_the_code() {
        macro_rules! limits {
            ($($name:ident),* $(,)?) => { [$((stringify!($name), &$name as &dyn Debug)),*] };
        }
        let page = include_str!("../../../docs/workflows.md");
        let (_, section) = page.split_once("\n## Limits\n").expect("the section of limits");
        states(
            section,
            &limits![
                LEASE_DEFAULT,
                LEASE_MIN,
                RECOVERIES_DEFAULT,
                CONTROL_INTERVAL,
                TRANSACTION_TIME_MAX,
                TRANSACTION_STATEMENTS_MAX,
                RUN_LOCK_WAITS_MAX,
                TASKS_MAX,
                ATTEMPTS_STORED_MAX,
                ATTEMPT_ERROR_BYTES_MAX,
                PRIORITY_MAX,
                LEASE_GROUPS_MAX,
                WORKER_POLL,
                CLAIM_RUNS_MAX,
                SCHEDULE_LOOK,
                SCHEDULE_LATE_MAX,
                SCHEDULE_RUNS_MAX,
            ],
        );
    }
}
