//! The names that most programs need: `use annals_graph::prelude::*`.
//!
//! The prelude of [`annals_runs`] with the primary types of the executor; [`Error`] and [`Result`] are those of the
//! executor.

pub use annals_runs::prelude::*;

pub use crate::drive::{Input, Outcome};
pub use crate::error::{Error, Result};
pub use crate::graph::{Command, CompiledGraph, END, NodeOptions, NodeResult, START, SendTo, StateGraph};
pub use crate::stream::{StreamData, StreamMode};
pub use crate::task::Context;
