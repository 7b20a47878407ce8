//! The facts about the files of a store that the file system shows.
//!
//! Invariant: no file is opened, because closing one would release the locks that SQLite has on it in this process.
//! *Absent:* the content of the store, which the store reads.

use std::fs;
use std::path::Path;

use serde_json::{Value as Json, json};

/// The endings of the names of the files of a store: the file, its write-ahead log, and the index of the log.
const ENDINGS: [&str; 3] = ["", "-wal", "-shm"];

/// The facts about the files of a store.
#[derive(Clone, Debug)]
pub(crate) struct FileFacts {
    /// The files that exist.
    pub(crate) files: Vec<OneFile>,
}

/// A file of a store.
#[derive(Clone, Debug)]
pub(crate) struct OneFile {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// The permission bits of Unix.
    pub(crate) mode: Option<u32>,
    pub(crate) is_read_only: bool,
}

impl FileFacts {
    /// Reads the facts. The result is `None` if the file does not exist.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().into_owned();
        let files: Vec<OneFile> = ENDINGS
            .iter()
            .filter_map(|ending| {
                let mut path = path.as_os_str().to_owned();
                path.push(ending);
                OneFile::read(format!("{name}{ending}"), path.as_ref())
            })
            .collect();
        if files.first()?.name != name {
            return None;
        }
        Some(Self { files })
    }

    pub(crate) fn json(&self) -> Json {
        let file = |file: &OneFile| {
            let mode = file.mode.map(|mode| format!("{mode:04o}"));
            json!({ "name": file.name, "bytes": file.bytes, "mode": mode, "read_only": file.is_read_only })
        };
        json!({
            "files": self.files.iter().map(file).collect::<Vec<_>>(),
        })
    }
}

impl OneFile {
    fn read(name: String, path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        let is_read_only = metadata.permissions().readonly();
        Some(Self { name, bytes: metadata.len(), mode: mode(&metadata), is_read_only })
    }

    /// Returns the mode as `ls` shows it, with the readers beyond the owner.
    pub(crate) fn mode_text(&self) -> String {
        let Some(mode) = self.mode else {
            return if self.is_read_only { "read-only".to_owned() } else { "may be written".to_owned() };
        };
        let bits = (0..9).rev().zip("rwxrwxrwx".chars());
        let text: String = bits.map(|(bit, letter)| if mode >> bit & 1 == 1 { letter } else { '-' }).collect();
        let readers = match (mode & 0o040 != 0, mode & 0o004 != 0) {
            (_, true) => "every user of the machine may read it",
            (true, false) => "its group may read it",
            (false, false) => "its owner alone may read it",
        };
        format!("{text} ({mode:04o}): {readers}")
    }
}

#[cfg(unix)]
fn mode(metadata: &fs::Metadata) -> Option<u32> {
    Some(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o7777)
}

#[cfg(not(unix))]
fn mode(_: &fs::Metadata) -> Option<u32> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_names_the_readers() {
        let file = |mode, is_read_only| OneFile { name: "a".into(), bytes: 1, mode, is_read_only };
        for (mode, text) in [
            (Some(0o600), "rw------- (0600): its owner alone may read it"),
            (Some(0o640), "rw-r----- (0640): its group may read it"),
            (Some(0o604), "rw----r-- (0604): every user of the machine may read it"),
            (Some(0o1444), "r--r--r-- (1444): every user of the machine may read it"),
            (None, "may be written"),
        ] {
            assert_eq!(file(mode, false).mode_text(), text);
        }
        assert_eq!(file(None, true).mode_text(), "read-only");
    }
}
