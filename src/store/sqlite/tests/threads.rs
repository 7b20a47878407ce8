//! The table of threads: how it follows the log, and its damage.

use super::*;
use crate::store::check::Invariant;
use crate::store::error::StoreError;
use crate::store::mark::WriteMark;
use crate::store::operation::{NewOperation, OperationChange, OperationField, OperationKind, OperationValue};
use crate::store::sqlite::index::projection::Projection as _;
use crate::store::sqlite::index::threads::ThreadStates;
use crate::store::threads::ThreadQuery;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn number(bench: &Bench, query: &str) -> i64 {
    raw(&bench.path()).query_row(query, [], |row| row.get(0)).unwrap()
}

fn listed(bench: &Bench, query: &ThreadQuery) -> Vec<String> {
    bench.store.list_threads(query).unwrap().iter().map(|info| info.id().to_string()).collect()
}

/// Adds checkpoints to a thread, one commit for each.
fn chain(bench: &mut Bench, name: &str, count: usize) {
    let mut head = bench.store.head_id(&thread(name), &Namespace::root()).unwrap();
    for _ in 0..count {
        head = Some(bench.add(&thread(name), head, Vec::new()));
    }
}

fn state(bench: &Bench, name: &str, value: &str) -> Result<u64, StoreError> {
    let mut operation = NewOperation::new(OperationKind::Facts, Timestamp::from_micros(9));
    let field = OperationField::Fact("labels".into());
    let after = Some(OperationValue::Text(value.into()));
    operation.changes.push(OperationChange::new(thread(name), Namespace::root(), field, None, after));
    bench.store.operate(&operation)
}

