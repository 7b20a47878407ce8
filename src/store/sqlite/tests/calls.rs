//! Calls of the backend: stored rows, results, and work that is left to the background.

use super::*;
use crate::base::Encoded;
use crate::limits::{NAME_USERS_MAX, SEARCH_TAIL_MAX, WRITER_CACHE_MAX};
use crate::store::batch::NewTimer;
use crate::store::log::PruneTarget;
use crate::store::mark::WriteMark;
use crate::store::operation::{NewOperation, OperationChange, OperationField, OperationKind, OperationValue, TRASHED};
use crate::store::prune::PruneSpan;
use crate::store::search::SearchOptions;
use crate::store::side_tables::{CacheChange, CacheKey, SideTables};
use crate::store::sqlite::commit::caches::Caches;
use crate::store::sqlite::fault::Fault;
use crate::store::sqlite::read::record::Known;
use crate::store::sqlite::rows::list_end::ListEnd;
use std::collections::BTreeSet;
use std::sync::Arc;

fn number(path: &Path, query: &str) -> i64 {
    raw(path).query_row(query, [], |row| row.get(0)).unwrap()
}

/// Returns a chain of checkpoints without changes.
fn chain(ids: &mut IdSource, name: &str, count: usize) -> Batch {
    let (mut batch, mut parent) = (Batch::new(thread(name), Namespace::root(), None), None);
    for step in 0..count {
        let id = ids.checkpoint(Timestamp::from_micros(1), step as i64, parent.as_ref());
        let parent = parent.replace(id).map(Parent::Local);
        batch.checkpoints.push(NewCheckpoint { parent, ..checkpoint(id) });
    }
    batch
}

/// Puts a thread into the trash until a timestamp.
fn trash(store: &SqliteBackend, name: &str, until: &str) {
    let mut operation = NewOperation::new(OperationKind::Facts, Timestamp::from_micros(1));
    let field = OperationField::Fact(TRASHED.to_owned());
    let after = Some(OperationValue::Text(until.into()));
    operation.changes.push(OperationChange::new(thread(name), Namespace::root(), field, None, after));
    store.operate(&operation).unwrap();
}

fn at_micros(path: &Path, micros: i64) -> SqliteBackend {
    SqliteBackend::open(path, &options().clock(Timestamp::from_micros(micros))).unwrap()
}

fn is_gone(store: &SqliteBackend, name: &str) -> bool {
    store.head_id(&thread(name), &Namespace::root()).unwrap().is_none()
}

#[test]
fn an_erasure_that_was_not_ended_is_continued_after_an_open() {
    let mut bench = Bench::new();
    bench.add(&thread("stays"), None, vec![value("x", 1, plain(&[1]))]);
    let path = bench.path();
    drop(bench.store);
    raw(&path).execute_batch("INSERT INTO tombstone (thread, state) VALUES (7, 0)").unwrap();
    let store = open(&path);
    until("the erasure is ended", || number(&path, "SELECT count(*) FROM tombstone") == 0);
    assert!(!is_gone(&store, "stays"));
}

#[test]
fn a_thread_whose_time_in_the_trash_has_ended_goes_at_once() {
    let mut bench = Bench::new();
    let path = bench.path();
    for name in ["before", "after"] {
        bench.add(&thread(name), None, vec![value("x", 1, plain(&[1]))]);
    }
    drop(bench.store);
    let early = at_micros(&path, 0);
    trash(&early, "before", "500");
    drop(early);
    // Trashed before the file was opened.
    let late = at_micros(&path, 1_000);
    until("the thread goes", || is_gone(&late, "before"));
    drop(late);
    // Trashed while it is open.
    let late = at_micros(&path, 1_000);
    trash(&late, "after", "500");
    until("the thread goes", || is_gone(&late, "after"));
}

