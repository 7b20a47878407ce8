//! Threads, namespaces, tasks and checkpoints by the texts that LangGraph has for them.
//!
//! Invariant: every text has an id of the log, and the id gives the text again. A text that the log admits stands for
//! itself.

use std::collections::HashMap;

use annals::store::CheckpointRef;
use annals_base::limits::{NAMESPACE_BYTES_MAX, THREAD_ID_BYTES_MAX};
use annals_base::{CheckpointId, Namespace, TaskId, ThreadId};
use data_encoding::BASE64_NOPAD;

use crate::{Result, SaverError};

/// The beginning of the namespaces that hold checkpoints which the order of ids does not admit.
pub(crate) const ASIDE: &str = "langgraph:odd";
/// The beginning of the ids of threads whose text the log does not admit.
const THREAD: &str = "langgraph:thread:";
/// The character before the id of a task in a stored path. At its beginning, the length of the path, the path and the
/// id follow; else the 16 bytes of the id.
const TASK: char = '\u{1}';
/// The character before the messages that were written without an id, each by the index of its write and its number.
const ANONYMOUS: char = '\u{2}';
/// The beginning of the paths of the tasks of nodes.
const PULL: &str = "~__pregel_pull, ";

/// A namespace of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SaverPlace {
    pub(crate) thread: ThreadId,
    pub(crate) namespace: Namespace,
}

impl SaverPlace {
    pub(crate) fn new(thread: &str, namespace: &str) -> Result<Self> {
        if is_aside(namespace) {
            let reason = format!("{namespace:?} is reserved for this saver");
            return Err(SaverError::invalid("checkpoint_ns", reason));
        }
        Ok(Self { thread: thread_id(thread)?, namespace: Namespace::new(namespace)? })
    }

    pub(crate) fn at(&self, checkpoint: CheckpointId) -> CheckpointRef {
        CheckpointRef::new(self.thread.clone(), self.namespace.clone(), checkpoint)
    }

    /// Returns whether a checkpoint of the log stands in the namespace.
    pub(crate) fn is_of(&self, at: &CheckpointRef) -> bool {
        at.thread == self.thread && at.namespace == self.namespace
    }
}

/// Returns whether a namespace is one of this saver.
pub(crate) fn is_aside(namespace: &str) -> bool {
    namespace == ASIDE || namespace.strip_prefix(ASIDE).is_some_and(|rest| rest.starts_with(':'))
}

/// Returns the namespace in which a checkpoint is stored that the order of ids does not admit.
pub(crate) fn aside_of(namespace: &str, id: &str) -> Result<Namespace> {
    let mut path = format!("{ASIDE}:{}", escaped(id));
    if !namespace.is_empty() {
        path.push(':');
        path.push_str(&escaped(namespace));
    }
    if path.len() > NAMESPACE_BYTES_MAX {
        let reason = format!("with its namespace it has {} bytes, the limit is {NAMESPACE_BYTES_MAX}", path.len());
        return Err(SaverError::invalid("checkpoint_id", reason));
    }
    Ok(Namespace::new(path)?)
}

/// Returns the id of the thread with a text.
pub(crate) fn thread_id(text: &str) -> Result<ThreadId> {
    let is_plain = !text.is_empty() && !text.contains('\0') && !text.starts_with(THREAD);
    if is_plain && text.len() <= THREAD_ID_BYTES_MAX {
        return Ok(ThreadId::new(text)?);
    }
    Ok(ThreadId::new(format!("{THREAD}{}", escaped(text)))?)
}

/// Returns the text of a thread.
pub(crate) fn thread_text(thread: &ThreadId) -> String {
    match thread.as_str().strip_prefix(THREAD) {
        Some(escaped) => unescaped(escaped),
        None => thread.as_str().to_owned(),
    }
}

/// The tasks of a checkpoint whose writes are stored.
///
/// LangGraph makes the id of a task anew for each checkpoint, and the log names each id that it sees. So the writes
/// of a node are stored under an id made of its path, which the log names once, and the path says the id of the task.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    ids: HashMap<String, TaskId>,
    texts: HashMap<TaskId, String>,
}

impl Tasks {
    /// Adds a stored write.
    pub(crate) fn add(&mut self, id: TaskId, path: &str) {
        let (task, _) = task_text(id, path);
        self.texts.entry(id).or_insert_with(|| task.clone());
        self.ids.entry(task).or_insert(id);
    }

    /// Returns the id under which writes of a task are stored, and their path.
    pub(crate) fn place(&mut self, task: &str, path: &str) -> (TaskId, String) {
        let plain = task.parse().ok().filter(|id: &TaskId| id.to_string() == task);
        let is_plain = !path.contains([TASK, ANONYMOUS]);
        let is_of_node = plain.is_some() && path.starts_with(PULL) && is_plain;
        let mut id = *self.ids.entry(task.to_owned()).or_insert_with(|| match plain {
            Some(plain) if !is_of_node => plain,
            _ => hashed(if is_of_node { path } else { task }),
        });
        if self.texts.get(&id).is_some_and(|other| other != task) {
            // Two tasks of one path, which LangGraph does not make.
            id = plain.unwrap_or_else(|| hashed(task));
            self.ids.insert(task.to_owned(), id);
        }
        self.texts.entry(id).or_insert_with(|| task.to_owned());
        let stored = match plain {
            Some(plain) if plain == id && is_plain => path.to_owned(),
            Some(plain) if is_plain && !path.is_empty() => {
                format!("{path}{TASK}{}", BASE64_NOPAD.encode(plain.as_bytes()))
            }
            _ => format!("{TASK}{}:{path}{task}", path.len()),
        };
        (id, stored)
    }
}

