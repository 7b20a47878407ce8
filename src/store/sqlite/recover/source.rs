//! A damaged file, made readable as far as SQLite can.
//!
//! All work is done on a copy. Its log is copied into it, and its first page, with the header and the schema, is
//! replaced by one that is made here: the tables are those of the format, and their first pages are read from the old
//! schema or, where that is damaged, are those of every new file. *Absent:* indexes, triggers and views.

use super::sql;
use crate::store::error::StoreError;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::guard::is_of_application;
use crate::store::sqlite::open::{beside, cannot_open, identify, not_a_store, opening};
use crate::store::sqlite::system::{self, Stamp};
use crate::store::sqlite::{migrate, open, registry, schema, sql as engine_sql};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const PAGE: usize = engine_sql::PAGE_BYTES as usize;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// The fields of a header that are the same in every store: magic; page size, WAL, payload fractions; schema format;
/// encoding.
const HEADER: [(usize, &[u8]); 4] =
    [(0, MAGIC), (16, &[0x10, 0, 2, 2, 0, 64, 32, 32]), (44, &[0, 0, 0, 4]), (56, &[0, 0, 0, 1])];
/// The number of pages, the free pages, and the pages that are mapped to their parents.
const PAGES_AT: usize = 28;
const FREE_AT: usize = 32;
const MAPPED_AT: usize = 52;
const FORMAT_AT: usize = 60;
const APPLICATION_AT: usize = 68;
const VALID_FOR_AT: usize = 92;

/// A readable copy of a damaged file; removed when dropped.
pub(super) struct DamagedFile {
    pub(super) conn: Connection,
    pub(super) format: i64,
    /// True if the header is that of a store.
    pub(super) is_known: bool,
    /// The reason, if the log could not be read.
    pub(super) log_error: Option<String>,
    /// The tables of the application.
    pub(super) of_application: Vec<String>,
    /// A second copy with its indexes, if the file has the schema of this format, and pruned checkpoints.
    pub(super) whole: Option<Connection>,
    _folder: Scratch,
}

/// A folder of its own, removed with its files when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(path: &Path) -> Result<Self, StoreError> {
        system::create_folder(path).map_err(|error| failed(path, &error))?;
        Ok(Self(path.into()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A leftover is private, and its name ends in `-damaged`.
        _ = fs::remove_dir_all(&self.0);
    }
}

impl DamagedFile {
    /// Makes a readable copy of `from` in the folder `scratch`, which must not exist.
    pub(super) fn open(from: &Path, scratch: &Path) -> Result<Self, StoreError> {
        let folder = Scratch::new(scratch)?;
        let (whole, page_1) = (scratch.join("store.db"), scratch.join("page.db"));
        copy(from, &whole)?;
        let header = repair_header(from, &whole).map_err(|error| failed(from, &error))??;
        let old = fold(&whole);
        let second = match old.has_pruned {
            true => Some(second_copy(&whole, &scratch.join("whole.db")).map_err(|fault| opening(from, fault))?),
            false => None,
        };
        let format = match old.format {
            Some(format) => format,
            // Without the id of a store, the other fields of the header mean as little.
            None if header.is_other || header.format == 0 => engine_sql::FORMAT,
            None => {
                identify(from, engine_sql::APPLICATION_ID, header.format)?;
                header.format
            }
        };
        let made = (|| -> Res<Connection> {
            let mut roots = roots_of_new_file(format).unwrap_or_default();
            roots.extend(old.roots.iter().map(|(name, root)| (name.clone(), *root)));
            replace_first_page(&whole, &page_1, &roots)?;
            let conn = Connection::open_with_flags(
                &whole,
                OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
            )?;
            conn.execute_batch(sql::READ_STRICTLY)?;
            Ok(conn)
        })();
        let conn = made.map_err(|fault| opening(from, fault))?;
        let mut of_application: Vec<String> = old.roots.into_keys().filter(|name| is_of_application(name)).collect();
        of_application.sort();
        let (is_known, log_error) = (!header.is_other, old.log_error);
        Ok(Self { conn, format, is_known, log_error, of_application, whole: second, _folder: folder })
    }
}

/// Copies a file that no process changes, with its log.
fn copy(from: &Path, to: &Path) -> Result<(), StoreError> {
    if registry::is_open(from) {
        return Err(cannot_open(from, "it is open in this process: drop its handles first", None));
    }
    for suffix in ["", "-wal"] {
        let path = if suffix.is_empty() { from.to_path_buf() } else { beside(from, suffix) };
        let meta = match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_file() => meta,
            Err(error) if suffix.is_empty() => return Err(failed(from, &error)),
            _ if suffix.is_empty() => return Err(cannot_open(from, "it is not a regular file", None)),
            _ => continue,
        };
        let copied = system::open_to_read(&path).and_then(|mut source| {
            let mut copy = system::create_new(&beside(to, suffix))?;
            io::copy(&mut source, &mut copy)?;
            fs::symlink_metadata(&path)
        });
        let after = copied.map_err(|error| failed(&path, &error))?;
        if Stamp::of(&after) != Stamp::of(&meta) {
            return Err(StoreError::Busy { waited_ms: 0, holder: None });
        }
    }
    Ok(())
}

