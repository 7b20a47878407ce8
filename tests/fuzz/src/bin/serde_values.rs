//! Fuzzes the public types of messages as serde values: an instance read from a text or a value equals the instances
//! read from its own text and value.

#![no_main]

use std::fmt::Debug;

use annals::base::Value;
use annals::message::blocks::{Annotation, ContentBlock, Index};
use annals::message::{Chunk, Content, Message, MessageClass, Role, ToolCall, ToolCallChunk, Usage};
use annals_fuzz::value;
use annals_pydantic_ai as pai;
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8], value: Option<&Value>) {
    let of_text = serde_json::from_slice::<T>(bytes).ok();
    for found in of_text.into_iter().chain(value.and_then(|value| value.to::<T>().ok())) {
        // JSON has no word for bytes, and for floats that are none.
        if let Ok(text) = serde_json::to_string(&found)
            && let Ok(again) = serde_json::from_str::<T>(&text)
        {
            assert_eq!(serde_json::to_string(&again).expect("it has a text"), text);
        }
        let stored = Value::from_serialize(&found).expect("a value of our own");
        assert_eq!(stored.to::<T>().expect("a value of our own"), found);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let value = value(bytes);
    macro_rules! all {
        ($($name:ty)*) => { $(check::<$name>(bytes, value.as_ref());)* };
    }
    all! {
        Value Message Content Role Chunk MessageClass ToolCall ToolCallChunk Usage
        ContentBlock Annotation Index
        pai::ModelMessage pai::RequestPart pai::ResponsePart pai::PartOrDelta pai::StreamEvent pai::UserContent
        pai::ToolContent pai::ToolArgs pai::InstructionPart pai::InstructionRecord pai::RunUsage pai::UsageLimits
        pai::DateTime pai::Decimal pai::BinaryData
    }
});
