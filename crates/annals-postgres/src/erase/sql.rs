//! The statements of deletions. All but `TRASH` have the numbers of threads.

/// The threads that were forked from some and that stay, the first fork first.
pub(crate) const FORKS_THAT_STAY: &str = "SELECT t.id, f.id FROM branch b JOIN thread t ON t.number = b.parent_thread \
     JOIN thread f ON f.number = b.thread \
     WHERE b.parent_thread = ANY ($1::bigint[]) AND b.thread <> ALL ($1::bigint[]) \
     GROUP BY t.id, f.id ORDER BY t.id, min(b.branch)";

/// The threads whose time in the trash has ended, each with a thread that was forked from it, or without one.
pub(crate) const TRASH: &str = "SELECT t.id, f.id FROM thread t \
     LEFT JOIN branch b ON b.parent_thread = t.number AND b.thread <> t.number \
     LEFT JOIN thread f ON f.number = b.thread WHERE t.trashed_until <= $1 ORDER BY t.id";

/// What goes with threads.
pub(crate) const DELETIONS: [&str; 11] = [
    "WITH gone AS (DELETE FROM operation_change WHERE thread = ANY ($1::bigint[]) RETURNING operation) \
     DELETE FROM operation o WHERE o.number IN (SELECT operation FROM gone) AND NOT EXISTS (\
     SELECT FROM operation_change c WHERE c.operation = o.number AND c.thread <> ALL ($1::bigint[]))",
    "DELETE FROM timer WHERE thread = ANY ($1::bigint[])",
    "DELETE FROM lease_group WHERE thread = ANY ($1::bigint[])",
    "DELETE FROM task_write WHERE thread = ANY ($1::bigint[])",
    "DELETE FROM range_delete WHERE thread = ANY ($1::bigint[])",
    "DELETE FROM search_entry WHERE thread = ANY ($1::bigint[])",
    "DELETE FROM item WHERE thread = ANY ($1::bigint[])",
    "DELETE FROM checkpoint WHERE thread = ANY ($1::bigint[])",
    "DELETE FROM branch WHERE thread = ANY ($1::bigint[])",
    "DELETE FROM namespace WHERE thread = ANY ($1::bigint[])",
    "DELETE FROM thread WHERE number = ANY ($1::bigint[])",
];
