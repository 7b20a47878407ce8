//! Many small threads: one commit for many, which read back as if each had been written alone.

use std::fs;

use annals::prelude::*;
use annals_import::{Importer, export_turns};
use serde_json::json;

/// Returns an array of conversations, with and without ids of their own.
fn conversations(count: usize) -> String {
    let one = |n: usize| {
        let messages =
            json!([{"role": "user", "content": format!("question {n}")}, {"role": "assistant", "content": "yes"}]);
        json!({"id": if n.is_multiple_of(2) { json!(format!("c{n}")) } else { json!(null) }, "messages": messages})
    };
    json!((0..count).map(one).collect::<Vec<_>>()).to_string()
}

#[test]
fn a_thousand_threads_are_stored_in_a_few_commits() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("chats.json");
    fs::write(&source, conversations(1_000)).unwrap();
    let store = Store::open(folder.path().join("s.db")).unwrap();
    let before = store.stats().unwrap().commits.transactions;
    let summary = Importer::new(&store).run(&source).unwrap();
    assert_eq!((summary.threads_new, summary.messages, summary.checkpoints), (1_000, 2_000, 2_000));
    let commits = store.stats().unwrap().commits.transactions - before;
    // A group that the writer takes up while others are handed over is one more commit; threads on their own are three
    // each.
    assert!(commits <= 200, "{commits} commits for 1,000 threads");
    assert_eq!(store.check().unwrap().problems, []);
    let thread = store.thread("chat:c998").unwrap();
    assert_eq!(thread.info().unwrap().facts.labels, ["chat"]);
    assert_eq!(thread.operations().unwrap().count(), 3, "the facts, the messages, and the label of this thread alone");
    thread.undo().unwrap().expect("the label");
    assert!(thread.info().unwrap().facts.labels.is_empty());
    assert_eq!(store.thread("chat:c996").unwrap().info().unwrap().facts.labels, ["chat"]);
    thread.redo().unwrap().expect("the label");
    let again = Importer::new(&store).run(&source).unwrap();
    assert_eq!((again.threads_unchanged, again.messages, again.checkpoints), (1_000, 0, 0));
}

#[test]
fn threads_that_belong_together_are_stored_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let line = |role: &str, text: &str| format!("{}\n", json!({"role": role, "content": text}));
    let begin = line("user", "hi") + &line("assistant", "hello");
    // The second file is the first one when it had grown, and the third one a copy of that.
    fs::write(folder.path().join("a.jsonl"), &begin).unwrap();
    fs::write(folder.path().join("b.jsonl"), begin.clone() + &line("user", "how are you?")).unwrap();
    fs::write(folder.path().join("c.jsonl"), begin + &line("user", "how are you?")).unwrap();
    let store = Store::open(folder.path().join("s.db")).unwrap();
    let summary = Importer::new(&store).run(folder.path()).unwrap();
    assert_eq!((summary.threads_new, summary.threads_grown, summary.threads_unchanged), (1, 1, 1));
    assert_eq!((summary.messages, store.threads().unwrap().len()), (3, 1));
}

#[test]
fn a_session_of_many_turns_is_stored_beside_small_ones() {
    let folder = tempfile::tempdir().unwrap();
    let long: String = (0..1_300)
        .map(|n| {
            format!("{}\n", json!({"role": if n % 2 == 0 { "user" } else { "assistant" }, "content": format!("{n}")}))
        })
        .collect();
    fs::write(folder.path().join("long.jsonl"), long).unwrap();
    fs::write(folder.path().join("small.json"), conversations(3)).unwrap();
    let (store, memory) = (Store::open(folder.path().join("s.db")).unwrap(), Store::memory());
    for store in [&store, &memory] {
        let summary = Importer::new(store).run(folder.path()).unwrap();
        assert_eq!((summary.threads_new, summary.messages, summary.checkpoints), (4, 1_306, 4 + 650 + 3));
    }
    assert_eq!(export_turns(&store).unwrap(), export_turns(&memory).unwrap());
    assert_eq!(store.check().unwrap().problems, []);
}
