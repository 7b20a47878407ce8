//! Leases: claimed, renewed, released and lost, alone and in batches with checkpoints.

use super::build::*;
use crate::store::lease::{LeaseGroup, LeaseOwner, LeaseRecord, NewLease};
use std::time::Duration;

fn owner(n: u8) -> LeaseOwner {
    LeaseOwner::new([n; 16])
}

/// Claims for 10 milliseconds.
fn claim(n: u8, now: u64) -> NewLease {
    NewLease::claim(owner(n), moment(now), moment(now + 10))
}

fn release(n: u8) -> NewLease {
    NewLease::release(owner(n))
}

/// Returns a batch that changes the lease of a place and nothing else.
fn alone(place: &CasePlace<'_>, lease: NewLease) -> Batch {
    Batch::of_lease(place.thread.clone(), lease)
}

fn with(lease: NewLease, batch: Batch) -> Batch {
    Batch { lease: Some(lease), ..batch }
}

fn lease(place: &CasePlace<'_>) -> Option<LeaseRecord> {
    place.backend.lease(&place.thread).expect("a lease is read")
}

/// Shows the lease of a place: owner, epoch, recoveries, and whether it is released.
fn shown(place: &CasePlace<'_>) -> (u8, u64, u64, bool) {
    let lease = lease(place).expect("there is a lease");
    (lease.owner.id()[0], lease.epoch, lease.recoveries, lease.expires_at.is_none())
}

/// Returns the root namespaces of threads with a checkpoint each.
fn started<'b, const N: usize>(backend: &'b dyn Log, threads: [&str; N]) -> [CasePlace<'b>; N] {
    let places = roots(backend, threads);
    places.iter().for_each(|place| place.add(begin(1).tasks(&["x"])));
    places
}

/// A lease changes as [`NewLease::apply`] says, whose rules are tested where they are written.
pub(super) fn claimed(backend: &dyn Log) {
    let [a, b] = started(backend, ["a", "b"]);
    let (renewal, taken) = (NewLease::renew(owner(1), moment(25)), NewLease::break_of(owner(5), moment(42), 4));
    let changes = [claim(1, 10), renewal, claim(2, 25), claim(3, 40), release(3), claim(4, 41), taken, claim(6, 43)];
    let changes = changes.into_iter().map(|change| (&a, change)).chain([(&b, claim(7, 19))]);
    for (place, change) in changes {
        let before = lease(place);
        let changed = change.apply(&place.thread, before.as_ref()).expect("the lease can be changed so");
        commit(backend, &alone(place, change));
        assert_eq!(lease(place), changed.or(before));
        for rival in [claim(9, 19), NewLease::require_unclaimed(owner(9), moment(19)), release(9)] {
            let refused = rival.apply(&place.thread, lease(place).as_ref());
            if let Err(refused) = refused {
                assert_eq!(refusal(backend.commit(&alone(place, rival))), refusal::<()>(Err(refused)));
            }
        }
    }
}

pub(super) fn lost(backend: &dyn Log) {
    let [place] = started(backend, ["a"]);
    commit(backend, &alone(&place, claim(1, 10)));
    commit(backend, &alone(&place, claim(2, 20)));
    let late = |batch: Batch| with(NewLease::hold(owner(1)), batch);
    backend.refuses([
        (late(place.batch(Some(1), [on(2, 1)])), "lost"),
        (late(place.pending(1, writes(1, 1, vec![write(0, "x", "late")]))), "lost"),
        (alone(&place, NewLease::renew(owner(1), moment(90))), "lost"),
        (alone(&place, release(1)), "lost"),
    ]);
    assert_eq!((shown(&place), place.head(), place.writes(1).len()), ((2, 2, 1, false), Some(1), 0));
    commit(backend, &with(NewLease::hold(owner(2)), place.batch(Some(1), [on(2, 1)])));
}

