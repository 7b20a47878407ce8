//! The difference of two lists. Nodes that both share are passed over, so that the difference of a list and one made
//! from it costs the number of changes between them.

use std::sync::Arc;

use super::List;
use super::tree::{Tree, TreeKey, TreeNode};

/// The difference of one list from another, by position.
#[derive(Debug)]
pub(crate) struct ListDiff<'a, T> {
    /// The positions that hold something else, or something where the other list holds nothing, ascending.
    pub(crate) puts: Vec<(u64, &'a Arc<T>)>,
    /// The positions that hold nothing where the other list holds something, ascending.
    pub(crate) gone: Vec<u64>,
}

impl<T> List<T> {
    /// Returns what this list has in place of what `base` has. Two items at one position are one if they are the same,
    /// or if `is_same` says so.
    pub(crate) fn changed_since<'a>(&'a self, base: &'a Self, is_same: impl Fn(&T, &T) -> bool) -> ListDiff<'a, T> {
        let (mut old, mut new) = (Vec::new(), Vec::new());
        apart(&base.items, &self.items, &mut old, &mut new);
        let mut diff = ListDiff { puts: Vec::new(), gone: Vec::new() };
        let mut old = old.into_iter().peekable();
        for (position, item) in new {
            while let Some((before, _)) = old.next_if(|(before, _)| before < position) {
                diff.gone.push(*before);
            }
            let was = old.next_if(|(at, _)| at == position);
            if !was.is_some_and(|(_, was)| Arc::ptr_eq(was, item) || is_same(was, item)) {
                diff.puts.push((*position, item));
            }
        }
        diff.gone.extend(old.map(|(position, _)| *position));
        debug_assert!(diff.puts.is_sorted_by(|a, b| a.0 < b.0), "each position is put once, in order");
        debug_assert!(diff.gone.is_sorted_by(|a, b| a < b), "each position is removed once, in order");
        diff
    }
}

/// Collects the entries of both trees that do not lie in nodes which both share, in order.
fn apart<'a, K: TreeKey, V: Clone>(
    a: &'a Tree<K, V>,
    b: &'a Tree<K, V>,
    of_a: &mut Vec<&'a (K, V)>,
    of_b: &mut Vec<&'a (K, V)>,
) {
    let (mut a_nodes, mut b_nodes) = (vec![a.root()], vec![b.root()]);
    let (a_height, b_height) = (height(a.root()), height(b.root()));
    for _ in b_height..a_height {
        a_nodes = children(&a_nodes);
    }
    for _ in a_height..b_height {
        b_nodes = children(&b_nodes);
    }
    nodes_apart(&a_nodes, &b_nodes, of_a, of_b);
}

/// The same for nodes of one height, in order.
fn nodes_apart<'a, K: TreeKey, V>(
    a: &[&'a Arc<TreeNode<K, V>>],
    b: &[&'a Arc<TreeNode<K, V>>],
    of_a: &mut Vec<&'a (K, V)>,
    of_b: &mut Vec<&'a (K, V)>,
) {
    let (mut at, mut bt) = (0, 0);
    loop {
        match (a.get(at), b.get(bt)) {
            (Some(x), Some(y)) if Arc::ptr_eq(x, y) => (at, bt) = (at + 1, bt + 1),
            (Some(x), Some(y)) => match x.first().cmp(&y.first()) {
                std::cmp::Ordering::Less => {
                    x.entries(of_a);
                    at += 1;
                }
                std::cmp::Ordering::Greater => {
                    y.entries(of_b);
                    bt += 1;
                }
                std::cmp::Ordering::Equal => {
                    match (&***x, &***y) {
                        (TreeNode::Leaf(x), TreeNode::Leaf(y)) => {
                            of_a.extend(x);
                            of_b.extend(y);
                        }
                        _ => nodes_apart(&children(&[*x]), &children(&[*y]), of_a, of_b),
                    }
                    (at, bt) = (at + 1, bt + 1);
                }
            },
            (Some(x), None) => {
                x.entries(of_a);
                at += 1;
            }
            (None, Some(y)) => {
                y.entries(of_b);
                bt += 1;
            }
            (None, None) => return,
        }
    }
}

fn height<K, V>(mut node: &Arc<TreeNode<K, V>>) -> usize {
    let mut height = 0;
    while let TreeNode::Branch(children) = &**node {
        let Some(first) = children.first() else { break };
        (node, height) = (&first.node, height + 1);
    }
    height
}

fn children<'a, K, V>(nodes: &[&'a Arc<TreeNode<K, V>>]) -> Vec<&'a Arc<TreeNode<K, V>>> {
    let of = |node: &&'a Arc<TreeNode<K, V>>| match &***node {
        TreeNode::Branch(children) => children.as_slice(),
        TreeNode::Leaf(_) => &[],
    };
    nodes.iter().flat_map(of).map(|child| &child.node).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// An edit of a list: the operation and its place.
    type Edit = (u8, u16);

    fn edited(mut list: List<u32>, edits: &[Edit]) -> List<u32> {
        for (what, place) in edits {
            let place = list.position_of(usize::from(*place) % (list.len() + 1));
            match (what % 8, place) {
                (0, Some(position)) => _ = list.remove(position),
                (1 | 2, Some(position)) => _ = list.replace(position, 1_000 + u32::from(*what)),
                (3, _) if *what > 250 => _ = list.clear(),
                _ => _ = list.push(u32::from(*what)),
            }
        }
        list
    }

    fn by_slot(list: &List<u32>) -> BTreeMap<u64, u32> {
        list.iter_positions().map(|(position, item)| (position, **item)).collect()
    }

    proptest! {
        #[test]
        fn a_list_with_what_changed_is_the_other_list(
            length in 0_u32..3_000,
            first in prop::collection::vec(any::<Edit>(), 0..40),
            second in prop::collection::vec(any::<Edit>(), 0..80),
        ) {
            let base = edited((0..length).collect(), &first);
            let list = edited(base.clone(), &second);
            let mut told = by_slot(&base);
            let diff = list.changed_since(&base, |a, b| a == b);
            prop_assert!(diff.puts.len() + diff.gone.len() <= second.len() + base.len());
            for (position, item) in &diff.puts {
                prop_assert_ne!(told.insert(*position, ***item), Some(***item));
            }
            diff.gone.iter().for_each(|position| _ = told.remove(position));
            prop_assert_eq!(told, by_slot(&list));
        }
    }

    #[test]
    fn what_both_share_is_not_looked_at() {
        let base: List<u32> = (0..100_000).collect();
        let mut list = base.clone();
        list.push(7);
        list.replace(50_000, 8);
        list.remove(99_000);
        let compared = std::cell::Cell::new(0);
        let diff = list.changed_since(&base, |a, b| {
            compared.set(compared.get() + 1);
            a == b
        });
        let puts: Vec<u64> = diff.puts.iter().map(|(position, _)| *position).collect();
        assert_eq!((puts, diff.gone), (vec![50_000, 100_000], vec![99_000]));
        let (mut old, mut new) = (Vec::new(), Vec::new());
        apart(&base.items, &list.items, &mut old, &mut new);
        assert!(old.len() + new.len() < 300, "{} and {} entries were looked at", old.len(), new.len());
        assert_eq!(compared.get(), 1, "items that are one need not be compared");
    }
}
