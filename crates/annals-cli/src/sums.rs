//! `annals stats --by`: sums of the history by node, model, day, thread or channel.
//!
//! JSON: `{"schema": 1, "by", "sums": [{"key", "count", "bytes", "input_tokens", "output_tokens", "cost_usd",
//! "seconds"}], "more": bool}`. By several fields a sum has `keys`, an object with each of them, in place of `key`.
//! `count` is that of tasks by node, of items of the present states by channel, else of model calls. Members that a sum
//! does not have are null. `--csv` has the same columns.

use std::collections::BTreeMap;

use annals::history::UsageQuery;
use annals::store::{ChannelValue, ItemRange, Store};
use serde_json::{Value as Json, json};

use crate::args::{StatsArgs, StatsField};
use crate::errors::CommandFailure;
use crate::output::{Printer, grouped, size};
use crate::sql::quoted;
use crate::steps;
use crate::words;

/// The columns after those of the fields.
const COLUMNS: [&str; 6] = ["count", "bytes", "input_tokens", "output_tokens", "cost_usd", "seconds"];

/// The sum of one key.
#[derive(Default)]
struct HistorySum {
    count: u64,
    bytes: Option<u64>,
    seconds: Option<f64>,
    /// The tokens read, those written, and the cost.
    usage: Option<(u64, u64, f64)>,
}

/// The sums by the values of the fields, in their order; the value of what has none is `None`.
type Sums = BTreeMap<Vec<Option<String>>, HistorySum>;

pub(crate) fn run(args: &StatsArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let mut sums = match &args.by[..] {
        [StatsField::Node] => by_node(store)?,
        [StatsField::Channel] => by_channel(store)?,
        fields => usage(store, fields)?,
    };
    let more = sums.len() > args.most();
    if more {
        let first: Sums = std::mem::take(&mut sums).into_iter().take(args.most()).collect();
        sums = first;
    }
    let names: Vec<&str> = args.by.iter().map(|field| field.as_str()).collect();
    if out.is_json() {
        let documents: Vec<Json> = sums.iter().map(|(key, sum)| sum.document(&names, key)).collect();
        out.json(&json!({ "schema": 1, "by": names.join(","), "sums": documents, "more": more }))?;
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
        let (input, output, cost) = sum.usage.unwrap_or_default();
        let of_usage = |text: String| sum.usage.map(|_| text).unwrap_or_default();
        let mut row: Vec<String> =
            key.iter().map(|value| value.as_deref().map_or_else(|| "(none)".to_owned(), words::node)).collect();
        row.extend([
            grouped(sum.count),
            sum.bytes.map(size).unwrap_or_default(),
            of_usage(grouped(input)),
            of_usage(grouped(output)),
            of_usage(format!("{cost:.4}")),
            sum.seconds.map(|seconds| format!("{seconds:.3}")).unwrap_or_default(),
        ]);
        cells.push(row);
    }
    steps::table(&cells, more, "the store has nothing to sum", out)
}

impl HistorySum {
    fn document(&self, names: &[&str], key: &[Option<String>]) -> Json {
        let mut document = json!({});
        match key {
            [one] => document["key"] = json!(one),
            several => names.iter().zip(several).for_each(|(name, value)| document["keys"][*name] = json!(value)),
        }
        document["count"] = json!(self.count);
        document["bytes"] = json!(self.bytes);
        document["input_tokens"] = json!(self.usage.map(|(input, ..)| input));
        document["output_tokens"] = json!(self.usage.map(|(_, output, _)| output));
        document["cost_usd"] = json!(self.usage.map(|(.., cost)| cost));
        document["seconds"] = json!(self.seconds);
        document
    }
}

/// Sums the model calls.
fn usage(store: &Store, fields: &[StatsField]) -> Result<Sums, CommandFailure> {
    let mut query = UsageQuery::new();
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
    let mut sums = Sums::new();
    for total in store.usage(query)? {
        let value = |field: &StatsField| match field {
            StatsField::Node => total.node.as_ref().map(ToString::to_string),
            StatsField::Model => total.model.clone(),
            StatsField::Day => total.day.clone(),
            StatsField::Thread => total.thread.as_ref().map(|thread| thread.as_str().to_owned()),
            StatsField::Channel => None,
        };
        let sum = sums.entry(fields.iter().map(value).collect()).or_default();
        sum.count = total.calls;
        sum.usage = Some((total.input_tokens, total.output_tokens, total.cost_usd));
    }
    Ok(sums)
}

/// Sums the tasks of the root graphs, and the tasks they called, with their time, and the model calls of each node.
fn by_node(store: &Store) -> Result<Sums, CommandFailure> {
    let mut sums = usage(store, &[StatsField::Node])?;
    sums.values_mut().for_each(|sum| sum.count = 0);
    for record in store.threads()? {
        for step in store.thread(record.id.as_str())?.steps()? {
            let step = step?;
            let sum = sums.entry(vec![Some(step.name.to_string())]).or_default();
            sum.count += 1;
            if let Some(seconds) = steps::seconds(&step) {
                *sum.seconds.get_or_insert(0.0) += seconds;
            }
        }
    }
    Ok(sums)
}

/// Sums the items and the stored bytes of the channels of all heads.
fn by_channel(store: &Store) -> Result<Sums, CommandFailure> {
    let mut sums = Sums::new();
    for record in store.threads()? {
        let Some(head) = store.thread(record.id.as_str())?.head()? else { continue };
        let known = head.channels()?;
        let state = store.backend().state(head.point())?;
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
                    let count = &mut sum.count;
                    store.backend().items(head.point(), &channel.channel, ItemRange::All, &mut |row| {
                        *count += 1;
                        let text = row.payload.index.and_then(|index| index.text);
                        *bytes += (row.payload.data.len() + text.map_or(0, str::len)) as u64;
                        Ok(())
                    })?;
                }
            }
        }
    }
    debug_assert!(sums.keys().flatten().all(|key| key.as_deref() != Some("")), "a channel has a name");
    Ok(sums)
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
