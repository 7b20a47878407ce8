//! Map and text channels against a model, and lists that began with a reducer: on both backends.

use annals::store::log::LogExt;
use std::collections::BTreeMap;

use annals::base::{IdSource, Map};
use annals::history::{ChannelDiff, Snapshot, Thread, diff};
use annals::message::Message;
use annals::prelude::*;
use annals::state::{KeyMap, StateError, Text};
use annals::store::{ItemRange, StoreError};

use super::on_both::on_both;
use crate::cases;

#[derive(State, Clone, Default)]
struct Agent {
    #[channel(map)]
    files: KeyMap<Option<i64>>,
    #[channel(text)]
    log: Text,
    title: String,
}

/// The state that the writes so far should give.
#[derive(Clone, Default, PartialEq, Debug)]
struct Model {
    files: BTreeMap<String, Option<i64>>,
    log: String,
}

const KEYS: [&str; 12] = [
    "a",
    "b",
    "",
    "__remove__",
    "a.b",
    "$['x']",
    "\0",
    "\u{202e}rtl",
    "\"",
    "a'; DROP TABLE item; --",
    "日本",
    "__overwrite__",
];

struct Dice(IdSource);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        (self.0.random() % n as u64) as usize
    }

    fn key(&mut self) -> &'static str {
        KEYS[self.below(KEYS.len())]
    }

    fn number(&mut self) -> Option<i64> {
        self.below(5).checked_sub(1).map(|n| n as i64)
    }
}

/// Makes one random change of a thread, and the same of the model.
fn change(thread: &Thread, model: &mut Model, dice: &mut Dice) {
    let agent = thread.with_state::<Agent>();
    let update = match dice.below(10) {
        0..=3 => {
            let entries: Vec<_> = (0..=dice.below(3)).map(|_| (dice.key(), dice.number())).collect();
            model.files.extend(entries.iter().map(|(key, value)| ((*key).to_owned(), *value)));
            Agent::update().files(entries)
        }
        4..=5 => {
            let (gone, put, value) = (dice.key(), dice.key(), dice.number());
            model.files.remove(gone);
            model.files.insert(put.to_owned(), value);
            Agent::update().remove_files([gone]).files([(put, value)])
        }
        6 => {
            let (put, value) = (dice.key(), dice.number());
            model.files.remove(put);
            Agent::update().files([(put, value)]).remove_files([put, "absent"])
        }
        7 => {
            let entries: Vec<_> = (0..dice.below(4)).map(|_| (dice.key(), dice.number())).collect();
            model.files = entries.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
            model.log = "new ".into();
            Agent::update().files([("hidden", None)]).overwrite_files(entries).overwrite_log("new ")
        }
        _ => {
            let part = ["", "a", "ü", "two words, and more of them than are stored inline "][dice.below(4)];
            model.log.push_str(part);
            model.log.push('.');
            Agent::update().log(part).log(".")
        }
    };
    agent.update(update.title("t")).unwrap();
}

/// Compares a snapshot with the model, in every way in which it can be read.
fn compare(at: &Snapshot, model: &Model) {
    let state = at.state::<Agent>().unwrap();
    assert_eq!(state.files.to_btree_map(), model.files);
    assert!(state.files.iter().map(|(key, _)| key).eq(model.files.keys()), "in the order of the keys");
    assert_eq!(state.log.to_string(), model.log);
    for key in KEYS {
        let found = at.entry("files", key).unwrap();
        assert_eq!(found, model.files.get(key).map(|value| Value::from(*value)), "{key:?}");
        assert_eq!(state.files.get(key), model.files.get(key));
        assert_eq!(at.blame("files").entry(key).unwrap().is_some(), found.is_some());
    }
    assert_eq!(at.len("files").unwrap(), model.files.len() as u64);
    let ends = (0..=model.log.len()).filter(|from| model.log.is_char_boundary(*from));
    for from in ends.rev().take(40) {
        assert_eq!(at.text_tail("log", model.log.len() - from).unwrap(), model.log[from..]);
    }
    let values = at.values().unwrap();
    if !model.files.is_empty() {
        let files = model.files.iter().map(|(key, value)| (key.clone(), Value::from(*value)));
        assert_eq!(values["files"], Value::Map(files.collect()));
        assert_eq!(at.get("files").unwrap().as_ref(), Some(&values["files"]));
    }
    if !model.log.is_empty() {
        assert_eq!(values["log"], Value::from(model.log.as_str()));
    }
}

