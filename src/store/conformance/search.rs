//! Searches of the texts of items.

use super::build::*;
use crate::base::Map;
use crate::base::limits::{MAP_POSITION_MIN, TEXT_POSITION_MIN};

fn page(backend: &dyn Log, query: &SearchQuery) -> SearchPage {
    let page = backend.search(query).expect("searches");
    if backend.search_index().expect("reads the state").is_some() {
        backend.enable_search(&SearchOptions::new().unsealed()).expect("indexes the rest");
        assert_eq!(backend.search_index().expect("reads the state").map(|index| index.behind), Some(0));
        assert_eq!(backend.search(query).expect("searches"), page, "entries that are indexed, and that are not");
    }
    page
}

/// Runs a case on an indexed backend: each of its searches finds the same with the newest entries indexed and without.
pub(super) fn indexed(backend: &dyn Log, case: fn(&dyn Log)) {
    let options = SearchOptions::new().unsealed();
    backend.enable_search(&options).expect("indexes an empty log");
    case(backend);
    assert!(backend.check().expect("checks").problems.is_empty());
    backend.disable_search().expect("removes the index");
    assert_eq!(backend.search_index().expect("reads the state"), None);
}

/// Returns the hits as `thread/namespace channel position text`.
fn shown(backend: &dyn Log, query: SearchQuery) -> Vec<String> {
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
fn say(place: &CasePlace<'_>, n: u64, position: u64, text: &str) {
    let draft = if n % 100 == 1 { begin(n) } else { on(n, n - 1) };
    let head = if n % 100 == 1 { None } else { Some(n - 1) };
    place.add_at(head, draft.items("list", n, vec![put_payload(position, said("ai", text))]));
}

pub(super) fn fields(backend: &dyn Log) {
    let place = root_of(backend, "trip").inside("guide:1");
    place.add(begin(1).tasks(&["plan", "answer"]));
    let items = vec![put_payload(0, message("m-1", "A Gasthof in Bern")), put_payload(3, said("human", "no match"))];
    place.add(on(2, 1).items("messages", 1, items).by(1));
    let hits = page(backend, &SearchQuery::new("gasthof")).hits;
    let [hit] = &hits[..] else { panic!("one hit: {hits:?}") };
    assert_eq!((&hit.point, hit.created_at), (&place.point(2), moment(2)));
    assert_eq!(hit.seq, place.record(2).seq);
    assert_eq!((&*hit.channel, hit.position), ("messages", 0));
    assert_eq!((hit.role.as_deref(), hit.id.as_deref(), hit.name.as_deref()), (Some("ai"), Some("m-1"), Some("Zoë")));
    assert_eq!((hit.node.as_deref(), hit.on_head), (Some("answer"), true));
    assert_eq!(hit.snippet.marked("[", "]"), "A [Gasthof] in Bern");
    assert_eq!((hit.snippet.more_before, hit.snippet.more_after), (false, false));
}

pub(super) fn filters(backend: &dyn Log) {
    let (a, b) = (root_of(backend, "a"), root_of(backend, "b"));
    a.add(begin(1).tasks(&["ask", "tell"]));
    let texts = |role: &str, text: &str| vec![put_payload(0, said(role, text)), put(1, "a word without an index")];
    a.add(on(2, 1).items("one", 1, texts("human", "a word")).by(0));
    a.add(on(3, 2).items("two", 1, texts("ai", "Word for word")));
    b.add(begin(4).items("one", 1, texts("ai", "pass\u{2003}words")).value("x", 1, "word"));
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

pub(super) fn pages(backend: &dyn Log) {
    let place = root_of(backend, "pages");
    let items = |from: u64| (from..from + 3).map(|n| put_payload(n, said("ai", &format!("text {n}")))).collect();
    place.add(begin(1).items("b", 1, items(0)).items("a", 1, items(10)));
    place.add(on(2, 1).items("a", 2, items(20)));
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
    say(&root_of(backend, "other"), 101, 0, "text of a later commit");
    let rest = page(backend, &SearchQuery::new("text").after(first.next.expect("more follow")));
    assert_eq!(rest.hits.len(), 5, "a later commit comes before the cursor");
}

pub(super) fn on_head(backend: &dyn Log) {
    let place = root_of(backend, "heads");
    let texts = ["word zero", "word one", "word two", "word three"];
    let all = (0..).zip(texts).map(|(n, text)| put_payload(n, said("ai", text))).collect();
    place.add(begin(1).items("list", 1, all));
    let edit = vec![remove(0), delete_range(1, 2), put_payload(2, said("ai", "word two, edited"))];
    place.add(on(2, 1).items("list", 2, edit));
    let both = || SearchQuery::new("word");
    let now = ["heads/ list 2 [word] two, edited", "heads/ list 3 [word] three"];
    assert_eq!(shown(backend, both().on_head()), now);
    let past = |text: &str, n| format!("heads/ list {n} [word] {text} (past)");
    let found = shown(backend, both());
    assert_eq!(found, [now[0], now[1], &past("two", 2), &past("one", 1), &past("zero", 0)]);
    // A branch is abandoned; the same position is written at the same ordinal of both branches.
    place.add_at(Some(2), on(3, 1).items("list", 2, vec![put_payload(2, said("ai", "word 2b"))]));
    let found = shown(backend, both().on_head());
    let kept = ["heads/ list 2 [word] 2b", "heads/ list 3 [word] three", "heads/ list 1 [word] one"];
    assert_eq!(found, [&kept[..], &["heads/ list 0 [word] zero"]].concat());
    assert_eq!(shown(backend, both()).len(), 6);
    // A list that becomes a value, and a fork elsewhere, which shows the items of its source.
    root_of(backend, "fork").add(fork_of(4, place.point(3)));
    place.add(on(5, 3).value("list", 3, "a value"));
    assert_eq!(shown(backend, both().on_head()), [""; 0]);
    assert_eq!(shown(backend, both().thread("fork")), [""; 0], "an item is a hit of the thread that wrote it");
}

pub(super) fn references(backend: &dyn Log) {
    let place = root_of(backend, "references");
    say(&place, 1, 0, "word one");
    place.add(on(2, 1).items(
        "copy",
        1,
        vec![
            ItemChange::new(0, ItemOp::Reference(ListRef::new(place.namespace.clone(), id(1), "list")), None),
            put_payload(1, said("ai", "word two")),
        ],
    ));
    let found = shown(backend, SearchQuery::new("word"));
    assert_eq!(found, ["references/ copy 1 [word] two", "references/ list 0 [word] one"], "a reference puts no item");
}

pub(super) fn of_writes(backend: &dyn Log) {
    let place = root_of(backend, "writes");
    place.add(begin(1).tasks(&["node"]));
    commit(backend, &place.pending(1, writes(1, task(1), "~1", vec![write_items(0, "list", &["word", "word"])])));
    assert_eq!(shown(backend, SearchQuery::new("word")), [""; 0], "writes of a task are not found");
    let value = |text| ChangeValue::Value(Data::New(said("ai", text)));
    place.add(on(2, 1).change("value", 1, value("word")));
    assert_eq!(shown(backend, SearchQuery::new("word")), ["writes/ value 0 [word]"], "the value of a channel is found");
}

/// Returns a value in MessagePack.
fn plain(value: impl Into<Value>) -> Payload {
    Encoded::encode(&value.into()).expect("encodes").into()
}

pub(super) fn channels(backend: &dyn Log) {
    let place = root_of(backend, "channels");
    place.add(begin(1).tasks(&["write"]));
    let value = |value: Payload| ChangeValue::Value(Data::New(value));
    let entry = |position: u64, key: &str, text: &str| {
        put_payload(MAP_POSITION_MIN + position, plain(Value::List(vec![key.into(), text.into()])))
    };
    let long = format!("{} word", "x".repeat(2_000));
    let nested =
        Map::from_iter([("word".to_owned(), Value::List(vec![1.into(), "a word".into(), "two words".into()]))]);
    let draft = on(2, 1)
        .change("long", 1, value(plain(&*long)))
        .change("nested", 1, value(plain(nested)))
        .change("none", 1, value(plain(7)))
        .change("short", 1, value(plain("Word")))
        .by(0)
        .items("files", 1, vec![entry(5, "word.txt", "abc"), entry(900, "b.txt", "words")])
        .items("plain", 1, vec![put_payload(0, plain("one word")), put_payload(1, plain(1))])
        .change("trigger:of:x", 1, value(plain("word")))
        .change("__start__", 1, value(plain("word")));
    place.add_at(Some(1), draft);
    let hits = page(backend, &SearchQuery::new("word")).hits;
    let line = |hit: &SearchHit| {
        let (key, node) = (hit.key.as_deref().unwrap_or("-"), hit.node.as_deref().unwrap_or("-"));
        format!("{} {} {key} {node} {} {}", hit.channel, hit.position, hit.on_head, hit.snippet.marked("[", "]").len())
    };
    let found: Vec<String> = hits.iter().map(line).collect();
    let expected = [
        "short 0 - write true 6",
        "plain 0 - - true 10",
        "nested 0 - - true 20",
        "long 0 - - true 46",
        "files 0 b.txt - true 13",
        "files 0 word.txt - true 14",
    ];
    assert_eq!(found, expected);
    assert_eq!(shown(backend, SearchQuery::new("word").channel("short")), ["channels/ short 0 [Word]"]);
    assert_eq!(shown(backend, SearchQuery::new("word").channel("__start__")), [""; 0], "it triggers nodes");
    assert_eq!(shown(backend, SearchQuery::new("word").role("ai")), [""; 0], "a value has no type");
    // A value, and an entry, that are replaced.
    let draft = on(3, 2).change("short", 2, value(plain("other"))).items("files", 2, vec![entry(5, "word.txt", "new")]);
    place.add_at(Some(2), draft);
    let found = shown(backend, SearchQuery::new("word").on_head());
    assert_eq!(found.iter().filter(|line| line.contains("short")).count(), 0);
    assert_eq!(found.first().map(String::as_str), Some("channels/ files 0 [word].txt\nnew"));
    assert_eq!((found.len(), shown(backend, SearchQuery::new("word")).len()), (5, 7));
}

pub(super) fn parts(backend: &dyn Log) {
    let place = root_of(backend, "parts");
    let part = |n: u64, text: &str| put_payload(TEXT_POSITION_MIN + n, plain(text));
    let texts = ["The Gast", "ho", "", "f zum ", "Bären in", "Bern Gasthof"];
    for (n, text) in (0..).zip(texts) {
        let (draft, head) = match n {
            0 => (begin(1), None),
            n => (on(n + 1, n), Some(n)),
        };
        place.add_at(head, draft.items("draft", n + 1, vec![part(n, text)]));
    }
    let find = |words: &str| shown(backend, SearchQuery::new(words));
    assert_eq!(
        find("gasthof"),
        ["parts/ draft 5 inBern [Gasthof]", "parts/ draft 3 [Gasthof] zum "],
        "a word across parts is found where it ends"
    );
    assert_eq!(
        find("gast"),
        ["parts/ draft 5 inBern [Gast]hof", "parts/ draft 0 The [Gast]"],
        "and a whole word where it is"
    );
    assert_eq!(find("inbern"), ["parts/ draft 5 [inBern] Gasthof"]);
    assert_eq!(find("zum gasthof"), ["parts/ draft 3 [Gasthof] [zum] "]);
    assert_eq!(find("the gasthof"), [""; 0], "another part holds a word");
    assert_eq!(find("hof"), ["parts/ draft 5 inBern Gast[hof]", "parts/ draft 3 Gast[hof] zum "]);
    // Several parts at once, after the text was replaced, and on another branch.
    let draft = on(7, 6).items(
        "draft",
        7,
        vec![delete_range(TEXT_POSITION_MIN, TEXT_POSITION_MIN + 6), part(6, "ab"), part(7, "cd")],
    );
    place.add_at(Some(6), draft);
    assert_eq!(find("abcd"), ["parts/ draft 7 [abcd]"]);
    assert_eq!(find("gasthofab"), [""; 0], "the part before is deleted");
    place.add_at(Some(7), on(8, 6).items("draft", 7, vec![part(6, "xy")]));
    place.add(on(9, 8).items("draft", 8, vec![part(7, "z")]));
    assert_eq!(
        (find("hofxy").len(), find("xyz")),
        (0, vec!["parts/ draft 7 [xyz]".to_owned()]),
        "a branch is read alone"
    );
    // A thread and its fork are erased together: the parts of the one are read for the entries of the other.
    let fork = root_of(backend, "fork");
    fork.add(fork_of(1, place.point(9)).items("draft", 9, vec![part(8, "end")]));
    fork.add(on(2, 1).items("draft", 10, vec![part(9, "ing")]));
    assert_eq!(find("ending"), ["fork/ draft 9 [ending]"]);
    let erasure = backend.delete_threads(&[place.thread.clone(), fork.thread.clone()]).expect("deletes");
    _ = backend.reclaim().expect("reclaims");
    assert_eq!(find("gasthof"), [""; 0], "{erasure:?}");
}

pub(super) fn deleted(backend: &dyn Log) {
    let (gone, stays) = (root_of(backend, "gone"), root_of(backend, "stays"));
    for n in 1..=50 {
        say(&gone, n, n, &format!("word {n}"));
        say(&stays, 100 + n, n, &format!("word {n}"));
    }
    let word = || SearchQuery::new("word").limit(1_000);
    assert_eq!(page(backend, &word()).hits.len(), 100);
    _ = backend.delete_threads(std::slice::from_ref(&gone.thread)).expect("deletes");
    let hits = page(backend, &word()).hits;
    assert!(hits.len() == 50 && hits.iter().all(|hit| hit.point.thread == stays.thread));
    _ = backend.reclaim().expect("reclaims");
    say(&gone, 201, 0, "a new word");
    assert_eq!(page(backend, &word()).hits.len(), 51, "the id is used again");
    assert_eq!(shown(backend, word().thread("gone")), ["gone/ list 0 a new [word]"]);
}

pub(super) fn hostile(backend: &dyn Log) {
    let place = root_of(backend, "hostile");
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
        say(&place, n, n, text);
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

pub(super) fn long_texts(backend: &dyn Log) {
    let place = root_of(backend, "long");
    say(&place, 1, 0, &format!("{}word {}late", "é ".repeat(1_000), "z".repeat(64 << 10)));
    say(&place, 2, 1, &"日本".repeat(40_000));
    let hits = page(backend, &SearchQuery::new("word")).hits;
    assert!(hits[0].snippet.more_before && hits[0].snippet.more_after);
    assert_eq!(&hits[0].snippet.text[hits[0].snippet.matches[0].clone()], "word");
    assert_eq!(shown(backend, SearchQuery::new("late")), [""; 0], "the first 64 KiB are searched");
    assert_eq!(page(backend, &SearchQuery::new("日本日本")).hits[0].position, 1);
}
