//! The token count of messages: an estimate from their length, and counters to use in its place.
//!
//! *Absent:* tokenizers. A counter that has one is a closure of the caller.

use std::fmt;

use super::openai::openai_role;
use super::text::{json_dumps, py_repr};
use super::{Content, Message, MessageError, Role};
use annals_base::{Map, Value};

/// How [`count_tokens_approximately`] estimates.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CountOptions {
    /// The characters of a token.
    pub chars_per_token: f64,
    /// The tokens that each message takes besides its text.
    pub extra_tokens_per_message: f64,
    /// True if the names of messages count.
    pub count_name: bool,
    /// The tokens of an image.
    pub tokens_per_image: i64,
    /// True if the estimate is scaled, by a factor of 1 to 1.25, so that it meets the usage that the newest answer of
    /// the model reports. All answers must come from one provider (`model_provider` in their response metadata).
    pub use_usage_metadata_scaling: bool,
    /// The tools that count too, each as its provider is given it: an object.
    pub tools: Vec<Value>,
}

impl Default for CountOptions {
    /// Estimates as LangChain does unless told otherwise: 4 characters a token, 3 tokens more for each message, names
    /// are counted, 85 tokens an image.
    fn default() -> Self {
        Self {
            chars_per_token: 4.0,
            extra_tokens_per_message: 3.0,
            count_name: true,
            tokens_per_image: 85,
            use_usage_metadata_scaling: false,
            tools: Vec::new(),
        }
    }
}

impl CountOptions {
    /// Also counts a tool. The title and the description of the schema itself do not count.
    #[must_use]
    pub fn tool(mut self, name: &str, description: &str, args_schema: &Map) -> Self {
        let mut parameters = args_schema.clone();
        parameters.shift_remove("title");
        parameters.shift_remove("description");
        let tool = [("name", name.into()), ("description", description.into()), ("parameters", parameters.into())];
        let tool: Map = tool.into_iter().map(|(key, value): (_, Value)| (key.to_owned(), value)).collect();
        self.tools.push(Value::Map(tool));
        self
    }

    fn tokens_of(&self, chars: usize) -> f64 {
        (chars as f64 / self.chars_per_token).ceil()
    }

    /// Estimates the tools alone.
    fn of_tools(&self) -> f64 {
        match self.tools.as_slice() {
            [] => 0.0,
            tools => self.tokens_of(tools.iter().map(|tool| json_dumps(tool, true).len()).sum()),
        }
    }

    /// Estimates one message.
    fn of_message(&self, message: &Message) -> Result<f64, MessageError> {
        let mut images = 0;
        let mut chars = match &message.content {
            Content::Text(text) => length(text),
            Content::Blocks(blocks) => {
                let chars = blocks.iter().map(|block| match block.get("type").and_then(Value::as_str) {
                    Some("image" | "image_url") => {
                        images += 1;
                        0
                    }
                    Some("text") => block.get("text").and_then(Value::as_str).map_or(0, length),
                    _ => block.as_str().map_or_else(|| length(&py_repr(block)), length),
                });
                chars.sum()
            }
        };
        match (&message.role, &message.content) {
            (Role::Ai(ai), Content::Text(_)) if !ai.tool_calls.is_empty() => {
                let calls = ai.tool_calls.iter().map(|call| Value::from(call.clone())).collect();
                chars += length(&py_repr(&Value::List(calls)));
            }
            (Role::Tool(tool), _) => chars += length(&tool.tool_call_id),
            _ => {}
        }
        chars += length(openai_role(message)?);
        if let (true, Some(name)) = (self.count_name, &message.name) {
            chars += length(name);
        }
        let images = self.tokens_per_image.saturating_mul(images) as f64;
        Ok(images + self.tokens_of(chars) + self.extra_tokens_per_message)
    }

    /// Returns whether the estimate of a list is the sum of those of its messages.
    fn is_sum(&self) -> bool {
        let whole = self.extra_tokens_per_message.fract() == 0.0;
        whole && self.tools.is_empty() && !self.use_usage_metadata_scaling
    }
}

/// The length in code points.
fn length(text: &str) -> usize {
    text.chars().count()
}

/// The usage of a list so far.
#[derive(Default)]
struct Scale<'a> {
    from: Option<&'a Value>,
    mixed: bool,
    newest: Option<(f64, f64)>,
    messages: usize,
}

impl<'a> Scale<'a> {
    fn see(&mut self, message: &'a Message, tokens: f64) {
        self.messages += 1;
        let Role::Ai(ai) = &message.role else { return };
        let from = message.response_metadata.get("model_provider").filter(|from| !from.is_null());
        match self.from {
            None => self.from = from,
            known if known != from => self.mixed = true,
            _ => {}
        }
        if let Some(usage) = &ai.usage {
            self.newest = Some((usage.total_tokens as f64, tokens));
        }
    }