#[test]
fn commits_let_the_table_follow_once_in_many() {
    let mut bench = Bench::new();
    chain(&mut bench, "a", 2);
    chain(&mut bench, "b", 125);
    assert_eq!(number(&bench, "SELECT count(*) FROM thread_state"), 0, "127 checkpoints are the rest of the log");
    chain(&mut bench, "c", 1);
    assert_eq!(number(&bench, "SELECT newest FROM thread_state WHERE thread = 0"), 128);
    assert_eq!(number(&bench, "SELECT count(*) FROM thread_state"), 4, "three threads and the mark");
    chain(&mut bench, "a", 1);
    assert_eq!(
        number(&bench, "SELECT newest FROM thread_state WHERE thread = 1"),
        2,
        "the row of a thread may lag behind"
    );
    assert_eq!(listed(&bench, &ThreadQuery::new()), ["a", "c", "b"]);
    state(&bench, "b", r#"["x"]"#).unwrap();
    assert_eq!(listed(&bench, &ThreadQuery::new().label("x")), ["b"]);
    assert_eq!(number(&bench, "SELECT newest FROM thread_state WHERE thread = 0"), 128);
    assert_eq!(bench.check(), Vec::<String>::new());
    let path = bench.path();
    drop(std::mem::replace(&mut bench.store, open(&path)));
    assert_eq!(listed(&bench, &ThreadQuery::new()), ["a", "c", "b"]);
}

#[test]
fn a_damaged_table_is_cited_and_made_anew() {
    let harms = [
        "DELETE FROM thread_state WHERE thread = 2",
        "UPDATE thread_state SET newest = 1 WHERE thread = 2",
        "UPDATE thread_state SET status = 3 WHERE thread = 2",
        "UPDATE thread_state SET facets = X'00' WHERE thread = 2",
        "UPDATE thread_state SET counts = '[1,0,0,0]' WHERE thread = 2",
        "UPDATE thread_state SET counts = NULL WHERE thread = 2",
        "UPDATE thread_state SET newest = 9 WHERE thread = 0",
        "DELETE FROM thread_facet WHERE thread = 3",
        "UPDATE thread_facet SET thread = 1 WHERE thread = 3",
        "INSERT INTO thread_facet (facet, newest, thread) VALUES (1, 2, 3)",
    ];
    for harm in harms.into_iter().step_by(cases(3, 1)) {
        let mut bench = Bench::new();
        for name in ["a", "b", "c"] {
            chain(&mut bench, name, 60);
        }
        raw(&bench.path()).execute_batch(harm).unwrap();
        let problems = bench.store.check().unwrap().problems;
        assert!(problems.iter().any(|problem| problem.invariant == Invariant::Threads), "{harm}: {problems:?}");
        bench.store.rebuild_threads().unwrap();
        assert_eq!(bench.check(), Vec::<String>::new(), "{harm}");
        assert_eq!(listed(&bench, &ThreadQuery::new()), ["c", "b", "a"], "{harm}");
        raw(&bench.path()).execute_batch(harm).unwrap();
        chain(&mut bench, "d", 300);
        bench.store.rebuild_threads().unwrap();
        assert_eq!(bench.check(), Vec::<String>::new(), "after commits: {harm}");
    }
}

#[test]
fn damage_of_a_thread_refuses_no_commit_of_another() {
    let mut bench = Bench::new();
    chain(&mut bench, "a", 1);
    chain(&mut bench, "b", 1);
    state(&bench, "a", r#"["x"]"#).unwrap();
    without_triggers(&bench.path()).execute_batch("UPDATE operation_change SET after = '['").unwrap();
    chain(&mut bench, "b", 300);
    assert_eq!(number(&bench, "SELECT status IS NULL FROM thread_state WHERE thread = 1"), 1);
    for query in [ThreadQuery::new(), ThreadQuery::new().label("x"), ThreadQuery::new().by_id()] {
        let error = bench.store.list_threads(&query).unwrap_err();
        assert!(
            matches!(&error, StoreError::Corrupt { place, .. } if place.starts_with("operation_change")),
            "{error}"
        );
    }
    _ = bench.store.delete_threads(&[thread("a")]).unwrap();
    assert_eq!(listed(&bench, &ThreadQuery::new()), ["b"]);
    assert_eq!(bench.check(), Vec::<String>::new());
}

/// Returns the steps of SQLite's machine for the commits of the writes of all tasks of a superstep of so many, on a
/// thread whose row is in the table.
fn steps_of_superstep(tasks: usize) -> u64 {
    let mut bench = Bench::new();
    let wide = thread("wide");
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, None);
    let mut batch = Batch::new(wide.clone(), Namespace::root(), None);
    let kind = |n: usize| TaskKind::Push { index: n as u32 };
    let numbered = |n: usize| TaskRecord::new(TaskId::from_bytes((n as u128 + 1).to_be_bytes()), "node", kind(n));
    batch.checkpoints.push(NewCheckpoint { tasks: (0..tasks).map(numbered).collect(), ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
    chain(&mut bench, "busy", 200);
    assert_eq!(number(&bench, "SELECT status FROM thread_state WHERE thread = 1"), 1, "it is in the table");
    let count = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&count);
    bench.store.writer.as_ref().unwrap().on_steps(move || _ = counted.fetch_add(1, Ordering::Relaxed));
    for n in 0..tasks {
        let mut batch = Batch::new(wide.clone(), Namespace::root(), Some(id));
        batch.writes.push(writes(id, &numbered(n), vec![write(0, "x", WriteValue::One(plain(&[1])))]));
        bench.store.commit(&batch).unwrap();
    }
    let steps = count.load(Ordering::Relaxed);
    assert_eq!(bench.check(), Vec::<String>::new());
    steps
}

#[test]
fn the_writes_of_a_task_cost_the_same_beside_a_thousand_and_four_thousand() {
    let (few, many) = (steps_of_superstep(1_000), steps_of_superstep(4_000));
    assert!(few > 1_000 && many < 5 * few, "{few} steps for those of 1,000 tasks, {many} for those of 4,000");
}

#[test]
fn the_status_follows_each_write_that_decides_it() {
    let mut bench = Bench::new();
    let (asks, id) = (thread("asks"), bench.ids.checkpoint(Timestamp::from_micros(1), 0, None));
    let mut batch = Batch::new(asks.clone(), Namespace::root(), None);
    let tasks = [task(1, "a"), task(2, "b")];
    batch.checkpoints.push(NewCheckpoint { tasks: tasks.to_vec(), ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
    chain(&mut bench, "busy", 200);
    let sleeps = |until| {
        let mark = WriteMark::WakesAt(Timestamp::from_micros(until));
        write(-3, "waits", WriteValue::One(plain(&[1]))).with_mark(Some(mark))
    };
    let waits = || write(-3, "waits", WriteValue::One(plain(&[2]))).with_mark(Some(WriteMark::Waits));
    let result = || write(0, "x", WriteValue::One(plain(&[1])));
    let error = || write(-1, "error", WriteValue::One(plain(&[3]))).with_mark(Some(WriteMark::Failed));
    let resume = || write(-4, "given", WriteValue::Null);
    let steps = [
        (0, resume(), "running"),
        (0, sleeps(7), "sleeping"),
        (1, sleeps(8), "sleeping"),
        (0, waits(), "interrupted"),
        (0, sleeps(9), "sleeping"),
        (1, waits(), "interrupted"),
        (0, error(), "failed"),
        (1, waits(), "failed"),
        (0, result(), "interrupted"),
        (1, result(), "running"),
        (1, error(), "running"),
    ];
    for (n, (of, new, expected)) in steps.into_iter().enumerate() {
        let mut batch = Batch::new(asks.clone(), Namespace::root(), Some(id));
        batch.writes.push(writes(id, &tasks[of], vec![new]));
        let wake_at = (expected == "sleeping").then(|| Timestamp::from_micros(7));
        batch.timers.push(crate::store::batch::NewTimer::new(id, tasks[of].id, wake_at));
        bench.store.commit(&batch).unwrap();
        let status = bench.store.thread_info(&asks).unwrap().unwrap().status.as_str();
        assert_eq!(status, expected, "step {n}");
        assert_eq!(bench.check(), Vec::<String>::new(), "the row is that of the log after step {n}");
    }
}

/// Adds a checkpoint to a thread that states the tokens of a model call.
fn spend(bench: &mut Bench, name: &str, tokens: u64) {
    let head = bench.store.head_id(&thread(name), &Namespace::root()).unwrap();
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, head.as_ref());
    let mut batch = Batch::new(thread(name), Namespace::root(), head);
    let metadata = Some(format!(r#"{{"usage":{{"input_tokens":{tokens}}}}}"#));
    batch.checkpoints.push(NewCheckpoint { parent: head.map(Parent::Local), metadata, ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
}

fn input_tokens(bench: &Bench, name: &str) -> u64 {
    bench.store.thread_info(&thread(name)).unwrap().unwrap().counts.unwrap().input_tokens
}

#[test]
fn a_thread_is_counted_in_steps_as_its_rest_grows() {
    let mut bench = Bench::new();
    let mut sum = 0;
    for n in 1..=400 {
        spend(&mut bench, "a", n);
        sum += n;
        if n % 50 == 0 {
            assert_eq!(input_tokens(&bench, "a"), sum, "after {n}");
            assert_eq!(bench.check(), Vec::<String>::new(), "after {n}");
        }
    }
    assert_eq!(number(&bench, "SELECT newest FROM thread_state WHERE thread = 0"), 384);
    // A step of the table that ends within a thread.
    chain(&mut bench, "b", 1_500);
    bench.store.rebuild_threads().unwrap();
    spend(&mut bench, "a", 1);
    assert_eq!(input_tokens(&bench, "a"), sum + 1);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_pruning_that_was_interrupted_leaves_a_thread_that_is_counted_when_it_is_listed() {
    let mut bench = Bench::new();
    for n in 1..=200 {
        spend(&mut bench, "a", n);
    }
    let sum = input_tokens(&bench, "a");
    let spans = [crate::store::prune::PruneSpan::new(1, 0, 150)];
    assert_eq!(bench.store.prune(&thread("a"), &spans).unwrap().checkpoints, 151);
    assert_eq!(input_tokens(&bench, "a"), sum, "stated tokens stay");
    assert_eq!(number(&bench, "SELECT counts IS NULL FROM thread_state WHERE thread = 1"), 0);
    let keys = crate::store::sqlite::keys::Keys::default();
    let conn = raw(&bench.path());
    let caches = crate::store::sqlite::commit::caches::Caches::new(std::sync::Arc::new(keys));
    ThreadStates.prune(&conn, &caches, &thread("a")).unwrap();
    drop(conn);
    assert_eq!(number(&bench, "SELECT counts IS NULL FROM thread_state WHERE thread = 1"), 1);
    assert_eq!(input_tokens(&bench, "a"), sum, "the listing counts the log");
    assert_eq!(bench.check(), Vec::<String>::new(), "a pruning is continued");
    bench.store.prune(&thread("a"), &[crate::store::prune::PruneSpan::new(1, 0, 160)]).unwrap();
    assert_eq!(number(&bench, "SELECT counts IS NULL FROM thread_state WHERE thread = 1"), 0);
    assert_eq!(input_tokens(&bench, "a"), sum);
    assert_eq!(bench.check(), Vec::<String>::new());
}
