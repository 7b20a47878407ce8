//! The health of the store: sizes, versions, modes of the files, the search index, the newest operations, and a check
//! on demand.

use annals::history::Operation;
use annals::store::check::CheckReport;
use annals_view::words::{count, grouped, shortened, size};
use serde_json::{Value as Json, json};

use super::{Screen, Shown};
use crate::address;
use crate::failure::Refusal;
use crate::file::FileFacts;
use crate::html::Html;
use crate::layout::View;
use crate::limits::{FINDINGS_MAX, OPERATIONS_MAX};

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
    head(&mut html);
    let copied = format!("{} of {} frames copied", grouped(stats.wal_copied_frames), grouped(stats.wal_frames));
    let indexed = match &index {
        None => ("none".to_owned(), "a search reads texts".to_owned()),
        Some(index) if index.behind == 0 => ("up to date".to_owned(), String::new()),
        Some(index) => (grouped(index.behind), "checkpoints behind".to_owned()),
    };
    let limit = of_file(stats.wal_limit_bytes).map(|bytes| format!(", limit {}", size(bytes))).unwrap_or_default();
    let erasing = of_file(stats.erasing).filter(|threads| *threads > 0);
    html.open("dl", &[("class", "figures")]);
    for (name, value, note) in [
        ("file", of_file(stats.file_bytes).map(size), String::new()),
        ("checkpoints", last.map(grouped), "in the log".to_owned()),
        ("write-ahead log", of_file(stats.wal_bytes).map(size), format!("{copied}{limit}")),
        ("search index", Some(indexed.0), indexed.1),
        ("deleted threads", erasing.map(grouped), "with bytes in the file".to_owned()),
    ] {
        if let Some(value) = value {
            html.open("div", &[]).element("dt", &[], name).element("dd", &[], &value);
            html.classed("dd", "was", &note).close("div");
        }
    }
    html.close("dl");
    if stats.is_wal_large() {
        html.classed("p", "error", "the log is past half of its limit: a reader keeps it from being copied");
    }
    if let Some(error) = &stats.wal_error {
        html.classed("p", "error", error);
    }
    html.open("div", &[("class", "cols")]).open("section", &[("aria-label", "Operations")]);
    operations(screen, &mut html)?;
    html.close("section").open("aside", &[("class", "rail"), ("aria-label", "Check and files")]);
    check(screen, &mut html, report.as_ref());
    if let Some(file) = &file {
        files(&mut html, file);
    }
    html.close("aside").close("div");
    let view = View::new("health", html);
    // A check reads the whole file, so that screen is not read again with each checkpoint.
    Ok(if report.is_some() { view } else { view.live("") }.into())
}

/// Adds the title and the versions.
fn head(html: &mut Html) {
    html.open("div", &[("class", "head")]).element("h1", &[], "Health").open("p", &[("class", "facts")]);
    html.element("span", &[], &format!("annals {}", env!("CARGO_PKG_VERSION")));
    html.element("span", &[], &format!("SQLite {}", annals::rusqlite::version()));
    html.close("p").close("div");
}

/// Adds the result of a check, or the way to it.
fn check(screen: &Screen<'_>, html: &mut Html, report: Option<&CheckReport>) {
    html.open("div", &[("class", "state")]).open("header", &[]).element("h2", &[], "Check").close("header");
    match report {
        Some(report) => findings(html, report),
        None => {
            html.open("p", &[("class", "chan")]);
            html.element("a", &[("class", "btn"), ("href", "/health?check=1")], "Verify every row and checksum");
            html.close("p").classed("p", "dim small", "It reads all of the store.");
        }
    }
    html.element("pre", &[("class", "command")], &screen.command(&["check"])).close("div");
}

/// Adds the size and the mode of each file of the store.
fn files(html: &mut Html, facts: &FileFacts) {
    html.open("div", &[("class", "state files")]).open("header", &[]).element("h2", &[], "Files").close("header");
    html.open("table", &[]).open("tbody", &[]);
    for file in &facts.files {
        html.open("tr", &[]).element("th", &[("scope", "row"), ("dir", "auto")], &shortened(&file.name, 80));
        html.open("td", &[("class", "num")]).text(&size(file.bytes)).close("td").close("tr");
        html.open("tr", &[]).element("td", &[("colspan", "2"), ("class", "dim small")], &file.mode_text()).close("tr");
    }
    html.close("tbody").close("table").close("div");
}

fn findings(html: &mut Html, report: &CheckReport) {
    let counted = format!(
        "{}, {} checkpoints and {} values verified",
        count(report.threads, "thread"),
        grouped(report.checkpoints),
        grouped(report.values)
    );
    let class = if report.problems.is_empty() { "chan strong" } else { "chan strong failed" };
    html.classed("p", class, &count(report.problems.len() as u64, "problem"));
    html.classed("p", "dim", &counted);
    if let Some(tail) = &report.log_tail {
        html.classed("p", "error", &tail.to_string());
    }
    for problem in report.problems.iter().take(FINDINGS_MAX) {
        html.classed("p", "error", &problem.to_string());
    }
}

/// Adds the newest operations, with the command that undoes the newest one of a thread.
fn operations(screen: &Screen<'_>, html: &mut Html) -> Result<(), Refusal> {
    html.open("div", &[("class", "section")]).element("h2", &[], "Operations");
    html.open("p", &[("class", "end facts")]).open("span", &[]).text("the newest one of a thread is undone by ");
    html.element("code", &[], &screen.command(&["undo", "THREAD"])).close("span").close("p").close("div");
    html.open("table", &[("class", "record")]).open("thead", &[]).open("tr", &[]);
    for (class, title) in [("", "operation"), ("", "thread"), ("w", "by"), ("num", "when")] {
        html.classed("th", class, title);
    }
    html.close("tr").close("thead").open("tbody", &[]);
    let mut rows = 0;
    for operation in screen.store.operations()?.take(OPERATIONS_MAX) {
        let operation = operation?;
        rows += 1;
        let thread = match &operation {
            Operation::Commits(group) => Some(group.thread.as_str()),
            Operation::Stored(record) => record.changes.first().map(|change| change.thread.as_str()),
            _ => None,
        };
        html.open("tr", &[("data-row", "")]).element("td", &[], operation.name()).open("td", &[("class", "strong")]);
        if let Some(thread) = thread {
            html.link(&address::thread(thread), &shortened(thread, 60));
        }
        html.close("td").classed("td", "w dim", &shortened(operation.actor().unwrap_or_default(), 40));
        html.open("td", &[("class", "num")]).time("dim", screen.store.now(), operation.at()).close("td").close("tr");
    }
    html.close("tbody").close("table");
    if rows == 0 {
        html.classed("p", "dim", "No operation has changed the store.");
    }
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
