//! `annals export` and `annals import`: the messages of a thread in the format of another program, and back.
//!
//! `export` writes the messages to stdout and reports on stderr the fields that were left out; with `--out` it writes a
//! file and prints a report. JSON: `{"schema": 1, "thread", "checkpoint", "channel", "format", "messages", "items",
//! "kept", "refused": PROBLEMS, "damaged": PROBLEMS, "left_out": {field: count}}`. `import` prints the id of the new
//! thread; JSON: `{"schema": 1, "thread", "checkpoint", "channel", "format", "items", "messages", "ids_given",
//! "checkpoints", "not_understood": PROBLEMS, "left_out": {"count", "first": [{"line", "reason"}]}, "beside":
//! [name]}`. PROBLEMS is `{"count", "first": [{"position", "reason"}]}`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use annals::history::{
    Damaged, ExportOptions, ExportReport, Framing, ImportOptions, ImportReport, Problems, Snapshot, TransferError,
};
use annals::message::{LangChainFormat, MessageFormat};
use annals::store::Store;
use serde_json::{Value as Json, json};

use crate::args::{self, ExportFormat, ImportSource, TranscriptFormat};
use crate::errors::CommandFailure;
use crate::histories;
use crate::key::NamedStore;
use crate::langgraph;
use crate::otlp;
use crate::output::{Printer, SafeLines, count, escape, note};
use crate::point::{self, resolve};
use crate::site;
use crate::thread_file;
use crate::transcript;
use crate::words;

/// The number of problems that are printed one by one.
const PROBLEMS_SHOWN: usize = 5;

pub(crate) fn export(
    args: &args::ExportArgs,
    store: &Store,
    named: NamedStore<'_>,
    out: &mut Printer,
) -> Result<u8, CommandFailure> {
    let lines: Arc<dyn MessageFormat> = Arc::new(LangChainFormat);
    if let Some(folder) = &args.site {
        return site::export(folder, store, named, out);
    }
    let (format, point) = match (&args.format, &args.point) {
        (ExportFormat::LangGraph(form), _) => return langgraph::export(args, *form, store, out),
        (ExportFormat::Otlp, Some(_)) if args.out.is_some() => {
            return Err(CommandFailure::usage("--format otlp-json prints, and has no --out"));
        }
        (ExportFormat::Otlp, Some(thread)) => return otlp::export(thread, store, out),
        (_, None) if args.out.is_some() => return Err(CommandFailure::usage("--all prints, and has no --out")),
        (ExportFormat::Turns, None) => return histories::export(store, out),
        (ExportFormat::Turns, Some(_)) => return Err(CommandFailure::usage("--format turns-json needs --all")),
        (_, None) => {
            let message = "--all needs --site FOLDER, or --format turns-json, langgraph-sqlite or langgraph-json";
            return Err(CommandFailure::usage(message));
        }
        (ExportFormat::Thread, Some(point)) => return thread_file::export(args, point, store, named, out),
        (ExportFormat::Transcript(format), Some(point)) => return transcript(args, *format, point, store, out),
        (ExportFormat::Lines, Some(point)) => (&lines, point),
        (ExportFormat::Messages(format), Some(point)) => (format, point),
    };
    let at = resolve(store, point)?;
    let channel = match &args.channel {
        Some(channel) => channel.as_str().into(),
        None => words::message_channel(&at)?,
    };
    let is_lines = args.lines || matches!(args.format, ExportFormat::Lines);
    let framing = if is_lines { Framing::Lines } else { Framing::List };
    let options = ExportOptions::new().shared_format(Arc::clone(format)).framing(framing);
    let options = options.damaged(if args.damaged { Damaged::Placeholder } else { Damaged::Error });
    let Some(path) = &args.out else {
        // Every line ends with a newline, so the buffer is empty at the end.
        let report = at.export_messages(&channel, &options, &mut SafeLines::new(out))?;
        report_export(&report);
        return Ok(0);
    };
    let report = to_file(&at, &channel, &options, path)?;
    if out.is_json() {
        let mut document = words::place(&at);
        document["schema"] = json!(1);
        document["channel"] = json!(&*channel);
        document["format"] = json!(format.name());
        document["messages"] = json!(report.messages);
        document["items"] = json!(report.items);
        document["kept"] = json!(report.retained);
        document["refused"] = problems(&report.refused);
        document["damaged"] = problems(&report.damaged);
        document["left_out"] = json!(report.left_out);
        out.json(&document)?;
        return Ok(0);
    }
    out.line(format!("{} to {}", messages(report.messages), escape(&path.display().to_string())))?;
    out.flush()?;
    report_export(&report);
    Ok(0)
}

