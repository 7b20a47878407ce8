//! Adding and subtracting usage, and the limits on it.
//!
//! *Absent:* enforcement: the caller checks before and after each request.

use serde::{Deserialize, Serialize};

use super::decimal::Decimal;
use super::usage::{COUNTS, CountField, RequestUsage, RunUsage, UsageCounts};
use annals_base::Value;

impl UsageCounts {
    /// Adds every count, each detail by its name, and the cost where it is known.
    ///
    /// An unknown field is added if both are numbers; if this has none, a number is taken over.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, i64::saturating_add, |a, b| a + b);
        self.cost = match (self.cost.take(), &other.cost) {
            (Some(a), Some(b)) => Some(a.add(b)),
            (a, b) => a.or_else(|| b.clone()),
        };
    }

    fn combine(&mut self, other: &Self, ints: fn(i64, i64) -> i64, floats: fn(f64, f64) -> f64) {
        for CountField { get, slot, .. } in COUNTS {
            let count = slot(self);
            *count = ints(*count, get(other));
        }
        self.audio_seconds = floats(self.audio_seconds, other.audio_seconds);
        for (name, count) in &other.details {
            let mine = self.details.entry(name.clone()).or_default();
            *mine = ints(*mine, *count);
        }
        for (name, value) in &other.extra {
            let sum = match (number(self.extra.get(name).unwrap_or(&Value::Int(0))), number(value)) {
                (Value::Int(a), Value::Int(b)) => Value::Int(ints(a, b)),
                (Value::Float(a), Value::Float(b)) => Value::Float(floats(a, b)),
                (Value::Int(a), Value::Float(b)) => Value::Float(floats(a as f64, b)),
                (Value::Float(a), Value::Int(b)) => Value::Float(floats(a, b as f64)),
                _ => continue,
            };
            self.extra.insert(name.clone(), sum);
        }
    }
}

/// A boolean counts as 0 or 1.
fn number(value: &Value) -> Value {
    match value {
        Value::Bool(b) => Value::Int(i64::from(*b)),
        other => other.clone(),
    }
}

impl RequestUsage {
    /// Adds the usage of another request.
    pub fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
    }
}

impl RunUsage {
    /// Adds the usage of another run.
    pub fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.requests = self.requests.saturating_add(other.requests);
        self.tool_calls = self.tool_calls.saturating_add(other.tool_calls);
    }

    /// Adds the usage of a request. The caller counts requests and calls.
    pub fn add_request(&mut self, request: &RequestUsage) {
        self.counts.add(&request.counts);
    }

    /// Returns the usage since `before`. The cost is `None` if it is unknown now, or did not change.
    ///
    /// # Example: the usage of a step of a run
    /// ```
    /// use annals_pydantic_ai::RunUsage;
    ///
    /// let mut before = RunUsage::default();
    /// before.requests = 2;
    /// let mut after = before.clone();
    /// after.requests = 5;
    /// assert_eq!(after.since(&before).requests, 3);
    /// ```
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut counts = self.counts.clone();
        counts.combine(&before.counts, i64::saturating_sub, |a, b| a - b);
        counts.cost = match (&self.counts.cost, &before.counts.cost) {
            (Some(now), Some(then)) => Some(now.subtract(then)).filter(|cost| !cost.is_zero()),
            (now, _) => now.clone(),
        };
        let requests = self.requests.saturating_sub(before.requests);
        Self { counts, requests, tool_calls: self.tool_calls.saturating_sub(before.tool_calls) }
    }
}

/// Limits on the usage of a run (`UsageLimits`). `None` stands for unlimited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct UsageLimits {
    /// Requests; 50 unless set otherwise.
    pub request_limit: Option<i64>,
    /// Successful tool calls.
    pub tool_calls_limit: Option<i64>,
    /// Tokens read.
    pub input_tokens_limit: Option<i64>,
    /// Tokens written.
    pub output_tokens_limit: Option<i64>,
    /// Tokens read and written.
    pub total_tokens_limit: Option<i64>,
    /// Tokens read by one request.
    pub per_request_input_tokens_limit: Option<i64>,
    /// Money.
    pub cost_limit: Option<Decimal>,
}

