//! The functions that can be tasks or entrypoints: functions, closures and async functions. *Absent:* running them.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::graph::{AsyncWithoutCaptures, NodeResult, Signature, SignatureKind};

use super::context::Context;

/// The future of an asynchronous task.
pub(crate) type TaskFuture<R> = Pin<Box<dyn Future<Output = NodeResult<R>> + Send>>;

/// A task or an entrypoint without the type of its function.
#[doc(hidden)]
pub struct TaskBody<I, R>(pub(crate) TaskWork<I, R>);

/// The work of a task.
pub(crate) enum TaskWork<I, R> {
    /// A function that runs on a thread.
    Blocking(Arc<dyn Fn(I, &Context) -> NodeResult<R> + Send + Sync>),
    /// A function that returns a future.
    Async(Arc<dyn Fn(I, Context) -> TaskFuture<R> + Send + Sync>),
}

/// Marks the tasks of plain functions: the caller waits for the result.
#[derive(Clone, Copy, Debug)]
pub enum Blocking {}

/// Marks the tasks of async functions: the caller awaits the result.
#[derive(Clone, Copy, Debug)]
pub enum Awaited {}

/// A function that can be a task or an entrypoint: `Fn(I) -> NodeResult<R>` or `Fn(I, &Context) -> NodeResult<R>`;
/// `async fn(I)` or `async fn(I, &Context)`; `Fn(I)` or `Fn(I, Context)` that return a future.
///
/// A task takes its input by value. A closure that borrows it does not compile:
///
/// ```compile_fail,E0277
/// use annals_graph::task::Task;
///
/// // Write `|text: String|`.
/// let upper = Task::<String, String>::new("upper", |text: &String| Ok(text.to_uppercase()));
/// ```
///
/// The future of an async closure borrows the captures of the closure, which does not compile either. A closure that
/// captures clones its captures into the future:
///
/// ```
/// use annals_graph::task::Task;
///
/// let prefix = String::from("to ");
/// let greet = Task::new("greet", move |name: String| {
///     let prefix = prefix.clone();
///     async move { Ok(prefix + &name) }
/// });
/// ```
///
/// ```compile_fail
/// use annals_graph::task::Task;
///
/// let prefix = String::from("to ");
/// let greet = Task::new("greet", async move |name: String| Ok(prefix.clone() + &name));
/// ```
#[diagnostic::on_unimplemented(
    message = "this function or closure cannot be a task or an entrypoint with an input `{I}` and a result `{R}`",
    label = "a task takes its input by value, without `&`, may borrow its context, and returns a `NodeResult`",
    note = "a task is `Fn({I}) -> NodeResult<{R}>`, `Fn({I}, &Context) -> NodeResult<{R}>`, or an `async fn` of the same",
    note = "write the types of a closure's parameters: `|input: {I}, context: &Context| Ok(..)`",
    note = "an async closure cannot capture by reference: take owned handles, `move |input: {I}, context: Context| {{ let client = client.clone(); async move {{ .. }} }}`"
)]
pub trait IntoTask<I, R, M> {
    /// The marker of the kind: [`Blocking`] or [`Awaited`].
    type Kind;

    /// Erases the type of the function.
    #[doc(hidden)]
    fn into_task(self) -> TaskBody<I, R>;
}

impl<F, I, R> IntoTask<I, R, Signature<{ SignatureKind::TakesInput as u8 }>> for F
where
    F: Fn(I) -> NodeResult<R> + Send + Sync + 'static,
{
    type Kind = Blocking;

    fn into_task(self) -> TaskBody<I, R> {
        TaskBody(TaskWork::Blocking(Arc::new(move |input, _| self(input))))
    }
}

impl<F, I, R> IntoTask<I, R, Signature<{ SignatureKind::TakesInputAndContext as u8 }>> for F
where
    F: Fn(I, &Context) -> NodeResult<R> + Send + Sync + 'static,
{
    type Kind = Blocking;

    fn into_task(self) -> TaskBody<I, R> {
        TaskBody(TaskWork::Blocking(Arc::new(self)))
    }
}

impl<F, Fut, I, R> IntoTask<I, R, (Signature<{ SignatureKind::AwaitsInput as u8 }>, Fut)> for F
where
    F: Fn(I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = NodeResult<R>> + Send + 'static,
{
    type Kind = Awaited;

    fn into_task(self) -> TaskBody<I, R> {
        TaskBody(TaskWork::Async(Arc::new(move |input, _| Box::pin(self(input)))))
    }
}

impl<F, Fut, I, R> IntoTask<I, R, (Signature<{ SignatureKind::AwaitsInputAndContext as u8 }>, Fut)> for F
where
    F: Fn(I, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = NodeResult<R>> + Send + 'static,
{
    type Kind = Awaited;

    fn into_task(self) -> TaskBody<I, R> {
        TaskBody(TaskWork::Async(Arc::new(move |input, context| Box::pin(self(input, context)))))
    }
}

impl<F, I, R> IntoTask<I, R, Signature<{ SignatureKind::AwaitsBorrowing as u8 }>> for F
where
    F: for<'a> AsyncWithoutCaptures<'a, (I, &'a Context), Returned = NodeResult<R>> + 'static,
    I: Send + 'static,
{
    type Kind = Awaited;

    fn into_task(self) -> TaskBody<I, R> {
        let task = Arc::new(self);
        TaskBody(TaskWork::Async(Arc::new(move |input, context: Context| {
            let task = Arc::clone(&task);
            Box::pin(async move { task.start((input, &context)).await })
        })))
    }
}

impl<I, R> Clone for TaskBody<I, R> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            TaskWork::Blocking(run) => TaskWork::Blocking(Arc::clone(run)),
            TaskWork::Async(start) => TaskWork::Async(Arc::clone(start)),
        })
    }
}

impl<I, R> fmt::Debug for TaskBody<I, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskBody")
    }
}
