//! Violations that stand until they are repaired, by name. The lists and numbers only shrink.

/// Maxima outside `limits.rs`.
pub(crate) const MAXIMA: &[&str] = &[];

/// Names of more than one type.
pub(crate) const TYPE_NAMES: &[&str] = &["Driver", "Res"];

/// Public structs that literals make.
pub(crate) const OPEN_STRUCTS: &[&str] = &["CachedHead", "CheckpointRef"];

/// Public names with a banned word.
pub(crate) const NAMES: &[&str] = &[];
