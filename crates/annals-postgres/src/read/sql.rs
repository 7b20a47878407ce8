//! The statements of reads.

use crate::sql::{change_columns, children, items_of_child, lease_columns, lineage, newest_to, record_columns, wanted};

/// The heads of namespaces, with the leases of their threads.
pub(crate) const HEADS: &str = concat!(
    wanted!(),
    children!(),
    " SELECT w.n, c.id, EXISTS (SELECT FROM child h WHERE h.n = w.n), ",
    lease_columns!(),
    " FROM wanted w JOIN thread t ON t.number = w.thread \
     JOIN checkpoint c ON c.thread = w.thread AND c.branch = w.branch AND c.ordinal = w.ordinal"
);

/// A page of a namespace, the newest first.
pub(crate) const PAGE_OF: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM (SELECT * FROM checkpoint WHERE thread = (SELECT number FROM thread WHERE id = $1) \
     AND namespace = (SELECT number FROM namespace \
     WHERE thread = (SELECT number FROM thread WHERE id = $1) AND path = $2) \
     AND id < $3 AND NOT pruned ORDER BY id DESC LIMIT $4) c \
     JOIN thread t ON t.number = c.thread JOIN namespace n ON n.thread = c.thread AND n.number = c.namespace \
     ORDER BY c.id DESC"
);

/// A page of all namespaces of a thread, the newest first.
pub(crate) const PAGE: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM thread t JOIN namespace n ON n.thread = t.number CROSS JOIN LATERAL (\
     SELECT * FROM checkpoint x WHERE x.thread = n.thread AND x.namespace = n.number AND x.id < $2 AND NOT x.pruned \
     ORDER BY x.id DESC LIMIT $3) c \
     WHERE t.id = $1 ORDER BY c.id DESC, c.seq DESC LIMIT $3"
);

/// The checkpoints of a thread whose ids lie between two, the oldest first.
pub(crate) const BETWEEN_IDS: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM thread t JOIN namespace n ON n.thread = t.number \
     JOIN checkpoint c ON c.thread = n.thread AND c.namespace = n.number \
     WHERE t.id = $1 AND c.id BETWEEN $2 AND $3 ORDER BY c.id, c.seq LIMIT $4"
);

/// The checkpoints of a lineage at ordinals.
pub(crate) const ORDINALS_AT: &str = concat!(
    wanted!(),
    lineage!(),
    " SELECT ",
    record_columns!(),
    " FROM lineage l JOIN checkpoint c ON c.thread = l.thread AND c.branch = l.branch AND c.ordinal <= l.top \
     JOIN thread t ON t.number = c.thread JOIN namespace n ON n.thread = c.thread AND n.number = c.namespace \
     WHERE c.ordinal = ANY ($4::bigint[])"
);

/// The bytes of the rows that the writes of the checkpoints that are asked for are read from.
pub(crate) const WRITE_SIZES_AT: &str = concat!(
    wanted!(),
    children!(),
    " SELECT s.n, sum(s.bytes)::bigint FROM (\
     SELECT w.n, octet_length(x.value) AS bytes FROM wanted w \
     JOIN task_write x ON x.thread = w.thread AND x.branch = w.branch AND x.ordinal = w.ordinal \
     UNION ALL \
     SELECT h.n, octet_length(c.consumed) + (SELECT coalesce(sum(octet_length(x.content)), 0) \
     FROM unnest(c.contents) AS x (content)) FROM child h \
     JOIN checkpoint c ON c.thread = h.thread AND c.branch = h.branch AND c.ordinal = h.ordinal \
     WHERE c.consumed IS NOT NULL \
     UNION ALL \
     SELECT h.n, coalesce(octet_length(i.data), 0) + coalesce(octet_length(i.body), 0)",
    items_of_child!(),
    ") s GROUP BY s.n"
);

/// The newest checkpoint of a namespace that a run made.
pub(crate) const LAST_OF_RUN: &str = concat!(
    "SELECT ",
    record_columns!(),
    " FROM (SELECT * FROM checkpoint WHERE thread = (SELECT number FROM thread WHERE id = $1) \
     AND namespace = (SELECT number FROM namespace \
     WHERE thread = (SELECT number FROM thread WHERE id = $1) AND path = $2) \
     AND run = $3 AND get_byte(run, 6) / 16 = 8 ORDER BY id DESC LIMIT 1) c \
     JOIN thread t ON t.number = c.thread JOIN namespace n ON n.thread = c.thread AND n.number = c.namespace"
);

