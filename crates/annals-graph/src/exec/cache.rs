//! Keys and encoding of cached task results. *Absent:* the cache itself; a driver reads and writes it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::base::Map;
use crate::base::{Codec, Encoded, ItemIndex, Payload, TaskId, Timestamp, Value, WriteValue};
use crate::graph::{CachePolicy, Graph, INPUT};
use crate::hash::{FieldHasher, digits};
use crate::limits::CACHE_WRITES_MARGIN;
use crate::panicking::panic_text;
use crate::store::{Cache, CacheKey};
use crate::task::task_labels;

use super::call::CallJob;
use super::effect::Effect;
use super::error::RunError;
use super::head::{PendingWrite, PendingWrites};
use super::load::task_writes;
use super::machine::Machine;
use super::task::{StepTask, TaskStatus, TaskWrite, WriteKind, encode, encode_stored, given, mark_end};

/// The cache key of a result and its lifetime.
#[derive(Clone)]
pub(crate) struct CacheEntry {
    pub(crate) key: CacheKey,
    pub(crate) lifetime: Option<Duration>,
}

impl CacheEntry {
    /// Returns the entry for the writes of a call beside its result. It is put first, and its lifetime is longer
    /// by [`CACHE_WRITES_MARGIN`].
    pub(crate) fn beside(&self) -> Self {
        let key = CacheKey::new(self.key.namespace.clone(), format!("{}+", self.key.key));
        Self { key, lifetime: self.lifetime.map(|lifetime| lifetime.saturating_add(CACHE_WRITES_MARGIN)) }
    }
}

/// Returns the cache namespace of the results of a node.
pub(crate) fn node_labels(graph: &Graph, node: &str) -> Vec<String> {
    vec!["nodes".into(), graph.name.clone(), node.into()]
}

impl Machine {
    /// Returns the cache that its driver reads and writes.
    pub(crate) fn cache(&self) -> Option<&Cache> {
        self.env.scope.cache.as_ref()
    }

    /// Looks up the results of the due tasks whose nodes have a cache policy. Returns whether there are any: then the
    /// tasks start once the lookup is reported.
    pub(super) fn look_up(&mut self) -> Result<bool, RunError> {
        if self.env.scope.cache.is_none() {
            return Ok(false);
        }
        self.flush()?;
        let mut known = indexmap::IndexMap::new();
        let graph = Arc::clone(&self.graph);
        for slot in 0..self.planning.tasks.len() {
            let node =
                self.planning.tasks[slot].node.filter(|_| matches!(self.planning.tasks[slot].status, TaskStatus::Due));
            let policy = node.and_then(|node| Some((node, graph.nodes[node].settings.cache.as_ref()?)));
            if let Some((node, policy)) = policy {
                let entry = self.entry_of(slot, node, policy)?;
                // Of tasks with equal keys the last takes the cached result, and the others run, as in the reference.
                known.insert(entry.key.clone(), slot);
                self.planning.tasks[slot].extra.get_or_insert_default().cache = Some(entry);
            }
        }
        if known.is_empty() {
            return Ok(false);
        }
        let (keys, slots) = known.into_iter().unzip();
        self.effects.push_back(Effect::LookUp { slots, keys });
        Ok(true)
    }

    /// Ends the tasks in these slots whose results were found in the cache, and starts the others.
    pub(crate) fn handle_found(&mut self, slots: &[usize], found: Vec<Option<Encoded>>, now: Timestamp) {
        self.now = now;
        for (slot, value) in slots.iter().zip(found) {
            if let Some(mut writes) = value.and_then(|value| known_writes(&self.graph, &value, self.records())) {
                mark_end(&mut writes, self.records());
                self.planning.tasks[*slot].status = TaskStatus::Done(writes);
                self.show_done(*slot, true);
            }
        }
        let due = self.planning.tasks.iter().any(|task| matches!(task.status, TaskStatus::Due));
        let done = if due { self.start_due() } else { self.end_superstep() };
        self.settle(done);
    }

    fn entry_of(&self, slot: usize, node: usize, policy: &CachePolicy) -> Result<CacheEntry, RunError> {
        let graph = &*self.graph;
        let of = &graph.nodes[node];
        let input = match &self.planning.tasks[slot].push {
            Some((_, arg)) => arg.clone(),
            None if graph.entry => graph.layout.to_value(&self.head.state, INPUT as usize)?,
            None => given(graph, of.reads.as_deref(), &self.task_state(), &self.head.present)?,
        };
        let mut hasher = FieldHasher::default();
        hasher
            .bytes(of.function.as_bytes())
            .maybe(of.body.child.as_ref().map(|child| child.name.as_bytes()))
            .bytes(&graph.shape);
        match key(hasher, policy, &input) {
            Ok(key) => {
                let key = CacheKey::new(node_labels(graph, &of.name), key);
                Ok(CacheEntry { key, lifetime: policy.ttl })
            }
            Err(reason) => Err(RunError::NodePanicked { node: of.name.to_string(), reason }),
        }
    }
}

