//! The names that most programs need: `use annals_runs::prelude::*`.
//!
//! The prelude of [`annals`] with the methods of runs on its handles.

pub use annals::prelude::*;

pub use crate::snapshot_runs::SnapshotRuns;
pub use crate::store_runs::StoreRuns;
pub use crate::thread_runs::ThreadRuns;
