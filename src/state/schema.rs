//! The fields of one state type, and the layout they make.

use std::any::{Any, TypeId};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::{IdSource, ListDelta, ListRef, Payload, PayloadRef, Value, WriteValue};
use crate::channel::{Cell, ChannelEffect};

use super::State;
use super::erased_field::{ErasedField, Migrations};
use super::error::StateError;
use super::field::{Field, ListOps, StoredItems};
use super::given::ListRule;
use super::layout::{FieldKind, Layout, ListLoader, StateRef};
use super::writes::BoxWrite;

/// The number of the next schema.
static SCHEMAS: AtomicUsize = AtomicUsize::new(0);

/// How a state that knows which of its channels hold something is asked and told.
pub(super) struct Presence<S> {
    pub(super) get: fn(&S, usize) -> bool,
    pub(super) set: fn(&mut S, usize, bool),
}

/// The fields of a state `S` with their channels.
pub struct Schema<S> {
    fields: Vec<Field<S>>,
    initial: Arc<S>,
    id: usize,
    pub(super) presence: Option<Presence<S>>,
    migrations: Migrations,
    /// Names that were given to different channels.
    pub(super) conflicts: Vec<Arc<str>>,
}

impl<S: Clone + Send + Sync + 'static> Schema<S> {
    /// Makes a schema from fields and the state before the first write.
    pub fn new(fields: Vec<Field<S>>, initial: S) -> Self {
        let (presence, migrations, conflicts) = (None, Migrations::default(), Vec::new());
        let id = SCHEMAS.fetch_add(1, Ordering::Relaxed);
        Self { fields, initial: Arc::new(initial), id, presence, migrations, conflicts }
    }

    /// Says how a stored value of a channel is brought over, if it does not fit the type that the channel has now. An
    /// item of a list channel is brought over by itself. Stored values are not changed. A channel that does not exist
    /// is passed over.
    ///
    /// # Errors
    /// An error of the migration is [`StateError::Migration`] of the read that called it.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Old { size: String }
    /// #[derive(State, Clone, Default)]
    /// struct New { size: i64 }
    ///
    /// # fn main() -> Result<()> {
    /// let thread = Store::memory().thread("a")?;
    /// thread.update(Old::update().size("42"))?;
    ///
    /// let schema = Schema::<New>::of().migrate("size", |value| match value.as_str() {
    ///     Some(text) => text.parse::<i64>().map(Value::from).map_err(|error| error.to_string()),
    ///     None => Err("it is not a text".into()),
    /// });
    /// assert_eq!(thread.with_schema(schema).state()?.size, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn migrate(
        mut self,
        channel: &str,
        migration: impl Fn(Value) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        if let Some(field) = self.fields.iter().position(|field| &**field.name() == channel) {
            self.migrations.push(field, Arc::new(migration));
        }
        self
    }

    /// Returns the number of the schema: no other one of this process has it.
    pub(crate) fn id(&self) -> usize {
        self.id
    }

    /// Returns the names that were given to different channels.
    pub fn conflicts(&self) -> &[Arc<str>] {
        &self.conflicts
    }

    /// Returns a field without the type of its state.
    fn erased(&self, field: usize) -> ErasedField<'_> {
        let of = &self.fields[field];
        ErasedField { number: field, name: of.name(), ops: of.ops(), migrations: &self.migrations }
    }

    /// Returns the value of a field.
    fn get<'a>(&self, state: &'a StateRef, field: usize) -> &'a dyn Any {
        self.fields[field].place().get(self.state(state))
    }

    /// Returns the value of a field, to change it.
    fn get_mut<'a>(&self, state: &'a mut StateRef, field: usize) -> &'a mut dyn Any {
        self.fields[field].place().get_mut(self.state_mut(state))
    }

    /// Tells a state that knows it whether a channel holds something.
    fn mark(&self, state: &mut StateRef, field: usize, present: bool) {
        if let Some(presence) = &self.presence {
            (presence.set)(self.state_mut(state), field, present);
        }
    }

    /// Returns the fields, in order.
    pub fn fields(&self) -> &[Field<S>] {
        &self.fields
    }

    /// Returns the instance to change: itself if it is not shared, else a copy.
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

    fn is_private(&self, field: usize) -> bool {
        self.fields[field].is_private()
    }

    fn is_dynamic(&self) -> bool {
        self.presence.is_some()
    }

    fn state_type(&self) -> TypeId {
        TypeId::of::<S>()
    }

    fn initial(&self) -> StateRef {
        Arc::clone(&self.initial) as StateRef
    }

    fn prepare(&self, field: usize, write: &mut BoxWrite, ids: &mut IdSource) {
        self.fields[field].ops().prepare(write, ids);
    }

    fn takes(&self, field: usize, write: &BoxWrite) -> bool {
        self.fields[field].ops().takes(write)
    }

    fn encode_write(&self, field: usize, write: &BoxWrite) -> Result<WriteValue, StateError> {
        let of = &self.fields[field];
        of.ops().encode_write(of.name(), write)
    }

    fn decode_write(&self, field: usize, stored: &WriteValue) -> Result<BoxWrite, StateError> {
        self.erased(field).decode_write(stored)
    }

    fn write_from_value(&self, field: usize, value: Value) -> Result<BoxWrite, StateError> {
        let of = &self.fields[field];
        of.ops().write_from_value(of.name(), value)
    }

    fn write_to_value(&self, field: usize, write: &BoxWrite) -> Result<Value, StateError> {
        let of = &self.fields[field];
        of.ops().write_to_value(of.name(), write)
    }

    fn update(
        &self,
        state: &mut StateRef,
        field: usize,
        present: &mut bool,
        writes: Vec<BoxWrite>,
    ) -> Result<ChannelEffect, StateError> {
        let effect = self.erased(field).update(self.get_mut(state, field), present, writes);
        self.mark(state, field, *present);
        effect
    }

    fn idle(&self, state: &mut StateRef, field: usize, present: &mut bool) -> ChannelEffect {
        if !*present {
            return ChannelEffect::Unchanged;
        }
        let effect = self.fields[field].ops().idle(self.get_mut(state, field), present);
        self.mark(state, field, *present);
        effect
    }

    fn reset(&self, state: &mut StateRef, field: usize) {
        self.fields[field].ops().reset(self.get_mut(state, field));
        self.mark(state, field, self.fields[field].starts_present());
    }

    fn encode(&self, state: &StateRef, field: usize) -> Result<Payload, StateError> {
        let of = &self.fields[field];
        of.ops().encode(of.name(), self.get(state, field))
    }

    fn load(&self, state: &mut StateRef, field: usize, stored: PayloadRef<'_>) -> Result<(), StateError> {
        self.erased(field).load(self.get_mut(state, field), stored)?;
        self.mark(state, field, true);
        Ok(())
    }

    fn load_list(&self, field: usize) -> Result<Box<dyn ListLoader + '_>, StateError> {
        let field = self.erased(field);
        Ok(Box::new(SchemaLoader { schema: self, field, items: field.items()? }))
    }

    fn to_value(&self, state: &StateRef, field: usize) -> Result<Value, StateError> {
        let of = &self.fields[field];
        match of.kind() {
            FieldKind::Managed => Ok(of.place().managed(self.state(state))),
            _ => of.ops().to_value(of.name(), self.get(state, field)),
        }
    }

    fn set(&self, state: &mut StateRef, field: usize, value: Value) -> Result<(), StateError> {
        let of = &self.fields[field];
        of.ops().set(of.name(), self.get_mut(state, field), value)?;
        self.mark(state, field, true);
        Ok(())
    }

    fn project(&self, state: &StateRef, fields: &[usize]) -> StateRef {
        let (from, mut to) = (self.state(state), S::clone(&self.initial));
        for field in fields {
            let of = &self.fields[*field];
            of.ops().copy(of.place().get(from), of.place().get_mut(&mut to));
            if let Some(presence) = &self.presence {
                (presence.set)(&mut to, *field, (presence.get)(from, *field));
            }
        }
        Arc::new(to)
    }

    fn with_managed(&self, state: &StateRef, remaining: i64) -> StateRef {
        let mut state = self.state(state).clone();
        for field in self.fields.iter().filter(|field| field.kind() == FieldKind::Managed) {
            field.place().set_managed(&mut state, remaining);
        }
        Arc::new(state)
    }

    fn list(&self, state: &StateRef, field: usize) -> Option<StateRef> {
        self.fields[field].ops().list(self.get(state, field))
    }

    fn holds_message(&self, state: &StateRef, field: usize, id: &str) -> bool {
        self.fields[field].ops().holds_message(self.get(state, field), id)
    }

    fn message_ids(&self, state: &StateRef, field: usize, most: usize) -> Option<Vec<String>> {
        self.fields[field].ops().message_ids(self.get(state, field), most)
    }

    fn list_rule(&self, field: usize) -> Option<ListRule> {
        self.fields[field].ops().lists().map(ListOps::rule)
    }

    fn give(&self, state: &StateRef, field: usize, of: Option<ListRef>) -> Option<BoxWrite> {
        Some(self.fields[field].ops().lists()?.give(self.get(state, field), of))
    }

    fn give_back(&self, state: &StateRef, field: usize, given: &BoxWrite) -> Option<BoxWrite> {
        self.fields[field].ops().lists()?.give_back(self.get(state, field), given)
    }

    fn plain(&self, field: usize, write: &BoxWrite) -> BoxWrite {
        self.erased(field).plain(write)
    }

    fn decode_delta(
        &self,
        field: usize,
        delta: &ListDelta,
        base: &StateRef,
        returns: bool,
    ) -> Result<BoxWrite, StateError> {
        self.erased(field).decode_delta(delta, base, returns)
    }

    fn positions(&self, state: &StateRef, field: usize) -> Vec<u64> {
        let lists = self.fields[field].ops().lists();
        lists.map(|lists| lists.positions(self.get(state, field))).unwrap_or_default()
    }

    fn encode_item(&self, state: &StateRef, field: usize, position: u64) -> Result<Payload, StateError> {
        self.erased(field).encode_item(self.get(state, field), position)
    }
}

/// A list field that is being loaded.
struct SchemaLoader<'a, S> {
    schema: &'a Schema<S>,
    field: ErasedField<'a>,
    items: Box<dyn StoredItems>,
}

impl<S: Clone + Send + Sync + 'static> ListLoader for SchemaLoader<'_, S> {
    fn item(&mut self, position: u64, stored: PayloadRef<'_>) -> Result<(), StateError> {
        self.field.add_item(&mut *self.items, position, stored)
    }

    fn finish(self: Box<Self>, state: &mut StateRef) {
        self.items.finish(self.schema.get_mut(state, self.field.number));
    }
}

/// Lends a field to a rule.
pub(super) fn cell<'a, T>(value: &'a mut T, present: &'a mut bool) -> Cell<'a, T> {
    Cell { value, present }
}
