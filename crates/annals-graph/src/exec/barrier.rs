//! A channel that waits for several names.

use crate::channel::{ChannelEffect, ChannelError};

/// Waits until each of its names was written, in any number of supersteps (`NamedBarrierValue` of LangGraph): the
/// trigger of a join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Barrier {
    names: Vec<String>,
    seen: Vec<bool>,
    /// Before a deferred node: whether the run has come to rest since it was complete.
    finished: Option<bool>,
}

impl Barrier {
    /// Returns a barrier that has seen none of its names. A repeated name counts once.
    pub(crate) fn new(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let mut distinct: Vec<String> = Vec::new();
        for name in names.into_iter().map(Into::into) {
            if !distinct.contains(&name) {
                distinct.push(name);
            }
        }
        let names = distinct;
        Self { seen: vec![false; names.len()], names, finished: None }
    }

    /// Makes it the barrier before a deferred node: it opens when the run would end without it
    /// (`NamedBarrierValueAfterFinish`).
    pub(crate) fn deferred(mut self) -> Self {
        self.finished = Some(false);
        self
    }

    /// Returns whether a deferred barrier was released; `None` if it is not deferred.
    pub(crate) fn finished(&self) -> Option<bool> {
        self.finished
    }

    /// Sets a deferred barrier to its stored flag.
    pub(crate) fn set_finished(&mut self, finished: bool) {
        if let Some(old) = &mut self.finished {
            *old = finished;
        }
    }

    /// Releases a deferred barrier that is complete. Returns whether that changed it.
    pub(crate) fn finish(&mut self) -> bool {
        let changes = self.finished == Some(false) && self.is_complete();
        if changes {
            self.finished = Some(true);
        }
        changes
    }

    /// Returns whether it lets the join run.
    pub(crate) fn is_open(&self) -> bool {
        self.finished != Some(false) && self.is_complete()
    }

    /// Returns the names seen so far, in the order of the barrier.
    pub(crate) fn seen(&self) -> impl Iterator<Item = &str> {
        self.names.iter().zip(&self.seen).filter(|(_, seen)| **seen).map(|(name, _)| name.as_str())
    }

    /// Returns whether all names were seen.
    pub(crate) fn is_complete(&self) -> bool {
        self.seen.iter().all(|seen| *seen)
    }

    /// Notes names as seen.
    ///
    /// # Errors
    /// [`ChannelError::NotAwaited`] for a name the barrier does not wait for.
    pub(crate) fn update<'a>(
        &mut self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Result<ChannelEffect, ChannelError> {
        debug_assert_eq!(self.names.len(), self.seen.len(), "each name has its flag");
        let mut effect = ChannelEffect::Unchanged;
        for name in names {
            let Some(at) = self.names.iter().position(|awaited| awaited == name) else {
                return Err(ChannelError::NotAwaited { expected: self.names.clone(), found: name.to_owned() });
            };
            if !std::mem::replace(&mut self.seen[at], true) {
                effect = ChannelEffect::Computed;
            }
        }
        Ok(effect)
    }

    /// Starts over after the join has run. Returns whether it was open.
    pub(crate) fn consume(&mut self) -> bool {
        let open = self.is_open();
        if open {
            self.seen.fill(false);
            self.set_finished(false);
            debug_assert!(!self.is_open() || self.names.is_empty(), "a consumed barrier waits again");
        }
        open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_barrier_opens_when_all_names_came() {
        let mut barrier = Barrier::new(["a", "b"]);
        assert_eq!(barrier.update(["b"]), Ok(ChannelEffect::Computed));
        assert_eq!(barrier.update(["b"]), Ok(ChannelEffect::Unchanged));
        assert!(!barrier.is_complete() && !barrier.consume());
        assert_eq!(barrier.seen().collect::<Vec<_>>(), ["b"]);
        barrier.update(["a"]).unwrap();
        assert!(barrier.is_complete() && barrier.consume());
        assert_eq!(barrier.seen().count(), 0);
        assert!(matches!(barrier.update(["c"]), Err(ChannelError::NotAwaited { .. })));
    }

    #[test]
    fn a_repeated_name_is_awaited_once() {
        let mut barrier = Barrier::new(["a", "a"]);
        barrier.update(["a", "a"]).unwrap();
        assert!(barrier.is_complete() && barrier.consume());
    }

    #[test]
    fn a_deferred_barrier_opens_when_it_is_released() {
        let mut barrier = Barrier::new(["a", "b"]).deferred();
        barrier.update(["a"]).unwrap();
        assert!(!barrier.finish(), "it is not complete");
        barrier.update(["b"]).unwrap();
        assert!(barrier.is_complete() && !barrier.is_open() && !barrier.consume());
        assert!(barrier.finish() && barrier.is_open() && !barrier.finish());
        assert!(barrier.consume());
        assert_eq!((barrier.seen().count(), barrier.finished()), (0, Some(false)));
    }
}
