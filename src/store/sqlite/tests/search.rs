//! The search index: its entries, its bytes, its place in a file.

use super::*;
use crate::base::Encoded;
use crate::base::limits::TEXT_POSITION_MIN;
use crate::store::check::Invariant;
use crate::store::error::StoreError;
use crate::store::search::{SearchOptions, SearchQuery};

const WORDS: [&str; 5] = ["gasthof", "berge", "wasser", "東京", "regen"];

/// Empties the index, which begins anew.
const FORGET: &str = "BEGIN IMMEDIATE; UPDATE search_state SET next = 0; \
                      INSERT INTO search_text (search_text) VALUES ('delete-all'); COMMIT";

/// Returns a put of a message.
fn says(position: u64, text: &str) -> Change {
    let mut index = ItemIndex::default();
    (index.kind, index.text) = (Some("ai".into()), Some(text.into()));
    let payload = Payload::new(text.as_bytes().to_vec()).with_index(index);
    let put = ItemChange::new(position, ItemOp::Put(Data::New(payload)), None);
    Change::new("list", position + 1, ChangeValue::Items(vec![put]))
}

/// Adds messages to threads in turn.
fn talk(bench: &mut Bench, threads: &[&str], count: u64) {
    for name in threads {
        let thread = thread(name);
        let mut head = bench.store.head_id(&thread, &Namespace::root()).unwrap();
        let from = head.map_or(0, |head| {
            let at = CheckpointRef::new(thread.clone(), Namespace::root(), head);
            bench.store.list_len(&at, "list").unwrap()
        });
        for n in from..from + count {
            let text = format!("{name} {} {n}", WORDS[n as usize % WORDS.len()]);
            head = Some(bench.add(&thread, head, vec![says(n, &text)]));
        }
    }
}

fn hits(store: &SqliteBackend, query: SearchQuery) -> Vec<String> {
    let page = store.searches().unwrap().search(&query.limit(1_000)).unwrap();
    page.hits.into_iter().map(|hit| hit.snippet.text).collect()
}

fn indexed(threads: &[&str], count: u64) -> Bench {
    let mut bench = Bench::new();
    talk(&mut bench, threads, count);
    bench.store.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    bench
}

/// Returns the entries that the index holds, whatever the log says of them.
fn entries(bench: &Bench) -> Vec<i64> {
    let conn = raw(&bench.path());
    conn.execute_batch("CREATE VIRTUAL TABLE temp.terms USING fts5vocab(main, search_text, instance)").unwrap();
    let mut statement = conn.prepare("SELECT DISTINCT doc FROM terms ORDER BY doc").unwrap();
    let entries = statement.query_map([], |row| row.get(0)).unwrap();
    entries.collect::<rusqlite::Result<_>>().unwrap()
}

#[test]
fn an_index_finds_what_a_scan_finds_and_is_read() {
    let mut bench = Bench::new();
    talk(&mut bench, &["a", "b"], 40);
    let queries = || {
        let all = ["gasthof", "asser", "京", "a", "b gast 5", "wasser b"].map(SearchQuery::new);
        all.into_iter().chain([SearchQuery::new("regen").thread("a"), SearchQuery::new("a").thread("b").role("ai")])
    };
    let scanned: Vec<_> = queries().map(|query| hits(&bench.store, query)).collect();
    assert_eq!(scanned.iter().map(Vec::len).collect::<Vec<_>>(), [16, 16, 16, 56, 4, 8, 8, 16]);
    bench.store.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    assert_eq!(queries().map(|query| hits(&bench.store, query)).collect::<Vec<_>>(), scanned);
    assert_eq!((entries(&bench).len(), bench.check()), (80, Vec::new()));
    // Without the entries nothing is found, and the check tells it.
    raw(&bench.path()).execute_batch("INSERT INTO search_text (search_text) VALUES ('delete-all')").unwrap();
    assert_eq!(hits(&bench.store, SearchQuery::new("gasthof")), [""; 0]);
    let findings = bench.store.check().unwrap().problems;
    assert!(
        findings.iter().all(|finding| finding.invariant == Invariant::SearchIndex) && findings.len() == 1,
        "{findings:?}"
    );
    bench.store.searches().unwrap().disable().unwrap();
    bench.store.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    assert_eq!((hits(&bench.store, SearchQuery::new("gasthof")), bench.check()), (scanned[0].clone(), Vec::new()));
}

