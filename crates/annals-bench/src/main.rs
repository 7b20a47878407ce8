//! Figures.

fn main() {}
