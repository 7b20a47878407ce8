//! Parents and forks: who sees what.

use super::build::{CheckpointDraft, clean, commit, id, id_list, ids, put, remove, root_of, task, write, writes};
use crate::base::Namespace;
use crate::store::log::{Log, LogExt};
use crate::store::query::{CheckpointQuery, ItemRange};
use crate::store::record::Source;

pub(super) fn siblings(backend: &dyn Log) {
    let place = root_of("siblings");
    let base = CheckpointDraft::root(1).value("x", 1, "base").items("list", 1, vec![put(0, "a"), put(1, "b")]);
    place.add(backend, None, base);
    let left = CheckpointDraft::on(2, 1).value("x", 2, "left").items("list", 2, vec![put(1, "left"), put(2, "more")]);
    place.add(backend, Some(1), left);
    // The same versions and positions as on the left: a key of (channel, version) would mix them up.
    let right = CheckpointDraft::on(3, 1).value("y", 2, "right").items("list", 2, vec![remove(0), put(2, "right")]);
    place.add(backend, Some(2), right);
    place.add(backend, Some(3), CheckpointDraft::on(4, 3).items("list", 3, vec![put(3, "end")]));
    assert_eq!(place.text(backend, 2, "x").as_deref(), Some("left"));
    assert_eq!(place.text(backend, 3, "x").as_deref(), Some("base"));
    assert_eq!(place.text(backend, 2, "y"), None);
    assert_eq!(place.list(backend, 1, ItemRange::All), "0=a 1=b");
    assert_eq!(place.list(backend, 2, ItemRange::All), "0=a 1=left 2=more");
    assert_eq!(place.list(backend, 3, ItemRange::All), "1=b 2=right");
    assert_eq!(place.list(backend, 4, ItemRange::All), "1=b 2=right 3=end");
    let branches: Vec<_> = (1..=4).map(|n| place.record(backend, n).branch).collect();
    assert_eq!(branches[0], branches[1], "what builds on the head stays on its branch");
    assert_ne!(branches[1], branches[2], "anything else opens a branch");
    assert_eq!(branches[2], branches[3]);
    let ordinals: Vec<_> = (1..=4).map(|n| place.record(backend, n).ordinal).collect();
    assert_eq!(ordinals, [0, 1, 1, 2]);
    clean(backend);
}

pub(super) fn abandoned(backend: &dyn Log) {
    let place = root_of("abandoned");
    let run = (1..=5).map(|n| {
        let draft = if n == 1 { CheckpointDraft::root(1) } else { CheckpointDraft::on(n, n - 1) };
        draft.items("list", n, vec![put(n, n.to_string())])
    });
    commit(backend, &place.batch(None, run));
    place.add(backend, Some(5), CheckpointDraft::on(6, 2).items("list", 3, vec![put(3, "other")]));
    assert_eq!(place.head(backend), Some(id(6)));
    assert_eq!(place.list(backend, 5, ItemRange::All), "1=1 2=2 3=3 4=4 5=5", "the old branch is as it was");
    place.add(backend, Some(6), CheckpointDraft::on(7, 5).items("list", 6, vec![put(6, "on")]));
    assert_eq!(place.list(backend, 7, ItemRange::All), "1=1 2=2 3=3 4=4 5=5 6=on", "it can be continued");
    assert_eq!(place.list(backend, 6, ItemRange::All), "1=1 2=2 3=other");
    assert_ne!(place.record(backend, 7).branch, place.record(backend, 5).branch, "5 was not the head");
    assert_eq!(place.record(backend, 7).ordinal, 5);
    clean(backend);
}

pub(super) fn nested(backend: &dyn Log) {
    let place = root_of("deep");
    place.add(backend, None, CheckpointDraft::root(1).value("base", 1, "0").items("list", 1, vec![put(0, "0")]));
    // From each level one goes on to be abandoned, and the other carries the next fork.
    let (mut on, mut head) = (1, 1);
    for depth in 1..=20 {
        let lost = CheckpointDraft::on(head + 1, on).value("x", depth + 1, "lost");
        place.add(backend, Some(head), lost.items("list", depth + 1, vec![put(0, "lost"), put(100, "lost")]));
        let kept = CheckpointDraft::on(head + 2, on).value("x", depth + 1, depth.to_string());
        place.add(backend, Some(head + 1), kept.items("list", depth + 1, vec![put(depth, depth.to_string())]));
        (on, head) = (head + 2, head + 2);
    }
    let all: Vec<_> = (0..=20).map(|position| format!("{position}={position}")).collect();
    assert_eq!(place.list(backend, head, ItemRange::All), all.join(" "));
    assert_eq!(place.list(backend, head, ItemRange::Tail(3)), "18=18 19=19 20=20");
    assert_eq!(place.text(backend, head, "base").as_deref(), Some("0"), "it comes from 20 branches below");
    assert_eq!(place.text(backend, head, "x").as_deref(), Some("20"));
    assert_eq!(place.record(backend, head).ordinal, 20);
    for depth in 1..=20 {
        let kept = 1 + depth * 2;
        let shown = all[..=usize::try_from(depth).unwrap_or(0)].join(" ");
        assert_eq!(place.list(backend, kept, ItemRange::All), shown);
        assert_eq!(place.text(backend, kept - 1, "x").as_deref(), Some("lost"));
    }
    clean(backend);
}

