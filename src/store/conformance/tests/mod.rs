//! Rules that need no look at a log, and those of the backend in memory alone.

mod derived;
mod limits;
mod lineage;
mod rules;
mod strict;

use crate::store::log::Log;
use crate::store::memory::MemoryBackend;

/// Runs a test on an empty backend in memory, which must verify afterwards.
fn on_memory(test: impl FnOnce(&dyn Log)) {
    let backend = MemoryBackend::new();
    test(&backend);
    super::build::clean(&backend);
}
