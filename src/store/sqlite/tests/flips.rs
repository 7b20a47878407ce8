//! Flipped bytes of indexes and of rows that no index finds: a read gives the same data or an error.

use super::*;
use crate::base::{Encoded, ListRef};
use crate::store::StoreError;
use crate::store::batch::NewTimer;
use crate::store::mark::WriteMark;
use crate::store::query::CheckpointQuery;
use crate::store::side_tables::{KvChange, KvNamespace, SideTables};
use std::fs::{File, OpenOptions as FileOptions};
use std::io::{Seek, SeekFrom, Write};

const PAGE: usize = 4_096;
const THREADS: [&str; 4] = ["a", "b", "c", "d"];
const KEYS: [&str; 3] = ["code", "name", "place"];
const NOW: Timestamp = Timestamp::from_micros(7);

/// The parts of a store that are read.
#[derive(Clone, Copy)]
enum Part {
    Log,
    KeyValues,
    /// The lists of the heads alone, at which older changes than the newest one are not read with their checkpoints.
    Lists,
    Timers,
    /// The timers of each thread, at its head.
    TimersOfThreads,
}

fn subgraph() -> Namespace {
    Namespace::new("node:11111111-1111-1111-1111-111111111111").unwrap()
}

fn null((index, channel): (i32, &str)) -> NewWrite {
    write(index, channel, WriteValue::Null)
}

fn kv_namespaces() -> [KvNamespace; 2] {
    [KvNamespace::new(["users", "7"]).unwrap(), KvNamespace::new(["users", "8"]).unwrap()]
}

/// A closed store: threads with subgraphs, writes that were stored on their own, and key-value memory.
fn stored() -> Bench {
    let mut bench = Bench::new();
    for (name, node) in THREADS.into_iter().zip(["p", "q", "r", "s"]) {
        for namespace in [Namespace::root(), subgraph()] {
            let of = task(1, node);
            let id = bench.ids.checkpoint(Timestamp::default(), 0, None);
            let mut batch = Batch::new(thread(name), namespace.clone(), None);
            batch.checkpoints.push(NewCheckpoint {
                tasks: vec![of.clone()],
                changes: vec![value("x", 1, plain(&[1]))],
                ..checkpoint(id)
            });
            bench.store.commit(&batch).unwrap();
            let mut batch = Batch::new(thread(name), namespace, Some(id));
            batch.writes = vec![
                writes(id, &of, vec![write(0, "y", WriteValue::One(plain(&[9]))), write(1, "z", WriteValue::Null)]),
                writes(id, &task(2, node), [(-3, "waits"), (0, "y"), (1, "z")].map(null).to_vec()),
            ];
            bench.store.commit(&batch).unwrap();
        }
    }
    for namespace in kv_namespaces() {
        for key in KEYS {
            let bytes = key.as_bytes().to_vec();
            bench
                .store
                .commit_kv(&[KvChange::Put {
                    namespace: namespace.clone(),
                    key: key.into(),
                    value: Encoded { bytes, ..Encoded::default() },
                    now: Timestamp::from_micros(5),
                    expires_at: (key == "place").then(|| Timestamp::from_micros(9)),
                }])
                .unwrap();
        }
    }
    bench.store.checkpoint_wal().unwrap();
    bench
}

/// A store of threads with lists that were changed at both ends, on branches and beside a referenced list.
fn lists() -> Bench {
    let mut bench = Bench::new();
    let (plain, forked, beside) = (thread("a"), thread("b"), thread("c"));
    let first = bench.add(&plain, None, vec![list(1, (0..5).map(|n| put(n, "first")).collect())]);
    let edited = bench.add(&plain, Some(first), vec![list(2, vec![put(0, "edited"), put(4, "edited")])]);
    bench.add(&plain, Some(edited), vec![list(3, vec![remove(2), put(5, "appended")])]);
    let mut tip = bench.add_on(&forked, Some(Parent::Fork(at(&plain, first))), vec![list(2, vec![put(3, "forked")])]);
    for (version, position) in [(3, 0), (4, 4), (5, 2)] {
        tip = bench.add(&forked, Some(tip), vec![list(version, vec![put(position, "again")])]);
    }
    let held = bench.add(&beside, None, vec![list(1, (0..5).map(|n| put(n, "held")).collect())]);
    let of = ItemOp::Reference(ListRef::new(Namespace::root(), held, "messages"));
    let reference = ItemChange { position: 0, op: of, task: None };
    let mut shared = bench.add(&beside, Some(held), vec![list(2, vec![reference, put(1, "beside")])]);
    for (version, position) in [(3, 0), (4, 5), (5, 3)] {
        shared = bench.add(&beside, Some(shared), vec![list(version, vec![put(position, "own")])]);
    }
    bench.store.checkpoint_wal().unwrap();
    bench
}

