//! The statements that read the entries of an index beside a place.

use crate::store::sqlite::tables::text::{joined, text};
use crate::store::sqlite::tables::{TableRow, item};

/// The first entry of an index, in an order, that fits a condition.
macro_rules! entry {
    ($table:literal . $id:literal, $index:literal, $columns:expr, ($($condition:literal)+), $order:expr) => {
        text!(
            "SELECT * FROM (SELECT ", $id, " AS at, ", $columns, " FROM ", $table, " INDEXED BY ", $index, " WHERE ",
            $($condition,)+ " ORDER BY ", $order, " LIMIT 1)"
        )
    };
}

/// True if an entry of an index beside a place is not that of its row: the first entry of the index, the last one below
/// the place, those that follow it, or the first one at or above the place. A key that damage made NULL is not below a
/// place of several columns, but it follows the entry below. Without a sort, two entries come in the order of the
/// index. The columns are those of the index, the last one apart; those of the place are compared with its bounds. A
/// partial index has a condition.
macro_rules! beside {
    ($table:literal . $id:literal, $index:literal [$($equal:literal),*; $last:literal], $place:literal $from:literal $bounds:literal) => {
        beside!($table . $id, $index [$($equal),*; $last], $place $from $bounds, "1", "1")
    };
    (
        $table:literal . $id:literal, $index:literal [$($equal:literal),*; $last:literal], $place:literal $from:literal $bounds:literal,
        $filter:literal, $behind:literal
    ) => {{
        const COLUMNS: &str = joined!(&[$($equal,)* $last], "", "", ", ");
        const DOWN: &str = joined!(&[$($equal,)* $last], "", " DESC", ", ");
        const BEHIND: &str = joined!(&[$($equal,)* $last], "b.", "", ", ");
        const BELOW: &str = entry!($table . $id, $index, COLUMNS, ($filter " AND (" $place ") < (" $bounds ")"), DOWN);
        text!(
            "SELECT EXISTS (SELECT 1 FROM (",
            entry!($table . $id, $index, COLUMNS, ($filter), COLUMNS),
            " UNION ALL ", BELOW,
            " UNION ALL SELECT * FROM (SELECT b.", $id, ", ", BEHIND, " FROM (", BELOW, ") l CROSS JOIN ", $table,
            " b INDEXED BY ", $index, " ON ", $behind, $(" AND b.", $equal, " = l.", $equal,)*
            " AND b.", $last, " >= l.", $last, " LIMIT 2) UNION ALL ",
            entry!($table . $id, $index, COLUMNS, ($filter " AND (" $place ") " $from " (" $bounds ")"), COLUMNS),
            ") i LEFT JOIN ", $table, " t NOT INDEXED ON t.", $id, " = i.at WHERE t.", $last, " IS NOT i.", $last,
            $(" OR t.", $equal, " IS NOT i.", $equal,)* ")"
        )
    }};
}

pub(super) const THREAD: &str =
    beside!("thread" . "id", "sqlite_autoindex_thread_1" [; "public_id"], "public_id" ">=" "?1");
pub(super) const NAMESPACE: &str =
    beside!("namespace" . "id", "sqlite_autoindex_namespace_1" ["thread"; "path"], "thread, path" ">=" "?1, ?2");
/// All namespaces of a thread.
pub(super) const NAMESPACES: &str =
    beside!("namespace" . "id", "sqlite_autoindex_namespace_1" ["thread"; "path"], "thread" ">" "?1");
pub(super) const CHECKPOINT: &str = beside!("checkpoint" . "seq", "checkpoint_id" ["namespace"; "prefix"], "namespace, prefix" ">=" "?1, substr(?2, 1, 6)");
/// The index holds only runs whose ids are of version 8.
pub(super) const RUN: &str = beside!(
    "checkpoint" . "seq", "checkpoint_run" ["run", "namespace"; "id"], "run, namespace" ">=" "?1, ?2",
    "substr(run, 7, 1) BETWEEN X'80' AND X'8f'", "substr(b.run, 7, 1) BETWEEN X'80' AND X'8f'"
);
pub(super) const NAME: &str =
    beside!("name" . "id", "sqlite_autoindex_name_1" ["kind"; "text"], "kind, text" ">=" "?1, ?2");
pub(super) const KV_NAMESPACE: &str =
    beside!("kv_namespace" . "id", "sqlite_autoindex_kv_namespace_1" [; "path"], "path" ">=" "?1");
