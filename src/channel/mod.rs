//! Floor 1: one value over time.

pub mod list;

pub use list::{Keyed, List};
