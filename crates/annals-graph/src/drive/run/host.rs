//! The part of a driver that the nodes of its run can reach.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use parking_lot::Mutex;

use annals_runs::SpecialWrite;

use crate::base::{Clock, Encoded, Map, Namespace, SystemClock, Timestamp, Value};
use crate::drive::io::feed::{Feed, Notice};
use crate::drive::io::timer::{ParkTimer, Timer};
use crate::error::Error;
use crate::exec::{Event, EventKind, EventMask};
use crate::graph::NodeResult;
use crate::history::{OnConflict, PartialMessage, Thread};
use crate::message::Message;
use crate::run::Session;
use crate::store::StoreError;
use crate::store::batch::{Batch, NewWrite, NewWrites, WriteValue};
use crate::store::log::CommitChain;
use crate::task::{Call, Called, Context, Host, LivePart, MessagePart};

use super::builder::Durability;
use super::commits::RunCommits;
use super::events::RunEvents;

/// The driver of a run, shared with all runs inside it.
pub(in crate::drive) struct RunHost {
    /// The thread on which the run is recorded.
    pub(in crate::drive) thread: Option<Thread>,
    pub(super) metadata: Option<String>,
    pub(super) durability: Durability,
    pub(super) recursion_limit: u64,
    /// The maximum number of tasks that run at the same time.
    pub(in crate::drive) concurrency_max: usize,
    /// The number of called tasks that run beside their callers.
    pub(super) calling: AtomicUsize,
    /// True if its outermost driver polls, so that asynchronous tasks that are called need no thread.
    pub(in crate::drive) polls: AtomicBool,
    /// True if called tasks run on the thread of their caller, when they are called.
    pub(super) inline: bool,
    pub(in crate::drive) wants: EventMask,
    /// The queue that the outermost driver reads.
    pub(in crate::drive) feed: Arc<Feed>,
    /// The interval at which messages that are streamed are persisted.
    pub(super) message_interval: Option<Duration>,
    /// The reporter of the run, if something listens.
    pub(super) events: Option<Arc<RunEvents>>,
    /// The result of a race that the run loses.
    pub(super) on_conflict: OnConflict,
    /// The timer, if the caller or the executor has one.
    pub(super) timer: Option<Arc<dyn Timer>>,
    /// The commits of the run that the store has.
    pub(super) commits: Mutex<RunCommits>,
    /// The state that all graphs of the run share.
    pub(in crate::drive) session: Mutex<Session>,
}

impl RunHost {
    /// Lets the commits of the run wait for locks of other programs, which the reporter of the run is told.
    pub(super) fn wait_for_locks(&self) {
        let events = self.events.clone();
        self.session.lock().set_chain(CommitChain::begin_with_lock_wait(move |busy| {
            if let (Some(events), StoreError::Busy { waited_ms, holder }) = (&events, busy) {
                events.report_lock_wait(*waited_ms, *holder);
            }
        }));
    }

    /// Returns whether the next commit is awaited before a task starts: each with [`Durability::Sync`], and the one
    /// with the input of a run with an idempotency key or a lease.
    pub(in crate::drive) fn awaits_commit(&self) -> bool {
        self.is_sync() || std::mem::take(&mut self.commits.lock().awaits_input)
    }

    /// Returns whether each commit is awaited: one whose work is retained on a conflict must know its outcome.
    pub(super) fn is_sync(&self) -> bool {
        self.durability == Durability::Sync || self.on_conflict == OnConflict::Branch
    }

    /// Returns whether a superstep that is refused is retained as a branch. It is not after an earlier refusal of the
    /// run: a task may have returned a value that it derived from that error.
    pub(in crate::drive) fn retains(&self) -> bool {
        self.on_conflict == OnConflict::Branch && self.verify_commits().is_ok()
    }

    /// Stores the batch of a superstep that was refused as a branch. Returns the name of the branch.
    ///
    /// # Errors
    /// `refused`, unless it is a conflict and the batch a whole superstep of the outermost graph; else that of the
    /// commit.
    pub(super) fn branch_off(&self, batch: &Batch, refused: StoreError) -> Result<String, Error> {
        let is_lost = matches!(refused, StoreError::Conflict { .. });
        let is_whole = !batch.checkpoints.is_empty() && batch.namespace.is_root() && batch.then.is_empty();
        let Some(thread) = self.thread.as_ref().filter(|_| is_lost && is_whole) else { return Err(refused.into()) };
        let stored = thread.commit_branch(batch)?;
        self.session.lock().restart_commits();
        Ok(stored.name)
    }

