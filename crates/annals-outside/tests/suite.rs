//! The backend outside the engine passes the suite, and a store runs on it.

use std::sync::Arc;

use annals::prelude::*;
use annals::store::conformance;
use annals::store::log::Log;
use annals::store::{OpenOptions, Store};
use annals_outside::MemoryBackend;

#[test]
fn it_conforms() {
    conformance::run(&|| Arc::new(MemoryBackend::new()));
}

#[test]
fn a_store_runs_on_it() {
    let store = Store::with_backend(Arc::new(MemoryBackend::new()) as Arc<dyn Log>, OpenOptions::new());
    let thread = store.thread("trip").unwrap();
    let first = thread.append("messages", [Message::human("A hotel in Bern")]).unwrap();
    thread.append("messages", [Message::ai("The Gasthof Post")]).unwrap();
    assert_eq!(thread.at(first).unwrap().len("messages").unwrap(), 1);
    assert_eq!(store.search(annals::store::SearchQuery::new("gasthof")).unwrap().hits.len(), 1);
}
