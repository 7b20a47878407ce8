//! Parents and forks: who sees what.

use super::build::*;

pub(super) fn other_thread(backend: &dyn Log) {
    let (source, fork) = (root_of(backend, "source"), root_of(backend, "fork"));
    let base = begin(1).value("x", 1, "base").items("list", 1, vec![put(0, "a"), put(1, "b")]);
    source.add_at(None, base.tasks(&["node"]));
    commit(backend, &source.pending(1, writes(1, task(1), "p", vec![write(0, "x", "pending")])));
    source.add(on(2, 1).value("x", 2, "later"));
    let first = fork_of(3, source.point(1)).value_of("x", 2, task(1), 0).items("list", 2, vec![put(1, "B")]);
    fork.add_at(None, first.by(0));
    let record = fork.record(3);
    assert_eq!((record.parent, record.forked_from), (None, Some(source.point(1))));
    assert_eq!((record.ordinal, record.source), (1, Source::Fork), "it is one further than what it builds on");
    assert_ne!(record.branch, source.record(1).branch);
    assert_eq!(fork.text(3, "x").as_deref(), Some("pending"), "it may take a write of what it builds on");
    assert_eq!(fork.list(3, ItemRange::All), "0=a 1=B");
    assert!(fork.writes(3).is_empty(), "pending writes stay with their checkpoint");
    source.add(on(4, 2).items("list", 2, vec![put(2, "source only")]));
    fork.add(on(5, 3).items("list", 3, vec![put(2, "fork only"), remove(0)]));
    assert_eq!(source.list(4, ItemRange::All), "0=a 1=b 2=source only");
    assert_eq!(source.text(4, "x").as_deref(), Some("later"));
    assert_eq!(fork.list(5, ItemRange::All), "1=B 2=fork only");
    assert_eq!((source.head(), fork.head()), (Some(id(4)), Some(id(5))));
    let query = CheckpointQuery::new(fork.thread.clone(), fork.namespace.clone());
    assert_eq!(ids(&backend.checkpoints(&query).expect("lists")), id_list([5, 3]), "history is its own");
}

pub(super) fn other_namespace(backend: &dyn Log) {
    let first = root_of(backend, "first");
    let child = first.inside("node:1");
    let second = root_of(backend, "second");
    first.add(begin(1).value("x", 1, "root"));
    child.add(fork_of(2, first.point(1)).value("y", 1, "child"));
    second.add(fork_of(3, child.point(2)).value("z", 1, "second"));
    let third = second.inside("node:2");
    third.add(fork_of(4, second.point(3)));
    for (channel, text) in [("x", "root"), ("y", "child"), ("z", "second")] {
        assert_eq!(third.text(4, channel).as_deref(), Some(text));
    }
    assert_eq!(third.record(4).ordinal, 3);
    assert_eq!(child.record(2).forked_from, Some(first.point(1)));
    assert_eq!(first.text(1, "y"), None);
    let spaces = backend.namespaces(&second.thread).expect("lists");
    assert_eq!(spaces, [Namespace::root(), third.namespace.clone()]);
}

pub(super) fn abandoned(backend: &dyn Log) {
    let place = root_of(backend, "a");
    place.add(begin(1).value("x", 1, "base").items("list", 1, vec![put(0, "a")]));
    let left = on(2, 1).value("x", 2, "left").value("y", 1, "left");
    place.add(left.items("list", 2, vec![put(0, "A"), put(1, "b")]));
    // Both branches have an ordinal 1.
    place.add_at(Some(2), on(3, 1).value("z", 1, "own"));
    place.add(on(4, 3).items("list", 2, vec![put(1, "c")]));
    place.add_at(Some(4), on(5, 2).value("z", 1, "other"));
    assert_eq!((place.record(2).ordinal, place.record(3).ordinal), (1, 1));
    for (n, list, z) in [(3, "0=a", "own"), (4, "0=a 1=c", "own")] {
        let x = place.channel(n, "x").expect("the channel of the base");
        assert_eq!((x.ordinal, x.version, place.text(n, "x").as_deref()), (0, 1, Some("base")));
        assert_eq!((place.text(n, "y"), place.text(n, "z").as_deref()), (None, Some(z)));
        assert_eq!(place.list(n, ItemRange::All), list);
        let mut versions = Vec::new();
        let visited = backend.versions(&place.point(n), Some("x"), 0, &mut |version| {
            versions.push((version.channel.ordinal, version.channel.version));
            Ok(true)
        });
        visited.expect("versions are read");
        assert_eq!(versions, [(0, 1)], "the version of the other branch is not one of the lineage");
    }
    assert_eq!((place.text(5, "x").as_deref(), place.text(5, "y").as_deref()), (Some("left"), Some("left")));
    assert_eq!((place.text(5, "z").as_deref(), place.list(5, ItemRange::All).as_str()), (Some("other"), "0=A 1=b"));
}
