//! The check: every checkpoint has the checksum of its rows and of its parent, and follows from it.
//!
//! Threads are verified one after another, each from one snapshot. *Absent:* checks of the pages of the server, which
//! it does itself.

mod sql;

use std::collections::{BTreeMap, HashSet};

use annals::base::{CheckpointId, Namespace, Payload, TaskId};
use annals::store::StoreError;
use annals::store::backend::without_timer;
use annals::store::check::{CheckReport, Finding, Invariant};
use annals::store::log::{Checks, HeadParts, Log};
use annals::store::record::StoredHead;
use tokio_postgres::Row;

use self::sql as check_sql;
use crate::PostgresBackend;
use crate::checksum::CheckedContent;
use crate::client::{Param, PgQuery, Together};
use crate::pack::Unpacker;
use crate::read::points::unpack_consumed;
use crate::rows::{Cells, PgChanges, PgRecord, VALUE, record, sixteen};

/// An item of a checkpoint: channel, position, task and payload.
type OwnItem = (String, i64, Option<u32>, Option<Payload>);

/// A range delete of a checkpoint: channel, first, last, task and reference.
type OwnRange = (String, i64, i64, Option<u32>, Option<Vec<u8>>);

/// What stands beside the rows of checkpoints, by branch and ordinal.
#[derive(Default)]
struct Beside {
    items: BTreeMap<(i64, i64), Vec<OwnItem>>,
    ranges: BTreeMap<(i64, i64), Vec<OwnRange>>,
}

impl Checks for PostgresBackend {
    fn check(&self) -> Result<CheckReport, StoreError> {
        let mut report = CheckReport::default();
        let mut after = i64::MIN;
        loop {
            let query = PgQuery::new(check_sql::THREAD_NUMBERS, [Param::Int(Some(after))]);
            let rows = self.client.read(vec![query], Together::Apart)?.remove(0);
            for row in &rows {
                after = Cells::of(row).next()?;
                check_thread(self, after, &mut report)?;
            }
            if rows.is_empty() {
                break;
            }
        }
        let strays = self.client.scan(vec![PgQuery::new(check_sql::STRAYS, [])], Together::Apart)?.remove(0);
        for row in &strays {
            let mut cells = Cells::of(row);
            let count = cells.number()?;
            if count > 0 {
                let reason = format!("{count} rows belong to no other one");
                report.note(Finding::new(Invariant::Ownership, "the log", reason));
            }
            report.entries = cells.number()?;
        }
        Ok(report)
    }
}

fn check_thread(backend: &PostgresBackend, number: i64, report: &mut CheckReport) -> Result<(), StoreError> {
    let statements =
        [check_sql::CHECKPOINTS, check_sql::ITEMS, check_sql::RANGE_DELETES, check_sql::TASK_WRITES, check_sql::TIMERS];
    let queries = statements.iter().map(|sql| PgQuery::new(sql, [Param::Int(Some(number))])).collect();
    let answers = backend.client.read(queries, Together::Snapshot)?;
    report.threads += 1;
    let beside = beside(&answers[1], &answers[2], report)?;
    for row in &answers[3] {
        let mut value = Unpacker::new(Cells::of(row).next()?, "task_write.value");
        value.text()?;
        let value = value.write_value(&mut Unpacker::payload)?;
        report.values += value.payloads().len() as u64;
    }
    let mut thread = None;
    for row in &answers[0] {
        let of = match check_checkpoint(row, &beside, report) {
            Ok(of) => of,
            Err(error) => {
                report.note(Finding::new(Invariant::Rows, "a checkpoint", error.to_string()));
                continue;
            }
        };
        thread.get_or_insert(of.record.point.thread);
    }
    if let Some(thread) = thread {
        let root = Namespace::root();
        let mut parts = HeadParts::WRITES;
        parts.record = true;
        let heads = backend.heads(&[(&thread, &root)], parts)?;
        heads.into_iter().flatten().try_for_each(|head| check_timers(&head, &answers[4], report))?;
    }
    Ok(())
}

