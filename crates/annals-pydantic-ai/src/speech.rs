//! Speech of the user or of the model.
//!
//! *Absent:* audio formats.

use super::file::Binary;
use super::macros::{record, words};
use annals_base::Map;

words! {
    /// The speaker: the user in a request, the assistant in a response.
    pub enum Speaker {
        /// The user.
        User = "user",
        /// The model.
        Assistant = "assistant",
    }
}

words! {
    /// The unit of a transcript's timestamps.
    pub enum Granularity = Word {
        /// A word.
        Word = "word",
        /// Several.
        Segment = "segment",
    }
}

record! {
    /// The time of one unit of a transcript (`SpeechTimestamp`).
    pub struct SpeechTimestamp {
        /// The text of the unit.
        pub text: String,
        /// Milliseconds from the start of the audio.
        pub start_ms: i64,
        /// Its length in milliseconds.
        pub duration_ms: i64,
        /// The unit.
        pub granularity: Granularity,
    }
}

impl SpeechTimestamp {
    /// Returns the time of a word, in milliseconds from the start of the audio.
    pub fn new(text: impl Into<String>, start_ms: i64, duration_ms: i64) -> Self {
        Self { text: text.into(), start_ms, duration_ms, granularity: Granularity::Word }
    }
}

record! {
    /// Speech (`SpeechPart`).
    pub struct SpeechPart {
        /// The speaker.
        pub speaker: Speaker,
        /// The transcript.
        pub transcript: Option<String>,
        /// The audio, if it is retained.
        pub audio: Option<Binary>,
        /// Milliseconds after which it was interrupted.
        pub interrupted_at_ms: Option<i64>,
        /// The times of the units of the transcript.
        pub timestamps: Option<Vec<SpeechTimestamp>>,
        /// The provider's id.
        pub id: Option<String>,
        /// The provider to which the id and the details belong.
        pub provider_name: Option<String>,
        /// Data that the provider adds.
        pub provider_details: Option<Map>,
    } [part_kind = "speech"]
}

impl SpeechPart {
    /// Returns speech without a transcript or audio.
    pub fn new(speaker: Speaker) -> Self {
        Self {
            speaker,
            transcript: None,
            audio: None,
            interrupted_at_ms: None,
            timestamps: None,
            id: None,
            provider_name: None,
            provider_details: None,
        }
    }
}
