//! The first page of a damaged file: its header is repaired, and then the page is replaced.
//!
//! *Absent:* the other pages.

use super::leaves::recovered;
use super::sql;
use crate::store::error::StoreError;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::file::format::other_application;
use crate::store::sqlite::file::paths::{beside, cannot_open, not_a_store};
use crate::store::sqlite::file::system;
use crate::store::sqlite::sql as engine_sql;
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

pub(super) const PAGE: usize = engine_sql::PAGE_BYTES as usize;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// The fields of a header that are the same in every store: magic; page size, WAL, payload fractions; schema format;
/// encoding.
const HEADER: [(usize, &[u8]); 4] =
    [(0, MAGIC), (16, &[0x10, 0, 2, 2, 0, 64, 32, 32]), (44, &[0, 0, 0, 4]), (56, &[0, 0, 0, 1])];
/// The number of changes, the number of pages, the free pages, and the pages that are mapped to their parents.
const CHANGES_AT: usize = 24;
const PAGES_AT: usize = 28;
const FREE_AT: usize = 32;
const MAPPED_AT: usize = 52;
const FORMAT_AT: usize = 60;
const APPLICATION_AT: usize = 68;
const VALID_FOR_AT: usize = 92;

/// The fields of the header of a damaged file that name its kind.
pub(super) struct DamagedHeader {
    pub(super) format: i64,
    /// True if it does not have the id of a store.
    pub(super) is_other: bool,
    /// The number of pages of the file without its log, if the header is sound.
    pages: Option<u64>,
}

/// Reads the header, and sets its fields that are the same in every store.
pub(super) fn repair(from: &Path, path: &Path) -> io::Result<Result<DamagedHeader, StoreError>> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let bytes = file.metadata()?.len();
    let mut page = vec![0; PAGE];
    if bytes < PAGE as u64 {
        return Ok(Err(not_a_store(from, "it is shorter than a page")));
    }
    file.read_exact(&mut page)?;
    let id = word(&page, APPLICATION_AT);
    let differing = (engine_sql::APPLICATION_ID ^ id).to_be_bytes();
    // A byte of the id may be damaged. Without the magic number nothing is known of the file but its pages.
    let is_other = differing.iter().filter(|byte| **byte != 0).count() > 1;
    let has_magic = page[..16] == MAGIC[..];
    // An id of zeros is that of no application.
    if is_other && has_magic && id != 0 {
        return Ok(Err(other_application(from, id, word(&page, FORMAT_AT))));
    }
    let is_valid = has_magic && word(&page, CHANGES_AT) == word(&page, VALID_FOR_AT);
    let header = DamagedHeader {
        format: word(&page, FORMAT_AT),
        is_other,
        pages: u64::try_from(word(&page, PAGES_AT)).ok().filter(|pages| is_valid && *pages > 0),
    };
    for (at, bytes) in HEADER {
        page[at..at + bytes.len()].copy_from_slice(bytes);
    }
    // A number of pages that is not valid for the present change is that of the file itself.
    page[VALID_FOR_AT..VALID_FOR_AT + 4].copy_from_slice(&[0; 4]);
    page[PAGES_AT..FREE_AT + 8].fill(0);
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&page)?;
    Ok(Ok(header))
}

/// Returns the number of pages that a file had by its header, or by that in its log; `None` if it is damaged.
pub(super) fn pages_of(path: &Path, header: &DamagedHeader) -> io::Result<Option<u64>> {
    let mut page = vec![0; PAGE];
    fs::File::open(path)?.read_exact(&mut page)?;
    let of_log = u64::try_from(word(&page, PAGES_AT)).ok().filter(|pages| *pages > 0);
    Ok(of_log.or(header.pages))
}

fn word(page: &[u8], at: usize) -> i64 {
    i64::from(u32::from_be_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]))
}

/// Replaces the first page by one whose schema has some of the tables alone.
pub(super) fn replace_first_page(
    path: &Path,
    page_1: &Path,
    roots: &HashMap<String, i64>,
    has: &dyn Fn(&str) -> bool,
) -> Res<()> {
    let io = |error: io::Error| cannot_open(path, &error.to_string(), None);
    system::create_new(page_1).map_err(io)?;
    let conn = Connection::open(page_1)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)?;
    conn.execute_batch(sql::SCRATCH_FILE)?;
    conn.execute_batch(sql::WRITABLE_SCHEMA)?;
    for table in recovered().filter(|table| has(table.name)) {
        conn.execute(sql::SCHEMA_ROW, (table.name, roots.get(table.name).copied().unwrap_or(0), table.create()))?;
    }
    drop(conn);
    let mut page = vec![0; PAGE];
    fs::File::open(page_1).and_then(|mut file| file.read_exact(&mut page)).map_err(io)?;
    let mut file = OpenOptions::new().write(true).open(path).map_err(io)?;
    let pages = (file.metadata().map_err(io)?.len() / PAGE as u64) as u32;
    page[PAGES_AT..PAGES_AT + 4].copy_from_slice(&pages.to_be_bytes());
    page[FREE_AT..FREE_AT + 8].fill(0);
    page[MAPPED_AT..MAPPED_AT + 4].fill(0);
    // The log was copied, or cannot be read.
    for suffix in ["-wal", "-shm"] {
        _ = fs::remove_file(beside(path, suffix));
    }
    file.write_all(&page).map_err(io)?;
    Ok(())
}
