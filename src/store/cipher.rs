//! Encryption at rest: keys of the caller, and the cipher that seals the content of a file.
//!
//! The caller's key seals the root key of a file, the root key seals data keys, and these seal the content
//! (docs/format.md, "Encryption"). So the caller's key is changed without writing the content anew. *Absent:* the
//! columns that are sealed, and the derivation of a key from a password.

use crate::base::debug_fields;
use zeroize::Zeroizing;

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 32;

/// A secret key of 32 bytes with an id. The bytes are overwritten when it is dropped, and `Debug` shows the id alone.
///
/// The bytes must be random, as from a key store or a file of `head -c 32 /dev/urandom`. A password is not a key:
/// derive one with a password hash such as Argon2.
#[derive(Clone)]
pub struct Key {
    id: String,
    bytes: Box<Zeroizing<[u8; KEY_BYTES]>>,
}

impl Key {
    /// Makes a key. Its id is a fingerprint, the first 16 hexadecimal digits of a hash of the bytes.
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        let bytes = Box::new(Zeroizing::new(bytes));
        let hash = blake3::derive_key("annals 2026-11 fingerprint of a key", &bytes[..]);
        let id = hash[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Self { id, bytes }
    }

    /// Sets the id, which is stored in the file in the clear and named by errors: of 1 to 255 bytes.
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = id.into();
        self
    }

    /// Returns the id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.bytes
    }
}

debug_fields!(Key { id });

/// An authenticated cipher with associated data (AEAD) and keys of 32 bytes.
///
/// The feature `encryption` brings XChaCha20-Poly1305; another implementation is set with
/// [`OpenOptions::cipher`](super::OpenOptions::cipher). The same key seals any number of values, so an implementation
/// takes a nonce of its own for each of them, which it stores with the ciphertext.
pub trait Cipher: Send + Sync + 'static {
    /// Returns the name of the algorithm and of the layout of its output. It is stored in the file, which is opened
    /// with a cipher of the same name only.
    fn name(&self) -> &str;

    /// Appends the nonce, the ciphertext of `plain` and the tag to `sealed`. The tag also covers `associated`, which is
    /// not stored.
    ///
    /// # Errors
    /// [`CipherError`] if the operating system gives no random bytes, or for an input above a limit of the algorithm.
    fn seal(&self, key: &[u8; 32], associated: &[u8], plain: &[u8], sealed: &mut Vec<u8>) -> Result<(), CipherError>;

    /// Verifies the output of [`seal`](Cipher::seal) and appends its plaintext to `plain`.
    ///
    /// # Errors
    /// [`CipherError`] if key, associated data or output are not those of one call of `seal`; nothing is appended.
    fn open(&self, key: &[u8; 32], associated: &[u8], sealed: &[u8], plain: &mut Vec<u8>) -> Result<(), CipherError>;
}

/// The failure of a [`Cipher`]: a forged or damaged ciphertext, or a seal that could not be made. It says no more, so
/// that nothing is learned from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cipher refused the bytes")]
pub struct CipherError;

/// The default cipher: XChaCha20-Poly1305, with a random nonce of 24 bytes before the ciphertext and a tag of 16 bytes
/// behind it.
#[cfg(feature = "encryption")]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct XChaCha20Poly1305;

#[cfg(feature = "encryption")]
impl Cipher for XChaCha20Poly1305 {
    fn name(&self) -> &str {
        "xchacha20poly1305"
    }

    fn seal(&self, key: &[u8; 32], associated: &[u8], plain: &[u8], sealed: &mut Vec<u8>) -> Result<(), CipherError> {
        use chacha20poly1305::aead::{AeadInOut, KeyInit};
        let mut nonce = [0; NONCE_BYTES];
        random(&mut nonce)?;
        let first = sealed.len();
        sealed.reserve(NONCE_BYTES + plain.len() + TAG_BYTES);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(plain);
        let cipher = chacha20poly1305::XChaCha20Poly1305::new(key.into());
        match cipher.encrypt_inout_detached(&nonce.into(), associated, (&mut sealed[first + NONCE_BYTES..]).into()) {
            Ok(tag) => sealed.extend_from_slice(&tag),
            Err(_) => {
                sealed.truncate(first);
                return Err(CipherError);
            }
        }
        debug_assert_eq!(sealed.len(), first + NONCE_BYTES + plain.len() + TAG_BYTES);
        Ok(())
    }

