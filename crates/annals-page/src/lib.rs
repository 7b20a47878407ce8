//! Pages that show the histories in an [annals](https://docs.rs/annals) store, for a browser on the same machine.
//!
//! | type | meaning |
//! | --- | --- |
//! | [`Page`], [`PageOptions`] | the pages of a store: a request in, a response out, without a socket |
//! | [`PageServer`] | a server on the loopback address |
//! | [`PageRequest`], [`PageResponse`], [`PageBody`] | requests and responses as plain data |
//! | [`LiveEvents`] | new checkpoints and other changes, as server-sent events |
//! | [`PageError`] | a failure of the server |
//! | [`write_document`] | a thread as one HTML document that is read without a server |
//! | [`write_site`], [`SiteSummary`] | a folder of such documents with an index, and what was written |
//! | [`markdown_message`], [`markdown_heading`] | a message and a heading as Markdown |
//! | [`markdown_folded`] | the end of folded messages as Markdown |
//!
//! Every screen is HTML that works without JavaScript, and has its JSON at the same address with `.json`. Invariants:
//! data is text in a document and never markup; a request without the token, for another host or from another origin
//! reads nothing of the store; the cost of a screen is that of its content. *Absent:* encryption, users, and any
//! address but the loopback. The server has 64 places for clients that have shown the token and 64 for others, whose
//! oldest is closed for a new one; a whole request has 10 s; a connection has one request.
//!
//! | address | screen |
//! | --- | --- |
//! | `/` | threads: `?q=` words of a title and filters, as `project:home status:failed since:1d`; or a field each, `?project=home` |
//! | `/t/POINT` | a thread at a point: the tree of branches, the timeline, the state |
//! | `/t/POINT/talk` | the messages at a point, their Markdown rendered; with `?format=markdown` all of them as Markdown |
//! | `/t/POINT/state/PATH` | a value, or the items of a list, with the history of it |
//! | `/t/POINT/step`, `/t/POINT/step/N` | the superstep that made a checkpoint, or the one with a number |
//! | `/t/POINT/graph` | the nodes that ran on the way to a point, the transitions between them, and the rest of the graph |
//! | `/t/POINT/fork` | a new thread from a point: preview, command and form |
//! | `/diff/A..B`, `/diff/POINT` | the difference of two points, or of a point and its parent |
//! | `/search?q=` | messages and other items by their text; with a filter of threads the threads |
//! | `/runs` | threads that wait, failed, sleep or run, with forms for resume values and controls; runs of graphs that ended |
//! | `/stats` | tokens, cost, durations and bytes of the newest checkpoints |
//! | `/health` | sizes, format, modes of the files, index, operations; with `?check=1` a check of the whole file |
//!
//! # Recipe: serve a store
//! ```no_run
//! use annals::prelude::*;
//! use annals_page::{PageOptions, PageServer};
//!
//! # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! let store = Store::open_with("chats.db", OpenOptions::new().read_only(true))?;
//! let server = PageServer::bind(store, 4000, PageOptions::new().name("chats.db"))?;
//! println!("{}", server.link());
//! server.run()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Recipe: a conversation as one file
//! ```
//! use annals::prelude::*;
//!
//! # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! let thread = Store::memory().thread("trip")?;
//! thread.append("messages", [Message::human("A hotel in Bern?"), Message::ai("The **Gasthof**.")])?;
//! let folder = tempfile::tempdir()?;
//! let mut file = std::fs::File::create(folder.path().join("trip.html"))?;
//! annals_page::write_document(&thread.head()?.expect("it was written"), None, &mut file)?;
//! # Ok(())
//! # }
//! ```

mod address;
mod body;
mod code;
mod connection;
mod edits;
mod failure;
mod file;
mod filter;
mod flowchart;
mod guard;
mod html;
mod icons;
mod layout;
mod limits;
mod live;
mod markdown;
mod page;
mod places;
mod plot;
mod prose;
mod request;
mod screens;
mod server;
mod site;
mod socket;
mod values;

pub use failure::PageError;
pub use live::LiveEvents;
pub use markdown::{markdown_folded, markdown_heading, markdown_message};
pub use page::{Page, PageOptions};
pub use request::{PageBody, PageRequest, PageResponse};
pub use screens::write_document;
pub use server::PageServer;
pub use site::{SiteSummary, write_site};
