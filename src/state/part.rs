//! A state that is part of another one.

use super::State;

/// A state whose channels are some of those of a state `S`: the input or output schema of a graph, or the part that a
/// node reads. Implemented by `#[derive(State)]` with `#[state(part_of = S)]`, which also lets its update be given to a
/// graph of `S`, and the struct itself be returned by a node, as a change to all its channels.
///
/// # Example
/// ```
/// use annals::prelude::*;
/// use annals::state::Part;
///
/// #[derive(State, Clone, Default)]
/// struct Chat {
///     #[channel(messages)]
///     messages: Messages,
///     question: String,
///     answer: Option<String>,
///     draft: Option<String>,
/// }
///
/// #[derive(State, Clone, Default)]
/// #[state(part_of = Chat)]
/// struct Asked {
///     question: String,
/// }
///
/// #[derive(State, Clone, Default)]
/// #[state(part_of = Chat)]
/// struct Answered {
///     answer: Option<String>,
///     draft: Option<String>,
/// }
///
/// # fn main() -> Result<()> {
/// let chat = Store::memory().thread("chat")?.with_state::<Chat>();
/// chat.update(Asked::update().question("why"))?;
/// let asked = Asked::of(&*chat.state()?);
/// chat.update(Answered { answer: Some(format!("{}!", asked.question)), draft: None })?;
/// assert_eq!(chat.state()?.answer.as_deref(), Some("why!"));
/// # Ok(())
/// # }
/// ```
pub trait Part<S>: State {
    /// Returns the part of a state. Lists are shared, other values cloned.
    fn of(state: &S) -> Self;
}
