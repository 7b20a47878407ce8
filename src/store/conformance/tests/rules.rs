//! Operations, references, groups, tables and searches that are refused before a backend looks at its log.

use super::on_memory;
use crate::store::conformance::build::*;
use crate::store::search::filter::Search;
use crate::store::threads::ThreadCursor;
use crate::store::{CacheKey, MemoryBackend};

#[test]
fn an_operation_that_makes_no_sense_is_refused() {
    let backend = MemoryBackend::new();
    let a = root_of(&backend, "a");
    let back = || moves(&a, Some(2), Some(1));
    let refuses = |changes: Vec<OperationChange>, field: &str| {
        assert_eq!(refusal(operation(10, changes).validate()), field);
    };
    let mut actor = operation(10, vec![back()]);
    actor.actor = Some("a".repeat(257));
    assert_eq!(refusal(actor.validate()), "operation.actor");
    let labels = ["[", "{}", "[1]", r#"["b","a"]"#, r#"["a","a"]"#].map(|text| ("labels", text));
    for (name, text) in labels.into_iter().chain([("trashed", "soon"), ("trashed", "9223372036854775808")]) {
        refuses(vec![fact(&a, name, None, Some(text))], "fact");
    }
    let large = "x".repeat((64 << 10) + 1);
    let facts = [("", "x"), ("a\0", "x"), ("x", &large)].map(|(name, text)| vec![fact(&a, name, None, Some(text))]);
    for name in ["", "a\0b", &"n".repeat(257)] {
        refuses(vec![names(&a, name, None, Some(1))], "branch.name");
    }
    // A subgraph moves with its thread.
    let heads = [vec![moves(&a, Some(1), None)], vec![moves(&a.inside("sub"), Some(4), None)], vec![back(), back()]];
    for wrong in facts.into_iter().chain(heads).chain([vec![]]) {
        let refused = operation(11, wrong).validate();
        assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
    }
}

#[test]
fn references_and_deltas_that_make_no_sense_are_refused() {
    on_memory(|backend| {
        let place = root_of(backend, "t");
        place.add(begin(1).items("list", 1, vec![put(0, "0")]).tasks(&["a"]));
        let of = |changes| place.batch(Some(1), [on(3, 1).items("list", 2, changes)]);
        let misplaced = ItemChange { position: 3, ..place.reference(1) };
        let ranged = vec![place.reference(1), delete_range(0, 3)];
        for changes in [ranged, vec![place.reference(1), place.reference(1)], vec![misplaced]] {
            refuses(backend, [(of(changes), "item.reference")]);
        }
        let mut good = ListDelta::new(place.list_ref(1, "list"));
        (good.removed, good.positions) = (vec![0..1, 3..6], vec![2, 7, 1 << 40]);
        good.items = ["two", "seven", "far"].map(bytes).into();
        let bad = |index, change: fn(&mut ListDelta), field: &str| {
            let mut delta = good.clone();
            change(&mut delta);
            let write = NewWrite::new(index, "list", WriteValue::Delta(Box::new(delta)));
            refuses(backend, [(place.pending(1, writes(1, 1, vec![write])), field)]);
        };
        bad(0, |delta| delta.positions = vec![2, 7], "delta.positions");
        bad(0, |delta| delta.positions = vec![7, 2, 9], "delta.positions");
        bad(0, |delta| delta.positions = vec![2, 7, u64::MAX], "delta.positions");
        bad(0, |delta| delta.removed = vec![3..5, 5..6], "delta.positions");
        bad(-1, |_| (), "write.delta");
    });
}

#[test]
fn groups_and_timers_that_make_no_sense_are_refused() {
    on_memory(|backend| {
        let place = root_of(backend, "a");
        place.add(begin(1).tasks(&["x"]));
        let group = LeaseGroup::new;
        for groups in [vec![group("g"); 17], vec![group("")], vec![group("g").live_max(0)]] {
            let claim = NewLease::claim(LeaseOwner::new([1; 16]), moment(1), moment(2)).in_groups(groups);
            refuses(backend, [(Batch::of_lease(place.thread.clone(), claim), "lease group")]);
        }
        let good = || {
            let timers = vec![NewTimer::new(id(1), task(1), Some(moment(5)))];
            Batch { timers, ..place.pending(1, writes(1, 1, vec![write(-3, "waits", "an interrupt")])) }
        };
        let alone = Batch { writes: Vec::new(), ..good() };
        let of_another = Batch { timers: vec![NewTimer::new(id(2), task(1), None)], ..good() };
        let with_checkpoint = Batch { checkpoints: vec![on(2, 1).0], ..good() };
        refuses(backend, [(alone, "batch"), (of_another, "batch.timers"), (with_checkpoint, "batch.timers")]);
    });
}

#[test]
fn changes_of_the_tables_past_a_limit_are_refused() {
    let value = |bytes| Encoded { codec: Codec::MsgPack, bytes: vec![0; bytes] };
    let namespace = || KvNamespace::new(["a"]).expect("a namespace");
    let put = |key: usize, bytes| {
        let (namespace, key, now) = (namespace(), "k".repeat(key), moment(1));
        KvChange::Put { namespace, key, value: value(bytes), now, expires_at: None }
    };
    let delete = KvChange::Delete { namespace: namespace(), key: "k".repeat(KV_KEY_BYTES_MAX + 1) };
    let vectors = |values: Vec<f32>| {
        let vectors = vec![KvVector::new("text", values)];
        KvChange::SetVectors { namespace: namespace(), key: "k".into(), vectors }
    };
    for (changes, field) in [
        (vec![put(1, 0), put(KV_KEY_BYTES_MAX + 1, 0)], "kv key"),
        (vec![put(1, 0), delete], "kv key"),
        (vec![put(1, 0), put(1, VALUE_BYTES_MAX + 1)], "value bytes"),
        (vec![put(1, 0); KV_CHANGES_MAX + 1], "kv changes"),
        (vec![vectors(vec![f32::NAN])], "kv vector"),
        (vec![vectors(vec![])], "kv vector"),
        (vec![vectors(vec![0.0; 20_000])], "kv vector dimensions"),
    ] {
        assert_eq!(refusal(KvChange::validate(&changes)), field);
    }
    let cache = |labels: Vec<&str>, key: usize| {
        let (key, now) = (CacheKey::new(labels, "k".repeat(key)), moment(1));
        CacheChange::Put { key, value: value(0), now, expires_at: None }
    };
    for (change, field) in [
        (cache(vec!["w"], KV_KEY_BYTES_MAX + 1), "cache key"),
        (cache(vec!["x"; KV_LABELS_MAX + 1], 0), "cache labels"),
        (CacheChange::ClearNamespace { namespace: vec!["a\0".into()] }, "cache label"),
    ] {
        assert_eq!(refusal(CacheChange::validate(&[change])), field);
    }
}

#[test]
fn a_search_and_a_cursor_that_make_no_sense_are_refused() {
    let x = || SearchQuery::new("x");
    for text in [String::new(), " \t".into(), "x".repeat(1_025), "é".repeat(64 << 10)] {
        assert_eq!(refusal(Search::of(&SearchQuery::new(text))), "text of a search");
    }
    for (query, field) in [
        (x().limit(0), "limit of a search"),
        (x().limit(1_001), "limit of a search"),
        (x().role("r".repeat(64 << 10)), "role of a search"),
        (x().node("n".repeat(257)), "node of a search"),
        (x().channel("c".repeat(257)), "channel of a search"),
    ] {
        assert_eq!(refusal(Search::of(&query)), field);
    }
    for thread in [String::new(), "a\0b".into(), "t".repeat(64 << 10)] {
        assert!(matches!(Search::of(&x().thread(&thread)), Err(StoreError::Id(_))));
    }
    for damaged in ["", "7", "7.0", "x.0.a", "7.x.a", "7.0."] {
        assert_eq!(refusal(damaged.parse::<ThreadCursor>()), "cursor", "{damaged:?}");
    }
}
