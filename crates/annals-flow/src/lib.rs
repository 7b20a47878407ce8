//! Durable workflows that are written as a TOML or JSON file and run by `annals-graph`.
//!
//! A [`Flow`] is read from a file: channels, nodes and edges. Its nodes run commands, map a command over a list, set
//! channels, make a request, wait, ask a person, or run another workflow; [`Flow`] shows a file that runs. Each result is
//! committed to an `annals` store before the next node starts, so a run that was killed continues with the nodes that had
//! not ended. `docs/flows.md` is the reference of the file.
//!
//! # Limitations
//! - *No exactly-once side effects*: a command that was running at a crash runs again.
//! - A command whose runner was killed goes on to its end, in a process group of its own; its output is lost.
//! - *No TLS*: a request goes to `http://` alone, and a command such as `curl` makes others.

mod build;
mod error;
mod expression;
mod flow;
pub mod limits;
mod nodes;
mod parse;
mod problem;
mod process;
mod reader;
mod request;
mod spec;
mod tree;

pub use error::{Error, Result};
pub use flow::{Flow, FlowEnd, FlowEvent, FlowInput};
pub use problem::{FileError, FlowProblem};
