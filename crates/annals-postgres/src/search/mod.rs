//! Searches: the texts of the log are compared, the newest first. An index shows the checkpoints whose text may match;
//! the stored text decides.

mod index;
mod sql;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use annals::base::Payload;
use annals::store::backend::{BegunWord, HitPlace, NewestHits, Search, SearchedEntry};
use annals::store::log::{HeadParts, Log, LogExt, RecordQuery, Searches};
use annals::store::record::{ChannelValue, CheckpointRecord, ListChangeOp, StoredListChange};
use annals::store::search::{SearchHit, SearchIndex, SearchPage};
use annals::store::{CheckpointRef, ItemRange, SearchOptions, SearchQuery, StoreError};

use self::sql as search_sql;
use crate::PostgresBackend;
use crate::client::{Param, PgQuery, Together};
use crate::limits::SEARCH_PAGE_ROWS;
use crate::read::points::{self, at, query_at};
use crate::read::state::{all_items, kept, range_deletes};
use crate::rows::{Cells, LIST, PgChanges, PgContent, PgPlace, PgRecord, VALUE, record};
use crate::sql as common_sql;

/// An item or a value that a checkpoint put: channel, position of an item, task and content.
type PutContent = (Arc<str>, Option<u64>, Option<u32>, Payload);

impl Searches for PostgresBackend {
    fn search(&self, query: &SearchQuery) -> Result<SearchPage, StoreError> {
        let search = Search::of(query)?;
        let mut newest = NewestHits::of(&search);
        let mut before = PgPlace { thread: i64::MAX, branch: i64::MAX, ordinal: i64::MAX };
        let mut seq = i64::MAX;
        let grams: Vec<Option<i64>> = search.grams().into_iter().map(|gram| Some(gram.into())).collect();
        let (statement, grams) = match !grams.is_empty() && index::is_ready(self)? {
            true => (search_sql::INDEXED, Some(Param::Ints(grams))),
            false => (search_sql::SCANNED, None),
        };
        loop {
            let params = [seq, before.thread, before.branch, before.ordinal, SEARCH_PAGE_ROWS];
            let mut params: Vec<Param> = params.map(|part| Param::Int(Some(part))).into();
            params.extend(grams.clone());
            let rows = self.client.scan(vec![PgQuery::new(statement, params)], Together::Apart)?.remove(0);
            let read = |row| {
                let mut cells = Cells::of(row);
                Ok((record(&mut cells)?, PgChanges::read(&mut cells)?))
            };
            let page = rows.iter().map(read).collect::<Result<Vec<_>, StoreError>>()?;
            let mut items = items_of(self, &page)?;
            for (of, changes) in &page {
                (before, seq) = (of.place, of.record.seq.cast_signed());
                let mut puts = values_of(changes)?;
                puts.extend(items.remove(&of.place).unwrap_or_default());
                for put in &puts {
                    offer(self, &search, (&of.record, of.place, put), &mut newest)?;
                }
            }
            let is_over = !newest.wants(&HitPlace::new(seq.cast_unsigned(), "".into(), 0));
            if (page.len() as i64) < SEARCH_PAGE_ROWS || is_over {
                return Ok(newest.page());
            }
        }
    }

