//! Fills the corpus of each target with the values of the vectors in `tests/parity`, so that a search begins where the
//! tests end.
//!
//! Every message, block, part and list of these in the vectors is a text for the targets that read JSON; texts and
//! bytes in them are taken as they are.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use annals::message::{MessageClass, messages_from_dict};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

/// Targets that read JSON texts.
const OF_TEXTS: &[&str] = &[
    "blocks",
    "chunks",
    "coercion",
    "dictionaries",
    "envelopes",
    "openai",
    "partial_json",
    "pydantic_ai",
    "serde_values",
    "transfer",
];

/// Longer texts are left out: their parts are texts of their own.
const SEED_BYTES_MAX: usize = 4_096;

#[derive(Default)]
struct Seeds {
    texts: BTreeSet<Vec<u8>>,
    /// Bytes of LangGraph's checkpoint form.
    forms: BTreeSet<Vec<u8>>,
    /// Messages in parts, as the target `stored` takes them.
    stored: BTreeSet<Vec<u8>>,
}

impl Seeds {
    /// Takes the parts of a value, and returns it as the targets read it: the vectors mark messages with `$msg`.
    fn gather(&mut self, value: Value) -> Value {
        let value = match value {
            Value::Object(mut map) => {
                if let Some(message) = map.remove("$msg") {
                    self.split(&message);
                    return self.gather(message);
                }
                if let Some(bytes) = map.get("hex").and_then(Value::as_str).and_then(bytes_of) {
                    self.forms.insert(bytes);
                }
                Value::Object(map.into_iter().map(|(name, value)| (name, self.gather(value))).collect())
            }
            Value::Array(items) => items.into_iter().map(|value| self.gather(value)).collect(),
            Value::String(text) => {
                self.text(text.clone());
                return text.into();
            }
            value => return value,
        };
        self.text(value.to_string());
        value
    }

    fn text(&mut self, text: String) {
        if text.len() <= SEED_BYTES_MAX {
            self.texts.insert(text.into_bytes());
        }
    }

    fn split(&mut self, message: &Value) {
        let messages = messages_from_dict([message.clone().into()]).unwrap_or_default();
        for stored in messages.iter().filter_map(|message| message.to_payload().ok()) {
            let index = stored.as_ref().index.unwrap_or_default();
            let kind = MessageClass::ALL.iter().position(|class| Some(class.kind()) == index.kind);
            let present = [
                index.id.is_some(),
                index.name.is_some(),
                index.tool_calls.is_some(),
                true,
                index.text.is_some(),
                index.input_tokens.is_some(),
                index.output_tokens.is_some(),
            ];
            let bits = (0..).zip(present).map(|(bit, is)| u8::from(is) << bit).sum();
            let kind = kind.unwrap_or(MessageClass::ALL.len()) as u8;
            self.stored.insert([&[kind, bits][..], &stored.data].concat());
        }
    }
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let digits = |at: usize| hex.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..hex.len()).step_by(2).map(digits).collect()
}

/// Returns the JSON files below a folder.
fn vectors(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(vectors(&path)?);
        } else if path.extension().is_some_and(|ending| ending == "json") {
            found.push(path);
        }
    }
    Ok(found)
}

fn main() -> io::Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut seeds = Seeds::default();
    for path in ["messages", "pydantic_ai"].map(|name| here.join("../parity").join(name)) {
        for path in vectors(&path)? {
            seeds.gather(serde_json::from_slice(&fs::read(path)?)?);
        }
    }
    let of_bytes = [("checkpoint", &seeds.forms), ("stored", &seeds.stored)];
    let of_texts = OF_TEXTS.iter().map(|target| (*target, &seeds.texts));
    for (target, seeds) in of_texts.chain(of_bytes) {
        let folder = here.join("corpus").join(target);
        fs::create_dir_all(&folder)?;
        for seed in seeds {
            fs::write(folder.join(format!("seed-{:016x}", xxh3_64(seed))), seed)?;
        }
    }
    Ok(())
}
