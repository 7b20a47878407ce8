//! The pages from outside: refusals, screens, writes, hostile content, a real server, and a browser.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "page/attacks.rs"]
mod attacks;
#[path = "page/browser.rs"]
mod browser;
#[path = "page/crowds.rs"]
mod crowds;
#[path = "page/forms.rs"]
mod forms;
#[path = "page/halves.rs"]
mod halves;
#[path = "page/hostile.rs"]
mod hostile;
#[path = "page/isolated.rs"]
mod isolated;
#[path = "page/look.rs"]
mod look;
#[path = "page/refusals.rs"]
mod refusals;
#[path = "page/runs.rs"]
mod runs;
#[path = "page/screens.rs"]
mod screens;
#[path = "page/site.rs"]
mod site;
#[path = "page/sockets.rs"]
mod sockets;
#[path = "page/stats.rs"]
mod stats;
#[path = "page/steps.rs"]
mod steps;
#[path = "page/talks.rs"]
mod talks;
#[path = "page/webdriver.rs"]
mod webdriver;
#[path = "page/writes.rs"]
mod writes;

use annals::history::{MessageCompaction, ModelUsage};
use annals::prelude::*;
use annals_page::{Page, PageOptions, PageRequest, PageResponse};
use serde_json::{Value as Json, json};

const HOST: &str = "127.0.0.1:4000";
const TOKEN: &str = "secret-token";

fn options() -> PageOptions {
    PageOptions::new().address(HOST.parse().unwrap()).token(TOKEN).name("chats.db")
}

fn page_of(store: &Store) -> Page {
    Page::new(store.clone(), options()).unwrap()
}

fn request(target: &str) -> PageRequest {
    PageRequest::get(target).header("host", HOST).header("authorization", format!("Bearer {TOKEN}"))
}

fn get(page: &Page, target: &str) -> PageResponse {
    page.handle(&request(target))
}

/// Returns the document of a screen.
fn html(page: &Page, target: &str) -> String {
    let response = get(page, target);
    assert_eq!(response.status, 200, "{target}: {}", response.text());
    response.text()
}

/// Returns the JSON of a screen.
fn document(page: &Page, target: &str) -> Json {
    let response = get(page, target);
    assert_eq!(response.status, 200, "{target}: {}", response.text());
    serde_json::from_str(&response.text()).unwrap()
}

/// A thread with two branches, an edited and a removed message, tool calls, usage and facts.
fn trip(store: &Store) -> Thread {
    let trip = store.thread("trip").unwrap();
    let plan = |city: &str| Value::from(json!({ "city": city, "stops": [{ "name": "a/b" }, { "name": "c" }] }));
    trip.write()
        .append(
            "messages",
            [Message::human("A hotel in Bern").with_id("m1"), Message::ai("To be removed").with_id("m2")],
        )
        .set("plan", plan("Bern"))
        .commit()
        .unwrap();
    let call = json!({ "type": "ai", "content": "I look.", "id": "m3",
        "tool_calls": [{ "name": "hotels", "args": { "city": "Bern" }, "id": "c1", "type": "tool_call" }] });
    let usage = ModelUsage::new(812, 64).cost_usd(0.004).model("m-1");
    let call = Message::try_from(Value::from(call)).unwrap();
    trip.write().append("messages", [call]).set("plan", plan("Basel")).usage(usage).commit().unwrap();
    trip.append("messages", [Message::ai("The Gasthof zum Baeren").with_id("m4")]).unwrap();
    trip.append("messages", [Message::ai("The Gasthof zum B\u{e4}ren").with_id("m4")]).unwrap();
    trip.append("messages", [Message::human("Thanks").with_id("m5")]).unwrap();
    trip.delete_items("messages", [1]).unwrap();
    trip.name_branch("by bus").unwrap();
    trip.name_branch_at("by train", &trip.at("~2").unwrap()).unwrap();
    trip.switch(&trip.branch("by train").unwrap()).unwrap();
    trip.append("messages", [Message::human("By train").with_id("t1")]).unwrap();
    trip.facts().title("Bern in May").project("travel").label("spring").save().unwrap();
    trip
}