/// A store in which tasks sleep.
fn timers() -> Bench {
    let mut bench = Bench::new();
    for (wake_at, name) in (1..).zip(THREADS) {
        let (id, of) = (bench.ids.checkpoint(Timestamp::default(), 0, None), task(1, "sleeper"));
        let mut batch = Batch::new(thread(name), Namespace::root(), None);
        batch.checkpoints.push(NewCheckpoint { tasks: vec![of.clone()], ..checkpoint(id) });
        bench.store.commit(&batch).unwrap();
        let mut batch = Batch::new(thread(name), Namespace::root(), Some(id));
        let mark = WriteMark::WakesAt(Timestamp::from_micros(wake_at));
        let asleep = write(-3, "waits", WriteValue::One(plain(&[1]))).with_mark(Some(mark));
        batch.writes.push(writes(id, &of, vec![asleep]));
        batch.timers.push(NewTimer::new(id, of.id, Some(Timestamp::from_micros(wake_at))));
        bench.store.commit(&batch).unwrap();
    }
    bench.store.checkpoint_wal().unwrap();
    bench
}

fn made(part: Part) -> Bench {
    match part {
        Part::Log | Part::KeyValues => stored(),
        Part::Lists => lists(),
        Part::Timers | Part::TimersOfThreads => timers(),
    }
}

/// Reads a part of a store, by listings and by the ids that it has.
fn read(path: &Path, part: Part) -> Result<String, StoreError> {
    let store = SqliteBackend::open(path, &options().read_only(true))?;
    let mut view = String::new();
    match part {
        Part::Log => {
            for name in THREADS {
                let thread = thread(name);
                view += &format!("{:?}", store.namespaces(&thread)?);
                for namespace in [Namespace::root(), subgraph()] {
                    view += &format!("{:?}", store.head_with_writes(&thread, &namespace)?);
                    for record in store.checkpoints(&CheckpointQuery::new(thread.clone(), namespace))? {
                        view += &format!("{:?}{:?}", store.state(&record.point)?, store.writes(&record.point)?);
                        view += &format!("{:?}", store.checkpoint(&record.point)?);
                    }
                }
            }
            view += &format!("{:?}", store.threads(None, 10)?);
        }
        Part::KeyValues => {
            for namespace in kv_namespaces() {
                for key in KEYS {
                    view += &format!("{:?}", store.kv_entry(&namespace, key, NOW)?);
                }
            }
            for under in [None, Some(KvNamespace::new(["users"]).unwrap())] {
                store.kv_entries(under.as_ref(), NOW, &mut |record| {
                    view += &format!("{record:?}");
                    Ok(true)
                })?;
                view += &format!("{:?}", store.kv_namespaces(under.as_ref(), NOW)?);
            }
        }
        Part::Lists => {
            for name in ["a", "b", "c"] {
                let head = store.head_id(&thread(name), &Namespace::root())?.map(|id| at(&thread(name), id));
                let ranges = [ItemRange::All, ItemRange::Tail(2), ItemRange::Tail(40), ItemRange::Positions(0, 1)];
                for range in ranges.into_iter().chain([ItemRange::Positions(3, 4), ItemRange::Positions(4, 9)]) {
                    store.items(head.as_ref().unwrap(), "messages", range, &mut |row| {
                        view += &format!("{row:?}");
                        Ok(())
                    })?;
                }
            }
        }
        Part::Timers => {
            view += &format!("{:?}", store.timers(None, 9)?);
            view += &format!("{:?}", store.timers(Some(Timestamp::from_micros(2)), 9)?);
        }
        Part::TimersOfThreads => {
            for name in THREADS {
                view += &format!("{:?}", store.timers_of(&thread(name), &Namespace::root())?);
            }
        }
    }
    Ok(view)
}

/// Returns the first byte of the first page of a table or index.
fn begin_of(path: &Path, object: &str) -> usize {
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let root: i64 = raw(path).query_row(sql, [object], |row| row.get(0)).unwrap();
    (root as usize - 1) * PAGE
}

/// Writes one byte of a file.
fn set_byte(file: &mut File, at: usize, byte: u8) {
    file.seek(SeekFrom::Start(at as u64)).unwrap();
    file.write_all(&[byte]).unwrap();
}

