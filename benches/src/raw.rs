//! Writes the same rows by hand with rusqlite: the bound that the storage engine sets without the library.
//!
//! The schema is that of a store of the library. Values that the library computes (sums, packed tasks, anchors) are
//! copied from a store, so that this side pays for rows only. The WAL is copied behind the writer by the library's
//! rules.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use annals::store::Synchronous;
use rusqlite::types::Value;
use rusqlite::{Connection, params};

use crate::Result;
use crate::append::TEXT_BYTES;
use crate::disk::same;
use crate::stats::text;

/// The tables that hold rows.
const TABLES: [&str; 10] =
    ["name", "thread", "namespace", "branch", "checkpoint", "version", "payload", "blob", "item", "write"];
/// With its numbers a row of the one-row table is about 620 bytes.
pub(crate) const ONE_ROW_BYTES: usize = 610;
/// The library's count of pages per small superstep, and its steps of 4, 16 and 64 MiB.
pub(crate) const FRAMES: u64 = 7;
/// Pages that the one row touches: the ends of its table and its index.
const ONE_ROW_FRAMES: u64 = 2;
const COPY_FRAMES: u64 = (4 << 20) / 4_120;
const RESTART_FRAMES: i64 = (16 << 20) / 4_120;
const TRUNCATE_FRAMES: i64 = (64 << 20) / 4_120;
/// Checkpoints between two anchors, as in the library.
pub(crate) const ANCHOR_INTERVAL: i64 = 64;

/// The check of a row: any number takes as many bytes.
const CHECK: i64 = 0x5a5a_5a5a;
/// A loop that consumed one row of writes.
const SOURCE: i64 = 1 + 4;

/// The contents of a superstep's rows besides their positions.
pub(crate) struct Template {
    /// The statements that make the tables, as the library stores them: without comments.
    schema: String,
    names: Vec<(i64, i64, String)>,
    thread: (String, i64),
    tasks: Vec<u8>,
    sum: Vec<u8>,
    run: Vec<u8>,
    /// Key, kind, task, value and check of the rows of `version`.
    versions: Vec<(i64, i64, Option<i64>, Value, Option<i64>)>,
    anchor: Vec<u8>,
    form: i64,
    xxh3: i64,
    list: i64,
    channel: i64,
}

/// Reads the template from a store that holds one thread of chat supersteps.
pub(crate) fn template(path: &Path) -> Result<Template> {
    let conn = Connection::open(path)?;
    let one = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, Value>(0));
    let blob = |sql: &str| -> Result<Vec<u8>> {
        match one(sql)? {
            Value::Blob(bytes) => Ok(bytes),
            other => Err(format!("{sql}: {other:?}").into()),
        }
    };
    let number = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
    let names = conn
        .prepare("SELECT id, kind, text FROM name ORDER BY id")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect::<Result<_, _>>()?;
    let versions = conn
        .prepare(
            "SELECT key, kind, task, value, xxh3 FROM version \
             WHERE kind <> 4 AND ordinal = (SELECT max(ordinal) FROM version) ORDER BY key",
        )?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))?
        .collect::<Result<_, _>>()?;
    let schema = conn
        .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")?
        .query_map([], |row| row.get::<_, String>(0))?
        .collect::<Result<Vec<_>, _>>()?
        .join(";\n");
    Ok(Template {
        schema,
        names,
        thread: conn.query_row("SELECT public_id, created_at FROM thread", [], |row| Ok((row.get(0)?, row.get(1)?)))?,
        tasks: blob("SELECT tasks FROM checkpoint ORDER BY seq DESC LIMIT 1")?,
        sum: blob("SELECT sum FROM checkpoint ORDER BY seq DESC LIMIT 1")?,
        run: blob("SELECT run FROM checkpoint ORDER BY seq LIMIT 1")?,
        versions,
        anchor: blob("SELECT value FROM version WHERE kind = 4 LIMIT 1")?,
        form: number("SELECT form FROM payload ORDER BY id DESC LIMIT 1")?,
        xxh3: number("SELECT xxh3 FROM payload ORDER BY id DESC LIMIT 1")?,
        list: number("SELECT channel FROM item LIMIT 1")?,
        channel: number("SELECT channel FROM write LIMIT 1")?,
    })
}

