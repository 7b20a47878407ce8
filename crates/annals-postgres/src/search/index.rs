//! The index of texts: the grams of what each checkpoint put, up to a position of the log.
//!
//! Whoever searches indexes what many commits have left. A mark moves with the rows in one statement, so that several
//! processes index without a lock. *Absent:* rows for checkpoints that put no text.
//!
//! Invariant: a checkpoint up to the mark has the grams of each text that it put; it may have more.

use std::sync::Arc;

use annals::store::backend::SearchedEntry;
use annals::store::search::SearchIndex;
use annals::store::{SearchOptions, StoreError};

use super::{begun, items_of, search_sql, values_of};
use crate::PostgresBackend;
use crate::client::{Param, PgQuery, Together};
use crate::error::write_error;
use crate::limits::{BACKOFF_FIRST, INDEX_BEHIND_MAX, INDEX_PAGE_ROWS, INDEX_PAGES_MAX, INDEX_WAITS_MAX};
use crate::rows::{Cells, PgChanges, PgPlace, record};

/// Indexes the log, and waits for the commits that have not ended.
pub(super) fn enable(backend: &PostgresBackend, _: &SearchOptions) -> Result<(), StoreError> {
    write(backend, vec![PgQuery::new(search_sql::ENABLE, [])])?;
    let mut pause = BACKOFF_FIRST;
    for _ in 0..INDEX_WAITS_MAX {
        while index_page(backend)? {}
        if behind(backend, 1)?.is_none_or(|behind| behind == 0) {
            break;
        }
        backend.client.wait(async move {
            tokio::time::sleep(pause).await;
            Ok(())
        })?;
        pause *= 2;
    }
    Ok(())
}

pub(super) fn disable(backend: &PostgresBackend) -> Result<(), StoreError> {
    write(backend, search_sql::DISABLE.map(|sql| PgQuery::new(sql, [])).into())
}

pub(super) fn state(backend: &PostgresBackend) -> Result<Option<SearchIndex>, StoreError> {
    Ok(behind(backend, i64::MAX)?.map(SearchIndex::new))
}

/// Returns whether there is an index, and indexes some of what it lacks if that is much.
pub(super) fn is_ready(backend: &PostgresBackend) -> Result<bool, StoreError> {
    let Some(mut is_behind) = behind(backend, INDEX_BEHIND_MAX)? else { return Ok(false) };
    for _ in 0..INDEX_PAGES_MAX {
        // A user who may only read searches what is not indexed.
        if is_behind < INDEX_BEHIND_MAX.unsigned_abs() || !index_page(backend).unwrap_or(false) {
            break;
        }
        is_behind = behind(backend, INDEX_BEHIND_MAX)?.unwrap_or_default();
    }
    Ok(true)
}

/// Returns how many checkpoints are not indexed, at most `limit`; `None` without an index.
fn behind(backend: &PostgresBackend, limit: i64) -> Result<Option<u64>, StoreError> {
    let query = PgQuery::new(search_sql::MARK, [Param::Int(Some(limit))]);
    let rows = backend.client.scan(vec![query], Together::Apart)?.remove(0);
    let count = |row| {
        let mut cells = Cells::of(row);
        cells.next::<&str>()?;
        cells.next::<i64>()?;
        cells.number()
    };
    rows.first().map(count).transpose()
}

/// Indexes the next checkpoints. Returns whether there were any.
fn index_page(backend: &PostgresBackend) -> Result<bool, StoreError> {
    let limit = [Param::Int(Some(INDEX_PAGE_ROWS))];
    let queries = [search_sql::MARK, search_sql::UNINDEXED].map(|sql| PgQuery::new(sql, limit.clone())).into();
    let answers = backend.client.scan(queries, Together::Snapshot)?;
    let (Some(mark), Some(_)) = (answers[0].first(), answers[1].first()) else { return Ok(false) };
    let mut cells = Cells::of(mark);
    let mark = (cells.next::<String>()?, cells.next::<i64>()?);
    let (mut page, mut indexed, mut last) = (Vec::new(), Vec::new(), mark.clone());
    for row in &answers[1] {
        let mut cells = Cells::of(row);
        let xact = cells.next::<String>()?;
        let (of, changes) = (record(&mut cells)?, PgChanges::read(&mut cells)?);
        last = (xact, of.record.seq.cast_signed());
        page.push((of, changes));
    }
    let mut items = items_of(backend, &page)?;
    for (of, changes) in &page {
        let mut puts = values_of(changes)?;
        puts.extend(items.remove(&of.place).unwrap_or_default());
        let mut grams: Vec<u32> = Vec::new();
        for (channel, position, _, payload) in &puts {
            let begun = || begun(backend, &of.record, channel, position.unwrap_or(0));
            let entry = SearchedEntry::of(payload.as_ref(), *position, begun)?;
            grams.extend(entry.iter().flat_map(SearchedEntry::grams));
        }
        grams.sort_unstable();
        grams.dedup();
        if !grams.is_empty() {
            indexed.push((of.place, grams));
        }
    }
    write(backend, vec![PgQuery::new(search_sql::INDEX, index_params(mark, last, &indexed))])?;
    Ok(true)
}

fn index_params(from: (String, i64), to: (String, i64), indexed: &[(PgPlace, Vec<u32>)]) -> Vec<Param> {
    let ints =
        |of: &dyn Fn(&(PgPlace, Vec<u32>)) -> i64| Param::Ints(indexed.iter().map(|row| Some(of(row))).collect());
    let mut end = 0;
    let (mut firsts, mut lasts) = (Vec::new(), Vec::new());
    for (_, grams) in indexed {
        firsts.push(Some(end + 1));
        end += grams.len() as i64;
        lasts.push(Some(end));
    }
    vec![
        Param::Text(Some(from.0)),
        Param::Int(Some(from.1)),
        Param::Text(Some(to.0)),
        Param::Int(Some(to.1)),
        ints(&|row| row.0.thread),
        ints(&|row| row.0.branch),
        ints(&|row| row.0.ordinal),
        Param::Ints(firsts),
        Param::Ints(lasts),
        Param::Ints(indexed.iter().flat_map(|row| &row.1).map(|gram| Some((*gram).into())).collect()),
    ]
}

fn write(backend: &PostgresBackend, queries: Vec<PgQuery>) -> Result<(), StoreError> {
    let lanes = Arc::clone(&backend.client.lanes);
    backend.client.wait(async move { lanes.write_repeated(&queries).await.map(|_| ()).map_err(write_error) })
}
