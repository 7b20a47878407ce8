//! Records that the store returns, as objects that do not change.

use annals::base::Timestamp;
use annals::history::{Blame, Operation, TextChange, ValueVersion};
use annals::store::check::CheckReport;
use annals::store::search::SearchHit;
use annals::store::{Store, ThreadInfo};
use annals_runs::ThreadStatus;
use pyo3::prelude::*;

use crate::errors::raise;
use crate::snapshot::PySnapshot;
use crate::values::{datetime, list, to_python};

/// A thread as a listing shows it.
#[pyclass(frozen, name = "ThreadInfo", module = "annals")]
#[derive(Debug)]
pub(crate) struct PyThreadInfo(ThreadInfo);

impl PyThreadInfo {
    pub(crate) fn new(info: ThreadInfo) -> Self {
        Self(info)
    }
}

#[pymethods]
impl PyThreadInfo {
    /// The id of the thread.
    #[getter]
    fn id(&self) -> &str {
        self.0.id().as_str()
    }

    /// The id of its head.
    #[getter]
    fn head(&self) -> String {
        self.0.head().to_string()
    }

    /// The number of the superstep that made the head.
    #[getter]
    fn step(&self) -> i64 {
        self.0.record.step
    }

    /// Its title.
    #[getter]
    fn title(&self) -> Option<&str> {
        self.0.title()
    }

    /// The project that it belongs to.
    #[getter]
    fn project(&self) -> Option<&str> {
        self.0.facts.project.as_deref()
    }

    /// Its labels, sorted.
    #[getter]
    fn labels(&self) -> Vec<String> {
        self.0.facts.labels.clone()
    }

    /// True if it is archived.
    #[getter]
    fn is_archived(&self) -> bool {
        self.0.facts.is_archived
    }

    /// True if it is pinned.
    #[getter]
    fn is_pinned(&self) -> bool {
        self.0.facts.is_pinned
    }

    /// True if workers pass it over.
    #[getter]
    fn is_paused(&self) -> bool {
        self.0.facts.is_paused
    }

    /// `done`, `running`, `interrupted`, `failed`, `sleeping`, `cancelled` or `stuck`.
    #[getter]
    fn status(&self) -> &'static str {
        ThreadStatus::of(&self.0).as_str()
    }

    /// The message of a failed or stuck thread, the reason of a cancelled one.
    #[getter]
    fn error(&self) -> Option<String> {
        match ThreadStatus::of(&self.0) {
            ThreadStatus::Failed(message) | ThreadStatus::Stuck(message) => Some(message),
            ThreadStatus::Cancelled(reason) => reason,
            _ => None,
        }
    }

    /// The values of its open interrupts.
    #[getter]
    fn interrupts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let values = match ThreadStatus::of(&self.0) {
            ThreadStatus::Interrupted(values) => values,
            _ => Vec::new(),
        };
        Ok(list(py, &values)?.into_any())
    }

    /// The name of its graph.
    #[getter]
    fn graph(&self) -> Option<&str> {
        self.0.graph.as_deref()
    }

    /// The priority of its run, 0 to 9.
    #[getter]
    fn priority(&self) -> u8 {
        self.0.priority
    }

    /// The time of its newest checkpoint, in UTC.
    #[getter]
    fn updated_at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        datetime(py, self.0.updated_at)
    }

    /// The number of messages at the head; `None` if rows are damaged.
    #[getter]
    fn messages(&self) -> Option<u64> {
        self.0.counts.map(|counts| counts.messages)
    }

    /// Tokens that its model calls read.
    #[getter]
    fn input_tokens(&self) -> Option<u64> {
        self.0.counts.map(|counts| counts.input_tokens)
    }

    /// Tokens that its model calls wrote.
    #[getter]
    fn output_tokens(&self) -> Option<u64> {
        self.0.counts.map(|counts| counts.output_tokens)
    }

    /// The stated costs of its model calls in US dollars.
    #[getter]
    fn cost_usd(&self) -> Option<f64> {
        self.0.counts.map(|counts| counts.cost_usd())
    }

    fn __repr__(&self) -> String {
        format!("ThreadInfo({:?}, status={:?})", self.id(), self.status())
    }
}

/// The writer of a value.
#[pyclass(frozen, eq, name = "Blame", module = "annals")]
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PyBlame(Blame);

impl PyBlame {
    pub(crate) fn new(blame: Blame) -> Self {
        Self(blame)
    }
}

