//! The vectors in `tests/parity`: scenarios with the traces of the reference side by side, one file for each category.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::canon::{canonical, differences};
use crate::driver::DriverKind;
use crate::scenario::{self, Options, Scenario};
use crate::{RunnerResult, files, run_one};

/// The file with the names of the scenarios that still fail.
const OPEN: &str = "open.txt";
/// The file with the names of the scenarios that differ on purpose, each with the reason.
pub(crate) const DIFFER: &str = "differ.txt";
/// The maximum number of differences that are shown for a trace.
const DIFFERENCES_MAX: usize = 3;

const CATEGORIES: [&str; 30] = [
    "basic",
    "channels",
    "reducers",
    "messages_stream",
    "messages",
    "conditional",
    "join",
    "defer",
    "send",
    "command",
    "interrupt",
    "resume",
    "breakpoints",
    "subgraph",
    "timetravel",
    "update_state",
    "bulk_update",
    "history",
    "durability",
    "retry",
    "cache",
    "errors",
    "stream",
    "schemas",
    "mermaid",
    "recursion",
    "functional",
    "store",
    "seed_x",
    "seed",
];

fn category(name: &str) -> &'static str {
    let is_in = |category: &&&str| {
        name.strip_prefix(**category)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('_') || **category == "seed_x")
    };
    CATEGORIES.iter().find(is_in).copied().unwrap_or("other")
}

/// A scenario with its trace.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Vector {
    scenario: Json,
    pub(crate) trace: Json,
}

impl Vector {
    pub(crate) fn name(&self) -> &str {
        self.scenario["name"].as_str().unwrap_or_default()
    }

    pub(crate) fn scenario(&self) -> RunnerResult<Scenario> {
        Ok(serde_json::from_value(self.scenario.clone())?)
    }
}

/// Packs scenarios and their traces into one file for each category, a line for each scenario, and returns their
/// number.
pub(crate) fn pack(scenarios: &Path, traces: &Path, out: &Path) -> RunnerResult<usize> {
    let mut by_category: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut count = 0;
    for path in files(scenarios)? {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let read = |path: &Path| -> RunnerResult<Json> { Ok(serde_json::from_slice(&std::fs::read(path)?)?) };
        let vector =
            json!({"scenario": read(&path)?, "trace": canonical(&read(&traces.join(format!("{name}.json")))?)});
        by_category.entry(category(&name)).or_default().push(vector.to_string());
        count += 1;
    }
    std::fs::create_dir_all(out)?;
    for (category, vectors) in by_category {
        std::fs::write(out.join(format!("{category}.json")), format!("[\n{}\n]\n", vectors.join(",\n")))?;
    }
    Ok(count)
}

/// The result of a run of all vectors.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) run: usize,
    /// The differences of each scenario that does not give its trace.
    pub(crate) failed: BTreeMap<String, String>,
    /// The names in the list of failing scenarios.
    pub(crate) open: BTreeSet<String>,
    /// The names in the list of scenarios that differ on purpose.
    pub(crate) differ: BTreeSet<String>,
}

impl Report {
    /// Returns the contradictions to both lists; an empty text if there are none.
    pub(crate) fn surprises(&self) -> String {
        let mut text = String::new();
        for (name, what) in self.failed.iter().filter(|(name, _)| !self.is_known(name)) {
            _ = writeln!(text, "FAIL {name}{what}");
        }
        for (list, names) in [(OPEN, &self.open), (DIFFER, &self.differ)] {
            for name in names.iter().filter(|name| !self.failed.contains_key(*name)) {
                _ = writeln!(text, "{name} gives its trace: take it off the list {list}");
            }
        }
        text
    }

    fn is_known(&self, name: &str) -> bool {
        self.open.contains(name) || self.differ.contains(name)
    }

    /// Writes the list of failing scenarios anew.
    pub(crate) fn write_open(&self, folder: &Path) -> RunnerResult<()> {
        let names = self.failed.keys().filter(|name| !self.differ.contains(*name));
        Ok(std::fs::write(folder.join(OPEN), names.map(|name| format!("{name}\n")).collect::<String>())?)
    }
}

/// Reads a list of scenarios: the first word of each line. A list that is not there is empty.
pub(crate) fn names(list: &Path) -> RunnerResult<BTreeSet<String>> {
    let text = match std::fs::read_to_string(list) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    Ok(text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(|name| name.trim_end_matches(':').to_owned())
        .collect())
}

/// Runs all vectors of a folder with each of the options, several at a time.
pub(crate) fn verify(folder: &Path, options: &[(&str, Options)]) -> RunnerResult<Report> {
    verify_share(folder, options, 1)
}

/// As [`verify`], of each `share`-th vector.
pub(crate) fn verify_share(folder: &Path, options: &[(&str, Options)], share: usize) -> RunnerResult<Report> {
    let vectors: Vec<Vector> = read_vectors(folder)?.into_iter().step_by(share.max(1)).collect();
    let (mut open, mut differ) = (names(&folder.join(OPEN))?, names(&folder.join(DIFFER))?);
    if share > 1 {
        let is_run = |name: &String| vectors.iter().any(|vector| vector.name() == name);
        open.retain(is_run);
        differ.retain(is_run);
    }
    let failed = each_vector(&vectors, |vector| {
        let what: String = options.iter().filter_map(|(way, options)| problem(vector, way, *options)).collect();
        (!what.is_empty()).then_some(what)
    });
    Ok(Report { run: vectors.len(), failed, open, differ })
}

