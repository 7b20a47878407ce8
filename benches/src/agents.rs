//! The turn of an agent with one tool, beside the same graph written by hand.

use std::path::Path;

use annals::base::{IdSource, SystemClock};
use annals::message::ToolCall;
use annals_agents::{Agent, AgentTool, FunctionModel};
use annals_graph::graph::CompiledGraph;
use annals_graph::prelude::*;
use annals_graph::task::Task;
use annals_pydantic_ai::{DefaultSource, ModelMessage, ModelResponse, RequestPart, TextPart, ToolArgs, ToolCallPart};

use crate::disk;
use crate::figures::FigureReport;
use crate::stats::{Side, interleave, ratio, timed};
use crate::{Bench, Result};

/// The turns of each thread before the measured ones.
const BEFORE: usize = 20;

#[derive(Clone, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
struct AgentCity {
    city: String,
}

#[derive(State, Clone, Default)]
struct AgentTalk {
    #[channel(messages)]
    messages: Messages,
}

/// The agent: a scripted model that calls the tool, and answers with its result.
fn agent() -> Agent {
    let model = FunctionModel::new(|call| {
        let part = match call.messages.last() {
            Some(ModelMessage::Request(last)) if matches!(last.parts.last(), Some(RequestPart::ToolReturn(_))) => {
                TextPart::new("It rains in Bern.").into()
            }
            _ => {
                let args = [("city".to_owned(), "Bern".into())].into_iter().collect();
                let mut ids = IdSource::new();
                let mut defaults = DefaultSource::new(&SystemClock, &mut ids);
                ToolCallPart::new("weather", ToolArgs::Object(args), &mut defaults).into()
            }
        };
        Ok(ModelResponse::new(vec![part], call.now()))
    });
    Agent::new(model).tool(AgentTool::new("weather", |city: AgentCity| Ok(format!("rain in {}", city.city))))
}

/// The same by hand: a node for the model and one for the tool, each message with an id. As in the agent, the call of
/// the tool is a step of the thread, which is stored with its superstep.
fn graph() -> Result<CompiledGraph<AgentTalk>> {
    let respond = |talk: &AgentTalk| {
        let is_result = talk.messages.last().is_some_and(|last| last.tool_call_id().is_some());
        Ok(AgentTalk::update().messages([if is_result {
            Message::ai("It rains in Bern.")
        } else {
            let id = IdSource::new().uuid_v4();
            Message::ai("").with_tool_call(ToolCall::new("weather", [("city", "Bern")]).with_id(id))
        }]))
    };
    let weather = Task::new("weather", |city: AgentCity| Ok(format!("rain in {}", city.city))).store_with_caller();
    let run = move |talk: &AgentTalk, context: &Context| {
        let last = talk.messages.last().ok_or("there is a message")?;
        let message = |call: &ToolCall| {
            let id = call.id.clone().unwrap_or_default();
            let result = weather.call(context, call.args_as()?)?;
            Ok(Message::tool(result, id).with_name("weather"))
        };
        let messages: NodeResult<Vec<_>> = last.tool_calls().iter().map(message).collect();
        Ok(AgentTalk::update().messages(messages?))
    };
    Ok(StateGraph::<AgentTalk>::new()
        .node("model", respond)
        .node("tools", run)
        .edge(START, "model")
        .branch("model", |talk: &AgentTalk| annals_agents::tools_condition(&talk.messages))
        .edge("tools", "model")
        .compile()?)
}

/// Takes turns on a thread: of the agent, or of the graph by hand. Returns how many microseconds they took.
pub(crate) fn turns(path: &Path, by_hand: bool, count: usize) -> Result<f64> {
    let thread = disk::open(path, Synchronous::Normal)?.store.thread("t")?;
    let (agent, graph) = (agent(), graph()?);
    let (us, ()) = timed(|| {
        (0..count).try_for_each(|_| if by_hand { turn(&graph, &thread) } else { ask(&agent, &thread) }.map(|_| ()))
    })?;
    Ok(us)
}

fn ask(agent: &Agent, thread: &Thread) -> Result<usize> {
    Ok(agent.run("The weather?").thread(thread).invoke()?.output.len())
}

fn turn(graph: &CompiledGraph<AgentTalk>, thread: &Thread) -> Result<usize> {
    let update = AgentTalk::update().messages([Message::human("The weather?")]);
    Ok(graph.invoke(thread, update)?.state().messages.len())
}

/// Measures the figure.
pub(crate) fn measure(bench: &Bench, report: &mut FigureReport) -> Result<()> {
    let by_agent = disk::open(&bench.file("agent.db")?, Synchronous::Normal)?;
    let by_hand = disk::open(&bench.file("by_hand.db")?, Synchronous::Normal)?;
    let (agent, graph) = (agent(), graph()?);
    let thread = by_agent.store.thread("t")?;
    let other = by_hand.store.thread("t")?;
    for _ in 0..BEFORE {
        ask(&agent, &thread)?;
        turn(&graph, &other)?;
    }
    let mut sides: [Side<'_>; 2] =
        [Box::new(|| Ok(timed(|| ask(&agent, &thread))?.0)), Box::new(|| Ok(timed(|| turn(&graph, &other))?.0))];
    let costs = interleave(bench.runs(200, 20), &mut sides)?;
    let (agents, hands) = (&costs[0], &costs[1]);
    report.set("agent_turn_us", crate::stats::median(agents));
    report.set("agent_turn_ratio", ratio(agents, hands));
    Ok(())
}
