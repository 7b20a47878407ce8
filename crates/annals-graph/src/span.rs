//! Spans of `tracing`, if the feature is on: ids and counts, never values.

/// Opens a span until the end of the block.
macro_rules! span {
    ($name:literal $(, $($fields:tt)+)?) => {
        #[cfg(feature = "tracing")]
        let _span = tracing::debug_span!(target: "annals", $name, $($($fields)+)?).entered();
    };
}
pub(crate) use span;