/// Returns the cache entry for the result of a call; `None` if the result is not cached.
pub(crate) fn call_entry(job: &CallJob) -> Option<CacheEntry> {
    let graph = &job.context.parts().place.graph;
    // The cache policy of an entrypoint is the default for the tasks it calls.
    let around = graph.entry.then(|| graph.nodes[0].settings.cache.as_ref()).flatten();
    let policy = job.call.cache.as_ref().or(around)?;
    let mut hasher = FieldHasher::default();
    hasher.bytes(job.call.function.as_bytes());
    // An input that cannot be told from others, or that its key function chokes on, is not looked up.
    let key = key(hasher, policy, &(job.call.input)()?).ok()?;
    Some(CacheEntry { key: CacheKey::new(task_labels(&job.call.name), key), lifetime: policy.ttl })
}

/// Returns the key of an input, in hexadecimal digits; the reason if its function panics.
fn key(mut hasher: FieldHasher, policy: &CachePolicy, input: &Value) -> Result<String, String> {
    match &policy.key {
        Some(own) => {
            let own = catch_unwind(AssertUnwindSafe(|| own(input))).map_err(|panic| panic_text(&*panic))?;
            hasher.int(1).bytes(&own);
        }
        None => add(hasher.int(0), input),
    }
    Ok(digits(hasher.finish()))
}

/// Adds a value to a checksum, with the members of objects in the order of their names, so that equal values have
/// equal checksums.
fn add(hasher: &mut FieldHasher, value: &Value) {
    match value {
        Value::Null => _ = hasher.int(0),
        Value::Bool(b) => _ = hasher.int(1).int((*b).into()),
        Value::Int(n) => _ = hasher.int(2).int(*n),
        Value::UInt(n) => match i64::try_from(*n) {
            Ok(n) => _ = hasher.int(2).int(n),
            Err(_) => _ = hasher.int(3).int(n.cast_signed()),
        },
        // Zero has two forms.
        Value::Float(x) => _ = hasher.int(4).int((*x + 0.0).to_bits().cast_signed()),
        Value::Str(text) => _ = hasher.int(5).bytes(text.as_bytes()),
        Value::Bytes(bytes) => _ = hasher.int(6).bytes(bytes),
        Value::List(items) => {
            hasher.int(7).int(items.len() as i64);
            items.iter().for_each(|item| add(hasher, item));
        }
        Value::Map(map) => {
            hasher.int(8).int(map.len() as i64);
            let mut members: Vec<_> = map.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            for (name, value) in members {
                add(hasher.bytes(name.as_bytes()), value);
            }
        }
        Value::Ext(kind, bytes) => _ = hasher.int(9).int((*kind).into()).bytes(bytes),
    }
}

/// Returns the effect that caches the writes of a task, including those that trigger other nodes; `None` if they are
/// not cached.
pub(super) fn keep(graph: &Graph, task: &StepTask, writes: &[TaskWrite]) -> Option<Effect> {
    let entry = task.extra.as_ref()?.cache.clone()?;
    Some(Effect::Keep { key: entry.key, value: kept_writes(graph, writes)?, lifetime: entry.lifetime })
}

/// Returns the cached encoding of writes.
pub(super) fn kept_writes(graph: &Graph, writes: &[TaskWrite]) -> Option<Encoded> {
    let kept = writes.iter().map(|write| {
        let value = match &write.kind {
            // Includes the parts of the argument that last for one run: they are part of the result.
            WriteKind::Send(send) => WriteValue::One(Encoded::encode(&(&*send.node, &send.arg)).ok()?.into()),
            // A given list is cached with all its items, independent of the list that it refers to.
            WriteKind::Field(Some(value)) => {
                let field = write.channel as usize;
                graph.layout.encode_write(field, &graph.layout.plain(field, value)).ok()?
            }
            _ => encode(graph, write).ok()?,
        };
        let (kind, payloads) = match &value {
            WriteValue::Null => (0, Vec::new()),
            WriteValue::One(payload) => (1, vec![packed(payload)]),
            WriteValue::Items(items) => (2, items.iter().map(packed).collect()),
            WriteValue::Delta(_) => return None,
        };
        Some(vec![Value::from(&*graph.channels[write.channel as usize]), kind.into(), payloads.into()].into())
    });
    Encoded::encode(&Value::List(kept.collect::<Option<_>>()?)).ok()
}

/// Decodes cached writes; `None` if they do not fit this graph.
pub(super) fn known_writes(graph: &Graph, kept: &Encoded, record: bool) -> Option<Vec<TaskWrite>> {
    let kept: Vec<(String, u8, Vec<Value>)> = kept.decode().ok()?;
    let count = kept.len();
    let writes = kept.into_iter().enumerate().map(|(at, (channel, kind, payloads))| {
        let mut payloads = payloads.iter().map(unpacked).collect::<Option<Vec<_>>>()?;
        let value = match kind {
            0 => WriteValue::Null,
            1 => WriteValue::One(payloads.pop()?),
            _ => WriteValue::Items(payloads),
        };
        Some(PendingWrite { index: at as i32, channel: channel.into(), value, base: None })
    });
    let pending = PendingWrites { task: TaskId::default(), path: "".into(), writes: writes.collect::<Option<_>>()? };
    let mut writes = task_writes(graph, &pending).ok().filter(|writes| writes.len() == count)?;
    if record {
        encode_stored(graph, &mut writes).ok()?;
    }
    Some(writes)
}

