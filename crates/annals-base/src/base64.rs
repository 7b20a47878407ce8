//! Base64 in the standard alphabet with padding (RFC 4648, section 4). *Absent:* decoding.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Returns the base64 text of `bytes`.
pub fn encode_standard(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let n = group.iter().fold(0u32, |n, byte| (n << 8) | u32::from(*byte)) << (8 * (3 - group.len()));
        for i in 0..4 {
            let digit = if i <= group.len() { ALPHABET[(n >> (18 - 6 * i)) as usize & 63] } else { b'=' };
            text.push(char::from(digit));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 4648, section 10, and the two digits beyond letters and numbers.
    #[test]
    fn encodes_the_vectors_of_the_standard() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (b"fooba", "Zm9vYmE="),
            (b"foobar", "Zm9vYmFy"),
            (&[0xfb, 0xff], "+/8="),
        ] {
            assert_eq!(encode_standard(bytes), text);
        }
    }
}
