//! Connections that are cut and servers that are killed under commits: nothing that was acknowledged is lost, nothing
//! is stored twice.

use std::sync::Mutex;
use std::sync::mpsc::Sender;

use annals::base::{CheckpointId, Clock, IdSource, Namespace, SystemClock, ThreadId};
use annals::store::batch::{Batch, Change, ChangeValue, Data, ItemChange, ItemOp, NewCheckpoint, Parent, Payload};
use annals::store::log::{Log, LogExt, LogPosition};
use annals::store::{ItemRange, Source, StoreError};
use annals_postgres::PostgresBackend;

use super::Test;
use super::proxy::FailoverProxy;
use super::server::Server;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("faults::cut_connections".into(), Box::new(|server| under_faults(server, Server::cut))),
        ("faults::killed_backends".into(), Box::new(|server| under_faults(server, Server::kill_backend))),
        ("faults::killed_server".into(), Box::new(|server| under_faults(server, Server::restart))),
        ("faults::failover".into(), Box::new(failover)),
        ("faults::statement_timeout".into(), Box::new(statement_timeout)),
        ("faults::full_disk".into(), Box::new(full_disk)),
        ("faults::restored_dump".into(), Box::new(restored_dump)),
        ("faults::hostile_texts".into(), Box::new(hostile_texts)),
    ]
}

const WRITERS: u64 = 4;
/// Commits of all writers for each fault.
const COMMITS_A_FAULT: u64 = 12;

/// The number of faults of each of three kinds: 30 in all, or a third of what `ANNALS_POSTGRES_KILLS` says.
fn kills() -> u64 {
    super::server::variable("ANNALS_POSTGRES_KILLS").and_then(|kills| kills.parse().ok()).unwrap_or(30_u64).div_ceil(3)
}

/// Returns the batch that appends one item, on the head.
fn append(ids: &mut IdSource, thread: &ThreadId, head: Option<CheckpointId>, n: u64) -> Batch {
    let id = ids.checkpoint(SystemClock.now(), 0, head.as_ref());
    let mut new = NewCheckpoint::new(id, head.map(Parent::Local), 0, Source::Loop, SystemClock.now());
    let put = ItemOp::Put(Data::New(Payload::new(n.to_string().into_bytes())));
    new.changes.push(Change::new("list", n, ChangeValue::Items(vec![ItemChange::new(n, put, None)])));
    let mut batch = Batch::new(thread.clone(), Namespace::root(), head);
    batch.checkpoints.push(new);
    batch
}

/// Commits on several threads while faults come to a server, and compares what is stored with what was acknowledged.
fn under_faults(server: &Server, fault: fn(&Server)) {
    let own = server.another();
    let server = own.as_ref().unwrap_or(server);
    let backend = server.backend();
    write_under(&backend, kills(), &|| fault(server));
    assert!(backend.check().expect("the check runs").problems.is_empty());
}

/// Commits on several threads while faults come, each after some more commits. Nothing is lost, and nothing is doubled.
pub(crate) fn write_under(backend: &PostgresBackend, faults: u64, fault: &(dyn Fn() + Sync)) {
    let commits = (faults + 1) * COMMITS_A_FAULT / WRITERS;
    let (committed, commits_seen) = std::sync::mpsc::channel();
    let write = |writer: u64, committed: Sender<()>| {
        let thread = ThreadId::new(format!("writer {writer}")).expect("an id");
        let (mut ids, mut head) = (IdSource::from_seed(writer), None);
        for n in 1..=commits {
            let batch = append(&mut ids, &thread, head, n);
            commit(backend, &batch);
            head = Some(batch.checkpoints[0].id);
            committed.send(()).expect("the faults outlast the writers");
        }
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let committed = committed.clone();
                scope.spawn(move || write(writer, committed))
            })
            .collect();
        drop(committed);
        for _ in 0..faults {
            // If writers have ended by a panic, fewer commits come.
            _ = commits_seen.iter().take(COMMITS_A_FAULT as usize).count();
            fault();
        }
        let outcomes: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        assert!(outcomes.into_iter().all(|outcome| outcome.is_ok()), "every writer ends");
    });
    for writer in 0..WRITERS {
        let thread = ThreadId::new(format!("writer {writer}")).expect("an id");
        assert_eq!(list(backend, &thread), (1..=commits).map(|n| n.to_string()).collect::<Vec<_>>());
        let records = backend.checkpoints(&annals::store::log::CheckpointQuery::new(thread, Namespace::root()));
        let records = records.expect("checkpoints are listed");
        assert_eq!(records.len() as u64, commits, "each commit is stored once");
    }
}

