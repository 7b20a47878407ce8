//! Sums: BLAKE3 for the chain of commits and for shared content, XXH3 for the quick check of one value, and the two
//! that other programs' messages name files by.

/// A 16-byte BLAKE3 sum (the first half of the hash).
pub type Checksum = [u8; 16];

/// Returns the BLAKE3 sum of `bytes`.
pub fn checksum(bytes: &[u8]) -> Checksum {
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

/// Returns the SHA-1 hash of `bytes` in hexadecimal digits: a name for content, no proof of it.
pub fn sha1_hex(bytes: &[u8]) -> String {
    sha1_smol::Sha1::from(bytes).digest().to_string()
}

/// Returns the SHA-256 hash (FIPS 180-4) of `bytes` in hexadecimal digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut state = SHA256_START;
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend((bytes.len() as u64 * 8).to_be_bytes());
    padded.chunks_exact(64).for_each(|block| sha256_block(&mut state, block));
    state.iter().fold(String::with_capacity(64), |mut text, word| {
        _ = write!(text, "{word:08x}");
        text
    })
}

/// The fractional parts of the square roots of the first 8 primes.
const SHA256_START: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// The fractional parts of the cube roots of the first 64 primes.
#[rustfmt::skip]
const SHA256_ROUNDS: [u32; 64] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
];

fn sha256_block(state: &mut [u32; 8], block: &[u8]) {
    let mut words = [0u32; 64];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().fold(0, |word, byte| (word << 8) | u32::from(*byte));
    }
    for i in 16..64 {
        let (w15, w2) = (words[i - 15], words[i - 2]);
        let low = w15.rotate_right(7) ^ w15.rotate_right(18) ^ (w15 >> 3);
        let high = w2.rotate_right(17) ^ w2.rotate_right(19) ^ (w2 >> 10);
        words[i] = words[i - 16].wrapping_add(low).wrapping_add(words[i - 7]).wrapping_add(high);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (word, round) in words.iter().zip(SHA256_ROUNDS) {
        let mixed = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let chosen = (e & f) ^ (!e & g);
        let first = h.wrapping_add(mixed).wrapping_add(chosen).wrapping_add(round).wrapping_add(*word);
        let mixed = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(mixed.wrapping_add(majority)));
    }
    for (word, more) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *word = word.wrapping_add(more);
    }
}

fn first_half(hash: &blake3::Hash) -> Checksum {
    let mut half = [0; 16];
    half.copy_from_slice(&hash.as_bytes()[..16]);
    half
}

/// Sums a record field by field. Each field is preceded by its length, so that no two records sum alike.
///
/// The fields are collected and hashed at once: most records are short, and a hash of many small pieces costs several
/// times as much as one of the whole.
#[derive(Clone, Debug, Default)]
pub struct ChecksumBuilder {
    fields: Vec<u8>,
    /// What came before `fields`, if the record is long.
    before: Option<Box<blake3::Hasher>>,
}

/// Collected bytes beyond which they are handed to the hash.
const COLLECTED_MAX: usize = 16 << 10;

impl ChecksumBuilder {
    /// Starts an empty sum.
    pub fn new() -> Self {
        Self { fields: Vec::with_capacity(1 << 10), before: None }
    }

    /// Adds a field of bytes.
    pub fn bytes(&mut self, field: &[u8]) -> &mut Self {
        self.fields.extend_from_slice(&(field.len() as u64).to_le_bytes());
        if self.fields.len() + field.len() > COLLECTED_MAX {
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

    /// Returns the sum of all fields so far.
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
    fn the_hashes_of_other_programs_are_those_of_their_standards() {
        assert_eq!(sha1_hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        for (text, hash) in [
            ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
            ),
        ] {
            assert_eq!(sha256_hex(text.as_bytes()), hash);
        }
        let million = vec![b'a'; 1_000_000];
        assert_eq!(sha256_hex(&million), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }

    #[test]
    fn a_sum_is_that_of_all_bytes_in_a_row() {
        for long in [0, 100, COLLECTED_MAX - 8, COLLECTED_MAX, 3 * COLLECTED_MAX] {
            let field = vec![7; long];
            let mut summer = ChecksumBuilder::new();
            summer.int(-1).bytes(&field).maybe(Some(b"x")).maybe(None).bytes(b"");
            let mut all = (-1_i64).to_le_bytes().to_vec();
            for part in [&(long as u64).to_le_bytes()[..], &field, &1_i64.to_le_bytes(), &1_u64.to_le_bytes(), b"x"] {
                all.extend_from_slice(part);
            }
            all.extend_from_slice(&[0; 16]);
            assert_eq!(summer.finish(), checksum(&all), "{long}");
        }
    }
}
