//! Writes that replace the value of a reducer, a list or a conversation.

use crate::base::{Codec, Encoded, Payload, PayloadRef, Value};

/// A write that replaces the value of a channel, in place of being folded into it (`Overwrite` of LangGraph). It hides
/// every other write to the channel in its superstep; two of them are an error.
///
/// Channels with a reducer, lists and messages know it. The update that `#[derive(State)]` makes has a method
/// `overwrite_<field>` for each of them; of a [`DynUpdate`](super::DynUpdate) see its method `overwrite`.
///
/// # Example
/// ```
/// use annals::prelude::*;
///
/// fn add(old: i64, new: i64) -> i64 {
///     old + new
/// }
///
/// #[derive(State, Clone, Default)]
/// struct Count {
///     #[channel(reduce = add)]
///     n: i64,
/// }
///
/// # fn main() -> Result<()> {
/// let count = Store::memory().thread("count")?.with_state::<Count>();
/// count.update(Count::update().n(1))?;
/// count.update(Count::update().n(5))?;
/// assert_eq!(count.state()?.n, 6);
/// count.update(Count::update().n(5).overwrite_n(100))?;
/// assert_eq!(count.state()?.n, 100);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overwrite<T>(pub T);

/// The name of the only member of a map that stands for an overwrite.
const NAME: &str = "__overwrite__";

/// How an encoded overwrite begins: a map of one member with that name.
const PREFIX: [u8; 15] = *b"\x81\xad__overwrite__";

/// The first item of a list write that replaces the list: an overwrite with null.
fn marker() -> Vec<u8> {
    [PREFIX.as_slice(), &Encoded::null().bytes].concat()
}

/// Wraps the bytes of a value.
pub(super) fn wrapped(value: &[u8]) -> Payload {
    Payload::new([PREFIX.as_slice(), value].concat())
}

/// Returns the bytes of the value in an overwrite.
pub(super) fn unwrapped(stored: PayloadRef<'_>) -> Option<&[u8]> {
    stored.data.strip_prefix(&PREFIX).filter(|_| stored.codec == Codec::MsgPack)
}

/// Puts the mark of an overwrite before the items of a list write.
pub(super) fn marked(items: Vec<Payload>) -> Vec<Payload> {
    let mark = Payload::new(marker());
    std::iter::once(mark).chain(items).collect()
}

/// Returns the items behind the mark.
pub(super) fn unmarked(items: &[Payload]) -> Option<&[Payload]> {
    let (first, rest) = items.split_first()?;
    (first.index.is_none() && first.data == marker()).then_some(rest)
}

/// Takes the value out of an overwrite in plain data: `{"__overwrite__": v}` or
/// `{"type": "__overwrite__", "value": v}`.
pub(super) fn of_value(value: Value) -> Result<Value, Value> {
    let Value::Map(mut map) = value else { return Err(value) };
    if map.len() == 1
        && let Some(inner) = map.shift_remove(NAME)
    {
        return Ok(inner);
    }
    if map.get("type").and_then(Value::as_str) == Some(NAME)
        && let Some(inner) = map.shift_remove("value")
    {
        return Ok(inner);
    }
    Err(Value::Map(map))
}

/// Returns an overwrite as plain data.
pub(super) fn to_value(value: Value) -> Value {
    Value::Map([(NAME.to_owned(), value)].into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Encoded;

    #[test]
    fn an_overwrite_is_a_map_of_one_member_in_bytes_and_in_data() {
        let seven = Value::from(7);
        let stored = wrapped(&Encoded::encode(&seven).unwrap().bytes);
        assert_eq!(Encoded { codec: stored.codec, bytes: stored.data.clone() }.decode(), Ok(to_value(seven.clone())));
        assert_eq!(unwrapped(stored.as_ref()), Some([7].as_slice()));
        assert_eq!(of_value(to_value(seven.clone())), Ok(seven.clone()));
        let other = [("type", Value::from(NAME)), ("value", seven.clone())].map(|(name, value)| (name.into(), value));
        assert_eq!(of_value(Value::Map(other.into_iter().collect())), Ok(seven.clone()));
        assert_eq!(of_value(seven.clone()), Err(seven));
    }

    #[test]
    fn a_list_that_replaces_another_bears_a_mark() {
        let items = vec![Payload::new(vec![1])];
        assert_eq!(unmarked(&marked(items.clone())), Some(items.as_slice()));
        assert_eq!(unmarked(&items), None);
    }
}
