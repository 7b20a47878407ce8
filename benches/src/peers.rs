//! The peers: the real LangGraph, run by a script.

use std::process::Command;

use serde_json::{Map, Value, json};

use crate::figures::FigureReport;
use crate::{Bench, Result};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/langgraph_turns.py");
/// The exit code of the script when the package is missing.
const MISSING: i32 = 3;

/// Runs the same turns with LangGraph and its SQLite saver, which commits at FULL.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    eprintln!("annals-bench: running LangGraph, which takes about a minute");
    let turns = if bench.quick { "20,100" } else { "100,1000" };
    let output = Command::new(&bench.python)
        .args([SCRIPT, "--dir"])
        .arg(&bench.dir)
        .args(["--turns", turns])
        // It must not call home.
        .envs([("LANGSMITH_TRACING", "false"), ("LANGCHAIN_TRACING_V2", "false")])
        .output();
    let output = match output {
        Err(error) => return skip(report, format!("{} does not run: {error}", bench.python)),
        Ok(output) => output,
    };
    if output.status.code() == Some(MISSING) {
        return skip(report, String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    if !output.status.success() {
        return Err(format!("{SCRIPT}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into());
    }
    let mut peer: Map<String, Value> = serde_json::from_slice(&output.stdout)?;
    for (ratio, theirs, ours) in [
        ("turn_ratio_1k", "turn_us_1k", "turn_full_us_1k"),
        ("bytes_ratio_1k", "bytes_per_turn_1k", "bytes_per_turn_1k"),
    ] {
        let value = peer.get(theirs).and_then(Value::as_f64).zip(report.get(ours)).map(|(theirs, ours)| theirs / ours);
        peer.insert(ratio.into(), json!(value.map(|value| (value * 10.0).round() / 10.0)));
    }
    report.langgraph = Value::Object(peer);
    Ok(())
}

fn skip(report: &mut FigureReport, reason: String) -> Result<()> {
    eprintln!("annals-bench: LangGraph is skipped: {reason}");
    report.langgraph = json!({ "skipped": reason });
    Ok(())
}
