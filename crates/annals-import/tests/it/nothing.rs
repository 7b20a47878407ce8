//! Nothing is imported as nothing: texts in unknown fields, unrecognised files, lines without a message, broken chains.

use std::fs;
use std::path::Path;

use annals::message::first_words;
use annals::prelude::*;
use annals_import::{ImportSummary, Importer, SourceKind};
use serde_json::{Value as Json, json};

use crate::fixtures::read;

/// Imports files, each with its name and its content, and returns the result and the document of a reader.
fn imported(files: &[(&str, String)]) -> (ImportSummary, Json) {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let store = Store::memory();
    let summary = Importer::new(&store).run(folder.path()).unwrap();
    let document = read(folder.path(), None);
    assert_eq!(
        json!(summary.not_understood),
        document["not_understood"],
        "the counts of a store are those of a reader"
    );
    (summary, document)
}

/// Returns the texts of the main line of a thread.
fn texts(thread: &Json) -> Vec<String> {
    let turns = thread["turns"].as_array().unwrap().iter().flat_map(|turn| turn["messages"].as_array().unwrap());
    turns.map(|message| message["text"].as_str().unwrap().to_owned()).collect()
}

fn lines(records: &[Json]) -> String {
    records.iter().map(|record| format!("{record}\n")).collect()
}

fn named(summary: &ImportSummary) -> Vec<(&str, &str, bool)> {
    let files = summary.files_without_thread.iter();
    files.map(|of| (of.file.as_str(), of.kind.as_str(), of.is_whole)).collect()
}

#[test]
fn a_part_without_the_field_that_holds_its_text_is_counted_and_retained() {
    let part = json!({"type": "text", "body": "where?"});
    let role = |content: Json| json!({"role": "user", "content": content});
    let transcript = |content: Json| {
        let message = json!({"role": "user", "content": content});
        json!({"uuid": "u", "parentUuid": null, "sessionId": "s", "type": "user", "message": message})
    };
    let head = json!({"timestamp": "2026-03-02T00:00:00Z", "type": "session_meta", "payload": {"id": "c"}});
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "body": "where?"}]});
    let goose = json!({"role": "user", "created": 1, "content": [part]});
    for (name, content, kind) in [
        ("log.jsonl", lines(&[role(json!([part]))]), "part/text"),
        ("s.jsonl", lines(&[transcript(json!([part]))]), "part/text"),
        ("goose.jsonl", lines(&[json!({"working_dir": "/a", "description": "d"}), goose]), "part/text"),
        ("rollout.jsonl", lines(&[head, json!({"type": "response_item", "payload": item})]), "part/input_text"),
    ] {
        let (summary, document) = imported(&[(name, content)]);
        assert_eq!(summary.not_understood.get(kind), Some(&1), "{name}: {:?}", summary.not_understood);
        assert_eq!((summary.threads_new, texts(&document["threads"][0])), (1, vec![String::new()]), "{name}");
    }
    // A text that is null, or empty, is none: nothing was lost.
    for text in [json!(null), json!("")] {
        let (summary, _) = imported(&[("log.jsonl", lines(&[role(json!([{"type": "text", "text": text}]))]))]);
        assert!(summary.not_understood.is_empty(), "{:?}", summary.not_understood);
    }
}

#[test]
fn messages_of_parts_in_the_envelope_of_claude_code_are_not_taken_for_its_own() {
    let record = |uuid: &str, parent: Json, role: &str, text: &str| {
        let message = json!({"role": role, "parts": [{"text": text}]});
        json!({"uuid": uuid, "parentUuid": parent, "sessionId": "q", "type": role, "message": message})
    };
    let session = lines(&[record("a", json!(null), "user", "hello"), record("b", json!("a"), "assistant", "hi")]);
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("q.jsonl"), session).unwrap();
    let import = |source| Importer::new(&Store::memory()).only(source).run(folder.path()).unwrap();
    let summary = import(SourceKind::ClaudeCode);
    assert_eq!(named(&summary), [("q.jsonl", "unrecognised_file", true)]);
    assert_eq!(import(SourceKind::Qwen).threads(), 1);
}

#[test]
fn a_line_in_ten_that_is_no_message_does_not_refuse_a_chat() {
    let mut records: Vec<Json> = (0..44).map(|n| json!({"role": "user", "content": format!("line {n}")})).collect();
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}});
    records[40] = json!({"role": "assistant", "tool_calls": [call]});
    let (summary, document) = imported(&[("log.jsonl", lines(&records))]);
    assert_eq!((summary.messages, summary.not_understood.len()), (44, 0), "a call needs no content");
    let turns = document["threads"][0]["turns"].as_array().unwrap();
    let message = turns.iter().flat_map(|turn| turn["messages"].as_array().unwrap()).nth(40).unwrap();
    assert_eq!(message["tool_calls"][0]["args"], json!({"a": 1}));

    records[7] = json!({"model": "m"});
    let (summary, _) = imported(&[("log.jsonl", lines(&records))]);
    assert_eq!((summary.messages, summary.not_understood.get("record")), (43, Some(&1)));
    // Other lines outnumber the messages here, so the file is unrecognised.
    let (summary, _) = imported(&[("log.jsonl", lines(&records[6..9]))]);
    assert_eq!((summary.threads(), summary.not_understood.get("unrecognised_file")), (0, Some(&1)));
}

