//! Waiting for a duration without blocking: the port `Timer`, and its implementations.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context as Waiting, Poll, Waker};
use std::time::Duration;

use crate::base::{Clock, SystemClock};

use super::pool::{on_node_thread, pause};

/// A future that is ready when some time has passed.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Waits on behalf of an asynchronous run, see [`Run::timer`](crate::drive::Run::timer): each executor has its own way.
///
/// # Example
/// ```
/// use std::time::Duration;
///
/// use annals_graph::graph::TimeoutPolicy;
/// use annals_graph::prelude::*;
/// use annals_graph::{Sleep, Timer};
///
/// /// A timer for any executor, which costs a thread for each pause.
/// struct Threads;
///
/// impl Timer for Threads {
///     fn sleep(&self, pause: Duration) -> Sleep {
///         let (send, receive) = std::sync::mpsc::channel::<std::task::Waker>();
///         let ends = std::thread::spawn(move || {
///             std::thread::sleep(pause);
///             receive.try_iter().for_each(|waker| waker.wake());
///         });
///         Box::pin(std::future::poll_fn(move |waiting| {
///             _ = send.send(waiting.waker().clone());
///             if ends.is_finished() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
///         }))
///     }
/// }
///
/// #[derive(State, Clone, Default)]
/// struct Page { #[channel(last)] text: String }
///
/// # fn main() -> Result<()> {
/// let limits = TimeoutPolicy::new().run_timeout(Duration::from_secs(60));
/// let graph = StateGraph::<Page>::new()
///     .node_with("fetch", async |_: &Page| Ok(Page::update().text("hello".to_string())), NodeOptions::new().timeout(limits))
///     .edge(START, "fetch")
///     .compile()?;
/// let run = graph.run(()).timer(Threads).ainvoke(Page::update());
/// # let done = annals_graph::block_on(run)?;
/// # assert_eq!(done.state().text, "hello");
/// # Ok(())
/// # }
/// ```
pub trait Timer: Send + Sync + 'static {
    /// Returns a future that is ready once `pause` has passed, not before. Dropping it ends the wait.
    fn sleep(&self, pause: Duration) -> Sleep;
}

/// Waits by Tokio's clock, on the runtime that it was made on; that must have its timer enabled, else to wait panics,
/// which fails the node. With the feature `tokio` a run in a runtime of Tokio takes it without being told.
#[cfg(feature = "tokio")]
#[derive(Clone, Debug)]
pub struct TokioTimer(tokio::runtime::Handle);

#[cfg(feature = "tokio")]
impl TokioTimer {
    /// Returns the timer of the runtime that this is called on, `None` outside one.
    pub fn current() -> Option<Self> {
        tokio::runtime::Handle::try_current().ok().map(Self)
    }
}

#[cfg(feature = "tokio")]
impl Timer for TokioTimer {
    fn sleep(&self, pause: Duration) -> Sleep {
        let _inside = self.0.enter();
        Box::pin(tokio::time::sleep(pause))
    }
}

/// Returns the timer of the executor around, if it is known.
pub(in crate::drive) fn of_executor() -> Option<Arc<dyn Timer>> {
    #[cfg(feature = "tokio")]
    if let Some(timer) = TokioTimer::current().filter(|_| !Parked::is_here()) {
        return Some(Arc::new(timer));
    }
    None
}

/// A timer that waits on a thread of the pool: for the backoff between attempts of a run without a timer.
pub(in crate::drive) struct PoolTimer;

impl Timer for PoolTimer {
    fn sleep(&self, pause_for: Duration) -> Sleep {
        Box::pin(on_node_thread(move || pause(pause_for)))
    }
}

/// The timer of [`block_on`](super::block_on), which parks its thread no longer than until somebody is to be woken.
pub(in crate::drive) struct ParkTimer;

impl ParkTimer {
    /// Returns the timer if this thread is in `block_on`.
    pub(in crate::drive) fn here() -> Option<Arc<dyn Timer>> {
        Parked::is_here().then(|| Arc::new(Self) as Arc<dyn Timer>)
    }
}

impl Timer for ParkTimer {
    fn sleep(&self, pause: Duration) -> Sleep {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let at = SystemClock.elapsed().saturating_add(pause);
        Box::pin(ParkSleep { place: (at, NEXT.fetch_add(1, Ordering::Relaxed)), elsewhere: None })
    }
}

struct ParkSleep {
    place: (Duration, u64),
    /// The wait, should it be polled by another executor than the one it was begun on.
    elsewhere: Option<Sleep>,
}

impl Future for ParkSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, waiting: &mut Waiting<'_>) -> Poll<()> {
        let now = SystemClock.elapsed();
        if now >= self.place.0 {
            return Poll::Ready(());
        }
        if Parked::add(self.place, waiting.waker()) {
            return Poll::Pending;
        }
        let rest = self.place.0 - now;
        self.elsewhere.get_or_insert_with(|| PoolTimer.sleep(rest)).as_mut().poll(waiting)
    }
}

impl Drop for ParkSleep {
    fn drop(&mut self) {
        Parked::remove(self.place);
    }
}

/// The wakers of a thread that runs a future, by the time at which each is to be woken.
#[derive(Default)]
pub(super) struct Parked(BTreeMap<(Duration, u64), Waker>);

thread_local! {
    static PARKED: RefCell<Option<Parked>> = const { RefCell::new(None) };
}

/// Ends the waiting of a future on this thread, and goes on with that of the one around it.
pub(super) struct ParkedHere(Option<Parked>);

impl Drop for ParkedHere {
    fn drop(&mut self) {
        PARKED.replace(self.0.take());
    }
}

impl Parked {
    /// Begins to wait for a future on this thread.
    pub(super) fn begin() -> ParkedHere {
        ParkedHere(PARKED.replace(Some(Self::default())))
    }

    fn is_here() -> bool {
        PARKED.with_borrow(Option::is_some)
    }

    fn add(place: (Duration, u64), waker: &Waker) -> bool {
        PARKED.with_borrow_mut(|parked| match parked {
            Some(parked) => {
                parked.0.insert(place, waker.clone());
                true
            }
            None => false,
        })
    }

    fn remove(place: (Duration, u64)) {
        PARKED.with_borrow_mut(|parked| parked.as_mut().map(|parked| parked.0.remove(&place)));
    }

    /// Parks the thread until it is woken, or somebody is to be.
    pub(super) fn park() {
        let first = PARKED.with_borrow(|parked| parked.as_ref().and_then(|parked| parked.0.keys().next().copied()));
        let Some((at, _)) = first else { return std::thread::park() };
        let now = SystemClock.elapsed();
        if at > now {
            std::thread::park_timeout(at - now);
        }
        let now = SystemClock.elapsed();
        let due = PARKED.with_borrow_mut(|parked| {
            let Some(parked) = parked else { return BTreeMap::new() };
            let later = parked.0.split_off(&(now, u64::MAX));
            std::mem::replace(&mut parked.0, later)
        });
        due.into_values().for_each(Waker::wake);
    }
}
