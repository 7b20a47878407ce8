//! Tests the spans and events of `tracing`: ids and counts of runs and commits, and never a value.

use std::fmt::{self, Write as _};
use std::sync::Mutex;
use std::time::Duration;

use annals_graph::graph::{Entrypoint, RetryPolicy};
use annals_graph::prelude::*;
use annals_graph::task::Task;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The spans and events of `annals`, in their order: one text each, with its level and fields.
static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The thread of the test. Other tests of this program run meanwhile.
const THREAD: &str = "traced-order";
const SECRET: &str = "a value that no trace shows";

/// A subscriber that notes everything. The id of a span is its place among the texts, plus one.
struct Notes;

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Notes {
    fn add(what: &Metadata<'_>, parent: Option<&Id>, record: impl FnOnce(&mut Fields<'_>)) -> u64 {
        let mut text = format!("{} {}", what.level(), if what.is_span() { what.name() } else { "event" });
        let mut seen = SEEN.lock().unwrap();
        if let Some(parent) = parent {
            write!(text, " in {}", seen[parent.into_u64() as usize - 1]).unwrap();
        }
        record(&mut Fields(&mut text));
        seen.push(text);
        seen.len() as u64
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "annals"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        Id::from_u64(Self::add(span.metadata(), None, |fields| span.record(fields)))
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(&mut Fields(&mut SEEN.lock().unwrap()[span.into_u64() as usize - 1]));
    }

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        Self::add(event.metadata(), event.parent(), |fields| event.record(fields));
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

#[test]
fn spans_name_runs_and_commits_and_show_no_value() {
    tracing::subscriber::set_global_default(Notes).unwrap();
    let charge = Task::new("charge", |secret: String, ctx: &Context| match ctx.attempt() {
        1 => Err(format!("not {secret}").into()),
        _ => Ok(secret),
    })
    .retry(RetryPolicy::new().initial_interval(Duration::from_millis(1)).jitter(false));
    let order = Entrypoint::new("order", move |secret: String, ctx: &Context| {
        let receipt = charge.call(ctx, secret)?;
        ctx.interrupt(SECRET)?;
        Ok(receipt)
    });
    let (order, thread) = (order.compile().unwrap(), Store::memory().thread(THREAD).unwrap());
    order.invoke(&thread, SECRET.to_owned()).unwrap();
    let done = order.invoke(&thread, Command::resume(SECRET)).unwrap();
    assert_eq!(done.value().map(String::as_str), Some(SECRET));

    let seen = SEEN.lock().unwrap().clone();
    assert_eq!(seen.iter().find(|text| text.contains(SECRET)), None);
    let of_thread = |text: &&String| text.contains(THREAD);
    let lines: Vec<&String> = seen.iter().filter(of_thread).collect();
    let named = |name: &str| lines.iter().filter(|text| text.starts_with(name)).count();
    // An interrupted run and one that is done, with the events of each inside its span.
    let outcomes = |outcome: &str| {
        let is_so = |text: &&&String| text.starts_with("INFO run") && text.ends_with(outcome);
        lines.iter().filter(is_so).count()
    };
    assert_eq!(
        (named("INFO run"), outcomes("outcome=\"waiting\""), outcomes("outcome=\"done\"")),
        (2, 1, 1),
        "{lines:#?}"
    );
    let events: Vec<&str> = lines
        .iter()
        .filter(|text| text.starts_with("INFO event in INFO run"))
        .filter_map(|text| text.rsplit_once("event=\"")?.1.split_once('"').map(|(name, _)| name))
        .collect();
    assert_eq!(events, ["started", "attempt_failed", "waiting", "resumed", "done"]);
    let failed = lines.iter().find(|text| text.contains("attempt_failed")).unwrap();
    assert!(failed.contains("node=charge") && failed.contains("attempt=1"), "{failed}");
    // The first run found no thread.
    assert!(named("DEBUG load") == 1 && named("DEBUG commit") >= 2, "{lines:#?}");
}
