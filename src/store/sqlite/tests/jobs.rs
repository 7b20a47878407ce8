//! Jobs of the writer: the limits that they are checked against, and the growth of the log that each is expected to
//! cause.

use super::*;
use crate::base::limits::{CLAIM_RUNS_MAX, DELETED_THREADS_MAX};
use crate::base::{Codec, Encoded, ListDelta, ListRef};
use crate::limits::{COMPACT_PAGES_MAX, INDEX_COST_MAX, RECLAIM_COST_MAX, RECLAIM_ROW_BYTES, THREADS_FOLLOWED_MAX};
use crate::store::batch::CommitChain;
use crate::store::cipher::Key;
use crate::store::lease::LeaseOwner;
use crate::store::log::ClaimQuery;
use crate::store::operation::{NewOperation, OperationChange, OperationKind};
use crate::store::prune::PruneSpan;
use crate::store::side_tables::{CacheChange, CacheKey, KvChange, KvNamespace, KvVector};
use crate::store::sqlite::commit::operation::OperationJob;
use crate::store::sqlite::index::projection::{Projection, ProjectionJob, ProjectionStep};
use crate::store::sqlite::index::search::SearchEntries;
use crate::store::sqlite::index::threads::ThreadStates;
use crate::store::sqlite::keys::KeyChange;
use crate::store::sqlite::remove::erase::{EraseJob, EraseStep};
use crate::store::sqlite::remove::prune::{NamespaceRemoval, PruneJob};
use crate::store::sqlite::side::lease::claim::ClaimJob;
use crate::store::sqlite::sql;
use crate::store::sqlite::writer::job::Job;
use std::sync::Arc;

fn encoded(bytes: usize) -> Encoded {
    Encoded { codec: Codec::MsgPack, bytes: vec![0; bytes] }
}

fn id(byte: u8) -> CheckpointId {
    CheckpointId::from_bytes([byte; 16])
}

fn kv_put(bytes: usize) -> KvChange {
    let namespace = KvNamespace::new(["a"]).unwrap();
    KvChange::Put { namespace, key: "k".into(), value: encoded(bytes), now: Timestamp::default(), expires_at: None }
}

fn kv_delete() -> KvChange {
    KvChange::Delete { namespace: KvNamespace::new(["a"]).unwrap(), key: "k".into() }
}

fn kv_vectors(vectors: Vec<KvVector>) -> KvChange {
    KvChange::SetVectors { namespace: KvNamespace::new(["a"]).unwrap(), key: "k".into(), vectors }
}

fn cache_put(bytes: usize) -> CacheChange {
    let key = CacheKey::new(["a"], "k");
    CacheChange::Put { key, value: encoded(bytes), now: Timestamp::default(), expires_at: None }
}

fn batch() -> Batch {
    Batch::new(thread("a"), Namespace::root(), None)
}

fn of_writes(values: Vec<WriteValue>) -> Job {
    let writes_of = |values: Vec<WriteValue>| {
        let values = (0..).zip(values).map(|(n, value)| write(n, "y", value)).collect();
        writes(id(1), &task(1, "a"), values)
    };
    Job::Log(Batch { writes: vec![writes_of(values)], ..batch() })
}

fn of_checkpoint(changes: Vec<Change>) -> Job {
    Job::Log(Batch { checkpoints: vec![NewCheckpoint { changes, ..checkpoint(id(1)) }], ..batch() })
}

fn bytes(count: usize) -> Payload {
    plain(&vec![0; count])
}

fn erasure(step: EraseStep) -> Job {
    Job::Erase(EraseJob { step, left: Arc::default() })
}

fn step_of(projection: &'static dyn Projection, step: ProjectionStep) -> Job {
    Job::Projection(ProjectionJob::new(projection, step))
}

fn operation(changes: usize) -> Job {
    let change = OperationChange::head(thread("a"), Namespace::root(), None, Some(id(1)));
    let operation = NewOperation {
        changes: vec![change; changes],
        ..NewOperation::new(OperationKind::Rewind, Timestamp::default())
    };
    Job::Operation(OperationJob { operation, id: Arc::default() })
}

fn prune() -> Job {
    let span = PruneSpan { branch: 1, first: 0, last: 1 };
    Job::Prune(PruneJob { thread: thread("a"), span, state: Arc::default() })
}

/// Asks for so many runs.
fn claim(runs: usize) -> Job {
    let owners = vec![LeaseOwner::new([1; 16]); runs];
    let query = ClaimQuery::new(owners, Timestamp::default(), Timestamp::default());
    Job::Claim(ClaimJob { query: Arc::new(query), claims: Arc::default() })
}

