//! Asynchronous functions as nodes. *Absent:* running them; a driver polls their futures.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::task::Context;

use super::node::{IntoNode, IntoOutput, NodeBody, NodeInput, NodeOutput, NodeResult, Own, Takes, Work};
use super::signature::{Signature, SignatureKind};

/// The future of an asynchronous node.
pub(crate) type NodeFuture = Pin<Box<dyn Future<Output = NodeResult<NodeOutput>> + Send>>;

/// An `async fn` that borrows the state, the context, or both. The compiler names this trait when an async closure
/// captures something: its future would borrow the closure. Such a closure takes `Arc<S>` and clones its captures.
#[doc(hidden)]
pub trait AsyncWithoutCaptures<'a, Args>: Send + Sync {
    type Future: Future<Output = Self::Returned> + Send + 'a;
    type Returned;
    fn start(&self, args: Args) -> Self::Future;
}

impl<'a, A, F, Fut> AsyncWithoutCaptures<'a, (A,)> for F
where
    F: Fn(A) -> Fut + Send + Sync,
    Fut: Future + Send + 'a,
{
    type Future = Fut;
    type Returned = Fut::Output;

    fn start(&self, (borrowed,): (A,)) -> Fut {
        self(borrowed)
    }
}

impl<'a, A, F, Fut> AsyncWithoutCaptures<'a, (A, &'a Context)> for F
where
    F: Fn(A, &'a Context) -> Fut + Send + Sync,
    Fut: Future + Send + 'a,
{
    type Future = Fut;
    type Returned = Fut::Output;

    fn start(&self, (input, context): (A, &'a Context)) -> Fut {
        self(input, context)
    }
}

pub(super) fn of_state<S: Send + Sync + 'static, Fut>(
    start: impl Fn(Arc<S>, Context) -> Fut + Send + Sync + 'static,
) -> NodeBody
where
    Fut: Future<Output = NodeResult<NodeOutput>> + Send + 'static,
{
    let start = move |input: NodeInput, context: Context| -> NodeFuture {
        let NodeInput::State(state) = input else { unreachable!("a node of the state is given the state") };
        match state.downcast::<S>() {
            Ok(state) => Box::pin(start(state, context)),
            Err(_) => unreachable!("a node is given the state of its graph"),
        }
    };
    NodeBody { takes: Takes::State, work: Work::Async(Arc::new(start)), child: None }
}

impl<S, F, T> IntoNode<S, (Signature<{ SignatureKind::BorrowsStateAndContext as u8 }>, T)> for F
where
    S: Send + Sync + 'static,
    F: for<'a> AsyncWithoutCaptures<'a, (&'a S, &'a Context), Returned = NodeResult<T>> + 'static,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        let node = Arc::new(self);
        of_state(move |state: Arc<S>, context| {
            let node = Arc::clone(&node);
            async move { node.start((&state, &context)).await.map(NodeOutput::of::<S, T>) }
        })
    }
}

impl<S, F, T> IntoNode<S, (Signature<{ SignatureKind::BorrowsState as u8 }>, T)> for F
where
    S: Send + Sync + 'static,
    F: for<'a> AsyncWithoutCaptures<'a, (&'a S,), Returned = NodeResult<T>> + 'static,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        let node = Arc::new(self);
        of_state(move |state: Arc<S>, _| {
            let node = Arc::clone(&node);
            async move { node.start((&state,)).await.map(NodeOutput::of::<S, T>) }
        })
    }
}

impl<S, F, Fut, T> IntoNode<S, (Signature<{ SignatureKind::OwnsStateAndContext as u8 }>, T)> for F
where
    S: Send + Sync + 'static,
    F: Fn(Arc<S>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = NodeResult<T>> + Send + 'static,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        of_state(move |state, context| {
            let running = self(state, context);
            async move { running.await.map(NodeOutput::of::<S, T>) }
        })
    }
}

impl<S, F, Fut, T> IntoNode<S, (Signature<{ SignatureKind::OwnsState as u8 }>, T)> for F
where
    S: Send + Sync + 'static,
    F: Fn(Arc<S>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = NodeResult<T>> + Send + 'static,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        of_state(move |state, _| {
            let running = self(state);
            async move { running.await.map(NodeOutput::of::<S, T>) }
        })
    }
}

/// Returns the node of a function with an input type of its own.
fn of_value<I: DeserializeOwned, Fut>(start: impl Fn(I, Context) -> Fut + Send + Sync + 'static) -> NodeBody
where
    Fut: Future<Output = NodeResult<NodeOutput>> + Send + 'static,
{
    let start = move |input: NodeInput, context: Context| -> NodeFuture {
        let NodeInput::Value(value) = input else { unreachable!("a node with its own input is given a value") };
        match value.to::<I>() {
            Ok(input) => Box::pin(start(input, context)),
            Err(error) => Box::pin(std::future::ready(Err(error.into()))),
        }
    };
    NodeBody { takes: Takes::Value, work: Work::Async(Arc::new(start)), child: None }
}

impl<S, F, Fut, I, T> IntoNode<S, (Signature<{ SignatureKind::OwnsInputAndContext as u8 }>, I, T)> for Own<F>
where
    F: Fn(I, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = NodeResult<T>> + Send + 'static,
    I: DeserializeOwned,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        of_value(move |input: I, context| {
            let running = (self.0)(input, context);
            async move { running.await.map(NodeOutput::of::<S, T>) }
        })
    }
}

impl<S, F, Fut, I, T> IntoNode<S, (Signature<{ SignatureKind::OwnsInput as u8 }>, I, T)> for Own<F>
where
    F: Fn(I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = NodeResult<T>> + Send + 'static,
    I: DeserializeOwned,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        of_value(move |input: I, _| {
            let running = (self.0)(input);
            async move { running.await.map(NodeOutput::of::<S, T>) }
        })
    }
}

impl<S, F, I, T> IntoNode<S, (Signature<{ SignatureKind::BorrowsContext as u8 }>, I, T)> for Own<F>
where
    F: for<'a> AsyncWithoutCaptures<'a, (I, &'a Context), Returned = NodeResult<T>> + 'static,
    I: DeserializeOwned + Send + 'static,
    T: IntoOutput<S>,
{
    fn into_node(self) -> NodeBody {
        let node = Arc::new(self.0);
        of_value(move |input: I, context| {
            let node = Arc::clone(&node);
            async move { node.start((input, &context)).await.map(NodeOutput::of::<S, T>) }
        })
    }
}
