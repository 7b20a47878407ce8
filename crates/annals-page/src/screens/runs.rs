//! The threads that wait for a person, failed, sleep or run: each with its lease, its attempts, its pause and its
//! controls. Below them stand the runs of graphs that ended.

use annals::base::Timestamp;
use annals::history::{Snapshot, ThreadInfo};
use annals::store::ThreadQuery;
use annals::store::lease::LeaseRecord;
use annals_runs::{OpenInterrupt, SnapshotRuns, StepInfo, StepState, ThreadStatus, status_name};
use annals_view::words::{count, shortened, tally, until};
use serde_json::{Value as Json, json};

use super::finished::{ENDED, FinishedRun};
use super::{Screen, Shown, control, finished, resume, threads};
use crate::address;
use crate::failure::Refusal;
use crate::html::Html;
use crate::icons::StatusShape;
use crate::layout::View;
use crate::limits::{RUNS_MAX, TASKS_MAX};
use crate::values::{interrupt, status_text};

/// The statuses, each with its word and with what its threads have in common.
const SECTIONS: [(&str, &str, &str); 5] = [
    ("interrupted", "Waiting", "Waiting for a person"),
    ("stuck", "Stuck", "Stuck: no worker continues them"),
    ("failed", "Failed", "Failed"),
    ("sleeping", "Asleep", "Asleep"),
    ("running", "Running", "Running, or due for a worker"),
];

/// A thread among the runs with what its row shows.
struct OpenRun {
    info: ThreadInfo,
    head: Snapshot,
    /// The lease, unless it was released. It may have expired.
    lease: Option<LeaseRecord>,
    /// The tasks that are due and have not ended.
    tasks: Vec<StepInfo>,
    /// The interrupts that wait for a resume value.
    open: Vec<OpenInterrupt>,
}

impl OpenRun {
    fn read(screen: &Screen<'_>, info: ThreadInfo) -> Result<Self, Refusal> {
        let head = threads::head(screen, &info)?;
        let thread = screen.thread(&head)?;
        let lease = thread.last_lease()?.filter(|lease| lease.expires_at.is_some());
        let mut tasks = head.steps(None)?;
        tasks.retain(|task| task.state != StepState::Done);
        let open = resume::waiting(&thread)?;
        Ok(Self { info, head, lease, tasks, open })
    }

    /// Returns the state of a task. The log does not tell a task that runs from one that is due; a live lease does.
    fn state_of(&self, task: &StepInfo, now: Timestamp) -> &'static str {
        let is_leased = self.lease.as_ref().is_some_and(|lease| lease.is_live(now));
        if task.state == StepState::Running && !is_leased { "due" } else { task.state.as_str() }
    }

    fn recoveries(&self) -> u64 {
        self.lease.as_ref().map_or(0, |lease| lease.recoveries)
    }
}

pub(super) fn show(screen: &Screen<'_>) -> Result<Shown, Refusal> {
    let wanted = screen.query.get("status");
    let ended = ENDED.into_iter().find(|kind| wanted == Some(status_name(*kind)));
    let known = |name: &&str| SECTIONS.iter().any(|(known, ..)| known == name);
    if let Some(name) = wanted.filter(|name| !known(name) && ended.is_none()) {
        let names = "interrupted, stuck, failed, sleeping, running, done and cancelled";
        return Err(Refusal::usage(format!("{} is not one of {names}", shortened(name, 40))));
    }
    let mut html = Html::new();
    html.element("h1", &[], "Runs");
    tabs(&mut html, wanted);
    let (mut documents, mut found) = (Vec::new(), 0);
    for (name, _, title) in SECTIONS.into_iter().filter(|(name, ..)| wanted.is_none_or(|wanted| wanted == *name)) {
        let mut query = ThreadQuery::new().limit(RUNS_MAX + 1);
        query.status = annals_runs::status_named(name);
        let mut infos = screen.store.threads_with(query)?;
        let more = infos.len() > RUNS_MAX;
        infos.truncate(RUNS_MAX);
        if infos.is_empty() {
            continue;
        }
        found += infos.len();
        html.open("section", &[]).open("div", &[("class", "section")]).element("h2", &[], title).close("div");
        for info in infos {
            let run = OpenRun::read(screen, info)?;
            if screen.json {
                documents.push(document(screen, &run)?);
            } else {
                row(screen, &mut html, &run);
            }
        }
        if more {
            let address = format!("/?q=status:{name}");
            html.within("p", &[], |html| _ = html.link(&address, "all of them, among the threads"));
        }
        html.close("section");
    }
    let mut finished = Vec::new();
    for kind in ENDED
        .into_iter()
        .filter(|kind| ended.is_none_or(|ended| ended == *kind) && (wanted.is_none() || ended.is_some()))
    {
        finished.extend(FinishedRun::read(screen, kind)?);
    }
    if screen.json {
        let finished: Vec<Json> = finished.iter().map(FinishedRun::document).collect();
        return Ok(Shown::Json(json!({ "schema": 1, "runs": documents, "finished": finished })));
    }
    if found == 0 && (wanted.is_none() || ended.is_none()) {
        html.open("div", &[("class", "empty")]).literal("<b>No run waits for a person, failed, sleeps or is due.</b> ");
        html.text("A graph that is invoked with a thread of this store appears here.").close("div");
    }
    if !finished.is_empty() {
        html.open("section", &[]).open("div", &[("class", "section")]).element("h2", &[], "Finished");
        html.element("a", &[("class", "end small dim link"), ("href", "/?q=status:done")], "all threads that are done");
        html.close("div");
        finished::table(&mut html, screen.store.now(), &finished);
        html.close("section");
    } else if ended.is_some() {
        html.within("div", &[("class", "empty")], |html| {
            _ = html.literal("<b>No such run of a graph is among the newest.</b>")
        });
    }
    Ok(View::new("runs", html).live("").into())
}

