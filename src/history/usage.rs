//! Tokens and costs of model calls, summed by day, thread, node and model.
//!
//! A checkpoint whose metadata has the member `usage`, an object or a list of objects, counts what that says:
//! [`ModelUsage`](super::ModelUsage) writes it. Other checkpoints of the root namespace count the messages with tokens
//! that they put, with the model of `response_metadata`; a message that replaces one with tokens does not count. A
//! pruned checkpoint counts what its metadata says alone. The view `v_usage` has the same rules. *Absent:* prices; the
//! costs are those that the program stated.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::base::limits::INDEX_SNAPSHOT_INTERVAL;
use crate::base::{CheckpointId, Namespace, ThreadId, Value};
use crate::store::counts::{StatedCall, stated_calls};
use crate::store::{CheckpointQuery, CheckpointRecord, ItemRange, Store, StoreError};

use super::snapshot::item_message;

/// A summary of model calls: the threads, and the fields by which calls are summed. Default: one sum over all threads.
#[derive(Clone, Debug, Default)]
pub struct UsageQuery {
    thread: Option<String>,
    by_day: bool,
    by_thread: bool,
    by_node: bool,
    by_model: bool,
}

impl UsageQuery {
    /// Sums over all threads.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts only the calls of a thread.
    pub fn thread(mut self, id: impl Into<String>) -> Self {
        self.thread = Some(id.into());
        self
    }

    /// Sums for each day, UTC.
    pub fn by_day(mut self) -> Self {
        self.by_day = true;
        self
    }

    /// Sums for each thread.
    pub fn by_thread(mut self) -> Self {
        self.by_thread = true;
        self
    }

    /// Sums for each node.
    pub fn by_node(mut self) -> Self {
        self.by_node = true;
        self
    }

    /// Sums for each model.
    pub fn by_model(mut self) -> Self {
        self.by_model = true;
        self
    }
}

/// The sum of model calls that have the same fields.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct UsageTotal {
    /// The date, `2026-11-23`; `None` unless it was asked for.
    pub day: Option<String>,
    /// The thread; `None` unless it was asked for.
    pub thread: Option<ThreadId>,
    /// The node; `None` if it is not known, or was not asked for.
    pub node: Option<Arc<str>>,
    /// The model; `None` if it is not known, or was not asked for.
    pub model: Option<String>,
    /// The number of calls.
    pub calls: u64,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// The stated costs in US dollars.
    pub cost_usd: f64,
}

/// A model call.
#[derive(Default)]
struct ModelCall {
    node: Option<Arc<str>>,
    model: Option<String>,
    input_tokens: u64,
    output_tokens: u64,
    cost_usd: f64,
}

/// The fields of a sum, in the order of the result.
type SumKey = (Option<String>, Option<ThreadId>, Option<Arc<str>>, Option<String>);

impl Store {
    /// Sums the tokens and the costs of model calls. The cost is that of the checkpoints of the threads.
    ///
    /// # Errors
    /// [`StoreError::Id`] for the id of a thread; [`StoreError::Read`], [`StoreError::Corrupt`].
    ///
    /// # Example
    /// ```
    /// use annals::history::{ModelUsage, UsageQuery};
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// let chat = store.thread("trip")?;
    /// for _ in 0..2 {
    ///     let usage = ModelUsage::new(812, 64).cost_usd(0.004).model("m-1");
    ///     chat.write().append("messages", [Message::ai("The Gasthof Post")]).usage(usage).commit()?;
    /// }
    /// let sums = store.usage(UsageQuery::new().by_model())?;
    /// assert_eq!((sums[0].model.as_deref(), sums[0].calls, sums[0].input_tokens), (Some("m-1"), 2, 1_624));
    /// # Ok(())
    /// # }
    /// ```
    pub fn usage(&self, query: UsageQuery) -> Result<Vec<UsageTotal>, StoreError> {
        self.settle_abandoned();
        let threads = match &query.thread {
            Some(id) => vec![ThreadId::new(id)?],
            None => self.threads()?.into_iter().map(|thread| thread.id).collect(),
        };
        let mut sums: BTreeMap<SumKey, UsageTotal> = BTreeMap::new();
        for thread in threads {
            for namespace in self.backend().namespaces(&thread)? {
                each_call(self, &thread, &namespace, &mut |record, call| {
                    let day = || record.created_at.to_string().chars().take(10).collect();
                    let key: SumKey = (
                        query.by_day.then(day),
                        query.by_thread.then(|| thread.clone()),
                        call.node.filter(|_| query.by_node),
                        call.model.filter(|_| query.by_model),
                    );
                    let sum = sums.entry(key).or_default();
                    sum.calls += 1;
                    sum.input_tokens = sum.input_tokens.saturating_add(call.input_tokens);
                    sum.output_tokens = sum.output_tokens.saturating_add(call.output_tokens);
                    sum.cost_usd += call.cost_usd;
                })?;
            }
        }
        debug_assert!(sums.values().all(|sum| sum.calls > 0), "a sum is of calls");
        let named = |((day, thread, node, model), sum)| UsageTotal { day, thread, node, model, ..sum };
        Ok(sums.into_iter().map(named).collect())
    }
}

