//! A channel that collects what is written in a superstep.

use super::last_value::clear;
use super::{Cell, Channel, ChannelError, Effect};

/// Collects the values written in a superstep, or in all of them (`Topic` of LangGraph).
#[derive(Clone, Copy, Debug, Default)]
pub struct Topic {
    /// Whether values are kept over supersteps.
    pub accumulate: bool,
}

impl<T: Send + 'static> Channel<Vec<T>, Vec<T>> for Topic {
    fn update(&self, cell: Cell<'_, Vec<T>>, writes: Vec<Vec<T>>) -> Result<Effect, ChannelError> {
        let had = *cell.present;
        if !self.accumulate {
            cell.value.clear();
        }
        let kept = cell.value.len();
        cell.value.extend(writes.into_iter().flatten());
        // An empty topic is an empty channel.
        *cell.present = !cell.value.is_empty();
        Ok(match (*cell.present, had) {
            (true, _) if self.accumulate && kept == cell.value.len() => Effect::Unchanged,
            (true, _) => Effect::Computed,
            (false, true) => Effect::Cleared,
            (false, false) => Effect::Unchanged,
        })
    }

    fn idle(&self, cell: Cell<'_, Vec<T>>) -> Effect {
        if self.accumulate { Effect::Unchanged } else { clear(cell) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_forgets_unless_it_accumulates() {
        let (mut value, mut present) = (Vec::new(), false);
        let cell = |value, present| Cell { value, present };
        let topic = Topic::default();
        assert_eq!(topic.update(cell(&mut value, &mut present), vec![vec![1], vec![2, 2]]), Ok(Effect::Computed));
        assert_eq!(value, [1, 2, 2]);
        assert_eq!(topic.update(cell(&mut value, &mut present), vec![vec![3]]), Ok(Effect::Computed));
        assert_eq!(value, [3]);
        assert_eq!(topic.idle(cell(&mut value, &mut present)), Effect::Cleared);
        assert!(value.is_empty() && !present);
        let keeps = Topic { accumulate: true };
        keeps.update(cell(&mut value, &mut present), vec![vec![1]]).unwrap();
        keeps.update(cell(&mut value, &mut present), vec![vec![2]]).unwrap();
        assert_eq!(keeps.idle(cell(&mut value, &mut present)), Effect::Unchanged);
        assert_eq!(value, [1, 2]);
    }
}
