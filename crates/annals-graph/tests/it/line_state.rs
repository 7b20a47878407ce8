//! A state of lines, the input that begins a run on it, and the ways to run.

use annals_graph::Durability;
use annals_graph::prelude::*;
use annals_graph::{IntoInput, Run, block_on};

#[derive(State, Clone, Default, Debug, PartialEq)]
pub(crate) struct Log {
    #[channel(append)]
    pub(crate) lines: List<String>,
}

pub(crate) fn line(text: impl Into<String>) -> LogUpdate {
    Log::update().lines([text.into()])
}

pub(crate) fn start() -> Input {
    IntoInput::<Log, _>::into_input(Log::update())
}

/// Both drivers with every durability.
pub(crate) const EVERY_WAY: [(usize, Durability); 6] = [
    (0, Durability::Sync),
    (0, Durability::Async),
    (0, Durability::Exit),
    (1, Durability::Sync),
    (1, Durability::Async),
    (1, Durability::Exit),
];

/// Runs on one of the drivers.
pub(crate) fn run_on<S>(driver: usize, run: Run<'_, S>, input: Input) -> Result<Outcome<S>>
where
    S: Clone + Send + Sync + 'static,
{
    if driver == 0 { run.invoke(input) } else { block_on(run.ainvoke(input)) }
}
