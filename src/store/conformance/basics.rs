//! The plain run of things: one checkpoint after another.

use super::build::*;

pub(super) fn empty(backend: &dyn Log) {
    let place = root_of(backend, "nobody");
    assert_eq!(place.head(), None);
    assert_eq!(backend.checkpoint(&place.point(1)).expect("reads"), None);
    let query = CheckpointQuery::new(place.thread.clone(), place.namespace.clone());
    assert!(backend.checkpoints(&query).expect("lists").is_empty());
    let all = CheckpointQuery { namespace: None, ..query };
    assert!(backend.checkpoints(&all).expect("lists").is_empty());
    assert!(backend.checkpoints_by_prefix(&place.thread, "0", 10).expect("looks up").is_empty());
    assert!(backend.threads(None, 10).expect("lists").is_empty());
    assert!(backend.namespaces(&place.thread).expect("lists").is_empty());
    let report = backend.check().expect("checks");
    assert_eq!((report.threads, report.checkpoints), (0, 0));
}

pub(super) fn first(backend: &dyn Log) {
    let place = root_of(backend, "alice");
    let draft = begin(1).value("topic", 1, "bees").items("list", 1, vec![put(0, "hello")]);
    place.add_at(None, draft.tasks(&["answer"]));
    assert_eq!(place.head(), Some(id(1)));
    let record = place.record(1);
    assert_eq!(record.point, place.point(1));
    assert_eq!((record.parent, record.forked_from, record.ordinal), (None, None, 0));
    assert!(record.seq > 0 && record.branch > 0, "seq and branch count from 1");
    assert_eq!((record.step, record.source, record.created_at), (-1, Source::Loop, moment(1)));
    assert_eq!((record.run, record.metadata), (None::<RunId>, None));
    assert_eq!((record.tasks[0].id, &*record.tasks[0].name), (task(1), "answer"));
    let triggers = vec!["trigger:of:answer".into(), "input".into()];
    assert_eq!(record.tasks[0].kind, TaskKind::Pull { triggers });
    let state = backend.state(&place.point(1)).expect("reads");
    assert_eq!(state.checkpoint, place.record(1));
    let names: Vec<_> = state.channels.iter().map(|channel| (&*channel.channel, channel.version)).collect();
    assert_eq!(names, [("list", 1), ("topic", 1)], "channels are sorted by name");
    assert_eq!(state.channels[0].value, ChannelValue::Items);
    assert_eq!(state.channels[1].value, ChannelValue::Value(bytes("bees")));
    assert!(state.channels.iter().all(|channel| channel.ordinal == 0 && channel.task.is_none()));
    assert_eq!(place.list(1, ItemRange::All), "0=hello");
    assert!(items(backend, &place.point(1), "topic", ItemRange::All).is_empty(), "a value has no items");
    assert!(items(backend, &place.point(1), "never", ItemRange::All).is_empty());
    assert!(place.writes(1).is_empty());
}

pub(super) fn chain(backend: &dyn Log) {
    let place = root_of(backend, "chain");
    let early = [begin(1).value("n", 1, "1"), on(2, 1).value("n", 2, "2").value("once", 1, "x")];
    commit(backend, &place.batch(None, early));
    place.add(on(3, 2));
    place.add(on(4, 3).value("n", 9, "4"));
    assert_eq!(place.head(), Some(id(4)));
    let records: Vec<_> = (1..=4).map(|n| place.record(n)).collect();
    for (n, record) in (1..).zip(&records) {
        assert_eq!(record.ordinal, n - 1, "the ordinal counts from the first checkpoint");
        assert_eq!(record.parent, (n > 1).then(|| id(n - 1)));
        assert_eq!(record.branch, records[0].branch, "a chain is one branch");
    }
    assert!(records.windows(2).all(|pair| pair[0].seq < pair[1].seq), "seq goes up");
    let texts: Vec<_> = (1..=4).map(|n| place.text(n, "n").unwrap_or_default()).collect();
    assert_eq!(texts, ["1", "2", "2", "4"]);
    assert_eq!(place.text(1, "once"), None, "a channel is not there before it was written");
    let old = place.channel(4, "once").expect("it was written");
    assert_eq!((old.version, old.ordinal), (1, 1), "the ordinal is that of who wrote it");
    let new = place.channel(4, "n").expect("it was written");
    assert_eq!((new.version, new.ordinal), (9, 3));
}

pub(super) fn two_threads(backend: &dyn Log) {
    let (a, b) = (root_of(backend, "a"), root_of(backend, "b"));
    a.add(begin(1).value("x", 1, "of a"));
    b.add(begin(2).value("y", 1, "of b"));
    a.add(on(3, 1));
    assert_eq!((a.head(), b.head()), (Some(id(3)), Some(id(2))));
    assert_eq!(a.text(3, "y"), None);
    assert_eq!(b.text(2, "x"), None);
    assert_eq!(backend.checkpoint(&b.point(1)).expect("reads"), None);
    // Ids are unique in a namespace of a thread only: a copied thread keeps them.
    b.add(on(3, 2).value("x", 1, "of b"));
    assert_eq!(a.text(3, "x").as_deref(), Some("of a"));
    assert_eq!(b.text(3, "x").as_deref(), Some("of b"));
}

