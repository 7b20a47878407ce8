//! Rows of the table of threads: each column after each kind of commit, and the findings of `check` for them.

use super::*;
use crate::base::internal::hash::check64;
use crate::store::error::StoreError;
use crate::store::log::PruneSpan;
use crate::store::operation::{NewOperation, OperationChange, OperationField, OperationKind, OperationValue};
use crate::store::sqlite::fault::{Fault, Res};
use crate::store::sqlite::index::threads::undamaged;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::tables::{TableRow, thread_state};
use crate::store::threads::{ThreadInfo, ThreadQuery};
use rusqlite::types::Value;
use rusqlite::{Connection, ffi, params};

const UNDERIVED: &str = "it does not follow from the log; make the table of threads anew";
const UNCOUNTED: &str = "its counts do not follow from the log; make the table of threads anew";
const UNCHECKED: &str = "the check of the row does not match";
/// The end of the time in the trash, which is not over.
const IN_2100: &str = "4102444800000000";

fn listed(bench: &Bench, query: &ThreadQuery) -> Vec<String> {
    bench.store.list_threads(query).unwrap().iter().map(|info| info.id().to_string()).collect()
}

/// Adds a checkpoint to a thread.
fn add(bench: &mut Bench, name: &str, tasks: Vec<TaskRecord>, metadata: Option<&str>, changes: Vec<Change>) {
    let head = bench.store.head_id(&thread(name), &Namespace::root()).unwrap();
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, head.as_ref());
    let mut batch = Batch::new(thread(name), Namespace::root(), head);
    let metadata = metadata.map(str::to_owned);
    let parent = head.map(Parent::Local);
    batch.checkpoints.push(NewCheckpoint { parent, tasks, metadata, changes, ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
}

fn state_facts(bench: &Bench, name: &str, facts: &[(&str, &str)]) {
    let mut operation = NewOperation::new(OperationKind::Facts, Timestamp::from_micros(9));
    for (fact, text) in facts {
        let after = Some(OperationValue::Text((*text).into()));
        let field = OperationField::Fact((*fact).into());
        operation.changes.push(OperationChange::new(thread(name), Namespace::root(), field, None, after));
    }
    bench.store.operate(&operation).unwrap();
}

/// The number of a facet in a file without keys, as docs/format.md gives it.
fn facet(kind: u8, place: u8, text: &str) -> i64 {
    check64(&[&[kind, place], text.as_bytes()].concat()) as i64
}

fn facets_of(conn: &Connection, thread: i64) -> Vec<i64> {
    let packed: Vec<u8> =
        conn.query_row("SELECT facets FROM thread_state WHERE thread = ?1", [thread], |row| row.get(0)).unwrap();
    let mut entries = conn.prepare("SELECT facet FROM thread_facet WHERE thread = ?1 ORDER BY facet").unwrap();
    let entries: Vec<i64> = entries.query_map([thread], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(packed, entries.iter().flat_map(|entry| entry.to_le_bytes()).collect::<Vec<u8>>());
    entries
}

/// Threads in each place, of archived ones and of those in the trash or not: `runs` of each has all facts and a queued
/// task, `ends` only a graph. The table follows all of them.
fn in_places() -> Bench {
    let mut bench = Bench::new();
    for place in 0..4_u8 {
        let (runs, ends) = (format!("runs{place}"), format!("ends{place}"));
        add(&mut bench, &runs, vec![task(1, "ask")], Some(r#"{"graph":"g","priority":3}"#), Vec::new());
        add(&mut bench, &ends, Vec::new(), Some(r#"{"graph":"g"}"#), Vec::new());
        let mut facts = Vec::new();
        facts.extend((place & 1 > 0).then_some(("archived", "1")));
        facts.extend((place & 2 > 0).then_some(("trashed", IN_2100)));
        if !facts.is_empty() {
            state_facts(&bench, &ends, &facts);
        }
        facts.extend([("project", "p"), ("labels", r#"["x","y"]"#), ("pinned", "1")]);
        state_facts(&bench, &runs, &facts);
    }
    bench.store.rebuild_threads().unwrap();
    assert_eq!(bench.check(), Vec::<String>::new());
    bench
}

fn query_of(place: u8) -> ThreadQuery {
    ThreadQuery::new().archived(place & 1 > 0).trashed(place & 2 > 0)
}

#[test]
fn the_facets_of_a_thread_are_numbers_that_the_format_gives() {
    let bench = in_places();
    let conn = raw(&bench.path());
    for (place, thread) in (0..4_u8).zip((1..).step_by(2)) {
        let fits = [(0, ""), (1, "running"), (2, "p"), (3, "x"), (3, "y"), (4, "g"), (5, ""), (16 + 3, "g")];
        let mut expected = fits.map(|(kind, text)| facet(kind, place, text));
        expected.sort_unstable();
        assert_eq!(facets_of(&conn, thread), expected, "{place}");
        let mut expected = [(0, ""), (1, "done"), (4, "g")].map(|(kind, text)| facet(kind, place, text));
        expected.sort_unstable();
        assert_eq!(facets_of(&conn, thread + 1), expected, "{place}");
    }
}

#[test]
fn a_listing_reads_the_entries_of_its_rarest_facet_alone() {
    let bench = in_places();
    let conn = raw(&bench.path());
    conn.execute_batch("CREATE TEMP TABLE kept AS SELECT * FROM main.thread_facet").unwrap();
    let (running, done) = {
        let found = |name| bench.store.thread_info(&thread(name)).unwrap().unwrap();
        (found("runs0").status, found("ends0").status)
    };
    for place in 0..4_u8 {
        let query = || query_of(place);
        let cases = [
            (query().label("x"), 3, "x", "runs"),
            (query().label("y").project("p").pinned(true).graph("g").status(running), 3, "y", "runs"),
            (query().project("p"), 2, "p", "runs"),
            (query().project("p").pinned(true).graph("g").status(running), 2, "p", "runs"),
            (query().pinned(true), 5, "", "runs"),
            (query().pinned(true).graph("g").status(running), 5, "", "runs"),
            (query().graph("g").status(running), 1, "running", "runs"),
            (query().graph("g").status(done), 4, "g", "ends"),
            (query().graph("g").pinned(false), 4, "g", "ends"),
            (query().status(done), 1, "done", "ends"),
            (query().status(running), 1, "running", "runs"),
            (query().pinned(false), 0, "", "ends"),
            (query().queue("g"), 16 + 3, "g", "runs"),
        ];
        for (query, kind, text, name) in cases {
            let number = facet(kind, place, text);
            conn.execute("DELETE FROM main.thread_facet WHERE facet != ?1", [number]).unwrap();
            assert_eq!(listed(&bench, &query), [format!("{name}{place}")], "{query:?}");
            conn.execute_batch("DELETE FROM main.thread_facet").unwrap();
            assert_eq!(listed(&bench, &query), Vec::<String>::new(), "{query:?}");
            conn.execute_batch("INSERT INTO main.thread_facet SELECT * FROM kept").unwrap();
        }
    }
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_thread_whose_facts_are_damaged_has_the_facet_of_damage_alone() {
    let mut bench = Bench::new();
    add(&mut bench, "a", Vec::new(), None, Vec::new());
    state_facts(&bench, "a", &[("labels", r#"["x"]"#), ("archived", "1")]);
    without_triggers(&bench.path()).execute_batch("UPDATE operation_change SET after = '['").unwrap();
    bench.store.rebuild_threads().unwrap();
    assert_eq!(facets_of(&raw(&bench.path()), 1), [facet(6, 0, "")]);
    let error = bench.store.list_threads(&ThreadQuery::new().queue("g")).unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt { place, .. } if place.starts_with("operation_change")), "{error}");
}

/// The columns of a row: newest checkpoint, status, facets, counts.
type Columns = (i64, Option<i64>, Vec<u8>, Value);

/// Changes columns of a row, and gives it the check that it has then.
fn forge(conn: &Connection, keys: &Keys, thread: i64, change: impl FnOnce(&mut Columns)) {
    let read = "SELECT newest, status, facets, counts FROM thread_state WHERE thread = ?1";
    let columns = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let mut columns: Columns = conn.query_row(read, [thread], columns).unwrap();
    change(&mut columns);
    let (newest, status, facets, counts) = columns;
    let row = thread_state::Row { thread, newest, status, facets: &facets, counts: (&counts).into() };
    let row = params![thread, newest, status, facets, counts, row.row_check().finish_keyed(keys)];
    let changed = "UPDATE thread_state SET newest = ?2, status = ?3, facets = ?4, counts = ?5, xxh3 = ?6";
    conn.execute(&format!("{changed} WHERE thread = ?1"), row).unwrap();
}

fn text(counts: &str) -> Value {
    Value::Text(counts.into())
}

/// Three threads of one checkpoint each, the first with a message and tokens. The mark is the checkpoint of the last.
fn three() -> Bench {
    let mut bench = Bench::new();
    let spent = Some(r#"{"usage":{"input_tokens":5,"output_tokens":2,"cost_usd":0.000000003}}"#);
    add(&mut bench, "a", Vec::new(), spent, vec![list(4, vec![put(0, "hello")])]);
    add(&mut bench, "b", Vec::new(), None, Vec::new());
    add(&mut bench, "c", Vec::new(), None, Vec::new());
    bench.store.rebuild_threads().unwrap();
    assert_eq!(bench.check(), Vec::<String>::new());
    bench
}

/// Deletes the row of a thread and its facets.
fn without_row(bench: &Bench, thread: i64) {
    let of = |table: &str| format!("DELETE FROM {table} WHERE thread = {thread};");
    raw(&bench.path()).execute_batch(&[of("thread_state"), of("thread_facet")].concat()).unwrap();
}

/// Returns the places and the reasons of findings.
fn findings(bench: &Bench) -> Vec<(String, String)> {
    bench.store.check().unwrap().problems.into_iter().map(|finding| (finding.place, finding.reason)).collect()
}

fn finding(place: &str, reason: &str) -> (String, String) {
    (place.into(), reason.into())
}

#[test]
fn each_column_of_a_row_is_checked() {
    let harms = [
        "UPDATE thread_state SET newest = 1 WHERE thread = 2",
        "UPDATE thread_state SET status = 3 WHERE thread = 2",
        "UPDATE thread_state SET status = NULL WHERE thread = 2",
        "UPDATE thread_state SET facets = zeroblob(16) WHERE thread = 2",
        "UPDATE thread_state SET counts = '[0,0,0,1]' WHERE thread = 2",
        "UPDATE thread_state SET counts = NULL WHERE thread = 2",
        "UPDATE thread_state SET xxh3 = xxh3 + 1 WHERE thread = 2",
    ];
    for harm in harms {
        let bench = three();
        raw(&bench.path()).execute_batch(harm).unwrap();
        assert!(findings(&bench).contains(&finding("thread_state 2", UNCHECKED)), "{harm}");
    }
}

#[test]
fn facets_of_which_one_is_not_whole_are_damage() {
    let bench = three();
    forge(&raw(&bench.path()), &Keys::default(), 2, |columns| columns.2.push(0));
    let expected = [
        finding("thread_state 2", "its facets do not match the format"),
        finding("thread_state 2", UNDERIVED),
        finding("thread_facet", "2 rows are of no thread, and 0 are missing"),
    ];
    assert_eq!(findings(&bench), expected);
}

#[test]
fn each_forged_row_of_the_table_has_its_finding() {
    type Forgery = fn(&Connection, &Keys);
    let no_counts: Forgery = |conn, keys| forge(conn, keys, 2, |columns| columns.3 = Value::Null);
    let more: Forgery = |conn, keys| forge(conn, keys, 1, |columns| columns.3 = text("[1,6,2,3]"));
    let mark: Forgery = |conn, keys| forge(conn, keys, 0, |columns| columns.0 = 2);
    let status: Forgery = |conn, keys| forge(conn, keys, 3, |columns| columns.1 = Some(1));
    let stranger: Forgery = |conn, keys| {
        conn.execute_batch("INSERT INTO thread_state VALUES (9, 1, 0, X'', '[0,0,0,0]', 0)").unwrap();
        forge(conn, keys, 9, |_| ());
    };
    let cases = [
        (no_counts, finding("thread_state 2", UNDERIVED)),
        (more, finding("thread_state 1", UNDERIVED)),
        (status, finding("thread_state 3", UNDERIVED)),
        (mark, finding("thread_state 3", "it is newer than the mark")),
        (stranger, finding("thread_state 9", "it belongs to no thread")),
    ];
    for (forgery, expected) in cases {
        let bench = three();
        forgery(&raw(&bench.path()), &Keys::default());
        assert_eq!(findings(&bench), [expected]);
    }
}

#[test]
fn a_check_counts_the_entries_of_no_thread_and_those_that_are_missing() {
    let entries = |strays: u64, missing: u64| {
        finding("thread_facet", &format!("{strays} rows are of no thread, and {missing} are missing"))
    };
    let cases = [
        ("INSERT INTO thread_facet (facet, newest, thread) VALUES (1, 2, 3)", entries(1, 0)),
        ("INSERT INTO thread_facet (facet, newest, thread) VALUES (1, 2, 3), (2, 2, 3), (3, 2, 3)", entries(3, 0)),
        ("DELETE FROM thread_facet WHERE thread = 3", entries(0, 2)),
        ("UPDATE thread_facet SET thread = 1 WHERE thread = 3", entries(2, 0)),
        ("UPDATE thread_facet SET newest = 9 WHERE thread = 3", entries(2, 2)),
    ];
    for (harm, expected) in cases {
        let bench = three();
        raw(&bench.path()).execute_batch(harm).unwrap();
        assert_eq!(findings(&bench), [expected], "{harm}");
    }
}

#[test]
fn a_thread_that_the_table_must_have_is_missed() {
    for thread in 1..=3 {
        let bench = three();
        without_row(&bench, thread);
        assert_eq!(findings(&bench), [finding(&format!("thread_state {thread}"), UNDERIVED)]);
    }
}

#[test]
fn a_row_that_lags_behind_its_thread_counts_up_to_the_mark() {
    let lagging = || {
        let mut bench = three();
        let spent = Some(r#"{"usage":{"input_tokens":70}}"#);
        add(&mut bench, "a", Vec::new(), spent, vec![list(5, vec![put(1, "again")])]);
        add(&mut bench, "b", Vec::new(), None, Vec::new());
        assert_eq!(bench.check(), Vec::<String>::new());
        bench
    };
    let (of_a, of_b) = (finding("thread_state 1", UNCOUNTED), finding("thread_state 2", UNCOUNTED));
    let counts = |thread: i64, counts: Value| {
        let bench = lagging();
        forge(&raw(&bench.path()), &Keys::default(), thread, |columns| columns.3 = counts);
        findings(&bench)
    };
    for other in ["[1,6,2,3]", "[1,5,1,3]", "[1,5,2,4]", "[1,75,2,3]", "[1,0,0,0]"] {
        assert_eq!(counts(1, text(other)), std::slice::from_ref(&of_a), "{other}");
    }
    assert_eq!(counts(1, Value::Null), std::slice::from_ref(&of_a));
    assert_eq!(counts(1, text("[8,5,2,3]")), [], "its messages are counted at its head");
    assert_eq!(counts(2, text("[0,1,0,0]")), [of_b]);
    for (thread, expected) in [(1, vec![of_a]), (2, Vec::new())] {
        let bench = lagging();
        without_row(&bench, thread);
        assert_eq!(findings(&bench), expected, "{thread}");
    }
}

#[test]
fn a_row_without_counts_is_legal_only_beside_pruned_checkpoints() {
    let mut bench = Bench::new();
    for name in ["a", "a", "a", "b"] {
        add(&mut bench, name, Vec::new(), Some(r#"{"usage":{"input_tokens":5}}"#), Vec::new());
    }
    bench.store.rebuild_threads().unwrap();
    assert_eq!(bench.store.prune(&thread("a"), &[PruneSpan::new(1, 0, 1)]).unwrap().checkpoints, 2);
    assert_eq!(bench.check(), Vec::<String>::new());
    let conn = raw(&bench.path());
    let counts = "SELECT counts FROM thread_state WHERE thread = 1";
    assert_eq!(conn.query_row(counts, [], |row| row.get::<_, String>(0)).unwrap(), "[0,15,0,0]");
    forge(&conn, &Keys::default(), 1, |columns| columns.3 = Value::Null);
    assert_eq!(findings(&bench), []);
    forge(&conn, &Keys::default(), 2, |columns| columns.3 = Value::Null);
    assert_eq!(findings(&bench), [finding("thread_state 2", UNDERIVED)]);
}

#[test]
fn counts_that_do_not_match_the_format_are_damage() {
    for other in [Value::Blob(b"[0,0,0,0]".to_vec()), text("[0,0,0]"), text("[0,0,0,-1]"), Value::Integer(0)] {
        let bench = three();
        forge(&raw(&bench.path()), &Keys::default(), 2, |columns| columns.3 = other.clone());
        let expected = finding("thread_state 2", "its counts do not match the format");
        assert_eq!(findings(&bench)[0], expected, "{other:?}");
    }
}

#[test]
fn only_an_error_that_tells_of_damaged_rows_passes_for_damage() {
    let sql = |code| Fault::Sql(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
    let corrupt = || StoreError::Corrupt { place: "a row".into(), reason: "its check".into() };
    let id = ThreadId::new("").unwrap_err();
    for fault in [corrupt().into(), StoreError::Id(id).into(), sql(ffi::SQLITE_CORRUPT), sql(ffi::SQLITE_NOTADB)] {
        assert!(matches!(undamaged(Err::<u8, Fault>(fault)), Ok(None)));
    }
    let invalid = StoreError::Invalid { field: "limit", reason: "it is 0".into() };
    match undamaged(Err::<u8, Fault>(invalid.into())) {
        Err(Fault::Store(StoreError::Invalid { field, .. })) => assert_eq!(field, "limit"),
        other => panic!("{other:?}"),
    }
    for code in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR, ffi::SQLITE_BUSY, ffi::SQLITE_NOMEM] {
        match undamaged(Err::<u8, Fault>(sql(code))) {
            Err(Fault::Sql(error)) => assert_eq!(error.sqlite_error().unwrap().extended_code, code),
            other => panic!("{other:?}"),
        }
    }
    let read: Res<u8> = Ok(7);
    assert!(matches!(undamaged(read), Ok(Some(7))));
}

/// An encrypted store with a thread of one message, which the table follows, and a connection with its keys.
#[cfg(feature = "encryption")]
fn sealed() -> (Bench, Connection, Keys) {
    use super::cipher::{bench, encrypted, key};
    let options = encrypted(key(1));
    let mut bench = bench(&options);
    let spent = Some(r#"{"usage":{"input_tokens":5}}"#);
    add(&mut bench, "a", Vec::new(), spent, vec![list(4, vec![put(0, "hello")])]);
    bench.store.rebuild_threads().unwrap();
    assert_eq!(bench.check(), Vec::<String>::new());
    let conn = raw(&bench.path());
    let keys = Keys::new(options.clone());
    keys.unlock(&conn, &bench.path(), false).unwrap();
    (bench, conn, keys)
}

#[cfg(feature = "encryption")]
fn counts_column(conn: &Connection) -> Value {
    conn.query_row("SELECT counts FROM thread_state WHERE thread = 1", [], |row| row.get(0)).unwrap()
}

#[cfg(feature = "encryption")]
#[test]
fn counts_in_the_clear_are_damage_in_an_encrypted_file() {
    let (bench, conn, keys) = sealed();
    let counted = |bench: &Bench| bench.store.thread_info(&thread("a")).unwrap().unwrap().counts;
    let numbers = |info: &ThreadInfo| info.counts.map(|counts| (counts.messages, counts.input_tokens));
    let info = bench.store.thread_info(&thread("a")).unwrap().unwrap();
    assert_eq!(numbers(&info), Some((1, 5)));
    let Value::Blob(column) = counts_column(&conn) else { panic!("the counts are sealed") };
    let identity = keys.identity("thread counts").int(1).int(1);
    let mut plain = Vec::new();
    keys.open(&conn, &identity, &column, &mut plain, &|| "the counts".into()).unwrap();
    assert_eq!(plain, b"[1,5,0,0]");
    forge(&conn, &keys, 1, |_| ());
    assert_eq!(bench.check(), Vec::<String>::new());
    forge(&conn, &keys, 1, |columns| columns.3 = text("[1,5,0,0]"));
    assert_eq!(counted(&bench), None);
    assert_eq!(findings(&bench)[0], finding("thread_state 1", "its counts do not match the format"));
}

#[cfg(feature = "encryption")]
#[test]
fn a_change_that_leaves_the_row_of_a_thread_as_it_is_seals_nothing_anew() {
    let (mut bench, conn, _keys) = sealed();
    let before = counts_column(&conn);
    state_facts(&bench, "a", &[("title", "Rome")]);
    assert_eq!(counts_column(&conn), before);
    state_facts(&bench, "a", &[("labels", r#"["x"]"#)]);
    assert_ne!(counts_column(&conn), before, "the row has another facet");
    add(&mut bench, "b", Vec::new(), None, Vec::new());
    assert_eq!(bench.check(), Vec::<String>::new());
}
