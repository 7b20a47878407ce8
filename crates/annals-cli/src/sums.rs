//! `annals stats --by`: sums of the history by node, model, day, thread or channel.
//!
//! JSON: `{"schema": 1, "by", "sums": [{"key", "count", "bytes", "input_tokens", "output_tokens", "cost_usd",
//! "seconds"}], "more": bool, "older": bool}`. By several fields a sum has `keys`, an object with each of them, in
//! place of `key`.
//! `count` is that of tasks by node, of items of the present states by channel, else of model calls; `bytes` are those
//! of the present states by channel, else those that checkpoints wrote. Members that a sum does not have are null.
//! `--csv` has the same columns. `older` says that the log has checkpoints before those that are counted.
//!
//! Invariant: the cost is that of the checkpoints that are counted, however long the log is.

use std::collections::{BTreeMap, HashMap, HashSet};

use annals::base::{CheckpointId, ThreadId};
use annals_runs::ThreadRuns;

use annals::history::{Thread, UsageQuery, UsageTotal};
use annals::store::record::ChannelValue;
use annals::store::{ItemRange, Store};
use serde_json::{Value as Json, json};

use crate::args::{StatsArgs, StatsField};
use crate::errors::CommandFailure;
use crate::output::{self, Printer, grouped, size};
use crate::prices::PriceTable;
use crate::sql::quoted;
use crate::steps;
use crate::words;

/// The columns after those of the fields.
const COLUMNS: [&str; 6] = ["count", "bytes", "input_tokens", "output_tokens", "cost_usd", "seconds"];

/// Threads or checkpoints of a page.
const PAGE: usize = 1_000;

/// The sum of one key.
#[derive(Default)]
struct HistorySum {
    count: u64,
    bytes: Option<u64>,
    seconds: Option<f64>,
    /// The tokens read, and those written.
    tokens: Option<(u64, u64)>,
    /// The sum of the costs that are known.
    cost_usd: Option<f64>,
    /// The model calls whose cost is not known.
    unpriced_calls: u64,
}

/// The sums by the values of the fields, in their order; the value of what has none is `None`.
type Sums = BTreeMap<Vec<Option<String>>, HistorySum>;

pub(crate) fn run(args: &StatsArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let newest = Some(args.last).filter(|last| *last > 0);
    let older = match newest {
        Some(newest) => store.position(newest)? != store.position(u64::MAX)?,
        None => false,
    };
    let prices = PriceTable::open(args.prices.as_deref())?;
    let mut sums = match &args.by[..] {
        [StatsField::Node] => by_node(store, newest, &prices)?,
        [StatsField::Channel] => by_channel(store, newest)?,
        fields => usage(store, fields, newest, &prices)?,
    };
    if older && !out.is_json() {
        output::note(format!("of the newest {} checkpoints; --last 0 counts all", grouped(args.last)));
    }
    let more = sums.len() > args.most();
    if more {
        let first: Sums = std::mem::take(&mut sums).into_iter().take(args.most()).collect();
        sums = first;
    }
    let names: Vec<&str> = args.by.iter().map(|field| field.as_str()).collect();
    if out.is_json() {
        let documents: Vec<Json> = sums.iter().map(|(key, sum)| sum.document(&names, key)).collect();
        out.json(&json!({ "schema": 1, "by": names.join(","), "sums": documents, "more": more, "older": older }))?;
        return Ok(u8::from(sums.is_empty()));
    }
    let titles = [&names[..], &COLUMNS].concat();
    if args.csv {
        out.raw_line(&titles.join(","))?;
        for (key, sum) in &sums {
            let document = sum.document(&names, key);
            let cell = |value: &Json| match value {
                Json::Null => String::new(),
                Json::String(text) => quoted(text),
                number => number.to_string(),
            };
            let keys = key.iter().map(|value| cell(&json!(value)));
            let cells = keys.chain(COLUMNS.iter().map(|title| cell(&document[title])));
            out.raw_line(&cells.collect::<Vec<_>>().join(","))?;
        }
        return Ok(u8::from(sums.is_empty()));
    }
    let title = |title: &&str| title.to_uppercase().replace('_', " ");
    let mut cells = vec![titles.iter().map(title).collect::<Vec<_>>()];
    for (key, sum) in &sums {
        let (input, output) = sum.tokens.unzip();
        let tokens = |count: Option<u64>| count.map(grouped).unwrap_or_default();
        let mut row: Vec<String> =
            key.iter().map(|value| value.as_deref().map_or_else(|| "(none)".to_owned(), words::node)).collect();
        row.extend([
            grouped(sum.count),
            sum.bytes.map(size).unwrap_or_default(),
            tokens(input),
            tokens(output),
            sum.shown_cost(),
            sum.seconds.map(|seconds| format!("{seconds:.3}")).unwrap_or_default(),
        ]);
        cells.push(row);
    }
    let unpriced: u64 = sums.values().map(|sum| sum.unpriced_calls).sum();
    let code = steps::table(&cells, more, "the store has nothing to sum", out)?;
    if unpriced > 0 {
        out.flush()?;
        output::note(format!(
            "{} without a known price; --prices FILE names prices",
            output::count(unpriced as usize, "model call")
        ));
    }
    Ok(code)
}

