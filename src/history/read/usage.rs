//! Tokens and costs of model calls, bytes of written values and times of supersteps, summed by day, thread, node and
//! model.
//!
//! A checkpoint whose metadata has the member `usage`, an object or a list of objects, counts what that says:
//! [`ModelUsage`](crate::history::ModelUsage) writes it. Other checkpoints of the root namespace count the messages
//! with tokens that they put, with the model of `response_metadata`; a message that replaces one with tokens does not
//! count. A pruned checkpoint counts what its metadata says alone. Invariant:
//! the memory is that of the sums, of two pages of checkpoints and of a bit for each message with tokens. *Absent:*
//! prices; the costs are those that the program stated.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::base::{Namespace, PayloadRef, ThreadId, Value, setters};
use crate::limits::INDEX_SNAPSHOT_INTERVAL;
use crate::message::Role;
use crate::store::counts::{StatedCall, stated_calls};
use crate::store::log::LogExt;
use crate::store::record::{ChannelRecord, ChannelValue, CheckpointRecord, is_control};
use crate::store::{CheckpointRef, ItemRange, Source, Store, StoreError};

use super::oldest_first::{each_after, each_checkpoint, each_thread};
use super::snapshot::item_message;

/// A summary of model calls: the threads, and the fields by which calls are summed. Default: one sum over all threads.
#[derive(Clone, Debug, Default)]
pub struct UsageQuery {
    thread: Option<String>,
    by_day: bool,
    by_thread: bool,
    by_node: bool,
    by_model: bool,
    measured: bool,
    newest: Option<u64>,
}

impl UsageQuery {
    /// Sums over all threads.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Counts only the calls of a thread.
        pub fn thread(id: impl Into<String>) { .thread = Some(id.into()) }

        /// Counts only the newest checkpoints of the log, at most so many: the cost is theirs, however long the log is.
        /// A message with tokens that replaces one of an older checkpoint counts as a call.
        ///
        /// # Example
        /// ```
        /// use annals::history::{ModelUsage, UsageQuery};
        /// use annals::prelude::*;
        ///
        /// # fn main() -> Result<()> {
        /// let store = Store::memory();
        /// for n in 0..5 {
        ///     store.thread("trip")?.write().set("n", n).usage(ModelUsage::new(812, 64)).commit()?;
        /// }
        /// let sums = store.usage(UsageQuery::new().newest(3))?;
        /// assert_eq!((sums[0].calls, sums[0].output_tokens), (3, 192));
        /// # Ok(())
        /// # }
        /// ```
        pub fn newest(checkpoints: u64) { .newest = Some(checkpoints) }
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

    /// Sums the bytes that checkpoints wrote and the time of supersteps too, so that threads, days and nodes without
    /// model calls have a sum. Every value that was ever written is read for it, one after the other.
    ///
    /// # Example
    /// ```
    /// use annals::history::UsageQuery;
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// store.thread("trip")?.set("city", "Bern")?;
    /// let sums = store.usage(UsageQuery::new().by_thread().measured())?;
    /// // Four letters, and one byte for their number; no node ran.
    /// assert_eq!((sums[0].calls, sums[0].bytes, sums[0].time), (0, Some(5), None));
    /// # Ok(())
    /// # }
    /// ```
    pub fn measured(mut self) -> Self {
        self.measured = true;
        self
    }
}

/// The sum of the model calls, the written values and the supersteps that have the same fields.
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
    /// The part of the tokens read that the provider had cached. A stated call does not say it.
    pub cached_tokens: u64,
    /// The part of the tokens read that the provider wrote into its cache. A stated call does not say it.
    pub cache_write_tokens: u64,
    /// The stated costs in US dollars.
    pub cost_usd: f64,
    /// Bytes of the values and items that checkpoints of all namespaces wrote, as they are encoded; the node is that of
    /// the task that wrote them. `None` unless [measured](UsageQuery::measured), and by model: a stated call does not
    /// say which values came of it.
    pub bytes: Option<u64>,
    /// The time of the supersteps of the root graphs that ended, from the checkpoint at which its tasks were due, waits
    /// for resume values and timers included. The day is that of the end. By node, each task counts its superstep; by
    /// model, a superstep in which a model was called counts once for it, also that of a subgraph. `None` unless
    /// [measured](UsageQuery::measured), and if none ended.
    pub time: Option<Duration>,
}

