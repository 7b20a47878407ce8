//! The statements of a commit. Each but the first two has the mark of the commit first, and changes only what belongs
//! to threads whose row has it.

use crate::sql::{lease_columns, newest_to};

/// Makes threads, at change 0.
pub(crate) const INSERT_THREADS: &str = "INSERT INTO thread (number, id, change, token, created_at, seq, operation, namespaces, archived, paused) \
     SELECT x.number, x.id, 0, 0, x.created_at, 0, 0, 0, false, false \
     FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS x (number, id, created_at) ORDER BY x.id \
     ON CONFLICT (id) DO NOTHING";

/// Locks the rows of threads in the order of their numbers, compares them, and changes those of batches of which all
/// fit. A row without a change is locked alone. Returns the threads that were changed.
pub(crate) const CHANGE_THREADS: &str = "WITH want AS (\
     SELECT * FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], \
     $8::bytea[], $9::bytea[], $10::text[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], \
     $16::bigint[], $17::text[], $18::bigint[], $19::boolean[], $20::bigint[], $21::boolean[]) \
     AS w (batch, number, change, seq, operation, namespaces, fields, lease_owner, lease_process, lease_epoch, \
     lease_until, lease_recoveries, activity, updated_at, status, graph, priority, archived, trashed_until, paused)), \
     locked AS MATERIALIZED (\
     SELECT t.number, t.change FROM thread t WHERE t.number = ANY ($3) ORDER BY t.number FOR UPDATE), \
     stale AS (SELECT w.batch FROM want w LEFT JOIN locked l \
     ON l.number = w.number AND (w.change IS NULL OR w.change = l.change) WHERE l.number IS NULL) \
     UPDATE thread t SET change = t.change + 1, token = $1, seq = w.seq, operation = w.operation, \
     namespaces = w.namespaces, fields = w.fields, lease_owner = w.lease_owner, lease_process = w.lease_process, \
     lease_epoch = w.lease_epoch, lease_until = w.lease_until, lease_recoveries = w.lease_recoveries, \
     activity = w.activity, listed = w.activity / 60000000, \
     queued = CASE WHEN w.status = 1 AND NOT w.archived AND w.trashed_until IS NULL THEN w.activity / 1000000 END, \
     updated_at = w.updated_at, status = w.status::smallint, graph = w.graph, \
     priority = w.priority::smallint, archived = w.archived, trashed_until = w.trashed_until, paused = w.paused \
     FROM want w WHERE w.number = t.number AND w.change IS NOT NULL AND w.batch NOT IN (SELECT batch FROM stale) \
     RETURNING t.number, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// Removes the threads that the commit made and did not change.
pub(crate) const DROP_THREADS: &str = "DELETE FROM thread WHERE number = ANY ($1::bigint[]) AND change = 0";

/// Makes namespaces, or changes where their heads are looked for.
pub(crate) const PUT_NAMESPACES: &str = "INSERT INTO namespace (thread, number, path, head) \
     SELECT x.* FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::bytea[]) AS x (thread, number, path, head) \
     JOIN thread t ON t.number = x.thread AND t.token = $1 \
     ON CONFLICT (thread, number) DO UPDATE SET head = excluded.head";

pub(crate) const INSERT_BRANCHES: &str = "INSERT INTO branch (thread, branch, namespace, first, parent_thread, parent_branch) \
     SELECT x.* FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[]) \
     AS x (thread, branch, namespace, first, parent_thread, parent_branch) \
     JOIN thread t ON t.number = x.thread AND t.token = $1";

