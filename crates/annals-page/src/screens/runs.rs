//! The threads that wait for a person, failed, sleep or run: each with its lease, its attempts, its pause and its
//! controls.

use annals::base::Timestamp;
use annals::history::{Snapshot, ThreadInfo};
use annals::store::ThreadQuery;
use annals::store::lease::LeaseRecord;
use annals_runs::{OpenInterrupt, SnapshotRuns, StepInfo, StepState, ThreadStatus};
use serde_json::{Value as Json, json};

use super::threads;
use super::{Screen, Shown, control, resume};
use crate::address;
use crate::failure::Refusal;
use crate::html::Html;
use crate::layout::View;
use crate::limits::{RUNS_MAX, TASKS_MAX};
use crate::words::{ago, count, shortened, status_text, tally, until};

/// The sections, with what their threads have in common.
const SECTIONS: [(&str, &str); 5] = [
    ("interrupted", "waiting for a person"),
    ("stuck", "stuck: no worker continues them"),
    ("failed", "failed"),
    ("sleeping", "asleep"),
    ("running", "running, or due for a worker"),
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
    if let Some(name) = wanted.filter(|name| !SECTIONS.iter().any(|(known, _)| known == name)) {
        return Err(Refusal::usage(format!("{name} is not one of interrupted, stuck, failed, sleeping and running")));
    }
    let mut html = Html::new();
    html.element("h1", &[], "Runs");
    html.within("nav", &[("class", "tabs"), ("aria-label", "Status")], |html| {
        html.link("/runs", "all");
        for (name, _) in SECTIONS {
            let mut attributes = vec![("href", format!("/runs?status={name}"))];
            attributes.extend((wanted == Some(name)).then(|| ("aria-current", "page".to_owned())));
            let attributes: Vec<(&'static str, &str)> =
                attributes.iter().map(|(of, value)| (*of, value.as_str())).collect();
            html.literal(" ").element("a", &attributes, name);
        }
    });
    let mut documents: Vec<Json> = Vec::new();
    for (name, title) in SECTIONS.into_iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted == *name)) {
        let mut query = ThreadQuery::new().limit(RUNS_MAX + 1);
        query.status = annals_runs::status_named(name);
        let mut infos = screen.store.threads_with(query)?;
        let more = infos.len() > RUNS_MAX;
        infos.truncate(RUNS_MAX);
        html.element("h2", &[], title);
        if infos.is_empty() {
            html.classed("p", "dim", "none");
        }
        for info in infos {
            let run = OpenRun::read(screen, info)?;
            if screen.json {
                documents.push(document(screen, &run)?);
            } else {
                row(screen, &mut html, &run);
            }
        }
        if more {
            html.within("p", &[], |html| _ = html.link(&format!("/?status={name}"), "all of them, among the threads"));
        }
    }
    if screen.json {
        return Ok(Shown::Json(json!({ "schema": 1, "runs": documents })));
    }
    Ok(View::new("runs", html).live("").into())
}

fn row(screen: &Screen<'_>, html: &mut Html, run: &OpenRun) {
    let OpenRun { info, head, .. } = run;
    let (point, now) = (address::point(head), screen.store.now());
    html.open("div", &[("class", "run"), ("data-row", "")]);
    html.within("p", &[], |html| {
        let title = info.title().unwrap_or(info.id().as_str());
        html.link(&point, &shortened(title, 80)).literal(" ");
        html.classed("span", "dim", &format!("since {}", ago(now, head.created_at())));
        html.literal(" ").link(&format!("{point}/step"), &format!("step {}", head.step()));
        if info.facts().is_paused {
            html.literal(" ").classed("span", "tag", "paused");
        }
    });
    let class = if matches!(ThreadStatus::of(info), ThreadStatus::Failed(_) | ThreadStatus::Stuck(_)) {
        "error"
    } else {
        "open"
    };
    html.classed("p", class, &status_text(&ThreadStatus::of(info), &tally(head.next())));
    lease(html, run, now);
    tasks(html, run, now);
    resume::forms(screen, html, head, &run.open);
    control::form(screen, html, info);
    // Without leave to write the commands are the only way.
    let open = if screen.page.allows_write() { &[("class", "dim")][..] } else { &[("class", "dim"), ("open", "")] };
    html.open("details", open).element("summary", &[], "commands");
    for command in commands(screen, run) {
        html.element("pre", &[("class", "command")], &command);
    }
    html.close("details").close("div");
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
            html.element("p", &[], &format!("lease of {owner}, {end}"));
        }
        _ if ThreadStatus::of(&run.info) == ThreadStatus::Running => {
            html.classed("p", "dim", "no lease: due for a worker, or for a run without a lease");
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
        html.classed("p", "dim", &text);
    }
    if tasks.len() > TASKS_MAX {
        html.classed("p", "dim", &format!("{} more", count((tasks.len() - TASKS_MAX) as u64, "task")));
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
        "paused": info.facts().is_paused,
        "recoveries": run.recoveries(),
        "lease": lease,
        "tasks": run.tasks.iter().map(task).collect::<Vec<_>>(),
        "next": head.next().collect::<Vec<_>>(),
        "questions": interrupts.iter().map(|(task, value)| json!({ "task": task.to_string(), "value": value.to_json() })).collect::<Vec<_>>(),
        "commands": commands(screen, run),
        "interrupts": run.open.iter().map(open).collect::<Vec<_>>(),
    }))
}
