//! Objects without the cost of the safe interface: an entry of a dict, an item of a list, a new object.
//!
//! A long list of messages is compared and copied three times in a turn, and most of that time went into references
//! that were counted up and down, and into arguments of calls. Invariant: no reference that is borrowed here is used
//! after code of Python has run. *Absent:* what is compared and copied.

#![allow(unsafe_code)]

use std::ptr;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyType};

/// The entries of a dict, in their order.
pub(super) struct Entries<'a, 'py> {
    dict: &'a Bound<'py, PyDict>,
    position: ffi::Py_ssize_t,
}

/// The name and the value of an entry. Both are borrowed of the dict, until it is changed.
pub(super) type Entry<'a, 'py> = (Borrowed<'a, 'py, PyAny>, Borrowed<'a, 'py, PyAny>);

impl<'a, 'py> Entries<'a, 'py> {
    pub(super) fn of(dict: &'a Bound<'py, PyDict>) -> Self {
        Self { dict, position: 0 }
    }

    /// Returns the next entry. The one before may not be used any more.
    pub(super) fn next(&mut self) -> Option<Entry<'_, 'py>> {
        let (mut name, mut value) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the dict is one, and the position comes from the calls before. If the dict was changed meanwhile,
        // entries are missed or repeated, but the call reads no memory that is not the dict's.
        let found = unsafe { ffi::PyDict_Next(self.dict.as_ptr(), &mut self.position, &mut name, &mut value) };
        if found == 0 {
            return None;
        }
        let py = self.dict.py();
        // SAFETY: the call has set both, to references that the dict holds. They are bound to this borrow of the
        // iterator, within which the callers run no code of Python.
        unsafe { Some((Borrowed::from_ptr(py, name), Borrowed::from_ptr(py, value))) }
    }
}

/// Returns an item of a list, which is borrowed until the list is changed; `None` behind its end.
pub(super) fn item<'a, 'py>(list: &'a Bound<'py, PyList>, at: usize) -> Option<Borrowed<'a, 'py, PyAny>> {
    if at >= list.len() {
        return None;
    }
    // SAFETY: the list is one, and has the item: the call returns a reference that the list holds.
    unsafe {
        let item = ffi::PyList_GetItem(list.as_ptr(), at as ffi::Py_ssize_t);
        Some(Borrowed::from_ptr(list.py(), item))
    }
}

/// Returns the attributes of an object that are in its own dict, as `__dict__` does.
pub(super) fn dict_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the object is held; the call returns a new reference, or null with an exception set.
    unsafe {
        let dict = ffi::PyObject_GenericGetDict(object.as_ptr(), ptr::null_mut());
        Bound::from_owned_ptr_or_err(object.py(), dict)
    }
}

/// Makes an object of a class without calling it, as `object.__new__` does.
pub(super) fn new_object<'py>(class: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the class is one; the call returns a new reference, or null with an exception set.
    unsafe {
        let made = ffi::PyType_GenericAlloc(class.as_ptr().cast(), 0);
        Bound::from_owned_ptr_or_err(class.py(), made)
    }
}

/// Sets an attribute as `object.__setattr__` does, whatever the class says.
pub(super) fn set_attribute(
    object: &Bound<'_, PyAny>,
    name: &Bound<'_, PyString>,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    // SAFETY: all three are objects that are held; the call returns -1 with an exception set if it fails.
    let outcome = unsafe { ffi::PyObject_GenericSetAttr(object.as_ptr(), name.as_ptr(), value.as_ptr()) };
    if outcome == 0 { Ok(()) } else { Err(PyErr::fetch(object.py())) }
}