/// Flips the bits of two masks in the header and in a share of the other used bytes of the page of a table or of an
/// index, hides its last entry, and reads the store each time. `annals-sim flips` changes every byte.
fn flip(object: &str, part: Part) {
    let bench = made(part);
    let path = bench.path();
    let copy = bench.folder.path().join("copy.db");
    std::fs::copy(&path, &copy).unwrap();
    let begin = begin_of(&path, object);
    let content = std::fs::read(&copy).unwrap();
    let page = &content[begin..begin + PAGE];
    assert!(matches!(page[0], 10 | 13), "{object} has one page");
    let number = |at: usize| usize::from(u16::from_be_bytes([page[at], page[at + 1]]));
    let used = (0..8).chain((8..8 + 2 * number(3)).chain(number(5)..PAGE).step_by(cases(37, 5)));
    let sound = read(&copy, part).unwrap();
    let mut file = FileOptions::new().write(true).open(&copy).unwrap();
    let (mut wrong, mut errors) = (Vec::new(), 0);
    let mut changed_to = |at: usize, byte: u8| {
        set_byte(&mut file, begin + at, byte);
        match read(&copy, part) {
            Ok(view) if view != sound => wrong.push(format!("byte {at}: {byte:#04x}")),
            Ok(_) => {}
            Err(_) => errors += 1,
        }
        set_byte(&mut file, begin + at, page[at]);
    };
    for at in used {
        changed_to(at, page[at] ^ 0x01);
        changed_to(at, page[at] ^ 0x80);
    }
    // One entry less: the last one of the page has no neighbor behind it.
    changed_to(4, page[4] - 1);
    assert_eq!(wrong, Vec::<String>::new(), "{object}");
    assert!(errors > 0, "{object} is read");
}

#[test]
fn a_flip_in_the_index_of_threads_hides_none() {
    flip("sqlite_autoindex_thread_1", Part::Log);
}

#[test]
fn a_flip_in_the_index_of_namespaces_hides_none() {
    flip("sqlite_autoindex_namespace_1", Part::Log);
}

/// A number of entries that is too small hides the last one, without a neighbor that differs from its row.
#[test]
fn the_last_entry_of_an_index_is_not_hidden() {
    let namespaces = ("sqlite_autoindex_namespace_1", Part::Log);
    let kv_namespaces_index = ("sqlite_autoindex_kv_namespace_1", Part::KeyValues);
    for (index, part) in [namespaces, kv_namespaces_index, ("timer_wake", Part::Timers)] {
        let bench = made(part);
        let path = bench.path();
        drop(bench.store);
        let at = begin_of(&path, index) + 4;
        let entries = std::fs::read(&path).unwrap()[at];
        set_byte(&mut FileOptions::new().write(true).open(&path).unwrap(), at, entries - 1);
        let store = SqliteBackend::open(&path, &options().read_only(true)).unwrap();
        let refused = |result: Result<(), StoreError>| match result {
            Err(StoreError::Corrupt { place, .. }) => assert_eq!(place, format!("index {index}")),
            other => panic!("{index}: {other:?}"),
        };
        match part {
            Part::Log => {
                refused(store.namespaces(&thread("d")).map(drop));
                refused(store.head(&thread("d"), &subgraph()).map(drop));
            }
            Part::KeyValues => {
                let last = &kv_namespaces()[1];
                refused(store.kv_namespaces(None, NOW).map(drop));
                refused(store.kv_entry(last, KEYS[0], NOW).map(drop));
                refused(store.kv_entries(Some(last), NOW, &mut |_| Ok(true)));
            }
            Part::Timers => refused(store.timers(None, 9).map(drop)),
            Part::Lists | Part::TimersOfThreads => panic!("no index is used"),
        }
    }
}

#[test]
fn a_flip_in_the_index_of_checkpoints_hides_none() {
    flip("checkpoint_id", Part::Log);
}

#[test]
fn a_flip_in_the_rows_of_writes_hides_none() {
    flip("write", Part::Log);
}

#[test]
fn a_flip_in_the_key_value_memory_hides_no_entry() {
    for object in ["kv", "kv_key", "kv_order", "kv_namespace", "sqlite_autoindex_kv_namespace_1"] {
        flip(object, Part::KeyValues);
    }
}

#[test]
fn a_flip_in_the_items_of_lists_shows_no_older_one() {
    flip("item", Part::Lists);
}

#[test]
fn a_flip_in_the_timers_hides_none() {
    flip("timer", Part::Timers);
    flip("timer_wake", Part::Timers);
    flip("timer", Part::TimersOfThreads);
}