#[test]
fn the_index_follows_the_log_when_it_is_searched() {
    let mut bench = indexed(&["a"], 3);
    talk(&mut bench, &["a"], 200);
    let behind = |bench: &Bench| bench.store.searches().unwrap().index().unwrap().unwrap().behind;
    assert_eq!((hits(&bench.store, SearchQuery::new("gasthof")).len(), behind(&bench)), (41, 200), "they are scanned");
    talk(&mut bench, &["b"], 100);
    // A long rest, as a handle that knows of no index leaves it, is indexed by the search.
    raw(&bench.path()).execute_batch(FORGET).unwrap();
    assert_eq!((hits(&bench.store, SearchQuery::new("gasthof")).len(), behind(&bench)), (61, 0), "they are indexed");
    // A reader searches the same, and indexes nothing.
    talk(&mut bench, &["c"], 200);
    let reader = SqliteBackend::open(&bench.path(), &options().read_only(true)).unwrap();
    assert_eq!(hits(&reader, SearchQuery::new("gasthof")).len(), 101);
    assert!(matches!(reader.searches().unwrap().enable(&SearchOptions::new()), Err(StoreError::ReadOnly)));
    assert_eq!(bench.check(), [""; 0]);
}

#[test]
fn the_index_follows_the_log_in_the_background() {
    let mut bench = indexed(&["a"], 3);
    talk(&mut bench, &["a"], 300);
    let behind = |store: &SqliteBackend| store.searches().unwrap().index().unwrap().unwrap().behind;
    let follows = |store: &SqliteBackend| until("the index follows", || behind(store) < 100);
    follows(&bench.store);
    // A rest that another handle has left is indexed after an open.
    raw(&bench.path()).execute_batch(FORGET).unwrap();
    follows(&open(&bench.path()));
    assert_eq!((hits(&bench.store, SearchQuery::new("gasthof")).len(), bench.check()), (61, Vec::new()));
}

#[test]
fn a_handle_that_was_open_before_writes_to_an_indexed_store() {
    let mut bench = Bench::new();
    talk(&mut bench, &["a"], 10);
    let other = open(&bench.path());
    other.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    talk(&mut bench, &["a"], 10);
    assert_eq!(hits(&bench.store, SearchQuery::new("gasthof")).len(), 4);
    bench.store.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    assert_eq!((hits(&other, SearchQuery::new("gasthof")).len(), entries(&bench).len()), (4, 20));
    other.searches().unwrap().disable().unwrap();
    talk(&mut bench, &["a"], 10);
    assert_eq!((hits(&bench.store, SearchQuery::new("gasthof")).len(), bench.check()), (6, Vec::new()));
}

#[test]
fn a_deleted_thread_leaves_no_entry() {
    let mut bench = indexed(&["a", "b", "c"], 30);
    let of_b = entries(&bench)[30..60].to_vec();
    talk(&mut bench, &["b"], 5);
    let erasure = bench.store.delete_threads(&[thread("b")]).unwrap();
    assert_eq!(
        hits(&bench.store, SearchQuery::new("gasthof").thread("b")),
        [""; 0],
        "its hits are hidden at once: {erasure:?}"
    );
    _ = bench.store.reclaim().unwrap();
    let left = entries(&bench);
    assert!(left.len() == 60 && of_b.iter().all(|entry| !left.contains(entry)), "{left:?}");
    assert_eq!(bench.check(), [""; 0]);
    talk(&mut bench, &["b"], 5);
    assert_eq!(hits(&bench.store, SearchQuery::new("gasthof").thread("b")), ["b gasthof 0"]);
    // One without entries, and one whose index goes before its rows.
    _ = bench.store.delete_threads(&[thread("b")]).unwrap();
    bench.store.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    _ = bench.store.delete_threads(&[thread("c")]).unwrap();
    bench.store.searches().unwrap().disable().unwrap();
    _ = bench.store.reclaim().unwrap();
    assert_eq!((hits(&bench.store, SearchQuery::new("gasthof")).len(), bench.check()), (6, Vec::new()));
}

/// Returns a value in MessagePack.
fn encoded(text: &str) -> Payload {
    Encoded::encode(text).unwrap().into()
}

