//! Draining and cancelling a run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;

use parking_lot::Mutex;

/// A control that drains or cancels a run, from outside or from a node. Clones are the same control. A control serves
/// one run: a request cannot be taken back.
///
/// # Example
/// ```
/// use annals_graph::prelude::*;
///
/// #[derive(State, Clone, Default)]
/// struct Count { #[channel(last)] n: i64 }
///
/// # fn main() -> Result<()> {
/// let graph = StateGraph::<Count>::new()
///     .node("add", |s: &Count, context: &Context| {
///         context.control().request_drain("shutdown");
///         Ok(Count::update().n(s.n + 1))
///     })
///     .edge(START, "add")
///     .edge("add", "add")
///     .compile()?;
/// let thread = Store::memory().thread("t")?;
/// let outcome = graph.invoke(&thread, Count::update().n(0))?;
/// assert!(matches!(outcome, Outcome::Drained { ref reason, .. } if reason == "shutdown"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct RunControl(Arc<ControlRequests>);

#[derive(Default)]
struct ControlRequests {
    drains: AtomicBool,
    reason: Mutex<Option<String>>,
    cancels: AtomicBool,
    cancel: Mutex<Cancel>,
    /// The controls that get each request of this one.
    below: Mutex<Vec<Weak<ControlRequests>>>,
    /// Called by each request.
    listeners: Mutex<Vec<Weak<RequestListener>>>,
}

type RequestListener = dyn Fn() + Send + Sync;

#[derive(Default)]
struct Cancel {
    reason: Option<String>,
    next: u64,
    waiting: BTreeMap<u64, Waker>,
}

impl RunControl {
    /// Returns a control without a request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the run to drain: it stops at the end of its superstep. Running tasks end and are stored; the run can be
    /// continued. The first reason stays.
    pub fn request_drain(&self, reason: impl Into<String>) {
        let reason = self.0.reason.lock().get_or_insert_with(|| reason.into()).clone();
        self.0.drains.store(true, Ordering::Release);
        self.below().for_each(|below| below.request_drain(reason.as_str()));
        self.tell();
    }

    /// Returns the reason of the drain, `None` if none was requested.
    pub fn drain_reason(&self) -> Option<String> {
        if self.0.drains.load(Ordering::Acquire) { self.0.reason.lock().clone() } else { None }
    }

    /// Cancels the run. Async nodes are dropped where they wait; nodes on a thread see it in
    /// [`Context::is_cancelled`](super::Context::is_cancelled) and are waited for; no other task starts, and none is
    /// retried. Finished tasks are stored, so the run can be continued. The first reason stays.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    /// use std::sync::Arc;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Page { #[channel(last)] text: String }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Page>::new()
    ///     .node("fetch", |_: Arc<Page>, context: Context| async move {
    ///         if context.value::<&str>() == Some(&"impatient") {
    ///             context.control().cancel("the window was closed");
    ///             // Here it is dropped.
    ///             std::future::pending::<()>().await;
    ///         }
    ///         Ok(Page::update().text("hello".to_string()))
    ///     })
    ///     .edge(START, "fetch")
    ///     .compile()?;
    /// let thread = Store::memory().thread("t")?;
    /// let cancelled = graph.run(&thread).context("impatient").invoke(Page::update())?;
    /// assert!(matches!(cancelled, Outcome::Cancelled { ref reason, .. } if reason == "the window was closed"));
    ///
    /// let done = graph.invoke(&thread, Input::Continue)?;
    /// assert_eq!(done.state().text, "hello");
    /// # Ok(())
    /// # }
    /// ```
    pub fn cancel(&self, reason: impl Into<String>) {
        let (reason, waiting) = {
            let mut cancel = self.0.cancel.lock();
            let reason = cancel.reason.get_or_insert_with(|| reason.into()).clone();
            self.0.cancels.store(true, Ordering::Release);
            (reason, std::mem::take(&mut cancel.waiting))
        };
        waiting.into_values().for_each(Waker::wake);
        self.below().for_each(|below| below.cancel(reason.as_str()));
        self.tell();
    }

    /// Returns a control of one run that gets the requests of this one, and can be asked alone.
    pub(crate) fn for_one_run(&self) -> Self {
        let own = Self::new();
        let mut below = self.0.below.lock();
        below.retain(|below| below.strong_count() > 0);
        below.push(Arc::downgrade(&own.0));
        drop(below);
        self.drain_reason().into_iter().for_each(|reason| own.request_drain(reason));
        self.cancel_reason().into_iter().for_each(|reason| own.cancel(reason));
        own
    }

    /// Calls `listener`, as long as there is one, for each request from now on.
    pub(crate) fn on_request(&self, listener: &Arc<RequestListener>) {
        let mut listeners = self.0.listeners.lock();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(listener));
    }

    fn tell(&self) {
        let listeners: Vec<_> = self.0.listeners.lock().iter().filter_map(Weak::upgrade).collect();
        listeners.iter().for_each(|listener| listener());
    }

    fn below(&self) -> impl Iterator<Item = Self> + use<> {
        let below: Vec<_> = self.0.below.lock().iter().filter_map(Weak::upgrade).collect();
        below.into_iter().map(Self)
    }

    /// Returns the reason of the cancel, `None` if the run was not cancelled.
    pub fn cancel_reason(&self) -> Option<String> {
        if self.is_cancelled() { self.0.cancel.lock().reason.clone() } else { None }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.0.cancels.load(Ordering::Acquire)
    }
}

/// The registration of a waker that a cancel wakes.
#[derive(Default)]
pub(crate) struct CancelWait(Option<(RunControl, u64)>);

impl CancelWait {
    /// Registers `waker`, the first one that it is given, to be woken when the run is cancelled. Returns whether it is
    /// cancelled already.
    pub(crate) fn wake(&mut self, control: &RunControl, waker: &Waker) -> bool {
        if self.0.is_none() {
            let mut cancel = control.0.cancel.lock();
            if cancel.reason.is_none() {
                let id = cancel.next;
                cancel.next += 1;
                cancel.waiting.insert(id, waker.clone());
                drop(cancel);
                self.0 = Some((control.clone(), id));
            }
        }
        control.is_cancelled()
    }
}

impl Drop for CancelWait {
    fn drop(&mut self) {
        if let Some((control, id)) = self.0.take() {
            control.0.cancel.lock().waiting.remove(&id);
        }
    }
}

impl fmt::Debug for RunControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunControl")
            .field("drain_reason", &self.drain_reason())
            .field("cancel_reason", &self.cancel_reason())
            .finish()
    }
}

/// The node stopped because its run was cancelled. A node passes it on with `?`: if the run was cancelled, the task
/// runs again when the run is continued; otherwise the node has failed, and is not retried (`NodeCancelledError`).
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("the run of the node was cancelled")]
pub struct Cancelled(());

impl Cancelled {
    /// Returns the error, for a node that stops by itself.
    pub fn new() -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn a_listener_hears_of_each_request_as_long_as_it_is_there() {
        let (control, count) = (RunControl::new(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&count);
        let listener: Arc<RequestListener> = Arc::new(move || _ = counted.fetch_add(1, Ordering::Relaxed));
        control.on_request(&listener);
        control.request_drain("shutdown");
        assert_eq!(count.load(Ordering::Relaxed), 1);
        control.cancel("now");
        assert_eq!(count.load(Ordering::Relaxed), 2);
        drop(listener);
        control.cancel("again");
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }
}
