//! Annotations: the sources of a text.
//!
//! *Absent:* how a provider writes it.

use super::factory::factory;
use super::fields::{object, value_form};
use crate::MessageError;
use annals_base::{IdSource, Map, Value};

/// One annotation of a text block.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Annotation {
    /// A source (`citation`).
    Citation(Citation),
    /// An annotation outside the standard (`non_standard_annotation`), as the provider gave it.
    NonStandard(NonStandardAnnotation),
    /// Any other value, verbatim.
    Other(Value),
}

object! {
    /// The source of a part of a text.
    Citation {
        /// The address of the source.
        url: Option<String>,
        /// Its title.
        title: Option<String>,
        /// The start of the cited part of the answer, in characters.
        start_index: Option<i64>,
        /// The end of the cited part, in characters.
        end_index: Option<i64>,
        /// The cited text of the source.
        cited_text: Option<String>,
    }
}

object! {
    /// An annotation of a provider, verbatim.
    NonStandardAnnotation {
        /// The annotation of the provider.
        value: Value,
    }
}

impl Annotation {
    /// Makes a citation from named fields, as the factory of LangChain does: nulls are left out, unknown names become
    /// extras, and there is an id afterwards.
    ///
    /// # Errors
    /// None at present: every field of a citation may be missing.
    pub fn create(fields: Map, ids: &mut IdSource) -> Result<Self, MessageError> {
        factory("citation", fields, ids).map(|map| Self::from(Value::Map(map)))
    }
}

impl From<Value> for Annotation {
    fn from(value: Value) -> Self {
        let kind = value.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        let read = match (kind.as_str(), value) {
            ("citation", Value::Map(map)) => Citation::read(map).map(Self::Citation),
            ("non_standard_annotation", Value::Map(map)) => NonStandardAnnotation::read(map).map(Self::NonStandard),
            (_, other) => return Self::Other(other),
        };
        read.unwrap_or_else(|map| Self::Other(Value::Map(map)))
    }
}

impl From<Annotation> for Value {
    fn from(annotation: Annotation) -> Self {
        match annotation {
            Annotation::Citation(citation) => Self::Map(citation.write("citation")),
            Annotation::NonStandard(other) => Self::Map(other.write("non_standard_annotation")),
            Annotation::Other(value) => value,
        }
    }
}

value_form!(Annotation);
