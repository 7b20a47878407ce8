//! The verbs that control runs from outside: they need neither the graph nor its types.

use std::time::Duration;

use annals_graph::Worker;
use annals_graph::graph::{Entry, Entrypoint};

use super::*;

/// A workflow that receives a signal, then asks, then fails unless the answer is a number.
fn booking() -> CompiledGraph<Entry<i64, i64>> {
    let body = |_: i64, context: &Context| {
        // A signal without a value is null.
        let paid: Option<Option<i64>> = context.receive("paid", Duration::from_secs(86_400))?;
        let answer = context.interrupt("how many?")?.as_int().ok_or("it is not a number")?;
        Ok(answer + paid.flatten().unwrap_or(0))
    };
    Entrypoint::new("booking", body).compile().unwrap()
}

/// A bench with a thread whose run waits for the signal.
pub(super) fn waiting() -> Bench {
    let bench = Bench::new();
    let store = Store::open(bench.path("store.db")).unwrap();
    booking().invoke(&store.thread("order").unwrap(), 0).unwrap();
    bench
}

/// A bench with a thread whose run has received the signal, and asks.
pub(super) fn asking() -> Bench {
    let bench = waiting();
    bench.text(&["signal", "order", "paid"]);
    work(&bench);
    bench
}

pub(super) fn work(bench: &Bench) -> u64 {
    let store = Store::open(bench.path("store.db")).unwrap();
    Worker::new(&store).register(&booking()).run_until_idle().unwrap().continued
}

fn status(bench: &Bench) -> Json {
    bench.json(&["threads"])["threads"][0]["status"].clone()
}

#[test]
fn signals_and_answers_come_from_the_command() {
    let bench = waiting();
    assert_eq!(status(&bench), "sleeping");
    assert_eq!(code(&bench.annals(&["answer", "order", "3"])), 3, "nothing is asked yet");
    assert_eq!(bench.text(&["signal", "order", "paid", "40"]), "order\n");
    assert_eq!(work(&bench), 1);
    assert_eq!(status(&bench), "interrupted");
    let wrong = bench.annals(&["answer", "order", "3", "--id", "0"]);
    assert!(code(&wrong) == 3 && stderr(&wrong).contains("is not open"), "{wrong:?}");
    assert_eq!(bench.text(&["answer", "order", "2"]), "order\n");
    assert_eq!(work(&bench), 1);
    assert_eq!(status(&bench), "done");
    let store = Store::open(bench.path("store.db")).unwrap();
    let ended = booking().get_state(&store.thread("order").unwrap()).unwrap();
    assert_eq!(ended.values.value(), Some(&42));
    let late = bench.annals(&["answer", "order", "2"]);
    assert_eq!(code(&late), 3, "{late:?}");
    assert_eq!(code(&bench.annals(&["signal", "order", ""])), 2, "a signal has a name");
}

#[test]
fn threads_are_paused_retried_and_cancelled_by_the_command() {
    let bench = waiting();
    bench.text(&["signal", "order", "paid"]);
    assert!(bench.text(&["pause", "order"]).contains("paused"));
    assert_eq!(bench.json(&["threads"])["threads"][0]["paused"], json!(true));
    assert!(bench.text(&["threads"]).contains(", paused"));
    assert!(bench.text(&["facts", "order"]).contains("paused"));
    assert_eq!(work(&bench), 0, "a paused thread is passed over");
    assert_eq!(code(&bench.annals(&["pause", "order"])), 1, "it is paused already");
    bench.text(&["resume", "order"]);
    assert_eq!(work(&bench), 1);
    bench.text(&["answer", "order", "many"]);
    assert_eq!(work(&bench), 0);
    assert_eq!(status(&bench), "failed");
    let retried = bench.json(&["retry", "order"]);
    assert_eq!(
        retried["threads"][0],
        json!({"thread": "order", "changed": true, "status": "running", "paused": false})
    );
    work(&bench);
    assert_eq!(status(&bench), "failed", "the answer is the same");

    assert!(bench.text(&["cancel", "order", "--reason", "the customer asked"]).contains("cancelled"));
    assert_eq!(bench.json(&["threads"])["threads"][0]["error"], "the customer asked");
    assert_eq!(code(&bench.annals(&["cancel", "order"])), 1, "it is cancelled already");
    assert_eq!(code(&bench.annals(&["cancel", "nobody"])), 3);
    assert_eq!(code(&bench.annals(&["signal", "order", "paid"])), 2, "it takes no signals");
}

