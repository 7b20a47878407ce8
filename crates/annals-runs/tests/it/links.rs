//! Links between threads: both ends, another parent, and writes that are not repeated.

use annals_runs::prelude::*;
use annals_runs::{ThreadLink, ThreadLinkKind};

fn below(store: &Store, thread: &str) -> Vec<String> {
    let links = store.thread(thread).unwrap().linked_threads().unwrap();
    links.into_iter().map(|link| link.thread).collect()
}

#[test]
fn a_thread_has_one_parent() {
    let store = Store::memory();
    // The ids hold what a label of a namespace must not have.
    let link = |parent: &str| ThreadLink::new(parent, ThreadLinkKind::Sub).call("call-1");
    let linked = |thread: &str, parent: &str| (thread.to_owned(), link(parent));
    store.link_threads(&[linked("a.1", "root.db"), linked("b", "root.db")]).unwrap();
    assert_eq!(
        (below(&store, "root.db"), below(&store, "other")),
        (vec!["a.1".into(), "b".into()], Vec::<String>::new())
    );
    let found = store.thread("root.db").unwrap().linked_threads().unwrap();
    assert_eq!((found[0].kind.as_str(), found[0].call.as_deref()), ("sub", Some("call-1")));

    store.link_threads(&[linked("b", "other")]).unwrap();
    assert_eq!((below(&store, "root.db"), below(&store, "other")), (vec!["a.1".into()], vec!["b".into()]));
    assert_eq!(store.thread("b").unwrap().parent_link().unwrap(), Some(link("other")));
    assert_eq!(store.thread("root.db").unwrap().parent_link().unwrap(), None);
}

#[test]
fn a_link_that_is_stored_is_not_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("links.db")).unwrap();
    let links = [("a".to_owned(), ThreadLink::new("root", ThreadLinkKind::Fork))];
    store.link_threads(&links).unwrap();
    let put = |store: &Store| store.kv().get(["annals-links", "parents"], "a").unwrap().unwrap().updated_at;
    let first = put(&store);
    store.link_threads(&links).unwrap();
    assert_eq!(put(&store), first);
    store.link_threads(&[("a".to_owned(), ThreadLink::new("root", ThreadLinkKind::Sub))]).unwrap();
    assert!(put(&store) > first, "another kind is another link");
}

#[test]
fn an_entry_of_another_program_is_no_link() {
    let store = Store::memory();
    let entry = [("thread".to_owned(), "root".into()), ("kind".to_owned(), "friend".into())];
    store.kv().put(["annals-links", "parents"], "a", annals::base::Map::from_iter(entry)).unwrap();
    assert_eq!(store.thread("a").unwrap().parent_link().unwrap(), None);
}
