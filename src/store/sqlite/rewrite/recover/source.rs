//! A damaged file, made readable.
//!
//! All work is done on a copy. Its log is copied into it, unless the file alone is the newer or the sounder one. Its
//! first page, with the header and the schema, is replaced by one that is made here: the tables are those of the
//! format, and their first pages are read from the old schema or, where that is damaged, are those of every new file.
//! The rows of tables whose trees are damaged are collected from their pages ([`leaves`](super::leaves)), and stand in
//! the place of those tables; tables that the file does not have are empty. *Absent:* indexes, triggers and views.

use super::header::{self, DamagedHeader};
use super::leaves::{Defect, FileTrees, recovered};
use super::pages::{self, FilePages};
use super::sql;
use crate::store::error::StoreError;
use crate::store::sqlite::fault::{Fault, Res};
use crate::store::sqlite::file::format::identify;
use crate::store::sqlite::file::guard::is_of_application;
use crate::store::sqlite::file::paths::{beside, cannot_open, opening};
use crate::store::sqlite::file::system::{self, Stamp};
use crate::store::sqlite::file::table_group::{TableGroup, TableGroups};
use crate::store::sqlite::file::wal_link::{self, LogLink};
use crate::store::sqlite::file::{format, open, registry, schema};
use crate::store::sqlite::query::{FromColumns, Statements};
use crate::store::sqlite::sql as engine_sql;
use crate::store::sqlite::tables::{TableDescription, TableRow, checkpoint};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// A readable copy of a damaged file; removed when dropped.
pub(super) struct DamagedFile {
    pub(super) conn: Connection,
    /// True if the header is that of a store.
    pub(super) is_known: bool,
    /// The reason, if the log could not be read, or was left out.
    pub(super) log_error: Option<String>,
    /// The tables of the application.
    pub(super) of_application: Vec<String>,
    /// A second copy with its indexes, if the file has pruned checkpoints.
    pub(super) whole: Option<Connection>,
    /// The pages of trees that cannot be read.
    pub(super) defects: Vec<Defect>,
    /// True if a tree is damaged.
    pub(super) is_damaged: bool,
    /// The reasons for which it cannot be known whether the file was longer.
    pub(super) doubts: Vec<String>,
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
    /// With `collects_all`, the rows of every table are collected from their pages.
    pub(super) fn open(from: &Path, scratch: &Path, collects_all: bool) -> Result<Self, StoreError> {
        let folder = Scratch::new(scratch)?;
        let copied = scratch.join("store.db");
        copy(from, &copied)?;
        let in_scratch = |error: &io::Error| failed(scratch, error);
        undo_translation(&copied).map_err(|error| in_scratch(&error))?;
        let header = header::repair(from, &copied).map_err(|error| in_scratch(&error))??;
        let link = wal_link::compare(from, false).map_err(|error| failed(from, &error))?;
        let foreign =
            if let LogLink::Foreign(reason) = &link { Some(format!("it was left out: {reason}")) } else { None };
        let old = fold(&copied, foreign).map_err(|fault| opening(scratch, fault))?;
        // Without the id of a store, the other fields of the header mean as little.
        if !old.is_whole && !header.is_other && header.format != 0 {
            identify(from, engine_sql::APPLICATION_ID, header.format)?;
        }
        let mut doubts = doubts(&copied, &header).map_err(|error| in_scratch(&error))?;
        if let LogLink::Missing(reason) | LogLink::Cut(reason) = link {
            doubts.push(reason);
        }
        let made = readable(&copied, scratch, collects_all, &old).map_err(|fault| opening(scratch, fault))?;
        let (conn, trees, whole) = made;
        let is_damaged = !trees.is_whole();
        if trees.unknown.iter().any(|table| TableGroup::of(table) == Some(TableGroup::Memory)) {
            doubts.push(
                "its schema is damaged: it is not known whether it had more entries of the key-value memory".into(),
            );
        }
        let defects = trees.defects;
        let mut of_application: Vec<String> = old.tables.into_iter().filter(|name| is_of_application(name)).collect();
        of_application.sort();
        let (is_known, log_error) = (!header.is_other, old.log_error);
        Ok(Self { conn, is_known, log_error, of_application, whole, defects, is_damaged, doubts, _folder: folder })
    }
}