#[test]
fn each_file_without_a_thread_is_named_with_its_kind() {
    let narrator = json!({"role": "narrator", "content": "Meanwhile."});
    let (summary, document) = imported(&[
        ("a/strange.json", "{\"loglines\": []}".to_owned()),
        ("empty.jsonl", String::new()),
        ("narrated.jsonl", lines(std::slice::from_ref(&narrator))),
        ("talk.jsonl", lines(&[json!({"role": "user", "content": "hi"}), narrator])),
        ("nobody.json", "[{\"conversations\": 5}]".to_owned()),
    ]);
    assert_eq!(
        named(&summary),
        [
            ("a/strange.json", "unrecognised_file", true),
            ("empty.jsonl", "empty_file", true),
            ("nobody.json", "unrecognised_file", true),
            ("narrated.jsonl", "role/narrator", false),
        ]
    );
    assert_eq!(document["threads"].as_array().unwrap().len(), 1);
    assert_eq!(json!(summary.records_not_understood()), json!({"role/narrator": 2}));
}

/// Returns a record of a transcript with a text.
fn record(uuid: &str, parent: Option<&str>, kind: &str, more: &Json) -> Json {
    let mut record = json!({"uuid": uuid, "parentUuid": parent, "sessionId": "s", "type": kind, "cwd": "/srv/me",
        "message": {"role": kind, "content": uuid}});
    record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    record
}

#[test]
fn a_parent_in_no_record_is_replaced_by_the_record_before_and_the_message_is_marked() {
    let none = json!({});
    let boundary = json!({"subtype": "compact_boundary", "logicalParentUuid": "nowhere", "message": null});
    let (summary, document) = imported(&[(
        "s.jsonl",
        lines(&[
            // With no record before it, it is a root.
            record("one", Some("gone"), "user", &none),
            record("two", Some("one"), "assistant", &none),
            record("three", Some("lost"), "user", &none),
            record("four", Some("three"), "assistant", &none),
            record("cut", None, "system", &boundary),
            record("five", Some("cut"), "user", &none),
            // A child may stand before its parent.
            record("seven", Some("six"), "user", &none),
            record("six", Some("five"), "assistant", &none),
        ]),
    )]);
    let thread = &document["threads"][0];
    assert_eq!(texts(thread), ["one", "two", "three", "four", "five", "six"]);
    assert_eq!(thread["folder"], "/srv/me");
    let messages = thread["turns"].as_array().unwrap().iter().flat_map(|turn| turn["messages"].as_array().unwrap());
    let joined: Vec<&str> = messages.filter(|of| of["joined"] == true).map(|of| of["text"].as_str().unwrap()).collect();
    assert_eq!(joined, ["three", "five"], "of the boundary the first message below it has the mark");
    assert_eq!(summary.not_understood.get("missing_parent"), Some(&2));
    // The newest record leads the main line; what hangs on it without being above it is a branch.
    assert_eq!(thread["branches"][0]["after"], 6);
    assert_eq!(summary.threads_new, 1);
}

#[test]
fn records_of_helpers_are_joined_to_their_own_and_chains_that_bite_their_tail_end() {
    let side = |agent: &str| json!({"isSidechain": true, "agentId": agent});
    let (summary, document) = imported(&[(
        "s.jsonl",
        lines(&[
            record("a", None, "user", &json!({})),
            record("x1", None, "user", &side("x")),
            record("y1", None, "user", &side("y")),
            record("x2", Some("lost"), "assistant", &side("x")),
            record("b", Some("a"), "assistant", &json!({})),
        ]),
    )]);
    let of = |id: &str| {
        let threads = document["threads"].as_array().unwrap();
        texts(threads.iter().find(|thread| thread["id"] == id).unwrap())
    };
    assert_eq!(
        (of("s"), of("x1"), of("y1")),
        (vec!["a".into(), "b".into()], vec!["x1".into(), "x2".into()], vec!["y1".into()])
    );
    assert_eq!(summary.not_understood.get("missing_parent"), Some(&1));

    // The record before the dangling one hangs on it itself: joining them would cut both off.
    let (_, document) = imported(&[(
        "s.jsonl",
        lines(&[record("b", Some("c"), "assistant", &json!({})), record("c", Some("lost"), "user", &json!({}))]),
    )]);
    assert_eq!(texts(&document["threads"][0]), ["c"], "the line of the newest record");
    assert_eq!(document["threads"][0]["branches"][0]["turns"][0]["messages"][0]["text"], "b");
}

