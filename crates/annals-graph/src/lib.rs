//! A graph executor with the semantics of LangGraph: durable supersteps, interrupts, subgraphs and streams.
//!
//! A graph is made of nodes, which are functions of a typed state, and of edges. A run executes supersteps: all tasks
//! that are due run in parallel, then their writes are applied together and committed as one checkpoint to an
//! [`annals`] store. A run that was interrupted, failed or was killed continues from its last checkpoint, and tasks
//! that had ended do not run again: by default a task starts only when its input and all results before it are
//! committed ([`Durability::Sync`]). The crate is a client of the public API of [`annals`]: it cannot do more with a
//! file than your program.
//!
//! # The primary types
//!
//! | type | purpose |
//! | --- | --- |
//! | [`StateGraph`](graph::StateGraph) | nodes and edges; `compile` checks them and makes a [`CompiledGraph`](graph::CompiledGraph) |
//! | [`CompiledGraph`](graph::CompiledGraph) | runs a graph: `invoke`, `stream`, `ainvoke`, `astream`, `get_state`, `update_state` |
//! | [`Context`](task::Context) | a node's view of its run: interrupts, streams, called tasks, key-value memory |
//! | [`Command`](graph::Command) | a change together with the next nodes, or the resume value of an interrupt |
//! | [`SendTo`](graph::SendTo) | one more run of a node, with an argument of its own |
//! | [`NodeOptions`](graph::NodeOptions) | the policies of a node: retries, timeouts, caching, error handler |
//! | [`Entrypoint`](graph::Entrypoint), [`Task`](task::Task) | a plain function as a durable workflow, and the functions whose results it persists |
//! | [`Input`] | the argument of a run: an update, a command, or [`Input::Continue`] |
//! | [`Outcome`] | the end of a run: done, interrupted, drained or cancelled, with the state |
//! | [`Stream`], [`AsyncStream`] | a run that is executed as far as its events are read |
//! | [`Run`] | one run with options: durability, context value, limits, lease, control |
//! | [`Worker`] | a loop that continues the runs of a file that are due, in any number of processes |
//! | [`Error`] | any error; its message states the present facts, its [`kind`](Error::kind) the remedy |
//!
//! The engine brings [`Store`](annals::store::Store), [`Thread`](annals::history::Thread),
//! [`Snapshot`](annals::history::Snapshot), [`State`](trait@annals::state::State) and
//! [`Message`](annals::message::Message). `use annals_graph::prelude::*` imports both sides; policies, entrypoints and
//! options of runs are imported by path.
//!
//! # Limitations
//!
//! - *No async runtime of its own.* Async nodes and tasks are polled by the poller of their run; the others run on
//!   threads. With the feature `tokio` all of them run in the runtime of their caller.
//! - *No timeouts of blocking nodes*: a thread cannot be stopped from outside. Async nodes have them.
//! - *No server*, no network access, no model client.
//! - *No exactly-once side effects.* A node or a task that was running at a crash runs again. With
//!   [`Durability::Async`] and [`Durability::Exit`] nodes before it may, too.
//! - *No printing*, no environment variables, no home folder. Time comes from a [`Clock`](annals::base::Clock) that can
//!   be set.
//!
//! # Recipes
//!
//! [First run](#first-run) ·
//! [Reducers and private channels](#reducers-and-private-channels) ·
//! [A durable thread](#a-durable-thread) ·
//! [Resume after a failure](#resume-after-a-failure) ·
//! [Workers](#workers) ·
//! [Ask for approval](#ask-for-approval) ·
//! [A function in place of a graph](#a-function-in-place-of-a-graph) ·
//! [Fan out with sends](#fan-out-with-sends) ·
//! [Wait for several nodes](#wait-for-several-nodes) ·
//! [An agent with tools](#an-agent-with-tools) ·
//! [Hand over from graph to graph](#hand-over-from-graph-to-graph) ·
//! [Retries, timeouts and error handlers](#retries-timeouts-and-error-handlers) ·
//! [Go back in time](#go-back-in-time) ·
//! [Correct a state](#correct-a-state) ·
//! [Watch a run](#watch-a-run) ·
//! [Stream a message in chunks](#stream-a-message-in-chunks) ·
//! [Tasks that await Tokio](#tasks-that-await-tokio) ·
//! [Await instead of blocking](#await-instead-of-blocking) ·
//! [Share memory between threads](#share-memory-between-threads) ·
//! [A schema made at run time](#a-schema-made-at-run-time) ·
//! [History without a graph](#history-without-a-graph) ·
//! [Inspect a file](#inspect-a-file)
//!
//! ## First run
//!
//! A graph runs without a store. A conditional edge decides when the run ends.
//!
//! ```
//! use annals_graph::prelude::*;
//!
//! #[derive(State, Clone, Default)]
//! struct Collatz {
//!     #[channel(last)]
//!     n: u64,
//!     #[channel(append)]
//!     path: List<u64>,
//! }
//!
//! # fn main() -> Result<()> {
//! let graph = StateGraph::<Collatz>::new()
//!     .node("step", |s: &Collatz| {
//!         let n = if s.n % 2 == 0 { s.n / 2 } else { 3 * s.n + 1 };
//!         Ok(Collatz::update().n(n).path([n]))
//!     })
//!     .edge(START, "step")
//!     .branch("step", |s: &Collatz| if s.n == 1 { END } else { "step" })
//!     .compile()?;
//!
//! let done = graph.invoke((), Collatz::update().n(6))?;
//! assert_eq!(done.state().path.to_vec(), [3, 10, 5, 16, 8, 4, 2, 1]);
//! # Ok(())
//! # }
//! ```
//!
//! ## Reducers and private channels
//!
//! A reducer is a plain function. A private channel is neither input nor output, and a node may take a part of the
//! state.
//!
//! ```
//! use annals_graph::prelude::*;
//!
//! fn highest(old: i64, new: i64) -> i64 {
//!     old.max(new)
//! }
//!
//! #[derive(State, Clone, Default)]
//! struct Game {
//!     #[channel(reduce = highest)]
//!     record: i64,
//!     #[channel(append)]
//!     moves: List<String>,
//!     #[channel(private)]
//!     dice: i64,
//! }
//!
//! #[derive(State, Clone, Default)]
//! #[state(part_of = Game)]
//! struct Dice {
//!     dice: i64,
//! }
//!
//! # fn main() -> Result<()> {
//! let graph = StateGraph::<Game>::new()
//!     .node("roll", |_: &Game| Ok(Dice { dice: 4 }))
//!     .node("play", |dice: &Dice| Ok(Game::update().record(dice.dice * 10).moves([format!("moved by {}", dice.dice)])))
//!     .edge(START, "roll")
//!     .edge("roll", "play")
//!     .compile()?;
//!
//! let thread = Store::memory().thread("game")?;
//! graph.invoke(&thread, Game::update().record(70))?;
//! let second = graph.invoke(&thread, Game::update().record(20))?;
//! assert_eq!((second.state().record, second.state().moves.len()), (70, 2));
//! assert_eq!(graph.output_channels().collect::<Vec<_>>(), ["record", "moves"]);
//! # Ok(())
//! # }
//! ```
//!
//! ## A durable thread
//!
//! With a store every superstep becomes a checkpoint, and a past checkpoint can be continued in another thread.
//!
//! ```
//! # mod example {
//! use annals_graph::prelude::*;
//!
//! #[derive(State, Clone, Default)]
//! struct Chat {
//!     #[channel(messages)]
//!     messages: Messages,
//! }
//!
//! fn main() -> Result<()> {
//!     let graph = StateGraph::<Chat>::new()
//!         .node("answer", |_: &Chat| Ok(Chat::update().messages([Message::ai("hello")])))
//!         .edge(START, "answer")
//!         .edge("answer", END)
//!         .compile()?;
//!
//!     let store = Store::open("chat.db")?;
//!     let thread = store.thread("alice")?;
//!     graph.invoke(&thread, Chat::update().messages([Message::human("hi")]))?;
//!
//!     let before = thread.history()?.nth(1).expect("before the answer")?; // time travel
//!     let fork = before.fork_to(format!("alice-{}", before.id()))?; // never overwrites
//!     assert_ne!(thread.head()?, fork.head()?);
//!     Ok(())
//! }
//! # pub fn twice() -> Result<()> {
//! #     main()?;
//! #     main()
//! # }
//! # }
//! # fn main() {
//! #     let folder = tempfile::tempdir().unwrap();
//! #     std::env::set_current_dir(&folder).unwrap();
//! #     example::twice().unwrap();
//! # }
//! ```
//!
//! ## Resume after a failure
//!
//! The result of a node is committed when the node ends, before the next one starts. After an error, a panic or a
//! crash,
//! [`Input::Continue`] continues the thread: only unfinished tasks run.
//!
//! ```
//! use annals_graph::prelude::*;
//! use std::sync::atomic::{AtomicBool, Ordering};
//!
//! #[derive(State, Clone, Default)]
//! struct Report {
//!     #[channel(append)]
//!     done: List<String>,
//! }
//!
//! # fn main() -> Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("report.db");
//! static ONLINE: AtomicBool = AtomicBool::new(false);
//! let graph = StateGraph::<Report>::new()
//!     .node("read", |_: &Report| Ok(Report::update().done(["read".to_string()])))
//!     .node("fetch", |_: &Report| match ONLINE.load(Ordering::Relaxed) {
//!         true => Ok(Report::update().done(["fetched".to_string()])),
//!         false => Err("no network".into()),
//!     })
//!     .edge(START, "read")
//!     .edge("read", "fetch")
//!     .compile()?;
//!
//! let store = Store::open(&path)?;
//! let failed = graph.invoke(&store.thread("today")?, Report::update()).err().expect("there is no network");
//! assert!(failed.is_user() && failed.to_string().contains("no network"));
//! drop(store); // the process ends here, and another one begins
//!
//! ONLINE.store(true, Ordering::Relaxed);
//! let thread = Store::open(&path)?.thread("today")?;
//! assert_eq!(thread.head()?.expect("it ran").next().collect::<Vec<_>>(), ["fetch"]);
//! let done = graph.invoke(&thread, Input::Continue)?;
//! assert_eq!(done.state().done.to_vec(), ["read", "fetched"]);
//! # Ok(())
//! # }
//! ```
//!
//! ## Workers
//!
//! An input is stored, and a worker runs it: here, or in another process that opens the file. Each run has a lease, so
//! no two workers run one thread; the run of a process that died is continued by another one. `docs/workflows.md` lists
//! the promises.
//!
//! ```
//! use annals_graph::Worker;
//! use annals_graph::graph::Entrypoint;
//! use annals_graph::prelude::*;
//! use annals_graph::task::{RunControl, Task};
//!
//! # fn main() -> Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("orders.db");
//! let reserve = Task::new("reserve", |order: i64| Ok(order * 100));
//! let charge = Task::new("charge", |room: i64| Ok(format!("receipt for room {room}")));
//! let book = Entrypoint::new("book", move |order: i64, context: &Context| {
//!     let room = reserve.call(context, order)?; // stored before the next line runs
//!     charge.call(context, room)
//! })
//! .compile()?;
//!
//! let store = Store::open(&path)?;
//! let thread = store.thread("order-17")?;
//! book.enqueue(&thread, 17)?;
//!
//! let shutdown = RunControl::new();
//! # shutdown.request_drain("the end of the example");
//! let worker = Worker::new(&store).register(&book).concurrency(8).max_recoveries(10);
//! worker.run_until(&shutdown)?;
//! # worker.run_until_idle()?;
//! assert_eq!(book.get_state(&thread)?.values.value().map(String::as_str), Some("receipt for room 1700"));
//! # Ok(())
//! # }
//! ```
//!
//! ## Ask for approval
//!
//! [`Context::interrupt`](task::Context::interrupt) ends the run with an interrupt. The resume value may come days
//! later, from another process.
//!
//! ```
//! use annals_graph::prelude::*;
//!
//! #[derive(State, Clone, Default)]
//! struct Order {
//!     #[channel(last)]
//!     total: i64,
//!     #[channel(last)]
//!     approved: bool,
//! }
//!
//! # fn main() -> Result<()> {
//! let graph = StateGraph::<Order>::new()
//!     .node("approve", |order: &Order, ctx: &Context| {
//!         let resumed = ctx.interrupt(format!("spend {}?", order.total))?;
//!         Ok(Order::update().approved(resumed == "yes"))
//!     })
//!     .edge(START, "approve")
//!     .compile()?;
//! let thread = Store::memory().thread("order-7")?;
//!
//! let waiting = graph.invoke(&thread, Order::update().total(90))?;
//! assert!(!waiting.is_done());
//! assert_eq!(waiting.interrupts()[0].value, Value::from("spend 90?"));
//!
//! let done = graph.invoke(&thread, Command::resume("yes"))?;
//! assert!(done.is_done() && done.state().approved);
//! # Ok(())
//! # }
//! ```
//!
//! ## A function in place of a graph
//!
//! An [`Entrypoint`](graph::Entrypoint) is written as plain code. The result of a [`Task`](task::Task) is committed
//! before its call returns, and the input before the first task starts. After an interrupt, a failure or a crash the
//! function runs again from its first line, and its finished tasks do not.
//!
//! ```
//! use annals_graph::graph::Entrypoint;
//! use annals_graph::prelude::*;
//! use annals_graph::task::Task;
//!
//! # fn main() -> Result<()> {
//! let draft = Task::new("draft", |topic: String| Ok(format!("An essay about {topic}")));
//! let essay = Entrypoint::new("essay", move |topic: String, ctx: &Context| {
//!     let mut text = draft.call(ctx, topic)?;
//!     loop {
//!         let review = ctx.interrupt(text.as_str())?;
//!         match review.as_str() {
//!             Some("good") => return Ok(text),
//!             wish => text = format!("{text}, {}", wish.unwrap_or("again")),
//!         }
//!     }
//! })
//! .compile()?;
//!
//! let thread = Store::memory().thread("essay-1")?;
//! essay.invoke(&thread, "cats".to_string())?;
//! let asked = essay.invoke(&thread, Command::resume("with dogs"))?;
//! assert_eq!(asked.interrupts()[0].value, "An essay about cats, with dogs");
//! let done = essay.invoke(&thread, Command::resume("good"))?;
//! assert_eq!(done.value().map(String::as_str), Some("An essay about cats, with dogs"));
//! # Ok(())
//! # }
//! ```
//!
//! ## Fan out with sends
//!
//! A [`SendTo`](graph::SendTo) runs a node once more, with an argument of its own in place of the state. Results are
//! applied in the order of the sends, not in the order of their ends.
//!
//! ```
//! use annals_graph::graph::Own;
//! use annals_graph::prelude::*;
//!
//! #[derive(State, Clone, Default)]
//! struct Count {
//!     #[channel(last)]
//!     texts: Vec<String>,
//!     #[channel(append)]
//!     lengths: List<usize>,
//! }
//!
//! # fn main() -> Result<()> {
//! let graph = StateGraph::<Count>::new()
//!     .node("count", Own(|text: String| Ok(Count::update().lengths([text.len()]))))
//!     .branch(START, |s: &Count| s.texts.iter().map(|text| SendTo::new("count", text.as_str())).collect::<Vec<_>>())
//!     .compile()?;
//!
//! let texts = ["one", "three", "eleven"].map(str::to_string).to_vec();
//! let done = graph.invoke((), Count::update().texts(texts))?;
//! assert_eq!(done.state().lengths.to_vec(), [3, 5, 6]);
//! # Ok(())
//! # }
//! ```
//!
//! ## Wait for several nodes
//!
//! `draft` and `check` run in parallel, in one superstep; the target of the join runs once, when both have ended.
//!
//! ```
//! use annals_graph::prelude::*;
//!
//! #[derive(State, Clone, Default)]
//! struct Text {
//!     #[channel(append)]
//!     log: List<String>,
//! }
//!
//! fn note(text: impl Into<String>) -> NodeResult<TextUpdate> {
//!     Ok(Text::update().log([text.into()]))
//! }
//!
//! # fn main() -> Result<()> {
//! let graph = StateGraph::<Text>::new()
//!     .node("draft", |_: &Text| note("draft"))
//!     .node("check", |_: &Text| note("check"))
//!     .node("print", |text: &Text| note(format!("print after {}", text.log.len())))
//!     .edge(START, "draft")
//!     .edge(START, "check")
//!     .join(["draft", "check"], "print")
//!     .compile()?;
//!
//! let done = graph.invoke((), Text::update())?;
//! assert_eq!(done.state().log.to_vec(), ["check", "draft", "print after 2"]);
//! # Ok(())
//! # }
//! ```
//!
//! ## An agent with tools
//!
//! The model gets the end of the conversation that fits its context, in OpenAI's format, and its answer is read from
//! that format. The tools run as long as the model calls them.
//!
//! ```
//! use annals::base::Map;
//! use annals::message::{OpenAiOptions, TrimOptions, convert_to_messages, convert_to_openai_messages, trim_messages};
//! use annals_graph::prelude::*;
//! use annals_pydantic_ai::RunHistory;
//! use serde_json::json;
//!
//! #[derive(State, Clone, Default)]
//! struct Agent {
//!     #[channel(messages)]
//!     messages: Messages,
//! }
//!
//! /// Stands in for a request to a model.
//! fn complete(messages: &[Map]) -> serde_json::Value {
//!     if messages.iter().any(|message| message["role"].as_str() == Some("tool")) {
//!         return json!({"role": "assistant", "content": "An umbrella."});
//!     }
//!     let function = json!({"name": "weather", "arguments": "{\"city\": \"Bern\"}"});
//!     json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": function}]})
//! }
//!
//! #[derive(serde::Deserialize)]
//! struct Weather {
//!     city: String,
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let graph = StateGraph::<Agent>::new()
//!     .node("model", |agent: &Agent| {
//!         let options = TrimOptions::new(4_000).include_system(true).start_on(["human"]);
//!         let kept = trim_messages(agent.messages.iter(), &options)?;
//!         let answer = complete(&convert_to_openai_messages(&kept, &OpenAiOptions::default())?);
//!         Ok(Agent::update().messages(convert_to_messages([answer])?))
//!     })
//!     .node("tools", |agent: &Agent| {
//!         let mut results = Vec::new();
//!         for call in agent.messages.last().map(|answer| answer.tool_calls()).unwrap_or_default() {
//!             let weather: Weather = call.args_as()?;
//!             let id = call.id.as_deref().unwrap_or_default();
//!             results.push(Message::tool(format!("rain in {}", weather.city), id).with_name(&call.name));
//!         }
//!         Ok(Agent::update().messages(results))
//!     })
//!     .edge(START, "model")
//!     .branch("model", |agent: &Agent| match agent.messages.last() {
//!         Some(answer) if !answer.tool_calls().is_empty() => "tools",
//!         _ => END,
//!     })
//!     .edge("tools", "model")
//!     .compile()?;
//!
//! let chat = [Message::system("Be brief."), Message::human("What do I need in Bern?")];
//! let done = graph.invoke((), Agent::update().messages(chat))?;
//! let lines: Vec<String> = done.state().messages.iter().skip(2).map(ToString::to_string).collect();
//! assert_eq!(lines, ["ai: weather({\"city\": \"Bern\"})", "tool (weather): rain in Bern", "ai: An umbrella."]);
//!
//! // The messages of the run, for a program with PydanticAI: a request, the call, its result, the answer.
//! assert_eq!(done.new_messages("messages")?.len(), 4);
//! assert!(done.new_messages_json("messages")?.contains(r#""tool_name":"weather","content":"rain in Bern""#));
//! # Ok(())
//! # }
//! ```
//!
//! ## Hand over from graph to graph
//!
//! A graph is a node of another one: they share the channels that both have. With
//! [`Command::to_parent`](graph::Command::to_parent) a node inside hands over to a node beside its graph.
//!
//! ```
//! use annals_graph::prelude::*;
//!
//! #[derive(State, Clone, Default)]
//! struct Team {
//!     #[channel(messages)]
//!     messages: Messages,
//!     in_charge: String,
//! }
//!
//! #[derive(State, Clone, Default)]
//! struct Worker {
//!     #[channel(messages)]
//!     messages: Messages,
//! }
//!
//! fn worker(name: &'static str, next: &'static str) -> Result<CompiledGraph<Worker>> {
//!     let work = move |_: &Worker| {
//!         let said = Message::ai(format!("{name} is done")).with_name(name);
//!         Ok(Command::update(Team::update().messages([said]).in_charge(next)).and_goto(next).to_parent())
//!     };
//!     Ok(StateGraph::<Worker>::new().name(name).node("work", work).edge(START, "work").compile()?)
//! }
//!
//! # fn main() -> Result<()> {
//! let to = |nodes: [&'static str; 1]| NodeOptions::new().destinations(nodes);
//! let graph = StateGraph::<Team>::new()
//!     .node_with("ann", worker("ann", "ben")?, to(["ben"]))
//!     .node_with("ben", worker("ben", END)?, to([END]))
//!     .edge(START, "ann")
//!     .compile()?;
//!
//! let done = graph.invoke((), Team::update().messages([Message::human("Go!")]))?;
//! let said: Vec<_> = done.state().messages.iter().map(|message| message.text()).collect();
//! assert_eq!(said, ["Go!", "ann is done", "ben is done"]);
//! # Ok(())
//! # }
//! ```
//!
//! ## Retries, timeouts and error handlers
//!
//! The options of a node are its policies; [`NodeDefaults`](graph::NodeDefaults) hold for all nodes of a graph.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use annals_graph::graph::RetryPolicy;
//! use annals_graph::prelude::*;
//!
//! #[derive(State, Clone, Default)]
//! struct Page {
//!     text: String,
//! }
//!
//! # fn main() -> Result<()> {
//! let patient = RetryPolicy::new().max_attempts(2).initial_interval(Duration::from_millis(1)).jitter(false);
//! let options = NodeOptions::new()
//!     .timeout(Duration::from_millis(5))
//!     .retry(patient)
//!     .error_handler(|_: &Page, ctx: &Context| {
//!         let failed = ctx.error().map(|failed| failed.message.clone()).unwrap_or_default();
//!         Ok(Page::update().text(format!("given up: {failed}")))
//!     });
//! let hang = |_: Arc<Page>| std::future::pending::<NodeResult<()>>();
//! let graph = StateGraph::<Page>::new().node_with("fetch", hang, options).edge(START, "fetch").compile()?;
//!
//! let done = graph.invoke((), Page::update())?;
//! assert!(done.state().text.starts_with("given up: node \"fetch\" was stopped after"));
//! # Ok(())
//! # }
//! ```
//!
//! ## Go back in time
//!
//! A run can start from any [`Snapshot`](history::Snapshot). The old continuation is not changed; the new one is a
//! branch of the thread, or with [`fork_to`](history::Snapshot::fork_to) a thread of its own. Here a step runs once
//! more with a change, beside the original; `annals rerun` does so for workflow files.
//!
//! ```
//! use annals_graph::prelude::*;
//!
//! #[derive(State, Clone, Default)]
//! struct Plan {
//!     #[channel(last)]
//!     city: String,
//!     #[channel(last)]
//!     hotel: String,
//! }
//!
//! # fn main() -> Result<()> {
//! let graph = StateGraph::<Plan>::new()
//!     .node("book", |plan: &Plan| Ok(Plan::update().hotel(format!("Grand Hotel {}", plan.city))))
//!     .edge(START, "book")
//!     .compile()?;
//! let thread = Store::memory().thread("trip")?;
//! graph.invoke(&thread, Plan::update().city("Rome"))?;
//!
//! // `~1` is one step before the head. Prefixes of ids work too.
//! let fork = thread.at("~1")?.fork_to("trip-2")?;
//! graph.update_state(&fork, Plan::update().city("Oslo"), Some(START))?;
//! assert_eq!(graph.invoke(&fork, Input::Continue)?.state().hotel, "Grand Hotel Oslo");
//! assert_eq!(graph.get_state(&thread)?.values.hotel, "Grand Hotel Rome");
//!
//! // Both ends side by side.
//! let ends = annals::history::diff(&thread.head()?.expect("an end"), &fork.head()?.expect("an end"))?;
//! let changed: Vec<_> = ends.channels.iter().map(|channel| channel.channel().to_string()).collect();
//! assert_eq!(changed, ["city", "hotel"]);
//! # Ok(())
//! # }
//! ```
//!
//! ## Correct a state
//!
//! [`update_state`](graph::CompiledGraph::update_state) adds a checkpoint as if a node had made the change, and follows
//! the edges of that node.
//!
//! ```
//! use annals_graph::prelude::*;
//!
//! #[derive(State, Clone, Default)]
//! struct Mail {
//!     #[channel(last)]
//!     text: String,
//!     #[channel(last)]
//!     sent: bool,
//! }
//!
//! # fn main() -> Result<()> {
//! let graph = StateGraph::<Mail>::new()
//!     .node("write", |_: &Mail| Ok(Mail::update().text("Deer Ann")))
//!     .node("send", |_: &Mail| Ok(Mail::update().sent(true)))
//!     .edge(START, "write")
//!     .edge("write", "send")
//!     .interrupt_before(["send"])
//!     .compile()?;
//! let thread = Store::memory().thread("mail")?;
//! graph.invoke(&thread, Mail::update())?;
//!
//! graph.update_state(&thread, Mail::update().text("Dear Ann"), Some("write"))?;
//! let done = graph.invoke(&thread, Input::Continue)?;
//! assert_eq!((done.state().text.as_str(), done.state().sent), ("Dear Ann", true));
//! # Ok(())
//! # }
//! ```
//!
//! ## Watch a run
//!
//! A stream runs the graph as far as its events are read.
//!
//! ```
//! use annals_graph::prelude::*;
//!
//! #[derive(State, Clone, Default)]
//! struct Sum {
//!     #[channel(last)]
//!     n: i64,
//! }
//!
//! # fn main() -> Result<()> {
//! let graph = StateGraph::<Sum>::new()
//!     .node("double", |s: &Sum| Ok(Sum::update().n(s.n * 2)))
//!     .node("add", |s: &Sum| Ok(Sum::update().n(s.n + 1)))
//!     .edge(START, "double")
//!     .edge("double", "add")
//!     .compile()?;
//!
//! let mut seen = Vec::new();
//! for part in graph.stream((), Sum::update().n(20), &[StreamMode::Updates, StreamMode::Values])? {
//!     match part?.data {
//!         StreamData::Values(state) => seen.push(format!("n is {}", state.n)),
//!         StreamData::Updates(update) => seen.push(update.node.to_string()),
//!         _ => {}
//!     }
//! }
//! assert_eq!(seen, ["n is 20", "double", "n is 40", "add", "n is 41"]);
//! # Ok(())
//! # }
//! ```
//!
//! ## Stream a message in chunks
//!
//! [`Context::message_stream`](task::Context::message_stream) shows each chunk at once, and merges all of them to one
//! message.
//!
//! ```
//! use annals_graph::prelude::*;
//!
//! #[derive(State, Clone, Default)]
//! struct Chat {
//!     #[channel(messages)]
//!     messages: Messages,
//! }
//!
//! # fn main() -> Result<()> {
//! let graph = StateGraph::<Chat>::new()
//!     .node("model", |_: &Chat, ctx: &Context| {
//!         let mut answer = ctx.message_stream();
//!         for token in ["Good", " ", "day"] {
//!             answer.push(token);
//!         }
//!         Ok(Chat::update().messages([answer.finish()]))
//!     })
//!     .edge(START, "model")
//!     .compile()?;
//!
//! let mut shown = String::new();
//! let mut stream = graph.stream((), Chat::update().messages([Message::human("Hi")]), &[StreamMode::Messages])?;
//! for part in &mut stream {
//!     if let StreamData::Message(part) = part?.data {
//!         shown += &part.message.text();
//!     }
//! }
//! assert_eq!(shown, "Good day");
//! assert_eq!(stream.outcome().map(|outcome| outcome.state().messages.len()), Some(2));
//! # Ok(())
//! # }
//! ```
//!
//! ## Await instead of blocking
//!
//! `ainvoke` and `astream` are futures for any executor; nodes, paths and tasks may be `async fn`. A node that captures
//! a value takes owned handles. [`IntoNode`](graph::IntoNode) lists all signatures of nodes.
//!
//! ```
//! use std::sync::Arc;
//!
//! use annals_graph::prelude::*;
//!
//! #[derive(State, Clone, Default)]
//! struct Page {
//!     url: String,
//!     text: String,
//!     folder: String,
//! }
//!
//! #[derive(Clone)]
//! struct Client;
//!
//! impl Client {
//!     async fn get(&self, url: &str) -> Result<String, std::io::Error> {
//!         Ok(format!("the text of {url}"))
//!     }
//! }
//!
//! async fn file(page: &Page, ctx: &Context) -> NodeResult<PageUpdate> {
//!     ctx.emit("filing");
//!     Ok(Page::update().folder(if page.text.contains("example") { "examples" } else { "others" }))
//! }
//!
//! # fn main() -> Result<()> {
//! let client = Client;
//! let fetch = move |page: Arc<Page>| {
//!     let client = client.clone();
//!     async move { Ok(Page::update().text(client.get(&page.url).await?)) }
//! };
//! let graph = StateGraph::<Page>::new()
//!     .node("fetch", fetch)
//!     .node("file", file)
//!     .edge(START, "fetch")
//!     .edge("fetch", "file")
//!     .compile()?;
//!
//! let run = async {
//!     let mut stream = graph.astream((), Page::update().url("a.example"), &[StreamMode::Custom]).await?;
//!     while let Some(part) = stream.next().await {
//!         assert!(matches!(part?.data, StreamData::Custom(value) if value == "filing"));
//!     }
//!     assert_eq!(stream.outcome().map(|outcome| outcome.state().folder.as_str()), Some("examples"));
//!     Ok::<(), annals_graph::Error>(())
//! };
//! # annals_graph::block_on(run)
//! # }
//! ```
//!
//! ## Tasks that await Tokio
//!
//! With the feature `tokio` nodes and tasks run in the runtime of their caller: they await its timers and sockets, and
//! spawn on it. `ainvoke`, `astream` and [`Worker::arun_until`] take the runtime that polls them; `invoke`, `stream`
//! and [`Worker::run_until`] the one that their thread has entered with `let _inside = runtime.enter();`. A task that
//! has none fails with an error that names this remedy, and a worker whose graphs have an async node does not start.
//!
//! A blocking call keeps its thread busy. The only thread of a runtime drives the timers as well, so a blocking call on
//! it would not end: await `ainvoke` and `aget_state` there, and make other calls of the store in
//! [`Store::unblock`](crate::store::Store::unblock) or [`Thread::unblock`](crate::history::Thread::unblock), which run
//! them on threads of the store. The program `service` of the examples does so in the handlers of a service with
//! `axum`.
//!
//! ```
//! use std::time::Duration;
//!
//! use annals_graph::Worker;
//! use annals_graph::graph::Entrypoint;
//! use annals_graph::prelude::*;
//! use annals_graph::task::Task;
//!
//! # fn main() -> Result<()> {
//! let fetch = Task::new("fetch", |n: i64, _: Context| async move {
//!     tokio::time::sleep(Duration::from_millis(1)).await; // or a request, or a query of a database
//!     Ok(n * 2)
//! });
//! let flow = Entrypoint::new("flow", move |n: i64, ctx: &Context| fetch.call(ctx, n).wait()).compile()?;
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
//! # runtime.block_on(async {
//! let store = Store::memory();
//! let thread = store.thread("order-17")?;
//! flow.enqueue(&thread, 21)?;
//! let ended = tokio::task::spawn_blocking(move || thread.wait_for_end(Duration::from_secs(60)));
//! let shutdown = async { _ = ended.await }; // or a signal of the operating system
//! let report = Worker::new(&store).register(&flow).arun_until(shutdown).await?;
//! assert_eq!((report.continued, report.failed), (1, 0));
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! ## Share memory between threads
//!
//! The key-value memory of a store is shared by its threads. The user comes with the run, as its context value, not
//! with the state.
//!
//! ```
//! use annals::base::Map;
//! use annals::store::KvQuery;
//! use annals_graph::prelude::*;
//!
//! struct User(&'static str);
//!
//! #[derive(State, Clone, Default)]
//! struct Chat {
//!     text: String,
//! }
//!
//! # fn main() -> Result<()> {
//! let graph = StateGraph::<Chat>::new()
//!     .context::<User>()
//!     .node("answer", |chat: &Chat, ctx: &Context| {
//!         let User(name) = ctx.value().ok_or("there is a user")?;
//!         let place = ["users", *name];
//!         if let Some(wish) = chat.text.strip_prefix("remember ") {
//!             ctx.kv()?.put(place, "wish", Map::from_iter([("text".into(), wish.into())]))?;
//!         }
//!         let known = ctx.kv()?.search(KvQuery::new(place).limit(1))?;
//!         let wish = known.first().and_then(|item| item.value["text"].as_str()).unwrap_or("nothing");
//!         Ok(Chat::update().text(format!("{name} wants {wish}")))
//!     })
//!     .edge(START, "answer")
//!     .compile()?;
//!
//! let store = Store::memory();
//! graph.run(&store.thread("monday")?).context(User("ann")).invoke(Chat::update().text("remember tea"))?;
//! let later = graph.run(&store.thread("friday")?).context(User("ann")).invoke(Chat::update().text("hello"))?;
//! assert_eq!(later.state().text, "ann wants tea");
//! # Ok(())
//! # }
//! ```
//!
//! ## A schema made at run time
//!
//! A program that reads its channels from a configuration uses [`DynSchema`](state::DynSchema). Its graphs run on the
//! same machine, and its files have the same format.
//!
//! ```
//! use annals::state::DynState;
//! use annals_graph::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let schema = DynSchema::new().messages("messages").last("lang").build();
//! let graph = StateGraph::with_schema(schema)
//!     .node("greet", |s: &DynState| {
//!         let text = if s.get("lang").as_str() == Some("de") { "Guten Tag" } else { "Good day" };
//!         Ok(DynUpdate::new().messages("messages", [Message::ai(text)]))
//!     })
//!     .edge(START, "greet")
//!     .compile()?;
//!
//! let done = graph.invoke((), DynUpdate::new().set("lang", "de"))?;
//! let messages = done.state().messages("messages").expect("a channel of messages");
//! assert_eq!(messages[0].text(), "Guten Tag");
//! # Ok(())
//! # }
//! ```
//!
//! ## History without a graph
//!
//! The engine lists, shows, compares and forks threads without the program that wrote them, and without its types.
//!
//! ```
//! use annals::history::{ChannelDiff, diff};
//! use annals::state::DynState;
//! use annals_graph::prelude::*;
//!
//! # fn main() -> Result<()> {
//! # let schema = DynSchema::new().last("price").last("name").build();
//! # let graph = StateGraph::with_schema(schema)
//! #     .node("raise", |s: &DynState| Ok(DynUpdate::new().set("price", s.get("price").as_int().unwrap_or(0) + 5)))
//! #     .edge(START, "raise")
//! #     .compile()?;
//! # let store = Store::memory();
//! # graph.invoke(&store.thread("offer")?, DynUpdate::new().set("price", 10).set("name", "boat"))?;
//! let thread = store.thread("offer")?;
//! for snapshot in thread.history()? {
//!     let snapshot = snapshot?;
//!     let next: Vec<&str> = snapshot.next().collect();
//!     println!("{} {:>2} {} {next:?}", snapshot.id(), snapshot.step(), snapshot.source().as_str());
//! }
//!
//! let (before, after) = (thread.at("~1")?, thread.at("@")?);
//! let changes = diff(&before, &after)?;
//! assert_eq!(changes.unchanged, 1);
//! assert!(matches!(&changes.channels[0], ChannelDiff::Changed { channel, after, .. }
//!     if &**channel == "price" && *after == 15));
//! let (_, blame) = after.blames()?.into_iter().find(|(channel, _)| &**channel == "price").expect("it was written");
//! assert_eq!(blame.node.as_deref(), Some("raise"));
//! # Ok(())
//! # }
//! ```
//!
//! ## Inspect a file
//!
//! A file of another program is opened for reading only: no byte is written, also not beside the file.
//!
//! ```
//! use annals::state::DynState;
//! use annals_graph::prelude::*;
//!
//! # fn main() -> Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("theirs.db");
//! # let schema = DynSchema::new().messages("messages").build();
//! # let graph = StateGraph::with_schema(schema).node("x", |_: &DynState| Ok(())).edge(START, "x").compile()?;
//! # let thread = Store::open(&path)?.thread("alice")?;
//! # let say = |text: &str| graph.invoke(&thread, DynUpdate::new().messages("messages", [Message::human(text)]));
//! # say("a")?; say("b")?; say("c")?;
//! # drop(thread);
//! let store = Store::open_with(&path, OpenOptions::new().read_only(true))?;
//! for thread in store.threads()? {
//!     let head = store.thread(thread.id.as_str())?.head()?.expect("a listed thread has a head");
//!     // The last two messages, however many there are.
//!     let tail = head.tail("messages", 2)?;
//!     let texts: Vec<_> = tail.iter().filter_map(|message| message.get("content")?.as_str()).collect();
//!     assert_eq!(texts, ["b", "c"]);
//! }
//! assert!(store.check()?.problems.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | default | adds | costs |
//! | --- | --- | --- | --- |
//! | `derive` | yes | `#[derive(State)]` | a proc macro, with `syn`, in your build |
//! | `bundled` | yes | the SQLite of `rusqlite`, compiled into the program | a C compiler, and its time |
//! | `system-sqlite` | no | the SQLite of the system in its place, with `default-features = false` | 3.51.3 or later must be installed |
//! | `tokio` | no | tasks run in the Tokio runtime of their caller; [`TokioTimer`]: timeouts and pauses of asynchronous runs wait by Tokio | `tokio` with its features `time` and `rt` |
//! | `futures` | no | [`AsyncStream`] is a `Stream` of [`futures-core`](https://docs.rs/futures-core) | that crate, which has no dependencies |
//! | `encryption` | no | the cipher of `OpenOptions::key`: content at rest is sealed | `chacha20poly1305` and 7 further crates |
//! | `tracing` | no | spans of [`tracing`](https://docs.rs/tracing): ids, counts, bytes and durations, never values | `tracing` without its macros |