/// A connection to the rows of a file, its trees, and its second copy.
type Readable = (Connection, FileTrees, Option<Connection>);

/// Makes the rows of a copy readable.
fn readable(path: &Path, scratch: &Path, collects_all: bool, old: &OldSchema) -> Res<Readable> {
    let mut roots = if old.is_whole { HashMap::new() } else { roots_of_new_file().unwrap_or_default() };
    roots.extend(old.roots.iter().map(|(name, root)| (name.clone(), *root)));
    let (trees, pages) = walk(path, (&roots, old.groups), collects_all)?;
    let has_pruned = trees.is_whole() && old.is_whole && old.has_pruned;
    let mut whole = if has_pruned { Some(second_copy(path, &scratch.join("whole.db"))?) } else { None };
    let conn = Connection::open(scratch.join("rows.db"))?;
    trees.collect(&pages, &conn)?;
    let is_read = |table: &str| trees.is_read(table);
    if recovered().any(|table| is_read(table.name)) {
        header::replace_first_page(path, &scratch.join("page.db"), &roots, &is_read)?;
        conn.execute(sql::ATTACH, [path.to_string_lossy()])?;
    }
    conn.execute_batch(sql::READ_STRICTLY)?;
    // If a damaged page hides the pruned ones, their table was not collected.
    let is_pruned = || conn.query_row(sql::HAS_PRUNED, [], |row| row.get::<_, bool>(0)).unwrap_or(false);
    if !trees.is_whole() && is_pruned() {
        whole = Some(made_whole(path, scratch, &trees)?);
    }
    Ok((conn, trees, whole))
}

/// Walks the trees of a file, which bytes that are missing or too many may have displaced.
fn walk(
    path: &Path,
    (roots, groups): (&HashMap<String, i64>, Option<TableGroups>),
    collects_all: bool,
) -> Res<(FileTrees, FilePages)> {
    let io = |error: io::Error| failed(path, &error);
    let mut pages = FilePages::read(File::open(path).map_err(io)?).map_err(io)?;
    let mut trees = FileTrees::walk(&pages, roots, groups, collects_all);
    if !trees.is_whole() {
        pages.locate();
        if pages.is_displaced() {
            trees = FileTrees::walk(&pages, roots, groups, collects_all);
        }
    }
    match pages.is_read() {
        true => Ok((trees, pages)),
        false => Err(failed(path, &io::Error::other("a page could not be read")).into()),
    }
}

/// Makes a file of the rows that were collected, with all indexes, as readers need it.
fn made_whole(path: &Path, scratch: &Path, trees: &FileTrees) -> Res<Connection> {
    let whole = Connection::open(scratch.join("whole.db"))?;
    whole.execute_batch(sql::SCRATCH_FILE)?;
    // A row of another type is noticed where it is read.
    let statements = schema::statements(engine_sql::SCHEMA).replace(") STRICT", ")").replace("), WITHOUT", ") WITHOUT");
    let tables =
        statements.split("\n\n").filter(|block| !sql::NO_TABLE_OR_INDEX.iter().any(|words| block.contains(words)));
    tables.into_iter().try_for_each(|block| whole.execute_batch(block))?;
    let is_any_read = recovered().any(|table| trees.is_read(table.name));
    for (name, file) in [("collected", scratch.join("rows.db")), ("store", path.to_path_buf())] {
        if name == "store" && !is_any_read {
            continue;
        }
        whole.execute(&sql::ATTACH.replace("store", name), [file.to_string_lossy()])?;
    }
    whole.execute_batch(engine_sql::BEGIN_READ)?;
    for TableDescription { name: table, columns, .. } in recovered() {
        let from = if trees.is_read(table) { "store" } else { "collected" };
        let columns = columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ");
        let copy = sql::COPY.replace("{table}", table).replace("{columns}", &columns).replace("{from}", from);
        whole.execute(&copy, [])?;
    }
    whole.execute_batch(engine_sql::COMMIT)?;
    whole.execute_batch(sql::READ_STRICTLY)?;
    Ok(whole)
}

