//! Blame, evolution and pickaxe: the writers of values, the values over time, and the changes that bring a text.

use annals::base::{IdSource, Value};
use annals::history::{Snapshot, TextChange, ValueVersion};
use annals::prelude::*;
use annals::store::StoreError;
use annals::store::StoreError::Invalid;
use annals::store::log::LogExt;
use serde_json::json;

use super::on_both::on_both;

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
    #[channel(append)]
    log: List<String>,
    title: Option<String>,
    plan: Value,
}

fn human(text: &str, id: &str) -> Message {
    Message::human(text).with_id(id)
}

/// A thread of seven checkpoints, and a fork of the fourth with one more.
fn filled(store: &Store) -> (Snapshot, Snapshot) {
    let chat = store.thread("chat").unwrap().with_state::<Chat>();
    let plan = |plan: serde_json::Value| Chat::update().plan(Value::from(plan));
    chat.update(plan(json!({"price": 10, "days": [1, 2]})).messages([human("a hotel", "1"), human("in Bern", "2")]))
        .unwrap();
    chat.update(plan(json!({"price": 12, "days": [1, 2]})).title("first Gasthof".to_string())).unwrap();
    chat.update(plan(json!({"price": 12, "days": [1, 3]})).messages([human("a Gasthof", "1")])).unwrap();
    chat.update(Chat::update().title("second".to_string()).log(["x".into(), "Gasthof".into()])).unwrap();
    let before = chat.thread().at("@").unwrap();
    chat.update(Chat::update().messages([Message::remove("1")])).unwrap();
    chat.update(Chat::update().messages([human("the Gasthof again", "3")])).unwrap();
    chat.update(Chat::update().overwrite_log(["y".into()])).unwrap();
    let fork = before.fork_to("fork").unwrap().with_state::<Chat>();
    fork.update(Chat::update().messages([human("by train", "1")])).unwrap();
    (chat.thread().at("@").unwrap(), fork.thread().at("@").unwrap())
}

#[test]
fn a_value_a_part_of_it_and_an_item_have_their_writer() {
    on_both(|store| {
        let (head, fork) = filled(store);
        let ordinal =
            |at: &Snapshot, channel: &str, path: &str| at.blame(channel).path(path).unwrap().map(|blame| blame.ordinal);
        assert_eq!(head.blame("title").value().unwrap().unwrap().ordinal, 3);
        assert_eq!(head.blame("plan").value().unwrap().unwrap().ordinal, 2);
        for (path, expected) in [("", 2), ("/price", 1), ("/days", 2), ("/days/0", 0), ("/days/1", 2)] {
            assert_eq!(ordinal(&head, "plan", path), Some(expected), "{path}");
        }
        for none in ["/none", "/days/2", "/price/x"] {
            assert_eq!(ordinal(&head, "plan", none), None, "{none}");
        }
        let item = |at: &Snapshot, id: &str| at.blame("messages").item(id).unwrap().map(|blame| blame.ordinal);
        assert_eq!((item(&head, "1"), item(&head, "2"), item(&head, "3")), (None, Some(0), Some(5)));
        assert_eq!((item(&fork, "1"), item(&fork, "2"), item(&fork, "3")), (Some(5), Some(0), None));
        assert_eq!(ordinal(&head, "messages", "/0"), Some(0), "the first item is that with the id 2");
        assert_eq!(ordinal(&head, "messages", "/1/content"), Some(5));
        assert_eq!(ordinal(&fork, "messages", "/0/type"), Some(0), "an edit leaves the type as it is");
        assert_eq!(ordinal(&head, "messages", "/2"), None);
        assert_eq!(head.blame("none").value().unwrap(), None);
        assert!(matches!(head.blame("plan").path("price"), Err(Invalid { field: "path", .. })));
        let blame = fork.blame("messages").item("2").unwrap().unwrap();
        assert_eq!((&*blame.point.thread.to_string(), blame.step, blame.node), ("chat", 0, None));
        let record = store.backend().checkpoint(&blame.point).unwrap().unwrap();
        assert_eq!((blame.created_at, blame.source), (record.created_at, record.source));
        for (channel, blame) in head.blames().unwrap() {
            assert_eq!(head.blame(&channel).value().unwrap(), Some(blame), "{channel}");
        }
    });
}

fn shown(versions: impl Iterator<Item = Result<ValueVersion, StoreError>>) -> Vec<String> {
    let text = |version: ValueVersion| {
        let value = version.value.map_or("gone".to_owned(), |value| match value.get("content") {
            Some(content) => content.to_string(),
            None => value.to_string(),
        });
        format!("{} {value}", version.blame.ordinal)
    };
    versions.map(|version| text(version.unwrap())).collect()
}

