//! Import of the histories of other programs, and their export.

use std::fs;
use std::path::Path;

use serde_json::{Value as Json, json};

use super::{Bench, code, document, stderr};

/// Returns the folder of a fixture.
fn fixture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/agents").join(name);
    folder.to_str().unwrap().to_owned()
}

/// Returns the ids and the numbers of turns of threads.
fn threads(document: &Json) -> Vec<(Json, usize)> {
    let threads = document["threads"].as_array().unwrap().iter();
    let mut threads: Vec<_> =
        threads.map(|thread| (thread["id"].clone(), thread["turns"].as_array().unwrap().len())).collect();
    threads.sort_by_key(|(id, _)| id.to_string());
    threads
}

#[test]
fn the_histories_of_each_program_are_recognised_and_exported() {
    for name in [
        "codex/zstd-stored",
        "claude-code/rewound",
        "goose/many-sessions",
        "opencode/tree",
        "zed/odd-messages",
        "cursor/editor",
        "copilot/helper",
        "cline/roo",
        "adk/sqlite",
        "openai-agents/odd-items",
    ] {
        let bench = Bench::new();
        let input = format!("{}/input", fixture(name));
        let expected: Json =
            serde_json::from_slice(&fs::read(format!("{}/expected.json", fixture(name))).unwrap()).unwrap();
        let imported = bench.json(&["import", &input]);
        assert_eq!(imported["threads"]["new"], json!(expected["threads"].as_array().unwrap().len()), "{name}");
        assert_eq!(imported["not_understood"], expected["not_understood"], "{name}");

        let source = name.split('/').next().unwrap();
        let again = bench.json(&["import", &input, "--from", source]);
        assert_eq!((&again["threads"]["new"], &again["messages"]), (&json!(0), &json!(0)), "{name}");
        let exported = bench.json(&["export", "--all", "--format", "turns-json"]);
        assert_eq!(threads(&exported), threads(&expected), "{name}");
        assert_eq!(exported["not_understood"], expected["not_understood"], "{name}");
    }
}

#[test]
fn an_import_reports_threads_messages_and_records_that_were_not_understood() {
    let bench = Bench::new();
    let imported = bench.annals(&["import", &format!("{}/input", fixture("codex/unknown-kinds"))]);
    assert_eq!(code(&imported), 0);
    let text = String::from_utf8(imported.stdout.clone()).unwrap();
    assert!(text.starts_with("1 thread new, 0 grown, 0 unchanged; "), "{text}");
    let report = stderr(&imported);
    assert!(
        report.contains("not understood, and stored as found:\n") && report.contains("  hologram: 1\n"),
        "{report}"
    );
    assert!(report.contains("event_msg/brand_new_event: 2"), "{report}");
    assert!(!report.contains('\r'), "no progress without a terminal");
    assert!(!report.contains("files without a thread"), "{report}");
}