/// Packs a payload into a list of its codec, its bytes and its index data.
fn packed(payload: &Payload) -> Value {
    let index = payload.index.as_ref().map(|index| {
        let text = |text: &Option<Arc<str>>| Value::from(text.as_deref());
        let members = [
            ("id", text(&index.id)),
            ("kind", text(&index.kind)),
            ("name", text(&index.name)),
            ("tool_calls", index.tool_calls.clone().into()),
            ("text", index.text.clone().into()),
            ("input_tokens", index.input_tokens.into()),
            ("output_tokens", index.output_tokens.into()),
        ];
        members.into_iter().map(|(name, value)| (name.to_string(), value)).collect::<Map>()
    });
    vec![payload.codec.to_tag().into(), Value::Bytes(payload.data.clone()), index.into()].into()
}

fn unpacked(value: &Value) -> Option<Payload> {
    let [codec, Value::Bytes(data), index] = value.as_list()? else { return None };
    let text = |name: &str| Some(index.get(name)?.as_str()?.to_owned());
    let count = |name: &str| u32::try_from(index.get(name)?.as_int()?).ok();
    let mut payload = Payload::new(data.clone()).with_codec(Codec::from_tag(u8::try_from(codec.as_int()?).ok()?));
    if index.as_map().is_some() {
        let mut fields = ItemIndex::default();
        fields.id = text("id").map(Into::into);
        fields.kind = text("kind").map(Into::into);
        fields.name = text("name").map(Into::into);
        fields.tool_calls = text("tool_calls");
        fields.text = text("text");
        fields.input_tokens = count("input_tokens");
        fields.output_tokens = count("output_tokens");
        payload = payload.with_index(fields);
    }
    Some(payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(value: Value) -> String {
        key(FieldHasher::default(), &CachePolicy::new(), &value).unwrap()
    }

    #[test]
    fn equal_values_have_one_key_whatever_the_order_of_their_members() {
        let (a, b) = (json!({"a": 1, "b": {"c": [1, 2], "d": null}}), json!({"b": {"d": null, "c": [1, 2]}, "a": 1}));
        assert_eq!(of(a.into()), of(b.into()));
        assert_eq!(of(Value::UInt(7)), of(Value::Int(7)));
        assert_eq!(of((-0.0).into()), of(0.0.into()));
    }

    #[test]
    fn different_values_have_different_keys() {
        let values =
            json!([null, false, 0, 0.0, "", [], {}, [[]], ["ab"], ["a", "b"], {"a": "b"}, {"ab": ""}, u64::MAX, -1]);
        let mut keys: Vec<_> = Value::from(values).as_list().unwrap().iter().cloned().map(of).collect();
        keys.push(of(Value::Bytes(Vec::new())));
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count);
        let own = CachePolicy::new().key(|_| "");
        assert_ne!(key(FieldHasher::default(), &own, &Value::Null).unwrap(), of(Value::from("")));
    }

    #[test]
    fn a_key_keeps_its_value() {
        let value = json!({"b": [1, -0.0, "x", null], "a": true});
        assert_eq!(of(value.into()), "e6eb06d2d9acfea7338ea6678be1aafb");
        assert_eq!(of(Value::Bytes(vec![7; 3 << 14])), "bfc26ca62e265817b77d9e71364e18db");
        let own = CachePolicy::new().key(|_| "own");
        let mut hasher = FieldHasher::default();
        hasher.bytes(b"f").maybe(Some(b"child")).maybe(None).bytes(&[3; 16]);
        assert_eq!(key(hasher, &own, &Value::Null).unwrap(), "2e6e443b7374ab1c55f2b85ccc440727");
    }

    #[test]
    fn a_key_that_panics_is_an_error() {
        let own = CachePolicy::new().key(|_| -> Vec<u8> { panic!("no key") });
        assert_eq!(key(FieldHasher::default(), &own, &Value::Null), Err("no key".into()));
    }

    #[test]
    fn a_payload_is_packed_whole() {
        let mut index = ItemIndex::default();
        (index.id, index.text, index.input_tokens) = (Some("1".into()), Some("hi".into()), Some(3));
        let whole = Payload::new(vec![1, 0xff]).with_index(index);
        for payload in [whole, Payload::default().with_codec(Codec::Foreign(9))] {
            let encoded = Encoded::encode(&packed(&payload)).unwrap();
            assert_eq!(unpacked(&encoded.decode().unwrap()), Some(payload));
        }
        assert_eq!(unpacked(&Value::from("rot")), None);
    }
}
