//! `annals stats --by`: sums of the history by node, model, day, thread or channel.
//!
//! JSON: `{"schema": 1, "by", "sums": [{"key", "count", "bytes", "input_tokens", "output_tokens", "cost_usd",
//! "seconds"}], "more": bool}`. `count` is that of tasks by node, of items of the present states by channel, else of model calls.
//! Members that a sum does not have are null. `--csv` has the same columns.

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

/// The sum of one key.
#[derive(Default)]
struct HistorySum {
    count: u64,
    bytes: Option<u64>,
    seconds: Option<f64>,
    /// The tokens read, those written, and the cost.
    usage: Option<(u64, u64, f64)>,
}

/// The sums by key; the key of what has none is `None`.
type Sums = BTreeMap<Option<String>, HistorySum>;

pub(crate) fn run(by: StatsField, args: &StatsArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let (name, mut sums) = match by {
        StatsField::Node => ("node", by_node(store)?),
        StatsField::Model => ("model", usage(store, by)?),
        StatsField::Day => ("day", usage(store, by)?),
        StatsField::Thread => ("thread", usage(store, by)?),
        StatsField::Channel => ("channel", by_channel(store)?),
    };
    let more = sums.len() > args.most();
    if more {
        let first: Sums = std::mem::take(&mut sums).into_iter().take(args.most()).collect();
        sums = first;
    }
    let documents: Vec<Json> = sums.iter().map(|(key, sum)| sum.document(key.as_deref())).collect();
    if out.is_json() {
        out.json(&json!({ "schema": 1, "by": name, "sums": documents, "more": more }))?;
        return Ok(u8::from(sums.is_empty()));
    }
    let titles = [name, "count", "bytes", "input_tokens", "output_tokens", "cost_usd", "seconds"];
    if args.csv {
        out.raw_line(&titles.join(","))?;
        for document in &documents {
            let cell = |name: &str| match &document[name] {
                Json::Null => String::new(),
                Json::String(text) => quoted(text),
                number => number.to_string(),
            };
            let cells = std::iter::once(cell("key")).chain(titles[1..].iter().map(|title| cell(title)));
            out.raw_line(&cells.collect::<Vec<_>>().join(","))?;
        }
        return Ok(u8::from(sums.is_empty()));
    }
    let mut cells = vec![titles.map(|title| title.to_uppercase().replace('_', " ")).to_vec()];
    for (key, sum) in &sums {
        let (input, output, cost) = sum.usage.unwrap_or_default();
        let of_usage = |text: String| sum.usage.map(|_| text).unwrap_or_default();
        cells.push(vec![
            key.as_deref().map_or_else(|| "(none)".to_owned(), words::node),
            grouped(sum.count),
            sum.bytes.map(size).unwrap_or_default(),
            of_usage(grouped(input)),
            of_usage(grouped(output)),
            of_usage(format!("{cost:.4}")),
            sum.seconds.map(|seconds| format!("{seconds:.3}")).unwrap_or_default(),
        ]);
    }
    steps::table(&cells, more, "the store has nothing to sum", out)
}

impl HistorySum {
    fn document(&self, key: Option<&str>) -> Json {
        json!({
            "key": key,
            "count": self.count,
            "bytes": self.bytes,
            "input_tokens": self.usage.map(|(input, ..)| input),
            "output_tokens": self.usage.map(|(_, output, _)| output),
            "cost_usd": self.usage.map(|(.., cost)| cost),
            "seconds": self.seconds,
        })
    }
}

/// Sums the model calls.
fn usage(store: &Store, by: StatsField) -> Result<Sums, CommandFailure> {
    let query = UsageQuery::new();
    let query = match by {
        StatsField::Node => query.by_node(),
        StatsField::Model => query.by_model(),
        StatsField::Day => query.by_day(),
        StatsField::Thread | StatsField::Channel => query.by_thread(),
    };
    let mut sums = Sums::new();
    for total in store.usage(query)? {
        let node = total.node.map(|node| node.to_string());
        let thread = total.thread.map(|thread| thread.as_str().to_owned());
        let sum = sums.entry(node.or(total.model).or(total.day).or(thread)).or_default();
        sum.count = total.calls;
        sum.usage = Some((total.input_tokens, total.output_tokens, total.cost_usd));
    }
    Ok(sums)
}

/// Sums the tasks of the root graphs, and the tasks they called, with their time, and the model calls of each node.
fn by_node(store: &Store) -> Result<Sums, CommandFailure> {
    let mut sums = usage(store, StatsField::Node)?;
    sums.values_mut().for_each(|sum| sum.count = 0);
    for record in store.threads()? {
        for step in store.thread(record.id.as_str())?.steps()? {
            let step = step?;
            let sum = sums.entry(Some(step.name.to_string())).or_default();
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
            let sum = sums.entry(Some(channel.channel.to_string())).or_default();
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
    debug_assert!(sums.keys().all(|key| key.as_deref() != Some("")), "a channel has a name");
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_names_only_what_it_has() {
        let sum = HistorySum { count: 2, bytes: Some(10), ..HistorySum::default() };
        let document = sum.document(Some("messages"));
        assert_eq!((&document["bytes"], &document["cost_usd"]), (&json!(10), &Json::Null));
    }
}
