//! The key of a step for services outside the store.
//!
//! *Absent:* the id of a task, which the key follows.

use crate::hash::{checksum, digits};

use super::context::{Context, without_tasks};

impl Context {
    /// Returns the key of this step for services outside: the idempotency key of a request to a payment service, or the
    /// name of a file to be written. 32 hexadecimal digits.
    ///
    /// The key stays the same when the step runs again: in another attempt, after an interrupt, after a crash, in
    /// another process. It differs for another thread, another step of the run, another run of the thread, and another
    /// call of a
    /// [`Task`](super::Task). Several requests of one step need different keys: append a word to it.
    ///
    /// A step that is made again on purpose is another step with another key: on a fork, after a rewind, and when a run
    /// begins at an older checkpoint. So a replayed payment is a new payment.
    ///
    /// The key follows the [id of the task](Context::task): it changes with the name of the node or of the called task,
    /// and with what else identifies a call. In a graph that stores nothing inside a run that does, it follows the task
    /// around the graph, the number of the superstep and the node. A run without a store has other keys each time.
    ///
    /// # Example
    /// ```
    /// use annals_graph::graph::{Entrypoint, RetryPolicy};
    /// use annals_graph::prelude::*;
    /// use annals_graph::task::Task;
    /// use std::sync::{Arc, Mutex};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<()> {
    /// let requests = Arc::new(Mutex::new(Vec::new()));
    /// let sent = Arc::clone(&requests);
    /// let charge = Task::new("charge", move |cents: i64, context: &Context| {
    ///     sent.lock().unwrap().push(context.step_key());
    ///     // The answer of the service is lost the first time.
    ///     if context.attempt() == 1 { Err("timed out".into()) } else { Ok(cents) }
    /// })
    /// .retry(RetryPolicy::new().initial_interval(Duration::from_millis(1)));
    /// let order = Entrypoint::new("order", move |cents: i64, context: &Context| {
    ///     Ok(charge.call(context, cents)? + charge.call(context, 2 * cents)?)
    /// })
    /// .compile()?;
    /// order.invoke(&Store::memory().thread("order-17")?, 5)?;
    ///
    /// let keys = requests.lock().unwrap();
    /// assert_eq!(keys.len(), 4);
    /// assert!(keys[0] == keys[1] && keys[2] == keys[3], "both attempts of a call have one key");
    /// assert_ne!(keys[0], keys[2]);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "idempotency_key")]
    pub fn step_key(&self) -> String {
        digits(self.step_hash())
    }

    /// Returns the bytes of the key.
    fn step_hash(&self) -> [u8; 16] {
        let parts = self.parts();
        let mut place = Vec::with_capacity(128);
        let thread = parts.thread.as_ref().map_or("", |thread| thread.as_str());
        place.extend_from_slice(thread.as_bytes());
        place.push(0);
        match self.life().above().filter(|_| parts.checkpoint.is_none()) {
            // The checkpoints of a graph that stores nothing are others each time.
            Some(above) => {
                place.extend_from_slice(&above.step_hash());
                let graph = without_tasks(self.graph_namespace().as_str());
                let path = parts.calls.path.text(&parts.node);
                for part in [&*graph, &parts.step.to_string(), &*parts.node, &*path] {
                    place.extend_from_slice(part.as_bytes());
                    place.push(0);
                }
            }
            None => place.extend_from_slice(&self.effect_id()),
        }
        checksum(&place)
    }

    /// Returns the identity of the step for its effects: that of the task, unless an older checkpoint is replayed in
    /// place.
    pub(crate) fn effect_id(&self) -> Vec<u8> {
        let parts = self.parts();
        let mut id = parts.task.as_bytes().to_vec();
        id.extend(parts.replay.iter().flat_map(|run| *run.as_bytes()));
        id
    }
}
