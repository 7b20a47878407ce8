//! Exports the spans of an agent with OpenTelemetry's own exporter, to a file of JSON lines as a collector's file
//! exporter writes it: `cargo run --example spans -- spans.jsonl`. Without the client `LineFile` and with an endpoint,
//! the same exporter sends them to a collector.

#![allow(clippy::print_stdout, reason = "an example prints its results")]

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;

use annals_agents::{Agent, AgentTool, ScriptedResponse, TestModel, ToolContext};
use annals_graph::prelude::Store;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;

type Done = Result<(), Box<dyn std::error::Error>>;

/// A client whose requests are lines of a file.
#[derive(Debug)]
struct LineFile(Mutex<File>);

#[async_trait::async_trait]
impl HttpClient for LineFile {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        // The exporter writes several lines.
        let body: serde_json::Value = serde_json::from_slice(request.body())?;
        writeln!(self.0.lock().map_err(|_| "another export has panicked")?, "{body}")?;
        Ok(Response::new(Bytes::from_static(b"{}")))
    }
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Question {
    question: String,
}

/// An agent that asks another one.
fn talk() -> Done {
    let historian = Agent::new(TestModel::script(["Founded in 1191."])).name("historian");
    let ask = AgentTool::new("ask_historian", move |asked: Question, context: &ToolContext| {
        Ok(historian.run(asked.question).in_task(context).invoke()?.output)
    });
    let call = ScriptedResponse::call("ask_historian", serde_json::json!({"question": "How old is Bern?"}));
    let model = TestModel::script([call, "It was founded in 1191.".into()]);
    let thread = Store::memory().thread("trip")?;
    // `trace_values` adds the messages, the arguments and the results.
    Agent::new(model).name("guide").tool(ask).run("How old is Bern?").thread(&thread).invoke()?;
    Ok(())
}

/// Writes the spans of a talk to a new file.
pub(crate) fn export(path: &Path) -> Done {
    let client = LineFile(Mutex::new(File::create_new(path)?));
    let exporter =
        SpanExporter::builder().with_http().with_protocol(Protocol::HttpJson).with_http_client(client).build()?;
    let resource = Resource::builder().with_service_name("guide").build();
    let provider = SdkTracerProvider::builder().with_resource(resource).with_simple_exporter(exporter).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("annals-agents"));
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(LevelFilter::INFO).with(layer))?;
    talk()?;
    Ok(provider.shutdown()?)
}

#[cfg(not(test))]
fn main() -> Done {
    let path = std::env::args().nth(1).unwrap_or_else(|| "spans.jsonl".into());
    export(Path::new(&path))?;
    println!("the spans are in {path}");
    Ok(())
}