    /// Verifies that all commits of the run so far are stored or pending: a task of a run that lost a race does not
    /// start.
    ///
    /// # Errors
    /// That of the first commit that was refused.
    pub(in crate::drive) fn verify_commits(&self) -> Result<(), Error> {
        let failure = self.session.lock().failure();
        failure.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Waits until all submitted commits of the run are stored. A caller that `blocks` may write them itself.
    ///
    /// # Errors
    /// That of the first commit that was refused.
    pub(super) async fn wait_for_submitted(&self, blocks: bool) -> Result<(), Error> {
        let last = self.commits.lock().unsettled();
        match (last, &self.thread) {
            (Some(last), Some(thread)) if blocks => {
                thread.store().backend().flush();
                // The outcome is left to the end of the run.
                last.wait_until_settled();
            }
            (Some(last), _) => last.await?,
            (None, _) => {}
        }
        self.verify_commits()
    }

    /// Returns the timer of the run, else that of this thread, if there is one.
    pub(in crate::drive) fn timer(&self) -> Option<Arc<dyn Timer>> {
        self.timer.clone().or_else(ParkTimer::here)
    }

    /// Shows an event of a run inside this one, if that is wanted.
    pub(super) fn forward(&self, event: Event) {
        if self.shows(&event.namespace) && self.wants.wants(&event.kind) {
            self.feed.push(Notice::Shown(event));
        }
    }

    /// Returns the batch with a special write of a running task; `None` in a run that stores at its end, and after the
    /// end of the task. The batch stands outside the run's chain of commits, which a refusal of the batch must not end.
    fn beside_result(&self, context: &Context, write: impl FnOnce() -> Option<NewWrite>) -> Option<Batch> {
        let checkpoint = context.checkpoint()?;
        if self.durability == Durability::Exit || context.life().is_over() {
            return None;
        }
        let path = context.calls().path.text(context.node());
        let writes = NewWrites::new(checkpoint, context.task(), path).with(vec![write()?]);
        let batch = self.writes_of(context, writes)?;
        Some(self.session.lock().leased(batch, false))
    }

    pub(super) fn shows(&self, namespace: &Namespace) -> bool {
        self.wants.subgraphs || namespace.is_root()
    }
}

impl Host for RunHost {
    fn emit(&self, context: &Context, part: LivePart) {
        if context.life().is_over() {
            return;
        }
        context.progress();
        let event = match part {
            // An event of a called task belongs to its caller's graph, under the name of its caller.
            LivePart::Custom(value) if self.wants.custom && self.shows(context.graph_namespace()) => {
                Event { namespace: context.parts().namespace.clone(), kind: EventKind::Custom(value) }
            }
            LivePart::Message { message, once, tags } if self.shows_messages(context) => {
                let part = MessagePart {
                    message: *message,
                    task: context.task_info(),
                    tags,
                    thread: context.thread().cloned(),
                    is_live: true,
                    once,
                    run_metadata: self.metadata.clone(),
                };
                Event { namespace: context.message_namespace().clone(), kind: EventKind::Message(Box::new(part)) }
            }
            _ => return,
        };
        self.feed.push(Notice::Shown(event));
    }

    fn shows_messages(&self, context: &Context) -> bool {
        self.wants.messages && self.shows(context.message_namespace())
    }

    fn now(&self) -> Timestamp {
        self.thread.as_ref().map_or_else(|| SystemClock.now(), |thread| thread.store().now())
    }

    fn run_metadata(&self) -> Option<String> {
        self.metadata.clone()
    }

    fn message_interval(&self) -> Option<Duration> {
        self.message_interval
    }

    fn persist_message(&self, context: &Context, channel: &str, message: Message, started: Timestamp) -> bool {
        let Some(thread) = &self.thread else { return false };
        let mut commits = self.commits.lock();
        if commits.persists_message(context.task()) {
            return false;
        }
        let write = || PartialMessage::new(channel, message, started, thread.store().now()).to_write().ok();
        let Some(batch) = self.beside_result(context, write) else { return false };
        commits.persist_message(context.task(), thread.store(), batch);
        true
    }

    fn store_output(&self, context: &Context, output: &Value) -> bool {
        let Some(thread) = &self.thread else { return false };
        let write = || Some(SpecialWrite::Output.write(WriteValue::One(Encoded::encode(output).ok()?.into())));
        let Some(batch) = self.beside_result(context, write) else { return false };
        // The end of the task is submitted later: when it is stored, so is this.
        drop(thread.store().submit(batch));
        true
    }

    fn store_versions(&self, context: &Context, versions: Map) -> NodeResult<()> {
        Ok(self.note_versions(context, versions)?)
    }

    fn start(self: Arc<Self>, context: &Context, call: Call) -> Option<Arc<dyn Called>> {
        Some(super::call::start(self, context, call))
    }

    fn elapsed(&self) -> Duration {
        self.thread.as_ref().map_or_else(|| SystemClock.elapsed(), |thread| thread.store().elapsed())
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
