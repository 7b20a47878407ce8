//! The events of a response that streams in.
//!
//! *Absent:* the events of running tools; and `part_end` events, which the caller of `streamed.rs` emits.

use super::delta::PartDelta;
use super::macros::{record, variants};
use super::part::ResponsePart;
use super::wire::Wire;
use annals_base::Value;

record! {
    /// A part begins, or replaces the part at its index (`PartStartEvent`).
    pub struct PartStartEvent {
        /// Its index; an earlier part there is replaced.
        pub index: i64,
        /// The part.
        pub part: ResponsePart,
        /// The kind of the part before it.
        pub previous_part_kind: Option<String>,
        /// The system that the provider's adapter stands for.
        pub canonical_system: Option<String>,
    } [event_kind = "part_start"]
}

impl PartStartEvent {
    /// Returns the start of the part at `index`.
    pub fn new(index: i64, part: ResponsePart) -> Self {
        Self { index, part, previous_part_kind: None, canonical_system: None }
    }
}

record! {
    /// A part changes (`PartDeltaEvent`).
    pub struct PartDeltaEvent {
        /// Its index among the parts.
        pub index: i64,
        /// The delta.
        pub delta: PartDelta,
    } [event_kind = "part_delta"]
}

impl PartDeltaEvent {
    /// Returns a delta of the part at `index`.
    pub fn new(index: i64, delta: PartDelta) -> Self {
        Self { index, delta }
    }
}

record! {
    /// A part is complete (`PartEndEvent`).
    pub struct PartEndEvent {
        /// Its index among the parts.
        pub index: i64,
        /// The part.
        pub part: ResponsePart,
        /// The kind of the part after it.
        pub next_part_kind: Option<String>,
        /// The system that the provider's adapter stands for.
        pub canonical_system: Option<String>,
    } [event_kind = "part_end"]
}

impl PartEndEvent {
    /// Returns the end of the part at `index`.
    pub fn new(index: i64, part: ResponsePart) -> Self {
        Self { index, part, next_part_kind: None, canonical_system: None }
    }
}

record! {
    /// The part that began holds the result of the run (`FinalResultEvent`).
    pub struct FinalResultEvent {
        /// The output tool, if it is a call of one.
        pub tool_name: Option<String>,
        /// The call.
        pub tool_call_id: Option<String>,
    } [event_kind = "final_result"]
}

impl FinalResultEvent {
    /// Returns the event; both are `None` for a result that is text.
    pub fn new(tool_name: Option<String>, tool_call_id: Option<String>) -> Self {
        Self { tool_name, tool_call_id }
    }
}

variants! {
    /// One event of a response that streams in (`ModelResponseStreamEvent`).
    pub enum StreamEvent by "event_kind" {
        /// A part begins, or replaces the part at its index (`PartStartEvent`).
        PartStart(PartStartEvent) = "part_start",
        /// A part changes (`PartDeltaEvent`).
        PartDelta(PartDeltaEvent) = "part_delta",
        /// A part is complete (`PartEndEvent`).
        PartEnd(PartEndEvent) = "part_end",
        /// The part that began holds the result of the run (`FinalResultEvent`).
        FinalResult(FinalResultEvent) = "final_result",
    }
}

impl StreamEvent {
    /// Returns the value as JSON.
    pub fn to_value(&self) -> Value {
        self.write()
    }
}
