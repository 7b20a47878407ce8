//! Writing the messages of a snapshot as a text.
//!
//! *Absent:* reading them back, see `import`.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use super::{Framing, Problems, TransferError};
use crate::base::{DefaultSource, IdSource, PayloadRef, Timestamp, Value, setters};
use crate::history::read::damaged::{Damaged, is_damage};
use crate::history::read::snapshot::{Snapshot, item_message};
use crate::message::internal::{JsonStyle, json_write};
use crate::message::{FormatOutput, FormatWriter, LangChainFormat, MessageFormat};
use crate::store::log::LogExt;
use crate::store::record::{ChannelValue, ItemRow};
use crate::store::{ItemRange, StoreError};

/// As an import reads it, and as Python does: `NaN`, and integers of any length.
const STYLE: JsonStyle = JsonStyle { not_finite: true, ..JsonStyle::PYDANTIC };

/// The format of exported messages, and their framing.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    format: Arc<dyn MessageFormat>,
    framing: Framing,
    damaged: Damaged,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self { format: Arc::new(LangChainFormat), framing: Framing::default(), damaged: Damaged::default() }
    }
}

impl ExportOptions {
    /// Exports a JSON list of LangChain's dictionaries.
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

        /// Sets how the messages stand in the text.
        #[must_use]
        pub fn framing(framing: Framing) { .framing = framing }

        /// Sets the effect of a message that cannot be read. With [`Damaged::Placeholder`] it is written as an object
        /// with the member `$damaged`: its position and the reason. Default: the export ends with an error.
        #[must_use]
        pub fn damaged(damaged: Damaged) { .damaged = damaged }
    }
}

/// The result of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportReport {
    /// Messages read.
    pub messages: u64,
    /// Items written.
    pub items: u64,
    /// Messages that the format cannot express, which were not written.
    pub refused: Problems,
    /// Messages that cannot be read, in whose place a placeholder was written, by their positions in the list.
    pub damaged: Problems,
    /// Opaque items, written as they were imported.
    pub retained: u64,
    /// By field: how many messages were written without it, because the format cannot express it.
    pub left_out: BTreeMap<&'static str, u64>,
}

impl Snapshot {
    /// Writes the messages of a channel, oldest first. The list is not held in memory: messages are read one at a
    /// time, and the output is buffered.
    ///
    /// Nothing is dropped silently: the report counts the messages that the form cannot say, and the fields it has no
    /// place for. LangChain's form has a place for everything. Numbers that are not finite are written as Python writes
    /// them (`NaN`), bytes and extensions as by [`Value::to_json`](crate::base::Value::to_json).
    ///
    /// # Errors
    /// [`TransferError::NoList`]; [`TransferError::Io`] from the writer; [`TransferError::Store`].
    ///
    /// # Example
    /// ```
    /// use annals::history::{ExportOptions, Framing};
    /// use annals::message::OpenAiFormat;
    /// use annals::prelude::*;
    ///
    /// # #[derive(State, Clone, Default)]
    /// # struct Chat {
    /// #     #[channel(messages)]
    /// #     messages: Messages,
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let thread = Store::memory().thread("chat")?;
    /// # thread.update(Chat::update().messages([Message::human("hi")]))?;
    /// let mut lines = Vec::new();
    /// let options = ExportOptions::new().format(OpenAiFormat).framing(Framing::Lines);
    /// let report = thread.head()?.expect("it was written").export_messages("messages", &options, &mut lines)?;
    /// assert_eq!(String::from_utf8(lines)?, "{\"role\":\"user\",\"content\":\"hi\"}\n");
    /// assert_eq!(report.left_out["id"], 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn export_messages(
        &self,
        channel: &str,
        options: &ExportOptions,
        out: &mut dyn Write,
    ) -> Result<ExportReport, TransferError> {
        if !self.is_list(channel, options.damaged)? {
            return Err(TransferError::NoList { channel: channel.to_owned() });
        }
        let mut export = Export {
            options,
            out: BufWriter::new(out),
            writer: options.format.writer(),
            began: self.store().now(),
            ids: IdSource::from_seed(self.store().mint_seed()),
            report: ExportReport::default(),
        };
        let mut written = export.begin();
        if written.is_ok() {
            let mut each = |position: u64, row: Result<ItemRow<'_>, StoreError>| {
                let items = match row.and_then(|row| export.items_of(row.payload)) {
                    Err(error) if options.damaged == Damaged::Placeholder && is_damage(&error) => {
                        vec![export.placeholder(position, &error)]
                    }
                    items => items?,
                };
                written = items.into_iter().try_for_each(|item| export.write(&item));
                // Ends the visit; the writer's error is returned below.
                let ended = || StoreError::Read { reason: "the export ended".into(), source: None };
                if written.is_ok() { Ok(()) } else { Err(ended()) }
            };
            let read = match options.damaged {
                Damaged::Placeholder => self.visit_past_damage(channel, 0..u64::MAX, &mut each),
                Damaged::Error => self
                    .store()
                    .backend()
                    .items(self.point(), channel, ItemRange::All, &mut |row| each(row.position, Ok(row))),
            };
            if written.is_ok() {
                read?;
                written = export.end();
            }
        }
        let messages = export.report.messages;
        written.map_err(|source| TransferError::Io { what: "export", messages, source })?;
        Ok(export.report)
    }
}

