//! The screen of all threads, the last active first: the words of each lead, its facts follow, its numbers stand in
//! columns. The facets count the threads of the page, so that their cost is that of the page.

use std::ops::Deref;

use annals::base::Timestamp;
use annals::history::{Snapshot, ThreadInfo};
use annals::store::{StatusKind, Store, StoreError, ThreadCursor, ThreadQuery};
use annals_runs::{ThreadStatus, status_name};
use annals_view::ListedThread;
use annals_view::words::{cost, count, day, rounded, shortened, tally};
use serde_json::{Value as Json, json};

use super::facets::Facets;
use super::{Screen, Shown};
use crate::address::{self, encode};
use crate::failure::Refusal;
use crate::filter::ThreadFilter;
use crate::html::Html;
use crate::icons::StatusShape;
use crate::layout::View;
use crate::limits::{LABELS_MAX, THREADS_MAX};
use crate::values::{interrupt, status_text};

/// The statuses that the facet always shows, each with its word.
const STATUSES: [(StatusKind, &str); 4] = [
    (StatusKind::Interrupted, "Waiting"),
    (StatusKind::Failed, "Failed"),
    (StatusKind::Running, "Running"),
    (StatusKind::Done, "Done"),
];

/// Those that it shows if a thread of the page has them.
const RARE_STATUSES: [(StatusKind, &str); 3] =
    [(StatusKind::GivenUp, "Stuck"), (StatusKind::Sleeping, "Asleep"), (StatusKind::Cancelled, "Cancelled")];

/// A thread as a row.
pub(crate) struct ThreadEntry(ListedThread);

impl Deref for ThreadEntry {
    type Target = ListedThread;

    fn deref(&self) -> &ListedThread {
        &self.0
    }
}

impl ThreadEntry {
    pub(crate) fn read(store: &Store, info: ThreadInfo, has_size: bool) -> Result<Self, StoreError> {
        ListedThread::read(store, info, has_size).map(Self)
    }

    fn shape(&self) -> StatusShape {
        StatusShape::of(&ThreadStatus::of(&self.info), self.info.partial.is_some())
    }

    /// Returns what the second line begins with: the interrupt, the error, half an answer; `None` of a thread that is
    /// done.
    fn news(&self) -> Option<String> {
        let status = ThreadStatus::of(&self.info);
        match &status {
            ThreadStatus::Done => self.info.partial.as_ref().map(ToString::to_string),
            ThreadStatus::Interrupted(values) => {
                Some(format!("asks: {}", values.iter().map(interrupt).collect::<Vec<_>>().join(" / ")))
            }
            ThreadStatus::Failed(error) => Some(error.clone()),
            status => Some(status_text(status, &tally(self.info.record.tasks.iter().map(|task| &*task.name)))),
        }
    }

    /// Returns the part of the listing that it stands in.
    fn period(&self, now: Timestamp) -> &'static str {
        match day(now).saturating_sub(day(self.info.updated_at)) {
            ..=0 => "Today",
            1 => "Yesterday",
            2..7 => "This week",
            7..31 => "This month",
            _ => "Earlier",
        }
    }
}

pub(super) fn show(screen: &Screen<'_>) -> Result<Shown, Refusal> {
    let filter = ThreadFilter::read(&screen.query);
    if filter.of_messages().is_some() && filter.of_threads().is_none() && !screen.json {
        return Ok(Shown::To(filter.search_address()));
    }
    let mut infos = screen.store.threads_with(query(screen, &filter)?.limit(THREADS_MAX + 1))?;
    let more = infos.len() > THREADS_MAX;
    infos.truncate(THREADS_MAX);
    let last = infos.last().map(|info| info.cursor().to_string());
    let mut rows = infos
        .into_iter()
        .map(|info| ThreadEntry::read(screen.store, info, screen.json))
        .collect::<Result<Vec<_>, _>>()?;
    if screen.json {
        let threads: Vec<Json> = rows.iter().map(|row| row.document()).collect();
        return Ok(Shown::Json(json!({ "schema": 1, "threads": threads, "more": more })));
    }
    // A listing is in the order of the log, and the histories of an import are older than the log.
    rows.sort_by_key(|row| std::cmp::Reverse(row.info.updated_at));
    let mut html = Html::new();
    html.classed("h1", "hide", "Threads").open("div", &[("class", "list")]);
    let is_part = more || screen.query.get("after").is_some();
    facets(&mut html, &filter, &rows, is_part);
    html.open("div", &[]);
    list(&mut html, screen.store.now(), &rows);
    if rows.is_empty() {
        empty(screen, &mut html, &filter);
    }
    if !filter.title().is_empty() {
        let address = format!("/search?q={}", encode(&format!("\"{}\"", filter.title())));
        html.open("p", &[("class", "dim next")]).text("Titles with these words. ");
        html.element("a", &[("class", "link"), ("href", &address)], "Search the messages").close("p");
    }
    if let (true, Some(last)) = (more, last) {
        let after = format!("after={}", encode(&last));
        let kept = screen.query.pairs().filter(|pair| !pair.starts_with("after="));
        let query: Vec<String> = kept.chain([after]).collect();
        html.within("p", &[("class", "next")], |html| {
            _ = html.link(&format!("/?{}", query.join("&")), "older threads")
        });
    }
    html.close("div").close("div");
    Ok(View { searched: filter.text(), ..View::new("threads", html).live("") }.into())
}

