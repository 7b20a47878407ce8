//! Listings of checkpoints, branches and operations: complete, in their order, and as long as they were asked for.

use super::*;
use crate::base::limits::PAGE_ROWS_MAX;
use crate::store::StoreError;
use crate::store::operation::{
    NewOperation, OperationChange, OperationField, OperationKind, OperationQuery, OperationValue,
};
use crate::store::prune::PruneSpan;
use crate::store::query::CheckpointQuery;
use crate::store::record::CheckpointRecord;

/// A thread with this many checkpoints, each the child of the one before.
fn chain(bench: &mut Bench, t: &ThreadId, count: u64) -> Vec<CheckpointId> {
    let mut all: Vec<CheckpointId> = Vec::new();
    for n in 1..=count {
        let id = bench.add(t, all.last().copied(), vec![value("x", n, plain(&[n as u8]))]);
        all.push(id);
    }
    all
}

fn query(t: &ThreadId, namespace: Option<Namespace>, before: Option<CheckpointId>, limit: usize) -> CheckpointQuery {
    let mut query = CheckpointQuery::new(t.clone(), Namespace::root());
    (query.namespace, query.before, query.limit) = (namespace, before, limit);
    query
}

fn ids(records: &[CheckpointRecord]) -> Vec<CheckpointId> {
    records.iter().map(|record| record.point.checkpoint).collect()
}

#[test]
fn a_listing_beside_pruned_checkpoints_has_the_length_that_was_asked_for() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let all = chain(&mut bench, &t, 20);
    let pruned =
        [PruneSpan::new(1, 1, 3), PruneSpan::new(1, 5, 5), PruneSpan::new(1, 9, 14), PruneSpan::new(1, 17, 17)];
    assert_eq!(bench.store.prune(&t, &pruned).unwrap().checkpoints, 11);
    let is_left = |n: &usize| !pruned.iter().any(|span| (span.first..=span.last).contains(&(*n as u64)));
    let left: Vec<CheckpointId> = (0..20).filter(is_left).rev().map(|n| all[n]).collect();
    assert_eq!(left.len(), 9);
    for namespace in [Some(Namespace::root()), None] {
        for limit in [0, 1, 2, 3, 4, 5, 8, 9, 10, PAGE_ROWS_MAX + 1] {
            let most = if limit == 0 { left.len() } else { limit.min(left.len()) };
            let listed = bench.store.checkpoints(&query(&t, namespace.clone(), None, limit)).unwrap();
            assert_eq!(ids(&listed), left[..most], "{namespace:?} {limit}");
            // The pages one after another.
            let mut pages = Vec::new();
            loop {
                let before = pages.last().copied();
                let page = bench.store.checkpoints(&query(&t, namespace.clone(), before, limit)).unwrap();
                pages.extend(ids(&page));
                if page.is_empty() || limit == 0 {
                    break;
                }
            }
            assert_eq!(pages, left, "{namespace:?} {limit}");
        }
    }
}

#[test]
fn a_follower_reads_pages_beside_pruned_checkpoints() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let all = chain(&mut bench, &t, 12);
    let other = chain(&mut bench, &thread("b"), 4);
    let last = bench.add(&t, all.last().copied(), Vec::new());
    let pruned = [PruneSpan::new(1, 1, 3), PruneSpan::new(1, 6, 7)];
    assert_eq!(bench.store.prune(&t, &pruned).unwrap().checkpoints, 5);
    // By seq, which begins with 1; `None` was pruned.
    let own = |n: u64| Some(all[n as usize]).filter(|_| !(1..=3).contains(&n) && !(6..=7).contains(&n));
    let log =
        (0..12).map(|n| (own(n), true)).chain(other.iter().map(|id| (Some(*id), false))).chain([(Some(last), true)]);
    let log: Vec<(Option<CheckpointId>, bool)> = log.collect();
    for after in 0..19 {
        for limit in [1, 2, 3, 5, 8, 100, PAGE_ROWS_MAX + 1] {
            let rest = log.iter().skip(after);
            let expected: Vec<CheckpointId> = rest.clone().filter_map(|(id, _)| *id).take(limit).collect();
            let found = bench.store.pool.read(|view| view.records_after(after as u64, None, limit)).unwrap();
            assert_eq!(ids(&found), expected, "after {after}, at most {limit}");
            let expected: Vec<CheckpointId> =
                rest.filter(|(_, is_own)| *is_own).filter_map(|(id, _)| *id).take(limit).collect();
            let found = bench.store.pool.read(|view| view.records_after(after as u64, Some(&t), limit)).unwrap();
            assert_eq!(ids(&found), expected, "of the thread after {after}, at most {limit}");
        }
    }
    assert_eq!(bench.store.pool.read(|view| view.records_after(u64::MAX, None, 9)).unwrap(), []);
    assert_eq!(bench.store.pool.read(|view| view.records_after(0, Some(&thread("none")), 9)).unwrap(), []);
}

