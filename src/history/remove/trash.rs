//! The trash: threads that listings pass over until they are restored, or deleted when their time ends.
//!
//! The end of that time is a fact of the thread, so the trash has actors and can be undone, and deletions need no other
//! state. *Absent:* the deletion ([`Erase::Trash`]).

use std::time::Duration;

use crate::base::Namespace;
use crate::base::limits::UPDATE_ATTEMPTS_MAX;
use crate::store::log::Erase;
use crate::store::operation::{NewOperation, OperationChange, OperationField, OperationKind, OperationValue};
use crate::store::{Erasure, Store, StoreError, TRASHED};

use crate::history::thread::Thread;

impl Thread {
    /// Moves the thread to the trash for a period: [`Store::threads_with`] passes it over unless it is asked for
    /// ([`ThreadQuery::trashed`](crate::store::ThreadQuery::trashed)). All other reads and writes work as before. When
    /// the period has ended, the thread is deleted in the background by a handle that is open for writing, or by
    /// [`Store::empty_trash`].
    /// [`Thread::restore`] and [`Thread::undo`] take it out until then. A thread in the trash gets the new period.
    ///
    /// A thread from which another one was forked stays in the trash as long as that one exists.
    ///
    /// # Errors
    /// [`StoreError::ThreadNotFound`] if the thread has no checkpoint yet; [`StoreError::FieldConflict`] if other
    /// writers were faster 64 times in a row; as [`Log::operate`](crate::store::log::Log::operate).
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// use annals::history::ThreadQuery;
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// let trip = store.thread("trip")?;
    /// trip.append("messages", [Message::human("hi")])?;
    /// trip.trash(Duration::from_secs(30 * 24 * 60 * 60))?;
    /// assert!(store.threads_with(ThreadQuery::new())?.is_empty());
    /// assert_eq!(store.threads_with(ThreadQuery::new().trashed(true))?.len(), 1);
    /// trip.restore()?;
    /// assert_eq!(store.threads_with(ThreadQuery::new())?.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn trash(&self, period: Duration) -> Result<(), StoreError> {
        let micros = i64::try_from(period.as_micros()).unwrap_or(i64::MAX);
        let until = self.store().now().as_micros().saturating_add(micros);
        self.set_trashed(Some(OperationValue::Text(until.to_string())))
    }

    /// Takes the thread out of the trash. If it is not there, nothing is stored.
    ///
    /// # Errors
    /// As [`Thread::trash`].
    pub fn restore(&self) -> Result<(), StoreError> {
        self.set_trashed(None)
    }

    fn set_trashed(&self, after: Option<OperationValue>) -> Result<(), StoreError> {
        let field = OperationField::Fact(TRASHED.to_owned());
        for attempt in 1.. {
            let fields = self.fields()?;
            let before = fields.into_iter().find(|(other, _)| *other == field).map(|(_, value)| value);
            if before == after {
                break;
            }
            let mut operation = NewOperation::new(OperationKind::Facts, self.store().now());
            let (thread, root) = (self.id().clone(), Namespace::root());
            operation.changes.push(OperationChange::new(thread, root, field.clone(), before, after.clone()));
            match self.operate(operation) {
                Err(StoreError::FieldConflict { .. }) if attempt < UPDATE_ATTEMPTS_MAX => {}
                done => return done.map(|_| ()),
            }
        }
        Ok(())
    }
}

impl Store {
    /// Deletes the threads whose time in the trash has ended, at most 1,000, and erases their rows as
    /// [`Store::delete_threads`] does. Handles that are open for writing do it in the background.
    ///
    /// # Errors
    /// As [`Store::delete_threads`]; [`StoreError::Read`], [`StoreError::Corrupt`].
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// let trip = store.thread("trip")?;
    /// trip.append("messages", [Message::human("hi")])?;
    /// trip.trash(Duration::ZERO)?;
    /// assert!(store.empty_trash()?.is_erased());
    /// assert!(trip.head()?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn empty_trash(&self) -> Result<Erasure, StoreError> {
        self.backend().flush();
        self.backend().erase(&Erase::Trash(self.now()))
    }
}
