//! Outputs: text and types, their feedback and their limits.

use annals_agents::{
    Agent, AgentErrorKind, AgentTool, FunctionModel, HistoryProcessor, ModelError, ModelRetry, OutputMode,
    OutputRequest, ScriptedResponse, SystemPromptMode, TestModel,
};
use annals_graph::graph::RetryPolicy;
use annals_pydantic_ai::{
    FinishReason, ModelMessage, ModelResponse, RequestPart, TextPart, ThinkingPart, UsageLimits, UserContent,
};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A trip.
#[derive(serde::Deserialize, schemars::JsonSchema, Clone, Debug, PartialEq)]
struct Trip {
    city: String,
    nights: u8,
}

fn prompts(messages: &[ModelMessage]) -> Vec<String> {
    let parts = messages.iter().filter_map(|message| match message {
        ModelMessage::Request(request) => Some(&request.parts),
        _ => None,
    });
    let texts = parts.flatten().filter_map(|part| match part {
        RequestPart::UserPrompt(part) => match &part.content {
            UserContent::Text(text) => Some(text.clone()),
            _ => None,
        },
        RequestPart::SystemPrompt(part) => Some(format!("system: {}", part.content)),
        _ => None,
    });
    texts.collect()
}

#[test]
fn each_mode_gives_the_type() {
    let text = r#"{"city": "Bern", "nights": 2}"#;
    let bern = Trip { city: "Bern".into(), nights: 2 };
    for mode in [OutputMode::Native, OutputMode::Prompted] {
        let agent = Agent::new(TestModel::script([text])).output::<Trip>(mode);
        assert_eq!(agent.run("x").invoke().unwrap().output, bern);
    }
    let call = ScriptedResponse::call("final_result", json!({"city": "Bern", "nights": 2}));
    let agent = Agent::new(TestModel::script([call])).output::<Trip>(OutputMode::Tool);
    let result = agent.run("x").invoke().unwrap();
    assert_eq!(result.output, bern);
    let told = result.all_messages_with_output("It is booked.").unwrap();
    assert!(annals_pydantic_ai::dump(&told).contains("It is booked."));
}

