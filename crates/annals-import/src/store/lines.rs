//! The stored lines of a thread: the messages at the end of each branch, and the checkpoints on the way.

use annals::base::CheckpointId;
use annals::history::{Snapshot, Thread};
use annals::message::Message;
use annals::store::ItemRange;
use serde_json::Value as Json;

use super::MESSAGES;
use crate::error::ImportError;

/// A stored line of messages.
#[derive(Clone)]
pub(super) struct StoredLine {
    pub(super) messages: Vec<Message>,
    /// The checkpoints of the thread on the line, oldest first, each with the number of messages there.
    pub(super) points: Vec<(usize, CheckpointId)>,
    pub(super) is_head: bool,
}

impl StoredLine {
    /// Returns the number of messages that the line shares with another one, from the start.
    pub(super) fn shared<'m>(&self, other: impl IntoIterator<Item = &'m Message>) -> usize {
        self.messages.iter().zip(other).take_while(|(own, other)| own == other).count()
    }

    /// Returns the last checkpoint with at most `count` messages, and their number.
    pub(super) fn point_before(&self, count: usize) -> Option<(usize, CheckpointId)> {
        self.points.iter().rev().find(|(messages, _)| *messages <= count).copied()
    }
}

/// Returns the lines of a thread, of its named branches or of all; that of the head is the first.
pub(super) fn stored_lines(thread: &Thread, with_abandoned: bool) -> Result<Vec<StoredLine>, ImportError> {
    let mut lines = Vec::new();
    let branches = if with_abandoned { thread.all_branches()? } else { thread.branches()? };
    for branch in branches {
        let last = &branch.last;
        let mut points = Vec::new();
        for snapshot in last.lineage() {
            let snapshot = snapshot?;
            if snapshot.point().thread != *thread.id() {
                break;
            }
            points.push((message_count(&snapshot)?, snapshot.id()));
        }
        points.reverse();
        let messages = last.messages(MESSAGES, ItemRange::All)?;
        lines.push(StoredLine { messages, points, is_head: branch.is_current });
    }
    lines.sort_by_key(|line| !line.is_head);
    Ok(lines)
}

/// Returns the number of messages at a checkpoint: an importer writes it to the metadata.
fn message_count(snapshot: &Snapshot) -> Result<usize, ImportError> {
    let metadata = snapshot.record().metadata.as_deref();
    let metadata = metadata.and_then(|text| serde_json::from_str::<Json>(text).ok());
    let count = metadata.and_then(|metadata| metadata["imported_messages"].as_u64());
    let count = match count {
        Some(count) => count,
        None => snapshot.len(MESSAGES)?,
    };
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}
