//! JSON Patch (RFC 6902): the difference of two values as operations, and their application.
//!
//! *Absent:* lists and messages of a state, which are compared item by item ([`diff`](super::diff)).

use std::fmt;

use serde_json::{Value as Json, json};

use crate::base::Value;

/// A JSON Patch (RFC 6902): operations that make one value of another, applied in order.
///
/// # Example
/// ```
/// use annals::base::Value;
/// use annals::history::Patch;
/// use serde_json::json;
///
/// let (before, after) = (json!({"city": "Bern", "nights": [1, 2]}), json!({"city": "Rome", "nights": [1]}));
/// let (before, after) = (Value::from(before), Value::from(after));
/// let patch = Patch::between(&before, &after);
/// assert_eq!(
///     patch.to_string(),
///     r#"[{"op":"replace","path":"/city","value":"Rome"},{"op":"remove","path":"/nights/1"}]"#
/// );
/// assert_eq!(patch.apply(&before)?, after);
/// # Ok::<(), annals::history::PatchError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Patch {
    /// The operations in order; one without operations changes nothing.
    pub ops: Vec<PatchOp>,
}

/// An operation of a patch. Paths are JSON Pointers (RFC 6901).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PatchOp {
    /// Sets a member, or inserts an element before the one with this index; `-` is the index after the last.
    Add {
        /// The place.
        path: String,
        /// The value.
        value: Value,
    },
    /// Removes a member or an element, which must exist.
    Remove {
        /// The place.
        path: String,
    },
    /// Replaces a value, which must exist.
    Replace {
        /// The place.
        path: String,
        /// The value.
        value: Value,
    },
    /// Removes a value and adds it elsewhere.
    Move {
        /// The place where it is removed.
        from: String,
        /// The place where it is added.
        path: String,
    },
    /// Adds a value that exists elsewhere.
    Copy {
        /// The place of the value.
        from: String,
        /// The place where it is added.
        path: String,
    },
    /// Requires a value to be equal.
    Test {
        /// The place.
        path: String,
        /// The value.
        value: Value,
    },
}

/// A patch that cannot be read, or that does not fit a value. The value is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation {op} of the patch at {path:?}: {reason}")]
#[non_exhaustive]
pub struct PatchError {
    /// The position of the operation in the patch.
    pub op: usize,
    /// The place that it names.
    pub path: String,
    /// The reason.
    pub reason: &'static str,
}

impl Patch {
    /// Makes a patch of operations.
    pub(crate) fn new(ops: Vec<PatchOp>) -> Self {
        Self { ops }
    }

    /// Returns the patch that makes `after` of `before`: additions, removals and replacements of what differs.
    pub fn between(before: &Value, after: &Value) -> Self {
        let mut ops = Vec::new();
        compare(&mut String::new(), before, after, &mut ops);
        debug_assert!(before != after || ops.is_empty(), "equal values have an empty patch");
        Self { ops }
    }

    /// Returns the value after all operations, or that of the first which does not fit.
    ///
    /// # Errors
    /// [`PatchError`] if a place does not exist, is not valid, or holds another value than a test requires.
    pub fn apply(&self, value: &Value) -> Result<Value, PatchError> {
        let mut result = value.clone();
        for (op, operation) in self.ops.iter().enumerate() {
            let done = operation.apply(&mut result);
            done.map_err(|reason| PatchError { op, path: operation.path().to_owned(), reason })?;
        }
        Ok(result)
    }

    /// Returns the document: a list of objects with `op`, `path`, and `value` or `from`.
    pub fn to_json(&self) -> Json {
        let op = |op: &PatchOp| match op {
            PatchOp::Add { path, value } => json!({ "op": "add", "path": path, "value": value.to_json() }),
            PatchOp::Remove { path } => json!({ "op": "remove", "path": path }),
            PatchOp::Replace { path, value } => json!({ "op": "replace", "path": path, "value": value.to_json() }),
            PatchOp::Move { from, path } => json!({ "op": "move", "from": from, "path": path }),
            PatchOp::Copy { from, path } => json!({ "op": "copy", "from": from, "path": path }),
            PatchOp::Test { path, value } => json!({ "op": "test", "path": path, "value": value.to_json() }),
        };
        Json::Array(self.ops.iter().map(op).collect())
    }

