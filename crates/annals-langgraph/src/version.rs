//! Versions of channels: the numbers of the log, and the texts of LangGraph.
//!
//! Invariant: a version whose number says all of it needs nothing but the number. *Absent:* the versions that say
//! more; the state of a checkpoint lists them.

use annals_base::{Map, Value};

use crate::{SaverVersion, SeenVersions};

/// The text after the digits and the point.
const SUFFIX: &str = "0";
/// The digits of the number.
const DIGITS: usize = 32;

/// The form in which the versions of a checkpoint are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VersionForm {
    /// As [`SaverVersion::Text`] with the suffix of this saver.
    Text,
    /// As [`SaverVersion::Integer`].
    Integer,
}

impl VersionForm {
    /// Returns the version that a number stands for.
    pub(crate) fn version(self, number: u64) -> SaverVersion {
        match self {
            Self::Text => SaverVersion::Text(format!("{number:0DIGITS$}.{SUFFIX}")),
            Self::Integer => SaverVersion::Integer(number.cast_signed()),
        }
    }

    /// Returns the number that stands for a version, if one does.
    pub(crate) fn number(self, version: &SaverVersion) -> Option<u64> {
        let number = match (self, version) {
            (Self::Integer, SaverVersion::Integer(number)) => u64::try_from(*number).ok(),
            (Self::Text, SaverVersion::Text(text)) => {
                let (digits, suffix) = text.split_once('.')?;
                let is_plain = digits.len() == DIGITS && suffix == SUFFIX && digits.bytes().all(|b| b.is_ascii_digit());
                if is_plain { digits.parse().ok() } else { None }
            }
            _ => None,
        };
        number.filter(|number| *number > 0 && i64::try_from(*number).is_ok())
    }
}

/// Returns the version after another one.
pub(crate) fn next(current: Option<&SaverVersion>) -> SaverVersion {
    let number = match current {
        None => 0,
        Some(SaverVersion::Integer(number)) => u64::try_from(*number).unwrap_or(0),
        // A float that is not a number counts as 0.
        Some(SaverVersion::Float(number)) => *number as u64,
        Some(SaverVersion::Text(text)) => text.split('.').next().and_then(|number| number.parse().ok()).unwrap_or(0),
    };
    VersionForm::Text.version(number.saturating_add(1))
}

pub(crate) fn to_value(version: &SaverVersion) -> Value {
    match version {
        SaverVersion::Integer(number) => (*number).into(),
        SaverVersion::Text(text) => text.as_str().into(),
        SaverVersion::Float(number) => (*number).into(),
    }
}

pub(crate) fn from_value(value: &Value) -> Option<SaverVersion> {
    match value {
        Value::Int(number) => Some(SaverVersion::Integer(*number)),
        Value::Str(text) => Some(SaverVersion::Text(text.clone())),
        Value::Float(number) => Some(SaverVersion::Float(*number)),
        _ => None,
    }
}

pub(crate) fn seen_to_value(seen: &SeenVersions) -> Value {
    Value::Map(seen.iter().map(|(channel, version)| (channel.clone(), to_value(version))).collect())
}

pub(crate) fn seen_from_map(map: &Map) -> Option<SeenVersions> {
    map.iter().map(|(channel, version)| Some((channel.clone(), from_value(version)?))).collect()
}
