//! Reads the versions of a lineage in pages, the newest checkpoint first: a page is read in one transaction, and
//! visited after that has ended.

use super::lineage;
use super::payloads::Payloads;
use crate::limits::{ITEM_PAGE_BYTES_MAX, VERSION_PAGE_MAX, VERSION_PAGE_MIN};
use crate::store::record::{ChannelValue, CheckpointRef, VersionRecord};
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::rows::list_end::ListEnd;
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::version::{EMPTY, LIST, VALUE, VersionRow};
use crate::store::sqlite::view::ReadView;

/// The rest of a lineage after the pages that were read.
pub(crate) struct VersionPages {
    /// The lowest ordinal to read.
    down_to: i64,
    /// The ordinal below which the next page begins; `None` before the first.
    below: Option<i64>,
    /// Checkpoints of the next page: few first, because a visitor may need no more.
    checkpoints: i64,
}

impl VersionPages {
    /// Begins to read the versions down to an ordinal.
    pub(crate) fn new(down_to: u64) -> Self {
        Self { down_to: i64::try_from(down_to).unwrap_or(i64::MAX), below: None, checkpoints: VERSION_PAGE_MIN }
    }

    /// Reads the next page in the transaction of a view; `None` after the last one.
    pub(crate) fn read(
        &mut self,
        view: ReadView<'_>,
        at: &CheckpointRef,
        channel: Option<&str>,
    ) -> Res<Option<Vec<VersionRecord>>> {
        let (branch, ordinal) = view.lineage_of(at)?;
        let last = self.below.map_or(ordinal, |below| below - 1);
        if last < self.down_to {
            return Ok(None);
        }
        let key = match channel {
            Some(channel) => match view.names.find(view.conn, Kind::Channel, channel)? {
                Some(key) => Some(key),
                None => return Ok(None),
            },
            None => None,
        };
        let first = self.down_to.max(last.saturating_sub(self.checkpoints - 1));
        let (mut page, mut bytes, mut below) = (Vec::new(), 0, first);
        let mut payloads = Payloads::new(view)?;
        let has_deletions = view.has_deletions()?;
        for span in lineage::spans(view.conn, branch, ordinal, first)? {
            let part = (span.first.max(first), span.last.min(last));
            let goes_on = part.0 > part.1
                || lineage::walk(view, span.branch, part, &mut |rows| {
                    below = rows.first().map_or(below, |row| row.ordinal);
                    if has_deletions && view.is_pruned_at(span.branch, below)? {
                        return Ok(true);
                    }
                    for row in rows.into_iter().filter(|row| matches!(row.kind, EMPTY | VALUE | LIST)) {
                        if key.is_none_or(|key| key == row.key) {
                            let record = version(view, &row, &mut payloads)?;
                            bytes += match &record.channel.value {
                                ChannelValue::Value(payload) => payload.len(),
                                _ => 0,
                            };
                            page.push(record);
                        }
                    }
                    Ok(bytes < ITEM_PAGE_BYTES_MAX)
                })?;
            if !goes_on {
                break;
            }
        }
        debug_assert!((first..=last).contains(&below), "a page brings at least one checkpoint");
        self.below = Some(below);
        self.checkpoints = (self.checkpoints * 4).min(VERSION_PAGE_MAX);
        Ok(Some(page))
    }
}

fn version(view: ReadView<'_>, row: &VersionRow, payloads: &mut Payloads<'_>) -> Res<VersionRecord> {
    let channel = view.channel(row, payloads)?;
    let written = if row.kind == LIST { Some(ListEnd::of(row)?.written) } else { None };
    Ok(VersionRecord::new(channel, written.map(|(first, last)| first..last)))
}
