//! Databases of LangGraph's SQLite saver: import, what the other verbs show of them, and export.

use std::path::Path;
use std::process::Output;

use serde_json::json;

use super::{Bench, code, stderr};

fn database(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/checkpoint").join(name);
    path.to_str().unwrap().to_owned()
}

fn stdout(output: &Output) -> String {
    assert_eq!(code(output), 0, "{}", stderr(output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_database_of_langgraph_is_imported_shown_and_exported() {
    let bench = Bench::new();
    let source = database("chat_30_turns.sqlite");
    let imported = bench.json(&["import", &source, "--from", "langgraph"]);
    assert_eq!((&imported["threads"], &imported["refused"]["count"]), (&json!(2), &json!(0)), "{imported}");
    let checkpoints = imported["checkpoints"]["new"].as_u64().unwrap();
    let bytes = |name: &str| imported["bytes"][name].as_u64().unwrap();
    assert!(checkpoints > 60 && bytes("after") < bytes("source"), "{imported}");
    // Recognised by its tables, and stored already.
    let again = bench.json(&["import", &source]);
    assert_eq!(again["checkpoints"], json!({ "new": 0, "unchanged": checkpoints }));

    let log = stdout(&bench.annals(&["log", "chat", "-n", "3"]));
    assert!(log.contains("loop") && log.contains("message"), "{log}");
    let shown = stdout(&bench.annals(&["show", "chat"]));
    assert!(shown.contains("human") && shown.contains("ai"), "{shown}");
    let difference = stdout(&bench.annals(&["diff", "chat@~1", "chat"]));
    assert!(difference.contains("messages"), "{difference}");
    let found = stdout(&bench.annals(&["search", "Question"]));
    assert!(found.contains("chat"), "{found}");
    let blame = bench.annals(&["blame", "chat", "messages"]);
    assert_eq!(code(&blame), 0, "{}", stderr(&blame));

    let file = bench.path("out.sqlite");
    let file = file.to_str().unwrap();
    let exported = bench.json(&["export", "--all", "--to", "langgraph-sqlite", "--out", file]);
    assert_eq!((&exported["threads"], &exported["checkpoints"]), (&json!(2), &json!(checkpoints)));
    let refused = bench.annals(&["export", "--all", "--to", "langgraph-sqlite", "--out", file]);
    assert_eq!(code(&refused), 5, "{}", stderr(&refused));
    let document = bench.json(&["export", "chat", "--to", "langgraph-json"]);
    assert!(document["threads"]["chat"]["tuples"][0]["channel_values"]["messages"][0]["$pydantic"].is_array());
}

#[test]
fn a_file_that_langgraph_did_not_write_is_refused() {
    let bench = Bench::new();
    let refused = bench.annals(&["import", &database("chat_30_turns.json"), "--from", "langgraph"]);
    assert_eq!(code(&refused), 1);
    assert!(stderr(&refused).contains("chat_30_turns.json cannot be read"), "{}", stderr(&refused));
    let refused = bench.annals(&["import", "absent.sqlite", "--from", "langgraph"]);
    assert_ne!(code(&refused), 0);
    assert!(stderr(&refused).contains("does not exist"), "{}", stderr(&refused));
    bench.json(&["import", &database("forks.sqlite")]);
    let refused = bench.annals(&["export", "--all", "--to", "langgraph-sqlite"]);
    assert_eq!(code(&refused), 2, "{}", stderr(&refused));
}
