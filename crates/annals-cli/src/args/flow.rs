//! The arguments of the verbs about workflow files.

use std::path::PathBuf;
use std::time::Duration;

use super::duration;
use super::read::most;

const RUN_EXAMPLES: &str = "\
Examples:
  annals run checks.toml
  annals run checks.toml --thread monday --input '{\"folder\": \"docs\"}'
  annals run deploy.toml --answer true          resumes its first open interrupt

A run that was killed or failed continues when the same command is repeated. A run that has ended is
shown again; --again starts it anew. The exit code is 0 at the end, 1 if the run waits for --answer,
70 if a node failed. docs/flows.md describes the file.";

#[derive(Debug, clap::Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    /// The workflow, as TOML or JSON; without --store, its store stands beside it as NAME.db
    pub(crate) file: PathBuf,
    /// The thread of the run [default: the name of the workflow]
    #[arg(long, value_name = "ID")]
    pub(crate) thread: Option<String>,
    /// Values of channels for a run that starts: a JSON object, or @FILE
    #[arg(long, value_name = "JSON")]
    pub(crate) input: Option<String>,
    /// The resume value of the first open interrupt: JSON, or any other text
    #[arg(long, value_name = "JSON", conflicts_with = "input")]
    pub(crate) answer: Option<String>,
    /// Start a run that has ended once more, on the state of its thread
    #[arg(long)]
    pub(crate) again: bool,
}

const RERUN_EXAMPLES: &str = "\
Examples:
  annals rerun review~2 review.toml --set model=small
  annals rerun review@{step:3} review.toml --set 'plan.city=Thun' --name review-thun

The run begins with the tasks that are due at the point, on a fork of the thread: their commands run again, with
their effects. annals safe POINT lists them. The original stays as it is. The exit code is that of annals run.";

#[derive(Debug, clap::Args)]
#[command(after_help = RERUN_EXAMPLES)]
pub(crate) struct RerunArgs {
    /// THREAD[@POINT] at which tasks are due
    pub(crate) point: String,
    /// The workflow, as TOML or JSON; without --store, its store stands beside it as NAME.db
    pub(crate) file: PathBuf,
    /// Set a channel that holds one value, or a member of it (plan.city=Thun); VALUE is JSON, or else a text
    #[arg(long, value_name = "CHANNEL=VALUE")]
    pub(crate) set: Vec<String>,
    /// The id of the fork [default: THREAD-rerun]
    #[arg(long, value_name = "ID")]
    pub(crate) name: Option<String>,
}

const LOGS_EXAMPLES: &str = "\
Examples:
  annals logs build                   all commands, the oldest first
  annals logs build compile -n 1      the newest command of a node
  annals logs build outer/inner       a node of a workflow in another one
  annals logs build compile -f        while it runs

Lines of stderr follow those of stdout, after '! '. Of each output the last 64 KiB are stored, of the command of an
item of a list 4 KiB. The exit code is 1 if nothing was printed.";

#[derive(Debug, clap::Args)]
#[command(after_help = LOGS_EXAMPLES)]
pub(crate) struct LogsArgs {
    /// Id of the thread
    pub(crate) thread: String,
    /// Name of the node [default: all nodes]
    pub(crate) node: Option<String>,
    /// Show the newest N commands (0: all)
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    /// Print what commands print while they run, until the run has ended
    #[arg(long, short)]
    pub(crate) follow: bool,
}

impl LogsArgs {
    /// Returns the maximum number of commands.
    pub(crate) fn most(&self) -> usize {
        most(self.limit)
    }
}

/// The formats of a drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum DrawingFormat {
    Mermaid,
    Dot,
    Svg,
    Text,
}

#[derive(Debug, clap::Args)]
pub(crate) struct GraphArgs {
    /// The workflow, as TOML or JSON
    pub(crate) file: PathBuf,
    /// mermaid, dot, svg or text
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = DrawingFormat::Mermaid)]
    pub(crate) format: DrawingFormat,
    /// Unfold N levels of workflows in the workflow
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) depth: usize,
}

const ENQUEUE_EXAMPLES: &str = "\
Examples:
  annals enqueue checks.toml --input '{\"folder\": \"docs\"}'
  annals enqueue checks.toml --key mail-4711        a second call with the key enqueues nothing
  annals enqueue deploy.toml --thread friday --delay 2h --priority 5
  annals enqueue --queue book --argument 17 --store shop.db

With --queue no file is needed: the worker is a program that has a graph of that name. Its input is an
update of channels (--input) or the argument of an entrypoint (--argument).";

#[derive(Debug, clap::Args)]
#[command(after_help = ENQUEUE_EXAMPLES)]
pub(crate) struct EnqueueArgs {
    /// The workflow, as TOML or JSON; without --store, its store stands beside it as NAME.db
    #[arg(required_unless_present = "queue")]
    pub(crate) file: Option<PathBuf>,
    /// The thread of the run, which is new or has ended [default: NAME/KEY with --key, else NAME/ and a new id]
    #[arg(long, value_name = "ID")]
    pub(crate) thread: Option<String>,
    /// Values of channels: a JSON object, or @FILE
    #[arg(long, value_name = "JSON")]
    pub(crate) input: Option<String>,
    /// The run begins after this time: 500ms, 10s or 1h30m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) delay: Option<Duration>,
    /// Of the runs that are due the one with the greatest priority begins first: 0 to 9
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) priority: u8,
    /// Enqueue nothing if a run with this key was enqueued on the thread before
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// The queue of a graph of another program, in place of a file
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    pub(crate) queue: Option<String>,
    /// The argument of an entrypoint, for --queue: JSON, or any other text
    #[arg(long, value_name = "JSON", conflicts_with_all = ["input", "file"])]
    pub(crate) argument: Option<String>,
}

const WORK_EXAMPLES: &str = "\
Examples:
  annals work checks.toml --concurrency 8
  annals work checks.toml deploy.toml --store work.db
  annals work checks.toml --once                    ends when nothing is due

A worker runs what is due on the threads of its workflows: runs that were enqueued, whose sleep has ended,
that got a signal or an answer, or whose process died. Any number of workers may work on one store. Ctrl-C or
SIGTERM ends it when the steps that run have ended; a second one kills their commands, whose nodes have
failed then. The exit code is 1 if a run has failed: annals pending shows it, annals retry makes it due again.";

#[derive(Debug, clap::Args)]
#[command(after_help = WORK_EXAMPLES)]
pub(crate) struct WorkArgs {
    /// The workflows, as TOML or JSON; without --store, the store of a single one stands beside it as NAME.db
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Run N threads at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(crate) concurrency: u16,
    /// End when nothing is due; sleeping runs and those of other workers are not waited for
    #[arg(long)]
    pub(crate) once: bool,
    /// The duration of a lease: after it a run whose process died on another machine is continued
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) lease: Duration,
    /// A run that was continued more than N times without an end has failed
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) max_recoveries: u64,
}
