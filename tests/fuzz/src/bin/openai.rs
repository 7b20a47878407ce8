//! Fuzzes OpenAI's chat messages: a message that was read is written or refused, and a written message has a format
//! that may be read.

#![no_main]

use annals::base::Value;
use annals::message::{Message, MessageFormat, OpenAiFormat};
use annals_fuzz::{load_again, loaded, value, with_defaults};
use libfuzzer_sys::fuzz_target;

fn read(item: Value) -> Option<Vec<Message>> {
    loaded(with_defaults(|defaults| OpenAiFormat.read(item, defaults)))
}

fuzz_target!(|bytes: &[u8]| {
    let Some(value) = value(bytes) else { return };
    let items = match value {
        Value::List(items) => items,
        item => vec![item],
    };
    for message in items.into_iter().filter_map(read).flatten() {
        let written = with_defaults(|defaults| OpenAiFormat.writer().push(message.clone(), defaults));
        assert_eq!(written.items.is_empty(), !written.refused.is_empty(), "written or refused: {message:?}");
        // A tool call whose arguments are not JSON is written, as LangChain writes it, and refused, as LangChain
        // refuses it.
        for again in written.items.into_iter().filter_map(read).flatten() {
            load_again(again);
        }
        load_again(message);
    }
});
