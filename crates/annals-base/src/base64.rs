//! Base64: written with the URL-safe alphabet and padding, read in either alphabet.
//!
//! *Absent:* line breaks, and any leniency about them.

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Returns the URL-safe form with padding.
pub fn encode(bytes: &[u8]) -> String {
    encode_with(bytes, URL_SAFE)
}

/// Returns the form in the standard alphabet with padding.
pub fn encode_standard(bytes: &[u8]) -> String {
    encode_with(bytes, STANDARD)
}

fn encode_with(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let n = group.iter().fold(0u32, |n, byte| (n << 8) | u32::from(*byte)) << (8 * (3 - group.len()));
        for i in 0..4 {
            let digit = if i <= group.len() { alphabet[(n >> (18 - 6 * i)) as usize & 63] } else { b'=' };
            text.push(char::from(digit));
        }
    }
    text
}

/// Returns the bytes. The padding may be missing; `None` if the text mixes the alphabets, has too much padding, spaces,
/// or bits after the last byte.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let alphabet = if text.contains(['-', '_']) { URL_SAFE } else { STANDARD };
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    if padding > 0 && (padding > 2 || !text.len().is_multiple_of(4)) || digits.len() % 4 == 1 {
        return None;
    }
    let mut places = [None; 256];
    for (n, digit) in (0u32..).zip(alphabet) {
        places[usize::from(*digit)] = Some(n);
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for group in digits.as_bytes().chunks(4) {
        let n = group.iter().try_fold(0, |n, digit| Some((n << 6) | places[usize::from(*digit)]?))?;
        let spare = 6 * group.len() % 8;
        if n & ((1 << spare) - 1) != 0 {
            return None;
        }
        let n = n >> spare;
        let count = 6 * group.len() / 8;
        bytes.extend((0..count).rev().map(|i| (n >> (8 * i)) as u8));
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_either_alphabet() {
        for length in 0..20usize {
            let bytes: Vec<u8> = (0..length).map(|i| (i * 37 + 250) as u8).collect();
            for text in [encode(&bytes), encode_standard(&bytes)] {
                assert_eq!(decode(&text), Some(bytes.clone()), "{text}");
                assert_eq!(decode(text.trim_end_matches('=')), Some(bytes.clone()));
            }
        }
        assert_eq!((encode(&[0xfb, 0xff]), encode_standard(&[0xfb, 0xff])), ("-_8=".into(), "+/8=".into()));
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in ["a", "aG k=", "aGl=", "aGk==", "+_+_", "aGk=\n", "====", "=", "aG=k", "é"] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }
}
