//! Pages: those of a write-ahead log that SQLite does not read, and those in which versions are read.

use super::*;
use crate::limits::{ITEM_PAGE_BYTES_MAX, LOST_CHECKPOINTS_MAX, VERSION_PAGE_MIN, WAL_COPY_BYTES};
use crate::store::sqlite::file::{schema, wal_heads, wal_tail};
use crate::store::sqlite::read::version_pages::VersionPages;
use crate::store::sqlite::sql;
use std::fs;

const HEADER: usize = 32;
const PAGE: usize = 4_096;
const FRAME: usize = PAGE + 24;

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn put_pair(bytes: &mut [u8], at: usize, pair: [u32; 2]) {
    bytes[at..at + 4].copy_from_slice(&pair[0].to_be_bytes());
    bytes[at + 4..at + 8].copy_from_slice(&pair[1].to_be_bytes());
}

/// Computes the checksums of a log anew, in the byte order that its header names.
fn seal(log: &mut [u8]) {
    let big_endian = word(log, 0) & 1 == 1;
    let mut sum = wal_tail::checksum(big_endian, [0; 2], &log[..24]);
    put_pair(log, 24, sum);
    for frame in log[HEADER..].chunks_exact_mut(FRAME) {
        sum = wal_tail::checksum(big_endian, sum, &frame[..8]);
        sum = wal_tail::checksum(big_endian, sum, &frame[24..]);
        put_pair(frame, 16, sum);
    }
}

/// A store with commits in its log, and the bytes of the log.
fn logged(commits: u64) -> (Bench, Vec<u8>) {
    let mut bench = Bench::new();
    let mut head = None;
    for n in 1..=commits {
        head = Some(bench.add(&thread("a"), head, vec![value("x", n, plain(&[n as u8; 5_000]))]));
    }
    let bytes = fs::read(bench.folder.path().join("x.db-wal")).unwrap();
    assert_eq!((bytes.len() - HEADER) % FRAME, 0);
    (bench, bytes)
}

/// Writes a log beside the store and returns what follows its first broken frame.
fn tail_of(bench: &Bench, bytes: &[u8]) -> Option<wal_tail::FoundTail> {
    let path = bench.folder.path().join("log");
    fs::write(&path, bytes).unwrap();
    wal_tail::find(&path).unwrap()
}

fn lost(found: &wal_tail::FoundTail) -> Vec<CheckpointId> {
    let conn = rusqlite::Connection::open_in_memory().unwrap();
    conn.execute_batch(&schema::statements(sql::SCHEMA)).unwrap();
    found.with_heads(&conn).unwrap().unwrap().lost_heads
}

#[test]
fn the_checkpoints_of_a_file_are_recognized_in_its_pages() {
    let mut bench = Bench::new();
    let mut heads = Vec::new();
    for n in 0..140 {
        heads.push(bench.add(&thread(&format!("thread {n}")), None, vec![value("x", 1, plain(&[n]))]));
    }
    bench.add(&thread("thread 3"), Some(heads[3]), Vec::new());
    bench.store.checkpoint_wal().unwrap();
    let conn = raw(&bench.path());
    let mut statement = conn.prepare("SELECT seq, namespace, id FROM checkpoint ORDER BY seq").unwrap();
    let stored = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    let stored: Vec<(i64, i64, [u8; 16])> = stored.map(Result::unwrap).collect();
    assert_eq!((stored.len(), stored[139].1), (141, 140));
    let bytes = fs::read(bench.path()).unwrap();
    let pages = bytes.chunks_exact(PAGE);
    let found = pages.flat_map(wal_heads::find).map(|found| (found.seq, found.namespace, *found.id.as_bytes()));
    let mut found: Vec<_> = found.collect();
    found.sort_unstable();
    assert_eq!(found, stored);
}

