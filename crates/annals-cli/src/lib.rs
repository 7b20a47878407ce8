//! The command `annals`: run, inspect, compare and fork the histories in an annals store.
//!
//! The program `annals` calls [`run_command`], and so does `python -m annals`. The command is a client of the
//! libraries' public API. Data is printed on stdout, messages on stderr; every command that only reads opens the file
//! for reading only. Each command has a file of its own; failures and exit codes are in `errors`.

mod args;
mod backup;
mod bisect;
mod blame;
mod changed;
mod check;
mod copy;
mod demo;
mod diff;
mod digits;
mod doctor;
mod drawing;
mod enqueue;
mod erase;
mod errors;
mod evolution;
mod facts;
mod flow_drawing;
mod flow_run;
mod fork;
mod found;
mod heads;
mod histories;
mod interrupt;
mod key;
mod langgraph;
mod lineage;
mod lines;
mod log;
mod logs;
mod manual;
mod mcp;
mod message_diff;
mod otlp;
mod output;
mod outside;
mod pager;
mod path;
mod pending;
mod pickaxe;
mod point;
mod prices;
mod progress;
mod prune;
mod repair;
mod rerun;
mod restart;
mod safe;
mod search;
mod serve;
mod server;
mod show;
mod since;
mod site;
mod sql;
mod state_patch;
mod stats;
mod steps;
mod sums;
mod tail;
mod thread_file;
mod threads;
mod transcript;
mod transfer;
mod trash;
mod tree;
mod update;
mod words;
mod work;

use std::ffi::OsString;

use annals::base::{Clock as _, SystemClock};
use clap::Parser;

use args::{Args, Verb};
use errors::CommandFailure;
use key::NamedStore;
use output::Printer;

pub use server::{open_server, shown as shown_name, url as server_url};
pub use sql::connect_to_read;

/// Runs the command with these arguments, of which the first is the name of the program, and returns its exit code:
/// 0 if it did what it was asked, else one of those that `annals --help` lists. Data is written to stdout, messages to
/// stderr. The process is left to the command until it returns: it listens to SIGINT and SIGTERM.
#[doc(alias = "main")]
pub fn run_command(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    // Searched by hand, because a usage error is reported before the arguments are parsed.
    let json = arguments.iter().any(|arg| arg == "--json" || arg == "--jsonl");
    let args = match Args::try_parse_from(&arguments) {
        Ok(args) => args,
        Err(error) => return errors::usage(&error, json),
    };
    if args.quiet {
        output::be_quiet();
    }
    let started = SystemClock.elapsed();
    interrupt::watch(args.timeout, json);
    let is_paged = !args.no_pager && matches!(args.command, Verb::Log(_) | Verb::Show(_) | Verb::Diff(_));
    let mut out = Printer::stdout(args.format(), args.color, is_paged);
    if let Some(text) = waits_for(&args.command).filter(|_| !args.quiet) {
        progress::start(text);
    }
    let result = run(&args, &mut out).and_then(|code| {
        out.flush()?;
        Ok(code)
    });
    progress::clear();
    if args.verbose {
        let store = args.store.as_deref().map(|path| format!(" of {}", server::shown(path))).unwrap_or_default();
        output::note(format!("the command{store} took {:.1?}", SystemClock.elapsed() - started));
    }
    match result {
        Ok(code) => code,
        Err(failure) => interrupt::failure(args.timeout).unwrap_or(failure).report(json),
    }
}

/// Returns the line of progress of a command; `None` if it shows its progress itself, or goes on until it is ended.
fn waits_for(verb: &Verb) -> Option<&'static str> {
    Some(match verb {
        Verb::Run(_)
        | Verb::Rerun(_)
        | Verb::Work(_)
        | Verb::Demo(_)
        | Verb::Serve(_)
        | Verb::Tail(_)
        | Verb::Bisect(_)
        | Verb::Mcp(_) => {
            return None;
        }
        Verb::Logs(args) if args.follow => return None,
        Verb::Check(_) | Verb::Doctor(_) => "verifying the store",
        Verb::Copy(args) if args.to.is_some() => "copying threads",
        Verb::Backup(_) => "copying the store",
        Verb::Restore(_) => "verifying the backup",
        Verb::Recover(_) => "reading the damaged store",
        Verb::Compact => "compacting the store",
        Verb::Import(args) if args.watch || args.file.is_none() => return None,
        Verb::Import(_) => "reading histories",
        Verb::Export(_) => "exporting",
        Verb::Prune(_) => "pruning",
        Verb::Erase(_) | Verb::Rm(_) => "deleting",
        Verb::Search(_) => "searching",
        Verb::Stats(_) => "summing the history",
        _ => "reading the store",
    })
}

