//! Calls and results of tools, of the application or of the provider.
//!
//! Two kinds of tools are the framework's own, and their parts are checked: `tool-search` and `capability-load`.
//! *Absent:* running tools.

use super::datetime::DateTime;
use super::error::PathPart;
use super::macros::{record, serde_impls, words};
use super::tool_content::{ToolContent, take_record};
use super::wire::{Wire, WireReader, object_of};
use crate::wire::tool_call_id;
use annals_base::DefaultSource;
use annals_base::{Map, Value};
use annals_messages::JsonError;
use annals_messages::internal::{JsonStyle, json_loads, json_write};

/// The arguments of a call, as the provider sent them.
#[derive(Clone, Debug, PartialEq)]
pub enum ToolArgs {
    /// JSON text, which may be incomplete.
    Text(String),
    /// An object.
    Object(Map),
}

impl Wire for ToolArgs {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        match value {
            Value::Str(text) => Some(Self::Text(text)),
            Value::Map(map) => Some(Self::Object(map)),
            other => reader.fail("a text or an object", &other),
        }
    }

    fn write(&self) -> Value {
        match self {
            Self::Text(text) => text.write(),
            Self::Object(map) => map.write(),
        }
    }
}

/// The fields of a call that a delta changes.
pub(super) struct CallFields<'a> {
    pub(super) tool_name: &'a mut String,
    pub(super) args: &'a mut Option<ToolArgs>,
    pub(super) tool_call_id: &'a mut String,
    pub(super) provider_name: &'a mut Option<String>,
    pub(super) provider_details: &'a mut Option<Map>,
}

