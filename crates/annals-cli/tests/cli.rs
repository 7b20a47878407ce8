//! The command from outside: its output, its exit codes, and its files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "cli/answers.rs"]
mod answers;
#[path = "cli/contract.rs"]
mod contract;
#[path = "cli/differences.rs"]
mod differences;
#[path = "cli/fixtures.rs"]
mod fixtures;
#[path = "cli/flows.rs"]
mod flows;
#[path = "cli/guides.rs"]
mod guides;
#[path = "cli/histories.rs"]
mod histories;
#[path = "cli/hostile.rs"]
mod hostile;
#[path = "cli/key.rs"]
mod key;
#[path = "cli/langgraph.rs"]
mod langgraph;
#[path = "cli/listings.rs"]
mod listings;
#[cfg(unix)]
#[path = "cli/logs.rs"]
mod logs;
#[path = "cli/maps.rs"]
mod maps;
#[path = "cli/mcp.rs"]
mod mcp;
#[path = "cli/otlp.rs"]
mod otlp;
#[path = "cli/outside.rs"]
mod outside;
#[path = "cli/picture.rs"]
mod picture;
#[cfg(target_os = "linux")]
#[path = "cli/reads.rs"]
mod reads;
#[path = "cli/repair.rs"]
mod repair;
#[path = "cli/schema.rs"]
mod schema;
#[path = "cli/snapshots.rs"]
mod snapshots;
#[path = "cli/sums.rs"]
mod sums;
#[cfg(target_os = "linux")]
#[path = "cli/terminal.rs"]
mod terminal;
#[path = "cli/transfer.rs"]
mod transfer;
#[path = "cli/verbs.rs"]
mod verbs;
#[path = "cli/views.rs"]
mod views;
#[cfg(unix)]
#[path = "cli/work.rs"]
mod work;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use annals::state::DynState;
use annals_graph::prelude::*;
use serde_json::{Value as Json, json};

const REPEATED: &str = "This sentence is long enough to be found again in another file.";

/// A folder with known files, and a place for a store beside it.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let notes = folder.path().join("notes");
        fs::create_dir_all(notes.join("sub")).unwrap();
        let files = [
            (
                "boats.md",
                format!("# Boats\n\nboats sails boats hull\n\n{REPEATED}\n\n[trains](trains.md) [gone](gone.md)\n"),
            ),
            ("trains.md", format!("# Trains\n\ntrains rails trains\n\n{REPEATED}\n\nhttps://trains.example/\n")),
            ("sub/bikes.rst", "Bikes\n=====\n\nbikes wheels bikes\n".to_owned()),
        ];
        for (name, text) in files {
            fs::write(notes.join(name), text).unwrap();
        }
        let junk: Vec<u8> = (0..4_000_u32).map(|n| (n * 197 % 256) as u8).collect();
        fs::write(notes.join("junk.txt"), junk).unwrap();
        Self { folder }
    }

    /// A bench with a store in which the demo has run.
    fn ran() -> Self {
        let bench = Self::new();
        let done = bench.annals(&["demo", "notes", "--yes"]);
        assert_eq!(code(&done), 0, "{done:?}");
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the command on the store of the bench.
    fn annals(&self, arguments: &[&str]) -> Output {
        self.annals_on("store.db", arguments)
    }

    fn annals_on(&self, store: &str, arguments: &[&str]) -> Output {
        run(self.folder.path(), &[arguments, &["--store", store]].concat())
    }

    fn json(&self, arguments: &[&str]) -> Json {
        let output = self.annals(&[arguments, &["--json"]].concat());
        assert_eq!(code(&output), 0, "{arguments:?}: {output:?}");
        document(&output.stdout)
    }

    fn text(&self, arguments: &[&str]) -> String {
        let output = self.annals(arguments);
        assert_eq!(code(&output), 0, "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The bytes of every file of the bench but the notes.
    fn disk(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap());
        let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
        files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())).collect()
    }

    fn report(&self) -> String {
        self.json(&["show", "research:notes", "report"])["value"].as_str().unwrap().to_owned()
    }
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_annals"));
    command
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .env_remove("ANNALS_STORE")
        .env_remove("ANNALS_KEY_FILE")
        .output()
        .unwrap()
}

