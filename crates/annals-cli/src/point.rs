//! Opens the store and resolves `THREAD[@POINT]`.

use std::path::Path;

use annals::base::CheckpointId;
use annals::history::{Snapshot, Thread};
use annals::store::{OpenOptions, Store, StoreError};

use crate::errors::CommandFailure;
use crate::key::NamedStore;

/// The fewest digits of an id that are shown.
const SHORT_MIN: usize = 4;
/// The digits of an id, without hyphens.
const DIGITS: usize = 32;

/// Opens the store for reading only: no file is written or created.
pub(crate) fn open_to_read(store: NamedStore<'_>) -> Result<Store, CommandFailure> {
    open(store, OpenOptions::new().read_only(true))
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

pub(crate) fn open(store: NamedStore<'_>, options: OpenOptions) -> Result<Store, CommandFailure> {
    let path = named(store)?;
    match path.metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let message = format!("file {} does not exist and was not created", path.display());
            Err(CommandFailure::not_found("store_not_found", message))
        }
        Ok(meta) if meta.is_dir() => {
            Err(CommandFailure::new(4, "not_a_store", format!("{} is a folder, not a store", path.display())))
        }
        _ => store.open_with(options),
    }
}

/// Returns a thread that exists.
pub(crate) fn thread(store: &Store, name: &str) -> Result<Thread, CommandFailure> {
    match existing(store, name)? {
        Some(thread) => Ok(thread),
        None => Err(unknown_thread(store, name)?),
    }
}

fn existing(store: &Store, name: &str) -> Result<Option<Thread>, CommandFailure> {
    if name.is_empty() || name.contains('\0') {
        return Ok(None);
    }
    let thread = store.thread(name)?;
    Ok(thread.head()?.is_some().then_some(thread))
}

/// Returns the checkpoint of `THREAD[@POINT]` or `THREAD~N`.
///
/// A thread id may hold `@` and `~` itself: the longest beginning that is a thread is taken as one.
pub(crate) fn resolve(store: &Store, text: &str) -> Result<Snapshot, CommandFailure> {
    if let Some(thread) = existing(store, text)? {
        return at(&thread, "@");
    }
    for (cut, mark) in text.char_indices().rev().filter(|(_, c)| matches!(c, '@' | '~')) {
        if let Some(thread) = existing(store, &text[..cut])? {
            let point = if mark == '@' { &text[cut + 1..] } else { &text[cut..] };
            return at(&thread, point);
        }
    }
    let name = text.rsplit_once('@').map_or(text, |(name, _)| name);
    Err(unknown_thread(store, name)?)
}

/// Returns a point of a thread: `@` or an empty text (the head), the beginning of an id, and `~N` (N back) after any of
/// these.
fn at(thread: &Thread, point: &str) -> Result<Snapshot, CommandFailure> {
    let missing = || StoreError::CheckpointNotFound { thread: thread.id().clone(), id: point.to_owned() };
    let (base, back) = match point.split_once('~') {
        Some((base, back)) => (base, back.parse::<u64>().map_err(|_| missing())?),
        None => (point, 0),
    };
    let mut at = thread.at(base.to_ascii_lowercase())?;
    for _ in 0..back {
        at = at.parent()?.ok_or_else(missing)?;
    }
    Ok(at)
}

fn unknown_thread(store: &Store, name: &str) -> Result<CommandFailure, CommandFailure> {
    let failure = CommandFailure::not_found("thread_not_found", format!("thread {name} is not in this store"));
    let threads = store.threads()?;
    let near = threads.iter().map(|thread| thread.id.as_str()).map(|id| (distance(name, id), id));
    let near = near.filter(|(far, id)| *far <= 2.max(name.chars().count() / 3) || id.contains(name)).min();
    Ok(failure.hint(match near {
        Some((_, id)) => format!("did you mean {id}?"),
        None => "annals threads lists those that are".into(),
    }))
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

/// Returns the digits of an id without hyphens, which the store accepts as well.
fn digits(id: CheckpointId) -> String {
    id.to_string().replace('-', "")
}

/// Returns the shortest beginning of the id that no other checkpoint of its thread shares.
///
/// Ids begin with their time, so those of one run differ only after some ten digits.
pub(crate) fn short(snapshot: &Snapshot) -> Result<String, StoreError> {
    let digits = digits(snapshot.id());
    let is_unique = |length: usize| -> Result<bool, StoreError> {
        let found = snapshot.store().backend().checkpoints_by_prefix(&snapshot.point().thread, &digits[..length], 2)?;
        Ok(found.len() < 2)
    };
    // Any longer beginning of a unique one is unique, so the shortest is found by halving.
    let (mut low, mut high) = (SHORT_MIN, DIGITS);
    while low < high {
        let middle = (low + high) / 2;
        if is_unique(middle)? { high = middle } else { low = middle + 1 }
    }
    debug_assert!((SHORT_MIN..=DIGITS).contains(&low));
    Ok(digits[..low].to_owned())
}

/// Returns the shortest unique beginnings of ids that are sorted, either way, and complete around each of them.
pub(crate) fn shorts(ids: &[CheckpointId]) -> Vec<String> {
    debug_assert!(ids.is_sorted() || ids.iter().rev().is_sorted());
    let all: Vec<String> = ids.iter().map(|id| digits(*id)).collect();
    let shared = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    let length = |at: usize| {
        let before = at.checked_sub(1).map_or(0, |before| shared(&all[before], &all[at]));
        let after = all.get(at + 1).map_or(0, |after| shared(after, &all[at]));
        (before.max(after) + 1).clamp(SHORT_MIN, DIGITS)
    };
    (0..all.len()).map(|at| all[at][..length(at)].to_owned()).collect()
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
    fn a_point_is_found_however_the_thread_is_called() {
        let store = Store::memory();
        for name in ["plain", "me@home", "a~1", "plain@x"] {
            let thread = thread_of(&store, name);
            let head = thread.head().unwrap().unwrap();
            let parent = head.parent().unwrap().unwrap();
            let id = head.id().to_string();
            assert_eq!(resolve(&store, name).unwrap(), head);
            for same in ["@", "@@", "~0", "@~0", &format!("@{id}"), &format!("@{}", id.to_uppercase())] {
                assert_eq!(resolve(&store, &format!("{name}{same}")).unwrap(), head, "{name}{same}");
            }
            for back in ["~1", "@~1", "@@~1", &format!("@{id}~1"), &format!("@{}", short(&parent).unwrap())] {
                assert_eq!(resolve(&store, &format!("{name}{back}")).unwrap(), parent, "{name}{back}");
            }
            assert!(resolve(&store, &format!("{name}~9")).is_err());
            assert!(resolve(&store, &format!("{name}@zz")).is_err());
        }
    }

    #[test]
    fn short_ids_are_unique_and_no_longer_than_needed() {
        let store = Store::memory();
        let thread = thread_of(&store, "t");
        let all: Vec<Snapshot> = thread.history().unwrap().map(|s| s.unwrap()).collect();
        let ids: Vec<CheckpointId> = all.iter().map(Snapshot::id).collect();
        let by_neighbours = shorts(&ids);
        for (snapshot, short_id) in all.iter().zip(&by_neighbours) {
            assert_eq!(short_id, &short(snapshot).unwrap());
            assert_eq!(&thread.at(short_id).unwrap(), snapshot);
            assert!(thread.at(&short_id[..short_id.len() - 1]).is_err() || short_id.len() == SHORT_MIN);
        }
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
