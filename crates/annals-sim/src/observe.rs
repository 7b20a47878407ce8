//! Reads everything that a store shows, as one hash for each thread and each root of the key-value memory.
//!
//! The reads are those of the public API: the listing of threads, the history of each namespace, and at each checkpoint
//! the state, the items with their texts, and the writes of tasks; timers; key-value memory. The numbers that a backend
//! chooses (`seq`, `branch`) are left out, so that the file and the model in memory have equal hashes. The table of the
//! application is read apart: no checksum covers its rows.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Write as _};
use std::time::Duration;

use annals::base::{Clock as _, Payload, SystemClock, ThreadId, Timestamp, WriteValue};
use annals::history::Snapshot;
use annals::store::log::LogExt;
use annals::store::record::{ChannelValue, CheckpointRecord, StatePart, ThreadRecord, TimerRecord};
use annals::store::{Store, StoreError};
use xxhash_rust::xxh3::Xxh3;

use crate::sql;

/// The hash of each entity that holds something: `t:` and a thread, `k:` and the first label of a namespace.
pub(crate) type StoreView = BTreeMap<String, u64>;

/// The rows of the application's table, by actor: number and text.
pub(crate) type LedgerRows = BTreeMap<String, Vec<(i64, String)>>;

/// The failure of a read.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// A typed error.
    Typed(StoreError),
    /// The read did not end in time, or listed more records than any workload writes.
    Endless,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Typed(error) => write!(f, "{}: {error}", error.code()),
            Self::Endless => write!(f, "it does not end"),
        }
    }
}

impl From<StoreError> for Unreadable {
    fn from(error: StoreError) -> Self {
        Self::Typed(error)
    }
}

/// Records that no workload exceeds in one thread.
const RECORDS_MAX: usize = 20_000;

/// The time by which a read must have ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Duration);

impl Deadline {
    /// Returns the deadline after some time from now.
    pub(crate) fn after(time: Duration) -> Self {
        Self(SystemClock.elapsed() + time)
    }

    /// Returns whether it has passed.
    pub(crate) fn has_passed(self) -> bool {
        SystemClock.elapsed() > self.0
    }
}

/// A hash that text and bytes are written to.
struct Hash(Xxh3);

impl fmt::Write for Hash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}

impl Hash {
    fn new() -> Self {
        Self(Xxh3::new())
    }

