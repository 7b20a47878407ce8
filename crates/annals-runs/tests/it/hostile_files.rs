//! Files of strangers: each is opened, and every reading call of the API is made. The result is a typed error or right
//! data, within bounded time and memory, and never a panic.

mod reads;

use std::fmt::Write as _;
use std::fs::{self, OpenOptions as FileOptions};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use annals::base::{RunId, TaskId, Timestamp};
use annals::history::{Damaged, ExportOptions, MessageQuery, Snapshot, diff};
use annals::prelude::*;
use annals::rusqlite::Connection;
use annals::rusqlite::config::DbConfig;
use annals::store::batch::{
    Batch, Change, ChangeValue, Data, NewCheckpoint, NewTimer, NewWrite, NewWrites, Parent, Payload, WriteValue,
};
use annals::store::kv::KvNamespaceQuery;
use annals::store::log::{CheckpointQuery, LogExt, RecordQuery};
use annals::store::record::{TaskKind, TaskRecord};
use annals::store::{CacheKey, ItemRange, KvQuery, OpenOptions, SearchOptions, Source, StoreError};

use crate::cases;

/// Longest time for all calls on one file, as [`Spent`] counts it, in times of those on the sound file.
const SLOW_TIMES: u32 = 50;
/// Most memory of the process, in KiB.
const MEMORY_KIB: u64 = 1 << 20;

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
    #[channel(append)]
    log: List<String>,
    #[channel(last)]
    topic: String,
}

/// Returns the bytes of a sound store with rows in every table of the log and beside it.
fn sound() -> &'static [u8] {
    static SOUND: OnceLock<Vec<u8>> = OnceLock::new();
    SOUND.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sound.db");
        let store = Store::open_with(&path, OpenOptions::new().id_seed(5)).unwrap();
        let thread = store.thread("a").unwrap();
        for n in 0..6 {
            let messages = [Message::human(format!("question {n}")), Message::ai("answer ".repeat(n * 80 + 1))];
            let update = Chat::update().messages(messages).log([format!("line {n}")]).topic("boats ".repeat(n + 1));
            thread.update(update).unwrap();
        }
        thread.delete_items("log", [1]).unwrap();
        let fork = thread.history().unwrap().nth(2).unwrap().unwrap().fork_to("fork").unwrap();
        fork.update(Chat::update().log(["forked".to_owned()]).topic("trains".to_owned())).unwrap();
        task_with_writes(&store);
        thread.facts().title("A trip").project("home").label("x").pinned(true).save().unwrap();
        thread.name_branch("named").unwrap();
        fork.rewind_to(&fork.head().unwrap().unwrap().parent().unwrap().unwrap()).unwrap();
        drop(store.thread("tasks").unwrap().lease(Duration::from_secs(1)).unwrap());
        store.enable_search(SearchOptions::new()).unwrap();
        let kv = store.kv();
        kv.put(["users", "7"], "name", serde_json::json!({ "first": "Ada" })).unwrap();
        drop((store, thread, fork, kv));
        fs::read(&path).unwrap()
    })
}

/// Commits a checkpoint with a task that sleeps and has written.
fn task_with_writes(store: &Store) {
    let thread = store.thread("tasks").unwrap();
    let kind = TaskKind::Pull { triggers: vec!["branch:to:node".into()] };
    let task = TaskRecord::new(TaskId::from_bytes([7; 16]), "node", kind);
    let id = store.mint_checkpoint(0, None);
    let mut checkpoint = NewCheckpoint::new(id, None, 0, Source::Loop, store.now());
    checkpoint.tasks = vec![task.clone()];
    checkpoint.run = Some(RunId::from_key(thread.id(), "key"));
    checkpoint.metadata = Some("{\"a\": 1}".into());
    let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), None);
    batch.checkpoints.push(checkpoint);
    store.commit(&batch).unwrap();
    let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), Some(id));
    let mut writes = NewWrites::new(id, task.id, task.path());
    writes.writes.push(NewWrite::new(0, "topic", WriteValue::One(Payload::new(vec![0xa1, b'x']))));
    writes.writes.push(NewWrite::new(-3, "__interrupt__", WriteValue::One(Payload::new(vec![0x90]))));
    batch.writes.push(writes);
    batch.timers.push(NewTimer::new(id, task.id, Some(Timestamp::from_micros(9))));
    store.commit(&batch).unwrap();
}

