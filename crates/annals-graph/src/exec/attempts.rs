//! The failed attempts of a task: stored, so that a run after a crash goes on with the attempt that follows them.
//!
//! A pause before another attempt that is longer than [`RETRY_PAUSE_MAX`] ends the run: the task sleeps, with an
//! interrupt of its own. Invariant: the number of failures counts from the last attempt that a policy did not retry.
//! *Absent:* policies.

use annals_runs::SpecialWrite;
use std::fmt::Display;
use std::time::Duration;

use crate::base::{Timestamp, Value};
use crate::limits::{ATTEMPT_ERROR_BYTES_MAX, ATTEMPTS_STORED_MAX, RETRY_PAUSE_MAX};
use crate::store::batch::NewWrite;
use crate::task::{Attempt, AttemptFailure, Attempts, Interrupt, interrupt_id};

use super::head::PendingWrites;
use super::load::special_of;
use super::save::special;

/// Returns whether a task of a run that stores its steps sleeps before another attempt, and the run ends meanwhile.
pub(super) fn is_long(pause: Duration) -> bool {
    pause > RETRY_PAUSE_MAX
}

/// Returns the interrupt of a task that sleeps before another attempt.
pub(super) fn attempt_interrupt(task_namespace: &str, wake_at: Timestamp) -> Interrupt {
    let id = interrupt_id(&format!("{task_namespace}|attempt"), 0);
    Interrupt { wake_at: Some(wake_at), ..Interrupt::new(Value::Null, id) }
}

/// Notes a failed attempt, which began at `began` if none in the same series came before.
pub(super) fn note(attempts: &mut Attempts, error: &dyn Display, began: Timestamp, now: Timestamp) {
    let began = attempts.next.filter(|_| attempts.failed > 0).unwrap_or(began.as_micros());
    let mut error = error.to_string();
    let whole = |at: &usize| error.is_char_boundary(*at);
    let end = (0..=ATTEMPT_ERROR_BYTES_MAX.min(error.len())).rev().find(whole).unwrap_or(0);
    error.truncate(end);
    if attempts.attempts.len() >= ATTEMPTS_STORED_MAX {
        attempts.attempts.remove(0);
    }
    attempts.attempts.push(AttemptFailure { started: began.min(now.as_micros()), ended: now.as_micros(), error });
    attempts.failed = attempts.failed.saturating_add(1);
    attempts.next = None;
    attempts.unsaved = true;
}

/// Notes that an attempt follows, and when.
pub(super) fn follow(attempts: &mut Attempts, attempt: Attempt, at: Timestamp) {
    (attempts.number, attempts.calls, attempts.next) = (attempt.number, attempt.calls, Some(at.as_micros()));
}

/// Notes the failure of the last attempt, if it was not the only one.
pub(super) fn end(attempts: &mut Attempts, error: &dyn Display, began: Timestamp, now: Timestamp) {
    if attempts.failed > 0 {
        note(attempts, error, began, now);
        (attempts.failed, attempts.next) = (0, None);
    }
}

/// Returns the write that stores the attempts, if they are not stored.
pub(super) fn take_write(attempts: &mut Attempts) -> Option<NewWrite> {
    if !std::mem::take(&mut attempts.unsaved) {
        return None;
    }
    let text = serde_json::to_string(attempts).ok()?;
    Some(special(SpecialWrite::Retries, text.as_str()))
}

/// Returns the stored attempts of a task.
pub(super) fn attempts_of(pending: &PendingWrites) -> Attempts {
    let stored = special_of(pending, SpecialWrite::Retries);
    stored.as_ref().and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
