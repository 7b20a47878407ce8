//! Time travel: the state at a past point, a branch with another setting, and the differences between the two ends.
//!
//! Run it with `cargo run --example time_travel`.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use annals::history::diff;
use annals_graph::prelude::*;

#[derive(State, Clone, Default)]
struct Trip {
    #[channel(last)]
    transport: String,
    #[channel(append)]
    plan: List<String>,
}

fn main() -> Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::open(folder.path().join("trips.db"))?;
    let graph = StateGraph::<Trip>::new()
        .node("choose", |_: &Trip| Ok(Trip::update().transport("plane")))
        .node("book", |trip: &Trip| Ok(Trip::update().plan([format!("ticket for the {}", trip.transport)])))
        .node("pack", |trip: &Trip| Ok(Trip::update().plan([format!("bag that fits the {}", trip.transport)])))
        .edge(START, "choose")
        .edge("choose", "book")
        .edge("book", "pack")
        .edge("pack", END)
        .compile()?;
    let trip = store.thread("trip")?;
    graph.invoke(&trip, Trip::update().transport("none"))?;
    let by_plane = trip.head()?.expect("it ran");

    // Two supersteps back, `book` was due.
    let before = trip.at("~2")?;
    assert_eq!(before.next().collect::<Vec<_>>(), ["book"]);
    assert_eq!(before.get("plan")?, None, "nothing was planned yet");

    // A branch of the same thread: stored checkpoints are not changed.
    let edited = graph.update_state(&before, Trip::update().transport("train"), Some("choose"))?;
    assert_eq!(edited.parent()?.as_ref(), Some(&before));
    graph.invoke(&trip, Input::Continue)?;
    let by_train = trip.head()?.expect("it ran");
    assert_eq!(by_plane.get("transport")?, Some(Value::from("plane")));

    let changes = diff(&by_plane, &by_train)?;
    let names: Vec<&str> = changes.channels.iter().map(|change| &**change.channel()).collect();
    assert_eq!(names, ["plan", "transport"]);
    for item in by_train.items("plan", annals::store::ItemRange::All)? {
        println!("{}", item.as_str().unwrap_or_default());
    }

    // Or a thread of its own, made in one commit at any length of the history.
    let fork = before.fork_to("trip-by-bike")?;
    graph.update_state(&fork, Trip::update().transport("bike"), Some("choose"))?;
    let done = graph.invoke(&fork, Input::Continue)?;
    assert_eq!(done.state().plan.first().map(String::as_str), Some("ticket for the bike"));
    assert_eq!(trip.head()?.expect("it ran"), by_train, "the first thread is where it was");
    Ok(())
}
