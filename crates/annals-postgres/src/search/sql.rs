//! The statements of searches.

use crate::sql::{change_columns, item_columns, lineage, record_columns, wanted};

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

/// A page of checkpoints before a place, the newest first.
pub(crate) const PAGE: &str = concat!(
    "SELECT ",
    record_columns!(),
    ", ",
    change_columns!(),
    " FROM (",
    searched!(),
    ") c JOIN thread t ON t.number = c.thread JOIN namespace n ON n.thread = c.thread AND n.number = c.namespace \
     ORDER BY c.seq DESC, c.thread DESC, c.branch DESC, c.ordinal DESC"
);

/// The items that the checkpoints of the page put.
pub(crate) const ITEMS: &str = concat!(
    "SELECT i.thread, i.branch, i.ordinal, i.channel, i.position, i.task, ",
    item_columns!(),
    " FROM (",
    searched!(),
    ") c JOIN item i ON i.thread = c.thread AND i.branch = c.branch AND i.ordinal = c.ordinal \
     WHERE i.codec IS NOT NULL"
);
