//! The final state of a run, the items that the run added to its lists, and its messages as a message history.
//!
//! Each of these is computed on request. *Absent:* messages of channels that are not lists.

use std::any::Any;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::base::{Namespace, Timestamp};
use crate::channel::List;
use crate::error::Error;
use crate::exec::{Before, Machine};
use crate::graph::Graph;
use crate::history::Thread;
use crate::message::Message;
use crate::state::erased::{field_of, written_items};
use crate::state::{Messages, StateError, StateRef};

use super::load;
use super::outcome::Outcome;
use super::target::{RunOn, RunTarget};

/// The state that a run came to. It reads like the state itself; cheap to clone.
pub struct RunState<S> {
    state: Arc<S>,
    ran: Arc<Ran>,
}

/// The data from which the additions of a run are computed.
pub(super) struct Ran {
    graph: Arc<Graph>,
    thread: Option<Thread>,
    before: Before,
    now: Timestamp,
    /// The seed of the ids that messages without an id are given.
    seed: u64,
    /// The branch that holds the work of the run, if it lost a race.
    branch: Option<String>,
}

impl Ran {
    pub(super) fn of(graph: &Arc<Graph>, target: &RunTarget, machine: &mut Machine) -> Arc<Self> {
        let ((now, seed), before) = (machine.moment(), machine.take_before());
        // An outcome keeps no store open, unless it has to ask it.
        let thread = target.thread.clone().filter(|_| before.repeats.is_some());
        let branch = machine.branch().map(ToOwned::to_owned);
        Arc::new(Self { graph: Arc::clone(graph), thread, before, now, seed, branch })
    }

    /// Returns the list of a field before the run, or before the one that it repeats.
    fn before(&self, field: usize) -> Result<Option<StateRef>, Error> {
        let (Some(thread), Some(last)) = (&self.thread, self.before.repeats) else {
            return Ok(self.before.list(field).cloned());
        };
        let mut at = Some(thread.with_namespace(Namespace::root()).at(last)?);
        let run = at.as_ref().and_then(|at| at.record().run);
        while let Some(made) = at.as_ref().filter(|at| at.record().run == run) {
            at = made.parent()?;
        }
        let target = at.as_ref().map(|at| at.target());
        let Some(RunTarget { thread: Some(thread), at, .. }) = target else { return Ok(None) };
        let head = load::load(&self.graph, &thread, at.as_ref())?.head;
        Ok(self.graph.layout.list(&head.state, field))
    }
}

impl<S> RunState<S> {
    pub(super) fn new(state: Arc<S>, ran: Arc<Ran>) -> Self {
        Self { state, ran }
    }

    pub(super) fn branch(&self) -> Option<&str> {
        self.ran.branch.as_deref()
    }
}

impl<S> Deref for RunState<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.state
    }
}

impl<S> Clone for RunState<S> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state), ran: Arc::clone(&self.ran) }
    }
}

impl<S: fmt::Debug> fmt::Debug for RunState<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}

/// The additions of a run to its lists. A run is one call: if a run continues after an interrupt, a failure or a crash,
/// an item is new if the thread did not hold it when that call began; the thread holds the results of ended tasks. A
/// run that repeats another one with its idempotency key returns the additions of both.
///
/// # Example: two turns on a thread
/// ```
/// use annals_graph::prelude::*;
///
/// #[derive(State, Clone, Default)]
/// struct Chat {
///     #[channel(messages)]
///     messages: Messages,
/// }
///
/// # fn main() -> Result<()> {
/// let graph = StateGraph::<Chat>::new()
///     .node("answer", |_: &Chat| Ok(Chat::update().messages([Message::ai("hello")])))
///     .edge(START, "answer")
///     .compile()?;
/// let thread = Store::memory().thread("alice")?;
/// graph.invoke(&thread, Chat::update().messages([Message::human("hi")]))?;
/// let second = graph.invoke(&thread, Chat::update().messages([Message::human("again")]))?;
///
/// let new = second.new_items::<Message>("messages")?;
/// assert_eq!(new.iter().map(|m| m.text()).collect::<Vec<_>>(), ["again", "hello"]);
/// # Ok(())
/// # }
/// ```
impl<S: Send + Sync + 'static> Outcome<S> {
    /// Returns the items of a list channel that the run added and that are still there, in order. A message that
    /// replaced one with the same id is not new. Takes time linear in the number of new items; linear in the length of
    /// the list where an item without an id was removed.
    ///
    /// # Errors
    /// [`StateError::UnknownChannel`]; [`StateError::NoList`] if the channel is not a list of `T`.
    pub fn new_items<T: PartialEq + Send + Sync + 'static>(&self, channel: &str) -> Result<Vec<Arc<T>>, Error> {
        let expected = std::any::type_name::<T>();
        let lists =
            self.lists::<T>(channel)?.ok_or_else(|| StateError::NoList { channel: channel.into(), expected })?;
        Ok(lists.added().into_iter().filter(|(new, _)| *new).map(|(_, item)| Arc::clone(item)).collect())
    }

    /// Returns the list of a channel before and after the run; `None` if the channel is not a list of `T`.
    ///
    /// # Errors
    /// [`StateError::UnknownChannel`].
    pub fn list_changes<T: PartialEq + Send + Sync + 'static>(
        &self,
        channel: &str,
    ) -> Result<Option<ListChanges<'_, T>>, Error> {
        Ok(self.lists::<T>(channel)?.map(ListChanges))
    }

    /// Returns the time at which the run ended, by the clock of its store.
    pub fn ended_at(&self) -> Timestamp {
        self.reached().ran.now
    }

    /// Returns the seed of the ids that messages without one are given. It is the same in each call.
    pub fn id_seed(&self) -> u64 {
        self.reached().ran.seed
    }

    /// Returns the list of a channel before and after the run; `None` if the channel is not a list of `T`.
    fn lists<T: Send + Sync + 'static>(&self, channel: &str) -> Result<Option<ListPair<'_, T>>, Error> {
        let RunState { state, ran } = self.reached();
        let layout = &*ran.graph.layout;
        let field = field_of(layout, channel)?;
        let list = |list: StateRef| list.downcast::<List<T>>().ok();
        let Some(after) = layout.list(&(Arc::clone(state) as StateRef), field).and_then(list) else { return Ok(None) };
        let before = ran.before(field)?.and_then(list).unwrap_or_default();
        let written = ran.before.writes(field).filter_map(written_items::<T>).flatten().collect();
        Ok(Some(ListPair { before, after, written }))
    }
}