pub(super) const KV: &str = beside!("kv" . "id", "kv_key" ["namespace"; "key"], "namespace, key" ">=" "?1, ?2");

/// A thread, and the last one of its namespaces.
pub(super) const NAMESPACE_LAST: &str = "SELECT t.id, (SELECT n.id FROM namespace n WHERE n.thread = t.id \
     ORDER BY n.path DESC LIMIT 1) FROM thread t WHERE t.public_id = ?1";

/// True if an index has as many entries as its table has rows, or if these are too many to be counted. The condition is
/// true of each row: without it SQLite would count the rows of either in both places.
macro_rules! counted {
    ($table:literal, $index:literal, $each:literal) => {
        concat!(
            "SELECT coalesce((SELECT max(id) FROM ",
            $table,
            "), 0) > ?1 OR (SELECT count(*) FROM ",
            $table,
            " INDEXED BY ",
            $index,
            " WHERE ",
            $each,
            ") = (SELECT count(*) FROM ",
            $table,
            " NOT INDEXED)"
        )
    };
}

pub(super) const NAMESPACES_COUNTED: &str = counted!("namespace", "sqlite_autoindex_namespace_1", "thread >= 0");
pub(super) const KV_NAMESPACES_COUNTED: &str =
    counted!("kv_namespace", "sqlite_autoindex_kv_namespace_1", "path >= ''");

/// True if as many timers as there are rows are in their index, or if these are too many to be counted.
pub(super) const TIMERS_COUNTED: &str = "SELECT t.rows > ?1 OR t.rows = (SELECT count(*) FROM timer INDEXED BY \
     timer_wake WHERE wake_at >= -9223372036854775808) FROM (SELECT count(*) AS rows FROM (SELECT task FROM timer \
     ORDER BY namespace, task LIMIT ?1 + 1)) t";

/// Items with their keys.
macro_rules! item {
    ($place:literal) => {
        text!(item::Row::SELECT, "WHERE ", $place, " LIMIT 1")
    };
}
/// The last item before a position of a list: of the list, else of the branch, else of all. A key of which damage made
/// a column NULL comes before all others, and a comparison of several columns at once would pass over it.
pub(super) const ITEM_BELOW: &str = text!(
    "SELECT * FROM (",
    item!("branch = ?1 AND channel = ?2 AND slot < ?3 ORDER BY slot DESC, ordinal"),
    ") UNION ALL SELECT * FROM (",
    item!("branch = ?1 AND channel < ?2 ORDER BY channel DESC, slot DESC, ordinal"),
    ") UNION ALL SELECT * FROM (",
    item!("branch < ?1 ORDER BY branch DESC, channel DESC, slot DESC, ordinal"),
    ") LIMIT 1"
);
/// The first item after a position of a list.
pub(super) const ITEM_ABOVE: &str =
    item!("(branch, channel, slot) > (?1, ?2, ?3) ORDER BY branch, channel, slot, ordinal DESC");

/// The first rows of writes of a checkpoint, or those behind its place.
pub(crate) const WRITES_FROM: &str = "SELECT checkpoint, task, idx, part, \
     EXISTS (SELECT 1 FROM checkpoint c WHERE c.seq = write.checkpoint) FROM write WHERE checkpoint >= ?1 \
     ORDER BY checkpoint, task, idx, part LIMIT 2";
/// The last row of writes of a checkpoint, or the one before its place.
pub(super) const WRITES_TO: &str = "SELECT checkpoint, task, idx, part, \
     EXISTS (SELECT 1 FROM checkpoint c WHERE c.seq = write.checkpoint) FROM write WHERE checkpoint <= ?1 \
     ORDER BY checkpoint DESC, task DESC, idx DESC, part DESC LIMIT 1";
/// The rows of writes directly below those of a checkpoint, the nearest one first.
pub(crate) const WRITES_BELOW: &str = "SELECT checkpoint, task, idx, part, \
     EXISTS (SELECT 1 FROM checkpoint c WHERE c.seq = write.checkpoint) FROM write WHERE checkpoint < ?1 \
     ORDER BY checkpoint DESC, task DESC, idx DESC, part DESC LIMIT 2";
/// The rows of writes directly above those of a checkpoint.
pub(super) const WRITES_ABOVE: &str = "SELECT checkpoint, task, idx, part, \
     EXISTS (SELECT 1 FROM checkpoint c WHERE c.seq = write.checkpoint) FROM write WHERE checkpoint > ?1 \
     ORDER BY checkpoint, task, idx, part LIMIT 2";
