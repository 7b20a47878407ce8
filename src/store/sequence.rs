//! The commits of one run: each counts only with those before it. *Absent:* what they hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::error::StoreError;

/// The commits of one run, in their order. When one of them is not stored, those that come after it are refused, also
/// those that were submitted before anybody knew: so the log holds a beginning of what the run did, and never a later
/// part of it without an earlier one. Clones are the same sequence.
#[derive(Clone, Debug, Default)]
pub struct Sequence(Arc<State>);

#[derive(Debug, Default)]
struct State {
    broken: AtomicBool,
    /// The first error.
    error: Mutex<Option<StoreError>>,
}

impl Sequence {
    /// Begins a sequence.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether one of its commits was not stored.
    pub fn is_broken(&self) -> bool {
        self.0.broken.load(Ordering::Acquire)
    }

    /// Notes that a commit was not stored.
    pub fn end(&self, error: &StoreError) {
        let mut first = self.0.error.lock();
        first.get_or_insert_with(|| again(error));
        self.0.broken.store(true, Ordering::Release);
    }

    /// Returns why a further commit is refused.
    pub fn error(&self) -> StoreError {
        let unknown =
            || StoreError::Write { reason: "an earlier commit of the run was not stored".into(), source: None };
        self.0.error.lock().as_ref().map_or_else(unknown, again)
    }
}

impl PartialEq for Sequence {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The same error for a commit that comes later.
fn again(error: &StoreError) -> StoreError {
    match error {
        StoreError::Busy { waited_ms } => StoreError::Busy { waited_ms: *waited_ms },
        StoreError::OutcomeUnknown { reason } => StoreError::OutcomeUnknown { reason: reason.clone() },
        StoreError::Conflict { thread, namespace, expected, found } => StoreError::Conflict {
            thread: thread.clone(),
            namespace: namespace.clone(),
            expected: *expected,
            found: *found,
        },
        other => StoreError::Write { reason: other.to_string(), source: None },
    }
}
