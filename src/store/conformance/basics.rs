//! The plain run of things: one checkpoint after another, and forks.

use super::build::*;

pub(super) fn empty(backend: &dyn Log) {
    let place = root_of(backend, "absent");
    assert_eq!((place.head(), place.found(1)), (None, None));
    assert!(place.stored().is_empty() && place.namespaces().is_empty() && threads(backend).is_empty());
    assert!(page(backend, &CheckpointQuery { namespace: None, ..place.query() }).is_empty());
    assert!(backend.checkpoints_by_prefix(&place.thread, "0", 10).expect("looks up").is_empty());
    refuses(backend, [(place.batch(Some(7), [on(8, 7)]), "absent/ is at none, not 7")]);
    assert!(threads(backend).is_empty() && place.namespaces().is_empty(), "a conflict makes no thread");
    assert_eq!(backend.check().map(|report| (report.threads, report.checkpoints)).expect("checks"), (0, 0));
}

pub(super) fn submit(backend: &dyn Log) {
    let place = root_of(backend, "submitted");
    let batches = [(None, begin(1)), (Some(1), on(2, 1)), (Some(1), on(3, 1))];
    let handles = batches.map(|(head, draft)| backend.submit(place.batch(head, [draft])));
    let outcomes = handles.each_ref().map(|handle| refusal(handle.wait()));
    assert!(handles.iter().all(CommitHandle::is_settled), "a handle that was waited for is settled");
    assert_eq!(outcomes, ["accepted: ()", "accepted: ()", "submitted/ is at 2, not 1"], "in the order of the caller");
    assert_eq!(place.head(), Some(2));
}

pub(super) fn not_found(backend: &dyn Log) {
    let place = root_of(backend, "known");
    place.add(begin(1));
    for at in [place.point(2), root_of(backend, "unknown").point(1), place.inside("child:1").point(1)] {
        assert_eq!(backend.checkpoint(&at).expect("reads"), None);
        let visited = backend.items(&at, "list", ItemRange::All, &mut |_| Ok(()));
        let whole = backend.read_state(&at, &mut |_| panic!("a part of no checkpoint"));
        let versions = backend.versions(&at, None, 0, &mut |_| panic!("a version of no checkpoint"));
        let item = backend.find_item(&at, "list", "c", &mut |_| Ok(()));
        let reads = [refusal(backend.state(&at)), refusal(backend.writes(&at)), refusal(backend.ancestors(&at, &[0]))];
        let visits = [visited, whole, versions, item.map(drop), backend.search_list(&at, "list", "x").map(drop)];
        let refusals: Vec<String> = reads.into_iter().chain(visits.map(refusal)).collect();
        assert_eq!(refusals, ["not found"; 8], "{at:?}");
    }
    let orphan = place.pending(1, writes(9, 1, vec![write(0, "x", "1")]));
    for (lost, field) in [(orphan, "writes.checkpoint"), (place.batch(Some(1), [on(3, 2)]), "checkpoint.parent")] {
        assert!(["not found", field].contains(&&*refusal(backend.commit(&lost))), "{field}");
    }
    assert_eq!(place.stored(), [1], "nothing was written");
}
