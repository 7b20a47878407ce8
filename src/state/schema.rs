//! The fields of one state type, and the layout they make.

use std::sync::Arc;

use crate::base::{IdSource, Payload, PayloadRef, Value, WriteValue};
use crate::channel::{Cell, Effect};

use super::State;
use super::field::Field;
use super::layout::{FieldKind, Layout, StateError, StateRef};
use super::writes::BoxWrite;

/// The fields of a state `S` with their channels.
pub struct Schema<S> {
    fields: Vec<Field<S>>,
    initial: Arc<S>,
}

impl<S: Clone + Send + Sync + 'static> Schema<S> {
    /// Makes a schema from fields and the state before the first write.
    pub fn new(fields: Vec<Field<S>>, initial: S) -> Self {
        Self { fields, initial: Arc::new(initial) }
    }

    /// Returns the fields, in order.
    pub fn fields(&self) -> &[Field<S>] {
        &self.fields
    }

    /// Gives the instance to change: the one that is there if nobody shares it, else a copy.
    fn state_mut<'a>(&self, state: &'a mut StateRef) -> &'a mut S {
        if Arc::get_mut(state).is_none() {
            *state = Arc::new(self.state(state).clone());
        }
        match Arc::get_mut(state).and_then(|state| state.downcast_mut()) {
            Some(state) => state,
            None => unreachable!("a layout is only given its own states"),
        }
    }

    fn state<'a>(&self, state: &'a StateRef) -> &'a S {
        match state.downcast_ref() {
            Some(state) => state,
            None => unreachable!("a layout is only given its own states"),
        }
    }
}

impl<S: State> Schema<S> {
    /// Returns the schema of a derived state.
    pub fn of() -> Self {
        Self::new(S::fields(), S::default())
    }
}

impl<S: Clone + Send + Sync + 'static> Layout for Schema<S> {
    fn len(&self) -> usize {
        self.fields.len()
    }

    fn name(&self, field: usize) -> &Arc<str> {
        self.fields[field].name()
    }

    fn kind(&self, field: usize) -> FieldKind {
        self.fields[field].kind()
    }

    fn starts_present(&self, field: usize) -> bool {
        self.fields[field].starts_present()
    }

    fn may_idle(&self, field: usize) -> bool {
        self.fields[field].may_idle()
    }

    fn initial(&self) -> StateRef {
        Arc::clone(&self.initial) as StateRef
    }

    fn prepare(&self, field: usize, write: &mut BoxWrite, ids: &mut IdSource) {
        self.fields[field].ops().prepare(write, ids);
    }

    fn encode_write(&self, field: usize, write: &BoxWrite) -> Result<WriteValue, StateError> {
        let field = &self.fields[field];
        field.ops().encode_write(field.name(), write)
    }

    fn decode_write(&self, field: usize, stored: &WriteValue) -> Result<BoxWrite, StateError> {
        let field = &self.fields[field];
        field.ops().decode_write(field.name(), stored)
    }

    fn write_from_value(&self, field: usize, value: Value) -> Result<BoxWrite, StateError> {
        let field = &self.fields[field];
        field.ops().write_from_value(field.name(), value)
    }

    fn write_to_value(&self, field: usize, write: &BoxWrite) -> Result<Value, StateError> {
        let field = &self.fields[field];
        field.ops().write_to_value(field.name(), write)
    }

    fn update(
        &self,
        state: &mut StateRef,
        field: usize,
        present: &mut bool,
        writes: Vec<BoxWrite>,
    ) -> Result<Effect, StateError> {
        let state = self.state_mut(state);
        let field = &self.fields[field];
        let run = std::panic::AssertUnwindSafe(|| field.ops().update(field.name(), state, present, writes));
        std::panic::catch_unwind(run).unwrap_or_else(|panic| {
            Err(StateError::Panicked { channel: Arc::clone(field.name()), reason: crate::base::panic_text(&*panic) })
        })
    }

    fn idle(&self, state: &mut StateRef, field: usize, present: &mut bool) -> Effect {
        if *present { self.fields[field].ops().idle(self.state_mut(state), present) } else { Effect::Unchanged }
    }

    fn reset(&self, state: &mut StateRef, field: usize) {
        self.fields[field].ops().reset(self.state_mut(state));
    }

    fn encode(&self, state: &StateRef, field: usize) -> Result<Payload, StateError> {
        let field = &self.fields[field];
        field.ops().encode(field.name(), self.state(state))
    }

    fn load(&self, state: &mut StateRef, field: usize, stored: PayloadRef<'_>) -> Result<(), StateError> {
        let field = &self.fields[field];
        field.ops().load(field.name(), self.state_mut(state), stored)
    }

    fn load_item(
        &self,
        state: &mut StateRef,
        field: usize,
        slot: u64,
        stored: PayloadRef<'_>,
    ) -> Result<(), StateError> {
        let field = &self.fields[field];
        field.ops().load_item(field.name(), self.state_mut(state), slot, stored)
    }

    fn to_value(&self, state: &StateRef, field: usize) -> Result<Value, StateError> {
        let field = &self.fields[field];
        field.ops().to_value(field.name(), self.state(state))
    }
}

/// Lends a field to a rule.
pub(super) fn cell<'a, T>(value: &'a mut T, present: &'a mut bool) -> Cell<'a, T> {
    Cell { value, present }
}
