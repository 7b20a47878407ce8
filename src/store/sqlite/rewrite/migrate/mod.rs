//! Brings a file of an older format to the newest one.
//!
//! A file of format n is brought to format n + 1 by a [`STEPS`] entry,
//! each in one transaction, until it has the newest format; so a crash leaves the old or the new format, whole. Before
//! the first step the file is copied ([`older`]), and the copy stays until the migrated file verifies. *Absent:* a file
//! of a newer format, which is refused before this module sees it ([`open`]), and a new file, which is made in the
//! newest format at once (`file::format`).

mod older;
pub(crate) mod sql;

use super::replay::LogReplay;
use crate::store::check::Finding;
use crate::store::sqlite::check;
use crate::store::sqlite::commit::caches::Caches;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::file::format::{format, in_snapshot, in_transaction, verified_format};
use crate::store::sqlite::file::lock::wait_for;
use crate::store::sqlite::file::open;
use crate::store::sqlite::file::place::FilePlace;
use crate::store::sqlite::file::schema::{self, STEPS};
use crate::store::sqlite::file::wal_mark::WalMark;
use crate::store::sqlite::index::projection;
use crate::store::sqlite::index::threads::ThreadStates;
use crate::store::sqlite::keys::Keys;
use crate::store::sqlite::read::names::Names;
use crate::store::sqlite::sql as engine_sql;
use crate::store::sqlite::view::ReadView;
use crate::store::sqlite::writer::group::empty_wal;
use crate::store::stats::FormatMigration;
use rusqlite::Connection;
use rusqlite::limits::Limit;
use std::sync::Arc;

/// Brings the file of an open connection to the newest format; returns the migration, `None` if the file had that
/// format. Another process that opens the file meanwhile waits for the write lock.
pub(crate) fn migrate(conn: &Connection, place: &FilePlace) -> Res<Option<FormatMigration>> {
    let from = verified_format(conn)?;
    if from < engine_sql::FORMAT {
        conn.execute_batch(sql::TEMPORARY_FILES)?;
        // The frames of the step must not follow those of a commit whose sync failed in a process that has ended.
        _ = wait_for(place.busy_ms, || empty_wal(conn))?;
        // Another process may be faster.
        let mut steps = 0;
        while wait_for(place.busy_ms, || step(conn, place))? {
            steps += 1;
        }
        if steps > 0 {
            // A failure leaves a larger file, which can be used.
            _ = rewrite(conn);
        }
    }
    let Some(retained) = older::settle(place, |problems| verify(conn, problems))? else { return Ok(None) };
    if from < engine_sql::FORMAT {
        // Readers may keep the log from being emptied; it is copied like that of every commit.
        _ = conn.query_row(engine_sql::WAL_TRUNCATE, [], |_| Ok(()));
    }
    Ok(Some(FormatMigration {
        from: retained.format,
        to: engine_sql::FORMAT,
        retained: retained.path,
        problems: retained.problems,
    }))
}

/// Does the step that is next; returns `false` if the file has the newest format.
fn step(conn: &Connection, place: &FilePlace) -> Res<bool> {
    in_transaction(conn, || {
        let format = format(conn)?;
        let next = usize::try_from(format).ok().and_then(|format| STEPS.get(format));
        let Some(next) = next else { return Ok(false) };
        let copy = older::retain(place, format)?;
        conn.execute_batch(&schema::statements(next.schema))?;
        if format + 1 == engine_sql::FORMAT {
            WalMark::create(conn)?;
        }
        let old = open::connect_unlocked(&copy)?;
        LogReplay::new((&old, format, None), conn, &Arc::default(), true)?.run()?;
        if format > 0 {
            projection::fill(&ThreadStates, conn, &mut Caches::new(Arc::new(Keys::default())))?;
        }
        conn.execute_batch(next.finish)?;
        if self::format(conn)? != format + 1 {
            return Err(corrupt("the format", format!("it is not {} after the step from {format}", format + 1)));
        }
        Ok(true)
    })
}

/// Writes the file anew, without free pages and with the map of pages that later returns of free pages need. It waits
/// for no other process.
pub(crate) fn rewrite(conn: &Connection) -> Res<()> {
    // SQLite attaches the file that it builds, which must not be held in memory.
    let attached = conn.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 1)?;
    let rewritten = conn.execute_batch(sql::TEMPORARY_FILES).and_then(|()| conn.execute_batch(sql::REWRITE));
    conn.set_limit(Limit::SQLITE_LIMIT_ATTACHED, attached)?;
    conn.execute_batch(engine_sql::CONFIGURE)?;
    Ok(rewritten?)
}

/// Checks the whole file, as it is committed, and notes the first problems.
fn verify(conn: &Connection, problems: &mut Vec<Finding>) -> Res<()> {
    let (names, keys) = (Names::default(), Keys::default());
    let view = ReadView { conn, names: &names, keys: &keys };
    problems.extend(in_snapshot(conn, || check::check(view, None))?.problems);
    Ok(())
}
