//! The list against a plain vector of positions and values, with clones kept alive.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use proptest::prelude::*;

use super::{Keyed, List};

#[derive(Clone, Debug, PartialEq)]
struct Item {
    key: Option<String>,
    value: u32,
}

impl Keyed for Item {
    fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

fn item(key: &str, value: u32) -> Item {
    // An item without key must never be found.
    Item { key: (key != "none").then(|| key.to_owned()), value }
}

#[derive(Clone, Debug)]
enum Op {
    Push(String, u32),
    PushMany(u32),
    InsertAt(u64, String, u32),
    Replace(usize, String, u32),
    Remove(usize),
    RemoveMany(usize, usize),
    Clear,
    Find(String),
    Keep,
}

fn op() -> impl Strategy<Value = Op> {
    // Beyond 32 bits the index keeps them elsewhere.
    let edge = u64::from(u32::MAX);
    let position = prop_oneof![3 => 0..400u64, 1 => edge - 40..edge + 40];
    let key = || prop_oneof!["[a-f]", Just("none".to_owned()), (0..200u32).prop_map(|n| format!("m{n}"))];
    prop_oneof![
        6 => (key(), any::<u32>()).prop_map(|(key, value)| Op::Push(key, value)),
        3 => (0..120u32).prop_map(Op::PushMany),
        2 => (position, key(), any::<u32>()).prop_map(|(position, key, value)| Op::InsertAt(position, key, value)),
        4 => (any::<usize>(), key(), any::<u32>()).prop_map(|(at, key, value)| Op::Replace(at, key, value)),
        4 => any::<usize>().prop_map(Op::Remove),
        2 => (any::<usize>(), 0..80usize).prop_map(|(at, n)| Op::RemoveMany(at, n)),
        1 => Just(Op::Clear),
        6 => key().prop_map(Op::Find),
        3 => Just(Op::Keep),
    ]
}

#[derive(Clone, Default)]
struct Model {
    items: Vec<(u64, Item)>,
    end: u64,
}

impl Model {
    fn put(&mut self, position: u64, item: Item) {
        match self.items.binary_search_by_key(&position, |entry| entry.0) {
            Ok(at) => self.items[at].1 = item,
            Err(at) => self.items.insert(at, (position, item)),
        }
        self.end = self.end.max(position + 1);
    }

