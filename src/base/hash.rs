//! Sums: BLAKE3 for the chain of commits and for shared content, XXH3 for the quick check of one value.

/// A 16-byte BLAKE3 sum (the first half of the hash).
pub type Sum = [u8; 16];

/// Returns the BLAKE3 sum of `bytes`.
pub fn sum(bytes: &[u8]) -> Sum {
    first_half(&blake3::hash(bytes))
}

/// Returns the XXH3-64 check of `bytes`: it finds rot, it does not stop an attacker.
pub fn check64(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// Returns the XXH3-128 hash of `bytes`, most significant byte first.
pub fn xxh3_128(bytes: &[u8]) -> [u8; 16] {
    xxhash_rust::xxh3::xxh3_128(bytes).to_be_bytes()
}

fn first_half(hash: &blake3::Hash) -> Sum {
    let mut half = [0; 16];
    half.copy_from_slice(&hash.as_bytes()[..16]);
    half
}

/// Sums a record field by field. Each field is preceded by its length, so that no two records sum alike.
#[derive(Clone, Debug, Default)]
pub struct Summer(blake3::Hasher);

impl Summer {
    /// Starts an empty sum.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field of bytes.
    pub fn bytes(&mut self, field: &[u8]) -> &mut Self {
        self.0.update(&(field.len() as u64).to_le_bytes());
        self.0.update(field);
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
        self.0.update(&field.to_le_bytes());
        self
    }

    /// Returns the sum of all fields so far.
    pub fn finish(&self) -> Sum {
        first_half(&self.0.finalize())
    }
}
