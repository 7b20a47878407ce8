//! Leases: claimed, renewed, released and lost, alone and in batches with checkpoints.

use super::build::*;
use crate::store::lease::{LeaseGroup, LeaseOwner, NewLease};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn owner(n: u8) -> LeaseOwner {
    LeaseOwner::new([n; 16])
}

/// Returns a batch that changes the lease of a place and nothing else.
fn alone(place: &CasePlace<'_>, lease: NewLease) -> Batch {
    Batch::of_lease(place.thread.clone(), lease)
}

/// Shows the lease of a place: owner, epoch, recoveries, and whether it is released.
fn shown(backend: &dyn Log, place: &CasePlace<'_>) -> (u8, u64, u64, bool) {
    let lease = backend.lease(&place.thread).expect("a lease is read").expect("there is a lease");
    (lease.owner.id()[0], lease.epoch, lease.recoveries, lease.expires_at.is_none())
}

fn is_leased(result: Result<(), StoreError>) -> bool {
    matches!(result, Err(StoreError::Leased { .. }))
}

fn is_lost(result: Result<(), StoreError>) -> bool {
    matches!(result, Err(StoreError::LeaseLost { .. }))
}

pub(super) fn claimed(backend: &dyn Log) {
    let (a, b) = (root_of(backend, "a"), root_of(backend, "b"));
    for place in [&a, &b] {
        place.add(begin(1));
        assert_eq!(backend.lease(&place.thread).expect("a lease is read"), None);
    }
    commit(backend, &alone(&a, NewLease::claim(owner(1), moment(10), moment(20))));
    let lease = backend.lease(&a.thread).expect("a lease is read").expect("there is a lease");
    assert_eq!((lease.owner, lease.expires_at), (owner(1), Some(moment(20))));
    assert!(is_leased(backend.commit(&alone(&a, NewLease::claim(owner(2), moment(19), moment(30))))));
    assert!(is_leased(backend.commit(&alone(&a, NewLease::require_unclaimed(owner(2), moment(19))))));
    commit(backend, &alone(&b, NewLease::claim(owner(2), moment(19), moment(30))));
    commit(backend, &alone(&a, NewLease::renew(owner(1), moment(25))));
    assert!(is_leased(backend.commit(&alone(&a, NewLease::claim(owner(2), moment(24), moment(30))))));
    commit(backend, &alone(&a, NewLease::claim(owner(2), moment(25), moment(30))));
    assert_eq!(shown(backend, &a), (2, 2, 1, false), "the first lease has expired");
    commit(backend, &alone(&a, NewLease::claim(owner(3), moment(40), moment(50))));
    assert_eq!(shown(backend, &a), (3, 3, 2, false));
    commit(backend, &alone(&a, NewLease::release(owner(3))));
    commit(backend, &alone(&a, NewLease::renew(owner(3), moment(60))));
    assert_eq!(shown(backend, &a), (3, 3, 2, true), "a late renewal");
    commit(backend, &alone(&a, NewLease::claim(owner(4), moment(41), moment(50))));
    assert_eq!(shown(backend, &a), (4, 4, 0, false), "the lease before was released");
    assert!(is_leased(backend.commit(&alone(&a, NewLease::break_of(owner(5), moment(42), 3)))));
    assert_eq!(shown(backend, &a), (4, 4, 0, false), "another epoch");
    commit(backend, &alone(&a, NewLease::break_of(owner(5), moment(42), 4)));
    assert_eq!(shown(backend, &a), (5, 5, 0, true));
    assert_eq!(shown(backend, &b), (2, 1, 0, false));
}

