//! Cutting a list of messages down to a number of tokens: `trim_messages` of LangChain.
//!
//! *Absent:* keeping a tool call together with its result; the types of messages name the start and the end of the
//! retained part.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use super::{Content, Message, MessageError, Role, TokenCounter, TypeFilter};
use annals_base::Value;

/// The end of the list that is retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TrimStrategy {
    /// The newest messages.
    #[default]
    Last,
    /// The oldest messages.
    First,
}

impl FromStr for TrimStrategy {
    type Err = MessageError;

    fn from_str(text: &str) -> Result<Self, MessageError> {
        match text {
            "last" => Ok(Self::Last),
            "first" => Ok(Self::First),
            _ => Err(MessageError::value(format!(
                "Unrecognized strategy='{text}'. Supported strategies are 'last' and 'first'."
            ))),
        }
    }
}

type Splitter<'f> = dyn Fn(&str) -> Vec<String> + Send + Sync + 'f;

/// How [`trim_messages`] trims.
pub struct TrimOptions<'f> {
    max_tokens: i64,
    counter: TokenCounter<'f>,
    strategy: TrimStrategy,
    allow_partial: bool,
    start_on: Vec<TypeFilter>,
    end_on: Vec<TypeFilter>,
    include_system: bool,
    splitter: Box<Splitter<'f>>,
}

impl<'f> TrimOptions<'f> {
    /// Keeps the newest whole messages that have at most so many tokens by [estimate](TokenCounter::approximate). A
    /// limit below zero keeps nothing.
    pub fn new(max_tokens: i64) -> Self {
        Self {
            max_tokens,
            counter: TokenCounter::default(),
            strategy: TrimStrategy::Last,
            allow_partial: false,
            start_on: Vec::new(),
            end_on: Vec::new(),
            include_system: false,
            splitter: Box::new(lines),
        }
    }

    /// Sets what counts the tokens. It must not count a longer list lower.
    #[must_use]
    pub fn counter(mut self, counter: TokenCounter<'f>) -> Self {
        self.counter = counter;
        self
    }

    /// Sets which end is retained.
    #[must_use]
    pub fn strategy(mut self, strategy: TrimStrategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Sets whether a part of the first message that does not fit is retained: some of its blocks, or some fragments of
    /// its text.
    #[must_use]
    pub fn allow_partial(mut self, allow: bool) -> Self {
        self.allow_partial = allow;
        self
    }

    /// Says of which types the first retained message may be; for [`TrimStrategy::Last`] only.
    #[must_use]
    pub fn start_on<T: Into<TypeFilter>>(mut self, types: impl IntoIterator<Item = T>) -> Self {
        self.start_on.extend(types.into_iter().map(Into::into));
        self
    }

    /// Says of which types the last retained message may be.
    #[must_use]
    pub fn end_on<T: Into<TypeFilter>>(mut self, types: impl IntoIterator<Item = T>) -> Self {
        self.end_on.extend(types.into_iter().map(Into::into));
        self
    }

    /// Sets whether a system message that begins the list is retained in any case; for [`TrimStrategy::Last`] only.
    #[must_use]
    pub fn include_system(mut self, include: bool) -> Self {
        self.include_system = include;
        self
    }

    /// Sets how a text is split into fragments, which joined give the text again. Without this they are its lines.
    #[must_use]
    pub fn text_splitter(mut self, split: impl Fn(&str) -> Vec<String> + Send + Sync + 'f) -> Self {
        self.splitter = Box::new(split);
        self
    }

    /// Checks the options against each other, before any message is at hand. [`trim_messages`] checks them first, too.
    ///
    /// # Errors
    /// [`MessageError`] if [`start_on`](Self::start_on) or [`include_system`](Self::include_system) is set together
    /// with [`TrimStrategy::First`]; of both, `start_on` is named.
    ///
    /// # Example
    /// ```
    /// use annals_messages::{TrimOptions, TrimStrategy};
    ///
    /// let error = TrimOptions::new(10).strategy(TrimStrategy::First).include_system(true).check().unwrap_err();
    /// assert_eq!(error.to_string(), "include_system parameter is only valid with strategy='last'");
    /// ```
    pub fn check(&self) -> Result<(), MessageError> {
        let only_last =
            |option| Err(MessageError::value(format!("{option} parameter is only valid with strategy='last'")));
        match self.strategy {
            TrimStrategy::Last => Ok(()),
            TrimStrategy::First if !self.start_on.is_empty() => only_last("start_on"),
            TrimStrategy::First if self.include_system => only_last("include_system"),
            TrimStrategy::First => Ok(()),
        }
    }
}

impl fmt::Debug for TrimOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrimOptions")
            .field("max_tokens", &self.max_tokens)
            .field("counter", &self.counter)
            .field("strategy", &self.strategy)
            .finish_non_exhaustive()
    }
}