    fn search_list(
        &self,
        of: &CheckpointRef,
        channel: &str,
        text: &str,
    ) -> Result<Option<Vec<StoredListChange>>, StoreError> {
        let (wanted, names) = ([at(of)], Param::Texts(vec![Some(channel.to_owned())]));
        let queries = vec![
            query_at(common_sql::RECORDS_AT, &wanted, []),
            query_at(search_sql::ITEM_HISTORY_AT, &wanted, [names.clone()]),
            query_at(search_sql::RANGE_HISTORY_AT, &wanted, [names]),
        ];
        let answers = self.client.read(queries, Together::Snapshot)?;
        kept(of, points::records(&answers[0], 1)?.pop().flatten())?;
        let mut changes = Vec::new();
        for row in &answers[1] {
            let mut cells = Cells::of(row);
            cells.next::<&str>()?;
            let (position, ordinal) = (cells.number()?, cells.number()?);
            let task = cells.next::<Option<i64>>()?.map(|task| task as u32);
            let op = match cells.payload()? {
                Some(payload) => ListChangeOp::of(payload.as_ref(), text),
                None => ListChangeOp::Delete,
            };
            changes.push(StoredListChange::new(position..position + 1, ordinal, task, op));
        }
        for delete in range_deletes(&answers[2])? {
            let positions = delete.first.cast_unsigned()..delete.last.cast_unsigned() + 1;
            let ordinal = delete.ordinal.cast_unsigned();
            // The items of the checkpoint itself stand above those of the list that it references.
            let of_itself = changes.iter().filter(|change| change.ordinal == ordinal);
            let own: HashSet<u64> = of_itself.map(|change| change.positions.start).collect();
            changes.push(StoredListChange::new(positions, ordinal, delete.task, ListChangeOp::Delete));
            let Some(base) = &delete.reference else { continue };
            let point = CheckpointRef::new(delete.thread.clone(), base.namespace.clone(), base.checkpoint);
            for (position, (_, _, payload)) in all_items(self, &point, &base.channel)? {
                let Some(payload) = payload else { continue };
                let (position, op) = (position.cast_unsigned(), ListChangeOp::of(payload.as_ref(), text));
                if own.contains(&position) {
                    continue;
                }
                changes.push(StoredListChange::new(position..position + 1, ordinal, delete.task, op));
            }
        }
        StoredListChange::order(&mut changes);
        Ok(Some(changes))
    }

    fn enable(&self, options: &SearchOptions) -> Result<(), StoreError> {
        index::enable(self, options)
    }

    fn disable(&self) -> Result<(), StoreError> {
        index::disable(self)
    }

    fn index(&self) -> Result<Option<SearchIndex>, StoreError> {
        index::state(self)
    }
}

/// Reads the items that checkpoints put, by the positions that their changes name. A pruned one retains items of lists
/// that its changes no longer name.
fn items_of(
    backend: &PostgresBackend,
    page: &[(PgRecord, PgChanges)],
) -> Result<HashMap<PgPlace, Vec<PutContent>>, StoreError> {
    let mut lists: Vec<(PgPlace, &str, i64, i64)> = Vec::new();
    let (pruned, kept): (Vec<_>, Vec<_>) = page.iter().partition(|(of, _)| of.record.pruned);
    for (of, changes) in kept {
        for (channel, _, _, content) in changes.each().filter(|(_, _, kind, _)| *kind == LIST) {
            let positions = PgContent::unpack(LIST, content)?.positions;
            let column = |position: u64| i64::try_from(position).unwrap_or(i64::MAX);
            lists.push((of.place, channel, column(positions.start), column(positions.end)));
        }
    }
    let mut found: HashMap<PgPlace, Vec<PutContent>> = HashMap::new();
    if lists.is_empty() && pruned.is_empty() {
        return Ok(found);
    }
    let ints =
        |part: fn(&(PgPlace, &str, i64, i64)) -> i64| Param::Ints(lists.iter().map(|of| Some(part(of))).collect());
    let places = |part: fn(&PgPlace) -> i64| Param::Ints(pruned.iter().map(|(of, _)| Some(part(&of.place))).collect());
    let params = [
        ints(|of| of.0.thread),
        ints(|of| of.0.branch),
        ints(|of| of.0.ordinal),
        Param::Texts(lists.iter().map(|of| Some(of.1.to_owned())).collect()),
        ints(|of| of.2),
        ints(|of| of.3),
        places(|place| place.thread),
        places(|place| place.branch),
        places(|place| place.ordinal),
    ];
    for row in &backend.client.read(vec![PgQuery::new(search_sql::ITEMS, params)], Together::Apart)?.remove(0) {
        let mut cells = Cells::of(row);
        let (place, channel, position) = (cells.place()?, cells.next::<&str>()?, cells.number()?);
        let task = cells.next::<Option<i64>>()?.map(|task| task as u32);
        if let Some(payload) = cells.payload()? {
            found.entry(place).or_default().push((channel.into(), Some(position), task, payload));
        }
    }
    Ok(found)
}

fn values_of(changes: &PgChanges) -> Result<Vec<PutContent>, StoreError> {
    let mut found = Vec::new();
    for (channel, _, kind, content) in changes.each().filter(|(_, _, kind, _)| *kind == VALUE) {
        let content = PgContent::unpack(kind, content)?;
        if let ChannelValue::Value(payload) = content.value {
            found.push((channel.into(), None, content.task, payload));
        }
    }
    Ok(found)
}

