//! The sums of `annals stats --by`, of a store whose bytes, tokens and times are known.

use super::guides::SetClock;
use super::*;

use annals::base::Timestamp;
use annals::history::ModelUsage;
use annals::message::Usage;
use annals::store::Store;

#[derive(State, Clone, Default)]
struct Sorted {
    #[channel(messages)]
    messages: Messages,
    topic: String,
    first: String,
    left: i64,
    right: i64,
}

/// Makes a store with a run that goes past midnight, updates, and a fork that writes nothing.
fn sorted(path: &Path) {
    let start: Timestamp = "2026-11-23T23:59:50Z".parse().unwrap();
    let clock = SetClock::new(start);
    let store = Store::open_with(path, OpenOptions::new().clock(clock.clone())).unwrap();
    let passing = |seconds: i64, update: SortedUpdate| {
        let clock = clock.clone();
        move |_: &Sorted| {
            clock.pass(seconds);
            Ok(update.clone())
        }
    };
    let mut said = Message::ai("hi").with_id("m").with_usage(Usage::new(100, 10));
    said.response_metadata.insert("model_name".into(), "m-1".into());
    let graph = StateGraph::<Sorted>::new()
        .node("first", passing(4, Sorted::update().first("bb")))
        .node("left", passing(5, Sorted::update().left(7)))
        .node("right", passing(3, Sorted::update().right(300)))
        .node("model", passing(10, Sorted::update().messages([said])))
        .edge(START, "first")
        .edge("first", "left")
        .edge("first", "right")
        .edge("left", "model");
    let one = store.thread("one").unwrap();
    graph.compile().unwrap().invoke(&one, Sorted::update().topic("aaaa")).unwrap();
    let two = store.thread("two").unwrap();
    two.set("first", "cccc").unwrap();
    two.write().set("first", "dd").usage(ModelUsage::new(812, 64).cost_usd(0.004).model("m-2")).commit().unwrap();
    one.head().unwrap().unwrap().fork_to("three").unwrap();
}

/// Returns the sums in the columns of `--csv`, empty where a sum has no value.
fn sums(bench: &Bench, by: &str) -> Vec<String> {
    let csv = bench.text(&["stats", "--by", by, "--csv"]);
    let mut lines = csv.lines().map(str::to_owned);
    let titles = lines.next().unwrap();
    assert_eq!(titles, format!("{by},count,bytes,input_tokens,output_tokens,cost_usd,seconds"));
    lines.collect()
}

#[test]
fn sums_are_those_of_the_log() {
    let bench = Bench::new();
    sorted(&bench.path("store.db"));
    let channels = bench.json(&["stats", "--by", "channel"])["sums"].clone();
    let of_channel = |name: &str| channels.as_array().unwrap().iter().find(|sum| sum["key"] == name).unwrap().clone();
    // Two heads have the message: that of the run and that of its fork.
    let messages = of_channel("messages");
    assert_eq!(
        (&messages["count"], &messages["input_tokens"], &messages["output_tokens"]),
        (&json!(2), &json!(200), &json!(20))
    );
    assert_eq!((&messages["cost_usd"], &messages["seconds"]), (&Json::Null, &Json::Null));
    let said = messages["bytes"].as_u64().unwrap() / 2;
    assert!(said > 2);
    // A text of four letters has five bytes, 7 has one and 300 has three; "bb" in both heads of the run, and "dd".
    assert_eq!(of_channel("first")["bytes"], 3 * 3);

    let (before, after) = (5 + 3, 1 + 3 + said + 5 + 3);
    assert_eq!(
        sums(&bench, "day"),
        [format!("2026-11-23,0,{before},,,,4.0"), format!("2026-11-24,2,{after},912,74,0.004,18.0")],
        "the parallel tasks end after midnight, after eight seconds"
    );
    let of_run = 5 + 3 + 1 + 3 + said;
    assert_eq!(sums(&bench, "thread"), [format!("one,1,{of_run},100,10,,22.0"), "two,1,8,812,64,0.004,".to_owned()]);
    assert_eq!(
        sums(&bench, "node"),
        [
            ",0,8,812,64,0.004,".to_owned(),
            "__start__,0,5,,,,".to_owned(),
            "first,1,3,,,,4.0".to_owned(),
            "left,1,1,,,,8.0".to_owned(),
            format!("model,1,{said},100,10,,10.0"),
            "right,1,3,,,,8.0".to_owned(),
        ]
    );
    assert_eq!(sums(&bench, "model"), ["m-1,1,,100,10,,10.0", "m-2,1,,812,64,0.004,"]);
    let of_nodes = sums(&bench, "node,day");
    assert_eq!(of_nodes[1], "__start__,2026-11-23,0,5,,,,");
    assert_eq!(of_nodes[3], "left,2026-11-24,0,1,,,,8.0");
    assert_eq!(sums(&bench, "thread,model")[0], "one,m-1,1,,100,10,,10.0");
    assert_eq!(code(&bench.annals(&["stats", "--by", "channel,day"])), 2);
}