    fn find(&self, key: &str) -> Option<u64> {
        self.items.iter().rfind(|entry| entry.1.key() == Some(key)).map(|entry| entry.0)
    }
}

fn step(list: &mut List<Item>, model: &mut Model, op: Op) {
    match op {
        Op::Push(key, value) => {
            assert_eq!(list.push(item(&key, value)), model.end);
            model.put(model.end, item(&key, value));
        }
        Op::PushMany(n) => {
            for i in 0..n {
                list.push(item(&format!("m{i}"), i));
                model.put(model.end, item(&format!("m{i}"), i));
            }
        }
        Op::InsertAt(position, key, value) => {
            list.insert_at_position(position, item(&key, value));
            model.put(position, item(&key, value));
        }
        Op::Replace(at, key, value) => {
            let position = model.items.get(at % model.items.len().max(1)).map_or(model.end + 5, |entry| entry.0);
            let taken = !model.items.is_empty();
            assert_eq!(list.replace(position, item(&key, value)), taken);
            if taken {
                model.put(position, item(&key, value));
            }
        }
        Op::Remove(at) => remove(list, model, at, 1),
        Op::RemoveMany(at, n) => remove(list, model, at, n),
        Op::Clear => {
            model.items.clear();
            assert_eq!(list.clear(), model.end);
        }
        Op::Find(key) => {
            let expected = if key == "none" { None } else { model.find(&key) };
            assert_eq!(list.find(&key), expected, "key {key}");
        }
        Op::Keep => {}
    }
}

fn remove(list: &mut List<Item>, model: &mut Model, at: usize, n: usize) {
    let at = at % model.items.len().max(1);
    let end = (at + n).min(model.items.len());
    for (position, value) in model.items.drain(at.min(end)..end) {
        assert_eq!(list.remove(position).as_deref(), Some(&value));
        assert_eq!(list.remove(position), None);
    }
}

/// Returns the place of the item at a position.
fn index_of<T>(list: &List<T>, position: u64) -> Option<usize> {
    list.items.get(&position).map(|_| list.items.rank(&position))
}

fn check(list: &List<Item>, model: &Model) {
    let positions: Vec<_> = list.iter_positions().map(|(position, item)| (position, Item::clone(item))).collect();
    assert_eq!(positions, model.items);
    assert_eq!((list.len(), list.end_position(), list.iter().len()), (model.items.len(), model.end, model.items.len()));
    assert!(list.iter().rev().eq(model.items.iter().rev().map(|entry| &entry.1)));
    for (place, (position, value)) in model.items.iter().enumerate() {
        assert_eq!((list.get(place), list.position_of(place)), (Some(value), Some(*position)));
        assert_eq!(index_of(list, *position), Some(place));
        assert_eq!(list.at_position(*position).map(|item| &**item), Some(value));
    }
    assert_eq!((list.get(list.len()), index_of(list, model.end)), (None, None));
}

proptest! {
    #[test]
    fn the_list_does_what_a_vector_does(ops in prop::collection::vec(op(), 0..60)) {
        let (mut list, mut model) = (List::new(), Model::default());
        let mut kept: Vec<(List<Item>, Model)> = Vec::new();
        for op in ops {
            if matches!(op, Op::Keep) {
                kept.push((list.clone(), model.clone()));
                // Going on with an older clone every now and then makes branches.
                if kept.len().is_multiple_of(3) {
                    (list, model) = kept[kept.len() / 2].clone();
                }
            }
            step(&mut list, &mut model, op);
        }
        kept.push((list, model));
        for (mut list, model) in kept {
            check(&list, &model);
            for key in ["a", "b", "f", "m0", "m50", "m199"] {
                assert_eq!(list.find(key), model.find(key));
            }
        }
    }

    #[test]
    fn an_iterator_walks_from_both_ends(
        n in 0..200usize, steps in prop::collection::vec((any::<bool>(), 0..40usize), 0..30)
    ) {
        let list: List<usize> = (0..n).collect();
        let plain: Vec<usize> = (0..n).collect();
        let (mut ours, mut theirs) = (list.iter(), plain.iter());
        for (forward, by) in steps {
            let pair = if forward { (ours.nth(by), theirs.nth(by)) } else { (ours.nth_back(by), theirs.nth_back(by)) };
            prop_assert_eq!(pair.0, pair.1);
            prop_assert_eq!(ours.len(), theirs.len());
        }
        prop_assert!(ours.eq(theirs));
        prop_assert!(list.tail(7).eq(plain[n.saturating_sub(7)..].iter()));
    }
}

#[test]
fn it_reads_like_a_slice() {
    let list = List::from(vec![3, 1, 2]);
    assert_eq!((list[1], list.first(), list.last(), list.get(3)), (1, Some(&3), Some(&2), None));
    assert_eq!(format!("{list:?}"), "[3, 1, 2]");
    assert_eq!(serde_json::to_string(&list).unwrap(), "[3,1,2]");
    assert_eq!(serde_json::from_str::<List<i32>>("[3,1,2]").unwrap(), list);
    assert_ne!(List::from(vec![3, 1]), list);
    assert!(list.is_same(&list.clone()) && List::<i32>::default().is_empty());
    let mut sum = 0;
    for item in &list {
        sum += item;
    }
    assert_eq!(sum, 6);
}

#[test]
fn slots_far_apart_cost_nothing() {
    let mut list = List::new();
    for position in [u64::MAX - 2, 0, 1 << 40, 7] {
        list.insert_at_position(position, position);
    }
    assert_eq!(list.to_vec(), [0, 7, 1 << 40, u64::MAX - 2]);
    assert_eq!(list.end_position(), u64::MAX - 1);
}

#[test]
fn a_slot_is_found_however_slots_are_spread() {
    let spreads: [fn(u64) -> u64; 4] =
        [|n| n, |n| n * n * n, |n| n + (1 << (n / 16)), |n| u64::MAX - (n + 1) * (n + 1)];
    for spread in spreads {
        let mut list = List::new();
        let taken: BTreeSet<u64> = (0..1_000).map(spread).collect();
        for position in &taken {
            list.insert_at_position(*position, *position);
        }
        for position in taken.iter().flat_map(|position| [position.saturating_sub(1), *position, position + 1]) {
            let expected = taken.contains(&position).then_some(position);
            assert_eq!(
                (list.at_position(position).map(|item| **item), list.replace(position, position)),
                (expected, expected.is_some())
            );
        }
    }
}

#[test]
fn what_nobody_shares_is_replaced_where_it_lies() {
    let mut list = List::from(vec![1, 2]);
    let address = |list: &List<i32>| list.at_position(1).map(Arc::as_ptr);
    let before = address(&list);
    list.replace(1, 3);
    assert_eq!((list.to_vec(), address(&list)), (vec![1, 3], before));
    let kept = list.clone();
    list.replace(1, 4);
    assert_eq!((list.to_vec(), kept.to_vec()), (vec![1, 4], vec![1, 3]));
}

#[test]
fn a_list_loaded_at_once_equals_one_loaded_item_by_item() {
    let gaps: Vec<u64> = (0..3_000).map(|n| n * 3 + n % 2).collect();
    let mixed: Vec<u64> = (0..200).map(|n| (n * 37) % 101).collect();
    for positions in
        [vec![], vec![u64::MAX - 2], (0..32).collect(), (0..33).collect(), (0..1_025).collect(), gaps, mixed]
    {
        for held in [0, 5] {
            let mut one_by_one: List<Item> = (0..held).map(|n| item(&format!("held{n}"), n)).collect();
            let mut at_once = one_by_one.clone();
            let loaded = |position: &u64| (*position, Arc::new(item(&format!("m{position}"), *position as u32)));
            positions
                .iter()
                .for_each(|position| one_by_one.insert_at_position(*position, (*loaded(position).1).clone()));
            at_once.load(positions.iter().map(loaded).collect());
            assert_eq!((&at_once, at_once.end_position()), (&one_by_one, one_by_one.end_position()));
            for position in positions.iter().flat_map(|position| [*position, position / 2]) {
                assert_eq!(index_of(&at_once, position), index_of(&one_by_one, position));
                assert_eq!(at_once.find(&format!("m{position}")), one_by_one.find(&format!("m{position}")));
            }
            at_once.push(item("later", 1));
            assert_eq!(at_once.last(), Some(&item("later", 1)));
        }
    }
}

#[test]
fn a_load_puts_one_item_at_each_position() {
    let loaded = |items: &[(u64, u32)]| {
        let mut list = List::new();
        list.load(items.iter().map(|(position, value)| (*position, Arc::new(*value))).collect());
        let entries: Vec<(u64, u32)> = list.iter_positions().map(|(position, item)| (position, **item)).collect();
        (entries, list.end_position())
    };
    assert_eq!(loaded(&[(5, 1), (5, 2)]), (vec![(5, 2)], 6));
    assert_eq!(loaded(&[(5, 1), (5, 2), (6, 3)]), (vec![(5, 2), (6, 3)], 7));
    assert_eq!(loaded(&[(9, 1), (5, 2), (2, 3)]), (vec![(2, 3), (5, 2), (9, 1)], 10));
}

#[test]
fn lists_are_equal_if_all_their_items_are() {
    let list = List::from(vec![3, 1, 2]);
    assert_eq!(list, List::from(vec![3, 1, 2]));
    for other in [vec![3, 1, 4], vec![4, 1, 2], vec![3, 1], vec![3, 1, 2, 2], vec![]] {
        assert_ne!(list, List::from(other));
    }
    let mut moved = List::starting_at(7);
    moved.extend([3, 1, 2]);
    assert_eq!(list, moved, "positions do not count");
}

#[test]
fn the_place_of_a_position_counts_all_items_before_it() {
    let mut list: List<u64> = (0..5_000).collect();
    list.remove(10);
    for position in [0, 9, 11, 33, 1_024, 2_500, 4_999] {
        let place = position as usize - usize::from(position > 10);
        assert_eq!((index_of(&list, position), list.position_of(place)), (Some(place), Some(position)));
        assert_eq!(list.iter_from(position).next().map(|entry| entry.0), Some(position));
    }
    assert_eq!((index_of(&list, 10), index_of(&list, 5_000)), (None, None));
}

#[test]
fn an_item_past_the_32_bit_positions_is_found_by_its_key() {
    let mut list = List::new();
    let far = 1 << 40;
    list.insert_at_position(far, item("far", 1));
    assert_eq!(list.find("far"), Some(far));
    for (position, key) in [(3, "near"), (4, "both"), (far + 1, "both")] {
        list.insert_at_position(position, item(key, 1));
    }
    let found = ["near", "far", "both", "other"].map(|key| list.find(key));
    assert_eq!(found, [Some(3), Some(far), Some(far + 1), None]);
    assert!(list.remove(far + 1).is_some() && list.replace(far, item("new", 1)));
    let found = ["near", "far", "both", "new"].map(|key| list.find(key));
    assert_eq!(found, [Some(3), None, Some(4), Some(far)]);
}

/// An item that counts how often its key is read.
struct ReadCounted(String, Rc<Cell<usize>>);

impl Keyed for ReadCounted {
    fn key(&self) -> Option<&str> {
        self.1.set(self.1.get() + 1);
        Some(&self.0)
    }
}

#[test]
fn a_find_reads_the_keys_that_came_since_the_last_one() {
    let reads = Rc::new(Cell::new(0));
    let counted = |n: u64| ReadCounted(format!("k{n}"), Rc::clone(&reads));
    let mut list: List<ReadCounted> = (0..100).map(counted).collect();
    assert_eq!((list.find("k7"), reads.replace(0)), (Some(7), 101));
    assert_eq!((list.find("k8"), reads.replace(0)), (Some(8), 1));
    list.extend((100..150).map(counted));
    assert_eq!(reads.get(), 0, "a push reads no key");
    assert_eq!((list.find("k120"), reads.replace(0)), (Some(120), 51));
}

#[test]
fn a_key_that_no_item_has_any_more_is_not_looked_for_in_items() {
    let reads = Rc::new(Cell::new(0));
    let counted = |key: &str| ReadCounted(key.to_owned(), Rc::clone(&reads));
    let mut list: List<ReadCounted> = (0..100).map(|_| counted("old")).collect();
    assert_eq!(list.find("old"), Some(99));
    (0..100).for_each(|position| assert!(list.replace(position, counted("new"))));
    reads.set(0);
    assert_eq!((list.find("old"), reads.replace(0)), (None, 0));
    assert_eq!((list.find("new"), reads.replace(0)), (Some(99), 1));
}

#[test]
#[should_panic(expected = "past the end")]
fn a_place_past_the_end_panics_as_in_a_slice() {
    let _ = List::<i32>::new()[0];
}
