//! Changing the state of a thread through its graph, without running a node.

use annals::store::log::LogExt;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::base::TaskId;
use crate::error::Error;
use crate::exec::{Copied, EditProblem, Editor, NodeEdit, RunError, as_node};
use crate::graph::{CompiledGraph, END, Graph, IntoOutput, NodeOutput};
use crate::history::{Snapshot, Thread};
use crate::run::{RootStart, parent_heads};
use crate::store::batch::{Change, ChangeValue, Data, ItemChange, ItemOp, Parent};
use crate::store::record::{ChannelRecord, ChannelValue};
use crate::store::{CheckpointRef, ItemRange, StoreError};

use super::attempt::path_here;
use super::begin::{recording, with_graph};
use super::load::{keep, load};
use super::records::decided;
use super::snapshot::shown;
use super::target::RunOn;

/// The author of a state update. Converts from a node's name, or from `None` for [`UpdateAs::Last`]. The names that
/// LangGraph reserves convert to the variants of their meaning (`"__end__"`, `"__input__"`, `"__copy__"`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UpdateAs {
    /// As the node that wrote last; as the input on a thread without checkpoints.
    #[default]
    Last,
    /// As this node: its edges are followed, it is not run. [`START`](crate::graph::START) is the input that was taken.
    Node(String),
    /// As a new input that still has to be taken; the tasks that are due stay due.
    Input,
    /// As the end: takes no change; the stored results of the tasks count, and no task is due any more.
    End,
    /// As a copy of the checkpoint beside it: takes no change, and nothing that the tasks have stored.
    Copy,
}

impl From<&str> for UpdateAs {
    fn from(name: &str) -> Self {
        match name {
            END => Self::End,
            "__input__" => Self::Input,
            "__copy__" => Self::Copy,
            node => Self::Node(node.to_owned()),
        }
    }
}

impl From<&String> for UpdateAs {
    fn from(name: &String) -> Self {
        name.as_str().into()
    }
}

impl From<String> for UpdateAs {
    fn from(name: String) -> Self {
        name.as_str().into()
    }
}

impl From<Option<&str>> for UpdateAs {
    fn from(name: Option<&str>) -> Self {
        name.map(Self::from).unwrap_or_default()
    }
}

/// One update of [`CompiledGraph::bulk_update_state`].
///
/// # Example
/// ```
/// use annals_graph::prelude::*;
/// use annals_graph::{StateUpdate, UpdateAs};
///
/// #[derive(State, Clone, Default)]
/// struct Log { #[channel(append)] lines: List<String> }
///
/// # fn main() -> Result<()> {
/// let graph = StateGraph::<Log>::new()
///     .node("read", |_: &Log| Ok(Log::update().lines(["read".to_string()])))
///     .node("write", |_: &Log| Ok(Log::update().lines(["written".to_string()])))
///     .edge(START, "read")
///     .edge("read", "write")
///     .compile()?;
/// let thread = Store::memory().thread("imported")?;
/// // A run that took place elsewhere, superstep by superstep.
/// graph.bulk_update_state(&thread, [
///     vec![StateUpdate::new(Log::update(), UpdateAs::Input)],
///     vec![StateUpdate::new((), START)],
///     vec![StateUpdate::new(Log::update().lines(["read elsewhere".to_string()]), "read")],
/// ])?;
/// assert_eq!(graph.get_state(&thread)?.next, ["write"]);
/// let done = graph.invoke(&thread, Input::Continue)?;
/// assert_eq!(done.state().lines.to_vec(), ["read elsewhere", "written"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct StateUpdate<S> {
    output: NodeOutput,
    made_as: UpdateAs,
    task: Option<TaskId>,
    on_copy: Vec<StateUpdate<S>>,
    state: PhantomData<fn() -> S>,
}

impl<S> StateUpdate<S> {
    /// Makes an update from the output of a node, and the node.
    pub fn new(update: impl IntoOutput<S>, as_node: impl Into<UpdateAs>) -> Self {
        let (output, made_as) = (NodeOutput::from(update.into_output()), as_node.into());
        Self { output, made_as, task: None, on_copy: Vec::new(), state: PhantomData }
    }

    /// Makes a copy of the checkpoint, with further updates made on the copy, as one superstep.
    pub fn copy_with(updates: impl IntoIterator<Item = StateUpdate<S>>) -> Self {
        let on_copy = updates.into_iter().collect();
        Self { output: NodeOutput::default(), made_as: UpdateAs::Copy, task: None, on_copy, state: PhantomData }
    }

    /// Says which task made the update; else it is the first one of the node that is due. A task that has stored its
    /// writes keeps them.
    pub fn task(mut self, task: TaskId) -> Self {
        self.task = Some(task);
        self
    }
}

