//! The arguments of the verbs that read histories.

use std::path::PathBuf;

use annals::history::{StatusKind, ThreadQuery};
use annals::store::Store;
use annals::store::search::SearchCursor;

use crate::since::Since;

/// A thread, and the number of rows of a list about it.
#[derive(Debug, clap::Args)]
pub(crate) struct ThreadListArgs {
    /// Id of the thread
    pub(crate) thread: String,
    /// Show at most N rows (0: all)
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

impl ThreadListArgs {
    /// Returns the maximum number of rows.
    pub(crate) fn most(&self) -> usize {
        most(self.limit)
    }
}

/// The number of rows of a list.
#[derive(Debug, clap::Args)]
pub(crate) struct LimitArg {
    /// Show at most N rows (0: all)
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

impl LimitArg {
    /// Returns the maximum number of rows.
    pub(crate) fn most(&self) -> usize {
        most(self.limit)
    }
}

pub(super) fn most(limit: usize) -> usize {
    if limit == 0 { usize::MAX } else { limit }
}

#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    pub(crate) list: ThreadListArgs,
    /// Show each checkpoint on one short line
    #[arg(long)]
    pub(crate) oneline: bool,
    /// Draw the tree of forks; the log of a thread without a filter has it anyway
    #[arg(long)]
    pub(crate) graph: bool,
    /// Show the changed channels of each checkpoint, and its model calls, on lines of their own
    #[arg(long)]
    pub(crate) stat: bool,
    /// Show the changes by which a text appears in the state or disappears from it, on all branches; with --graph or
    /// --stat, below their checkpoints
    #[arg(short = 'S', value_name = "TEXT")]
    pub(crate) text: Option<String>,
    /// Show only checkpoints that this node made
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// Show only checkpoints that changed this channel
    #[arg(long, value_name = "NAME")]
    pub(crate) channel: Option<String>,
    /// Show only checkpoints since: 2h, 1d, yesterday or a timestamp
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Since>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TreeArgs {
    #[command(flatten)]
    pub(crate) list: ThreadListArgs,
    /// Show abandoned branches as well
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunsArgs {
    /// Id of the thread [default: all threads]
    pub(crate) thread: Option<String>,
    /// Only runs with this status
    #[arg(long, value_enum, value_name = "STATUS")]
    pub(crate) status: Option<RunStatusName>,
    /// Only runs of threads of a graph
    #[arg(long, value_name = "NAME")]
    pub(crate) graph: Option<String>,
    /// Only runs that ended, or stored their last checkpoint, since: 2h, 1d, yesterday or a timestamp
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Since>,
    #[command(flatten)]
    pub(crate) list: LimitArg,
}

/// The status of a run, as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RunStatusName {
    Done,
    Running,
    Interrupted,
    Failed,
    Sleeping,
    Cancelled,
    Stuck,
    Continued,
}

impl RunStatusName {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Running => "running",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
            Self::Sleeping => "sleeping",
            Self::Cancelled => "cancelled",
            Self::Stuck => "stuck",
            Self::Continued => "continued",
        }
    }
}

const STATS_COLUMNS: &str = "\
Columns of --by:
  COUNT     tasks by node; items of the present states by channel; else model calls
  BYTES     of the present states by channel; else of all values that checkpoints wrote; none by model, as a call
            does not say which values came of it
  TOKENS    of the model calls; by channel of the messages in the present states
  COST USD  as the model calls state it; none by channel
  SECONDS   of the supersteps that ended, waits included; by node alone of its tasks and calls; none by channel";

