//! Reading a list past damage, and deleting items that cannot be read.
//!
//! A read of a list ends with an error at the first item that is damaged or cannot be decoded. Here it goes on, and the
//! item is a [`Placeholder`] with its position and the error. The damaged position is searched for with reads of
//! ranges, so that this works with every backend. *Absent:* repair.
//!
//! Invariant: a range is left behind only when each of its positions was read, or has a placeholder.

use std::fmt;
use std::ops::Range;

use crate::base::limits::UPDATE_ATTEMPTS_MAX;
use crate::base::{CheckpointId, PayloadRef, Value};
use crate::error::Error;
use crate::limits::PLACEHOLDERS_MAX;
use crate::message::Message;
use crate::store::batch::{Batch, Change, ChangeValue, ItemChange, ItemOp, NewCheckpoint, Parent};
use crate::store::log::LogExt;
use crate::store::record::{ChannelValue, ItemRow};
use crate::store::{ItemRange, Source, StoreError};

use super::snapshot::{Snapshot, item_message, item_value};
use crate::history::thread::Thread;

/// The effect of an item that is damaged, or that cannot be decoded, on a read of its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Damaged {
    /// The read ends with an error.
    #[default]
    Error,
    /// The item is a [`Placeholder`], and the read goes on. At most 10,000 are made in one read.
    Placeholder,
}

/// An item that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placeholder {
    /// Its position in the list.
    pub position: u64,
    /// Its id, if the index could be read and holds one.
    pub id: Option<String>,
    /// The reason that it cannot be read, with the place in the file.
    pub reason: String,
}

/// Shows `item 7 cannot be read: payload 12: the check of its payload does not match`.
impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "item {} cannot be read: {}", self.position, self.reason)
    }
}

/// An item of a list, with its position.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ListItem<T> {
    /// Its position in the list: items are ordered by position, and positions are not used again.
    pub position: u64,
    /// The item.
    pub item: Result<T, Placeholder>,
}

/// A visitor of items that are decoded, or replaced.
type ListVisitor<'v, T> = &'v mut dyn FnMut(ListItem<T>) -> Result<(), StoreError>;

/// A decoder of an item; `None` leaves it out.
type Decode<T> = fn(PayloadRef<'_>) -> Result<Option<T>, StoreError>;

impl Snapshot {
    /// Returns items of a list channel with their positions, in order, past items that cannot be read if `damaged` says
    /// so. Messages come as objects with `type`, `content` and `id`.
    ///
    /// # Errors
    /// As [`Snapshot::values`], but with [`Damaged::Placeholder`] only for damage of the list itself.
    ///
    /// # Example: the items of a list that is damaged
    /// ```
    /// use annals::history::Damaged;
    /// use annals::prelude::*;
    /// use annals::store::ItemRange;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Log { #[channel(append)] lines: List<String> }
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("t")?;
    /// thread.update(Log::update().lines(["one".to_string(), "two".to_string()]))?;
    /// for line in thread.at("@")?.read_items("lines", ItemRange::All, Damaged::Placeholder)? {
    ///     match line.item {
    ///         Ok(value) => println!("{}: {value:?}", line.position),
    ///         Err(placeholder) => println!("{placeholder}"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn read_items(
        &self,
        channel: &str,
        range: ItemRange,
        damaged: Damaged,
    ) -> Result<Vec<ListItem<Value>>, StoreError> {
        self.collect(channel, range, damaged, |payload| item_value(payload).map(Some))
    }

    /// Returns messages of a list channel with their positions, in order, past those that cannot be read if `damaged`
    /// says so. Items that are not messages are left out.
    ///
    /// # Errors
    /// As [`Snapshot::read_items`].
    pub fn read_messages(
        &self,
        channel: &str,
        range: ItemRange,
        damaged: Damaged,
    ) -> Result<Vec<ListItem<Message>>, StoreError> {
        self.collect(channel, range, damaged, item_message)
    }

    fn collect<T>(
        &self,
        channel: &str,
        range: ItemRange,
        damaged: Damaged,
        decode: Decode<T>,
    ) -> Result<Vec<ListItem<T>>, StoreError> {
        let mut items = Vec::new();
        let mut visit = |item| {
            items.push(item);
            Ok(())
        };
        let read = self.visit_decoded(channel, range, damaged, decode, &mut visit);
        match (read, range) {
            (Ok(()), _) => Ok(items),
            // The end of a damaged list is found from its beginning.
            (Err(StoreError::Corrupt { .. }), ItemRange::Tail(count)) if damaged == Damaged::Placeholder => {
                let mut items = self.collect(channel, ItemRange::All, damaged, decode)?;
                Ok(items.split_off(items.len().saturating_sub(count)))
            }
            (Err(error), _) => Err(error),
        }
    }

    fn visit_decoded<T>(
        &self,
        channel: &str,
        range: ItemRange,
        damaged: Damaged,
        decode: Decode<T>,
        visit: ListVisitor<'_, T>,
    ) -> Result<(), StoreError> {
        let mut placeholders = 0;
        let mut each = |position: u64, row: Result<ItemRow<'_>, StoreError>| {
            let id = row.as_ref().ok().and_then(|row| row.payload.index?.id.map(str::to_owned));
            let item = match row.and_then(|row| decode(row.payload)) {
                Ok(None) => return Ok(()),
                Ok(Some(item)) => Ok(item),
                Err(error) if damaged == Damaged::Error || !is_damage(&error) => return Err(error),
                Err(error) if placeholders == PLACEHOLDERS_MAX => return Err(error),
                Err(error) => {
                    placeholders += 1;
                    Err(Placeholder { position, id, reason: error.to_string() })
                }
            };
            visit(ListItem { position, item })
        };
        let placeholders = damaged == Damaged::Placeholder;
        match range {
            ItemRange::All if placeholders => self.visit_past_damage(channel, 0..u64::MAX, &mut each),
            ItemRange::Positions(first, end) if placeholders => self.visit_past_damage(channel, first..end, &mut each),
            range => self.visit_items(channel, range, |row| each(row.position, Ok(row))),
        }
    }

    /// Visits the items of a range, and the error of each item that the backend cannot read.
    pub(crate) fn visit_past_damage(
        &self,
        channel: &str,
        range: Range<u64>,
        each: &mut dyn FnMut(u64, Result<ItemRow<'_>, StoreError>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let backend = self.store().backend();
        let (mut next, mut window) = (range.start, u64::MAX);
        let mut placeholders = 0;
        while next < range.end {
            let end = next.saturating_add(window).min(range.end);
            let mut refused = false;
            let read = backend.items(self.point(), channel, ItemRange::Positions(next, end), &mut |row| {
                next = row.position.saturating_add(1);
                each(row.position, Ok(row)).inspect_err(|_| refused = true)
            });
            match read {
                Ok(()) => (next, window) = (end, window.saturating_mul(4)),
                Err(error) if refused || !is_damage(&error) || placeholders == PLACEHOLDERS_MAX => return Err(error),
                // The damage is somewhere in the window. A list that is damaged as a whole fails past its end too.
                Err(_) if end - next > 1 => {
                    if window == u64::MAX {
                        let past = ItemRange::Positions(u64::MAX - 1, u64::MAX);
                        backend.items(self.point(), channel, past, &mut |_| Ok(()))?;
                    }
                    window = if window == u64::MAX { 1 } else { window / 4 }.max(1);
                }
                Err(error) => {
                    each(next, Err(error))?;
                    placeholders += 1;
                    next += 1;
                }
            }
        }
        Ok(())
    }
}

