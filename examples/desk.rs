//! A desktop agent with a loop of its own: one commit for each turn, a list of threads, a search box, and a way back.
//!
//! Run it with `cargo run -p annals --example desk`.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::time::Duration;

use annals::history::{ModelUsage, ThreadQuery, UsageQuery, diff};
use annals::prelude::*;
use annals::store::{ItemRange, SearchQuery};

/// Stands for a model: it knows hotels in two towns.
fn model(messages: &[Message]) -> (Message, ModelUsage) {
    let said = messages.last().map(|message| message.text().into_owned()).unwrap_or_default();
    let answer =
        if said.contains("Bern") { "The Gasthof zum Bären has rooms." } else { "The Hotel am Rhein has rooms." };
    (Message::ai(answer), ModelUsage::new(812, 64).cost_usd(0.004).model("m-1"))
}

/// A turn: a commit for the message of the user, and one for the answer, with its usage.
fn turn(chat: &Thread, said: &str) -> Result<()> {
    let point = chat.at(chat.append("messages", [Message::human(said)])?)?;
    let (answer, usage) = model(&point.messages("messages", ItemRange::Tail(50))?);
    chat.write().append("messages", [answer]).set("model", "m-1").usage(usage).commit()?;
    Ok(())
}

fn main() -> Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::open(folder.path().join("chats.db"))?;
    let mut watch = store.watch()?;

    let chat = store.thread("trip")?;
    turn(&chat, "A hotel in Bern, please")?;
    turn(&chat, "And one in Basel")?;
    chat.facts().title("A trip in May").project("home").label("travel").save()?;
    turn(&store.thread("diary")?, "Good morning")?;

    // The second window is told within 100 ms.
    assert!(watch.next(Duration::from_secs(1))?.is_some(), "a checkpoint was committed");

    // The list at the left, and the search box.
    for thread in store.threads_with(ThreadQuery::new().project("home"))? {
        println!("{:<20} {:<8} {}", thread.title().unwrap_or("untitled"), thread.status, thread.updated_at);
    }
    for hit in store.search(SearchQuery::new("gasthof").role("ai"))?.hits {
        println!("{}: {}", hit.point.thread, hit.snippet.marked("*", "*"));
    }

    // The way back destroys nothing, and every step of it can be undone.
    let before = chat.at("~2")?;
    chat.rewind_to(&before)?;
    chat.undo()?.expect("the rewind is undone");
    let by_train = before.fork_to("trip by train")?;
    turn(&by_train, "By train, please")?;
    println!("{}", diff(&before, &chat.at("@")?)?);
    chat.facts().archived(true).save()?;
    assert_eq!(store.threads_with(ThreadQuery::new())?.len(), 2, "archived threads are passed over");

    for sum in store.usage(UsageQuery::new().by_model())? {
        println!(
            "{}: {} calls, {} + {} tokens",
            sum.model.unwrap_or_default(),
            sum.calls,
            sum.input_tokens,
            sum.output_tokens
        );
    }
    for operation in store.operations()? {
        let operation = operation?;
        println!("{} {}", operation.at(), operation.name());
    }
    Ok(())
}
