//! All wrong words are reported at once.
use annals_derive::State;

#[derive(State)]
struct Chat {
    #[channel(lats)]
    topic: String,
    #[channel(last, append)]
    lines: Vec<String>,
    #[channel(reduce)]
    total: i64,
    #[channel(last, unguarded)]
    guarded: i64,
}

fn main() {}
