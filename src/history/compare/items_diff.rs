//! The difference of two lists: items that were added, removed, edited or moved.
//!
//! Items are told apart by their id, those without one by their content. An item is moved if it is in another place
//! among the items that both lists have.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::base::Value;

use super::diff::{Brief, TwinKey, Twins};
use super::patch::{Patch, PatchOp, member, pointer_steps};

/// The difference of an item of a list. An index is a place in the list before (`from`) or after (`to`), from 0.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ItemDiff {
    /// Only the first list has it.
    Removed {
        /// The index before.
        from: usize,
        /// The item.
        value: Value,
    },
    /// Both have it, with different content.
    Edited {
        /// The index before.
        from: usize,
        /// The index after.
        to: usize,
        /// The item before.
        before: Value,
        /// The item after.
        after: Value,
    },
    /// Both have it, in different places; the content may differ too.
    Moved {
        /// The index before.
        from: usize,
        /// The index after.
        to: usize,
        /// The item before.
        before: Value,
        /// The item after.
        after: Value,
    },
    /// Only the second list has it.
    Added {
        /// The index after.
        to: usize,
        /// The item.
        value: Value,
    },
}

/// An item that may differ.
pub(crate) struct DiffItem {
    pub(crate) index: usize,
    pub(crate) position: u64,
    pub(crate) value: Value,
}

impl ItemDiff {
    /// Returns the id of the item, if it has one.
    pub fn id(&self) -> Option<&str> {
        let (Self::Added { value, .. }
        | Self::Removed { value, .. }
        | Self::Edited { after: value, .. }
        | Self::Moved { after: value, .. }) = self;
        value.get("id").and_then(Value::as_str)
    }

    /// Returns the difference of the content as a JSON Patch; `None` of an item that only one list has.
    pub fn patch(&self) -> Option<Patch> {
        match self {
            Self::Edited { before, after, .. } | Self::Moved { before, after, .. } => {
                Some(Patch::between(before, after))
            }
            Self::Added { .. } | Self::Removed { .. } => None,
        }
    }

    /// Returns the second list, given the first.
    pub(crate) fn apply_all(items: &[Self], before: &[Value]) -> Result<Vec<Value>, &'static str> {
        let (mut taken, mut edited, mut put) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
        for item in items {
            let (from, to) = match item {
                Self::Removed { from, value } => (Some((from, value)), None),
                Self::Added { to, value } => (None, Some((to, value))),
                Self::Moved { from, to, before, after } => (Some((from, before)), Some((to, after))),
                Self::Edited { from, before: old, after, .. } => {
                    if before.get(*from) != Some(old) {
                        return Err("an edited item has another value");
                    }
                    edited.insert(*from, after);
                    continue;
                }
            };
            if let Some((from, value)) = from {
                if before.get(*from) != Some(value) {
                    return Err("a removed item has another value");
                }
                taken.insert(*from);
            }
            put.extend(to.map(|(to, value)| (*to, value)));
        }
        let left = before.iter().enumerate().filter(|(at, _)| !taken.contains(at));
        let mut left = left.map(|(at, value)| edited.get(&at).copied().unwrap_or(value));
        let len = before.len() - taken.len() + put.len();
        let mut after = Vec::with_capacity(len);
        for at in 0..len {
            let next = put.remove(&at).or_else(|| left.next());
            after.push(next.ok_or("an added item is past the end")?.clone());
        }
        debug_assert_eq!(after.len(), len);
        Ok(after)
    }

    /// Returns the numbers of items of each kind as a text.
    pub(crate) fn counts(items: &[Self]) -> String {
        let count = |is: fn(&Self) -> bool| items.iter().filter(|item| is(item)).count();
        let counts = [
            (count(|item| matches!(item, Self::Added { .. })), "added"),
            (count(|item| matches!(item, Self::Edited { .. })), "edited"),
            (count(|item| matches!(item, Self::Removed { .. })), "removed"),
            (count(|item| matches!(item, Self::Moved { .. })), "moved"),
        ];
        let counts = counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
        counts.collect::<Vec<_>>().join(", ")
    }
}

