//! Receiving signals: an interrupt that resumes with a signal from outside, or at a timestamp.
//!
//! The timestamp and the name of the signal are stored with the interrupt, and the signal as its resume value, so a
//! task that runs again gets the same one. *Absent:* the mailbox, and the end of a timeout: both come between two runs
//! of the task, in a commit.

use annals_runs::received_signal;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::base::Value;
use crate::graph::NodeResult;

use super::call::CallError;
use super::context::{Context, Interrupt, Interrupted, Signal, interrupt_id};

impl Context {
    /// Receives a signal: a value that was sent to the thread under a name
    /// ([`signal`](annals_runs::StoreRuns::signal)), from any process, before the task reaches this call or while
    /// it waits. Returns `None` if none has come when the timeout has passed, counted from the first time that the task
    /// reaches this call.
    ///
    /// While there is none it returns [`Interrupted`], which the node passes on with `?`: the run ends as for a
    /// [sleep](Context::sleep_for), and no thread waits. A [`Worker`](crate::Worker), or a run with
    /// [`Input::Continue`](crate::Input::Continue), runs the node again from its first line when the signal has come or
    /// the timeout has passed; [`Run::invoke`](crate::Run::invoke) does so at once if the signal is there already.
    /// Signals of one name are received in the order in which they were sent, each by one task and once: the commit
    /// that takes it out of the mailbox stores it for the task, which gets it again if it runs again.
    ///
    /// # Errors
    /// [`Interrupted`] while it waits; [`CallError::NoMailbox`] in a run without a thread; an error of the value if the
    /// signal is not a `T`: it is the resume value all the same, so that the task fails again if it is retried.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    ///
    /// use annals_graph::graph::Entrypoint;
    /// use annals_graph::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let day = Duration::from_secs(24 * 60 * 60);
    /// let book = Entrypoint::new("book", move |order: i64, context: &Context| {
    ///     match context.receive::<bool>("review", 3 * day)? {
    ///         Some(true) => Ok(format!("order {order} is booked")),
    ///         Some(false) => Ok(format!("order {order} is refused")),
    ///         None => Ok(format!("order {order} was forgotten")),
    ///     }
    /// })
    /// .compile()?;
    /// let store = Store::memory();
    /// let thread = store.thread("order-17")?;
    /// assert!(book.invoke(&thread, 17)?.wake_at().is_some(), "it waits for three days");
    ///
    /// store.signal("order-17", "review", true)?; // From any process.
    /// let done = book.invoke(&thread, Input::Continue)?;
    /// assert_eq!(done.value().map(String::as_str), Some("order 17 is booked"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn receive<T: DeserializeOwned>(&self, name: &str, timeout: Duration) -> NodeResult<Option<T>> {
        if self.thread().is_none() {
            return Err(CallError::NoMailbox { name: name.to_owned() }.into());
        }
        self.progress();
        let resume = self.received(name, timeout)?;
        match received_signal(&resume) {
            Some(value) => Ok(Some(value.to::<T>()?)),
            None => Ok(None),
        }
    }

    /// Returns the resume value of a receive.
    fn received(&self, name: &str, timeout: Duration) -> Result<Value, Interrupted> {
        let mut asked = self.asked().lock();
        if asked.read == asked.resume_values.len() {
            let now = self.scope().host.now();
            let (at, namespace) = (asked.read, self.namespace());
            let id = interrupt_id(&namespace, at);
            let given = self.scope().given.as_ref().and_then(|given| given.get(&id)).cloned();
            let known = asked.asleep.iter().find(|(known, _)| *known == id).map(|(_, wake_at)| *wake_at);
            let wake_at = known.unwrap_or_else(|| now.saturating_add(timeout));
            // At the head, a commit ends the receive: a signal that comes while the task runs on must not be given to
            // it.
            let ends_here = self.scope().addressed && known.is_some() && wake_at <= now;
            if given.is_none() && !ends_here {
                let signal = Some(name.to_owned());
                let wait = Interrupt { wake_at: Some(wake_at), signal, ..Interrupt::new(Value::Null, id) };
                asked.signal = Some(Signal::Waiting(vec![wait]));
                return Err(Interrupted::new());
            }
            asked.resume_values.push(given.unwrap_or_default());
            asked.took = true;
        }
        asked.read += 1;
        Ok(asked.resume_values[asked.read - 1].clone())
    }
}
