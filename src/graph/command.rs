//! What a node can ask for besides a change: where to go, and what to send there.

use std::sync::Arc;

use serde::Serialize;

use crate::base::{CodecError, Value};
use crate::state::Writes;

use super::policy::TimeoutPolicy;

/// Runs a node in the next superstep with an argument of its own, in place of the state (`Send` of LangGraph).
///
/// # Example
/// ```
/// use annals::prelude::*;
///
/// let send = SendTo::new("read", "notes.md");
/// assert_eq!(&*send.node, "read");
/// assert_eq!(send.arg, Value::from("notes.md"));
/// ```
#[doc(alias = "Send")]
#[derive(Clone, Debug, PartialEq)]
pub struct SendTo {
    /// The node.
    pub node: Arc<str>,
    /// What the node is given.
    pub arg: Value,
    /// How long an attempt may take, in place of what the node says.
    pub timeout: Option<TimeoutPolicy>,
}

impl SendTo {
    /// Makes a send with a dynamic value.
    pub fn new(node: impl Into<Arc<str>>, arg: impl Into<Value>) -> Self {
        Self { node: node.into(), arg: arg.into(), timeout: None }
    }

    /// Makes a send with a value of any serializable type.
    ///
    /// # Errors
    /// [`CodecError`] if the type refuses to be serialized.
    pub fn with<T: Serialize + ?Sized>(node: impl Into<Arc<str>>, arg: &T) -> Result<Self, CodecError> {
        Ok(Self { node: node.into(), arg: Value::from_serialize(arg)?, timeout: None })
    }

    /// Limits how long an attempt of this task may take, in place of the timeout of its node: a [`TimeoutPolicy`], or a
    /// duration for the whole attempt. The node must be async, else its task fails.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    /// use std::time::Duration;
    ///
    /// let send = SendTo::new("read", "notes.md").timeout(Duration::from_secs(5));
    /// assert_eq!(send.timeout, Some(Duration::from_secs(5).into()));
    /// ```
    pub fn timeout(mut self, policy: impl Into<TimeoutPolicy>) -> Self {
        self.timeout = Some(policy.into()).filter(TimeoutPolicy::is_set);
        self
    }
}

/// Where to go next.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// A node, which sees the state; [`END`](super::END) goes nowhere.
    Node(Arc<str>),
    /// A node with an argument of its own.
    Send(SendTo),
}

impl From<&str> for Target {
    fn from(node: &str) -> Self {
        Self::Node(node.into())
    }
}

impl From<String> for Target {
    fn from(node: String) -> Self {
        Self::Node(node.into())
    }
}

impl From<Arc<str>> for Target {
    fn from(node: Arc<str>) -> Self {
        Self::Node(node)
    }
}

impl From<SendTo> for Target {
    fn from(send: SendTo) -> Self {
        Self::Send(send)
    }
}

/// A change together with where to go next; or, as the input of a run, an answer to a question.
///
/// # Example
/// ```
/// use annals::prelude::*;
///
/// let from_a_node = Command::goto("review");
/// let to_a_thread = Command::resume("approved");
/// # let _ = (from_a_node, to_a_thread);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Command {
    pub(crate) update: Writes,
    pub(crate) goto: Vec<Target>,
    pub(crate) resume: Option<Value>,
    /// Whether it is for the graph around the one whose node returns it.
    pub(crate) parent: bool,
}

impl Command {
    /// Starts an empty command.
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes to a node, in addition to the edges of the node that returns it.
    pub fn goto(target: impl Into<Target>) -> Self {
        Self::new().and_goto(target)
    }

    /// Goes to several nodes, in addition to the edges of the node that returns it.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// let both = Command::goto_all(["review", "publish"]);
    /// let pages = Command::goto_all(["a.md", "b.md"].map(|page| SendTo::new("read", page)));
    /// # let _ = (both, pages);
    /// ```
    pub fn goto_all(targets: impl IntoIterator<Item = impl Into<Target>>) -> Self {
        Self { goto: targets.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Answers the question at which a run was interrupted. Of several open questions each is answered by its id:
    /// [`Command::resume_by_id`].
    pub fn resume(answer: impl Into<Value>) -> Self {
        Self { resume: Some(answer.into()), ..Self::default() }
    }

    /// Answers questions by their ids; those that are not answered stay open.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Order { #[channel(append)] answers: List<String> }
    ///
    /// # fn main() -> Result<()> {
    /// fn ask(_: &Order, ctx: &Context) -> NodeResult<OrderUpdate> {
    ///     let answer = ctx.interrupt(format!("{}?", ctx.node()))?;
    ///     Ok(Order::update().answers([format!("{}: {answer}", ctx.node())]))
    /// }
    /// let graph = StateGraph::<Order>::new()
    ///     .node("pay", ask)
    ///     .node("ship", ask)
    ///     .branch(START, |_: &Order| ["pay", "ship"])
    ///     .compile()?;
    /// let thread = Store::memory().thread("order-7")?;
    ///
    /// let waiting = graph.invoke(&thread, Order::update())?;
    /// let answers = waiting.interrupts().iter().map(|question| (&question.id, question.value == "pay?"));
    /// let done = graph.invoke(&thread, Command::resume_by_id(answers))?;
    /// assert_eq!(done.state().answers.to_vec(), ["pay: true", "ship: false"]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn resume_by_id(answers: impl IntoIterator<Item = (impl Into<String>, impl Into<Value>)>) -> Self {
        let answers = answers.into_iter().map(|(id, answer)| (id.into(), answer.into()));
        Self::resume(Value::Map(answers.collect()))
    }

    /// Changes the state, by the update of any state or a dynamic one: it goes to the channels of the same names.
    pub fn update(update: impl Into<Writes>) -> Self {
        Self::new().and_update(update)
    }

    /// Addresses the graph around the one whose node returns the command (`Command.PARENT`): its change and its targets
    /// are those of that graph. The graph of the node ends where it is; what else the node returned is dropped.
    pub fn to_parent(mut self) -> Self {
        self.parent = true;
        self
    }

    /// Also goes to a node.
    pub fn and_goto(mut self, target: impl Into<Target>) -> Self {
        self.goto.push(target.into());
        self
    }

    /// Also changes the state.
    pub fn and_update(mut self, update: impl Into<Writes>) -> Self {
        self.update.extend(update.into());
        self
    }
}
