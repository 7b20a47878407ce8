//! A search over many chats: words in any script, filters, pages, and the state at the time of a hit.
//!
//! Run it with `cargo run -p annals --example search_chats`.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use annals::prelude::*;
use annals::store::{ItemRange, SearchOptions, SearchQuery};

const CHATS: usize = 200;

/// Writes a chat of two messages for each of many travellers.
fn fill(store: &Store) -> Result<()> {
    let places = ["Bern", "Basel", "Genève", "Zürich", "東京"];
    for chat in 0..CHATS {
        let place = places[chat % places.len()];
        let thread = store.thread(format!("chat-{chat:03}"))?;
        let asked = Message::human(format!("A hotel in {place} for {} nights", 1 + chat % 7));
        let answer = Message::ai(format!("Number {chat}: the Gasthof at the station of {place} has rooms."));
        thread.append("messages", [asked, answer])?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("chats.db");
    let store = Store::open_with(&path, OpenOptions::new().synchronous(Synchronous::Normal))?;
    fill(&store)?;

    // Without an index a search reads all texts; with one it reads those that can match. The answers are the same.
    let query = SearchQuery::new("gasthof zürich").role("ai").limit(3);
    let scanned = store.search(&query)?;
    store.enable_search(SearchOptions::new())?;
    let begin = store.elapsed();
    let found = store.search(&query)?;
    assert_eq!(found, scanned);
    println!("{} hits in {:?}, and more: {}", found.hits.len(), store.elapsed() - begin, found.next.is_some());
    for hit in &found.hits {
        println!("  {} {}", hit.point.thread, hit.snippet.marked("*", "*"));
    }

    // The next page begins after the last hit.
    let cursor = found.next.expect("40 chats are about Zürich");
    let second = store.search(query.after(cursor))?;
    assert!(second.hits[0].seq < found.hits[2].seq);

    // Any script, and parts of words.
    let hits = store.search(SearchQuery::new("東京").role("human"))?.hits;
    println!("{} messages of people name 東京", hits.len());

    // A rewind leaves a message behind; the search finds it, and tells that it is not in the present state.
    let thread = store.thread("chat-007")?;
    thread.append("messages", [Message::human("Forget the Gasthof, a tent will do")])?;
    thread.rewind_to(&thread.at("~1")?)?;
    let tent = SearchQuery::new("tent").thread("chat-007");
    let hit = store.search(&tent)?.hits.remove(0);
    assert!(!hit.on_head && store.search(tent.on_head())?.hits.is_empty());

    // The state at the time of the hit.
    let then = hit.snapshot(&store)?;
    for message in then.messages("messages", ItemRange::All)? {
        println!("  {:>5}: {}", message.kind(), message.text());
    }
    Ok(())
}
