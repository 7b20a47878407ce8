//! The place in a list at which the chunk of a block or of a call is merged, found without a walk along the list.
//!
//! Invariant: the place is that of the first item with the index of the chunk and no other id, as a walk would find it.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use annals_base::{Map, Value};

use crate::merge::{integer, is_partner, merge_index, without_type};
use crate::{Content, MessageError, merge_dicts};

/// The items of a list by index and id.
#[derive(Clone, Debug)]
pub(super) struct ItemPlaces<K> {
    by_index: HashMap<K, SameIndex>,
}

/// The items that have one index.
#[derive(Clone, Debug)]
struct SameIndex {
    first: usize,
    /// Those without an id, in order.
    free: VecDeque<usize>,
    /// The first with each id.
    by_id: HashMap<String, usize>,
}

impl<K> Default for ItemPlaces<K> {
    fn default() -> Self {
        Self { by_index: HashMap::new() }
    }
}

impl<K: Hash + Eq> ItemPlaces<K> {
    /// Notes an item at the end of the list. An empty id is none.
    pub(super) fn push(&mut self, index: K, id: Option<&str>, at: usize) {
        let items = self.by_index.entry(index).or_insert_with(|| SameIndex {
            first: at,
            free: VecDeque::new(),
            by_id: HashMap::new(),
        });
        match id.filter(|id| !id.is_empty()) {
            None => items.free.push_back(at),
            Some(id) => _ = items.by_id.entry(id.to_owned()).or_insert(at),
        }
    }

    /// Returns the place of the item that a chunk is merged into, if there is one.
    pub(super) fn partner(&self, index: &K, id: Option<&str>) -> Option<usize> {
        let items = self.by_index.get(index)?;
        let Some(id) = id.filter(|id| !id.is_empty()) else { return Some(items.first) };
        items.free.front().into_iter().chain(items.by_id.get(id)).min().copied()
    }

    /// Notes that an item without an id may have got the id of the chunk that was merged into it.
    pub(super) fn merged(&mut self, index: &K, id: Option<&str>, at: usize) {
        let (Some(items), Some(id)) = (self.by_index.get_mut(index), id.filter(|id| !id.is_empty())) else { return };
        if let Ok(place) = items.free.binary_search(&at) {
            items.free.remove(place);
            let first = items.by_id.entry(id.to_owned()).or_insert(at);
            *first = at.min(*first);
        }
    }
}

/// The index of a block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum BlockIndex {
    Number(i128),
    Text(String),
}

/// The blocks of a content by index and id.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockPlaces {
    places: ItemPlaces<BlockIndex>,
    /// True if a block has an index or an id that only a walk compares as Python does.
    walks: bool,
}

impl BlockPlaces {
    pub(super) fn of(content: &Content) -> Self {
        match content {
            Content::Text(_) => Self::default(),
            Content::Blocks(blocks) => Self::of_blocks(blocks),
        }
    }

    fn of_blocks(blocks: &[Value]) -> Self {
        let mut places = Self::default();
        blocks.iter().enumerate().for_each(|(at, block)| places.push(block, at));
        places
    }

    fn push(&mut self, block: &Value, at: usize) {
        let Value::Map(block) = block else { return };
        match (block_index(block), block_id(block)) {
            (Ok(Some(index)), Ok(id)) => self.places.push(index, id, at),
            (Ok(None), _) => {}
            _ => self.walks = true,
        }
    }

    /// Returns the place of the block that a new one is merged into.
    fn partner(&self, blocks: &[Value], new: &Map) -> Option<usize> {
        merge_index(new)?;
        match (block_index(new), block_id(new)) {
            (Ok(Some(index)), Ok(id)) if !self.walks => self.places.partner(&index, id),
            _ => blocks.iter().position(|old| is_partner(old, new)),
        }
    }

    /// Merges the blocks of a chunk as [`merge_lists`](crate::merge_lists) does. After an error the blocks are as
    /// before.
    pub(super) fn merge(&mut self, blocks: &mut Vec<Value>, more: Vec<Value>) -> Result<(), MessageError> {
        let len = blocks.len();
        let mut before = Vec::new();
        for (at, new) in more.into_iter().enumerate() {
            if let Err(error) = self.merge_block(blocks, new, &mut before) {
                before.into_iter().rev().for_each(|(at, block)| blocks[at] = block);
                blocks.truncate(len);
                *self = Self::of_blocks(blocks);
                return Err(error.within(format_args!("[{at}]")).within("content"));
            }
        }
        Ok(())
    }