impl<S: Clone + Send + Sync + 'static> CompiledGraph<S> {
    /// Changes the state as if a node had made the change, and returns the new checkpoint. The edges of that node are
    /// followed; the node is not run. Nothing stored is changed: at an old checkpoint this opens a branch.
    ///
    /// `as_node` is the author of the update: a node's name, [`UpdateAs`], or `None` for the node that wrote last. An
    /// asynchronous path of its edges is waited for right here.
    ///
    /// A node that routed by a command has no edge that the update could follow: after an update as that node nothing
    /// is due, and a run that continues there ends at once. [`Thread::update`](crate::history::Thread::update) changes
    /// the state and keeps the due tasks, [`Thread::rewind_to`](crate::history::Thread::rewind_to) goes back before
    /// the node.
    ///
    /// # Errors
    /// [`RunError::AmbiguousUpdate`], [`RunError::UnknownNode`], [`RunError::Edit`]; a conflict if the thread moved on
    /// meanwhile; as [`CompiledGraph::get_state`].
    ///
    /// # Example
    /// ```
    /// use annals_graph::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Post { #[channel(last)] text: String }
    ///
    /// # fn main() -> Result<()> {
    /// let graph = StateGraph::<Post>::new()
    ///     .node("write", |_: &Post| Ok(Post::update().text("draft".to_string())))
    ///     .node("publish", |p: &Post| Ok(Post::update().text(format!("{}!", p.text))))
    ///     .edge(START, "write")
    ///     .edge("write", "publish")
    ///     .interrupt_before(["publish"])
    ///     .compile()?;
    /// let thread = Store::memory().thread("post")?;
    /// graph.invoke(&thread, Post::update())?;
    ///
    /// graph.update_state(&thread, Post::update().text("edited".to_string()), "write")?;
    /// assert_eq!(graph.get_state(&thread)?.next, ["publish"]);
    ///
    /// // Nothing shall be published after all.
    /// graph.update_state(&thread, (), END)?;
    /// assert!(graph.get_state(&thread)?.next.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn update_state(
        &self,
        at: impl RunOn,
        update: impl IntoOutput<S>,
        as_node: impl Into<UpdateAs>,
    ) -> Result<Snapshot, Error> {
        self.bulk_update_state(at, [[StateUpdate::new(update, as_node)]])
    }

    /// Makes several supersteps of updates and returns the last checkpoint: all of them, or none. The updates of one
    /// superstep are made on the state before it, applied in the order given, and make one checkpoint.
    ///
    /// # Errors
    /// As [`CompiledGraph::update_state`]; [`EditProblem::NoSupersteps`], [`EditProblem::NoUpdates`],
    /// [`EditProblem::NeedsNode`], [`EditProblem::NotAlone`].
    pub fn bulk_update_state<U>(
        &self,
        at: impl RunOn,
        supersteps: impl IntoIterator<Item = U>,
    ) -> Result<Snapshot, Error>
    where
        U: IntoIterator<Item = StateUpdate<S>>,
    {
        let target = at.target();
        let thread = shown(&self.graph, target.thread.clone().ok_or(RunError::NoThread)?)?;
        let supersteps: Vec<Vec<_>> = supersteps.into_iter().map(|updates| updates.into_iter().collect()).collect();
        let empty = supersteps.iter().position(Vec::is_empty);
        if let Some(problem) = empty.map(|superstep| EditProblem::NoUpdates { superstep }) {
            return Err(RunError::from(problem).into());
        }
        if supersteps.is_empty() {
            return Err(RunError::from(EditProblem::NoSupersteps).into());
        }
        let store = thread.store();
        let loaded = load(&self.graph, &thread, target.at.as_ref())?;
        let from = RootStart::new(target.at.is_some(), false, &loaded);
        let metadata = with_graph(None, &self.graph);
        let mut recording = recording(&thread, from.addressed, loaded.newest, store.mint_run(), metadata);
        match loaded.head.checkpoint {
            Some(base) => {
                let base = store.backend().checkpoint(&thread.point(base.id))?;
                recording.parents = base.map(|base| base.parents).unwrap_or_default();
            }
            None => {
                let heads = parent_heads(thread.id().clone(), thread.namespace().clone());
                recording.parents = decided(heads, &thread)??;
            }
        }
        let mut editor = Editor::new(&self.graph, loaded.head, recording, store.mint_seed(), store.now(), &path_here);
        for updates in supersteps {
            superstep(&self.graph, &thread, &mut editor, updates)?;
        }
        let (mut batch, head) = editor.finish();
        let planned = batch.head_after();
        store.commit_reminting(&mut batch)?;
        if batch.head_after() == planned {
            keep(&self.graph, &thread, head);
        }
        let id = batch.head_after().ok_or(RunError::EmptyInput)?;
        Ok(thread.at(id)?)
    }
}

