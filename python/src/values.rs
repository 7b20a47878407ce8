//! Values of the engine as objects of Python, and back.
//!
//! Invariant: a value that is stored from Python is read as an equal object, but a tuple as a list. *Absent:* classes
//! beside those of JSON, bytes and extensions; the error names the place of an object of another class.

use annals::base::limits::{INTEGER_DIGITS_MAX, VALUE_DEPTH_MAX};
use annals::base::{Map, Timestamp, Value};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDateTime, PyDelta, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyTzInfo,
};

use crate::errors::{IntegerSizeError, ValueTypeError, invalid};

/// A MessagePack extension: the value of another program, as it is stored.
#[pyclass(frozen, eq, hash, name = "Extension", module = "annals")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PyExtension {
    /// The type of the extension, from -128 to 127.
    pub(crate) code: i8,
    /// The bytes.
    pub(crate) data: Vec<u8>,
}

#[pymethods]
impl PyExtension {
    /// Makes an extension of a type and its bytes.
    #[new]
    fn new(code: i8, data: Vec<u8>) -> Self {
        Self { code, data }
    }

    /// The type, from -128 to 127.
    #[getter]
    fn code(&self) -> i8 {
        self.code
    }

    /// The bytes.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.data)
    }

    /// The class and the fields of an object that LangGraph's serializer wrote; of any other the number of bytes.
    fn __repr__(&self) -> String {
        let shown = Value::Ext(self.code, self.data.clone()).to_json();
        match shown.get("$ext") {
            None => format!("Extension({shown})"),
            Some(_) => format!("Extension({}, {} bytes)", self.code, self.data.len()),
        }
    }
}

/// Returns a value as an object: `None`, a `bool`, `int`, `float`, `str`, `bytes`, `list`, `dict` or
/// `Extension`.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(truth) => PyBool::new(py, *truth).to_owned().into_any(),
        Value::Int(number) => number.into_pyobject(py)?.into_any(),
        Value::UInt(number) => number.into_pyobject(py)?.into_any(),
        Value::Float(number) => PyFloat::new(py, *number).into_any(),
        Value::Str(text) => PyString::new(py, text).into_any(),
        Value::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        Value::List(items) => list(py, items)?.into_any(),
        Value::Map(map) => dict(py, map)?.into_any(),
        Value::Ext(code, data) => match value.big_integer() {
            Some(digits) => py.get_type::<PyInt>().call1((digits,))?,
            None => PyExtension { code: *code, data: data.clone() }.into_pyobject(py)?.into_any(),
        },
    })
}

/// Returns values as a list.
pub(crate) fn list<'py>(py: Python<'py>, items: &[Value]) -> PyResult<Bound<'py, PyList>> {
    let objects = items.iter().map(|item| to_python(py, item)).collect::<PyResult<Vec<_>>>()?;
    PyList::new(py, objects)
}

/// Returns members as a dict.
pub(crate) fn dict<'py>(py: Python<'py>, map: &Map) -> PyResult<Bound<'py, PyDict>> {
    let members = PyDict::new(py);
    for (name, value) in map {
        members.set_item(name, to_python(py, value)?)?;
    }
    Ok(members)
}

/// The reason that an object is not a value, with the steps to it, innermost first.
struct Refused {
    steps: Vec<String>,
    reason: String,
    is_too_large: bool,
}

impl Refused {
    /// Makes an extension of a type and its bytes.
    fn new(reason: impl Into<String>) -> Self {
        Self { steps: Vec::new(), reason: reason.into(), is_too_large: false }
    }

    fn below(mut self, step: impl Into<String>) -> Self {
        self.steps.push(step.into());
        self
    }
}

/// Reads an object as a value. The error names `field` and the place in it.
pub(crate) fn from_python(field: &str, object: &Bound<'_, PyAny>) -> PyResult<Value> {
    read(object, 0).map_err(|refused| {
        let place: String = refused.steps.iter().rev().map(String::as_str).collect();
        let message = format!("{field}{place}: {}; nothing was written", refused.reason);
        match refused.is_too_large {
            true => IntegerSizeError::new_err((message, "INTEGER_TOO_LARGE")),
            false => ValueTypeError::new_err((message, "INVALID_VALUE")),
        }
    })
}

/// Reads a dict as members.
pub(crate) fn map_from_python(field: &str, object: &Bound<'_, PyAny>) -> PyResult<Map> {
    match from_python(field, object)? {
        Value::Map(map) => Ok(map),
        other => Err(invalid(format!("{field}: expected a dict, found a {}", other.kind()))),
    }
}

