//! Identifies a file, and the files beside it, before SQLite touches them.
//!
//! SQLite would replay a journal, write to the WAL of another program, and use planted files. So header, names,
//! owners and modes are read first, and nothing is changed. Only a missing or empty file is made ([`make`]), and the
//! first name of a copy taken away.
//!
//! POSIX drops all locks of a process on a file as soon as it closes any descriptor of that file. So a file of which
//! this process has a descriptor is read through SQLite, which delays its own closing while it holds a lock. Two copies
//! of SQLite in one process, or a program that locks the file by itself, remain unknown to each other.

use super::backup::UNFINISHED;
use super::format::identify;
use super::open::connect_unlocked;
use super::paths::{beside, cannot_open, not_a_store, opening};
use super::system::{self, Protection};
use super::{format, registry};
use crate::store::error::StoreError;
use crate::store::sqlite::fault::Fault;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::sql;
use rusqlite::ErrorCode;
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::path::Path;

/// Bytes of the header of a SQLite file.
const HEADER_BYTES: usize = 100;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// Bytes of the header of a rollback journal up to the number of pages of the file.
const JOURNAL_HEADER_BYTES: usize = 20;
/// Most bytes of the sector that the header of a journal fills, unless the medium has larger ones.
const JOURNAL_SECTOR_BYTES: u64 = 4_096;
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// The endings of the files that SQLite keeps beside the main one.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// The kind of file at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Missing,
    Empty,
    /// A store that is not in WAL mode: it is being made, or another program has changed its mode.
    Unswitched,
    Store,
}

/// The advice for a file that a power cut may have left after its creation failed: SQLite removes the journal that
/// would empty it. A damaged store can look the same, so it is not begun anew.
const UNMADE: &str = "if the power failed while it was made, nothing was stored in it: move it away and open it again";

/// The fields of a header by which a file is identified.
struct Header {
    application: i64,
    format: i64,
    /// True if a WAL belongs to the file.
    is_wal: bool,
    /// Pages of the file, if the header counts them.
    pages: Option<u32>,
    page_bytes: u64,
}

/// Identifies the file at an absolute path without symbolic links, and refuses what must not be opened.
pub(crate) fn inspect(path: &Path) -> Result<FileKind, StoreError> {
    let meta = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            refuse_orphaned_wal(path, "the file itself does not exist")?;
            refuse_planted(path, Protection::of_new())?;
            return Ok(FileKind::Missing);
        }
        meta => meta.map_err(|error| failed(path, error))?,
    };
    if !meta.is_file() {
        return Err(cannot_open(path, "it is not a regular file", None));
    }
    // Each name would have a WAL of its own, and commits through one of them would be lost.
    let links = if end_copy(path, &meta) { system::links(&meta) - 1 } else { system::links(&meta) };
    if links > 1 {
        let reason = format!("it has {links} names (hard links), a store has one: copy it instead");
        return Err(cannot_open(path, &reason, None));
    }
    if meta.len() == 0 {
        refuse_orphaned_wal(path, "the file itself is empty")?;
        refuse_planted(path, Protection::of_new())?;
        return Ok(FileKind::Empty);
    }
    refuse_planted(path, Protection::of(&meta))?;
    if registry::is_open(path) {
        return Ok(FileKind::Store);
    }
    if system::id(&meta).is_some_and(system::has_descriptor) {
        return inspect_through_sqlite(path);
    }
    inspect_header(path, &meta)
}

/// Takes away the name under which a copy was written, if its process ended before it did so. Returns whether it did.
fn end_copy(path: &Path, meta: &Metadata) -> bool {
    let unfinished = beside(path, UNFINISHED);
    let is_same = |other: Metadata| system::id(&other).is_some() && system::id(&other) == system::id(meta);
    fs::symlink_metadata(&unfinished).is_ok_and(is_same) && fs::remove_file(&unfinished).is_ok()
}

/// Makes a missing or empty file, readable for its owner alone, before SQLite does, which would let everybody read it.
pub(crate) fn make(path: &Path, kind: FileKind) -> Result<(), StoreError> {
    if kind == FileKind::Missing {
        let made = system::create_new(path).and_then(|file| {
            file.sync_all()?;
            // The name has to survive a power cut as well.
            path.parent().map_or(Ok(()), system::sync_folder)
        });
        match made {
            // Another process was faster, or the file was planted: it is inspected as one that was there before.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(|error| failed(path, error))?,
        }
        if matches!(inspect(path)?, FileKind::Store | FileKind::Unswitched) {
            return Ok(());
        }
    }
    let meta = fs::symlink_metadata(path).map_err(|error| failed(path, error))?;
    if !system::is_own(&meta) {
        return Err(cannot_open(path, "it is empty and belongs to another user", None));
    }
    if system::mode(&meta) != 0o600 {
        system::set_mode(path, 0o600).map_err(|error| failed(path, error))?;
    }
    Ok(())
}