/// Splits after each newline.
fn lines(text: &str) -> Vec<String> {
    let mut fragments: Vec<String> = text.split('\n').map(|line| format!("{line}\n")).collect();
    // Nothing stands between the last newline and the end.
    if let Some(last) = fragments.last_mut() {
        last.pop();
    }
    fragments
}

/// Returns copies of those messages that have at most so many tokens, from one end of the list, in order.
///
/// With [`TrimStrategy::Last`], messages at the end that [`end_on`](TrimOptions::end_on) does not name are dropped,
/// then as many of the newest as fit are retained, and of those, the messages before the first that
/// [`start_on`](TrimOptions::start_on) names is dropped. An answer with tool calls and the results are not retained
/// together by themselves: that is what `start_on` and `end_on` are for. A counter of single messages is asked once for
/// each message that is retained and for the first that is not; a counter of lists about log2(n) times.
///
/// # Errors
/// [`MessageError`] if the options contradict each other or the messages cannot be estimated.
///
/// # Example: the newest messages of a long chat, with its instructions
/// ```
/// use annals_messages::{Message, MessageClass, TokenCounter, TrimOptions, trim_messages};
///
/// let mut chat = vec![Message::system("Be brief.")];
/// chat.extend((0..50).flat_map(|n| [Message::human(format!("question {n}")), Message::ai(format!("answer {n}"))]));
/// let options = TrimOptions::new(10)
///     .counter(TokenCounter::each(|message| message.text().split_whitespace().count() as i64))
///     .include_system(true)
///     .start_on([MessageClass::Human]);
/// let kept = trim_messages(&chat, &options)?;
/// let texts: Vec<_> = kept.iter().map(|m| m.text()).collect();
/// assert_eq!(texts, ["Be brief.", "question 48", "answer 48", "question 49", "answer 49"]);
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
pub fn trim_messages<'a>(
    messages: impl IntoIterator<Item = &'a Message>,
    options: &TrimOptions<'_>,
) -> Result<Vec<Message>, MessageError> {
    options.check()?;
    let mut messages: Vec<&Message> = messages.into_iter().collect();
    if options.strategy == TrimStrategy::First {
        let kept = Fit { options, limit: options.max_tokens, reversed: false }.keep(&messages, &options.end_on)?;
        return Ok(kept);
    }
    cut(&mut messages, &options.end_on, |message| message);
    let system = messages.first().copied().filter(|first| options.include_system && first.role == Role::System);
    let mut rest = messages.split_off(usize::from(system.is_some()));
    let limit = match system {
        Some(system) => (options.max_tokens - options.counter.count(&[system])?).max(0),
        None => options.max_tokens,
    };
    rest.reverse();
    let mut kept = Fit { options, limit, reversed: true }.keep(&rest, &options.start_on)?;
    kept.extend(system.cloned());
    kept.reverse();
    Ok(kept)
}

/// Drops messages from the end until one is of the types, if any are given.
fn cut<T>(messages: &mut Vec<T>, types: &[TypeFilter], of: impl Fn(&T) -> &Message) {
    if types.is_empty() {
        return;
    }
    let last = messages.iter().rposition(|message| types.iter().any(|filter| filter.matches(of(message))));
    messages.truncate(last.map_or(0, |last| last + 1));
}

