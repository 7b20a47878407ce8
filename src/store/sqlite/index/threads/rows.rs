//! Threads with the parts that a caller wants.

use super::{list, of_id};
use crate::base::ThreadId;
use crate::store::log::{ThreadParts, ThreadRow, ThreadRows};
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::read::lease;
use crate::store::sqlite::view::ReadView;

/// Reads the rows of a query, all in one snapshot.
pub(crate) fn rows(view: ReadView<'_>, of: &ThreadRows<'_>, parts: ThreadParts<'_>) -> Res<Vec<ThreadRow>> {
    match of {
        ThreadRows::Ids(ids) => {
            let mut row = |id: &&ThreadId| {
                let info = if parts.info { of_id(view, id)? } else { None };
                with_parts(view, id, parts, ThreadRow { info, ..ThreadRow::default() })
            };
            ids.iter().map(&mut row).collect()
        }
        ThreadRows::After(after, limit) => {
            let records = view.threads(*after, *limit)?;
            let row = |record: crate::store::record::ThreadRecord| {
                let info = if parts.info { of_id(view, &record.id)? } else { None };
                let id = record.id.clone();
                with_parts(view, &id, parts, ThreadRow { info, record: Some(record), ..ThreadRow::default() })
            };
            records.into_iter().map(row).collect()
        }
        ThreadRows::Listed(query) => {
            let infos = list(view, query)?;
            let row = |info: crate::store::threads::ThreadInfo| {
                let id = info.id().clone();
                with_parts(view, &id, parts, ThreadRow { info: Some(info), ..ThreadRow::default() })
            };
            infos.into_iter().map(row).collect()
        }
    }
}

/// Reads the parts that are reads of their own.
fn with_parts(view: ReadView<'_>, id: &ThreadId, parts: ThreadParts<'_>, mut row: ThreadRow) -> Res<ThreadRow> {
    if parts.size {
        row.size = view.thread_size(id)?;
    }
    if parts.fields {
        row.fields = view.fields(id)?;
    }
    if parts.lease {
        row.lease = lease::of_id(view, id)?;
    }
    if parts.namespaces {
        row.namespaces = view.namespaces(id)?;
    }
    if parts.forks {
        row.forks = view.forks(id)?;
    }
    if parts.forked_from {
        row.forked_from = view.forked_from(id)?;
    }
    if let Some(namespace) = parts.branches {
        row.branches = Some(view.branches(id, namespace)?);
    }
    Ok(row)
}
