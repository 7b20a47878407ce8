//! Floor 2: a user's struct, or a schema made at run time, seen as channels.
//!
//! [`State`] is implemented by `#[derive(State)]`; a [`Schema`] is the list of its fields, each with its channel. The
//! executor works on the [`Layout`] of a schema, which hides the type, so that typed and dynamic graphs run on one
//! machine. [`DynState`] is the state of a graph whose schema is made at run time. *Absent:* the store, graphs,
//! versions.
//!
//! Invariants: a value is encoded once, when it is written; a field that was not written is neither encoded nor
//! cloned; a failed update leaves a state that must be dropped.

mod dyn_schema;
mod dynamic;
mod erased_field;
mod error;
mod field;
mod given;
mod layout;
mod lists;
mod managed;
mod map_items;
mod message_lists;
mod output;
mod overwrite;
mod part;
mod place;
mod reduce;
mod schema;
mod view;
mod writes;

pub use dyn_schema::DynSchema;
pub use dynamic::{DynState, DynUpdate, ROOT, named_writes};
pub use error::StateError;
pub use field::Field;
pub use given::ListRule;
pub use layout::{FieldKind, Layout, ListLoader, StateRef};
pub use output::{IntoOutput, Output};
pub use overwrite::Overwrite;
pub use part::Part;
pub use schema::Schema;
pub use view::{StateView, WritesView};
pub use writes::{BoxWrite, IntoUpdate, Writes};

/// The interface of `annals-graph`: states behind a pointer, and writes by field number. It is released with the
/// engine, and promises nothing: a release may change or remove each item of it, and of [`Layout`], without a word in
/// the changelog.
///
/// The executor compiles nothing per state type: it works on a [`StateRef`] through a [`Layout`], which [`Schema`]
/// implements. One superstep is these calls:
///
/// 1. [`resolve`](erased::resolve) gives each write of an [`Output`] the number of its field, and
///    [`Layout::prepare`] ids to messages without one.
/// 2. [`Layout::encode_write`] encodes the writes of a task, to be stored until its superstep ends.
/// 3. [`Layout::update`] applies all writes of the superstep to one field at a time; the
///    [`ChannelEffect`](crate::channel::ChannelEffect) names the changed positions of a list. [`Layout::idle`] ends the
///    superstep for the fields that were not written.
///
/// [`StateView`] and [`WritesView`] show states and writes by name; values are made on demand. A list is given to a
/// subgraph with [`Layout::give`] and comes back with [`Layout::give_back`]; [`Told`](erased::Told) describes it.
#[doc(hidden)]
pub mod erased {
    pub use super::dynamic::{Returned, field_of, message_write, resolve, returned_writes, shared_writes};
    pub use super::given::{NOT_STORED, Told};
    pub use super::lists::written_items;
    pub use super::view::{
        FieldWrites, ViewShape, Writer, Written, brings_other_messages, messages_in_value, messages_of,
    };
}

pub use crate::channel::{KeyMap, List, MapEntry, Text};
/// Derives [`State`](trait@State) for a struct with named fields, see there.
///
/// # Example: messages, a value and a sum
/// ```
/// use annals::prelude::*;
///
/// fn add(old: i64, new: i64) -> i64 {
///     old + new
/// }
///
/// #[derive(State, Clone, Default)]
/// struct Chat {
///     #[channel(messages)]
///     messages: Messages,
///     topic: Option<String>,
///     #[channel(reduce = add)]
///     total: i64,
/// }
///
/// # fn main() -> Result<()> {
/// let thread = Store::memory().thread("trip")?.with_state::<Chat>();
/// thread.update(Chat::update().messages([Message::human("hi")]).total(1))?;
/// thread.update(Chat::update().topic("travel".to_string()).total(2))?;
/// let chat = thread.state()?;
/// assert_eq!((chat.messages.len(), chat.topic.as_deref(), chat.total), (1, Some("travel"), 3));
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "derive")]
pub use annals_derive::State;

/// The list of messages of a conversation: merged by message id, cloned in O(1).
pub type Messages = List<crate::message::Message>;

/// The state of a graph as a Rust struct. Implemented by `#[derive(State)]`.
///
/// # Example
/// ```
/// use annals::prelude::*;
///
/// fn longest(old: String, new: String) -> String {
///     if new.len() > old.len() { new } else { old }
/// }
///
/// #[derive(State, Clone, Default)]
/// struct Chat {
///     #[channel(messages)]
///     messages: Messages,
///     #[channel(last)]
///     topic: Option<String>,
///     #[channel(reduce = longest)]
///     longest: String,
/// }
///
/// let names: Vec<_> = Chat::fields().iter().map(|field| field.name().to_string()).collect();
/// assert_eq!(names, ["messages", "topic", "longest"]);
/// let _change = Chat::update().topic("boats".to_string()).messages([Message::human("hi")]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not implement `State`",
    label = "put `#[derive(State, Clone, Default)]` on it"
)]
pub trait State: Clone + Default + Send + Sync + 'static {
    /// A change to this state: the output of a node, and the input of a run or an update.
    type Update: IntoUpdate<Self>;

    /// Returns the fields with their channels, in order.
    fn fields() -> Vec<Field<Self>>;

    /// Starts an empty change.
    fn update() -> Self::Update;
}
