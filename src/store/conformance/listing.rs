//! Listings, pages and prefixes.

use super::build::*;

fn page(backend: &dyn Log, place: &CasePlace<'_>, before: Option<CheckpointId>, limit: usize) -> Vec<CheckpointId> {
    let query =
        CheckpointQuery { before, limit, ..CheckpointQuery::new(place.thread.clone(), place.namespace.clone()) };
    ids(&backend.checkpoints(&query).expect("lists checkpoints"))
}

/// Makes a chain of checkpoints 1 to `count`.
fn chain(backend: &dyn Log, place: &CasePlace<'_>, count: u64) {
    let drafts = (1..=count).map(next);
    commit(backend, &place.batch(None, drafts));
}

pub(super) fn pages(backend: &dyn Log) {
    let place = root_of(backend, "pages");
    chain(backend, &place, 10);
    place.add_at(Some(10), on(11, 3));
    assert_eq!(page(backend, &place, None, 0), id_list((1..=11).rev()), "forks are listed with the others");
    assert_eq!(page(backend, &place, None, 3), id_list([11, 10, 9]));
    assert_eq!(page(backend, &place, Some(id(9)), 3), id_list([8, 7, 6]), "`before` is not in the page");
    assert_eq!(page(backend, &place, Some(id(2)), 3), id_list([1]));
    assert_eq!(page(backend, &place, Some(id(1)), 3), []);
    let between = CheckpointId::from_bytes([0; 16]);
    assert_eq!(page(backend, &place, Some(between), 3), [], "`before` need not be stored");
    assert_eq!(page(backend, &place, Some(CheckpointId::from_bytes([255; 16])), 1), id_list([11]));
    assert_eq!(page(backend, &place, None, 1_000), id_list((1..=11).rev()));
    let records = backend.checkpoints(&CheckpointQuery::new(place.thread.clone(), place.namespace.clone()));
    for (record, n) in records.expect("lists").iter().zip((1..=11).rev()) {
        assert_eq!(*record, place.record(n), "a listing shows the whole record");
    }
}

pub(super) fn mixed(backend: &dyn Log) {
    let root = root_of(backend, "mixed");
    let (child, other) = (root.inside("a:1"), root.inside("b:2"));
    root.add(begin(1));
    child.add(begin(2));
    other.add(begin(3));
    root.add(on(4, 1));
    child.add(on(5, 2));
    root_of(backend, "not this one").add(begin(6));
    let list = |namespace: Option<&CasePlace<'_>>, before, limit| {
        let namespace = namespace.map(|place| place.namespace.clone());
        let query = CheckpointQuery { thread: root.thread.clone(), namespace, before, limit };
        backend.checkpoints(&query).expect("lists")
    };
    let all = list(None, None, 0);
    assert_eq!(ids(&all), id_list([5, 4, 3, 2, 1]));
    let spaces: Vec<_> = all.iter().map(|record| record.point.namespace.as_str()).collect();
    assert_eq!(spaces, ["a:1", "", "b:2", "a:1", ""]);
    assert_eq!(ids(&list(None, Some(id(4)), 2)), id_list([3, 2]));
    assert_eq!(ids(&list(Some(&child), None, 0)), id_list([5, 2]));
    assert_eq!(ids(&list(Some(&root.inside("none")), None, 0)), []);
}

pub(super) fn stable(backend: &dyn Log) {
    let place = root_of(backend, "stable");
    chain(backend, &place, 6);
    let first = page(backend, &place, None, 3);
    place.add(on(7, 6));
    place.add_at(Some(7), on(8, 2));
    let second = page(backend, &place, first.last().copied(), 3);
    assert_eq!([first, second].concat(), id_list((1..=6).rev()), "nothing twice, nothing left out");
}

