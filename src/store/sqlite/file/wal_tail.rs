//! Finds the frames of the write-ahead log that SQLite does not read.
//!
//! SQLite reads a log up to the first frame whose checksum does not match, and is silent about the frames after it.
//! Here the file is read with plain reads: frames after a broken one that carry the salts of the log are counted.
//! Frames with other salts are leftovers of an earlier log, and sound frames after the last commit are an unfinished
//! transaction: neither is counted. A leftover may have the salts of the log: SQLite takes those of a header that was
//! half written for the next log. It is known by its mark, which the first mark of the log follows. *Absent:* the index
//! of the log in shared memory, and any repair.
//!
//! Invariant: a frame that another process is writing is not taken for a broken one, and a log that was copied into the
//! file is not taken for a lost one.

use super::system;
use super::wal_heads::{self, FoundCheckpoint};
use super::wal_mark::WalMark;
use crate::limits::PROBLEMS_MAX;
use crate::limits::{LOG_READINGS_MAX, LOST_CHECKPOINTS_MAX};
use crate::store::check::LogTail;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::sql;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::ops::RangeInclusive;
use std::path::Path;

pub(crate) const HEADER_BYTES: usize = 32;
pub(crate) const FRAME_HEADER_BYTES: usize = 24;
/// The first word of a log, but for the last bit: that says in which byte order checksums read their words.
pub(crate) const MAGIC: u32 = 0x377f_0682;

/// The sizes of pages that SQLite knows.
const PAGE_BYTES: RangeInclusive<u32> = 512..=65_536;

/// The end of a log, and the checkpoints in its lost frames.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundTail {
    pub(crate) tail: LogTail,
    /// The checkpoints of each page, as its last frame has them.
    found: BTreeMap<u32, Vec<FoundCheckpoint>>,
    /// True if the header of the next log was being written over the header of this one.
    is_replaced: bool,
}

impl FoundTail {
    /// Adds the newest checkpoint of each namespace that the file does not hold.
    ///
    /// Returns `None` if the next log was being begun and the file holds all checkpoints of this one: a log is begun
    /// anew only when all frames of the one before are in the file.
    pub(crate) fn with_heads(&self, conn: &Connection) -> Res<Option<LogTail>> {
        let mut stored = conn.prepare_cached(sql::CHECKPOINT_CHECKSUM)?;
        let mut heads: BTreeMap<i64, FoundCheckpoint> = BTreeMap::new();
        for found in self.found.values().flatten() {
            let is_newer = heads.get(&found.namespace).is_none_or(|head| head.seq < found.seq);
            if is_newer && !stored.exists([found.seq])? {
                heads.insert(found.namespace, *found);
            }
        }
        if self.is_replaced && heads.is_empty() {
            return Ok(None);
        }
        let lost_heads = heads.into_values().map(|head| head.id).take(PROBLEMS_MAX).collect();
        Ok(Some(LogTail { lost_heads, ..self.tail.clone() }))
    }
}

/// Returns the frames after the first broken one of the log at `path`; `None` if it has none, and without a log.
///
/// A writer may write a frame while it is read. So a tail counts only if a second reading finds the same.
pub(crate) fn find(path: &Path) -> io::Result<Option<FoundTail>> {
    let mut last = read_if_exists(path)?;
    for _ in 0..LOG_READINGS_MAX {
        if last.is_none() {
            return Ok(None);
        }
        let again = read_if_exists(path)?;
        if again == last {
            return Ok(last);
        }
        last = again;
    }
    // The log changes with every reading: writers append to it, which they do after sound frames alone.
    Ok(None)
}

fn read_if_exists(path: &Path) -> io::Result<Option<FoundTail>> {
    match system::open_to_read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        file => read(file?),
    }
}

