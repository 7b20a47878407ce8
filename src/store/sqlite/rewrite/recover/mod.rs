//! Writes the sound part of a damaged file to a new store, and reports the losses.
//!
//! The damaged file is copied first ([`source`]) and stays as it is. Its checkpoints are written anew in the order of
//! the log ([`replay`](super::replay)): those whose checksum verifies, each after its parent. So of each lineage the
//! longest sound beginning is recovered. A checkpoint after a pruned one begins a lineage with its whole state. Content
//! that matches its own check and is not in a sound lineage is written to threads of its own. The new store gets its
//! name once a check of it has found no problem. A store with keys is recovered to one with the same keys. *Absent:*
//! the cache, and everything that no check covers.

mod cells;
mod header;
mod leaves;
mod pages;
mod source;
mod sql;

use super::opening;
use super::replay::{LogReplay, reason, scan};
use crate::base::{ThreadId, Timestamp};
use crate::limits::LOST_MAX;
use crate::store::error::StoreError;
use crate::store::options::OpenOptions;
use crate::store::recovery::{Lost, LostKind, Recovery};
use crate::store::side_tables::{KvChange, KvNamespace, KvRecord};
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::file::paths;
use crate::store::sqlite::file::paths::beside;
use crate::store::sqlite::file::{backup, registry};
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::query::{FromColumns, Statements};
use crate::store::sqlite::read::names::Names;
use crate::store::sqlite::side::kv::vectors::EntryOwner;
use crate::store::sqlite::side::kv::{self, vectors};
use crate::store::sqlite::tables::{self, TableRow};
use crate::store::sqlite::view::ReadView;
use crate::store::sqlite::{check, sql as engine_sql};
use rusqlite::{Connection, Row, params};
use source::DamagedFile;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Recovers the store at `from` to a new file.
pub(crate) fn recover(from: &Path, to: &Path, options: &OpenOptions) -> Result<Recovery, StoreError> {
    let _opening = registry::opening();
    if to.symlink_metadata().is_ok() {
        let exists = io::Error::from(io::ErrorKind::AlreadyExists);
        return Err(backup::failed(to, exists));
    }
    let unfinished = beside(to, backup::UNFINISHED);
    if unfinished.symlink_metadata().is_ok() {
        return Err(backup::failed(&unfinished, io::ErrorKind::AlreadyExists.into()));
    }
    match attempt(from, to, &unfinished, options, false) {
        // Damage that the trees do not show: pages that are whole hold rows of another place.
        Err(StoreError::Corrupt { place, reason }) => match attempt(from, to, &unfinished, options, true) {
            Ok(mut report) => {
                report
                    .doubts
                    .push(format!("the file is damaged at {place}, also where its tables are whole: {reason}"));
                Ok(report)
            }
            Err(_) => Err(StoreError::Corrupt { place, reason }),
        },
        done => done,
    }
}

/// Recovers the store; with `collects_all`, the rows of every table are collected from their pages.
fn attempt(
    from: &Path,
    to: &Path,
    unfinished: &Path,
    options: &OpenOptions,
    collects_all: bool,
) -> Result<Recovery, StoreError> {
    let source = DamagedFile::open(from, &beside(to, "-damaged"), collects_all)?;
    let keys = Arc::new(Keys::new(options.clone()));
    keys.unlock_damaged(&source.conn, from).map_err(|fault| paths::opening(from, fault))?;
    let recovered = write(&source, from, unfinished, &keys).and_then(|report| {
        backup::publish(unfinished, to).map_err(|error| backup::failed(to, error))?;
        Ok(report)
    });
    if recovered.is_err() {
        for suffix in ["", "-wal", "-shm"] {
            // The first error is reported.
            _ = fs::remove_file(beside(unfinished, suffix));
        }
    }
    recovered
}

