//! The operations that map PydanticAI's messages to LangChain's and back.

use annals::base::{Clock, IdSource, Map, Timestamp, Value};
use annals::message::Message;
use annals_pydantic_ai::{DateTime, DefaultSource, ModelMessage, from_langchain, from_value, to_langchain};

use super::ops::{dumped, get};
use crate::RunnerResult;

/// A clock that stands.
struct StandingClock(Timestamp);

impl Clock for StandingClock {
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// Runs an operation.
pub(super) fn result(op: &str, input: &Value, defaults: &mut DefaultSource<'_>) -> RunnerResult<Value> {
    let messages = get(input, "messages");
    let history = |defaults: &mut DefaultSource<'_>| from_value(messages.clone(), defaults);
    let as_system = get(input, "instructions_as_system").as_bool().unwrap_or_default();
    match op {
        "to_langchain" => Ok(flat(&to_langchain(&history(defaults)?, as_system)?)),
        "from_langchain" => Ok(dump(&read(messages, input)?)),
        "pydantic_langchain_roundtrip" => {
            let there = to_langchain(&history(defaults)?, as_system)?;
            Ok(dump(&from_langchain(&there, defaults)?))
        }
        "langchain_pydantic_roundtrip" => Ok(flat(&to_langchain(&read(messages, input)?, as_system)?)),
        other => Err(format!("unknown operation {other}").into()),
    }
}

fn read(messages: &Value, input: &Value) -> RunnerResult<Vec<ModelMessage>> {
    let now = get(input, "now").as_str().and_then(DateTime::parse).map(DateTime::timestamp).unwrap_or_default();
    let (clock, mut ids) = (StandingClock(now), IdSource::new());
    let messages = messages.as_list().unwrap_or_default().iter().cloned().map(Message::try_from);
    let messages = messages.collect::<Result<Vec<_>, _>>()?;
    Ok(from_langchain(&messages, &mut DefaultSource::new(&clock, &mut ids))?)
}

fn dump(history: &[ModelMessage]) -> Value {
    dumped(&annals_pydantic_ai::to_value(history))
}

/// Returns the flat dictionaries without fields that have their defaults.
fn flat(messages: &[Message]) -> Value {
    let is_default = |name: &str, value: &Value| match name {
        "name" | "id" | "usage_metadata" | "artifact" => value.is_null(),
        "additional_kwargs" | "response_metadata" => value.as_map().is_some_and(Map::is_empty),
        "tool_calls" | "invalid_tool_calls" => value.as_list().is_some_and(<[Value]>::is_empty),
        "status" => value.as_str() == Some("success"),
        _ => false,
    };
    let flat = messages.iter().map(|message| {
        let mut map = message.to_map();
        map.retain(|name, value| !is_default(name, value));
        dumped(&map.into())
    });
    Value::List(flat.collect())
}
