//! Fuzzes the stored format of a message: a payload of any content is read or refused, and a message that was read is
//! stored and read again.

#![no_main]

use annals::base::{Codec, ItemIndexRef, PayloadRef};
use annals::message::{Message, MessageClass};
use annals_fuzz::loaded;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // Two bytes say which fields there are, the rest is the rest.
    let [kind, present, rest @ ..] = bytes else { return };
    let is = |bit: u32| present >> bit & 1 == 1;
    let kinds = MessageClass::ALL.map(MessageClass::kind);
    let mut index = ItemIndexRef::default();
    index.id = is(0).then_some("id");
    index.kind = Some(kinds.get(usize::from(*kind) % (kinds.len() + 1)).copied().unwrap_or("other"));
    index.name = is(1).then_some("name");
    index.tool_calls = is(2).then_some(if is(3) { r#"["a", "b"]"# } else { "[" });
    index.text = is(4).then_some("text");
    index.input_tokens = is(5).then_some(1);
    index.output_tokens = is(6).then_some(u32::MAX);
    let stored = PayloadRef::new(Codec::MsgPack, rest, Some(index));
    let Some(message) = loaded(Message::from_payload(stored)) else { return };
    let again = message.to_payload().expect("a payload of our own");
    assert_eq!(Message::from_payload(again.as_ref()).expect("a payload of our own"), message);
});
