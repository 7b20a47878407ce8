//! The counts of a thread: its messages, and the tokens and the costs of its model calls.
//!
//! The row of a thread in the table holds the tokens and the costs of its checkpoints up to the mark. A listing adds
//! those of the checkpoints after it. The number of messages follows from the ends of the lists at the head. *Absent:*
//! the steps in which the table follows the log.
//!
//! Invariant: a value counts only if its checks match. Damage leaves a thread without counts, and ends no listing.

use super::row::{StateRow, undamaged};
use super::{mark, sql};
use crate::store::counts::ThreadCounts;
use crate::store::sqlite::commit::places::BranchPlaces;
use crate::store::sqlite::fault::{Res, corrupt};
use crate::store::sqlite::query::{FromColumns, Statements};
use crate::store::sqlite::read::items::ChannelRows;
use crate::store::sqlite::read::payloads::Payloads;
use crate::store::sqlite::read::{lineage, list_end};
use crate::store::sqlite::rows::checkpoint::{RecordRow, checkpoint_row};
use crate::store::sqlite::rows::item::PUT;
use crate::store::sqlite::rows::list_end::ListEnd;
use crate::store::sqlite::rows::name::Kind;
use crate::store::sqlite::rows::pack::ValueColumn;
use crate::store::sqlite::rows::sealed;
use crate::store::sqlite::rows::version::LIST;
use crate::store::sqlite::sql as log_sql;
use crate::store::sqlite::verify::neighbors;
use crate::store::sqlite::view::ReadView;
use crate::store::threads::ThreadInfo;
use rusqlite::types::Value;
use std::collections::HashMap;

/// Returns the tokens and the costs that a checkpoint adds to its thread: those in its metadata, or, in the root
/// namespace, the tokens of the messages that it put at positions without older ones. A pruned one counts those
/// in its metadata alone.
pub(super) fn usage_of_checkpoint(view: ReadView<'_>, seq: i64) -> Res<ThreadCounts> {
    let read = |row: &RecordRow<'_>| {
        let place = || row.place();
        let metadata = sealed::metadata(view.conn, view.keys, &row.id, row.metadata, &place)?;
        Ok((ThreadCounts::stated(metadata.as_deref()), row.path.is_empty() && !row.is_pruned(), row.at()))
    };
    match checkpoint_row(view.conn, log_sql::RECORD_BY_SEQ, [seq], read)? {
        Some((Some(stated), ..)) => Ok(stated),
        Some((None, true, (branch, ordinal))) => usage_of_messages(view, branch, ordinal),
        _ => Ok(ThreadCounts::default()),
    }
}

/// Returns the tokens of the messages that a checkpoint put.
fn usage_of_messages(view: ReadView<'_>, branch: i64, ordinal: i64) -> Res<ThreadCounts> {
    let mut sum = ThreadCounts::default();
    let mut payloads = Payloads::new(view)?;
    for row in lineage::rows_at(view, (branch, ordinal))?.into_iter().filter(|row| row.kind == LIST) {
        let (first, end) = list_end::positions(&ListEnd::of(&row)?);
        let channel = view.names.text(view.conn, Kind::Channel, row.key)?;
        let Some(list) = view.names.find(view.conn, Kind::List, &channel)? else { continue };
        if first >= end {
            continue;
        }
        let column = |position: u64| i64::try_from(position).unwrap_or(i64::MAX);
        let written = [branch, list, column(first), column(end - 1), ordinal];
        view.conn.each(log_sql::ITEMS_WRITTEN, written, |row| {
            let (position, op, value): (i64, i64, Value) = FromColumns::read(row, 0)?;
            let place = || format!("item (branch {branch}, channel {list}, position {position}, ordinal {ordinal})");
            let value = ValueColumn::from_column((&value).into()).ok_or_else(|| corrupt(place(), "its value"));
            if op == PUT
                && let Some(tokens) = tokens(&mut payloads, value?, &place)?
                && !has_older(view, &mut payloads, (branch, list, position), ordinal)?
            {
                sum.add_usage(tokens);
            }
            Ok(())
        })?;
    }
    Ok(sum)
}

/// Returns the tokens of an item; `None` without any. An inline value has none.
fn tokens(payloads: &mut Payloads<'_>, value: ValueColumn, place: &dyn Fn() -> String) -> Res<Option<ThreadCounts>> {
    if !matches!(value, ValueColumn::Payload(_)) {
        return Ok(None);
    }
    let of_index = |payload: crate::base::PayloadRef<'_>| {
        Ok(payload.index.and_then(|index| ThreadCounts::of_tokens(index.input_tokens, index.output_tokens)))
    };
    Ok(payloads.with(value, place, of_index)?.flatten())
}

