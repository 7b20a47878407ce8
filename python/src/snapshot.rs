//! The state at one checkpoint.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use annals::base::Value;
use annals::history::{ChannelBlame, ExportOptions, Framing, MessageQuery, Snapshot, diff};
use annals::message::{LangChainFormat, Message, OpenAiFormat};
use annals::store::{ItemRange, StoreError};
use annals_page::{markdown_heading, markdown_message};
use annals_pydantic_ai::PydanticAiFormat;
use annals_runs::SnapshotRuns;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::diff::PyDiff;
use crate::errors::{CallError, StorageError, invalid, raise};
use crate::html::{cell, table};
use crate::iterators::{PyReadIterator, ReadItem};
use crate::records::{PyBlame, PyTextChange, minute};
use crate::thread::PyThread;
use crate::values::{datetime, dict, list, to_python};

/// Items of a list that one read of a transcript takes.
const TRANSCRIPT_PAGE: u64 = 200;

/// The state at one checkpoint. Its values are read when they are asked for.
#[pyclass(frozen, eq, hash, name = "Snapshot", module = "annals")]
#[derive(Clone, Debug)]
pub(crate) struct PySnapshot(pub(crate) Snapshot);

impl PartialEq for PySnapshot {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl std::hash::Hash for PySnapshot {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.point().thread.as_str().hash(state);
        self.0.id().hash(state);
    }
}

impl PySnapshot {
    pub(crate) fn new(snapshot: Snapshot) -> Self {
        Self(snapshot)
    }

    /// Returns the names of its record, for a table.
    pub(crate) fn row(&self) -> Vec<String> {
        let at = &self.0;
        let next: Vec<&str> = at.next().collect();
        vec![
            at.id().to_string(),
            at.step().to_string(),
            at.source().to_string(),
            minute(at.created_at()),
            next.join(", "),
        ]
    }

    pub(crate) const ROW: [&str; 5] = ["checkpoint", "step", "source", "created at", "next"];

    /// Returns the record as a dict, for a data frame.
    pub(crate) fn record<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let record = PyDict::new(py);
        record.set_item("checkpoint", self.id())?;
        record.set_item("step", self.step())?;
        record.set_item("source", self.source())?;
        record.set_item("created_at", self.created_at(py)?)?;
        record.set_item("run", self.run())?;
        record.set_item("next", self.next())?;
        Ok(record)
    }
}

#[pymethods]
impl PySnapshot {
    /// The id of the checkpoint.
    #[getter]
    fn id(&self) -> String {
        self.0.id().to_string()
    }

    /// The id of the thread.
    #[getter]
    fn thread(&self) -> &str {
        self.0.point().thread.as_str()
    }

    /// The namespace of the subgraph; empty for the outermost graph.
    #[getter]
    fn namespace(&self) -> &str {
        self.0.point().namespace.as_str()
    }

    /// The number of the superstep.
    #[getter]
    fn step(&self) -> i64 {
        self.0.step()
    }

