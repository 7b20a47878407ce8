//! Fuzzes LangGraph's checkpoint format: bytes of any kind load or are refused, and a loaded value is dumped to bytes
//! that hold the same value.

#![no_main]

use annals::message::{checkpoint_dumps, checkpoint_loads};
use annals_fuzz::loaded;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for kind in ["msgpack", "bytes", "null", "json", ""] {
        let Some(like) = loaded(checkpoint_loads(kind, bytes)) else { continue };
        // LangGraph does not write integers of more than 64 bits, nor does `annals`.
        let Some(typed) = loaded(checkpoint_dumps(&like)) else { continue };
        assert_eq!(checkpoint_loads(typed.kind, &typed.bytes).expect("bytes of our own"), like);
    }
});
