//! Derive macro.