fn query(screen: &Screen<'_>, filter: &ThreadFilter) -> Result<ThreadQuery, Refusal> {
    let mut query = filter.query(screen.store.now())?;
    if let Some(after) = screen.query.get("after") {
        let wrong = |_| Refusal::usage("after is not the cursor of a listing");
        query.after = Some(after.parse::<ThreadCursor>().map_err(wrong)?);
    }
    Ok(query)
}

/// Adds what stands in the place of the rows: how to write a thread, or how to remove the filter.
fn empty(screen: &Screen<'_>, html: &mut Html, filter: &ThreadFilter) {
    html.open("div", &[("class", "empty")]);
    if filter.is_empty() {
        html.literal("<b>No thread is here.</b> ").text("A program writes one, or the command: ");
        html.element("code", &[], &screen.command(&["import"]));
    } else {
        html.literal("<b>No thread passes the filter.</b> ").text(&shortened(&filter.text(), 200)).literal(" ");
        html.element("a", &[("class", "link"), ("href", "/")], "remove it");
    }
    html.close("div");
}

/// Adds the facets with the number of threads of the page.
fn facets(html: &mut Html, filter: &ThreadFilter, rows: &[ThreadEntry], is_part: bool) {
    let facets = Facets { filter, address: ThreadFilter::address };
    Facets::begin(html);
    html.open("div", &[("class", "facet")]).element("h2", &[], "Status");
    let mut attributes = vec![("href", "/")];
    attributes.extend(filter.is_empty().then_some(("aria-current", "true")));
    html.within("a", &attributes, |html| _ = html.text("Everything"));
    for (kind, word) in STATUSES.into_iter().chain(RARE_STATUSES) {
        let found = rows.iter().filter(|row| row.info.status == kind);
        let is_shown =
            STATUSES.iter().any(|(shown, _)| *shown == kind) || filter.get("status") == Some(status_name(kind));
        let found = found.count();
        if is_shown || found > 0 {
            facets.link(html, ("status", status_name(kind)), word, found, shape_of(kind));
        }
    }
    let halves = rows.iter().filter(|row| row.info.partial.is_some()).count();
    if halves > 0 || filter.get("is") == Some("half") {
        facets.link(html, ("is", "half"), "Half answers", halves, Some(StatusShape::Half));
    }
    html.close("div");
    let projects = rows.iter().filter_map(|row| row.info.facts.project.as_deref());
    facets.values(html, "project", "Project", projects);
    let graphs = rows.iter().filter_map(|row| row.info.graph.as_deref());
    facets.values(html, "graph", "Graph", graphs);
    let labels = rows.iter().flat_map(|row| &row.info.facts.labels).map(String::as_str);
    facets.values(html, "label", "Label", labels);
    Facets::end(html, is_part);
}

fn shape_of(kind: StatusKind) -> Option<StatusShape> {
    Some(match kind {
        StatusKind::Interrupted => StatusShape::Waits,
        StatusKind::Failed | StatusKind::GivenUp => StatusShape::Failed,
        StatusKind::Running => StatusShape::Runs,
        StatusKind::Sleeping => StatusShape::Sleeps,
        StatusKind::Done => StatusShape::Done,
        StatusKind::Cancelled => StatusShape::Cancelled,
        _ => return None,
    })
}

