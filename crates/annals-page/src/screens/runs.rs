//! The threads that wait for a person, failed, sleep or run.

use annals::history::{Snapshot, ThreadInfo, ThreadStatus};
use annals::store::ThreadQuery;
use serde_json::{Value as Json, json};

use super::threads::{self, STATUSES};
use super::{Screen, Shown, resume};
use crate::address;
use crate::failure::Refusal;
use crate::html::Html;
use crate::layout::View;
use crate::limits::RUNS_MAX;
use crate::words::{ago, shortened, status_text, tally};

/// The sections, with what their threads have in common.
const SECTIONS: [(&str, &str); 4] = [
    ("interrupted", "waiting for a person"),
    ("failed", "failed"),
    ("sleeping", "asleep"),
    ("running", "with tasks that are due: a run is under way, or its process ended"),
];

pub(super) fn show(screen: &Screen<'_>) -> Result<Shown, Refusal> {
    let wanted = screen.query.get("status");
    if let Some(name) = wanted.filter(|name| !SECTIONS.iter().any(|(known, _)| known == name)) {
        return Err(Refusal::usage(format!("{name} is not one of interrupted, failed, sleeping and running")));
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
        query.status = STATUSES.into_iter().find(|known| *known == name);
        let mut infos = screen.store.threads_with(query)?;
        let more = infos.len() > RUNS_MAX;
        infos.truncate(RUNS_MAX);
        html.element("h2", &[], title);
        if infos.is_empty() {
            html.classed("p", "dim", "none");
        }
        for info in &infos {
            let head = threads::head(screen, info)?;
            documents.push(document(info, &head)?);
            if !screen.json {
                row(screen, &mut html, info, &head)?;
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

fn row(screen: &Screen<'_>, html: &mut Html, info: &ThreadInfo, head: &Snapshot) -> Result<(), Refusal> {
    let point = address::point(head);
    html.open("div", &[("class", "run"), ("data-row", "")]);
    html.within("p", &[("dir", "auto")], |html| {
        let title = info.title().unwrap_or(info.id().as_str());
        html.link(&point, &shortened(title, 80)).literal(" ");
        html.classed("span", "dim", &format!("since {}", ago(screen.store.now(), head.created_at())));
        html.literal(" ").link(&format!("{point}/step"), &format!("step {}", head.step()));
    });
    let class = if matches!(info.status(), ThreadStatus::Failed(_)) { "error" } else { "open" };
    html.element("p", &[("class", class), ("dir", "auto")], &status_text(info.status(), &tally(head.next())));
    let attempts = super::step::attempts(head)?;
    for (node, attempt) in &attempts {
        html.classed("p", "dim", &format!("{}: attempt {attempt}", shortened(node, 60)));
    }
    if matches!(info.status(), ThreadStatus::Interrupted(_)) {
        resume::form(screen, html, head)?;
    }
    html.classed("p", "dim", &screen.command(&["show", &address::point_text(head), "--writes"]));
    html.close("div");
    Ok(())
}

fn document(info: &ThreadInfo, head: &Snapshot) -> Result<Json, Refusal> {
    let interrupts = head.interrupts()?;
    let (error, wake_at) = match info.status() {
        ThreadStatus::Failed(error) => (Some(error.clone()), None),
        ThreadStatus::Sleeping(until) => (None, Some(until.to_string())),
        _ => (None, None),
    };
    Ok(json!({
        "thread": info.id().as_str(),
        "checkpoint": head.id().to_string(),
        "step": head.step(),
        "since": head.created_at().to_string(),
        "status": info.status().as_str(),
        "error": error,
        "wake_at": wake_at,
        "next": head.next().collect::<Vec<_>>(),
        "questions": interrupts.iter().map(|(task, value)| json!({ "task": task.to_string(), "value": value.to_json() })).collect::<Vec<_>>(),
    }))
}
