//! The history of a thread, and writes to it.

use std::path::PathBuf;

use annals::base::{CheckpointId, Map, Value};
use annals::history::{
    FactsUpdate, History, HistoryFilter, ImportOptions, MessageCompaction, ModelUsage, NewItem, OnConflict, Operation,
    Thread, ThreadWrite,
};
use annals::message::{LangChainFormat, Message, MessageLike, OpenAiFormat, any_message, convert_to_messages};
use annals_pydantic_ai::PydanticAiFormat;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::errors::{CallError, invalid, raise};
use crate::html::table;
use crate::iterators::{PyReadIterator, ReadItem};
use crate::records::{PyOperation, PyThreadInfo, minute};
use crate::snapshot::{PySnapshot, data_frame};
use crate::values::{from_python, map_from_python};

/// Rows of a history that a notebook shows.
const SHOWN_ROWS: usize = 20;

/// The head that a write expects.
pub(crate) enum ExpectedHead {
    /// Any: the write is applied to the head that it finds.
    Any,
    /// No checkpoint at all.
    None,
    /// This one.
    Checkpoint(CheckpointId),
}

impl<'a, 'py> FromPyObject<'a, 'py> for ExpectedHead {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if object.is(object.py().Ellipsis()) {
            return Ok(Self::Any);
        }
        if object.is_none() {
            return Ok(Self::None);
        }
        if let Ok(snapshot) = object.cast::<PySnapshot>() {
            return Ok(Self::Checkpoint(snapshot.get().0.id()));
        }
        let text: String =
            object.extract().map_err(|_| invalid("expect: it must be a Snapshot, the id of a checkpoint, or None"))?;
        text.parse().map(Self::Checkpoint).map_err(|error| raise(annals::store::StoreError::from(error)))
    }
}

/// The history of one conversation or workflow.
#[pyclass(frozen, name = "Thread", module = "annals")]
#[derive(Debug)]
pub(crate) struct PyThread(pub(crate) Thread);

impl PyThread {
    pub(crate) fn new(thread: Thread) -> Self {
        Self(thread)
    }

    /// Commits a write without the interpreter.
    fn commit(
        &self,
        py: Python<'_>,
        write: ThreadWrite,
        expect: ExpectedHead,
        metadata: Option<Map>,
        on_conflict: &str,
    ) -> PyResult<String> {
        let write = match expect {
            ExpectedHead::Any => write,
            ExpectedHead::None => write.on_head(None),
            ExpectedHead::Checkpoint(id) => write.on_head(Some(id)),
        };
        let write = match on_conflict {
            "error" => write,
            "branch" => write.on_conflict(OnConflict::Branch),
            _ => return Err(invalid(format!("on_conflict: {on_conflict:?} is not one of error and branch"))),
        };
        let write = metadata.into_iter().flatten().fold(write, |write, (name, value)| write.metadata(name, value));
        py.detach(|| write.commit()).map(|id| id.to_string()).map_err(raise)
    }
}

#[pymethods]
impl PyThread {
    /// The id.
    #[getter]
    fn id(&self) -> &str {
        self.0.id().as_str()
    }

    /// The namespace of the subgraph; empty for the outermost graph.
    #[getter]
    fn namespace(&self) -> &str {
        self.0.namespace().as_str()
    }

    /// The actor of the writes through this handle.
    #[getter]
    fn actor(&self) -> Option<&str> {
        self.0.actor()
    }

    /// Returns the thread with another actor, who is recorded with each write.
    fn by(&self, actor: &str) -> Self {
        Self(self.0.by(actor))
    }

    /// Returns the history of a subgraph of the thread.
    fn in_namespace(&self, path: &str) -> PyResult<Self> {
        self.0.in_namespace(path).map(Self).map_err(raise)
    }

    /// Returns whether the thread has a checkpoint.
    fn exists(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(py.detach(|| self.0.head()).map_err(raise)?.is_some())
    }

    /// Returns the newest checkpoint, `None` if there is none.
    fn head(&self, py: Python<'_>) -> PyResult<Option<PySnapshot>> {
        Ok(py.detach(|| self.0.head()).map_err(raise)?.map(PySnapshot::new))
    }

    /// Returns the checkpoint at a point: an id or its beginning, `~2` (two before the head), `@{yesterday}`,
    /// a name of a branch. Raises `NotFoundError`.
    fn at(&self, py: Python<'_>, point: &str) -> PyResult<PySnapshot> {
        py.detach(|| self.0.at(point)).map(PySnapshot::new).map_err(raise)
    }