/// Makes one superstep.
fn superstep<S>(
    graph: &Arc<Graph>,
    thread: &Thread,
    editor: &mut Editor<'_>,
    mut updates: Vec<StateUpdate<S>>,
) -> Result<(), Error> {
    let alone = |as_node| RunError::from(EditProblem::NotAlone { as_node });
    let unexpected = |as_node| RunError::from(EditProblem::Unexpected { as_node });
    let several = updates.len() > 1;
    let special =
        updates.iter().position(|update| matches!(update.made_as, UpdateAs::Input | UpdateAs::End | UpdateAs::Copy));
    let Some(at) = special else { return Ok(nodes(graph, editor, updates)?) };
    let update = updates.swap_remove(at);
    let changes = !update.output.writes.is_empty() || !update.output.commands.is_empty();
    match update.made_as {
        UpdateAs::End if changes => Err(unknown(graph, END).into()),
        UpdateAs::End if several => Err(alone(END).into()),
        UpdateAs::End => Ok(editor.clear()?),
        UpdateAs::Input if several => Err(alone("__input__").into()),
        UpdateAs::Input if !update.output.commands.is_empty() => Err(unexpected("__input__").into()),
        UpdateAs::Input => Ok(editor.input(update.output.writes)?),
        _ if several => Err(alone("__copy__").into()),
        _ if changes => Err(unexpected("__copy__").into()),
        _ => {
            let base = editor.head().checkpoint.ok_or(RunError::Edit(EditProblem::NothingToCopy))?;
            let copied = match editor.last() {
                Some(made) => made,
                None => copied(thread, thread.point(base.id))?,
            };
            editor.copy(copied)?;
            let on_copy = update.on_copy;
            // Updates of one node come together, where its first one stands.
            let first = |of: &StateUpdate<S>| on_copy.iter().position(|other| other.made_as == of.made_as);
            let order: Vec<_> = on_copy.iter().map(first).collect();
            let mut on_copy: Vec<_> = order.into_iter().zip(on_copy).collect();
            on_copy.sort_by_key(|(first, _)| *first);
            let on_copy: Vec<_> = on_copy.into_iter().map(|(_, update)| update).collect();
            if on_copy.is_empty() { Ok(()) } else { superstep(graph, thread, editor, on_copy) }
        }
    }
}

/// Makes a superstep of updates as nodes.
fn nodes<S>(graph: &Graph, editor: &mut Editor<'_>, updates: Vec<StateUpdate<S>>) -> Result<(), RunError> {
    let several = updates.len() > 1;
    let mut edits = Vec::with_capacity(updates.len());
    for update in updates {
        let name = match &update.made_as {
            UpdateAs::Node(name) => Some(name.as_str()),
            _ if several => return Err(EditProblem::NeedsNode.into()),
            _ => None,
        };
        let node = as_node(graph, editor.head(), name)?;
        edits.push(NodeEdit { output: update.output, node, task: update.task });
    }
    editor.nodes(edits)
}

fn unknown(graph: &Graph, node: &str) -> RunError {
    let known = graph.nodes.iter().map(|node| node.name.to_string()).collect();
    RunError::UnknownNode { node: node.to_owned(), known }
}

/// Reads the changes of a checkpoint, so that they can be recorded again on the same parent.
fn copied(thread: &Thread, point: CheckpointRef) -> Result<Copied, Error> {
    let backend = thread.store().backend();
    let state = backend.state(&point)?;
    let base = &state.checkpoint;
    let parent = match (base.parent, &base.forked_from) {
        (Some(parent), _) => Some(Parent::Local(parent)),
        (None, forked_from) => forked_from.clone().map(Parent::Fork),
    };
    let before = match &parent {
        Some(Parent::Local(checkpoint)) => Some(CheckpointRef { checkpoint: *checkpoint, ..point.clone() }),
        Some(Parent::Fork(point)) => Some(point.clone()),
        None => None,
    };
    let mut changes = Vec::new();
    for channel in state.channels.into_iter().filter(|channel| channel.ordinal == base.ordinal) {
        let ChannelRecord { channel, version, value, task, ordinal, .. } = channel;
        let value = match value {
            ChannelValue::Empty => ChangeValue::Empty,
            ChannelValue::Value(payload) => ChangeValue::Value(Data::New(payload)),
            ChannelValue::Items => ChangeValue::Items(items(thread, &point, before.as_ref(), &channel, ordinal)?),
        };
        changes.push(Change::new(channel, version, value).by(task));
    }
    Ok(Copied { parent, changes, seen: state.seen })
}

/// Returns how a checkpoint changed a list: the items it put, and the positions of its parent that it freed.
fn items(
    thread: &Thread,
    point: &CheckpointRef,
    before: Option<&CheckpointRef>,
    channel: &str,
    ordinal: u64,
) -> Result<Vec<ItemChange>, StoreError> {
    let backend = thread.store().backend();
    let mut changes = Vec::new();
    let mut kept = std::collections::HashSet::new();
    backend.items(point, channel, ItemRange::All, &mut |row| {
        if row.ordinal == ordinal {
            let op = ItemOp::Put(Data::New(row.payload.to_payload()));
            changes.push(ItemChange::new(row.position, op, row.task));
        }
        kept.insert(row.position);
        Ok(())
    })?;
    if let Some(before) = before {
        backend.items(before, channel, ItemRange::All, &mut |row| {
            if !kept.contains(&row.position) {
                changes.push(ItemChange::new(row.position, ItemOp::Delete, None));
            }
            Ok(())
        })?;
    }
    Ok(changes)
}
