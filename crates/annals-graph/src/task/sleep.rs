//! Durable sleep: an interrupt that resumes itself from a timestamp on.
//!
//! The timestamp is stored with the interrupt, so a task that runs again before it does not start a new sleep, and one
//! that has slept never sleeps again. *Absent:* waiting; a run that finds a task asleep ends.

use std::time::Duration;

use crate::base::{Timestamp, Value};

use super::context::{Context, Interrupt, Interrupted, Signal, interrupt_id};

impl Context {
    /// Sleeps until a timestamp, across restarts of the program.
    ///
    /// Before the timestamp it returns [`Interrupted`], which the node passes on with `?`: the run ends as
    /// interrupted, and no thread waits. [`Store::timers`](crate::store::Store::timers) lists the sleeping tasks. A
    /// run with [`Input::Continue`](crate::Input::Continue) at the timestamp or later runs the node again from its
    /// first line, and the sleep is over for good; a run before it ends as interrupted again. A resume value with the
    /// id of the interrupt wakes the task early. The clock is that of the store.
    ///
    /// # Errors
    /// [`Interrupted`] before the timestamp.
    ///
    /// # Example
    /// ```
    /// use annals::base::Timestamp;
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Mail { #[channel(last)] sent: bool }
    ///
    /// # fn main() -> Result<()> {
    /// # let (past, future) = (Timestamp::from_micros(0), Timestamp::from_micros(i64::MAX));
    /// let send_at = move |moment| {
    ///     let node = move |_: &Mail, ctx: &Context| {
    ///         ctx.sleep_until(moment)?;
    ///         Ok(Mail::update().sent(true))
    ///     };
    ///     StateGraph::<Mail>::new().node("send", node).edge(START, "send").compile()
    /// };
    /// let store = Store::memory();
    /// let asleep = send_at(future)?.invoke(&store.thread("later")?, Mail::update())?;
    /// assert_eq!(asleep.wake_at(), Some(future));
    /// assert_eq!(store.next_timer()?.map(|timer| timer.wake_at), Some(future));
    ///
    /// assert!(send_at(past)?.invoke(&store.thread("now")?, Mail::update())?.state().sent);
    /// # Ok(())
    /// # }
    /// ```
    pub fn sleep_until(&self, moment: Timestamp) -> Result<(), Interrupted> {
        self.sleep(|_| moment)
    }

    /// Sleeps for a duration, counted from the first time that the task reaches this call: see
    /// [`Context::sleep_until`].
    ///
    /// # Errors
    /// [`Interrupted`] before the end of the duration.
    pub fn sleep_for(&self, time: Duration) -> Result<(), Interrupted> {
        self.sleep(|now| now.saturating_add(time))
    }

    fn sleep(&self, moment: impl FnOnce(Timestamp) -> Timestamp) -> Result<(), Interrupted> {
        let mut asked = self.asked().lock();
        if asked.read == asked.resume_values.len() {
            let now = self.scope().host.now();
            let id = interrupt_id(&self.namespace(), asked.read);
            let known = asked.asleep.iter().find(|(known, _)| *known == id).map(|(_, moment)| *moment);
            let wake_at = known.unwrap_or_else(|| moment(now));
            if now < wake_at {
                let question = Interrupt { wake_at: Some(wake_at), ..Interrupt::new(Value::Null, id) };
                asked.signal = Some(Signal::Waiting(vec![question]));
                return Err(Interrupted::new());
            }
            asked.resume_values.push(Value::Null);
            asked.took = true;
        }
        asked.read += 1;
        Ok(())
    }
}
