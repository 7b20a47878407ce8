//! Expressions over the state: paths, literals, comparisons, `and`, `or`, `not`, `in`, `??`, `len`, `str`, `map`, `+`
//! and `-`.
//!
//! An expression reads the state and nothing else: no functions of the user, no input or output, no loop but `map`,
//! whose length is limited. A path that leads nowhere is null.

use std::cmp::Ordering;

use annals_graph::annals::base::Value;

use crate::limits::{DEPTH_MAX, EACH_ITEMS_MAX, EXPRESSION_BYTES_MAX};
use crate::spec::ITEM;

/// A parsed expression.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    Literal(Value),
    /// A channel, and the members and positions below it.
    Path(Vec<String>),
    Len(Box<Expression>),
    /// The text of a value.
    Str(Box<Expression>),
    Not(Box<Expression>),
    /// A list, and the expression whose values for its items are the result.
    Mapped(Box<Expression>, Box<Expression>),
    Two(&'static str, Box<Expression>, Box<Expression>),
}

/// An expression that cannot be parsed: the place in its text and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExpressionError {
    pub(crate) at: usize,
    pub(crate) message: String,
}

/// Operators, the longer ones first, with their ranks: a higher rank binds tighter.
const OPERATORS: &[(&str, u8)] = &[
    ("or", 1),
    ("and", 2),
    ("==", 3),
    ("!=", 3),
    ("<=", 3),
    (">=", 3),
    ("<", 3),
    (">", 3),
    ("in", 3),
    ("+", 4),
    ("-", 4),
    ("??", TIGHTEST),
];

/// The rank of the operator that binds tightest.
const TIGHTEST: u8 = 5;

impl Expression {
    pub(crate) fn parse(text: &str) -> Result<Self, ExpressionError> {
        let mut parser = ExpressionParser { text, at: 0 };
        if text.len() > EXPRESSION_BYTES_MAX {
            return Err(parser.wrong(format!("an expression has at most {EXPRESSION_BYTES_MAX} bytes")));
        }
        let parsed = parser.two(1, 0)?;
        match parser.rest() {
            "" => Ok(parsed),
            _ => Err(parser.wrong("expected an operator or the end: == != < <= > >= in and or + - ??")),
        }
    }

    /// Returns the channels that the expression reads.
    pub(crate) fn channels(&self) -> Vec<&str> {
        self.paths().into_iter().filter_map(|path| path.first().map(String::as_str)).collect()
    }

    /// Returns the paths that the expression reads.
    pub(crate) fn paths(&self) -> Vec<&[String]> {
        match self {
            Self::Literal(_) => Vec::new(),
            Self::Path(path) => vec![path],
            Self::Len(of) | Self::Str(of) | Self::Not(of) => of.paths(),
            Self::Mapped(list, each) => {
                let mut paths = list.paths();
                paths.extend(each.paths().into_iter().filter(|path| path.first().is_none_or(|name| name != ITEM)));
                paths
            }
            Self::Two(_, left, right) => [left.paths(), right.paths()].concat(),
        }
    }

    /// Returns whether a `map` is inside. One in the expression of another would run for each pair of items.
    fn has_map(&self) -> bool {
        match self {
            Self::Literal(_) | Self::Path(_) => false,
            Self::Len(of) | Self::Str(of) | Self::Not(of) => of.has_map(),
            Self::Mapped(..) => true,
            Self::Two(_, left, right) => left.has_map() || right.has_map(),
        }
    }

