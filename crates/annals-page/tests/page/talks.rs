//! Conversations: on their screen, as Markdown, and as one document.

use super::*;

#[test]
fn messages_show_edits_removals_calls_and_writers() {
    let store = Store::memory();
    trip(&store);
    let page = page_of(&store);
    let shown = html(&page, "/t/trip@by%20bus/talk");
    for text in [
        "A hotel in Bern",
        "The Gasthof zum B\u{e4}ren",
        "edited; the text before",
        "The Gasthof zum <del>Baeren</del><ins>B\u{e4}ren</ins>",
        "1 message removed here",
        "<b dir=\"auto\">hotels</b><code class=\"cut\" dir=\"auto\">Bern</code>",
        "title=\"written by update\">step 1</a> · 1 tool",
        "<b dir=\"auto\">You</b>",
        "<a href=\"#m0\"><span>1</span><bdi>A hotel in Bern</bdi></a>",
        "Thanks",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert!(!shown.contains("To be removed") && !shown.contains("By train"));
    let other = html(&page, "/t/trip/talk");
    assert!(
        other.contains("By train")
            && other.contains("class=\"msg human own\"")
            && other.contains("class=\"msg human\""),
        "messages of this branch are marked: {other}"
    );
    let messages = document(&page, "/t/trip@by%20bus/talk.json");
    assert_eq!(messages["messages"].as_array().unwrap().len(), 4);
    let many = store.thread("many").unwrap();
    many.append("messages", (0..120).map(|n| Message::human(format!("say {n:03}")))).unwrap();
    let last = html(&page, "/t/many/talk");
    assert!(last.contains("say 119") && !last.contains("say 069") && last.contains("before=70"));
    let before = html(&page, "/t/many/talk?channel=messages&before=70");
    assert!(before.contains("say 069") && before.contains("say 020") && !before.contains("say 070"));
}

#[test]
fn a_conversation_is_rendered_and_its_machinery_folds() {
    let store = Store::memory();
    let chat = store.thread("chat").unwrap();
    let message = |value: Json| Message::try_from(Value::from(value)).unwrap();
    let call = |id: &str, name: &str, args: Json| json!({ "name": name, "args": args, "id": id, "type": "tool_call" });
    let result = |id: &str, status: &str, content: &str| {
        message(json!({ "type": "tool", "tool_call_id": id, "status": status, "content": content }))
    };
    chat.append(
        "messages",
        [
            Message::system("You are <brief>.\nAnd kind."),
            Message::human("one\ntwo"),
            message(json!({ "type": "ai", "content": [
                { "type": "thinking", "thinking": "first *this*" },
                { "type": "text", "text": "# Plan\n\n- `a < b`\n\n```rust\nlet x = 1;\n```\n\n[at](https://x.org) [no](javascript:a)" },
            ], "tool_calls": [call("1", "read", json!({ "path": "src/a.rs" })), call("2", "bash", json!({ "cmd": "ls", "in": "/" }))] })),
            result("1", "success", "a\nb\nc"),
            result("2", "error", "exit 101"),
            message(json!({ "type": "ai", "content": "", "tool_calls": [call("3", "wait", json!({}))] })),
            result("of another page", "success", "late"),
        ],
    )
    .unwrap();
    let page = page_of(&store);
    let shown = html(&page, "/t/chat/talk");
    for markup in [
        "<b>Instructions</b><code class=\"cut\" dir=\"auto\">You are &lt;brief&gt;.</code><span class=\"end\">5 words</span>",
        "<p dir=\"auto\">one<br>two</p>",
        "<summary>Thought, 2 words</summary><div dir=\"auto\"><p dir=\"auto\">first <em>this</em></p></div>",
        "<h3 dir=\"auto\">Plan</h3><ul><li dir=\"auto\"><code dir=\"auto\">a &lt; b</code></li></ul>",
        "<span class=\"k\">let</span> x = <span class=\"n\">1</span>;",
        "<a href=\"https://x.org\" rel=\"noreferrer noopener\" dir=\"auto\">at</a> no",
        "<details class=\"tool\" id=\"m3\"><summary><b dir=\"auto\">read</b>",
        "src/a.rs</code><span class=\"end\" dir=\"auto\">3 lines</span>",
        "<details class=\"tool\" id=\"m4\" open=\"\"><summary><b class=\"failed\" dir=\"auto\">bash</b>",
        "<span class=\"end failed\" dir=\"auto\">exit 101</span>",
        "<b>result</b><code class=\"cut\" dir=\"auto\">late</code>",
        "step 0</a> · 2 tools",
    ] {
        assert!(shown.contains(markup), "{markup}: {shown}");
    }
    assert_eq!(shown.matches("<li class=\"msg").count(), 5, "results stand with their calls: {shown}");
    assert!(!shown.contains("javascript"), "{shown}");
}

#[test]
fn a_conversation_is_markdown_at_an_address() {
    let store = Store::memory();
    trip(&store);
    let page = page_of(&store);
    let shown = html(&page, "/t/trip@by%20bus/talk");
    let link = shown.split("<a href=\"").find(|link| link.contains("\">Markdown</a>")).expect("a link to the Markdown");
    let link = link.split('"').next().unwrap().replace("&amp;", "&");
    assert!(shown.contains(&format!("data-copy-from=\"{}\"", link.replace('&', "&amp;"))), "{shown}");
    let response = get(&page, &link);
    assert_eq!(response.value_of("content-type"), Some("text/plain; charset=utf-8"));
    let text = response.text();
    assert!(text.starts_with("# Bern in May\n"), "{text}");
    let after = text.split("\n## ").skip(1).map(str::trim_end).collect::<Vec<_>>();
    assert_eq!((after[0], after.len()), ("human\n\nA hotel in Bern", 4), "{text}");
    assert!(after[1].contains("calls hotels\n\n```\n{\n  \"city\": \"Bern\"\n}\n```"), "{text}");
    assert!(text.contains("The Gasthof zum B\u{e4}ren") && !text.contains("To be removed"), "{text}");
    assert_eq!(get(&page, "/t/trip/talk?format=pdf").status, 400);
    let many = store.thread("many").unwrap();
    many.append("messages", (0..120).map(|n| Message::human(format!("say {n:03}")))).unwrap();
    let all = html(&page, "/t/many/talk?format=markdown");
    assert_eq!(all.matches("\n## human\n\nsay ").count(), 120, "the conversation has no pages");
}

/// A document has all messages and no link, loads nothing, and allows its own style by its hash.
#[test]
fn a_conversation_is_one_document() {
    let store = Store::memory();
    trip(&store);
    let written = |thread: &Thread| {
        let mut bytes = Vec::new();
        let count = annals_page::write_document(&thread.head().unwrap().unwrap(), None, &mut bytes);
        count.map(|count| (count, String::from_utf8(bytes).unwrap()))
    };
    let (count, shown) = written(&store.thread("trip").unwrap()).unwrap();
    assert_eq!(count, 5);
    for text in [
        "<h1 dir=\"auto\">Bern in May</h1>",
        "A hotel in Bern",
        "<b dir=\"auto\">hotels</b>",
        "<span class=\"strong\">plan</span>",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    for wrong in ["<script", "href=", "src=", "url(", "@import", "<link", "<form"] {
        assert!(!shown.contains(wrong), "{wrong}");
    }
    assert!(shown.contains("default-src &#39;none&#39;; style-src &#39;sha256-"), "{shown}");
    let many = store.thread("many").unwrap();
    let long = "long ".repeat(20_000);
    let said =
        (0..120).map(|n| Message::human(format!("say {n:03}"))).chain([Message::ai(format!("{long}and its end"))]);
    many.append("messages", said).unwrap();
    let (count, shown) = written(&many).unwrap();
    assert_eq!((count, shown.matches("<p dir=\"auto\">say ").count()), (121, 120));
    assert!(shown.contains("long and its end"), "nothing is cut");
    let none = store.thread("none").unwrap();
    none.set("n", 1).unwrap();
    let (count, shown) = written(&none).unwrap();
    assert!(count == 0 && shown.contains("<b>(edited)</b> n</span>"), "its steps stand in their place: {shown}");
}

#[test]
fn folded_messages_are_marked_and_the_summary_stands_at_their_end() {
    let store = Store::memory();
    let chat = store.thread("chat").unwrap();
    chat.append("messages", (0..6).map(|n| Message::human(format!("say {n}")))).unwrap();
    let summary = Message::system("so far: <b>four</b> things");
    chat.compact("messages", MessageCompaction::new([summary]).keep_first(1).keep_last(1)).unwrap();
    let page = page_of(&store);
    let shown = html(&page, "/t/chat/talk");
    // The turns at the left come first.
    let place = |text: &str| shown.rfind(text).unwrap_or_else(|| panic!("{text}: {shown}"));
    assert_eq!(shown.matches("the model sees a summary\">folded</span>").count(), 4, "{shown}");
    assert!(place("say 4") < place("folded up to here") && place("folded up to here") < place("so far: "));
    assert!(place("so far: ") < place("say 5") && !shown.contains("<b>four</b>"));
    let markdown = html(&page, "/t/chat/talk?format=markdown");
    let (before, after) = markdown.split_once("(folded up to here").expect("the border");
    assert!(before.contains("say 4") && after.contains("so far: ") && after.contains("say 5"), "{markdown}");
    let messages = document(&page, "/t/chat/talk.json");
    assert_eq!((messages["messages"].as_array().unwrap().len(), &messages["folded"]["to"]), (6, &json!(5)));
    let found = html(&page, "/search?q=say+2");
    assert!(found.contains("folded by a compaction"), "{found}");

    // With an empty tail the summary is the last row, and another value under the name of the fold folds nothing.
    chat.compact("messages", MessageCompaction::new([Message::system("all of it")])).unwrap();
    let shown = html(&page, "/t/chat/talk");
    assert!(shown.rfind("say 5").unwrap() < shown.rfind("all of it").unwrap(), "{shown}");
    chat.set("messages:folded", "another value").unwrap();
    assert!(!html(&page, "/t/chat/talk").contains("folded up to here"));
}
