//! The saver of LangGraph: its calls, between objects of Python and `annals_langgraph`.
//!
//! A value is what the serializer makes of it. An item of a list that did not change since the checkpoint before is
//! neither encoded nor decoded: it is compared with its prototype. *Absent:* configs, which the class `AnnalsSaver`
//! takes apart.

mod heads;
mod items;
mod prototype;
mod put;
mod raw;
mod read;
mod waiting;
mod witness;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use annals::base::Map;
use annals_langgraph::{Config, ListQuery, LostRace, PruneStrategy, Reread, Saver, SaverError, SaverVersion, Typed};
use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyType};

use crate::errors::{ConflictError, InvalidError, UnsupportedError, invalid, raise};
use crate::store::PyStore;
use crate::values::map_from_python;

use heads::{Heads, ItemCache};
use prototype::KnownClasses;
use put::ReadyPut;
use read::ReadCheckpoint;

pub(crate) use read::PyListing;
pub(crate) use waiting::{_end_wakes, PyPut};

/// A saver of LangGraph on a store.
#[pyclass(frozen, name = "_Saver", module = "annals")]
pub(crate) struct PySaver {
    saver: Arc<SharedSaver>,
    serde: Py<PyAny>,
    /// The number of the serializer, among those of the process.
    serializer: u64,
    /// True if the serializer writes MessagePack, so that a list can be split into its items.
    splits_lists: bool,
    classes: Arc<KnownClasses>,
    heads: Arc<Heads>,
    /// The items that this serializer decoded.
    items: ItemCache,
    on_conflict: LostRace,
}

static SERIALIZERS: AtomicU64 = AtomicU64::new(0);

/// Makes the exception of an error of the saver.
pub(crate) fn saver_error(error: SaverError) -> PyErr {
    let code = error.code();
    match error {
        SaverError::Store(error) => raise(error),
        SaverError::Conflict { .. } => ConflictError::new_err((error.to_string(), code)),
        SaverError::Unsupported { .. } => UnsupportedError::new_err((error.to_string(), code)),
        error => InvalidError::new_err((error.to_string(), code)),
    }
}

impl PySaver {
    /// Returns what a put does that lost a race. A parent that was asked for, and not handed out as the newest checkpoint,
    /// is one that the caller goes back to: then there is no race.
    fn on_conflict(&self, is_asked: bool) -> LostRace {
        if is_asked { LostRace::Branch } else { self.on_conflict }
    }

    /// Encodes a value.
    fn encode(&self, value: &Bound<'_, PyAny>) -> PyResult<Typed> {
        let py = value.py();
        let (tag, bytes): (String, Bound<'_, PyAny>) =
            self.serde.bind(py).call_method1(intern!(py, "dumps_typed"), (value,))?.extract()?;
        let bytes = match bytes.cast::<PyBytes>() {
            Ok(bytes) => bytes.as_bytes().to_vec(),
            Err(_) => bytes.extract()?,
        };
        Ok(if tag == annals_langgraph::MSGPACK { Typed::msgpack(bytes) } else { Typed::new(tag, bytes) })
    }

    /// Decodes a value.
    fn decode<'py>(&self, py: Python<'py>, value: &Typed) -> PyResult<Bound<'py, PyAny>> {
        let typed = (PyString::new(py, &value.tag), PyBytes::new(py, &value.bytes));
        self.serde.bind(py).call_method1(intern!(py, "loads_typed"), (typed,))
    }

    /// Encodes an item of a list as it stands in the array of its list; `None` if the serializer cannot write it as
    /// MessagePack.
    fn encode_item(&self, item: &Bound<'_, PyAny>) -> PyResult<Option<Typed>> {
        const ARRAY_OF_ONE: u8 = 0x91;
        let array = self.encode(pyo3::types::PyList::new(item.py(), [item])?.as_any())?;
        match array.bytes.split_first() {
            Some((&ARRAY_OF_ONE, item)) if array.tag == annals_langgraph::MSGPACK => {
                Ok(Some(Typed::msgpack(item.to_vec())))
            }
            _ => Ok(None),
        }
    }
}

/// The saver that the objects of all serializers share.
struct SharedSaver(Saver);

impl Deref for SharedSaver {
    type Target = Saver;

    fn deref(&self) -> &Saver {
        &self.0
    }
}

impl Drop for SharedSaver {
    /// The last handle waits for what the saver still stores, and a thread of the store that wakes a loop waits for the
    /// interpreter: so nothing is left to store once the interpreter is held.
    fn drop(&mut self) {
        // Nobody is left to whom an error could be told.
        _ = Python::try_attach(|py| py.detach(|| self.0.flush()));
    }
}

