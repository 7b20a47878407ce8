//! The output of a user's function: changes of a state, and instructions to an executor. *Absent:* the instructions.

use std::any::Any;

use super::dynamic::{DynState, DynUpdate};
use super::writes::Writes;
use crate::base::Map;

/// Changes of a state, and instructions that only the executor understands (such as where to go next).
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Output {
    /// The changes.
    pub writes: Writes,
    /// The instructions, in order.
    pub instructions: Vec<Box<dyn Any + Send + Sync>>,
}

impl Output {
    /// Creates an output of changes alone.
    pub fn update(writes: Writes) -> Self {
        Self { writes, instructions: Vec::new() }
    }

    /// Creates an output of changes and one instruction.
    pub fn instruction(writes: Writes, instruction: impl Any + Send + Sync) -> Self {
        Self { writes, instructions: vec![Box::new(instruction)] }
    }
}

impl FromIterator<Output> for Output {
    fn from_iter<I: IntoIterator<Item = Output>>(outputs: I) -> Self {
        let mut all = Self::default();
        for output in outputs {
            all.writes.extend(output.writes);
            all.instructions.extend(output.instructions);
        }
        all
    }
}

/// The types that a user's function may return for a state `S`: `()`, an update, an instruction of the executor, or an
/// option, list, array or pair of these. `#[derive(State)]` implements it for the update of a state.
#[diagnostic::on_unimplemented(
    message = "a node of a graph whose state is `{S}` cannot return `{Self}`",
    label = "return `Ok` of an update such as `{S}::update()`, of `()`, of a `Command` or of a `SendTo`"
)]
pub trait IntoOutput<S> {
    /// Returns the changes and instructions.
    #[doc(hidden)]
    fn into_output(self) -> Output;
}

impl<S> IntoOutput<S> for () {
    fn into_output(self) -> Output {
        Output::default()
    }
}

/// Also for a state of another type: channels are found by name.
impl<S> IntoOutput<S> for DynUpdate {
    fn into_output(self) -> Output {
        Output::update(self.into())
    }
}

impl IntoOutput<DynState> for Map {
    fn into_output(self) -> Output {
        Output::update(self.into())
    }
}

impl<S, T: IntoOutput<S>> IntoOutput<S> for Option<T> {
    fn into_output(self) -> Output {
        self.map(T::into_output).unwrap_or_default()
    }
}

impl<S, T: IntoOutput<S>> IntoOutput<S> for Vec<T> {
    fn into_output(self) -> Output {
        self.into_iter().map(T::into_output).collect()
    }
}

impl<S, T: IntoOutput<S>, const N: usize> IntoOutput<S> for [T; N] {
    fn into_output(self) -> Output {
        self.into_iter().map(T::into_output).collect()
    }
}

/// For example an update and a command.
impl<S, A: IntoOutput<S>, B: IntoOutput<S>> IntoOutput<S> for (A, B) {
    fn into_output(self) -> Output {
        [self.0.into_output(), self.1.into_output()].into_iter().collect()
    }
}