/// The fields of the header of a damaged file that name its kind.
struct DamagedHeader {
    format: i64,
    /// True if it does not have the id of a store.
    is_other: bool,
}

/// Reads the header, and sets its fields that are the same in every store.
fn repair_header(from: &Path, path: &Path) -> io::Result<Result<DamagedHeader, StoreError>> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    let bytes = file.metadata()?.len();
    let mut page = vec![0; PAGE];
    if bytes < PAGE as u64 {
        return Ok(Err(not_a_store(from, "it is shorter than a page")));
    }
    file.read_exact(&mut page)?;
    let word = |at: usize| i64::from(u32::from_be_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]]));
    let differing = (engine_sql::APPLICATION_ID ^ word(APPLICATION_AT)).to_be_bytes();
    let is_other = differing.iter().filter(|byte| **byte != 0).count() > 1;
    // A byte of the id may be damaged. Without the magic number nothing is known of the file but its pages.
    if is_other && page[..16] == MAGIC[..] {
        return Ok(Err(not_a_store(from, &format!("its application id is {:#x}", word(APPLICATION_AT)))));
    }
    let header = DamagedHeader { format: word(FORMAT_AT), is_other };
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

/// The readable part of the old schema.
#[derive(Default)]
struct OldSchema {
    /// The format whose schema it is, if it is one as a whole.
    format: Option<i64>,
    /// The first pages of the tables.
    roots: HashMap<String, i64>,
    /// The reason, if the log could not be read.
    log_error: Option<String>,
    /// True if the file has the newest format, and checkpoints that were pruned.
    has_pruned: bool,
}

/// Copies the log into the file, and reads the schema. Damage leaves either undone.
fn fold(path: &Path) -> OldSchema {
    let mut old = OldSchema::default();
    let has_log = fs::metadata(beside(path, "-wal")).is_ok_and(|wal| wal.len() > 0);
    let folded = (|| -> Res<Connection> {
        let conn = Connection::open(path)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)?;
        conn.execute_batch(sql::WRITABLE_SCHEMA)?;
        conn.query_row(sql::FOLD_LOG, [], |_| Ok(()))?;
        Ok(conn)
    })();
    match folded {
        Ok(conn) => {
            old.format = (1..=engine_sql::FORMAT).rev().find(|format| schema::verify_format(&conn, *format).is_ok());
            // A damaged page may hide a pruned checkpoint.
            let has_pruned = || conn.query_row(sql::HAS_PRUNED, [], |row| row.get::<_, bool>(0));
            old.has_pruned = old.format == Some(engine_sql::FORMAT) && has_pruned().unwrap_or(true);
            // The rows before a damaged one are read.
            _ = read_roots(&conn, &mut old.roots);
        }
        Err(fault) => old.log_error = has_log.then(|| opening(path, fault).to_string()),
    }
    old
}

/// Copies a file whose log was copied into it, and opens the copy as a reader does.
fn second_copy(path: &Path, to: &Path) -> Res<Connection> {
    let io = |error: io::Error| failed(path, &error);
    let mut source = system::open_to_read(path).map_err(io)?;
    let mut copy = system::create_new(to).map_err(io)?;
    io::copy(&mut source, &mut copy).map_err(io)?;
    let conn = open::connect_unlocked(to)?;
    conn.execute_batch(sql::READ_STRICTLY)?;
    Ok(conn)
}

fn read_roots(conn: &Connection, roots: &mut HashMap<String, i64>) -> Res<()> {
    let mut statement = conn.prepare(sql::ROOTS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if let (Ok(name), Ok(root @ 2..)) = (row.get::<_, String>(0), row.get::<_, i64>(1)) {
            roots.insert(name, root);
        }
    }
    Ok(())
}

/// Returns the first page of each table of a new file.
fn roots_of_new_file(format: i64) -> Res<HashMap<String, i64>> {
    let conn = Connection::open_in_memory()?;
    if format == engine_sql::FORMAT {
        migrate::make_if_empty(&conn, Path::new(":memory:"))?;
    } else {
        conn.execute_batch(migrate::STEPS[0].schema)?;
    }
    let mut statement = conn.prepare(sql::ROOTS)?;
    let roots = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(roots.collect::<rusqlite::Result<_>>()?)
}

/// Replaces the first page by one whose schema has the tables alone.
fn replace_first_page(path: &Path, page_1: &Path, roots: &HashMap<String, i64>) -> Res<()> {
    let io = |error: io::Error| failed(path, &error);
    system::create_new(page_1).map_err(io)?;
    let conn = Connection::open(page_1)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)?;
    conn.execute_batch(sql::SCRATCH_FILE)?;
    conn.execute_batch(sql::WRITABLE_SCHEMA)?;
    for (name, statement) in &sql::TABLES {
        conn.execute(sql::SCHEMA_ROW, (name, roots.get(*name).copied().unwrap_or(0), statement))?;
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

fn failed(path: &Path, error: &io::Error) -> StoreError {
    cannot_open(path, &error.to_string(), None)
}
