//! The store files that this process has open.
//!
//! POSIX drops all locks of a process on a file as soon as it closes any descriptor of that file. So a file that is
//! open already must not be looked at with plain reads: closing it again would take SQLite's locks away.

use super::system::{self, FileId};
use std::fs;
use std::path::Path;

use parking_lot::{Mutex, MutexGuard};

/// Files that are open, once for each handle.
static OPEN: Mutex<Vec<FileId>> = Mutex::new(Vec::new());
/// Opening is one at a time: a file must not come to be open between a look at it and its registration.
static OPENING: Mutex<()> = Mutex::new(());

/// A file that this handle has open; forgotten when dropped.
#[derive(Debug)]
pub(crate) struct Registered(Option<FileId>);

/// Waits until no other thread of this process opens a file.
pub(crate) fn opening() -> MutexGuard<'static, ()> {
    OPENING.lock()
}

/// Returns whether this process has the file open.
pub(crate) fn is_open(path: &Path) -> bool {
    file_id(path).is_some_and(|id| OPEN.lock().contains(&id))
}

/// Notes that this process has the file open.
pub(crate) fn register(path: &Path) -> Registered {
    let id = file_id(path);
    OPEN.lock().extend(id);
    Registered(id)
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut open = OPEN.lock();
        if let Some(at) = self.0.and_then(|id| open.iter().position(|known| *known == id)) {
            open.swap_remove(at);
        }
    }
}

/// Returns `None` where locks belong to a descriptor, not to a process.
fn file_id(path: &Path) -> Option<FileId> {
    fs::metadata(path).ok().and_then(|meta| system::id(&meta))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_open_as_long_as_a_handle_is() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&path, "x").unwrap();
        fs::hard_link(&path, &link).unwrap();
        assert!(!is_open(&path));
        let (first, second) = (register(&path), register(&path));
        drop(first);
        assert!(is_open(&path) && is_open(&link), "one file under two names");
        drop(second);
        assert!(!is_open(&path));
    }
}
