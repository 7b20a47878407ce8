//! A conversation that survives the process: open a store, run a graph on a thread, open it again, continue.
//!
//! Run it with `cargo run --example quickstart`.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use annals_graph::prelude::*;

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
    #[channel(last)]
    turns: i64,
}

/// Answers; a real program would call a model here.
fn answer(chat: &Chat) -> NodeResult<ChatUpdate> {
    let heard = chat.messages.last().map(|message| message.text().to_uppercase()).unwrap_or_default();
    Ok(Chat::update().messages([Message::ai(format!("{heard}!"))]).turns(chat.turns + 1))
}

fn main() -> Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("chat.db");
    let graph = StateGraph::<Chat>::new().node("answer", answer).edge(START, "answer").edge("answer", END).compile()?;

    let store = Store::open(&file)?;
    let done = graph.invoke(&store.thread("alice")?, Chat::update().messages([Message::human("hello")]))?;
    assert_eq!(done.state().messages.last().map(|m| m.text().into_owned()).as_deref(), Some("HELLO!"));
    drop(store);

    // Another process, another day: the thread is unchanged.
    let store = Store::open(&file)?;
    let alice = store.thread("alice")?;
    let done = graph.invoke(&alice, Chat::update().messages([Message::human("again")]))?;
    assert_eq!((done.state().messages.len(), done.state().turns), (4, 2));
    for message in done.state().messages.iter() {
        println!("{:>5}: {}", message.kind(), message.text());
    }

    // The file is read without a graph.
    let head = alice.head()?.expect("it ran");
    assert_eq!(head.get("turns")?, Some(Value::from(2)));
    assert_eq!(alice.history()?.count(), 6, "each turn: the input, the start, the answer");
    Ok(())
}
