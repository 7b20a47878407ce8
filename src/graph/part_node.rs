//! Nodes that read a part of the state.

use crate::state::Part;

use super::context::Context;
use super::node::{IntoNode, IntoOutput, NodeBody, NodeResult, of_state};

#[doc(hidden)]
pub struct TakesPart;
#[doc(hidden)]
pub struct TakesPartAndContext;

impl<S, P, F, T> IntoNode<S, (TakesPart, P, T)> for F
where
    S: 'static,
    P: Part<S>,
    F: Fn(&P) -> NodeResult<T> + std::marker::Send + Sync + 'static,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        of_state(move |state: &S, _: &Context| self(&P::of(state)).map(T::into_output))
    }
}

impl<S, P, F, T> IntoNode<S, (TakesPartAndContext, P, T)> for F
where
    S: 'static,
    P: Part<S>,
    F: Fn(&P, &Context) -> NodeResult<T> + std::marker::Send + Sync + 'static,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        of_state(move |state: &S, context: &Context| self(&P::of(state), context).map(T::into_output))
    }
}
