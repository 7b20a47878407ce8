//! Operations: heads that move, names of branches, and the listing of both.

use super::build::*;

pub(super) fn moves(place: &CasePlace<'_>, before: Option<u64>, after: Option<u64>) -> OperationChange {
    OperationChange::head(place.thread.clone(), place.namespace.clone(), before.map(id), after.map(id))
}

fn names(place: &CasePlace<'_>, name: &str, before: Option<u64>, after: Option<u64>) -> OperationChange {
    let value = |n: Option<u64>| n.map(|n| OperationValue::Checkpoint(id(n)));
    let field = OperationField::Branch(name.into());
    OperationChange::new(place.thread.clone(), place.namespace.clone(), field, value(before), value(after))
}

fn operation(n: u64, changes: Vec<OperationChange>) -> NewOperation {
    let mut operation = NewOperation::new(OperationKind::Rewind, moment(n));
    operation.changes = changes;
    operation
}

pub(super) fn operate(backend: &dyn Log, n: u64, changes: Vec<OperationChange>) -> u64 {
    backend.operate(&operation(n, changes)).unwrap_or_else(|error| panic!("a good operation was refused: {error}"))
}

fn listed(backend: &dyn Log, query: OperationQuery) -> Vec<u64> {
    backend.operations(&query).expect("operations are listed").iter().map(|record| record.id).collect()
}

/// Returns the heads of all threads as a listing shows them.
fn heads(backend: &dyn Log) -> Vec<crate::base::CheckpointId> {
    backend.threads(None, 9).expect("threads are listed").iter().map(|record| record.head.point.checkpoint).collect()
}

pub(super) fn batch_with_operation(backend: &dyn Log) {
    let place = root_of(backend, "beside");
    place.add(begin(1).value("x", 1, "1").tasks(&["node"]));
    place.add(on(2, 1).value("x", 2, "2"));
    let beside = |number: u64, name: &str, found: u64| {
        let mut batch = place.batch(Some(found), [on(number, 1).value("x", 2, "beside")]);
        batch.operation = Some(operation(
            10,
            vec![moves(&place, Some(number), Some(found)), names(&place, name, None, Some(number))],
        ));
        batch
    };
    let first = beside(3, "late", 2);
    for _ in 0..2 {
        commit(backend, &first);
        assert_eq!((place.head(), heads(backend)), (Some(id(2)), vec![id(2)]), "the head stays, also in a repeat");
    }
    assert_eq!(place.text(3, "x").as_deref(), Some("beside"));
    assert_eq!(listed(backend, OperationQuery::new()).len(), 1);
    place.add(on(4, 2).value("x", 3, "4"));
    commit(backend, &first);
    assert_eq!(place.head(), Some(id(4)), "a late repeat does not move the head");
    let taken = beside(5, "late", 4);
    assert!(matches!(backend.commit(&taken), Err(StoreError::FieldConflict { .. })), "the name is taken");
    let absent = backend.checkpoint(&place.point(5)).expect("reads a record");
    assert_eq!((place.head(), absent), (Some(id(4)), None), "nothing of it is stored");
    let late = beside(5, "later", 2);
    conflicts(backend, &late, Some(4), &late.expect[0]);
    let mut empty = place.pending(4, writes(4, task(1), "p", vec![write(0, "x", "pending")]));
    empty.operation = first.operation.clone();
    assert!(matches!(backend.commit(&empty), Err(StoreError::Invalid { .. })), "an operation without checkpoints");
    commit(backend, &beside(5, "later", 4));
    assert_eq!(place.head(), Some(id(4)));
}

