//! Opens the store, and resolves points.

use std::path::Path;

use annals::base::ThreadId;
use annals::history::{Snapshot, Thread, ThreadQuery};
use annals::store::{OpenOptions, Store, StoreError};

use crate::errors::CommandFailure;
use crate::key::NamedStore;
use crate::output::{escape, note};
use crate::server;

/// Opens the store for reading only: no file is written or created.
pub(crate) fn open_to_read(store: NamedStore<'_>) -> Result<Store, CommandFailure> {
    let store = open(store, OpenOptions::new().read_only(true))?;
    if let Some(reason) = store.missing_wal() {
        note(format!("annals: {}; this is the state before them", escape(&reason)));
    }
    Ok(store)
}

/// Opens an existing store for writing.
pub(crate) fn open_to_write(store: NamedStore<'_>) -> Result<Store, CommandFailure> {
    open(store, OpenOptions::new().create(false))
}

/// Returns the path of the store, which must be named.
pub(crate) fn named(store: NamedStore<'_>) -> Result<&Path, CommandFailure> {
    store.path.filter(|path| !path.as_os_str().is_empty()).ok_or_else(|| {
        CommandFailure::usage("no store is named").hint("add --store FILE, or set ANNALS_STORE; annals demo makes one")
    })
}

/// Returns the path of the store for a command about files. `what` is the command with its verb; `instead` says what
/// there is for a server.
pub(crate) fn file<'a>(store: NamedStore<'a>, what: &str, instead: &str) -> Result<&'a Path, CommandFailure> {
    let path = named(store)?;
    if server::url(path).is_none() {
        return Ok(path);
    }
    let message = format!("{what} the file of a store, and {} is on a server", server::shown(path));
    Err(CommandFailure::new(2, "not_a_file", message).hint(instead))
}

pub(crate) fn open(store: NamedStore<'_>, options: OpenOptions) -> Result<Store, CommandFailure> {
    let path = named(store)?;
    if server::url(path).is_some() {
        return store.open_with(options);
    }
    match path.metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let message = format!("file {} does not exist and was not created", path.display());
            Err(CommandFailure::not_found("store_not_found", message))
        }
        Ok(meta) if meta.is_dir() => {
            Err(CommandFailure::new(4, "not_a_store", format!("{} is a folder, not a store", path.display())))
        }
        // A pipe or a device has no length either, and a log beside the file may hold its content.
        Ok(meta) if meta.is_file() && meta.len() == 0 => store.open_with(options).map_err(|failure| match failure {
            CommandFailure::Error { code: "not_a_store", .. } => failure
                .hint("it holds 0 bytes: if a command that made it ended before its first commit, repeat that one"),
            failure => failure,
        }),
        _ => store.open_with(options),
    }
}

/// Opens a store for a command that stores something new: makes it if it is missing.
pub(crate) fn open_or_make(store: NamedStore<'_>) -> Result<Store, CommandFailure> {
    let options = OpenOptions::new();
    let path = named(store)?;
    if server::url(path).is_none() && path.exists() { open(store, options) } else { store.open_with(options) }
}

/// Runs a command that may make the store, and takes away one that it has made and stored nothing in.
pub(crate) fn leaving_no_empty<T>(
    store: NamedStore<'_>,
    command: impl FnOnce() -> Result<T, CommandFailure>,
) -> Result<T, CommandFailure> {
    let path = named(store)?;
    let is_new = server::url(path).is_none() && path.symlink_metadata().is_err();
    let done = command();
    if is_new && path.symlink_metadata().is_ok() {
        // A store that stays is the lesser trouble: the outcome of the command is reported.
        _ = store.options().map(|options| Store::remove_empty(path, &options));
    }
    done
}

/// Returns a thread by its id, or by the beginning of the id if it is unique.
pub(crate) fn thread(store: &Store, name: &str) -> Result<Thread, CommandFailure> {
    if name.is_empty() || name.contains('\0') {
        return Err(unknown_thread(store, name)?);
    }
    store.find_thread(name).or_else(|error| match error {
        StoreError::ThreadNotFound { .. } => Err(unknown_thread(store, name)?),
        error => Err(error.into()),
    })
}

