//! Pickaxe: the checkpoints at which a text appears in the state, and at which it disappears.
//!
//! Each stored value of the lineage is searched once, by its bytes; those that hold the text are decoded to make
//! sure. No state is read. *Absent:* full-text search, and ranking.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::Value;
use crate::store::StoreError;
use crate::store::log::LogReads;
use crate::store::record::{ChannelValue, ItemIndexRef, ListChangeOp, StoredListChange};

use super::blame::{Blame, WriteOrigin};
use crate::history::read::snapshot::{Snapshot, item_value};
use crate::history::thread::Thread;
use crate::store::record::{is_control, plain_value};

/// A change of the state by which a text appears in a value, or disappears from it ([`Snapshot::pickaxe`]).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TextChange {
    /// True if the text appears, false if it disappears.
    pub appears: bool,
    /// The channel.
    pub channel: Arc<str>,
    /// The id of the item that holds or held the text, if it has one.
    pub item: Option<String>,
    /// The position of the item in its list; `None` of a channel that is not a list.
    pub position: Option<u64>,
    /// The writer of the change.
    pub blame: Blame,
}

/// A change before its writer is looked up.
struct TextHit {
    appears: bool,
    channel: Arc<str>,
    item: Option<String>,
    position: Option<u64>,
    written: WriteOrigin,
}

impl Snapshot {
    /// Returns the changes on the lineage of this checkpoint by which a text appears in a value or disappears from it,
    /// oldest first. A value holds a text if one of its texts does, or the name of a member.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the text is empty; as [`Snapshot::values`].
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
    /// chat.update(Chat::update().messages([Message::human("A hotel in Bern").with_id("1")]))?;
    /// chat.update(Chat::update().messages([Message::ai("Try the Gasthof Adler").with_id("2")]))?;
    /// chat.update(Chat::update().messages([Message::remove("2")]))?;
    ///
    /// let changes = chat.at("@")?.pickaxe("Gasthof")?;
    /// let steps: Vec<_> = changes.iter().map(|change| (change.appears, change.blame.step)).collect();
    /// assert_eq!(steps, [(true, 1), (false, 2)]);
    /// assert_eq!(changes[0].item.as_deref(), Some("2"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn pickaxe(&self, text: &str) -> Result<Vec<TextChange>, StoreError> {
        if text.is_empty() {
            return Err(StoreError::Invalid { field: "text", reason: "it is empty".into() });
        }
        let (mut found, lists) = self.pickaxe_values(text)?;
        for channel in lists {
            let changes = self.store().backend().search_list(self.point(), &channel, text)?;
            found.extend(pickaxe_items(&channel, &changes, text)?);
        }
        found.sort_by(|a, b| {
            let key = |found: &TextHit| (found.written.ordinal, Arc::clone(&found.channel), found.position);
            key(a).cmp(&key(b))
        });
        let written: Vec<WriteOrigin> = found.iter().map(|found| found.written).collect();
        let blames = WriteOrigin::blames(self, &written)?;
        let change = |(found, blame): (TextHit, Blame)| TextChange {
            appears: found.appears,
            channel: found.channel,
            item: found.item,
            position: found.position,
            blame,
        };
        Ok(found.into_iter().zip(blames).map(change).collect())
    }

    /// Returns the changes of [`Snapshot::pickaxe`] on all branches of the thread, abandoned ones included, each
    /// once, oldest first.
    pub(crate) fn pickaxe_all(branches: Vec<Self>, text: &str) -> Result<Vec<TextChange>, StoreError> {
        let mut all: Vec<TextChange> = Vec::new();
        for tip in branches {
            // The changes that two branches share are found on the first.
            let found = tip.pickaxe(text)?;
            let new = |change: &TextChange| !all.contains(change);
            let new: Vec<TextChange> = found.into_iter().filter(new).collect();
            all.extend(new);
        }
        all.sort_by_key(|change| change.blame.point.checkpoint);
        Ok(all)
    }

    /// Searches the versions of channels that are not lists; returns the names of those that are.
    fn pickaxe_values(&self, text: &str) -> Result<(Vec<TextHit>, BTreeSet<Arc<str>>), StoreError> {
        // From the newest version to the oldest: a change shows when the version before is known.
        let mut newer: BTreeMap<Arc<str>, (bool, WriteOrigin)> = BTreeMap::new();
        let (mut found, mut lists) = (Vec::new(), BTreeSet::new());
        self.visit_versions(None, 0, |version| {
            let record = &version.channel;
            if is_control(&record.channel) {
                return Ok(true);
            }
            let written = WriteOrigin { ordinal: record.ordinal, task: record.task, version: Some(record.version) };
            let holds = match &record.value {
                ChannelValue::Items => {
                    lists.insert(Arc::clone(&record.channel));
                    false
                }
                ChannelValue::Value(payload)
                    if matches!(ListChangeOp::of(payload.as_ref(), text), ListChangeOp::Match(_)) =>
                {
                    holds_text(&plain_value(payload.as_ref())?, text)
                }
                ChannelValue::Value(_) | ChannelValue::Empty => false,
            };
            let before = newer.insert(Arc::clone(&record.channel), (holds, written));
            found.extend(before.and_then(|(after, written)| value_change(&record.channel, holds, after, written)));
            Ok(true)
        })?;
        found.extend(
            newer.iter().filter_map(|(channel, (after, written))| value_change(channel, false, *after, *written)),
        );
        Ok((found, lists))
    }
}

