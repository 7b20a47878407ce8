//! The arguments of the command, and the texts of `--help`.

use std::path::PathBuf;
use std::sync::Arc;

use annals::message::{LangChainFormat, MessageFormat, OpenAiFormat};
use annals::store::{CheckedUpTo, SearchCursor, StoreError};
use annals_import::SourceKind;
use annals_pydantic_ai::PydanticAiFormat;
use clap::{Parser, Subcommand};

use crate::since::Since;

const EXAMPLES: &str = "\
Points:
  THREAD            the head of a thread
  THREAD@1f0c9a     a checkpoint, by any unique beginning of its id
  THREAD~2          two checkpoints before the head; also THREAD@1f0c9a~2
  THREAD@{2h}       the newest one two hours ago; also THREAD@{yesterday}, THREAD@{2026-11-21T09:00:00Z}
  THREAD@{step:12}  the newest one with that step
  A..B              two points, for diff; in THREAD~3..~1 the second is of the same thread
  \"me@home\"~1      an id in quotes, if it holds @, ~ or .. and another thread could be meant

Paths:
  plan              a channel
  plan.stops[2]     a part of its value; also plan/stops/2, a JSON Pointer (RFC 6901)
  messages#ID       an item of a list, by its id; also messages#ID.content

Examples:
  annals demo                          run the research workflow over the project's docs
  annals threads --store notes.db
  annals log trip-42 -n 10
  annals show trip-42~2 plan
  annals diff trip-42~2 trip-42 --stat
  annals blame trip-42 plan.city
  annals log trip-42 -S Gasthof
  annals search gasthof bern --role ai
  annals rewind trip-42~2 && annals undo trip-42
  annals fork trip-42@1f0c9a --name trip-42-by-train
  annals export trip-42 --format openai > chat.json
  annals import chat.json --format openai --name trip-43
  annals sql \"select kind, count(*) from v_messages group by 1\"
  annals tail -f
  annals serve notes.db --open
  annals import ~/.codex/sessions
  annals check --since 1-50-2-80-9-3f1c0a9b7d2e4f60
  annals backup notes-2026-11-23.db

Exit codes:
  0 ok   1 differences, nothing found, or something lost   2 usage   3 not found   4 damaged, or no store
  5 busy or conflict   6 another format   7 refused (needs --yes)   70 internal";

const DEMO_EXAMPLES: &str = "\
Examples:
  annals demo ~/notes --yes
  annals demo --store research.db --kill-after 3     aborts like a crash
  annals demo --store research.db --yes              continues that run";

/// Run, inspect, compare and fork the histories in an annals store
#[derive(Debug, Parser)]
#[command(name = "annals", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Args {
    /// Path of the store
    #[arg(long, global = true, value_name = "FILE", env = "ANNALS_STORE", hide_env_values = true)]
    pub(crate) store: Option<PathBuf>,
    /// File with the key of the store: 32 bytes, or 64 hexadecimal digits
    #[arg(long, global = true, value_name = "FILE", env = "ANNALS_KEY_FILE", hide_env_values = true)]
    pub(crate) key_file: Option<PathBuf>,
    /// Print one JSON document, and errors as JSON on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a durable research workflow over the text files of a folder
    Demo(DemoArgs),
    /// List the threads, the last active first
    #[command(visible_alias = "ls")]
    Threads(ThreadsArgs),
    /// Show the history of a thread as a tree, newest first
    Log(LogArgs),
    /// Show the state at a point
    Show(ShowArgs),
    /// Compare the states at two points
    Diff(DiffArgs),
    /// Show the checkpoint and the node that wrote each channel, each item of a list, or one value
    Blame(BlameArgs),
    /// Show the values that a channel, an item or a part of one had over time
    Evolution(EvolutionArgs),
    /// Find messages and other items by their text, in all threads
    Search(SearchArgs),
    /// Find the first checkpoint on the way to a point at which a command fails
    Bisect(BisectArgs),
    /// Show the newest checkpoints of all threads, and follow the log
    Tail(TailArgs),
    /// Run an SQL query over the views of the store, for reading only
    Sql(SqlArgs),
    /// Show the store in a browser of this machine, and print the link
    Serve(ServeArgs),
    /// Start a new thread from a point, and print its id
    Fork(ForkArgs),
    /// Set channels of a thread and append to lists, in one commit
    Update(UpdateArgs),
    /// Move the head of a thread back to a point; nothing is deleted
    Rewind(RewindArgs),
    /// Undo the newest operation of a thread: a run, an update, or a move of its head
    Undo(ThreadArg),
    /// Make the operation again that was undone last
    Redo(ThreadArg),
    /// List the operations of a thread, newest first
    #[command(visible_alias = "op")]
    Operations(OperationsArgs),
    /// List the branches of a thread, name one, or remove a name
    Branch(BranchArgs),
    /// Move the head of a thread to another branch
    Switch(SwitchArgs),
    /// Show or state the facts of a thread: title, project, labels, pin
    Facts(FactsArgs),
    /// Hide threads from the list; nothing is deleted
    Archive(ArchiveArgs),
    /// Delete threads, with their bytes
    Erase(EraseArgs),
    /// Write the messages at a point in the format of another program
    Export(ExportArgs),
    /// Read the histories of other programs, or start a new thread with messages and print its id
    Import(ImportArgs),
    /// Check the store: verify every row and checksum
    Check(CheckArgs),
    /// Show the sizes of the store and of its write-ahead log
    Stats,
    /// Copy the store to a new file, while other programs use it
    Backup(BackupArgs),
    /// Bring a store of an older format to the format of this version
    Migrate(MigrateArgs),
    /// Return free space of the store to the file system
    Compact,
    /// Write the sound part of a damaged store to a new one, and list the losses
    Recover(RecoverArgs),
    /// Print the completions for a shell
    Completions(CompletionsArgs),
    /// Print the manual page, or write those of all commands to a folder
    Man(ManArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = DEMO_EXAMPLES)]
