//! The end of a task whose node has returned: its conditional edges, one after another.
//!
//! A path may be asynchronous: the driver then awaits it, and passes its result on. *Absent:* waiting.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::graph::{Branch, NodeOutput, NodeResult, Path, PathFuture, START, Target};
use crate::state::{BoxWrite, StateRef};

use super::error::RunError;
use super::task::{
    TaskJob, TaskOutcome, TaskWrite, WriteKind, encode_all, leave, node_error, node_output, outcome, panicked,
    push_target,
};

/// The progress of a task that is ending.
pub(crate) enum Closing {
    /// It has ended.
    Ended(TaskOutcome),
    /// A conditional edge has to be awaited.
    Path(Box<PathWait>),
}

/// A conditional edge that has to be awaited.
pub(crate) struct PathWait {
    /// The future of its targets.
    pub(crate) path: PathFuture,
    /// The task that takes the result.
    pub(crate) open: OpenPaths,
}

/// A task whose node has ended, while its conditional edges are evaluated.
pub(crate) struct OpenPaths {
    writes: Vec<TaskWrite>,
    /// The state as its paths see it.
    state: StateRef,
    /// The number of paths that have returned.
    returned: usize,
}

/// The targets or the error that a path returned, or its panic.
pub(crate) type PathResult = Result<NodeResult<Vec<Target>>, Box<dyn Any + Send>>;

impl TaskJob {
    /// Returns whether a path behind its node is asynchronous.
    pub(crate) fn awaits_paths(&self) -> bool {
        self.out().branches.iter().any(|branch| matches!(branch.path, Path::Async(_)))
    }
}

/// Ends a task whose node returned: its changes, commands, edges and conditional edges. User code may panic; the panic
/// fails the task. If a conditional edge fails, the writes before it are made.
pub(crate) fn close(job: &TaskJob, output: NodeResult<NodeOutput>) -> Closing {
    let mut writes = Vec::new();
    let left = node_output(&job.context, output).and_then(|output| {
        catch_unwind(AssertUnwindSafe(|| {
            leave(job, output, &mut writes)?;
            seen_by_paths(job, &writes)
        }))
        .unwrap_or_else(|panic| Err(panicked(&job.context, &*panic)))
    });
    match left {
        Ok(Some(state)) => OpenPaths { writes, state, returned: 0 }.evaluate(job),
        left => Closing::Ended(outcome(&job.context, left.map(|_| ()), writes)),
    }
}

/// Leaves a node with given changes, without running it (`update_state`). `wait` awaits a path.
pub(crate) fn run_as(
    job: &TaskJob,
    output: NodeOutput,
    wait: &dyn Fn(PathFuture) -> PathResult,
) -> Result<Vec<TaskWrite>, RunError> {
    let mut writes = Vec::new();
    leave(job, output, &mut writes)?;
    let Some(state) = seen_by_paths(job, &writes)? else { return Ok(writes) };
    for branch in &job.out().branches {
        let result = match &branch.path {
            Path::Blocking(path) => Ok(path(&state, &job.context)),
            Path::Async(start) => wait(start(Arc::clone(&state), job.context.clone())),
        };
        take(job, branch, result, &mut writes)?;
    }
    Ok(writes)
}

impl OpenPaths {
    /// Takes the result of the awaited path, and evaluates the paths after it.
    pub(crate) fn handle_returned(mut self, job: &TaskJob, result: PathResult) -> Closing {
        let branch = &job.out().branches[self.returned];
        self.returned += 1;
        match take(job, branch, result, &mut self.writes) {
            Ok(()) => self.evaluate(job),
            Err(error) => Closing::Ended(outcome(&job.context, Err(error), self.writes)),
        }
    }

    /// Evaluates the next path, and those after it until one has to be awaited.
    fn evaluate(mut self, job: &TaskJob) -> Closing {
        let branches = &job.out().branches;
        while let Some(branch) = branches.get(self.returned) {
            let (state, context) = (&self.state, &job.context);
            let result = match &branch.path {
                Path::Blocking(path) => catch_unwind(AssertUnwindSafe(|| path(state, context))),
                Path::Async(start) => {
                    match catch_unwind(AssertUnwindSafe(|| start(Arc::clone(state), context.clone()))) {
                        Ok(path) => return Closing::Path(Box::new(PathWait { path, open: self })),
                        Err(panic) => Err(panic),
                    }
                }
            };
            if let Err(error) = take(job, branch, result, &mut self.writes) {
                return Closing::Ended(outcome(context, Err(error), self.writes));
            }
            self.returned += 1;
        }
        Closing::Ended(outcome(&job.context, Ok(()), self.writes))
    }
}

/// Returns the state with the writes of the task applied, if it has conditional edges.
fn seen_by_paths(job: &TaskJob, writes: &[TaskWrite]) -> Result<Option<StateRef>, RunError> {
    if job.out().branches.is_empty() {
        return Ok(None);
    }
    let layout = &*job.graph().layout;
    let mut state = Arc::clone(&job.state);
    let mut fields: Vec<(u32, Vec<BoxWrite>)> = Vec::new();
    for write in writes {
        if let WriteKind::Field(Some(value)) = &write.kind {
            match fields.iter_mut().find(|(channel, _)| *channel == write.channel) {
                Some((_, values)) => values.push(value.clone()),
                None => fields.push((write.channel, vec![value.clone()])),
            }
        }
    }
    for (field, values) in fields {
        let mut present = job.present.as_ref().is_none_or(|present| present[field as usize]);
        layout.update(&mut state, field as usize, &mut present, values)?;
    }
    if let Some(fields) = job.node.and_then(|node| job.graph().nodes[node].reads.as_deref()) {
        state = layout.project(&state, fields);
    }
    Ok(Some(state))
}

/// Writes to the targets of a path; to none of them if one is invalid.
fn take(job: &TaskJob, branch: &Branch, result: PathResult, writes: &mut Vec<TaskWrite>) -> Result<(), RunError> {
    let targets = match result {
        Ok(targets) => targets.map_err(|error| node_error(&job.context, error))?,
        Err(panic) => return Err(panicked(&job.context, &*panic)),
    };
    let first = writes.len();
    let mut go = |target| push_target(job.graph(), &mapped(branch, target)?, writes);
    if let Err(error) = targets.into_iter().try_for_each(&mut go) {
        writes.truncate(first);
        return Err(error);
    }
    encode_all(job, &mut writes[first..])
}

fn mapped(branch: &Branch, target: Target) -> Result<Target, RunError> {
    let (Some(map), Target::Node(label)) = (&branch.map, &target) else {
        return match &target {
            Target::Node(name) if &**name == START => Err(RunError::BadDestination { name: START.into() }),
            _ => Ok(target),
        };
    };
    match map.iter().find(|(known, _)| known == label) {
        Some((_, node)) => Ok(Target::Node(Arc::clone(node))),
        None => Err(RunError::UnknownLabel { label: label.to_string() }),
    }
}
