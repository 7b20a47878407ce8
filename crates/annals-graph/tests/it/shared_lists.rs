//! Tests lists that go into subgraphs and come back: the values that are stored of them, and that sharing is not
//! observable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use annals::store::batch::WriteValue;
use annals::store::log::LogExt;
use annals::store::{ItemRange, OpenOptions};
use annals_graph::prelude::*;
use macro_rules_attribute::apply;
use proptest::prelude::*;

use crate::backends::{place, place_with};
use crate::cases;
use crate::clock::{SimClock, beside};

#[derive(State, Clone, Default, Debug)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
    #[channel(append)]
    log: List<String>,
    #[channel(last)]
    plan: String,
}

#[derive(State, Clone, Default, Debug)]
struct Inner {
    #[channel(messages)]
    messages: Messages,
    #[channel(append)]
    log: List<String>,
    #[channel(last)]
    plan: String,
}

fn thread() -> Thread {
    place().thread("t").unwrap()
}

fn long(count: usize) -> Vec<Message> {
    (0..count).map(|n| Message::human(format!("number {n} {}", "x".repeat(80))).with_id(format!("m{n}"))).collect()
}

fn says(messages: &Messages) -> Vec<String> {
    messages.iter().map(|message| format!("{}={}", message.id.as_deref().unwrap_or("?"), message.text())).collect()
}

/// Number of random runs so far, on files that several runs share.
static CASE: AtomicU64 = AtomicU64::new(0);

/// Returns the edits of a plan to the messages, word by word: `+a` adds or replaces, `-a` removes, `!` removes all, `?`
/// interrupts.
fn edits(plan: &str) -> Vec<Message> {
    let edit = |word: &str| match word.split_at(1) {
        ("+", id) => Message::ai(format!("{plan} says {id}")).with_id(id),
        ("-", id) => Message::remove(id),
        _ => Message::remove_all(),
    };
    plan.split_whitespace().filter(|word| *word != "?").map(edit).collect()
}

fn inner() -> CompiledGraph<Inner> {
    inside().edge(START, "edit").compile().unwrap()
}

fn inside() -> StateGraph<Inner> {
    StateGraph::<Inner>::new()
        .node("edit", |state: &Inner| Ok(Inner::update().messages(edits(&state.plan))))
        .node("ask", |state: &Inner, context: &Context| {
            if state.plan.contains('?') {
                context.interrupt("go on?")?;
            }
            let last = Message::ai(format!("{} seen", state.messages.len())).with_id("last");
            Ok(Inner::update().messages([last]).log(["asked".to_owned()]))
        })
        .edge("edit", "ask")
}

/// Runs the graph with one node that is a graph, or that calls one with copies of its lists.
fn around(shares: bool) -> CompiledGraph<Chat> {
    let graph = StateGraph::<Chat>::new();
    let inner = inner();
    let graph = if shares {
        graph.node("inner", inner)
    } else {
        graph.node("inner", move |state: &Chat, context: &Context| {
            let update = Inner::update().messages(state.messages.to_vec()).log(state.log.to_vec());
            let done = inner.invoke(context, update.plan(state.plan.clone()))?;
            let state = done.state();
            let update = Chat::update().messages(state.messages.to_vec()).log(state.log.to_vec());
            Ok(update.plan(state.plan.clone()))
        })
    };
    graph.edge(START, "inner").compile().unwrap()
}

fn turn(graph: &CompiledGraph<Chat>, thread: &Thread, plan: &str) -> Chat {
    let done = graph.invoke(thread, Chat::update().plan(plan.to_owned())).unwrap();
    if done.is_done() {
        return done.state().clone();
    }
    graph.invoke(thread, Command::resume("yes")).unwrap().state().clone()
}

/// Returns the number of stored values.
fn stored(thread: &Thread) -> u64 {
    let report = thread.store().check().unwrap();
    assert_eq!(report.problems, []);
    report.values
}

#[apply(each_backend)]
fn a_turn_stores_what_it_changed_however_long_the_list_is() {
    let chosen = inside().branch(START, |_: &Inner| "edit").compile().unwrap();
    let chosen = StateGraph::<Chat>::new().node("inner", chosen).edge(START, "inner").compile().unwrap();
    for (name, graph) in [("an edge", around(true)), ("a conditional edge", chosen)] {
        assert_flat(name, &graph);
    }
}

fn assert_flat(name: &str, graph: &CompiledGraph<Chat>) {
    let mut costs = Vec::new();
    for count in [50, 1_000] {
        let thread = thread().store().thread(format!("{name} {count}")).unwrap();
        graph.invoke(&thread, Chat::update().messages(long(count)).plan("")).unwrap();
        let before = stored(&thread);
        turn(graph, &thread, "+a +m7 ?");
        turn(graph, &thread, "+b -m9");
        costs.push(stored(&thread) - before);
    }
    assert!(costs[0] == costs[1] && costs[1] < 100, "{name}: {costs:?}");
}

