//! Repeats the calls of a workload on the model in memory: the file must show the same after each of them.

use std::sync::Arc;
use std::time::Duration;

use annals::base::ThreadId;
use annals::store::log::{Log, LogExt, PruneSpan, PruneTarget};
use annals::store::{CheckpointRef, MemoryBackend, OpenOptions, Store, StoreError};
use parking_lot::Mutex;

use crate::observe::{self, Deadline, LedgerRows, StoreView};
use crate::proxy::{FileUpkeep, LedgerEntry, StoreCall, StoreCallOutcome};

/// A call and its effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallEffect {
    /// The entities that it changes, with their hashes afterwards; 0 for one that is gone. None if it was refused.
    pub(crate) effects: Vec<(String, u64)>,
    /// The work on the file, of a call that changes no entity.
    pub(crate) upkeep: Option<FileUpkeep>,
}

/// The model.
struct StoreModel {
    store: Store,
    backend: Arc<MemoryBackend>,
    /// The rows of the application's table.
    ledger: Mutex<LedgerRows>,
}

impl StoreModel {
    fn new() -> Self {
        let backend = Arc::new(MemoryBackend::new());
        let store = Store::with_backend(Arc::clone(&backend) as Arc<dyn Log>, OpenOptions::new());
        Self { store, backend, ledger: Mutex::default() }
    }

    fn apply(&self, job: &StoreCall) -> Result<(), String> {
        let result = match job {
            StoreCall::Commit(batch) => {
                let mut alone = (**batch).clone();
                alone.chain = None;
                self.backend.commit(&alone)
            }
            StoreCall::Delete(threads) => self.backend.delete_threads(threads).map(|_| ()),
            StoreCall::Kv(changes) => self.backend.side_tables().and_then(|beside| beside.commit_kv(changes)),
            StoreCall::Prune(point) => self.prune(point),
            StoreCall::PruneNamespaces(thread, namespaces) => {
                self.backend.prune(thread, PruneTarget::Namespaces(namespaces)).map(|_| ())
            }
            StoreCall::Ledger(entry) => self.account(entry),
            StoreCall::Upkeep(_) => Ok(()),
        };
        result.map_err(|error| error.to_string())
    }

    /// Prunes a checkpoint. Its branch has another number than in the file.
    fn prune(&self, point: &CheckpointRef) -> Result<(), StoreError> {
        if let Some(record) = self.backend.checkpoint(point)? {
            let span = PruneSpan::new(record.branch, record.ordinal, record.ordinal);
            self.backend.prune(&point.thread, &[span])?;
        }
        Ok(())
    }

    fn account(&self, entry: &LedgerEntry) -> Result<(), StoreError> {
        if let Some(batch) = &entry.batch {
            self.backend.commit(batch)?;
        }
        let mut ledger = self.ledger.lock();
        let rows = ledger.entry(entry.actor.clone()).or_default();
        if let Some((_, last)) = rows.last_mut().filter(|(number, _)| entry.clears && *number + 1 == entry.number) {
            last.clear();
        }
        rows.push((entry.number, entry.text.clone()));
        Ok(())
    }

    fn view(&self) -> Result<StoreView, String> {
        let deadline = Deadline::after(Duration::from_secs(300));
        let mut view = observe::everything(&self.store, deadline).map_err(|error| error.to_string())?;
        view.extend(observe::of_ledger(&self.ledger.lock()));
        Ok(view)
    }

    fn hash(&self, entity: &str) -> Result<u64, String> {
        let deadline = Deadline::after(Duration::from_secs(300));
        let found = match entity.split_once(':') {
            Some(("t", id)) => {
                let id = ThreadId::new(id).map_err(|error| error.to_string())?;
                observe::thread(&self.store, &id, deadline).map_err(|error| error.to_string())?
            }
            Some(("a", _)) => observe::of_ledger(&self.ledger.lock()).get(entity).copied(),
            _ => observe::key_values(&self.store).map_err(|error| error.to_string())?.get(entity).copied(),
        };
        Ok(found.unwrap_or(0))
    }
}

