//! The statements that read the entries of an index beside a place.

use crate::store::sqlite::tables::text::text;
use crate::store::sqlite::tables::{TableRow, item};

/// The first entry of an index, in an order, that fits a condition.
macro_rules! entry {
    ($table:literal . $id:literal, $index:literal ($columns:literal), $condition:literal, $order:literal) => {
        concat!(
            "SELECT * FROM (SELECT ",
            $id,
            " AS at, ",
            $columns,
            " FROM ",
            $table,
            " INDEXED BY ",
            $index,
            " WHERE ",
            $condition,
            " ORDER BY ",
            $order,
            " LIMIT 1)"
        )
    };
}

/// True if an entry of an index beside a place is not that of its row: the first entry of the index, the last one below
/// the place, those that follow it, or the first one at or above the place. A key that damage made NULL is not below a
/// place of several columns, but it follows the entry below. Without a sort, two entries come in the order of the
/// index.
macro_rules! beside {
    ($table:literal . $id:literal, $index:literal ($columns:literal), first $first:literal, below $below:literal,
     by $descending:literal, behind ($behind_columns:literal) $behind:literal, above $above:literal, $differs:literal) => {
        concat!(
            "SELECT EXISTS (SELECT 1 FROM (",
            entry!($table.$id, $index($columns), $first, $columns),
            " UNION ALL ",
            entry!($table.$id, $index($columns), $below, $descending),
            " UNION ALL SELECT * FROM (SELECT b.",
            $id,
            ", ",
            $behind_columns,
            " FROM (",
            entry!($table.$id, $index($columns), $below, $descending),
            ") l CROSS JOIN ",
            $table,
            " b INDEXED BY ",
            $index,
            " ON ",
            $behind,
            " LIMIT 2) UNION ALL ",
            entry!($table.$id, $index($columns), $above, $columns),
            ") i LEFT JOIN ",
            $table,
            " t NOT INDEXED ON t.",
            $id,
            " = i.at WHERE ",
            $differs,
            ")"
        )
    };
}

pub(super) const THREAD: &str = beside!(
    "thread" . "id", "sqlite_autoindex_thread_1" ("public_id"),
    first "1",
    below "public_id < ?1",
    by "public_id DESC",
    behind ("b.public_id") "b.public_id >= l.public_id",
    above "public_id >= ?1",
    "t.public_id IS NOT i.public_id"
);
pub(super) const NAMESPACE: &str = beside!(
    "namespace" . "id", "sqlite_autoindex_namespace_1" ("thread, path"),
    first "1",
    below "(thread, path) < (?1, ?2)",
    by "thread DESC, path DESC",
    behind ("b.thread, b.path") "b.thread = l.thread AND b.path >= l.path",
    above "(thread, path) >= (?1, ?2)",
    "t.thread IS NOT i.thread OR t.path IS NOT i.path"
);
/// All namespaces of a thread.
pub(super) const NAMESPACES: &str = beside!(
    "namespace" . "id", "sqlite_autoindex_namespace_1" ("thread, path"),
    first "1",
    below "thread < ?1",
    by "thread DESC, path DESC",
    behind ("b.thread, b.path") "b.thread = l.thread AND b.path >= l.path",
    above "thread > ?1",
    "t.thread IS NOT i.thread OR t.path IS NOT i.path"
);
pub(super) const CHECKPOINT: &str = beside!(
    "checkpoint" . "seq", "checkpoint_id" ("namespace, prefix"),
    first "1",
    below "(namespace, prefix) < (?1, substr(?2, 1, 6))",
    by "namespace DESC, prefix DESC",
    behind ("b.namespace, b.prefix") "b.namespace = l.namespace AND b.prefix >= l.prefix",
    above "(namespace, prefix) >= (?1, substr(?2, 1, 6))",
    "t.namespace IS NOT i.namespace OR t.prefix IS NOT i.prefix"
);
/// The index holds only runs whose ids are of version 8.
pub(super) const RUN: &str = beside!(
    "checkpoint" . "seq", "checkpoint_run" ("run, namespace, id"),
    first "substr(run, 7, 1) BETWEEN X'80' AND X'8f'",
    below "substr(run, 7, 1) BETWEEN X'80' AND X'8f' AND (run, namespace) < (?1, ?2)",
    by "run DESC, namespace DESC, id DESC",
    behind ("b.run, b.namespace, b.id") "substr(b.run, 7, 1) BETWEEN X'80' AND X'8f' AND b.run = l.run AND b.namespace = l.namespace AND b.id >= l.id",
    above "substr(run, 7, 1) BETWEEN X'80' AND X'8f' AND (run, namespace) >= (?1, ?2)",
    "t.run IS NOT i.run OR t.namespace IS NOT i.namespace OR t.id IS NOT i.id"
);
pub(super) const NAME: &str = beside!(
    "name" . "id", "sqlite_autoindex_name_1" ("kind, text"),
    first "1",
    below "(kind, text) < (?1, ?2)",
    by "kind DESC, text DESC",
    behind ("b.kind, b.text") "b.kind = l.kind AND b.text >= l.text",
    above "(kind, text) >= (?1, ?2)",
    "t.kind IS NOT i.kind OR t.text IS NOT i.text"
);
pub(super) const KV_NAMESPACE: &str = beside!(
    "kv_namespace" . "id", "sqlite_autoindex_kv_namespace_1" ("path"),
    first "1",
    below "path < ?1",
    by "path DESC",
    behind ("b.path") "b.path >= l.path",
    above "path >= ?1",
    "t.path IS NOT i.path"
);
pub(super) const KV: &str = beside!(
    "kv" . "id", "kv_key" ("namespace, key"),
    first "1",
    below "(namespace, key) < (?1, ?2)",
    by "namespace DESC, key DESC",
    behind ("b.namespace, b.key") "b.namespace = l.namespace AND b.key >= l.key",
    above "(namespace, key) >= (?1, ?2)",
    "t.namespace IS NOT i.namespace OR t.key IS NOT i.key"
);

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
