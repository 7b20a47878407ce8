//! The scenarios of LangGraph's tool node and LangChain's agents: each is run by the tool node or the agent of this
//! crate, and compared with what the libraries do (`tests/parity/langchain_agents/record.py` records it).

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use annals_agents::{
    AgentTool, ChatCall, ModelError, ModelInput, ReactAgent, ReactState, ReviewDecision, ToolCommand, ToolContext,
    ToolErrors, ToolNode, ToolOutput, ToolReply, ToolReview, send_tool_calls, tools_condition,
};
use annals_base::{Map, Value};
use annals_graph::graph::{BoxError, IntoOutput, Own};
use annals_graph::prelude::*;
use annals_messages::{Message, ToolCall, ToolStatus};
use annals_pydantic_ai::{ErrorDetail, Location, ToolContent};
use serde_json::{Value as Json, json};

/// The error of a scripted tool, with the name of its class in Python.
macro_rules! python_errors {
    ($($name:ident),*) => {$(
        struct $name(String);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "('{}')"), self.0)
            }
        }

        impl std::error::Error for $name {}
    )*};
}
python_errors!(ValueError, KeyError);

/// The state of the graphs with a tool node.
#[derive(State, Clone, Default)]
struct Desk {
    #[channel(messages)]
    messages: Messages,
    topic: Option<String>,
    count: Option<i64>,
}

/// The models' calls so far, and what each was sent.
#[derive(Clone, Default)]
struct Record(Arc<Mutex<Vec<Json>>>);

impl Record {
    fn push(&self, entry: Json) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    }

    fn take(&self) -> Vec<Json> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn text<'a>(of: &'a Json, name: &str) -> &'a str {
    of[name].as_str().unwrap_or_default()
}

fn items(of: &Json) -> &[Json] {
    of.as_array().map_or(&[], Vec::as_slice)
}

fn names(of: &Json) -> Vec<&str> {
    items(of).iter().filter_map(Json::as_str).collect()
}

/// Reads a message in the format of the scenarios.
fn message(spec: &Json) -> Message {
    let (more, content) = (&spec[2], annals_messages::Content::try_from(Value::from(spec[1].clone())).unwrap());
    match spec[0].as_str().unwrap() {
        "ai" => items(&more["calls"]).iter().fold(Message::ai(content), |message, call| {
            let args: Value = call[1].clone().into();
            let args = args.as_map().unwrap().iter().map(|(name, value)| (name.clone(), value.clone()));
            message.with_tool_call(ToolCall::new(call[0].as_str().unwrap(), args).with_id(call[2].as_str().unwrap()))
        }),
        "tool" => {
            let mut message = Message::tool(content, text(more, "of"));
            message.name = more["name"].as_str().map(str::to_owned);
            if more["status"] == "error" { message.with_status(ToolStatus::Error) } else { message }
        }
        "remove_all" => Message::remove_all(),
        "system" => Message::system(content),
        _ => Message::human(content),
    }
}

/// Returns a content with tags in place of the sentences of this crate.
fn plain(content: &str) -> String {
    let between = |begin: &str, end: &str| content.strip_prefix(begin)?.split_once(end);
    if let Some((name, known)) = between("There is no tool \"", "\". Known tools: ") {
        return format!("<unknown {name} of {}>", known.replace('"', ""));
    }
    if let Some((name, rest)) = between("The arguments of tool \"", "\" do not fit:\n") {
        let lines = rest.strip_suffix("\nCorrect them, and call the tool again.").expect("the end of the sentence");
        let places: Vec<&str> = lines.lines().filter_map(|line| line.split(':').next()).collect();
        return if name == "Answer" {
            "<bad output>".into()
        } else {
            format!("<invalid {name}: {}>", places.join(", "))
        };
    }
    if let Some((error, _)) = between("The tool failed: ", "\nCorrect the call, and call the tool again.") {
        let kind = if error.starts_with("ToolCallError") { "invalid" } else { error };
        return format!("<error {kind}>");
    }
    if let Some((call, rest)) = between("A person has changed this call. The call that ran: ", ". Its result:\n") {
        return format!("<edited {}>{}", call.split(' ').next().unwrap(), plain(rest));
    }
    let tags = [
        ("The output was returned more than once", "<many outputs>"),
        ("The output was taken", "<output>"),
        ("The run has reached its limit", "<model limit>"),
        ("The call did not run: the limit", "<tool limit>"),
        ("A person has rejected the call: it did not run", "<rejected>"),
    ];
    if let Some((_, tag)) = tags.iter().find(|(begin, _)| content.starts_with(begin)) {
        return (*tag).to_owned();
    }
    match content.strip_prefix("A person has rejected the call: ") {
        Some(reason) => format!("<rejected: {reason}>"),
        None => content.to_owned(),
    }
}

