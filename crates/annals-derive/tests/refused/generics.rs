//! What is stored has one type.
use annals_derive::State;

#[derive(State)]
struct Holder<T> {
    held: T,
}

fn main() {}