/// Returns the number of rows of every table.
pub(crate) fn rows(path: &Path) -> Result<Vec<(&'static str, i64)>> {
    let conn = Connection::open(path)?;
    let count = |table| conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0));
    TABLES.iter().map(|table| Ok((*table, count(*table)?))).collect()
}

/// Opens a connection with the library's settings.
pub(crate) fn connect(path: &Path) -> Result<Connection> {
    let conn = Connection::open(path)?;
    conn.set_prepared_statement_cache_capacity(64);
    conn.execute_batch(
        "PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA wal_autocheckpoint = 0; \
         PRAGMA temp_store = 2;",
    )?;
    Ok(conn)
}

fn create(path: &Path, schema: &str, synchronous: Synchronous) -> Result<Connection> {
    Connection::open(path)?
        .execute_batch("PRAGMA page_size = 4096; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL;")?;
    let conn = writing(path, synchronous)?;
    conn.execute_batch(schema)?;
    Ok(conn)
}

/// Opens a connection that writes into a WAL. A backup is a file without one until it is opened.
pub(crate) fn writing(path: &Path, synchronous: Synchronous) -> Result<Connection> {
    let conn = connect(path)?;
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    same("the journal mode", mode.as_str(), "wal")?;
    conn.execute_batch(match synchronous {
        Synchronous::Full => "PRAGMA synchronous = FULL",
        Synchronous::Normal => "PRAGMA synchronous = NORMAL",
    })?;
    Ok(conn)
}

/// A connection that writes, with a thread that copies its WAL as the library's does.
pub(crate) struct RawWriter {
    pub(crate) conn: Arc<Mutex<Connection>>,
    frames: u64,
    due: Option<SyncSender<()>>,
    copier: Option<JoinHandle<Result<()>>>,
}

impl RawWriter {
    /// Starts the thread.
    pub(crate) fn new(path: &Path, conn: Connection) -> Result<Self> {
        let conn = Arc::new(Mutex::new(conn));
        let (due, wakes) = sync_channel(1);
        let (beside, writer) = (connect(path)?, Arc::clone(&conn));
        let copier = std::thread::spawn(move || copy_wal(&wakes, &beside, &writer));
        Ok(Self { conn, frames: 0, due: Some(due), copier: Some(copier) })
    }

    /// Counts the pages of a transaction; the WAL is copied when there are enough.
    pub(crate) fn committed(&mut self, frames: u64) {
        self.frames += frames;
        if self.frames >= COPY_FRAMES && self.due.as_ref().is_some_and(|due| due.try_send(()).is_ok()) {
            self.frames = 0;
        }
    }

    fn stop(&mut self) -> Result<()> {
        self.due = None;
        match self.copier.take().map(JoinHandle::join) {
            Some(Err(_)) => Err("the thread that copies the WAL panicked".into()),
            Some(Ok(done)) => done,
            None => Ok(()),
        }
    }

    /// Ends the thread and copies the WAL into the file.
    pub(crate) fn close(&mut self) -> Result<()> {
        self.stop()?;
        lock(&self.conn)?.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        Ok(())
    }
}

fn copy_wal(wakes: &Receiver<()>, beside: &Connection, writer: &Mutex<Connection>) -> Result<()> {
    while wakes.recv().is_ok() {
        let frames: i64 = beside.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get(1))?;
        if frames > RESTART_FRAMES {
            let mode = if frames > TRUNCATE_FRAMES { "TRUNCATE" } else { "PASSIVE" };
            lock(writer)?.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(()))?;
        }
    }
    Ok(())
}

/// Locks a mutex.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    mutex.lock().map_err(|_| "the other thread panicked".into())
}

