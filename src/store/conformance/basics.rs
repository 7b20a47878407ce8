//! The plain run of things: one checkpoint after another, and forks.

use super::build::*;

pub(super) fn empty(backend: &dyn Log) {
    let place = root_of(backend, "nobody");
    assert_eq!((place.head(), place.found(1)), (None, None));
    assert!(place.stored().is_empty() && place.namespaces().is_empty() && threads(backend).is_empty());
    assert!(page(backend, &CheckpointQuery { namespace: None, ..place.query() }).is_empty());
    assert!(backend.checkpoints_by_prefix(&place.thread, "0", 10).expect("looks up").is_empty());
    let report = backend.check().expect("checks");
    assert_eq!((report.threads, report.checkpoints), (0, 0));
}

pub(super) fn first(backend: &dyn Log) {
    let place = root_of(backend, "alice");
    let draft = begin(1).value("topic", 1, "bees").items("list", 1, vec![put(0, "hello")]);
    place.add(draft.tasks(&["answer"]));
    assert_eq!(place.head(), Some(1));
    let record = place.record(1);
    assert_eq!((&record.point, record.parent, record.forked_from.as_ref()), (&place.point(1), None, None));
    assert!(record.ordinal == 0 && record.seq > 0 && record.branch > 0, "seq and branch count from 1");
    assert_eq!((record.step, record.source, record.created_at), (-1, Source::Loop, moment(1)));
    assert_eq!((record.run, record.metadata.as_ref()), (None::<RunId>, None));
    let triggers = vec!["trigger:of:answer".into(), "input".into()];
    assert_eq!(record.tasks, [TaskRecord::new(task(1), "answer", TaskKind::Pull { triggers })]);
    let state = place.state(1);
    assert_eq!(state.checkpoint, record);
    let channels = [("list", ChannelValue::Items), ("topic", ChannelValue::Value(bytes("bees")))];
    assert_eq!(state.channels, channels.map(|(name, value)| ChannelRecord::new(name, 1, value, 0)), "sorted by name");
    assert_eq!(place.list(1), "0=hello");
    assert!(place.items(1, "topic", ItemRange::All).is_empty(), "a value has no items");
    assert!(place.items(1, "never", ItemRange::All).is_empty() && place.writes(1).is_empty());
}

pub(super) fn apart(backend: &dyn Log) {
    let ([a, b], root) = (roots(backend, ["a", "b"]), root_of(backend, "nested"));
    a.add(begin(1).value("x", 1, "of a"));
    b.add(begin(2).value("y", 1, "of b"));
    a.add(on(3, 1));
    assert_eq!((a.head(), b.head(), b.found(1)), (Some(3), Some(2), None));
    assert_eq!([a.text(3, "y"), b.text(2, "x")], ["-", "-"]);
    // Ids are unique in a namespace of a thread only: a copied thread keeps them.
    b.add(on(3, 2).value("x", 1, "of b"));
    assert_eq!([a.text(3, "x"), b.text(3, "x")], ["of a", "of b"]);
    let (child, grandchild) = (root.inside("node:1"), root.inside("node:1|inner:2"));
    for (n, place, text) in [(1, &root, "root"), (2, &child, "child"), (3, &grandchild, "grandchild")] {
        place.add(begin(n).value("x", 1, text));
    }
    child.add(on(4, 2));
    assert_eq!([&root, &child, &grandchild].map(|place| place.head()), [Some(1), Some(4), Some(3)]);
    assert_eq!((child.text(4, "x").as_str(), root.found(2)), ("child", None));
    assert_eq!(root.namespaces(), ["", "node:1", "node:1|inner:2"], "sorted");
}

pub(super) fn submit(backend: &dyn Log) {
    let place = root_of(backend, "submitted");
    let batches = [(None, begin(1)), (Some(1), on(2, 1)), (Some(1), on(3, 1))];
    let handles = batches.map(|(head, draft)| backend.submit(place.batch(head, [draft])));
    let outcomes = handles.map(|handle| {
        let outcome = handle.wait();
        assert!(handle.is_settled(), "a handle that was waited for is settled");
        refusal(outcome)
    });
    let expected = ["accepted: ()", "accepted: ()", "submitted/ is at 2, not 1"];
    assert_eq!(outcomes, expected, "batches of one caller are written in order");
    assert_eq!(place.head(), Some(2));
}

pub(super) fn updated_and_seen(backend: &dyn Log) {
    let place = root_of(backend, "updated");
    let first = begin(1).value("b", 1, "1").items("a", 1, vec![]).seen("b", &[("x", 1)]);
    let second = on(2, 1).change("b", 2, ChangeValue::Empty).value("z", 1, "").value("c", 1, "2");
    let second = second.seen("a", &[("x", 2), ("y", 1)]).seen("empty", &[]);
    place.add_all([first, second, on(3, 2).seen("b", &[("x", 3), ("y", 2)]), on(4, 1)]);
    let shown = |n| {
        let StateRecord { seen, updated, .. } = place.state(n);
        let seen = seen.iter().map(|seen| {
            let versions = seen.versions.iter().map(|(channel, version)| format!("{channel}{version}"));
            format!("{}:{}", seen.node, versions.collect::<Vec<_>>().join(","))
        });
        format!("{}; {}", updated.join(" "), seen.collect::<Vec<_>>().join(" "))
    };
    let expected = ["a b; b:x1", "c z; a:x2,y1 b:x1 empty:", "; a:x2,y1 b:x3,y2 empty:", "; b:x1"];
    assert_eq!([1, 2, 3, 4].map(shown), expected, "sorted, without what is empty, and not that of a sibling");
    assert_eq!(place.text(3, "b"), "(empty)", "an empty channel keeps its version");
}

