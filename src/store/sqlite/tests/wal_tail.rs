//! The end of a write-ahead log that a broken frame cuts off.

use super::*;
use crate::store::check::{CheckReport, Invariant};
use crate::store::sqlite::file::wal_mark::{MarkState, WalMark};
use crate::store::sqlite::file::wal_tail;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

const HEADER: usize = 32;
const FRAME: usize = 4_096 + 24;

/// A store with five commits in its log, the last of two frames or more, and the commits that end in its frames.
struct Log {
    bench: Bench,
    bytes: Vec<u8>,
    frames: u64,
    /// The frames with which a transaction ends, from 1 on.
    ends: Vec<u64>,
}

impl Log {
    fn new() -> Self {
        let mut bench = Bench::new();
        let t = thread("a");
        let mut head = None;
        for n in 1..=5_u64 {
            head = Some(bench.add(&t, head, vec![value("x", n, plain(&[n as u8; 5_000]))]));
        }
        let bytes = fs::read(bench.folder.path().join("x.db-wal")).unwrap();
        let frames = FileStore::stats(&bench.store).unwrap().wal_frames;
        assert_eq!(bytes.len(), HEADER + frames as usize * FRAME);
        let is_end = |n: &u64| {
            let at = HEADER + (*n as usize - 1) * FRAME;
            bytes[at + 4..at + 8] != [0; 4]
        };
        let ends: Vec<u64> = (1..=frames).filter(is_end).collect();
        assert!(ends.len() == 5 && ends.last() == Some(&frames), "{ends:?} of {frames}");
        Self { bench, bytes, frames, ends }
    }

    /// Checks a copy of the store with a changed log.
    fn check(&self, name: &str, bytes: &[u8]) -> CheckReport {
        let copy = self.bench.folder.path().join(name);
        fs::copy(self.bench.path(), &copy).unwrap();
        fs::write(self.bench.folder.path().join(format!("{name}-wal")), bytes).unwrap();
        SqliteBackend::open(&copy, &options().read_only(true)).unwrap().check().unwrap()
    }
}

#[test]
fn a_flip_in_each_frame_ends_the_log_there() {
    let log = Log::new();
    // Page number, end of a transaction, checksum, page.
    for frame in 1..=log.frames {
        for byte in [3, 16, 24, 3_000] {
            let mut bytes = log.bytes.clone();
            let flipped = &mut bytes[HEADER + (frame as usize - 1) * FRAME + byte];
            // A frame of page 0 would not be one of the log.
            *flipped ^= if *flipped == 0x40 { 0x20 } else { 0x40 };
            let commits = log.ends.iter().filter(|end| **end >= frame).count() as u64;
            let path = log.bench.folder.path().join("flipped");
            fs::write(&path, &bytes).unwrap();
            let tail = wal_tail::find(&path).unwrap().unwrap().tail;
            assert_eq!((tail.end, tail.frames, tail.commits), (frame - 1, log.frames, commits), "{frame}, {byte}");
        }
    }
}

#[test]
fn lost_commits_are_a_finding_and_one_that_may_not_have_returned_is_named() {
    let log = Log::new();
    let flipped = |frame: u64| {
        let mut bytes = log.bytes.clone();
        bytes[HEADER + (frame as usize - 1) * FRAME + 100] ^= 1;
        bytes
    };
    let before_last = log.ends[log.ends.len() - 2];
    let lost = log.check("lost.db", &flipped(before_last));
    assert_eq!((lost.checkpoints, lost.up_to), (3, None));
    let [finding] = &lost.problems[..] else { panic!("{:?}", lost.problems) };
    assert_eq!(finding.invariant, Invariant::Log);
    let end = before_last - 1;
    assert_eq!(finding.reason, format!("the log ends at frame {end} of {}, 2 commits follow", log.frames));
    let head = log.bench.store.head_id(&thread("a"), &Namespace::root()).unwrap();
    assert_eq!(lost.log_tail.unwrap().lost_heads, [head.unwrap()]);
    let last = log.check("last.db", &flipped(log.frames));
    assert_eq!((last.checkpoints, &last.problems[..]), (4, &[][..]));
    let tail = last.log_tail.unwrap();
    assert_eq!((tail.end, tail.frames, tail.commits), (log.frames - 1, log.frames, 1));
    assert_eq!(tail.to_string(), format!("the log ends at frame {} of {}, 1 commit follows", tail.end, tail.frames));
}

