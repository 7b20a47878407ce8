//! The threads that an import makes: turns as checkpoints, their timestamps, branches and forks.

use std::fs;

use annals::prelude::*;
use annals_import::{Importer, thread_id};
use serde_json::json;

use crate::fixtures::fixtures;

fn fixture(store: &Store, name: &str) -> serde_json::Value {
    let fixture = fixtures().into_iter().find(|fixture| fixture.name == name).unwrap();
    Importer::new(store).run(&fixture.input).unwrap();
    fixture.expected
}

#[test]
fn each_turn_is_one_checkpoint_with_the_timestamp_of_its_last_message() {
    let store = Store::memory();
    let expected = fixture(&store, "claude-code/basic");
    let of = &expected["threads"][0];
    let thread = store.thread(thread_id("claude-code".parse().unwrap(), of["id"].as_str().unwrap())).unwrap();
    let history: Vec<_> = thread.history().unwrap().map(Result::unwrap).collect();
    let turns = of["turns"].as_array().unwrap();
    assert_eq!(history.len(), turns.len() + 1, "the first checkpoint holds the facts of the session");
    let mut count = 0;
    for (snapshot, turn) in history.iter().rev().skip(1).zip(turns) {
        count += turn["messages"].as_array().unwrap().len();
        assert_eq!(snapshot.len("messages").unwrap(), count as u64);
        let last = snapshot.messages("messages", annals::store::ItemRange::Tail(1)).unwrap().remove(0);
        let at = last.additional_kwargs.get("timestamp").unwrap().as_str().unwrap().to_owned();
        assert_eq!(snapshot.created_at().to_string(), at);
    }
    assert!(history[0].created_at().to_string().starts_with("2026-03-02"));
}

#[test]
fn titles_and_sources_are_facts_of_the_threads() {
    let store = Store::memory();
    let expected = fixture(&store, "claude-code/titles");
    let of = &expected["threads"][0];
    let thread = store.thread(thread_id("claude-code".parse().unwrap(), of["id"].as_str().unwrap())).unwrap();
    let info = thread.info().unwrap();
    assert_eq!(info.title(), of["title"].as_str());
    assert!(info.facts.labels.iter().any(|label| **label == *"claude-code"));
}

#[test]
fn lines_that_were_left_are_named_branches_and_the_head_is_the_main_line() {
    let store = Store::memory();
    let expected = fixture(&store, "codex/rolled-back");
    let of = &expected["threads"][0];
    let thread = store.thread(thread_id("codex".parse().unwrap(), of["id"].as_str().unwrap())).unwrap();
    let branches = thread.branches().unwrap();
    assert_eq!(branches.len(), of["branches"].as_array().unwrap().len() + 1);
    assert!(branches[0].is_current && branches[1..].iter().all(|branch| branch.name.is_some()));
    let messages: usize =
        of["turns"].as_array().unwrap().iter().map(|turn| turn["messages"].as_array().unwrap().len()).sum();
    assert_eq!(thread.head().unwrap().unwrap().len("messages").unwrap(), messages as u64);
}

#[test]
fn a_fork_is_a_fork_in_the_store_and_holds_only_the_messages_that_follow() {
    for (name, source) in
        [("codex/fork-copied", "codex"), ("codex/fork-referred", "codex"), ("claude-code/forked", "claude-code")]
    {
        let store = Store::memory();
        let expected = fixture(&store, name);
        let threads = expected["threads"].as_array().unwrap();
        let fork = threads.iter().find(|of| of["parent"]["messages"].as_u64().unwrap_or(0) > 0).unwrap();
        let thread = store.thread(thread_id(source.parse().unwrap(), fork["id"].as_str().unwrap())).unwrap();
        let parent = thread_id(source.parse().unwrap(), fork["parent"]["id"].as_str().unwrap());
        let from = thread.forked_from().unwrap().expect("a fork");
        assert_eq!(from.thread.as_str(), parent, "{name}");
        let root = thread.history().unwrap().map(Result::unwrap).last().unwrap();
        assert_eq!(root.len("messages").unwrap(), fork["parent"]["messages"].as_u64().unwrap(), "{name}");
    }
}

#[test]
fn an_imported_thread_goes_on_in_the_store() {
    let store = Store::memory();
    let expected = fixture(&store, "goose/basic");
    let id = thread_id("goose".parse().unwrap(), expected["threads"][0]["id"].as_str().unwrap());
    let thread = store.thread(&id).unwrap();
    let before = thread.head().unwrap().unwrap().len("messages").unwrap();
    thread.append("messages", [Message::human("and now?").with_id("own")]).unwrap();
    assert_eq!(thread.head().unwrap().unwrap().len("messages").unwrap(), before + 1);
    let again = fixtures().into_iter().find(|fixture| fixture.name == "goose/basic").unwrap();
    let summary = Importer::new(&store).run(&again.input).unwrap();
    assert_eq!((summary.messages, summary.threads_unchanged), (0, 1));
    let last = thread.head().unwrap().unwrap().messages("messages", annals::store::ItemRange::Tail(1)).unwrap();
    assert_eq!(last[0].id.as_deref(), Some("own"), "a message that was added in the store stays at the head");
}

