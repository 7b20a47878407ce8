//! Content that wants to be markup, to turn the line around, or to be large.

use super::*;

const SCRIPT: &str = "<script>document.title='owned'</script><img src=x onerror=alert(1)>\"'><svg/onload=alert(2)>";

#[test]
fn hostile_texts_are_text_on_every_screen() {
    let store = Store::memory();
    let name = "x\"><script>t</script>/../@~1";
    let thread = store.thread(name).unwrap();
    let value = Value::from(json!({ SCRIPT: [SCRIPT, { "javascript:alert(1)": SCRIPT }] }));
    thread.write().append("messages", [Message::human(SCRIPT).with_id(SCRIPT)]).set(SCRIPT, value).commit().unwrap();
    let usage = ModelUsage::new(1, 1).cost_usd(1.0).model(SCRIPT);
    let turned = Message::ai("\u{202e}txet desrever\u{202c} \u{5e9}\u{5dc}\u{5d5}\u{5dd}");
    thread.write().append("messages", [turned]).set(SCRIPT, SCRIPT).usage(usage).commit().unwrap();
    thread.facts().title(SCRIPT).project(SCRIPT).label(SCRIPT).save().unwrap();
    thread.name_branch(SCRIPT).unwrap();
    let page = Page::new(store.clone(), options().name(SCRIPT).allow_write(true)).unwrap();

    let listed = html(&page, "/");
    let link = listed.split("href=\"/t/").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let thread = format!("/t/{link}");
    let channel: String = SCRIPT.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let mut seen = Vec::new();
    for target in [
        "/".to_owned(),
        thread.clone(),
        format!("{thread}/talk"),
        format!("{thread}/state"),
        format!("{thread}/state/{channel}"),
        format!("{thread}/state/messages/0"),
        format!("{thread}/step"),
        format!("{thread}/fork?name={channel}&channel={channel}&value={channel}"),
        format!("/diff/{link}"),
        format!("/search?q={channel}"),
        format!("/search?q=document&role={channel}"),
        "/runs".to_owned(),
        "/stats".to_owned(),
        "/health".to_owned(),
        format!("/diff?a={channel}&b="),
    ] {
        let shown = html(&page, &target);
        for markup in ["<script>d", "<img", "<svg/", "onerror=\"", "<script>t", "href=\"javascript", "\u{202e}"] {
            assert!(!shown.contains(markup), "{target} holds {markup}");
        }
        assert!(!shown.contains(" style=") && !shown.contains(" onclick="), "{target}");
        seen.push(shown.contains("&lt;script&gt;"));
    }
    assert!(seen.iter().filter(|seen| **seen).count() > 12, "the texts are shown: {seen:?}");
    let talk = html(&page, &format!("{thread}/talk"));
    assert!(talk.contains("\\u{202e}txet desrever") && talk.contains("dir=\"auto\""), "the line is not turned around");
    let refused = get(&page, "/t/%3Cscript%3E").text();
    assert!(refused.contains("&lt;script&gt;") && !refused.contains("<script>"), "{refused}");
}

#[test]
fn hostile_interrupts_are_text_in_their_forms() {
    let store = Store::memory();
    let property = json!({ "type": "string", "title": SCRIPT, "description": SCRIPT, "default": SCRIPT });
    let schema = json!({ "type": "object", "properties": { SCRIPT: property, "of": { "enum": [SCRIPT] } } });
    let action = json!({ "name": SCRIPT, "args": { SCRIPT: SCRIPT }, "description": SCRIPT });
    let actions = json!({ "action_requests": [action], "allowed_decisions": [SCRIPT, "edit"] });
    let choice = json!({ "question": SCRIPT, "options": [SCRIPT, { "label": SCRIPT, "value": { SCRIPT: 1 } }] });
    let interrupts = vec![(json!(SCRIPT), None), (json!(SCRIPT), Some(schema)), (choice, None), (actions, None)];
    drop(super::forms::asking(&store, "x\"><script>t</script>", interrupts));
    let page = Page::new(store, options().name(SCRIPT).allow_write(true)).unwrap();
    for target in ["/runs", "/runs?status=interrupted"] {
        let shown = html(&page, target);
        for markup in ["<script>d", "<script>t", "<img", "<svg/", "onerror=\""] {
            assert!(!shown.contains(markup), "{target} holds {markup}: {shown}");
        }
        assert!(shown.matches("&lt;script&gt;document").count() > 20, "the texts are shown: {shown}");
        assert_eq!(shown.matches("<form method=\"post\"").count(), 8, "four of JSON, three of inputs, one of controls");
    }
}

#[test]
fn a_large_value_is_shortened_and_whole_on_demand() {
    let store = Store::memory();
    let thread = store.thread("large").unwrap();
    let large = "0123456789".repeat(1 << 17);
    thread
        .write()
        .append("messages", [Message::human(large.as_str()).with_id("m")])
        .set("blob", large.as_str())
        .commit()
        .unwrap();
    thread.set("deep", Value::from(json!({ "list": (0..5_000).collect::<Vec<_>>() }))).unwrap();
    let page = page_of(&store);
    for target in [
        "/",
        "/t/large",
        "/t/large/talk",
        "/t/large/state",
        "/t/large/state/blob",
        "/t/large/state/deep",
        "/diff/large~1",
        "/t/large/step",
        "/t/large/state/messages/0",
    ] {
        let shown = html(&page, target);
        assert!(shown.len() < 200_000, "{target}: {} bytes", shown.len());
    }
    assert!(html(&page, "/t/large/state/blob").contains("1.2 MiB"));
    assert_eq!(html(&page, "/t/large/state/blob?raw=1"), large);
    assert_eq!(html(&page, "/t/large/state/messages/0/content?raw=1"), large);
    assert_eq!(html(&page, "/t/large/state/deep/list/4999?raw=1"), "4999\n");
}
