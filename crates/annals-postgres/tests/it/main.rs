//! The tests of the backend, one after another, on a server.
//!
//! `ANNALS_POSTGRES` names the server, by a URL of a database that the tests may fill. Without it a server is started in a
//! temporary folder and stopped at the end. If none can be started, the tests say so and pass, unless
//! `ANNALS_POSTGRES_REQUIRED` is set. Arguments choose tests by parts of their names.
#![allow(missing_docs)]

mod calls;
mod server;
mod suite;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use server::Server;

/// A test: its name, and what it does with a server.
type Test = (String, Box<dyn Fn(&Server)>);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "race") {
        return suite::race(&args[1..]);
    }
    let tests: Vec<Test> = suite::tests().into_iter().chain(calls::tests()).collect();
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
    let (mut passed, mut failed) = (0, Vec::new());
    for (name, test) in &tests {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        match catch_unwind(AssertUnwindSafe(|| test(&server))) {
            Ok(()) => passed += 1,
            Err(_) => {
                println!("test {name} ... FAILED");
                failed.push(name.as_str());
            }
        }
    }
    println!("test result: {passed} passed; {} failed", failed.len());
    failed.iter().for_each(|name| println!("    {name}"));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
