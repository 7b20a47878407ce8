//! The persistence vectors: operations of the saver, of the key-value memory and of the cache, with the outcomes of
//! the reference.
//!
//! Cases run on both backends, which must report the same outcomes. *Absent:* the mapping of the saver, which is
//! `annals-langgraph`.

mod cache;
mod compare;
mod saver;
mod store;
mod values;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use annals::base::{Clock, Timestamp};
use annals::store::{MemoryBackend, OpenOptions, Store, StoreError, Synchronous};
use serde_json::{Value as Json, json};

use crate::program::Failure;
use crate::{RunnerResult, files};

/// The kinds of vectors that are run, which are the names of their folders.
const KINDS: [&str; 3] = ["cache", "saver", "store"];
/// The time at which every case begins: 2026-01-01T00:00:00Z.
const BEGIN: i64 = 1_767_225_600_000_000;

/// The clock of a case: it stands still until it is advanced.
#[derive(Clone)]
struct CaseClock(Arc<AtomicI64>);

impl CaseClock {
    fn new() -> Self {
        Self(Arc::new(AtomicI64::new(BEGIN)))
    }

    fn advance(&self, seconds: f64) {
        self.0.fetch_add((seconds * 1e6).round() as i64, Ordering::Relaxed);
    }
}

impl Clock for CaseClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::Relaxed))
    }
}

/// Runs the operations of a case.
trait CaseRunner {
    /// Runs one and returns the value of its outcome.
    fn run(&mut self, op: &Json) -> Result<Json, Failure>;
}

/// Runs the vectors of a folder on both backends and writes the outcomes.
pub(crate) fn run(folder: &Path, out: &Path) -> RunnerResult<usize> {
    let (mut results, mut differing) = (Vec::new(), String::new());
    for (file, case) in cases(folder)? {
        let (memory, sqlite) = (in_memory(&file, &case)?, on_file(&file, &case)?);
        if memory != sqlite {
            _ = writeln!(differing, "{file}: {}: the backends report different outcomes", case["name"]);
        }
        results.push(json!({"file": file, "name": case["name"], "outcomes": sqlite}));
    }
    let count = results.len();
    std::fs::write(out, format!("{:#}\n", Json::Array(results)))?;
    if differing.is_empty() { Ok(count) } else { Err(differing.into()) }
}

/// Runs the vectors of a folder in memory, and one in `of_files` on a file as well. Returns their number, and the cases
/// whose outcomes are not those required.
pub(crate) fn verify(folder: &Path, of_files: usize) -> RunnerResult<(usize, String)> {
    let (mut count, mut failed) = (0, String::new());
    for (at, (file, case)) in cases(folder)?.into_iter().enumerate() {
        count += 1;
        let sqlite = if at.is_multiple_of(of_files) { Some(("sqlite", on_file(&file, &case)?)) } else { None };
        for (backend, outcomes) in [("memory", in_memory(&file, &case)?)].into_iter().chain(sqlite) {
            if let Some(problem) = compare::problem(&case, &outcomes) {
                _ = writeln!(failed, "FAIL {file}: {} ({backend}): {problem}", case["name"]);
            }
        }
    }
    Ok((count, failed))
}

/// Returns the cases of a folder, each with the name of its file.
fn cases(folder: &Path) -> RunnerResult<Vec<(String, Json)>> {
    let mut found = Vec::new();
    for kind in KINDS {
        for path in files(&folder.join(kind))? {
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            let file: Json = serde_json::from_slice(&std::fs::read(&path)?)?;
            let cases = file["cases"].as_array().ok_or("a vector file has no cases")?;
            found.extend(cases.iter().map(|case| (format!("{kind}/{stem}"), case.clone())));
        }
    }
    Ok(found)
}

/// Returns the outcomes of a case on the backend in memory.
fn in_memory(file: &str, case: &Json) -> RunnerResult<Vec<Json>> {
    // A store in memory has nothing to open again: a new runner is on the same one.
    outcomes(file, case, |store, options| {
        Ok(store.unwrap_or_else(|| Store::with_backend(Arc::new(MemoryBackend::new()), options)))
    })
}

