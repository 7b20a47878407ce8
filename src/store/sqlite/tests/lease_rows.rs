//! Leases beside other handles, and the rows of their groups.

use super::*;
use crate::store::StoreError;
use crate::store::lease::{LeaseGroup, LeaseOwner, NewLease};

fn moment(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn owner(byte: u8) -> LeaseOwner {
    LeaseOwner::new([byte; 16])
}

/// A claim at `now` for ten microseconds.
fn claim(byte: u8, now: i64) -> NewLease {
    NewLease::claim(owner(byte), moment(now), moment(now + 10))
}

/// Makes a thread with a checkpoint, with a lease or without one.
fn make(bench: &mut Bench, name: &str, lease: Option<NewLease>) -> Result<Batch, StoreError> {
    let mut batch = Batch::new(thread(name), Namespace::root(), None);
    batch.checkpoints.push(checkpoint(bench.ids.checkpoint(Timestamp::default(), 0, None)));
    batch.lease = lease;
    bench.store.commit(&batch).map(|()| batch)
}

fn change(store: &SqliteBackend, name: &str, lease: NewLease) -> Result<(), StoreError> {
    store.commit(&Batch::of_lease(thread(name), lease))
}

fn group_rows(bench: &Bench) -> i64 {
    raw(&bench.path()).query_row("SELECT count(*) FROM lease_group", [], |row| row.get(0)).unwrap()
}

fn is_full(result: Result<(), StoreError>, name: &str) {
    match result {
        Err(StoreError::LeaseLimit { group, .. }) => assert_eq!(group, name),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lease_that_another_handle_took_over_is_lost() {
    let mut bench = Bench::new();
    make(&mut bench, "a", Some(claim(1, 0))).unwrap();
    change(&bench.store, "a", NewLease::renew(owner(1), moment(12))).unwrap();
    let other = open(&bench.path());
    let path = bench.folder.path().join("x.db");
    assert_eq!(other.lease(&thread("a")).unwrap().unwrap().expires_at, Some(moment(12)));
    // A connection of another program writes as another process does.
    let conn = raw(&path);
    let taken = bench.folder.path().join("taken.db");
    bench.store.backup(&taken).unwrap();
    let by_other = open(&taken);
    change(&by_other, "a", claim(2, 20)).unwrap();
    drop(by_other);
    let row = "epoch, owner, process, expires_at, recoveries, xxh3";
    conn.execute_batch(&format!(
        "ATTACH '{}' AS taken; BEGIN IMMEDIATE; UPDATE lease SET ({row}) = (SELECT {row} FROM taken.lease); COMMIT;",
        taken.display()
    ))
    .unwrap();
    let renewed = change(&bench.store, "a", NewLease::renew(owner(1), moment(90)));
    assert!(matches!(renewed, Err(StoreError::LeaseLost { .. })), "{renewed:?}");
    let lease = bench.store.lease(&thread("a")).unwrap().unwrap();
    assert_eq!((lease.epoch, lease.expires_at, lease.recoveries), (2, Some(moment(30)), 1));
}

#[test]
fn a_batch_of_another_owner_is_refused_and_one_that_is_stored_is_not() {
    let mut bench = Bench::new();
    let stored = make(&mut bench, "a", Some(claim(1, 0))).unwrap();
    let head = stored.checkpoints[0].id;
    let mut next = Batch::new(thread("a"), Namespace::root(), Some(head));
    let id = bench.ids.checkpoint(Timestamp::default(), 1, Some(&head));
    next.checkpoints.push(NewCheckpoint { parent: Some(Parent::Local(head)), ..checkpoint(id) });
    next.lease = Some(claim(2, 5));
    assert!(matches!(bench.store.commit(&next), Err(StoreError::Leased { .. })));
    assert_eq!(bench.store.head_id(&thread("a"), &Namespace::root()).unwrap(), Some(head));
    change(&bench.store, "a", claim(2, 20)).unwrap();
    // Its outcome was unknown, and it comes again after its lease was lost.
    bench.store.commit(&stored).unwrap();
    assert_eq!(bench.store.lease(&thread("a")).unwrap().unwrap().epoch, 2);
}

#[test]
fn a_full_group_admits_no_further_thread() {
    let mut bench = Bench::new();
    let group = |name: &str, most: u64| LeaseGroup::new(name).live_max(most);
    let in_one = |byte: u8, now: i64| claim(byte, now).in_groups([group("one", 1)]);
    make(&mut bench, "a", None).unwrap();
    make(&mut bench, "b", None).unwrap();
    make(&mut bench, "c", Some(claim(3, 0))).unwrap();
    change(&bench.store, "c", NewLease::release(owner(3))).unwrap();
    assert_eq!(group_rows(&bench), 0);
    change(&bench.store, "a", in_one(1, 0)).unwrap();
    assert_eq!(group_rows(&bench), 1);
    // A thread without a lease, one that had one, and one that the batch makes.
    is_full(change(&bench.store, "b", in_one(2, 1)), "one");
    is_full(change(&bench.store, "c", in_one(5, 1)), "one");
    is_full(make(&mut bench, "d", Some(in_one(4, 1))).map(|_| ()), "one");
    let other = open(&bench.path());
    is_full(change(&other, "b", in_one(2, 1)), "one");
    // Another group has room; a claim in both is refused as a whole.
    let both = claim(2, 1).in_groups([group("two", 1), group("one", 1)]);
    is_full(change(&bench.store, "b", both), "one");
    assert_eq!(group_rows(&bench), 1);
    change(&bench.store, "b", claim(2, 1).in_groups([group("two", 1)])).unwrap();
    assert_eq!(group_rows(&bench), 2);
    // The owner that holds it claims nothing, whoever else is in its group.
    change(&bench.store, "a", in_one(1, 3).in_groups([group("one", 1), group("two", 1)])).unwrap();
    assert_eq!(bench.store.lease(&thread("a")).unwrap().unwrap().expires_at, Some(moment(13)));
}

#[test]
fn a_release_leaves_its_groups() {
    let mut bench = Bench::new();
    let in_one = |byte: u8, now: i64| claim(byte, now).in_groups([LeaseGroup::new("one").live_max(1)]);
    make(&mut bench, "a", None).unwrap();
    make(&mut bench, "b", Some(in_one(2, 0))).unwrap();
    assert_eq!(group_rows(&bench), 1);
    change(&bench.store, "b", NewLease::renew(owner(2), moment(20))).unwrap();
    change(&bench.store, "b", NewLease::release(owner(2))).unwrap();
    assert_eq!(group_rows(&bench), 0, "of a thread that the claim made");
    change(&bench.store, "a", in_one(1, 1)).unwrap();
    assert_eq!(group_rows(&bench), 1);
    change(&bench.store, "a", NewLease::release(owner(1))).unwrap();
    assert_eq!(group_rows(&bench), 0, "of a thread that had no lease before");
    change(&bench.store, "b", in_one(7, 2)).unwrap();
    assert_eq!(group_rows(&bench), 1);
    change(&open(&bench.path()), "b", NewLease::release(owner(7))).unwrap();
    assert_eq!(group_rows(&bench), 0, "by a handle that did not make the claim");
}
