//! The tokens that an answer of the model used.
//!
//! *Absent:* adding and subtracting them.

use super::MessageError;
use super::tool::object;
use annals_base::{Map, Value, ValueView};

/// Token counts (`usage_metadata` of LangChain).
#[doc(alias = "UsageMetadata")]
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens read.
    pub input_tokens: i64,
    /// Tokens written.
    pub output_tokens: i64,
    /// All tokens.
    pub total_tokens: i64,
    /// Parts of the input: `audio`, `cache_creation`, `cache_read`, and further ones of the provider.
    pub input_token_details: Option<Map>,
    /// Parts of the output: `audio`, `reasoning`, and further ones of the provider.
    pub output_token_details: Option<Map>,
    /// Other counts, verbatim.
    pub extra: Map,
}

impl Usage {
    /// Returns counts whose total is the sum of both.
    ///
    /// # Example: an answer of seven tokens
    /// ```
    /// use annals_messages::{Message, Usage};
    ///
    /// let answer = Message::ai("hello").with_usage(Usage::new(12, 7));
    /// assert_eq!(serde_json::to_value(&answer)?["usage_metadata"]["total_tokens"], 19);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn new(input_tokens: i64, output_tokens: i64) -> Self {
        let total_tokens = input_tokens.saturating_add(output_tokens);
        Self { input_tokens, output_tokens, total_tokens, ..Self::default() }
    }

    pub(super) fn view(&self) -> ValueView<'_> {
        ValueView::Fields(self.fields([true; 3]))
    }

    /// Returns the entries in the order of LangChain; `counts` tells which of the three counts are among them.
    pub(super) fn fields(&self, counts: [bool; 3]) -> Vec<(&str, ValueView<'_>)> {
        let values = [self.input_tokens, self.output_tokens, self.total_tokens];
        let written = COUNTS.iter().zip(values).zip(counts).filter(|(_, written)| *written);
        let mut fields: Vec<_> = written.map(|((name, count), _)| (*name, count.into())).collect();
        let details =
            [("input_token_details", &self.input_token_details), ("output_token_details", &self.output_token_details)];
        fields.extend(details.into_iter().filter_map(|(name, map)| Some((name, map.as_ref()?.into()))));
        fields.extend(self.extra.iter().map(|(name, value)| (name.as_str(), value.into())));
        fields
    }

    /// Reads counts over the ones that are already known.
    pub(super) fn read_over(self, value: Value) -> Result<Self, MessageError> {
        object("", value).and_then(|map| self.read_map(map)).map_err(|e| e.within("usage_metadata"))
    }

    fn read_map(mut self, mut map: Map) -> Result<Self, MessageError> {
        for (name, slot) in COUNTS.iter().zip([&mut self.input_tokens, &mut self.output_tokens, &mut self.total_tokens])
        {
            if let Some(value) = map.shift_remove(name) {
                *slot = count(name, value)?;
            }
        }
        self.input_token_details = details(
            "input_token_details",
            map.shift_remove("input_token_details"),
            &["audio", "cache_creation", "cache_read"],
        )?;
        self.output_token_details =
            details("output_token_details", map.shift_remove("output_token_details"), &["audio", "reasoning"])?;
        self.extra = map;
        Ok(self)
    }
}

const COUNTS: [&str; 3] = ["input_tokens", "output_tokens", "total_tokens"];

impl TryFrom<Value> for Usage {
    type Error = MessageError;

    fn try_from(value: Value) -> Result<Self, MessageError> {
        if value.as_map().is_some()
            && let Some(field) = COUNTS.iter().find(|name| value.get(name).is_none())
        {
            return Err(MessageError::missing("the usage", format!("usage_metadata.{field}")));
        }
        Self::default().read_over(value)
    }
}

impl From<Usage> for Value {
    fn from(usage: Usage) -> Self {
        let counts = [usage.input_tokens, usage.output_tokens, usage.total_tokens];
        let mut map: Map = COUNTS.iter().zip(counts).map(|(name, n)| ((*name).to_owned(), Value::Int(n))).collect();
        let details =
            [("input_token_details", usage.input_token_details), ("output_token_details", usage.output_token_details)];
        map.extend(details.into_iter().filter_map(|(name, map)| Some((name.to_owned(), Value::Map(map?)))));
        map.extend(usage.extra);
        Self::Map(map)
    }
}

