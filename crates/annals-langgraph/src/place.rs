//! Threads, namespaces, tasks and checkpoints by the texts that LangGraph has for them.
//!
//! Invariant: every text has an id of the log, and the id gives the text again. A text that the log admits stands for
//! itself.

use annals::store::CheckpointRef;
use annals_base::limits::{NAMESPACE_BYTES_MAX, THREAD_ID_BYTES_MAX};
use annals_base::{CheckpointId, Namespace, TaskId, ThreadId};

use crate::{Result, SaverError};

/// How the namespaces begin that hold what the order of ids does not admit.
pub(crate) const ASIDE: &str = "langgraph:odd";
/// How the ids of threads begin whose text the log does not admit.
const THREAD: &str = "langgraph:thread:";
/// How the path of a task begins whose id is not a UUID: with the length of the path, which is followed by the id.
const TASK: char = '\u{1}';

/// A namespace of a thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) thread: ThreadId,
    pub(crate) namespace: Namespace,
}

impl Place {
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

/// Returns the id of a task, and the path under which its writes are stored.
pub(crate) fn task_id(task: &str, path: &str) -> (TaskId, String) {
    let plain = task.parse().ok().filter(|id: &TaskId| id.to_string() == task);
    if let Some(id) = plain.filter(|_| !path.starts_with(TASK)) {
        return (id, path.to_owned());
    }
    let mut bytes = [0; 16];
    blake3::Hasher::new().update(task.as_bytes()).finalize_xof().fill(&mut bytes);
    (TaskId::from_bytes(bytes), format!("{TASK}{}:{path}{task}", path.len()))
}

/// Returns the text and the path of a task.
pub(crate) fn task_text(id: TaskId, path: &str) -> (String, String) {
    let parts = || {
        let (length, rest) = path.strip_prefix(TASK)?.split_once(':')?;
        rest.split_at_checked(length.parse().ok()?)
    };
    match parts() {
        Some((path, task)) => (task.to_owned(), path.to_owned()),
        None => (id.to_string(), path.to_owned()),
    }
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
    fn every_text_comes_back() {
        for text in ["", "alice", "a\0b", "langgraph:thread:x", "ü%41 |:", "10"] {
            assert_eq!(thread_text(&thread_id(text).unwrap()), text);
            for path in ["", "~__pregel_pull, node", "\u{1}3:x"] {
                let (id, stored) = task_id(text, path);
                assert_eq!(task_text(id, &stored), (text.to_owned(), path.to_owned()));
            }
        }
        assert!(thread_id(&"ü".repeat(400)).is_err(), "its escaped text is too long");
        assert!(aside_of("", &"x".repeat(5_000)).is_err());
        assert!(Place::new("t", "langgraph:odd:1").is_err() && Place::new("t", "langgraph:oddly").is_ok());
    }
}
