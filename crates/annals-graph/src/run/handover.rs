//! The channels that a parent graph hands to its subgraph, and those that the subgraph returns.

use crate::base::{ListRef, Map, Value};
use crate::exec::RunError;
use crate::graph::{GivenFields, Graph, INPUT, NodeOutput, Persistence, VALUE};
use crate::state::erased::{Returned, field_of, returned_writes, shared_writes};
use crate::state::{BoxWrite, StateRef, Writes};
use crate::task::Context;

/// The lists that a subgraph was given, by its own fields.
pub(crate) type GivenLists = Vec<(usize, BoxWrite)>;

/// Returns the input of a subgraph from the channels that both graphs have. Lists go in as they are, where the channels
/// fit.
pub(crate) fn given_input(
    graph: &Graph,
    fields: &GivenFields,
    context: &Context,
    given: &mut GivenLists,
) -> Result<Writes, RunError> {
    let layout = &*graph.layout;
    let is_stored = graph.persistence != Persistence::Stateless && context.parts().thread.is_some();
    let mut writes = Writes::default();
    for from in &fields.fields {
        let Ok(field) = field_of(layout, fields.layout.name(*from)) else { continue };
        let write = match fields.give(*from, layout.list_rule(field), is_stored) {
            Some(write) => {
                given.push((field, write.clone()));
                write
            }
            None => layout.write_from_value(field, fields.layout.to_value(&fields.state, *from)?)?,
        };
        writes.push_box(field, write);
    }
    Ok(writes)
}

/// Returns the output of a subgraph as that of its node, from its state, the channels that hold a value, and the lists
/// that are `shared` with its parent graph.
///
/// # Errors
/// [`RunError::NotAnUpdate`] if an entrypoint returned something else than an object.
pub(crate) fn returned_output(
    graph: &Graph,
    state: &StateRef,
    present: &[bool],
    given: &GivenLists,
    shared: &[(u32, Option<ListRef>)],
) -> Result<NodeOutput, RunError> {
    if graph.entry {
        return match output_of(graph, state, present)? {
            Value::Map(map) => Ok(NodeOutput::update(shared_writes(map))),
            Value::Null => Ok(NodeOutput::default()),
            _ => Err(RunError::NotAnUpdate { graph: graph.name.clone() }),
        };
    }
    let layout = &*graph.layout;
    let mut returned = Vec::new();
    for field in graph.schemas.output.iter().copied().filter(|field| present[*field]) {
        // A list that was given is returned as what differs from it by position.
        let came_of = |(of, write): &&(usize, BoxWrite)| {
            let told = write.told_of().map(|told| &told.of);
            *of == field && shared.iter().any(|(list, from)| *list as usize == field && told == Some(from))
        };
        let merges = layout.list_rule(field).is_some_and(|rule| rule.merges);
        let list = given.iter().find(came_of).filter(|_| merges);
        let value = match list.and_then(|(_, given)| layout.give_back(state, field, given)) {
            Some(list) => Returned::List(list),
            None => Returned::Value(layout.to_value(state, field)?),
        };
        returned.push((layout.name(field).to_string(), value));
    }
    Ok(NodeOutput::update(returned_writes(returned)))
}

/// Returns the input of a graph from the members of a map that are its channels.
pub(crate) fn input_of(graph: &Graph, value: Value) -> Result<Writes, RunError> {
    let layout = &*graph.layout;
    let mut writes = Writes::default();
    if graph.entry {
        let input = layout.write_from_value(INPUT as usize, value)?;
        writes.push_box(INPUT as usize, input);
        return Ok(writes);
    }
    let Value::Map(map) = value else { return Ok(writes) };
    for (channel, value) in map {
        if let Ok(field) = field_of(layout, &channel) {
            writes.push_box(field, layout.write_from_value(field, value)?);
        }
    }
    Ok(writes)
}

/// Returns the output of a graph: the output channels that hold a value, or the value of an entrypoint.
fn output_of(graph: &Graph, state: &StateRef, present: &[bool]) -> Result<Value, RunError> {
    let layout = &*graph.layout;
    if graph.entry {
        return Ok(layout.to_value(state, VALUE as usize)?);
    }
    let mut map = Map::new();
    for field in graph.schemas.output.iter().filter(|field| present[**field]) {
        map.insert(layout.name(*field).to_string(), layout.to_value(state, *field)?);
    }
    Ok(Value::Map(map))
}