/// Inserts checkpoints. The arrays of their changes are slices of the last two arrays, and the positions of the items
/// of the one before; an empty one is NULL.
pub(crate) const INSERT_CHECKPOINTS: &str = "INSERT INTO checkpoint (thread, branch, ordinal, namespace, id, seq, parent, forked_from, step, source, \
     created_at, run, app_version, metadata, exact, parents, tasks, pruned, checksum, seen, consumed, snapshot, \
     consumed_items, channels, contents) \
     SELECT x.thread, x.branch, x.ordinal, x.namespace, x.id, x.seq, x.parent, x.forked_from, x.step, \
     x.source::smallint, x.created_at, x.run, x.app_version, x.metadata, x.exact, x.parents, x.tasks, false, \
     x.checksum, x.seen, x.consumed, x.snapshot, \
     nullif(($27::bigint[])[x.first_item:x.last_item], '{}'), nullif(($28::text[])[x.first:x.last], '{}'), \
     nullif(($29::bytea[])[x.first:x.last], '{}') \
     FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bigint[], $8::bytea[], \
     $9::bytea[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bytea[], $14::text[], $15::text[], $16::bytea[], \
     $17::bytea[], $18::bytea[], $19::bytea[], $20::bytea[], $21::bytea[], $22::bytea[], $23::bigint[], $24::bigint[], \
     $25::bigint[], $26::bigint[]) \
     AS x (thread, branch, ordinal, namespace, id, seq, parent, forked_from, step, source, created_at, run, \
     app_version, metadata, exact, parents, tasks, checksum, seen, consumed, snapshot, first_item, last_item, first, \
     last) JOIN thread t ON t.number = x.thread AND t.token = $1";

pub(crate) const INSERT_ITEMS: &str = "INSERT INTO item (thread, branch, channel, position, ordinal, task, codec, data, item_id, kind, name, tool_calls, \
     body, input_tokens, output_tokens, exact) \
     SELECT x.thread, x.branch, x.channel, x.position, x.ordinal, x.task, x.codec::smallint, x.data, x.item_id, x.kind, \
     x.name, x.tool_calls, x.body, x.input_tokens, x.output_tokens, x.exact \
     FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], \
     $9::bytea[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bigint[], $15::bigint[], $16::bytea[], \
     $17::text[]) \
     AS x (thread, branch, channel, position, ordinal, task, codec, data, item_id, kind, name, tool_calls, \
     input_tokens, output_tokens, exact, body) JOIN thread t ON t.number = x.thread AND t.token = $1";

pub(crate) const INSERT_RANGE_DELETES: &str = "INSERT INTO range_delete (thread, branch, channel, ordinal, first, last, task, reference) \
     SELECT x.* FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], \
     $8::bigint[], $9::bytea[]) AS x (thread, branch, channel, ordinal, first, last, task, reference) \
     JOIN thread t ON t.number = x.thread AND t.token = $1";

/// Stores writes of tasks: one with a special position replaces the one before, any other position retains its first.
pub(crate) const PUT_TASK_WRITES: &str = "INSERT INTO task_write (thread, branch, ordinal, task, position, change, channel, mark, value) \
     SELECT x.* FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bigint[], $7::bigint[], \
     $8::text[], $9::bigint[], $10::bytea[]) \
     AS x (thread, branch, ordinal, task, position, change, channel, mark, value) \
     JOIN thread t ON t.number = x.thread AND t.token = $1 \
     ON CONFLICT (thread, branch, ordinal, task, position) DO UPDATE SET change = excluded.change, \
     channel = excluded.channel, mark = excluded.mark, value = excluded.value WHERE excluded.position < 0";

/// Removes the timers of checkpoints.
pub(crate) const DELETE_TIMERS_AT: &str = "DELETE FROM timer x USING unnest($2::bigint[], $3::bigint[], $4::bytea[]) AS y (thread, namespace, checkpoint), \
     thread t WHERE t.number = y.thread AND t.token = $1 AND x.thread = y.thread AND x.namespace = y.namespace \
     AND x.checkpoint = y.checkpoint";

/// Removes the timers of tasks.
pub(crate) const DELETE_TIMERS_OF: &str = "DELETE FROM timer x USING unnest($2::bigint[], $3::bigint[], $4::bytea[]) AS y (thread, namespace, task), \
     thread t WHERE t.number = y.thread AND t.token = $1 AND x.thread = y.thread AND x.namespace = y.namespace \
     AND x.task = y.task";

pub(crate) const PUT_TIMERS: &str = "INSERT INTO timer (thread, namespace, task, checkpoint, wake_at) \
     SELECT x.* FROM unnest($2::bigint[], $3::bigint[], $4::bytea[], $5::bytea[], $6::bigint[]) \
     AS x (thread, namespace, task, checkpoint, wake_at) JOIN thread t ON t.number = x.thread AND t.token = $1 \
     ON CONFLICT (thread, namespace, task) DO UPDATE SET checkpoint = excluded.checkpoint, wake_at = excluded.wake_at";

