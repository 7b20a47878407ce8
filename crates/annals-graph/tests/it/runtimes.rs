//! Tests that tasks run in the Tokio runtime of their caller, with timers and sockets of Tokio, in every driver.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use annals_graph::graph::{Entry, Entrypoint};
use annals_graph::prelude::*;
use annals_graph::runs::ThreadStatus;
use annals_graph::task::{AsyncTask, Task};
use annals_graph::{RunError, Worker, block_on};
use macro_rules_attribute::apply;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

use crate::backends::{new_thread, place};

type Flow = CompiledGraph<Entry<i64, i64>>;

/// The longest wait for the end of a run.
const PATIENCE: Duration = Duration::from_secs(60);

fn runtime(has_threads: bool) -> Runtime {
    let mut builder = if has_threads { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.worker_threads(1).enable_all().build().unwrap()
}

/// A service that adds one to each number that it is sent, on the runtime of the caller.
async fn adder() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let n = socket.read_i64().await.unwrap();
                socket.write_i64(n + 1).await.unwrap();
            });
        }
    });
    address
}

/// Asks the service, after a pause by the timer of Tokio, in a task of Tokio of its own.
async fn ask(address: SocketAddr, n: i64) -> NodeResult<i64> {
    tokio::time::sleep(Duration::from_millis(2)).await;
    let asked = tokio::spawn(async move {
        let mut socket = TcpStream::connect(address).await?;
        socket.write_i64(n).await?;
        socket.read_i64().await
    });
    Ok(asked.await??)
}

fn task(address: SocketAddr) -> AsyncTask<i64, i64> {
    Task::new("ask", move |n: i64, _: Context| ask(address, n))
}

/// The workflow whose function waits for an async task, and the one whose function awaits it.
fn flows(address: SocketAddr) -> [Flow; 2] {
    let (waited, awaited) = (task(address), task(address));
    let waits = Entrypoint::new("waits", move |n: i64, context: &Context| {
        let started: Vec<_> = (0..3).map(|more| waited.start(context, n + more)).collect();
        started.into_iter().try_fold(0, |sum, started| Ok(sum + started.wait()?))
    });
    let awaits = Entrypoint::new("awaits", move |n: i64, context: Context| {
        let awaited = awaited.clone();
        async move {
            let mut sum = 0;
            for more in 0..3 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                sum += awaited.call(&context, n + more).await?;
            }
            Ok(sum)
        }
    });
    [waits.compile().unwrap(), awaits.compile().unwrap()]
}

/// The value of both workflows.
fn sum_of(n: i64) -> Option<i64> {
    Some(3 * n + 6)
}

#[apply(each_backend)]
fn awaited_runs_and_streams_have_the_runtime_that_polls_them() {
    for has_threads in [true, false] {
        runtime(has_threads).block_on(async {
            for flow in flows(adder().await) {
                let done = flow.ainvoke(&new_thread(), 1).await.unwrap();
                assert_eq!(done.value().copied(), sum_of(1), "{} {has_threads}", flow.name());
                let mut stream = flow.astream(&new_thread(), 2, &[StreamMode::Values]).await.unwrap();
                while let Some(part) = stream.next().await {
                    part.unwrap();
                }
                assert_eq!(stream.outcome().unwrap().value().copied(), sum_of(2), "{} {has_threads}", flow.name());
            }
        });
    }
}

#[test]
fn blocking_runs_and_workers_have_the_runtime_that_their_thread_has_entered() {
    let runtime = runtime(true);
    let flows = flows(runtime.block_on(adder()));
    let _inside = runtime.enter();
    for flow in &flows {
        let store = Store::memory();
        let thread = |name: &str| store.thread(name).unwrap();
        assert_eq!(flow.invoke(&thread("a"), 1).unwrap().value().copied(), sum_of(1));
        let mut stream = flow.stream(&thread("b"), 2, &[StreamMode::Values]).unwrap();
        (&mut stream).for_each(|part| _ = part.unwrap());
        assert_eq!(stream.outcome().unwrap().value().copied(), sum_of(2));
        flow.enqueue(&thread("c"), 3).unwrap();
        let report = Worker::new(&store).register(flow).concurrency(2).run_until_idle().unwrap();
        assert_eq!((report.continued, report.failed), (1, 0));
        assert_eq!(flow.get_state(&thread("c")).unwrap().values.value().copied(), sum_of(3));
    }
}

