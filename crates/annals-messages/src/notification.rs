//! Notes on where a message comes from, and ids that LangChain makes up.

use super::Message;
use annals_base::{IdSource, Map, Value};

/// The source of a message, and the data of the source.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Notification {
    /// The name of the source.
    pub source: String,
    /// The data of the source.
    pub data: Option<Map>,
}

impl Notification {
    /// Returns the name of a source, without data.
    pub fn new(source: impl Into<String>) -> Self {
        Self { source: source.into(), data: None }
    }
}

impl Message {
    /// Sets the source of the message, in place of an earlier one.
    ///
    /// # Example
    /// ```
    /// use annals_messages::{Message, Notification};
    ///
    /// let note = Notification::new("timer");
    /// let message = Message::human("it is time").with_notification(note.clone());
    /// assert_eq!(message.notification(), Some(note));
    /// ```
    #[doc(alias = "add_notification_metadata")]
    #[must_use]
    pub fn with_notification(mut self, note: Notification) -> Self {
        self.additional_kwargs.shift_remove("lc_data");
        self.additional_kwargs.insert("lc_source".into(), note.source.into());
        if let Some(data) = note.data {
            self.additional_kwargs.insert("lc_data".into(), data.into());
        }
        self
    }

    /// Returns where the message comes from, if it is noted.
    #[doc(alias = "get_notification_metadata")]
    pub fn notification(&self) -> Option<Notification> {
        let source = self.additional_kwargs.get("lc_source")?.as_str()?.to_owned();
        let data = self.additional_kwargs.get("lc_data").and_then(Value::as_map).cloned();
        Some(Notification { source, data })
    }
}

/// Returns the id, or if there is none or it is empty, a random one that shows by its `lc_` that it is made up.
///
/// # Example
/// ```
/// use annals_base::IdSource;
/// use annals_messages::ensure_id;
///
/// assert_eq!(ensure_id(Some("a".into()), &mut IdSource::from_seed(1)), "a");
/// assert!(ensure_id(None, &mut IdSource::from_seed(1)).starts_with("lc_"));
/// ```
pub fn ensure_id(id: Option<String>, ids: &mut IdSource) -> String {
    id.filter(|id| !id.is_empty()).unwrap_or_else(|| format!("lc_{}", ids.uuid_v4()))
}
