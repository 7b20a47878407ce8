//! The arguments of the command, and the texts of `--help`.

use std::path::PathBuf;
use std::sync::Arc;

use annals::message::{LangChainFormat, MessageFormat, OpenAiFormat};
use annals::store::{CheckedUpTo, StoreError};
use annals_pydantic_ai::PydanticAiFormat;
use clap::{Parser, Subcommand};

const EXAMPLES: &str = "\
Points:
  THREAD            the head of a thread
  THREAD@1f0c9a     a checkpoint, by any unique beginning of its id
  THREAD~2          two checkpoints before the head; also THREAD@1f0c9a~2
  THREAD@{2h}       the newest one two hours ago; also THREAD@{yesterday}, THREAD@{2026-11-21T09:00:00Z}
  THREAD@{step:12}  the newest one with that step
  A..B              two points, for diff; in THREAD~3..~1 the second is of the same thread
  \"me@home\"~1      an id in quotes, if it holds @, ~ or .. and another thread could be meant

Examples:
  annals demo                          run the research workflow over the project's docs
  annals threads --store notes.db
  annals log trip-42 -n 10
  annals show trip-42~2 plan
  annals diff trip-42~2 trip-42 --stat
  annals fork trip-42@1f0c9a --name trip-42-by-train
  annals export trip-42 --format openai > chat.json
  annals import chat.json --format openai --name trip-43
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
    /// Start a new thread from a point, and print its id
    Fork(ForkArgs),
    /// Write the messages at a point in the format of another program
    Export(ExportArgs),
    /// Start a new thread with the messages of another program, and print its id
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
    /// Show at most N threads (0: all)
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
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
}

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// THREAD[@POINT]
    pub(crate) point: String,
    /// Print only this channel, in full; a text is printed without quotes
    pub(crate) channel: Option<String>,
    /// Also list the writes of its tasks
    #[arg(long)]
    pub(crate) writes: bool,
    /// Print only the last N messages
    #[arg(long, value_name = "N", conflicts_with_all = ["channel", "writes"])]
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
    pub(crate) point: String,
    /// Format of each message: langchain, openai or pydantic-ai
    #[arg(long, value_name = "FORMAT", value_parser = message_format, default_value = "langchain")]
    pub(crate) format: Arc<dyn MessageFormat>,
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
    /// File (-: stdin) with a JSON list of messages, an object with such a list as "messages", or JSON objects in sequence
    pub(crate) file: PathBuf,
    /// Id of the new thread
    #[arg(long, value_name = "NEW")]
    pub(crate) name: String,
    /// Format of each message: langchain, openai or pydantic-ai
    #[arg(long, value_name = "FORMAT", value_parser = message_format, default_value = "langchain")]
    pub(crate) format: Arc<dyn MessageFormat>,
    /// Channel of the messages
    #[arg(long, value_name = "NAME", default_value = "messages")]
    pub(crate) channel: String,
    /// Read one JSON object per line, also if the first line is a list
    #[arg(long)]
    pub(crate) lines: bool,
    /// Skip lines that cannot be read, and report them
    #[arg(long)]
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

/// Returns the message format with a name.
fn message_format(name: &str) -> Result<Arc<dyn MessageFormat>, String> {
    let formats: [Arc<dyn MessageFormat>; 3] =
        [Arc::new(LangChainFormat), Arc::new(OpenAiFormat), Arc::new(PydanticAiFormat)];
    let known = formats.each_ref().map(|format| format.name()).join(", ");
    let found = formats.into_iter().find(|format| format.name() == name);
    found.ok_or_else(|| format!("unknown message format {name:?}; known formats: {known}"))
}
