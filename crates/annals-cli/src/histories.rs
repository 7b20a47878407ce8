//! `annals import PATH`, `annals import` and `annals export --all`: the histories of other programs.
//!
//! `import` prints the number of threads and messages, and on stderr the records that were not understood and the files
//! that make no thread. It fails if no thread was read. Without a path it reads the histories on this machine: it asks
//! on a terminal, and needs `--yes` without one. With `--watch` it goes on and prints a line for each change. JSON:
//! `{"schema": 1, "threads": {"new", "grown", "unchanged"}, "messages", "checkpoints", "redacted", "not_understood":
//! {kind: count}, "files_without_thread": [{"file", "kind"}]}`. `export --all --format turns-json` prints `{"threads":
//! [THREAD], "not_understood": {kind: count}, "schema": 1}`, with or without `--json`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use annals::base::{Clock as _, SystemClock};
use annals::store::Store;
use annals_import::{FileWithoutThread, ImportError, ImportSummary, Importer, SourceKind, export_turns};
use serde_json::json;

use crate::args;
use crate::errors::CommandFailure;
use crate::found::{self, GroupStamp, HistoryGroup};
use crate::key::NamedStore;
use crate::output::{Printer, columns, count, escape, note, size};
use crate::point;
use crate::progress;
use crate::trash;

/// The wait between two looks at the files. A look at 1,000 files takes 1.5 ms of a debug build, so that files are
/// polled, without a dependency for notifications, which lose files on network folders.
const WAIT: Duration = Duration::from_secs(2);

/// A group that has changed is read again after so many times as long as the last reading took: a long history that
/// grows all the time takes this part of one core.
const REST: u32 = 10;

/// Imports a file or folder.
pub(crate) fn import(
    args: &args::ImportArgs,
    path: &Path,
    store: NamedStore<'_>,
    out: &mut Printer,
) -> Result<u8, CommandFailure> {
    if path.as_os_str() == "-" {
        return Err(CommandFailure::usage("messages from stdin need --name NEW"));
    }
    if !path.exists() {
        let message = format!("{} does not exist", path.display());
        return Err(CommandFailure::not_found("file_not_found", message));
    }
    let group = HistoryGroup { source: args.histories(), paths: vec![path.to_owned()] };
    import_groups(args, vec![group], &path.display().to_string(), store, out)
}

/// Imports the histories on this machine.
pub(crate) fn import_found(
    args: &args::ImportArgs,
    no_input: bool,
    store: NamedStore<'_>,
    out: &mut Printer,
) -> Result<u8, CommandFailure> {
    point::named(store)?;
    let groups = found::groups(args.histories());
    if groups.is_empty() {
        let message = "no history was found on this machine".to_owned();
        return Err(CommandFailure::new(1, "nothing_imported", message).hint(programs()));
    }
    let mut sums: BTreeMap<Option<SourceKind>, (GroupStamp, Vec<String>)> = BTreeMap::new();
    for group in &groups {
        let stamp = group.stamp();
        let (sum, paths) = sums.entry(group.source).or_default();
        (sum.files, sum.bytes) = (sum.files + stamp.files, sum.bytes + stamp.bytes);
        paths.extend(group.paths.iter().map(|path| found::short(path)));
    }
    let rows: Vec<Vec<String>> = sums
        .iter()
        .map(|(source, (sum, paths))| {
            let more = if paths.len() > 1 { format!(" and {} more", paths.len() - 1) } else { String::new() };
            let name = source.map_or("", SourceKind::name).to_owned();
            vec![name, count(sum.files, "file"), size(sum.bytes), format!("{}{more}", escape(&paths[0]))]
        })
        .collect();
    columns(&rows).iter().for_each(|row| note(row.trim_end()));
    let what = format!("the histories of {} would be imported", count(rows.len(), "program"));
    if !args.yes && (no_input || !trash::asked(&what)?) {
        let failure = CommandFailure::new(7, "needs_yes", format!("{what}; nothing was changed"));
        return Err(failure.hint("repeat it with --yes, or name a file or folder"));
    }
    import_groups(args, groups, "this machine", store, out)
}

