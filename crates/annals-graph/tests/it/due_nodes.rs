//! Tests that a node which is due and which the graph lacks is an error that names it: in runs, in workers, and in
//! subgraphs.

use annals::state::DynState;
use annals_graph::graph::SendTo;
use annals_graph::prelude::*;
use annals_graph::runs::ThreadStatus;
use annals_graph::{Error, RunError, RunEventKind, Worker};
use macro_rules_attribute::apply;

use crate::backends::{new_thread, place};
use crate::functional::Log;

type Graph = CompiledGraph<DynState>;

fn graph() -> StateGraph<DynState> {
    StateGraph::with_schema(DynSchema::new().last("n").append("log").build()).name("order")
}

fn note(log: &Log, name: &'static str) -> impl Fn(&DynState) -> NodeResult<DynUpdate> + use<> {
    let log = log.clone();
    move |_: &DynState| {
        log.add(name.to_owned());
        Ok(DynUpdate::new().set("log", name))
    }
}

fn ask(_: &DynState, context: &Context) -> NodeResult<DynUpdate> {
    Ok(DynUpdate::new().set("n", context.interrupt("ok?")?))
}

/// A graph whose node `asks` interrupts, and is followed by `pay`.
fn asking(asks: &str, version: Option<&str>, log: &Log) -> Graph {
    let graph = graph().node(asks, ask).node("pay", note(log, "pay")).edge(START, asks).edge(asks, "pay");
    match version {
        Some(version) => graph.version(version).compile().unwrap(),
        None => graph.compile().unwrap(),
    }
}

/// The nodes that an error names.
fn missing<T: std::fmt::Debug>(result: Result<T, Error>) -> Vec<String> {
    let error = result.unwrap_err();
    match error.as_run() {
        Some(RunError::DueNodeMissing { nodes, .. }) => nodes.clone(),
        other => panic!("{other:?}"),
    }
}

#[apply(each_backend)]
fn a_due_node_that_the_graph_lacks_is_named_and_the_answer_stays_possible() {
    for version in [None, Some("1")] {
        let (log, thread) = (Log::default(), new_thread());
        let (old, new) = (asking("ask", version, &log), asking("approve", version, &log));
        old.invoke(&thread, DynUpdate::new().set("n", 1)).unwrap();
        let head = thread.head().unwrap();
        assert_eq!(missing(new.invoke(&thread, Command::resume(true))), ["ask"]);
        assert_eq!(missing(new.invoke(&thread, Input::Continue)), ["ask"]);
        assert_eq!(missing(annals_graph::block_on(new.ainvoke(&thread, Command::resume(true)))), ["ask"]);
        assert_eq!(missing(new.run(&thread).stream(Command::resume(true), &[StreamMode::Values])), ["ask"]);
        assert_eq!(missing(new.run(&thread).allow_changed_graph(true).invoke(Command::resume(true))), ["ask"]);
        assert_eq!(missing(new.invoke(head.as_ref().unwrap(), Input::Continue)), ["ask"]);
        assert_eq!(thread.head().unwrap(), head);
        assert_eq!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Interrupted(vec!["ok?".into()]));
        let message = new.invoke(&thread, Input::Continue).unwrap_err().to_string();
        assert!(message.contains("node \"ask\" is due") && message.contains("[\"approve\", \"pay\"]"), "{message}");
        let done = old.invoke(&thread, Command::resume(true)).unwrap();
        assert_eq!((done.state().get("n"), log.take()), (&Value::from(true), vec!["pay".to_owned()]));
    }
}

#[apply(each_backend)]
fn a_failed_node_that_was_renamed_is_named_also_beside_others() {
    let (log, thread) = (Log::default(), new_thread());
    let flow = |name: &str, fails: bool| {
        let fail = move |_: &DynState| -> NodeResult<DynUpdate> {
            if fails { Err("no".into()) } else { Ok(DynUpdate::new().set("log", "charge")) }
        };
        graph()
            .node(name, fail)
            .node("ask", ask)
            .node("ship", note(&log, "ship"))
            .edge(START, name)
            .edge(START, "ask")
            .join([name, "ask"], "ship")
            .compile()
            .unwrap()
    };
    flow("charge", true).invoke(&thread, DynUpdate::new().set("n", 1)).unwrap_err();
    let status = ThreadStatus::of(&thread.info().unwrap());
    assert_eq!(missing(flow("bill", false).invoke(&thread, Input::Continue)), ["charge"]);
    assert_eq!(ThreadStatus::of(&thread.info().unwrap()), status);
    flow("charge", false).invoke(&thread, Input::Continue).unwrap();
    let done = flow("charge", false).invoke(&thread, Command::resume(true)).unwrap();
    assert_eq!((done.interrupts(), log.take()), (&[][..], vec!["ship".to_owned()]));
}

