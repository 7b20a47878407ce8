//! The tests of the backend, some at once, on a server.
//!
//! `ANNALS_POSTGRES` names the server, by a URL of a database that the tests may fill. Without it a server is started
//! in a temporary folder and stopped at the end. If none can be started, the tests say so and pass, unless
//! `ANNALS_POSTGRES_REQUIRED` is set. Arguments choose tests by parts of their names.
#![allow(missing_docs)]
#![allow(clippy::print_stdout, reason = "it reports its tests as the harness does")]

mod calls;
mod copies;
mod faults;
mod pooler;
mod proxy;
mod server;
mod suite;
#[cfg(feature = "tls")]
mod tls;
mod views;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use server::Server;

/// A test: its name, and what it does with a server.
type Test = (String, Box<dyn Fn(&Server) + Send + Sync>);

/// Tests that run at once.
const AT_ONCE: usize = 6;

/// The tests that run alone: a follower waits for the oldest transaction that has not ended.
const ALONE: [&str; 6] =
    ["suite::following", "suite::calls", "suite::race_of", "calls::", "faults::restored_dump", "pooler::following"];

/// Faults come to all connections of a server. One of their own is started for them; a server that is not the tests'
/// has them when all else has ended.
const FAULTS: &str = "faults::";

/// The tests that take longest, which begin first.
const LONG: [&str; 7] = [
    "suite::pruning::linear",
    "suite::histories::random",
    "pooler::log",
    "pooler::runs",
    "pooler::one_connection",
    "faults::killed_server",
    "faults::killed_backends",
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "race") {
        return suite::race(&args[1..]);
    }
    let mut tests = suite::tests();
    tests.extend(calls::tests().into_iter().chain(copies::tests()).chain(faults::tests()));
    tests.extend(pooler::tests().into_iter().chain(views::tests()));
    #[cfg(feature = "tls")]
    tests.extend(tls::tests());
    if args.iter().any(|arg| arg == "--list") {
        tests.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let server = match Server::start() {
        Ok(server) => server,
        Err(reason) if server::is_required() => {
            println!("FAILED: no PostgreSQL server: {reason}");
            return ExitCode::FAILURE;
        }
        Err(reason) => {
            println!("SKIPPED: no PostgreSQL server can be started: {reason}");
            return ExitCode::SUCCESS;
        }
    };
    let is_wanted = |name: &String| wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str()));
    let chosen: Vec<&Test> = tests.iter().filter(|(name, _)| is_wanted(name)).collect();
    let is_alone = |test: &&&Test| {
        ALONE.iter().any(|start| test.0.starts_with(start)) || test.0.starts_with(FAULTS) && !server.is_started()
    };
    let (alone, mut others): (Vec<&Test>, Vec<&Test>) = chosen.iter().partition(is_alone);
    others.sort_by_key(|test| !LONG.contains(&test.0.as_str()));
    let (failed, next) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    let run = |(name, test): &Test| {
        let outcome = catch_unwind(AssertUnwindSafe(|| test(&server)));
        println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        if outcome.is_err() {
            failed.lock().expect("no test holds it").push(name.clone());
        }
    };
    let work = || {
        while let Some(test) = others.get(next.fetch_add(1, Ordering::Relaxed)) {
            run(test);
        }
    };
    std::thread::scope(|scope| (0..AT_ONCE).for_each(|_| _ = scope.spawn(work)));
    alone.iter().for_each(|test| run(test));
    let failed = failed.into_inner().expect("no test holds it");
    let passed = chosen.len() - failed.len();
    println!("test result: {passed} passed; {} failed", failed.len());
    failed.iter().for_each(|name| println!("    {name}"));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
