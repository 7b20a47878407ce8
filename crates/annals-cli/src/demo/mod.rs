//! `annals demo`: a durable research workflow over the text files of a folder, killed, resumed and forked at will.
//!
//! Runs the graph to its interrupt, resumes it with the user's approval, and finishes; then shows the log, goes back to
//! before the draft, changes a setting there, runs that branch to its own end, and compares the two ends. After a crash
//! at any point the same command continues.
//!
//! JSON, at the end: `{"schema": 1, "store", "thread", "folder", "status": "approved" | "rejected" | "waiting",
//! "question", "report", "ran_now": {node: n}, "remembered": {node: n}, "end", "what_if_end"}`. With `--drawing`:
//! `{"schema": 1, "nodes": [{"id", ..}], "edges": [{"source", "target", "data"?, "conditional"?}]}`.

mod files;
mod graph;
mod kill;
mod links;
mod plan;
mod report;
mod run;
mod text;

use std::io::{self, BufRead, IsTerminal, Write};

use annals::history::Snapshot;
use annals::store::Source;
use annals_graph::IntoInput;
use annals_graph::prelude::*;
use serde_json::json;

use crate::args;
use crate::errors::CommandFailure;
use crate::key::NamedStore;
use crate::output::{Printer, count, cut, escape, safe_lines, size};
use crate::words::interrupt;
use crate::{diff, drawing, log, point};

use graph::{Research, TOP_TERMS, graph, is_yes};
use plan::{Plan, command};
use run::{DemoRunner, Tally, now};

/// The setting of the second branch.
const WHAT_IF_TERMS: u32 = 3;
/// The number of lines of the report that are shown.
const REPORT_LINES: usize = 18;

pub(crate) fn run(args: &args::DemoArgs, store: NamedStore<'_>, out: &mut Printer) -> Result<u8, CommandFailure> {
    if args.drawing {
        return draw(out);
    }
    if store.path.is_some() {
        _ = point::file(store, "annals demo runs in", "name a file with --store, or none")?;
    }
    let (plan, started) = (Plan::of(args, store)?, now());
    let closing = work(args, store, &plan, out)?;
    // The store is closed here, so the size of the file is final.
    if let Some(closing) = closing {
        let bytes = plan.path.metadata().map_or(0, |meta| meta.len());
        heading(out, "Done")?;
        say(out, || format!("  {closing}; the file has {}, {} ms", size(bytes), started.elapsed().as_millis()))?;
        look_around(&plan, out)?;
    }
    Ok(0)
}

/// Prints the graph of the workflow; no store is opened.
fn draw(out: &mut Printer) -> Result<u8, CommandFailure> {
    let drawing = graph()?.get_graph(0);
    if out.is_json() {
        let mut document = json!({ "schema": 1 });
        for member in ["nodes", "edges"] {
            document[member] = drawing.to_json()[member].take();
        }
        out.json(&document)?;
        return Ok(0);
    }
    for line in drawing::text(&drawing).lines() {
        out.line(escape(line))?;
    }
    Ok(0)
}

/// Runs the demo and returns its summary; `None` if the run waits for a resume value.
fn work(
    args: &args::DemoArgs,
    store: NamedStore<'_>,
    plan: &Plan,
    out: &mut Printer,
) -> Result<Option<String>, CommandFailure> {
    let (graph, store) = (graph()?, plan.open(args, store)?);
    let thread = store.thread(&plan.thread)?;
    let mut demo = Demo { args, plan, runner: DemoRunner { graph: &graph, thread: &thread }, tally: Tally::default() };
    demo.intro(out)?;
    let end = demo.main(out)?;
    if let Some(end) = &end {
        demo.look_back(end, out)?;
        let head = demo.what_if(end, out)?;
        demo.compare(end, &head, out)?;
    }
    if out.is_json() {
        demo.document(end.as_ref(), out)?;
        return Ok(None);
    }
    let checkpoints = count(thread.history()?.count(), "checkpoint");
    Ok(end.map(|_| format!("ran now: {}; {checkpoints}", demo.tally.words(false))))
}

/// The run and the count of its nodes so far.
struct Demo<'a> {
    args: &'a args::DemoArgs,
    plan: &'a Plan,
    runner: DemoRunner<'a>,
    tally: Tally,
}

/// The history of the demo: the straight run from the beginning, and the branch that was opened in it.
struct Lanes {
    /// The end of the first branch.
    end: Snapshot,
    /// The checkpoint of the first branch after which the draft was due.
    before_draft: Option<Snapshot>,
    /// The end of the other branch.
    other: Option<Snapshot>,
    /// The nodes that ran, on the first branch.
    ran: Vec<String>,
}

