//! What a person sees of the histories in an [annals](https://docs.rs/annals) store, as data: the command prints it,
//! and the pages draw it.
//!
//! | item | meaning |
//! | --- | --- |
//! | [`ListedThread`] | a thread of a listing: its facts, its first words, its status |
//! | [`LinkedThread`], [`linked_threads`], [`link_document`] | a thread below another one: of a helper, or a fork |
//! | [`ListedCheckpoint`] | a checkpoint of a history: its nodes, its changes, its status |
//! | [`ChangedChannel`], [`changes`], [`changes_of_all`] | the channels that a checkpoint changed |
//! | [`difference_document`], [`hit_document`] | a difference and a hit of a search as JSON |
//! | [`members`], [`ChangedMember`] | the members in which two values differ |
//! | [`words`] | ages, sizes, numbers, statuses, nodes and values as texts |
//!
//! Invariant: a text is that of the data, which a renderer makes safe for its output. *Absent:* layout, colours,
//! escapes and limits of an output.
//!
//! # Recipe: the threads of a store
//! ```
//! use annals::prelude::*;
//! use annals::store::ThreadQuery;
//! use annals_view::ListedThread;
//!
//! # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! let store = Store::memory();
//! store.thread("trip")?.append("messages", [Message::human("A hotel in Bern?")])?;
//! for info in store.threads_with(ThreadQuery::new())? {
//!     let listed = ListedThread::read(&store, info, false)?;
//!     assert_eq!(listed.words(), Some("A hotel in Bern?"));
//!     assert_eq!(listed.document()["status"], "done");
//! }
//! # Ok(())
//! # }
//! ```

mod changes;
mod checkpoint;
mod documents;
mod limits;
mod links;
mod thread;
pub mod words;

pub use changes::{ChangedChannel, changes, changes_of_all, is_state};
pub use checkpoint::ListedCheckpoint;
pub use documents::{
    ChangedMember, channel_document, difference_document, folded_document, folded_messages, hit_document, members,
};
pub use links::{LinkedThread, link_document, linked_threads};
pub use thread::ListedThread;
