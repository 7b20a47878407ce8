//! Listings of threads, their sizes and their forks.

use super::build::*;

pub(super) fn threads_and_check(backend: &dyn Log) {
    let [first, none] = roots(backend, ["b", "none"]);
    first.add(begin(1));
    let forks = ["日", "a", "ä", "Z", "aa"].map(|name| root_of(backend, name));
    (2..).zip(&forks).for_each(|(n, place)| place.add(fork_of(n, first.point(1))));
    let place = &forks[1];
    [14, 15].into_iter().for_each(|n| place.add(on(n, 3)));
    place.inside("child:1").add(begin(20).value("x", 1, "some value to be counted"));
    let after = ThreadId::new("c").expect("the name of a thread");
    let page = backend.threads(Some(&after), 9).expect("threads are listed");
    assert!(page.iter().map(|thread| thread.id.as_str()).eq(["ä", "日"]), "`after` need not be stored");
    assert_eq!(backend.thread_size(&none.thread).expect("counts"), ThreadSize::default());
    let (forks, origin) = (backend.forks(&none.thread), backend.forked_from(&none.thread));
    assert!(forks.expect("forks are listed").is_empty() && origin.expect("the origin is read").is_none());
    assert_eq!(backend.check().map(|report| (report.threads, report.checkpoints)).expect("the check runs"), (6, 9));
}
