//! Neighbouring messages of one kind, joined: `merge_message_runs` of LangChain.
//!
//! *Absent:* how chunks are added, which is in `chunk`.

use super::{Content, Message, MessageClass, MessageError, Role, add_ai_message_chunks, message_chunk_to_message};

/// Joins neighbouring messages of one class to one message; results of tools stay apart. Texts are joined with
/// `separator` between them, where none of both is empty.
///
/// A joined message has the sum of the contents, additional arguments, tool calls and token usage, the first id (of
/// answers of the model the first that a model gave), and the response metadata of the first; names and extra fields
/// are lost. A message without a neighbour of its class is unchanged.
///
/// # Errors
/// [`MessageError`] for two removals or two unknown messages of one type beside each other, chat messages of different
/// roles, results of different functions, and additional arguments that cannot be merged.
///
/// # Example
/// ```
/// use annals_messages::{Message, merge_message_runs};
///
/// let chat = [Message::human("Hello."), Message::human("Anybody there?"), Message::ai("Yes.")];
/// let merged = merge_message_runs(&chat, "\n")?;
/// assert_eq!(merged, [Message::human("Hello.\nAnybody there?"), Message::ai("Yes.")]);
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
pub fn merge_message_runs<'a>(
    messages: impl IntoIterator<Item = &'a Message>,
    separator: &str,
) -> Result<Vec<Message>, MessageError> {
    let mut merged = Vec::new();
    let mut run: Vec<&Message> = Vec::new();
    for message in messages {
        if !continues(&run, message) {
            merged.extend(joined(&run, separator)?);
            run.clear();
        }
        run.push(message);
    }
    merged.extend(joined(&run, separator)?);
    Ok(merged)
}

/// Returns whether a message is of the class of a run or of one below it.
fn continues(run: &[&Message], message: &Message) -> bool {
    let Some(first) = run.first() else { return true };
    // A joined chunk is a whole message.
    let of_run = if run.len() > 1 { first.class().map(MessageClass::whole) } else { first.class() };
    match (of_run, message.class()) {
        _ if matches!(message.role, Role::Tool(_)) => false,
        (Some(of_run), Some(class)) => class.is_a(of_run),
        // Neighbours of an unknown type.
        (None, None) => first.kind() == message.kind(),
        _ => false,
    }
}

fn joined(run: &[&Message], separator: &str) -> Result<Option<Message>, MessageError> {
    let (first, others) = match run {
        [] => return Ok(None),
        [one] => return Ok(Some((*one).clone())),
        [first, others @ ..] => (*first, others),
    };
    if matches!(first.role, Role::Remove | Role::Other { .. }) {
        return Err(MessageError::value(format!("Unrecognized message class {}.", first.class_name())));
    }
    let mut is_text = matches!(first.content, Content::Text(_));
    let mut has_text = matches!(&first.content, Content::Text(text) if !text.is_empty());
    let chunks = others.iter().map(|message| {
        let mut chunk = (*message).clone().into_chunk_with_calls();
        chunk.response_metadata.clear();
        match &mut chunk.content {
            Content::Text(text) if text.is_empty() => {}
            Content::Text(text) => {
                if has_text {
                    text.insert_str(0, separator);
                }
                has_text = is_text;
            }
            Content::Blocks(_) => (is_text, has_text) = (false, false),
        }
        chunk
    });
    let mut sum = first.clone().into_chunk_with_calls();
    if run.iter().all(|message| is_plain_answer(message)) {
        sum = add_ai_message_chunks(sum, chunks)?;
    } else {
        for (at, chunk) in chunks.enumerate() {
            // A message joined before counts as whole: its calls have lost their index.
            let left = if at == 0 { sum } else { message_chunk_to_message(sum).into_chunk_with_calls() };
            sum = left.plus(chunk)?;
        }
    }
    debug_assert_eq!(
        sum.class().map(MessageClass::whole),
        first.class().map(MessageClass::whole),
        "a run has one class"
    );
    Ok(Some(message_chunk_to_message(sum)))
}

/// Returns whether adding this to answers of its kind one by one gives what adding all at once gives, which reads the
/// tool calls once.
fn is_plain_answer(message: &Message) -> bool {
    let is_raw = message.additional_kwargs.contains_key("tool_calls");
    matches!(message.role, Role::Ai(_)) && !message.is_chunk() && !is_raw
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ToolCall, Usage};

    #[test]
    fn a_long_run_of_answers_is_joined_at_once_as_one_by_one() {
        let answer = |n: usize| {
            let call = ToolCall::new("f", [("n", n as i64)]).with_id(format!("c{n}"));
            let text = if n.is_multiple_of(3) { String::new() } else { format!("text {n}") };
            Message::ai(text).with_tool_call(call).with_usage(Usage::new(1, 2)).with_id(format!("lc_{n}"))
        };
        let run: Vec<Message> = (0..20).map(answer).collect();
        let at_once = merge_message_runs(&run, " ").unwrap();
        let one_by_one = run[1..]
            .iter()
            .fold(run[0].clone(), |left, right| merge_message_runs([&left, right], " ").unwrap().remove(0));
        assert_eq!(at_once, [one_by_one]);
        assert_eq!((at_once[0].tool_calls().len(), at_once[0].id.as_deref()), (20, Some("lc_0")));
        assert!(at_once[0].text().starts_with("text 1 text 2 text 4"));
    }

    #[test]
    fn results_of_tools_and_other_classes_stay_apart() {
        let apart = [Message::tool("1", "a"), Message::tool("2", "b"), Message::ai("c"), Message::human("d")];
        assert_eq!(merge_message_runs(&apart, "\n").unwrap(), apart);
        let chunk = [Message::human("a").into_chunk(), Message::human("b")];
        assert_eq!(merge_message_runs(&chunk, "\n").unwrap(), chunk, "a whole message is no chunk");
        assert!(merge_message_runs(&[Message::remove("a"), Message::remove("b")], "").is_err());
    }
}
