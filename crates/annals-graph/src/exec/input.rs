//! An input as it is stored while it waits to be taken.

use crate::base::{CheckpointId, ListRef, Map, Namespace, Value};
use crate::graph::{Command, Graph, NodeOutput, SendTo, Target};
use crate::state::Writes;

use super::error::RunError;

/// Returns an input, whose writes are resolved, as one value that can be stored: its writes by channel name; if a
/// channel is written twice, or commands go somewhere, a list of the writes as pairs and a list of the targets.
pub(crate) fn input_value(graph: &Graph, input: &NodeOutput) -> Result<Value, RunError> {
    let layout = &*graph.layout;
    let mut map = Map::new();
    let mut pairs = Vec::new();
    let updates = std::iter::once(&input.writes).chain(input.commands.iter().map(|command| &command.update));
    for update in updates {
        for (field, write) in update.clone() {
            let name = layout.name(field).to_string();
            let value = match write.told_of().and_then(|told| told.of.as_ref()) {
                Some(of) => list_value(of),
                None => layout.write_to_value(field, &write)?,
            };
            pairs.push(Value::List(vec![Value::from(name.as_str()), value.clone()]));
            map.insert(name, value);
        }
    }
    let targets: Vec<Value> = input.commands.iter().flat_map(|command| &command.goto).map(target_value).collect();
    if targets.is_empty() && map.len() == pairs.len() {
        return Ok(Value::Map(map));
    }
    Ok(Value::List(vec![Value::List(pairs), Value::List(targets)]))
}

/// The extension of MessagePack that stands for a list which is stored elsewhere.
const LIST: i8 = 106;

/// Returns what stands for a list that is stored: the checkpoint, the namespace, and the channel.
fn list_value(of: &ListRef) -> Value {
    let parts = [of.checkpoint.as_bytes(), of.namespace.as_str().as_bytes(), &[0], of.channel.as_bytes()];
    Value::Ext(LIST, parts.concat())
}

/// Returns the list that a value stands for.
fn list_of(value: &Value) -> Option<ListRef> {
    let Value::Ext(LIST, bytes) = value else { return None };
    let (id, names) = bytes.split_at_checked(16)?;
    let (namespace, channel) = std::str::from_utf8(names).ok()?.split_once('\0')?;
    let checkpoint = CheckpointId::from_bytes(id.try_into().ok()?);
    Some(ListRef::new(Namespace::new(namespace).ok()?, checkpoint, channel))
}

fn target_value(target: &Target) -> Value {
    match target {
        Target::Node(node) => Value::from(&**node),
        Target::Send(send) => Value::List(vec![Value::from(&*send.node), send.arg.clone()]),
    }
}

/// Reads an input that [`input_value`] made, but for the lists that are stored elsewhere, which come by their fields.
/// Channels that the graph does not have are dropped.
pub(super) fn input_from(graph: &Graph, value: Value) -> Result<(NodeOutput, Vec<(usize, ListRef)>), RunError> {
    let mut writes = Writes::default();
    let mut commands = Vec::new();
    let mut lists = Vec::new();
    let mut write = |channel: &str, value: Value| -> Result<(), RunError> {
        let field = graph.by_channel.get(channel).filter(|channel| graph.is_field(**channel));
        if let (Some(field), Some(of)) = (field, list_of(&value)) {
            lists.push((*field as usize, of));
        } else if let Some(field) = field {
            writes.push_box(*field as usize, graph.layout.write_from_value(*field as usize, value)?);
        }
        Ok(())
    };
    match value {
        Value::Map(map) => map.into_iter().try_for_each(|(channel, value)| write(&channel, value))?,
        Value::List(parts) => {
            let mut parts = parts.into_iter().map(|part| part.as_list().map(<[Value]>::to_vec).unwrap_or_default());
            for pair in parts.next().unwrap_or_default() {
                if let Some([channel, value]) = pair.as_list() {
                    write(channel.as_str().unwrap_or_default(), value.clone())?;
                }
            }
            let target = |value: &Value| match value.as_list() {
                Some([node, arg]) => Target::Send(SendTo::new(node.as_str().unwrap_or_default(), arg.clone())),
                _ => Target::from(value.as_str().unwrap_or_default()),
            };
            let goto: Vec<Target> = parts.next().unwrap_or_default().iter().map(target).collect();
            if !goto.is_empty() {
                commands.push(Command { goto, ..Command::default() });
            }
        }
        _ => {}
    }
    Ok((NodeOutput { writes, commands }, lists))
}
