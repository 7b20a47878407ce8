//! Maps, texts and folded messages as the command shows them, without their schema.

use annals_graph::annals::history::MessageCompaction;
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

#[test]
fn folded_messages_are_marked_wherever_messages_are_shown() {
    let bench = Bench::new();
    let store = Store::open(bench.path("store.db")).unwrap();
    let thread = store.thread("agent").unwrap();
    thread.append("messages", (0..6).map(|n| Message::human(format!("say {n}")))).unwrap();
    let summary = MessageCompaction::new([Message::system("so far <four> things")]).keep_first(1).keep_last(1);
    thread.compact("messages", summary).unwrap();
    drop((thread, store));

    let text = bench.text(&["show", "agent", "--messages", "4"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 5 && lines[..3].iter().all(|line| line.ends_with("(folded)")), "{text}");
    assert!(lines[3].contains("so far <four> things (the summary") && lines[4].ends_with("say 5"), "{text}");
    let shown = bench.json(&["show", "agent", "--messages", "1"]);
    assert_eq!((&shown["folded"]["from"], &shown["folded"]["to"]), (&json!(1), &json!(5)));
    assert_eq!(shown["folded"]["summary"][0]["content"], "so far <four> things");
    assert_eq!(bench.json(&["show", "agent~1", "--messages", "1"])["folded"], json!(null));

    let hits = bench.json(&["search", "say", "2"]);
    assert_eq!((hits["hits"].as_array().unwrap().len(), &hits["hits"][0]["folded"]), (1, &json!(true)));
    assert!(bench.text(&["search", "say", "2"]).contains("(folded)"));
    assert!(!bench.text(&["search", "say", "5"]).contains("(folded)"));
    for format in ["markdown", "html"] {
        let text = bench.text(&["export", "agent", "--format", format]);
        let (before, after) = text.split_once("folded up to here").expect("the border");
        assert!(before.contains("say 4") && after.contains("so far &lt;four") && after.contains("say 5"), "{text}");
    }
    bench.text(&["undo", "agent"]);
    assert!(!bench.text(&["show", "agent", "--messages", "9"]).contains("(folded)"));
}