/// The rows of chat supersteps, by hand.
pub(crate) struct Raw {
    writer: RawWriter,
    template: Template,
    seq: i64,
    prepared: i64,
}

/// The contents that differ from one superstep to the next, made before the clock starts.
pub(crate) struct StepContents {
    id: [u8; 16],
    item_id: [u8; 16],
    text: String,
}

impl Raw {
    /// Makes the file and its first checkpoint.
    pub(crate) fn open(path: &Path, synchronous: Synchronous, template: Template) -> Result<Self> {
        let conn = create(path, &template.schema, synchronous)?;
        for (id, kind, text) in &template.names {
            let row = params![id, kind, text, CHECK];
            conn.execute("INSERT INTO name (id, kind, text, xxh3) VALUES (?1, ?2, ?3, ?4)", row)?;
        }
        conn.execute(
            "INSERT INTO thread (id, public_id, created_at, xxh3) VALUES (1, ?1, ?2, ?3)",
            params![template.thread.0, template.thread.1, CHECK],
        )?;
        conn.execute("INSERT INTO namespace (id, thread, path, xxh3) VALUES (1, 1, '', ?1)", [CHECK])?;
        conn.execute("INSERT INTO branch (id, namespace, depth, xxh3) VALUES (1, 1, 0, ?1)", [CHECK])?;
        let mut raw = Self { writer: RawWriter::new(path, conn)?, template, seq: 1, prepared: 0 };
        let conn = Arc::clone(&raw.writer.conn);
        let first = raw.row();
        let conn = lock(&conn)?;
        raw.checkpoint(&conn, &first, 1)?;
        // The first checkpoint changes nothing: each ordinal has a row all the same.
        conn.execute(
            "INSERT INTO version (branch, ordinal, key, version, kind, xxh3) VALUES (1, 0, 0, 0, 5, ?1)",
            [CHECK],
        )?;
        drop(conn);
        Ok(raw)
    }

    fn row(&mut self) -> StepContents {
        self.prepared += 1;
        let mut id = [0x5a; 16];
        id[..8].copy_from_slice(&(0x1f0_0000_0000_0000_i64 + self.prepared).to_be_bytes());
        let item_id = random_bytes(self.prepared as u64);
        StepContents { id, item_id, text: text(self.prepared as u64, TEXT_BYTES) }
    }

    /// Makes the contents of the next `count` supersteps.
    pub(crate) fn prepare(&mut self, count: usize) -> Vec<StepContents> {
        (0..count).map(|_| self.row()).collect()
    }

