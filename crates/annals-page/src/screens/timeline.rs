//! The steps of a thread as one list: the lineage of a point, newest first, with other branches as lanes beside it,
//! each with its head and a folded row up to the step that it left. Every row draws its own piece of the lanes.
//!
//! Bars are times on one scale. A bundle of parallel tasks shows those that failed and the slowest ones, and opens.

use annals::base::Timestamp;
use annals::history::Snapshot;
use annals::store::Source;
use annals_runs::{SnapshotRuns, ThreadStatus};
use annals_view::words::{START, count, made, ran, rounded, shortened, span};

use super::step::{self, StepSpan};
use super::thread::StepRow;
use super::tree::{BranchLine, BranchTree};
use crate::address::{self, diff, encode, point_text};
use crate::failure::Refusal;
use crate::html::Html;
use crate::limits::{BUNDLE_FOLDED_MAX, BUNDLE_READ_MAX, BUNDLE_TASKS_MAX, BUNDLES_MAX, LANES_MAX, STARTED_MAX};
use crate::plot;
use crate::values::{interrupt, status_text};

/// The middle of the first lane, and the width of a lane, in pixels.
const FIRST: usize = 12;
const LANE: usize = 18;

/// Nodes of one step that are named.
const NAMES: usize = 3;

/// Another branch beside the lineage.
pub(super) struct OtherBranch {
    head: StepRow,
    /// Checkpoints that are on no row of the lineage.
    len: u64,
    /// The row that it left, if that is shown.
    join: Option<usize>,
    /// The row of the lineage before which it stands.
    place: usize,
}

/// A row of the list.
enum LaneRow {
    Own(usize),
    /// The head of another branch, by its lane.
    Head(usize),
    /// The checkpoints of another branch below its head.
    Fold(usize),
}

/// The task of a bundle with its spans.
struct BundleTask {
    name: String,
    spans: Vec<StepSpan>,
    error: Option<String>,
}

/// The list of steps.
pub(super) struct Timeline<'t> {
    rows: &'t [StepRow],
    others: Vec<OtherBranch>,
    tree: &'t BranchTree,
    /// The checkpoint that the screen shows.
    shown: &'t Snapshot,
    has_older: bool,
    /// Checkpoints of the branch that are newer than the first row.
    newer: u64,
    /// The longest time of a row in microseconds.
    longest: i64,
}

