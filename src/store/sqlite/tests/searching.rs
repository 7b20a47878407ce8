//! Searches: the hits that the head shows, an index that ends within a checkpoint, and lists of pruned checkpoints.

use super::*;
use crate::base::Encoded;
use crate::store::operation::{NewOperation, OperationChange, OperationKind};
use crate::store::prune::PruneSpan;
use crate::store::search::{SearchOptions, SearchQuery};

/// Returns a put of a message into the list `talk`, which has so many items then.
fn says(version: u64, position: u64, text: &str) -> Change {
    let mut index = ItemIndex::default();
    (index.kind, index.text) = (Some("ai".into()), Some(text.into()));
    let payload = Payload::new(text.as_bytes().to_vec()).with_index(index);
    let put = ItemChange::new(position, ItemOp::Put(Data::New(payload)), None);
    Change::new("talk", version, ChangeValue::Items(vec![put]))
}

fn city(version: u64, text: &str) -> Change {
    value("city", version, Encoded::encode(text).unwrap().into())
}

/// Returns the texts of the hits, sorted, each with whether the head shows it.
fn hits(store: &SqliteBackend, words: &str) -> Vec<(String, bool)> {
    let page = store.searches().unwrap().search(&SearchQuery::new(words).limit(1_000)).unwrap();
    let mut hits: Vec<_> = page.hits.into_iter().map(|hit| (hit.snippet.text, hit.on_head)).collect();
    hits.sort();
    hits
}

#[test]
fn a_hit_is_on_the_head_if_its_lineage_shows_the_entry_there() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let root = bench.add(&t, None, vec![says(1, 0, "inn root"), city(1, "inn first")]);
    let old = bench.add(&t, Some(root), vec![says(2, 1, "inn old"), city(2, "inn left")]);
    bench.add(&t, Some(old), vec![says(3, 2, "inn older end")]);
    // The second branch puts an item at the same position and ordinal.
    let new = bench.add(&t, Some(root), vec![says(4, 1, "inn new"), city(4, "inn second")]);
    let middle = bench.add(&t, Some(new), vec![says(5, 0, "inn root again")]);
    let tip = bench.add(&t, Some(middle), vec![says(6, 2, "inn end")]);
    let with = |shown: &[&str]| -> Vec<(String, bool)> {
        let mut all = [
            "inn root",
            "inn first",
            "inn old",
            "inn left",
            "inn older end",
            "inn new",
            "inn second",
            "inn root again",
            "inn end",
        ]
        .map(|text| (text.to_owned(), shown.contains(&text)));
        all.sort();
        all.into()
    };
    let newest = with(&["inn new", "inn second", "inn root again", "inn end"]);
    assert_eq!(hits(&bench.store, "inn"), newest, "by a scan");
    bench.store.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    assert_eq!(hits(&bench.store, "inn"), newest, "by the index");
    let on_head = bench.store.searches().unwrap().search(&SearchQuery::new("inn").on_head()).unwrap();
    assert_eq!(on_head.hits.len(), 4);
    let moves = |from, to, shown: &[&str]| {
        let mut rewind = NewOperation::new(OperationKind::Rewind, Timestamp::from_micros(9));
        rewind.changes = vec![OperationChange::head(t.clone(), Namespace::root(), Some(from), Some(to))];
        bench.store.operate(&rewind).unwrap();
        assert_eq!(hits(&bench.store, "inn"), with(shown));
    };
    moves(tip, new, &["inn root", "inn new", "inn second"]);
    moves(new, root, &["inn root", "inn first"]);
    moves(root, old, &["inn root", "inn old", "inn left"]);
}

#[test]
fn an_index_that_ends_within_a_checkpoint_leaves_no_entry_out() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let mut head = None;
    for n in 0..4 {
        let two = vec![put(2 * n, &format!("inn {n} first")), put(2 * n + 1, &format!("inn {n} second"))];
        head = Some(bench.add(&t, head, vec![list(2 * n + 2, two)]));
    }
    let all = hits(&bench.store, "inn");
    assert_eq!(all.len(), 8);
    bench.store.searches().unwrap().enable(&SearchOptions::new()).unwrap();
    assert_eq!(hits(&bench.store, "inn"), all);
    let end = |seq: i64, place: i64| format!("UPDATE search_state SET next = {}", (seq << 24) + place);
    for (seq, place) in [(2, 1), (1, 1), (4, 0), (4, 1), (3, 0), (1, 0)] {
        raw(&bench.path()).execute_batch(&end(seq, place)).unwrap();
        assert_eq!(hits(&bench.store, "inn"), all, "it ends at entry {place} of checkpoint {seq}");
        let mut paged: Vec<String> = Vec::new();
        let mut query = SearchQuery::new("inn").limit(3);
        loop {
            let page = bench.store.searches().unwrap().search(&query).unwrap();
            paged.extend(page.hits.iter().map(|hit| hit.snippet.text.clone()));
            let Some(next) = page.next else { break };
            query = SearchQuery::new("inn").limit(3).after(next);
        }
        paged.sort();
        assert_eq!(paged, all.iter().map(|(text, _)| text.clone()).collect::<Vec<_>>(), "{seq}, {place}");
    }
}

#[test]
fn the_changes_of_a_list_are_those_of_kept_checkpoints() {
    let (mut bench, t) = (Bench::new(), thread("a"));
    let mut head = None;
    for n in 0..6 {
        head = Some(bench.add(&t, head, vec![list(n + 1, vec![put(n, "text")])]));
    }
    let at = at(&t, head.unwrap());
    let ordinals = |store: &SqliteBackend| -> Vec<u64> {
        store.search_list(&at, "messages", "text").unwrap().iter().map(|change| change.ordinal).collect()
    };
    let mut all = ordinals(&bench.store);
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 4, 5]);
    let pruned = bench.store.prune(&t, &[PruneSpan::new(1, 1, 3)]).unwrap();
    assert_eq!(pruned.checkpoints, 3);
    let mut kept = ordinals(&bench.store);
    kept.sort_unstable();
    assert_eq!(kept, [0, 4, 5]);
    assert_eq!(bench.check(), Vec::<String>::new());
}
