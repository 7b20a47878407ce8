//! `annals evolution`: the values that a channel, an item of a list, or a part of one had over time, newest first.
//!
//! JSON: `{"schema": 1, "thread", "checkpoint", "path", "versions": [{"value", "by": {..}}], "more": bool}`; `by` is as
//! in `annals blame`. A value that was removed is null.

use annals::base::Value;
use annals::history::{Blame, Snapshot};
use annals::store::Store;
use serde_json::{Value as Json, json};

use crate::args;
use crate::blame::{ShortIds, blame_json, node};
use crate::errors::CommandFailure;
use crate::output::{self, Printer, columns};
use crate::path::ValuePath;
use crate::point::resolve;
use crate::words::{self, item};

pub(crate) fn run(args: &args::EvolutionArgs, store: &Store, out: &mut Printer) -> Result<u8, CommandFailure> {
    let at = resolve(store, &args.point)?;
    let path = ValuePath::read(&at, &args.path)?;
    let limit = if args.limit == 0 { usize::MAX } else { args.limit };
    let (versions, more) = versions(&at, &path, limit)?;
    let mut shorts = ShortIds::of(&at);
    if out.is_json() {
        let mut documents = Vec::with_capacity(versions.len());
        for (value, blame) in &versions {
            let value = value.as_ref().map(Value::to_json);
            documents.push(json!({ "value": value, "by": blame_json(&at, blame, &mut shorts)? }));
        }
        let mut document = words::place(&at);
        document["path"] = json!(args.path);
        document["versions"] = Json::Array(documents);
        document["more"] = json!(more);
        out.json(&words::with_schema(document))?;
        return Ok(u8::from(versions.is_empty()));
    }
    let now = at.store().now();
    let mut rows = Vec::with_capacity(versions.len());
    for (value, blame) in &versions {
        let value = value.as_ref().map_or_else(|| "(removed)".to_owned(), |value| item(&value.to_json()));
        let (step, age) = (format!("step {}", blame.step), output::ago(now, blame.created_at));
        rows.push(vec![shorts.of_point(&blame.point)?, step, node(blame), age, value]);
    }
    for (row, line) in rows.iter().zip(columns(&rows)) {
        out.row(line.replacen(&row[0], &out.id(&row[0]), 1))?;
    }
    if more {
        out.line(out.dim("(older ones: -n 0 shows all)"))?;
    }
    if rows.is_empty() {
        output::note("the path never had a value");
    }
    Ok(u8::from(rows.is_empty()))
}

/// A value with its writer; `None` of one that was removed.
type Version = (Option<Value>, Blame);

/// Returns the newest values, each unlike the one before; the flag says whether older ones exist.
fn versions(at: &Snapshot, path: &ValuePath, limit: usize) -> Result<(Vec<Version>, bool), CommandFailure> {
    let walk = match &path.item {
        Some(id) => at.item_evolution(&path.channel, id)?,
        None => at.evolution(&path.channel),
    };
    let (mut found, mut has_older): (Vec<Version>, bool) = (Vec::new(), false);
    for version in walk {
        let version = version?;
        let part = version.value.as_ref().and_then(|value| path.part(value));
        // The older of two equal values is the one that was written.
        if let Some((_, blame)) = found.last_mut().filter(|(value, _)| *value == part) {
            *blame = version.blame;
        } else if found.len() > limit {
            has_older = true;
            break;
        } else {
            found.push((part, version.blame));
        }
    }
    // A part that its channel did not have from the start.
    if !has_older && found.last().is_some_and(|(value, _)| value.is_none()) {
        found.pop();
    }
    let more = has_older || found.len() > limit;
    found.truncate(limit);
    Ok((found, more))
}
