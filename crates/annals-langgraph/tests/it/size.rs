//! The bytes of a turn do not grow with the number of turns.
//!
//! A turn is that of `benches/peers/langgraph_turns.py`: an answer of 500 bytes, three checkpoints.

use annals::store::{OpenOptions, Store, Synchronous};
use annals_base::{Encoded, IdSource, Map, Timestamp, Value};
use annals_langgraph::{
    Config, LostRace, NewValue, Saver, SaverCheckpoint, SaverItem, SaverVersion, Typed, UpdatedChannels,
};
use annals_messages::Message;

/// A chat as LangGraph runs it: of a turn the input, the step of `__start__`, and the step of the node.
struct Chat {
    saver: Saver,
    at: Config,
    number: u64,
    step: i64,
    versions: Vec<(String, SaverVersion)>,
    seen: Vec<(String, Vec<(String, SaverVersion)>)>,
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

impl Chat {
    fn bump(&mut self, channel: &str) -> SaverVersion {
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
        // Ids as LangGraph makes them: of a clock, here a millisecond apart.
        let now = Timestamp::from_micros(1_795_223_817_000_000 + self.number.cast_signed() * 1_000);
        let id = IdSource::from_seed(self.number).checkpoint(now, self.step, None).to_string();
        self.number += 1;
        let mut new = SaverCheckpoint::new(id, format!("2026-01-01T00:00:01.{:06}+00:00", self.number));
        (new.versions, new.seen) = (self.versions.clone(), self.seen.clone());
        new.updated = UpdatedChannels::Names(updated.iter().map(|name| (*name).to_owned()).collect());
        new.values = values;
        let metadata = [("source", source.into()), ("step", self.step.into()), ("parents", Value::Map(Map::new()))];
        new.metadata = metadata.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        self.step += 1;
        self.at = self.saver.put(&self.at, new, LostRace::Refuse).unwrap();
    }

    fn messages(&self, known: usize) -> NewValue {
        if self.whole_lists {
            return NewValue::Typed(list(&self.messages));
        }
        let mut items = vec![SaverItem::Same(0..known as u32)];
        items.extend(self.messages[known..].iter().cloned().map(SaverItem::New));
        NewValue::Items(items)
    }

    fn write(&self, task: u64, node: &str, writes: Vec<(String, Typed)>) {
        let task = format!("{:08x}-{:04x}-4000-8000-{:012x}", self.number, task, self.number * 7);
        self.saver.put_writes(&self.at, &task, &format!("~__pregel_pull, {node}"), writes).unwrap();
    }

    fn see(&mut self, node: &str, channel: &str, version: SaverVersion) {
        let versions = vec![(channel.to_owned(), version)];
        match self.seen.iter_mut().find(|(name, _)| name == node) {
            Some((_, seen)) => *seen = versions,
            None => self.seen.push((node.into(), versions)),
        }
    }

    fn turn(&mut self, turn: usize) {
        let known = self.messages.len();
        let answer = Message::ai(text(turn));
        let channel = |name: &str, value: NewValue| (name.to_owned(), value);
        let input: Map = [("n".to_owned(), Value::from(turn as u64))].into_iter().collect();
        let input = Typed::msgpack(Encoded::encode(&Value::Map(input)).unwrap().bytes);
        let n = Typed::msgpack(Encoded::encode(&turn).unwrap().bytes);
        let start = self.bump("__start__");
        let mut values = vec![channel("__start__", NewValue::Typed(input)), channel("messages", self.messages(known))];
        values.extend((turn > 0).then(|| channel("n", NewValue::Same)));
        self.put("input", values, &["__start__"]);

        let null = Typed::new("null", Vec::new());
        let branch = "branch:to:answer";
        self.write(0, "__start__", vec![("n".into(), n.clone()), (branch.into(), null.clone())]);
        self.see("__start__", "__start__", start);
        self.bump("__start__");
        self.bump("n");
        let due = self.bump(branch);
        let values = vec![
            channel("messages", self.messages(known)),
            channel(branch, NewValue::Typed(null)),
            channel("n", NewValue::Typed(n)),
        ];
        self.put("loop", values, &[branch, "n"]);

        // The reducer gives the message its id after it was written.
        self.write(1, "answer", vec![("messages".into(), list(&[message(&answer)]))]);
        self.messages.push(message(&answer.with_id(format!("{:08x}-ab12-4cd3-8ef4-0123456789ab", turn))));
        self.see("answer", branch, due);
        self.bump(branch);
        self.bump("messages");
        self.put("loop", vec![channel("messages", self.messages(known)), channel("n", NewValue::Same)], &["messages"]);
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
        let bytes = std::fs::metadata(&copy).unwrap().len();
        sizes.push((bytes - before.0) / (*end as u64 - before.1));
        before = (bytes, *end as u64);
    }
    let tuple = chat.saver.tuple(&Config::new("chat", "")).unwrap().unwrap();
    assert_eq!(tuple.values.len(), 2);
    assert_eq!(annals_langgraph::StoredValue::from(chat.messages), tuple.values[0].1);
    sizes
}

/// Returns how many turns a test makes: fewer in the test command, all with the variable `ANNALS_ALL_CASES`.
fn turns(few: usize, all: usize) -> usize {
    if std::env::var_os("ANNALS_ALL_CASES").is_some() { all } else { few }
}

#[test]
fn a_turn_costs_less_than_two_kilobytes_however_long_the_chat_is() {
    let long = turns(150, 3_000);
    let sizes = bytes_per_turn(&[20, long / 5, long], false);
    // 1,433 if each put takes the writes before it along, as it does unless the machine is slow.
    assert!(sizes[2] < 2_000, "{sizes:?}");
}

#[test]
fn a_list_that_is_given_as_a_whole_is_stored_item_by_item() {
    let sizes = bytes_per_turn(&[20, 60], true);
    assert!(sizes[1] < 2_700, "{sizes:?}");
}
