//! Damage in the log, each found by itself.

use std::sync::Arc;

use super::*;
use crate::base::{CheckpointId, IdSource, Namespace, Timestamp};
use crate::store::batch::{Batch, NewCheckpoint, Parent};
use crate::store::log::{Checks, Log};
use crate::store::memory::MemoryBackend;
use crate::store::record::Source;

fn moment(n: u64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000 + n.cast_signed() * 1_000)
}

/// Returns checkpoint id number `n`: a greater number gives a greater id.
fn id(n: u64) -> CheckpointId {
    IdSource::from_seed(n).checkpoint(moment(n), 0, None)
}

fn thread() -> ThreadId {
    ThreadId::new("t").unwrap()
}

/// Returns the findings in a thread of three checkpoints, of which the second is damaged.
fn findings(damage: impl Fn(&mut CheckpointRecord)) -> Vec<String> {
    let backend = MemoryBackend::new();
    for n in 1..=3 {
        let parent = (n > 1).then(|| Parent::Local(id(n - 1)));
        let mut batch = Batch::new(thread(), Namespace::root(), (n > 1).then(|| id(n - 1)));
        batch.checkpoints = vec![NewCheckpoint::new(id(n), parent, 0, Source::Loop, moment(n))];
        backend.commit(&batch).unwrap();
    }
    let changed = backend.change(|log| {
        let space = log.space_mut(&thread(), &Namespace::root()).unwrap();
        damage(&mut Arc::make_mut(space.checkpoints.get_mut(&id(2)).unwrap()).record);
        Ok(())
    });
    changed.unwrap();
    let problems = Checks::check(&backend).unwrap().problems;
    problems.into_iter().map(|finding| format!("{}: {}", finding.place, finding.reason)).collect()
}

#[test]
fn a_checkpoint_that_does_not_follow_from_its_parent_is_damage() {
    let found = |reason: &str| vec![format!("checkpoint {}: {reason}", id(2))];
    assert_eq!(findings(|_| {}), [""; 0]);
    let nowhere = CheckpointRef::new(ThreadId::new("none").unwrap(), Namespace::root(), id(1));
    let fork = |record: &mut CheckpointRecord| (record.parent, record.forked_from) = (None, Some(nowhere.clone()));
    assert_eq!(findings(fork), found("its parent is missing"));
    assert_eq!(findings(|record| record.parent = Some(id(9))), found("its parent is missing"));
    assert_eq!(findings(|record| record.forked_from = Some(nowhere.clone())), found("it has two parents"));
    // The one after it does not follow either.
    assert_eq!(findings(|record| record.ordinal += 1)[..1], found("its ordinal does not follow that of its parent"));
}
