//! Signals: values that are sent to a thread from outside, and that its tasks receive.
//!
//! The mailbox of a thread is a namespace of its own with a list channel for each name, so it is durable, encrypted,
//! checked, copied and deleted as all state is, and can be filled before the thread has a run. A signal leaves it in
//! the commit that stores it as the resume value of the task that receives it. *Absent:* waiting, which a task does.
//!
//! Invariant: a signal is received once, and a resume value from outside is not overwritten: every commit that adds a
//! signal or stores resume values names the head of the mailbox and moves it. The end of a receive whose timeout has
//! passed is a resume value too, null: no signal is given to a receive that has ended.

use crate::base::limits::UPDATE_ATTEMPTS_MAX;
use crate::base::{CheckpointId, Map, Namespace, Value};
use crate::error::Error;
use crate::state::signal_resume_value;
use crate::store::batch::{Change, ChangeValue, ItemChange, ItemOp};
use crate::store::{
    Batch, ChannelValue, ItemRange, LogExt, NewCheckpoint, Parent, Source, Store, StoreError, ThreadSize,
};

use super::interrupts::{OpenInterrupt, WaitingTasks};
use crate::history::read::snapshot::{Snapshot, item_value};
use crate::history::thread::Thread;
use crate::history::write::NewItem;

/// The path of the namespace that holds the mailbox of a thread: as that of a task, so that no move of the head takes
/// it along.
const MAILBOX: &str = "signals:mailbox";

/// A signal that lies in the mailbox of a thread.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WaitingSignal {
    /// The name.
    pub name: String,
    /// The value.
    pub value: Value,
    position: u64,
}

impl Store {
    /// Sends a signal to a thread: [`Thread::signal`].
    ///
    /// # Errors
    /// As [`Thread::signal`]; [`StoreError::Id`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// store.signal("order-17", "review", true)?;
    /// store.signal("order-17", "review", false)?;
    /// let waiting = store.thread("order-17")?.signals()?;
    /// let values: Vec<_> = waiting.iter().map(|signal| (signal.name.as_str(), signal.value.clone())).collect();
    /// assert_eq!(values, [("review", true.into()), ("review", false.into())]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn signal(&self, thread: impl AsRef<str>, name: &str, value: impl Into<Value>) -> Result<CheckpointId, Error> {
        self.thread(thread)?.signal(name, value)
    }
}

impl Thread {
    /// Sends a signal to the thread: a value under a name, which one task receives once (`Context::receive` of the
    /// executor). It is durable when this returns. The thread need not exist: its first run finds the signal. Signals
    /// of one name are received in the order in which they were sent; those that no task receives lie in the mailbox
    /// until the thread is deleted. Returns the checkpoint of the mailbox.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the name is empty, longer than 256 bytes, or holds a NUL; [`StoreError::ThreadEnded`]
    /// if the thread is cancelled; [`StoreError::Conflict`] if other writers were faster 64 times in a row; as
    /// [`Log::submit`](crate::store::Log::submit).
    pub fn signal(&self, name: &str, value: impl Into<Value>) -> Result<CheckpointId, Error> {
        if name.is_empty() {
            let reason = "it is empty: a signal has a name".to_owned();
            return Err(StoreError::Invalid { field: "signal name", reason }.into());
        }
        if self.cancel_reason()?.is_some() {
            return Err(StoreError::ThreadEnded { thread: self.id().clone(), status: "cancelled" }.into());
        }
        self.mailbox()?.append(name, [NewItem::Value(value.into())])
    }

    /// Returns the signals in the mailbox of the thread, by name, those of one name in the order in which they were
    /// sent.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`], [`StoreError::Codec`].
    pub fn signals(&self) -> Result<Vec<WaitingSignal>, StoreError> {
        match self.mailbox()?.head()? {
            Some(mailbox) => waiting_signals(&mailbox),
            None => Ok(Vec::new()),
        }
    }

    /// Gives signals of the mailbox to the tasks that wait for them, ends the receives whose timeout has passed and for
    /// which there is none, and makes tasks due whose interrupts have stored resume values. An executor calls it before
    /// it continues a thread, when a run has stored interrupts, and when a checkpoint of the mailbox appears. Returns
    /// whether a task was made due.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if other writers were faster 64 times in a row; [`StoreError::Read`],
    /// [`StoreError::Corrupt`], [`StoreError::Codec`]; as [`Log::submit`](crate::store::Log::submit).
    pub fn deliver_signals(&self) -> Result<bool, StoreError> {
        let mut attempt = 1;
        loop {
            match self.deliver_signals_once() {
                Err(StoreError::Conflict { .. } | StoreError::StaleId { .. }) if attempt < UPDATE_ATTEMPTS_MAX => {
                    attempt += 1;
                }
                done => return done,
            }
        }
    }

