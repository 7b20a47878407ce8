//! The statements of a check. They have the number of a thread, but for the first two.

use crate::sql::{change_columns, item_columns, record_columns};

pub(crate) const THREAD_NUMBERS: &str = "SELECT number FROM thread WHERE number > $1 ORDER BY number LIMIT 64";

/// Rows that belong to no thread, and the entries beside the log.
pub(crate) const STRAYS: &str = "SELECT \
     (SELECT count(*) FROM checkpoint c WHERE NOT EXISTS (SELECT FROM thread t WHERE t.number = c.thread)) \
     + (SELECT count(*) FROM item i WHERE NOT EXISTS (SELECT FROM checkpoint c \
     WHERE c.thread = i.thread AND c.branch = i.branch AND c.ordinal = i.ordinal)), \
     (SELECT count(*) FROM kv_entry) + (SELECT count(*) FROM cache_entry)";

pub(crate) const CHECKPOINTS: &str = concat!(
    "SELECT ",
    record_columns!(),
    ", ",
    change_columns!(),
    ", c.consumed, b.first, b.parent_thread, b.parent_branch, p.checksum \
     FROM checkpoint c JOIN thread t ON t.number = c.thread \
     JOIN namespace n ON n.thread = c.thread AND n.number = c.namespace \
     JOIN branch b ON b.thread = c.thread AND b.branch = c.branch \
     LEFT JOIN checkpoint p ON p.ordinal = c.ordinal - 1 \
     AND p.thread = CASE WHEN c.ordinal = b.first THEN b.parent_thread ELSE c.thread END \
     AND p.branch = CASE WHEN c.ordinal = b.first THEN b.parent_branch ELSE c.branch END \
     WHERE c.thread = $1 ORDER BY c.seq"
);

pub(crate) const ITEMS: &str = concat!(
    "SELECT i.branch, i.ordinal, i.channel, i.position, i.task, ",
    item_columns!(),
    " FROM item i WHERE i.thread = $1"
);

pub(crate) const RANGE_DELETES: &str =
    "SELECT branch, ordinal, channel, first, last, task, reference FROM range_delete WHERE thread = $1";

pub(crate) const TASK_WRITES: &str = "SELECT value FROM task_write WHERE thread = $1";

pub(crate) const TIMERS: &str = "SELECT x.checkpoint, x.task FROM timer x WHERE x.thread = $1";
