//! Functions that the engine and the crates below it share: hashes, a stopwatch, and the texts of panics and errors.
//! They are not part of the public interface: a release may change or remove each of them without a word in the
//! changelog.
//!
//! *Absent:* anything that an application, a backend or an executor of its own needs.

pub mod hash;

pub use crate::time::Stopwatch;

/// Returns the message of a caught panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

/// Writes the message of an error and those of its sources, a line each.
///
/// # Errors
/// As the formatter.
pub fn write_with_sources(error: &dyn std::error::Error, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
    let mut shown = error.to_string();
    f.write_str(&shown)?;
    let mut source = error.source();
    while let Some(error) = source {
        let text = error.to_string();
        // Most messages end with that of their source.
        if !shown.ends_with(&text) {
            write!(f, "\ncaused by: {text}")?;
            shown = text;
        }
        source = error.source();
    }
    Ok(())
}
