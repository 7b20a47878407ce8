//! A list that grows by the items of each write.

use super::{Cell, Channel, ChannelEffect, ChannelError, List, ListChange, ListOp};

/// Appends the items of each write to a list. Only the new items are stored.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Append;

impl<T: Send + Sync + 'static> Channel<List<T>, Vec<T>> for Append {
    fn update(&self, cell: Cell<'_, List<T>>, writes: Vec<Vec<T>>) -> Result<ChannelEffect, ChannelError> {
        *cell.present = true;
        let mut changes = Vec::new();
        for (write, items) in writes.into_iter().enumerate() {
            for (part, item) in items.into_iter().enumerate() {
                changes.push(ListChange { position: cell.value.push(item), op: ListOp::Put { write, part } });
            }
        }
        Ok(ChannelEffect::Items(changes))
    }
}