#[apply(each_backend)]
fn an_input_that_was_not_taken_is_found_again() {
    let (clock, hangs) = (SimClock::default(), Arc::new(AtomicBool::new(true)));
    let begins = Arc::clone(&hangs);
    let path = move |_: Arc<Inner>, _: Context| {
        let hangs = begins.swap(false, Ordering::SeqCst);
        async move {
            if hangs {
                std::future::pending::<()>().await;
            }
            "edit"
        }
    };
    let inner = inside().branch(START, path).step_timeout(Duration::from_millis(500)).compile().unwrap();
    let graph = StateGraph::<Chat>::new().node("inner", inner).edge(START, "inner").compile().unwrap();
    let thread = place_with(OpenOptions::new().clock(clock.clone())).thread("t").unwrap();
    let input = Chat::update().messages(long(30)).plan("+m3 +x");
    let run = graph.run(&thread).timer(clock.clone());
    beside(&clock, 1, || !hangs.load(Ordering::SeqCst), || run.invoke(input)).unwrap_err();
    let before = stored(&thread);
    let done = graph.invoke(&thread, Input::Continue).unwrap();
    assert_eq!(done.state().messages.len(), 32);
    assert_eq!(done.state().messages[3].text(), "+m3 +x says m3");
    assert!(stored(&thread) - before < 60, "{}", stored(&thread) - before);
}

#[apply(each_backend)]
fn what_comes_of_a_list_is_told_by_what_differs() {
    let (graph, thread) = (around(true), thread());
    graph.invoke(&thread, Chat::update().messages(long(20)).plan("?")).unwrap();
    graph.invoke(&thread, Command::resume("yes")).unwrap();
    graph.invoke(&thread, Chat::update().plan("+m3 -m5 +n")).unwrap();
    let mut history = thread.history().unwrap().map(|snapshot| snapshot.unwrap());
    let wrote = history.nth(1).unwrap().writes().unwrap();
    let write = wrote.iter().find(|write| &*write.channel == "messages").unwrap();
    let WriteValue::Delta(delta) = &write.value else { panic!("{write:?}") };
    assert_eq!(delta.positions, [3, 20, 21]);
    assert!(delta.removed.iter().eq([&(5..6)]), "{:?}", delta.removed);
    let shown = write.to_value().unwrap();
    let items = shown.get("$delta").and_then(|delta| delta.get("items")).unwrap();
    assert_eq!(items.get("3").and_then(|item| item.get("content")), Some(&"+m3 -m5 +n says m3".into()), "{shown:?}");
}

#[apply(each_backend)]
fn a_graph_inside_shows_its_whole_list_and_where_it_came_from() {
    let (graph, thread) = (around(true), thread());
    graph.invoke(&thread, Chat::update().messages(long(40)).plan("+m3 -m39 -m1 ?")).unwrap();
    let state = graph.state_with_subgraphs(&thread).unwrap();
    let inside = format!("{:?}", state.tasks[0].state);
    assert!(inside.contains("+m3 -m39 -m1 ? says m3"), "{inside}");
    let namespaces = thread.store().backend().namespaces(thread.id()).unwrap();
    let child = thread.in_namespace(namespaces[1].as_str()).unwrap();
    let head = child.head().unwrap().unwrap();
    let all = head.items("messages", ItemRange::All).unwrap();
    assert_eq!(all.len(), 38);
    let tail = head.items("messages", ItemRange::Tail(3)).unwrap();
    assert_eq!(tail, all[35..]);
    let some = head.items("messages", ItemRange::Positions(2, 6)).unwrap();
    assert_eq!(some, all[1..5]);
    assert_eq!(head.messages("messages", ItemRange::All).unwrap().len(), 38);
    let of = thread.store().backend().list_reference(head.point(), "messages").unwrap().unwrap();
    assert!(of.namespace.is_root() && &*of.channel == "messages");
    let first = child.history().unwrap().nth(1).unwrap().unwrap();
    let changed = annals::history::diff(&first, &head).unwrap();
    assert_eq!(changed.channels.len(), 1, "{changed:?}");
}

#[apply(each_backend)]
fn siblings_each_count_what_they_changed() {
    let mut ends = Vec::new();
    for shares in [true, false] {
        let thread = thread().store().thread(format!("{shares}")).unwrap();
        let mut graph = StateGraph::<Chat>::new();
        for (name, plan) in [("a", "+m1 +x -m4"), ("b", "+m2 +y +m4"), ("c", "-m6 +m1")] {
            let child = inner();
            let own = StateGraph::<Inner>::new()
                .node("plan", move |_: &Inner| Ok(Inner::update().plan(plan.to_owned())))
                .node("work", child)
                .edge(START, "plan")
                .edge("plan", "work")
                .output::<OnlyMessages>()
                .compile()
                .unwrap();
            graph = if shares {
                graph.node(name, own)
            } else {
                graph.node(name, move |state: &Chat, context: &Context| {
                    let done = own.invoke(context, Inner::update().messages(state.messages.to_vec()))?;
                    Ok(Chat::update().messages(done.state().messages.to_vec()))
                })
            };
            graph = graph.edge(START, name);
        }
        let graph = graph.compile().unwrap();
        let done = graph.invoke(&thread, Chat::update().messages(long(10))).unwrap();
        stored(&thread);
        assert_eq!(says(&graph.get_state(&thread).unwrap().values.messages), says(&done.state().messages));
        ends.push(says(&done.state().messages));
    }
    assert_eq!(ends[0], ends[1]);
}