    /// `input`, `loop`, `update` or `fork`.
    #[getter]
    fn source(&self) -> &'static str {
        self.0.source().as_str()
    }

    /// The time of the checkpoint, in UTC.
    #[getter]
    fn created_at<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        datetime(py, self.0.created_at())
    }

    /// The id of the run that made it.
    #[getter]
    fn run(&self) -> Option<String> {
        self.0.record().run.map(|run| run.to_string())
    }

    /// The nodes whose tasks were due after it.
    #[getter]
    fn next(&self) -> Vec<String> {
        self.0.next().map(str::to_owned).collect()
    }

    /// Its further metadata.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let text = self.0.record().metadata.as_deref().unwrap_or("{}");
        py.import("json")?.call_method1("loads", (text,))
    }

    /// Returns the shortest beginning of the id that stays unique in the thread.
    fn short_id(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| self.0.short_id()).map_err(raise)
    }

    /// Returns the checkpoint it builds on; `None` for the first one.
    fn parent(&self, py: Python<'_>) -> PyResult<Option<Self>> {
        Ok(py.detach(|| self.0.parent()).map_err(raise)?.map(Self))
    }

    /// Returns the names of the channels that hold something.
    fn channels(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let channels = py.detach(|| self.0.channels()).map_err(raise)?;
        Ok(channels.iter().map(ToString::to_string).collect())
    }

    /// Returns the values of all channels that hold something.
    fn values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dict(py, &py.detach(|| self.0.values()).map_err(raise)?)
    }

    /// Returns the value of a channel, or the default if it holds nothing.
    #[pyo3(signature = (channel, default = None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        channel: &str,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match py.detach(|| self.0.get(channel)).map_err(raise)? {
            Some(value) => Ok(Some(to_python(py, &value)?)),
            None => Ok(default),
        }
    }

    /// Returns the value of a channel. Raises `KeyError` if it holds nothing.
    fn __getitem__<'py>(&self, py: Python<'py>, channel: &str) -> PyResult<Bound<'py, PyAny>> {
        match py.detach(|| self.0.get(channel)).map_err(raise)? {
            Some(value) => to_python(py, &value),
            None => Err(PyKeyError::new_err(channel.to_owned())),
        }
    }

    /// Returns items of a list channel, oldest first: all, the last ones, or those at the positions from
    /// `start` to `stop`. Only these are read.
    #[pyo3(signature = (channel = "messages", *, last = None, start = None, stop = None))]
    fn items<'py>(
        &self,
        py: Python<'py>,
        channel: &str,
        last: Option<usize>,
        start: Option<u64>,
        stop: Option<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let range = match (last, start, stop) {
            (None, None, None) => ItemRange::All,
            (Some(last), None, None) => ItemRange::Tail(last),
            (None, start, stop) => ItemRange::Positions(start.unwrap_or(0), stop.unwrap_or(u64::MAX)),
            _ => return Err(invalid("last: it is not given with start or stop")),
        };
        let items = py.detach(|| self.0.items(channel, range)).map_err(raise)?;
        Ok(list(py, &items)?.into_any())
    }

    /// Returns the messages of a channel as a model sees them: the first ones that stay, the summary of those that
    /// `Thread.compact` has folded, and the last ones. Only these are read. Without a compaction they are all
    /// messages.
    #[pyo3(signature = (channel = "messages"))]
    fn model_view<'py>(&self, py: Python<'py>, channel: &str) -> PyResult<Bound<'py, PyAny>> {
        let view = py.detach(|| self.0.model_view(channel)).map_err(raise)?;
        messages(py, &view)
    }

    /// Returns the number of items of a list, of entries of a map, or of parts of a text, without reading them.
    fn length(&self, py: Python<'_>, channel: &str) -> PyResult<u64> {
        py.detach(|| self.0.len(channel)).map_err(raise)
    }

    /// Returns the value at a key of a map channel; `None` if it has no such key. Only the entry is read.
    fn entry<'py>(&self, py: Python<'py>, channel: &str, key: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = py.detach(|| self.0.entry(channel, key)).map_err(raise)?;
        value.map(|value| to_python(py, &value)).transpose()
    }

    /// Returns the messages of a channel that fit: their text holds `text`, and role, id, name and tool call
    /// are those given.
    #[pyo3(signature = (text = None, *, channel = "messages", role = None, id = None, name = None, tool_call = None))]
    fn find_messages<'py>(
        &self,
        py: Python<'py>,
        text: Option<String>,
        channel: &str,
        role: Option<String>,
        id: Option<String>,
        name: Option<String>,
        tool_call: Option<String>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut query = MessageQuery::new();
        query = text.into_iter().fold(query, MessageQuery::text);
        query = role.into_iter().fold(query, MessageQuery::kind);
        query = id.into_iter().fold(query, MessageQuery::id);
        query = name.into_iter().fold(query, MessageQuery::name);
        query = tool_call.into_iter().fold(query, MessageQuery::tool_call);
        let found = py.detach(|| self.0.find_messages(channel, &query)).map_err(raise)?;
        messages(py, &found)
    }

    /// Returns the values of the open interrupts.
    fn interrupts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let open = py.detach(|| self.0.interrupts()).map_err(raise)?;
        let values: Vec<Value> = open.into_iter().map(|(_, value)| value).collect();
        Ok(list(py, &values)?.into_any())
    }

    /// Compares the state with a later one.
    fn diff(&self, py: Python<'_>, after: &Bound<'_, Self>) -> PyResult<PyDiff> {
        let after = &after.get().0;
        py.detach(|| diff(&self.0, after)).map(PyDiff::new).map_err(raise)
    }

    /// Returns the writer of the value of a channel, of an item of a list (by id or position), of an entry of
    /// a map (by key), or of a part of a value (by JSON Pointer). Returns `None` if there is nothing.
    #[pyo3(signature = (channel, *, item = None, key = None, position = None, path = None))]
    fn blame(
        &self,
        py: Python<'_>,
        channel: &str,
        item: Option<&str>,
        key: Option<&str>,
        position: Option<u64>,
        path: Option<&str>,
    ) -> PyResult<Option<PyBlame>> {
        let given = [item.is_some(), key.is_some(), position.is_some(), path.is_some()];
        if given.into_iter().filter(|given| *given).count() > 1 {
            return Err(invalid("blame: at most one of item, key, position and path is given"));
        }
        let find = |of: ChannelBlame<'_>| match (item, key, position, path) {
            (Some(id), ..) => of.item(id),
            (_, Some(key), ..) => of.entry(key),
            (_, _, Some(position), _) => of.position(position),
            (_, _, _, Some(path)) => of.path(path),
            _ => of.value(),
        };
        Ok(py.detach(|| find(self.0.blame(channel))).map_err(raise)?.map(PyBlame::new))
    }

    /// Returns the values of a channel, an item or an entry over time, newest first.
    #[pyo3(signature = (channel, *, item = None, key = None))]
    fn evolution(
        &self,
        py: Python<'_>,
        channel: &str,
        item: Option<&str>,
        key: Option<&str>,
    ) -> PyResult<PyReadIterator> {
        let at = &self.0;
        let found = py.detach(|| match (item, key) {
            (Some(id), None) => at.item_evolution(channel, id),
            (None, Some(key)) => Ok(at.entry_evolution(channel, key)),
            (None, None) => Ok(at.evolution(channel)),
            (Some(_), Some(_)) => {
                let reason = "at most one of item and key is given".to_owned();
                Err(StoreError::Invalid { field: "evolution", reason })
            }
        });
        let versions = found.map_err(raise)?;
        Ok(PyReadIterator::new(
            versions.map(|version| Ok(ReadItem::Version(Box::new(version.map_err(annals::Error::from)?)))),
        ))
    }

    /// Returns the changes by which a text appears or disappears on the lineage of this checkpoint, oldest
    /// first.
    fn pickaxe(&self, py: Python<'_>, text: &str) -> PyResult<Vec<PyTextChange>> {
        let changes = py.detach(|| self.0.pickaxe(text)).map_err(raise)?;
        Ok(changes.into_iter().map(PyTextChange::new).collect())
    }

    /// Starts a new thread with the state of this checkpoint. Nothing is copied. Raises `ConflictError` if it
    /// exists.
    fn fork(&self, py: Python<'_>, thread: &str) -> PyResult<PyThread> {
        py.detach(|| self.0.fork_to(thread)).map(PyThread::new).map_err(raise)
    }

    /// Returns the messages of a channel in a format: `langchain`, `openai`, `pydantic-ai` (lists of JSON, or
    /// JSON lines with `lines`) or `markdown`. With `path` they are written to a new file, and `None` is
    /// returned.
    #[pyo3(signature = (format = "langchain", *, channel = "messages", lines = false, path = None))]
    fn export(
        &self,
        py: Python<'_>,
        format: &str,
        channel: &str,
        lines: bool,
        path: Option<PathBuf>,
    ) -> PyResult<Option<String>> {
        let options = ExportOptions::new().framing(if lines { Framing::Lines } else { Framing::List });
        let options = match format {
            "langchain" => Some(options.format(LangChainFormat)),
            "openai" => Some(options.format(OpenAiFormat)),
            "pydantic-ai" => Some(options.format(PydanticAiFormat)),
            "markdown" => None,
            _ => {
                let known = "langchain, openai, pydantic-ai and markdown";
                return Err(invalid(format!("format: {format:?} is not one of {known}")));
            }
        };
        let write = |out: &mut dyn Write| -> Result<(), CallError> {
            match &options {
                Some(options) => _ = self.0.export_messages(channel, options, out)?,
                None => self.transcript(channel, out)?,
            }
            Ok(())
        };
        py.detach(|| match path {
            None => {
                let mut bytes = Vec::new();
                write(&mut bytes)?;
                Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
            }
            Some(path) => {
                let mut out = BufWriter::new(File::create_new(&path).map_err(PyErr::from)?);
                let written = write(&mut out).and_then(|()| Ok(out.flush().map_err(PyErr::from)?));
                if written.is_err() {
                    // Half a document is worse than none; the error of the export is the one that is raised.
                    _ = std::fs::remove_file(&path);
                }
                written.map(|()| None)
            }
        })
        .map_err(|error: CallError| error.into())
    }

    /// Returns the items of a list channel as a data frame. Needs pandas.
    #[pyo3(signature = (channel = "messages"))]
    fn to_pandas<'py>(&self, py: Python<'py>, channel: &str) -> PyResult<Bound<'py, PyAny>> {
        data_frame(py, self.items(py, channel, None, None, None)?)
    }

    fn __repr__(&self) -> String {
        let at = &self.0;
        format!("Snapshot({:?}, {}, step={}, source={:?})", self.thread(), at.id(), at.step(), self.source())
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let values = py.detach(|| self.0.values()).map_err(raise)?;
        let rows: Vec<Vec<String>> = values.iter().map(|(name, value)| vec![name.clone(), cell(value)]).collect();
        let caption = format!("{} step {} ({})", self.thread(), self.0.step(), self.0.id());
        Ok(table(&caption, &["channel", "value"], &rows))
    }
}