pub(super) fn not_found(backend: &dyn Log) {
    let place = root_of(backend, "known");
    place.add(begin(1));
    for at in [place.point(2), root_of(backend, "unknown").point(1), place.inside("child:1").point(1)] {
        assert_eq!(backend.checkpoint(&at).expect("reads"), None);
        let visited = backend.items(&at, "list", ItemRange::All, &mut |_| Ok(()));
        let reads = [refusal(backend.state(&at)), refusal(backend.writes(&at)), refusal(visited)];
        assert_eq!(reads, ["not found"; 3], "{at:?}");
        let whole = backend.read_state(&at, &mut |_| panic!("a part of no checkpoint"));
        let versions = backend.versions(&at, None, 0, &mut |_| panic!("a version of no checkpoint"));
        let item = backend.find_item(&at, "list", "c", &mut |_| Ok(()));
        let reads = [refusal(whole), refusal(versions), refusal(item), refusal(backend.ancestors(&at, &[0]))];
        assert_eq!(reads, ["not found"; 4], "{at:?}");
        assert_eq!(refusal(backend.search_list(&at, "list", "x")), "not found", "{at:?}");
    }
    let orphan = place.pending(1, writes(9, 1, vec![write(0, "x", "1")]));
    for (lost, field) in [(orphan, "writes.checkpoint"), (place.batch(Some(1), [on(3, 2)]), "checkpoint.parent")] {
        assert!(["not found", field].contains(&&*refusal(backend.commit(&lost))), "{field}");
    }
    assert_eq!(place.stored(), [1], "nothing was written");
}

pub(super) fn fork_of_thread(backend: &dyn Log) {
    let [source, fork] = roots(backend, ["source", "fork"]);
    let base = begin(1).value("x", 1, "base").items("list", 1, vec![put(0, "a"), put(1, "b")]);
    source.add(base.tasks(&["node"]));
    source.write(1, 1, vec![write(0, "x", "pending")]);
    source.add(on(2, 1).value("x", 2, "later"));
    let first = fork_of(3, source.point(1)).value_of("x", 2, task(1), 0).items("list", 2, vec![put(1, "B")]);
    fork.add(first.by(0));
    let record = fork.record(3);
    assert_eq!((record.parent, record.forked_from), (None, Some(source.point(1))));
    assert_eq!((record.ordinal, record.source), (1, Source::Fork), "it is one further than what it builds on");
    assert_ne!(record.branch, source.record(1).branch);
    assert_eq!(fork.text(3, "x"), "pending", "it may take a write of what it builds on");
    assert_eq!(fork.list(3), "0=a 1=B");
    assert!(fork.writes(3).is_empty(), "pending writes stay with their checkpoint");
    source.add(on(4, 2).items("list", 2, vec![put(2, "source only")]));
    fork.add(on(5, 3).items("list", 3, vec![put(2, "fork only"), remove(0)]));
    assert_eq!([source.list(4), fork.list(5)], ["0=a 1=b 2=source only", "1=B 2=fork only"]);
    assert_eq!((source.head(), fork.head()), (Some(4), Some(5)));
    assert_eq!((source.text(4, "x"), fork.stored()), ("later".into(), vec![5, 3]), "history is its own");
}

pub(super) fn fork_of_fork(backend: &dyn Log) {
    let [first, second] = roots(backend, ["first", "second"]);
    let (child, third) = (first.inside("node:1"), second.inside("node:2"));
    first.add(begin(1).value("x", 1, "root"));
    child.add(fork_of(2, first.point(1)).value("y", 1, "child"));
    second.add(fork_of(3, child.point(2)).value("z", 1, "second"));
    third.add(fork_of(4, second.point(3)));
    assert_eq!(["x", "y", "z"].map(|channel| third.text(4, channel)), ["root", "child", "second"]);
    assert_eq!((third.record(4).ordinal, child.record(2).forked_from), (3, Some(first.point(1))));
    assert_eq!((first.text(1, "y"), second.namespaces()), ("-".into(), vec![String::new(), "node:2".into()]));
}

pub(super) fn abandoned_branch(backend: &dyn Log) {
    let place = root_of(backend, "a");
    place.add(begin(1).value("x", 1, "base").items("list", 1, vec![put(0, "a")]));
    let left = on(2, 1).value("x", 2, "left").value("y", 1, "left");
    place.add(left.items("list", 2, vec![put(0, "A"), put(1, "b")]));
    // Both branches have an ordinal 1.
    commit(backend, &place.batch(Some(2), [on(3, 1).value("z", 1, "own")]));
    place.add(on(4, 3).items("list", 2, vec![put(1, "c")]));
    commit(backend, &place.batch(Some(4), [on(5, 2).value("z", 1, "other")]));
    assert_eq!((place.record(2).ordinal, place.record(3).ordinal), (1, 1));
    for (n, list) in [(3, "0=a"), (4, "0=a 1=c")] {
        let x = place.channel(n, "x").expect("the channel of the base");
        assert_eq!((x.ordinal, x.version), (0, 1));
        assert_eq!(["x", "y", "z"].map(|channel| place.text(n, channel)), ["base", "-", "own"]);
        assert_eq!(place.list(n), list);
        let mut versions = Vec::new();
        let visited = backend.versions(&place.point(n), Some("x"), 0, &mut |version| {
            versions.push((version.channel.ordinal, version.channel.version));
            Ok(true)
        });
        visited.expect("versions are read");
        assert_eq!(versions, [(0, 1)], "the version of the other branch is not one of the lineage");
    }
    assert_eq!(["x", "y", "z"].map(|channel| place.text(5, channel)), ["left", "left", "other"]);
    assert_eq!(place.list(5), "0=A 1=b");
}
