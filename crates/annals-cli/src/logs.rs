//! `annals logs`: the stored output of the commands of a workflow, oldest first, also of those that run.
//!
//! JSON: `{"schema": 1, "thread", "logs": [{"node", "item", "step", "task", "state", "started_at", "seconds",
//! "attempt", "exit", "stdout", "stdout_dropped", "stderr", "stderr_dropped"}], "more"}`. The end of each output is
//! stored; bytes before it are counted as dropped. A node of a workflow in another one has the names around it:
//! `outer/inner`.

use std::collections::HashMap;
use std::time::Duration;

use annals::base::{Namespace, TaskId};
use annals::history::Thread;
use annals::store::Store;
use annals_flow::CommandLog;
use annals_runs::{StepInfo, ThreadRuns, ThreadStatus};
use serde_json::{Value as Json, json};

use crate::args;
use crate::errors::CommandFailure;
use crate::output::{self, Printer, cut, escape, safe_lines};
use crate::point::thread;
use crate::steps::seconds;

/// Checkpoints in a row without a task after which a namespace is left.
const GAP_MAX: usize = 1_000;
/// Namespaces of subgraphs that are read, unless all logs are asked for.
const NAMESPACES_MAX: usize = 1_000;
/// The pause between two reads of a thread that runs.
const WAIT: Duration = Duration::from_secs(1);
/// The cells of an item in the line of its log.
const ITEM_CELLS: usize = 60;

/// The output of a step.
struct StepLog {
    node: String,
    step: StepInfo,
    log: CommandLog,
}

pub(crate) fn run(args: &args::LogsArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let thread = thread(store, &args.thread)?;
    if args.follow && out.is_json() {
        return Err(CommandFailure::usage("--follow prints text").hint("leave out --json, or --follow"));
    }
    let (found, more) = read(&thread, args)?;
    if out.is_json() {
        let logs: Vec<Json> = found.iter().map(StepLog::document).collect();
        out.json(&json!({ "schema": 1, "thread": thread.id().as_str(), "logs": logs, "more": more }))?;
        return Ok(u8::from(found.is_empty()));
    }
    if more {
        out.line(out.dim("(older ones: -n 0 shows all)"))?;
    }
    let mut shown = ShownLogs::default();
    let is_empty = found.is_empty();
    found.iter().try_for_each(|log| shown.print(log, out))?;
    out.flush()?;
    if !args.follow {
        if is_empty {
            output::note(match &args.node {
                Some(node) => format!("no command of node {} has printed anything", escape(node)),
                None => "no command of the thread has printed anything".to_owned(),
            });
        }
        return Ok(u8::from(is_empty));
    }
    let mut watch = thread.watch()?;
    let mut is_last = false;
    while !is_last && !out.reader_is_gone() {
        // The state is taken before the outputs: those of a run that ends meanwhile are printed.
        is_last = !is_under_way(&thread)?;
        if !is_last {
            // A commit without a checkpoint, as that of an output, is seen at the end of the wait.
            watch.next(WAIT)?;
        }
        read(&thread, args)?.0.iter().try_for_each(|log| shown.print(log, out))?;
        out.flush()?;
    }
    Ok(0)
}

/// Returns whether a run of the thread may go on.
fn is_under_way(thread: &Thread) -> Result<bool, CommandFailure> {
    Ok(match thread.head()? {
        Some(_) => matches!(
            ThreadStatus::of(&thread.info()?),
            ThreadStatus::Running | ThreadStatus::Interrupted(_) | ThreadStatus::Sleeping(_)
        ),
        None => false,
    })
}

/// Returns the newest logs, the oldest first, and whether there are older ones.
fn read(thread: &Thread, args: &args::LogsArgs) -> Result<(Vec<StepLog>, bool), CommandFailure> {
    let most = args.most();
    let mut namespaces = thread.namespaces()?;
    namespaces.retain(|namespace| args.node.as_deref().is_none_or(|node| leads_to(namespace, node)));
    let mut more = most != usize::MAX && namespaces.len() > NAMESPACES_MAX;
    if more {
        namespaces.truncate(NAMESPACES_MAX);
    }
    let mut found = Vec::new();
    for namespace in namespaces {
        let around = path_of(&namespace);
        let mut steps = thread.with_namespace(namespace).steps()?;
        if most != usize::MAX {
            steps = steps.gap_max(GAP_MAX);
        }
        let mut of_namespace = 0;
        for step in steps {
            let step = step?;
            let node = format!("{around}{}", step.name);
            if args.node.as_ref().is_some_and(|asked| *asked != node) {
                continue;
            }
            let Some(log) = CommandLog::of(&step) else { continue };
            if of_namespace == most {
                more = true;
                break;
            }
            of_namespace += 1;
            found.push(StepLog { node, step, log });
        }
    }
    found.sort_by(|a, b| {
        (a.step.started_at, a.step.superstep, a.step.task).cmp(&(b.step.started_at, b.step.superstep, b.step.task))
    });
    let surplus = found.len().saturating_sub(most);
    Ok((found.split_off(surplus), more || surplus > 0))
}

