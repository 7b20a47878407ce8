//! Runs graph scenarios and calls of message functions on the public API, and writes their traces and results, which
//! are compared with those of the reference.
//!
//! A scenario that needs a feature which the API does not have is named on stderr and leaves no trace.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)]

mod build;
mod canon;
mod chunks;
mod driver;
mod expr;
mod functional;
mod kv;
mod messages;
mod persistence;
mod policy;
#[cfg(feature = "postgres")]
mod postgres;
mod program;
#[cfg(test)]
mod proxy;
mod pydantic_ai;
mod scenario;
mod steps;
mod subgraphs;
mod trace;
mod vectors;

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use annals::state::DynState;
use annals_graph::prelude::{DynSchema, DynUpdate, START, StateGraph, Store};
use serde_json::Value as Json;

use driver::DriverKind;
use scenario::{Options, Scenario};

const USAGE: &str =
    "usage: annals-parity graph SCENARIO_OR_FOLDER OUT_FOLDER [--backend memory|sqlite] [--driver blocking|async]
                           [--append] [--partial]
       annals-parity pack SCENARIO_FOLDER TRACE_FOLDER VECTOR_FOLDER
       annals-parity verify VECTOR_FOLDER [--write]
       annals-parity messages VECTOR_FOLDER OUT_FILE
       annals-parity pack-messages VECTOR_FOLDER OUT_FOLDER
       annals-parity verify-messages VECTOR_FOLDER [--write]
       annals-parity pydantic-ai VECTOR_FOLDER OUT_FILE
       annals-parity pack-pydantic-ai VECTOR_FOLDER OUT_FOLDER
       annals-parity verify-pydantic-ai VECTOR_FOLDER
       annals-parity persistence VECTOR_FOLDER RESULTS.json
       annals-parity verify-persistence VECTOR_FOLDER

graph runs scenarios and writes their traces, pack copies scenarios with the traces of the reference into one file for
each category, verify runs those: what fails must stand in open.txt there, which --write writes anew, or in differ.txt.
The same for calls of message functions, and for PydanticAI's messages, whose results are written to one file.
persistence runs the vectors of the key-value memory and of the cache on both backends and writes their outcomes.

  --append   list channels in place of a reducer for concat_list
  --partial  leave out stream modes that there are not, run unguarded channels as guarded ones, delta as reducers";

type RunnerResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut options = Options::default();
    let mut places = Vec::new();
    let mut write = false;
    let mut rest = args.iter().map(String::as_str);
    while let Some(arg) = rest.next() {
        match arg {
            "--write" => write = true,
            "--append" => options.append = true,
            "--partial" => options.partial = true,
            "--backend" => options.sqlite = rest.next() == Some("sqlite"),
            "--driver" => options.driver = rest.next().and_then(DriverKind::parse).unwrap_or_default(),
            place => places.push(place),
        }
    }
    let done = match places[..] {
        ["graph", scenarios, out] => run_all(Path::new(scenarios), Path::new(out), options),
        ["pack", scenarios, traces, out] => vectors::pack(Path::new(scenarios), Path::new(traces), Path::new(out))
            .map(|count| println!("packed {count}")),
        ["pydantic-ai", vectors, out] => {
            pydantic_ai::run(Path::new(vectors), Path::new(out)).map(|count| println!("run {count}"))
        }
        ["verify-pydantic-ai", vectors] => pydantic_ai::verify(Path::new(vectors)).and_then(|(count, surprises)| {
            println!("run {count}");
            if surprises.is_empty() { Ok(()) } else { Err(surprises.into()) }
        }),
        ["pack-pydantic-ai", vectors, out] => {
            pydantic_ai::pack(Path::new(vectors), Path::new(out)).map(|count| println!("packed {count}"))
        }
        ["persistence", vectors, out] => {
            persistence::run(Path::new(vectors), Path::new(out)).map(|count| println!("run {count}"))
        }
        ["verify-persistence", vectors] => persistence::verify(Path::new(vectors), 1).and_then(|(count, failed)| {
            println!("run {count}");
            if failed.is_empty() { Ok(()) } else { Err(failed.into()) }
        }),
        #[cfg(feature = "postgres")]
        ["verify-postgres", url, folder, share] => postgres::verify(url, Path::new(folder), share),
        ["verify", folder] => verify(Path::new(folder), write),
        ["messages", folder, out] => {
            messages::run(Path::new(folder), Path::new(out)).map(|count| println!("ran {count}"))
        }
        ["pack-messages", folder, out] => {
            messages::pack(Path::new(folder), Path::new(out)).map(|count| println!("packed {count}"))
        }
        ["verify-messages", folder] => verify_messages(Path::new(folder), write),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn verify(folder: &Path, write: bool) -> RunnerResult<()> {
    let report = vectors::verify(folder, &vectors::ways())?;
    println!("{} of {} give the trace of the reference", report.run - report.failed.len(), report.run);
    if write {
        return report.write_open(folder);
    }
    let surprises = report.surprises();
    if surprises.is_empty() { Ok(()) } else { Err(surprises.into()) }
}

fn verify_messages(folder: &Path, write: bool) -> RunnerResult<()> {
    let (count, surprises) = messages::verify(folder, write)?;
    println!("{count} calls");
    if write || surprises.is_empty() { Ok(()) } else { Err(surprises.into()) }
}

fn run_all(scenarios: &Path, out: &Path, options: Options) -> RunnerResult<()> {
    std::fs::create_dir_all(out)?;
    let (mut run, mut reasons) = (0, BTreeMap::<String, usize>::new());
    for path in files(scenarios)? {
        let scenario: Scenario = serde_json::from_slice(&std::fs::read(&path)?)?;
        let name = scenario.name.clone();
        let missing = scenario::unsupported(&scenario)?;
        let result = match missing.is_empty() {
            true => run_one(scenario, options)?,
            false => Err(missing.into_iter().collect::<Vec<_>>()),
        };
        match result {
            Ok(trace) => {
                run += 1;
                std::fs::write(out.join(format!("{name}.json")), format!("{trace:#}\n"))?;
            }
            Err(missing) => {
                eprintln!("{name}: unsupported: {}", missing.join(", "));
                missing.into_iter().for_each(|what| *reasons.entry(what).or_default() += 1);
            }
        }
    }
    println!("run {run}");
    reasons.into_iter().for_each(|(what, count)| println!("unsupported {what} {count}"));
    Ok(())
}

fn files(place: &Path) -> RunnerResult<Vec<PathBuf>> {
    if place.is_file() {
        return Ok(vec![place.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in std::fs::read_dir(place)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Runs a scenario on a new store.
fn run_one(scenario: Scenario, options: Options) -> RunnerResult<Result<Json, Vec<String>>> {
    #[cfg(feature = "postgres")]
    if let Some(url) = options.server {
        let (schema, store) = postgres::store(url)?;
        let ran = run_on_store(scenario, options, store);
        postgres::drop_schema(url, &schema)?;
        return ran;
    }
    let folder = tempfile::tempdir()?;
    let store = match options.sqlite {
        true => Store::open(folder.path().join("threads.annals"))?,
        false => Store::memory(),
    };
    run_on_store(scenario, options, store)
}

/// Runs a scenario. Under the blocking driver it runs in a node of another graph: there the tasks of a superstep run
/// one after another on the thread of that node, in task order, as in the traces.
fn run_on_store(scenario: Scenario, options: Options, store: Store) -> RunnerResult<Result<Json, Vec<String>>> {
    if options.driver == DriverKind::Async {
        return Ok(steps::Runner::new(&scenario, options, store).run().map_err(|what| vec![what]));
    }
    let result = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&result);
    let outer = StateGraph::with_schema(DynSchema::new().build())
        .node("scenario", move |_: &DynState| {
            let ran = steps::Runner::new(&scenario, options, store.clone()).run();
            *kept.lock().map_err(|error| error.to_string())? = Some(ran);
            Ok(())
        })
        .edge(START, "scenario")
        .compile()?;
    outer.invoke((), DynUpdate::new())?;
    let ran = result.lock().map_err(|error| error.to_string())?.take();
    ran.map(|ran| ran.map_err(|what| vec![what])).ok_or_else(|| "the scenario did not run".into())
}
