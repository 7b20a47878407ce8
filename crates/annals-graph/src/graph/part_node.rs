//! Nodes that read a part of the state.

use std::sync::Arc;

use crate::state::Part;
use crate::task::Context;

use super::async_node::{AsyncWithoutCaptures, of_state as of_async};
use super::node::{IntoNode, IntoOutput, NodeBody, NodeOutput, NodeResult, of_state};
use super::signature::{Signature, SignatureKind};

impl<S, P, F, T> IntoNode<S, (Signature<{ SignatureKind::TakesPart as u8 }>, P, T)> for F
where
    S: 'static,
    P: Part<S>,
    F: Fn(&P) -> NodeResult<T> + std::marker::Send + Sync + 'static,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        of_state(move |state: &S, _: &Context| self(&P::of(state)).map(NodeOutput::of::<S, T>))
    }
}

impl<S, P, F, T> IntoNode<S, (Signature<{ SignatureKind::TakesPartAndContext as u8 }>, P, T)> for F
where
    S: 'static,
    P: Part<S>,
    F: Fn(&P, &Context) -> NodeResult<T> + std::marker::Send + Sync + 'static,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        of_state(move |state: &S, context: &Context| self(&P::of(state), context).map(NodeOutput::of::<S, T>))
    }
}

impl<S, P, F, T> IntoNode<S, (Signature<{ SignatureKind::BorrowsPart as u8 }>, P, T)> for F
where
    S: Send + Sync + 'static,
    P: Part<S>,
    F: for<'a> AsyncWithoutCaptures<'a, (&'a P,), Returned = NodeResult<T>> + 'static,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        let node = Arc::new(self);
        of_async(move |state: Arc<S>, _| {
            let (node, part) = (Arc::clone(&node), P::of(&state));
            async move { node.start((&part,)).await.map(NodeOutput::of::<S, T>) }
        })
    }
}

impl<S, P, F, T> IntoNode<S, (Signature<{ SignatureKind::BorrowsPartAndContext as u8 }>, P, T)> for F
where
    S: Send + Sync + 'static,
    P: Part<S>,
    F: for<'a> AsyncWithoutCaptures<'a, (&'a P, &'a Context), Returned = NodeResult<T>> + 'static,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        let node = Arc::new(self);
        of_async(move |state: Arc<S>, context| {
            let (node, part) = (Arc::clone(&node), P::of(&state));
            async move { node.start((&part, &context)).await.map(NodeOutput::of::<S, T>) }
        })
    }
}

impl<S, P, F, Fut, T> IntoNode<S, (Signature<{ SignatureKind::OwnsPart as u8 }>, P, T)> for F
where
    S: Send + Sync + 'static,
    P: Part<S>,
    F: Fn(Arc<P>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = NodeResult<T>> + Send + 'static,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        of_async(move |state: Arc<S>, _| {
            let running = self(Arc::new(P::of(&state)));
            async move { running.await.map(NodeOutput::of::<S, T>) }
        })
    }
}

impl<S, P, F, Fut, T> IntoNode<S, (Signature<{ SignatureKind::OwnsPartAndContext as u8 }>, P, T)> for F
where
    S: Send + Sync + 'static,
    P: Part<S>,
    F: Fn(Arc<P>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = NodeResult<T>> + Send + 'static,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        of_async(move |state: Arc<S>, context| {
            let running = self(Arc::new(P::of(&state)), context);
            async move { running.await.map(NodeOutput::of::<S, T>) }
        })
    }
}
