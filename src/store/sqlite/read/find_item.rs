//! Finds the item with an id: by the index of payloads, and by the order in which payloads are stored.
//!
//! The index leads from an id to payloads, and the payloads that were put first at the positions of a list on a
//! branch ascend with the positions. So a position is found by halving, and the item that is there now is compared.
//! An item of a referenced list, and one whose first content had another id, are searched in the whole list.

use super::items::{ChannelRows, Visit};
use super::lineage;
use crate::limits::FOUND_ITEMS_MAX;
use crate::store::error::StoreError;
use crate::store::query::ItemRange;
use crate::store::record::CheckpointRef;
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::rows::payload::ItemIdColumn;
use crate::store::sqlite::sql;
use crate::store::sqlite::view::ReadView;
use rusqlite::params;
use rusqlite::types::{ToSqlOutput, Value};

impl ReadView<'_> {
    /// Visits the item of a list that has an id in its index; returns whether there is one.
    pub(crate) fn find_item(self, at: &CheckpointRef, channel: &str, id: &str, visit: Visit<'_>) -> Res<bool> {
        let (_, branch, ordinal) = self.place(at)?;
        let Some(list) = ChannelRows::read(self, branch, ordinal, channel)? else { return Ok(false) };
        let mut found = false;
        for payload in self.payloads_of(id)? {
            for span in lineage::spans(self.conn, branch, ordinal, 0)?.into_iter().take(FOUND_ITEMS_MAX) {
                let Some(position) = self.first_put(&list, (span.branch, span.last), payload)? else { continue };
                list.range(position, position, &mut |row| {
                    if row.payload.index.is_some_and(|index| index.id == Some(id)) {
                        found = true;
                        return visit(row);
                    }
                    Ok(())
                })?;
                if found {
                    return Ok(true);
                }
            }
        }
        self.search_item(at, channel, id, visit)
    }

    /// Returns the newest payloads of items with an id, as far as they are in the clear.
    fn payloads_of(self, id: &str) -> Res<Vec<i64>> {
        let id = ItemIdColumn::of(id);
        let id = ToSqlOutput::Borrowed(id.column());
        self.conn.all(sql::PAYLOADS_OF_ITEM, params![id, FOUND_ITEMS_MAX as i64])
    }

    /// Returns the position at which a payload was put first, on a branch up to an ordinal.
    fn first_put(self, list: &ChannelRows<'_>, (branch, last): (i64, i64), payload: i64) -> Res<Option<i64>> {
        let (mut low, mut high) = (0, i64::try_from(list.end.end).unwrap_or(i64::MAX));
        while low < high {
            let middle = low + (high - low) / 2;
            match self.conn.first(sql::ITEM_FIRST_PUT, [branch, list.channel(), middle, last])? {
                Some((position, Value::Integer(first))) if first == payload => return Ok(Some(position)),
                Some((position, Value::Integer(first))) if first < payload => low = i64::saturating_add(position, 1),
                _ => high = middle,
            }
        }
        Ok(None)
    }

    fn search_item(self, at: &CheckpointRef, channel: &str, id: &str, visit: Visit<'_>) -> Res<bool> {
        let (mut found, mut outcome) = (false, Ok(()));
        let searched = self.items(at, channel, ItemRange::All, &mut |row| {
            if row.payload.index.is_some_and(|index| index.id == Some(id)) {
                found = true;
                outcome = visit(row);
                return Err(StoreError::Read { reason: "the item is found".into(), source: None });
            }
            Ok(())
        });
        outcome?;
        if found { Ok(true) } else { searched.map(|()| false) }
    }
}
