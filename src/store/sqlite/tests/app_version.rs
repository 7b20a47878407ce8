//! The version of the application that wrote a checkpoint.

use super::*;
use crate::store::{Store, StoreError};
use std::sync::Arc;

#[test]
fn a_checkpoint_names_the_version_of_the_application_that_wrote_it() {
    let folder = tempfile::tempdir().unwrap();
    let (path, to) = (folder.path().join("a.db"), folder.path().join("b.db"));
    let open = |version: Option<&str>| {
        let options = OpenOptions::new();
        let options = if let Some(version) = version { options.app_version(version).unwrap() } else { options };
        Store::open_with(&path, options).unwrap()
    };
    let t = thread("a");
    let mut head = None;
    // The version of the options, none, and one that the checkpoint states itself.
    for (n, (of_options, of_checkpoint)) in
        [(Some("1.4.0"), None), (None, None), (Some("1.4.0"), Some("0.9"))].into_iter().enumerate()
    {
        let mut batch = Batch::new(t.clone(), Namespace::root(), head);
        let at = Timestamp::from_micros(n as i64 * 10 + 1);
        let mut new =
            NewCheckpoint::new(CheckpointId::first_at(at), head.map(Parent::Local), n as i64, Source::Update, at);
        new.app_version = of_checkpoint.map(Arc::from);
        head = Some(new.id);
        batch.checkpoints.push(new);
        open(of_options).commit(&batch).unwrap();
    }
    Store::recover(&path, &to).unwrap();
    let expected = [Some("1.4.0".to_owned()), None, Some("0.9".to_owned())];
    for path in [&path, &to] {
        let store = Store::open(path).unwrap();
        let history: Vec<_> = store.thread("a").unwrap().history().unwrap().map(Result::unwrap).collect();
        let versions = history.iter().rev().map(|snapshot| snapshot.record().app_version.as_deref());
        assert_eq!(versions.map(|version| version.map(str::to_owned)).collect::<Vec<_>>(), expected);
        assert_eq!(store.check().unwrap().problems, []);
        let conn = raw(path);
        let mut shown = conn.prepare("SELECT app_version FROM v_checkpoints ORDER BY seq").unwrap();
        let shown: Vec<Option<String>> = shown.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        assert_eq!(shown, expected);
    }
}

#[test]
fn a_version_that_was_changed_is_noticed_and_a_long_one_is_refused() {
    let mut bench = Bench::new();
    let t = thread("a");
    let id = bench.add(&t, None, Vec::new());
    without_triggers(&bench.path()).execute_batch("UPDATE checkpoint SET app_version = '2'").unwrap();
    let error = bench.store.checkpoint(&at(&t, id)).unwrap_err().to_string();
    assert!(error.contains("the check of the row does not match"), "{error}");
    let refused = OpenOptions::new().app_version("v".repeat(257)).unwrap_err();
    assert!(matches!(refused, StoreError::Invalid { field: "options.app_version", .. }), "{refused}");
    let mut batch = Batch::new(thread("b"), Namespace::root(), None);
    let mut new = checkpoint(bench.ids.checkpoint(Timestamp::default(), 0, None));
    new.app_version = Some("v".repeat(257).into());
    batch.checkpoints.push(new);
    assert!(matches!(bench.store.commit(&batch).unwrap_err(), StoreError::Invalid { .. }));
}
