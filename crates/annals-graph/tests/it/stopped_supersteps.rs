//! Tests runs that stop in the middle of a superstep: the parts that are streamed, and the state that the next run
//! finds.

use std::sync::atomic::{AtomicUsize, Ordering};

use annals::state::DynState;
use annals::store::Source;
use annals_graph::graph::{Own, Persistence, Target};
use annals_graph::prelude::*;
use annals_graph::{Durability, IntoInput, TaskState};
use annals_graph::{RunOn, StateSnapshot};
use macro_rules_attribute::apply;

use crate::backends::place;

#[derive(State, Clone, Default, Debug, PartialEq)]
struct Work {
    #[channel(append)]
    log: List<String>,
    #[channel(topic)]
    words: Vec<String>,
    #[channel(last)]
    n: i64,
    #[channel(untracked)]
    secret: Option<String>,
    #[channel(messages)]
    messages: Messages,
}

fn thread() -> Thread {
    place().thread("t").unwrap()
}

fn log(text: &str) -> NodeResult<WorkUpdate> {
    Ok(Work::update().log([text.to_string()]))
}

fn ask(_: &Work, context: &Context) -> NodeResult<WorkUpdate> {
    let answer = context.interrupt("go on?")?;
    log(answer.as_str().unwrap_or_default())
}