#[test]
fn an_index_that_is_far_behind_is_continued_after_an_open() {
    let mut bench = Bench::new();
    let path = bench.path();
    // It does not know of the index, so its commits do not wake the background.
    let unaware = open(&path);
    bench.add(&thread("a"), None, Vec::new());
    bench.store.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    drop(bench.store);
    unaware.commit(&chain(&mut bench.ids, "b", SEARCH_TAIL_MAX as usize + 1)).unwrap();
    drop(unaware);
    let reader = SqliteBackend::open(&path, &options().read_only(true)).unwrap();
    let behind = || reader.searches().unwrap().index().unwrap().unwrap().behind;
    assert_eq!(behind(), SEARCH_TAIL_MAX + 1);
    let store = open(&path);
    until("the index follows", || behind() == 0);
    // Its own commits are counted.
    store.commit(&chain(&mut bench.ids, "c", SEARCH_TAIL_MAX as usize + 1)).unwrap();
    until("the index follows", || behind() == 0);
}

#[test]
fn a_writer_knows_the_head_that_it_stored() {
    let mut bench = Bench::new();
    let (t, root) = (thread("a"), Namespace::root());
    assert!(bench.store.bare_head(&t, &root).is_none());
    let first = bench.add(&t, None, Vec::new());
    let known = bench.store.bare_head(&t, &root).unwrap();
    assert_eq!(known.checkpoint, first);
    bench.add(&t, Some(first), Vec::new());
    assert!(bench.store.is_head(&t, &root, &known), "it retains another one by now");
}

#[test]
fn a_read_on_the_connection_that_writes_is_repeated_elsewhere_if_it_would_wait() {
    let mut bench = Bench::new();
    bench.add(&thread("a"), None, Vec::new());
    let reads = |busy: usize| {
        let count = std::cell::Cell::new(0);
        let read = bench.store.read_near_writer(|_| {
            count.set(count.get() + 1);
            let locked = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
            if count.get() > busy { Ok(()) } else { Err(Fault::Sql(rusqlite::Error::SqliteFailure(locked, None))) }
        });
        (read.is_ok(), count.get())
    };
    assert_eq!([reads(0), reads(1), reads(2)], [(true, 1), (true, 2), (false, 2)]);
}