/// The exit code; -1 if the process was killed.
fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

fn document(bytes: &[u8]) -> Json {
    let document: Json =
        serde_json::from_slice(bytes).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(bytes)));
    if document.get("error").is_none() {
        assert_eq!(document["schema"], 1);
    }
    document
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn the_demo_reports_the_contents_of_the_files() {
    let bench = Bench::new();
    let text = bench.text(&["demo", "notes", "--yes"]);
    for expected in [
        "thread  research:notes",
        "step 1   list       4 files",
        "step 2   read ×4",
        "1 broken link, 1 repeated paragraph, 1 file not read",
        "| - boats.md (",
        "| - boats.md:7 -> gone.md",
        "\" in boats.md, trains.md",
        "| ... 3 more lines: ",
        "yes (--yes)",
        "ran now: draft, approve, finish; all before the branch was remembered",
        "top_terms: changed\n  8 -> 3",
        "annals log research:notes --store store.db",
    ] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
    assert!(!text.contains('\x1b'), "no colour without a terminal");
    let names: Vec<String> = bench.disk().into_keys().collect();
    assert_eq!(names, ["store.db"], "closed cleanly");

    let again = bench.text(&["demo"]);
    assert!(again.contains("Already finished: no node runs again"), "{again}");
    assert!(again.contains("it has run already") && again.contains("ran now: nothing"), "{again}");
}

#[test]
fn the_demo_carries_texts_for_a_folder_outside_the_project() {
    let bench = Bench::new();
    let text = bench.text(&["demo", "--yes"]);
    assert!(text.contains("checkpoints.md") && text.contains("questions.md"), "{text}");
    let again = bench.text(&["demo", "--yes"]);
    assert!(again.contains("checkpoints.md"), "the run is found again: {again}");
}

#[test]
fn the_demo_draws_its_graph_without_a_store() {
    let bench = Bench::new();
    let text = bench.text(&["demo", "--drawing"]);
    assert!(text.contains("│ analyse │") && text.lines().any(|line| line.trim() == "▼"), "{text}");
    let drawing = bench.json(&["demo", "--drawing"]);
    assert_eq!(drawing["edges"][0], json!({ "source": "__start__", "target": "list" }));
    assert!(bench.disk().is_empty(), "no store was created");
}

#[test]
fn the_demo_waits_for_a_resume_value() {
    let bench = Bench::new();
    let waiting = bench.text(&["demo", "notes"]);
    assert!(waiting.contains("demo --store store.db --yes"), "{waiting}");
    let threads = bench.json(&["threads"]);
    assert_eq!(threads["threads"][0]["status"], "interrupted");
    let text = threads["threads"][0]["questions"][0].as_str().unwrap();
    assert!(text.starts_with("Publish the report? 3 files"), "{text}");
    assert!(bench.text(&["log", "research:notes"]).contains("interrupted: Publish the report?"));
    assert!(bench.text(&["threads"]).contains("interrupted: Publish"));

    let still = bench.json(&["demo"]);
    assert_eq!((&still["status"], &still["ran_now"]), (&json!("waiting"), &json!({})));
    let done = bench.json(&["demo", "--yes"]);
    assert_eq!(done["status"], "approved");
    assert_eq!(done["remembered"], json!({ "list": 1, "read": 4, "analyse": 1, "draft": 1 }));
    assert_eq!(done["ran_now"], json!({ "approve": 2, "finish": 2, "draft": 1 }));
}

/// Kills the demo at every commit that `option` can name, resumes it, and compares the result with an undisturbed run.
/// Returns how many cases a test runs: a share of them in the test command, all with the variable `ANNALS_ALL_CASES`.
#[allow(clippy::disallowed_methods, reason = "all cases are run when they are asked for")]
fn cases(share: usize, all: usize) -> usize {
    if std::env::var_os("ANNALS_ALL_CASES").is_some() { all } else { share }
}

