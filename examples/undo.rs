//! Time travel and undo without a graph: rewind, undo, redo, named branches, and the list of operations. Nothing is
//! deleted by any of them.
//!
//! Run it with `cargo run -p annals --example undo`.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use annals::history::diff;
use annals::prelude::*;

#[derive(State, Clone, Default)]
struct Plan {
    transport: String,
    #[channel(append)]
    stops: List<String>,
}

fn show(title: &str, plan: &annals::history::StateThread<Plan>) -> Result<()> {
    let state = plan.state()?;
    println!("{title:<20} by {:<6} {}", state.transport, state.stops.to_vec().join(", "));
    Ok(())
}

fn main() -> Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::open(folder.path().join("plans.db"))?;
    let thread = store.thread("summer")?.by("Ann");
    let plan = thread.with_state::<Plan>();
    plan.update(Plan::update().transport("train").stops(["Bern".to_string()]))?;
    plan.update(Plan::update().stops(["Thun".to_string()]))?;
    plan.update(Plan::update().transport("bus").stops(["Sion".to_string()]))?;
    show("the plan", &plan)?;

    // The head moves back; the checkpoints after it stay.
    thread.rewind_to(&thread.at("~2")?)?;
    show("after a rewind", &plan)?;
    thread.undo()?.expect("the rewind is undone");
    show("after an undo", &plan)?;
    thread.undo()?.expect("the last update is undone");
    show("after a second one", &plan)?;
    thread.redo()?.expect("the last update is made again");
    show("after a redo", &plan)?;

    // Two ways side by side, each with a name.
    thread.name_branch("by bus")?;
    thread.name_branch_at("by bike", &thread.at("~2")?)?;
    thread.switch(&thread.branch("by bike")?)?;
    plan.update(Plan::update().transport("bike").stops(["Spiez".to_string()]))?;
    show("on the branch", &plan)?;
    let (bus, bike) = (thread.branch("by bus")?, thread.branch("by bike")?);
    println!("\n{}", diff(&bus.last, &bike.last)?);
    let common = bus.last.common_ancestor(&bike.last)?.expect("both began with Bern");
    assert_eq!(common.state::<Plan>()?.stops.to_vec(), ["Bern"]);

    // A fork is a thread of its own: one row, whatever the length of the history.
    let fork = bike.last.fork_to("summer-next-year")?;
    fork.update(Plan::update().transport("boat"))?;
    assert_eq!(plan.state()?.transport, "bike", "the thread does not see its fork");

    for operation in thread.operations()? {
        let operation = operation?;
        println!("{:<12} {}", operation.name(), operation.actor().unwrap_or("-"));
    }
    Ok(())
}
