//! Questions of an investigator: half answers, messages that were carried on, values in SQL, and names of threads and
//! channels that are not quite right.

use std::time::Duration;

use annals::history::{ModelUsage, Thread};
use annals::store::Store;
use annals_graph::graph::Entrypoint;

use super::*;

fn open(bench: &Bench) -> Store {
    Store::open(bench.path("store.db")).unwrap()
}

/// Streams the beginning of an answer, whose writer is dropped then.
fn half_answer(thread: &Thread) {
    thread.append("messages", [Message::human("A hotel in Bern?")]).unwrap();
    let mut answer = thread.message_writer("messages", Duration::from_secs(3_600));
    answer.push("The Gasthof zum Bären has");
    drop(answer);
}

#[test]
fn half_an_answer_is_shown_everywhere_until_it_is_kept() {
    let bench = Bench::new();
    half_answer(&open(&bench).thread("trip").unwrap());
    let mark = "half an answer, 5 words";
    for command in [&["threads"][..], &["log", "trip"], &["show", "trip"]] {
        let text = bench.text(command);
        assert!(text.contains(mark), "{command:?}: {text}");
    }
    assert!(bench.text(&["show", "trip"]).contains("half    messages (now): ai     The Gasthof zum Bären has"));
    let thread = bench.json(&["threads"])["threads"][0].clone();
    assert_eq!((&thread["status"], &thread["partial"]["words"]), (&json!("done"), &json!(5)));
    assert_eq!(bench.json(&["log", "trip"])["checkpoints"][0]["partial"]["channel"], "messages");
    let shown = bench.json(&["show", "trip"])["partials"][0].clone();
    assert_eq!(shown["message"]["content"], "The Gasthof zum Bären has");
    let found = bench.text(&["search", "Gasthof"]);
    assert!(found.contains("(half an answer)"), "{found}");
    assert_eq!(bench.json(&["search", "gasthof"])["hits"][0]["partial"], true);

    bench.text(&["update", "trip", "--set", "city=Bern"]);
    assert!(bench.text(&["threads"]).contains(mark), "another write takes it along");
    bench.text(&["update", "trip", "--say", "go on"]);
    let messages = bench.json(&["show", "trip", "--messages", "9"])["messages"].clone();
    let texts: Vec<&str> = messages.as_array().unwrap().iter().map(|one| one["content"].as_str().unwrap()).collect();
    assert_eq!(texts, ["A hotel in Bern?", "The Gasthof zum Bären has", "go on"]);
    assert_eq!(messages[1]["response_metadata"]["aborted"], true);
    assert!(!bench.text(&["threads"]).contains("half"), "it is a message");
}

#[test]
fn a_carried_message_is_one_hit_with_a_mark() {
    let bench = Bench::new();
    let store = open(&bench);
    let thread = store.thread("trip").unwrap();
    let said = |n: usize| Message::human(format!("question {n}")).with_id(format!("m{n}"));
    thread.append("messages", (0..4).map(said)).unwrap();
    let first = thread.head().unwrap().unwrap();
    thread.append("messages", [Message::remove_all(), Message::system("a summary"), said(3)]).unwrap();
    let carried = thread.head().unwrap().unwrap();
    drop(store);
    let hits = bench.json(&["search", "question", "3"])["hits"].clone();
    assert_eq!(hits.as_array().unwrap().len(), 1, "{hits}");
    assert_eq!(hits[0]["checkpoint"], first.id().to_string());
    assert_eq!((&hits[0]["carried"], &hits[0]["on_head"]), (&json!(carried.id().to_string()), &json!(true)));
    let text = bench.text(&["search", "question", "3"]);
    assert!(text.contains("(carried to ") && text.lines().count() == 1, "{text}");
}

/// Runs an entrypoint that returns an object.
fn order(bench: &Bench) {
    let store = open(bench);
    let body = |n: i64, _: &Context| Ok(annals::base::Value::from(json!({ "total": n, "items": ["a", "b"] })));
    let flow = Entrypoint::new("order", body).compile().unwrap();
    flow.invoke(&store.thread("order-1").unwrap(), 7_i64).unwrap();
    let thread = store.thread("trip").unwrap().by("desk");
    thread.set("plan", annals::base::Value::from(json!({ "city": "Bern", "days": [1, 2] }))).unwrap();
    thread.append("visited", ["Bern", "Basel"]).unwrap();
    thread.write().append("messages", [Message::ai("hi")]).usage(ModelUsage::new(1, 2)).commit().unwrap();
}

