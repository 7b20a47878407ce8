//! Runs of workflows on the log of [`annals`]: their status, steps, interrupts, signals, queues and control, without a
//! graph.
//!
//! The engine is a log. It stores what an executor writes of a task, and the mark by which the writer says what a write
//! means for the status of its thread. This crate is the contract between the two: it names the special writes
//! ([`SpecialWrite`]), decodes them, and writes those that come from outside of a run. Its calls are methods of the
//! handles, by three traits: [`StoreRuns`], [`ThreadRuns`] and [`SnapshotRuns`]. *Absent:* graphs, and running
//! anything, which is the work of an executor such as `annals-graph`, whose prelude has these traits too.
//!
//! # Recipes
//!
//! ## Put runs into a queue
//!
//! A queued run is a thread whose input is stored and whose one task is due. A worker of a graph of this name runs it.
//!
//! ```
//! use annals_runs::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let store = Store::memory();
//! let book = store.queue("book");
//! book.enqueue("order-17", 17)?;
//! book.clone().priority(5).dedup("mail-4711").enqueue("order-18", 18)?;
//! let due = book.due(10)?;
//! assert_eq!(due.iter().map(|run| run.id().as_str()).collect::<Vec<_>>(), ["order-18", "order-17"]);
//! # Ok(())
//! # }
//! ```
//!
//! ## List runs by their status
//!
//! The kind of a status comes with a listing and filters it; [`ThreadStatus`] decodes the values that belong to it.
//!
//! ```
//! use annals::history::{StatusKind, ThreadQuery};
//! use annals_runs::ThreadStatus;
//! use annals_runs::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let store = Store::memory();
//! store.queue("book").enqueue("order-17", 17)?;
//! store.queue("book").enqueue("order-18", 18)?;
//! store.thread("order-18")?.cancel("sold out")?;
//! for info in store.threads_with(ThreadQuery::new().status(StatusKind::Cancelled))? {
//!     assert_eq!(ThreadStatus::of(&info), ThreadStatus::Cancelled(Some("sold out".into())));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! ## Send a signal
//!
//! A signal is durable when the call returns, also before the thread has a run.
//!
//! ```
//! use annals_runs::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let store = Store::memory();
//! store.signal("order-17", "review", true)?;
//! assert_eq!(store.thread("order-17")?.signals()?[0].name, "review");
//! # Ok(())
//! # }
//! ```
//!
//! ## Cancel, pause and wait for a run
//!
//! ```
//! use std::time::Duration;
//!
//! use annals_runs::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let store = Store::memory();
//! let order = store.queue("book").enqueue("order-17", 17)?.thread.clone();
//! order.pause()?;
//! order.resume()?;
//! assert!(order.cancel("the customer asked")?);
//! let ended = order.wait_for_end(Duration::from_secs(5))?.expect("it is cancelled");
//! assert_eq!(ended.status.as_str(), "cancelled");
//! # Ok(())
//! # }
//! ```
//!
//! ## Store and resume an interrupt in an executor of your own
//!
//! The writer of a special write marks it; the log folds the status from the marks.
//!
//! ```
//! use annals::base::{Map, Namespace, Value};
//! use annals::store::batch::{Batch, NewWrites};
//! use annals_runs::prelude::*;
//! use annals_runs::{SpecialWrite, ThreadStatus, interrupts_write};
//!
//! # fn main() -> Result<()> {
//! let store = Store::memory();
//! let thread = store.queue("book").enqueue("order-17", 17)?.thread.clone();
//! let head = thread.head()?.expect("the input");
//! let task = &head.record().tasks[0];
//!
//! let id = "0123456789abcdef0123456789abcdef";
//! let asks = Map::from_iter([("id".to_owned(), id.into()), ("value".to_owned(), "which card?".into())]);
//! let writes = NewWrites::new(head.id(), task.id, task.path()).with(vec![interrupts_write(vec![Value::Map(asks)])?]);
//! let mut batch = Batch::new(thread.id().clone(), Namespace::root(), Some(head.id()));
//! batch.writes.push(writes);
//! store.commit(&batch)?;
//! assert_eq!(ThreadStatus::of(&thread.info()?), ThreadStatus::Interrupted(vec!["which card?".into()]));
//!
//! thread.resume_interrupt(&thread.open_interrupts()?[0].id, "the blue one")?;
//! let given = thread.at("@")?.writes()?.into_iter().find(|write| SpecialWrite::Given.is_set(write));
//! assert_eq!(given.expect("it is stored").to_value()?.get(id), Some(&"the blue one".into()));
//! # Ok(())
//! # }
//! ```
//!
//! ## Show the steps of a thread
//!
//! ```
//! use annals_runs::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let thread = Store::memory().queue("book").enqueue("order-17", 17)?.thread.clone();
//! let steps = thread.steps()?.collect::<std::result::Result<Vec<_>, _>>()?;
//! assert_eq!((&*steps[0].name, steps[0].state.as_str()), ("book", "running"));
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | default | adds |
//! | --- | --- | --- |
//! | `bundled` | yes | the SQLite of `rusqlite`, compiled into the program |
//! | `system-sqlite` | no | the SQLite of the system in its place, with `default-features = false` |

mod control;
mod ended_call;
mod hash;
mod interrupts;
mod limits;
mod links;
pub mod prelude;
mod queue;
mod resume_value;
mod sealed;
mod signal;
mod snapshot_runs;
mod special;
mod status;
mod steps;
mod store_runs;
mod thread_runs;

pub(crate) use annals::{base, history, store};

pub use control::ControlOrder;
pub use ended_call::EndedCall;
pub use interrupts::OpenInterrupt;
pub use links::{ThreadLink, ThreadLinkKind};
pub use queue::{Queue, Queued};
pub use resume_value::{InvalidResumeValue, check_resume_value, choose_resume_value, received_signal};
pub use signal::WaitingSignal;
pub use snapshot_runs::SnapshotRuns;
pub use special::{SpecialWrite, interrupts_write};
pub use status::{ThreadStatus, status_name, status_named};
pub use steps::{AttemptInfo, StepInfo, StepState, Steps};
pub use store_runs::StoreRuns;
pub use thread_runs::ThreadRuns;
