//! Search by meaning in the key-value memory: the embedded texts, the hits of a search, and embedders that fail.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use annals::base::{Map, Value};
use annals::store::kv::{Embedder, EmbedderError, KvIndex, KvItem, KvLifetimes, KvWrite};
use annals::store::{Kv, KvQuery, Store, StoreError};

use super::on_both::on_both;

/// Counts letters, notes the texts it was given, and can be told what to return in place of counts.
#[derive(Clone, Default)]
struct Letters {
    texts: Arc<Mutex<Vec<Vec<String>>>>,
    returns: Arc<Mutex<Option<Vec<Vec<f32>>>>>,
}

impl Embedder for Letters {
    fn dims(&self) -> usize {
        26
    }

    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedderError> {
        self.texts.lock().unwrap().push(texts.iter().map(|text| (*text).to_owned()).collect());
        if let Some(returned) = self.returns.lock().unwrap().clone() {
            return Ok(returned);
        }
        if texts.contains(&"refuse") {
            return Err("the model is not there".into());
        }
        let count = |text: &str, letter: u8| text.bytes().filter(|byte| *byte == letter).count() as f32;
        Ok(texts.iter().map(|text| (b'a'..=b'z').map(|letter| count(text, letter)).collect()).collect())
    }
}

fn text(text: &str) -> Map {
    Map::from_iter([("text".to_owned(), Value::from(text))])
}

fn indexed(store: &Store, model: &Letters) -> Kv {
    store.kv().with_index(KvIndex::new(model.clone()).fields(["text"]).unwrap())
}