    /// Counts the checkpoints and branches of the thread in all its namespaces but the mailbox: a signal is not a step
    /// of it. The cost is that of [`LogExt::thread_size`](crate::store::LogExt::thread_size).
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let order = Store::memory().thread("order-17")?;
    /// order.set("paid", false)?;
    /// order.signal("review", true)?;
    /// assert_eq!(order.size()?.checkpoints, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn size(&self) -> Result<ThreadSize, StoreError> {
        let mut size = self.store().backend().thread_size(self.id())?;
        let mailbox = self.mailbox()?;
        if let Some(newest) = mailbox.head()? {
            let first = self.store().backend().ancestors(newest.point(), &[0])?.pop().flatten();
            // A mailbox is one line: each of its checkpoints is on the one before. If some were pruned, the others are
            // counted.
            let kept = match first {
                Some(first) if !first.pruned => newest.record().ordinal.saturating_add(1),
                _ => mailbox.history()?.try_fold(0_u64, |count, at| at.map(|_| count + 1))?,
            };
            size.checkpoints = size.checkpoints.saturating_sub(kept);
            size.branches = size.branches.saturating_sub(1);
        }
        Ok(size)
    }

    /// Returns whether a namespace is the mailbox of its thread.
    pub fn is_mailbox(namespace: &Namespace) -> bool {
        namespace.as_str() == MAILBOX
    }

    fn mailbox(&self) -> Result<Self, StoreError> {
        self.in_namespace(MAILBOX)
    }

    /// Reads the head of the mailbox, and after it the tasks that wait: resume values that are stored for them
    /// meanwhile move the head of the mailbox, so a commit that names it is refused. `None` for a thread without a
    /// head.
    pub(crate) fn waiting(&self) -> Result<(Option<Snapshot>, Option<WaitingTasks>), StoreError> {
        let mailbox = self.mailbox()?.head()?;
        Ok((mailbox, WaitingTasks::read(self)?))
    }

    fn deliver_signals_once(&self) -> Result<bool, StoreError> {
        let needs_delivery = |waiting: &WaitingTasks| {
            let of = |interrupt: &OpenInterrupt| interrupt.signal.is_some() || waiting.is_given(&interrupt.id);
            waiting.open().iter().any(of)
        };
        if !WaitingTasks::read(self)?.is_some_and(|waiting| needs_delivery(&waiting)) {
            return Ok(false);
        }
        let (mailbox, Some(waiting)) = self.waiting()? else { return Ok(false) };
        let open = waiting.open();
        let is_given = open.iter().any(|interrupt| waiting.is_given(&interrupt.id));
        let receives = open.iter().filter(|interrupt| interrupt.signal.is_some() && !waiting.is_given(&interrupt.id));
        let mut signals = mailbox.as_ref().map_or_else(|| Ok(Vec::new()), waiting_signals)?;
        let (mut values, mut taken) = (Map::new(), Vec::new());
        let now = self.store().now();
        for interrupt in receives {
            let found = signals.iter().position(|signal| Some(&signal.name) == interrupt.signal.as_ref());
            if let Some(found) = found {
                let signal = signals.remove(found);
                values.insert(interrupt.id.clone(), signal_resume_value(signal.value.clone()));
                taken.push(signal);
            } else if interrupt.wake_at.is_some_and(|wake_at| wake_at <= now) {
                values.insert(interrupt.id.clone(), Value::Null);
            }
        }
        if values.is_empty() && !is_given {
            return Ok(false);
        }
        self.store_resume_values(&waiting, values, mailbox.as_ref(), &taken).map(|()| true)
    }

    /// Stores resume values, and takes signals out of the mailbox. The commit moves the head of the mailbox, so of two
    /// that were made from the same state one is refused.
    pub(crate) fn store_resume_values(
        &self,
        waiting: &WaitingTasks,
        values: Map,
        mailbox: Option<&Snapshot>,
        taken: &[WaitingSignal],
    ) -> Result<(), StoreError> {
        let mut batch = waiting.resumed(self, values)?;
        batch.then.push(self.taken(mailbox, taken)?);
        self.store().commit(&batch)
    }

    /// Returns the batch that takes signals out of the mailbox.
    fn taken(&self, mailbox: Option<&Snapshot>, taken: &[WaitingSignal]) -> Result<Batch, StoreError> {
        let (store, parent) = (self.store(), mailbox.map(Snapshot::id));
        let step = mailbox.map_or(0, |mailbox| mailbox.step() + 1);
        let id = store.mint_checkpoint(step, parent.as_ref());
        let mut checkpoint = NewCheckpoint::new(id, parent.map(Parent::Local), step, Source::Update, store.now());
        let channels = mailbox.filter(|_| !taken.is_empty()).map(Snapshot::state_record).transpose()?;
        for channel in channels.map(|state| state.channels).unwrap_or_default() {
            let of_channel = taken.iter().filter(|signal| signal.name == *channel.channel);
            let mut deletes: Vec<_> =
                of_channel.map(|signal| ItemChange::new(signal.position, ItemOp::Delete, None)).collect();
            deletes.sort_by_key(|delete| delete.position);
            if !deletes.is_empty() {
                let value = ChangeValue::Items(deletes);
                checkpoint.changes.push(Change::new(channel.channel, channel.version + 1, value));
            }
        }
        let mut batch = Batch::new(self.id().clone(), self.mailbox()?.namespace().clone(), parent);
        batch.checkpoints.push(checkpoint);
        Ok(batch)
    }
}

fn waiting_signals(mailbox: &Snapshot) -> Result<Vec<WaitingSignal>, StoreError> {
    let mut signals = Vec::new();
    for channel in mailbox.state_record()?.channels {
        if channel.value != ChannelValue::Items {
            continue;
        }
        let name = channel.channel.to_string();
        let add = &mut |row: crate::store::ItemRow<'_>| {
            let value = item_value(row.payload)?;
            signals.push(WaitingSignal { name: name.clone(), value, position: row.position });
            Ok(())
        };
        mailbox.store().backend().items(mailbox.point(), &channel.channel, ItemRange::All, add)?;
    }
    Ok(signals)
}
