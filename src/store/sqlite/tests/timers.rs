//! Timers whose rows are damaged or gone: noticed where they are read, by a check, and made anew by a recovery.

use super::*;
use crate::store::batch::NewTimer;
use crate::store::check::{Finding, Invariant};
use crate::store::mark::WriteMark;
use crate::store::record::TimerRecord;
use crate::store::{Store, StoreError};

/// A closed store in which two tasks sleep, and its timers.
fn asleep() -> (TempDir, PathBuf, Vec<TimerRecord>) {
    let mut bench = Bench::new();
    let (of, tasks) = (thread("a"), [task(1, "a"), task(2, "b")]);
    let id = bench.ids.checkpoint(Timestamp::from_micros(1), 0, None);
    let mut batch = Batch::new(of.clone(), Namespace::root(), None);
    batch.checkpoints.push(NewCheckpoint { tasks: tasks.to_vec(), ..checkpoint(id) });
    bench.store.commit(&batch).unwrap();
    for (wake_at, task) in (1..).zip(&tasks) {
        let mark = WriteMark::WakesAt(Timestamp::from_micros(wake_at));
        let asleep = write(-3, "waits", WriteValue::One(plain(&[1]))).with_mark(Some(mark));
        let mut batch = Batch::new(of.clone(), Namespace::root(), Some(id));
        batch.writes.push(writes(id, task, vec![asleep]));
        batch.timers.push(NewTimer::new(id, task.id, Some(Timestamp::from_micros(wake_at))));
        bench.store.commit(&batch).unwrap();
    }
    assert_eq!(bench.check(), Vec::<String>::new());
    let (path, timers) = (bench.path(), bench.store.timers(None, 9).unwrap());
    assert_eq!(timers.len(), 2);
    drop(bench.store);
    (bench.folder, path, timers)
}

/// Changes a file as an editor does that lets any type into any column of `timer`.
fn harm(path: &Path, sql: &str) {
    let strict = "UPDATE sqlite_schema SET sql = replace(sql, ') STRICT, WITHOUT', ') WITHOUT') WHERE name = 'timer'";
    let restored = "UPDATE sqlite_schema SET sql = replace(sql, ') WITHOUT', ') STRICT, WITHOUT') WHERE name = 'timer'";
    for change in [strict, sql, restored] {
        let conn = without_triggers(path);
        conn.execute_batch("PRAGMA writable_schema = ON").unwrap();
        assert!(conn.execute(change, []).unwrap() > 0, "{change}");
    }
}

fn of_timers(findings: &[Finding]) -> usize {
    findings.iter().filter(|finding| finding.invariant == Invariant::Timers).count()
}

#[test]
fn a_row_that_is_gone_is_noticed_and_made_anew() {
    for (gone, count) in [("DELETE FROM timer WHERE wake_at = 1", 1), ("DELETE FROM timer", 2)] {
        let (folder, path, timers) = asleep();
        harm(&path, gone);
        let store = open(&path);
        let error = store.timers_of(&thread("a"), &Namespace::root()).expect_err(gone);
        assert!(error.to_string().contains("the task sleeps without a timer"), "{error}");
        let findings = store.check().unwrap().problems;
        drop(store);
        assert_eq!((findings.len(), of_timers(&findings)), (count, count), "{findings:?}");
        let to = folder.path().join("recovered.db");
        let report = Store::recover(&path, &to).unwrap();
        assert!(report.is_complete() && report.timers == 2, "{report:?}");
        let recovered = open(&to);
        assert_eq!(recovered.timers(None, 9).unwrap(), timers);
        assert_eq!(recovered.check().unwrap().problems, []);
    }
}

#[test]
fn a_row_that_cannot_be_read_is_an_error_and_is_made_anew() {
    let harms = [
        ("xxh3", "X'00'"),
        ("xxh3", "'text'"),
        ("xxh3", "xxh3 + 1"),
        ("wake_at", "X'00'"),
        ("wake_at", "'text'"),
        ("wake_at", "1.5"),
        ("wake_at", "0"),
        ("task", "'text'"),
        ("task", "X'00'"),
        ("checkpoint", "X'00'"),
        ("namespace", "X'00'"),
        ("namespace", "namespace + 1"),
    ];
    for (column, value) in harms.into_iter().step_by(cases(3, 1)) {
        let (folder, path, timers) = asleep();
        harm(&path, &format!("UPDATE timer SET {column} = {value} WHERE wake_at = 1"));
        let store = open(&path);
        let error = store.timers(None, 9).expect_err(value);
        assert!(matches!(error, StoreError::Corrupt { .. }), "{column} {value}: {error}");
        let error = store.timers_of(&thread("a"), &Namespace::root()).expect_err(value);
        assert!(matches!(error, StoreError::Corrupt { .. }), "{column} {value}: {error}");
        let findings = store.check().unwrap().problems;
        assert!(of_timers(&findings) > 0, "{column} {value}: {findings:?}");
        drop(store);
        let to = folder.path().join("recovered.db");
        let report = Store::recover(&path, &to).unwrap();
        assert_eq!((report.timers, report.lost_count), (2, 0), "{column} {value}: {report:?}");
        assert_eq!(open(&to).timers(None, 9).unwrap(), timers, "{column} {value}");
    }
}
