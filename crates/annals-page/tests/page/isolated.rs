//! The pages in Chromium: values from right to left, and large values.
//! Without chromedriver the tests say so and end.

use std::sync::Arc;

use annals::state::DynState;
use annals_graph::prelude::*;
use annals_page::PageServer;

use super::forms::asking;
use super::webdriver::Browser;
use super::*;

const SKIPPED: &str = "skipped: chromedriver is not installed (Debian: apt-get install chromium chromium-driver)";
/// Words of Hebrew and of Arabic.
const HEBREW: &str = "\u{5e9}\u{5dc}\u{5d5}\u{5dd}";
const ARABIC: &str = "\u{645}\u{631}\u{62d}\u{628}\u{627}";

/// Returns the words of the page that are not at the right of the one before them on their line. A value that an
/// element isolates is one word.
const DISORDER: &str = r"
const words = [], found = [];
const add = (block, rects, text) => {
  for (const rect of rects) if (rect.width > 0) words.push({ block, rect, text });
};
const walk = (node, block) => {
  for (const child of node.childNodes) {
    if (child.nodeType === Node.TEXT_NODE) {
      for (const match of child.data.matchAll(/\S+/g)) {
        const range = document.createRange();
        range.setStart(child, match.index);
        range.setEnd(child, match.index + match[0].length);
        add(block, range.getClientRects(), match[0]);
      }
    } else if (child.nodeType === Node.ELEMENT_NODE && child.tagName !== 'svg') {
      const isInline = getComputedStyle(child).display.startsWith('inline');
      const isValue = child.tagName === 'BDI' || child.dir === 'auto';
      if (isValue && isInline) add(block, child.getClientRects(), child.textContent);
      if (!isValue) walk(child, isInline ? block : child);
    }
  }
};
walk(document.body, document.body);
for (let at = 1; at < words.length; at += 1) {
  const [before, after] = [words[at - 1], words[at]];
  const isSameLine = before.block === after.block && Math.abs(before.rect.bottom - after.rect.bottom) < 6;
  if (isSameLine && after.rect.left < before.rect.left) found.push(`${before.text} | ${after.text}`);
}
return { found, words: words.length };
";

/// Serves a store, and returns a browser that has the cookie of the server, with the begin of its addresses.
fn opened(store: &Store) -> Option<(Browser, String)> {
    let browser = Browser::start(true)?;
    let server = Arc::new(PageServer::bind(store.clone(), 0, options().allow_write(true)).unwrap());
    let running = Arc::clone(&server);
    std::thread::spawn(move || running.run());
    browser.open(&server.link());
    Some((browser, format!("http://{}", server.address())))
}

