//! Versions of parts of a program: a task asks which one it began with, so that a changed program continues old runs as
//! the old one did.
//!
//! Invariant: a task gets the same version each time it asks, over attempts, crashes and programs. *Absent:* the
//! version of the program as a whole, which is that of its graph.

use std::ops::RangeInclusive;

use crate::base::{Map, Value};
use crate::graph::NodeResult;

use super::call::CallError;
use super::context::{Context, interrupt_id};

impl Context {
    /// Returns the version of a part of the program that this task began with: the newest of `versions` if the task
    /// reaches this call for the first time and nothing after it is stored, and the oldest one if results, resume
    /// values or interrupts of a run before are stored that the task has not reached yet, since the program of that run
    /// had no such call. It is stored at the first call, and is the same from then on. With it, a program that was
    /// changed continues old runs as the old one did.
    ///
    /// # Errors
    /// [`CallError::UnsupportedVersion`] if the stored version is not one of `versions`; an error of the store.
    ///
    /// # Example
    /// ```
    /// use annals_graph::graph::Entrypoint;
    /// use annals_graph::prelude::*;
    /// use annals_graph::task::Task;
    ///
    /// # fn main() -> Result<()> {
    /// let reserve = Task::new("reserve", |room: i64| Ok(format!("room {room}")));
    /// let before = reserve.clone();
    /// let old = Entrypoint::new("book", move |room: i64, ctx: &Context| {
    ///     let reserved = before.call(ctx, room)?;
    ///     ctx.interrupt("confirm")?;
    ///     Ok(reserved)
    /// })
    /// .compile()?;
    /// // The new program checks the room first. Runs that have reserved it go on without.
    /// let check = Task::new("check", |room: i64| if room < 100 { Ok(()) } else { Err("no such room".into()) });
    /// let new = Entrypoint::new("book", move |room: i64, ctx: &Context| {
    ///     if ctx.version("check first", 1..=2)? >= 2 {
    ///         check.call(ctx, room)?;
    ///     }
    ///     let reserved = reserve.call(ctx, room)?;
    ///     ctx.interrupt("confirm")?;
    ///     Ok(reserved)
    /// })
    /// .compile()?;
    /// let store = Store::memory();
    /// old.invoke(&store.thread("a")?, 101)?;
    /// assert_eq!(new.invoke(&store.thread("a")?, Command::resume("yes"))?.value().unwrap(), "room 101");
    /// assert!(new.invoke(&store.thread("b")?, 101).is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn version(&self, change: &str, versions: RangeInclusive<u32>) -> NodeResult<u32> {
        let calls = self.calls();
        let known = calls.versions.lock().get(change).and_then(Value::as_int);
        let version = match known {
            Some(known) => u32::try_from(known).unwrap_or(u32::MAX),
            None => {
                let first = if self.is_behind() { *versions.start() } else { *versions.end() };
                let stored = {
                    let mut known = calls.versions.lock();
                    known.insert(change.to_owned(), i64::from(first).into());
                    known.clone()
                };
                self.scope().host.store_versions(self, stored)?;
                first
            }
        };
        if versions.contains(&version) {
            return Ok(version);
        }
        let (oldest, newest) = (*versions.start(), *versions.end());
        Err(CallError::UnsupportedVersion { change: change.to_owned(), stored: version, oldest, newest }.into())
    }

    /// Returns whether an earlier run has stored something of the task that this attempt has not reached yet.
    fn is_behind(&self) -> bool {
        let calls = self.calls();
        let (read, has_resume_value) = {
            let asked = self.asked().lock();
            (asked.read, asked.read < asked.resume_values.len())
        };
        let Some(stored) = &calls.stored else { return has_resume_value };
        let own = calls.stored_of(self.task());
        let next = interrupt_id(&self.namespace(), read);
        let has_interrupt = own.is_some_and(|own| own.interrupts.contains(&next));
        let path = format!("~c, {}, ", calls.path.key(self.node()));
        let earlier_path = format!("~__pregel_push, {}, ", calls.path.text(self.node()));
        let made = stored.iter().filter(|call| match call.record {
            Some(_) => call.path.starts_with(&*path),
            // A version before stored no record.
            None => call.path.starts_with(&*earlier_path),
        });
        has_resume_value || has_interrupt || made.count() > calls.reached()
    }
}

/// Returns the versions in a stored map.
pub(crate) fn versions_in(stored: Option<Value>) -> Map {
    match stored {
        Some(Value::Map(versions)) => versions,
        _ => Map::new(),
    }
}
