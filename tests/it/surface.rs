//! The file equals the store in memory through the public API, whatever threads, facts, branches and entries do.
//!
//! Random operations go to both; their outcomes and then all that a program can read of the stores are compared.
//! `ANNALS_MODEL_RUNS` and `ANNALS_MODEL_OPERATIONS` set the number of runs and the longest of them.

use std::path::Path;
use std::time::Duration;

use annals::history::{StatusKind, ThreadQuery};
use annals::prelude::*;
use annals::store::kv::KvOrder;
use annals::store::{KvQuery, SearchOptions, SearchQuery, StoreError};
use proptest::prelude::*;

use crate::cases;

const THREADS: [&str; 4] = ["a", "b", "c", "d"];
const WORDS: [&str; 8] = ["Gast", "hof", " zum ", "Bä", "ren ", "日", "本 ", "regen"];

/// An operation. Numbers pick among existing threads, checkpoints, branches and words, so that any number makes sense.
#[derive(Clone, Debug)]
enum Act {
    Write { thread: usize, kind: u8, n: usize },
    Stream { thread: usize, n: usize, keeps: Option<bool> },
    Move { thread: usize, kind: u8, n: usize },
    Fact { threads: Vec<usize>, kind: u8, n: usize },
    Trash { thread: usize, is_restored: bool },
    Spread { thread: usize, to: usize, is_copy: bool },
    Delete { threads: Vec<usize> },
    Kv { key: u8, n: usize, is_deleted: bool },
    Index { is_on: bool },
    Reopen,
}

fn act() -> impl Strategy<Value = Act> {
    let (thread, n) = (|| 0..THREADS.len(), any::<u16>().prop_map(usize::from));
    prop_oneof![
        10 => (thread(), 0u8..8, n.clone()).prop_map(|(thread, kind, n)| Act::Write { thread, kind, n }),
        1 => (thread(), n.clone(), any::<Option<bool>>()).prop_map(|(thread, n, keeps)| Act::Stream { thread, n, keeps }),
        6 => (thread(), 0u8..6, n.clone()).prop_map(|(thread, kind, n)| Act::Move { thread, kind, n }),
        3 => (prop::collection::vec(thread(), 1..3), 0u8..8, n.clone())
            .prop_map(|(threads, kind, n)| Act::Fact { threads, kind, n }),
        2 => (thread(), any::<bool>()).prop_map(|(thread, is_restored)| Act::Trash { thread, is_restored }),
        1 => (thread(), 1..THREADS.len(), any::<bool>()).prop_map(|(thread, next, is_copy)| {
            Act::Spread { thread, to: (thread + next) % THREADS.len(), is_copy }
        }),
        1 => prop::collection::vec(thread(), 1..3).prop_map(|threads| Act::Delete { threads }),
        2 => (0u8..6, n, any::<bool>()).prop_map(|(key, n, is_deleted)| Act::Kv { key, n, is_deleted }),
        1 => any::<bool>().prop_map(|is_on| Act::Index { is_on }),
        1 => Just(Act::Reopen),
    ]
}

fn word(n: usize) -> &'static str {
    WORDS[n % WORDS.len()]
}

/// Does an operation. Returns its result as text, without ids and timestamps.
fn apply(store: &Store, act: &Act) -> Result<String, Error> {
    let thread = |n: &usize| store.thread(THREADS[*n]);
    match act {
        Act::Write { thread: at, kind, n } => write(&thread(at)?, *kind, *n),
        Act::Stream { thread: at, n, keeps } => stream(&thread(at)?, *n, *keeps),
        Act::Move { thread: at, kind, n } => move_head(&thread(at)?, *kind, *n),
        Act::Fact { threads, kind, n } => {
            let facts = store.facts(threads.iter().map(|n| THREADS[*n]))?;
            let facts = match kind {
                0 => facts.title(word(*n)),
                1 => facts.remove_title(),
                2 => facts.project(word(n % 3)),
                3 => facts.label(word(n % 3)).label("all"),
                4 => facts.remove_label(word(n % 3)),
                5 => facts.archived(true),
                6 => facts.archived(false).pinned(true),
                _ => facts.pinned(false),
            };
            Ok(format!("{:?}", facts.save()?))
        }
        Act::Trash { thread: at, is_restored: true } => Ok(format!("{:?}", thread(at)?.restore()?)),
        Act::Trash { thread: at, .. } => Ok(format!("{:?}", thread(at)?.trash(Duration::from_secs(86_400))?)),
        Act::Spread { thread: at, to, is_copy: true } => Ok(thread(at)?.copy_to(THREADS[*to])?.id().to_string()),
        Act::Spread { thread: at, to, .. } => match thread(at)?.head()? {
            Some(head) => Ok(head.fork_to(THREADS[*to])?.id().to_string()),
            None => Ok("no head".into()),
        },
        Act::Delete { threads } => {
            threads.iter().try_for_each(|n| store.delete_thread(THREADS[*n]).map(|_| ()))?;
            _ = store.reclaim()?;
            Ok(String::new())
        }
        Act::Kv { key, is_deleted: true, .. } => Ok(format!("{:?}", store.kv().delete(["notes"], key.to_string())?)),
        Act::Kv { key, n, .. } => {
            let value = Value::from(serde_json::json!({ "n": n % 5, "text": word(*n) }));
            let namespace = if key % 2 == 0 { vec!["notes"] } else { vec!["notes", "more"] };
            Ok(format!("{:?}", store.kv().put(namespace, key.to_string(), value)?))
        }
        Act::Index { .. } | Act::Reopen => Ok(String::new()),
    }
}