#[apply(each_backend)]
fn a_node_to_which_an_ended_task_leads_is_named() {
    // The target is reached by an edge, by a send and by a join.
    for way in ["edge", "send", "join"] {
        let (log, thread) = (Log::default(), new_thread());
        let flow = |target: &str| {
            let to = target.to_owned();
            let first = move |_: &DynState| -> NodeResult<Command> {
                Ok(if way == "send" { Command::goto(SendTo::new(to.as_str(), 1)) } else { Command::new() })
            };
            let graph = graph().node("first", first).node("ask", ask).node(target, note(&log, "last"));
            let graph = graph.edge(START, "first").edge(START, "ask");
            match way {
                "edge" => graph.edge("first", target),
                "join" => graph.join(["first", "ask"], target),
                _ => graph,
            }
            .compile()
            .unwrap()
        };
        flow("last").invoke(&thread, DynUpdate::new().set("n", 1)).unwrap();
        assert_eq!(missing(flow("end").invoke(&thread, Command::resume(true))), ["last"], "{way}");
        flow("last").invoke(&thread, Command::resume(true)).unwrap();
        assert_eq!(log.take(), ["last"], "{way}");
    }
}

#[apply(each_backend)]
fn a_node_whose_edge_was_changed_is_named() {
    let thread = new_thread();
    let flow = |joined: &str| {
        graph()
            .node("a", ask)
            .node(joined, |_: &DynState| Ok(()))
            .node("last", ask)
            .edge(START, "a")
            .edge(START, joined)
            .join(["a", joined], "last")
            .compile()
            .unwrap()
    };
    flow("b").invoke(&thread, DynUpdate::new().set("n", 1)).unwrap();
    flow("b").invoke(&thread, Command::resume(1)).unwrap();
    // The join of the changed graph has another channel, so that nothing leads to `last`.
    assert_eq!(missing(flow("c").invoke(&thread, Command::resume(2))), ["last"]);
    assert_eq!(flow("b").invoke(&thread, Command::resume(2)).unwrap().state().get("n"), &Value::from(2));
}

#[apply(each_backend)]
fn a_due_node_that_a_subgraph_lacks_is_named() {
    let (log, thread) = (Log::default(), new_thread());
    let flow = |asks: &str| {
        let inside = asking(asks, None, &log);
        graph().node("inside", inside).edge(START, "inside").compile().unwrap()
    };
    flow("ask").invoke(&thread, DynUpdate::new().set("n", 1)).unwrap();
    let error = flow("approve").invoke(&thread, Command::resume(true)).unwrap_err();
    assert!(error.to_string().contains("node \"ask\" is due"), "{error}");
    assert_eq!(log.take(), Vec::<String>::new());
    flow("ask").invoke(&thread, Command::resume(true)).unwrap();
    assert_eq!(log.take(), ["pay"]);
}

#[apply(each_backend)]
fn a_new_input_leaves_a_node_behind_that_the_graph_lacks() {
    let (log, thread) = (Log::default(), new_thread());
    asking("ask", None, &log).invoke(&thread, DynUpdate::new().set("n", 1)).unwrap();
    let new = asking("approve", None, &log);
    new.invoke(&thread, DynUpdate::new().set("n", 2)).unwrap();
    assert_eq!(new.invoke(&thread, Command::resume(3)).unwrap().state().get("n"), &Value::from(3));
    assert_eq!(log.take(), ["pay"]);
}

