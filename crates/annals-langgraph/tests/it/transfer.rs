//! Databases of LangGraph's SQLite saver, each with what LangGraph reads from it (`tests/parity/checkpoint`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use annals::store::Store;
use annals_langgraph::{
    Config, DatabaseImport, ListQuery, LostRace, NewValue, Saver, SaverCheckpoint, SaverVersion, StoredValue, Tuple,
    Typed, WHOLE, export_sqlite, import_sqlite,
};
use data_encoding::HEXLOWER;
use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

const DATABASES: [&str; 9] = [
    "async_saver",
    "chat_30_turns",
    "delta_channel",
    "encrypted_xor",
    "forks",
    "interrupts",
    "legacy_rows",
    "subgraphs",
    "value_types",
];

fn fixture(name: &str, ending: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/checkpoint").join(format!("{name}.{ending}"))
}

fn import(path: &Path, store: &Store) -> (Saver, DatabaseImport) {
    let saver = Saver::new(store.clone());
    let summary = import_sqlite(path, &saver, |_| {}).unwrap();
    assert_eq!(summary.refused_rows, []);
    (saver, summary)
}

/// Returns the tuples of a thread as LangGraph reads them, which has the key of `encrypted_xor`.
fn tuples(saver: &Saver, thread: &str) -> Vec<Json> {
    let tuples = saver.list(ListQuery::of_thread(thread)).unwrap();
    tuples.map(|tuple| decrypted(tuple.unwrap()).to_json()).collect()
}

fn decrypted(mut tuple: Tuple) -> Tuple {
    let clear = |value: &Typed| match value.tag.strip_suffix("+xor5a") {
        Some(tag) => Typed::new(tag.to_owned(), value.bytes.iter().map(|byte| byte ^ 0x5a).collect()),
        None => value.clone(),
    };
    for write in &mut tuple.writes {
        write.value = clear(&write.value);
    }
    if let [(name, StoredValue::Typed(whole))] = &*tuple.values
        && name == WHOLE
    {
        let id = tuple.config.checkpoint.as_deref().unwrap();
        let new = SaverCheckpoint::from_value(id, clear(whole), tuple.metadata.clone());
        let value = |(name, value)| match value {
            NewValue::Typed(value) => (name, StoredValue::Typed(value)),
            other => panic!("{name}: {other:?}"),
        };
        tuple.values = new.values.into_iter().map(value).collect();
        (tuple.v, tuple.ts, tuple.versions) = (new.v, new.ts, new.versions);
        (tuple.seen, tuple.updated, tuple.extra) = (new.seen, new.updated, new.extra);
    }
    tuple
}

/// Returns whether two documents are equal; one with the member `$sha256` stands for every value with that hash.
fn is_equal(found: &Json, expected: &Json) -> bool {
    match (found, expected) {
        (found, Json::Object(hash)) if hash.len() == 1 && hash.contains_key("$sha256") => {
            let hash = hash["$sha256"].as_str().unwrap();
            let digest = Sha256::digest(canonical(found));
            HEXLOWER.encode(&digest) == hash
        }
        (Json::Object(found), Json::Object(expected)) => {
            found.len() == expected.len()
                && expected.iter().all(|(name, value)| found.get(name).is_some_and(|found| is_equal(found, value)))
        }
        (Json::Array(found), Json::Array(expected)) => {
            found.len() == expected.len() && found.iter().zip(expected).all(|(found, value)| is_equal(found, value))
        }
        (found, expected) => found == expected,
    }
}

