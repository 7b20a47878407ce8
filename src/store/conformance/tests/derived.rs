//! The answers that follow from other reads, of which the backend in memory has no others.

use super::{lineage, on_memory};
use crate::store::conformance::build::*;
use crate::store::conformance::{Case, claims, pruning};
use crate::store::memory::MemoryBackend;

/// A log without queues.
#[derive(Debug, Default)]
struct WithoutQueues(MemoryBackend);

impl Layer for WithoutQueues {
    fn below(&self) -> &dyn Log {
        &self.0
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities { queues: None, ..self.0.capabilities() }
    }
}

#[test]
fn runs_of_a_log_without_queues_are_claimed_by_commits() {
    let cases: [Case; 6] = [claims::order, claims::timers, claims::limits, claims::rates, claims::lapsed, claims::race];
    cases.iter().for_each(|case| case(&WithoutQueues::default()));
}

#[test]
fn the_checkpoints_of_a_lineage_are_found_by_their_ordinals() {
    on_memory(|backend| {
        let [place, fork] = &lineage::forked(backend);
        let found = backend.ancestors(&fork.point(6), &[4, 2, 4, u64::MAX]).unwrap();
        let points: Vec<_> = found.into_iter().map(|record| record.map(|record| record.point)).collect();
        assert_eq!(points, [Some(fork.point(6)), Some(place.point(3)), Some(fork.point(6)), None]);
        assert!(backend.ancestors(&place.point(2), &[]).unwrap().is_empty());
    });
}

#[test]
fn a_search_of_a_list_finds_each_item_that_was_put_and_what_became_of_it() {
    on_memory(|backend| {
        let [place, fork] = &lineage::searched(backend);
        let search = |place: &CasePlace<'_>, n: u64, channel: &str, text: &str| -> Vec<String> {
            let found = backend.search_list(&place.point(n), channel, text).unwrap();
            let line = |StoredListChange { positions, ordinal, op, .. }| match op {
                ListChangeOp::Match(payload) => format!("{ordinal} {}={}", positions.start, text_of(&payload.data)),
                ListChangeOp::Other => format!("{ordinal} {}=", positions.start),
                ListChangeOp::Delete => format!("{ordinal} {}-", positions.start),
            };
            found.into_iter().map(line).collect()
        };
        assert_eq!(search(fork, 6, "list", "x"), ["0 0=x", "2 0-"]);
        assert_eq!(search(fork, 6, "list", "w"), ["4 3=w"]);
        assert_eq!(search(place, 4, "list", "w"), [""; 0], "another lineage has it");
        assert_eq!(search(place, 2, "list", "x"), ["0 0=x"], "a later delete does not show");
        assert_eq!(search(place, 4, "list", ""), ["0 0=x", "0 1=y", "1 2=z", "2 0-"], "an empty text is in all");
        assert_eq!(search(place, 4, "a", "1"), [""; 0], "it is not a list");
        assert_eq!(search(place, 7, "list", "again"), ["0 1=", "4 1=x again"]);
        assert_eq!(search(place, 7, "list", "z"), ["1 2=z", "4 2-"]);
        let mut found = search(place, 9, "list", "z");
        found.retain(|line| line.contains('='));
        assert_eq!(found, ["0 0=", "1 2=z", "6 0=z"], "a list may become a value and a list again");
    });
}

#[test]
fn the_item_with_an_id_is_found_whatever_was_done_to_its_list() {
    on_memory(|backend| {
        let [place, fork] = &lineage::with_ids(backend);
        let find = |place: &CasePlace<'_>, n: u64, id: &str| {
            let mut found = None;
            let visited = backend.find_item(&place.point(n), "list", id, &mut |row| {
                let text = row.payload.index.and_then(|index| index.text).unwrap_or_default();
                found = Some(format!("{}={text}", row.position));
                Ok(())
            });
            assert_eq!(visited.unwrap(), found.is_some());
            found.unwrap_or_default()
        };
        (2..=20).for_each(|n: u64| assert_eq!(find(place, 20, &n.to_string()), format!("{}=", n + 1)));
        for (place, n, id, found) in [
            (place, 20, lineage::UUID, "1=1"),
            (place, 21, lineage::UUID, "1=edited"),
            (place, 20, "a", "0=0"),
            (place, 20, "c", "2=2"),
            (place, 21, "3", ""),
            (place, 21, "renamed", "4="),
            (place, 20, "4", "5="),
            (place, 21, "4", ""),
            (place, 5, "20", ""),
            (place, 20, "none", ""),
            (fork, 31, "5", "6="),
            (fork, 31, "20", ""),
            (fork, 31, "forked", "12="),
            (place, 21, "forked", ""),
        ] {
            assert_eq!(find(place, n, id), found, "item {id} at checkpoint {n} of {}", place.thread);
        }
    });
}