impl Default for UsageLimits {
    fn default() -> Self {
        Self {
            request_limit: Some(50),
            tool_calls_limit: None,
            input_tokens_limit: None,
            output_tokens_limit: None,
            total_tokens_limit: None,
            per_request_input_tokens_limit: None,
            cost_limit: None,
        }
    }
}

/// A limit on usage is exceeded, or would be (`UsageLimitExceeded`).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what}. Consider raising the limit, or see the docs on usage limits for budget-aware patterns: https://pydantic.dev/docs/ai/core-concepts/agent/#usage-limits"
)]
#[non_exhaustive]
pub struct UsageLimitExceeded {
    /// The limit and the usage, as upstream words them.
    pub what: String,
}

impl UsageLimits {
    /// Checks that another request may be made after `usage`, which may hold the tokens counted for it.
    ///
    /// # Errors
    /// [`UsageLimitExceeded`] if as many requests as allowed were made, or a limit on tokens is exceeded.
    pub fn check_before_request(&self, usage: &RunUsage) -> Result<(), UsageLimitExceeded> {
        if let Some(limit) = self.request_limit.filter(|limit| usage.requests >= *limit) {
            return Err(UsageLimitExceeded {
                what: format!("The next request would exceed the request_limit of {limit}"),
            });
        }
        let [input, _, total] = self.tokens(&usage.counts);
        [input, total].into_iter().try_for_each(|check| exceeded("The next request would exceed", check))
    }

    /// Checks the tokens of `usage`.
    ///
    /// # Errors
    /// [`UsageLimitExceeded`] naming the first limit that is exceeded.
    pub fn check_tokens(&self, usage: &RunUsage) -> Result<(), UsageLimitExceeded> {
        self.tokens(&usage.counts).into_iter().try_for_each(|check| exceeded("Exceeded", check))
    }

    /// Checks the tokens that one request reads.
    ///
    /// # Errors
    /// [`UsageLimitExceeded`] if there are more than allowed.
    pub fn check_per_request_input_tokens(&self, input_tokens: i64) -> Result<(), UsageLimitExceeded> {
        let limit = self.per_request_input_tokens_limit;
        exceeded("Exceeded", ("per_request_input_tokens_limit", limit, "request_input_tokens", input_tokens))
    }

    /// Checks the tool calls of `projected`: those made, and those about to be.
    ///
    /// # Errors
    /// [`UsageLimitExceeded`] if there are more than allowed.
    pub fn check_before_tool_call(&self, projected: &RunUsage) -> Result<(), UsageLimitExceeded> {
        let check = ("tool_calls_limit", self.tool_calls_limit, "tool_calls", projected.tool_calls);
        exceeded("The next tool call(s) would exceed", check)
    }

    /// Checks the cost of `usage`, if it is known.
    ///
    /// # Errors
    /// [`UsageLimitExceeded`] if it is more than allowed.
    pub fn check_cost(&self, usage: &RunUsage) -> Result<(), UsageLimitExceeded> {
        match (&self.cost_limit, &usage.counts.cost) {
            (Some(limit), Some(cost)) if cost.compare(limit).is_gt() => Err(UsageLimitExceeded {
                what: format!("Exceeded the `cost_limit` of {limit} (`usage.cost`=Decimal('{cost}'))"),
            }),
            _ => Ok(()),
        }
    }

    fn tokens(&self, usage: &UsageCounts) -> [(&'static str, Option<i64>, &'static str, i64); 3] {
        [
            ("input_tokens_limit", self.input_tokens_limit, "input_tokens", usage.input_tokens),
            ("output_tokens_limit", self.output_tokens_limit, "output_tokens", usage.output_tokens),
            ("total_tokens_limit", self.total_tokens_limit, "total_tokens", usage.total_tokens()),
        ]
    }
}

fn exceeded(
    verb: &str,
    (name, limit, counted, count): (&str, Option<i64>, &str, i64),
) -> Result<(), UsageLimitExceeded> {
    match limit.filter(|limit| count > *limit) {
        Some(limit) => Err(UsageLimitExceeded { what: format!("{verb} the {name} of {limit} ({counted}={count})") }),
        None => Ok(()),
    }
}
