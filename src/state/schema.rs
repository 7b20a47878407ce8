//! The fields of one state type, and the layout they make.

use std::any::TypeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::decode_bytes;
use crate::base::{Encoded, IdSource, ListDelta, ListRef, Payload, PayloadRef, Value, WriteValue};
use crate::channel::{Cell, Effect};

use super::State;
use super::error::StateError;
use super::field::{Field, ListOps, wrong_type};
use super::given::ListRule;
use super::layout::{FieldKind, Layout, StateRef};
use super::writes::BoxWrite;

/// The number of the next schema.
static SCHEMAS: AtomicUsize = AtomicUsize::new(0);

/// Brings a stored value over to the present type of its channel.
type Migration = Arc<dyn Fn(Value) -> Result<Value, String> + Send + Sync>;

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
    /// By the number of the field.
    migrations: Vec<(usize, Migration)>,
    /// Names that were given to different channels.
    pub(super) conflicts: Vec<Arc<str>>,
}

impl<S: Clone + Send + Sync + 'static> Schema<S> {
    /// Makes a schema from fields and the state before the first write.
    pub fn new(fields: Vec<Field<S>>, initial: S) -> Self {
        let (presence, migrations, conflicts) = (None, Vec::new(), Vec::new());
        let id = SCHEMAS.fetch_add(1, Ordering::Relaxed);
        Self { fields, initial: Arc::new(initial), id, presence, migrations, conflicts }
    }

    /// Says how a stored value of a channel is brought over, if it does not fit the type that the channel has now. An
    /// item of a list channel is brought over by itself. Stored values are not changed. A channel that does not exist
    /// is passed over.
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
            self.migrations.push((field, Arc::new(migration)));
        }
        self
    }

    /// Returns the number of the schema: no other one of this process has it.
    pub fn id(&self) -> usize {
        self.id
    }

    /// Returns the names that were given to different channels.
    pub fn conflicts(&self) -> &[Arc<str>] {
        &self.conflicts
    }

    /// Brings a stored value over, if there is a way.
    fn migrated(&self, field: usize, stored: PayloadRef<'_>) -> Result<Option<Payload>, StateError> {
        let Some((_, migration)) = self.migrations.iter().find(|(known, _)| *known == field) else { return Ok(None) };
        let channel = self.fields[field].name();
        let failed = |reason| StateError::Migration { channel: Arc::clone(channel), reason };
        let value = decode_bytes::<Value>(stored.codec, stored.data).map_err(|error| failed(error.to_string()))?;
        let run = std::panic::AssertUnwindSafe(|| migration(value));
        let value =
            std::panic::catch_unwind(run).unwrap_or_else(|panic| Err(crate::base::internal::panic_text(&*panic)));
        let encoded = Encoded::encode(&value.map_err(failed)?).map_err(|error| failed(error.to_string()))?;
        Ok(Some(encoded.into()))
    }

    fn brought(&self, field: usize, stored: &Payload) -> Result<Payload, StateError> {
        Ok(self.migrated(field, stored.as_ref())?.unwrap_or_else(|| stored.clone()))
    }

    fn all_brought(&self, field: usize, stored: &[Payload]) -> Result<Vec<Payload>, StateError> {
        stored.iter().map(|item| self.brought(field, item)).collect()
    }

    /// Calls `with` on a stored value; if the value does not fit, once more on the migrated one.
    fn fitting<T>(
        &self,
        field: usize,
        stored: PayloadRef<'_>,
        mut with: impl FnMut(PayloadRef<'_>) -> Result<T, StateError>,
    ) -> Result<T, StateError> {
        match with(stored) {
            Err(StateError::Misfit { channel, expected, stored: found, source }) => {
                match self.migrated(field, stored)? {
                    Some(payload) => with(payload.as_ref()),
                    None => Err(StateError::Misfit { channel, expected, stored: found, source }),
                }
            }
            done => done,
        }
    }

    /// Tells a state that knows it whether a channel holds something.
    fn mark(&self, state: &mut S, field: usize, present: bool) {
        if let Some(presence) = &self.presence {
            (presence.set)(state, field, present);
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
        let field = &self.fields[field];
        field.ops().encode_write(field.name(), write)
    }

    fn decode_write(&self, field: usize, stored: &WriteValue) -> Result<BoxWrite, StateError> {
        let of = &self.fields[field];
        match of.ops().decode_write(of.name(), stored) {
            Err(StateError::Misfit { .. }) if self.migrations.iter().any(|(known, _)| *known == field) => {}
            done => return done,
        }
        let brought = match stored {
            WriteValue::One(payload) => WriteValue::One(self.brought(field, payload)?),
            WriteValue::Items(items) => WriteValue::Items(self.all_brought(field, items)?),
            WriteValue::Null | WriteValue::Delta(_) => stored.clone(),
        };
        of.ops().decode_write(of.name(), &brought)
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
        let of = &self.fields[field];
        let run = std::panic::AssertUnwindSafe(|| of.ops().update(of.name(), state, present, writes));
        let effect = std::panic::catch_unwind(run).unwrap_or_else(|panic| {
            Err(StateError::Panicked {
                channel: Arc::clone(of.name()),
                reason: crate::base::internal::panic_text(&*panic),
            })
        });
        debug_assert!(
            *present || !matches!(effect, Ok(Effect::Items(_) | Effect::TookWrite(_) | Effect::Computed)),
            "a channel that took a write holds something"
        );
        self.mark(state, field, *present);
        effect
    }

    fn idle(&self, state: &mut StateRef, field: usize, present: &mut bool) -> Effect {
        if !*present {
            return Effect::Unchanged;
        }
        let state = self.state_mut(state);
        let effect = self.fields[field].ops().idle(state, present);
        self.mark(state, field, *present);
        effect
    }

    fn reset(&self, state: &mut StateRef, field: usize) {
        let state = self.state_mut(state);
        self.fields[field].ops().reset(state);
        self.mark(state, field, self.fields[field].starts_present());
    }

    fn encode(&self, state: &StateRef, field: usize) -> Result<Payload, StateError> {
        let field = &self.fields[field];
        field.ops().encode(field.name(), self.state(state))
    }

    fn load(&self, state: &mut StateRef, field: usize, stored: PayloadRef<'_>) -> Result<(), StateError> {
        let (of, state) = (&self.fields[field], self.state_mut(state));
        self.fitting(field, stored, |stored| of.ops().load(of.name(), state, stored))?;
        self.mark(state, field, true);
        Ok(())
    }

    fn load_item(
        &self,
        state: &mut StateRef,
        field: usize,
        position: u64,
        stored: PayloadRef<'_>,
    ) -> Result<(), StateError> {
        let (of, state) = (&self.fields[field], self.state_mut(state));
        self.fitting(field, stored, |stored| of.ops().load_item(of.name(), state, position, stored))
    }

    fn to_value(&self, state: &StateRef, field: usize) -> Result<Value, StateError> {
        let field = &self.fields[field];
        field.ops().to_value(field.name(), self.state(state))
    }

    fn set(&self, state: &mut StateRef, field: usize, value: Value) -> Result<(), StateError> {
        let (of, state) = (&self.fields[field], self.state_mut(state));
        of.ops().set(of.name(), state, value)?;
        self.mark(state, field, true);
        Ok(())
    }

    fn project(&self, state: &StateRef, fields: &[usize]) -> StateRef {
        let (from, mut to) = (self.state(state), S::clone(&self.initial));
        for field in fields {
            self.fields[*field].ops().copy(from, &mut to);
            if let Some(presence) = &self.presence {
                (presence.set)(&mut to, *field, (presence.get)(from, *field));
            }
        }
        Arc::new(to)
    }

    fn with_managed(&self, state: &StateRef, remaining: i64) -> StateRef {
        let mut state = self.state(state).clone();
        for field in self.fields.iter().filter(|field| field.kind() == FieldKind::Managed) {
            field.ops().set_managed(&mut state, remaining);
        }
        Arc::new(state)
    }

    fn list(&self, state: &StateRef, field: usize) -> Option<StateRef> {
        self.fields[field].ops().list(self.state(state))
    }

    fn holds_message(&self, state: &StateRef, field: usize, id: &str) -> bool {
        self.fields[field].ops().holds_message(self.state(state), id)
    }

    fn list_rule(&self, field: usize) -> Option<ListRule> {
        self.fields[field].ops().lists().map(ListOps::rule)
    }

    fn give(&self, state: &StateRef, field: usize, of: Option<ListRef>) -> Option<BoxWrite> {
        Some(self.fields[field].ops().lists()?.give(self.state(state), of))
    }

    fn give_back(&self, state: &StateRef, field: usize, given: &BoxWrite) -> Option<BoxWrite> {
        self.fields[field].ops().lists()?.give_back(self.state(state), given)
    }

    fn plain(&self, field: usize, write: &BoxWrite) -> BoxWrite {
        let plain = self.fields[field].ops().lists().and_then(|lists| lists.plain(write));
        plain.unwrap_or_else(|| write.clone())
    }

    fn decode_delta(
        &self,
        field: usize,
        delta: &ListDelta,
        base: &StateRef,
        returns: bool,
    ) -> Result<BoxWrite, StateError> {
        let of = &self.fields[field];
        let no_list = || wrong_type::<S>(of.name(), "a delta of a list");
        let lists = of.ops().lists().ok_or_else(no_list)?;
        match lists.decode_delta(of.name(), delta, base, returns) {
            Err(StateError::Misfit { .. }) if self.migrations.iter().any(|(known, _)| *known == field) => {}
            done => return done,
        }
        let mut brought = delta.clone();
        brought.items = self.all_brought(field, &delta.items)?;
        lists.decode_delta(of.name(), &brought, base, returns)
    }

    fn encode_item(&self, state: &StateRef, field: usize, position: u64) -> Result<Payload, StateError> {
        let of = &self.fields[field];
        let no_list = || wrong_type::<S>(of.name(), "an item of a list");
        of.ops().lists().ok_or_else(no_list)?.encode_item(of.name(), self.state(state), position)
    }
}

/// Lends a field to a rule.
pub(super) fn cell<'a, T>(value: &'a mut T, present: &'a mut bool) -> Cell<'a, T> {
    Cell { value, present }
}
