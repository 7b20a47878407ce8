//! Listings, pages and prefixes.

use super::build::*;

pub(super) fn threads_and_check(backend: &dyn Log) {
    let names = ["Z", "a", "aa", "b", "ä", "日"];
    for (n, name) in (1..).zip(["b", "日", "a", "ä", "Z", "aa"]) {
        root_of(backend, name).add(begin(n));
    }
    let list = |after: Option<&str>, limit| {
        let after = after.map(|name| ThreadId::new(name).expect("a thread id"));
        backend.threads(after.as_ref(), limit).expect("lists threads")
    };
    let shown = |after, limit| list(after, limit).iter().map(|thread| thread.id.to_string()).collect::<Vec<_>>();
    assert_eq!([shown(None, 100), shown(None, 2)], [&names[..], &names[..2]], "by the bytes of the id");
    assert_eq!(shown(Some("a"), 2), names[2..4]);
    assert_eq!(shown(Some("c"), 100), names[4..], "`after` need not be stored");
    assert!(shown(Some("日"), 100).is_empty());
    let place = root_of(backend, "a");
    place.add(on(13, 3));
    place.add(on(14, 3));
    let size = |name: &str| {
        let size = backend.thread_size(&root_of(backend, name).thread).expect("counts");
        (size.checkpoints, size.branches)
    };
    assert_eq!(["a", "b", "none"].map(size), [(3, 2), (1, 1), (0, 0)]);
    place.inside("child:1").add(begin(20).value("x", 1, "some value to be counted"));
    assert_eq!(size("a"), (4, 3), "those of all namespaces");
    assert_eq!(list(Some("Z"), 1)[0].head, place.record(14), "the head is that of the root namespace");
    let report = backend.check().expect("the check runs");
    assert_eq!((report.threads, report.checkpoints), (6, 9));
}
