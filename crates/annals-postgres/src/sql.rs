//! The statements that every part of the backend uses, and the fragments that others share.
//!
//! A statement that asks for checkpoints has three arrays first: the ids of threads, the paths of namespaces, and the
//! ids of checkpoints, where NULL stands for the head of the namespace.

use crate::schema::NewTables;

const SCHEMA: &str = include_str!("../schema/schema.sql");

/// A setting of the server: its name and its value.
pub(crate) type PgSetting = (&'static str, &'static str);

pub(crate) const BEGIN: &str = "BEGIN";
pub(crate) const BEGIN_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";

/// Returns the statements that begin a transaction with settings which end with it.
pub(crate) fn begin_with<'s>(begin: &str, settings: impl Iterator<Item = (&'s str, &'s str)>) -> String {
    // The form of a literal that no setting changes.
    let literal = |text: &str| format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
    let set = |(name, value)| format!("set_config({}, {}, true)", literal(name), literal(value));
    format!("{begin}; SELECT {}", settings.map(set).collect::<Vec<_>>().join(", "))
}

/// The value of the mark that a startup packet sets, and the search path.
pub(crate) const SESSION: &str = "SELECT current_setting('annals.session', true), current_setting('search_path')";
pub(crate) const MARK: &str = "annals.session";
pub(crate) const SEARCH_PATH: &str = "search_path";

/// The joins are written in the order in which they are best done; looking for another one takes most of the time.
pub(crate) const PLAN_AS_WRITTEN: &[PgSetting] =
    &[("join_collapse_limit", "1"), ("from_collapse_limit", "1"), ("jit", "off")];
/// The statements of commits and of most reads are not planned for their parameters: they join arrays of few rows with
/// tables by their keys, whatever the parameters are.
pub(crate) const PLAN_ONCE: &[PgSetting] = &[
    PLAN_AS_WRITTEN[0],
    PLAN_AS_WRITTEN[1],
    PLAN_AS_WRITTEN[2],
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_seqscan", "off"),
];
pub(crate) const COMMIT: &str = "COMMIT";
pub(crate) const ROLLBACK: &str = "ROLLBACK";
/// Lets the server plan the prepared statements of the connection anew.
pub(crate) const DROP_PLANS: &str = "DISCARD PLANS";
/// The bytes of the tables in the first schema of the search path, with their indexes and long values.
pub(crate) const TABLE_BYTES: &str = "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c \
     WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r'";

/// The columns of a record: of `checkpoint c` with its `thread t` and its `namespace n`.
macro_rules! record_columns {
    () => {
        "t.id, n.path, c.thread, c.branch, c.ordinal, c.namespace, c.id, c.seq, c.parent, c.forked_from, c.step, \
         c.source, c.created_at, c.run, c.app_version, c.metadata, c.exact, c.parents, c.tasks, c.pruned, c.checksum"
    };
}

/// The columns of the changes of `checkpoint c`.
macro_rules! change_columns {
    () => {
        "c.channels, c.contents, c.seen, c.snapshot"
    };
}

/// The columns of the payload of `item i`.
macro_rules! item_columns {
    () => {
        "i.codec, i.data, i.item_id, i.kind, i.name, i.tool_calls, i.body, i.input_tokens, i.output_tokens, i.exact"
    };
}

/// The columns of the lease of `thread t`.
macro_rules! lease_columns {
    () => {
        "t.lease_owner, t.lease_process, t.lease_epoch, t.lease_until, t.lease_recoveries"
    };
}

/// The newest checkpoint of `namespace n` up to an id.
macro_rules! newest_to {
    ($id:literal) => {
        concat!(
            "(SELECT * FROM checkpoint x WHERE x.thread = n.thread AND x.namespace = n.number AND x.id <= ",
            $id,
            " ORDER BY x.id DESC LIMIT 1)"
        )
    };
}

/// The checkpoints that are asked for, each with its number in the arrays.
macro_rules! wanted {
    () => {
        concat!(
            "WITH RECURSIVE wanted AS (\
             SELECT w.n, c.thread, c.namespace, c.branch, c.ordinal \
             FROM unnest($1::text[], $2::text[], $3::bytea[]) WITH ORDINALITY AS w (id, path, checkpoint, n) \
             JOIN thread t ON t.id = w.id \
             JOIN namespace n ON n.thread = t.number AND n.path = w.path CROSS JOIN LATERAL ",
            newest_to!("coalesce(w.checkpoint, n.head)"),
            " c WHERE w.checkpoint IS NULL OR c.id = w.checkpoint)"
        )
    };
}