/// Takes away a file that this process has made and could not write to, as on a full disk: it is the same file, and
/// empty. The caller has the turn to make it, and no connection to it.
pub(crate) fn unmake(path: &Path, made: Option<system::FileId>) {
    let is_same = |meta: Metadata| meta.len() == 0 && made.is_some() && system::id(&meta) == made;
    if fs::symlink_metadata(path).is_ok_and(is_same) {
        // An empty file that stays is taken for a new one.
        _ = fs::remove_file(path);
    }
}

/// Verifies, once the file is open, that it is the one that was inspected, and that nothing was planted meanwhile.
pub(crate) fn verify_open(path: &Path, before: Option<system::FileId>) -> Result<(), StoreError> {
    let meta = fs::symlink_metadata(path).map_err(|error| failed(path, error))?;
    if system::id(&meta) != before || system::links(&meta) > 1 {
        return Err(cannot_open(path, "it was replaced while it was opened", None));
    }
    refuse_planted(path, Protection::of(&meta))
}

/// Refuses the WAL of a file that was removed or emptied: SQLite would delete it, with all commits in it.
fn refuse_orphaned_wal(path: &Path, state: &str) -> Result<(), StoreError> {
    let wal = beside(path, "-wal");
    match fs::symlink_metadata(&wal) {
        Ok(meta) if meta.is_file() && meta.len() > 0 => {
            let reason = format!("{state}, but its write-ahead log {} holds {} bytes", wal.display(), meta.len());
            Err(StoreError::Corrupt { place: path.display().to_string(), reason })
        }
        _ => Ok(()),
    }
}

/// Refuses files beside the store that SQLite would use and that another user may have planted.
fn refuse_planted(path: &Path, store: Protection) -> Result<(), StoreError> {
    for suffix in BESIDE {
        let name = beside(path, suffix);
        let Ok(meta) = fs::symlink_metadata(&name) else { continue };
        let refuse = |reason: &str| Err(cannot_open(path, &format!("{} {reason}", name.display()), None));
        if !meta.is_file() {
            return refuse("is not a regular file");
        }
        if system::links(&meta) > 1 {
            return refuse("has more than one name (hard links)");
        }
        if !store.trusts_owner_of(&meta) {
            return refuse("belongs to another user than the store");
        }
        if let Some(mode) = store.stricter_mode(&meta)
            && (!system::is_own(&meta) || system::set_mode(&name, mode).is_err())
        {
            return refuse("can be read or written by users who cannot do so with the store");
        }
    }
    Ok(())
}

/// Reads the header with plain reads.
fn inspect_header(path: &Path, meta: &Metadata) -> Result<FileKind, StoreError> {
    let mut file = system::open_to_read(path).map_err(|error| failed(path, error))?;
    let opened = file.metadata().map_err(|error| failed(path, error))?;
    if system::id(&opened) != system::id(meta) || !opened.is_file() {
        return Err(cannot_open(path, "it was replaced while it was opened", None));
    }
    if meta.len() < HEADER_BYTES as u64 {
        return Err(not_a_store(path, "it is shorter than the header of a SQLite file"));
    }
    let mut bytes = [0; HEADER_BYTES];
    file.read_exact(&mut bytes).map_err(|error| failed(path, error))?;
    // The first commit of a new file was interrupted: its journal empties the file again.
    if bytes == [0; HEADER_BYTES] && beside(path, "-journal").exists() {
        return Ok(FileKind::Empty);
    }
    let has_wal = fs::metadata(beside(path, "-wal")).is_ok_and(|wal| wal.len() > 0);
    if bytes == [0; HEADER_BYTES] && !has_wal {
        return Err(not_a_store(path, &format!("its header is empty: {UNMADE}")));
    }
    if bytes[..16] != MAGIC[..] {
        return Err(not_a_store(path, "it is not a SQLite file"));
    }
    let header = Header::read(&bytes);
    identify(path, header.application, header.format)?;
    let has_journal = fs::metadata(beside(path, "-journal")).is_ok_and(|journal| journal.len() > 0);
    if header.is_wal && has_journal && !is_journal_of_switch(path, header.pages, header.page_bytes) {
        let reason = format!("{} is not a journal of it: remove it", beside(path, "-journal").display());
        return Err(cannot_open(path, &reason, None));
    }
    let whole = u64::from(header.pages.unwrap_or(0)) * header.page_bytes;
    // Read last: another process may be copying its WAL, and the file has all pages once the WAL is gone.
    let file_bytes = file.metadata().map_err(|error| failed(path, error))?.len();
    if file_bytes < whole && !has_wal && !has_journal {
        let mut reason = format!("it has {file_bytes} bytes, its header says {whole}: it was cut short");
        if !header.is_wal {
            reason = format!("{reason}; {UNMADE}");
        }
        return Err(StoreError::Corrupt { place: path.display().to_string(), reason });
    }
    Ok(if header.is_wal { FileKind::Store } else { FileKind::Unswitched })
}

