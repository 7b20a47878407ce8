//! Commands: where a node leads to, and the arguments it sends there.

use std::sync::Arc;

use serde::Serialize;

use crate::base::{CodecError, Value};
use crate::state::Writes;

use super::policy::TimeoutPolicy;

/// A task of a node in the next superstep, with an argument in place of the state (`Send` of LangGraph).
///
/// # Example
/// ```
/// use annals_graph::prelude::*;
///
/// let send = SendTo::new("read", "notes.md");
/// assert_eq!(&*send.node, "read");
/// assert_eq!(send.arg, Value::from("notes.md"));
/// ```
#[doc(alias = "Send")]
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SendTo {
    /// The node.
    pub node: Arc<str>,
    /// The argument.
    pub arg: Value,
    /// The time limits of an attempt, in place of those of the node.
    pub timeout: Option<TimeoutPolicy>,
}

impl SendTo {
    /// Returns a send with a dynamic value.
    pub fn new(node: impl Into<Arc<str>>, arg: impl Into<Value>) -> Self {
        Self { node: node.into(), arg: arg.into(), timeout: None }
    }

    /// Returns a send with a value of any serializable type.
    ///
    /// # Errors
    /// [`CodecError`] if the value cannot be serialized.
    pub fn with<T: Serialize + ?Sized>(node: impl Into<Arc<str>>, arg: &T) -> Result<Self, CodecError> {
        Ok(Self { node: node.into(), arg: Value::from_serialize(arg)?, timeout: None })
    }

    /// Sets the time limits of an attempt of this task, in place of those of its node: a [`TimeoutPolicy`], or a
    /// duration for the whole attempt. The node must be async, else its task fails.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
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

/// A target of a command or a conditional edge.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Target {
    /// A node, which reads the state; [`END`](super::END) leads to no node.
    Node(Arc<str>),
    /// A node with an argument.
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

/// An update together with targets; or, as the input of a run, a resume value (`Command`).
///
/// # Example
/// ```
/// use annals_graph::prelude::*;
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
    /// Ids and hashes of the interrupts that the resume value was given for.
    pub(crate) seen: Vec<(String, String)>,
    /// True for a command that addresses the parent graph.
    pub(crate) parent: bool,
}

impl Command {
    /// Returns an empty command.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a command that leads to a node, in addition to the edges of the node that returns it.
    pub fn goto(target: impl Into<Target>) -> Self {
        Self::new().and_goto(target)
    }

    /// Returns a command that leads to several nodes, in addition to the edges of the node that returns it.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// let both = Command::goto_all(["review", "publish"]);
    /// let pages = Command::goto_all(["a.md", "b.md"].map(|page| SendTo::new("read", page)));
    /// # let _ = (both, pages);
    /// ```
    pub fn goto_all(targets: impl IntoIterator<Item = impl Into<Target>>) -> Self {
        Self { goto: targets.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Returns a command with a resume value, for the input of a run: it goes to the interrupt at which the run waits.
    /// Of several open interrupts each is named by its id: [`Command::resume_by_id`].
    pub fn resume(value: impl Into<Value>) -> Self {
        Self { resume: Some(value.into()), ..Self::default() }
    }

    /// Returns a command with resume values by the ids of their interrupts; the other interrupts stay open.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
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
    pub fn resume_by_id(values: impl IntoIterator<Item = (impl Into<String>, impl Into<Value>)>) -> Self {
        let values = values.into_iter().map(|(id, value)| (id.into(), value.into()));
        Self::resume(Value::Map(values.collect()))
    }

    /// Names an interrupt by its id and [hash](crate::task::Interrupt::hash), as it was shown to the person who
    /// decided. If it is not open any more, or is another one by now, the run is refused
    /// ([`RunError::UnknownInterrupt`](crate::RunError::UnknownInterrupt)), and nothing is written.
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Payment { #[channel(last)] amount: i64, #[channel(last)] approved: bool }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Payment>::new()
    ///     .node("approve", |payment: &Payment, ctx: &Context| {
    ///         let approved = ctx.interrupt(format!("pay {}?", payment.amount))?;
    ///         Ok(Payment::update().approved(approved == true))
    ///     })
    ///     .edge(START, "approve")
    ///     .compile()?;
    /// let thread = Store::memory().thread("payment-7")?;
    /// let waiting = graph.invoke(&thread, Payment::update().amount(10))?;
    /// let shown = &waiting.interrupts()[0];
    ///
    /// // A person approves what a page shows. The same interrupt of another payment has another hash.
    /// let stale = Command::resume(true).and_seen(&shown.id, "00000000000000000000000000000000");
    /// assert!(graph.invoke(&thread, stale).is_err());
    /// let done = graph.invoke(&thread, Command::resume(true).and_seen(&shown.id, shown.hash()))?;
    /// assert!(done.state().approved);
    /// # Ok(())
    /// # }
    /// ```
    pub fn and_seen(mut self, id: impl Into<String>, hash: impl Into<String>) -> Self {
        self.seen.push((id.into(), hash.into()));
        self
    }

    /// Returns a command with an update of any state or a dynamic one: channels are matched by name.
    pub fn update(update: impl Into<Writes>) -> Self {
        Self::new().and_update(update)
    }

    /// Addresses the parent graph (`Command.PARENT`), which applies the update and follows the targets. The subgraph
    /// ends where it is; the rest of the node's output is dropped.
    pub fn to_parent(mut self) -> Self {
        self.parent = true;
        self
    }

    /// Adds a target.
    pub fn and_goto(mut self, target: impl Into<Target>) -> Self {
        self.goto.push(target.into());
        self
    }

    /// Adds an update.
    pub fn and_update(mut self, update: impl Into<Writes>) -> Self {
        self.update.extend(update.into());
        self
    }
}
