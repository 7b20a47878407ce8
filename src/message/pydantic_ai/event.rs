//! What the outside sees of a response that streams in.
//!
//! *Absent:* the events of tools that run.

use super::delta::PartDelta;
use super::macros::{record, variants};
use super::part::ResponsePart;
use super::wire::Wire;
use crate::base::Value;

record! {
    /// A part begins, or is replaced.
    pub struct PartStartEvent {
        /// Its place; one that came before is replaced.
        pub index: i64,
        /// The part.
        pub part: ResponsePart,
        /// The kind of the part before it.
        pub previous_part_kind: Option<String>,
        /// Which system the provider counts as.
        pub canonical_system: Option<String>,
    } [event_kind = "part_start"]
}

record! {
    /// A part changes.
    pub struct PartDeltaEvent {
        /// Its place.
        pub index: i64,
        /// The change.
        pub delta: PartDelta,
    } [event_kind = "part_delta"]
}

record! {
    /// A part is whole.
    pub struct PartEndEvent {
        /// Its place.
        pub index: i64,
        /// The part.
        pub part: ResponsePart,
        /// The kind of the part after it.
        pub next_part_kind: Option<String>,
        /// Which system the provider counts as.
        pub canonical_system: Option<String>,
    } [event_kind = "part_end"]
}

record! {
    /// The part that began holds the result of the run.
    pub struct FinalResultEvent {
        /// The output tool, if it is a call of one.
        pub tool_name: Option<String>,
        /// The call.
        pub tool_call_id: Option<String>,
    } [event_kind = "final_result"]
}

variants! {
    /// One event of a response that streams in.
    pub enum StreamEvent by "event_kind" {
        /// A part begins, or is replaced.
        PartStart(PartStartEvent) = "part_start",
        /// A part changes.
        PartDelta(PartDeltaEvent) = "part_delta",
        /// A part is whole.
        PartEnd(PartEndEvent) = "part_end",
        /// The part that began holds the result of the run.
        FinalResult(FinalResultEvent) = "final_result",
    }
}

impl StreamEvent {
    /// Returns the JSON form.
    pub fn to_value(&self) -> Value {
        self.write()
    }
}

/// Completes the events of a parts manager: each part ends before the next one begins, and knows its neighbours.
#[derive(Clone, Debug, Default)]
pub struct PartEnds {
    open: Option<(i64, ResponsePart)>,
}

impl PartEnds {
    /// Returns the events to be shown for one of a parts manager.
    pub fn push(&mut self, event: StreamEvent) -> Vec<StreamEvent> {
        match event {
            StreamEvent::PartStart(mut start) => {
                let before = self.open.replace((start.index, start.part.clone()));
                // What is replaced in its place has not ended.
                let before = before.filter(|(index, _)| *index != start.index);
                let end = before.map(|(index, part)| {
                    start.previous_part_kind = Some(part.kind().to_owned());
                    let next_part_kind = Some(start.part.kind().to_owned());
                    PartEndEvent { index, part, next_part_kind, canonical_system: start.canonical_system.clone() }
                });
                end.map(StreamEvent::from).into_iter().chain([start.into()]).collect()
            }
            StreamEvent::PartDelta(event) => {
                if let Some((_, part)) = self.open.as_mut().filter(|(index, _)| *index == event.index) {
                    // The parts manager has made the change already: it can be made.
                    _ = event.delta.apply(part);
                }
                vec![event.into()]
            }
            other => vec![other],
        }
    }

    /// Returns the end of the last part, when nothing more comes.
    pub fn finish(&mut self) -> Option<StreamEvent> {
        let (index, part) = self.open.take()?;
        Some(PartEndEvent { index, part, next_part_kind: None, canonical_system: None }.into())
    }
}
