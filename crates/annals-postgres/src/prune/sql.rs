//! The statements of a pruning. Those that change rows have the mark of the change first, and the number of the thread.

use crate::sql::{change_columns, item_columns, newest_to, record_columns};

/// A thread: number, changes, fields.
pub(crate) const THREAD: &str = "SELECT number, change, fields FROM thread WHERE id = $1";

/// The namespaces with their newest checkpoints and the places of their heads.
pub(crate) const NAMESPACES: &str = concat!(
    "SELECT n.path, n.number, c.id, h.branch, h.ordinal FROM namespace n \
     CROSS JOIN LATERAL ",
    newest_to!("'\\xffffffffffffffffffffffffffffffff'"),
    " c LEFT JOIN LATERAL ",
    newest_to!("n.head"),
    " h ON true WHERE n.thread = (SELECT number FROM thread WHERE id = $1)"
);

/// The branches that leave a branch of the thread: number of the thread, branch, namespace, parent, and first ordinal.
pub(crate) const LEAVING: &str = "SELECT b.thread, b.branch, b.namespace, b.parent_branch, b.first FROM branch b \
     WHERE b.parent_thread = (SELECT number FROM thread WHERE id = $1)";

/// The fields that operations of the thread have changed.
pub(crate) const FIELDS: &str =
    "SELECT DISTINCT field FROM operation_change WHERE thread = (SELECT number FROM thread WHERE id = $1)";

pub(crate) const CHECKPOINTS: &str = concat!(
    "SELECT ",
    record_columns!(),
    ", ",
    change_columns!(),
    ", c.consumed FROM thread t JOIN checkpoint c ON c.thread = t.number \
     JOIN namespace n ON n.thread = c.thread AND n.number = c.namespace \
     WHERE t.id = $1 ORDER BY c.branch, c.ordinal"
);

pub(crate) const ITEMS: &str = concat!(
    "SELECT i.branch, i.ordinal, i.channel, i.position, ",
    item_columns!(),
    " FROM item i WHERE i.thread = (SELECT number FROM thread WHERE id = $1)"
);

pub(crate) const RANGE_DELETES: &str = "SELECT r.branch, r.ordinal, r.channel, r.first, r.last, r.reference \
     FROM range_delete r WHERE r.thread = (SELECT number FROM thread WHERE id = $1)";

pub(crate) const TASK_WRITES: &str = "SELECT w.branch, w.ordinal, w.value FROM task_write w \
     WHERE w.thread = (SELECT number FROM thread WHERE id = $1)";

/// Notes a change of the thread, if it is as it was read.
pub(crate) const CHANGE: &str = "UPDATE thread SET change = change + 1, token = $1 \
     WHERE number = $2 AND change = $3 RETURNING number";

/// Reduces checkpoints. The arrays of the changes that stay are slices of the last two arrays.
pub(crate) const REDUCE: &str = "UPDATE checkpoint c SET pruned = true, parents = NULL, metadata = x.metadata, \
     exact = x.exact, tasks = CASE WHEN x.drops_tasks THEN NULL ELSE c.tasks END, consumed = x.consumed, \
     consumed_items = NULL, channels = nullif(($12::text[])[x.first:x.last], '{}'), \
     contents = nullif(($13::bytea[])[x.first:x.last], '{}') \
     FROM unnest($3::bigint[], $4::bigint[], $5::text[], $6::bytea[], $7::boolean[], $8::bytea[], $9::bigint[], \
     $10::bigint[]) AS x (branch, ordinal, metadata, exact, drops_tasks, consumed, first, last), thread t \
     WHERE t.number = $2 AND t.token = $1 AND $11::bigint IS NOT NULL \
     AND c.thread = $2 AND c.branch = x.branch AND c.ordinal = x.ordinal";

pub(crate) const DELETE_ITEMS: &str = "DELETE FROM item i \
     USING unnest($3::bigint[], $4::bigint[], $5::text[], $6::bigint[]) AS x (branch, ordinal, channel, position), \
     thread t WHERE t.number = $2 AND t.token = $1 AND i.thread = $2 AND i.branch = x.branch \
     AND i.channel = x.channel AND i.position = x.position AND i.ordinal = x.ordinal";

pub(crate) const DELETE_TASK_WRITES: &str = "DELETE FROM task_write w \
     USING unnest($3::bigint[], $4::bigint[]) AS x (branch, ordinal), thread t \
     WHERE t.number = $2 AND t.token = $1 AND w.thread = $2 AND w.branch = x.branch AND w.ordinal = x.ordinal";

pub(crate) const DELETE_TIMERS: &str = "DELETE FROM timer x USING unnest($3::bytea[]) AS y (checkpoint), thread t \
     WHERE t.number = $2 AND t.token = $1 AND x.thread = $2 AND x.checkpoint = y.checkpoint";

/// Deletes the rows of a table on branches.
macro_rules! of_branches {
    ($table:literal) => {
        concat!(
            "DELETE FROM ",
            $table,
            " x USING thread t WHERE t.number = $2 AND t.token = $1 AND x.thread = $2 \
             AND x.branch = ANY ($4::bigint[]) AND $3::bigint[] IS NOT NULL"
        )
    };
}

/// The deletions of the rows of namespaces, given the numbers of the namespaces, then of their branches.
pub(crate) const DELETIONS: [&str; 8] = [
    "DELETE FROM timer x USING thread t WHERE t.number = $2 AND t.token = $1 AND x.thread = $2 \
     AND x.namespace = ANY ($3::bigint[]) AND $4::bigint[] IS NOT NULL",
    of_branches!("task_write"),
    of_branches!("range_delete"),
    of_branches!("search_entry"),
    of_branches!("item"),
    of_branches!("checkpoint"),
    of_branches!("branch"),
    "DELETE FROM namespace x USING thread t WHERE t.number = $2 AND t.token = $1 AND x.thread = $2 \
     AND x.number = ANY ($3::bigint[]) AND $4::bigint[] IS NOT NULL",
];
