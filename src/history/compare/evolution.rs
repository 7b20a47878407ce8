//! Evolution: the values of a channel, or of one item of a list, over time.
//!
//! The versions of the channel are walked from the newest on, along the lineage; no state is read.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::base::{Value, debug_fields};
use crate::channel::positions_of;
use crate::limits::{EVOLUTION_PAGE_MAX, EVOLUTION_PAGE_MIN};
use crate::store::log::LogExt;
use crate::store::record::{ChannelValue, ItemRow, VersionRecord};
use crate::store::{CheckpointRef, ItemRange, StoreError};

use super::blame::{Blame, WriteOrigin};
use crate::history::read::entries::{ShapedItems, value_of_key};
use crate::history::read::snapshot::{Snapshot, item_value};

/// The values of a channel, or of an item of a list, on the lineage of a checkpoint: an iterator, newest first
/// ([`Snapshot::evolution`]).
pub struct Evolution {
    at: Snapshot,
    channel: Arc<str>,
    place: VersionPlace,
    /// The checkpoint at which the next page begins.
    next: Option<CheckpointRef>,
    page: VecDeque<VersionRecord>,
    page_len: usize,
    /// The oldest checkpoint known after the item was gone.
    deleted: Option<WriteOrigin>,
    /// The write before a deletion that was returned.
    queued: Option<PastValue>,
}

/// A value at one time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ValueVersion {
    /// The value; `None` if the channel was emptied, or the item was removed.
    pub value: Option<Value>,
    /// The writer of the value.
    pub blame: Blame,
}

/// The part of a channel whose versions are walked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VersionPlace {
    /// The whole value.
    Channel,
    /// The item at a position; `u64::MAX` for one that never was.
    Item(u64),
    /// The entry of a map with a key.
    Entry(String),
}

impl VersionPlace {
    /// Returns the positions at which it may lie; `None` for the whole value.
    fn positions(&self) -> Option<Range<u64>> {
        match self {
            Self::Channel => None,
            Self::Item(position) => Some(*position..position.saturating_add(1)),
            Self::Entry(key) => Some(positions_of(key)),
        }
    }
}

/// A value with the place in the log at which it was written.
#[derive(Debug)]
pub(crate) struct PastValue {
    pub(crate) value: Option<Value>,
    pub(crate) written: WriteOrigin,
}

impl Snapshot {
    /// Returns the values that a channel had on the lineage of this checkpoint, newest first, each read on demand. Of a
    /// list channel, each is the whole list.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # #[derive(State, Clone, Default)]
    /// # struct Plan { city: String }
    /// # fn main() -> Result<()> {
    /// let trip = Store::memory().thread("trip")?;
    /// for city in ["Bern", "Oslo"] {
    ///     trip.update(Plan::update().city(city))?;
    /// }
    /// let mut cities = Vec::new();
    /// for version in trip.at("@")?.evolution("city") {
    ///     let version = version?;
    ///     cities.push((version.blame.step, version.value));
    /// }
    /// assert_eq!(cities, [(1, Some("Oslo".into())), (0, Some("Bern".into()))]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn evolution(&self, channel: &str) -> Evolution {
        Evolution::new(self, channel, VersionPlace::Channel)
    }

    /// Returns the contents that the item with an id had on the lineage of this checkpoint, newest first; none if the
    /// list never had it. The item may be removed by now.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
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
    /// let chat = Store::memory().thread("chat")?;
    /// for text in ["Hotel", "Hotel in Bern"] {
    ///     chat.update(Chat::update().messages([Message::human(text).with_id("1")]))?;
    /// }
    /// chat.update(Chat::update().messages([Message::remove("1")]))?;
    /// let versions: Vec<_> = chat.at("@")?.item_evolution("messages", "1")?.collect::<std::result::Result<_, _>>()?;
    /// assert_eq!(versions.len(), 3);
    /// assert!(versions[0].value.is_none(), "it was removed");
    /// assert_eq!(versions[2].value.as_ref().expect("it was written")["content"], "Hotel");
    /// # Ok(())
    /// # }
    /// ```
    pub fn item_evolution(&self, channel: &str, id: &str) -> Result<Evolution, StoreError> {
        let position = self.past_position_of(channel, id)?.unwrap_or(u64::MAX);
        Ok(Evolution::new(self, channel, VersionPlace::Item(position)))
    }

    /// Returns the values that a key of a map channel had on the lineage of this checkpoint, newest first; none if the
    /// map never had it. The key may be removed by now, and may have been put again.
    pub fn entry_evolution(&self, channel: &str, key: &str) -> Evolution {
        Evolution::new(self, channel, VersionPlace::Entry(key.to_owned()))
    }
}