fn tabs(html: &mut Html, wanted: Option<&str>) {
    html.open("nav", &[("class", "tabs"), ("aria-label", "Runs by status")]);
    let ended = [("done", "Done"), ("cancelled", "Cancelled")];
    let names = SECTIONS.into_iter().map(|(name, word, _)| (name, word)).chain(ended);
    for (name, word) in [("", "Now")].into_iter().chain(names) {
        let href = if name.is_empty() { "/runs".to_owned() } else { format!("/runs?status={name}") };
        let mut attributes = vec![("href", href.as_str())];
        attributes.extend((wanted.unwrap_or_default() == name).then_some(("aria-current", "page")));
        html.element("a", &attributes, word).literal(" ");
    }
    html.close("nav");
}

fn row(screen: &Screen<'_>, html: &mut Html, run: &OpenRun) {
    let (info, now) = (&run.info, screen.store.now());
    let status = ThreadStatus::of(info);
    html.open("article", &[("class", "run"), ("data-row", "")]);
    StatusShape::of(&status, false).add_to(html);
    html.open("div", &[]);
    let is_asked = matches!(status, ThreadStatus::Interrupted(_));
    let text = status_text(&status, &tally(run.head.next()));
    match &status {
        // A form has its own question.
        ThreadStatus::Interrupted(_) if screen.page.allows_write() && !run.open.is_empty() => {
            resume::forms(screen, html, &run.head, &run.open);
        }
        ThreadStatus::Interrupted(values) => {
            let asked = values.iter().map(interrupt).collect::<Vec<_>>().join(" / ");
            html.element("h3", &[("class", "ask"), ("dir", "auto")], &asked);
        }
        ThreadStatus::Failed(_) | ThreadStatus::Stuck(_) => {
            title(html, run);
            html.element("code", &[("class", "error"), ("dir", "auto")], &text);
        }
        _ => {
            title(html, run);
            html.classed("p", "mid", &text);
        }
    }
    html.open("p", &[("class", "facts")]);
    if is_asked {
        html.open("span", &[]);
        html.link(&address::point(&run.head), &shortened(info.title().unwrap_or(info.id().as_str()), 80)).close("span");
    }
    tasks(html, run, now);
    if let Some(graph) = &info.graph {
        html.open("span", &[]).text("graph ").isolated(&shortened(graph, 40)).close("span");
    }
    html.open("span", &[]);
    html.link(&format!("{}/step", address::point(&run.head)), &format!("step {}", run.head.step())).close("span");
    html.open("span", &[]).time("", now, run.head.created_at()).close("span");
    if info.facts.is_paused {
        html.open("span", &[]).classed("span", "label", "paused").close("span");
    }
    html.close("p");
    lease(html, run, now);
    html.close("div").open("div", &[("class", "do")]);
    control::form(screen, html, info);
    // Without leave to write the commands are the only way.
    let open = if screen.page.allows_write() { &[("class", "dim")][..] } else { &[("class", "dim"), ("open", "")] };
    html.open("details", open).element("summary", &[("class", "small")], "commands");
    for command in commands(screen, run) {
        html.element("pre", &[("class", "command"), ("dir", "auto")], &command);
    }
    html.close("details").close("div").close("article");
}

fn title(html: &mut Html, run: &OpenRun) {
    let title = run.info.title().unwrap_or(run.info.id().as_str());
    html.open("h3", &[]).link(&address::point(&run.head), &shortened(title, 80)).close("h3");
}

