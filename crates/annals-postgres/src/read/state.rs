//! Reads of the state at a checkpoint.
//!
//! The channels come from the changes back to the index snapshot, and values before it from one more round trip. The
//! items of lists come from the lineage, the newest at each position, without those that a later range delete covers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use annals::base::{ListRef, Payload, ThreadId};
use annals::store::log::{StateQuery, VisitState};
use annals::store::record::{ChannelRecord, ChannelValue, ItemRow, StatePart, StateRecord, VersionRecord};
use annals::store::{CheckpointRef, ItemRange, StoreError};
use tokio_postgres::Row;

use super::points::{self, PointState, at, query_at};
use crate::PostgresBackend;
use crate::client::{Param, PgQuery, Together};
use crate::error::corrupt;
use crate::limits::VERSIONS_PAGE_ROWS;
use crate::pack::Unpacker;
use crate::read::sql as read_sql;
use crate::rows::{Cells, EMPTY, LIST, PgChanges, PgContent, PgPlace, PgRecord, SkeletonChannel, VALUE, unpack_change};
use crate::sql;

type StateVisit = Result<(), StoreError>;

/// An item as it is stored: ordinal, task, and content; `None` for a deletion.
pub(crate) type StoredItem = (i64, Option<u32>, Option<Payload>);

/// The newest items of a list by position.
pub(crate) type PgItems = BTreeMap<i64, StoredItem>;

/// A deletion of a range of positions.
#[derive(Clone, Debug)]
pub(crate) struct RangeDelete {
    pub(crate) channel: String,
    pub(crate) ordinal: i64,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) task: Option<u32>,
    /// The list as which the list begins there.
    pub(crate) reference: Option<ListRef>,
    /// The thread that it was written in: a fork inherits the references of its source.
    pub(crate) thread: ThreadId,
}

impl RangeDelete {
    pub(crate) fn is_whole(&self) -> bool {
        self.first == 0 && self.last == i64::MAX
    }

    fn covers(&self, position: i64) -> bool {
        (self.first..=self.last).contains(&position)
    }
}

pub(crate) fn range_deletes(rows: &[Row]) -> Result<Vec<RangeDelete>, StoreError> {
    let read = |row| {
        let mut cells = Cells::of(row);
        let (channel, ordinal, first, last) = (cells.next()?, cells.next()?, cells.next()?, cells.next()?);
        let task = cells.next::<Option<i64>>()?.map(|task| task as u32);
        let reference = cells.next::<Option<&[u8]>>()?;
        let reference = reference.map(|packed| Unpacker::new(packed, "range_delete.reference").reference());
        let (reference, thread) = (reference.transpose()?, cells.thread()?);
        Ok(RangeDelete { channel, ordinal, first, last, task, reference, thread })
    };
    rows.iter().map(read).collect()
}

/// Reads items: channel, position, ordinal, task and payload, by channel.
fn items(rows: &[Row], skip: usize) -> Result<BTreeMap<String, PgItems>, StoreError> {
    let mut found: BTreeMap<String, PgItems> = BTreeMap::new();
    for row in rows {
        let mut cells = Cells::of(row);
        for _ in 0..skip {
            cells.next::<i64>()?;
        }
        let (channel, position, ordinal) = (cells.next::<&str>()?, cells.next()?, cells.next::<i64>()?);
        let task = cells.next::<Option<i64>>()?.map(|task| task as u32);
        let payload = cells.payload()?;
        let of = match found.get_mut(channel) {
            Some(of) => of,
            None => found.entry(channel.to_owned()).or_default(),
        };
        // The newest at a position wins, whatever the order of the rows.
        let is_newer = of.get(&position).is_none_or(|(other, ..)| *other < ordinal);
        if is_newer {
            of.insert(position, (ordinal, task, payload));
        }
    }
    Ok(found)
}

pub(crate) fn not_found(at: &CheckpointRef) -> StoreError {
    StoreError::CheckpointNotFound { thread: at.thread.clone(), id: at.checkpoint.to_string() }
}

