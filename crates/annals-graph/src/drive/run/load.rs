//! Getting a head: from the cache if it is still the one in the file, else from the file.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::{CheckpointId, ListRef};
use crate::error::Error;
use crate::exec::{DeltaBase, Head, Loader, RunError};
use crate::graph::Graph;
use crate::history::Thread;
use crate::run::{Loaded, stored_input};
use crate::span::span;
use crate::state::erased::field_of;
use crate::state::{FieldKind, StateRef};
use crate::store::batch::WriteValue;
use crate::store::log::{CachedHead, HeadKey};
use crate::store::record::{ItemRow, StatePart, WriteRecord};
use crate::store::{CheckpointRef, ItemRange, StoreError};
use annals::store::log::LogExt;

use super::host::RunHost;
use super::records::decided;

/// Gets the head of a namespace, or of one of its checkpoints.
pub(super) fn load(graph: &Graph, thread: &Thread, at: Option<&CheckpointRef>) -> Result<Loaded, Error> {
    thread.store().flush_abandoned();
    let backend = thread.store().backend();
    if let Some(wanted) = at {
        let newest = backend.head_id(thread.id(), thread.namespace())?;
        let loaded = load_at(graph, thread, wanted, newest, backend.writes(wanted)?, None)?;
        return Ok(Loaded { lease: backend.lease(thread.id())?, ..loaded });
    }
    match backend.head_with_writes(thread.id(), thread.namespace())? {
        Some(stored) => {
            let newest = stored.checkpoint;
            let loaded = load_at(graph, thread, &thread.point(newest), Some(newest), stored.writes, None)?;
            Ok(Loaded { is_continued: stored.is_continued, lease: stored.lease, ..loaded })
        }
        None => Ok(Loaded { head: Head::empty(graph), newest: None, is_continued: false, lease: None }),
    }
}

/// The head that was loaded before its run begins. A head that no run takes is cached.
#[derive(Clone, Default)]
pub(in crate::drive) struct LoadedHead(Option<Arc<SharedHead>>);

struct SharedHead {
    graph: Arc<Graph>,
    thread: Thread,
    loaded: Mutex<Option<Loaded>>,
}

impl LoadedHead {
    pub(super) fn new(graph: &Arc<Graph>, thread: &Thread, loaded: Loaded) -> Self {
        let (graph, thread) = (Arc::clone(graph), thread.clone());
        Self(Some(Arc::new(SharedHead { graph, thread, loaded: Mutex::new(Some(loaded)) })))
    }

    /// Takes the head; `None` if there is none, or if it was taken.
    pub(super) fn take(&self) -> Option<Loaded> {
        self.0.as_ref()?.loaded.lock().take()
    }
}

impl Drop for SharedHead {
    fn drop(&mut self) {
        // A look at the past does not cost the next turn its head.
        let is_newest = |loaded: &Loaded| loaded.head.checkpoint.map(|checkpoint| checkpoint.id) == loaded.newest;
        if let Some(loaded) = self.loaded.get_mut().take().filter(is_newest) {
            keep(&self.graph, &self.thread, loaded.head);
        }
    }
}

/// Loads the head that a subgraph begins on, which need not be the newest checkpoint of its namespace.
pub(super) fn load_begun(
    graph: &Graph,
    thread: &Thread,
    at: Option<&CheckpointRef>,
    host: &RunHost,
) -> Result<Loaded, Error> {
    thread.store().flush_abandoned();
    if at.is_some_and(|wanted| host.session.lock().hides(graph, wanted)) {
        host.store_held()?;
    }
    let held = host.session.lock().held_newest(thread.id(), thread.namespace());
    let newest = match held {
        Some(newest) => Some(newest),
        None => thread.store().backend().head_id(thread.id(), thread.namespace())?,
    };
    match at {
        Some(wanted) => load_at(graph, thread, wanted, newest, host.writes(thread, wanted)?, Some(host)),
        None => Ok(Loaded { head: Head::empty(graph), newest, is_continued: false, lease: None }),
    }
}

fn load_at(
    graph: &Graph,
    thread: &Thread,
    wanted: &CheckpointRef,
    newest: Option<CheckpointId>,
    writes: Vec<WriteRecord>,
    host: Option<&RunHost>,
) -> Result<Loaded, Error> {
    span!("load", thread = ?thread.id());
    let held = host.and_then(|host| host.session.lock().held_head(graph, wanted));
    let mut head = match held.or_else(|| cached(graph, thread, wanted, newest)) {
        Some(head) => head,
        None => read(graph, thread, wanted)?,
    };
    let writes = with_bases(graph, thread, wanted, writes, Some(&head.state))?;
    head.set_pending(writes);
    Ok(Loaded { head, newest, is_continued: false, lease: None })
}

/// Gets the head that a run left in a namespace, while its commits may still be on their way to the file.
pub(super) fn left_by_run(graph: &Graph, thread: &Thread, left: CheckpointId) -> Option<Loaded> {
    let cached = thread.store().take_head(thread.id(), thread.namespace(), HeadKey::Graph(graph.id))?;
    let head = cached.head.downcast::<Head>().ok().filter(|_| cached.checkpoint == left)?;
    Some(Loaded { head: *head, newest: Some(left), is_continued: false, lease: None })
}