#[test]
fn a_log_is_read_in_both_byte_orders() {
    let (bench, mut log) = logged(3);
    let frames = (log.len() - HEADER) / FRAME;
    for order in [0, 1] {
        log[3] = (log[3] & !1) | order;
        seal(&mut log);
        assert_eq!(tail_of(&bench, &log), None, "order {order}");
        for broken in 0..frames {
            let mut bytes = log.clone();
            bytes[HEADER + broken * FRAME + 2_000] ^= 4;
            let tail = tail_of(&bench, &bytes).unwrap().tail;
            assert_eq!((tail.end, tail.frames), (broken as u64, frames as u64), "order {order}");
        }
        let mut bytes = log.clone();
        bytes[3] ^= 1;
        assert_eq!(tail_of(&bench, &bytes).unwrap().tail.end, 0, "the other order has other checksums");
    }
}

#[test]
fn a_frame_without_a_page_is_none_of_the_log() {
    let (bench, log) = logged(3);
    let frames = (log.len() - HEADER) / FRAME;
    let at = |frame: usize| HEADER + frame * FRAME;
    let mut bytes = log.clone();
    bytes[at(0) + 100] ^= 1;
    let whole = tail_of(&bench, &bytes).unwrap().tail;
    assert_eq!((whole.end, whole.frames, whole.commits), (0, frames as u64, 3));
    bytes[at(frames - 1)..at(frames - 1) + 4].fill(0);
    let cut = tail_of(&bench, &bytes).unwrap().tail;
    assert_eq!((cut.end, cut.frames, cut.commits), (0, frames as u64 - 1, 2));
}

#[test]
fn the_checkpoints_of_the_broken_frame_are_not_believed() {
    let (bench, log) = logged(5);
    let head = bench.store.head_id(&thread("a"), &Namespace::root()).unwrap().unwrap();
    let page = |frame: usize| HEADER + frame * FRAME + 24..HEADER + (frame + 1) * FRAME;
    let frames = (log.len() - HEADER) / FRAME;
    let holds = |frame: usize| wal_heads::find(&log[page(frame)]).iter().any(|found| found.id == head);
    let holders: Vec<usize> = (0..frames).filter(|frame| holds(*frame)).collect();
    let [holder] = holders[..] else { panic!("{holders:?}") };
    // The page of the frame is whole, and its checksum is not.
    let broken = |frame: usize| {
        let mut bytes = log.clone();
        bytes[HEADER + frame * FRAME + 16] ^= 1;
        lost(&tail_of(&bench, &bytes).unwrap())
    };
    assert_eq!(broken(holder), []);
    assert_eq!(broken(holder - 1), [head]);
    assert_eq!(broken(0), [head]);
}

/// Returns a leaf whose many entries are one checkpoint, the newest of a namespace.
fn leaf_of_many(namespace: u8, entries: u16) -> Vec<u8> {
    let mut page = vec![13, 0, 0];
    page.extend(entries.to_be_bytes());
    page.extend([0; 3]);
    let cell = 8 + 2 * entries;
    (0..entries).for_each(|_| page.extend(cell.to_be_bytes()));
    page.extend([90, namespace, 17, 0, 1, 44, 0, 1, 1, 1, 1, 6, 0, 0, 0, 0, 0, 44, 4, namespace]);
    page.extend([namespace; 16]);
    assert!(page.len() < PAGE);
    page.resize(PAGE, 0);
    page
}

#[test]
fn so_many_lost_checkpoints_are_kept_and_a_newer_frame_takes_the_place_of_an_older_one() {
    const ENTRIES: u16 = 2_000;
    assert_eq!(wal_heads::find(&leaf_of_many(7, ENTRIES)).len(), 2_000);
    assert_eq!(LOST_CHECKPOINTS_MAX, 10_000);
    let bench = Bench::new();
    let mut log = vec![0; HEADER];
    log[..4].copy_from_slice(&0x377f_0682_u32.to_be_bytes());
    put_pair(&mut log, 16, [3, 4]);
    for page in [9, 1, 1, 2, 3, 4, 5, 6, 7] {
        let mut frame = vec![0; 24];
        frame[3] = page;
        frame[7] = 9;
        put_pair(&mut frame, 8, [3, 4]);
        frame.extend(leaf_of_many(page, ENTRIES));
        log.extend(frame);
    }
    seal(&mut log);
    assert_eq!(tail_of(&bench, &log), None);
    log[HEADER + 16] ^= 1;
    let found = tail_of(&bench, &log).unwrap();
    assert_eq!((found.tail.end, found.tail.frames, found.tail.commits), (0, 9, 9));
    assert_eq!(lost(&found), [1, 2, 3, 4, 5].map(|byte| CheckpointId::from_bytes([byte; 16])));
}

