//! The health of the store: sizes, versions, modes of the files, the search index, the newest operations, and a check
//! on demand.

use annals::history::Operation;
use annals::store::check::CheckReport;
use serde_json::{Value as Json, json};

use super::{Screen, Shown};
use crate::address;
use crate::failure::Refusal;
use crate::file::FileFacts;
use crate::html::Html;
use crate::layout::View;
use crate::limits::{FINDINGS_MAX, OPERATIONS_MAX};
use crate::words::{ago, count, grouped, shortened, size};

pub(super) fn show(screen: &Screen<'_>) -> Result<Shown, Refusal> {
    let stats = screen.store.stats()?;
    let index = screen.store.search_index()?;
    let report = screen.query.get("check").map(|_| screen.store.check()).transpose()?;
    // A server has positions of its own, and no file.
    let last = screen.store.position(0)?.number().ok();
    let of_file = |n: u64| (stats.format > 0).then_some(n);
    let file = screen.page.file().and_then(FileFacts::read);
    if screen.json {
        return Ok(Shown::Json(json!({
            "schema": 1,
            "file_bytes": of_file(stats.file_bytes),
            "wal_bytes": of_file(stats.wal_bytes),
            "wal_frames": of_file(stats.wal_frames),
            "wal_copied_frames": of_file(stats.wal_copied_frames),
            "wal_limit_bytes": of_file(stats.wal_limit_bytes),
            "wal_is_large": stats.is_wal_large(),
            "erasing": stats.erasing,
            "last_seq": last,
            "annals": env!("CARGO_PKG_VERSION"),
            "sqlite": annals::rusqlite::version(),
            "file": file.as_ref().map(FileFacts::json),
            "search_index_behind": index.as_ref().map(|index| index.behind),
            "check": report.as_ref().map(check_document),
        })));
    }
    let mut html = Html::new();
    html.element("h1", &[], "Health").open("table", &[("class", "rows")]).open("tbody", &[]);
    let copied = format!("{} of {} frames copied", grouped(stats.wal_copied_frames), grouped(stats.wal_frames));
    let indexed = match &index {
        None => "none: a search reads texts".to_owned(),
        Some(index) => format!("{} behind", count(index.behind, "checkpoint")),
    };
    for (name, value) in [
        ("file", of_file(stats.file_bytes).map(size)),
        ("checkpoints in the log", last.map(grouped)),
        ("write-ahead log", of_file(stats.wal_bytes).map(|bytes| format!("{}, {copied}", size(bytes)))),
        ("limit of the log", of_file(stats.wal_limit_bytes).map(size)),
        ("search index", Some(indexed)),
        ("deleted threads with bytes in the file", of_file(stats.erasing).map(grouped)),
        ("version of annals", Some(env!("CARGO_PKG_VERSION").to_owned())),
        ("version of SQLite", Some(annals::rusqlite::version().to_owned())),
    ] {
        value.into_iter().for_each(|value| fact(&mut html, name, &value));
    }
    if let Some(file) = &file {
        files(&mut html, file);
    }
    html.close("tbody").close("table");
    if stats.is_wal_large() {
        html.classed("p", "error", "the log is past half of its limit: a reader keeps it from being copied");
    }
    if let Some(error) = &stats.wal_error {
        html.classed("p", "error", error);
    }
    html.element("h2", &[], "check");
    match &report {
        Some(report) => findings(&mut html, report),
        None => {
            html.within("p", &[], |html| {
                html.link("/health?check=1", "verify every row and checksum").text(": it reads all of the store");
            });
        }
    }
    html.classed("p", "dim", &screen.command(&["check"]));
    operations(screen, &mut html)?;
    let view = View::new("health", html);
    // A check reads the whole file, so that screen is not read again with each checkpoint.
    Ok(if report.is_some() { view } else { view.live("") }.into())
}

fn fact(html: &mut Html, name: &str, value: &str) {
    html.open("tr", &[]).element("th", &[("scope", "row")], name).element("td", &[("dir", "auto")], value).close("tr");
}

/// Adds the size and the mode of each file of the store.
fn files(html: &mut Html, facts: &FileFacts) {
    for file in &facts.files {
        fact(html, &shortened(&file.name, 80), &format!("{}, {}", size(file.bytes), file.mode_text()));
    }
}

fn findings(html: &mut Html, report: &CheckReport) {
    let counted = format!(
        "{}, {} checkpoints and {} values verified",
        count(report.threads, "thread"),
        grouped(report.checkpoints),
        grouped(report.values)
    );
    html.element("p", &[], &counted);
    if let Some(tail) = &report.log_tail {
        html.classed("p", "error", &tail.to_string());
    }
    for problem in report.problems.iter().take(FINDINGS_MAX) {
        html.classed("p", "error", &problem.to_string());
    }
    html.element("p", &[], &count(report.problems.len() as u64, "problem"));
}

/// Adds the newest operations, with the command that undoes the newest one of its thread.
fn operations(screen: &Screen<'_>, html: &mut Html) -> Result<(), Refusal> {
    html.element("h2", &[], "operations").open("table", &[("class", "rows")]).open("tbody", &[]);
    for operation in screen.store.operations()?.take(OPERATIONS_MAX) {
        let operation = operation?;
        let thread = match &operation {
            Operation::Commits(group) => Some(group.thread.as_str()),
            Operation::Stored(record) => record.changes.first().map(|change| change.thread.as_str()),
            _ => None,
        };
        html.open("tr", &[]).element("td", &[], operation.name());
        html.element("td", &[("title", &operation.at().to_string())], &ago(screen.store.now(), operation.at()));
        html.element("td", &[], &shortened(operation.actor().unwrap_or_default(), 40)).open("td", &[]);
        if let Some(thread) = thread {
            html.link(&address::thread(thread), &shortened(thread, 60));
        }
        html.close("td").open("td", &[("class", "dim")]);
        if let Some(thread) = thread {
            html.text(&screen.command(&["operations", thread]));
        }
        html.close("td").close("tr");
    }
    html.close("tbody").close("table");
    html.classed(
        "p",
        "dim",
        &format!("{} undoes the newest operation of a thread", screen.command(&["undo", "THREAD"])),
    );
    Ok(())
}

fn check_document(report: &CheckReport) -> Json {
    let problem = |problem: &annals::store::check::Finding| json!({ "invariant": problem.invariant.to_string(), "place": problem.place, "reason": problem.reason });
    json!({
        "threads": report.threads,
        "checkpoints": report.checkpoints,
        "values": report.values,
        "problems": report.problems.iter().map(problem).collect::<Vec<_>>(),
    })
}