/// A model call of a thread, as [`Store::usage_calls`] visits it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct UsageCall {
    /// The checkpoint that counts it.
    pub point: CheckpointRef,
    /// The order of the checkpoint in the log.
    pub seq: u64,
    /// The date of the checkpoint, UTC.
    pub day: String,
    /// The node; `None` if it is not known.
    pub node: Option<Arc<str>>,
    /// The model; `None` if it is not known.
    pub model: Option<String>,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// The stated costs in US dollars; `None` if none were.
    pub cost_usd: Option<f64>,
}

/// A model call.
#[derive(Default)]
struct UsageOfCall {
    node: Option<Arc<str>>,
    model: Option<String>,
    input_tokens: u64,
    output_tokens: u64,
    cached_tokens: u64,
    cache_write_tokens: u64,
    cost_usd: f64,
}

/// The fields of a sum, in the order of the result.
type SumKey = (Option<String>, Option<ThreadId>, Option<Arc<str>>, Option<String>);

impl Store {
    /// Sums the tokens and the costs of model calls. The cost is that of the checkpoints that are counted.
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
        self.flush_abandoned();
        let thread = query.thread.as_ref().map(ThreadId::new).transpose()?;
        let after = query.newest.map(|newest| self.backend().follow()?.position(newest)).transpose()?;
        // Pruned checkpoints before the first visited one count if the backend can compare them with the position.
        let first = after.map_or(Some(0), |position| position.number().ok().map(|number| number.saturating_add(1)));
        let mut sums = UsageSums { query: &query, first, sums: BTreeMap::new() };
        let mut add = |thread: ThreadId| {
            for namespace in self.backend().namespaces(&thread)? {
                let mut counted = CountedPositions::default();
                each_checkpoint(self, &thread, &namespace, &mut |record, parent| {
                    sums.add(self, record, parent, &mut counted)
                })?;
            }
            Ok(())
        };
        match (after, thread) {
            (Some(after), thread) => {
                let mut counted: HashMap<(ThreadId, Namespace), CountedPositions> = HashMap::new();
                each_after(self, after, thread.as_ref(), &mut |record, parent| {
                    let place = (record.point.thread.clone(), record.point.namespace.clone());
                    sums.add(self, record, parent, counted.entry(place).or_default())
                })?;
            }
            (None, Some(thread)) => add(thread)?,
            (None, None) => each_thread(self, &mut add)?,
        }
        let mut sums = sums.sums;
        if query.measured && !query.by_model {
            sums.values_mut().for_each(|sum| sum.bytes = sum.bytes.or(Some(0)));
        }
        debug_assert!(query.measured || sums.values().all(|sum| sum.calls > 0), "a sum is of calls");
        let named = |((day, thread, node, model), sum)| UsageTotal { day, thread, node, model, ..sum };
        Ok(sums.into_iter().map(named).collect())
    }
}

impl Store {
    /// Visits the model calls of a thread that [`Store::usage`] counts: each namespace in the order of its checkpoints.
    ///
    /// # Errors
    /// As [`Store::usage`]; and what `visit` returns.
    ///
    /// # Example
    /// ```
    /// use annals::history::ModelUsage;
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// let chat = store.thread("trip")?;
    /// chat.write().append("messages", [Message::ai("The Gasthof Post")]).usage(ModelUsage::new(812, 64)).commit()?;
    /// let mut tokens = Vec::new();
    /// store.usage_calls("trip", &mut |call| {
    ///     tokens.push((call.seq, call.input_tokens));
    ///     Ok(())
    /// })?;
    /// assert_eq!(tokens, [(1, 812)]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn usage_calls(
        &self,
        thread: &str,
        visit: &mut dyn FnMut(&UsageCall) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.flush_abandoned();
        let thread = ThreadId::new(thread)?;
        for namespace in self.backend().namespaces(&thread)? {
            let mut counted = CountedPositions::default();
            each_checkpoint(self, &thread, &namespace, &mut |record, parent| {
                let mut calls = Vec::new();
                if parent.is_some_and(|parent| parent.pruned) {
                    each_pruned(self, record, &mut |pruned, parent| {
                        calls.extend(stated(pruned, parent).into_iter().flatten().map(|call| call.of(pruned)));
                    })?;
                }
                let own = calls_of(self, (record, parent), &mut counted, None)?;
                calls.extend(own.into_iter().map(|call| call.of(record)));
                calls.iter().try_for_each(&mut *visit)
            })?;
        }
        Ok(())
    }
}

