//! Channels that hold the last value written.

use super::{Cell, Channel, ChannelEffect, ChannelError};

/// Holds the last value; two writes in one superstep are an error (`LastValue` of LangGraph).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastValue;

impl<T: Send + 'static> Channel<T, T> for LastValue {
    fn update(&self, mut cell: Cell<'_, T>, mut writes: Vec<T>) -> Result<ChannelEffect, ChannelError> {
        match (writes.len(), writes.pop()) {
            (1, Some(value)) => cell.set(value),
            (writes, _) => return Err(ChannelError::OneValuePerStep { writes }),
        }
        Ok(ChannelEffect::TookWrite(0))
    }
}

/// Holds the last value of a superstep, and is emptied by a superstep that does not write it (`AnyValue`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AnyValue;

impl<T: Default + Send + 'static> Channel<T, T> for AnyValue {
    fn update(&self, cell: Cell<'_, T>, writes: Vec<T>) -> Result<ChannelEffect, ChannelError> {
        take_last(cell, writes)
    }

    fn idle(&self, cell: Cell<'_, T>) -> ChannelEffect {
        clear(cell)
    }
}

/// Holds a value for one superstep (`EphemeralValue`).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub(crate) struct Ephemeral {
    /// True makes two writes in one superstep an error; otherwise the last one counts.
    pub(crate) guard: bool,
}

impl Ephemeral {
    /// Returns a rule for which two writes in one superstep are an error, or not.
    pub(crate) const fn new(guard: bool) -> Self {
        Self { guard }
    }
}

impl<T: Default + Send + 'static> Channel<T, T> for Ephemeral {
    fn update(&self, cell: Cell<'_, T>, writes: Vec<T>) -> Result<ChannelEffect, ChannelError> {
        guarded(self.guard, &writes)?;
        take_last(cell, writes)
    }

    fn idle(&self, cell: Cell<'_, T>) -> ChannelEffect {
        clear(cell)
    }
}

/// Holds the last value for the length of a run (`UntrackedValue`).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub(crate) struct Untracked {
    /// True makes two writes in one superstep an error; otherwise the last one counts.
    pub(crate) guard: bool,
}

impl Untracked {
    /// Returns a rule for which two writes in one superstep are an error, or not.
    pub(crate) const fn new(guard: bool) -> Self {
        Self { guard }
    }
}

impl<T: Send + 'static> Channel<T, T> for Untracked {
    fn update(&self, cell: Cell<'_, T>, writes: Vec<T>) -> Result<ChannelEffect, ChannelError> {
        guarded(self.guard, &writes)?;
        take_last(cell, writes)
    }
}

fn guarded<T>(guard: bool, writes: &[T]) -> Result<(), ChannelError> {
    match writes.len() {
        writes @ 2.. if guard => Err(ChannelError::Guarded { writes }),
        _ => Ok(()),
    }
}

fn take_last<T>(mut cell: Cell<'_, T>, mut writes: Vec<T>) -> Result<ChannelEffect, ChannelError> {
    Ok(match writes.pop() {
        Some(value) => {
            cell.set(value);
            ChannelEffect::TookWrite(writes.len())
        }
        None => ChannelEffect::Unchanged,
    })
}

/// Empties a cell; reports a change only if it held something.
pub(super) fn clear<T: Default>(cell: Cell<'_, T>) -> ChannelEffect {
    if !*cell.present {
        return ChannelEffect::Unchanged;
    }
    *cell.value = T::default();
    *cell.present = false;
    ChannelEffect::Cleared
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(
        rule: &impl Channel<i64, i64>,
        value: &mut i64,
        present: &mut bool,
        writes: &[i64],
    ) -> Option<ChannelEffect> {
        let cell = Cell { value, present };
        if writes.is_empty() { Some(rule.idle(cell)) } else { rule.update(cell, writes.to_vec()).ok() }
    }

    #[test]
    fn the_table_of_the_specification_holds() {
        let (mut value, mut present) = (0, false);
        assert_eq!(apply(&LastValue, &mut value, &mut present, &[5]), Some(ChannelEffect::TookWrite(0)));
        assert_eq!(apply(&LastValue, &mut value, &mut present, &[]), Some(ChannelEffect::Unchanged));
        assert_eq!(apply(&LastValue, &mut value, &mut present, &[1, 2]), None);
        assert_eq!((value, present), (5, true));
        assert_eq!(apply(&AnyValue, &mut value, &mut present, &[1, 2]), Some(ChannelEffect::TookWrite(1)));
        assert_eq!((value, present), (2, true));
        assert_eq!(apply(&AnyValue, &mut value, &mut present, &[]), Some(ChannelEffect::Cleared));
        assert_eq!(apply(&AnyValue, &mut value, &mut present, &[]), Some(ChannelEffect::Unchanged));
        assert_eq!((value, present), (0, false));
        assert_eq!(apply(&Ephemeral::new(true), &mut value, &mut present, &[1, 2]), None);
        assert_eq!(apply(&Ephemeral::new(false), &mut value, &mut present, &[1, 2]), Some(ChannelEffect::TookWrite(1)));
        assert_eq!(apply(&Ephemeral::new(true), &mut value, &mut present, &[]), Some(ChannelEffect::Cleared));
        assert_eq!(apply(&Untracked::new(true), &mut value, &mut present, &[1, 2]), None);
        assert_eq!(apply(&Untracked::new(false), &mut value, &mut present, &[1, 2]), Some(ChannelEffect::TookWrite(1)));
        assert_eq!(apply(&Untracked::new(true), &mut value, &mut present, &[]), Some(ChannelEffect::Unchanged));
        assert_eq!((value, present), (2, true));
    }
}
