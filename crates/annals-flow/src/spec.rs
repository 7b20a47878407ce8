//! The parts of a workflow that was read from a file.

use std::path::PathBuf;
use std::time::Duration;

use annals_graph::Schedule;
use annals_graph::annals::base::{Map, Value};

use crate::expression::Expression;
use crate::secrets::RedactPattern;

/// A workflow. Every name in it was looked up.
#[derive(Debug)]
pub(crate) struct FlowSpec {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    /// The folder of the file, absolute.
    pub(crate) folder: PathBuf,
    pub(crate) channels: Vec<(String, Reducer)>,
    pub(crate) input: Map,
    pub(crate) start: Vec<String>,
    pub(crate) outputs: Outputs,
    /// The names of the secrets.
    pub(crate) secrets: Vec<String>,
    /// The patterns of secrets without a name.
    pub(crate) redact: Vec<RedactPattern>,
    pub(crate) notify: NotifySpec,
    pub(crate) schedule: Option<Schedule>,
    pub(crate) nodes: Vec<FlowNode>,
}

/// The commands that tell a person of a run.
#[derive(Debug, Default)]
pub(crate) struct NotifySpec {
    /// The words of the command for an open interrupt.
    pub(crate) ask: Option<Vec<String>>,
    /// The words of the command for a run that failed.
    pub(crate) failure: Option<Vec<String>>,
}

/// The named values that a workflow returns; without any it returns its channels.
#[derive(Debug, Default)]
pub(crate) struct Outputs(pub(crate) Vec<(String, Filled)>);

/// The reducers by their names in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reducer {
    Last,
    Append,
    Sum,
    Min,
    Max,
    Map,
    Text,
    Messages,
}

pub(crate) const REDUCERS: &[(&str, Reducer)] = &[
    ("last", Reducer::Last),
    ("append", Reducer::Append),
    ("sum", Reducer::Sum),
    ("min", Reducer::Min),
    ("max", Reducer::Max),
    ("map", Reducer::Map),
    ("text", Reducer::Text),
    ("messages", Reducer::Messages),
];

impl FlowSpec {
    /// Returns the names of the secrets of the workflow and of those in it.
    pub(crate) fn all_secrets(&self) -> Vec<String> {
        let mut names = self.secrets.clone();
        for node in &self.nodes {
            match &node.work {
                FlowWork::Workflow(inner) | FlowWork::Call(inner, _) | FlowWork::Each(inner, _) => {
                    names.extend(inner.all_secrets());
                }
                _ => {}
            }
        }
        names
    }
}

/// The name by which the headers of a request read the secrets.
pub(crate) const SECRETS: &str = "secrets";

#[derive(Debug)]
pub(crate) struct FlowNode {
    pub(crate) name: String,
    pub(crate) work: FlowWork,
    pub(crate) after: Vec<String>,
    pub(crate) next: Vec<FlowEdge>,
    pub(crate) retry: Option<FlowRetry>,
}

/// An edge; of the edges of a node with conditions the first that holds is taken.
#[derive(Debug)]
pub(crate) struct FlowEdge {
    pub(crate) condition: Option<Expression>,
    /// The target; `None` is the end.
    pub(crate) to: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowRetry {
    pub(crate) attempts: u32,
    pub(crate) pause: Duration,
    pub(crate) backoff: f64,
}

#[derive(Debug)]
pub(crate) enum FlowWork {
    Run(RunSpec),
    Set(Vec<(String, Filled)>),
    Wait(Duration),
    Ask {
        text: Filled,
        into: String,
        /// The JSON Schema of the resume value.
        schema: Option<Value>,
    },
    Http(HttpSpec),
    Workflow(Box<FlowSpec>),
    /// A workflow that shares no channel with this one.
    Call(Box<FlowSpec>, CallSpec),
    /// A workflow for each item of a list.
    Each(Box<FlowSpec>, EachSpec),
}

/// The types of a resume value by their names in the file, as JSON Schema has them.
pub(crate) const ANSWERS: &[(&str, &str)] =
    &[("boolean", "boolean"), ("integer", "integer"), ("number", "number"), ("text", "string")];

/// The channel of the item in a workflow with `each`.
pub(crate) const ITEM: &str = "item";

/// A list whose items are mapped by a workflow.
#[derive(Debug)]
pub(crate) struct EachSpec {
    pub(crate) items: ItemList,
    pub(crate) parallel: usize,
    /// The channel of the results.
    pub(crate) into: String,
    pub(crate) parameters: Parameters,
}

/// A workflow that is called with parameters.
#[derive(Debug)]
pub(crate) struct CallSpec {
    /// The channel of the result.
    pub(crate) into: Option<String>,
    pub(crate) parameters: Parameters,
}

/// The values with which a workflow of a workflow starts.
#[derive(Debug)]
pub(crate) struct Parameters {
    /// Those of its own file.
    pub(crate) input: Map,
    /// Those of the node, which replace them.
    pub(crate) with: Vec<(String, Filled)>,
}

/// The items that a node maps.
#[derive(Debug)]
pub(crate) enum ItemList {
    /// The items of a list.
    Each(Expression),
    /// The combinations of the items of several lists: an object with a member for each list.
    Matrix(Vec<(String, Filled)>),
}

/// An HTTP request.
#[derive(Debug)]
pub(crate) struct HttpSpec {
    pub(crate) url: Filled,
    pub(crate) method: HttpMethod,
    pub(crate) headers: Vec<(String, Filled)>,
    pub(crate) body: Option<Filled>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) into: Option<String>,
    pub(crate) format: OutputFormat,
    /// The channel of the status code: no status code is a failure then.
    pub(crate) status: Option<String>,
}

/// The methods of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpMethod {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
}

pub(crate) const METHODS: &[(&str, HttpMethod)] = &[
    ("GET", HttpMethod::Get),
    ("HEAD", HttpMethod::Head),
    ("POST", HttpMethod::Post),
    ("PUT", HttpMethod::Put),
    ("PATCH", HttpMethod::Patch),
    ("DELETE", HttpMethod::Delete),
];

#[derive(Debug)]
pub(crate) struct RunSpec {
    pub(crate) argv: Vec<Filled>,
    pub(crate) env: Vec<(String, Filled)>,
    pub(crate) folder: Option<Filled>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) into: Option<String>,
    pub(crate) format: OutputFormat,
    /// The channel of the exit code: no exit code is a failure then.
    pub(crate) status: Option<String>,
    pub(crate) items: Option<ItemList>,
    pub(crate) parallel: usize,
    /// The channels of files that the command writes, and their paths.
    pub(crate) files: Vec<(String, Filled)>,
}

/// The formats of stdout that is written to a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    Text,
    Lines,
    Json,
}

pub(crate) const OUTPUT_FORMATS: &[(&str, OutputFormat)] =
    &[("text", OutputFormat::Text), ("lines", OutputFormat::Lines), ("json", OutputFormat::Json)];

/// A value of the file: as it stands there, or computed from the state.
#[derive(Debug)]
pub(crate) enum Filled {
    Value(Value),
    Expression(Expression),
}
