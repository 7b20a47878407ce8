//! Reads the histories of codex, Claude Code, Cursor and other agents and of chat programs, and writes them as
//! threads of an annals store.
//!
//! | type or function | meaning |
//! | --- | --- |
//! | [`Importer`], [`ImportSummary`] | reads a file or folder into a store; the result |
//! | [`export_turns`] | the imported threads as one JSON document |
//! | [`read_sessions`], [`SessionSink`] | reads a file or folder into plain data, without a store |
//! | [`SourceKind`], [`SourceFacts`], [`sources_table`] | the programs, where their histories lie, and what is lost |
//! | [`SourceSession`], [`SessionMessage`], [`SessionBranch`], [`ParentLink`] | a session: its lines of messages, and the facts about it |
//! | [`SourceDatabase`] | a SQLite database of another program, read without a trace |
//! | [`UnknownRecord`], [`SourceLimit`] | a record that was not understood, or is larger than a limit |
//!
//! Files are recognised by their content, and are those of strangers. Invariants: a source is not written to; of a file
//! of JSON lines one line is in memory, and of a source one session; a record that is damaged, too large or refused by
//! the store is counted with its place and does not end an import; of a database tables are read, and no view, trigger
//! or virtual table. *Absent:* graphs, and any format of messages of one thread (`Thread::import_messages` of the
//! engine reads those).
//!
//! # Recipe: import everything below a folder
//! ```
//! use annals::prelude::*;
//! use annals_import::{Importer, SourceKind, thread_id};
//!
//! # let folder = tempfile::tempdir()?;
//! # std::fs::write(
//! #     folder.path().join("sharegpt.json"),
//! #     r#"[{"id": "c1", "conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]}]"#,
//! # )?;
//! let store = Store::memory();
//! let summary = Importer::new(&store).run(folder.path())?;
//! assert_eq!((summary.threads_new, summary.messages), (1, 2));
//! assert!(summary.not_understood.is_empty());
//!
//! let thread = store.thread(thread_id(SourceKind::Chat, "c1"))?;
//! assert_eq!(thread.head()?.expect("it was imported").len("messages")?, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Recipe: look into a source without a store
//! ```
//! use annals_import::{ImportError, SessionSink, SourceSession, UnknownRecord, read_sessions, turns};
//!
//! #[derive(Default)]
//! struct TurnCount(usize);
//!
//! impl SessionSink for TurnCount {
//!     fn session(&mut self, session: SourceSession) -> Result<(), ImportError> {
//!         self.0 += turns(&session.main).len();
//!         Ok(())
//!     }
//!
//!     fn unknown(&mut self, _: UnknownRecord) -> Result<(), ImportError> {
//!         Ok(())
//!     }
//! }
//!
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("log.jsonl");
//! std::fs::write(&file, r#"{"role": "user", "content": "hi"}"#)?;
//! let mut count = TurnCount::default();
//! read_sessions(&file, None, &mut count)?;
//! assert_eq!(count.0, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arena;
mod blocks;
mod chain;
mod database;
mod document;
mod draft;
mod error;
mod json;
mod limits;
mod lines;
mod model;
mod output;
mod parts;
mod probe;
#[cfg(feature = "store")]
mod redact;
mod sources;
#[cfg(feature = "store")]
mod store;
mod turns_json;
mod walk;
mod zstd;

pub use database::SourceDatabase;
pub use error::{ImportError, SourceLimit};
pub use model::{ParentLink, SessionBranch, SessionMessage, SourceSession, UnknownRecord, turns};
pub use output::SessionSink;
pub use sources::{PlaceBase, SourceFacts, SourceKind, SourcePlace, sources_table};
#[cfg(feature = "store")]
pub use store::{FileWithoutThread, ImportSummary, Importer, export_turns, thread_id};
pub use turns_json::{SessionDocument, TurnsCollector};
pub use walk::read_sessions;
