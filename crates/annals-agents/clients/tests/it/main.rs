//! Both models, by way of their clients, on a server on the loopback address that speaks OpenAI's chat completions. The
//! replies have the members that OpenAI's server sends.

#![allow(clippy::unwrap_used, reason = "tests")]

mod server;
mod spans;

use std::sync::Arc;
use std::time::Duration;

use annals_agents::{Agent, AgentErrorKind, AgentTool, Model, ModelError};
use annals_agents_clients::{GenaiModel, OpenAiModel};
use annals_graph::graph::RetryPolicy;
use annals_graph::prelude::Store;
use annals_pydantic_ai::{FinishReason, ModelMessage, ModelResponse};
use async_openai::config::OpenAIConfig;
use genai::adapter::AdapterKind;
use genai::resolver::{AuthData, Endpoint, ServiceTargetResolver};
use genai::{Client, ModelIden, ServiceTarget};

use server::Reply::{Broken, Events, Json};
use server::{Reply, Server};

const TEXT: &str = r#"{"id": "chatcmpl-1", "object": "chat.completion", "created": 1764000000, "model": "m-1-2026",
    "choices": [{"index": 0, "finish_reason": "stop", "logprobs": null,
        "message": {"role": "assistant", "content": "Bern.", "refusal": null, "annotations": []}}],
    "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15,
        "prompt_tokens_details": {"cached_tokens": 8, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 2, "audio_tokens": 0}},
    "service_tier": "default", "system_fingerprint": null}"#;
const CALLS: &str = r#"{"id": "chatcmpl-2", "object": "chat.completion", "created": 1764000000, "model": "m-1-2026",
    "choices": [{"index": 0, "finish_reason": "tool_calls", "logprobs": null,
        "message": {"role": "assistant", "content": null, "refusal": null, "annotations": [], "tool_calls": [
            {"id": "call-a", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Bern\"}"}},
            {"id": "call-b", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Basel\"}"}}]}}],
    "usage": {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29}}"#;
const TEXT_EVENTS: &[&str] = &[
    r#"{"id":"chatcmpl-3","object":"chat.completion.chunk","created":1764000000,"model":"m-1-2026","choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}"#,
    r#"{"id":"chatcmpl-3","object":"chat.completion.chunk","created":1764000000,"model":"m-1-2026","choices":[{"index":0,"delta":{"content":"It rains"},"logprobs":null,"finish_reason":null}],"usage":null}"#,
    r#"{"id":"chatcmpl-3","object":"chat.completion.chunk","created":1764000000,"model":"m-1-2026","choices":[{"index":0,"delta":{"content":" in Bern."},"logprobs":null,"finish_reason":null}],"usage":null}"#,
    r#"{"id":"chatcmpl-3","object":"chat.completion.chunk","created":1764000000,"model":"m-1-2026","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}],"usage":null}"#,
    r#"{"id":"chatcmpl-3","object":"chat.completion.chunk","created":1764000000,"model":"m-1-2026","choices":[],"usage":{"prompt_tokens":31,"completion_tokens":5,"total_tokens":36}}"#,
    "[DONE]",
];
const CALL_EVENTS: &[&str] = &[
    r#"{"id":"chatcmpl-4","object":"chat.completion.chunk","created":1764000000,"model":"m-1-2026","choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call-a","type":"function","function":{"name":"weather","arguments":""}}],"refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}"#,
    r#"{"id":"chatcmpl-4","object":"chat.completion.chunk","created":1764000000,"model":"m-1-2026","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"city\":"}}]},"logprobs":null,"finish_reason":null}],"usage":null}"#,
    r#"{"id":"chatcmpl-4","object":"chat.completion.chunk","created":1764000000,"model":"m-1-2026","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"Bern\"}"}}]},"logprobs":null,"finish_reason":null}],"usage":null}"#,
    r#"{"id":"chatcmpl-4","object":"chat.completion.chunk","created":1764000000,"model":"m-1-2026","choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call-b","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Basel\"}"}}]},"logprobs":null,"finish_reason":null}],"usage":null}"#,
    r#"{"id":"chatcmpl-4","object":"chat.completion.chunk","created":1764000000,"model":"m-1-2026","choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}],"usage":null}"#,
    r#"{"id":"chatcmpl-4","object":"chat.completion.chunk","created":1764000000,"model":"m-1-2026","choices":[],"usage":{"prompt_tokens":20,"completion_tokens":9,"total_tokens":29}}"#,
    "[DONE]",
];
const FULL: &str = r#"{"error": {"message": "Rate limit reached for m-1.", "type": "requests", "param": null,
    "code": "rate_limit_exceeded"}}"#;
