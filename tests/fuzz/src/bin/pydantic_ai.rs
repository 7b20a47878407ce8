//! Fuzzes PydanticAI's histories: the text of a loaded history loads again, byte for byte.

#![no_main]

use annals::base::Value;
use annals_fuzz::{load_again, loaded, with_defaults};
use annals_pydantic_ai::{dump, load, to_langchain, to_value};
use libfuzzer_sys::fuzz_target;

fn is_finite(value: &Value) -> bool {
    match value {
        Value::Float(x) => x.is_finite(),
        Value::List(items) => items.iter().all(is_finite),
        Value::Map(map) => map.values().all(is_finite),
        _ => true,
    }
}

fuzz_target!(|bytes: &[u8]| {
    let history = match with_defaults(|defaults| load(bytes, defaults)) {
        Ok(history) => history,
        Err(error) => {
            assert!(error.to_string().starts_with("messages"), "no path: {error}");
            return;
        }
    };
    let text = dump(&history);
    match with_defaults(|defaults| load(text.as_bytes(), defaults)) {
        Ok(again) => assert_eq!(dump(&again), text),
        // A number that is not finite is written as `null`, which is not a number.
        Err(error) => assert!(!is_finite(&to_value(&history)), "a text of our own: {error}"),
    }
    loaded(to_langchain(&history, true)).into_iter().flatten().for_each(load_again);
});
