//! The two drivers and what they wait with: threads, timers, and the queue of ended tasks.
//!
//! The blocking driver runs the machine on the thread of its caller, the asynchronous one runs it in a future. Both
//! read one queue of notices, and a stream passes on the events of either. *Absent:* what a run is, which is `run`'s.

pub(super) mod blocking;
pub(super) mod feed;
pub(super) mod nonblocking;
pub(super) mod pool;
pub(super) mod runtime;
mod streams;
pub(super) mod timer;
mod work_sharing;

pub use nonblocking::block_on;
pub use streams::{AsyncStream, RunOutput, Stream};
#[cfg(feature = "tokio")]
pub use timer::TokioTimer;
pub use timer::{Sleep, Timer};