impl UsageOfCall {
    /// Returns the call as one that a checkpoint counts.
    fn of(self, record: &CheckpointRecord) -> UsageCall {
        UsageCall {
            point: record.point.clone(),
            seq: record.seq,
            day: day_of(record),
            node: self.node,
            model: self.model,
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            cost_usd: Some(self.cost_usd).filter(|cost| *cost != 0.0),
        }
    }
}

/// Returns the date of a checkpoint.
fn day_of(record: &CheckpointRecord) -> String {
    record.created_at.to_string().chars().take(10).collect()
}

/// The visit of the values that a checkpoint put, each with the node that wrote it.
type VisitPut<'v> = &'v mut dyn FnMut(&Put<'_>, Option<Arc<str>>);

/// Returns the calls of a checkpoint after its parent, and visits what it put if that is asked for.
fn calls_of(
    store: &Store,
    (record, parent): (&CheckpointRecord, Option<&CheckpointRecord>),
    counted: &mut CountedPositions,
    mut visit: Option<VisitPut<'_>>,
) -> Result<Vec<UsageOfCall>, StoreError> {
    let stated = stated(record, parent);
    let counts_messages = stated.is_none() && record.point.namespace.is_root();
    let mut calls = stated.unwrap_or_default();
    if counts_messages || visit.is_some() {
        each_put(store, record, &mut |put| {
            let node = put.task.and_then(|task| node_of(parent, task as usize));
            if counts_messages && let Some(call) = put.message_call(record, counted)? {
                calls.push(UsageOfCall { node: node.clone(), ..call });
            }
            if let Some(visit) = &mut visit {
                visit(&put, node);
            }
            Ok(())
        })?;
    }
    Ok(calls)
}

/// The sums so far.
struct UsageSums<'a> {
    query: &'a UsageQuery,
    /// The `seq` of the first checkpoint that counts; `None`, until one was visited, if the position does not tell it.
    first: Option<u64>,
    sums: BTreeMap<SumKey, UsageTotal>,
}

