//! Reading a text of messages into a new thread.
//!
//! *Absent:* merging: items stand in the list in the order of the text, messages with one id beside each other
//! included.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use super::{BrokenLines, Framing, Problems, TransferError};
use crate::base::{CheckpointId, DefaultSource, IdSource, Namespace, Payload, Timestamp, Value, setters};
use crate::history::Thread;
use crate::limits::{IMPORT_BYTES_MAX, IMPORT_MESSAGES_MAX};
use crate::message::internal::{JsonItems, JsonItemsError};
use crate::message::{LangChainFormat, Message, MessageError, MessageFormat, Role, ensure_ids};
use crate::store::Source;
use crate::store::batch::{Batch, Change, ChangeValue, Data, ItemChange, ItemOp, NewCheckpoint, Parent, payload_fits};

/// The format of imported messages, and the channel they go to.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    format: Arc<dyn MessageFormat>,
    channel: String,
    framing: Option<Framing>,
    is_lenient: bool,
}

impl ImportOptions {
    /// Imports LangChain's dictionaries into the channel `messages`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the format of each message.
    #[must_use]
    pub fn format(self, format: impl MessageFormat + 'static) -> Self {
        self.shared_format(Arc::new(format))
    }

    setters! {
        /// Sets the format of each message, chosen at run time.
        #[must_use]
        pub fn shared_format(format: Arc<dyn MessageFormat>) { .format = format }

        /// Sets the channel.
        #[must_use]
        pub fn channel(channel: impl Into<String>) { .channel = channel.into() }

        /// Says how the items stand in the text. Unless it is said, a text that begins with `[` is a list; in any
        /// other, values follow each other, over as many lines as they take; and an object that is the whole text and
        /// has the list `messages` is that list.
        #[must_use]
        pub fn framing(framing: Framing) { .framing = Some(framing) }
    }

    /// Goes on after what ends an import otherwise: a line that cannot be read, and an item that cannot be stored even
    /// as it is. They are left out and counted with their lines in [`ImportReport::left_out`]. A list is not a matter
    /// of lines: what cannot be read in it still ends the import.
    ///
    /// # Example: a broken line
    /// ```
    /// use annals::history::ImportOptions;
    /// use annals::message::OpenAiFormat;
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let whole = r#"{"role": "user", "content": "a"}"#;
    /// let lines = format!("{whole}\n{{\"role\": \"us\n{whole}\n");
    /// let options = ImportOptions::new().format(OpenAiFormat);
    /// let thread = Store::memory().thread("strict")?;
    /// let error = thread.import_messages(&options, lines.as_bytes()).unwrap_err();
    /// assert!(error.to_string().starts_with("line 2, column 13: expected no control character in a text"));
    /// assert_eq!(thread.head()?.expect("it was made").tail("messages", 9)?.len(), 1);
    ///
    /// let thread = Store::memory().thread("lenient")?;
    /// let report = thread.import_messages(&options.lenient(), lines.as_bytes())?;
    /// assert_eq!((report.messages, report.left_out.count, report.left_out.first[0].line), (2, 1, 2));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lenient(mut self) -> Self {
        self.is_lenient = true;
        self
    }
}

impl Default for ImportOptions {
    fn default() -> Self {
        Self { format: Arc::new(LangChainFormat), channel: "messages".into(), framing: None, is_lenient: false }
    }
}

/// The result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportReport {
    /// Items read.
    pub items: u64,
    /// Messages stored, those included that hold an item which was not understood.
    pub messages: u64,
    /// Items that could not be read or stored as messages, and messages of a type that is not known. They are kept as
    /// they are, see [`Message::opaque`] and [`Role::Other`].
    pub not_understood: Problems,
    /// Lines that were left out; none unless the import was [`lenient`](ImportOptions::lenient).
    pub left_out: BrokenLines,
    /// The names of what stood beside the list `messages` of an object and was left out.
    pub beside: Vec<String>,
    /// Messages that came without an id and were given one.
    pub ids_given: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
}

