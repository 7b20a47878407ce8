//! Constructor envelopes at any place of a value.

#![no_main]

use annals::message::{dumpd, load};
use annals_fuzz::{load_again, loaded, value};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(like) = value(bytes).and_then(|value| loaded(load(value))) else { return };
    for message in loaded(like.into_messages()).into_iter().flatten() {
        // An envelope leaves out undeclared fields, so the envelopes are compared.
        if message.class().is_some() {
            let envelope = dumpd(&message);
            let again = load(envelope.clone()).and_then(|like| like.into_messages()).expect("an envelope of our own");
            assert_eq!(again.iter().map(dumpd).collect::<Vec<_>>(), [envelope]);
        }
        load_again(message);
    }
});
