//! Parallel research: a plan fans out into one task for each topic, the tasks run at the same time, a failure is tried
//! again, and a report waits for all of them.
//!
//! Run it with `cargo run -p annals-graph --example research`.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::time::Duration;

use annals_graph::graph::{Own, RetryPolicy};
use annals_graph::prelude::*;

#[derive(State, Clone, Default)]
struct Research {
    question: String,
    topics: Vec<String>,
    #[channel(append)]
    findings: List<String>,
    report: String,
}

/// Stands for a search in the web: it takes 100 ms, and fails at first for one topic.
fn look_up(topic: String, ctx: &Context) -> NodeResult<ResearchUpdate> {
    std::thread::sleep(Duration::from_millis(100));
    if topic == "prices" && ctx.attempt() == 1 {
        return Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into());
    }
    ctx.emit(format!("{topic}: attempt {}", ctx.attempt()));
    Ok(Research::update().findings([format!("a fact about {topic}")]))
}

fn main() -> Result<()> {
    let patient = RetryPolicy::new().max_attempts(3).initial_interval(Duration::from_millis(10)).jitter(false);
    let graph = StateGraph::<Research>::new()
        .name("research")
        .node("plan", |research: &Research| {
            let topics = ["hotels", "trains", "prices", "weather"].map(|topic| topic.to_string());
            Ok(Research::update().topics(topics.to_vec()).question(format!("{}?", research.question)))
        })
        .node_with("look up", Own(look_up), NodeOptions::new().retry(patient))
        .node("report", |research: &Research| {
            let findings: Vec<&str> = research.findings.iter().map(String::as_str).collect();
            Ok(Research::update().report(format!("{} {}.", research.question, findings.join(", "))))
        })
        .edge(START, "plan")
        .branch_to(
            "plan",
            |r: &Research| r.topics.iter().map(|t| SendTo::new("look up", t.as_str())).collect::<Vec<_>>(),
            ["look up"],
        )
        .edge("look up", "report")
        .compile()?;

    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::open(folder.path().join("research.db"))?;
    let thread = store.thread("bern")?;
    let begin = store.elapsed();
    let modes = [StreamMode::Custom, StreamMode::Updates];
    let mut stream = graph.stream(&thread, Research::update().question("A weekend in Bern"), &modes)?;
    for part in &mut stream {
        match part?.data {
            StreamData::Custom(value) => println!("  {}", value.as_str().unwrap_or_default()),
            StreamData::Updates(update) => println!("{} ended", update.node),
            _ => {}
        }
    }
    let done = stream.outcome().expect("the stream has ended").state().clone();
    println!("five look-ups of 100 ms took {} ms", (store.elapsed() - begin).as_millis());

    // Results are applied in the order of the plan, not in the order in which they came.
    assert_eq!(done.findings.to_vec(), ["hotels", "trains", "prices", "weather"].map(|t| format!("a fact about {t}")));
    println!("{}", done.report);
    for snapshot in thread.history()? {
        let snapshot = snapshot?;
        println!("step {:>2}: next {:?}", snapshot.step(), snapshot.next().collect::<Vec<_>>());
    }
    Ok(())
}