/// Returns the greatest number up to `max` that fits, if 0 does and all smaller ones of one that fits.
fn greatest(max: usize, mut fits: impl FnMut(usize) -> Result<bool, MessageError>) -> Result<usize, MessageError> {
    let (mut low, mut high) = (0, max);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if fits(middle)? { low = middle } else { high = middle - 1 }
    }
    debug_assert!(low <= max, "at most all messages fit");
    Ok(low)
}

/// Keeps the beginning of a list, which for [`TrimStrategy::Last`] is reversed.
struct Fit<'o, 'f> {
    options: &'o TrimOptions<'f>,
    limit: i64,
    reversed: bool,
}

impl Fit<'_, '_> {
    fn keep(&self, messages: &[&Message], end_on: &[TypeFilter]) -> Result<Vec<Message>, MessageError> {
        let (whole, tokens) = self.whole(messages)?;
        debug_assert!(whole <= messages.len(), "at most all messages fit");
        let (kept, next) = messages.split_at(whole);
        let partial = match next.first() {
            Some(next) if self.options.allow_partial => self.partial(kept, tokens, next)?,
            _ => None,
        };
        let mut kept: Vec<Cow<'_, Message>> = kept.iter().map(|message| Cow::Borrowed(*message)).collect();
        kept.extend(partial.map(Cow::Owned));
        cut(&mut kept, end_on, |message| message);
        Ok(kept.into_iter().map(Cow::into_owned).collect())
    }

    fn count(&self, messages: &[&Message]) -> Result<i64, MessageError> {
        self.options.counter.count(messages)
    }

    /// Returns how many whole messages fit, and their tokens.
    fn whole(&self, messages: &[&Message]) -> Result<(usize, i64), MessageError> {
        if self.options.counter.is_sum() {
            let mut tokens = 0_i64;
            for (at, message) in messages.iter().enumerate() {
                let more = tokens.saturating_add(self.count(&[message])?);
                if more > self.limit {
                    return Ok((at, tokens));
                }
                tokens = more;
            }
            return Ok((messages.len(), tokens));
        }
        let all = self.count(messages)?;
        if messages.is_empty() || all <= self.limit {
            return Ok((messages.len(), all));
        }
        let whole = greatest(messages.len(), |n| Ok(self.count(&messages[..n])? <= self.limit))?;
        Ok((whole, self.count(&messages[..whole])?))
    }

    /// Returns as much of a message as fits after the retained ones, `None` if that is nothing.
    fn partial(&self, kept: &[&Message], tokens: i64, next: &Message) -> Result<Option<Message>, MessageError> {
        let mut part = next.clone();
        if let (Content::Blocks(blocks), true) = (&mut part.content, self.reversed) {
            blocks.reverse();
        }
        if self.fewer_blocks(kept, tokens, &mut part)? {
            return Ok(Some(part));
        }
        let text = match std::mem::take(&mut part.content) {
            Content::Text(text) => text,
            Content::Blocks(blocks) => first_text(&blocks),
        };
        self.fewer_pieces(tokens, part, &text)
    }

    /// Drops blocks from the end, at most down to one, until the message fits, and returns whether it does.
    fn fewer_blocks(&self, kept: &[&Message], tokens: i64, part: &mut Message) -> Result<bool, MessageError> {
        loop {
            match &mut part.content {
                Content::Blocks(blocks) if blocks.len() > 1 => blocks.pop(),
                _ => return Ok(false),
            };
            let with = if self.options.counter.is_sum() {
                tokens.saturating_add(self.count(&[part])?)
            } else {
                let all: Vec<&Message> = kept.iter().copied().chain([&*part]).collect();
                self.count(&all)?
            };
            if with <= self.limit {
                if let (Content::Blocks(blocks), true) = (&mut part.content, self.reversed) {
                    blocks.reverse();
                }
                return Ok(true);
            }
        }
    }