/// Returns a record whose state is stored, or the error of one that is not there or was pruned.
pub(crate) fn kept(at: &CheckpointRef, record: Option<PgRecord>) -> Result<PgRecord, StoreError> {
    let record = record.ok_or_else(|| not_found(at))?;
    if record.record.pruned {
        return Err(annals::store::backend::is_pruned(&at.thread, &at.checkpoint));
    }
    Ok(record)
}

fn channels(names: &[&str]) -> Param {
    Param::Texts(names.iter().map(|name| Some((*name).to_owned())).collect())
}

fn number(value: i64) -> Param {
    Param::Int(Some(value))
}

/// A position as a column has it.
fn column(position: u64) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}

pub(crate) fn read(
    backend: &PostgresBackend,
    at: &CheckpointRef,
    query: &StateQuery<'_>,
    visit: VisitState<'_>,
) -> StateVisit {
    match query {
        StateQuery::Record => {
            let (record, state) = load(backend, at)?;
            let state = with_values(backend, record, state)?;
            visit(StatePart::Record(Cow::Owned(state))).map(|_| ())
        }
        StateQuery::All => whole(backend, at, None, visit),
        StateQuery::Ends(lists) => whole(backend, at, Some(lists), visit),
        StateQuery::Items(channel, range) => list(backend, at, channel, *range, visit),
        StateQuery::Item(channel, id) => item(backend, at, channel, id, visit),
        StateQuery::Len(channel) => len(backend, at, channel, visit),
        StateQuery::Reference(channel) => {
            let deletes = PgQuery::new(sql::RANGE_DELETES_AT, of_channels(at, &[channel]));
            let answers = known(backend, at, vec![deletes])?;
            match reference_of(&range_deletes(&answers[1])?, channel).and_then(|delete| delete.reference.as_ref()) {
                Some(of) => visit(StatePart::Reference(of)).map(|_| ()),
                None => Ok(()),
            }
        }
    }
}

fn of_channels(point: &CheckpointRef, names: &[&str]) -> Vec<Param> {
    let mut params = points::wanted(&[at(point)]);
    params.push(channels(names));
    params
}

/// Reads the record of a point with the rows of further statements, in one round trip.
fn known(backend: &PostgresBackend, point: &CheckpointRef, more: Vec<PgQuery>) -> Result<Vec<Vec<Row>>, StoreError> {
    let mut queries = vec![query_at(sql::RECORDS_AT, &[at(point)], [])];
    queries.extend(more);
    let answers = backend.client.read(queries, Together::Snapshot)?;
    kept(point, points::records(&answers[0], 1)?.pop().flatten())?;
    Ok(answers)
}

fn load(backend: &PostgresBackend, point: &CheckpointRef) -> Result<(PgRecord, PointState), StoreError> {
    let wanted = [at(point)];
    let queries = vec![query_at(sql::RECORDS_AT, &wanted, []), query_at(sql::CHANGES_AT, &wanted, [])];
    let answers = backend.client.read(queries, Together::Snapshot)?;
    let record = kept(point, points::records(&answers[0], 1)?.pop().flatten())?;
    Ok((record, points::states(&answers[1], 1)?.pop().unwrap_or_default()))
}

