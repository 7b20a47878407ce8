//! The bytes of a turn do not grow with the number of turns.

use annals::store::{OpenOptions, Store, Synchronous};
use annals_base::{Encoded, Map, Value};
use annals_langgraph::{Config, NewCheckpoint, NewItem, NewValue, OnConflict, Saver, Typed, UpdatedChannels, Version};
use annals_messages::Message;

/// A chat as LangGraph runs it: of a turn the input, the step of `__start__`, and the step of the node.
struct Chat {
    saver: Saver,
    at: Config,
    number: u64,
    step: i64,
    versions: Vec<(String, Version)>,
    seen: Vec<(String, Vec<(String, Version)>)>,
    messages: Vec<Typed>,
    whole_lists: bool,
}

/// Text that does not compress.
fn text(seed: usize) -> String {
    let mut state = seed as u64 * 2 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b' ' + (state >> 33) as u8 % 94)
    };
    (0..500).map(|_| next()).collect()
}

fn message(message: &Message) -> Typed {
    Typed::msgpack(Encoded::encode(&message.to_ext().unwrap()).unwrap().bytes)
}

fn list(items: &[Typed]) -> Typed {
    let values = items.iter().map(|item| annals_base::decode_value(annals_base::Codec::MsgPack, &item.bytes).unwrap());
    Typed::msgpack(Encoded::encode(&Value::List(values.collect())).unwrap().bytes)
}

/// Returns the input of a run: `{"messages": [message]}`.
fn input(message: &Typed) -> Typed {
    let messages = annals_base::decode_value(annals_base::Codec::MsgPack, &list(&[message.clone()]).bytes).unwrap();
    let input: Map = [("messages".to_owned(), messages)].into_iter().collect();
    Typed::msgpack(Encoded::encode(&Value::Map(input)).unwrap().bytes)
}

impl Chat {
    fn bump(&mut self, channel: &str) -> Version {
        let highest = self.versions.iter().map(|(_, version)| format!("{version:?}")).max();
        let current = self.versions.iter().find(|(_, version)| Some(format!("{version:?}")) == highest);
        let next = self.saver.next_version(current.map(|(_, version)| version));
        match self.versions.iter_mut().find(|(name, _)| name == channel) {
            Some((_, version)) => *version = next.clone(),
            None => self.versions.push((channel.into(), next.clone())),
        }
        next
    }

    fn put(&mut self, source: &str, values: Vec<(String, NewValue)>, updated: &[&str]) {
        let id = format!("1f000000-0000-6000-8000-{:012}", self.number);
        self.number += 1;
        let mut new = NewCheckpoint::new(id, format!("2026-01-01T00:00:01.{:06}+00:00", self.number));
        (new.versions, new.seen) = (self.versions.clone(), self.seen.clone());
        new.updated = UpdatedChannels::Names(updated.iter().map(|name| (*name).to_owned()).collect());
        new.values = values;
        let metadata = [("source", source.into()), ("step", self.step.into()), ("parents", Value::Map(Map::new()))];
        new.metadata = metadata.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        self.step += 1;
        self.at = self.saver.put(&self.at, new, OnConflict::Refuse).unwrap();
    }

    fn messages(&self, known: usize) -> NewValue {
        if self.whole_lists {
            return NewValue::Typed(list(&self.messages));
        }
        let item = |(at, item): (usize, &Typed)| match at < known {
            true => NewItem::Same(at as u32),
            false => NewItem::New(item.clone()),
        };
        NewValue::Items(self.messages.iter().enumerate().map(item).collect())
    }

    fn write(&self, task: u64, node: &str, writes: Vec<(String, Typed)>) {
        let task = format!("{:08x}-{:04x}-4000-8000-{:012x}", self.number, task, self.number * 7);
        self.saver.put_writes(&self.at, &task, &format!("~__pregel_pull, {node}"), writes).unwrap();
    }

    fn see(&mut self, node: &str, channel: &str, version: Version) {
        let versions = vec![(channel.to_owned(), version)];
        match self.seen.iter_mut().find(|(name, _)| name == node) {
            Some((_, seen)) => *seen = versions,
            None => self.seen.push((node.into(), versions)),
        }
    }

    fn turn(&mut self, turn: usize) {
        let known = self.messages.len();
        let human = message(&Message::human(text(turn * 2)).with_id(format!("h{turn}")));
        let ai = message(&Message::ai(text(turn * 2 + 1)).with_id(format!("a{turn}")));
        let start = self.bump("__start__");
        let mut values = vec![("__start__".to_owned(), NewValue::Typed(input(&human)))];
        if known > 0 {
            values.push(("messages".into(), self.messages(known)));
        }
        self.put("input", values, &["__start__"]);

        let null = Typed::new("null", Vec::new());
        let branch = "branch:to:model";
        self.write(0, "__start__", vec![("messages".into(), list(&[human.clone()])), (branch.into(), null.clone())]);
        self.messages.push(human);
        self.see("__start__", "__start__", start);
        self.bump("__start__");
        self.bump("messages");
        let due = self.bump(branch);
        let values = vec![("messages".into(), self.messages(known)), (branch.into(), NewValue::Typed(null))];
        self.put("loop", values, &[branch, "messages"]);

        self.write(1, "model", vec![("messages".into(), list(&[ai.clone()]))]);
        self.messages.push(ai);
        self.see("model", branch, due);
        self.bump(branch);
        self.bump("messages");
        let values = vec![("messages".into(), self.messages(known + 1))];
        self.put("loop", values, &["messages"]);
    }
}

/// Returns the bytes of the file for each turn, after some turns.
fn bytes_per_turn(ends: &[usize], whole_lists: bool) -> Vec<u64> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chat.db");
    let store = Store::open_with(&path, OpenOptions::new().synchronous(Synchronous::Normal)).unwrap();
    let saver = Saver::new(store);
    let mut chat = Chat {
        at: Config::new("chat", ""),
        saver,
        number: 1,
        step: -1,
        versions: Vec::new(),
        seen: Vec::new(),
        messages: Vec::new(),
        whole_lists,
    };
    let (mut sizes, mut turn, mut before) = (Vec::new(), 0, (0, 0));
    for end in ends {
        (turn..*end).for_each(|turn| chat.turn(turn));
        turn = *end;
        let copy = folder.path().join(format!("{end}.db"));
        chat.saver.store().backup(&copy).unwrap();
        std::fs::copy(&copy, format!("/tmp/lg/{end}.db")).unwrap();
        let bytes = std::fs::metadata(&copy).unwrap().len();
        sizes.push((bytes - before.0) / (*end as u64 - before.1));
        before = (bytes, *end as u64);
    }
    let tuple = chat.saver.tuple(&Config::new("chat", "")).unwrap().unwrap();
    assert_eq!(tuple.values.len(), 1);
    assert_eq!(annals_langgraph::StoredValue::Items(chat.messages), tuple.values[0].1);
    sizes
}

#[test]
fn a_turn_of_two_messages_costs_about_two_kilobytes_however_long_the_chat_is() {
    let sizes = bytes_per_turn(&[30, 100, 300], false);
    println!("{sizes:?}");
    assert!(sizes.iter().skip(1).all(|bytes| *bytes < 2_160), "{sizes:?}");
    assert!(sizes[2] < sizes[1] + sizes[1] / 20, "{sizes:?}");
}

#[test]
fn a_list_that_is_given_as_a_whole_is_stored_item_by_item() {
    let sizes = bytes_per_turn(&[30, 60], true);
    assert!(sizes[1] < 2_400, "{sizes:?}");
}
