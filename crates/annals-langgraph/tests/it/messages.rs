//! Messages come back byte for byte, and are messages of the log where that is exact.

use annals::store::{ItemRange, Store};
use annals_base::{Encoded, Value};
use annals_langgraph::{Config, LostRace, NewValue, Saver, SaverCheckpoint, SaverError, SaverItem, StoredValue, Typed};
use annals_messages::Message;

/// Returns the extension that LangGraph's serializer writes for a model.
fn model(module: &str, class: &str, fields: serde_json::Value) -> Typed {
    let parts: Vec<Value> = vec![module.into(), class.into(), fields.into(), "model_validate_json".into()];
    let inner = Encoded::encode(&Value::List(parts)).unwrap().bytes;
    Typed::msgpack(Encoded::encode(&Value::Ext(5, inner)).unwrap().bytes)
}

fn exact(message: &Message) -> Typed {
    Typed::msgpack(Encoded::encode(&message.to_ext().unwrap()).unwrap().bytes)
}

#[test]
fn a_message_whose_bytes_would_differ_is_stored_as_it_is() {
    let lost = serde_json::json!({"content": "found by its text", "type": "human", "id": "m2"});
    let items = [
        exact(&Message::human("hi").with_id("m1")),
        model("langchain_core.messages.human", "HumanMessage", lost),
        model("langchain_core.documents.base", "Document", serde_json::json!({"page_content": "x"})),
        Typed::msgpack(vec![0x01]),
        Typed::new("msgpack+aes", vec![9; 200]),
        exact(&Message::ai("hello").with_id("m3")),
    ];
    let store = Store::memory();
    let saver = Saver::new(store.clone());
    let place = Config::new("t", "");
    let mut new = SaverCheckpoint::new("1f000000-0000-6000-8000-000000000001", "2026-01-01T00:00:01+00:00");
    new.versions = vec![("messages".into(), saver.next_version(None))];
    let given = items.iter().cloned().map(SaverItem::New).collect();
    new.values = vec![("messages".into(), NewValue::Items(given))];
    saver.put(&place, new, LostRace::Refuse).unwrap();

    let tuple = saver.tuple(&place).unwrap().unwrap();
    assert_eq!(tuple.values, [("messages".to_owned(), StoredValue::from(items.to_vec()))]);
    let head = store.thread("t").unwrap().head().unwrap().unwrap();
    assert_eq!(head.get("messages").unwrap().unwrap().as_list().unwrap().len(), 6, "the list is shown");
    let kinds = |positions| head.messages("messages", positions).unwrap().into_iter().map(|m| m.kind().to_owned());
    assert_eq!(kinds(ItemRange::Positions(0, 1)).collect::<Vec<_>>(), ["human"]);
    assert_eq!(kinds(ItemRange::Positions(5, 6)).collect::<Vec<_>>(), ["ai"]);
    let hits = store.search(annals::store::SearchQuery::new("found text")).unwrap();
    assert_eq!(hits.hits.len(), 1, "a message that is not exact is found by its text");
}

#[test]
fn a_thread_of_the_engine_is_read_and_continued() {
    let store = Store::memory();
    let thread = store.thread("t").unwrap();
    let human = Message::human("hi").with_id("m1");
    thread.append("messages", [human.clone()]).unwrap();
    thread.put("votes", "anna", 3).unwrap();
    thread.write().append_text("text", "once ").append_text("text", "upon").commit().unwrap();
    thread.set("title", "greetings").unwrap();

    let saver = Saver::new(store);
    let place = Config::new("t", "");
    let tuple = saver.tuple(&place).unwrap().unwrap();
    let plain = |value: Value| StoredValue::Typed(Typed::msgpack(Encoded::encode(&value).unwrap().bytes));
    let votes: annals_base::Map = [("anna".to_owned(), 3.into())].into_iter().collect();
    let mut values = [
        ("messages".to_owned(), StoredValue::from(vec![exact(&human)])),
        ("text".to_owned(), plain("once upon".into())),
        ("title".to_owned(), plain("greetings".into())),
        ("votes".to_owned(), plain(Value::Map(votes))),
    ];
    assert_eq!(tuple.values, values);

    let mut new = SaverCheckpoint::new("3f000000-0000-6000-8000-000000000001", "2026-01-01T00:00:01+00:00");
    new.versions = tuple.versions.clone();
    new.values = ["title", "text", "votes"].map(|name| (name.to_owned(), NewValue::Same)).to_vec();
    let answer = exact(&Message::ai("hello").with_id("m2"));
    let items = vec![SaverItem::Same(0..1), SaverItem::New(answer.clone())];
    new.values.push(("messages".into(), NewValue::Items(items)));
    saver.put(&tuple.config, new, LostRace::Refuse).unwrap();
    values[0].1 = StoredValue::from(vec![exact(&human), answer]);
    assert_eq!(saver.tuple(&place).unwrap().unwrap().values, values);
    let head = thread.head().unwrap().unwrap();
    assert_eq!((head.len("messages").unwrap(), head.get("votes").unwrap().unwrap()["anna"].as_int()), (2, Some(3)));
}

