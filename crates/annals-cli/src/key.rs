//! Reads the key of a store from a file: a key among the arguments would be shown to every user of the machine.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use annals::store::{Key, OpenOptions, Recovery, Restored, Store, StoreError};

use crate::errors::CommandFailure;
use crate::point::named;

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Bytes of a file with a key: its hexadecimal digits and the end of the line.
const FILE_BYTES_MAX: u64 = 2 * KEY_BYTES as u64 + 2;

/// The store that the arguments name, and the file with its key.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NamedStore<'a> {
    pub(crate) path: Option<&'a Path>,
    pub(crate) key_file: Option<&'a Path>,
}

impl<'a> NamedStore<'a> {
    /// Returns the store at another path, with the same key.
    pub(crate) fn at(self, path: &'a Path) -> Self {
        Self { path: Some(path), ..self }
    }

    /// Returns the options of a new store that has the same key, and is encrypted with it.
    pub(crate) fn options(self) -> Result<OpenOptions, CommandFailure> {
        Ok(match self.key()? {
            Some(key) => OpenOptions::new().key(key),
            None => OpenOptions::new(),
        })
    }

    /// Opens the store with its key: that of an encrypted store, or that of its checksums.
    pub(crate) fn open_with(self, options: OpenOptions) -> Result<Store, CommandFailure> {
        let path = named(self)?;
        Ok(match self.key()? {
            Some(key) => open_keyed(path, options, key)?,
            None => Store::open_with(path, options)?,
        })
    }

    /// Opens a file for reading that has the key of the store, or none.
    pub(crate) fn open_other(self, path: &Path) -> Result<Store, CommandFailure> {
        let options = OpenOptions::new().read_only(true);
        let Some(key) = self.key()? else { return Ok(Store::open_with(path, options)?) };
        match open_keyed(path, options.clone(), key) {
            Err(StoreError::NotKeyed { .. }) => Ok(Store::open_with(path, options)?),
            opened => Ok(opened?),
        }
    }

    fn key(self) -> Result<Option<Key>, CommandFailure> {
        self.key_file.filter(|file| !file.as_os_str().is_empty()).map(read).transpose()
    }
}

fn open_keyed(path: &Path, options: OpenOptions, key: Key) -> Result<Store, StoreError> {
    match Store::open_with(path, options.clone().key(key.clone())) {
        // A key was given, so it is that of the checksums that is missing.
        Err(StoreError::KeyRequired { .. }) => Store::open_with(path, options.checksum_key(key)),
        opened => opened,
    }
}

/// Recovers a damaged store, with the key of the arguments if they name one.
pub(crate) fn recover(named: NamedStore<'_>, from: &Path, to: &Path) -> Result<Recovery, CommandFailure> {
    let Some(key) = named.key()? else { return Ok(Store::recover(from, to)?) };
    match Store::recover_with(from, to, &OpenOptions::new().key(key.clone())) {
        Err(StoreError::KeyRequired { .. }) => {
            Ok(Store::recover_with(from, to, &OpenOptions::new().checksum_key(key))?)
        }
        recovered => Ok(recovered?),
    }
}

/// Restores a backup, with the key of the arguments if they name one.
pub(crate) fn restore(named: NamedStore<'_>, backup: &Path, to: &Path) -> Result<Restored, CommandFailure> {
    let options = OpenOptions::new();
    let Some(key) = named.key()? else { return Ok(Store::restore(backup, to, &options)?) };
    match Store::restore(backup, to, &options.clone().key(key.clone())) {
        Err(StoreError::KeyRequired { .. }) => Ok(Store::restore(backup, to, &options.checksum_key(key))?),
        restored => Ok(restored?),
    }
}

/// Reads a key: 32 bytes, or 64 hexadecimal digits and the end of a line.
fn read(path: &Path) -> Result<Key, CommandFailure> {
    let failed = |reason: String| CommandFailure::usage(format!("key file {}: {reason}", path.display()));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
    parse(&bytes).map(Key::new).ok_or_else(|| failed("it must hold 32 bytes or 64 hexadecimal digits".into()))
}

fn parse(bytes: &[u8]) -> Option<[u8; KEY_BYTES]> {
    if let Ok(key) = bytes.try_into() {
        return Some(key);
    }
    let digits = bytes.trim_ascii_end();
    if digits.len() != 2 * KEY_BYTES {
        return None;
    }
    let mut key = [0; KEY_BYTES];
    for (byte, two) in key.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(two[0])? * 16 + digit(two[1])?) as u8;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_32_bytes_or_64_digits() {
        let digits = "0123456789abcdefABCDEF000000000000000000000000000000000000000099";
        let key = parse(digits.as_bytes()).unwrap();
        assert_eq!((key[0], key[8], key[10], key[31]), (0x01, 0xab, 0xef, 0x99));
        assert_eq!(parse(format!("{digits}\r\n").as_bytes()), Some(key));
        assert_eq!(parse(&key), Some(key));
        for wrong in [&digits[1..], "", &"g".repeat(64), &format!("{digits} 0")] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong:?}");
        }
    }
}
