//! Instructions as parts: their text, their source, and their changes in the course of a history.
//!
//! *Absent:* the instructions that were in force for a request; those are a text of the request.

use std::fmt;

use super::error::PathPart;
use super::macros::{record, serde_impls, words};
use super::wire::{Wire, WireReader};
use annals_base::{Map, Value};

/// The source of an instruction (`InstructionId`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InstructionId {
    /// The agent, perhaps under a name: `agent`, `agent:NAME`.
    Agent(Option<String>),
    /// The run: `run:NAME`.
    Run(String),
    /// A set of tools, perhaps under a name: `toolset:ID`, `toolset:ID:NAME`.
    Toolset(String, Option<String>),
    /// A capability, perhaps under a name: `capability:ID`, `capability:ID:NAME`.
    Capability(String, Option<String>),
}

impl InstructionId {
    /// Parses the text; `None` if the text does not name a source.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (source, rest) = match text.split_once(':') {
            Some((source, rest)) => (source, Some(rest)),
            None => (text, None),
        };
        let split = |rest: &str| match rest.split_once(':') {
            Some((id, name)) => (id.to_owned(), Some(name.to_owned())),
            None => (rest.to_owned(), None),
        };
        match (source, rest) {
            ("agent", name) => Some(Self::Agent(name.map(str::to_owned))),
            ("run", Some(name)) => Some(Self::Run(name.to_owned())),
            ("toolset", Some(rest)) => {
                let (id, name) = split(rest);
                Some(Self::Toolset(id, name))
            }
            ("capability", Some(rest)) => {
                let (id, name) = split(rest);
                Some(Self::Capability(id, name))
            }
            _ => None,
        }
    }
}

impl fmt::Display for InstructionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, id, name) = match self {
            Self::Agent(name) => ("agent", None, name.as_ref()),
            Self::Run(name) => ("run", None, Some(name)),
            Self::Toolset(id, name) => ("toolset", Some(id), name.as_ref()),
            Self::Capability(id, name) => ("capability", Some(id), name.as_ref()),
        };
        f.write_str(source)?;
        [id, name].into_iter().flatten().try_for_each(|text| write!(f, ":{text}"))
    }
}

impl Wire for InstructionId {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        let read = value.as_str().and_then(Self::parse);
        read.or_else(|| reader.fail("an instruction id such as agent:NAME", &value))
    }

    fn write(&self) -> Value {
        self.to_string().into()
    }
}

/// The id of an instruction. A text that this version does not know reads as `None`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct MaybeInstructionId(pub Option<InstructionId>);

impl Wire for MaybeInstructionId {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        match value {
            Value::Null => Some(Self(None)),
            Value::Str(text) => Some(Self(InstructionId::parse(&text))),
            Value::Map(mut map) => {
                let source = reader.field::<Map>(&mut map, &["source"], |_| None);
                let name = reader.field(&mut map, &["name"], Option::<String>::absent);
                // As the reference reads it: an object without a kind is of a toolset if it has an id.
                match (source?.shift_remove("id"), name?) {
                    (Some(Value::Str(id)), name) => Some(Self(Some(InstructionId::Toolset(id, name)))),
                    (_, name) => Some(Self(Some(InstructionId::Agent(name)))),
                }
            }
            other => reader.fail("a text or an object", &other),
        }
    }

    fn write(&self) -> Value {
        self.0.write()
    }
}

words! {
    /// The effect of a changed instruction on the history.
    pub enum OnChange = Rewrite {
        /// The instruction is replaced.
        Rewrite = "rewrite",
        /// The change is added.
        Append = "append",
    }
}

record! {
    /// An instruction (`InstructionPart`).
    pub struct InstructionPart {
        /// The text.
        pub content: String,
        /// True if it is rendered anew for each request.
        pub dynamic: bool,
        /// The effect of a change on the history.
        pub on_change: OnChange,
        /// Its name.
        pub name: Option<String>,
        /// Its source.
        pub id: MaybeInstructionId = |_| Some(MaybeInstructionId::default()),
    } [part_kind = "instruction"]
}

impl InstructionPart {
    /// Returns an instruction of the agent that does not change.
    pub fn new(content: impl Into<String>) -> Self {
        let (on_change, id) = (OnChange::Rewrite, MaybeInstructionId::default());
        Self { content: content.into(), dynamic: false, on_change, name: None, id }
    }
}

