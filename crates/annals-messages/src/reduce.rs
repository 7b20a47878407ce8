//! Merging lists of messages by id: `add_messages` of LangGraph, and the same as a plan for a list with an index.
//!
//! *Absent:* the list. [`merge_plan`] costs as much as the update is long, whatever the list holds.

use std::collections::{HashMap, HashSet};

use super::{Message, MessageError, Role, message_chunk_to_message};
use annals_base::IdSource;

/// The id with which a removal means every message before it.
pub const REMOVE_ALL_MESSAGES: &str = "__remove_all__";

/// One change of a list of messages that is indexed by id. A plan has at most one for each id.
///
/// A list may hold several messages with one id (only after [`Clear`](Self::Clear), or if it started so); then the last
/// is the one that is replaced, and all are removed.
#[derive(Clone, Debug, PartialEq)]
#[doc(hidden)]
pub enum MergeOp {
    /// Adds a message at the end.
    Append {
        /// The position of the message in the update.
        part: usize,
        /// The message.
        message: Message,
    },
    /// Puts a message in the place of the last one with this id.
    Replace {
        /// The id, which is also that of the message.
        id: String,
        /// The position of the message in the update.
        part: usize,
        /// The new message.
        message: Message,
    },
    /// Removes every message with this id.
    Remove {
        /// The id.
        id: String,
    },
    /// Removes all messages.
    Clear,
}

/// Merges `right` into `left`: known ids are replaced in place, removals are carried out, the others are appended.
///
/// Chunks of messages become whole first, and missing ids are assigned, those of `left` before those of `right`. If
/// `right` asks to remove all messages, the result is what follows the last such request, unmerged. Of several messages
/// with one id in `left`, the last is replaced and all are removed.
///
/// # Errors
/// [`MessageError::UnknownId`] if a removal names an id that is neither in `left` nor earlier in `right`.
pub(crate) fn merge_messages(
    left: Vec<Message>,
    right: Vec<Message>,
    ids: &mut IdSource,
) -> Result<Vec<Message>, MessageError> {
    let [mut left, mut right] =
        [left, right].map(|side| side.into_iter().map(message_chunk_to_message).collect::<Vec<_>>());
    ensure_ids(&mut left, ids);
    ensure_ids(&mut right, ids);
    if let Some(at) = right.iter().rposition(Message::is_remove_all) {
        return Ok(right.split_off(at + 1));
    }
    let id_of = |message: &Message| message.id.clone().unwrap_or_default();
    let mut places: HashMap<String, usize> = left.iter().enumerate().map(|(at, m)| (id_of(m), at)).collect();
    let mut removed = HashSet::new();
    for message in right {
        let id = id_of(&message);
        match (places.get(&id), message.role == Role::Remove) {
            (Some(_), true) => {
                removed.insert(id);
            }
            (Some(at), false) => {
                removed.remove(&id);
                left[*at] = message;
            }
            (None, true) => return Err(MessageError::UnknownId { id }),
            (None, false) => {
                places.insert(id, left.len());
                left.push(message);
            }
        }
    }
    debug_assert!(removed.iter().all(|id| places.contains_key(id)), "only known ids are removed");
    left.retain(|message| !message.id.as_ref().is_some_and(|id| removed.contains(id)));
    Ok(left)
}

/// Gives every message without id a random UUIDv4, and returns how many it gave.
pub fn ensure_ids(messages: &mut [Message], ids: &mut IdSource) -> usize {
    let without = messages.iter_mut().filter(|message| message.id.is_none());
    let given = without.map(|message| message.id = Some(ids.uuid_v4().to_string())).count();
    debug_assert!(messages.iter().all(|message| message.id.is_some()), "every message has an id");
    given
}

