//! The calls of a workload on the model in memory, which tells what the file must show after each of them.

use std::sync::Arc;
use std::time::Duration;

use annals::base::ThreadId;
use annals::store::{Backend, KvChange, MemoryBackend, OpenOptions, Store};

use crate::observe::{self, Deadline, View};
use crate::proxy::{Job, JobOutcome};

/// A call and its effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fact {
    /// The entities that it changes, with their hashes afterwards; 0 for one that is gone. None if it was refused.
    pub(crate) effects: Vec<(String, u64)>,
}

/// The model.
struct Model {
    store: Store,
    backend: Arc<MemoryBackend>,
}

impl Model {
    fn new() -> Self {
        let backend = Arc::new(MemoryBackend::new());
        let store = Store::with_backend(Arc::clone(&backend) as Arc<dyn Backend>, OpenOptions::new());
        Self { store, backend }
    }

    fn apply(&self, job: &Job) -> Result<(), String> {
        let result = match job {
            Job::Commit(batch) => {
                let mut alone = (**batch).clone();
                alone.chain = None;
                self.backend.commit(&alone)
            }
            Job::Delete(threads) => self.backend.delete_threads(threads),
            Job::Kv(changes) => self.backend.beside().commit_kv(changes),
        };
        result.map_err(|error| error.to_string())
    }

    fn hash(&self, entity: &str) -> Result<u64, String> {
        let deadline = Deadline::after(Duration::from_secs(60));
        let found = match entity.split_once(':') {
            Some(("t", id)) => {
                let id = ThreadId::new(id).map_err(|error| error.to_string())?;
                observe::thread(&self.store, &id, deadline).map_err(|error| error.to_string())?
            }
            _ => observe::key_values(&self.store).map_err(|error| error.to_string())?.get(entity).copied(),
        };
        Ok(found.unwrap_or(0))
    }
}

/// Returns the entities that a call changes.
pub(crate) fn entities(job: &Job) -> Vec<String> {
    let mut names: Vec<String> = match job {
        Job::Commit(batch) => batch.parts().map(|part| format!("t:{}", part.thread)).collect(),
        Job::Delete(threads) => threads.iter().map(|thread| format!("t:{thread}")).collect(),
        Job::Kv(changes) => {
            let namespaces = changes.iter().map(|change| match change {
                KvChange::Put { namespace, .. } | KvChange::Delete { namespace, .. } => namespace,
            });
            namespaces.map(|namespace| format!("k:{}", namespace.labels().next().unwrap_or_default())).collect()
        }
    };
    names.sort();
    names.dedup();
    names
}

/// Returns the effects of calls that were acknowledged or refused, in the order of their begins.
///
/// # Errors
/// If the model refuses a call that the file accepted.
pub(crate) fn facts(jobs: &[(Job, JobOutcome)]) -> Result<Vec<Fact>, String> {
    let model = Model::new();
    let fact = |(job, outcome): &(Job, JobOutcome)| {
        if *outcome != JobOutcome::Acknowledged {
            return Ok(Fact::default());
        }
        model.apply(job).map_err(|error| format!("the model refuses {job:?}: {error}"))?;
        let effects = entities(job).into_iter().map(|entity| Ok((entity.clone(), model.hash(&entity)?)));
        Ok(Fact { effects: effects.collect::<Result<_, String>>()? })
    };
    jobs.iter().map(fact).collect()
}

/// Calls with an unknown outcome of one entity that are told apart. A handle refuses everything after the first one.
const UNKNOWN_MAX: usize = 6;

/// Returns the views that calls may have left, of which some have an unknown outcome: for each entity its possible
/// hashes, 0 for one that is gone.
///
/// # Errors
/// If the model refuses a call that the file accepted, whatever the unknown calls did.
pub(crate) fn possible(jobs: &[(Job, JobOutcome)]) -> Result<Vec<(String, Vec<u64>)>, String> {
    let mut names: Vec<String> = jobs.iter().flat_map(|(job, _)| entities(job)).collect();
    names.sort();
    names.dedup();
    let of_entity = |entity: String| {
        let is_unknown = |(job, outcome): &(Job, JobOutcome)| {
            matches!(outcome, JobOutcome::Unknown(_)) && entities(job).contains(&entity)
        };
        let unknown: Vec<usize> = (0..jobs.len()).filter(|at| is_unknown(&jobs[*at])).take(UNKNOWN_MAX).collect();
        let mut hashes = Vec::new();
        let mut refusal = None;
        for chosen in 0..1_u32 << unknown.len() {
            let model = Model::new();
            let written = |at: &usize| unknown.iter().position(|known| known == at).map(|bit| chosen >> bit & 1 == 1);
            let outcome = jobs.iter().enumerate().try_for_each(|(at, (job, outcome))| match (outcome, written(&at)) {
                (JobOutcome::Acknowledged, _) | (_, Some(true)) => model.apply(job),
                _ => Ok(()),
            });
            match outcome {
                Ok(()) => hashes.push(model.hash(&entity)?),
                Err(error) => refusal = Some(error),
            }
        }
        match (hashes.is_empty(), refusal) {
            (true, Some(error)) => Err(format!("the model refuses a call that the file accepted: {error}")),
            _ => Ok((entity, hashes)),
        }
    };
    names.into_iter().map(of_entity).collect()
}

/// Compares a view with what is possible; returns the entities that differ.
pub(crate) fn differences(view: &View, possible: &[(String, Vec<u64>)]) -> Vec<String> {
    let known = possible.iter().filter_map(|(entity, hashes)| {
        let found = view.get(entity).copied().unwrap_or(0);
        (!hashes.contains(&found)).then(|| {
            let what = if found == 0 { "is gone" } else { "is another" };
            format!("{entity} {what}")
        })
    });
    let strangers = view.keys().filter(|entity| !possible.iter().any(|(known, _)| known == *entity));
    known.chain(strangers.map(|entity| format!("{entity} was never written"))).collect()
}
