//! Fuzzes the values that may stand for a message: flat dictionaries, pairs, texts, lists of these.

#![no_main]

use annals::message::{Message, any_message, convert_to_messages};
use annals_fuzz::{load_again, loaded, value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(value) = value(bytes) else { return };
    let lists = [
        convert_to_messages([value.clone()]),
        convert_to_messages(value.as_list().unwrap_or_default().iter().cloned()),
        any_message(value.clone()).map(|message| vec![message]),
        Message::try_from(value).map(|message| vec![message]),
    ];
    lists.into_iter().filter_map(loaded).flatten().for_each(load_again);
});