/// The query finds more threads than `annals threads` lists.
#[test]
fn the_threads_of_a_query_are_listed_and_with_yes_changed() {
    const OLD: usize = 60;
    let bench = Bench::new();
    let store = Store::open(bench.path("store.db")).unwrap();
    for n in 0..=OLD {
        let thread = store.thread(format!("order-{n}")).unwrap();
        booking().invoke(&thread, 0).unwrap();
        if n < OLD {
            thread.facts().label("old").save().unwrap();
        }
    }
    drop(store);
    let rows = |document: &Json, name: &str, value: &Json| {
        document["threads"].as_array().unwrap().iter().filter(|row| row[name] == *value).count()
    };

    let before = bench.disk().remove("store.db");
    let listed = bench.annals(&["pause", "--label", "old", "--json"]);
    assert_eq!((code(&listed), &document(&listed.stderr)["error"]["code"]), (7, &json!("needs_yes")), "{listed:?}");
    let found = document(&listed.stdout);
    assert_eq!((rows(&found, "changed", &json!(true)), rows(&found, "paused", &json!(false))), (OLD, OLD));
    assert_eq!(found["dry_run"], json!(true));
    let text = bench.annals(&["pause", "--label", "old"]);
    assert!(stderr(&text).contains("60 threads would be paused; nothing was changed"), "{text:?}");
    assert_eq!(String::from_utf8(text.stdout).unwrap().matches("sleeping (would change)").count(), OLD);
    assert_eq!(bench.disk().remove("store.db"), before, "a dry run writes nothing");

    let paused = bench.json(&["pause", "--label", "old", "--yes"]);
    assert_eq!((rows(&paused, "changed", &json!(true)), rows(&paused, "paused", &json!(true))), (OLD, OLD));
    assert_eq!(paused["dry_run"], json!(false));
    assert_eq!(code(&bench.annals(&["pause", "--label", "old", "--yes"])), 1, "all are paused already");
    let resumed = bench.json(&["resume", "--graph", "booking", "--yes"]);
    assert_eq!((rows(&resumed, "changed", &json!(true)), rows(&resumed, "changed", &json!(false))), (OLD, 1));

    let cancelled = bench.json(&["cancel", "--status", "sleeping", "--label", "old", "--yes", "--reason", "late"]);
    assert_eq!(rows(&cancelled, "status", &json!("cancelled")), OLD);
    let threads = bench.json(&["threads", "-n", "0"]);
    assert_eq!((rows(&threads, "error", &json!("late")), rows(&threads, "status", &json!("sleeping"))), (OLD, 1));
    let none = bench.annals(&["retry", "--status", "failed"]);
    assert!(code(&none) == 1 && stderr(&none).contains("no thread is listed"), "{none:?}");
    for wrong in [
        &["cancel"][..],
        &["cancel", "order-60", "--label", "old"],
        &["cancel", "--status", "late"],
        &["retry", "--yes"],
    ] {
        assert_eq!(code(&bench.annals(wrong)), 2, "{wrong:?}");
    }
    assert_eq!(status(&bench), "cancelled");
}

/// The threads that a query finds are those that have failed; the others stay as they are.
#[test]
fn failed_threads_are_retried_by_a_query() {
    let bench = asking();
    bench.text(&["answer", "order", "many"]);
    work(&bench);
    let listed = bench.annals(&["retry", "--status", "failed"]);
    assert_eq!((code(&listed), &*listed.stdout), (7, &b"order  failed (would change)\n"[..]), "{listed:?}");
    assert_eq!(status(&bench), "failed");
    assert_eq!(bench.text(&["retry", "--status", "failed", "--yes"]), "order  running\n");
    assert_eq!(status(&bench), "running");
}

#[derive(State, Clone, Default)]
struct Sum {
    n: i64,
}

/// A graph that adds one, then ten.
fn counted() -> CompiledGraph<Sum> {
    StateGraph::<Sum>::new()
        .name("count")
        .node("one", |sum: &Sum| Ok(Sum::update().n(sum.n + 1)))
        .node("ten", |sum: &Sum| Ok(Sum::update().n(sum.n + 10)))
        .edge(START, "one")
        .edge("one", "ten")
        .compile()
        .unwrap()
}

