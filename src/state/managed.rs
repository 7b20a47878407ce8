//! Fields that the executor fills for each task: nothing writes or stores them.

use std::sync::Arc;

use crate::base::{Payload, PayloadRef, Value, WriteValue};
use crate::channel::Effect;

use super::error::StateError;
use super::field::{FieldOps, wrong_type};
use super::writes::BoxWrite;

/// A managed value of LangGraph.
pub(super) struct ManagedField<F, G> {
    set: F,
    get: G,
}

impl<F, G> ManagedField<F, G> {
    /// `set` is given how many supersteps are left.
    pub(super) fn new(set: F, get: G) -> Self {
        Self { set, get }
    }
}

fn refused<T>(name: &Arc<str>) -> Result<T, StateError> {
    Err(wrong_type::<()>(name, "a write: its value is managed"))
}

impl<S, F, G> FieldOps<S> for ManagedField<F, G>
where
    F: Fn(&mut S, i64) + Send + Sync,
    G: Fn(&S) -> Value + Send + Sync,
{
    fn takes(&self, _: &BoxWrite) -> bool {
        false
    }

    fn encode_write(&self, name: &Arc<str>, _: &BoxWrite) -> Result<WriteValue, StateError> {
        refused(name)
    }

    fn decode_write(&self, name: &Arc<str>, _: &WriteValue) -> Result<BoxWrite, StateError> {
        refused(name)
    }

    fn write_from_value(&self, name: &Arc<str>, _: Value) -> Result<BoxWrite, StateError> {
        refused(name)
    }

    fn write_to_value(&self, name: &Arc<str>, _: &BoxWrite) -> Result<Value, StateError> {
        refused(name)
    }

    fn update(&self, name: &Arc<str>, _: &mut S, _: &mut bool, _: Vec<BoxWrite>) -> Result<Effect, StateError> {
        refused(name)
    }

    fn idle(&self, _: &mut S, _: &mut bool) -> Effect {
        Effect::Unchanged
    }

    fn reset(&self, _: &mut S) {}

    fn encode(&self, name: &Arc<str>, _: &S) -> Result<Payload, StateError> {
        refused(name)
    }

    fn load(&self, _: &Arc<str>, _: &mut S, _: PayloadRef<'_>) -> Result<(), StateError> {
        // A file may hold a channel of this name from before it was managed.
        Ok(())
    }

    fn load_item(&self, _: &Arc<str>, _: &mut S, _: u64, _: PayloadRef<'_>) -> Result<(), StateError> {
        Ok(())
    }

    fn to_value(&self, _: &Arc<str>, state: &S) -> Result<Value, StateError> {
        Ok((self.get)(state))
    }

    fn set(&self, _: &Arc<str>, _: &mut S, _: Value) -> Result<(), StateError> {
        Ok(())
    }

    fn copy(&self, _: &S, _: &mut S) {}

    fn set_managed(&self, state: &mut S, remaining: i64) {
        (self.set)(state, remaining);
    }
}
