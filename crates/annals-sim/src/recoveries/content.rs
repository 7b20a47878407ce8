//! The store that is damaged: nine threads with 561 messages, and the places of their rows in the file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use annals::prelude::*;
use annals::rusqlite::{self, Connection};

use super::damage::{DamagedBytes, PAGE, SoundFile, is_whole};
use crate::rng::Rng;
use crate::trace::ScratchFolder;

/// Bytes of a record that a leaf holds at most, and at least if it has a chain.
const LOCAL_WHOLE: usize = PAGE - 35;
const LOCAL_LEAST: usize = (PAGE - 12) * 32 / 255 - 23;

/// The ranges of a page, all of which a row needs.
type Parts = Vec<Vec<Range<usize>>>;

/// A sound store.
pub(crate) struct MessageStore {
    pub(crate) file: SoundFile,
    /// The texts of its messages.
    pub(crate) messages: BTreeSet<String>,
    /// The number of them that were in the file before the last commits.
    pub(crate) behind: usize,
    /// The parts of the rows of each message.
    rows: Vec<Parts>,
}

impl MessageStore {
    /// Makes the store of a seed.
    pub(crate) fn make(seed: u64) -> Result<Self, String> {
        let scratch = ScratchFolder::new().map_err(|error| error.to_string())?;
        let path = scratch.store();
        let (behind, before) = write(&path, seed).map_err(|error| error.to_string())?;
        let bytes = std::fs::read(&path).map_err(|error| error.to_string())?;
        Self::read(&path, bytes, behind, before).map_err(|error| error.to_string())
    }

    fn read(path: &Path, bytes: Vec<u8>, behind: (Vec<u8>, Vec<u8>), before: usize) -> rusqlite::Result<Self> {
        let conn = Connection::open(path)?;
        let mut trees: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut statement = conn.prepare(
            "SELECT s.name, d.pageno FROM sqlite_schema s JOIN dbstat d ON d.name = s.name WHERE s.rootpage > 1 \
             ORDER BY s.name, d.pageno <> s.rootpage, d.pageno",
        )?;
        let pages = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?)))?;
        for page in pages {
            let (name, number) = page?;
            trees.entry(name).or_default().push(number as usize - 1);
        }
        let mut statement = conn.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 1")?;
        let tables = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
        let mut statement = conn.prepare("SELECT text FROM v_messages")?;
        let messages = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<BTreeSet<String>>>()?;
        let none = Vec::new();
        let rows_of = |table: &str| rows(&bytes, trees.get(table).unwrap_or(&none));
        let (payloads, blobs) = (rows_of("payload"), rows_of("blob"));
        let mut statement = conn.prepare(
            "SELECT id, CASE typeof(data) WHEN 'integer' THEN data END, CASE typeof(text) WHEN 'integer' THEN text END \
             FROM payload WHERE kind IS NOT NULL",
        )?;
        type Ids = (i64, Option<i64>, Option<i64>);
        let ids = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        let mut rows = Vec::new();
        for (id, data, text) in ids.collect::<rusqlite::Result<Vec<Ids>>>()? {
            let mut parts = payloads.get(&id).cloned().unwrap_or_default();
            for blob in [data, text].into_iter().flatten() {
                parts.extend(blobs.get(&blob).cloned().unwrap_or_default());
            }
            rows.push(parts);
        }
        drop(statement);
        let file = SoundFile { bytes, trees, tables, behind };
        Ok(Self { file, messages, behind: before, rows })
    }

    /// Returns the number of messages whose rows are whole in a damaged file.
    pub(crate) fn could_come_back(&self, damaged: &DamagedBytes) -> usize {
        let places = damaged.places(self.file.bytes.len());
        self.rows.iter().filter(|parts| parts.iter().all(|ranges| is_whole(&places, ranges))).count()
    }
}

