//! An erasure leaves no byte in the file.

use super::erase_slices::{hide, step};
use super::*;
use crate::limits::NAME_USERS_MAX;
use crate::store::StoreError;
use crate::store::batch::NewTimer;
use crate::store::log::Erasure;
use crate::store::sqlite::remove::erase::EraseStep;

/// Commits a checkpoint whose values hold `marker` in every place that can hold a text.
fn marked(bench: &mut Bench, t: &ThreadId, marker: &str) -> NewCheckpoint {
    let a = task(1, "a");
    let large = plain(marker.repeat(400).as_bytes());
    let first = NewCheckpoint {
        tasks: vec![a.clone()],
        metadata: Some(format!("{{\"m\":\"{marker}\"}}")),
        changes: vec![
            list(1, vec![put(0, &marker.repeat(5)), put(1, &marker.repeat(300))]),
            value("x", 1, large.clone()),
            value("y", 1, plain(marker.as_bytes())),
        ],
        ..checkpoint(bench.ids.checkpoint(Timestamp::default(), 0, None))
    };
    let mut batch = Batch::new(t.clone(), Namespace::root(), None);
    batch.checkpoints.push(first.clone());
    bench.store.commit(&batch).unwrap();
    for _ in 0..2 {
        let mut batch = Batch::new(t.clone(), Namespace::root(), Some(first.id));
        let answer = write(-4, "given", WriteValue::One(large.clone()));
        let result = write(0, "z", WriteValue::One(large.clone()));
        let called = writes(first.id, &task(9, marker), vec![result.clone()]);
        batch.writes = vec![writes(first.id, &a, vec![answer, result]), called];
        let wake_at = Some(Timestamp::from_micros(7));
        batch.timers = vec![NewTimer { checkpoint: first.id, task: a.id, wake_at }];
        bench.store.commit(&batch).unwrap();
    }
    first
}

/// Returns how often a text stands in the file and in what SQLite keeps beside it.
fn found(bench: &Bench, text: &str) -> usize {
    let files = std::fs::read_dir(bench.folder.path()).unwrap();
    let bytes: Vec<u8> = files.flat_map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    bytes.windows(text.len()).filter(|window| *window == text.as_bytes()).count()
}