#[test]
fn a_message_that_gets_its_id_after_it_was_written_is_stored_once() {
    let store = Store::memory();
    let saver = Saver::new(store.clone());
    let (place, version) = (Config::new("t", ""), saver.next_version(None));
    let mut first = SaverCheckpoint::new("1f000000-0000-6000-8000-000000000001", "2026-01-01T00:00:01+00:00");
    first.versions = vec![("n".into(), version.clone())];
    let first = saver.put(&place, first, LostRace::Refuse).unwrap();

    let text = "an answer of some length, which is not stored a second time, as a write and as an item";
    let (unnamed, named) = (Message::ai(text), Message::ai(text).with_id("m1"));
    let array = |items: &[&Message]| {
        let items = items.iter().map(|message| message.to_ext().unwrap()).collect();
        Typed::msgpack(Encoded::encode(&Value::List(items)).unwrap().bytes)
    };
    let other = Message::human("without an id in the checkpoint as well, and long enough for a reference");
    let written = array(&[&unnamed, &other]);
    let task = "00000000-0000-0000-0000-000000000007";
    saver.put_writes(&first, task, "~__pregel_pull, model", vec![("messages".into(), written.clone())]).unwrap();
    let mut second = SaverCheckpoint::new("1f000000-0000-6001-8000-000000000002", "2026-01-01T00:00:02+00:00");
    second.versions = vec![("messages".into(), version.clone()), ("n".into(), version)];
    second.values = vec![("messages".into(), NewValue::Typed(array(&[&named, &other])))];
    saver.put(&first, second, LostRace::Refuse).unwrap();

    let tuple = saver.tuple(&place).unwrap().unwrap();
    let items = StoredValue::from(vec![exact(&named), exact(&other)]);
    assert_eq!(tuple.values, [("messages".to_owned(), items)]);
    let [write] = &*saver.tuple(&first).unwrap().unwrap().writes else { panic!("one write") };
    assert_eq!((&*write.task, &*write.path, &write.value), (task, "~__pregel_pull, model", &written));
}

#[test]
fn a_list_is_given_as_ranges_of_the_list_of_the_parent() {
    let text = |text: &str| Typed::msgpack(Encoded::encode(&Value::from(text)).unwrap().bytes);
    let new = |value: &str| SaverItem::New(text(value));
    let saver = Saver::new(Store::memory());
    let mut place = Config::new("t", "");
    let mut version = None;
    let mut put = |number: u32, items: Vec<SaverItem>| {
        let mut checkpoint = SaverCheckpoint::new(format!("1f000000-0000-6000-8000-{number:012}"), "");
        version = Some(saver.next_version(version.as_ref()));
        checkpoint.versions = vec![("list".into(), version.clone().unwrap())];
        checkpoint.values = vec![("list".into(), NewValue::Items(items))];
        place = saver.put(&place, checkpoint, LostRace::Refuse)?;
        // Another saver has no cached state, and reads what is stored.
        Ok::<_, SaverError>(Saver::new(saver.store().clone()).tuple(&place).unwrap().unwrap().values.remove(0).1)
    };
    let steps = [
        (vec![new("a"), new("b"), new("c"), new("d")], "abcd"),
        (vec![SaverItem::Same(0..4), new("e")], "abcde"),
        (vec![SaverItem::Same(1..3), SaverItem::Same(4..5), new("f")], "bcef"),
        (vec![SaverItem::Same(0..1), new("g"), new("h"), SaverItem::Same(1..1), SaverItem::Same(2..4)], "bghef"),
        (vec![new("i"), SaverItem::Same(0..2), new("j"), SaverItem::Same(2..5)], "ibgjhef"),
        (vec![SaverItem::Same(0..7)], "ibgjhef"),
        (vec![], ""),
    ];
    for (number, (items, expected)) in (1..).zip(steps) {
        let expected: Vec<Typed> = expected.chars().map(|item| text(&item.to_string())).collect();
        assert_eq!(put(number, items).unwrap(), StoredValue::from(expected), "step {number}");
    }
    put(8, vec![new("a"), new("b")]).unwrap();
    for ranges in [&[(0, 3)][..], &[(1, 2), (0, 1)], &[(0, 2), (1, 2)], &[(3, 3)], &[(1, 0)]] {
        let error = put(9, ranges.iter().map(|(start, end)| SaverItem::Same(*start..*end)).collect()).unwrap_err();
        assert!(error.to_string().contains("indexes of the 2 items of the parent"), "{error}");
    }
}
