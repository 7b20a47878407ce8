//! Searches of the texts of items.

use super::build::{
    CasePlace, CheckpointDraft, bytes, commit, delete_range, id, message, moment, put, put_payload, remove, root_of,
    task, write_items, writes,
};
use crate::store::backend::Backend;
use crate::store::batch::{ChangeValue, Data, ItemChange, ItemIndex, ItemOp, ListRef, Payload};
use crate::store::error::StoreError;
use crate::store::search::{SearchHit, SearchOptions, SearchPage, SearchQuery};

fn page(backend: &dyn Backend, query: &SearchQuery) -> SearchPage {
    let page = backend.search(query).expect("searches");
    if backend.search_index().expect("reads the state").is_some() {
        backend.enable_search(&SearchOptions::new().unsealed()).expect("indexes the rest");
        assert_eq!(backend.search_index().expect("reads the state").map(|index| index.behind), Some(0));
        assert_eq!(backend.search(query).expect("searches"), page, "entries that are indexed, and that are not");
    }
    page
}

/// Runs a case on an indexed backend: each of its searches finds the same with the newest entries indexed and without.
fn indexed(backend: &dyn Backend, case: fn(&dyn Backend)) {
    let options = SearchOptions::new().unsealed();
    backend.enable_search(&options).expect("indexes an empty log");
    case(backend);
    assert!(backend.check().expect("checks").problems.is_empty());
    backend.disable_search().expect("removes the index");
    assert_eq!(backend.search_index().expect("reads the state"), None);
}

pub(super) fn indexed_fields(backend: &dyn Backend) {
    indexed(backend, fields);
}

pub(super) fn indexed_filters(backend: &dyn Backend) {
    indexed(backend, filters);
}

pub(super) fn indexed_pages(backend: &dyn Backend) {
    indexed(backend, pages);
}

pub(super) fn indexed_on_head(backend: &dyn Backend) {
    indexed(backend, on_head);
}

pub(super) fn indexed_references(backend: &dyn Backend) {
    indexed(backend, references);
}

pub(super) fn indexed_of_writes(backend: &dyn Backend) {
    indexed(backend, of_writes);
}

pub(super) fn indexed_deleted(backend: &dyn Backend) {
    indexed(backend, deleted);
}

pub(super) fn indexed_hostile(backend: &dyn Backend) {
    indexed(backend, hostile);
}

pub(super) fn indexed_long_texts(backend: &dyn Backend) {
    indexed(backend, long_texts);
}

/// Returns the hits as `thread/namespace channel position text`.
fn shown(backend: &dyn Backend, query: SearchQuery) -> Vec<String> {
    let line = |hit: SearchHit| {
        let (point, head) = (&hit.point, if hit.on_head { "" } else { " (past)" });
        let place = format!("{}/{} {} {}", point.thread, point.namespace, hit.channel, hit.position);
        format!("{place} {}{head}", hit.snippet.marked("[", "]"))
    };
    page(backend, &query).hits.into_iter().map(line).collect()
}

/// Returns an item with a type and a text.
fn said(kind: &str, text: &str) -> Payload {
    let mut index = ItemIndex::default();
    (index.kind, index.text) = (Some(kind.into()), Some(text.into()));
    bytes(text).with_index(index)
}

/// Adds a checkpoint that puts one text.
fn say(backend: &dyn Backend, place: &CasePlace, n: u64, position: u64, text: &str) {
    let draft = if n % 100 == 1 { CheckpointDraft::root(n) } else { CheckpointDraft::on(n, n - 1) };
    let head = if n % 100 == 1 { None } else { Some(n - 1) };
    place.add(backend, head, draft.items("list", n, vec![put_payload(position, said("ai", text))]));
}

