//! Checkpoints by their points: records, states without values, and the writes of their tasks.
//!
//! The writes of a task are rows of their own, or came with a child of the checkpoint. Their order in time decides: a
//! special position has the last write, any other one the first.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use annals::base::{CheckpointId, Namespace, Payload, TaskId, ThreadId};
use annals::store::batch::NewWrites;
use annals::store::record::{ChannelValue, WriteRecord};
use annals::store::{CheckpointRef, StoreError, WriteMark};
use tokio_postgres::Row;

use crate::client::{Answers, Param, PgQuery};
use crate::error::corrupt;
use crate::pack::Unpacker;
use crate::rows::{Cells, PgChanges, PgContent, PgPlace, PgRecord, Skeleton, record, sixteen};
use crate::sql;

/// A checkpoint of a namespace that is asked for, or its head.
pub(crate) type WantedPoint<'a> = (&'a ThreadId, &'a Namespace, Option<&'a CheckpointId>);

pub(crate) fn at(point: &CheckpointRef) -> WantedPoint<'_> {
    (&point.thread, &point.namespace, Some(&point.checkpoint))
}

/// Returns the three arrays with which a statement about checkpoints begins.
pub(crate) fn wanted(points: &[WantedPoint<'_>]) -> Vec<Param> {
    vec![
        Param::Texts(points.iter().map(|(thread, ..)| Some(thread.as_str().to_owned())).collect()),
        Param::Texts(points.iter().map(|(_, namespace, _)| Some(namespace.as_str().to_owned())).collect()),
        Param::Blobs(points.iter().map(|(_, _, id)| id.map(|id| id.as_bytes().to_vec())).collect()),
    ]
}

/// Returns a statement about checkpoints with further parameters.
pub(crate) fn query_at(
    sql: &'static str,
    points: &[WantedPoint<'_>],
    more: impl IntoIterator<Item = Param>,
) -> PgQuery {
    let mut params = wanted(points);
    params.extend(more);
    PgQuery::new(sql, params)
}

/// Reads the number of a row among the points that were asked for: from 1 on.
pub(crate) fn place_of(cells: &mut Cells<'_>, count: usize) -> Result<usize, StoreError> {
    let at = usize::try_from(cells.next::<i64>()? - 1).ok().filter(|at| *at < count);
    at.ok_or_else(|| corrupt("a row", "it belongs to no point that was asked for"))
}

/// Returns the records of points.
pub(crate) fn records(rows: &[Row], count: usize) -> Result<Vec<Option<PgRecord>>, StoreError> {
    let mut found = vec![None; count];
    for row in rows {
        let mut cells = Cells::of(row);
        let at = place_of(&mut cells, count)?;
        found[at] = Some(record(&mut cells)?);
    }
    Ok(found)
}

/// A checkpoint with its state without values.
#[derive(Clone, Debug, Default)]
pub(crate) struct PointState {
    pub(crate) skeleton: Skeleton,
    /// The changes of the checkpoint and of those before it, back to the index snapshot: the newest last.
    pub(crate) rows: Vec<(PgPlace, PgChanges)>,
}

/// Returns the states of points, from the rows of [`sql::CHANGES_AT`].
pub(crate) fn states(rows: &[Row], count: usize) -> Result<Vec<PointState>, StoreError> {
    let mut found = vec![PointState::default(); count];
    for row in rows {
        let mut cells = Cells::of(row);
        let state = &mut found[place_of(&mut cells, count)?];
        let (place, changes) = (cells.place()?, PgChanges::read(&mut cells)?);
        state.skeleton.apply(place, &changes)?;
        state.rows.push((place, changes));
    }
    Ok(found)
}

/// Returns the statements whose rows [`writes`] reads.
pub(crate) fn write_queries(points: &[WantedPoint<'_>]) -> [PgQuery; 3] {
    [sql::TASK_WRITES_AT, sql::CONSUMED_AT, sql::CONSUMED_ITEMS_AT].map(|sql| query_at(sql, points, []))
}

/// The place of an item that stands for a part of a write.
type PartItems = HashMap<(usize, i64, i64, String, i64), Payload>;

/// Writes at the time that they were stored: the `seq` of the checkpoint before, and whether they came after it.
type Timed = Vec<((i64, bool), WriteRecord)>;

/// Returns the writes of the tasks of points, in the order of (path, task, index).
pub(crate) fn writes(answers: &[Vec<Row>], count: usize) -> Result<Vec<Vec<WriteRecord>>, StoreError> {
    let [own, consumed, items] = answers else { return Err(corrupt("writes", "the answers are not three")) };
    let mut found: Vec<Timed> = vec![Vec::new(); count];
    for row in own {
        let mut cells = Cells::of(row);
        let at = place_of(&mut cells, count)?;
        let (seq, task, index) = (cells.next::<i64>()?, sixteen(cells.next()?)?, cells.next::<i64>()?);
        let (channel, mark, value) = (cells.next::<&str>()?, cells.next::<Option<i64>>()?, cells.next::<&[u8]>()?);
        let mut value = Unpacker::new(value, "task_write.value");
        let (path, value) = (value.text()?, value.write_value(&mut Unpacker::payload)?);
        let no_mark = || corrupt("task_write.mark", "no mark has this number");
        let mark = mark.map(|mark| WriteMark::of_number(mark).ok_or_else(no_mark)).transpose()?;
        let record = WriteRecord::new(TaskId::from_bytes(task), path, index as i32, channel, value).with_mark(mark);
        found[at].push(((seq, true), record));
    }
    let items = part_items(items, count)?;
    for row in consumed {
        let mut cells = Cells::of(row);
        let at = place_of(&mut cells, count)?;
        let (seq, branch, ordinal) = (cells.next::<i64>()?, cells.next::<i64>()?, cells.next::<i64>()?);
        let packed = cells.next::<&[u8]>()?;
        let changes = PgChanges::read(&mut cells)?;
        let item =
            |channel: &str, position: i64| items.get(&(at, branch, ordinal, channel.to_owned(), position)).cloned();
        for new in unpack_consumed(packed, &changes, item)? {
            found[at].extend(records_of(&new).map(|record| ((seq, false), record)));
        }
    }
    Ok(found.into_iter().map(merged).collect())
}

fn part_items(rows: &[Row], count: usize) -> Result<PartItems, StoreError> {
    let mut found = PartItems::new();
    for row in rows {
        let mut cells = Cells::of(row);
        let at = place_of(&mut cells, count)?;
        let key = (at, cells.next()?, cells.next()?, cells.next()?, cells.next()?);
        found.extend(cells.payload()?.map(|payload| (key, payload)));
    }
    Ok(found)
}

/// The ways in which a part of a consumed write is stored.
pub(crate) const INLINE: u8 = 0;
pub(crate) const OF_CHANNEL: u8 = 1;
pub(crate) const OF_ITEM: u8 = 2;

/// Reads the writes that a checkpoint brought. Parts that stand in its changes are read there.
pub(crate) fn unpack_consumed(
    bytes: &[u8],
    changes: &PgChanges,
    item: impl Fn(&str, i64) -> Option<Payload>,
) -> Result<Vec<NewWrites>, StoreError> {
    let missing = || corrupt("checkpoint.consumed", "a part of a write is not in the changes");
    Unpacker::new(bytes, "checkpoint.consumed").writes(&mut |from| match from.byte()? {
        INLINE => from.payload(),
        way => {
            let at = usize::try_from(from.number()?).unwrap_or(usize::MAX);
            let channel = changes.channels.get(at).ok_or_else(missing)?;
            if way == OF_ITEM {
                return item(channel, from.number()?.cast_signed()).ok_or_else(missing);
            }
            match PgContent::unpack(changes.kinds[at], &changes.contents[at])?.value {
                ChannelValue::Value(payload) => Ok(payload),
                _ => Err(missing()),
            }
        }
    })
}

/// Returns the writes of a task as records.
pub(crate) fn records_of(new: &NewWrites) -> impl Iterator<Item = WriteRecord> + '_ {
    new.writes.iter().map(|write| {
        let (path, channel) = (Arc::clone(&new.path), Arc::clone(&write.channel));
        WriteRecord::new(new.task, path, write.index, channel, write.value.clone()).with_mark(write.mark)
    })
}

/// Returns what is stored of writes: of a special position the last one, of any other one the first.
fn merged(mut timed: Timed) -> Vec<WriteRecord> {
    timed.sort_by_key(|(at, _)| *at);
    let mut stored = BTreeMap::new();
    for (_, write) in timed {
        add_write(&mut stored, write);
    }
    sorted(stored.into_values().collect())
}

/// Adds a write to those that are stored of a checkpoint.
pub(crate) fn add_write(stored: &mut BTreeMap<(TaskId, i32), WriteRecord>, write: WriteRecord) {
    let key = (write.task, write.index);
    if write.index < 0 || !stored.contains_key(&key) {
        stored.insert(key, write);
    }
}

fn sorted(mut writes: Vec<WriteRecord>) -> Vec<WriteRecord> {
    writes.sort_by(|a, b| (&a.path, a.task, a.index).cmp(&(&b.path, b.task, b.index)));
    writes
}

/// A checkpoint with all that a commit compares of it.
#[derive(Clone, Debug)]
pub(crate) struct KnownPoint {
    pub(crate) of: Arc<PgRecord>,
    pub(crate) skeleton: Arc<Skeleton>,
    pub(crate) writes: Vec<WriteRecord>,
}

/// Returns the statements whose rows [`known_points`] reads.
pub(crate) fn known_queries(points: &[WantedPoint<'_>]) -> Vec<PgQuery> {
    let mut queries = vec![query_at(sql::RECORDS_AT, points, []), query_at(sql::CHANGES_AT, points, [])];
    queries.extend(write_queries(points));
    queries
}

/// Returns points with their states and writes; `None` for one that is not stored.
pub(crate) fn known_points(answers: &Answers, count: usize) -> Result<Vec<Option<KnownPoint>>, StoreError> {
    let (records, states) = (records(&answers[0], count)?, states(&answers[1], count)?);
    let writes = writes(&answers[2..5], count)?;
    let parts = records.into_iter().zip(states).zip(writes);
    Ok(parts
        .map(|((of, state), writes)| Some(KnownPoint { of: Arc::new(of?), skeleton: Arc::new(state.skeleton), writes }))
        .collect())
}
