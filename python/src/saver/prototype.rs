//! Prototypes: decoded values that are never handed out themselves.
//!
//! A copy of a prototype is made without validation, and a live object is compared with it field by field, so that an
//! item of a list that did not change is neither encoded nor decoded again.
//! Invariants: a prototype is what the serializer makes of the stored bytes; nothing that can change is shared with a
//! copy, or between two callers. *Absent:* the caches of prototypes, and copies that are handed out again.

use std::collections::HashMap;
use std::sync::Arc;

use annals_langgraph::Typed;
use parking_lot::Mutex;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PySet, PyString, PyType};

use super::raw::{Entries, dict_of, new_object, set_attribute};
use super::witness::ModelLayout;

/// Objects inside one another that are copied without the serializer.
const DEPTH_MAX: usize = 64;
/// Shapes of messages that are known.
const SHAPES_MAX: usize = 64;

/// The classes that are known to copying.
pub(crate) struct KnownClasses {
    /// Classes whose objects do not change: dates, UUIDs and the like.
    frozen: Vec<Py<PyType>>,
    /// The layouts of the classes of messages by their addresses, which the next field keeps alive.
    models: HashMap<usize, Option<ModelLayout>>,
    _models: Vec<Py<PyType>>,
    shapes: Mutex<Vec<Arc<Shape>>>,
}

/// A decoded value.
pub(crate) struct Prototype {
    object: Py<PyAny>,
    kind: CopyKind,
    /// The parts of a message.
    template: Option<Template>,
    /// The bytes of a value that cannot be copied, or that differs from the live object of which it was encoded.
    typed: Option<Typed>,
}

#[derive(Clone, Copy, PartialEq)]
enum CopyKind {
    /// It does not change, and is shared.
    Shared,
    /// It is copied.
    Copied,
    /// The serializer decodes it again.
    Decoded,
}

/// The parts of a message that is copied and compared often. A comparison reads few of them, one beside the other.
pub(super) struct Template {
    pub(super) shape: Arc<Shape>,
    /// The values of the fields, in their order.
    values: Box<[FieldValue]>,
    extra: FieldValue,
    /// The fields, as they are copied.
    fields: Py<PyDict>,
}

/// The fields that many messages of a class have in common.
pub(super) struct Shape {
    pub(super) class: Py<PyType>,
    /// Where the objects of the class hold their parts, if that is known.
    pub(super) layout: Option<ModelLayout>,
    /// The names of the fields, in their order.
    names: Box<[Py<PyString>]>,
    /// The names of the fields that were given.
    pub(super) set_fields: Py<PySet>,
    /// A copy of them.
    pub(super) copied_set_fields: Py<PySet>,
}

/// The value of a field. Those that can change are mostly empty.
enum FieldValue {
    /// It does not change, and is shared with copies.
    Shared(Py<PyAny>),
    EmptyDict,
    EmptyList,
    Other(Py<PyAny>),
}

impl FieldValue {
    fn of(value: Bound<'_, PyAny>) -> Self {
        match (value.cast_exact::<PyDict>(), value.cast_exact::<PyList>()) {
            (Ok(members), _) if members.is_empty() => Self::EmptyDict,
            (_, Ok(items)) if items.is_empty() => Self::EmptyList,
            _ if is_atom(&value) => Self::Shared(value.unbind()),
            _ => Self::Other(value.unbind()),
        }
    }

    /// Copies a value; `None` if a part of it is of a class that is not known.
    fn copy<'py>(&self, classes: &KnownClasses, py: Python<'py>, depth: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self {
            Self::Shared(value) => Ok(Some(value.bind(py).clone())),
            Self::EmptyDict => Ok(Some(PyDict::new(py).into_any())),
            Self::EmptyList => Ok(Some(PyList::empty(py).into_any())),
            Self::Other(value) => classes.copy(value.bind(py), depth),
        }
    }

    /// Returns whether a live value is encoded as this one is.
    fn is_same(&self, classes: &KnownClasses, live: Borrowed<'_, '_, PyAny>, depth: usize) -> PyResult<bool> {
        match self {
            Self::EmptyDict => Ok(live.cast_exact::<PyDict>().is_ok_and(|members| members.is_empty())),
            Self::EmptyList => Ok(live.cast_exact::<PyList>().is_ok_and(|items| items.is_empty())),
            Self::Shared(known) if live.is(known) => Ok(true),
            Self::Shared(known) | Self::Other(known) => classes.is_same(&live.to_owned(), known.bind(live.py()), depth),
        }
    }
}