    /// Writes the rows of one superstep in one transaction.
    pub(crate) fn superstep(&mut self, row: &StepContents) -> Result<()> {
        let (seq, ordinal) = (self.seq + 1, self.seq);
        let conn = Arc::clone(&self.writer.conn);
        let conn = lock(&conn)?;
        conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        conn.prepare_cached(
            "INSERT INTO payload (form, xxh3, data, item_id, kind, text, name, tool_calls, input_tokens, \
             output_tokens) VALUES (?1, ?2, x'', ?3, 'ai', ?4, NULL, NULL, NULL, NULL)",
        )?
        .execute(params![self.template.form, self.template.xxh3, row.item_id, row.text])?;
        let payload = conn.last_insert_rowid();
        conn.prepare_cached(
            "INSERT INTO write (checkpoint, task, idx, part, channel, value, child, path, sum) \
             VALUES (?1, 0, 0, 1, ?2, ?3, 1, NULL, ?4)",
        )?
        .execute(params![self.seq, self.template.channel, payload, CHECK])?;
        let mut version = conn.prepare_cached(
            "INSERT INTO version (branch, ordinal, key, version, kind, task, value, xxh3) \
             VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?;
        if ordinal % ANCHOR_INTERVAL == 0 {
            version.execute(params![ordinal, 0, 0, 4, None::<i64>, self.template.anchor, None::<i64>])?;
        }
        for (key, kind, task, value, check) in &self.template.versions {
            let number = if *kind < 3 { seq - ordinal } else { 0 };
            version.execute(params![ordinal, key, number, kind, task, value, check])?;
        }
        conn.prepare_cached(
            "INSERT INTO item (branch, channel, slot, ordinal, op, task, value, xxh3) \
             VALUES (1, ?1, ?2, ?3, 1, 0, ?4, ?5)",
        )?
        .execute(params![self.template.list, ordinal - 1, ordinal, payload, CHECK])?;
        self.checkpoint(&conn, row, seq)?;
        conn.prepare_cached("COMMIT")?.execute([])?;
        self.seq = seq;
        self.writer.committed(FRAMES);
        Ok(())
    }

    fn checkpoint(&self, conn: &Connection, row: &StepContents, seq: i64) -> Result<()> {
        let Template { tasks, sum, run, .. } = &self.template;
        let (parent, source) = if seq > 1 { (Some(1), SOURCE) } else { (None, 0) };
        // All are of the run of the first, which holds its id.
        let (created_at, run) = match seq {
            1 => (self.template.thread.1, Value::Blob(run.clone())),
            _ => (seq - 1, Value::Integer(seq - 1)),
        };
        conn.prepare_cached(
            "INSERT INTO checkpoint (seq, namespace, id, parent, branch, ordinal, step, source, created_at, run, \
             metadata, tasks, sum, xxh3) VALUES (?1, 1, ?2, ?3, 1, ?4, ?5, ?6, ?7, ?8, NULL, ?9, ?10, ?11)",
        )?
        .execute(params![seq, row.id, parent, seq - 1, 1, source, created_at, run, tasks, sum, CHECK])?;
        Ok(())
    }

    /// Copies the WAL into the file and closes it.
    pub(crate) fn close(mut self) -> Result<()> {
        self.writer.close()
    }
}

/// Returns 16 bytes that look random.
fn random_bytes(seed: u64) -> [u8; 16] {
    let mut dice = crate::stats::SeededNumbers(seed);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&dice.below(u64::MAX).to_be_bytes());
    bytes[8..].copy_from_slice(&dice.below(u64::MAX).to_be_bytes());
    bytes
}

/// One append-only row per superstep with one sequential index: the least a log can cost.
pub(crate) struct OneRow {
    writer: RawWriter,
    ordinal: i64,
}

impl OneRow {
    /// Makes the file.
    pub(crate) fn open(path: &Path, synchronous: Synchronous) -> Result<Self> {
        let schema = "CREATE TABLE log (id INTEGER PRIMARY KEY, thread INTEGER NOT NULL, ordinal INTEGER NOT NULL, \
                      data TEXT NOT NULL, UNIQUE (thread, ordinal)) STRICT;";
        let conn = create(path, schema, synchronous)?;
        Ok(Self { writer: RawWriter::new(path, conn)?, ordinal: 0 })
    }

    /// Appends a row in a transaction of its own.
    pub(crate) fn append(&mut self, data: &str) -> Result<()> {
        append_row(&*lock(&self.writer.conn)?, 1, self.ordinal, data)?;
        self.ordinal += 1;
        self.writer.committed(ONE_ROW_FRAMES);
        Ok(())
    }

    /// Closes the file and returns the number of its rows.
    pub(crate) fn close(mut self) -> Result<i64> {
        self.writer.stop()?;
        Ok(lock(&self.writer.conn)?.query_row("SELECT count(*) FROM log", [], |row| row.get(0))?)
    }
}

/// Appends a row to the file of [`OneRow`], in a transaction of its own.
pub(crate) fn append_row(conn: &Connection, thread: i64, ordinal: i64, data: &str) -> Result<()> {
    conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    conn.prepare_cached("INSERT INTO log (thread, ordinal, data) VALUES (?1, ?2, ?3)")?
        .execute(params![thread, ordinal, data])?;
    conn.prepare_cached("COMMIT")?.execute([])?;
    Ok(())
}