/// Writes the threads. Returns the file before the last commits with the log that holds them, and the number of
/// messages that were in it.
fn write(path: &Path, seed: u64) -> Result<((Vec<u8>, Vec<u8>), usize), Box<dyn std::error::Error>> {
    let mut rng = Rng::stream(seed, 7);
    let mut text = |thread: usize, number: usize| {
        let lengths = [40, 90, 150, 250, 400];
        let length = match number % 19 {
            7 => 1_700,
            13 => 4_500,
            _ => lengths[rng.below(lengths.len())],
        };
        let mut text = format!("message {number} of thread {thread}:");
        while text.len() < length {
            text.push_str(&format!(" {:x}", rng.next()));
        }
        text
    };
    let store = Store::open(path)?;
    let message = |number: usize, text: String| match number % 3 {
        0 => Message::human(text),
        1 => Message::ai(text),
        _ => Message::tool(text, format!("call-{number}")),
    };
    let mut before = 0;
    let mut count = |messages: usize| before += messages;
    for thread in 0..3 {
        let messages: Vec<Message> = (0..60).map(|n| message(n, text(thread, n))).collect();
        store.thread(format!("imported-{thread}"))?.append("messages", messages)?;
        count(60);
    }
    for turn in 0..25 {
        for thread in 3..7 {
            let messages: Vec<Message> = (3 * turn..3 * turn + 3).map(|n| message(n, text(thread, n))).collect();
            store.thread(format!("chat-{thread}"))?.append("messages", messages)?;
            count(3);
        }
    }
    for number in 0..41 {
        store.thread("notes")?.append("messages", [message(number, text(7, number))])?;
        count(1);
    }
    // The log is copied into the file when it is closed.
    drop(store);
    let store = Store::open(path)?;
    let fork = store.thread("chat-3")?.at("@~3")?.fork_to("fork")?;
    let behind = std::fs::read(path)?;
    for number in 0..40 {
        fork.append("messages", [message(number, text(8, number))])?;
    }
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let log = std::fs::read(log)?;
    drop((fork, store));
    Ok(((behind, log), before))
}

/// Returns the parts of the rows of a table, by their numbers.
fn rows(bytes: &[u8], pages: &[usize]) -> BTreeMap<i64, Parts> {
    let mut rows = BTreeMap::new();
    for page in pages.iter().map(|page| page * PAGE).filter(|page| bytes[*page] == 13) {
        for cell in 0..short(bytes, page + 3) {
            let pointer = page + 8 + 2 * cell;
            let begin = page + short(bytes, pointer);
            let (length, at) = varint(bytes, begin);
            let (rowid, at) = varint(bytes, at);
            let local = local(length as usize);
            let chained = if local < length as usize { 4 } else { 0 };
            // The kind and the number of cells, the pointer to the cell, and the cell.
            let mut parts = vec![vec![page..page + 7, pointer..pointer + 2, begin..at + local + chained]];
            let (mut rest, mut next) = (length as usize - local, at + local);
            while rest > 0 {
                let chain = (word(bytes, next) - 1) * PAGE;
                let part = rest.min(PAGE - 4);
                parts.push(std::iter::once(chain..chain + 4 + part).collect());
                (rest, next) = (rest - part, chain);
            }
            rows.insert(rowid as i64, parts);
        }
    }
    rows
}

fn local(length: usize) -> usize {
    let part = LOCAL_LEAST + length.saturating_sub(LOCAL_LEAST) % (PAGE - 4);
    match length <= LOCAL_WHOLE {
        true => length,
        false if part <= LOCAL_WHOLE => part,
        false => LOCAL_LEAST,
    }
}

fn short(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
}

/// Returns a number and the place after it.
fn varint(bytes: &[u8], mut at: usize) -> (u64, usize) {
    let mut number = 0;
    loop {
        number = (number << 7) | u64::from(bytes[at] & 0x7f);
        at += 1;
        if bytes[at - 1] < 0x80 {
            return (number, at);
        }
    }
}
