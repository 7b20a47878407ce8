//! The maxima of texts.

/// Characters of a value on one line.
pub(crate) const BRIEF_CHARS_MAX: usize = 100;
/// Characters of the begin of a message that a checkpoint added.
pub(crate) const BEGIN_CHARS_MAX: usize = 224;
