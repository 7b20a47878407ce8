//! The tree of a list: its shape, and how many keys a search reads.

use std::cell::Cell;

use super::*;

/// Returns the most keys that a search for one of the keys of a leaf reads.
fn most_reads<K: TreeKey>(keys: &[K]) -> usize {
    let leaf = TreeNode::Leaf(keys.iter().map(|key| (*key, ())).collect());
    let range = KeyRange::of(&leaf).unwrap();
    let reads_of = |(at, key): (usize, &K)| {
        let reads = Cell::new(0);
        let nth = |at: usize| {
            reads.set(reads.get() + 1);
            keys[at]
        };
        assert_eq!(range.search(keys.len(), key, nth), at + 1);
        reads.get()
    };
    keys.iter().enumerate().map(reads_of).max().unwrap()
}

#[test]
fn a_position_among_others_without_gaps_is_guessed() {
    for low in [0, 100, u64::MAX - 33] {
        let keys: Vec<u64> = (low..low + 32).collect();
        assert!(most_reads(&keys) <= 2, "from {low} on {} keys are read", most_reads(&keys));
    }
}

#[test]
fn a_hash_among_others_spread_evenly_is_guessed() {
    let keys: Vec<(u32, u32)> = (0..32).map(|n| (n << 27, n)).collect();
    assert!(most_reads(&keys) <= 2, "{} keys are read", most_reads(&keys));
}

#[test]
fn the_keys_below_a_child_end_where_the_next_child_begins() {
    let child = |first: u64| Child { first, len: 1, node: Arc::new(TreeNode::Leaf(vec![(first, ())])) };
    let children = [child(0), child(10), child(20)];
    let below = |key: u64| {
        let (at, range) = KeyRange { low: 0, high: 30 }.child(&children, &key);
        (at, range.low, range.high)
    };
    assert_eq!([9, 10, 12, 25].map(below), [(0, 0, 10), (1, 10, 20), (1, 10, 20), (2, 20, 30)]);
}

#[test]
fn a_tree_is_no_higher_than_what_is_left_in_it() {
    let mut tree = Tree::from_ascending((0..2_000_u64).map(|key| (key, key)).collect());
    assert!(matches!(&**tree.root(), TreeNode::Branch(_)));
    (3..2_000).for_each(|key| assert_eq!(tree.remove(&key), Some(key)));
    let TreeNode::Leaf(left) = &**tree.root() else { panic!("three entries need no branch") };
    assert_eq!((left.as_slice(), tree.len()), ([(0, 0), (1, 1), (2, 2)].as_slice(), 3));
}

/// Returns the keys below a node, which must be in order, no node having more than it may.
fn keys_below(node: &TreeNode<u64, ()>) -> Vec<u64> {
    match node {
        TreeNode::Leaf(entries) => {
            assert!((1..=NODE_ENTRIES).contains(&entries.len()), "a leaf has {} entries", entries.len());
            entries.iter().map(|entry| entry.0).collect()
        }
        TreeNode::Branch(children) => {
            assert!((1..=NODE_ENTRIES).contains(&children.len()), "a branch has {} children", children.len());
            let of_child = |child: &Child<u64, ()>| {
                let keys = keys_below(&child.node);
                assert_eq!((child.first, child.len), (keys[0], keys.len()));
                keys
            };
            children.iter().flat_map(of_child).collect()
        }
    }
}

#[test]
fn a_full_node_is_split_wherever_an_entry_comes() {
    for at in 0..=NODE_ENTRIES as u64 {
        let mut tree = Tree::from_ascending((0..NODE_ENTRIES as u64).map(|n| (n * 10 + 5, ())).collect());
        assert_eq!(tree.insert(at * 10, ()), None);
        let mut expected: Vec<u64> = (0..NODE_ENTRIES as u64).map(|n| n * 10 + 5).collect();
        expected.insert(at as usize, at * 10);
        assert_eq!(keys_below(tree.root()), expected);
        for (rank, key) in expected.iter().enumerate() {
            assert_eq!((tree.get(key), tree.rank(key)), (Some(&()), rank));
        }
    }
}

#[test]
fn no_node_grows_past_its_size_in_any_order_of_keys() {
    let orders: [fn(u64) -> u64; 4] = [|n| n, |n| 2_000 - n, |n| n * 7_919 % 2_003, |n| (n % 2) * 5_000 + n];
    for order in orders {
        let mut tree = Tree::from_ascending(Vec::new());
        let mut expected: Vec<u64> = (0..2_000).map(order).collect();
        expected.iter().for_each(|key| assert_eq!(tree.insert(*key, ()), None));
        expected.sort_unstable();
        assert_eq!(keys_below(tree.root()), expected);
        for (rank, key) in expected.iter().enumerate() {
            assert_eq!((tree.get(key), tree.rank(key)), (Some(&()), rank));
        }
    }
}
