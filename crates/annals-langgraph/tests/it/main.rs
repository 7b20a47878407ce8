//! The saver on real databases of LangGraph, and what its turns cost.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod calls;
mod conflicts;
mod databases;
mod listing;
mod messages;
mod size;
mod transfer;