/// Returns the contents of channels that were written before the index snapshot, by channel.
fn older_values(backend: &PostgresBackend, state: &PointState) -> Result<BTreeMap<Arc<str>, PgContent>, StoreError> {
    let is_near = |place: &PgPlace| state.rows.iter().any(|(at, _)| at == place);
    let far = state.skeleton.channels.iter().filter(|(_, of)| of.kind == VALUE && !is_near(&of.place));
    let far: Vec<(&Arc<str>, PgPlace)> = far.map(|(channel, of)| (channel, of.place)).collect();
    if far.is_empty() {
        return Ok(BTreeMap::new());
    }
    let ints = |part: fn(&PgPlace) -> i64| Param::Ints(far.iter().map(|(_, place)| Some(part(place))).collect());
    let params = [
        ints(|place| place.thread),
        ints(|place| place.branch),
        ints(|place| place.ordinal),
        Param::Texts(far.iter().map(|(channel, _)| Some(channel.to_string())).collect()),
    ];
    let rows = backend.client.read(vec![PgQuery::new(sql::CONTENTS_AT, params)], Together::Apart)?.remove(0);
    let mut found = BTreeMap::new();
    for row in &rows {
        let mut cells = Cells::of(row);
        let (channel, _) = far[points::place_of(&mut cells, far.len())?];
        let (kind, _, content) = unpack_change(cells.next()?)?;
        found.insert(Arc::clone(channel), PgContent::unpack(kind, content)?);
    }
    Ok(found)
}

fn with_values(backend: &PostgresBackend, of: PgRecord, state: PointState) -> Result<StateRecord, StoreError> {
    let older = older_values(backend, &state)?;
    let mut found = StateRecord::new(of.record);
    for (channel, SkeletonChannel { version, kind, task, place, .. }) in &state.skeleton.channels {
        let missing = || corrupt(format!("channel {channel:?}"), "its value is not stored");
        let near = state.rows.iter().rev().find(|(at, _)| at == place).and_then(|(_, of)| of.content_of(channel));
        let value = match *kind {
            EMPTY => ChannelValue::Empty,
            LIST => ChannelValue::Items,
            _ => match near {
                Some((kind, content)) => PgContent::unpack(kind, content)?.value,
                None => older.get(channel).ok_or_else(missing)?.value.clone(),
            },
        };
        let mut record = ChannelRecord::new(Arc::clone(channel), *version, value, place.ordinal.cast_unsigned());
        record.task = *task;
        if *place == of.place && *kind != EMPTY {
            found.updated.push(Arc::clone(channel));
        }
        found.channels.push(record);
    }
    found.seen = state.skeleton.seen.into_values().collect();
    Ok(found)
}

/// Visits the record of a state, then its channels by name, each list with its items: all of them, or if there are
/// names of whole lists, the last one of any other list.
fn whole(
    backend: &PostgresBackend,
    point: &CheckpointRef,
    lists: Option<&[&str]>,
    visit: VisitState<'_>,
) -> StateVisit {
    let wanted = [at(point)];
    let items_query = match lists {
        Some(names) => query_at(sql::ITEMS_AT, &wanted, [channels(names), number(0), number(i64::MAX)]),
        None => query_at(sql::ALL_ITEMS_AT, &wanted, []),
    };
    let queries = vec![
        query_at(sql::RECORDS_AT, &wanted, []),
        query_at(sql::CHANGES_AT, &wanted, []),
        items_query,
        query_at(sql::ALL_RANGE_DELETES_AT, &wanted, []),
    ];
    let answers = backend.client.read(queries, Together::Snapshot)?;
    let record = kept(point, points::records(&answers[0], 1)?.pop().flatten())?;
    let state = points::states(&answers[1], 1)?.pop().unwrap_or_default();
    let (mut stored, deletes) = (items(&answers[2], 0)?, range_deletes(&answers[3])?);
    let is_whole = |channel: &str| lists.is_none_or(|lists| lists.contains(&channel));
    let is_list = |of: &SkeletonChannel| of.kind == LIST;
    let ends = state.skeleton.channels.iter().filter(|(channel, of)| is_list(of) && !is_whole(channel));
    let mut tails = tails(backend, point, &ends.map(|(channel, _)| &**channel).collect::<Vec<_>>(), &deletes, 1)?;
    let found = with_values(backend, record, state)?;
    visit(StatePart::Record(Cow::Borrowed(&found)))?;
    for channel in &found.channels {
        if !visit(StatePart::Channel(channel))? || channel.value != ChannelValue::Items {
            continue;
        }
        let name = &*channel.channel;
        let list = match is_whole(name) {
            true => live(backend, name, stored.remove(name).unwrap_or_default(), &deletes)?,
            false => tails.remove(name).unwrap_or_default(),
        };
        visit_items(list, visit)?;
    }
    Ok(())
}

