//! The lease that each commit of a run names.

use super::*;
use crate::base::{CheckpointId, Namespace, TaskId, ThreadId, Timestamp};
use crate::store::Source;
use crate::store::batch::NewCheckpoint;
use crate::store::record::{TaskKind, TaskRecord};

const LEASE: Duration = Duration::from_secs(30);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn owner() -> LeaseOwner {
    LeaseOwner::new([7; 16])
}

/// A batch without a checkpoint.
fn writes() -> Batch {
    Batch::new(ThreadId::new("t").unwrap(), Namespace::root(), None)
}

/// A batch with a checkpoint, made at 5 s, that leaves so many tasks to run.
fn leaves(tasks: usize) -> Batch {
    let mut checkpoint = NewCheckpoint::new(CheckpointId::from_bytes([1; 16]), None, 0, Source::Loop, at(5));
    let task = || TaskRecord::new(TaskId::default(), "node", TaskKind::Push { index: 0 });
    checkpoint.tasks = std::iter::repeat_with(task).take(tasks).collect();
    let mut batch = writes();
    batch.checkpoints.push(checkpoint);
    batch
}

/// The same of a subgraph.
fn inside(tasks: usize) -> Batch {
    let mut batch = leaves(tasks);
    batch.namespace = Namespace::new("inner").unwrap();
    batch
}

fn claim() -> Option<NewLease> {
    Some(NewLease::claim(owner(), at(5), at(35)))
}

fn named(lease: &mut RunLease, mut batch: Batch, is_last: bool) -> Option<NewLease> {
    lease.name_in(&mut batch, is_last);
    batch.lease
}

#[test]
fn the_first_commit_claims_the_thread_and_the_last_one_releases_it() {
    let mut lease = RunLease::new(owner(), Some(LEASE), false);
    assert!(!lease.is_held() && !lease.is_unreleased(true));
    assert_eq!(named(&mut lease, leaves(1), false), claim());
    assert!(lease.is_held() && lease.is_unreleased(false));
    assert_eq!(named(&mut lease, leaves(2), false), Some(NewLease::hold(owner())));
    assert_eq!(named(&mut lease, writes(), false), Some(NewLease::hold(owner())));
    assert_eq!(named(&mut lease, leaves(0), false), Some(NewLease::release(owner())));
    assert!(!lease.is_held() && !lease.is_unreleased(false));
    // The commit with the release may be the one that was refused.
    assert!(lease.is_unreleased(true));
    lease.end();
    assert!(!lease.is_held() && !lease.is_unreleased(true));
}

#[test]
fn a_commit_that_is_the_last_one_though_tasks_are_left_releases_the_thread() {
    let mut lease = RunLease::new(owner(), Some(LEASE), true);
    assert!(lease.is_held());
    assert_eq!(named(&mut lease, leaves(1), true), Some(NewLease::release(owner())));
    assert!(!lease.is_held());
}

#[test]
fn the_only_commit_of_a_run_takes_no_lease() {
    for (batch, is_last) in [(leaves(0), false), (leaves(1), true)] {
        let mut lease = RunLease::new(owner(), Some(LEASE), false);
        assert_eq!(named(&mut lease, batch, is_last), Some(NewLease::require_unclaimed(owner(), at(5))));
        assert!(!lease.is_held() && !lease.is_unreleased(false));
    }
}

#[test]
fn a_run_without_a_lease_asks_once_whether_the_thread_is_free() {
    let mut lease = RunLease::new(owner(), None, false);
    assert_eq!(named(&mut lease, writes(), false), None);
    assert_eq!(named(&mut lease, leaves(1), false), Some(NewLease::require_unclaimed(owner(), at(5))));
    assert!(!lease.is_held());
    assert_eq!(named(&mut lease, leaves(1), false), None);
    assert_eq!(named(&mut lease, leaves(0), true), None);
}

#[test]
fn a_subgraph_neither_ends_the_lease_nor_needs_one_of_its_own() {
    let mut lease = RunLease::new(owner(), Some(LEASE), false);
    assert_eq!(named(&mut lease, inside(0), false), claim());
    assert_eq!(named(&mut lease, inside(0), false), Some(NewLease::hold(owner())));
    // Of several batches in one commit the last one of the outermost graph decides.
    let mut goes_on = leaves(0);
    goes_on.then = vec![leaves(1), inside(0)];
    assert_eq!(named(&mut lease, goes_on, false), Some(NewLease::hold(owner())));
    let mut ends = leaves(1);
    ends.then = vec![leaves(0), inside(1)];
    assert_eq!(named(&mut lease, ends, false), Some(NewLease::release(owner())));
}
