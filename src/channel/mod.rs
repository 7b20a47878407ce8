//! Floor 1: one value over time.