    /// Reads a document. Members that an operation does not have are passed over, as RFC 6902 says.
    ///
    /// # Errors
    /// [`PatchError`] with the position of the first operation that is not one.
    pub fn from_json(document: &Json) -> Result<Self, PatchError> {
        let wrong = |op: usize, reason: &'static str| PatchError { op, path: String::new(), reason };
        let ops = document.as_array().ok_or_else(|| wrong(0, "the patch is not a list"))?;
        let read = |(at, op): (usize, &Json)| {
            let text = |name: &str| op.get(name).and_then(Json::as_str).map(str::to_owned);
            let path = || text("path").ok_or_else(|| wrong(at, "it has no path"));
            let from = || text("from").ok_or_else(|| wrong(at, "it has no place to take a value from"));
            let value = || op.get("value").cloned().map(Value::from).ok_or_else(|| wrong(at, "it has no value"));
            Ok(match op.get("op").and_then(Json::as_str) {
                Some("add") => PatchOp::Add { path: path()?, value: value()? },
                Some("remove") => PatchOp::Remove { path: path()? },
                Some("replace") => PatchOp::Replace { path: path()?, value: value()? },
                Some("move") => PatchOp::Move { from: from()?, path: path()? },
                Some("copy") => PatchOp::Copy { from: from()?, path: path()? },
                Some("test") => PatchOp::Test { path: path()?, value: value()? },
                _ => return Err(wrong(at, "its op is not add, remove, replace, move, copy or test")),
            })
        };
        ops.iter().enumerate().map(read).collect::<Result<_, _>>().map(Self::new)
    }
}

/// The document as compact JSON.
impl fmt::Display for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_json())
    }
}

impl PatchOp {
    /// Returns the place that it changes or tests.
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Add { path, .. }
            | Self::Remove { path }
            | Self::Replace { path, .. }
            | Self::Move { path, .. }
            | Self::Copy { path, .. }
            | Self::Test { path, .. } => path,
        }
    }

    fn apply(&self, root: &mut Value) -> Result<(), &'static str> {
        match self {
            Self::Add { path, value } => add(root, path, value.clone()),
            Self::Remove { path } => remove(root, path).map(|_| ()),
            Self::Replace { path, value } => {
                *find_mut(root, path)? = value.clone();
                Ok(())
            }
            Self::Move { from, path } if path.strip_prefix(from.as_str()).is_some_and(|rest| rest.starts_with('/')) => {
                Err("a value cannot be moved into itself")
            }
            Self::Move { from, path } => {
                let value = remove(root, from)?;
                add(root, path, value)
            }
            Self::Copy { from, path } => {
                let value = find_mut(root, from)?.clone();
                add(root, path, value)
            }
            Self::Test { path, value } if find_mut(root, path)? != value => Err("the value is another one"),
            Self::Test { .. } => Ok(()),
        }
    }
}

const NO_VALUE: &str = "no value is there";

/// Returns the steps of a JSON Pointer.
pub(crate) fn pointer_steps(path: &str) -> Result<Vec<String>, &'static str> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let rest = path.strip_prefix('/').ok_or("a path begins with a slash")?;
    let step = |step: &str| {
        let after = |tilde: usize| step.as_bytes().get(tilde + 1);
        let is_valid = step.match_indices('~').all(|(at, _)| matches!(after(at), Some(b'0' | b'1')));
        if is_valid { Ok(step.replace("~1", "/").replace("~0", "~")) } else { Err("a tilde is followed by 0 or 1") }
    };
    rest.split('/').map(step).collect()
}

/// Writes a name as a step of a JSON Pointer.
fn pointer_step(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Returns an index of a list with `len` elements, up to `len`.
fn index(step: &str, len: usize) -> Result<usize, &'static str> {
    let digits = step.bytes().all(|byte| byte.is_ascii_digit()) && (step == "0" || !step.starts_with('0'));
    let index = step.parse().ok().filter(|_| digits).ok_or("an index has digits alone")?;
    if index <= len { Ok(index) } else { Err("the index is past the end") }
}

/// Returns the value at a step of another one.
pub(crate) fn member<'v>(value: &'v Value, step: &str) -> Option<&'v Value> {
    match value {
        Value::Map(map) => map.get(step),
        Value::List(items) => index(step, items.len()).ok().and_then(|at| items.get(at)),
        _ => None,
    }
}

fn find_mut<'v>(root: &'v mut Value, path: &str) -> Result<&'v mut Value, &'static str> {
    let mut value = root;
    for step in pointer_steps(path)? {
        value = match value {
            Value::Map(map) => map.get_mut(&step).ok_or(NO_VALUE)?,
            Value::List(items) => {
                let at = index(&step, items.len())?;
                items.get_mut(at).ok_or(NO_VALUE)?
            }
            _ => return Err(NO_VALUE),
        };
    }
    Ok(value)
}

/// Splits a path into that of the parent, and the last step.
fn split_last(path: &str) -> Result<Option<(&str, String)>, &'static str> {
    let last = pointer_steps(path)?.pop();
    Ok(last.zip(path.rfind('/')).map(|(last, slash)| (&path[..slash], last)))
}

