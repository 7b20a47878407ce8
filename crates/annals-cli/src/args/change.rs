//! The arguments of the verbs that change threads.

use std::path::PathBuf;

use annals::base::RunId;

use super::read::most;
use crate::since::Since;

#[derive(Debug, clap::Args)]
pub(crate) struct CopyArgs {
    /// Id of the thread, and that of the copy, which must not exist; with --to the threads to copy [default: all]
    #[arg(value_name = "THREAD")]
    pub(crate) threads: Vec<String>,
    /// Copy to another store: a file, or postgres://USER@HOST/DATABASE; what is there is not copied again
    #[arg(long, value_name = "STORE")]
    pub(crate) to: Option<PathBuf>,
    /// Print what would be copied, and write nothing
    #[arg(long, requires = "to")]
    pub(crate) dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RmArgs {
    /// Ids of the threads
    #[arg(required = true)]
    pub(crate) threads: Vec<String>,
    /// Delete them now, with their bytes, as annals erase does
    #[arg(long, conflicts_with = "days")]
    pub(crate) now: bool,
    /// Days in the trash, from which annals undo THREAD takes a thread back
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(..=36_500))]
    pub(crate) days: u32,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UpdateArgs {
    /// Id of the thread
    pub(crate) thread: String,
    /// Set a channel that holds one value, or a member of it (plan.city=Thun); VALUE is JSON, or else a text
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
    /// List at most N branches (0: all)
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

impl BranchArgs {
    /// Returns the maximum number of branches.
    pub(crate) fn most(&self) -> usize {
        most(self.limit)
    }
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
#[command(group(clap::ArgGroup::new("policy").required(true).multiple(true).args(["keep_last", "before", "runs"])))]
#[command(group(clap::ArgGroup::new("which").required(true).args(["threads", "all"])))]
pub(crate) struct PruneArgs {
    /// Ids of the threads
    pub(crate) threads: Vec<String>,
    /// Prune all threads, archived ones too
    #[arg(long)]
    pub(crate) all: bool,
    /// Keep the last N checkpoints of each branch
    #[arg(long, value_name = "N")]
    pub(crate) keep_last: Option<u64>,
    /// Keep the checkpoints since: 2h, 1d, yesterday or a timestamp
    #[arg(long, value_name = "TIME")]
    pub(crate) before: Option<Since>,
    /// Keep the checkpoints of all runs but this one; may be repeated
    #[arg(long = "run", value_name = "RUN")]
    pub(crate) runs: Vec<RunId>,
    /// Prune them; without it, print how much would go
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