pub(super) fn lost(backend: &dyn Log) {
    let place = root_of(backend, "a");
    place.add(begin(1).tasks(&["x"]));
    commit(backend, &alone(&place, NewLease::claim(owner(1), moment(10), moment(20))));
    commit(backend, &alone(&place, NewLease::claim(owner(2), moment(20), moment(30))));
    let late = |batch: Batch| Batch { lease: Some(NewLease::hold(owner(1))), ..batch };
    assert!(is_lost(backend.commit(&late(place.batch(Some(1), [on(2, 1)])))));
    assert!(is_lost(backend.commit(&late(place.pending(1, writes(1, task(1), "p", vec![write(0, "x", "late")]))))));
    assert!(is_lost(backend.commit(&alone(&place, NewLease::renew(owner(1), moment(90))))));
    assert!(is_lost(backend.commit(&alone(&place, NewLease::release(owner(1))))));
    assert_eq!(shown(backend, &place), (2, 2, 1, false));
    assert_eq!(
        backend.head_id(&place.thread, &place.namespace).expect("a head is read"),
        Some(place.point(1).checkpoint)
    );
    assert!(backend.writes(&place.point(1)).expect("writes are read").is_empty(), "nothing was written");
    let held = Batch { lease: Some(NewLease::hold(owner(2))), ..place.batch(Some(1), [on(2, 1)]) };
    commit(backend, &held);
}

pub(super) fn with_checkpoints(backend: &dyn Log) {
    let place = root_of(backend, "a");
    let claims = |n, now: u64| NewLease::claim(owner(n), moment(now), moment(now + 10));
    let first = Batch { lease: Some(claims(1, 10)), ..place.batch(None, [begin(1).tasks(&["x"])]) };
    commit(backend, &first);
    assert_eq!(shown(backend, &place), (1, 1, 0, false), "a thread and its lease begin in one batch");
    let rival = Batch { lease: Some(claims(2, 11)), ..place.batch(Some(1), [on(2, 1)]) };
    assert!(is_leased(backend.commit(&rival)));
    let stale = Batch { lease: Some(NewLease::release(owner(1))), ..place.batch(None, [begin(2)]) };
    assert!(matches!(backend.commit(&stale), Err(StoreError::Conflict { .. })));
    assert_eq!(shown(backend, &place), (1, 1, 0, false), "a batch that was refused releases nothing");
    // An edit from outside needs no lease.
    place.add(on(2, 1));
    let last = Batch { lease: Some(NewLease::release(owner(1))), ..place.batch(Some(2), [on(3, 2)]) };
    commit(backend, &last);
    assert_eq!(shown(backend, &place), (1, 1, 0, true));
    let mut inside = place.inside("in:1").batch(None, [begin(4)]);
    inside.lease = Some(claims(3, 12));
    commit(backend, &inside);
    assert_eq!(shown(backend, &place), (3, 2, 0, false), "subgraphs share the lease of their thread");
    _ = backend.delete_threads(std::slice::from_ref(&place.thread)).expect("a thread is deleted");
    assert_eq!(backend.lease(&place.thread).expect("a lease is read"), None, "it goes with its thread");
}

pub(super) fn repeated(backend: &dyn Log) {
    let place = root_of(backend, "a");
    let claim = NewLease::claim(owner(1), moment(10), moment(20));
    let first = Batch { lease: Some(claim), ..place.batch(None, [begin(1)]) };
    let last = Batch { lease: Some(NewLease::release(owner(1))), ..place.batch(Some(1), [on(2, 1)]) };
    for batch in [&first, &first, &last, &last] {
        commit(backend, batch);
    }
    assert_eq!(shown(backend, &place), (1, 1, 0, true));
    commit(backend, &alone(&place, NewLease::claim(owner(2), moment(11), moment(20))));
    // A batch that is stored can be repeated, also after another owner has claimed the thread.
    for batch in [&first, &last] {
        commit(backend, batch);
    }
    assert_eq!(shown(backend, &place), (2, 2, 0, false));
}

