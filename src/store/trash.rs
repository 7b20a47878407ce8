//! The threads in the trash that can be deleted.
//!
//! Invariant: of the threads that are deleted in one call, none has a fork that stays; those that have do not hold up
//! the others. *Absent:* the deletion.

use std::collections::{HashMap, HashSet};

use crate::base::{ThreadId, Timestamp};

use super::operation::{OperationField, OperationValue, TRASHED, trashed_until};

/// Returns whether a field says that the time of its thread in the trash has ended.
pub fn trash_is_due(field: &OperationField, value: &OperationValue, now: Timestamp) -> bool {
    match (field, value) {
        (OperationField::Fact(name), OperationValue::Text(text)) if name == TRASHED => {
            trashed_until(text).is_some_and(|until| until <= now)
        }
        _ => false,
    }
}

/// Returns the threads that can be deleted in one call, forks before their sources: none from which one was forked that
/// stays, and at most `max`.
pub fn deletable<E>(
    threads: Vec<ThreadId>,
    max: usize,
    mut forks_of: impl FnMut(&ThreadId) -> Result<Vec<ThreadId>, E>,
) -> Result<Vec<ThreadId>, E> {
    let asked: HashSet<ThreadId> = threads.iter().cloned().collect();
    // True for a thread that can be deleted; `None` while its forks are looked at.
    let mut known: HashMap<ThreadId, Option<bool>> = HashMap::new();
    let mut found = Vec::new();
    for thread in threads {
        let mut path: Vec<(ThreadId, Vec<ThreadId>, bool)> = Vec::new();
        if !known.contains_key(&thread) {
            known.insert(thread.clone(), None);
            path.push((thread.clone(), forks_of(&thread)?, true));
        }
        while let Some((_, forks, is_free)) = path.last_mut() {
            let Some(fork) = forks.pop().filter(|_| *is_free) else {
                let Some((thread, _, is_free)) = path.pop() else { break };
                known.insert(thread.clone(), Some(is_free));
                match is_free {
                    true => found.push(thread),
                    false => path.last_mut().into_iter().for_each(|(.., of)| *of = false),
                }
                if found.len() == max {
                    return Ok(found);
                }
                continue;
            };
            match known.get(&fork) {
                _ if !asked.contains(&fork) => *is_free = false,
                Some(done) => *is_free &= done.unwrap_or(true),
                None => {
                    known.insert(fork.clone(), None);
                    let forks = forks_of(&fork)?;
                    path.push((fork, forks, true));
                }
            }
        }
    }
    debug_assert!(found.len() <= max && found.iter().all(|thread| asked.contains(thread)));
    Ok(found)
}

/// Deletes threads in one call, without those from which others were forked that stay. Returns `None` if none is left.
pub(crate) fn delete_unforked<T, E>(
    mut threads: Vec<ThreadId>,
    mut delete: impl FnMut(&[ThreadId]) -> Result<T, E>,
    forked_off: impl Fn(&E) -> Option<&ThreadId>,
) -> Result<Option<T>, E> {
    while !threads.is_empty() {
        let deleted = delete(&threads);
        match deleted.as_ref().err().and_then(&forked_off) {
            Some(thread) => {
                let stays = thread.clone();
                threads.retain(|other| *other != stays);
            }
            None => return deleted.map(Some),
        }
    }
    Ok(None)
}
