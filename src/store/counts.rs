//! The counts of a thread, as a list shows them, and the model calls that the metadata of checkpoints state.
//!
//! *Absent:* how a backend finds them without reading the whole thread.

/// The counts of a thread: its messages, and what its model calls used.
///
/// Tokens and costs are sums over all checkpoints of the thread, in all namespaces and on abandoned branches too, with
/// the rules of [`Store::usage`](super::Store::usage). Of a pruned checkpoint, the usage that its metadata stated
/// stays, and the tokens of its messages do not count any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadCounts {
    /// The number of messages at the head: the items of the lists of the root namespace whose last item is a message.
    pub messages: u64,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// The stated costs in billionths of a US dollar. A negative cost counts as none.
    pub cost_nano_usd: u64,
}

impl ThreadCounts {
    /// Returns the stated costs in US dollars.
    pub fn cost_usd(&self) -> f64 {
        self.cost_nano_usd as f64 / 1e9
    }

    /// Adds tokens and costs of others.
    pub fn add_usage(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cost_nano_usd = self.cost_nano_usd.saturating_add(other.cost_nano_usd);
    }

    /// Returns the tokens of an item; `None` if it has none.
    pub fn of_tokens(input: Option<u32>, output: Option<u32>) -> Option<Self> {
        let tokens = |count: Option<u32>| u64::from(count.unwrap_or(0));
        let counts = Self { input_tokens: tokens(input), output_tokens: tokens(output), ..Self::default() };
        input.or(output).map(|_| counts)
    }

    /// Returns the sum of the calls that the metadata of a checkpoint state; `None` if they state none.
    pub fn stated(metadata: Option<&str>) -> Option<Self> {
        let mut sum = Self::default();
        for call in stated_calls(metadata)? {
            // A cast of a float is saturating, and that of a negative one is 0.
            let cost_nano_usd = (call.cost_usd * 1e9).round() as u64;
            let (input_tokens, output_tokens) = (call.input_tokens, call.output_tokens);
            sum.add_usage(Self { input_tokens, output_tokens, cost_nano_usd, ..Self::default() });
        }
        Some(sum)
    }
}

/// A model call that the metadata of a checkpoint state.
pub(crate) struct StatedCall {
    pub(crate) model: Option<String>,
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) cost_usd: f64,
}

/// Returns the calls that the metadata of a checkpoint state: its member `usage`, an object or a list of objects.
/// `None` if it states nothing.
pub(crate) fn stated_calls(metadata: Option<&str>) -> Option<Vec<StatedCall>> {
    let calls = match usage_of(metadata)? {
        serde_json::Value::Array(calls) => calls,
        call => vec![call],
    };
    let tokens = |call: &serde_json::Value, name: &str| call.get(name).and_then(|count| count.as_u64()).unwrap_or(0);
    let call = |call: &serde_json::Value| StatedCall {
        model: call.get("model").and_then(|model| model.as_str()).map(ToOwned::to_owned),
        input_tokens: tokens(call, "input_tokens"),
        output_tokens: tokens(call, "output_tokens"),
        cost_usd: call.get("cost_usd").and_then(|cost| cost.as_f64()).unwrap_or(0.0),
    };
    Some(calls.iter().filter(|call| call.is_object()).map(call).collect())
}

/// Returns the member `usage` of the metadata of a checkpoint, if it is an object or a list.
fn usage_of(metadata: Option<&str>) -> Option<serde_json::Value> {
    // A search for a text prepares itself for long ones first, which most metadata is not.
    let is_name = |window: &[u8]| window[0] == b'"' && window == b"\"usage\"";
    let text = metadata.filter(|text| text.as_bytes().windows(7).any(is_name))?;
    let serde_json::Value::Object(mut members) = serde_json::from_str(text).ok()? else { return None };
    members.remove("usage").filter(|usage| usage.is_object() || usage.is_array())
}

/// Returns the part of the metadata that a pruned checkpoint retains: its usage.
pub fn pruned_metadata(metadata: Option<&str>) -> Option<String> {
    usage_of(metadata).map(|usage| serde_json::json!({ "usage": usage }).to_string())
}
