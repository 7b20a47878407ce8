//! The random operations of the model, and the strategies that make them.

use proptest::prelude::*;

use super::{LISTS, VALUES};

/// The next operation. Numbers pick among existing entries, so that any number makes sense.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// A checkpoint on the head of a namespace, or the first one.
    Commit { place: usize, content: Content },
    /// A checkpoint on any earlier one of the namespace.
    Fork { place: usize, from: usize, content: Content },
    /// The first checkpoint of a namespace, on one of another.
    ForkTo { from_place: usize, from: usize, content: Content },
    /// Writes of a task of an earlier checkpoint.
    Writes { place: usize, at: usize, task: u8, writes: Vec<WriteSpec>, wake_at: Option<Option<u8>> },
    /// Checkpoints of a branch, beside one another, are pruned.
    Prune { place: usize, from: usize, count: u64 },
    /// Namespaces are pruned as a whole, one of them perhaps with a checkpoint that is not its newest.
    PruneNamespaces { of: Vec<usize>, is_stale: bool },
    /// Threads are deleted.
    Delete { of: Vec<usize> },
    /// A batch built on a head that is not the head.
    Stale { place: usize, head: Option<usize>, content: Content },
    /// A batch that was already committed, as it was or altered.
    Repeat { which: usize, altered: bool },
    /// Closing and opening the file.
    Reopen,
}

/// The contents of a new checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Content {
    /// Number of further checkpoints in the same batch.
    pub(super) more: u8,
    pub(super) tasks: u8,
    pub(super) values: Vec<(usize, ValueSpec)>,
    pub(super) lists: Vec<(usize, Vec<ItemSpec>)>,
    pub(super) consumed: Vec<(u8, Vec<WriteSpec>)>,
    pub(super) seen: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(super) enum ValueSpec {
    Empty,
    New(u16),
    OfWrite(usize),
}

#[derive(Clone, Debug)]
pub(super) enum ItemSpec {
    Append(u16),
    AppendOfWrite(usize),
    /// An item at one of a few positions far apart, as the entries of a map have them.
    Entry(u8, u16),
    Replace(usize, u16),
    Remove(usize),
    Cut(usize, u8),
    /// The list of a place of the same thread, in place of all cuts.
    Share(usize, usize),
}

#[derive(Clone, Debug)]
pub(super) struct WriteSpec {
    pub(super) index: i32,
    pub(super) kind: u8,
    pub(super) len: u16,
}

fn len() -> impl Strategy<Value = u16> {
    prop_oneof![4 => 0u16..40, 1 => 1_500u16..1_600, 1 => 0u16..5_000]
}

fn write_spec() -> impl Strategy<Value = WriteSpec> {
    (prop_oneof![Just(-4i32), Just(-3), Just(-1), 0i32..4], 0u8..5, len()).prop_map(|(index, kind, len)| WriteSpec {
        index,
        kind,
        len,
    })
}

fn content() -> impl Strategy<Value = Content> {
    let value = prop_oneof![
        1 => Just(ValueSpec::Empty),
        5 => len().prop_map(ValueSpec::New),
        2 => any::<usize>().prop_map(ValueSpec::OfWrite),
    ];
    let item = prop_oneof![
        8 => len().prop_map(ItemSpec::Append),
        2 => any::<usize>().prop_map(ItemSpec::AppendOfWrite),
        2 => (0u8..12, len()).prop_map(|(key, len)| ItemSpec::Entry(key, len)),
        2 => (any::<usize>(), len()).prop_map(|(at, len)| ItemSpec::Replace(at, len)),
        2 => any::<usize>().prop_map(ItemSpec::Remove),
        1 => (any::<usize>(), 1u8..6).prop_map(|(at, count)| ItemSpec::Cut(at, count)),
        1 => (any::<usize>(), any::<usize>()).prop_map(|(place, at)| ItemSpec::Share(place, at)),
    ];
    (
        prop_oneof![5 => Just(0u8), 1 => 1u8..3],
        0u8..4,
        prop::collection::vec((0..VALUES.len(), value), 0..3),
        prop::collection::vec((0..LISTS.len(), prop::collection::vec(item, 0..4)), 0..2),
        prop::collection::vec((0u8..4, prop::collection::vec(write_spec(), 0..3)), 0..2),
        prop::collection::vec(0u8..3, 0..2),
    )
        .prop_map(|(more, tasks, values, lists, consumed, seen)| Content {
            more,
            tasks,
            values,
            lists,
            consumed,
            seen,
        })
}

pub(super) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (any::<usize>(), content()).prop_map(|(place, content)| Op::Commit { place, content }),
        3 => (any::<usize>(), any::<usize>(), content())
            .prop_map(|(place, from, content)| Op::Fork { place, from, content }),
        1 => (any::<usize>(), any::<usize>(), content())
            .prop_map(|(from_place, from, content)| Op::ForkTo { from_place, from, content }),
        3 => (any::<usize>(), any::<usize>(), 0u8..4, prop::collection::vec(write_spec(), 1..4), any::<Option<Option<u8>>>())
            .prop_map(|(place, at, task, writes, wake_at)| Op::Writes { place, at, task, writes, wake_at }),
        2 => (any::<usize>(), any::<usize>(), 1u64..9)
            .prop_map(|(place, from, count)| Op::Prune { place, from, count }),
        1 => (prop::collection::vec(any::<usize>(), 1..3), any::<bool>())
            .prop_map(|(of, is_stale)| Op::PruneNamespaces { of, is_stale }),
        1 => prop::collection::vec(any::<usize>(), 1..3).prop_map(|of| Op::Delete { of }),
        1 => (any::<usize>(), any::<Option<usize>>(), content())
            .prop_map(|(place, head, content)| Op::Stale { place, head, content }),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(which, altered)| Op::Repeat { which, altered }),
        1 => Just(Op::Reopen),
    ]
}