const NO_CREDIT: &str = r#"{"error": {"message": "You exceeded your current quota.", "type": "insufficient_quota",
    "param": null, "code": "insufficient_quota"}}"#;
const BROKEN: &str = r#"{"error": {"message": "The server had an error.", "type": "server_error", "param": null,
    "code": null}}"#;
const BAD_KEY: &str = r#"{"error": {"message": "Incorrect API key provided.", "type": "invalid_request_error",
    "param": null, "code": "invalid_api_key"}}"#;
const ERROR_EVENT: &str = r#"{"error": {"message": "The server is overloaded.", "type": "server_error"}}"#;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Place {
    city: String,
}

/// Runs a test with the model of each client, each on a server of its own.
async fn with_each<const N: usize, T: Future<Output = ()>>(
    replies: fn() -> [Reply; N],
    test: impl Fn(Agent, Server) -> T,
) {
    for client in ["async-openai", "genai"] {
        let server = Server::start(replies());
        let address = format!("{}/v1", server.address);
        let model: Arc<dyn Model> = match client {
            "genai" => {
                let resolver = ServiceTargetResolver::from_resolver_fn(
                    move |target: ServiceTarget| -> Result<ServiceTarget, genai::resolver::Error> {
                        let endpoint = Endpoint::from_owned(format!("{address}/"));
                        let model = ModelIden::new(AdapterKind::OpenAI, target.model.model_name);
                        Ok(ServiceTarget { endpoint, auth: AuthData::from_single("key"), model })
                    },
                );
                Arc::new(GenaiModel::new(
                    "m-1",
                    Client::builder().with_service_target_resolver(resolver).build().unwrap(),
                ))
            }
            _ => Arc::new(OpenAiModel::new("m-1", OpenAIConfig::new().with_api_base(address).with_api_key("key"))),
        };
        println!("by way of {client}");
        let is_transient =
            |error: &(dyn std::error::Error + 'static)| error.downcast_ref().is_some_and(ModelError::is_transient);
        let at_once = RetryPolicy::new().initial_interval(Duration::ZERO).jitter(false).on_if(is_transient);
        let weather = AgentTool::new("weather", |place: Place| Ok(format!("rain in {}", place.city)));
        test(Agent::new(model).instructions("Be brief.").tool(weather).model_retry(at_once), server).await;
    }
}

fn last(messages: &[ModelMessage]) -> &ModelResponse {
    let Some(ModelMessage::Response(response)) = messages.last() else { panic!("a response") };
    response
}

#[tokio::test]
async fn a_text_has_its_names_its_reason_and_its_usage() {
    with_each(
        || [Json(200, TEXT)],
        |agent, server| async move {
            let result = agent.run("The capital of Switzerland?").ainvoke().await.unwrap();
            assert_eq!(result.output, "Bern.");
            let (response, counts) = (last(result.all_messages()), &result.usage().counts);
            assert_eq!(response.model_name.as_deref(), Some("m-1-2026"));
            assert_eq!(response.finish_reason, Some(FinishReason::Stop));
            assert_eq!((counts.input_tokens, counts.output_tokens), (12, 3));
            assert_eq!((counts.cache_read_tokens, counts.output_reasoning_tokens), (8, 2));
            let body = &server.bodies()[0];
            assert_eq!(body["model"], "m-1");
            let sent = body["messages"].as_array().unwrap();
            let sent: Vec<_> = sent.iter().map(|sent| (sent["role"].as_str(), sent["content"].as_str())).collect();
            let asked = Some("The capital of Switzerland?");
            assert_eq!(sent, [(Some("system"), Some("Be brief.")), (Some("user"), asked)]);
            assert_eq!(body["tools"][0]["function"]["name"], "weather");
            assert_eq!(body["tools"][0]["function"]["parameters"]["properties"]["city"]["type"], "string");
        },
    )
    .await;
}

#[tokio::test]
async fn the_results_of_calls_are_sent_with_their_ids() {
    with_each(
        || [Json(200, CALLS), Json(200, TEXT)],
        |agent, server| async move {
            let result = agent.run("The weather?").ainvoke().await.unwrap();
            assert_eq!((result.output.as_str(), result.usage().tool_calls), ("Bern.", 2));
            assert_eq!(result.usage().counts.output_tokens, 12, "the sum of both requests");
            let body = &server.bodies()[1];
            let calls = &body["messages"][2]["tool_calls"];
            assert_eq!((&calls[0]["id"], &calls[1]["id"]), (&"call-a".into(), &"call-b".into()));
            let args = calls[1]["function"]["arguments"].as_str().unwrap();
            assert_eq!(serde_json::from_str::<serde_json::Value>(args).unwrap()["city"], "Basel");
            for (at, id, text) in [(3, "call-a", "rain in Bern"), (4, "call-b", "rain in Basel")] {
                let message = &body["messages"][at];
                assert_eq!((&message["role"], &message["tool_call_id"]), (&"tool".into(), &id.into()));
                assert_eq!(message["content"], text);
            }
        },
    )
    .await;
}

#[tokio::test]
async fn texts_and_calls_stream_in() {
    with_each(
        || [Events(CALL_EVENTS), Events(TEXT_EVENTS)],
        |agent, server| async move {
            let mut run = agent.run("The weather?").astream().await.unwrap();
            let mut texts = Vec::new();
            while let Some(text) = run.next_text().await.unwrap() {
                texts.push(text);
            }
            assert_eq!(texts, ["It rains", " in Bern."]);
            let result = run.finish().await.unwrap();
            assert_eq!(result.output, "It rains in Bern.");
            assert_eq!(last(result.all_messages()).finish_reason, Some(FinishReason::Stop));
            let usage = result.usage();
            assert_eq!((usage.counts.input_tokens, usage.counts.output_tokens), (51, 14));
            assert_eq!((usage.requests, usage.tool_calls), (2, 2));
            let bodies = server.bodies();
            assert_eq!(
                (&bodies[0]["stream"], &bodies[0]["stream_options"]["include_usage"]),
                (&true.into(), &true.into())
            );
            assert_eq!(bodies[1]["messages"][4]["content"], "rain in Basel");
            assert_eq!(bodies[1]["messages"][4]["tool_call_id"], "call-b");
        },
    )
    .await;
}

#[tokio::test]
async fn a_full_or_broken_server_is_asked_again() {
    with_each(
        || [Json(429, FULL), Json(500, BROKEN), Json(200, TEXT)],
        |agent, server| async move {
            let result = agent.run("The capital of Switzerland?").ainvoke().await.unwrap();
            assert_eq!((result.output.as_str(), result.usage().requests), ("Bern.", 1));
            let bodies = server.bodies();
            assert_eq!(bodies.len(), 3, "the client itself repeats nothing");
            assert_eq!((&bodies[0], &bodies[1]), (&bodies[2], &bodies[2]));
        },
    )
    .await;
}

#[tokio::test]
async fn a_refused_request_is_not_repeated() {
    for (status, text) in [(401, BAD_KEY), (429, NO_CREDIT)] {
        let of = if status == 401 { || [Json(401, BAD_KEY)] } else { || [Json(429, NO_CREDIT)] };
        with_each(of, |agent, server| async move {
            let error = agent.run("Hello!").ainvoke().await.unwrap_err();
            assert_eq!(error.kind(), AgentErrorKind::Model);
            assert!(!error.find::<ModelError>().unwrap().is_transient(), "{error}");
            let told: serde_json::Value = serde_json::from_str(text).unwrap();
            assert!(error.to_string().contains(told["error"]["message"].as_str().unwrap()), "{error}");
            assert_eq!(server.bodies().len(), 1);
        })
        .await;
    }
}

#[tokio::test]
async fn a_server_that_is_gone_is_a_transient_error() {
    with_each(
        || [],
        |agent, server| async move {
            let once = agent.model_retry(RetryPolicy::new().max_attempts(1));
            let error = once.run("Hello!").ainvoke().await.unwrap_err();
            assert!(error.find::<ModelError>().unwrap().is_transient(), "{error}");
            assert!(server.bodies().is_empty());
        },
    )
    .await;
}

/// Streams that end too early: the connection breaks, the server closes it before the response has ended, the server
/// sends an error, the server refuses the stream.
#[tokio::test]
async fn a_stream_that_is_cut_off_is_asked_for_again() {
    const ENDED_EARLY: &[&str] = &[TEXT_EVENTS[0], TEXT_EVENTS[1]];
    const ERROR: &[&str] = &[TEXT_EVENTS[0], TEXT_EVENTS[1], ERROR_EVENT];
    let cuts: [fn() -> [Reply; 2]; 4] = [
        || [Broken(ENDED_EARLY), Events(TEXT_EVENTS)],
        || [Events(ENDED_EARLY), Events(TEXT_EVENTS)],
        || [Events(ERROR), Events(TEXT_EVENTS)],
        || [Json(429, FULL), Events(TEXT_EVENTS)],
    ];
    for cut in cuts {
        with_each(cut, |agent, server| async move {
            let thread = Store::memory().thread("trip").unwrap();
            let mut run = agent.run("The weather?").thread(&thread).astream().await.unwrap();
            let result = run.finish().await.unwrap();
            assert_eq!(result.output, "It rains in Bern.");
            assert_eq!(agent.history(&thread).unwrap().len(), 2, "a request and a whole response");
            assert_eq!(server.bodies().len(), 2);
        })
        .await;
    }
}
