//! Messages that compactions carry on: one hit each.

use annals::history::PrunePolicy;
use annals::prelude::*;
use annals::store::search::SearchHit;
use annals::store::{SearchOptions, SearchQuery};

use super::on_both::on_both;

/// Appends 20 messages, and compacts the list three times: a summary takes the place of all but the last four.
fn compacted(store: &Store) -> Thread {
    let thread = store.thread("trip").unwrap();
    for n in 0..20 {
        thread.append("messages", [Message::human(format!("question {n:02}")).with_id(format!("m{n}"))]).unwrap();
    }
    for generation in 1..=3 {
        let head = thread.head().unwrap().unwrap();
        let last = head.messages("messages", annals::store::ItemRange::Tail(4)).unwrap();
        let summary = Message::system(format!("summary {generation}")).with_id(format!("s{generation}"));
        let all = [Message::remove_all(), summary].into_iter().chain(last);
        thread.append("messages", all).unwrap();
    }
    thread
}

fn hits(store: &Store, query: SearchQuery) -> Vec<SearchHit> {
    store.search(query).unwrap().hits
}

#[test]
fn a_message_that_a_compaction_carries_on_is_found_once() {
    on_both(|store| {
        let thread = compacted(store);
        for is_indexed in [false, true] {
            if is_indexed && store.enable_search(SearchOptions::new()).is_err() {
                continue;
            }
            let first = thread.at("~3").unwrap();
            for query in
                [SearchQuery::new("19"), SearchQuery::new("19").on_head(), SearchQuery::new("19").thread("trip")]
            {
                let found = hits(store, query);
                let [hit] = &found[..] else { panic!("one hit: {found:?}") };
                assert_eq!((&hit.point, hit.position), (first.point(), 19), "where it was first written");
                assert_eq!(hit.seq, first.record().seq);
                assert!(hit.on_head, "the message is in the list");
                assert_eq!(hit.carried.as_ref(), Some(thread.head().unwrap().unwrap().point()));
                assert_eq!(hit.snippet.marked("[", "]"), "question [19]");
            }
            let gone = hits(store, SearchQuery::new("question 03"));
            assert_eq!((gone.len(), gone[0].on_head, &gone[0].carried), (1, false, &None), "it was compacted away");
            assert!(hits(store, SearchQuery::new("question 03").on_head()).is_empty());
            // Nothing is shown twice or left out, whatever the pages.
            for limit in [1, 3, 7, 100] {
                let (mut all, mut query) = (Vec::new(), SearchQuery::new("question").limit(limit));
                loop {
                    let page = store.search(&query).unwrap();
                    assert!(page.hits.len() <= limit);
                    all.extend(page.hits.into_iter().map(|hit| hit.id.unwrap()));
                    match page.next {
                        Some(next) => query = query.after(next),
                        None => break,
                    }
                }
                let expected: Vec<String> = (0..20).rev().map(|n| format!("m{n}")).collect();
                assert_eq!(all, expected, "{limit} to a page");
            }
            let on_head = hits(store, SearchQuery::new("question").on_head());
            let mut ids: Vec<_> = on_head.iter().filter_map(|hit| hit.id.as_deref()).collect();
            ids.sort_unstable();
            assert_eq!(ids, ["m16", "m17", "m18", "m19"]);
        }
    });
}

#[test]
fn an_edit_and_a_message_of_another_branch_are_hits_of_their_own() {
    on_both(|store| {
        let thread = store.thread("trip").unwrap();
        thread.append("messages", [Message::human("a hotel in Bern").with_id("1")]).unwrap();
        let first = thread.head().unwrap().unwrap();
        thread.append("messages", [Message::human("a hotel in Basel").with_id("1")]).unwrap();
        assert_eq!(hits(store, SearchQuery::new("hotel")).len(), 2, "each text is a hit");
        thread.append("messages", [Message::ai("the Adler, a hotel").with_id("2")]).unwrap();
        thread.rewind_to(&first).unwrap();
        thread.append("messages", [Message::ai("nothing"), Message::ai("the Adler, a hotel").with_id("2")]).unwrap();
        let found = hits(store, SearchQuery::new("adler"));
        let shown: Vec<_> = found.iter().map(|hit| (hit.position, hit.on_head, &hit.carried)).collect();
        assert_eq!(shown, [(2, true, &None), (1, false, &None)], "one for each branch");
    });
}

#[test]
fn a_message_whose_first_checkpoint_was_pruned_is_found_where_it_is_kept() {
    on_both(|store| {
        let thread = compacted(store);
        thread.prune(&PrunePolicy::new().keep_last(1)).unwrap();
        for query in [SearchQuery::new("question 19"), SearchQuery::new("question 19").on_head()] {
            let found = hits(store, query);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].on_head && found[0].carried.is_none(), "{found:?}");
        }
    });
}
