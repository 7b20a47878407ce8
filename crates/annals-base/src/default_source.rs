//! The sources of the values that a reader supplies where a document leaves them out. *Absent:* the system clock.

use crate::{Clock, IdSource, Timestamp};

/// The sources of values that a document leaves out: the present time, and new ids.
///
/// # Example
/// ```
/// use annals_base::{DefaultSource, IdSource, Timestamp};
///
/// let mut ids = IdSource::from_seed(1);
/// let clock = Timestamp::from_micros(1_735_787_045_000_000);
/// let mut defaults = DefaultSource::new(&clock, &mut ids);
/// assert_eq!(defaults.now(), clock);
/// assert_ne!(defaults.uuid_v4(), defaults.uuid_v4());
/// ```
pub struct DefaultSource<'a> {
    clock: &'a dyn Clock,
    ids: &'a mut IdSource,
}

impl<'a> DefaultSource<'a> {
    /// Takes the time from `clock` and ids from `ids`.
    pub fn new(clock: &'a dyn Clock, ids: &'a mut IdSource) -> Self {
        Self { clock, ids }
    }

    /// Returns the present time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns a new random id (UUID version 4).
    pub fn uuid_v4(&mut self) -> uuid::Uuid {
        self.ids.uuid_v4()
    }

    /// Borrows the same sources for a shorter time.
    pub fn reborrow(&mut self) -> DefaultSource<'_> {
        DefaultSource { clock: self.clock, ids: &mut *self.ids }
    }
}

impl std::fmt::Debug for DefaultSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DefaultSource").finish_non_exhaustive()
    }
}
