//! A state is a struct.
use annals_derive::State;

#[derive(State)]
enum Mood {
    Good,
}

fn main() {}