/// Returns the entities that a call changes.
pub(crate) fn entities(job: &StoreCall) -> Vec<String> {
    let mut names: Vec<String> = match job {
        StoreCall::Commit(batch) => batch.parts().map(|part| format!("t:{}", part.thread)).collect(),
        StoreCall::Delete(threads) => threads.iter().map(|thread| format!("t:{thread}")).collect(),
        StoreCall::Kv(changes) => {
            let namespaces = changes.iter().map(|change| change.place().0);
            namespaces.map(|namespace| format!("k:{}", namespace.labels().next().unwrap_or_default())).collect()
        }
        StoreCall::Prune(point) => vec![format!("t:{}", point.thread)],
        StoreCall::PruneNamespaces(thread, _) => vec![format!("t:{thread}")],
        StoreCall::Ledger(entry) => {
            let batch = entry.batch.iter().map(|batch| format!("t:{}", batch.thread));
            batch.chain([format!("a:{}", entry.actor)]).collect()
        }
        StoreCall::Upkeep(_) => Vec::new(),
    };
    names.sort();
    names.dedup();
    names
}

/// Returns the effects of calls that were acknowledged or refused, in the order of their begins.
///
/// # Errors
/// If the model refuses a call that the file accepted.
pub(crate) fn facts(jobs: &[(StoreCall, StoreCallOutcome)]) -> Result<Vec<CallEffect>, String> {
    let model = StoreModel::new();
    let fact = |(job, outcome): &(StoreCall, StoreCallOutcome)| {
        if let StoreCall::Upkeep(upkeep) = job {
            return Ok(CallEffect { upkeep: Some(*upkeep), ..CallEffect::default() });
        }
        if *outcome != StoreCallOutcome::Acknowledged {
            return Ok(CallEffect::default());
        }
        model.apply(job).map_err(|error| format!("the model refuses {job:?}: {error}"))?;
        let effects = entities(job).into_iter().map(|entity| Ok((entity.clone(), model.hash(&entity)?)));
        Ok(CallEffect { effects: effects.collect::<Result<_, String>>()?, upkeep: None })
    };
    jobs.iter().map(fact).collect()
}

/// Calls with an unknown outcome that are told apart; a workload ends before it has more.
pub(crate) const UNKNOWN_MAX: usize = 8;

/// Returns the views that calls may have left, of which some have an unknown outcome: one for each subset of these that
/// fits the calls that were acknowledged.
///
/// # Errors
/// If there is none: the model refuses a call that the file accepted, whatever the unknown calls did.
pub(crate) fn possible(jobs: &[(StoreCall, StoreCallOutcome)]) -> Result<Vec<StoreView>, String> {
    let is_unknown = |at: &usize| matches!(jobs[*at].1, StoreCallOutcome::Unknown(_));
    let unknown: Vec<usize> = (0..jobs.len()).filter(is_unknown).take(UNKNOWN_MAX).collect();
    let (mut views, mut refusal) = (Vec::new(), String::new());
    for chosen in 0..1_u32 << unknown.len() {
        let model = StoreModel::new();
        let written =
            |at: usize| unknown.iter().position(|known| *known == at).is_some_and(|bit| chosen >> bit & 1 == 1);
        let outcome = jobs.iter().enumerate().try_for_each(|(at, (job, outcome))| {
            let applies = *outcome == StoreCallOutcome::Acknowledged || written(at);
            if applies { model.apply(job) } else { Ok(()) }
        });
        match outcome {
            Ok(()) => views.push(model.view()?),
            Err(error) => refusal = error,
        }
    }
    if views.is_empty() {
        Err(format!("the model refuses a call that the file accepted: {refusal}"))
    } else {
        Ok(views)
    }
}

/// Compares a view with those that are possible; returns the entities that differ from the nearest one.
pub(crate) fn differences(view: &StoreView, possible: &[StoreView]) -> Vec<String> {
    let from = |other: &StoreView| -> Vec<String> {
        let changed = other.iter().filter_map(|(entity, hash)| match view.get(entity) {
            Some(found) if found == hash => None,
            Some(_) => Some(format!("{entity} is another")),
            None => Some(format!("{entity} is gone")),
        });
        let strangers = view.keys().filter(|entity| !other.contains_key(*entity));
        changed.chain(strangers.map(|entity| format!("{entity} should not be there"))).collect()
    };
    possible.iter().map(from).min_by_key(Vec::len).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_view_names_the_differences() {
        let view = |names: &[(&str, u64)]| -> StoreView {
            names.iter().map(|(name, hash)| ((*name).to_owned(), *hash)).collect()
        };
        let possible = [view(&[("t:a", 1), ("t:b", 2)]), view(&[("t:a", 3)])];
        assert!(differences(&view(&[("t:a", 3)]), &possible).is_empty());
        assert_eq!(differences(&view(&[("t:a", 1)]), &possible), ["t:b is gone"]);
        assert_eq!(differences(&view(&[("t:a", 3), ("t:c", 1)]), &possible), ["t:c should not be there"]);
        assert_eq!(differences(&view(&[("t:a", 4)]), &possible), ["t:a is another"]);
    }
}