#[test]
fn a_long_chain_of_broken_links_is_read_in_time_that_follows_its_length() {
    let system = json!({"message": null});
    let mut records: Vec<Json> =
        (0..6_000).map(|n| record(&format!("r{n}"), Some("lost"), "system", &system)).collect();
    records.insert(0, record("first", None, "user", &json!({})));
    records.push(record("last", Some("lost"), "user", &json!({})));
    let (summary, document) = imported(&[("s.jsonl", lines(&records))]);
    assert_eq!(texts(&document["threads"][0]), ["first", "last"]);
    assert_eq!(summary.not_understood.get("missing_parent"), Some(&6_001));
}

#[test]
fn a_helper_is_linked_and_titled_by_the_file_beside_it() {
    let at = "s/agents/agent-h";
    let (_, document) = imported(&[
        ("s.jsonl", lines(&[record("a", None, "user", &json!({}))])),
        (&format!("{at}.jsonl"), lines(&[record("h1", None, "user", &json!({"isSidechain": true}))])),
        (&format!("{at}.meta.json"), json!({"description": "Look at the borders"}).to_string()),
    ]);
    let threads = document["threads"].as_array().unwrap();
    assert_eq!((threads.len(), &threads[1]["title"]), (2, &json!("Look at the borders")));
    assert_eq!(threads[1]["parent"], json!({"id": "s", "kind": "sub"}));
    assert_eq!(document["not_understood"], json!({}), "the file beside the helper is no stranger");
}

#[test]
fn a_compaction_without_a_text_makes_no_message() {
    let summary = json!({"isCompactSummary": true, "message": {"role": "user", "content": ""}});
    let (_, document) = imported(&[(
        "s.jsonl",
        lines(&[
            record("a", None, "user", &json!({})),
            record("s", Some("a"), "user", &summary),
            record("b", Some("s"), "assistant", &json!({})),
        ]),
    )]);
    assert_eq!(texts(&document["threads"][0]), ["a", "b"]);
}

#[test]
fn first_words_are_cut_between_words() {
    assert_eq!(first_words(&"x".repeat(80)), Some("x".repeat(80)));
    assert_eq!(first_words(&"ä".repeat(81)), Some("ä".repeat(80) + "…"));
    // A blank that is the 81st character ends the words before it.
    let exact = "a".repeat(39) + " " + &"b".repeat(40);
    assert_eq!(first_words(&format!("{exact} c")), Some(exact.clone() + "…"));
    assert_eq!(first_words(&format!("{exact}c")), Some("a".repeat(39) + "…"));
    assert_eq!(first_words(&format!("\n {exact}\t")), Some(exact));
    // A thread without a human message has none, and one with a title is shown under that.
    let conversation = |title: Json, role: &str| {
        let message =
            json!({"author": {"role": role}, "content": {"content_type": "text", "parts": ["  hi   there "]}});
        json!([{"id": "c", "title": title, "mapping": {"n": {"message": message}}}]).to_string()
    };
    for (title, role, words) in [
        (json!(null), "user", json!("hi there")),
        (json!("A"), "user", json!(null)),
        (json!(null), "system", json!(null)),
    ] {
        let (_, document) = imported(&[("conversations.json", conversation(title, role))]);
        assert_eq!(document["threads"][0]["first_words"], words);
    }
}

/// Makes a database of OpenCode 2 with these rows: session, and type and data of its messages.
fn second_generation(path: &Path, rows: &[(&str, &str, Json)]) {
    let connection = annals::rusqlite::Connection::open(path).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE session_v2 (id TEXT PRIMARY KEY, parent_id TEXT, fork_session_id TEXT, directory TEXT,
             title TEXT, revert TEXT, time_created INTEGER);
             CREATE TABLE session_message (id TEXT PRIMARY KEY, session_id TEXT, type TEXT, seq INTEGER,
             time_created INTEGER, data TEXT);
             INSERT INTO session_v2 VALUES ('trunk', NULL, NULL, 'file:///srv/a%20b', 'Trunk', NULL, 1),
             ('fork', NULL, 'trunk', NULL, NULL, '{\"messageID\": \"undone\"}', 2), ('none', NULL, NULL, NULL, NULL, NULL, 3)",
        )
        .unwrap();
    for (seq, (session, kind, data)) in rows.iter().enumerate() {
        let id = data["id"].as_str().map_or_else(|| format!("{session}-{seq}"), str::to_owned);
        let sql = "INSERT INTO session_message VALUES (?1, ?2, ?3, ?4, ?4, ?5)";
        connection.execute(sql, (id, session, kind, seq as i64, data.to_string())).unwrap();
    }
}