#[apply(each_backend)]
fn a_worker_that_is_awaited_runs_its_tasks_in_the_runtime() {
    for has_threads in [true, false] {
        let store = place();
        runtime(has_threads).block_on(async {
            let flows = flows(adder().await);
            let worker = flows.iter().fold(Worker::new(&store).concurrency(3), |worker, flow| worker.register(flow));
            let threads: Vec<Thread> = (0..6).map(|n| store.thread(format!("{has_threads} {n}")).unwrap()).collect();
            for (n, thread) in threads.iter().enumerate() {
                flows[n % 2].enqueue(thread, n as i64).unwrap();
            }
            let waited = threads.clone();
            let all_end = tokio::task::spawn_blocking(move || {
                waited.iter().for_each(|thread| _ = thread.wait_for_end(PATIENCE).unwrap().expect("an end"));
            });
            let report = worker.arun_until(async { all_end.await.unwrap() }).await.unwrap();
            assert_eq!((report.continued, report.failed, report.stuck), (6, 0, 0), "{has_threads}");
            for (n, thread) in threads.iter().enumerate() {
                let state = flows[n % 2].get_state(thread).unwrap();
                assert_eq!(state.values.value().copied(), sum_of(n as i64), "{has_threads} {n}");
            }
        });
    }
}

#[apply(each_backend)]
fn a_worker_with_async_nodes_outside_a_runtime_says_so_before_it_claims_a_run() {
    let store = place();
    let (_, thread) = (store.clone(), store.thread("t").unwrap());
    let next = Entrypoint::new("next", |n: i64, _: Context| std::future::ready(NodeResult::Ok(n + 1)));
    let next = next.compile().unwrap();
    let around = StateGraph::with_schema(DynSchema::new().last("n").build())
        .name("around")
        .node("inside", next.clone())
        .edge(START, "inside")
        .compile()
        .unwrap();
    next.enqueue(&thread, 1).unwrap();
    let worker = Worker::new(&store).register(&next);
    let refused = |worker: &Worker| match worker.run_until_idle().unwrap_err().as_run() {
        Some(RunError::NoRuntime { graph, node }) => (graph.clone(), node.clone()),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&worker), ("next".to_owned(), "next".to_owned()));
    assert_eq!(refused(&Worker::new(&store).register(&around)), ("around".to_owned(), "next".to_owned()));
    let error = block_on(worker.arun_until(std::future::pending())).unwrap_err();
    assert!(error.to_string().contains("arun_until") && error.to_string().contains("without_runtime"), "{error}");
    assert!(thread.last_lease().unwrap().is_none());
    assert_eq!(ThreadStatus::of(&thread.info().unwrap()), ThreadStatus::Running);

    let report = worker.without_runtime().run_until_idle().unwrap();
    assert_eq!((report.continued, next.get_state(&thread).unwrap().values.value()), (1, Some(&2)));
}

/// Returns the message of a run outside a runtime.
fn failure(run: impl Future<Output = Result<Outcome<Entry<i64, i64>>, annals_graph::Error>>) -> String {
    block_on(run).unwrap_err().to_string()
}

#[apply(each_backend)]
fn a_task_that_needs_a_runtime_and_has_none_names_the_remedy() {
    let address = SocketAddr::from(([127, 0, 0, 1], 9));
    for flow in flows(address) {
        let blocking = flow.invoke(&new_thread(), 1).unwrap_err().to_string();
        for message in [blocking, failure(flow.ainvoke(&new_thread(), 1))] {
            assert!(message.contains("no reactor running") && message.contains("runtime.enter()"), "{message}");
        }
    }
    // A worker cannot know the tasks that a function calls.
    let (store, [waits, _]) = (place(), flows(address));
    let thread = store.thread("t").unwrap();
    waits.enqueue(&thread, 1).unwrap();
    assert_eq!(Worker::new(&store).register(&waits).run_until_idle().unwrap().failed, 1);
    let ThreadStatus::Failed(message) = ThreadStatus::of(&thread.info().unwrap()) else { panic!("it has failed") };
    assert!(message.contains("runtime.enter()"), "{message}");
}