#[test]
fn maps_and_texts_are_those_of_the_model_after_random_writes_edits_and_forks() {
    for seed in 0..cases(1, 4) {
        on_both(|store| {
            let mut dice = Dice(IdSource::from_seed(seed));
            let mut threads = vec![(store.thread("t0").unwrap(), Model::default())];
            let mut past: Vec<(Snapshot, Model)> = Vec::new();
            for n in 1..120 {
                let at = dice.below(threads.len());
                match dice.below(14) {
                    0 if !past.is_empty() => {
                        let (from, model) = past[dice.below(past.len())].clone();
                        threads.push((from.fork_to(format!("t{n}")).unwrap(), model));
                    }
                    1 => store.clear_head_cache(),
                    _ => {
                        let (thread, model) = &mut threads[at];
                        change(thread, model, &mut dice);
                        past.push((thread.at("@").unwrap(), model.clone()));
                    }
                }
            }
            past.iter().for_each(|(at, model)| compare(at, model));
            let values: Vec<Map> = past.iter().map(|(at, _)| at.values().unwrap()).collect();
            for _ in 0..200 {
                let (a, b) = (dice.below(past.len()), dice.below(past.len()));
                let found = diff(&past[a].0, &past[b].0).unwrap();
                assert_eq!(found.apply(&values[a]).unwrap(), values[b], "{found}");
                assert_eq!(found.channels.is_empty(), values[a] == values[b], "{found}");
            }
        });
    }
}

#[test]
fn the_values_of_a_key_over_time_are_those_of_the_model_also_when_it_is_removed_and_put_again() {
    on_both(|store| {
        let mut dice = Dice(IdSource::from_seed(9));
        let (thread, mut model) = (store.thread("t").unwrap(), Model::default());
        let mut expected: BTreeMap<&str, Vec<Option<Value>>> = BTreeMap::new();
        for _ in 0..60 {
            let (key, value) = (dice.key(), dice.number());
            let update = match dice.below(3) {
                0 if model.files.remove(key).is_some() => {
                    expected.entry(key).or_default().push(None);
                    Agent::update().remove_files([key])
                }
                0 => Agent::update().log("."),
                _ => {
                    model.files.insert(key.to_owned(), value);
                    expected.entry(key).or_default().push(Some(value.into()));
                    Agent::update().files([(key, value)])
                }
            };
            thread.update(update).unwrap();
        }
        let head = thread.at("@").unwrap();
        for key in KEYS {
            let mut versions: Vec<_> =
                head.entry_evolution("files", key).map(|version| version.unwrap().value).collect();
            versions.reverse();
            assert_eq!(versions, expected.remove(key).unwrap_or_default(), "{key:?}");
        }
    });
}