#[derive(Debug, clap::Args)]
#[command(after_help = STATS_COLUMNS)]
pub(crate) struct StatsArgs {
    /// Sum the history by this, in place of the sizes of the store; by several but channel: model,day
    #[arg(long, value_enum, value_name = "FIELD", value_delimiter = ',')]
    pub(crate) by: Vec<StatsField>,
    /// Print comma-separated values
    #[arg(long, requires = "by")]
    pub(crate) csv: bool,
    /// JSON list of prices by model and day in place of those of the program: [{"model": "m-1", "from": "2026-03-02",
    /// "input": 3, "output": 15, "cache_read": 0.3}], in US dollars for a million tokens
    #[arg(long, value_name = "FILE", requires = "by")]
    pub(crate) prices: Option<PathBuf>,
    /// Show at most N sums (0: all)
    #[arg(long, short = 'n', value_name = "N", default_value_t = 0, requires = "by")]
    pub(crate) limit: usize,
    /// Count the newest N checkpoints of the log, by channel the heads of their threads (0: all)
    #[arg(long, value_name = "N", default_value_t = 5_000, requires = "by")]
    pub(crate) last: u64,
}

impl StatsArgs {
    /// Returns the maximum number of sums.
    pub(crate) fn most(&self) -> usize {
        most(self.limit)
    }
}

/// The field by which a history is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StatsField {
    Node,
    Model,
    Day,
    Thread,
    Channel,
}

impl StatsField {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Model => "model",
            Self::Day => "day",
            Self::Thread => "thread",
            Self::Channel => "channel",
        }
    }
}

/// A query of threads. Its arguments are a group of this name, which other arguments exclude or require.
#[derive(Debug, clap::Args)]
pub(crate) struct ThreadFilterArgs {
    /// Only threads with this status
    #[arg(long, value_enum, value_name = "STATUS")]
    pub(crate) status: Option<StatusName>,
    /// Only threads of a project
    #[arg(long, value_name = "NAME")]
    pub(crate) project: Option<String>,
    /// Only threads with a label
    #[arg(long, value_name = "NAME")]
    pub(crate) label: Option<String>,
    /// Only threads of a graph
    #[arg(long, value_name = "NAME")]
    pub(crate) graph: Option<String>,
    /// Only threads whose title contains a text
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    /// Only threads that were active since: 2h, 1d, yesterday or a timestamp
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Since>,
    /// The archived threads in place of the others
    #[arg(long)]
    pub(crate) archived: bool,
}

