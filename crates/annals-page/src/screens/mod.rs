//! The screens: each reads its content, and returns it as HTML or as JSON.

mod compare;
mod control;
mod document;
mod evolution;
mod facets;
mod finished;
mod fork;
mod graph;
mod heading;
mod health;
mod inputs;
mod message;
mod pane;
mod resume;
mod runs;
mod search;
mod state;
mod stats;
mod step;
mod talk;
mod thread;
mod threads;
mod timeline;
mod tree;

pub use document::write_document;
pub(crate) use document::{DocumentFrame, document_head, write_framed};
pub(crate) use threads::{RowLink, ThreadEntry, columns};

use annals::history::{Snapshot, Thread};
use annals::store::{StatusKind, Store, StoreError, ThreadQuery};
use serde_json::Value as Json;

use crate::failure::Refusal;
use crate::layout::View;
use crate::page::Page;
use crate::request::Fields;

/// A request for a screen.
pub(crate) struct Screen<'p> {
    pub(crate) page: &'p Page,
    pub(crate) store: &'p Store,
    /// The decoded segments of the path.
    pub(crate) path: Vec<String>,
    pub(crate) query: Fields,
    /// The fields of a form, of a request that writes.
    pub(crate) form: Option<Fields>,
    pub(crate) json: bool,
}

/// The content of a response.
pub(crate) enum Shown {
    Html(Box<View>),
    Json(Json),
    /// A value as it is.
    Text(String),
    /// The address of the screen that shows the result of a write.
    To(String),
}

/// Threads of one status that the head of a document counts.
const COUNTED: usize = 9;

/// Returns the screen of a request.
pub(crate) fn show(screen: &Screen<'_>) -> Result<Shown, Refusal> {
    let path: Vec<&str> = screen.path.iter().map(String::as_str).collect();
    let is_write = screen.form.is_some();
    let position = screen.store.position(0)?;
    let shown = match path[..] {
        ["t", point, "fork"] => fork::show(screen, &screen.point(point)?),
        ["t", point, "control"] if is_write => control::write(screen, &screen.point(point)?),
        ["t", point, "resume"] if is_write => resume::write(screen, &screen.point(point)?),
        _ if is_write => Err(Refusal::new(405, "method", "this address does not write")),
        [] | ["threads"] => threads::show(screen),
        ["t", point] => thread::show(screen, &screen.point(point)?),
        ["t", point, "graph"] => graph::show(screen, &screen.point(point)?),
        ["t", point, "talk"] => talk::show(screen, &screen.point(point)?),
        ["t", point, "state", ref path @ ..] => state::show(screen, &screen.point(point)?, path),
        ["t", point, "step"] => step::show(screen, &screen.point(point)?, None),
        ["t", point, "step", number] => step::show(screen, &screen.point(point)?, Some(number)),
        ["diff"] => compare::choose(screen),
        ["diff", range] => compare::show(screen, range),
        ["search"] => search::show(screen),
        ["runs"] => runs::show(screen),
        ["stats"] => stats::show(screen),
        ["health"] => health::show(screen),
        _ => Err(Refusal::not_found("no screen has this address")),
    }?;
    Ok(match shown {
        Shown::Html(view) => Shown::Html(Box::new(screen.framed(View { position, ..*view })?)),
        shown => shown,
    })
}

impl Screen<'_> {
    /// Returns the checkpoint that a text names.
    pub(crate) fn point(&self, text: &str) -> Result<Snapshot, Refusal> {
        Ok(self.store.point(text)?)
    }

    /// Returns the thread of a checkpoint, in its namespace.
    pub(crate) fn thread(&self, at: &Snapshot) -> Result<Thread, StoreError> {
        Ok(self.store.thread(at.point().thread.as_str())?.with_namespace(at.point().namespace.clone()))
    }

    /// Returns a command with the effect of a link or a form.
    pub(crate) fn command(&self, arguments: &[&str]) -> String {
        let words = arguments.iter().map(|argument| annals_view::words::shell(argument)).collect::<Vec<_>>().join(" ");
        format!("annals {words} --store {}", annals_view::words::shell(self.page.name()))
    }

    /// Adds what every document shows.
    fn framed(&self, mut view: View) -> Result<View, Refusal> {
        for (count, status) in view.counts.iter_mut().zip([StatusKind::Interrupted, StatusKind::Failed]) {
            let query = ThreadQuery::new().status(status).limit(COUNTED + 1);
            let found = self.store.threads_with(query)?.len();
            *count = if found > COUNTED { format!("{COUNTED}+") } else { found.to_string() };
        }
        view.section = match self.path.first().map(String::as_str) {
            Some("runs") => "runs",
            Some("stats") => "stats",
            Some("health") => "health",
            _ => "threads",
        };
        if view.twin.is_none() {
            let path: Vec<String> = self.path.iter().map(|segment| crate::address::encode(segment)).collect();
            let query: Vec<String> = self.query.pairs().collect();
            let query = if query.is_empty() { String::new() } else { format!("?{}", query.join("&")) };
            view.twin = Some(format!("/{}.json{query}", path.join("/")));
        }
        Ok(view)
    }
}

impl From<View> for Shown {
    fn from(view: View) -> Self {
        Self::Html(Box::new(view))
    }
}