fn kill_everywhere(option: &str, least: usize) {
    let expected = Bench::ran();
    let whole = expected.json(&["log", "research:notes"])["checkpoints"].as_array().unwrap().len();
    for n in (1..).step_by(cases(5, 1)) {
        let bench = Bench::new();
        let number = n.to_string();
        let killed = bench.annals(&["demo", "notes", "--yes", option, &number]);
        if code(&killed) == 0 {
            assert!(n > least, "only {n} commits to kill at");
            return;
        }
        assert_eq!(code(&killed), -1, "{option} {n}: {killed:?}");
        assert!(stderr(&killed).contains("demo --store store.db"), "{}", stderr(&killed));
        let resumed = bench.json(&["demo", "--yes"]);
        assert_eq!(resumed["status"], "approved", "{option} {n}");
        let count = |kind: &str, node: &str| resumed[kind][node].as_u64().unwrap_or(0);
        assert_eq!(count("ran_now", "read") + count("remembered", "read"), 4, "{option} {n}: {resumed}");
        assert_eq!(count("ran_now", "list") + count("remembered", "list"), 1, "{option} {n}: {resumed}");
        let history = bench.json(&["log", "research:notes"]);
        assert_eq!(history["checkpoints"].as_array().unwrap().len(), whole, "{option} {n}: as many as without a kill");
        let at = |bench: &Bench, end: &str| {
            let end = bench.json(&["demo"])[end].as_str().unwrap().to_owned();
            bench.json(&["show", &format!("research:notes@{end}")])["values"].clone()
        };
        for end in ["end", "what_if_end"] {
            let (mut resumed, mut alone) = (at(&bench, end), at(&expected, end));
            // Each bench has a folder of its own.
            (resumed["folder"], alone["folder"]) = (Json::Null, Json::Null);
            assert_eq!(resumed, alone, "{option} {n} {end}");
        }
        let check = bench.json(&["check"]);
        assert_eq!(check["problems"], json!([]), "{option} {n}");
    }
}

#[test]
fn a_demo_killed_after_any_superstep_reaches_the_same_end() {
    kill_everywhere("--kill-after", 9);
}

#[test]
fn a_demo_killed_after_any_commit_reaches_the_same_end() {
    kill_everywhere("--kill-after-commits", 10);
}

#[test]
fn a_demo_killed_after_each_superstep_reaches_its_end() {
    let expected = Bench::ran().report();
    let bench = Bench::new();
    let mut kills = 0;
    let first = bench.annals(&["demo", "notes", "--yes", "--kill-after", "1"]);
    assert_eq!(code(&first), -1);
    while code(&bench.annals(&["demo", "--yes", "--kill-after", "1"])) == -1 {
        kills += 1;
        assert!(kills < 20, "no progress");
    }
    assert!(kills >= 8, "one superstep each time, {kills}");
    assert_eq!(bench.report(), expected);
}