impl<'t> Timeline<'t> {
    /// Places the newest other branches beside the rows.
    pub(super) fn read(
        rows: &'t [StepRow],
        tree: &'t BranchTree,
        shown: &'t Snapshot,
        has_older: bool,
    ) -> Result<Self, Refusal> {
        let mut lines: Vec<&BranchLine> = tree.lines.iter().collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.record.last.created_at));
        let mut others = Vec::new();
        for line in lines {
            if others.len() == LANES_MAX {
                break;
            }
            others.extend(OtherBranch::read(line, rows, shown)?);
        }
        // The lane that ends first is the nearest, so that no other one crosses its end.
        others.sort_by_key(|other| other.join.unwrap_or(other.place));
        let own = rows.first().map(|row| row.at.record());
        let newer = own.map_or(0, |own| {
            let line = tree.lines.iter().find(|line| line.record.last.branch == own.branch);
            line.map_or(0, |line| line.record.last.ordinal.saturating_sub(own.ordinal))
        });
        let heads = others.iter().map(|other| &other.head);
        let longest = rows.iter().chain(heads).filter_map(|row| row.micros()).max().unwrap_or(0).max(1);
        Ok(Self { rows, others, tree, shown, has_older, newer, longest })
    }

    /// Returns the number of branches that have no lane.
    pub(super) fn folded(&self) -> usize {
        let own = self.rows.iter().filter(|row| self.line_of(row).is_some()).count();
        self.tree.count.saturating_sub(self.others.len() + own)
    }

    fn line_of(&self, row: &StepRow) -> Option<&BranchLine> {
        self.tree.lines.iter().find(|line| line.record.last.point.checkpoint == row.at.id())
    }

    pub(super) fn add_to(&self, html: &mut Html) -> Result<(), Refusal> {
        let now = self.shown.store().now();
        let class = match self.others.len() {
            0 => "steps".to_owned(),
            lanes => format!("steps w{}", lanes + 1),
        };
        html.open("ol", &[("class", &class)]);
        html.literal(
            "<li class=\"step colrow\" aria-hidden=\"true\"><span class=\"num n\">step</span><span>what changed</span>\
             <span>time</span><span></span><span class=\"num tok\">tokens</span><span class=\"num age\">when</span></li>",
        );
        let (mut bundles, mut folded) = (0, 0);
        for row in self.order() {
            match row {
                LaneRow::Own(at) => {
                    let step = &self.rows[at];
                    self.step(html, step, now, Some(at), None);
                    if bundles < BUNDLES_MAX
                        && let Some(after) = self.bundle(html, step, at, folded)?
                    {
                        (bundles, folded) = (bundles + 1, after);
                    }
                    self.started(html, step, at);
                }
                LaneRow::Head(lane) => self.step(html, &self.others[lane].head, now, None, Some(lane)),
                LaneRow::Fold(lane) => self.fold(html, lane),
            }
        }
        html.close("ol");
        Ok(())
    }

    fn order(&self) -> Vec<LaneRow> {
        let mut order = Vec::new();
        for at in 0..=self.rows.len() {
            let mut here: Vec<usize> = (0..self.others.len()).filter(|lane| self.others[*lane].place == at).collect();
            here.sort_by_key(|lane| std::cmp::Reverse(self.others[*lane].head.at.created_at()));
            for lane in here {
                order.push(LaneRow::Head(lane));
                if self.others[lane].len > 1 {
                    order.push(LaneRow::Fold(lane));
                }
            }
            if at < self.rows.len() {
                order.push(LaneRow::Own(at));
            }
        }
        order
    }

    /// Adds a step: one of the lineage by its row, or the head of another branch by its lane.
    fn step(&self, html: &mut Html, row: &StepRow, now: Timestamp, own: Option<usize>, lane: Option<usize>) {
        let address = address::point(&row.at);
        let before = row.parent.as_ref().map(point_text);
        let compare = before.map(|before| diff(&before, &point_text(&row.at))).unwrap_or_default();
        let is_shown = row.at.id() == self.shown.id();
        let class = match (is_shown, lane) {
            (true, _) => "step on",
            (false, None) => "step",
            (false, Some(_)) => "step off",
        };
        let line = self.line_of(row);
        let mut attributes = vec![("class", class), ("data-row", ""), ("data-diff", compare.as_str())];
        attributes.extend(line.map(|_| ("data-branch", "")));
        attributes.extend(is_shown.then_some(("aria-current", "true")));
        html.open("li", &attributes);
        self.lanes(html, row, own, lane);
        html.element("a", &[("class", "num n dim"), ("href", &address)], &row.at.step().to_string());
        html.open("span", &[("class", "what cut")]);
        if let Some(line) = line {
            let class = if own.is_some() { "label ref" } else { "label" };
            match line.names.first() {
                Some(name) => _ = html.classed("span", class, &shortened(name, 40)),
                None if self.tree.count > 1 => _ = html.classed("span", class, "branch"),
                None => {}
            }
        }
        let cause = shortened(&cause(row), 60);
        html.within("b", &[], |html| {
            html.element("a", &[("href", &format!("{address}/step")), ("data-blame", "")], &cause);
        });
        if let Some(status) = row.status.as_ref().filter(|status| **status != ThreadStatus::Done) {
            self.status(html, status, row);
        }
        html.text(&row.text()).close("span");
        self.bar(html, row);
        let tokens: u64 = row.changed.iter().map(|step| step.tokens.0 + step.tokens.1).sum();
        html.classed("span", "num tok dim", &if tokens > 0 { rounded(tokens) } else { String::new() });
        html.time("num age dim", now, row.at.created_at()).close("li");
    }

    /// Adds what the newest step waits for, or why it failed.
    fn status(&self, html: &mut Html, status: &ThreadStatus, row: &StepRow) {
        let due = annals_view::words::tally(row.at.next());
        let (class, text) = match status {
            ThreadStatus::Interrupted(values) => {
                ("waits", format!("asks: {}", values.iter().map(interrupt).collect::<Vec<_>>().join(" / ")))
            }
            ThreadStatus::Failed(_) | ThreadStatus::Stuck(_) => ("failed", status_text(status, &due)),
            ThreadStatus::Running => ("runs", status_text(status, &due)),
            status => ("mid", status_text(status, &due)),
        };
        html.classed("span", class, &shortened(&text, 160)).text(" ");
    }

    /// Adds the bar of a step and its time, in two columns.
    fn bar(&self, html: &mut Html, row: &StepRow) {
        let Some(micros) = row.micros() else {
            html.literal("<span></span><span class=\"num\"></span>");
            return;
        };
        let part = micros as f64 / self.longest as f64;
        html.open("svg", &[("class", "bar"), ("aria-hidden", "true")]);
        plot::bar_part(html, if part > 0.75 { "slow" } else { "" }, 0.0, part);
        html.close("svg").classed("span", "num", &span(micros));
    }

    /// Adds the tasks of a step that ran several: those that failed and the slowest ones, the others folded. `folded`
    /// rows of the screen are folded before it; returns their number after it, `None` if no row was added.
    fn bundle(&self, html: &mut Html, row: &StepRow, at: usize, folded: usize) -> Result<Option<usize>, Refusal> {
        let tasks = ran(&row.at, row.parent.as_ref()).len();
        let Some(parent) = row.parent.as_ref().filter(|_| (2..=BUNDLE_READ_MAX).contains(&tasks)) else {
            return Ok(None);
        };
        let steps = parent.steps(Some(&row.at))?;
        let mut bundle: Vec<BundleTask> = step::lanes(&steps)
            .into_iter()
            .filter(|(step, spans)| !step.is_call && !spans.is_empty())
            .map(|(step, spans)| {
                let error = Some(step.error_text()).filter(|text| !text.is_empty());
                BundleTask { name: step.name.to_string(), spans, error: error.map(ToOwned::to_owned) }
            })
            .collect();
        if bundle.is_empty() {
            return Ok(None);
        }
        bundle.sort_by_key(|task| (task.error.is_none(), std::cmp::Reverse(task.micros())));
        let begin = parent.created_at();
        for task in bundle.iter().take(BUNDLE_TASKS_MAX) {
            self.task(html, at, |html| {
                html.literal("<span class=\"n\"></span>");
                self.part(html, task, begin);
            });
        }
        let Some(left) = tasks.checked_sub(bundle.len().min(BUNDLE_TASKS_MAX)).filter(|left| *left > 0) else {
            return Ok(Some(folded));
        };
        let rest = bundle.get(BUNDLE_TASKS_MAX..).unwrap_or_default();
        let shown = &rest[..rest.len().min(BUNDLE_FOLDED_MAX - folded)];
        self.task(html, at, |html| {
            html.open("details", &[("class", "more")]).open("summary", &[]).open("span", &[("class", "what cut")]);
            html.classed("b", "", &format!("{left} more"));
            if let Some(longest) = rest.first().map(BundleTask::micros) {
                html.text(" ").classed("span", "dim", &format!("each at most {}", span(longest)));
            }
            html.close("span").literal("<span></span><span class=\"num\"></span>").close("summary").open("ol", &[]);
            for task in shown {
                html.within("li", &[], |html| self.part(html, task, begin));
            }
            html.open("li", &[]).open("span", &[("class", "what")]);
            html.link(&format!("{}/step", address::point(&row.at)), "the step").close("span").close("li");
            html.close("ol").close("details");
        });
        Ok(Some(folded + shown.len()))
    }

    /// Adds a row for each helper and each subgraph that a step started.
    fn started(&self, html: &mut Html, row: &StepRow, at: usize) {
        let threads = row.started.iter().map(|started| {
            let words = started.listed.words().unwrap_or(&started.link.thread);
            (address::thread(&started.link.thread), shortened(words, 100), "helper")
        });
        let subgraphs = row
            .subgraphs
            .iter()
            .map(|head| (address::point(head), super::thread::subgraph_name(&head.point().namespace), "subgraph"));
        let all: Vec<(String, String, &str)> = threads.chain(subgraphs).collect();
        for (address, words, kind) in all.iter().take(STARTED_MAX) {
            self.task(html, at, |html| {
                html.literal("<span class=\"n\"></span>").open("span", &[("class", "what cut")]);
                html.classed("span", "dim", kind).text(" ").link(address, words).close("span");
                html.literal("<span></span><span class=\"num\"></span>");
            });
        }
        if all.len() > STARTED_MAX {
            self.task(html, at, |html| {
                html.literal("<span class=\"n\"></span>");
                html.classed("span", "what dim", &format!("{} more below", all.len() - STARTED_MAX));
                html.literal("<span></span><span class=\"num\"></span>");
            });
        }
    }

    /// Adds the name of a task, its bar and its time.
    fn part(&self, html: &mut Html, task: &BundleTask, begin: Timestamp) {
        html.open("span", &[("class", "what cut")]).open("b", &[]).isolated(&shortened(&task.name, 40)).close("b");
        if let Some(error) = &task.error {
            html.text(" ").classed("span", "failed", &shortened(error, 80)).text(", done at a later attempt");
        }
        html.close("span").open("svg", &[("class", "bar"), ("aria-hidden", "true")]);
        for span in &task.spans {
            let part =
                |time: Timestamp| time.as_micros().saturating_sub(begin.as_micros()) as f64 / self.longest as f64;
            plot::bar_part(html, if span.has_failed { "bad" } else { "slow" }, part(span.from), part(span.to));
        }
        html.close("svg").classed("span", "num", &span(task.micros()));
    }

    /// Adds the row of a task beside the lanes.
    fn task(&self, html: &mut Html, at: usize, content: impl FnOnce(&mut Html)) {
        html.open("li", &[("class", "step task")]).open("svg", &[("class", "lanes"), ("aria-hidden", "true")]);
        if at + 1 < self.rows.len() || self.has_older {
            line(html, "own", 0, "0", "100%");
        }
        self.passing(html, at, false);
        html.close("svg");
        content(html);
        html.close("li");
    }

    /// Adds the checkpoints of another branch below its head as one row.
    fn fold(&self, html: &mut Html, lane: usize) {
        let other = &self.others[lane];
        html.open("li", &[("class", "step off")]).open("svg", &[("class", "lanes"), ("aria-hidden", "true")]);
        self.own_beside(html, other.place);
        self.beside(html, other.place, lane);
        line(html, "gap", lane + 1, "2", "100%");
        html.close("svg").literal("<span class=\"n\"></span>").open("span", &[("class", "what cut")]);
        let head = point_text(&other.head.at);
        let older = format!("/t/{}", encode(&format!("{head}~1")));
        html.link(&older, &count(other.len - 1, "step")).text(" · ");
        let own = self.rows.first().map(|row| point_text(&row.at)).unwrap_or_default();
        html.link(&diff(&head, &own), "compare").close("span");
        html.literal("<span></span><span class=\"num\"></span></li>");
    }

    /// Draws the lanes of a step.
    fn lanes(&self, html: &mut Html, row: &StepRow, own: Option<usize>, lane: Option<usize>) {
        html.open("svg", &[("class", "lanes"), ("aria-hidden", "true")]);
        match (own, lane) {
            (Some(at), _) => {
                self.passing(html, at, true);
                if at > 0 || self.newer > 0 {
                    line(html, if at > 0 { "own" } else { "own gap" }, 0, "0", "16");
                }
                if at + 1 < self.rows.len() || self.has_older {
                    line(html, "own", 0, "16", "100%");
                }
                self.dot(html, row, 0, at == 0 && self.newer == 0 && self.tree.count > 1);
            }
            (None, Some(lane)) => {
                let place = self.others[lane].place;
                self.own_beside(html, place);
                self.beside(html, place, lane);
                if self.others[lane].join.is_some() || self.others[lane].len > 1 {
                    line(html, "", lane + 1, "16", "100%");
                }
                self.dot(html, row, lane + 1, true);
            }
            (None, None) => {}
        }
        html.close("svg");
    }

    /// Draws the lineage beside a row of another branch.
    fn own_beside(&self, html: &mut Html, place: usize) {
        if place > 0 && (place < self.rows.len() || self.has_older) {
            line(html, "own", 0, "0", "100%");
        }
    }

    /// Draws the other lanes beside a row of a lane that stands before a row of the lineage.
    fn beside(&self, html: &mut Html, place: usize, lane: usize) {
        let age = |of: usize| self.others[of].head.at.created_at();
        for other in (0..self.others.len()).filter(|other| *other != lane) {
            let of = &self.others[other];
            let has_begun = of.place < place || (of.place == place && age(other) > age(lane));
            if has_begun && of.join.is_some_and(|join| join >= place) {
                line(html, "", other + 1, "0", "100%");
            }
        }
    }

    /// Draws the other lanes beside a row of the lineage, and the ends of those that left it there.
    fn passing(&self, html: &mut Html, at: usize, joins: bool) {
        for (lane, other) in self.others.iter().enumerate().filter(|(_, other)| other.place <= at) {
            let x = FIRST + (lane + 1) * LANE;
            match other.join {
                Some(join) if join > at => line(html, "", lane + 1, "0", "100%"),
                Some(join) if join == at && joins => {
                    html.element("path", &[("d", &format!("M{x} 0V8Q{x} 16 {} 16H{FIRST}", x - 8))], "");
                }
                _ => {}
            }
        }
    }

    /// Draws the shape of a step: a circle, hollow for an input, a square for an edit, a diamond for what waits, with a
    /// ring around the head of a branch.
    fn dot(&self, html: &mut Html, row: &StepRow, lane: usize, is_head: bool) {
        let x = FIRST + lane * LANE;
        let (left, own) = ((x - 4).to_string(), if lane == 0 { " own" } else { "" });
        let x_text = x.to_string();
        let circle = |html: &mut Html, class: &str, r: &str| {
            html.element("circle", &[("class", &format!("{class}{own}")), ("cx", &x_text), ("cy", "16"), ("r", r)], "");
        };
        if matches!(row.status, Some(ThreadStatus::Interrupted(_))) {
            let path = format!("M{x} 8L{} 16 {x} 24 {} 16z", x + 8, x - 8);
            html.element("path", &[("class", "ask"), ("d", &path)], "");
        } else if row.at.source() == Source::Update {
            let class = format!("ring{own}");
            let rect =
                [("class", class.as_str()), ("x", &*left), ("y", "12"), ("width", "8"), ("height", "8"), ("rx", "1.5")];
            html.element("rect", &rect, "");
        } else if is_input(row) {
            circle(html, "ring", "4");
        } else if is_head {
            circle(html, "ring", "6");
            circle(html, "dot", "4");
        } else {
            circle(html, "dot", "5");
        }
    }
}