    /// Returns what a listing shows of the thread. Raises `NotFoundError` if it has no checkpoint.
    fn info(&self, py: Python<'_>) -> PyResult<PyThreadInfo> {
        py.detach(|| self.0.info()).map(PyThreadInfo::new).map_err(raise)
    }

    /// Returns its checkpoints, newest first, those of abandoned branches included: before an id, at most
    /// `limit`, of a source, a step, or with members of the metadata. They are read page by page, anew for
    /// each iteration.
    #[pyo3(signature = (*, before = None, limit = None, source = None, step = None, metadata = None))]
    fn history(
        &self,
        before: Option<&str>,
        limit: Option<usize>,
        source: Option<&str>,
        step: Option<i64>,
        metadata: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyHistory> {
        let mut filter = HistoryFilter::new();
        if let Some(before) = before {
            filter = filter.before(before.parse().map_err(|error| raise(annals::store::StoreError::from(error)))?);
        }
        if let Some(limit) = limit {
            filter = filter.limit(limit);
        }
        if let Some(source) = source {
            let known = "input, loop, update and fork";
            let parsed = source.parse().map_err(|_| invalid(format!("source: {source:?} is not one of {known}")))?;
            filter = filter.source(parsed);
        }
        if let Some(step) = step {
            filter = filter.step(step);
        }
        if let Some(metadata) = metadata {
            let members = map_from_python("metadata", metadata)?;
            filter = members.into_iter().fold(filter, |filter, (name, value)| filter.metadata(name, value));
        }
        Ok(PyHistory { thread: self.0.clone(), filter })
    }

    /// Appends values to a list channel in one commit. Returns the id of the new checkpoint when it is on the
    /// disk.
    ///
    /// With `expect`, a `Snapshot`, an id, or `None` for a thread without checkpoints, the write is refused
    /// with `ConflictError` if the head is another one; with `on_conflict="branch"` it is then stored as a
    /// branch off that head.
    #[pyo3(signature = (channel, items, *, expect = ExpectedHead::Any, metadata = None, on_conflict = "error"))]
    fn append(
        &self,
        py: Python<'_>,
        channel: &str,
        items: &Bound<'_, PyAny>,
        expect: ExpectedHead,
        metadata: Option<&Bound<'_, PyAny>>,
        on_conflict: &str,
    ) -> PyResult<String> {
        let write = self.0.write().append(channel, values("items", items)?);
        self.commit(py, write, expect, members(metadata)?, on_conflict)
    }

    /// Appends messages to a channel: messages of LangChain, dicts in its format or in that of OpenAI, pairs
    /// of role and text, or texts of a human. A message with a known id replaces that message. `usage` has
    /// `input_tokens`, `output_tokens`, `cost_usd` and `model` of the model call. All else is as in `append`.
    #[pyo3(signature = (messages, *, channel = "messages", expect = ExpectedHead::Any, metadata = None, usage = None, on_conflict = "error"))]
    fn append_messages(
        &self,
        py: Python<'_>,
        messages: &Bound<'_, PyAny>,
        channel: &str,
        expect: ExpectedHead,
        metadata: Option<&Bound<'_, PyAny>>,
        usage: Option<&Bound<'_, PyDict>>,
        on_conflict: &str,
    ) -> PyResult<String> {
        let mut write = self.0.write().append(channel, messages_of("messages", messages)?);
        if let Some(usage) = usage {
            write = write.usage(usage_of(usage)?);
        }
        self.commit(py, write, expect, members(metadata)?, on_conflict)
    }

    /// Sets a channel that holds one value. All else is as in `append`.
    #[pyo3(signature = (channel, value, *, expect = ExpectedHead::Any, metadata = None, on_conflict = "error"))]
    fn set(
        &self,
        py: Python<'_>,
        channel: &str,
        value: &Bound<'_, PyAny>,
        expect: ExpectedHead,
        metadata: Option<&Bound<'_, PyAny>>,
        on_conflict: &str,
    ) -> PyResult<String> {
        let write = self.0.write().set(channel, from_python("value", value)?);
        self.commit(py, write, expect, members(metadata)?, on_conflict)
    }

    /// Writes several channels in one commit: sets values, appends values, messages or text, puts entries of
    /// maps, or removes keys of maps. All else is as in `append`.
    #[pyo3(signature = (*, set = None, append = None, messages = None, put = None, remove = None, text = None, expect = ExpectedHead::Any, metadata = None, on_conflict = "error"))]
    fn update(
        &self,
        py: Python<'_>,
        set: Option<&Bound<'_, PyDict>>,
        append: Option<&Bound<'_, PyDict>>,
        messages: Option<&Bound<'_, PyDict>>,
        put: Option<&Bound<'_, PyDict>>,
        remove: Option<&Bound<'_, PyDict>>,
        text: Option<&Bound<'_, PyDict>>,
        expect: ExpectedHead,
        metadata: Option<&Bound<'_, PyAny>>,
        on_conflict: &str,
    ) -> PyResult<String> {
        let mut write = self.0.write();
        for (channel, value) in channels(set)? {
            write = write.set(&channel, from_python(&format!("set[{channel:?}]"), &value)?);
        }
        for (channel, items) in channels(append)? {
            write = write.append(&channel, values(&format!("append[{channel:?}]"), &items)?);
        }
        for (channel, items) in channels(messages)? {
            write = write.append(&channel, messages_of(&format!("messages[{channel:?}]"), &items)?);
        }
        for (channel, entries) in channels(put)? {
            for (key, value) in map_from_python(&format!("put[{channel:?}]"), &entries)? {
                write = write.put(&channel, &key, value);
            }
        }
        for (channel, keys) in channels(remove)? {
            for key in keys.extract::<Vec<String>>()? {
                write = write.remove(&channel, &key);
            }
        }
        for (channel, part) in channels(text)? {
            write = write.append_text(&channel, part.extract::<String>()?);
        }
        self.commit(py, write, expect, members(metadata)?, on_conflict)
    }

    /// Folds messages of a channel under a summary, messages as in `append_messages`, in one commit. Returns the
    /// id of the new checkpoint when it is on the disk. The list stays; `Snapshot.model_view` shows it with the
    /// summary in place of the folded messages. Of the list the first `keep_first` and the last `keep_last`
    /// messages stay, and a result of a tool stays with its call. `of` is the state of which the summary was
    /// made: what was appended since stays. A later compaction takes the place of this one, and `undo` goes back
    /// to the state before.
    ///
    /// Raises `InvalidError` if no message would be folded, or if the head does not continue `of`;
    /// `ConflictError` if another compaction was made since `of`.
    #[pyo3(signature = (summary, *, channel = "messages", keep_first = 0, keep_last = 0, of = None, usage = None))]
    fn compact(
        &self,
        py: Python<'_>,
        summary: &Bound<'_, PyAny>,
        channel: &str,
        keep_first: usize,
        keep_last: usize,
        of: Option<&Bound<'_, PySnapshot>>,
        usage: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<String> {
        let summary = read_items("summary", summary, message)?;
        let mut compaction = MessageCompaction::new(summary).keep_first(keep_first).keep_last(keep_last);
        if let Some(of) = of {
            compaction = compaction.of(&of.get().0);
        }
        if let Some(usage) = usage {
            compaction = compaction.usage(usage_of(usage)?);
        }
        py.detach(|| self.0.compact(channel, compaction)).map(|id| id.to_string()).map_err(raise)
    }

    /// Undoes the last operation of the thread: the head moves back, and nothing is erased. Returns the
    /// operation; `None` if there is none left.
    fn undo(&self, py: Python<'_>) -> PyResult<Option<PyOperation>> {
        Ok(py.detach(|| self.0.undo()).map_err(raise)?.map(PyOperation::new))
    }

    /// Makes the operation again that was undone last. Returns it; `None` if there is none.
    fn redo(&self, py: Python<'_>) -> PyResult<Option<PyOperation>> {
        Ok(py.detach(|| self.0.redo()).map_err(raise)?.map(PyOperation::new))
    }

    /// Returns the operations of the thread, newest first.
    fn operations(&self, py: Python<'_>) -> PyResult<PyReadIterator> {
        let operations = py.detach(|| self.0.operations()).map_err(raise)?;
        let item = |operation: Result<Operation, _>| -> annals::Result<ReadItem> {
            Ok(ReadItem::Operation(Box::new(operation.map_err(annals::Error::from)?)))
        };
        Ok(PyReadIterator::new(operations.map(item)))
    }

    /// Moves the head to an earlier checkpoint. What came after it stays as a branch.
    fn rewind(&self, py: Python<'_>, to: &Bound<'_, PySnapshot>) -> PyResult<()> {
        let to = &to.get().0;
        py.detach(|| self.0.rewind_to(to)).map_err(raise)
    }

    /// Returns the branches: the name if it has one, the last checkpoint, and whether it is the current one.
    fn branches(&self, py: Python<'_>) -> PyResult<Vec<(Option<String>, PySnapshot, bool)>> {
        let branches = py.detach(|| self.0.branches()).map_err(raise)?;
        let shown = branches.into_iter().map(|branch| (branch.name, PySnapshot::new(branch.last), branch.is_current));
        Ok(shown.collect())
    }

    /// Starts a new thread with the state of the head. Nothing is copied. Raises `ConflictError` if it exists.
    fn fork(&self, py: Python<'_>, thread: &str) -> PyResult<Self> {
        py.detach(|| self.0.at("@").and_then(|head| head.fork_to(thread))).map(Self).map_err(raise)
    }

    /// Copies the thread with all its checkpoints, under their ids, into a new thread.
    fn copy(&self, py: Python<'_>, thread: &str) -> PyResult<Self> {
        py.detach(|| self.0.copy_to(thread)).map(Self).map_err(raise)
    }

    /// Deletes the thread. It is erased from the file in steps. A thread from which another one was forked is
    /// not deleted.
    fn delete(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.store().delete_thread(self.0.id().as_str())).map(|_| ()).map_err(raise)
    }

    /// States facts: a title or a project (an empty text removes it), labels, archived, pinned. `None` leaves
    /// one as it is.
    #[pyo3(signature = (*, title = None, project = None, add_labels = None, remove_labels = None, archived = None, pinned = None))]
    fn set_facts(
        &self,
        py: Python<'_>,
        title: Option<String>,
        project: Option<String>,
        add_labels: Option<Vec<String>>,
        remove_labels: Option<Vec<String>>,
        archived: Option<bool>,
        pinned: Option<bool>,
    ) -> PyResult<()> {
        let mut facts = self.0.facts();
        facts = match title {
            Some(title) if title.is_empty() => facts.remove_title(),
            Some(title) => facts.title(title),
            None => facts,
        };
        facts = match project {
            Some(project) if project.is_empty() => facts.remove_project(),
            Some(project) => facts.project(project),
            None => facts,
        };
        facts = add_labels.into_iter().flatten().fold(facts, |facts, label| facts.label(label));
        facts = remove_labels.into_iter().flatten().fold(facts, |facts, label| facts.remove_label(label));
        facts = archived.into_iter().fold(facts, FactsUpdate::archived);
        facts = pinned.into_iter().fold(facts, FactsUpdate::pinned);
        py.detach(|| facts.save()).map_err(raise)
    }

    /// Makes the thread of a document of messages, a text, bytes or a path, in the format `langchain`,
    /// `openai` or `pydantic-ai`. Returns their number. Raises `ConflictError` if the thread exists.
    #[pyo3(signature = (source, format = "langchain", *, channel = "messages"))]
    fn import_messages(&self, py: Python<'_>, source: &Bound<'_, PyAny>, format: &str, channel: &str) -> PyResult<u64> {
        let options = ImportOptions::new().channel(channel);
        let options = match format {
            "langchain" => options.format(LangChainFormat),
            "openai" => options.format(OpenAiFormat),
            "pydantic-ai" => options.format(PydanticAiFormat),
            _ => {
                return Err(invalid(format!("format: {format:?} is not one of langchain, openai and pydantic-ai")));
            }
        };
        let bytes: Option<Vec<u8>> = match source.cast::<PyString>() {
            Ok(text) => Some(text.to_str()?.as_bytes().to_vec()),
            Err(_) => source.extract().ok(),
        };
        let path = if bytes.is_none() { Some(source.extract::<PathBuf>()?) } else { None };
        py.detach(|| -> Result<u64, CallError> {
            let report = match (bytes, path) {
                (Some(bytes), _) => self.0.import_messages(&options, &*bytes)?,
                (None, Some(path)) => {
                    self.0.import_messages(&options, std::fs::File::open(path).map_err(PyErr::from)?)?
                }
                (None, None) => return Err(invalid("source: it must be a text, bytes or a path").into()),
            };
            Ok(report.messages)
        })
        .map_err(PyErr::from)
    }

    #[pyo3(signature = (document, *, channel = "messages", expect = ExpectedHead::Any, metadata = None, on_conflict = "error"))]
    fn _append_pydantic_ai(
        &self,
        py: Python<'_>,
        document: &[u8],
        channel: &str,
        expect: ExpectedHead,
        metadata: Option<&Bound<'_, PyAny>>,
        on_conflict: &str,
    ) -> PyResult<String> {
        let write = self.0.write().append(channel, pydantic_messages(&self.0, document)?);
        self.commit(py, write, expect, members(metadata)?, on_conflict)
    }

    /// Returns the history as a data frame, newest checkpoint first. Needs pandas.
    fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        PyHistory { thread: self.0.clone(), filter: HistoryFilter::new() }.to_pandas(py)
    }