/// The list of a channel before and after a run, with each item marked as new or not.
pub struct ListChanges<'a, T>(ListPair<'a, T>);

impl<T: PartialEq + Any> ListChanges<'_, T> {
    /// Returns the items, oldest first, each with whether the run added it. With `only_new` the list begins at the
    /// first item that may be new; [`ListChanges::skipped`] are those before.
    pub fn marked(&self, only_new: bool) -> impl Iterator<Item = (bool, &T)> {
        self.0.marked(only_new)
    }

    /// Returns the items before those of [`ListChanges::marked`], oldest first.
    pub fn skipped(&self, only_new: bool) -> impl DoubleEndedIterator<Item = &T> + Clone {
        self.0.skipped(only_new)
    }

    /// Returns all items, or those that the run added, oldest first.
    pub fn items(&self, only_new: bool) -> impl Iterator<Item = &T> {
        self.0.chosen(only_new)
    }
}

/// A list before a run and after it.
struct ListPair<'a, T> {
    before: Arc<List<T>>,
    after: Arc<List<T>>,
    /// The items that were written before the run and not applied yet.
    written: Vec<&'a T>,
}

/// Returns the id of a message.
fn id_of<T: Any>(item: &T) -> Option<&str> {
    (item as &dyn Any).downcast_ref::<Message>()?.id.as_deref()
}

impl<T: PartialEq + Any> ListPair<'_, T> {
    /// Returns the items at the positions that the run filled, each with whether it is new: it was not there before, by
    /// its id or, without one, as an equal item that is gone.
    fn added(&self) -> Vec<(bool, &Arc<T>)> {
        let mut messages = (&*self.before as &dyn Any).downcast_ref::<Messages>().cloned();
        let written: BTreeSet<&str> = self.written.iter().filter_map(|item| id_of(*item)).collect();
        let mut others = self.written.clone();
        if messages.is_none() && self.kept() < self.before.len() {
            let gone = self.before.iter_positions().filter(|(position, _)| self.after.at_position(*position).is_none());
            others.extend(gone.map(|(_, item)| &**item));
        }
        let mut is_new = |item: &T| match (&mut messages, id_of(item)) {
            (Some(messages), Some(id)) => messages.find(id).is_none() && !written.contains(id),
            _ => others.iter().position(|other| *other == item).map(|at| others.swap_remove(at)).is_none(),
        };
        self.after.iter_from(self.before.end_position()).map(|(_, item)| (is_new(item), item)).collect()
    }

    /// Returns how many items are at positions that were filled before.
    fn kept(&self) -> usize {
        self.after.len() - self.after.iter_from(self.before.end_position()).len()
    }

    /// Returns the items that come before those of [`ListPair::marked`].
    fn skipped(&self, only_new: bool) -> impl DoubleEndedIterator<Item = &T> + Clone {
        self.after.iter().take(if only_new { self.kept() } else { 0 })
    }

    /// Returns the items, each with whether it is new. With `only_new`, only the items at positions that the run
    /// filled.
    fn marked(&self, only_new: bool) -> impl Iterator<Item = (bool, &T)> {
        let kept = self.after.iter().take(if only_new { 0 } else { self.kept() });
        kept.map(|item| (false, item)).chain(self.added().into_iter().map(|(new, item)| (new, &**item)))
    }

    /// Returns the items, or those that are new.
    fn chosen(&self, only_new: bool) -> impl Iterator<Item = &T> {
        self.marked(only_new).filter(move |(new, _)| *new || !only_new).map(|(_, item)| item)
    }
}
