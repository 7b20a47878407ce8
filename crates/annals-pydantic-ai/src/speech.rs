//! What is spoken, by the user or by the model.
//!
//! *Absent:* audio formats.

use super::file::Binary;
use super::macros::{record, words};
use annals_base::Map;

words! {
    /// Who speaks. In a request that is the user, in a response the assistant.
    pub enum Speaker {
        /// The user.
        User = "user",
        /// The model.
        Assistant = "assistant",
    }
}

words! {
    /// What a piece of a transcript is.
    pub enum Granularity = Word {
        /// A word.
        Word = "word",
        /// Several.
        Segment = "segment",
    }
}

record! {
    /// When a piece of a transcript was spoken.
    pub struct SpeechTimestamp {
        /// The piece.
        pub text: String,
        /// Milliseconds from the start of the audio.
        pub start_ms: i64,
        /// Its length in milliseconds.
        pub duration_ms: i64,
        /// What it is.
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
    /// What is spoken.
    pub struct SpeechPart {
        /// By whom.
        pub speaker: Speaker,
        /// In writing.
        pub transcript: Option<String>,
        /// As audio, if that is kept.
        pub audio: Option<Binary>,
        /// Milliseconds after which it was broken off.
        pub interrupted_at_ms: Option<i64>,
        /// When each piece of the transcript was spoken.
        pub timestamps: Option<Vec<SpeechTimestamp>>,
        /// The provider's id.
        pub id: Option<String>,
        /// Whose id and details those are.
        pub provider_name: Option<String>,
        /// What the provider adds.
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