    fn __repr__(&self) -> String {
        format!("Thread({:?})", self.id())
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let caption = format!("thread {}", self.id());
        if !self.exists(py)? {
            return Ok(table(&caption, &["status"], &[vec!["no checkpoints".to_owned()]]));
        }
        let info = py.detach(|| self.0.info()).map_err(raise)?;
        let messages = info.counts.map_or_else(String::new, |counts| counts.messages.to_string());
        let row = vec![
            info.title().unwrap_or_default().to_owned(),
            annals_runs::ThreadStatus::of(&info).as_str().to_owned(),
            info.record.step.to_string(),
            messages,
            minute(info.updated_at),
        ];
        Ok(table(&caption, &["title", "status", "step", "messages", "updated at"], &[row]))
    }
}

/// The checkpoints of a thread, newest first: each iteration reads them anew, page by page.
#[pyclass(frozen, name = "History", module = "annals")]
#[derive(Debug)]
pub(crate) struct PyHistory {
    thread: Thread,
    filter: HistoryFilter,
}

impl PyHistory {
    fn read(&self, py: Python<'_>) -> PyResult<History> {
        py.detach(|| self.thread.history_with(self.filter.clone())).map_err(raise)
    }
}

#[pymethods]
impl PyHistory {
    fn __iter__(&self, py: Python<'_>) -> PyResult<PyReadIterator> {
        let item = |snapshot: Result<annals::history::Snapshot, _>| -> annals::Result<ReadItem> {
            Ok(ReadItem::Snapshot(snapshot.map_err(annals::Error::from)?))
        };
        Ok(PyReadIterator::new(self.read(py)?.map(item)))
    }