/// Adds an entry to the hits if it matches.
fn offer(
    backend: &PostgresBackend,
    search: &Search,
    (record, place, put): (&CheckpointRecord, PgPlace, &PutContent),
    newest: &mut NewestHits,
) -> Result<(), StoreError> {
    let (channel, position, task, payload) = put;
    let hit_place = HitPlace::new(record.seq, Arc::clone(channel), position.unwrap_or(0));
    if !search.reads(channel) || !search.shows(&hit_place) || !newest.wants(&hit_place) {
        return Ok(());
    }
    let begun = || begun(backend, record, channel, position.unwrap_or(0));
    let entry = SearchedEntry::of(payload.as_ref(), *position, begun)?;
    let Some(entry) = entry.filter(|entry| search.matches(entry)) else { return Ok(()) };
    let node = match (task, record.parent_ref()) {
        (Some(task), Some(parent)) => {
            let parent = backend.checkpoint(&parent)?;
            parent.and_then(|parent| Some(Arc::clone(&parent.tasks.get(*task as usize)?.name)))
        }
        _ => None,
    };
    let on_head = is_on_head(backend, record, place, (channel, *position))?;
    let hit = SearchHit::of(record, channel, &entry, (node, on_head), search.snippet(&entry));
    if search.passes(&hit) {
        newest.add(hit_place, hit);
    }
    Ok(())
}

/// Returns the word that the parts of a text before an entry began on its branch.
fn begun(
    backend: &PostgresBackend,
    record: &CheckpointRecord,
    channel: &str,
    position: u64,
) -> Result<String, StoreError> {
    let mut word = BegunWord::at_end();
    let first = first_of_branch(backend, record)?;
    let mut before: Vec<(u64, u64, Payload)> = Vec::new();
    let from = position.saturating_sub(SEARCH_PAGE_ROWS.unsigned_abs());
    let read = backend.items(&record.point, channel, ItemRange::Positions(from, position), &mut |row| {
        before.push((row.position, row.ordinal, row.payload.to_payload()));
        Ok(())
    });
    match read {
        // The state of a pruned checkpoint is not stored: the word begins with its entry.
        Err(StoreError::CheckpointPruned { .. }) => return Ok(String::new()),
        read => read?,
    }
    let mut expected = position;
    for (at, ordinal, payload) in before.into_iter().rev() {
        let is_next = at + 1 == expected && ordinal >= first;
        if !is_next || !word.add(&payload.as_ref()) {
            break;
        }
        expected = at;
    }
    Ok(word.finish())
}

/// Returns the ordinal of the first checkpoint of the branch of a checkpoint.
fn first_of_branch(backend: &PostgresBackend, record: &CheckpointRecord) -> Result<u64, StoreError> {
    let point = &record.point;
    let branches = backend.branches(&point.thread, &point.namespace)?;
    let own = branches.iter().find(|branch| branch.last.branch == record.branch);
    Ok(own.and_then(|branch| branch.leaves).map_or(0, |(_, ordinal)| ordinal + 1))
}

/// Returns whether the channel still holds an entry of a checkpoint at the head of the namespace.
fn is_on_head(
    backend: &PostgresBackend,
    record: &CheckpointRecord,
    place: PgPlace,
    (channel, position): (&Arc<str>, Option<u64>),
) -> Result<bool, StoreError> {
    let point = &record.point;
    let head = backend.heads(&[(&point.thread, &point.namespace)], HeadParts::ID)?.pop().flatten();
    let Some(head) = head else { return Ok(false) };
    let head = CheckpointRef::new(point.thread.clone(), point.namespace.clone(), head.checkpoint);
    let ordinals = [record.ordinal];
    let lineage = backend.records(&RecordQuery::Ordinals { at: &head, ordinals: &ordinals })?.pop().flatten();
    if lineage.is_none_or(|of| of.point != *point) {
        return Ok(false);
    }
    let Some(position) = position else {
        let state = backend.state(&head)?;
        let of = state.channels.iter().find(|of| of.channel == *channel);
        return Ok(of.is_some_and(|of| {
            of.ordinal == place.ordinal.cast_unsigned() && matches!(of.value, ChannelValue::Value(_))
        }));
    };
    let mut holds = false;
    backend.items(&head, channel, ItemRange::Positions(position, position.saturating_add(1)), &mut |row| {
        holds |= row.ordinal == record.ordinal;
        Ok(())
    })?;
    Ok(holds)
}