impl Demo<'_> {
    fn lanes(&self) -> Result<Option<Lanes>, CommandFailure> {
        let all: Vec<Snapshot> = self.runner.thread.history()?.collect::<Result<_, _>>()?;
        let Some(first) = all.last().map(|first| first.record().branch) else { return Ok(None) };
        let is_first = |at: &&Snapshot| at.record().branch == first;
        let mut ran = Vec::new();
        for at in all.iter().rev().filter(is_first) {
            ran.extend(crate::words::ran(at, at.parent()?.as_ref()).into_iter().map(str::to_owned));
        }
        let before_draft =
            all.iter().filter(is_first).find(|at| at.source() == Source::Loop && at.next().eq(["draft"]));
        let lanes = all.iter().find(is_first).map(|end| Lanes {
            end: end.clone(),
            before_draft: before_draft.cloned(),
            other: all.iter().find(|at| !is_first(at)).cloned(),
            ran: ran.into_iter().filter(|node| node != START).collect(),
        });
        Ok(lanes)
    }

    fn intro(&self, out: &mut Printer) -> Result<(), CommandFailure> {
        let plan = self.plan;
        say(out, || format!("research in {}", escape(&plan.folder)))?;
        let found = if plan.resumes { "" } else { " (new)" };
        say(out, || format!("  store   {}{found}", escape(&plan.path.to_string_lossy())))?;
        say(out, || format!("  thread  {}", escape(&plan.thread)))
    }

    /// Runs the first branch to its end and returns it; `None` if the run waits for a resume value.
    fn main(&mut self, out: &mut Printer) -> Result<Option<Snapshot>, CommandFailure> {
        let before = self.lanes()?;
        for node in before.iter().flat_map(|lanes| &lanes.ran) {
            self.tally.remembered(node, 1);
        }
        if let Some(lanes) = before.as_ref().filter(|lanes| lanes.end.next().next().is_none()) {
            heading(out, "Already finished: no node runs again")?;
            say(out, || format!("  remembered: {}", self.tally.words(true)))?;
            self.report(out)?;
            return Ok(Some(lanes.end.clone()));
        }
        heading(out, "Run: list -> read, once for each file -> analyse -> draft -> approve -> finish")?;
        if self.tally.any_remembered() {
            say(out, || format!("  remembered: {}", self.tally.words(true)))?;
        }
        let open = before.as_ref().map(|lanes| lanes.end.interrupts()).transpose()?;
        let done = match &before {
            Some(_) if open.is_some_and(|interrupts| !interrupts.is_empty()) => false,
            Some(_) => self.runner.drive(Input::Continue, &mut self.tally, out)?.is_done(),
            None => {
                let first = Research::update().folder(self.plan.folder.as_str()).top_terms(TOP_TERMS);
                self.runner.drive(IntoInput::<Research, _>::into_input(first), &mut self.tally, out)?.is_done()
            }
        };
        self.report(out)?;
        if !done {
            let Some(yes) = self.ask(out)? else { return Ok(None) };
            self.runner.drive(resume(yes), &mut self.tally, out)?;
        }
        let lanes = self.lanes()?.ok_or_else(|| CommandFailure::new(70, "internal", "the run left no history"))?;
        Ok(Some(lanes.end))
    }

    /// Asks the user for approval, or takes `--yes`. `None` without a terminal.
    fn ask(&self, out: &mut Printer) -> Result<Option<bool>, CommandFailure> {
        let head = self.runner.thread.head()?;
        let interrupts = head.map(|head| head.interrupts()).transpose()?.unwrap_or_default();
        let text = interrupts.first().map(|(_, value)| interrupt(value)).unwrap_or_default();
        heading(out, "Approve")?;
        say(out, || format!("  {}", cut(&text, 200)))?;
        if self.args.yes {
            say(out, || "  yes (--yes)".into())?;
            return Ok(Some(true));
        }
        let stdin = io::stdin();
        if out.is_json() || !stdin.is_terminal() {
            let path = self.plan.path.to_string_lossy();
            say(out, || "  The run waits on the disk for its resume value. To approve:".into())?;
            say(out, || format!("  {}", command(&["demo", "--store", &path, "--yes"])))?;
            return Ok(None);
        }
        out.flush()?;
        let mut err = io::stderr();
        _ = write!(err, "  yes or no? ").and_then(|()| err.flush());
        let mut line = String::new();
        let read = stdin.lock().read_line(&mut line)?;
        Ok((read > 0).then(|| is_yes(&line)))
    }

    fn report(&self, out: &mut Printer) -> Result<(), CommandFailure> {
        if out.is_json() {
            return Ok(());
        }
        let Some(lanes) = self.lanes()? else { return Ok(()) };
        let value = lanes.end.get("report")?;
        let text = value.as_ref().and_then(Value::as_str).unwrap_or_default();
        heading(out, "The report")?;
        for line in safe_lines(text).take(REPORT_LINES) {
            out.line(format!("  | {}", cut(&line, 96)))?;
        }
        let more = text.lines().count().saturating_sub(REPORT_LINES);
        if more > 0 {
            let path = self.plan.path.to_string_lossy();
            let show = command(&["show", &self.plan.thread, "report", "--store", &path]);
            out.line(format!("  | ... {more} more lines: {show}"))?;
        }
        Ok(())
    }

    /// Shows the log of the first branch, if it is all there is yet.
    fn look_back(&self, end: &Snapshot, out: &mut Printer) -> Result<(), CommandFailure> {
        let is_head = self.runner.thread.head()?.as_ref() == Some(end);
        if out.is_json() || !is_head {
            return Ok(());
        }
        heading(out, &format!("The log (annals log {})", escape(&self.plan.thread)))?;
        log::print(self.runner.thread, 0, false, out)
    }

    /// Opens a branch before the draft with another setting, runs it to its own end, and returns that.
    fn what_if(&mut self, end: &Snapshot, out: &mut Printer) -> Result<Snapshot, CommandFailure> {
        let gone = || CommandFailure::new(70, "internal", "the checkpoint before the draft is not in the history");
        let lanes = self.lanes()?.ok_or_else(gone)?;
        let before = lanes.before_draft.ok_or_else(gone)?;
        heading(out, &format!("What if the report named {WHAT_IF_TERMS} terms of each file, not {TOP_TERMS}?"))?;
        let at = before.short_id()?;
        say(out, || format!("  a branch from {at}, where draft was due, with top_terms set to {WHAT_IF_TERMS}"))?;
        let mut tally = Tally::default();
        let mut head = match lanes.other {
            Some(other) => other,
            None => {
                let edit = Research::update().top_terms(WHAT_IF_TERMS);
                self.runner.graph.update_state(&before, edit, Some("analyse"))?
            }
        };
        if head.next().next().is_none() {
            say(out, || "  it has run already".into())?;
            return Ok(head);
        }
        let mut done = false;
        if head.interrupts()?.is_empty() {
            done = self.runner.drive(Input::Continue, &mut tally, out)?.is_done();
        }
        if !done {
            // The approval of the first branch holds for this one.
            let yes = end.get("approved")?.and_then(|value| value.as_bool()).unwrap_or_default();
            self.runner.drive(resume(yes), &mut tally, out)?;
        }
        say(out, || format!("  ran now: {}; all before the branch was remembered", tally.words(false)))?;
        self.tally.add(&tally);
        head = self.runner.thread.head()?.ok_or_else(gone)?;
        Ok(head)
    }

    fn compare(&self, end: &Snapshot, head: &Snapshot, out: &mut Printer) -> Result<(), CommandFailure> {
        if out.is_json() {
            return Ok(());
        }
        heading(out, &format!("Both branches (annals log {} --oneline)", escape(&self.plan.thread)))?;
        log::print(self.runner.thread, 0, true, out)?;
        let thread = escape(&self.plan.thread).into_owned();
        heading(out, &format!("What differs (annals diff {thread}@{} {thread})", end.short_id()?))?;
        diff::compare(end, head, out)
    }

    fn document(&self, end: Option<&Snapshot>, out: &mut Printer) -> Result<(), CommandFailure> {
        let lanes = self.lanes()?;
        let at = end.or(lanes.as_ref().map(|lanes| &lanes.end));
        let text = |name: &str| -> Result<Option<String>, CommandFailure> {
            let value = at.map(|at| at.get(name)).transpose()?.flatten();
            Ok(value.and_then(|value| value.as_str().map(str::to_owned)))
        };
        let interrupts = at.map(Snapshot::interrupts).transpose()?.unwrap_or_default();
        let mut document = json!({
            "schema": 1,
            "store": self.plan.path.to_string_lossy(),
            "thread": self.plan.thread,
            "folder": self.plan.folder,
            "status": text("status")?.filter(|status| !status.is_empty()).unwrap_or_else(|| "waiting".into()),
            "question": interrupts.first().map(|(_, value)| value.to_json()),
            "report": text("report")?,
        });
        if let serde_json::Value::Object(runs) = self.tally.json() {
            runs.into_iter().for_each(|(name, runs)| document[name] = runs);
        }
        document["end"] = json!(end.map(|end| end.id().to_string()));
        let other = lanes.and_then(|lanes| lanes.other);
        document["what_if_end"] = json!(other.map(|other| other.id().to_string()));
        out.json(&document)?;
        Ok(())
    }
}

/// Prints commands that show the history of the run.
fn look_around(plan: &Plan, out: &mut Printer) -> Result<(), CommandFailure> {
    let (store, thread) = (plan.path.to_string_lossy(), plan.thread.as_str());
    let before = format!("{thread}~2");
    say(out, || "  Commands that show the history:".into())?;
    for arguments in [&["log", thread][..], &["show", thread], &["diff", &before, thread], &["check"]] {
        say(out, || format!("    {}", command(&[arguments, &["--store", &store]].concat())))?;
    }
    Ok(())
}

fn resume(yes: bool) -> Input {
    Input::Command(Command::resume(if yes { "yes" } else { "no" }))
}

fn heading(out: &mut Printer, text: &str) -> Result<(), CommandFailure> {
    if out.is_json() {
        return Ok(());
    }
    out.line("")?;
    out.line(out.bold(text))?;
    out.flush()?;
    Ok(())
}

/// Prints a line, except with `--json`.
fn say(out: &mut Printer, line: impl FnOnce() -> String) -> Result<(), CommandFailure> {
    if out.is_json() {
        return Ok(());
    }
    out.line(line())?;
    out.flush()?;
    Ok(())
}
