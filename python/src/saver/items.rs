//! Lists of prototypes in chunks, with the copies that were handed out for them.
//!
//! The lists of successive checkpoints share their chunks, so that what a put and a read do for each item is to look at
//! it. The copy of a message that was handed out last is handed out again once it is idle: no other object refers to it
//! or to a part of it that can change, and it is as it was made.
//! Invariants: no code of Python runs while a chunk is locked; a witness speaks of one object.
//! *Absent:* how a copy is proved to be as it was.

use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annals_langgraph::Typed;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyList;

use super::prototype::{KnownClasses, Prototype, Shape};
use super::raw::item;
use super::witness::CopyWitness;

/// Items of a chunk at most.
const CHUNK_ITEMS_MAX: usize = 256;
/// Copies that are loaded ahead, to hide how long memory takes.
const PREFETCHED: usize = 4;
/// Copies that are retained in the process to be handed out again.
const LENT_MAX: usize = 1 << 15;

static LENT: AtomicUsize = AtomicUsize::new(0);

/// A list of prototypes.
#[derive(Default)]
pub(crate) struct PrototypeList {
    chunks: Vec<Arc<ListChunk>>,
    /// The places behind the chunks.
    ends: Vec<usize>,
}

/// Successive items of a list.
pub(super) struct ListChunk {
    pub(super) prototypes: Box<[Arc<Prototype>]>,
    /// The copies that were handed out, unless a call uses them or there are too many.
    lent: Mutex<Option<LentCopies>>,
}

/// The copies that were handed out for the items of a chunk. They count whether they are there or not.
struct LentCopies(Vec<Option<LentCopy>>);

struct LentCopy {
    object: Py<PyAny>,
    witness: CopyWitness,
    /// That of the prototype, which is not looked at while the copy is as it was.
    shape: Arc<Shape>,
}

impl LentCopies {
    fn new(len: usize) -> Option<Self> {
        if LENT.load(Ordering::Relaxed) + len > LENT_MAX {
            return None;
        }
        LENT.fetch_add(len, Ordering::Relaxed);
        Some(Self(iter::repeat_with(|| None).take(len).collect()))
    }

    /// Makes room for copies up to a number; `None` if there are too many.
    fn extended(mut self, len: usize) -> Option<Self> {
        let added = len - self.0.len();
        if LENT.load(Ordering::Relaxed) + added > LENT_MAX {
            return None;
        }
        LENT.fetch_add(added, Ordering::Relaxed);
        self.0.resize_with(len, || None);
        Some(self)
    }
}