pub(super) fn fields(backend: &dyn Backend) {
    let place = root_of("trip").inside("guide:1");
    place.add(backend, None, CheckpointDraft::root(1).tasks(&["plan", "answer"]));
    let items = vec![put_payload(0, message("m-1", "A Gasthof in Bern")), put_payload(3, said("human", "no match"))];
    place.add(backend, Some(1), CheckpointDraft::on(2, 1).items("messages", 1, items).by(1));
    let hits = page(backend, &SearchQuery::new("gasthof")).hits;
    let [hit] = &hits[..] else { panic!("one hit: {hits:?}") };
    assert_eq!((&hit.point, hit.created_at), (&place.point(2), moment(2)));
    assert_eq!(hit.seq, place.record(backend, 2).seq);
    assert_eq!((&*hit.channel, hit.position), ("messages", 0));
    assert_eq!((hit.role.as_deref(), hit.id.as_deref(), hit.name.as_deref()), (Some("ai"), Some("m-1"), Some("Zoë")));
    assert_eq!((hit.node.as_deref(), hit.on_head), (Some("answer"), true));
    assert_eq!(hit.snippet.marked("[", "]"), "A [Gasthof] in Bern");
    assert_eq!((hit.snippet.more_before, hit.snippet.more_after), (false, false));
}

pub(super) fn filters(backend: &dyn Backend) {
    let (a, b) = (root_of("a"), root_of("b"));
    a.add(backend, None, CheckpointDraft::root(1).tasks(&["ask", "tell"]));
    let texts = |role: &str, text: &str| vec![put_payload(0, said(role, text)), put(1, "a word without an index")];
    a.add(backend, Some(1), CheckpointDraft::on(2, 1).items("one", 1, texts("human", "a word")).by(0));
    a.add(backend, Some(2), CheckpointDraft::on(3, 2).items("two", 1, texts("ai", "Word for word")));
    b.add(
        backend,
        None,
        CheckpointDraft::root(4).items("one", 1, texts("ai", "pass\u{2003}words")).value("x", 1, "word"),
    );
    let all = ["b/ one 0 pass\u{2003}[word]s", "a/ two 0 [Word] for [word]", "a/ one 0 a [word]"];
    let find = |query: SearchQuery| shown(backend, query);
    let word = || SearchQuery::new("word");
    assert_eq!(find(word()), all, "the newest first");
    assert_eq!(find(word().thread("a")), all[1..]);
    assert_eq!(find(word().thread("none")), [""; 0]);
    assert_eq!(find(word().role("ai")), all[..2]);
    assert_eq!(find(word().role("AI")), [""; 0], "types are compared exactly");
    assert_eq!(find(word().channel("one")), [all[0], all[2]]);
    assert_eq!(find(word().node("ask")), all[2..]);
    assert_eq!(find(word().node("tell")), [""; 0], "it was due and wrote nothing");
    assert_eq!(find(word().since(moment(3))), all[..2]);
    assert_eq!(find(word().until(moment(3))), all[2..]);
    assert_eq!(find(word().since(moment(3)).until(moment(4)).role("ai").thread("a")), all[1..2]);
    assert_eq!(find(SearchQuery::new(" word\tPASS\n")), ["b/ one 0 [pass]\u{2003}[word]s"], "every word");
    assert_eq!(find(SearchQuery::new("word missing")), [""; 0]);
}

pub(super) fn pages(backend: &dyn Backend) {
    let place = root_of("pages");
    let items = |from: u64| (from..from + 3).map(|n| put_payload(n, said("ai", &format!("text {n}")))).collect();
    place.add(backend, None, CheckpointDraft::root(1).items("b", 1, items(0)).items("a", 1, items(10)));
    place.add(backend, Some(1), CheckpointDraft::on(2, 1).items("a", 2, items(20)));
    let order = [("a", 22), ("a", 21), ("a", 20), ("b", 2), ("b", 1), ("b", 0), ("a", 12), ("a", 11), ("a", 10)];
    for limit in [1, 2, 4, 8, 9, 10, 1_000] {
        let (mut found, mut query) = (Vec::new(), SearchQuery::new("text").limit(limit));
        loop {
            let page = page(backend, &query);
            assert!(page.hits.len() == limit || page.next.is_none(), "a page that is followed is full");
            found.extend(page.hits.into_iter().map(|hit| (hit.channel.to_string(), hit.position)));
            let Some(next) = page.next else { break };
            query = query.after(next.to_string().parse().expect("a cursor is parsed"));
        }
        let order = order.map(|(channel, position)| (channel.to_owned(), position));
        assert_eq!(found, order, "pages of {limit}");
    }
    let first = page(backend, &SearchQuery::new("text").limit(4));
    say(backend, &root_of("other"), 101, 0, "text of a later commit");
    let rest = page(backend, &SearchQuery::new("text").after(first.next.expect("more follow")));
    assert_eq!(rest.hits.len(), 5, "a later commit comes before the cursor");
}

