//! The statements that read timers.

/// The columns of a timer, in the order in which they are decoded.
macro_rules! timer {
    () => {
        "SELECT r.task, r.wake_at, r.xxh3, c.id, n.path, t.public_id, r.namespace FROM timer r \
         LEFT JOIN checkpoint c ON c.seq = r.checkpoint AND c.namespace = r.namespace \
         LEFT JOIN namespace n ON n.id = r.namespace LEFT JOIN thread t ON t.id = n.thread "
    };
}
/// Timers of deleted threads are passed over; those of damaged rows are not.
macro_rules! timer_shown {
    () => {
        " AND NOT EXISTS (SELECT 1 FROM tombstone d WHERE d.thread = n.thread) "
    };
}
/// By the index, whose entries are compared with their rows: a join of SQLite passes an entry without a row over.
macro_rules! timer_entries {
    ($condition:literal, $order:literal) => {
        concat!(
            "SELECT r.task, r.wake_at, r.xxh3, c.id, n.path, t.public_id, r.namespace, i.wake_at FROM timer i INDEXED BY \
             timer_wake LEFT JOIN timer r ON r.namespace = i.namespace AND r.task = i.task \
             LEFT JOIN checkpoint c ON c.seq = r.checkpoint AND c.namespace = r.namespace \
             LEFT JOIN namespace n ON n.id = r.namespace LEFT JOIN thread t ON t.id = n.thread WHERE ",
            $condition,
            timer_shown!(),
            $order
        )
    };
}
pub(super) const TIMERS: &str = timer_entries!("i.wake_at <= ?1", "ORDER BY i.wake_at, t.public_id, n.path, r.task");
/// The first entry after one of the index: without an upper bound, at which a damaged entry would end the statement.
pub(super) const TIMER_AFTER: &str = timer_entries!(
    "(i.wake_at, i.namespace, i.task) > (?1, ?2, ?3)",
    "ORDER BY i.wake_at, i.namespace, i.task LIMIT 1"
);
pub(super) const TIMERS_OF_NAMESPACE: &str =
    concat!(timer!(), "WHERE r.namespace = ?1", timer_shown!(), "ORDER BY r.wake_at, r.task");
/// The types of the first and of the last timestamp in the order of the index.
pub(super) const TIMER_ENDS: &str = "SELECT typeof(wake_at) FROM (SELECT wake_at FROM timer ORDER BY wake_at LIMIT 1) UNION ALL SELECT typeof(wake_at) FROM (SELECT wake_at FROM timer ORDER BY wake_at DESC LIMIT 1)";
pub(super) const TIMERS_OF: &str = "SELECT task FROM timer WHERE namespace = ?1 AND checkpoint = ?2";
pub(crate) const CHECK_TIMERS: &str = concat!(timer!(), "WHERE 1", timer_shown!(), "ORDER BY r.namespace, r.task");