    /// Returns the checkpoints as a data frame. Needs pandas.
    fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let history = self.read(py)?;
        let snapshots = py.detach(|| history.collect::<Result<Vec<_>, _>>()).map_err(raise)?;
        let rows = snapshots.into_iter().map(|at| PySnapshot::new(at).record(py)).collect::<PyResult<Vec<_>>>()?;
        data_frame(py, PyList::new(py, rows)?.into_any())
    }

    fn __repr__(&self) -> String {
        format!("History({:?})", self.thread.id().as_str())
    }

    fn _repr_html_(&self, py: Python<'_>) -> PyResult<String> {
        let history = self.read(py)?;
        let shown = py.detach(|| history.take(SHOWN_ROWS + 1).collect::<Result<Vec<_>, _>>()).map_err(raise)?;
        let more = if shown.len() > SHOWN_ROWS { format!(", the newest {SHOWN_ROWS}") } else { String::new() };
        let rows: Vec<_> = shown.into_iter().take(SHOWN_ROWS).map(|at| PySnapshot::new(at).row()).collect();
        Ok(table(&format!("history of {}{more}", self.thread.id()), &PySnapshot::ROW, &rows))
    }
}

/// Returns the channels of an argument that has a value for each.
fn channels<'py>(given: Option<&Bound<'py, PyDict>>) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
    let Some(given) = given else { return Ok(Vec::new()) };
    given.iter().map(|(channel, value)| Ok((channel.extract()?, value))).collect()
}

