//! The command `annals` as whole processes: its start, and the first screens of a large store, beside the start of a
//! process that does nothing; and the import of many conversations.
//!
//! The command is the one that was built beside this program. *Absent:* its figures if it was not built.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use annals::store::Synchronous;
use serde_json::json;

use crate::disk::{self, same};
use crate::figures::FigureReport;
use crate::scale::Growing;
use crate::stats::{Side, interleave, median, timed};
use crate::{Bench, Result};

/// Lines that `head` reads.
const HEAD_LINES: usize = 10;

/// Measures the figures of the command.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let annals = std::env::current_exe()?.with_file_name(format!("annals{}", std::env::consts::EXE_SUFFIX));
    if !annals.is_file() {
        eprintln!("annals-bench: the command is not built: cargo build --release -p annals-cli");
        return Ok(());
    }
    let size = if bench.quick { 1_000 } else { 100_000 };
    let path = bench.file("command.db")?;
    let opened = disk::open(&path, Synchronous::Normal)?;
    for n in 0..size {
        Growing::new(&format!("thread {n:06}"), n + 2)?.grow(&opened, 1)?;
    }
    // The last one that was active is the first one of the list.
    Growing::new("long", 1)?.grow(&opened, size)?;
    opened.empty_wal()?;
    drop(opened);
    let command = |arguments: &[&str]| {
        let mut command = Command::new(&annals);
        command.args(arguments).arg("--store").arg(&path);
        command
    };
    let mut sides: [Side<'_>; 7] = [
        Box::new(|| whole(&mut Command::new("true"), 0)),
        Box::new(|| whole(Command::new(&annals).arg("--version"), 1)),
        Box::new(|| whole(&mut command(&["threads"]), 51)),
        Box::new(|| whole(&mut command(&["log", "long"]), 51)),
        Box::new(|| first_lines(&mut command(&["threads", "-n", "0"]))),
        Box::new(|| first_lines(&mut command(&["log", "long", "-n", "0"]))),
        Box::new(|| ended(&mut command(&["stats", "--by", "day"]))),
    ];
    let costs = interleave(bench.runs(51, 3), &mut sides)?;
    drop(sides);
    let names = ["cli_process_ms", "cli_start_ms", "cli_threads_ms_100k", "cli_log_ms_100k"];
    let names = names.iter().chain(&["cli_threads_head_ms_100k", "cli_log_head_ms_100k", "cli_stats_day_ms_100k"]);
    for (name, costs) in names.zip(&costs) {
        report.set(name, median(costs));
    }
    let source = bench.file("conversations.jsonl")?;
    conversations(&source, usize::try_from(size)?)?;
    let mut import = Command::new(&annals);
    import.arg("import").arg(&source).arg("--store").arg(bench.file("imported.db")?);
    report.set("cli_import_s_100k", ended(&mut import)? / 1e3);
    Ok(())
}

/// Writes conversations of four messages, one of them with a tool call, a line each.
fn conversations(path: &Path, count: usize) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for n in 0..count {
        let call = json!({"id": format!("call-{n}"), "type": "function", "function": {
            "name": "rooms", "arguments": json!({"city": "Bern", "nights": n % 7}).to_string()}});
        let messages = json!([
            {"role": "user", "content": format!("Is there a room in Bern for order {n}? {}", "It rains. ".repeat(n % 40))},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": format!("call-{n}"), "content": format!("{} rooms", n % 9)},
            {"role": "assistant", "content": format!("Order {n}: yes. {}", "It has a view of the river. ".repeat(n % 30))},
        ]);
        writeln!(file, "{}", json!({"id": format!("order-{n}"), "messages": messages}))?;
    }
    Ok(file.flush()?)
}

/// Returns the milliseconds from the start of a process to its end. It has to succeed.
fn ended(command: &mut Command) -> Result<f64> {
    let (us, output) = timed(|| Ok(command.stdin(Stdio::null()).output()?))?;
    same("the exit code of a command", output.status.code(), Some(0))?;
    Ok(us / 1e3)
}

/// Returns the milliseconds from the start of a process to its end. It has to print a number of lines.
fn whole(command: &mut Command, lines: usize) -> Result<f64> {
    let (us, output) = timed(|| Ok(command.stdin(Stdio::null()).stderr(Stdio::null()).output()?))?;
    same("the exit code of a command", output.status.code(), Some(0))?;
    same("lines of a command", output.stdout.split_inclusive(|byte| *byte == b'\n').count(), lines)?;
    Ok(us / 1e3)
}

/// Returns the milliseconds from the start of a process to its end, if its output is closed after the first lines, as
/// `head` does.
fn first_lines(command: &mut Command) -> Result<f64> {
    let (us, code) = timed(|| {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("a process without an output")?);
        let read = output.lines().take(HEAD_LINES).collect::<std::io::Result<Vec<_>>>()?;
        same("lines for head", read.len(), HEAD_LINES)?;
        Ok(child.wait()?.code())
    })?;
    same("the exit code of a command whose reader is gone", code, Some(0))?;
    Ok(us / 1e3)
}
