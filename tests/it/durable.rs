//! What outlasts a run: threads that are deleted, tasks that sleep, and runs that are repeated.

use annals::prelude::*;
use annals::store::StoreError;

use crate::places::place;

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Log {
    #[channel(append)]
    lines: List<String>,
}

fn line(text: &str) -> LogUpdate {
    Log::update().lines([text.to_string()])
}

#[test]
fn a_deleted_thread_is_gone_and_its_forks_hold_it() {
    let store = place(module_path!());
    let ask = |_: &Log, ctx: &Context| Ok(line(ctx.interrupt("?")?.as_str().unwrap_or_default()));
    let graph = StateGraph::<Log>::new().node("ask", ask).edge(START, "ask").compile().unwrap();
    let (thread, other) = (store.thread("t").unwrap(), store.thread("other").unwrap());
    for thread in [&thread, &other] {
        graph.invoke(thread, line("first")).unwrap();
    }
    let fork = thread.at("~0").unwrap().fork_to("fork").unwrap();
    match store.delete_thread(thread.id()) {
        Err(StoreError::ForkedOff { thread: of, forks }) => {
            assert_eq!((&of, forks.as_slice()), (thread.id(), std::slice::from_ref(fork.id())));
        }
        other => panic!("{other:?}"),
    }
    store.delete_threads(&[thread.id().clone(), fork.id().clone()]).unwrap();
    assert!(thread.head().unwrap().is_none());
    assert_eq!(store.threads().unwrap().len(), 1);
    // The head that was in memory is forgotten as well.
    let asked = graph.invoke(&thread, line("anew")).unwrap();
    assert_eq!(asked.state().lines.to_vec(), ["anew"]);
    let done = graph.invoke(&other, Command::resume("answer")).unwrap();
    assert_eq!(done.state().lines.to_vec(), ["first", "answer"]);
    assert!(store.check().unwrap().problems.is_empty());
}
