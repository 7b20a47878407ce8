//! Base64 as pydantic reads and writes it: either alphabet in, the URL-safe one with padding out.
//!
//! *Absent:* line breaks and other white space, which are errors.

use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD};

/// Returns the text in the URL-safe alphabet, with padding.
pub(crate) fn encode(bytes: &[u8]) -> String {
    BASE64URL.encode(bytes)
}

/// Returns the text in the standard alphabet, with padding.
pub(crate) fn encode_standard(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Returns the bytes of a text, whose padding may be missing. `None` if the text mixes the alphabets, has superfluous
/// padding or white space, or sets bits after the last byte.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    if padding > 0 && (padding > 2 || !text.len().is_multiple_of(4)) {
        return None;
    }
    let alphabet = if digits.contains(['-', '_']) { BASE64URL_NOPAD } else { BASE64_NOPAD };
    alphabet.decode(digits.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_accepts_either_alphabet_with_and_without_padding() {
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
    fn decoding_refuses_other_texts() {
        for bad in ["a", "aG k=", "aGl=", "aGk==", "+_+_", "aGk=\n", "====", "=", "aG=k", "aGk=aGk=", "\u{e9}"] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }
}
