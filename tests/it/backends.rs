//! Both backends pass the suite that every backend must pass.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::{PATIENT_MS, cases};
use annals::store::log::Log;
use annals::store::{Key, MemoryBackend, OpenOptions, SqliteBackend, Synchronous, conformance};

#[test]
fn the_memory_backend_conforms() {
    conformance::run(&|| Arc::new(MemoryBackend::new()));
}

#[test]
fn the_sqlite_backend_conforms() {
    sqlite_conforms(0, 1, |options| options);
}

#[test]
fn a_store_makes_few_calls_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    conformance::run_calls(&|| Arc::new(raced(&folder.path().join("calls.db"))));
}

#[test]
fn an_encrypted_store_conforms() {
    sqlite_conforms(cases(1, 0), cases(8, 1), |options| options.key(Key::new([3; 32])));
}

#[test]
fn a_store_with_keyed_checksums_conforms() {
    sqlite_conforms(cases(6, 0), cases(8, 1), |options| options.checksum_key(Key::new([4; 32])));
}

/// Runs every case of that step, on four threads.
fn sqlite_conforms(first: u64, step: u64, keyed: impl Fn(OpenOptions) -> OpenOptions + Sync) {
    let folder = tempfile::tempdir().unwrap();
    let count = std::sync::atomic::AtomicUsize::new(0);
    let make = || {
        let n = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let options = keyed(OpenOptions::new().synchronous(Synchronous::Normal));
        let path = folder.path().join(format!("{n}.db"));
        Arc::new(SqliteBackend::open(&path, &options).unwrap()) as Arc<dyn Log>
    };
    std::thread::scope(|scope| {
        for part in 0..4 {
            let some = conformance::cases().iter().skip((first + part * step) as usize).step_by(4 * step as usize);
            let (some, make) = (some.copied().collect::<Vec<_>>(), &make);
            scope.spawn(move || conformance::run_all(&some, make));
        }
    });
}

/// The file of a race, in the folder in which its processes work.
const RACED: &str = "raced.db";
const PROCESSES: u64 = 8;

fn raced(path: &Path) -> SqliteBackend {
    let options = OpenOptions::new().synchronous(Synchronous::Normal).busy_timeout_ms(PATIENT_MS);
    SqliteBackend::open(path, &options).unwrap()
}

/// A process of the race below: it begins when its input ends. Elsewhere than in a folder of the race it does nothing.
#[test]
fn a_process_of_the_race_adds_its_checkpoints() {
    let folder = std::env::current_dir().unwrap();
    let number = folder.file_name().and_then(|name| name.to_str()?.strip_prefix("process ")?.parse().ok());
    let Some(number) = number else { return };
    let backend = raced(&folder.with_file_name(RACED));
    std::io::stdin().lines().for_each(drop);
    conformance::race(&backend, number);
}

#[test]
fn eight_processes_race_for_one_thread() {
    let folder = tempfile::tempdir().unwrap();
    let backend = raced(&folder.path().join(RACED));
    let process = |number: u64| {
        let place = folder.path().join(format!("process {number}"));
        std::fs::create_dir(&place).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "backends::a_process_of_the_race_adds_its_checkpoints"]).current_dir(place);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut processes: Vec<_> = (0..PROCESSES).map(process).collect();
    processes.iter_mut().for_each(|process| drop(process.stdin.take()));
    for process in processes {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    conformance::race_ended(&backend, PROCESSES);
}
