//! Copies between a file and the server, in both directions.

#[path = "../../../../tests/it/store_copies/filled.rs"]
#[allow(clippy::unwrap_used, dead_code, reason = "the tests of the engine use all of it")]
mod filled;

use std::ops::ControlFlow;

use annals::history::{CopyOptions, CopyReport};
use annals::prelude::*;
use annals::store::{OpenOptions, StoreError, Synchronous};
use annals_postgres::PostgresBackend;

use super::Test;
use super::server::Server;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("copies::to_a_server_and_back".into(), Box::new(to_a_server_and_back)),
        ("copies::ended_and_completed".into(), Box::new(ended_and_completed)),
        ("copies::a_database_without_tables".into(), Box::new(a_database_without_tables)),
    ]
}

fn filled_file(folder: &tempfile::TempDir, name: &str) -> Store {
    let options = OpenOptions::new().synchronous(Synchronous::Normal);
    Store::open_with(folder.path().join(name), options).expect("a file is made")
}

fn checksums(report: &CopyReport) -> Vec<Option<String>> {
    assert!(report.refused.is_empty(), "{report:?}");
    report.threads.iter().map(|thread| thread.checksum.clone()).collect()
}

fn to_a_server_and_back(server: &Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, back) = (filled_file(&folder, "one.db"), filled_file(&folder, "back.db"));
    filled::fill(&file);
    let backend = server.backend();
    let empty = backend.size_bytes().expect("the size is read");
    let store = Store::with_backend(std::sync::Arc::new(backend), OpenOptions::new());
    let there = file.copy_to(&store, CopyOptions::new()).expect("the copy ends");
    filled::assert_same(&file, &store);
    let again = store.copy_to(&back, CopyOptions::new()).expect("the copy ends");
    filled::assert_same(&file, &back);
    assert_eq!(checksums(&there), checksums(&again));
    assert!(empty > 0);
}

fn ended_and_completed(server: &Server) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = filled_file(&folder, "one.db");
    filled::fill(&file);
    let expected = checksums(&file.copy_to(&Store::memory(), CopyOptions::new()).expect("the copy ends"));
    // Each copy goes on where the one before it was ended.
    let url = server.empty();
    let mut ended = 0;
    loop {
        let store = annals_postgres::open(&url).expect("the server is reached");
        let mut left = 3;
        let some = CopyOptions::new().checkpoints_per_commit(2).on_progress(|_| {
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let report = file.copy_to(&store, some).expect("the copy goes on");
        if !report.is_stopped {
            assert_eq!(checksums(&report), expected);
            break filled::assert_same(&file, &store);
        }
        ended += 1;
    }
    assert!(ended > 4, "{ended}");
}

fn a_database_without_tables(server: &Server) {
    let url = server.empty();
    for options in [OpenOptions::new().create(false), OpenOptions::new().read_only(true)] {
        let refused = annals_postgres::open_with(&url, options);
        assert!(matches!(refused, Err(StoreError::NotAStore { .. })), "{refused:?}");
    }
    PostgresBackend::connect(&url).expect("the tables are made");
    PostgresBackend::connect_with(&url, false).expect("the tables are there");
}
