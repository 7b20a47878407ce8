//! A race of processes for one thread, for backends that several processes can open.

use super::build::*;

/// The checkpoints that each process adds.
const ADDED: u64 = 12;

/// Returns the thread of a process alone.
fn own_of(backend: &dyn Log, process: u64) -> CasePlace<'_> {
    root_of(backend, &format!("of process {process}"))
}

/// Runs the part of a process in a race of several for one thread: their numbers count from 0. It is for a backend
/// that several processes can open. [`race_ended`] compares the outcome. Each checkpoint is added on the head that is
/// there, until all are stored; and as many to a thread of the process alone.
///
/// # Panics
/// If a commit is refused with another error than a conflict.
pub fn race(backend: &dyn Log, process: u64) {
    let (place, own) = (root_of(backend, "raced"), own_of(backend, process));
    for added in 0..ADDED {
        own.add(next(added + 1).items("list", added + 1, vec![put(added, process.to_string())]));
        // The head that the last conflict found: each one is newer, so the race ends.
        let mut newest = None;
        loop {
            let head = backend.head(&place.thread, &place.namespace).expect("reads the head");
            let version = head.as_ref().map_or(1, |head| head.ordinal + 2);
            let mut draft = begin(version * 100 + process).value("x", version, format!("{process}.{added}"));
            let head = head.map(|head| head.point.checkpoint);
            assert!(head >= newest, "a head that a conflict found is read");
            draft.0.parent = head.map(Parent::Local);
            let mut batch = place.batch(None, [draft]);
            batch.expect[0].head = head;
            match backend.commit(&batch) {
                Ok(()) => break,
                Err(StoreError::Conflict { expected, found, .. }) => {
                    assert!(expected == head && found > head);
                    newest = found;
                }
                Err(other) => panic!("expected a conflict, got {other}"),
            }
        }
    }
}

/// Verifies the outcome of a [`race`] of so many processes.
///
/// # Panics
/// If a checkpoint is missing, stored twice, or out of order.
pub fn race_ended(backend: &dyn Log, processes: u64) {
    let mut records = backend.checkpoints(&root_of(backend, "raced").query()).expect("lists checkpoints");
    records.reverse();
    assert!(records.iter().all(|record| record.branch == records[0].branch), "who lost opened no branch");
    assert_eq!(records.len() as u64, processes * ADDED, "each commit that was acknowledged is there, once");
    let mut added = vec![0; processes as usize];
    for (ordinal, record) in (0..).zip(&records) {
        assert_eq!(record.ordinal, ordinal);
        let state = backend.state(&record.point).expect("reads a state");
        let ChannelValue::Value(payload) = &state.channels[0].value else { panic!("{state:?}") };
        let text = text_of(&payload.data);
        let process = (0..processes).find(|n| text.starts_with(&format!("{n}."))).expect("one of the processes");
        let of_process = &mut added[process as usize];
        assert_eq!(text, format!("{process}.{of_process}"), "in the order in which the process added them");
        *of_process += 1;
    }
    for process in 0..processes {
        let (own, all) = (own_of(backend, process), (0..ADDED).map(|n| format!("{n}={process}")));
        assert_eq!(own.list(ADDED), all.collect::<Vec<_>>().join(" "));
        assert!(own.stored().into_iter().eq((1..=ADDED).rev()));
    }
    clean(backend);
}
