//! Each screen as HTML and as JSON.

use std::time::Duration;

use annals_graph::graph::{Entrypoint, NodeResult, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use annals_runs::ThreadStatus;

use super::*;

/// A thread whose graph waits at an interrupt after two parallel tasks.
pub(crate) fn waiting(store: &Store, name: &str) -> CompiledGraph<annals::state::DynState> {
    let schema = DynSchema::new().last("n").append("seen").build();
    let graph = StateGraph::with_schema(schema)
        .node("left", |_: &annals::state::DynState| Ok(DynUpdate::new().set("seen", "left saw")))
        .node("right", |_: &annals::state::DynState| Ok(DynUpdate::new().set("seen", "right saw")))
        .node("ask", |_: &annals::state::DynState, context: &Context| {
            let resumed = context.interrupt("Book the Gasthof?")?;
            Ok(DynUpdate::new().set("n", resumed))
        })
        .edge(START, "left")
        .edge(START, "right")
        .join(["left", "right"], "ask")
        .compile()
        .unwrap();
    let thread = store.thread(name).unwrap();
    let outcome = graph.invoke(&thread, DynUpdate::new().set("n", 1)).unwrap();
    assert!(!outcome.is_done());
    graph
}

/// A thread whose run called three tasks at the same time, one of which failed once.
pub(crate) fn calls(store: &Store, name: &str) {
    let tries = std::sync::atomic::AtomicU32::new(0);
    let fetch = Task::new("fetch", move |ms: i64| -> NodeResult<i64> {
        std::thread::sleep(Duration::from_millis(ms.unsigned_abs()));
        match tries.fetch_add(u32::from(ms == 40), std::sync::atomic::Ordering::Relaxed) {
            0 if ms == 40 => Err("the server is busy".into()),
            _ => Ok(ms),
        }
    });
    let policy = RetryPolicy::new().max_attempts(2).initial_interval(Duration::from_millis(20)).jitter(false);
    let fetch = fetch.retry(policy.on_if(|_| true));
    let fan = Entrypoint::new("fan", move |_: i64, context: &Context| -> NodeResult<i64> {
        let started: Vec<_> = [90, 40, 60].into_iter().map(|ms| fetch.start(context, ms)).collect();
        let mut sum = 0;
        for one in started {
            sum += one.wait()?;
        }
        Ok(sum)
    });
    fan.compile().unwrap().invoke(&store.thread(name).unwrap(), 1).unwrap();
}

#[test]
fn a_waterfall_shows_the_times_that_are_stored() {
    let store = Store::memory();
    calls(&store, "fan");
    _ = waiting(&store, "booking");
    let page = page_of(&store);
    let lanes = document(&page, "/t/fan/step.json")["lanes"].as_array().unwrap().clone();
    let spans = |lane: &Json| lane["spans"].as_array().unwrap().clone();
    assert_eq!(
        lanes.iter().map(|lane| lane["node"].as_str().unwrap()).collect::<Vec<_>>(),
        ["fan", "fetch", "fetch", "fetch"]
    );
    for lane in &lanes[1..] {
        assert!(!spans(lane).is_empty() && lane["call"] == true, "{lane}");
        assert!(spans(lane).iter().all(|span| span["from"].as_str() <= span["to"].as_str()), "{lane}");
    }
    let failed: Vec<_> = lanes.iter().flat_map(spans).filter(|span| span["failed"] == true).collect();
    assert_eq!(failed.len(), 1, "{lanes:?}");
    let shown = html(&page, "/t/fan/step");
    assert!(!shown.contains("/state/graph"), "metadata has no address of its own: {shown}");
    assert!(shown.contains("class=\"waterfall\"") && shown.contains("1 attempt failed"), "{shown}");
    assert_eq!(shown.matches("class=\"spans\"").count(), lanes.len() - usize::from(spans(&lanes[0]).is_empty()));
    // Two nodes of one superstep without their ends: nothing is drawn.
    let parallel = document(&page, "/t/booking/step.json")["lanes"].clone();
    assert_eq!(parallel.as_array().unwrap().len(), 2);
    assert!(parallel.as_array().unwrap().iter().all(|lane| spans(lane).is_empty()), "{parallel}");
    assert!(!html(&page, "/t/booking/step").contains("class=\"spans\""));
    let graph = StateGraph::with_schema(DynSchema::new().append("seen").build())
        .node("left", |_: &annals::state::DynState| Ok(DynUpdate::new().set("seen", "left saw")))
        .node("right", |_: &annals::state::DynState| Ok(DynUpdate::new()))
        .edge(START, "left")
        .edge(START, "right")
        .compile()
        .unwrap();
    let recorded = store.thread("recorded").unwrap();
    graph.run(&recorded).record_ends(true).invoke(DynUpdate::new().set("seen", "begin")).unwrap();
    let parallel = document(&page, "/t/recorded/step.json")["lanes"].clone();
    assert!(parallel.as_array().unwrap().iter().all(|lane| spans(lane).len() == 1), "{parallel}");
    assert_eq!(html(&page, "/t/recorded/step").matches("class=\"spans\"").count(), 2);
}

/// A signal is neither a checkpoint nor a branch of the thread that gets it.
#[test]
fn the_mailbox_does_not_count() {
    let store = Store::memory();
    let order = store.thread("order").unwrap();
    order.set("paid", false).unwrap();
    let before = document(&page_of(&store), "/.json")["threads"][0].clone();
    order.signal("review", true).unwrap();
    order.signal("review", false).unwrap();
    let after = document(&page_of(&store), "/.json")["threads"][0].clone();
    for member in ["checkpoints", "branches"] {
        assert_eq!(before[member], after[member], "{member}: {after}");
        assert_eq!(after[member], 1);
    }
}

#[test]
fn threads_are_listed_with_facets_and_pages() {
    let store = Store::memory();
    trip(&store);
    for n in 0..60 {
        let said = Message::human(format!("Where is\n hotel {n:02}?"));
        store.thread(format!("other {n:02}")).unwrap().append("messages", [said]).unwrap();
    }
    let page = page_of(&store);
    let first = html(&page, "/");
    assert!(first.contains("title=\"other 59\"") && !first.contains("title=\"other 05\""), "{first}");
    assert!(first.contains(">Where is hotel 59?</a>"), "the first words stand for a title: {first}");
    assert!(first.contains("Numbers of this page.") && first.contains("Today<span class=\"dim\">50</span>"), "{first}");
    assert_eq!(document(&page, "/.json")["threads"][0]["first_words"], "Where is hotel 59?");
    let next = first.split("href=\"/?after=").nth(1).unwrap().split('"').next().unwrap();
    let second = html(&page, &format!("/?after={next}"));
    assert!(second.contains("Bern in May") && second.contains("\"other 05\"") && !second.contains("\"other 59\""));
    assert!(second.contains("<span class=\"label\">spring</span>") && second.contains("$0.0040"));
    assert!(second.contains("href=\"/?q=project:travel\""), "a facet is a filter: {second}");
    for query in [
        "project=travel",
        "label=spring",
        "title=bern",
        "status=done&title=bern",
        "q=project:travel",
        "q=bern+status:done+since:1d",
        "q=label:%22spring%22",
    ] {
        let found = document(&page, &format!("/.json?{query}"));
        assert_eq!(found["threads"].as_array().unwrap().len(), 1, "{query}");
        assert_eq!(found["threads"][0]["thread"], "trip");
    }
    assert_eq!(document(&page, "/.json?project=none")["threads"], json!([]));
    let (past, future) = ("since=2020-01-31&title=bern", "since=2999-01-31T00:00:00Z&title=bern");
    assert_eq!(document(&page, &format!("/.json?{past}"))["threads"].as_array().unwrap().len(), 1);
    assert_eq!(document(&page, &format!("/.json?{future}"))["threads"], json!([]));
    assert!(html(&page, &format!("/?{past}")).contains("value=\"since:2020-01-31 bern\""), "the search field holds it");
    let none = html(&page, &format!("/?{future}"));
    assert!(none.contains("No thread passes the filter.") && none.contains("href=\"/\">remove it</a>"), "{none}");
    for (wrong, name) in
        [("since=soon", "soon"), ("q=since:soon", "soon"), ("q=status:lost", "lost"), ("q=is:odd", "odd")]
    {
        let refused = get(&page, &format!("/?{wrong}"));
        assert!(refused.status == 400 && refused.text().contains(name), "{wrong}");
    }
    let searched = get(&page, "/search?q=project:travel+bern");
    assert_eq!((searched.status, searched.value_of("location")), (303, Some("/?q=project:travel%20bern")));
    assert_eq!(get(&page, "/search?q=%22project:travel%22").status, 200, "a word in quotes is no filter");
    assert_eq!(document(&page, "/.json")["more"], true);
}

#[test]
fn a_thread_has_a_tree_a_timeline_and_permalinks() {
    let store = Store::memory();
    let trip = trip(&store);
    let page = page_of(&store);
    let shown = html(&page, "/t/trip");
    for text in
        ["Bern in May", "by train", "by bus", "fork point", "+1 message", "aria-label=\"State\"", "no task is due"]
    {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let log = document(&page, "/t/trip.json");
    let checkpoints = log["checkpoints"].as_array().unwrap();
    assert_eq!((log["more"].as_bool(), checkpoints[0]["status"].as_str()), (Some(false), Some("done")));
    assert_eq!(log["head"], trip.head().unwrap().unwrap().id().to_string());
    for checkpoint in checkpoints {
        let id = checkpoint["checkpoint"].as_str().unwrap();
        assert!(shown.contains(&format!("href=\"/t/trip@{id}\"")), "{id}");
        assert!(html(&page, &format!("/t/trip@{id}")).contains(id));
    }
    assert!(html(&page, "/t/trip@by%20bus").contains("Bern in May"), "a branch is a point");
}

/// Every row draws its own piece: the lane of another branch begins at its head and ends at the step that it left.
#[test]
fn branches_are_lanes_beside_the_steps() {
    let store = Store::memory();
    trip(&store);
    let page = page_of(&store);
    let shown = html(&page, "/t/trip");
    let list = shown.split("<ol class=\"steps w2\">").nth(1).expect("two lanes").split("</ol>").next().unwrap();
    let rows: Vec<&str> = list.split("<li ").skip(2).collect();
    let other: Vec<usize> = (0..rows.len()).filter(|at| rows[*at].contains("class=\"step off\"")).collect();
    assert_eq!(rows.iter().filter(|row| row.contains("data-row")).count(), 6, "five steps and a head: {list}");
    assert!(rows[other[0]].contains("<span class=\"label\">by bus</span>") && rows[other[0]].contains("data-branch"));
    assert!(rows[other[1]].contains(">1 step</a>") && rows[other[1]].contains(">compare</a>"), "{}", rows[other[1]]);
    let joined: Vec<usize> =
        (0..rows.len()).filter(|at| rows[*at].contains("<path d=\"M30 0V8Q30 16 22 16H12\">")).collect();
    assert_eq!(joined.len(), 1, "{list}");
    assert!(joined[0] > other[1] && rows[joined[0]].contains(">3</a>"), "it left step 3: {}", rows[joined[0]]);
    let lane = |row: &str| row.contains("x1=\"30\"") || row.contains("cx=\"30\"") || row.contains("x=\"26\"");
    for (at, row) in rows.iter().enumerate() {
        assert_eq!(lane(row), (other[0]..joined[0]).contains(&at), "row {at}: {row}");
    }
    assert!(rows[0].contains("<span class=\"label ref\">by train</span>") && rows[0].contains("aria-current=\"true\""));
    let bus = html(&page, "/t/trip@by%20bus");
    assert!(bus.contains("<span class=\"label\">by train</span>") && bus.contains("its head"), "{bus}");
}

/// The runs of graphs stand below the inbox with their durations, and have their own addresses.
#[test]
fn runs_that_ended_are_a_record() {
    let store = Store::memory();
    trip(&store);
    let graph = StateGraph::with_schema(DynSchema::new().last("n").build())
        .name("order")
        .node("ship", |_: &annals::state::DynState| Ok(()))
        .edge(START, "ship")
        .compile()
        .unwrap();
    graph.invoke(&store.thread("order-1").unwrap(), DynUpdate::new().set("n", 1)).unwrap();
    graph.invoke(&store.thread("order-2").unwrap(), DynUpdate::new().set("n", 1)).unwrap();
    let page = page_of(&store);
    for target in ["/runs", "/runs?status=done"] {
        let shown = html(&page, target);
        assert!(shown.contains("<h2>Finished</h2>") && shown.contains(">order-1</a>"), "{target}: {shown}");
        assert_eq!(shown.matches("<svg class=\"bar\"").count(), 2, "{target}: a chat is no run of a graph: {shown}");
    }
    let finished = document(&page, "/runs.json")["finished"].clone();
    assert_eq!(
        (&finished[0]["thread"], &finished[0]["status"], &finished[0]["graph"]),
        (&json!("order-2"), &json!("done"), &json!("order"))
    );
    assert!(
        finished[0]["started"].as_str() <= finished[0]["ended"].as_str() && finished[0]["duration_us"].is_i64(),
        "{finished}"
    );
    assert!(html(&page, "/runs").contains("No run waits for a person"));
    assert!(html(&page, "/runs?status=cancelled").contains("No such run"));
    let refused = get(&page, "/runs?status=lost");
    assert!(refused.status == 400 && refused.text().contains("lost"));
}

/// The tasks of a bundle stand below their step: those that failed, the slowest ones, and the number of the others.
#[test]
fn a_bundle_of_tasks_opens_below_its_step() {
    let store = Store::memory();
    let schema = DynSchema::new().append("seen").build();
    let mut graph = StateGraph::with_schema(schema);
    for n in 0..6 {
        let name = format!("fetch{n}");
        graph = graph
            .node(name.as_str(), |_: &annals::state::DynState| Ok(DynUpdate::new().set("seen", "x")))
            .edge(START, name.as_str());
    }
    let thread = store.thread("wide").unwrap();
    graph.compile().unwrap().run(&thread).record_ends(true).invoke(DynUpdate::new().set("seen", "begin")).unwrap();
    let shown = html(&page_of(&store), "/t/wide");
    assert_eq!(shown.matches("class=\"step task\"").count(), 4, "{shown}");
    assert!(shown.contains(">3 more</a></b>") && shown.contains("each at most "), "{shown}");
}

#[test]
fn what_a_thread_waits_for_stands_above_its_steps() {
    let store = Store::memory();
    let yes = json!({ "type": "boolean" });
    drop(super::forms::asking(&store, "order", vec![(json!("Book <it>?"), Some(yes))]));
    let shown = html(&page_of(&store), "/t/order");
    let strip = shown
        .split("class=\"call\"")
        .nth(1)
        .expect("the question stands above the steps")
        .split("</div>")
        .next()
        .unwrap();
    assert!(strip.contains("Book &lt;it&gt;?</b>") && strip.contains("annals answer order JSON --id "), "{strip}");
    assert!(!strip.contains("<button"), "this server only reads: {strip}");
    assert!(
        shown.contains("<span class=\"waits\">asks: Book &lt;it&gt;?</span>")
            && shown.contains("class=\"ask\" d=\"M12 8")
    );
    let page = super::writes::writing(&store);
    let shown = html(&page, "/t/order");
    let form = shown.split("<form class=\"call\"").nth(1).expect("a form").split("</form>").next().unwrap();
    for (number, word) in [("0", "yes"), ("1", "no")] {
        assert!(form.contains(&format!("name=\"in.value\" value=\"{number}\" dir=\"auto\">{word}</button>")), "{form}");
    }
    let field =
        |name: &str| form.split(&format!("name=\"{name}\" value=\"")).nth(1).unwrap().split('"').next().unwrap();
    let action = form.split("action=\"").nth(1).unwrap().split('"').next().unwrap();
    let sent = format!("form={}&id={}&in.value=0", field("form"), field("id"));
    assert_eq!(page.handle(&super::writes::post(action, sent)).status, 303);
    assert!(store.thread("order").unwrap().open_interrupts().unwrap().is_empty());
    assert!(!html(&page, "/t/order").contains("class=\"call\""), "it is answered");
}

#[test]
fn a_thread_shows_its_sums_its_inputs_and_its_resume_values() {
    let store = Store::memory();
    let trip = trip(&store);
    let page = page_of(&store);
    let facts = |page: &Page, target: &str| {
        let shown = html(page, target);
        shown.split("<div class=\"head\">").nth(1).unwrap().split("</div>").next().unwrap().to_owned()
    };
    let shown = facts(&page, "/t/trip");
    for fact in ["5 messages", "876 tokens", "$0.0040", "7 checkpoints", "2 branches"] {
        assert!(shown.contains(&format!("<span>{fact}</span>")), "{fact}: {shown}");
    }
    assert!(shown.contains("aria-label=\"done\"") && !shown.contains("paused"), "{shown}");
    trip.pause().unwrap();
    assert!(facts(&page, "/t/trip").contains("<span class=\"label\">paused</span>"));
    let timeline = html(&page, "/t/trip");
    assert!(timeline.contains("+2 messages, plan · \u{201c}A hotel in Bern\u{201d}</span>"), "{timeline}");
    let head = trip.head().unwrap().unwrap();
    let short = head.short_id().unwrap();
    let (same, own) = short.split_at(short.len() - 3);
    let at =
        format!("<h2>Step {}</h2><span class=\"id\" title=\"{}\">@{same}<b>{own}</b></span>", head.step(), head.id());
    assert!(timeline.contains(&at), "{at}: {timeline}");
    assert!(
        timeline.contains("<b dir=\"auto\">city</b> <i dir=\"auto\">&quot;Basel&quot;</i>"),
        "a map is a tree: {timeline}"
    );

    let schema = DynSchema::new().messages("messages").build();
    let chat = StateGraph::with_schema(schema)
        .node("agent", |_: &annals::state::DynState| {
            Ok(DynUpdate::new().messages("messages", [Message::ai("The Gasthof")]))
        })
        .edge(START, "agent")
        .compile()
        .unwrap();
    let input = DynUpdate::new().messages("messages", [Message::human("<Where> do I sleep, and for how many nights?")]);
    chat.invoke(&store.thread("chat").unwrap(), input).unwrap();
    let shown = html(&page, "/t/chat");
    assert!(
        shown.contains("+1 message · \u{201c}&lt;Where&gt; do I sleep, and for how many nig…\u{201d}</span>"),
        "{shown}"
    );
    assert!(!shown.contains("\u{201c}The Gasthof"), "the text of a task is on its own screen: {shown}");

    let graph = waiting(&store, "inside");
    let (inside, outside) = (store.thread("inside").unwrap(), store.thread("outside").unwrap());
    graph.invoke(&inside, Command::resume("<yes>")).unwrap();
    graph.invoke(&outside, DynUpdate::new().set("n", 1)).unwrap();
    let open = outside.open_interrupts().unwrap();
    outside.resume_interrupt(&open[0].id, "no").unwrap();
    graph.invoke(&outside, Input::Continue).unwrap();
    let shown = html(&page, "/t/inside");
    assert!(shown.contains("n · asked: Book the Gasthof? -&gt; &lt;yes&gt;</span>"), "{shown}");
    assert_eq!(shown.matches("asked: ").count(), 1, "the other tasks were asked nothing: {shown}");
    assert!(html(&page, "/t/outside").contains("n · resumed: no</span>"));
}

#[test]
fn a_long_thread_has_pages_of_steps() {
    let store = Store::memory();
    let thread = store.thread("long").unwrap();
    for n in 0..70 {
        thread.set("n", n).unwrap();
    }
    let page = page_of(&store);
    let first = html(&page, "/t/long");
    assert_eq!(first.matches("data-diff=\"/diff/").count(), 30);
    let older = first.split("?from=").nth(1).unwrap().split('"').next().unwrap();
    let second = document(&page, &format!("/t/long.json?from={older}"));
    assert_eq!(
        second["checkpoints"][0]["step"],
        json!(document(&page, "/t/long.json")["checkpoints"][29]["step"].as_i64().unwrap() - 1)
    );
    assert!(first.contains("<span>70 checkpoints</span>"));
}

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

#[test]
fn a_state_has_a_tree_a_history_and_raw_texts() {
    let store = Store::memory();
    trip(&store);
    let page = page_of(&store);
    let shown = html(&page, "/t/trip/state/plan/stops/0");
    assert!(
        shown.contains("a/b") && shown.contains("history of this value") && shown.contains("written by"),
        "{shown}"
    );
    let city = html(&page, "/t/trip/state/plan/city");
    assert!(city.contains("Basel") && city.contains("<td dir=\"auto\">Bern</td>"), "the value before: {city}");
    assert!(city.contains("data-copy=\"plan/city\">copy the path</button>"), "{city}");
    assert!(city.contains("\" data-blame=\"\">step 1</a>"), "{city}");
    assert_eq!(html(&page, "/t/trip/state/plan/city?raw=1"), "Basel");
    let found = document(&page, "/t/trip/state/plan/stops/1/name.json");
    assert_eq!((found["value"].as_str(), found["channel"].as_str()), (Some("c"), Some("plan")));
    let message = html(&page, "/t/trip@by%20bus/state/messages/3");
    assert!(message.contains("The Gasthof zum Baeren") && message.contains("B\u{e4}ren"), "{message}");
    let whole = document(&page, "/t/trip/state.json");
    assert_eq!(whole["values"]["plan"]["city"], "Basel");
    let map = store.thread("map").unwrap();
    map.put("files", "a.json", "one").unwrap();
    map.put("files", "a.json", "two").unwrap();
    let entry = html(&page, "/t/map/state/files/a%2Ejson");
    assert!(entry.contains("two") && entry.contains("one"), "{entry}");
    assert!(html(&page, "/t/map/state/files").contains("/state/files/a%2Ejson"));
}

#[test]
fn two_points_are_compared_with_words_and_patches() {
    let store = Store::memory();
    trip(&store);
    let page = page_of(&store);
    let shown = html(&page, "/diff/trip@by%20bus..trip");
    for text in ["last common ancestor", "unchanged", "By train", "Thanks", "<span class=\"a\">", "annals diff"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let edit = html(&page, "/diff/trip@by%20bus~3..trip@by%20bus~2");
    assert!(
        edit.contains("<span class=\"a\">Baeren</span>") && edit.contains("<span class=\"b\">B\u{e4}ren</span>"),
        "{edit}"
    );
    let parent = document(&page, "/diff/trip@{step:1}.json");
    let plan = parent["channels"].as_array().unwrap().iter().find(|channel| channel["channel"] == "plan").unwrap();
    assert_eq!(plan["members"], json!([{ "path": "/city", "before": "Bern", "after": "Basel" }]));
    let patch = document(&page, "/diff/trip@{step:1}.json?patch=1");
    assert_eq!(patch["channels"]["plan"]["patch"], json!([{ "op": "replace", "path": "/city", "value": "Basel" }]));
    let chosen = get(&page, "/diff?a=trip~1&b=trip");
    assert!(chosen.status == 303 && chosen.value_of("location").unwrap().starts_with("/diff/trip@"));
}

#[test]
fn a_search_has_snippets_and_links() {
    let store = Store::memory();
    trip(&store);
    let page = page_of(&store);
    let shown = html(&page, "/search?q=gasthof");
    assert!(shown.contains("<mark>Gasthof</mark>") && shown.contains("/talk\""), "{shown}");
    let hits = document(&page, "/search.json?q=gasthof&role=ai");
    assert_eq!(hits["hits"].as_array().unwrap().len(), 2);
    assert!(html(&page, "/search?q=nowhere").contains("0 hits"));
    assert!(html(&page, "/search").contains("Name words"));
}

#[test]
fn runs_steps_and_figures_are_those_of_the_log() {
    let store = Store::memory();
    trip(&store);
    waiting(&store, "booking");
    let page = page_of(&store);
    let runs = html(&page, "/runs?status=interrupted");
    assert!(
        runs.contains("Book the Gasthof?") && runs.contains("aria-label=\"1 waiting\"") && !runs.contains("<textarea"),
        "{runs}"
    );
    let listed = document(&page, "/runs.json");
    assert_eq!((listed["runs"][0]["thread"].as_str(), listed["runs"].as_array().unwrap().len()), (Some("booking"), 1));
    assert_eq!(listed["runs"][0]["questions"][0]["value"], "Book the Gasthof?");
    let step = html(&page, "/t/booking/step");
    for text in ["left, right", "left saw", "right saw", "class=\"lane\"", "due after it", "interrupted"] {
        assert!(step.contains(text), "{text}: {step}");
    }
    let number = store.thread("booking").unwrap().head().unwrap().unwrap().step();
    let named = document(&page, &format!("/t/booking/step/{number}.json"));
    assert_eq!(named["tasks"].as_array().unwrap().len(), 2);
    assert_eq!(named["due"][0]["node"], "ask");
    let graph = html(&page, "/t/booking/graph");
    assert!(graph.contains("left → ask") && graph.contains("left, right</a>"), "{graph}");
    assert!(
        graph.contains("<svg class=\"flow\"")
            && graph.contains("class=\"way own\"")
            && graph.contains("<g class=\"now\"><title>ask"),
        "{graph}"
    );
    let seen = document(&page, "/t/booking/graph.json");
    assert!(
        seen["transitions"]
            .as_array()
            .unwrap()
            .contains(&json!({ "from": "right", "to": "ask", "times": 1, "in_run": true }))
    );
    let stats = document(&page, "/stats.json?by=model,node");
    let model = stats["by"]["model"].as_array().unwrap();
    assert_eq!((model[0]["name"].as_str(), model[0]["input_tokens"].as_u64()), (Some("m-1"), Some(812)));
    assert!(stats["by"]["node"].as_array().unwrap().iter().any(|node| node["p50_us"].is_number()));
    let plots = html(&page, "/stats");
    assert!(
        plots.contains("bytes written")
            && plots.contains("$0.0040")
            && plots.contains("class=\"hbar\"")
            && plots.contains("<dt>model calls</dt>")
    );
    assert!(html(&page, "/stats?thread=trip").contains("of the thread"));
    let health = html(&page, "/health?check=1");
    assert!(health.contains("0 problems") && health.contains("annals undo"), "{health}");
    assert_eq!(document(&page, "/health.json?check=1")["check"]["problems"], json!([]));
    let info = store.thread("booking").unwrap().info().unwrap();
    assert!(matches!(ThreadStatus::of(&info), ThreadStatus::Interrupted(_)));
}

#[test]
fn health_shows_versions_sizes_and_modes() {
    let memory = page_of(&Store::memory());
    let bare = document(&memory, "/health.json");
    assert_eq!((&bare["file"], bare["sqlite"].as_str()), (&Json::Null, Some(annals::rusqlite::version())));
    assert!(html(&memory, "/health").contains(annals::rusqlite::version()));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chats <b>.db");
    let store = Store::open(&path).unwrap();
    store.thread("trip").unwrap().set("n", 1).unwrap();
    let page = Page::new(store.clone(), options().file(&path)).unwrap();
    let file = document(&page, "/health.json")["file"].clone();
    let names: Vec<_> = file["files"].as_array().unwrap().iter().map(|of| of["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["chats <b>.db", "chats <b>.db-wal", "chats <b>.db-shm"]);
    assert_eq!(file["files"][0]["bytes"], std::fs::metadata(&path).unwrap().len());
    let shown = html(&page, "/health");
    assert!(shown.contains("chats &lt;b&gt;.db-wal</th>"), "{shown}");
    if cfg!(unix) {
        assert_eq!(file["files"][0]["mode"], "0600");
        assert!(shown.contains("rw------- (0600): its owner alone may read it"), "{shown}");
    }
    let absent = Page::new(store, options().file(folder.path().join("absent.db"))).unwrap();
    assert_eq!(document(&absent, "/health.json")["file"], Json::Null);
}

#[test]
fn a_picture_marks_the_path_of_one_run() {
    let store = Store::memory();
    let schema = || DynSchema::new().last("n").build();
    let graph = StateGraph::with_schema(schema())
        .node("even", |_: &annals::state::DynState| Ok(()))
        .node("odd", |_: &annals::state::DynState| Ok(()))
        .branch_to(
            START,
            |state: &annals::state::DynState| if state.value("n").as_int() == Some(1) { "odd" } else { "even" },
            ["odd", "even"],
        )
        .compile()
        .unwrap();
    let thread = store.thread("t").unwrap();
    for n in [1, 2, 2] {
        graph.invoke(&thread, DynUpdate::new().set("n", n)).unwrap();
    }
    let page = page_of(&store);
    let seen = document(&page, "/t/t/graph.json");
    let transition = |to: &str| {
        let all = seen["transitions"].as_array().unwrap();
        all.iter().find(|one| one["from"] == "__start__" && one["to"] == to).cloned().unwrap()
    };
    assert_eq!((&transition("even")["times"], &transition("even")["in_run"]), (&json!(2), &json!(true)));
    assert_eq!((&transition("odd")["times"], &transition("odd")["in_run"]), (&json!(1), &json!(false)));
    let shown = html(&page, "/t/t/graph");
    assert!(shown.contains("<title>(start)</title>") && shown.contains(">odd</text>"), "{shown}");
    assert_eq!(shown.matches("class=\"way own\"").count(), 2, "{shown}");
}

#[test]
fn a_picture_shows_the_edges_that_no_run_took() {
    let store = Store::memory();
    let graph = |version: &str, other: &str| {
        StateGraph::with_schema(DynSchema::new().last("n").build())
            .name("order")
            .version(version)
            .node("pay", |_: &annals::state::DynState| Ok(()))
            .node(other, |_: &annals::state::DynState| Ok(()))
            .branch_to(START, |_: &annals::state::DynState| "pay", ["pay", other])
            .compile()
            .unwrap()
    };
    for (version, other) in [("1", "refuse"), ("2", "ask")] {
        graph(version, other).invoke(&store.thread(version).unwrap(), DynUpdate::new().set("n", 1)).unwrap();
    }
    let page = page_of(&store);
    let drawing = |thread: &str| document(&page, &format!("/t/{thread}/graph.json"))["drawing"].clone();
    // The background writer stores them in their order.
    for _ in 0..60_000 {
        if !drawing("2").is_null() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(drawing("1")["nodes"], json!(["__start__", "pay", "refuse", "(end)"]));
    assert_eq!(drawing("2")["nodes"], json!(["__start__", "pay", "ask", "(end)"]), "each run has its own version");
    let shown = html(&page, "/t/1/graph");
    assert!(shown.contains(">refuse</text>") && !shown.contains(">ask</text>"), "{shown}");
    assert_eq!(shown.matches("class=\"off\"").count(), 1, "{shown}");
    assert_eq!(shown.matches("class=\"way never\"").count(), 2, "from the start to it and from it to the end: {shown}");
    assert_eq!(shown.matches("class=\"way own\"").count(), 2, "{shown}");
}

#[test]
fn subgraphs_are_listed_and_have_screens() {
    let store = Store::memory();
    let schema = || DynSchema::new().last("n").build();
    let inner = StateGraph::with_schema(schema())
        .node("asks", |_: &annals::state::DynState, context: &Context| {
            Ok(DynUpdate::new().set("n", context.interrupt("inner?")?))
        })
        .edge(START, "asks")
        .compile()
        .unwrap();
    let outer = StateGraph::with_schema(schema()).node("agent", inner).edge(START, "agent").compile().unwrap();
    let thread = store.thread("nested").unwrap();
    assert!(!outer.invoke(&thread, DynUpdate::new().set("n", 1)).unwrap().is_done());
    let page = page_of(&store);
    let shown = html(&page, "/t/nested");
    let below = shown.split("<h2>subgraphs</h2>").nth(1).expect("subgraphs are listed");
    let link = below.split("href=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(below.contains(">agent</a>"), "{below}");
    let inside = html(&page, link);
    assert!(inside.contains("asks: inner?"), "{inside}");
    assert!(inside.contains(">(root)</a>"), "the root is linked: {inside}");
    assert!(html(&page, &format!("{link}/step")).contains("asks"));
}

#[test]
fn a_fork_shows_what_a_replay_would_do() {
    let store = Store::memory();
    waiting(&store, "booking");
    let page = page_of(&store);
    let shown = html(&page, "/t/booking~1/fork?name=again");
    for text in [
        "run when a program goes on with the new thread: left, right",
        "Here these steps followed",
        "left, right</a>",
        "href=\"/diff/again..booking@",
        "annals run FILE.toml --thread again --store chats.db",
        "annals fork",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    trip(&store);
    assert!(html(&page, "/t/trip/fork").contains("No task is due"));
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
    assert!(written(&none).unwrap_err().to_string().contains("no channel holds messages"));
}

/// The contrast of two colours, as the guidelines for accessible content define it.
fn contrast(a: &str, b: &str) -> f64 {
    let light = |colour: &str| {
        let digits: Vec<u32> = colour[1..].chars().map(|c| c.to_digit(16).unwrap()).collect();
        let part = |at: usize| match digits.len() {
            3 => digits[at] * 17,
            _ => digits[2 * at] * 16 + digits[2 * at + 1],
        };
        let linear = |part: u32| {
            let part = f64::from(part) / 255.0;
            if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(part(0)) + 0.7152 * linear(part(1)) + 0.0722 * linear(part(2))
    };
    let (a, b) = (light(a), light(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn texts_have_contrast_and_the_assets_are_small() {
    assert!((contrast("#000", "#ffffff") - 21.0).abs() < 0.01);
    let page = page_of(&Store::memory());
    let (style, script) = (html(&page, "/page.css"), html(&page, "/page.js"));
    assert!(style.len() + script.len() < 200 << 10, "{} + {} bytes", style.len(), script.len());
    assert!(style.contains("prefers-reduced-motion") && style.contains(":focus-visible"));
    for (name, block) in ["light", "dark"].iter().zip(style.split(":root {").skip(1)) {
        let block = block.split('}').next().unwrap();
        let colour = |name: &str| {
            let value = block.split(&format!("--{name}:")).nth(1).unwrap_or_else(|| panic!("--{name}"));
            value.split(';').next().unwrap().trim().to_owned()
        };
        // Each area with the texts that stand on it, and the strokes that carry a meaning.
        for (area, texts, strokes) in [
            ("bg", "fg fg2 fg3 accent wait bad add", "accent edge wait-fill bad c2"),
            ("panel", "fg fg2 fg3 accent wait add", "edge accent"),
            ("hover", "fg fg2 fg3 accent wait bad", "edge accent wait-fill bad"),
            ("field", "fg fg2 fg3", "edge"),
            ("soft", "fg fg2 fg3 accent wait bad", "accent edge wait-fill bad"),
            ("wait-soft", "fg fg2 fg3 wait", "wait-fill"),
            ("bad-soft", "fg fg2 bad", "bad"),
            ("add-soft", "fg add", "add"),
            ("accent", "bg", ""),
        ] {
            for (names, least) in [(texts, 4.5), (strokes, 3.0)] {
                for text in names.split_whitespace() {
                    let found = contrast(&colour(text), &colour(area));
                    assert!(found >= least, "{name}: {text} on {area} has a contrast of {found:.2}");
                }
            }
        }
    }
    let beside: Vec<&str> = style.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    let colours: Vec<&&str> = beside.iter().filter(|line| line.contains(": #") || line.contains("rgb(")).collect();
    assert!(colours.is_empty(), "a colour beside the tokens: {colours:?}");
}

#[test]
fn the_json_of_every_screen_is_linked() {
    let store = Store::memory();
    trip(&store);
    let page = page_of(&store);
    for target in [
        "/",
        "/t/trip",
        "/t/trip/talk",
        "/t/trip/state",
        "/t/trip/state/plan",
        "/t/trip/step",
        "/t/trip/graph",
        "/t/trip/fork",
        "/diff/trip",
        "/search?q=bern",
        "/runs",
        "/stats?by=day",
        "/health",
    ] {
        let shown = html(&page, target);
        let twin = shown
            .split("<footer class=\"foot\"><a href=\"")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap()
            .replace("&amp;", "&");
        assert_eq!(document(&page, &twin)["schema"], 1, "{target}: {twin}");
        assert!(
            shown.starts_with("<!doctype html>") && shown.contains("<main id=\"main\"") && shown.contains("<h1"),
            "{target}"
        );
    }
    assert!(html(&page, "/page.css").contains(":root") && html(&page, "/page.js").contains("EventSource"));
}
