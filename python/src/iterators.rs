//! Iterators that read page by page. Invariant: the interpreter is released while one reads.

use std::fmt;

use annals::history::{Operation, Snapshot, ValueVersion};
use annals::store::search::SearchHit;
use annals::store::{SearchQuery, Store, ThreadInfo, ThreadQuery};
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::errors::raise;
use crate::records::{PyOperation, PySearchHit, PyThreadInfo, PyValueVersion};
use crate::snapshot::PySnapshot;

/// An item of an iterator.
pub(crate) enum ReadItem {
    Info(Box<ThreadInfo>),
    Snapshot(Snapshot),
    Operation(Box<Operation>),
    Version(Box<ValueVersion>),
    Hit(Box<SearchHit>, Store),
}

impl ReadItem {
    fn into_python(self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(match self {
            Self::Info(info) => Py::new(py, PyThreadInfo::new(*info))?.into_any(),
            Self::Snapshot(snapshot) => Py::new(py, PySnapshot::new(snapshot))?.into_any(),
            Self::Operation(operation) => Py::new(py, PyOperation::new(*operation))?.into_any(),
            Self::Version(version) => Py::new(py, PyValueVersion::new(*version))?.into_any(),
            Self::Hit(hit, store) => Py::new(py, PySearchHit::new(*hit, store))?.into_any(),
        })
    }
}

type ReadItems = Box<dyn Iterator<Item = annals::Result<ReadItem>> + Send>;

/// An iterator over what is read.
#[pyclass(frozen, name = "_Iterator", module = "annals")]
pub(crate) struct PyReadIterator(Mutex<ReadItems>);

impl fmt::Debug for PyReadIterator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PyReadIterator").finish_non_exhaustive()
    }
}

impl PyReadIterator {
    pub(crate) fn new(items: impl Iterator<Item = annals::Result<ReadItem>> + Send + 'static) -> Self {
        Self(Mutex::new(Box::new(items)))
    }
}

#[pymethods]
impl PyReadIterator {
    fn __iter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        // The lock is waited for without the interpreter, which its holder may need.
        let next = py.detach(|| self.0.lock().next());
        next.transpose().map_err(raise)?.map(|item| item.into_python(py)).transpose()
    }
}

/// Returns the threads of a query, of which each page is a read.
pub(crate) fn threads(store: Store, query: ThreadQuery) -> impl Iterator<Item = annals::Result<ReadItem>> + Send {
    const PAGE: usize = 200;
    let mut next = Some(query.limit(PAGE));
    let mut page = Vec::new().into_iter();
    std::iter::from_fn(move || {
        loop {
            if let Some(info) = page.next() {
                return Some(Ok(ReadItem::Info(Box::new(info))));
            }
            let query = next.take()?;
            match store.threads_with(query.clone()) {
                Ok(found) => {
                    next = found.last().filter(|_| found.len() == PAGE).map(|last| query.after(last));
                    page = found.into_iter();
                }
                Err(error) => return Some(Err(error.into())),
            }
        }
    })
}

/// Returns the hits of a search, of which each page is a read; at most `limit`, if it is given.
pub(crate) fn hits(
    store: Store,
    query: SearchQuery,
    limit: Option<usize>,
) -> impl Iterator<Item = annals::Result<ReadItem>> + Send {
    let mut next = Some(query);
    let mut page = Vec::new().into_iter();
    let hits = std::iter::from_fn(move || {
        loop {
            if let Some(hit) = page.next() {
                return Some(Ok(ReadItem::Hit(Box::new(hit), store.clone())));
            }
            let query = next.take()?;
            match store.search(&query) {
                Ok(found) => {
                    next = found.next.map(|cursor| query.after(cursor));
                    page = found.hits.into_iter();
                }
                Err(error) => return Some(Err(error.into())),
            }
        }
    });
    hits.take(limit.unwrap_or(usize::MAX))
}