#[test]
fn an_import_without_a_thread_fails_names_the_files_and_lists_the_programs() {
    let bench = Bench::new();
    let input = format!("{}/input", fixture("chat/nothing-known"));
    for from in [&[][..], &["--from", "chat"]] {
        let failed = bench.annals(&[&["import", &input], from].concat());
        assert_eq!(code(&failed), 1);
        let report = stderr(&failed);
        for name in ["lines.jsonl", "notes/notes.txt", "strange.json", "unknown.db"] {
            assert!(report.contains(&format!("  {name}: unrecognised_file\n")), "{name}: {report}");
        }
        assert!(
            report.contains("no thread was read from") && report.contains("claude-code, goose, opencode"),
            "{report}"
        );
        assert!(!report.contains("stored as found"), "files are not stored: {report}");
    }
    let json = bench.annals(&["--json", "import", &input]);
    assert_eq!((code(&json), &document(&json.stderr)["error"]["code"]), (1, &json!("nothing_imported")));
    let printed = document(&json.stdout);
    assert_eq!(printed["files_without_thread"][0], json!({"file": "lines.jsonl", "kind": "unrecognised_file"}));
    fs::create_dir(bench.path("none")).unwrap();
    assert_eq!(code(&bench.annals(&["import", "none"])), 1, "an empty folder");

    // The second import succeeds: it reads a thread that exists.
    fs::write(bench.path("log.jsonl"), r#"{"role": "user", "content": "hi"}"#).unwrap();
    for _ in 0..2 {
        assert_eq!(code(&bench.annals(&["import", "log.jsonl"])), 0);
    }
}

#[test]
fn threads_are_shown_under_their_first_words_and_beside_their_parents() {
    let bench = Bench::new();
    let imported = bench.json(&["import", &format!("{}/input", fixture("claude-code/helper-meta"))]);
    assert_eq!(imported["files_without_thread"], json!([]));
    let listed = bench.json(&["threads"]);
    let rows = listed["threads"].as_array().unwrap();
    let row = |titled: bool| rows.iter().find(|row| row["title"].is_string() == titled).unwrap();
    let (parent, helper) = (row(false), row(true));
    assert_eq!((&parent["first_words"], &parent["parent"]), (&json!("Let a helper look."), &json!(null)));
    assert_eq!((&helper["title"], &helper["first_words"]), (&json!("Look at the borders"), &json!(null)));
    assert_eq!((&helper["parent"]["thread"], &helper["parent"]["kind"]), (&parent["thread"], &json!("sub")));
    assert!(helper["parent"]["call"].as_str().unwrap().starts_with("toolu_"));
    let table = bench.text(&["threads"]);
    assert!(table.contains("PARENT") && table.contains("Let a helper look."), "{table}");

    // The tree has the helper below the thread whose agent started it.
    let tree = bench.json(&["tree", parent["thread"].as_str().unwrap()])["threads"].clone();
    let shown = |at: usize| (&tree[at]["thread"], &tree[at]["depth"], &tree[at]["parent"]);
    assert_eq!(shown(0), (&parent["thread"], &json!(0), &json!(null)));
    assert_eq!(shown(1), (&helper["thread"], &json!(1), &helper["parent"]));
    let text = bench.text(&["tree", parent["thread"].as_str().unwrap()]);
    assert!(text.lines().nth(1).unwrap().contains("  sub, call toolu_"), "{text}");

    // The checkpoint with the tool call names the helper, and the helper its parent.
    let (above, below) = (parent["thread"].as_str().unwrap(), helper["thread"].as_str().unwrap());
    let log = bench.json(&["log", above]);
    let calling = log["checkpoints"].as_array().unwrap().iter().find(|row| row.get("started").is_some()).unwrap();
    let call = &helper["parent"]["call"];
    assert_eq!(calling["started"], json!([{ "thread": below, "kind": "sub", "call": call }]));
    let point = format!("{above}@{}", calling["checkpoint"].as_str().unwrap());
    assert_eq!(bench.json(&["show", &point])["started"], calling["started"]);
    for command in ["log", "show"] {
        assert_eq!(bench.json(&[command, below])["parent_thread"], helper["parent"], "{command}");
        let text = bench.text(&[command, below]);
        assert!(text.lines().any(|line| line.contains("sub") && line.contains(&format!(" of {above}"))), "{text}");
        let text = bench.text(&[command, if command == "log" { above } else { &point }]);
        assert!(text.contains(&format!("{below}  Look at the borders")), "{text}");
    }

    // A second import writes no link again.
    let size = fs::metadata(bench.path("store.db")).unwrap().len();
    bench.json(&["import", &format!("{}/input", fixture("claude-code/helper-meta"))]);
    assert_eq!(bench.json(&["tree", above])["threads"], tree);
    assert_eq!(fs::metadata(bench.path("store.db")).unwrap().len(), size);

    // Threads of other programs than these have first words as well, and no parent.
    let other = Bench::new();
    fs::write(other.path("trip.json"), r#"[{"type": "human", "content": "Where  is\nBern?"}]"#).unwrap();
    other.json(&["import", "trip.json", "--name", "trip"]);
    let listed = other.json(&["threads"]);
    assert_eq!(listed["threads"][0]["first_words"], json!("Where is Bern?"));
    let table = other.text(&["threads"]);
    assert!(table.contains("Where is Bern?") && !table.contains("PARENT"), "{table}");
}

#[test]
fn an_import_reads_the_folder_and_marks_what_was_joined() {
    let bench = Bench::new();
    bench.json(&["import", &format!("{}/input", fixture("claude-code/dangling-parents"))]);
    let exported = bench.json(&["export", "--all", "--format", "turns-json"]);
    let thread = &exported["threads"][0];
    let expected = fs::read(format!("{}/expected.json", fixture("claude-code/dangling-parents"))).unwrap();
    let expected: Json = serde_json::from_slice(&expected).unwrap();
    assert_eq!((&thread["folder"], thread["folder"].is_string()), (&expected["threads"][0]["folder"], true));
    let turns = thread["turns"].as_array().unwrap().iter().flat_map(|turn| turn["messages"].as_array().unwrap());
    assert_eq!(turns.filter(|message| message["joined"] == true).count(), 2);
    assert_eq!(exported["not_understood"], json!({"missing_parent": 2}));
}

#[test]
fn arguments_of_a_file_of_messages_need_a_name() {
    let bench = Bench::new();
    fs::write(bench.path("chat.json"), r#"[{"role": "user", "content": "hi"}]"#).unwrap();
    assert_eq!(bench.json(&["import", "chat.json"])["threads"]["new"], json!(1));
    for arguments in [
        &["import", "chat.json", "--format", "openai"][..],
        &["import", "chat.json", "--lenient"],
        &["import", "chat.json", "--name", "chat", "--from", "chat"],
        &["import", "chat.json", "--from", "teletype"],
        &["import", "-"],
        &["export", "--all"],
        &["export", "chat", "--site", "pages"],
        &["export", "--all", "--site", "pages", "--format", "html"],
        &["export"],
        &["export", "chat", "--format", "turns-json"],
    ] {
        let refused = bench.annals(&[arguments, &["--json"]].concat());
        let error = document(&refused.stderr);
        assert!(matches!(code(&refused), 2), "{arguments:?}: {error}");
    }
    let missing = bench.annals(&["import", "nowhere"]);
    assert_eq!(code(&missing), 3, "{}", stderr(&missing));
}

/// Copies a folder.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() { copy(&path, &target) } else { _ = fs::copy(&path, target).unwrap() }
    }
}

/// Runs the command with a home folder in the folder of the bench.
fn at_home(bench: &Bench, arguments: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_annals"));
    command.args(arguments).current_dir(bench.path(".")).env("ANNALS_STORE", bench.path("store.db"));
    command.env("HOME", bench.path("home")).env("CODEX_HOME", bench.path("codex"));
    for name in ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR", "HERMES_HOME", "OPENCLAW_STATE_DIR"] {
        command.env_remove(name);
    }
    command
}

