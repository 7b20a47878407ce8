//! The policies of a node: retries, caching and timeouts.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::Value;
use crate::limits::{RETRY_INTERVAL_DEFAULT, RETRY_INTERVAL_MAX_DEFAULT};

/// Tells whether an error is retried.
type Predicate = Arc<dyn Fn(&(dyn Error + 'static)) -> bool + Send + Sync>;

/// The number of attempts of a failing node, and the pauses between them.
///
/// The pause before attempt `n + 1` is `initial_interval * backoff_factor^(n - 1)`, at most `max_interval`, and with
/// jitter up to one second more. The first attempt counts; the count continues across several policies of one node.
///
/// # Example
/// ```
/// use annals_graph::graph::RetryPolicy;
/// use annals_graph::prelude::*;
/// use std::time::Duration;
///
/// #[derive(State, Clone, Default)]
/// struct Page { #[channel(last)] text: String }
///
/// # fn main() -> Result<()> {
/// let patient = RetryPolicy::new().max_attempts(5).initial_interval(Duration::from_millis(1)).jitter(false);
/// let graph = StateGraph::<Page>::new()
///     .node_with("fetch", |_: &Page, ctx: &Context| match ctx.attempt() {
///         1 | 2 => Err("the line is busy".into()),
///         _ => Ok(Page::update().text("hello".to_string())),
///     }, NodeOptions::new().retry(patient))
///     .edge(START, "fetch")
///     .compile()?;
/// assert_eq!(graph.invoke((), Page::update())?.state().text, "hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RetryPolicy {
    pub(crate) initial_interval: Duration,
    pub(crate) backoff_factor: f64,
    pub(crate) max_interval: Duration,
    pub(crate) max_attempts: u32,
    pub(crate) jitter: bool,
    /// The errors that are retried; `None` is the default.
    pub(crate) retry_on: Option<Vec<Predicate>>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            initial_interval: RETRY_INTERVAL_DEFAULT,
            backoff_factor: 2.0,
            max_interval: RETRY_INTERVAL_MAX_DEFAULT,
            max_attempts: 3,
            jitter: true,
            retry_on: None,
        }
    }
}

impl RetryPolicy {
    /// Returns the defaults: 3 attempts, pauses from 0.5 s doubling up to 128 s, with jitter.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the pause before the second attempt.
    pub fn initial_interval(mut self, interval: Duration) -> Self {
        self.initial_interval = interval;
        self
    }

    /// Sets the factor by which the pause grows with each attempt.
    pub fn backoff_factor(mut self, factor: f64) -> Self {
        self.backoff_factor = factor;
        self
    }

    /// Sets the maximum pause, before jitter.
    pub fn max_interval(mut self, interval: Duration) -> Self {
        self.max_interval = interval;
        self
    }

    /// Sets the maximum number of attempts, the first one included.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// Sets whether a random time of up to one second is added to each pause, so that many runs do not retry at the
    /// same time.
    pub fn jitter(mut self, jitter: bool) -> Self {
        self.jitter = jitter;
        self
    }

