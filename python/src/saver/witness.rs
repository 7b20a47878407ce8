//! Proofs that a copy of a message is as it was made, by the addresses of its parts.
//!
//! A message has ten parts and more, and a long list of messages is looked at three times in a turn: most of that time
//! went into reading parts that nobody had touched. A dict has a tag that is new after each change, so that one word
//! stands for all its fields; an interpreter without tags (3.14 and later) has the entries compared by their addresses.
//! The offsets of the parts are found by looking for parts that are known, in an object of each class; a class whose
//! objects do not hold them so has no layout, and no copies that are proved.
//! Invariants: a witness is made of a fresh copy, whose values that do not change are those of its prototype; a part is
//! read after the part that holds it was found unchanged, and before code of Python runs. *Absent:* what is done with
//! the copies.

#![allow(unsafe_code)]

use std::ptr;

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PySet, PyType};

use super::prototype::{KnownClasses, Shape, is_atom};
use super::raw::{Entries, new_object, set_attribute};

/// Containers inside one another that are witnessed.
const DEPTH_MAX: usize = 16;
/// Empty containers of a message that are witnessed beside its dict.
const EMPTY_MAX: usize = 5;

/// The words of an object of whatever class.
const REFERENCES_AT: isize = 0;
const CLASS_AT: isize = 1;
/// The number of the items of a list, and of the entries of a dict.
const LEN_AT: isize = 2;
const TAG_AT: isize = 3;

/// The words of a set: the places that were used, its length, its mask, the address of its table, and places in itself.
const SET_FILL_AT: isize = 2;
const SET_LEN_AT: isize = 3;
const SET_MASK_AT: isize = 4;
const SET_TABLE_AT: isize = 5;
const SET_PLACES_AT: usize = 8;

/// An address of an empty list; dicts have an even one.
const IS_LIST: usize = 1;

/// Where the objects of a class of messages hold their parts, in words from their address.
#[derive(Clone, Copy)]
pub(super) struct ModelLayout {
    dict: isize,
    extra: isize,
    set_fields: isize,
    private: isize,
    weak: isize,
    has_tags: bool,
    has_tables: bool,
}

/// A dict as it was.
struct WitnessedDict {
    address: usize,
    /// The tag, or 0 if dicts have none.
    tag: usize,
    /// The entries, if dicts have no tag.
    entries: Box<[(usize, usize)]>,
}

/// A container that is not empty.
enum WitnessedPart {
    Dict(WitnessedDict),
    List { address: usize, items: Box<[usize]> },
}

/// A message as it was.
pub(super) struct CopyWitness {
    dict: usize,
    tag: usize,
    extra: usize,
    set_fields: usize,
    /// The addresses of the empty containers, then zeros.
    empty: [usize; EMPTY_MAX],
    /// The parts that few messages have, each after the one that holds it.
    more: Option<Box<MoreParts>>,
}

#[derive(Default)]
struct MoreParts {
    entries: Box<[(usize, usize)]>,
    parts: Vec<WitnessedPart>,
}

/// Reads a word of an object.
///
/// # Safety
/// The object is alive, and has a word there.
#[inline(always)]
unsafe fn word(object: usize, at: isize) -> usize {
    // SAFETY: the caller's.
    unsafe { (object as *const usize).offset(at).read() }
}

fn address(object: &Bound<'_, PyAny>) -> usize {
    object.as_ptr() as usize
}

fn dict_class() -> usize {
    (&raw const ffi::PyDict_Type) as usize
}

fn list_class() -> usize {
    (&raw const ffi::PyList_Type) as usize
}

