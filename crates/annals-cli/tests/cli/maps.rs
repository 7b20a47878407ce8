//! Maps and texts as the command shows them, without their schema.

use annals_graph::prelude::*;
use serde_json::json;

use super::Bench;

#[test]
fn a_difference_shows_entries_and_the_appended_text() {
    let bench = Bench::new();
    let store = Store::open(bench.path("store.db")).unwrap();
    let thread = store.thread("agent").unwrap();
    thread.write().put("files", "a.rs", "one").put("files", "b.rs", 2).append_text("log", "begun").commit().unwrap();
    thread.write().put("files", "b.rs", 3).remove("files", "a.rs").append_text("log", "; ended").commit().unwrap();
    drop((thread, store));

    let shown = bench.json(&["show", "agent"]);
    assert_eq!((&shown["values"]["files"], &shown["values"]["log"]), (&json!({"b.rs": 3}), &json!("begun; ended")));
    let found = bench.json(&["diff", "agent"]);
    let entries = json!([{"key": "a.rs", "before": "one"}, {"key": "b.rs", "before": 2, "after": 3}]);
    let expected = json!([
        {"channel": "files", "kind": "entries", "entries": entries},
        {"channel": "log", "kind": "appended", "text": "; ended"},
    ]);
    assert_eq!(found["channels"], expected);
    let text = bench.text(&["diff", "agent"]);
    assert!(
        text.contains("- /a.rs: \"one\"\n") && text.contains("  + /b.rs: 3\n") && text.contains("; ended"),
        "{text}"
    );
    let stat = bench.text(&["diff", "agent", "--stat"]);
    assert!(stat.contains("1 removed, 1 changed") && stat.contains("7 bytes appended"), "{stat}");
}