#[test]
fn a_pruning_empties_the_index_and_the_background_fills_it_again() {
    let mut bench = Bench::new();
    let (t, inner) = (thread("a"), Namespace::new("inner").unwrap());
    let batch = chain(&mut bench.ids, "a", 6);
    bench.store.commit(&batch).unwrap();
    let checkpoints = chain(&mut bench.ids, "a", 2).checkpoints;
    let last = checkpoints[1].id;
    let nested = Batch { checkpoints, ..Batch::new(t.clone(), inner.clone(), None) };
    bench.store.commit(&nested).unwrap();
    bench.store.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    let is_whole = || bench.store.searches().unwrap().index().unwrap().unwrap().behind == 0;
    assert!(is_whole());
    assert_eq!(bench.store.prune(&t, &[PruneSpan::new(1, 1, 3)]).unwrap().checkpoints, 3);
    until("the index is filled", is_whole);
    assert_eq!(bench.store.prune(&t, PruneTarget::Namespaces(&[(inner, last)])).unwrap().checkpoints, 2);
    until("the index is filled", is_whole);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn the_versions_of_a_checkpoint_are_visited_together() {
    let mut bench = Bench::new();
    let t = thread("a");
    let three = |version: u64| ["x", "y", "z"].map(|channel| value(channel, version, plain(&[version as u8]))).to_vec();
    let first = bench.add(&t, None, three(1));
    let second = bench.add(&t, Some(first), three(2));
    let head = at(&t, bench.add(&t, Some(second), three(3)));
    let visited = |last: usize| {
        let mut ordinals = Vec::new();
        let mut visit = |record: &crate::store::record::VersionRecord| {
            ordinals.push(record.channel.ordinal);
            Ok(ordinals.len() < last)
        };
        bench.store.versions(&head, None, 0, &mut visit).unwrap();
        ordinals
    };
    assert_eq!(visited(1), [2, 2, 2]);
    assert_eq!(visited(3), [2, 2, 2]);
    assert_eq!(visited(4), [2, 2, 2, 1, 1, 1]);
    assert_eq!(visited(99), [2, 2, 2, 1, 1, 1, 0, 0, 0]);
}

#[test]
fn forks_are_named_and_what_they_rest_on_is_not_pruned() {
    let mut bench = Bench::new();
    let (t, fork) = (thread("a"), thread("b"));
    let batch = chain(&mut bench.ids, "a", 4);
    let from = batch.checkpoints[1].id;
    bench.store.commit(&batch).unwrap();
    assert_eq!(bench.store.forks(&t).unwrap(), []);
    assert_eq!(bench.store.unprunable(&t, &[]).unwrap(), BTreeSet::from([(1, 3)]));
    bench.add_on(&fork, Some(Parent::Fork(at(&t, from))), vec![value("x", 1, plain(&[1]))]);
    assert_eq!(bench.store.forks(&t).unwrap(), std::slice::from_ref(&fork));
    assert_eq!(bench.store.forks(&fork).unwrap(), []);
    assert_eq!(bench.store.unprunable(&t, &[]).unwrap(), BTreeSet::from([(1, 1), (1, 3)]));
    assert_eq!(bench.store.unprunable(&thread("none"), &[]).unwrap(), BTreeSet::new());
}

#[test]
fn a_backup_may_have_a_name_without_a_folder() {
    let bench = Bench::new();
    let name = PathBuf::from(format!("annals-test-backup-{}.db", std::process::id()));
    let copied = bench.store.backup(&name);
    let is_there = std::fs::remove_file(&name).is_ok();
    assert!(copied.is_ok() && is_there, "{copied:?}");
}

#[test]
fn a_cleared_cache_loses_what_its_labels_name_and_nothing_else() {
    let bench = Bench::new();
    let now = Timestamp::default();
    let places: [&[&str]; 5] = [&[], &["a"], &["a", "b"], &["ab"], &["b"]];
    let key =
        |labels: &[&str]| CacheKey { namespace: labels.iter().map(ToString::to_string).collect(), key: "k".into() };
    let change = |changes: Vec<CacheChange>| bench.store.submit_cache(changes).wait().unwrap();
    let fill = || {
        let value = Encoded { bytes: vec![1], ..Encoded::default() };
        let put = |labels: &&[&str]| CacheChange::Put { key: key(labels), value: value.clone(), now, expires_at: None };
        change(places.iter().map(put).collect());
    };
    let left = || places.map(|labels| bench.store.cached(&[key(labels)], now).unwrap()[0].is_some());
    let labels = |labels: &[&str]| key(labels).namespace;
    fill();
    assert_eq!(left(), [true; 5]);
    change(vec![CacheChange::Clear { namespace: labels(&["a"]) }]);
    assert_eq!(left(), [true, false, false, true, true]);
    fill();
    change(vec![CacheChange::ClearNamespace { namespace: labels(&["a"]) }]);
    assert_eq!(left(), [true, false, true, true, true]);
    assert_eq!(number(&bench.path(), "SELECT count(*) FROM cache WHERE key = 'k'"), 4, "keys are plain");
    change(vec![CacheChange::Clear { namespace: Vec::new() }]);
    assert_eq!(left(), [false; 5]);
}

#[test]
fn the_caches_of_a_writer_are_emptied_past_their_size() {
    let known = |seq: i64| {
        let (id, checksum) = (CheckpointId::from_bytes([0; 16]), [0; 16]);
        Arc::new(Known { seq, id, branch: 1, ordinal: seq, checksum, tasks: Vec::new(), run: None, pruned: false })
    };
    let mut caches = Caches::default();
    let fill = |caches: &mut Caches, count: usize| {
        for n in 0..count as i64 {
            caches.known.insert(n, known(n));
            caches.namespaces.insert((thread(&format!("t{n}")), Namespace::root()), (n, n));
            caches.lists.note(n, 1, 1, Some(ListEnd::default()));
        }
        caches.fresh = true;
        caches.committed();
    };
    let sizes = |caches: &Caches| [caches.known.len(), caches.namespaces.len(), caches.lists.len()];
    for count in [WRITER_CACHE_MAX - 1, WRITER_CACHE_MAX] {
        fill(&mut caches, count);
        assert_eq!((sizes(&caches), caches.fresh), ([count; 3], false));
    }
    fill(&mut caches, WRITER_CACHE_MAX + 1);
    assert_eq!(sizes(&caches), [0; 3]);
}

#[test]
fn past_a_number_of_users_of_a_name_only_that_is_noted() {
    let conn = rusqlite::Connection::open_in_memory().unwrap();
    conn.execute_batch("CREATE TABLE name_user (thread INTEGER, name INTEGER, UNIQUE (thread, name))").unwrap();
    let mut caches = Caches::default();
    for thread in 1..=NAME_USERS_MAX as i64 + 3 {
        caches.thread = thread;
        caches.note_user(&conn, 5).unwrap();
        caches.note_user(&conn, 5).unwrap();
    }
    let mut users = conn.prepare("SELECT thread FROM name_user ORDER BY thread").unwrap();
    let users: Vec<i64> = users.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(users, (0..=NAME_USERS_MAX as i64).collect::<Vec<_>>());
}

#[test]
fn a_timer_that_was_set_after_others_passed_goes_with_the_next_checkpoint() {
    let mut bench = Bench::new();
    let (t, a) = (thread("a"), task(1, "a"));
    let first = bench.add(&t, None, Vec::new());
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, Some(&first));
    let mut batch = Batch::new(t.clone(), Namespace::root(), Some(first));
    let parent = Some(Parent::Local(first));
    batch.checkpoints.push(NewCheckpoint { tasks: vec![a.clone()], parent, ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
    let mark = WriteMark::WakesAt(Timestamp::from_micros(7));
    let asleep = write(-3, "waits", WriteValue::One(plain(&[1]))).with_mark(Some(mark));
    let mut batch = Batch::new(t.clone(), Namespace::root(), Some(id));
    batch.writes.push(writes(id, &a, vec![asleep]));
    batch.timers.push(NewTimer::new(id, a.id, Some(Timestamp::from_micros(7))));
    bench.store.commit(&batch).unwrap();
    assert_eq!(number(&bench.path(), "SELECT count(*) FROM timer"), 1);
    bench.add(&t, Some(id), Vec::new());
    assert_eq!(number(&bench.path(), "SELECT count(*) FROM timer"), 0);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_name_that_another_handle_erased_is_stored_again() {
    let mut bench = Bench::new();
    let other = open(&bench.path());
    bench.add(&thread("stays"), None, Vec::new());
    let first = bench.add(&thread("goes"), None, vec![value("only", 1, plain(&[1]))]);
    _ = other.delete_threads(&[thread("goes")]).unwrap();
    while !other.reclaim().unwrap().is_erased() {}
    assert_eq!(number(&bench.path(), "SELECT count(*) FROM name WHERE text = 'only'"), 0);
    let id = bench.add(&thread("next"), None, vec![value("only", 1, plain(&[1]))]);
    assert!(id != first);
    assert_eq!(number(&bench.path(), "SELECT count(*) FROM name WHERE text = 'only'"), 1);
    assert_eq!(bench.check(), Vec::<String>::new());
    assert_eq!(bench.store.state(&at(&thread("next"), id)).unwrap().channels.len(), 1);
}

#[test]
fn a_change_is_stored_with_the_task_that_made_it() {
    let mut bench = Bench::new();
    let t = thread("a");
    let by = |task, change| Change { task: Some(task), ..change };
    let item = ItemChange { task: Some(2), ..put(0, "text") };
    bench.add(&t, None, vec![by(0, value("x", 1, plain(&[1]))), by(1, list(1, vec![item])), empty("y", 1)]);
    let conn = raw(&bench.path());
    let mut tasks =
        conn.prepare("SELECT n.text, v.task FROM version v JOIN name n ON n.id = v.key ORDER BY 1").unwrap();
    let tasks = tasks.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let tasks: Vec<(String, Option<i64>)> = tasks.map(Result::unwrap).collect();
    assert_eq!(tasks, [("messages".into(), Some(1)), ("x".into(), Some(0)), ("y".into(), None)]);
    assert_eq!(number(&bench.path(), "SELECT task FROM item"), 2);
    assert_eq!(number(&bench.path(), "SELECT count(*) FROM blob"), 0, "short texts stand in their rows");
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_list_that_becomes_a_value_is_deleted_if_it_had_positions() {
    let mut bench = Bench::new();
    let t = thread("a");
    let first = bench.add(&t, None, vec![list(1, Vec::new())]);
    let second = bench.add(&t, Some(first), vec![value("messages", 2, plain(&[2]))]);
    assert_eq!(number(&bench.path(), "SELECT count(*) FROM item"), 0);
    let third = bench.add(&t, Some(second), vec![list(3, vec![put(0, "zero"), put(1, "one")])]);
    let fourth = bench.add(&t, Some(third), vec![value("messages", 4, plain(&[4]))]);
    assert_eq!(number(&bench.path(), "SELECT count(*) FROM item WHERE op = 2 AND ordinal = 3"), 1);
    let fifth = bench.add(&t, Some(fourth), vec![list(5, vec![put(1, "again")])]);
    assert_eq!(bench.items(&at(&t, fifth), ItemRange::All), [(1, "again".into())]);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn tokens_of_a_thread_are_those_of_each_message_of_its_root_once() {
    let mut bench = Bench::new();
    let t = thread("a");
    let says = |position: u64, tokens: Option<u32>| {
        let mut index = ItemIndex::default();
        (index.text, index.input_tokens) = (Some("a text that is too long for its row".into()), tokens);
        let payload = Payload::new(vec![0x80]).with_index(index);
        ItemChange { position, op: ItemOp::Put(Data::New(payload)), task: None }
    };
    let counted = |bench: &Bench| bench.store.thread_info(&t).unwrap().unwrap().counts.unwrap().input_tokens;
    let is_followed = |bench: &Bench, newest: i64| {
        number(&bench.path(), &format!("SELECT newest >= {newest} FROM thread_state WHERE thread = 0")) == 1
    };
    // The table of threads follows the log once in many checkpoints. It completes the row of a thread that it
    // has.
    let none = bench.add(&t, None, Vec::new());
    bench.store.commit(&chain(&mut bench.ids, "b", 130)).unwrap();
    assert!(is_followed(&bench, 131));
    let changes = vec![list(1, vec![says(0, Some(10)), says(1, None), says(2, Some(5))])];
    let first = bench.add(&t, Some(none), changes);
    let second = bench.add(&t, Some(first), vec![list(2, vec![says(0, Some(100)), says(1, Some(3)), remove(2)])]);
    let inner = Namespace::new("inner").unwrap();
    let mut batch = Batch::new(t.clone(), inner, None);
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, Some(&second));
    batch.checkpoints.push(NewCheckpoint { changes: vec![list(1, vec![says(0, Some(1_000))])], ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
    assert_eq!(counted(&bench), 18);
    bench.store.commit(&chain(&mut bench.ids, "c", 130)).unwrap();
    assert!(is_followed(&bench, 134));
    assert_eq!(counted(&bench), 18);
    assert_eq!(bench.check(), Vec::<String>::new());
}
