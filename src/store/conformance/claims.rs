//! Claims of runs: which are due, in which order, under which limits, and by whom.

use super::build::*;

/// Stores a run of a graph that is due, at checkpoint `n`, with further members of its metadata.
fn enqueue<'b>(backend: &'b dyn Log, name: &str, n: u64, graph: &str, more: &str) -> CasePlace<'b> {
    let place = root_of(backend, name);
    place.add(begin(n).tasks(&["x"]).metadata(format!(r#"{{"graph": "{graph}"{more}}}"#)));
    place
}

/// Asks for a run for each of some owners, for ten moments.
fn asks(owners: std::ops::Range<u8>, now: u64) -> ClaimQuery {
    ClaimQuery::new(owners.map(owner), moment(now), moment(now + 10))
}

fn claims(backend: &dyn Log, query: &ClaimQuery) -> Claims {
    backend.claim(query).expect("runs are claimed")
}

/// Shows the threads of claims in their order.
fn names_of(claims: &Claims) -> String {
    claims.runs.iter().map(|run| run.info.id().as_str()).collect::<Vec<_>>().join(" ")
}

/// Claims, and shows the threads.
fn claimed(backend: &dyn Log, query: &ClaimQuery) -> String {
    names_of(&claims(backend, query))
}

fn release(place: &CasePlace<'_>, n: u8) {
    commit(place.backend, &Batch::of_lease(place.thread.clone(), NewLease::release(owner(n))));
}

fn pauses(place: &CasePlace<'_>, n: u64, pauses: bool) {
    let (before, after) = if pauses { (None, Some("")) } else { (Some(""), None) };
    _ = operate(place.backend, n, vec![fact(place, "paused", before, after)]);
}

pub(super) fn order(backend: &dyn Log) {
    let runs =
        [("a", "work", 0), ("b", "work", 9), ("c", "more", 9), ("d", "other", 9), ("e", "more", 4), ("f", "work", 5)];
    let all = (1..)
        .zip(runs)
        .map(|(n, (name, graph, priority))| enqueue(backend, name, n, graph, &format!(r#", "priority": {priority}"#)));
    let paused = all.last().expect("the last run");
    pauses(&paused, 7, true);
    let both = |query: ClaimQuery| query.queue("work", []).queue("more", []);
    assert_eq!(claimed(backend, &asks(1..9, 10)), "", "no queue was named");
    assert_eq!(claimed(backend, &both(asks(1..1, 10))), "", "no owner was named");
    let first = claims(backend, &both(asks(1..4, 10)));
    assert_eq!(names_of(&first), "b c e", "by priority, then age, over both queues");
    for (n, ClaimedRun { info, lease, .. }) in (1..).zip(&first.runs) {
        assert_eq!(backend.lease(info.id()).expect("a lease is read").as_ref(), Some(lease), "the lease is stored");
        let shown = (&lease.owner, lease.epoch, lease.recoveries, lease.expires_at);
        assert_eq!(shown, (&owner(n), 1, 0, Some(moment(20))));
    }
    assert_eq!(claims(backend, &both(asks(1..4, 11))).runs, first.runs, "a repeated claim returns its runs");
    assert_eq!(claimed(backend, &both(asks(4..9, 10))), "a", "a paused thread is passed over");
    pauses(&paused, 8, false);
    let last = claims(backend, &both(asks(5..9, 10)));
    assert_eq!((&*names_of(&last), last.next_at, last.is_refused), ("f", None, false));
    let too_many = ClaimQuery::new(std::iter::repeat_n(owner(1), 257), moment(10), moment(20));
    assert!(matches!(backend.claim(&too_many), Err(StoreError::Invalid { field: "claim", .. })));
}

pub(super) fn timers(backend: &dyn Log) {
    let sleeps = enqueue(backend, "a", 1, "work", "");
    let asked = enqueue(backend, "b", 2, "work", r#", "priority": 3"#);
    let other = enqueue(backend, "c", 3, "other", "");
    sleeps.wait(1, WriteMark::WakesAt(moment(30)), 30);
    asked.wait(2, WriteMark::Waits, 40);
    other.wait(3, WriteMark::WakesAt(moment(20)), 20);
    let at = |owners, now| asks(owners, now).queue("work", []);
    let early = claims(backend, &at(1..9, 10));
    assert_eq!((early.runs.len(), early.next_at), (0, Some(moment(20))), "the first timer, of any graph");
    assert_eq!(claims(backend, &at(1..9, 25)).next_at, Some(moment(30)));
    assert_eq!(claimed(backend, &at(1..2, 40)), "b", "a timer that has passed makes an interrupt due, by its priority");
    assert_eq!(claimed(backend, &at(2..9, 40)), "a");
    assert_eq!(claims(backend, &at(9..10, 40)).next_at, None, "the other timers have passed");
    // The superstep passes the timer.
    sleeps.add(on(4, 1));
    release(&sleeps, 2);
    assert_eq!(claimed(backend, &at(9..10, 41)), "", "no task is due");
}

pub(super) fn limits(backend: &dyn Log) {
    let customer = |name: &str| format!(r#", "customer": "{name}""#);
    let places = [("a", 1, "ann"), ("b", 2, "ann"), ("c", 3, "bob"), ("d", 4, "bob"), ("e", 5, "cem")];
    let [a, ..] = places.map(|(name, n, of)| enqueue(backend, name, n, "work", &customer(of)));
    enqueue(backend, "f", 6, "work", "");
    enqueue(backend, "g", 7, "free", "");
    let group = || LeaseGroup::new("queue work");
    let all = |max| QueueGroup::of_all(group().live_max(max));
    let each = QueueGroup::of_each("customer", group().live_max(1));
    let ask = |owners, now, groups: &[QueueGroup]| asks(owners, now).queue("work", groups.to_vec()).queue("free", []);

    let first = claims(backend, &ask(1..3, 10, &[all(5), each.clone()]));
    assert_eq!(names_of(&first), "a c", "the group of a customer has room for one run");
    let groups: Vec<_> = first.runs[0].groups.iter().map(|group| group.name.as_str()).collect();
    assert_eq!(groups, ["queue work", "customer ann of queue work"]);
    let next = claims(backend, &ask(3..9, 10, &[all(4), each.clone()]));
    assert_eq!((&*names_of(&next), next.is_refused), ("e f g", true), "a run without the key enters no group of it");
    assert!(claims(backend, &ask(9..20, 11, &[all(4), each.clone()])).runs.is_empty());
    a.add(on(10, 1));
    release(&a, 1);
    assert_eq!(claimed(backend, &ask(9..20, 12, &[all(4), each])), "b", "a run has ended");
}

pub(super) fn rates(backend: &dyn Log) {
    (1..5).for_each(|n| _ = enqueue(backend, &format!("t{n}"), n, "work", ""));
    let rated = QueueGroup::of_all(LeaseGroup::new("rated").rate(2, Duration::from_millis(5)));
    let ask = |owners, now| asks(owners, now).queue("work", [rated.clone()]);
    let first = claims(backend, &ask(1..9, 10));
    assert_eq!((first.runs.len(), first.next_at, first.is_refused), (2, Some(moment(15)), true));
    assert_eq!(claimed(backend, &ask(3..9, 14)), "");
    assert_eq!(claimed(backend, &ask(3..9, 15)), "t3 t4", "the period has ended");
}

pub(super) fn lapsed(backend: &dyn Log) {
    let place = enqueue(backend, "a", 1, "work", "");
    let ask = |n: u8, now| asks(n..n + 1, now).queue("work", []);
    let lease = |of: &ClaimQuery| claims(backend, of).runs.pop().map(|run| (run.lease.epoch, run.lease.recoveries));
    assert_eq!(lease(&ask(1, 10)), Some((1, 0)));
    assert_eq!(lease(&ask(2, 19)), None, "the lease is live");
    commit(backend, &Batch::of_lease(place.thread.clone(), NewLease::renew(owner(1), moment(30))));
    assert_eq!(lease(&ask(2, 29)), None, "it was renewed");
    assert_eq!(lease(&ask(2, 30)), Some((2, 1)), "its owner has died");
    let late = Batch { lease: Some(NewLease::hold(owner(1))), ..place.batch(Some(1), [on(2, 1)]) };
    assert!(matches!(backend.commit(&late), Err(StoreError::LeaseLost { .. })), "the first owner is refused");
    let held = place.batch(Some(1), [on(2, 1).tasks(&["x"]).metadata(r#"{"graph": "work"}"#)]);
    commit(backend, &Batch { lease: Some(NewLease::hold(owner(2))), ..held });
    release(&place, 2);
    assert_eq!(lease(&ask(3, 31)), Some((3, 0)), "the lease was released");
    let failed = write(-1, "special", "a value").with_mark(Some(WriteMark::GivenUp));
    let given_up = place.pending(2, writes(2, 1, vec![failed]));
    commit(backend, &Batch { lease: Some(NewLease::release(owner(3))), ..given_up });
    assert_eq!(lease(&ask(4, 90)), None, "a run that was given up waits for nothing");
}

pub(super) fn race(backend: &dyn Log) {
    const RUNS: u64 = 40;
    (1..=RUNS).for_each(|n| _ = enqueue(backend, &format!("t{n}"), n, "work", ""));
    let take = |process: u64, round: u64| {
        let owners = (0..2).map(|n| LeaseOwner::new(u128::from(100 * process + 2 * round + n).to_be_bytes()));
        claims(backend, &ClaimQuery::new(owners, moment(50), moment(60)).queue("work", [])).runs
    };
    let runs = at_once(8, |process| (0..RUNS).flat_map(|round| take(process, round)).collect::<Vec<_>>()).concat();
    let taken: BTreeSet<&ThreadId> = runs.iter().map(|run| run.info.id()).collect();
    assert_eq!([runs.len(), taken.len()], [RUNS as usize; 2], "each run is claimed, and once: {taken:?}");
}
