//! A message that is appended without a graph to a thread of 10,000 and of 100,000, by a handle that has appended
//! before and by a new one, and the undo of it, beside the same rows by hand.

use std::path::Path;

use annals::message::Message;
use annals::store::Synchronous;
use rusqlite::params_from_iter;
use rusqlite::types::Value;

use crate::append::TEXT_BYTES;
use crate::disk::{self, same};
use crate::figures::FigureReport;
use crate::raw::{self, FRAMES, RawWriter, lock};
use crate::stats::{Side, interleave, median, text, timed};
use crate::turns::{self, THREAD};
use crate::{Bench, Result};

/// Appends of a round.
const BLOCK: usize = 100;
/// The rows of an append, by the table and the condition that finds those of the newest.
const ROWS: [(&str, &str); 5] = [
    ("checkpoint", "seq = (SELECT max(seq) FROM checkpoint)"),
    ("version", "ordinal = (SELECT max(ordinal) FROM version)"),
    ("payload", "id = (SELECT max(id) FROM payload)"),
    ("item", "ordinal = (SELECT max(ordinal) FROM version)"),
    ("write", "checkpoint = (SELECT max(seq) FROM checkpoint)"),
];
/// The columns that grow by one from append to append, and those that hold an id.
const COUNTERS: [(&str, &str); 8] = [
    ("checkpoint", "seq"),
    ("checkpoint", "ordinal"),
    ("version", "ordinal"),
    ("payload", "id"),
    ("item", "slot"),
    ("item", "ordinal"),
    ("item", "value"),
    ("write", "checkpoint"),
];
const IDS: [(&str, &str); 2] = [("checkpoint", "id"), ("payload", "item_id")];

/// Measures `append_message_us_*`, `undo_us` and `first_append_us_*`.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let (_, turns) = turns::lengths(bench);
    measure_at(
        bench,
        report,
        turns,
        ["append_message_us_10k", "append_message_by_hand_us_10k", "undo_us", "first_append_us_10k"],
    )?;
    let names = ["append_message_us_100k", "append_message_by_hand_us_100k", "undo_us_100k", "first_append_us_100k"];
    measure_at(bench, report, bench.runs(100_000, 600), names)
}

/// Measures an append, the same rows by hand, an undo, and the first append of a handle, in a thread of so many turns.
fn measure_at(bench: &Bench, report: &mut FigureReport, turns: usize, names: [&str; 4]) -> Result<()> {
    let (path, copy) = (bench.file(&format!("writes-{turns}.db"))?, bench.file(&format!("by-hand-{turns}.db"))?);
    turns::build(&path, turns)?;
    let opened = disk::open(&path, Synchronous::Normal)?;
    let thread = opened.store.thread(THREAD)?;
    let mut seed = turns as u64;
    let mut message = || {
        seed += 1;
        Message::ai(text(seed, TEXT_BYTES))
    };
    thread.append("messages", [message()])?;
    opened.store.backup(&copy)?;
    let mut by_hand = AppendByHand::open(&copy)?;
    let (rounds, block) = (bench.runs(21, 2), bench.runs(BLOCK, 5));
    let mut sides: [Side<'_>; 2] = [
        Box::new(|| {
            let messages: Vec<Message> = (0..block).map(|_| message()).collect();
            let (us, ()) =
                timed(|| Ok(messages.into_iter().try_for_each(|one| thread.append("messages", [one]).map(|_| ()))?))?;
            Ok(us / block as f64)
        }),
        Box::new(|| {
            let (us, ()) = timed(|| (0..block).try_for_each(|_| by_hand.append()))?;
            Ok(us / block as f64)
        }),
    ];
    let costs = interleave(rounds, &mut sides)?;
    drop(sides);
    let appended = ((rounds + 1) * block) as u64;
    same("messages", thread.at("@")?.len("messages")?, turns as u64 + 1 + appended)?;
    same("checkpoints by hand", by_hand.close()?, appended)?;
    report.set(names[0], median(&costs[0]));
    report.set(names[1], median(&costs[1]));
    let mut undone = Vec::new();
    for _ in 0..bench.runs(100, 5) {
        undone.push(timed(|| Ok(thread.undo()?))?.0);
    }
    let left = turns as u64 + 1 + appended - undone.len() as u64;
    same("messages after the undos", thread.at("@")?.len("messages")?, left)?;
    report.set(names[2], median(&undone));
    let problems = opened.store.check()?.problems.len();
    same("problems in the store", problems, 0)?;
    drop((thread, opened));
    let mut first = Vec::new();
    for _ in 0..bench.runs(15, 2) {
        let opened = disk::open(&path, Synchronous::Normal)?;
        let thread = opened.store.thread(THREAD)?;
        first.push(timed(|| Ok(thread.append("messages", [message()]).map(|_| ())?))?.0);
    }
    report.set(names[3], median(&first));
    Ok(())
}