fn visit_items(list: PgItems, visit: VisitState<'_>) -> StateVisit {
    for (position, (ordinal, task, payload)) in list {
        if let Some(payload) = payload {
            let row = ItemRow::new(position.cast_unsigned(), ordinal.cast_unsigned(), task, payload.as_ref());
            visit(StatePart::Item(row))?;
        }
    }
    Ok(())
}

/// Returns the range delete with which a list began last.
pub(crate) fn reference_of<'d>(deletes: &'d [RangeDelete], channel: &str) -> Option<&'d RangeDelete> {
    deletes.iter().find(|delete| delete.channel == channel && delete.is_whole())
}

/// Returns the items that a list holds: those that no later range delete covers, and those of the list that it
/// references.
fn live(
    backend: &PostgresBackend,
    channel: &str,
    mut stored: PgItems,
    deletes: &[RangeDelete],
) -> Result<PgItems, StoreError> {
    let own: Vec<&RangeDelete> = deletes.iter().filter(|delete| delete.channel == channel).collect();
    let survives = |position: i64, ordinal: i64| !own.iter().any(|of| of.ordinal > ordinal && of.covers(position));
    let reference = reference_of(deletes, channel).and_then(|of| Some((of, of.reference.as_ref()?)));
    if let Some((delete, of)) = reference {
        stored.retain(|_, (ordinal, ..)| *ordinal >= delete.ordinal);
        let base = CheckpointRef::new(delete.thread.clone(), of.namespace.clone(), of.checkpoint);
        for (position, (_, _, payload)) in all_items(backend, &base, &of.channel)? {
            stored.entry(position).or_insert((delete.ordinal, delete.task, payload));
        }
    }
    stored.retain(|position, (ordinal, _, payload)| payload.is_some() && survives(*position, *ordinal));
    Ok(stored)
}

pub(crate) fn all_items(
    backend: &PostgresBackend,
    point: &CheckpointRef,
    channel: &str,
) -> Result<PgItems, StoreError> {
    let mut range = of_channels(point, &[channel]);
    let deletes = PgQuery::new(sql::RANGE_DELETES_AT, range.clone());
    range.extend([number(0), number(i64::MAX)]);
    let answers = known(backend, point, vec![PgQuery::new(sql::ITEMS_AT, range), deletes])?;
    let stored = items(&answers[1], 0)?.remove(channel).unwrap_or_default();
    live(backend, channel, stored, &range_deletes(&answers[2])?)
}

fn list(
    backend: &PostgresBackend,
    point: &CheckpointRef,
    channel: &str,
    range: ItemRange,
    visit: VisitState<'_>,
) -> StateVisit {
    let found = match range {
        ItemRange::All => all_items(backend, point, channel)?,
        ItemRange::Positions(from, end) => {
            let (from, last) = (column(from), column(end.saturating_sub(1)));
            let last = if end == 0 { -1 } else { last };
            let mut params = of_channels(point, &[channel]);
            let deletes = PgQuery::new(sql::RANGE_DELETES_AT, params.clone());
            params.extend([number(from), number(last)]);
            let answers = known(backend, point, vec![PgQuery::new(sql::ITEMS_AT, params), deletes])?;
            let stored = items(&answers[1], 0)?.remove(channel).unwrap_or_default();
            let mut found = live(backend, channel, stored, &range_deletes(&answers[2])?)?;
            found.retain(|position, _| (from..=last).contains(position));
            found
        }
        ItemRange::Tail(count) => {
            let deletes = PgQuery::new(sql::RANGE_DELETES_AT, of_channels(point, &[channel]));
            let answers = known(backend, point, vec![tail_query(point, &[(channel, i64::MAX)], count), deletes])?;
            let deletes = range_deletes(&answers[2])?;
            let first = ListTail::of(&answers[1], count)?;
            end_of(backend, point, channel, count, first, &deletes)?
        }
    };
    visit_items(found, visit)
}