    /// Retries errors of type `E`, in place of the default errors. Types and predicates add up.
    ///
    /// # Example
    /// ```
    /// use annals_graph::graph::RetryPolicy;
    /// use annals_graph::prelude::*;
    ///
    /// let policy = RetryPolicy::new().on::<std::io::Error>();
    /// assert!(policy.retries(&std::io::Error::other("offline")));
    /// assert!(!policy.retries(&std::fmt::Error));
    /// ```
    pub fn on<E: Error + 'static>(self) -> Self {
        self.on_if(|error| error.is::<E>())
    }

    /// Retries errors for which `retries` returns true, in place of the default errors. Types and predicates add up.
    /// `retries` is called with the error, then with each of its causes.
    pub fn on_if(mut self, retries: impl Fn(&(dyn Error + 'static)) -> bool + Send + Sync + 'static) -> Self {
        self.retry_on.get_or_insert_default().push(Arc::new(retries));
        self
    }

    /// Returns whether an error of a node, or one of its causes, is retried.
    ///
    /// Without [`on`](Self::on) and [`on_if`](Self::on_if) all errors are retried but these: I/O errors other than
    /// those of a connection; errors of parsing, converting, formatting, encoding and decoding; a step timeout of a
    /// subgraph; panics.
    pub fn retries(&self, error: &(dyn Error + 'static)) -> bool {
        let mut causes = causes(error);
        match &self.retry_on {
            Some(predicates) => causes.any(|error| predicates.iter().any(|retries| retries(error))),
            None => causes.all(is_transient),
        }
    }

    /// Returns whether it retries the default errors.
    pub(crate) fn is_default(&self) -> bool {
        self.retry_on.is_none()
    }

    /// Returns the pause after `failed` attempts; `chance` is between 0 and 1.
    pub(crate) fn pause(&self, failed: u32, chance: impl FnOnce() -> f64) -> Duration {
        debug_assert!(failed > 0, "a pause follows a failed attempt");
        let exponent = i32::try_from(failed.saturating_sub(1)).unwrap_or(i32::MAX);
        let grown = self.initial_interval.as_secs_f64() * self.backoff_factor.powi(exponent);
        // A factor that is not a number, or an overflow, gives the maximum pause.
        let pause = Duration::try_from_secs_f64(grown).unwrap_or(self.max_interval).min(self.max_interval);
        if self.jitter { pause.saturating_add(Duration::from_secs_f64(chance().clamp(0.0, 1.0))) } else { pause }
    }
}

/// Returns an error and its causes.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| {
        let error: &'a (dyn Error + 'static) = *error;
        error.source()
    })
}

/// The default of the reference, in terms of Rust: an error in the data or in the program would repeat.
fn is_transient(error: &(dyn Error + 'static)) -> bool {
    use std::io::ErrorKind as K;
    if let Some(error) = error.downcast_ref::<std::io::Error>() {
        return matches!(
            error.kind(),
            K::ConnectionRefused | K::ConnectionReset | K::ConnectionAborted | K::BrokenPipe
        );
    }
    !(error.is::<std::num::ParseIntError>()
        || error.is::<std::num::ParseFloatError>()
        || error.is::<std::num::TryFromIntError>()
        || error.is::<std::str::Utf8Error>()
        || error.is::<std::string::FromUtf8Error>()
        || error.is::<std::str::ParseBoolError>()
        || error.is::<std::char::ParseCharError>()
        || error.is::<std::fmt::Error>()
        || error.is::<std::array::TryFromSliceError>()
        || error.is::<serde_json::Error>()
        || error.is::<crate::base::CodecError>()
        || error.is::<crate::state::StateError>()
        || error.is::<crate::task::TimedOut>()
        || matches!(error.downcast_ref(), Some(crate::task::CallError::ChangedArguments { .. })))
}

impl fmt::Debug for RetryPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryPolicy")
            .field("initial_interval", &self.initial_interval)
            .field("backoff_factor", &self.backoff_factor)
            .field("max_interval", &self.max_interval)
            .field("max_attempts", &self.max_attempts)
            .field("jitter", &self.jitter)
            .finish_non_exhaustive()
    }
}

/// Caches the result of a node or of a called task, and returns it for an equal input without running it.
///
/// It needs a cache ([`StateGraph::cache`](super::StateGraph::cache)); without one it does nothing. The targets of the
/// node are cached with its writes. Failures and interrupts are not cached. An entry belongs to one function, by its
/// name in Rust; the captures of a closure are not part of the key. The entry of a node also depends on the channels
/// and edges of its graph. An entry that cannot be read is ignored.
#[derive(Clone, Default)]
pub struct CachePolicy {
    pub(crate) key: Option<Arc<dyn Fn(&Value) -> Vec<u8> + Send + Sync>>,
    pub(crate) ttl: Option<Duration>,
}

impl CachePolicy {
    /// Returns the defaults: the key is the whole input of the node, and entries never expire.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the key of an input; inputs with equal keys share an entry. The function is given the argument of a send,
    /// or the state as a map by channel names.
    pub fn key<K: Into<Vec<u8>>>(mut self, key: impl Fn(&Value) -> K + Send + Sync + 'static) -> Self {
        self.key = Some(Arc::new(move |input| key(input).into()));
        self
    }

    /// Sets the lifetime of an entry.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }
}

impl fmt::Debug for CachePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachePolicy").field("own_key", &self.key.is_some()).field("ttl", &self.ttl).finish()
    }
}