/// Writes the messages at a point as a document for people.
fn transcript(
    args: &args::ExportArgs,
    format: TranscriptFormat,
    point: &str,
    store: &Store,
    out: &mut Printer,
) -> Result<u8, CommandFailure> {
    if args.lines || args.damaged {
        return Err(CommandFailure::usage("--lines and --damaged are for formats of messages"));
    }
    let at = resolve(store, point)?;
    let channel = match &args.channel {
        Some(channel) => channel.as_str().into(),
        None => words::message_channel(&at)?,
    };
    let write = match format {
        TranscriptFormat::Markdown => transcript::markdown,
        TranscriptFormat::Html => transcript::html,
    };
    let Some(path) = &args.out else {
        let mut text = Vec::new();
        write(&at, &channel, &mut text)?;
        out.raw_line(String::from_utf8_lossy(&text).trim_end_matches('\n'))?;
        return Ok(0);
    };
    let mut file = std::io::BufWriter::new(new_file(path)?);
    let written = write(&at, &channel, &mut file).and_then(|count| Ok((count, file.flush()?)));
    if written.is_err() {
        // Half a document is worse than none. An error of the removal is dropped: the error of the export is reported.
        _ = std::fs::remove_file(path);
    }
    let (count, ()) = written?;
    if out.is_json() {
        let mut document = words::place(&at);
        let name = if format == TranscriptFormat::Html { "html" } else { "markdown" };
        let none = json!({ "count": 0, "first": [] });
        for (member, value) in [
            ("schema", json!(1)),
            ("channel", json!(&*channel)),
            ("format", json!(name)),
            ("messages", json!(count)),
            ("items", json!(count)),
            ("kept", json!(0)),
            ("refused", none.clone()),
            ("damaged", none),
            ("left_out", json!({})),
        ] {
            document[member] = value;
        }
        out.json(&document)?;
        return Ok(0);
    }
    out.line(format!("{} to {}", messages(count), escape(&path.display().to_string())))?;
    Ok(0)
}

/// Makes a new file that its owner alone can read.
fn new_file(path: &Path) -> Result<File, CommandFailure> {
    let mut new = File::options();
    new.write(true).create_new(true);
    // Messages are for their owner, as the store itself is.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut new, 0o600);
    new.open(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let message = format!("file {} exists already and was not changed", path.display());
            CommandFailure::new(5, "file_exists", message).hint("choose another --out")
        }
        _ => CommandFailure::new(70, "io", format!("{}: {error}", path.display())),
    })
}

/// Writes a new file. The file is removed if the export fails.
fn to_file(at: &Snapshot, channel: &str, options: &ExportOptions, path: &Path) -> Result<ExportReport, CommandFailure> {
    let mut file = new_file(path)?;
    let exported = at.export_messages(channel, options, &mut file);
    if exported.is_err() {
        // Half a list is worse than none. An error of the removal is dropped: the error of the export is reported.
        _ = std::fs::remove_file(path);
    }
    Ok(exported?)
}

/// Reports on stderr the fields and messages that an export left out.
fn report_export(report: &ExportReport) {
    if !report.left_out.is_empty() {
        let fields: Vec<String> = report.left_out.iter().map(|(field, n)| format!("{field} ({n})")).collect();
        note(format!("the format has no field for: {}", fields.join(", ")));
    }
    report_problems(&report.damaged, "cannot be read and were replaced by placeholders");
    report_problems(&report.refused, "cannot be written in the format and were left out");
}

pub(crate) fn import(
    args: &args::ImportArgs,
    no_input: bool,
    store: NamedStore<'_>,
    out: &mut Printer,
) -> Result<u8, CommandFailure> {
    point::leaving_no_empty(store, || match &args.file {
        Some(file) => import_any(args, file, store, out),
        None => histories::import_found(args, no_input, store, out),
    })
}

