//! The two drivers behind one interface: a scenario must leave the same trace under both.
//!
//! Absent: an executor. The asynchronous runs use the thread that waits for them.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Context as Waiting, Poll, Waker};

use annals_graph::prelude::{Input, Outcome, StreamMode};
use annals_graph::{Error, Run, RunOutput, StreamPart, block_on};

/// The driver that runs the graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DriverKind {
    #[default]
    Blocking,
    Async,
}

impl DriverKind {
    /// Reads a driver from the command line.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "blocking" => Some(Self::Blocking),
            "async" => Some(Self::Async),
            _ => None,
        }
    }

    /// Sets up a run of a graph. The tasks of a superstep run one after another, as in the traces. An entrypoint is
    /// one task, and the tasks that it starts run concurrently with it.
    pub(crate) fn prepared<S>(self, run: Run<'_, S>, is_entry: bool) -> Run<'_, S>
    where
        S: Clone + Send + Sync + 'static,
    {
        match self {
            Self::Async if !is_entry => run.concurrency_max(1),
            _ => run,
        }
    }

    /// Runs to the end.
    pub(crate) fn output<S>(self, run: Run<'_, S>, input: Input) -> Result<RunOutput, Error>
    where
        S: Clone + Send + Sync + 'static,
    {
        match self {
            Self::Blocking => run.output(input),
            Self::Async => block_on(self.output_inside(run, input)),
        }
    }

    /// Runs to the end inside a program.
    pub(crate) async fn output_inside<S>(self, run: Run<'_, S>, input: Input) -> Result<RunOutput, Error>
    where
        S: Clone + Send + Sync + 'static,
    {
        match self {
            Self::Blocking => run.output(input),
            Self::Async => run.aoutput(input).await,
        }
    }

    /// Runs superstep by superstep, and returns the reason of a drain.
    pub(crate) fn watch<S>(
        self,
        run: Run<'_, S>,
        input: Input,
        modes: &[StreamMode],
        mut each: impl FnMut(Result<StreamPart<S>, Error>),
    ) -> Result<Option<String>, Error>
    where
        S: Clone + Send + Sync + 'static,
    {
        match self {
            Self::Blocking => {
                let mut stream = run.stream(input, modes)?;
                (&mut stream).for_each(each);
                Ok(drained(stream.outcome()))
            }
            Self::Async => block_on(async {
                let mut stream = run.astream(input, modes).await?;
                while let Some(part) = stream.next().await {
                    each(part);
                }
                Ok(drained(stream.outcome()))
            }),
        }
    }
}

fn drained<S>(outcome: Option<&Outcome<S>>) -> Option<String> {
    match outcome {
        Some(Outcome::Drained { reason, .. }) => Some(reason.clone()),
        _ => None,
    }
}

/// Runs a program under the blocking driver: it never returns a pending future.
pub(crate) fn at_once<T>(program: impl Future<Output = T>) -> T {
    match pin!(program).poll(&mut Waiting::from_waker(Waker::noop())) {
        Poll::Ready(ended) => ended,
        Poll::Pending => unreachable!("a program on a thread blocks where it waits"),
    }
}

/// Yields to the driver once.
pub(crate) async fn give_way() {
    let mut gave_way = false;
    poll_fn(|waiting| {
        if std::mem::replace(&mut gave_way, true) {
            return Poll::Ready(());
        }
        waiting.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