/// Commits the first item of a thread.
pub(crate) fn commit_one(backend: &PostgresBackend, thread: &ThreadId) {
    commit(backend, &append(&mut IdSource::from_seed(1), thread, None, 1));
}

/// Commits a batch, again if the outcome is unknown: if it was stored, it is known by its ids.
fn commit(backend: &PostgresBackend, batch: &Batch) {
    loop {
        match backend.commit(batch) {
            Ok(()) => return,
            Err(StoreError::OutcomeUnknown { .. } | StoreError::Write { .. } | StoreError::Busy { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

/// A proxy in front of a server moves to another one, which has the same files.
fn failover(server: &Server) {
    let Some(first) = server.another() else { return };
    let proxy = FailoverProxy::start(first.socket().expect("it was started"));
    let backend = PostgresBackend::connect(&proxy.url(&first)).expect("the server is reached");
    let second = Mutex::new(None);
    write_under(&backend, 1, &|| {
        let moved = first.moved().expect("it was started");
        proxy.move_to(moved.socket().expect("it was started"));
        *second.lock().expect("no test holds it") = Some(moved);
    });
    assert!(backend.check().expect("the check runs").problems.is_empty());
}

/// A commit that waits too long for a lock is refused, and stores nothing.
fn statement_timeout(server: &Server) {
    let url = server.empty();
    let patient = PostgresBackend::connect(&url).expect("the server is reached");
    let thread = ThreadId::new("t").expect("an id");
    let mut ids = IdSource::from_seed(1);
    let batch = append(&mut ids, &thread, None, 1);
    patient.commit(&batch).expect("it is stored");
    let head = batch.checkpoints[0].id;
    // A statement of the connection itself may take too long on a busy machine.
    let hasty_url = format!("{url}%20-cstatement_timeout%3D500");
    let hasty = (0..100).find_map(|_| PostgresBackend::connect(&hasty_url).ok()).expect("the server is reached");
    let batch = append(&mut ids, &thread, Some(head), 2);
    server.while_locked(&format!("SELECT FROM {}.thread FOR UPDATE", schema_of(&url)), || {
        let refused = hasty.commit(&batch);
        assert!(matches!(refused, Err(StoreError::Write { .. })), "{refused:?}");
    });
    assert_eq!(list(&patient, &thread), ["1"]);
    commit(&hasty, &batch);
    assert_eq!(list(&patient, &thread), ["1", "2"]);
}

pub(crate) fn schema_of(url: &str) -> &str {
    url.rsplit("%3D").next().unwrap_or_default()
}

/// A table space of a few megabytes is full: commits are refused, and what was stored is there. It is a file system in
/// memory, which needs the rights to mount one.
fn full_disk(server: &Server) {
    let Some(server) = server.another() else { return };
    let Some(disk) = server.small_disk() else {
        println!("full_disk: no small file system can be mounted");
        return;
    };
    let url = format!("{}%20-cdefault_tablespace%3D{}", server.empty(), disk.name);
    let backend = PostgresBackend::connect(&url).expect("the server is reached");
    let thread = ThreadId::new("t").expect("an id");
    let (mut ids, mut head, mut stored) = (IdSource::from_seed(1), None, 0);
    let refused = loop {
        let mut batch = append(&mut ids, &thread, head, stored + 1);
        let mut random = IdSource::from_seed(stored);
        let data: Vec<u8> = (0..1 << 16).flat_map(|_| random.random().to_le_bytes()).collect();
        let put = ItemOp::Put(Data::New(Payload::new(data)));
        batch.checkpoints[0].changes =
            vec![Change::new("list", stored + 1, ChangeValue::Items(vec![ItemChange::new(stored, put, None)]))];
        match backend.commit(&batch) {
            Ok(()) => (head, stored) = (Some(batch.checkpoints[0].id), stored + 1),
            Err(error) => break error,
        }
    };
    assert!(stored > 0 && matches!(refused, StoreError::Write { .. }), "{stored}: {refused}");
    let all = backend.items(
        &backend.head(&thread, &Namespace::root()).expect("the head is read").expect("there is a head").point,
        "list",
        ItemRange::All,
        &mut |row| {
            assert_eq!(row.payload.data.len(), 1 << 19);
            stored -= 1;
            Ok(())
        },
    );
    all.expect("the list is read");
    assert_eq!(stored, 0);
}

/// A dump is restored on another server, and a follower goes on there.
fn restored_dump(server: &Server) {
    let Some(other) = server.foreign() else { return };
    let url = server.empty();
    let backend = PostgresBackend::connect(&url).expect("the server is reached");
    // The transactions of the first server have greater numbers than those of the other one will have.
    server.run("DO $$ BEGIN FOR n IN 1..2000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$");
    let thread = ThreadId::new("t").expect("an id");
    let (mut ids, mut head) = (IdSource::from_seed(1), None);
    let mut add = |backend: &PostgresBackend, n: u64| {
        let batch = append(&mut ids, &thread, head, n);
        backend.commit(&batch).expect("it is stored");
        head = Some(batch.checkpoints[0].id);
        batch.checkpoints[0].id
    };
    let mut ended: Vec<CheckpointId> = (1..=3).map(|n| add(&backend, n)).collect();
    let follow = |backend: &PostgresBackend, after: &LogPosition| {
        let page = backend.follow().expect("it is followed").changes_after(after, None, 100).expect("it follows");
        (page.records.iter().map(|(_, of)| of.point.checkpoint).collect::<Vec<_>>(), page.position)
    };
    let (seen, position) = follow(&backend, &LogPosition::START);
    assert_eq!(seen.len(), 3);
    // The fourth commit is in the dump, and the follower has not seen it.
    ended.push(add(&backend, 4));
    let dump = server.command("pg_dump").expect("it was started");
    other.restore(dump, &url, schema_of(&url));
    let restored = PostgresBackend::connect(&other.url_of(schema_of(&url))).expect("the server is reached");
    assert!(restored.check().expect("the check runs").problems.is_empty());
    ended.push(add(&restored, 5));
    let (seen, position) = follow(&restored, &position);
    // What was committed shortly before the position may come again; nothing is lost, and the order holds.
    assert!(ended.ends_with(&seen) && seen.len() >= 2, "{seen:?} of {ended:?}");
    ended.push(add(&restored, 6));
    assert_eq!(follow(&restored, &position).0, ended[5..]);
}

fn list(backend: &PostgresBackend, thread: &ThreadId) -> Vec<String> {
    let head = backend.head(thread, &Namespace::root()).expect("the head is read").expect("there is a head");
    let mut found = Vec::new();
    let read = backend.items(&head.point, "list", ItemRange::All, &mut |row| {
        found.push(String::from_utf8_lossy(row.payload.data).into_owned());
        Ok(())
    });
    read.expect("a list is read");
    found
}

/// Texts with NUL characters, which a column cannot hold, come back as they were.
fn hostile_texts(server: &Server) {
    let backend = server.backend();
    let thread = ThreadId::new("t'; DROP TABLE thread; --").expect("an id");
    let (mut ids, text) = (IdSource::from_seed(1), "a\0b'\\\u{1F41D}");
    let mut batch = append(&mut ids, &thread, None, 1);
    let mut index = annals::base::ItemIndex::default();
    (index.text, index.id, index.name) = (Some(text.into()), Some(text.into()), Some(text.into()));
    let payload = Payload::new(vec![0x80]).with_index(index);
    let put = ItemOp::Put(Data::New(payload.clone()));
    batch.checkpoints[0].changes =
        vec![Change::new("list", 1, ChangeValue::Items(vec![ItemChange::new(0, put, None)]))];
    batch.checkpoints[0].metadata = Some(format!("{{\"text\": \"{text}\"}}"));
    batch.checkpoints[0].app_version = Some(text.into());
    backend.commit(&batch).expect("it is stored");
    let head = backend.head(&thread, &Namespace::root()).expect("the head is read").expect("there is a head");
    assert_eq!(
        (head.metadata.as_ref(), head.app_version.as_deref()),
        (batch.checkpoints[0].metadata.as_ref(), Some(text))
    );
    let mut found = Vec::new();
    let read = backend.items(&head.point, "list", ItemRange::All, &mut |row| {
        found.push(row.payload.to_payload());
        Ok(())
    });
    read.expect("a list is read");
    assert_eq!(found, [payload]);
    assert!(backend.check().expect("the check runs").problems.is_empty());
}