/// Runs a command and returns its exit code.
fn run(args: &Args, out: &mut Printer) -> Result<u8, CommandFailure> {
    let no_input = args.no_input;
    let store = NamedStore { path: args.store.as_deref(), key_file: args.key_file.as_deref() };
    match &args.command {
        Verb::Run(args) => flow_run::run(args, store, out),
        Verb::Enqueue(args) => enqueue::run(args, store, out),
        Verb::Work(args) => work::run(args, store, out),
        Verb::Rerun(args) => rerun::run(args, store, out),
        Verb::Graph(args) => flow_drawing::run(args, out),
        Verb::Threads(args) => threads::run(args, &point::open_to_read(store)?, out),
        Verb::Log(args) => log::run(args, &point::open_to_read(store)?, out),
        Verb::Tree(args) => lineage::tree(args, &point::open_to_read(store)?, out),
        Verb::Logs(args) => logs::run(args, &point::open_to_read(store)?, out),
        Verb::Steps(args) => steps::run(args, &point::open_to_read(store)?, out),
        Verb::Runs(args) => steps::runs(args, &point::open_to_read(store)?, out),
        Verb::Pending(args) => pending::run(args, &point::open_to_read(store)?, out),
        Verb::Copy(args) => copy::run(args, store, out),
        Verb::Rm(args) => trash::run(args, no_input, &point::open_to_write(store)?, out),
        Verb::Doctor(args) => doctor::run(args, store, out),
        Verb::Show(args) => show::run(args, &point::open_to_read(store)?, out),
        Verb::Diff(args) => diff::run(args, &point::open_to_read(store)?, out),
        Verb::Blame(args) => blame::run(args, &point::open_to_read(store)?, out),
        Verb::Evolution(args) => evolution::run(args, &point::open_to_read(store)?, out),
        Verb::Search(args) => search::run(args, &point::open_to_read(store)?, out),
        Verb::Bisect(args) => bisect::run(args, &point::open_to_read(store)?, out),
        Verb::Tail(args) => tail::run(args, &point::open_to_read(store)?, out),
        Verb::Operations(args) => heads::operations(args, &point::open_to_read(store)?, out),
        Verb::Branch(args) if args.name.is_none() => heads::branch(args, &point::open_to_read(store)?, out),
        Verb::Branch(args) => heads::branch(args, &point::open_to_write(store)?, out),
        Verb::Switch(args) => heads::switch(args, &point::open_to_write(store)?, out),
        Verb::Rewind(args) => heads::rewind(args, &point::open_to_write(store)?, out),
        Verb::Undo(args) => heads::undo(args, &point::open_to_write(store)?, out),
        Verb::Redo(args) => heads::redo(args, &point::open_to_write(store)?, out),
        Verb::Sql(args) => sql::run(args, store, out),
        Verb::Serve(args) => serve::run(args, store, out),
        Verb::Mcp(args) => mcp::run(args, store),
        Verb::Completions(args) => manual::completions(args, out),
        Verb::Man(args) => manual::man(args, out),
        Verb::Update(args) => update::run(args, &point::open_to_write(store)?, out),
        Verb::Facts(args) if !args.is_change() => facts::run(args, &point::open_to_read(store)?, out),
        Verb::Facts(args) => facts::run(args, &point::open_to_write(store)?, out),
        Verb::Archive(args) => facts::archive(args, &point::open_to_write(store)?, out),
        Verb::Erase(args) => erase::run(args, &point::open_to_write(store)?, out),
        Verb::Prune(args) => prune::run(args, &point::open_to_write(store)?, out),
        Verb::Check(args) => check::run(args, &point::open_to_read(store)?, out),
        Verb::Stats(args) if args.by.is_empty() => stats::run(store, out),
        Verb::Stats(args) => sums::run(args, &point::open_to_read(store)?, out),
        Verb::Backup(args) => backup::run(args, store, out),
        Verb::Compact => repair::compact(store, out),
        Verb::Restore(args) => backup::restore(args, store, out),
        Verb::Recover(args) => repair::recover(args, store, out),
        Verb::Fork(args) => fork::run(args, &point::open_to_write(store)?, out),
        Verb::Signal(args) => outside::signal(args, &point::open_to_write(store)?, out),
        Verb::Answer(args) => outside::answer(args, &point::open_to_write(store)?, out),
        Verb::Cancel(args) => outside::cancel(args, &outside::open(&args.chosen, store)?, out),
        Verb::Pause(args) => outside::pause(args, &outside::open(args, store)?, out),
        Verb::Resume(args) => outside::resume(args, &outside::open(args, store)?, out),
        Verb::Retry(args) => outside::retry(args, &outside::open(args, store)?, out),
        Verb::Restart(args) => restart::run(args, &point::open_to_write(store)?, out),
        Verb::Safe(args) => safe::run(args, &point::open_to_read(store)?, out),
        Verb::Export(args) => transfer::export(args, &point::open_to_read(store)?, store, out),
        Verb::Import(args) => transfer::import(args, no_input, store, out),
        Verb::Demo(args) => demo::run(args, store, out),
    }
}