#[test]
fn a_difference_names_the_keys_and_the_appended_text() {
    on_both(|store| {
        let thread = store.thread("t").unwrap();
        thread.update(Agent::update().files([("a", Some(1)), ("b", None)]).log("one")).unwrap();
        thread.update(Agent::update().files([("a", Some(2)), ("c", None)]).remove_files(["b"]).log(", two")).unwrap();
        let found = diff(&thread.at("~1").unwrap(), &thread.at("@").unwrap()).unwrap();
        let shown = "files: 1 added, 1 edited, 1 removed\n  ~ \"a\": 1 -> 2\n  - \"b\": null\n  + \"c\": null\n\
                     log: 5 bytes appended\n  + \", two\"\n";
        assert_eq!(found.to_string(), shown);
        assert!(matches!(&found.channels[..], [ChannelDiff::Entries { .. }, ChannelDiff::Appended { .. }]));
        let head = thread.at("@").unwrap();
        assert_eq!(head.blame("files").path("/a").unwrap().unwrap().step, 1);
        assert_eq!(head.blame("files").path("/b").unwrap(), None);
        thread.update(Agent::update().overwrite_log("short")).unwrap();
        let found = diff(&head, &thread.at("@").unwrap()).unwrap();
        assert_eq!(found.to_string(), "log: \"one, two\" -> \"short\"\n");
    });
}

#[test]
fn a_change_stores_its_entries_and_its_part_alone() {
    on_both(|store| {
        let agent = store.thread("t").unwrap().with_state::<Agent>();
        agent
            .update(Agent::update().files((0..500).map(|n| (n.to_string(), Some(n)))).log("x".repeat(10_000)))
            .unwrap();
        agent.update(Agent::update().files([("7", None)]).remove_files(["8"]).log("y")).unwrap();
        let mut changed = BTreeMap::new();
        let head = agent.thread().at("@").unwrap();
        for channel in ["files", "log"] {
            store
                .backend()
                .items(head.point(), channel, ItemRange::All, &mut |row| {
                    *changed.entry(channel).or_insert(0) += u64::from(row.ordinal == 1);
                    Ok(())
                })
                .unwrap();
        }
        assert_eq!(changed, BTreeMap::from([("files", 1), ("log", 1)]));
        assert_eq!(head.len("files").unwrap(), 499);
    });
}

#[test]
fn maps_and_texts_are_written_by_name_and_dynamically() {
    on_both(|store| {
        let thread = store.thread("t").unwrap();
        for key in KEYS.iter().filter(|key| **key != "__overwrite__") {
            thread.put("files", key, 1).unwrap();
        }
        thread
            .write()
            .put("files", "a", Value::Null)
            .remove("files", "b")
            .append_text("log", "by name")
            .commit()
            .unwrap();
        let state = thread.with_state::<Agent>().state().unwrap();
        assert_eq!(
            (state.files.len(), state.files.get("a"), state.log.to_string()),
            (10, Some(&None), "by name".into())
        );

        let schema = DynSchema::new().map("files").text("log").build();
        let dynamic = thread.with_schema(schema);
        let write = DynUpdate::new()
            .put("files", "c", 3)
            .remove("files", "a")
            .set("log", vec![Value::from(", "), "too".into()]);
        dynamic.update(write).unwrap();
        dynamic
            .update(DynUpdate::new().overwrite("files", Map::from_iter([("z".to_owned(), Value::from(26))])))
            .unwrap();
        let state = dynamic.state().unwrap();
        assert_eq!(state.map("files").unwrap().iter().collect::<Vec<_>>(), [("z", &Value::from(26))]);
        assert_eq!(*state.value("log"), Value::from("by name, too"));

        for wrong in [thread.append("files", ["x"]), thread.set("log", 1), thread.append("log", [Message::ai("x")])] {
            let error = wrong.unwrap_err();
            assert!(error.to_string().contains("holds a"), "{error}");
        }
        for wrong in [
            DynUpdate::new().set("files", 1),
            DynUpdate::new().set("files", vec![Value::from(1)]),
            DynUpdate::new().set("log", 1),
        ] {
            assert!(dynamic.update(wrong).is_err());
        }
        let long = thread.put("files", &"k".repeat(1_025), 1).unwrap_err();
        assert!(long.to_string().contains("a key of 1025 bytes is past the limit of 1024"), "{long}");
        assert!(thread.at("@").unwrap().text_tail("files", 3).unwrap_err().to_string().contains("is not a text"));
    });
}

