//! The arguments of the command, and the texts of `--help`.

mod change;
mod control;
mod file;
mod flow;
mod read;
mod transfer;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::output::DocumentFormat;
use crate::since::Since;

pub(crate) use change::{
    ArchiveArgs, BranchArgs, CopyArgs, EraseArgs, FactsArgs, ForkArgs, PruneArgs, RewindArgs, RmArgs, SwitchArgs,
    ThreadArg, UpdateArgs,
};
pub(crate) use control::{AnswerArgs, CancelArgs, ChosenThreads, RestartArgs, SafeArgs, SignalArgs};
pub(crate) use file::{
    BackupArgs, CheckArgs, CompletionsArgs, DemoArgs, DoctorArgs, ManArgs, RecoverArgs, RestoreArgs,
};
pub(crate) use flow::{DrawingFormat, EnqueueArgs, GraphArgs, LogsArgs, RerunArgs, RunArgs, WorkArgs};
pub(crate) use read::{
    BisectArgs, BlameArgs, DiffArgs, EvolutionArgs, LimitArg, LogArgs, McpArgs, RunsArgs, SearchArgs, ServeArgs,
    ShowArgs, SqlArgs, StatsArgs, StatsField, TailArgs, ThreadListArgs, ThreadsArgs, TreeArgs,
};
pub(crate) use transfer::{ExportArgs, ExportFormat, ImportArgs, ImportSource, LangGraphForm, TranscriptFormat};

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
  annals run checks.toml && annals graph checks.toml
  annals enqueue checks.toml && annals work checks.toml
  annals logs checks build -f
  annals rerun checks~2 checks.toml --set model=small
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
  annals tree trip-42 && annals steps trip-42
  annals pending && annals stats --by model
  annals signal order-17 review true && annals cancel order-18 --reason late
  annals retry --status failed --graph order --yes
  annals restart order-17 --from 3
  annals export trip-42 --format html --out trip.html
  annals export --all --site pages
  annals tail -f
  annals serve notes.db --open
  claude mcp add annals -- annals mcp --store ~/notes.db
  annals import ~/.codex/sessions
  annals check --since 1-50-2-80-9-3f1c0a9b7d2e4f60
  annals backup notes-2026-11-23.db
  annals copy --to postgres://app@db.example/annals

Exit codes:
  0 ok   1 differences, nothing found, something lost, or a run that waits   2 usage   3 not found   4 damaged, or no store
  5 busy, conflict, or over --timeout   6 another format   7 refused (needs --yes)   70 internal   130 Ctrl-C";

/// The heading of the options that every command has.
const GLOBAL: &str = "Options of every command";

/// Run, inspect, compare and fork the histories in an annals store
#[derive(Debug, Parser)]
#[command(name = "annals", version, after_help = EXAMPLES, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Args {
    /// Path of the store, or postgres://USER@HOST/DATABASE
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILE", env = "ANNALS_STORE", hide_env_values = true)]
    pub(crate) store: Option<PathBuf>,
    /// File with the key of the store: 32 bytes, or 64 hexadecimal digits
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILE", env = "ANNALS_KEY_FILE", hide_env_values = true)]
    pub(crate) key_file: Option<PathBuf>,
    /// Print one JSON document, and errors as JSON on stderr
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) json: bool,
    /// Print each item of the JSON document on a line of its own
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) jsonl: bool,
    /// Colours: auto (on a terminal, unless NO_COLOR is set; always with CLICOLOR_FORCE), always or never
    #[arg(long, global = true, help_heading = GLOBAL, value_enum, value_name = "WHEN", default_value_t = ColourChoice::Auto)]
    pub(crate) color: ColourChoice,
    /// Print no notes on stderr, only errors
    #[arg(long, short, global = true, help_heading = GLOBAL)]
    pub(crate) quiet: bool,
    /// Say on stderr how long the command took
    #[arg(long, short, global = true, help_heading = GLOBAL)]
    pub(crate) verbose: bool,
    /// End the command after this time with exit code 5: 500ms, 10s or 1h30m
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "TIME", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Never ask; fail where an answer would be needed
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) no_input: bool,
    /// Print long output of log, show and diff to a terminal at once, without PAGER
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) no_pager: bool,
    #[command(subcommand)]
    pub(crate) command: Verb,
}

impl Args {
    /// Returns the format of the output.
    pub(crate) fn format(&self) -> DocumentFormat {
        match (self.json, self.jsonl) {
            (_, true) => DocumentFormat::JsonLines,
            (true, false) => DocumentFormat::Json,
            (false, false) => DocumentFormat::Text,
        }
    }
}

