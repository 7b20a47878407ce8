//! A file of threads.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use annals::base::{Clock, SystemClock, Timestamp, Value};
use annals::history::diff;
use annals::rusqlite::types::ValueRef;
use annals::rusqlite::{Error as SqlError, ErrorCode, params_from_iter, types::Value as SqlValue};
use annals::store::{Key, OpenOptions, SearchOptions, SearchQuery, Store, StoreError, Synchronous, ThreadQuery};
use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::types::{PyDateTime, PyDict, PyList, PyTuple};

use crate::cache::PyCache;
use crate::diff::PyDiff;
use crate::errors::{BusyError, CorruptError, InvalidError, StorageError, invalid, raise};
use crate::html::{cell, table};
use crate::iterators::{self, PyReadIterator};
use crate::kv::PyKv;
use crate::records::PyCheckReport;
use crate::snapshot::{PySnapshot, data_frame};
use crate::thread::PyThread;
use crate::values::{datetime, from_python, timestamp, to_python};

/// Rows of a query that a notebook shows.
const SHOWN_ROWS: usize = 50;
/// Seconds for which a commit waits for another process, as the signature of [`PyStore`] has them.
const BUSY_TIMEOUT: f64 = 5.0;

/// A clock for tests: it stands still until it is advanced.
#[pyclass(frozen, name = "ManualClock", module = "annals")]
#[derive(Clone, Debug)]
pub(crate) struct PyManualClock(Arc<AtomicI64>);

#[pymethods]
impl PyManualClock {
    /// Makes a clock that stands at `start`, or now.
    #[new]
    #[pyo3(signature = (start = None))]
    fn new(start: Option<&Bound<'_, PyDateTime>>) -> PyResult<Self> {
        let start = start.map_or_else(|| Ok(SystemClock.now()), timestamp)?;
        Ok(Self(Arc::new(AtomicI64::new(start.as_micros()))))
    }

    /// Moves the clock.
    fn advance(&self, seconds: f64) {
        self.0.fetch_add((seconds * 1e6).round() as i64, Ordering::Relaxed);
    }

    /// Returns its time, in UTC.
    fn now<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        datetime(py, Clock::now(self))
    }
}

impl Clock for PyManualClock {
    /// Returns its time, in UTC.
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::Relaxed))
    }
}

/// One file of threads, the tables of a PostgreSQL server, or a store in memory.
#[pyclass(frozen, name = "Store", module = "annals")]
pub(crate) struct PyStore {
    /// `None` once it is closed.
    store: RwLock<Option<Store>>,
    place: StorePlace,
}

impl PyStore {
    fn of(store: Store, place: StorePlace) -> Self {
        Self { store: RwLock::new(Some(store)), place }
    }

    /// Returns the store, if it is not closed.
    pub(crate) fn open(&self) -> PyResult<Store> {
        let closed = || InvalidError::new_err(("the store is closed", "STORE_CLOSED"));
        self.store.read().clone().ok_or_else(closed)
    }
}

/// Where a store is.
#[derive(Debug)]
enum StorePlace {
    Memory,
    File(PathBuf),
    /// On a server, with its URL as messages show it.
    Server(String),
}

fn options(clock: Option<&Bound<'_, PyManualClock>>, actor: Option<String>) -> OpenOptions {
    let options = OpenOptions::new();
    let options = clock.into_iter().fold(options, |options, clock| options.clock(clock.get().clone()));
    actor.into_iter().fold(options, OpenOptions::actor)
}

