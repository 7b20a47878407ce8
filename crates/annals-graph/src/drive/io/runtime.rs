//! The Tokio runtime of a caller, which the threads that run its tasks enter: a task that awaits a timer or a socket of
//! Tokio finds it there. Without the feature `tokio` there is none.

/// The runtime of the thread that it was made on, if that is in one.
#[derive(Clone)]
pub(in crate::drive) struct CallerRuntime {
    #[cfg(feature = "tokio")]
    handle: Option<tokio::runtime::Handle>,
}

impl CallerRuntime {
    /// Returns the runtime of this thread.
    pub(in crate::drive) fn here() -> Self {
        Self {
            #[cfg(feature = "tokio")]
            handle: tokio::runtime::Handle::try_current().ok(),
        }
    }

    /// Returns whether there is one.
    pub(in crate::drive) fn is_known(&self) -> bool {
        #[cfg(feature = "tokio")]
        let is_known = self.handle.is_some();
        #[cfg(not(feature = "tokio"))]
        let is_known = false;
        is_known
    }

    /// Does work in the runtime.
    pub(in crate::drive) fn enter<T>(&self, work: impl FnOnce() -> T) -> T {
        #[cfg(feature = "tokio")]
        let _inside = self.handle.as_ref().map(|handle| handle.enter());
        work()
    }
}
