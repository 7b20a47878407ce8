//! The two hashes by which PydanticAI names files and records content. *Absent:* any use as a proof of authenticity.

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// Returns the SHA-1 hash of `bytes` in hexadecimal digits.
pub(crate) fn sha1_hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(&sha1_smol::Sha1::from(bytes).digest().bytes())
}

/// Returns the SHA-256 hash of `bytes` in hexadecimal digits.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of FIPS 180-4.
    #[test]
    fn hashes_are_those_of_the_standard() {
        assert_eq!(sha1_hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(sha256_hex(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(sha256_hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
