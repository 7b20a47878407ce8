//! Facts about threads that their user states: title, project, labels, archived, pinned.
//!
//! Facts are fields that operations set, so that each change has an actor and a timestamp and can be undone. Facts that
//! follow from the log, such as the last activity or the status, are in [`ThreadInfo`](crate::store::ThreadInfo).
//! *Absent:* anything that a run reads.

use crate::base::limits::{FACT_BYTES_MAX, UPDATE_ATTEMPTS_MAX};
use crate::base::{Namespace, ThreadId};
use crate::store::log::LogReads;
use crate::store::operation::{NewOperation, OperationChange, OperationField, OperationKind, OperationValue};
use crate::store::threads::{ARCHIVED, PAUSED, PINNED, PROJECT, TITLE};
use crate::store::{LABELS, Store, StoreError, ThreadFacts};

use super::Thread;

/// Returns the content of each field.
fn fields(facts: &ThreadFacts) -> [(&'static str, Option<String>); 6] {
    let flag = |is_set: bool| is_set.then(|| "true".to_owned());
    let labels = || {
        let labels = facts.labels.iter().map(|label| serde_json::Value::from(label.as_str())).collect();
        serde_json::Value::Array(labels).to_string()
    };
    [
        (TITLE, facts.title.clone()),
        (PROJECT, facts.project.clone()),
        (LABELS, (!facts.labels.is_empty()).then(labels)),
        (ARCHIVED, flag(facts.is_archived)),
        (PINNED, flag(facts.is_pinned)),
        (PAUSED, flag(facts.is_paused)),
    ]
}

/// One statement about a fact.
#[derive(Clone, Debug)]
enum FactChange {
    Title(Option<String>),
    Project(Option<String>),
    Label(String),
    RemoveLabel(String),
    Archived(bool),
    Pinned(bool),
    Paused(bool),
}

/// Changes of the facts of one thread or several, which become one operation. Made by [`Thread::facts`] and
/// [`Store::facts`].
///
/// # Example
/// ```
/// use annals::prelude::*;
///
/// # fn main() -> Result<()> {
/// let store = Store::memory();
/// for name in ["trip", "diary"] {
///     store.thread(name)?.append("messages", [Message::human("hi")])?;
/// }
/// let trip = store.thread("trip")?;
/// trip.facts().title("Bern in May").project("home").label("travel").pinned(true).save()?;
/// store.facts(["trip", "diary"])?.archived(true).save()?;
/// assert!(store.thread("diary")?.info()?.facts.is_archived);
///
/// trip.undo()?.expect("the archiving of both is undone");
/// assert!(!store.thread("diary")?.info()?.facts.is_archived);
/// assert_eq!(trip.info()?.facts.title.as_deref(), Some("Bern in May"));
/// # Ok(())
/// # }
/// ```
#[must_use = "nothing is stored before `save`"]
#[derive(Clone, Debug)]
pub struct FactsUpdate {
    threads: Vec<Thread>,
    changes: Vec<FactChange>,
}

impl Thread {
    /// Starts a change of the facts of the thread.
    pub fn facts(&self) -> FactsUpdate {
        FactsUpdate { threads: vec![self.clone()], changes: Vec::new() }
    }
}

impl Store {
    /// Starts a change of the facts of several threads, which is one operation and is undone as one.
    ///
    /// # Errors
    /// As [`Store::thread`].
    pub fn facts(&self, threads: impl IntoIterator<Item = impl AsRef<str>>) -> Result<FactsUpdate, StoreError> {
        let mut found: Vec<Thread> = Vec::new();
        for id in threads {
            let thread = self.thread(id)?;
            if found.iter().all(|other| other.id() != thread.id()) {
                found.push(thread);
            }
        }
        Ok(FactsUpdate { threads: found, changes: Vec::new() })
    }
}

impl FactsUpdate {
    fn with(mut self, change: FactChange) -> Self {
        self.changes.push(change);
        self
    }

    /// Sets the title.
    pub fn title(self, title: impl Into<String>) -> Self {
        self.with(FactChange::Title(Some(title.into())))
    }

    /// Removes the title.
    pub fn remove_title(self) -> Self {
        self.with(FactChange::Title(None))
    }

    /// Sets the project.
    pub fn project(self, project: impl Into<String>) -> Self {
        self.with(FactChange::Project(Some(project.into())))
    }

    /// Removes the project.
    pub fn remove_project(self) -> Self {
        self.with(FactChange::Project(None))
    }

    /// Adds a label.
    pub fn label(self, label: impl Into<String>) -> Self {
        self.with(FactChange::Label(label.into()))
    }

    /// Removes a label.
    pub fn remove_label(self, label: impl Into<String>) -> Self {
        self.with(FactChange::RemoveLabel(label.into()))
    }

    /// Archives, or takes out of the archive: listings pass over an archived thread unless they ask for archived ones.
    pub fn archived(self, archived: bool) -> Self {
        self.with(FactChange::Archived(archived))
    }

    /// Pins, or unpins.
    pub fn pinned(self, pinned: bool) -> Self {
        self.with(FactChange::Pinned(pinned))
    }

    /// Pauses, or ends the pause: the workers of an executor pass a paused thread over.
    pub fn paused(self, paused: bool) -> Self {
        self.with(FactChange::Paused(paused))
    }

    /// Stores the changes as one durable operation; none if the facts are so already. If another writer is faster, they
    /// are applied to the facts that it left.
    ///
    /// # Errors
    /// [`StoreError::ThreadNotFound`] if a thread has no checkpoint yet; [`StoreError::Invalid`] if a fact has more
    /// than 64 KiB; [`StoreError::FieldConflict`] if other writers were faster 64 times in a row; as
    /// [`Log::operate`](crate::store::log::Log::operate).
    pub fn save(self) -> Result<(), StoreError> {
        let Some(first) = self.threads.first() else { return Ok(()) };
        first.store().flush_abandoned();
        let mut attempt = 1;
        loop {
            let mut operation = NewOperation::new(OperationKind::Facts, first.store().now());
            for thread in &self.threads {
                self.changes_of(thread, &mut operation.changes)?;
            }
            if operation.changes.is_empty() {
                return Ok(());
            }
            match first.operate(operation) {
                Err(StoreError::FieldConflict { .. }) if attempt < UPDATE_ATTEMPTS_MAX => attempt += 1,
                done => return done.map(|_| ()),
            }
        }
    }

    fn changes_of(&self, thread: &Thread, changes: &mut Vec<OperationChange>) -> Result<(), StoreError> {
        let before = thread.stated_facts()?;
        let mut after = before.clone();
        self.changes.iter().for_each(|change| change.apply(&mut after));
        for ((name, before), (_, after)) in fields(&before).into_iter().zip(fields(&after)) {
            if before == after {
                continue;
            }
            let bytes = after.as_ref().map_or(0, String::len);
            if bytes > FACT_BYTES_MAX {
                let reason = format!("{name} has {bytes} bytes, above the limit of {FACT_BYTES_MAX}");
                return Err(StoreError::Invalid { field: "fact", reason });
            }
            let value = |text: Option<String>| text.map(OperationValue::Text);
            let field = OperationField::Fact(name.to_owned());
            changes.push(OperationChange::new(
                ThreadId::clone(thread.id()),
                Namespace::root(),
                field,
                value(before),
                value(after),
            ));
        }
        Ok(())
    }
}

impl FactChange {
    fn apply(&self, facts: &mut ThreadFacts) {
        match self {
            Self::Title(title) => facts.title.clone_from(title),
            Self::Project(project) => facts.project.clone_from(project),
            Self::Label(label) => {
                if let Err(at) = facts.labels.binary_search(label) {
                    facts.labels.insert(at, label.clone());
                }
            }
            Self::RemoveLabel(label) => facts.labels.retain(|known| known != label),
            Self::Archived(archived) => facts.is_archived = *archived,
            Self::Pinned(pinned) => facts.is_pinned = *pinned,
            Self::Paused(paused) => facts.is_paused = *paused,
        }
    }
}

impl Thread {
    /// Returns the present values of the fields that operations set, sorted by field: facts, and the names of branches.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn fields(&self) -> Result<Vec<(OperationField, OperationValue)>, StoreError> {
        self.store().flush_abandoned();
        self.store().backend().fields(self.id())
    }

    /// Returns the facts that the users of the thread stated.
    fn stated_facts(&self) -> Result<ThreadFacts, StoreError> {
        ThreadFacts::of(self.fields()?)
    }
}
