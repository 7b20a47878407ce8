//! The commands and messages that a tool of a [`ToolNode`](crate::ToolNode) returns in place of a content.
//!
//! Invariant: a reply is stored with its call, so it consists of values. *Absent:* the rules by which a node takes
//! them.

use annals_base::{Map, Value};
use annals_graph::graph::{NodeResult, Target};
use annals_graph::prelude::{Command, DynUpdate, Message, SendTo};

/// An update of the graph and its next nodes, as the result of a tool (`Command`).
///
/// A command that updates its own graph has the message that answers the call.
///
/// # Example: a tool that hands over to another node
/// ```
/// use annals_agents::{AgentTool, ToolCommand, ToolContext};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Topic {
///     topic: String,
/// }
///
/// let transfer = AgentTool::new("transfer", |topic: Topic, context: &ToolContext| {
///     Ok(ToolCommand::reply(context, "Transferred.").set("topic", topic.topic).goto("expert"))
/// });
/// # let _ = transfer;
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolCommand {
    pub(crate) messages: Vec<Message>,
    pub(crate) update: Map,
    pub(crate) goto: Vec<Target>,
    pub(crate) to_parent: bool,
}

impl ToolCommand {
    /// Returns an empty command.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a command with the message that replies to a call.
    pub fn reply(context: &crate::ToolContext, content: impl Into<annals_messages::Content>) -> Self {
        Self::new().message(Message::tool(content, context.tool_call_id()))
    }

    /// Adds a message.
    #[must_use]
    pub fn message(mut self, message: Message) -> Self {
        self.messages.push(message);
        self
    }

    /// Writes a value to a channel. The messages of the graph are written with [`message`](Self::message).
    #[must_use]
    pub fn set(mut self, channel: impl Into<String>, value: impl Into<Value>) -> Self {
        self.update.insert(channel.into(), value.into());
        self
    }

    /// Adds a next node, or a task of it with an argument of its own ([`SendTo`]).
    #[must_use]
    pub fn goto(mut self, target: impl Into<Target>) -> Self {
        self.goto.push(target.into());
        self
    }

    /// Addresses the parent graph (`Command.PARENT`), which applies the update and follows the targets.
    #[must_use]
    pub fn to_parent(mut self) -> Self {
        self.to_parent = true;
        self
    }

    /// Returns whether the command writes to channels.
    pub(crate) fn updates(&self) -> bool {
        !self.messages.is_empty() || !self.update.is_empty()
    }

    /// Returns whether the command only sends tasks to nodes of the parent graph.
    pub(crate) fn only_sends_to_parent(&self) -> bool {
        self.to_parent && self.goto.iter().all(|target| matches!(target, Target::Send(_)))
    }

    /// Returns the command of the executor, with the messages for a channel.
    pub(crate) fn into_command(self, channel: &str) -> Command {
        let mut update = DynUpdate::new();
        if !self.messages.is_empty() {
            update = update.messages(channel, self.messages);
        }
        for (name, value) in self.update {
            update = update.set(name, value);
        }
        let command = self.goto.into_iter().fold(Command::update(update), Command::and_goto);
        if self.to_parent { command.to_parent() } else { command }
    }

    fn to_value(&self) -> Value {
        let target = |target: &Target| match target {
            Target::Send(send) => Value::List(vec![(&*send.node).into(), send.arg.clone()]),
            Target::Node(node) => (&**node).into(),
            // No other target can be given.
            _ => Value::Null,
        };
        let messages = self.messages.iter().map(|message| Value::Map(message.to_map())).collect();
        Value::Map(Map::from_iter([
            ("messages".to_owned(), Value::List(messages)),
            ("update".to_owned(), Value::Map(self.update.clone())),
            ("goto".to_owned(), Value::List(self.goto.iter().map(target).collect())),
            ("to_parent".to_owned(), self.to_parent.into()),
        ]))
    }

    fn of_value(value: &Value) -> NodeResult<Self> {
        let list = |name: &str| value.get(name).and_then(Value::as_list).unwrap_or_default();
        let messages = list("messages").iter().map(|message| Message::try_from(message.clone()));
        let target = |target: &Value| match target {
            Value::List(send) => {
                let [node, arg] = &send[..] else { return None };
                Some(SendTo::new(node.as_str()?, arg.clone()).into())
            }
            node => Some(node.as_str()?.into()),
        };
        Ok(Self {
            messages: messages.collect::<Result<_, _>>()?,
            update: value.get("update").and_then(Value::as_map).cloned().unwrap_or_default(),
            goto: list("goto").iter().filter_map(target).collect(),
            to_parent: value.get("to_parent") == Some(&true.into()),
        })
    }
}

/// A part of the result of a tool: a message, or a command.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ToolReply {
    /// A message. It is stored as the tool made it, with the id of the call that it answers.
    Message(Box<Message>),
    /// A command.
    Command(ToolCommand),
}

impl From<Message> for ToolReply {
    fn from(message: Message) -> Self {
        Self::Message(Box::new(message))
    }
}

impl From<ToolCommand> for ToolReply {
    fn from(command: ToolCommand) -> Self {
        Self::Command(command)
    }
}

impl ToolReply {
    /// Returns the messages.
    pub(crate) fn messages_mut(&mut self) -> &mut [Message] {
        match self {
            Self::Message(message) => std::slice::from_mut(&mut **message),
            Self::Command(command) => &mut command.messages,
        }
    }

    /// Returns the value that is stored with the call.
    pub(crate) fn to_value(&self) -> Value {
        let (name, value) = match self {
            Self::Message(message) => ("message", Value::Map(message.to_map())),
            Self::Command(command) => ("command", command.to_value()),
        };
        Value::Map(Map::from_iter([(name.to_owned(), value)]))
    }

    pub(crate) fn of_value(value: &Value) -> NodeResult<Self> {
        match (value.get("message"), value.get("command")) {
            (Some(message), _) => Ok(Message::try_from(message.clone())?.into()),
            (_, Some(command)) => ToolCommand::of_value(command).map(Self::Command),
            _ => Err("a stored result of a tool is neither a message nor a command".into()),
        }
    }
}