/// Encodes a text as a segment of an address.
fn segment(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// A thread whose id, title, branch, channels, nodes and values are from right to left.
fn turned(store: &Store) -> Thread {
    let thread = store.thread(HEBREW).unwrap();
    let schema = DynSchema::new().last(ARABIC).append("messages").build();
    let graph = StateGraph::with_schema(schema)
        .node(HEBREW, |_: &DynState| Ok(DynUpdate::new().set(ARABIC, format!("{ARABIC} 3"))))
        .node(ARABIC, |_: &DynState, context: &Context| {
            context.interrupt(HEBREW)?;
            Ok(DynUpdate::new())
        })
        .edge(START, HEBREW)
        .edge(HEBREW, ARABIC)
        .compile()
        .unwrap();
    _ = graph.invoke(&thread, DynUpdate::new().set(ARABIC, HEBREW)).unwrap();
    let call = json!({ "type": "ai", "content": "", "id": "m2", "name": HEBREW,
        "response_metadata": { "model_name": ARABIC }, "usage_metadata": { "input_tokens": 3, "output_tokens": 4, "total_tokens": 7 },
        "tool_calls": [{ "name": HEBREW, "args": { ARABIC: HEBREW }, "id": "c1", "type": "tool_call" }] });
    let call = Message::try_from(Value::from(call)).unwrap();
    let usage = ModelUsage::new(3, 4).cost_usd(0.5).model(HEBREW);
    let said = Message::human(format!("{HEBREW} 7 {ARABIC} \u{202e}txet")).with_id("m1");
    let edit = thread.write().append("messages", [said, call]).set(ARABIC, Value::from(json!({ HEBREW: [ARABIC, 5] })));
    edit.usage(usage).commit().unwrap();
    thread.facts().title(format!("{ARABIC} {HEBREW}")).project(HEBREW).label(ARABIC).save().unwrap();
    thread.name_branch(HEBREW).unwrap();
    drop(asking(
        store,
        ARABIC,
        vec![(json!(HEBREW), None), (json!({ "question": ARABIC, "options": [HEBREW, "2"] }), None)],
    ));
    thread
}

#[test]
fn text_from_right_to_left_does_not_reorder_the_page() {
    let store = Store::memory();
    turned(&store);
    let Some((browser, base)) = opened(&store) else {
        eprintln!("{SKIPPED}");
        return;
    };
    let (thread, channel) = (format!("/t/{}", segment(HEBREW)), segment(ARABIC));
    for address in [
        "/".to_owned(),
        thread.clone(),
        format!("{thread}/talk"),
        format!("{thread}/state"),
        format!("{thread}/state/{channel}"),
        format!("{thread}/state/messages"),
        format!("{thread}/step"),
        format!("{thread}/step/1"),
        format!("{thread}/graph"),
        format!("{thread}/fork?name={channel}&channel={channel}&value={channel}"),
        format!("/diff/{}", segment(&format!("{HEBREW}~1..{HEBREW}"))),
        format!("/search?q={}", segment(HEBREW)),
        "/runs".to_owned(),
        "/stats".to_owned(),
        "/health".to_owned(),
    ] {
        browser.open(&format!("{base}{address}"));
        let shown = browser.text("main");
        assert!(shown.contains(HEBREW) || shown.contains(ARABIC), "{address} shows no such text: {shown}");
        assert!(!shown.contains('\u{202e}'), "{address} holds an override");
        let order = browser.run(DISORDER);
        assert_eq!(order["found"], json!([]), "{address}");
        assert!(order["words"].as_u64() > Some(30), "{address}: {order}");
    }
}

#[test]
fn a_browser_shows_the_begin_of_a_large_value() {
    let store = Store::memory();
    let thread = store.thread("large").unwrap();
    let large = "0123456789abcdef".repeat(1 << 16);
    assert_eq!(large.len(), 1 << 20);
    thread.write().append("messages", [Message::human(large.as_str())]).set("blob", large.as_str()).commit().unwrap();
    let Some((browser, base)) = opened(&store) else {
        eprintln!("{SKIPPED}");
        return;
    };
    let begin = "0123456789abcdef";
    for (screen, text) in
        [("/talk", begin), ("/state/blob", begin), ("/state/messages/0", begin), ("", begin), ("/step", "1.0 MiB")]
    {
        browser.open(&format!("{base}/t/large{screen}"));
        let timing = browser.run("return performance.getEntriesByType('navigation')[0].toJSON();");
        let bytes = timing["decodedBodySize"].as_u64().unwrap();
        assert!((1_000..1_000_000).contains(&bytes), "{screen}: {bytes} bytes");
        assert!(browser.text("main").contains(text), "{screen}: {}", browser.text("main"));
    }
    for (screen, begin, shown) in [
        ("/talk", "the first 11.7 KiB of 1.0 MiB", "/state/messages/0/content?raw=1"),
        ("/state/blob", "the first 3.9 KiB of 1.0 MiB", "/state/blob?raw=1"),
    ] {
        browser.open(&format!("{base}/t/large{screen}"));
        assert!(browser.text("main").contains(begin), "{}", browser.text("main"));
        browser.click("a[href$=\"raw=1\"]");
        browser.wait("the whole value", |browser| browser.address().ends_with(shown));
        browser.wait("all of it", |browser| browser.run("return document.body.textContent.length;") == json!(1 << 20));
    }
}
