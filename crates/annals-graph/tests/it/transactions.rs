//! Transactions on the tables of an application: each happens exactly once, however often its task runs.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use annals::store::{SqlTransaction, StoreError};
use annals_graph::graph::{Entry, Entrypoint, Own, Persistence, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use annals_graph::{Durability, IntoInput};

use crate::cases;
use crate::line_state::{Log, line, run_on, start};

/// The folder in which a child works.
const FOLDER: &str = "ANNALS_TRANSACTIONS_FOLDER";
/// The number of times that a child is killed.
const KILLS: (u64, u64) = (6, 30);
/// The number of steps of a workflow.
const STEPS: i64 = 4;
const TABLE: &str = "CREATE TABLE IF NOT EXISTS app_ledger (id INTEGER PRIMARY KEY, entry TEXT NOT NULL)";

/// A store in a folder of its own, with a ledger.
struct Place {
    _folder: tempfile::TempDir,
    store: Store,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("store.db")).unwrap();
        store.transaction(|tx| tx.execute_batch(TABLE)).unwrap();
        Self { _folder: folder, store }
    }

    fn thread(&self, id: &str) -> Thread {
        self.store.thread(id).unwrap()
    }

    fn entries(&self) -> Vec<String> {
        entries(&self.store)
    }
}

fn entries(store: &Store) -> Vec<String> {
    store.transaction(|tx| tx.query("SELECT entry FROM app_ledger ORDER BY id", (), |row| row.get(0))).unwrap()
}

/// Adds an entry, and returns its number.
fn enter(tx: &SqlTransaction<'_>, entry: &str) -> Result<i64, StoreError> {
    let row = tx.query_row("INSERT INTO app_ledger (entry) VALUES (?1) RETURNING id", [entry], |row| row.get(0))?;
    Ok(row.expect("the row that was inserted"))
}

fn quick() -> RetryPolicy {
    RetryPolicy::new().initial_interval(Duration::from_millis(1)).jitter(false)
}

fn entry_input(n: i64) -> Input {
    IntoInput::<Entry<i64, i64>, _>::into_input(n)
}

#[test]
fn a_task_that_runs_again_gets_the_result_and_the_function_does_not_run() {
    for driver in [0, 1] {
        for durability in [Durability::Sync, Durability::Async] {
            let place = Place::new();
            let thread = place.thread("a");
            let functions = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&functions);
            let pay = move |ctx: &Context, entry: &str| -> Result<i64, StoreError> {
                let counted = Arc::clone(&counted);
                ctx.transaction(move |tx| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    enter(tx, entry)
                })
            };
            let (in_task, in_flow) = (pay.clone(), pay);
            let call = Task::new("call", move |n: i64, ctx: &Context| {
                let (first, second) =
                    (in_task(ctx, &format!("call {n} first"))?, in_task(ctx, &format!("call {n} second"))?);
                // The results of the failed attempts stay stored.
                if ctx.attempt() < 3 { Err("it fails".into()) } else { Ok(first + second) }
            })
            .retry(quick());
            let flow = Entrypoint::new("flow", move |n: i64, ctx: &Context| {
                let before = in_flow(ctx, "before")?;
                let called = call.call(ctx, 1)? + call.call(ctx, 2)?;
                let answer = ctx.interrupt("?")?.as_int().unwrap_or_default();
                let after = in_flow(ctx, "after")?;
                Ok(before + 10 * called + 100 * after + 1_000 * answer + n)
            });
            let flow = flow.compile().unwrap();
            let run = || flow.run(&thread).durability(durability);
            run_on(driver, run(), entry_input(7)).unwrap();
            thread.store().clear_head_cache();
            run_on(driver, run(), Input::Continue).unwrap();
            // A copy has the results of the original.
            let copy = thread.copy_to("copy").unwrap();
            run_on(driver, flow.run(&copy), Input::Continue).unwrap();
            assert_eq!(functions.load(Ordering::SeqCst), 5);
            let done = run_on(driver, run(), Input::Command(Command::resume(3))).unwrap();
            assert_eq!(done.value(), Some(&(1 + 10 * (2 + 3 + 4 + 5) + 600 + 3_000 + 7)));
            let expected = ["before", "call 1 first", "call 1 second", "call 2 first", "call 2 second", "after"];
            assert_eq!(place.entries(), expected, "{driver} {durability:?}");
            assert_eq!(functions.load(Ordering::SeqCst), 6);
            assert!(thread.store().check().unwrap().problems.is_empty());
            // The next run of the thread makes them anew.
            run_on(driver, run(), entry_input(7)).unwrap();
            assert_eq!(place.entries().len(), 11);
        }
    }
}

