//! The scenarios on the proxy: each gives the trace of the reference there, and the batches that the executor has
//! committed are all of its log. Committed to an empty store, each of them twice, they make the same threads,
//! checkpoints, states and writes.

use std::fmt::Write as _;
use std::path::Path;

use annals::base::{Namespace, ThreadId};
use annals::store::MemoryBackend;
use annals::store::log::{CheckpointQuery, Log, LogExt};

use super::{ProxiedBackend, RecordingProxy};
use crate::canon::{canonical, differences};
use crate::driver::DriverKind;
use crate::scenario::Options;
use crate::vectors::{DIFFER, Vector, each_vector, names, read_vectors};
use crate::{run_on_store, run_one};

/// Returns the threads of a log with their checkpoints, states and writes, as text.
fn shown_log(backend: &dyn Log) -> String {
    let mut text = String::new();
    for thread in backend.threads(None, usize::MAX).unwrap() {
        for namespace in backend.namespaces(&thread.id).unwrap() {
            show_namespace(backend, &thread.id, &namespace, &mut text);
        }
    }
    text
}

fn show_namespace(backend: &dyn Log, thread: &ThreadId, namespace: &Namespace, text: &mut String) {
    let query = CheckpointQuery::new(thread.clone(), namespace.clone());
    for mut record in backend.checkpoints(&query).unwrap() {
        let (mut state, writes) = (backend.state(&record.point).unwrap(), backend.writes(&record.point).unwrap());
        // Positions in the log and numbers of branches count the log of a file.
        (record.seq, record.branch) = (0, 0);
        state.checkpoint = record;
        _ = writeln!(text, "{state:?}\n{writes:?}");
    }
}

/// Returns a problem of a scenario on the proxy: a difference of its trace, or of the log that its batches make.
///
/// A scenario that `differs` on purpose has the trace that it has on any other backend.
fn problem(vector: &Vector, place: ProxiedBackend, options: Options, differs: bool) -> Option<String> {
    let (proxy, store) = RecordingProxy::store(place);
    let trace = run_on_store(vector.scenario().unwrap(), options, store).unwrap().unwrap();
    let expected = match differs {
        true => canonical(&run_one(vector.scenario().unwrap(), options).unwrap().unwrap()),
        false => vector.trace.clone(),
    };
    let mut text = String::new();
    for (path, expected, actual) in differences(&expected, &canonical(&trace)) {
        _ = writeln!(text, "{path}: expected {expected}, actual {actual}");
    }
    text.push_str(&log_problem(&proxy, None));
    (!text.is_empty()).then_some(text)
}

/// Returns the first difference between the log of a backend and the one that its batches make, each committed twice.
/// One of them can be left out.
fn log_problem(proxy: &RecordingProxy, left_out: Option<usize>) -> String {
    let again = MemoryBackend::new();
    let recorded = proxy.recorded.lock().unwrap();
    for at in 0..=recorded.commits.len() {
        for (_, thread) in recorded.deleted.iter().filter(|(before, _)| *before == at) {
            _ = again.delete_threads(std::slice::from_ref(thread)).unwrap();
        }
        let Some(committed) = recorded.commits.get(at) else { break };
        if left_out == Some(at) || committed.outcome.as_ref().unwrap().wait().is_err() {
            continue;
        }
        let mut batch = committed.batch.clone();
        batch.chain = None;
        for time in ["once", "twice"] {
            if let Err(error) = again.commit(&batch) {
                return format!("batch {at}, {time}: {error}\n");
            }
        }
    }
    let (stored, repeated) = (shown_log(&*proxy.inner), shown_log(&again));
    match stored.lines().zip(repeated.lines()).find(|(stored, repeated)| stored != repeated) {
        Some((stored, repeated)) => format!("stored   {stored}\nrepeated {repeated}\n"),
        None if stored.len() == repeated.len() => String::new(),
        None => format!("{} lines are stored, and {} repeated\n", stored.lines().count(), repeated.lines().count()),
    }
}

#[test]
fn every_scenario_gives_its_trace_on_the_proxy_and_its_batches_are_the_log() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity");
    let (vectors, differ) = (read_vectors(&folder).unwrap(), names(&folder.join(DIFFER)).unwrap());
    assert!(vectors.len() >= 1000, "only {} vectors were found", vectors.len());
    let vectors: Vec<_> = vectors.into_iter().step_by(24).collect();
    let of_async = Options { driver: DriverKind::Async, ..Options::default() };
    for (place, options) in [(ProxiedBackend::Memory, of_async), (ProxiedBackend::File, Options::default())] {
        let failed = each_vector(&vectors, |vector| problem(vector, place, options, differ.contains(vector.name())));
        let text: String = failed.iter().map(|(name, what)| format!("{name}\n{what}")).collect();
        assert!(failed.is_empty(), "{} of {} fail on {place:?}\n{text}", failed.len(), vectors.len());
    }
}

#[test]
fn a_batch_that_is_left_out_is_found() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity");
    let vectors = read_vectors(&folder).unwrap();
    let vector = vectors.iter().find(|vector| vector.name() == "interrupt_parallel_one_by_one").unwrap();
    for place in [ProxiedBackend::Memory, ProxiedBackend::File] {
        let (proxy, store) = RecordingProxy::store(place);
        run_on_store(vector.scenario().unwrap(), Options::default(), store).unwrap().unwrap();
        assert_eq!(log_problem(&proxy, None), "");
        let commits = proxy.recorded.lock().unwrap().commits.len();
        assert!(commits > 2, "{commits} commits");
        for left_out in 0..commits {
            assert_ne!(log_problem(&proxy, Some(left_out)), "", "batch {left_out} on {place:?}");
        }
    }
}
