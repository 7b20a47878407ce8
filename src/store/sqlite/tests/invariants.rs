//! Each invariant of the format: broken, and cited by the check.

use super::damage::damaged;
use super::side_tables::filled;
use super::*;
use crate::store::check::{Finding, Invariant};
use std::fs;

/// Statements that break one invariant, on the store of the tests of damage.
const HARMS: &[(Invariant, &str)] = &[
    (Invariant::Schema, "DROP TRIGGER checkpoint_no_update"),
    (Invariant::Blobs, "UPDATE blob SET hash = zeroblob(16)"),
    (Invariant::Payloads, "UPDATE payload SET kind = NULL WHERE text = 'zero'"),
    (Invariant::Branches, "UPDATE branch SET depth = 1"),
    (Invariant::Ids, "UPDATE checkpoint SET id = zeroblob(16) WHERE seq = 9"),
    (Invariant::Parents, "UPDATE checkpoint SET parent = 8 WHERE seq = 9"),
    (Invariant::Rows, "UPDATE version SET ordinal = 5000 WHERE ordinal = 3 AND kind = 1"),
    (Invariant::IndexSnapshots, "UPDATE version SET value = X'00' WHERE kind = 4"),
    (Invariant::ListEnds, "UPDATE version SET value = X'050001' WHERE kind = 2 AND ordinal = 9"),
    (
        Invariant::References,
        "UPDATE item SET op = 3, value = (SELECT CAST(X'46' || char(id) AS BLOB) FROM name WHERE kind = 3) WHERE slot = -3",
    ),
    (Invariant::Checkpoints, "UPDATE checkpoint SET step = 9 WHERE seq = 2"),
    (Invariant::Writes, "UPDATE write SET sum = NULL"),
    (Invariant::ThreadTimes, "UPDATE thread SET created_at = created_at + 1"),
    (
        Invariant::Timers,
        "INSERT INTO timer (namespace, task, checkpoint, wake_at, xxh3) VALUES (1, zeroblob(16), 1, 5, 0)",
    ),
    (
        Invariant::Leases,
        "INSERT INTO lease (thread, epoch, owner, process, expires_at, recoveries, xxh3) VALUES (1, 1, zeroblob(16), '', 5, 0, 0)",
    ),
    (Invariant::RowChecks, "UPDATE item SET xxh3 = xxh3 + 1 WHERE slot = 3"),
    (
        Invariant::Operations,
        "INSERT INTO operation (id, kind, seq, at, actor, target, changes, xxh3) VALUES (1, 0, 1, 1, NULL, NULL, 1, 0)",
    ),
    (Invariant::LogMark, "UPDATE wal_mark SET generation = generation + 1"),
    (Invariant::Ownership, "INSERT INTO tombstone (thread, state) VALUES (7, 2)"),
];

fn cites(findings: &[Finding], invariant: Invariant) -> bool {
    findings.iter().any(|finding| finding.invariant == invariant)
}

#[test]
fn a_finding_cites_the_invariant_that_is_broken() {
    for (invariant, harm) in HARMS {
        let (bench, _) = damaged(harm);
        let findings = bench.store.check().unwrap().problems;
        assert!(cites(&findings, *invariant), "{invariant} {harm}: {findings:?}");
    }
}

#[test]
fn a_broken_page_is_cited_and_so_is_an_entry_beside_the_log() {
    let bench = filled();
    raw(&bench.path()).execute_batch("UPDATE kv SET key = 'nom' WHERE key = 'name'").unwrap();
    assert!(cites(&bench.store.check().unwrap().problems, Invariant::Entries));

    let (bench, _) = damaged("VACUUM");
    let root: i64 = raw(&bench.path())
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'branch_namespace'", [], |row| row.get(0))
        .unwrap();
    bench.store.checkpoint_wal().unwrap();
    let path = bench.path();
    drop(bench.store);
    let mut bytes = fs::read(&path).unwrap();
    // The number of cells of the root of an index.
    bytes[(root as usize - 1) * 4_096 + 4] ^= 1;
    fs::write(&path, bytes).unwrap();
    let store = SqliteBackend::open(&path, &options().read_only(true)).unwrap();
    assert!(cites(&store.check().unwrap().problems, Invariant::Pages));
}

#[test]
fn every_invariant_is_broken_by_a_test() {
    // The log is broken in `wal_tail`, the copying of it below, the keys in `cipher`, the search index in `search`, and
    // the table of threads in `threads`.
    let others = [Invariant::Pages, Invariant::Entries, Invariant::Log, Invariant::Copying, Invariant::Keys];
    let elsewhere = others.into_iter().chain([Invariant::SearchIndex, Invariant::Threads]);
    let broken: Vec<Invariant> = HARMS.iter().map(|(invariant, _)| *invariant).chain(elsewhere).collect();
    assert!(Invariant::ALL.iter().all(|invariant| broken.contains(invariant)));
}

#[test]
fn a_log_that_cannot_be_copied_is_cited() {
    let bench = Bench::new();
    let writer = bench.store.writer.as_ref().unwrap();
    writer.fail_to_copy("the disk is full");
    let findings = bench.store.check().unwrap().problems;
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!((finding.invariant, &*finding.reason), (Invariant::Copying, "the disk is full"));
}