/// The time limits of one attempt of an async node. A node that runs on a thread cannot be stopped and takes no
/// timeout.
///
/// A deadline takes effect when the node waits: a node that computes without waiting is stopped at its next wait, and
/// a result it returned before is valid. A missed deadline fails the attempt with
/// [`RunError::NodeTimeout`](crate::RunError::NodeTimeout); later writes, streamed parts and calls of the attempt are
/// dropped.
///
/// # Example
/// ```
/// use annals_graph::graph::TimeoutPolicy;
/// use annals_graph::prelude::*;
/// use annals_graph::RunError;
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// #[derive(State, Clone, Default)]
/// struct Page { #[channel(last)] text: String }
///
/// # fn main() -> Result<()> {
/// let limits = TimeoutPolicy::new().run_timeout(Duration::from_millis(5));
/// let graph = StateGraph::<Page>::new()
///     .node_with("fetch", |_: Arc<Page>| std::future::pending::<NodeResult<()>>(), NodeOptions::new().timeout(limits))
///     .edge(START, "fetch")
///     .compile()?;
/// let error = graph.invoke((), Page::update()).unwrap_err();
/// assert!(matches!(error.as_run(), Some(RunError::NodeTimeout { node, .. }) if node == "fetch"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TimeoutPolicy {
    pub(crate) run_timeout: Option<Duration>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) refresh_on: RefreshOn,
}

/// The signs of life that restart an idle timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum RefreshOn {
    /// Streamed parts, interrupts, calls, and the heartbeat.
    #[default]
    Auto,
    /// The heartbeat alone.
    Heartbeat,
}

impl TimeoutPolicy {
    /// Returns a policy without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the maximum duration of an attempt.
    pub fn run_timeout(mut self, limit: Duration) -> Self {
        self.run_timeout = Some(limit);
        self
    }

    /// Sets the maximum duration without a sign of life.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.idle_timeout = Some(limit);
        self
    }

    /// Sets which signs of life restart the idle timeout.
    pub fn refresh_on(mut self, refresh_on: RefreshOn) -> Self {
        self.refresh_on = refresh_on;
        self
    }

    /// Returns whether it has a limit.
    pub(crate) fn is_set(&self) -> bool {
        self.run_timeout.is_some() || self.idle_timeout.is_some()
    }

    /// Returns whether a limit is zero, so that every attempt would fail.
    pub(crate) fn is_zero(&self) -> bool {
        [self.run_timeout, self.idle_timeout].into_iter().flatten().any(|limit| limit.is_zero())
    }
}

impl From<Duration> for TimeoutPolicy {
    fn from(limit: Duration) -> Self {
        Self::new().run_timeout(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_one() {
        let policy = RetryPolicy::new().initial_interval(Duration::from_secs(1)).max_interval(Duration::from_secs(5));
        let plain = policy.clone().jitter(false);
        let pauses: Vec<u64> = (1..=5).map(|failed| plain.pause(failed, || 0.5).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 5, 5]);
        assert_eq!(policy.pause(1, || 0.5), Duration::from_millis(1500));
        assert_eq!(plain.backoff_factor(f64::NAN).pause(2, || 0.0), Duration::from_secs(5));
        assert_eq!(policy.jitter(false).pause(u32::MAX, || 0.0), Duration::from_secs(5));
    }

    #[test]
    fn by_default_mistakes_are_not_retried() {
        let policy = RetryPolicy::new();
        let own: Box<dyn Error> = "the model is busy".into();
        assert!(policy.retries(&*own));
        assert!(policy.retries(&std::io::Error::from(std::io::ErrorKind::ConnectionReset)));
        assert!(!policy.retries(&std::io::Error::from(std::io::ErrorKind::NotFound)));
        let parse = "x".parse::<i32>().map_err(|error| policy.retries(&error));
        assert_eq!(parse, Err(false));
    }

    #[test]
    fn named_types_replace_the_default_and_add_up() {
        let policy = RetryPolicy::new().on::<std::fmt::Error>().on_if(|error| error.to_string().contains("busy"));
        let (busy, other): (Box<dyn Error>, Box<dyn Error>) = ("busy".into(), "other".into());
        assert!(policy.retries(&std::fmt::Error) && policy.retries(&*busy));
        assert!(!policy.retries(&*other));
    }
}