impl Header {
    fn read(bytes: &[u8; HEADER_BYTES]) -> Self {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let page_bytes = match u64::from(u16::from_be_bytes([bytes[16], bytes[17]])) {
            1 => 65_536,
            bytes => bytes,
        };
        Self {
            application: i64::from(word(68)),
            format: i64::from(word(60)),
            is_wal: bytes[19] == 2,
            pages: (word(24) == word(92)).then(|| word(28)),
            page_bytes,
        }
    }
}

/// Returns whether the journal beside a file in WAL mode is that of its switch to this mode, which was interrupted: it
/// was written when the file had as many pages as now, and holds the first page alone. After a power cut it can lie
/// beside a WAL that was begun and not synced yet, and replaying it does no harm. Any other journal is foreign, as a
/// WAL needs none, and replaying it would destroy the store.
fn is_journal_of_switch(path: &Path, file_pages: Option<u32>, page_bytes: u64) -> bool {
    let mut bytes = [0; JOURNAL_HEADER_BYTES];
    let length = system::open_to_read(&beside(path, "-journal")).and_then(|mut file| {
        file.read_exact(&mut bytes)?;
        Ok(file.metadata()?.len())
    });
    let pages = u32::from_be_bytes([bytes[16], bytes[17], bytes[18], bytes[19]]);
    // A header of a sector, and a page with its number and checksum.
    let one_page = JOURNAL_SECTOR_BYTES + page_bytes + 8;
    length.is_ok_and(|length| length <= one_page) && bytes[..8] == JOURNAL_MAGIC && Some(pages) == file_pages
}

/// Reads the identity of a file that another part of this process has open, without locks and without its WAL. SQLite
/// does not say here whether the file is in WAL mode, so a journal is accepted only if it is harmless in this mode.
fn inspect_through_sqlite(path: &Path) -> Result<FileKind, StoreError> {
    let read = connect_unlocked(path).and_then(|conn| {
        let (application, format, _) = format::identity(&conn)?;
        let pages: u32 = conn.one(sql::ALL_PAGES, [])?;
        let page_bytes: u32 = conn.one(sql::READ_PAGE_BYTES, [])?;
        Ok((application, format, pages, page_bytes))
    });
    let has_bytes = |suffix: &str| fs::metadata(beside(path, suffix)).is_ok_and(|meta| meta.len() > 0);
    match read {
        Ok((application, format, pages, page_bytes)) => {
            identify(path, application, format)?;
            if has_bytes("-journal") && !is_journal_of_switch(path, Some(pages), u64::from(page_bytes)) {
                let journal = beside(path, "-journal");
                let reason = format!(
                    "{} may be the journal of another file, which cannot be told while this process has the store open: \
                     close it, or remove the journal",
                    journal.display()
                );
                return Err(cannot_open(path, &reason, None));
            }
            Ok(FileKind::Store)
        }
        // Pages that are missing in the file may be in its WAL.
        Err(Fault::Sql(error)) if has_bytes("-wal") && is_cut_short(&error) => Ok(FileKind::Store),
        Err(fault) => Err(opening(path, fault)),
    }
}

fn is_cut_short(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt)
}

fn failed(path: &Path, error: io::Error) -> StoreError {
    cannot_open(path, &error.to_string(), Some(Box::new(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    #[test]
    fn a_file_that_is_replaced_between_two_looks_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other] = ["one.db", "other.db"].map(|name| folder.path().join(name));
        for path in [&one, &other] {
            fs::write(path, [7; 2 * HEADER_BYTES]).unwrap();
        }
        let meta = |path: &Path| fs::symlink_metadata(path).unwrap();
        let error = inspect_header(&one, &meta(&other)).unwrap_err();
        let is_known = system::id(&meta(&one)).is_some();
        assert_eq!(error.to_string().contains("it was replaced while it was opened"), is_known, "{error}");
        let error = inspect_header(&one, &meta(&one)).unwrap_err();
        assert!(matches!(error, StoreError::NotAStore { .. }), "{error}");
    }

    #[test]
    fn pages_that_are_missing_are_damage_and_no_other_error() {
        let is_cut = |code| is_cut_short(&rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        assert!(is_cut(ffi::SQLITE_CORRUPT));
        assert!(![ffi::SQLITE_NOTADB, ffi::SQLITE_IOERR, ffi::SQLITE_CANTOPEN].into_iter().any(is_cut));
    }
}
