//! Runs in futures, on both backends: async nodes, threads for the others, cancellation, streams.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context as Waiting, Poll, Waker};

use annals_graph::Durability;
use annals_graph::block_on;
use annals_graph::graph::Own;
use annals_graph::prelude::*;
use macro_rules_attribute::apply;

use crate::backends::place;

#[derive(State, Clone, Default, Debug)]
struct Job {
    #[channel(reduce = join)]
    log: Vec<String>,
    #[channel(last)]
    n: i64,
}

fn join(mut old: Vec<String>, new: Vec<String>) -> Vec<String> {
    old.extend(new);
    old
}

fn thread() -> Thread {
    place().thread("t").unwrap()
}

/// A future that is ready when it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<Mutex<(bool, Vec<Waker>)>>);

impl Gate {
    fn open(&self) {
        let mut gate = self.0.lock().unwrap();
        gate.0 = true;
        gate.1.drain(..).for_each(Waker::wake);
    }
}

impl Future for Gate {
    type Output = ();

    fn poll(self: Pin<&mut Self>, waiting: &mut Waiting<'_>) -> Poll<()> {
        let mut gate = self.0.lock().unwrap();
        if gate.0 {
            return Poll::Ready(());
        }
        gate.1.push(waiting.waker().clone());
        Poll::Pending
    }
}

async fn borrows(job: &Job, context: &Context) -> NodeResult<JobUpdate> {
    Ok(Job::update().log(vec![format!("{} {}", context.node(), job.n)]).n(job.n + 1))
}

async fn only_state(job: &Job) -> NodeResult<JobUpdate> {
    Ok(Job::update().log(vec![format!("state {}", job.n)]))
}

#[apply(each_backend)]
fn every_form_of_node_runs_under_both_drivers() {
    let greeting = Arc::new("hello".to_string());
    let captured = Arc::clone(&greeting);
    let graph = StateGraph::<Job>::new()
        .node("borrows", borrows)
        .node("state", only_state)
        .node("owns", move |job: Arc<Job>, context: Context| {
            let greeting = Arc::clone(&captured);
            async move { Ok(Job::update().log(vec![format!("{greeting} {} {}", context.node(), job.n)])) }
        })
        .node("own", Own(|n: i64, _: Context| async move { Ok(Job::update().log(vec![format!("sent {n}")])) }))
        .node("blocking", |_: &Job| Ok(Job::update().log(vec!["thread".into()])))
        .edge(START, "borrows")
        .edge("borrows", "state")
        .edge("state", "owns")
        .edge("owns", "blocking")
        .branch("blocking", |job: &Job| SendTo::new("own", job.n))
        .compile()
        .unwrap();
    let want = ["borrows 3", "state 4", "hello owns 4", "thread", "sent 4"];
    let thread = thread();
    for durability in [annals_graph::Durability::Sync, annals_graph::Durability::Async] {
        let at = thread.store().thread(format!("{durability:?}")).unwrap();
        let run = graph.run(&at).durability(durability);
        let done = block_on(run.ainvoke(Job::update().n(3))).unwrap();
        assert_eq!(done.state().log, want);
        assert_eq!(at.history().unwrap().count(), 7);
    }
    assert_eq!(graph.invoke(&thread, Job::update().n(3)).unwrap().state().log, want);
    assert_eq!(block_on(graph.ainvoke((), Job::update().n(3))).unwrap().state().log, want);
}

#[apply(each_backend)]
fn async_nodes_wait_side_by_side_and_a_blocking_one_stalls_none() {
    let (gate, back) = (Gate::default(), Gate::default());
    let opened = (gate.clone(), back.clone());
    let graph = StateGraph::<Job>::new()
        .node("waits", move |_: Arc<Job>, _: Context| {
            let gate = opened.0.clone();
            let back = opened.1.clone();
            async move {
                gate.await;
                back.open();
                Ok(Job::update().log(vec!["waited".into()]))
            }
        })
        .node("opens", {
            let gate = gate.clone();
            move |_: Arc<Job>, _: Context| {
                gate.open();
                async move { Ok(Job::update().log(vec!["opened".into()])) }
            }
        })
        .node("blocks", {
            let back = back.clone();
            move |_: &Job| {
                // Ends only if the async nodes go on meanwhile.
                block_on(back.clone());
                Ok(Job::update().log(vec!["blocked".into()]))
            }
        })
        .edge(START, "blocks")
        .edge(START, "waits")
        .edge(START, "opens")
        .compile()
        .unwrap();
    let done = block_on(graph.ainvoke(&thread(), Job::update().n(0))).unwrap();
    assert_eq!(done.state().log, ["blocked", "opened", "waited"], "the order of tasks is that of their names");
}

