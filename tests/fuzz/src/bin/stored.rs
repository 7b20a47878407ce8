//! Fuzzes the stored format of a message: parts of any content are joined or refused, and a joined message is split and
//! joined again.

#![no_main]

use annals::message::{Message, MessageClass, MessagePartsRef};
use annals_fuzz::loaded;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // Two bytes say which parts there are, the rest is the rest.
    let [kind, present, rest @ ..] = bytes else { return };
    let is = |bit: u32| present >> bit & 1 == 1;
    let kinds = MessageClass::ALL.map(MessageClass::kind);
    let mut parts = MessagePartsRef::default();
    parts.id = is(0).then_some("id");
    parts.kind = kinds.get(usize::from(*kind) % (kinds.len() + 1)).copied().unwrap_or("other");
    parts.name = is(1).then_some("name");
    parts.tool_calls = is(2).then_some(if is(3) { r#"["a", "b"]"# } else { "[" });
    parts.text = is(4).then_some("text");
    parts.input_tokens = is(5).then_some(1);
    parts.output_tokens = is(6).then_some(u32::MAX);
    parts.rest = rest;
    let Some(message) = loaded(Message::join(parts)) else { return };
    let split = message.split().expect("parts of our own");
    assert_eq!(Message::join(&split).expect("parts of our own"), message);
});
