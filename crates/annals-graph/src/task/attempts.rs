//! The failed attempts of a task, as data. *Absent:* what follows from them, which `exec` decides.

use serde::{Deserialize, Serialize};

use super::call::Attempt;

/// The failed attempts of a task, stored as a JSON text. Timestamps are microseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attempts {
    /// The number of failures in a row, 0 after one that was not retried.
    pub(crate) failed: u32,
    /// The time of the next attempt.
    pub(crate) next: Option<i64>,
    /// The number of the next attempt among those that its policy allows, from 0, and the number of calls before it.
    pub(crate) number: u32,
    pub(crate) calls: u32,
    /// The newest failures.
    pub(crate) attempts: Vec<AttemptFailure>,
    /// True if they are not stored yet.
    #[serde(skip)]
    pub(crate) unsaved: bool,
}

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttemptFailure {
    pub(crate) started: i64,
    pub(crate) ended: i64,
    pub(crate) error: String,
}

impl Attempts {
    /// Allows as many attempts as at first: a resume value was given.
    pub(crate) fn renew(&mut self) {
        self.unsaved |= self.failed > 0;
        (self.failed, self.next) = (0, None);
    }

    /// Returns the attempt that follows the failed ones, `None` if it is the first one.
    pub(crate) fn attempt(&self) -> Option<Attempt> {
        (self.failed > 0).then_some(Attempt { number: self.number, calls: self.calls })
    }
}
