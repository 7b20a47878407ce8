//! Merging of values, token counts and message chunks.

use annals::base::Value;
use annals::message::{
    Content, Message, MessageError, MessageLike, add_ai_message_chunks, add_usage, merge_content, merge_dicts,
    merge_lists, merge_obj, subtract_usage,
};
use serde_json::Value as Json;

use super::encode::{VectorValue, encode_message};
use super::{FailedCall, FunctionCase, Handler};

pub(super) const FUNCTIONS: &[(&str, Handler)] = &[
    ("merge_dicts", |case| {
        let maps = arguments(case)?.into_iter().map(|value| value.as_map().cloned().unwrap_or_default());
        let merged = fold(maps, merge_dicts)?;
        Ok(Value::Map(merged.unwrap_or_default()).to_json())
    }),
    ("merge_lists", |case| {
        let lists = arguments(case)?.into_iter().filter_map(|value| value.as_list().map(<[Value]>::to_vec));
        Ok(fold(lists, merge_lists)?.map_or(Json::Null, |merged| Value::List(merged).to_json()))
    }),
    ("merge_obj", |case| match <[Value; 2]>::try_from(arguments(case)?) {
        Ok([left, right]) => Ok(merge_obj(left, right)?.to_json()),
        Err(_) => Err(FailedCall::vector("two values")),
    }),
    ("merge_content", |case| {
        let content = |value: Value| if value.is_null() { Ok(Content::default()) } else { Content::try_from(value) };
        let contents = arguments(case)?.into_iter().map(content).collect::<Result<Vec<_>, _>>()?;
        Ok(fold(contents, merge_content)?.unwrap_or_default().to_value().to_json())
    }),
    ("add_usage", |case| combine(case, add_usage)),
    ("subtract_usage", |case| combine(case, subtract_usage)),
    ("add_chunks", add_chunks),
];

fn arguments(case: &FunctionCase) -> Result<Vec<Value>, FailedCall> {
    let items = case.input.items().ok_or_else(|| FailedCall::vector("arguments"))?;
    Ok(items.iter().map(VectorValue::value).collect())
}

fn fold<T>(
    items: impl IntoIterator<Item = T>,
    merge: fn(T, T) -> Result<T, MessageError>,
) -> Result<Option<T>, FailedCall> {
    let mut items = items.into_iter();
    let Some(first) = items.next() else { return Ok(None) };
    Ok(Some(items.try_fold(first, merge)?))
}

fn combine(
    case: &FunctionCase,
    operation: fn(&Value, &Value) -> Result<Value, MessageError>,
) -> Result<Json, FailedCall> {
    match arguments(case)?.as_slice() {
        [left, right] => Ok(operation(left, right)?.to_json()),
        _ => Err(FailedCall::vector("two counts")),
    }
}

fn add_chunks(case: &FunctionCase) -> Result<Json, FailedCall> {
    let items = case.input.items().ok_or_else(|| FailedCall::vector("operands"))?;
    let mut likes = items.into_iter().map(VectorValue::like);
    let Some(MessageLike::Message(first)) = likes.next() else { return Err(FailedCall::vector("first piece")) };
    let sum = match case.text_arg("mode").as_deref() {
        Some("list") => first.plus(MessageLike::List(likes.collect()))?,
        Some("tuple") => first.plus(MessageLike::Tuple(likes.collect()))?,
        Some("add_ai_message_chunks") => {
            add_ai_message_chunks(*first, likes.map(Message::try_from).collect::<Result<Vec<_>, _>>()?)?
        }
        _ => likes.try_fold(*first, Message::plus)?,
    };
    Ok(encode_message(&sum))
}