/// The lineages of the checkpoints that are asked for: branches, each with the last ordinal that counts.
macro_rules! lineage {
    () => {
        ", lineage AS (\
         SELECT n, thread, branch, ordinal AS top FROM wanted \
         UNION ALL \
         SELECT l.n, b.parent_thread, b.parent_branch, b.first - 1 \
         FROM lineage l JOIN branch b ON b.thread = l.thread AND b.branch = l.branch \
         WHERE b.parent_thread IS NOT NULL)"
    };
}

/// The children of the checkpoints that are asked for, in their namespaces.
macro_rules! children {
    () => {
        ", child AS (\
         SELECT w.n, c.thread, c.branch, c.ordinal FROM wanted w \
         JOIN checkpoint c ON c.thread = w.thread AND c.branch = w.branch AND c.ordinal = w.ordinal + 1 \
         UNION ALL \
         SELECT w.n, b.thread, b.branch, b.first FROM wanted w \
         JOIN branch b ON b.parent_thread = w.thread AND b.parent_branch = w.branch AND b.first = w.ordinal + 1 \
         WHERE b.thread = w.thread AND b.namespace = w.namespace)"
    };
}

/// The writes of tasks of the checkpoints in `wanted`.
macro_rules! task_writes {
    () => {
        " SELECT w.n, x.change, x.task, x.position, x.channel, x.mark, x.value \
         FROM wanted w JOIN task_write x ON x.thread = w.thread AND x.branch = w.branch AND x.ordinal = w.ordinal"
    };
}

/// The writes that the children of the checkpoints in `wanted` consumed.
macro_rules! consumed {
    () => {
        concat!(
            children!(),
            " SELECT h.n, c.seq, c.branch, c.ordinal, c.consumed, ",
            change_columns!(),
            " FROM child h JOIN checkpoint c ON c.thread = h.thread AND c.branch = h.branch AND c.ordinal = h.ordinal \
             WHERE c.consumed IS NOT NULL ORDER BY h.n, c.seq"
        )
    };
}

/// The items that stand for parts of what the children of the checkpoints in `wanted` consumed.
macro_rules! consumed_items {
    () => {
        concat!(
            children!(),
            " SELECT h.n, i.branch, i.ordinal, i.channel, i.position, ",
            item_columns!(),
            items_of_child!()
        )
    };
}

/// The items that a `child` put and that stand for parts of what it consumed.
macro_rules! items_of_child {
    () => {
        " FROM child h JOIN checkpoint c ON c.thread = h.thread AND c.branch = h.branch AND c.ordinal = h.ordinal \
             JOIN item i ON i.thread = c.thread AND i.branch = c.branch AND i.channel = ANY (c.channels) \
             AND i.position = ANY (c.consumed_items) AND i.ordinal = c.ordinal \
             WHERE c.consumed IS NOT NULL"
    };
}

pub(crate) use {
    change_columns, children, consumed, consumed_items, item_columns, items_of_child, lease_columns, lineage,
    newest_to, record_columns, task_writes, wanted,
};

/// The statement that locks the rows of threads: no other transaction changes them before this one ends.
pub(crate) const LOCK_THREADS: &str =
    "SELECT number, id FROM thread WHERE id = ANY ($1::text[]) ORDER BY number FOR UPDATE";

/// Whether there is a schema, its version, the server that wrote it, and this one.
pub(crate) const SCHEMA_IS_THERE: &str = "SELECT to_regclass('annals_schema') IS NOT NULL";
pub(crate) const SCHEMA_VERSION: &str =
    "SELECT version, system, (SELECT system_identifier FROM pg_control_system()) FROM annals_schema";
/// Notes that the tables are on this server. Of several processes, one finds that they were not.
pub(crate) const NOTE_SERVER: &str = "UPDATE annals_schema SET system = c.system_identifier FROM pg_control_system() c \
     WHERE system <> c.system_identifier RETURNING version";