#[test]
fn sql_shows_every_value_as_json() {
    let bench = Bench::new();
    order(&bench);
    let rows = |query: &str| bench.json(&["sql", query])["rows"].clone();
    let state = rows("select thread, channel, json from v_state where channel not in ('messages') order by 1, 2");
    let value = |at: usize| serde_json::from_str::<Json>(state[at][2].as_str().unwrap()).unwrap();
    let names: Vec<Json> = (0..3).map(|at| json!([state[at][0], state[at][1]])).collect();
    assert_eq!(names, [json!(["order-1", "__end__"]), json!(["trip", "plan"]), json!(["trip", "visited"])], "{state}");
    assert_eq!(state.as_array().unwrap().len(), 3, "internal channels are left out: {state}");
    assert_eq!(value(0), json!({ "total": 7, "items": ["a", "b"] }));
    assert_eq!(value(1), json!({ "city": "Bern", "days": [1, 2] }));
    assert_eq!(value(2), json!(["Bern", "Basel"]));
    let all = rows("select count(distinct channel) from v_channel_versions where thread = 'order-1'");
    assert!(all[0][0].as_i64().unwrap() > 1, "all channels have versions: {all}");
    let said = rows("select json ->> '$[0].content' from v_state where channel = 'messages'");
    assert_eq!(said, json!([["hi"]]));
    let result = rows("select result ->> '$.total' from v_steps where node = 'order'");
    assert_eq!(result, json!([[7]]));
    let versions = rows("select json ->> '$.city' from v_channel_versions where channel = 'plan'");
    assert_eq!(versions, json!([["Bern"]]));
    let actors = rows("select distinct actor from v_operations where thread = 'trip'");
    assert_eq!(actors, json!([["desk"]]));
    let plan = "select annals_value(thread, namespace, checkpoint, 'plan') ->> '$.days[1]' from v_checkpoints \
                where thread = 'trip' and is_head";
    assert_eq!(rows(plan), json!([[2]]));
    assert_eq!(
        rows("select annals_json(x'93010203'), annals_json('text'), annals_json(x'c1')"),
        json!([["[1,2,3]", null, null]])
    );
}

#[test]
fn sql_lists_its_views_and_names_its_columns_once() {
    let bench = Bench::new();
    order(&bench);
    let views = bench.json(&["sql", "--views"]);
    let columns = |name: &str| {
        let all = views["views"].as_array().unwrap();
        all.iter().find(|view| view["view"] == name).unwrap()["columns"].clone()
    };
    assert!(columns("v_messages").as_array().unwrap().contains(&json!("kind")), "{views}");
    assert!(columns("v_state").as_array().unwrap().contains(&json!("json")));
    assert!(bench.text(&["sql", "--views"]).contains("v_usage"));
    let wrong = bench.annals(&["sql", "select role from v_messages"]);
    assert!(code(&wrong) == 2 && stderr(&wrong).contains("annals sql --views"), "{wrong:?}");
    assert_eq!(code(&bench.annals(&["sql"])), 2, "a query or --views");
    let many =
        "with recursive n(x) as (select 1 union all select x + 1 from n where x < 500) select x as number from n";
    let text = bench.text(&["sql", many]);
    assert_eq!((text.matches("number").count(), text.lines().count()), (1, 501));
}

#[test]
fn a_result_is_a_path_and_a_wrong_channel_is_answered_with_the_right_one() {
    let bench = Bench::new();
    order(&bench);
    assert_eq!(bench.json(&["show", "order-1", "result"])["value"], json!({ "total": 7, "items": ["a", "b"] }));
    assert_eq!(bench.text(&["show", "order-1", "result.items[1]"]), "b\n");
    let near = bench.annals(&["show", "trip", "plann"]);
    assert!(code(&near) == 3 && stderr(&near).contains("did you mean plan?"), "{near:?}");
    let far = stderr(&bench.annals(&["show", "order-1", "nothing"]));
    assert!(far.contains("channels with a value: result"), "{far}");
}

