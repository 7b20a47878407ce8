//! Fuzzes LangChain's dictionaries, as a text and as values: both readers agree, and a loaded message is loaded again.

#![no_main]

use annals::base::Value;
use annals::message::internal::json_loads;
use annals::message::{messages_from_dict, messages_from_json};
use annals_fuzz::{load_again, loaded, value};
use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;

fuzz_target!(|bytes: &[u8]| {
    let of_text = loaded(messages_from_json(bytes));
    let text = str::from_utf8(bytes).unwrap_or_default();
    match json_loads(text, true) {
        Ok(Value::List(dicts)) => assert_eq!(of_text, loaded(messages_from_dict(dicts))),
        // A member that is ignored may nest more deeply than a value, and have half a character.
        _ if serde_json::from_str::<IgnoredAny>(text).is_ok() => {}
        _ => assert!(of_text.is_none(), "no list: {of_text:?}"),
    }
    let of_values = match value(bytes) {
        Some(Value::List(dicts)) => loaded(messages_from_dict(dicts)),
        _ => None,
    };
    of_text.into_iter().chain(of_values).flatten().for_each(load_again);
});