pub(super) fn of_no_thread(backend: &dyn Log) {
    let thread = ThreadId::new("none").expect("a thread id");
    assert_eq!(backend.lease(&thread).expect("a lease is read"), None);
    let claim = Batch::of_lease(thread.clone(), NewLease::claim(owner(1), moment(10), moment(20)));
    assert!(matches!(backend.commit(&claim), Err(StoreError::ThreadNotFound { id }) if id == thread));
    let place = root_of(backend, "a");
    let along = Batch { lease: claim.lease.clone(), ..place.batch(None, [begin(1)]) };
    let with_then = Batch { then: vec![along], ..root_of(backend, "b").batch(None, [begin(2)]) };
    assert!(matches!(backend.commit(&with_then), Err(StoreError::Invalid { field: "batch.then", .. })));
}

pub(super) fn race(backend: &dyn Log) {
    let place = root_of(backend, "a");
    place.add(begin(1));
    let won = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for n in 0..8 {
            let (place, won) = (&place, &won);
            scope.spawn(move || {
                let claim = alone(place, NewLease::claim(owner(n), moment(10), moment(20)));
                let result = if n % 2 == 0 { backend.commit(&claim) } else { backend.submit(claim).wait() };
                match result {
                    Ok(()) => _ = won.fetch_add(1, Ordering::Relaxed),
                    Err(error) => assert!(is_leased(Err(error))),
                }
            });
        }
    });
    assert_eq!(won.into_inner(), 1);
    assert_eq!(shown(backend, &place).1, 1);
}

fn is_limited(result: Result<(), StoreError>) -> bool {
    matches!(result, Err(StoreError::LeaseLimit { .. }))
}

/// Returns the owner of the claim of a place at a time: each claim has a new one.
fn claimant(n: usize, now: u64) -> LeaseOwner {
    owner((4 * now) as u8 + n as u8)
}

pub(super) fn groups(backend: &dyn Log) {
    let places = ["a", "b", "c", "d"].map(|name| root_of(backend, name));
    places.iter().enumerate().for_each(|(n, place)| place.add(begin(1 + n as u64)));
    let claim = |n: usize, now: u64, groups: &[LeaseGroup]| {
        let lease = NewLease::claim(claimant(n, now), moment(now), moment(now + 10));
        backend.commit(&alone(&places[n], lease.in_groups(groups.iter().cloned())))
    };
    let release = |n: usize, now: u64| commit(backend, &alone(&places[n], NewLease::release(claimant(n, now))));
    let group = [LeaseGroup::new("queue").live_max(2)];
    claim(0, 10, &group).expect("a place is free");
    claim(1, 15, &group).expect("a place is free");
    assert!(is_limited(claim(2, 16, &group)), "two leases are live");
    assert_eq!(backend.lease(&places[2].thread).expect("a lease is read"), None, "nothing was written");
    claim(2, 16, &[LeaseGroup::new("other").live_max(1)]).expect("another group");
    release(2, 16);
    claim(2, 20, &group).expect("the first lease has expired");
    assert!(is_limited(claim(3, 21, &group)));
    release(1, 15);
    claim(3, 21, &group).expect("a lease was released");
    _ = backend.delete_threads(std::slice::from_ref(&places[3].thread)).expect("a thread is deleted");
    claim(1, 22, &group).expect("a thread was deleted");

    let rated = [LeaseGroup::new("rated").rate(2, Duration::from_millis(10))];
    for (n, now) in [(0, 40), (1, 44)] {
        claim(n, now, &rated).expect("the rate allows it");
        release(n, now);
    }
    match claim(2, 49, &rated) {
        Err(StoreError::LeaseLimit { until, .. }) => assert_eq!(until, Some(moment(50)), "a released claim counts"),
        other => panic!("{other:?}"),
    }
    claim(2, 50, &rated).expect("the first claim has left the period");
    let many = vec![LeaseGroup::new("g"); 17];
    for groups in [&many[..], &[LeaseGroup::new("")], &[LeaseGroup::new("g").live_max(0)]] {
        let refused = claim(0, 60, groups);
        assert!(matches!(refused, Err(StoreError::Invalid { field: "lease group", .. })), "{refused:?}");
    }
}

