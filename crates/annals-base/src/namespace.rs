//! The path of a graph within its thread.

use std::fmt;
use std::sync::Arc;

use super::id::IdError;
use super::limits::NAMESPACE_BYTES_MAX;

/// The path of a graph within its thread: empty for the root graph, `node:task_id` for a subgraph,
/// `node:task_id|child:task_id` for a subgraph of that (`checkpoint_ns` of LangGraph).
#[doc(alias = "checkpoint_ns")]
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace(
    /// `None` for the root, so that to clone it costs nothing; never empty.
    Option<Arc<str>>,
);

impl Namespace {
    /// Returns the namespace of the root graph.
    pub fn root() -> Self {
        Self(None)
    }

    /// Checks and keeps a path.
    ///
    /// # Errors
    /// [`IdError`] if it is longer than [`NAMESPACE_BYTES_MAX`] bytes or holds a NUL.
    pub fn new(path: impl AsRef<str>) -> Result<Self, IdError> {
        let path = path.as_ref();
        if path.len() > NAMESPACE_BYTES_MAX {
            let reason = format!("it has {} bytes, the limit is {NAMESPACE_BYTES_MAX}", path.len());
            return Err(IdError::new("namespace", path, reason));
        }
        if path.contains('\0') {
            return Err(IdError::new("namespace", path, "it holds a NUL character"));
        }
        Ok(Self((!path.is_empty()).then(|| path.into())))
    }

    /// Returns whether this is the namespace of the root graph.
    pub fn is_root(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the path.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }

    /// Returns the path of the levels, outermost first; none for the root.
    pub fn segments(&self) -> impl Iterator<Item = &str> {
        self.as_str().split('|').filter(|segment| !segment.is_empty())
    }
}

impl AsRef<str> for Namespace {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self::root()
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}
