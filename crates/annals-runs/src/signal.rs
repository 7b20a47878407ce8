//! Signals: values that are sent to a thread from outside, and that its tasks receive.
//!
//! The mailbox of a thread is a namespace of its own with a list channel for each name, so it is durable, encrypted,
//! checked, copied and deleted as all state is, and can be filled before the thread has a run. A signal leaves it in
//! the commit that stores it as the resume value of the task that receives it; one for which a task waits never lies
//! there, so a sender that is killed leaves no task waiting for what is stored. *Absent:* waiting, which a task does.
//!
//! Invariant: a signal is received once, and a resume value from outside is not overwritten: every commit that adds a
//! signal or stores resume values names the head of the mailbox and moves it. The end of a receive whose timeout has
//! passed is a resume value too, null: no signal is given to a receive that has ended.

use annals::Error;

use crate::base::limits::UPDATE_ATTEMPTS_MAX;
use crate::base::{CheckpointId, Map, Value};
use crate::control::cancel_reason;
use crate::history::{NewItem, Snapshot, Thread};
use crate::interrupts::{OpenInterrupt, WaitingTasks};
use crate::resume_value::signal_resume_value;
use crate::store::batch::{Batch, Change, ChangeValue, ItemChange, ItemOp, NewCheckpoint, Parent};
use crate::store::log::LogExt;
use crate::store::record::{ChannelValue, ThreadSize};
use crate::store::{ItemRange, Source, StoreError};

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

pub(crate) fn signal(thread: &Thread, name: &str, value: impl Into<Value>) -> Result<CheckpointId, Error> {
    if name.is_empty() {
        let reason = "it is empty: a signal has a name".to_owned();
        return Err(StoreError::Invalid { field: "signal name", reason }.into());
    }
    if cancel_reason(thread)?.is_some() {
        return Err(StoreError::ThreadEnded { thread: thread.id().clone(), status: "cancelled" }.into());
    }
    let value = value.into();
    if let Some(sent) = hand_over(thread, name, &value)? {
        return Ok(sent);
    }
    let sent = mailbox(thread)?.append(name, [NewItem::Value(value)])?;
    // For a task that began to wait meanwhile. Errors are dropped: the signal is stored, and is delivered with the next
    // one, by the next run, or by a worker that begins.
    _ = deliver_signals(thread);
    Ok(sent)
}