/// Asks for the last items of channels, each up to a position.
fn tail_query(point: &CheckpointRef, of: &[(&str, i64)], count: usize) -> PgQuery {
    let (names, lasts): (Vec<&str>, Vec<i64>) = of.iter().copied().unzip();
    let limit = i64::try_from(count.max(1)).unwrap_or(i64::MAX);
    let lasts = Param::Ints(lasts.into_iter().map(Some).collect());
    query_at(sql::ITEM_TAILS_AT, &[at(point)], [channels(&names), lasts, number(limit)])
}

/// The last items of channels, as far as all branches of the lineage tell them.
struct ListTail {
    items: BTreeMap<String, PgItems>,
    /// Of each channel the position down to which rows may be missing; none if all were read.
    missing: BTreeMap<String, i64>,
}

impl ListTail {
    fn of(rows: &[Row], count: usize) -> Result<Self, StoreError> {
        let mut pages: BTreeMap<(i64, i64, String), (usize, i64)> = BTreeMap::new();
        for row in rows {
            let mut cells = Cells::of(row);
            let key = (cells.next()?, cells.next()?, cells.next()?);
            let position = cells.next::<i64>()?;
            let (len, lowest) = pages.entry(key).or_insert((0, i64::MAX));
            (*len, *lowest) = (*len + 1, position.min(*lowest));
        }
        let mut missing: BTreeMap<String, i64> = BTreeMap::new();
        for ((_, _, channel), (_, lowest)) in pages.into_iter().filter(|(_, (len, _))| *len >= count.max(1)) {
            let of = missing.entry(channel).or_insert(lowest);
            *of = lowest.max(*of);
        }
        Ok(Self { items: items(rows, 2)?, missing })
    }
}

/// Returns the last items of a list, reading on until there are enough.
fn end_of(
    backend: &PostgresBackend,
    point: &CheckpointRef,
    channel: &str,
    count: usize,
    mut tail: ListTail,
    deletes: &[RangeDelete],
) -> Result<PgItems, StoreError> {
    let last_of = |mut list: PgItems| {
        while list.len() > count {
            list.pop_first();
        }
        list
    };
    if reference_of(deletes, channel).is_some_and(|of| of.reference.is_some()) {
        return all_items(backend, point, channel).map(last_of);
    }
    let (mut stored, mut page) = (PgItems::new(), count.max(1));
    loop {
        let from = tail.missing.get(channel).copied();
        let read = tail.items.remove(channel).unwrap_or_default();
        // At the lowest position of a full page an older row may hide a newer one of another branch.
        stored.extend(read.into_iter().filter(|(position, _)| from.is_none_or(|from| *position > from)));
        let found = live(backend, channel, stored.clone(), deletes)?;
        let Some(from) = from.filter(|_| found.len() < count) else { return Ok(last_of(found)) };
        page = page.saturating_mul(2).saturating_add(16);
        let answers = backend.client.read(vec![tail_query(point, &[(channel, from)], page)], Together::Apart)?;
        tail = ListTail::of(&answers[0], page)?;
    }
}

/// Returns the last items of several lists.
fn tails(
    backend: &PostgresBackend,
    point: &CheckpointRef,
    names: &[&str],
    deletes: &[RangeDelete],
    count: usize,
) -> Result<BTreeMap<String, PgItems>, StoreError> {
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let of: Vec<_> = names.iter().map(|name| (*name, i64::MAX)).collect();
    let answers = backend.client.read(vec![tail_query(point, &of, count)], Together::Apart)?;
    let mut all = ListTail::of(&answers[0], count)?;
    let mut found = BTreeMap::new();
    for name in names {
        let items = all.items.remove(*name).map(|items| ((*name).to_owned(), items)).into_iter().collect();
        let missing = all.missing.remove(*name).map(|from| ((*name).to_owned(), from)).into_iter().collect();
        let list = end_of(backend, point, name, count, ListTail { items, missing }, deletes)?;
        found.insert((*name).to_owned(), list);
    }
    Ok(found)
}

