//! Embedded, append-only state for agents and workflows.
//!
//! One SQLite file holds the history of any number of threads as a log of checkpoints. Nothing in it is overwritten: a
//! past state can be read, compared, continued and forked at any time, and a step costs what it changed. The graph
//! executor `annals-graph` is a client of this crate.
//!
//! # The primary types
//!
//! | type | what it is |
//! | --- | --- |
//! | [`Store`](store::Store) | one file; cheap to clone, shared by threads and processes |
//! | [`Thread`](history::Thread) | the history of one conversation or workflow: a tree of checkpoints with a head |
//! | [`Snapshot`](history::Snapshot) | the state at one checkpoint, read when it is asked for, without a graph |
//! | [`State`](trait@state::State) | a struct whose fields are channels, each with a rule for what a write does |
//! | [`DynSchema`](state::DynSchema) | the same, made at run time |
//! | [`Message`](message::Message) | one message of a chat: plain data with LangChain's fields and dictionary form |
//! | [`Error`] | any error; its message says what is now true, its [`kind`](Error::kind) what to do |

// The derive names this crate `::annals`, also in its own tests.
#[allow(unused_extern_crates)]
extern crate self as annals;

pub mod channel;
mod error;
pub mod history;
pub mod prelude;
mod span;
pub mod state;
pub mod store;

#[cfg(not(any(feature = "bundled", feature = "system-sqlite")))]
compile_error!("annals needs one of the features `bundled` (the default) and `system-sqlite`");

pub use annals_base as base;
pub use annals_messages as message;
pub use error::{Error, ErrorKind, Result};
/// The binding to SQLite, in the version that this build uses: a program that reads the file itself shares it.
pub use rusqlite;
