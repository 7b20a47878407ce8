//! The input of an entrypoint: one of its channels, which triggers its node.

use crate::graph::{Graph, INPUT};
use crate::state::Writes;
use crate::store::batch::{ChangeValue, Data};

use super::apply::Changes;
use super::error::RunError;
use super::head::Head;

/// Takes an input, whose writes are resolved: it lies in its channel until the node has run.
pub(super) fn take(graph: &Graph, head: &mut Head, writes: Writes, changes: &mut Changes) -> Result<(), RunError> {
    let (layout, field) = (&*graph.layout, INPUT as usize);
    let input: Vec<_> = writes.into_iter().filter(|(written, _)| *written == field).map(|(_, write)| write).collect();
    if input.is_empty() {
        return Err(RunError::EmptyInput);
    }
    layout.update(&mut head.state, field, &mut head.present[field], input)?;
    head.version_max += 1;
    head.versions[field] = head.version_max;
    head.updated = Some(vec![INPUT]);
    changes.note(INPUT, ChangeValue::Value(Data::New(layout.encode(&head.state, field)?)), None);
    Ok(())
}
