//! The change of a stored list that makes it another one.
//!
//! Invariant: an item that stays keeps its position and is not stored again. *Absent:* payloads, which the caller asks
//! for by index.

use std::collections::HashMap;
use std::ops::Range;

use annals::store::batch::{Data, ItemChange, ItemOp};

use crate::Result;
use crate::typed::Digest;

/// An item of a stored list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListSlot {
    pub(crate) position: u64,
    pub(crate) digest: Digest,
}

/// Successive items of the new list: those of the old one with these indexes, or another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Old(Range<usize>),
    New(Digest),
}

impl Wanted {
    /// Returns the number of the items.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Old(indexes) => indexes.len(),
            Self::New(_) => 1,
        }
    }
}

/// An operation on the old list; `V` tells the item that it puts. Range deletes come before the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotOp<V> {
    DeleteRange { from: u64, end: u64 },
    Delete { position: u64 },
    Put { position: u64, item: V },
}

impl<V> SlotOp<V> {
    /// Returns the operation with another description of the item that it puts.
    pub(crate) fn map<W>(self, item_of: impl FnOnce(V) -> Result<W>) -> Result<SlotOp<W>> {
        Ok(match self {
            Self::DeleteRange { from, end } => SlotOp::DeleteRange { from, end },
            Self::Delete { position } => SlotOp::Delete { position },
            Self::Put { position, item } => SlotOp::Put { position, item: item_of(item)? },
        })
    }
}

impl SlotOp<Data> {
    /// Returns the change of the stored list.
    pub(crate) fn into_change(self) -> ItemChange {
        let (position, op) = match self {
            Self::DeleteRange { from, end } => (from, ItemOp::DeleteRange { end }),
            Self::Delete { position } => (position, ItemOp::Delete),
            Self::Put { position, item } => (position, ItemOp::Put(item)),
        };
        ItemChange::new(position, op, None)
    }
}

/// The positions of a list end here.
pub(crate) const POSITION_END: u64 = i64::MAX.cast_unsigned();

/// Compares a list with its predecessor, item by item.
pub(crate) fn matched(old: &[ListSlot], new: &[Digest]) -> Vec<Wanted> {
    let same_start = old.iter().zip(new).take_while(|(slot, digest)| slot.digest == **digest).count();
    let rest = old.len().min(new.len()) - same_start;
    let same_end =
        old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(slot, digest)| slot.digest == **digest).count();
    let (old_middle, new_middle) = (same_start..old.len() - same_end, same_start..new.len() - same_end);
    let mut places: HashMap<Digest, Vec<usize>> = HashMap::new();
    for at in old_middle.clone().rev() {
        places.entry(old[at].digest).or_default().push(at);
    }
    let mut cursor = old_middle.start;
    let mut wanted = vec![Wanted::Old(0..same_start)];
    for digest in &new[new_middle] {
        let found = places.get_mut(digest).and_then(|places| {
            while places.pop_if(|at| *at < cursor).is_some() {}
            places.pop()
        });
        cursor = found.map_or(cursor, |at| at + 1);
        wanted.push(found.map_or(Wanted::New(*digest), |at| Wanted::Old(at..at + 1)));
    }
    wanted.push(Wanted::Old(old_middle.end..old.len()));
    wanted
}

