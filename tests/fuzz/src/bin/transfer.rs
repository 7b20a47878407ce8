//! Lists and lines of messages that come into a thread: what it exports, another thread imports and exports as it is.

#![no_main]

use annals::history::{ExportOptions, Framing, ImportOptions};
use annals::message::MessageForm;
use annals::prelude::Store;
use libfuzzer_sys::fuzz_target;

/// Returns the thread as lines; nothing if the bytes were refused.
fn through(form: MessageForm, bytes: &[u8]) -> Option<Vec<u8>> {
    let thread = Store::memory().thread("fuzz").expect("a name");
    if let Err(error) = thread.import_messages(&ImportOptions::new().form(form), bytes) {
        assert!(!error.to_string().is_empty());
        return None;
    }
    let mut lines = Vec::new();
    if let Some(head) = thread.head().expect("a store in memory") {
        // Dictionaries say all that a message holds, whatever its form was.
        let options = ExportOptions::new().framing(Framing::Lines);
        head.export_messages("messages", &options, &mut lines).expect("messages of our own");
    }
    Some(lines)
}

fuzz_target!(|bytes: &[u8]| {
    // What another form does not understand is kept as it is, and may be a dictionary.
    let _ = (through(MessageForm::OpenAi, bytes), through(MessageForm::PydanticAi, bytes));
    let Some(lines) = through(MessageForm::LangChain, bytes) else { return };
    let again = through(MessageForm::LangChain, &lines).expect("lines of our own");
    assert_eq!(String::from_utf8_lossy(&again), String::from_utf8_lossy(&lines));
});
