//! Records that the store returns, as objects that do not change.

use annals::base::Timestamp;
use annals::history::{Blame, Operation, TextChange, ValueVersion};
use annals::store::{CheckReport, SearchHit, Store, ThreadInfo, ThreadStatus};
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
    #[getter]
    fn id(&self) -> &str {
        self.0.id().as_str()
    }

    #[getter]
    fn head(&self) -> String {
        self.0.head().to_string()
    }

    #[getter]
    fn step(&self) -> i64 {
        self.0.record().step
    }

    #[getter]
    fn title(&self) -> Option<&str> {
        self.0.title()
    }

    #[getter]
    fn project(&self) -> Option<&str> {
        self.0.facts().project.as_deref()
    }

    #[getter]
    fn labels(&self) -> Vec<String> {
        self.0.facts().labels.clone()
    }

    #[getter]
    fn is_archived(&self) -> bool {
        self.0.facts().is_archived
    }

    #[getter]
    fn is_pinned(&self) -> bool {
        self.0.facts().is_pinned
    }

    #[getter]
    fn is_paused(&self) -> bool {
        self.0.facts().is_paused
    }

    #[getter]
    fn status(&self) -> &'static str {
        self.0.status().as_str()
    }

    #[getter]
    fn error(&self) -> Option<&str> {
        match self.0.status() {
            ThreadStatus::Failed(message) | ThreadStatus::Stuck(message) => Some(message),
            ThreadStatus::Cancelled(reason) => reason.as_deref(),
            _ => None,
        }
    }

    #[getter]
    fn interrupts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let values: &[_] = match self.0.status() {
            ThreadStatus::Interrupted(values) => values,
            _ => &[],
        };
        Ok(list(py, values)?.into_any())
    }

    #[getter]
    fn graph(&self) -> Option<&str> {
        self.0.graph()
    }

    #[getter]
    fn priority(&self) -> u8 {
        self.0.priority()
    }

    #[getter]
    fn updated_at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        datetime(py, self.0.updated_at())
    }

    #[getter]
    fn messages(&self) -> Option<u64> {
        self.0.counts().map(|counts| counts.messages)
    }

    #[getter]
    fn input_tokens(&self) -> Option<u64> {
        self.0.counts().map(|counts| counts.input_tokens)
    }

    #[getter]
    fn output_tokens(&self) -> Option<u64> {
        self.0.counts().map(|counts| counts.output_tokens)
    }

    #[getter]
    fn cost_usd(&self) -> Option<f64> {
        self.0.counts().map(|counts| counts.cost_usd())
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
    #[getter]
    fn thread(&self) -> &str {
        self.0.point.thread.as_str()
    }

    #[getter]
    fn checkpoint(&self) -> String {
        self.0.point.checkpoint.to_string()
    }

    #[getter]
    fn step(&self) -> i64 {
        self.0.step
    }

    #[getter]
    fn source(&self) -> &'static str {
        self.0.source.as_str()
    }

    #[getter]
    fn created_at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        datetime(py, self.0.created_at)
    }

    #[getter]
    fn node(&self) -> Option<&str> {
        self.0.node.as_deref()
    }

    #[getter]
    fn task(&self) -> Option<String> {
        self.0.task.map(|task| task.to_string())
    }

    #[getter]
    fn version(&self) -> Option<u64> {
        self.0.version
    }

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
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.value.as_ref().map(|value| to_python(py, value)).transpose()
    }

    #[getter]
    fn is_removed(&self) -> bool {
        self.0.value.is_none()
    }

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
    #[getter]
    fn appears(&self) -> bool {
        self.0.appears
    }

    #[getter]
    fn channel(&self) -> &str {
        &self.0.channel
    }

    #[getter]
    fn item(&self) -> Option<&str> {
        self.0.item.as_deref()
    }

    #[getter]
    fn position(&self) -> Option<u64> {
        self.0.position
    }

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
    #[getter]
    fn name(&self) -> &'static str {
        self.0.name()
    }

    #[getter]
    fn at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        datetime(py, self.0.at())
    }

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
    #[getter]
    fn thread(&self) -> &str {
        self.hit.point.thread.as_str()
    }

    #[getter]
    fn checkpoint(&self) -> String {
        self.hit.point.checkpoint.to_string()
    }

    #[getter]
    fn created_at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        datetime(py, self.hit.created_at)
    }

    #[getter]
    fn channel(&self) -> &str {
        &self.hit.channel
    }

    #[getter]
    fn position(&self) -> u64 {
        self.hit.position
    }

    #[getter]
    fn key(&self) -> Option<&str> {
        self.hit.key.as_deref()
    }

    #[getter]
    fn role(&self) -> Option<&str> {
        self.hit.role.as_deref()
    }

    #[getter]
    fn id(&self) -> Option<&str> {
        self.hit.id.as_deref()
    }

    #[getter]
    fn name(&self) -> Option<&str> {
        self.hit.name.as_deref()
    }

    #[getter]
    fn node(&self) -> Option<&str> {
        self.hit.node.as_deref()
    }

    #[getter]
    fn is_on_head(&self) -> bool {
        self.hit.on_head
    }

    #[getter]
    fn is_partial(&self) -> bool {
        self.hit.partial
    }

    #[getter]
    fn text(&self) -> &str {
        &self.hit.snippet.text
    }

    #[pyo3(signature = (before = "**", after = "**"))]
    fn marked(&self, before: &str, after: &str) -> String {
        self.hit.snippet.marked(before, after)
    }

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
    #[getter]
    fn is_sound(&self) -> bool {
        self.0.problems.is_empty()
    }

    #[getter]
    fn problems(&self) -> Vec<String> {
        self.0.problems.iter().map(ToString::to_string).collect()
    }

    #[getter]
    fn threads(&self) -> u64 {
        self.0.threads
    }

    #[getter]
    fn checkpoints(&self) -> u64 {
        self.0.checkpoints
    }

    #[getter]
    fn values(&self) -> u64 {
        self.0.values
    }

    #[getter]
    fn entries(&self) -> u64 {
        self.0.entries
    }

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
