//! `annals export --all --site FOLDER`: the threads as a folder of HTML documents with an index.
//!
//! Prints the number of threads and what was written. Exit code 4 if a thread could not be read. JSON: `{"schema": 1,
//! "index", "threads", "written", "unchanged", "removed", "unread": [{"thread", "reason"}]}`.

use std::path::Path;

use annals::store::Store;
use annals_page::write_site;
use serde_json::{Value as Json, json};

use crate::errors::CommandFailure;
use crate::key::NamedStore;
use crate::output::{Printer, count, cut, escape, grouped, note};
use crate::{point, server};

pub(crate) fn export(
    folder: &Path,
    store: &Store,
    named: NamedStore<'_>,
    out: &mut Printer,
) -> Result<u8, CommandFailure> {
    let name = server::shown(point::named(named)?);
    let summary = write_site(store, folder, &name)?;
    let index = folder.join("index.html").display().to_string();
    let code = if summary.unread.is_empty() { 0 } else { 4 };
    if out.is_json() {
        let unread = summary.unread.iter().map(|(thread, reason)| json!({ "thread": thread, "reason": reason }));
        out.json(&json!({
            "schema": 1,
            "index": index,
            "threads": summary.threads,
            "written": summary.written,
            "unchanged": summary.unchanged,
            "removed": summary.removed,
            "unread": unread.collect::<Vec<Json>>(),
        }))?;
        return Ok(code);
    }
    let threads = count(usize::try_from(summary.threads).unwrap_or(usize::MAX), "thread");
    let figures = [(summary.written, "written"), (summary.unchanged, "unchanged"), (summary.removed, "removed")];
    let figures = figures.into_iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{} {word}", grouped(n)));
    let figures = figures.collect::<Vec<_>>().join(", ");
    let figures = if figures.is_empty() { figures } else { format!(": {figures}") };
    out.line(format!("{threads} to {}{figures}", escape(&index)))?;
    out.flush()?;
    for (thread, reason) in &summary.unread {
        note(format!("not read: {}: {}", escape(thread), cut(&escape(reason), 200)));
    }
    Ok(code)
}
