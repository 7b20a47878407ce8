//! The counts of threads: messages at the head, and what the model calls used.
//!
//! They are summed from the rows when they are asked for. *Absent:* counts that commits keep.

use std::collections::{BTreeSet, HashMap};

use annals::base::{Namespace, ThreadId};
use annals::store::log::{LogExt, ThreadRow};
use annals::store::{CheckpointRef, ItemRange, StoreError, ThreadCounts};

use super::points::{self, place_of, query_at};
use super::sql as read_sql;
use super::state::range_deletes;
use crate::PostgresBackend;
use crate::client::{Param, PgQuery, Together};
use crate::rows::Cells;
use crate::sql;

/// Adds the counts to the rows of threads, in one round trip, but for lists that reference other ones.
pub(crate) fn add(backend: &PostgresBackend, found: &mut HashMap<ThreadId, ThreadRow>) -> Result<(), StoreError> {
    let heads: Vec<CheckpointRef> = found
        .values()
        .filter_map(|row| row.info.as_ref())
        .map(|info| CheckpointRef::new(info.id().clone(), Namespace::root(), info.head()))
        .collect();
    let wanted: Vec<_> = heads.iter().map(points::at).collect();
    let ids = Param::Texts(heads.iter().map(|head| Some(head.thread.as_str().to_owned())).collect());
    let queries = vec![
        PgQuery::new(read_sql::STATED, [ids.clone()]),
        PgQuery::new(read_sql::TOKENS, [ids]),
        query_at(read_sql::LISTS_AT, &wanted, []),
        query_at(sql::ALL_RANGE_DELETES_AT, &wanted, []),
    ];
    let answers = backend.client.scan(queries, Together::Snapshot)?;
    let mut sums: HashMap<ThreadId, ThreadCounts> = HashMap::new();
    for row in &answers[0] {
        let mut cells = Cells::of(row);
        let (id, metadata) = (cells.thread()?, cells.next::<Option<&str>>()?);
        let stated = ThreadCounts::stated(metadata);
        stated.into_iter().for_each(|stated| sums.entry(id.clone()).or_default().add_usage(stated));
    }
    for row in &answers[1] {
        let mut cells = Cells::of(row);
        let (id, metadata, pruned) = (cells.thread()?, cells.next::<Option<&str>>()?, cells.next::<bool>()?);
        let tokens = |count: Option<i64>| count.map(|count| count as u32);
        let (input, output) = (tokens(cells.next()?), tokens(cells.next()?));
        if !pruned && ThreadCounts::stated(metadata).is_none() {
            let tokens = ThreadCounts::of_tokens(input, output);
            tokens.into_iter().for_each(|tokens| sums.entry(id.clone()).or_default().add_usage(tokens));
        }
    }
    let mut referencing = BTreeSet::new();
    for (row, delete) in answers[3].iter().zip(range_deletes(&answers[3])?) {
        if delete.reference.is_some() {
            let at: i64 = row.try_get(7).unwrap_or_default();
            referencing.insert((at, delete.channel));
        }
    }
    for row in &answers[2] {
        let mut cells = Cells::of(row);
        let at = place_of(&mut cells, heads.len())?;
        let (channel, count, is_message) = (cells.next::<String>()?, cells.number()?, cells.next::<bool>()?);
        if is_message && !referencing.contains(&(at as i64 + 1, channel)) {
            sums.entry(heads[at].thread.clone()).or_default().messages += count;
        }
    }
    for (at, channel) in referencing {
        let Some(head) = usize::try_from(at - 1).ok().and_then(|at| heads.get(at)) else { continue };
        sums.entry(head.thread.clone()).or_default().messages += messages(backend, head, &channel)?;
    }
    for (id, row) in found {
        row.info.iter_mut().for_each(|info| info.counts = Some(sums.remove(id).unwrap_or_default()));
    }
    Ok(())
}

/// Returns the number of items of a list whose last item is a message.
fn messages(backend: &PostgresBackend, head: &CheckpointRef, channel: &str) -> Result<u64, StoreError> {
    let (mut count, mut is_message) = (0, false);
    backend.items(head, channel, ItemRange::All, &mut |row| {
        count += 1;
        is_message = row.payload.index.is_some_and(|index| index.kind.is_some());
        Ok(())
    })?;
    Ok(if is_message { count } else { 0 })
}