/// Reads the vectors of a folder.
pub(crate) fn read_vectors(folder: &Path) -> RunnerResult<Vec<Vector>> {
    let mut vectors = Vec::new();
    for path in files(folder)? {
        vectors.extend(serde_json::from_slice::<Vec<Vector>>(&std::fs::read(&path)?)?);
    }
    Ok(vectors)
}

/// Runs vectors, several at a time. Returns their problems by their names.
pub(crate) fn each_vector(
    vectors: &[Vector],
    problem: impl Fn(&Vector) -> Option<String> + Sync,
) -> BTreeMap<String, String> {
    let (failed, next) = (Mutex::new(BTreeMap::new()), AtomicUsize::new(0));
    let work = || {
        while let Some(vector) = vectors.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Some(what) = problem(vector) {
                failed.lock().unwrap_or_else(PoisonError::into_inner).insert(vector.name().to_owned(), what);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
    failed.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the differences of the trace of a scenario.
fn problem(vector: &Vector, way: &str, options: Options) -> Option<String> {
    let trace = vector.scenario().and_then(|scenario| match scenario::unsupported(&scenario)? {
        missing if missing.is_empty() => run_one(scenario, options),
        missing => Ok(Err(missing.into_iter().collect())),
    });
    let trace = match trace {
        Ok(Ok(trace)) => canonical(&trace),
        Ok(Err(missing)) => return Some(format!("\n  {way}: unsupported: {}", missing.join(", "))),
        Err(error) => return Some(format!("\n  {way}: {error}")),
    };
    let found = differences(&vector.trace, &trace);
    let shown = found.iter().take(DIFFERENCES_MAX).fold(String::new(), |mut text, (path, expected, actual)| {
        _ = write!(text, "\n  {way}: {path}\n    expected {expected}\n    actual   {actual}");
        text
    });
    (!found.is_empty()).then_some(shown)
}

/// The ways to run a scenario that must give one trace.
pub(crate) fn ways() -> Vec<(&'static str, Options)> {
    let memory = Options::default();
    let sqlite = Options { sqlite: true, ..memory };
    let of_async = |options| Options { driver: DriverKind::Async, ..options };
    vec![
        ("memory", memory),
        ("sqlite", sqlite),
        ("memory, async", of_async(memory)),
        ("sqlite, async", of_async(sqlite)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_gives_the_trace_of_the_reference() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity");
        // All ways to run them are a stage of `.ci/run`.
        let report = verify(&folder, &ways()[..1]).expect("the vectors are readable");
        assert!(report.run >= 1000, "only {} vectors were found", report.run);
        let surprises = report.surprises();
        assert!(surprises.is_empty(), "{} of {} fail\n{surprises}", report.failed.len(), report.run);
    }

    #[test]
    fn a_wrong_trace_is_found() {
        let folder = tempfile::tempdir().expect("there is room");
        let vector = json!([{
            "scenario": {"name": "basic_wrong", "graphs": {"main": {
                "channels": {"x": {}}, "nodes": [{"name": "a", "program": []}], "edges": [["__start__", "a"]],
            }}, "steps": [{"do": "invoke", "input": {"x": 1}}]},
            "trace": {"name": "basic_wrong", "steps": [{"index": 0, "do": "invoke", "output": {"x": 2}}]},
        }]);
        std::fs::write(folder.path().join("basic.json"), vector.to_string()).expect("it is written");
        std::fs::write(folder.path().join(OPEN), "").expect("it is written");
        let surprises = verify(folder.path(), &ways()).expect("it is readable").surprises();
        assert!(surprises.contains("$.steps[0].output.x\n    expected 2\n    actual   1"), "{surprises}");
        std::fs::write(folder.path().join(OPEN), "basic_wrong\nbasic_gone\n").expect("it is written");
        let surprises = verify(folder.path(), &ways()).expect("it is readable").surprises();
        assert_eq!(surprises, "basic_gone gives its trace: take it off the list open.txt\n");
        std::fs::write(folder.path().join(OPEN), "").expect("it is written");
        std::fs::write(folder.path().join(DIFFER), "basic_wrong: 2 is wrong\nbasic_mended: it was\n")
            .expect("it is written");
        let surprises = verify(folder.path(), &ways()).expect("it is readable").surprises();
        assert_eq!(surprises, "basic_mended gives its trace: take it off the list differ.txt\n");
    }

    #[test]
    fn categories_are_those_of_the_harness() {
        assert_eq!(category("messages_stream_two"), "messages_stream");
        assert_eq!(category("messages_ids"), "messages");
        assert_eq!(category("update_state_end"), "update_state");
        assert_eq!(category("seed_12"), "seed");
        assert_eq!(category("seed_x90012"), "seed_x");
        assert_eq!(category("basics"), "other");
    }
}
