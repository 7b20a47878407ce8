//! The screen of a thread at a point: what it waits for, the steps with the branches beside them, the state.

use std::ops::Deref;

use annals::base::{CheckpointId, NULL_TASK, Namespace};
use annals::history::{Snapshot, Thread, short_ids};
use annals::store::Source;
use annals::store::record::WriteRecord;
use annals_runs::{ThreadLinkKind, ThreadRuns as _, ThreadStatus};
use annals_view::words::{ago, brief, count, shortened, stored_parent, tally};
use annals_view::{LinkedThread, ListedCheckpoint, link_document, linked_threads};
use serde_json::{Value as Json, json};

use super::heading::{heading, name, tabs};
use super::timeline::Timeline;
use super::tree::BranchTree;
use super::{Screen, Shown, pane, resume};
use crate::address::{self, encode, point_text};
use crate::failure::Refusal;
use crate::html::Html;
use crate::layout::View;
use crate::limits::{
    BEGIN_CHARS_MAX, CALLED_ITEMS_MAX, CALLS_MAX, CHANGED_ITEMS_MAX, LINKED_MAX, RESUMED_MAX, STEPS_MAX, SUBGRAPHS_MAX,
};
use crate::values::{interrupt, status_text};

/// The positions of the writes that hold the resume values and the interrupts of a task.
const RESUME: i32 = -4;
const INTERRUPT: i32 = -3;

/// A checkpoint of the timeline.
pub(super) struct StepRow {
    listed: ListedCheckpoint,
    /// The resume values that its tasks took, each with its interrupt if that is still stored.
    resumed: Vec<String>,
    /// The heads of the subgraphs that its tasks ran.
    pub(super) subgraphs: Vec<Snapshot>,
}

impl Deref for StepRow {
    type Target = ListedCheckpoint;

    fn deref(&self) -> &ListedCheckpoint {
        &self.listed
    }
}

impl StepRow {
    fn read(at: Snapshot, parent: Option<Snapshot>, short: String, is_end: bool) -> Result<Self, Refusal> {
        let resumed = resumed(&at, parent.as_ref());
        let listed = ListedCheckpoint::read(at, parent, short, is_end, CHANGED_ITEMS_MAX)?;
        Ok(Self { listed, resumed, subgraphs: Vec::new() })
    }

    /// Reads the head of a branch beside the lineage.
    pub(super) fn read_head(at: Snapshot) -> Result<Self, Refusal> {
        let (parent, short) = (stored_parent(&at)?, at.id().to_string());
        Self::read(at, parent, short, false)
    }

    /// Adds those of some subgraphs that the tasks of the step ran: the last segment of a namespace names the task.
    fn add_subgraphs(&mut self, own: &Namespace, heads: &[Snapshot]) {
        let Some(parent) = self.listed.parent.as_ref().filter(|_| self.listed.at.source() == Source::Loop) else {
            return;
        };
        let depth = own.segments().count();
        let tasks: Vec<String> = parent.record().tasks.iter().map(|task| task.id.to_string()).collect();
        let is_of_task = |head: &&Snapshot| {
            let namespace = &head.point().namespace;
            let task = namespace.segments().nth(depth).and_then(|last| last.rsplit_once(':'));
            namespace.segments().count() == depth + 1 && task.is_some_and(|(_, id)| tasks.iter().any(|of| of == id))
        };
        self.subgraphs.extend(heads.iter().filter(is_of_task).cloned());
    }

    /// Returns the changes on one line, with the begin of the first message, and the resume values that a task took.
    pub(super) fn text(&self) -> String {
        let words = Some(shortened(&self.changes_text(), 80)).filter(|text| !text.is_empty());
        let begin = self.changed.iter().find_map(|step| step.begin.as_ref());
        let begin = begin.map(|(_, text)| format!("“{}”", shortened(text, BEGIN_CHARS_MAX)));
        let parts = words.into_iter().chain(begin).chain(self.resumed.iter().cloned());
        parts.collect::<Vec<_>>().join(" · ")
    }
}

