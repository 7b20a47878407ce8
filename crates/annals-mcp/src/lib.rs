//! A Model Context Protocol server by which agents search and read the histories in an
//! [annals](https://docs.rs/annals) store.
//!
//! | type | meaning |
//! | --- | --- |
//! | [`McpServer`] | a server: messages of JSON-RPC in, one a line, and responses out |
//! | [`McpOptions`] | its options: reading only, or writing too |
//!
//! It is the verb `mcp` of the command `annals`. Tools that read: `search`, `threads`, `thread`, `show`, `diff`,
//! `blame`, `log` and `what_fixed`; tools that write, only if they are allowed: `append`, `fork` and `note`.
//!
//! Invariants: a request has at most 1 MiB and a reply at most 8,000 characters of content, followed by the arguments
//! of the call that goes on; content of the store stands between marks that it cannot hold, and descriptions say that
//! it is not to be obeyed; a wrong argument is an error with a code, the field and the limit. *Absent:* resources,
//! prompts, sampling, HTTP, and requests at the same time: each is answered before the next is read.
//!
//! # Recipe: serve a store over stdio
//! ```no_run
//! use annals::prelude::*;
//! use annals_mcp::{McpOptions, McpServer};
//!
//! # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! let store = Store::open_with("agents.db", OpenOptions::new().read_only(true))?;
//! McpServer::new(store, McpOptions::new()).run(std::io::stdin().lock(), std::io::stdout())?;
//! # Ok(())
//! # }
//! ```
//!
//! # Recipe: call a tool in the program itself
//! ```
//! use annals::prelude::*;
//! use annals_mcp::{McpOptions, McpServer};
//!
//! # fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! let store = Store::memory();
//! store.thread("trip")?.append("messages", [Message::human("A hotel in Bern?"), Message::ai("The Gasthof.")])?;
//!
//! let request = r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call",
//!     "params": {"name": "search", "arguments": {"query": "gasthof"}}}"#;
//! let mut output = Vec::new();
//! McpServer::new(store, McpOptions::new()).run(request.replace('\n', " ").as_bytes(), &mut output)?;
//! let response = String::from_utf8(output)?;
//! assert!(response.contains("messages[1] ai") && response.contains("The **Gasthof**."));
//! # Ok(())
//! # }
//! ```

mod arguments;
mod catalogue;
mod compare;
mod error;
mod fixed;
mod limits;
mod names;
mod read;
mod reply;
mod rpc;
mod server;
mod write;

pub use server::{McpOptions, McpServer};
