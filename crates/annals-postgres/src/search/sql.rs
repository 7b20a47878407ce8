//! The statements of searches.

use crate::sql::{change_columns, item_columns, lineage, newest_to, record_columns, wanted};

/// Every item that a kept checkpoint put or deleted in a list of a lineage.
pub(crate) const ITEM_HISTORY_AT: &str = concat!(
    wanted!(),
    lineage!(),
    " SELECT i.channel, i.position, i.ordinal, i.task, ",
    item_columns!(),
    " FROM lineage l JOIN item i ON i.thread = l.thread AND i.branch = l.branch AND i.ordinal <= l.top \
     JOIN checkpoint c ON c.thread = i.thread AND c.branch = i.branch AND c.ordinal = i.ordinal \
     WHERE i.channel = ANY ($4::text[]) AND NOT c.pruned"
);

/// The range deletes of kept checkpoints in a list of a lineage.
pub(crate) const RANGE_HISTORY_AT: &str = concat!(
    wanted!(),
    lineage!(),
    " SELECT r.channel, r.ordinal, r.first, r.last, r.task, r.reference, t.id, l.n \
     FROM lineage l JOIN range_delete r ON r.thread = l.thread AND r.branch = l.branch AND r.ordinal <= l.top \
     JOIN thread t ON t.number = r.thread \
     JOIN checkpoint c ON c.thread = r.thread AND c.branch = r.branch AND c.ordinal = r.ordinal \
     WHERE r.channel = ANY ($4::text[]) AND NOT c.pruned"
);

macro_rules! searched {
    () => {
        "SELECT * FROM checkpoint WHERE (seq, thread, branch, ordinal) < ($1, $2, $3, $4) \
         ORDER BY seq DESC, thread DESC, branch DESC, ordinal DESC LIMIT $5"
    };
}

/// The checkpoints of the index that have all grams, and those that are not indexed.
macro_rules! found {
    () => {
        "SELECT * FROM (\
         SELECT x.* FROM search_entry e JOIN checkpoint x ON x.thread = e.thread AND x.branch = e.branch \
         AND x.ordinal = e.ordinal WHERE e.grams @> ($6::bigint[])::integer[] \
         UNION ALL SELECT x.* FROM checkpoint x WHERE (x.xact, x.seq) > (\
         coalesce((SELECT xact FROM search_mark), '0'), coalesce((SELECT seq FROM search_mark), 0))) y \
         WHERE (seq, thread, branch, ordinal) < ($1, $2, $3, $4) \
         ORDER BY seq DESC, thread DESC, branch DESC, ordinal DESC LIMIT $5"
    };
}

/// A page of checkpoints before a place, the newest first.
macro_rules! page {
    ($checkpoints:ident) => {
        concat!(
            "SELECT ",
            record_columns!(),
            ", ",
            change_columns!(),
            " FROM (",
            $checkpoints!(),
            ") c JOIN thread t ON t.number = c.thread JOIN namespace n ON n.thread = c.thread AND n.number = c.namespace \
             ORDER BY c.seq DESC, c.thread DESC, c.branch DESC, c.ordinal DESC"
        )
    };
}

macro_rules! put_columns {
    () => {
        concat!("SELECT i.thread, i.branch, i.ordinal, i.channel, i.position, i.task, ", item_columns!())
    };
}

/// The items that checkpoints put, each between two positions of a channel, and those that pruned ones have retained.
pub(crate) const ITEMS: &str = concat!(
    put_columns!(),
    " FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[]) \
     AS x (thread, branch, ordinal, channel, first, last) \
     JOIN item i ON i.thread = x.thread AND i.branch = x.branch AND i.channel = x.channel \
     AND i.position BETWEEN x.first AND x.last AND i.ordinal = x.ordinal WHERE i.codec IS NOT NULL UNION ALL ",
    put_columns!(),
    " FROM unnest($7::bigint[], $8::bigint[], $9::bigint[]) AS x (thread, branch, ordinal) \
     JOIN item i ON i.thread = x.thread AND i.branch = x.branch AND i.ordinal = x.ordinal WHERE i.codec IS NOT NULL"
);

/// A page of all checkpoints.
pub(crate) const SCANNED: &str = page!(searched);

/// A page of those that the index shows.
pub(crate) const INDEXED: &str = page!(found);

/// The position up to which checkpoints are indexed, if there is an index, and how many are not, up to a limit.
pub(crate) const MARK: &str = "SELECT m.xact::text, m.seq, (SELECT count(*) FROM (SELECT FROM checkpoint c \
     WHERE (c.xact, c.seq) > ((SELECT xact FROM search_mark), (SELECT seq FROM search_mark)) LIMIT $1) x) \
     FROM search_mark m";

macro_rules! unindexed {
    () => {
        "SELECT * FROM checkpoint \
         WHERE (xact, seq) > ((SELECT xact FROM search_mark), (SELECT seq FROM search_mark)) \
         AND xact < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY xact, seq LIMIT $1"
    };
}

/// The next checkpoints to index, with the position of each.
pub(crate) const UNINDEXED: &str = concat!(
    "SELECT c.xact::text, ",
    record_columns!(),
    ", ",
    change_columns!(),
    " FROM (",
    unindexed!(),
    ") c JOIN thread t ON t.number = c.thread JOIN namespace n ON n.thread = c.thread AND n.number = c.namespace \
     ORDER BY c.xact, c.seq"
);

/// Moves the mark from one position to another, and adds the grams of the checkpoints between: slices of the last
/// array. Nothing is added if another process has moved it.
pub(crate) const INDEX: &str = "WITH moved AS (\
     UPDATE search_mark SET xact = $3::text::xid8, seq = $4 WHERE xact = $1::text::xid8 AND seq = $2 RETURNING seq) \
     INSERT INTO search_entry (thread, branch, ordinal, grams) \
     SELECT x.thread, x.branch, x.ordinal, (($10::bigint[])[x.first:x.last])::integer[] \
     FROM moved CROSS JOIN unnest($5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[]) \
     AS x (thread, branch, ordinal, first, last) \
     JOIN checkpoint c ON c.thread = x.thread AND c.branch = x.branch AND c.ordinal = x.ordinal \
     ON CONFLICT (thread, branch, ordinal) DO NOTHING";

pub(crate) const ENABLE: &str =
    "INSERT INTO search_mark (one, xact, seq) VALUES (true, '0', 0) ON CONFLICT (one) DO NOTHING";

/// The deletions that remove the index.
pub(crate) const DISABLE: [&str; 2] = ["DELETE FROM search_mark", "DELETE FROM search_entry"];
