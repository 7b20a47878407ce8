//! Runs a test on both backends.

use annals::prelude::*;

/// Runs a test on a store in memory and on a file, which must verify afterwards.
pub(crate) fn on_both(test: impl Fn(&Store)) {
    test(&Store::memory());
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("store.db")).unwrap();
    test(&store);
    assert_eq!(store.check().unwrap().problems, []);
}