fn beside(items: &[Row], ranges: &[Row], report: &mut CheckReport) -> Result<Beside, StoreError> {
    let mut found = Beside::default();
    let task = |task: Option<i64>| task.map(|task| task as u32);
    for row in items {
        let mut cells = Cells::of(row);
        let (place, channel, position) = ((cells.next()?, cells.next()?), cells.next()?, cells.next()?);
        let (task, payload) = (task(cells.next()?), cells.payload()?);
        report.values += u64::from(payload.is_some());
        found.items.entry(place).or_default().push((channel, position, task, payload));
    }
    for row in ranges {
        let mut cells = Cells::of(row);
        let (place, channel) = ((cells.next()?, cells.next()?), cells.next()?);
        let (first, last, task, reference) = (cells.next()?, cells.next()?, task(cells.next()?), cells.next()?);
        found.ranges.entry(place).or_default().push((channel, first, last, task, reference));
    }
    Ok(found)
}

/// Verifies a checkpoint, and returns it.
fn check_checkpoint(row: &Row, beside: &Beside, report: &mut CheckReport) -> Result<PgRecord, StoreError> {
    let mut cells = Cells::of(row);
    let (of, changes) = (record(&mut cells)?, PgChanges::read(&mut cells)?);
    let consumed = cells.next::<Option<&[u8]>>()?;
    let (first, parent_thread) = (cells.next::<i64>()?, cells.next::<Option<i64>>()?);
    cells.next::<Option<i64>>()?;
    let parent = cells.next::<Option<&[u8]>>()?.map(sixteen).transpose()?;
    let shown = || format!("checkpoint {}", of.record.point.checkpoint);
    report.values += changes.kinds.iter().filter(|kind| **kind == VALUE).count() as u64;
    let begins = of.place.ordinal == first && parent_thread.is_none();
    let has_parent = of.record.parent_ref().is_some();
    if has_parent == begins || parent.is_none() == has_parent {
        report.note(Finding::new(Invariant::Parents, shown(), "its parent is missing"));
    }
    if of.record.pruned {
        report.pruned += 1;
        return Ok(of);
    }
    report.checkpoints += 1;
    let place = (of.place.branch, of.place.ordinal);
    let (items, ranges) = (beside.items.get(&place), beside.ranges.get(&place));
    let (items, ranges) = (items.map_or(&[][..], Vec::as_slice), ranges.map_or(&[][..], Vec::as_slice));
    let item = |channel: &str, position: i64| {
        let found = items.iter().find(|of| of.0 == channel && of.1 == position);
        found.and_then(|of| of.3.clone())
    };
    let consumed = consumed.map_or(Ok(Vec::new()), |packed| unpack_consumed(packed, &changes, item))?;
    let content = CheckedContent {
        parent,
        record: &of.record,
        consumed: &consumed,
        seen: &changes.seen,
        changes: changes
            .each()
            .map(|(channel, version, kind, content)| (channel, version.cast_signed(), kind, content))
            .collect(),
        items: items.iter().map(|of| (&*of.0, of.1, of.2, of.3.as_ref())).collect(),
        range_deletes: ranges.iter().map(|of| (&*of.0, of.1, of.2, of.3, of.4.as_deref())).collect(),
    };
    if content.checksum() != of.checksum {
        report.note(Finding::new(Invariant::Checkpoints, shown(), "its checksum does not match its content"));
    }
    Ok(of)
}

/// Finds tasks that sleep at the head of a thread without a timer.
fn check_timers(head: &StoredHead, timers: &[Row], report: &mut CheckReport) -> Result<(), StoreError> {
    let mut set: HashSet<(CheckpointId, TaskId)> = HashSet::new();
    for row in timers {
        let mut cells = Cells::of(row);
        set.insert((cells.checkpoint()?, TaskId::from_bytes(sixteen(cells.next()?)?)));
    }
    // The first child of a checkpoint deletes its timers, also if the head moves back to it.
    let Some(record) = head.record.as_ref().filter(|_| !head.is_continued) else { return Ok(()) };
    for (task, _) in without_timer(record, &head.writes, |task| set.contains(&(head.checkpoint, task))) {
        report.note(Finding::new(Invariant::Timers, format!("timer of task {task}"), "it is missing"));
    }
    Ok(())
}