impl PySnapshot {
    /// Writes the messages of a channel as Markdown. A page of them is in memory at a time.
    fn transcript(&self, channel: &str, out: &mut dyn Write) -> Result<(), CallError> {
        let failed =
            |error: std::io::Error| CallError::from(StorageError::new_err((error.to_string(), "WRITE_FAILED")));
        let at = &self.0;
        write!(out, "{}", markdown_heading(self.thread())).map_err(failed)?;
        writeln!(out, "{}, step {}, {}", at.id(), at.step(), at.created_at()).map_err(failed)?;
        // The positions that range deletes left out are passed over by the read.
        let mut begin = 0;
        let mut left = at.len(channel)?;
        while left > 0 {
            let end = begin + TRANSCRIPT_PAGE;
            let items = at.items(channel, ItemRange::Positions(begin, end))?;
            left = left.saturating_sub(items.len() as u64);
            begin = end;
            for item in items {
                write!(out, "\n{}", markdown_message(&item.to_json())).map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// Returns messages as a list of dicts in LangChain's format.
fn messages<'py>(py: Python<'py>, messages: &[Message]) -> PyResult<Bound<'py, PyAny>> {
    let maps: Vec<Value> = messages.iter().map(|message| Value::Map(message.to_map())).collect();
    Ok(list(py, &maps)?.into_any())
}

/// Makes a data frame of pandas, which is imported only here.
pub(crate) fn data_frame<'py>(py: Python<'py>, rows: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    py.import("pandas")?.call_method1("DataFrame", (rows,))
}
