//! Writes the sound part of a damaged file to a new store, and reports the losses.
//!
//! The damaged file is copied first ([`source`]) and stays as it is. Its checkpoints are written anew in the order of the log
//! ([`replay`](super::replay)): those whose checksum verifies, each after its parent. So of each lineage the longest sound
//! beginning is recovered. The new store gets its name once a check of it has found no problem. *Absent:* the cache,
//! everything that no checksum covers, and stores with keys.

mod source;
mod sql;

use super::checksums::kv_check;
use super::fault::{Fault, Res, corrupt};
use super::keys::Keys;
use super::kv;
use super::names::Names;
use super::open::{self, beside};
use super::read::ReadView;
use super::replay::{LogReplay, reason, scan};
use super::{backup, check, registry, sql as engine_sql};
use crate::base::limits::LOST_MAX;
use crate::base::{Codec, Encoded, ThreadId, Timestamp};
use crate::store::beside::{KvChange, KvNamespace};
use crate::store::error::StoreError;
use crate::store::handle::OpenOptions;
use crate::store::recovery::{Lost, LostKind, Recovery};
use rusqlite::{Connection, Row, params};
use source::DamagedFile;
use std::fs;
use std::io;
use std::path::Path;

/// Recovers the store at `from` to a new file.
pub(in super::super) fn recover(from: &Path, to: &Path) -> Result<Recovery, StoreError> {
    let _opening = registry::opening();
    if to.symlink_metadata().is_ok() {
        let exists = io::Error::from(io::ErrorKind::AlreadyExists);
        return Err(backup::failed(to, exists));
    }
    let unfinished = beside(to, "-unfinished");
    if unfinished.symlink_metadata().is_ok() {
        return Err(backup::failed(&unfinished, io::ErrorKind::AlreadyExists.into()));
    }
    let source = DamagedFile::open(from, &beside(to, "-damaged"))?;
    refuse_keys(&source.conn, from)?;
    let recovered = write(&source, from, &unfinished).and_then(|report| {
        backup::publish(&unfinished, to).map_err(|error| backup::failed(to, error))?;
        Ok(report)
    });
    if recovered.is_err() {
        for suffix in ["", "-wal", "-shm"] {
            // The first error is reported.
            _ = fs::remove_file(beside(&unfinished, suffix));
        }
    }
    recovered
}

/// Refuses a store that has keys: its checksums do not verify without them.
fn refuse_keys(conn: &Connection, path: &Path) -> Result<(), StoreError> {
    // A table that cannot be read has no keys to refuse, and then nothing of a store with keys verifies.
    let caller = conn.query_row(sql::CALLER_OF_KEY, [], |row| row.get::<_, String>(0)).ok();
    match caller {
        Some(key) => Err(StoreError::KeyRequired { path: path.into(), key }),
        None => Ok(()),
    }
}

fn write(source: &DamagedFile, from: &Path, to: &Path) -> Result<Recovery, StoreError> {
    let writable = open::writable(to, &OpenOptions::new())?;
    let conn = &writable.conn;
    let replayed = (|| -> Res<Recovery> {
        conn.execute_batch(engine_sql::BEGIN_WRITE)?;
        let mut replay = LogReplay::new(&source.conn, source.format, conn, false)?;
        replay.run()?;
        let mut report = replay.report;
        if let Some(error) = &source.log_error {
            note(&mut report, LostKind::Log, None, "the write-ahead log".into(), error.clone());
        }
        entries(&source.conn, conn, &mut report)?;
        threads(&source.conn, conn, &mut report)?;
        conn.execute_batch(engine_sql::COMMIT)?;
        verify(conn)?;
        conn.query_row(engine_sql::WAL_TRUNCATE, [], |_| Ok(()))?;
        Ok(report)
    })();
    let report = replayed.map_err(|fault| fault.into_write(|| StoreError::Busy { waited_ms: 0, holder: None }))?;
    if report.checkpoints == 0 && report.entries == 0 && !source.is_known {
        return Err(open::not_a_store(from, "neither its header nor any of its rows is that of a store"));
    }
    Ok(report)
}

/// Checks the new store.
fn verify(conn: &Connection) -> Res<()> {
    let (names, keys) = (Names::default(), Keys::default());
    match check::check(ReadView { conn, names: &names, keys: &keys }, None)?.problems.first() {
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

/// Notes the threads of which nothing was recovered.
fn threads(old: &Connection, new: &Connection, report: &mut Recovery) -> Res<()> {
    let mut page = |from: i64, limit: usize| -> Res<Vec<(i64, String)>> {
        let mut statement = old.prepare_cached(sql::THREADS_FROM)?;
        let rows = statement.query_map(params![from, limit as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    };
    let (mut gone, mut ranges) = (Vec::new(), Vec::new());
    let mut visit = |(id, thread): (i64, String)| {
        if !new.prepare_cached(sql::HAS_THREAD)?.query_row([&thread], |row| row.get::<_, bool>(0))? {
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

/// Writes the entries of the key-value memory whose check matches.
fn entries(old: &Connection, new: &Connection, report: &mut Recovery) -> Res<()> {
    let mut page = |from: i64, limit: usize| -> Res<Vec<(i64, Result<[KvChange; 2], String>)>> {
        let mut statement = old.prepare_cached(sql::ENTRIES_FROM)?;
        let mut rows = statement.query(params![from, limit as i64])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let entry = match entry(row) {
                Ok(entry) => Ok(entry),
                Err(fault) => Err(reason(fault)?),
            };
            found.push((row.get(0)?, entry));
        }
        Ok(found)
    };
    let lost = std::cell::RefCell::new(Vec::new());
    let mut recovered = 0;
    let mut visit = |(id, entry): (i64, Result<[KvChange; 2], String>)| {
        match entry {
            Ok(changes) => {
                kv::write(new, &Keys::default(), &changes)?;
                recovered += 1;
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

/// Returns the changes that make an entry: its first put and its last.
fn entry(row: &Row<'_>) -> Res<[KvChange; 2]> {
    let id: i64 = row.get(0)?;
    let wrong = |why: &str| Fault::from(corrupt_entry(id, why));
    let (path, key): (Option<String>, String) = (row.get(1)?, row.get(2)?);
    let path = path.ok_or_else(|| wrong("its namespace does not exist"))?;
    let (created, updated, expires): (i64, i64, Option<i64>) = (row.get(3)?, row.get(4)?, row.get(5)?);
    let (check, codec, bytes): (i64, i64, Vec<u8>) = (row.get(6)?, row.get(7)?, row.get(8)?);
    if kv_check(&Keys::default(), &path, &key, [created, updated], expires, (codec, &bytes)) != check {
        return Err(wrong("its check does not match"));
    }
    let namespace = KvNamespace::new(path.split('.')).map_err(|error| wrong(&error.to_string()))?;
    let codec = Codec::from_tag(u8::try_from(codec).map_err(|_| wrong("its codec does not exist"))?);
    let put = |now: i64| KvChange::Put {
        namespace: namespace.clone(),
        key: key.clone(),
        value: Encoded { codec, bytes: bytes.clone() },
        now: Timestamp::from_micros(now),
        expires_at: expires.map(Timestamp::from_micros),
    };
    Ok([put(created), put(updated)])
}

fn corrupt_entry(id: i64, why: &str) -> StoreError {
    StoreError::Corrupt { place: format!("kv {id}"), reason: why.into() }
}
