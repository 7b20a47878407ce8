//! The statements of a claim in one transaction. Those about claimed runs have the owners and the present time first.

use crate::sql::{
    change_columns, children, consumed, consumed_items, item_columns, items_of_child, lease_columns, newest_to,
    record_columns, task_writes,
};

/// The first timestamp at which a task of a head wakes.
pub(crate) const FIRST_TIMER: &str = concat!(
    "SELECT y.wake_at FROM timer y JOIN namespace n ON n.thread = y.thread AND n.number = y.namespace \
     CROSS JOIN LATERAL ",
    newest_to!("n.head"),
    " h WHERE h.id = y.checkpoint ORDER BY y.wake_at LIMIT 1"
);

/// Takes queued runs by priority, then age, for owners that have none yet, and returns the threads of all that the
/// owners have. Rows that another claim has locked are passed over. Nothing is taken if a timer has passed.
pub(crate) const CLAIM: &str = concat!(
    "WITH picked AS (\
     SELECT x.* FROM unnest($2::text[]) AS g (graph) CROSS JOIN LATERAL (\
     SELECT t.number, t.priority, t.activity, t.lease_owner, \
     coalesce(t.lease_until > $3 AND t.lease_owner = ANY ($1::bytea[]), false) AS is_own \
     FROM thread t WHERE t.graph = g.graph AND t.queued IS NOT NULL AND NOT t.paused \
     AND (t.lease_until IS NULL OR t.lease_until <= $3 OR t.lease_owner = ANY ($1::bytea[])) \
     ORDER BY t.priority DESC, t.queued, t.activity LIMIT $7 FOR UPDATE SKIP LOCKED) x \
     WHERE NOT EXISTS (SELECT FROM timer y JOIN namespace n ON n.thread = y.thread AND n.number = y.namespace \
     CROSS JOIN LATERAL ",
    newest_to!("n.head"),
    " h WHERE h.id = y.checkpoint AND y.wake_at <= $3) \
     ORDER BY x.priority DESC, x.activity LIMIT $7), \
     new AS (SELECT number, row_number() OVER (ORDER BY priority DESC, activity) AS k FROM picked WHERE NOT is_own), \
     free AS (SELECT w.owner, row_number() OVER (ORDER BY w.n) AS k \
     FROM unnest($1::bytea[]) WITH ORDINALITY AS w (owner, n) \
     WHERE w.owner NOT IN (SELECT lease_owner FROM picked WHERE is_own)), \
     taken AS (UPDATE thread t SET change = t.change + 1, token = $6, lease_owner = f.owner, lease_process = $5, \
     lease_epoch = coalesce(t.lease_epoch, 0) + 1, lease_until = $4, \
     lease_recoveries = CASE WHEN t.lease_until IS NULL THEN 0 ELSE coalesce(t.lease_recoveries, 0) + 1 END \
     FROM new n JOIN free f ON f.k = n.k WHERE t.number = n.number RETURNING t.number, t.id), \
     counted AS (UPDATE lease_group g SET is_current = false FROM taken \
     WHERE g.thread = taken.number AND g.rated_until IS NOT NULL), \
     gone AS (DELETE FROM lease_group g USING taken WHERE g.thread = taken.number AND g.rated_until IS NULL) \
     SELECT id FROM taken UNION ALL \
     SELECT t.id FROM picked p JOIN thread t ON t.number = p.number WHERE p.is_own"
);

/// The processes that hold queued runs of graphs.
pub(crate) const HOLDERS: &str = "SELECT DISTINCT t.lease_process FROM thread t \
     WHERE t.graph = ANY ($1::text[]) AND t.queued IS NOT NULL AND t.lease_until > $2 LIMIT 64";

/// The heads of the threads that owners hold, each with the number of its owner.
macro_rules! owned {
    () => {
        concat!(
            "WITH RECURSIVE wanted AS (\
             SELECT array_position($1::bytea[], t.lease_owner)::bigint AS n, c.thread, c.namespace, c.branch, c.ordinal \
             FROM thread t JOIN namespace n ON n.thread = t.number AND n.path = '' CROSS JOIN LATERAL ",
            newest_to!("n.head"),
            " c WHERE t.lease_owner = ANY ($1::bytea[]) AND t.lease_until > $2)"
        )
    };
}

pub(crate) const THREADS: &str = concat!(
    "SELECT t.id, t.change, t.created_at, t.activity, t.updated_at, t.fields, ",
    lease_columns!(),
    " FROM thread t WHERE t.lease_owner = ANY ($1::bytea[]) AND t.lease_until > $2"
);

pub(crate) const RECORDS: &str = concat!(
    owned!(),
    " SELECT w.n, ",
    record_columns!(),
    " FROM wanted w JOIN checkpoint c ON c.thread = w.thread AND c.branch = w.branch AND c.ordinal = w.ordinal \
     JOIN thread t ON t.number = c.thread JOIN namespace n ON n.thread = c.thread AND n.number = c.namespace"
);

pub(crate) const TASK_WRITES: &str = concat!(owned!(), task_writes!());

pub(crate) const CONSUMED: &str = concat!(owned!(), consumed!());

pub(crate) const CONSUMED_ITEMS: &str = concat!(owned!(), consumed_items!());