#[cfg(target_os = "linux")]
#[test]
fn an_import_without_a_path_finds_the_histories_of_this_machine() {
    let bench = Bench::new();
    for (name, from, to) in [
        ("codex/basic", "sessions", "codex/sessions"),
        ("claude-code/basic", "projects", "home/.claude/projects"),
        ("pi/basic", "agent/sessions", "home/.pi/agent/sessions"),
        ("cursor/editor", "User", "home/.config/Cursor/User"),
        ("hermes/state", "", "home/.hermes/profiles/coder"),
    ] {
        copy(&Path::new(&fixture(name)).join("input").join(from), &bench.path(to));
    }
    let refused = at_home(&bench, &["import"]).output().unwrap();
    assert_eq!(code(&refused), 7);
    let report = stderr(&refused);
    assert!(report.contains("the histories of 5 programs would be imported; nothing was changed"), "{report}");
    assert!(report.contains("claude-code") && report.contains("~/.claude/projects/-home-user-project"), "{report}");
    assert!(report.contains("repeat it with --yes, or name a file or folder"), "{report}");
    assert!(!bench.path("store.db").exists(), "a store was made");

    let imported = at_home(&bench, &["--json", "import", "--yes"]).output().unwrap();
    assert_eq!(code(&imported), 0, "{}", stderr(&imported));
    let first = document(&imported.stdout);
    assert_eq!(first["threads"]["new"], json!(7), "one of each, and two more of Hermes");
    assert_eq!(first["files_without_thread"], json!([]));
    let again = document(&at_home(&bench, &["--json", "import", "--yes"]).output().unwrap().stdout);
    assert_eq!((&again["threads"]["unchanged"], &again["messages"]), (&json!(7), &json!(0)));
    let one = document(&at_home(&bench, &["--json", "import", "--yes", "--from", "pi"]).output().unwrap().stdout);
    assert_eq!(one["threads"]["unchanged"], json!(1));
    let none = at_home(&bench, &["import", "--yes", "--from", "zed"]).output().unwrap();
    assert_eq!(code(&none), 1);
    assert!(stderr(&none).contains("no history was found on this machine"), "{}", stderr(&none));
}

#[test]
fn a_watched_file_is_imported_as_it_grows_and_nothing_twice() {
    use std::io::{BufRead as _, BufReader, Write as _};
    let bench = Bench::new();
    fs::write(bench.path("log.jsonl"), "{\"role\": \"user\", \"content\": \"hi\"}\n").unwrap();
    let start = || {
        let mut command = at_home(&bench, &["import", "log.jsonl", "--watch"]);
        let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        (child, lines)
    };
    let (mut child, mut lines) = start();
    assert_eq!(lines.next().unwrap().unwrap(), "1 thread new, 0 grown, 0 unchanged; 1 message imported");
    let mut file = fs::OpenOptions::new().append(true).open(bench.path("log.jsonl")).unwrap();
    file.write_all(b"{\"role\": \"assistant\", \"content\": \"hello\"}\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "0 threads new, 1 grown, 0 unchanged; 1 message imported");
    child.kill().unwrap();
    child.wait().unwrap();

    file.write_all(b"{\"role\": \"user\", \"content\": \"bye\"}\n").unwrap();
    let (mut child, mut lines) = start();
    let after_kill = lines.next().unwrap().unwrap();
    assert_eq!(after_kill, "0 threads new, 1 grown, 0 unchanged; 1 message imported");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(bench.json(&["import", "log.jsonl"])["threads"], json!({"new": 0, "grown": 0, "unchanged": 1}));
}

#[test]
fn secrets_are_replaced_and_counted() {
    let bench = Bench::new();
    let key = format!("ghp_{}", "a1".repeat(18));
    let line = json!({"role": "user", "content": format!("my key is {key}.")});
    fs::write(bench.path("log.jsonl"), format!("{line}\n")).unwrap();
    let imported = bench.json(&["import", "log.jsonl", "--redact"]);
    assert_eq!((&imported["redacted"], &imported["messages"]), (&json!(1), &json!(1)));
    let exported = bench.json(&["export", "--all", "--format", "turns-json"]);
    assert_eq!(exported["threads"][0]["turns"][0]["messages"][0]["text"], "my key is [redacted: github].");
    assert_eq!(bench.json(&["import", "log.jsonl", "--redact"])["threads"]["unchanged"], json!(1));
}
