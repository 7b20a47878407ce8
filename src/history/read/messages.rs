//! The messages of a snapshot, typed, and those among them that a program looks for.
//!
//! *Absent:* messages of other snapshots, which a search finds ([`Store::search`](crate::Store::search)).

use super::snapshot::{Snapshot, item_message};
use crate::base::setters;
use crate::message::{Message, Usage, first_words};
use crate::store::log::LogReads;
use crate::store::record::ItemIndexRef;
use crate::store::{ItemRange, StoreError};

/// Positions of the list of messages in which the first words of a thread are looked for.
const FIRST_POSITIONS: u64 = 32;

/// Which messages of a list to find: those that fit every criterion. Ids, types, names and tool calls are compared in
/// the index, and only what fits is decoded.
///
/// # Example: what a model asked of a tool, and what came of it
/// ```
/// use annals::history::MessageQuery;
/// use annals::message::{ToolCall, Usage};
/// use annals::prelude::*;
///
/// # #[derive(State, Clone, Default)]
/// # struct Chat {
/// #     #[channel(messages)]
/// #     messages: Messages,
/// # }
/// # fn main() -> Result<()> {
/// # let thread = Store::memory().thread("chat")?;
/// let call = ToolCall::new("weather", [("city", "Bern")]).with_id("call-1");
/// let request = Message::ai("").with_tool_call(call).with_usage(Usage::new(12, 3));
/// let messages = [Message::human("Rain?"), request, Message::tool("12 °C", "call-1"), Message::ai("No.")];
/// thread.update(Chat::update().messages(messages))?;
///
/// let head = thread.head()?.expect("it was written");
/// let found = head.find_messages("messages", &MessageQuery::new().tool_call("call-1"))?;
/// assert_eq!(found.iter().map(|m| m.kind()).collect::<Vec<_>>(), ["ai", "tool"]);
/// assert_eq!(head.find_messages("messages", &MessageQuery::new().kind("ai").text("No"))?.len(), 1);
/// assert_eq!(head.token_usage("messages")?, Usage::new(12, 3));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessageQuery {
    id: Option<String>,
    kind: Option<String>,
    name: Option<String>,
    tool_call: Option<String>,
    text: Option<String>,
}

impl MessageQuery {
    /// Finds every message.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Finds only messages with this id.
        #[must_use]
        pub fn id(id: impl Into<String>) { .id = Some(id.into()) }

        /// Finds only messages of this type, as [`Message::kind`] says it.
        #[must_use]
        pub fn kind(kind: impl Into<String>) { .kind = Some(kind.into()) }

        /// Finds only messages with this name.
        #[must_use]
        pub fn name(name: impl Into<String>) { .name = Some(name.into()) }

        /// Finds only messages that make the tool call with this id, or answer it.
        #[must_use]
        pub fn tool_call(id: impl Into<String>) { .tool_call = Some(id.into()) }

        /// Finds only messages in whose [text](Message::text) this stands.
        #[must_use]
        pub fn text(part: impl Into<String>) { .text = Some(part.into()) }
    }

    /// Returns whether a message may fit by its index.
    fn may_fit(&self, index: ItemIndexRef<'_>) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| wanted.is_none() || wanted.as_deref() == found;
        let calls =
            || index.tool_calls.and_then(|ids| serde_json::from_str::<Vec<String>>(ids).ok()).unwrap_or_default();
        is(&self.id, index.id)
            && is(&self.kind, index.kind)
            && is(&self.name, index.name)
            && self.tool_call.as_ref().is_none_or(|id| calls().contains(id))
            && index.text.is_none_or(|text| self.has_text(text))
    }

    fn has_text(&self, text: &str) -> bool {
        self.text.as_deref().is_none_or(|part| text.contains(part))
    }
}