/// Defines the part of a call.
macro_rules! call {
    ($(#[$about:meta])* $name:ident = $kind:literal, $check:path) => {
        record! {
            $(#[$about])*
            pub struct $name {
                /// The name of the tool.
                pub tool_name: String,
                /// The arguments.
                pub args: Option<ToolArgs>,
                /// The id by which the result refers to the call; made if none is given.
                pub tool_call_id: String = |defaults| Some(tool_call_id(defaults)),
                /// The kind of tool.
                pub tool_kind: Option<String>,
                /// The provider's id.
                pub id: Option<String>,
                /// The provider to which the id, the kind and the details belong.
                pub provider_name: Option<String>,
                /// Data that the provider adds.
                pub provider_details: Option<Map>,
            } [part_kind = $kind]
            before $check;
        }

        impl $name {
            /// Returns a call with a new id.
            pub fn new(tool_name: impl Into<String>, args: ToolArgs, defaults: &mut DefaultSource<'_>) -> Self {
                Self {
                    tool_name: tool_name.into(),
                    args: Some(args),
                    tool_call_id: tool_call_id(defaults),
                    tool_kind: None,
                    id: None,
                    provider_name: None,
                    provider_details: None,
                }
            }

            pub(super) fn fields(&mut self) -> CallFields<'_> {
                let Self { tool_name, args, tool_call_id, provider_name, provider_details, .. } = self;
                CallFields { tool_name, args, tool_call_id, provider_name, provider_details }
            }
        }
    };
}

call! {
    /// A call of a tool of the application (`ToolCallPart`).
    ToolCallPart = "tool-call", check_call
}

call! {
    /// A call of a tool of the provider (`NativeToolCallPart`).
    NativeToolCallPart = "builtin-tool-call", check_native_call
}

words! {
    /// The outcome of a tool call.
    pub enum ToolOutcome = Success {
        /// It returned.
        Success = "success",
        /// It failed.
        Failed = "failed",
        /// It was not allowed.
        Denied = "denied",
        /// The call was interrupted.
        Interrupted = "interrupted",
        /// The model is asked for another attempt.
        Retried = "retried",
    }
}

impl ToolOutcome {
    /// Returns whether the result is an error: `failed` or `retried`.
    pub(crate) fn is_error(self) -> bool {
        matches!(self, Self::Failed | Self::Retried)
    }
}

words! {
    /// The cause of a retry of a tool.
    pub enum ToolRetryCause {
        /// The arguments failed validation.
        ValidationError = "validation_error",
        /// The tool raised `ModelRetry`.
        ModelRetry = "model_retry",
        /// The tool does not exist.
        UnknownTool = "unknown_tool",
        /// The tool is not available now.
        UnavailableTool = "unavailable_tool",
    }
}

record! {
    /// The request to call a tool again (`RetryInfo`).
    pub struct ToolRetry {
        /// The cause.
        pub cause: ToolRetryCause,
        /// The number of this attempt.
        pub attempt: Option<i64>,
        /// The allowed number of attempts.
        pub max_retries: Option<i64>,
    }
}

impl ToolRetry {
    /// Returns the request for another call, without counts of attempts.
    pub fn new(cause: ToolRetryCause) -> Self {
        Self { cause, attempt: None, max_retries: None }
    }
}

/// Defines the part of a tool's result, with its own fields.
macro_rules! tool_return {
    (
        $(#[$about:meta])*
        $name:ident = $kind:literal by $side:expr, { $($(#[$doc:meta])* pub $field:ident: $type:ty,)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub struct $name {
            /// The name of the tool.
            pub tool_name: String,
            /// The result.
            pub content: ToolContent,
            /// The id of the call.
            pub tool_call_id: String,
            /// The kind of tool.
            pub tool_kind: Option<String>,
            /// Not sent to the model.
            pub metadata: Value,
            /// The time at which it returned.
            pub timestamp: DateTime,
            /// The outcome of the call.
            pub outcome: ToolOutcome,
            $($(#[$doc])* pub $field: $type,)*
        }

        impl $name {
            /// Returns the result of a call that succeeded.
            pub fn new(
                tool_name: impl Into<String>,
                content: ToolContent,
                tool_call_id: impl Into<String>,
                timestamp: DateTime,
            ) -> Self {
                Self {
                    tool_name: tool_name.into(),
                    content,
                    tool_call_id: tool_call_id.into(),
                    tool_kind: None,
                    metadata: Value::Null,
                    timestamp,
                    outcome: ToolOutcome::Success,
                    $($field: None,)*
                }
            }
        }

        impl Wire for $name {
            fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
                let mut map = reader.object(value)?;
                let core = FrameworkTool::of(&map, $side);
                let record = take_record(&mut map, reader);
                core.name_tool(&mut map);
                let tool_name = reader.field::<String>(&mut map, &["tool_name"], |_| None);
                let content = reader.field::<Value>(&mut map, &["content"], |_| None);
                let tool_call_id = reader.field(&mut map, &["tool_call_id"], |defaults| Some(tool_call_id(defaults)));
                let tool_kind = reader.field(&mut map, &["tool_kind"], Option::<String>::absent);
                let metadata = reader.field(&mut map, &["metadata"], Value::absent);
                let timestamp = reader.field(&mut map, &["timestamp"], DateTime::absent);
                let outcome = reader.field(&mut map, &["outcome"], ToolOutcome::absent);
                $(let $field = reader.field(&mut map, &[stringify!($field)], <$type>::absent);)*
                core.check_name(tool_name.as_deref(), reader);
                let content = core.content(content, record?.as_deref(), reader);
                Some(Self {
                    tool_name: tool_name?,
                    content: content?,
                    tool_call_id: tool_call_id?,
                    tool_kind: tool_kind?,
                    metadata: metadata?,
                    timestamp: timestamp?,
                    outcome: outcome?,
                    $($field: $field?,)*
                })
            }

            fn write(&self) -> Value {
                let members = [
                    ("tool_name", self.tool_name.write()),
                    ("content", self.content.to_value()),
                    ("tool_call_id", self.tool_call_id.write()),
                    ("tool_kind", self.tool_kind.write()),
                    ("metadata", self.metadata.clone()),
                    ("timestamp", self.timestamp.write()),
                    ("outcome", self.outcome.write()),
                    $((stringify!($field), self.$field.write()),)*
                    ("part_kind", $kind.into()),
                ];
                with_record(members.into(), &self.content)
            }
        }

        serde_impls!($name);
    };
}

tool_return! {
    /// The result of a tool of the application (`ToolReturnPart`).
    ToolReturnPart = "tool-return" by ToolSide::Application, {
        /// The request to call the tool again, if there is one.
        pub retry: Option<ToolRetry>,
    }
}

tool_return! {
    /// The result of a tool of the provider (`NativeToolReturnPart`).
    NativeToolReturnPart = "builtin-tool-return" by ToolSide::Provider, {
        /// The provider that runs the tool.
        pub provider_name: Option<String>,
        /// Data that the provider adds.
        pub provider_details: Option<Map>,
    }
}

/// Makes the object of a return, with the record of its files unless the content is a scalar.
fn with_record(mut members: Vec<(&str, Value)>, content: &ToolContent) -> Value {
    let mut map = object_of(&mut members);
    if let Some(digests) = content.digests() {
        map.insert("content_file_digests".into(), digests.into());
    }
    map.into()
}

/// The side that runs a tool.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ToolSide {
    Application,
    Provider,
}

/// The kinds of tools that are the framework's own. Their parts are checked unless the call did not succeed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FrameworkTool {
    None,
    Search(&'static str),
    Capability(&'static str),
}

impl FrameworkTool {
    fn of(map: &Map, side: ToolSide) -> Self {
        let succeeded = map.get("outcome").is_none_or(|outcome| outcome.as_str() == Some("success"));
        match (map.get("tool_kind").and_then(Value::as_str).filter(|_| succeeded), side) {
            (Some("tool-search"), ToolSide::Application) => Self::Search("search_tools"),
            (Some("tool-search"), ToolSide::Provider) => Self::Search("tool_search"),
            (Some("capability-load"), ToolSide::Application) => Self::Capability("load_capability"),
            _ => Self::None,
        }
    }

    fn tool_name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Search(name) | Self::Capability(name) => Some(name),
        }
    }

    /// The name of the framework's own tools may be missing.
    fn name_tool(self, map: &mut Map) {
        if let Some(name) = self.tool_name()
            && !map.contains_key("tool_name")
        {
            map.insert("tool_name".into(), name.into());
        }
    }

    fn check_name(self, found: Option<&str>, reader: &mut WireReader<'_>) {
        if let (Some(name), Some(found)) = (self.tool_name(), found)
            && name != found
        {
            reader.at(PathPart::Name("tool_name".into()), |reader| reader.fail::<()>(name, &found.into()));
        }
    }

    /// Checks a call, whatever else is wrong with it.
    fn check_call(self, map: &mut Map, reader: &mut WireReader<'_>) {
        self.name_tool(map);
        self.check_name(map.get("tool_name").and_then(Value::as_str), reader);
        let Some(Value::Map(args)) = map.get("args") else { return };
        let args = &mut args.clone();
        reader.at(PathPart::Name("args".into()), |reader| {
            reader.one_place(|reader| match self {
                Self::None => {}
                Self::Search(_) => _ = reader.field::<Vec<String>>(args, &["queries"], |_| None),
                Self::Capability(_) => _ = reader.field::<String>(args, &["id"], |_| None),
            });
        });
    }

    fn content(
        self,
        content: Option<Value>,
        record: Option<&[String]>,
        reader: &mut WireReader<'_>,
    ) -> Option<ToolContent> {
        let content = content?;
        if self == Self::None {
            return Some(ToolContent::recorded(content, record, reader));
        }
        reader.at(PathPart::Name("content".into()), |reader| {
            let mut map = reader.object(content.clone())?;
            let text = |map: &mut Map, name: &str, reader: &mut WireReader<'_>| {
                reader.field::<String>(map, &[name], |_| Some(String::new())).map(drop)
            };
            let message = text(&mut map, "message", reader);
            let rest = match self {
                Self::Search(_) => {
                    reader.field::<Vec<DiscoveredTool>>(&mut map, &["discovered_tools"], |_| None).map(drop)
                }
                _ => text(&mut map, "instructions", reader),
            };
            message.and(rest)
        })?;
        Some(ToolContent::data(content))
    }
}

record! {
    /// A tool that a search found; its other members stay in the content.
    struct DiscoveredTool {
        /// The name of the tool.
        pub name: String,
    }
}

fn check_call(map: &mut Map, reader: &mut WireReader<'_>) {
    FrameworkTool::of(map, ToolSide::Application).check_call(map, reader);
}

fn check_native_call(map: &mut Map, reader: &mut WireReader<'_>) {
    FrameworkTool::of(map, ToolSide::Provider).check_call(map, reader);
}

/// The arguments of a call are not a JSON object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgsError {
    /// The text is not JSON.
    #[error("the arguments of {tool_name:?} are {source}")]
    Syntax {
        /// The tool.
        tool_name: String,
        /// The syntax error.
        source: JsonError,
    },
    /// The text is JSON, but not an object.
    #[error("the arguments of {tool_name:?} are a {found}, not an object")]
    NotAnObject {
        /// The tool.
        tool_name: String,
        /// The kind of value.
        found: &'static str,
    },
}

/// Reads arguments as an object, which is empty for `None` and for an empty text.
pub(super) fn args_object(tool_name: &str, args: Option<&ToolArgs>) -> Result<Map, ArgsError> {
    match args {
        None => Ok(Map::new()),
        Some(ToolArgs::Object(map)) => Ok(map.clone()),
        Some(ToolArgs::Text(text)) if text.is_empty() => Ok(Map::new()),
        Some(ToolArgs::Text(text)) => match json_loads(text, true) {
            Ok(Value::Map(map)) => Ok(map),
            Ok(other) => Err(ArgsError::NotAnObject { tool_name: tool_name.to_owned(), found: other.kind() }),
            Err(source) => Err(ArgsError::Syntax { tool_name: tool_name.to_owned(), source }),
        },
    }
}

macro_rules! call_views {
    ($type:ty) => {
        impl $type {
            /// Returns the arguments as an object.
            ///
            /// # Errors
            /// [`ArgsError`] if they are a text that is not a JSON object.
            pub fn args_as_object(&self) -> Result<Map, ArgsError> {
                args_object(&self.tool_name, self.args.as_ref())
            }

            /// Returns the arguments as an object (`args_as_dict`): any other text becomes its member
            /// `INVALID_JSON`, so that the model sees its own text.
            pub fn args_or_invalid(&self) -> Map {
                self.args_as_object().unwrap_or_else(|_| {
                    let raw = self.args.as_ref().map_or(Value::Null, Wire::write);
                    Map::from_iter([("INVALID_JSON".to_owned(), raw)])
                })
            }

            /// Returns the arguments as compact JSON text (`args_as_json_str`).
            pub fn args_as_json(&self) -> String {
                json_write(&Value::Map(self.args_or_invalid()), JsonStyle::PYDANTIC)
            }

            /// Returns whether there are arguments: a text or an object that is not empty.
            pub fn has_content(&self) -> bool {
                match &self.args {
                    None => false,
                    Some(ToolArgs::Text(text)) => !text.is_empty(),
                    Some(ToolArgs::Object(map)) => !map.is_empty(),
                }
            }
        }
    };
}
call_views!(ToolCallPart);
call_views!(NativeToolCallPart);

serde_impls!(ToolArgs);