fn write(source: &DamagedFile, from: &Path, to: &Path, keys: &Arc<Keys>) -> Result<Recovery, StoreError> {
    let writable = opening::writable(to, &OpenOptions::new())?;
    let conn = &writable.conn;
    let replayed = (|| -> Res<Recovery> {
        conn.execute_batch(engine_sql::BEGIN_WRITE)?;
        keys.copy_to(&source.conn, conn)?;
        let mut replay = LogReplay::new((&source.conn, source.whole.as_ref()), conn, keys)?;
        replay.knows_deleted = source.defects.iter().all(|defect| defect.table != "tombstone");
        replay.run()?;
        if source.is_damaged || replay.report.lost_count > 0 {
            replay.salvage()?;
        }
        let mut report = replay.report;
        report.doubts.clone_from(&source.doubts);
        if source.is_damaged {
            missing(source, &mut report)?;
        }
        if let Some(error) = &source.log_error {
            note(&mut report, LostKind::Log, None, "the write-ahead log".into(), error.clone());
        }
        for table in &source.of_application {
            let reason = "tables of the application are not recovered".to_owned();
            note(&mut report, LostKind::Table, None, format!("table {table:?}"), reason);
        }
        entries(source, conn, keys, &mut report)?;
        threads(&source.conn, conn, &mut report)?;
        conn.execute_batch(engine_sql::COMMIT)?;
        verify(conn, keys)?;
        conn.query_row(engine_sql::WAL_TRUNCATE, [], |_| Ok(()))?;
        Ok(report)
    })();
    let report = replayed.map_err(|fault| fault.into_write(|| StoreError::Busy { waited_ms: 0, holder: None }))?;
    if report.checkpoints + report.entries + report.salvaged == 0 && !source.is_known {
        return Err(paths::not_a_store(from, "neither its header nor any of its rows is that of a store"));
    }
    Ok(report)
}

/// Checks the new store.
fn verify(conn: &Connection, keys: &Keys) -> Res<()> {
    let names = Names::default();
    match check::check(ReadView { conn, names: &names, keys }, None)?.problems.first() {
        None => Ok(()),
        Some(problem) => Err(corrupt("the recovered store", problem.to_string())),
    }
}

fn note(report: &mut Recovery, kind: LostKind, thread: Option<ThreadId>, place: String, reason: String) {
    report.lost_count += 1;
    if report.lost.len() < LOST_MAX {
        report.lost.push(Lost { kind, thread, checkpoint: None, place, reason });
    }
}

/// Notes the rows that were on pages that cannot be read, where no other row tells that they are missing.
fn missing(source: &DamagedFile, report: &mut Recovery) -> Res<()> {
    let seqs: Vec<i64> = source.conn.all(sql::MISSING_SEQS, [LOST_MAX as i64])?;
    let is_of = |table: &'static str| source.defects.iter().filter(move |defect| defect.table == table);
    let is_missing = is_of("checkpoint").next().is_some();
    let ranges = seqs.chunk_by(|a, b| a.checked_add(1) == Some(*b)).filter(|_| is_missing);
    let mut are_known = false;
    for range in ranges {
        are_known = true;
        let place = format!("checkpoint (seq {} to {})", range[0], range[range.len() - 1]);
        note(report, LostKind::Range, None, place, "their versions are there, and their rows are missing".into());
    }
    let kinds = [
        ("checkpoint", LostKind::Range),
        ("write", LostKind::Writes),
        ("operation", LostKind::Operation),
        ("operation_change", LostKind::Operation),
        ("kv_namespace", LostKind::Entry),
        ("kv", LostKind::Entry),
        ("kv_vector", LostKind::Entry),
        ("kv_lifetime", LostKind::Entry),
    ];
    for (table, kind) in kinds {
        for defect in is_of(table) {
            let place = format!("{table} ({})", defect.place);
            // The rows of checkpoints are missed by others that refer to them.
            if defect.is_root && kind != LostKind::Range {
                let reason = format!("{}: the table begins there, and rows of it may be missing", defect.reason);
                note(report, kind, None, place, reason);
            } else if defect.has_rows && !(kind == LostKind::Range && are_known) {
                note(report, kind, None, place, defect.reason.to_owned());
            }
        }
    }
    Ok(())
}

