//! The command `annals`.

fn main() {}
