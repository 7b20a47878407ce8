//! How a task sleeps: it asks a question that answers itself from a moment on.
//!
//! The moment is stored with the question, so a task that is run again before it has come does not begin anew, and one
//! that has slept never sleeps again. *Absent:* waiting; a run that finds a task asleep ends.

use std::time::Duration;

use crate::base::{Timestamp, Value};

use super::context::{Context, Interrupt, Interrupted, Signal, interrupt_id};

impl Context {
    /// Goes on at a moment, whatever happens to the program until then.
    ///
    /// Before the moment it returns [`Interrupted`], which the node passes on with `?`: the run ends as interrupted, and
    /// nothing waits. [`Store::timers`](crate::store::Store::timers) lists who sleeps. A run with
    /// [`Input::Continue`](crate::Input::Continue) at the moment or later runs the node again from its first line, and
    /// the sleep is over, for good; before the moment it ends as it did. An answer to the id of the question wakes the
    /// task early. What time it is, the clock of the store says.
    ///
    /// # Errors
    /// [`Interrupted`] if the moment has not come.
    ///
    /// # Example
    /// ```
    /// use annals::base::Timestamp;
    /// use annals::prelude::*;
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

    /// Goes on after some time, counted from the first time the task comes here: see [`Context::sleep_until`].
    ///
    /// # Errors
    /// [`Interrupted`] if the time is not over.
    pub fn sleep_for(&self, time: Duration) -> Result<(), Interrupted> {
        self.sleep(|now| now.saturating_add(time))
    }

    fn sleep(&self, moment: impl FnOnce(Timestamp) -> Timestamp) -> Result<(), Interrupted> {
        let mut asked = self.asked().lock();
        if asked.read == asked.answers.len() {
            let now = self.scope().host.now();
            let id = interrupt_id(&self.namespace(), asked.read);
            let known = asked.asleep.iter().find(|(known, _)| *known == id).map(|(_, moment)| *moment);
            let wake_at = known.unwrap_or_else(|| moment(now));
            if now < wake_at {
                let question = Interrupt { wake_at: Some(wake_at), ..Interrupt::new(Value::Null, id) };
                asked.signal = Some(Signal::Waiting(vec![question]));
                return Err(Interrupted::new());
            }
            asked.answers.push(Value::Null);
            asked.took = true;
        }
        asked.read += 1;
        Ok(())
    }
}
