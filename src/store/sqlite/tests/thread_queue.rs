//! The queue of changed threads, their counts, and the commits that the table of threads follows later.

use super::*;
use crate::limits::WRITER_CACHE_MAX;
use crate::store::counts::ThreadCounts;
use crate::store::error::StoreError;
use crate::store::lease::LeaseOwner;
use crate::store::log::{ClaimQuery, Claims};
use crate::store::sqlite::commit::caches::Caches;
use crate::store::sqlite::index::threads::after_checkpoints;
use crate::store::sqlite::index::threads::unfollowed::Unfollowed;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::rows::pack::ValueColumn;
use crate::store::sqlite::side::lease::claim::ClaimJob;
use crate::store::sqlite::writer::job::JobRef;
use crate::store::threads::ThreadQuery;
use std::sync::Arc;

/// Adds a checkpoint with a task to a thread, whose run has a priority in the queue of the graph `work`.
fn enqueue(bench: &mut Bench, name: &str, priority: Option<u8>) {
    let head = bench.store.head_id(&thread(name), &Namespace::root()).unwrap();
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, head.as_ref());
    let priority = priority.map_or_else(String::new, |priority| format!(r#", "priority": {priority}"#));
    let metadata = Some(format!(r#"{{"graph": "work"{priority}}}"#));
    let (parent, tasks) = (head.map(Parent::Local), vec![task(1, "x")]);
    let mut batch = Batch::new(thread(name), Namespace::root(), head);
    batch.checkpoints.push(NewCheckpoint { parent, tasks, metadata, ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
}

fn names(bench: &Bench, query: &ThreadQuery) -> Vec<String> {
    bench.store.list_threads(query).unwrap().iter().map(|info| info.id().to_string()).collect()
}

fn counts(bench: &Bench, name: &str) -> ThreadCounts {
    let query = ThreadQuery::new();
    let listed = bench.store.list_threads(&query).unwrap();
    let info = listed.into_iter().find(|info| info.id() == &thread(name)).unwrap();
    info.counts.unwrap()
}

fn with_tokens(position: u64, tokens: Option<u32>) -> ItemChange {
    let mut index = ItemIndex::default();
    (index.kind, index.input_tokens) = (Some("ai".into()), tokens);
    index.text = Some(format!("a text at position {position} that is too long for its row"));
    let payload = Payload::new(vec![0x80]).with_index(index);
    ItemChange { position, op: ItemOp::Put(Data::New(payload)), task: None }
}

/// A queue of which some threads are in the table, and others have checkpoints after the mark. Its order is
/// that of [`ORDER`].
fn queue() -> Bench {
    let mut bench = Bench::new();
    for (name, priority) in
        [("a", Some(0)), ("b", Some(9)), ("c", Some(0)), ("d", Some(9)), ("e", Some(5)), ("plain", None)]
    {
        enqueue(&mut bench, name, priority);
    }
    bench.store.rebuild_threads().unwrap();
    for (name, priority) in [("f", Some(9)), ("late", None), ("g", Some(0)), ("h", Some(5)), ("c", Some(0))] {
        enqueue(&mut bench, name, priority);
    }
    bench
}

const ORDER: [&str; 10] = ["b", "d", "f", "e", "h", "a", "plain", "late", "g", "c"];

#[test]
fn a_queue_is_in_the_order_of_priorities_and_then_of_the_oldest_activity() {
    let bench = queue();
    let query = || ThreadQuery::new().queue("work");
    let all = bench.store.list_threads(&query()).unwrap();
    assert_eq!(all.iter().map(|info| info.id().to_string()).collect::<Vec<_>>(), ORDER);
    for (at, last) in all.iter().enumerate() {
        assert_eq!(names(&bench, &query().after(last)), ORDER[at + 1..], "after {}", ORDER[at]);
        let next = ORDER.iter().skip(at + 1).take(1).copied().collect::<Vec<_>>();
        assert_eq!(names(&bench, &query().after(last).limit(1)), next, "one after {}", ORDER[at]);
    }
    bench.store.rebuild_threads().unwrap();
    assert_eq!(names(&bench, &query()), ORDER, "all of them are in the table");
    assert_eq!(names(&bench, &query().limit(4)), ORDER[..4]);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_page_of_a_queue_reads_no_thread_of_the_pages_before() {
    let bench = queue();
    let query = || ThreadQuery::new().queue("work");
    let all = bench.store.list_threads(&query()).unwrap();
    // An entry before that of thread 2 in the queue is not one of its row.
    let harm = "INSERT OR IGNORE INTO thread_facet (facet, newest, thread) \
                SELECT facet, newest - 1, thread FROM thread_facet WHERE thread = 2";
    raw(&bench.path()).execute_batch(harm).unwrap();
    let error = bench.store.list_threads(&query()).unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt { place, .. } if place == "thread_facet of thread 2"), "{error}");
    for (at, last) in all.iter().enumerate() {
        assert_eq!(names(&bench, &query().after(last)), ORDER[at + 1..], "after {}", ORDER[at]);
    }
}

#[test]
fn a_listing_has_the_messages_of_the_head_wherever_the_table_is() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let other = ItemChange { position: 0, op: ItemOp::Put(Data::New(plain(&[1]))), task: None };
    let others = Change { channel: "numbers".into(), version: 1, value: ChangeValue::Items(vec![other]), task: None };
    let first = vec![list(1, vec![put(0, "one"), put(1, "two")]), others, value("city", 1, plain(&[2]))];
    let first = bench.add(&t, None, first);
    assert_eq!(counts(&bench, "a").messages, 2);
    bench.store.rebuild_threads().unwrap();
    assert_eq!(counts(&bench, "a").messages, 2);
    bench.add(&t, Some(first), vec![list(2, vec![put(2, "three")])]);
    assert_eq!(counts(&bench, "a").messages, 3, "the row of the table is older");
    bench.store.rebuild_threads().unwrap();
    assert_eq!(counts(&bench, "a").messages, 3);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn the_tokens_of_stored_values_are_known_from_the_first_one_that_was_noted() {
    let mut unfollowed = Unfollowed::default();
    assert_eq!(unfollowed.tokens(ValueColumn::Payload(5)), None);
    let mut index = ItemIndex::default();
    (index.input_tokens, index.output_tokens) = (Some(3), Some(4));
    unfollowed.note_payload(5, Some(&index));
    unfollowed.note_payload(7, None);
    let tokens = ThreadCounts { input_tokens: 3, output_tokens: 4, ..ThreadCounts::default() };
    assert_eq!(unfollowed.tokens(ValueColumn::Payload(5)), Some(Some(tokens)));
    assert_eq!(unfollowed.tokens(ValueColumn::Payload(7)), Some(None));
    assert_eq!(unfollowed.tokens(ValueColumn::Payload(4)), None, "it was stored before");
    assert_eq!(unfollowed.tokens(ValueColumn::Null), Some(None));
}

#[test]
fn tokens_that_are_known_are_dropped_past_a_number_of_them() {
    let mut unfollowed = Unfollowed::default();
    let mut index = ItemIndex::default();
    index.input_tokens = Some(1);
    let known = ThreadCounts { input_tokens: 1, ..ThreadCounts::default() };
    for id in 1..=WRITER_CACHE_MAX as i64 {
        unfollowed.note_payload(id, Some(&index));
        if id == 1 || id == WRITER_CACHE_MAX as i64 {
            unfollowed.bound();
            assert_eq!(unfollowed.tokens(ValueColumn::Payload(1)), Some(Some(known)), "{id} are retained");
        }
    }
    unfollowed.note_payload(WRITER_CACHE_MAX as i64 + 1, Some(&index));
    unfollowed.bound();
    assert_eq!(unfollowed.tokens(ValueColumn::Payload(1)), None);
}

#[test]
fn the_checkpoints_after_the_mark_are_known_if_this_handle_has_written_them_all() {
    let mut unfollowed = Unfollowed::default();
    for (seq, namespace) in [(3, 1), (4, 2), (5, 1), (7, 1)] {
        unfollowed.note_checkpoint(seq, namespace, ThreadCounts::default());
    }
    assert_eq!(unfollowed.all_between(2, 5), Some(vec![(3, 1), (4, 2), (5, 1)]));
    assert_eq!(unfollowed.all_between(3, 4), Some(vec![(4, 2)]));
    assert_eq!(unfollowed.all_between(5, 5), Some(Vec::new()));
    for (mark, last) in [(1, 5), (2, 6), (2, 7), (i64::MAX, 5)] {
        assert_eq!(unfollowed.all_between(mark, last), None, "another handle has written one after {mark}");
    }
}

/// Adds so many checkpoints to a thread.
fn grow(bench: &mut Bench, name: &str, count: usize) {
    let mut head = bench.store.head_id(&thread(name), &Namespace::root()).unwrap();
    let mut batch = Batch::new(thread(name), Namespace::root(), head);
    for _ in 0..count {
        let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, head.as_ref());
        batch.checkpoints.push(NewCheckpoint { parent: head.map(Parent::Local), ..checkpoint(id) });
        head = Some(id);
    }
    bench.store.commit(&batch).unwrap();
}

#[test]
fn the_table_forgets_the_checkpoints_that_it_follows_and_those_alone() {
    const FOLLOWED: i64 = 100;
    let mut bench = Bench::new();
    grow(&mut bench, "a", FOLLOWED as usize);
    let mut caches = Caches::new(Arc::new(Keys::default()));
    caches.unfollowed.note_payload(1, None);
    let is_known = |caches: &Caches| caches.unfollowed.tokens(ValueColumn::Payload(1)).is_some();
    for seq in 1..=FOLLOWED + WRITER_CACHE_MAX as i64 {
        caches.unfollowed.note_checkpoint(seq, 1, ThreadCounts::default());
    }
    after_checkpoints(&raw(&bench.path()), &mut caches, 1_000).unwrap();
    caches.unfollowed.bound();
    assert!(is_known(&caches), "those that it follows make room for others");
    caches.unfollowed.note_checkpoint(1, 1, ThreadCounts::default());
    caches.unfollowed.bound();
    assert!(!is_known(&caches), "the others were retained");
}

#[test]
fn the_table_follows_a_checkpoint_of_which_the_tokens_are_known_without_a_read_of_its_messages() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let first = bench.add(&t, None, Vec::new());
    grow(&mut bench, "b", 127);
    bench.add(&t, Some(first), vec![list(1, vec![with_tokens(0, Some(70)), with_tokens(1, None)])]);
    let of_a = |column: &str| -> String {
        let row = format!("SELECT {column} FROM thread_state WHERE thread = 1");
        raw(&bench.path()).query_row(&row, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(of_a("counts"), "[0,0,0,0]");
    let harm = "UPDATE payload SET xxh3 = xxh3 + 1 WHERE input_tokens = 70";
    assert_eq!(without_triggers(&bench.path()).execute(harm, []).unwrap(), 1);
    let mut caches = Caches::new(Arc::new(Keys::default()));
    let known = ThreadCounts { input_tokens: 70, ..ThreadCounts::default() };
    caches.unfollowed.note_checkpoint(129, 1, known);
    after_checkpoints(&raw(&bench.path()), &mut caches, 256).unwrap();
    assert_eq!(of_a("counts"), "[2,70,0,0]");
}

/// Asks for two runs of a graph.
fn asks(owner: u8, graph: &str) -> ClaimQuery {
    let owners = [LeaseOwner::new([owner; 16]), LeaseOwner::new([owner + 1; 16])];
    ClaimQuery::new(owners, Timestamp::from_micros(10), Timestamp::from_micros(20)).queue(graph, [])
}

fn claimed(claims: &Claims) -> Vec<&str> {
    claims.runs.iter().map(|run| run.info.id().as_str()).collect()
}

#[test]
fn a_claim_takes_the_write_lock_only_for_a_run_that_is_due() {
    let bench = queue();
    let other = raw(&bench.path());
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(bench.store.claim(&asks(1, "none")).unwrap().runs.is_empty());
    other.execute_batch("ROLLBACK").unwrap();
    for (n, expected) in (1..).step_by(2).zip(ORDER.chunks(2)) {
        assert_eq!(claimed(&bench.store.claim(&asks(n, "work")).unwrap()), expected);
    }
    assert!(bench.store.claim(&asks(88, "work")).unwrap().runs.is_empty(), "all leases are live");
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(bench.store.claim(&asks(90, "work")).unwrap().runs.is_empty(), "the last claim has found none");
    other.execute_batch("ROLLBACK").unwrap();
    assert!(bench.check().is_empty());
}

#[test]
fn claims_of_one_group_take_different_runs() {
    let bench = queue();
    let jobs = [1, 3].map(|owner| ClaimJob { query: Arc::new(asks(owner, "work")), claims: Arc::default() });
    let writer = bench.store.writer.as_ref().unwrap();
    let outcomes = writer.write_as_group(&jobs.each_ref().map(JobRef::Claim));
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    for (job, expected) in jobs.iter().zip(ORDER.chunks(2)) {
        assert_eq!(claimed(&job.claims.lock()), expected);
    }
}