impl Thread {
    /// Makes this thread from a text of messages: a JSON list of objects, an object with such a list as its `messages`,
    /// or objects one after another (JSON lines).
    ///
    /// The text is read by [`JsonItems`], which holds one item at a time and takes what Python writes, and every
    /// 1,000 messages a checkpoint is committed. An object with the list `messages` is held as one
    /// item (128 MiB). Nothing is dropped silently: an
    /// item that cannot be read as a message is kept as it is, counted, and written again by an export; what stood
    /// beside such a list is named. Messages without an id get one; nothing is merged.
    ///
    /// # Errors
    /// - [`TransferError::Exists`]: the thread has a checkpoint already. Nothing was written.
    /// - [`TransferError::NotJson`], [`TransferError::Io`] and [`TransferError::Message`]: the text ends the import
    ///   there. They say how many messages the thread has now: all that stood before. If that is none, the thread was
    ///   not made; a thread that was made has to be deleted before it is imported again
    ///   ([`Store::delete_thread`](crate::store::Store::delete_thread)).
    /// - [`TransferError::Store`]: a commit was refused, and the thread has the commits before it.
    ///
    /// # Example
    /// ```
    /// use annals::history::ImportOptions;
    /// use annals::message::OpenAiFormat;
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let text = r#"[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}, 5]"#;
    /// let thread = Store::memory().thread("chat")?;
    /// let report = thread.import_messages(&ImportOptions::new().format(OpenAiFormat), text.as_bytes())?;
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
            position: 0,
            head: None,
        };
        let mut items = JsonItems::new(BufReader::new(input));
        match options.framing {
            None => {}
            Some(Framing::List) => items = items.list(),
            Some(Framing::Lines) => items = items.lines(),
        }
        if options.is_lenient {
            items = items.lenient();
        }
        match import.items(&mut items) {
            Ok(()) => import.commit(true)?,
            Err(ended) => {
                import.commit(false)?;
                return Err(ended.told(import.position));
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
    /// The changes of the next checkpoint.
    pending: Vec<Payload>,
    pending_bytes: usize,
    /// The position of the next message: how many are stored.
    position: u64,
    head: Option<CheckpointId>,
}

impl Import<'_> {
    fn items(&mut self, items: &mut JsonItems<impl BufRead>) -> Result<(), ImportEnd> {
        // The first item, as long as nothing follows it that says that it is one of many.
        let mut whole = None;
        while let Some(item) = items.next() {
            let line = items.line();
            if let Some((line, first)) = whole.take() {
                self.item(line, first)?;
            }
            let item = match item {
                Ok(item) => item,
                Err(JsonItemsError::NotJson { line: at, column, reason }) if !items.has_ended() => {
                    let above = if at == line { String::new() } else { format!("line {at}, ") };
                    self.report.left_out.note(line, format!("{above}column {column}: {reason}"));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let is_first = self.report.items + self.report.left_out.count == 0;
            if is_first && self.options.framing.is_none() && !items.is_list() && self.is_wrapper(&item) {
                whole = Some((line, item));
            } else {
                self.item(line, item)?;
            }
        }
        match whole {
            Some((line, Value::Map(mut map))) => {
                let messages = map.shift_remove("messages");
                self.report.beside = map.into_iter().map(|(name, _)| name).collect();
                let Some(Value::List(messages)) = messages else { return Ok(()) };
                messages.into_iter().try_for_each(|message| self.item(line, message))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether an item has the list `messages` and is not a message.
    fn is_wrapper(&mut self, item: &Value) -> bool {
        matches!(item.get("messages"), Some(Value::List(_))) && self.read(item.clone()).is_err()
    }

    fn read(&mut self, item: Value) -> Result<Vec<Message>, MessageError> {
        self.options.format.read(item, &mut DefaultSource::new(&self.began, &mut self.ids))
    }

    /// Takes an item that begins in a line.
    fn item(&mut self, line: usize, item: Value) -> Result<(), ImportEnd> {
        let position = self.report.items;
        self.report.items += 1;
        let read = self.read(item.clone());
        let (payloads, given) = match read.and_then(|messages| self.stored(position, messages)) {
            Ok(stored) => stored,
            Err(error) => match self.stored(position, vec![Message::opaque(item)]) {
                Ok(kept) => {
                    self.report.not_understood.note(position, error);
                    kept
                }
                Err(source) if self.options.is_lenient => {
                    self.report.left_out.note(line, source);
                    return Ok(());
                }
                Err(source) => return Err(ImportEnd(TransferError::Message { position, source, messages: 0 })),
            },
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
            if let (Role::Other { kind }, None) = (&message.role, message.opaque_item()) {
                self.report.not_understood.note(position, format!("the type {kind:?} is not known"));
            }
        }
        Ok((payloads, given))
    }

    /// Commits the pending messages; an empty commit is made only at the end of a text without messages.
    fn commit(&mut self, end: bool) -> Result<(), TransferError> {
        if self.pending.is_empty() && !(end && self.head.is_none()) {
            return Ok(());
        }
        let (store, step) = (self.thread.store(), self.report.checkpoints as i64);
        let mut batch = Batch::new(self.thread.id().clone(), Namespace::root(), self.head);
        let added = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        let messages = added.len() as u64;
        let put = |(position, payload)| ItemChange::new(position, ItemOp::Put(Data::New(payload)), None);
        let items: Vec<ItemChange> = (self.position..).zip(added).map(put).collect();
        let version = self.report.checkpoints + 1;
        let change = Change::new(self.options.channel.as_str(), version, ChangeValue::Items(items));
        let id = store.mint_checkpoint(step, self.head.as_ref());
        let parent = self.head.map(Parent::Local);
        let mut checkpoint = NewCheckpoint::new(id, parent, step, Source::Update, store.now());
        checkpoint.metadata = Some(format!("{{\"imported\":\"{}\"}}", self.options.format.name()));
        checkpoint.changes.push(change);
        batch.checkpoints.push(checkpoint);
        store.commit_reminting(&mut batch)?;
        self.head = batch.head_after();
        self.position += messages;
        self.report.messages += messages;
        self.report.checkpoints += 1;
        Ok(())
    }
}

/// The reason for which an import ended. The number of stored messages is not known yet.
struct ImportEnd(TransferError);

impl ImportEnd {
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

impl From<TransferError> for ImportEnd {
    fn from(error: TransferError) -> Self {
        Self(error)
    }
}

impl From<JsonItemsError> for ImportEnd {
    fn from(error: JsonItemsError) -> Self {
        match error {
            JsonItemsError::Io(error) => error.into(),
            JsonItemsError::NotJson { line, column, reason } => {
                Self(TransferError::NotJson { line, column, reason, messages: 0 })
            }
            other => {
                Self(TransferError::Io { what: "import", messages: 0, source: io::Error::other(other.to_string()) })
            }
        }
    }
}

impl From<io::Error> for ImportEnd {
    fn from(error: io::Error) -> Self {
        Self(TransferError::Io { what: "import", messages: 0, source: error })
    }
}
