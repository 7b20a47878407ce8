//! Reads of checkpoints.

use std::fmt;
use std::sync::{Arc, OnceLock};

use annals_langgraph::{Listing, SaverVersion, SaverWrite, SeenVersions, StoredValue, Tuple, Typed, UpdatedChannels};
use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::values::dict;

use super::heads::{Head, HeadValue};
use super::items::PrototypeList;
use super::prototype::Prototype;
use super::{PySaver, saver_error, version_object};

/// A checkpoint for Python: its id, the checkpoint, the metadata, the id of its parent, and its pending writes.
pub(super) type ReadCheckpoint<'py> =
    (String, Bound<'py, PyDict>, Bound<'py, PyDict>, Option<String>, Bound<'py, PyList>);

/// A checkpoint of a listing, with thread and namespace first.
type ListedCheckpoint<'py> =
    (String, String, String, Bound<'py, PyDict>, Bound<'py, PyDict>, Option<String>, Bound<'py, PyList>);

/// The members of a checkpoint but its values.
struct Members<'a> {
    id: &'a str,
    v: Option<i64>,
    ts: Option<&'a str>,
    versions: &'a [(String, SaverVersion)],
    seen: &'a [(String, SeenVersions)],
    updated: &'a UpdatedChannels,
    extra: &'a [(String, Typed)],
}

/// Lists of fewer items are copied while the collector runs.
const PAUSING_ITEMS_MIN: usize = 64;

/// A pause of the collector of garbage, which ends when this is dropped.
struct PausedCollector<'py>(Option<Bound<'py, PyModule>>);

impl<'py> PausedCollector<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        let collector = py.import(intern!(py, "gc"))?;
        if !collector.call_method0(intern!(py, "isenabled"))?.is_truthy()? {
            return Ok(Self(None));
        }
        collector.call_method0(intern!(py, "disable"))?;
        Ok(Self(Some(collector)))
    }
}

impl Drop for PausedCollector<'_> {
    fn drop(&mut self) {
        if let Some(collector) = &self.0 {
            // It fails only if the module was replaced; then the collector is another one's.
            _ = collector.call_method0(intern!(collector.py(), "enable"));
        }
    }
}

/// A list of a checkpoint that was listed.
pub(super) struct DecodedList {
    channel: String,
    items: Vec<Arc<Typed>>,
    prototypes: Vec<Arc<Prototype>>,
    /// The objects that were handed out for its first items.
    handed_out: Vec<Py<PyAny>>,
}

/// How the objects of a list are made.
enum Copies<'a> {
    /// Each is a copy of its own.
    Own,
    /// The copy of the last read is handed out again if it is idle.
    Lent,
    /// A message that the checkpoint before has too is the same object in both, unless it was changed.
    Shared(&'a mut DecodedList),
}

impl PySaver {
    /// Returns the prototypes of the items of a list. `last` is the list of a checkpoint that was decoded before; items
    /// that it shares are not looked up.
    fn prototypes(
        &self,
        py: Python<'_>,
        items: &[Arc<Typed>],
        last: Option<(&[Arc<Typed>], &[Arc<Prototype>])>,
    ) -> PyResult<Vec<Arc<Prototype>>> {
        let (last, known) = last.unwrap_or_default();
        let shared = items.iter().zip(last).take_while(|(a, b)| Arc::ptr_eq(a, b)).count();
        let mut found: Vec<Option<Arc<Prototype>>> = known[..shared].iter().cloned().map(Some).collect();
        found.extend(self.items.get(items[shared..].iter().map(|item| &**item)));
        let missing: Vec<usize> = (shared..items.len()).filter(|at| found[*at].is_none()).collect();
        let mut made = Vec::with_capacity(missing.len());
        for at in missing {
            let decoded = self.decode(py, &items[at])?;
            let prototype = Arc::new(Prototype::new(&self.classes, decoded, None, &items[at])?);
            found[at] = Some(Arc::clone(&prototype));
            made.push((items[at].bytes.clone(), prototype));
        }
        if !made.is_empty() {
            drop(self.items.insert(made));
        }
        Ok(found.into_iter().flatten().collect())
    }