fn cached(graph: &Graph, thread: &Thread, wanted: &CheckpointRef, newest: Option<CheckpointId>) -> Option<Head> {
    let cached = thread.store().take_head(thread.id(), &wanted.namespace, HeadKey::Graph(graph.id))?;
    if cached.checkpoint != wanted.checkpoint {
        // Looking at the past does not cost the next turn its head.
        if Some(cached.checkpoint) == newest {
            thread.store().cache_head(cached);
        }
        return None;
    }
    let head = cached.head.downcast::<Head>().ok().map(|head| *head)?;
    debug_assert_eq!(
        head.checkpoint.map(|checkpoint| checkpoint.id),
        Some(wanted.checkpoint),
        "the head of a checkpoint"
    );
    Some(head)
}

/// Keeps a head for the next run.
pub(super) fn keep(graph: &Graph, thread: &Thread, head: Head) {
    let Some(checkpoint) = head.checkpoint.map(|checkpoint| checkpoint.id) else { return };
    let (at, bytes) = (thread.point(checkpoint), head.bytes);
    thread.store().cache_head(CachedHead::new(at, HeadKey::Graph(graph.id), bytes, Box::new(head)));
}

fn read(graph: &Graph, thread: &Thread, point: &CheckpointRef) -> Result<Head, Error> {
    span!("read_head", thread = ?thread.id(), checkpoint = %point.checkpoint);
    let mut loader = Loader::new(graph);
    let mut failed = None;
    let visited = thread.store().backend().read_state(point, &mut |part| {
        let decoded = match part {
            StatePart::Record(record) => loader.record(&record).map(|()| false),
            StatePart::Channel(channel) => Ok(loader.channel(channel)),
            StatePart::Item(row) => loader.item(row).map(|()| true),
            _ => Ok(false),
        };
        ended_by(&mut failed, decoded)
    });
    unless_failed(failed, visited)?;
    if !point.namespace.is_root() {
        read_references(graph, thread, point, &mut loader)?;
    }
    for (field, of) in loader.input_lists() {
        if let Some(base) = base(graph, thread, point, field, &of, None)? {
            loader.input_list(field, of, &base)?;
        }
    }
    if loader.needs_input() {
        let writes = decided(stored_input(point.clone()), thread)?;
        loader.input(with_bases(graph, thread, point, writes, None)?)?;
    }
    Ok(loader.finish())
}

/// Tells the loader which lists are references to lists of the parent graph.
fn read_references(
    graph: &Graph,
    thread: &Thread,
    point: &CheckpointRef,
    loader: &mut Loader<'_>,
) -> Result<(), Error> {
    for channel in loader.lists() {
        if let Some(of) = thread.store().backend().list_reference(point, &graph.channels[channel as usize])? {
            loader.shares(channel, of);
        }
    }
    Ok(())
}

/// Returns the error that ends a visit of the store. The error itself is noted in `failed`.
fn ended_by<T>(failed: &mut Option<RunError>, visited: Result<T, RunError>) -> Result<T, StoreError> {
    visited.map_err(|error| {
        let reason = error.to_string();
        *failed = Some(error);
        StoreError::Invalid { field: "state", reason }
    })
}

/// Returns the error of a visitor, or the result of the visit.
fn unless_failed(failed: Option<RunError>, visited: Result<(), StoreError>) -> Result<(), Error> {
    match failed {
        Some(error) => Err(error.into()),
        None => Ok(visited?),
    }
}

/// Visits the items of a list. An error of `visit` is returned unchanged.
fn each_item(
    thread: &Thread,
    point: &CheckpointRef,
    channel: &str,
    mut visit: impl FnMut(ItemRow<'_>) -> Result<(), RunError>,
) -> Result<(), Error> {
    let mut failed = None;
    let backend = thread.store().backend();
    let visited = backend.items(point, channel, ItemRange::All, &mut |row| ended_by(&mut failed, visit(row)));
    unless_failed(failed, visited)
}

/// Finds the lists that stored deltas tell of: in the state of their checkpoint, or in the store.
fn with_bases(
    graph: &Graph,
    thread: &Thread,
    at: &CheckpointRef,
    writes: Vec<WriteRecord>,
    state: Option<&StateRef>,
) -> Result<Vec<(WriteRecord, Option<DeltaBase>)>, Error> {
    let with_base = |write: WriteRecord| {
        let base = match (&write.value, field_of(&*graph.layout, &write.channel)) {
            (WriteValue::Delta(delta), Ok(field)) => base(graph, thread, at, field, &delta.of, state)?,
            _ => None,
        };
        Ok((write, base))
    };
    writes.into_iter().map(with_base).collect()
}

fn base(
    graph: &Graph,
    thread: &Thread,
    at: &CheckpointRef,
    field: usize,
    of: &ListRef,
    state: Option<&StateRef>,
) -> Result<Option<DeltaBase>, Error> {
    let layout = &*graph.layout;
    let is_own = of.namespace == at.namespace && of.checkpoint == at.checkpoint && of.channel == *layout.name(field);
    if let (true, Some(state)) = (is_own, state) {
        return Ok(layout.list(state, field).map(|list| DeltaBase { list, is_own }));
    }
    if layout.kind(field) != FieldKind::List {
        return Ok(None);
    }
    let point = CheckpointRef { thread: at.thread.clone(), namespace: of.namespace.clone(), checkpoint: of.checkpoint };
    let (mut read, mut items) = (layout.initial(), layout.load_list(field)?);
    each_item(thread, &point, &of.channel, |row| Ok(items.item(row.position, row.payload)?))?;
    items.finish(&mut read);
    Ok(layout.list(&read, field).map(|list| DeltaBase { list, is_own }))
}