#[test]
fn a_name_with_two_colons_is_refused() {
    on_both(|store| {
        let thread = store.thread("t").unwrap();
        thread.set("one:colon", 1).unwrap();
        let typed = thread.with_schema(DynSchema::new().last("a:b:c").build());
        for refused in
            [thread.set("a:b:c", 1), thread.append("a::b", [1]), typed.update(DynUpdate::new().set("a:b:c", 1))]
        {
            let error = refused.unwrap_err();
            assert!(matches!(error.as_store(), Some(StoreError::Invalid { field: "write.channel", .. })), "{error}");
        }
        assert_eq!(thread.at("@").unwrap().values().unwrap().len(), 1);
    });
}

fn joined(mut old: Vec<String>, new: Vec<String>) -> Vec<String> {
    old.extend(new);
    old
}

fn merged(mut old: BTreeMap<String, i64>, new: BTreeMap<String, i64>) -> BTreeMap<String, i64> {
    old.extend(new);
    old
}

fn longer(old: String, new: String) -> String {
    old + &new
}

/// A state whose values grow under reducers.
#[derive(State, Clone, Default)]
struct Reduced {
    #[channel(reduce = joined)]
    lines: Vec<String>,
    #[channel(reduce = merged)]
    files: BTreeMap<String, i64>,
    #[channel(reduce = longer)]
    log: String,
    #[channel(last)]
    messages: Vec<Message>,
}

/// The same state with channels that store their changes.
#[derive(State, Clone, Default)]
struct Grown {
    #[channel(append)]
    lines: List<String>,
    #[channel(map)]
    files: KeyMap<i64>,
    #[channel(text)]
    log: Text,
    #[channel(messages)]
    messages: Messages,
}

fn reduced(thread: &Thread) {
    let files = |key: &str, value| BTreeMap::from([(key.to_owned(), value)]);
    let first = Reduced::update().lines(vec!["one".into()]).files(files("a", 1)).log("1");
    thread.update(first.messages(vec![Message::human("hi").with_id("m1")])).unwrap();
    thread.update(Reduced::update().lines(vec!["two".into()]).files(files("b", 2)).log("2")).unwrap();
}

fn put_at_head(store: &Store, thread: &Thread, channel: &str) -> usize {
    let (head, mut put) = (thread.at("@").unwrap(), 0);
    let visit = &mut |row: annals::store::record::ItemRow<'_>| {
        put += usize::from(row.ordinal == head.record().ordinal);
        Ok(())
    };
    store.backend().items(head.point(), channel, ItemRange::All, visit).unwrap();
    put
}

#[test]
fn a_thread_that_began_with_reducers_goes_on_with_channels_that_store_their_changes() {
    on_both(|store| {
        let thread = store.thread("t").unwrap();
        reduced(&thread);
        let before = thread.at("@").unwrap();
        let state = before.state::<Grown>().unwrap();
        assert_eq!((state.lines.to_vec(), state.log == "12"), (vec!["one".to_owned(), "two".into()], true));
        assert_eq!(state.files.to_btree_map(), BTreeMap::from([("a".to_owned(), 1), ("b".into(), 2)]));

        // The first change stores all items, each later one its own.
        let grown = thread.with_state::<Grown>();
        let edit = [Message::human("hello").with_id("m1"), Message::ai("hey").with_id("m2")];
        grown.update(Grown::update().lines(["three".into()]).files([("a", 10)]).log("3").messages(edit)).unwrap();
        let channels = ["lines", "files", "log", "messages"];
        assert_eq!(channels.map(|channel| put_at_head(store, &thread, channel)), [3, 2, 2, 2]);
        grown.update(Grown::update().lines(["four".into()]).remove_files(["b"]).log("4")).unwrap();
        assert_eq!(channels.map(|channel| put_at_head(store, &thread, channel)), [1, 0, 1, 0]);

        store.clear_head_cache();
        let state = grown.state().unwrap();
        assert_eq!(state.lines.to_vec(), ["one", "two", "three", "four"]);
        assert_eq!(state.files.to_btree_map(), BTreeMap::from([("a".to_owned(), 10)]));
        assert_eq!(state.log, *"1234");
        assert_eq!(state.messages.iter().map(|message| message.text()).collect::<Vec<_>>(), ["hello", "hey"]);

        // Both schemas read the past as before, and a fork of it goes on by itself.
        assert_eq!(before.state::<Reduced>().unwrap().lines, ["one", "two"]);
        let fork = before.fork_to("fork").unwrap().with_state::<Grown>();
        fork.update(Grown::update().lines(["other".into()])).unwrap();
        assert_eq!(fork.state().unwrap().lines.to_vec(), ["one", "two", "other"]);
        assert_eq!(fork.state().unwrap().log, *"12");
        let found = diff(&before, &thread.at("@").unwrap()).unwrap();
        assert_eq!(found.apply(&before.values().unwrap()).unwrap(), thread.at("@").unwrap().values().unwrap());
    });
}

