//! Lists checkpoints: of a namespace or a thread, newest first, and in the order of the log. *Absent:* pruned
//! checkpoints, which are passed over.

use super::record::page;
use crate::base::ThreadId;
use crate::base::limits::PAGE_ROWS_MAX;
use crate::store::query::CheckpointQuery;
use crate::store::record::CheckpointRecord;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::query::Statements;
use crate::store::sqlite::rows::checkpoint::{RecordRow, checkpoint_row};
use crate::store::sqlite::sql;
use crate::store::sqlite::verify::succession::{ListingEntry, Succession};
use crate::store::sqlite::view::ReadView;
use rusqlite::{Params, params};

impl ReadView<'_> {
    /// Lists checkpoints, newest first. One that an index does not show is noticed.
    pub(crate) fn checkpoints(self, query: &CheckpointQuery) -> Res<Vec<CheckpointRecord>> {
        // Seventeen bytes of 0xff are above every id.
        let above = [0xff_u8; 17];
        let before: &[u8] = query.before.as_ref().map_or(&above, |id| id.as_bytes());
        let limit = page(if query.limit == 0 { PAGE_ROWS_MAX } else { query.limit });
        let mut succession = Succession::default();
        let namespace = match &query.namespace {
            None => None,
            Some(namespace) => {
                let Some(namespace) = self.namespace(&query.thread, namespace)? else { return Ok(Vec::new()) };
                let begin = checkpoint_row(self.conn, sql::RECORD_AT, params![namespace, before], |row| {
                    Ok(ListingEntry::of(row))
                })?;
                begin.into_iter().for_each(|link| succession.begin_below(link));
                Some(namespace)
            }
        };
        // A damaged index can hand out one row again and again: a listing by pages ends because ids go down.
        let (mut records, mut last): (Vec<CheckpointRecord>, _) = (Vec::new(), before.to_vec());
        let (mut is_first, mut ended) = (true, limit == 0);
        while !ended && (records.len() as i64) < limit {
            let wanted = limit - records.len() as i64;
            let listed = match namespace {
                None => self.listed(sql::RECORDS_OF_THREAD, params![query.thread.as_str(), last, wanted])?,
                Some(namespace) => self.listed(sql::RECORDS_OF_NAMESPACE, params![namespace, last, wanted])?,
            };
            ended = (listed.len() as i64) < wanted;
            if is_first && listed.is_empty() && namespace.is_some() && query.before.is_none() {
                return Err(corrupt(
                    format!("thread {:?}", query.thread),
                    "the checkpoints of a namespace are missing",
                ));
            }
            let mut is_page_first = true;
            for (record, link) in listed {
                let id = record.point.checkpoint.as_bytes();
                let is_below = id[..] < last[..] || namespace.is_none() && !is_page_first && id[..] == last[..];
                if !is_below {
                    return Err(corrupt(format!("checkpoint {}", record.seq), "the listing gives it out of order"));
                }
                succession.add(self.conn, link, query.before.is_none())?;
                (last, is_first, is_page_first) = (id.to_vec(), false, false);
                if !record.pruned {
                    records.push(record);
                } else if namespace.is_some()
                    && let Some((id, first)) = self.first_of_run(&link)?
                {
                    // The checkpoints of a run of pruned ones have ids beside one another.
                    succession.begin_below(first);
                    (last, ended) = (id, false);
                    break;
                }
            }
        }
        if ended && limit > 0 {
            succession.end(self.conn)?;
        }
        Ok(records)
    }

    /// Returns the id of the first checkpoint of a run of pruned ones, and its entry, if it is another one.
    fn first_of_run(self, last: &ListingEntry) -> Res<Option<(Vec<u8>, ListingEntry)>> {
        if last.pruned_below == 0 {
            return Ok(None);
        }
        let place = [last.branch, last.ordinal.saturating_sub(last.pruned_below)];
        let entry = |row: &RecordRow<'_>| Ok((row.id.to_vec(), ListingEntry::of(row)));
        let first = checkpoint_row(self.conn, sql::RECORD_AT_PLACE, place, entry)?;
        let is_there = |first: &(Vec<u8>, ListingEntry)| [first.1.branch, first.1.ordinal] == place;
        let lost = || corrupt(format!("checkpoint {}", last.seq), "the pruned checkpoints before it are missing");
        first.filter(is_there).map(Some).ok_or_else(lost)
    }

    /// Reads checkpoints in the order of the log.
    pub(crate) fn records_after(self, seq: u64, thread: Option<&ThreadId>, limit: usize) -> Res<Vec<CheckpointRecord>> {
        let seq = i64::try_from(seq).unwrap_or(i64::MAX);
        if let Some(thread) = thread {
            // A follower of one thread is woken by the commits of all: it does not read theirs.
            let newest: Option<i64> = self.conn.one(sql::NEWEST_OF_THREAD, [thread.as_str()])?;
            if newest.is_none_or(|newest| newest <= seq) {
                return Ok(Vec::new());
            }
        }
        let (mut found, mut after) = (Vec::new(), seq);
        loop {
            let wanted = page(limit) - found.len() as i64;
            let page = self.records(sql::RECORDS_AFTER, params![after, thread.map(ThreadId::as_str), wanted])?;
            let (read, last) = (page.len() as i64, page.last().map(|record| record.seq as i64));
            let places = std::iter::once(after).chain(page.iter().map(|record| record.seq as i64));
            // A follower of a log that goes back would never come to its end.
            if !places.is_sorted_by(|one, next| one < next) {
                return Err(corrupt(format!("the checkpoints after {after}"), "the log gives them out of order"));
            }
            found.extend(page.into_iter().filter(|record| !record.pruned));
            match last {
                Some(last) if read == wanted && found.len() < limit.min(PAGE_ROWS_MAX) => after = last,
                _ => return Ok(found),
            }
        }
    }

    fn listed(self, sql: &str, params: impl Params) -> Res<Vec<(CheckpointRecord, ListingEntry)>> {
        self.conn.read_all(sql, params, |row| {
            let row = RecordRow::verified(row)?;
            Ok((self.record(&row)?, ListingEntry::of(&row)))
        })
    }
}
