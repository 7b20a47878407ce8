//! A message as the item of a list channel: its parts, laid out as the log stores them.
//!
//! *Absent:* the list and the log.

use super::{Message, MessageError, MessagePartsRef};
use annals_base::{Codec, ItemIndex, Payload, PayloadRef};

impl Message {
    /// Puts the message into a payload: id, type, name, text and token counts go to the index, the rest to the data.
    ///
    /// # Errors
    /// As [`Message::split`].
    pub fn to_payload(&self) -> Result<Payload, MessageError> {
        let parts = self.split()?;
        let index = ItemIndex {
            id: parts.id.map(Into::into),
            kind: Some(parts.kind.into()),
            name: parts.name.map(Into::into),
            tool_calls: parts.tool_calls,
            text: parts.text,
            input_tokens: parts.input_tokens,
            output_tokens: parts.output_tokens,
        };
        Ok(Payload { codec: Codec::MsgPack, data: parts.rest, index: Some(Box::new(index)) })
    }

    /// Reads a message from a payload.
    ///
    /// # Errors
    /// As [`Message::join`].
    pub fn from_payload(stored: PayloadRef<'_>) -> Result<Self, MessageError> {
        let index = stored.index.unwrap_or_default();
        Self::join(MessagePartsRef {
            id: index.id,
            kind: index.kind.unwrap_or_default(),
            name: index.name,
            tool_calls: index.tool_calls,
            text: index.text,
            input_tokens: index.input_tokens,
            output_tokens: index.output_tokens,
            rest: stored.data,
        })
    }
}