#[test]
fn an_appended_part_is_indexed_alone_and_every_entry_is_erased() {
    let mut bench = Bench::new();
    let long = "the hills are steep ".repeat(50_000) + "Gast";
    let part = |n: u64, text: &str| {
        let put = ItemChange::new(TEXT_POSITION_MIN + n, ItemOp::Put(Data::New(encoded(text))), None);
        Change::new("draft", n + 1, ChangeValue::Items(vec![put]))
    };
    let (text, fork) = (thread("text"), thread("fork"));
    let first = bench.add(&text, None, vec![part(0, &long), value("city", 1, encoded("Bern"))]);
    let second = bench.add(&text, Some(first), vec![part(1, "hof 7")]);
    let third = bench.add_on(&fork, Some(Parent::Fork(at(&text, second))), vec![part(2, "th end")]);
    bench.add(&fork, Some(third), vec![part(3, "ing")]);
    bench.store.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    let find = |bench: &Bench, words: &str| hits(&bench.store, SearchQuery::new(words));
    assert_eq!(find(&bench, "gasthof"), ["Gasthof 7"], "one long part is before it");
    assert_eq!((find(&bench, "bern"), find(&bench, "ending")), (vec!["Bern".to_owned()], vec!["ending".to_owned()]));
    let of = |seq: i64, place: i64| (seq << 24) + place;
    assert_eq!(entries(&bench), [of(1, 0), of(1, 1), of(2, 0), of(3, 0), of(4, 0)]);
    let conn = raw(&bench.path());
    conn.execute_batch("CREATE VIRTUAL TABLE temp.terms USING fts5vocab(main, search_text, instance)").unwrap();
    let grams = |entry| -> i64 {
        conn.query_row("SELECT count(*) FROM terms WHERE doc = ?1", [entry], |row| row.get(0)).unwrap()
    };
    assert_eq!(grams(of(2, 0)), 7, "of gasthof, the thread and the type");
    drop(conn);
    _ = bench.store.delete_threads(&[text, fork]).unwrap();
    _ = bench.store.reclaim().unwrap();
    assert_eq!((entries(&bench), bench.check()), (Vec::new(), Vec::new()));
}

#[test]
fn a_check_passes_over_the_entries_of_a_thread_that_is_being_erased() {
    let mut bench = indexed(&["a"], 5);
    talk(&mut bench, &["long"], 200);
    bench.store.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    _ = bench.store.delete_threads(&[thread("long")]).unwrap();
    assert_eq!(bench.check(), [""; 0]);
    _ = bench.store.reclaim().unwrap();
    assert_eq!((entries(&bench).len(), bench.check()), (5, Vec::new()));
}

#[test]
fn a_copy_has_the_index_and_a_recovered_file_has_none() {
    let bench = indexed(&["a"], 30);
    let folder = tempfile::tempdir().unwrap();
    let (copy, recovered) = (folder.path().join("copy.db"), folder.path().join("recovered.db"));
    bench.store.backup(&copy).unwrap();
    let copied = open(&copy);
    assert_eq!(copied.searches().unwrap().index().unwrap().map(|index| index.behind), Some(0));
    copied.compact().unwrap();
    assert_eq!((hits(&copied, SearchQuery::new("regen")).len(), copied.check().unwrap().problems), (6, Vec::new()));
    drop(copied);
    crate::store::Store::recover(&copy, &recovered).unwrap();
    let recovered = open(&recovered);
    assert_eq!(recovered.searches().unwrap().index().unwrap(), None);
    assert_eq!(hits(&recovered, SearchQuery::new("regen")).len(), 6);
}

#[test]
fn other_objects_in_the_place_of_the_index_are_refused() {
    let harms = [
        "DROP INDEX search_put",
        "DROP TABLE search_state",
        "DROP INDEX search_put; CREATE INDEX search_put ON item (branch)",
        "DROP TABLE search_erase; CREATE VIEW search_erase AS SELECT 1 AS thread",
    ];
    for harm in harms {
        let bench = indexed(&["a"], 2);
        let path = bench.path();
        raw(&path).execute_batch(harm).unwrap();
        drop(bench.store);
        let refused = SqliteBackend::open(&path, &options());
        assert!(matches!(refused, Err(StoreError::Corrupt { .. })), "{harm}: {refused:?}");
    }
    // An application may have tables with other names.
    let bench = Bench::new();
    raw(&bench.path()).execute_batch("CREATE TABLE search_history (text TEXT)").unwrap();
    bench.store.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    drop(open(&bench.path()));
}

#[cfg(feature = "encryption")]
#[test]
fn an_encrypted_store_is_indexed_only_if_that_is_allowed_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let keyed = options().key(crate::store::Key::new([7; 32]));
    let store = SqliteBackend::open(&folder.path().join("x.db"), &keyed).unwrap();
    let refused = store.searches().unwrap().enable(&SearchOptions::new()).unwrap_err();
    assert!(matches!(refused, StoreError::Invalid { field: "search index", .. }), "{refused}");
    assert_eq!(store.searches().unwrap().index().unwrap(), None);
    store.searches().unwrap().enable(&SearchOptions::new().unsealed()).unwrap();
    assert!(store.searches().unwrap().index().unwrap().is_some());
}
