//! Tests commands as input, resume values, the state after a failed conditional edge, and runs that are persisted when
//! they end.

use annals::state::DynState;
use annals::store::Source;
use annals_graph::Durability;
use annals_graph::prelude::*;
use annals_graph::task::Interrupt;
use annals_graph::{ResumeProblem, RunError};
use macro_rules_attribute::apply;

use crate::backends::{place, same_after_reload};

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Log {
    #[channel(append)]
    lines: List<String>,
    #[channel(messages)]
    messages: Messages,
    #[channel(untracked)]
    secret: String,
}

fn line(text: &str) -> LogUpdate {
    Log::update().lines([text.to_string()])
}

fn lines(state: &Log) -> Vec<String> {
    state.lines.to_vec()
}

fn thread() -> Thread {
    place().thread("t").unwrap()
}

fn node(name: &'static str) -> impl Fn(&Log) -> NodeResult<LogUpdate> {
    move |_| Ok(line(name))
}

fn ask(name: &'static str) -> impl Fn(&Log, &Context) -> NodeResult<LogUpdate> {
    move |_, ctx| Ok(line(&format!("{name}: {}", ctx.interrupt(name)?.as_str().unwrap_or_default())))
}

/// a -> b
fn chain() -> CompiledGraph<Log> {
    let graph = StateGraph::<Log>::new().node("a", node("a")).node("b", node("b"));
    graph.edge(START, "a").edge("a", "b").compile().unwrap()
}

/// p, q and k beside each other
fn asking() -> CompiledGraph<Log> {
    let graph = StateGraph::<Log>::new().node("p", ask("p")).node("q", ask("q")).node("k", node("k"));
    graph.edge(START, "p").edge(START, "q").edge(START, "k").compile().unwrap()
}

fn answers<const N: usize>(given: [(&Interrupt, &str); N]) -> Command {
    let map = given.into_iter().map(|(interrupt, answer)| (interrupt.id.clone(), Value::from(answer)));
    Command::resume(Value::Map(map.collect()))
}

#[apply(each_backend)]
fn a_command_starts_a_new_thread_as_its_input() {
    let (graph, thread) = (chain(), thread());
    let command = Command::update(line("u")).and_goto("b");
    let done = graph.invoke(&thread, command).unwrap();
    // As in the reference the change counts twice: before the input, and with it.
    assert_eq!(lines(done.state()), ["u", "u", "a", "b", "b"]);
    let sources: Vec<_> =
        thread.history().unwrap().map(|at| (at.as_ref().unwrap().source(), at.unwrap().step())).collect();
    assert_eq!(sources, [(Source::Loop, 2), (Source::Loop, 1), (Source::Loop, 0), (Source::Input, -1)]);
    same_after_reload(&graph, &thread);
    for (command, on) in [(Command::new(), &thread), (Command::resume(Value::Null), &thread)] {
        let error = graph.invoke(on, command).unwrap_err();
        assert!(matches!(error.as_run(), Some(RunError::EmptyInput)), "{error}");
    }
    let error = graph.invoke((), Command::resume("x")).unwrap_err();
    assert!(matches!(error.as_run(), Some(RunError::NoStore)), "{error}");
}

#[apply(each_backend)]
fn a_command_that_waits_as_input_survives_a_crash() {
    let graph = StateGraph::<Log>::new()
        .node("a", node("a"))
        .node("b", node("b"))
        .branch(START, |_: &Log, ctx: &Context| -> NodeResult<String> {
            Ok(ctx.interrupt("where?")?.as_str().unwrap_or_default().to_string())
        })
        .compile()
        .unwrap();
    let thread = thread();
    let command = Command::update(line("u")).and_update(line("v")).and_goto(SendTo::new("b", 1));
    let asked = graph.invoke(&thread, command).unwrap();
    assert_eq!(asked.interrupts()[0].value, Value::from("where?"));
    thread.store().clear_head_cache();
    let done = graph.invoke(&thread, Command::resume("a")).unwrap();
    assert_eq!(lines(done.state()), ["u", "v", "u", "v", "a", "b"]);
}

#[apply(each_backend)]
fn an_answer_is_for_the_superstep_that_asked() {
    let graph = StateGraph::<Log>::new()
        .node("a", node("a"))
        .node("p", ask("p"))
        .edge(START, "a")
        .edge("a", "p")
        .interrupt_before(["a"])
        .compile()
        .unwrap();
    let thread = thread();
    graph.invoke(&thread, Log::update()).unwrap();
    let asked = graph.invoke(&thread, Command::resume("too early")).unwrap();
    assert_eq!(asked.interrupts().len(), 1, "the breakpoint took the answer");
    assert_eq!(lines(graph.invoke(&thread, Command::resume("now")).unwrap().state()), ["a", "p: now"]);
}

