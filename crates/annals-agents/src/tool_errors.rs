//! The errors of the tools of a node: which of them the model is told, and in which words.
//!
//! *Absent:* interrupts, which are passed on always.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use annals_graph::graph::BoxError;
use annals_pydantic_ai::{ErrorDetail, Location};

/// The arguments of a call do not fit its tool (`ToolInvocationError`).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolCallError {
    /// The name of the tool.
    pub tool_name: String,
    /// The errors, by argument.
    pub errors: Vec<ErrorDetail>,
    message: String,
}

impl ToolCallError {
    pub(crate) fn new(tool_name: &str, errors: Vec<ErrorDetail>) -> Self {
        let place = |step: &Location| match step {
            Location::Name(name) => name.clone(),
            Location::Index(index) => index.to_string(),
        };
        let line = |error: &ErrorDetail| {
            let place: Vec<String> = error.loc.iter().map(place).collect();
            format!("{}: {}", place.join("."), error.msg)
        };
        let lines: Vec<String> = errors.iter().map(line).collect();
        let message = format!(
            "The arguments of tool {tool_name:?} do not fit:\n{}\nCorrect them, and call the tool again.",
            lines.join("\n")
        );
        Self { tool_name: tool_name.to_owned(), errors, message }
    }
}

impl fmt::Display for ToolCallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ToolCallError {}

type TellError = Arc<dyn Fn(&BoxError) -> Option<String> + Send + Sync>;

/// The errors that a [`ToolNode`](crate::ToolNode) tells the model, as messages with the status `error`
/// (`handle_tool_errors`). Other errors fail the node.
///
/// # Example
/// ```
/// use annals_agents::ToolErrors;
///
/// let all = ToolErrors::all();
/// let one_text = ToolErrors::text("The tool is out of order.");
/// let some = ToolErrors::of::<std::io::Error>();
/// let by_hand = ToolErrors::with(|error| error.is::<std::io::Error>().then(|| format!("failed: {error}")));
/// # let _ = (all, one_text, some, by_hand);
/// ```
#[derive(Clone)]
pub struct ToolErrors(TellError);

impl ToolErrors {
    /// Tells arguments that do not fit ([`ToolCallError`]). The default.
    pub fn arguments() -> Self {
        Self::with(|error| error.downcast_ref::<ToolCallError>().map(ToString::to_string))
    }

    /// Tells each error, as its `Debug` shows it (`True`).
    pub fn all() -> Self {
        Self::with(|error| Some(in_words(error)))
    }

    /// Tells no error (`False`).
    pub fn none() -> Self {
        Self::with(|_| None)
    }

    /// Tells each error in the same words.
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self::with(move |_| Some(text.clone()))
    }

    /// Tells errors of a type.
    pub fn of<E: Error + 'static>() -> Self {
        Self::with(|error| error.is::<E>().then(|| in_words(error)))
    }

    /// Tells the errors for which a function returns words.
    pub fn with(tell: impl Fn(&BoxError) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Tells also the errors that `other` tells.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::with(move |error| (self.0)(error).or_else(|| (other.0)(error)))
    }

    /// Returns the words for an error, `None` if it fails the node.
    pub(crate) fn tell(&self, error: &BoxError) -> Option<String> {
        (self.0)(error)
    }
}

fn in_words(error: &BoxError) -> String {
    format!("The tool failed: {error:?}\nCorrect the call, and call the tool again.")
}

impl fmt::Debug for ToolErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ToolErrors")
    }
}
