//! The shapes of a value that is stored item by item: a list, a map, a text.
//!
//! The positions of an item name the shape, so that a reader without a schema shows a map as a map and a text as a
//! text. *Absent:* a shape of a channel without items.

use std::ops::Range;

use crate::base::internal::hash::checksum;
use crate::base::limits::{MAP_POSITION_MIN, TEXT_POSITION_MIN};
use crate::limits::{MAP_KEY_POSITIONS, TEXT_POSITION_END};

/// The shape of a value that is stored item by item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListShape {
    /// A list, from position 0 on.
    List,
    /// A map, whose entries lie where the hashes of their keys say.
    Map,
    /// A text, whose parts follow one another.
    Text,
}

impl ListShape {
    /// Returns the shape that has an item at this position.
    pub(crate) fn of_position(position: u64) -> Self {
        match position {
            MAP_POSITION_MIN..TEXT_POSITION_MIN => Self::Map,
            TEXT_POSITION_MIN..TEXT_POSITION_END => Self::Text,
            _ => Self::List,
        }
    }

    /// Returns the first position of the shape.
    pub(crate) fn first_position(self) -> u64 {
        match self {
            Self::List => 0,
            Self::Map => MAP_POSITION_MIN,
            Self::Text => TEXT_POSITION_MIN,
        }
    }

    /// Returns what holds such items, for errors.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::List => "a list",
            Self::Map => "a map",
            Self::Text => "a text",
        }
    }
}

/// Returns the positions at which the entry of a key may lie. The BLAKE3 hash of the key gives them, so that many keys
/// with the same positions cannot be found.
pub(crate) fn positions_of(key: &str) -> Range<u64> {
    let [a, b, c, d, e, f, g, h, ..] = checksum(key.as_bytes());
    let hash = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    let first = MAP_POSITION_MIN + hash % (TEXT_POSITION_MIN - MAP_POSITION_MIN - MAP_KEY_POSITIONS);
    debug_assert!(first + MAP_KEY_POSITIONS <= TEXT_POSITION_MIN, "an entry lies among the positions of maps");
    first..first + MAP_KEY_POSITIONS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_positions_of_a_key_are_those_of_the_format() {
        assert_eq!(positions_of("").start, 1_898_390_935_094);
        assert_eq!(positions_of("a").start, 2_052_371_580_739);
        for key in ["", "a", "\0", "key", &"k".repeat(1 << 16)] {
            let positions = positions_of(key);
            assert!(positions.clone().all(|position| ListShape::of_position(position) == ListShape::Map), "{key}");
            assert_eq!(positions.end - positions.start, MAP_KEY_POSITIONS);
        }
    }

    #[test]
    fn a_position_has_one_shape() {
        for shape in [ListShape::List, ListShape::Map, ListShape::Text] {
            assert_eq!(ListShape::of_position(shape.first_position()), shape);
        }
        assert_eq!(ListShape::of_position(MAP_POSITION_MIN - 1), ListShape::List);
        assert_eq!(ListShape::of_position(TEXT_POSITION_MIN - 1), ListShape::Map);
        assert_eq!(ListShape::of_position(TEXT_POSITION_END - 1), ListShape::Text);
    }
}
