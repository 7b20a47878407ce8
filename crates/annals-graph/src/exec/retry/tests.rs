//! The errors that a policy retries.

use super::*;
use crate::base::CodecError;
use crate::channel::ChannelError;
use crate::graph::GraphProblem;

fn of_node(source: impl Into<crate::graph::BoxError>) -> RunError {
    RunError::Node { node: "n".into(), source: source.into() }
}

fn codec() -> CodecError {
    crate::base::Encoded::encode("x").unwrap().decode::<i64>().unwrap_err()
}

fn text() -> String {
    "x".into()
}

/// Errors that another attempt may not meet.
fn transient() -> Vec<RunError> {
    vec![
        of_node("busy"),
        RunError::SendToEnd,
        RunError::NoParentGraph,
        RunError::ParentCommand,
        RunError::EmptyInput,
        RunError::RecursionLimit { limit: 3 },
        RunError::NotAnUpdate { graph: text() },
        RunError::AmbiguousUpdate { candidates: Vec::new() },
        RunError::UnknownNode { node: text(), known: Vec::new() },
        RunError::Edit(EditProblem::NeedsNode),
        RunError::Edit(EditProblem::NothingToCopy),
        RunError::State(StateError::Channel { channel: "c".into(), source: ChannelError::Guarded { writes: 2 } }),
        RunError::State(StateError::UnknownChannel { channel: text(), known: Vec::new() }),
    ]
}

/// Errors that another attempt repeats.
fn misuses() -> Vec<RunError> {
    vec![
        RunError::State(StateError::NoList { channel: "c".into(), expected: "text" }),
        RunError::State(StateError::Migration { channel: "c".into(), reason: text() }),
        RunError::Edit(EditProblem::NoSupersteps),
        RunError::Edit(EditProblem::NoUpdates { superstep: 0 }),
        RunError::Codec(codec()),
        RunError::NoContext { graph: text(), expected: "i64", found: false },
        RunError::SeveralInterrupts { ids: Vec::new() },
        RunError::NoStore,
        RunError::NoTimer { node: text() },
        RunError::UnknownLabel { label: text() },
        RunError::BadDestination { name: text() },
        RunError::BadRecursionLimit { limit: 0 },
        RunError::BadKey { reason: text() },
        RunError::NoCache,
        RunError::NoThread,
        RunError::UnknownOutput { channel: text(), known: Vec::new() },
        RunError::BadTimeout { node: text() },
        RunError::Breakpoint(GraphProblem::DuplicateNode { node: text() }),
    ]
}

#[test]
fn the_default_policy_retries_what_may_pass_and_no_misuse() {
    let policy = RetryPolicy::new();
    for error in transient() {
        assert!(retries(&policy, &error), "{error:?}");
    }
    for error in misuses() {
        assert!(!retries(&policy, &error), "{error:?}");
    }
    let panicked = RunError::NodePanicked { node: text(), reason: text() };
    assert!(!retries(&policy, &panicked));
}

#[test]
fn a_policy_of_the_user_decides_about_every_error_of_an_attempt() {
    let (all, none) = (RetryPolicy::new().on_if(|_| true), RetryPolicy::new().on_if(|_| false));
    let panicked = RunError::NodePanicked { node: text(), reason: text() };
    for error in transient().into_iter().chain(misuses()).chain([panicked]) {
        assert!(retries(&all, &error), "{error:?}");
        assert!(!retries(&none, &error), "{error:?}");
    }
}

#[test]
fn a_task_that_could_not_run_at_all_is_retried_by_a_policy_of_the_user_alone() {
    let of = [RunError::NoTimer { node: text() }, RunError::BadTimeout { node: text() }];
    for error in of.map(of_node) {
        assert!(!retries(&RetryPolicy::new(), &error), "{error:?}");
        assert!(retries(&RetryPolicy::new().on_if(|_| true), &error), "{error:?}");
    }
}

#[test]
fn a_cancelled_node_and_one_that_cannot_be_stopped_are_not_retried() {
    for error in [RunError::NodeCancelled { node: text() }, RunError::SyncTimeout { node: text() }] {
        assert!(!retries(&RetryPolicy::new(), &error));
        assert!(!retries(&RetryPolicy::new().on_if(|_| true), &error));
    }
}
