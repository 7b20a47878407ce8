//! The head of every screen of a thread: its title, its facts, and the links between the screens of a point.

use annals::history::{Snapshot, Thread, ThreadInfo};
use annals_runs::{ThreadLinkKind, ThreadRuns as _, ThreadStatus};
use annals_view::ListedThread;
use annals_view::words::{ago, cost, count, rounded, shortened};

use super::tree::BranchTree;
use crate::address::{self, encode, point_text};
use crate::failure::Refusal;
use crate::html::Html;
use crate::icons::StatusShape;
use crate::limits::{FORKS_MAX, LABELS_MAX};

/// Returns the title of a thread, or its id.
pub(super) fn name(info: &ThreadInfo) -> String {
    shortened(info.title().unwrap_or(info.id().as_str()), 80)
}

/// Adds the title, the status and the facts.
pub(super) fn heading(
    html: &mut Html,
    thread: &Thread,
    info: &ThreadInfo,
    at: &Snapshot,
    tree: &BranchTree,
) -> Result<(), Refusal> {
    // Words lead, also those of a thread without a title. A damaged message does not end a screen.
    let words = match info.title() {
        Some(title) => Some(title.to_owned()),
        None => thread.at(info.head()).ok().and_then(|head| head.first_words().ok()).flatten(),
    };
    html.open("div", &[("class", "head")]);
    html.element("h1", &[("dir", "auto")], &shortened(words.as_deref().unwrap_or(info.id().as_str()), 120));
    aside(html, info);
    html.open("p", &[("class", "facts")]);
    html.within("span", &[("class", "id"), ("title", thread.id().as_str())], |html| {
        html.open("b", &[]).isolated(&shortened(thread.id().as_str(), 60)).close("b");
    });
    if let Some(project) = &info.facts.project {
        html.within("span", &[], |html| {
            _ = html.link(&format!("/?project={}", encode(project)), &shortened(project, 40))
        });
    }
    for fact in counts(info, tree) {
        html.element("span", &[], &fact);
    }
    if let Some(name) = tree.name(at.record().branch) {
        html.within("span", &[], |html| {
            html.text("branch ").classed("span", "label ref", &shortened(name, 40));
        });
    }
    if let Some(partial) = &info.partial {
        html.classed("span", "strong", &partial.to_string());
    }
    parents(html, thread, at)?;
    forks(html, thread)?;
    html.close("p").close("div");
    Ok(())
}

/// Adds the status with its shape, and the labels.
fn aside(html: &mut Html, info: &ThreadInfo) {
    let shape = StatusShape::of(&ThreadStatus::of(info), info.partial.is_some());
    html.open("aside", &[]);
    shape.add_to(html);
    html.classed("span", shape.class(), shape.word());
    if info.facts.is_paused {
        html.classed("span", "label", "paused");
    }
    for label in info.facts.labels.iter().take(LABELS_MAX) {
        html.classed("span", "label", &shortened(label, 40));
    }
    html.close("aside");
}

/// Returns the numbers of a thread. One that is zero is left out.
fn counts(info: &ThreadInfo, tree: &BranchTree) -> Vec<String> {
    let counts = info.counts.unwrap_or_default();
    let tokens = counts.input_tokens.saturating_add(counts.output_tokens);
    let branches = if tree.count == 1 { "1 branch".to_owned() } else { format!("{} branches", tree.count) };
    let facts = [
        (counts.messages > 0).then(|| count(counts.messages, "message")),
        (tokens > 0).then(|| format!("{} tokens", rounded(tokens))),
        (counts.cost_nano_usd > 0).then(|| cost(counts.cost_usd())),
        Some(count(tree.checkpoints, "checkpoint")),
        Some(branches),
    ];
    facts.into_iter().flatten().collect()
}

