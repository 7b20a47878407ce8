//! PydanticAI's histories: what was loaded, its text loads again, byte for byte.

#![no_main]

use annals::message::pydantic_ai::{dump, load, to_langchain};
use annals_fuzz::{load_again, loaded, with_fresh};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let history = match with_fresh(|fresh| load(bytes, fresh)) {
        Ok(history) => history,
        Err(error) => {
            assert!(error.to_string().starts_with("messages"), "no path: {error}");
            return;
        }
    };
    let text = dump(&history);
    let again = with_fresh(|fresh| load(text.as_bytes(), fresh)).expect("a text of our own");
    assert_eq!(dump(&again), text);
    loaded(to_langchain(&history, true)).into_iter().flatten().for_each(load_again);
});