    /// Keeps as many fragments of a text as fit, in the order in which they are tried.
    fn fewer_pieces(&self, tokens: i64, mut part: Message, text: &str) -> Result<Option<Message>, MessageError> {
        if text.is_empty() {
            return Ok(None);
        }
        let mut fragments = (self.options.splitter)(text);
        if self.reversed {
            fragments.reverse();
        }
        let whole = greatest(fragments.len(), |n| {
            part.content = Content::Text(fragments[..n].concat());
            Ok(tokens.saturating_add(self.count(&[&part])?) <= self.limit)
        })?;
        fragments.truncate(whole);
        if self.reversed {
            fragments.reverse();
        }
        part.content = Content::Text(fragments.concat());
        Ok((whole > 0).then_some(part))
    }
}

/// Returns the first text among blocks: a text, or that of a text block.
fn first_text(blocks: &[Value]) -> String {
    let text = |block: &Value| match block {
        Value::Str(text) => Some(text.clone()),
        block if block.get("type").and_then(Value::as_str) == Some("text") => {
            block.get("text").and_then(Value::as_str).map(str::to_owned)
        }
        _ => None,
    };
    blocks.iter().find_map(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn chat(length: usize) -> Vec<Message> {
        (0..length).map(|n| if n % 2 == 0 { Message::human("a b") } else { Message::ai("c d") }).collect()
    }

    #[test]
    fn a_counter_of_single_messages_is_asked_once_for_each_it_has_to_know() {
        let asked = AtomicUsize::new(0);
        let counter = TokenCounter::each(|_| {
            asked.fetch_add(1, Ordering::Relaxed);
            2
        });
        let options = TrimOptions::new(5_000).counter(counter);
        assert_eq!(trim_messages(&chat(10_000), &options).unwrap().len(), 2_500);
        assert_eq!(asked.load(Ordering::Relaxed), 2_501);
    }

    #[test]
    fn a_counter_of_lists_is_asked_a_logarithm_of_times() {
        let asked = AtomicUsize::new(0);
        let counter = TokenCounter::all(|messages| {
            asked.fetch_add(1, Ordering::Relaxed);
            1 + 2 * messages.len() as i64
        });
        let options = TrimOptions::new(5_001).counter(counter);
        assert_eq!(trim_messages(&chat(10_000), &options).unwrap().len(), 2_500);
        assert!(asked.load(Ordering::Relaxed) <= 17);
    }

    #[test]
    fn both_kinds_of_counter_keep_the_same() {
        let words = |message: &Message| message.text().split_whitespace().count() as i64;
        let messages = chat(9);
        for max in -1..20 {
            for strategy in [TrimStrategy::First, TrimStrategy::Last] {
                let trimmed = |counter| {
                    let options = TrimOptions::new(max).counter(counter).strategy(strategy).allow_partial(true);
                    trim_messages(
                        &messages,
                        &options.text_splitter(|text| text.split_inclusive(' ').map(Into::into).collect()),
                    )
                };
                let each = trimmed(TokenCounter::each(words)).unwrap();
                let all = trimmed(TokenCounter::all(|list| list.iter().map(|message| words(message)).sum())).unwrap();
                assert_eq!(each, all, "{max} {strategy:?}");
                // Of the newest, fragments are tried in reversed order, as in the reference: "b" and "a " are one word
                // then.
                if strategy == TrimStrategy::First {
                    assert_eq!(each.iter().map(words).sum::<i64>(), max.clamp(0, 18), "{max}");
                }
            }
        }
    }

    #[test]
    fn options_that_contradict_each_other_are_refused() {
        let first = || TrimOptions::new(1).strategy(TrimStrategy::First);
        for (options, part) in
            [(first().start_on(["human"]), "start_on"), (first().include_system(true), "include_system")]
        {
            let error = trim_messages(&[], &options).unwrap_err();
            assert!(error.to_string().starts_with(part), "{error}");
        }
        assert!("middle".parse::<TrimStrategy>().is_err());
    }
}
