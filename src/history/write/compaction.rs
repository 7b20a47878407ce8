//! Compactions: small checkpoints that fold messages of a list for a model.
//!
//! Invariant: a compaction writes the fold alone; its cost is that of the messages at its two borders. *Absent:* making
//! summaries, and reading folds ([`folded`](super::super::read::folded)).

use crate::base::limits::{MAP_POSITION_MIN, UPDATE_ATTEMPTS_MAX};
use crate::base::{CheckpointId, IdSource, Value};
use crate::error::Error;
use crate::history::read::folded::FoldedMessages;
use crate::history::read::snapshot::Snapshot;
use crate::history::thread::Thread;
use crate::message::{Message, ensure_ids};
use crate::store::log::LogExt;
use crate::store::record::ItemRow;
use crate::store::{CheckpointRef, ItemRange, StoreError};

use super::ModelUsage;

/// A compaction of a list of messages: a summary for a model, and the messages that stay beside it.
///
/// Of the list the first messages stay, because a provider caches the beginning of a request, and the last ones. A
/// result of a tool stays with its call: a border between the two moves so that fewer messages are folded.
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is folded before `Thread::compact`"]
pub struct MessageCompaction {
    summary: Vec<Message>,
    keep_first: usize,
    keep_last: usize,
    of: Option<CheckpointRef>,
    usage: Option<ModelUsage>,
}

impl MessageCompaction {
    /// Folds messages under a summary: the messages that a model sees in their place, none for nothing. They have any
    /// types that a provider takes at this place; those without an id get one.
    pub fn new(summary: impl IntoIterator<Item = Message>) -> Self {
        Self { summary: summary.into_iter().collect(), ..Self::default() }
    }

    /// Sets the number of messages at the beginning that stay. Default: none.
    pub fn keep_first(mut self, count: usize) -> Self {
        self.keep_first = count;
        self
    }

    /// Sets the number of messages at the end that stay. Default: none.
    pub fn keep_last(mut self, count: usize) -> Self {
        self.keep_last = count;
        self
    }

    /// Sets the state of which the summary was made: the messages at the end are counted there, and what was appended
    /// since stays. Default: the head when the compaction begins.
    pub fn of(mut self, at: &Snapshot) -> Self {
        self.of = Some(at.point().clone());
        self
    }

    /// Adds the tokens and the cost of the summary to the metadata of the checkpoint.
    pub fn usage(mut self, usage: ModelUsage) -> Self {
        self.usage = Some(usage);
        self
    }
}

impl Thread {
    /// Folds messages of a list channel in one commit, and returns the new checkpoint when it is durable. The list
    /// stays as it is; [`Snapshot::model_view`] shows it with the summary in place of the folded messages. A later
    /// compaction takes the place of this one, [`Thread::undo`] goes back to the state before, and a fork has it.
    ///
    /// If another writer appends meanwhile, the compaction is made on the head that it left. Tasks that are due stay
    /// due; as after any [update](crate::history::StateThread::update), one that waits at an interrupt runs again.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the channel holds no messages, if no message would be folded, or if the state that
    /// was [summarised](MessageCompaction::of) is not one of this thread's head any more, after an undo or on another
    /// branch, or its messages were removed; [`StoreError::Conflict`] if another compaction was made since then, or if
    /// other writers were faster 64 times in a row; as [`ThreadWrite::commit`](super::ThreadWrite::commit).
    ///
    /// # Example
    /// ```
    /// use annals::history::MessageCompaction;
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("trip")?;
    /// for n in 0..100 {
    ///     thread.append("messages", [Message::human(format!("message {n}"))])?;
    /// }
    /// let head = thread.head()?.expect("a hundred checkpoints");
    /// let summary = format!("a summary of {} messages", head.model_view("messages")?.len());
    /// let compaction = MessageCompaction::new([Message::system(summary)]).keep_first(1).keep_last(2);
    /// thread.compact("messages", compaction.of(&head))?;
    ///
    /// let head = thread.head()?.expect("the compaction");
    /// let view = head.model_view("messages")?;
    /// let texts: Vec<_> = view.iter().map(|message| message.text()).collect();
    /// assert_eq!(texts, ["message 0", "a summary of 100 messages", "message 98", "message 99"]);
    /// assert_eq!(head.len("messages")?, 100);
    ///
    /// thread.undo()?;
    /// assert_eq!(thread.head()?.expect("the head before").model_view("messages")?.len(), 100);
    /// # Ok(())
    /// # }
    /// ```
    pub fn compact(&self, channel: &str, compaction: MessageCompaction) -> Result<CheckpointId, Error> {
        let MessageCompaction { mut summary, keep_first, keep_last, of, usage } = compaction;
        let not_found = || StoreError::Invalid {
            field: "compaction.channel",
            reason: format!("thread {} has no channel {channel:?}", self.id()),
        };
        let head = self.head()?.ok_or_else(not_found)?;
        let of = match of {
            Some(point) => {
                let record = self.store().backend().checkpoint(&point)?.ok_or_else(|| self.is_elsewhere(&point))?;
                Snapshot::kept(self.store(), record)?
            }
            None => head.clone(),
        };
        let before = of.folded(channel)?;
        let (from, last) = Borders { at: &of, channel, keep_first, keep_last }.folded()?;
        ensure_ids(&mut summary, &mut IdSource::from_seed(self.store().mint_seed()));
        let folded = FoldedMessages::new(from..last + 1, summary);
        let value = Value::from_serialize(&folded).map_err(|error| StoreError::Invalid {
            field: "compaction.summary",
            reason: format!("the summary cannot be stored: {error}"),
        })?;
        let (mut head, mut attempt) = (head, 1);
        loop {
            self.verify_fold(channel, &of, &head, before.as_ref(), last)?;
            let mut write = self.write().set(&FoldedMessages::channel_of(channel), value.clone());
            if let Some(usage) = usage.clone() {
                write = write.usage(usage);
            }
            match write.on_head(Some(head.id())).commit() {
                Err(error) if error.is_conflict() && attempt < UPDATE_ATTEMPTS_MAX => {
                    attempt += 1;
                    head = self.head()?.ok_or_else(not_found)?;
                }
                done => return done,
            }
        }
    }