#[apply(each_backend)]
fn strict_answers_must_fit_open_questions() {
    let (graph, thread) = (asking(), thread());
    let asked = graph.invoke(&thread, Log::update()).unwrap();
    let [p, q] = asked.interrupts() else { panic!("{asked:?}") };
    let refused = |command: Command| match graph.run(&thread).strict_resume(true).invoke(command).unwrap_err().as_run()
    {
        Some(RunError::UnknownInterrupt { problem, pending }) => (problem.reason(), pending.len()),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(Command::resume("x")), (ResumeProblem::Ambiguous.reason(), 2));
    assert_eq!(refused(Command::resume(Value::Map(Default::default()))), ("empty_map", 2));
    graph.run(&thread).strict_resume(true).invoke(answers([(p, "1")])).unwrap();
    assert_eq!(refused(answers([(p, "again"), (q, "2")])), ("not_pending", 1));
    let done = graph.run(&thread).strict_resume(true).invoke(answers([(q, "2")])).unwrap();
    assert_eq!(lines(done.state()), ["k", "p: 1", "q: 2"]);
}

#[apply(each_backend)]
fn a_resume_value_for_another_interrupt_than_the_one_that_was_seen_is_refused() {
    let graph = StateGraph::<Log>::new()
        .node("pay", |log: &Log, ctx: &Context| {
            let value = ctx.interrupt(format!("pay {:?}?", lines(log)))?;
            Ok(line(&format!("paid: {value}")))
        })
        .edge(START, "pay")
        .compile()
        .unwrap();
    let thread = thread();
    let shown = graph.invoke(&thread, Log::update()).unwrap().interrupts()[0].clone();
    // Another run of the thread interrupts at the same place, with another value.
    graph.invoke(&thread, line("more")).unwrap();
    thread.store().clear_head_cache();
    let refused = |command: Command| match graph.invoke(&thread, command).unwrap_err().as_run() {
        Some(RunError::UnknownInterrupt { problem: ResumeProblem::Changed { ids }, .. }) => ids.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(Command::resume("yes").and_seen(&shown.id, shown.hash())), [&*shown.id]);
    let open = graph.get_state(&thread).unwrap().interrupts;
    let [open] = &open[..] else { panic!("{open:?}") };
    assert_ne!(open.hash(), shown.hash());
    assert_eq!(refused(Command::resume("yes").and_seen(&open.id, shown.hash())), [&*open.id]);
    let done = graph.invoke(&thread, Command::resume("yes").and_seen(&open.id, open.hash())).unwrap();
    assert_eq!(lines(done.state()).last().map(String::as_str), Some("paid: yes"));
}

