//! The prices of models by date, from a table in the program or from a file.
//!
//! A file is a JSON list of `{"model", "from", "input", "output", "cache_read"?, "cache_write"?}`: US dollars for a
//! million tokens, valid from a day until the next entry of the model. An entry of the table in the program has also
//! its `source`, a commit of github.com/pydantic/genai-prices, whose file names the page of the provider, and the day
//! on which the price was `checked` there; `from` is the day in the name of the model's first version. Invariant: a
//! model or a day that no entry names has no price.

use std::fs;
use std::path::Path;

use annals::history::UsageTotal;
use serde_json::Value as Json;

use crate::errors::CommandFailure;

/// The table in the program.
const TABLE: &str = include_str!("prices.json");

/// Bytes of a file of prices.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The tokens for which a price is stated.
const TOKENS: f64 = 1e6;

/// The prices of models.
#[derive(Debug)]
pub(crate) struct PriceTable {
    entries: Vec<ModelPrice>,
}

/// The price of a model from a day on, in US dollars for a million tokens.
#[derive(Debug, PartialEq)]
struct ModelPrice {
    model: String,
    from: String,
    input: f64,
    output: f64,
    cache_read: f64,
    cache_write: f64,
}

impl PriceTable {
    /// Returns the prices of a file, or else those of the program.
    pub(crate) fn open(file: Option<&Path>) -> Result<Self, CommandFailure> {
        let Some(path) = file else { return Self::parse(TABLE).map_err(|reason| invalid("the table", &reason)) };
        let shown = path.display().to_string();
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                CommandFailure::not_found("file_not_found", format!("{shown} does not exist"))
            }
            _ => CommandFailure::new(70, "io", format!("{shown}: {error}")),
        };
        if fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
            return Err(invalid(&shown, &format!("more than {FILE_BYTES_MAX} bytes")));
        }
        let text = fs::read_to_string(path).map_err(failed)?;
        Self::parse(&text).map_err(|reason| invalid(&shown, &reason))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let document: Json = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let items = document.as_array().ok_or("a list of prices is needed")?;
        let entries = items.iter().enumerate();
        let entries = entries.map(|(at, item)| price(item).map_err(|reason| format!("entry {at}: {reason}")));
        Ok(Self { entries: entries.collect::<Result<_, _>>()? })
    }

    /// Returns the cost of the calls of one model on one day in US dollars; none if the model has no price on it. Costs
    /// that the program stated go before prices.
    pub(crate) fn cost(&self, of: &UsageTotal) -> Option<f64> {
        if of.cost_usd != 0.0 {
            return Some(of.cost_usd);
        }
        let price = self.price(of.model.as_deref()?, of.day.as_deref()?)?;
        let cached = of.cached_tokens.min(of.input_tokens);
        let written = of.cache_write_tokens.min(of.input_tokens - cached);
        let sent = of.input_tokens - cached - written;
        let sum = sent as f64 * price.input
            + cached as f64 * price.cache_read
            + written as f64 * price.cache_write
            + of.output_tokens as f64 * price.output;
        Some(sum / TOKENS)
    }

    fn price(&self, model: &str, day: &str) -> Option<&ModelPrice> {
        let of_model = self.entries.iter().filter(|entry| is_model(model, &entry.model));
        let valid = of_model.filter(|entry| entry.from.as_str() <= day);
        valid.max_by(|a, b| a.from.cmp(&b.from))
    }
}

/// Returns whether a name is that of a model of the table, with the provider before it or a date behind it.
fn is_model(name: &str, model: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name);
    let Some(rest) = name.strip_prefix(model) else { return false };
    let is_date = |rest: &str| {
        let digits = rest.chars().filter(char::is_ascii_digit).count();
        digits == 8 && rest.chars().all(|c| c.is_ascii_digit() || c == '-')
    };
    rest.is_empty() || rest == "-latest" || rest.strip_prefix(['-', '@']).is_some_and(is_date)
}

