//! The table of threads: how it follows the log, and its damage.

use super::*;
use crate::store::check::Invariant;
use crate::store::error::StoreError;
use crate::store::operation::{NewOperation, OperationChange, OperationField, OperationKind, OperationValue};
use crate::store::threads::ThreadQuery;

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
        "UPDATE thread_state SET newest = 9 WHERE thread = 0",
        "DELETE FROM thread_facet WHERE thread = 3",
        "UPDATE thread_facet SET thread = 1 WHERE thread = 3",
        "INSERT INTO thread_facet (facet, newest, thread) VALUES (1, 2, 3)",
    ];
    for harm in harms {
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
    state(&bench, "a", "[").unwrap();
    chain(&mut bench, "b", 300);
    assert_eq!(number(&bench, "SELECT status IS NULL FROM thread_state WHERE thread = 1"), 1);
    for query in [ThreadQuery::new(), ThreadQuery::new().label("x"), ThreadQuery::new().by_id()] {
        let error = bench.store.list_threads(&query).unwrap_err();
        assert!(matches!(&error, StoreError::Corrupt { place, .. } if place == "fact labels"), "{error}");
    }
    _ = bench.store.delete_threads(&[thread("a")]).unwrap();
    assert_eq!(listed(&bench, &ThreadQuery::new()), ["b"]);
    assert_eq!(bench.check(), Vec::<String>::new());
}
