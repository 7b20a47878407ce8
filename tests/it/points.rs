//! Points: the grammar on stored threads, and short ids that stay unique.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use annals::base::{Clock, Timestamp};
use annals::history::{Snapshot, Thread, short_ids};
use annals::prelude::*;
use annals::store::{MemoryBackend, OpenOptions, StoreError};

use crate::cases;

#[derive(State, Clone, Default)]
struct Count {
    n: i64,
}

/// A clock that is set by hand.
#[derive(Clone, Default)]
struct HandClock(Arc<AtomicI64>);

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_795_223_817_000_000 + self.0.load(Ordering::Relaxed))
    }
}

impl HandClock {
    fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_micros()).unwrap(), Ordering::Relaxed);
    }
}

fn store() -> (Store, HandClock) {
    let clock = HandClock::default();
    let options = OpenOptions::new().clock(clock.clone()).id_seed(1);
    (Store::with_backend(Arc::new(MemoryBackend::new()), options), clock)
}

fn add(thread: &Thread, n: i64) -> Snapshot {
    thread.update(Count::update().n(n)).unwrap();
    thread.at("@").unwrap()
}

const HOUR: Duration = Duration::from_secs(3_600);

#[test]
fn a_point_is_found_whatever_the_thread_id_holds() {
    let (store, _) = store();
    for name in ["plain", "me@home", "a~1", "plain@x", "a..b", "{2h}", "a@{2h}", "\"q\"", "b\\", "~1", "@", "é~", ".."]
    {
        let thread = store.thread(name).unwrap();
        let (parent, head) = (add(&thread, 1), add(&thread, 2));
        let id = head.id().to_string();
        let quoted = format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
        let bare = (!name.starts_with('"')).then(|| name.to_owned());
        for name in bare.into_iter().chain([quoted]) {
            let at =
                |point: String| store.point(format!("{name}{point}")).unwrap_or_else(|e| panic!("{name}{point}: {e}"));
            for same in ["", "@", "@@", "~0", "@~0", "@{0s}", "@{step:1}"] {
                assert_eq!(at(same.into()), head, "{name}{same}");
            }
            assert_eq!(at(format!("@{id}")), head);
            assert_eq!(at(format!("@{}", id.to_uppercase().replace('-', ""))), head);
            for back in ["~1", "@~", "@@~1", "@{step:0}", "@{0s}~1", &format!("@{id}~1")] {
                assert_eq!(at(back.into()), parent, "{name}{back}");
            }
            assert_eq!(at(format!("@{}", parent.short_id().unwrap())), parent);
            assert!(matches!(store.point(format!("{name}~9")), Err(StoreError::CheckpointNotFound { .. })));
            assert!(matches!(store.point(format!("{name}@zz")), Err(StoreError::CheckpointNotFound { .. })));
            assert!(matches!(store.point(format!("{name}@{{2x}}")), Err(StoreError::InvalidPoint { .. })));
            for (range, second) in [("~1..~0", &head), ("~1..", &head), ("~1..@", &head), ("..~1", &parent)] {
                let found = store.range(format!("{name}{range}")).unwrap_or_else(|e| panic!("{name}{range}: {e}"));
                assert_eq!(found, (if range.starts_with('~') { &parent } else { &head }.clone(), second.clone()));
            }
            if !name.starts_with(['@', '~']) {
                let found = store.range(format!("plain..{name}~1")).unwrap();
                assert_eq!(found, (store.point("plain").unwrap(), parent.clone()), "{name}");
            }
        }
    }
    assert!(matches!(store.point("\"plain"), Err(StoreError::InvalidPoint { at: 6, .. })));
    assert!(matches!(store.point("nobody@home~1"), Err(StoreError::ThreadNotFound { id }) if id.as_str() == "nobody"));
    assert!(matches!(store.point(""), Err(StoreError::Id(_))));
    assert!(matches!(store.range("plain"), Err(StoreError::InvalidPoint { at: 5, .. })));
    let long = store.point("@".repeat(9_000)).unwrap_err();
    assert!(matches!(long, StoreError::Invalid { field: "point", .. }), "{long}");
}