pub(super) fn with_checkpoints(backend: &dyn Log) {
    let place = root_of(backend, "a");
    backend.refuses([(alone(&place, claim(1, 10)), "no thread a")]);
    assert_eq!(lease(&place), None);
    commit(backend, &with(claim(1, 10), place.batch(None, [begin(1).tasks(&["x"])])));
    assert_eq!(shown(&place), (1, 1, 0, false), "a thread and its lease begin in one batch");
    let along = with(claim(1, 10), place.batch(Some(1), [on(2, 1)]));
    backend.refuses([
        (with(claim(2, 11), place.batch(Some(1), [on(2, 1)])), "leased"),
        (with(release(1), place.batch(None, [begin(2)])), "a/ is at 1, not none"),
        (Batch { then: vec![along], ..root_of(backend, "b").batch(None, [begin(2)]) }, "batch.then"),
    ]);
    assert_eq!(shown(&place), (1, 1, 0, false), "a batch that was refused releases nothing");
    // An edit from outside needs no lease.
    place.add(on(2, 1));
    commit(backend, &with(release(1), place.batch(Some(2), [on(3, 2)])));
    assert_eq!(shown(&place), (1, 1, 0, true));
    commit(backend, &with(claim(3, 12), place.inside("in:1").batch(None, [begin(4)])));
    assert_eq!(shown(&place), (3, 2, 0, false), "subgraphs share the lease of their thread");
    place.delete();
    assert_eq!(lease(&place), None, "it goes with its thread");
}

pub(super) fn repeated(backend: &dyn Log) {
    let place = root_of(backend, "a");
    let first = with(claim(1, 10), place.batch(None, [begin(1)]));
    let last = with(release(1), place.batch(Some(1), [on(2, 1)]));
    [&first, &first, &last, &last].iter().for_each(|batch| commit(backend, batch));
    assert_eq!(shown(&place), (1, 1, 0, true));
    commit(backend, &alone(&place, claim(2, 11)));
    // A batch that is stored can be repeated, also after another owner has claimed the thread.
    [&first, &last].iter().for_each(|batch| commit(backend, batch));
    assert_eq!(shown(&place), (2, 2, 0, false));
}

pub(super) fn race(backend: &dyn Log) {
    let [place] = started(backend, ["a"]);
    let won = at_once(8, |n| {
        let claim = alone(&place, claim(n as u8, 10));
        let result = if n % 2 == 0 { backend.commit(&claim) } else { backend.submit(claim).wait() };
        let is_won = result.is_ok();
        assert!(is_won || refusal(result) == "leased");
        is_won
    });
    assert_eq!((won, shown(&place).1), (1, 1));
    let places: Vec<CasePlace<'_>> = (0..8).map(|n| root_of(backend, &format!("t{n}"))).collect();
    places.iter().for_each(|place| place.add(begin(1)));
    let won = at_once(8, |n| {
        let lease = claim(n as u8, 10).in_groups([LeaseGroup::new("g").live_max(3)]);
        let result = backend.commit(&alone(&places[n as usize], lease));
        let is_won = result.is_ok();
        assert!(is_won || refusal(result) == "limit None");
        is_won
    });
    assert_eq!(won, 3, "the places of a group");
}

/// Returns the owner of the claim of a place at a time: each claim has a new one.
fn claimant(n: usize, now: u64) -> u8 {
    (4 * now) as u8 + n as u8
}

/// Claims a place for 10 milliseconds in some groups.
fn enter(place: &CasePlace<'_>, n: usize, now: u64, groups: &[LeaseGroup]) -> String {
    let lease = claim(claimant(n, now), now).in_groups(groups.iter().cloned());
    refusal(place.backend.commit(&alone(place, lease)))
}

const IN: &str = "accepted: ()";
const FULL: &str = "limit None";

