//! Differences of stored states: applied to the first state, each gives the second.

use annals::base::{IdSource, Map};
use annals::history::{ChannelDiff, ItemDiff, Snapshot, Thread, diff};
use annals::prelude::*;

use super::on_both::on_both;
use crate::cases;

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
    #[channel(append)]
    log: List<String>,
    title: Option<String>,
    plan: Value,
}

struct Dice(IdSource);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0.random() % n
    }

    fn value(&mut self, depth: u64) -> Value {
        match self.below(if depth == 0 { 3 } else { 5 }) {
            0 => Value::from(self.below(4)),
            1 => Value::from(["a", "b~/", ""][self.below(3) as usize]),
            2 => Value::Null,
            3 => Value::List((0..self.below(4)).map(|_| self.value(depth - 1)).collect()),
            _ => {
                let members =
                    (0..self.below(4)).map(|n| (["x", "y/", "z"][n as usize % 3].to_owned(), self.value(depth - 1)));
                Value::Map(members.collect::<Map>())
            }
        }
    }
}

/// Makes one random change of a thread.
fn change(thread: &Thread, dice: &mut Dice) {
    let chat = thread.with_state::<Chat>();
    let messages = chat.state().unwrap().messages.clone();
    let id = dice.below(9).to_string();
    let present = messages.iter().any(|message| message.id.as_deref() == Some(&*id));
    let text = ["one", "two", "three"][dice.below(3) as usize];
    let update = match dice.below(9) {
        0..=2 => Chat::update().messages([Message::human(text).with_id(id)]),
        3 if present => Chat::update().messages([Message::remove(id)]),
        4 if present => Chat::update().messages([Message::remove(id.clone()), Message::ai(text).with_id(id)]),
        5 => Chat::update().log([text.to_string(), "more".to_string()]),
        6 => Chat::update().overwrite_log([text.to_string()]),
        7 => Chat::update().plan(dice.value(3)),
        _ => Chat::update().title(text.to_string()).messages([Message::ai(text)]),
    };
    chat.update(update).unwrap();
}

#[test]
fn a_difference_applied_to_the_first_state_gives_the_second() {
    for seed in 0..cases(2, 6) {
        on_both(|store| {
            let mut dice = Dice(IdSource::from_seed(seed));
            let mut threads = vec![store.thread("t0").unwrap()];
            let mut all: Vec<Snapshot> = Vec::new();
            for n in 1..60 {
                let thread = threads[dice.below(threads.len() as u64) as usize].clone();
                if dice.below(12) == 0 && !all.is_empty() {
                    let from = &all[dice.below(all.len() as u64) as usize];
                    threads.push(from.fork_to(format!("t{n}")).unwrap());
                } else {
                    change(&thread, &mut dice);
                    all.push(thread.at("@").unwrap());
                }
            }
            let alone = store.thread("alone").unwrap();
            change(&alone, &mut dice);
            all.push(alone.at("@").unwrap());
            let values: Vec<Map> = all.iter().map(|at| at.values().unwrap()).collect();
            for _ in 0..300 {
                let (a, b) = (dice.below(all.len() as u64) as usize, dice.below(all.len() as u64) as usize);
                let found = diff(&all[a], &all[b]).unwrap();
                assert_eq!(found.apply(&values[a]).unwrap(), values[b], "{found}");
                assert_eq!(found.channels.is_empty(), values[a] == values[b], "{found}");
                assert_eq!(found.to_string().is_empty(), found.channels.is_empty());
            }
        });
    }
}

#[test]
fn messages_are_added_edited_removed_and_moved_by_id() {
    on_both(|store| {
        let chat = store.thread("chat").unwrap().with_state::<Chat>();
        let human = |text: &str, id: &str| Message::human(text).with_id(id);
        chat.update(Chat::update().messages([human("a", "1"), human("b", "2"), human("c", "3")])).unwrap();
        let before = chat.thread().at("@").unwrap();
        chat.update(Chat::update().messages([human("B", "2"), human("d", "4")])).unwrap();
        chat.update(Chat::update().messages([Message::remove("1")])).unwrap();
        chat.update(Chat::update().messages([Message::remove("3")])).unwrap();
        chat.update(Chat::update().messages([human("c", "3")])).unwrap();
        let after = chat.thread().at("@").unwrap();
        let found = diff(&before, &after).unwrap();
        let [ChannelDiff::Items { channel, items }] = &found.channels[..] else { panic!("{found}") };
        assert_eq!(&**channel, "messages");
        let lines: Vec<String> = items.iter().map(ItemDiff::to_string).collect();
        assert_eq!(lines, ["- [0] human: a", "~ [0] human: b -> human: B", "+ [1] human: d"]);
        assert_eq!(found.apply(&before.values().unwrap()).unwrap(), after.values().unwrap());
        let patch = items[1].patch().unwrap().to_string();
        assert_eq!(patch, r#"[{"op":"replace","path":"/content","value":"B"}]"#);
        assert_eq!(items[1].id(), Some("2"));
        let wrong = found.apply(&after.values().unwrap()).unwrap_err();
        assert_eq!((wrong.op, &*wrong.path), (0, "messages"));

        chat.update(Chat::update().messages([Message::remove("4")])).unwrap();
        chat.update(Chat::update().messages([human("d", "4")])).unwrap();
        let moved = diff(&after, &chat.thread().at("@").unwrap()).unwrap();
        assert_eq!(moved.to_string(), "messages: 1 moved\n  > [1 to 2] human: d\n");
    });
}