/// Returns the commands that show the run, and those with the effects of its forms.
fn commands(screen: &Screen<'_>, run: &OpenRun) -> Vec<String> {
    let mut commands = vec![screen.command(&["show", &address::point_text(&run.head), "--writes"])];
    commands.extend(resume::commands(screen, &run.head, &run.open));
    commands.extend(control::commands(screen, &run.info));
    commands
}

/// Adds the owner of the lease and its end. Without a lease a worker claims the thread, if its tasks are due.
fn lease(html: &mut Html, run: &OpenRun, now: Timestamp) {
    match &run.lease {
        Some(LeaseRecord { owner, expires_at: Some(at), .. }) => {
            let end = match (owner.has_died(), now < *at) {
                (true, _) => "its process has ended, so a worker may claim the thread".to_owned(),
                (false, true) => format!("until {at} ({})", until(now, *at)),
                (false, false) => format!("expired at {at}, so a worker may claim the thread"),
            };
            html.classed("p", "small mid", &format!("lease of {owner}, {end}"));
        }
        _ if ThreadStatus::of(&run.info) == ThreadStatus::Running => {
            html.classed("p", "small dim", "no lease: due for a worker, or for a run without a lease");
        }
        _ => {}
    }
    if run.recoveries() > 0 {
        let text =
            format!("continued {} after an owner that did not release its lease", count(run.recoveries(), "time"));
        html.classed("p", "error", &text);
    }
}

/// Adds the tasks that have not ended, each with its attempts and the time of its next one.
fn tasks(html: &mut Html, run: &OpenRun, now: Timestamp) {
    let tasks = &run.tasks;
    for task in tasks.iter().take(TASKS_MAX) {
        let mut text = format!("{}: {}", shortened(&task.name, 60), run.state_of(task, now));
        let attempts = task.attempts.len() as u64;
        if attempts > 0 {
            text.push_str(&format!(", {}", count(attempts, "attempt")));
        }
        if let Some(at) = task.wake_at {
            text.push_str(&format!(", next at {at} ({})", until(now, at)));
        }
        html.element("span", &[], &text);
    }
    if tasks.len() > TASKS_MAX {
        html.classed("span", "dim", &format!("{} more", count((tasks.len() - TASKS_MAX) as u64, "task")));
    }
}

fn document(screen: &Screen<'_>, run: &OpenRun) -> Result<Json, Refusal> {
    let now = screen.store.now();
    let OpenRun { info, head, .. } = run;
    let interrupts = head.interrupts()?;
    let (error, wake_at) = match ThreadStatus::of(info) {
        ThreadStatus::Failed(error) | ThreadStatus::Stuck(error) => (Some(error.clone()), None),
        ThreadStatus::Sleeping(until) => (None, Some(until.to_string())),
        _ => (None, None),
    };
    let lease = run.lease.as_ref().map(|lease| {
        json!({
            "owner": lease.owner.to_string(),
            "process": lease.owner.process_id(),
            "epoch": lease.epoch,
            "until": lease.expires_at.map(|at| at.to_string()),
            "live": lease.is_live(now),
        })
    });
    let task = |task: &StepInfo| {
        json!({
            "task": task.task.to_string(),
            "node": &*task.name,
            "call": task.is_call,
            "state": run.state_of(task, now),
            "attempts": task.attempts.len(),
            "error": Some(task.error_text()).filter(|text| !text.is_empty()),
            "wake_at": task.wake_at.map(|at| at.to_string()),
        })
    };
    let open = |open: &OpenInterrupt| {
        json!({
            "interrupt": open.id,
            "task": open.task.to_string(),
            "value": open.value.to_json(),
            "schema": open.response_schema.as_ref().map(|schema| schema.to_json()),
        })
    };
    Ok(json!({
        "thread": info.id().as_str(),
        "checkpoint": head.id().to_string(),
        "step": head.step(),
        "since": head.created_at().to_string(),
        "status": ThreadStatus::of(info).as_str(),
        "error": error,
        "wake_at": wake_at,
        "paused": info.facts.is_paused,
        "recoveries": run.recoveries(),
        "lease": lease,
        "tasks": run.tasks.iter().map(task).collect::<Vec<_>>(),
        "next": head.next().collect::<Vec<_>>(),
        "questions": interrupts.iter().map(|(task, value)| json!({ "task": task.to_string(), "value": value.to_json() })).collect::<Vec<_>>(),
        "commands": commands(screen, run),
        "interrupts": run.open.iter().map(open).collect::<Vec<_>>(),
    }))
}
