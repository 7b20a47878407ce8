//! Half answers, messages that were carried on, and the internal channels, which a screen leaves out.

use std::time::Duration;

use annals_graph::prelude::*;

use super::screens::waiting;
use super::*;

#[test]
fn half_an_answer_is_on_every_screen_of_its_thread() {
    let store = Store::memory();
    let thread = store.thread("chat").unwrap();
    thread.append("messages", [Message::human("A hotel in Bern?")]).unwrap();
    let mut answer = thread.message_writer("messages", Duration::from_secs(3_600));
    answer.push("The Gasthof <b>zum</b> Bären");
    drop(answer);
    let page = page_of(&store);
    for address in ["/", "/t/chat", "/t/chat/talk", "/t/chat/state"] {
        let shown = html(&page, address);
        assert!(shown.contains("half an answer, 4 words"), "{address}: {shown}");
    }
    let talk = html(&page, "/t/chat/talk");
    assert!(talk.contains("class=\"half\"") && talk.contains("The Gasthof &lt;b&gt;"), "{talk}");
    assert_eq!(document(&page, "/.json")["threads"][0]["partial"]["words"], 4);
    assert_eq!(document(&page, "/t/chat.json")["checkpoints"][0]["partial"]["channel"], "messages");
    assert_eq!(document(&page, "/t/chat/talk.json")["partials"][0]["type"], "ai");
    assert_eq!(document(&page, "/t/chat/state.json")["partials"][0]["channel"], "messages");
    let found = html(&page, "/search?q=Gasthof");
    assert!(found.contains("half an answer"), "{found}");
    thread.append("messages", [Message::human("go on")]).unwrap();
    assert!(!html(&page, "/t/chat/talk").contains("half an answer"));
}

#[test]
fn the_first_message_of_a_thread_may_be_half_an_answer() {
    let store = Store::memory();
    let thread = store.thread("chat").unwrap();
    thread.message_writer("messages", Duration::from_secs(3_600)).push("Good");
    assert!(html(&page_of(&store), "/t/chat/talk").contains("half an answer, 1 word"));
}

#[test]
fn a_carried_message_is_marked_in_a_search() {
    let store = Store::memory();
    let thread = store.thread("chat").unwrap();
    let said = || Message::human("A hotel in Bern").with_id("1");
    thread.append("messages", [said()]).unwrap();
    thread.append("messages", [Message::remove_all(), Message::system("a summary"), said()]).unwrap();
    let page = page_of(&store);
    let found = html(&page, "/search?q=hotel");
    assert!(found.contains("1 hit") && found.contains("carried by a compaction"), "{found}");
    let head = thread.head().unwrap().unwrap().id().to_string();
    assert_eq!(document(&page, "/search.json?q=hotel")["hits"][0]["carried"], head);
}

#[test]
fn internal_channels_of_a_step_are_shown_when_asked_for() {
    let store = Store::memory();
    let graph = waiting(&store, "booking");
    let thread = store.thread("booking").unwrap();
    graph.run(&thread).record_ends(true).invoke(Command::resume("yes")).unwrap();
    let page = page_of(&store);
    let shown = html(&page, "/t/booking/step");
    for internal in ["__resume__", "__ended__", "branch:to:", "join:"] {
        assert!(!shown.contains(internal), "{internal}: {shown}");
    }
    assert!(shown.contains("?internal=1") && shown.contains("yes"), "{shown}");
    let all = html(&page, "/t/booking/step?internal=1");
    assert!(all.contains("__resume__") && all.contains("without the internal channels"), "{all}");
}
