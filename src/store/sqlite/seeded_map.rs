//! Maps by keys that callers choose: texts and ids, which XXH3 hashes with a seed that they do not know.
//!
//! A commit looks some 30 of them up, which costs the standard hash three times as much. *Absent:* the numbers of rows
//! ([`number_map`](super::number_map)).

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A map by texts and ids.
pub(crate) type SeededMap<K, V> = HashMap<K, V, Seed>;

/// The seed of all maps of the process.
static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0_u64));

/// Begins hashes with the seed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seed;

impl BuildHasher for Seed {
    type Hasher = SeededHasher;

    fn build_hasher(&self) -> SeededHasher {
        SeededHasher(*SEED)
    }
}

/// The hash of one part of a key after the other.
#[derive(Debug)]
pub(crate) struct SeededHasher(u64);

impl Hasher for SeededHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    /// A text ends with a byte that no text holds.
    fn write_u8(&mut self, byte: u8) {
        self.0 = self.0.rotate_left(5) ^ u64::from(byte);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hash;

    #[test]
    fn a_hash_depends_on_the_seed_and_on_each_part() {
        let keys = [("a", ""), ("", "a"), ("b", ""), ("aa", ""), ("a", "a"), ("", "")];
        let hashes = keys.map(|key| Seed.hash_one(key));
        for (at, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..at].contains(hash), "{at}");
        }
        assert_eq!(Seed.hash_one("a"), Seed.hash_one("a"));
        let mut other = SeededHasher(!*SEED);
        "a".hash(&mut other);
        assert_ne!(other.finish(), Seed.hash_one("a"), "the seed changes a hash");
    }
}
