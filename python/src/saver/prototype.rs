//! Prototypes: decoded values that are never handed out themselves.
//!
//! A copy of a prototype is made without validation, and a live object is compared with it field by field, so that an
//! item of a list that did not change is neither encoded nor decoded again. Invariants: a prototype is what the
//! serializer makes of the stored bytes; nothing that can change is shared with a copy. *Absent:* the caches of
//! prototypes.

use std::collections::HashSet;

use annals_langgraph::Typed;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PySet, PyString, PyType};

/// Objects inside one another that are copied without the serializer.
const DEPTH_MAX: usize = 64;

/// The classes that are known to copying.
pub(crate) struct KnownClasses {
    /// Classes whose objects do not change: dates, UUIDs and the like.
    frozen: Vec<Py<PyType>>,
    /// The addresses of the classes of messages, which the next field keeps alive.
    models: HashSet<usize>,
    _models: Vec<Py<PyType>>,
    new: Py<PyAny>,
    set: Py<PyAny>,
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

/// The parts of a message that is copied often.
struct Template {
    class: Py<PyType>,
    fields: Py<PyDict>,
    /// The fields that a copy may not share.
    own: Vec<(Py<PyString>, Py<PyAny>)>,
    extra: Py<PyAny>,
    set_fields: Py<PySet>,
}

impl Template {
    /// Returns the parts of an object, `None` if it is not a message that can be copied.
    fn of(classes: &KnownClasses, object: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let (py, class) = (object.py(), object.get_type());
        if !classes.is_model(&class) {
            return Ok(None);
        }
        let Some(parts) = ModelParts::of(object)? else { return Ok(None) };
        let set_fields = object.getattr(intern!(py, "__pydantic_fields_set__"))?;
        let Ok(set_fields) = set_fields.cast_into_exact::<PySet>() else { return Ok(None) };
        let mut own = Vec::new();
        for (name, value) in parts.fields.iter() {
            let Ok(name) = name.cast_into_exact::<PyString>() else { return Ok(None) };
            if !is_atom(&value) {
                own.push((name.unbind(), value.unbind()));
            }
        }
        let (class, fields) = (class.unbind(), parts.fields.unbind());
        Ok(Some(Self { class, fields, own, extra: parts.extra.unbind(), set_fields: set_fields.unbind() }))
    }

    /// Copies the message: its fields, without validation.
    fn copy<'py>(&self, classes: &KnownClasses, py: Python<'py>, depth: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        let fields = self.fields.bind(py).copy()?;
        for (name, value) in &self.own {
            match classes.copy(value.bind(py), depth + 1)? {
                Some(value) => fields.set_item(name, value)?,
                None => return Ok(None),
            }
        }
        let Some(extra) = classes.copy(self.extra.bind(py), depth + 1)? else { return Ok(None) };
        let copied = classes.new.bind(py).call1((&self.class,))?;
        let set = classes.set.bind(py);
        let set_fields = self.set_fields.bind(py).call_method0(intern!(py, "copy"))?;
        set.call1((&copied, intern!(py, "__dict__"), fields))?;
        set.call1((&copied, intern!(py, "__pydantic_extra__"), extra))?;
        set.call1((&copied, intern!(py, "__pydantic_fields_set__"), set_fields))?;
        set.call1((&copied, intern!(py, "__pydantic_private__"), py.None()))?;
        Ok(Some(copied))
    }
}

impl KnownClasses {
    pub(crate) fn new(py: Python<'_>, frozen: Vec<Py<PyType>>, models: Vec<Py<PyType>>) -> PyResult<Self> {
        let object = py.import("builtins")?.getattr("object")?;
        let addresses = models.iter().map(|class| class.as_ptr() as usize).collect();
        let (new, set) = (object.getattr("__new__")?.unbind(), object.getattr("__setattr__")?.unbind());
        Ok(Self { frozen, models: addresses, _models: models, new, set })
    }

    fn is_model(&self, class: &Bound<'_, PyType>) -> bool {
        self.models.contains(&(class.as_ptr() as usize))
    }

    fn is_frozen(&self, class: &Bound<'_, PyType>) -> bool {
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

    /// Returns whether a live object is encoded as a message is.
    fn is_same_message(&self, live: &Bound<'_, PyAny>, known: &Template) -> PyResult<bool> {
        let py = live.py();
        if !live.get_type().is(&known.class) {
            return Ok(false);
        }
        let Some(live) = ModelParts::of(live)? else { return Ok(false) };
        Ok(self.is_same_dict(&live.fields, known.fields.bind(py), 0)?
            && self.is_same(&live.extra, known.extra.bind(py), 1)?)
    }

    fn is_same_dict(&self, live: &Bound<'_, PyDict>, known: &Bound<'_, PyDict>, depth: usize) -> PyResult<bool> {
        if live.len() != known.len() {
            return Ok(false);
        }
        // The order is a part of the value.
        for ((name, live), (known_name, known)) in live.iter().zip(known.iter()) {
            if !(name.is(&known_name) || self.is_same(&name, &known_name, depth + 1)?)
                || !self.is_same(&live, &known, depth + 1)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns whether an object is of a plain class whose objects do not change.
fn is_atom(object: &Bound<'_, PyAny>) -> bool {
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
    /// Returns the parts; `None` of a model with private attributes.
    fn of(object: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let py = object.py();
        let private = object.getattr(intern!(py, "__pydantic_private__"))?;
        let fields = object.getattr(intern!(py, "__dict__"))?;
        match fields.cast_into_exact::<PyDict>() {
            Ok(fields) if private.is_none() => {
                Ok(Some(Self { fields, extra: object.getattr(intern!(py, "__pydantic_extra__"))? }))
            }
            _ => Ok(None),
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

    /// Returns whether a live object is encoded as this one is; `encode` is the serializer, for an object that cannot be
    /// compared.
    pub(crate) fn is_of<'py>(
        &self,
        classes: &KnownClasses,
        live: &Bound<'py, PyAny>,
        encode: impl FnOnce() -> PyResult<Option<Typed>>,
    ) -> PyResult<bool> {
        match (&self.typed, &self.template) {
            (None, Some(template)) => classes.is_same_message(live, template),
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