pub(super) fn moved_head(backend: &dyn Log) {
    let place = root_of(backend, "moved");
    place.add(begin(1).value("x", 1, "1").tasks(&["node"]));
    place.add(on(2, 1).value("x", 2, "2"));
    place.add(on(3, 2).value("x", 3, "3"));
    assert!(!place.is_continued());
    operate(backend, 10, vec![moves(&place, Some(3), Some(1))]);
    assert!(place.is_continued(), "the superstep of the head was made before");
    assert_eq!((place.head(), heads(backend)), (Some(id(1)), vec![id(1)]), "the head has moved back");
    let late = place.batch(Some(3), [on(4, 3)]);
    conflicts(backend, &late, Some(1), &late.expect[0]);
    commit(backend, &place.pending(1, writes(1, task(1), "p", vec![write(0, "x", "pending")])));
    assert_eq!(place.head(), Some(id(1)), "writes of tasks leave the head where it is");
    place.add(on(4, 1).value("x", 2, "4"));
    assert_eq!((place.head(), heads(backend)), (Some(id(4)), vec![id(4)]), "the next checkpoint is the head");
    assert_ne!(place.record(4).branch, place.record(1).branch, "it opens a branch");
    assert_eq!(place.text(4, "x").as_deref(), Some("4"));

    operate(backend, 11, vec![moves(&place, Some(4), Some(3))]);
    assert!(!place.is_continued(), "the end of another branch");
    place.add(on(5, 3).value("x", 4, "5"));
    let (new, old) = (place.record(5), place.record(3));
    assert_ne!(new.branch, old.branch, "a child of another checkpoint than the newest opens a branch");
    assert_eq!((new.ordinal, place.text(5, "x").as_deref()), (3, Some("5")));
}

pub(super) fn moved_to_the_newest(backend: &dyn Log) {
    let place = root_of(backend, "back");
    place.add(begin(1));
    place.add(on(2, 1));
    operate(backend, 10, vec![moves(&place, Some(2), Some(1))]);
    operate(backend, 11, vec![moves(&place, Some(1), Some(2))]);
    assert_eq!(place.head(), Some(id(2)));
    place.add(on(3, 2));
    assert_eq!(place.record(3).branch, place.record(2).branch, "nothing was abandoned");
    assert_eq!(place.head(), Some(id(3)), "an operation before a checkpoint does not move the head after it");
}

pub(super) fn subgraphs(backend: &dyn Log) {
    let root = root_of(backend, "thread");
    let inside = root.inside("sub");
    root.add(begin(1));
    inside.add(begin(2));
    root.add(on(3, 1));
    operate(backend, 10, vec![moves(&root, Some(3), Some(1)), moves(&inside, Some(2), None)]);
    assert_eq!((root.head(), inside.head()), (Some(id(1)), None), "the heads move together");
    let late = inside.batch(Some(2), [on(4, 2)]);
    conflicts(backend, &late, None, &late.expect[0]);
    inside.add(begin(4));
    assert_eq!(inside.head(), Some(id(4)));
    for wrong in [
        vec![moves(&root, Some(1), None)],
        vec![moves(&inside, Some(4), None)],
        vec![moves(&root, Some(1), Some(3)), moves(&root, Some(1), Some(3))],
        Vec::new(),
    ] {
        let refused = backend.operate(&operation(11, wrong)).expect_err("the operation is not valid");
        assert!(matches!(refused, StoreError::Invalid { .. }), "{refused}");
    }
    assert_eq!((root.head(), inside.head()), (Some(id(1)), Some(id(4))));
}