    /// Verifies that the messages that were summarised at `of` can be folded at a head.
    fn verify_fold(
        &self,
        channel: &str,
        of: &Snapshot,
        head: &Snapshot,
        before: Option<&FoldedMessages>,
        last: u64,
    ) -> Result<(), Error> {
        if of == head {
            return Ok(());
        }
        let found = head.ancestors(&[of.record().ordinal])?.pop().flatten();
        if found.as_ref() != Some(of) {
            return Err(self.is_elsewhere(of.point()).into());
        }
        if head.folded(channel)?.as_ref() != before {
            let (thread, namespace) = (self.id().clone(), self.namespace().clone());
            let (expected, found) = (Some(of.id()), Some(head.id()));
            return Err(StoreError::Conflict { thread, namespace, expected, found }.into());
        }
        let mut is_there = false;
        head.visit_items(channel, ItemRange::Positions(last, last + 1), |_| {
            is_there = true;
            Ok(())
        })?;
        if !is_there {
            let reason = format!("the message at position {last}, the last one to fold, was removed from {channel:?}");
            return Err(StoreError::Invalid { field: "compaction.of", reason }.into());
        }
        Ok(())
    }

    /// Returns the error of a compaction of a state that the head does not continue.
    fn is_elsewhere(&self, of: &CheckpointRef) -> StoreError {
        let reason = format!("the head of thread {} does not continue {of}, whose messages were summarised", self.id());
        StoreError::Invalid { field: "compaction.of", reason }
    }
}

/// A message at a border: its position, and whether it answers a tool call.
#[derive(Clone, Copy)]
struct BorderMessage {
    position: u64,
    answers_call: bool,
}

/// The borders of a compaction in a list.
struct Borders<'a> {
    at: &'a Snapshot,
    channel: &'a str,
    keep_first: usize,
    keep_last: usize,
}

impl Borders<'_> {
    /// Returns the positions of the first and of the last message to fold.
    fn folded(&self) -> Result<(u64, u64), StoreError> {
        let len = self.at.len(self.channel)?;
        let (front, back) = (self.first(len)?, self.last(len)?);
        match (front, back) {
            (Some(first), Some(last)) if first <= last => Ok((first, last)),
            _ => Err(StoreError::Invalid {
                field: "compaction",
                reason: format!(
                    "channel {:?} has {len} messages, of which the first {} and the last {} stay: none is left to fold",
                    self.channel, self.keep_first, self.keep_last
                ),
            }),
        }
    }

    /// Returns the position of the first message after those that stay at the beginning, and after the results of
    /// their tool calls.
    fn first(&self, len: u64) -> Result<Option<u64>, StoreError> {
        let keep = self.keep_first as u64;
        // Items that were removed leave gaps between the positions.
        let mut end = keep.saturating_add(8);
        loop {
            let found = self.read(ItemRange::Positions(0, end))?;
            let after = found.iter().skip(self.keep_first);
            let mut after = after.skip_while(|message| keep > 0 && message.answers_call);
            match after.next() {
                Some(message) => return Ok(Some(message.position)),
                None if found.len() as u64 >= len || end >= MAP_POSITION_MIN => return Ok(None),
                None => end = end.saturating_mul(2),
            }
        }
    }

    /// Returns the position of the last message before those that stay at the end. If those began with a result of a
    /// tool, the messages up to its call stay as well.
    fn last(&self, len: u64) -> Result<Option<u64>, StoreError> {
        let mut count = self.keep_last.saturating_add(8);
        loop {
            let found = self.read(ItemRange::Tail(count))?;
            let mut border = found.len().saturating_sub(self.keep_last);
            while border > 0 && found.get(border).is_some_and(|message| message.answers_call) {
                border -= 1;
            }
            match border.checked_sub(1).and_then(|last| found.get(last)) {
                Some(message) => return Ok(Some(message.position)),
                None if found.len() as u64 >= len => return Ok(None),
                None => count = count.saturating_mul(2),
            }
        }
    }

    fn read(&self, range: ItemRange) -> Result<Vec<BorderMessage>, StoreError> {
        let mut found = Vec::new();
        self.at.visit_items(self.channel, range, |row: ItemRow<'_>| {
            let kind = row.payload.index.and_then(|index| index.kind).ok_or_else(|| StoreError::Invalid {
                field: "compaction.channel",
                reason: format!("channel {:?} holds an item that is not a message", self.channel),
            })?;
            found.push(BorderMessage { position: row.position, answers_call: kind == "tool" });
            Ok(())
        })?;
        Ok(found)
    }
}
