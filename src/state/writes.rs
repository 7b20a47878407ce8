//! Writes to fields, as values of their own types.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

use super::State;
use super::dynamic::DynState;
use super::given::Told;
use super::layout::Layout;
use super::schema::Schema;

/// A write to a field: a value of the write type of its channel; cheap to clone.
#[derive(Clone)]
#[doc(hidden)]
pub struct BoxWrite {
    /// Cloned when it is taken or changed, if somebody is still shown it then.
    value: Arc<dyn Any + Send + Sync>,
    note: Option<Arc<Note>>,
}

/// A note on a write beside its value.
enum Note {
    /// For each message in it, whether it was written as a message and not as an object that says the same.
    AsMessages(Vec<bool>),
    /// It is a list that is given.
    Told(Told),
}

impl BoxWrite {
    /// Boxes a value.
    pub fn new<T: Clone + Send + Sync + 'static>(value: T) -> Self {
        Self { value: Arc::new(value), note: None }
    }

    /// Notes which of its messages were written as such.
    pub(super) fn with_messages(self, as_messages: Vec<bool>) -> Self {
        let plain = as_messages.contains(&false);
        Self { note: plain.then(|| Arc::new(Note::AsMessages(as_messages))), ..self }
    }

    /// Returns whether the message with this number was written as one.
    pub(super) fn is_message(&self, at: usize) -> bool {
        !matches!(self.note.as_deref(), Some(Note::AsMessages(known)) if known.get(at) == Some(&false))
    }

    /// Boxes a list that is given, with its description.
    pub(super) fn told<T: Clone + Send + Sync + 'static>(given: T, told: Told) -> Self {
        Self { value: Arc::new(given), note: Some(Arc::new(Note::Told(told))) }
    }

    /// Returns the description of a given list, if it is one.
    pub fn told_of(&self) -> Option<&Told> {
        match self.note.as_deref() {
            Some(Note::Told(told)) => Some(told),
            _ => None,
        }
    }

    pub(super) fn as_any(&self) -> &dyn Any {
        &*self.value
    }

    pub(super) fn get<T: 'static>(&self) -> Option<&T> {
        self.value.downcast_ref()
    }

    pub(super) fn get_mut<T: Clone + Send + Sync + 'static>(&mut self) -> Option<&mut T> {
        if Arc::get_mut(&mut self.value).is_none() {
            self.value = Arc::new(self.get::<T>()?.clone());
        }
        Arc::get_mut(&mut self.value)?.downcast_mut()
    }

    pub(super) fn take<T: Clone + Send + Sync + 'static>(self) -> Option<T> {
        self.value.downcast().ok().map(Arc::unwrap_or_clone)
    }
}

impl fmt::Debug for BoxWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BoxWrite")
    }
}

/// The state whose fields the numbers of writes are.
#[derive(Debug)]
pub(super) struct Owner {
    id: fn() -> TypeId,
    pub(super) layout: fn() -> Arc<dyn Layout>,
}

trait Owned {
    const OWNER: Owner;
}

impl<S: State> Owned for S {
    const OWNER: Owner = Owner { id: TypeId::of::<S>, layout: || Arc::new(Schema::<S>::of()) };
}

/// A write to a field of another state than the one it comes to, where the channel of the same name takes it.
#[derive(Clone)]
pub(super) struct Foreign {
    pub(super) owner: &'static Owner,
    pub(super) field: usize,
    pub(super) write: BoxWrite,
}

/// The writes of one change, each with the number of its field, in the order they were made.
///
/// They know the state they were made for: in the graph of another one they go to the channels of the same names.
#[derive(Clone, Debug, Default)]
pub struct Writes {
    list: Vec<(usize, BoxWrite)>,
    owner: Option<&'static Owner>,
}

impl Writes {
    /// Adds a write to the field with number `field`.
    pub fn push<T: Clone + Send + Sync + 'static>(&mut self, field: usize, value: T) {
        self.list.push((field, BoxWrite::new(value)));
    }

    /// Adds a write of a field.
    #[doc(hidden)]
    pub fn push_box(&mut self, field: usize, write: BoxWrite) {
        self.list.push((field, write));
    }

    /// Says that the numbers are those of the fields of `S`.
    #[doc(hidden)]
    pub fn of<S: State>(self) -> Self {
        Self { owner: Some(&<S as Owned>::OWNER), ..self }
    }

    /// Returns whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the number of the field of each write.
    pub(super) fn fields(&self) -> impl Iterator<Item = usize> {
        self.list.iter().map(|(field, _)| *field)
    }

    /// Adds all writes of another change.
    pub fn extend(&mut self, other: Writes) {
        let id = |writes: &Writes| writes.owner.map(|owner| (owner.id)());
        if self.is_empty() {
            *self = other;
        } else if id(self) == id(&other) {
            self.list.extend(other.list);
        } else {
            self.make_foreign();
            self.list.extend(other.foreign().list);
        }
    }

    /// Returns the writes as a state of this type takes them.
    pub(super) fn for_state(self, state: TypeId) -> Self {
        match self.owner {
            Some(owner) if (owner.id)() != state => self.foreign(),
            _ => self,
        }
    }

    /// Returns the same writes; their numbers are then those of the layout that they are given to.
    pub(super) fn without_owner(self) -> Self {
        Self { owner: None, ..self }
    }

    fn foreign(mut self) -> Self {
        self.make_foreign();
        self
    }

    /// Replaces the numbers by names: each write goes to the channel of its name.
    fn make_foreign(&mut self) {
        let Some(owner) = self.owner.take() else { return };
        for (field, write) in self.list.iter_mut().filter(|(field, _)| *field != usize::MAX) {
            let boxed = std::mem::replace(write, BoxWrite::new(()));
            *write = BoxWrite::new(Foreign { owner, field: *field, write: boxed });
            *field = usize::MAX;
        }
    }
}

/// No change.
impl From<()> for Writes {
    fn from((): ()) -> Self {
        Self::default()
    }
}

/// A change, or none.
impl<U: Into<Writes>> From<Option<U>> for Writes {
    fn from(update: Option<U>) -> Self {
        update.map(U::into).unwrap_or_default()
    }
}

impl IntoIterator for Writes {
    type Item = (usize, BoxWrite);
    type IntoIter = std::vec::IntoIter<(usize, BoxWrite)>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

/// A change to a state `S`.
pub trait IntoUpdate<S> {
    /// Returns the writes.
    #[doc(hidden)]
    fn into_writes(self) -> Writes;
}

/// No change.
impl<S: State> IntoUpdate<S> for () {
    fn into_writes(self) -> Writes {
        Writes::default()
    }
}

/// No change.
impl IntoUpdate<DynState> for () {
    fn into_writes(self) -> Writes {
        Writes::default()
    }
}

/// A change, or none.
impl<S, U: IntoUpdate<S>> IntoUpdate<S> for Option<U> {
    fn into_writes(self) -> Writes {
        self.map(U::into_writes).unwrap_or_default()
    }
}
