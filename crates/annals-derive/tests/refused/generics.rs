//! A state outlives the run that made it.
use annals_derive::State;

#[derive(State)]
struct Holder<'a> {
    held: &'a str,
}

fn main() {}
