//! An agent that fills in a form: it asks for each missing field with an interrupt, refuses answers that do not fit,
//! and survives a restart between any two answers.
//!
//! Run it with `cargo run -p annals-graph --example form`.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::path::Path;

use annals_graph::prelude::*;
use serde_json::json;

#[derive(State, Clone, Default)]
struct Booking {
    name: Option<String>,
    nights: Option<i64>,
    breakfast: Option<bool>,
    #[channel(append)]
    log: List<String>,
}

/// Asks for the first missing field. The resume value is verified against the schema before the node sees it.
fn ask(booking: &Booking, ctx: &Context) -> NodeResult<BookingUpdate> {
    let change = Booking::update();
    if booking.name.is_none() {
        let name = ctx.interrupt_with("Who will stay?", json!({"type": "string", "minLength": 2}))?;
        return Ok(change.name(name.as_str().map(str::to_string)).log(["name".to_string()]));
    }
    if booking.nights.is_none() {
        let schema = json!({"type": "integer", "minimum": 1, "maximum": 30});
        let nights = ctx.interrupt_with("How many nights?", schema)?;
        return Ok(change.nights(nights.as_int()).log(["nights".to_string()]));
    }
    let breakfast = ctx.interrupt_with("With breakfast?", json!({"type": "boolean"}))?;
    Ok(change.breakfast(breakfast.as_bool()).log(["breakfast".to_string()]))
}

fn form() -> Result<CompiledGraph<Booking>> {
    let is_complete = |booking: &Booking| booking.breakfast.is_some();
    Ok(StateGraph::<Booking>::new()
        .name("booking")
        .node("ask", ask)
        .edge(START, "ask")
        .branch("ask", move |booking: &Booking| if is_complete(booking) { END } else { "ask" })
        .compile()?)
}

/// Gives one answer in what could be a process of its own: the file is opened, and closed again.
fn answer(path: &Path, with: impl Into<Value>) -> Result<Outcome<Booking>> {
    let thread = Store::open(path)?.thread("booking-17")?;
    form()?.invoke(&thread, Command::resume(with))
}

fn main() -> Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("bookings.db");

    let thread = Store::open(&path)?.thread("booking-17")?;
    let mut open = form()?.invoke(&thread, Booking::update())?;
    drop(thread);
    for given in [Value::from("Ann"), Value::from("two"), Value::from(2), Value::from(true)] {
        let shown = &open.interrupts()[0];
        println!("{:<18} {given}", shown.value.as_str().unwrap_or_default());
        open = match answer(&path, given) {
            Ok(next) => next,
            Err(error) => {
                // The interrupt stays open, with the same id.
                println!("  refused: {error}");
                continue;
            }
        };
    }
    assert!(open.is_done());
    let booking = open.state();
    println!("{} stays {} nights", booking.name.as_deref().unwrap_or_default(), booking.nights.unwrap_or_default());
    assert_eq!(booking.log.to_vec(), ["name", "nights", "breakfast"]);

    // A wrong entry is corrected by going back to the checkpoint before it: the form asks again from there.
    let store = Store::open(&path)?;
    let thread = store.thread("booking-17")?;
    let before = thread.at("~2")?;
    assert_eq!((before.get("name")?, before.get("nights")?), (Some("Ann".into()), None));
    let again = form()?.invoke(&before, Input::Continue)?;
    assert_eq!(again.interrupts()[0].value, "How many nights?");
    let again = form()?.invoke(&thread, Command::resume(3))?;
    assert_eq!(again.interrupts()[0].value, "With breakfast?");
    println!("corrected: {} nights", thread.at("@")?.get("nights")?.and_then(|n| n.as_int()).unwrap_or_default());
    Ok(())
}
