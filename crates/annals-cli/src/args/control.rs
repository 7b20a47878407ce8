//! The arguments of the verbs that control runs from outside.

use super::read::ThreadFilterArgs;

#[derive(Debug, clap::Args)]
pub(crate) struct SignalArgs {
    /// Id of the thread, which need not exist
    pub(crate) thread: String,
    /// Name of the signal
    pub(crate) name: String,
    /// Value: JSON, or else a text
    #[arg(default_value = "null")]
    pub(crate) value: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AnswerArgs {
    /// Id of the thread
    pub(crate) thread: String,
    /// Resume value: JSON, or else a text
    pub(crate) value: String,
    /// Id of the interrupt, if several are open
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,
}

/// The threads that a verb changes: named ones, or those of a query.
#[derive(Debug, clap::Args)]
pub(crate) struct ChosenThreads {
    /// Ids of the threads; without them, the options below are a query
    #[arg(required_unless_present = "ThreadFilterArgs", conflicts_with = "ThreadFilterArgs")]
    pub(crate) threads: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: ThreadFilterArgs,
    /// Change all threads of a query; without it, list them
    #[arg(long, short)]
    pub(crate) yes: bool,
}

impl ChosenThreads {
    /// Returns whether the threads of a query are listed, and none is changed.
    pub(crate) fn is_dry_run(&self) -> bool {
        self.threads.is_empty() && !self.yes
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    pub(crate) chosen: ChosenThreads,
    /// Reason of the cancel
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,
}

const SAFE_EXAMPLES: &str = "\
Examples:
  annals safe order-17                 may its run go on?
  annals safe order-17~3               what would run again from here?
  annals safe order-17@{step:4} && annals restart order-17@{step:4}

The verdict is one of: safe; answer (an interrupt is open); repeats (tasks that ran after the point, or were cut
short at it, would run again, with their effects); running (a process runs the thread). The exit code is 0 for safe,
else 1. A fork runs what a restart runs, under new task ids.";

#[derive(Debug, clap::Args)]
#[command(after_help = SAFE_EXAMPLES)]
pub(crate) struct SafeArgs {
    /// THREAD[@POINT]
    pub(crate) point: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RestartArgs {
    /// THREAD[@POINT]
    pub(crate) point: String,
    /// Restart the thread from its newest checkpoint with this step, in place of @POINT
    #[arg(long, value_name = "STEP", allow_negative_numbers = true)]
    pub(crate) from: Option<i64>,
}