pub(crate) const LOWER_CHECKPOINTS: &str = "UPDATE checkpoint SET xact = '0'";
pub(crate) const LOWER_MARK: &str = "UPDATE search_mark SET xact = '0', seq = 0";
pub(crate) const LOCK_SCHEMA: &str = "SELECT pg_advisory_xact_lock(6150420190)";
pub(crate) const NOTE_SCHEMA: &str = "INSERT INTO annals_schema SELECT $1, system_identifier FROM pg_control_system()";
pub(crate) const ENCODING: &str = "SELECT current_setting('server_encoding')";

/// The records of the checkpoints that are asked for.
pub(crate) const RECORDS_AT: &str = concat!(
    wanted!(),
    " SELECT w.n, ",
    record_columns!(),
    " FROM wanted w JOIN checkpoint c ON c.thread = w.thread AND c.branch = w.branch AND c.ordinal = w.ordinal \
     JOIN thread t ON t.number = c.thread JOIN namespace n ON n.thread = c.thread AND n.number = c.namespace"
);

/// The changes of the checkpoints that are asked for and of those before them, back to the index snapshot.
pub(crate) const CHANGES_AT: &str = concat!(
    wanted!(),
    " SELECT w.n, c.thread, c.branch, c.ordinal, ",
    change_columns!(),
    " FROM wanted w JOIN branch b ON b.thread = w.thread AND b.branch = w.branch \
     JOIN checkpoint c ON c.thread = w.thread AND c.branch = w.branch \
     AND c.ordinal BETWEEN greatest(b.first, w.ordinal / 64 * 64) AND w.ordinal \
     ORDER BY w.n, c.ordinal"
);

/// The writes of tasks of the checkpoints that are asked for, but for those that their children brought.
pub(crate) const TASK_WRITES_AT: &str = concat!(wanted!(), task_writes!(), " ORDER BY w.n");

/// The writes that the children of the checkpoints that are asked for consumed.
pub(crate) const CONSUMED_AT: &str = concat!(wanted!(), consumed!());

/// The items that stand for parts of these writes.
pub(crate) const CONSUMED_ITEMS_AT: &str = concat!(wanted!(), consumed_items!());

/// The contents of channels where they were written last.
pub(crate) const CONTENTS_AT: &str = "SELECT p.n, c.contents[k.at] \
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]) WITH ORDINALITY \
     AS p (thread, branch, ordinal, channel, n) \
     JOIN checkpoint c ON c.thread = p.thread AND c.branch = p.branch AND c.ordinal = p.ordinal, \
     LATERAL (SELECT array_position(c.channels, p.channel) AS at) k WHERE k.at IS NOT NULL";

macro_rules! items {
    ($which:literal) => {
        concat!(
            wanted!(),
            lineage!(),
            " SELECT DISTINCT ON (i.channel, i.position) i.channel, i.position, i.ordinal, i.task, ",
            item_columns!(),
            " FROM lineage l JOIN item i ON i.thread = l.thread AND i.branch = l.branch AND i.ordinal <= l.top ",
            $which,
            " ORDER BY i.channel, i.position, i.ordinal DESC"
        )
    };
}

/// The newest item at each position of all lists of a lineage.
pub(crate) const ALL_ITEMS_AT: &str = items!("");

/// The newest item at each position of some lists of a lineage, between two positions.
pub(crate) const ITEMS_AT: &str = items!("WHERE i.channel = ANY ($4::text[]) AND i.position BETWEEN $5 AND $6");

/// The last items of lists of a lineage up to a position: of each branch so many of each channel.
pub(crate) const ITEM_TAILS_AT: &str = concat!(
    wanted!(),
    lineage!(),
    " SELECT l.thread, l.branch, i.channel, i.position, i.ordinal, i.task, ",
    item_columns!(),
    " FROM lineage l CROSS JOIN unnest($4::text[], $5::bigint[]) AS x (channel, last) CROSS JOIN LATERAL (\
     SELECT * FROM item i WHERE i.thread = l.thread AND i.branch = l.branch AND i.channel = x.channel \
     AND i.position <= x.last AND i.ordinal <= l.top ORDER BY i.position DESC, i.ordinal DESC LIMIT $6) i"
);