#[test]
fn an_overwrite_or_an_empty_change_may_be_the_first_one_after_a_reducer() {
    on_both(|store| {
        let thread = store.thread("t").unwrap();
        reduced(&thread);
        let grown = thread.with_state::<Grown>();
        grown.update(Grown::update().overwrite_lines(["new".into()]).files(Vec::<(String, i64)>::new())).unwrap();
        store.clear_head_cache();
        let state = grown.state().unwrap();
        assert_eq!((state.lines.to_vec(), state.files.len(), state.log == "12"), (vec!["new".to_owned()], 2, true));
        assert_eq!(put_at_head(store, &thread, "files"), 2);
    });
}

#[test]
fn a_dynamic_schema_takes_a_reduced_list_over() {
    on_both(|store| {
        let thread = store.thread("t").unwrap();
        let join = |old: Value, new: Value| {
            let both = [old, new].into_iter().flat_map(|list| list.as_list().unwrap_or_default().to_vec());
            Ok(Value::List(both.collect()))
        };
        let reduced = thread.with_schema(DynSchema::new().reduce("lines", join).build());
        for n in 0..3 {
            reduced.update(DynUpdate::new().set("lines", vec![Value::from(n)])).unwrap();
        }
        let grown = thread.with_schema(DynSchema::new().append("lines").build());
        grown.update(DynUpdate::new().set("lines", 3)).unwrap();
        grown.update(DynUpdate::new().set("lines", 4)).unwrap();
        store.clear_head_cache();
        let numbers = (0..5).map(Value::from).collect();
        assert_eq!(*grown.state().unwrap().value("lines"), Value::List(numbers));
    });
}

#[test]
fn a_list_is_not_read_by_a_reducer_nor_by_a_channel_of_another_shape() {
    on_both(|store| {
        let thread = store.thread("t").unwrap();
        thread.update(Grown::update().lines(["x".into()]).files([("a", 1)]).log("y")).unwrap();
        let wrong = |schema: DynSchema, noun: &str| {
            let error = thread.at("@").unwrap().state_with(&schema.build()).unwrap_err();
            let found = matches!(error.as_state(), Some(StateError::WrongType { found, .. }) if *found == noun);
            assert!(found, "{error:?}");
        };
        wrong(DynSchema::new().reduce("lines", |_, new| Ok(new)), "a list of items");
        wrong(DynSchema::new().map("lines"), "a list");
        wrong(DynSchema::new().text("files"), "a map");
        wrong(DynSchema::new().append("log"), "a text");

        thread.set("number", 7).unwrap();
        let error = thread.at("@").unwrap().state_with(&DynSchema::new().text("number").build()).unwrap_err();
        assert!(error.to_string().contains("but int is stored"), "{error}");
    });
}
