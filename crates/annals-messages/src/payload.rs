//! A message as the item of a list channel: its parts, laid out as the log stores them.
//!
//! *Absent:* the list and the log.

use super::parts::MessagePartsRef;
use super::{Message, MessageError};
use annals_base::{ItemIndex, Payload, PayloadRef};

impl Message {
    /// Puts the message into a payload: id, type, name, text and token counts go to the index, the rest to the data.
    ///
    /// # Errors
    /// [`MessageError::Codec`] if the rest is longer than a stored value may be.
    pub fn to_payload(&self) -> Result<Payload, MessageError> {
        let parts = self.split()?;
        debug_assert_eq!(parts.kind, self.kind(), "the index has the type of the message");
        let mut index = ItemIndex::default();
        index.id = parts.id.map(Into::into);
        index.kind = Some(parts.kind.into());
        index.name = parts.name.map(Into::into);
        index.tool_calls = parts.tool_calls;
        index.text = parts.text;
        index.input_tokens = parts.input_tokens;
        index.output_tokens = parts.output_tokens;
        Ok(Payload::new(parts.rest).with_index(index))
    }

    /// Reads a message from a payload.
    ///
    /// # Errors
    /// [`MessageError`] if the payload does not come from [`to_payload`](Self::to_payload).
    pub fn from_payload(stored: PayloadRef<'_>) -> Result<Self, MessageError> {
        let index = stored.index.unwrap_or_default();
        let message = Self::join(MessagePartsRef {
            id: index.id,
            kind: index.kind.unwrap_or_default(),
            name: index.name,
            tool_calls: index.tool_calls,
            text: index.text,
            input_tokens: index.input_tokens,
            output_tokens: index.output_tokens,
            rest: stored.data,
        })?;
        debug_assert_eq!(message.kind(), index.kind.unwrap_or_default(), "the message has the type of its index");
        Ok(message)
    }
}
