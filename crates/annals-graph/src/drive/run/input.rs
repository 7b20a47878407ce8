//! The inputs of a run, and what a caller may give as one.

use serde::Serialize;

use crate::graph::{Command, Entry, Signature, SignatureKind, input_writes};
use crate::state::{IntoUpdate, Writes};

/// The input of a run.
#[derive(Clone, Debug)]
pub enum Input {
    /// A change: the graph starts at its entry.
    Update(Writes),
    /// A resume value, an update or a jump: the graph continues where it stopped.
    Command(Command),
    /// Nothing: the graph goes on where it stopped.
    Continue,
}

/// The inputs of a run of a graph with state `S`: an update of the state, a [`Command`], or an [`Input`]; for an
/// entrypoint its argument. `M` is inferred: it tells these apart.
#[diagnostic::on_unimplemented(
    message = "a graph whose state is `{S}` cannot be given `{Self}`",
    label = "give it an update such as `{S}::update()`, a `Command`, or `Input::Continue`"
)]
pub trait IntoInput<S, M> {
    /// Returns the input.
    #[doc(hidden)]
    fn into_input(self) -> Input;
}

/// A [`DynUpdate`](crate::state::DynUpdate) also for a state of another type: channels are found by name.
impl<S, U: IntoUpdate<S>> IntoInput<S, Signature<{ SignatureKind::Update as u8 }>> for U {
    fn into_input(self) -> Input {
        Input::Update(self.into_writes())
    }
}

/// The argument of an entrypoint.
impl<I: Serialize + Clone + Send + Sync + 'static, O>
    IntoInput<Entry<I, O>, Signature<{ SignatureKind::Argument as u8 }>> for I
{
    fn into_input(self) -> Input {
        Input::Update(input_writes(self))
    }
}

impl<S> IntoInput<S, Signature<{ SignatureKind::Input as u8 }>> for Command {
    fn into_input(self) -> Input {
        Input::Command(self)
    }
}

impl<S> IntoInput<S, Signature<{ SignatureKind::Input as u8 }>> for Input {
    fn into_input(self) -> Input {
        self
    }
}
