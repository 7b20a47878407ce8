//! The kinds of interned names. *Absent:* their texts.

/// The kind of a named thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Channel = 0,
    Node = 1,
    /// A path of tasks in which a character stands for a number.
    Path = 2,
    List = 3,
}