impl BundleTask {
    /// Returns the sum of its spans in microseconds.
    fn micros(&self) -> i64 {
        self.spans.iter().map(|span| span.to.as_micros().saturating_sub(span.from.as_micros()).max(0)).sum()
    }
}

impl OtherBranch {
    /// Reads the head of a branch; `None` if it is on the lineage.
    fn read(line: &BranchLine, rows: &[StepRow], shown: &Snapshot) -> Result<Option<Self>, Refusal> {
        let last = &line.record.last;
        let Some(own) = rows.first().map(|row| row.at.record().branch) else { return Ok(None) };
        if last.branch == own {
            return Ok(None);
        }
        let shared = rows.iter().position(|row| row.at.record().branch == last.branch);
        let left = line.record.leaves.and_then(|(branch, ordinal)| {
            rows.iter().position(|row| row.at.record().branch == branch && row.at.record().ordinal == ordinal)
        });
        let join = shared.or(left);
        let len = match shared {
            Some(row) => last.ordinal.saturating_sub(rows[row].at.record().ordinal),
            None => super::tree::len(&line.record),
        };
        if len == 0 {
            return Ok(None);
        }
        let thread = address::thread_text(shown.point().thread.as_str());
        let Ok(at) = shown.store().point(format!("{thread}@{}", last.point.checkpoint)) else { return Ok(None) };
        let place = rows.iter().position(|row| row.at.created_at() <= last.created_at).unwrap_or(rows.len());
        let place = join.map_or(place, |join| place.min(join));
        let head = StepRow::read_head(at)?;
        Ok(Some(Self { head, len, join, place }))
    }
}

/// Returns the cause of a step: its nodes, or what was done from outside.
fn cause(row: &StepRow) -> String {
    match row.at.source() {
        Source::Input => "input".to_owned(),
        Source::Update => "edited".to_owned(),
        Source::Fork => "fork".to_owned(),
        Source::Loop if is_input(row) => "start".to_owned(),
        Source::Loop => {
            let mut names = ran(&row.at, row.parent.as_ref());
            let tasks = names.len() as u64;
            names.sort_unstable();
            names.dedup();
            // The names of many nodes would leave no place for what they changed.
            if names.len() > NAMES { count(tasks, "task") } else { made(&row.at, row.parent.as_ref()) }
        }
    }
}

fn is_input(row: &StepRow) -> bool {
    row.at.source() == Source::Input || ran(&row.at, row.parent.as_ref()) == [START]
}

/// Draws a part of a lane.
fn line(html: &mut Html, class: &str, lane: usize, from: &str, to: &str) {
    let x = (FIRST + lane * LANE).to_string();
    html.element("line", &[("class", class), ("x1", &x), ("x2", &x), ("y1", from), ("y2", to)], "");
}