impl ModelLayout {
    /// Finds the parts of the objects of a class.
    pub(super) fn of(class: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        let py = class.py();
        let name =
            py.import(intern!(py, "sys"))?.getattr(intern!(py, "implementation"))?.getattr(intern!(py, "name"))?;
        let version = py.version_info();
        let is_known = name.eq("cpython")? && ((3, 10)..=(3, 14)).contains(&(version.major, version.minor));
        if !is_known || size_of::<ffi::PyObject>() != 2 * size_of::<usize>() || size_of::<usize>() != 8 {
            return Ok(None);
        }
        let Some(has_tags) = dict_words(py)? else { return Ok(None) };
        let object = new_object(class)?;
        let (dict, extra, private) = (PyDict::new(py), PyDict::new(py), PyDict::new(py));
        let set_fields = PySet::empty(py)?;
        let parts = [
            (intern!(py, "__dict__"), dict.as_any()),
            (intern!(py, "__pydantic_extra__"), extra.as_any()),
            (intern!(py, "__pydantic_fields_set__"), set_fields.as_any()),
            (intern!(py, "__pydantic_private__"), private.as_any()),
        ];
        for (name, part) in parts {
            if set_attribute(&object, name, part).is_err() {
                return Ok(None);
            }
        }
        let Ok(weak) = py.import(intern!(py, "weakref"))?.call_method1(intern!(py, "ref"), (&object,)) else {
            return Ok(None);
        };
        let words: usize = class.getattr(intern!(py, "__basicsize__"))?.extract::<usize>()? / size_of::<usize>();
        // SAFETY: the class is one.
        let flags = unsafe { ffi::PyType_GetFlags(class.as_type_ptr()) };
        const MANAGED_DICT: (std::ffi::c_ulong, isize) = (1 << 4, -3);
        const MANAGED_WEAKREF: (std::ffi::c_ulong, isize) = (1 << 3, -4);
        let managed = [MANAGED_DICT, MANAGED_WEAKREF].into_iter().filter(|(flag, _)| flags & flag != 0);
        let places: Vec<isize> = managed.map(|(_, at)| at).chain(LEN_AT..words as isize).collect();
        let find = |part: &Bound<'_, PyAny>| {
            // SAFETY: the object is held; its class says its size, and whether words come before it.
            let mut found = places.iter().filter(|at| unsafe { word(address(&object), **at) } == address(part));
            found.next().copied().filter(|_| found.next().is_none())
        };
        let found = (find(&dict), find(&extra), find(&set_fields), find(&private), find(&weak));
        let (Some(dict), Some(extra), Some(set_fields), Some(private), Some(weak)) = found else { return Ok(None) };
        Ok(Some(Self { dict, extra, set_fields, private, weak, has_tags, has_tables: set_words(py)? }))
    }

    /// Returns the fields of an object of the class, and what comes beside them; `None` if it does not hold them now.
    pub(super) fn parts<'py>(&self, object: &Bound<'py, PyAny>) -> Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        Some((self.part(object, self.dict)?, self.part(object, self.extra)?))
    }

    fn part<'py>(&self, object: &Bound<'py, PyAny>, at: isize) -> Option<Bound<'py, PyAny>> {
        // SAFETY: the object is held, and of the class of the layout.
        let part = unsafe { word(address(object), at) };
        // An attribute that is not set is null, and a dict that is not made yet may be odd.
        let is_object = part != 0 && part.is_multiple_of(align_of::<usize>());
        // SAFETY: the object holds the part.
        is_object.then(|| unsafe { Bound::from_borrowed_ptr(object.py(), part as *mut ffi::PyObject) })
    }
}

/// Returns whether a dict has a tag that is new after each change; `None` if its length is not where it should be.
fn dict_words(py: Python<'_>) -> PyResult<Option<bool>> {
    let dict = PyDict::new(py);
    let mut tags = Vec::new();
    let mut changed = |len: usize| {
        // SAFETY: a dict is larger than four words.
        let (found, tag) = unsafe { (word(address(&dict), LEN_AT), word(address(&dict), TAG_AT)) };
        tags.push(tag);
        found == len
    };
    let mut are_lengths = changed(0);
    for (name, value, len) in [("a", 0, 1), ("a", 1, 1), ("b", 0, 2), ("a", 2, 2)] {
        dict.set_item(name, value)?;
        are_lengths &= changed(len);
    }
    dict.del_item("a")?;
    are_lengths &= changed(1);
    dict.clear();
    are_lengths &= changed(0);
    let has_tags = tags.iter().enumerate().all(|(at, tag)| *tag != 0 && !tags[..at].contains(tag));
    Ok(are_lengths.then_some(has_tags))
}

/// Returns the table of a set: its members with their hashes.
///
/// # Safety
/// A set is at the address, and sets hold their tables.
unsafe fn set_table<'a>(set: usize) -> &'a [usize] {
    // SAFETY: the caller's. A table has one place more than its mask says, of two words each.
    unsafe { std::slice::from_raw_parts(word(set, SET_TABLE_AT) as *const usize, 2 * (word(set, SET_MASK_AT) + 1)) }
}

/// Returns whether sets hold their tables where they should.
fn set_words(py: Python<'_>) -> PyResult<bool> {
    let mut are_there = true;
    for count in [0_usize, 3, 20] {
        let members: Vec<Bound<'_, PyAny>> =
            (0..count).map(|n| Ok(n.into_pyobject(py)?.into_any())).collect::<PyResult<_>>()?;
        let set = PySet::new(py, &members)?;
        let at = address(&set);
        // SAFETY: a set has room for eight places in itself, behind these words. A table is read if its mask may be
        // one; a larger table is elsewhere.
        are_there &= unsafe {
            let (used, places) = (word(at, SET_LEN_AT), word(at, SET_MASK_AT).wrapping_add(1));
            let is_inner = word(at, SET_TABLE_AT) == at + SET_PLACES_AT * size_of::<usize>();
            word(at, SET_FILL_AT) == count
                && used == count
                && places.is_power_of_two()
                && (is_inner && places == 8 || !is_inner && count < places && places <= 256 && count > 4)
                && set_table(at).chunks(2).filter(|place| place[0] != 0).count() == count
                && members.iter().all(|member| set_table(at).chunks(2).any(|place| place[0] == address(member)))
        };
    }
    Ok(are_there)
}