impl Drop for LentCopies {
    fn drop(&mut self) {
        LENT.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

impl ListChunk {
    fn new(prototypes: Vec<Arc<Prototype>>) -> Self {
        Self { prototypes: prototypes.into(), lent: Mutex::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.prototypes.len()
    }

    /// Returns the copies. Another thread finds none until they are given back.
    fn take_lent(&self) -> Option<LentCopies> {
        self.lent.lock().take()
    }

    fn give_back(&self, lent: Option<LentCopies>) {
        if lent.is_some() {
            let other = std::mem::replace(&mut *self.lent.lock(), lent);
            drop(other);
        }
    }

    /// Returns how many items at the start are encoded as those of a list from a place on; `encode` is the serializer.
    pub(super) fn same_start<'py>(
        &self,
        classes: &KnownClasses,
        list: &Bound<'py, PyList>,
        from: usize,
        encode: impl Fn(&Bound<'py, PyAny>) -> PyResult<Option<Typed>>,
    ) -> PyResult<usize> {
        let lent = self.take_lent();
        let outcome = self.compare(classes, lent.as_ref(), list, from, encode);
        self.give_back(lent);
        outcome
    }

    fn compare<'py>(
        &self,
        classes: &KnownClasses,
        lent: Option<&LentCopies>,
        list: &Bound<'py, PyList>,
        from: usize,
        encode: impl Fn(&Bound<'py, PyAny>) -> PyResult<Option<Typed>>,
    ) -> PyResult<usize> {
        for (at, prototype) in self.prototypes.iter().enumerate() {
            let Some(live) = item(list, from + at) else { return Ok(at) };
            prefetch(lent, at + PREFETCHED);
            if let Some(copy) = lent.and_then(|lent| lent.0[at].as_ref())
                && live.is(&copy.object)
                && copy.witness.is_same(&copy.shape, &live)
            {
                continue;
            }
            let live = live.to_owned();
            if !prototype.is_of(classes, &live, || encode(&live))? {
                return Ok(at);
            }
        }
        Ok(self.len())
    }

    /// Appends an object for each item: the copy of the last call if it is idle, another copy if not.
    fn lend<'py>(
        &self,
        classes: &KnownClasses,
        py: Python<'py>,
        objects: &mut Vec<Bound<'py, PyAny>>,
        hand_out: impl Fn(&Prototype) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<()> {
        let mut lent = self.take_lent().or_else(|| LentCopies::new(self.len()));
        let mut outcome = Ok(());
        for (at, prototype) in self.prototypes.iter().enumerate() {
            prefetch(lent.as_ref(), at + PREFETCHED);
            let last = lent.as_mut().and_then(|lent| lent.0.get_mut(at));
            match lend(classes, py, prototype, last, &hand_out) {
                Ok(object) => objects.push(object),
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        self.give_back(lent);
        outcome
    }
}

/// Loads the parts of a copy that is looked at next.
#[inline]
fn prefetch(lent: Option<&LentCopies>, at: usize) {
    if let Some(Some(copy)) = lent.and_then(|lent| lent.0.get(at)) {
        copy.witness.prefetch(&copy.object);
    }
}

fn lend<'py>(
    classes: &KnownClasses,
    py: Python<'py>,
    prototype: &Prototype,
    last: Option<&mut Option<LentCopy>>,
    hand_out: impl Fn(&Prototype) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let Some(last) = last else { return hand_out(prototype) };
    if let Some(copy) = last
        && copy.witness.is_idle(&copy.shape, copy.object.bind(py))?
    {
        return Ok(copy.object.bind(py).clone());
    }
    let object = hand_out(prototype)?;
    *last = prototype.template().and_then(|template| {
        let witness = CopyWitness::of(classes, &template.shape, &object)?;
        Some(LentCopy { object: object.clone().unbind(), witness, shape: Arc::clone(&template.shape) })
    });
    Ok(object)
}

impl PrototypeList {
    /// Makes a list. It shares the chunks that it has in common with another one at the start.
    pub(crate) fn new(prototypes: Vec<Arc<Prototype>>, other: Option<&Self>) -> Self {
        let mut building = ListBuilding::default();
        let mut rest = &*prototypes;
        for chunk in other.map(|other| &*other.chunks).unwrap_or_default() {
            let Some((start, behind)) = rest.split_at_checked(chunk.len()) else { break };
            if !start.iter().zip(&chunk.prototypes).all(|(item, known)| Arc::ptr_eq(item, known)) {
                break;
            }
            building.chunk(chunk);
            rest = behind;
        }
        for prototype in rest {
            building.item(Arc::clone(prototype));
        }
        building.finish()
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.last().copied().unwrap_or_default()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Prototype>> {
        self.chunks.iter().flat_map(|chunk| &chunk.prototypes)
    }

    pub(super) fn get(&self, at: usize) -> Option<&Arc<Prototype>> {
        let (begin, chunk) = self.chunk_of(at)?;
        chunk.prototypes.get(at - begin)
    }

    /// Returns the chunk that begins at a place.
    pub(super) fn chunk_at(&self, at: usize) -> Option<&Arc<ListChunk>> {
        self.chunk_of(at).filter(|(begin, _)| *begin == at).map(|(_, chunk)| chunk)
    }

    /// Returns the chunk of an item, with its place.
    fn chunk_of(&self, at: usize) -> Option<(usize, &Arc<ListChunk>)> {
        let index = self.ends.partition_point(|end| *end <= at);
        let chunk = self.chunks.get(index)?;
        Some((self.ends[index] - chunk.len(), chunk))
    }

    /// Returns an object for each item, those that were handed out last if they are idle. `hand_out` makes another one.
    pub(super) fn lend<'py>(
        &self,
        classes: &KnownClasses,
        py: Python<'py>,
        hand_out: impl Fn(&Prototype) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut objects = Vec::with_capacity(self.len());
        for chunk in &self.chunks {
            chunk.lend(classes, py, &mut objects, &hand_out)?;
        }
        Ok(objects)
    }
}

/// A list that is being made.
#[derive(Default)]
pub(super) struct ListBuilding {
    list: PrototypeList,
    /// Items behind the chunks.
    behind: Vec<Arc<Prototype>>,
}

impl ListBuilding {
    pub(super) fn chunk(&mut self, chunk: &Arc<ListChunk>) {
        self.flush();
        self.push(Arc::clone(chunk));
    }

    pub(super) fn item(&mut self, prototype: Arc<Prototype>) {
        self.behind.push(prototype);
        if self.behind.len() == CHUNK_ITEMS_MAX {
            self.flush();
        }
    }

    pub(super) fn finish(mut self) -> PrototypeList {
        self.flush();
        self.list
    }

    fn push(&mut self, chunk: Arc<ListChunk>) {
        self.list.ends.push(self.list.len() + chunk.len());
        self.list.chunks.push(chunk);
    }

    /// Makes a chunk of the items behind the chunks, together with the last one if both have room in one.
    fn flush(&mut self) {
        if self.behind.is_empty() {
            return;
        }
        let behind = std::mem::take(&mut self.behind);
        let has_room = |last: &mut Arc<ListChunk>| last.len() + behind.len() <= CHUNK_ITEMS_MAX;
        let Some(last) = self.list.chunks.pop_if(has_room) else {
            return self.push(Arc::new(ListChunk::new(behind)));
        };
        self.list.ends.pop();
        let mut prototypes = last.prototypes.to_vec();
        prototypes.extend(behind);
        let lent = last.take_lent().and_then(|lent| lent.extended(prototypes.len()));
        self.push(Arc::new(ListChunk { prototypes: prototypes.into(), lent: Mutex::new(lent) }));
    }
}