fn list(html: &mut Html, now: Timestamp, rows: &[ThreadEntry]) {
    for (at, part) in rows.chunk_by(|a, b| a.period(now) == b.period(now)).enumerate() {
        html.open("section", &[("class", "day")]).open("div", &[("class", "colhead")]).open("h2", &[]);
        html.text(part[0].period(now)).classed("span", "dim", &part.len().to_string()).close("h2");
        if at == 0 {
            columns(html);
        }
        html.close("div").open("ol", &[]);
        for entry in part {
            let address = address::thread(entry.info.id().as_str());
            entry.row(html, &RowLink { address: &address, now: Some(now) });
        }
        html.close("ol").close("section");
    }
}

/// The address of a thread, and how the time of its last activity is shown.
pub(crate) struct RowLink<'a> {
    pub(crate) address: &'a str,
    /// The present, from which an age is counted; `None` in a document that is read later.
    pub(crate) now: Option<Timestamp>,
}

impl ThreadEntry {
    /// Opens the row up to the end of its facts.
    pub(super) fn begin(&self, html: &mut Html, class: &str, attributes: &[(&'static str, &str)], address: &str) {
        let (info, facts) = (&self.info, &self.info.facts);
        let id = info.id().as_str();
        html.open("li", &[&[("class", class)], attributes].concat());
        self.shape().add_to(html);
        html.open("div", &[]).open("h3", &[]);
        let words = self.words();
        let class = if words.is_some() { "cut" } else { "cut mono" };
        let attributes = [("href", address), ("class", class), ("title", id), ("dir", "auto")];
        html.element("a", &attributes, &shortened(words.unwrap_or(id), 120));
        if facts.is_paused {
            html.classed("span", "label", "paused");
        }
        for label in facts.labels.iter().take(LABELS_MAX) {
            html.classed("span", "label", &shortened(label, 40));
        }
        html.close("h3").open("p", &[("class", "facts")]);
        if let Some(news) = self.news() {
            html.classed("span", self.shape().class(), &shortened(&news, 200));
        }
        if let Some(project) = &facts.project {
            html.classed("span", "project", &shortened(project, 40));
        }
        if let Some(graph) = &info.graph {
            html.within("span", &[], |html| _ = html.text("graph ").isolated(&shortened(graph, 40)));
        }
        if words.is_none() && info.counts.unwrap_or_default().messages == 0 {
            html.classed("span", "dim", "no message yet");
        }
        html.classed("span", "n", &count(info.record.ordinal + 1, "checkpoint")).close("p");
    }

    /// Adds the row of a listing.
    pub(crate) fn row(&self, html: &mut Html, place: &RowLink<'_>) {
        self.begin(html, "thread", &[("data-row", "")], place.address);
        html.close("div");
        let counts = self.info.counts.unwrap_or_default();
        let (tokens, dollars) = (counts.input_tokens.saturating_add(counts.output_tokens), counts.cost_usd());
        let number = |n: u64| if n > 0 { rounded(n) } else { String::new() };
        html.classed("span", "num", &number(counts.messages)).classed("span", "num", &number(tokens));
        html.classed("span", "num", &if dollars > 0.0 { cost(dollars) } else { String::new() });
        match place.now {
            Some(now) => _ = html.time("num age", now, self.info.updated_at),
            // Rows of a document are grouped by day.
            None => {
                let whole = self.info.updated_at.to_string();
                let clock: String = whole.chars().skip(11).take(5).collect();
                html.element("time", &[("class", "num age"), ("datetime", &whole), ("title", &whole)], &clock);
            }
        }
        html.close("li");
    }
}

/// Adds the heads of the columns, beside the title of the rows below them.
pub(crate) fn columns(html: &mut Html) {
    for title in ["messages", "tokens", "cost", "active"] {
        html.classed("span", if title == "active" { "num age" } else { "num" }, title);
    }
}

/// Returns the head of a listed thread.
pub(super) fn head(screen: &Screen<'_>, info: &ThreadInfo) -> Result<Snapshot, Refusal> {
    Ok(screen.store.thread(info.id().as_str())?.at(info.head())?)
}
