//! The command `annals`: run, inspect, compare and fork the histories in an annals store.
//!
//! A client of the library's public API like any other. Data goes to stdout, messages to stderr; every read opens the
//! file for reading only. What each command prints is in its own file; what ends the process is in [`errors`].

mod args;
mod changed;
mod check;
mod demo;
mod diff;
mod drawing;
mod errors;
mod fork;
mod lines;
mod log;
mod output;
mod point;
mod show;
mod threads;
mod transfer;
mod tree;
mod words;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use errors::Failure;
use output::Output;

fn main() -> ExitCode {
    // Looked for by hand, because a usage error is reported before the arguments are known.
    let json = std::env::args_os().any(|arg| arg == "--json");
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return errors::usage(&error, json),
    };
    let mut out = Output::stdout(args.json);
    let result = run(&args, &mut out).and_then(|code| {
        out.flush()?;
        Ok(code)
    });
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.report(args.json),
    }
}

/// Runs a command and returns its exit code.
fn run(args: &Args, out: &mut Output) -> Result<u8, Failure> {
    let store = args.store.as_deref();
    match &args.command {
        Command::Threads(args) => threads::run(args, &point::open_to_read(store)?, out),
        Command::Log(args) => log::run(args, &point::open_to_read(store)?, out),
        Command::Show(args) => show::run(args, &point::open_to_read(store)?, out),
        Command::Diff(args) => diff::run(args, &point::open_to_read(store)?, out),
        Command::Check => check::run(&point::open_to_read(store)?, out),
        Command::Fork(args) => fork::run(args, &point::open_to_write(store)?, out),
        Command::Export(args) => transfer::export(args, &point::open_to_read(store)?, out),
        Command::Import(args) => transfer::import(args, store, out),
        Command::Demo(args) => demo::run(args, store, out),
    }
}