#[test]
fn a_follower_of_a_log_with_the_page_of_another_place_comes_to_an_end() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    chain(&mut bench, &t, 600);
    let path = bench.path();
    let Bench { folder: _folder, store, .. } = bench;
    drop(store);
    let leaves: Vec<usize> = raw(&path)
        .prepare("SELECT pageno FROM dbstat WHERE name = 'checkpoint' AND pagetype = 'leaf' ORDER BY path")
        .unwrap()
        .query_map([], |row| Ok(row.get::<_, i64>(0)? as usize))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(leaves.len() > 4, "{leaves:?}");
    let mut bytes = std::fs::read(&path).unwrap();
    let page = |leaf: usize| (leaf - 1) * 4_096..leaf * 4_096;
    bytes.copy_within(page(leaves[1]), page(leaves[3]).start);
    std::fs::write(&path, bytes).unwrap();
    let store = SqliteBackend::open(&path, &options()).unwrap();
    let mut after = 0;
    let error = (0..100).find_map(|_| match store.pool.read(|view| view.records_after(after, None, 64)) {
        Ok(page) => {
            after = page.last().unwrap().seq;
            None
        }
        Err(error) => Some(error),
    });
    assert!(matches!(error, Some(StoreError::Corrupt { .. })), "{error:?}");
    assert!(error.unwrap().to_string().contains("out of order"));
}

#[test]
fn a_thread_whose_namespaces_have_equal_ids_is_listed() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let root = chain(&mut bench, &t, 3);
    for (n, path) in [(0, "sub:1"), (2, "sub:2")] {
        let mut batch = Batch::new(t.clone(), Namespace::new(path).unwrap(), None);
        batch.checkpoints.push(checkpoint(root[n]));
        bench.store.commit(&batch).unwrap();
    }
    let listed = bench.store.checkpoints(&query(&t, None, None, 9)).unwrap();
    assert_eq!(ids(&listed), [root[2], root[2], root[1], root[0], root[0]]);
}

#[test]
fn a_listing_to_its_end_notices_that_the_oldest_checkpoints_are_hidden() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let first = chain(&mut bench, &t, 3);
    let fork = bench.add(&t, Some(first[0]), vec![value("y", 9, plain(&[1]))]);
    let last = bench.add(&t, Some(fork), vec![value("y", 10, plain(&[1]))]);
    bench.store.checkpoint_wal().unwrap();
    let index = "CREATE INDEX checkpoint_id ON checkpoint (namespace, prefix)";
    let (path, Bench { folder: _folder, store, .. }) = (bench.path(), bench);
    drop(store);
    raw(&path)
        .execute_batch(&format!(
            "DROP INDEX checkpoint_id; {index} WHERE seq > 3; PRAGMA writable_schema = ON; \
             UPDATE sqlite_schema SET sql = '{index}' WHERE name = 'checkpoint_id'; PRAGMA writable_schema = RESET;"
        ))
        .unwrap();
    let store = open(&path);
    let page = store.checkpoints(&query(&t, Some(Namespace::root()), None, 2)).unwrap();
    assert_eq!(ids(&page), [last, fork], "a page that does not reach the end");
    for limit in [0, 3, 9] {
        let error = store.checkpoints(&query(&t, Some(Namespace::root()), None, limit)).unwrap_err();
        match error {
            StoreError::Corrupt { reason, .. } => {
                assert_eq!(reason, "a checkpoint beside it is missing in the listing")
            }
            error => panic!("{error:?}"),
        }
    }
}

