//! Updates without a graph and runs of a graph go on from each other.

use annals::base::Map;
use annals::history::ThreadQuery;
use annals_graph::UpdateAs;
use annals_graph::prelude::*;
use annals_graph::runs::ThreadStatus;
use annals_graph::task::Task;

#[derive(State, Clone, Default)]
struct Chat {
    #[channel(messages)]
    messages: Messages,
    title: Option<String>,
}

fn on_both(test: impl Fn(&Store)) {
    test(&Store::memory());
    let folder = tempfile::tempdir().unwrap();
    test(&Store::open(folder.path().join("updates.db")).unwrap());
}

fn answering() -> StateGraph<Chat> {
    StateGraph::<Chat>::new()
        .node("answer", |chat: &Chat| Ok(Chat::update().messages([Message::ai(format!("{}", chat.messages.len()))])))
        .edge(START, "answer")
}

fn texts(chat: &Chat) -> Vec<String> {
    chat.messages.iter().map(|message| message.text().into_owned()).collect()
}

#[test]
fn a_run_goes_on_from_an_update_and_an_update_from_a_run() {
    on_both(|store| {
        let (graph, thread) = (answering().compile().unwrap(), store.thread("chat").unwrap());
        thread.update(Chat::update().messages([Message::human("a").with_id("a")]).title("t".to_string())).unwrap();
        let done = graph.invoke(&thread, Chat::update().messages([Message::human("b")])).unwrap();
        assert_eq!(texts(done.state()), ["a", "b", "2"]);
        thread.update(Chat::update().messages([Message::human("A").with_id("a"), Message::human("c")])).unwrap();
        assert!(graph.get_state(&thread).unwrap().next.is_empty());
        let done = graph.invoke(&thread, Chat::update()).unwrap();
        assert_eq!(texts(done.state()), ["A", "b", "2", "c", "4"]);
        let state = thread.with_state::<Chat>().state().unwrap();
        assert_eq!((texts(&state), state.title.as_deref()), (texts(done.state()), Some("t")));
        graph.update_state(&thread, Chat::update().title("u".to_string()), "answer").unwrap();
        assert_eq!(thread.with_state::<Chat>().state().unwrap().title.as_deref(), Some("u"));
        assert!(store.check().unwrap().problems.is_empty());
    });
}

#[test]
fn tasks_that_are_due_stay_due_beside_an_update() {
    on_both(|store| {
        let graph = answering().interrupt_before(["answer"]).compile().unwrap();
        let thread = store.thread("chat").unwrap();
        graph.invoke(&thread, Chat::update().messages([Message::human("a")])).unwrap();
        thread.update(Chat::update().messages([Message::human("b")])).unwrap();
        assert_eq!(graph.get_state(&thread).unwrap().next, ["answer"]);
        assert_eq!(thread.head().unwrap().unwrap().next().collect::<Vec<_>>(), ["answer"]);
        let done = graph.invoke(&thread, Input::Continue).unwrap();
        assert_eq!(texts(done.state()), ["a", "b", "2"]);
    });
}

#[test]
fn an_input_that_waits_is_taken_after_an_update() {
    on_both(|store| {
        let (graph, thread) = (answering().compile().unwrap(), store.thread("chat").unwrap());
        graph.update_state(&thread, Chat::update().messages([Message::human("in")]), UpdateAs::Input).unwrap();
        thread.update(Chat::update().title("t".to_string())).unwrap();
        store.clear_head_cache();
        let done = graph.invoke(&thread, Input::Continue).unwrap();
        assert_eq!(
            (texts(done.state()), done.state().title.as_deref()),
            (vec!["in".to_string(), "1".into()], Some("t"))
        );
    });
}