fn item(
    backend: &PostgresBackend,
    point: &CheckpointRef,
    channel: &str,
    id: &str,
    visit: VisitState<'_>,
) -> StateVisit {
    let wanted = [at(point)];
    let more = [Param::Text(Some(channel.to_owned())), Param::Text(Some(crate::rows::column_text(id)))];
    let deletes = PgQuery::new(sql::RANGE_DELETES_AT, of_channels(point, &[channel]));
    let answers = known(backend, point, vec![query_at(sql::ITEMS_BY_ID_AT, &wanted, more), deletes])?;
    let deletes = range_deletes(&answers[2])?;
    let mut found = match reference_of(&deletes, channel).is_some_and(|of| of.reference.is_some()) {
        true => all_items(backend, point, channel)?,
        false => {
            let stored = items(&answers[1], 0)?.remove(channel).unwrap_or_default();
            live(backend, channel, stored, &deletes)?
        }
    };
    let has_id = |payload: &Payload| payload.index.as_ref().is_some_and(|index| index.id.as_deref() == Some(id));
    found.retain(|_, (_, _, payload)| payload.as_ref().is_some_and(has_id));
    let first = found.pop_first();
    visit_items(first.into_iter().collect(), visit)
}

fn len(backend: &PostgresBackend, point: &CheckpointRef, channel: &str, visit: VisitState<'_>) -> StateVisit {
    let params = of_channels(point, &[channel]);
    let queries = vec![PgQuery::new(sql::LEN_AT, params.clone()), PgQuery::new(sql::RANGE_DELETES_AT, params)];
    let answers = known(backend, point, queries)?;
    let deletes = range_deletes(&answers[2])?;
    let len = match reference_of(&deletes, channel).is_some_and(|of| of.reference.is_some()) {
        true => all_items(backend, point, channel)?.len() as u64,
        false => answers[1].first().map_or(Ok(0), |row| Cells::of(row).number())?,
    };
    visit(StatePart::Len(len)).map(|_| ())
}

/// Visits the versions that the checkpoints of a lineage wrote.
pub(crate) fn versions(
    backend: &PostgresBackend,
    (point, channel, down_to): (&CheckpointRef, Option<&str>, u64),
    visit: &mut dyn FnMut(&VersionRecord) -> Result<bool, StoreError>,
) -> StateVisit {
    let wanted = [at(point)];
    let mut top = i64::MAX;
    loop {
        let more = [
            number(column(down_to)),
            number(top),
            Param::Text(channel.map(ToOwned::to_owned)),
            number(VERSIONS_PAGE_ROWS),
        ];
        let queries = vec![query_at(sql::RECORDS_AT, &wanted, []), query_at(read_sql::VERSIONS_AT, &wanted, more)];
        let answers = backend.client.read(queries, Together::Snapshot)?;
        if answers[0].is_empty() {
            return Err(not_found(point));
        }
        for row in &answers[1] {
            let mut cells = Cells::of(row);
            let (ordinal, changes) = (cells.next::<i64>()?, PgChanges::read(&mut cells)?);
            let mut goes_on = true;
            for (name, version, kind, content) in changes.each() {
                if channel.is_none_or(|channel| channel == name) {
                    let content = PgContent::unpack(kind, content)?;
                    let mut record = ChannelRecord::new(name, version, content.value, ordinal.cast_unsigned());
                    record.task = content.task;
                    let positions = (kind == LIST).then_some(content.positions);
                    goes_on &= visit(&VersionRecord::new(record, positions))?;
                }
            }
            if !goes_on {
                return Ok(());
            }
            top = ordinal - 1;
        }
        if (answers[1].len() as i64) < VERSIONS_PAGE_ROWS {
            return Ok(());
        }
    }
}
