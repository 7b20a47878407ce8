//! Opens a file for writing, and makes it if it is missing.
//!
//! *Absent:* the connections ([`open`](crate::store::sqlite::file::open)).

use crate::store::error::StoreError;
use crate::store::options::OpenOptions;
use crate::store::sqlite::file::inspect::{FileKind, inspect, make, unmake, verify_open};
use crate::store::sqlite::file::lock_queue::turn_to_make;
use crate::store::sqlite::file::open::{connect_maker, copies_on_close, place, verify_log};
use crate::store::sqlite::file::paths::{cannot_open, not_a_store, opening};
use crate::store::sqlite::file::place::{FilePlace, opening_place};
use crate::store::sqlite::file::system;
use rusqlite::Connection;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// A file that is open for writing.
pub(crate) struct OpenedFile {
    pub(crate) place: FilePlace,
    pub(crate) conn: Connection,
}

/// Opens the file for writing, and makes it if it may.
pub(crate) fn writable(path: &Path, options: &OpenOptions) -> Result<OpenedFile, StoreError> {
    let mut place = place(path, options)?;
    let mut kind = inspect(&place.path)?;
    // Processes that make one file would keep each other from it: its journal needs a lock that is free by chance only
    // while they look whether it is made. So one makes it, and the others find it in WAL mode.
    let mut turn = None;
    if kind != FileKind::Store && (options.create || kind == FileKind::Unswitched) {
        turn = turn_to_make(&place.path, Duration::from_millis(place.busy_ms));
        kind = inspect(&place.path)?;
    }
    match kind {
        FileKind::Missing if !options.create => return Err(cannot_open(path, "it does not exist", None)),
        FileKind::Empty if !options.create => return Err(not_a_store(path, "it is empty")),
        FileKind::Missing | FileKind::Empty => make(&place.path, kind)?,
        FileKind::Unswitched => {}
        FileKind::Store => turn = None,
    }
    if let Some(reason) = verify_log(&place.path)? {
        return Err(StoreError::LogMissing { path: place.path, reason });
    }
    place.id = fs::symlink_metadata(&place.path).ok().and_then(|meta| system::id(&meta));
    let connected = connect_maker(&place);
    if connected.is_err() && kind == FileKind::Missing && turn.is_some() {
        unmake(&place.path, place.id);
    }
    drop(turn);
    let conn = connected.map_err(|fault| opening_place(&place, fault))?;
    verify_open(&place.path, place.id)?;
    copies_on_close(&conn, true).map_err(|fault| opening(&place.path, fault))?;
    Ok(OpenedFile { place, conn })
}