#[derive(State, Clone, Default, Debug)]
#[state(part_of = Inner)]
struct OnlyMessages {
    #[channel(messages)]
    messages: Messages,
}

#[apply(each_backend)]
fn what_one_sibling_has_ended_with_waits_for_the_other() {
    let graph = StateGraph::<Chat>::new()
        .node("inner", inner())
        .node("ask", |_: &Chat, context: &Context| {
            let answer = context.interrupt("name?")?;
            Ok(Chat::update().messages([Message::human(answer.to_json().to_string()).with_id("answer")]))
        })
        .edge(START, "inner")
        .edge(START, "ask")
        .compile()
        .unwrap();
    let thread = thread();
    graph.invoke(&thread, Chat::update().messages(long(12)).plan("+m2 -m3 +z")).unwrap();
    let state = graph.get_state(&thread).unwrap();
    let result = state.tasks.iter().find(|task| &*task.name == "inner").unwrap().result.as_ref().unwrap();
    let shown = result.get("messages").and_then(Value::as_list).unwrap();
    assert_eq!(shown.len(), 13, "twelve, one gone, two new");
    let done = graph.invoke(&thread, Command::resume("me")).unwrap();
    let ids: Vec<_> = done.state().messages.iter().filter_map(|message| message.id.as_deref()).collect();
    assert_eq!(ids[ids.len() - 3..], ["answer", "z", "last"], "{ids:?}");
    assert_eq!(done.state().messages[3].id.as_deref(), Some("m3"), "what is gone inside is not gone here");
    assert_eq!(done.state().messages[2].text(), "+m2 -m3 +z says m2");
    stored(&thread);
}

#[apply(each_backend)]
fn a_fork_and_an_edit_leave_what_was_shared() {
    let (graph, thread) = (around(true), thread());
    graph.invoke(&thread, Chat::update().messages(long(12)).plan("+x ?")).unwrap();
    let before = thread.head().unwrap().unwrap();
    graph.invoke(&thread, Command::resume("yes")).unwrap();
    graph.update_state(&thread, Chat::update().messages([Message::remove_all()]), None).unwrap();
    let fork = before.fork_to("fork").unwrap();
    let done = graph.invoke(&fork, Command::resume("yes")).unwrap();
    assert_eq!(done.state().messages.len(), 14);
    let child = thread.store().backend().namespaces(thread.id()).unwrap().remove(1);
    let head = thread.in_namespace(child.as_str()).unwrap().head().unwrap().unwrap();
    assert_eq!(head.messages("messages", ItemRange::All).unwrap().len(), 14);
    stored(&thread);
    let deleted = thread.store().delete_threads(["t", "fork"]);
    assert!(deleted.unwrap().is_erased());
    stored(&thread);
}

fn plan() -> impl Strategy<Value = String> {
    let id = prop::sample::select(vec!["m0", "m1", "m3", "m8", "m9", "a", "b", "c"]);
    let word = prop_oneof![
        6 => id.prop_map(|id| format!("+{id}")),
        1 => Just("!".to_owned()),
        1 => Just("?".to_owned()),
    ];
    prop::collection::vec(word, 0..6).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(4, 24) as u32, ..ProptestConfig::default() })]

    #[apply(each_backend)]
    fn nobody_can_tell_a_shared_list_from_a_copy(count in 0_usize..12, plans in prop::collection::vec(plan(), 1..4)) {
        let folder = place();
        let case = CASE.fetch_add(1, Ordering::Relaxed);
        let [mut shared, mut copied] = [Vec::new(), Vec::new()];
        for (shares, said) in [(true, &mut shared), (false, &mut copied)] {
            let (graph, thread) = (around(shares), folder.thread(format!("{case} {shares}")).unwrap());
            graph.invoke(&thread, Chat::update().messages(long(count)).plan("")).unwrap();
            for plan in &plans {
                let state = turn(&graph, &thread, plan);
                prop_assert_eq!(says(&state.messages), says(&graph.get_state(&thread).unwrap().values.messages));
                said.push((says(&state.messages), state.log.to_vec(), state.plan));
            }
            stored(&thread);
        }
        prop_assert_eq!(shared, copied);
    }
}
