//! Shows the content of a store: a line of JSON for each thread, checkpoint, timer and entry.

use annals::base::{Codec, ItemIndexRef, Timestamp};
use annals::store::batch::{Payload, WriteValue};
use annals::store::log::{CheckpointQuery, Log, LogExt};
use annals::store::record::{ChannelValue, CheckpointRecord, TaskKind};
use annals::store::{CheckpointRef, ItemRange};
use serde_json::{Value, json};

/// Of a namespace with more checkpoints a ninth is shown.
const LONG: usize = 50;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn short(text: &str) -> String {
    if text.len() > 100 { format!("{}... {}", &text[..40], text.len()) } else { text.into() }
}

fn payload(codec: Codec, data: &[u8], index: Option<ItemIndexRef<'_>>) -> Value {
    let mut shown = vec![json!(codec.to_tag()), json!(short(&hex(data)))];
    if let Some(index) = index {
        let tokens = (index.input_tokens, index.output_tokens);
        let text = index.text.map(short);
        shown.push(json!([index.id, index.kind, index.name, index.tool_calls, text, tokens.0, tokens.1]));
    }
    shown.into()
}

fn owned(of: &Payload) -> Value {
    payload(of.codec, &of.data, of.index.as_ref().map(|index| index.as_ref().as_ref()))
}

fn point(of: &CheckpointRef) -> Value {
    json!([of.thread.as_str(), of.namespace.as_str(), of.checkpoint.to_string()])
}

fn written(value: &WriteValue) -> Value {
    match value {
        WriteValue::Null => Value::Null,
        WriteValue::One(payload) => json!({ "one": owned(payload) }),
        WriteValue::Items(items) => json!({ "items": items.iter().map(owned).collect::<Vec<_>>() }),
        WriteValue::Delta(delta) => json!({
            "delta": [delta.of.namespace.as_str(), &delta.of.checkpoint.to_string(), &*delta.of.channel],
            "removed": delta.removed.iter().map(|range| [range.start, range.end]).collect::<Vec<_>>(),
            "positions": delta.positions,
            "items": delta.items.iter().map(owned).collect::<Vec<_>>(),
        }),
    }
}

fn record(of: &CheckpointRecord) -> Value {
    let tasks = of.tasks.iter().map(|task| match &task.kind {
        TaskKind::Pull { triggers } => json!([task.id.to_string(), task.name, triggers]),
        TaskKind::Push { index } => json!([task.id.to_string(), task.name, index]),
    });
    let parents = of.parents.iter().map(|(namespace, id)| json!([namespace.as_str(), id.to_string()]));
    json!({
        "id": of.point.checkpoint.to_string(),
        "seq": of.seq,
        "parent": of.parent.map(|parent| parent.to_string()),
        "forked_from": of.forked_from.as_ref().map(point),
        "branch": of.branch,
        "ordinal": of.ordinal,
        "step": of.step,
        "source": of.source.as_str(),
        "created_at": of.created_at.as_micros(),
        "run": of.run.as_ref().map(|run| hex(run.as_bytes())),
        "metadata": of.metadata,
        "parents": parents.collect::<Vec<_>>(),
        "tasks": tasks.collect::<Vec<_>>(),
    })
}

/// Returns the channels at a checkpoint. Of a list the last items are shown.
fn channels(store: &dyn Log, at: &CheckpointRef) -> Value {
    let mut shown = Vec::new();
    for channel in store.state(at).unwrap().channels {
        let value = match &channel.value {
            ChannelValue::Empty => Value::Null,
            ChannelValue::Value(payload) => owned(payload),
            ChannelValue::Items => {
                let mut items = Vec::new();
                let mut visit = |row: annals::store::record::ItemRow<'_>| {
                    let of = payload(row.payload.codec, row.payload.data, row.payload.index);
                    items.push(json!([row.position, row.ordinal, row.task, of]));
                    Ok(())
                };
                store.items(at, &channel.channel, ItemRange::All, &mut visit).unwrap();
                assert_eq!(store.list_len(at, &channel.channel).unwrap(), items.len() as u64);
                json!({ "len": items.len(), "items": items[items.len().saturating_sub(3)..] })
            }
        };
        shown.push(json!([channel.channel, channel.version, channel.ordinal, channel.task, value]));
    }
    shown.into()
}

fn namespace(store: &dyn Log, query: &CheckpointQuery, lines: &mut Vec<Value>) {
    let records = store.checkpoints(query).unwrap();
    let is_long = records.len() > LONG;
    for of in records.into_iter().filter(|of| !is_long || of.ordinal.is_multiple_of(9)) {
        let state = store.state(&of.point).unwrap();
        let writes = store.writes(&of.point).unwrap();
        let writes = writes.iter().map(|write| {
            json!([write.task.to_string(), write.path, write.index, write.channel, written(&write.value)])
        });
        let mut line = record(&of);
        line["channels"] = channels(store, &of.point);
        line["seen"] = state.seen.iter().map(|seen| json!([seen.node, seen.versions])).collect();
        line["updated"] = json!(state.updated);
        line["writes"] = writes.collect();
        lines.push(line);
    }
}

/// Shows a store.
pub(super) fn show(store: &dyn Log) -> Vec<Value> {
    let mut lines = Vec::new();
    for thread in store.threads(None, 1_000).unwrap() {
        let size = store.thread_size(&thread.id).unwrap();
        lines.push(json!({
            "thread": thread.id.as_str(),
            "created_at": thread.created_at.as_micros(),
            "head": thread.head.point.checkpoint.to_string(),
            "checkpoints": size.checkpoints,
            "branches": size.branches,
        }));
        for path in store.namespaces(&thread.id).unwrap() {
            lines.push(json!({ "namespace": path.as_str() }));
            let mut query = CheckpointQuery::new(thread.id.clone(), path);
            query.limit = 10_000;
            namespace(store, &query, &mut lines);
        }
    }
    for timer in store.timers(None, 1_000).unwrap() {
        let (task, wake_at) = (timer.task.to_string(), timer.wake_at.as_micros());
        lines.push(json!({ "timer": point(&timer.point), "task": task, "wake_at": wake_at }));
    }
    let mut entry = |of: &annals::store::log::KvRecord| {
        lines.push(json!({
            "kv": of.namespace.path(),
            "key": of.key,
            "created_at": of.created_at.as_micros(),
            "updated_at": of.updated_at.as_micros(),
            "expires_at": of.expires_at.map(|at| at.as_micros()),
            "value": [of.value.codec.to_tag().to_string(), hex(&of.value.bytes)],
        }));
        Ok(true)
    };
    store.side_tables().unwrap().kv_entries(None, Timestamp::from_micros(0), &mut entry).unwrap();
    lines
}