#[pymethods]
impl PyStore {
    /// Opens a file, and makes it unless `create` is false. `key` is the key of an encrypted file, 32 bytes.
    /// With `durable=False` a power cut may take the last commits, never more than a tail of them.
    /// `busy_timeout` is in seconds.
    ///
    /// A URL, `postgres://user:password@host/database`, opens the store in the database of a PostgreSQL server, and makes
    /// its tables unless `create` is false. The options about a file are refused then.
    #[new]
    #[pyo3(signature = (path, *, key = None, read_only = false, create = true, busy_timeout = 5.0, durable = true, network_file_system = false, actor = None, clock = None))]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        key: Option<&[u8]>,
        read_only: bool,
        create: bool,
        busy_timeout: f64,
        durable: bool,
        network_file_system: bool,
        actor: Option<String>,
        clock: Option<&Bound<'_, PyManualClock>>,
    ) -> PyResult<Self> {
        if let Some(url) = annals_cli::server_url(&path) {
            let of_files = [
                ("key", key.is_none(), "a server has the content in the clear"),
                ("read_only", !read_only, "give the user of the URL the right to read alone"),
                ("busy_timeout", busy_timeout == BUSY_TIMEOUT, "a server has no lock of a file"),
                ("durable", durable, "the server decides when a commit is durable"),
                ("network_file_system", !network_file_system, "a server has no file"),
            ];
            if let Some((option, _, reason)) = of_files.into_iter().find(|(_, is_default, _)| !is_default) {
                return Err(invalid(format!("{option}: the option is for files: {reason}")));
            }
            let options = options(clock, actor).create(create);
            let store = py.detach(|| annals_cli::open_server(url, options)).map_err(raise)?;
            return Ok(Self::of(store, StorePlace::Server(annals_cli::shown_name(&path))));
        }
        let busy_timeout = Duration::try_from_secs_f64(busy_timeout)
            .map_err(|_| invalid(format!("busy_timeout: {busy_timeout} is not a number of seconds")))?;
        let mut options = options(clock, actor)
            .read_only(read_only)
            .create(create)
            .busy_timeout_ms(u64::try_from(busy_timeout.as_millis()).unwrap_or(u64::MAX))
            .synchronous(if durable { Synchronous::Full } else { Synchronous::Normal })
            .network_file_system(network_file_system);
        if let Some(key) = key {
            let bytes: [u8; 32] =
                key.try_into().map_err(|_| invalid(format!("key: it has {} bytes, not 32", key.len())))?;
            options = options.key(Key::new(bytes));
        }
        let store = py.detach(|| Store::open_with(&path, options)).map_err(raise)?;
        Ok(Self::of(store, StorePlace::File(path)))
    }

    /// Makes a store in memory, which is gone when it is closed.
    #[staticmethod]
    #[pyo3(signature = (*, actor = None, clock = None))]
    fn memory(actor: Option<String>, clock: Option<&Bound<'_, PyManualClock>>) -> Self {
        let backend = Arc::new(annals::store::MemoryBackend::new());
        let store = Store::with_backend(backend, options(clock, actor));
        Self::of(store, StorePlace::Memory)
    }

    /// The path of the file; `None` in memory and on a server.
    #[getter]
    fn path(&self) -> Option<PathBuf> {
        match &self.place {
            StorePlace::File(path) => Some(path.clone()),
            StorePlace::Memory | StorePlace::Server(_) => None,
        }
    }

    /// Closes the store. The file stays open as long as a thread, a snapshot or an iterator of it is there.
    fn close(&self, py: Python<'_>) {
        let store = self.store.write().take();
        py.detach(|| drop(store));
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    /// Returns the thread with an id. It need not exist: its first write makes it.
    fn thread(&self, id: &str) -> PyResult<PyThread> {
        self.open()?.thread(id).map(PyThread::new).map_err(raise)
    }

    /// Returns the threads that fit, newest activity first or by id; those that are archived or in the trash
    /// only if asked for. `title` is a part of the title, `since` the least time of the last activity.
    #[pyo3(signature = (*, status = None, project = None, label = None, title = None, graph = None, archived = None, pinned = None, trashed = None, since = None, by_id = false))]
    fn threads(
        &self,
        status: Option<&str>,
        project: Option<String>,
        label: Option<String>,
        title: Option<String>,
        graph: Option<String>,
        archived: Option<bool>,
        pinned: Option<bool>,
        trashed: Option<bool>,
        since: Option<&Bound<'_, PyDateTime>>,
        by_id: bool,
    ) -> PyResult<PyReadIterator> {
        let mut query = ThreadQuery::new();
        if let Some(name) = status {
            let known = "done, running, interrupted, failed, sleeping, cancelled and stuck";
            let status = annals_runs::status_named(name);
            query = query.status(status.ok_or_else(|| invalid(format!("status: {name:?} is not one of {known}")))?);
        }
        query = project.into_iter().fold(query, ThreadQuery::project);
        query = label.into_iter().fold(query, ThreadQuery::label);
        query = title.into_iter().fold(query, ThreadQuery::title_contains);
        query = graph.into_iter().fold(query, ThreadQuery::graph);
        query = archived.into_iter().fold(query, ThreadQuery::archived);
        query = pinned.into_iter().fold(query, ThreadQuery::pinned);
        query = trashed.into_iter().fold(query, ThreadQuery::trashed);
        if let Some(since) = since {
            query = query.since(timestamp(since)?);
        }
        if by_id {
            query = query.by_id();
        }
        Ok(PyReadIterator::new(iterators::threads(self.open()?, query)))
    }

    /// Returns the checkpoint at a point: `trip`, `trip~2`, `trip@{yesterday}`. Raises `NotFoundError`.
    fn at(&self, py: Python<'_>, point: &str) -> PyResult<PySnapshot> {
        let store = self.open()?;
        py.detach(|| store.point(point)).map(PySnapshot::new).map_err(raise)
    }

    /// Compares two points: `trip~2..trip`, or `trip` with the checkpoint before it.
    fn diff(&self, py: Python<'_>, range: &str) -> PyResult<PyDiff> {
        let store = self.open()?;
        let compare = || store.range(range).and_then(|(before, after)| diff(&before, &after));
        py.detach(compare).map(PyDiff::new).map_err(raise)
    }

    /// Returns the items and values, newest first, whose text holds every word, in all threads and branches;
    /// with `on_head` only those that the head of their thread shows. Without an index (`enable_search`) the
    /// whole file is read.
    #[pyo3(signature = (text, *, thread = None, role = None, node = None, channel = None, since = None, until = None, on_head = false, limit = None))]
    fn search(
        &self,
        text: &str,
        thread: Option<String>,
        role: Option<String>,
        node: Option<String>,
        channel: Option<String>,
        since: Option<&Bound<'_, PyDateTime>>,
        until: Option<&Bound<'_, PyDateTime>>,
        on_head: bool,
        limit: Option<usize>,
    ) -> PyResult<PyReadIterator> {
        let mut query = SearchQuery::new(text);
        query = thread.into_iter().fold(query, SearchQuery::thread);
        query = role.into_iter().fold(query, SearchQuery::role);
        query = node.into_iter().fold(query, SearchQuery::node);
        query = channel.into_iter().fold(query, SearchQuery::channel);
        if let Some(since) = since {
            query = query.since(timestamp(since)?);
        }
        if let Some(until) = until {
            query = query.until(timestamp(until)?);
        }
        if on_head {
            query = query.on_head();
        }
        Ok(PyReadIterator::new(iterators::hits(self.open()?, query, limit)))
    }

    /// Makes an index of the texts, which makes searches quick.
    fn enable_search(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.open()?;
        py.detach(|| store.enable_search(SearchOptions::new())).map_err(raise)
    }

    /// Removes the index.
    fn disable_search(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.open()?;
        py.detach(|| store.disable_search()).map_err(raise)
    }

    /// Runs a query on the tables and views of the file, for reading only. Parameters stand for `?`.
    #[pyo3(signature = (query, parameters = None))]
    fn sql(&self, py: Python<'_>, query: &str, parameters: Option<&Bound<'_, PyAny>>) -> PyResult<PyTable> {
        let store = self.open()?;
        let path = match &self.place {
            StorePlace::File(path) => path,
            StorePlace::Memory => return Err(invalid("sql: a store in memory has no tables")),
            StorePlace::Server(name) => {
                return Err(invalid(format!("sql: {name} is on a server, whose views any client of it queries")));
            }
        };
        let parameters = parameters.map(sql_parameters).transpose()?.unwrap_or_default();
        py.detach(|| rows_of(&store, path, query, parameters)).map_err(sql_error)
    }

    /// Verifies the whole file, or what came after the point at which an earlier check ended
    /// (`CheckReport.up_to`).
    #[pyo3(signature = (since = None))]
    fn check(&self, py: Python<'_>, since: Option<&str>) -> PyResult<PyCheckReport> {
        let store = self.open()?;
        let since = since.map(str::parse).transpose().map_err(|error: StoreError| raise(error))?;
        let check = || match since {
            Some(point) => store.check_since(&point),
            None => store.check(),
        };
        py.detach(check).map(PyCheckReport::new).map_err(raise)
    }

    /// Copies the store to a new file, at one moment, while others write.
    fn backup(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let store = self.open()?;
        py.detach(|| store.backup(path)).map_err(raise)
    }

    /// Gives unused space in the file back to the file system.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        let store = self.open()?;
        py.detach(|| store.compact()).map(|_| ()).map_err(raise)
    }

    /// Returns `format`, `page_bytes`, `file_bytes`, `wal_bytes` and `erasing`; zeros in memory.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let store = self.open()?;
        let stats = py.detach(|| store.stats()).map_err(raise)?;
        let dict = PyDict::new(py);
        dict.set_item("format", stats.format)?;
        dict.set_item("page_bytes", stats.page_bytes)?;
        dict.set_item("file_bytes", stats.file_bytes)?;
        dict.set_item("wal_bytes", stats.wal_bytes)?;
        dict.set_item("erasing", stats.erasing)?;
        Ok(dict)
    }

    /// Returns the key-value memory. `index` makes searches by meaning: a dict with `dims`, `embed`, a
    /// function of a list of texts, and perhaps
    /// `fields` and `embed_query`, a function of a text. `default_ttl` is in seconds.
    #[pyo3(signature = (*, index = None, default_ttl = None, refresh_on_read = false, retain_expired = false))]
    fn kv(
        &self,
        index: Option<&Bound<'_, PyDict>>,
        default_ttl: Option<f64>,
        refresh_on_read: bool,
        retain_expired: bool,
    ) -> PyResult<PyKv> {
        PyKv::new(self.open()?.kv(), index, default_ttl, refresh_on_read, retain_expired)
    }

    /// Returns the cache.
    fn cache(&self) -> PyResult<PyCache> {
        Ok(PyCache::new(self.open()?.cache()))
    }

    fn __repr__(&self) -> String {
        match &self.place {
            StorePlace::File(path) => format!("Store({:?})", path.display()),
            StorePlace::Memory => "Store.memory()".to_owned(),
            StorePlace::Server(name) => format!("Store({name:?})"),
        }
    }
}