impl UsageSums<'_> {
    /// Adds a checkpoint, and the pruned ones between it and the kept one before it.
    fn add(
        &mut self,
        store: &Store,
        record: &CheckpointRecord,
        parent: Option<&CheckpointRecord>,
        counted: &mut CountedPositions,
    ) -> Result<(), StoreError> {
        let first = *self.first.get_or_insert(record.seq);
        if parent.is_some_and(|parent| parent.pruned) {
            each_pruned(store, record, &mut |pruned, parent| {
                let stated = stated(pruned, parent).filter(|_| pruned.seq >= first);
                for call in stated.unwrap_or_default() {
                    _ = self.add_call(pruned, call);
                }
            })?;
        }
        let sums_bytes = self.query.measured && !self.query.by_model;
        let mut sum_bytes = |put: &Put<'_>, node: Option<Arc<str>>| {
            if !is_control(put.channel) {
                let bytes = self.sum(record, node, None).bytes.get_or_insert(0);
                *bytes = bytes.saturating_add(put.bytes());
            }
        };
        let visit: Option<VisitPut<'_>> = if sums_bytes { Some(&mut sum_bytes) } else { None };
        let calls = calls_of(store, (record, parent), counted, visit)?;
        let mut called: Vec<SumKey> = calls.into_iter().map(|call| self.add_call(record, call)).collect();
        let Some((tasks, time)) = parent.and_then(|parent| superstep(record, parent)).filter(|_| self.query.measured)
        else {
            return Ok(());
        };
        if !self.query.by_model {
            let nodes = tasks.into_iter().map(Some);
            let wanted = if self.query.by_node { nodes.collect() } else { vec![None] };
            let is_root = record.point.namespace.is_root();
            called = wanted.into_iter().filter(|_| is_root).map(|node| self.key(record, node, None)).collect();
        } else {
            called.sort();
            called.dedup();
        }
        for key in called {
            let sum = self.sums.entry(key).or_default().time.get_or_insert(Duration::ZERO);
            *sum = sum.saturating_add(time);
        }
        Ok(())
    }

    fn add_call(&mut self, record: &CheckpointRecord, call: UsageOfCall) -> SumKey {
        let key = self.key(record, call.node, call.model);
        let sum = self.sums.entry(key.clone()).or_default();
        sum.calls += 1;
        sum.input_tokens = sum.input_tokens.saturating_add(call.input_tokens);
        sum.output_tokens = sum.output_tokens.saturating_add(call.output_tokens);
        sum.cached_tokens = sum.cached_tokens.saturating_add(call.cached_tokens);
        sum.cache_write_tokens = sum.cache_write_tokens.saturating_add(call.cache_write_tokens);
        sum.cost_usd += call.cost_usd;
        key
    }

    fn sum(&mut self, record: &CheckpointRecord, node: Option<Arc<str>>, model: Option<String>) -> &mut UsageTotal {
        self.sums.entry(self.key(record, node, model)).or_default()
    }

    /// Returns the fields of a sum: those that were asked for.
    fn key(&self, record: &CheckpointRecord, node: Option<Arc<str>>, model: Option<String>) -> SumKey {
        let query = self.query;
        (
            query.by_day.then(|| day_of(record)),
            query.by_thread.then(|| record.point.thread.clone()),
            node.filter(|_| query.by_node),
            model.filter(|_| query.by_model),
        )
    }
}

/// Returns the tasks of the superstep that ended with a checkpoint, and its duration. `None` if none did, or if it took
/// the input of a run alone.
fn superstep(record: &CheckpointRecord, parent: &CheckpointRecord) -> Option<(Vec<Arc<str>>, Duration)> {
    let tasks = parent.tasks.iter().filter(|task| !task.takes_input()).map(|task| Arc::clone(&task.name));
    let tasks: Vec<Arc<str>> = tasks.collect();
    if record.source != Source::Loop || tasks.is_empty() {
        return None;
    }
    let micros = record.created_at.as_micros().saturating_sub(parent.created_at.as_micros());
    Some((tasks, Duration::from_micros(u64::try_from(micros).unwrap_or(0))))
}

/// Returns the node of a task of a checkpoint.
fn node_of(parent: Option<&CheckpointRecord>, task: usize) -> Option<Arc<str>> {
    parent.and_then(|parent| parent.tasks.get(task)).map(|task| Arc::clone(&task.name))
}

/// Visits the pruned checkpoints that are directly before a kept one, or before a pruned one, each with the checkpoint
/// before it.
fn each_pruned(
    store: &Store,
    kept: &CheckpointRecord,
    visit: &mut dyn FnMut(&CheckpointRecord, Option<&CheckpointRecord>),
) -> Result<(), StoreError> {
    let (mut end, mut child) = (kept.ordinal, None::<CheckpointRecord>);
    while end > 0 {
        let first = end.saturating_sub(INDEX_SNAPSHOT_INTERVAL);
        let ordinals: Vec<u64> = (first..end).rev().collect();
        for ancestor in store.backend().ancestors(&kept.point, &ordinals)?.into_iter().flatten() {
            if let Some(child) = &child {
                visit(child, Some(&ancestor));
            }
            if !ancestor.pruned {
                return Ok(());
            }
            child = Some(ancestor);
        }
        end = first;
    }
    if let Some(child) = &child {
        visit(child, None);
    }
    Ok(())
}