/// A part of a stream in a few words.
fn short(part: Result<annals_graph::StreamPart<Work>, annals_graph::Error>) -> String {
    match part.map(|part| part.data) {
        Ok(StreamData::Updates(update)) => {
            let cached = if update.cached { " cached" } else { "" };
            format!("{} {}{cached}", update.node, update.writes.to_update().unwrap().to_json())
        }
        Ok(StreamData::Interrupts(open)) => format!("asks {}", open.len()),
        Ok(StreamData::TaskStart(start)) => format!("{} starts", start.task.node()),
        Ok(StreamData::Message(part)) => {
            let place = part.metadata().get("checkpoint_ns").and_then(Value::as_str).map(str::to_owned);
            format!("{} in {}", part.message.text(), place.as_deref().unwrap_or("-").split(':').next().unwrap())
        }
        Ok(_) => "other".into(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

fn shorts<M>(
    graph: &CompiledGraph<Work>,
    on: impl RunOn,
    input: impl IntoInput<Work, M>,
    mode: StreamMode,
) -> Vec<String> {
    graph.run(on).subgraphs(true).stream(input, &[mode]).unwrap().map(short).collect()
}

#[apply(each_backend)]
fn the_state_of_an_open_superstep_shows_nothing_that_lasts_for_one() {
    let graph = StateGraph::<Work>::new()
        .node("ask", ask)
        .node("say", |_: &Work| Ok(Work::update().words(["word".to_string()]).n(1)))
        .edge(START, "ask")
        .edge(START, "say")
        .compile()
        .unwrap();
    let thread = thread();
    let asked = graph.invoke(&thread, Work::update()).unwrap();
    assert_eq!(asked.state().words, ["word"], "the run shows what has ended");
    let live: StateSnapshot<Work> = graph.get_state(&thread).unwrap();
    assert_eq!((live.values.words.len(), live.values.n), (0, 1));
    let done = graph.invoke(&thread, Command::resume("yes")).unwrap();
    assert_eq!((done.state().words.as_slice(), done.state().n), (["word".to_string()].as_slice(), 1));
}

#[apply(each_backend)]
fn results_that_exclude_each_other_fail_a_run_that_waits_for_an_answer() {
    let graph = StateGraph::<Work>::new()
        .node("ask", ask)
        .node("one", |_: &Work| Ok(Work::update().n(1)))
        .node("two", |_: &Work| Ok(Work::update().n(2)))
        .edge(START, "ask")
        .edge(START, "one")
        .edge(START, "two")
        .compile()
        .unwrap();
    let thread = thread();
    let error = graph.invoke(&thread, Work::update()).unwrap_err();
    assert_eq!(error.code(), Some("INVALID_CONCURRENT_GRAPH_UPDATE"));
    // Its question is kept, and so is the conflict.
    let at = thread.head().unwrap().unwrap();
    assert_eq!(graph.get_state(&at).unwrap().interrupts.len(), 1);
    let error = graph.invoke(&thread, Command::resume("yes")).unwrap_err();
    assert_eq!(error.code(), Some("INVALID_CONCURRENT_GRAPH_UPDATE"));
    // Tasks that need not run again are shown before the superstep fails again.
    let seen = shorts(&graph, &thread, Input::Continue, StreamMode::Updates);
    let wanted = ["ask {\"log\":[\"yes\"]} cached", "one {\"n\":1} cached", "two {\"n\":2} cached"];
    assert_eq!(seen[..3], wanted);
    assert_eq!(seen[3..], ["Invalid"]);
}

#[apply(each_backend)]
fn nodes_that_a_fork_left_due_come_in_the_order_of_the_graph() {
    let graph = StateGraph::<Work>::new()
        .node("z", |_: &Work| log("z"))
        .node("a", ask)
        .edge(START, "z")
        .edge(START, "a")
        .compile()
        .unwrap();
    let thread = thread();
    graph.invoke(&thread, Work::update()).unwrap();
    let head = thread.head().unwrap().unwrap();
    // The replay itself starts them by name, as the superstep it repeats did.
    assert_eq!(shorts(&graph, &head, Input::Continue, StreamMode::Tasks)[..2], ["a starts", "z starts"]);
    for reloaded in [false, true] {
        if reloaded {
            thread.store().clear_head_cache();
        }
        let seen = shorts(&graph, &thread, Input::Continue, StreamMode::Tasks);
        assert_eq!(seen[..2], ["z starts", "a starts"]);
    }
}

#[apply(each_backend)]
fn a_task_that_fails_after_an_answer_shows_an_update_of_nothing() {
    let graph = StateGraph::<Work>::new()
        .node("ask", |_: &Work, context: &Context| -> NodeResult<WorkUpdate> {
            context.interrupt("go on?")?;
            Err("no".into())
        })
        .edge(START, "ask")
        .compile()
        .unwrap();
    let thread = thread();
    assert_eq!(shorts(&graph, &thread, Work::update(), StreamMode::Updates), ["asks 1"]);
    let seen = shorts(&graph, &thread, Command::resume("yes"), StreamMode::Updates);
    assert_eq!(seen[0], "ask null");
    assert_eq!(seen.len(), 2, "{seen:?}");
}

#[apply(each_backend)]
fn a_run_that_is_saved_at_its_end_goes_on_from_what_was_saved() {
    let graph = StateGraph::<Work>::new()
        .node("one", |_: &Work| log("one"))
        .node("ask", ask)
        .edge(START, "one")
        .edge("one", "ask")
        .compile()
        .unwrap();
    let thread = thread();
    let run = || graph.run(&thread).durability(Durability::Exit);
    run().invoke(Work::update()).unwrap();
    let stream = run().stream(Input::Continue, &[StreamMode::Checkpoints]).unwrap();
    for part in stream {
        let StreamData::Checkpoint(part) = part.unwrap().data else { panic!("a checkpoint") };
        assert_eq!(part.parent, None, "what lies between was never stored");
    }
}

#[apply(each_backend)]
fn what_lasts_for_one_run_is_gone_from_sends_that_wait() {
    let graph = StateGraph::<Work>::new()
        .node("fan", |_: &Work| Ok(()))
        .branch("fan", |_: &Work| {
            let members = [("secret".to_string(), Value::from("s")), ("n".to_string(), Value::from(3))];
            vec![Target::Send(SendTo::new("take", Value::Map(members.into_iter().collect())))]
        })
        .node(
            "take",
            Own(|given: Value, _: &Context| {
                log(&format!("{} {}", given.get("secret").is_some(), given.get("n").is_some()))
            }),
        )
        .edge(START, "fan")
        .compile()
        .unwrap();
    let stays = thread();
    assert_eq!(graph.invoke(&stays, Work::update()).unwrap().state().log.to_vec(), ["true true"]);
    let waits = stays.store().thread("waits").unwrap();
    graph.run(&waits).interrupt_before(["take"]).invoke(Work::update()).unwrap();
    assert_eq!(graph.invoke(&waits, Input::Continue).unwrap().state().log.to_vec(), ["false true"]);
}

#[test]
fn objects_that_a_channel_makes_messages_of_are_not_streamed() {
    let inner = StateGraph::with_schema(DynSchema::new().messages("messages").build())
        .node("object", |_: &DynState| {
            let members = [("type".to_string(), Value::from("ai")), ("content".to_string(), Value::from("object"))];
            Ok(DynUpdate::new().set("messages", Value::Map(members.into_iter().collect())))
        })
        .node("message", |_: &DynState| Ok(DynUpdate::new().messages("messages", [Message::ai("message")])))
        .edge(START, "object")
        .edge("object", "message")
        .compile()
        .unwrap();
    let graph = StateGraph::<Work>::new()
        .node("inner", inner)
        .node("outer", |_: &Work| Ok(Work::update().messages([Message::ai("outer")])))
        .edge(START, "inner")
        .edge("inner", "outer")
        .compile()
        .unwrap();
    // A message of a subgraph carries the name of the outermost task. The object is a message by the time the subgraph
    // returns it, but the second node of the subgraph has read it.
    let wanted = ["message in inner", "outer in -"];
    assert_eq!(shorts(&graph, (), Work::update(), StreamMode::Messages), wanted);
}

fn fail_once(context: &Context, calls: &AtomicUsize) -> NodeResult<()> {
    let answer = context.interrupt("go on?")?;
    match calls.fetch_add(1, Ordering::Relaxed) {
        0 => Err(format!("not yet, {}", answer.as_str().unwrap_or_default()).into()),
        _ => Ok(()),
    }
}

#[apply(each_backend)]
fn a_task_that_fails_keeps_its_answers() {
    for again in [Input::Continue, Input::Command(Command::resume("second"))] {
        let calls = AtomicUsize::new(0);
        let graph = StateGraph::<Work>::new()
            .node("ask", move |_: &Work, context: &Context| {
                fail_once(context, &calls)?;
                context.interrupt("and now?")?;
                log("both")
            })
            .edge(START, "ask")
            .compile()
            .unwrap();
        let thread = thread().store().thread(format!("{again:?}")).unwrap();
        graph.invoke(&thread, Work::update()).unwrap();
        graph.run(&thread).durability(Durability::Exit).invoke(Command::resume("first")).unwrap_err();
        let asked = graph.invoke(&thread, again.clone()).unwrap();
        // The first answer is not asked for again, and is not the answer to the second question.
        let open = asked.interrupts().iter().map(|asked| asked.value.to_json()).collect::<Vec<_>>();
        match again {
            Input::Continue => assert_eq!(open, ["and now?"]),
            _ => assert_eq!((open.len(), asked.state().log.to_vec()), (0, vec!["both".to_string()])),
        }
    }
}

#[apply(each_backend)]
fn a_change_that_comes_with_an_answer_takes_the_place_of_an_earlier_answer() {
    let graph = StateGraph::<Work>::new()
        .node("ask", |_: &Work, context: &Context| {
            let answers = [context.interrupt(1)?, context.interrupt(2)?, context.interrupt(3)?];
            log(&answers.map(|answer| answer.as_str().unwrap_or_default().to_owned()).concat())
        })
        .edge(START, "ask")
        .compile()
        .unwrap();
    for changed in [false, true] {
        let thread = thread().store().thread(format!("{changed}")).unwrap();
        graph.invoke(&thread, Work::update()).unwrap();
        // It is kept with the checkpoint: whoever asks next takes it, in each run that goes on from there.
        let asked = graph.invoke(&thread, Command::resume("a")).unwrap();
        let id = asked.interrupts()[0].id.clone();
        let mut second = Command::resume(Value::Map([(id, Value::from("b"))].into_iter().collect()));
        if changed {
            second = second.and_update(Work::update().n(1));
        }
        let left = graph.invoke(&thread, second).unwrap();
        assert_eq!((left.is_done(), left.interrupts().len()), if changed { (false, 1) } else { (true, 0) });
    }
}

#[apply(each_backend)]
fn a_new_input_drops_a_superstep_that_a_command_changed() {
    let graph = StateGraph::<Work>::new()
        .node("ends", |_: &Work| log("ends"))
        .node("ask", |_: &Work, context: &Context| {
            let answers = [context.interrupt(1)?, context.interrupt(2)?];
            log(&answers.map(|answer| answer.as_str().unwrap_or_default().to_owned()).concat())
        })
        .edge(START, "ends")
        .edge(START, "ask")
        .compile()
        .unwrap();
    let thread = thread();
    graph.invoke(&thread, Work::update()).unwrap();
    // The command answers one interrupt of two, so its change waits for the end of the superstep.
    let asked = graph.invoke(&thread, Command::resume("a").and_update(Work::update().n(1))).unwrap();
    assert_eq!(asked.interrupts().len(), 1);
    graph.invoke(&thread, Work::update()).unwrap();
    let input = thread.history().unwrap().map(Result::unwrap).find(|s| s.source() == Source::Input).unwrap();
    thread.store().clear_head_cache();
    assert_eq!(input.next().collect::<Vec<_>>(), [START], "the tasks of the superstep that was dropped are not due");
    let listed = graph.get_state(&input).unwrap();
    assert_eq!(listed.next, [START], "nor are they listed");
}

#[apply(each_backend)]
fn what_is_deferred_stays_so_when_a_new_input_drops_the_rest() {
    let last = NodeOptions::new().defer(true);
    let graph = StateGraph::<Work>::new()
        .node("one", |_: &Work| log("one"))
        .node("ask", ask)
        .node_with("last", |_: &Work| log("last"), last)
        .edge(START, "one")
        .edge("one", "ask")
        .edge("one", "last")
        .compile()
        .unwrap();
    let thread = thread();
    graph.invoke(&thread, Work::update()).unwrap();
    let asked = graph.invoke(&thread, Work::update()).unwrap();
    assert_eq!(graph.get_state(&thread).unwrap().next, ["ask"]);
    assert_eq!(asked.state().log.to_vec(), ["one", "one"], "the deferred node still waits for the others");
}

#[apply(each_backend)]
fn a_handler_that_runs_again_is_shown_to_start() {
    let handler = |_: &Work, _: &Context| log("handled");
    let graph = StateGraph::<Work>::new()
        .node("ask", ask)
        .node_with("bad", |_: &Work| -> NodeResult<()> { Err("no".into()) }, NodeOptions::new().error_handler(handler))
        .edge(START, "ask")
        .edge(START, "bad")
        .compile()
        .unwrap();
    let thread = thread();
    let first = shorts(&graph, &thread, Work::update(), StreamMode::Tasks);
    assert_eq!(first.iter().filter(|part| part.ends_with("starts")).count(), 2);
    let seen = shorts(&graph, &thread, Command::resume("yes"), StreamMode::Tasks);
    assert_eq!(seen[..3], ["ask starts", "bad starts", "__error_handler__bad starts"]);
}

#[test]
fn a_graph_inside_returns_what_it_showed_last() {
    let inner = StateGraph::<Work>::new()
        .node("say", |_: &Work| Ok(Work::update().words(["word".to_string()])))
        .node("rest", |_: &Work| Ok(()))
        .edge(START, "say")
        .edge("say", "rest")
        .compile()
        .unwrap();
    let graph = StateGraph::<Work>::new().node("inner", inner).edge(START, "inner").compile().unwrap();
    // The last superstep emptied the channel, and showed nothing.
    assert_eq!(graph.invoke((), Work::update().n(1)).unwrap().state().words, ["word"]);
}

#[apply(each_backend)]
fn a_graph_inside_that_ran_out_of_supersteps_begins_anew_if_runs_are_saved_at_their_end() {
    let inner = StateGraph::<Work>::new()
        .node("again", |_: &Work| log("again"))
        .edge(START, "again")
        .edge("again", "again")
        .compile()
        .unwrap();
    let graph = StateGraph::<Work>::new().node("inner", inner).edge(START, "inner").compile().unwrap();
    let thread = thread();
    let run = || graph.run(&thread).durability(Durability::Exit).recursion_limit(3);
    run().invoke(Work::update()).unwrap_err();
    run().invoke(Input::Continue).unwrap_err();
    let inside = graph.state_with_subgraphs(&thread).unwrap();
    let Some(TaskState::Snapshot(inside)) = &inside.tasks[0].state else { panic!("the graph inside is shown") };
    assert_eq!(inside.checkpoint, None);
}

#[apply(each_backend)]
fn two_tasks_of_a_superstep_take_turns_with_a_graph_that_keeps_its_state() {
    let inner = StateGraph::<Work>::new()
        .node("count", |work: &Work| Ok(Work::update().n(work.n + 1)))
        .edge(START, "count")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap();
    let graph = StateGraph::<Work>::new()
        .node("call", move |_: &Work, context: &Context| {
            let counted = inner.invoke(context, Work::update().log(["called".to_string()]))?;
            log(&format!("{}", counted.state().n))
        })
        .branch(START, |_: &Work| {
            vec![Target::Node("call".into()), Target::Send(SendTo::new("call", Value::Map(Default::default())))]
        })
        .compile()
        .unwrap();
    let done = graph.run(&thread()).concurrency_max(1).invoke(Work::update()).unwrap();
    assert_eq!(done.state().log.to_vec(), ["2", "1"], "the send runs first and writes last");
}

#[apply(each_backend)]
fn a_graph_that_keeps_its_state_may_end_in_one_task_and_ask_in_the_next() {
    let inner = StateGraph::<Work>::new()
        .node("ask", |work: &Work, context: &Context| {
            let asks = !work.log.is_empty();
            if asks {
                context.interrupt("again?").map(drop)?
            }
            log("asked")
        })
        .edge(START, "ask")
        .persistence(Persistence::PerThread)
        .compile()
        .unwrap();
    let graph = StateGraph::<Work>::new()
        .node("call", move |_: &Work, context: &Context| {
            inner.invoke(context, Work::update().n(1))?;
            log("called")
        })
        .branch(START, |_: &Work| {
            vec![Target::Node("call".into()), Target::Send(SendTo::new("call", Value::Map(Default::default())))]
        })
        .compile()
        .unwrap();
    let thread = thread();
    let run = || graph.run(&thread).concurrency_max(1);
    let asked = run().invoke(Work::update()).unwrap();
    assert_eq!(asked.interrupts().len(), 1, "the first of its tasks has ended");
    assert_eq!(run().invoke(Command::resume("yes")).unwrap().state().log.to_vec(), ["called", "called"]);
}
