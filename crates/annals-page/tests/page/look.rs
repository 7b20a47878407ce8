//! The look of the pages in Chromium: no screen scrolls sideways, on a desk and on a phone. Without chromedriver the
//! test says so and ends.
//!
//! With the environment variable `ANNALS_PAGE_PICTURES` it makes the pictures of `docs/` in a folder, and beside them
//! those of all screens in a folder `all`.

use std::time::Duration;

use annals::state::DynState;
use annals_graph::prelude::*;
use annals_page::PageServer;
use annals_runs::{ThreadLink, ThreadLinkKind};

use super::forms::asking;
use super::screens::calls;
use super::webdriver::Browser;
use super::*;

/// The sizes of the windows: a desk and a phone.
const WINDOWS: [(&str, u32, u32); 2] = [("wide", 1440, 900), ("phone", 390, 844)];

/// The screens, each with the name of its picture.
const LOOKS: [(&str, &str); 18] = [
    ("threads", "/"),
    ("filtered", "/?q=project:trip+status:interrupted"),
    ("empty", "/?q=project:nowhere"),
    ("thread", "/t/hotel"),
    ("talk", "/t/stall/talk"),
    ("helpers", "/t/stall"),
    ("branches", "/t/trip"),
    ("state", "/t/hotel/state"),
    ("value", "/t/trip/state/plan"),
    ("step", "/t/hotel/step"),
    ("calls", "/t/fan/step"),
    ("graph", "/t/hotel/graph"),
    ("compare", "/diff/trip@by%20bus..trip"),
    ("fork", "/t/hotel/fork"),
    ("runs", "/runs"),
    ("stats", "/stats"),
    ("search", "/search?q=gasthof"),
    ("health", "/health"),
];

fn message(value: Json) -> Message {
    Message::try_from(Value::from(value)).unwrap()
}

/// An answer of a model with its usage.
fn answer(text: &str, model: &str, tokens: u64) -> Message {
    message(json!({ "type": "ai", "content": text, "response_metadata": { "model_name": model },
        "usage_metadata": { "input_tokens": tokens, "output_tokens": 120, "total_tokens": tokens + 120 } }))
}

/// A graph that asks 12 sites at the same time and then waits for leave to book.
fn hotel(store: &Store) {
    let schema = DynSchema::new().messages("messages").last("plan").append("offers").build();
    let say = |text: &'static str, plan: Json, ms: u64| {
        move |_: &DynState| {
            std::thread::sleep(Duration::from_millis(ms));
            let said = answer(text, "sonnet-4.5", 2_600);
            Ok(DynUpdate::new().messages("messages", [said]).set("plan", Value::from(plan.clone())))
        }
    };
    let plan = json!({ "city": "Bern", "nights": 3 });
    let booked = json!({ "city": "Bern", "nights": 3, "hotel": { "name": "Gasthof Post", "price": 540 } });
    let mut graph = StateGraph::with_schema(schema)
        .name("trip")
        .node("agent", say("I ask twelve sites for a quiet hotel near the old town.", plan, 12))
        .node(
            "choose",
            say("The Gasthof Post is quiet, has breakfast and fits the budget. Shall I book it?", booked, 16),
        )
        .node("approve", |_: &DynState, context: &Context| {
            let schema = json!({ "type": "boolean" });
            let resumed = context.interrupt_with("Book the Gasthof Post, 3 nights, CHF 540?", schema)?;
            Ok(DynUpdate::new().set("plan", resumed))
        });
    let sites =
        ["stays", "bern", "rooms", "inns", "beds", "old-town", "gasthof", "rail", "alps", "hostels", "maps", "post"];
    for (at, site) in sites.into_iter().enumerate() {
        graph = graph
            .node(site, move |_: &DynState| {
                std::thread::sleep(Duration::from_millis(if at < 3 { 30 - 8 * at as u64 } else { 2 }));
                Ok(DynUpdate::new().set("offers", format!("{site}.example: {} rooms", at + 2)))
            })
            .edge("agent", site);
    }
    let graph = graph.edge(START, "agent").join(sites, "choose").edge("choose", "approve").compile().unwrap();
    let thread = store.thread("hotel").unwrap();
    let input =
        DynUpdate::new().messages("messages", [Message::human("A hotel in Bern in May, please, three nights.")]);
    assert!(!graph.run(&thread).record_ends(true).invoke(input).unwrap().is_done());
    thread.facts().title("A hotel in Bern, three nights in May").project("trip").label("travel").save().unwrap();
}

