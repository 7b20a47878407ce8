//! Functions that the crates of this workspace share: hashes, a stopwatch, and the text of a panic. They are not part
//! of the public interface: a release may change or remove each of them without a word in the changelog.
//!
//! *Absent:* anything that an application, a backend or an executor of its own needs.

pub mod hash;

pub use crate::time::Stopwatch;

/// Returns the message of a caught panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
