//! Asynchronous paths of conditional edges, under both drivers, and how many tasks run at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use annals_graph::graph::Own;
use annals_graph::prelude::*;
use annals_graph::{RunError, block_on};
use macro_rules_attribute::apply;

use crate::backends::place;

#[derive(State, Clone, Default, Debug)]
struct Trip {
    #[channel(append)]
    log: List<String>,
    to: String,
}

fn visit(_: &Trip, context: &Context) -> NodeResult<TripUpdate> {
    Ok(Trip::update().log([context.node().to_string()]))
}

async fn visit_later(_: &Trip, context: &Context) -> NodeResult<TripUpdate> {
    later().await;
    Ok(Trip::update().log([format!("{} later", context.node())]).to("d"))
}

/// Is not ready when it is polled first.
async fn later() {
    let mut polled = false;
    std::future::poll_fn(|waiting| {
        if std::mem::replace(&mut polled, true) {
            return std::task::Poll::Ready(());
        }
        waiting.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

async fn by_state(trip: &Trip) -> String {
    later().await;
    trip.to.clone()
}

async fn by_context(_: &Trip, context: &Context) -> NodeResult<&'static str> {
    later().await;
    match context.node() {
        "d" => Err("no way from here".into()),
        _ => Ok("c"),
    }
}

fn trip() -> StateGraph<Trip> {
    let other = Arc::new("c".to_string());
    let owned = Arc::clone(&other);
    StateGraph::<Trip>::new()
        .node("a", visit)
        .node("b", visit_later)
        .node("c", visit)
        .node("d", visit)
        .branch(START, by_state)
        .branch("a", |_: &Trip| "b")
        .branch("a", by_context)
        .branch("a", move |_: Arc<Trip>| {
            let other = Arc::clone(&other);
            async move { [other.to_string()] }
        })
        .branch("a", move |_: Arc<Trip>, context: Context| {
            let owned = Arc::clone(&owned);
            async move {
                (context.node() == "a")
                    .then(|| SendTo::new("c", Value::Map([("to".into(), (&*owned).into())].into_iter().collect())))
            }
        })
        .branch_to("b", by_state, ["d"])
}

#[apply(each_backend)]
fn paths_can_be_awaited_wherever_they_leave_from() {
    let graph = trip().compile().unwrap();
    let (wanted, to) = (["a", "b later", "c", "c", "d"], Trip::update().to("a"));
    let thread = place().thread("t").unwrap();
    assert_eq!(graph.invoke((), to.clone()).unwrap().state().log.to_vec(), wanted);
    assert_eq!(graph.invoke(&thread, to.clone()).unwrap().state().log.to_vec(), wanted);
    assert_eq!(block_on(graph.ainvoke((), to.clone())).unwrap().state().log.to_vec(), wanted);
    let thread = place().thread("u").unwrap();
    assert_eq!(block_on(graph.ainvoke(&thread, to)).unwrap().state().log.to_vec(), wanted);

    graph.update_state(&thread, Trip::update(), Some("a")).unwrap();
    let mut next = graph.get_state(&thread).unwrap().next;
    next.sort();
    assert_eq!(next, ["b", "c", "c"], "an update is followed by the same paths");
}

#[apply(each_backend)]
fn a_path_that_is_awaited_fails_panics_and_is_cancelled_as_its_node_is() {
    let failing = trip().branch("d", by_context).compile().unwrap();
    let error = failing.invoke((), Trip::update().to("d")).unwrap_err();
    assert!(matches!(error.as_run(), Some(RunError::Node { node, .. }) if node == "d"), "{error}");

    let panicking = trip()
        .branch("d", |_: Arc<Trip>| async {
            later().await;
            if true { panic!("lost") } else { END }
        })
        .compile()
        .unwrap();
    let error = block_on(panicking.ainvoke((), Trip::update().to("d"))).unwrap_err();
    assert!(matches!(error.as_run(), Some(RunError::NodePanicked { reason, .. }) if reason == "lost"), "{error}");

    let waiting = trip()
        .branch("d", |_: Arc<Trip>, context: Context| async move {
            context.control().cancel("enough");
            std::future::pending::<&'static str>().await
        })
        .compile()
        .unwrap();
    let thread = place().thread("v").unwrap();
    for outcome in [
        waiting.invoke(&thread, Trip::update().to("d")).unwrap(),
        block_on(waiting.ainvoke(&thread, Input::Continue)).unwrap(),
    ] {
        assert!(matches!(outcome, Outcome::Cancelled { ref reason, .. } if reason == "enough"), "{outcome:?}");
    }
    assert_eq!(waiting.get_state(&thread).unwrap().next, ["d"]);
}

#[test]
fn no_more_tasks_run_at_the_same_time_than_asked_for() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let begin = move || {
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        (Arc::clone(&now), Arc::clone(&most))
    };
    let begin_async = begin.clone();
    let graph = StateGraph::<Trip>::new()
        .node(
            "sync",
            Own(move |_: i64| {
                let (now, most) = begin();
                std::thread::sleep(Duration::from_millis(3));
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(Trip::update().log([most.load(Ordering::SeqCst).to_string()]))
            }),
        )
        .node(
            "async",
            Own(move |_: i64| {
                let (now, most) = begin_async();
                async move {
                    later().await;
                    now.fetch_sub(1, Ordering::SeqCst);
                    Ok(Trip::update().log([most.load(Ordering::SeqCst).to_string()]))
                }
            }),
        )
        .branch(START, |trip: &Trip| (0..8).map(|n| SendTo::new(trip.to.as_str(), n)).collect::<Vec<_>>())
        .compile()
        .unwrap();
    for to in ["sync", "async"] {
        let run = || graph.run(()).concurrency_max(3);
        let blocking = run().invoke(Trip::update().to(to)).unwrap();
        let awaited = block_on(run().ainvoke(Trip::update().to(to))).unwrap();
        for outcome in [blocking, awaited] {
            let most = outcome.state().log.iter().map(|n| n.parse::<usize>().unwrap()).max();
            assert!(most <= Some(3), "{to}: {most:?} at once");
        }
    }
}

#[apply(each_backend)]
fn a_graph_that_asks_for_a_context_value_gets_it_or_does_not_run() {
    struct User(&'static str);
    let who = |_: &Trip, context: &Context| {
        let User(name) = context.value().ok_or("there is a user")?;
        Ok(Trip::update().log([name.to_string()]))
    };
    let inside = StateGraph::<Trip>::new().name("inside").context::<User>().node("who", who).edge(START, "who");
    let inside = inside.compile().unwrap();
    let called = inside.clone();
    let graph = StateGraph::<Trip>::new()
        .node("inside", inside)
        .node("calls", move |_: &Trip, context: &Context| {
            called.run(context).context(User("another")).invoke(Trip::update())?;
            let outcome = called.run(context).context(User("one of its own")).invoke(Trip::update())?;
            Ok(Trip::update().log(outcome.state().log.to_vec()))
        })
        .edge(START, "inside")
        .edge("inside", "calls")
        .compile()
        .unwrap();
    let done = graph.run(()).context(User("ann")).invoke(Trip::update()).unwrap();
    assert_eq!(done.state().log.to_vec(), ["ann", "one of its own"]);

    let thread = place().thread("w").unwrap();
    let missing = graph.invoke(&thread, Trip::update()).unwrap_err();
    assert!(missing.to_string().contains("graph \"inside\" asks for a context value of type"), "{missing}");
    assert!(missing.to_string().ends_with("the run was given none"), "{missing}");
    let other = block_on(graph.run(&thread).context("ann").ainvoke(Trip::update())).unwrap_err();
    assert!(other.to_string().ends_with("the run was given one of another type"), "{other}");
    assert_eq!((other.class(), thread.head().unwrap().is_none()), ("TypeError", true));
}