/// Returns the operations that make a list of another, each put with the index of its item in the new list, and the
/// slots after them. The indexes of old items ascend.
pub(crate) fn change(old: &[ListSlot], wanted: &[Wanted]) -> (Vec<SlotOp<usize>>, Vec<ListSlot>) {
    let (mut ops, mut slots) = (Vec::new(), Vec::with_capacity(old.len() + wanted.len()));
    let (mut at, mut next_old) = (0, 0);
    while at < wanted.len() || next_old < old.len() {
        // The new items before the next ones that stay, and the old ones that go there.
        let count = wanted[at..].iter().take_while(|wanted| matches!(wanted, Wanted::New(_))).count();
        let stay = match wanted.get(at + count) {
            Some(Wanted::Old(indexes)) => indexes.clone(),
            _ => old.len()..old.len(),
        };
        let free = &old[next_old..stay.start];
        let reused = free.len().min(count);
        let after = free[..reused].last().or(old[..next_old].last()).map_or(0, |slot| slot.position + 1);
        let fresh = slots.last().map_or(0, |slot: &ListSlot| slot.position + 1).max(after);
        let room = old.get(stay.start).map_or(POSITION_END, |slot| slot.position) - fresh;
        if ((count - reused) as u64) > room {
            rewrite(old, &wanted[at..], next_old, &mut ops, &mut slots);
            return (ops, slots);
        }
        for (index, wanted) in wanted[at..at + count].iter().enumerate() {
            let position = free.get(index).map_or(fresh + (index - reused.min(index)) as u64, |slot| slot.position);
            let Wanted::New(digest) = *wanted else { continue };
            ops.push(SlotOp::Put { position, item: slots.len() });
            slots.push(ListSlot { position, digest });
        }
        delete(&free[reused..], &mut ops);
        slots.extend_from_slice(&old[stay.clone()]);
        (at, next_old) = (at + count + 1, stay.end);
    }
    debug_assert!(slots.is_sorted_by(|a, b| a.position < b.position), "positions ascend");
    (ops, slots)
}

/// Deletes the old items from `next_old` on, and puts all later ones behind them: two items have no room between them.
fn rewrite(
    old: &[ListSlot],
    wanted: &[Wanted],
    next_old: usize,
    ops: &mut Vec<SlotOp<usize>>,
    slots: &mut Vec<ListSlot>,
) {
    delete(&old[next_old..], ops);
    let mut position = old.last().map_or(0, |slot| slot.position + 1);
    let mut put = |digest| {
        ops.push(SlotOp::Put { position, item: slots.len() });
        slots.push(ListSlot { position, digest });
        position += 1;
    };
    for wanted in wanted {
        match wanted {
            Wanted::Old(indexes) => old[indexes.clone()].iter().for_each(|slot| put(slot.digest)),
            Wanted::New(digest) => put(*digest),
        }
    }
}

fn delete(slots: &[ListSlot], ops: &mut Vec<SlotOp<usize>>) {
    match slots {
        [] => {}
        [one] => ops.push(SlotOp::Delete { position: one.position }),
        [first, .., last] => ops.push(SlotOp::DeleteRange { from: first.position, end: last.position + 1 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn digest(n: u8) -> Digest {
        [n; 16]
    }

    /// Applies the operations as the log does, and returns the list.
    fn applied(old: &[ListSlot], ops: &[SlotOp<usize>], new: &[u8]) -> Vec<u8> {
        let mut list: BTreeMap<u64, u8> = old.iter().map(|slot| (slot.position, slot.digest[0])).collect();
        for op in ops {
            if let SlotOp::DeleteRange { from, end } = op {
                list.retain(|position, _| !(from..end).contains(&position));
            }
        }
        for op in ops {
            match op {
                SlotOp::Put { position, item } => _ = list.insert(*position, new[*item]),
                SlotOp::Delete { position } => assert!(list.remove(position).is_some()),
                SlotOp::DeleteRange { .. } => {}
            }
        }
        list.into_values().collect()
    }

    #[test]
    fn a_change_makes_the_new_list_and_keeps_what_stays() {
        let mut slots: Vec<ListSlot> = Vec::new();
        for (new, puts) in [
            (&[1, 2, 3][..], 3),
            (&[1, 2, 3, 4], 1),
            (&[1, 2, 3, 4], 0),
            (&[1, 9, 3, 4], 1),
            (&[3, 4, 5], 1),
            (&[4, 5], 0),
            (&[6, 4, 5, 7], 2),
            (&[4, 6, 5, 7], 3),
            (&[4, 6, 8, 8, 8, 5, 7], 5),
            (&[], 0),
            (&[1, 1, 1], 3),
            (&[1, 2, 1], 1),
        ] {
            let digests: Vec<Digest> = new.iter().map(|n| digest(*n)).collect();
            let (ops, after) = change(&slots, &matched(&slots, &digests));
            assert_eq!(applied(&slots, &ops, new), new, "{slots:?}");
            assert_eq!(after.iter().map(|slot| slot.digest[0]).collect::<Vec<_>>(), new);
            assert_eq!(ops.iter().filter(|op| matches!(op, SlotOp::Put { .. })).count(), puts, "{new:?} {ops:?}");
            slots = after;
        }
    }
}
