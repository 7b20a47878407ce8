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
    for name in ["codex/zstd-stored", "claude-code/rewound", "goose/many-sessions", "opencode/tree", "zed/odd-messages"]
    {
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