impl Template {
    /// Returns the parts of an object, `None` if it is not a message that can be copied.
    fn of(classes: &KnownClasses, object: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let (py, class) = (object.py(), object.get_type());
        if !classes.is_model(&class) || !object.getattr(intern!(py, "__pydantic_private__"))?.is_none() {
            return Ok(None);
        }
        let Some(parts) = ModelParts::of(object)? else { return Ok(None) };
        let set_fields = object.getattr(intern!(py, "__pydantic_fields_set__"))?;
        let Ok(set_fields) = set_fields.cast_into_exact::<PySet>() else { return Ok(None) };
        let (mut names, mut values) = (Vec::new(), Vec::new());
        for (name, value) in parts.fields.iter() {
            let Ok(name) = name.cast_into_exact::<PyString>() else { return Ok(None) };
            names.push(name.unbind());
            values.push(FieldValue::of(value));
        }
        let shape = classes.shape(class, names, set_fields)?;
        let (extra, fields) = (FieldValue::of(parts.extra), parts.fields.unbind());
        Ok(Some(Self { shape, values: values.into(), extra, fields }))
    }

    /// Copies the message: its fields, without validation.
    fn copy<'py>(&self, classes: &KnownClasses, py: Python<'py>, depth: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        let fields = self.fields.bind(py).copy()?;
        for (name, value) in self.shape.names.iter().zip(&self.values) {
            if matches!(value, FieldValue::Shared(_)) {
                continue;
            }
            match value.copy(classes, py, depth + 1)? {
                Some(value) => fields.set_item(name, value)?,
                None => return Ok(None),
            }
        }
        let Some(extra) = self.extra.copy(classes, py, depth + 1)? else { return Ok(None) };
        let copied = new_object(self.shape.class.bind(py))?;
        let set_fields = copy_of_set(self.shape.set_fields.bind(py))?;
        set_attribute(&copied, intern!(py, "__dict__"), &fields)?;
        set_attribute(&copied, intern!(py, "__pydantic_extra__"), &extra)?;
        set_attribute(&copied, intern!(py, "__pydantic_fields_set__"), &set_fields)?;
        set_attribute(&copied, intern!(py, "__pydantic_private__"), py.None().bind(py))?;
        Ok(Some(copied))
    }

    /// Returns whether a live object is encoded as the message is.
    fn is_same(&self, classes: &KnownClasses, live: &Bound<'_, PyAny>) -> PyResult<bool> {
        if !live.get_type().is(&self.shape.class) {
            return Ok(false);
        }
        let parts = self.shape.layout.and_then(|layout| layout.parts(live));
        let live = match parts.map(|(fields, extra)| (fields.cast_into_exact::<PyDict>(), extra)) {
            Some((Ok(fields), extra)) => ModelParts { fields, extra },
            _ => match ModelParts::of(live)? {
                Some(parts) => parts,
                None => return Ok(false),
            },
        };
        Ok(self.has_fields(classes, &live.fields)? && self.extra.is_same(classes, live.extra.as_borrowed(), 1)?)
    }

    /// Returns whether fields have the names and the values of the message.
    fn has_fields(&self, classes: &KnownClasses, live: &Bound<'_, PyDict>) -> PyResult<bool> {
        if live.len() != self.values.len() {
            return Ok(false);
        }
        let (py, mut entries) = (live.py(), Entries::of(live));
        // The order is a part of the value.
        for (known_name, known) in self.shape.names.iter().zip(&self.values) {
            let Some((name, value)) = entries.next() else { return Ok(false) };
            if name.is(known_name) {
                if !known.is_same(classes, value, 1)? {
                    return Ok(false);
                }
                continue;
            }
            let (name, value) = (name.to_owned(), value.to_owned());
            if !classes.is_same(&name, known_name.bind(py), 1)? || !known.is_same(classes, value.as_borrowed(), 1)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl KnownClasses {
    /// Returns the shape of messages with these fields. Most messages of a class share one.
    fn shape(
        &self,
        class: Bound<'_, PyType>,
        names: Vec<Py<PyString>>,
        set_fields: Bound<'_, PySet>,
    ) -> PyResult<Arc<Shape>> {
        let known = self.shapes.lock().clone();
        for shape in &known {
            let are_same = class.is(&shape.class)
                && shape.names.len() == names.len()
                && shape.names.iter().zip(&names).all(|(a, b)| a.is(b));
            if are_same && set_fields.eq(&shape.set_fields)? {
                return Ok(Arc::clone(shape));
            }
        }
        let layout = self.models.get(&(class.as_ptr() as usize)).copied().flatten();
        let copied_set_fields = copy_of_set(&set_fields)?.cast_into_exact::<PySet>()?.unbind();
        let (class, set_fields) = (class.unbind(), set_fields.unbind());
        let shape = Arc::new(Shape { class, layout, names: names.into(), set_fields, copied_set_fields });
        if known.len() < SHAPES_MAX {
            self.shapes.lock().push(Arc::clone(&shape));
        }
        Ok(shape)
    }

    pub(crate) fn new(py: Python<'_>, frozen: Vec<Py<PyType>>, models: Vec<Py<PyType>>) -> PyResult<Self> {
        let layout = |class: &Py<PyType>| Ok((class.as_ptr() as usize, ModelLayout::of(class.bind(py))?));
        let layouts = models.iter().map(layout).collect::<PyResult<_>>()?;
        Ok(Self { frozen, models: layouts, _models: models, shapes: Mutex::default() })
    }

    fn is_model(&self, class: &Bound<'_, PyType>) -> bool {
        self.models.contains_key(&(class.as_ptr() as usize))
    }

    pub(super) fn is_frozen(&self, class: &Bound<'_, PyType>) -> bool {
        self.frozen.iter().any(|frozen| frozen.is(class))
    }

    /// Returns whether an object is a message.
    pub(crate) fn is_message(&self, object: &Bound<'_, PyAny>) -> bool {
        self.is_model(&object.get_type())
    }

    /// Copies an object; `None` if a part of it is of a class that is not known.
    fn copy<'py>(&self, object: &Bound<'py, PyAny>, depth: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = object.py();
        if is_atom(object) {
            return Ok(Some(object.clone()));
        }
        if depth > DEPTH_MAX {
            return Ok(None);
        }
        if let Ok(members) = object.cast_exact::<PyDict>() {
            return Ok(self.copy_dict(members, depth)?.map(Bound::into_any));
        }
        if let Ok(items) = object.cast_exact::<PyList>() {
            let mut copied = Vec::with_capacity(items.len());
            for item in items.iter() {
                match self.copy(&item, depth + 1)? {
                    Some(item) => copied.push(item),
                    None => return Ok(None),
                }
            }
            return Ok(Some(PyList::new(py, copied)?.into_any()));
        }
        let class = object.get_type();
        if self.is_model(&class) {
            return match Template::of(self, object)? {
                Some(template) => template.copy(self, py, depth),
                None => Ok(None),
            };
        }
        if self.is_frozen(&class) {
            return Ok(Some(object.clone()));
        }
        if let Ok(items) = object.cast_exact::<PySet>() {
            let are_frozen = items.iter().all(|item| is_atom(&item) || self.is_frozen(&item.get_type()));
            return if are_frozen { Ok(Some(PySet::new(py, items.iter())?.into_any())) } else { Ok(None) };
        }
        Ok(None)
    }

    fn copy_dict<'py>(&self, members: &Bound<'py, PyDict>, depth: usize) -> PyResult<Option<Bound<'py, PyDict>>> {
        let copied = PyDict::new(members.py());
        for (name, value) in members.iter() {
            if !is_atom(&name) {
                return Ok(None);
            }
            match self.copy(&value, depth + 1)? {
                Some(value) => copied.set_item(name, value)?,
                None => return Ok(None),
            }
        }
        Ok(Some(copied))
    }

    /// Returns whether a live object is encoded as a prototype is: it has the same class and the same parts. The types
    /// of numbers count, so 1, 1.0 and true differ.
    fn is_same(&self, live: &Bound<'_, PyAny>, known: &Bound<'_, PyAny>, depth: usize) -> PyResult<bool> {
        if live.is(known) {
            return Ok(true);
        }
        let class = live.get_type();
        if !class.is(known.get_type()) || depth > DEPTH_MAX {
            return Ok(false);
        }
        if let (Ok(live), Ok(known)) = (live.cast_exact::<PyString>(), known.cast_exact::<PyString>()) {
            return match (live.to_str(), known.to_str()) {
                (Ok(live), Ok(known)) => Ok(live == known),
                _ => Ok(false),
            };
        }
        if let (Ok(live), Ok(known)) = (live.cast_exact::<PyDict>(), known.cast_exact::<PyDict>()) {
            return self.is_same_dict(live, known, depth);
        }
        if let (Ok(live), Ok(known)) = (live.cast_exact::<PyList>(), known.cast_exact::<PyList>()) {
            if live.len() != known.len() {
                return Ok(false);
            }
            for (live, known) in live.iter().zip(known.iter()) {
                if !self.is_same(&live, &known, depth + 1)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        if let (Ok(live), Ok(known)) = (live.cast_exact::<PyFloat>(), known.cast_exact::<PyFloat>()) {
            return Ok(live.value().to_bits() == known.value().to_bits());
        }
        if live.is_exact_instance_of::<PyInt>() || live.is_exact_instance_of::<PyBytes>() {
            return live.eq(known);
        }
        if self.is_model(&class) {
            let (Some(live), Some(known)) = (ModelParts::of(live)?, ModelParts::of(known)?) else { return Ok(false) };
            return Ok(self.is_same_dict(&live.fields, &known.fields, depth)?
                && self.is_same(&live.extra, &known.extra, depth + 1)?);
        }
        if self.is_frozen(&class) {
            // Equal times may have different zones, and equal numbers different digits.
            return live.repr()?.as_any().eq(known.repr()?);
        }
        Ok(false)
    }

    fn is_same_dict(&self, live: &Bound<'_, PyDict>, known: &Bound<'_, PyDict>, depth: usize) -> PyResult<bool> {
        if live.len() != known.len() {
            return Ok(false);
        }
        // The order is a part of the value.
        let (mut live, mut known) = (Entries::of(live), Entries::of(known));
        while let (Some((name, value)), Some((known_name, known_value))) = (live.next(), known.next()) {
            let differing = match (name.is(known_name), value.is(known_value)) {
                (true, true) => continue,
                (true, false) => None,
                (false, _) => Some((name.to_owned(), known_name.to_owned())),
            };
            let (value, known_value) = (value.to_owned(), known_value.to_owned());
            if let Some((name, known_name)) = differing
                && !self.is_same(&name, &known_name, depth + 1)?
            {
                return Ok(false);
            }
            if !self.is_same(&value, &known_value, depth + 1)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn copy_of_set<'py>(set: &Bound<'py, PySet>) -> PyResult<Bound<'py, PyAny>> {
    set.call_method0(intern!(set.py(), "copy"))
}

/// Returns whether an object is of a plain class whose objects do not change.
pub(super) fn is_atom(object: &Bound<'_, PyAny>) -> bool {
    object.is_exact_instance_of::<PyString>()
        || object.is_none()
        || object.is_exact_instance_of::<PyInt>()
        || object.is_exact_instance_of::<PyBool>()
        || object.is_exact_instance_of::<PyFloat>()
        || object.is_exact_instance_of::<PyBytes>()
}

/// The parts of a model of Pydantic.
struct ModelParts<'py> {
    fields: Bound<'py, PyDict>,
    extra: Bound<'py, PyAny>,
}

impl<'py> ModelParts<'py> {
    /// Returns the parts that are encoded: private attributes are not.
    fn of(object: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let py = object.py();
        match dict_of(object)?.cast_into_exact::<PyDict>() {
            Ok(fields) => Ok(Some(Self { fields, extra: object.getattr(intern!(py, "__pydantic_extra__"))? })),
            Err(_) => Ok(None),
        }
    }
}

impl Prototype {
    /// Makes a prototype of what the serializer decoded. `live` is the object that was encoded, if there is one.
    pub(crate) fn new(
        classes: &KnownClasses,
        decoded: Bound<'_, PyAny>,
        live: Option<&Bound<'_, PyAny>>,
        typed: &Typed,
    ) -> PyResult<Self> {
        let kind = match classes.copy(&decoded, 0)? {
            Some(copy) if copy.is(&decoded) => CopyKind::Shared,
            Some(_) => CopyKind::Copied,
            None => CopyKind::Decoded,
        };
        let is_comparable =
            kind != CopyKind::Decoded && live.map_or(Ok(true), |live| classes.is_same(live, &decoded, 0))?;
        let typed = if is_comparable { None } else { Some(typed.clone()) };
        let template = if kind == CopyKind::Copied { Template::of(classes, &decoded)? } else { None };
        Ok(Self { object: decoded.unbind(), kind, template, typed })
    }

    /// Returns the parts of a message whose bytes are not needed.
    pub(super) fn template(&self) -> Option<&Template> {
        self.template.as_ref().filter(|_| self.typed.is_none())
    }

    /// Returns an object that shares nothing with the prototype that can change. `decode` is the serializer.
    pub(crate) fn hand_out<'py>(
        &self,
        classes: &KnownClasses,
        py: Python<'py>,
        decode: impl FnOnce(&Typed) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let object = self.object.bind(py);
        let copied = match self.kind {
            CopyKind::Shared => Some(object.clone()),
            CopyKind::Copied => match &self.template {
                Some(template) => template.copy(classes, py, 0)?,
                None => classes.copy(object, 0)?,
            },
            CopyKind::Decoded => None,
        };
        match (copied, &self.typed) {
            (Some(copied), _) => Ok(copied),
            (None, Some(typed)) => decode(typed),
            (None, None) => Ok(object.clone()),
        }
    }

    /// Returns whether a message that was handed out for a prototype is as this one. Objects that are not messages are
    /// copied anew.
    pub(crate) fn is_unchanged(&self, classes: &KnownClasses, message: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.template().map_or(Ok(false), |template| template.is_same(classes, message))
    }

    /// Returns whether a live object is encoded as this one is; `encode` is the serializer, for an object that cannot be
    /// compared.
    pub(crate) fn is_of<'py>(
        &self,
        classes: &KnownClasses,
        live: &Bound<'py, PyAny>,
        encode: impl FnOnce() -> PyResult<Option<Typed>>,
    ) -> PyResult<bool> {
        match (&self.typed, &self.template) {
            (None, Some(template)) => template.is_same(classes, live),
            (None, None) => classes.is_same(live, self.object.bind(live.py()), 0),
            (Some(typed), _) => Ok(encode()?.is_some_and(|encoded| encoded == *typed)),
        }
    }

    /// Returns the id of a message.
    pub(crate) fn message_id(&self, py: Python<'_>) -> Option<String> {
        message_id(self.object.bind(py))
    }
}

/// Returns the id of a message, if it has one.
pub(crate) fn message_id(object: &Bound<'_, PyAny>) -> Option<String> {
    object.getattr(intern!(object.py(), "id")).ok()?.extract().ok()
}
