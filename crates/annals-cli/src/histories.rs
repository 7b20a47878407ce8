//! `annals import PATH` and `annals export --all`: the histories of other programs.
//!
//! `import` prints the number of threads and messages, and on stderr the records that were not understood and the files
//! that make no thread. It fails if no thread was read. JSON: `{"schema": 1, "threads": {"new", "grown", "unchanged"},
//! "messages", "checkpoints", "not_understood": {kind: count}, "files_without_thread": [{"file", "kind"}]}`. `export
//! --all --format turns-json` prints `{"threads": [THREAD], "not_understood": {kind: count}, "schema": 1}`, with or
//! without `--json`.

use annals::store::Store;
use annals_import::{FileWithoutThread, ImportError, ImportSummary, Importer, SourceKind, export_turns};
use serde_json::json;

use crate::args;
use crate::errors::CommandFailure;
use crate::key::NamedStore;
use crate::output::{Printer, count, escape, note};
use crate::point;
use crate::progress;

pub(crate) fn import(args: &args::ImportArgs, store: NamedStore<'_>, out: &mut Printer) -> Result<u8, CommandFailure> {
    if args.file.as_os_str() == "-" {
        return Err(CommandFailure::usage("messages from stdin need --name NEW"));
    }
    if !args.file.exists() {
        let message = format!("{} does not exist", args.file.display());
        return Err(CommandFailure::not_found("file_not_found", message));
    }
    let store = point::open_or_make(store)?;
    let mut importer = Importer::new(&store);
    if let Some(args::ImportSource::Histories(source)) = args.from {
        importer = importer.only(source);
    }
    let importer = importer.progress(|done, found| progress::say(|| format!("{done} of {found} files read")));
    let summary = importer.run(&args.file)?;
    if out.is_json() {
        let files = summary.files_without_thread.iter().map(|of| json!({ "file": of.file, "kind": of.kind }));
        out.json(&json!({
            "schema": 1,
            "threads": {
                "new": summary.threads_new,
                "grown": summary.threads_grown,
                "unchanged": summary.threads_unchanged,
            },
            "messages": summary.messages,
            "checkpoints": summary.checkpoints,
            "not_understood": summary.not_understood,
            "files_without_thread": files.collect::<Vec<_>>(),
        }))?;
        return outcome(&summary, args);
    }
    let number = |n: u64, noun: &str| count(usize::try_from(n).unwrap_or(usize::MAX), noun);
    out.line(format!(
        "{} new, {} grown, {} unchanged; {} imported",
        number(summary.threads_new, "thread"),
        summary.threads_grown,
        summary.threads_unchanged,
        number(summary.messages, "message")
    ))?;
    out.flush()?;
    let records = summary.records_not_understood();
    if !records.is_empty() {
        note("not understood, and stored as found:");
        for (kind, n) in &records {
            note(format!("  {}: {n}", escape(kind)));
        }
    }
    if !summary.files_without_thread.is_empty() {
        note("files without a thread:");
        for FileWithoutThread { file, kind, .. } in &summary.files_without_thread {
            note(format!("  {}: {}", escape(file), escape(kind)));
        }
    }
    outcome(&summary, args)
}

/// Fails if no thread was read.
fn outcome(summary: &ImportSummary, args: &args::ImportArgs) -> Result<u8, CommandFailure> {
    if summary.threads() > 0 {
        return Ok(0);
    }
    let programs = SourceKind::ALL.map(SourceKind::name).join(", ");
    let message = format!("no thread was read from {}", args.file.display());
    Err(CommandFailure::new(1, "nothing_imported", message)
        .hint(format!("the programs whose histories are read: {programs}; --name NEW reads a file of messages")))
}

pub(crate) fn export(store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let mut document = export_turns(store)?;
    document["schema"] = json!(1);
    out.json(&document)?;
    Ok(0)
}

impl From<ImportError> for CommandFailure {
    fn from(error: ImportError) -> Self {
        let message = error.to_string();
        match error {
            ImportError::Store(error) => annals_graph::Error::from(error).into(),
            ImportError::UnknownSource { .. } => Self::usage(message),
            _ => Self::new(70, "io", message),
        }
    }
}
