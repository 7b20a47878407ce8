//! Round trips of calls, which the client counts.

use std::sync::Arc;

use annals::prelude::*;
use annals::store::{OpenOptions, Store};

use super::Test;
use super::server::Server;

pub(crate) fn tests() -> Vec<Test> {
    vec![("calls::of_appends".into(), Box::new(of_appends))]
}

fn of_appends(server: &Server) {
    let backend = Arc::new(server.backend());
    let open = || Store::with_backend(backend.clone(), OpenOptions::new());
    let count = |run: &dyn Fn()| {
        let before = backend.round_trips();
        run();
        backend.round_trips() - before
    };
    let append = |store: &Store| {
        let thread = store.thread("t").expect("an id");
        thread.append("messages", [Message::human("hi")]).expect("it is appended");
    };
    let store = open();
    append(&store);
    assert_eq!(count(&|| append(&store)), 2, "a warm append reads the head and commits");
    let history = || {
        let thread = store.thread("t").expect("an id");
        assert_eq!(thread.history().expect("a history").count(), 2);
    };
    assert_eq!(count(&history), 1, "a page of the history");
    let state = || {
        let head = store.thread("t").expect("an id").head().expect("a head").expect("a head");
        assert_eq!(head.len("messages").expect("a length"), 2);
    };
    assert_eq!(count(&state), 2, "the head, and the length of a list");
}
