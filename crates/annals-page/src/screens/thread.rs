//! The screen of a thread at a point: the tree of branches, the timeline of steps, the state.

use annals::base::{CheckpointId, NULL_TASK, Value};
use annals::history::{PartialInfo, Snapshot, Thread, ThreadInfo, short_ids};
use annals::store::Source;
use annals::store::record::WriteRecord;
use annals_runs::ThreadStatus;
use serde_json::{Value as Json, json};

use super::tree::BranchTree;
use super::{Screen, Shown, state};
use crate::address::{self, diff, encode, point_text};
use crate::changed::{self, ChannelStep, changed};
use crate::failure::Refusal;
use crate::html::Html;
use crate::layout::View;
use crate::limits::{RESUMED_MAX, STEPS_MAX, SUBGRAPHS_MAX};
use crate::plot;
use crate::words::{
    START, ago, brief, cost, count, interrupt, made, metadata, partial_json, ran, rounded, shortened, span, status,
    status_text, tally,
};

/// The positions of the writes that hold the resume values and the interrupts of a task.
const RESUME: i32 = -4;
const INTERRUPT: i32 = -3;

/// A checkpoint of the timeline.
struct StepRow {
    at: Snapshot,
    parent: Option<Snapshot>,
    short: String,
    changed: Vec<ChannelStep>,
    /// The resume values that its tasks took, each with its interrupt if that is still stored.
    resumed: Vec<String>,
    status: Option<ThreadStatus>,
    partial: Option<PartialInfo>,
}

impl StepRow {
    /// Returns the time from the parent to the checkpoint in microseconds, of a superstep.
    fn micros(&self) -> Option<i64> {
        let parent = self.parent.as_ref().filter(|_| self.at.source() == Source::Loop)?;
        Some(self.at.created_at().as_micros().saturating_sub(parent.created_at().as_micros()).max(0))
    }