#[apply(each_backend)]
fn a_node_whose_conditional_edge_failed_has_ended() {
    let graph = StateGraph::<Log>::new()
        .node("a", node("a"))
        .node("b", node("b"))
        .edge(START, "a")
        .edge("a", "b")
        .branch("a", |_: &Log| -> NodeResult<&'static str> { Err("no way".into()) })
        .compile()
        .unwrap();
    let thread = thread();
    graph.invoke(&thread, Log::update()).unwrap_err();
    let state = graph.get_state(&thread).unwrap();
    assert_eq!((lines(&state.values), state.next), (vec!["a".to_string()], vec![]));
    assert!(state.tasks[0].error.as_ref().unwrap().contains("no way") && state.tasks[0].result.is_some());
    same_after_reload(&graph, &thread);
    assert_eq!(lines(graph.invoke(&thread, Input::Continue).unwrap().state()), ["a", "b"]);
}

#[apply(each_backend)]
fn what_lasts_for_one_run_is_not_stored_with_a_send() {
    let graph = StateGraph::<Log>::new()
        .branch(START, |_: &Log| {
            let arg = [("secret", "s"), ("lines", "x")].map(|(name, value)| (name.to_string(), Value::from(value)));
            SendTo::new("w", Value::Map(arg.into_iter().collect()))
        })
        .node("w", |s: &Log, ctx: &Context| {
            ctx.interrupt("?")?;
            Ok(line(&format!("secret {:?}", s.secret)))
        })
        .compile()
        .unwrap();
    let thread = thread();
    graph.invoke(&thread, Log::update()).unwrap();
    thread.store().clear_head_cache();
    assert_eq!(lines(graph.invoke(&thread, Command::resume("go")).unwrap().state()), ["secret \"\""]);
}

#[apply(each_backend)]
fn a_run_that_is_saved_when_it_ends_makes_one_checkpoint() {
    let graph = StateGraph::<Log>::new()
        .node("a", |_: &Log| Ok(line("a").messages([Message::human("hi").with_id("1"), Message::ai("x").with_id("2")])))
        .node("b", |_: &Log| Ok(line("b").messages([Message::remove("2"), Message::human("ho").with_id("1")])))
        .node("c", ask("c"))
        .edge(START, "a")
        .edge("a", "b")
        .edge("b", "c")
        .compile()
        .unwrap();
    let thread = thread();
    let history = || {
        thread
            .history()
            .unwrap()
            .map(|at| (at.as_ref().unwrap().step(), at.unwrap().record().parent))
            .collect::<Vec<_>>()
    };
    graph.run(&thread).durability(Durability::Exit).invoke(line("in")).unwrap();
    assert_eq!(history(), [(2, None)]);
    let state = graph.get_state(&thread).unwrap();
    assert_eq!(
        (lines(&state.values), state.next, state.interrupts.len()),
        (vec!["in".into(), "a".into(), "b".into()], vec!["c".into()], 1)
    );
    same_after_reload(&graph, &thread);

    let first = thread.head().unwrap().unwrap().id();
    graph.run(&thread).durability(Durability::Exit).invoke(Command::resume("yes").and_update(line("u"))).unwrap();
    assert_eq!(history(), [(3, Some(first)), (2, None)]);
    same_after_reload(&graph, &thread);
    let state = graph.get_state(&thread).unwrap().values;
    assert_eq!(lines(&state), ["in", "a", "b", "u", "c: yes"]);
    assert_eq!(state.messages.iter().map(|m| m.text().to_string()).collect::<Vec<_>>(), ["ho"]);
    // A run of many supersteps on a stored head, and nothing to do.
    graph.run(&thread).durability(Durability::Exit).invoke(line("again")).unwrap();
    graph.run(&thread).durability(Durability::Exit).invoke(Command::resume("2")).unwrap();
    graph.run(&thread).durability(Durability::Exit).invoke(Input::Continue).unwrap();
    assert_eq!(history().iter().map(|(step, _)| *step).collect::<Vec<_>>(), [8, 7, 3, 2]);
    same_after_reload(&graph, &thread);
}

#[apply(each_backend)]
fn what_ended_of_a_run_that_failed_is_saved_when_it_ends() {
    let failing = |_: &Log| -> NodeResult<LogUpdate> { Err("down".into()) };
    let graph = StateGraph::<Log>::new().node("a", node("a")).node("k", node("k")).node("f", failing);
    let graph = graph.edge(START, "a").edge("a", "k").edge("a", "f").compile().unwrap();
    let thread = thread();
    graph.run(&thread).durability(Durability::Exit).invoke(Log::update()).unwrap_err();
    assert_eq!(thread.history().unwrap().count(), 1);
    thread.store().clear_head_cache();
    let state = graph.get_state(&thread).unwrap();
    assert_eq!((lines(&state.values), state.next), (vec!["a".to_string(), "k".into()], vec!["f".to_string()]));
    // A command that could not help is kept for the next attempt.
    let command = Command::update(line("u"));
    graph.run(&thread).durability(Durability::Exit).invoke(command).unwrap_err();
    thread.store().clear_head_cache();
    assert_eq!(lines(&graph.get_state(&thread).unwrap().values), ["a", "u", "k"]);
    assert!(thread.store().check().unwrap().problems.is_empty());
}

#[apply(each_backend)]
fn what_lasts_for_one_superstep_is_gone_when_a_task_of_the_next_has_ended() {
    let schema = DynSchema::new().append("lines").any("any").ephemeral("once", true).last("n").build();
    let ended = |text: &'static str| move |_: &DynState| Ok(DynUpdate::new().set("lines", text));
    let graph = StateGraph::with_schema(schema)
        .node("a", |_: &DynState| Ok(DynUpdate::new().set("any", 1).set("once", 2)))
        .node("k", ended("k"))
        .node("p", |_: &DynState, ctx: &Context| Ok(DynUpdate::new().set("lines", ctx.interrupt("?")?)))
        .edge(START, "a")
        .edge("a", "k")
        .edge("a", "p")
        .compile()
        .unwrap();
    let thread = thread();
    graph.invoke(&thread, DynUpdate::new()).unwrap();
    let seen = |state: &DynState| [state.get("any").as_int(), state.get("once").as_int()];
    let head = thread.head().unwrap().unwrap();
    assert_eq!(seen(&graph.get_state(&head).unwrap().values), [Some(1), Some(2)], "as the superstep began");
    let live = graph.get_state(&thread).unwrap();
    assert_eq!(seen(&live.values), [None, None]);
    // A command and a task may write one channel: they do so one after the other.
    graph.invoke(&thread, Command::update(DynUpdate::new().set("lines", "u"))).unwrap();
    assert_eq!(graph.get_state(&thread).unwrap().values.list("lines").unwrap().len(), 2);
}

/// The same channels as [`Ab`], in another order: an update of one must not reach the other by position.
#[derive(State, Clone, Default, Debug)]
struct Ba {
    b: String,
    a: String,
    #[channel(append)]
    lines: List<String>,
}

#[derive(State, Clone, Default, Debug)]
struct Ab {
    a: String,
    b: String,
    lines: Vec<String>,
}

fn written(outcome: &Outcome<Ab>) -> (&str, &str) {
    let state = outcome.state();
    (&state.a, &state.b)
}

#[apply(each_backend)]
fn the_update_of_another_state_goes_to_the_channels_of_the_same_names() {
    let graph = StateGraph::<Ab>::new()
        .node("n", |_: &Ab| Ok(Command::update(Ba::update().a("for a").lines(["l".to_string()]))))
        .edge(START, "n")
        .compile()
        .unwrap();
    let outcome = graph.invoke(&thread(), Ab::update()).unwrap();
    assert_eq!(written(&outcome), ("for a", ""));
    assert_eq!(outcome.state().lines, ["l"], "a list goes into one value, as its type wants it");

    let other = StateGraph::<Ba>::new()
        .node("n", |_: &Ba| {
            Ok(Command::update(Ba::update().a("for a")).and_update(Ab::update().b("for b")).to_parent())
        })
        .edge(START, "n")
        .compile()
        .unwrap();
    let graph = StateGraph::<Ab>::new().node("inside", other.clone()).edge(START, "inside").compile().unwrap();
    assert_eq!(written(&graph.invoke((), Ab::update()).unwrap()), ("for a", "for b"));

    let graph = StateGraph::with_schema(DynSchema::new().last("a").last("b").build())
        .node("inside", other.clone())
        .edge(START, "inside")
        .compile()
        .unwrap();
    let outcome = graph.invoke((), DynUpdate::new()).unwrap();
    assert_eq!((outcome.state().get("a"), outcome.state().get("b")), (&"for a".into(), &"for b".into()));

    let graph = StateGraph::with_schema(DynSchema::new().last("b").build())
        .node("inside", other)
        .edge(START, "inside")
        .compile()
        .unwrap();
    let error = graph.invoke((), DynUpdate::new()).unwrap_err();
    assert!(error.to_string().contains("no channel \"a\""), "{error}");
}

#[apply(each_backend)]
fn a_dynamic_update_fits_a_typed_graph_by_name() {
    let graph = StateGraph::<Ab>::new()
        .node("n", |_: &Ab| Ok((Command::goto_all([END]), DynUpdate::from([("b", "from the node")]))))
        .edge(START, "n")
        .compile()
        .unwrap();
    let thread = thread();
    let outcome = graph.invoke(&thread, DynUpdate::from([("a", "from outside")])).unwrap();
    assert_eq!(written(&outcome), ("from outside", "from the node"));
    graph.update_state(&thread, DynUpdate::from([("a", "edited")]), None).unwrap();
    assert_eq!(graph.get_state(&thread).unwrap().values.a, "edited");
}

#[apply(each_backend)]
fn an_unknown_channel_is_an_error_that_writes_nothing_unless_the_update_is_lenient() {
    let graph = StateGraph::with_schema(DynSchema::new().last("n").build())
        .node("n", |state: &DynState| {
            let update = DynUpdate::from([("n", 2), ("typo", 3)]);
            Ok(if *state.get("n") == 1 { update.lenient() } else { update })
        })
        .edge(START, "n")
        .compile()
        .unwrap();
    let thread = thread();
    let given = graph.invoke(&thread, DynUpdate::from([("typo", 1)])).unwrap_err();
    assert_eq!((given.class(), thread.head().unwrap().is_none()), ("InvalidUpdateError", true));
    let returned = graph.invoke(&thread, DynUpdate::from([("n", 0)])).unwrap_err();
    assert!(returned.to_string().contains("the state has no channel \"typo\"; its channels are [\"n\"]"), "{returned}");
    assert_eq!(graph.get_state(&thread).unwrap().next, ["n"], "the task is still due");
    graph.update_state(&thread, DynUpdate::from([("typo", 1)]), Some("n")).unwrap_err();
    graph.update_state(&thread, DynUpdate::from([("n", 1)]), Some(START)).unwrap();
    let done = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(done.state().get("n"), &Value::from(2));
}
