//! The rows of threads and of timers: the moments at which the table of threads follows, and the entries of listings.

use super::*;
use crate::store::batch::NewTimer;
use crate::store::error::StoreError;
use crate::store::mark::WriteMark;
use crate::store::operation::{NewOperation, OperationChange, OperationField, OperationKind, OperationValue};
use crate::store::sqlite::index::follow;
use crate::store::sqlite::index::projection::ProjectionStep;
use crate::store::sqlite::index::threads::ThreadStates;
use crate::store::threads::ThreadQuery;

fn number(bench: &Bench, query: &str) -> i64 {
    raw(&bench.path()).query_row(query, [], |row| row.get(0)).unwrap()
}

fn listed(bench: &Bench, query: &ThreadQuery) -> Vec<String> {
    bench.store.list_threads(query).unwrap().iter().map(|info| info.id().to_string()).collect()
}

/// Adds so many checkpoints to a namespace of a thread in one batch, each with this metadata.
fn grow(bench: &mut Bench, name: &str, path: &Namespace, count: usize, metadata: Option<&str>) -> CheckpointId {
    let mut head = bench.store.head_id(&thread(name), path).unwrap();
    let mut batch = Batch::new(thread(name), path.clone(), head);
    for _ in 0..count {
        let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, head.as_ref());
        let metadata = metadata.map(str::to_owned);
        batch.checkpoints.push(NewCheckpoint { parent: head.map(Parent::Local), metadata, ..checkpoint(id) });
        head = Some(id);
    }
    bench.store.commit(&batch).unwrap();
    head.unwrap()
}

fn grow_root(bench: &mut Bench, name: &str, count: usize) -> CheckpointId {
    grow(bench, name, &Namespace::root(), count, None)
}

fn label(bench: &Bench, name: &str, label: &str) {
    let mut operation = NewOperation::new(OperationKind::Facts, Timestamp::from_micros(9));
    let field = OperationField::Fact("labels".into());
    let after = Some(OperationValue::Text(format!("[{label:?}]")));
    operation.changes.push(OperationChange::new(thread(name), Namespace::root(), field, None, after));
    bench.store.operate(&operation).unwrap();
}

fn waiting(mark: WriteMark) -> NewWrite {
    write(-3, "waits", WriteValue::One(plain(&[7]))).with_mark(Some(mark))
}

