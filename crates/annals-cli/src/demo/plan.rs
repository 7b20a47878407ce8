//! Chooses the folder, the store and the thread of the demo before anything is written.

use std::path::{Path, PathBuf};

use annals::history::Snapshot;
use annals::store::{OpenOptions, Store};

use super::files::{self, TextFile};
use super::graph::folder_name;
use super::kill::KillAfter;
use crate::args;
use crate::errors::CommandFailure;
use crate::key::NamedStore;
use crate::point::open;

/// The texts for a folder without the project.
const CARRIED: [(&str, &str); 3] = [
    ("checkpoints.md", include_str!("texts/checkpoints.md")),
    ("forks.md", include_str!("texts/forks.md")),
    ("questions.md", include_str!("texts/questions.md")),
];
/// The prefix of the demo's thread ids.
const PREFIX: &str = "research:";

/// The folder, the store and the thread of a demo.
pub(crate) struct Plan {
    /// The folder, absolute.
    pub(crate) folder: String,
    pub(crate) path: PathBuf,
    pub(crate) thread: String,
    /// True if the store holds this run already.
    pub(crate) resumes: bool,
}

impl Plan {
    pub(crate) fn of(args: &args::DemoArgs, store: NamedStore<'_>) -> Result<Self, CommandFailure> {
        let path = store.path;
        let asked = args.folder.as_deref().map(absolute).transpose()?;
        if let Some(path) = path
            && path.try_exists().unwrap_or(false)
            && let Some(plan) = Self::in_store(args, asked.as_deref(), store, path)?
        {
            return Ok(plan);
        }
        let folder = match asked {
            Some(folder) => folder,
            None => default_folder()?,
        };
        texts(&folder)?;
        let path = match path {
            Some(path) => path.to_path_buf(),
            None => fresh_folder()?.join("research.db"),
        };
        Ok(Self { thread: thread_of(&folder), folder, path, resumes: false })
    }

    /// Looks for the run in an existing store; opens it for reading only.
    fn in_store(
        args: &args::DemoArgs,
        asked: Option<&str>,
        store: NamedStore<'_>,
        path: &Path,
    ) -> Result<Option<Self>, CommandFailure> {
        if path.metadata().is_ok_and(|meta| meta.len() == 0) {
            return Ok(None);
        }
        let store = open(store, OpenOptions::new().read_only(true))?;
        let (mut runs, mut others) = (Vec::new(), 0_usize);
        for thread in store.threads()? {
            match run_in(&store, thread.id.as_str())? {
                Some(run) => runs.push(run),
                None if thread.head.forked_from.is_none() => others += 1,
                None => {}
            }
        }
        if others > 0 && runs.is_empty() && !args.yes {
            let message =
                format!("{} holds {others} threads that are not of the demo; nothing was written", path.display());
            return Err(CommandFailure::new(7, "refused", message).hint("name another --store, or add --yes"));
        }
        let thread = asked.map(thread_of);
        let run = match &thread {
            Some(thread) => runs.into_iter().find(|(head, _)| head.point().thread.as_str() == thread),
            None => runs.into_iter().max_by_key(|(head, _)| head.created_at()),
        };
        let Some((head, folder)) = run else { return Ok(None) };
        if let Some(asked) = asked.filter(|asked| *asked != folder) {
            let message = format!("{} is about {folder}, not {asked}; nothing was written", head.point().thread);
            return Err(CommandFailure::new(5, "conflict", message).hint("name another --store"));
        }
        let thread = head.point().thread.as_str().to_owned();
        Ok(Some(Self { folder, path: path.to_path_buf(), thread, resumes: true }))
    }

    /// Opens the store, with the end that was asked for.
    pub(crate) fn open(&self, args: &args::DemoArgs, store: NamedStore<'_>) -> Result<Store, CommandFailure> {
        let options = OpenOptions::new();
        let store = store.at(&self.path).open_with(options.clone())?;
        let farewell = format!("go on with: {}", command(&["demo", "--store", &self.path.to_string_lossy()]));
        let kill = KillAfter { supersteps: args.kill_after, commits: args.kill_after_commits, farewell };
        Ok(kill.guard(store, options))
    }
}

/// Returns the head of a research run and its folder; `None` if the thread is none, or no longer only that.
fn run_in(store: &Store, id: &str) -> Result<Option<(Snapshot, String)>, CommandFailure> {
    if !id.starts_with(PREFIX) {
        return Ok(None);
    }
    let Some(head) = store.thread(id)?.head()? else { return Ok(None) };
    // Before its first superstep the input is not in the state yet, but among the writes of the first checkpoint.
    let folder = match head.get("folder")? {
        Some(folder) => Some(folder),
        None => {
            let writes = head.writes()?;
            let write = writes.iter().find(|write| &*write.channel == "folder");
            write.map(annals::store::record::WriteRecord::to_value).transpose()?
        }
    };
    Ok(folder.and_then(|folder| Some((head, folder.as_str()?.to_owned()))))
}

fn thread_of(folder: &str) -> String {
    format!("{PREFIX}{}", folder_name(folder))
}

fn absolute(folder: &Path) -> Result<String, CommandFailure> {
    let missing = |why: String| CommandFailure::not_found("folder_not_found", format!("{}: {why}", folder.display()));
    let path = folder.canonicalize().map_err(|error| missing(error.to_string()))?;
    if !path.is_dir() {
        return Err(missing("it is not a folder".into()));
    }
    Ok(path.to_string_lossy().into_owned())
}

fn default_folder() -> Result<String, CommandFailure> {
    match files::project_docs() {
        Some(docs) => absolute(&docs),
        None => carried_texts(),
    }
}

/// Writes the texts that the command carries into a new folder.
fn carried_texts() -> Result<String, CommandFailure> {
    let folder = fresh_folder()?.join("texts");
    let write = || -> std::io::Result<()> {
        std::fs::create_dir(&folder)?;
        CARRIED.iter().try_for_each(|(name, text)| std::fs::write(folder.join(name), text))
    };
    match write() {
        Ok(()) => absolute(&folder),
        Err(error) => Err(CommandFailure::from(error).hint("name a folder with text files: annals demo FOLDER")),
    }
}

/// Returns the text files of a folder, of which there must be some.
fn texts(folder: &str) -> Result<Vec<TextFile>, CommandFailure> {
    let found = files::list(Path::new(folder))
        .map_err(|error| CommandFailure::not_found("folder_not_found", format!("{folder}: {error}")))?;
    if found.is_empty() {
        let message = format!("{folder} holds no text files (.md .txt .rst .org .adoc); nothing was written");
        return Err(CommandFailure::not_found("no_text_files", message).hint("name another folder"));
    }
    Ok(found)
}

/// Makes a folder for a store without a name. It is not removed, so that the run can be inspected.
fn fresh_folder() -> Result<PathBuf, CommandFailure> {
    Ok(tempfile::Builder::new().prefix("annals-demo-").tempdir()?.keep())
}

/// Returns a command line that can be pasted into a shell, with the name this program was called by.
pub(crate) fn command(arguments: &[&str]) -> String {
    let called = std::env::args().next().filter(|name| name.contains('/'));
    let called = called.unwrap_or_else(|| "annals".into());
    let plain = |c: char| c.is_alphanumeric() || "-_./:@~+=,".contains(c);
    let quoted = |text: &str| match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    };
    std::iter::once(called.as_str()).chain(arguments.iter().copied()).map(quoted).collect::<Vec<_>>().join(" ")
}