#[test]
fn the_bytes_of_a_deleted_thread_are_not_in_the_file() {
    let mut bench = Bench::new();
    let (secret, kept) = (thread("the secret thread"), thread("kept"));
    marked(&mut bench, &secret, "s3cr3t-text-");
    let stays = marked(&mut bench, &kept, "plain-text-");
    let path: Namespace = Namespace::new("inner:1").unwrap();
    let mut inside = Batch::new(secret.clone(), path, None);
    inside.checkpoints.push(NewCheckpoint {
        tasks: vec![task(9, "s3cr3t-text-node")],
        changes: vec![
            value("x", 1, plain("s3cr3t-text-".repeat(900).as_bytes())),
            value("s3cr3t-text-channel", 1, plain(b"1")),
        ],
        ..checkpoint(bench.ids.checkpoint(Timestamp::default(), 0, None))
    });
    bench.store.commit(&inside).unwrap();
    bench.store.checkpoint_wal().unwrap();
    assert!(found(&bench, "s3cr3t-text-") > 1_000 && found(&bench, "the secret thread") > 0);
    assert_eq!(bench.store.delete_threads(std::slice::from_ref(&secret)).unwrap(), Erasure::Erased);
    assert_eq!((found(&bench, "s3cr3t-text-"), found(&bench, "the secret thread")), (0, 0));
    assert!(found(&bench, "plain-text-") > 700);
    assert_eq!(bench.check(), Vec::<String>::new());
    assert_eq!(bench.items(&at(&kept, stays.id), ItemRange::All).len(), 2);
    let conn = raw(&bench.path());
    let rows = |table: &str| -> i64 {
        conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    let left: Vec<i64> = ["thread", "namespace", "branch", "checkpoint", "timer", "tombstone"].map(rows).to_vec();
    assert_eq!(left, [1, 1, 1, 1, 1, 0]);
}

/// Commits a thread with so many checkpoints that one call does not reclaim them all.
fn large(bench: &mut Bench, t: &ThreadId, marker: &str) {
    let mut head = None;
    for round in 0..12_u64 {
        let mut batch = Batch::new(t.clone(), Namespace::root(), head);
        for n in round * 250..(round + 1) * 250 {
            let id = bench.ids.checkpoint(Timestamp::default(), 0, head.as_ref());
            let changes = vec![list(n + 1, vec![put(n, &marker.repeat(9))])];
            batch.checkpoints.push(NewCheckpoint { parent: head.map(Parent::Local), changes, ..checkpoint(id) });
            head = Some(id);
        }
        bench.store.commit(&batch).unwrap();
    }
}

#[test]
fn a_reader_delays_an_erasure_which_is_told() {
    let mut bench = Bench::new();
    marked(&mut bench, &thread("secret"), "s3cr3t-text-");
    marked(&mut bench, &thread("other"), "plain-text-");
    let reader = raw(&bench.path());
    reader.execute_batch("BEGIN; SELECT count(*) FROM thread").unwrap();
    assert_eq!(reader.query_row("SELECT count(*) FROM thread", [], |row| row.get::<_, i64>(0)).unwrap(), 2);
    let erasure = bench.store.delete_threads(&[thread("secret")]).unwrap();
    assert_eq!(erasure, Erasure::ErasePending { threads: 1 });
    let report = bench.store.check().unwrap();
    assert_eq!((report.erasing, report.threads, report.problems), (1, 1, Vec::new()));
    assert_eq!(bench.store.stats().unwrap().erasing, 1);
    assert!(found(&bench, "s3cr3t-text-") > 0, "the log holds the pages that the reader reads");
    reader.execute_batch("COMMIT").unwrap();
    drop(reader);
    assert_eq!(bench.store.reclaim().unwrap(), Erasure::Erased);
    assert_eq!(found(&bench, "s3cr3t-text-"), 0);
    assert_eq!(bench.store.check().unwrap().erasing, 0);
}

#[test]
fn an_erasure_continues_after_a_crash() {
    let mut bench = Bench::new();
    let t = thread("the secret thread");
    large(&mut bench, &t, "s3cr3t-text-");
    marked(&mut bench, &thread("stays"), "plain-text-");
    hide(&bench, vec![t.clone()]);
    // The state of the file at a kill: a copy, made while a reader holds both files as they are, before each slice and
    // at the end.
    let (mut copies, mut pending) = (Vec::new(), true);
    while pending {
        let crashed = tempfile::tempdir().unwrap();
        let reader = raw(&bench.path());
        reader.execute_batch("BEGIN IMMEDIATE").unwrap();
        for name in ["", "-wal"] {
            let of = |folder: &std::path::Path| folder.join(format!("x.db{name}"));
            _ = std::fs::copy(format!("{}{name}", bench.path().display()), of(crashed.path()));
        }
        pending = reader.query_row("SELECT count(*) FROM tombstone", [], |row| row.get::<_, i64>(0)).unwrap() > 0;
        reader.execute_batch("ROLLBACK").unwrap();
        drop(reader);
        copies.push(crashed);
        if pending && step(&bench, EraseStep::Reclaim).stored.is_empty() {
            assert_eq!(bench.store.reclaim().unwrap(), Erasure::Erased);
        }
    }
    assert!(copies.len() > 2, "the rows are reclaimed in slices");
    // The ends are in the share.
    let last = copies.pop();
    for crashed in copies.into_iter().step_by(cases(5, 1)).chain(last) {
        let store = open(&crashed.path().join("x.db"));
        let report = store.check().unwrap();
        assert_eq!((report.threads, report.problems), (1, Vec::new()));
        assert!(store.head(&t, &Namespace::root()).unwrap().is_none());
        assert_eq!(store.reclaim().unwrap(), Erasure::Erased);
        let files = std::fs::read_dir(crashed.path()).unwrap();
        let bytes: Vec<u8> = files.flat_map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
        assert!(!bytes.windows(12).any(|window| window == b"s3cr3t-text-"));
        let report = store.check().unwrap();
        assert_eq!((report.erasing, report.problems), (0, Vec::new()));
    }
}

#[test]
fn the_background_reclaims_a_thread_that_is_too_large_for_one_call() {
    let mut bench = Bench::new();
    let t = thread("the secret thread");
    large(&mut bench, &t, "s3cr3t-text-");
    assert_eq!(bench.store.delete_threads(&[t]).unwrap(), Erasure::ErasePending { threads: 1 });
    until("the background erases it", || bench.store.stats().unwrap().erasing == 0);
    assert_eq!(found(&bench, "s3cr3t-text-"), 0);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn a_name_goes_with_the_last_thread_that_used_it() {
    let mut bench = Bench::new();
    let other = open(&bench.path());
    let names = |bench: &Bench| -> i64 {
        raw(&bench.path()).query_row("SELECT count(*) FROM name WHERE text = 'x'", [], |row| row.get(0)).unwrap()
    };
    let threads: Vec<ThreadId> = (0..NAME_USERS_MAX).map(|n| thread(&format!("t{n}"))).collect();
    for t in &threads {
        bench.add(t, None, vec![value("x", 1, plain(b"one"))]);
    }
    for t in &threads {
        assert_eq!(names(&bench), 1);
        assert_eq!(other.delete_threads(std::slice::from_ref(t)).unwrap(), Erasure::Erased);
    }
    assert_eq!(names(&bench), 0);
    assert_eq!(bench.check(), Vec::<String>::new());
    // The first handle has cached the id of the name, which another handle erased.
    let id = bench.add(&threads[0], None, vec![value("x", 1, plain(b"anew"))]);
    assert_eq!(names(&bench), 1);
    assert_eq!(bench.check(), Vec::<String>::new());
    for store in [&bench.store, &other] {
        assert_eq!(store.state(&at(&threads[0], id)).unwrap().channels.len(), 1);
    }
    // Past a number of users, a name stays.
    for t in threads.iter().chain(&[thread("one more"), thread("two more")]).skip(1) {
        bench.add(t, None, vec![value("x", 1, plain(b"one"))]);
    }
    for t in threads.iter().chain(&[thread("one more")]) {
        assert_eq!(bench.store.delete_threads(std::slice::from_ref(t)).unwrap(), Erasure::Erased);
    }
    assert_eq!(names(&bench), 1);
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn ids_of_rows_are_used_once() {
    let mut bench = Bench::new();
    let (stays, goes) = (thread("stays"), thread("goes"));
    let text = "a text that is not inline in a row";
    bench.add(&stays, None, vec![list(1, vec![put(0, text)])]);
    let greatest = |bench: &Bench| -> Vec<i64> {
        let max = |of: &&str| raw(&bench.path()).query_row(of, [], |row| row.get::<_, i64>(0)).unwrap();
        [
            "SELECT max(id) FROM thread",
            "SELECT max(id) FROM namespace",
            "SELECT max(id) FROM branch",
            "SELECT max(seq) FROM checkpoint",
            "SELECT max(id) FROM payload",
            "SELECT max(id) FROM blob",
            "SELECT max(id) FROM name",
        ]
        .iter()
        .map(max)
        .collect()
    };
    let add = |bench: &mut Bench, n: u64| {
        bench.add(&goes, None, vec![list(1, vec![put(0, text)]), value(&format!("v{n}"), 1, plain(&[n as u8; 2_000]))]);
    };
    add(&mut bench, 1);
    for n in 2..5 {
        let before = greatest(&bench);
        assert_eq!(bench.store.delete_threads(std::slice::from_ref(&goes)).unwrap(), Erasure::Erased);
        add(&mut bench, n);
        let after = greatest(&bench);
        assert!(before.iter().zip(&after).all(|(before, after)| before < after), "{before:?} {after:?}");
        assert_eq!(bench.check(), Vec::<String>::new());
    }
}

#[test]
fn a_replaced_answer_leaves_nothing_behind() {
    let mut bench = Bench::new();
    let t = thread("a");
    let first = marked(&mut bench, &t, "text-");
    for text in ["first answer ", "second answer ", "third answer "] {
        let mut batch = Batch::new(t.clone(), Namespace::root(), Some(first.id));
        let answer = write(-4, "given", WriteValue::One(plain(text.repeat(300).as_bytes())));
        batch.writes = vec![writes(first.id, &task(1, "a"), vec![answer])];
        bench.store.commit(&batch).unwrap();
    }
    bench.store.checkpoint_wal().unwrap();
    assert_eq!(
        (found(&bench, "first answer "), found(&bench, "second answer "), found(&bench, "third answer ")),
        (0, 0, 300)
    );
    assert_eq!(bench.check(), Vec::<String>::new());
}

#[test]
fn another_handle_forgets_what_was_erased() {
    let mut bench = Bench::new();
    let other = open(&bench.path());
    let t = thread("a");
    let id = bench.add(&t, None, vec![value("x", 1, plain(b"one"))]);
    let id = bench.add(&t, Some(id), vec![value("x", 2, plain(b"two"))]);
    assert_eq!(other.delete_threads(std::slice::from_ref(&t)).unwrap(), Erasure::Erased);
    // The first handle knows the number of the namespace, which belongs to another thread now.
    let mut batch = Batch::new(thread("b"), Namespace::root(), None);
    batch.checkpoints.push(checkpoint(bench.ids.checkpoint(Timestamp::default(), 0, None)));
    other.commit(&batch).unwrap();
    let mut stale = Batch::new(t.clone(), Namespace::root(), Some(id));
    let next = bench.ids.checkpoint(Timestamp::default(), 0, Some(&id));
    stale.checkpoints.push(NewCheckpoint { parent: Some(Parent::Local(id)), ..checkpoint(next) });
    assert!(matches!(bench.store.commit(&stale), Err(StoreError::Conflict { found: None, .. })));
    bench.add(&t, None, vec![value("x", 1, plain(b"new"))]);
    assert_eq!(bench.check(), Vec::<String>::new());
    assert_eq!(bench.store.threads(None, 9).unwrap().len(), 2);
}

#[test]
fn rows_of_the_log_go_with_an_erasure_alone() {
    let mut bench = Bench::new();
    marked(&mut bench, &thread("a"), "text-");
    let conn = raw(&bench.path());
    for table in ["name", "thread", "namespace", "branch", "checkpoint", "version", "payload", "blob", "item"] {
        assert!(conn.execute(&format!("DELETE FROM {table}"), []).is_err(), "{table}");
    }
    assert!(conn.execute("DELETE FROM write WHERE idx = 0", []).is_err());
    conn.execute("INSERT INTO tombstone (thread, state) VALUES (0, 2)", []).unwrap();
    assert!(conn.execute("UPDATE name SET text = 'x'", []).is_err(), "an erasure updates nothing");
    assert!(!bench.check().is_empty(), "an erasure that never ended is found");
}

#[test]
fn every_column_of_a_timer_is_covered_by_a_sum() {
    for harm in [
        "UPDATE timer SET namespace = 9",
        "UPDATE timer SET task = zeroblob(16)",
        "UPDATE timer SET task = X'00'",
        "UPDATE timer SET checkpoint = 9",
        "UPDATE timer SET wake_at = 8",
        "UPDATE timer SET xxh3 = 0",
    ] {
        let mut bench = Bench::new();
        marked(&mut bench, &thread("a"), "text-");
        assert_eq!(bench.check(), Vec::<String>::new());
        raw(&bench.path()).execute_batch(harm).unwrap();
        assert!(matches!(bench.store.timers(None, 9), Err(StoreError::Corrupt { .. })), "{harm}");
        assert!(!bench.check().is_empty(), "{harm}");
    }
    let mut bench = Bench::new();
    let first = marked(&mut bench, &thread("a"), "text-");
    let timer = raw(&bench.path()).query_row("SELECT thread, checkpoint, task, wake_at FROM v_timers", [], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, [u8; 16]>(1)?, row.get::<_, [u8; 16]>(2)?, row.get::<_, String>(3)?))
    });
    let (checkpoint, task) = (*first.id.as_bytes(), *task(1, "a").id.as_bytes());
    assert_eq!(timer.unwrap(), ("a".into(), checkpoint, task, "1970-01-01T00:00:00.000007Z".into()));
}