/// A row that is written again and again, with other numbers.
struct HandRow {
    insert: String,
    values: Vec<Value>,
    /// The positions of the counters and of the ids.
    counters: Vec<usize>,
    ids: Vec<usize>,
}

/// A file in which the rows of an append are written by hand.
pub(crate) struct AppendByHand {
    writer: RawWriter,
    rows: Vec<HandRow>,
    appended: u64,
}

impl AppendByHand {
    /// Learns the rows of the newest append of a file, and opens it.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let conn = raw::writing(path, Synchronous::Normal)?;
        let mut rows = Vec::new();
        for (table, newest) in ROWS {
            let mut columns = conn.prepare(&format!("SELECT name FROM pragma_table_info('{table}')"))?;
            let columns: Vec<String> = columns.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
            let places = |of: &[(&str, &str)]| {
                let is_one = |column: &String| of.iter().any(|(name, one)| *name == table && one == column);
                columns.iter().enumerate().filter(|(_, column)| is_one(column)).map(|(at, _)| at).collect::<Vec<_>>()
            };
            let insert = format!(
                "INSERT INTO {table} ({}) VALUES ({})",
                columns.join(", "),
                vec!["?"; columns.len()].join(", ")
            );
            let mut found = conn.prepare(&format!("SELECT {} FROM {table} WHERE {newest}", columns.join(", ")))?;
            let mut found = found.query([])?;
            while let Some(row) = found.next()? {
                let values = (0..columns.len()).map(|column| row.get(column)).collect::<Result<_, _>>()?;
                let (counters, ids) = (places(&COUNTERS), places(&IDS));
                rows.push(HandRow { insert: insert.clone(), values, counters, ids });
            }
        }
        Ok(Self { writer: RawWriter::new(path, conn)?, rows, appended: 0 })
    }

    pub(crate) fn append(&mut self) -> Result<()> {
        let conn = lock(&self.writer.conn)?;
        conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        for row in &mut self.rows {
            for at in &row.counters {
                if let Value::Integer(number) = &mut row.values[*at] {
                    *number += 1;
                }
            }
            for at in &row.ids {
                // The times of two checkpoints differ, and so does what an index holds of their ids.
                if let Value::Blob(id) = &mut row.values[*at]
                    && let Ok(bytes) = <[u8; 16]>::try_from(&id[..])
                {
                    *id = u128::from_be_bytes(bytes).wrapping_add(1 << 82).to_be_bytes().to_vec();
                }
            }
            conn.prepare_cached(&row.insert)?.execute(params_from_iter(&row.values))?;
        }
        conn.prepare_cached("COMMIT")?.execute([])?;
        drop(conn);
        self.writer.committed(FRAMES);
        self.appended += 1;
        Ok(())
    }

    /// Copies the log into the file. Returns the number of appends.
    pub(crate) fn close(&mut self) -> Result<u64> {
        self.writer.close()?;
        Ok(self.appended)
    }
}