fn add(root: &mut Value, path: &str, value: Value) -> Result<(), &'static str> {
    let Some((parent, last)) = split_last(path)? else {
        *root = value;
        return Ok(());
    };
    match find_mut(root, parent)? {
        Value::Map(map) => _ = map.insert(last, value),
        Value::List(items) => {
            let at = if last == "-" { items.len() } else { index(&last, items.len())? };
            items.insert(at, value);
        }
        _ => return Err("the parent is neither an object nor a list"),
    }
    Ok(())
}

fn remove(root: &mut Value, path: &str) -> Result<Value, &'static str> {
    let Some((parent, last)) = split_last(path)? else {
        return Ok(std::mem::replace(root, Value::Null));
    };
    match find_mut(root, parent)? {
        Value::Map(map) => map.shift_remove(&last).ok_or(NO_VALUE),
        Value::List(items) => match index(&last, items.len())? {
            at if at < items.len() => Ok(items.remove(at)),
            _ => Err(NO_VALUE),
        },
        _ => Err(NO_VALUE),
    }
}

/// Adds the operations that make `after` of `before` at a path.
fn compare(path: &mut String, before: &Value, after: &Value, ops: &mut Vec<PatchOp>) {
    let here = path.len();
    let enter = |path: &mut String, step: &str| {
        path.truncate(here);
        path.push('/');
        path.push_str(step);
    };
    match (before, after) {
        (Value::Map(old), Value::Map(new)) => {
            for (name, _) in old.iter().filter(|(name, _)| !new.contains_key(name)) {
                enter(path, &pointer_step(name));
                ops.push(PatchOp::Remove { path: path.clone() });
            }
            for (name, value) in new.iter() {
                enter(path, &pointer_step(name));
                match old.get(name) {
                    Some(old) => compare(path, old, value, ops),
                    None => ops.push(PatchOp::Add { path: path.clone(), value: value.clone() }),
                }
            }
        }
        (Value::List(old), Value::List(new)) => {
            let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
            let rest = old.len().min(new.len()) - head;
            let tail = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
            let (old, new) = (&old[head..old.len() - tail], &new[head..new.len() - tail]);
            let both = old.len().min(new.len());
            for (at, (old, new)) in old.iter().zip(new).enumerate() {
                enter(path, &(head + at).to_string());
                compare(path, old, new, ops);
            }
            for at in (both..old.len()).rev() {
                enter(path, &(head + at).to_string());
                ops.push(PatchOp::Remove { path: path.clone() });
            }
            for (at, value) in new.iter().enumerate().skip(both) {
                enter(path, &(head + at).to_string());
                ops.push(PatchOp::Add { path: path.clone(), value: value.clone() });
            }
        }
        _ if before == after => {}
        _ => ops.push(PatchOp::Replace { path: path.clone(), value: after.clone() }),
    }
    path.truncate(here);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Value {
        Value::from(serde_json::from_str::<Json>(text).unwrap())
    }

    /// The examples of appendix A of RFC 6902 that apply: document, patch, result.
    const APPLIED: &[(&str, &str, &str)] = &[
        (r#"{"foo":"bar"}"#, r#"[{"op":"add","path":"/baz","value":"qux"}]"#, r#"{"baz":"qux","foo":"bar"}"#),
        (
            r#"{"foo":["bar","baz"]}"#,
            r#"[{"op":"add","path":"/foo/1","value":"qux"}]"#,
            r#"{"foo":["bar","qux","baz"]}"#,
        ),
        (r#"{"baz":"qux","foo":"bar"}"#, r#"[{"op":"remove","path":"/baz"}]"#, r#"{"foo":"bar"}"#),
        (r#"{"foo":["bar","qux","baz"]}"#, r#"[{"op":"remove","path":"/foo/1"}]"#, r#"{"foo":["bar","baz"]}"#),
        (
            r#"{"baz":"qux","foo":"bar"}"#,
            r#"[{"op":"replace","path":"/baz","value":"boo"}]"#,
            r#"{"baz":"boo","foo":"bar"}"#,
        ),
        (
            r#"{"foo":{"bar":"baz","waldo":"fred"},"qux":{"corge":"grault"}}"#,
            r#"[{"op":"move","from":"/foo/waldo","path":"/qux/thud"}]"#,
            r#"{"foo":{"bar":"baz"},"qux":{"corge":"grault","thud":"fred"}}"#,
        ),
        (
            r#"{"foo":["all","grass","cows","eat"]}"#,
            r#"[{"op":"move","from":"/foo/1","path":"/foo/3"}]"#,
            r#"{"foo":["all","cows","eat","grass"]}"#,
        ),
        (
            r#"{"baz":"qux","foo":["a",2,"c"]}"#,
            r#"[{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2}]"#,
            r#"{"baz":"qux","foo":["a",2,"c"]}"#,
        ),
        (
            r#"{"foo":"bar"}"#,
            r#"[{"op":"add","path":"/child","value":{"grandchild":{}}}]"#,
            r#"{"foo":"bar","child":{"grandchild":{}}}"#,
        ),
        (r#"{"foo":"bar"}"#, r#"[{"op":"add","path":"/baz","value":"qux","xyz":123}]"#, r#"{"foo":"bar","baz":"qux"}"#),
        (r#"{"/":9,"~1":10}"#, r#"[{"op":"test","path":"/~01","value":10}]"#, r#"{"/":9,"~1":10}"#),
        (
            r#"{"foo":["bar"]}"#,
            r#"[{"op":"add","path":"/foo/-","value":["abc","def"]}]"#,
            r#"{"foo":["bar",["abc","def"]]}"#,
        ),
        (r#"{"a":1}"#, r#"[{"op":"copy","from":"/a","path":"/b"}]"#, r#"{"a":1,"b":1}"#),
        (r#"{"a":1}"#, r#"[{"op":"replace","path":"","value":[2]}]"#, "[2]"),
    ];

    #[test]
    fn the_examples_of_the_rfc_are_applied() {
        for (document, patch, result) in APPLIED {
            let read = Patch::from_json(&serde_json::from_str(patch).unwrap()).unwrap();
            assert_eq!(read.apply(&value(document)), Ok(value(result)), "{patch}");
            assert_eq!(Patch::from_json(&read.to_json()), Ok(read), "{patch}");
        }
    }

    #[test]
    fn a_patch_that_does_not_fit_is_refused_with_its_place() {
        for (document, patch, reason) in [
            (r#"{"baz":"qux"}"#, r#"[{"op":"test","path":"/baz","value":"bar"}]"#, "the value is another one"),
            (r#"{"foo":"bar"}"#, r#"[{"op":"add","path":"/baz/bat","value":"qux"}]"#, NO_VALUE),
            (r#"{"/":9,"~1":10}"#, r#"[{"op":"test","path":"/~01","value":"10"}]"#, "the value is another one"),
            ("[1]", r#"[{"op":"add","path":"/2","value":1}]"#, "the index is past the end"),
            ("[1]", r#"[{"op":"replace","path":"/01","value":1}]"#, "an index has digits alone"),
            ("[1]", r#"[{"op":"remove","path":"/1"}]"#, NO_VALUE),
            ("[1]", r#"[{"op":"remove","path":"/-"}]"#, "an index has digits alone"),
            ("{}", r#"[{"op":"remove","path":"a"}]"#, "a path begins with a slash"),
            ("{}", r#"[{"op":"remove","path":"/~2"}]"#, "a tilde is followed by 0 or 1"),
            ("1", r#"[{"op":"add","path":"/a","value":1}]"#, "the parent is neither an object nor a list"),
            (r#"{"a":{}}"#, r#"[{"op":"move","from":"/a","path":"/a/b"}]"#, "a value cannot be moved into itself"),
        ] {
            let read = Patch::from_json(&serde_json::from_str(patch).unwrap()).unwrap();
            assert_eq!(read.apply(&value(document)).unwrap_err().reason, reason, "{patch}");
        }
        for document in
            ["{}", "[1]", r#"[{"op":"add","path":"/a"}]"#, r#"[{"op":"x"}]"#, r#"[{"op":"move","path":""}]"#]
        {
            assert!(Patch::from_json(&serde_json::from_str(document).unwrap()).is_err(), "{document}");
        }
    }

    #[test]
    fn a_patch_between_two_values_makes_one_of_the_other() {
        let values: Vec<Value> = [
            "null",
            "[]",
            "[1,2,3,4]",
            "[1,4]",
            "[0,1,2,3,4,5]",
            r#"[1,{"a":[1]},4]"#,
            "{}",
            r#"{"a":1,"b":{"c":[1,2,{"d":null}]}}"#,
            r#"{"b":{"c":[2,{"d":1,"~/":2}]},"x":[]}"#,
            r#""text""#,
        ]
        .iter()
        .map(|text| value(text))
        .collect();
        for before in &values {
            for after in &values {
                let patch = Patch::between(before, after);
                assert_eq!(patch.apply(before).as_ref(), Ok(after), "{patch}");
                assert_eq!(patch.ops.is_empty(), before == after);
            }
        }
        let patch = Patch::between(&value(r#"{"a":[1,2,3],"~/":1}"#), &value(r#"{"a":[1,9,3]}"#));
        let text = r#"[{"op":"remove","path":"/~0~1"},{"op":"replace","path":"/a/1","value":9}]"#;
        assert_eq!(patch.to_string(), text, "the document is written in one way");
    }
}
