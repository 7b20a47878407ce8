//! A chat in the terminal with an agent that reads and writes the files of a folder. It can be killed at any moment.
//!
//! `cargo run -p annals-agents --example chat` plays a talk with a model that follows rules. With a file for the chats
//! and a folder it is a chat of your own, and with an address and a name it asks a server with OpenAI's chat
//! completions: `cargo run -p annals-agents --example chat -- chats.db notes http://127.0.0.1:11434 llama3`.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::path::{Component, Path, PathBuf};

use annals_agents::{
    Agent, AgentEvent, AgentOutcome, AgentRun, AgentTool, DeferredResults, FunctionModel, Model, ModelCall, ModelError,
    ModelFuture, ScriptedResponse, ToolFailed,
};
use annals_graph::annals::store::SearchQuery;
use annals_graph::prelude::*;
use annals_pydantic_ai::{ModelMessage, ModelResponse, RequestPart, UserContent};
use serde_json::json;

type Done<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The talk that is played without arguments: prompts, decisions and commands.
const TALK: &str = "list\nwrite plan.md Two nights in Bern\ny\nread plan.md\nwrite plan.md nothing\nn\n/undo\n\
    /fork other\nlist\n/search nights\n/chats";

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct File {
    /// The name of the file.
    #[serde(default)]
    name: String,
    /// The text to write.
    #[serde(default)]
    text: String,
}

/// Returns the path of a file of the folder.
fn inside(folder: &Path, name: &str) -> NodeResult<PathBuf> {
    match Path::new(name).components().collect::<Vec<_>>()[..] {
        [Component::Normal(name)] => Ok(folder.join(name)),
        _ => Err(ToolFailed::new(format!("{name:?} is not the name of a file of the folder")).into()),
    }
}

fn agent(model: impl Model, folder: &Path) -> Agent {
    let [listed, read, written] = [(); 3].map(|()| folder.to_owned());
    let list = AgentTool::new("list", move |_: File| {
        let names = std::fs::read_dir(&listed)?.map(|file| Ok(file?.file_name().to_string_lossy().into_owned()));
        Ok(names.collect::<std::io::Result<Vec<String>>>()?)
    });
    let read = AgentTool::new("read", move |file: File| {
        std::fs::read_to_string(inside(&read, &file.name)?).map_err(|error| ToolFailed::new(error.to_string()).into())
    });
    let write = AgentTool::new("write", move |file: File| {
        std::fs::write(inside(&written, &file.name)?, file.text)?;
        Ok(format!("{} is written", file.name))
    });
    Agent::new(model)
        .instructions("You keep the notes of the user.")
        .tool(list)
        .tool(read)
        .tool(write.requires_approval())
}

/// Follows rules: `list`, `read NAME` and `write NAME TEXT` call the tool, and its result is the answer.
fn follow_rules(call: &ModelCall) -> std::result::Result<ScriptedResponse, ModelError> {
    let Some(ModelMessage::Request(request)) = call.messages.last() else {
        return Err(ModelError::fatal("no request"));
    };
    let text = match request.parts.last() {
        Some(RequestPart::UserPrompt(part)) => match &part.content {
            UserContent::Text(text) => text.as_str(),
            _ => "",
        },
        Some(RequestPart::ToolReturn(part)) => return Ok(part.content.to_value().to_json().to_string().into()),
        _ => "",
    };
    let mut words = text.splitn(3, ' ');
    let (tool, name, text) = (words.next(), words.next().unwrap_or(""), words.next().unwrap_or(""));
    Ok(match tool.filter(|tool| ["list", "read", "write"].contains(tool)) {
        Some(tool) => ScriptedResponse::call(tool, json!({"name": name, "text": text})),
        None => "I know: list, read NAME, write NAME TEXT".into(),
    })
}

/// A server with OpenAI's chat completions: its address, and the name of a model.
struct Server(String, String);

impl Model for Server {
    fn name(&self) -> &str {
        &self.1
    }

    fn request<'a>(&'a self, call: &'a ModelCall) -> ModelFuture<'a, ModelResponse> {
        Box::pin(async move {
            let body = call.openai_body(&self.1).map_err(ModelError::fatal)?.to_string();
            let request = ureq::post(format!("{}/v1/chat/completions", self.0)).content_type("application/json");
            let answer = request.send(body).and_then(|mut answer| answer.body_mut().read_to_string());
            let answer = serde_json::from_str(&answer.map_err(ModelError::transient)?).map_err(ModelError::fatal)?;
            call.openai_response(&answer)
        })
    }
}

/// Runs the agent until it has answered, and asks for each approval.
fn talk<'a>(agent: &'a Agent, mut run: AgentRun<'a>, lines: &mut dyn Iterator<Item = String>) -> Done {
    loop {
        let shown = run.on_event(|event| {
            if let AgentEvent::ToolCall { part, .. } = event {
                println!("  {} {}", part.tool_name, part.args_as_json());
            }
        });
        let waiting = match shown.outcome()? {
            AgentOutcome::Waiting(waiting) => waiting,
            done => {
                done.result().into_iter().for_each(|result| println!("{}", result.output));
                return Ok(());
            }
        };
        let mut results = DeferredResults::new();
        for call in &waiting.requests.approvals {
            println!("  may it {}? (y/n)", call.tool_name);
            results = match lines.next().as_deref() {
                Some("y") => results.approve(&call.tool_call_id),
                _ => results.refuse(&call.tool_call_id, "The user does not want it."),
            };
        }
        run = agent.resume_with(&waiting.thread, results);
    }
}

fn main() -> Done {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let scratch = tempfile::tempdir()?;
    let (store, folder, mut lines): (_, _, Box<dyn Iterator<Item = String>>) = match &args[..] {
        [file, folder, ..] => {
            (Store::open(file)?, folder.into(), Box::new(std::io::stdin().lines().map_while(|l| l.ok())))
        }
        _ => (Store::memory(), scratch.path().to_owned(), Box::new(TALK.lines().map(str::to_owned))),
    };
    let agent = match &args[..] {
        [_, _, address, model] => agent(Server(address.clone(), model.clone()), &folder),
        _ => agent(FunctionModel::answering(follow_rules), &folder),
    };
    let mut chat = store.thread("chat")?;
    // A run that a kill has cut off goes on, and asks again for what it waits for.
    if chat.head()?.is_some_and(|head| head.next().next().is_some()) {
        talk(&agent, agent.resume(&chat), &mut *lines)?;
    }
    while let Some(line) = lines.next() {
        println!("> {line}");
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("/chats", _) => store.threads()?.iter().for_each(|thread| println!("{}", thread.id)),
            ("/open", name) => chat = store.thread(name)?,
            ("/undo", _) => println!("{}", if agent.take_back(&chat)? { "taken back" } else { "nothing to take back" }),
            ("/fork", name) => match chat.head()? {
                Some(head) => chat = head.fork_to(name)?,
                None => println!("the chat is empty"),
            },
            ("/search", words) => {
                let hits = store.search(SearchQuery::new(words))?.hits;
                hits.iter()
                    .filter(|hit| &*hit.channel == "messages")
                    .for_each(|hit| println!("{}: {}", hit.point.thread, hit.snippet.marked("*", "*")));
            }
            _ => talk(&agent, agent.run(line.as_str()).thread(&chat), &mut *lines)?,
        }
    }
    Ok(())
}
