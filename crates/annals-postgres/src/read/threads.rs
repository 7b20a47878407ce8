//! Reads of threads with their parts, and listings of them.

use std::collections::{BTreeMap, HashMap};

use annals::base::{Namespace, ThreadId, Timestamp};
use annals::store::backend::ThreadPage;
use annals::store::lease::LeaseRecord;
use annals::store::log::{ThreadParts, ThreadRow, ThreadRows};
use annals::store::operation::{BranchRecord, OperationField, OperationValue};
use annals::store::record::{ThreadRecord, ThreadSize};
use annals::store::{StatusKind, StoreError, ThreadInfo, ThreadOrder, ThreadQuery};
use tokio_postgres::Row;

use super::points::{self, query_at, write_queries};
use super::{counts, sql as read_sql};
use crate::PostgresBackend;
use crate::client::{Answers, Param, PgQuery, Together};
use crate::limits::LISTING_PAGE_ROWS;
use crate::pack::Unpacker;
use crate::rows::{Cells, column_text, record};
use crate::sql;

/// The fields that operations set.
pub(crate) type StoredFields = BTreeMap<OperationField, OperationValue>;

pub(crate) fn fields(packed: Option<&[u8]>) -> Result<StoredFields, StoreError> {
    let Some(packed) = packed else { return Ok(StoredFields::new()) };
    let mut from = Unpacker::new(packed, "thread.fields");
    let read = from.list(|from| Ok((from.field()?, from.field_value()?)))?;
    Ok(read.into_iter().filter_map(|(field, value)| Some((field, value?))).collect())
}

pub(crate) fn rows(
    backend: &PostgresBackend,
    of: &ThreadRows<'_>,
    parts: ThreadParts<'_>,
) -> Result<Vec<ThreadRow>, StoreError> {
    match of {
        ThreadRows::Ids(ids) => rows_of(backend, ids, parts, false),
        ThreadRows::After(after, limit) => {
            let after = after.map_or(String::new(), |after| after.as_str().to_owned());
            let limit = i64::try_from(*limit).unwrap_or(i64::MAX);
            let query = PgQuery::new(read_sql::THREADS_AFTER, [Param::Text(Some(after)), Param::Int(Some(limit))]);
            let ids = backend.client.read(vec![query], Together::Apart)?.remove(0);
            let ids = ids.iter().map(|row| Cells::of(row).thread()).collect::<Result<Vec<_>, _>>()?;
            let rows = rows_of(backend, &ids.iter().collect::<Vec<_>>(), parts, true)?;
            Ok(rows.into_iter().filter(|row| row.record.is_some()).collect())
        }
        ThreadRows::Listed(query) => {
            let mut parts = parts;
            parts.info = true;
            let infos = listed(backend, query)?;
            let ids: Vec<&ThreadId> = infos.iter().map(|(info, ..)| info.id()).collect();
            rows_of(backend, &ids, parts, false)
        }
    }
}

/// Which statements of a call read which part.
struct Asked {
    queries: Vec<PgQuery>,
}

impl Asked {
    fn add(&mut self, query: PgQuery) -> usize {
        self.queries.push(query);
        self.queries.len() - 1
    }
}

fn ids_param(ids: &[&ThreadId]) -> Param {
    Param::Texts(ids.iter().map(|id| Some(id.as_str().to_owned())).collect())
}