#[test]
fn a_point_in_time_is_the_newest_checkpoint_until_then() {
    let (store, clock) = store();
    let thread = store.thread("trip").unwrap();
    let first = add(&thread, 1);
    clock.advance(HOUR);
    let second = add(&thread, 2);
    clock.advance(HOUR * 22);
    let third = add(&thread, 3);
    clock.advance(HOUR / 2);
    for (point, expected) in [
        ("{0s}", &third),
        ("{30m}", &third),
        ("{30m1ms}", &second),
        ("{23h30m}", &first),
        ("{22h}~1", &first),
        ("{2026-11-22T00:46:57Z}", &third),
        ("{2026-11-21T02:16:57Z}", &second),
        ("{2026-11-21T02:16:56.999999Z}", &first),
        ("{2026-11-21T03:16:57+01:00}", &second),
        ("{2026-11-22}", &second),
    ] {
        assert_eq!(thread.at(point).unwrap(), *expected, "{point}");
    }
    for none in ["{yesterday}", "{24h}", "{2026-11-21}", "{999999999w}", "{0001-01-01}"] {
        assert!(matches!(thread.at(none), Err(StoreError::CheckpointNotFound { .. })), "{none}");
    }
    clock.advance(HOUR);
    assert_eq!(thread.at("{yesterday}").unwrap(), first);
}

#[test]
fn a_step_is_found_on_the_lineage_of_the_head() {
    let (store, _) = store();
    let thread = store.thread("count").unwrap();
    let all: Vec<Snapshot> = (0..600).map(|n| add(&thread, n)).collect();
    for step in [0, 1, 299, 598, 599] {
        assert_eq!(thread.at(format!("{{step:{step}}}")).unwrap(), all[step], "step {step}");
    }
    for none in ["{step:-1}", "{step:600}", "{step:-9223372036854775808}", "{step:9223372036854775807}"] {
        assert!(matches!(thread.at(none), Err(StoreError::CheckpointNotFound { .. })), "{none}");
    }
    let fork = all[10].fork_to("fork").unwrap();
    add(&fork, 0);
    assert_eq!(fork.at("{step:9}").unwrap(), all[9], "a fork has the steps of its source");
    assert_eq!(fork.at("{step:11}").unwrap(), fork.at("~1").unwrap());
}

#[test]
fn the_name_of_a_branch_is_a_point() {
    let (store, _) = store();
    let thread = store.thread("trip").unwrap();
    let (first, second) = (add(&thread, 1), add(&thread, 2));
    thread.name_branch_at("by-train", &second).unwrap();
    thread.rewind_to(&first).unwrap();
    let third = add(&thread, 3);
    assert_eq!(store.point("trip@by-train").unwrap(), second);
    assert_eq!(store.point("trip@by-train~1").unwrap(), first);
    assert_eq!(store.range("trip@by-train..@").unwrap(), (second, third.clone()));
    // A name that looks like the beginning of an id is that of the branch.
    let begin = first.short_id().unwrap();
    thread.name_branch_at(&begin, &third).unwrap();
    assert_eq!(thread.at(begin).unwrap(), third);
    assert_eq!(thread.at(first.id()).unwrap(), first);
}

#[test]
fn a_short_id_stays_unique() {
    let (store, clock) = store();
    let thread = store.thread("day").unwrap();
    let mut printed = Vec::new();
    // Pauses from 1 microsecond to 70 minutes between checkpoints, and a short id of each soon after.
    for n in 0..cases(400, 2_000) {
        let snapshot = add(&thread, 0);
        clock.advance(Duration::from_micros(1 << (n * 7 % 24)));
        printed.push((snapshot.short_id().unwrap(), snapshot));
        clock.advance(Duration::from_micros(1 << (n * 11 % 33)));
    }
    for (short, snapshot) in &printed {
        assert_eq!(thread.at(short).unwrap(), *snapshot, "{short}");
    }
    let digits: usize = printed.iter().map(|(short, _)| short.len()).sum();
    assert!(digits <= 13 * printed.len(), "{digits} digits of {} ids", printed.len());
}

#[test]
fn the_short_ids_of_a_listing_are_those_of_its_checkpoints() {
    let (store, clock) = store();
    let thread = store.thread("t").unwrap();
    for n in 0..40 {
        add(&thread, n);
        clock.advance(Duration::from_micros(1 << (n % 30)));
    }
    let all: Vec<Snapshot> = thread.history().unwrap().map(|s| s.unwrap()).collect();
    let ids: Vec<_> = all.iter().map(Snapshot::id).collect();
    for (snapshot, short) in all.iter().zip(short_ids(&ids, store.now())) {
        assert_eq!(&thread.at(&short).unwrap(), snapshot);
        assert!(snapshot.short_id().unwrap().starts_with(&short) || short.starts_with(&snapshot.short_id().unwrap()));
        assert!(short.len() == 4 || snapshot == &all[0] || thread.at(&short[..short.len() - 1]).is_err(), "{short}");
    }
    assert!(short_ids(&[], store.now()).is_empty());
}
