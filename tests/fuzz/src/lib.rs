//! The shared parts of the fuzz targets: values out of bytes, and the laws that hold for every loaded value.
//!
//! *Absent:* generators. A target is given bytes, and finds values with them that a strategy does not generate.

use annals::base::decode_bytes;
use annals::base::{Codec, IdSource, SystemClock, Value};
use annals::message::{Message, MessageError, message_to_dict, messages_from_dict};
use annals_pydantic_ai::DefaultSource;

/// Reads a value: JSON, or else MessagePack, which also knows bytes and extensions.
pub fn value(bytes: &[u8]) -> Option<Value> {
    let json = serde_json::from_slice::<serde_json::Value>(bytes);
    json.map(Value::from).or_else(|_| decode_bytes(Codec::MsgPack, bytes)).ok()
}

/// Calls with what older messages lack: ids that are the same in every run, and the present moment.
pub fn with_defaults<T>(call: impl FnOnce(&mut DefaultSource<'_>) -> T) -> T {
    call(&mut DefaultSource::new(&SystemClock, &mut IdSource::from_seed(1)))
}

/// Returns the loaded value. A refusal has a reason and a class.
pub fn loaded<T>(result: Result<T, MessageError>) -> Option<T> {
    if let Err(error) = &result {
        assert!(!error.to_string().is_empty() && !error.class().as_str().is_empty());
    }
    result.ok()
}

/// Asserts that a message's own dictionary loads the message again; a dictionary of an unknown type is refused.
pub fn load_again(message: Message) {
    let again = messages_from_dict([message_to_dict(&message)]);
    if message.class().is_none() {
        assert!(again.is_err(), "its type is not known: {message:?}");
        return;
    }
    let again = again.expect("a dictionary of our own");
    if message.is_chunk() {
        // As in LangChain, a piece without pieces of calls makes them of its calls, and from then on its calls of them.
        let more = messages_from_dict(again.iter().map(message_to_dict)).expect("a dictionary of our own");
        assert_eq!(more, again);
    } else {
        assert_eq!(again, [message]);
    }
}