/// Adds links to the thread whose agent started this one, and to the step of the parent graph that ran a subgraph.
fn parents(html: &mut Html, thread: &Thread, at: &Snapshot) -> Result<(), Refusal> {
    if let Some((namespace, checkpoint)) = at.record().parents.last().filter(|_| !thread.namespace().is_root()) {
        let parent = thread.with_namespace(namespace.clone());
        // Its checkpoint may have been pruned.
        if let Ok(parent) = parent.at(*checkpoint) {
            html.open("span", &[]).text("subgraph of ");
            html.link(&address::point(&parent), &format!("step {}", parent.step())).close("span");
        }
    }
    let Some(link) = thread.parent_link()? else { return Ok(()) };
    let kind = match link.kind {
        ThreadLinkKind::Sub => "helper of ",
        // The log tells the point of a fork that continues it.
        _ if thread.forked_from()?.is_some() => return Ok(()),
        _ => "forked from ",
    };
    let info = thread.store().thread(&link.thread).and_then(|parent| parent.info());
    let listed = info.ok().map(|info| ListedThread::read(thread.store(), info, false)).transpose()?;
    let words = listed.as_ref().and_then(ListedThread::words).unwrap_or(&link.thread);
    html.open("span", &[]).text(kind).link(&address::thread(&link.thread), &shortened(words, 60)).close("span");
    Ok(())
}

/// Adds links to the point that a thread was forked from, and to the threads that were forked off it.
fn forks(html: &mut Html, thread: &Thread) -> Result<(), Refusal> {
    if let Some(from) = &thread.forked_from()? {
        let text = format!("{}@{}", address::thread_text(from.thread.as_str()), from.checkpoint);
        html.open("span", &[]).text("forked from ");
        html.link(&format!("/t/{}", encode(&text)), &shortened(from.thread.as_str(), 40)).close("span");
    }
    let forks = thread.forks()?;
    if forks.is_empty() {
        return Ok(());
    }
    html.open("span", &[]).text("forked: ");
    for (at, fork) in forks.iter().take(FORKS_MAX).enumerate() {
        html.text(if at > 0 { ", " } else { "" });
        html.link(&address::thread(fork.as_str()), &shortened(fork.as_str(), 40));
    }
    if forks.len() > FORKS_MAX {
        html.text(&format!(" and {} more", forks.len() - FORKS_MAX));
    }
    html.close("span");
    Ok(())
}

/// Adds the links between the screens of a point.
pub(super) fn tabs(html: &mut Html, at: &Snapshot, selected: &'static str) {
    let point = address::point(at);
    html.open("nav", &[("class", "tabs"), ("aria-label", "Views of this point")]);
    for (key, word, address, hint) in [
        ("steps", "Steps", point.clone(), ""),
        ("talk", "Talk", format!("{point}/talk"), "t"),
        ("state", "State", format!("{point}/state"), "s"),
        ("step", "Step", format!("{point}/step"), ""),
        ("graph", "Graph", format!("{point}/graph"), ""),
        ("diff", "Compare", format!("/diff/{}", encode(&point_text(at))), "d"),
        ("fork", "Fork", format!("{point}/fork"), "f"),
        ("stats", "Stats", format!("/stats?thread={}", encode(at.point().thread.as_str())), ""),
    ] {
        let mut attributes = vec![("href", address.as_str()), ("data-key", key)];
        attributes.extend((key == selected).then_some(("aria-current", "page")));
        html.open("a", &attributes).text(word);
        if !hint.is_empty() {
            html.open("kbd", &[("aria-hidden", "true")]).text(hint).close("kbd");
        }
        html.close("a").literal(" ");
    }
    let (id, whole) = (at.id().to_string(), at.created_at().to_string());
    html.open("span", &[("class", "end dim")]);
    html.within("span", &[("class", "id"), ("title", &id)], |html| super::pane::short_id(html, at));
    html.text(&format!(" step {} · ", at.step()));
    html.element("time", &[("datetime", &whole), ("title", &whole)], &ago(at.store().now(), at.created_at()));
    html.close("span").close("nav");
}