fn read(file: File) -> io::Result<Option<FoundTail>> {
    let mut log = BufReader::with_capacity(1 << 20, file);
    let mut header = [0; HEADER_BYTES];
    if !fill(&mut log, &mut header)? {
        return Ok(None);
    }
    let big_endian = word(&header, 0) & 1 == 1;
    let mut sum = checksum(big_endian, [0; 2], &header[..24]);
    let is_sound = word(&header, 0) & !1 == MAGIC && sum == pair(&header, 24);
    let mut salts = pair(&header, 16);
    let (mut tail, mut found, mut is_replaced) = (LogTail::default(), BTreeMap::new(), false);
    let mut frame = vec![0; FRAME_BYTES as usize];
    // SQLite reads nothing of a log whose header is broken.
    let mut sound = is_sound;
    let (mut number, mut found_count) = (0, 0);
    let (mut first_mark, mut run) = (None, TailRun::default());
    while fill(&mut log, &mut frame)? {
        number += 1;
        if number == 1 && !is_sound {
            salts = pair(&frame, 8);
            is_replaced = follows_header_before(big_endian, &header, &frame);
        }
        let is_of_log = pair(&frame, 8) == salts && word(&frame, 0) > 0;
        if sound {
            sum = checksum(big_endian, sum, &frame[..8]);
            sum = checksum(big_endian, sum, &frame[FRAME_HEADER_BYTES..]);
            sound = is_of_log && sum == pair(&frame, 16);
        }
        if sound {
            tail.end = number;
            first_mark = first_mark.or_else(|| WalMark::of_page(&frame[FRAME_HEADER_BYTES..]));
        } else if is_of_log {
            if !run.goes_on(big_endian, &frame) {
                std::mem::take(&mut run).count(&mut tail);
            }
            run.add(number, &frame, first_mark);
            // The first of them is the broken one, unless the header is.
            if number > tail.end + 1 || is_replaced {
                let mut of_page = wal_heads::find(&frame[FRAME_HEADER_BYTES..]);
                let older = found.remove(&word(&frame, 0)).map_or(0, |older: Vec<_>| older.len());
                found_count -= older;
                of_page.truncate(LOST_CHECKPOINTS_MAX - found_count);
                found_count += of_page.len();
                if !of_page.is_empty() {
                    found.insert(word(&frame, 0), of_page);
                }
            }
        }
    }
    run.count(&mut tail);
    // Without the end of a transaction, the frames are those of one that was rolled back.
    Ok((tail.commits > 0).then_some(FoundTail { tail, found, is_replaced }))
}

/// Frames after a broken one whose checksums continue each other.
#[derive(Debug, Default)]
struct TailRun {
    /// The number of the last one.
    last: u64,
    commits: u64,
    /// The checksum of the last one.
    sum: [u32; 2],
    /// True if a frame holds the mark that the first mark of the log follows: the frames are of the log before, and in
    /// the file.
    is_before: bool,
}

impl TailRun {
    fn goes_on(&self, big_endian: bool, frame: &[u8]) -> bool {
        let sum = checksum(big_endian, self.sum, &frame[..8]);
        checksum(big_endian, sum, &frame[FRAME_HEADER_BYTES..]) == pair(frame, 16)
    }

    fn add(&mut self, number: u64, frame: &[u8], first_mark: Option<WalMark>) {
        (self.last, self.sum) = (number, pair(frame, 16));
        // The last frame of a transaction counts the pages of the file.
        self.commits += u64::from(word(frame, 4) > 0);
        let holds =
            |first: WalMark| WalMark::of_page(&frame[FRAME_HEADER_BYTES..]).is_some_and(|m| m.mark == first.before);
        self.is_before |= first_mark.is_some_and(holds);
    }

    fn count(self, tail: &mut LogTail) {
        if !self.is_before && self.last > 0 {
            tail.frames = self.last;
            tail.commits += self.commits;
        }
    }
}