/// Reads an entry.
fn price(item: &Json) -> Result<ModelPrice, String> {
    let text = |name: &str| {
        let text = item[name].as_str().filter(|text| !text.is_empty());
        text.map(str::to_owned).ok_or(format!("{name}: a text is needed"))
    };
    let amount = |name: &str| match &item[name] {
        Json::Null => Ok(None),
        value => {
            let amount = value.as_f64().filter(|amount| (0.0..=1e6).contains(amount));
            amount.map(Some).ok_or(format!("{name}: a number from 0 to 1000000 is needed"))
        }
    };
    let needed = |name: &str| amount(name)?.ok_or(format!("{name}: a number from 0 to 1000000 is needed"));
    let from = text("from")?;
    let is_day = from.len() == 10
        && from
            .bytes()
            .enumerate()
            .all(|(at, byte)| if matches!(at, 4 | 7) { byte == b'-' } else { byte.is_ascii_digit() });
    if !is_day {
        return Err(format!("from: a day such as 2026-03-02 is needed, not {from:?}"));
    }
    let input = needed("input")?;
    Ok(ModelPrice {
        model: text("model")?,
        from,
        input,
        output: needed("output")?,
        cache_read: amount("cache_read")?.unwrap_or(input),
        cache_write: amount("cache_write")?.unwrap_or(input),
    })
}

fn invalid(file: &str, reason: &str) -> CommandFailure {
    CommandFailure::new(2, "invalid", format!("prices of {file}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(model: &str, day: &str, tokens: [u64; 4]) -> UsageTotal {
        let mut total = UsageTotal::default();
        (total.model, total.day) = (Some(model.to_owned()), Some(day.to_owned()));
        [total.input_tokens, total.output_tokens, total.cached_tokens, total.cache_write_tokens] = tokens;
        total
    }

    #[test]
    fn a_price_holds_from_its_day_until_the_next_one() {
        let table = PriceTable::open(None).unwrap();
        let cost = |model: &str, day: &str| table.cost(&total(model, day, [1_000_000, 0, 0, 0]));
        assert_eq!((cost("o3", "2025-06-09"), cost("o3", "2025-06-10")), (Some(10.0), Some(2.0)));
        assert_eq!(cost("o3", "2025-04-15"), None, "before the first entry");
        assert_eq!(cost("o3-deep", "2026-01-01"), None);
        assert_eq!(cost("anthropic/claude-sonnet-4-5-20250929", "2026-01-01"), Some(3.0));
        assert_eq!(cost("claude-sonnet-4-6", "2026-01-01"), None, "another model");
    }

    #[test]
    fn each_price_of_the_table_has_a_source_and_the_day_of_its_check() {
        let table: Json = serde_json::from_str(TABLE).unwrap();
        let entries = table.as_array().unwrap();
        assert!(!entries.is_empty());
        for entry in entries {
            let (from, checked) = (entry["from"].as_str().unwrap(), entry["checked"].as_str().unwrap());
            assert!(entry["source"].as_str().unwrap().starts_with("genai-prices "), "{entry}");
            assert!(checked.len() == 10 && from <= checked, "{entry}");
        }
    }

    #[test]
    fn cached_tokens_have_their_own_price_and_stated_costs_go_first() {
        let table = PriceTable::open(None).unwrap();
        let mut usage = total("claude-sonnet-4-5", "2026-01-01", [1_000_000, 100_000, 600_000, 200_000]);
        let cost = table.cost(&usage).unwrap();
        assert!((cost - (0.2 * 3.0 + 0.6 * 0.3 + 0.2 * 3.75 + 0.1 * 15.0)).abs() < 1e-9, "{cost}");
        usage.cost_usd = 0.25;
        assert_eq!(table.cost(&usage), Some(0.25));
    }

    #[test]
    fn an_entry_that_is_wrong_is_named() {
        for (text, reason) in [
            ("{}", "a list of prices is needed"),
            (r#"[{"model": "m", "from": "soon", "input": 1, "output": 1}]"#, "entry 0: from: a day"),
            (r#"[{"model": "m", "from": "2026-03-02", "output": 1}]"#, "entry 0: input: a number from 0"),
            (r#"[{"model": "m", "from": "2026-03-02", "input": -1, "output": 1}]"#, "entry 0: input: a number from 0"),
        ] {
            assert!(PriceTable::parse(text).unwrap_err().starts_with(reason), "{text}");
        }
    }
}