impl Snapshot {
    /// Returns messages of a list channel, oldest first. Items that are not messages are left out.
    ///
    /// # Errors
    /// As [`Snapshot::values`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    /// use annals::store::ItemRange;
    ///
    /// # #[derive(State, Clone, Default)]
    /// # struct Chat {
    /// #     #[channel(messages)]
    /// #     messages: Messages,
    /// # }
    /// # fn main() -> Result<()> {
    /// # let thread = Store::memory().thread("chat")?;
    /// # thread.update(Chat::update().messages([Message::human("hi")]))?;
    /// let last = thread.head()?.expect("it was written").messages("messages", ItemRange::Tail(1))?;
    /// assert_eq!(last[0].text(), "hi");
    /// # Ok(())
    /// # }
    /// ```
    pub fn messages(&self, channel: &str, range: ItemRange) -> Result<Vec<Message>, StoreError> {
        let mut messages = Vec::new();
        self.visit_items(channel, range, |row| {
            messages.extend(item_message(row.payload)?);
            Ok(())
        })?;
        Ok(messages)
    }

    /// Returns the [first words](crate::message::first_words) of the first human message of the channel `messages`, by
    /// which a thread without a title is shown; `None` if none of its first 32 positions has any.
    ///
    /// # Errors
    /// As [`Snapshot::values`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("chat")?;
    /// thread.append("messages", [Message::system("Be brief."), Message::human("  Where is\n Bern?")])?;
    /// let head = thread.head()?.expect("it was written");
    /// assert_eq!(head.first_words()?.as_deref(), Some("Where is Bern?"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn first_words(&self) -> Result<Option<String>, StoreError> {
        let messages = self.messages("messages", ItemRange::Positions(0, FIRST_POSITIONS))?;
        let mut humans = messages.iter().filter(|message| message.kind() == "human");
        Ok(humans.find_map(|message| first_words(&message.text())))
    }

    /// Returns the message of a list channel with an id, without reading the others; `None` if it has none.
    ///
    /// # Errors
    /// As [`Snapshot::values`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # #[derive(State, Clone, Default)]
    /// # struct Chat {
    /// #     #[channel(messages)]
    /// #     messages: Messages,
    /// # }
    /// # fn main() -> Result<()> {
    /// # let thread = Store::memory().thread("chat")?;
    /// thread.update(Chat::update().messages([Message::human("hi").with_id("1")]))?;
    /// let message = thread.at("@")?.message("messages", "1")?.expect("it was written");
    /// assert_eq!(message.text(), "hi");
    /// # Ok(())
    /// # }
    /// ```
    pub fn message(&self, channel: &str, id: &str) -> Result<Option<Message>, StoreError> {
        let mut message = None;
        self.store().backend().find_item(self.point(), channel, id, &mut |row| {
            message = item_message(row.payload)?;
            Ok(())
        })?;
        Ok(message)
    }

    /// Returns the messages of a list channel that a query finds, oldest first.
    ///
    /// # Errors
    /// As [`Snapshot::values`].
    pub fn find_messages(&self, channel: &str, query: &MessageQuery) -> Result<Vec<Message>, StoreError> {
        let mut found = Vec::new();
        self.visit_items(channel, ItemRange::All, |row| {
            if row.payload.index.is_some_and(|index| query.may_fit(index)) {
                let message = item_message(row.payload)?;
                found.extend(message.filter(|message| query.has_text(&message.text())));
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Returns the tokens that the messages of a list channel say were used, as far as the index holds them: counts
    /// below 2^32.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn token_usage(&self, channel: &str) -> Result<Usage, StoreError> {
        let (mut read, mut written) = (0_i64, 0_i64);
        self.visit_items(channel, ItemRange::All, |row| {
            let index = row.payload.index.unwrap_or_default();
            read = read.saturating_add(index.input_tokens.unwrap_or_default().into());
            written = written.saturating_add(index.output_tokens.unwrap_or_default().into());
            Ok(())
        })?;
        Ok(Usage::new(read, written))
    }
}