/// One line: `+ [3] ai: text`, `- [0] ..`, `~ [1] before -> after`, `> [2 to 5] ..`.
impl fmt::Display for ItemDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added { to, value } => write!(f, "+ [{to}] {}", Brief(value)),
            Self::Removed { from, value } => write!(f, "- [{from}] {}", Brief(value)),
            Self::Edited { to, before, after, .. } => write!(f, "~ [{to}] {} -> {}", Brief(before), Brief(after)),
            Self::Moved { from, to, after, .. } => write!(f, "> [{from} to {to}] {}", Brief(after)),
        }
    }
}

/// Writes the line of an operation that makes a value of `before`.
pub(crate) fn member_line(f: &mut fmt::Formatter<'_>, before: &Value, op: &PatchOp) -> fmt::Result {
    let steps = pointer_steps(op.path()).unwrap_or_default();
    let old = steps.iter().try_fold(before, |value, step| member(value, step));
    let path = op.path().escape_debug();
    match (op, old) {
        (PatchOp::Add { value, .. }, _) => writeln!(f, "  {path}: + {}", Brief(value)),
        (PatchOp::Remove { .. }, Some(old)) => writeln!(f, "  {path}: - {}", Brief(old)),
        (PatchOp::Replace { value, .. }, Some(old)) => writeln!(f, "  {path}: {} -> {}", Brief(old), Brief(value)),
        _ => writeln!(f, "  {path}"),
    }
}

/// Compares the items of two lists that may differ. Both lists have all their other items in common, in one order.
pub(crate) fn compare_items(old: &[DiffItem], new: &[DiffItem]) -> Vec<ItemDiff> {
    let pairs = pairs(old, new);
    let stays = in_order(old, new, &pairs);
    let (mut is_old, mut is_new) = (vec![true; old.len()], vec![true; new.len()]);
    let (mut edited, mut moved) = (Vec::new(), Vec::new());
    for (at, &(a, b)) in pairs.iter().enumerate() {
        (is_old[a], is_new[b]) = (false, false);
        let (from, to) = (old[a].index, new[b].index);
        let (before, after) = (&old[a].value, &new[b].value);
        if !stays.contains(&at) {
            moved.push((to, ItemDiff::Moved { from, to, before: before.clone(), after: after.clone() }));
        } else if before != after {
            edited.push((to, ItemDiff::Edited { from, to, before: before.clone(), after: after.clone() }));
        }
    }
    edited.sort_by_key(|(to, _)| *to);
    moved.sort_by_key(|(to, _)| *to);
    let removed = old.iter().zip(&is_old).filter(|(_, is_old)| **is_old);
    let removed = removed.map(|(item, _)| ItemDiff::Removed { from: item.index, value: item.value.clone() });
    let added = new.iter().zip(&is_new).filter(|(_, is_new)| **is_new);
    let added = added.map(|(item, _)| ItemDiff::Added { to: item.index, value: item.value.clone() });
    removed
        .chain(edited.into_iter().map(|(_, item)| item))
        .chain(moved.into_iter().map(|(_, item)| item))
        .chain(added)
        .collect()
}

/// Returns the items that both lists have: places in `old` and in `new`, by place in `old`.
fn pairs(old: &[DiffItem], new: &[DiffItem]) -> Vec<(usize, usize)> {
    let mut twins: Twins<'_> = Twins::new();
    for (at, item) in old.iter().enumerate() {
        twins.entry(TwinKey::of(&item.value)).or_default().push_back(at);
    }
    let (mut pairs, mut is_left) = (Vec::new(), vec![true; old.len()]);
    let mut alone = Vec::new();
    for (at, item) in new.iter().enumerate() {
        let key = TwinKey::of(&item.value);
        let twin = twins.get_mut(&key).and_then(|places| match key {
            TwinKey::Id(_) => places.pop_front(),
            TwinKey::Content(_) => {
                let place = places.iter().position(|twin| old[*twin].value == item.value)?;
                places.remove(place)
            }
        });
        match twin {
            Some(twin) => {
                is_left[twin] = false;
                pairs.push((twin, at));
            }
            None if matches!(key, TwinKey::Content(_)) => alone.push(at),
            None => {}
        }
    }
    // Of items without an id, another one at the same position is an edit.
    for at in alone {
        let same = old.binary_search_by_key(&new[at].position, |item| item.position).ok();
        if let Some(same) =
            same.filter(|same| is_left[*same] && matches!(TwinKey::of(&old[*same].value), TwinKey::Content(_)))
        {
            is_left[same] = false;
            pairs.push((same, at));
        }
    }
    pairs.sort_unstable();
    pairs
}