/// Adds to a stored path which messages were written without an id, by index and number. `None` if it has no place for
/// them.
pub(crate) fn with_anonymous(path: &str, parts: &[(i32, u32)]) -> Option<String> {
    if path.starts_with(TASK) {
        return None;
    }
    let parts: Vec<String> = parts.iter().map(|(index, part)| format!("{index}.{part}")).collect();
    Some(format!("{path}{ANONYMOUS}{}", parts.join(",")))
}

/// Returns whether a stored path can say which messages were written without an id.
pub(crate) fn admits_anonymous(path: &str) -> bool {
    !path.starts_with(TASK)
}

/// Splits a stored path from the messages that were written without an id.
pub(crate) fn split_anonymous(path: &str) -> (&str, Vec<(i32, u32)>) {
    match path.split_once(ANONYMOUS).filter(|_| admits_anonymous(path)) {
        Some((path, parts)) => {
            let part = |part: &str| {
                let (index, part) = part.split_once('.')?;
                Some((index.parse().ok()?, part.parse().ok()?))
            };
            (path, parts.split(',').filter_map(part).collect())
        }
        None => (path, Vec::new()),
    }
}

/// Returns the id that is made of a text.
fn hashed(text: &str) -> TaskId {
    let mut bytes = [0; 16];
    blake3::Hasher::new().update(text.as_bytes()).finalize_xof().fill(&mut bytes);
    TaskId::from_bytes(bytes)
}

/// Returns the text and the path of a task.
pub(crate) fn task_text(id: TaskId, path: &str) -> (String, String) {
    let (path, _) = split_anonymous(path);
    let parts = || {
        let (before, after) = path.split_once(TASK)?;
        if !before.is_empty() {
            let bytes = BASE64_NOPAD.decode(after.as_bytes()).ok()?;
            return Some((TaskId::from_bytes(bytes.try_into().ok()?).to_string(), before.to_owned()));
        }
        let (length, rest) = after.split_once(':')?;
        let (path, task) = rest.split_at_checked(length.parse().ok()?)?;
        Some((task.to_owned(), path.to_owned()))
    };
    parts().unwrap_or_else(|| (id.to_string(), path.to_owned()))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => out.push(byte.into()),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

fn unescaped(text: &str) -> String {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.filter(|_| *first == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_keeps_its_id_and_shares_it_with_no_other() {
        let mut tasks = Tasks::default();
        let [one, two] = ["00000384-0001-4000-8000-00000000189c", "00000384-0001-4000-8000-00000000189d"];
        let (id, stored) = tasks.place(one, "~__pregel_pull, node");
        assert_ne!(id.to_string(), one, "it is made of the path");
        assert_eq!(tasks.place(one, "other").0, id);
        assert_eq!(tasks.place(two, "~__pregel_pull, node").0.to_string(), two);

        let mut later = Tasks::default();
        later.add(id, &stored);
        let (same, stored) = later.place(one, "");
        assert_eq!((same, task_text(id, &stored)), (id, (one.to_owned(), String::new())));
        assert_eq!(later.place(two, "~__pregel_pull, node").0.to_string(), two);
    }

    #[test]
    fn every_text_comes_back() {
        for text in ["", "alice", "a\0b", "langgraph:thread:x", "ü%41 |:", "10"] {
            assert_eq!(thread_text(&thread_id(text).unwrap()), text);
        }
        let uuid = "00000384-0001-4000-8000-00000000189c";
        for task in ["", "task", "a\u{1}", uuid, &uuid.to_uppercase()] {
            for path in ["", "~__pregel_pull, node", "\u{1}3:x", "~__pregel_pull, \u{1}", "\u{2}"] {
                let (id, stored) = Tasks::default().place(task, path);
                assert_eq!(task_text(id, &stored), (task.to_owned(), path.to_owned()), "{stored:?}");
                if let Some(marked) = with_anonymous(&stored, &[(0, 1), (3, 0)]) {
                    assert_eq!(split_anonymous(&marked), (&*stored, vec![(0, 1), (3, 0)]));
                    assert_eq!(task_text(id, &marked), (task.to_owned(), path.to_owned()));
                }
            }
        }
        assert!(thread_id(&"ü".repeat(600)).is_err(), "its escaped text is too long");
        assert!(aside_of("", &"x".repeat(5_000)).is_err());
        assert!(SaverPlace::new("t", "langgraph:odd:1").is_err() && SaverPlace::new("t", "langgraph:oddly").is_ok());
    }
}
