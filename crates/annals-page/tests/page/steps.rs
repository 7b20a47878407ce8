//! The screen of a thread, and that of a step: branches, bundles, interrupts, sums, waterfalls.

use annals_graph::prelude::*;
use annals_runs::{ThreadLink, ThreadLinkKind};

use super::screens::{calls, waiting};
use super::*;

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
    assert!(shown.contains("<ol class=\"tasks\">") && shown.contains("1 attempt failed"), "{shown}");
    assert_eq!(shown.matches("class=\"bar\"").count(), lanes.len() - usize::from(spans(&lanes[0]).is_empty()));
    // Two nodes of one superstep without their ends: nothing is drawn.
    let parallel = document(&page, "/t/booking/step.json")["lanes"].clone();
    assert_eq!(parallel.as_array().unwrap().len(), 2);
    assert!(parallel.as_array().unwrap().iter().all(|lane| spans(lane).is_empty()), "{parallel}");
    assert!(!html(&page, "/t/booking/step").contains("class=\"bar\""));
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
    assert_eq!(html(&page, "/t/recorded/step").matches("class=\"bar\"").count(), 2);
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
    assert!(shown.contains("<b>3 more</b>") && shown.contains("each at most "), "{shown}");
}

/// 200 parallel items are one row that opens, within the size of a page, on both screens.
#[test]
fn a_crowd_of_tasks_is_one_bundle() {
    let store = Store::memory();
    let items: Vec<Value> = (0..200).map(Value::from).collect();
    let graph = StateGraph::with_schema(DynSchema::new().append("seen").last("items").build())
        .node("fetch", |_: &annals::state::DynState| Ok(DynUpdate::new().set("seen", "x".repeat(400))))
        .branch_to(
            START,
            |state: &annals::state::DynState| {
                let items = state.value("items").as_list().map(<[Value]>::to_vec).unwrap_or_default();
                items
                    .into_iter()
                    .map(|item| SendTo::new("fetch", Value::from(json!({ "items": item.to_json() }))))
                    .collect::<Vec<_>>()
            },
            ["fetch"],
        )
        .compile()
        .unwrap();
    let thread = store.thread("crowd").unwrap();
    graph.run(&thread).record_ends(true).invoke(DynUpdate::new().set("items", Value::List(items))).unwrap();
    let page = page_of(&store);
    let shown = html(&page, "/t/crowd");
    assert!(shown.contains("<b><a") && shown.contains("fetch ×200") && shown.contains("<b>197 more</b>"), "{shown}");
    let folded = shown.split("<details class=\"more\">").nth(1).unwrap().split("</details>").next().unwrap();
    assert_eq!(folded.matches("<b>fetch</b>").count(), 197);
    let step = html(&page, "/t/crowd/step");
    assert_eq!(step.matches("<details><summary>").count(), 200, "no task is open: {step}");
    for (name, shown) in [("thread", &shown), ("step", &step)] {
        assert!(shown.len() < 200 << 10, "{name}: {} bytes", shown.len());
    }
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
        shown.contains("+1 message · \u{201c}&lt;Where&gt; do I sleep, and for how many nights?\u{201d}</span>"),
        "{shown}"
    );
    assert!(shown.contains("+1 message · \u{201c}The Gasthof\u{201d}"), "what an agent said leads: {shown}");

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
    let graph = StateGraph::with_schema(schema()).node("agent", inner).edge(START, "agent").compile().unwrap();
    let thread = store.thread("nested").unwrap();
    assert!(!graph.invoke(&thread, DynUpdate::new().set("n", 1)).unwrap().is_done());
    let page = page_of(&store);
    let shown = html(&page, "/t/nested");
    let below = shown.split("<h2>subgraphs</h2>").nth(1).expect("subgraphs are listed");
    let link = below.split("href=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(below.contains(">agent</a>"), "{below}");
    let inside = html(&page, link);
    assert!(inside.contains("asks: inner?"), "{inside}");
    assert!(inside.contains(">(root)</a>"), "the root is linked: {inside}");
    // The subgraph names the step that runs it.
    let outer = inside.split("subgraph of <a href=\"").nth(1).expect("the parent graph is linked");
    let outer = html(&page, outer.split('"').next().unwrap());
    assert!(outer.contains("<h1 dir=\"auto\">nested</h1>"), "{outer}");
    assert!(html(&page, &format!("{link}/step")).contains("asks"));
    // When the step has ended, its row has the subgraph.
    assert!(graph.invoke(&thread, Command::resume(2)).unwrap().is_done());
    let ended = html(&page, "/t/nested");
    let row = ended.split("data-row").find(|row| row.contains(">agent</a></b>")).expect("the step of the agent");
    assert!(row.contains("<span class=\"dim\">subgraph</span> <a href=\"/t/nested"), "{row}");
}

#[test]
fn helpers_stand_at_the_step_that_started_them() {
    let store = Store::memory();
    let research = store.thread("research").unwrap();
    research.append("messages", [Message::human("What does a room cost in Bern?")]).unwrap();
    let call = json!({ "type": "ai", "content": "", "id": "m2",
        "tool_calls": [{ "name": "Task", "args": { "prompt": "Look" }, "id": "call-1", "type": "tool_call" }] });
    research.append("messages", [Message::try_from(Value::from(call)).unwrap()]).unwrap();
    let calling = research.head().unwrap().unwrap().id();
    research.append("messages", [Message::ai("A room costs CHF 180.")]).unwrap();
    for (name, words) in [("prices", "Look for prices."), ("maps", "Look for maps.")] {
        store.thread(name).unwrap().append("messages", [Message::human(words)]).unwrap();
    }
    let link = |kind| ThreadLink::new("research", kind);
    let links = [
        ("prices".to_owned(), link(ThreadLinkKind::Sub).call("call-1")),
        ("maps".to_owned(), link(ThreadLinkKind::Fork)),
        ("erased".to_owned(), link(ThreadLinkKind::Sub)),
    ];
    store.link_threads(&links).unwrap();
    let page = page_of(&store);
    let log = document(&page, "/t/research.json");
    let started: Vec<&Json> =
        log["checkpoints"].as_array().unwrap().iter().filter(|row| row.get("started").is_some()).collect();
    assert_eq!(started.len(), 1, "{log}");
    assert_eq!(started[0]["checkpoint"], calling.to_string());
    assert_eq!(started[0]["started"], json!([{ "thread": "prices", "kind": "sub", "call": "call-1" }]));
    let shown = html(&page, "/t/research");
    assert!(shown.contains("<span class=\"dim\">helper</span> <a href=\"/t/prices\">Look for prices.</a>"), "{shown}");
    let lists: Vec<&str> = shown.split("<h2>").skip(1).collect();
    let list = |title: &str| *lists.iter().find(|list| list.starts_with(title)).expect(title);
    assert!(list("helpers").contains("/t/prices") && !list("helpers").contains("erased"), "{shown}");
    assert!(list("forks").contains("<a href=\"/t/maps\">Look for maps.</a>"), "{shown}");
    assert!(html(&page, "/t/research/talk").contains("<a class=\"label\" href=\"/t/prices\">helper</a>"));
    // They name their parent.
    for (name, words) in [("prices", "helper of"), ("maps", "forked from")] {
        let below = html(&page, &format!("/t/{name}"));
        assert!(
            below.contains(&format!("{words} <a href=\"/t/research\">What does a room cost in Bern?</a>")),
            "{below}"
        );
        assert_eq!(document(&page, &format!("/t/{name}.json"))["parent_thread"]["thread"], "research");
    }
    assert_eq!(document(&page, "/t/research.json")["parent_thread"], Json::Null);
}
