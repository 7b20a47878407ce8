//! Maps by the numbers of rows, which a multiplication hashes: the store counts them, and no caller chooses them.
//!
//! A commit looks some 40 numbers up. *Absent:* keys that a caller chooses, such as texts.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by numbers of rows, or by tuples of them.
pub(crate) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// The hash of one number after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NumberHasher(u64);

/// An odd number without a pattern in its bits.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(FACTOR);
    }

    fn write_i64(&mut self, number: i64) {
        self.write_u64(number.cast_unsigned());
    }

    /// A map takes the highest and the lowest bits, and the product has the least of the number in its lowest.
    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    #[test]
    fn numbers_in_a_row_have_hashes_that_differ_in_the_bits_that_a_map_takes() {
        let build = BuildHasherDefault::<NumberHasher>::default();
        for stride in [1, 64, 1 << 20, 1 << 40] {
            let hashes: Vec<u64> = (0..1_024_i64).map(|n| build.hash_one((n * stride, -n))).collect();
            let low: HashSet<u64> = hashes.iter().map(|hash| hash & 0x3ff).collect();
            let high: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            // Of random bits 647 and 128 differ.
            assert!(low.len() > 500 && high.len() > 100, "stride {stride}: {} and {}", low.len(), high.len());
        }
    }
}