#[test]
fn raw_records_that_were_not_understood_are_retained() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("one.jsonl");
    let unknown = json!({"role": "narrator", "content": "Meanwhile."});
    fs::write(&file, format!("{}\n{unknown}\n", json!({"role": "user", "content": "hi"}))).unwrap();
    let store = Store::memory();
    let summary = Importer::new(&store).run(&file).unwrap();
    assert_eq!(summary.not_understood.get("role/narrator"), Some(&1));
    let found = store.kv().search(annals::store::KvQuery::new(["import"])).unwrap();
    assert_eq!(found[0].value["raw"].as_str(), Some(unknown.to_string().as_str()));
    assert_eq!(found[0].value["place"].as_str(), Some("one.jsonl:2"));
}

#[test]
fn a_message_that_the_store_refuses_is_counted_and_the_others_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rollout.jsonl");
    let head = json!({"timestamp": "2026-03-02T00:00:00Z", "type": "session_meta", "payload": {"id": "one"}});
    let said = |role: &str, text: &str| {
        let payload = json!({"type": "message", "role": role, "content": text});
        json!({"type": "response_item", "payload": payload}).to_string()
    };
    // Arguments as deep as a JSON parser takes; a message stores them deeper than a value of the store may be.
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(125), "]".repeat(125));
    let payload = json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": deep});
    let call = json!({"type": "response_item", "payload": payload}).to_string();
    let lines = [head.to_string(), said("user", "before"), call, said("user", "behind"), said("assistant", "end")];
    fs::write(&file, lines.join("\n")).unwrap();
    fs::write(folder.path().join("log.jsonl"), json!({"role": "user", "content": "another file"}).to_string()).unwrap();
    let store = Store::memory();
    let summary = Importer::new(&store).run(folder.path()).unwrap();
    assert_eq!(summary.not_understood.get("refused_message"), Some(&1));
    assert_eq!((summary.threads_new, summary.messages), (2, 4));
    let thread = store.thread(thread_id("codex".parse().unwrap(), "one")).unwrap();
    let stored = thread.head().unwrap().unwrap().messages("messages", annals::store::ItemRange::All).unwrap();
    let texts: Vec<String> = stored.iter().map(|message| message.text().into_owned()).collect();
    assert_eq!(texts, ["before", "behind", "end"]);
    let found = store.kv().search(annals::store::KvQuery::new(["import"])).unwrap();
    assert_eq!(found[0].value["place"].as_str(), Some("codex:one:one:3"));
    let again = Importer::new(&store).run(folder.path()).unwrap();
    assert_eq!((again.messages, again.checkpoints, again.threads_unchanged), (0, 0, 2));
}

#[test]
fn a_title_that_is_too_long_for_a_fact_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let title = "ä".repeat(100_000);
    let node = json!({"message": {"author": {"role": "user"}, "content": {"content_type": "text", "parts": ["hi"]}}});
    let chat = json!([{"id": "c", "title": title, "mapping": {"n": node}}]);
    fs::write(folder.path().join("conversations.json"), chat.to_string()).unwrap();
    let store = Store::memory();
    assert_eq!(Importer::new(&store).run(folder.path()).unwrap().threads_new, 1);
    let thread = store.thread("chat:c").unwrap();
    assert_eq!(thread.info().unwrap().title(), Some("ä".repeat(32 << 10).as_str()));
    assert_eq!(Importer::new(&store).run(folder.path()).unwrap().checkpoints, 0);
}

#[test]
fn conversations_without_ids_of_their_own_are_distinct_and_stay_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let system = json!({"role": "system", "content": "You are helpful."});
    // Two files of one name that begin alike, each imported alone and with its folder; and one id twice in a file.
    for (name, text) in [("a", "one"), ("b", "two")] {
        fs::create_dir(folder.path().join(name)).unwrap();
        let own = json!({"role": "user", "content": text});
        fs::write(folder.path().join(name).join("log.jsonl"), format!("{system}\n{own}\n")).unwrap();
        fs::write(folder.path().join(name).join("log.json"), json!([system, own]).to_string()).unwrap();
    }
    let chat = |text: &str| json!({"id": "same", "conversations": [{"from": "human", "value": text}]});
    fs::write(folder.path().join("sharegpt.json"), json!([chat("x"), chat("y")]).to_string()).unwrap();
    let store = Store::memory();
    let alone = Importer::new(&store).run(folder.path().join("a/log.jsonl")).unwrap();
    assert_eq!(alone.threads_new, 1);
    let all = Importer::new(&store).run(folder.path()).unwrap();
    assert_eq!((all.threads_new, all.threads_unchanged), (5, 1));
    for thread in store.threads().unwrap() {
        assert_eq!(store.thread(thread.id.as_str()).unwrap().all_branches().unwrap().len(), 1, "{}", thread.id);
    }
    // A short array grows at its end: the thread of its begin goes on.
    let grown = json!([system, {"role": "user", "content": "one"}, {"role": "assistant", "content": "three"}]);
    fs::write(folder.path().join("a/log.json"), grown.to_string()).unwrap();
    let again = Importer::new(&store).run(folder.path()).unwrap();
    assert_eq!((again.threads_new, again.threads_grown, again.messages), (0, 1, 1));
}