#[test]
fn a_namespace_without_checkpoints_is_damage() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    chain(&mut bench, &t, 1);
    bench.store.checkpoint_wal().unwrap();
    without_triggers(&bench.path()).execute_batch("DELETE FROM checkpoint").unwrap();
    let error = bench.store.checkpoints(&query(&t, Some(Namespace::root()), None, 9)).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    let other = query(&t, Some(Namespace::new("sub").unwrap()), None, 9);
    assert_eq!(bench.store.checkpoints(&other).unwrap(), []);
}

#[test]
fn operations_are_listed_up_to_the_limit() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    chain(&mut bench, &t, 1);
    let fact = |n: u32| Some(OperationValue::Text(n.to_string())).filter(|_| n > 0);
    for n in 1..=5 {
        let mut facts = NewOperation::new(OperationKind::Facts, Timestamp::from_micros(9));
        let field = OperationField::Fact("n".into());
        facts.changes = vec![OperationChange::new(t.clone(), Namespace::root(), field, fact(n - 1), fact(n))];
        assert_eq!(bench.store.operate(&facts).unwrap(), u64::from(n));
    }
    for of in [None, Some(t)] {
        for (before, limit) in
            [(None, 0), (None, 1), (None, 2), (None, 4), (None, 5), (None, 9), (Some(4), 2), (Some(2), 9), (Some(1), 9)]
        {
            let mut query = OperationQuery::default();
            (query.thread, query.before, query.limit) = (of.clone(), before, limit);
            let most = if limit == 0 { 5 } else { limit };
            let expected: Vec<u64> = (1..before.unwrap_or(6)).rev().take(most).collect();
            let found = bench.store.operations(&query).unwrap();
            assert_eq!(found.iter().map(|record| record.id).collect::<Vec<_>>(), expected, "{before:?} {limit}");
        }
    }
}

/// Adds branches with ids that are given, and verifies that the last checkpoint of each is found.
fn assert_branches(branches: &[&[u128]]) {
    let (bench, t) = (Bench::new(), thread("a"));
    let id = |number: u128| CheckpointId::from_bytes(number.to_be_bytes());
    let (first, mut head) = (id(branches[0][0]), None);
    for (n, branch) in branches.iter().enumerate() {
        let mut parent = (n > 0).then_some(first);
        for number in *branch {
            let mut batch = Batch::new(t.clone(), Namespace::root(), head);
            batch.checkpoints.push(NewCheckpoint { parent: parent.map(Parent::Local), ..checkpoint(id(*number)) });
            bench.store.commit(&batch).unwrap();
            (parent, head) = (Some(id(*number)), Some(id(*number)));
        }
    }
    let found = bench.store.branches(&t, &Namespace::root()).unwrap();
    let last: Vec<CheckpointId> = found.iter().map(|branch| branch.last.point.checkpoint).collect();
    let expected: Vec<CheckpointId> = branches.iter().rev().map(|branch| id(*branch.last().unwrap())).collect();
    assert_eq!(last, expected, "{branches:?}");
    for (n, branch) in found.iter().rev().enumerate() {
        assert_eq!(branch.leaves, (n > 0).then_some((1, 0)));
    }
}

#[test]
fn the_last_checkpoint_of_each_branch_is_found() {
    assert_branches(&[&[7]]);
    assert_branches(&[&[1, 2, 3], &[4], &[5, 6]]);
    assert_branches(&[&[1, 2, 3, 4, 5, 6, 7], &[8, 9, 10, 11, 12], &[13], &[14, 15, 16, 17, 18, 19, 20, 21]]);
    // The middle of the ids is among those of a later branch.
    assert_branches(&[&[1, 2], &[3, 4], &[10, 500, 700, 1_000]]);
    assert_branches(&[&[1, 2], &[300, 301, 302], &[310, 320, 330, 340], &[350, 351]]);
    let far = 1_u128 << 120;
    assert_branches(&[&[1, 2], &[far, far + 1, far + 2], &[u128::MAX - 2, u128::MAX - 1]]);
    // The greatest id.
    assert_branches(&[&[1, 2], &[u128::MAX - 1, u128::MAX]]);
    assert_branches(&[&[u128::MAX]]);
    assert_branches(&[&[far, 2 * far], &[2 * far + 1, 2 * far + 2, 3 * far], &[3 * far + 1], &[9 * far, 200 * far]]);
    // Many checkpoints close to one another, between far ones.
    let close: Vec<u128> = (0..40).map(|n| (far << 3) + n).collect();
    assert_branches(&[&[5, far], &close, &[255 * far], &[255 * far + 9]]);
}
