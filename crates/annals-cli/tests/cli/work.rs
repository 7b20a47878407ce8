//! Runs of workflow files that are enqueued, and workers in processes of their own that run them.

use std::io::{BufRead as _, BufReader};
use std::process::Child;
use std::time::Duration;

use annals::base::{Clock as _, SystemClock};

use super::*;

/// Each run appends its thread to a file, in two nodes of which the second follows the first.
const TWICE: &str = "name = 'twice'\nchannels = { n = 'last', out = 'last' }\n[nodes.first]\n\
                     run = 'echo \"$ANNALS_THREAD\" >> first.txt'\n[nodes.second]\nafter = 'first'\n\
                     run = 'echo \"$ANNALS_THREAD\" >> second.txt'\n";
/// The longest wait for something that a worker does.
const PATIENCE: Duration = Duration::from_secs(300);

fn bench(name: &str, flow: &str) -> Bench {
    let bench = Bench::new();
    fs::write(bench.path(name), flow).unwrap();
    bench
}

/// Starts a worker that goes on until it is ended.
pub(super) fn worker(bench: &Bench, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_annals"));
    command.arg("work").args(arguments).args(["--store", "store.db", "--json"]).current_dir(bench.folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Sends a signal to a process, and returns its output.
pub(super) fn end(child: Child, signal: &str) -> Output {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    child.wait_with_output().unwrap()
}

pub(super) fn lines_of(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Waits until a condition holds.
pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = SystemClock.elapsed();
    while !holds() {
        assert!(SystemClock.elapsed() - begin < PATIENCE, "{what} did not happen within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn status(bench: &Bench, thread: &str) -> Json {
    let threads = bench.json(&["threads", "-n", "0"]);
    let rows = threads["threads"].as_array().unwrap();
    rows.iter().find(|row| row["thread"] == thread).map(|row| row["status"].clone()).unwrap_or_default()
}

/// The documents of a worker that has ended.
fn events(output: &Output) -> Vec<Json> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The documents of `enqueue` and of a worker with a run that fails at its first attempt, and one that waits.
pub(super) fn documents() -> (Json, Vec<Json>) {
    let flow = "name = 'try'\nchannels = { n = 'last' }\n[nodes.a]\nrun = '[ -e tried ] || { touch tried; exit 3; }'\n\
                retry = { attempts = 2 }\n[nodes.b]\nafter = 'a'\nask = 'go on?'\ninto = 'n'\n";
    let bench = bench("try.toml", flow);
    let enqueued = bench.json(&["enqueue", "try.toml"]);
    (enqueued, events(&bench.annals(&["work", "try.toml", "--once", "--json"])))
}

#[test]
fn a_run_is_enqueued_and_worked_on() {
    let bench = bench("twice.toml", TWICE);
    let first = bench.json(&["enqueue", "twice.toml", "--key", "mail-1", "--input", "{\"n\": 1}"]);
    assert_eq!((&first["thread"], &first["new"]), (&json!("twice/mail-1"), &json!(true)));
    let second = bench.json(&["enqueue", "twice.toml", "--key", "mail-1", "--input", "{\"n\": 2}"]);
    assert_eq!((&second["thread"], &second["new"]), (&json!("twice/mail-1"), &json!(false)));
    let own = bench.json(&["enqueue", "twice.toml"])["thread"].as_str().unwrap().to_owned();
    assert!(own.starts_with("twice/") && own != "twice/mail-1", "{own}");
    bench.json(&["enqueue", "twice.toml", "--thread", "late", "--delay", "1h"]);
    assert_eq!((status(&bench, "late"), status(&bench, &own)), (json!("sleeping"), json!("running")));
    bench.json(&["enqueue", "twice.toml", "--thread", "urgent", "--priority", "9"]);

    let worked = bench.annals(&["work", "twice.toml", "--once", "--concurrency", "1", "--json"]);
    assert_eq!(code(&worked), 0, "{worked:?}");
    let events = events(&worked);
    assert_eq!(events.last().unwrap()["continued"], 3, "{events:?}");
    assert_eq!(lines_of(&bench.path("first.txt")), ["urgent", "twice/mail-1", &own], "the order of the queue");
    assert_eq!(bench.json(&["show", "twice/mail-1", "n"])["value"], 1);
    // A second worker finds nothing.
    let idle = bench.annals(&["work", "twice.toml", "--once"]);
    assert_eq!((code(&idle), stderr(&idle).contains("0 runs continued")), (0, true), "{idle:?}");
}

#[test]
fn what_cannot_be_enqueued_is_refused() {
    let bench = bench("twice.toml", TWICE);
    bench.json(&["enqueue", "twice.toml", "--thread", "t"]);
    for (arguments, wanted) in [
        (&["enqueue", "twice.toml", "--thread", "t"][..], "has not ended"),
        (&["enqueue", "twice.toml", "--input", "{\"m\": 1}"], "the channel `m`"),
        (&["enqueue", "twice.toml", "--input", "[1]"], "expected an object"),
        (&["enqueue", "twice.toml", "--priority", "10"], "10 is not in 0..=9"),
        (&["enqueue", "twice.toml", "--argument", "1"], "cannot be used with"),
        (&["enqueue", "twice.toml", "--delay", "soon"], "expected a duration"),
        (&["enqueue"], "required"),
        (&["work"], "required"),
        (&["work", "twice.toml", "twice.toml"], "two workflows have the name twice"),
        (&["work", "twice.toml", "--lease", "1ms", "--once"], "lease"),
    ] {
        let refused = bench.annals(arguments);
        assert_eq!(code(&refused), 2, "{arguments:?}: {refused:?}");
        assert!(stderr(&refused).contains(wanted), "{arguments:?}: {refused:?}");
    }
    fs::write(bench.path("b.toml"), TWICE.replace("'twice'", "'b'")).unwrap();
    let no_store = run(bench.folder.path(), &["work", "twice.toml", "b.toml"]);
    assert!(code(&no_store) == 2 && stderr(&no_store).contains("--store"), "{no_store:?}");
    assert!(bench.json(&["runs"])["runs"].as_array().unwrap().len() == 1);
}

/// A run that fails, is made due again, asks, and gets its resume value from outside.
#[test]
fn a_worker_goes_on_after_a_retry_and_an_answer() {
    let flow = "name = 'ask'\nchannels = { tag = 'last' }\n[nodes.build]\nrun = '[ -e fixed ] || { echo broken >&2; exit 3; }'\n\
                [nodes.ask]\nafter = 'build'\nask = 'Which tag?'\ninto = 'tag'\n";
    let bench = bench("ask.toml", flow);
    bench.json(&["enqueue", "ask.toml", "--thread", "a"]);
    let failed = bench.annals(&["work", "ask.toml", "--once"]);
    let text = String::from_utf8(failed.stdout.clone()).unwrap();
    assert_eq!(code(&failed), 1, "{failed:?}");
    assert!(text.lines().any(|line| line.contains("failed") && line.contains("exit code 3: broken")), "{text}");
    assert!(stderr(&failed).contains("1 failed"), "{failed:?}");
    fs::write(bench.path("fixed"), "").unwrap();
    bench.text(&["retry", "a"]);
    assert_eq!(code(&bench.annals(&["work", "ask.toml", "--once"])), 0);
    assert_eq!(status(&bench, "a"), "interrupted");
    bench.text(&["answer", "a", "v2"]);
    assert_eq!(code(&bench.annals(&["work", "ask.toml", "--once"])), 0);
    assert_eq!((status(&bench, "a"), bench.json(&["show", "a", "tag"])["value"].clone()), (json!("done"), json!("v2")));
}

/// A queue of another program: the run is stored for its graph.
#[test]
fn a_queue_is_named_without_a_file() {
    let bench = Bench::new();
    let queued = bench.json(&["enqueue", "--queue", "booking", "--argument", "17", "--thread", "order-17"]);
    assert_eq!((&queued["queue"], &queued["status"]), (&json!("booking"), &json!("running")));
    let store = Store::open(bench.path("store.db")).unwrap();
    let book = annals_graph::graph::Entrypoint::new("booking", |order: i64| Ok(order + 1)).compile().unwrap();
    assert_eq!(annals_graph::Worker::new(&store).register(&book).run_until_idle().unwrap().continued, 1);
    let state = book.get_state(&store.thread("order-17").unwrap()).unwrap();
    assert_eq!(state.values.value().copied(), Some(18));
    let unnamed = run(bench.folder.path(), &["enqueue", "--queue", "booking"]);
    assert!(code(&unnamed) != 0 && stderr(&unnamed).contains("--store"), "{unnamed:?}");
}

/// Two workers share the runs of one store, and end at a signal when their steps have ended.
#[test]
fn two_workers_run_each_run_once() {
    const RUNS: usize = 24;
    // No run ends before `go` is there, so each worker has as many runs as it has threads.
    let waits = "run = 'echo >> begun.txt; until [ -e go ]; do sleep 0.05; done; echo";
    let bench = bench("twice.toml", &TWICE.replace("run = 'echo", waits));
    for n in 0..RUNS {
        bench.json(&["enqueue", "twice.toml", "--thread", &format!("run-{n:02}")]);
    }
    let workers = [(); 2].map(|()| worker(&bench, &["twice.toml", "--concurrency", "2"]));
    until("runs of both workers", || lines_of(&bench.path("begun.txt")).len() == 4);
    fs::write(bench.path("go"), "").unwrap();
    // Some are enqueued while the workers wait for work.
    until("the end of the first runs", || lines_of(&bench.path("second.txt")).len() >= RUNS);
    for n in RUNS..RUNS + 2 {
        bench.json(&["enqueue", "twice.toml", "--thread", &format!("run-{n:02}")]);
    }
    until("the end of the last runs", || lines_of(&bench.path("second.txt")).len() >= RUNS + 2);
    let ended = workers.map(|worker| end(worker, "-TERM"));
    let mut continued = Vec::new();
    for output in &ended {
        assert_eq!(code(output), 0, "a drained worker has no failure: {output:?}");
        continued.push(events(output).last().unwrap()["continued"].as_u64().unwrap());
    }
    assert_eq!(continued.iter().sum::<u64>(), RUNS as u64 + 2);
    assert!(continued.iter().all(|runs| *runs >= 2), "each had two runs when they began to end: {continued:?}");
    let expected: Vec<String> = (0..RUNS + 2).map(|n| format!("run-{n:02}")).collect();
    for file in ["first.txt", "second.txt"] {
        let mut lines = lines_of(&bench.path(file));
        lines.sort();
        assert_eq!(lines, expected, "{file}");
    }
    assert_eq!(code(&bench.annals(&["check"])), 0);
}

/// A flow whose first node takes until the file `go` is there.
const SLOW: &str = "name = 'slow'\nchannels = { a = 'last' }\n[nodes.first]\n\
                    run = 'echo first >> ran.txt; until [ -e go ]; do sleep 0.05; done; echo ended >> ran.txt'\n[nodes.second]\nafter = 'first'\n\
                    run = 'echo second >> ran.txt'\n";

/// Reads the stderr of a worker until it says that it was drained by a signal.
fn wait_for_drain(child: &mut Child) -> String {
    let mut lines = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("Ctrl-C again kills their commands") {
        assert!(lines.read_line(&mut said).unwrap() > 0, "{said}");
    }
    // The pipe has room for the rest.
    child.stderr = Some(lines.into_inner());
    said
}

#[test]
fn a_worker_that_is_terminated_ends_its_step_and_begins_no_other() {
    let bench = bench("slow.toml", SLOW);
    bench.json(&["enqueue", "slow.toml", "--thread", "s"]);
    let mut child = worker(&bench, &["slow.toml"]);
    until("the first node", || lines_of(&bench.path("ran.txt")).len() == 1);
    // `annals run` does not run the thread beside it.
    let beside = bench.annals(&["run", "slow.toml", "--thread", "s"]);
    assert_eq!(code(&beside), 5, "{beside:?}");
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    wait_for_drain(&mut child);
    fs::write(bench.path("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{output:?}");
    assert_eq!(lines_of(&bench.path("ran.txt")), ["first", "ended"]);
    assert!(events(&output).iter().any(|event| event["event"] == "drained"), "{output:?}");
    assert_eq!(code(&bench.annals(&["work", "slow.toml", "--once"])), 0);
    assert_eq!(lines_of(&bench.path("ran.txt")), ["first", "ended", "second"]);
}

#[test]
fn a_second_signal_kills_the_commands_of_a_worker() {
    let bench = bench("slow.toml", SLOW);
    bench.json(&["enqueue", "slow.toml", "--thread", "s"]);
    let mut child = worker(&bench, &["slow.toml"]);
    until("the first node", || lines_of(&bench.path("ran.txt")).len() == 1);
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    wait_for_drain(&mut child);
    // Without the second signal the command would not end: the file that it waits for does not come.
    let output = end(child, "-INT");
    assert_eq!(code(&output), 0, "{output:?}");
    assert_eq!((lines_of(&bench.path("ran.txt")), status(&bench, "s")), (vec!["first".to_owned()], json!("failed")));
    assert_eq!(bench.json(&["retry", "s"])["threads"][0]["status"], "running");
}

/// The run of a worker that is killed is continued by another one, without the node that had ended.
#[test]
fn a_worker_that_is_killed_is_replaced() {
    let flow = "name = 'two'\nchannels = { a = 'last' }\n[nodes.first]\nrun = 'echo first >> ran.txt'\n[nodes.second]\n\
                after = 'first'\nrun = 'echo second >> ran.txt; [ -e go ] || sleep 60'\n";
    let bench = bench("two.toml", flow);
    bench.json(&["enqueue", "two.toml", "--thread", "k"]);
    let child = worker(&bench, &["two.toml"]);
    until("the second node", || lines_of(&bench.path("ran.txt")).len() == 2);
    let killed = end(child, "-KILL");
    fs::write(bench.path("go"), "").unwrap();
    assert_eq!(killed.status.code(), None, "{killed:?}");
    let other = worker(&bench, &["two.toml"]);
    until("the end of the run", || status(&bench, "k") == "done");
    let output = end(other, "-INT");
    assert_eq!(
        (code(&output), lines_of(&bench.path("ran.txt"))),
        (0, vec!["first".into(), "second".into(), "second".into()])
    );
}

/// A run and a worker wait longer for the lock of another program than a commit does, and repeat no node.
#[test]
fn a_lock_of_another_program_is_outwaited() {
    let flow = "name = 'held'\nchannels = { a = 'last' }\n[nodes.first]\nrun = 'echo first >> ran.txt; \
                until [ -e held ]; do sleep 0.02; done'\n[nodes.second]\nafter = 'first'\nrun = 'echo second >> ran.txt'\n";
    for arguments in [&["run", "held.toml"][..], &["work", "held.toml", "--once"]] {
        let bench = bench("held.toml", flow);
        let is_worker = arguments[0] == "work";
        if is_worker {
            bench.json(&["enqueue", "held.toml", "--thread", "held"]);
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_annals"));
        command.args(arguments).args(["--store", "store.db", "--json"]).current_dir(bench.folder.path());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until("the first node", || lines_of(&bench.path("ran.txt")).len() == 1);
        let other = annals::rusqlite::Connection::open(bench.path("store.db")).unwrap();
        other.busy_timeout(PATIENCE).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        fs::write(bench.path("held"), "").unwrap();
        let mut notes = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let told = notes.find(|line| line.contains("is waiting for the lock")).expect("the wait is told");
        assert!(!cfg!(target_os = "linux") || told.contains(&format!("process {}", std::process::id())), "{told}");
        other.execute_batch("ROLLBACK").unwrap();
        assert!(!notes.any(|line| line.contains("is waiting for the lock")), "it is told once");
        let output = child.wait_with_output().unwrap();
        assert_eq!(code(&output), 0, "{output:?}");
        assert_eq!(lines_of(&bench.path("ran.txt")), ["first", "second"]);
        assert_eq!(events(&output).iter().any(|event| event["event"] == "lock_wait"), is_worker, "{output:?}");
    }
}

#[test]
fn the_time_of_a_worker_is_limited() {
    let bench = bench("twice.toml", TWICE);
    let output = bench.annals(&["work", "twice.toml", "--timeout", "300ms"]);
    assert_eq!(code(&output), 5, "{output:?}");
    assert!(stderr(&output).contains("did not end within 300ms"), "{output:?}");
}

#[test]
fn a_run_that_a_worker_cannot_continue_is_stuck_until_it_is_retried() {
    let bench = bench("twice.toml", TWICE);
    // An argument in place of an update.
    let store = annals::store::Store::open(bench.path("store.db")).unwrap();
    store.queue("twice").enqueue("s", 1).unwrap();
    drop(store);
    let worked = bench.annals(&["work", "twice.toml", "--once", "--json"]);
    assert_eq!(code(&worked), 1, "{worked:?}");
    let stuck = events(&worked).into_iter().find(|event| event["event"] == "stuck").expect("it is reported");
    assert!(stuck["thread"] == "s" && stuck["error"].as_str().unwrap().contains("not an entrypoint"), "{stuck}");
    assert_eq!(bench.json(&["threads", "--status", "stuck"])["threads"][0]["error"], stuck["error"]);
    assert_eq!(bench.json(&["pending"])["pending"][0]["kind"], "stuck");
    let listed = bench.annals(&["retry", "--status", "stuck"]);
    assert_eq!(code(&listed), 7, "{listed:?}");
    let retried = bench.json(&["retry", "--status", "stuck", "--yes"]);
    assert_eq!((&retried["threads"][0]["changed"], status(&bench, "s")), (&json!(true), json!("running")));
}

#[test]
fn a_due_node_that_was_renamed_is_named_and_ends_no_worker() {
    let flow = |name: &str, run: &str| {
        format!(
            "name = 'order'\nchannels = {{ x = 'last', p = 'last' }}\n[nodes.{name}]\n{run}\ninto = 'x'\n\
             [nodes.pay]\nafter = '{name}'\nrun = 'echo paid'\ninto = 'p'\n"
        )
    };
    let asks = "ask = 'ok?'";
    let bench = bench("order.toml", &flow("ask", asks));
    assert_eq!(code(&bench.annals(&["run", "order.toml"])), 1);
    fs::write(bench.path("order.toml"), flow("approve", asks)).unwrap();
    for arguments in [&["run", "order.toml", "--answer", "true"][..], &["run", "order.toml"]] {
        let refused = bench.annals(arguments);
        assert_eq!(code(&refused), 2, "{refused:?}");
        assert!(
            stderr(&refused).contains("node \"ask\" is due") && stderr(&refused).contains("approve"),
            "{refused:?}"
        );
        assert_eq!(status(&bench, "order"), "interrupted");
    }
    // The worker tries, and says why it gives up.
    bench.text(&["answer", "order", "true"]);
    let work = |rest: &[&str]| bench.annals(&[&["work", "order.toml", "--once", "--json"], rest].concat());
    let worked = work(&["--max-recoveries", "3"]);
    assert_eq!(code(&worked), 1, "{worked:?}");
    let (told, report) = (events(&worked)[0].clone(), events(&worked).last().unwrap().clone());
    assert!(told["event"] == "stuck" && told["error"].as_str().unwrap().contains("\"ask\""), "{told}");
    assert_eq!((&report["continued"], &report["stuck"]), (&json!(0), &json!(1)));
    assert_eq!((status(&bench, "order"), code(&work(&[]))), (json!("stuck"), 0));
    // The answer waits for the node.
    fs::write(bench.path("order.toml"), flow("ask", asks)).unwrap();
    bench.json(&["retry", "order"]);
    assert_eq!(code(&work(&[])), 0);
    assert_eq!(bench.json(&["show", "order", "p"])["value"], "paid");

    // A node that failed and was renamed.
    fs::write(bench.path("order.toml"), flow("ask", "run = 'exit 3'")).unwrap();
    assert_eq!(code(&bench.annals(&["run", "order.toml", "--thread", "f"])), 70);
    fs::write(bench.path("order.toml"), flow("approve", "run = 'true'")).unwrap();
    let refused = bench.annals(&["run", "order.toml", "--thread", "f"]);
    assert!(code(&refused) == 2 && stderr(&refused).contains("\"ask\""), "{refused:?}");
    assert_eq!(status(&bench, "f"), "failed");
    bench.json(&["retry", "f"]);
    assert_eq!((code(&work(&[])), status(&bench, "f")), (1, json!("stuck")));
}