#[test]
fn threads_and_log_agree_as_text_and_json() {
    let bench = Bench::ran();
    let threads = bench.json(&["threads", "--count"]);
    let thread = &threads["threads"][0];
    assert_eq!((&thread["thread"], &thread["status"]), (&json!("research:notes"), &json!("done")));
    assert_eq!((&thread["checkpoints"], &thread["branches"], &threads["more"]), (&json!(12), &json!(2), &json!(false)));
    let line = bench.text(&["threads", "--count"]);
    assert!(line.starts_with("THREAD") && line.contains("research:notes  12           2"), "{line}");

    let log = bench.json(&["log", "research:notes"]);
    let rows = log["checkpoints"].as_array().unwrap();
    let ran = |at: usize| rows[at]["ran"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect::<Vec<_>>();
    assert_eq!((ran(0), ran(8)), (vec!["finish"], vec!["read"; 4]));
    assert_eq!(rows[8]["changed"], json!([{ "channel": "notes", "added": 4, "edited": 0 }]));
    assert_eq!((&rows[3]["source"], &rows[3]["parent"]), (&json!("update"), &rows[7]["checkpoint"]));
    assert_eq!(rows[6]["parent"], rows[7]["checkpoint"], "both branches part there");
    assert_eq!(log["head"], rows[0]["checkpoint"]);
    let created = rows[0]["created_at"].as_str().unwrap();
    assert!(created.len() == 27 && created.ends_with('Z'), "{created}");

    let text = bench.text(&["log", "research:notes", "--oneline"]);
    let tree: Vec<String> =
        text.lines().map(|line| line.chars().take(3).collect::<String>().trim_end().into()).collect();
    assert_eq!(tree, ["@", "o", "o", "o", "| o", "| o", "| o", "|/", "o", "o", "o", "o"]);
    assert!(text.contains("needs attention? (+3 messages), report") && text.contains("notes +4"), "{text}");
    for (at, row) in rows.iter().enumerate() {
        let short = row["short"].as_str().unwrap();
        // The input and the start of its graph are one row, which is that of the start.
        let is_shown = at + 1 < rows.len();
        assert!(
            short.len() >= 4 && text.lines().any(|line| line.contains(&format!(" {short} "))) == is_shown,
            "{short}"
        );
        let shown = bench.json(&["show", &format!("research:notes@{short}")]);
        assert_eq!(shown["checkpoint"], row["checkpoint"]);
    }

    let cut = bench.text(&["log", "research:notes", "-n", "2"]);
    assert_eq!(cut.lines().count(), 3, "{cut}");
    assert!(cut.lines().last().unwrap().starts_with('~'), "{cut}");
    assert_eq!(bench.json(&["log", "research:notes", "-n", "2"])["more"], true);
}

#[test]
fn show_prints_the_state_and_its_writers() {
    let bench = Bench::ran();
    let head = bench.json(&["show", "research:notes"]);
    assert_eq!((&head["values"]["status"], &head["values"]["top_terms"]), (&json!("approved"), &json!(3)));
    assert_eq!(head["values"]["messages"].as_array().unwrap().len(), 4);
    let written = &head["written_by"]["report"];
    assert_eq!((&written["node"], &written["back"]), (&json!("draft"), &json!(2)));
    let before = bench.json(&["show", "research:notes~2"]);
    assert_eq!((&before["next"], &before["values"]["status"]), (&json!(["approve"]), &Json::Null));
    assert_eq!(before["parent"]["checkpoint"], bench.json(&["show", "research:notes@~3"])["checkpoint"]);

    let text = bench.text(&["show", "research:notes"]);
    assert!(text.contains("no task is due") && text.contains("draft ~2"), "{text}");
    assert!(text.contains("4 items, the last:"), "{text}");
    let report = bench.text(&["show", "research:notes", "report"]);
    assert_eq!(report, bench.report(), "a text is printed as it is");
    assert_eq!(bench.json(&["show", "research:notes", "top_terms"])["value"], 3);

    let messages = bench.json(&["show", "research:notes", "--messages", "2"]);
    assert_eq!(messages["messages"][0]["type"], "tool");
    let text = bench.text(&["show", "research:notes", "--messages", "9"]);
    assert!(text.starts_with("human  What is in notes") && text.lines().count() == 4, "{text}");

    let end = bench.json(&["demo"])["end"].as_str().unwrap().to_owned();
    let writes = bench.json(&["show", &format!("research:notes@{end}~1"), "--writes"]);
    assert!(writes["writes"].is_array(), "{writes}");
    let missing = bench.annals(&["show", "research:notes", "nothing"]);
    assert!(code(&missing) == 3 && stderr(&missing).contains("top_terms"), "{missing:?}");
}

#[test]
fn fork_prints_only_the_new_thread() {
    let bench = Bench::ran();
    let forked = bench.annals(&["fork", "research:notes~4", "--name", "mine"]);
    assert_eq!((code(&forked), &*forked.stdout), (0, &b"mine\n"[..]), "{forked:?}");
    assert!(stderr(&forked).contains("forked from research:notes@") && stderr(&forked).contains("draft due next"));
    let log = bench.json(&["log", "mine"]);
    let source = bench.json(&["show", "research:notes~4"]);
    assert_eq!(
        log["checkpoints"][0]["forked_from"],
        json!({ "thread": "research:notes", "checkpoint": source["checkpoint"] })
    );
    assert_eq!(bench.json(&["show", "mine"])["values"], source["values"]);
    let text = bench.text(&["log", "mine"]);
    assert!(text.contains("forked from research:notes@") && text.contains("due: draft"), "{text}");

    let before = bench.disk();
    let twice = bench.annals(&["fork", "research:notes", "--name", "mine", "--json"]);
    assert_eq!((code(&twice), document(&twice.stderr)["error"]["code"].as_str()), (5, Some("thread_exists")));
    assert_eq!(bench.disk(), before);
    let named = bench.json(&["fork", "mine", "--name", "other"]);
    assert_eq!((&named["thread"], &named["forked_from"]["thread"]), (&json!("other"), &json!("mine")));
    assert_eq!(bench.json(&["check"])["problems"], json!([]));
}

#[test]
fn check_counts_and_finds_damage() {
    let bench = Bench::ran();
    let report = bench.json(&["check"]);
    assert_eq!((&report["threads"], &report["checkpoints"]), (&json!(1), &json!(12)));
    assert!(bench.text(&["check"]).contains("no problems"));
    let mut bytes = fs::read(bench.path("store.db")).unwrap();
    // Each copy is changed: SQLite leaves unread ones in pages that it split.
    let needle = b"# What is in notes";
    let places: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(needle)).collect();
    assert!(!places.is_empty(), "the report is in the file");
    places.iter().for_each(|at| bytes[at + 2] = b'w');
    fs::write(bench.path("store.db"), &bytes).unwrap();
    let damaged = bench.annals(&["check", "--json"]);
    assert_eq!(code(&damaged), 4, "{damaged:?}");
    assert!(!document(&damaged.stdout)["problems"].as_array().unwrap().is_empty());
    let problem = &document(&damaged.stdout)["problems"][0];
    assert_eq!((&problem["invariant"], &document(&damaged.stdout)["point"]), (&json!("I4"), &Json::Null));
    let text = bench.annals(&["check"]);
    assert_eq!(code(&text), 4);
    assert!(String::from_utf8(text.stdout).unwrap().contains("problem: I4 payload "));
    assert_eq!(fs::read(bench.path("store.db")).unwrap(), bytes);
}