/// The newest items with an id in a list of a lineage, and what came later at their positions.
pub(crate) const ITEMS_BY_ID_AT: &str = concat!(
    wanted!(),
    lineage!(),
    " SELECT DISTINCT ON (i.position) i.channel, i.position, i.ordinal, i.task, ",
    item_columns!(),
    " FROM lineage l JOIN item i ON i.thread = l.thread AND i.branch = l.branch AND i.ordinal <= l.top \
     WHERE i.channel = $4 AND i.position IN (\
     SELECT f.position FROM lineage o JOIN item f ON f.thread = o.thread AND f.branch = o.branch \
     AND f.ordinal <= o.top \
     WHERE f.channel = $4 AND right(f.item_id, 6) = right($5, 6) AND f.item_id = $5) \
     ORDER BY i.position, i.ordinal DESC"
);

macro_rules! range_deletes {
    ($which:literal) => {
        concat!(
            wanted!(),
            lineage!(),
            " SELECT r.channel, r.ordinal, r.first, r.last, r.task, r.reference, t.id, l.n \
             FROM lineage l JOIN range_delete r ON r.thread = l.thread AND r.branch = l.branch AND r.ordinal <= l.top ",
            $which,
            " JOIN thread t ON t.number = r.thread ORDER BY r.ordinal DESC, r.first"
        )
    };
}

/// The range deletes of all lists of a lineage, the newest first.
pub(crate) const ALL_RANGE_DELETES_AT: &str = range_deletes!("");

/// The range deletes of some lists of a lineage, the newest first.
pub(crate) const RANGE_DELETES_AT: &str = range_deletes!("AND r.channel = ANY ($4::text[])");

/// The number of items of a list of a lineage that references no other one.
pub(crate) const LEN_AT: &str = concat!(
    wanted!(),
    lineage!(),
    " SELECT count(*) FROM (\
     SELECT DISTINCT ON (i.position) i.position, i.ordinal, i.codec \
     FROM lineage l JOIN item i ON i.thread = l.thread AND i.branch = l.branch AND i.ordinal <= l.top \
     WHERE i.channel = ANY ($4::text[]) ORDER BY i.position, i.ordinal DESC) x \
     WHERE x.codec IS NOT NULL AND NOT EXISTS (\
     SELECT FROM lineage l JOIN range_delete r ON r.thread = l.thread AND r.branch = l.branch AND r.ordinal <= l.top \
     WHERE r.channel = ANY ($4::text[]) AND r.ordinal > x.ordinal AND x.position BETWEEN r.first AND r.last)"
);

/// The tables that grow with the log. All their keys begin with the thread.
const PARTITIONED: [&str; 4] = ["checkpoint", "item", "task_write", "search_entry"];

/// Returns the statements that make the tables.
pub(crate) fn schema(new_tables: NewTables) -> String {
    let mut all = SCHEMA.to_owned();
    let NewTables::Divided(count) = new_tables else { return all };
    for table in PARTITIONED {
        let begin = all.find(&format!("CREATE TABLE {table} (")).unwrap_or_default();
        let end = begin + all[begin..].find("\n);").unwrap_or_default();
        let mut divided = "\n) PARTITION BY HASH (thread);".to_owned();
        for at in 0..count {
            let values = format!("FOR VALUES WITH (MODULUS {count}, REMAINDER {at})");
            divided += &format!("\nCREATE TABLE {table}_{at} PARTITION OF {table} {values};");
        }
        all.replace_range(end..end + "\n);".len(), &divided);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_divided_only_if_that_is_asked_for() {
        assert_eq!(schema(NewTables::Whole), SCHEMA);
        let divided = schema(NewTables::Divided(3));
        for table in PARTITIONED {
            let last = format!("CREATE TABLE {table}_2 PARTITION OF {table} FOR VALUES WITH (MODULUS 3, REMAINDER 2);");
            assert!(divided.contains(&last), "{table}");
        }
        assert_eq!(divided.matches("PARTITION BY HASH (thread)").count(), PARTITIONED.len());
    }

    #[test]
    fn a_transaction_begins_with_settings_as_literals() {
        let begin = begin_with(BEGIN, [("a", "1"), ("b", r"it's \")].into_iter());
        assert_eq!(begin, r"BEGIN; SELECT set_config(E'a', E'1', true), set_config(E'b', E'it''s \\', true)");
    }
}