/// Reads a duration that is not zero.
fn duration(text: &str) -> Result<Duration, String> {
    const FORMS: &str = "expected a duration such as 500ms, 10s or 1h30m";
    let duration = match text.strip_suffix("ms") {
        Some(digits) => digits.parse().ok().map(Duration::from_millis),
        None => match text.parse() {
            Ok(Since::Ago(micros)) => u64::try_from(micros).ok().map(Duration::from_micros),
            _ => None,
        },
    };
    duration.filter(|duration| !duration.is_zero()).ok_or_else(|| FORMS.to_owned())
}

/// The use of colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColourChoice {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a durable research workflow over the text files of a folder
    Demo(DemoArgs),
    /// Run the workflow of a file, or continue it where it stopped
    Run(RunArgs),
    /// Put a run of the workflow of a file into its queue, for a worker
    Enqueue(EnqueueArgs),
    /// Run what is due of the workflows of files, until it is ended: a worker
    Work(WorkArgs),
    /// Run the workflow of a file once more from a point, with changes, beside the original
    Rerun(RerunArgs),
    /// Show what the commands of a workflow have printed, also while they run
    Logs(LogsArgs),
    /// Draw the workflow of a file: Mermaid, DOT, SVG, or lines of text
    Graph(GraphArgs),
    /// List the threads, the last active first
    #[command(visible_alias = "ls")]
    Threads(ThreadsArgs),
    /// Show the history of a thread as a tree, newest first
    Log(LogArgs),
    /// Show the branches of a thread, the threads forked from it, and those that its agent started
    Tree(TreeArgs),
    /// List the tasks of a thread: state, times, error
    Steps(ThreadListArgs),
    /// List the runs: status, times
    Runs(RunsArgs),
    /// List what waits: interrupts with their questions, timers, failures
    Pending(LimitArg),
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
    /// Let agents search and read the store: a server of the Model Context Protocol on stdin and stdout
    Mcp(McpArgs),
    /// Start a new thread from a point, and print its id
    Fork(ForkArgs),
    /// Copy a thread with its history, its branches and its facts, or with --to threads to another store
    Copy(CopyArgs),
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
    Operations(ThreadListArgs),
    /// List the branches of a thread, name one, or remove a name
    Branch(BranchArgs),
    /// Move the head of a thread to another branch
    Switch(SwitchArgs),
    /// Show or state the facts of a thread: title, project, labels, pin
    Facts(FactsArgs),
    /// Hide threads from the list; nothing is deleted
    Archive(ArchiveArgs),
    /// Move threads to the trash, or delete them with --now
    Rm(RmArgs),
    /// Delete threads, with their bytes
    Erase(EraseArgs),
    /// Prune old checkpoints; the kept ones show what they showed before
    Prune(PruneArgs),
    /// Send a signal to a thread, whose run receives it
    Signal(SignalArgs),
    /// Give an open interrupt of a thread its resume value
    Answer(AnswerArgs),
    /// Cancel threads: their runs end, and no worker continues them
    Cancel(CancelArgs),
    /// Pause threads: workers pass them over
    Pause(ChosenThreads),
    /// End the pause of threads
    Resume(ChosenThreads),
    /// Make the failed tasks of threads due again
    Retry(ChosenThreads),
    /// Continue a thread from an older checkpoint, whose tasks run anew; nothing is deleted
    Restart(RestartArgs),
    /// Say whether a point may be resumed or forked: what would run, what would run again, and what waits
    Safe(SafeArgs),
    /// Write the messages at a point in the format of another program
    Export(ExportArgs),
    /// Read the histories of other programs, or start a new thread with messages and print its id
    Import(ImportArgs),
    /// Check the store: verify every row and checksum
    Check(CheckArgs),
    /// Show the sizes of the store, or sums of its history by node, model, day, thread or channel
    Stats(StatsArgs),
    /// Show versions, sizes, modes and a check of the store, as an issue needs them; no content
    Doctor(DoctorArgs),
    /// Copy the store to a new file, while other programs use it
    Backup(BackupArgs),
    /// Put a verified copy of a backup at the path of a store, and the old file aside
    Restore(RestoreArgs),
    /// Return free space of the store to the file system
    Compact,
    /// Write the sound part of a damaged store to a new one, and list the losses
    Recover(RecoverArgs),
    /// Print the completions for a shell
    Completions(CompletionsArgs),
    /// Print the manual page, or write those of all commands to a folder
    Man(ManArgs),
}
