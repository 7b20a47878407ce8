//! The two drivers under one face: a scenario must leave the same trace under both.
//!
//! Absent: an executor. The asynchronous runs go on the thread that waits for them.

use std::future::poll_fn;
use std::task::Poll;

use annals::prelude::{Input, Outcome, StreamMode};
use annals::{Error, Run, RunOutput, StreamPart, block_on};

/// Which driver runs the graphs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Driver {
    #[default]
    Blocking,
    Async,
}

impl Driver {
    /// Reads a driver from the command line.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "blocking" => Some(Self::Blocking),
            "async" => Some(Self::Async),
            _ => None,
        }
    }

    /// Runs to the end. The tasks of a superstep run one after another, as the traces want it.
    pub(crate) fn output<S>(self, run: Run<'_, S>, input: Input) -> Result<RunOutput, Error>
    where
        S: Clone + Send + Sync + 'static,
    {
        match self {
            Self::Blocking => run.output(input),
            Self::Async => block_on(run.concurrency_max(1).aoutput(input)),
        }
    }

    /// Runs step by step, and returns why the run was asked to stop, if it was.
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
                let mut stream = run.concurrency_max(1).astream(input, modes).await?;
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

/// Lets the driver go on once before the node does.
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