/// Undoes a translation of line ends, which changes the length of a file.
fn undo_translation(path: &Path) -> io::Result<()> {
    let is_displaced = !fs::metadata(path)?.len().is_multiple_of(header::PAGE as u64);
    if is_displaced && pages::is_translated(File::open(path)?)? {
        let restored = beside(path, "-restored");
        pages::untranslate(File::open(path)?, system::create_new(&restored)?)?;
        fs::rename(restored, path)?;
    }
    Ok(())
}

/// Returns the reasons for which it cannot be known whether the file had more rows.
fn doubts(path: &Path, header: &DamagedHeader) -> io::Result<Vec<String>> {
    let mut doubts = Vec::new();
    let there = fs::metadata(path)?.len() / header::PAGE as u64;
    match header::pages_of(path, header)? {
        None => doubts.push("its header is damaged: how many pages it had is not known".to_owned()),
        Some(counted) if counted > there => {
            doubts.push(format!("its header counts {counted} pages, and {there} are there"));
        }
        Some(_) => {}
    }
    Ok(doubts)
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
        let of_source = |error: io::Error| failed(&path, &error);
        let mut source = system::open_to_read(&path).map_err(of_source)?;
        let copied = beside(to, suffix);
        copy_bytes(&mut source, &copied).map_err(|error| match error {
            CopyError::Read(error) => failed(&path, &error),
            CopyError::Write(error) => failed(&copied, &error),
        })?;
        let after = fs::symlink_metadata(&path).map_err(of_source)?;
        if Stamp::of(&after) != Stamp::of(&meta) {
            return Err(StoreError::Busy { waited_ms: 0, holder: None });
        }
    }
    Ok(())
}

/// The side on which a copy failed.
enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

fn copy_bytes(source: &mut File, to: &Path) -> Result<(), CopyError> {
    let mut copy = system::create_new(to).map_err(CopyError::Write)?;
    let mut bytes = vec![0; 1 << 16];
    loop {
        match source.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => copy.write_all(&bytes[..count]).map_err(CopyError::Write)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(CopyError::Read(error)),
        }
    }
}

/// The readable part of the old schema.
#[derive(Default)]
struct OldSchema {
    /// True if it is the schema of the format.
    is_whole: bool,
    /// The groups that the file has, if its header is sound, or its schema has them alone.
    groups: Option<TableGroups>,
    /// The first pages of the tables and indexes.
    roots: HashMap<String, i64>,
    tables: Vec<String>,
    /// The reason, if the log could not be read, or was left out.
    log_error: Option<String>,
    /// True if checkpoints were pruned, or may have been.
    has_pruned: bool,
}