#[test]
fn check_continues_at_a_point() {
    let bench = Bench::ran();
    let first = bench.json(&["check", "--deep"]);
    let point = first["point"].as_str().unwrap();
    assert!(bench.text(&["check"]).contains(&format!("point {point}; --since continues there")));
    let idle = bench.json(&["check", "--since", point]);
    assert_eq!((&idle["checkpoints"], &idle["point"]), (&json!(0), &json!(point)));
    bench.text(&["fork", "research:notes~4", "--name", "mine"]);
    let newer = bench.json(&["check", "--since", point]);
    assert_eq!((&newer["threads"], &newer["checkpoints"], &newer["problems"]), (&json!(1), &json!(1), &json!([])));
    let other = bench.annals_on("other.db", &["import", "-", "--name", "t"]);
    assert_eq!(code(&other), 0, "{other:?}");
    let foreign = bench.annals_on("other.db", &["check", "--since", point, "--json"]);
    assert_eq!((code(&foreign), document(&foreign.stderr)["error"]["code"].as_str()), (2, Some("usage")));
    for bad in [&["check", "--since", "x"][..], &["check", "--since", point, "--deep"]] {
        assert_eq!(code(&bench.annals(bad)), 2, "{bad:?}");
    }
}

#[test]
fn backup_makes_a_store_and_replaces_no_file() {
    let bench = Bench::ran();
    let copied = bench.annals(&["backup", "copy.db"]);
    assert_eq!((code(&copied), &*copied.stdout), (0, &b"copy.db\n"[..]), "{copied:?}");
    let show = |store: &str| bench.annals_on(store, &["show", "research:notes", "--json"]).stdout;
    assert_eq!(show("copy.db"), show("store.db"));
    assert_eq!(code(&bench.annals_on("copy.db", &["check"])), 0);
    let before = bench.disk();
    let twice = bench.annals(&["backup", "copy.db", "--json"]);
    assert_eq!((code(&twice), document(&twice.stderr)["error"]["code"].as_str()), (5, Some("file_exists")));
    assert_eq!(bench.disk(), before);
    let second = bench.json(&["backup", "second.db"]);
    assert_eq!(second["bytes"], json!(fs::metadata(bench.path("second.db")).unwrap().len()));
}

