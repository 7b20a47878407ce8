//! A turn of the executor beside its rows written by hand in two transactions.
//!
//! Three copies of one file are used. The executor runs turns on the first, which is measured. It runs as many on the
//! second, and the rows that each of its transactions adds are recorded. These rows are inserted into the third with
//! prepared statements, which is measured too. At the end every row of the second and the third file is the same, and
//! the first has as many rows in every table. Both sides overwrite a WAL of the same length.

use std::cell::RefCell;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals::store::Synchronous;
use annals_graph::Durability;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use crate::disk::{self, same};
use crate::figures::FigureReport;
use crate::raw::{self, RawWriter, lock};
use crate::stats::{Side, best, interleave, median, ratio, timed};
use crate::turns::{self, BLOCK, Talk};
use crate::{Bench, Result};

/// Transactions of a turn: the input with the first superstep before the node runs, and the superstep of the node.
const TRANSACTIONS: u64 = 2;

/// Each table that a turn may write, with its order and the rows of a transaction: those above the last `seq`, ordinal
/// or id of the file, which is `?1`.
const TABLES: [(&str, &str, &str); 10] = [
    ("name", "id", "id"),
    ("thread", "id", "id"),
    ("namespace", "id", "id"),
    ("branch", "id", "id"),
    ("blob", "id", "id"),
    ("payload", "id", "id"),
    ("write", "coalesce(checkpoint + child, checkpoint)", "checkpoint, task, idx, part"),
    ("version", "ordinal", "branch, ordinal, key"),
    ("item", "ordinal", "branch, channel, slot, ordinal DESC"),
    ("checkpoint", "seq", "seq"),
];

/// Each table of which a turn may replace rows, with the columns that name a row.
const REPLACED: [(&str, &[&str]); 2] = [("thread_state", &["thread"]), ("thread_facet", &["facet", "newest"])];

/// A statement of [`ByHand`] by its position, and its values: all columns of an inserted row, the name of a deleted
/// one.
type StatementRow = (usize, Vec<Value>);
/// The rows of a transaction.
type Rows = Vec<StatementRow>;

/// Reads the rows that were added to a file since the last call.
struct Recorder {
    conn: Connection,
    /// The greatest position of each table that was read.
    last: [i64; TABLES.len()],
    /// The rows of each table of [`REPLACED`] that were read.
    present: [Vec<Vec<Value>>; REPLACED.len()],
    transactions: Vec<Rows>,
    /// An error inside a node, reported after the turn.
    failed: Option<String>,
}

impl Recorder {
    /// Starts at the present end of the file.
    fn open(path: &Path) -> Result<Self> {
        let conn = raw::connect(path)?;
        conn.execute_batch("PRAGMA query_only = ON")?;
        let (last, present) = (last(&conn)?, present(&conn)?);
        Ok(Self { conn, last, present, transactions: Vec::new(), failed: None })
    }

    /// Records the new rows as those of one transaction.
    fn record(&mut self) -> Result<()> {
        let mut added = Rows::new();
        for (at, (table, position, order)) in TABLES.iter().enumerate() {
            let columns = stored_columns(&self.conn, table)?.join(", ");
            let sql = format!("SELECT {columns} FROM {table} WHERE {position} > ?1 ORDER BY {order}");
            let mut statement = self.conn.prepare_cached(&sql)?;
            let columns = statement.column_count();
            let mut rows = statement.query([self.last[at]])?;
            while let Some(row) = rows.next()? {
                added.push((at, (0..columns).map(|column| row.get(column)).collect::<Result<_, _>>()?));
            }
        }
        self.last = last(&self.conn)?;
        let before = std::mem::replace(&mut self.present, present(&self.conn)?);
        for (at, (_, key)) in REPLACED.iter().enumerate() {
            let (before, now) = (&before[at], &self.present[at]);
            let (inserts, deletes) = (TABLES.len() + at, TABLES.len() + REPLACED.len() + at);
            let gone = before.iter().filter(|row| !now.contains(row));
            added.extend(gone.map(|row| (deletes, row[..key.len()].to_vec())));
            let new = now.iter().filter(|row| !before.contains(row));
            added.extend(new.map(|row| (inserts, row.clone())));
        }
        self.transactions.push(added);
        Ok(())
    }
}

/// Returns the greatest position of each table.
fn last(conn: &Connection) -> Result<[i64; TABLES.len()]> {
    let mut last = [0; TABLES.len()];
    for (last, (table, position, _)) in last.iter_mut().zip(TABLES) {
        let sql = format!("SELECT coalesce(max({position}), -1) FROM {table}");
        *last = conn.prepare_cached(&sql)?.query_row([], |row| row.get(0))?;
    }
    Ok(last)
}

/// Returns all rows of the tables of [`REPLACED`], each beginning with the columns that name it.
fn present(conn: &Connection) -> Result<[Vec<Vec<Value>>; REPLACED.len()]> {
    let mut present = [const { Vec::new() }; REPLACED.len()];
    for (present, (table, _)) in present.iter_mut().zip(REPLACED) {
        let columns = stored_columns(conn, table)?;
        let mut statement = conn.prepare_cached(&format!("SELECT {} FROM {table}", columns.join(", ")))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            present.push((0..columns.len()).map(|column| row.get(column)).collect::<Result<_, _>>()?);
        }
    }
    Ok(present)
}