    /// Returns the changes on one line: of an input or an edit with the begin of its first message, of a task with the
    /// resume values that it took.
    fn text(&self) -> String {
        let words = Some(shortened(&changed::text(&self.changed), 80)).filter(|text| !text.is_empty());
        let is_input = self.at.source() != Source::Loop || ran(&self.at, self.parent.as_ref()) == [START];
        let begin = self.changed.iter().filter(|_| is_input).find_map(|step| step.begin.as_deref());
        let begin = begin.map(|begin| format!("\"{begin}\""));
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
    let (rows, older) = rows(&from)?;
    if screen.json {
        let checkpoints: Vec<Json> = rows.iter().map(document).collect();
        let (id, more) = (thread.id().as_str(), older.is_some());
        let head = thread.head()?.map(|head| head.id().to_string());
        let document = json!({ "schema": 1, "thread": id, "head": head, "checkpoints": checkpoints, "more": more });
        return Ok(Shown::Json(document));
    }
    let info = thread.info()?;
    let (tree, subgraph_heads) = (BranchTree::read(&thread)?, subgraph_heads(&thread)?);
    let mut html = Html::new();
    heading(&mut html, &thread, &info, at, &tree)?;
    tabs(&mut html, at, "steps");
    html.open("div", &[("class", "panes")]);
    html.within("section", &[("aria-label", "Branches")], |html| {
        html.element("h2", &[], "branches");
        tree.add_to(html, &thread, at);
        subgraphs(html, &subgraph_heads);
    });
    html.within("section", &[("aria-label", "Steps")], |html| {
        html.element("h2", &[], "steps");
        timeline(html, &rows);
        if let Some(older) = &older {
            let address = format!("{}?from={}", address::point(at), encode(&point_text(older)));
            html.within("p", &[("class", "next")], |html| _ = html.link(&address, "older steps"));
        }
    });
    let mut pane = Html::new();
    state::pane(&mut pane, at)?;
    html.within("section", &[("aria-label", "State")], |html| _ = html.add(&pane));
    html.close("div");
    Ok(View::new(name(&info), html).live(thread.id().as_str()).into())
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

/// Adds links to the subgraphs of a thread, by the nodes that ran them.
fn subgraphs(html: &mut Html, heads: &[Snapshot]) {
    if heads.is_empty() {
        return;
    }
    html.element("h2", &[], "subgraphs").open("ul", &[("class", "tree")]);
    for head in heads {
        let segments = head.point().namespace.segments().map(|part| part.split(':').next().unwrap_or_default());
        let name = segments.collect::<Vec<_>>().join(" / ");
        let name = if name.is_empty() { "(root)".to_owned() } else { shortened(&name, 60) };
        html.open("li", &[]).link(&address::point(head), &name).literal(" ");
        html.classed("span", "dim", &format!("step {} · {}", head.step(), ago(head.store().now(), head.created_at())));
        html.close("li");
    }
    html.close("ul");
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
        let changed = changed(snapshot, parent.as_ref())?;
        let (status, partial) = match at {
            0 => status(snapshot).map(|(status, partial)| (Some(status), partial))?,
            _ => (None, None),
        };
        let resumed = resumed(snapshot, parent.as_ref());
        rows.push(StepRow { at: snapshot.clone(), parent, short, changed, resumed, status, partial });
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

/// Returns the title of a thread, or its id.
pub(super) fn name(info: &ThreadInfo) -> String {
    shortened(info.title().unwrap_or(info.id().as_str()), 80)
}

/// Adds the head of every screen of a thread.
pub(super) fn heading(
    html: &mut Html,
    thread: &Thread,
    info: &ThreadInfo,
    at: &Snapshot,
    tree: &BranchTree,
) -> Result<(), Refusal> {
    let from = thread.forked_from()?;
    let forks = thread.forks()?;
    html.element("h1", &[("dir", "auto")], &name(info));
    html.within("p", &[("class", "facts")], |html| {
        html.classed("span", "id", &shortened(thread.id().as_str(), 80));
        if let Some(counts) = info.counts() {
            let tokens = counts.input_tokens.saturating_add(counts.output_tokens);
            let words = [
                (counts.messages > 0).then(|| count(counts.messages, "message")),
                (tokens > 0).then(|| format!("{} tokens", rounded(tokens))),
                (counts.cost_nano_usd > 0).then(|| cost(counts.cost_usd())),
            ];
            words.into_iter().flatten().for_each(|word| _ = html.text(&format!(" · {word}")));
        }
        let branches = if tree.count == 1 { "1 branch".to_owned() } else { format!("{} branches", tree.count) };
        html.text(&format!(" · {} · {branches}", count(tree.checkpoints, "checkpoint")));
        if let Some(name) = tree.name(at.record().branch) {
            html.text(" · branch ").classed("span", "tag", &shortened(name, 40));
        }
        if let Some(project) = &info.facts().project {
            html.text(" · ").link(&format!("/?project={}", encode(project)), &shortened(project, 40));
        }
        html.text(" · ");
        let class = if matches!(ThreadStatus::of(info), ThreadStatus::Failed(_) | ThreadStatus::Stuck(_)) {
            "error"
        } else {
            ThreadStatus::of(info).as_str()
        };
        html.classed("span", class, &status_text(&ThreadStatus::of(info), "a run"));
        if let Some(partial) = info.partial() {
            html.text(" · ").classed("span", "open", &partial.to_string());
        }
        if info.facts().is_paused {
            html.text(" · ").classed("span", "tag", "paused");
        }
        if let Some(from) = &from {
            let text = format!("{}@{}", address::thread_text(from.thread.as_str()), from.checkpoint);
            html.text(" · forked from ").link(&format!("/t/{}", encode(&text)), &shortened(from.thread.as_str(), 40));
        }
        if !forks.is_empty() {
            html.text(" · forked: ");
        }
        for fork in forks.iter().take(8) {
            html.link(&address::thread(fork.as_str()), &shortened(fork.as_str(), 40)).text(" ");
        }
        html.text(" · ").link(&format!("/stats?thread={}", encode(thread.id().as_str())), "stats");
    });
    Ok(())
}

/// Adds the links between the screens of a point.
pub(super) fn tabs(html: &mut Html, at: &Snapshot, selected: &'static str) {
    let point = address::point(at);
    html.open("nav", &[("class", "tabs"), ("aria-label", "Views of this point")]);
    let compare = format!("/diff/{}", encode(&point_text(at)));
    for (name, address) in [
        ("steps", point.clone()),
        ("talk", format!("{point}/talk")),
        ("state", format!("{point}/state")),
        ("step", format!("{point}/step")),
        ("graph", format!("{point}/graph")),
        ("diff", compare),
        ("fork", format!("{point}/fork")),
    ] {
        let mut attributes = vec![("href", address.as_str()), ("data-key", name)];
        attributes.extend((name == selected).then_some(("aria-current", "page")));
        html.element("a", &attributes, name).text(" ");
    }
    html.classed("span", "id", &format!("@{}", at.id())).text(" ");
    html.classed("span", "dim", &format!("step {} · {}", at.step(), at.created_at()));
    html.close("nav");
}

fn timeline(html: &mut Html, rows: &[StepRow]) {
    let longest = rows.iter().filter_map(StepRow::micros).max().unwrap_or(0).max(1);
    let now = rows.first().map(|row| row.at.store().now()).unwrap_or_default();
    if let Some((row, status)) = rows.first().and_then(|row| Some((row, row.status.as_ref()?)))
        && *status != ThreadStatus::Done
    {
        let class = if matches!(status, ThreadStatus::Failed(_) | ThreadStatus::Stuck(_)) { "error" } else { "open" };
        html.classed("p", class, &status_text(status, &tally(row.at.next())));
    }
    if let Some(partial) = rows.first().and_then(|row| row.partial.as_ref()) {
        html.classed("p", "open", &partial.to_string());
    }
    html.open("table", &[("class", "rows steps")]).open("thead", &[]).open("tr", &[]);
    for title in ["step", "by", "took", "", "changed", "tokens", "when", "id"] {
        html.element("th", &[("scope", "col")], title);
    }
    html.close("tr").close("thead").open("tbody", &[]);
    for row in rows {
        let address = address::point(&row.at);
        let before = row.parent.as_ref().map(point_text);
        let compare = before.map(|before| diff(&before, &point_text(&row.at))).unwrap_or_default();
        html.open("tr", &[("data-row", ""), ("data-diff", &compare)]);
        html.within("td", &[("class", "number")], |html| _ = html.link(&address, &row.at.step().to_string()));
        html.within("td", &[("class", "by")], |html| {
            let by = shortened(&made(&row.at, row.parent.as_ref()), 40);
            html.element("a", &[("href", &format!("{address}/step")), ("data-blame", "")], &by);
        });
        let took = row.micros().map(span).unwrap_or_default();
        html.classed("td", "number", &took);
        html.within("td", &[], |html| {
            if let Some(micros) = row.micros() {
                plot::share(html, micros as f64 / longest as f64, &took);
            }
        });
        html.element("td", &[], &row.text());
        let tokens: u64 = row.changed.iter().map(|step| step.tokens.0 + step.tokens.1).sum();
        html.classed("td", "number", &if tokens > 0 { rounded(tokens) } else { String::new() });
        let created_at = row.at.created_at();
        html.element("td", &[("class", "when"), ("title", &created_at.to_string())], &ago(now, created_at));
        html.within("td", &[("class", "id")], |html| _ = html.link(&address, &shortened(&row.short, 20)));
        html.close("tr");
    }
    html.close("tbody").close("table");
}

/// Returns the document of a checkpoint, as `annals log --json` has it.
fn document(row: &StepRow) -> Json {
    let record = row.at.record();
    let from = record.forked_from.as_ref();
    let from = from.map(|from| json!({ "thread": from.thread.as_str(), "checkpoint": from.checkpoint.to_string() }));
    let open: &[Value] = if let Some(ThreadStatus::Interrupted(values)) = &row.status { values } else { &[] };
    json!({
        "checkpoint": row.at.id().to_string(),
        "short": row.short,
        "parent": record.parent.map(|parent| parent.to_string()),
        "forked_from": from,
        "branch": record.branch,
        "ordinal": record.ordinal,
        "step": row.at.step(),
        "source": row.at.source().as_str(),
        "created_at": row.at.created_at().to_string(),
        "run": record.run.map(|run| run.to_string()),
        "metadata": metadata(&row.at),
        "ran": ran(&row.at, row.parent.as_ref()),
        "next": row.at.next().collect::<Vec<_>>(),
        "changed": row.changed.iter().map(ChannelStep::json).collect::<Vec<_>>(),
        "status": row.status.as_ref().map(ThreadStatus::as_str),
        "partial": partial_json(row.partial.as_ref()),
        "questions": open.iter().map(Value::to_json).collect::<Vec<_>>(),
    })
}
