//! Reads a workflow from the text of a file. All problems of a file are reported at once.

mod mapped;
mod whole;

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use annals_graph::annals::base::{Map, Value};

use crate::error::{Error, Result};
use crate::expression::{Expression, FixedKind};
use crate::limits::{
    ATTEMPTS_MAX, CHANNELS_MAX, CHOICES_MAX, DEPTH_MAX, EDGES_MAX, FILE_BYTES_MAX, FILES_MAX, NODES_MAX,
};
use crate::problem::{FileError, nearest};
use crate::reader::FileReader;
use crate::spec::{
    ANSWERS, CallSpec, EachSpec, Filled, FlowEdge, FlowNode, FlowRetry, FlowSpec, FlowWork, HttpMethod, HttpSpec, ITEM,
    METHODS, OUTPUT_FORMATS, OutputFormat, Outputs, Parameters, REDUCERS, Reducer, RunSpec,
};
use crate::tree::{self, FileMember, FileValue, ValueKind};

const FILE_KEYS: &[&str] = &[
    "name",
    "description",
    "channels",
    "input",
    "start",
    "outputs",
    "secrets",
    "redact",
    "notify",
    "schedule",
    "nodes",
];
const NODE_KEYS: &[&str] = &[
    "run", "set", "wait", "ask", "http", "workflow", "after", "next", "into", "format", "status", "env", "folder",
    "timeout", "method", "headers", "body", "retry", "each", "parallel", "answer", "choices", "matrix", "with",
    "files",
];
/// The keys of which a node has exactly one, each with those that belong to it.
const WORK_KEYS: &[(&str, &[&str])] = &[
    ("run", &["into", "format", "status", "env", "folder", "timeout", "each", "matrix", "parallel", "files"]),
    ("set", &[]),
    ("wait", &[]),
    ("ask", &["into", "answer", "choices"]),
    ("http", &["into", "format", "status", "timeout", "method", "headers", "body"]),
    ("workflow", &["into", "each", "matrix", "parallel", "with"]),
];
/// The keys that any node can have.
const COMMON_KEYS: &[&str] = &["after", "next", "retry"];
const RETRY_KEYS: &[&str] = &["attempts", "pause", "backoff"];
const EDGE_KEYS: &[&str] = &["if", "to"];

/// Reads the file at a path; `depth` counts the workflows around it.
pub(crate) fn read(path: &Path, depth: usize) -> Result<FlowSpec> {
    let failed = |source| Error::Io { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    std::io::Read::read_to_end(&mut std::io::Read::take(file, FILE_BYTES_MAX as u64 + 1), &mut bytes)
        .map_err(failed)?;
    if bytes.len() > FILE_BYTES_MAX {
        return Err(Error::FileTooLong { path: path.to_owned() });
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| failed(std::io::Error::new(std::io::ErrorKind::InvalidData, error.utf8_error())))?;
    let folder = std::path::absolute(path).map_err(failed)?.parent().map(Path::to_owned).unwrap_or_default();
    parse(&text, path, folder, depth)
}

/// Reads the text of a file.
pub(crate) fn parse(text: &str, path: &Path, folder: PathBuf, depth: usize) -> Result<FlowSpec> {
    let file = path.display().to_string();
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    let root = if is_json { tree::of_json(text) } else { tree::of_toml(text) };
    let root = root.map_err(|problem| FileError { file: file.clone(), problems: vec![problem] })?;
    let mut parser = FlowParser {
        reader: FileReader { source: text, problems: Vec::new() },
        folder,
        depth,
        channels: Vec::new(),
        nodes: HashSet::new(),
        secrets: Vec::new(),
        targets: 0,
    };
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("workflow");
    let spec = parser.flow(&root, stem)?;
    let mut problems = parser.reader.problems;
    if problems.is_empty() {
        debug_assert!(!spec.start.is_empty(), "a workflow without a first node has a problem");
        debug_assert!(spec.nodes.len() <= NODES_MAX && spec.channels.len() <= CHANNELS_MAX, "so has one over a limit");
        return Ok(spec);
    }
    problems.sort_by_key(|problem| (problem.line, problem.column));
    Err(FileError { file, problems }.into())
}

struct FlowParser<'a> {
    reader: FileReader<'a>,
    folder: PathBuf,
    depth: usize,
    /// The channels with their reducers; none of one that is not known.
    channels: Vec<(String, Option<Reducer>)>,
    /// The names of the nodes.
    nodes: HashSet<String>,
    /// The names of the secrets.
    secrets: Vec<String>,
    targets: usize,
}

