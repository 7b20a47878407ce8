//! Errors of states and schemas. *Absent:* errors of the store.

use std::sync::Arc;

use crate::base::CodecError;
use crate::channel::ChannelError;
use crate::message::MessageError;

/// A field could not be read, written or changed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The writes of a superstep break the rule of a channel.
    #[error("channel {channel:?} was not updated: {source}")]
    Channel {
        /// The channel.
        channel: Arc<str>,
        /// The rule.
        source: ChannelError,
    },
    /// The channel is not a list of such items.
    #[error("channel {channel:?} is not a list of {expected}")]
    NoList {
        /// The channel.
        channel: Arc<str>,
        /// The items that were asked for.
        expected: &'static str,
    },
    /// Messages cannot be merged or stored.
    #[error("channel {channel:?} was not updated: {source}")]
    Message {
        /// The channel.
        channel: Arc<str>,
        /// The reason.
        source: MessageError,
    },
    /// A value does not fit the type of its field. The other channels stay readable.
    #[error("channel {channel:?} expects {expected}: {source}")]
    Codec {
        /// The channel.
        channel: Arc<str>,
        /// The Rust type of the field.
        expected: &'static str,
        /// The decoding error.
        source: CodecError,
    },
    /// A stored value does not fit the type of its field, which has changed since. The other channels stay readable,
    /// see [`Snapshot`](crate::history::Snapshot); [`Schema::migrate`](super::Schema::migrate) brings the value over.
    #[error("channel {channel:?} expects {expected}, but {stored} is stored: {source}")]
    Misfit {
        /// The channel.
        channel: Arc<str>,
        /// The Rust type of the field.
        expected: &'static str,
        /// The kind of value that is stored, as [`Value::kind`](crate::base::Value::kind) names it.
        stored: &'static str,
        /// The decoding error.
        source: CodecError,
    },
    /// A stored value could not be brought over to the type of its field.
    #[error("the value of channel {channel:?} could not be migrated: {reason}")]
    Migration {
        /// The channel.
        channel: Arc<str>,
        /// The message of the migration.
        reason: String,
    },
    /// A value of another kind was given than the field takes.
    #[error("channel {channel:?} expects {expected}, not {found}")]
    WrongType {
        /// The channel.
        channel: Arc<str>,
        /// The type that the field takes.
        expected: &'static str,
        /// The type or kind that was given.
        found: &'static str,
    },
    /// A reducer panicked.
    #[error("the reducer of channel {channel:?} panicked: {reason}")]
    Panicked {
        /// The channel.
        channel: Arc<str>,
        /// The message of the panic.
        reason: String,
    },
    /// The schema has no such channel.
    #[error("the state has no channel {channel:?}; its channels are {known:?}")]
    UnknownChannel {
        /// The name that was given.
        channel: String,
        /// The names there are.
        known: Vec<Arc<str>>,
    },
}

impl StateError {
    /// Returns whether code of the user failed: a reducer returned an error or panicked.
    pub fn is_user(&self) -> bool {
        matches!(self, Self::Panicked { .. } | Self::Channel { source: ChannelError::Reducer { .. }, .. })
    }

    /// Returns LangGraph's error code, if there is one: `INVALID_CONCURRENT_GRAPH_UPDATE`.
    pub fn code(&self) -> Option<&'static str> {
        match self {
            Self::Channel {
                source: ChannelError::OneValuePerStep { .. } | ChannelError::OneOverwritePerStep { .. },
                ..
            } => Some("INVALID_CONCURRENT_GRAPH_UPDATE"),
            _ => None,
        }
    }

    /// Returns the name of the error class that LangGraph raises in its place.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Channel { source: ChannelError::Reducer { .. }, .. } | Self::Panicked { .. } => "Exception",
            Self::Channel { .. } | Self::UnknownChannel { .. } => "InvalidUpdateError",
            Self::Message { source, .. } => source.class().as_str(),
            _ => "TypeError",
        }
    }
}