#[test]
fn a_broken_header_ends_the_log_before_its_first_frame() {
    let log = Log::new();
    let path = log.bench.folder.path().join("flipped");
    for byte in 0..HEADER {
        let mut bytes = log.bytes.clone();
        bytes[byte] ^= 0x10;
        fs::write(&path, &bytes).unwrap();
        let tail = wal_tail::find(&path).unwrap().unwrap().tail;
        assert_eq!((tail.end, tail.frames, tail.commits), (0, log.frames, log.ends.len() as u64), "byte {byte}");
    }
}

#[test]
fn a_log_whose_header_was_being_replaced_is_a_finding_only_if_the_file_lacks_its_checkpoints() {
    let log = Log::new();
    let old_header: [u8; HEADER] = log.bytes[..HEADER].try_into().unwrap();
    // The header that SQLite would write next, with a salt by which its last byte is another one: each beginning of it
    // with the rest of the old one is broken.
    let word = |header: &[u8], at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
    let next_header = |salt: u32| {
        let mut header = old_header;
        for (at, next) in [(12, word(&old_header, 12) + 1), (16, word(&old_header, 16).wrapping_add(1)), (20, salt)] {
            header[at..at + 4].copy_from_slice(&next.to_be_bytes());
        }
        let sum = wal_tail::checksum(word(&old_header, 0) & 1 == 1, [0; 2], &header[..24]);
        header[24..28].copy_from_slice(&sum[0].to_be_bytes());
        header[28..].copy_from_slice(&sum[1].to_be_bytes());
        header
    };
    let new_header = (0x5a5a_5a5a..).map(next_header).find(|header| header[31] != old_header[31]).unwrap();
    let half_written = |written: usize| {
        let mut bytes = log.bytes.clone();
        bytes[..written].copy_from_slice(&new_header[..written]);
        bytes
    };
    for written in 16..HEADER {
        let tail = log.check(&format!("lost{written}.db"), &half_written(written)).log_tail.unwrap();
        assert_eq!((tail.end, tail.frames, tail.commits), (0, log.frames, 5), "{written} bytes");
        assert_eq!(tail.lost_heads.len(), 1, "{written} bytes");
    }
    let conn = raw(&log.bench.path());
    conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
    assert_eq!(fs::read(log.bench.folder.path().join("x.db-wal")).unwrap(), log.bytes, "the log is not begun anew");
    for written in 12..=HEADER {
        let copied = log.check(&format!("copied{written}.db"), &half_written(written));
        assert_eq!((copied.checkpoints, copied.log_tail, &copied.problems[..]), (5, None, &[][..]), "{written} bytes");
    }
    // Another broken header of the same log stays a finding.
    let mut broken = log.bytes.clone();
    broken[20] ^= 1;
    assert_eq!(log.check("broken.db", &broken).problems.len(), 1);
}

#[test]
fn leftovers_with_the_salts_of_a_header_that_was_half_written_are_no_tail() {
    let log = Log::new();
    let place = |name: &str| log.bench.folder.path().join(name);
    let conn = raw(&log.bench.path());
    WalMark::replace(&conn, MarkState::Synced, false).unwrap();
    conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
    let mut bytes = fs::read(place("x.db-wal")).unwrap();
    // The first half of the next header: its number, and the salts of this one.
    bytes[15] += 1;
    fs::copy(log.bench.path(), place("next.db")).unwrap();
    fs::write(place("next.db-wal"), &bytes).unwrap();
    // SQLite takes what it has read of the header for that of the next log.
    let next = raw(&place("next.db"));
    WalMark::replace(&next, MarkState::Synced, false).unwrap();
    let bytes = fs::read(place("next.db-wal")).unwrap();
    assert_eq!(bytes[16..24], log.bytes[16..24], "the salts");
    assert_eq!(wal_tail::find(&place("next.db-wal")).unwrap(), None);
    assert_eq!(log.check("copied.db", &bytes).problems, []);
}

