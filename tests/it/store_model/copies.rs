//! Copies of the threads of a model: each equals its original at every checkpoint, in memory and in the file.

use std::collections::BTreeSet;
use std::sync::Arc;

use annals::base::ThreadId;
use annals::store::batch::WriteValue;
use annals::store::log::{Log, LogExt};
use annals::store::record::{ChannelRecord, CheckpointRecord, WriteRecord};
use annals::store::{CheckpointRef, ItemRange, OpenOptions, Store};
use proptest::prelude::*;

use super::{Pair, items, plain};

/// Copies each thread of both backends, and compares the copies with the originals, then deletes what can be deleted of
/// these.
pub(super) fn compare(pair: &Pair<'_>) -> Result<(), TestCaseError> {
    let threads: BTreeSet<&ThreadId> =
        pair.places.iter().filter(|place| !place.ids.is_empty()).map(|place| &place.thread).collect();
    for backend in [Arc::clone(&pair.model) as Arc<dyn Log>, Arc::clone(&pair.file)] {
        let store = Store::with_backend(backend, OpenOptions::new());
        for thread in &threads {
            let copy = store.thread(thread).unwrap().copy_to(format!("copy of {thread}")).unwrap();
            if pair.is_pruned(thread) {
                compare_kept(pair, &store, thread, copy.id())?;
            } else {
                compare_thread(pair, &store, thread, copy.id())?;
            }
        }
        let report = store.check().unwrap();
        prop_assert!(report.problems.is_empty(), "{:?}", report.problems);
        for thread in &threads {
            // A thread from which another one was forked stays.
            if !pair.is_pruned(thread) && store.delete_thread(thread).is_ok() {
                store.thread(format!("copy of {thread}")).unwrap().copy_to(thread).unwrap();
                compare_thread(pair, &store, thread, &ThreadId::new(format!("copy of {thread}")).unwrap())?;
            }
        }
        let report = store.check().unwrap();
        prop_assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
    Ok(())
}

fn compare_thread(pair: &Pair<'_>, store: &Store, thread: &ThreadId, copy: &ThreadId) -> Result<(), TestCaseError> {
    let backend = &**store.backend();
    for place in pair.places.iter().filter(|place| place.thread == *thread) {
        let head = |thread| backend.head_id(thread, &place.namespace).unwrap();
        prop_assert_eq!(head(thread), head(copy));
        for id in &place.ids {
            let at = place.point(*id);
            let copied = CheckpointRef { thread: copy.clone(), ..at.clone() };
            let (a, b) = (backend.state(&at).unwrap(), backend.state(&copied).unwrap());
            prop_assert_eq!(moved(a.checkpoint, copy), moved(b.checkpoint, copy));
            prop_assert_eq!(&a.channels, &b.channels, "channels at {:?}", &at);
            prop_assert_eq!(&a.seen, &b.seen, "seen at {:?}", &at);
            prop_assert_eq!(kept_writes(backend, &at), kept_writes(backend, &copied), "writes at {:?}", &at);
            for channel in &a.channels {
                let of = |at| items(backend, at, channel, ItemRange::All);
                prop_assert_eq!(of(&at), of(&copied), "items of {} at {:?}", &channel.channel, &at);
            }
        }
    }
    Ok(())
}

/// Compares the kept checkpoints of a thread with those of its copy. One whose parent was pruned begins a lineage in
/// the copy, so ordinals and tasks differ; versions and values do not.
fn compare_kept(pair: &Pair<'_>, store: &Store, thread: &ThreadId, copy: &ThreadId) -> Result<(), TestCaseError> {
    let backend = &**store.backend();
    for place in pair.places.iter().filter(|place| place.thread == *thread) {
        for at in place.ids.iter().map(|id| place.point(*id)) {
            let copied = CheckpointRef { thread: copy.clone(), ..at.clone() };
            if backend.checkpoint(&at).unwrap().is_none_or(|record| record.pruned) {
                prop_assert!(backend.checkpoint(&copied).unwrap().is_none(), "{:?} is in the copy", &at);
                continue;
            }
            let (a, b) = (backend.state(&at).unwrap(), backend.state(&copied).unwrap());
            let shown = |channels: &[ChannelRecord]| -> Vec<_> {
                channels
                    .iter()
                    .map(|channel| (channel.channel.clone(), channel.version, channel.value.clone()))
                    .collect()
            };
            prop_assert_eq!(shown(&a.channels), shown(&b.channels), "channels at {:?}", &at);
            for channel in &a.channels {
                let of = |at| -> Vec<_> {
                    let items = items(backend, at, channel, ItemRange::All);
                    items.into_iter().map(|(position, _, _, payload)| (position, payload)).collect()
                };
                prop_assert_eq!(of(&at), of(&copied), "items of {} at {:?}", &channel.channel, &at);
            }
            prop_assert_eq!(kept_writes(backend, &at), backend.writes(&copied).unwrap(), "writes at {:?}", &at);
        }
    }
    Ok(())
}

/// Returns the writes of a checkpoint but for those of tasks that build on a list of a pruned checkpoint.
fn kept_writes(backend: &dyn Log, at: &CheckpointRef) -> Vec<WriteRecord> {
    let is_lost = |write: &WriteRecord| match &write.value {
        WriteValue::Delta(delta) => {
            let of = CheckpointRef::new(at.thread.clone(), delta.of.namespace.clone(), delta.of.checkpoint);
            backend.checkpoint(&of).unwrap().is_none_or(|record| record.pruned)
        }
        _ => false,
    };
    let mut writes = backend.writes(at).unwrap();
    let lost: Vec<_> = writes.iter().filter(|write| is_lost(write)).map(|write| write.task).collect();
    writes.retain(|write| !lost.contains(&write.task));
    writes
}

/// Returns the record of a checkpoint as one of another thread.
fn moved(record: CheckpointRecord, thread: &ThreadId) -> CheckpointRecord {
    let mut record = plain(record);
    let own = std::mem::replace(&mut record.point.thread, thread.clone());
    if let Some(from) = &mut record.forked_from
        && from.thread == own
    {
        from.thread = thread.clone();
    }
    record
}