#[test]
fn checkpoints_are_found_by_the_first_characters_of_their_ids() {
    on_memory(|backend| {
        let ([place, _], named) = &lineage::prefixed(backend);
        let find = |place: &CasePlace<'_>, prefix: &str, limit| {
            let found = backend.checkpoints_by_prefix(&place.thread, prefix, limit).unwrap();
            found.iter().map(|record| record.point.checkpoint).collect::<Vec<_>>()
        };
        let whole = named[0].to_string();
        for (prefix, expected) in [
            (&*whole, &named[..1]),
            (&whole.replace('-', ""), &named[..1]),
            ("1f0e3dae", &named[2..]),
            ("1f0e3dae-", &named[2..]),
            ("1f0e3dae0", &named[2..]),
            // All namespaces of the thread are looked through.
            ("1f0e3dad-9990-6345-8012-a", &named[1..2]),
            ("1f0e3dad99906345", &named[..2]),
            ("1f0e3dad-9990-6", &named[..2]),
            ("1", &named[..]),
        ] {
            assert_eq!(find(place, prefix, 10), expected, "{prefix}: the oldest first");
        }
        assert_eq!(find(place, "1", 2), named[..2]);
        for none in ["2", "1f0e3daf", "1f0e3dad-9990-6345-8012-00000000000100", "1f0e3dadx", "%", "_f0e", "1f0e3dad'"] {
            assert_eq!(find(place, none, 10), [], "{none:?} fits nothing");
        }
        assert_eq!(find(&root_of(backend, "unknown"), "1", 10), []);
    });
}

#[test]
fn the_last_checkpoint_of_a_run_with_a_key_is_found() {
    on_memory(|backend| {
        let [place, other] = roots(backend, ["runs", "other"]);
        let inside = place.inside("a:1");
        let found = |place: &CasePlace<'_>, run: &RunId| {
            let record = backend.last_of_run(&place.thread, &place.namespace, run).unwrap();
            record.map(|record| (record.point.thread, number(record.point.checkpoint)))
        };
        assert_eq!(found(&place, &RunId::from_key(&place.thread, "1")), None);
        let [first, second, random] = lineage::of_runs(backend, &place);
        let at = |place: &CasePlace<'_>, n: u64| Some((place.thread.clone(), n));
        assert_eq!(found(&place, &first), at(&place, 2), "the newest of the run, not of the thread");
        assert_eq!([found(&place, &second), found(&inside, &first)], [at(&place, 3), at(&inside, 5)]);
        assert_eq!([found(&other, &first), found(&other, &second)], [at(&other, 6), None]);
        assert_eq!(found(&place, &random), None, "only runs with a key are found");
    });
}

#[test]
fn branches_are_listed_with_the_places_that_they_leave() {
    on_memory(|backend| {
        let place = lineage::branched(backend);
        let branches = |place: &CasePlace<'_>| {
            let found = backend.branches(&place.thread, &place.namespace).unwrap();
            assert!(found.iter().all(|of| of.last == place.record(number(of.last.point.checkpoint))), "whole records");
            found.into_iter().map(|of| (number(of.last.point.checkpoint), of.leaves)).collect::<Vec<_>>()
        };
        assert!(branches(&root_of(backend, "none")).is_empty());
        let branch = |n| place.record(n).branch;
        let expected = [(44, Some((branch(42), 21))), (43, None), (42, Some((branch(1), 19))), (40, None)];
        assert_eq!(branches(&place), expected, "the newest first, each with its last checkpoint");
        let leaves = branches(&place.inside("sub"));
        assert_eq!(leaves, [(50, Some((branch(40), 39)))], "a fork leaves a branch of another namespace");
    });
}

#[test]
fn checkpoints_on_which_others_rest_are_not_pruned() {
    let backend = &MemoryBackend::new();
    let [place, fork] = roots(backend, ["t", "fork"]);
    let inside = place.inside("a:1");
    pruning::fill(&place, 1..=40);
    for n in 41..=45 {
        place.add(on(n, if n == 41 { 10 } else { n - 1 }).items("list", 100 + n, vec![put(n, "on a branch")]));
    }
    for n in 100..=103 {
        let draft = if n == 100 { fork_of(n, place.point(20)) } else { on(n, n - 1) };
        let draft = draft.value("x", 100 + n, "of the fork").items("list", 100 + n, vec![put(n, "of the fork")]);
        fork.add(draft);
    }
    inside.add(begin(200).items("list", 1, vec![place.reference(30), put(90, "beside")]));
    operate(backend, 300, vec![names(&place, "named", None, Some(34))]);
    assert_eq!(place.prune(1, 40).checkpoints, 35);
    assert_eq!(place.stored(), [45, 44, 43, 42, 41, 40, 34, 30, 20, 10]);
    assert_eq!([place.prune(41, 44), fork.prune(100, 102)].map(|of| of.checkpoints), [4, 3]);
    // The checkpoints below a deleted fork can be pruned.
    fork.delete();
    reclaim(backend);
    assert_eq!(place.prune(20, 20).checkpoints, 1);
    pruning::leave_nothing(backend, &[&place]);
}
