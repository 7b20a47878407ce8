//! Lines of messages in the making: drafts by number, so that lines share messages and a draft can still change.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::draft::{DraftKind, MessageDraft};
use crate::limits::ID_BYTES_MAX;
use crate::model::{SessionBranch, SessionMessage};

/// The drafts of a session.
#[derive(Default)]
pub(crate) struct DraftArena {
    pub(crate) drafts: Vec<MessageDraft>,
}

impl DraftArena {
    /// Adds a draft and returns its number.
    pub(crate) fn add(&mut self, draft: MessageDraft) -> usize {
        self.drafts.push(draft);
        self.drafts.len() - 1
    }

    /// Adds the result of a tool call to a line: after the message that called and the results that it has, else at the
    /// end.
    pub(crate) fn add_result(&mut self, line: &mut Vec<usize>, draft: MessageDraft) {
        debug_assert_eq!(draft.kind, DraftKind::Tool, "only results answer calls");
        let call = draft.answers.clone();
        let number = self.add(draft);
        let caller = line.iter().rposition(|of| self.drafts[*of].has_call(&call));
        let Some(caller) = caller else {
            line.push(number);
            return;
        };
        let results = line[caller + 1..].iter();
        let results = results.take_while(|of| {
            let draft = &self.drafts[**of];
            draft.kind == DraftKind::Tool && self.drafts[line[caller]].has_call(&draft.answers)
        });
        line.insert(caller + 1 + results.count(), number);
    }

    /// Returns a line in which each result stands after the message that called and the results before it, wherever
    /// the source has it.
    pub(crate) fn settled(&self, line: &[usize]) -> Vec<usize> {
        let called = line.iter().flat_map(|number| self.drafts[*number].call_ids());
        let called: HashSet<&str> = called.collect();
        let mut groups: Vec<Vec<usize>> = Vec::with_capacity(line.len());
        let (mut callers, mut early): (HashMap<&str, usize>, HashMap<&str, Vec<usize>>) = Default::default();
        for number in line {
            let draft = &self.drafts[*number];
            let answers = draft.answers.as_str();
            match (draft.kind, callers.get(answers)) {
                (DraftKind::Tool, Some(caller)) => groups[*caller].push(*number),
                (DraftKind::Tool, None) if called.contains(answers) => {
                    early.entry(answers).or_default().push(*number);
                }
                _ => groups.push(vec![*number]),
            }
            for call in draft.call_ids() {
                callers.insert(call, groups.len() - 1);
                groups.last_mut().into_iter().for_each(|group| group.extend(early.remove(call).unwrap_or_default()));
            }
        }
        let settled: Vec<usize> = groups.into_iter().flatten().collect();
        debug_assert_eq!(settled.len(), line.len(), "no message is lost or doubled");
        settled
    }

    /// Returns the messages with ids that are different in each line, by the number of the draft.
    pub(crate) fn into_messages(self) -> Vec<Arc<SessionMessage>> {
        let mut seen = HashSet::new();
        let mut unique = |mut message: SessionMessage| {
            let id = bounded(message.message.id.take().unwrap_or_default());
            let mut candidate = id.clone();
            let mut ordinal = 2;
            while candidate.is_empty() || !seen.insert(candidate.clone()) {
                candidate = format!("{id}#{ordinal}");
                ordinal += 1;
            }
            message.message.id = Some(candidate);
            Arc::new(message)
        };
        self.drafts.into_iter().map(|draft| unique(draft.into_message())).collect()
    }
}

/// Returns the part of each left line that it does not share with the main line. A line that is wholly shared is left
/// out.
pub(crate) fn branches(main: &[Arc<SessionMessage>], left: Vec<Vec<Arc<SessionMessage>>>) -> Vec<SessionBranch> {
    let mut branches: Vec<SessionBranch> = Vec::new();
    for mut line in left {
        let after = line.iter().zip(main).take_while(|(a, b)| Arc::ptr_eq(a, b)).count();
        let messages = line.split_off(after);
        debug_assert!(after <= main.len(), "a branch begins on the main line");
        if !messages.is_empty() {
            branches.push(SessionBranch { after, messages });
        }
    }
    branches
}

/// Returns the messages of a line of numbers.
pub(crate) fn pick(messages: &[Arc<SessionMessage>], line: &[usize]) -> Vec<Arc<SessionMessage>> {
    line.iter().map(|number| Arc::clone(&messages[*number])).collect()
}

/// Returns an id that fits into the store: a longer one is cut, and ends with a hash of the whole.
pub(crate) fn bounded(id: String) -> String {
    if id.len() <= ID_BYTES_MAX {
        return id;
    }
    let end = (0..=ID_BYTES_MAX - 17).rev().find(|end| id.is_char_boundary(*end)).unwrap_or(0);
    format!("{}~{:016x}", &id[..end], fnv(id.as_bytes()))
}

/// Returns the FNV-1a hash of bytes: the same on every machine and in every version.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
