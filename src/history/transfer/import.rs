//! Reading a text of messages into a new thread.
//!
//! *Absent:* merging: what is read stands in the list as it comes, messages with one id beside each other included.

use std::io::{self, BufReader, Read};

use super::{Problems, TransferError};
use crate::base::limits::{IMPORT_BYTES_MAX, IMPORT_MESSAGES_MAX};
use crate::base::{CheckpointId, IdSource, Namespace, Payload, Timestamp, Value};
use crate::history::Thread;
use crate::message::pydantic_ai::Fresh;
use crate::message::text::{JsonItems, JsonItemsError};
use crate::message::{Message, MessageError, MessageForm, Role, ensure_ids};
use crate::store::batch::{Change, ChangeValue, Data, ItemChange, ItemOp, payload_fits};
use crate::store::{Batch, NewCheckpoint, Parent, Source};

/// In which form messages are imported, and where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportOptions {
    form: MessageForm,
    channel: String,
}

impl ImportOptions {
    /// Imports LangChain's dictionaries into the channel `messages`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the form of each message.
    #[must_use]
    pub fn form(mut self, form: MessageForm) -> Self {
        self.form = form;
        self
    }

    /// Sets the channel.
    #[must_use]
    pub fn channel(mut self, channel: impl Into<String>) -> Self {
        self.channel = channel.into();
        self
    }
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self { form: MessageForm::default(), channel: "messages".into() }
    }
}

/// What came of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportReport {
    /// Items read.
    pub items: u64,
    /// Messages stored, those included that hold an item which was not understood.
    pub messages: u64,
    /// Items that could not be read or stored as messages, and messages of a type that is not known. They are kept as they are,
    /// see [`Message::keep`] and [`Role::Other`].
    pub not_understood: Problems,
    /// Messages that came without an id and were given one.
    pub ids_given: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
}

impl Thread {
    /// Makes this thread from a text of messages: a JSON list of objects, or objects one after another (JSON lines).
    ///
    /// The text is read by [`JsonItems`], which holds one item at a time and takes what Python writes, and every [`IMPORT_MESSAGES_MAX`] messages a checkpoint is committed. Nothing is
    /// dropped silently: an item that cannot be read as a message is kept as it is, counted, and written again by an
    /// export. Messages without an id get one; nothing is merged.
    ///
    /// # Errors
    /// [`TransferError::Exists`]; [`TransferError::NotJson`], [`TransferError::Io`] and [`TransferError::Message`], and
    /// then what was read before is in the thread; [`TransferError::Store`].
    ///
    /// # Example
    /// ```
    /// use annals::history::ImportOptions;
    /// use annals::message::MessageForm;
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let text = r#"[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}, 5]"#;
    /// let thread = Store::memory().thread("chat")?;
    /// let report = thread.import_messages(&ImportOptions::new().form(MessageForm::OpenAi), text.as_bytes())?;
    /// assert_eq!((report.messages, report.not_understood.count), (3, 1));
    /// assert_eq!(thread.head()?.expect("it was made").tail("messages", 9)?.len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn import_messages(&self, options: &ImportOptions, input: impl Read) -> Result<ImportReport, TransferError> {
        if self.head()?.is_some() {
            return Err(TransferError::Exists { thread: self.id().to_string() });
        }
        let mut import = Import {
            thread: self,
            options,
            report: ImportReport::default(),
            began: self.store().now(),
            ids: IdSource::from_seed(self.store().mint_seed()),
            pending: Vec::new(),
            pending_bytes: 0,
            slot: 0,
            head: None,
        };
        let mut items = JsonItems::new(BufReader::new(input));
        match items.try_for_each(|item| import.item(item?)) {
            Ok(()) => import.commit(true)?,
            Err(ended) => {
                import.commit(false)?;
                return Err(ended.told(import.slot));
            }
        }
        Ok(import.report)
    }
}

struct Import<'a> {
    thread: &'a Thread,
    options: &'a ImportOptions,
    report: ImportReport,
    began: Timestamp,
    ids: IdSource,
    /// What the next checkpoint brings.
    pending: Vec<Payload>,
    pending_bytes: usize,
    /// The slot of the next message: how many are stored.
    slot: u64,
    head: Option<CheckpointId>,
}