/// A folder with a copy of the sound store.
struct Copy {
    folder: tempfile::TempDir,
}

impl Copy {
    fn new() -> Self {
        let copy = Self { folder: tempfile::tempdir().unwrap() };
        fs::write(copy.path(), sound()).unwrap();
        copy
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store.db")
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        self.folder.path().join(format!("store.db{suffix}"))
    }

    /// Runs statements without triggers, and with a schema that takes any type.
    fn harm(&self, statements: &str) -> annals::rusqlite::Result<()> {
        let path = self.path();
        let conn = open_raw(&path);
        let tables = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND sql IS NOT NULL";
        let schema = pairs(&conn, tables);
        conn.execute_batch(
            "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(replace(replace(sql, 'STRICT, ', ''), \
             ') STRICT', ')'), ' NOT NULL', '') WHERE type = 'table'",
        )?;
        drop(conn);
        let conn = open_raw(&path);
        let harmed = conn.execute_batch(statements);
        conn.execute_batch("PRAGMA writable_schema = ON")?;
        for (name, sql) in &schema {
            conn.execute("UPDATE sqlite_schema SET sql = ?2 WHERE name = ?1", [name, sql])?;
        }
        harmed
    }
}

/// Opens a file without triggers and without the guards of a schema.
fn open_raw(path: &Path) -> Connection {
    let conn = Connection::open(path).unwrap();
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).unwrap();
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, false).unwrap();
    conn.execute_batch("PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF").unwrap();
    conn
}

/// Returns the two columns of a query.
fn pairs(conn: &Connection, query: &str) -> Vec<(String, String)> {
    let mut statement = conn.prepare(query).unwrap();
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
}

/// The results of reading everything: data, and errors by their codes.
#[derive(Default, PartialEq, Debug)]
struct View {
    data: Vec<String>,
    errors: Vec<String>,
}

impl View {
    /// Notes a result; an error must be one of damage or of a file that is refused.
    fn note<T: std::fmt::Debug>(&mut self, call: &str, result: Result<T, StoreError>) -> Option<T> {
        match result {
            Ok(value) => {
                let mut text = format!("{call}: ");
                write!(text, "{value:?}").unwrap();
                self.data.push(text.chars().take(2_000).collect());
                Some(value)
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.len() < 10_000, "{call}: an error of {} bytes", text.len());
                let is_typed = matches!(
                    error,
                    StoreError::Corrupt { .. }
                        | StoreError::Codec(_)
                        | StoreError::Id(_)
                        | StoreError::NotAStore { .. }
                        | StoreError::NewerFormat { .. }
                        | StoreError::Open { .. }
                        | StoreError::SchemaChanged { .. }
                        | StoreError::ForeignLog { .. }
                        | StoreError::LogMissing { .. }
                        | StoreError::Read { .. }
                        | StoreError::Ambiguous { .. }
                        | StoreError::CheckpointNotFound { .. }
                        | StoreError::ThreadNotFound { .. }
                        | StoreError::BranchNotFound { .. }
                );
                assert!(is_typed, "{call}: {error:?}");
                self.errors.push(format!("{call}: {text}"));
                None
            }
        }
    }
}

