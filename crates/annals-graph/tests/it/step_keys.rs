//! The key of a step for services outside: the same however often the step runs, another one for another step.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annals_graph::graph::{Entrypoint, Own, Persistence, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use macro_rules_attribute::apply;

use crate::backends::new_thread;
use crate::line_state::{Log, line, run_on, start};

/// The keys of the steps that ran, in their order.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn note(&self, ctx: &Context) {
        let key = ctx.step_key();
        assert!(key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
        assert_eq!(key, ctx.step_key(), "one key for one step");
        self.0.lock().unwrap().push(key);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn quick() -> RetryPolicy {
    RetryPolicy::new().initial_interval(Duration::from_millis(1)).jitter(false)
}

fn differ(keys: &[String]) -> bool {
    keys.iter().collect::<BTreeSet<_>>().len() == keys.len()
}

/// START -> node, which fails as long as `fails` says.
fn failing(seen: &Seen, fails: impl Fn(&Context) -> bool + Send + Sync + 'static) -> CompiledGraph<Log> {
    let seen = seen.clone();
    let node = move |_: &Log, ctx: &Context| {
        seen.note(ctx);
        if fails(ctx) { Err("it fails".into()) } else { Ok(line("done")) }
    };
    StateGraph::<Log>::new().node("pay", node).edge(START, "pay").compile().unwrap()
}

#[apply(each_backend)]
fn attempts_and_later_runs_of_a_step_have_one_key() {
    for driver in [0, 1] {
        let (thread, seen) = (new_thread(), Seen::default());
        let broken = failing(&seen, |_| true);
        run_on(driver, broken.run(&thread), start()).unwrap_err();
        // Another process: nothing of the first run is in memory.
        thread.store().clear_head_cache();
        let note = seen.clone();
        let node = move |_: &Log, ctx: &Context| {
            note.note(ctx);
            if ctx.attempt() < 3 { Err("it fails".into()) } else { Ok(line("done")) as NodeResult<_> }
        };
        let options = NodeOptions::new().retry(quick());
        let retried = StateGraph::<Log>::new().node_with("pay", node, options).edge(START, "pay").compile().unwrap();
        run_on(driver, retried.run(&thread), Input::Continue).unwrap();
        let first = seen.take();
        assert_eq!(first.len(), 4);
        assert!(first.iter().all(|key| *key == first[0]), "{first:?}");
        run_on(driver, retried.run(&thread), start()).unwrap();
        assert_ne!(seen.take()[0], first[0], "the next run of the thread is another step");
    }
}

#[apply(each_backend)]
fn a_step_on_a_head_that_was_moved_back_has_one_key_in_the_run_at_it_and_in_the_next() {
    let (thread, seen) = (new_thread(), Seen::default());
    failing(&seen, |_| false).run(&thread).invoke(start()).unwrap();
    let due = thread.history().unwrap().map(Result::unwrap).find(|at| at.next().any(|next| next == "pay")).unwrap();
    thread.rewind_to(&due).unwrap();
    let broken = failing(&seen, |_| true);
    broken.run(&due).invoke(Input::Continue).unwrap_err();
    thread.store().clear_head_cache();
    broken.run(&thread).invoke(Input::Continue).unwrap_err();
    let keys = seen.take();
    assert_eq!(keys[1], keys[2], "{keys:?}");
    assert_ne!(keys[0], keys[1], "the rewind made another step of it");
}

#[apply(each_backend)]
fn an_interrupt_leaves_the_keys_of_its_steps() {
    for driver in [0, 1] {
        let (thread, seen) = (new_thread(), Seen::default());
        let (in_task, in_flow) = (seen.clone(), seen.clone());
        let ask = Task::new("ask", move |_: i64, ctx: &Context| {
            in_task.note(ctx);
            Ok(ctx.interrupt("?")?.as_int().unwrap_or_default())
        });
        let flow = Entrypoint::new("flow", move |n: i64, ctx: &Context| {
            in_flow.note(ctx);
            ask.call(ctx, n)
        });
        let flow = flow.compile().unwrap();
        run_on(
            driver,
            flow.run(&thread),
            annals_graph::IntoInput::<annals_graph::graph::Entry<i64, i64>, _>::into_input(1),
        )
        .unwrap();
        thread.store().clear_head_cache();
        run_on(driver, flow.run(&thread), Input::Command(Command::resume(7))).unwrap();
        let keys = seen.take();
        assert_eq!(keys[..2], keys[2..], "{keys:?}");
        assert!(differ(&keys[..2]));
    }
}

#[apply(each_backend)]
fn threads_steps_sends_and_calls_have_keys_of_their_own() {
    let (seen, store) = (Seen::default(), new_thread().store().clone());
    let note = || {
        let seen = seen.clone();
        move |_: &Log, ctx: &Context| {
            seen.note(ctx);
            Ok(line("x"))
        }
    };
    let (in_task, of_value) = (seen.clone(), seen.clone());
    let call = Task::new("call", move |n: i64, ctx: &Context| {
        in_task.note(ctx);
        Ok(n)
    });
    let graph = StateGraph::<Log>::new()
        .node("left", note())
        .node("right", note())
        .node("after", move |_: &Log, ctx: &Context| {
            // The same call twice.
            call.call(ctx, 1)?;
            call.call(ctx, 1)?;
            Ok(Command::goto(SendTo::new("sent", Value::Null)).and_goto(SendTo::new("sent", Value::Null)))
        })
        .node(
            "sent",
            Own(move |_: Value, ctx: &Context| {
                of_value.note(ctx);
                Ok(line("sent"))
            }),
        )
        .edge(START, "left")
        .edge(START, "right")
        .join(["left", "right"], "after")
        .compile()
        .unwrap();
    for thread in ["one", "two"] {
        graph.invoke(&store.thread(thread).unwrap(), Log::update()).unwrap();
    }
    let keys = seen.take();
    assert_eq!(keys.len(), 12);
    assert!(differ(&keys), "{keys:?}");
}

#[apply(each_backend)]
fn a_step_that_is_made_again_on_purpose_has_another_key() {
    let (thread, seen) = (new_thread(), Seen::default());
    let note = seen.clone();
    let graph = StateGraph::<Log>::new()
        .node("pay", move |_: &Log, ctx: &Context| {
            let answer = ctx.interrupt("pay?")?;
            note.note(ctx);
            Ok(line(answer.as_str().unwrap_or_default()))
        })
        .edge(START, "pay")
        .compile()
        .unwrap();
    graph.invoke(&thread, Log::update()).unwrap();
    let waits = thread.at("@").unwrap();
    graph.invoke(&thread, Command::resume("yes")).unwrap();
    // In place: the tasks of the older checkpoint have the ids of the first time.
    graph.invoke(&waits, Command::resume("again")).unwrap();
    graph.invoke(&waits, Command::resume("and again")).unwrap();
    // After a rewind.
    thread.rewind_to(&waits).unwrap();
    graph.invoke(&thread, Command::resume("rewound")).unwrap();
    // On a fork.
    let fork = waits.fork_to(format!("{} forked", thread.id())).unwrap();
    graph.invoke(&fork, Input::Continue).unwrap();
    graph.invoke(&fork, Command::resume("forked")).unwrap();
    let keys = seen.take();
    assert_eq!(keys.len(), 5);
    assert!(differ(&keys), "{keys:?}");
}

#[apply(each_backend)]
fn a_step_of_a_graph_that_stores_nothing_has_the_key_of_its_place() {
    let (thread, seen) = (new_thread(), Seen::default());
    let broken = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (note, fails) = (seen.clone(), Arc::clone(&broken));
    let in_task = seen.clone();
    let call = Task::new("call", move |n: i64, ctx: &Context| {
        in_task.note(ctx);
        Ok(n)
    });
    let inner = StateGraph::<Log>::new()
        .node("first", move |_: &Log, ctx: &Context| {
            note.note(ctx);
            call.call(ctx, 1)?;
            call.call(ctx, 1)?;
            Ok(line("first"))
        })
        .node("second", move |_: &Log, _: &Context| {
            if fails.load(std::sync::atomic::Ordering::SeqCst) { Err("it fails".into()) } else { Ok(line("second")) }
        })
        .edge(START, "first")
        .edge("first", "second")
        .persistence(Persistence::Stateless)
        .compile()
        .unwrap();
    let graph = StateGraph::<Log>::new().node("inner", inner).edge(START, "inner").compile().unwrap();
    graph.invoke(&thread, Log::update()).unwrap_err();
    broken.store(false, std::sync::atomic::Ordering::SeqCst);
    thread.store().clear_head_cache();
    graph.invoke(&thread, Input::Continue).unwrap();
    let keys = seen.take();
    assert_eq!(keys.len(), 6);
    assert_eq!(keys[..3], keys[3..], "the graph began anew");
    assert!(differ(&keys[..3]), "{keys:?}");
}
