//! Listings of threads of the file and of the model.

use annals::base::{CheckpointId, Timestamp};
use annals::store::log::{Log, LogExt};
use annals::store::{MarkedWrite, StatusKind, ThreadInfo, ThreadQuery};
use proptest::prelude::*;

/// Compares listings, page by page. If `rebuilds` is set, the table of threads is made anew first: otherwise listings
/// read the rest of the log and rows that changes of threads have renewed.
pub(super) fn compare(model: &dyn Log, file: &dyn Log, rebuilds: bool) -> Result<(), TestCaseError> {
    if rebuilds {
        file.capabilities().file.unwrap().rebuild_threads().unwrap();
    }
    let failed = StatusKind::Failed;
    let queries = [
        ThreadQuery::new().limit(2),
        ThreadQuery::new().limit(3).by_id(),
        ThreadQuery::new().status(StatusKind::Done),
        ThreadQuery::new().status(StatusKind::Running).limit(1),
        ThreadQuery::new().status(StatusKind::Interrupted),
        ThreadQuery::new().status(failed),
        ThreadQuery::new().status(failed).by_id(),
    ];
    for query in queries {
        prop_assert_eq!(all(model, &query), all(file, &query), "{:?}", query);
    }
    Ok(())
}

/// Returns the threads of all pages, without the numbers that a backend chooses.
fn all(backend: &dyn Log, query: &ThreadQuery) -> Vec<(String, CheckpointId, Timestamp, StatusKind, Vec<MarkedWrite>)> {
    let shown =
        |info: &ThreadInfo| (info.id().to_string(), info.head(), info.updated_at, info.status, info.marked.to_vec());
    let (mut found, mut query) = (Vec::new(), query.clone());
    loop {
        let page = backend.list_threads(&query).unwrap();
        let Some(last) = page.last() else { return found };
        query = query.after(last);
        found.extend(page.iter().map(shown));
    }
}