/// Opens a file and makes every reading call; returns the view, and whether the check found a problem.
fn read_everything(path: &Path, read_only: bool) -> (View, bool) {
    let mut view = View::default();
    let options = OpenOptions::new().read_only(read_only).create(false).head_cache_bytes(0);
    let Some(store) = view.note("open", Store::open_with(path, options).map(|_| ())).and_then(|()| {
        let options = OpenOptions::new().read_only(read_only).create(false).head_cache_bytes(0);
        Store::open_with(path, options).ok()
    }) else {
        return (view, true);
    };
    let threads = view.note("threads", store.threads()).unwrap_or_default();
    for thread in threads.iter().take(20) {
        read_thread(&mut view, &store, thread.id.as_str());
    }
    view.note("timers", store.timers(None));
    view.note("next timer", store.next_timer());
    let at = Timestamp::from_micros(0);
    let beside = store.backend().side_tables().unwrap();
    view.note("cached", beside.cached(&[CacheKey::new(["w"], "k")], at));
    view.note("namespaces", beside.kv_namespaces(None, at));
    view.note("kv get", store.kv().get(["users", "7"], "name"));
    view.note("kv search", store.kv().search(KvQuery::all()));
    view.note("kv list", store.kv().list_namespaces(KvNamespaceQuery::new()));
    reads::of_store(&mut view, &store);
    _ = store.stats();
    let checked = store.check().map(|report| report.problems.is_empty());
    let start = "1-0-0-0-0-0000000000000000".parse().unwrap();
    assert!(store.check_since(&start).is_ok_and(|report| report.problems.len() <= 100) || checked.is_err());
    (view, !matches!(checked, Ok(true)))
}

fn read_thread(view: &mut View, store: &Store, name: &str) {
    let Ok(thread) = store.thread(name) else { return };
    let backend = store.backend();
    reads::of_thread(view, &thread);
    view.note("size", backend.thread_size(thread.id()));
    view.note("namespaces", backend.namespaces(thread.id()));
    view.note("prefix", backend.records(&RecordQuery::Prefix { thread: thread.id(), prefix: "1", limit: 50 }));
    view.note("runs", backend.last_of_run(thread.id(), thread.namespace(), &RunId::from_key(thread.id(), "key")));
    view.note("listing", backend.checkpoints(&CheckpointQuery::new(thread.id().clone(), thread.namespace().clone())));
    view.note("state", thread.with_state::<Chat>().state().map(|_| ()).map_err(|_| corrupt()));
    let Some(history) = view.note("history", thread.history().map(|history| history.take(1_000).collect::<Vec<_>>()))
    else {
        return;
    };
    assert!(history.len() < 1_000, "a history that does not end");
    let mut before: Option<Snapshot> = None;
    for snapshot in history.into_iter().take(12) {
        let Some(at) = view.note("snapshot", snapshot) else { continue };
        read_snapshot(view, &at);
        if let Some(before) = before.replace(at.clone()) {
            view.note("diff", diff(&at, &before).map(|_| ()));
        }
    }
}

/// Returns the error that stands for any error of another type.
fn corrupt() -> StoreError {
    StoreError::Corrupt { place: "state".into(), reason: "an error of the state".into() }
}

fn read_snapshot(view: &mut View, at: &Snapshot) {
    reads::of_snapshot(view, at);
    view.note("values", at.values());
    view.note("blame", at.blames());
    view.note("writes", at.writes());
    view.note("parent", at.parent().map(|parent| parent.is_some()));
    let channels = view.note("channels", at.channels()).unwrap_or_default();
    for channel in channels.iter().map(|channel| &**channel).chain(["messages", "log"]).take(8) {
        view.note("get", at.get(channel));
        view.note("len", at.len(channel));
        view.note("reference", at.store().backend().list_reference(at.point(), channel));
        for range in [ItemRange::All, ItemRange::Tail(3), ItemRange::Positions(1, 9)] {
            view.note("items", at.items(channel, range));
            view.note("past damage", at.read_items(channel, range, Damaged::Placeholder).map(|items| items.len()));
        }
        view.note("messages", at.messages(channel, ItemRange::All));
        view.note("find", at.find_messages(channel, &MessageQuery::new().kind("ai")));
        view.note("usage", at.token_usage(channel));
        for damaged in [Damaged::Error, Damaged::Placeholder] {
            let options = ExportOptions::new().damaged(damaged);
            _ = at.export_messages(channel, &options, &mut std::io::sink());
        }
    }
}

