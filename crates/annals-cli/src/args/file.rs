//! The arguments of the verbs about the store as a file, of `demo`, and of the pages that are generated.

use std::path::PathBuf;

use annals::store::StoreError;
use annals::store::check::CheckedUpTo;

const DEMO_EXAMPLES: &str = "\
Examples:
  annals demo ~/notes --yes
  annals demo --store research.db --kill-after 3     aborts like a crash
  annals demo --store research.db --yes              continues that run";

#[derive(Debug, clap::Args)]
#[command(after_help = DEMO_EXAMPLES)]
pub(crate) struct DemoArgs {
    /// Folder with text files [default: the project's docs, or texts of its own; with --store, that of its run]
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
pub(crate) struct DoctorArgs {
    /// Put a log aside that does not continue the file, accept that one is missing, and make missing views, indexes and
    /// triggers anew, before the report
    #[arg(long)]
    pub(crate) fix: bool,
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

#[derive(Debug, clap::Args)]
pub(crate) struct RestoreArgs {
    /// The backup; it is not changed
    pub(crate) backup: PathBuf,
    /// The path of the store; a file there gets another name
    pub(crate) file: PathBuf,
}

fn check_point(text: &str) -> Result<CheckedUpTo, String> {
    text.parse().map_err(|error: StoreError| error.to_string())
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
