//! The harness itself: the sound store passes a share of each attack, and a seed repeats a workload. More of each,
//! and the planted faults that it must find, are a stage of `.ci/run` with an optimised harness.

#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::process::{Command, Output};

use serde_json::Value;

/// The bounds of known defects.
const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reliability.json");

fn sim(words: &[&str]) -> (Value, Output) {
    let output = Command::new(env!("CARGO_BIN_EXE_annals-sim")).args(words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let result = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{words:?}: {output:?}"));
    (result, output)
}

#[test]
fn no_cut_of_each_kind_of_workload_loses_anything() {
    // Seeds 1 to 16 hold one actor, several, two processes, large values and a compaction.
    let (result, output) = sim(&["cuts", "--traces", "16", "--cuts-per-trace", "3"]);
    assert!(output.status.success(), "{result}");
    let count = |name: &str| result[name].as_u64().unwrap();
    assert!(count("cuts_run") >= 48 && count("distinct") > 24 && count("opened") > 2, "{result}");
    assert!(count("in_compaction") > 0, "{result}");
}

#[test]
fn copies_and_runs_on_pruned_threads_are_accepted_by_the_model() {
    // The reference was pruned; the list references one through a pruned one; a pruned fork references its origin.
    // In the last one the input of an unfinished run was due below pruned updates of a fork.
    for seed in ["19", "1200088", "1400007", "1800078"] {
        let (result, output) = sim(&["cuts", "--seed", seed, "--traces", "1", "--cuts-per-trace", "4"]);
        assert!(output.status.success() && result["cuts_run"].as_u64().unwrap() > 0, "{result}");
    }
}

#[test]
fn kills_and_a_stop_lose_nothing() {
    let (result, output) = sim(&["kills", "6", "--stops", "1", "--stop-ms", "1000"]);
    assert!(output.status.success(), "{result}");
    assert_eq!((&result["kills_run"], &result["kills_lost"]), (&6.into(), &0.into()));
    let count = |name: &str| result[name].as_u64().unwrap();
    if cfg!(target_os = "linux") {
        assert!(count("stops") == 1 && count("refused_by_stopped") > 0, "{result}");
        // After the stop each of three writers goes on, during it each of two readers. The others may be killed or
        // closed before they come to anything.
        assert!(count("calls_acknowledged") >= 3 && count("reads_of_everything") >= 2, "{result}");
    }
}

#[test]
fn processes_that_make_one_file_at_once_all_store_into_it() {
    // The wait is long for a busy machine.
    let (result, output) = sim(&["makers", "12", "--rounds", "2", "--wait-ms", "120000"]);
    assert!(output.status.success(), "{result}");
    assert_eq!((&result["makers_run"], &result["makers_failed"]), (&24.into(), &0.into()), "{result}");
}

#[test]
fn accidents_to_the_files_are_told_and_controls_are_found() {
    let (result, output) = sim(&["accidents", "--share", "15"]);
    assert!(output.status.success(), "{result}");
    let count = |name: &str| result[name].as_u64().unwrap();
    assert!(count("accidents_run") > 20 && count("opens_refused") > 0 && count("opens_whole") > 0, "{result}");
    assert_eq!((count("controls_run"), count("controls_found")), (7, 7), "{result}");
}

#[test]
fn a_fault_of_each_kind_is_told_truly() {
    let (result, output) = sim(&["faults", "--stride", "3001", "--ratchet", RESULTS]);
    assert!(output.status.success(), "{result}");
    let kinds = result["kinds"].as_object().unwrap();
    for kind in ["write", "full-half", "fsync", "read", "cantopen", "fstat", "lock", "shm-map", "shm-busy"] {
        assert!(kinds[kind]["fired"].as_u64().unwrap() > 0, "{kind}: {result}");
    }
}

#[test]
fn forgeries_are_within_their_bounds() {
    let (result, output) = sim(&["forgeries", "20", "--ratchet", RESULTS]);
    assert!(output.status.success(), "{result}");
    let count = |name: &str| result[name].as_u64().unwrap();
    assert_eq!(count("forgeries_run"), 20, "{result}");
    assert!(count("refused") > 0 && count("errors") > 0 && count("same") > 0, "{result}");
}

#[test]
fn races_of_undo_and_redo_leave_no_thread_stuck() {
    let (result, output) = sim(&["races", "1"]);
    assert!(output.status.success(), "{result}");
    let count = |name: &str| result[name].as_u64().unwrap();
    assert_eq!(
        (count("undo_races_run"), count("undo_race_stuck"), count("rounds_of_processes")),
        (1, 0, 1),
        "{result}"
    );
    assert!(count("calls_done") > 20, "{result}");
}

#[test]
fn what_is_whole_in_a_damaged_store_comes_back() {
    let (result, output) = sim(&["recover", "--stride", "601", "--share", "4"]);
    assert!(output.status.success(), "{result}");
    assert!(result["recover_kinds"].as_u64().unwrap() >= 12, "{result}");
    assert_eq!((&result["controls_run"], &result["controls_found"]), (&2.into(), &2.into()), "{result}");
}

#[test]
fn flips_are_within_their_bounds() {
    let (result, output) = sim(&["flips", "--stride", "4211", "--ratchet", RESULTS]);
    assert!(output.status.success(), "{result}");
    assert!(result["file_bytes"].as_u64().unwrap() > 64 * 1024, "{result}");
    let (run, same) = (result["flips_run"].as_u64().unwrap(), result["same"].as_u64().unwrap());
    assert!(run > 50 && same < run, "{result}");
}

#[test]
fn the_file_of_a_seed_is_the_same_each_time() {
    let flips = ["flips", "--count", "8", "--first", "9000", "--jobs", "1"];
    let (mut first, mut second) = (sim(&flips).0, sim(&flips).0);
    for result in [&mut first, &mut second] {
        result["seconds"] = 0.into();
    }
    assert_eq!(first, second);
}
