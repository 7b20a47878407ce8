//! The codecs of rows: columns, payloads and their checks.
//!
//! Invariant: a codec knows no queries. *Absent:* which rows there are.

pub(crate) mod checkpoint;
pub(crate) mod checksums;
pub(crate) mod item;
pub(crate) mod list_end;
pub(crate) mod name;
pub(crate) mod pack;
pub(crate) mod payload;
pub(crate) mod sealed;
pub(crate) mod source;
pub(crate) mod task;
pub(crate) mod version;