/// Reads a file with each kind of handle, and returns the failures. Data that differs from the sound store's must be a
/// finding of the check.
fn probe(name: &str, path: &Path) -> Vec<String> {
    let mut failures = Vec::new();
    for read_only in [true, false] {
        let began = Spent::now();
        let read = catch_unwind(AssertUnwindSafe(|| read_everything(path, read_only)));
        let took = began.elapsed();
        let right = expected();
        match read {
            Err(_) => failures.push(format!("{name}: a panic")),
            Ok((view, found)) if !found && view != *right => {
                failures.push(format!("{name}: the check finds nothing, and {}", difference(&view, right)));
            }
            Ok(_) if took > slow() => failures.push(format!("{name}: {took:?}")),
            Ok(_) => {}
        }
    }
    // The library reads no view; another program does once it has opened the file as a store.
    if Store::open_with(path, OpenOptions::new().read_only(true)).is_ok() {
        failures.extend(reads::views(path).into_iter().map(|view| format!("{name}: the view {view} does not end")));
    }
    failures
}

/// Returns the view of the sound store.
fn expected() -> &'static View {
    static EXPECTED: OnceLock<View> = OnceLock::new();
    EXPECTED.get_or_init(|| {
        let copy = Copy::new();
        let (view, found) = read_everything(&copy.path(), true);
        assert!(!found && view.errors.is_empty(), "{:?}", view.errors);
        assert!(view.data.len() > 300, "{}", view.data.len());
        view
    })
}

/// Returns the longest time for all calls on one file: a multiple of the time for the sound file on this machine.
fn slow() -> Duration {
    static SLOW: OnceLock<Duration> = OnceLock::new();
    *SLOW.get_or_init(|| {
        let copy = Copy::new();
        let began = Spent::now();
        _ = read_everything(&copy.path(), true);
        // The clock of a processor may be coarse.
        began.elapsed().max(Duration::from_millis(100)) * SLOW_TIMES
    })
}

/// Fails a test with all that went wrong.
fn none(failures: Vec<String>) {
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(peak_kib() < MEMORY_KIB, "{} KiB", peak_kib());
}

fn difference(found: &View, right: &View) -> String {
    let differs = found.data.iter().zip(&right.data).find(|(found, right)| found != right);
    format!("{differs:?}, errors {:?}", found.errors.first())
}

/// A time to measure from: that for which this thread was on a processor, so that a busy machine is not mistaken for a
/// slow call. A system that does not tell it counts all time.
struct Spent {
    wall: Instant,
    on_cpu: Option<Duration>,
}

impl Spent {
    fn now() -> Self {
        let on_cpu = fs::read_to_string("/proc/thread-self/schedstat").ok();
        let on_cpu = on_cpu.and_then(|stat| stat.split_whitespace().next()?.parse().ok()).map(Duration::from_nanos);
        Self { wall: Instant::now(), on_cpu }
    }

    fn elapsed(&self) -> Duration {
        let now = Self::now();
        match (self.on_cpu, now.on_cpu) {
            (Some(began), Some(now)) => now.saturating_sub(began),
            _ => now.wall - self.wall,
        }
    }
}

/// Memory of the process at its peak, in KiB.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn a_sound_file_is_read_as_it_is() {
    let mut failures = Vec::new();
    let copy = Copy::new();
    failures.extend(probe("sound", &copy.path()));
    copy.harm("SELECT 1").unwrap();
    failures.extend(probe("sound, after its schema was changed and restored", &copy.path()));
    none(failures);
}

