//! Behind an alias the type of the items cannot be seen.
use annals_derive::State;

type Lines = Vec<String>;

#[derive(State)]
struct Chat {
    #[channel(append)]
    lines: Lines,
    #[channel(topic)]
    words: Lines,
}

fn main() {}