pub(super) fn prefixes(backend: &dyn Log) {
    let place = root_of(backend, "prefixes");
    let named = [
        "1f0e3dad-9990-6345-8012-000000000001",
        "1f0e3dad-9990-6345-8012-a00000000002",
        "1f0e3dae-0000-6000-8000-000000000003",
    ];
    let named = named.map(|text| text.parse::<CheckpointId>().expect("an id"));
    let child = place.inside("child:1");
    let add = |place: &CasePlace<'_>, head: Option<CheckpointId>, new: CheckpointId| {
        let mut draft = begin(1);
        draft.0.id = new;
        let mut batch = place.batch(None, [draft]);
        batch.expect[0].head = head;
        commit(backend, &batch);
    };
    add(&place, None, named[0]);
    add(&place, Some(named[0]), named[2]);
    add(&child, None, named[1]);
    add(&root_of(backend, "elsewhere"), None, named[0]);
    let find = |prefix: &str, limit| {
        ids(&backend.checkpoints_by_prefix(&place.thread, prefix, limit).expect("looks up a prefix"))
    };
    assert_eq!(find(&named[0].to_string(), 10), [named[0]], "a whole id");
    assert_eq!(find(&named[0].to_string().replace('-', ""), 10), [named[0]], "without hyphens");
    assert_eq!(find("1f0e3dae", 10), [named[2]]);
    assert_eq!(find("1f0e3dae-", 10), [named[2]]);
    assert_eq!(find("1f0e3dae0", 10), [named[2]]);
    assert_eq!(find("1f0e3dad-9990-6345-8012-a", 10), [named[1]], "all namespaces of the thread are looked through");
    assert_eq!(find("1f0e3dad99906345", 10), named[..2], "an ambiguous prefix gives all, oldest first");
    assert_eq!(find("1f0e3dad-9990-6", 10), named[..2]);
    assert_eq!(find("1", 10), named);
    assert_eq!(find("1", 2), named[..2]);
    for none in ["2", "1f0e3daf", "1f0e3dad-9990-6345-8012-00000000000100", "1f0e3dadx", "%", "_f0e", "1f0e3dad'"] {
        assert_eq!(find(none, 10), [], "{none:?} fits nothing");
    }
    let unknown = ThreadId::new("unknown").expect("a thread id");
    assert!(backend.checkpoints_by_prefix(&unknown, "1", 10).expect("looks up").is_empty());
}

pub(super) fn threads(backend: &dyn Log) {
    let names = ["Z", "a", "aa", "b", "ä", "日"];
    for (n, name) in (1..).zip(["b", "日", "a", "ä", "Z", "aa"]) {
        root_of(backend, name).add(begin(n));
    }
    let list = |after: Option<&str>, limit| {
        let after = after.map(|name| ThreadId::new(name).expect("a thread id"));
        backend.threads(after.as_ref(), limit).expect("lists threads")
    };
    let shown = |after, limit| list(after, limit).iter().map(|thread| thread.id.to_string()).collect::<Vec<_>>();
    assert_eq!(shown(None, 100), names, "by the bytes of the id");
    assert_eq!(shown(None, 2), names[..2]);
    assert_eq!(shown(Some("a"), 2), names[2..4]);
    assert_eq!(shown(Some("c"), 100), names[4..], "`after` need not be stored");
    assert!(shown(Some("日"), 100).is_empty());
    let place = root_of(backend, "a");
    place.add(on(13, 3));
    place.add_at(Some(13), on(14, 3));
    let record = &list(Some("Z"), 1)[0];
    assert_eq!(record.created_at, moment(3), "when its first checkpoint was made");
    assert_eq!(record.head, place.record(14));
    let size = |name: &str| {
        let size = backend.thread_size(&ThreadId::new(name).expect("a thread id")).expect("counts");
        (size.checkpoints, size.branches)
    };
    assert_eq!((size("a"), size("b"), size("none")), ((3, 2), (1, 1), (0, 0)));
    place.inside("child:1").add(begin(20));
    let record = &list(Some("Z"), 1)[0];
    assert_eq!(size("a"), (4, 3), "those of all namespaces");
    assert_eq!(record.head, place.record(14), "the head is that of the root namespace");
}

pub(super) fn check(backend: &dyn Log) {
    for (name, count) in [("one", 5), ("two", 7)] {
        chain(backend, &root_of(backend, name), count);
    }
    root_of(backend, "one").inside("child:1").add(begin(1).value("x", 1, "some value to be counted"));
    let report = backend.check().expect("the check runs");
    assert_eq!((report.threads, report.checkpoints), (2, 13));
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}