/// Returns which pairs are in one order: a longest row of them whose places in `new` ascend, and that have as many
/// common items before them in both lists.
fn in_order(old: &[DiffItem], new: &[DiffItem], pairs: &[(usize, usize)]) -> BTreeSet<usize> {
    let before_old = |a: usize| old[a].index.saturating_sub(a);
    let before_new = |b: usize| new[b].index.saturating_sub(b);
    // The ends of rows of growing length, and for each pair the one before it in its row.
    let (mut ends, mut previous): (Vec<usize>, Vec<Option<usize>>) = (Vec::new(), vec![None; pairs.len()]);
    for (at, &(a, b)) in pairs.iter().enumerate() {
        if before_old(a) != before_new(b) {
            continue;
        }
        let length = ends.partition_point(|end| pairs[*end].1 < b);
        previous[at] = length.checked_sub(1).map(|shorter| ends[shorter]);
        if length == ends.len() { ends.push(at) } else { ends[length] = at }
    }
    let mut row = BTreeSet::new();
    let mut next = ends.last().copied();
    while let Some(at) = next {
        row.insert(at);
        next = previous[at];
    }
    debug_assert_eq!(row.len(), ends.len());
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(index: usize, position: u64, text: &str) -> DiffItem {
        let (id, content) = text.split_once(':').unwrap_or(("", text));
        let members = [("id", id), ("content", content)].into_iter().filter(|(_, text)| !text.is_empty());
        let value = Value::Map(members.map(|(name, text)| (name.to_owned(), Value::from(text))).collect());
        DiffItem { index, position, value }
    }

    fn list(texts: &[&str]) -> Vec<DiffItem> {
        texts.iter().enumerate().map(|(at, text)| item(at, at as u64, text)).collect()
    }

    fn shown(old: &[DiffItem], new: &[DiffItem]) -> Vec<String> {
        let name = |item: &ItemDiff| match item {
            ItemDiff::Added { to, .. } => format!("+{to}"),
            ItemDiff::Removed { from, .. } => format!("-{from}"),
            ItemDiff::Edited { from, to, .. } => format!("~{from}:{to}"),
            ItemDiff::Moved { from, to, .. } => format!(">{from}:{to}"),
        };
        compare_items(old, new).iter().map(name).collect()
    }

    #[test]
    fn items_are_added_removed_edited_and_moved() {
        for (old, new, expected) in [
            (&["a:1", "b:1"][..], &["a:1", "b:1", "c:1"][..], &["+2"][..]),
            (&["a:1", "b:1", "c:1"], &["b:1", "c:1"], &["-0"]),
            (&["a:1", "b:1"], &["a:2", "b:1"], &["~0:0"]),
            (&["a:1", "b:1", "c:1"], &["b:1", "c:1", "a:1"], &[">0:2"]),
            (&["a:1", "b:1"], &["x:1", "b:1"], &["-0", "+0"]),
            (&["1", "2", "3"], &["1", "4", "3"], &["~1:1"]),
            (&["1", "2", "1"], &["1", "1"], &["-1"]),
            (&["a:1", "a:2"], &["a:1", "a:2"], &[]),
        ] {
            let (old, new) = (list(old), list(new));
            assert_eq!(shown(&old, &new), expected);
            let values = |items: &[DiffItem]| items.iter().map(|item| item.value.clone()).collect::<Vec<_>>();
            assert_eq!(ItemDiff::apply_all(&compare_items(&old, &new), &values(&old)), Ok(values(&new)));
        }
    }

    #[test]
    fn an_item_that_passes_a_common_one_is_moved() {
        // The item at index 1 of both lists is not among those that may differ.
        let (old, new) = ([item(0, 0, "a:1")], [item(1, 2, "a:1")]);
        assert_eq!(shown(&old, &new), [">0:1"]);
        assert_eq!(shown(&old, &[item(0, 5, "a:1")]), Vec::<String>::new());
    }

    #[test]
    fn items_of_another_list_are_refused() {
        let value = || Value::from(1);
        for item in [
            ItemDiff::Removed { from: 0, value: value() },
            ItemDiff::Edited { from: 3, to: 3, before: value(), after: value() },
            ItemDiff::Moved { from: 3, to: 0, before: value(), after: value() },
            ItemDiff::Added { to: 9, value: value() },
        ] {
            assert!(ItemDiff::apply_all(&[item], &[Value::from(2)]).is_err());
        }
    }
}