/// Visits the model calls of a namespace, the oldest first.
fn each_call(
    store: &Store,
    thread: &ThreadId,
    namespace: &Namespace,
    visit: &mut dyn FnMut(&CheckpointRecord, ModelCall),
) -> Result<(), StoreError> {
    let mut query = CheckpointQuery::new(thread.clone(), namespace.clone());
    let mut records: Vec<CheckpointRecord> = Vec::new();
    loop {
        let page = store.backend().checkpoints(&query)?;
        let Some(last) = page.last() else { break };
        query.before = Some(last.point.checkpoint);
        records.extend(page);
    }
    add_pruned(store, &mut records)?;
    let by_id: HashMap<CheckpointId, usize> =
        records.iter().enumerate().map(|(at, record)| (record.point.checkpoint, at)).collect();
    debug_assert!(records.is_sorted_by(|a, b| a.seq > b.seq), "checkpoints come newest first");
    let mut counted = HashSet::new();
    for record in records.iter().rev() {
        let parent = record.parent.and_then(|id| by_id.get(&id)).map(|at| &records[*at]);
        let node = |task: usize| parent.and_then(|parent| parent.tasks.get(task)).map(|task| Arc::clone(&task.name));
        match stated(record) {
            Some(calls) => calls.into_iter().for_each(|call| visit(record, ModelCall { node: node(0), ..call })),
            None if namespace.is_root() && !record.pruned => {
                for (task, call) in messages(store, record, &mut counted)? {
                    let node = task.and_then(|task| node(task as usize));
                    visit(record, ModelCall { node, ..call });
                }
            }
            None => {}
        }
    }
    Ok(())
}

/// Adds the pruned checkpoints of a namespace: each is directly before a kept one, or before a pruned one.
fn add_pruned(store: &Store, records: &mut Vec<CheckpointRecord>) -> Result<(), StoreError> {
    let kept: HashSet<CheckpointId> = records.iter().map(|record| record.point.checkpoint).collect();
    let mut pruned = Vec::new();
    for record in records.iter().filter(|record| record.parent.is_some_and(|parent| !kept.contains(&parent))) {
        let mut end = record.ordinal;
        'run: while end > 0 {
            let first = end.saturating_sub(INDEX_SNAPSHOT_INTERVAL);
            let ordinals: Vec<u64> = (first..end).rev().collect();
            for ancestor in store.backend().ancestors(&record.point, &ordinals)?.into_iter().flatten() {
                if !ancestor.pruned {
                    break 'run;
                }
                pruned.push(ancestor);
            }
            end = first;
        }
    }
    records.extend(pruned);
    records.sort_by_key(|record| std::cmp::Reverse(record.seq));
    Ok(())
}

/// Returns the calls that the metadata of a checkpoint states; `None` if it states nothing.
fn stated(record: &CheckpointRecord) -> Option<Vec<ModelCall>> {
    let call = |StatedCall { model, input_tokens, output_tokens, cost_usd }: StatedCall| ModelCall {
        node: None,
        model,
        input_tokens,
        output_tokens,
        cost_usd,
    };
    stated_calls(record.metadata.as_deref()).map(|calls| calls.into_iter().map(call).collect())
}

/// Returns the messages with tokens that a checkpoint put, each with its task. `counted` has the positions that such a
/// message had before, on each branch.
fn messages(
    store: &Store,
    record: &CheckpointRecord,
    counted: &mut HashSet<(u64, Arc<str>, u64)>,
) -> Result<Vec<(Option<u32>, ModelCall)>, StoreError> {
    let backend = store.backend();
    let mut lists = Vec::new();
    backend.versions(&record.point, None, record.ordinal, &mut |version| {
        let positions = version.positions.clone().filter(|_| version.channel.ordinal == record.ordinal);
        lists.extend(positions.map(|positions| (Arc::clone(&version.channel.channel), positions)));
        Ok(true)
    })?;
    let mut found = Vec::new();
    for (channel, positions) in lists {
        if positions.end == u64::MAX && backend.list_reference(&record.point, &channel)?.is_some() {
            // The items of a referenced list count where they were put.
            continue;
        }
        let range = ItemRange::Positions(positions.start, positions.end);
        backend.items(&record.point, &channel, range, &mut |row| {
            let Some(index) = row.payload.index.filter(|_| row.ordinal == record.ordinal) else { return Ok(()) };
            if index.input_tokens.is_none() && index.output_tokens.is_none() {
                return Ok(());
            }
            if counted.insert((record.branch, Arc::clone(&channel), row.position)) {
                let model = item_message(row.payload)?.and_then(|message| {
                    message.response_metadata.get("model_name").and_then(Value::as_str).map(ToOwned::to_owned)
                });
                let tokens = |count: Option<u32>| u64::from(count.unwrap_or(0));
                let (input_tokens, output_tokens) = (tokens(index.input_tokens), tokens(index.output_tokens));
                found.push((row.task, ModelCall { model, input_tokens, output_tokens, ..ModelCall::default() }));
            }
            Ok(())
        })?;
    }
    Ok(found)
}
