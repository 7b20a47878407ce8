//! Durable agents: the loop of a model and its tools, with PydanticAI's message history, over the executor of `annals`.
//!
//! An [`Agent`] asks a [`Model`], runs the [`AgentTool`]s that the model calls, and asks again until the model gives an
//! output. Every run is a thread of a [`Store`](annals_graph::annals::store::Store): each response and each result of a
//! tool is committed when it is there, and does not come a second time after a crash. A run that was killed, has failed
//! or waits for a person goes on in any process that opens the file. Without a store a run is a thread of memory.
//!
//! # The primary types
//!
//! | type | purpose |
//! | --- | --- |
//! | [`Agent`] | a model with prompts, tools, an output, limits and history processors |
//! | [`AgentRun`] | one run: its prompt, history, thread and dependencies; `invoke`, `ainvoke`, `stream`, `astream`, `iter` |
//! | [`AgentResult`] | the output, the messages in both formats, the usage |
//! | [`AgentOutcome`], [`DeferredRequests`], [`DeferredResults`] | a run that waits for approvals or results, and these |
//! | [`StreamedRun`], [`AsyncStreamedRun`] | a run that is read while its response streams in |
//! | [`AgentTool`], [`ToolContext`] | a typed function that the model can call, and its view of the run |
//! | [`ReactAgent`], [`ChatModel`], [`ToolReview`] | the ready agent over LangChain's messages, with hooks and reviews |
//! | [`ToolNode`], [`tools_condition`], [`send_tool_calls`] | the tools as a node of a graph of one's own |
//! | [`ToolCommand`], [`ToolReply`], [`ToolErrors`] | what a tool of a node returns, and the errors that the model is told |
//! | [`Model`], [`ModelCall`], [`ModelError`] | the port for models |
//! | [`TestModel`], [`FunctionModel`] | models without a provider |
//! | [`HistoryProcessor`] | a change of the history before each request |
//!
//! # Limitations
//!
//! - *No client of a provider*, no network access and no prices: a program implements [`Model`] with the client of its
//!   choice. [`ModelCall::openai_body`], [`ModelCall::openai_response`] and [`ModelCall::openai_chunks`] write and read
//!   OpenAI's chat completions. The example `chat` asks any server that has them, and the folder `clients` of the
//!   repository has models by way of async-openai and genai.
//! - *No toolsets*, no MCP, and no tools of a provider but those that its responses name.
//! - *One end of a run with an output tool*: the other calls of that response run as well (`graceful` of PydanticAI).
//! - A tool that was running at a crash runs again; [`Context::step_key`](annals_graph::task::Context::step_key) is the
//!   same each time.
//!
//! # Messages
//!
//! The six examples of PydanticAI's page on messages, in its order. The model follows a script, so that they run
//! without a provider.
//!
//! [Messages of a result](#messages-of-a-result) ·
//! [Messages of a streamed result](#messages-of-a-streamed-result) ·
//! [Messages as input of a further run](#messages-as-input-of-a-further-run) ·
//! [Store and load messages](#store-and-load-messages) ·
//! [The same messages for another model](#the-same-messages-for-another-model) ·
//! [Process the history](#process-the-history)
//!
//! ## Messages of a result
//!
//! ```
//! use annals_agents::{Agent, TestModel};
//! use annals_pydantic_ai::ModelMessage;
//!
//! # fn main() -> Result<(), annals_agents::AgentError> {
//! let model = TestModel::script(["Did you hear about the toothpaste scandal? They called it Colgate."]);
//! let agent = Agent::new(model).instructions("Be a helpful assistant.");
//!
//! let result = agent.run("Tell me a joke.").invoke()?;
//! assert_eq!(result.output, "Did you hear about the toothpaste scandal? They called it Colgate.");
//!
//! // All messages of the run: a request and a response.
//! let [ModelMessage::Request(request), ModelMessage::Response(response)] = result.all_messages() else {
//!     panic!("a request and a response")
//! };
//! assert_eq!(request.instructions.as_deref(), Some("Be a helpful assistant."));
//! assert_eq!(response.text().as_ref(), Some(&result.output));
//! assert_eq!((request.run_id.as_deref(), response.run_id.as_deref()), (Some(result.run_id()), Some(result.run_id())));
//! # Ok(())
//! # }
//! ```
//!
//! ## Messages of a streamed result
//!
//! The final response is among the messages once the stream has been read to its end.
//!
//! ```
//! use annals_agents::{Agent, FunctionModel, ModelError, ResponseChunk, ResponseStream};
//!
//! # fn main() -> Result<(), annals_agents::AgentError> {
//! let chunks = ["Did you hear", " about the toothpaste", " scandal? They called", " it Colgate."];
//! let model = FunctionModel::new(|_| Err(ModelError::fatal("this model streams")))
//!     .in_chunks(move |_| Ok(ResponseStream::ready(chunks.map(ResponseChunk::text).map(Ok))));
//! let agent = Agent::new(model).instructions("Be a helpful assistant.");
//!
//! let mut result = agent.run("Tell me a joke.").stream()?;
//! assert_eq!(result.all_messages().len(), 1, "incomplete before the stream has ended");
//!
//! let texts: Vec<String> = result.texts().collect::<Result<_, _>>()?;
//! assert_eq!(texts[0], "Did you hear");
//! assert_eq!(texts[3], "Did you hear about the toothpaste scandal? They called it Colgate.");
//!
//! assert_eq!(result.all_messages().len(), 2, "complete once the stream has ended");
//! # Ok(())
//! # }
//! ```
//!
//! ## Messages as input of a further run
//!
//! A run with a history adds no system prompt: the history is taken to have one.
//!
//! ```
//! use annals_agents::{Agent, TestModel};
//!
//! # fn main() -> Result<(), annals_agents::AgentError> {
//! let model = TestModel::script(["They called it Colgate.", "This is an excellent joke, it needs no explanation."]);
//! let agent = Agent::new(model).system_prompt("Be a helpful assistant.");
//!
//! let first = agent.run("Tell me a joke.").invoke()?;
//! let second = agent.run("Explain?").message_history(first.new_messages()).invoke()?;
//! assert_eq!(second.output, "This is an excellent joke, it needs no explanation.");
//! assert_eq!((second.all_messages().len(), second.new_messages().len()), (4, 2));
//! assert_eq!(first.conversation_id(), second.conversation_id());
//! # Ok(())
//! # }
//! ```
//!
//! ## Store and load messages
//!
//! The JSON is that of PydanticAI, which goes on with it in Python. A thread of a store needs no such steps: see
//! [A conversation that is stored](#a-conversation-that-is-stored).
//!
//! ```
//! use annals_agents::{Agent, TestModel};
//! use annals_base::{IdSource, SystemClock};
//! use annals_pydantic_ai::{DefaultSource, load};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = Agent::new(TestModel::script(["They called it Colgate.", "Sure, what about the soup?"]));
//! let first = agent.run("Tell me a joke.").invoke()?;
//!
//! let json: String = first.all_messages_json();
//! let history = load(json.as_bytes(), &mut DefaultSource::new(&SystemClock, &mut IdSource::new()))?;
//! assert_eq!(history, first.all_messages());
//!
//! let second = agent.run("Tell me a different joke.").message_history(history).invoke()?;
//! assert_eq!(second.output, "Sure, what about the soup?");
//! # Ok(())
//! # }
//! ```
//!
//! ## The same messages for another model
//!
//! Nothing in the history is rewritten.
//!
//! ```
//! use annals_agents::{Agent, TestModel};
//! use annals_pydantic_ai::ModelMessage;
//!
//! # fn main() -> Result<(), annals_agents::AgentError> {
//! let agent = Agent::new(TestModel::script(["They called it Colgate."]).with_name("large"));
//! let first = agent.run("Tell me a joke.").invoke()?;
//!
//! let other = TestModel::script(["not asked", "It needs no explanation."]).with_name("small");
//! let second = agent.run("Explain?").model(other).message_history(first.new_messages()).invoke()?;
//! let models = second.all_messages().iter().filter_map(|message| match message {
//!     ModelMessage::Response(response) => response.model_name.as_deref(),
//!     _ => None,
//! });
//! assert_eq!(models.collect::<Vec<_>>(), ["large", "small"]);
//! # Ok(())
//! # }
//! ```
//!
//! ## Process the history
//!
//! A processor gets the history before each request, and its result is sent and stored.
//!
//! ```
//! use annals_agents::{Agent, HistoryProcessor, TestModel};
//! use annals_base::{IdSource, SystemClock};
//! use annals_pydantic_ai::{DefaultSource, ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart};
//!
//! # fn main() -> Result<(), annals_agents::AgentError> {
//! let without_responses = HistoryProcessor::new(|mut history, _| {
//!     history.retain(|message| matches!(message, ModelMessage::Request(_)));
//!     Ok(history)
//! });
//! let agent = Agent::new(TestModel::script(["3+3 is 6"])).history_processor(without_responses);
//!
//! let now = DefaultSource::new(&SystemClock, &mut IdSource::new()).now().into();
//! let history: Vec<ModelMessage> = vec![
//!     ModelRequest::new(vec![UserPromptPart::new("What is 2+2?", now).into()]).into(),
//!     ModelResponse::new(vec![TextPart::new("2+2 equals 4").into()], now).into(),
//! ];
//! let result = agent.run("What about 3+3?").message_history(history).invoke()?;
//! assert_eq!(result.all_messages().len(), 3, "two requests and the response to them");
//! # Ok(())
//! # }
//! ```
//!
//! # Recipes
//!
//! [A conversation that is stored](#a-conversation-that-is-stored) ·
//! [Go back, and try another model](#go-back-and-try-another-model) ·
//! [Ask for approval](#ask-for-approval) ·
//! [A tool that somebody else runs](#a-tool-that-somebody-else-runs) ·
//! [An output with a type](#an-output-with-a-type) ·
//! [Limit a run](#limit-a-run) ·
//! [Await a run](#await-a-run) ·
//! [An agent as a tool](#an-agent-as-a-tool) ·
//! [Trace a run](#trace-a-run)
//!
//! ## A conversation that is stored
//!
//! The messages are stored in LangChain's format, so the command `annals` shows and searches them, and any graph with a
//! channel `messages` reads them.
//!
//! ```
//! use annals_agents::{Agent, TestModel};
//! use annals_graph::prelude::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("chats.db");
//! let agent = Agent::new(TestModel::script(["A hotel in Bern: the Gasthof.", "It costs 90 francs."]));
//! let trip = Store::open(&path)?.thread("trip")?;
//! agent.run("A hotel in Bern, please").thread(&trip).invoke()?;
//! drop(trip); // the process ends here, and another one begins
//!
//! let store = Store::open(&path)?;
//! let result = agent.run("The price?").thread(&store.thread("trip")?).invoke()?;
//! assert_eq!((result.output.as_str(), result.all_messages().len()), ("It costs 90 francs.", 4));
//! # Ok(())
//! # }
//! ```
//!
//! ## Go back, and try another model
//!
//! ```
//! use annals_agents::{Agent, TestModel};
//! use annals_graph::prelude::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = Agent::new(TestModel::script(["The Gasthof.", "90 francs."]));
//! let trip = Store::memory().thread("trip")?;
//! agent.run("A hotel in Bern?").thread(&trip).invoke()?;
//! let answered = trip.head()?.expect("the run is stored");
//! agent.run("The price?").thread(&trip).invoke()?;
//!
//! // The second question once more, to another model, in a thread of its own. The first thread stays as it is.
//! let fork = answered.fork_to("trip-2")?;
//! let other = TestModel::script(["not asked", "I do not know."]);
//! assert_eq!(agent.run("The price?").model(other).thread(&fork).invoke()?.output, "I do not know.");
//! assert_eq!(agent.history(&trip)?.len(), 4);
//!
//! trip.rewind_to(&answered)?;
//! assert_eq!(agent.history(&trip)?.len(), 2);
//! trip.undo()?;
//! assert_eq!(agent.history(&trip)?.len(), 4);
//! # Ok(())
//! # }
//! ```
//!
//! ## Ask for approval
//!
//! The run ends as waiting, and goes on when the decision is there: days later, or in another process.
//!
//! ```
//! use annals_agents::{Agent, DeferredResults, ScriptedResponse, TestModel, AgentTool};
//! use annals_graph::prelude::*;
//! use serde_json::json;
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct File {
//!     path: String,
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = TestModel::script([ScriptedResponse::call("delete", json!({"path": "notes.md"})), "Done.".into()]);
//! let delete = AgentTool::new("delete", |file: File| Ok(format!("{} is deleted", file.path))).requires_approval();
//! let agent = Agent::new(model).tool(delete);
//!
//! let thread = Store::memory().thread("cleaning")?;
//! let waiting = agent.run("Clean up").thread(&thread).outcome()?.waiting().expect("it asks");
//! let call = &waiting.requests.approvals[0];
//! assert_eq!((call.tool_name.as_str(), &call.args["path"]), ("delete", &Value::from("notes.md")));
//!
//! // Approve, approve with other arguments, or refuse.
//! let decision = DeferredResults::new().approve_with(&call.tool_call_id, json!({"path": "draft.md"}));
//! let result = agent.resume_with(&thread, decision).invoke()?;
//! assert_eq!(result.output, "Done.");
//! assert!(result.all_messages_json().contains("draft.md is deleted"));
//! # Ok(())
//! # }
//! ```
//!
//! ## A tool that somebody else runs
//!
//! ```
//! use annals_agents::{Agent, DeferredResults, ScriptedResponse, TestModel, AgentTool};
//! use annals_base::Map;
//! use serde_json::json;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let schema = Map::from_iter([("type".to_owned(), "object".into())]);
//! let model = TestModel::script([ScriptedResponse::call("screen", json!({})), "A cat.".into()]);
//! let agent = Agent::new(model).tool(AgentTool::external("screen", schema).description("Returns a text of the screen."));
//!
//! let waiting = agent.run("What do I see?").outcome()?.waiting().expect("it waits");
//! let call = &waiting.requests.calls[0];
//! let results = DeferredResults::new().result(&call.tool_call_id, "a picture of a cat");
//! assert_eq!(agent.resume_with(&waiting.thread, results).invoke()?.output, "A cat.");
//! # Ok(())
//! # }
//! ```
//!
//! ## An output with a type
//!
//! The example of [`Agent`] has an output tool and a validator. [`OutputMode`] has the other ways.
//!
//! ```
//! use annals_agents::{Agent, OutputMode, TestModel};
//!
//! # fn main() -> Result<(), annals_agents::AgentError> {
//! let agent = Agent::new(TestModel::script(["```json\n{\"response\": [3, 5]}\n```"])).output::<Vec<u8>>(OutputMode::Prompted);
//! assert_eq!(agent.run("The odd primes below 6?").invoke()?.output, [3, 5]);
//! # Ok(())
//! # }
//! ```
//!
//! ## Limit a run
//!
//! A run that reaches a limit is an error. Its messages are stored, and a run with a higher limit goes on with them.
//!
//! ```
//! use annals_agents::{Agent, AgentErrorKind, ScriptedResponse, TestModel, AgentTool};
//! use annals_graph::prelude::*;
//! use annals_pydantic_ai::UsageLimits;
//! use serde_json::json;
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Page {
//!     number: u32,
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = TestModel::script([ScriptedResponse::call("read", json!({"number": 1})), "The end.".into()]);
//! let agent = Agent::new(model).tool(AgentTool::new("read", |page: Page| Ok(format!("page {}", page.number))));
//! let thread = Store::memory().thread("book")?;
//!
//! let mut limits = UsageLimits::default();
//! limits.request_limit = Some(1);
//! let error = agent.run("Read the book.").thread(&thread).usage_limits(limits).invoke().unwrap_err();
//! assert_eq!((error.kind(), error.messages().len()), (AgentErrorKind::UsageLimit, 3));
//! assert_eq!(agent.run_without_prompt().thread(&thread).invoke()?.output, "The end.");
//! # Ok(())
//! # }
//! ```
//!
//! ## Await a run
//!
//! With the feature `tokio`, models and tools run in the runtime that polls the run.
//!
//! ```
//! use annals_agents::{Agent, ScriptedResponse, TestModel, AgentTool};
//! use serde_json::json;
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Page {
//!     url: String,
//! }
//!
//! async fn fetch(page: Page) -> annals_graph::prelude::NodeResult<String> {
//!     Ok(format!("the text of {}", page.url))
//! }
//!
//! # fn main() -> Result<(), annals_agents::AgentError> {
//! let model = TestModel::script([ScriptedResponse::call("fetch", json!({"url": "a.example"})), "A text.".into()]);
//! let agent = Agent::new(model).tool(AgentTool::new("fetch", fetch).timeout(std::time::Duration::from_secs(60)));
//! let run = async { agent.run("What is on the page?").ainvoke().await };
//! # let result = annals_graph::block_on(run)?;
//! # assert_eq!(result.output, "A text.");
//! # assert!(result.all_messages_json().contains("the text of a.example"));
//! # Ok(())
//! # }
//! ```
//!
//! ## An agent as a tool
//!
//! The run of the inner agent is a part of the outer one ([`AgentRun::in_task`]): its steps are in the namespace of the
//! tool's task, `annals log THREAD --all` shows them, a run that is resumed goes on within it, and its approvals are
//! those of the outer run.
//!
//! ```
//! use annals_agents::{Agent, AgentTool, DeferredResults, ScriptedResponse, TestModel, ToolContext};
//! use annals_graph::prelude::*;
//! use serde_json::json;
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Errand {
//!     errand: String,
//! }
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Nights {
//!     nights: u32,
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = TestModel::script([ScriptedResponse::call("book", json!({"nights": 2})), "Two nights.".into()]);
//! let book = AgentTool::new("book", |stay: Nights| Ok(stay.nights)).requires_approval();
//! let clerk = Agent::new(model).name("clerk").tool(book);
//! let send = AgentTool::new("send_clerk", move |sent: Errand, context: &ToolContext| {
//!     Ok(clerk.run(sent.errand).in_task(context).invoke()?.output)
//! });
//! let call = ScriptedResponse::call("send_clerk", json!({"errand": "Book a hotel in Bern."}));
//! let agent = Agent::new(TestModel::script([call, "It is booked.".into()])).tool(send);
//!
//! let trip = Store::memory().thread("trip")?;
//! let waiting = agent.run("I go to Bern.").thread(&trip).outcome()?.waiting().expect("the clerk asks");
//! let decision = DeferredResults::new().approve(&waiting.requests.approvals[0].tool_call_id);
//! assert_eq!(agent.resume_with(&trip, decision).invoke()?.output, "It is booked.");
//!
//! let inner = trip.namespaces()?.into_iter().find(|path| path.as_str().contains("send_clerk:")).expect("a run");
//! let head = trip.with_namespace(inner).head()?.expect("its messages");
//! assert_eq!(head.len("messages")?, 4);
//! # Ok(())
//! # }
//! ```
//!
//! ## Trace a run
//!
//! With the feature `tracing` a run is a span `invoke_agent`, each request to a model in it a span `chat`, and each
//! call of a tool a span `execute_tool`, with the attributes of OpenTelemetry's conventions for generative AI.
//! [`Agent::trace_values`] adds messages, arguments and results. A subscriber exports them: the example `spans` in the
//! folder `clients` of the repository writes the JSON lines of a collector with `opentelemetry-otlp`. The spans of a
//! run that went on in another process are those of what ran there.
//!
//! # Features
//!
//! | feature | default | adds | costs |
//! | --- | --- | --- | --- |
//! | `tokio` | no | models and tools run in the Tokio runtime of their caller | `tokio` with its features `time` and `rt` |
//! | `tracing` | no | [spans](#trace-a-run) of [`tracing`](https://docs.rs/tracing): ids, names, counts and durations; values if the agent says so | `tracing` without its macros |

mod agent;
mod ask;
mod begin;
mod chat_model;
mod chunk;
mod deferred;
mod error;
mod event;
mod function_model;
mod gate;
mod history;
mod hooks;
mod limits;
mod model;
mod openai;
mod output;
mod processors;
mod prompts;
mod react;
mod react_agent;
mod react_state;
mod result;
mod review;
mod run;
mod schema;
mod settle;
mod shared;
mod span;
mod state;
mod steps;
mod streamed;
mod summary;
mod test_model;
mod tool;
mod tool_command;
mod tool_errors;
mod tool_node;
mod tool_output;
mod tool_rules;

pub use agent::Agent;
pub use chat_model::{ChatCall, ChatModel, ModelChat};
pub use chunk::{ResponseChunk, ResponseStream};
pub use deferred::{CallDecision, DeferredCall, DeferredRequests, DeferredResults};
pub use error::{AgentError, AgentErrorKind};
pub use event::AgentEvent;
pub use function_model::FunctionModel;
pub use model::{Model, ModelCall, ModelError, ModelFuture, ModelSettings, OutputRequest, ToolDefinition};
pub use output::OutputMode;
pub use processors::HistoryProcessor;
pub use prompts::SystemPromptMode;
pub use react_agent::{ModelInput, ReactAgent};
pub use react_state::{ReactState, ReactStateUpdate};
pub use result::{AgentOutcome, AgentResult, WaitingRun};
pub use review::{ReviewDecision, ToolReview};
pub use run::AgentRun;
pub use shared::RunInfo;
pub use steps::{AgentStep, AgentSteps};
pub use streamed::{AsyncStreamedRun, StreamedOutputs, StreamedResponses, StreamedRun, StreamedTexts};
pub use test_model::{ScriptedResponse, TestModel};
pub use tool::{AgentTool, IntoTool, ToolContext};
pub use tool_command::{ToolCommand, ToolReply};
pub use tool_errors::{ToolCallError, ToolErrors};
pub use tool_node::{SentTools, ToolNode, ToolReplies, ToolsOn, send_tool_calls, tools_condition};
pub use tool_output::{ApprovalRequired, CallDeferred, IntoToolOutput, ModelRetry, ToolFailed, ToolOutput};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