    fn hand_out<'py>(&self, py: Python<'py>, prototype: &Prototype) -> PyResult<Bound<'py, PyAny>> {
        prototype.hand_out(&self.classes, py, |typed| self.decode(py, typed))
    }

    /// Returns a list of copies.
    fn hand_out_items<'py>(
        &self,
        py: Python<'py>,
        items: &PrototypeList,
        copies: Copies<'_>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // The copies of a long list would make the collector of garbage run dozens of times, and find nothing.
        let _paused = (items.len() >= PAUSING_ITEMS_MIN).then(|| PausedCollector::new(py)).transpose()?;
        let objects = match copies {
            Copies::Own => items.iter().map(|item| self.hand_out(py, item)).collect::<PyResult<Vec<_>>>()?,
            Copies::Lent => items.lend(&self.classes, py, |item| self.hand_out(py, item))?,
            Copies::Shared(list) => {
                let mut objects = Vec::with_capacity(items.len());
                let mut handed_out = std::mem::take(&mut list.handed_out).into_iter();
                for item in items.iter() {
                    let object = match handed_out.next() {
                        Some(object) if item.is_unchanged(&self.classes, object.bind(py))? => object.into_bound(py),
                        _ => self.hand_out(py, item)?,
                    };
                    objects.push(object);
                }
                list.handed_out = objects.iter().map(|object| object.clone().unbind()).collect();
                objects
            }
        };
        Ok(PyList::new(py, objects)?.into_any())
    }

    /// Returns a copy of the value of a cached head.
    fn head_value<'py>(&self, py: Python<'py>, value: &HeadValue, copies: Copies<'_>) -> PyResult<Bound<'py, PyAny>> {
        match value {
            HeadValue::Items(items) => self.hand_out_items(py, items, copies),
            HeadValue::One(typed, prototype) => {
                if let Some(prototype) = prototype.get() {
                    return self.hand_out(py, prototype);
                }
                let made = Prototype::new(&self.classes, self.decode(py, typed)?, None, typed)?;
                let object = self.hand_out(py, &made);
                // Another thread may have made it meanwhile: then this one is dropped.
                drop(prototype.set(made));
                object
            }
        }
    }

    fn checkpoint<'py>(
        &self,
        py: Python<'py>,
        members: &Members<'_>,
        values: Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let checkpoint = PyDict::new(py);
        if let Some(v) = members.v {
            checkpoint.set_item(intern!(py, "v"), v)?;
        }
        if let Some(ts) = members.ts {
            checkpoint.set_item(intern!(py, "ts"), ts)?;
        }
        checkpoint.set_item(intern!(py, "id"), members.id)?;
        checkpoint.set_item(intern!(py, "channel_values"), values)?;
        checkpoint.set_item(intern!(py, "channel_versions"), versions(py, members.versions)?)?;
        let seen = PyDict::new(py);
        for (node, of_node) in members.seen {
            seen.set_item(node, versions(py, of_node)?)?;
        }
        checkpoint.set_item(intern!(py, "versions_seen"), seen)?;
        match members.updated {
            UpdatedChannels::Absent => {}
            UpdatedChannels::Unknown => checkpoint.set_item(intern!(py, "updated_channels"), py.None())?,
            UpdatedChannels::Names(names) => checkpoint.set_item(intern!(py, "updated_channels"), names)?,
        }
        for (name, value) in members.extra {
            checkpoint.set_item(name, self.decode(py, value)?)?;
        }
        Ok(checkpoint)
    }

    pub(super) fn writes<'py>(&self, py: Python<'py>, writes: &[SaverWrite]) -> PyResult<Bound<'py, PyList>> {
        let shown = PyList::empty(py);
        for write in writes {
            shown.append((&write.task, &*write.channel, self.decode(py, &write.value)?))?;
        }
        Ok(shown)
    }

    /// Returns a checkpoint with copies of its values. Those of the newest one are lent, as it is mostly read again; the
    /// checkpoints of a listing share the messages of their `lists`.
    pub(super) fn of_head<'py>(
        &self,
        py: Python<'py>,
        head: &Head,
        writes: &[SaverWrite],
        is_newest: bool,
        lists: &mut [DecodedList],
    ) -> PyResult<ReadCheckpoint<'py>> {
        let values = PyDict::new(py);
        for (channel, value) in &head.values {
            let copies = match lists.iter_mut().find(|list| list.channel == *channel) {
                Some(list) => Copies::Shared(list),
                None if is_newest => Copies::Lent,
                None => Copies::Own,
            };
            values.set_item(channel, self.head_value(py, value, copies)?)?;
        }
        let members = Members {
            id: &head.id,
            v: head.v,
            ts: head.ts.as_deref(),
            versions: &head.versions,
            seen: &head.seen,
            updated: &head.updated,
            extra: &head.extra,
        };
        let checkpoint = self.checkpoint(py, &members, values)?;
        Ok((head.id.clone(), checkpoint, dict(py, &head.metadata)?, head.parent.clone(), self.writes(py, writes)?))
    }

    /// Makes a head of a checkpoint that was read; it shares chunks with another one. `lists` are those of the
    /// checkpoint that was decoded before, and then of this one.
    pub(super) fn head_of(
        &self,
        py: Python<'_>,
        tuple: Tuple,
        other: Option<&Head>,
        lists: &mut Vec<DecodedList>,
    ) -> PyResult<(Head, Vec<SaverWrite>)> {
        let mut values = Vec::with_capacity(tuple.values.len());
        let mut last = std::mem::take(lists);
        for (channel, value) in tuple.values {
            let value = match value {
                StoredValue::Typed(typed) => HeadValue::One(typed, OnceLock::new()),
                StoredValue::Items(items) => {
                    let mut last = last.iter_mut().find(|list| list.channel == channel);
                    let known = last.as_ref().map(|list| (&*list.items, &*list.prototypes));
                    let prototypes = self.prototypes(py, &items, known)?;
                    let handed_out = last.as_mut().map(|list| std::mem::take(&mut list.handed_out)).unwrap_or_default();
                    lists.push(DecodedList {
                        channel: channel.clone(),
                        items,
                        prototypes: prototypes.clone(),
                        handed_out,
                    });
                    let shared = match other.and_then(|head| head.value(&channel)).map(|value| &**value) {
                        Some(HeadValue::Items(items)) => Some(items),
                        _ => None,
                    };
                    HeadValue::Items(PrototypeList::new(prototypes, shared))
                }
            };
            values.push((channel, Arc::new(value)));
        }
        let head = Head {
            id: tuple.config.checkpoint.unwrap_or_default(),
            serializer: self.serializer,
            v: tuple.v,
            ts: tuple.ts,
            versions: tuple.versions,
            seen: tuple.seen,
            updated: tuple.updated,
            extra: tuple.extra,
            metadata: tuple.metadata,
            parent: tuple.parent.and_then(|parent| parent.checkpoint),
            values,
        };
        Ok((head, tuple.writes))
    }

    pub(super) fn stored_value<'py>(&self, py: Python<'py>, value: &StoredValue) -> PyResult<Bound<'py, PyAny>> {
        match value {
            StoredValue::Typed(typed) => self.decode(py, typed),
            StoredValue::Items(items) => {
                let prototypes = PrototypeList::new(self.prototypes(py, items, None)?, None);
                self.hand_out_items(py, &prototypes, Copies::Own)
            }
        }
    }
}

