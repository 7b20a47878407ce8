//! Pieces of messages as they stream in, added to each other: LangChain's message chunks, PydanticAI's parts and
//! changes.

#![no_main]

use annals::base::Value;
use annals::message::{Message, message_chunk_to_message};
use annals_fuzz::{load_again, loaded, value, with_defaults};
use annals_pydantic_ai::{PartDelta, PartOrDelta};
use libfuzzer_sys::fuzz_target;

fn langchain(items: &[Value]) {
    let pieces = items.iter().filter_map(|item| {
        let mut piece = item.as_map()?.clone();
        piece.insert("type".into(), "AIMessageChunk".into());
        loaded(Message::try_from(Value::Map(piece)))
    });
    if let Some(sum) = pieces.map(Ok).reduce(|sum, piece| sum?.plus(piece?)).and_then(loaded) {
        load_again(message_chunk_to_message(sum.clone()));
        load_again(sum);
    }
}

fn pydantic_ai(items: Vec<Value>) {
    let mut items = items.into_iter();
    let Some(Ok(first)) = items.next().map(|item| item.to::<PartOrDelta>()) else { return };
    let mut deltas = items.map_while(|item| with_defaults(|defaults| PartDelta::from_value(item, defaults)).ok());
    let sum = deltas.try_fold(first, |sum, delta| with_defaults(|defaults| delta.apply_to(sum, defaults)));
    if let Ok(sum) = sum {
        let dumped = Value::from_serialize(&sum).expect("a part or a change is JSON");
        assert_eq!(dumped.to::<PartOrDelta>().expect("a part or a change of our own"), sum);
    }
}

fuzz_target!(|bytes: &[u8]| {
    if let Some(Value::List(items)) = value(bytes) {
        langchain(&items);
        pydantic_ai(items);
    }
});