fn members(given: Option<&Bound<'_, PyAny>>) -> PyResult<Option<Map>> {
    given.map(|given| map_from_python("metadata", given)).transpose()
}

fn values(field: &str, items: &Bound<'_, PyAny>) -> PyResult<Vec<NewItem>> {
    read_items(field, items, |field, item| Ok(NewItem::Value(from_python(field, item)?)))
}

fn messages_of(field: &str, items: &Bound<'_, PyAny>) -> PyResult<Vec<NewItem>> {
    read_items(field, items, |field, item| Ok(NewItem::Message(message(field, item)?)))
}

/// Reads the items of a list. A text is not a list of letters.
fn read_items<T>(
    field: &str,
    items: &Bound<'_, PyAny>,
    read: impl Fn(&str, &Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    iterable(field, items)?.enumerate().map(|(at, item)| read(&format!("{field}[{at}]"), &item?)).collect()
}

fn iterable<'py>(
    field: &str,
    items: &Bound<'py, PyAny>,
) -> PyResult<impl Iterator<Item = PyResult<Bound<'py, PyAny>>> + use<'py>> {
    if items.is_instance_of::<PyString>() || items.is_instance_of::<PyDict>() {
        return Err(invalid(format!("{field}: expected a list of items")));
    }
    items.try_iter()
}

