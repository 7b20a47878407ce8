//! The message vectors: calls of functions, with the results of the reference.

mod blocks;
mod compare;
mod encode;
mod forms;
mod lists;
mod merging;
mod texts;
mod tools;

use std::fmt::Write as _;
use std::path::Path;

use annals::base::Value;
use annals::message::{Message, MessageError};
use serde_json::{Value as Json, json};

use crate::{RunnerResult, files};
use compare::problem;
use encode::VectorValue;

/// The file with the names of the vectors that still fail.
const OPEN: &str = "open.txt";

/// Carries out one function.
type Handler = fn(&FunctionCase) -> Result<Json, FailedCall>;

/// The functions, one table for each file beside this one.
const TABLES: &[&[(&str, Handler)]] =
    &[blocks::FUNCTIONS, forms::FUNCTIONS, lists::FUNCTIONS, merging::FUNCTIONS, texts::FUNCTIONS, tools::FUNCTIONS];

/// The arguments of a function.
pub(crate) struct FunctionCase {
    pub(crate) input: VectorValue,
    args: VectorValue,
}

/// A failed call, in the format of the vectors.
#[derive(Debug)]
pub(crate) struct FailedCall {
    class: String,
    message: String,
}

impl FailedCall {
    pub(crate) fn new(class: impl Into<String>, message: impl Into<String>) -> Self {
        Self { class: class.into(), message: message.into() }
    }

    /// Returns the failure of a vector with wrong arguments.
    pub(crate) fn vector(what: &str) -> Self {
        Self::new("Vector", format!("the vector has no {what}"))
    }
}

impl<E: Into<MessageError>> From<E> for FailedCall {
    fn from(error: E) -> Self {
        let error = error.into();
        Self::new(error.class().as_str(), error.to_string())
    }
}

impl FunctionCase {
    fn of(vector: &Json) -> Result<Self, MessageError> {
        Ok(Self { input: VectorValue::decode(&vector["input"])?, args: VectorValue::decode(&vector["args"])? })
    }

    /// Returns an argument, if it is given and not null.
    pub(crate) fn arg(&self, name: &str) -> Option<VectorValue> {
        self.args.get(name).filter(|data| !data.is_null())
    }

    /// Returns an argument that is given, null or not.
    pub(crate) fn given(&self, name: &str) -> Option<VectorValue> {
        self.args.get(name)
    }

    /// Returns an argument that is a text.
    pub(crate) fn text_arg(&self, name: &str) -> Option<String> {
        self.arg(name)?.value().as_str().map(str::to_owned)
    }

    /// Returns an argument that is a truth value.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.arg(name)?.value().as_bool()
    }

    /// Returns the message that is the input.
    pub(crate) fn message(&self) -> Result<Message, FailedCall> {
        match &self.input {
            VectorValue::Message(message) => Ok((**message).clone()),
            _ => Err(FailedCall::vector("message")),
        }
    }

    /// Returns the messages that the input represents.
    pub(crate) fn messages(&self) -> Result<Vec<Message>, FailedCall> {
        Ok(self.input.clone().like().into_messages()?)
    }

    /// Returns the text that is the input.
    pub(crate) fn text(&self) -> Result<String, FailedCall> {
        match self.input.value() {
            Value::Str(text) => Ok(text),
            _ => Err(FailedCall::vector("text")),
        }
    }
}

/// Calls the function of a vector.
fn call(vector: &Json) -> Result<Json, FailedCall> {
    let name = vector["function"].as_str().unwrap_or_default();
    let found = TABLES.iter().flat_map(|table| table.iter()).find(|(function, _)| *function == name);
    let Some((_, handler)) = found else {
        return Err(FailedCall::new("Unsupported", format!("the runner does not know function {name}")));
    };
    handler(&FunctionCase::of(vector)?)
}

fn vectors(folder: &Path) -> RunnerResult<Vec<(String, Vec<Json>)>> {
    let named = files(folder)?.into_iter().map(|path| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok((name, serde_json::from_slice(&std::fs::read(path)?)?))
    });
    named.collect()
}

/// Runs all vectors of a folder and writes the results for `check.py` of the vectors. Returns how many there are.
pub(crate) fn run(folder: &Path, out: &Path) -> RunnerResult<usize> {
    let mut results = Vec::new();
    for (file, vectors) in vectors(folder)? {
        for vector in vectors {
            let mut result = json!({"file": file, "name": vector["name"]});
            match call(&vector) {
                Ok(json) => result["result"] = json,
                Err(failure) => result["error"] = json!({"class": failure.class, "message": failure.message}),
            }
            results.push(result);
        }
    }
    std::fs::write(out, serde_json::to_vec(&results)?)?;
    Ok(results.len())
}

/// Copies vectors, a line for each, and returns how many.
pub(crate) fn pack(folder: &Path, out: &Path) -> RunnerResult<usize> {
    std::fs::create_dir_all(out)?;
    let mut count = 0;
    for (file, vectors) in vectors(folder)? {
        let lines: Vec<String> = vectors.iter().map(Json::to_string).collect();
        count += lines.len();
        std::fs::write(out.join(format!("{file}.json")), format!("[\n{}\n]\n", lines.join(",\n")))?;
    }
    Ok(count)
}

/// Runs all vectors of a folder and returns their number, and the contradictions to the list of failing ones. With
/// `write`, that list is written anew.
pub(crate) fn verify(folder: &Path, write: bool) -> RunnerResult<(usize, String)> {
    let open = std::fs::read_to_string(folder.join(OPEN)).unwrap_or_default();
    let (mut count, mut surprises, mut failed) = (0, String::new(), String::new());
    for (file, vectors) in vectors(folder)? {
        for vector in vectors {
            count += 1;
            let name = format!("{file}/{}", vector["name"].as_str().unwrap_or_default());
            let is_open = open.lines().any(|line| line == name);
            match problem(&vector, call(&vector)) {
                Some(what) => {
                    _ = writeln!(failed, "{name}");
                    if !is_open {
                        _ = writeln!(surprises, "FAIL {name}: {what}");
                    }
                }
                None if is_open => _ = writeln!(surprises, "{name} passes: take it off the list {OPEN}"),
                None => {}
            }
        }
    }
    if write {
        std::fs::write(folder.join(OPEN), failed)?;
    }
    Ok((count, surprises))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_gives_what_the_reference_gives() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/messages");
        let (count, surprises) = verify(&folder, false).expect("the vectors are readable");
        assert!(count >= 1_900, "only {count} vectors were found");
        assert!(surprises.is_empty(), "{surprises}");
    }

    #[test]
    fn an_unknown_function_fails() {
        let vector = json!({"function": "guess", "input": 1, "args": {}, "expected": 1});
        assert!(problem(&vector, call(&vector)).is_some_and(|what| what.contains("does not know function guess")));
    }
}