/// Notes the threads of which nothing was recovered.
fn threads(old: &Connection, new: &Connection, report: &mut Recovery) -> Res<()> {
    let mut page = |from: i64, limit: usize| -> Res<Vec<(i64, String)>> {
        old.all(sql::THREADS_FROM, params![from, limit as i64])
    };
    let (mut gone, mut ranges) = (Vec::new(), Vec::new());
    let mut visit = |(id, thread): (i64, String)| {
        if !new.one::<bool>(engine_sql::HAS_THREAD, [&thread])? {
            gone.push((id, thread));
        }
        Ok(())
    };
    scan(0, &mut page, &mut visit, &mut |from, _, why| {
        ranges.push((from, why));
        Ok(())
    })?;
    for (id, thread) in gone {
        let thread = ThreadId::new(thread).ok();
        note(report, LostKind::Thread, thread, format!("thread {id}"), "none of its checkpoints was recovered".into());
    }
    for (from, why) in ranges {
        note(report, LostKind::Thread, None, format!("thread (id {from} on)"), why);
    }
    Ok(())
}

/// An entry of a damaged file: the changes that make it, and the reason if its vectors or its lifetime are lost.
struct SoundEntry {
    changes: Vec<KvChange>,
    lost: Option<String>,
}

/// Writes the entries of the key-value memory whose check matches.
fn entries(source: &DamagedFile, new: &Connection, keys: &Keys, report: &mut Recovery) -> Res<()> {
    let mut page = |from: i64, limit: usize| -> Res<Vec<(i64, Result<SoundEntry, String>)>> {
        source.conn.read_all(sql::ENTRIES_FROM, [from, limit as i64], |row| {
            let entry = match entry(source, keys, row) {
                Ok(entry) => Ok(entry),
                Err(fault) => Err(reason(fault)?),
            };
            Ok((i64::read(row, 0)?, entry))
        })
    };
    let lost = std::cell::RefCell::new(Vec::new());
    let mut recovered = 0;
    let mut visit = |(id, entry): (i64, Result<SoundEntry, String>)| {
        match entry {
            Ok(entry) => {
                kv::write(new, keys, &entry.changes)?;
                recovered += 1;
                lost.borrow_mut().extend(entry.lost.map(|why| (format!("vectors or lifetime of kv {id}"), why)));
            }
            Err(why) => lost.borrow_mut().push((format!("kv {id}"), why)),
        }
        Ok(())
    };
    scan(0, &mut page, &mut visit, &mut |from, to, why| {
        let to = to.map_or_else(|| "on".to_owned(), |to| format!("to {}", to - 1));
        lost.borrow_mut().push((format!("kv (id {from} {to})"), why));
        Ok(())
    })?;
    report.entries = recovered;
    lost.into_inner().into_iter().for_each(|(place, why)| note(report, LostKind::Entry, None, place, why));
    Ok(())
}

/// Returns the changes that make an entry: its first put and its last, and those of its vectors and its lifetime.
fn entry(source: &DamagedFile, keys: &Keys, row: &Row<'_>) -> Res<SoundEntry> {
    let path: Option<String> = tables::kv::Row::after(row)?;
    let row = tables::kv::Row::read(row, 0)?;
    let path = path.ok_or_else(|| corrupt(row.place(), "its namespace does not exist"))?;
    let namespace = KvNamespace::from_path(&path).map_err(|error| corrupt(row.place(), error.to_string()))?;
    let names = Names::default();
    let view = ReadView { conn: &source.conn, names: &names, keys };
    let record = kv::decode(view, &row, &namespace)?;
    let put = |now: Timestamp| KvChange::Put {
        namespace: record.namespace.clone(),
        key: record.key.clone(),
        value: record.value.clone(),
        now,
        expires_at: record.expires_at,
    };
    let mut entry = SoundEntry { changes: vec![put(record.created_at), put(record.updated_at)], lost: None };
    if let Err(fault) = beside_entry(view, row.id, &record, &mut entry.changes) {
        entry.lost = Some(reason(fault)?);
    }
    Ok(entry)
}

/// Adds the changes that make the vectors and the lifetime of an entry.
fn beside_entry(old: ReadView<'_>, id: i64, record: &KvRecord, changes: &mut Vec<KvChange>) -> Res<()> {
    let name = || (record.namespace.clone(), record.key.clone());
    let owner = EntryOwner::of(id, record);
    if let Some(lifetime) = vectors::lifetime(old.conn, old.keys, owner)? {
        let (namespace, key) = name();
        changes.push(KvChange::SetLifetime { namespace, key, lifetime });
    }
    let vectors = vectors::read(old, owner)?;
    if !vectors.is_empty() {
        let (namespace, key) = name();
        changes.push(KvChange::SetVectors { namespace, key, vectors });
    }
    Ok(())
}