/// Returns what [`add_messages`](super::add_messages) would do to a list of which only `known` is asked: whether it
/// holds an id.
///
/// The operations are to be applied in order. `known` is asked at most once for each id in `right`, and not at all if
/// `right` asks to remove all messages. Of each id that it knows one message is replaced, or all are removed, in the
/// order of the questions.
///
/// # Errors
/// [`MessageError::UnknownId`] as [`add_messages`](super::add_messages); [`MessageError::NoId`] if a message has no id
/// (see [`ensure_ids`]).
///
/// # Example: remove and add again, which keeps the position
/// ```
/// use annals_messages::{MergeOp, Message, merge_plan};
///
/// let right = vec![Message::remove("1"), Message::human("again").with_id("1"), Message::ai("new").with_id("2")];
/// let plan = merge_plan(right, &mut |id| id == "1")?;
/// assert!(matches!(&plan[..], [MergeOp::Replace { .. }, MergeOp::Append { .. }]));
/// # Ok::<(), annals_messages::MessageError>(())
/// ```
#[doc(hidden)]
pub fn merge_plan(mut right: Vec<Message>, known: &mut dyn FnMut(&str) -> bool) -> Result<Vec<MergeOp>, MessageError> {
    if let Some(position) = right.iter().position(|message| message.id.is_none()) {
        return Err(MessageError::NoId { position });
    }
    if let Some(at) = right.iter().rposition(Message::is_remove_all) {
        let kept = right.split_off(at + 1).into_iter().enumerate();
        let kept = kept.map(|(after, message)| MergeOp::Append { part: at + 1 + after, message });
        return Ok(std::iter::once(MergeOp::Clear).chain(kept).collect());
    }
    // The final message of each id, in the order of their first mention: the last one wins, `None` removes.
    let mut fates: Vec<Fate> = Vec::with_capacity(right.len());
    let mut places: HashMap<String, usize> = HashMap::with_capacity(right.len());
    for (part, message) in right.into_iter().enumerate() {
        let id = message.id.clone().unwrap_or_default();
        let removal = message.role == Role::Remove;
        if let Some(at) = places.get(&id) {
            fates[*at].message = (!removal).then_some((part, message));
            continue;
        }
        let existing = known(&id);
        if removal && !existing {
            return Err(MessageError::UnknownId { id });
        }
        places.insert(id.clone(), fates.len());
        fates.push(Fate { id, existing, message: (!removal).then_some((part, message)) });
    }
    debug_assert_eq!(places.len(), fates.len(), "each id has one fate");
    Ok(fates.into_iter().filter_map(Fate::into_op).collect())
}

struct Fate {
    id: String,
    existing: bool,
    message: Option<(usize, Message)>,
}