#[test]
fn a_cost_is_that_of_the_model_on_its_day_and_an_unknown_price_is_unknown() {
    let bench = Bench::new();
    sorted(&bench.path("store.db"));
    let table = bench.annals(&["stats", "--by", "model,day"]);
    let text = String::from_utf8(table.stdout.clone()).unwrap();
    assert!(text.lines().any(|line| line.starts_with("m-1") && line.contains("unknown")), "{text}");
    assert!(stderr(&table).contains("1 model call without a known price"), "{}", stderr(&table));
    let day = &bench.json(&["stats", "--by", "day"])["sums"][1];
    assert_eq!((&day["cost_usd"], &day["unpriced_calls"]), (&json!(0.004), &json!(1)));

    let price = |day: &str, input: u64| json!({"model": "m-1", "from": day, "input": input, "output": 10_000});
    let prices = json!([price("2026-11-24", 1_000), price("2026-11-25", 9)]);
    fs::write(bench.path("prices.json"), prices.to_string()).unwrap();
    let sum = &bench.json(&["stats", "--by", "model", "--prices", "prices.json"])["sums"][0];
    assert_eq!((&sum["cost_usd"], &sum["unpriced_calls"]), (&json!(0.2), &json!(0)), "100 tokens read, 10 written");
    // Most of what an agent sends is cached, for another price.
    let store = Store::open(bench.path("store.db")).unwrap();
    let mut usage = Usage::new(1_000_000, 0);
    let details = [("cache_read", 600_000_i64), ("cache_creation", 300_000)].into_iter();
    usage.input_token_details = Some(details.map(|(name, count)| (name.to_owned(), count.into())).collect());
    let mut said = Message::ai("hi").with_usage(usage);
    said.response_metadata.insert("model_name".into(), "m-3".into());
    store.thread("four").unwrap().write().append("messages", [said]).commit().unwrap();
    drop(store);
    let of_cache =
        json!([{"model": "m-3", "from": "2020-01-01", "input": 10, "output": 0, "cache_read": 1, "cache_write": 2}]);
    fs::write(bench.path("prices.json"), of_cache.to_string()).unwrap();
    let sums = bench.json(&["stats", "--by", "model", "--prices", "prices.json"])["sums"].clone();
    let cost = sums.as_array().unwrap().iter().find(|sum| sum["key"] == "m-3").unwrap()["cost_usd"].as_f64().unwrap();
    assert!((cost - (0.1 * 10.0 + 0.6 + 0.3 * 2.0)).abs() < 1e-9, "{cost}");
    fs::write(bench.path("prices.json"), r#"[{"model": "m-1"}]"#).unwrap();
    let failed = bench.annals(&["stats", "--by", "model", "--prices", "prices.json"]);
    assert_eq!(code(&failed), 2);
    assert!(stderr(&failed).contains("entry 0: from: a text is needed"), "{}", stderr(&failed));
}

#[test]
fn the_newest_checkpoints_are_counted_unless_all_are_asked_for() {
    let bench = Bench::new();
    let store = Store::open(bench.path("store.db")).unwrap();
    for n in 0..6 {
        let thread = store.thread(format!("t{}", n / 2)).unwrap();
        let said = Message::ai("hi").with_usage(Usage::new(100, 10));
        thread.write().set("n", n).append("messages", [said]).commit().unwrap();
    }
    drop(store);
    let stats = |by: &str, last: &str| {
        let document = bench.json(&["stats", "--by", by, "--last", last]);
        let counts = document["sums"].as_array().unwrap().iter().map(|sum| sum["count"].as_u64().unwrap());
        (counts.collect::<Vec<_>>(), document["older"] == true)
    };
    assert_eq!(stats("day", "0"), (vec![6], false));
    assert_eq!(stats("day", "9"), (vec![6], false));
    assert_eq!(stats("day", "3"), (vec![3], true));
    assert_eq!(stats("thread", "3"), (vec![1, 2], true));
    assert_eq!(stats("channel", "2"), (vec![2, 1], true));
    assert_eq!(stats("node", "3"), (vec![0], true));
    let note = stderr(&bench.annals(&["stats", "--by", "day", "--last", "3"]));
    assert!(note.contains("of the newest 3 checkpoints; --last 0 counts all"), "{note}");
    assert_eq!(code(&bench.annals(&["stats", "--last", "3"])), 2);
}