/// Returns rows of threads, in one round trip, but for the counts.
fn rows_of(
    backend: &PostgresBackend,
    ids: &[&ThreadId],
    parts: ThreadParts<'_>,
    with_record: bool,
) -> Result<Vec<ThreadRow>, StoreError> {
    let mut asked = Asked { queries: Vec::new() };
    let by_ids = |sql| PgQuery::new(sql, [ids_param(ids)]);
    let threads = asked.add(by_ids(read_sql::THREADS));
    let infos = (parts.info || with_record).then(|| {
        let first = asked.queries.len();
        asked.queries.extend(info_queries(ids));
        first
    });
    let sizes = parts.size.then(|| asked.add(by_ids(read_sql::SIZES)));
    let namespaces = parts.namespaces.then(|| asked.add(by_ids(read_sql::NAMESPACES)));
    let forks = parts.forks.then(|| asked.add(by_ids(read_sql::FORKS)));
    let origins = parts.forked_from.then(|| asked.add(by_ids(read_sql::ORIGINS)));
    let branches = parts.branches.map(|namespace| {
        let path = Param::Text(Some(namespace.as_str().to_owned()));
        asked.add(PgQuery::new(read_sql::BRANCHES, [ids_param(ids), path]))
    });
    let answers = backend.client.read(asked.queries, Together::Snapshot)?;
    let mut found: HashMap<ThreadId, ThreadRow> = HashMap::new();
    let known = known(&answers[threads])?;
    for (id, of) in &known {
        let mut row = ThreadRow::default();
        (row.fields, row.lease) = (of.fields.clone().into_iter().collect(), of.lease.clone());
        row.branches = parts.branches.map(|_| Vec::new());
        found.insert(id.clone(), row);
    }
    if let Some(first) = infos {
        for (id, info) in infos_of(ids, &known, &answers[first..first + 4])? {
            let Some(row) = found.get_mut(&id) else { continue };
            let created_at = known.get(&id).map_or(Timestamp::default(), |of| of.created_at);
            row.record = with_record.then(|| ThreadRecord::new(id, created_at, info.record.clone()));
            row.info = parts.info.then_some(info);
        }
    }
    for (at, add) in [
        (sizes, add_size as fn(&mut ThreadRow, &mut Cells<'_>) -> Result<(), StoreError>),
        (namespaces, add_namespace),
        (forks, add_fork),
        (origins, add_origin),
        (branches, add_branch),
    ] {
        for row in at.map_or(&[][..], |at| &answers[at]) {
            let mut cells = Cells::of(row);
            if let Some(of) = found.get_mut(&cells.thread()?) {
                add(of, &mut cells)?;
            }
        }
    }
    if parts.info {
        counts::add(backend, &mut found)?;
    }
    Ok(ids.iter().map(|id| found.get(*id).cloned().unwrap_or_default()).collect())
}

fn add_size(row: &mut ThreadRow, cells: &mut Cells<'_>) -> Result<(), StoreError> {
    row.size = ThreadSize::new(cells.number()?, cells.number()?);
    Ok(())
}

fn add_namespace(row: &mut ThreadRow, cells: &mut Cells<'_>) -> Result<(), StoreError> {
    row.namespaces.push(cells.namespace()?);
    Ok(())
}

fn add_fork(row: &mut ThreadRow, cells: &mut Cells<'_>) -> Result<(), StoreError> {
    row.forks.push(cells.thread()?);
    Ok(())
}

fn add_origin(row: &mut ThreadRow, cells: &mut Cells<'_>) -> Result<(), StoreError> {
    let from = cells.next::<Option<&[u8]>>()?;
    row.forked_from = from.map(|from| Unpacker::new(from, "checkpoint.forked_from").point()).transpose()?;
    Ok(())
}

fn add_branch(row: &mut ThreadRow, cells: &mut Cells<'_>) -> Result<(), StoreError> {
    let (parent, first) = (cells.next::<Option<i64>>()?, cells.number()?);
    let leaves = parent.map(|branch| (branch.cast_unsigned(), first.saturating_sub(1)));
    row.branches.get_or_insert_default().push(BranchRecord::new(record(cells)?.record, leaves));
    Ok(())
}

/// A thread as its row has it.
struct ThreadState {
    change: i64,
    created_at: Timestamp,
    /// The position and the timestamp of the newest checkpoint of the root namespace.
    activity: Option<(u64, Timestamp)>,
    fields: StoredFields,
    lease: Option<LeaseRecord>,
}

fn known(rows: &[Row]) -> Result<HashMap<ThreadId, ThreadState>, StoreError> {
    let read = |row| {
        let mut cells = Cells::of(row);
        let (id, change) = (cells.thread()?, cells.next::<i64>()?);
        let created_at = Timestamp::from_micros(cells.next()?);
        let (seq, updated_at) = (cells.next::<Option<i64>>()?, cells.next::<Option<i64>>()?);
        let activity = seq.zip(updated_at).map(|(seq, at)| (seq.cast_unsigned(), Timestamp::from_micros(at)));
        let (fields, lease) = (fields(cells.next()?)?, cells.lease()?);
        Ok((id, ThreadState { change, created_at, activity, fields, lease }))
    };
    rows.iter().map(read).collect()
}

/// Asks for the heads of threads with their writes: four statements.
fn info_queries(ids: &[&ThreadId]) -> Vec<PgQuery> {
    let root = Namespace::root();
    let wanted: Vec<points::WantedPoint<'_>> = ids.iter().map(|id| (*id, &root, None)).collect();
    let mut queries = vec![query_at(sql::RECORDS_AT, &wanted, [])];
    queries.extend(write_queries(&wanted));
    queries
}

fn infos_of(
    ids: &[&ThreadId],
    known: &HashMap<ThreadId, ThreadState>,
    answers: &[Vec<Row>],
) -> Result<Vec<(ThreadId, ThreadInfo)>, StoreError> {
    let (records, writes) = (points::records(&answers[0], ids.len())?, points::writes(&answers[1..], ids.len())?);
    let mut found = Vec::new();
    for ((id, of), writes) in ids.iter().zip(records).zip(writes) {
        let (Some(of), Some(state)) = (of, known.get(*id)) else { continue };
        let Some((seq, updated_at)) = state.activity else { continue };
        let fields = state.fields.clone().into_iter().collect();
        found.push(((*id).clone(), ThreadInfo::new(of.record, seq, updated_at, fields, &writes)?));
    }
    Ok(found)
}

/// A thread without counts, with its lease, at a number of changes.
pub(crate) type ClaimedState = (ThreadInfo, Option<LeaseRecord>, i64);

/// Returns threads with their leases, without counts; those without a root namespace are left out.
pub(crate) fn claimable(backend: &PostgresBackend, ids: &[&ThreadId]) -> Result<Vec<ClaimedState>, StoreError> {
    let mut queries = vec![PgQuery::new(read_sql::THREADS, [ids_param(ids)])];
    queries.extend(info_queries(ids));
    let answers: Answers = backend.client.read(queries, Together::Snapshot)?;
    let mut known = known(&answers[0])?;
    let infos = infos_of(ids, &known, &answers[1..])?;
    let state = |(id, info)| {
        let of = known.remove(&id)?;
        Some((info, of.lease, of.change))
    };
    Ok(infos.into_iter().filter_map(state).collect())
}

/// Returns the threads that owners hold, with their leases: from the rows of threads, records and writes.
pub(crate) fn owned(answers: &[Vec<Row>], count: usize) -> Result<Vec<(ThreadInfo, LeaseRecord)>, StoreError> {
    let mut known = known(&answers[0])?;
    let (records, writes) = (points::records(&answers[1], count)?, points::writes(&answers[2..5], count)?);
    let mut found = Vec::new();
    for (of, writes) in records.into_iter().zip(writes) {
        let Some(record) = of.map(|of| of.record) else { continue };
        let Some(state) = known.remove(&record.point.thread) else { continue };
        let (Some((seq, updated_at)), Some(lease)) = (state.activity, state.lease) else { continue };
        let fields = state.fields.into_iter().collect();
        found.push((ThreadInfo::new(record, seq, updated_at, fields, &writes)?, lease));
    }
    Ok(found)
}

/// Returns the page of a listing, without counts.
pub(crate) fn listed(backend: &PostgresBackend, query: &ThreadQuery) -> Result<Vec<ClaimedState>, StoreError> {
    let (mut page, mut states) = (ThreadPage::new(query), HashMap::new());
    let mut after = query.after.as_ref().map(|after| {
        let priority = i64::from(annals::base::limits::PRIORITY_MAX.saturating_sub(after.queue_place().0));
        (after.seq.cast_signed(), priority, after.id.as_str().to_owned())
    });
    let limit = query.limit.map_or(LISTING_PAGE_ROWS, |limit| LISTING_PAGE_ROWS.min(limit.max(16) as i64));
    while !page.is_full() {
        let rows = backend.client.scan(vec![listing(query, after.as_ref(), limit)], Together::Apart)?.remove(0);
        let mut ids = Vec::new();
        for row in &rows {
            let mut cells = Cells::of(row);
            let id = cells.thread()?;
            after =
                Some((cells.next()?, cells.next::<Option<i16>>()?.unwrap_or_default().into(), id.as_str().to_owned()));
            ids.push(id);
        }
        for (info, lease, change) in claimable(backend, &ids.iter().collect::<Vec<_>>())? {
            states.insert(info.id().clone(), (lease, change));
            page.offer(info);
        }
        if (rows.len() as i64) < limit {
            break;
        }
    }
    let threads = page.into_threads().into_iter();
    Ok(threads.filter_map(|info| states.remove(info.id()).map(|(lease, change)| (info, lease, change))).collect())
}

fn listing(query: &ThreadQuery, after: Option<&(i64, i64, String)>, limit: i64) -> PgQuery {
    let sql = match query.order {
        ThreadOrder::Activity => read_sql::LISTED_BY_ACTIVITY,
        ThreadOrder::Id => read_sql::LISTED_BY_ID,
        ThreadOrder::Queue => read_sql::LISTED_BY_QUEUE,
    };
    let status = match query.order {
        ThreadOrder::Queue => Some(StatusKind::Running),
        _ => query.status,
    };
    let params = [
        Param::Int(Some(query.archived.into())),
        Param::Int(Some(query.trashed.into())),
        Param::Int(status.map(status_number)),
        Param::Text(query.graph.as_deref().map(column_text)),
        Param::Int(after.map(|(seq, ..)| *seq)),
        Param::Int(after.map(|(_, priority, _)| *priority)),
        Param::Text(after.map(|(.., id)| id.clone())),
        Param::Int(Some(limit)),
    ];
    PgQuery::new(sql, params)
}

/// Returns the number by which a status is stored.
pub(crate) fn status_number(status: StatusKind) -> i64 {
    StatusKind::ALL.iter().position(|kind| *kind == status).map_or(-1, |at| at as i64)
}