/// An error of a query, before it is known to Python.
enum QueryError {
    Sql(SqlError),
    Writes,
    Empty,
}

impl From<SqlError> for QueryError {
    fn from(error: SqlError) -> Self {
        Self::Sql(error)
    }
}

fn sql_error(error: QueryError) -> PyErr {
    let error = match error {
        QueryError::Empty => return invalid("query: it holds no statement"),
        QueryError::Writes => return invalid("query: it would write, and a query only reads"),
        QueryError::Sql(error) => error,
    };
    let message = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => BusyError::new_err((message, "BUSY")),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => CorruptError::new_err((message, "CORRUPT")),
        Some(ErrorCode::SystemIoFailure | ErrorCode::DiskFull | ErrorCode::OutOfMemory) => {
            StorageError::new_err((message, "READ_FAILED"))
        }
        _ => InvalidError::new_err((format!("query: {message}"), "SQL_FAILED")),
    }
}

fn sql_parameters(parameters: &Bound<'_, PyAny>) -> PyResult<Vec<SqlValue>> {
    let Value::List(values) = from_python("parameters", parameters)? else {
        return Err(invalid("parameters: expected a list or a tuple"));
    };
    let parameter = |(at, value)| {
        Ok(match value {
            Value::Null => SqlValue::Null,
            Value::Bool(truth) => SqlValue::Integer(truth.into()),
            Value::Int(number) => SqlValue::Integer(number),
            Value::Float(number) => SqlValue::Real(number),
            Value::Str(text) => SqlValue::Text(text),
            Value::Bytes(bytes) => SqlValue::Blob(bytes),
            other => return Err(invalid(format!("parameters[{at}]: a {} is not a value of SQL", other.kind()))),
        })
    };
    values.into_iter().enumerate().map(parameter).collect()
}