pub(super) fn groups_left(backend: &dyn Log) {
    let places = ["a", "b", "c"].map(|name| root_of(backend, name));
    places.iter().enumerate().for_each(|(n, place)| place.add(begin(1 + n as u64)));
    let claim = |n: usize, now: u64, group: LeaseGroup| {
        let lease = NewLease::claim(claimant(n, now), moment(now), moment(now + 10));
        backend.commit(&alone(&places[n], lease.in_groups([group])))
    };
    let live = |name: &str| LeaseGroup::new(name).live_max(1);
    let rated = |name: &str| LeaseGroup::new(name).live_max(1).rate(1, Duration::from_millis(100));

    claim(0, 10, live("x")).expect("a place is free");
    claim(0, 30, live("y")).expect("the lease has expired");
    claim(1, 31, live("x")).expect("the last claim of the other thread names another group");
    assert!(is_limited(claim(2, 31, live("y"))), "the last claim of the first thread");
    // The owner of a lease claims nothing: it stays in its groups, and enters no other one.
    let again = NewLease::claim(claimant(0, 30), moment(32), moment(45));
    commit(backend, &alone(&places[0], again.in_groups([live("x")])));
    assert!(is_limited(claim(2, 33, live("y"))));
    assert!(is_limited(claim(2, 33, live("x"))));
    commit(backend, &alone(&places[1], NewLease::release(claimant(1, 31))));
    claim(2, 34, live("x")).expect("a lease was released, and no other one is in the group");

    // After the next claim the lease is not in the group any more, and the first claim still counts for its rate.
    for (group, begin, releases) in [("r", 50, true), ("s", 80, false)] {
        claim(0, begin, rated(group)).expect("a place is free");
        if releases {
            commit(backend, &alone(&places[0], NewLease::release(claimant(0, begin))));
        }
        claim(0, begin + 11, live("y")).expect("the lease is over");
        claim(1, begin + 12, live(group)).expect("the group has no live lease");
        commit(backend, &alone(&places[1], NewLease::release(claimant(1, begin + 12))));
        match claim(2, begin + 13, rated(group)) {
            Err(StoreError::LeaseLimit { until, .. }) => assert_eq!(until, Some(moment(begin + 100))),
            other => panic!("{other:?}"),
        }
    }
    claim(2, 150, rated("r")).expect("the claim has left the period");
}

pub(super) fn own_claim(backend: &dyn Log) {
    let places = ["a", "b"].map(|name| root_of(backend, name));
    places.iter().enumerate().for_each(|(n, place)| place.add(begin(1 + n as u64)));
    let rated = LeaseGroup::new("g").rate(1, Duration::from_millis(20));
    let claim = |n: usize, now: u64| {
        let lease = NewLease::claim(claimant(n, now), moment(now), moment(now + 10));
        backend.commit(&alone(&places[n], lease.in_groups([rated.clone()])))
    };
    claim(0, 10).expect("a place is free");
    commit(backend, &alone(&places[0], NewLease::release(claimant(0, 10))));
    claim(0, 15).expect("two claims of a thread within a period count as one");
    assert!(is_limited(claim(1, 16)), "the claim of another thread");
    claim(0, 26).expect("the lease has expired, and the last claim is its own");
}

pub(super) fn group_race(backend: &dyn Log) {
    let places: Vec<CasePlace<'_>> = (0..8).map(|n| root_of(backend, &format!("t{n}"))).collect();
    places.iter().enumerate().for_each(|(n, place)| place.add(begin(1 + n as u64)));
    let won = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (n, place) in places.iter().enumerate() {
            let won = &won;
            scope.spawn(move || {
                let lease = NewLease::claim(owner(n as u8), moment(10), moment(20));
                match backend.commit(&alone(place, lease.in_groups([LeaseGroup::new("g").live_max(3)]))) {
                    Ok(()) => _ = won.fetch_add(1, Ordering::Relaxed),
                    Err(error) => assert!(is_limited(Err(error))),
                }
            });
        }
    });
    assert_eq!(won.into_inner(), 3);
}