#[test]
fn any_value_in_any_column_is_an_error_or_right_data() {
    let copy = Copy::new();
    let conn = open_raw(&copy.path());
    let columns = pairs(
        &conn,
        "SELECT s.name, c.name FROM sqlite_schema s JOIN pragma_table_info(s.name) c WHERE s.type = 'table' \
         AND s.name NOT LIKE 'sqlite%' ORDER BY s.name, c.cid",
    );
    drop(conn);
    assert!(columns.len() > 70, "{}", columns.len());
    let step = cases(30, 1) as usize;
    let values = [
        "NULL",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
        "1e300",
        "'text'",
        "X'FFFFFFFFFFFFFFFFFF7F'",
        "X''",
        "zeroblob(300000)",
    ];
    // Two of the values for each column, so that every table meets all of them.
    let harms: Vec<_> = columns
        .iter()
        .enumerate()
        .step_by(step)
        .flat_map(|(at, column)| values.iter().cycle().skip(at * 2).take(2).map(move |value| (column, value)))
        .collect();
    let changed = AtomicU32::new(0);
    let failures = std::thread::scope(|scope| {
        let changed = &changed;
        let halves = harms.chunks(harms.len().div_ceil(2)).map(|half| {
            scope.spawn(move || {
                let mut failures = Vec::new();
                for ((table, column), value) in half {
                    let copy = Copy::new();
                    // Rows that cannot take the value leave the file as it is.
                    let harm = copy.harm(&format!("UPDATE OR IGNORE \"{table}\" SET \"{column}\" = {value}"));
                    changed.fetch_add(u32::from(harm.is_ok()), Ordering::Relaxed);
                    failures.extend(probe(&format!("{table}.{column} = {value}"), &copy.path()));
                }
                failures
            })
        });
        let halves: Vec<_> = halves.collect();
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect::<Vec<_>>()
    });
    let changed = changed.into_inner();
    assert!(changed > 100 / step as u32, "{changed}");
    none(failures);
}

/// Returns the invariants that the check of a file cites.
fn invariants(path: &Path) -> Vec<String> {
    let store = Store::open_with(path, OpenOptions::new().read_only(true)).unwrap();
    let mut found: Vec<String> = store.check().unwrap().problems.iter().map(|f| f.invariant.to_string()).collect();
    found.sort();
    found.dedup();
    found
}

/// Statements that make cycles and huge counts, each with invariants that the check cites then.
const CYCLES: [(&str, &str); 38] = [
    ("UPDATE checkpoint SET parent = 0", "I7"),
    ("UPDATE checkpoint SET parent = seq - (SELECT max(seq) FROM checkpoint)", "I7"),
    ("UPDATE branch SET parent = id, upto = 5", "I5"),
    ("UPDATE branch SET parent = 3 - id, upto = 0 WHERE id < 3", "I5"),
    ("UPDATE branch SET depth = 9223372036854775807", "I5"),
    ("UPDATE item SET op = 3, value = CAST(char(1, 2) AS BLOB) WHERE slot < 0", ""),
    ("UPDATE item SET op = 2, value = X'00FFFFFFFFFFFFFFFF7F00' WHERE slot < 0", ""),
    ("UPDATE item SET op = 3, value = CAST(char(9, 2) AS BLOB)", "I8"),
    ("UPDATE item SET slot = 9223372036854775807 - slot", "I10"),
    ("UPDATE item SET ordinal = 9223372036854775807 - ordinal", "I8 I10"),
    ("UPDATE version SET value = X'FFFFFFFFFFFFFFFF7F00' WHERE kind = 2", "I8"),
    ("UPDATE version SET value = X'FFFFFFFFFFFFFFFF7F0002' WHERE kind = 2", "I10"),
    ("UPDATE version SET ordinal = ordinal * 64 WHERE ordinal > 0", "I8 I20"),
    ("UPDATE version SET kind = 4, key = 0, value = X'01010101' WHERE kind = 1", "I9"),
    ("UPDATE checkpoint SET ordinal = ordinal * 1000000000000", "I7"),
    ("UPDATE checkpoint SET tasks = X'FFFFFF' || zeroblob(100)", "I1 I12"),
    ("UPDATE checkpoint SET tasks = CAST(X'FFFFFF' AS BLOB)", "I12 I20"),
    ("UPDATE checkpoint SET parents = CAST(zeroblob(16) || X'FFFFFFFFFFFFFFFF7F' AS BLOB)", "I12 I20"),
    ("UPDATE write SET part = 9223372036854775807 - part", "I13"),
    ("UPDATE write SET sum = CAST(zeroblob(16) || X'FFFFFFFFFFFFFFFF7F' AS BLOB)", "I13"),
    ("UPDATE name SET text = hex(zeroblob(300000)) || id", "I12 I20"),
    ("UPDATE name SET kind = 1 - kind WHERE kind < 2", "I12 I20"),
    ("UPDATE thread SET public_id = hex(zeroblob(3000)) || id", "I12 I15 I20"),
    ("UPDATE thread SET public_id = char(10, 27, 91) || id", "I12 I15 I20"),
    ("UPDATE namespace SET path = 'a:' || path || id", "I12 I15 I20"),
    ("UPDATE payload SET data = (SELECT max(id) FROM blob)", "I4"),
    ("UPDATE payload SET form = 3", "I4"),
    ("UPDATE blob SET data = zeroblob(600000) WHERE id = 1", "I3"),
    ("INSERT INTO tombstone SELECT id, 0 FROM thread", "I17"),
    (
        "INSERT INTO high_water VALUES (0, 9223372036854775807, 9223372036854775807, 9223372036854775807, \
         9223372036854775807, 9223372036854775807, 9223372036854775807, 9223372036854775807, 0, 9223372036854775807)",
        "",
    ),
    ("DELETE FROM branch", "I17"),
    ("DELETE FROM name", "I17"),
    ("DELETE FROM namespace", "I17"),
    ("DELETE FROM payload", "I17"),
    ("DELETE FROM version", "I8 I20"),
    ("DELETE FROM checkpoint", "I17"),
    ("DELETE FROM item", "I10 I17"),
    (
        "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 20000) \
         INSERT INTO thread (id, public_id, created_at) SELECT 1000 + n, 'x' || n, 0 FROM n",
        "I1",
    ),
];