/// Stores a signal as the resume value of a task that waits for it. Returns the checkpoint of the mailbox that says so;
/// `None` if no task waits, or if signals of the name are in the mailbox, which come first.
fn hand_over(thread: &Thread, name: &str, value: &Value) -> Result<Option<CheckpointId>, StoreError> {
    for _ in 0..UPDATE_ATTEMPTS_MAX {
        let (mailbox, Some(waiting)) = waiting(thread)? else { return Ok(None) };
        let now = thread.store().now();
        let open = waiting.open();
        let receive = open.iter().find(|interrupt| {
            interrupt.signal.as_deref() == Some(name)
                && !waiting.is_given(&interrupt.id)
                && interrupt.wake_at.is_none_or(|wake_at| wake_at > now)
        });
        let Some(receive) = receive else { return Ok(None) };
        let before = mailbox.as_ref().map_or_else(|| Ok(Vec::new()), waiting_signals)?;
        if before.iter().any(|signal| signal.name == name) {
            return Ok(None);
        }
        let value = signal_resume_value(value.clone());
        let mut batch = waiting.resumed(thread, Map::from_iter([(receive.id.clone(), value)]))?;
        let of_mailbox = without(thread, mailbox.as_ref(), &[])?;
        let sent = of_mailbox.checkpoints.first().map(|checkpoint| checkpoint.id);
        batch.then.push(of_mailbox);
        match thread.store().commit(&batch) {
            Ok(()) => return Ok(sent),
            Err(StoreError::Conflict { .. } | StoreError::StaleId { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

pub(crate) fn signals(thread: &Thread) -> Result<Vec<WaitingSignal>, StoreError> {
    match mailbox(thread)?.head()? {
        Some(mailbox) => waiting_signals(&mailbox),
        None => Ok(Vec::new()),
    }
}

pub(crate) fn deliver_signals(thread: &Thread) -> Result<bool, StoreError> {
    let mut attempt = 1;
    loop {
        match deliver_signals_once(thread) {
            Err(StoreError::Conflict { .. } | StoreError::StaleId { .. }) if attempt < UPDATE_ATTEMPTS_MAX => {
                attempt += 1;
            }
            done => return done,
        }
    }
}

pub(crate) fn size(thread: &Thread) -> Result<ThreadSize, StoreError> {
    let mut size = thread.store().backend().thread_size(thread.id())?;
    let mailbox = mailbox(thread)?;
    if let Some(newest) = mailbox.head()? {
        let first = thread.store().backend().ancestors(newest.point(), &[0])?.pop().flatten();
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

fn mailbox(thread: &Thread) -> Result<Thread, StoreError> {
    thread.in_namespace(MAILBOX)
}

/// Reads the head of the mailbox, and after it the tasks that wait: resume values that are stored for them
/// meanwhile move the head of the mailbox, so a commit that names it is refused. `None` for a thread without a
/// head.
pub(crate) fn waiting(thread: &Thread) -> Result<(Option<Snapshot>, Option<WaitingTasks>), StoreError> {
    let mailbox = mailbox(thread)?.head()?;
    Ok((mailbox, WaitingTasks::read(thread)?))
}

fn deliver_signals_once(thread: &Thread) -> Result<bool, StoreError> {
    let needs_delivery = |waiting: &WaitingTasks| {
        let of = |interrupt: &OpenInterrupt| interrupt.signal.is_some() || waiting.is_given(&interrupt.id);
        waiting.open().iter().any(of)
    };
    if !WaitingTasks::read(thread)?.is_some_and(|waiting| needs_delivery(&waiting)) {
        return Ok(false);
    }
    let (mailbox, Some(waiting)) = waiting(thread)? else { return Ok(false) };
    let open = waiting.open();
    let is_given = open.iter().any(|interrupt| waiting.is_given(&interrupt.id));
    let receives = open.iter().filter(|interrupt| interrupt.signal.is_some() && !waiting.is_given(&interrupt.id));
    let mut signals = mailbox.as_ref().map_or_else(|| Ok(Vec::new()), waiting_signals)?;
    let (mut values, mut taken) = (Map::new(), Vec::new());
    let now = thread.store().now();
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
    store_resume_values(thread, &waiting, values, mailbox.as_ref(), &taken).map(|()| true)
}

/// Stores resume values, and takes signals out of the mailbox. The commit moves the head of the mailbox, so of two
/// that were made from the same state one is refused.
pub(crate) fn store_resume_values(
    thread: &Thread,
    waiting: &WaitingTasks,
    values: Map,
    mailbox: Option<&Snapshot>,
    taken: &[WaitingSignal],
) -> Result<(), StoreError> {
    let mut batch = waiting.resumed(thread, values)?;
    batch.then.push(without(thread, mailbox, taken)?);
    thread.store().commit(&batch)
}

/// Returns the batch that takes signals out of the mailbox.
fn without(thread: &Thread, head: Option<&Snapshot>, taken: &[WaitingSignal]) -> Result<Batch, StoreError> {
    let (store, parent) = (thread.store(), head.map(Snapshot::id));
    let step = head.map_or(0, |mailbox| mailbox.step() + 1);
    let id = store.mint_checkpoint(step, parent.as_ref());
    let mut checkpoint = NewCheckpoint::new(id, parent.map(Parent::Local), step, Source::Update, store.now());
    let channels = head.filter(|_| !taken.is_empty()).map(Snapshot::state_record).transpose()?;
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
    let mut batch = Batch::new(thread.id().clone(), mailbox(thread)?.namespace().clone(), parent);
    batch.checkpoints.push(checkpoint);
    Ok(batch)
}

fn waiting_signals(mailbox: &Snapshot) -> Result<Vec<WaitingSignal>, StoreError> {
    let mut signals = Vec::new();
    for channel in mailbox.state_record()?.channels {
        if channel.value != ChannelValue::Items {
            continue;
        }
        let name = channel.channel.to_string();
        let add = &mut |row: crate::store::record::ItemRow<'_>| {
            let value = row.to_value()?;
            signals.push(WaitingSignal { name: name.clone(), value, position: row.position });
            Ok(())
        };
        mailbox.store().backend().items(mailbox.point(), &channel.channel, ItemRange::All, add)?;
    }
    Ok(signals)
}
