//! Each attribute has its place: `channel` on a field, `state` on the struct.
use annals_derive::State;

#[derive(State)]
#[channel(messages)]
struct Chat {
    #[state(part_of = Whole)]
    topic: String,
    #[channel]
    total: i64,
    #[channel = "last"]
    lines: Vec<String>,
}

fn main() {}