/// Runs `count` turns on a file, and returns the rows of each of their transactions.
///
/// The node reads the rows of the first transaction, which is committed before it runs.
fn record(path: &Path, before: usize, count: usize) -> Result<Vec<Rows>> {
    let recorder = Arc::new(Mutex::new(Recorder::open(path)?));
    let inside = Arc::clone(&recorder);
    let graph = turns::graph_with(move || {
        if let Ok(mut recorder) = inside.lock() {
            recorder.failed = recorder.record().err().map(|error| error.to_string()).or(recorder.failed.take());
        }
    })?;
    let mut talk = Talk::open(path, Synchronous::Normal, Durability::Sync, before)?;
    for _ in 0..count {
        talk.turn(&graph)?;
        lock(&recorder)?.record()?;
    }
    talk.opened.empty_wal()?;
    let mut recorder = lock(&recorder)?;
    match recorder.failed.take() {
        Some(error) => Err(error.into()),
        None => Ok(std::mem::take(&mut recorder.transactions)),
    }
}

/// Writes recorded rows into a file.
struct ByHand {
    writer: RawWriter,
    /// An insert for each table of [`TABLES`] and [`REPLACED`], then a deletion for each of [`REPLACED`].
    statements: Vec<String>,
}

impl ByHand {
    fn open(path: &Path) -> Result<Self> {
        let conn = raw::writing(path, Synchronous::Normal)?;
        let insert = |table: &str| -> Result<String> {
            let columns = stored_columns(&conn, table)?;
            let values = vec!["?"; columns.len()].join(", ");
            Ok(format!("INSERT INTO {table} ({}) VALUES ({values})", columns.join(", ")))
        };
        let tables = TABLES.iter().map(|(table, ..)| *table).chain(REPLACED.iter().map(|(table, _)| *table));
        let mut statements = tables.map(insert).collect::<Result<Vec<_>>>()?;
        for (table, key) in REPLACED {
            let named: Vec<_> = key.iter().map(|column| format!("{column} = ?")).collect();
            statements.push(format!("DELETE FROM {table} WHERE {}", named.join(" AND ")));
        }
        Ok(Self { writer: RawWriter::new(path, conn)?, statements })
    }

    /// Writes the rows of one transaction.
    #[inline(never)]
    fn write(&mut self, rows: &Rows) -> Result<()> {
        let conn = Arc::clone(&self.writer.conn);
        let conn = lock(&conn)?;
        conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        for (statement, values) in rows {
            conn.prepare_cached(&self.statements[*statement])?.execute(params_from_iter(values))?;
        }
        conn.prepare_cached("COMMIT")?.execute([])?;
        drop(conn);
        // The library counts the pages of each checkpoint of a transaction.
        let checkpoints =
            rows.iter().filter(|(at, _)| TABLES.get(*at).is_some_and(|(table, ..)| *table == "checkpoint")).count();
        self.writer.committed(raw::FRAMES * checkpoints as u64);
        Ok(())
    }
}

/// The costs of turns in microseconds, a median for each round.
struct Costs {
    turns: Vec<f64>,
    by_hand: Vec<f64>,
    /// Rows that a turn adds.
    rows: f64,
}

/// Measures `turn_raw_ratio`.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let costs = compare(bench, turns::lengths(bench).0, bench.runs(20, 2), BLOCK)?;
    report.set("turn_raw_ratio", ratio(&costs.turns, &costs.by_hand));
    report.extra("turn_raw_us_1k", median(&costs.by_hand));
    report.extra("turn_raw_best_ratio", best(&costs.turns) / best(&costs.by_hand));
    report.extra("turn_raw_rows", costs.rows);
    Ok(())
}

/// Writes the rows of so many turns by hand, for a profiler. Returns how many microseconds they took.
///
/// The rows are recorded first, on a file beside it.
pub(crate) fn by_hand(path: &Path, count: usize) -> Result<f64> {
    let example = path.with_extension("example");
    turns::build(path, BLOCK)?;
    std::fs::copy(path, &example)?;
    let transactions = record(&example, BLOCK, count)?;
    let mut raw = ByHand::open(path)?;
    let (us, ()) = timed(|| transactions.iter().try_for_each(|rows| raw.write(rows)))?;
    raw.writer.close()?;
    Ok(us)
}

