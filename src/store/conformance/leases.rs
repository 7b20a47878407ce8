//! Leases: claimed, renewed, released and lost, alone and in batches with checkpoints.

use super::build::*;

/// Claims for 10 milliseconds.
fn claim(n: u8, now: u64) -> NewLease {
    NewLease::claim(owner(n), moment(now), moment(now + 10))
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

/// Leases as they must be: of each thread the last one, and the claims in their order with the groups that each named.
#[derive(Default)]
struct LeaseMirror {
    held: [Option<LeaseRecord>; 4],
    claims: Vec<(usize, Timestamp, Vec<LeaseGroup>)>,
}

impl LeaseMirror {
    /// Changes the lease of thread `n` as [`NewLease::apply`] and [`LeaseGroup::admit`] say, whose rules are tested
    /// where they are written. The last claim of a thread decides in which groups its lease is, and the last one that
    /// named a group how long it counts for the rate of the group.
    fn change(&mut self, n: usize, new: &NewLease, now: Timestamp) -> Result<(), StoreError> {
        let thread = ThreadId::new("a thread").expect("an id");
        let Some(lease) = new.apply(&thread, self.held[n].as_ref())? else { return Ok(()) };
        if lease.is_claim(self.held[n].as_ref()) {
            for group in &new.groups {
                let named = |groups: &[LeaseGroup]| groups.iter().find(|of| of.name == group.name).cloned();
                let others = (0..self.held.len()).filter(|other| *other != n).filter_map(|other| {
                    let claims = || self.claims.iter().rev().filter(|of| of.0 == other);
                    let rated_until = claims().find_map(|(_, at, of)| Some(named(of)?.rated_until(*at)))?;
                    let is_current = claims().next().is_some_and(|of| named(&of.2).is_some());
                    Some((is_current && self.held[other].as_ref()?.is_live(now), rated_until))
                });
                group.admit(now, others)?;
            }
            self.claims.push((n, now, new.groups.clone()));
        }
        self.held[n] = Some(lease);
        Ok(())
    }
}

/// Random changes of leases in groups with limits, alone and with checkpoints and writes, compared with a mirror.
pub(super) fn random(backend: &dyn Log) {
    let places = roots(backend, ["a", "b", "c", "d"]);
    places.iter().for_each(|place| place.add(begin(1).tasks(&["x"])));
    let (mut dice, mut mirror, mut now, mut heads) = (Dice(IdSource::from_seed(8)), LeaseMirror::default(), 10, [1; 4]);
    for step in 2..400 {
        now += dice.below(4);
        let (n, who) = (dice.below(4) as usize, owner(dice.below(3) as u8));
        let (place, kind, epoch) = (&places[n], dice.below(9), mirror.held[n].as_ref().map_or(1, |lease| lease.epoch));
        let mut group = |name| {
            let (places, period) = (1 + dice.below(2), Duration::from_millis(5 + dice.below(30)));
            let group = LeaseGroup::new(name);
            let (live, rated) = (group.clone().live_max(places), group.clone().rate(places, period));
            dice.pick(&[live, rated, group.live_max(1).rate(places, period)]).expect("one of three")
        };
        let groups = [group("x"), group("y")];
        let (from, to) = [(0, 0), (0, 1), (1, 2), (0, 2)][dice.below(4) as usize];
        let new = match kind {
            0..5 => NewLease::claim(who, moment(now), moment(now + 10)).in_groups(groups[from..to].to_vec()),
            5 => NewLease::renew(who, moment(now + 10)),
            6 => NewLease::release(who),
            7 => NewLease::hold(who),
            _ => NewLease::break_of(who, moment(now), epoch - dice.below(2)),
        };
        let (head, value) = (heads[n], vec![write(-4, "given", step.to_string())]);
        let (batch, next) = match dice.below(3) {
            0 => (place.batch(Some(head), [on(step, head).tasks(&["x"])]), step),
            1 if kind != 7 => (alone(place, new.clone()), head),
            _ => (place.pending(head, writes(head, 1, value)), head),
        };
        let outcome = refusal(mirror.change(n, &new, moment(now)));
        assert_eq!(refusal(backend.commit(&with(new, batch))), outcome, "step {step}");
        heads[n] = if outcome == "accepted: ()" { next } else { head };
        assert_eq!((lease(place), place.head()), (mirror.held[n].clone(), Some(heads[n])), "step {step}");
    }
}

pub(super) fn with_checkpoints(backend: &dyn Log) {
    let place = root_of(backend, "a");
    refuses(backend, [(alone(&place, claim(1, 10)), "no thread a")]);
    assert_eq!(lease(&place), None);
    commit(backend, &with(claim(1, 10), place.batch(None, [begin(1).tasks(&["x"])])));
    assert_eq!(shown(&place), (1, 1, 0, false), "a thread and its lease begin in one batch");
    let along = with(claim(1, 10), place.batch(Some(1), [on(2, 1)]));
    let refused = [
        (with(claim(2, 11), place.batch(Some(1), [on(2, 1)])), "leased"),
        (with(NewLease::release(owner(1)), place.batch(None, [begin(2)])), "a/ is at 1, not none"),
        (Batch { then: vec![along], ..root_of(backend, "b").batch(None, [begin(2)]) }, "batch.then"),
    ];
    refuses(backend, refused);
    assert_eq!(shown(&place), (1, 1, 0, false), "a batch that was refused releases nothing");
    // An edit from outside needs no lease.
    place.add(on(2, 1));
    commit(backend, &with(NewLease::release(owner(1)), place.batch(Some(2), [on(3, 2)])));
    assert_eq!(shown(&place), (1, 1, 0, true));
    commit(backend, &with(claim(3, 12), place.inside("in:1").batch(None, [begin(4)])));
    assert_eq!(shown(&place), (3, 2, 0, false), "subgraphs share the lease of their thread");
    place.delete();
    assert_eq!(lease(&place), None, "it goes with its thread");
}

pub(super) fn repeated(backend: &dyn Log) {
    let place = root_of(backend, "a");
    let first = with(claim(1, 10), place.batch(None, [begin(1)]));
    let last = with(NewLease::release(owner(1)), place.batch(Some(1), [on(2, 1)]));
    [&first, &first, &last, &last].iter().for_each(|batch| commit(backend, batch));
    assert_eq!(shown(&place), (1, 1, 0, true));
    commit(backend, &alone(&place, claim(2, 11)));
    // A batch that is stored can be repeated, also after another owner has claimed the thread.
    [&first, &last].iter().for_each(|batch| commit(backend, batch));
    assert_eq!(shown(&place), (2, 2, 0, false));
}

/// Of several claims of a thread one is accepted, and of those of a group as many as it has places.
pub(super) fn race(backend: &dyn Log) {
    let places: Vec<CasePlace<'_>> = (0..9).map(|n| root_of(backend, &format!("t{n}"))).collect();
    places.iter().for_each(|place| place.add(begin(1)));
    let claims = |groups: &[LeaseGroup], place: &(dyn Fn(usize) -> usize + Sync), wanted: &str| {
        let outcomes = at_once(8, |n| {
            let claim = alone(&places[place(n as usize)], claim(n as u8, 10).in_groups(groups.to_vec()));
            let outcome = refusal(if n % 2 == 0 { backend.commit(&claim) } else { backend.submit(claim).wait() });
            assert!(["accepted: ()", wanted].contains(&&*outcome), "{outcome}");
            outcome != wanted
        });
        outcomes.into_iter().filter(|won| *won).count()
    };
    assert_eq!((claims(&[], &|_| 0, "leased"), shown(&places[0]).1), (1, 1));
    commit(backend, &alone(&places[0], NewLease::release(owner(shown(&places[0]).0))));
    // On other threads: the owner who has released the first one is not refused there, and claims nothing.
    assert_eq!(claims(&[LeaseGroup::new("g").live_max(3)], &|n| n + 1, "limit None"), 3, "the places of a group");
}