/// A thread of a coding agent: Markdown, code, a table, tools, an edit, and half an answer.
fn stall(store: &Store) {
    let thread = store.thread("stall").unwrap();
    let call = |id: &str, name: &str, args: Json| json!({ "name": name, "args": args, "id": id, "type": "tool_call" });
    let result = |id: &str, status: &str, content: &str| {
        message(json!({ "type": "tool", "tool_call_id": id, "status": status, "content": content }))
    };
    let asked = "Under load the writer stalls for half a second. Find out why and fix it.";
    thread
        .append(
            "messages",
            [
                Message::system("You are a coding agent. Work in small steps and run the tests after each."),
                Message::human(asked).with_id("q"),
            ],
        )
        .unwrap();
    let asked =
        "Under load the writer stalls for 300 ms every few seconds. Find out why and fix it without losing durability.";
    thread.append("messages", [Message::human(asked).with_id("q")]).unwrap();
    let looked = json!({ "type": "ai", "content": [{ "type": "thinking", "thinking": "The stall is periodic, so a checkpoint of the log is the first suspect." }],
        "response_metadata": { "model_name": "gpt-5.1-codex" }, "usage_metadata": { "input_tokens": 38_100, "output_tokens": 210, "total_tokens": 38_310 },
        "tool_calls": [
            call("1", "search", json!({ "pattern": "wal_autocheckpoint in src/sqlite" })),
            call("2", "read", json!({ "path": "src/sqlite/writer.rs, lines 80 to 164" })),
            call("3", "bash", json!({ "command": "cargo test --test crash checkpoint" })),
            call("4", "task", json!({ "prompt": "Find what else runs inside a commit." })),
        ] });
    thread
        .append(
            "messages",
            [
                message(looked),
                result("1", "success", "9 hits"),
                result("2", "success", &"fn lead(&mut self) -> Result<()> {\n".repeat(85)),
                result("3", "error", "running 2 tests\ntest killed_while_copying ... ok\ntest killed_before_sync ... FAILED\n\n4 of 200 commits are missing"),
                result("4", "success", "Three places, none of which copies pages."),
            ],
        )
        .unwrap();
    let helper = store.thread("agent-a0ad4f").unwrap();
    helper
        .append("messages", [Message::human("Find what else runs inside a commit."), Message::ai("Three places.")])
        .unwrap();
    let link = ThreadLink::new("stall", ThreadLinkKind::Sub).call("4");
    store.link_threads(&[("agent-a0ad4f".to_owned(), link)]).unwrap();
    let found = "The stall is the automatic checkpoint of the write-ahead log. The leader of a group commit copies pages \
        *inside its own commit*, so that everybody who waits behind it waits for the copy too.\n\n\
        | what | p50 | p99 | longest |\n| --- | ---: | ---: | ---: |\n| commit alone | 1.8 ms | 4.1 ms | 9 ms |\n\
        | commit with checkpoint | 212 ms | 306 ms | 341 ms |\n\nI move it to a thread of its own and keep `synchronous = FULL`:\n\n\
        ```diff\n-    self.conn.pragma(\"wal_autocheckpoint\", 1_000)?;\n+    self.conn.pragma(\"wal_autocheckpoint\", 0)?;\n\
        +    self.checkpointer.wake(Mode::Passive);\n```\n\n```rust\nfn checkpoint(&mut self) -> Result<Pages> {\n    \
        self.log.sync_data()?; // before a single page is copied\n    let copied = self.copy(Mode::Passive, 4_096)?;\n    \
        tracing::debug!(copied, \"checkpoint\");\n    Ok(copied)\n}\n```\n\n\
        - 200 kills, 200 times every acknowledged commit is there.\n- The longest commit falls from 341 ms to **11 ms**.";
    thread.append("messages", [answer(found, "gpt-5.1-codex", 41_000)]).unwrap();
    thread.append("messages", [Message::human("Good. Write the entry for the changelog.")]).unwrap();
    let mut half = thread.message_writer("messages", Duration::from_secs(3_600));
    half.push("The checkpoint of the write-ahead log no longer runs inside a commit. Under load the longest commit was 341 ms; it is");
    drop(half);
    thread.facts().title("Why does the writer stall for 300 ms under load?").project("annals").save().unwrap();
}

fn failed(store: &Store) {
    let graph = StateGraph::with_schema(DynSchema::new().last("n").build())
        .name("order")
        .node("charge", |_: &DynState| -> annals_graph::graph::NodeResult<()> {
            Err("card processor timed out after 30 s".into())
        })
        .edge(START, "charge")
        .compile()
        .unwrap();
    let thread = store.thread("order-8841").unwrap();
    assert!(graph.invoke(&thread, DynUpdate::new().set("n", 1)).is_err());
    thread.facts().title("Order 8841: reserve, charge, ship").project("shop").save().unwrap();
}