/// Shows a message in the format of the scenarios.
fn shown(message: &Message) -> Json {
    let content = match &message.content {
        annals_messages::Content::Text(content) => plain(content).into(),
        other => other.to_value().to_json(),
    };
    let mut shown = vec![message.kind().into(), content];
    let call = |call: &ToolCall| json!([call.name, Value::Map(call.args.clone()).to_json(), call.id]);
    if !message.tool_calls().is_empty() {
        shown.push(json!({"calls": message.tool_calls().iter().map(call).collect::<Vec<_>>()}));
    }
    if let Some(id) = message.tool_call_id() {
        let status = message.status().unwrap_or_default().as_str();
        let mut more = json!({"of": id, "name": message.name, "status": status});
        if let Some(artifact) = message.artifact().filter(|artifact| **artifact != Value::Null) {
            more["artifact"] = artifact.to_json();
        }
        shown.push(more);
    }
    shown.into()
}

/// Puts the arguments and the id of a call into a value of a script.
fn filled(value: &Json, args: &Value, id: &str) -> Json {
    match value {
        Json::String(text) if text == "$id" => id.into(),
        Json::String(text) => {
            let members = args.as_map().into_iter().flatten();
            let text = members.fold(text.clone(), |text, (name, value)| {
                text.replace(&format!("{{{name}}}"), &value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            });
            text.into()
        }
        Json::Array(values) => values.iter().map(|value| filled(value, args, id)).collect(),
        Json::Object(map) => map
            .iter()
            .map(|(name, value)| (name.clone(), filled(value, args, id)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

fn reply(spec: &Json) -> ToolReply {
    if spec["message"].is_array() {
        return message(&spec["message"]).into();
    }
    let spec = &spec["command"];
    let mut command = items(&spec["messages"]).iter().fold(ToolCommand::new(), |all, one| all.message(message(one)));
    for (name, value) in spec["set"].as_object().into_iter().flatten() {
        command = command.set(name, value.clone());
    }
    for target in items(&spec["goto"]) {
        command = match target.as_str() {
            Some(node) => command.goto(node),
            None => command.goto(SendTo::new(target[0].as_str().unwrap(), target[1].clone())),
        };
    }
    if spec["parent"] == true { command.to_parent() } else { command }.into()
}

/// Runs a scripted tool.
fn act(does: &Json, args: &Value, context: &ToolContext) -> Result<ToolOutput, BoxError> {
    let data = |value: Value| Ok(ToolOutput::new(ToolContent::data(value)));
    let got = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if let Some(raised) = does.get("raise") {
        let words = raised[1].as_str().unwrap().to_owned();
        return Err(if raised[0] == "ValueError" { ValueError(words).into() } else { KeyError(words).into() });
    }
    if let Some(asked) = does.get("interrupt") {
        return data(format!("got {}", got(&context.interrupt(asked.clone())?)).into());
    }
    if let Some(asked) = does.get("ask_twice") {
        let (first, second) = (context.interrupt(asked[0].clone())?, context.interrupt(asked[1].clone())?);
        return data(format!("got {} and {}", got(&first), got(&second)).into());
    }
    if let Some(field) = does.get("state") {
        let messages = context.state::<Desk>().map(|desk| &desk.messages);
        let messages = messages.or_else(|| context.state::<ReactState>().map(|state| &state.messages));
        if field == "messages" {
            let count = messages.ok_or("there is a state")?.len();
            return data(i64::try_from(count)?.into());
        }
        let topic = context.state::<Desk>().and_then(|desk| desk.topic.clone());
        let sent = || context.state::<Value>()?.get("topic")?.as_str().map(str::to_owned);
        return data(topic.or_else(sent).ok_or("there is a topic")?.into());
    }
    if let Some(key) = does.get("store") {
        let item = context.kv()?.get(["notes"], key.as_str().unwrap())?;
        return data(item.and_then(|item| item.value.get("text").cloned()).unwrap_or_else(|| "nothing".into()));
    }
    if let Some(name) = does.get("context") {
        let given: &Json = context.deps().ok_or("there is a context value")?;
        return data(given[name.as_str().unwrap()].clone().into());
    }
    if let Some(replies) = does.get("reply") {
        let replies = filled(replies, args, context.tool_call_id());
        return Ok(ToolOutput::replies(items(&replies).iter().map(reply)));
    }
    let value = does.get("echo").or_else(|| does.get("return")).unwrap();
    let output = ToolOutput::new(ToolContent::data(filled(value, args, "").into()));
    Ok(match does.get("artifact") {
        Some(artifact) => output.with_metadata(artifact.clone()),
        None => output,
    })
}

fn tool(spec: &Json) -> AgentTool {
    let (kinds, does) = (spec["args"].clone(), spec["do"].clone());
    let check = move |args: &Value| {
        let problem = |(name, kind): (&String, &Json)| {
            let kind = kind.as_str().unwrap();
            let fits = match (args.get(name), kind) {
                (None, kind) => kind.ends_with('?'),
                (Some(value), "int") => value.as_int().is_some(),
                (Some(value), _) => value.as_str().is_some(),
            };
            let place = vec![Location::Name(name.clone())];
            (!fits).then(|| ErrorDetail::new("wrong", place, format!("{kind} expected"), args.clone()))
        };
        let problems: Vec<_> = kinds.as_object().into_iter().flatten().filter_map(problem).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    };
    let run = move |args: Value, context: &ToolContext| act(&does, &args, context);
    let tool = AgentTool::with_schema(text(spec, "name"), Map::new(), check, run);
    if spec["direct"] == true { tool.return_direct() } else { tool }
}

fn tools(scenario: &Json) -> Vec<AgentTool> {
    items(&scenario["tools"]).iter().map(tool).collect()
}

fn errors(scenario: &Json) -> ToolErrors {
    match &scenario["errors"] {
        Json::Bool(true) => ToolErrors::all(),
        Json::Bool(false) => ToolErrors::none(),
        Json::String(words) => ToolErrors::text(words),
        Json::Object(spec) if spec.contains_key("only") => ToolErrors::of::<ValueError>(),
        Json::Object(spec) => {
            let words = spec["words"].as_str().unwrap().to_owned();
            ToolErrors::with(move |error| Some(words.replace("{}", &error.to_string())))
        }
        _ => ToolErrors::arguments(),
    }
}

/// Returns a model that follows a script.
fn scripted(
    script: &Json,
    record: &Record,
) -> impl Fn(&ChatCall) -> Result<Message, ModelError> + Send + Sync + 'static {
    let (script, record, at) = (script.clone(), record.clone(), Mutex::new(0));
    move |call| {
        let seen = |message: &Message| json!([message.kind(), shown(message)[1]]);
        record.push(call.messages.iter().map(seen).collect());
        let mut at = at.lock().unwrap_or_else(PoisonError::into_inner);
        *at += 1;
        let entry = &script[*at - 1];
        if entry[0] == "fail" { Err(ModelError::fatal(entry[1].as_str().unwrap())) } else { Ok(message(entry)) }
    }
}

/// Returns a graph with the tool node.
fn own_graph(scenario: &Json, record: &Record) -> CompiledGraph<Desk> {
    let node = ToolNode::new(tools(scenario)).errors(errors(scenario));
    let way = text(scenario, "way");
    let on = |chat: &Desk| tools_condition(&chat.messages);
    let others = |graph: StateGraph<Desk>| {
        graph
            .node("expert", |desk: &Desk| {
                let topic = desk.topic.as_deref().unwrap_or_default();
                Ok(Desk::update().messages([Message::ai(format!("expert on {topic}"))]))
            })
            .node(
                "worker",
                Own(|arg: Value| {
                    let item = arg["item"].as_str().unwrap_or_default().to_owned();
                    Ok(Desk::update().messages([Message::ai(format!("worker on {item}"))]))
                }),
            )
    };
    let graph = match way {
        "send" => StateGraph::new().node("tools", node.sent()),
        _ => StateGraph::new().node("tools", node.on(|desk: &Desk| &desk.messages)),
    };
    match way {
        "send" => others(graph).branch(START, |desk: &Desk| {
            let topic = desk.topic.as_deref().map_or(Value::Null, Value::from);
            let state = Value::Map(Map::from_iter([("topic".to_owned(), topic)]));
            send_tool_calls("tools", &desk.messages, &state)
        }),
        "parent" => {
            let inner = graph.edge(START, "tools").compile().unwrap();
            others(StateGraph::new().node("inner", inner)).edge(START, "inner")
        }
        "condition" => others(graph).branch(START, on),
        "loop" => {
            let model = scripted(&scenario["scripts"][0], record);
            let ask = move |desk: &Desk| {
                let messages = desk.messages.iter().cloned().collect();
                Ok(Desk::update().messages([model(&call_of(messages))?]))
            };
            others(graph).node("model", ask).edge(START, "model").branch("model", on).edge("tools", "model")
        }
        _ => others(graph).edge(START, "tools"),
    }
    .compile()
    .unwrap()
}

/// Returns a request with these messages, as the agent of this crate makes one.
fn call_of(messages: Vec<Message>) -> ChatCall {
    let asked = Arc::new(Mutex::new(None));
    let taken = Arc::clone(&asked);
    let agent = ReactAgent::new(move |call: &ChatCall| {
        *taken.lock().unwrap_or_else(PoisonError::into_inner) = Some(call.clone());
        Ok(Message::ai(""))
    });
    agent.compile().unwrap().invoke((), ReactState::update().messages(messages)).unwrap();
    let call = asked.lock().unwrap_or_else(PoisonError::into_inner).take();
    call.unwrap()
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[allow(dead_code)]
struct Answer {
    city: String,
    celsius: i64,
}

fn agent(scenario: &Json, record: &Record) -> CompiledGraph<ReactState> {
    let scripts = items(&scenario["scripts"]);
    let mut agent = ReactAgent::new(scripted(&scripts[0], record)).tool_errors(errors(scenario));
    agent = scripts[1..].iter().fold(agent, |agent, script| agent.fallback(scripted(script, record)));
    agent = tools(scenario).into_iter().fold(agent, ReactAgent::tool);
    if let Some(prompt) = scenario["prompt"].as_str() {
        agent = agent.prompt(prompt);
    }
    if scenario["kind"] == "react" {
        agent = agent.at_step_limit("<out of steps>");
    }
    let hooks = scenario["hooks"].clone();
    let count = |name: &str| scenario[name].as_u64().and_then(|count| usize::try_from(count).ok());
    let newest = |messages: &[Message], count: &Json| {
        let count = usize::try_from(count.as_u64().unwrap()).unwrap();
        messages[messages.len().saturating_sub(count)..].to_vec()
    };
    if hooks["last"].is_u64() || hooks["keep"].is_u64() {
        let hooks = hooks.clone();
        agent = agent.before_model(move |messages, _| {
            Ok(match hooks.get("last") {
                Some(last) => ModelInput::Sent(newest(messages, last)),
                None => ModelInput::Stored(newest(messages, &hooks["keep"])),
            })
        });
    }
    if let Some(secret) = hooks["redact"].as_str().map(str::to_owned) {
        agent = agent.after_call(move |_, message| message.content = message.text().replace(&secret, "***").into());
    }
    if let Some(name) = hooks["answer"].as_str().map(str::to_owned) {
        agent = agent.before_call(move |call, _| {
            let id = call.id.clone().unwrap_or_default();
            let answer = Message::tool("answered by a hook", id).with_name(&call.name);
            Ok((call.name == name).then_some(answer))
        });
    }
    if let Some(reviewed) = scenario["review"].as_object() {
        agent = agent.review(reviewed.iter().fold(ToolReview::new(), |review, (name, allowed)| {
            let decision = |name: &&str| match *name {
                "approve" => ReviewDecision::Approve,
                "edit" => ReviewDecision::Edit,
                "reject" => ReviewDecision::Reject,
                _ => ReviewDecision::Respond,
            };
            match allowed {
                Json::Bool(_) => review.tool(name),
                allowed => review.tool_with(name, names(allowed).iter().map(decision)),
            }
        }));
    }
    if let Some(limit) = count("model_limit") {
        agent = agent.model_limit(limit);
    }
    if let Some(limit) = count("tool_limit") {
        agent = agent.tool_limit(limit);
    }
    for (name, limit) in scenario["limit_of"].as_object().into_iter().flatten() {
        agent = agent.limit_of(name, usize::try_from(limit.as_u64().unwrap()).unwrap());
    }
    if scenario["format"].is_object() {
        agent = agent.response_format::<Answer>();
    }
    agent.compile().unwrap()
}

/// The value of an interrupt; the description of a review is free text.
fn interrupt(value: &Value) -> Json {
    let mut value = value.to_json();
    for action in value.get_mut("action_requests").and_then(Json::as_array_mut).into_iter().flatten() {
        action.as_object_mut().unwrap().remove("description");
    }
    value
}

/// Runs the steps of a scenario.
fn run<S: State>(
    scenario: &Json,
    graph: &CompiledGraph<S>,
    record: &Record,
    show: impl Fn(&S) -> (Messages, Json),
) -> Vec<Json>
where
    DynUpdate: IntoOutput<S>,
{
    let store = Store::memory();
    store.kv().put(["notes"], "a", Map::from_iter([("text".to_owned(), "a stored note".into())])).unwrap();
    let thread = store.thread("t").unwrap();
    let mut records = Vec::new();
    for step in items(&scenario["steps"]) {
        let limit = step["limit"].as_u64().unwrap_or(25);
        let run = graph.run(&thread).context(scenario["context"].clone()).recursion_limit(limit);
        let ran = if let Some(value) = step.get("resume") {
            run.invoke(Command::resume(value.clone()))
        } else if let Some(values) = step.get("resume_all") {
            let ids = graph.get_state(&thread).unwrap().interrupts.into_iter().map(|one| one.id);
            run.invoke(Command::resume_by_id(ids.zip(items(values).iter().cloned())))
        } else {
            let set = step["set"].as_object().into_iter().flatten();
            let update = DynUpdate::new().messages("messages", items(&step["messages"]).iter().map(message));
            run.invoke(set.fold(update, |update, (name, value)| update.set(name, value.clone())))
        };
        let state = graph.get_state(&thread).unwrap();
        let (messages, mut shows) = show(&state.values);
        shows["messages"] = messages.iter().map(shown).collect();
        if let Err(error) = ran {
            let named = scenario["names_error"] == true;
            let whole = error.to_string();
            let known = ["no luck", "gone", "down too"].into_iter().find(|known| whole.contains(known));
            shows["error"] = known.filter(|_| named).map_or(json!(true), Json::from);
        }
        if !state.interrupts.is_empty() {
            shows["interrupts"] = state.interrupts.iter().map(|one| interrupt(&one.value)).collect();
        }
        let saw = record.take();
        if !saw.is_empty() {
            shows["saw"] = saw.into();
        }
        records.push(shows);
    }
    records
}

fn records(scenario: &Json) -> Vec<Json> {
    let record = Record::default();
    if scenario["kind"] == "node" {
        return run(scenario, &own_graph(scenario, &record), &record, |desk: &Desk| {
            let mut shows = json!({});
            if let Some(topic) = &desk.topic {
                shows["topic"] = topic.as_str().into();
            }
            if let Some(count) = desk.count {
                shows["count"] = count.into();
            }
            (desk.messages.clone(), shows)
        });
    }
    run(scenario, &agent(scenario, &record), &record, |state: &ReactState| {
        let output = state.structured_response.as_ref().map(Value::to_json);
        (state.messages.clone(), output.map_or(json!({}), |output| json!({"output": output})))
    })
}

#[test]
fn every_scenario_ends_as_in_langchain() {
    let vectors: Vec<Json> =
        serde_json::from_str(include_str!("../../../../tests/parity/langchain_agents/vectors.json")).unwrap();
    assert!(vectors.len() >= 128, "{} scenarios", vectors.len());
    let mut problems = Vec::new();
    for scenario in &vectors {
        let (got, expected) = (records(scenario), items(&scenario["expect"]));
        assert_eq!(got.len(), expected.len(), "{}", scenario["id"]);
        for (at, (got, expected)) in got.iter().zip(expected).enumerate() {
            if got != expected {
                problems.push(format!("{} step {at}\n  expected {expected}\n  got      {got}", scenario["id"]));
            }
        }
    }
    assert!(problems.is_empty(), "{} differ:\n{}", problems.len(), problems.join("\n"));
}
