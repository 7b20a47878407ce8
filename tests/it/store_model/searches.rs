//! Searches of the file and of the model.

use std::sync::Arc;

use annals::base::ThreadId;
use annals::store::log::{Log, LogExt};
use annals::store::search::SearchHit;
use annals::store::{OpenOptions, SearchOptions, SearchQuery, SqliteBackend};
use proptest::prelude::*;

use super::{LISTS, follow, moment, op};
use crate::cases;

/// Compares searches, page by page. If the file has an index and `indexes` is set, its newest entries are indexed
/// first: otherwise searches read indexed entries and others.
pub(super) fn compare(model: &dyn Log, file: &dyn Log, thread: &ThreadId, indexes: bool) -> Result<(), TestCaseError> {
    if indexes && file.searches().unwrap().index().unwrap().is_some() {
        file.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    }
    let queries = [
        SearchQuery::new("TEXT").limit(7),
        SearchQuery::new("3 ü").on_head(),
        SearchQuery::new("text").thread(thread.as_str()).role("ai").channel(LISTS[0]).limit(3),
        SearchQuery::new("xt ü 1").node("node").limit(1_000),
        SearchQuery::new("ü").since(moment(10)).until(moment(40)),
        SearchQuery::new("texte").channel(LISTS[2]),
        SearchQuery::new("xt").on_head().limit(5),
        SearchQuery::new("日本"),
        SearchQuery::new("none"),
    ];
    for query in queries {
        prop_assert_eq!(hits(model, &query), hits(file, &query), "{:?}", query);
    }
    Ok(())
}

/// Returns the hits of all pages of a search, without the numbers that a backend chooses.
fn hits(backend: &dyn Log, query: &SearchQuery) -> Vec<SearchHit> {
    let (mut found, mut query) = (Vec::new(), query.clone());
    loop {
        let page = backend.searches().unwrap().search(&query).unwrap();
        found.extend(page.hits);
        match page.next {
            Some(next) => query = query.after(next),
            None => break,
        }
    }
    assert!(found.windows(2).all(|pair| pair[0].seq >= pair[1].seq), "the newest first");
    found.iter_mut().for_each(|hit| hit.seq = 0);
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(5, 128) as u32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_indexed_file_follows_the_model(ops in prop::collection::vec(op(), 1..60)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.db");
        let open = || {
            let file = SqliteBackend::open(&path, &OpenOptions::new()).unwrap();
            file.searches().unwrap().enable(&SearchOptions::new()).unwrap();
            file
        };
        follow(&ops, &mut || Arc::new(open()))?;
    }
}
