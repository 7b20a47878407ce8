//! The limits of a queue over several processes, one of which is killed.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;

use annals::base::{Clock, SystemClock};
use annals::history::ThreadQuery;
use annals::store::OpenOptions;
use annals_graph::graph::{Entry, Entrypoint};
use annals_graph::prelude::*;
use annals_graph::runs::ThreadStatus;
use annals_graph::task::RunControl;
use annals_graph::{QueueLimit, Worker};

use crate::backends::GUARD;

/// Tells the child where to work.
const FOLDER: &str = "ANNALS_QUEUE_FOLDER";
const PROCESSES: usize = 4;
const RUNS: i64 = 40;
/// The number of runs at the same time, and of those of one customer.
const CONCURRENCY: usize = 3;
const PER_CUSTOMER: usize = 2;
/// The number of claims within a period.
const CLAIMS: i64 = 10;
const PERIOD: Duration = Duration::from_millis(500);

fn note(folder: &Path, line: &str) {
    let file = std::fs::OpenOptions::new().append(true).create(true).open(folder.join("runs"));
    // One system call, or the lines of two processes would mix.
    file.unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// A workflow that notes its begin and its end, both while it has its lease. No run ends before the file `go` is there.
fn flow(folder: &Path) -> CompiledGraph<Entry<i64, i64>> {
    let folder = folder.to_owned();
    let run = move |n: i64| {
        let (process, customer) = (std::process::id(), n % 2);
        note(&folder, &format!("begin {process} {customer} {n}"));
        while !folder.join("go").exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(15));
        note(&folder, &format!("end {process} {customer} {n}"));
        Ok(n)
    };
    Entrypoint::new("limited", run).compile().unwrap()
}

/// Opens the store of the processes, one of which may stand still while it writes.
fn opened(folder: &Path) -> Store {
    let options = OpenOptions::new().busy_timeout_ms(GUARD.as_millis() as u64);
    Store::open_with(folder.join("store.db"), options).unwrap()
}

fn work(folder: &Path, control: &RunControl) {
    let store = opened(folder);
    let limit = QueueLimit::new("limited").concurrency(CONCURRENCY as u64).rate(CLAIMS as u64, PERIOD);
    let limit = limit.per_key("customer", PER_CUSTOMER as u64);
    // More threads than the limit allows runs, in each process.
    let worker = Worker::new(&store).register(&flow(folder)).concurrency(CONCURRENCY + 1).queue(limit);
    worker.run_until(control).unwrap();
}

/// The child of the test below, which ends when the file `stop` is there. On its own it works in a folder without runs.
#[test]
fn a_process_with_limits() {
    let (control, folder) = (RunControl::new(), std::env::var_os(FOLDER).map(PathBuf::from));
    let Some(folder) = folder else {
        let folder = tempfile::tempdir().unwrap();
        control.request_drain("nothing is due");
        work(folder.path(), &control);
        assert!(!folder.path().join("runs").exists());
        return;
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !folder.join("stop").exists() {
                std::thread::sleep(Duration::from_millis(20));
            }
            control.request_drain("stop");
        });
        work(&folder, &control);
    });
}

fn child(folder: &Path) -> Child {
    Process::new(std::env::current_exe().unwrap())
        .args(["--exact", "queue_limits::a_process_with_limits", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Reads the notes in their order. Two runs that are both between begin and end had their leases at the same time.
/// Returns the greatest number of runs at the same time, and of those of one customer, and the processes that ran.
fn overlaps(folder: &Path) -> (usize, usize, BTreeSet<String>) {
    let (mut open, mut gone): (HashMap<String, (String, String)>, BTreeSet<String>) = Default::default();
    let (mut most, mut most_of_one, mut processes) = (0, 0, BTreeSet::new());
    for line in std::fs::read_to_string(folder.join("runs")).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["begin", process, customer, n] if !gone.contains(*process) => {
                processes.insert(String::from(*process));
                open.insert(String::from(*n), (String::from(*process), String::from(*customer)));
                let of_one = open.values().filter(|(_, of)| of == customer).count();
                (most, most_of_one) = (most.max(open.len()), most_of_one.max(of_one));
            }
            ["end", process, _, n] if open.get(*n).is_some_and(|(of, _)| of == process) => _ = open.remove(*n),
            // From here on the leases of this process count no longer.
            ["kill", process] => {
                gone.insert(String::from(*process));
                open.retain(|_, (of, _)| of != process);
            }
            _ => {}
        }
    }
    (most, most_of_one, processes)
}

#[test]
fn the_limits_of_a_queue_hold_over_processes() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(folder.path());
    for n in 0..RUNS {
        store.queue("limited").metadata([("customer", n % 2)]).enqueue(format!("t{n}"), n).unwrap();
    }
    let begin = SystemClock.elapsed();
    let mut children: Vec<Child> = (0..PROCESSES).map(|_| child(folder.path())).collect();
    let done = || store.threads_with(ThreadQuery::new().status(&ThreadStatus::Done).limit(1_000)).unwrap().len();
    let wait_for = |what: &str, holds: &dyn Fn() -> bool| {
        while !holds() {
            assert!(SystemClock.elapsed() - begin < 2 * GUARD, "{what}: {} runs are done", done());
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let begun = || -> Vec<String> {
        let notes = std::fs::read_to_string(folder.path().join("runs")).unwrap_or_default();
        notes.lines().filter_map(|line| Some(line.strip_prefix("begin ")?.split(' ').next()?.to_owned())).collect()
    };
    wait_for("as many runs as the limit allows have begun", &|| begun().len() == CONCURRENCY);
    // The process that has begun the newest run dies in it. From then on its leases count no longer for this test; for
    // the other processes they do until they expire.
    let newest = begun().pop().unwrap();
    let killed = children.iter_mut().find(|child| child.id().to_string() == newest).unwrap();
    note(folder.path(), &format!("kill {}", killed.id()));
    killed.kill().unwrap();
    killed.wait().unwrap();
    *killed = child(folder.path());
    std::fs::write(folder.path().join("go"), "").unwrap();
    wait_for("the end of all runs", &|| done() == RUNS as usize);
    let took = SystemClock.elapsed() - begin;
    std::fs::write(folder.path().join("stop"), "").unwrap();
    children.iter_mut().for_each(|child| assert!(child.wait().unwrap().success()));

    let (most, of_one, processes) = overlaps(folder.path());
    println!("at most {most} runs at the same time, {of_one} of one customer, in {} processes", processes.len());
    assert!(most <= CONCURRENCY && of_one <= PER_CUSTOMER, "{most} runs at the same time, {of_one} of one customer");
    assert!(
        most == CONCURRENCY && processes.len() > 1,
        "{most} runs at the same time, in {} processes",
        processes.len()
    );
    // The last claim is at least so many periods after the first one; a thread that is claimed twice in one counts
    // once.
    assert!(took >= PERIOD * (RUNS / CLAIMS - 1) as u32, "{RUNS} claims took {took:?}");
    assert!(store.check().unwrap().problems.is_empty());
}
