//! The kinds of interned names. *Absent:* their texts.

/// The kind of a named thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Channel = 0,
    Node = 1,
    Task = 2,
    List = 3,
}
