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
    let of_messages = get(&page, "/?q=role:ai+bern");
    assert_eq!((of_messages.status, of_messages.value_of("location")), (303, Some("/search?q=role:ai%20bern")));
    let both = get(&page, "/search?q=role:ai+project:travel+bern");
    assert!(both.status == 400 && both.text().contains("project is a filter of threads"), "{}", both.text());
    assert_eq!(document(&page, "/.json")["more"], true);
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

#[test]
fn a_state_has_a_tree_a_history_and_raw_texts() {
    let store = Store::memory();
    trip(&store);
    let page = page_of(&store);
    let shown = html(&page, "/t/trip/state/plan/stops/0");
    assert!(
        shown.contains("a/b") && shown.contains("History of this value") && shown.contains("written by"),
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
    assert!(shown.contains("<mark>Gasthof</mark>") && shown.contains("/talk#m3\""), "{shown}");
    let hits = document(&page, "/search.json?q=gasthof&role=ai");
    assert_eq!(hits["hits"].as_array().unwrap().len(), 2);
    assert_eq!(document(&page, "/search.json?q=role:ai+gasthof")["hits"], hits["hits"], "a filter is a word too");
    assert_eq!(document(&page, "/search.json?q=role:ai+is:present+gasthof")["hits"].as_array().unwrap().len(), 1);
    assert_eq!(document(&page, "/search.json?q=since:2999-01-31+role:ai+gasthof")["hits"], json!([]));
    for facet in ["<h2>Role</h2>", "href=\"/search?q=role:ai%20gasthof\"", "href=\"/search?q=is:present%20gasthof\""] {
        assert!(shown.contains(facet), "{facet}: {shown}");
    }
    assert!(shown.contains(">Bern in May</a></h3>") || shown.contains(">Bern in May</a>"), "the title leads: {shown}");
    assert!(html(&page, "/search?q=nowhere").contains("No text holds these words."));
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
    for text in ["left, right", "left saw", "right saw", "<ol class=\"tasks\">", "Due after it", "interrupted"] {
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
fn a_fork_shows_what_a_replay_would_do() {
    let store = Store::memory();
    waiting(&store, "booking");
    let page = page_of(&store);
    let shown = html(&page, "/t/booking~1/fork?name=again");
    for text in [
        "run when a program goes on with the new thread: left, right",
        "What followed here",
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
