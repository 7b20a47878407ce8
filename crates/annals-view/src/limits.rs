//! The maxima of texts, and how much is read at once.

/// Characters of a value on one line.
pub(crate) const BRIEF_CHARS_MAX: usize = 100;
/// Characters of the begin of a message that a checkpoint added.
pub(crate) const BEGIN_CHARS_MAX: usize = 224;
/// Newest items that are searched for the tool calls of helpers at once; then twice as many as before.
pub(crate) const CALL_ITEMS_FIRST: u64 = 256;
