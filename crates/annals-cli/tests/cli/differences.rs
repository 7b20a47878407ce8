//! `annals diff`, with `--messages` and `--patch` as well.

use annals::base::Value;
use annals::history::Patch;

use super::verbs::trip;
use super::*;

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
    city: String,
}

/// A bench with a thread whose messages are added, edited, removed and moved.
fn chat() -> Bench {
    let bench = Bench::new();
    let store = Store::open(bench.path("store.db")).unwrap();
    let thread = store.thread("chat").unwrap();
    let write = |messages: Vec<Message>| _ = thread.update(Chat::update().messages(messages)).unwrap();
    let say = |id: &str, text: &str| Message::human(text).with_id(id);
    write(vec![say("a", "one"), say("b", "two\nlines"), say("c", "three")]);
    write(vec![say("c", "drei")]);
    write(vec![Message::remove("a"), say("d", "four")]);
    write(vec![Message::remove("b")]);
    write(vec![say("b", "zwei")]);
    thread.update(Chat::update().city("Bern")).unwrap();
    bench
}

#[test]
fn diff_compares_points_and_parents() {
    let bench = Bench::ran();
    let end = bench.json(&["demo"])["end"].as_str().unwrap().to_owned();
    let first = format!("research:notes@{end}");
    let found = bench.json(&["diff", &first, "research:notes"]);
    let kind = |name: &str| found["channels"].as_array().unwrap().iter().find(|c| c["channel"] == name).cloned();
    assert_eq!(kind("top_terms").unwrap()["after"], 3);
    let messages = kind("messages").unwrap();
    assert_eq!((messages["kind"].as_str(), messages["changed"].as_array().unwrap().len()), (Some("items"), 1));
    assert_eq!(kind("notes"), None, "equal channels are left out");
    assert_eq!(found["before"]["checkpoint"], json!(end));

    let stat = bench.text(&["diff", &first, "research:notes", "--stat"]);
    assert!(stat.contains("messages      1 changed\n") && stat.contains("channels unchanged"), "{stat}");
    let text = bench.text(&["diff", &first, "research:notes"]);
    assert!(text.starts_with("--- research:notes@") && text.contains("top_terms: changed\n  8 -> 3\n"), "{text}");

    let one = bench.json(&["diff", "research:notes~3"]);
    assert_eq!(one["channels"][0]["channel"], "top_terms", "one point is compared with its parent");
    assert_eq!(one["channels"].as_array().unwrap().len(), 1);
    let oldest = bench.json(&["diff", "research:notes~7"]);
    assert_eq!(oldest["before"]["checkpoint"], bench.json(&["show", "research:notes~8"])["checkpoint"]);
    assert_eq!(bench.json(&["diff", "research:notes~8"])["before"], Json::Null, "the first has no parent");

    assert_eq!(code(&bench.annals(&["diff", &first, "research:notes", "--exit-code"])), 1);
    let same = bench.annals(&["diff", &first, &first, "--exit-code"]);
    assert_eq!((code(&same), String::from_utf8(same.stdout).unwrap().contains("no differences")), (0, true));
}

#[test]
fn messages_that_differ_are_one_line_each() {
    let bench = chat();
    let found = bench.json(&["diff", "chat~5", "chat", "--messages"]);
    let rows: Vec<Json> = found["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            json!([row["change"], row["id"], row["from"], row["to"], row["before"]["content"], row["after"]["content"]])
        })
        .collect();
    let expected = json!([
        ["removed", "a", 0, null, "one", null],
        ["edited", "c", 2, 0, "three", "drei"],
        ["moved", "b", 1, 2, "two\nlines", "zwei"],
        ["added", "d", null, 1, null, "four"],
    ]);
    assert_eq!(json!(rows), expected);
    let text = bench.text(&["diff", "chat~5", "chat", "--messages"]);
    let lines: Vec<&str> = text.lines().skip(2).collect();
    assert_eq!(
        lines,
        [
            "-  [0]       messages#a  human  one",
            "~  [2 to 0]  messages#c  human  drei",
            ">  [1 to 2]  messages#b  human  zwei (edited)",
            "+  [1]       messages#d  human  four",
        ]
    );
    assert!(text.starts_with("--- chat@"), "{text}");

    assert_eq!(code(&bench.annals(&["diff", "chat~5", "chat", "--messages", "--exit-code"])), 1);
    let other = bench.annals(&["diff", "chat", "--messages", "--exit-code"]);
    assert_eq!(code(&other), 0, "the city is not a message: {other:?}");
    assert!(String::from_utf8(other.stdout).unwrap().ends_with("no message differs\n"));
    let first = bench.json(&["diff", "chat~5", "--messages"]);
    assert_eq!((first["messages"].as_array().unwrap().len(), &first["before"]), (3, &Json::Null));
    let lines = bench.text(&["diff", "chat~5", "--messages", "--jsonl"]);
    assert_eq!(lines.lines().count(), 3, "{lines}");
    for wrong in [&["--patch"][..], &["--stat"], &["--messages"]] {
        assert_eq!(code(&bench.annals(&[&["diff", "chat", "--messages"], wrong].concat())), 2, "{wrong:?}");
    }
}