#[test]
fn the_beginning_of_a_thread_id_is_its_thread() {
    let bench = Bench::new();
    let store = open(&bench);
    let long = "codex:019c8bfe-ec25-79e0-97d7-bda6a9c0ffee0123";
    for id in [long, "codex:019d0001-0000-79e0-97d7-bda6a9c0ffee"] {
        store.thread(id).unwrap().set("n", 1).unwrap();
    }
    drop(store);
    assert!(bench.text(&["threads"]).contains(long), "an id is whole in a pipe");
    for command in
        [&["log", "codex:019c"][..], &["show", "codex:019c@"], &["show", "codex:019c~0"], &["steps", "codex:019c"]]
    {
        assert!(code(&bench.annals(command)) <= 1, "{command:?}: {:?}", bench.annals(command));
    }
    assert_eq!(bench.json(&["show", "codex:019c8bfe"])["thread"], long);
    assert_eq!(bench.json(&["diff", "codex:019c", "codex:019d"])["schema"], 1);
    let several = bench.annals(&["log", "codex:019"]);
    assert!(code(&several) == 2 && stderr(&several).contains("several thread ids"), "{several:?}");
    assert_eq!(code(&bench.annals(&["log", "cod"])), 3, "four characters at least");
    let erase = bench.annals(&["erase", "codex:019c", "--yes"]);
    assert!(code(&erase) == 2 && stderr(&erase).contains(long), "a command that deletes takes whole ids: {erase:?}");
}

#[test]
fn a_point_where_a_thread_is_wanted_is_named_as_such() {
    let bench = Bench::new();
    order(&bench);
    for (text, wanted) in [
        ("trip~1", "names a checkpoint, and this command takes a thread"),
        ("trip~99", "~99"),
        ("trip@{foo}", "a duration"),
        ("tripp", "did you mean trip?"),
    ] {
        let failed = bench.annals(&["log", text]);
        assert!(code(&failed) != 0 && stderr(&failed).contains(wanted), "{text}: {failed:?}");
        assert!(!stderr(&failed).contains(&format!("thread {text} is not")) || text == "tripp", "{failed:?}");
    }
}

#[test]
fn set_writes_the_member_that_a_path_names() {
    let bench = Bench::new();
    order(&bench);
    let plan = || bench.json(&["show", "trip"])["values"]["plan"].clone();
    bench.text(&["update", "trip", "--set", "plan.city=Thun"]);
    assert_eq!(plan(), json!({ "city": "Thun", "days": [1, 2] }));
    assert_eq!(bench.text(&["show", "trip", "plan.city"]), "Thun\n");
    bench.text(&["update", "trip", "--set", "plan.days[1]=3", "--set", "plan.by.train=true"]);
    assert_eq!(plan(), json!({ "city": "Thun", "days": [1, 3], "by": { "train": true } }));
    bench.text(&["update", "trip", "--set", "seat={}", "--set", "seat.row=4"]);
    assert_eq!(bench.json(&["show", "trip"])["values"]["seat"], json!({ "row": 4 }));
    open(&bench).thread("trip").unwrap().put("files", "a.txt", "one").unwrap();
    bench.text(&["update", "trip", "--set", "files/a.txt=two", "--set", "files.b=three"]);
    assert_eq!(bench.json(&["show", "trip"])["values"]["files"], json!({ "a.txt": "two", "b": "three" }));
    for (text, exit, wanted) in [
        ("nowhere.city=x", 3, "--set 'nowhere={\"city\": ..}'"),
        ("plan.days[9]=1", 2, "9 is not an index"),
        ("plan.city.x=1", 2, "not an object"),
        ("visited[0]=Thun", 2, "is a list"),
    ] {
        let before = plan();
        let refused = bench.annals(&["update", "trip", "--set", text]);
        assert!(code(&refused) == exit && stderr(&refused).contains(wanted), "{text}: {refused:?}");
        assert_eq!(plan(), before, "nothing is stored");
    }
}

#[test]
fn undo_of_a_title_says_what_the_title_is() {
    let bench = Bench::new();
    order(&bench);
    for title in ["Bern", "Thun"] {
        bench.text(&["facts", "trip", "--title", title]);
    }
    let undone = bench.annals(&["undo", "trip"]);
    assert_eq!(String::from_utf8(undone.stdout.clone()).unwrap(), "trip  title: Bern\n");
    assert!(stderr(&undone).contains("facts undone; the head stays"), "{undone:?}");
    assert!(bench.text(&["undo", "trip"]).contains("title: none"));
    assert!(bench.text(&["redo", "trip"]).contains("title: Bern"));
}