fn read(object: &Bound<'_, PyAny>, depth: usize) -> Result<Value, Refused> {
    if depth > VALUE_DEPTH_MAX {
        return Err(Refused::new(format!("it is nested deeper than {VALUE_DEPTH_MAX}")));
    }
    if object.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(text) = object.cast::<PyString>() {
        let text = text.to_str().map_err(|_| Refused::new("the text has a lone surrogate, which is not Unicode"))?;
        return Ok(Value::from(text));
    }
    if let Ok(truth) = object.cast::<PyBool>() {
        return Ok(Value::Bool(truth.is_true()));
    }
    if let Ok(number) = object.cast::<PyInt>() {
        return integer(number);
    }
    if let Ok(number) = object.cast::<PyFloat>() {
        return Ok(Value::Float(number.value()));
    }
    if let Ok(members) = object.cast::<PyDict>() {
        let mut map = Map::with_capacity(members.len());
        for (name, value) in members.iter() {
            let Ok(name) = name.extract::<String>() else {
                let class = class_of(&name);
                return Err(Refused::new(format!("a key is of the class {class}; the keys of a dict are texts")));
            };
            let value = read(&value, depth + 1).map_err(|refused| refused.below(format!("[{name:?}]")))?;
            map.insert(name, value);
        }
        return Ok(Value::Map(map));
    }
    if let Ok(items) = object.cast::<PyList>() {
        return items_of(items.iter(), depth);
    }
    if let Ok(items) = object.cast::<PyTuple>() {
        return items_of(items.iter(), depth);
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Value::Bytes(bytes.as_bytes().to_vec()));
    }
    if let Ok(bytes) = object.cast::<PyByteArray>() {
        return Ok(Value::Bytes(bytes.to_vec()));
    }
    if let Ok(extension) = object.cast::<PyExtension>() {
        let extension = extension.get();
        return Ok(Value::Ext(extension.code, extension.data.clone()));
    }
    let class = class_of(object);
    Err(Refused::new(format!(
        "an object of the class {class} is not a value; it must be None, bool, int, float, str, bytes, list or dict"
    )))
}

fn items_of<'py>(items: impl Iterator<Item = Bound<'py, PyAny>>, depth: usize) -> Result<Value, Refused> {
    let item = |(at, item)| read(&item, depth + 1).map_err(|refused| refused.below(format!("[{at}]")));
    items.enumerate().map(item).collect::<Result<Vec<_>, _>>().map(Value::List)
}

fn integer(number: &Bound<'_, PyInt>) -> Result<Value, Refused> {
    if let Ok(number) = number.extract::<i64>() {
        return Ok(Value::Int(number));
    }
    // Python refuses to print an integer of more digits than its own limit, which a program may have changed.
    let digits = number.call_method0("__str__").and_then(|digits| digits.extract::<String>());
    let value = digits.ok().and_then(|digits| Value::from_digits(&digits));
    value.ok_or_else(|| Refused {
        is_too_large: true,
        ..Refused::new(format!("the integer has more than {INTEGER_DIGITS_MAX} digits"))
    })
}

fn class_of(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string())
}

/// Returns a timestamp as an aware `datetime` in UTC.
pub(crate) fn datetime<'py>(py: Python<'py>, at: Timestamp) -> PyResult<Bound<'py, PyAny>> {
    static EPOCH: PyOnceLock<Py<PyDateTime>> = PyOnceLock::new();
    let epoch = EPOCH.get_or_try_init(py, || {
        let utc = PyTzInfo::utc(py)?;
        PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, Some(&utc)).map(Bound::unbind)
    })?;
    let (seconds, micros) = (at.as_micros().div_euclid(1_000_000), at.as_micros().rem_euclid(1_000_000));
    let (days, seconds) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let outside = |_| PyOverflowError::new_err(format!("the timestamp {at} is outside the years of a datetime"));
    let days = i32::try_from(days).map_err(outside)?;
    let since = PyDelta::new(py, days, seconds as i32, micros as i32, false)?;
    epoch.bind(py).call_method1("__add__", (since,))
}

/// Reads a `datetime`; one without a zone is in local time, as everywhere in Python.
pub(crate) fn timestamp(object: &Bound<'_, PyDateTime>) -> PyResult<Timestamp> {
    let seconds: f64 = object.call_method0("timestamp")?.extract()?;
    Ok(Timestamp::from_micros((seconds * 1e6).round() as i64))
}