impl Evolution {
    pub(crate) fn new(at: &Snapshot, channel: &str, place: VersionPlace) -> Self {
        Self {
            at: at.clone(),
            channel: channel.into(),
            place,
            next: Some(at.point().clone()),
            page: VecDeque::new(),
            page_len: EVOLUTION_PAGE_MIN,
            deleted: None,
            queued: None,
        }
    }

    /// Returns the next older version of the channel.
    fn next_record(&mut self) -> Result<Option<VersionRecord>, StoreError> {
        while self.page.is_empty() {
            let Some(at) = self.next.take() else { return Ok(None) };
            let backend = self.at.store().backend();
            backend.versions(&at, Some(&*self.channel), 0, &mut |version| {
                self.page.push_back(version.clone());
                Ok(self.page.len() < self.page_len)
            })?;
            if self.page.len() >= self.page_len
                && let Some(before) = self.page.back().and_then(|oldest| oldest.channel.ordinal.checked_sub(1))
            {
                let record = backend.ancestors(&at, &[before])?.pop().flatten();
                self.next = record.map(|record| record.point);
            }
            self.page_len = (self.page_len * 4).min(EVOLUTION_PAGE_MAX);
        }
        Ok(self.page.pop_front())
    }

    /// Returns the next older value, without the details of its writer.
    pub(crate) fn next_version(&mut self) -> Result<Option<PastValue>, StoreError> {
        if self.queued.is_some() {
            return Ok(self.queued.take());
        }
        while let Some(version) = self.next_record()? {
            let channel = &version.channel;
            let written = WriteOrigin { ordinal: channel.ordinal, task: channel.task, version: Some(channel.version) };
            let Some(places) = self.place.positions() else {
                return Ok(Some(PastValue { value: self.value(&version)?, written }));
            };
            let is_apart = |written: &Range<u64>| written.end <= places.start || places.end <= written.start;
            if version.positions.as_ref().is_some_and(is_apart) {
                continue;
            }
            match self.item(&version, places)? {
                None => self.deleted = Some(WriteOrigin { version: None, ..written }),
                Some(item) => {
                    // An older write shows, so the positions of the version were wider than its changes.
                    let item = (item.written.ordinal == written.ordinal).then_some(item);
                    if let Some(written) = self.deleted.take() {
                        self.queued = item;
                        return Ok(Some(PastValue { value: None, written }));
                    }
                    if item.is_some() {
                        return Ok(item);
                    }
                }
            }
        }
        Ok(None)
    }

    /// Returns the reference to the checkpoint with an ordinal.
    fn point(&self, ordinal: u64) -> Result<CheckpointRef, StoreError> {
        let record = self.at.store().backend().ancestors(self.at.point(), &[ordinal])?.pop().flatten();
        let missing =
            || StoreError::CheckpointNotFound { thread: self.at.point().thread.clone(), id: self.at.id().to_string() };
        record.map(|record| record.point).ok_or_else(missing)
    }

    fn value(&self, version: &VersionRecord) -> Result<Option<Value>, StoreError> {
        let channel = &version.channel;
        match &channel.value {
            ChannelValue::Empty => Ok(None),
            ChannelValue::Value(_) => self.at.value_of(channel).map(Some),
            ChannelValue::Items => {
                let (point, mut items) = (self.point(channel.ordinal)?, ShapedItems::new());
                let add = &mut |row: ItemRow<'_>| items.add(row.position, row.payload);
                self.at.store().backend().items(&point, &self.channel, ItemRange::All, add)?;
                Ok(Some(items.into_value()))
            }
        }
    }

    /// Returns the item at its place as it was at a version of the list, with its own writer.
    fn item(&self, version: &VersionRecord, places: Range<u64>) -> Result<Option<PastValue>, StoreError> {
        if version.channel.value != ChannelValue::Items {
            return Ok(None);
        }
        let (point, mut found) = (self.point(version.channel.ordinal)?, None);
        let range = ItemRange::Positions(places.start, places.end);
        self.at.store().backend().items(&point, &self.channel, range, &mut |row| {
            let written = WriteOrigin { ordinal: row.ordinal, task: row.task, version: None };
            let item = item_value(row.payload)?;
            let value = match &self.place {
                VersionPlace::Entry(key) => value_of_key(item, key),
                VersionPlace::Item(_) | VersionPlace::Channel => Some(item),
            };
            if value.is_some() {
                found = Some(PastValue { value, written });
            }
            Ok(())
        })?;
        Ok(found)
    }
}

impl Iterator for Evolution {
    type Item = Result<ValueVersion, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_version().and_then(|version| {
            let Some(PastValue { value, written }) = version else { return Ok(None) };
            let blame = WriteOrigin::blames(&self.at, &[written])?.pop();
            Ok(blame.map(|blame| ValueVersion { value, blame }))
        });
        if next.is_err() {
            (self.next, self.queued) = (None, None);
            self.page.clear();
        }
        next.transpose()
    }
}

debug_fields!(Evolution { at, channel });