    /// Merges a block; `before` gets the block that changes.
    fn merge_block(
        &mut self,
        blocks: &mut Vec<Value>,
        new: Value,
        before: &mut Vec<(usize, Value)>,
    ) -> Result<(), MessageError> {
        let Value::Map(new) = new else {
            blocks.push(new);
            return Ok(());
        };
        if let Some(at) = self.partner(blocks, &new)
            && let Value::Map(old) = &mut blocks[at]
        {
            before.push((at, Value::Map(old.clone())));
            let new = without_type(old, new);
            *old = merge_dicts(std::mem::take(old), new)?;
            match (block_index(old), block_id(old)) {
                (Ok(Some(index)), Ok(id)) => self.places.merged(&index, id, at),
                (Ok(None), _) => {}
                // The chunk gave the block such an id.
                _ => self.walks = true,
            }
            return Ok(());
        }
        let block = Value::Map(new);
        self.push(&block, blocks.len());
        blocks.push(block);
        Ok(())
    }
}

/// An index or an id that a table of hashes cannot find.
struct Unhashed;

/// Returns the index of a block, if another block can be merged into it.
fn block_index(block: &Map) -> Result<Option<BlockIndex>, Unhashed> {
    const EXACT: f64 = (1_u64 << f64::MANTISSA_DIGITS) as f64;
    Ok(match block.get("index") {
        Some(Value::Str(text)) => Some(BlockIndex::Text(text.clone())),
        // It equals several integers.
        Some(Value::Float(x)) if x.abs() >= EXACT => return Err(Unhashed),
        Some(Value::Float(x)) => (x.fract() == 0.0).then_some(BlockIndex::Number(*x as i128)),
        index => index.and_then(integer).map(BlockIndex::Number),
    })
}

fn block_id(block: &Map) -> Result<Option<&str>, Unhashed> {
    match block.get("id") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Str(id)) => Ok(Some(id)),
        Some(_) => Err(Unhashed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge_lists;
    use proptest::prelude::*;

    fn block() -> impl Strategy<Value = Value> {
        let index = prop_oneof![
            (0..3_i64).prop_map(Value::Int),
            (0..3_i64).prop_map(|n| Value::Float(n as f64)),
            Just(Value::Bool(true)),
            Just(Value::Str("lc_0".into())),
            Just(Value::Str("0".into())),
            Just(Value::Null),
            Just(Value::Float(1e300)),
        ];
        let id = prop_oneof![
            Just(Value::Null),
            Just(Value::Str(String::new())),
            (0..3).prop_map(|n: i32| Value::Str(n.to_string())),
            Just(Value::Int(7)),
        ];
        let text = prop_oneof![Just(Value::Str("t".into())), Just(Value::Int(1))];
        let kind = prop_oneof![Just("text"), Just("non_standard")];
        (prop::option::of(index), prop::option::weighted(0.3, id), text, kind).prop_map(|(index, id, text, kind)| {
            let mut block = Map::from([("type".to_owned(), Value::from(kind)), ("text".to_owned(), text)]);
            block.extend(index.map(|index| ("index".to_owned(), index)));
            block.extend(id.map(|id| ("id".to_owned(), id)));
            Value::Map(block)
        })
    }

    #[test]
    fn an_id_that_is_a_number_is_compared_by_a_walk() {
        let block = |id: Option<Value>| {
            let mut block = Map::from([("type".to_owned(), "text".into()), ("index".to_owned(), "lc_0".into())]);
            block.extend(id.map(|id| ("id".to_owned(), id)));
            vec![Value::Map(block)]
        };
        let (mut walked, mut found, mut places) = (Vec::new(), Vec::new(), BlockPlaces::default());
        for id in [None, Some(Value::Int(7)), Some("0".into())] {
            walked = merge_lists(walked, block(id.clone())).unwrap();
            places.merge(&mut found, block(id)).unwrap();
            assert_eq!(found, walked);
        }
    }

    proptest! {
        #[test]
        fn blocks_are_merged_where_a_walk_merges_them(
            chunks in prop::collection::vec(prop::collection::vec(block(), 0..4), 0..12),
        ) {
            let mut walked: Vec<Value> = Vec::new();
            let mut found = Vec::new();
            let mut places = BlockPlaces::default();
            for chunk in chunks {
                let expected = merge_lists(walked.clone(), chunk.clone());
                let merged = places.merge(&mut found, chunk);
                prop_assert_eq!(merged.is_ok(), expected.is_ok());
                walked = expected.unwrap_or(walked);
                prop_assert_eq!(&found, &walked);
            }
        }
    }
}