    /// Evaluates the expression; `read` returns the value of a channel.
    pub(crate) fn evaluate(&self, read: &dyn Fn(&str) -> Value) -> Result<Value, String> {
        Ok(match self {
            Self::Literal(value) => value.clone(),
            Self::Path(path) => {
                let mut value = path.first().map(|channel| read(channel)).unwrap_or_default();
                for name in path.iter().skip(1) {
                    let below = match &value {
                        Value::List(items) => name.parse().ok().and_then(|at: usize| items.get(at)),
                        value => value.get(name),
                    };
                    value = below.cloned().unwrap_or_default();
                }
                value
            }
            Self::Len(of) => match of.evaluate(read)? {
                Value::Null => Value::Int(0),
                Value::List(items) => Value::from(items.len()),
                Value::Map(members) => Value::from(members.len()),
                Value::Str(text) => Value::from(text.chars().count()),
                other => return Err(format!("len() of {}: expected a list, an object or a text", other.kind())),
            },
            Self::Str(of) => Value::Str(text_of(&of.evaluate(read)?)),
            Self::Not(of) => Value::Bool(!is_true(&of.evaluate(read)?)),
            Self::Mapped(list, each) => match list.evaluate(read)? {
                Value::Null => Value::List(Vec::new()),
                Value::List(items) if items.len() > EACH_ITEMS_MAX => {
                    return Err(format!("map() of {} items, more than {EACH_ITEMS_MAX}", items.len()));
                }
                Value::List(items) => {
                    let value =
                        |item: Value| each.evaluate(&|name| if name == ITEM { item.clone() } else { read(name) });
                    Value::List(items.into_iter().map(value).collect::<Result<_, _>>()?)
                }
                other => return Err(format!("map() of {}: expected a list", other.kind())),
            },
            Self::Two("??", left, right) => match left.evaluate(read)? {
                Value::Null => right.evaluate(read)?,
                value => value,
            },
            Self::Two("and", left, right) => {
                Value::Bool(is_true(&left.evaluate(read)?) && is_true(&right.evaluate(read)?))
            }
            Self::Two("or", left, right) => {
                Value::Bool(is_true(&left.evaluate(read)?) || is_true(&right.evaluate(read)?))
            }
            Self::Two(operator, left, right) => operate(operator, left.evaluate(read)?, right.evaluate(read)?)?,
        })
    }
}

/// A type that the value of an expression has in every state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FixedKind {
    Number,
    Text,
}

impl Expression {
    /// Returns the type of the value if it is the same in every state; `of` returns that of a channel.
    ///
    /// # Errors
    /// The message of an operator whose evaluation would fail in every state.
    pub(crate) fn kind(&self, of: &dyn Fn(&str) -> Option<FixedKind>) -> Result<Option<FixedKind>, String> {
        let (operator, left, right) = match self {
            Self::Literal(Value::Int(_) | Value::Float(_)) => return Ok(Some(FixedKind::Number)),
            Self::Literal(Value::Str(_)) => return Ok(Some(FixedKind::Text)),
            Self::Literal(_) => return Ok(None),
            Self::Path(path) => return Ok(if let [channel] = &path[..] { of(channel) } else { None }),
            Self::Len(inner) => return inner.kind(of).map(|_| Some(FixedKind::Number)),
            Self::Str(inner) => return inner.kind(of).map(|_| Some(FixedKind::Text)),
            Self::Not(inner) => return inner.kind(of).map(|_| None),
            Self::Mapped(list, each) => {
                if list.kind(of)?.is_some() {
                    return Err("map() takes a list, not a text or a number".to_owned());
                }
                return each.kind(&|name| if name == ITEM { None } else { of(name) }).map(|_| None);
            }
            Self::Two(operator, left, right) => (*operator, left.kind(of)?, right.kind(of)?),
        };
        let differ = left.zip(right).is_some_and(|(left, right)| left != right);
        let found = left.or(right);
        match operator {
            "+" if differ => Err(format!("`+` between a text and a number{STR_HINT}")),
            "-" if left.max(right) == Some(FixedKind::Text) => Err("`-` takes numbers, not a text".to_owned()),
            "<" | "<=" | ">" | ">=" if differ => Err(format!("`{operator}` between a text and a number")),
            "+" | "-" => Ok(found),
            // The value is that of either side.
            "??" if left == right => Ok(found),
            _ => Ok(None),
        }
    }
}

/// The end of a message about an operator that does not join a text with another value.
const STR_HINT: &str = ": str() makes a text of a value";

/// Returns a text as it is, null as nothing, and any other value as JSON.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Str(text) => text.clone(),
        value => match value.big_integer() {
            Some(digits) => digits.to_owned(),
            None => value.to_json().to_string(),
        },
    }
}

/// Returns false for null, false, 0, and an empty text, list or object.
pub(crate) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) | Value::Int(0) => false,
        Value::Float(number) => *number != 0.0,
        Value::Str(text) => !text.is_empty(),
        Value::List(items) => !items.is_empty(),
        Value::Map(members) => !members.is_empty(),
        _ => true,
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(value) => Some(*value as f64),
        Value::UInt(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        _ => None,
    }
}

fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Int(left), Value::Int(right)) => Some(left.cmp(right)),
        (Value::Str(left), Value::Str(right)) => Some(left.cmp(right)),
        _ => number(left)?.partial_cmp(&number(right)?),
    }
}

fn operate(operator: &str, left: Value, right: Value) -> Result<Value, String> {
    let is_equal = left == right || order(&left, &right) == Some(Ordering::Equal);
    let kinds = || format!("`{operator}` between {} and {}", left.kind(), right.kind());
    Ok(match operator {
        "==" => Value::Bool(is_equal),
        "!=" => Value::Bool(!is_equal),
        "in" => match &right {
            Value::List(items) => Value::Bool(items.contains(&left)),
            Value::Null => Value::Bool(false),
            Value::Map(members) => Value::Bool(left.as_str().is_some_and(|name| members.contains_key(name))),
            Value::Str(text) => match left.as_str() {
                Some(part) => Value::Bool(text.contains(part)),
                None => return Err(kinds()),
            },
            _ => return Err(kinds()),
        },
        "+" | "-" => match (&left, &right) {
            (Value::Int(a), Value::Int(b)) => {
                let result = if operator == "+" { a.checked_add(*b) } else { a.checked_sub(*b) };
                Value::Int(result.ok_or("an integer exceeds 64 bits")?)
            }
            (Value::Str(a), Value::Str(b)) if operator == "+" => Value::Str(format!("{a}{b}")),
            (Value::List(a), Value::List(b)) if operator == "+" => Value::List([a.as_slice(), b].concat()),
            // A channel that is not yet set counts as nothing.
            (Value::Null, _) if operator == "+" => right,
            _ => match (number(&left), number(&right)) {
                (Some(a), Some(b)) => Value::Float(if operator == "+" { a + b } else { a - b }),
                _ if operator == "+" && (left.as_str().is_some() || right.as_str().is_some()) => {
                    return Err(kinds() + STR_HINT);
                }
                _ => return Err(kinds()),
            },
        },
        _ => {
            let order = order(&left, &right).ok_or_else(kinds)?;
            Value::Bool(match operator {
                "<" => order.is_lt(),
                "<=" => order.is_le(),
                ">" => order.is_gt(),
                _ => order.is_ge(),
            })
        }
    })
}

struct ExpressionParser<'a> {
    text: &'a str,
    at: usize,
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

impl<'a> ExpressionParser<'a> {
    fn wrong(&self, message: impl Into<String>) -> ExpressionError {
        ExpressionError { at: self.at, message: message.into() }
    }