    fn open(&self, key: &[u8; 32], associated: &[u8], sealed: &[u8], plain: &mut Vec<u8>) -> Result<(), CipherError> {
        use chacha20poly1305::aead::{AeadInOut, KeyInit};
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(CipherError)?;
        let (text, tag) = sealed.split_last_chunk::<TAG_BYTES>().ok_or(CipherError)?;
        let first = plain.len();
        plain.extend_from_slice(text);
        let cipher = chacha20poly1305::XChaCha20Poly1305::new(key.into());
        let opened = cipher.decrypt_inout_detached(nonce.into(), associated, (&mut plain[first..]).into(), tag.into());
        if opened.is_err() {
            plain.truncate(first);
            return Err(CipherError);
        }
        Ok(())
    }
}

#[cfg(feature = "encryption")]
const NONCE_BYTES: usize = 24;
#[cfg(feature = "encryption")]
const TAG_BYTES: usize = 16;

/// Fills `bytes` with random ones of the operating system.
pub(crate) fn random(bytes: &mut [u8]) -> Result<(), CipherError> {
    getrandom::fill(bytes).map_err(|_| CipherError)
}

#[cfg(test)]
#[cfg(feature = "encryption")]
mod tests {
    use super::*;

    /// The vector of draft-irtf-cfrg-xchacha-03, appendix A.3.1.
    #[test]
    fn the_default_cipher_is_the_one_of_the_draft() {
        let hex = |text: &str| -> Vec<u8> {
            let digits = text.as_bytes().chunks(2).map(|two| std::str::from_utf8(two).unwrap());
            digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect()
        };
        let key: [u8; 32] = std::array::from_fn(|n| 0x80 + n as u8);
        let plain = b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, \
            sunscreen would be it.";
        let sealed = hex(concat!(
            "404142434445464748494a4b4c4d4e4f5051525354555657",
            "bd6d179d3e83d43b9576579493c0e939572a1700252bfaccbed2902c21396cbb731c7f1b0b4aa6440bf3a82f4eda7e39",
            "ae64c6708c54c216cb96b72e1213b4522f8c9ba40db5d945b11b69b982c1bb9e3f3fac2bc369488f76b2383565d3fff9",
            "21f9664c97637da9768812f615c68b13b52e",
            "c0875924c1c7987947deafd8780acf49"
        ));
        let mut opened = Vec::new();
        XChaCha20Poly1305.open(&key, &hex("50515253c0c1c2c3c4c5c6c7"), &sealed, &mut opened).unwrap();
        assert_eq!(opened, plain);
    }

    #[test]
    fn a_sealed_text_is_opened_with_its_key_and_its_associated_data_alone() {
        let (key, other) = ([1; 32], [2; 32]);
        let (mut sealed, mut again, mut plain) = (Vec::new(), Vec::new(), vec![7]);
        XChaCha20Poly1305.seal(&key, b"row 1", b"secret", &mut sealed).unwrap();
        XChaCha20Poly1305.seal(&key, b"row 1", b"secret", &mut again).unwrap();
        assert_ne!(sealed, again, "each has a nonce of its own");
        XChaCha20Poly1305.open(&key, b"row 1", &sealed, &mut plain).unwrap();
        assert_eq!(plain, b"\x07secret");
        assert!(XChaCha20Poly1305.open(&other, b"row 1", &sealed, &mut plain).is_err());
        assert!(XChaCha20Poly1305.open(&key, b"row 2", &sealed, &mut plain).is_err());
        for n in 0..sealed.len() {
            let mut tampered = sealed.clone();
            tampered[n] ^= 1;
            assert!(XChaCha20Poly1305.open(&key, b"row 1", &tampered, &mut plain).is_err(), "byte {n}");
            assert!(XChaCha20Poly1305.open(&key, b"row 1", &sealed[..n], &mut plain).is_err(), "cut to {n}");
        }
        assert_eq!(plain, b"\x07secret", "nothing is appended by a failure");
    }

    #[test]
    fn a_key_shows_its_id_alone() {
        let key = Key::new([0xab; 32]);
        assert_eq!((key.id().len(), key.id()), (16, Key::new([0xab; 32]).id()));
        assert_ne!(key.id(), Key::new([0xac; 32]).id());
        let named = key.clone().with_id("2026");
        assert_eq!(format!("{named:?}"), "Key { id: \"2026\", .. }");
        assert!(!format!("{key:?}").contains("171") && !format!("{key:?}").to_lowercase().contains("abab"));
    }
}
