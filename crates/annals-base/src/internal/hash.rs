//! Hashes: BLAKE3 for the chain of commits and for shared content, XXH3 for the quick check of one value.

use crate::limits::COLLECTED_BYTES_MAX;

/// The first 16 bytes of a BLAKE3 hash.
pub type Checksum = [u8; 16];

/// Returns the checksum of `bytes`.
pub fn checksum(bytes: &[u8]) -> Checksum {
    first_half(&blake3::hash(bytes))
}

/// Returns the checksum of `bytes` under a key, without which it cannot be computed.
pub fn keyed_checksum(key: &[u8; 32], bytes: &[u8]) -> Checksum {
    first_half(&blake3::keyed_hash(key, bytes))
}

/// Returns the XXH3-64 check of `bytes`: it finds rot, it does not stop an attacker.
pub fn check64(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// Returns the XXH3-128 hash of `bytes`, most significant byte first.
pub fn xxh3_128(bytes: &[u8]) -> [u8; 16] {
    xxhash_rust::xxh3::xxh3_128(bytes).to_be_bytes()
}

fn first_half(hash: &blake3::Hash) -> Checksum {
    let mut half = [0; 16];
    half.copy_from_slice(&hash.as_bytes()[..16]);
    half
}

/// Computes the checksum of a record field by field. A field of bytes is preceded by its length, so that different
/// records have different inputs.
///
/// The fields are collected and hashed at once: most records are short, and a hash of many short inputs costs several
/// times as much as one of the whole.
#[derive(Clone, Debug, Default)]
pub struct ChecksumBuilder {
    fields: Vec<u8>,
    /// The hash of the fields before `fields`, if the record is long or the checksum has a key.
    before: Option<Box<blake3::Hasher>>,
}

impl ChecksumBuilder {
    /// Returns a builder without fields.
    pub fn new() -> Self {
        Self { fields: Vec::with_capacity(1 << 10), before: None }
    }

    /// Returns a builder without fields, whose checksum has a key.
    pub fn keyed(key: &[u8; 32]) -> Self {
        Self { before: Some(Box::new(blake3::Hasher::new_keyed(key))), ..Self::new() }
    }

    /// Adds a field of bytes.
    pub fn bytes(&mut self, field: &[u8]) -> &mut Self {
        self.fields.extend_from_slice(&(field.len() as u64).to_le_bytes());
        if self.fields.len() + field.len() > COLLECTED_BYTES_MAX {
            let before = self.before.get_or_insert_default();
            before.update(&self.fields).update(field);
            self.fields.clear();
        } else {
            self.fields.extend_from_slice(field);
        }
        self
    }

    /// Adds an optional field of bytes; absent and empty differ.
    pub fn maybe(&mut self, field: Option<&[u8]>) -> &mut Self {
        match field {
            Some(field) => self.int(1).bytes(field),
            None => self.int(0),
        }
    }

    /// Adds an integer field.
    pub fn int(&mut self, field: i64) -> &mut Self {
        self.fields.extend_from_slice(&field.to_le_bytes());
        self
    }

    /// Returns the checksum of all fields so far.
    pub fn finish(&self) -> Checksum {
        match &self.before {
            None => checksum(&self.fields),
            Some(before) => first_half(&before.clone().update(&self.fields).finalize()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_that_of_all_bytes_in_a_row() {
        for long in [0, 100, COLLECTED_BYTES_MAX - 8, COLLECTED_BYTES_MAX, 3 * COLLECTED_BYTES_MAX] {
            let field = vec![7; long];
            let mut builder = ChecksumBuilder::new();
            builder.int(-1).bytes(&field).maybe(Some(b"x")).maybe(None).bytes(b"");
            let mut all = (-1_i64).to_le_bytes().to_vec();
            for part in [&(long as u64).to_le_bytes()[..], &field, &1_i64.to_le_bytes(), &1_u64.to_le_bytes(), b"x"] {
                all.extend_from_slice(part);
            }
            all.extend_from_slice(&[0; 16]);
            assert_eq!(builder.finish(), checksum(&all), "{long}");
            let mut keyed = ChecksumBuilder::keyed(&[5; 32]);
            keyed.int(-1).bytes(&field).maybe(Some(b"x")).maybe(None).bytes(b"");
            assert_eq!(keyed.finish(), keyed_checksum(&[5; 32], &all), "{long}");
            assert_ne!(keyed.finish(), checksum(&all));
        }
    }
}
