//! Runs with an idempotency key: what there is of one, and how it is repeated.

use crate::base::limits::RUN_KEY_BYTES_MAX;
use crate::base::{Namespace, RunId};
use crate::error::Error;
use crate::exec::{RunError, RunStart};
use crate::history::Thread;
use crate::store::CheckpointRef;

use super::run::RunSettings;
use crate::run::Loaded;

/// A run with a key that has begun before.
pub(super) struct Earlier {
    /// The last checkpoint it made.
    pub(super) last: CheckpointRef,
}

impl RunSettings {
    /// Returns the id of the run, and what there is of an earlier one with its key.
    pub(super) fn run_id(&self, thread: Option<&Thread>) -> Result<(RunId, Option<Earlier>), Error> {
        let Some(key) = &self.key else {
            return Ok((thread.map_or_else(RunId::default, |thread| thread.store().mint_run()), None));
        };
        let reason = match thread {
            None => "a run without a thread cannot be found again".to_owned(),
            Some(_) if key.is_empty() => "it is empty".to_owned(),
            Some(_) if key.len() > RUN_KEY_BYTES_MAX => {
                format!("it has {} bytes, the limit is {RUN_KEY_BYTES_MAX}", key.len())
            }
            Some(thread) => {
                let run = RunId::from_key(thread.id(), key);
                // A commit of an earlier run with the key that was dropped counts as well.
                thread.store().settle_abandoned();
                let last = thread.store().backend().last_of_run(thread.id(), &Namespace::root(), &run)?;
                return Ok((run, last.map(|record| Earlier { last: record.point })));
            }
        };
        Err(RunError::BadKey { reason }.into())
    }
}

impl Earlier {
    /// Returns how the run is repeated: it continues from its last checkpoint if that is the head, else its outcome is
    /// shown.
    pub(super) fn start(&self, loaded: &Loaded) -> RunStart {
        if loaded.newest == Some(self.last.checkpoint) { RunStart::Repeat(None) } else { RunStart::Show }
    }
}
