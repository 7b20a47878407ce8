//! A put that a loop waits for.
//!
//! Invariants: the writer of the store wakes the loop and does nothing else: the put is ended on a thread of Python. No
//! loop is woken once the interpreter is ending, because a thread that holds its lock then is killed.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};

use annals_langgraph::PutHandle;
use parking_lot::{Mutex, RwLock};
use pyo3::prelude::*;

use super::heads::{HeadPlace, Heads};
use super::saver_error;

/// True once the interpreter is ending. It is read for as long as a loop is being woken.
static IS_ENDING: RwLock<bool> = RwLock::new(false);

/// Waits until no loop is being woken, and wakes none from then on.
#[pyfunction]
pub(crate) fn _end_wakes(py: Python<'_>) {
    py.detach(|| *IS_ENDING.write() = true);
}

/// Calls a function of Python, from whatever thread.
struct WakeCall(Py<PyAny>);

impl Wake for WakeCall {
    fn wake(self: Arc<Self>) {
        let is_ending = IS_ENDING.read();
        if *is_ending {
            return;
        }
        // The loop may be closed: then nobody waits.
        _ = Python::try_attach(|py| _ = self.0.call0(py));
    }
}

/// A put that was submitted.
#[pyclass(frozen, name = "_Put", module = "annals")]
pub(crate) struct PyPut {
    handle: Mutex<Option<PutHandle>>,
    wake: Arc<WakeCall>,
    heads: Arc<Heads>,
    place: HeadPlace,
}

impl PyPut {
    pub(super) fn new(handle: PutHandle, wake: Py<PyAny>, heads: Arc<Heads>, place: HeadPlace) -> Self {
        Self { handle: Mutex::new(Some(handle)), wake: Arc::new(WakeCall(wake)), heads, place }
    }
}

impl fmt::Debug for PyPut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PyPut").field("place", &self.place).finish_non_exhaustive()
    }
}

#[pymethods]
impl PyPut {
    /// Returns whether the put is stored; if it is not, the function to wake is called once it can be asked again. Raises
    /// the error of a put that was refused.
    fn poll(&self, py: Python<'_>) -> PyResult<bool> {
        let polled = py.detach(|| {
            let mut handle = self.handle.lock();
            let Some(waiting) = handle.as_mut() else { return Poll::Ready(Ok(())) };
            let waker = Arc::clone(&self.wake).into();
            let polled = Pin::new(waiting).poll(&mut Context::from_waker(&waker));
            if polled.is_ready() {
                *handle = None;
            }
            polled.map(|outcome| outcome.map(|_| ()))
        });
        match polled {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(())) => Ok(true),
            Poll::Ready(Err(error)) => {
                drop(self.heads.remove(&self.place));
                Err(saver_error(error))
            }
        }
    }
}
