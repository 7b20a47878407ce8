//! The difference of two checkpoints as plain objects.

use annals::history::{ChannelDiff, Diff, EntryDiff, ItemDiff};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::html::escaped;
use crate::values::to_python;

/// The difference of two checkpoints, channel by channel.
#[pyclass(frozen, name = "Diff", module = "annals")]
#[derive(Debug)]
pub(crate) struct PyDiff(Diff);

impl PyDiff {
    pub(crate) fn new(diff: Diff) -> Self {
        Self(diff)
    }
}

#[pymethods]
impl PyDiff {
    /// The number of channels that are equal.
    #[getter]
    fn unchanged(&self) -> usize {
        self.0.unchanged
    }

    /// The channels that differ, by name. Each is a dict with `kind`: `added` (with `after`), `removed` (with
    /// `before`), `changed` (with both), `items` of a list, `entries` of a map, or `appended` to a text (with
    /// `text`). An item is a dict with `kind` (`added`, `removed`, `edited`, `moved`), its indexes `from` and
    /// `to`, and the values `before` and `after`.
    #[getter]
    fn channels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let channels = PyDict::new(py);
        for change in &self.0.channels {
            channels.set_item(&**change.channel(), channel(py, change)?)?;
        }
        Ok(channels)
    }

    fn __bool__(&self) -> bool {
        !self.0.channels.is_empty()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Diff({} changed, {} unchanged)", self.0.channels.len(), self.0.unchanged)
    }

    fn _repr_html_(&self) -> String {
        format!("<pre>{}</pre>", escaped(&self.0.to_string()))
    }
}

fn channel<'py>(py: Python<'py>, change: &ChannelDiff) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let kind = match change {
        ChannelDiff::Added { value, .. } => {
            dict.set_item("after", to_python(py, value)?)?;
            "added"
        }
        ChannelDiff::Removed { value, .. } => {
            dict.set_item("before", to_python(py, value)?)?;
            "removed"
        }
        ChannelDiff::Changed { before, after, .. } => {
            dict.set_item("before", to_python(py, before)?)?;
            dict.set_item("after", to_python(py, after)?)?;
            "changed"
        }
        ChannelDiff::Items { items, .. } => {
            let items = items.iter().map(|change| item(py, change)).collect::<PyResult<Vec<_>>>()?;
            dict.set_item("items", PyList::new(py, items)?)?;
            "items"
        }
        ChannelDiff::Entries { entries, .. } => {
            let entries = entries.iter().map(|change| entry(py, change)).collect::<PyResult<Vec<_>>>()?;
            dict.set_item("entries", PyList::new(py, entries)?)?;
            "entries"
        }
        ChannelDiff::Appended { text, .. } => {
            dict.set_item("text", text)?;
            "appended"
        }
        _ => "other",
    };
    dict.set_item("kind", kind)?;
    Ok(dict)
}

fn item<'py>(py: Python<'py>, change: &ItemDiff) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let (kind, from, to, before, after) = match change {
        ItemDiff::Removed { from, value } => ("removed", Some(from), None, Some(value), None),
        ItemDiff::Added { to, value } => ("added", None, Some(to), None, Some(value)),
        ItemDiff::Edited { from, to, before, after } => ("edited", Some(from), Some(to), Some(before), Some(after)),
        ItemDiff::Moved { from, to, before, after } => ("moved", Some(from), Some(to), Some(before), Some(after)),
        _ => ("other", None, None, None, None),
    };
    dict.set_item("kind", kind)?;
    for (name, index) in [("from", from), ("to", to)] {
        index.map_or(Ok(()), |index| dict.set_item(name, index))?;
    }
    for (name, value) in [("before", before), ("after", after)] {
        value.map_or(Ok(()), |value| dict.set_item(name, to_python(py, value)?))?;
    }
    Ok(dict)
}

fn entry<'py>(py: Python<'py>, change: &EntryDiff) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("key", &change.key)?;
    for (name, value) in [("before", &change.before), ("after", &change.after)] {
        value.as_ref().map_or(Ok(()), |value| dict.set_item(name, to_python(py, value)?))?;
    }
    Ok(dict)
}
