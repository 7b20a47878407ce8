//! The part of a driver that the nodes of its run can reach.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use parking_lot::Mutex;

use crate::base::{Clock, Namespace, SystemClock, Timestamp};
use crate::exec::{Event, EventKind, EventMask};
use crate::history::Thread;
use crate::run::Session;
use crate::store::CommitHandle;
use crate::task::{Call, Called, Context, Host, LivePart, MessagePart};

use super::feed::{Fact, Feed};
use super::run::Durability;
use super::timer::{ParkTimer, Timer};

/// The driver of a run, shared with all runs inside it.
pub(super) struct RunHost {
    /// The thread on which the run is recorded.
    pub(super) thread: Option<Thread>,
    pub(super) metadata: Option<String>,
    pub(super) durability: Durability,
    pub(super) recursion_limit: u64,
    /// The maximum number of tasks that run at the same time.
    pub(super) concurrency_max: usize,
    /// The number of called tasks that run beside their callers.
    pub(super) calling: AtomicUsize,
    /// True if its outermost driver polls, so that asynchronous tasks that are called need no thread.
    pub(super) polls: AtomicBool,
    /// True if called tasks run on the thread of their caller, when they are called.
    pub(super) inline: bool,
    pub(super) wants: EventMask,
    /// The queue that the outermost driver reads.
    pub(super) feed: Arc<Feed>,
    /// The timer, if the caller or the executor has one.
    pub(super) timer: Option<Arc<dyn Timer>>,
    /// The handles of commits of subgraphs that have not been awaited yet.
    pub(super) tickets: Mutex<Vec<CommitHandle>>,
    /// The state that all graphs of the run share.
    pub(super) session: Mutex<Session>,
}

impl RunHost {
    /// Returns whether reading a head may wait for a disk.
    pub(super) fn waits(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| thread.store().backend().waits())
    }

    /// Returns what waits for a moment on this thread, if anything does.
    pub(super) fn timer(&self) -> Option<Arc<dyn Timer>> {
        self.timer.clone().or_else(ParkTimer::here)
    }

    /// Shows an event of a run inside this one, if that is wanted.
    pub(super) fn forward(&self, event: Event) {
        if self.shows(&event.namespace) && self.wants.wants(&event.kind) {
            self.feed.push(Fact::Shown(event));
        }
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
        self.feed.push(Fact::Shown(event));
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