#[test]
fn a_model_is_told_the_form_of_the_output() {
    let model = FunctionModel::new(|call| {
        let schema = match &call.output {
            OutputRequest::Schema { name, schema } => format!("{name}: {}", schema.to_json()),
            _ => call.instructions.clone().unwrap_or_default(),
        };
        assert!(schema.contains("nights") && call.output_tools.is_empty() && call.allows_text);
        let body = call.openai_body("m").unwrap();
        assert_eq!(body["response_format"].is_object(), matches!(call.output, OutputRequest::Schema { .. }));
        Ok(ModelResponse::new(vec![TextPart::new(r#"{"city": "Bern", "nights": 2}"#).into()], call.now()))
    });
    let model = Arc::new(model);
    for mode in [OutputMode::Native, OutputMode::Prompted] {
        Agent::new(Arc::clone(&model)).output::<Trip>(mode).run("x").invoke().unwrap();
    }
    let model = FunctionModel::new(|call| {
        assert!(!call.allows_text && call.tools.is_empty());
        assert_eq!(call.output_tools[0].description, "A trip.");
        let body = call.openai_body("m").unwrap();
        assert_eq!(
            (&body["tool_choice"], &body["tools"][0]["function"]["name"]),
            (&json!("required"), &json!("final_result"))
        );
        Err(ModelError::fatal("seen"))
    });
    let error = Agent::new(model).output::<Trip>(OutputMode::Tool).run("x").invoke().unwrap_err();
    assert!(error.to_string().contains("seen"), "{error}");
}

#[test]
fn text_that_does_not_fit_is_asked_for_again() {
    let model = TestModel::script(["no JSON", r#"{"city": "Bern", "nights": 2}"#]);
    let agent = Agent::new(model).output::<Trip>(OutputMode::Native);
    let result = agent.run("x").invoke().unwrap();
    assert_eq!(result.output.nights, 2);
    assert!(result.all_messages_json().contains("json_invalid"));

    let agent = Agent::new(TestModel::script(["no", "still no"])).output::<Trip>(OutputMode::Native);
    let error = agent.run("x").invoke().unwrap_err();
    assert_eq!((error.kind(), error.messages().len()), (AgentErrorKind::Behavior, 4));
}

#[test]
fn feedback_reaches_the_model_as_words_of_the_user() {
    let model = FunctionModel::new(|call| {
        let said = prompts(&call.messages);
        let text = if said.len() == 1 { "rude" } else { "polite" };
        assert!(said.len() == 1 || said[1].contains("<pyai:retry_feedback>\nBe polite.\n"), "{said:?}");
        Ok(ModelResponse::new(vec![TextPart::new(text).into()], call.now()))
    });
    let agent = Agent::new(model).output_validator(|text: &String| {
        if text == "rude" { Err(ModelRetry::new("Be polite.").into()) } else { Ok(()) }
    });
    assert_eq!(agent.run("x").invoke().unwrap().output, "polite");

    let agent = Agent::new(TestModel::script(["x"])).output_validator(|_: &String| Err("no dictionary".into()));
    let error = agent.run("x").invoke().unwrap_err();
    assert_eq!((error.kind(), error.messages().len()), (AgentErrorKind::Function, 2));
}

#[test]
fn a_response_without_an_output_is_asked_for_again_unless_it_was_cut_off() {
    let thinking = |reason| {
        FunctionModel::new(move |call| {
            let mut response = ModelResponse::new(vec![ThinkingPart::new("hm").into()], call.now());
            response.finish_reason = reason;
            Ok(response)
        })
    };
    let error = Agent::new(thinking(Some(FinishReason::Length))).run("x").invoke().unwrap_err();
    assert_eq!((error.kind(), error.messages().len()), (AgentErrorKind::Behavior, 2));
    let error = Agent::new(thinking(None)).run("x").invoke().unwrap_err();
    assert_eq!((error.kind(), error.messages().len()), (AgentErrorKind::Behavior, 4));
}

#[test]
fn a_limit_on_tokens_keeps_the_response_that_exceeds_it() {
    let mut limits = UsageLimits::default();
    limits.output_tokens_limit = Some(2);
    let agent = Agent::new(TestModel::script(["one two three"])).usage_limits(limits);
    let error = agent.run("x").invoke().unwrap_err();
    assert_eq!((error.kind(), error.messages().len()), (AgentErrorKind::UsageLimit, 2));
}

#[test]
fn a_transient_error_of_a_model_is_retried_and_a_fatal_one_is_not() {
    for (is_transient, expected) in [(true, 2), (false, 1)] {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let model = FunctionModel::new(move |call| match count.fetch_add(1, Ordering::SeqCst) {
            0 if is_transient => Err(ModelError::transient("the server is full")),
            0 => Err(ModelError::fatal("a wrong key")),
            _ => Ok(ModelResponse::new(vec![TextPart::new("x").into()], call.now())),
        });
        let soon = RetryPolicy::new().initial_interval(Duration::from_millis(1)).jitter(false);
        let soon = soon.on_if(|error| error.downcast_ref().is_some_and(ModelError::is_transient));
        let result = Agent::new(model).model_retry(soon).run("x").invoke();
        assert_eq!((result.is_ok(), asked.load(Ordering::SeqCst)), (is_transient, expected));
        if let Err(error) = result {
            assert_eq!((error.kind(), error.messages().len()), (AgentErrorKind::Model, 1));
            assert!(error.find::<ModelError>().is_some());
        }
    }
}

#[test]
fn prompts_are_made_by_functions_with_the_dependencies_of_the_run() {
    let agent = Agent::new(TestModel::script(["hi", "ho"]))
        .dynamic_system_prompt("user", |info| {
            Ok(format!("The user is {}.", info.deps::<&str>().ok_or("a user is given")?))
        })
        .instructions_from(|info| Ok(format!("{} messages", info.messages.len())));
    let first = agent.run("x").deps("Ann").invoke().unwrap();
    let second = agent.run("y").deps("Ben").message_history(first.all_messages()).invoke().unwrap();
    assert_eq!(prompts(second.all_messages()), ["system: The user is Ben.", "x", "y"]);
    let ModelMessage::Request(request) = &second.all_messages()[2] else { panic!("a request") };
    assert_eq!(request.instructions.as_deref(), Some("2 messages"));

    let error = agent.run("x").invoke().unwrap_err();
    assert_eq!(error.kind(), AgentErrorKind::Function);
}

#[test]
fn a_late_system_prompt_is_tagged_for_a_model_that_takes_none() {
    let model = FunctionModel::new(|call| {
        let text = prompts(&call.messages).join("|");
        Ok(ModelResponse::new(vec![TextPart::new(text).into()], call.now()))
    });
    let agent = Agent::new(model).system_prompt("Be brief.");
    let first = agent.run("x").invoke().unwrap();
    assert_eq!(first.output, "system: Be brief.|x");
    let mut history = first.all_messages().to_vec();
    let ModelMessage::Request(request) = &first.all_messages()[0] else { panic!("a request") };
    let mut late = request.clone();
    (late.run_id, late.conversation_id) = (None, None);
    history.push(late.into());
    let second = agent.run("y").message_history(history).invoke().unwrap();
    assert_eq!(second.output, "system: Be brief.|x|<system>Be brief.</system>|x|y");

    let replacing = agent.clone().system_prompt("Be kind.").system_prompt_mode(SystemPromptMode::Replace);
    let third = replacing.run("z").message_history(first.all_messages()).invoke().unwrap();
    assert_eq!(third.output, "system: Be brief.|system: Be kind.|x|z");
}

#[test]
fn old_results_of_tools_are_dropped_for_the_model() {
    let calls = |n: u8| ScriptedResponse::call("read", json!({"city": format!("{n}"), "nights": n}));
    let model = TestModel::script([calls(1), calls(2), "done".into()]);
    let agent = Agent::new(model)
        .tool(AgentTool::new("read", |trip: Trip| Ok(format!("{} nights", trip.nights))))
        .history_processor(HistoryProcessor::drop_tool_results(1));
    let result = agent.run("x").invoke().unwrap();
    let json = result.all_messages_json();
    assert!(json.contains("The result was left out.") && json.contains("2 nights") && !json.contains("1 nights"));
    assert_eq!(result.new_messages().len(), result.all_messages().len());

    let agent = agent.history_processor(HistoryProcessor::new(|_, _| Ok(Vec::new())));
    assert_eq!(agent.run("x").invoke().unwrap_err().kind(), AgentErrorKind::Input);
}