/// A page of the changes of a lineage below an ordinal, the newest first.
pub(crate) const VERSIONS_AT: &str = concat!(
    wanted!(),
    lineage!(),
    " SELECT c.ordinal, ",
    change_columns!(),
    " FROM lineage l JOIN checkpoint c ON c.thread = l.thread AND c.branch = l.branch AND c.ordinal <= l.top \
     WHERE c.ordinal BETWEEN $4 AND $5 AND NOT c.pruned AND ($6::text IS NULL OR $6 = ANY (c.channels)) \
     ORDER BY c.ordinal DESC LIMIT $7"
);

/// Threads by their ids: number, fields and lease.
pub(crate) const THREADS: &str = concat!(
    "SELECT t.id, t.change, t.created_at, t.activity, t.updated_at, t.fields, ",
    lease_columns!(),
    " FROM thread t WHERE t.id = ANY ($1::text[])"
);

/// The ids of the threads after one.
pub(crate) const THREADS_AFTER: &str =
    "SELECT id FROM thread WHERE id > $1 AND activity IS NOT NULL ORDER BY id LIMIT $2";

pub(crate) const SIZES: &str = "SELECT t.id, \
     (SELECT count(*) FROM checkpoint c WHERE c.thread = t.number AND NOT c.pruned), \
     (SELECT count(*) FROM branch b WHERE b.thread = t.number) \
     FROM thread t WHERE t.id = ANY ($1::text[])";

pub(crate) const NAMESPACES: &str = "SELECT t.id, n.path FROM thread t JOIN namespace n ON n.thread = t.number WHERE t.id = ANY ($1::text[]) \
     ORDER BY n.path";

/// The threads that were forked from threads, the first fork first.
pub(crate) const FORKS: &str = "SELECT t.id, f.id \
     FROM thread t JOIN branch b ON b.parent_thread = t.number AND b.thread <> t.number \
     JOIN thread f ON f.number = b.thread WHERE t.id = ANY ($1::text[]) GROUP BY t.id, f.id ORDER BY min(b.branch)";

/// The checkpoints from which the root namespaces of threads began.
pub(crate) const ORIGINS: &str = "SELECT t.id, c.forked_from \
     FROM thread t JOIN namespace n ON n.thread = t.number AND n.path = '' CROSS JOIN LATERAL (\
     SELECT * FROM branch x WHERE x.thread = t.number AND x.namespace = n.number ORDER BY x.branch LIMIT 1) b \
     JOIN checkpoint c ON c.thread = b.thread AND c.branch = b.branch AND c.ordinal = b.first \
     WHERE t.id = ANY ($1::text[])";

/// The branches of a namespace of threads, the newest first: the last checkpoint of each, and what it leaves.
pub(crate) const BRANCHES: &str = concat!(
    "SELECT t.id, b.parent_branch, b.first, ",
    record_columns!(),
    " FROM thread t JOIN namespace n ON n.thread = t.number AND n.path = $2 \
     JOIN branch b ON b.thread = n.thread AND b.namespace = n.number CROSS JOIN LATERAL (\
     SELECT * FROM checkpoint x WHERE x.thread = b.thread AND x.branch = b.branch \
     ORDER BY x.ordinal DESC LIMIT 1) c \
     WHERE t.id = ANY ($1::text[]) ORDER BY b.branch DESC"
);

/// The usage that the metadata of checkpoints may state.
pub(crate) const STATED: &str = "SELECT t.id, c.metadata FROM thread t JOIN checkpoint c ON c.thread = t.number \
     WHERE t.id = ANY ($1::text[]) AND c.metadata LIKE '%\"usage\"%'";

/// The tokens of the items of root namespaces: of each position of a branch those of the first item that has some. The
/// items of checkpoints that were pruned, or that state their usage, are left out.
pub(crate) const TOKENS: &str = "SELECT x.id, x.metadata, x.pruned, x.input_tokens, x.output_tokens FROM (\
     SELECT DISTINCT ON (i.thread, i.branch, i.channel, i.position) \
     t.id, c.metadata, c.pruned, i.input_tokens, i.output_tokens \
     FROM thread t JOIN namespace n ON n.thread = t.number AND n.path = '' \
     JOIN branch b ON b.thread = t.number AND b.namespace = n.number \
     JOIN item i ON i.thread = b.thread AND i.branch = b.branch \
     JOIN checkpoint c ON c.thread = i.thread AND c.branch = i.branch AND c.ordinal = i.ordinal \
     WHERE t.id = ANY ($1::text[]) AND coalesce(i.input_tokens, i.output_tokens) IS NOT NULL \
     ORDER BY i.thread, i.branch, i.channel, i.position, i.ordinal) x";