/// Returns the outcomes of a case on a file.
fn on_file(file: &str, case: &Json) -> RunnerResult<Vec<Json>> {
    let folder = tempfile::tempdir()?;
    let path: PathBuf = folder.path().join("case.annals");
    outcomes(file, case, |store, options| {
        drop(store);
        Store::open_with(&path, options.synchronous(Synchronous::Normal))
    })
}

fn outcomes(
    file: &str,
    case: &Json,
    open: impl Fn(Option<Store>, OpenOptions) -> Result<Store, StoreError>,
) -> RunnerResult<Vec<Json>> {
    let clock = CaseClock::new();
    let mut store = open(None, OpenOptions::new().clock(clock.clone()))?;
    let is_store = file.starts_with("store/");
    let runner = |store: &Store| -> RunnerResult<Box<dyn CaseRunner>> {
        Ok(match file.split('/').next() {
            Some("store") => Box::new(store::StoreRunner::new(store, &case["store"])?),
            Some("saver") => Box::new(saver::SaverRunner::new(store)),
            _ => Box::new(cache::CacheRunner::new(store)),
        })
    };
    let mut running = runner(&store)?;
    let tick = if is_store { case["tick"].as_f64().unwrap_or(1.0) } else { 0.0 };
    let mut outcomes = Vec::new();
    for op in case["ops"].as_array().into_iter().flatten() {
        if op["op"] == "advance" {
            clock.advance(op["seconds"].as_f64().unwrap_or_default());
            outcomes.push(json!({"ok": null}));
            continue;
        }
        if op["op"] == "reopen" {
            drop(running);
            store = open(Some(store), OpenOptions::new().clock(clock.clone()))?;
            running = runner(&store)?;
            outcomes.push(json!({"ok": null}));
            continue;
        }
        outcomes.push(match running.run(op) {
            Ok(value) => json!({"ok": value}),
            Err(failure) => json!({"error": {"class": failure.class, "message": failure.message}}),
        });
        clock.advance(tick);
    }
    drop(running);
    let problems = store.check()?.problems;
    if let Some(problem) = problems.first() {
        return Err(format!("{file}: {}: the store is damaged: {problem}", case["name"]).into());
    }
    Ok(outcomes)
}

fn failure(error: StoreError) -> Failure {
    Failure { class: error.class().into(), message: error.to_string() }
}

/// Reads labels. The types of the library exclude labels that are not texts, so the error is made here.
fn labels(json: &Json) -> Result<Vec<String>, Failure> {
    let label = |label: &Json| label.as_str().map(str::to_owned).ok_or_else(|| Failure::of("InvalidNamespaceError"));
    json.as_array().into_iter().flatten().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "all cases are run when they are asked for")]
    fn every_case_has_the_required_outcomes_and_a_share_on_a_file() {
        let of_files = if std::env::var_os("ANNALS_ALL_CASES").is_some() { 1 } else { 7 };
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/persistence");
        let (count, failed) = verify(&folder, of_files).expect("the vectors are readable");
        assert_eq!(count, 556, "cases were added or removed");
        assert!(failed.is_empty(), "{failed}");
    }

    #[test]
    fn a_wrong_outcome_is_found() {
        let folder = tempfile::tempdir().expect("there is room");
        KINDS.iter().for_each(|kind| std::fs::create_dir(folder.path().join(kind)).expect("it is made"));
        let case = json!({"kind": "cache", "cases": [{
            "name": "x",
            "ops": [{"op": "set", "entries": [[["n"], "k", 1, null]]}, {"op": "get", "keys": [[["n"], "k"]]}],
            "expected": [{"ok": null}, {"ok": [[["n"], "k", 1.0]]}],
        }]});
        std::fs::write(folder.path().join("cache/cases.json"), case.to_string()).expect("it is written");
        let (count, failed) = verify(folder.path(), 1).expect("it is readable");
        assert_eq!((count, failed.lines().count()), (1, 2), "once for each backend");
        assert!(failed.contains("op 1 (get): $[0][2]: expected 1.0, got 1"), "{failed}");
    }
}
