//! The workflow of five tasks, here and with the Python package DBOS on its embedded SQLite, one after another at FULL.

use std::process::Command;

use serde_json::{Map, Value, json};

use crate::figures::FigureReport;
use crate::stats::median;
use crate::{Bench, Result, workflows};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/dbos_workflows.py");
/// The exit code of the script when the package is missing.
const MISSING: i32 = 3;

/// Lets both sides take turns, and notes the medians of each.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let (flow, runs) = (workflows::five_tasks()?, bench.runs(200, 10));
    let (mut theirs, mut ours, mut peer) = (Vec::new(), Vec::new(), Map::new());
    for _ in 0..bench.runs(3, 1) {
        let (us, bytes) = workflows::alone(&bench.file("dbos-annals.db")?, &flow, runs)?;
        ours.push((us, bytes));
        let mut command = Command::new(&bench.python);
        command.arg(SCRIPT).arg("--dir").arg(&bench.dir).args(["--runs", &runs.to_string()]);
        let output = match command.output() {
            Err(error) => return skip(report, format!("{} does not run: {error}", bench.python)),
            Ok(output) => output,
        };
        if output.status.code() == Some(MISSING) {
            return skip(report, String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        if !output.status.success() {
            return Err(format!("{SCRIPT}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into());
        }
        peer = serde_json::from_slice(&output.stdout)?;
        let number = |name: &str| peer.get(name).and_then(Value::as_f64).ok_or(format!("the script shows no {name}"));
        theirs.push((number("workflow_us")?, number("workflow_bytes")?));
    }
    let of = |side: &[(f64, f64)], part: fn(&(f64, f64)) -> f64| median(&side.iter().map(part).collect::<Vec<_>>());
    for (name, part) in [("workflow_us", (|side| side.0) as fn(&(f64, f64)) -> f64), ("workflow_bytes", |side| side.1)]
    {
        peer.insert(name.into(), json!(of(&theirs, part).round()));
        peer.insert(format!("annals_{name}"), json!(of(&ours, part).round()));
    }
    report.set("workflows_per_s_ratio_dbos", of(&theirs, |side| side.0) / of(&ours, |side| side.0));
    report.set("workflow_bytes_ratio_dbos", of(&theirs, |side| side.1) / of(&ours, |side| side.1));
    report.dbos = Value::Object(peer);
    Ok(())
}

fn skip(report: &mut FigureReport, reason: String) -> Result<()> {
    eprintln!("annals-bench: DBOS is skipped: {reason}");
    report.dbos = json!({ "skipped": reason });
    Ok(())
}