fn import_any(
    args: &args::ImportArgs,
    file: &Path,
    store: NamedStore<'_>,
    out: &mut Printer,
) -> Result<u8, CommandFailure> {
    if args.from.is_none() && !args.is_of_histories() && thread_file::is_store(file) {
        return thread_file::import(args, file, store, out);
    }
    let Some(name) = &args.name else {
        let is_langgraph = args.from == Some(ImportSource::LangGraph);
        let is_any = args.from.is_none() && !args.is_of_histories();
        let database = if is_any { langgraph::database(file) } else { None };
        return match is_langgraph || database.is_some() {
            true => langgraph::import(file, database, store, out),
            false => histories::import(args, file, store, out),
        };
    };
    let input: Box<dyn Read> = if file.as_os_str() == "-" {
        Box::new(io::stdin().lock())
    } else {
        let opened = File::open(file).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                CommandFailure::not_found("file_not_found", format!("file {} does not exist", file.display()))
            }
            _ => CommandFailure::new(70, "io", format!("{}: {error}", file.display())),
        })?;
        Box::new(opened)
    };
    let store = point::open_or_make(store)?;
    let thread = store.thread(name)?;
    let mut options = ImportOptions::new().shared_format(Arc::clone(&args.format)).channel(args.channel.as_str());
    if args.lines {
        options = options.framing(Framing::Lines);
    }
    if args.lenient {
        options = options.lenient();
    }
    let report = thread.import_messages(&options, input)?;
    if out.is_json() {
        let checkpoint = thread.head()?.map(|head| head.id().to_string());
        let ImportReport { items, messages, ids_given, checkpoints, not_understood, left_out, beside, .. } = &report;
        let lines = left_out.first.iter().map(|line| json!({ "line": line.line, "reason": line.reason }));
        out.json(&json!({
            "schema": 1,
            "thread": thread.id().as_str(),
            "checkpoint": checkpoint,
            "channel": args.channel,
            "format": args.format.name(),
            "items": items,
            "messages": messages,
            "ids_given": ids_given,
            "checkpoints": checkpoints,
            "not_understood": problems(not_understood),
            "left_out": { "count": left_out.count, "first": lines.collect::<Vec<_>>() },
            "beside": beside,
        }))?;
        return Ok(0);
    }
    out.line(escape(thread.id().as_str()))?;
    out.flush()?;
    note(format!("{} imported", messages(report.messages)));
    report_problems(&report.not_understood, "were not understood and are stored unchanged");
    let left_out = &report.left_out;
    report_all(left_out.count, "left out, by line", left_out.first.iter().map(|line| (line.line, &line.reason)));
    if !report.beside.is_empty() {
        note(format!("left out beside the messages: {}", escape(&report.beside.join(", "))));
    }
    Ok(0)
}

fn messages(n: u64) -> String {
    count(usize::try_from(n).unwrap_or(usize::MAX), "message")
}

fn report_problems(problems: &Problems, what: &str) {
    report_all(problems.count, what, problems.first.iter().map(|problem| (problem.position, &problem.reason)));
}

/// Reports the number of problems, and the place and reason of the first of them.
fn report_all<'a>(n: u64, what: &str, first: impl Iterator<Item = (u64, &'a String)>) {
    if n == 0 {
        return;
    }
    note(format!("{n} {what}:"));
    for (at, reason) in first.take(PROBLEMS_SHOWN) {
        note(format!("  {at}: {}", crate::output::cut(&escape(reason), 200)));
    }
}

fn problems(problems: &Problems) -> Json {
    let first = problems.first.iter().map(|problem| json!({ "position": problem.position, "reason": problem.reason }));
    json!({ "count": problems.count, "first": first.collect::<Vec<_>>() })
}

impl From<TransferError> for CommandFailure {
    fn from(error: TransferError) -> Self {
        let message = error.to_string();
        match error {
            TransferError::Store(error) => error.into(),
            TransferError::Exists { .. } => Self::new(5, "thread_exists", message).hint("choose another --name"),
            TransferError::NoList { .. } => {
                Self::not_found("channel_not_found", message).hint("annals show THREAD lists the channels")
            }
            TransferError::NotJson { messages: 0, .. } => Self::new(4, "not_json", message),
            TransferError::NotJson { .. } => Self::new(4, "not_json", message).hint(
                "the messages before it are stored; to repeat, choose another --name; --lenient skips broken lines",
            ),
            _ => Self::new(70, "io", message),
        }
    }
}
