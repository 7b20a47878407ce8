//! A backup is a whole store of one moment, made while others write.

use super::*;
use crate::store::StoreError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[test]
fn a_backup_holds_a_prefix_of_the_commits_that_are_made_meanwhile() {
    let mut bench = Bench::new();
    let first = bench.add(&thread("a"), None, vec![list(1, vec![put(0, "first")])]);
    let to = bench.folder.path().join("copy.db");
    let (stops, commits, store) = (AtomicBool::new(false), AtomicU64::new(0), &bench.store);
    let mut ids = IdSource::from_seed(9);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut head = first;
            for n in 2_u64.. {
                if stops.load(Ordering::SeqCst) {
                    return;
                }
                let id = ids.checkpoint(Timestamp::from_micros(n as i64), 0, Some(&head));
                let mut batch = Batch::new(thread("a"), Namespace::root(), Some(head));
                let changes = vec![list(n, vec![put(n - 1, &"x".repeat(500))])];
                batch.checkpoints.push(NewCheckpoint { changes, parent: Some(Parent::Local(head)), ..checkpoint(id) });
                store.commit(&batch).unwrap();
                head = id;
                commits.fetch_add(1, Ordering::SeqCst);
            }
        });
        for n in 0..5 {
            until("a commit is made before the next backup", || commits.load(Ordering::SeqCst) > n);
            store.backup(&bench.folder.path().join(format!("{n}.db"))).unwrap();
        }
        stops.store(true, Ordering::SeqCst);
    });
    store.backup(&to).unwrap();
    let counts: Vec<u64> = (0..5)
        .map(|n| bench.folder.path().join(format!("{n}.db")))
        .chain([to])
        .map(|path| {
            let copy = open(&path);
            let report = copy.check().unwrap();
            assert_eq!(report.problems, []);
            report.checkpoints
        })
        .collect();
    assert!(counts.is_sorted() && counts[0] > 1, "{counts:?}");
    assert_eq!(counts[5], store.check().unwrap().checkpoints);
}

#[test]
fn a_backup_replaces_nothing_and_leaves_nothing_behind_if_it_fails() {
    let mut bench = Bench::new();
    bench.add(&thread("a"), None, Vec::new());
    let taken = bench.folder.path().join("taken");
    std::fs::write(&taken, "mine").unwrap();
    let elsewhere = bench.folder.path().join("nowhere").join("x.db");
    for path in [&taken, &elsewhere, &bench.path()] {
        let error = bench.store.backup(path).unwrap_err();
        assert!(matches!(&error, StoreError::Invalid { field: "path of the backup", .. }), "{error}");
    }
    assert_eq!(std::fs::read(&taken).unwrap(), b"mine");
    let left = bench.folder.path().join("x2.db-unfinished");
    std::fs::write(&left, "of a call that was killed").unwrap();
    let error = bench.store.backup(&bench.folder.path().join("x2.db")).unwrap_err().to_string();
    assert!(error.contains("x2.db-unfinished: it exists already"), "{error}");
    std::fs::remove_file(&left).unwrap();
    let names = std::fs::read_dir(bench.folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().contains("unfinished")));
}

#[cfg(unix)]
#[test]
fn a_backup_is_for_its_owner_and_can_be_made_by_a_reader() {
    use std::os::unix::fs::PermissionsExt;
    let mut bench = Bench::new();
    let id = bench.add(&thread("a"), None, vec![list(1, vec![put(0, "stored")])]);
    let reader = SqliteBackend::open(&bench.path(), &options().read_only(true)).unwrap();
    let to = bench.folder.path().join("copy.db");
    reader.backup(&to).unwrap();
    assert_eq!(std::fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(open(&to).head_id(&thread("a"), &Namespace::root()).unwrap(), Some(id));
}
