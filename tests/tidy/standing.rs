//! Violations that stand until they are repaired, by name. The lists and numbers only shrink.

/// Maxima outside `limits.rs`.
pub(crate) const MAXIMA: &[&str] = &[];

/// Names of more than one type.
pub(crate) const TYPE_NAMES: &[&str] = &[
    "Ended",
    "Found",
    "Open",
    "Start",
    "Started",
    "Reference",
    "Asked",
    "Cache",
    "Calls",
    "Channel",
    "Content",
    "Done",
    "Draft",
    "Effect",
    "End",
    "Field",
    "Fields",
    "Held",
    "Inner",
    "Items",
    "Kv",
    "List",
    "Log",
    "Named",
    "Node",
    "Parent",
    "Parts",
    "Place",
    "Pool",
    "Ran",
    "Reader",
    "Returned",
    "Schema",
    "Settings",
    "Shape",
    "Shared",
    "Space",
    "State",
    "Stored",
    "Task",
    "Thread",
    "Tree",
    "Value",
    "View",
    "Walk",
    "Work",
    "Writer",
    "Writes",
    "Written",
    "Fault",
    "Members",
];

/// Public names with a banned word.
pub(crate) const NAMES: &[&str] = &[];

/// The number of banned phrases in messages; lowered when more than three fewer stand.
pub(crate) const MESSAGES_MAX: usize = 0;