fn rows_of(store: &Store, path: &Path, query: &str, parameters: Vec<SqlValue>) -> Result<PyTable, QueryError> {
    let connection = annals_cli::connect_to_read(path, store)?;
    let mut statement = connection.prepare(query)?;
    if statement.expanded_sql().is_none() {
        return Err(QueryError::Empty);
    }
    if !statement.readonly() {
        return Err(QueryError::Writes);
    }
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut found = statement.query(params_from_iter(parameters))?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        let cells = (0..columns.len()).map(|at| row.get_ref(at).map(sql_value));
        rows.push(cells.collect::<Result<Vec<_>, _>>()?);
    }
    drop(found);
    drop(statement);
    Ok(PyTable { columns, rows })
}

fn sql_value(cell: ValueRef<'_>) -> Value {
    match cell {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Int(number),
        ValueRef::Real(number) => Value::Float(number),
        ValueRef::Text(text) => Value::from(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
    }
}

/// The rows of a query.
#[pyclass(frozen, name = "Table", module = "annals")]
#[derive(Debug)]
pub(crate) struct PyTable {
    columns: Vec<String>,
    rows: Vec<Vec<Value>>,
}

#[pymethods]
impl PyTable {
    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.columns.clone()
    }

    /// The rows.
    #[getter]
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let row = |row: &Vec<Value>| {
            let cells = row.iter().map(|value| to_python(py, value)).collect::<PyResult<Vec<_>>>()?;
            PyTuple::new(py, cells)
        };
        self.rows.iter().map(row).collect()
    }

    fn __len__(&self) -> usize {
        self.rows.len()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyList::new(py, self.rows(py)?)?.try_iter()?.into_any())
    }

    /// Returns the rows as a data frame. Needs pandas.
    fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let rows = PyList::empty(py);
        for row in self.rows(py)? {
            let record = PyDict::new(py);
            for (name, value) in self.columns.iter().zip(row.iter()) {
                record.set_item(name, value)?;
            }
            rows.append(record)?;
        }
        data_frame(py, rows.into_any())
    }

    fn __repr__(&self) -> String {
        format!("Table({} rows of {})", self.rows.len(), self.columns.join(", "))
    }

    fn _repr_html_(&self) -> String {
        let names: Vec<&str> = self.columns.iter().map(String::as_str).collect();
        let rows: Vec<Vec<String>> =
            self.rows.iter().take(SHOWN_ROWS).map(|row| row.iter().map(cell).collect()).collect();
        table(&format!("{} rows", self.rows.len()), &names, &rows)
    }
}
