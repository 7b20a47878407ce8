//! Conditional edges: a function of the state that says where to go.

use std::sync::Arc;

use crate::state::StateRef;

use super::command::{SendTo, Target};
use super::context::Context;
use super::node::NodeResult;

/// A conditional edge without its types.
#[derive(Clone)]
pub(crate) struct Branch {
    pub(crate) path: Arc<dyn Fn(&StateRef, &Context) -> NodeResult<Vec<Target>> + std::marker::Send + Sync>,
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

/// A function that can be a path: `Fn(&S) -> T` or `Fn(&S, &Context) -> T`.
///
/// It sees the state at the start of the superstep with the writes of its own task applied, never those of its
/// siblings. It must be deterministic.
pub trait IntoPath<S, M> {
    #[doc(hidden)]
    fn into_path(self) -> PathBody;
}

#[doc(hidden)]
pub struct PathBody(pub(crate) Arc<dyn Fn(&StateRef, &Context) -> NodeResult<Vec<Target>> + std::marker::Send + Sync>);

fn path<S: 'static>(
    run: impl Fn(&S, &Context) -> NodeResult<Vec<Target>> + std::marker::Send + Sync + 'static,
) -> PathBody {
    PathBody(Arc::new(move |state, context| match state.downcast_ref::<S>() {
        Some(state) => run(state, context),
        None => unreachable!("a path is given the state of its graph"),
    }))
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
