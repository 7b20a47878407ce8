//! Runs with an idempotency key: the stored part of one, and how it is repeated.

use crate::base::limits::RUN_KEY_BYTES_MAX;
use crate::base::{CheckpointId, Namespace, RunId};
use crate::error::Error;
use crate::exec::{RunError, RunStart};
use crate::history::{Snapshot, Thread};
use crate::store::{CheckpointRef, Source};
use annals::store::log::LogExt;

use super::builder::RunSettings;
use crate::run::Loaded;

/// A run with a key that has begun before.
pub(super) struct Earlier {
    /// The last checkpoint it made.
    pub(super) last: CheckpointRef,
    /// The checkpoint at which other runs that continued the work of the run ended or left it.
    pub(super) end: Option<CheckpointRef>,
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
                return Ok((run, Earlier::of(thread, run)?));
            }
        };
        Err(RunError::BadKey { reason }.into())
    }
}

/// Returns the checkpoint at which later runs without an input of their own left the lineage of an earlier run: the
/// newest one before the next input. `None` if none of them continued it.
fn end_of(thread: &Thread, last: CheckpointId) -> Result<Option<CheckpointRef>, Error> {
    let head = thread.with_namespace(Namespace::root()).head()?.filter(|head| head.id() > last);
    let (mut end, mut is_last) = (None, true);
    for snapshot in head.iter().flat_map(Snapshot::lineage) {
        let snapshot = snapshot?;
        if snapshot.id() == last {
            return Ok(end.filter(|_| !is_last));
        }
        if is_last {
            end = Some(snapshot.point().clone());
        }
        is_last = snapshot.source() == Source::Input;
    }
    Ok(None)
}

impl Earlier {
    /// Returns what there is of a run; `None` if it has no key, or none has begun with it.
    pub(super) fn of(thread: &Thread, run: RunId) -> Result<Option<Self>, Error> {
        if !run.is_of_key() {
            return Ok(None);
        }
        // A commit of an earlier run with the key that was dropped counts as well.
        thread.store().flush_abandoned();
        let Some(last) = thread.store().backend().last_of_run(thread.id(), &Namespace::root(), &run)? else {
            return Ok(None);
        };
        let end = if last.tasks.is_empty() { None } else { end_of(thread, last.point.checkpoint)? };
        Ok(Some(Self { last: last.point, end }))
    }

    /// Returns the checkpoint whose outcome a repeated run shows, unless it continues.
    pub(super) fn at(&self) -> &CheckpointRef {
        self.end.as_ref().unwrap_or(&self.last)
    }

    /// Returns how the run is repeated: it continues from its last checkpoint if that is the head, else its outcome is
    /// shown.
    pub(super) fn start(&self, loaded: &Loaded) -> RunStart {
        if loaded.newest == Some(self.last.checkpoint) { RunStart::Repeat(None) } else { RunStart::Show }
    }
}