    fn factor(&self) -> f64 {
        match self.newest {
            Some((used, estimated)) if self.messages > 1 && self.from.is_some() && !self.mixed && estimated > 0.0 => {
                (used / estimated).clamp(1.0, 1.25)
            }
            _ => 1.0,
        }
    }
}

/// Estimates how many tokens messages take: their characters divided by four, and three tokens for each message.
///
/// # Errors
/// [`MessageError`] if a message has no role in OpenAI's API: a removal, or a type that is not known.
///
/// # Example
/// ```
/// use annals_messages::{CountOptions, Message, count_tokens_approximately};
///
/// let messages = [Message::system("Be brief."), Message::human("What is a monad?")];
/// assert_eq!(count_tokens_approximately(&messages, &CountOptions::default())?, 15);
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
pub fn count_tokens_approximately<'a>(
    messages: impl IntoIterator<Item = &'a Message>,
    options: &CountOptions,
) -> Result<i64, MessageError> {
    let mut tokens = options.of_tools();
    let mut scale = Scale::default();
    for message in messages {
        tokens += options.of_message(message)?;
        scale.see(message, tokens);
    }
    if options.use_usage_metadata_scaling {
        tokens *= scale.factor();
    }
    Ok(tokens.ceil() as i64)
}

type CountEach<'f> = dyn Fn(&Message) -> i64 + Send + Sync + 'f;
type CountAll<'f> = dyn Fn(&[&Message]) -> i64 + Send + Sync + 'f;

/// A counter of the tokens of messages.
///
/// A counter of single messages is best: [`trim_messages`](super::trim_messages) then counts each message at most once.
pub struct TokenCounter<'f>(Counting<'f>);

enum Counting<'f> {
    Each(Box<CountEach<'f>>),
    All(Box<CountAll<'f>>),
    Approximate(CountOptions),
}

impl<'f> TokenCounter<'f> {
    /// Counts one message; the count of a list is the sum.
    pub fn each(count: impl Fn(&Message) -> i64 + Send + Sync + 'f) -> Self {
        Self(Counting::Each(Box::new(count)))
    }

    /// Counts a list, as models do that add something to each request.
    pub fn all(count: impl Fn(&[&Message]) -> i64 + Send + Sync + 'f) -> Self {
        Self(Counting::All(Box::new(count)))
    }

    /// Estimates, see [`count_tokens_approximately`].
    pub fn approximate(options: CountOptions) -> Self {
        Self(Counting::Approximate(options))
    }

    /// Returns whether a list counts as the sum of its messages.
    pub(super) fn is_sum(&self) -> bool {
        match &self.0 {
            Counting::Each(_) => true,
            Counting::All(_) => false,
            Counting::Approximate(options) => options.is_sum(),
        }
    }

    /// Counts a list.
    ///
    /// # Errors
    /// As [`count_tokens_approximately`], if this estimates.
    pub(super) fn count(&self, messages: &[&Message]) -> Result<i64, MessageError> {
        match &self.0 {
            Counting::Each(count) => Ok(messages.iter().map(|message| count(message)).sum()),
            Counting::All(count) => Ok(count(messages)),
            Counting::Approximate(options) => count_tokens_approximately(messages.iter().copied(), options),
        }
    }
}

impl Default for TokenCounter<'_> {
    fn default() -> Self {
        Self::approximate(CountOptions::default())
    }
}

impl fmt::Debug for TokenCounter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Counting::Each(_) => f.write_str("TokenCounter::each"),
            Counting::All(_) => f.write_str("TokenCounter::all"),
            Counting::Approximate(options) => f.debug_tuple("TokenCounter::approximate").field(options).finish(),
        }
    }
}

/// Reads a counter from a configuration: the text `approximate`.
impl TryFrom<&Value> for TokenCounter<'_> {
    type Error = MessageError;

    fn try_from(value: &Value) -> Result<Self, MessageError> {
        match value {
            Value::Str(name) if name == "approximate" => Ok(Self::default()),
            Value::Str(name) => Err(MessageError::value(format!(
                "Invalid token_counter shortcut '{name}'. Available shortcuts: 'approximate'."
            ))),
            other => Err(MessageError::value(format!(
                "'token_counter' expected to be a model that implements 'get_num_tokens_from_messages()' or a \
                 function. Received object of type {}",
                other.kind()
            ))),
        }
    }
}
