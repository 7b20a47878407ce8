//! The server with the client of the protocol's official SDK, over pipes.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod client;
mod hostile;
mod tools;
