//! Conditional edges: functions from the state to the next nodes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::state::StateRef;
use crate::task::Context;

use super::async_node::AsyncWithoutCaptures;
use super::command::{SendTo, Target};
use super::node::NodeResult;
use super::signature::{Signature, SignatureKind};

/// A conditional edge without its types.
#[derive(Clone)]
pub(crate) struct Branch {
    /// Unique among the branches of its source.
    pub(crate) name: Arc<str>,
    pub(crate) path: Path,
    /// Labels and the nodes they stand for; `None` takes labels as node names.
    pub(crate) map: Option<Vec<(Arc<str>, Arc<str>)>>,
}

/// The result of a path: a target; an option, list or array of targets; or a `NodeResult` of these.
pub trait IntoTargets {
    /// Returns the targets.
    ///
    /// # Errors
    /// The error of the path.
    #[doc(hidden)]
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
one_target!(&str, String, Arc<str>, SendTo, Target);

impl<T: Into<Target>, const N: usize> IntoTargets for [T; N] {
    fn into_targets(self) -> NodeResult<Vec<Target>> {
        Ok(self.into_iter().map(Into::into).collect())
    }
}

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

/// A function that can be a path, also with a name as [`Named`]:
///
/// - `Fn(&S) -> T` and `Fn(&S, &Context) -> T`;
/// - `async fn(&S)` and `async fn(&S, &Context)`; `Fn(Arc<S>)` and `Fn(Arc<S>, Context)` that return a future.
///
/// A path reads the state at the start of the superstep with the writes of its own task applied, and none of its
/// siblings'. It must be deterministic. The timeout of its node does not include it.
///
/// # Example: a model decides where to go
/// ```
/// use annals_graph::prelude::*;
///
/// #[derive(State, Clone, Default)]
/// struct Mail { text: String, folder: String }
///
/// async fn ask_a_model(question: &str) -> Result<bool, std::io::Error> {
///     Ok(question.contains("win"))
/// }
///
/// async fn route(mail: &Mail) -> NodeResult<&'static str> {
///     Ok(if ask_a_model(&mail.text).await? { "spam" } else { "inbox" })
/// }
///
/// fn put(_: &Mail, ctx: &Context) -> NodeResult<MailUpdate> {
///     Ok(Mail::update().folder(ctx.node()))
/// }
///
/// # fn main() -> Result<()> {
/// let graph = StateGraph::<Mail>::new()
///     .node("spam", put)
///     .node("inbox", put)
///     .branch_to(START, route, ["spam", "inbox"])
///     .compile()?;
/// let run = graph.ainvoke((), Mail::update().text("you win"));
/// assert_eq!(annals_graph::block_on(run)?.state().folder, "spam");
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "this function or closure cannot be the path of a conditional edge in a graph whose state is `{S}`",
    label = "a path borrows the state: its first parameter is `&{S}`, with the `&`",
    note = "the documentation of `IntoPath` lists all forms: `|state: &{S}| \"name\"`",
    note = "a path is `Fn(&{S}) -> T`, `Fn(&{S}, &Context) -> T` or an `async fn` of the same; write the types of a closure's parameters",
    note = "`T` is the name of a node, a `SendTo`, an `Option`, `Vec` or array of these, or a `NodeResult` of one of these"
)]
pub trait IntoPath<S, M> {
    #[doc(hidden)]
    fn into_path(self) -> PathBody;
}

/// The future of an asynchronous path.
pub(crate) type PathFuture = Pin<Box<dyn Future<Output = NodeResult<Vec<Target>>> + Send>>;

/// A path without its types.
#[derive(Clone)]
pub(crate) enum Path {
    /// A function that returns at once.
    Blocking(Arc<dyn Fn(&StateRef, &Context) -> NodeResult<Vec<Target>> + Send + Sync>),
    /// A function that returns a future.
    Async(Arc<dyn Fn(StateRef, Context) -> PathFuture + Send + Sync>),
}

#[doc(hidden)]
pub struct PathBody {
    pub(crate) run: Path,
    /// The name, if it has one.
    pub(crate) name: Option<Arc<str>>,
}

/// A path with a name, which errors and drawings show.
///
/// Two conditional edges of one node cannot have the same name. Unnamed ones are numbered.
///
/// # Example
/// ```
/// use annals_graph::graph::Named;
/// use annals_graph::prelude::*;
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