#[test]
fn cycles_and_huge_counts_end() {
    let mut failures = Vec::new();
    for (harm, cited) in CYCLES.into_iter().step_by(cases(4, 1) as usize) {
        let copy = Copy::new();
        copy.harm(harm).unwrap_or_else(|error| panic!("{harm}: {error}"));
        failures.extend(probe(harm, &copy.path()));
        let found = invariants(&copy.path());
        // Without a name, the statement changes nothing that counts.
        let is_cited = |name: &str| found.iter().any(|found| found == name);
        let is_right = if cited.is_empty() { found.is_empty() } else { cited.split(' ').all(is_cited) };
        if !is_right {
            failures.push(format!("{harm}: the check cites {found:?}, not {cited}"));
        }
    }
    none(failures);
}

#[test]
fn objects_of_the_schema_are_refused() {
    let mut failures = Vec::new();
    for harm in [
        "CREATE TRIGGER evil AFTER INSERT ON payload BEGIN DELETE FROM thread; END",
        "CREATE INDEX evil ON payload (kind)",
        "CREATE VIEW evil AS SELECT * FROM payload",
        "CREATE VIRTUAL TABLE evil USING fts5(x)",
        "CREATE TABLE pragma_evil (x)",
        "DROP TRIGGER checkpoint_no_update",
        "DROP VIEW v_threads; CREATE VIEW v_threads AS WITH RECURSIVE r (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) \
         SELECT max(x) FROM r",
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = 'CREATE TABLE thread (id, public_id, created_at)' \
         WHERE name = 'thread'",
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET rootpage = 3 WHERE name = 'thread'",
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = sql || char(0) WHERE name = 'item'",
        "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema",
        "PRAGMA user_version = 99",
        "PRAGMA user_version = -1",
        "PRAGMA application_id = 1",
        "ALTER TABLE payload ADD COLUMN evil ANY",
        "ALTER TABLE kv RENAME COLUMN key TO kee",
    ] {
        let copy = Copy::new();
        open_raw(&copy.path()).execute_batch(harm).unwrap_or_else(|error| panic!("{harm}: {error}"));
        failures.extend(probe(harm, &copy.path()));
        let read_only = OpenOptions::new().read_only(true);
        let refused = Store::open_with(copy.path(), read_only).map(|store| store.check().map(|report| report.problems));
        assert!(refused.is_err() || !matches!(refused, Ok(Ok(problems)) if problems.is_empty()), "{harm}");
    }
    none(failures);
}