/// Reads parts of a count: the known ones are integers and come first, the others stay as they are.
fn details(field: &'static str, value: Option<Value>, known: &[&'static str]) -> Result<Option<Map>, MessageError> {
    let mut map = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(value) => object(field, value)?,
    };
    let mut out = Map::with_capacity(map.len());
    for name in known {
        if let Some(value) = map.shift_remove(name) {
            let read = count(name, value).map_err(|e| e.within(field))?;
            out.insert((*name).to_owned(), read.into());
        }
    }
    out.extend(map);
    Ok(Some(out))
}

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// Reads the text of an integer: zeros may stand after a point, and `_` between digits.
fn whole_number(text: &str) -> Option<i64> {
    let text = text.trim();
    let whole = match text.split_once('.') {
        Some((whole, zeros)) if !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0') => whole,
        Some(_) => return None,
        None => text,
    };
    let digits = whole.strip_prefix(['+', '-']).unwrap_or(whole);
    let apart = digits.starts_with('_') || digits.ends_with('_') || digits.contains("__");
    if apart { None } else { whole.replace('_', "").parse().ok() }
}

/// Reads a count as LangChain does: `"1"`, `2.0` and `true` are integers too.
pub(super) fn count(field: &'static str, value: Value) -> Result<i64, MessageError> {
    let read = match &value {
        Value::Int(n) => Some(*n),
        Value::Bool(b) => Some(i64::from(*b)),
        Value::Str(text) => whole_number(text),
        Value::Float(x) if x.fract() == 0.0 && (-TWO_TO_63..TWO_TO_63).contains(x) => Some(*x as i64),
        _ => None,
    };
    let expected = if value.kind() == "int" { "an integer of 64 bits" } else { "an integer" };
    read.ok_or_else(|| MessageError::invalid(field, expected, &value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn usage(json: serde_json::Value) -> Result<Usage, MessageError> {
        Usage::try_from(Value::from(json))
    }

    #[test]
    fn counts_are_read_as_pydantic_reads_them() {
        use serde_json::json;
        for (given, read) in [
            (json!(1e16), 10_000_000_000_000_000),
            (json!(-9.2e18), -9_200_000_000_000_000_000),
            (json!(" 5 "), 5),
            (json!("-5.00"), -5),
            (json!("+1_0.0"), 10),
            (json!("00012"), 12),
        ] {
            assert_eq!(count("n", given.clone().into()).ok(), Some(read), "{given}");
        }
        for refused in
            [json!(9.3e18), json!(0.5), json!("5."), json!(".0"), json!("1__0"), json!("_1"), json!("1_"), json!("")]
        {
            assert!(count("n", refused.clone().into()).is_err(), "{refused}");
        }
    }

    #[test]
    fn counts_are_coerced_and_details_ordered() {
        let json = json!({"x": 1, "output_tokens": 2.0, "input_tokens": "1", "total_tokens": true,
            "input_token_details": {"mine": 1.5, "cache_read": "3"}});
        let read = usage(json).unwrap();
        let text = serde_json::to_string(&read).unwrap();
        assert_eq!(
            text,
            r#"{"input_tokens":1,"output_tokens":2,"total_tokens":1,"input_token_details":{"cache_read":3,"mine":1.5},"x":1}"#
        );
        assert_eq!(Value::from(read.clone()), Value::from_serialize(&read).unwrap());
    }

    #[test]
    fn wrong_counts_are_refused() {
        assert!(
            usage(json!({"input_tokens": 1, "output_tokens": 1})).unwrap_err().to_string().contains("total_tokens")
        );
        assert!(usage(json!({"input_tokens": 1.5, "output_tokens": 1, "total_tokens": 2})).is_err());
        assert!(usage(json!(5)).is_err());
    }
}
