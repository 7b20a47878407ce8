//! Content blocks of every provider: a message of each is typed blocks or an error, and the blocks are what their JSON
//! says.

#![no_main]

use annals::base::{IdSource, Map, Value};
use annals::message::Message;
use annals::message::blocks::{ContentBlock, Translators};
use annals_fuzz::{loaded, value};
use libfuzzer_sys::fuzz_target;

const PROVIDERS: &[&str] = &["", "openai", "anthropic", "bedrock", "bedrock_converse", "google_genai", "groq"];

fuzz_target!(|bytes: &[u8]| {
    let Some(value) = value(bytes) else { return };
    // A whole message, or else the content of one.
    let fields = match value {
        Value::Map(map) if map.contains_key("content") => map,
        content => Map::from_iter([("content".to_owned(), content)]),
    };
    for kind in ["ai", "AIMessageChunk", "human"] {
        let mut fields = fields.clone();
        fields.insert("type".into(), kind.into());
        let Some(mut message) = loaded(Message::try_from(Value::Map(fields))) else { continue };
        for provider in PROVIDERS {
            message.response_metadata.insert("model_provider".into(), (*provider).into());
            let blocks = Translators::default().blocks(&message, &mut IdSource::from_seed(1));
            for block in loaded(blocks).into_iter().flatten() {
                let dumped = Value::from_serialize(&block).expect("a block is JSON");
                assert_eq!(ContentBlock::from(dumped), block);
            }
        }
    }
});
