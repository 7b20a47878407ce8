//! Export and import of messages.

use std::fs;

use serde_json::json;

use super::{Bench, code, document, stderr};

#[test]
fn exported_messages_are_imported_again() {
    let bench = Bench::new();
    let chat = json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello\u{1b}"}, 5]);
    fs::write(bench.path("chat.json"), chat.to_string()).unwrap();
    let imported = bench.annals(&["import", "chat.json", "--format", "openai", "--name", "chat"]);
    assert_eq!((code(&imported), String::from_utf8_lossy(&imported.stdout).as_ref()), (0, "chat\n"));
    assert!(stderr(&imported).contains("3 messages imported\n1 were not understood"), "{}", stderr(&imported));

    let exported = bench.annals(&["export", "chat", "--format", "openai"]);
    assert!(!exported.stdout.contains(&0x1b), "no character controls the terminal");
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&exported.stdout).unwrap(), chat);
    assert!(stderr(&exported).contains("the format has no field for: id (2)"), "{}", stderr(&exported));

    let report = bench.json(&["export", "chat", "--lines", "--out", "chat.jsonl"]);
    assert_eq!((&report["messages"], &report["kept"], &report["left_out"]), (&json!(3), &json!(1), &json!({})));
    let text = fs::read_to_string(bench.path("chat.jsonl")).unwrap();
    assert_eq!(text.lines().count(), 3);
    let again = bench.json(&["import", "chat.jsonl", "--name", "again"]);
    assert_eq!((&again["messages"], &again["ids_given"]), (&json!(3), &json!(1)));
    assert_eq!(bench.text(&["export", "again", "--lines"]).lines().count(), 3);
}

#[test]
fn an_empty_list_is_imported_and_exported() {
    let bench = Bench::new();
    fs::write(bench.path("empty.json"), "[]").unwrap();
    assert_eq!(bench.json(&["import", "empty.json", "--name", "empty"])["messages"], json!(0));
    assert_eq!(bench.text(&["export", "empty"]).trim(), "[]");
}

#[test]
fn a_gzip_file_is_refused_and_the_thread_id_stays_free() {
    let bench = Bench::new();
    fs::write(bench.path("chat.json"), b"\x1f\x8b\x08\0").unwrap();
    let packed = bench.annals(&["import", "chat.json", "--name", "chat"]);
    assert_eq!(code(&packed), 4);
    assert!(stderr(&packed).contains("gzip") && !stderr(&packed).contains("hint"), "{}", stderr(&packed));
    fs::write(bench.path("chat.json"), "\u{feff}[]").unwrap();
    assert_eq!(code(&bench.annals(&["import", "chat.json", "--name", "chat"])), 0);
}

#[test]
fn broken_lines_are_skipped_with_lenient() {
    let bench = Bench::new();
    let human = r#"{"type": "human", "content": "a"}"#;
    fs::write(bench.path("chat.jsonl"), format!("[]\n{human}\n{{\"type\"\n{human}\n")).unwrap();
    let strict = bench.annals(&["import", "chat.jsonl", "--lines", "--name", "strict"]);
    assert_eq!(code(&strict), 4);
    assert!(stderr(&strict).contains("line 3") && stderr(&strict).contains("2 messages before"), "{}", stderr(&strict));
    let lenient = bench.annals(&["import", "chat.jsonl", "--lines", "--lenient", "--name", "lenient"]);
    assert_eq!(code(&lenient), 0);
    assert!(stderr(&lenient).contains("3 messages imported"), "{}", stderr(&lenient));
    assert!(stderr(&lenient).contains("1 left out, by line:\n  3: "), "{}", stderr(&lenient));
    let report = bench.json(&["import", "chat.jsonl", "--lines", "--lenient", "--name", "again"]);
    assert_eq!((&report["left_out"]["count"], &report["left_out"]["first"][0]["line"]), (&json!(1), &json!(3)));

    fs::write(bench.path("request.json"), format!("{{\"model\": \"m\", \"messages\": [{human}]}}")).unwrap();
    let whole = bench.annals(&["import", "request.json", "--name", "whole"]);
    assert!(stderr(&whole).contains("1 message imported\nleft out beside the messages: model"), "{}", stderr(&whole));
}

#[test]
fn a_failed_transfer_gives_its_reason() {
    let bench = Bench::new();
    fs::write(bench.path("bad.json"), "[{\"type\": \"human\", \"content\": \"a\"}, {").unwrap();
    let bad = bench.annals(&["import", "bad.json", "--name", "bad", "--json"]);
    assert_eq!((code(&bad), document(&bad.stderr)["error"]["code"].as_str()), (4, Some("not_json")));
    for (arguments, exit, word) in [
        (["import", "bad.json", "--name", "bad"], 5, "exists already"),
        (["import", "none.json", "--name", "new"], 3, "does not exist"),
        (["export", "bad", "--channel", "other"], 3, "holds no list"),
        (["export", "bad", "--out", "bad.json"], 5, "exists already"),
        (["export", "bad", "--format", "word"], 2, "unknown message format"),
    ] {
        let output = bench.annals(&arguments);
        assert_eq!(code(&output), exit, "{arguments:?}: {output:?}");
        assert!(stderr(&output).contains(word), "{arguments:?}: {}", stderr(&output));
    }
}
