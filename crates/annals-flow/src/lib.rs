//! Durable workflows that are written as a TOML or JSON file and run by `annals-graph`.
//!
//! A [`Flow`] is read from a file: channels, nodes and edges. Its nodes run commands, map a command over a list, set
//! channels, make a request, wait, ask a person, or run another workflow; [`Flow`] shows a file that runs. Each result
//! is committed to an `annals` store before the next node starts, so a run that was killed continues with the nodes
//! that had not ended. `docs/flows.md` is the reference of the file.
//!
//! # Recipe: run a command on a list, ask a person, and go on with the answer
//! The run ends where it waits for the resume value; the same call with the value continues it, also in another
//! process.
//! ```ignore-windows
//! use annals_flow::{Flow, FlowEnd, FlowInput};
//! use annals_graph::prelude::*;
//!
//! # fn main() -> annals_flow::Result<()> {
//! let flow = Flow::parse(
//!     "release.toml",
//!     r#"
//!     input = { files = ["a.txt", "b.txt"] }
//!     [channels]
//!     files = "last"
//!     built = "append"
//!     sure = "last"
//!     note = "last"
//!     [nodes.build]
//!     run = 'echo "built $ITEM"'
//!     each = "files"
//!     into = "built"
//!     [nodes.confirm]
//!     after = "build"
//!     ask = "='Release ' + built[1] + '?'"
//!     into = "sure"
//!     [nodes.done]
//!     after = "confirm"
//!     set = { note = "='released: ' + sure" }
//!     "#,
//! )?;
//! let thread = Store::memory().thread("release-17")?;
//! let FlowEnd::Interrupted { interrupts, .. } = flow.run(&thread, FlowInput::new(), &mut |_| ())? else {
//!     panic!("it waits")
//! };
//! assert_eq!(interrupts[0].value, Value::from("Release built b.txt?"));
//!
//! let FlowEnd::Done { state } = flow.run(&thread, FlowInput::new().resume("yes"), &mut |_| ())? else {
//!     panic!("it has ended")
//! };
//! assert_eq!(state["note"], Value::from("released: yes"));
//! # Ok(())
//! # }
//! ```
//!
//! # Limitations
//! - *No exactly-once side effects*: a command that was running at a crash runs again.
//! - A command whose runner was killed goes on to its end, in a process group of its own; its output is lost.
//! - *No TLS*: a request goes to `http://` alone, and a command such as `curl` makes others.

mod build;
mod command_log;
mod error;
mod expression;
mod files;
mod flow;
mod limits;
mod nodes;
mod notify;
mod parse;
mod problem;
mod process;
mod reader;
mod request;
mod secrets;
mod spec;
mod tree;

pub use command_log::CommandLog;
pub use error::{Error, Result};
pub use flow::{Flow, FlowEnd, FlowEvent, FlowInput};
pub use problem::{FileError, FlowProblem};