/// Returns whether the first frame follows the header of the log before the one whose header is broken.
///
/// SQLite begins a log anew with the next sequence number and other salts. If only a part of that header was written,
/// the first frame still holds the salts of the header before, and its checksum continues that of this header.
fn follows_header_before(big_endian: bool, header: &[u8; HEADER_BYTES], frame: &[u8]) -> bool {
    let mut before = *header;
    before[12..16].copy_from_slice(&word(header, 12).wrapping_sub(1).to_be_bytes());
    before[16..24].copy_from_slice(&frame[8..16]);
    let sum = checksum(big_endian, [0; 2], &before[..24]);
    let sum = checksum(big_endian, sum, &frame[..8]);
    checksum(big_endian, sum, &frame[FRAME_HEADER_BYTES..]) == pair(frame, 16)
}

/// Fills a buffer; returns false if the file ends before.
fn fill(log: &mut BufReader<File>, buffer: &mut [u8]) -> io::Result<bool> {
    match log.read_exact(buffer) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        result => result.map(|()| true),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn pair(bytes: &[u8], at: usize) -> [u32; 2] {
    [word(bytes, at), word(bytes, at + 4)]
}

/// Continues the checksum of SQLite's log over bytes whose number is a multiple of 8.
pub(crate) fn checksum(big_endian: bool, [mut first, mut second]: [u32; 2], bytes: &[u8]) -> [u32; 2] {
    debug_assert!(bytes.len().is_multiple_of(8));
    let word = if big_endian { u32::from_be_bytes } else { u32::from_le_bytes };
    for &[a, b, c, d, e, f, g, h] in bytes.as_chunks().0 {
        first = first.wrapping_add(word([a, b, c, d])).wrapping_add(second);
        second = second.wrapping_add(word([e, f, g, h])).wrapping_add(first);
    }
    [first, second]
}

/// The frames of a log up to the first broken one.
pub(crate) struct Frames {
    log: BufReader<File>,
    is_big_endian: bool,
    sum: [u32; 2],
    salts: [u32; 2],
    frame: Vec<u8>,
}

/// A frame of a log whose checksum matches.
pub(crate) struct SoundFrame<'a> {
    /// The number of the page.
    pub(crate) number: u32,
    /// The pages of the file, in the last frame of a transaction; else 0.
    pub(crate) pages: u32,
    pub(crate) page: &'a [u8],
}

impl Frames {
    /// Reads the header of a log; `None` if it is broken.
    pub(crate) fn begin(file: File) -> io::Result<Option<Self>> {
        let mut log = BufReader::with_capacity(1 << 16, file);
        let mut header = [0; HEADER_BYTES];
        if !fill(&mut log, &mut header)? {
            return Ok(None);
        }
        let is_big_endian = word(&header, 0) & 1 == 1;
        let sum = checksum(is_big_endian, [0; 2], &header[..24]);
        let page_bytes = word(&header, 8);
        if word(&header, 0) & !1 != MAGIC || sum != pair(&header, 24) || !PAGE_BYTES.contains(&page_bytes) {
            return Ok(None);
        }
        let frame = vec![0; page_bytes as usize / 8 * 8 + FRAME_HEADER_BYTES];
        Ok(Some(Self { log, is_big_endian, sum, salts: pair(&header, 16), frame }))
    }

    /// Returns the salts of the log.
    pub(crate) fn salts(&self) -> [u32; 2] {
        self.salts
    }

    /// Returns the next frame; `None` after the last sound one.
    pub(crate) fn next(&mut self) -> io::Result<Option<SoundFrame<'_>>> {
        if !fill(&mut self.log, &mut self.frame)? {
            return Ok(None);
        }
        let (header, page) = self.frame.split_at(FRAME_HEADER_BYTES);
        self.sum = checksum(self.is_big_endian, self.sum, &header[..8]);
        self.sum = checksum(self.is_big_endian, self.sum, page);
        let is_sound = pair(header, 8) == self.salts && word(header, 0) > 0 && self.sum == pair(header, 16);
        Ok(is_sound.then(|| SoundFrame { number: word(header, 0), pages: word(header, 4), page }))
    }
}

/// Bytes of a WAL frame: a page and its header.
pub(crate) const FRAME_BYTES: u64 = sql::PAGE_BYTES + 24;