fn filled(store: &Store) {
    trip(store);
    calls(store, "fan");
    stall(store);
    failed(store);
    let means = json!({ "question": "By which means?", "options": ["by bus", "by boat"] });
    drop(asking(store, "release", vec![(means, None)]));
    store
        .thread("release")
        .unwrap()
        .facts()
        .title("Release 0.9.0: build, test, approve")
        .project("annals")
        .label("release")
        .save()
        .unwrap();
    let named = [
        ("Rename Answer to ResumeValue across the workspace", "annals", "refactor"),
        ("Translate the quick start and keep the code blocks", "docs", "docs"),
    ];
    for (at, (title, project, label)) in named.into_iter().enumerate() {
        let thread = store.thread(format!("named-{at}")).unwrap();
        let usage = ModelUsage::new(51_900, 700).cost_usd(0.33).model("sonnet-4.5");
        thread.write().append("messages", [Message::human(title), Message::ai("Done.")]).usage(usage).commit().unwrap();
        thread.facts().title(title).project(project).label(label).save().unwrap();
    }
    store
        .thread("codex:019c8bfe-ec25-79e0-97d7-bda6a9c1f0aa-0123456789012345678901234567890123456789")
        .unwrap()
        .set("n", 1)
        .unwrap();
    hotel(store);
}

/// Returns the elements that are wider than the window, if it scrolls sideways.
const WIDE: &str = r"
const width = document.documentElement.clientWidth;
if (document.documentElement.scrollWidth <= width) return [];
const scrolls = (of) => { for (let at = of.parentElement; at; at = at.parentElement) {
  if (getComputedStyle(at).overflowX !== 'visible') return true; } return false; };
return [...document.body.querySelectorAll('*')]
  .filter((of) => of.getBoundingClientRect().right > width + 1 && !scrolls(of))
  .map((of) => `${of.tagName}.${of.getAttribute('class')} ${of.textContent.slice(0, 40)}`).slice(0, 5);
";

#[test]
#[allow(clippy::disallowed_methods, reason = "pictures are made when they are asked for")]
fn no_screen_scrolls_sideways() {
    let store = Store::memory();
    let Some(browser) = Browser::start(true) else {
        eprintln!("skipped: chromedriver is not installed (Debian: apt-get install chromium chromium-driver)");
        return;
    };
    filled(&store);
    let server =
        std::sync::Arc::new(PageServer::bind(store.clone(), 0, options().allow_write(true).name("work.db")).unwrap());
    let running = std::sync::Arc::clone(&server);
    std::thread::spawn(move || running.run());
    browser.open(&server.link());
    let base = format!("http://{}", server.address());
    let folder = std::env::var_os("ANNALS_PAGE_PICTURES").map(std::path::PathBuf::from);
    for (window, width, height) in WINDOWS {
        browser.resize(width, height);
        for (name, address) in LOOKS {
            browser.open(&format!("{base}{address}"));
            assert_eq!(browser.run(WIDE), json!([]), "{address} at {width} pixels");
            assert_eq!(browser.errors(), Vec::<String>::new(), "{address}");
            let Some(folder) = &folder else { continue };
            for scheme in ["light", "dark"] {
                browser.prefer(scheme);
                let file = format!("page-{name}-{window}-{scheme}.webp");
                let is_of_documents = ["threads", "thread", "talk"].contains(&name);
                let path = if is_of_documents { folder.join(file) } else { folder.join("all").join(file) };
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, browser.picture()).unwrap();
            }
            browser.prefer("light");
        }
    }
    offline(&browser, &store);
}

/// A document of a conversation is read from the disk, in its own style.
fn offline(browser: &Browser, store: &Store) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stall.html");
    let head = store.thread("stall").unwrap().head().unwrap().unwrap();
    annals_page::write_document(&head, None, &mut std::fs::File::create(&path).unwrap()).unwrap();
    browser.open(&format!("file://{}", path.display()));
    assert!(browser.text("main").contains("The stall is the automatic checkpoint"), "{}", browser.text("main"));
    assert_eq!(browser.errors(), Vec::<String>::new(), "the policy allows the style");
    let width = browser.run("return getComputedStyle(document.querySelector('.msg')).borderLeftWidth;");
    assert_eq!(width, json!("2px"), "the style is applied");
    assert_eq!(browser.run(WIDE), json!([]));
}