#[test]
fn a_log_that_cannot_be_read_is_an_error_and_not_one_without_a_tail() {
    let bench = Bench::new();
    assert_eq!(wal_tail::find(&bench.folder.path().join("none")).unwrap(), None);
    // A file in the place of a folder, and a folder in the place of a file.
    assert!(wal_tail::find(&bench.path().join("none")).is_err());
    if cfg!(unix) {
        assert!(wal_tail::find(bench.folder.path()).is_err());
    }
}

/// Returns the number of versions in each page of a lineage.
fn page_lengths(bench: &Bench, at: &CheckpointRef, down_to: u64) -> Vec<usize> {
    let mut pages = VersionPages::new(down_to);
    let next = || bench.store.pool.read(|view| pages.read(view, at, None)).unwrap();
    std::iter::from_fn(next).map(|page| page.len()).collect()
}

#[test]
fn a_page_of_versions_ends_after_so_many_checkpoints_and_bytes() {
    let mut bench = Bench::new();
    let mut long = |name: &str, count: u64, bytes: usize| {
        let mut head = None;
        for n in 1..=count {
            head = Some(bench.add(&thread(name), head, vec![value("x", n, plain(&vec![n as u8; bytes]))]));
        }
        at(&thread(name), head.unwrap())
    };
    let page = VERSION_PAGE_MIN as usize;
    let short = long("short", 5 * VERSION_PAGE_MIN as u64 + 4, 1);
    let half = long("half", 5, ITEM_PAGE_BYTES_MAX / 2 + 1);
    let whole = long("whole", 3, ITEM_PAGE_BYTES_MAX);
    let less = long("less", 3, ITEM_PAGE_BYTES_MAX - 1);
    assert_eq!(page_lengths(&bench, &short, 0), [page, 4 * page, 4]);
    assert_eq!(page_lengths(&bench, &short, 4 * VERSION_PAGE_MIN as u64), [page, 4]);
    assert_eq!(page_lengths(&bench, &half, 0), [2, 2, 1]);
    assert_eq!(page_lengths(&bench, &whole, 0), [1, 1, 1]);
    assert_eq!(page_lengths(&bench, &less, 0), [2, 1]);
}

#[test]
fn a_log_that_has_grown_is_copied_in_the_background_and_is_gone_after_the_close() {
    let mut bench = Bench::new();
    let copied = |bench: &Bench| {
        let stats = FileStore::stats(&bench.store).unwrap();
        (stats.wal_frames, stats.wal_copied_frames)
    };
    let mut head = Some(bench.add(&thread("a"), None, vec![value("x", 1, plain(&[1; 5_000]))]));
    std::thread::sleep(std::time::Duration::from_millis(30));
    let (frames, before) = copied(&bench);
    assert!(frames > 0 && before == 0, "{before} of {frames} frames");
    for n in 2..=6 {
        let part = vec![n as u8; WAL_COPY_BYTES as usize / 4];
        head = Some(bench.add(&thread("a"), head, vec![value("x", n, plain(&part))]));
    }
    until("the log is copied", || copied(&bench).1 > 0);
    let path = bench.path();
    let Bench { folder: _folder, store, .. } = bench;
    drop(store);
    assert!(fs::metadata(path.with_file_name("x.db-wal")).map_or(0, |meta| meta.len()) == 0);
}