pub(super) fn on_head(backend: &dyn Backend) {
    let place = root_of("heads");
    let texts = ["word zero", "word one", "word two", "word three"];
    let all = (0..).zip(texts).map(|(n, text)| put_payload(n, said("ai", text))).collect();
    place.add(backend, None, CheckpointDraft::root(1).items("list", 1, all));
    let edit = vec![remove(0), delete_range(1, 2), put_payload(2, said("ai", "word two, edited"))];
    place.add(backend, Some(1), CheckpointDraft::on(2, 1).items("list", 2, edit));
    let both = || SearchQuery::new("word");
    let now = ["heads/ list 2 [word] two, edited", "heads/ list 3 [word] three"];
    assert_eq!(shown(backend, both().on_head()), now);
    let past = |text: &str, n| format!("heads/ list {n} [word] {text} (past)");
    let found = shown(backend, both());
    assert_eq!(found, [now[0], now[1], &past("two", 2), &past("one", 1), &past("zero", 0)]);
    // A branch is abandoned; the same position is written at the same ordinal of both branches.
    place.add(
        backend,
        Some(2),
        CheckpointDraft::on(3, 1).items("list", 2, vec![put_payload(2, said("ai", "word 2b"))]),
    );
    let found = shown(backend, both().on_head());
    let kept = ["heads/ list 2 [word] 2b", "heads/ list 3 [word] three", "heads/ list 1 [word] one"];
    assert_eq!(found, [&kept[..], &["heads/ list 0 [word] zero"]].concat());
    assert_eq!(shown(backend, both()).len(), 6);
    // A list that becomes a value, and a fork elsewhere, which shows the items of its source.
    root_of("fork").add(backend, None, CheckpointDraft::fork(4, place.point(3)));
    place.add(backend, Some(3), CheckpointDraft::on(5, 3).value("list", 3, "a value"));
    assert_eq!(shown(backend, both().on_head()), [""; 0]);
    assert_eq!(shown(backend, both().thread("fork")), [""; 0], "an item is a hit of the thread that wrote it");
}

pub(super) fn references(backend: &dyn Backend) {
    let place = root_of("references");
    say(backend, &place, 1, 0, "word one");
    place.add(
        backend,
        Some(1),
        CheckpointDraft::on(2, 1).items(
            "copy",
            1,
            vec![
                ItemChange::new(0, ItemOp::Reference(ListRef::new(place.namespace.clone(), id(1), "list")), None),
                put_payload(1, said("ai", "word two")),
            ],
        ),
    );
    let found = shown(backend, SearchQuery::new("word"));
    assert_eq!(found, ["references/ copy 1 [word] two", "references/ list 0 [word] one"], "a reference puts no item");
}

pub(super) fn of_writes(backend: &dyn Backend) {
    let place = root_of("writes");
    place.add(backend, None, CheckpointDraft::root(1).tasks(&["node"]));
    commit(backend, &place.pending(1, writes(1, task(1), "~1", vec![write_items(0, "list", &["word", "word"])])));
    assert_eq!(shown(backend, SearchQuery::new("word")), [""; 0], "writes are not items of a list");
    let value = |text| ChangeValue::Value(Data::New(said("ai", text)));
    place.add(backend, Some(1), CheckpointDraft::on(2, 1).change("value", 1, value("word")));
    assert_eq!(shown(backend, SearchQuery::new("word")), [""; 0], "nor are values");
}

