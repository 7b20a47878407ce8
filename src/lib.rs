//! Embedded, append-only state for agents and workflows.

pub mod base;
pub mod channel;
pub mod message;
pub mod store;
