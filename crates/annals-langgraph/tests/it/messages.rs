//! Messages come back byte for byte, and are messages of the log where that is exact.

use annals::store::{ItemRange, Store};
use annals_base::{Encoded, Value};
use annals_langgraph::{Config, NewCheckpoint, NewItem, NewValue, OnConflict, Saver, StoredValue, Typed};
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
    let mut new = NewCheckpoint::new("1f000000-0000-6000-8000-000000000001", "2026-01-01T00:00:01+00:00");
    new.versions = vec![("messages".into(), saver.next_version(None))];
    let given = items.iter().cloned().map(NewItem::New).collect();
    new.values = vec![("messages".into(), NewValue::Items(given))];
    saver.put(&place, new, OnConflict::Refuse).unwrap();

    let tuple = saver.tuple(&place).unwrap().unwrap();
    assert_eq!(tuple.values, [("messages".to_owned(), StoredValue::Items(items.to_vec()))]);
    let head = store.thread("t").unwrap().head().unwrap().unwrap();
    assert_eq!(head.get("messages").unwrap().unwrap().as_list().unwrap().len(), 6, "the list is shown");
    let kinds = |positions| head.messages("messages", positions).unwrap().into_iter().map(|m| m.kind().to_owned());
    assert_eq!(kinds(ItemRange::Positions(0, 1)).collect::<Vec<_>>(), ["human"]);
    assert_eq!(kinds(ItemRange::Positions(5, 6)).collect::<Vec<_>>(), ["ai"]);
    let hits = store.search(annals::store::SearchQuery::new("found text")).unwrap();
    assert_eq!(hits.hits.len(), 1, "a message that is not exact is found by its text");
}