fn has_older(
    view: ReadView<'_>,
    payloads: &mut Payloads<'_>,
    (branch, list, position): (i64, i64, i64),
    ordinal: i64,
) -> Res<bool> {
    let without_tokens = view.conn.each_while(sql::OLDER_PUTS, [branch, list, position, ordinal], |row| {
        let place = || format!("item (branch {branch}, channel {list}, position {position})");
        let value = Value::read(row, 0)?;
        let value = ValueColumn::from_column((&value).into()).ok_or_else(|| corrupt(place(), "its value"))?;
        Ok(tokens(payloads, value, &place)?.is_none())
    })?;
    Ok(!without_tokens)
}

/// Returns whether an item with tokens was put at a position before, on the same branch.
pub(crate) fn has_older_tokens(view: ReadView<'_>, place: (i64, i64, i64), ordinal: i64) -> Res<bool> {
    has_older(view, &mut Payloads::new(view)?, place, ordinal)
}

/// Returns the tokens and the costs of the checkpoints of a thread up to one of the log.
pub(super) fn usage_of_thread(view: ReadView<'_>, thread: i64, last: i64) -> Res<ThreadCounts> {
    let mut sum = ThreadCounts::default();
    for seq in view.conn.all::<i64, Vec<_>>(sql::CHECKPOINTS_OF_THREAD, [thread, last])? {
        sum.add_usage(usage_of_checkpoint(view, seq)?);
    }
    Ok(sum)
}

/// Returns the number of messages at the head of a thread. The writer knows the places of the newest rows at the ends
/// of branches.
pub(super) fn messages(view: ReadView<'_>, info: &ThreadInfo, known: Option<&BranchPlaces>) -> Res<u64> {
    let (branch, ordinal) = info.place();
    let (branch, ordinal) = (branch as i64, ordinal as i64);
    let newest = match known.and_then(|known| known.at(branch, ordinal)) {
        Some(places) => lineage::at_places(view, places)?,
        None => lineage::newest(view, branch, ordinal)?,
    };
    debug_assert!(
        lineage::newest(view, branch, ordinal).map_or(true, |read| read.keys().eq(newest.keys())),
        "the places that were retained"
    );
    let mut sum = 0_u64;
    for row in newest.into_values().filter(|row| row.kind == LIST) {
        let channel = view.names.text(view.conn, Kind::Channel, row.key)?;
        let Some(list) = ChannelRows::of_row(view, &row, &channel)? else { continue };
        let mut are_messages = false;
        list.tail(1, &mut |row| {
            are_messages = row.payload.index.is_some_and(|index| index.kind.is_some());
            Ok(())
        })?;
        sum = sum.saturating_add(if are_messages { list.end.len } else { 0 });
    }
    Ok(sum)
}

/// Returns listed threads with their counts.
pub(super) fn counted(view: ReadView<'_>, threads: Vec<ThreadInfo>) -> Res<Vec<ThreadInfo>> {
    if threads.is_empty() {
        return Ok(threads);
    }
    let Some(mark) = undamaged(mark(view))? else { return Ok(threads) };
    let mut rest: HashMap<i64, Vec<i64>> = HashMap::new();
    for (seq, thread) in view.conn.all::<(i64, i64), Vec<_>>(sql::REST, [mark])? {
        rest.entry(thread).or_default().push(seq);
    }
    let filled = threads.into_iter().map(|info| {
        let counts = undamaged(of_listed(view, mark, &rest, &info))?;
        Ok(ThreadInfo { counts, ..info })
    });
    filled.collect()
}

fn of_listed(view: ReadView<'_>, mark: i64, rest: &HashMap<i64, Vec<i64>>, info: &ThreadInfo) -> Res<ThreadCounts> {
    let missing = || corrupt(format!("thread {:?}", info.id().as_str()), "it is listed, but it does not exist");
    let thread = neighbors::thread_number(view.conn, info.id())?.ok_or_else(missing)?;
    let row = StateRow::read(view.conn, view.keys, thread)?;
    let is_current = row.as_ref().is_some_and(|row| row.newest == info.seq as i64);
    let stored = row.and_then(|row| row.counts);
    let mut counts = match stored {
        Some(counts) => counts,
        None => usage_of_thread(view, thread, mark)?,
    };
    if stored.is_none() || !is_current {
        counts.messages = messages(view, info, None)?;
    }
    for seq in rest.get(&thread).into_iter().flatten() {
        counts.add_usage(usage_of_checkpoint(view, *seq)?);
    }
    Ok(counts)
}