/// Verifies that a job with so many bytes of content is estimated at `fixed` bytes more.
fn assert_fixed(fixed: usize, job: impl Fn(usize) -> Job) {
    for pages in 1..4 {
        let to_border = 4_000 * pages - fixed % 4_000;
        let frames = 7 + ((fixed + to_border) / 4_000) as u64;
        assert_eq!(job(to_border).as_ref().frames(), frames, "{fixed} and {to_border}");
        assert_eq!(job(to_border - 1).as_ref().frames(), frames - 1, "{fixed} and {to_border} without one");
    }
}

#[test]
fn a_put_is_estimated_at_its_value_and_256_bytes() {
    assert_fixed(256, |bytes| Job::Kv(vec![kv_put(bytes)]));
    assert_fixed(256 + 256 + 300, |bytes| Job::Kv(vec![kv_put(300), kv_put(bytes)]));
    assert_fixed(512, |bytes| Job::Kv(vec![kv_delete(), kv_put(bytes)]));
    assert_fixed(256, |bytes| Job::Cache(vec![cache_put(bytes)]));
    let clear = || CacheChange::Clear { namespace: Vec::new() };
    assert_fixed(256 + 9 + 512, |bytes| Job::Cache(vec![cache_put(9), clear(), cache_put(bytes)]));
}

#[test]
fn vectors_are_estimated_at_their_fields_and_components() {
    let vector = |field: usize, dims: usize| KvVector::new("f".repeat(field), vec![0.0; dims]);
    assert_fixed(256, |bytes| Job::Kv(vec![kv_vectors(vec![vector(bytes, 0)])]));
    let two = |bytes: usize| vec![vector(10, 1_000), vector(bytes, 3)];
    assert_fixed(256 + 10 + 4_000 + 256 + 12, |bytes| Job::Kv(vec![kv_vectors(two(bytes))]));
}

#[test]
fn writes_are_estimated_at_their_payloads() {
    assert_fixed(64, |count| of_writes(vec![WriteValue::One(bytes(count))]));
    assert_fixed(128, |count| of_writes(vec![WriteValue::Null, WriteValue::One(bytes(count))]));
    assert_fixed(64 + 64 + 70 + 64, |count| of_writes(vec![WriteValue::Items(vec![bytes(70), bytes(count)])]));
    let delta = |count: usize| {
        let of = ListRef::new(Namespace::root(), id(1), "messages");
        let mut delta = ListDelta::new(of);
        (delta.positions, delta.items) = (vec![0, 1], vec![bytes(70), bytes(count)]);
        WriteValue::Delta(Box::new(delta))
    };
    assert_fixed(64 + 256 + 70 + 64 + 64, |count| of_writes(vec![delta(count)]));
}

#[test]
fn checkpoints_are_estimated_at_their_changes_and_writes() {
    assert_fixed(256 + 32, |count| of_checkpoint(vec![value("x", 1, bytes(count))]));
    assert_fixed(256 + 64, |count| of_checkpoint(vec![empty("e", 1), value("x", 1, bytes(count))]));
    let stored = Change { value: ChangeValue::Value(of_write(task(1, "a").id, 0, 0)), ..empty("s", 1) };
    assert_fixed(256 + 64, |count| of_checkpoint(vec![stored.clone(), value("x", 1, bytes(count))]));
    let item =
        |position: u64, count: usize| ItemChange { position, op: ItemOp::Put(Data::New(bytes(count))), task: None };
    assert_fixed(256 + 32 + 50 + 32 + 32, |count| {
        of_checkpoint(vec![list(1, vec![item(0, 50), remove(1), item(2, count)])])
    });
    let consumed = |count: usize| writes(id(1), &task(1, "a"), vec![write(0, "y", WriteValue::One(bytes(count)))]);
    assert_fixed(32 + 256 + 64, |count| {
        let checkpoint =
            NewCheckpoint { consumed: vec![consumed(count)], changes: vec![empty("e", 1)], ..checkpoint(id(1)) };
        Job::Log(Batch { checkpoints: vec![checkpoint], ..batch() })
    });
    assert_fixed(64 + 500 + 256 + 64, |count| {
        let checkpoint = NewCheckpoint { consumed: vec![consumed(count)], ..checkpoint(id(2)) };
        Job::Log(Batch { writes: vec![consumed(500)], checkpoints: vec![checkpoint], ..batch() })
    });
}

#[test]
fn batches_that_are_written_together_are_estimated_together() {
    assert_eq!(Job::Log(batch()).as_ref().frames(), 7);
    assert_fixed(2 * 28_000 + 64 + 1_000 + 64, |count| {
        let of = |count| match of_writes(vec![WriteValue::One(bytes(count))]) {
            Job::Log(batch) => batch,
            _ => unreachable!(),
        };
        Job::Log(Batch { then: vec![batch(), of(count)], ..of(1_000) })
    });
}