/// Returns the instructions as one text, joined by blank lines (`InstructionPart.join`); `None` if that is empty.
///
/// # Example: two instructions
/// ```
/// use annals_pydantic_ai::{InstructionPart, join_instructions};
///
/// let parts = [InstructionPart::new("Be brief."), InstructionPart::new("Be kind.")];
/// assert_eq!(join_instructions(&parts).as_deref(), Some("Be brief.\n\nBe kind."));
/// ```
pub fn join_instructions(parts: &[InstructionPart]) -> Option<String> {
    let texts: Vec<&str> = parts.iter().map(|part| part.content.as_str()).collect();
    Some(texts.join("\n\n").trim().to_owned()).filter(|text| !text.is_empty())
}

/// Returns the indexes of the instructions, static ones first, otherwise in their order (`InstructionPart.sorted`).
pub fn sort_instructions(parts: &[InstructionPart]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..parts.len()).collect();
    places.sort_by_key(|at| parts[*at].dynamic);
    places
}

record! {
    /// An instruction of which only the hash is retained (`InstructionDigest`).
    pub struct InstructionDigest {
        /// Its source.
        pub id: MaybeInstructionId = |_| Some(MaybeInstructionId::default()),
        /// True if it is rendered anew for each request.
        pub dynamic: bool,
        /// The hash of the text.
        pub content_hash: String,
    } [part_kind = "instruction-digest"]
}

impl InstructionDigest {
    /// Returns the digest of a static instruction with this id.
    pub fn new(id: MaybeInstructionId, content_hash: impl Into<String>) -> Self {
        Self { id, content_hash: content_hash.into(), dynamic: false }
    }
}

/// An instruction as a baseline records it.
#[derive(Clone, Debug, PartialEq)]
pub enum InstructionRecord {
    /// In full.
    Part(InstructionPart),
    /// By its hash.
    Digest(InstructionDigest),
}

impl Wire for InstructionRecord {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        match value.get("part_kind").and_then(Value::as_str) {
            Some("instruction-digest") => InstructionDigest::read(value, reader).map(Self::Digest),
            _ => InstructionPart::read(value, reader).map(Self::Part),
        }
    }

    fn write(&self) -> Value {
        match self {
            Self::Part(part) => part.write(),
            Self::Digest(digest) => digest.write(),
        }
    }
}

record! {
    /// An instruction changes (`InstructionDeltaPart`).
    pub struct InstructionDeltaPart {
        /// The id of the instruction.
        pub id: MaybeInstructionId = |_| None,
        /// The new text; `None` withdraws the instruction.
        pub content: Option<String> = |_| None,
        /// The hash of the old text.
        pub base_hash: Option<String>,
    } [part_kind = "instruction-delta"]
}

impl InstructionDeltaPart {
    /// Returns the new text of an instruction, without the hash of the old one; `None` withdraws the instruction.
    pub fn new(id: MaybeInstructionId, content: Option<String>) -> Self {
        Self { id, content, base_hash: None }
    }
}

record! {
    /// The instructions to which later deltas refer (`InstructionBaselinePart`).
    pub struct InstructionBaselinePart {
        /// All of them.
        pub instructions: Vec<InstructionRecord>,
    } [part_kind = "instruction-baseline"]
}

impl InstructionBaselinePart {
    /// Returns the baseline of these instructions.
    pub fn new(instructions: Vec<InstructionRecord>) -> Self {
        Self { instructions }
    }
}

words! {
    /// The thinking effort of a model.
    pub enum Thinking {
        /// As little as possible.
        Minimal = "minimal",
        /// Little.
        Low = "low",
        /// Some.
        Medium = "medium",
        /// Much.
        High = "high",
        /// Very much.
        XHigh = "xhigh",
        /// As much as possible.
        Max = "max",
    }
}

/// Settings of the model that change; those that this version does not know are dropped.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SettingsChange {
    /// The thinking effort: `None` if it does not change, `Some(None)` if it is reset, or the new value.
    pub thinking: Option<Option<Thinking>>,
}

impl Wire for SettingsChange {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        let mut map = reader.object(value)?;
        let thinking = match map.shift_remove("thinking") {
            None => None,
            Some(value) => {
                Some(reader.at(PathPart::Name("thinking".into()), |reader| Option::<Thinking>::read(value, reader))?)
            }
        };
        Some(Self { thinking })
    }

    fn write(&self) -> Value {
        Value::Map(self.thinking.iter().map(|thinking| ("thinking".to_owned(), thinking.write())).collect())
    }
}

serde_impls!(InstructionId, MaybeInstructionId, InstructionRecord, SettingsChange);