#[test]
fn a_log_whose_header_was_half_written_is_emptied_before_a_frame_is_added() {
    let log = Log::new();
    let place = |name: &str| log.bench.folder.path().join(name);
    // The log holds its mark in the first transaction alone, whose frames the next log writes over.
    raw(&log.bench.path()).query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
    let mut bytes = log.bytes.clone();
    bytes[15] += 1;
    fs::copy(log.bench.path(), place("next.db")).unwrap();
    fs::write(place("next.db-wal"), &bytes).unwrap();
    let store = SqliteBackend::open(&place("next.db"), &options()).unwrap();
    // A reader that keeps a log from being emptied once it has frames.
    let keep = |reader: &rusqlite::Connection| reader.execute_batch("BEGIN; SELECT count(*) FROM checkpoint").unwrap();
    let reader = raw(&place("next.db"));
    keep(&reader);
    let mut next = Bench { folder: tempfile::tempdir().unwrap(), store, ids: IdSource::from_seed(8) };
    next.add(&thread("b"), None, vec![]);
    assert_ne!(fs::read(place("next.db-wal")).unwrap()[16..20], log.bytes[16..20], "the salts are new");
    assert_eq!(next.store.check().unwrap().problems, []);
}

#[test]
fn a_log_that_is_whole_and_leftovers_are_no_tail() {
    let mut log = Log::new();
    let path = log.bench.folder.path().join("x.db-wal");
    assert_eq!(wal_tail::find(&path).unwrap(), None);
    assert_eq!(wal_tail::find(&log.bench.folder.path().join("none")).unwrap(), None);
    // A log that is cut within a frame, or whose last transaction was not finished.
    let copy = log.bench.folder.path().join("cut");
    let unfinished = HEADER + (log.frames as usize - 1) * FRAME;
    for length in [0, 31, HEADER, HEADER + 1, log.bytes.len() - 1, unfinished] {
        fs::write(&copy, &log.bytes[..length]).unwrap();
        assert_eq!(wal_tail::find(&copy).unwrap(), None, "{length} bytes");
    }
    // The log begins anew, with other salts, over the frames of the one before.
    let conn = raw(&log.bench.path());
    conn.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).unwrap();
    let head = log.bench.store.head_id(&thread("a"), &Namespace::root()).unwrap();
    log.bench.add(&thread("a"), head, vec![value("x", 6, plain(&[6]))]);
    let bytes = fs::read(&path).unwrap();
    assert_ne!(bytes[16..24], log.bytes[16..24], "the salts are new");
    assert_eq!(bytes[bytes.len() - FRAME..], log.bytes[log.bytes.len() - FRAME..], "the last frame is a leftover");
    assert_eq!(wal_tail::find(&path).unwrap(), None);
}

#[test]
fn a_log_that_grows_while_it_is_read_has_no_tail() {
    let mut bench = Bench::new();
    let path = bench.folder.path().join("x.db-wal");
    let (t, done, readings) = (thread("a"), std::sync::atomic::AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut head = None;
            // Until it was read some times, however late the reader begins.
            for n in (1_u64..).take_while(|n| *n <= 400 || readings.load(Ordering::Acquire) < 10) {
                head = Some(bench.add(&t, head, vec![value("x", n, plain(&[n as u8; 9_000]))]));
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            assert_eq!(wal_tail::find(&path).unwrap(), None);
            readings.fetch_add(1, Ordering::Release);
        }
    });
}
