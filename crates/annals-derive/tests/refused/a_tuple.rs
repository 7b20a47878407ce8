//! A channel needs a name.
use annals_derive::State;

#[derive(State)]
struct Pair(i64, i64);

fn main() {}
