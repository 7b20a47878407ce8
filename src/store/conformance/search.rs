//! Searches of the texts of items.

use super::build::*;

/// Runs a case on an empty backend, and on one with an index: each of its searches finds the same with the newest
/// entries indexed and without.
pub(super) fn with_and_without_index(backend: &dyn Log, case: fn(&dyn Log)) {
    case(backend);
    let all: Vec<ThreadId> = threads(backend).into_iter().map(|id| ThreadId::new(id).expect("an id")).collect();
    _ = backend.delete_threads(&all).expect("deletes");
    reclaim(backend);
    search_of(backend).enable(&SearchOptions::new().unsealed()).expect("indexes an empty log");
    case(backend);
    clean(backend);
    search_of(backend).disable().expect("removes the index");
    assert_eq!(search_of(backend).index().expect("reads the state"), None);
}

fn page(backend: &dyn Log, query: &SearchQuery) -> SearchPage {
    let page = search_of(backend).search(query).expect("searches");
    if search_of(backend).index().expect("reads the state").is_some() {
        search_of(backend).enable(&SearchOptions::new().unsealed()).expect("indexes the rest");
        assert_eq!(search_of(backend).index().expect("reads the state").map(|index| index.behind), Some(0));
        assert_eq!(search_of(backend).search(query).expect("searches"), page, "with entries not indexed, and without");
    }
    page
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

/// Compares the hits of searches.
fn finds<'e>(backend: &dyn Log, searches: impl IntoIterator<Item = (SearchQuery, &'e [&'e str])>) {
    searches.into_iter().for_each(|(query, hits)| assert_eq!(shown(backend, query.clone()), hits, "{query:?}"));
}

fn query(text: &str) -> SearchQuery {
    SearchQuery::new(text)
}

fn word() -> SearchQuery {
    query("word")
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
    place.add(draft.items("list", n, vec![put_payload(position, said("ai", text))]));
}

pub(super) fn fields(backend: &dyn Log) {
    let place = root_of(backend, "trip").inside("guide:1");
    place.add(begin(1).tasks(&["plan", "answer"]));
    let items = vec![put_payload(0, message("m-1", "A Gasthof in Bern")), put_payload(3, said("human", "no match"))];
    place.add(on(2, 1).items("messages", 1, items).by(1));
    let hits = page(backend, &query("gasthof")).hits;
    let [hit] = &hits[..] else { panic!("one hit: {hits:?}") };
    assert_eq!((&hit.point, hit.created_at, hit.seq), (&place.point(2), moment(2), place.record(2).seq));
    assert_eq!((hit.role.as_deref(), hit.id.as_deref(), hit.name.as_deref()), (Some("ai"), Some("m-1"), Some("Zoë")));
    assert_eq!((hit.node.as_deref(), &*hit.channel, hit.position, hit.on_head), (Some("answer"), "messages", 0, true));
    let snippet = &hit.snippet;
    assert_eq!((&*snippet.marked("[", "]"), snippet.more_before || snippet.more_after), ("A [Gasthof] in Bern", false));
}

pub(super) fn filters(backend: &dyn Log) {
    let [a, b] = roots(backend, ["a", "b"]);
    a.add(begin(1).tasks(&["ask", "tell"]));
    let texts = |role: &str, text: &str| vec![put_payload(0, said(role, text)), put(1, "a word without an index")];
    a.add(on(2, 1).items("one", 1, texts("human", "a word")).by(0));
    a.add(on(3, 2).items("two", 1, texts("ai", "Word for word")));
    b.add(begin(4).items("one", 1, texts("ai", "pass\u{2003}words")).value("x", 1, "word"));
    let all = ["b/ one 0 pass\u{2003}[word]s", "a/ two 0 [Word] for [word]", "a/ one 0 a [word]"];
    let searches = [
        (word(), &all[..]),
        (word().thread("a"), &all[1..]),
        (word().thread("none"), &[]),
        (word().role("ai"), &all[..2]),
        (word().role("AI"), &[]),
        (word().channel("one"), &[all[0], all[2]]),
        (word().node("ask"), &all[2..]),
        // It was due and wrote nothing.
        (word().node("tell"), &[]),
        (word().since(moment(3)), &all[..2]),
        (word().until(moment(3)), &all[2..]),
        (word().since(moment(3)).until(moment(4)).role("ai").thread("a"), &all[1..2]),
        (query(" word\tPASS\n"), &["b/ one 0 [pass]\u{2003}[word]s"]),
        (query("word missing"), &[]),
    ];
    finds(backend, searches);
}

pub(super) fn pages(backend: &dyn Log) {
    let place = root_of(backend, "pages");
    let items = |from: u64| (from..from + 3).map(|n| put_payload(n, said("ai", &format!("text {n}")))).collect();
    place.add(begin(1).items("b", 1, items(0)).items("a", 1, items(10)));
    place.add(on(2, 1).items("a", 2, items(20)));
    let order = [("a", 22), ("a", 21), ("a", 20), ("b", 2), ("b", 1), ("b", 0), ("a", 12), ("a", 11), ("a", 10)];
    for limit in [1, 2, 4, 8, 9, 10, 1_000] {
        let (mut found, mut query) = (Vec::new(), query("text").limit(limit));
        loop {
            let page = page(backend, &query);
            assert!(page.hits.len() == limit || page.next.is_none(), "a page that is followed is full");
            found.extend(page.hits.into_iter().map(|hit| (hit.channel.to_string(), hit.position)));
            assert!(found.len() <= order.len(), "a cursor repeats: {found:?}");
            let Some(next) = page.next else { break };
            query = query.after(next.to_string().parse().expect("a cursor is parsed"));
        }
        let found: Vec<_> = found.iter().map(|(channel, position)| (&**channel, *position)).collect();
        assert_eq!(found, order, "pages of {limit}");
    }
    let first = page(backend, &query("text").limit(4));
    say(&root_of(backend, "other"), 101, 0, "text of a later commit");
    let rest = page(backend, &query("text").after(first.next.expect("more follow")));
    assert_eq!(rest.hits.len(), 5, "a later commit comes before the cursor");
}

pub(super) fn on_head(backend: &dyn Log) {
    let [place, fork] = roots(backend, ["heads", "fork"]);
    let texts = ["word zero", "word one", "word two", "word three"];
    place.add(begin(1).items("list", 1, (0..).zip(texts).map(|(n, text)| put_payload(n, said("ai", text))).collect()));
    let edit = vec![remove(0), delete_range(1, 2), put_payload(2, said("ai", "word two, edited"))];
    place.add(on(2, 1).items("list", 2, edit));
    let now = ["heads/ list 2 [word] two, edited", "heads/ list 3 [word] three"];
    let past = [("two", 2), ("one", 1), ("zero", 0)].map(|(text, n)| format!("heads/ list {n} [word] {text} (past)"));
    finds(backend, [(word().on_head(), &now[..]), (word(), &[now[0], now[1], &past[0], &past[1], &past[2]])]);
    // A branch is abandoned; the same position is written at the same ordinal of both branches.
    place.add(on(3, 1).items("list", 2, vec![put_payload(2, said("ai", "word 2b"))]));
    let kept =
        ["2 [word] 2b", "3 [word] three", "1 [word] one", "0 [word] zero"].map(|hit| format!("heads/ list {hit}"));
    assert_eq!(shown(backend, word().on_head()), kept);
    assert_eq!(shown(backend, word()).len(), 6);
    // A list that becomes a value, and a fork elsewhere, which shows the items of its source.
    fork.add(fork_of(4, place.point(3)));
    place.add(on(5, 3).value("list", 3, "a value"));
    // An item is a hit of the thread that wrote it.
    finds(backend, [(word().on_head(), &[][..]), (word().thread("fork"), &[])]);
}

pub(super) fn references_and_writes(backend: &dyn Log) {
    let [place, other] = roots(backend, ["references", "writes"]);
    say(&place, 1, 0, "word one");
    place.add(on(2, 1).items("copy", 1, vec![place.reference(1), put_payload(1, said("ai", "word two"))]));
    // A reference puts no item.
    let found = ["references/ copy 1 [word] two", "references/ list 0 [word] one"];
    finds(backend, [(word(), &found[..])]);
    other.add(begin(1).tasks(&["node"]));
    other.write(1, 1, vec![write_items(0, "list", &["word", "word"])]);
    finds(backend, [(word(), &found[..])]);
    other.add(on(2, 1).payload("value", 1, said("ai", "word")));
    finds(backend, [(word(), &["writes/ value 0 [word]", found[0], found[1]][..])]);
}

/// Returns a value in MessagePack.
fn plain(value: impl Into<Value>) -> Payload {
    Encoded::encode(&value.into()).expect("encodes").into()
}

pub(super) fn channels(backend: &dyn Log) {
    let place = root_of(backend, "channels");
    place.add(begin(1).tasks(&["write"]));
    let entry = |position: u64, key: &str, text: &str| {
        put_payload(MAP_POSITION_MIN + position, plain(Value::List(vec![key.into(), text.into()])))
    };
    let nested = Value::List(vec![1.into(), "a word".into(), "two words".into()]);
    let draft = on(2, 1)
        .payload("long", 1, plain(&*format!("{} word", "x".repeat(2_000))))
        .payload("nested", 1, plain(Map::from_iter([("word".to_owned(), nested)])))
        .payload("none", 1, plain(7))
        .payload("short", 1, plain("Word"))
        .by(0)
        .items("files", 1, vec![entry(5, "word.txt", "abc"), entry(900, "b.txt", "words")])
        .items("plain", 1, vec![put_payload(0, plain("one word")), put_payload(1, plain(1))])
        .payload("trigger:of:x", 1, plain("word"))
        .payload("__start__", 1, plain("word"));
    place.add(draft);
    let line = |hit: &SearchHit| {
        let (key, node) = (hit.key.as_deref().unwrap_or("-"), hit.node.as_deref().unwrap_or("-"));
        format!("{} {} {key} {node} {} {}", hit.channel, hit.position, hit.on_head, hit.snippet.marked("[", "]").len())
    };
    let expected = [
        "short 0 - write true 6",
        "plain 0 - - true 10",
        "nested 0 - - true 20",
        "long 0 - - true 46",
        "files 0 b.txt - true 13",
        "files 0 word.txt - true 14",
    ];
    assert_eq!(page(backend, &word()).hits.iter().map(line).collect::<Vec<_>>(), expected);
    let short = (word().channel("short"), &["channels/ short 0 [Word]"][..]);
    // Another one triggers nodes, and a value has no type.
    finds(backend, [short, (word().channel("__start__"), &[]), (word().role("ai"), &[])]);
    // A value, and an entry, that are replaced.
    place.add(on(3, 2).payload("short", 2, plain("other")).items("files", 2, vec![entry(5, "word.txt", "new")]));
    let found = shown(backend, word().on_head());
    assert!(found[0] == "channels/ files 0 [word].txt\nnew" && found.iter().all(|line| !line.contains("short")));
    assert_eq!((found.len(), shown(backend, word()).len()), (5, 7));
}

pub(super) fn parts(backend: &dyn Log) {
    let [place, fork] = roots(backend, ["parts", "fork"]);
    let part = |n: u64, text: &str| put_payload(TEXT_POSITION_MIN + n, plain(text));
    let texts = (0..).zip(["The Gast", "ho", "", "f zum ", "Bären in", "Bern Gasthof"]);
    texts.for_each(|(n, text)| place.add(next(n + 1).items("draft", n + 1, vec![part(n, text)])));
    let whole = "parts/ draft 5 inBern [Gasthof]";
    let searches = [
        // A word across parts is found where it ends, and a whole word where it is.
        (query("gasthof"), &[whole, "parts/ draft 3 [Gasthof] zum "][..]),
        (query("gast"), &["parts/ draft 5 inBern [Gast]hof", "parts/ draft 0 The [Gast]"]),
        (query("inbern"), &["parts/ draft 5 [inBern] Gasthof"]),
        (query("zum gasthof"), &["parts/ draft 3 [Gasthof] [zum] "]),
        // Another part holds a word.
        (query("the gasthof"), &[]),
        (query("hof"), &["parts/ draft 5 inBern Gast[hof]", "parts/ draft 3 Gast[hof] zum "]),
    ];
    finds(backend, searches);
    // Several parts at once, after the text was replaced, and on another branch.
    let all = delete_range(TEXT_POSITION_MIN, TEXT_POSITION_MIN + 6);
    place.add(on(7, 6).items("draft", 7, vec![all, part(6, "ab"), part(7, "cd")]));
    finds(backend, [(query("abcd"), &["parts/ draft 7 [abcd]"][..]), (query("gasthofab"), &[])]);
    place.add(on(8, 6).items("draft", 7, vec![part(6, "xy")]));
    place.add(on(9, 8).items("draft", 8, vec![part(7, "z")]));
    // A branch is read alone.
    finds(backend, [(query("hofxy"), &[][..]), (query("xyz"), &["parts/ draft 7 [xyz]"])]);
    // A thread and its fork are erased together: the parts of the one are read for the entries of the other.
    fork.add(fork_of(1, place.point(9)).items("draft", 9, vec![part(8, "end")]));
    fork.add(on(2, 1).items("draft", 10, vec![part(9, "ing")]));
    finds(backend, [(query("ending"), &["fork/ draft 9 [ending]"][..])]);
    erase(backend, &[&place, &fork]);
    finds(backend, [(query("gasthof"), &[][..])]);
}

pub(super) fn deleted(backend: &dyn Log) {
    let [gone, stays] = roots(backend, ["gone", "stays"]);
    for n in 1..=50 {
        say(&gone, n, n, &format!("word {n}"));
        say(&stays, 100 + n, n, &format!("word {n}"));
    }
    let all = || page(backend, &word().limit(1_000)).hits;
    assert_eq!(all().len(), 100);
    gone.delete();
    assert!(all().len() == 50 && all().iter().all(|hit| hit.point.thread == stays.thread));
    reclaim(backend);
    say(&gone, 201, 0, "a new word");
    assert_eq!(all().len(), 51, "the id is used again");
    finds(backend, [(word().thread("gone"), &["gone/ list 0 a new [word]"][..])]);
}

pub(super) fn hostile(backend: &dyn Log) {
    let place = root_of(backend, "hostile");
    // Each text with the searches that find it alone.
    let texts: [(&str, &[&str]); 10] = [
        ("\"quoted\" OR 'x'", &["\"quoted\"", "\"", "OR 'x'"]),
        ("a* NEAR(b) NOT c", &["a* NEAR(b)", "NOT"]),
        ("nul \0 nul", &["nul \0", "\0"]),
        ("$1 [x] {y} ^z -w", &["$1 [x] {y} ^z -w"]),
        ("שלום \u{202e}abc", &["שלום", "\u{202e}"]),
        ("東京のホテル", &["東京", "テ"]),
        ("İstanbul ẞ", &["i\u{307}stanbul ß"]),
        ("e\u{301}", &[]),
        ("", &[]),
        ("%_\\", &["%", "_\\"]),
    ];
    (1..).zip(texts).for_each(|(n, (text, _))| say(&place, n, n, text));
    let found = |text: &str| page(backend, &query(text)).hits.iter().map(|hit| hit.position).collect::<Vec<_>>();
    for (n, (_, searches)) in (1..).zip(texts) {
        searches.iter().for_each(|text| assert_eq!(found(text), [n], "{text:?}"));
    }
    assert_eq!(found("grams:x"), [0; 0]);
    assert_eq!(refusal(search_of(backend).search(&query(" \t"))), "text of a search");
}

pub(super) fn long_texts(backend: &dyn Log) {
    let place = root_of(backend, "long");
    say(&place, 1, 0, &format!("{}word {}late", "é ".repeat(1_000), "z".repeat(64 << 10)));
    say(&place, 2, 1, &"日本".repeat(40_000));
    let snippet = page(backend, &word()).hits.remove(0).snippet;
    assert!(snippet.more_before && snippet.more_after);
    assert_eq!(&snippet.text[snippet.matches[0].clone()], "word");
    assert_eq!(shown(backend, query("late")), [""; 0], "the first 64 KiB are searched");
    assert_eq!(page(backend, &query("日本日本")).hits[0].position, 1);
}