impl WitnessedDict {
    fn of(dict: &Bound<'_, PyDict>, layout: &ModelLayout) -> Self {
        let address = address(dict);
        if layout.has_tags {
            // SAFETY: the dict is held.
            return Self { address, tag: unsafe { word(address, TAG_AT) }, entries: Box::default() };
        }
        Self { address, tag: 0, entries: entries_of(dict) }
    }
}

fn entries_of(dict: &Bound<'_, PyDict>) -> Box<[(usize, usize)]> {
    let (mut found, mut entries) = (Vec::with_capacity(dict.len()), Entries::of(dict));
    while let Some((name, value)) = entries.next() {
        found.push((name.as_ptr() as usize, value.as_ptr() as usize));
    }
    found.into()
}

/// Returns whether a dict is as it was: by its tag, or if dicts have none by its entries.
///
/// # Safety
/// An object is at the address.
unsafe fn is_same_dict(dict: usize, tag: usize, entries: &[(usize, usize)]) -> bool {
    // SAFETY: the caller's; what is read is a dict, by its class.
    unsafe {
        if word(dict, CLASS_AT) != dict_class() {
            return false;
        }
        if tag != 0 {
            return word(dict, TAG_AT) == tag;
        }
        let (mut at, mut name, mut value) = (0, ptr::null_mut(), ptr::null_mut());
        word(dict, LEN_AT) == entries.len()
            && entries.iter().all(|entry| {
                ffi::PyDict_Next(dict as *mut ffi::PyObject, &mut at, &mut name, &mut value) != 0
                    && (name as usize, value as usize) == *entry
            })
    }
}

impl WitnessedPart {
    fn address(&self) -> usize {
        match self {
            Self::Dict(dict) => dict.address,
            Self::List { address, .. } => *address,
        }
    }

    /// # Safety
    /// An object is at the address of the part.
    unsafe fn is_same(&self) -> bool {
        match self {
            // SAFETY: the caller's.
            Self::Dict(dict) => unsafe { is_same_dict(dict.address, dict.tag, &dict.entries) },
            // SAFETY: the caller's; what is read is a list, by its class, and has so many items.
            Self::List { address, items } => unsafe {
                word(*address, CLASS_AT) == list_class()
                    && word(*address, LEN_AT) == items.len()
                    && items.iter().enumerate().all(|(at, item)| {
                        ffi::PyList_GetItem(*address as *mut ffi::PyObject, at as isize) as usize == *item
                    })
            },
        }
    }
}

impl CopyWitness {
    /// Witnesses a copy that was just made; `None` if it has parts that cannot be.
    pub(super) fn of(classes: &KnownClasses, shape: &Shape, copy: &Bound<'_, PyAny>) -> Option<Self> {
        let layout = shape.layout.as_ref()?;
        let (fields, extra) = layout.parts(copy)?;
        let (fields, set_fields) = (fields.cast_into_exact::<PyDict>().ok()?, layout.part(copy, layout.set_fields)?);
        if !set_fields.is_exact_instance_of::<PySet>() || !layout.part(copy, layout.private)?.is_none() {
            return None;
        }
        let WitnessedDict { address: dict, tag, entries } = WitnessedDict::of(&fields, layout);
        let (extra_at, set_fields) = (address(&extra), address(&set_fields));
        let mut witness = Self { dict, tag, extra: extra_at, set_fields, empty: [0; EMPTY_MAX], more: None };
        let (mut count, mut parts) = (0, Vec::new());
        let fields = fields.values();
        for value in fields.iter().chain((!extra.is_none()).then_some(extra)) {
            match empty_container(&value) {
                Some(part) if count < EMPTY_MAX => {
                    witness.empty[count] = part;
                    count += 1;
                }
                _ => collect(classes, layout, &value, 0, &mut parts)?,
            }
        }
        if !entries.is_empty() || !parts.is_empty() {
            witness.more = Some(Box::new(MoreParts { entries, parts }));
        }
        Some(witness)
    }

