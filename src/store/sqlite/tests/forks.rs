//! Lineages: forks that never see each other, ranges, index snapshots, and state at every point.

use super::*;
use crate::store::record::ChannelValue;
use std::collections::BTreeMap;

fn texts(items: Vec<(u64, String)>) -> Vec<String> {
    items.into_iter().map(|(_, text)| text).collect()
}

#[test]
fn forks_of_one_checkpoint_never_see_each_other() {
    let mut bench = Bench::new();
    let (t, other) = (thread("a"), thread("b"));
    let root = bench.add(&t, None, vec![list(1, vec![put(0, "root"), put(1, "shared")]), value("x", 1, plain(&[0]))]);
    let left = bench.add(&t, Some(root), vec![list(2, vec![put(2, "left")]), value("x", 2, plain(&[1]))]);
    let right = bench.add(&t, Some(root), vec![list(2, vec![put(2, "right"), remove(1)]), value("y", 1, plain(&[2]))]);
    let fork = bench.add_on(&other, Some(Parent::Fork(at(&t, left))), vec![list(3, vec![put(0, "changed")])]);
    assert_eq!(texts(bench.items(&at(&t, root), ItemRange::All)), ["root", "shared"]);
    assert_eq!(texts(bench.items(&at(&t, left), ItemRange::All)), ["root", "shared", "left"]);
    assert_eq!(texts(bench.items(&at(&t, right), ItemRange::All)), ["root", "right"]);
    assert_eq!(texts(bench.items(&at(&other, fork), ItemRange::All)), ["changed", "shared", "left"]);
    assert_eq!(texts(bench.items(&at(&other, fork), ItemRange::Positions(1, 2))), ["shared"]);
    assert_eq!(texts(bench.items(&at(&other, fork), ItemRange::Positions(2, u64::MAX))), ["left"]);
    let state = bench.store.state(&at(&t, right)).unwrap();
    assert_eq!(state.channels[1].value, ChannelValue::Value(plain(&[0])));
    assert_eq!(state.checkpoint.parent, Some(root));
    let record = bench.store.head(&other, &Namespace::root()).unwrap().unwrap();
    assert_eq!((record.parent, record.forked_from), (None, Some(at(&t, left))));
    assert_eq!(bench.store.thread_size(&t).unwrap().branches, 2);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn twenty_nested_forks_read_their_own_history() {
    let mut bench = Bench::new();
    let t = thread("a");
    let mut tip = bench.add(&t, None, vec![list(1, (0..100).map(|position| put(position, "base")).collect())]);
    let mut expected: Vec<String> = vec!["base".into(); 100];
    let mut points = vec![(tip, expected.clone())];
    for n in 0..20_u64 {
        // Something on the old branch makes the next child of `tip` a fork.
        bench.add(&t, Some(tip), vec![list(90 + n, vec![delete_range(0, 1_000), put(5_000 + n, "lost")])]);
        tip = bench.add(&t, Some(tip), vec![list(2 + n, vec![put(n, "fork"), put(100 + n, "new")])]);
        expected[n as usize] = "fork".into();
        expected.push("new".into());
        points.push((tip, expected.clone()));
    }
    assert_eq!(bench.store.head(&t, &Namespace::root()).unwrap().unwrap().ordinal, 20);
    for (id, expected) in points {
        let all = bench.items(&at(&t, id), ItemRange::All);
        assert_eq!(texts(all.clone()), expected);
        for count in [0, 1, 7, 50, 119, 500] {
            let tail = bench.items(&at(&t, id), ItemRange::Tail(count));
            assert_eq!(tail, all[all.len().saturating_sub(count)..], "tail {count}");
        }
    }
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_cut_comes_before_the_puts_of_its_change() {
    let mut bench = Bench::new();
    let t = thread("a");
    let a = bench.add(&t, None, vec![list(1, (0..10).map(|position| put(position, "old")).collect())]);
    let b = bench.add(
        &t,
        Some(a),
        vec![list(2, vec![put(3, "kept"), delete_range(0, 5), delete_range(7, 8), put(10, "new")])],
    );
    let positions =
        |id| -> Vec<u64> { bench.items(&at(&t, id), ItemRange::All).iter().map(|(position, _)| *position).collect() };
    assert_eq!(positions(b), [3, 5, 6, 8, 9, 10]);
    assert_eq!(positions(a), (0..10).collect::<Vec<_>>());
    let c = bench.add(&t, Some(b), vec![list(3, vec![delete_range(4, u64::MAX), put(11, "again")])]);
    let d = bench.add(&t, Some(c), vec![empty("messages", 4)]);
    let e = bench.add(&t, Some(d), vec![list(5, vec![put(12, "after")])]);
    let positions =
        |id| -> Vec<u64> { bench.items(&at(&t, id), ItemRange::All).iter().map(|(position, _)| *position).collect() };
    assert_eq!(positions(c), [3, 11]);
    assert_eq!(positions(d), [0_u64; 0], "a list that became empty has no items");
    assert_eq!(positions(e), [12]);
    assert_eq!(bench.items(&at(&t, e), ItemRange::Tail(5)).len(), 1);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn state_at_every_ordinal_equals_a_replay() {
    let mut bench = Bench::new();
    let t = thread("a");
    let mut model: BTreeMap<String, (u64, Payload, u64)> = BTreeMap::new();
    let mut history = Vec::new();
    let mut tip = None;
    for step in 0..300_u64 {
        let mut changes = Vec::new();
        for channel in 0..12_u64 {
            let rare = channel > 6 && (step + channel) % 97 != 0;
            if rare || (step * 7 + channel) % (channel + 1) != 0 {
                continue;
            }
            let payload = plain(&vec![step as u8; (channel * 9) as usize]);
            let name = format!("c{channel}");
            changes.push(value(&name, step + 1, payload.clone()));
            model.insert(name, (step + 1, payload, step));
        }
        if step == 130 {
            // A fork in the middle of an interval: the lineage reads its index snapshots from the branch it left.
            let side = bench.add(&t, tip, vec![value("c0", 999, plain(&[1]))]);
            assert_ne!(Some(side), tip);
        }
        let id = bench.add(&t, tip, changes);
        tip = Some(id);
        history.push((id, model.clone()));
    }
    for (ordinal, (id, model)) in history.iter().enumerate() {
        let state = bench.store.state(&at(&t, *id)).unwrap();
        assert_eq!(state.checkpoint.ordinal, ordinal as u64);
        let found: BTreeMap<String, (u64, Payload, u64)> = state
            .channels
            .iter()
            .map(|channel| match &channel.value {
                ChannelValue::Value(payload) => {
                    (channel.channel.to_string(), (channel.version, payload.clone(), channel.ordinal))
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(&found, model, "at {ordinal}");
    }
    assert_eq!(bench.check(), Vec::<String>::new());
}