#[test]
fn reading_changes_nothing_on_the_disk() {
    let bench = Bench::ran();
    // A killed run leaves its write-ahead log, which a reader must not change either.
    let killed = bench.annals_on("killed.db", &["demo", "notes", "--yes", "--kill-after", "3"]);
    assert_eq!(code(&killed), -1);
    let before = bench.disk();
    for store in ["store.db", "killed.db"] {
        for arguments in [
            &["threads"][..],
            &["log", "research:notes"],
            &["show", "research:notes", "--writes"],
            &["diff", "research:notes~1", "research:notes"],
            &["check"],
            &["stats"],
        ] {
            for json in [&[][..], &["--json"]] {
                let output = bench.annals_on(store, &[arguments, json].concat());
                assert_eq!(code(&output), 0, "{store} {arguments:?}: {output:?}");
            }
        }
    }
    let (before, after) = (before, bench.disk());
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    for (name, bytes) in &before {
        // The index of the write-ahead log, shared memory by which processes agree: it holds no data.
        assert!(&after[name] == bytes || name.ends_with("-shm"), "{name}");
    }
}

#[test]
fn bad_files_are_refused_and_left_alone() {
    let bench = Bench::ran();
    let whole = fs::read(bench.path("store.db")).unwrap();
    fs::write(
        bench.path("text.db"),
        "this is a text file, not a store; it is longer than any header is, which is a hundred bytes\n".repeat(3),
    )
    .unwrap();
    fs::write(bench.path("short.db"), "x").unwrap();
    fs::write(bench.path("cut.db"), &whole[..whole.len() / 2]).unwrap();
    let mut newer = whole.clone();
    newer[60..64].copy_from_slice(&99_u32.to_be_bytes());
    fs::write(bench.path("newer.db"), newer).unwrap();
    let before = bench.disk();
    let cases = [
        ("missing.db", 3, "store_not_found"),
        ("text.db", 4, "not_a_store"),
        ("short.db", 4, "not_a_store"),
        ("notes", 4, "not_a_store"),
        ("cut.db", 4, "corrupt"),
        ("newer.db", 6, "newer_format"),
    ];
    for (store, exit, slug) in cases {
        let commands: [&[&str]; 6] = [
            &["threads"],
            &["log", "research:notes"],
            &["show", "research:notes"],
            &["diff", "research:notes"],
            &["check"],
            &["fork", "research:notes", "--name", "new"],
        ];
        for arguments in commands {
            let output = bench.annals_on(store, &[arguments, &["--json"]].concat());
            assert_eq!(code(&output), exit, "{store} {arguments:?}: {output:?}");
            assert_eq!(document(&output.stderr)["error"]["code"], slug, "{store} {arguments:?}");
            assert!(output.stdout.is_empty());
        }
        if store != "missing.db" {
            let demo = bench.annals_on(store, &["demo", "notes", "--yes"]);
            assert_eq!(code(&demo), exit, "{store}: {demo:?}");
        }
    }
    assert!(bench.disk() == before, "no file was changed or created");
}

