//! A channel that collects the values written in a superstep.

use crate::base::Value;

use super::last_value::clear;
use super::{Cell, Channel, ChannelEffect, ChannelError};

/// Collects the values written in a superstep, or in all of them (`Topic` of LangGraph).
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub(crate) struct Topic {
    /// True retains values over supersteps.
    pub(crate) accumulate: bool,
}

impl Topic {
    /// Returns a rule that retains values over supersteps, or not.
    pub(crate) const fn new(accumulate: bool) -> Self {
        Self { accumulate }
    }
}

impl<T: Send + 'static> Channel<Vec<T>, Vec<T>> for Topic {
    fn update(&self, cell: Cell<'_, Vec<T>>, writes: Vec<Vec<T>>) -> Result<ChannelEffect, ChannelError> {
        let had = *cell.present;
        if !self.accumulate {
            cell.value.clear();
        }
        let kept = cell.value.len();
        cell.value.extend(writes.into_iter().flatten());
        // An empty topic is an empty channel.
        *cell.present = !cell.value.is_empty();
        Ok(match (*cell.present, had) {
            (true, _) if self.accumulate && kept == cell.value.len() => ChannelEffect::Unchanged,
            (true, _) => ChannelEffect::Computed,
            (false, true) => ChannelEffect::Cleared,
            (false, false) => ChannelEffect::Unchanged,
        })
    }

    fn idle(&self, cell: Cell<'_, Vec<T>>) -> ChannelEffect {
        if self.accumulate { ChannelEffect::Unchanged } else { clear(cell) }
    }
}

/// Takes values of a schema made at run time: a list that is written is flattened, anything else is one value.
impl Channel<Vec<Value>, Value> for Topic {
    fn update(&self, cell: Cell<'_, Vec<Value>>, writes: Vec<Value>) -> Result<ChannelEffect, ChannelError> {
        let flat = |write| match write {
            Value::List(values) => values,
            one => vec![one],
        };
        self.update(cell, writes.into_iter().map(flat).collect::<Vec<Vec<Value>>>())
    }

    fn idle(&self, cell: Cell<'_, Vec<Value>>) -> ChannelEffect {
        if self.accumulate { ChannelEffect::Unchanged } else { clear(cell) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_forgets_unless_it_accumulates() {
        let (mut value, mut present) = (Vec::new(), false);
        let mut write = |topic: Topic, writes: &[&[i32]]| {
            let cell = Cell { value: &mut value, present: &mut present };
            let effect = match writes {
                [] => topic.idle(cell),
                writes => topic.update(cell, writes.iter().map(|write| write.to_vec()).collect()).unwrap(),
            };
            (effect, value.clone())
        };
        let (forgets, keeps) = (Topic::default(), Topic::new(true));
        assert_eq!(write(forgets, &[&[1], &[2, 2]]), (ChannelEffect::Computed, vec![1, 2, 2]));
        assert_eq!(write(forgets, &[&[3]]), (ChannelEffect::Computed, vec![3]));
        assert_eq!(write(forgets, &[]), (ChannelEffect::Cleared, vec![]));
        assert_eq!(write(keeps, &[&[1]]), (ChannelEffect::Computed, vec![1]));
        assert_eq!(write(keeps, &[&[2]]), (ChannelEffect::Computed, vec![1, 2]));
        assert_eq!(write(keeps, &[]), (ChannelEffect::Unchanged, vec![1, 2]));
    }
}