impl Snapshot {
    /// Returns whether a channel holds a list, also if a value beside it is damaged.
    fn is_list(&self, channel: &str, damaged: Damaged) -> Result<bool, StoreError> {
        match self.state_record() {
            Ok(state) => {
                let record = state.channels.iter().find(|record| &*record.channel == channel);
                Ok(record.is_some_and(|record| record.value == ChannelValue::Items))
            }
            Err(error) if damaged == Damaged::Placeholder && is_damage(&error) => Ok(self.len(channel)? > 0),
            Err(error) => Err(error),
        }
    }
}

struct Export<'a> {
    options: &'a ExportOptions,
    out: BufWriter<&'a mut dyn Write>,
    writer: Box<dyn FormatWriter>,
    /// The timestamp of messages without one of their own.
    began: Timestamp,
    ids: IdSource,
    report: ExportReport,
}

impl Export<'_> {
    fn begin(&mut self) -> io::Result<()> {
        self.out.write_all(if self.options.framing == Framing::List { b"[" } else { b"" })
    }

    /// Returns the items to write for a stored item.
    fn items_of(&mut self, stored: PayloadRef<'_>) -> Result<Vec<Value>, StoreError> {
        let position = self.report.messages;
        let decoded = item_message(stored)?;
        self.report.messages += 1;
        let Some(message) = decoded else {
            self.report.refused.note(position, "it is not a message");
            return Ok(Vec::new());
        };
        self.report.retained += u64::from(message.opaque_item().is_some());
        let written = self.writer.push(message, &mut DefaultSource::new(&self.began, &mut self.ids));
        Ok(self.noted(written))
    }

    /// Returns the item to write in place of one that cannot be read.
    fn placeholder(&mut self, position: u64, error: &StoreError) -> Value {
        self.report.damaged.note(position, error);
        let object = |members: Vec<(&str, Value)>| {
            Value::Map(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
        };
        let damaged = vec![("position", Value::from(position)), ("reason", Value::from(error.to_string()))];
        object(vec![("$damaged", object(damaged))])
    }

    /// Counts the fields that were left out, and returns the items.
    fn noted(&mut self, written: FormatOutput) -> Vec<Value> {
        for field in written.left_out {
            *self.report.left_out.entry(field).or_default() += 1;
        }
        for (position, error) in written.refused {
            self.report.refused.note(position, error);
        }
        written.items
    }

    fn write(&mut self, item: &Value) -> io::Result<()> {
        let before: &[u8] = match (self.options.framing, self.report.items) {
            (Framing::Lines, _) => b"",
            (Framing::List, 0) => b"\n",
            (Framing::List, _) => b",\n",
        };
        self.report.items += 1;
        self.out.write_all(before)?;
        self.out.write_all(json_write(item, STYLE).as_bytes())?;
        self.out.write_all(if self.options.framing == Framing::Lines { b"\n" } else { b"" })
    }

    fn end(&mut self) -> io::Result<()> {
        let last = self.writer.finish(&mut DefaultSource::new(&self.began, &mut self.ids));
        self.noted(last).into_iter().try_for_each(|item| self.write(&item))?;
        let end: &[u8] = match (self.options.framing, self.report.items) {
            (Framing::Lines, _) => b"",
            (Framing::List, 0) => b"]\n",
            (Framing::List, _) => b"\n]\n",
        };
        self.out.write_all(end)?;
        self.out.flush()
    }
}