fn write(thread: &Thread, kind: u8, n: usize) -> Result<String, Error> {
    let key = format!("key {}", n % 5);
    _ = match kind {
        0 => thread.set("x", word(n))?,
        1 => thread.append("messages", [Message::human(word(n)).with_id(format!("{}", n % 9))])?,
        2 => thread.append("messages", [Message::remove_all(), Message::ai(word(n)).with_id("last")])?,
        3 => thread.put("files", &key, word(n))?,
        4 => thread.write().remove("files", &key).commit()?,
        5 => thread.write().append_text("draft", format!("{}{}", word(n), word(n / 8))).commit()?,
        6 => thread.write().append_text("draft", word(n)).set("x", n as i64).put("files", &key, n as i64).commit()?,
        _ => thread.append("plain", [Value::from(word(n)), Value::from(n as i64)])?,
    };
    Ok(String::new())
}

/// Streams a message that ends, or is cut off and then kept, discarded or left.
fn stream(thread: &Thread, n: usize, keeps: Option<bool>) -> Result<String, Error> {
    let cut = thread.stream_message("messages", Duration::from_secs(3_600), |out| {
        out.push(word(n));
        match n % 3 {
            0 => Ok(()),
            _ => Err(Error::from(StoreError::Invalid { field: "model", reason: "the line is dead".into() })),
        }
    });
    let partial = thread.partial()?;
    let text = partial.as_ref().map(|partial| partial.content.message.text().into_owned());
    match (partial, keeps) {
        (Some(partial), Some(true)) => _ = partial.keep()?,
        (Some(partial), Some(false)) => partial.discard()?,
        _ => {}
    }
    Ok(format!("{} {text:?}", cut.is_ok()))
}

fn move_head(thread: &Thread, kind: u8, n: usize) -> Result<String, Error> {
    let name = |operation: Option<annals::history::Operation>| format!("{:?}", operation.map(|done| done.name()));
    Ok(match kind {
        0 => {
            let past = thread.history()?.nth(n % 4).transpose()?;
            past.map(|at| thread.rewind_to(&at)).transpose()?;
            String::new()
        }
        1 => name(thread.undo()?),
        2 => name(thread.redo()?),
        3 => {
            let before = state(thread)?;
            let undone = name(thread.undo()?);
            if undone != "None" {
                let redone = name(thread.redo()?);
                assert_eq!((&redone, state(thread)?), (&undone, before), "a redo takes an undo back");
            }
            undone
        }
        4 => format!("{:?}", thread.name_branch(["one", "two"][n % 2])?),
        _ => {
            let branches = thread.all_branches()?;
            branches.get(n % branches.len().max(1)).map(|branch| thread.switch(branch)).transpose()?;
            String::new()
        }
    })
}

/// Returns the state at the head, without the ids of streamed messages.
fn state(thread: &Thread) -> Result<String, Error> {
    let Some(head) = thread.head()? else { return Ok("no head".into()) };
    let mut values = head.values()?;
    if let Some(messages) = values.get_mut("messages").filter(|messages| matches!(messages, Value::List(_))) {
        let texts = head.messages("messages", annals::store::ItemRange::All)?;
        *messages = Value::List(texts.iter().map(|message| Value::from(&*message.text())).collect());
    }
    let entry = head.entry("files", "key 1").ok();
    let tail = head.text_tail("draft", 9).ok();
    Ok(format!("{} {entry:?} {tail:?}", Value::Map(values)))
}

