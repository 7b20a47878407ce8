//! Fuzzes lists and lines of messages that come into a thread: another thread imports its export and exports the same.

#![no_main]

use annals::history::{ExportOptions, Framing, ImportOptions};
use annals::message::OpenAiFormat;
use annals_graph::prelude::Store;
use annals_pydantic_ai::PydanticAiFormat;
use libfuzzer_sys::fuzz_target;

/// Returns the thread as lines; nothing if the bytes were refused.
fn through(options: &ImportOptions, bytes: &[u8]) -> Option<Vec<u8>> {
    let thread = Store::memory().thread("fuzz").expect("a name");
    match thread.import_messages(options, bytes) {
        Ok(report) => assert!(report.not_understood.count <= report.items),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return None;
        }
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
    // An item that another format does not understand is retained as it is, and may be a dictionary.
    let options = ImportOptions::new();
    let _ = through(&options.clone().format(OpenAiFormat), bytes);
    let _ = through(&options.clone().format(PydanticAiFormat), bytes);
    let lenient = through(&options.clone().lenient(), bytes);
    let Some(lines) = through(&options, bytes) else { return };
    let text = String::from_utf8_lossy(&lines);
    // Messages without an id are given one, which is another each time.
    let lenient = lenient.expect("what is whole is read");
    assert_eq!(String::from_utf8_lossy(&lenient).lines().count(), text.lines().count());
    let options = options.framing(Framing::Lines);
    let again = through(&options, &lines).expect("lines of our own");
    let again = String::from_utf8_lossy(&again);
    let more = through(&options, again.as_bytes()).expect("lines of our own");
    assert_eq!(String::from_utf8_lossy(&more), again);
    // A piece of a message may make its calls anew, see `load_again`.
    assert!(text.lines().zip(again.lines()).all(|(line, again)| line == again || line.contains("Chunk\"")));
    assert_eq!(text.lines().count(), again.lines().count());
});