/// Imports groups, and with `--watch` what changes in them.
fn import_groups(
    args: &args::ImportArgs,
    mut groups: Vec<HistoryGroup>,
    place: &str,
    store: NamedStore<'_>,
    out: &mut Printer,
) -> Result<u8, CommandFailure> {
    let store = point::open_or_make(store)?;
    let mut watched: Vec<WatchedGroup> = Vec::new();
    let mut summary = ImportSummary::default();
    for group in groups.drain(..) {
        let mut group = WatchedGroup::new(group);
        summary.add(group.import(args, &store)?);
        watched.push(group);
    }
    let code = print(&summary, out).and_then(|()| outcome(&summary, place));
    if !args.watch {
        return code;
    }
    out.flush()?;
    note("watching; Ctrl-C ends it");
    loop {
        std::thread::sleep(WAIT);
        if out.reader_is_gone() {
            return Ok(0);
        }
        if args.file.is_none() {
            let is_known = |group: &HistoryGroup| watched.iter().any(|of| of.group.paths == group.paths);
            let new: Vec<_> = found::groups(args.histories()).into_iter().filter(|group| !is_known(group)).collect();
            watched.extend(new.into_iter().map(WatchedGroup::new));
        }
        for group in watched.iter_mut().filter(|group| group.is_due()) {
            match group.import(args, &store) {
                Ok(summary) if summary.checkpoints > 0 => {
                    print(&summary, out)?;
                    out.flush()?;
                }
                Ok(_) => {}
                // A file that vanished is not there at the next look.
                Err(error @ ImportError::Io { .. }) => note(escape(&error.to_string())),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// A group with what was last read of it.
struct WatchedGroup {
    group: HistoryGroup,
    read: Option<GroupStamp>,
    /// The time at which it may be read again.
    due: Duration,
}

impl WatchedGroup {
    fn new(group: HistoryGroup) -> Self {
        Self { group, read: None, due: Duration::ZERO }
    }

    /// Returns whether the group has changed since it was read, and has rested.
    fn is_due(&self) -> bool {
        SystemClock.elapsed() >= self.due && self.read != Some(self.group.stamp())
    }

    fn import(&mut self, args: &args::ImportArgs, store: &Store) -> Result<ImportSummary, ImportError> {
        // The stamp precedes the reading: a later change makes the group due again.
        self.read = Some(self.group.stamp());
        let started = SystemClock.elapsed();
        let mut importer = Importer::new(store);
        if let Some(source) = self.group.source {
            importer = importer.only(source);
        }
        if args.redact {
            importer = importer.redacting();
        }
        let importer = importer.progress(|done, found| progress::say(|| format!("{done} of {found} files read")));
        let summary = importer.run_all(&self.group.paths);
        let now = SystemClock.elapsed();
        self.due = now + (now - started) * REST;
        summary
    }
}

/// Prints the result of an import.
fn print(summary: &ImportSummary, out: &mut Printer) -> Result<(), CommandFailure> {
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
            "redacted": summary.redacted,
            "not_understood": summary.not_understood,
            "files_without_thread": files.collect::<Vec<_>>(),
        }))?;
        return Ok(());
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
    if summary.redacted > 0 {
        note(format!("{} redacted", number(summary.redacted, "secret")));
    }
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
    Ok(())
}

/// Fails if no thread was read.
fn outcome(summary: &ImportSummary, place: &str) -> Result<u8, CommandFailure> {
    if summary.threads() > 0 {
        return Ok(0);
    }
    let message = format!("no thread was read from {place}");
    Err(CommandFailure::new(1, "nothing_imported", message)
        .hint(format!("{}; --name NEW reads a file of messages", programs())))
}

/// Returns the names of the programs whose histories are read.
fn programs() -> String {
    format!("the programs whose histories are read: {}", SourceKind::ALL.map(SourceKind::name).join(", "))
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