/// Returns the content of a store as a program reads it, without ids and timestamps.
fn shown(store: &Store) -> Result<Vec<String>, Error> {
    let mut lines = Vec::new();
    for id in THREADS {
        let thread = store.thread(id)?;
        lines.push(format!("{id}: {}", state(&thread)?));
        let operations = thread.operations()?.map(|operation| operation.map(|done| done.name()));
        lines.push(format!("{:?}", operations.collect::<Result<Vec<_>, _>>()?));
        for branch in thread.all_branches()? {
            let at = (branch.last.record().step, branch.is_current, branch.is_abandoned());
            lines.push(format!("{:?} {at:?}", branch.name.as_deref()));
        }
        let partial = thread.partial()?.map(|partial| partial.content.message.text().into_owned());
        lines.push(format!("{partial:?} {:?} {:?}", thread.forks()?, thread.forked_from()?.map(|at| at.thread)));
    }
    for query in listings() {
        let listed = store.threads_with(query.clone())?;
        lines.extend(listed.iter().map(|info| {
            let facts = &info.facts;
            let marks = (facts.is_archived, facts.is_pinned, facts.trashed_until.is_some());
            format!("{} {:?} {:?} {:?} {marks:?}", info.id(), facts.title, facts.project, facts.labels)
                + &format!(" {:?}", info.status)
        }));
        lines.push("the next listing".into());
    }
    for (words, narrow) in [("gasthof", false), ("bären", true), ("日本", false), ("re", true), ("key regen", false)]
    {
        let mut query = SearchQuery::new(words).limit(5);
        query = if narrow { query.on_head() } else { query };
        loop {
            let page = store.search(&query)?;
            lines.extend(page.hits.iter().map(|hit| {
                let place = (&hit.point.thread, &hit.channel, hit.position, &hit.key, hit.on_head);
                format!("{place:?} {}", hit.snippet.marked("[", "]"))
            }));
            let Some(next) = page.next else { break };
            query = query.after(next);
        }
    }
    for query in [KvQuery::all(), KvQuery::new(["notes", "more"]), KvQuery::all().filter("n", 1)] {
        let found = store.kv().search(query.order(KvOrder::FirstPut).limit(100))?;
        lines.push(found.iter().map(|item| format!("{:?} {} {:?}; ", item.namespace, item.key, item.value)).collect());
    }
    Ok(lines)
}

fn listings() -> Vec<ThreadQuery> {
    let query = ThreadQuery::new;
    vec![
        query(),
        query().by_id(),
        query().limit(2),
        query().project(word(1)),
        query().label("all"),
        query().label(word(0)),
        query().title_contains("a"),
        query().archived(true),
        query().pinned(true),
        query().trashed(true),
        query().status(StatusKind::Done),
        query().status(StatusKind::Running).label("all"),
    ]
}

fn follow(path: &Path, acts: &[Act]) -> Result<(), TestCaseError> {
    let open = || Store::open(path).unwrap();
    let (model, mut file) = (Store::memory(), open());
    for (done, act) in acts.iter().enumerate() {
        let (expected, found) = (apply(&model, act), apply(&file, act));
        let said = |outcome: &Result<String, Error>| outcome.as_ref().map_err(|error| error.kind()).cloned();
        prop_assert_eq!(said(&expected), said(&found), "{:?}: {:?} {:?}", act, expected, found);
        match act {
            Act::Index { is_on: true } => file.enable_search(SearchOptions::new()).unwrap(),
            Act::Index { .. } => file.disable_search().unwrap(),
            Act::Reopen => {
                drop(file);
                file = open();
            }
            _ => {}
        }
        // Reading everything costs more than a few operations.
        if done % 8 == 7 || done + 1 == acts.len() {
            prop_assert_eq!(shown(&model).unwrap(), shown(&file).unwrap(), "after {:?}", act);
        }
    }
    for store in [&model, &file] {
        let problems = store.check().unwrap().problems;
        prop_assert!(problems.is_empty(), "{:?}", problems);
    }
    Ok(())
}

fn number(name: &str, default: u32) -> u32 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn the_file_follows_the_model_through_the_public_api() {
    let (runs, operations) =
        (number("ANNALS_MODEL_RUNS", cases(3, 32) as u32), number("ANNALS_MODEL_OPERATIONS", 100) as usize);
    let config =
        ProptestConfig { cases: runs, failure_persistence: None, max_shrink_iters: 400, ..ProptestConfig::default() };
    proptest!(config, |(acts in prop::collection::vec(act(), operations / 2..=operations))| {
        let folder = tempfile::tempdir().unwrap();
        follow(&folder.path().join("model.db"), &acts)?;
    });
}