#[test]
fn a_function_that_fails_leaves_nothing_and_runs_again() {
    let place = Place::new();
    let graph = StateGraph::<Log>::new()
        .node_with(
            "pay",
            |_: &Log, ctx: &Context| {
                let attempt = ctx.attempt();
                ctx.transaction(|tx| {
                    enter(tx, &format!("attempt {attempt}"))?;
                    if attempt < 3 {
                        Err("it fails".into())
                    } else {
                        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
                    }
                })?;
                Ok(line("paid")) as NodeResult<_>
            },
            NodeOptions::new().retry(quick()),
        )
        .edge(START, "pay")
        .compile()
        .unwrap();
    graph.invoke(&place.thread("a"), Log::update()).unwrap();
    assert_eq!(place.entries(), ["attempt 3"]);
}

#[test]
fn nodes_side_by_side_and_async_nodes_have_transactions_of_their_own() {
    let place = Place::new();
    let node = |name: &'static str| {
        move |_: Arc<Log>, ctx: Context| async move {
            let first = ctx.atransaction(move |tx| enter(tx, name));
            let second = ctx.atransaction(move |tx| enter(tx, name));
            let (first, second) = (first.await?, second.await?);
            assert_ne!(first, second);
            Ok(line(name)) as NodeResult<_>
        }
    };
    let graph = StateGraph::<Log>::new()
        .node("left", node("left"))
        .node("right", node("right"))
        .node("after", |_: &Log, ctx: &Context| {
            ctx.transaction(|tx| enter(tx, "after"))?;
            if ctx.interrupt("?")?.is_null() { Err("null".into()) } else { Ok(line("after")) }
        })
        .edge(START, "left")
        .edge(START, "right")
        .join(["left", "right"], "after")
        .compile()
        .unwrap();
    for driver in [0, 1] {
        let thread = place.thread(&driver.to_string());
        run_on(driver, graph.run(&thread), start()).unwrap();
        run_on(driver, graph.run(&thread), Input::Command(Command::resume(1))).unwrap();
    }
    let mut entries = place.entries();
    entries.sort();
    assert_eq!(entries, ["after", "after", "left", "left", "left", "left", "right", "right", "right", "right"]);
}

#[test]
fn a_step_that_is_made_again_on_purpose_has_its_transactions_again() {
    let place = Place::new();
    let thread = place.thread("a");
    let graph = StateGraph::<Log>::new()
        .node("pay", |_: &Log, ctx: &Context| {
            let answer = ctx.interrupt("pay?")?;
            let answer = answer.as_str().unwrap_or_default().to_owned();
            ctx.transaction(|tx| enter(tx, &answer))?;
            Ok(line(answer))
        })
        .edge(START, "pay")
        .compile()
        .unwrap();
    graph.invoke(&thread, Log::update()).unwrap();
    let waits = thread.at("@").unwrap();
    graph.invoke(&thread, Command::resume("yes")).unwrap();
    // At a checkpoint that the caller names the stored resume value is taken first.
    graph.invoke(&waits, Command::resume("again")).unwrap();
    thread.rewind_to(&waits).unwrap();
    graph.invoke(&thread, Command::resume("rewound")).unwrap();
    let fork = waits.fork_to("b").unwrap();
    graph.invoke(&fork, Input::Continue).unwrap();
    graph.invoke(&fork, Command::resume("forked")).unwrap();
    assert_eq!(place.entries(), ["yes", "yes", "rewound", "forked"]);
    assert!(place.store.check().unwrap().problems.is_empty());
}