#[apply(each_backend)]
fn a_worker_stops_claiming_a_run_whose_due_node_its_graph_lacks_and_says_why() {
    let (log, store) = (Log::default(), place());
    let (answered, failed) = (store.thread("answered").unwrap(), store.thread("failed").unwrap());
    let (old, new) = (asking("ask", None, &log), asking("approve", None, &log));
    old.invoke(&answered, DynUpdate::new().set("n", 1)).unwrap();
    let open = answered.open_interrupts().unwrap();
    answered.resume_interrupt(&open[0].id, true).unwrap();
    let fails = |_: &DynState| -> NodeResult<DynUpdate> { Err("no".into()) };
    let failing = graph().node("ask", fails).edge(START, "ask").compile().unwrap();
    failing.invoke(&failed, DynUpdate::new().set("n", 1)).unwrap_err();
    assert!(failed.retry().unwrap());

    let events = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
    let told = std::sync::Arc::clone(&events);
    let worker = Worker::new(&store).register(&new).max_recoveries(3).on_event(move |event| {
        told.lock().push((event.thread.as_ref().unwrap().to_string(), event.kind.clone()));
    });
    let report = worker.run_until_idle().unwrap();
    assert_eq!((report.continued, report.stuck), (0, 2), "{report:?}");
    for thread in [&answered, &failed] {
        let ThreadStatus::Stuck(message) = ThreadStatus::of(&thread.info().unwrap()) else { panic!("{thread:?}") };
        assert!(message.starts_with("the run was continued 4 times and did not end: node \"ask\" is due"), "{message}");
    }
    let events = std::mem::take(&mut *events.lock());
    let stuck = |kind: &RunEventKind| matches!(kind, RunEventKind::Stuck { error } if error.contains("\"ask\""));
    assert!(events.len() == 2 && events.iter().all(|(_, kind)| stuck(kind)), "{events:?}");
    assert_eq!(worker.run_until_idle().unwrap(), annals_graph::WorkerReport::default());

    // The answer was not swallowed: the node is back, and takes it.
    assert!(answered.retry().unwrap());
    assert_eq!(Worker::new(&store).register(&old).run_until_idle().unwrap().continued, 1);
    assert_eq!((ThreadStatus::of(&answered.info().unwrap()), log.take()), (ThreadStatus::Done, vec!["pay".to_owned()]));
}

/// A graph whose node `last` joins one that has ended and `b`, which follows an interrupt.
fn joining(first: &str, log: &Log) -> Graph {
    graph()
        .node(first, note(log, "first"))
        .node("ask", ask)
        .node("b", note(log, "b"))
        .node("last", note(log, "last"))
        .edge(START, first)
        .edge(START, "wait")
        .node("wait", |_: &DynState| Ok(()))
        .edge("wait", "ask")
        .edge("ask", "b")
        .join([first, "b"], "last")
        .compile()
        .unwrap()
}

#[apply(each_backend)]
fn a_renamed_node_that_has_reached_a_join_is_named_with_the_join() {
    let (log, thread) = (Log::default(), new_thread());
    let (old, new) = (joining("first", &log), joining("renamed", &log));
    old.invoke(&thread, DynUpdate::new().set("n", 1)).unwrap();
    let head = thread.head().unwrap();
    for error in [
        new.invoke(&thread, Command::resume(true)).unwrap_err(),
        new.invoke(&thread, Input::Continue).unwrap_err(),
        new.invoke(head.as_ref().unwrap(), Input::Continue).unwrap_err(),
    ] {
        let Some(RunError::JoinMissing { node, arrived, missing, .. }) = error.as_run() else { panic!("{error:?}") };
        assert_eq!((node.as_str(), &arrived[..], &missing[..]), ("last", &["first".to_owned()][..], &arrived[..]));
        let message = error.to_string();
        assert!(message.contains("\"first\" reached the join before node \"last\""), "{message}");
        assert!(message.contains("it lacks node \"first\""), "{message}");
    }
    assert_eq!(thread.head().unwrap(), head);
    old.invoke(&thread, Command::resume(true)).unwrap();
    assert_eq!(log.take(), ["first", "b", "last"]);

    // A run that allows it goes on without the join.
    let thread = new_thread();
    old.invoke(&thread, DynUpdate::new().set("n", 1)).unwrap();
    let allowed = new.run(&thread).allow_changed_graph(true).invoke(Command::resume(true)).unwrap();
    assert_eq!((allowed.interrupts(), log.take()), (&[][..], vec!["first".to_owned(), "b".to_owned()]));
}

#[apply(each_backend)]
fn an_arrival_of_a_run_before_the_last_input_is_not_missed() {
    let (log, thread) = (Log::default(), new_thread());
    let (old, new) = (joining("first", &log), joining("renamed", &log));
    old.invoke(&thread, DynUpdate::new().set("n", 1)).unwrap();
    // The new input abandons the run whose node has reached the join.
    new.invoke(&thread, DynUpdate::new().set("n", 2)).unwrap();
    new.invoke(&thread, Command::resume(true)).unwrap();
    assert_eq!(log.take(), ["first", "first", "b", "last"]);
}
