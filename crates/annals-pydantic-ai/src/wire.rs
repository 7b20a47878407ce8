//! Reading and writing of values: the reader that collects problems, and the plain types.
//!
//! Reading continues after a problem, so that the error can name the smallest value that holds all of them. The
//! leniencies are those of pydantic's JSON mode: an integral float or a decimal text is an integer, `yes` is true.
//! *Absent:* the shapes of messages.

use super::error::{LoadError, LoadReason, PathPart};
use annals_base::{DefaultSource, IdSource, Map, SystemClock, Value};
use annals_messages::JsonError;
use annals_messages::internal::{JsonStyle, json_loads};

/// Returns an id for a tool call that has none: `pyd_ai_` and 32 hexadecimal digits.
pub(crate) fn tool_call_id(defaults: &mut DefaultSource<'_>) -> String {
    format!("pyd_ai_{}", defaults.uuid_v4().simple())
}

/// The problems so far.
#[derive(Debug)]
struct LoadProblem {
    path: Vec<PathPart>,
    first: Vec<PathPart>,
    reason: LoadReason,
    count: usize,
}

impl LoadProblem {
    /// Widens this to the smallest place that holds the other as well.
    fn join(mut self, other: LoadProblem) -> Self {
        let shared = self.path.iter().zip(&other.path).take_while(|(a, b)| a == b).count();
        self.path.truncate(shared);
        debug_assert!(self.first.starts_with(&self.path), "the first problem is at the place or inside it");
        self.count += other.count;
        self
    }
}

/// Reads values and collects their problems.
pub(super) struct WireReader<'a> {
    pub(super) defaults: DefaultSource<'a>,
    path: Vec<PathPart>,
    problem: Option<LoadProblem>,
}

impl<'a> WireReader<'a> {
    /// Reads one value with `read`, which returns `None` only after telling the reader why.
    pub(super) fn run<T>(
        root: &'static str,
        defaults: &'a mut DefaultSource<'_>,
        read: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Result<T, LoadError> {
        let defaults = defaults.reborrow();
        let mut reader = Self { defaults, path: Vec::new(), problem: None };
        let value = read(&mut reader);
        debug_assert!(reader.path.is_empty(), "every place that was entered is left");
        match (reader.problem, value) {
            (None, Some(value)) => Ok(value),
            (Some(p), _) => Err(LoadError { root, path: p.path, first: p.first, reason: p.reason, problems: p.count }),
            (None, None) => {
                let reason = LoadReason::Expected { expected: "a valid value", found: "an invalid one".into() };
                Err(LoadError { root, path: Vec::new(), first: Vec::new(), reason, problems: 1 })
            }
        }
    }

    fn add(&mut self, problem: LoadProblem) {
        self.problem = Some(match self.problem.take() {
            Some(before) => before.join(problem),
            None => problem,
        });
    }

    fn fail_with(&mut self, reason: LoadReason) {
        let path = self.path.clone();
        self.add(LoadProblem { first: path.clone(), path, reason, count: 1 });
    }

    /// Reports that the value at this place is not as expected.
    pub(super) fn fail<T>(&mut self, expected: &'static str, value: &Value) -> Option<T> {
        self.mismatch(expected, value);
        None
    }

    #[inline(never)]
    fn mismatch(&mut self, expected: &'static str, value: &Value) {
        self.fail_with(LoadReason::Expected { expected, found: value.excerpt() });
    }

    /// Reports that the field `name` at this place is missing.
    pub(super) fn missing(&mut self, name: &str) {
        self.path.push(PathPart::Name(name.to_owned()));
        self.fail_with(LoadReason::Missing);
        self.leave();
    }

    /// Reads at a place inside this one.
    pub(super) fn at<T>(&mut self, part: PathPart, read: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(part);
        let value = read(self);
        self.leave();
        value
    }

    /// Reads a value that may have several shapes: a problem inside is one of the value as a whole.
    pub(super) fn one_place<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.problem.take();
        let value = read(self);
        let inside = self.problem.take();
        self.problem = before;
        if let Some(problem) = inside {
            self.add(LoadProblem { path: self.path.clone(), ..problem });
        }
        value
    }