impl<S, N: Into<Arc<str>>, F: IntoPath<S, M>, M> IntoPath<S, (Signature<{ SignatureKind::PathNamed as u8 }>, M)>
    for Named<N, F>
{
    fn into_path(self) -> PathBody {
        PathBody { name: Some(self.0.into()), ..self.1.into_path() }
    }
}

fn path<S: 'static>(run: impl Fn(&S, &Context) -> NodeResult<Vec<Target>> + Send + Sync + 'static) -> PathBody {
    let run = move |state: &StateRef, context: &Context| match state.downcast_ref::<S>() {
        Some(state) => run(state, context),
        None => unreachable!("a path is given the state of its graph"),
    };
    PathBody { run: Path::Blocking(Arc::new(run)), name: None }
}

fn awaited<S: Send + Sync + 'static, Fut>(start: impl Fn(Arc<S>, Context) -> Fut + Send + Sync + 'static) -> PathBody
where
    Fut: Future<Output: IntoTargets> + Send + 'static,
{
    let start = move |state: StateRef, context: Context| -> PathFuture {
        match state.downcast::<S>() {
            Ok(state) => {
                let answer = start(state, context);
                Box::pin(async move { answer.await.into_targets() })
            }
            Err(_) => unreachable!("a path is given the state of its graph"),
        }
    };
    PathBody { run: Path::Async(Arc::new(start)), name: None }
}

impl<S: 'static, F, T: IntoTargets> IntoPath<S, (Signature<{ SignatureKind::PathOfState as u8 }>, T)> for F
where
    F: Fn(&S) -> T + Send + Sync + 'static,
{
    fn into_path(self) -> PathBody {
        path(move |state: &S, _: &Context| self(state).into_targets())
    }
}

impl<S: 'static, F, T: IntoTargets> IntoPath<S, (Signature<{ SignatureKind::PathOfStateAndContext as u8 }>, T)> for F
where
    F: Fn(&S, &Context) -> T + Send + Sync + 'static,
{
    fn into_path(self) -> PathBody {
        path(move |state: &S, context: &Context| self(state, context).into_targets())
    }
}

impl<S: Send + Sync + 'static, F, T: IntoTargets> IntoPath<S, (Signature<{ SignatureKind::PathBorrowsState as u8 }>, T)>
    for F
where
    F: for<'a> AsyncWithoutCaptures<'a, (&'a S,), Returned = T> + 'static,
{
    fn into_path(self) -> PathBody {
        let path = Arc::new(self);
        awaited(move |state: Arc<S>, _| {
            let path = Arc::clone(&path);
            async move { path.start((&state,)).await }
        })
    }
}

impl<S: Send + Sync + 'static, F, T: IntoTargets>
    IntoPath<S, (Signature<{ SignatureKind::PathBorrowsStateAndContext as u8 }>, T)> for F
where
    F: for<'a> AsyncWithoutCaptures<'a, (&'a S, &'a Context), Returned = T> + 'static,
{
    fn into_path(self) -> PathBody {
        let path = Arc::new(self);
        awaited(move |state: Arc<S>, context| {
            let path = Arc::clone(&path);
            async move { path.start((&state, &context)).await }
        })
    }
}

impl<S: Send + Sync + 'static, F, Fut> IntoPath<S, (Signature<{ SignatureKind::PathOwnsState as u8 }>, Fut)> for F
where
    F: Fn(Arc<S>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoTargets> + Send + 'static,
{
    fn into_path(self) -> PathBody {
        awaited(move |state: Arc<S>, _| self(state))
    }
}

impl<S: Send + Sync + 'static, F, Fut> IntoPath<S, (Signature<{ SignatureKind::PathOwnsStateAndContext as u8 }>, Fut)>
    for F
where
    F: Fn(Arc<S>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoTargets> + Send + 'static,
{
    fn into_path(self) -> PathBody {
        awaited(self)
    }
}

/// A label that a path may return, with its node; or the name of a node, which is its own label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathLabel {
    pub(crate) label: Arc<str>,
    pub(crate) node: Arc<str>,
}

impl<L: Into<Arc<str>>, N: Into<Arc<str>>> From<(L, N)> for PathLabel {
    fn from((label, node): (L, N)) -> Self {
        Self { label: label.into(), node: node.into() }
    }
}

impl From<&str> for PathLabel {
    fn from(node: &str) -> Self {
        (node, node).into()
    }
}

impl From<String> for PathLabel {
    fn from(node: String) -> Self {
        node.as_str().into()
    }
}
