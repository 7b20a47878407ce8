//! Reads of heads, records, writes, operations and timers.

use std::collections::BTreeMap;

use annals::base::limits::PAGE_ROWS_MAX;
use annals::base::{TaskId, Timestamp};
use annals::store::backend::sort_changes;
use annals::store::log::{CheckpointQuery, HeadParts, NamespaceRef, RecordQuery, TimerQuery};
use annals::store::operation::{OperationChange, OperationQuery, OperationRecord};
use annals::store::record::{CheckpointRecord, StoredHead, TimerRecord, WriteRecord};
use annals::store::{CheckpointRef, StoreError};
use tokio_postgres::Row;

use super::points::{self, at, place_of, query_at, write_queries};
use super::sql as read_sql;
use super::state::{kept, not_found};
use crate::PostgresBackend;
use crate::client::{Param, PgQuery, Together};
use crate::error::corrupt;
use crate::pack::Unpacker;
use crate::rows::{Cells, record, sixteen};
use crate::sql;

type RecordAnswers = Result<Vec<Option<CheckpointRecord>>, StoreError>;

fn text(text: &str) -> Param {
    Param::Text(Some(text.to_owned()))
}

/// Returns the heads of namespaces with the parts that are wanted.
pub(crate) fn heads(
    backend: &PostgresBackend,
    of: &[NamespaceRef<'_>],
    parts: HeadParts,
) -> Result<Vec<Option<StoredHead>>, StoreError> {
    let wanted: Vec<points::WantedPoint<'_>> =
        of.iter().map(|(thread, namespace)| (*thread, *namespace, None)).collect();
    let mut queries = vec![query_at(read_sql::HEADS, &wanted, [])];
    if parts.writes {
        queries.extend(write_queries(&wanted));
    }
    if parts.record {
        queries.push(query_at(sql::RECORDS_AT, &wanted, []));
    }
    let mut answers = backend.client.read(queries, Together::Snapshot)?;
    let mut records = match parts.record {
        true => points::records(&answers.pop().unwrap_or_default(), of.len())?,
        false => vec![None; of.len()],
    };
    let mut writes = match parts.writes {
        true => points::writes(&answers[1..4], of.len())?,
        false => vec![Vec::new(); of.len()],
    };
    let mut found = vec![None; of.len()];
    for row in &answers[0] {
        let mut cells = Cells::of(row);
        let at = place_of(&mut cells, of.len())?;
        let (id, is_continued) = (cells.checkpoint()?, cells.next::<bool>()?);
        let is_continued = is_continued && parts.writes;
        let mut head = StoredHead::new(id, is_continued, std::mem::take(&mut writes[at]));
        head.lease = cells.lease()?.filter(|_| parts.writes && of[at].1.is_root());
        head.record = records[at].take().map(|of| of.record);
        found[at] = Some(head);
    }
    Ok(found)
}

pub(crate) fn records(backend: &PostgresBackend, query: &RecordQuery<'_>) -> RecordAnswers {
    match query {
        RecordQuery::At(points) => {
            let wanted: Vec<_> = points.iter().map(|point| at(point)).collect();
            let rows = one(backend, query_at(sql::RECORDS_AT, &wanted, []))?;
            let found = points::records(&rows, points.len())?;
            Ok(found.into_iter().map(|found| found.map(|of| of.record)).collect())
        }
        RecordQuery::Page(query) => page(backend, query),
        RecordQuery::Prefix { thread, prefix, limit } => {
            let Some((low, high)) = bounds_of(prefix) else { return Ok(Vec::new()) };
            let limit = Param::Int(Some(i64::try_from(*limit).unwrap_or(i64::MAX)));
            let params = [text(thread.as_str()), bytes(&low), bytes(&high), limit];
            all(&one(backend, PgQuery::new(read_sql::BETWEEN_IDS, params))?)
        }
        RecordQuery::Ordinals { at: point, ordinals } => {
            let wanted = [at(point)];
            let column = |ordinal: &u64| Some(i64::try_from(*ordinal).unwrap_or(i64::MAX));
            let ordinals_param = Param::Ints(ordinals.iter().map(column).collect());
            let queries = vec![
                query_at(sql::RECORDS_AT, &wanted, []),
                query_at(read_sql::ORDINALS_AT, &wanted, [ordinals_param]),
            ];
            let answers = backend.client.read(queries, Together::Snapshot)?;
            points::records(&answers[0], 1)?.pop().flatten().ok_or_else(|| not_found(point))?;
            let found: BTreeMap<u64, CheckpointRecord> =
                all(&answers[1])?.into_iter().flatten().map(|record| (record.ordinal, record)).collect();
            Ok(ordinals.iter().map(|ordinal| found.get(ordinal).cloned()).collect())
        }
        RecordQuery::LastOfRun((thread, namespace), run) => {
            if !run.is_of_key() {
                return Ok(vec![None]);
            }
            let params = [text(thread.as_str()), text(namespace.as_str()), bytes(run.as_bytes())];
            let mut found = all(&one(backend, PgQuery::new(read_sql::LAST_OF_RUN, params))?)?;
            Ok(vec![found.pop().flatten()])
        }
    }
}

fn bytes(bytes: &[u8]) -> Param {
    Param::Bytes(Some(bytes.to_vec()))
}

fn one(backend: &PostgresBackend, query: PgQuery) -> Result<Vec<Row>, StoreError> {
    Ok(backend.client.read(vec![query], Together::Apart)?.pop().unwrap_or_default())
}

fn all(rows: &[Row]) -> RecordAnswers {
    rows.iter().map(|row| Ok(Some(record(&mut Cells::of(row))?.record))).collect()
}

fn page(backend: &PostgresBackend, query: &CheckpointQuery) -> RecordAnswers {
    let limit = if query.limit == 0 { PAGE_ROWS_MAX } else { query.limit.min(PAGE_ROWS_MAX) };
    let before = query.before.map_or([0xff; 17].to_vec(), |id| id.as_bytes().to_vec());
    let (thread, before, limit) =
        (text(query.thread.as_str()), Param::Bytes(Some(before)), Param::Int(Some(limit as i64)));
    let query = match &query.namespace {
        Some(namespace) => PgQuery::new(read_sql::PAGE_OF, [thread, text(namespace.as_str()), before, limit]),
        None => PgQuery::new(read_sql::PAGE, [thread, before, limit]),
    };
    all(&one(backend, query)?)
}

/// Returns the least and the greatest id that begins so, as text; `None` if no id does.
fn bounds_of(prefix: &str) -> Option<([u8; 16], [u8; 16])> {
    let mut digits = Vec::new();
    let has_hyphens = prefix.contains('-');
    for (at, c) in prefix.chars().enumerate() {
        let is_hyphen = has_hyphens && [8, 13, 18, 23].contains(&at);
        match c.to_digit(16) {
            Some(digit) if !is_hyphen => digits.push(digit as u8),
            None if is_hyphen && c == '-' => {}
            _ => return None,
        }
    }
    let (mut low, mut high) = ([0; 16], [0xff; 16]);
    for (at, digit) in digits.iter().enumerate() {
        let shift = if at % 2 == 0 { 4 } else { 0 };
        let (low, high) = (low.get_mut(at / 2)?, high.get_mut(at / 2)?);
        *low |= digit << shift;
        *high &= !(0x0f << shift) | (digit << shift);
    }
    Some((low, high))
}

pub(crate) fn writes_of(
    backend: &PostgresBackend,
    of: &[&CheckpointRef],
    bytes: usize,
) -> Result<Vec<Vec<WriteRecord>>, StoreError> {
    let of = if of.len() > 1 && bytes < usize::MAX { &of[..page_of(backend, of, bytes)?] } else { of };
    let wanted: Vec<_> = of.iter().map(|point| at(point)).collect();
    let mut queries = vec![query_at(sql::RECORDS_AT, &wanted, [])];
    queries.extend(write_queries(&wanted));
    let answers = backend.client.read(queries, Together::Snapshot)?;
    for (point, found) in of.iter().zip(points::records(&answers[0], of.len())?) {
        kept(point, found)?;
    }
    points::writes(&answers[1..4], of.len())
}

/// Returns how many of the first checkpoints have rows of writes of `bytes` bytes: the last of them may have more.
fn page_of(backend: &PostgresBackend, of: &[&CheckpointRef], bytes: usize) -> Result<usize, StoreError> {
    let wanted: Vec<_> = of.iter().map(|point| at(point)).collect();
    let mut sizes = vec![0_usize; of.len()];
    for row in &one(backend, query_at(read_sql::WRITE_SIZES_AT, &wanted, []))? {
        let mut cells = Cells::of(row);
        let at = place_of(&mut cells, of.len())?;
        sizes[at] = usize::try_from(cells.next::<i64>()?).unwrap_or(usize::MAX);
    }
    let mut sum = 0_usize;
    let reaches = |size: &usize| {
        sum = sum.saturating_add(*size);
        sum >= bytes
    };
    Ok(sizes.iter().position(reaches).map_or(of.len(), |last| last + 1))
}

pub(crate) fn operations(
    backend: &PostgresBackend,
    query: &OperationQuery,
) -> Result<Vec<OperationRecord>, StoreError> {
    let limit = if query.limit == 0 { PAGE_ROWS_MAX } else { query.limit.min(PAGE_ROWS_MAX) };
    let before = query.before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
    let thread = query.thread.as_ref().map(|thread| thread.as_str().to_owned());
    let params = [Param::Text(thread), Param::Int(Some(before)), Param::Int(Some(limit as i64))];
    let queries = [read_sql::OPERATIONS, read_sql::OPERATION_CHANGES].map(|sql| PgQuery::new(sql, params.clone()));
    let answers = backend.client.scan(queries.into(), Together::Snapshot)?;
    let mut changes: BTreeMap<u64, Vec<OperationChange>> = BTreeMap::new();
    for row in &answers[1] {
        let mut cells = Cells::of(row);
        let (number, thread) = (cells.number()?, cells.thread()?);
        let change = Unpacker::change(thread, cells.next()?, cells.next()?)?;
        changes.entry(number).or_default().push(change);
    }
    let read = |row| {
        let mut cells = Cells::of(row);
        let (number, seq) = (cells.number()?, cells.number()?);
        let new = Unpacker::new(cells.next()?, "operation.content").operation()?;
        let mut changes = changes.remove(&number).unwrap_or_default();
        sort_changes(&mut changes);
        Ok(OperationRecord::new(number, seq, &new, changes))
    };
    answers[0].iter().map(read).collect()
}

pub(crate) fn timers(backend: &PostgresBackend, query: &TimerQuery<'_>) -> Result<Vec<TimerRecord>, StoreError> {
    let query = match query {
        TimerQuery::Due(due_by, limit) => {
            let due_by = due_by.map_or(i64::MAX, Timestamp::as_micros);
            let limit = i64::try_from(*limit).unwrap_or(i64::MAX);
            PgQuery::new(read_sql::TIMERS_DUE, [Param::Int(Some(due_by)), Param::Int(Some(limit))])
        }
        TimerQuery::Of((thread, namespace)) => {
            PgQuery::new(read_sql::TIMERS_OF, [text(thread.as_str()), text(namespace.as_str())])
        }
    };
    let read = |row| {
        let mut cells = Cells::of(row);
        let point = CheckpointRef::new(cells.thread()?, cells.namespace()?, cells.checkpoint()?);
        let task = TaskId::from_bytes(sixteen(cells.next()?)?);
        let wake_at = cells.next::<i64>().map_err(|_| corrupt("timer.wake_at", "it is not a timestamp"))?;
        Ok(TimerRecord::new(point, task, Timestamp::from_micros(wake_at)))
    };
    one(backend, query)?.iter().map(read).collect()
}