#[test]
fn values_over_time_come_newest_first() {
    on_both(|store| {
        let (head, fork) = filled(store);
        assert_eq!(shown(head.evolution("title")), ["3 second", "1 first Gasthof"]);
        assert_eq!(shown(head.evolution("log")), [r#"6 ["y"]"#, r#"3 ["x","Gasthof"]"#]);
        assert_eq!(shown(head.evolution("none")), Vec::<String>::new());
        let item = |at: &Snapshot, id: &str| shown(at.item_evolution("messages", id).unwrap());
        assert_eq!(item(&head, "1"), ["4 gone", "2 a Gasthof", "0 a hotel"]);
        assert_eq!(item(&fork, "1"), ["5 by train", "2 a Gasthof", "0 a hotel"]);
        assert_eq!(item(&head, "3"), ["5 the Gasthof again"]);
        assert_eq!(item(&head, "4"), Vec::<String>::new());
        assert_eq!(item(&fork, "3"), Vec::<String>::new(), "another branch wrote it");
    });
}

#[test]
fn many_versions_are_read_in_pages() {
    on_both(|store| {
        let chat = store.thread("long").unwrap().with_state::<Chat>();
        for n in 0..300 {
            let title = Chat::update().title(n.to_string());
            chat.update(if n % 100 == 0 { title.messages([human(&n.to_string(), "1")]) } else { title }).unwrap();
        }
        let head = chat.thread().at("@").unwrap();
        let expected: Vec<String> = (0..300).rev().map(|n| format!("{n} {n}")).collect();
        assert_eq!(shown(head.evolution("title")), expected);
        assert_eq!(shown(head.item_evolution("messages", "1").unwrap()), ["200 200", "100 100", "0 0"]);
    });
}

fn changes(at: &Snapshot, text: &str) -> Vec<String> {
    let line = |change: TextChange| {
        let sign = if change.appears { '+' } else { '-' };
        let item = change.item.map(|id| format!("#{id}")).unwrap_or_default();
        format!("{} {sign}{}{item}", change.blame.ordinal, change.channel)
    };
    at.pickaxe(text).unwrap().into_iter().map(line).collect()
}

#[test]
fn a_text_appears_and_disappears() {
    on_both(|store| {
        let (head, fork) = filled(store);
        let on_head = ["1 +title", "2 +messages#1", "3 +log", "3 -title", "4 -messages#1", "5 +messages#3", "6 -log"];
        assert_eq!(changes(&head, "Gasthof"), on_head);
        assert_eq!(changes(&fork, "Gasthof"), ["1 +title", "2 +messages#1", "3 +log", "3 -title", "5 -messages#1"]);
        assert_eq!(changes(&head, "price"), ["0 +plan"], "the name of a member is a text");
        assert_eq!(changes(&head, "by train"), Vec::<String>::new());
        assert!(matches!(head.pickaxe(""), Err(Invalid { field: "text", .. })));
    });
}

/// Returns whether a text of a value, or the name of a member, holds a text.
fn holds(value: &Value, text: &str) -> bool {
    match value {
        Value::Str(found) => found.contains(text),
        Value::List(items) => items.iter().any(|item| holds(item, text)),
        Value::Map(map) => map.iter().any(|(name, value)| name.contains(text) || holds(value, text)),
        _ => false,
    }
}

#[test]
fn the_changes_of_a_text_are_those_of_the_states() {
    for seed in 0..8 {
        on_both(|store| {
            let mut dice = IdSource::from_seed(seed);
            let mut below = |n: u64| dice.random() % n;
            let mut chat = store.thread("t").unwrap().with_state::<Chat>();
            for n in 0..60 {
                let text = ["red", "blue", "red and blue", "none"][below(4) as usize];
                let id = below(5).to_string();
                let present = chat.state().unwrap().messages.iter().any(|message| message.id.as_deref() == Some(&*id));
                let update = match below(7) {
                    0 | 1 => Chat::update().messages([human(text, &id)]),
                    2 if present => Chat::update().messages([Message::remove(id)]),
                    3 => Chat::update().log([text.to_string()]),
                    4 => Chat::update().overwrite_log([text.to_string()]),
                    5 => Chat::update().plan(Value::from(json!({"a": [text, n]}))),
                    _ => Chat::update().title(text.to_string()),
                };
                chat.update(update).unwrap();
                if below(15) == 0 {
                    let back = below(4);
                    let from = chat.thread().at(format!("~{back}")).or_else(|_| chat.thread().at("@")).unwrap();
                    chat = from.fork_to(format!("t{n}")).unwrap().with_state::<Chat>();
                }
            }
            let head = chat.thread().at("@").unwrap();
            // The items and values with the text, counted by channel at each checkpoint of the lineage.
            let count = |at: &Snapshot, channel: &str| match at.get(channel).unwrap() {
                Some(Value::List(items)) => items.iter().filter(|item| holds(item, "red")).count(),
                value => value.iter().filter(|value| holds(value, "red")).count(),
            };
            let found = head.pickaxe("red").unwrap();
            let mut at = Some(head);
            while let Some(snapshot) = at {
                let parent = snapshot.parent().unwrap();
                for channel in ["messages", "log", "plan", "title"] {
                    let here = found
                        .iter()
                        .filter(|change| change.blame.point == *snapshot.point() && &*change.channel == channel);
                    let net: i64 = here.map(|change| if change.appears { 1 } else { -1 }).sum();
                    let before = parent.as_ref().map_or(0, |parent| count(parent, channel));
                    assert_eq!(net, count(&snapshot, channel) as i64 - before as i64, "{channel} at {snapshot:?}");
                }
                at = parent;
            }
        });
    }
}
