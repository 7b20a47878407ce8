//! The integration tests of runs, as one program.

#![allow(clippy::unwrap_used, missing_docs)]

mod control;
mod statuses;
