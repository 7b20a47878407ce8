//! A backend outside the engine: the proof that public items are enough to implement one.
//!
//! The sources are those of the backend in memory. Here `crate::base` and `crate::store` are the public modules of the
//! engine, so a private item that the backend needs does not compile. *Absent:* a backend of its own.

use annals::{base, store};

#[path = "../../../src/store/memory/mod.rs"]
mod memory;

pub use memory::MemoryBackend;