#[pymethods]
impl PyBlame {
    /// The thread that holds the checkpoint.
    #[getter]
    fn thread(&self) -> &str {
        self.0.point.thread.as_str()
    }

    /// The id of the checkpoint.
    #[getter]
    fn checkpoint(&self) -> String {
        self.0.point.checkpoint.to_string()
    }

    /// The number of the superstep that made the checkpoint.
    #[getter]
    fn step(&self) -> i64 {
        self.0.step
    }

    /// `input`, `loop`, `update` or `fork`.
    #[getter]
    fn source(&self) -> &'static str {
        self.0.source.as_str()
    }

    /// The time of the checkpoint, in UTC.
    #[getter]
    fn created_at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        datetime(py, self.0.created_at)
    }

    /// The node that wrote it; `None` of an input or an update.
    #[getter]
    fn node(&self) -> Option<&str> {
        self.0.node.as_deref()
    }

    /// The id of the task that wrote it.
    #[getter]
    fn task(&self) -> Option<String> {
        self.0.task.map(|task| task.to_string())
    }

    /// The version of the channel; `None` of an item.
    #[getter]
    fn version(&self) -> Option<u64> {
        self.0.version
    }

    /// True if the state at the checkpoint cannot be read any more.
    #[getter]
    fn is_pruned(&self) -> bool {
        self.0.pruned
    }

    fn __repr__(&self) -> String {
        let node = self.0.node.as_deref().map_or_else(String::new, |node| format!(", node={node:?}"));
        format!("Blame(step={}, source={:?}{node})", self.0.step, self.source())
    }
}

/// A value at one time.
#[pyclass(frozen, name = "ValueVersion", module = "annals")]
#[derive(Debug)]
pub(crate) struct PyValueVersion(ValueVersion);

impl PyValueVersion {
    pub(crate) fn new(version: ValueVersion) -> Self {
        Self(version)
    }
}

#[pymethods]
impl PyValueVersion {
    /// The value; `None` as well if it was removed.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.value.as_ref().map(|value| to_python(py, value)).transpose()
    }

    /// True if the channel was emptied, or the item removed.
    #[getter]
    fn is_removed(&self) -> bool {
        self.0.value.is_none()
    }

    /// The writer of the value.
    #[getter]
    fn blame(&self) -> PyBlame {
        PyBlame(self.0.blame.clone())
    }

    fn __repr__(&self) -> String {
        format!("ValueVersion(step={})", self.0.blame.step)
    }
}

/// A change of the state by which a text appears, or disappears.
#[pyclass(frozen, name = "TextChange", module = "annals")]
#[derive(Debug)]
pub(crate) struct PyTextChange(TextChange);

impl PyTextChange {
    pub(crate) fn new(change: TextChange) -> Self {
        Self(change)
    }
}

#[pymethods]
impl PyTextChange {
    /// True if the text appears, false if it disappears.
    #[getter]
    fn appears(&self) -> bool {
        self.0.appears
    }

    /// The channel.
    #[getter]
    fn channel(&self) -> &str {
        &self.0.channel
    }

    /// The id of the item that holds or held the text.
    #[getter]
    fn item(&self) -> Option<&str> {
        self.0.item.as_deref()
    }

    /// The position of the item in its list.
    #[getter]
    fn position(&self) -> Option<u64> {
        self.0.position
    }

    /// The writer of the change.
    #[getter]
    fn blame(&self) -> PyBlame {
        PyBlame(self.0.blame.clone())
    }

    fn __repr__(&self) -> String {
        let verb = if self.0.appears { "appears" } else { "disappears" };
        format!("TextChange({verb} in {:?}, step={})", self.0.channel, self.0.blame.step)
    }
}

/// An operation of a thread.
#[pyclass(frozen, name = "Operation", module = "annals")]
#[derive(Debug)]
pub(crate) struct PyOperation(Operation);

impl PyOperation {
    pub(crate) fn new(operation: Operation) -> Self {
        Self(operation)
    }
}

#[pymethods]
impl PyOperation {
    /// `run`, `update`, `fork`, `rewind`, `undo` and the like.
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    /// Its time, in UTC.
    #[getter]
    fn at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        datetime(py, self.0.at())
    }

    /// The user or the program that made it, if it is known.
    #[getter]
    fn actor(&self) -> Option<&str> {
        self.0.actor()
    }

    fn __repr__(&self) -> String {
        format!("Operation({:?})", self.0.name())
    }
}