/// Compares each two of the last points of a thread: the patch makes the values of the one of those of the other.
fn compare(bench: &Bench, thread: &str, points: usize) {
    let mut all = vec![(None, json!({}))];
    for back in (0..points).rev() {
        let point = format!("{thread}~{back}");
        let values = bench.json(&["show", &point])["values"].clone();
        all.push((Some(point), values));
    }
    let oldest = bench.json(&["diff", &format!("{thread}~{}", points - 1), "--patch"]);
    assert_eq!(oldest["before"], Json::Null, "all points of the lineage are compared");
    let mut operations = 0;
    for (before, old) in &all {
        for (after, new) in &all {
            let patch = match (before, after) {
                (_, None) => continue,
                (None, Some(_)) if *new == all[1].1 => oldest["patch"].clone(),
                (None, Some(_)) => continue,
                (Some(before), Some(after)) => bench.json(&["diff", before, after, "--patch"])["patch"].clone(),
            };
            operations += patch.as_array().unwrap().len();
            let patched = Patch::from_json(&patch).unwrap().apply(&Value::from(old.clone())).unwrap();
            assert_eq!(patched.to_json(), *new, "{before:?} to {after:?}: {patch}");
        }
    }
    assert!(operations > 2 * points, "{thread}: {operations} operations");
}

#[test]
fn a_patch_makes_the_values_of_one_point_of_those_of_another() {
    compare(&chat(), "chat", 6);
    compare(&trip(), "trip", 4);
    let demo = Bench::ran();
    compare(&demo, "research:notes", 9);

    let bench = Bench::new();
    let store = Store::open(bench.path("store.db")).unwrap();
    let thread = store.thread("agent").unwrap();
    thread.write().put("files", "a/~.rs", "one").put("files", "b.rs", 2).append_text("log", "begun").commit().unwrap();
    thread.write().put("files", "b.rs", 3).remove("files", "a/~.rs").append_text("log", "; ended").commit().unwrap();
    thread.write().remove("files", "b.rs").set("plan", Value::Bytes(vec![1, 2])).commit().unwrap();
    let plan = Value::from(json!({ "a/b": [1, { "c": null }], "~": 1.5 }));
    thread.write().put("files", "c.rs", json!({ "d": [1] })).set("plan", plan).commit().unwrap();
    thread.write().put("files", "c.rs", json!({ "d": [2] })).set("plan", i64::MAX).commit().unwrap();
    drop((thread, store));
    compare(&bench, "agent", 5);
}

#[test]
fn the_patch_is_the_whole_output() {
    let bench = trip();
    let text = bench.text(&["diff", "trip", "--patch"]);
    let patch: Json = serde_json::from_str(&text).unwrap();
    assert_eq!(patch[1], json!({ "op": "replace", "path": "/plan/days/1", "value": 3 }));
    assert_eq!((&patch[0]["op"], &patch[0]["path"]), (&json!("add"), &json!("/messages/2")));
    let whole = bench.json(&["diff", "trip", "--patch"]);
    assert_eq!((&whole["patch"], whole["before"]["thread"].as_str()), (&patch, Some("trip")));
    assert_eq!(bench.text(&["diff", "trip", "trip", "--patch", "--exit-code"]), "[]\n");
    assert_eq!(code(&bench.annals(&["diff", "trip", "--patch", "--exit-code"])), 1);
    assert_eq!(code(&bench.annals(&["diff", "trip", "--patch", "--stat"])), 2);
}