    /// Returns the rest without leading blanks.
    fn rest(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        &self.text[self.at..]
    }

    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest();
        let is_word = token.starts_with(is_name);
        let found = rest.starts_with(token) && !(is_word && rest[token.len()..].starts_with(is_name));
        self.at += if found { token.len() } else { 0 };
        found
    }

    /// Parses operators of a rank and above.
    fn two(&mut self, rank: u8, depth: usize) -> Result<Expression, ExpressionError> {
        if depth > DEPTH_MAX {
            return Err(self.wrong(format!("an expression has at most {DEPTH_MAX} levels")));
        }
        if rank > TIGHTEST {
            return self.one(depth);
        }
        if rank == 3 && self.take("not") {
            return Ok(Expression::Not(Box::new(self.two(3, depth + 1)?)));
        }
        let mut left = self.two(rank + 1, depth)?;
        while let Some((operator, _)) = OPERATORS.iter().find(|(token, of)| *of == rank && self.take(token)) {
            left = Expression::Two(operator, Box::new(left), Box::new(self.two(rank + 1, depth)?));
            if rank == 3 {
                break;
            }
        }
        Ok(left)
    }

    fn one(&mut self, depth: usize) -> Result<Expression, ExpressionError> {
        if self.take("(") {
            let of = self.two(1, depth + 1)?;
            return if self.take(")") { Ok(of) } else { Err(self.wrong("expected `)`")) };
        }
        if self.take("len") {
            return self.argument("len", depth).map(Expression::Len);
        }
        // A channel may have the name `str` or `map`.
        if self.is_call("str") {
            self.at += "str".len();
            return self.argument("str", depth).map(Expression::Str);
        }
        if self.is_call("map") {
            self.at += "map".len();
            return self.mapped(depth);
        }
        let literals = [("true", Value::Bool(true)), ("false", Value::Bool(false)), ("null", Value::Null)];
        if let Some((_, value)) = literals.into_iter().find(|(word, _)| self.take(word)) {
            return Ok(Expression::Literal(value));
        }
        let rest = self.rest();
        match rest.chars().next() {
            Some(quote @ ('\'' | '"')) => {
                let Some(end) = rest[1..].find(quote) else { return Err(self.wrong("the text has no end")) };
                self.at += end + 2;
                Ok(Expression::Literal(Value::from(&rest[1..=end])))
            }
            Some(c) if c.is_ascii_digit() || c == '-' => {
                let end = rest[1..].find(|c: char| !c.is_ascii_digit() && c != '.').map_or(rest.len(), |at| at + 1);
                let text = &rest[..end];
                let int = text.parse().map(Value::Int).ok();
                let Some(value) = int.or_else(|| text.parse().map(Value::Float).ok()) else {
                    return Err(self.wrong(format!("`{text}` is not a number")));
                };
                self.at += end;
                Ok(Expression::Literal(value))
            }
            Some(c) if is_name(c) => self.path(),
            _ => Err(self.wrong("expected a channel, a literal, `not`, `len(`, `str(`, `map(` or `(`")),
        }
    }

    /// Parses the argument of a function in its parentheses.
    fn argument(&mut self, function: &str, depth: usize) -> Result<Box<Expression>, ExpressionError> {
        if !self.take("(") {
            return Err(self.wrong(format!("expected `(` after {function}")));
        }
        let of = self.two(1, depth + 1)?;
        if self.take(")") { Ok(Box::new(of)) } else { Err(self.wrong("expected `)`")) }
    }

    /// Returns whether the rest begins with a function and its parenthesis.
    fn is_call(&mut self, function: &str) -> bool {
        self.rest().strip_prefix(function).is_some_and(|rest| rest.trim_start().starts_with('('))
    }

    /// Parses the list and the expression of `map` in their parentheses.
    fn mapped(&mut self, depth: usize) -> Result<Expression, ExpressionError> {
        let is_open = self.take("(");
        debug_assert!(is_open, "a call has a parenthesis");
        let list = self.two(1, depth + 1)?;
        if !self.take(",") {
            return Err(self.wrong("expected `,` and an expression for each item: map(list, item.name)"));
        }
        let each = self.two(1, depth + 1)?;
        if each.has_map() {
            return Err(self.wrong("a map() has no other map() inside"));
        }
        let mapped = Expression::Mapped(Box::new(list), Box::new(each));
        if self.take(")") { Ok(mapped) } else { Err(self.wrong("expected `)`")) }
    }

    fn path(&mut self) -> Result<Expression, ExpressionError> {
        let mut path = Vec::new();
        loop {
            let rest = &self.text[self.at..];
            let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
            if end == 0 {
                return Err(self.wrong("expected the name of a member"));
            }
            path.push(rest[..end].to_owned());
            self.at += end;
            while self.text[self.at..].starts_with('[') {
                let inner = &self.text[self.at + 1..];
                let end = inner.find(']').filter(|end| inner[..*end].parse::<u32>().is_ok());
                let Some(end) = end else { return Err(self.wrong("expected a position such as [0]")) };
                path.push(inner[..end].to_owned());
                self.at += end + 2;
            }
            if !self.text[self.at..].starts_with('.') {
                return Ok(Expression::Path(path));
            }
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<serde_json::Value, String> {
        let state = serde_json::json!({"n": 3, "files": ["a", {"name": "b"}], "ok": true, "city": "Bern"});
        let read = |channel: &str| Value::from(state[channel].clone());
        let parsed = Expression::parse(text).map_err(|error| format!("{}: {}", error.at, error.message))?;
        parsed.evaluate(&read).map(|value| value.to_json())
    }

    #[test]
    fn expressions_have_the_values_of_the_reference() {
        let holds = [
            "n == 3",
            "n==3.0 and ok",
            "not (n > 3) and n >= 3",
            "not n > 3",
            "false or not false",
            "len(files) == 2",
            "files[1].name == 'b'",
            "files[7].name == null",
            "'a' in files",
            "'er' in city",
            "\"Bern\" < \"Rom\"",
            "n + 1 - 2 == 2",
            "'x' + city == 'xBern'",
            "nothing == null and len(nothing) == 0",
            "notes == null",
            "-1 < n",
        ];
        for text in holds {
            assert_eq!(value(text), Ok(true.into()), "{text}");
        }
        assert_eq!(value("files[0] + '!'"), Ok("a!".into()));
        assert_eq!(value("nothing + 1"), Ok(1.into()));
        assert_eq!(value("'n = ' + str(n) + str( nothing )"), Ok("n = 3".into()));
        assert_eq!(value("str(files) + str(ok) + str('x')"), Ok("[\"a\",{\"name\":\"b\"}]truex".into()));
        assert_eq!(value("str == null and map == null"), Ok(true.into()), "channels");
        assert_eq!(value("nothing ?? 'none' + '!'"), Ok("none!".into()));
        assert_eq!(value("files[7].name ?? files[1].name ?? 'x'"), Ok("b".into()));
        assert_eq!(value("(false ?? 1) == false and 'no ' + str(nothing ?? n) == 'no 3'"), Ok(true.into()));
        assert_eq!(
            value("map(files, str(item.name ?? item) + '.' + city)"),
            Ok(serde_json::json!(["a.Bern", "b.Bern"]))
        );
        assert_eq!(value("len(map(nothing, item)) == 0"), Ok(true.into()));
        assert_eq!(value("map(map(files, item.name), item ?? 0)"), Ok(serde_json::json!([0, "b"])));
    }

    #[test]
    fn wrong_expressions_name_the_place() {
        for (text, message) in [
            ("n = 3", "2: expected an operator"),
            ("n ==", "4: expected a channel"),
            ("(n", "2: expected `)`"),
            ("'abc", "0: the text has no end"),
            ("files[x]", "5: expected a position"),
            ("a.", "2: expected the name"),
            ("1.2.3", "0: `1.2.3` is not a number"),
            ("n < 'a'", "`<` between"),
            ("9223372036854775807 + 1", "exceeds 64 bits"),
            ("city + n", "`+` between str and int: str() makes a text"),
            ("str(n", "5: expected `)`"),
            ("map(files)", "9: expected `,`"),
            ("map(files, map(files, item))", "27: a map() has no other map()"),
            ("map(n, item)", "map() of int: expected a list"),
            ("n ??", "4: expected a channel"),
        ] {
            let error = value(text).unwrap_err();
            assert!(error.starts_with(message) || error.contains(message), "{text}: {error}");
        }
        assert!(value(&"(".repeat(100)).unwrap_err().contains("levels"));
        assert!(value(&"not ".repeat(100)).unwrap_err().contains("levels"));
        assert!(value(&" ".repeat(5_000)).unwrap_err().contains("4096 bytes"));
    }

    #[test]
    fn an_operator_that_fails_in_every_state_is_found_without_one() {
        let kind = |text: &str| {
            let of = |channel: &str| (channel == "n").then_some(FixedKind::Number);
            Expression::parse(text).map_err(|error| error.message).and_then(|parsed| parsed.kind(&of))
        };
        for wrong in [
            "'Load ' + n",
            "len(files) + 'x'",
            "1 - 'x'",
            "not (n < 'x')",
            "str(n) + (city + 2) + 3",
            "map(n, item)",
            "map(files, 'x' + n)",
            "(n ?? 1) + 'x'",
        ] {
            assert!(kind(wrong).is_err(), "{wrong}");
        }
        assert!(kind("'Load ' + n").unwrap_err().contains("str()"));
        assert_eq!(kind("'Load ' + str(n) + city"), Ok(Some(FixedKind::Text)));
        assert_eq!(kind("city + n - 1"), Ok(Some(FixedKind::Number)));
        assert_eq!(kind("city + files == n"), Ok(None));
        assert_eq!(kind("(city ?? 1) + (n ?? 'x')"), Ok(None));
    }
}
