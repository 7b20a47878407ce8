//! Channels that fold each write into their value.

use super::{Cell, Channel, ChannelEffect, ChannelError};

/// Folds each write into the value with a function (`BinaryOperatorAggregate` of LangGraph).
///
/// The result of an arbitrary function is stored whole at every change: for a list that only grows use a list
/// channel, of which only the new items are written.
pub(crate) struct Reduce<T, W> {
    reducer: Box<dyn Fn(T, W) -> Result<T, String> + Send + Sync>,
    /// Makes the value of an empty channel from the first write.
    first: Option<fn(W) -> T>,
}

/// A write to a channel with a reducer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Folded<T, W> {
    /// It is folded into the value.
    Write(W),
    /// It replaces the value, and hides every other write of its superstep (`Overwrite`).
    Overwrite(T),
}

impl<T, W> Reduce<T, W> {
    /// Makes the rule from a function of the old value and one write. The first write is folded into the value that
    /// the channel starts with.
    ///
    /// # Errors
    /// An error of the reducer is [`ChannelError::Reducer`] of the update that called it.
    pub(crate) fn new(reducer: impl Fn(T, W) -> Result<T, String> + Send + Sync + 'static) -> Self {
        Self { reducer: Box::new(reducer), first: None }
    }
}

impl<T> Reduce<T, T> {
    /// Makes the rule of a channel that starts empty: the first write becomes its value as it is.
    ///
    /// # Errors
    /// As [`Reduce::new`].
    pub(crate) fn from_first(reducer: impl Fn(T, T) -> Result<T, String> + Send + Sync + 'static) -> Self {
        Self { reducer: Box::new(reducer), first: Some(|write| write) }
    }
}

impl<T, W> Channel<T, Folded<T, W>> for Reduce<T, W>
where
    T: Default + 'static,
    W: 'static,
{
    fn update(&self, cell: Cell<'_, T>, writes: Vec<Folded<T, W>>) -> Result<ChannelEffect, ChannelError> {
        let overwrites = writes.iter().filter(|write| matches!(write, Folded::Overwrite(_))).count();
        if overwrites > 1 {
            return Err(ChannelError::OneOverwritePerStep { writes: overwrites });
        }
        let mut value = (*cell.present || self.first.is_none()).then(|| std::mem::take(cell.value));
        for write in writes {
            value = match (write, self.first) {
                (Folded::Overwrite(new), _) => Some(new),
                (Folded::Write(_), _) if overwrites > 0 => value,
                (Folded::Write(write), first) => match (value, first) {
                    (None, Some(first)) => Some(first(write)),
                    (old, _) => {
                        let folded = (self.reducer)(old.unwrap_or_default(), write);
                        Some(folded.map_err(|reason| ChannelError::Reducer { reason })?)
                    }
                },
            };
        }
        if let Some(value) = value {
            *cell.value = value;
            *cell.present = true;
        }
        Ok(ChannelEffect::Computed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Write = Folded<String, String>;

    fn apply(rule: &Reduce<String, String>, value: &mut String, present: &mut bool, writes: Vec<Write>) -> bool {
        rule.update(Cell { value, present }, writes).is_ok()
    }

    fn write(text: &str) -> Write {
        Folded::Write(text.into())
    }

    #[test]
    fn writes_are_folded_left_in_order() {
        let rule = Reduce::new(|old: String, new: String| Ok(old + &new));
        let (mut value, mut present) = ("x".to_string(), true);
        assert!(apply(&rule, &mut value, &mut present, vec![write("a"), write("b")]));
        assert_eq!(value, "xab");
    }

    #[test]
    fn the_first_write_becomes_the_value_of_an_empty_channel() {
        let rule = Reduce::from_first(|old: String, new: String| Ok(format!("({old}{new})")));
        let (mut value, mut present) = (String::new(), false);
        assert!(apply(&rule, &mut value, &mut present, vec![write("a")]));
        assert_eq!((value.as_str(), present), ("a", true));
        assert!(apply(&rule, &mut value, &mut present, vec![write("b"), write("c")]));
        assert_eq!(value, "((ab)c)");
    }

    #[test]
    fn an_overwrite_hides_the_other_writes_of_its_superstep() {
        let rule = Reduce::new(|old: String, new: String| Ok(old + &new));
        let (mut value, mut present) = ("x".to_string(), true);
        let new = || Folded::Overwrite("new".to_string());
        assert!(apply(&rule, &mut value, &mut present, vec![write("a"), new(), write("b")]));
        assert_eq!(value, "new");
        assert!(!apply(&rule, &mut value, &mut present, vec![new(), new()]));
    }
}