pub(super) fn show(screen: &Screen<'_>, at: &Snapshot) -> Result<Shown, Refusal> {
    let thread = screen.thread(at)?;
    let from = match screen.query.get("from") {
        Some(from) => screen.point(from)?,
        None => at.clone(),
    };
    let (mut rows, older) = rows(&from)?;
    let is_root = thread.namespace().is_root();
    let linked = if is_root { linked_threads(&from, LINKED_MAX + 1, CALLED_ITEMS_MAX)? } else { Vec::new() };
    for row in &mut rows {
        row.listed.started.extend(linked.iter().filter(|of| of.started_by == Some(row.listed.at.id())).cloned());
    }
    if screen.json {
        return document(&thread, &rows, older.is_some()).map(Shown::Json);
    }
    let info = thread.info()?;
    let (tree, subgraph_heads) = (BranchTree::read(&thread)?, subgraph_heads(&thread)?);
    rows.iter_mut().for_each(|row| row.add_subgraphs(thread.namespace(), &subgraph_heads));
    let timeline = Timeline::read(&rows, &tree, at, older.is_some())?;
    let mut html = Html::new();
    heading(&mut html, &thread, &info, at, &tree)?;
    tabs(&mut html, at, "steps");
    call(screen, &mut html, &thread, at, rows.first())?;
    html.open("div", &[("class", "cols")]);
    html.open("section", &[("aria-label", "Steps")]);
    if at.id() != info.head() && thread.namespace().is_root() {
        html.within("p", &[("class", "small dim")], |html| {
            html.text("The thread has gone on. ").link(&address::thread(thread.id().as_str()), "its head");
        });
    }
    timeline.add_to(&mut html)?;
    if let Some(older) = &older {
        let address = format!("{}?from={}", address::point(at), encode(&point_text(older)));
        html.within("p", &[("class", "next")], |html| _ = html.link(&address, "older steps"));
    }
    branches(&mut html, &thread, at, &tree, timeline.folded());
    linked_list(&mut html, &linked);
    subgraphs(&mut html, &subgraph_heads);
    html.close("section").open("aside", &[("class", "rail"), ("aria-label", "State")]);
    pane::add_to(screen, &mut html, at)?;
    html.close("aside").close("div");
    Ok(View::new(name(&info), html).live(thread.id().as_str()).into())
}

/// Returns the document of the steps, as `annals log --json` has it.
fn document(thread: &Thread, rows: &[StepRow], more: bool) -> Result<Json, Refusal> {
    let checkpoints: Vec<Json> = rows.iter().map(|row| row.document()).collect();
    let (id, head) = (thread.id().as_str(), thread.head()?.map(|head| head.id().to_string()));
    let mut document = json!({ "schema": 1, "thread": id, "head": head, "checkpoints": checkpoints, "more": more });
    if let Some(parent) = thread.parent_link()? {
        document["parent_thread"] = link_document(&parent);
    }
    Ok(document)
}

/// Adds what a thread waits for, with the ways to answer; of a failure its text.
fn call(
    screen: &Screen<'_>,
    html: &mut Html,
    thread: &Thread,
    at: &Snapshot,
    row: Option<&StepRow>,
) -> Result<(), Refusal> {
    match row.and_then(|row| row.status.as_ref()) {
        Some(ThreadStatus::Interrupted(_)) if thread.head()?.as_ref() == Some(at) => {
            for open in resume::waiting(thread)?.iter().take(CALLS_MAX) {
                resume::call(screen, html, at, open);
            }
        }
        Some(status @ (ThreadStatus::Failed(_) | ThreadStatus::Stuck(_))) => {
            _ = html.classed("p", "failed", &status_text(status, &tally(at.next())));
        }
        _ => {}
    }
    Ok(())
}

/// Adds all branches of a thread, folded. They are open if some have no lane.
fn branches(html: &mut Html, thread: &Thread, at: &Snapshot, tree: &BranchTree, folded: usize) {
    if tree.count < 2 {
        return;
    }
    html.open("details", if folded > 0 { &[("open", "")] } else { &[] });
    html.element("summary", &[("class", "mid")], &format!("{} branches", tree.count));
    tree.add_to(html, thread, at);
    html.close("details");
}

/// Returns the heads of the newest subgraphs of a thread, and of its root if the thread is one of them.
fn subgraph_heads(thread: &Thread) -> Result<Vec<Snapshot>, Refusal> {
    let namespaces = thread.namespaces()?;
    let mut heads = Vec::new();
    for namespace in namespaces.into_iter().filter(|namespace| namespace != thread.namespace()) {
        heads.extend(thread.with_namespace(namespace).head()?);
    }
    heads.sort_by_key(|head| std::cmp::Reverse(head.id()));
    heads.truncate(SUBGRAPHS_MAX);
    Ok(heads)
}