impl ThreadFilterArgs {
    /// Returns the query, without a limit.
    pub(crate) fn query(&self, store: &Store) -> ThreadQuery {
        let mut query = ThreadQuery::new().archived(self.archived);
        query.status = self.status.map(StatusName::kind);
        query.project.clone_from(&self.project);
        query.label.clone_from(&self.label);
        query.graph.clone_from(&self.graph);
        if let Some(text) = &self.title {
            query = query.title_contains(text);
        }
        match self.since {
            Some(since) => query.since(since.at(store.now())),
            None => query,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ThreadsArgs {
    #[command(flatten)]
    pub(crate) filter: ThreadFilterArgs,
    /// Count the checkpoints and branches of each thread, which reads the indexes of all of them
    #[arg(long)]
    pub(crate) count: bool,
    /// Show at most N threads (0: all)
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

/// The status of a thread, as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StatusName {
    Done,
    Running,
    Interrupted,
    Failed,
    Sleeping,
    Cancelled,
    Stuck,
}

impl StatusName {
    pub(crate) fn kind(self) -> StatusKind {
        match self {
            Self::Done => StatusKind::Done,
            Self::Running => StatusKind::Running,
            Self::Interrupted => StatusKind::Interrupted,
            Self::Failed => StatusKind::Failed,
            Self::Sleeping => StatusKind::Sleeping,
            Self::Cancelled => StatusKind::Cancelled,
            Self::Stuck => StatusKind::GivenUp,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// THREAD[@POINT]
    pub(crate) point: String,
    /// Print only this value, in full: CHANNEL, CHANNEL.member[index] or CHANNEL#ID; a text is printed without quotes
    pub(crate) path: Option<String>,
    /// Also list the writes of its tasks
    #[arg(long)]
    pub(crate) writes: bool,
    /// Print only the last N messages
    #[arg(long, value_name = "N", conflicts_with_all = ["path", "writes"])]
    pub(crate) messages: Option<usize>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct DiffArgs {
    /// THREAD[@POINT]
    pub(crate) before: String,
    /// THREAD[@POINT] [default: compare the parent of the first point with that point]
    pub(crate) after: Option<String>,
    /// Print only the number of changes of each channel
    #[arg(long)]
    pub(crate) stat: bool,
    /// Print the messages that were added, edited, removed or moved, one line each
    #[arg(long, conflicts_with = "stat")]
    pub(crate) messages: bool,
    /// Print the JSON Patch (RFC 6902) of the values
    #[arg(long, conflicts_with_all = ["stat", "messages"])]
    pub(crate) patch: bool,
    /// Exit with 1 if there are differences
    #[arg(long)]
    pub(crate) exit_code: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BlameArgs {
    /// THREAD[@POINT]
    pub(crate) point: String,
    /// CHANNEL, CHANNEL.member[index] or CHANNEL#ID [default: all channels]
    pub(crate) path: Option<String>,
    /// Show the last N items of a list (0: all)
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

#[derive(Debug, clap::Args)]
pub(crate) struct EvolutionArgs {
    /// THREAD[@POINT]
    pub(crate) point: String,
    /// CHANNEL, CHANNEL.member[index] or CHANNEL#ID
    pub(crate) path: String,
    /// Show at most N values (0: all)
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SearchArgs {
    /// Words that the text holds, in any case and within words
    #[arg(required = true)]
    pub(crate) text: Vec<String>,
    /// Search only this thread
    #[arg(long, value_name = "THREAD")]
    pub(crate) thread: Option<String>,
    /// Only messages of this role: human, ai, tool or system
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,
    /// Only items that this node wrote
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// Only items of this channel
    #[arg(long, value_name = "NAME")]
    pub(crate) channel: Option<String>,
    /// Only items written since: 2h, 1d, yesterday or a timestamp
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Since>,
    /// Only items of the present state
    #[arg(long)]
    pub(crate) on_head: bool,
    /// Show at most N hits, up to 1,000
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
    /// Go on after the last hit of a search, which printed this
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<SearchCursor>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BisectArgs {
    /// THREAD[@POINT] at which the command fails
    pub(crate) point: String,
    /// THREAD@POINT before it, at which the command succeeds [default: the empty state]
    #[arg(long, value_name = "POINT")]
    pub(crate) good: Option<String>,
    /// Command that gets the state as JSON on stdin: exit code 0 is good, 1 to 124 is bad
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TailArgs {
    /// Id of the thread [default: all threads]
    pub(crate) thread: Option<String>,
    /// Print each new checkpoint as it is committed, by any process
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Show the last N checkpoints first
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10)]
    pub(crate) limit: usize,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SqlArgs {
    /// The query, such as "select thread, count(*) from v_messages group by 1"
    #[arg(required_unless_present_any = ["views", "into"], conflicts_with_all = ["views", "into"])]
    pub(crate) query: Option<String>,
    /// List the views with their columns
    #[arg(long)]
    pub(crate) views: bool,
    /// Write all views as tables of a new SQLite file, for programs such as datasette, DuckDB and pandas
    #[arg(long, value_name = "FILE", conflicts_with_all = ["views", "csv"])]
    pub(crate) into: Option<PathBuf>,
    /// Print comma-separated values
    #[arg(long)]
    pub(crate) csv: bool,
    /// Print at most N rows (0: all)
    #[arg(long, short = 'n', value_name = "N", default_value_t = 0)]
    pub(crate) limit: usize,
}

impl SqlArgs {
    /// Returns the maximum number of rows.
    pub(crate) fn most(&self) -> usize {
        most(self.limit)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Path or URL of the store [default: that of --store]
    #[arg(value_name = "STORE")]
    pub(crate) path: Option<PathBuf>,
    /// Port of the loopback address (0: any free one)
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) port: u16,
    /// Open the link in the browser
    #[arg(long)]
    pub(crate) open: bool,
    /// Show forms that store resume values, control runs and make forks
    #[arg(long)]
    pub(crate) allow_write: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct McpArgs {
    /// Path or URL of the store [default: that of --store]
    #[arg(value_name = "STORE")]
    pub(crate) path: Option<PathBuf>,
    /// Offer tools that append messages and notes, and make forks; nothing stored is changed
    #[arg(long)]
    pub(crate) allow_write: bool,
}
