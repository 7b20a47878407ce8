//! The first write can become the value only if it is of its type.
use annals_derive::State;

#[derive(State)]
struct Count {
    #[channel(reduce = add, write = u8, starts_empty)]
    n: u64,
    #[channel(last, starts_empty)]
    m: u64,
}

fn main() {}