pub(super) fn namespaces(backend: &dyn Log) {
    let root = root_of(backend, "nested");
    let (child, grandchild) = (root.inside("node:1"), root.inside("node:1|inner:2"));
    root.add(begin(1).value("x", 1, "root"));
    child.add(begin(2).value("x", 1, "child"));
    grandchild.add(begin(3).value("x", 1, "grandchild"));
    child.add(on(4, 2));
    assert_eq!(root.head(), Some(id(1)));
    assert_eq!(child.head(), Some(id(4)));
    assert_eq!(grandchild.head(), Some(id(3)));
    assert_eq!(child.text(4, "x").as_deref(), Some("child"));
    assert_eq!(backend.checkpoint(&root.point(2)).expect("reads"), None);
    let found = backend.namespaces(&root.thread).expect("lists");
    assert_eq!(found, [&root, &child, &grandchild].map(|place| place.namespace.clone()), "sorted");
}

pub(super) fn submit(backend: &dyn Log) {
    let place = root_of(backend, "submitted");
    let handles = [
        backend.submit(place.batch(None, [begin(1)])),
        backend.submit(place.batch(Some(1), [on(2, 1)])),
        backend.submit(place.batch(Some(1), [on(3, 1)])),
    ];
    let outcomes = handles.map(|handle| {
        let outcome = handle.wait();
        assert!(handle.is_settled(), "a handle that was waited for is settled");
        outcome
    });
    assert!(outcomes[0].is_ok() && outcomes[1].is_ok(), "batches of one caller are written in order");
    assert!(matches!(outcomes[2], Err(StoreError::Conflict { .. })), "{:?}", outcomes[2]);
    assert_eq!(place.head(), Some(id(2)));
}

pub(super) fn updated(backend: &dyn Log) {
    let place = root_of(backend, "updated");
    let second = on(2, 1).change("b", 2, crate::store::batch::ChangeValue::Empty).value("z", 1, "");
    let batch = [begin(1).value("b", 1, "1").items("a", 1, vec![]), second.value("c", 1, "2"), on(3, 2)];
    commit(backend, &place.batch(None, batch));
    let updated = |n| backend.state(&place.point(n)).expect("reads").updated.join(" ");
    assert_eq!([updated(1), updated(2), updated(3)], ["a b", "c z", ""], "sorted, without what is empty");
    assert_eq!(place.text(3, "b").as_deref(), Some("(empty)"), "an empty channel keeps its version");
}

pub(super) fn seen(backend: &dyn Log) {
    let place = root_of(backend, "seen");
    let drafts = [
        begin(1).seen("b", &[("x", 1)]),
        on(2, 1).seen("a", &[("x", 2), ("y", 1)]).seen("empty", &[]),
        on(3, 2).seen("b", &[("x", 3), ("y", 2)]),
        on(4, 1),
    ];
    commit(backend, &place.batch(None, drafts));
    let seen = |n| {
        let seen: Vec<Seen> = backend.state(&place.point(n)).expect("reads").seen;
        let shown = seen.iter().map(|seen| {
            let versions = seen.versions.iter().map(|(channel, version)| format!("{channel}{version}"));
            format!("{}:{}", seen.node, versions.collect::<Vec<_>>().join(","))
        });
        shown.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(seen(1), "b:x1");
    assert_eq!(seen(2), "a:x2,y1 b:x1 empty:");
    assert_eq!(seen(3), "a:x2,y1 b:x3,y2 empty:");
    assert_eq!(seen(4), "b:x1", "a sibling has not seen it");
}

pub(super) fn not_found(backend: &dyn Log) {
    let place = root_of(backend, "known");
    place.add(begin(1));
    let elsewhere = root_of(backend, "unknown");
    for at in [place.point(2), elsewhere.point(1), place.inside("child:1").point(1)] {
        assert_eq!(backend.checkpoint(&at).expect("reads"), None);
        let missing = |error: StoreError| matches!(error, StoreError::CheckpointNotFound { .. });
        assert!(backend.state(&at).is_err_and(missing), "the state of {at:?}");
        assert!(backend.writes(&at).is_err_and(missing), "the writes of {at:?}");
        let visited = backend.items(&at, "list", ItemRange::All, &mut |_| Ok(()));
        assert!(visited.is_err_and(missing), "the items of {at:?}");
    }
    let orphan = place.pending(1, writes(9, task(1), "p", vec![write(0, "x", "1")]));
    let refused = backend.commit(&orphan);
    assert!(
        matches!(refused, Err(StoreError::Invalid { .. } | StoreError::CheckpointNotFound { .. })),
        "writes of an unknown checkpoint: {refused:?}"
    );
    let lost = backend.commit(&place.batch(Some(1), [on(3, 2)]));
    assert!(
        matches!(lost, Err(StoreError::Invalid { .. } | StoreError::CheckpointNotFound { .. })),
        "an unknown parent: {lost:?}"
    );
    let query = CheckpointQuery::new(place.thread.clone(), place.namespace.clone());
    assert_eq!(ids(&backend.checkpoints(&query).expect("lists")), id_list([1]), "nothing was written");
}
