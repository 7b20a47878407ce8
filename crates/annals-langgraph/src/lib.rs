//! LangGraph's checkpoints, writes, metadata and versions on the log of annals, and back without loss.
//!
//! | type | meaning |
//! | --- | --- |
//! | [`Saver`] | the operations of `BaseCheckpointSaver` on a store |
//! | [`Config`], [`SaverCheckpoint`], [`Tuple`] | the place of a checkpoint, a checkpoint to be stored, a stored one |
//! | [`Typed`], [`NewValue`], [`SaverItem`], [`StoredValue`] | values as LangGraph's serializer gives them |
//! | [`PutHandle`] | a put that was submitted and not awaited |
//! | [`import_sqlite`], [`export_sqlite`] | the databases of LangGraph's SQLite saver, read and written |
//! | [`ListQuery`], [`Listing`], [`DeltaHistory`] | listings, and the writes of delta channels |
//!
//! Invariants: a value comes back with the bytes that it was put with, and nothing in it is executed; a list is stored
//! item by item, whoever splits it; the cost of a put follows what changed. *Absent:* Python, and the meaning of
//! classes but messages.
//!
//! # Recipe: a turn of a chat
//! ```
//! use annals::store::Store;
//! use annals_langgraph::{Config, SaverCheckpoint, SaverItem, NewValue, LostRace, Saver, StoredValue, Typed};
//!
//! # fn main() -> Result<(), annals_langgraph::SaverError> {
//! let saver = Saver::new(Store::memory());
//! let chat = Config::new("alice", "");
//! let text = |text: &str| Typed::msgpack([&[0xa0 + text.len() as u8], text.as_bytes()].concat());
//!
//! let version = saver.next_version(None);
//! let mut first = SaverCheckpoint::new("1f000000-0000-6000-8000-000000000001", "2026-01-01T00:00:01+00:00");
//! first.versions = vec![("lines".into(), version.clone())];
//! first.values = vec![("lines".into(), NewValue::Items(vec![SaverItem::New(text("hi"))]))];
//! let first = saver.put(&chat, first, LostRace::Refuse)?;
//!
//! saver.put_writes(&first, "task", "~__pregel_pull, model", vec![("lines".into(), text("hello"))])?;
//!
//! let mut second = SaverCheckpoint::new("1f000000-0000-6001-8000-000000000002", "2026-01-01T00:00:02+00:00");
//! second.versions = vec![("lines".into(), saver.next_version(Some(&version)))];
//! second.values = vec![("lines".into(), NewValue::Items(vec![SaverItem::Same(0..1), SaverItem::New(text("hello"))]))];
//! saver.put(&first, second, LostRace::Refuse)?;
//!
//! let tuple = saver.tuple(&chat)?.expect("it was put");
//! assert_eq!(tuple.parent, Some(first.clone()));
//! assert_eq!(tuple.values, [("lines".into(), StoredValue::from(vec![text("hi"), text("hello")]))]);
//! assert_eq!(saver.tuple(&first)?.expect("it is stored").writes.len(), 1);
//! # Ok(())
//! # }
//! ```

mod aside;
mod blob;
mod change;
mod error;
mod inner;
mod limits;
mod list;
mod listing;
mod maintain;
mod model;
mod notes;
mod place;
mod put;
mod read;
mod render;
mod saver;
mod sqlite;
mod state;
mod typed;
mod version;
mod writes;

pub use blob::WHOLE;
pub use error::{Result, SaverError};
pub use listing::Listing;
pub use model::{
    Config, DeltaHistory, ListQuery, LostRace, MSGPACK, NewValue, PruneStrategy, Reread, SaverCheckpoint, SaverItem,
    SaverVersion, SaverWrite, SeenVersions, StoredValue, Tuple, Typed, UpdatedChannels,
};
pub use saver::{PutHandle, Saver};
pub use sqlite::{
    DatabaseExport, DatabaseImport, RefusedRow, export_sqlite, import_database, import_sqlite, is_langgraph,
};