/// Adds the threads of helpers and the forks that a thread is linked to.
fn linked_list(html: &mut Html, linked: &[LinkedThread]) {
    for (kind, title) in [(ThreadLinkKind::Sub, "helpers"), (ThreadLinkKind::Fork, "forks")] {
        let mut of_kind = linked.iter().take(LINKED_MAX).filter(|linked| linked.link.kind == kind).peekable();
        if of_kind.peek().is_none() {
            continue;
        }
        html.element("h2", &[], title).open("ul", &[]);
        for LinkedThread { link, listed, .. } in of_kind {
            html.open("li", &[]);
            html.link(&address::thread(&link.thread), &shortened(listed.words().unwrap_or(&link.thread), 80));
            let messages = listed.info.counts.map_or(0, |counts| counts.messages);
            html.literal(" ").classed("span", "dim", &count(messages, "message")).close("li");
        }
        html.close("ul");
    }
    if linked.len() > LINKED_MAX {
        html.classed("p", "dim", &format!("The first {LINKED_MAX} are shown."));
    }
}

/// Adds links to the subgraphs of a thread, by the nodes that ran them.
fn subgraphs(html: &mut Html, heads: &[Snapshot]) {
    if heads.is_empty() {
        return;
    }
    html.element("h2", &[], "subgraphs").open("ul", &[]);
    for head in heads {
        html.open("li", &[]).link(&address::point(head), &subgraph_name(&head.point().namespace)).literal(" ");
        html.classed("span", "dim", &format!("step {} · {}", head.step(), ago(head.store().now(), head.created_at())));
        html.close("li");
    }
    html.close("ul");
}

/// Returns the nodes that ran a subgraph, outermost first.
pub(super) fn subgraph_name(namespace: &Namespace) -> String {
    let segments = namespace.segments().map(|part| part.split(':').next().unwrap_or_default());
    let name = segments.collect::<Vec<_>>().join(" / ");
    if name.is_empty() { "(root)".to_owned() } else { shortened(&name, 60) }
}

/// Reads the steps from a checkpoint on, newest first, and the first one that is not shown.
fn rows(from: &Snapshot) -> Result<(Vec<StepRow>, Option<Snapshot>), Refusal> {
    let mut line: Vec<Snapshot> = from.lineage().take(STEPS_MAX + 1).collect::<Result<_, _>>()?;
    let ids: Vec<CheckpointId> = line.iter().map(Snapshot::id).collect();
    // The checkpoints of a lineage are not all of the thread, so a branch beside it can share a longer beginning.
    let is_straight = ids.is_sorted_by(|a, b| a > b);
    let shorts =
        if is_straight { short_ids(&ids, from.store().now()) } else { ids.iter().map(ToString::to_string).collect() };
    let older = if line.len() > STEPS_MAX { line.pop() } else { None };
    let mut rows = Vec::with_capacity(line.len());
    for (at, (snapshot, short)) in line.iter().zip(shorts).enumerate() {
        let parent = line.get(at + 1).or(older.as_ref()).cloned();
        rows.push(StepRow::read(snapshot.clone(), parent, short, at == 0)?);
    }
    debug_assert!(rows.len() <= STEPS_MAX, "a page has an end");
    Ok((rows, older))
}

/// Returns the resume values that the tasks of a superstep took. The interrupt of a value that came from outside is not
/// stored. Damaged writes are left out: the screen of their step names the damage.
fn resumed(at: &Snapshot, parent: Option<&Snapshot>) -> Vec<String> {
    let parent = parent.filter(|_| at.source() == Source::Loop);
    let writes = parent.and_then(|parent| parent.writes().ok()).unwrap_or_default();
    let values = writes.iter().filter(|write| write.index == RESUME && write.task != NULL_TASK);
    let text = |write: &WriteRecord| {
        let value = write.to_value().ok()?;
        let last = shortened(&brief(value.as_list()?.last()?), 40);
        let asked = writes.iter().find(|of| of.task == write.task && of.index == INTERRUPT);
        let asked = asked.and_then(|asked| asked.to_value().ok());
        let asked = asked.as_ref().and_then(|asked| asked.as_list()?.last()?.get("value"));
        Some(match asked {
            Some(asked) => format!("asked: {} -> {last}", shortened(&interrupt(asked), 40)),
            None => format!("resumed: {last}"),
        })
    };
    values.filter_map(text).take(RESUMED_MAX).collect()
}