mod drive;
mod elapsed;
mod error;
mod exec;
pub mod graph;
mod hash;
mod limits;
mod panicking;
pub mod prelude;
mod run;
mod span;
mod stream;
pub mod task;

pub use annals;
pub(crate) use annals::{base, channel, history, message, state, store};
pub use annals_runs as runs;

#[cfg(feature = "tokio")]
pub use drive::TokioTimer;
#[doc(hidden)]
pub use drive::block_on;
pub use drive::{
    AsyncStateHistory, AsyncStream, Durability, HeadState, Input, IntoInput, ListChanges, Outcome, QueueLimit, Run,
    RunEnd, RunEvent, RunEventKind, RunOn, RunOutput, RunState, Sleep, StateHistory, StateSnapshot, StateUpdate,
    Stream, TaskState, TaskView, Timer, UpdateAs, Worker, WorkerReport,
};
#[cfg(feature = "schedules")]
pub use drive::{ClockChanges, MissedRuns, Schedule, Schedules};
pub use error::{Error, ErrorKind, Result};
pub use exec::{EditProblem, ResumeProblem, RunError, TimeoutKind};
pub use stream::{
    CheckpointPart, CheckpointTask, ChildValues, DebugPart, DebugPayload, MessagePart, NodeUpdate, StreamData,
    StreamMode, StreamPart, TaskEnd, TaskStart, Values,
};

/// The example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The examples of the guides that need the executor. They are in the repository, not in the package of this crate.
#[cfg(doctest)]
mod guides {
    #[doc = include_str!("../../../docs/guides/langgraph.md")]
    struct LangGraphGuide;
    #[doc = include_str!("../../../docs/guides/durability.md")]
    struct DurabilityGuide;
    #[doc = include_str!("../../../docs/guides/testing.md")]
    struct TestingGuide;
}
