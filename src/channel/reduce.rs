//! Channels that fold each write into what they hold.

use std::marker::PhantomData;

use super::{Cell, Channel, ChannelError, Effect};

/// Folds each write into the value with a function (`BinaryOperatorAggregate` of LangGraph). The first write is folded
/// into the default of `T`.
///
/// The result of an arbitrary function is stored whole at every change: for a list that only grows use a list
/// channel, of which only the new items are written.
pub struct Reduce<F, T, W> {
    reducer: F,
    types: PhantomData<fn(T, W) -> T>,
}

impl<F, T, W> Reduce<F, T, W>
where
    F: Fn(T, W) -> Result<T, String> + Send + Sync + 'static,
{
    /// Makes the rule from a function of the old value and one write.
    pub fn new(reducer: F) -> Self {
        Self { reducer, types: PhantomData }
    }
}

impl<F, T, W> Channel<T, W> for Reduce<F, T, W>
where
    F: Fn(T, W) -> Result<T, String> + Send + Sync + 'static,
    T: Default + 'static,
    W: 'static,
{
    fn update(&self, cell: Cell<'_, T>, writes: Vec<W>) -> Result<Effect, ChannelError> {
        let mut value = std::mem::take(cell.value);
        for write in writes {
            value = (self.reducer)(value, write).map_err(|reason| ChannelError::Reducer { reason })?;
        }
        *cell.value = value;
        *cell.present = true;
        Ok(Effect::Computed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_folded_left_in_order() {
        let rule = Reduce::new(|old: String, new: &str| Ok(old + new));
        let (mut value, mut present) = (String::new(), false);
        let effect = rule.update(Cell { value: &mut value, present: &mut present }, vec!["a", "b"]);
        assert_eq!((effect, value.as_str(), present), (Ok(Effect::Computed), "ab", true));
    }
}
