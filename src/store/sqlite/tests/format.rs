//! The documents of the format and of the views, the dump of the schema and a fresh file agree.

use super::*;
use crate::store::sqlite::file::schema;
use crate::store::sqlite::sql;
use crate::store::sqlite::tables::{ColumnKind, TABLES};
use std::collections::BTreeMap;

/// Returns the statements of the schema of a file.
fn dump(path: &std::path::Path) -> String {
    let conn = raw(path);
    let mut statement = conn.prepare(sql::DUMP).unwrap();
    let rows = statement.query_map([], |row| row.get::<_, String>(2)).unwrap();
    rows.map(|sql| sql.unwrap() + ";").collect::<Vec<_>>().join("\n\n")
}

#[test]
fn a_new_file_has_the_statements_of_the_schema_and_few_of_its_comments() {
    let bench = Bench::new();
    let fresh = dump(&bench.path());
    assert_eq!(fresh, schema::statements_of(None));
    assert!(fresh.contains("  seq INTEGER PRIMARY KEY,\n  namespace INTEGER NOT NULL,\n"), "{fresh}");
    assert!(fresh.len() + 6_000 < sql::SCHEMA.len());
    let without_comment = |line: &&str| line.starts_with("  ") && line.ends_with(" NOT NULL,");
    assert_eq!(sql::SCHEMA.lines().find(without_comment), None, "every column has a comment");
}

/// Returns the text of a document.
fn document(name: &str) -> String {
    std::fs::read_to_string(format!("{}/docs/{name}.md", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The documents name each table and view in a heading, and its columns in the first cells of the table below it.
fn documented() -> BTreeMap<String, Vec<String>> {
    let text = document("format") + &document("views");
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        let name = |line: &str| line.split('`').nth(1).map(str::to_owned);
        if line.starts_with('#') {
            current = line.starts_with("### `").then(|| name(line)).flatten();
        } else if let Some(table) = &current
            && line.starts_with("| `")
        {
            tables.entry(table.clone()).or_default().push(name(line).unwrap());
        }
    }
    tables
}

#[test]
fn the_documents_name_every_table_and_column() {
    let bench = Bench::new();
    bench.store.searches().unwrap().enable(&crate::store::SearchOptions::new()).unwrap();
    make_groups(&bench.path());
    let conn = raw(&bench.path());
    let mut statement = conn
        .prepare(
            "SELECT s.name, c.name FROM sqlite_schema s JOIN pragma_table_info(s.name) c \
             WHERE s.type IN ('table', 'view') AND s.name NOT GLOB 'search_text_*' ORDER BY s.name, c.cid",
        )
        .unwrap();
    let mut real: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut rows = statement.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        real.entry(row.get(0).unwrap()).or_default().push(row.get(1).unwrap());
    }
    assert_eq!(documented(), real);
}

/// The document states the type of each column, with a question mark if it may be NULL.
#[test]
fn the_document_states_the_types_that_are_declared() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/format.md")).unwrap();
    for table in TABLES {
        let (_, section) = text.split_once(&format!("\n### `{}`\n", table.name)).unwrap();
        let rows = section.split("\n#").next().unwrap().lines().filter(|line| line.starts_with("| `"));
        for (column, row) in table.columns.iter().zip(rows) {
            let cells: Vec<&str> = row.split(" | ").collect();
            assert_eq!(cells[0], format!("| `{}`", column.name), "{}", table.name);
            let kind = match column.kind {
                ColumnKind::Stored | ColumnKind::Any => "ANY".to_owned(),
                kind => format!("{kind:?}").to_uppercase(),
            };
            let is_any = matches!(column.kind, ColumnKind::Any | ColumnKind::Stored);
            let stated = cells[1].trim_end_matches('?');
            assert_eq!(stated, kind, "{}.{}", table.name, column.name);
            assert!(is_any || cells[1].ends_with('?') == column.is_nullable, "{}.{}", table.name, column.name);
        }
    }
}