fn member<'v>(members: &[&'v FileMember], key: &str) -> Option<&'v FileValue> {
    members.iter().find(|member| member.key == key).map(|member| &member.value)
}

impl FlowParser<'_> {
    fn flow(&mut self, root: &FileValue, stem: &str) -> Result<FlowSpec> {
        let members = self.reader.known(root, FILE_KEYS);
        let get = |key| member(&members, key);
        let name = get("name").and_then(|value| self.reader.text(value)).unwrap_or_else(|| stem.to_owned());
        let description = get("description").and_then(|value| self.reader.text(value));
        let mut channels = Vec::new();
        let listed = get("channels").map(|value| self.reader.table(value)).unwrap_or_default();
        for channel in listed {
            let is_name = self.reader.name(&channel.key, &channel.span);
            let reducer = self.reader.word(&channel.value, REDUCERS);
            channels.extend(reducer.filter(|_| is_name).map(|reducer| (channel.key.clone(), reducer)));
            self.channels.push((channel.key.clone(), reducer));
        }
        self.limit(listed.len(), CHANNELS_MAX, "channels", root);
        let mut input = Map::new();
        for (channel, value) in self.by_channel(get("input")) {
            input.insert(channel, value.to_value());
        }
        let listed = get("nodes").map(|value| self.reader.table(value)).unwrap_or_default();
        self.limit(listed.len(), NODES_MAX, "nodes", root);
        if listed.is_empty() {
            self.reader.problem(&(0..0), "the workflow has no nodes", Some("add a table [nodes.NAME]".into()));
        }
        self.nodes = listed.iter().map(|node| node.key.clone()).collect();
        self.secrets = self.secret_names(get("secrets"));
        let mut nodes = Vec::new();
        for node in listed {
            if self.reader.name(&node.key, &node.span) {
                nodes.extend(self.node(node)?);
            }
        }
        self.limit(self.targets, EDGES_MAX, "edges", root);
        let mut outputs = Vec::new();
        for output in get("outputs").map(|value| self.reader.table(value)).unwrap_or_default() {
            if self.reader.name(&output.key, &output.span) {
                outputs.extend(self.filled(&output.value).map(|value| (output.key.clone(), value)));
            }
        }
        let start = self.start(get("start"), &nodes);
        if start.is_empty() && !listed.is_empty() && self.reader.problems.is_empty() {
            let hint = "every node follows another one: name the first with start = \"NODE\"";
            self.reader.problem(&listed[0].span, "the workflow has no first node", Some(hint.into()));
        }
        let redact = self.redact(get("redact"));
        let notify = self.notify(get("notify"));
        let schedule = self.schedule(get("schedule"), &name);
        let (folder, outputs, secrets) = (self.folder.clone(), Outputs(outputs), self.secrets.clone());
        Ok(FlowSpec {
            name,
            description,
            folder,
            channels,
            input,
            start,
            outputs,
            secrets,
            redact,
            notify,
            schedule,
            nodes,
        })
    }

    fn limit(&mut self, n: usize, max: usize, what: &str, root: &FileValue) {
        if n > max {
            self.reader.problem(&(root.span.start..root.span.start), format!("there are more than {max} {what}"), None);
        }
    }

    /// Returns the first nodes: those of `start`, or those that follow no other node.
    fn start(&mut self, value: Option<&FileValue>, nodes: &[FlowNode]) -> Vec<String> {
        if let Some(value) = value {
            let names = self.reader.texts(value);
            return names.into_iter().filter(|(name, span)| self.node_name(name, span)).map(|(name, _)| name).collect();
        }
        // An edge of a node to itself does not lead to it from elsewhere.
        let edges = nodes.iter().flat_map(|node| node.next.iter().map(|edge| (node.name.as_str(), edge.to.as_deref())));
        let targets: HashSet<&str> = edges.filter_map(|(from, to)| to.filter(|to| *to != from)).collect();
        let follows = |node: &FlowNode| !node.after.is_empty() || targets.contains(node.name.as_str());
        let first = nodes.iter().filter(|node| !follows(node));
        first.map(|node| node.name.clone()).collect()
    }

    fn node_name(&mut self, name: &str, span: &Range<usize>) -> bool {
        let is_known = self.nodes.contains(name);
        if !is_known {
            let near = nearest(name, self.nodes.iter().map(String::as_str));
            let hint = near.map(|near| format!("did you mean `{near}`?"));
            self.reader.problem(span, format!("node `{name}` does not exist"), hint);
        }
        is_known
    }

    fn channel_name(&mut self, name: &str, span: &Range<usize>) -> bool {
        let is_known = self.channels.iter().any(|(channel, _)| channel == name);
        if !is_known {
            let near = nearest(name, self.channels.iter().map(|(channel, _)| channel.as_str()));
            let hint = near.map_or_else(
                || format!("add it to [channels]: {name} = \"last\""),
                |near| format!("did you mean `{near}`?"),
            );
            self.reader.problem(span, format!("channel `{name}` does not exist"), Some(hint));
        }
        is_known
    }

    fn channel(&mut self, value: Option<&FileValue>) -> Option<String> {
        let value = value?;
        let name = self.reader.text(value)?;
        self.channel_name(&name, &value.span).then_some(name)
    }

    /// Returns the members of a table whose keys are channels.
    fn by_channel<'v>(&mut self, value: Option<&'v FileValue>) -> Vec<(String, &'v FileValue)> {
        let members = value.map(|value| self.reader.table(value)).unwrap_or_default();
        let known = members.iter().filter(|member| self.channel_name(&member.key, &member.span));
        known.map(|member| (member.key.clone(), &member.value)).collect()
    }

    fn node(&mut self, node: &FileMember) -> Result<Option<FlowNode>> {
        let members = self.reader.known(&node.value, NODE_KEYS);
        let get = |key| member(&members, key);
        let Some(work) = self.work(node, &members) else { return Ok(None) };
        let parsed = match work.key.as_str() {
            "run" => self.run(&members, &work.value),
            "http" => self.http(&members, &work.value),
            "set" => {
                let mut writes = Vec::new();
                for (channel, value) in self.by_channel(Some(&work.value)) {
                    writes.extend(self.filled(value).map(|value| (channel, value)));
                }
                Some(FlowWork::Set(writes))
            }
            "wait" => self.reader.duration(&work.value).map(FlowWork::Wait),
            "ask" => {
                if get("into").is_none() {
                    let hint = "add into = \"CHANNEL\", which the resume value is written to";
                    self.reader.problem(&work.span, "a node with `ask` needs `into`", Some(hint.into()));
                }
                let text = self.filled(&work.value);
                let into = self.channel(get("into"));
                let schema = self.answer(&members, into.as_deref().unwrap_or_default());
                into.zip(text).map(|(into, text)| FlowWork::Ask { text, into, schema })
            }
            _ => self.workflow(&members, &work.value)?,
        };
        let after = get("after").map(|value| self.reader.texts(value)).unwrap_or_default();
        let after: Vec<String> =
            after.into_iter().filter(|(name, span)| self.node_name(name, span)).map(|(name, _)| name).collect();
        let next = get("next").map(|value| self.next(value)).unwrap_or_default();
        self.targets += after.len() + next.len();
        let retry = get("retry").and_then(|value| self.retry(value));
        Ok(parsed.map(|work| FlowNode { name: node.key.clone(), work, after, next, retry }))
    }

    /// Reads `answer` or `choices`: the schema of the resume value of a channel.
    fn answer(&mut self, members: &[&FileMember], channel: &str) -> Option<Value> {
        let (answer, choices) = (member(members, "answer"), member(members, "choices"));
        let (name, of) = match (answer, choices) {
            (None, None) => return None,
            (Some(_), Some(choices)) => {
                let hint = "the choices have their types: leave out `answer`";
                self.reader.problem(&choices.span, "the node has `answer` too", Some(hint.into()));
                return None;
            }
            (Some(answer), None) => ("type", Value::from(self.reader.word(answer, ANSWERS)?)),
            (None, Some(choices)) => ("enum", self.choices(choices)?),
        };
        let members = [("title".to_owned(), Value::from(channel)), (name.to_owned(), of)];
        Some(Value::Map(members.into_iter().collect()))
    }

    fn choices(&mut self, value: &FileValue) -> Option<Value> {
        let items = match &value.kind {
            ValueKind::List(items) => items.as_slice(),
            _ => &[],
        };
        let is_scalar = |item: &FileValue| {
            matches!(item.kind, ValueKind::Text(_) | ValueKind::Int(_) | ValueKind::Float(_) | ValueKind::Bool(_))
        };
        if !(1..=CHOICES_MAX).contains(&items.len()) || !items.iter().all(is_scalar) {
            let hint = format!("texts, numbers or booleans, at most {CHOICES_MAX}");
            self.reader.problem(&value.span, "expected a list of choices", Some(hint));
            return None;
        }
        Some(Value::List(items.iter().map(FileValue::to_value).collect()))
    }

    /// Returns the member that gives the work of a node. The others must belong to it.
    fn work<'v>(&mut self, node: &FileMember, members: &[&'v FileMember]) -> Option<&'v FileMember> {
        let own = |member: &&&FileMember| WORK_KEYS.iter().find(|(key, _)| *key == member.key);
        let works: Vec<&&FileMember> = members.iter().filter(|member| own(member).is_some()).collect();
        let keys = WORK_KEYS.iter().map(|(key, _)| *key).collect::<Vec<_>>().join(", ");
        let work = match works.as_slice() {
            [work] => **work,
            [] => {
                let message = format!("node `{}` does nothing", node.key);
                self.reader.problem(&node.span, message, Some(format!("add one of {keys}")));
                return None;
            }
            [_, second, ..] => {
                let message = format!("node `{}` has `{}` too", node.key, second.key);
                self.reader.problem(&second.span, message, Some(format!("a node has one of {keys}")));
                return None;
            }
        };
        let belong = own(&&work).map_or(&[][..], |(_, keys)| keys);
        for other in members.iter().filter(|other| other.key != work.key) {
            let key = other.key.as_str();
            if !belong.contains(&key) && !COMMON_KEYS.contains(&key) {
                let message = format!("`{key}` does not belong to a node with `{}`", work.key);
                self.reader.problem(&other.span, message, None);
            }
        }
        Some(work)
    }

    /// Reads a value; the channels of its expression must exist.
    fn filled(&mut self, value: &FileValue) -> Option<Filled> {
        let filled = self.reader.filled(value)?;
        if let Filled::Expression(expression) = &filled {
            self.reads(expression, value);
        }
        Some(filled)
    }

    fn expression(&mut self, value: &FileValue) -> Option<Expression> {
        let expression = self.reader.expression(value)?;
        self.reads(&expression, value);
        Some(expression)
    }

    fn reads(&mut self, expression: &Expression, value: &FileValue) {
        for channel in expression.channels() {
            self.channel_name(channel, &value.span);
        }
        let is_sum = |name: &str| self.channels.iter().any(|channel| *channel == (name.to_owned(), Some(Reducer::Sum)));
        if let Err(message) = expression.kind(&|name| is_sum(name).then_some(FixedKind::Number)) {
            self.reader.problem(&value.span, message, Some("docs/flows.md describes expressions".into()));
        }
    }

    fn run(&mut self, members: &[&FileMember], value: &FileValue) -> Option<FlowWork> {
        let get = |key| member(members, key);
        let argv = match &value.kind {
            ValueKind::List(items) if !items.is_empty() => items.iter().filter_map(|item| self.filled(item)).collect(),
            ValueKind::List(_) => {
                self.reader.problem(&value.span, "the command is empty", None);
                return None;
            }
            _ => {
                let script = self.reader.text(value)?;
                ["sh", "-c", &script].map(|word| Filled::Value(Value::from(word))).into()
            }
        };
        let (items, parallel) = self.items(members);
        let mut env = Vec::new();
        for variable in get("env").map(|value| self.reader.table(value)).unwrap_or_default() {
            if variable.key.is_empty() || variable.key.contains(['=', '\0']) {
                self.reader.problem(&variable.span, "a variable has a name without `=`", None);
            }
            env.extend(self.filled(&variable.value).map(|value| (variable.key.clone(), value)));
        }
        self.needs_into(members, &["format", "each", "matrix"]);
        for key in ["status", "files"] {
            if let Some(value) = get(key).filter(|_| get("each").or(get("matrix")).is_some()) {
                self.reader.problem(&value.span, format!("`{key}` does not go with `each` or `matrix`"), None);
            }
        }
        let mut files = Vec::new();
        for (channel, path) in self.by_channel(get("files")) {
            files.extend(self.filled(path).map(|path| (channel, path)));
        }
        if let Some(value) = get("files").filter(|_| files.len() > FILES_MAX) {
            self.reader.problem(&value.span, format!("there are more than {FILES_MAX} files"), None);
        }
        let format = get("format").and_then(|value| self.reader.word(value, OUTPUT_FORMATS));
        Some(FlowWork::Run(RunSpec {
            argv,
            env,
            folder: get("folder").and_then(|value| self.filled(value)),
            timeout: get("timeout").and_then(|value| self.reader.duration(value)),
            into: self.channel(get("into")),
            format: format.unwrap_or(OutputFormat::Text),
            status: self.channel(get("status")),
            items,
            parallel,
            files,
        }))
    }

    fn needs_into(&mut self, members: &[&FileMember], keys: &[&str]) {
        for key in keys {
            if let Some(value) = member(members, key).filter(|_| member(members, "into").is_none()) {
                let hint = "add into = \"CHANNEL\"";
                self.reader.problem(&value.span, format!("`{key}` needs `into`"), Some(hint.into()));
            }
        }
    }

    fn http(&mut self, members: &[&FileMember], value: &FileValue) -> Option<FlowWork> {
        let get = |key| member(members, key);
        let mut headers = Vec::new();
        for header in get("headers").map(|value| self.reader.table(value)).unwrap_or_default() {
            let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            if header.key.is_empty() || !header.key.chars().all(is_token) {
                self.reader.problem(&header.span, "a header has a name of letters, digits and hyphens", None);
            }
            headers.extend(self.header(&header.value).map(|value| (header.key.clone(), value)));
        }
        self.needs_into(members, &["format"]);
        let body = get("body").and_then(|value| self.filled(value));
        let method = get("method").and_then(|value| self.reader.word(value, METHODS));
        let implied = if body.is_some() { HttpMethod::Post } else { HttpMethod::Get };
        let method = method.unwrap_or(implied);
        if let Some(value) = get("body").filter(|_| matches!(method, HttpMethod::Get | HttpMethod::Head)) {
            self.reader.problem(
                &value.span,
                "a request with this method has no body",
                Some("method = \"POST\"".into()),
            );
        }
        let url = self.filled(value)?;
        if let Filled::Value(url) = &url
            && !url.as_str().is_some_and(|url| url.starts_with("http://"))
        {
            let hint = "a command such as curl makes requests with TLS";
            self.reader.problem(&value.span, "the address does not begin with http://", Some(hint.into()));
        }
        let format = get("format").and_then(|value| self.reader.word(value, OUTPUT_FORMATS));
        Some(FlowWork::Http(HttpSpec {
            url,
            method,
            headers,
            body,
            timeout: get("timeout").and_then(|value| self.reader.duration(value)),
            into: self.channel(get("into")),
            format: format.unwrap_or(OutputFormat::Text),
            status: self.channel(get("status")),
        }))
    }

    /// Reads the workflow of another file, which must not contain this one.
    fn workflow(&mut self, members: &[&FileMember], value: &FileValue) -> Result<Option<FlowWork>> {
        let Some(file) = self.reader.text(value) else { return Ok(None) };
        if self.depth >= DEPTH_MAX {
            let message = format!("there are more than {DEPTH_MAX} workflows in each other");
            self.reader.problem(&value.span, message, Some("a workflow cannot contain itself".into()));
            return Ok(None);
        }
        let path = self.folder.join(&file);
        if !path.is_file() {
            self.reader.problem(&value.span, format!("file {} does not exist", path.display()), None);
            return Ok(None);
        }
        let mut spec = Box::new(read(&path, self.depth + 1)?);
        let (items, parallel) = self.items(members);
        let given = member(members, "with");
        let with = self.with(given, &spec, &path);
        let Some(items) = items else {
            if given.is_some() {
                let parameters = Parameters { input: std::mem::take(&mut spec.input), with };
                let into = self.channel(member(members, "into"));
                return Ok(Some(FlowWork::Call(spec, CallSpec { into, parameters })));
            }
            if let Some(into) = member(members, "into") {
                let message = "`into` needs `each`, `matrix` or `with` in a node with `workflow`";
                let hint = "without them channels with the same name are shared";
                self.reader.problem(&into.span, message, Some(hint.into()));
            }
            return Ok(Some(FlowWork::Workflow(spec)));
        };
        self.needs_into(members, &["each", "matrix"]);
        if !spec.channels.iter().any(|(channel, _)| channel == ITEM) {
            let message = format!("{} has no channel `{ITEM}`, which each item is written to", path.display());
            self.reader.problem(&value.span, message, Some(format!("add {ITEM} = \"last\" to its [channels]")));
        }
        let parameters = Parameters { input: std::mem::take(&mut spec.input), with };
        let into = self.channel(member(members, "into"));
        Ok(into.map(|into| FlowWork::Each(spec, EachSpec { items, parallel, into, parameters })))
    }

    fn next(&mut self, value: &FileValue) -> Vec<FlowEdge> {
        let items = match &value.kind {
            ValueKind::List(items) => items.as_slice(),
            _ => std::slice::from_ref(value),
        };
        let is_table = |item: &FileValue| matches!(item.kind, ValueKind::Table(_));
        if items.iter().any(is_table) && !items.iter().all(is_table) {
            let hint = "write { to = \"NODE\" } for a target without a condition";
            self.reader.problem(&value.span, "`next` mixes names and conditions", Some(hint.into()));
        }
        let mut edges = Vec::new();
        for item in items {
            let (condition, target) = if is_table(item) {
                let members = self.reader.known(item, EDGE_KEYS);
                let condition = member(&members, "if").and_then(|value| self.expression(value));
                let Some(to) = member(&members, "to") else {
                    self.reader.problem(&item.span, "the edge has no `to`", None);
                    continue;
                };
                // An edge without a condition always holds.
                let always = Expression::Literal(Value::Bool(true));
                (Some(condition.unwrap_or(always)), to)
            } else {
                (None, item)
            };
            let Some(name) = self.reader.text(target) else { continue };
            if name == "end" {
                edges.push(FlowEdge { condition, to: None });
            } else if self.node_name(&name, &target.span) {
                edges.push(FlowEdge { condition, to: Some(name) });
            }
        }
        edges
    }

    fn retry(&mut self, value: &FileValue) -> Option<FlowRetry> {
        let members = self.reader.known(value, RETRY_KEYS);
        let get = |key| member(&members, key);
        let attempts = get("attempts").and_then(|value| self.reader.int(value, 1..=ATTEMPTS_MAX)).unwrap_or(3);
        let pause = get("pause").and_then(|value| self.reader.duration(value)).unwrap_or_default();
        let backoff = match get("backoff").map(|value| (&value.kind, value)) {
            None => 1.0,
            Some((ValueKind::Float(factor), _)) if (1.0..=100.0).contains(factor) => *factor,
            Some((ValueKind::Int(factor), _)) if (1..=100).contains(factor) => *factor as f64,
            Some((_, value)) => {
                self.reader.problem(&value.span, "expected a factor from 1 to 100", None);
                1.0
            }
        };
        Some(FlowRetry { attempts: u32::try_from(attempts).unwrap_or(1), pause, backoff })
    }
}