pub(super) fn second_root(backend: &dyn Log) {
    let place = root_of("roots");
    place.add(backend, None, CheckpointDraft::root(1).value("x", 1, "old").items("list", 1, vec![put(0, "old")]));
    place.add(backend, Some(1), CheckpointDraft::root(2).value("y", 1, "new"));
    assert_eq!(place.text(backend, 2, "x"), None, "it starts from nothing");
    assert_eq!(place.list(backend, 2, ItemRange::All), "");
    let record = place.record(backend, 2);
    assert_eq!((record.parent, record.ordinal), (None, 0));
    assert_ne!(record.branch, place.record(backend, 1).branch);
    clean(backend);
}

pub(super) fn other_thread(backend: &dyn Log) {
    let (source, fork) = (root_of("source"), root_of("fork"));
    let base = CheckpointDraft::root(1).value("x", 1, "base").items("list", 1, vec![put(0, "a"), put(1, "b")]);
    source.add(backend, None, base.tasks(&["node"]));
    commit(backend, &source.pending(1, writes(1, task(1), "p", vec![write(0, "x", "pending")])));
    source.add(backend, Some(1), CheckpointDraft::on(2, 1).value("x", 2, "later"));
    let first =
        CheckpointDraft::fork(3, source.point(1)).value_of("x", 2, task(1), 0).items("list", 2, vec![put(1, "B")]);
    fork.add(backend, None, first.by(0));
    let record = fork.record(backend, 3);
    assert_eq!((record.parent, record.forked_from), (None, Some(source.point(1))));
    assert_eq!((record.ordinal, record.source), (1, Source::Fork), "it is one further than what it builds on");
    assert_ne!(record.branch, source.record(backend, 1).branch);
    assert_eq!(fork.text(backend, 3, "x").as_deref(), Some("pending"), "it may take a write of what it builds on");
    assert_eq!(fork.list(backend, 3, ItemRange::All), "0=a 1=B");
    assert!(fork.writes(backend, 3).is_empty(), "pending writes stay with their checkpoint");
    source.add(backend, Some(2), CheckpointDraft::on(4, 2).items("list", 2, vec![put(2, "source only")]));
    fork.add(backend, Some(3), CheckpointDraft::on(5, 3).items("list", 3, vec![put(2, "fork only"), remove(0)]));
    assert_eq!(source.list(backend, 4, ItemRange::All), "0=a 1=b 2=source only");
    assert_eq!(source.text(backend, 4, "x").as_deref(), Some("later"));
    assert_eq!(fork.list(backend, 5, ItemRange::All), "1=B 2=fork only");
    assert_eq!((source.head(backend), fork.head(backend)), (Some(id(4)), Some(id(5))));
    let query = CheckpointQuery::new(fork.thread.clone(), fork.namespace.clone());
    assert_eq!(ids(&backend.checkpoints(&query).expect("lists")), id_list([5, 3]), "history is its own");
    clean(backend);
}

pub(super) fn other_namespace(backend: &dyn Log) {
    let first = root_of("first");
    let child = first.inside("node:1");
    let second = root_of("second");
    first.add(backend, None, CheckpointDraft::root(1).value("x", 1, "root"));
    child.add(backend, None, CheckpointDraft::fork(2, first.point(1)).value("y", 1, "child"));
    second.add(backend, None, CheckpointDraft::fork(3, child.point(2)).value("z", 1, "second"));
    let third = second.inside("node:2");
    third.add(backend, None, CheckpointDraft::fork(4, second.point(3)));
    for (channel, text) in [("x", "root"), ("y", "child"), ("z", "second")] {
        assert_eq!(third.text(backend, 4, channel).as_deref(), Some(text));
    }
    assert_eq!(third.record(backend, 4).ordinal, 3);
    assert_eq!(child.record(backend, 2).forked_from, Some(first.point(1)));
    assert_eq!(first.text(backend, 1, "y"), None);
    let spaces = backend.namespaces(&second.thread).expect("lists");
    assert_eq!(spaces, [Namespace::root(), third.namespace.clone()]);
    clean(backend);
}
