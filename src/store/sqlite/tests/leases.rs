//! Leases in a file: every column is covered by the check, and a copy of the file has them.

use super::*;
use crate::store::StoreError;
use crate::store::lease::{LeaseOwner, NewLease};

/// Makes a thread with a lease that expires at 9.
fn leased() -> Bench {
    let mut bench = Bench::new();
    let mut batch = Batch::new(thread("a"), Namespace::root(), None);
    batch.checkpoints.push(checkpoint(bench.ids.checkpoint(Timestamp::default(), 0, None)));
    let (now, until) = (Timestamp::from_micros(5), Timestamp::from_micros(9));
    batch.lease = Some(NewLease::claim(LeaseOwner::new([1; 16]), now, until));
    bench.store.commit(&batch).unwrap();
    bench
}

#[test]
fn every_column_of_a_lease_is_covered_by_its_check() {
    for harm in [
        "UPDATE lease SET epoch = 2",
        "UPDATE lease SET epoch = -1",
        "UPDATE lease SET owner = zeroblob(16)",
        "UPDATE lease SET owner = X'00'",
        "UPDATE lease SET process = ''",
        "UPDATE lease SET expires_at = 8",
        "UPDATE lease SET expires_at = NULL",
        "UPDATE lease SET recoveries = 1",
        "UPDATE lease SET xxh3 = 0",
    ] {
        let bench = leased();
        assert_eq!(bench.check(), Vec::<String>::new());
        raw(&bench.path()).execute_batch(harm).unwrap();
        assert!(matches!(bench.store.lease(&thread("a")), Err(StoreError::Corrupt { .. })), "{harm}");
        let renew = NewLease::renew(LeaseOwner::new([1; 16]), Timestamp::from_micros(20));
        let refused = bench.store.commit(&Batch::of_lease(thread("a"), renew));
        assert!(matches!(refused, Err(StoreError::Corrupt { .. })), "{harm}: {refused:?}");
        assert!(!bench.check().is_empty(), "{harm}");
    }
    let bench = leased();
    raw(&bench.path()).execute_batch("UPDATE lease SET thread = 7").unwrap();
    assert!(!bench.check().is_empty(), "a lease of no thread");
}

#[test]
fn a_copy_of_the_file_has_the_leases_and_another_handle_sees_them() {
    let bench = leased();
    let lease = bench.store.lease(&thread("a")).unwrap();
    assert_eq!(lease.as_ref().map(|lease| lease.epoch), Some(1));
    assert_eq!(open(&bench.path()).lease(&thread("a")).unwrap(), lease);
    let copy = bench.folder.path().join("copy.db");
    bench.store.backup(&copy).unwrap();
    let copy = open(&copy);
    assert_eq!(copy.lease(&thread("a")).unwrap(), lease);
    assert!(copy.check().unwrap().problems.is_empty());
}