pub(crate) struct DemoArgs {
    /// Folder with text files [default: the project's docs; with --store, the folder of its run]
    pub(crate) folder: Option<PathBuf>,
    /// Approve the report, and accept a store that holds other threads
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Print the graph of the workflow and exit; with --json as nodes and edges
    #[arg(long, conflicts_with_all = ["folder", "yes", "kill_after", "kill_after_commits"])]
    pub(crate) drawing: bool,
    /// Abort the process once N supersteps of this run are committed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) kill_after: Option<u64>,
    /// Abort the process once N commits of any kind are done, results of single tasks included
    #[arg(long, value_name = "N", hide = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) kill_after_commits: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MigrateArgs {
    /// Retain the older file beside the store, as NAME.format-N
    #[arg(long)]
    pub(crate) retain: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RecoverArgs {
    /// The damaged store; it is not changed
    #[arg(value_name = "IN")]
    pub(crate) from: PathBuf,
    /// The new store; it must not exist
    #[arg(value_name = "OUT")]
    pub(crate) to: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ThreadsArgs {
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
}

impl StatusName {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Running => "running",
            Self::Interrupted => "interrupted",
            Self::Failed => "failed",
            Self::Sleeping => "sleeping",
            Self::Cancelled => "cancelled",
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct LogArgs {
    /// Id of the thread
    pub(crate) thread: String,
    /// Show at most N checkpoints (0: all)
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
    /// Show each checkpoint on one short line
    #[arg(long)]
    pub(crate) oneline: bool,
    /// Show the changes by which a text appears in the state or disappears from it, on all branches
    #[arg(short = 'S', value_name = "TEXT", conflicts_with_all = ["oneline", "node", "channel", "since"])]
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
    pub(crate) query: String,
    /// Print comma-separated values
    #[arg(long)]
    pub(crate) csv: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Path of the store [default: that of --store]
    #[arg(value_name = "STORE")]
    pub(crate) path: Option<PathBuf>,
    /// Port of the loopback address (0: any free one)
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) port: u16,
    /// Open the link in the browser
    #[arg(long)]
    pub(crate) open: bool,
    /// Show forms that store resume values and make forks
    #[arg(long)]
    pub(crate) allow_write: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// bash, elvish, fish, powershell or zsh
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Write a page for each command to this folder
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UpdateArgs {
    /// Id of the thread
    pub(crate) thread: String,
    /// Set a channel that holds one value; VALUE is JSON, or else a text
    #[arg(long, value_name = "CHANNEL=VALUE")]
    pub(crate) set: Vec<String>,
    /// Append an item to a list
    #[arg(long, value_name = "CHANNEL=VALUE")]
    pub(crate) append: Vec<String>,
    /// Append a human message to the channel `messages`
    #[arg(long, value_name = "TEXT")]
    pub(crate) say: Vec<String>,
    /// Write only if this is the head of the thread
    #[arg(long, value_name = "POINT")]
    pub(crate) on_head: Option<String>,
    /// Make the thread if it does not exist
    #[arg(long)]
    pub(crate) create: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RewindArgs {
    /// THREAD@POINT
    pub(crate) point: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ThreadArg {
    /// Id of the thread
    pub(crate) thread: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct OperationsArgs {
    /// Id of the thread
    pub(crate) thread: String,
    /// Show at most N operations (0: all)
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BranchArgs {
    /// Id of the thread
    pub(crate) thread: String,
    /// Name to give to the current branch, or with --at to a point
    pub(crate) name: Option<String>,
    /// Give the name to the branch that begins at this point of the thread
    #[arg(long, value_name = "POINT", requires = "name")]
    pub(crate) at: Option<String>,
    /// Remove the name; its checkpoints stay
    #[arg(long, requires = "name", conflicts_with = "at")]
    pub(crate) remove: bool,
    /// List abandoned branches as well
    #[arg(long)]
    pub(crate) all: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct SwitchArgs {
    /// Id of the thread
    pub(crate) thread: String,
    /// Name of the branch
    pub(crate) branch: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct FactsArgs {
    /// Id of the thread
    pub(crate) thread: String,
    /// State a title; an empty text removes it
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    /// State a project; an empty text removes it
    #[arg(long, value_name = "NAME")]
    pub(crate) project: Option<String>,
    /// Add a label
    #[arg(long, value_name = "NAME")]
    pub(crate) label: Vec<String>,
    /// Remove a label
    #[arg(long, value_name = "NAME")]
    pub(crate) remove_label: Vec<String>,
    /// Pin the thread
    #[arg(long, conflicts_with = "unpin")]
    pub(crate) pin: bool,
    /// Remove the pin
    #[arg(long)]
    pub(crate) unpin: bool,
}

impl FactsArgs {
    /// Returns whether a fact is stated or removed.
    pub(crate) fn is_change(&self) -> bool {
        let labels = self.label.len() + self.remove_label.len();
        self.title.is_some() || self.project.is_some() || labels > 0 || self.pin || self.unpin
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ArchiveArgs {
    /// Ids of the threads
    #[arg(required = true)]
    pub(crate) threads: Vec<String>,
    /// List them again
    #[arg(long)]
    pub(crate) remove: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct EraseArgs {
    /// Ids of the threads
    #[arg(required = true)]
    pub(crate) threads: Vec<String>,
    /// Erase them; without it, print how much would be erased
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ForkArgs {
    /// THREAD[@POINT]
    pub(crate) point: String,
    /// Id of the new thread
    #[arg(long, value_name = "NEW")]
    pub(crate) name: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExportArgs {
    /// THREAD[@POINT]
    #[arg(required_unless_present = "all")]
    pub(crate) point: Option<String>,
    /// All imported threads, as one document; needs --format turns-json
    #[arg(long, conflicts_with_all = ["point", "lines", "channel", "damaged", "out"])]
    pub(crate) all: bool,
    /// Format of each message: langchain, openai or pydantic-ai; with --all: turns-json
    #[arg(long, value_name = "FORMAT", value_parser = export_format, default_value = "langchain")]
    pub(crate) format: ExportFormat,
    /// Write one JSON object per line in place of a JSON list
    #[arg(long)]
    pub(crate) lines: bool,
    /// Channel of the messages [default: the first channel that holds messages]
    #[arg(long, value_name = "NAME")]
    pub(crate) channel: Option<String>,
    /// Write a placeholder for each message that cannot be read, and go on
    #[arg(long)]
    pub(crate) damaged: bool,
    /// Write to a new file and print a report
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ImportArgs {
    /// File or folder with histories of another program; with --name a file (-: stdin) with a JSON list of messages, an
    /// object with such a list as "messages", or JSON objects in sequence
    pub(crate) file: PathBuf,
    /// Program of the histories: codex, claude-code, goose, opencode, zed or chat [default: recognised by the content]
    #[arg(long, value_name = "KIND", conflicts_with = "name")]
    pub(crate) from: Option<SourceKind>,
    /// Id of the new thread for a file of messages
    #[arg(long, value_name = "NEW")]
    pub(crate) name: Option<String>,
    /// Format of each message: langchain, openai or pydantic-ai
    #[arg(long, value_name = "FORMAT", value_parser = message_format, default_value = "langchain", requires = "name")]
    pub(crate) format: Arc<dyn MessageFormat>,
    /// Channel of the messages
    #[arg(long, value_name = "NAME", default_value = "messages", requires = "name")]
    pub(crate) channel: String,
    /// Read one JSON object per line, also if the first line is a list
    #[arg(long, requires = "name")]
    pub(crate) lines: bool,
    /// Skip lines that cannot be read, and report them
    #[arg(long, requires = "name")]
    pub(crate) lenient: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CheckArgs {
    /// Verify the whole file (the default)
    #[arg(long, conflicts_with = "since")]
    pub(crate) deep: bool,
    /// Verify only the rows after a point that an earlier check printed
    #[arg(long, value_name = "POINT", value_parser = check_point)]
    pub(crate) since: Option<CheckedUpTo>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BackupArgs {
    /// Path of the copy, which must not exist
    pub(crate) out: PathBuf,
}

fn check_point(text: &str) -> Result<CheckedUpTo, String> {
    text.parse().map_err(|error: StoreError| error.to_string())
}

/// The format of an export.
#[derive(Clone, Debug)]
pub(crate) enum ExportFormat {
    /// The messages of one thread, each in this format.
    Messages(Arc<dyn MessageFormat>),
    /// All imported threads with their turns and branches.
    Turns,
}

/// Returns the export format with a name.
fn export_format(name: &str) -> Result<ExportFormat, String> {
    match name {
        "turns-json" => Ok(ExportFormat::Turns),
        name => message_format(name).map(ExportFormat::Messages).map_err(|error| format!("{error}, turns-json")),
    }
}

/// Returns the message format with a name.
fn message_format(name: &str) -> Result<Arc<dyn MessageFormat>, String> {
    let formats: [Arc<dyn MessageFormat>; 3] =
        [Arc::new(LangChainFormat), Arc::new(OpenAiFormat), Arc::new(PydanticAiFormat)];
    let known = formats.each_ref().map(|format| format.name()).join(", ");
    let found = formats.into_iter().find(|format| format.name() == name);
    found.ok_or_else(|| format!("unknown message format {name:?}; known formats: {known}"))
}
