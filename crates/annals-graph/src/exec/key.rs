//! Commands of runs with an idempotency key: the record of a stored command, should its run be repeated.
//!
//! A run that made a checkpoint is found by its id. A command may be stored without a checkpoint: its record is stored
//! beside it, with the interrupt that its resume value was for. *Absent:* looking for runs.

use crate::base::NULL_TASK;
use crate::base::{Map, RunId, Value};
use crate::graph::Command;
use crate::store::batch::NewWrite;
use annals_runs::SpecialWrite;

use super::begin::resume_values_by_id;
use super::effect::RunStart;
use super::head::Head;
use super::load::special_of;
use super::machine::Machine;
use super::save::special;

impl RunStart {
    /// Returns the start of a run with an idempotency key that has made no checkpoint, without the parts of its command
    /// that are stored already. A resume value is addressed to the open interrupt by its id, so that it never resumes
    /// another one.
    pub(crate) fn with_key(self, head: &Head, run: RunId) -> Self {
        let by_id = |value: &Value, interrupt: &str| match resume_values_by_id(value) {
            Some(_) => value.clone(),
            None => Value::Map([(interrupt.to_owned(), value.clone())].into_iter().collect()),
        };
        match (head.keys().get(&run.to_string()), self) {
            (Some(Value::Str(interrupt)), Self::Command(command)) => {
                Self::Repeat(command.resume.map(|value| by_id(&value, interrupt)))
            }
            (Some(_), Self::Command(command)) => {
                Self::Repeat(command.resume.filter(|value| resume_values_by_id(value).is_some()))
            }
            (None, Self::Command(command)) => match head.asking() {
                Some(interrupt) => {
                    let resume = command.resume.filter(|value| !value.is_null());
                    Self::Command(Command { resume: resume.map(|value| by_id(&value, &interrupt)), ..command })
                }
                None => Self::Command(command),
            },
            (_, start) => start,
        }
    }
}

impl Head {
    /// Returns the stored commands with a key: by the ids of their runs, the interrupts that they resumed.
    fn keys(&self) -> Map {
        match self.pending_of(NULL_TASK).and_then(|pending| special_of(pending, SpecialWrite::Keys)) {
            Some(Value::Map(keys)) => keys,
            _ => Map::new(),
        }
    }

    /// Returns the only interrupt that waits for a resume value; `None` if there are several, or none.
    fn asking(&self) -> Option<String> {
        let mut open = self.open().into_iter().filter(|interrupt| interrupt.wake_at.is_none());
        open.next().filter(|_| open.next().is_none()).map(|interrupt| interrupt.id)
    }
}

impl Machine {
    /// Notes that the command of this run is stored, if it has a key.
    pub(super) fn key_write(&self) -> Option<NewWrite> {
        let run = self.commits.recording.as_ref().map(|recording| recording.run).filter(RunId::is_of_key)?;
        let mut keys = self.head.keys();
        if !self.planning.repeats {
            keys.insert(run.to_string(), self.head.asking().map(Value::from).unwrap_or_default());
        }
        Some(special(SpecialWrite::Keys, &Value::Map(keys)))
    }
}