/// Copies the log into the file, and reads the schema. Damage leaves either undone.
fn fold(path: &Path, foreign: Option<String>) -> Res<OldSchema> {
    let mut old = OldSchema::default();
    let has_log = fs::metadata(beside(path, "-wal")).is_ok_and(|wal| wal.len() > 0);
    if has_log && let Some(why) = foreign.or_else(|| is_of_other_state(path)) {
        old.log_error = Some(why);
        for suffix in ["-wal", "-shm"] {
            // The copy of the log; that of a reader may not be there.
            _ = fs::remove_file(beside(path, suffix));
        }
    }
    let folded = (|| -> Res<Connection> {
        let conn = Connection::open(path)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false)?;
        conn.execute_batch(sql::WRITABLE_SCHEMA)?;
        conn.query_row(engine_sql::WAL_TRUNCATE, [], |_| Ok(()))?;
        Ok(conn)
    })();
    match folded {
        Ok(conn) => {
            old.is_whole = schema::verify(&conn).is_ok();
            let is_sound = |groups: &TableGroups| old.is_whole || groups.format() == engine_sql::FORMAT;
            old.groups = TableGroups::read(&conn).ok().filter(is_sound);
            // A damaged page may hide a pruned checkpoint.
            old.has_pruned = conn.one(sql::HAS_PRUNED, []).unwrap_or(true);
            // The rows before a damaged one are read.
            _ = read_roots(&conn, &mut old);
        }
        Err(fault) if is_of_disk(&fault) => return Err(fault),
        Err(fault) => old.log_error = has_log.then(|| opening(path, fault).to_string()),
    }
    Ok(old)
}

/// Returns whether the disk of the copy is full or refuses to work.
fn is_of_disk(fault: &Fault) -> bool {
    let code = match fault {
        Fault::Sql(error) => error.sqlite_error_code(),
        Fault::Store(_) => None,
    };
    matches!(code, Some(ErrorCode::DiskFull | ErrorCode::OutOfMemory | ErrorCode::ReadOnly))
}

/// Returns the reason to leave a log out: with it, the file is older than alone, or damaged.
fn is_of_other_state(path: &Path) -> Option<String> {
    let is_sound = |conn: &Connection| conn.one::<String>(sql::QUICK_CHECK, []).is_ok_and(|found| found == "ok");
    let last = |conn: &Connection| conn.one::<Option<i64>>(checkpoint::Row::GREATEST, []).ok();
    let alone = open::connect_unlocked(path).ok().filter(is_sound)?;
    let last_alone = last(&alone)?.unwrap_or(0);
    let both = Connection::open(path).ok()?;
    // The log stays beside the file as it is.
    both.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).ok()?;
    if !is_sound(&both) {
        return Some("it was left out: with it, the file is damaged, and alone it is sound".into());
    }
    let last_of_both = last(&both)?.unwrap_or(0);
    (last_of_both < last_alone).then(|| {
        format!(
            "it was left out: it is of an older state, in which the last checkpoint is {last_of_both}, and of the file \
             alone {last_alone}"
        )
    })
}

/// Copies a file whose log was copied into it, and opens the copy as a reader does.
fn second_copy(path: &Path, to: &Path) -> Res<Connection> {
    let io = |error: io::Error| failed(to, &error);
    let mut source = system::open_to_read(path).map_err(io)?;
    let mut copy = system::create_new(to).map_err(io)?;
    io::copy(&mut source, &mut copy).map_err(io)?;
    let conn = open::connect_unlocked(to)?;
    conn.execute_batch(sql::READ_STRICTLY)?;
    Ok(conn)
}

fn read_roots(conn: &Connection, old: &mut OldSchema) -> Res<()> {
    conn.each(sql::ROOTS, [], |row| {
        if let Ok((name, root @ 2.., kind)) = <(String, i64, Option<String>)>::read(row, 0) {
            if kind.is_some_and(|kind| kind == "table") {
                old.tables.push(name.clone());
            }
            old.roots.insert(name, root);
        }
        Ok(())
    })
}

/// Returns the first page of each table of a new file, and of its unique indexes.
fn roots_of_new_file() -> Res<HashMap<String, i64>> {
    let conn = Connection::open_in_memory()?;
    format::make_if_empty(&conn, Path::new(":memory:"))?;
    let mut found = OldSchema::default();
    read_roots(&conn, &mut found)?;
    found.roots.retain(|name, _| found.tables.contains(name) || name.starts_with("sqlite_autoindex"));
    Ok(found.roots)
}

fn failed(path: &Path, error: &io::Error) -> StoreError {
    cannot_open(path, &error.to_string(), None)
}