pub(super) fn deleted(backend: &dyn Backend) {
    let (gone, stays) = (root_of("gone"), root_of("stays"));
    for n in 1..=50 {
        say(backend, &gone, n, n, &format!("word {n}"));
        say(backend, &stays, 100 + n, n, &format!("word {n}"));
    }
    let word = || SearchQuery::new("word").limit(1_000);
    assert_eq!(page(backend, &word()).hits.len(), 100);
    _ = backend.delete_threads(std::slice::from_ref(&gone.thread)).expect("deletes");
    let hits = page(backend, &word()).hits;
    assert!(hits.len() == 50 && hits.iter().all(|hit| hit.point.thread == stays.thread));
    _ = backend.reclaim().expect("reclaims");
    say(backend, &gone, 201, 0, "a new word");
    assert_eq!(page(backend, &word()).hits.len(), 51, "the id is used again");
    assert_eq!(shown(backend, word().thread("gone")), ["gone/ list 0 a new [word]"]);
}

pub(super) fn hostile(backend: &dyn Backend) {
    let place = root_of("hostile");
    let texts = [
        "\"quoted\" OR 'x'",
        "a* NEAR(b) NOT c",
        "nul \0 nul",
        "$1 [x] {y} ^z -w",
        "שלום \u{202e}abc",
        "東京のホテル",
        "İstanbul ẞ",
        "e\u{301}",
        "",
        "%_\\",
    ];
    for (n, text) in (1..).zip(texts) {
        say(backend, &place, n, n, text);
    }
    let found =
        |text: &str| page(backend, &SearchQuery::new(text)).hits.iter().map(|hit| hit.position).collect::<Vec<_>>();
    let expected: [(&str, &[u64]); 16] = [
        ("\"quoted\"", &[1]),
        ("\"", &[1]),
        ("OR 'x'", &[1]),
        ("a* NEAR(b)", &[2]),
        ("NOT", &[2]),
        ("nul \0", &[3]),
        ("\0", &[3]),
        ("$1 [x] {y} ^z -w", &[4]),
        ("grams:x", &[]),
        ("שלום", &[5]),
        ("\u{202e}", &[5]),
        ("東京", &[6]),
        ("テ", &[6]),
        ("i\u{307}stanbul ß", &[7]),
        ("%", &[10]),
        ("_\\", &[10]),
    ];
    for (text, positions) in expected {
        assert_eq!(found(text), positions, "{text:?}");
    }
    let refused = |query: SearchQuery| match backend.search(&query) {
        Err(StoreError::Invalid { field, .. }) => field,
        other => panic!("{query:?} was not refused: {other:?}"),
    };
    for text in [String::new(), " \t".into(), "x".repeat(1_025), "é".repeat(64 << 10)] {
        assert_eq!(refused(SearchQuery::new(text)), "text of a search");
    }
    assert_eq!(refused(SearchQuery::new("x").limit(0)), "limit of a search");
    assert_eq!(refused(SearchQuery::new("x").limit(1_001)), "limit of a search");
    assert_eq!(refused(SearchQuery::new("x").role("r".repeat(64 << 10))), "role of a search");
    assert_eq!(refused(SearchQuery::new("x").node("n".repeat(257))), "node of a search");
    assert_eq!(refused(SearchQuery::new("x").channel("c".repeat(257))), "channel of a search");
    for thread in [String::new(), "a\0b".into(), "t".repeat(64 << 10)] {
        let outcome = backend.search(&SearchQuery::new("x").thread(&thread));
        assert!(matches!(outcome, Err(StoreError::Id(_))), "{outcome:?}");
    }
}

pub(super) fn long_texts(backend: &dyn Backend) {
    let place = root_of("long");
    say(backend, &place, 1, 0, &format!("{}word {}late", "é ".repeat(1_000), "z".repeat(64 << 10)));
    say(backend, &place, 2, 1, &"日本".repeat(40_000));
    let hits = page(backend, &SearchQuery::new("word")).hits;
    assert!(hits[0].snippet.more_before && hits[0].snippet.more_after);
    assert_eq!(&hits[0].snippet.text[hits[0].snippet.matches[0].clone()], "word");
    assert_eq!(shown(backend, SearchQuery::new("late")), [""; 0], "the first 64 KiB are searched");
    assert_eq!(page(backend, &SearchQuery::new("日本日本")).hits[0].position, 1);
}