impl HistorySum {
    /// Returns the cost as a table shows it: with a sign behind it if more calls have no known cost.
    fn shown_cost(&self) -> String {
        match (self.cost_usd, self.unpriced_calls) {
            (Some(cost), 0) => format!("{cost:.4}"),
            (Some(cost), _) => format!("{cost:.4}+"),
            (None, 0) => String::new(),
            (None, _) => "unknown".to_owned(),
        }
    }

    fn document(&self, names: &[&str], key: &[Option<String>]) -> Json {
        let mut document = json!({});
        match key {
            [one] => document["key"] = json!(one),
            several => names.iter().zip(several).for_each(|(name, value)| document["keys"][*name] = json!(value)),
        }
        document["count"] = json!(self.count);
        document["bytes"] = json!(self.bytes);
        let (input, output) = self.tokens.unzip();
        document["input_tokens"] = json!(input);
        document["output_tokens"] = json!(output);
        document["cost_usd"] = json!(self.cost_usd);
        document["unpriced_calls"] = json!(self.unpriced_calls);
        document["seconds"] = json!(self.seconds);
        document
    }
}

/// Sums the model calls, and by fields that all checkpoints have what these wrote and how long they took.
fn usage(
    store: &Store,
    fields: &[StatsField],
    newest: Option<u64>,
    prices: &PriceTable,
) -> Result<Sums, CommandFailure> {
    let mut query = UsageQuery::new();
    if let Some(newest) = newest {
        query = query.newest(newest);
    }
    for field in fields {
        query = match field {
            StatsField::Node => query.by_node(),
            StatsField::Model => query.by_model(),
            StatsField::Day => query.by_day(),
            StatsField::Thread => query.by_thread(),
            StatsField::Channel => {
                let message = "--by channel sums items, and stands by itself: other fields sum model calls";
                return Err(CommandFailure::usage(message.to_owned()));
            }
        };
    }
    let key = |total: &UsageTotal| fields.iter().map(|field| value(total, field)).collect::<Vec<_>>();
    let mut sums = Sums::new();
    for total in store.usage(query.clone().measured())? {
        let sum = sums.entry(key(&total)).or_default();
        sum.count = total.calls;
        sum.bytes = total.bytes;
        if total.calls > 0 {
            sum.tokens = Some((total.input_tokens, total.output_tokens));
        }
        sum.seconds = total.time.map(|time| time.as_secs_f64());
    }
    // A price is that of a model on a day.
    for total in store.usage(query.by_model().by_day())?.into_iter().filter(|total| total.calls > 0) {
        let sum = sums.entry(key(&total)).or_default();
        match prices.cost(&total) {
            Some(cost) => *sum.cost_usd.get_or_insert(0.0) += cost,
            None => sum.unpriced_calls += total.calls,
        }
    }
    Ok(sums)
}

/// Returns the value of a field of a sum.
fn value(total: &UsageTotal, field: &StatsField) -> Option<String> {
    match field {
        StatsField::Node => total.node.as_ref().map(ToString::to_string),
        StatsField::Model => total.model.clone(),
        StatsField::Day => total.day.clone(),
        StatsField::Thread => total.thread.as_ref().map(|thread| thread.as_str().to_owned()),
        StatsField::Channel => None,
    }
}