#[test]
fn an_owner_that_lost_its_lease_or_its_head_leaves_nothing() {
    for driver in [0, 1] {
        for breaks in [true, false] {
            let place = Place::new();
            let (thread, other) = (place.thread("a"), place.thread("a"));
            let graph = StateGraph::<Log>::new()
                .node("pay", move |_: &Log, ctx: &Context| {
                    ctx.transaction(|tx| enter(tx, "before"))?;
                    if breaks {
                        let epoch = other.last_lease()?.unwrap().epoch;
                        assert!(other.break_lease(epoch)?);
                    } else {
                        other.update(line("edit"))?;
                    }
                    let refused = ctx.transaction(|tx| enter(tx, "fenced")).unwrap_err();
                    let is_expected = match breaks {
                        true => matches!(refused, StoreError::LeaseLost { .. }),
                        false => matches!(refused, StoreError::Conflict { .. }),
                    };
                    assert!(is_expected, "{refused}");
                    // Nothing else of the run is stored.
                    ctx.transaction(|tx| enter(tx, "later")).unwrap_err();
                    Ok(line("paid"))
                })
                .edge(START, "pay")
                .compile()
                .unwrap();
            let run = graph.run(&thread).lease(Duration::from_secs(30));
            assert!(run_on(driver, run, start()).unwrap_err().is_conflict());
            assert_eq!(place.entries(), ["before"]);
        }
    }
}

#[test]
fn a_run_that_cannot_store_its_record_is_refused() {
    let node = |_: &Log, ctx: &Context| {
        let refused = ctx.transaction(|tx| enter(tx, "never")).unwrap_err();
        assert!(matches!(refused, StoreError::Unsupported { .. }), "{refused}");
        Ok(line(refused.to_string()))
    };
    let graph = StateGraph::<Log>::new().node("pay", node).edge(START, "pay").compile().unwrap();
    let done = graph.invoke(&Store::memory().thread("a").unwrap(), Log::update()).unwrap();
    assert!(done.state().lines[0].contains("no SQL"), "{:?}", done.state().lines);
    graph.invoke((), Log::update()).unwrap();
    let place = Place::new();
    graph.run(&place.thread("exit")).durability(Durability::Exit).invoke(Log::update()).unwrap();
    let inner = StateGraph::<Log>::new().node("pay", node).edge(START, "pay").persistence(Persistence::Stateless);
    let outer =
        StateGraph::<Log>::new().node("inner", inner.compile().unwrap()).edge(START, "inner").compile().unwrap();
    outer.invoke(&place.thread("stateless"), Log::update()).unwrap();
    assert!(place.entries().is_empty());
}

#[test]
fn a_subgraph_and_a_send_have_transactions() {
    let place = Place::new();
    let inner = StateGraph::<Log>::new()
        .node("pay", |_: &Log, ctx: &Context| {
            ctx.transaction(|tx| enter(tx, "inner"))?;
            if ctx.interrupt("?")?.is_null() { Err("null".into()) } else { Ok(line("inner")) }
        })
        .edge(START, "pay")
        .compile()
        .unwrap();
    let graph = StateGraph::<Log>::new()
        .node("inner", inner)
        .node("fan", |_: &Log| Ok(Command::goto(SendTo::new("sent", 1)).and_goto(SendTo::new("sent", 2))))
        .node(
            "sent",
            Own(|n: i64, ctx: &Context| {
                ctx.transaction(|tx| enter(tx, &format!("sent {n}")))?;
                Ok(line("sent"))
            }),
        )
        .edge(START, "inner")
        .edge("inner", "fan")
        .compile()
        .unwrap();
    let thread = place.thread("a");
    graph.invoke(&thread, Log::update()).unwrap();
    graph.invoke(&thread, Command::resume(1)).unwrap();
    let mut entries = place.entries();
    entries.sort();
    assert_eq!(entries, ["inner", "sent 1", "sent 2"]);
    assert!(place.store.check().unwrap().problems.is_empty());
}

/// Runs a workflow to its end: each step has two rows in the ledger, and an effect outside under the key of the step.
fn work(folder: &Path) -> i64 {
    let store = Store::open(folder.join("store.db")).unwrap();
    store.transaction(|tx| tx.execute_batch(TABLE)).unwrap();
    let effects = folder.join("effects");
    let step = Task::new("step", move |n: i64, ctx: &Context| {
        let first = ctx.transaction(|tx| enter(tx, &format!("{n} first")))?;
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&effects)?;
        file.write_all(format!("{n} {}\n", ctx.step_key()).as_bytes())?;
        ctx.transaction(|tx| enter(tx, &format!("{n} second")))?;
        Ok(first)
    });
    let flow = Entrypoint::new("flow", move |steps: i64, ctx: &Context| {
        ctx.transaction(|tx| enter(tx, "begin"))?;
        (0..steps).map(|n| step.call(ctx, n)).sum::<NodeResult<i64>>()
    });
    let flow = flow.compile().unwrap();
    let thread = store.thread("flow").unwrap();
    *flow.run(&thread).idempotency_key("flow").invoke(STEPS).unwrap().value().unwrap()
}