fn keys(items: &[KvItem]) -> String {
    items.iter().map(|item| &*item.key).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_search_by_meaning_filters_pages_and_ranks() {
    on_both(|store| {
        let model = Letters::default();
        let kv = indexed(store, &model);
        for (key, place, words) in
            [("1", "a", "xx"), ("2", "b", "xxy"), ("3", "a", "xyy"), ("4", "b", "yy"), ("5", "c", "z")]
        {
            let mut value = text(words);
            value.insert("odd".into(), Value::from(key.parse::<i64>().unwrap() % 2));
            kv.put(["n", place], key, value).unwrap();
        }
        kv.write_all([KvWrite::put(["n"], "6", text("x")).unwrap().fields([""; 0]).unwrap()]).unwrap();
        let find = |query: KvQuery| keys(&kv.search(query.similar_to("x")).unwrap());
        assert_eq!(find(KvQuery::all()), "1 2 3 5 4", "the same similarity: the last put first");
        assert_eq!(find(KvQuery::new(["n", "b"])), "2 4");
        assert_eq!(find(KvQuery::all().filter("odd", 1)), "1 3 5");
        assert_eq!(find(KvQuery::all().limit(2).offset(1)), "2 3");
        assert_eq!(find(KvQuery::all().limit(0)), "");
        assert_eq!(find(KvQuery::all().offset(usize::MAX)), "");
        assert_eq!(find(KvQuery::new(["none"])), "");
        let scores = kv.search(KvQuery::all().similar_to("x")).unwrap();
        assert_eq!((scores[0].score, scores[4].score), (Some(1.0), Some(0.0)));
        assert_eq!(keys(&kv.search(KvQuery::all().similar_to("")).unwrap()), "1 3 2 4 5 6", "as they were first put");
        let plain = store.kv().search(KvQuery::all().similar_to("x")).unwrap();
        assert!(
            plain.len() == 6 && plain.iter().all(|item| item.score.is_none()),
            "without an index it is a plain search"
        );
    });
}

#[test]
fn vectors_follow_their_entries() {
    on_both(|store| {
        let model = Letters::default();
        let kv = indexed(store, &model);
        let find = |words: &str| keys(&kv.search(KvQuery::all().similar_to(words)).unwrap());
        kv.put(["n"], "1", text("aaa")).unwrap();
        kv.put_for(["n"], "2", text("ab"), Duration::ZERO).unwrap();
        assert_eq!(find("a"), "1", "an expired entry is not found");
        kv.put(["n"], "1", text("bbb")).unwrap();
        kv.put(["n"], "3", text("a")).unwrap();
        assert_eq!(find("a"), "3 1");
        store.kv().put(["n"], "3", text("a")).unwrap();
        assert_eq!(find("a"), "1", "a handle without an index makes no vector");
        kv.put(["n"], "4", Map::new()).unwrap();
        assert_eq!(find("a"), "1", "a path that selects nothing makes none");
        kv.delete(["n"], "1").unwrap();
        assert_eq!(find("a"), "");
        let retains = kv.clone().with_lifetimes(KvLifetimes::new().retain_expired(true));
        kv.put_for(["n"], "5", text("a"), Duration::ZERO).unwrap();
        assert_eq!(keys(&retains.search(KvQuery::all().similar_to("a")).unwrap()), "5");
        assert_eq!(kv.sweep().unwrap(), 1);
        assert_eq!(keys(&retains.search(KvQuery::all().similar_to("a")).unwrap()), "");
    });
}

#[test]
fn all_texts_of_a_commit_are_embedded_in_one_call() {
    on_both(|store| {
        let model = Letters::default();
        let kv = indexed(store, &model);
        let parts = Map::from_iter([("parts".to_owned(), Value::from(serde_json::json!(["one", "two"])))]);
        let put = |key: &str, value: Map| KvWrite::put(["n"], key, value).unwrap();
        kv.write_all([
            put("1", text("zero")),
            put("2", parts).fields(["parts[*]", "none"]).unwrap(),
            KvWrite::delete(["n"], "9").unwrap(),
            put("3", Map::new()).fields(["$"]).unwrap(),
        ])
        .unwrap();
        assert_eq!(*model.texts.lock().unwrap(), [["zero", "one", "two", "{}"]]);
        let found = kv.search(KvQuery::all().similar_to("two")).unwrap();
        assert_eq!((&*found[0].key, found.len()), ("2", 3), "an entry is found once, by its best vector");
        kv.put(["n"], "4", Map::new()).unwrap();
        kv.write_all([]).unwrap();
        assert_eq!(model.texts.lock().unwrap().len(), 2, "nothing to embed, no call");
    });
}

#[test]
fn an_embedder_that_fails_changes_nothing() {
    on_both(|store| {
        let model = Letters::default();
        let kv = indexed(store, &model);
        kv.put(["n"], "1", text("a")).unwrap();
        let refused = kv.put(["n"], "1", text("refuse")).unwrap_err();
        assert!(matches!(&refused, StoreError::Embedding { source } if source.to_string().contains("not there")));
        assert!(matches!(kv.search(KvQuery::all().similar_to("refuse")), Err(StoreError::Embedding { .. })));
        let nan = [vec![0.0; 25], vec![f32::NAN]].concat();
        for returned in
            [vec![], vec![vec![1.0]], vec![vec![]], vec![nan], vec![vec![f32::INFINITY; 26]], vec![vec![1.0; 26]; 2]]
        {
            let count = returned.len();
            *model.returns.lock().unwrap() = Some(returned);
            let refused = kv.put(["n"], "1", text("b")).unwrap_err();
            assert!(matches!(refused, StoreError::Invalid { field: "embedding", .. }), "{refused}");
            let refused = kv.search(KvQuery::all().similar_to("b"));
            assert!(
                count == 2 || matches!(refused, Err(StoreError::Invalid { field: "embedding", .. })),
                "{refused:?}"
            );
        }
        *model.returns.lock().unwrap() = None;
        let found = kv.search(KvQuery::all().similar_to("a")).unwrap();
        assert_eq!(found[0].value.get("text"), Some(&Value::from("a")), "nothing was written");
    });
}

#[test]
fn vectors_of_other_dimensions_are_named() {
    struct Short;
    impl Embedder for Short {
        fn dims(&self) -> usize {
            2
        }

        fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, EmbedderError> {
            Ok(vec![vec![1.0, 0.0]; texts.len()])
        }
    }
    on_both(|store| {
        indexed(store, &Letters::default()).put(["n"], "1", text("a")).unwrap();
        let short = store.kv().with_index(KvIndex::new(Short));
        let refused = short.search(KvQuery::all().similar_to("a")).unwrap_err().to_string();
        assert!(refused.contains("26 dimensions") && refused.contains("has 2"), "{refused}");
        assert!(short.search(KvQuery::new(["other"]).similar_to("a")).unwrap().is_empty());
    });
}

#[test]
fn hostile_texts_and_keys_are_stored_or_refused() {
    on_both(|store| {
        let kv = indexed(store, &Letters::default());
        let long = "a".repeat(65_536);
        for key in ["", "'; DROP TABLE kv_vector; --", "$", "[*]", "\u{202e}x", "a\u{0}b"] {
            kv.put(["n"], key, text(key)).unwrap();
        }
        assert!(matches!(kv.put(["n"], &*long, text("a")), Err(StoreError::Invalid { field: "kv key", .. })));
        kv.put(["n"], "long", text(&long)).unwrap();
        let found = kv.search(KvQuery::new(["n"]).similar_to(&long)).unwrap();
        assert_eq!((found.len(), &*found[0].key), (7, "long"));
        let many = Value::from(serde_json::json!(vec!["a"; 2_000]));
        let many = KvWrite::put(["n"], "many", Map::from_iter([("l".to_owned(), many)])).unwrap();
        let refused = kv.write_all([many.fields(["l[*]"]).unwrap()]).unwrap_err();
        assert!(matches!(refused, StoreError::Invalid { field: "kv vectors", .. }), "{refused}");
    });
}

#[test]
fn a_read_prolongs_what_was_put_with_a_lifetime() {
    on_both(|store| {
        let hour = Duration::from_secs(3_600);
        let lifetimes = KvLifetimes::new().lifetime(Some(hour));
        let kv = store.kv().with_lifetimes(lifetimes.prolong_on_read(true));
        kv.put(["n"], "1", Map::new()).unwrap();
        kv.write_all([KvWrite::put(["n"], "2", Map::new()).unwrap().lifetime(None)]).unwrap();
        store.kv().put_for(["n"], "3", Map::new(), hour).unwrap();
        let expiry = |key: &str| store.kv().get(["n"], key).unwrap().unwrap().expires_at;
        let before = [expiry("1"), expiry("2"), expiry("3")];
        assert!(before[0].is_some() && before[1].is_none() && before[2].is_some());
        let then = store.now();
        while store.now() <= then {
            std::thread::yield_now();
        }
        assert_eq!(kv.search(KvQuery::all()).unwrap().len(), 3);
        assert!(expiry("1") > before[0], "prolonged");
        assert_eq!(
            (expiry("2"), expiry("3")),
            (before[1], before[2]),
            "neither of these has a lifetime that is stored"
        );
        let prolonged = expiry("1");
        let calm = store.kv().with_lifetimes(lifetimes);
        assert!(calm.get(["n"], "1").unwrap().is_some());
        assert_eq!(expiry("1"), prolonged, "a handle that does not prolong");
    });
}