    fn add(&mut self, value: &dyn Debug) {
        _ = write!(self, "{value:?};");
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    fn payload(&mut self, payload: &Payload) {
        self.add(&payload.codec);
        self.bytes(&payload.data);
        self.add(&payload.index);
    }

    fn end(&self) -> u64 {
        self.0.digest()
    }
}

/// Reads everything in a store.
pub(crate) fn everything(store: &Store, deadline: Deadline) -> Result<StoreView, Unreadable> {
    let timers = store.timers(None)?;
    let mut view = key_values(store)?;
    for record in threads(store, deadline)? {
        view.insert(format!("t:{}", record.id), of_record(store, &record, &timers, deadline)?);
    }
    Ok(view)
}

/// Reads everything in a file, and the application's table.
pub(crate) fn with_ledger(store: &Store, deadline: Deadline) -> Result<StoreView, Unreadable> {
    let mut view = everything(store, deadline)?;
    let mut ledger = LedgerRows::new();
    let rows = store.transaction(|tx| {
        tx.execute_batch(sql::LEDGER)?;
        tx.query(sql::LEDGER_ROWS, (), |row| Ok((row.get::<String>(0)?, row.get(1)?, row.get(2)?)))
    })?;
    for (actor, number, text) in rows {
        ledger.entry(actor).or_default().push((number, text));
    }
    view.extend(of_ledger(&ledger));
    Ok(view)
}

/// Returns one hash for each actor with rows in the application's table: `a:` and the actor.
pub(crate) fn of_ledger(ledger: &LedgerRows) -> StoreView {
    let hash_of = |rows: &Vec<(i64, String)>| {
        let mut hash = Hash::new();
        rows.iter().for_each(|row| hash.add(row));
        hash.end()
    };
    ledger.iter().map(|(actor, rows)| (format!("a:{actor}"), hash_of(rows))).collect()
}

/// Lists the threads page by page, as a listing that shows them does.
fn threads(store: &Store, deadline: Deadline) -> Result<Vec<ThreadRecord>, Unreadable> {
    let mut found: Vec<ThreadRecord> = Vec::new();
    loop {
        let after = found.last().map(|record| record.id.clone());
        let page = store.backend().threads(after.as_ref(), 64)?;
        let ends = page.len() < 64;
        found.extend(page);
        if found.len() > RECORDS_MAX || deadline.has_passed() {
            return Err(Unreadable::Endless);
        }
        if ends {
            return Ok(found);
        }
    }
}

/// Reads one thread, `None` if the store does not have it.
pub(crate) fn thread(store: &Store, id: &ThreadId, deadline: Deadline) -> Result<Option<u64>, Unreadable> {
    let Some(record) = threads(store, deadline)?.into_iter().find(|record| record.id == *id) else { return Ok(None) };
    of_record(store, &record, &store.timers(None)?, deadline).map(Some)
}

/// Reads the key-value memory.
pub(crate) fn key_values(store: &Store) -> Result<StoreView, Unreadable> {
    let mut hashes: BTreeMap<String, Hash> = BTreeMap::new();
    let never = Timestamp::from_micros(0);
    store.backend().side_tables()?.kv_entries(None, never, &mut |record| {
        let root = record.namespace.labels().next().unwrap_or_default();
        let hash = hashes.entry(format!("k:{root}")).or_insert_with(Hash::new);
        hash.add(&(&record.namespace, &record.key, record.created_at, record.updated_at, record.expires_at));
        hash.add(&record.value.codec);
        hash.bytes(&record.value.bytes);
        Ok(true)
    })?;
    Ok(hashes.into_iter().map(|(root, hash)| (root, hash.end())).collect())
}

fn of_record(
    store: &Store,
    record: &ThreadRecord,
    timers: &[TimerRecord],
    deadline: Deadline,
) -> Result<u64, Unreadable> {
    let mut hash = Hash::new();
    let size = store.backend().thread_size(&record.id)?;
    hash.add(&(&record.id, record.created_at, size.checkpoints, size.branches));
    of_checkpoint(&mut hash, &record.head);
    let thread = store.thread(record.id.as_str())?;
    let mut records = 0;
    for namespace in store.backend().namespaces(&record.id)? {
        hash.add(&namespace);
        let thread = thread.with_namespace(namespace);
        for snapshot in thread.history()? {
            records += 1;
            if records > RECORDS_MAX || deadline.has_passed() {
                return Err(Unreadable::Endless);
            }
            of_snapshot(&mut hash, &snapshot?, deadline)?;
        }
    }
    for timer in timers.iter().filter(|timer| timer.point.thread == record.id) {
        hash.add(timer);
    }
    Ok(hash.end())
}

fn of_checkpoint(hash: &mut Hash, record: &CheckpointRecord) {
    hash.add(&(&record.point, record.parent, &record.forked_from, record.ordinal, record.step, record.source));
    hash.add(&(record.created_at, &record.run, &record.metadata, &record.parents, &record.tasks));
}

fn of_snapshot(hash: &mut Hash, snapshot: &Snapshot, deadline: Deadline) -> Result<(), Unreadable> {
    of_checkpoint(hash, snapshot.record());
    let (mut parts, mut endless) = (0, false);
    let read = snapshot.store().backend().read_state(snapshot.point(), &mut |part| {
        parts += 1;
        if parts > RECORDS_MAX || (parts % 64 == 0 && deadline.has_passed()) {
            endless = true;
            return Err(StoreError::Read { reason: "it does not end".into(), source: None });
        }
        match part {
            StatePart::Record(state) => hash.add(&(&state.seen, &state.updated)),
            StatePart::Channel(channel) => {
                hash.add(&(&channel.channel, channel.version, channel.ordinal, channel.task));
                match &channel.value {
                    ChannelValue::Value(payload) => hash.payload(payload),
                    other => hash.add(other),
                }
            }
            StatePart::Item(item) => {
                hash.add(&(item.position, item.ordinal, item.task, item.payload.codec, &item.payload.index));
                hash.bytes(item.payload.data);
            }
            _ => {}
        }
        Ok(true)
    });
    if endless {
        return Err(Unreadable::Endless);
    }
    read?;
    for write in snapshot.writes()? {
        hash.add(&(write.task, &write.path, write.index, &write.channel));
        match &write.value {
            WriteValue::Null => hash.add(&()),
            WriteValue::One(payload) => hash.payload(payload),
            WriteValue::Items(items) => items.iter().for_each(|item| hash.payload(item)),
            WriteValue::Delta(delta) => hash.add(delta),
        }
    }
    Ok(())
}