/// Returns a thread by its whole id: for commands that delete.
pub(crate) fn whole_thread(store: &Store, name: &str) -> Result<Thread, CommandFailure> {
    let thread = thread(store, name)?;
    match thread.id().as_str() {
        id if id == name => Ok(thread),
        id => {
            let message = format!("{name} is the beginning of a thread id, and this command takes whole ids");
            Err(CommandFailure::usage(message).hint(format!("did you mean {id}?")))
        }
    }
}

/// Returns the checkpoint of a point, in the grammar of [`Store::point`].
pub(crate) fn resolve(store: &Store, text: &str) -> Result<Snapshot, CommandFailure> {
    store.point(text).or_else(|error| Err(hinted(store, error)?))
}

/// Returns the two checkpoints of a range `A..B`; `None` if the text names a point.
pub(crate) fn resolve_range(store: &Store, text: &str) -> Result<Option<(Snapshot, Snapshot)>, CommandFailure> {
    match store.point(text) {
        Err(_) if text.contains("..") => store.range(text).map(Some).or_else(|error| Err(hinted(store, error)?)),
        _ => Ok(None),
    }
}

/// Adds the name of a similar thread to the error of one that does not exist.
fn hinted(store: &Store, error: StoreError) -> Result<CommandFailure, CommandFailure> {
    match error {
        StoreError::ThreadNotFound { id } => unknown_thread(store, id.as_str()),
        error => Ok(error.into()),
    }
}

/// Threads that are compared with an unknown name: of those with the newest activity, and of those beside it in the
/// order of ids.
const COMPARED: usize = 200;

fn unknown_thread(store: &Store, name: &str) -> Result<CommandFailure, CommandFailure> {
    // The error of a point says more than that of a thread.
    if name.contains(['@', '~']) {
        match store.point(name) {
            Ok(at) => {
                let thread = at.point().thread.as_str();
                let message = format!("{name} names a checkpoint, and this command takes a thread");
                return Ok(CommandFailure::usage(message).hint(format!("the thread is {thread}")));
            }
            Err(StoreError::ThreadNotFound { .. }) => {}
            Err(error) => return Ok(error.into()),
        }
    }
    let failure = CommandFailure::not_found("thread_not_found", format!("thread {name} is not in this store"));
    let mut known: Vec<String> = Vec::new();
    for info in store.threads_with(ThreadQuery::new().limit(COMPARED))? {
        known.push(info.id().as_str().to_owned());
    }
    let begin: String = name.chars().take(2).collect();
    if let Ok(after) = ThreadId::new(&begin) {
        let beside = store.threads_after(Some(&after), COMPARED)?;
        known.extend(beside.into_iter().map(|thread| thread.id.as_str().to_owned()));
    }
    Ok(failure.hint(match nearest(name, known.iter().map(String::as_str)) {
        Some(id) => format!("did you mean {id}?"),
        None => "annals threads lists those that are".into(),
    }))
}

/// Returns the name that was meant by one that is not known; `None` if none is near.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let far = known.map(|known| (distance(name, known), known));
    let is_near = |(far, known): &(usize, &str)| {
        *far <= 2.max(name.chars().count() / 3) || !name.is_empty() && known.contains(name)
    };
    far.filter(is_near).min().map(|(_, known)| known)
}

/// Returns the number of characters to add, remove or replace to make one text of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(200).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(200).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use annals::state::DynState;
    use annals_graph::prelude::*;

    use super::*;

    fn thread_of(store: &Store, name: &str) -> Thread {
        let schema = DynSchema::new().last("n").build();
        let graph =
            StateGraph::with_schema(schema).node("x", |_: &DynState| Ok(())).edge(START, "x").compile().unwrap();
        let thread = store.thread(name).unwrap();
        graph.invoke(&thread, DynUpdate::new().set("n", 1)).unwrap();
        thread
    }

    #[test]
    fn a_typo_is_answered_with_the_name_that_was_meant() {
        let store = Store::memory();
        thread_of(&store, "research:docs");
        let Err(CommandFailure::Error { exit, hint, .. }) = resolve(&store, "reserch:docs@~1") else { panic!("found") };
        assert_eq!((exit, hint.as_deref()), (3, Some("did you mean research:docs?")));
        assert_eq!((distance("kitten", "sitting"), distance("", "ab")), (3, 2));
    }
}