#[pymethods]
impl PySaver {
    #[new]
    fn new(
        py: Python<'_>,
        store: &PyStore,
        serde: Py<PyAny>,
        splits_lists: bool,
        frozen: Vec<Py<PyType>>,
        models: Vec<Py<PyType>>,
        on_conflict: &str,
    ) -> PyResult<Self> {
        let on_conflict = match on_conflict {
            "error" => LostRace::Refuse,
            "fork" => LostRace::Branch,
            _ => return Err(invalid(format!("on_conflict: {on_conflict:?} is not one of error and fork"))),
        };
        Ok(Self {
            saver: Arc::new(SharedSaver(Saver::new(store.open()?))),
            serde,
            serializer: SERIALIZERS.fetch_add(1, Ordering::Relaxed),
            splits_lists,
            classes: Arc::new(KnownClasses::new(py, frozen, models)?),
            heads: Arc::default(),
            items: ItemCache::default(),
            on_conflict,
        })
    }

    /// Returns the same saver with another serializer.
    fn with_serde(&self, serde: Py<PyAny>, splits_lists: bool) -> Self {
        Self {
            saver: Arc::clone(&self.saver),
            serde,
            serializer: SERIALIZERS.fetch_add(1, Ordering::Relaxed),
            splits_lists,
            classes: Arc::clone(&self.classes),
            heads: Arc::clone(&self.heads),
            items: ItemCache::default(),
            on_conflict: self.on_conflict,
        }
    }

    /// Stores a checkpoint, and returns when it is on the disk.
    #[pyo3(signature = (thread, namespace, parent, checkpoint, metadata, new_versions, is_asked))]
    fn put(
        &self,
        py: Python<'_>,
        thread: String,
        namespace: String,
        parent: Option<String>,
        checkpoint: &Bound<'_, PyDict>,
        metadata: &Bound<'_, PyAny>,
        new_versions: &Bound<'_, PyDict>,
        is_asked: bool,
    ) -> PyResult<()> {
        let ready = self.ready(thread, namespace, parent, checkpoint, metadata, new_versions)?;
        let ReadyPut { parent, new, head, place } = ready;
        let stored = py.detach(|| self.saver.put(&parent, new, self.on_conflict(is_asked)));
        match stored {
            Ok(_) => drop(self.heads.insert(place, head)),
            Err(error) => {
                drop(self.heads.remove(&place));
                return Err(saver_error(error));
            }
        }
        Ok(())
    }

    /// Submits a checkpoint. Returns the put, which is ended when `wake` was called.
    #[pyo3(signature = (thread, namespace, parent, checkpoint, metadata, new_versions, is_asked, wake))]
    fn submit_put(
        &self,
        py: Python<'_>,
        thread: String,
        namespace: String,
        parent: Option<String>,
        checkpoint: &Bound<'_, PyDict>,
        metadata: &Bound<'_, PyAny>,
        new_versions: &Bound<'_, PyDict>,
        is_asked: bool,
        wake: Py<PyAny>,
    ) -> PyResult<PyPut> {
        let ready = self.ready(thread, namespace, parent, checkpoint, metadata, new_versions)?;
        let ReadyPut { parent, new, head, place } = ready;
        match py.detach(|| self.saver.submit_put(&parent, new, self.on_conflict(is_asked))) {
            Ok(handle) => {
                drop(self.heads.insert(place.clone(), head));
                Ok(PyPut::new(handle, wake, Arc::clone(&self.heads), place))
            }
            Err(error) => {
                drop(self.heads.remove(&place));
                Err(saver_error(error))
            }
        }
    }