#[test]
fn slices_of_background_work_are_estimated_at_their_limit() {
    let pages = |bytes: usize| 7 + bytes as u64 / 4_000;
    let slice = pages(RECLAIM_COST_MAX * RECLAIM_ROW_BYTES);
    let threads = || vec![thread("a")];
    assert_eq!(erasure(EraseStep::Hide(threads())).as_ref().frames(), slice);
    assert_eq!(erasure(EraseStep::Reclaim).as_ref().frames(), slice);
    assert_eq!(prune().as_ref().frames(), slice);
    assert_eq!(erasure(EraseStep::HideAlone(threads())).as_ref().frames(), 7);
    assert_eq!(erasure(EraseStep::Forget(vec![1])).as_ref().frames(), 7);
    assert_eq!(Job::Keys(KeyChange::Data).as_ref().frames(), 7);
    assert_eq!(step_of(&SearchEntries, ProjectionStep::Remove).as_ref().frames(), 7);
    assert_eq!(step_of(&SearchEntries, ProjectionStep::Follow).as_ref().frames(), pages(64 * INDEX_COST_MAX));
    assert_eq!(
        step_of(&ThreadStates, ProjectionStep::Follow).as_ref().frames(),
        pages(256 * THREADS_FOLLOWED_MAX as usize)
    );
    let moved = pages(3 * COMPACT_PAGES_MAX * sql::PAGE_BYTES as usize);
    assert_eq!(Job::Compact(Default::default()).as_ref().frames(), moved);
    let detach = |count: usize| {
        let namespaces = vec![(Namespace::root(), id(1)); count];
        erasure(EraseStep::Detach(NamespaceRemoval { thread: thread("a"), namespaces, pruned: Arc::default() }))
    };
    // 16 namespaces, 8 changes of an operation, or 8 leases are 4,096 bytes.
    assert_eq!([15, 16, 47].map(|count| detach(count).as_ref().frames()), [7, 8, 10]);
    assert_eq!([7, 8, 24].map(|count| operation(count).as_ref().frames()), [7, 8, 10]);
    assert_eq!([7, 8, 24].map(|count| claim(count).as_ref().frames()), [7, 8, 10]);
}

#[test]
fn a_job_is_checked_against_the_limits_of_its_kind() {
    let good = [
        of_checkpoint(vec![empty("x", 1)]),
        Job::Kv(vec![kv_put(1)]),
        Job::Cache(vec![cache_put(1)]),
        Job::Keys(KeyChange::Data),
        Job::Keys(KeyChange::Caller(Key::new([1; 32]).with_id("next"))),
        erasure(EraseStep::Hide(vec![thread("a")])),
        erasure(EraseStep::Reclaim),
        operation(1),
        prune(),
        claim(CLAIM_RUNS_MAX),
    ];
    let Job::Log(twice) = of_checkpoint(vec![empty("x", 1), empty("x", 1)]) else { unreachable!() };
    let bad = [
        Job::Log(twice),
        Job::Kv(vec![KvChange::Delete { namespace: KvNamespace::new(["a"]).unwrap(), key: "k".repeat(100_000) }]),
        Job::Cache(vec![CacheChange::Clear { namespace: vec!["a".repeat(100_000)] }]),
        Job::Keys(KeyChange::Caller(Key::new([1; 32]).with_id("a\0"))),
        erasure(EraseStep::Hide(vec![thread("a"); DELETED_THREADS_MAX + 1])),
        erasure(EraseStep::HideAlone(vec![thread("a"); DELETED_THREADS_MAX + 1])),
        operation(0),
        claim(CLAIM_RUNS_MAX + 1),
    ];
    good.iter().for_each(|job| job.as_ref().validate().unwrap());
    for job in &bad {
        assert!(job.as_ref().validate().is_err(), "{job:?}");
    }
}

#[test]
fn a_batch_alone_has_a_chain_and_checkpoints() {
    let chain = CommitChain::begin();
    let Job::Log(stores) = of_checkpoint(vec![empty("x", 1)]) else { unreachable!() };
    let of_chain = Job::Log(chain.append(stores.clone()));
    assert_eq!(of_chain.as_ref().chain(), Some(&chain));
    assert_eq!(Job::Log(batch()).as_ref().chain(), None);
    assert_eq!(prune().as_ref().chain(), None);
    assert!(of_chain.as_ref().stores_checkpoint());
    assert!(Job::Log(Batch { then: vec![batch(), stores], ..batch() }).as_ref().stores_checkpoint());
    assert!(!of_writes(vec![WriteValue::Null]).as_ref().stores_checkpoint());
    assert!(!prune().as_ref().stores_checkpoint());
}