impl Fate {
    fn into_op(self) -> Option<MergeOp> {
        match (self.existing, self.message) {
            (true, Some((part, message))) => Some(MergeOp::Replace { id: self.id, part, message }),
            (true, None) => Some(MergeOp::Remove { id: self.id }),
            (false, Some((part, message))) => Some(MergeOp::Append { part, message }),
            (false, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A list indexed by id, in its plainest form.
    fn apply(mut list: Vec<Message>, plan: Vec<MergeOp>) -> Vec<Message> {
        for op in plan {
            match op {
                MergeOp::Append { message, .. } => list.push(message),
                MergeOp::Replace { id, message, .. } => {
                    assert_eq!(message.id.as_ref(), Some(&id));
                    let at = list.iter().rposition(|m| m.id.as_ref() == Some(&id)).expect("replaces a known id");
                    list[at] = message;
                }
                MergeOp::Remove { id } => {
                    let before = list.len();
                    list.retain(|m| m.id.as_ref() != Some(&id));
                    assert!(list.len() < before, "removes a known id");
                }
                MergeOp::Clear => list.clear(),
            }
        }
        list
    }

    fn planned(list: Vec<Message>, right: Vec<Message>) -> Result<Vec<Message>, MessageError> {
        let plan = merge_plan(right, &mut |id| list.iter().any(|m| m.id.as_deref() == Some(id)))?;
        Ok(apply(list, plan))
    }

    fn add(left: &[Message], right: &[Message]) -> Result<Vec<Message>, MessageError> {
        merge_messages(left.to_vec(), right.to_vec(), &mut IdSource::from_seed(1))
    }

    fn human(id: &str, text: &str) -> Message {
        Message::human(text).with_id(id)
    }

    fn ids(messages: &[Message]) -> Vec<&str> {
        messages.iter().filter_map(|m| m.id.as_deref()).collect()
    }

    #[test]
    fn every_branch_of_the_reference() {
        let left = [human("a", "1"), human("b", "2"), human("c", "3")];
        let replaced = add(&left, &[human("b", "new")]).unwrap();
        assert_eq!((ids(&replaced), replaced[1].text().as_ref()), (vec!["a", "b", "c"], "new"));
        assert_eq!(ids(&add(&left, &[Message::remove("b"), Message::remove("b")]).unwrap()), ["a", "c"]);
        let again = add(&left, &[Message::remove("a"), human("a", "back"), human("d", "4")]).unwrap();
        assert_eq!((ids(&again), again[0].text().as_ref()), (vec!["a", "b", "c", "d"], "back"));
        assert_eq!(add(&left, &[human("d", "4"), Message::remove("d")]).unwrap(), left);
        let back = [human("d", "4"), human("e", "5"), Message::remove("d"), human("d", "6")];
        assert_eq!(ids(&add(&left, &back).unwrap()), ["a", "b", "c", "d", "e"]);
        let unknown = add(&left, &[Message::remove("z")]).unwrap_err();
        assert_eq!(unknown.to_string(), "Attempting to delete a message with an ID that doesn't exist ('z')");
        let after = [human("x", "1"), Message::remove_all(), human("y", "2"), human("y", "3"), Message::remove("q")];
        assert_eq!(add(&left, &after).unwrap(), after[2..], "unmerged, with duplicates and other removals");
        let ordinary = [Message::human("not a removal").with_id(REMOVE_ALL_MESSAGES)];
        assert_eq!(add(&left, &ordinary).unwrap().len(), 4);
        let kept = [Message::remove_all(), human("a", "1")];
        assert_eq!(add(&kept, &[human("b", "2")]).unwrap().len(), 3, "in the list it has no effect");
        assert_eq!(add(&[human("", "1")], &[human("", "2")]).unwrap(), [human("", "2")], "an empty id is an id");
    }

    #[test]
    fn missing_ids_are_minted_left_first() {
        let (mut a, mut b) = (IdSource::from_seed(7), IdSource::from_seed(7));
        let merged = merge_messages(vec![Message::human("l")], vec![Message::human("r")], &mut a).unwrap();
        assert_eq!(ids(&merged), [b.uuid_v4().to_string(), b.uuid_v4().to_string()]);
        assert_eq!(
            merge_plan(vec![human("a", ""), Message::ai("x")], &mut |_| true).unwrap_err(),
            MessageError::NoId { position: 1 }
        );
    }

    fn message() -> impl Strategy<Value = Message> {
        let id = prop_oneof![9 => "[a-e]", 1 => Just(REMOVE_ALL_MESSAGES.to_owned())];
        (id, "[a-z]{0,2}", 0..3u8).prop_map(|(id, text, kind)| match kind {
            0 => Message::remove(id),
            1 => Message::ai(text).with_id(id),
            _ => Message::human(text).with_id(id),
        })
    }

    proptest! {
        #[test]
        fn the_plan_does_what_add_messages_does(
            left in prop::collection::vec(message(), 0..8), right in prop::collection::vec(message(), 0..8)
        ) {
            prop_assert_eq!(planned(left.clone(), right.clone()), add(&left, &right));
        }

        #[test]
        fn merging_twice_changes_nothing_and_order_is_kept(
            left in prop::collection::vec("[a-h]", 0..8), right in prop::collection::vec("[a-h]", 0..8)
        ) {
            let list = |ids: &[String], text| ids.iter().map(|id| human(id, text)).collect::<Vec<_>>();
            let (left, right) = (list(&left, "l"), list(&right, "r"));
            let once = add(&left, &right).unwrap();
            prop_assert_eq!(&add(&once, &right).unwrap(), &once);
            prop_assert_eq!(&ids(&once)[..left.len()], &ids(&left)[..]);
            let removals: Vec<_> = right.iter().map(|m| Message::remove(m.id.clone().unwrap())).collect();
            let gone = add(&once, &removals).unwrap();
            let rest: Vec<_> = once.iter().filter(|m| !right.iter().any(|r| r.id == m.id)).cloned().collect();
            prop_assert_eq!(gone, rest);
        }
    }
}
