//! The state as an executor sees it: fields by number, without the type.

use std::any::{Any, TypeId};
use std::sync::Arc;

use crate::base::{IdSource, ListDelta, ListRef, Payload, PayloadRef, Value, WriteValue};
use crate::channel::ChannelEffect;

use super::error::StateError;
use super::given::ListRule;
use super::writes::BoxWrite;

/// An instance of a state, shared by the nodes of a superstep.
#[doc(hidden)]
pub type StateRef = Arc<dyn Any + Send + Sync>;

/// How a field is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// As one value.
    Value,
    /// As a list of items, of which only the changed ones are written.
    List,
    /// Not at all.
    Untracked,
    /// Not at all: the executor fills it for each task, and nothing writes it.
    Managed,
}

/// Loads the stored items of one list field. The list is built once, when all items are decoded.
#[doc(hidden)]
pub trait ListLoader {
    /// Decodes a stored item; items come in the order of their positions.
    ///
    /// # Errors
    /// As [`Layout::load`].
    fn item(&mut self, position: u64, stored: PayloadRef<'_>) -> Result<(), StateError>;

    /// Adds the items to the list of a state of the same layout.
    fn finish(self: Box<Self>, state: &mut StateRef);
}

/// The fields of a state behind a wall that hides its type. All methods take the number of a field.
///
/// A state given to a method must come from [`Layout::initial`] of the same layout.
#[doc(hidden)]
pub trait Layout: Send + Sync + 'static {
    /// Returns how many fields there are.
    fn len(&self) -> usize;

    /// Returns whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the name of the field's channel.
    fn name(&self, field: usize) -> &Arc<str>;

    /// Returns how the field is stored.
    fn kind(&self, field: usize) -> FieldKind;

    /// Returns whether the channel holds something before the first write, as a reducer's does.
    fn starts_present(&self, field: usize) -> bool;

    /// Returns whether a superstep that does not write the channel may change it.
    fn may_idle(&self, field: usize) -> bool;

    /// Returns whether the field is kept out of the input and the output of a graph that names neither.
    fn is_private(&self, field: usize) -> bool;

    /// Returns whether the schema was made at run time, so that a state can leave channels out.
    fn is_dynamic(&self) -> bool;

    /// Returns the type of the state.
    fn state_type(&self) -> TypeId;

    /// Returns the state before the first write.
    fn initial(&self) -> StateRef;

    /// Completes a write before it is stored: gives ids to messages without one.
    fn prepare(&self, field: usize, write: &mut BoxWrite, ids: &mut IdSource);

    /// Returns whether a write is of a type that the field takes.
    fn takes(&self, field: usize, write: &BoxWrite) -> bool;

    /// Encodes a write.
    ///
    /// # Errors
    /// [`StateError`] if the value refuses, or is of another type than the field takes.
    fn encode_write(&self, field: usize, write: &BoxWrite) -> Result<WriteValue, StateError>;

    /// Decodes a stored write.
    ///
    /// # Errors
    /// [`StateError`] if the value does not fit the field.
    fn decode_write(&self, field: usize, stored: &WriteValue) -> Result<BoxWrite, StateError>;

    /// Makes a write from a dynamic value.
    ///
    /// # Errors
    /// [`StateError`] if the value does not fit the field.
    fn write_from_value(&self, field: usize, value: Value) -> Result<BoxWrite, StateError>;

    /// Returns a write as a dynamic value.
    ///
    /// # Errors
    /// [`StateError`] if the value refuses.
    fn write_to_value(&self, field: usize, write: &BoxWrite) -> Result<Value, StateError>;

    /// Applies the writes of a superstep to a field.
    ///
    /// # Errors
    /// [`StateError`] if they break the rule of the channel or its reducer fails; the state must then be dropped.
    fn update(
        &self,
        state: &mut StateRef,
        field: usize,
        present: &mut bool,
        writes: Vec<BoxWrite>,
    ) -> Result<ChannelEffect, StateError>;