/// The child of the test below. On its own it is the workflow that nothing disturbs.
#[test]
fn an_undisturbed_workflow_has_each_row_once() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        println!("begun");
        work(&PathBuf::from(folder));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(work(folder.path()), 2 + 4 + 6 + 8);
    verify(folder.path());
}

/// Checks that each row exists once, in the order of the steps, and that each step had one key.
fn verify(folder: &Path) -> usize {
    let store = Store::open(folder.join("store.db")).unwrap();
    let steps = (0..STEPS).flat_map(|n| [format!("{n} first"), format!("{n} second")]);
    let expected: Vec<String> = std::iter::once("begin".to_owned()).chain(steps).collect();
    assert_eq!(entries(&store), expected);
    assert!(store.check().unwrap().problems.is_empty());
    let text = std::fs::read_to_string(folder.join("effects")).unwrap();
    let mut keys: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (step, key) in text.lines().filter_map(|line| line.split_once(' ')) {
        keys.entry(step).or_default().insert(key);
    }
    assert!(keys.values().all(|keys| keys.len() == 1), "{keys:?}");
    assert_eq!(keys.len(), STEPS as usize);
    assert_eq!(keys.values().flatten().collect::<BTreeSet<_>>().len(), STEPS as usize);
    text.lines().count()
}

#[test]
fn kills_at_random_moments_leave_each_row_once() {
    let (mut seed, mut repeated, mut cut_short) = (0x7a51_u64, 0, 0);
    let cases = cases(KILLS.0, KILLS.1);
    // More of them if this process was always too late, on a machine that is busy.
    for case in 0..20 * cases {
        if case >= cases && cut_short > 0 {
            break;
        }
        let folder = tempfile::tempdir().unwrap();
        // Killed twice: the second process continues the run of the first one.
        for _ in 0..2 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            child(folder.path(), Duration::from_micros((seed >> 33) % 25_000));
        }
        let rows = Store::open(folder.path().join("store.db")).map_or(0, |store| {
            store.transaction(|tx| tx.execute_batch(TABLE)).map(|()| entries(&store).len()).unwrap()
        });
        cut_short += usize::from(rows < 1 + 2 * STEPS as usize);
        assert_eq!(work(folder.path()), 2 + 4 + 6 + 8);
        repeated += verify(folder.path()) - STEPS as usize;
    }
    assert!(cut_short > 0, "{cut_short} cut short, {repeated} effects repeated");
}

/// Starts a child, and kills it some time after its test has begun.
fn child(folder: &Path, after: Duration) {
    let mut child = Process::new(std::env::current_exe().unwrap())
        .args(["--exact", "transactions::an_undisturbed_workflow_has_each_row_once", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    // The startup time of a process does not concern the store.
    while !line.contains("begun") && std::io::BufRead::read_line(&mut output, &mut line).unwrap() > 0 {}
    std::thread::sleep(after);
    // It may have ended by itself.
    _ = child.kill();
    child.wait().unwrap();
}

#[test]
fn a_transaction_waits_longer_for_other_processes_than_one_commit_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let store = Store::open_with(&path, annals::store::OpenOptions::new().busy_timeout_ms(1_000)).unwrap();
    store.transaction(|tx| tx.execute_batch(TABLE)).unwrap();
    let body = move |n: i64, context: &Context| {
        let other = annals::rusqlite::Connection::open(&path)?;
        other.execute_batch("BEGIN IMMEDIATE")?;
        let holds = std::thread::spawn(move || {
            // Longer than one attempt waits, and far shorter than all of them do.
            std::thread::sleep(Duration::from_millis(1_200));
            other.execute_batch("ROLLBACK")
        });
        let number = context.transaction(|tx| enter(tx, "once"))?;
        holds.join().unwrap()?;
        Ok(n + number)
    };
    let done = Entrypoint::new("book", body).compile().unwrap().invoke(&store.thread("a").unwrap(), 4).unwrap();
    assert_eq!(done.value(), Some(&5));
    assert_eq!(entries(&store), ["once"]);
}
