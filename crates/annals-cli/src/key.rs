//! Reads the key of a store from a file: a key among the arguments would be shown to every user of the machine.

use std::fs::{File, Metadata};
use std::io::Read;
use std::path::Path;

use annals::store::recovery::{Recovery, Restored};
use annals::store::stats::RebuiltObject;
use annals::store::{Key, OpenOptions, Store, StoreError};

use crate::errors::CommandFailure;
use crate::{point, server};

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

    /// Returns one end of a copy: a file has the key, and a server none.
    pub(crate) fn of_file(self, path: &'a Path) -> Self {
        let key_file = self.key_file.filter(|_| server::url(path).is_none());
        Self { path: Some(path), key_file }
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
        let path = point::named(self)?;
        if let Some(url) = server::url(path) {
            if self.key()?.is_some() {
                let message = format!("--key-file is for files, and {} is on a server", server::shown(path));
                return Err(CommandFailure::usage(message).hint("leave out --key-file and ANNALS_KEY_FILE"));
            }
            return server::open(url, options);
        }
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

/// Makes the views, indexes and triggers of a store anew that are missing or differ, with the key of the arguments if
/// they name one.
pub(crate) fn repair_schema(
    named: NamedStore<'_>,
    mut visit: impl FnMut(&RebuiltObject),
) -> Result<Vec<RebuiltObject>, CommandFailure> {
    let path = point::named(named)?;
    let Some(key) = named.key()? else { return Ok(Store::repair_schema(path, &OpenOptions::new(), visit)?) };
    match Store::repair_schema(path, &OpenOptions::new().key(key.clone()), &mut visit) {
        Err(StoreError::KeyRequired { .. }) => {
            Ok(Store::repair_schema(path, &OpenOptions::new().checksum_key(key), visit)?)
        }
        repaired => Ok(repaired?),
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
    let message = |reason: &str| format!("key file {}: {reason}", path.display());
    let failed = |reason: String| CommandFailure::usage(message(&reason));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    if is_exposed(&file.metadata().map_err(|error| failed(error.to_string()))?) {
        let reason = message("its permissions let other users read or write it; it was not used");
        return Err(CommandFailure::new(2, "key_exposed", reason).hint("chmod 600 FILE, and a new key if it was read"));
    }
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| failed(error.to_string()))?;
    let key = parse(&bytes).ok_or_else(|| failed("it must hold 32 bytes or 64 hexadecimal digits".into()))?;
    if let Some(reason) = no_key(&key, &bytes) {
        let failure = CommandFailure::new(2, "key_not_random", message(reason));
        return Err(failure.hint("head -c 32 /dev/urandom > FILE makes a key"));
    }
    Ok(Key::new(key))
}

/// Returns whether the permissions of a file let users read or write it who are not its owner.
#[cfg(unix)]
fn is_exposed(file: &Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.is_file() && file.permissions().mode() & 0o077 != 0
}

/// Returns false: access follows the lists of the folder.
#[cfg(not(unix))]
fn is_exposed(_: &Metadata) -> bool {
    false
}

/// Returns the reason to refuse 32 bytes as a key; random bytes give none.
fn no_key(key: &[u8; KEY_BYTES], file: &[u8]) -> Option<&'static str> {
    let is_typed = |bytes: &[u8]| bytes.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    if key.iter().all(|byte| *byte == key[0]) {
        return Some("all its bytes are the same");
    }
    match file.strip_suffix(b"\n") {
        Some(text) if file.len() == KEY_BYTES && is_typed(text.strip_suffix(b"\r").unwrap_or(text)) => {
            Some("it is a line of text, whose end would be a part of the key")
        }
        _ => None,
    }
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

    #[test]
    fn bytes_that_were_not_drawn_at_random_are_no_key() {
        let of = |bytes: &[u8]| parse(bytes).and_then(|key| no_key(&key, bytes));
        assert!(of(&[0; 32]).is_some() && of(&[7; 32]).is_some() && of(&[b'0'; 64]).is_some());
        assert!(of(b"a password with 31 characters !\n").is_some());
        assert!(of(b"a password of 30 characters !!\r\n").is_some());
        // A random key may end with the byte of a line end.
        let mut random: [u8; 32] = std::array::from_fn(|n| 200 + n as u8);
        random[31] = b'\n';
        assert_eq!(of(&random), None);
        assert_eq!(of(format!("{}\n", "ab12".repeat(16)).as_bytes()), None);
        assert_eq!(of(b"32 characters without a line end"), None);
    }
}