#[test]
fn an_interrupt_is_raised_again_after_an_update() {
    on_both(|store| {
        let graph = StateGraph::<Chat>::new()
            .node("ask", |chat: &Chat, context: &Context| {
                let name = context.interrupt(chat.title.clone().unwrap_or_default())?;
                Ok(Chat::update().title(name.as_str().map(str::to_owned)))
            })
            .edge(START, "ask")
            .compile()
            .unwrap();
        let thread = store.thread("chat").unwrap();
        graph.invoke(&thread, Chat::update().title("old".to_string())).unwrap();
        thread.update(Chat::update().title("new".to_string())).unwrap();
        let asked = graph.invoke(&thread, Input::Continue).unwrap();
        assert_eq!(asked.interrupts()[0].value, Value::from("new"));
        let done = graph.invoke(&thread, Command::resume("resumed")).unwrap();
        assert_eq!(done.state().title.as_deref(), Some("resumed"));
    });
}

#[test]
fn a_run_that_an_update_overtakes_gets_a_conflict() {
    on_both(|store| {
        let thread = store.thread("chat").unwrap();
        let other = thread.clone();
        let graph = StateGraph::<Chat>::new()
            .node("slow", move |_: &Chat| {
                other.update(Chat::update().title("from outside".to_string()))?;
                Ok(Chat::update().title("from inside".to_string()))
            })
            .edge(START, "slow")
            .compile()
            .unwrap();
        let error = graph.invoke(&thread, Chat::update().messages([Message::human("a")])).err().unwrap();
        assert!(error.is_conflict(), "{error}");
        assert_eq!(thread.with_state::<Chat>().state().unwrap().title.as_deref(), Some("from outside"));
    });
}

#[test]
fn a_run_goes_on_from_writes_by_name_and_such_writes_from_a_run() {
    on_both(|store| {
        let (graph, thread) = (answering().compile().unwrap(), store.thread("chat").unwrap());
        thread.append("messages", [Message::human("a").with_id("a")]).unwrap();
        thread.set("title", "t").unwrap();
        let done = graph.invoke(&thread, Chat::update().messages([Message::human("b")])).unwrap();
        assert_eq!((texts(done.state()), done.state().title.as_deref()), (texts_of(&["a", "b", "2"]), Some("t")));
        thread.append("messages", [Message::human("A").with_id("a"), Message::human("c")]).unwrap();
        let done = graph.invoke(&thread, Chat::update()).unwrap();
        assert_eq!(texts(done.state()), ["A", "b", "2", "c", "4"]);
        let refused = thread.append("title", ["x"]).unwrap_err();
        assert!(refused.to_string().contains("holds one value, not a list"), "{refused}");
        assert!(store.check().unwrap().problems.is_empty());
    });
}