#[test]
fn a_thread_that_exists_is_not_erased_for_a_tombstone() {
    let mut bench = Bench::new();
    let t = thread("a");
    marked(&mut bench, &t, "text-");
    marked(&mut bench, &thread("b"), "other-");
    let before = bench.store.threads(None, 10).unwrap();
    raw(&bench.path()).execute_batch("INSERT INTO tombstone (thread, state) SELECT id, 0 FROM thread").unwrap();
    let error = bench.store.reclaim().unwrap_err();
    assert!(error.to_string().contains("its thread is not deleted"), "{error}");
    assert_eq!(bench.store.threads(None, 10).unwrap(), before);
    assert!(bench.check().iter().any(|problem| problem.starts_with("I17 tombstone")));
}

#[test]
fn a_damaged_thread_can_be_deleted() {
    let mut bench = Bench::new();
    marked(&mut bench, &thread("a"), "text-");
    let conn = without_triggers(&bench.path());
    conn.execute_batch("DELETE FROM payload; UPDATE timer SET xxh3 = 0").unwrap();
    drop(conn);
    assert!(!bench.check().is_empty());
    assert_eq!(bench.store.delete_threads(&[thread("a")]).unwrap(), Erasure::Erased);
    let left = bench.check();
    assert!(left.iter().all(|problem| problem.starts_with("I17 blob")), "{left:?}");
}