/// The verdict of a point says what a restart there would run, and what it would repeat.
#[test]
fn a_point_is_safe_if_nothing_runs_twice() {
    let bench = Bench::new();
    let store = Store::open(bench.path("store.db")).unwrap();
    counted().invoke(&store.thread("sum").unwrap(), Sum::update().n(100)).unwrap();
    drop(store);
    let safe = |point: &str| {
        let output = bench.annals(&["safe", point, "--json"]);
        (code(&output), document(&output.stdout))
    };
    let (code_at_end, end) = safe("sum");
    assert_eq!(
        (code_at_end, &end["verdict"], &end["would_run"], &end["later"]),
        (0, &json!("safe"), &json!([]), &json!(0))
    );
    let (code_before, before) = safe("sum~1");
    assert_eq!((code_before, &before["verdict"], &before["would_run"]), (1, &json!("repeats"), &json!(["ten"])));
    assert_eq!((&before["repeated"][0]["node"], before["repeated"].as_array().unwrap().len()), (&json!("ten"), 1));
    assert_eq!(safe("sum~2").1["repeated"].as_array().unwrap().len(), 2);
    // After a restart the task is due at the head. A run without a lease may have begun it there and left no trace.
    bench.json(&["restart", "sum~1"]);
    let (code_due, due) = safe("sum");
    assert_eq!((code_due, &due["verdict"], &due["would_run"]), (1, &json!("repeats"), &json!(["ten"])));

    let waiting = asking();
    let asked = waiting.annals(&["safe", "order", "--json"]);
    let asked_facts = document(&asked.stdout);
    assert_eq!((code(&asked), &asked_facts["verdict"]), (1, &json!("answer")), "{asked_facts}");
    assert_eq!(asked_facts["interrupts"].as_array().unwrap().len(), 1);
    let text = waiting.annals(&["safe", "order"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("is open"), "{text:?}");
}

/// The tasks of an older checkpoint run anew, with its state; the abandoned branch stays.
#[test]
fn a_thread_is_restarted_from_a_step() {
    let bench = Bench::new();
    let store = Store::open(bench.path("store.db")).unwrap();
    counted().invoke(&store.thread("sum").unwrap(), Sum::update().n(100)).unwrap();
    drop(store);
    let next = |step: i64| bench.json(&["show", &format!("sum@{{step:{step}}}")])["next"].clone();
    let step = (0..5).find(|step| next(*step) == json!(["ten"])).unwrap();
    let number = step.to_string();

    let before = bench.json(&["log", "sum"]);
    let ended = bench.annals(&["restart", "sum", "--json"]);
    assert_eq!((code(&ended), &document(&ended.stderr)["error"]["code"]), (2, &json!("invalid")), "{ended:?}");
    assert_eq!(code(&bench.annals(&["restart", "sum", "--from", "99"])), 3);
    assert_eq!(code(&bench.annals(&["restart", "sum@~1", "--from", &number])), 2, "sum@~1 is a checkpoint");
    assert_eq!(code(&bench.annals(&["restart", "nobody", "--from", &number])), 3);
    assert_eq!(bench.json(&["log", "sum"])["head"], before["head"], "nothing was written");

    let restarted = bench.json(&["restart", "sum", "--from", &number]);
    let from = bench.json(&["show", &format!("sum@{{step:{step}}}")])["checkpoint"].clone();
    assert_eq!((&restarted["next"], &restarted["restarted_from"]["checkpoint"]), (&json!(["ten"]), &from));
    assert_eq!(bench.json(&["show", "sum"])["checkpoint"], restarted["checkpoint"]);
    assert_eq!((status(&bench), &bench.json(&["show", "sum"])["values"]["n"]), (json!("running"), &json!(101)));
    let store = Store::open(bench.path("store.db")).unwrap();
    assert_eq!(Worker::new(&store).register(&counted()).run_until_idle().unwrap().continued, 1);
    drop(store);
    assert_eq!((status(&bench), &bench.json(&["show", "sum"])["values"]["n"]), (json!("done"), &json!(111)));
    let all = bench.json(&["log", "sum", "-n", "0"])["checkpoints"].as_array().unwrap().len();
    assert_eq!(all, before["checkpoints"].as_array().unwrap().len() + 2, "the branch before stays");
    let text = bench.annals(&["restart", &format!("sum@{{step:{step}}}")]);
    assert!(code(&text) == 0 && String::from_utf8(text.stdout.clone()).unwrap().contains("due: ten"), "{text:?}");
    bench.text(&["undo", "sum"]);
    assert_eq!(status(&bench), "done");
}
