//! A store whose clock is set by the test.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use annals::base::{Clock, Timestamp};
use annals::store::{OpenOptions, Store};

use crate::backends::place_with;

/// A clock that the test sets, in seconds.
#[derive(Clone, Default)]
pub(crate) struct Hands(Arc<AtomicI64>);

impl Hands {
    pub(crate) fn set(&self, seconds: i64) {
        self.0.store(seconds, Ordering::SeqCst);
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        at(self.0.load(Ordering::SeqCst))
    }
}

/// Returns a timestamp in seconds since 1970.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

/// Makes a store with a clock that the test sets.
pub(crate) fn timed() -> (Hands, Store) {
    let hands = Hands::default();
    (hands.clone(), place_with(OpenOptions::new().clock(hands)))
}