impl Import<'_> {
    fn item(&mut self, item: Value) -> Result<(), Ended> {
        let position = self.report.items;
        self.report.items += 1;
        let read = self.options.form.read(item.clone(), &mut Fresh::new(&self.began, &mut self.ids));
        let (payloads, given) = match read.and_then(|messages| self.stored(position, messages)) {
            Ok(stored) => stored,
            Err(error) => {
                self.report.not_understood.note(position, error);
                let kept = self.stored(position, vec![Message::keep(item)]);
                kept.map_err(|source| Ended(TransferError::Message { position, source, messages: 0 }))?
            }
        };
        self.report.ids_given += given;
        for payload in payloads {
            let text = payload.index.as_ref().and_then(|index| index.text.as_ref());
            self.pending_bytes += payload.data.len() + text.map_or(0, String::len);
            self.pending.push(payload);
            if self.pending.len() == IMPORT_MESSAGES_MAX || self.pending_bytes >= IMPORT_BYTES_MAX {
                self.commit(false)?;
            }
        }
        Ok(())
    }

    /// Returns messages as they are stored, and how many were given an id.
    fn stored(&mut self, position: u64, mut messages: Vec<Message>) -> Result<(Vec<Payload>, u64), MessageError> {
        let given = ensure_ids(&mut messages, &mut self.ids) as u64;
        let fits = |payload: Payload| match payload_fits(&payload) {
            Ok(()) => Ok(payload),
            Err(error) => Err(MessageError::value(error.to_string())),
        };
        let payloads = messages.iter().map(|message| message.to_payload().and_then(fits)).collect::<Result<_, _>>()?;
        for message in &messages {
            if let (Role::Other { kind }, None) = (&message.role, message.kept()) {
                self.report.not_understood.note(position, format!("the type {kind:?} is not known"));
            }
        }
        Ok((payloads, given))
    }

    /// Commits what is pending; if there is nothing, only when it is the end and no checkpoint was made.
    fn commit(&mut self, end: bool) -> Result<(), TransferError> {
        if self.pending.is_empty() && !(end && self.head.is_none()) {
            return Ok(());
        }
        let (store, step) = (self.thread.store(), self.report.checkpoints as i64);
        let mut batch = Batch::new(self.thread.id().clone(), Namespace::root(), self.head);
        let added = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        let messages = added.len() as u64;
        let put = |(slot, payload)| ItemChange { slot, op: ItemOp::Put(Data::New(payload)), task: None };
        let items: Vec<ItemChange> = (self.slot..).zip(added).map(put).collect();
        let change = Change {
            channel: self.options.channel.as_str().into(),
            version: self.report.checkpoints + 1,
            value: ChangeValue::Items(items),
            task: None,
        };
        let id = store.mint_checkpoint(step, self.head.as_ref());
        batch.checkpoints.push(NewCheckpoint {
            id,
            parent: self.head.map(Parent::Local),
            step,
            source: Source::Update,
            created_at: store.now(),
            run: None,
            metadata: Some(format!("{{\"imported\":\"{}\"}}", self.options.form.as_str())),
            parents: [].into(),
            tasks: Vec::new(),
            consumed: Vec::new(),
            changes: vec![change],
            seen: Vec::new(),
        });
        store.commit(&batch)?;
        self.head = Some(id);
        self.slot += messages;
        self.report.messages += messages;
        self.report.checkpoints += 1;
        Ok(())
    }
}

/// Why an import ended. How many messages are stored is not known yet.
struct Ended(TransferError);

impl Ended {
    fn told(self, stored: u64) -> TransferError {
        let mut error = self.0;
        if let TransferError::Io { messages, .. }
        | TransferError::NotJson { messages, .. }
        | TransferError::Message { messages, .. } = &mut error
        {
            *messages = stored;
        }
        error
    }
}

impl From<TransferError> for Ended {
    fn from(error: TransferError) -> Self {
        Self(error)
    }
}

impl From<JsonItemsError> for Ended {
    fn from(error: JsonItemsError) -> Self {
        match error {
            JsonItemsError::Io(error) => error.into(),
            JsonItemsError::NotJson { line, column, reason } => {
                Self(TransferError::NotJson { line, column, reason, messages: 0 })
            }
        }
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self(TransferError::Io { what: "import", messages: 0, source: error })
    }
}
