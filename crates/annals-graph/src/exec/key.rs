//! Commands of runs with an idempotency key: what of them is stored, should the run be repeated.
//!
//! A run that made a checkpoint is found by its id. A command may be stored without one: it is noted beside what is
//! stored of it, with the question that its answer was for. *Absent:* looking for runs.

use crate::base::id::NULL_TASK;
use crate::base::{Map, RunId, Value};
use crate::graph::Command;
use crate::store::NewWrite;

use super::begin::answers_by_id;
use super::effect::Start;
use super::head::{Head, KEYS};
use super::load::special_of;
use super::machine::Machine;
use super::save::special;

impl Start {
    /// Returns the start of a run with an idempotency key that has made no checkpoint: without what is stored of its
    /// command. An answer is given to the question that is open, by its id, so that it never answers another one.
    pub(crate) fn with_key(self, head: &Head, run: RunId) -> Self {
        let by_id = |answer: &Value, question: &str| match answers_by_id(answer) {
            Some(_) => answer.clone(),
            None => Value::Map([(question.to_owned(), answer.clone())].into_iter().collect()),
        };
        match (head.keys().get(&run.to_string()), self) {
            (Some(Value::Str(question)), Self::Command(command)) => {
                Self::Repeat(command.resume.map(|answer| by_id(&answer, question)))
            }
            (Some(_), Self::Command(command)) => {
                Self::Repeat(command.resume.filter(|answer| answers_by_id(answer).is_some()))
            }
            (None, Self::Command(command)) => match head.asking() {
                Some(question) => {
                    let resume = command.resume.filter(|answer| !answer.is_null());
                    Self::Command(Command { resume: resume.map(|answer| by_id(&answer, &question)), ..command })
                }
                None => Self::Command(command),
            },
            (_, start) => start,
        }
    }
}

impl Head {
    /// Returns which commands with a key are stored: by the ids of their runs, the questions they answered.
    fn keys(&self) -> Map {
        match self.pending_of(NULL_TASK).and_then(|pending| special_of(pending, KEYS)) {
            Some(Value::Map(keys)) => keys,
            _ => Map::new(),
        }
    }

    /// Returns the one question that waits for an answer; `None` if there is none, or more than one.
    fn asking(&self) -> Option<String> {
        let mut open = self.open().into_iter().filter(|question| question.wake_at.is_none());
        open.next().filter(|_| open.next().is_none()).map(|question| question.id)
    }
}

impl Machine {
    /// Notes that the command of this run is stored, if it has a key.
    pub(super) fn key_write(&self) -> Option<NewWrite> {
        let run = self.recording.as_ref().map(|recording| recording.run).filter(RunId::is_of_key)?;
        let mut keys = self.head.keys();
        if !self.repeats {
            keys.insert(run.to_string(), self.head.asking().map(Value::from).unwrap_or_default());
        }
        Some(special(KEYS, &Value::Map(keys)))
    }
}