/// The lists at heads that reference no other list: the number of their items, and whether the last one has a kind.
pub(crate) const LISTS_AT: &str = concat!(
    wanted!(),
    lineage!(),
    " SELECT x.n, x.channel, count(*), (array_agg(x.kind IS NOT NULL ORDER BY x.position DESC))[1] FROM (\
     SELECT DISTINCT ON (l.n, i.channel, i.position) l.n, i.channel, i.position, i.ordinal, i.codec, i.kind \
     FROM lineage l JOIN item i ON i.thread = l.thread AND i.branch = l.branch AND i.ordinal <= l.top \
     ORDER BY l.n, i.channel, i.position, i.ordinal DESC) x \
     WHERE x.codec IS NOT NULL AND NOT EXISTS (\
     SELECT FROM lineage l JOIN range_delete r ON r.thread = l.thread AND r.branch = l.branch AND r.ordinal <= l.top \
     WHERE l.n = x.n AND r.channel = x.channel AND r.ordinal > x.ordinal AND x.position BETWEEN r.first AND r.last) \
     GROUP BY x.n, x.channel"
);

macro_rules! listed {
    ($order:literal, $after:literal) => {
        concat!(
            "SELECT t.id, t.activity, t.priority FROM thread t WHERE t.activity IS NOT NULL \
             AND t.archived = ($1 = 1) AND (t.trashed_until IS NOT NULL) = ($2 = 1) \
             AND ($3::bigint IS NULL OR t.status = $3) AND ($4::text IS NULL OR t.graph = $4) \
             AND ($5::bigint IS NULL OR ",
            $after,
            ") ORDER BY ",
            $order,
            " LIMIT $8"
        )
    };
}

/// Pages of threads: archived, in the trash, a status, a graph; after a position, a priority and an id; at most so
/// many.
pub(crate) const LISTED_BY_ACTIVITY: &str = listed!(
    "t.listed DESC, t.activity DESC",
    "t.listed <= $5 / 60000000 AND t.activity < $5 AND $6::bigint IS NOT NULL AND $7::text IS NOT NULL"
);
pub(crate) const LISTED_BY_ID: &str = listed!("t.id", "t.id > $7::text AND $6::bigint IS NOT NULL");
pub(crate) const LISTED_BY_QUEUE: &str = listed!(
    "t.priority DESC, t.activity",
    "(t.priority < $6::bigint OR t.priority = $6 AND t.activity > $5) AND $7::text IS NOT NULL"
);

/// A page of operations, the newest first: of a thread or of all, below a number.
pub(crate) const OPERATIONS: &str = "SELECT o.number, o.seq, o.content FROM operation o \
     WHERE o.number < $2 AND ($1::text IS NULL OR EXISTS (SELECT FROM operation_change c \
     WHERE c.operation = o.number AND c.thread = (SELECT number FROM thread WHERE id = $1))) \
     AND EXISTS (SELECT FROM operation_change c WHERE c.operation = o.number) \
     ORDER BY o.number DESC LIMIT $3";

/// The changes of that page.
pub(crate) const OPERATION_CHANGES: &str = "SELECT c.operation, t.id, c.field, c.content \
     FROM operation_change c JOIN thread t ON t.number = c.thread WHERE c.operation IN (\
     SELECT o.number FROM operation o WHERE o.number < $2 AND ($1::text IS NULL OR EXISTS (\
     SELECT FROM operation_change c WHERE c.operation = o.number \
     AND c.thread = (SELECT number FROM thread WHERE id = $1))) \
     AND EXISTS (SELECT FROM operation_change c WHERE c.operation = o.number) \
     ORDER BY o.number DESC LIMIT $3)";

/// The tasks of heads that sleep.
pub(crate) const TIMERS_DUE: &str = concat!(
    "SELECT t.id, n.path, y.checkpoint, y.task, y.wake_at \
     FROM timer y JOIN namespace n ON n.thread = y.thread AND n.number = y.namespace \
     JOIN thread t ON t.number = y.thread CROSS JOIN LATERAL ",
    newest_to!("n.head"),
    " h WHERE h.id = y.checkpoint AND y.wake_at <= $1 ORDER BY y.wake_at, t.id, n.path, y.task LIMIT $2"
);

pub(crate) const TIMERS_OF: &str = concat!(
    "SELECT t.id, n.path, y.checkpoint, y.task, y.wake_at \
     FROM thread t JOIN namespace n ON n.thread = t.number \
     JOIN timer y ON y.thread = n.thread AND y.namespace = n.number CROSS JOIN LATERAL ",
    newest_to!("n.head"),
    " h WHERE h.id = y.checkpoint AND t.id = $1 AND n.path = $2 ORDER BY y.wake_at, y.task"
);
