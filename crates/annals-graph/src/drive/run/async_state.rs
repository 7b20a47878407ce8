//! The calls for the state of a thread as futures, which do not block the task that awaits them.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context as Waiting, Poll, ready};

use crate::drive::io::pool::unblock;
use crate::error::Error;
use crate::graph::{CompiledGraph, IntoOutput};
use crate::history::{HistoryFilter, Snapshot};

use super::edit::{StateUpdate, UpdateAs};
use super::snapshot::{StateHistory, StateSnapshot};
use super::target::{RunOn, RunTarget};

impl<S: Clone + Send + Sync + 'static> CompiledGraph<S> {
    /// Returns the state of a thread as [`CompiledGraph::get_state`], without blocking.
    ///
    /// # Errors
    /// As [`CompiledGraph::get_state`].
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Post { #[channel(last)] text: String }
    ///
    /// # fn main() -> Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// let graph = StateGraph::<Post>::new()
    ///     .node("write", |_: &Post| Ok(Post::update().text("draft".to_string())))
    ///     .edge(START, "write")
    ///     .edge("write", END)
    ///     .compile()?;
    /// let thread = Store::open(folder.path().join("posts.db"))?.thread("post")?;
    /// let calls = async {
    ///     graph.ainvoke(&thread, Post::update()).await?;
    ///     graph.aupdate_state(&thread, Post::update().text("edited".to_string()), "write").await?;
    ///     assert_eq!(graph.aget_state(&thread).await?.values.text, "edited");
    ///
    ///     let (mut texts, mut history) = (Vec::new(), graph.aget_state_history(&thread).await?);
    ///     while let Some(state) = history.next().await {
    ///         texts.push(state?.values.text.clone());
    ///     }
    ///     assert_eq!(texts, ["edited", "draft", "", ""]);
    ///     Ok::<(), annals_graph::Error>(())
    /// };
    /// # annals_graph::block_on(calls)
    /// # }
    /// ```
    pub async fn aget_state(&self, at: impl RunOn) -> Result<StateSnapshot<S>, Error> {
        self.call(at.target(), |graph, target| graph.get_state(target)).await
    }

    /// Changes the state as [`CompiledGraph::update_state`], without blocking. If the future is dropped, the change is
    /// made or not, as a whole.
    ///
    /// # Errors
    /// As [`CompiledGraph::update_state`].
    pub async fn aupdate_state(
        &self,
        at: impl RunOn,
        update: impl IntoOutput<S>,
        as_node: impl Into<UpdateAs>,
    ) -> Result<Snapshot, Error> {
        let update = StateUpdate::new(update, as_node);
        self.call(at.target(), |graph, target| graph.bulk_update_state(target, [[update]])).await
    }

    /// Returns the states of a thread as [`CompiledGraph::get_state_history`], each loaded without blocking when it is
    /// awaited.
    ///
    /// # Errors
    /// As [`CompiledGraph::get_state_history`], here and for each item.
    pub async fn aget_state_history(&self, on: impl RunOn) -> Result<AsyncStateHistory<S>, Error> {
        let history = self.call(on.target(), |graph, target| graph.state_history(target, HistoryFilter::new()));
        Ok(AsyncStateHistory { history: Some(history.await?), next: None })
    }

    /// Makes a call on a thread of its store.
    async fn call<T: Send + 'static>(
        &self,
        target: RunTarget,
        call: impl FnOnce(&Self, RunTarget) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let Some(store) = target.thread.as_ref().map(|thread| thread.store().clone()) else {
            return call(self, target);
        };
        let graph = self.clone();
        unblock(&store, move || call(&graph, target)).await
    }
}

/// The states of a thread, newest first, each loaded when it is awaited. With the feature `futures` it is a `Stream` of
/// the crate `futures-core`.
pub struct AsyncStateHistory<S> {
    /// `None` at the end, and while a state is loaded.
    history: Option<StateHistory<S>>,
    /// The state that is loaded, with the history after it.
    next: Option<LoadedState<S>>,
}

/// A state that is loaded, with the history after it.
type LoadedState<S> = Pin<Box<dyn Future<Output = (StateHistory<S>, Option<Result<StateSnapshot<S>, Error>>)> + Send>>;

impl<S: Clone + Send + Sync + 'static> AsyncStateHistory<S> {
    /// Returns the next older state, `None` at the end. If its future is dropped before it is ready, no state is lost.
    pub async fn next(&mut self) -> Option<Result<StateSnapshot<S>, Error>> {
        poll_fn(|waiting| self.poll_state(waiting)).await
    }

    fn poll_state(&mut self, waiting: &mut Waiting<'_>) -> Poll<Option<Result<StateSnapshot<S>, Error>>> {
        if let Some(mut history) = self.history.take() {
            self.next = Some(Box::pin(async move {
                let store = history.store().clone();
                unblock(&store, move || {
                    let state = history.next();
                    (history, state)
                })
                .await
            }));
        }
        let Some(next) = &mut self.next else { return Poll::Ready(None) };
        let (history, state) = ready!(next.as_mut().poll(waiting));
        self.next = None;
        self.history = state.is_some().then_some(history);
        Poll::Ready(state)
    }
}

#[cfg(feature = "futures")]
impl<S: Clone + Send + Sync + 'static> futures_core::Stream for AsyncStateHistory<S> {
    type Item = Result<StateSnapshot<S>, Error>;

    fn poll_next(self: Pin<&mut Self>, waiting: &mut Waiting<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_state(waiting)
    }
}

impl<S> fmt::Debug for AsyncStateHistory<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended = self.history.is_none() && self.next.is_none();
        f.debug_struct("AsyncStateHistory").field("ended", &ended).finish_non_exhaustive()
    }
}