/// Stores operations whose first change is of a thread that was changed.
pub(crate) const INSERT_OPERATIONS: &str = "INSERT INTO operation (number, seq, content) \
     SELECT x.number, x.seq, x.content FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[]) \
     AS x (thread, number, seq, content) JOIN thread t ON t.number = x.thread AND t.token = $1";

pub(crate) const INSERT_OPERATION_CHANGES: &str = "INSERT INTO operation_change (thread, operation, field, content) \
     SELECT x.* FROM unnest($2::bigint[], $3::bigint[], $4::bytea[], $5::bytea[]) \
     AS x (thread, operation, field, content) JOIN thread t ON t.number = x.thread AND t.token = $1";

/// Ends the places of threads in groups; a claim that counts for a rate stays.
pub(crate) const LEAVE_GROUPS: &str = "UPDATE lease_group g SET is_current = false \
     FROM unnest($2::bigint[]) AS x (thread), thread t \
     WHERE t.number = x.thread AND t.token = $1 AND g.thread = x.thread";

pub(crate) const DROP_GROUPS: &str = "DELETE FROM lease_group g USING unnest($2::bigint[]) AS x (thread), thread t \
     WHERE t.number = x.thread AND t.token = $1 AND g.thread = x.thread AND g.rated_until IS NULL";

pub(crate) const ENTER_GROUPS: &str = "INSERT INTO lease_group (thread, name, rated_until, is_current) \
     SELECT x.thread, x.name, x.rated_until, true FROM unnest($2::bigint[], $3::bytea[], $4::bigint[]) \
     AS x (thread, name, rated_until) JOIN thread t ON t.number = x.thread AND t.token = $1 \
     ON CONFLICT (thread, name) DO UPDATE SET rated_until = excluded.rated_until, is_current = true";

/// Makes the rows of groups that claims lock.
pub(crate) const MAKE_GROUP_LOCKS: &str = "INSERT INTO lease_group_lock (name) \
     SELECT name FROM unnest($1::bytea[]) AS x (name) ORDER BY name ON CONFLICT (name) DO NOTHING";

pub(crate) const LOCK_GROUPS: &str =
    "SELECT name FROM lease_group_lock WHERE name = ANY ($1::bytea[]) ORDER BY name FOR UPDATE";

/// The members of groups, but for a thread.
pub(crate) const GROUP_MEMBERS: &str = concat!(
    "SELECT g.name, g.rated_until, g.is_current, ",
    lease_columns!(),
    " FROM lease_group g JOIN thread t ON t.number = g.thread WHERE g.name = ANY ($1::bytea[]) AND t.id <> $2"
);

/// The threads that a plan compares.
pub(crate) const KNOWN_THREADS: &str = concat!(
    "SELECT t.id, t.number, t.change, t.created_at, t.seq, t.operation, t.namespaces, t.fields, t.activity, t.updated_at, ",
    lease_columns!(),
    " FROM thread t WHERE t.id = ANY ($1::text[])"
);

/// The namespaces that a plan compares, with their newest checkpoints and their heads.
pub(crate) const KNOWN_NAMESPACES: &str = concat!(
    "SELECT t.id, n.path, n.number, n.head, c.id, h.id, h.branch, h.ordinal \
     FROM unnest($1::text[], $2::text[]) AS w (id, path) \
     JOIN thread t ON t.id = w.id JOIN namespace n ON n.thread = t.number AND n.path = w.path CROSS JOIN LATERAL ",
    newest_to!("'\\xffffffffffffffffffffffffffffffff'"),
    " c LEFT JOIN LATERAL ",
    newest_to!("n.head"),
    " h ON true"
);

/// The newest operation with a change of each field, and the changes of these operations.
pub(crate) const NEWEST_OPERATIONS: &str = "WITH newest AS (\
     SELECT w.n, max(c.operation) AS number FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY AS w (id, field, n) \
     JOIN thread t ON t.id = w.id JOIN operation_change c ON c.thread = t.number AND c.field = w.field GROUP BY w.n) \
     SELECT w.n, o.number, o.seq, o.content, t.id, c.field, c.content \
     FROM newest w JOIN operation o ON o.number = w.number \
     JOIN operation_change c ON c.operation = o.number JOIN thread t ON t.number = c.thread";