#[test]
fn a_fork_of_the_second_opencode_has_ids_of_its_own_and_an_undone_tail_is_a_branch() {
    let folder = tempfile::tempdir().unwrap();
    let said = |text: &str| json!({"content": [{"type": "text", "text": text}]});
    let asked = |text: &str| json!({"text": text});
    second_generation(
        &folder.path().join("opencode.db"),
        &[
            ("trunk", "user", asked("one")),
            ("trunk", "assistant", said("two")),
            ("fork", "user", asked("one")),
            ("fork", "assistant", said("two")),
            ("fork", "user", asked("three")),
            ("fork", "user", json!({"id": "undone", "text": "four"})),
            ("stray", "user", json!({"body": "lost"})),
        ],
    );
    let document = read(folder.path(), None);
    let threads = document["threads"].as_array().unwrap();
    let of = |id: &str| threads.iter().find(|thread| thread["id"] == id).unwrap();
    assert_eq!(threads.len(), 3, "a session without rows makes no thread, and rows without a session do");
    assert_eq!(of("trunk")["folder"], "/srv/a b");
    let fork = of("fork");
    assert_eq!(fork["parent"], json!({"id": "trunk", "kind": "fork", "messages": 2}));
    assert_eq!(texts(fork), ["one", "two", "three"]);
    assert_eq!(fork["turns"][0]["messages"][0]["id"], "fork-2");
    assert_eq!(fork["branches"][0]["turns"][0]["messages"][0]["text"], "four");
    assert_eq!(document["not_understood"], json!({"part/user": 1}));
}

#[test]
fn messages_of_a_tree_whose_session_has_no_file_are_reported() {
    let session = json!({"id": "ses_2", "title": "T", "time": {"created": 1}});
    let message = json!({"role": "user", "time": {"created": 2}});
    let (summary, document) = imported(&[
        ("storage/session/p/ses_1.json", session.to_string()),
        ("storage/message/ses_2/m.json", message.to_string()),
        ("storage/part/m/p.json", json!({"type": "text", "text": "hi"}).to_string()),
    ]);
    assert_eq!((document["threads"].as_array().unwrap().len(), summary.messages), (1, 0));
    assert_eq!(summary.not_understood.get("missing_session"), Some(&1));
}

#[test]
fn a_chain_of_results_before_their_calls_is_put_in_order() {
    let call = |id: &str| json!({"id": id, "function": {"name": "f", "arguments": "{}"}});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": id});
    let records = [
        result("b"),
        json!({"role": "user", "content": "go"}),
        result("nobody"),
        json!({"role": "assistant", "content": "calls", "tool_calls": [call("a"), call("b")]}),
        result("a"),
    ];
    let (_, document) = imported(&[("log.jsonl", lines(&records))]);
    assert_eq!(texts(&document["threads"][0]), ["go", "nobody", "calls", "b", "a"]);
}

#[test]
fn integers_past_64_bits_keep_their_digits_and_numbers_without_an_end_are_counted() {
    let digits = "18446744073709551616";
    let in_text = format!(
        "{{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{{\"id\":\"c\",\"type\":\"function\",\
         \"function\":{{\"name\":\"f\",\"arguments\":\"{{\\\"n\\\": [{digits}]}}\"}}}}]}}"
    );
    let in_object = format!(
        "{{\"uuid\":\"u\",\"parentUuid\":null,\"sessionId\":\"s\",\"type\":\"assistant\",\"message\":{{\"role\":\"assistant\",\
         \"content\":[{{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"f\",\"input\":{{\"n\":[{digits}]}}}}]}}}}"
    );
    for (name, content) in [
        ("log.jsonl", format!("{in_text}\n")),
        ("log.json", format!("[{in_text}]")),
        ("session.jsonl", format!("{in_object}\n")),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(name), content).unwrap();
        let store = Store::memory();
        Importer::new(&store).run(folder.path()).unwrap();
        let thread = store.threads().unwrap().remove(0);
        let messages = store.thread(thread.id.as_str()).unwrap().head().unwrap().unwrap();
        let messages = messages.messages("messages", annals::store::ItemRange::All).unwrap();
        let n = messages[0].tool_calls()[0].args["n"].as_list().unwrap()[0].clone();
        assert_eq!(n.big_integer(), Some(digits), "{name}");
    }
    let user = |content: &str| format!("{{\"role\":\"user\",\"content\":\"hi\",\"n\":{content}}}\n");
    let (summary, _) = imported(&[("log.jsonl", user("1") + &user("1e400") + &user("2"))]);
    assert_eq!((summary.messages, summary.not_understood.get("number_too_large")), (2, Some(&1)), "{summary:?}");
}
