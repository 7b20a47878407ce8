//! Conditional edges: a function of the state that says where to go.

use std::sync::Arc;

use crate::state::StateRef;

use super::command::{SendTo, Target};
use super::context::Context;
use super::node::NodeResult;

/// A conditional edge without its types.
#[derive(Clone)]
pub(crate) struct Branch {
    /// Unique among the branches of its source.
    pub(crate) name: Arc<str>,
    pub(crate) path: Path,
    /// Labels and the nodes they stand for; `None` takes labels as node names.
    pub(crate) map: Option<Vec<(Arc<str>, Arc<str>)>>,
}

/// What a path may return: a target, an option or list of targets, or a result of these.
pub trait IntoTargets {
    /// Returns the targets.
    ///
    /// # Errors
    /// What the path returned.
    fn into_targets(self) -> NodeResult<Vec<Target>>;
}

macro_rules! one_target {
    ($($one:ty),*) => {$(
        impl IntoTargets for $one {
            fn into_targets(self) -> NodeResult<Vec<Target>> {
                Ok(vec![self.into()])
            }
        }
    )*};
}
one_target!(&str, String, SendTo, Target);

impl<T: Into<Target>> IntoTargets for Vec<T> {
    fn into_targets(self) -> NodeResult<Vec<Target>> {
        Ok(self.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Target>> IntoTargets for Option<T> {
    fn into_targets(self) -> NodeResult<Vec<Target>> {
        Ok(self.into_iter().map(Into::into).collect())
    }
}

impl<T: IntoTargets> IntoTargets for NodeResult<T> {
    fn into_targets(self) -> NodeResult<Vec<Target>> {
        self.and_then(T::into_targets)
    }
}

/// A function that can be a path: `Fn(&S) -> T` or `Fn(&S, &Context) -> T`, also with a name as [`Named`].
///
/// It sees the state at the start of the superstep with the writes of its own task applied, never those of its
/// siblings. It must be deterministic.
pub trait IntoPath<S, M> {
    #[doc(hidden)]
    fn into_path(self) -> PathBody;
}

/// A path without its types.
pub(crate) type Path = Arc<dyn Fn(&StateRef, &Context) -> NodeResult<Vec<Target>> + std::marker::Send + Sync>;

#[doc(hidden)]
pub struct PathBody {
    pub(crate) run: Path,
    /// The name it was given.
    pub(crate) name: Option<Arc<str>>,
}

/// A path with a name, by which errors and drawings know its conditional edge.
///
/// Two conditional edges of one node cannot have the same name. Without one they are told apart by themselves.
///
/// # Example
/// ```
/// use annals::prelude::*;
///
/// #[derive(State, Clone, Default)]
/// struct Count { #[channel(last)] n: i64 }
///
/// let twice = StateGraph::<Count>::new()
///     .node("a", |_: &Count| Ok(()))
///     .edge(START, "a")
///     .branch("a", Named("route", |_: &Count| END))
///     .branch("a", Named("route", |_: &Count| END))
///     .compile();
/// assert_eq!(twice.unwrap_err().problems.len(), 1);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Named<N, F>(pub N, pub F);

#[doc(hidden)]
pub struct OfNamed;

impl<S, N: Into<Arc<str>>, F: IntoPath<S, M>, M> IntoPath<S, (OfNamed, M)> for Named<N, F> {
    fn into_path(self) -> PathBody {
        PathBody { name: Some(self.0.into()), ..self.1.into_path() }
    }
}

fn path<S: 'static>(
    run: impl Fn(&S, &Context) -> NodeResult<Vec<Target>> + std::marker::Send + Sync + 'static,
) -> PathBody {
    let run = move |state: &StateRef, context: &Context| match state.downcast_ref::<S>() {
        Some(state) => run(state, context),
        None => unreachable!("a path is given the state of its graph"),
    };
    PathBody { run: Arc::new(run), name: None }
}

#[doc(hidden)]
pub struct OfState;
#[doc(hidden)]
pub struct OfStateAndContext;

impl<S: 'static, F, T: IntoTargets> IntoPath<S, (OfState, T)> for F
where
    F: Fn(&S) -> T + std::marker::Send + Sync + 'static,
{
    fn into_path(self) -> PathBody {
        path(move |state: &S, _: &Context| self(state).into_targets())
    }
}

impl<S: 'static, F, T: IntoTargets> IntoPath<S, (OfStateAndContext, T)> for F
where
    F: Fn(&S, &Context) -> T + std::marker::Send + Sync + 'static,
{
    fn into_path(self) -> PathBody {
        path(move |state: &S, context: &Context| self(state, context).into_targets())
    }
}