impl Snapshot {
    /// Verifies that a list has an item at a position, readable or not.
    fn expect_item(&self, channel: &str, position: u64) -> Result<(), StoreError> {
        let mut found = false;
        let range = ItemRange::Positions(position, position.saturating_add(1));
        let read = self.visit_items(channel, range, |_| {
            found = true;
            Ok(())
        });
        match read {
            Err(error) if !is_damage(&error) => Err(error),
            Ok(()) if !found => {
                Err(StoreError::Invalid { field: "position", reason: format!("the list has no item at {position}") })
            }
            _ => Ok(()),
        }
    }
}

pub(crate) fn is_damage(error: &StoreError) -> bool {
    matches!(error, StoreError::Corrupt { .. } | StoreError::Codec(_))
}

impl Thread {
    /// Deletes items of a list channel by their positions ([`ListItem::position`]), in one commit, and returns the new
    /// checkpoint. The items are not decoded, so that one which cannot be read is deleted like any other.
    ///
    /// Tasks of a graph that are due stay due.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the channel does not hold a list at the head, or the list no item at a position;
    /// [`StoreError::Conflict`] if other writers were faster 64 times in a row; as
    /// [`Log::submit`](crate::store::log::Log::submit).
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Log { #[channel(append)] lines: List<String> }
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("t")?;
    /// thread.update(Log::update().lines(["one".to_string(), "two".to_string()]))?;
    /// thread.delete_items("lines", [0])?;
    /// assert_eq!(thread.at("@")?.len("lines")?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn delete_items(&self, channel: &str, positions: impl IntoIterator<Item = u64>) -> Result<CheckpointId, Error> {
        let mut positions: Vec<u64> = positions.into_iter().collect();
        positions.sort_unstable();
        positions.dedup();
        let mut attempt = 1;
        loop {
            match self.try_delete_items(channel, &positions) {
                Err(error) if error.is_conflict() && attempt < UPDATE_ATTEMPTS_MAX => attempt += 1,
                done => return done,
            }
        }
    }

    fn try_delete_items(&self, channel: &str, positions: &[u64]) -> Result<CheckpointId, Error> {
        let no_list = || StoreError::Invalid { field: "channel", reason: format!("{channel:?} does not hold a list") };
        let head = self.head()?.ok_or_else(no_list)?;
        let state = head.state_record()?;
        let list = state.channels.iter().find(|record| &*record.channel == channel);
        let list = list.filter(|record| record.value == ChannelValue::Items).ok_or_else(no_list)?;
        positions.iter().try_for_each(|position| head.expect_item(channel, *position))?;
        let version = state.channels.iter().map(|record| record.version).max().unwrap_or_default() + 1;
        let items = positions.iter().map(|position| ItemChange::new(*position, ItemOp::Delete, None)).collect();
        let (store, record) = (self.store(), head.record());
        let step = record.step.max(-1) + 1;
        let id = store.mint_checkpoint(step, Some(&head.id()));
        let mut checkpoint = NewCheckpoint::new(id, Some(Parent::Local(head.id())), step, Source::Update, store.now());
        checkpoint.parents = record.parents.clone();
        // The tasks stay due; they get new ids when a graph runs.
        checkpoint.tasks.clone_from(&record.tasks);
        checkpoint.changes = vec![Change::new(list.channel.clone(), version, ChangeValue::Items(items))];
        let mut batch = Batch::new(self.id().clone(), self.namespace().clone(), Some(head.id()));
        batch.checkpoints.push(checkpoint);
        store.commit_reminting(&mut batch)?;
        Ok(batch.head_after().unwrap_or(id))
    }
}