fn canonical(value: &Json) -> String {
    match value {
        Json::Object(map) => {
            let members: BTreeMap<&String, &Json> = map.iter().collect();
            let members =
                members.into_iter().map(|(name, value)| format!("{}:{}", Json::from(&**name), canonical(value)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        Json::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        value => value.to_string(),
    }
}

fn compare(saver: &Saver, name: &str) -> usize {
    let expected: Json = serde_json::from_slice(&fs::read(fixture(name, "json")).unwrap()).unwrap();
    let threads = expected["threads"].as_object().unwrap();
    for (thread, expected) in threads {
        let found = tuples(saver, thread);
        let expected = expected["tuples"].as_array().unwrap();
        assert_eq!(found.len(), expected.len(), "{name}: {thread}");
        for (found, expected) in found.iter().zip(expected) {
            for (member, value) in expected.as_object().unwrap() {
                assert!(
                    is_equal(&found[member], value),
                    "{name}: {thread}, {}, {member}:\n{}\n{value}",
                    expected["checkpoint_id"],
                    found[member]
                );
            }
        }
    }
    threads.values().map(|thread| thread["tuples"].as_array().unwrap().len()).sum()
}

#[test]
fn a_database_is_read_as_langgraph_reads_it_and_written_back() {
    let folder = tempfile::tempdir().unwrap();
    for name in DATABASES {
        let store = Store::open(folder.path().join(format!("{name}.db"))).unwrap();
        let (saver, summary) = import(&fixture(name, "sqlite"), &store);
        let count = compare(&saver, name) as u64;
        assert_eq!((summary.checkpoints, summary.checkpoints_unchanged), (count, 0), "{name}");
        assert_eq!(store.check().unwrap().problems, [], "{name}");

        // Once more: nothing is stored again.
        let checkpoints = store.check().unwrap().checkpoints;
        let (saver, again) = import(&fixture(name, "sqlite"), &store);
        assert_eq!((again.checkpoints, again.checkpoints_unchanged), (0, count), "{name}");
        assert_eq!(store.check().unwrap().checkpoints, checkpoints, "{name}");

        let exported = folder.path().join(format!("{name}.sqlite"));
        let threads = store.threads().unwrap();
        let written = export_sqlite(&saver, threads.iter().map(|of| of.id.as_str()), &exported, |_| {}).unwrap();
        assert_eq!((written.checkpoints, written.writes), (count, summary.writes), "{name}");
        let (saver, _) = import(&exported, &Store::memory());
        compare(&saver, name);
        assert!(export_sqlite(&saver, [], &exported, |_| {}).is_err(), "a file that is there stays");
        import(&exported, &Store::memory());
    }
}

#[test]
fn an_exported_version_names_one_value_over_all_branches() {
    let folder = tempfile::tempdir().unwrap();
    let saver = Saver::new(Store::open(folder.path().join("forks.db")).unwrap());
    let new = |number: u64, version: u64, seen: u64, value: u8| {
        let text = |number| (1..number).fold(saver.next_version(None), |v, _| saver.next_version(Some(&v)));
        let mut new =
            SaverCheckpoint::new(format!("1f000000-0000-6000-8000-{number:012}"), "2026-01-01T00:00:00+00:00");
        new.versions = vec![("n".into(), text(version))];
        new.seen = vec![("node".into(), vec![("n".into(), text(seen))])];
        new.values = vec![("n".into(), NewValue::Typed(Typed::msgpack(vec![value])))];
        new
    };
    let put = |at: &Config, new| saver.put(at, new, LostRace::Branch).unwrap();
    let first = put(&Config::new("t", ""), new(1, 1, 1, 1));
    let second = put(&first, new(2, 2, 1, 2));
    put(&second, new(3, 3, 2, 3));
    // Two branches: one from the first checkpoint, and one from that.
    let other = put(&first, new(4, 2, 1, 4));
    put(&other, new(5, 3, 2, 5));
    let third = put(&other, new(6, 3, 2, 6));
    put(&third, new(7, 4, 3, 7));

    let exported = folder.path().join("forks.sqlite");
    export_sqlite(&saver, ["t"], &exported, |_| {}).unwrap();
    let (again, _) = import(&exported, &Store::memory());
    let tuples: Vec<Tuple> = again.list(ListQuery::of_thread("t")).unwrap().map(Result::unwrap).collect();
    let mut values: BTreeMap<String, &StoredValue> = BTreeMap::new();
    for tuple in &tuples {
        let SaverVersion::Text(version) = &tuple.versions[0].1 else { panic!("{tuple:?}") };
        assert!(values.insert(version.clone(), &tuple.values[0].1).is_none(), "{version} comes twice");
        // The versions that the node has seen are those of the lineage.
        let parent = tuples.iter().find(|parent| Some(&parent.config) == tuple.parent.as_ref());
        if let Some(parent) = parent {
            assert_eq!(tuple.seen[0].1, parent.versions, "{:?}", tuple.config);
        }
    }
    assert_eq!(values.len(), 7);
    let plain = values.keys().filter(|version| version.len() == 34).count();
    assert_eq!(plain, 3, "the versions of the first branch are as they were: {values:?}");
}

#[test]
fn a_database_that_is_cut_is_read_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.sqlite");
    let mut refused = 0;
    for name in DATABASES {
        let whole = fs::read(fixture(name, "sqlite")).unwrap();
        for cut in 0..50 {
            fs::write(&path, &whole[..whole.len() * cut / 50]).unwrap();
            let store = Store::memory();
            match import_sqlite(&path, &Saver::new(store.clone()), |_| {}) {
                Ok(summary) => assert!(summary.checkpoints > 0 || summary.refused > 0, "{name}: {cut}: {summary:?}"),
                Err(error) => {
                    assert!(error.to_string().contains("cut.sqlite"), "{error}");
                    refused += 1;
                }
            }
            assert_eq!(store.check().unwrap().problems, [], "{name}: {cut}");
        }
    }
    assert!(refused > 0);
}