    /// Tries to read: `None` if there is any problem; the problem is dropped.
    pub(super) fn attempt<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let before = self.problem.take();
        let value = read(self);
        let failed = std::mem::replace(&mut self.problem, before).is_some();
        value.filter(|_| !failed)
    }

    /// Returns the members of an object.
    pub(super) fn object(&mut self, value: Value) -> Option<Map> {
        match value {
            Value::Map(map) => Some(map),
            other => self.fail("an object", &other),
        }
    }

    /// Reads the first of the members `names` that is present, or else calls `default`.
    pub(super) fn field<T: Wire>(
        &mut self,
        map: &mut Map,
        names: &[&str],
        default: fn(&mut DefaultSource<'_>) -> Option<T>,
    ) -> Option<T> {
        if let Some(value) = self.enter_field(map, names) {
            let read = T::read(value, self);
            self.leave();
            return read;
        }
        let value = default(&mut self.defaults);
        if value.is_none() {
            self.missing(names[0]);
        }
        value
    }

    /// Takes the first of the members `names` that is present out of the object, and enters its place.
    fn enter_field(&mut self, map: &mut Map, names: &[&str]) -> Option<Value> {
        debug_assert!(!names.is_empty(), "a field has a name");
        let (name, value) = names.iter().find_map(|name| Some((*name, std::mem::take(map.get_mut(name)?))))?;
        self.path.push(PathPart::Name(name.to_owned()));
        Some(value)
    }

    fn leave(&mut self) {
        let left = self.path.pop();
        debug_assert!(left.is_some(), "every place that is left was entered");
    }

    /// Checks that the member `name`, if there is one, is `word`.
    pub(super) fn tag(&mut self, map: &Map, name: &str, word: &'static str) -> Option<()> {
        match map.get(name) {
            Some(value) if value.as_str() != Some(word) => {
                self.at(PathPart::Name(name.to_owned()), |reader| reader.fail(word, value))
            }
            _ => Some(()),
        }
    }
}

/// A type with a JSON encoding.
pub(super) trait Wire: Sized {
    /// Reads the value, or reports a problem to the reader.
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self>;

    /// Returns the value as it is dumped.
    fn write(&self) -> Value;

    /// Returns the default of a missing field of the type; `None` if the field is required.
    fn absent(_defaults: &mut DefaultSource<'_>) -> Option<Self> {
        None
    }
}

impl Wire for Value {
    fn read(value: Value, _: &mut WireReader<'_>) -> Option<Self> {
        Some(value)
    }

    fn write(&self) -> Value {
        self.clone()
    }

    fn absent(_: &mut DefaultSource<'_>) -> Option<Self> {
        Some(Value::Null)
    }
}

impl Wire for String {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        match value {
            Value::Str(text) => Some(text),
            other => reader.fail("a text", &other),
        }
    }

    fn write(&self) -> Value {
        self.as_str().into()
    }
}

impl Wire for bool {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        let read = match &value {
            Value::Bool(b) => Some(*b),
            Value::Int(0) => Some(false),
            Value::Int(1) => Some(true),
            Value::Float(x) if *x == 0.0 => Some(false),
            Value::Float(x) if *x == 1.0 => Some(true),
            Value::Str(text) => match text.to_ascii_lowercase().as_str() {
                "1" | "t" | "true" | "y" | "yes" | "on" => Some(true),
                "0" | "f" | "false" | "n" | "no" | "off" => Some(false),
                _ => None,
            },
            _ => None,
        };
        read.or_else(|| reader.fail("a boolean", &value))
    }

    fn write(&self) -> Value {
        (*self).into()
    }

    fn absent(_: &mut DefaultSource<'_>) -> Option<Self> {
        Some(false)
    }
}

impl Wire for i64 {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        let read = match &value {
            Value::Int(n) => Some(*n),
            Value::Bool(b) => Some(i64::from(*b)),
            Value::Float(x) if x.fract() == 0.0 && x.abs() < 9.2e18 => Some(*x as i64),
            Value::Str(text) => {
                let text = text.trim();
                let integral = text.split_once('.').map_or(Some(text), |(whole, fraction)| {
                    (!fraction.is_empty() && fraction.bytes().all(|byte| byte == b'0')).then_some(whole)
                });
                integral.and_then(without_underscores).and_then(|text| text.parse().ok())
            }
            _ => None,
        };
        let expected = if int_digits(&value).is_some() { "an integer of 64 bits" } else { "an integer" };
        read.or_else(|| reader.fail(expected, &value))
    }

    fn write(&self) -> Value {
        (*self).into()
    }
}