impl Thread {
    /// Returns the changes by which a text appears in a value or disappears from it, on all branches of the thread,
    /// abandoned ones included, oldest first. The lineage of each branch is searched as [`Snapshot::pickaxe`] does.
    ///
    /// # Errors
    /// As [`Snapshot::pickaxe`].
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
    /// trip.rewind_to(&trip.at("~1")?)?;
    /// trip.update(Plan::update().city("Rome"))?;
    /// assert!(trip.at("@")?.pickaxe("Oslo")?.is_empty());
    /// assert_eq!(trip.pickaxe("Oslo")?.len(), 1, "another branch has it");
    /// # Ok(())
    /// # }
    /// ```
    pub fn pickaxe(&self, text: &str) -> Result<Vec<TextChange>, StoreError> {
        let tips = self.all_branches()?.into_iter().map(|branch| branch.last.clone());
        Snapshot::pickaxe_all(tips.collect(), text)
    }
}

/// Returns the change of a value that held a text, or did not, before and after it was written.
fn value_change(channel: &Arc<str>, before: bool, after: bool, written: WriteOrigin) -> Option<TextHit> {
    let channel = Arc::clone(channel);
    (before != after).then_some(TextHit { appears: after, channel, item: None, position: None, written })
}

/// Searches the changes of a list, in their order.
fn pickaxe_items(channel: &Arc<str>, changes: &[StoredListChange], text: &str) -> Result<Vec<TextHit>, StoreError> {
    let mut found = Vec::new();
    // The positions whose item holds the text, with its id.
    let mut present: BTreeMap<u64, Option<String>> = BTreeMap::new();
    for change in changes {
        let written = WriteOrigin { ordinal: change.ordinal, task: change.task, version: None };
        let mut note = |appears, position, item| {
            found.push(TextHit { appears, channel: Arc::clone(channel), item, position: Some(position), written });
        };
        let id = match &change.op {
            ListChangeOp::Match(payload) if holds_text(&item_value(payload.as_ref())?, text) => {
                let id = |index: ItemIndexRef<'_>| index.id.map(str::to_owned);
                Some(payload.as_ref().index.and_then(id))
            }
            _ => None,
        };
        match id {
            Some(id) => {
                if present.insert(change.positions.start, id.clone()).is_none() {
                    note(true, change.positions.start, id);
                }
            }
            None => {
                let gone: Vec<u64> = present.range(change.positions.clone()).map(|(position, _)| *position).collect();
                for position in gone {
                    let id = present.remove(&position).flatten();
                    note(false, position, id);
                }
            }
        }
    }
    Ok(found)
}

/// Returns whether a text of a value, or the name of a member, holds a text.
fn holds_text(value: &Value, text: &str) -> bool {
    match value {
        Value::Str(found) => found.contains(text),
        Value::List(items) => items.iter().any(|item| holds_text(item, text)),
        Value::Map(map) => map.iter().any(|(name, value)| name.contains(text) || holds_text(value, text)),
        _ => false,
    }
}
