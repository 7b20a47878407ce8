//! The shapes of statuses. The shape says what the colour says, and each has a word for a reader that sees neither.

use annals_runs::ThreadStatus;

use crate::html::Html;

/// What a row is marked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusShape {
    Waits,
    Failed,
    Runs,
    Half,
    Sleeps,
    Done,
    Cancelled,
}

impl StatusShape {
    /// Returns the shape of a status; half an answer has its own if nothing else happened.
    pub(crate) fn of(status: &ThreadStatus, is_half: bool) -> Self {
        match status {
            ThreadStatus::Interrupted(_) => Self::Waits,
            ThreadStatus::Failed(_) | ThreadStatus::Stuck(_) => Self::Failed,
            ThreadStatus::Running => Self::Runs,
            ThreadStatus::Sleeping(_) => Self::Sleeps,
            ThreadStatus::Cancelled(_) => Self::Cancelled,
            _ if is_half => Self::Half,
            _ => Self::Done,
        }
    }

    /// Returns the word for the shape.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Waits => "waits for a person",
            Self::Failed => "failed",
            Self::Runs => "running",
            Self::Half => "half an answer",
            Self::Sleeps => "asleep",
            Self::Done => "done",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns the class of words about a row with the shape.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Waits => "waits",
            Self::Failed => "failed",
            Self::Runs => "runs",
            _ => "mid",
        }
    }

    pub(crate) fn add_to(self, html: &mut Html) {
        let class = if self.class() == "mid" { "st".to_owned() } else { format!("st {}", self.class()) };
        let attributes =
            [("class", class.as_str()), ("viewBox", "0 0 16 16"), ("role", "img"), ("aria-label", self.word())];
        html.open("svg", &attributes).literal(match self {
            Self::Waits => "<path d=\"M8 1.5L14.5 8 8 14.5 1.5 8z\"/>",
            Self::Failed => {
                "<circle cx=\"8\" cy=\"8\" r=\"6.5\"/><path class=\"in\" d=\"M5.6 5.6l4.8 4.8M10.4 5.6l-4.8 4.8\"/>"
            }
            Self::Runs => "<g class=\"turn\"><circle cx=\"8\" cy=\"8\" r=\"6\" stroke-dasharray=\"26 12\"/></g>",
            Self::Half => "<circle cx=\"8\" cy=\"8\" r=\"6\" stroke-dasharray=\"2.6 2.1\"/>",
            Self::Sleeps => "<circle cx=\"8\" cy=\"8\" r=\"6\"/><path d=\"M8 4.5V8l2.5 1.5\"/>",
            Self::Done => "<path d=\"M4 8.5l2.6 2.6L12 5.5\"/>",
            Self::Cancelled => "<circle cx=\"8\" cy=\"8\" r=\"6\"/><path d=\"M3.8 12.2l8.4-8.4\"/>",
        });
        html.close("svg");
    }
}
