//! The integration tests of the importers: one binary.

#![allow(clippy::unwrap_used, missing_docs)]

mod compare;
mod cuts;
mod facts;
mod fixtures;
mod folder;
mod growth;
mod hostile;
mod many;
mod nothing;
mod stored;