#[apply(each_backend)]
fn a_dropped_future_cancels_the_run_and_the_thread_goes_on_where_it_was() {
    let runs = Arc::new(AtomicUsize::new(0));
    let gate = Gate::default();
    let graph = StateGraph::<Job>::new()
        .node("once", {
            let runs = Arc::clone(&runs);
            move |_: Arc<Job>, _: Context| {
                runs.fetch_add(1, Ordering::SeqCst);
                async move { Ok(Job::update().log(vec!["once".into()])) }
            }
        })
        .node("waits", {
            let gate = gate.clone();
            move |_: Arc<Job>, _: Context| {
                let gate = gate.clone();
                async move {
                    gate.await;
                    Ok(Job::update().log(vec!["waits".into()]))
                }
            }
        })
        .edge(START, "once")
        .edge("once", "waits")
        .compile()
        .unwrap();
    let thread = thread();
    {
        let run = graph.run(&thread).durability(annals_graph::Durability::Sync).ainvoke(Job::update().n(0));
        let mut run = std::pin::pin!(run);
        // Polled until it waits for the gate: the head then has the second node due.
        block_on(std::future::poll_fn(|waiting| {
            let polled = run.as_mut().poll(waiting);
            assert!(polled.is_pending());
            let head = thread.head().unwrap();
            if head.is_some_and(|head| head.record().tasks.iter().any(|task| &*task.name == "waits")) {
                return Poll::Ready(());
            }
            Poll::Pending
        }));
    }
    gate.open();
    let done = block_on(graph.ainvoke(&thread, Input::Continue)).unwrap();
    assert_eq!(done.state().log, ["once", "waits"]);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[apply(each_backend)]
fn graphs_inside_questions_panics_and_streams_are_the_same_in_a_future() {
    let inner = StateGraph::<Job>::new()
        .node("ask", |_: Arc<Job>, context: Context| async move {
            let answer = context.interrupt("really?")?;
            Ok(Job::update().log(vec![answer.as_str().unwrap_or("?").to_string()]))
        })
        .edge(START, "ask")
        .compile()
        .unwrap();
    let called = inner.clone();
    let graph = StateGraph::<Job>::new()
        .node("inner", inner)
        .node("calls", move |job: Arc<Job>, context: Context| {
            let called = called.clone();
            async move {
                context.emit("calling");
                let done = called.ainvoke(&context, Job::update().n(job.n)).await?;
                Ok(Job::update().log(done.state().log.clone()))
            }
        })
        .node("panics", |_: Arc<Job>, _: Context| async move { if true { panic!("oh") } else { Ok(()) } })
        .edge(START, "inner")
        .edge("inner", "calls")
        .edge("calls", "panics")
        .compile()
        .unwrap();
    let thread = thread();
    let asked = block_on(graph.ainvoke(&thread, Job::update().n(0))).unwrap();
    assert_eq!(asked.interrupts().len(), 1);
    let asked = block_on(graph.ainvoke(&thread, Command::resume("yes"))).unwrap();
    assert_eq!((asked.state().log.as_slice(), asked.interrupts().len()), (&["yes".to_string()][..], 1));
    let parts = block_on(async {
        let modes = [StreamMode::Custom, StreamMode::Updates];
        let mut stream = graph.run(&thread).astream(Command::resume("no"), &modes).await.unwrap();
        let mut parts = Vec::new();
        while let Some(part) = stream.next().await {
            parts.push(part.map(|part| format!("{part:?}")).map_err(|error| error.to_string()));
        }
        parts
    });
    assert_eq!(parts.len(), 3, "{parts:?}");
    assert!(parts[0].as_ref().unwrap().contains("calling"));
    assert!(parts[1].as_ref().unwrap().contains("calls"));
    assert_eq!(parts[2].as_ref().unwrap_err(), "node \"panics\" panicked: oh");
}

#[apply(each_backend)]
fn the_output_of_a_run_is_the_same_in_a_future() {
    let graph = StateGraph::<Job>::new()
        .node("count", |job: Arc<Job>, _: Context| async move { Ok(Job::update().n(job.n + 1)) })
        .node("ask", |_: Arc<Job>, context: Context| async move { Ok(context.interrupt("more?").map(drop)?) })
        .edge(START, "count")
        .edge("count", "ask")
        .compile()
        .unwrap();
    let [one, two] = ["one", "two"].map(|id| thread().store().thread(id).unwrap());
    let blocking = graph.run(&one).output_keys(["n"]).output(Job::update().n(1)).unwrap();
    let in_a_future = block_on(graph.run(&two).output_keys(["n"]).aoutput(Job::update().n(1))).unwrap();
    assert_eq!(blocking.values, in_a_future.values);
    assert_eq!(in_a_future.values.and_then(|values| values.get("n").cloned()), Some(Value::from(2)));
    assert_eq!((blocking.interrupts.len(), in_a_future.interrupts.len()), (1, 1));
}

#[derive(State, Clone, Default, Debug)]
#[state(part_of = Job)]
struct Number {
    n: i64,
}

fn say(text: String) -> NodeResult<JobUpdate> {
    Ok(Job::update().log(vec![text]))
}

async fn of_part(part: &Number) -> NodeResult<JobUpdate> {
    say(format!("part {}", part.n))
}

async fn of_part_with_context(part: &Number, context: &Context) -> NodeResult<JobUpdate> {
    say(format!("{} {}", context.node(), part.n))
}

async fn of_own(n: i64) -> NodeResult<JobUpdate> {
    say(format!("own {n}"))
}

async fn of_own_with_context(n: i64, context: &Context) -> NodeResult<JobUpdate> {
    say(format!("{} {n}", context.node()))
}

#[apply(each_backend)]
fn async_nodes_take_parts_and_inputs_of_their_own_like_others() {
    let captured = Arc::new("captured".to_string());
    let other = Arc::clone(&captured);
    let graph = StateGraph::<Job>::new()
        .node("a", of_part)
        .node("b", of_part_with_context)
        .node("c", move |part: Arc<Number>| {
            let captured = Arc::clone(&captured);
            async move { say(format!("{captured} {}", part.n)) }
        })
        .node("d", move |part: Arc<Number>, context: Context| {
            let captured = Arc::clone(&other);
            async move { say(format!("{captured} {} in {}", part.n, context.node())) }
        })
        .node("own", Own(of_own))
        .node("own_with_context", Own(of_own_with_context))
        .branch(START, |_: &Job| ["a", "b", "c", "d"])
        .branch(START, |_: &Job| [SendTo::new("own", 1), SendTo::new("own_with_context", 2)])
        .compile()
        .unwrap();
    let wanted = ["part 7", "b 7", "captured 7", "captured 7 in d", "own 1", "own_with_context 2"];
    assert_eq!(graph.invoke((), Job::update().n(7)).unwrap().state().log, wanted);
    assert_eq!(block_on(graph.ainvoke(&thread(), Job::update().n(7))).unwrap().state().log, wanted);
}

#[apply(each_backend)]
fn a_part_that_was_awaited_and_given_up_is_not_lost() {
    let graph = StateGraph::<Job>::new()
        .node("borrows", borrows)
        .node("blocking", |_: &Job| Ok(Job::update().log(vec!["thread".into()])))
        .edge(START, "borrows")
        .edge("borrows", "blocking")
        .compile()
        .unwrap();
    let modes = [StreamMode::Values, StreamMode::Updates, StreamMode::Checkpoints];
    let store = thread().store().clone();
    for durability in [Durability::Sync, Durability::Async, Durability::Exit] {
        let thread = store.thread(format!("{durability:?}")).unwrap();
        let whole = graph.run(&thread).durability(durability).stream(Job::update().n(1), &modes).unwrap().count();
        let parts = block_on(async {
            let run = graph.run(&thread).durability(durability);
            let mut stream = run.astream(Job::update().n(1), &modes).await.unwrap();
            let mut parts = 0;
            loop {
                // Each future is polled once.
                match poll_fn(|waiting| Poll::Ready(pin!(stream.next()).poll(waiting))).await {
                    Poll::Pending => std::thread::yield_now(),
                    Poll::Ready(Some(part)) => parts += usize::from(part.is_ok()),
                    Poll::Ready(None) => break,
                }
            }
            assert_eq!(stream.outcome().unwrap().state().n, 2);
            parts
        });
        assert_eq!(parts, whole, "{durability:?}");
    }
}