#[test]
fn a_chat_file_is_the_same_thread_wherever_it_lies() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let line = |role: &str, text: &str| format!("{}\n", json!({"role": role, "content": text}));
    let begin = line("user", "hi") + &line("assistant", "hello");
    fs::write(path("one.jsonl"), &begin).unwrap();
    let store = Store::memory();
    assert_eq!(Importer::new(&store).run(folder.path()).unwrap().threads_new, 1);
    // A copy, and another name: equal bytes are one thread.
    fs::copy(path("one.jsonl"), path("copy.jsonl")).unwrap();
    fs::rename(path("one.jsonl"), path("two.jsonl")).unwrap();
    let moved = Importer::new(&store).run(folder.path()).unwrap();
    assert_eq!((moved.threads_new, moved.threads_unchanged, moved.messages), (0, 2, 0));
    // Both files grow, each in its own way: the first one goes on with the thread, the other one is a new thread.
    fs::write(path("copy.jsonl"), begin.clone() + &line("user", "how are you?")).unwrap();
    fs::write(path("two.jsonl"), begin.clone() + &line("user", "good night")).unwrap();
    let grown = Importer::new(&store).run(folder.path()).unwrap();
    assert_eq!((grown.threads_grown, grown.threads_new, grown.messages), (1, 1, 4));
    let again = Importer::new(&store).run(folder.path()).unwrap();
    assert_eq!((again.threads_unchanged, again.messages, store.threads().unwrap().len()), (2, 0, 2));
    // The one with the longest begin goes on.
    fs::write(path("two.jsonl"), begin + &line("user", "good night") + &line("assistant", "sleep well")).unwrap();
    let longer = Importer::new(&store).run(path("two.jsonl")).unwrap();
    assert_eq!((longer.threads_grown, longer.messages), (1, 1));
    for thread in store.threads().unwrap() {
        assert_eq!(store.thread(thread.id.as_str()).unwrap().all_branches().unwrap().len(), 1, "{}", thread.id);
    }
}

/// Returns the texts of the model's view of the only thread of a session of pi, of these lines.
fn view_of_pi(lines: &[serde_json::Value]) -> (Thread, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let text: Vec<String> = lines.iter().map(ToString::to_string).collect();
    fs::write(folder.path().join("s.jsonl"), text.join("\n")).unwrap();
    let store = Store::memory();
    let summary = Importer::new(&store).run(folder.path()).unwrap();
    assert_eq!((summary.threads_new, summary.not_understood.len()), (1, 0), "{summary:?}");
    let thread = store.thread(store.threads().unwrap()[0].id.as_str()).unwrap();
    let view = thread.head().unwrap().unwrap().model_view("messages").unwrap();
    (thread, view.iter().map(|message| message.text().into_owned()).collect())
}

#[test]
fn a_compaction_of_the_source_folds_what_the_program_no_longer_sends() {
    let at = "2026-03-02T09:00:00.000Z";
    let head = json!({"type": "session", "version": 3, "id": "s", "timestamp": at, "cwd": "/w"});
    let said = |id: &str, parent: Option<&str>, role: &str| {
        let message = json!({"role": role, "content": [{"type": "text", "text": id}]});
        json!({"type": "message", "id": id, "parentId": parent, "timestamp": at, "message": message})
    };
    let compacted = |first: Option<&str>| {
        json!({"type": "compaction", "id": "c", "parentId": "a2", "timestamp": at, "summary": "so far",
            "firstKeptEntryId": first, "tokensBefore": 900})
    };
    let lines = |first: Option<&str>| {
        [
            head.clone(),
            said("u1", None, "user"),
            said("a1", Some("u1"), "assistant"),
            said("u2", Some("a1"), "user"),
            said("a2", Some("u2"), "assistant"),
            compacted(first),
            said("u3", Some("c"), "user"),
        ]
    };
    let (thread, view) = view_of_pi(&lines(None));
    assert_eq!(view, ["so far", "u3"]);
    let head = thread.head().unwrap().unwrap();
    assert_eq!(head.len("messages").unwrap(), 6, "the messages stay");
    let before = thread.at("~1").unwrap();
    assert_eq!(before.model_view("messages").unwrap().len(), 4, "before the compaction");
    // The messages that the program kept stand before the summary.
    assert_eq!(view_of_pi(&lines(Some("u2"))).1, ["u2", "a2", "so far", "u3"]);
    assert_eq!(view_of_pi(&lines(Some("unknown"))).1, ["so far", "u3"]);
    assert_eq!(view_of_pi(&lines(Some("u1"))).1.len(), 6, "everything was kept");
}