pub(super) fn groups(backend: &dyn Log) {
    let places = started(backend, ["a", "b", "c", "d"]);
    let claim = |n: usize, now: u64, groups: &[LeaseGroup]| enter(&places[n], n, now, groups);
    let release = |n: usize, now: u64| commit(backend, &alone(&places[n], release(claimant(n, now))));
    let group = [LeaseGroup::new("queue").live_max(2)];
    assert_eq!([claim(0, 10, &group), claim(1, 15, &group), claim(2, 16, &group)], [IN, IN, FULL]);
    assert_eq!(lease(&places[2]), None, "nothing was written");
    assert_eq!(claim(2, 16, &[LeaseGroup::new("other").live_max(1)]), IN, "another group");
    release(2, 16);
    assert_eq!([claim(2, 20, &group), claim(3, 21, &group)], [IN, FULL], "the first lease has expired");
    release(1, 15);
    assert_eq!(claim(3, 21, &group), IN, "a lease was released");
    places[3].delete();
    assert_eq!(claim(1, 22, &group), IN, "a thread was deleted");
    let rated = [LeaseGroup::new("rated").rate(2, Duration::from_millis(10))];
    for (n, now) in [(0, 40), (1, 44)] {
        assert_eq!(claim(n, now, &rated), IN);
        release(n, now);
    }
    let late = [claim(2, 49, &rated), claim(2, 50, &rated)];
    assert_eq!(late, ["limit Some(50)", IN], "a released claim counts, until it has left the period");
}

pub(super) fn groups_left(backend: &dyn Log) {
    let places = started(backend, ["a", "b", "c"]);
    let claim = |n: usize, now: u64, group: LeaseGroup| enter(&places[n], n, now, &[group]);
    let end = |n: usize, now: u64| commit(backend, &alone(&places[n], release(claimant(n, now))));
    let live = |name: &str| LeaseGroup::new(name).live_max(1);
    let rated = |name: &str| LeaseGroup::new(name).live_max(1).rate(1, Duration::from_millis(100));
    assert_eq!([claim(0, 10, live("x")), claim(0, 30, live("y"))], [IN, IN], "the lease has expired");
    assert_eq!([claim(1, 31, live("x")), claim(2, 31, live("y"))], [IN, FULL], "the last claim decides");
    // The owner of a lease claims nothing: it stays in its groups, and enters no other one.
    let again = NewLease::claim(owner(claimant(0, 30)), moment(32), moment(45));
    commit(backend, &alone(&places[0], again.in_groups([live("x")])));
    assert_eq!([claim(2, 33, live("y")), claim(2, 33, live("x"))], [FULL, FULL]);
    end(1, 31);
    assert_eq!(claim(2, 34, live("x")), IN, "a lease was released, and no other one is in the group");
    // After the next claim the lease is not in the group any more, and the first claim still counts for its rate.
    for (group, begin, releases) in [("r", 50, true), ("s", 80, false)] {
        assert_eq!(claim(0, begin, rated(group)), IN);
        if releases {
            end(0, begin);
        }
        let rest = [claim(0, begin + 11, live("y")), claim(1, begin + 12, live(group))];
        assert_eq!(rest, [IN, IN], "the group has no live lease");
        end(1, begin + 12);
        assert_eq!(claim(2, begin + 13, rated(group)), format!("limit Some({})", begin + 100));
    }
    assert_eq!(claim(2, 150, rated("r")), IN, "the claim has left the period");
}

pub(super) fn own_claim(backend: &dyn Log) {
    let places = started(backend, ["a", "b"]);
    let rated = [LeaseGroup::new("g").rate(1, Duration::from_millis(20))];
    let claim = |n: usize, now: u64| enter(&places[n], n, now, &rated);
    assert_eq!(claim(0, 10), IN);
    commit(backend, &alone(&places[0], release(claimant(0, 10))));
    assert_eq!(claim(0, 15), IN, "two claims of a thread within a period count as one");
    assert_eq!(claim(1, 16), "limit Some(35)", "the claim of another thread");
    assert_eq!(claim(0, 26), IN, "the lease has expired, and the last claim is its own");
}
