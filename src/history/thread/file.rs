//! A thread as a file: a store of its own with this thread alone.
//!
//! The file is a store like any other, so every program that reads stores reads it. It is written beside its place and
//! gets its name when it is whole. *Absent:* the copy of the thread ([`Thread::copy_into`]), the key-value memory and
//! the cache.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::store::{OpenOptions, Store, StoreError};

use super::Thread;

impl Thread {
    /// Writes the thread to a new file, which is a store with this thread alone: its history with all branches and
    /// subgraphs, and its facts, as [`Thread::copy_into`] copies them. The options open the new store: with a
    /// [key](OpenOptions::key) it is encrypted with that key, and without one it holds the thread in the clear, also if
    /// this store is encrypted.
    ///
    /// The file gets its name when all of it is on the disk.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the path exists or cannot be written; as [`Thread::copy_to`] and
    /// [`Store::open_with`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    /// use annals::store::OpenOptions;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// let file = folder.path().join("trip.db");
    /// let trip = Store::memory().thread("trip")?;
    /// trip.append("messages", [Message::human("hi")])?;
    /// trip.export_file(&file, OpenOptions::new())?;
    ///
    /// let other = Store::memory();
    /// let copy = other.import_thread(&file, OpenOptions::new())?;
    /// assert_eq!((copy.id().as_str(), copy.head()?.unwrap().len("messages")?), ("trip", 1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn export_file(&self, path: impl AsRef<Path>, options: OpenOptions) -> Result<(), StoreError> {
        let path = path.as_ref();
        if path.symlink_metadata().is_ok() {
            return Err(refused(path, "it exists already"));
        }
        let unfinished = with_suffix(path, "-unfinished-thread");
        if unfinished.symlink_metadata().is_ok() {
            return Err(refused(&unfinished, "it exists: another export writes it, or one was interrupted"));
        }
        let unfinished = Unfinished(unfinished);
        let store = Store::open_with(&unfinished.0, options)?;
        self.copy_into(&store, self.id())?;
        // The copy has no log beside it, and gets its name last.
        store.backup(path)
    }
}

impl Store {
    /// Copies the thread of a file to this store, under the id that it has there. The file is one of
    /// [`Thread::export_file`], or any store with one thread; the options open it. A store with several threads is
    /// opened instead, and each of them copied with [`Thread::copy_into`]. An import can be repeated: a thread that has
    /// all the checkpoints of the file already is returned as it is.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the file has not exactly one thread; [`StoreError::Conflict`] if the thread exists
    /// already without all of its checkpoints; as [`Store::open_with`] and [`Thread::copy_to`].
    pub fn import_thread(&self, path: impl AsRef<Path>, options: OpenOptions) -> Result<Thread, StoreError> {
        let path = path.as_ref();
        let file = Store::open_with(path, options.read_only(true))?;
        let threads = file.threads_after(None, 2)?;
        match &*threads {
            [thread] => file.thread(&thread.id)?.copy_into(self, &thread.id),
            [] => Err(refused(path, "it has no thread")),
            _ => Err(refused(path, "it has more than one thread: open it and copy them")),
        }
    }
}

/// A file that is being written, removed when dropped.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        for suffix in ["", "-wal", "-shm"] {
            // A file that is left is refused by the next export.
            _ = fs::remove_file(with_suffix(&self.0, suffix));
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn refused(path: &Path, reason: &str) -> StoreError {
    StoreError::Invalid { field: "thread file", reason: format!("{}: {reason}", path.display()) }
}
