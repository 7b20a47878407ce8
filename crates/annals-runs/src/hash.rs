//! The hash of which the ids of tasks are made, as LangGraph computes them.

/// Returns the XXH3-128 hash of `bytes`, most significant byte first.
pub(crate) fn xxh3_128(bytes: &[u8]) -> [u8; 16] {
    xxhash_rust::xxh3::xxh3_128(bytes).to_be_bytes()
}