/// Returns the nodes around the tasks of a namespace, as `outer/`. A task that is called for an item has the name of
/// its caller, which counts once.
fn path_of(namespace: &Namespace) -> String {
    let mut path: Vec<&str> = Vec::new();
    for node in namespace.segments().filter_map(|segment| Some(segment.split_once(':')?.0)) {
        if path.last() != Some(&node) {
            path.push(node);
        }
    }
    path.into_iter().flat_map(|node| [node, "/"]).collect()
}

/// Returns whether a namespace can have the tasks of a node.
fn leads_to(namespace: &Namespace, node: &str) -> bool {
    let around = node.rfind('/').map_or("", |at| &node[..=at]);
    path_of(namespace) == around
}

impl StepLog {
    fn document(&self) -> Json {
        let Self { node, step, log } = self;
        json!({
            "node": node,
            "item": log.item,
            "step": step.superstep,
            "task": step.task.to_string(),
            "state": step.state.as_str(),
            "started_at": step.started_at.to_string(),
            "seconds": seconds(step),
            "attempt": log.attempt,
            "exit": log.exit,
            "stdout": log.stdout,
            "stdout_dropped": log.stdout_dropped,
            "stderr": log.stderr,
            "stderr_dropped": log.stderr_dropped,
        })
    }

    fn title(&self) -> String {
        let Self { node, step, log } = self;
        let item = log.item.as_ref().map(|item| format!("  {}", cut(&escape(item), ITEM_CELLS)));
        let attempt = (log.attempt > 1).then(|| format!("  attempt {}", log.attempt));
        let took = seconds(step).map(|seconds| format!("  {seconds:.3} s"));
        let exit = log.exit.map(|exit| format!("  exit {exit}"));
        let more: String = [item, attempt, took, exit].into_iter().flatten().collect();
        format!("== {}  step {}  {}{more}", escape(node), step.superstep, step.state)
    }
}

/// The parts of logs that were printed.
#[derive(Default)]
struct ShownLogs {
    /// The bytes of stdout and stderr of an attempt of a task.
    printed: HashMap<(TaskId, u32), [u64; 2]>,
    last: Option<(TaskId, u32)>,
}

impl ShownLogs {
    /// Prints what is new of a log, under its title.
    fn print(&mut self, of: &StepLog, out: &mut Printer) -> Result<(), CommandFailure> {
        let key = (of.step.task, of.log.attempt);
        let before = self.printed.get(&key).copied().unwrap_or_default();
        let parts = [(&of.log.stdout, of.log.stdout_dropped, ""), (&of.log.stderr, of.log.stderr_dropped, "! ")];
        let ends = [0, 1].map(|at| parts[at].1.saturating_add(parts[at].0.len() as u64));
        if ends == before {
            return Ok(());
        }
        if self.last != Some(key) {
            out.line(out.bold(&of.title()))?;
        }
        (self.last, _) = (Some(key), self.printed.insert(key, ends));
        for (at, (text, dropped, mark)) in parts.into_iter().enumerate() {
            let missed = dropped.saturating_sub(before[at]);
            if missed > 0 {
                out.line(out.dim(&format!("{mark}({missed} bytes are not stored)")))?;
            }
            // Redacted anew, an output may have become shorter.
            let from = usize::try_from(before[at].saturating_sub(dropped)).unwrap_or(usize::MAX).min(text.len());
            let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
            for line in safe_lines(&without_colours(&text[from..])) {
                out.line(format!("{mark}{line}"))?;
            }
        }
        Ok(())
    }
}

/// Returns a text without the sequences by which programs set colours.
fn without_colours(text: &str) -> String {
    let (mut plain, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find("\u{1b}[") {
        plain.push_str(&rest[..at]);
        let sequence = &rest[at + 2..];
        let Some(end) = sequence.find(|c: char| !matches!(c, '0'..='9' | ';')) else { return plain };
        rest = match &sequence[end..] {
            after if after.starts_with(['m', 'K']) => &after[1..],
            // Another sequence is shown, escaped.
            _ => {
                plain.push('\u{1b}');
                &rest[at + 1..]
            }
        };
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_left_out_and_other_sequences_stay() {
        assert_eq!(without_colours("\u{1b}[1;31mred\u{1b}[0m \u{1b}[2J\u{1b}[3"), "red \u{1b}[2J");
        assert_eq!(without_colours("plain"), "plain");
    }
}
