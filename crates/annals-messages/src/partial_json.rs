//! JSON that a model has not finished writing.

use super::text::{JsonError, Open, Reader};
use annals_base::Value;

/// Reads JSON that may stop anywhere: texts, lists and objects that are open at the end are closed, and a last part
/// that means nothing yet is dropped, as is text after a whole value. Null if something is closed that was not open.
///
/// Without `strict`, control characters may stand in texts.
///
/// # Errors
/// [`JsonError`] if not even a beginning is JSON, or a limit is passed.
///
/// # Example: the arguments of a tool call, half way
/// ```
/// use annals_base::Value;
/// use annals_messages::parse_partial_json;
///
/// let args = parse_partial_json(r#"{"city": "Bern", "days": [1, 2, "#, false)?;
/// assert_eq!(args, Value::from(serde_json::json!({"city": "Bern", "days": [1, 2]})));
/// # Ok::<(), annals_messages::JsonError>(())
/// ```
pub fn parse_partial_json(text: &str, strict: bool) -> Result<Value, JsonError> {
    let whole = match Reader::new(text, strict).read(|_, _| {}) {
        Ok(value) => return Ok(value),
        Err(error @ JsonError::Syntax { .. }) => error,
        Err(limit) => return Err(limit),
    };
    let Some((mut text, closers)) = completed(text) else { return Ok(Value::Null) };
    // The longest beginning that is JSON together with the closers.
    let mut end = None;
    let is_same =
        |open: &[Open]| open.len() == closers.len() && open.iter().map(Open::closer).eq(closers.bytes().rev());
    let read = Reader::new(&text, strict).read(|at, open| {
        if is_same(open) {
            end = Some(at);
        }
    });
    match (read, end) {
        (Err(limit), _) if !matches!(limit, JsonError::Syntax { .. }) => Err(limit),
        (_, None) => Err(whole),
        (_, Some(end)) => {
            text.truncate(end);
            text += &closers;
            Reader::new(&text, strict).read(|_, _| {})
        }
    }
}

/// Returns the text with a text that is open at the end closed, and what closes the rest; none if something is closed
/// that was not open.
fn completed(text: &str) -> Option<(String, String)> {
    let mut out = String::with_capacity(text.len() + 1);
    let mut closers = Vec::new();
    let (mut in_text, mut escaped) = (false, false);
    for c in text.chars() {
        if in_text {
            match c {
                '"' if !escaped => in_text = false,
                '\n' if !escaped => {
                    out.push_str("\\n");
                    continue;
                }
                '\\' => escaped = !escaped,
                _ => escaped = false,
            }
        } else {
            match c {
                '"' => (in_text, escaped) = (true, false),
                '{' => closers.push('}'),
                '[' => closers.push(']'),
                '}' | ']' if closers.pop() != Some(c) => return None,
                _ => {}
            }
        }
        out.push(c);
    }
    if in_text {
        if escaped {
            out.pop();
        }
        out.push('"');
    }
    Some((out, closers.into_iter().rev().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The rule, word by word: drop one character after the other until it is JSON.
    fn by_dropping(text: &str) -> Option<Value> {
        let read = |text: &str| Reader::new(text, false).read(|_, _| {}).ok();
        if let Some(value) = read(text) {
            return Some(value);
        }
        let Some((mut text, closers)) = completed(text) else { return Some(Value::Null) };
        while !text.is_empty() {
            if let Some(value) = read(&format!("{text}{closers}")) {
                return Some(value);
            }
            text.pop();
        }
        None
    }

    #[test]
    fn what_is_open_is_closed_and_what_means_nothing_is_dropped() {
        for (text, json) in [
            ("{\"a\"", "{}"),
            ("{\"a\": tru", "{}"),
            ("[1, 2,", "[1,2]"),
            ("{\"a\": 1.", "{\"a\":1}"),
            ("{\"a\": 1} foo", "{\"a\":1}"),
            ("{\"a\": 1}}", "null"),
            ("{\"a\": \"x\\", "{\"a\":\"x\"}"),
            ("{\"a\": \"x\ny", "{\"a\":\"x\\ny\"}"),
        ] {
            assert_eq!(parse_partial_json(text, false).unwrap().to_json().to_string(), json, "{text:?}");
        }
        assert!(parse_partial_json("abc", false).is_err() && parse_partial_json("", false).is_err());
    }

    #[test]
    fn a_long_text_that_is_hardly_json_costs_no_more_than_its_length() {
        let text = format!("{{\"{}", "x".repeat(4_000_000));
        assert_eq!(parse_partial_json(&text, false).unwrap(), Value::Map(Default::default()));
        assert_eq!(parse_partial_json(&"[".repeat(4_000_000), false), Err(JsonError::Depth));
        let number = parse_partial_json(&format!("{{\"a\": {}", "1".repeat(5_000)), false);
        assert_eq!(number, Err(JsonError::Integer { at: 6 }), "a number is never cut to fit");
    }

    proptest! {
        #[test]
        fn it_is_what_dropping_characters_gives(text in r#"[\[\]{}",:01a\\n .e-]{0,24}"#) {
            prop_assert_eq!(parse_partial_json(&text, false).ok(), by_dropping(&text), "{:?}", text);
        }
    }
}
