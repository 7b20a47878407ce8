//! The programs whose histories are read, one module each.

pub(crate) mod chat;
pub(crate) mod claude;
pub(crate) mod codex;
pub(crate) mod goose;
pub(crate) mod opencode;
pub(crate) mod zed;