/// Reads a message: an object of LangChain, a dict in its format or in that of OpenAI, a pair of role and
/// text, or a text, which is that of a human.
fn message(field: &str, item: &Bound<'_, PyAny>) -> PyResult<Message> {
    let refused = |error: annals::message::MessageError| invalid(format!("{field}: {error}; nothing was written"));
    if item.hasattr("model_dump")? {
        let dumped = item.call_method0("model_dump")?;
        return of_dump(from_python(field, &dumped)?).map_err(refused);
    }
    if let Ok(pair) = item.cast::<PyTuple>() {
        let parts = pair.iter().map(|part| from_python(field, &part).map(MessageLike::Value));
        let like = MessageLike::Tuple(parts.collect::<PyResult<Vec<_>>>()?);
        return only(convert_to_messages([like])).map_err(refused);
    }
    let value = from_python(field, item)?;
    let is_dump = Message::is_dump(&value) || value.get("type").is_some_and(|kind| kind.as_str() == Some("remove"));
    if is_dump { of_dump(value) } else { only(convert_to_messages([MessageLike::Value(value)])) }.map_err(refused)
}

fn of_dump(value: Value) -> Result<Message, annals::message::MessageError> {
    match (value.get("type").and_then(Value::as_str), value.get("id").and_then(Value::as_str)) {
        (Some("remove"), Some(id)) => Ok(Message::remove(id)),
        _ => any_message(MessageLike::Value(value)),
    }
}

fn only(
    messages: Result<Vec<Message>, annals::message::MessageError>,
) -> Result<Message, annals::message::MessageError> {
    let mut messages = messages?;
    debug_assert_eq!(messages.len(), 1, "one value is one message");
    messages.pop().ok_or_else(|| annals::message::MessageError::value("it is not a message".to_owned()))
}

/// Reads requests and responses of PydanticAI as messages.
fn pydantic_messages(thread: &Thread, document: &[u8]) -> PyResult<Vec<NewItem>> {
    use annals::base::{DefaultSource, IdSource, SystemClock};
    let refused = |error: String| invalid(format!("{error}; nothing was written"));
    let mut ids = IdSource::from_seed(thread.store().mint_seed());
    let mut defaults = DefaultSource::new(&SystemClock, &mut ids);
    let history = annals_pydantic_ai::load(document, &mut defaults).map_err(|error| refused(error.to_string()))?;
    let messages = annals_pydantic_ai::to_langchain(&history, false).map_err(|error| refused(error.to_string()))?;
    Ok(messages.into_iter().map(NewItem::Message).collect())
}

fn usage_of(usage: &Bound<'_, PyDict>) -> PyResult<ModelUsage> {
    let (mut input, mut output, mut cost, mut model) = (0, 0, None, None);
    for (name, value) in usage.iter() {
        match &*name.extract::<String>()? {
            "input_tokens" => input = value.extract()?,
            "output_tokens" => output = value.extract()?,
            "cost_usd" => cost = value.extract::<Option<f64>>()?,
            "model" => model = value.extract::<Option<String>>()?,
            other => {
                let known = "input_tokens, output_tokens, cost_usd and model";
                return Err(invalid(format!("usage: {other:?} is not one of {known}")));
            }
        }
    }
    let usage = cost.into_iter().fold(ModelUsage::new(input, output), ModelUsage::cost_usd);
    Ok(model.into_iter().fold(usage, ModelUsage::model))
}