    /// Ends a superstep that did not write the field.
    fn idle(&self, state: &mut StateRef, field: usize, present: &mut bool) -> ChannelEffect;

    /// Sets a field to its value before the first write.
    fn reset(&self, state: &mut StateRef, field: usize);

    /// Encodes the value of a field.
    ///
    /// # Errors
    /// [`StateError`] if the value refuses.
    fn encode(&self, state: &StateRef, field: usize) -> Result<Payload, StateError>;

    /// Sets a field to a stored value. A list field takes a list that was stored as one value, before the channel was a
    /// list: its first change then stores all its [items](Layout::positions).
    ///
    /// # Errors
    /// [`StateError`] naming the channel and the types, if the value does not fit.
    fn load(&self, state: &mut StateRef, field: usize, stored: PayloadRef<'_>) -> Result<(), StateError>;

    /// Begins to load the stored items of a list field.
    ///
    /// # Errors
    /// [`StateError::WrongType`] if the field is not a list.
    fn load_list(&self, field: usize) -> Result<Box<dyn ListLoader + '_>, StateError>;

    /// Returns the value of a field as a dynamic value.
    ///
    /// # Errors
    /// [`StateError`] if the value refuses.
    fn to_value(&self, state: &StateRef, field: usize) -> Result<Value, StateError>;

    /// Sets a field to a dynamic value as it is, without the rule of its channel.
    ///
    /// # Errors
    /// [`StateError`] if the value does not fit the field.
    fn set(&self, state: &mut StateRef, field: usize, value: Value) -> Result<(), StateError>;

    /// Returns a state with the values of these fields; the others are as before the first write.
    fn project(&self, state: &StateRef, fields: &[usize]) -> StateRef;

    /// Returns the state as a task sees it that has `remaining` supersteps left: with its managed values.
    fn with_managed(&self, state: &StateRef, remaining: i64) -> StateRef;

    /// Returns a clone of the list that the field holds, a [`List`](super::List); `None` if it holds none.
    fn list(&self, state: &StateRef, field: usize) -> Option<StateRef>;

    /// Returns whether the field holds a message with this id, itself or as an item of a list.
    fn holds_message(&self, state: &StateRef, field: usize, id: &str) -> bool;

    /// Returns the ids of the messages that the field holds; `None` if it holds a list of more than `most` messages.
    fn message_ids(&self, state: &StateRef, field: usize, most: usize) -> Option<Vec<String>>;

    /// Returns the rule that another list channel must share with the field to take its list; `None` for other fields.
    fn list_rule(&self, field: usize) -> Option<ListRule>;

    /// Returns the list of the field as a write for a channel of the same rule in another graph: not a copy. `of` is
    /// where it is stored. `None` for other fields.
    fn give(&self, state: &StateRef, field: usize, of: Option<ListRef>) -> Option<BoxWrite>;

    /// Returns the list of the field, which came of the list that was given with `given`, as a write for the channel
    /// that gave it. The write holds the difference. `None` for other fields.
    fn give_back(&self, state: &StateRef, field: usize, given: &BoxWrite) -> Option<BoxWrite>;

    /// Returns a write that is as it is stored by itself: of a list that is given or comes back all items.
    fn plain(&self, field: usize, write: &BoxWrite) -> BoxWrite;

    /// Decodes a stored write that says what differs from `base`, a [`List`](super::List). `returns` says whether that
    /// is the list of this very field.
    ///
    /// # Errors
    /// [`StateError`] if the items do not fit the field.
    fn decode_delta(
        &self,
        field: usize,
        delta: &ListDelta,
        base: &StateRef,
        returns: bool,
    ) -> Result<BoxWrite, StateError>;

    /// Returns the positions of the items of a list field, ascending; none for other fields.
    fn positions(&self, state: &StateRef, field: usize) -> Vec<u64>;

    /// Encodes an item of a list field.
    ///
    /// # Errors
    /// [`StateError`] if the item refuses, or the field has no such item.
    fn encode_item(&self, state: &StateRef, field: usize, position: u64) -> Result<Payload, StateError>;
}