fn versions<'py>(py: Python<'py>, versions: &[(String, SaverVersion)]) -> PyResult<Bound<'py, PyDict>> {
    let shown = PyDict::new(py);
    for (channel, version) in versions {
        shown.set_item(channel, version_object(py, version)?)?;
    }
    Ok(shown)
}

/// The checkpoints of a listing. Nothing of the store is locked between two of them.
#[pyclass(frozen, name = "_Listing", module = "annals")]
pub(crate) struct PyListing {
    pub(super) saver: Py<PySaver>,
    pub(super) listing: Mutex<Listing>,
    /// The lists of the checkpoint that came last: the next one shares most of their items.
    pub(super) last: Mutex<Vec<DecodedList>>,
}

impl fmt::Debug for PyListing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PyListing").finish_non_exhaustive()
    }
}

#[pymethods]
impl PyListing {
    fn __iter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<ListedCheckpoint<'py>>> {
        let next = py.detach(|| self.listing.lock().next());
        let Some(tuple) = next.transpose().map_err(saver_error)? else { return Ok(None) };
        let (thread, namespace) = (tuple.config.thread.clone(), tuple.config.namespace.clone());
        let saver = self.saver.get();
        // Another thread that takes the next one meanwhile decodes its items without these.
        let mut lists = std::mem::take(&mut *self.last.lock());
        let (head, writes) = saver.head_of(py, tuple, None, &mut lists)?;
        let (id, checkpoint, metadata, parent, writes) = saver.of_head(py, &head, &writes, false, &mut lists)?;
        let before = std::mem::replace(&mut *self.last.lock(), lists);
        drop(before);
        Ok(Some((thread, namespace, id, checkpoint, metadata, parent, writes)))
    }
}