/// An item, or a value, that a search found.
#[pyclass(frozen, name = "SearchHit", module = "annals")]
pub(crate) struct PySearchHit {
    hit: SearchHit,
    store: Store,
}

impl PySearchHit {
    pub(crate) fn new(hit: SearchHit, store: Store) -> Self {
        Self { hit, store }
    }
}

#[pymethods]
impl PySearchHit {
    /// The thread.
    #[getter]
    fn thread(&self) -> &str {
        self.hit.point.thread.as_str()
    }

    /// The id of the checkpoint that put it.
    #[getter]
    fn checkpoint(&self) -> String {
        self.hit.point.checkpoint.to_string()
    }

    /// The time of the checkpoint, in UTC.
    #[getter]
    fn created_at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        datetime(py, self.hit.created_at)
    }

    /// The channel.
    #[getter]
    fn channel(&self) -> &str {
        &self.hit.channel
    }

    /// The position of the item in its list.
    #[getter]
    fn position(&self) -> u64 {
        self.hit.position
    }

    /// The key of an entry of a map.
    #[getter]
    fn key(&self) -> Option<&str> {
        self.hit.key.as_deref()
    }

    /// The type of a message.
    #[getter]
    fn role(&self) -> Option<&str> {
        self.hit.role.as_deref()
    }

    /// The id of the item.
    #[getter]
    fn id(&self) -> Option<&str> {
        self.hit.id.as_deref()
    }

    /// The name of the author.
    #[getter]
    fn name(&self) -> Option<&str> {
        self.hit.name.as_deref()
    }

    /// The node that wrote it.
    #[getter]
    fn node(&self) -> Option<&str> {
        self.hit.node.as_deref()
    }

    /// True if the head of the thread still shows it.
    #[getter]
    fn is_on_head(&self) -> bool {
        self.hit.on_head
    }

    /// True for a message whose stream was cut off.
    #[getter]
    fn is_partial(&self) -> bool {
        self.hit.partial
    }

    /// The text around the first match.
    #[getter]
    fn text(&self) -> &str {
        &self.hit.snippet.text
    }

    /// Returns the text with marks around each match.
    #[pyo3(signature = (before = "**", after = "**"))]
    fn marked(&self, before: &str, after: &str) -> String {
        self.hit.snippet.marked(before, after)
    }

    /// Returns the state at the checkpoint that put it.
    fn snapshot(&self, py: Python<'_>) -> PyResult<PySnapshot> {
        py.detach(|| self.hit.snapshot(&self.store)).map(PySnapshot::new).map_err(raise)
    }

    fn __repr__(&self) -> String {
        format!("SearchHit({:?}, {:?})", self.thread(), self.marked("**", "**"))
    }
}

/// The report of a check.
#[pyclass(frozen, name = "CheckReport", module = "annals")]
#[derive(Debug)]
pub(crate) struct PyCheckReport(CheckReport);

impl PyCheckReport {
    pub(crate) fn new(report: CheckReport) -> Self {
        Self(report)
    }
}

#[pymethods]
impl PyCheckReport {
    /// True if no problem was found.
    #[getter]
    fn is_sound(&self) -> bool {
        self.0.problems.is_empty()
    }

    /// The problems: number of the invariant, place and reason of each.
    #[getter]
    fn problems(&self) -> Vec<String> {
        self.0.problems.iter().map(ToString::to_string).collect()
    }

    /// Threads that were checked.
    #[getter]
    fn threads(&self) -> u64 {
        self.0.threads
    }

    /// Checkpoints whose checksum was verified.
    #[getter]
    fn checkpoints(&self) -> u64 {
        self.0.checkpoints
    }

    /// Values whose checksum was verified.
    #[getter]
    fn values(&self) -> u64 {
        self.0.values
    }

    /// Entries of the key-value memory and of the cache that were verified.
    #[getter]
    fn entries(&self) -> u64 {
        self.0.entries
    }

    /// The point at which the check ended, for `Store.check(since=...)`; `None` after a problem.
    #[getter]
    fn up_to(&self) -> Option<String> {
        self.0.up_to.as_ref().map(ToString::to_string)
    }

    fn __repr__(&self) -> String {
        let (checkpoints, problems) = (self.0.checkpoints, self.0.problems.len());
        format!("CheckReport(checkpoints={checkpoints}, problems={problems})")
    }
}

/// Shows a timestamp to a minute, for a table.
pub(crate) fn minute(at: Timestamp) -> String {
    at.to_string().chars().take(16).map(|c| if c == 'T' { ' ' } else { c }).collect()
}