pub(super) fn refused(backend: &dyn Log) {
    let (a, b) = (root_of(backend, "a"), root_of(backend, "b"));
    for place in [&a, &b] {
        place.add(begin(1));
        place.add(on(2, 1));
    }
    let late = operation(10, vec![moves(&a, Some(2), Some(1)), moves(&b, Some(1), Some(2))]);
    match backend.operate(&late) {
        Err(StoreError::Conflict { thread, expected, found, .. }) => {
            assert_eq!((thread, expected, found), (b.thread.clone(), Some(id(1)), Some(id(2))));
        }
        other => panic!("expected a conflict, got {other:?}"),
    }
    assert_eq!(a.head(), Some(id(2)), "all changes of an operation are made, or none");
    let gone = backend.operate(&operation(10, vec![moves(&a, Some(2), Some(7))]));
    assert!(matches!(gone, Err(StoreError::CheckpointNotFound { .. })), "{gone:?}");
    let nobody = backend.operate(&operation(10, vec![moves(&root_of(backend, "nobody"), None, Some(1))]));
    assert!(matches!(nobody, Err(StoreError::ThreadNotFound { .. })), "{nobody:?}");
    let mut actor = operation(10, vec![moves(&a, Some(2), Some(1))]);
    actor.actor = Some("a".repeat(257));
    let actor = backend.operate(&actor);
    assert!(matches!(actor, Err(StoreError::Invalid { field: "operation.actor", .. })), "{actor:?}");
    for (name, text) in [
        ("labels", "["),
        ("labels", "{}"),
        ("labels", "[1]"),
        ("labels", r#"["b","a"]"#),
        ("labels", r#"["a","a"]"#),
        ("trashed", "soon"),
        ("trashed", "9223372036854775808"),
    ] {
        let after = Some(OperationValue::Text(text.into()));
        let (thread, field) = (a.thread.clone(), OperationField::Fact(name.into()));
        let change = OperationChange::new(thread, a.namespace.clone(), field, None, after);
        let refused = backend.operate(&operation(10, vec![change]));
        assert!(matches!(refused, Err(StoreError::Invalid { field: "fact", .. })), "{name} {text}: {refused:?}");
    }
    assert!(listed(backend, OperationQuery::new()).is_empty(), "nothing was stored");
}

pub(super) fn expected_newest(backend: &dyn Log) {
    let (a, b) = (root_of(backend, "a"), root_of(backend, "b"));
    for place in [&a, &b] {
        place.add(begin(1));
        place.add(on(2, 1));
    }
    let stating = |n: u64, place: &CasePlace<'_>, newest: (Option<u64>, Option<u64>), changes| {
        let mut operation = operation(n, changes);
        operation.newest = Some(ExpectedNewest::new(place.thread.clone(), newest.0, newest.1.map(id)));
        operation
    };
    let refused = |operation: &NewOperation| match backend.operate(operation) {
        Err(StoreError::FieldConflict { thread, .. }) => assert_eq!(thread, a.thread),
        other => panic!("expected a conflict, got {other:?}"),
    };
    let back = || vec![moves(&a, Some(2), Some(1))];
    for newest in [(None, Some(1)), (None, None), (Some(1), Some(2))] {
        refused(&stating(10, &a, newest, back()));
    }
    let first = stating(10, &a, (None, Some(2)), back());
    let number = backend.operate(&first).expect("nothing came between");
    assert_eq!(backend.operate(&first).expect("repeating is safe"), number);
    // The head is where it was, but it was moved twice.
    let second = operate(backend, 11, vec![moves(&a, Some(1), Some(2))]);
    let third = operate(backend, 12, back());
    refused(&stating(13, &a, (Some(number), Some(2)), vec![moves(&a, Some(1), Some(2))]));
    refused(&stating(13, &a, (Some(second), Some(2)), vec![moves(&a, Some(1), Some(2))]));
    // Operations and checkpoints of other threads and of subgraphs do not count.
    operate(backend, 14, vec![moves(&b, Some(2), Some(1))]);
    b.add(on(3, 1));
    let inside = a.inside("sub");
    inside.add(begin(9));
    let stated = stating(15, &a, (Some(third), Some(2)), vec![moves(&a, Some(1), Some(2))]);
    let fourth = backend.operate(&stated).expect("nothing of the thread came between");
    a.add(on(4, 2));
    refused(&stating(16, &a, (Some(fourth), Some(2)), vec![names(&a, "x", None, Some(1))]));
    let of_b = stating(16, &b, (Some(fourth), Some(4)), vec![names(&a, "x", None, Some(1))]);
    let of_b = backend.operate(&of_b);
    assert!(matches!(of_b, Err(StoreError::Invalid { field: "operation.newest", .. })), "{of_b:?}");
    let mut batch = a.batch(Some(4), [on(5, 4)]);
    batch.operation = Some(stating(16, &a, (Some(fourth), Some(4)), vec![moves(&a, Some(5), Some(4))]));
    let with_checkpoints = backend.commit(&batch);
    assert!(
        matches!(with_checkpoints, Err(StoreError::Invalid { field: "operation.newest", .. })),
        "{with_checkpoints:?}"
    );
    assert!(backend.fields(&a.thread).expect("fields are read").is_empty(), "nothing of them was stored");
    let both = vec![names(&b, "x", None, Some(1)), names(&a, "x", None, Some(1))];
    backend.operate(&stating(16, &a, (Some(fourth), Some(4)), both)).expect("nothing of the thread came between");
    assert_eq!((a.head(), b.head()), (Some(id(4)), Some(id(3))));
}

pub(super) fn repeated(backend: &dyn Log) {
    let place = root_of(backend, "a");
    place.add(begin(1));
    place.add(on(2, 1));
    let first = operate(backend, 10, vec![moves(&place, Some(2), Some(1))]);
    assert_eq!(operate(backend, 10, vec![moves(&place, Some(2), Some(1))]), first, "repeating is safe");
    assert_eq!(listed(backend, OperationQuery::new()), [first]);
    let other = backend.operate(&operation(11, vec![moves(&place, Some(2), Some(1))]));
    assert!(matches!(other, Err(StoreError::Conflict { .. })), "another operation is not a repeat: {other:?}");
}

pub(super) fn fields(backend: &dyn Log) {
    let place = root_of(backend, "a");
    place.add(begin(1));
    place.add(on(2, 1));
    let current = |before: Option<&str>, after: Option<&str>| {
        let text = |name: Option<&str>| name.map(|name| OperationValue::Text(name.into()));
        let (thread, namespace) = (place.thread.clone(), place.namespace.clone());
        OperationChange::new(thread, namespace, OperationField::CurrentBranch, text(before), text(after))
    };
    operate(backend, 10, vec![names(&place, "ü «b»", None, Some(2)), current(None, Some("ü «b»"))]);
    operate(backend, 11, vec![names(&place, "a", None, Some(1))]);
    let found = backend.fields(&place.thread).expect("fields are read");
    let expected = [
        (OperationField::Branch("a".into()), OperationValue::Checkpoint(id(1))),
        (OperationField::Branch("ü «b»".into()), OperationValue::Checkpoint(id(2))),
        (OperationField::CurrentBranch, OperationValue::Text("ü «b»".into())),
    ];
    assert_eq!(found, expected);
    let late = backend.operate(&operation(12, vec![names(&place, "a", None, Some(2))]));
    assert!(matches!(late, Err(StoreError::FieldConflict { .. })), "{late:?}");
    operate(backend, 13, vec![names(&place, "a", Some(1), None), current(Some("ü «b»"), None)]);
    assert_eq!(backend.fields(&place.thread).expect("fields are read"), expected[1..2]);
    assert_eq!(place.head(), Some(id(2)), "names do not move the head");
    for name in ["", "a\0b", &"n".repeat(257)] {
        let refused = backend.operate(&operation(14, vec![names(&place, name, None, Some(1))]));
        assert!(matches!(refused, Err(StoreError::Invalid { field: "branch.name", .. })), "{refused:?}");
    }
    assert!(backend.fields(&ThreadId::new("nobody").expect("an id")).expect("fields are read").is_empty());
}

pub(super) fn listing(backend: &dyn Log) {
    let (a, b) = (root_of(backend, "a"), root_of(backend, "b"));
    for place in [&a, &b] {
        place.add(begin(1));
        place.add(on(2, 1));
    }
    let first = operate(backend, 10, vec![moves(&a, Some(2), Some(1))]);
    let mut both = operation(11, vec![moves(&b, Some(2), Some(1)), moves(&a, Some(1), Some(2))]);
    (both.kind, both.actor) = (OperationKind::Undo, Some("Zoë".into()));
    both.target = Some(OperationTarget::Operation(first));
    let second = backend.operate(&both).expect("a good operation");
    a.add(on(3, 2));
    let mut third = operation(12, vec![moves(&a, Some(3), Some(1))]);
    third.target = Some(OperationTarget::Commits(id(3)));
    let third = backend.operate(&third).expect("a good operation");
    assert_eq!(listed(backend, OperationQuery::new()), [third, second, first], "the newest first");
    assert_eq!(listed(backend, OperationQuery::new().limit(1)), [third]);
    assert_eq!(listed(backend, OperationQuery::new().before(third).limit(1)), [second]);
    assert_eq!(listed(backend, OperationQuery::new().thread(b.thread.clone())), [second]);
    assert_eq!(listed(backend, OperationQuery::new().thread(a.thread.clone()).before(second)), [first]);
    let records = backend.operations(&OperationQuery::new()).expect("operations are listed");
    assert!(records[1].seq < records[0].seq && records[0].seq == a.record(3).seq, "the place in the log");
    assert_eq!(records[0].target, Some(OperationTarget::Commits(id(3))));
    let stored = &records[1];
    assert_eq!(
        (stored.kind, stored.at, stored.actor.as_deref(), stored.target),
        (OperationKind::Undo, moment(11), Some("Zoë"), Some(OperationTarget::Operation(first)))
    );
    assert_eq!(stored.changes, [moves(&a, Some(1), Some(2)), moves(&b, Some(2), Some(1))], "sorted by thread");

    _ = backend.delete_threads(std::slice::from_ref(&a.thread)).expect("a thread is deleted");
    let left = backend.operations(&OperationQuery::new()).expect("operations are listed");
    assert_eq!(left.len(), 1, "operations go with their threads");
    assert_eq!(left[0].changes, [moves(&b, Some(2), Some(1))]);
    while backend.reclaim().expect("a deleted thread is erased") != crate::store::Erasure::Erased {}
    clean(backend);
    a.add(begin(1));
    assert!(listed(backend, OperationQuery::new().thread(a.thread.clone())).is_empty());
    a.add(on(2, 1));
    let next = operate(backend, 13, vec![moves(&a, Some(2), Some(1))]);
    assert!(next > third, "a number is used once");
}

pub(super) fn timers(backend: &dyn Log) {
    let place = root_of(backend, "a");
    place.add(begin(1));
    place.add(on(2, 1).tasks(&["x"]));
    let interrupt = writes(2, task(1), "p", vec![write(-3, "waits", "an interrupt")]);
    let timer = NewTimer::new(id(2), task(1), Some(moment(5)));
    commit(backend, &Batch { timers: vec![timer], ..place.pending(2, interrupt) });
    let sleeping = || {
        let all = backend.timers(None, 9).expect("timers are listed");
        let of_thread = backend.timers_of(&place.thread, &place.namespace).expect("timers of a namespace");
        assert_eq!(all, of_thread);
        all.len()
    };
    assert_eq!(sleeping(), 1);
    operate(backend, 10, vec![moves(&place, Some(2), Some(1))]);
    assert_eq!(sleeping(), 0, "only tasks of heads sleep");
    place.add(on(3, 1));
    assert_eq!(sleeping(), 0);
    operate(backend, 11, vec![moves(&place, Some(3), Some(2))]);
    assert_eq!(sleeping(), 1, "a task sleeps again when the head moves back to its checkpoint");
    place.add(on(4, 2));
    assert_eq!(sleeping(), 0);
    operate(backend, 12, vec![moves(&place, Some(4), Some(2))]);
    assert_eq!(sleeping(), 0, "the superstep that passed the task removed its timer");
}

pub(super) fn branches(backend: &dyn Log) {
    let place = root_of(backend, "a");
    assert!(backend.branches(&place.thread, &place.namespace).expect("branches are listed").is_empty());
    place.add(begin(1));
    for n in 2..=40 {
        place.add(on(n, n - 1));
    }
    place.add_at(Some(40), on(41, 20));
    place.add(on(42, 41));
    place.add_at(Some(42), begin(43));
    place.add_at(Some(43), on(44, 42));
    let inside = place.inside("sub");
    inside.add(fork_of(50, place.point(40)));
    let found = backend.branches(&place.thread, &place.namespace).expect("branches are listed");
    let branch = |n| place.record(n).branch;
    let shown: Vec<_> = found.iter().map(|found| (found.last.point.checkpoint, found.leaves)).collect();
    let expected = [(id(44), Some((branch(42), 21))), (id(43), None), (id(42), Some((branch(1), 19))), (id(40), None)];
    assert_eq!(shown, expected, "the newest first, each with its last checkpoint");
    assert_eq!(found[3].last, place.record(40), "the whole record");
    let forked = backend.branches(&inside.thread, &inside.namespace).expect("branches are listed");
    assert_eq!(forked[0].leaves, Some((branch(40), 39)), "a fork leaves a branch of another namespace");
}

pub(super) fn facts(backend: &dyn Log) {
    let (a, b) = (root_of(backend, "a"), root_of(backend, "b"));
    a.add(begin(1));
    b.add(begin(1));
    let fact = |place: &CasePlace<'_>, name: &str, before: Option<&str>, after: Option<&str>| {
        let text = |text: Option<&str>| text.map(|text| OperationValue::Text(text.into()));
        let (thread, namespace) = (place.thread.clone(), place.namespace.clone());
        OperationChange::new(thread, namespace, OperationField::Fact(name.into()), text(before), text(after))
    };
    operate(backend, 10, vec![fact(&a, "title", None, Some("ü")), fact(&b, "title", None, Some(""))]);
    operate(backend, 11, vec![fact(&a, "title", Some("ü"), Some("v")), fact(&a, "project", None, Some("p"))]);
    let found = backend.fields(&a.thread).expect("fields are read");
    let text = |name: &str, text: &str| (OperationField::Fact(name.into()), OperationValue::Text(text.into()));
    assert_eq!(found, [text("project", "p"), text("title", "v")]);
    assert_eq!(backend.fields(&b.thread).expect("fields are read"), [text("title", "")]);
    let records = backend.operations(&OperationQuery::new()).expect("operations are listed");
    assert_eq!(records[0].changes, [fact(&a, "project", None, Some("p")), fact(&a, "title", Some("ü"), Some("v"))]);
    let late = backend.operate(&operation(12, vec![fact(&a, "title", Some("ü"), None)]));
    assert!(matches!(late, Err(StoreError::FieldConflict { .. })), "{late:?}");
    operate(backend, 13, vec![fact(&a, "title", Some("v"), None)]);
    assert_eq!(backend.fields(&a.thread).expect("fields are read"), [text("project", "p")]);
    let large = "x".repeat((64 << 10) + 1);
    for wrong in [fact(&a, "", None, Some("x")), fact(&a, "a\0", None, Some("x")), fact(&a, "x", None, Some(&large))] {
        let refused = backend.operate(&operation(14, vec![wrong])).expect_err("the operation is not valid");
        assert!(matches!(refused, StoreError::Invalid { .. }), "{refused}");
    }
}

pub(super) fn forks(backend: &dyn Log) {
    let (a, b, c) = (root_of(backend, "a"), root_of(backend, "b"), root_of(backend, "c"));
    a.add(begin(1));
    c.add(fork_of(2, a.point(1)));
    b.add(fork_of(3, a.point(1)));
    b.add(on(4, 3));
    let forks = |place: &CasePlace<'_>| backend.forks(&place.thread).expect("forks are listed");
    assert_eq!(forks(&a), [c.thread.clone(), b.thread.clone()], "the first fork first");
    assert!(forks(&b).is_empty() && forks(&root_of(backend, "nobody")).is_empty());
    let from = |place: &CasePlace<'_>| backend.forked_from(&place.thread).expect("the origin is read");
    assert_eq!((from(&a), from(&b), from(&root_of(backend, "nobody"))), (None, Some(a.point(1)), None));
}