/// Lets turns and their rows by hand alternate in blocks, on files with `before` turns, and compares the files.
fn compare(bench: &Bench, before: usize, rounds: usize, block: usize) -> Result<Costs> {
    let (path, example, by_hand) =
        (bench.file("turns.db")?, bench.file("turns-example.db")?, bench.file("turns-raw.db")?);
    turns::build(&path, before)?;
    std::fs::copy(&path, &example)?;
    std::fs::copy(&path, &by_hand)?;
    // One round more than is counted.
    let count = (rounds + 1) * block;
    let transactions = record(&example, before, count)?;
    same("recorded transactions", transactions.len() as u64, TRANSACTIONS * count as u64)?;
    same("empty transactions", transactions.iter().filter(|rows| rows.is_empty()).count(), 0)?;
    let rows = transactions.iter().map(Vec::len).sum::<usize>() as f64 / count as f64;

    let graph = turns::graph()?;
    let mut talk = Talk::open(&path, Synchronous::Normal, Durability::Sync, before)?;
    let mut raw = ByHand::open(&by_hand)?;
    let mut turns_by_hand = transactions.chunks_exact(TRANSACTIONS as usize);
    let stats = RefCell::new(talk.opened.backend.commit_stats().transactions);
    let (copier, copier_by_hand) = (raw::connect(&path)?, raw::connect(&by_hand)?);
    let mut sides: [Side<'_>; 2] = [
        Box::new(|| {
            copy_wal(&copier)?;
            let us = (0..block).map(|_| talk.turn(&graph)).collect::<Result<Vec<_>>>()?;
            let now = talk.opened.backend.commit_stats().transactions;
            same("transactions", now - stats.replace(now), TRANSACTIONS * block as u64)?;
            Ok(median(&us))
        }),
        Box::new(|| {
            copy_wal(&copier_by_hand)?;
            let turns = turns_by_hand.by_ref().take(block);
            let us = turns.map(|turn| Ok(timed(|| turn.iter().try_for_each(|rows| raw.write(rows)))?.0));
            Ok(median(&us.collect::<Result<Vec<_>>>()?))
        }),
    ];
    let costs = interleave(rounds, &mut sides)?;
    drop(sides);
    drop((copier, copier_by_hand));
    talk.opened.verify(3 * (before + count) as u64)?;
    talk.opened.empty_wal()?;
    drop(talk);
    raw.writer.close()?;
    same("rows written by hand", raw::rows(&by_hand)?, raw::rows(&path)?)?;
    same_contents(&by_hand, &example)?;
    // Written by hand, the file is a store in which every checksum fits.
    disk::open(&by_hand, Synchronous::Normal)?.verify(3 * (before + count) as u64)?;
    let [turns, by_hand] = <[Vec<f64>; 2]>::try_from(costs).map_err(|_| "two sides have two costs")?;
    Ok(Costs { turns, by_hand, rows })
}

/// Copies the whole WAL, so that a block overwrites it from its beginning, as most commits of a long-running process
/// do. A commit that makes the WAL longer takes half as long again, and the two sides would do that at different times.
fn copy_wal(conn: &Connection) -> Result<()> {
    // The thread behind the writer may be copying.
    for _ in 0..100 {
        let copied = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
            Ok(row.get::<_, i64>(0)? == 0 && row.get::<_, i64>(1)? == row.get::<_, i64>(2)?)
        })?;
        if copied {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err("the WAL cannot be copied: it is busy".into())
}

/// Returns the columns of a table that are not computed.
fn stored_columns(conn: &Connection, table: &str) -> Result<Vec<String>> {
    let mut columns = conn.prepare_cached("SELECT name FROM pragma_table_xinfo(?1) WHERE hidden = 0 ORDER BY cid")?;
    Ok(columns.query_map([table], |row| row.get(0))?.collect::<Result<_, _>>()?)
}

/// Returns an error unless two files hold the same rows in every table but that of the mark of the log, which is
/// random.
fn same_contents(one: &Path, other: &Path) -> Result<()> {
    let (one, other) = (Connection::open(one)?, Connection::open(other)?);
    let mut tables =
        one.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'wal_mark' ORDER BY name")?;
    for table in tables.query_map([], |row| row.get::<_, String>(0))? {
        let sql = format!("SELECT * FROM {}", table?);
        let (mut left, mut right) = (one.prepare(&sql)?, other.prepare(&sql)?);
        let columns = left.column_count();
        let (mut left, mut right) = (left.query([])?, right.query([])?);
        loop {
            let (left, right) = (left.next()?, right.next()?);
            let (Some(left), Some(right)) = (left, right) else {
                same(&sql, left.is_some(), right.is_some())?;
                break;
            };
            for column in 0..columns {
                same(&sql, left.get_ref(column)?, right.get_ref(column)?)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_turns_by_hand_make_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::quick_in(folder.path());
        let costs = compare(&bench, 40, 2, 3).unwrap();
        assert_eq!((costs.turns.len(), costs.by_hand.len()), (2, 2));
        assert!(costs.rows > 9.0, "three checkpoints and a message have {} rows", costs.rows);
    }

    #[test]
    fn files_with_a_different_row_are_not_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["one.db", "other.db"].map(|name| folder.path().join(name));
        for (path, text) in paths.iter().zip(["a", "b"]) {
            let conn = Connection::open(path).unwrap();
            conn.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, text TEXT)").unwrap();
            conn.execute("INSERT INTO t VALUES (1, ?1)", [text]).unwrap();
        }
        assert!(same_contents(&paths[0], &paths[0]).is_ok());
        assert!(same_contents(&paths[0], &paths[1]).is_err());
    }
}