#[test]
fn missing_things_have_exit_codes_and_hints() {
    let bench = Bench::ran();
    let before = bench.disk();
    let cases: [(&[&str], i32, &str); 9] = [
        (&["log", "nobody"], 3, "thread_not_found"),
        (&["show", "nobody@1f"], 3, "thread_not_found"),
        (&["show", "research:notes@ffff"], 3, "checkpoint_not_found"),
        (&["show", "research:notes@no-id"], 3, "checkpoint_not_found"),
        (&["show", "research:notes~99"], 3, "checkpoint_not_found"),
        (&["show", "research:notes@1"], 2, "ambiguous"),
        (&["fork", "nobody", "--name", "x"], 3, "thread_not_found"),
        (&["fork", "research:notes", "--name", ""], 2, "invalid_id"),
        (&["lgo"], 2, "usage"),
    ];
    for (arguments, exit, slug) in cases {
        let output = bench.annals(&[arguments, &["--json"]].concat());
        assert_eq!(code(&output), exit, "{arguments:?}: {output:?}");
        let error = &document(&output.stderr)["error"];
        assert_eq!(error["code"], slug, "{arguments:?}");
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
    let typo = bench.annals(&["log", "reserch:notes"]);
    assert!(stderr(&typo).contains("did you mean research:notes?"), "{typo:?}");
    assert!(bench.disk() == before);
    let unnamed = run(bench.folder.path(), &["threads"]);
    assert!(code(&unnamed) == 2 && stderr(&unnamed).contains("ANNALS_STORE"), "{unnamed:?}");
    let incomplete = bench.annals(&["log", "--json"]);
    let message = document(&incomplete.stderr)["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("<THREAD>"), "{message}");
    let odd = bench.annals(&["\x1b[31m"]);
    assert!(code(&odd) == 2 && !stderr(&odd).contains('\x1b'), "{odd:?}");
    let by_name = Command::new(env!("CARGO_BIN_EXE_annals"))
        .arg("threads")
        .env("ANNALS_STORE", bench.path("store.db"))
        .output()
        .unwrap();
    assert_eq!(code(&by_name), 0);
    assert_eq!(code(&run(bench.folder.path(), &["--help"])), 0);
}

#[test]
fn the_demo_writes_only_where_it_may() {
    let bench = Bench::new();
    fs::create_dir(bench.path("empty")).unwrap();
    fs::write(bench.path("empty/program.rs"), "fn main() {}").unwrap();
    for (folder, slug) in [("empty", "no_text_files"), ("missing", "folder_not_found")] {
        let output = bench.annals(&["demo", folder, "--json"]);
        assert_eq!((code(&output), document(&output.stderr)["error"]["code"].as_str()), (3, Some(slug)));
    }
    assert!(bench.disk().is_empty(), "no file was created");

    // Somebody else's store.
    let store = Store::open(bench.path("store.db")).unwrap();
    let graph = StateGraph::with_schema(DynSchema::new().last("n").build())
        .node("x", |_: &DynState| Ok(()))
        .edge(START, "x")
        .compile()
        .unwrap();
    graph.invoke(&store.thread("theirs").unwrap(), DynUpdate::new().set("n", 1)).unwrap();
    drop(store);
    let before = bench.disk();
    let refused = bench.annals(&["demo", "notes", "--json"]);
    assert_eq!((code(&refused), document(&refused.stderr)["error"]["code"].as_str()), (7, Some("refused")));
    assert!(bench.disk() == before);
    assert_eq!(bench.json(&["demo", "notes", "--yes"])["status"], "approved");

    fs::create_dir_all(bench.path("elsewhere/notes")).unwrap();
    fs::write(bench.path("elsewhere/notes/a.md"), "other").unwrap();
    let other = bench.annals(&["demo", "elsewhere/notes", "--json"]);
    assert_eq!((code(&other), document(&other.stderr)["error"]["code"].as_str()), (5, Some("conflict")));
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let bench = Bench::ran();
    let mut child = Command::new(env!("CARGO_BIN_EXE_annals"))
        .args(["show", "research:notes", "--json", "--store", "store.db"])
        .current_dir(bench.folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), stderr(&output)), (0, String::new()));
}