impl Wire for f64 {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        let read = match &value {
            Value::Float(x) => Some(*x),
            Value::Bool(b) => Some(f64::from(u8::from(*b))),
            Value::Str(text) => without_underscores(text.trim()).and_then(|text| text.parse().ok()),
            other => int_digits(other).and_then(|digits| digits.parse().ok()),
        };
        read.or_else(|| reader.fail("a number", &value))
    }

    fn write(&self) -> Value {
        (*self).into()
    }
}

/// The form that is hashed: as Python's `json.dumps(sort_keys=True)`, with nothing between the parts.
pub(super) const DIGEST: JsonStyle = JsonStyle { ascii: true, sorted: true, ..COMPACT_PYTHON };
/// As Python's `json.dumps`, with nothing between the parts.
pub(super) const COMPACT_PYTHON: JsonStyle = JsonStyle { python_floats: true, ..JsonStyle::PYDANTIC };

/// Returns the decimal digits of an integer of any size; `None` if the value is not an integer.
pub(super) fn int_digits(value: &Value) -> Option<String> {
    match value {
        Value::Int(n) => Some(n.to_string()),
        Value::UInt(n) => Some(n.to_string()),
        other => other.big_integer().map(str::to_owned),
    }
}

/// Returns the digits of a number without the `_` that may stand between two of them.
pub(super) fn without_underscores(text: &str) -> Option<String> {
    let misplaced = text.starts_with('_') || text.ends_with('_') || text.contains("__");
    (!misplaced).then(|| text.replace('_', ""))
}

impl Wire for Map {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        reader.object(value)
    }

    fn write(&self) -> Value {
        self.clone().into()
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        let items = match value {
            Value::List(items) => items,
            other => return reader.fail("a list", &other),
        };
        let count = items.len();
        let mut out = Vec::with_capacity(count);
        for (index, item) in items.into_iter().enumerate() {
            reader.path.push(PathPart::Index(index));
            if let Some(item) = T::read(item, reader) {
                out.push(item);
            }
            reader.leave();
        }
        (out.len() == count).then_some(out)
    }

    fn write(&self) -> Value {
        // A loop, as this is compiled for each type: the adapters of an iterator are ten times as much code.
        let mut items = Vec::with_capacity(self.len());
        for item in self {
            items.push(item.write());
        }
        Value::List(items)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn read(value: Value, reader: &mut WireReader<'_>) -> Option<Self> {
        if value.is_null() { Some(None) } else { T::read(value, reader).map(Some) }
    }

    fn write(&self) -> Value {
        self.as_ref().map_or(Value::Null, Wire::write)
    }

    fn absent(_: &mut DefaultSource<'_>) -> Option<Self> {
        Some(None)
    }
}

/// Reads a JSON text.
pub(super) fn read_text<T: Wire>(
    root: &'static str,
    text: &[u8],
    defaults: &mut DefaultSource<'_>,
) -> Result<T, LoadError> {
    let read = std::str::from_utf8(text).map_err(|error| JsonError::Utf8 { at: error.valid_up_to() });
    match read.and_then(|text| json_loads(text, true)) {
        Ok(value) => read_value(root, value, defaults),
        Err(error) => {
            let (path, reason) = (Vec::new(), LoadReason::Syntax(error));
            Err(LoadError { root, path: path.clone(), first: path, reason, problems: 1 })
        }
    }
}

/// Reads a value.
pub(super) fn read_value<T: Wire>(
    root: &'static str,
    value: Value,
    defaults: &mut DefaultSource<'_>,
) -> Result<T, LoadError> {
    WireReader::run(root, defaults, |reader| T::read(value, reader))
}

/// Reads a value that serde has read. A missing time is the present time of the system, a missing id is random.
pub(super) fn read_serde<T: Wire>(root: &'static str, value: Value) -> Result<T, LoadError> {
    read_value(root, value, &mut DefaultSource::new(&SystemClock, &mut IdSource::new()))
}

/// Returns the object of the members, whose values are taken.
pub(super) fn object_of(members: &mut [(&str, Value)]) -> Map {
    let mut map = Map::with_capacity(members.len());
    for (name, value) in members {
        put(&mut map, name, std::mem::take(value));
    }
    map
}

/// Adds a member to an object. Never inlined: records call it for each of their fields.
#[inline(never)]
pub(super) fn put(map: &mut Map, name: &str, value: Value) {
    let before = map.insert(name.to_owned(), value);
    debug_assert!(before.is_none(), "an object has each member once: {name}");
}
