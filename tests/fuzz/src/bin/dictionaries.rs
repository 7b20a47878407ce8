//! LangChain's dictionaries, as a text and as values: both readers say the same, and what was loaded is loaded again.

#![no_main]

use annals::base::Value;
use annals::message::{messages_from_dict, messages_from_json};
use annals_fuzz::{load_again, loaded, value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let of_text = loaded(messages_from_json(bytes));
    let Some(Value::List(dicts)) = value(bytes) else {
        assert!(of_text.is_none(), "no list: {of_text:?}");
        return;
    };
    let of_values = loaded(messages_from_dict(dicts));
    if serde_json::from_slice::<serde_json::Value>(bytes).is_ok() {
        assert_eq!(of_text, of_values);
    }
    of_values.into_iter().flatten().for_each(load_again);
});