/// Sums the tasks of the root graphs, and the tasks they called, with their time, and the model calls of each node.
fn by_node(store: &Store, newest: Option<u64>, prices: &PriceTable) -> Result<Sums, CommandFailure> {
    let mut sums = usage(store, &[StatsField::Node], newest, prices)?;
    // The steps have the times of these tasks too.
    sums.values_mut().for_each(|sum| (sum.count, sum.seconds) = (0, None));
    each_thread(store, newest, &mut |thread, counted| {
        for step in thread.steps()? {
            let step = step?;
            // Those of older checkpoints come after it.
            if counted.is_some_and(|counted| !counted.contains(&step.point.checkpoint)) {
                break;
            }
            let sum = sums.entry(vec![Some(step.name.to_string())]).or_default();
            sum.count += 1;
            sum.bytes = sum.bytes.or(Some(0));
            if let Some(seconds) = steps::seconds(&step) {
                *sum.seconds.get_or_insert(0.0) += seconds;
            }
        }
        Ok(())
    })?;
    Ok(sums)
}

/// Sums the items, the bytes and the tokens of the channels of all heads.
fn by_channel(store: &Store, newest: Option<u64>) -> Result<Sums, CommandFailure> {
    let mut sums = Sums::new();
    each_thread(store, newest, &mut |thread, _| {
        let Some(head) = thread.head()? else { return Ok(()) };
        let known = head.channels()?;
        let state = head.state_record()?;
        for channel in state.channels.into_iter().filter(|channel| known.contains(&channel.channel)) {
            let sum = sums.entry(vec![Some(channel.channel.to_string())]).or_default();
            let bytes = sum.bytes.get_or_insert(0);
            match &channel.value {
                ChannelValue::Empty => {}
                ChannelValue::Value(value) => {
                    sum.count += 1;
                    *bytes += value.len() as u64;
                }
                ChannelValue::Items => {
                    let (count, tokens) = (&mut sum.count, &mut sum.tokens);
                    head.visit_items(&channel.channel, ItemRange::All, |row| {
                        *count += 1;
                        *bytes += row.payload.data.len() as u64;
                        let Some(index) = row.payload.index else { return Ok(()) };
                        *bytes += index.text.map_or(0, str::len) as u64;
                        if index.input_tokens.or(index.output_tokens).is_some() {
                            let (input, output) = tokens.get_or_insert((0, 0));
                            *input += u64::from(index.input_tokens.unwrap_or(0));
                            *output += u64::from(index.output_tokens.unwrap_or(0));
                        }
                        Ok(())
                    })?;
                }
            }
        }
        Ok(())
    })?;
    debug_assert!(sums.keys().flatten().all(|key| key.as_deref() != Some("")), "a channel has a name");
    Ok(sums)
}

/// The function that visits a thread, with those of its checkpoints that count unless all do.
type VisitThread<'a> = &'a mut dyn FnMut(Thread, Option<&HashSet<CheckpointId>>) -> Result<(), CommandFailure>;

/// Visits all threads, a page at a time, or those of the newest checkpoints of the log.
fn each_thread(store: &Store, newest: Option<u64>, visit: VisitThread<'_>) -> Result<(), CommandFailure> {
    if let Some(newest) = newest {
        let threads = newest_threads(store, newest)?;
        return threads.iter().try_for_each(|(id, counted)| visit(store.thread(id.as_str())?, Some(counted)));
    }
    let mut after = None;
    loop {
        let page = store.threads_after(after.as_ref(), PAGE)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.id.clone());
        page.iter().try_for_each(|record| visit(store.thread(record.id.as_str())?, None))?;
    }
}

/// Returns the threads of the newest checkpoints of the log, each with these checkpoints.
fn newest_threads(store: &Store, newest: u64) -> Result<HashMap<ThreadId, HashSet<CheckpointId>>, CommandFailure> {
    let mut position = store.position(newest)?;
    let mut threads: HashMap<ThreadId, HashSet<CheckpointId>> = HashMap::new();
    loop {
        let (page, after) = store.changes_after(&position, PAGE)?;
        if page.is_empty() {
            return Ok(threads);
        }
        position = after;
        for snapshot in page {
            threads.entry(snapshot.point().thread.clone()).or_default().insert(snapshot.id());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_names_only_what_it_has() {
        let sum = HistorySum { count: 2, bytes: Some(10), ..HistorySum::default() };
        let document = sum.document(&["channel"], &[Some("messages".to_owned())]);
        assert_eq!((&document["bytes"], &document["cost_usd"]), (&json!(10), &Json::Null));
    }
}