#[test]
fn files_beside_the_store_are_refused_or_harmless() {
    let mut failures = Vec::new();
    let other = tempfile::tempdir().unwrap();
    let other = other.path().join("other.db");
    let store = Store::open(&other).unwrap();
    store.thread("other").unwrap().update(Chat::update().topic("other".to_owned())).unwrap();
    let other_wal = fs::read(other.with_extension("db-wal")).unwrap();
    let noise: Vec<u8> = (0..40_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut journal = vec![0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
    journal.extend_from_slice(&noise);
    let contents: [&[u8]; 6] = [&[], b"x", &noise, &other_wal, sound(), &journal];
    let step = cases(2, 1) as usize;
    for (kind, suffix) in ["-wal", "-shm", "-journal"].into_iter().enumerate() {
        // In a share each file still stands beside the store under one name or another.
        for (at, content) in contents.iter().enumerate().skip(kind % step).step_by(step) {
            let copy = Copy::new();
            fs::write(copy.beside(suffix), content).unwrap();
            restrict(&copy.beside(suffix));
            failures.extend(probe(&format!("{suffix} {at}"), &copy.path()));
        }
        let copy = Copy::new();
        fs::create_dir(copy.beside(suffix)).unwrap();
        failures.extend(probe(&format!("{suffix} is a folder"), &copy.path()));
    }
    none(failures);
}

/// Lets only the owner of a file use it, as SQLite does.
fn restrict(path: &Path) {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

#[test]
fn truncated_and_sparse_files_are_errors() {
    let mut failures = Vec::new();
    let bytes = sound();
    let pages = bytes.len() / 4_096;
    let lengths = (0..pages).step_by(cases(5, 1) as usize).map(|page| page * 4_096).chain([
        1,
        16,
        99,
        100,
        4_095,
        4_097,
        bytes.len() - 1,
    ]);
    for length in lengths {
        let copy = Copy::new();
        fs::write(copy.path(), &bytes[..length]).unwrap();
        failures.extend(probe(&format!("{length} bytes"), &copy.path()));
    }
    for length in [bytes.len() as u64 + 4_096, 1 << 32, 1 << 40] {
        let copy = Copy::new();
        let file = FileOptions::new().write(true).open(copy.path()).unwrap();
        // A medium without sparse files, or with a limit, refuses the length.
        if file.set_len(length).is_err() {
            continue;
        }
        failures.extend(probe(&format!("sparse, {length} bytes"), &copy.path()));
        // The header counts as many pages.
        let pages = u32::try_from(length / 4_096).unwrap_or(u32::MAX - 1);
        file.write_all_at(&pages.to_be_bytes(), 28).unwrap();
        let began = Spent::now();
        let opened = Store::open_with(copy.path(), OpenOptions::new().read_only(true));
        let checked = opened.and_then(|store| store.check()).map(|report| report.checkpoints);
        let took = began.elapsed();
        assert!(took < slow(), "{length} bytes with as many pages: {took:?}, {checked:?}");
    }
    none(failures);
}

#[test]
fn values_nested_deeply_are_errors_of_their_own() {
    for bytes in [vec![0x91; 200_000], vec![0xdd; 100], [&[0xdf, 0xff, 0xff, 0xff, 0xff][..], &[0xc0; 50]].concat()] {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("deep.db")).unwrap();
        let thread = store.thread("a").unwrap();
        let head = thread.update(Chat::update().topic("boats".to_owned()).log(["one".to_owned()])).unwrap();
        let id = store.mint_checkpoint(1, Some(&head));
        let mut checkpoint = NewCheckpoint::new(id, Some(Parent::Local(head)), 1, Source::Update, store.now());
        checkpoint.changes = vec![Change::new("topic", 9, ChangeValue::Value(Data::New(Payload::new(bytes))))];
        let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), Some(head));
        batch.checkpoints.push(checkpoint);
        store.commit(&batch).unwrap();
        let at = thread.head().unwrap().unwrap();
        assert!(matches!(at.values(), Err(StoreError::Codec(_))));
        assert_eq!(at.items("log", ItemRange::All).unwrap().len(), 1);
        let mut view = View::default();
        read_thread(&mut view, &store, "a");
    }
}