/// Returns the calls that the metadata of a checkpoint states; `None` if it states nothing.
fn stated(record: &CheckpointRecord, parent: Option<&CheckpointRecord>) -> Option<Vec<UsageOfCall>> {
    let call = |StatedCall { model, input_tokens, output_tokens, cost_usd }: StatedCall| UsageOfCall {
        node: node_of(parent, 0),
        model,
        input_tokens,
        output_tokens,
        cost_usd,
        ..UsageOfCall::default()
    };
    stated_calls(record.metadata.as_deref()).map(|calls| calls.into_iter().map(call).collect())
}

/// A value of a channel or an item of a list, as a checkpoint put it.
struct Put<'a> {
    channel: &'a Arc<str>,
    task: Option<u32>,
    /// The position of an item.
    position: Option<u64>,
    payload: PayloadRef<'a>,
}

/// The positions of a namespace that had a message with tokens, on each branch: bits of 64 positions.
#[derive(Default)]
struct CountedPositions(HashMap<(u64, Arc<str>, u64), u64>);

impl CountedPositions {
    /// Returns whether a position is new.
    fn insert(&mut self, branch: u64, channel: &Arc<str>, position: u64) -> bool {
        let bits = self.0.entry((branch, Arc::clone(channel), position / 64)).or_default();
        let bit = 1 << (position % 64);
        let is_new = *bits & bit == 0;
        *bits |= bit;
        is_new
    }
}

impl Put<'_> {
    /// Returns the bytes of the value, or of the item with its text.
    fn bytes(&self) -> u64 {
        let text = self.payload.index.and_then(|index| index.text);
        (self.payload.data.len() + text.map_or(0, str::len)) as u64
    }

    /// Returns the model call of a message with tokens, unless its position had one before.
    fn message_call(
        &self,
        record: &CheckpointRecord,
        counted: &mut CountedPositions,
    ) -> Result<Option<UsageOfCall>, StoreError> {
        let Some((position, index)) = self.position.zip(self.payload.index) else { return Ok(None) };
        if index.input_tokens.is_none() && index.output_tokens.is_none() {
            return Ok(None);
        }
        if !counted.insert(record.branch, self.channel, position) {
            return Ok(None);
        }
        let message = item_message(self.payload)?;
        let model = message.as_ref().and_then(|message| {
            message.response_metadata.get("model_name").and_then(Value::as_str).map(ToOwned::to_owned)
        });
        let usage = message.as_ref().and_then(|message| match &message.role {
            Role::Ai(ai) => ai.usage.as_deref(),
            _ => None,
        });
        let detail = |name: &str| {
            let count = usage.and_then(|usage| usage.input_token_details.as_ref()?.get(name)?.as_int());
            count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
        };
        let tokens = |count: Option<u32>| u64::from(count.unwrap_or(0));
        Ok(Some(UsageOfCall {
            model,
            input_tokens: tokens(index.input_tokens),
            output_tokens: tokens(index.output_tokens),
            cached_tokens: detail("cache_read"),
            cache_write_tokens: detail("cache_creation"),
            ..UsageOfCall::default()
        }))
    }
}

/// Visits what a checkpoint put into its channels.
fn each_put(
    store: &Store,
    record: &CheckpointRecord,
    visit: &mut dyn FnMut(Put<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let backend = store.backend();
    let mut lists = Vec::new();
    backend.versions(&record.point, None, record.ordinal, &mut |version| {
        let ChannelRecord { channel, value, ordinal, task, .. } = &version.channel;
        if *ordinal != record.ordinal {
            return Ok(true);
        }
        if let ChannelValue::Value(payload) = value {
            visit(Put { channel, task: *task, position: None, payload: payload.as_ref() })?;
        }
        lists.extend(version.positions.clone().map(|positions| (Arc::clone(channel), positions)));
        Ok(true)
    })?;
    for (channel, positions) in lists {
        if positions.end == u64::MAX && backend.list_reference(&record.point, &channel)?.is_some() {
            // The items of a referenced list count where they were put.
            continue;
        }
        let range = ItemRange::Positions(positions.start, positions.end);
        backend.items(&record.point, &channel, range, &mut |row| {
            if row.ordinal != record.ordinal {
                return Ok(());
            }
            visit(Put { channel: &channel, task: row.task, position: Some(row.position), payload: row.payload })
        })?;
    }
    Ok(())
}