    /// Returns a checkpoint: the one with an id, or the newest one; `None` if there is none.
    #[pyo3(signature = (thread, namespace, checkpoint))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        thread: String,
        namespace: String,
        checkpoint: Option<String>,
    ) -> PyResult<Option<ReadCheckpoint<'py>>> {
        let place = (thread.clone(), namespace.clone());
        let known = self.heads.get(&place, self.serializer);
        let is_newest = checkpoint.as_ref().is_none_or(String::is_empty);
        let mut config = Config::new(thread, namespace);
        config.checkpoint = checkpoint;
        let known_id = known.as_ref().map_or("", |head| &head.id);
        let found = py.detach(|| self.saver.reread(&config, known_id)).map_err(saver_error)?;
        let (head, writes) = match (found, known) {
            (Reread::Absent, _) => return Ok(None),
            (Reread::Known(writes), Some(head)) => (head, writes),
            (Reread::Known(_), None) => return Err(invalid("checkpoint_id: it is empty")),
            (Reread::Other(tuple), known) => {
                let (head, writes) = self.head_of(py, *tuple, known.as_deref(), &mut Vec::new())?;
                let head = Arc::new(head);
                if is_newest {
                    drop(self.heads.insert(place, Arc::clone(&head)));
                }
                (head, writes)
            }
        };
        self.of_head(py, &head, &writes, is_newest, &mut []).map(Some)
    }

    /// Lists checkpoints, the greatest id first.
    #[pyo3(signature = (thread, namespace, checkpoint, filter, before, limit))]
    fn list(
        this: Bound<'_, Self>,
        thread: Option<String>,
        namespace: Option<String>,
        checkpoint: Option<String>,
        filter: Option<&Bound<'_, PyAny>>,
        before: Option<String>,
        limit: Option<i64>,
    ) -> PyResult<PyListing> {
        let mut query = ListQuery::new();
        (query.thread, query.namespace, query.checkpoint, query.before) = (thread, namespace, checkpoint, before);
        query.filter = filter.map_or_else(|| Ok(Map::new()), |filter| map_from_python("filter", filter))?;
        query.limit = limit.and_then(|limit| usize::try_from(limit).ok());
        let saver = &this.get().saver;
        let listing = this.py().detach(|| saver.list(query)).map_err(saver_error)?;
        Ok(PyListing { saver: this.clone().unbind(), listing: Mutex::new(listing), last: Mutex::default() })
    }

    /// Returns for each channel its writes on the way from an ancestor, and the value there in a list, if it has one.
    #[pyo3(signature = (thread, namespace, checkpoint, channels))]
    fn delta_history<'py>(
        &self,
        py: Python<'py>,
        thread: String,
        namespace: String,
        checkpoint: Option<String>,
        channels: Vec<String>,
    ) -> PyResult<Vec<(String, Bound<'py, PyList>, Vec<Bound<'py, PyAny>>)>> {
        let mut config = Config::new(thread, namespace);
        config.checkpoint = checkpoint;
        let channels: Vec<&str> = channels.iter().map(String::as_str).collect();
        let histories = py.detach(|| self.saver.delta_history(&config, &channels)).map_err(saver_error)?;
        let shown = histories.into_iter().map(|history| {
            let seed = history.seed.iter().map(|seed| self.stored_value(py, seed)).collect::<PyResult<Vec<_>>>()?;
            Ok((history.channel, self.writes(py, &history.writes)?, seed))
        });
        shown.collect()
    }

    /// Stores writes of a task.
    fn put_writes(
        &self,
        py: Python<'_>,
        thread: String,
        namespace: String,
        checkpoint: String,
        writes: Vec<(String, Bound<'_, PyAny>)>,
        task: &str,
        path: &str,
    ) -> PyResult<()> {
        let encode = |(channel, value): (String, Bound<'_, PyAny>)| Ok((channel, self.encode(&value)?));
        let writes = writes.into_iter().map(encode).collect::<PyResult<Vec<_>>>()?;
        let config = annals_langgraph::Config::new(thread, namespace).at(checkpoint);
        py.detach(|| self.saver.put_writes(&config, task, path, writes)).map_err(saver_error)
    }

    /// Stores the buffered writes.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.saver.flush()).map_err(saver_error)
    }

    fn delete_thread(&self, py: Python<'_>, thread: &str) -> PyResult<()> {
        let deleted = py.detach(|| self.saver.delete_thread(thread));
        drop(self.heads.clear());
        deleted.map_err(saver_error)
    }

    fn copy_thread(&self, py: Python<'_>, source: &str, target: &str) -> PyResult<()> {
        py.detach(|| self.saver.copy(source, target)).map_err(saver_error)
    }

    fn delete_for_runs(&self, py: Python<'_>, runs: Vec<String>) -> PyResult<()> {
        let runs: Vec<&str> = runs.iter().map(String::as_str).collect();
        let deleted = py.detach(|| self.saver.delete_for_runs(&runs));
        drop(self.heads.clear());
        deleted.map_err(saver_error)
    }

    fn prune(&self, py: Python<'_>, threads: Vec<String>, strategy: &str) -> PyResult<()> {
        let strategy = match strategy {
            "keep_latest" => PruneStrategy::KeepLatest,
            "delete" => PruneStrategy::Delete,
            _ => return Err(invalid(format!("strategy: {strategy:?} is not one of keep_latest and delete"))),
        };
        let threads: Vec<&str> = threads.iter().map(String::as_str).collect();
        let pruned = py.detach(|| self.saver.prune(&threads, strategy));
        drop(self.heads.clear());
        pruned.map_err(saver_error)
    }

    #[pyo3(signature = (current))]
    fn next_version<'py>(&self, py: Python<'py>, current: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        let current = current.map(|current| version("current", current)).transpose()?;
        version_object(py, &self.saver.next_version(current.as_ref()))
    }
}

/// Reads the version of a channel.
fn version(field: &str, object: &Bound<'_, PyAny>) -> PyResult<SaverVersion> {
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(SaverVersion::Text(text.to_str()?.to_owned()));
    }
    if object.is_instance_of::<PyInt>() {
        return Ok(SaverVersion::Integer(object.extract()?));
    }
    match object.cast::<PyFloat>() {
        Ok(number) => Ok(SaverVersion::Float(number.value())),
        Err(_) => Err(invalid(format!("{field}: a version is a text or a number"))),
    }
}

fn version_object<'py>(py: Python<'py>, version: &SaverVersion) -> PyResult<Bound<'py, PyAny>> {
    Ok(match version {
        SaverVersion::Text(text) => PyString::new(py, text).into_any(),
        SaverVersion::Integer(number) => number.into_pyobject(py)?.into_any(),
        SaverVersion::Float(number) => PyFloat::new(py, *number).into_any(),
    })
}