/// Adds a checkpoint with a task to a namespace of a thread.
fn with_task(bench: &mut Bench, name: &str, path: &Namespace, prepared: &TaskRecord) -> CheckpointId {
    let head = bench.store.head_id(&thread(name), path).unwrap();
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, head.as_ref());
    let mut batch = Batch::new(thread(name), path.clone(), head);
    let tasks = vec![prepared.clone()];
    batch.checkpoints.push(NewCheckpoint { parent: head.map(Parent::Local), tasks, ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
    id
}

fn write_to(bench: &Bench, name: &str, path: &Namespace, of: CheckpointId, by: &TaskRecord, new: NewWrite) {
    let mut batch = Batch::new(thread(name), path.clone(), Some(of));
    batch.writes.push(writes(of, by, vec![new]));
    bench.store.commit(&batch).unwrap();
}

#[test]
fn a_table_that_is_made_anew_follows_the_whole_log() {
    let mut bench = Bench::new();
    grow_root(&mut bench, "a", 5);
    assert_eq!(number(&bench, "SELECT count(*) FROM thread_state"), 0);
    bench.store.rebuild_threads().unwrap();
    assert_eq!(number(&bench, "SELECT newest FROM thread_state WHERE thread = 0"), 5);
    assert_eq!(number(&bench, "SELECT count(*) FROM thread_state"), 2);
    grow_root(&mut bench, "b", 500);
    grow_root(&mut bench, "b", 600);
    bench.store.rebuild_threads().unwrap();
    assert_eq!(number(&bench, "SELECT newest FROM thread_state WHERE thread = 0"), 1_105);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn the_thread_of_the_marked_checkpoint_is_renewed_when_it_changes() {
    let mut bench = Bench::new();
    let (root, ask) = (Namespace::root(), task(1, "ask"));
    grow_root(&mut bench, "b", 127);
    let id = with_task(&mut bench, "a", &root, &ask);
    assert_eq!(number(&bench, "SELECT newest FROM thread_state WHERE thread = 0"), 128);
    assert_eq!(number(&bench, "SELECT newest FROM thread_state WHERE thread = 2"), 128);
    label(&bench, "a", "x");
    assert_eq!(listed(&bench, &ThreadQuery::new().label("x")), ["a"]);
    assert_eq!(bench.check(), Vec::<String>::new());
    write_to(&bench, "a", &root, id, &ask, waiting(WriteMark::Waits));
    let info = bench.store.thread_info(&thread("a")).unwrap().unwrap();
    assert_eq!(info.status.as_str(), "interrupted");
    assert_eq!(listed(&bench, &ThreadQuery::new().status(info.status)), ["a"]);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn writes_in_a_subgraph_leave_the_row_of_their_thread_as_it_is() {
    let mut bench = Bench::new();
    let (sub, ask) = (Namespace::new("sub").unwrap(), task(1, "ask"));
    with_task(&mut bench, "a", &Namespace::root(), &task(2, "outer"));
    let id = with_task(&mut bench, "a", &sub, &ask);
    grow_root(&mut bench, "b", 126);
    let row = "SELECT newest FROM thread_state WHERE thread = 1";
    assert_eq!(number(&bench, row), 1);
    write_to(&bench, "a", &sub, id, &ask, waiting(WriteMark::Waits));
    assert_eq!(number(&bench, row), 1);
    assert_eq!(listed(&bench, &ThreadQuery::new()), ["b", "a"]);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn the_tokens_of_a_subgraph_are_counted_with_those_of_its_thread() {
    let mut bench = Bench::new();
    let sub = Namespace::new("sub").unwrap();
    let usage = |tokens: u64| format!(r#"{{"usage":{{"input_tokens":{tokens}}}}}"#);
    let spent = |bench: &Bench| bench.store.thread_info(&thread("a")).unwrap().unwrap().counts.unwrap().input_tokens;
    grow(&mut bench, "a", &Namespace::root(), 1, Some(&usage(5)));
    grow_root(&mut bench, "b", 127);
    assert_eq!(number(&bench, "SELECT newest FROM thread_state WHERE thread = 1"), 1);
    grow(&mut bench, "a", &sub, 2, Some(&usage(7)));
    assert_eq!(spent(&bench), 19, "two are after the mark");
    grow_root(&mut bench, "b", 126);
    assert_eq!(number(&bench, "SELECT newest FROM thread_state WHERE thread = 0"), 256);
    assert_eq!(spent(&bench), 19);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_thread_whose_newest_checkpoint_is_still_to_be_followed_has_no_facets() {
    let mut bench = Bench::new();
    grow_root(&mut bench, "a", 500);
    grow_root(&mut bench, "a", 600);
    let writer = bench.store.writer.as_ref().unwrap();
    for (step, behind, rows, facets) in
        [(ProjectionStep::Clear, 1_100, 1, 0), (ProjectionStep::Follow, 76, 2, 0), (ProjectionStep::Follow, 0, 2, 2)]
    {
        assert_eq!(follow::step(writer, &ThreadStates, step).unwrap(), behind);
        assert_eq!(number(&bench, "SELECT count(*) FROM thread_state"), rows);
        assert_eq!(number(&bench, "SELECT count(*) FROM thread_facet"), facets, "{behind} are behind");
        assert_eq!(bench.check(), Vec::<String>::new());
    }
    assert_eq!(number(&bench, "SELECT status FROM thread_state WHERE thread = 1"), 0);
}

#[test]
fn the_last_activity_of_a_thread_is_that_of_its_newest_checkpoint() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let mut ids: Vec<CheckpointId> = Vec::new();
    for n in 1..=2 {
        let head = ids.last().copied();
        let id = bench.ids.checkpoint(Timestamp::from_micros(n), 0, head.as_ref());
        let mut batch = Batch::new(t.clone(), Namespace::root(), head);
        let parent = head.map(Parent::Local);
        batch.checkpoints.push(NewCheckpoint::new(id, parent, 0, Source::Loop, Timestamp::from_micros(100 * n)));
        bench.store.commit(&batch).unwrap();
        ids.push(id);
    }
    let updated = |bench: &Bench| {
        let info = bench.store.thread_info(&t).unwrap().unwrap();
        let listed = [ThreadQuery::new(), ThreadQuery::new().by_id()].map(|query| bench.store.list_threads(&query));
        let listed = listed.map(|found| found.unwrap()[0].updated_at.as_micros());
        (info.head(), info.updated_at.as_micros(), listed)
    };
    assert_eq!(updated(&bench), (ids[1], 200, [200, 200]));
    let mut rewind = NewOperation::new(OperationKind::Rewind, Timestamp::from_micros(9));
    rewind.changes = vec![OperationChange::head(t.clone(), Namespace::root(), Some(ids[1]), Some(ids[0]))];
    bench.store.operate(&rewind).unwrap();
    assert_eq!(updated(&bench), (ids[0], 200, [200, 200]));
}

#[test]
fn an_entry_that_is_not_one_of_its_row_ends_a_listing() {
    let moved = "UPDATE thread_facet SET newest = newest + 1000 WHERE thread = 1";
    let of_another = "INSERT INTO thread_facet (facet, newest, thread) SELECT f.facet, s.newest, s.thread \
                      FROM thread_facet f, thread_state s WHERE s.thread = 1 AND f.thread = 2 \
                      AND f.facet NOT IN (SELECT facet FROM thread_facet WHERE thread = 1)";
    for (harm, query) in [(moved, ThreadQuery::new()), (of_another, ThreadQuery::new().label("x"))] {
        let mut bench = Bench::new();
        for name in ["a", "b", "c"] {
            grow_root(&mut bench, name, 50);
        }
        label(&bench, "b", "x");
        bench.store.rebuild_threads().unwrap();
        bench.store.list_threads(&query).unwrap();
        raw(&bench.path()).execute_batch(harm).unwrap();
        let error = bench.store.list_threads(&query).unwrap_err();
        assert!(
            matches!(&error, StoreError::Corrupt { place, .. } if place == "thread_facet of thread 1"),
            "{harm}: {error}"
        );
    }
}

#[test]
fn a_page_of_threads_goes_on_after_the_last_one_in_the_log_and_in_the_table() {
    for is_followed in [false, true] {
        let mut bench = Bench::new();
        for name in ["a", "b", "c"] {
            grow_root(&mut bench, name, 1);
        }
        if is_followed {
            bench.store.rebuild_threads().unwrap();
        }
        let (mut query, mut found) = (ThreadQuery::new().limit(1), Vec::new());
        loop {
            let page = bench.store.list_threads(&query).unwrap();
            let Some(last) = page.last() else { break };
            found.extend(page.iter().map(|info| info.id().to_string()));
            query = ThreadQuery::new().limit(1).after(last);
        }
        assert_eq!(found, ["c", "b", "a"]);
    }
}

/// A thread whose two tasks sleep, and its head.
fn asleep(bench: &mut Bench, name: &str) -> CheckpointId {
    let (of, tasks) = (thread(name), [task(1, "a"), task(2, "b")]);
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, None);
    let mut batch = Batch::new(of.clone(), Namespace::root(), None);
    batch.checkpoints.push(NewCheckpoint { tasks: tasks.to_vec(), ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
    for by in &tasks {
        let mut batch = Batch::new(of.clone(), Namespace::root(), Some(id));
        batch.writes.push(writes(id, by, vec![waiting(WriteMark::WakesAt(Timestamp::from_micros(7)))]));
        batch.timers.push(NewTimer::new(id, by.id, Some(Timestamp::from_micros(7))));
        bench.store.commit(&batch).unwrap();
    }
    id
}

#[test]
fn a_page_of_timers_has_as_many_as_were_asked_for() {
    let mut bench = Bench::new();
    for name in ["a", "b"] {
        asleep(&mut bench, name);
    }
    for (limit, count) in [(0, 0), (1, 1), (3, 3), (4, 4), (9, 4)] {
        assert_eq!(bench.store.timers(None, limit).unwrap().len(), count, "{limit}");
        let due = bench.store.timers(Some(Timestamp::from_micros(7)), limit).unwrap();
        assert_eq!(due.len(), count, "{limit}");
    }
    assert_eq!(bench.store.timers(Some(Timestamp::from_micros(6)), 9).unwrap(), []);
}

#[test]
fn a_checkpoint_that_was_continued_and_is_the_head_again_misses_no_timer() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let id = asleep(&mut bench, "a");
    assert_eq!(bench.store.timers_of(&t, &Namespace::root()).unwrap().len(), 2);
    let next = bench.add(&t, Some(id), Vec::new());
    assert_eq!(bench.store.timers_of(&t, &Namespace::root()).unwrap(), []);
    let mut rewind = NewOperation::new(OperationKind::Rewind, Timestamp::from_micros(9));
    rewind.changes = vec![OperationChange::head(t.clone(), Namespace::root(), Some(next), Some(id))];
    bench.store.operate(&rewind).unwrap();
    assert_eq!(bench.store.timers_of(&t, &Namespace::root()).unwrap(), []);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn an_entry_of_the_index_that_is_out_of_its_order_hides_no_timer() {
    let mut bench = Bench::new();
    for (name, wake_at) in [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5), ("f", 100)] {
        let by = task(1, "sleeps");
        let id = with_task(&mut bench, name, &Namespace::root(), &by);
        let mut batch = Batch::new(thread(name), Namespace::root(), Some(id));
        batch.writes.push(writes(id, &by, vec![waiting(WriteMark::WakesAt(Timestamp::from_micros(7)))]));
        batch.timers.push(NewTimer::new(id, by.id, Some(Timestamp::from_micros(wake_at))));
        bench.store.commit(&batch).unwrap();
    }
    let due = Some(Timestamp::from_micros(50));
    assert_eq!(bench.store.timers(due, 9).unwrap().len(), 5);
    let path = bench.path();
    let Bench { folder: _folder, store, .. } = bench;
    drop(store);
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'timer_wake'";
    let root: i64 = raw(&path).query_row(root, [], |row| row.get(0)).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let page = &mut bytes[(root as usize - 1) * 4_096..];
    assert_eq!((page[0], page[4]), (10, 6), "a leaf of an index with six entries");
    // The second one comes first, and then the last one, at which a search for due ones ends.
    let cells: Vec<[u8; 2]> = (0..6).map(|n| [page[8 + 2 * n], page[9 + 2 * n]]).collect();
    for (n, of) in [1, 5, 0, 2, 3, 4].into_iter().enumerate() {
        page[8 + 2 * n..10 + 2 * n].copy_from_slice(&cells[of]);
    }
    std::fs::write(&path, bytes).unwrap();
    let store = open(&path);
    let error = store.timers(due, 9).unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("timer"), "{error}");
}
