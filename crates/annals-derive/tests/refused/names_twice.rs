//! Two fields cannot be one channel.
use annals_derive::State;

#[derive(State)]
struct Chat {
    topic: String,
    #[channel(name = "topic")]
    subject: String,
}

fn main() {}
