//! Lists of messages, merged by hand and by graphs.

use std::error::Error;
use std::sync::{Arc, Mutex};

use annals::base::{IdSource, Value};
use annals::message::{
    DeltaReducer, DeltaWrite, Message, MessageError, MessageLike, add_messages, ensure_message_ids,
    messages_delta_reducer,
};
use annals::state::DynState;
use annals::state::List;
use annals_graph::prelude::{Context, DynSchema, DynUpdate, END, START, StateGraph, StreamData, StreamMode};
use serde_json::{Value as Json, json};

use super::encode::{VectorValue, encode_message, encode_messages};
use super::{FailedCall, FunctionCase, Handler};

pub(super) const FUNCTIONS: &[(&str, Handler)] = &[
    ("add_messages", |case| {
        let side = |name| Ok::<_, FailedCall>(member(case, name)?.like());
        let format = case.text_arg("format");
        let merged = add_messages(side("left")?, side("right")?, format.as_deref(), &mut IdSource::new())?;
        Ok(encode_messages(&merged))
    }),
    ("add_messages_seq", |case| {
        let (format, mut ids) = (case.text_arg("format"), IdSource::new());
        let state = member(case, "state")?.like();
        let add = |state: MessageLike, update: VectorValue| {
            add_messages(state, update.like(), format.as_deref(), &mut ids).map(MessageLike::from)
        };
        Ok(VectorValue::from(items(case, "updates")?.into_iter().try_fold(state, add)?).encode())
    }),
    ("messages_delta_reducer", |case| {
        let state = member(case, "state")?.like().into_messages()?;
        let writes = items(case, "writes")?.into_iter().map(VectorValue::like);
        Ok(encode_messages(&messages_delta_reducer(state, writes)?))
    }),
    ("messages_delta_channel", messages_delta_channel),
    ("messages_state", messages_state),
    ("push_message", push_message),
    ("ensure_message_ids", |case| {
        let reducer = match case.text_arg("reducer").as_deref() {
            Some("other") => DeltaReducer::Other,
            _ => DeltaReducer::Messages,
        };
        let write = match case.input.clone() {
            VectorValue::Overwrite(value) => DeltaWrite::Overwrite(value.like()),
            write => DeltaWrite::Write(write.like()),
        };
        Ok(match ensure_message_ids(write, reducer, &mut IdSource::new())? {
            DeltaWrite::Overwrite(value) => json!({"$overwrite": VectorValue::from(value).encode()}),
            DeltaWrite::Write(value) => VectorValue::from(value).encode(),
        })
    }),
];

fn member(case: &FunctionCase, name: &str) -> Result<VectorValue, FailedCall> {
    case.input.get(name).ok_or_else(|| FailedCall::vector(name))
}

fn items(case: &FunctionCase, name: &str) -> Result<Vec<VectorValue>, FailedCall> {
    member(case, name)?.items().ok_or_else(|| FailedCall::vector(name))
}

/// A list or an object as the write of a node.
fn update(data: &VectorValue) -> DynUpdate {
    match data {
        VectorValue::Overwrite(value) => DynUpdate::new().overwrite("messages", value.value()),
        // A pair of role and content stands for one message, where a list stands for several.
        VectorValue::Tuple(_) => DynUpdate::new().set("messages", Value::List(vec![data.value()])),
        data => DynUpdate::new().set("messages", data.value()),
    }
}

/// A failure of a graph, or of the message in it.
fn run_failure(error: annals_graph::Error) -> FailedCall {
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(inner) = cause {
        if let Some(message) = inner.downcast_ref::<MessageError>() {
            return message.clone().into();
        }
        cause = inner.source();
    }
    let class = error.as_run().map_or("Exception", |run| run.class());
    FailedCall::new(class, error.to_string())
}

/// A graph that does not compile.
fn refused(error: impl Error) -> FailedCall {
    FailedCall::new("Exception", error.to_string())
}

/// Returns the messages of a state.
fn state_messages(state: &DynState) -> Vec<Message> {
    state.messages("messages").map(List::to_vec).unwrap_or_default()
}

/// A chain of nodes, each of which returns one output.
fn messages_state(case: &FunctionCase) -> Result<Json, FailedCall> {
    let mut graph = StateGraph::with_schema(DynSchema::new().messages("messages").build());
    let mut last = START.to_owned();
    for (at, output) in items(case, "outputs")?.into_iter().enumerate() {
        let name = format!("n{at}");
        graph = graph.node(name.as_str(), move |_: &DynState| Ok(update(&output))).edge(last.as_str(), name.as_str());
        last = name;
    }
    let graph = graph.edge(last.as_str(), END).compile().map_err(refused)?;
    let done = graph.invoke((), update(&member(case, "messages")?)).map_err(run_failure)?;
    Ok(encode_messages(&state_messages(done.state())))
}

/// One superstep for each batch, with one node for each of its writes.
fn messages_delta_channel(case: &FunctionCase) -> Result<Json, FailedCall> {
    let schema = DynSchema::new().delta_messages("messages").build();
    let mut graph = StateGraph::with_schema(schema).node("begin", |_: &DynState| Ok(())).edge(START, "begin");
    let mut before = vec!["begin".to_owned()];
    for (at, batch) in items(case, "batches")?.into_iter().enumerate() {
        let writes = batch.items().unwrap_or_default();
        let names: Vec<String> = (0..writes.len()).map(|write| format!("b{at}w{write}")).collect();
        for (name, write) in names.iter().zip(writes) {
            graph = graph.node(name.as_str(), move |_: &DynState| Ok(update(&write)));
            graph = graph.join(before.clone(), name.as_str());
        }
        before = if names.is_empty() { before } else { names };
    }
    let graph = graph.compile().map_err(refused)?;
    let done = graph.invoke((), DynUpdate::new()).map_err(run_failure)?;
    Ok(encode_messages(&state_messages(done.state())))
}

/// A graph whose only node pushes a message.
fn push_message(case: &FunctionCase) -> Result<Json, FailedCall> {
    let pushed = case.input.clone().like();
    let channel =
        case.given("state_key").map_or(Some("messages".to_owned()), |key| key.value().as_str().map(str::to_owned));
    let returned = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&returned);
    let graph = StateGraph::with_schema(DynSchema::new().messages("messages").build())
        .node("push", move |_: &DynState, context: &Context| {
            let message = context.push_message_to(channel.as_deref().unwrap_or_default(), pushed.clone())?;
            *kept.lock().map_err(|error| error.to_string())? = Some(message);
            Ok(())
        })
        .edge(START, "push")
        .compile()
        .map_err(refused)?;
    let (mut streamed, mut state) = (Vec::new(), Vec::new());
    let modes = [StreamMode::Messages, StreamMode::Values];
    for part in graph.stream((), DynUpdate::new(), &modes).map_err(run_failure)? {
        match part.map_err(run_failure)?.data {
            StreamData::Message(part) => streamed.push(encode_message(&part.message)),
            StreamData::Values(values) => state = state_messages(&values),
            _ => {}
        }
    }
    let returned = returned.lock().ok().and_then(|mut returned| returned.take());
    let returned = returned.ok_or_else(|| FailedCall::vector("message that was pushed"))?;
    Ok(json!({"returned": encode_message(&returned), "streamed": streamed, "state": encode_messages(&state)}))
}
