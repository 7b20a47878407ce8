//! Both backends pass the suite that every backend must pass.

use std::sync::Arc;

use crate::cases;
use annals::store::{Key, Log, MemoryBackend, OpenOptions, SqliteBackend, Synchronous, conformance};

#[test]
fn the_memory_backend_conforms() {
    conformance::run(&|| Arc::new(MemoryBackend::new()));
    conformance::run_all(conformance::strict_cases(), &|| Arc::new(MemoryBackend::new()));
}

#[test]
fn the_sqlite_backend_conforms() {
    sqlite_conforms(0, cases(2, 1), |options| options);
}

#[test]
fn an_encrypted_store_conforms() {
    sqlite_conforms(cases(1, 0), cases(4, 1), |options| options.key(Key::new([3; 32])));
}

#[test]
fn a_store_with_keyed_checksums_conforms() {
    sqlite_conforms(cases(3, 0), cases(4, 1), |options| options.checksum_key(Key::new([4; 32])));
}

/// Runs every case of that step, and bounds the calls. The shares of the three tests are all cases together.
fn sqlite_conforms(first: u64, step: u64, keyed: impl Fn(OpenOptions) -> OpenOptions + Sync) {
    let folder = tempfile::tempdir().unwrap();
    let count = std::sync::atomic::AtomicUsize::new(0);
    let some: Vec<_> = conformance::cases().iter().skip(first as usize).step_by(step as usize).copied().collect();
    let make = || {
        let n = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let options = keyed(OpenOptions::new().synchronous(Synchronous::Normal));
        let path = folder.path().join(format!("{n}.db"));
        Arc::new(SqliteBackend::open(&path, &options).unwrap()) as Arc<dyn Log>
    };
    conformance::run_all(&some, &make);
    conformance::run_calls(&make);
}