fn texts_of(texts: &[&str]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

#[test]
fn a_run_goes_on_from_a_head_that_was_moved() {
    on_both(|store| {
        let (graph, thread) = (answering().compile().unwrap(), store.thread("chat").unwrap());
        let say =
            |text: &str| texts(graph.invoke(&thread, Chat::update().messages([Message::human(text)])).unwrap().state());
        say("a");
        let before = thread.head().unwrap().unwrap();
        assert_eq!(say("b"), ["a", "1", "b", "3"]);
        thread.rewind_to(&before).unwrap();
        assert_eq!(texts(&thread.with_state::<Chat>().state().unwrap()), ["a", "1"]);
        assert_eq!(say("c"), ["a", "1", "c", "3"]);
        let undone: Vec<_> = (0..3).map(|_| thread.undo().unwrap().unwrap().name()).collect();
        assert_eq!(undone, ["run", "rewind", "run"], "a run is one operation");
        assert!(thread.undo().unwrap().is_none());
        assert_eq!(texts(&thread.with_state::<Chat>().state().unwrap()), ["a", "1"]);
        let redone: Vec<_> = (0..3).map(|_| thread.redo().unwrap().unwrap().name()).collect();
        assert_eq!(redone, ["run", "rewind", "run"]);
        assert_eq!(texts(&thread.with_state::<Chat>().state().unwrap()), ["a", "1", "c", "3"]);
        assert_eq!(say("d"), ["a", "1", "c", "3", "d", "5"]);
        assert!(store.check().unwrap().problems.is_empty());
    });
}

#[test]
fn an_interrupt_before_a_moved_head_is_answered_again() {
    on_both(|store| {
        let asking = |_: &Chat, context: &Context| {
            let answer = context.interrupt("which?")?;
            Ok(Chat::update().messages([Message::ai(answer.as_str().unwrap_or_default())]))
        };
        let graph = StateGraph::<Chat>::new().node("ask", asking).edge(START, "ask").compile().unwrap();
        let thread = store.thread("chat").unwrap();
        graph.invoke(&thread, Chat::update().messages([Message::human("a")])).unwrap();
        let waits = thread.head().unwrap().unwrap();
        graph.invoke(&thread, Command::resume("Bern")).unwrap();
        thread.rewind_to(&waits).unwrap();
        assert_eq!(graph.get_state(&thread).unwrap().next, ["ask"], "the task is due again");
        let again = graph.invoke(&thread, Input::Continue).unwrap();
        assert_eq!(again.interrupts().len(), 1, "as at an old checkpoint, the task interrupts again on a fork");
        let done = graph.invoke(&thread, Command::resume("Basel")).unwrap();
        assert_eq!(texts(done.state()), ["a", "Basel"]);
        let undone: Vec<_> = (0..3).map(|_| thread.undo().unwrap().unwrap().name()).collect();
        assert_eq!(undone, ["run", "run", "rewind"]);
        assert_eq!(texts(&thread.with_state::<Chat>().state().unwrap()), ["a", "Bern"], "nothing was lost");
        thread.undo().unwrap().unwrap();
        assert_eq!(thread.head().unwrap().unwrap(), waits);
        assert!(store.check().unwrap().problems.is_empty());
    });
}

/// The ways to ask: in a node, twice in a node, in a subgraph, and in a called task. Each adds its resume values.
fn asking(way: usize) -> CompiledGraph<Chat> {
    let answers = |answers: &[Value]| {
        let said = answers.iter().map(|answer| Message::ai(answer.as_str().unwrap_or_default()));
        Ok(Chat::update().messages(said.collect::<Vec<_>>()))
    };
    let once = move |_: &Chat, ctx: &Context| answers(&[ctx.interrupt("which?")?]);
    let graph = StateGraph::<Chat>::new();
    let graph = match way {
        0 => graph.node("ask", once),
        1 => graph
            .node("ask", move |_: &Chat, ctx: &Context| answers(&[ctx.interrupt("first?")?, ctx.interrupt("which?")?])),
        2 => graph.node("ask", StateGraph::<Chat>::new().node("in", once).edge(START, "in").compile().unwrap()),
        _ => {
            let task = Task::new("task", |(): (), ctx: &Context| Ok(ctx.interrupt("which?")?));
            graph.node("ask", move |_: &Chat, ctx: &Context| answers(&[task.call(ctx, ())?]))
        }
    };
    graph.edge(START, "ask").compile().unwrap()
}

#[test]
fn a_resume_value_at_a_moved_head_replaces_the_one_that_was_given_before() {
    on_both(|store| {
        for way in 0..4 {
            let graph = asking(way);
            for by_id in [false, true] {
                let thread = store.thread(format!("{way} {by_id}")).unwrap();
                let resume = |text: &str| {
                    let state = graph.get_state(&thread).unwrap();
                    assert_eq!(state.interrupts.len(), 1, "{way} {by_id}: the interrupt is open");
                    let id = state.interrupts[0].id.clone();
                    let value = if by_id { Value::Map(Map::from_iter([(id, text.into())])) } else { text.into() };
                    graph.invoke(&thread, Command::resume(value)).unwrap()
                };
                let answer = |texts: &[&str]| texts.iter().fold(None, |_, text| Some(resume(text))).unwrap();
                let (before, after) = match way {
                    1 => (vec!["Bern", "Chur"], vec!["Basel", "Brig"]),
                    _ => (vec!["Bern"], vec!["Basel"]),
                };
                graph.invoke(&thread, Chat::update().messages([Message::human("a")])).unwrap();
                let waits = thread.head().unwrap().unwrap();
                let first = answer(&before);
                assert_eq!(texts(first.state()), [&["a"][..], &before].concat());
                thread.rewind_to(&waits).unwrap();
                if by_id && way > 0 {
                    // The interrupts of calls and subgraphs, and later ones of a node, get new ids on the fork.
                    graph.invoke(&thread, Input::Continue).unwrap();
                }
                let second = answer(&after);
                assert!(second.is_done());
                assert_eq!(texts(second.state()), [&["a"][..], &after].concat(), "{way} {by_id}: it was asked again");
                store.clear_head_cache();
                let read = thread.with_state::<Chat>().state().unwrap();
                assert_eq!(texts(&read), [&["a"][..], &after].concat(), "{way} {by_id}: what is stored");
                let is_undone = |_: &i32| {
                    thread.undo().unwrap().unwrap();
                    texts(&thread.with_state::<Chat>().state().unwrap()) == [&["a"][..], &before].concat()
                };
                assert!((0..5).any(|step| is_undone(&step)), "{way} {by_id}: nothing was lost");
            }
        }
    });
}

#[test]
fn a_resume_value_at_a_past_checkpoint_stores_what_its_run_returned() {
    on_both(|store| {
        let runs = std::sync::atomic::AtomicUsize::new(0);
        let ask = move |_: &Chat, ctx: &Context| {
            ctx.interrupt("which?")?;
            let run = runs.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Ok(Chat::update().messages([Message::ai(format!("run {run}"))]))
        };
        let graph = StateGraph::<Chat>::new().node("ask", ask).edge(START, "ask").compile().unwrap();
        let thread = store.thread("chat").unwrap();
        graph.invoke(&thread, Chat::update()).unwrap();
        let waits = thread.head().unwrap().unwrap();
        graph.invoke(&thread, Command::resume("x")).unwrap();
        let again = graph.invoke(&waits, Command::resume("x")).unwrap();
        assert_eq!(texts(again.state()), ["run 1"]);
        store.clear_head_cache();
        assert_eq!(
            texts(&thread.with_state::<Chat>().state().unwrap()),
            ["run 1"],
            "the log holds what the run returned"
        );
        assert!(store.check().unwrap().problems.is_empty());
    });
}

/// Runs a graph on four threads, each of which ends as its title says.
fn run_titles(store: &Store) -> CompiledGraph<Chat> {
    let first = |_: &Chat| Ok(Chat::update());
    let work = |chat: &Chat, context: &Context| {
        match chat.title.as_deref() {
            Some("asks") => _ = context.interrupt("which?")?,
            Some("sleeps") => context.sleep_for(std::time::Duration::from_secs(3_600))?,
            Some("fails") => return Err("no model".into()),
            _ => {}
        }
        Ok(Chat::update())
    };
    let graph = StateGraph::<Chat>::new().node("first", first).node("work", work);
    let graph = graph.edge(START, "first").edge("first", "work").edge("work", END).compile().unwrap();
    for title in ["asks", "ends", "fails", "sleeps"] {
        _ = graph.invoke(&store.thread(title).unwrap(), Chat::update().title(title.to_string()));
    }
    graph
}

#[test]
fn the_status_of_a_thread_follows_from_its_log() {
    on_both(|store| {
        let graph = run_titles(store);
        let status = |id: &str| ThreadStatus::of(&store.thread(id).unwrap().info().unwrap());
        assert_eq!(status("asks"), ThreadStatus::Interrupted(vec!["which?".into()]));
        assert!(matches!(status("sleeps"), ThreadStatus::Sleeping(at) if at > store.now()));
        assert!(matches!(status("fails"), ThreadStatus::Failed(message) if message.contains("no model")));
        assert_eq!(status("ends"), ThreadStatus::Done);
        let asks = store.threads_with(ThreadQuery::new().status(&ThreadStatus::Interrupted(Vec::new()))).unwrap();
        assert_eq!(asks.iter().map(|info| info.id().as_str()).collect::<Vec<_>>(), ["asks"]);
        graph.invoke(&store.thread("asks").unwrap(), Command::resume("x")).unwrap();
        assert_eq!(status("asks"), ThreadStatus::Done);
    });
}