#[test]
fn views_show_what_was_stored() {
    let mut bench = Bench::new();
    let t = thread("alice");
    let a = task(0xab, "answer");
    let first =
        NewCheckpoint { tasks: vec![a.clone()], ..checkpoint(bench.ids.checkpoint(Timestamp::default(), 0, None)) };
    let second = NewCheckpoint {
        parent: Some(Parent::Local(first.id)),
        consumed: vec![writes(
            first.id,
            &a,
            vec![
                write(0, "messages", WriteValue::Items(vec![message("01234567-89ab-4def-8123-456789abcdef", "hello")])),
                write(-1, "error", WriteValue::One(plain(&[0xa1, b'e']))),
            ],
        )],
        changes: vec![list(3, vec![ItemChange { position: 0, op: ItemOp::Put(of_write(a.id, 0, 0)), task: Some(0) }])],
        seen: vec![seen("answer", "trigger:of:answer", 1)],
        ..checkpoint(bench.ids.checkpoint(Timestamp::default(), 1, Some(&first.id)))
    };
    let mut batch = Batch::new(t.clone(), Namespace::root(), None);
    batch.checkpoints = vec![first.clone(), second.clone()];
    bench.store.commit(&batch).unwrap();
    let conn = raw(&bench.path());
    let line = |query: &str| -> String { conn.query_row(query, [], |row| row.get(0)).unwrap() };
    let id = |query: &str| -> [u8; 16] { conn.query_row(query, [], |row| row.get(0)).unwrap() };
    let said = "SELECT thread || '|' || seq || '|' || kind || '|' || text || '|' || created_at FROM v_messages";
    assert_eq!(line(said), "alice|2|ai|hello|1970-01-01T00:00:00.000005Z");
    assert_eq!(id("SELECT id FROM v_messages")[..4], [1, 0x23, 0x45, 0x67]);
    let source = "SELECT source || '|' || created_at || '|' || is_head FROM v_checkpoints WHERE seq = 2";
    assert_eq!(line(source), "loop|1970-01-01T00:00:00.000005Z|1");
    assert_eq!(id("SELECT checkpoint FROM v_checkpoints WHERE seq = 2"), *second.id.as_bytes());
    assert_eq!(id("SELECT parent FROM v_checkpoints WHERE seq = 2"), *first.id.as_bytes());
    assert_eq!(line("SELECT group_concat(nodes, '|') FROM v_checkpoints"), r#"[]|["answer"]"#);
    assert_eq!(line("SELECT position || '|' || channel FROM v_writes WHERE idx = 0"), "0|messages");
    assert_eq!(id("SELECT task FROM v_writes WHERE idx = 0"), *a.id.as_bytes());
    assert_eq!(id("SELECT consumed_by FROM v_writes WHERE idx = 0"), *second.id.as_bytes());
    assert_eq!(line("SELECT hex(inline) FROM v_writes WHERE idx = -1"), "A165");
    assert_eq!(line("SELECT channel || version || kind FROM v_channel_versions"), "messages3list");
    assert_eq!(line("SELECT thread || namespaces || branches || checkpoints FROM v_threads"), "alice112");
}

#[test]
fn views_hold_plain_sql() {
    for view in schema::statements(sql::SCHEMA).split("\n\n").filter(|block| block.starts_with("CREATE VIEW")) {
        for word in ["hex(", "RECURSIVE", "instr(", "annals_"] {
            assert!(!view.contains(word), "{word} in {view}");
        }
    }
}

#[test]
fn views_lead_to_the_checkpoints_of_threads_that_take_turns() {
    let mut bench = Bench::new();
    let (threads, mut heads) = ([thread("a"), thread("b"), thread("c")], [None; 3]);
    for position in 0..40 {
        for (thread, head) in threads.iter().zip(&mut heads) {
            *head = Some(bench.add(thread, *head, vec![list(position + 1, vec![put(position, "text")])]));
        }
    }
    let conn = raw(&bench.path());
    let count = |query: &str| -> i64 { conn.query_row(query, [], |row| row.get(0)).unwrap() };
    for (view, rows) in [("v_messages", 120), ("v_channel_versions", 120)] {
        let same = format!(
            "SELECT count(*) FROM {view} m JOIN v_checkpoints c USING (seq) WHERE c.thread = m.thread \
             AND c.branch = m.branch AND c.ordinal = m.ordinal"
        );
        assert_eq!(count(&same), rows, "{view}");
    }
    assert_eq!(count("SELECT count(*) FROM v_messages WHERE seq = 3 * slot + unicode(thread) - 96"), 120);
    for (thread, head) in threads.iter().zip(heads) {
        let ordinals: Vec<u64> = (0..40).collect();
        let found = bench.store.ancestors(&at(thread, head.unwrap()), &ordinals).unwrap();
        assert!(found.iter().zip(&ordinals).all(|(found, ordinal)| found.as_ref().unwrap().ordinal == *ordinal));
    }
}

/// Joins of views, as a user writes them.
const JOINS: [&str; 2] = [
    "SELECT m.id, m.text, c.step FROM v_messages m JOIN v_checkpoints c USING (seq)",
    "SELECT v.channel, v.version, c.step FROM v_channel_versions v JOIN v_checkpoints c USING (seq)",
];

#[test]
fn a_join_of_messages_and_checkpoints_is_linear() {
    let mut bench = Bench::new();
    bench.add(&thread("a"), None, vec![list(1, vec![put(0, "stored")])]);
    let conn = raw(&bench.path());
    for join in JOINS {
        let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {join}")).unwrap();
        let plan = statement.query_map([], |row| row.get::<_, String>(3)).unwrap();
        let plan: Vec<String> = plan.map(|line| line.unwrap()).collect();
        let is_inside = |line: &str| INSIDE.iter().any(|begin| line.starts_with(begin));
        let scans = plan.iter().filter(|line| line.starts_with("SCAN") && !is_inside(line)).count();
        assert_eq!(scans, 1, "{join}: {plan:?}");
    }
}

/// Scans of the head of one row.
const INSIDE: [&str; 4] = ["SCAN CONSTANT", "SCAN (", "SCAN top", "SCAN moved"];
