//! Connections that are cut and servers that are killed under commits: nothing that was acknowledged is lost, nothing
//! is stored twice.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use annals::base::{Clock, IdSource, Namespace, SystemClock, ThreadId};
use annals::store::batch::{Batch, Change, ChangeValue, Data, ItemChange, ItemOp, NewCheckpoint, Parent, Payload};
use annals::store::log::{Log, LogExt};
use annals::store::{ItemRange, Source, StoreError};
use annals_postgres::PostgresBackend;

use super::Test;
use super::server::Server;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("faults::cut_connections".into(), Box::new(|server| under_faults(server, &Server::cut))),
        ("faults::killed_server".into(), Box::new(|server| under_faults(server, &Server::restart))),
        ("faults::hostile_texts".into(), Box::new(hostile_texts)),
    ]
}

const WRITERS: u64 = 4;
const COMMITS: u64 = 25;
const FAULTS: u64 = 6;

/// Returns the batch that appends one item, on the head.
fn append(ids: &mut IdSource, thread: &ThreadId, head: Option<annals::base::CheckpointId>, n: u64) -> Batch {
    let id = ids.checkpoint(SystemClock.now(), 0, head.as_ref());
    let mut new = NewCheckpoint::new(id, head.map(Parent::Local), 0, Source::Loop, SystemClock.now());
    let put = ItemOp::Put(Data::New(Payload::new(n.to_string().into_bytes())));
    new.changes.push(Change::new("list", n, ChangeValue::Items(vec![ItemChange::new(n, put, None)])));
    let mut batch = Batch::new(thread.clone(), Namespace::root(), head);
    batch.checkpoints.push(new);
    batch
}

/// Commits on several threads while faults come, and compares what is stored with what was acknowledged.
fn under_faults(server: &Server, fault: &(dyn Fn(&Server) + Sync)) {
    let backend = server.backend();
    let (committed, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let write = |writer: u64| {
        let thread = ThreadId::new(format!("writer {writer}")).expect("an id");
        let (mut ids, mut head) = (IdSource::from_seed(writer), None);
        for n in 1..=COMMITS {
            let batch = append(&mut ids, &thread, head, n);
            loop {
                match backend.commit(&batch) {
                    Ok(()) => break,
                    // The same batch again: if it was stored, it is known by its ids.
                    Err(StoreError::OutcomeUnknown { .. } | StoreError::Write { .. } | StoreError::Busy { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            head = Some(batch.checkpoints[0].id);
            committed.fetch_add(1, Ordering::SeqCst);
        }
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        let (committed, is_over) = (&committed, &is_over);
        let faults = scope.spawn(move || {
            for n in 1..=FAULTS {
                // Spread over the commits.
                while committed.load(Ordering::SeqCst) < n * WRITERS * COMMITS / (FAULTS + 1)
                    && !is_over.load(Ordering::SeqCst)
                {
                    std::thread::yield_now();
                }
                fault(server);
            }
        });
        let outcomes: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        is_over.store(true, Ordering::SeqCst);
        faults.join().expect("the faults come");
        assert!(outcomes.into_iter().all(|outcome| outcome.is_ok()), "every writer ends");
    });
    for writer in 0..WRITERS {
        let thread = ThreadId::new(format!("writer {writer}")).expect("an id");
        assert_eq!(list(&backend, &thread), (1..=COMMITS).map(|n| n.to_string()).collect::<Vec<_>>());
        let records = backend.checkpoints(&annals::store::log::CheckpointQuery::new(thread, Namespace::root()));
        let records = records.expect("checkpoints are listed");
        assert_eq!(records.len() as u64, COMMITS, "each commit is stored once");
    }
    assert!(backend.check().expect("the check runs").problems.is_empty());
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