    /// Returns whether the copy is encoded as when it was made.
    pub(super) fn is_same(&self, shape: &Shape, copy: &Bound<'_, PyAny>) -> bool {
        let Some(layout) = &shape.layout else { return false };
        let at = address(copy);
        // SAFETY: the copy is held. If it is still of the class of the layout, it has these words, and holds the dict
        // and the extra fields; a container that is as it was holds the parts that it held.
        unsafe {
            if word(at, CLASS_AT) != shape.class.as_ptr() as usize
                || word(at, layout.dict) != self.dict
                || word(at, layout.extra) != self.extra
            {
                return false;
            }
            let more = self.more.as_deref();
            is_same_dict(self.dict, self.tag, more.map(|more| &*more.entries).unwrap_or_default())
                && self.empty().all(|(part, class)| word(part, CLASS_AT) == class && word(part, LEN_AT) == 0)
                && more.is_none_or(|more| more.parts.iter().all(|part| part.is_same()))
        }
    }

    /// Returns whether a copy is as it was, and whether no other object than the caller refers to it or to a part of it
    /// that can change.
    pub(super) fn is_idle(&self, shape: &Shape, copy: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Some(layout) = &shape.layout else { return Ok(false) };
        let (py, at) = (copy.py(), address(copy));
        // SAFETY: the copy is held; if it is the same, it holds the parts.
        let is_held_once = unsafe {
            word(at, REFERENCES_AT) == 1
                && self.is_same(shape, copy)
                && word(self.dict, REFERENCES_AT) == 1
                && word(at, layout.weak) == 0
                && word(at, layout.private) == py.None().as_ptr() as usize
                && word(at, layout.set_fields) == self.set_fields
                && word(self.set_fields, REFERENCES_AT) == 1
                && self.empty().all(|(part, _)| word(part, REFERENCES_AT) == 1)
                && self
                    .more
                    .as_deref()
                    .is_none_or(|more| more.parts.iter().all(|part| word(part.address(), REFERENCES_AT) == 1))
        };
        if !is_held_once {
            return Ok(false);
        }
        // SAFETY: the copy holds it.
        let set_fields = unsafe { Bound::from_borrowed_ptr(py, self.set_fields as *mut ffi::PyObject) };
        // Copies of one set have equal tables, as long as they are not changed.
        // SAFETY: both are sets that are held.
        let is_same_table = layout.has_tables
            && set_fields.is_exact_instance_of::<PySet>()
            && unsafe { set_table(self.set_fields) == set_table(shape.copied_set_fields.as_ptr() as usize) };
        if is_same_table {
            return Ok(true);
        }
        Ok(set_fields.is_exact_instance_of::<PySet>() && set_fields.eq(&shape.set_fields)?)
    }

    /// Loads the parts that [`CopyWitness::is_same`] reads, so that they are there when it is called some copies later.
    #[inline]
    pub(super) fn prefetch(&self, copy: &Py<PyAny>) {
        let at = copy.as_ptr() as usize;
        let parts = [at, at.wrapping_sub(3 * size_of::<usize>()), self.dict, self.extra];
        for part in parts.into_iter().chain(self.empty) {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the instruction reads nothing that the program sees, whatever the address is.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T0>(part as *const i8);
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = part;
        }
    }

    /// The addresses and the classes of the empty containers.
    fn empty(&self) -> impl Iterator<Item = (usize, usize)> {
        self.empty.iter().take_while(|part| **part != 0).map(|part| match part & IS_LIST {
            0 => (*part, dict_class()),
            _ => (part & !IS_LIST, list_class()),
        })
    }
}

/// Returns the address of an empty dict or list, as a witness has it.
fn empty_container(value: &Bound<'_, PyAny>) -> Option<usize> {
    match (value.cast_exact::<PyDict>(), value.cast_exact::<PyList>()) {
        (Ok(dict), _) if dict.is_empty() => Some(address(dict)),
        (_, Ok(list)) if list.is_empty() => Some(address(list) | IS_LIST),
        _ => None,
    }
}

/// Collects the containers in a value, each after the one that holds it; `None` if a part is of a class that is not
/// known.
fn collect(
    classes: &KnownClasses,
    layout: &ModelLayout,
    value: &Bound<'_, PyAny>,
    depth: usize,
    parts: &mut Vec<WitnessedPart>,
) -> Option<()> {
    if is_atom(value) {
        return Some(());
    }
    if depth > DEPTH_MAX {
        return None;
    }
    if let Ok(dict) = value.cast_exact::<PyDict>() {
        parts.push(WitnessedPart::Dict(WitnessedDict::of(dict, layout)));
        for (name, value) in dict.iter() {
            if !is_atom(&name) {
                return None;
            }
            collect(classes, layout, &value, depth + 1, parts)?;
        }
        return Some(());
    }
    if let Ok(list) = value.cast_exact::<PyList>() {
        let items = list.iter().map(|item| address(&item)).collect();
        parts.push(WitnessedPart::List { address: address(list), items });
        return list.iter().try_for_each(|item| collect(classes, layout, &item, depth + 1, parts));
    }
    classes.is_frozen(&value.get_type()).then_some(())
}
