//! The runs of graphs that ended: status, graph, steps, begin, end, and duration on one scale.
//!
//! The listing of threads is read as far as it gives some runs, and each run as far as some checkpoints, so that the
//! cost has an end; a run with more of them has no begin here.

use annals::base::Timestamp;
use annals::history::{Snapshot, ThreadInfo};
use annals::store::{StatusKind, ThreadQuery};
use annals_runs::{ThreadStatus, status_name};
use annals_view::words::{brief, grouped, shortened, span};
use serde_json::{Value as Json, json};

use super::{Screen, threads};
use crate::address;
use crate::failure::Refusal;
use crate::html::Html;
use crate::icons::StatusShape;
use crate::limits::{FINISHED_MAX, FINISHED_READ_MAX, FINISHED_STEPS_MAX};
use crate::values::status_text;

/// The statuses of runs that ended.
pub(super) const ENDED: [StatusKind; 2] = [StatusKind::Done, StatusKind::Cancelled];

/// A run that ended.
pub(super) struct FinishedRun {
    info: ThreadInfo,
    head: Snapshot,
    /// The timestamp of its first checkpoint; `None` if that was not reached.
    begin: Option<Timestamp>,
    steps: u64,
}

impl FinishedRun {
    /// Reads the newest runs with a status, newest first.
    pub(super) fn read(screen: &Screen<'_>, status: StatusKind) -> Result<Vec<Self>, Refusal> {
        let infos = screen.store.threads_with(ThreadQuery::new().status(status).limit(FINISHED_READ_MAX))?;
        let of_graphs = infos.into_iter().filter(|info| info.graph.is_some());
        of_graphs.take(FINISHED_MAX).map(|info| Self::of(screen, info)).collect()
    }

    fn of(screen: &Screen<'_>, info: ThreadInfo) -> Result<Self, Refusal> {
        let head = threads::head(screen, &info)?;
        let (run, mut begin, mut steps) = (head.record().run, None, 0);
        for at in head.lineage().take(FINISHED_STEPS_MAX) {
            let at = at?;
            if at.record().run != run {
                break;
            }
            (begin, steps) = (Some(at.created_at()), steps + 1);
        }
        let is_whole = steps < FINISHED_STEPS_MAX as u64;
        Ok(Self { info, head, begin: begin.filter(|_| is_whole), steps })
    }

    /// Returns the duration in microseconds.
    fn micros(&self) -> Option<i64> {
        Some(self.head.created_at().as_micros().saturating_sub(self.begin?.as_micros()).max(0))
    }

    /// Returns the end of a run: what it returned, or why it was cancelled.
    fn result(&self) -> String {
        let status = ThreadStatus::of(&self.info);
        if status != ThreadStatus::Done {
            return status_text(&status, "");
        }
        let returned = self.head.get("__return__").ok().flatten();
        returned.map(|value| brief(&value)).unwrap_or_default()
    }

    pub(super) fn document(&self) -> Json {
        json!({
            "thread": self.info.id().as_str(),
            "checkpoint": self.head.id().to_string(),
            "status": status_name(self.info.status),
            "graph": self.info.graph.as_deref(),
            "started": self.begin.map(|begin| begin.to_string()),
            "ended": self.head.created_at().to_string(),
            "duration_us": self.micros(),
        })
    }
}

/// Adds runs as a table whose bars have one scale.
pub(super) fn table(html: &mut Html, now: Timestamp, runs: &[FinishedRun]) {
    let longest = runs.iter().filter_map(FinishedRun::micros).max().unwrap_or(0).max(1);
    html.literal(
        "<table class=\"record\"><thead><tr><th class=\"ico\"></th><th>run</th><th class=\"w\">graph</th>\
         <th class=\"w\">result</th><th class=\"w num\">steps</th><th class=\"w num\">begun</th><th class=\"w\">time</th>\
         <th class=\"num\"></th><th class=\"num\">ended</th></tr></thead><tbody>",
    );
    for run in runs {
        html.open("tr", &[("data-row", "")]).open("td", &[("class", "ico")]);
        StatusShape::of(&ThreadStatus::of(&run.info), false).add_to(html);
        html.close("td").open("td", &[("class", "strong")]);
        let title = run.info.title().unwrap_or(run.info.id().as_str());
        html.link(&address::point(&run.head), &shortened(title, 60)).close("td");
        html.open("td", &[("class", "w dim")])
            .isolated(&shortened(run.info.graph.as_deref().unwrap_or_default(), 30))
            .close("td");
        html.element("td", &[("class", "w mid"), ("dir", "auto")], &shortened(&run.result(), 60));
        html.classed("td", "w num dim", &grouped(run.steps));
        html.open("td", &[("class", "w num dim")]);
        run.begin.into_iter().for_each(|begin| _ = html.time("", now, begin));
        html.close("td").open("td", &[("class", "w")]);
        if let Some(micros) = run.micros() {
            html.open("svg", &[("class", "bar"), ("aria-hidden", "true")]);
            let width = format!("{:.1}%", (100.0 * micros as f64 / longest as f64).max(0.6));
            html.element("rect", &[("width", &width), ("height", "8"), ("rx", "2")], "").close("svg");
        }
        html.close("td").classed("td", "num", &run.micros().map(span).unwrap_or_default());
        html.open("td", &[("class", "num dim")]).time("", now, run.head.created_at()).close("td").close("tr");
    }
    html.close("tbody").close("table");
}
