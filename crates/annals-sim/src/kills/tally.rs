//! The content that the workers write, from which every reader can tell whether it is whole.
//!
//! An *entity* is a thread, a pair of threads or a namespace of the key-value memory. Its n-th call is the work of one
//! process, the *author*; texts follow from entity, number and author. So a state is right if its parts agree with each
//! other, and the ledger of the parent process knows which author wrote which call.

use annals::base::{Encoded, Map, Payload, ThreadId};
use annals::store::batch::{Batch, Change, ChangeValue, Data, NewCheckpoint, Parent};
use annals::store::log::{KvChange, KvNamespace, LogExt};
use annals::store::record::ThreadRecord;
use annals::store::{Source, StoreError};
use annals_graph::prelude::*;

use crate::rng::Rng;

/// The number of a process among those of a run.
pub(super) type Author = u32;

/// A thread that is written without a graph.
#[derive(State, Clone, Default, Debug)]
pub(super) struct TallyState {
    #[channel(messages)]
    messages: Messages,
    #[channel(append)]
    log: List<String>,
    #[channel(last)]
    turn: i64,
    #[channel(last)]
    note: String,
}

/// A thread on which a graph runs.
#[derive(State, Clone, Default, Debug)]
pub(super) struct WalkState {
    #[channel(append)]
    authors: List<i64>,
    #[channel(append)]
    log: List<String>,
    #[channel(last)]
    pub(super) turn: i64,
}

/// The calls that a state shows: the authors of those from `first` on, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SeenCalls {
    pub(super) first: i64,
    pub(super) authors: Vec<Author>,
}

impl SeenCalls {
    /// Returns the number of the last call, 0 if there is none.
    pub(super) fn last(&self) -> i64 {
        self.first.max(1) + self.authors.len() as i64 - 1
    }

    /// Returns the calls with their authors.
    pub(super) fn calls(&self) -> impl Iterator<Item = (i64, Author)> + '_ {
        (self.first..).zip(self.authors.iter().copied())
    }

    /// Returns whether it shows an earlier state with any number of calls after it.
    pub(super) fn continues(&self, earlier: &Self) -> bool {
        let holds = |(n, author): (i64, Author)| {
            let place = usize::try_from(n - self.first).ok();
            place.is_none_or(|place| self.authors.get(place) == Some(&author))
        };
        self.last() >= earlier.last() && earlier.calls().all(holds)
    }
}

/// The failure of a read.
#[derive(Debug)]
pub(super) enum ReadFailure {
    /// An error of the library.
    Error(Box<annals_graph::Error>),
    /// The store shows something that no call has written.
    Wrong(String),
}

impl<E: Into<annals_graph::Error>> From<E> for ReadFailure {
    fn from(error: E) -> Self {
        Self::Error(Box::new(error.into()))
    }
}

impl std::fmt::Display for ReadFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Error(error) => write!(f, "{:?}: {error}", error.kind()),
            Self::Wrong(problem) => f.write_str(problem),
        }
    }
}

impl ReadFailure {
    /// Returns whether a thread or a checkpoint is not there.
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::Error(error) if error.kind() == annals::ErrorKind::NotFound)
    }
}

fn ensure(holds: bool, problem: impl FnOnce() -> String) -> Result<(), ReadFailure> {
    if holds { Ok(()) } else { Err(ReadFailure::Wrong(problem())) }
}

/// Returns the text of a call. Most are short, some are stored as a blob.
fn text(entity: &str, n: i64, author: Author) -> String {
    let mut rng = Rng::stream(n as u64, u64::from(author));
    let size = match rng.below(20) {
        0..14 => 40 + rng.below(200),
        14..19 => 1_500 + rng.below(4_000),
        _ => 20_000 + rng.below(60_000),
    };
    let mut text = format!("{entity} {n} {author} ");
    while text.len() < size {
        text.push_str(&format!("{:016x}", rng.next()));
    }
    text
}

/// The kinds of entities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntityKind {
    /// A thread of one writer.
    Own,
    /// A thread of all writers.
    Shared,
    /// Two threads that change in one commit.
    Pair,
    /// Two keys that change in one commit.
    Memory,
    /// A thread of a graph.
    Walk,
    /// A thread that is deleted soon, or a fork of one.
    Passing,
}

impl EntityKind {
    /// Returns the kind of an entity by its name.
    pub(super) fn of(entity: &str) -> Self {
        match entity.split('-').next() {
            Some("own") => Self::Own,
            Some("pair") => Self::Pair,
            Some("memory") => Self::Memory,
            Some("walk") => Self::Walk,
            Some("passing") => Self::Passing,
            _ => Self::Shared,
        }
    }
}

/// Returns the entities of a run with so many writers.
pub(super) fn entities(writers: usize) -> Vec<String> {
    let of_slot = |slot: usize| ["own", "pair", "memory", "walk"].map(|kind| format!("{kind}-{slot}"));
    (0..writers).flat_map(of_slot).chain(["shared".to_owned()]).collect()
}

/// Reads an entity and verifies that it is whole.
pub(super) fn read(store: &Store, entity: &str) -> Result<SeenCalls, ReadFailure> {
    match EntityKind::of(entity) {
        EntityKind::Pair => read_pair(store, entity),
        EntityKind::Memory => read_memory(store, entity),
        EntityKind::Walk => match store.thread(entity)?.head()? {
            Some(head) => verify_walk(entity, &head.state()?),
            None => Ok(SeenCalls::default()),
        },
        EntityKind::Own | EntityKind::Shared | EntityKind::Passing => match store.thread(entity)?.head()? {
            Some(head) => verify_tally(entity, &head.state()?),
            None => Ok(SeenCalls::default()),
        },
    }
}

/// Returns the change of a call.
pub(super) fn tally_change(entity: &str, n: i64, author: Author) -> impl annals::state::IntoUpdate<TallyState> {
    let text = text(entity, n, author);
    TallyState::update()
        .messages([Message::human(text.clone()).with_id(format!("{n}"))])
        .log([format!("{n} {author}")])
        .turn(n)
        .note(text)
}

/// Verifies the state of a thread that is written without a graph.
pub(super) fn verify_tally(entity: &str, tally: &TallyState) -> Result<SeenCalls, ReadFailure> {
    // A fork has the state of the thread before the point.
    let entity = entity.split('.').next().unwrap_or(entity);
    let mut authors = Vec::new();
    for (n, line) in (1..).zip(tally.log.iter()) {
        let author = line.strip_prefix(&format!("{n} ")).and_then(|author| author.parse().ok());
        authors.push(author.ok_or_else(|| ReadFailure::Wrong(format!("line {n} of {entity} is {line:?}")))?);
    }
    let count = authors.len();
    ensure(tally.turn == count as i64, || format!("{entity} has {count} lines in turn {}", tally.turn))?;
    ensure(tally.messages.len() == count, || {
        format!("{entity} has {} messages in turn {count}", tally.messages.len())
    })?;
    for ((n, author), message) in (1..).zip(&authors).zip(tally.messages.iter()) {
        let is_right = *message.text() == text(entity, n, *author);
        ensure(is_right, || format!("message {n} of {entity} is not that of author {author}"))?;
    }
    if let Some(author) = authors.last() {
        ensure(tally.note == text(entity, count as i64, *author), || format!("the note of {entity} is another one"))?;
    }
    Ok(SeenCalls { first: 1, authors })
}

/// Returns the graph of the walks: two nodes side by side, and one after them.
pub(super) fn walk_graph() -> Result<CompiledGraph<WalkState>> {
    let node =
        |name: &'static str| move |walk: &WalkState| Ok(WalkState::update().log([format!("{name} {}", walk.turn)]));
    let graph = StateGraph::<WalkState>::new()
        .node("left", node("left"))
        .node("right", node("right"))
        .node("end", node("end"))
        .edge(START, "left")
        .edge(START, "right")
        .join(["left", "right"], "end")
        .compile()?;
    Ok(graph)
}

/// Returns the input of a turn.
pub(super) fn walk_input(n: i64, author: Author) -> impl annals::state::IntoUpdate<WalkState> {
    WalkState::update().turn(n).authors([i64::from(author)])
}

fn verify_walk(entity: &str, walk: &WalkState) -> Result<SeenCalls, ReadFailure> {
    let authors: Vec<Author> = walk.authors.iter().map(|author| *author as Author).collect();
    let turn = walk.turn;
    ensure(turn == authors.len() as i64, || format!("{entity} has {} inputs in turn {turn}", authors.len()))?;
    let mut lines: Vec<String> = walk.log.iter().map(|line| line.to_string()).collect();
    // The two nodes may end in either order.
    lines.chunks_mut(3).for_each(|turn| {
        let both = turn.len().min(2);
        turn[..both].sort();
    });
    let all = (1..=turn).flat_map(|n| ["left", "right", "end"].map(|node| format!("{node} {n}")));
    let begun = 3 * turn as usize;
    let is_right = lines.iter().zip(all).all(|(line, expected)| *line == expected);
    ensure(is_right && lines.len() <= begun && lines.len() + 3 >= begun, || {
        format!("{entity} has in turn {turn} the lines {:?}", &lines[lines.len().saturating_sub(4)..])
    })?;
    Ok(SeenCalls { first: 1, authors })
}

/// Returns whether the last turn of a walk has ended.
pub(super) fn walk_has_ended(walk: &WalkState) -> bool {
    walk.log.len() as i64 == 3 * walk.turn
}

/// Returns the threads of a pair.
pub(super) fn sides(entity: &str) -> [String; 2] {
    ["left", "right"].map(|side| format!("{entity}-{side}"))
}

/// Returns the batches of a call, one for each thread of a pair.
pub(super) fn pair_batches(store: &Store, entity: &str, n: i64, author: Author) -> Result<Vec<Batch>, ReadFailure> {
    let one = |side: String| {
        let thread = store.thread(&side)?;
        let head = thread.head()?;
        let before = head.as_ref().map(|head| head.id());
        let parent = before.map(Parent::Local);
        let id = store.mint_checkpoint(n, before.as_ref());
        let mut checkpoint = NewCheckpoint::new(id, parent, n, Source::Update, store.now());
        checkpoint.metadata = Some(format!("{{\"author\":{author}}}"));
        let value = Payload::from(Encoded::encode(&text(entity, n, author))?);
        checkpoint.changes.push(Change::new("text", n as u64, ChangeValue::Value(Data::New(value))));
        let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), before);
        batch.checkpoints.push(checkpoint);
        Ok(batch)
    };
    sides(entity).into_iter().map(one).collect()
}

/// Returns the last call on a thread of a pair.
fn pair_call(entity: &str, record: &ThreadRecord) -> Result<(i64, Author), ReadFailure> {
    let metadata = record.head.metadata.as_deref().unwrap_or_default();
    let author = metadata.strip_prefix("{\"author\":").and_then(|rest| rest.strip_suffix('}'));
    let author = author.and_then(|author| author.parse().ok());
    Ok((record.head.step, author.ok_or_else(|| ReadFailure::Wrong(format!("{entity} has the metadata {metadata}")))?))
}

fn read_pair(store: &Store, entity: &str) -> Result<SeenCalls, ReadFailure> {
    // One transaction reads a page, so both threads are there as one commit left them.
    let page = store.backend().threads(Some(&ThreadId::new(entity).map_err(StoreError::from)?), 2)?;
    let names = sides(entity);
    let found: Vec<&ThreadRecord> = page.iter().filter(|record| names.contains(&record.id.to_string())).collect();
    let [left, right] = found[..] else {
        ensure(found.is_empty(), || format!("{entity} has one thread of two"))?;
        return Ok(SeenCalls::default());
    };
    let ((n, author), other) = (pair_call(entity, left)?, pair_call(entity, right)?);
    ensure((n, author) == other, || format!("{entity} has call {n} by {author} on one side, {other:?} on the other"))?;
    for record in [left, right] {
        let snapshot = store.thread(record.id.as_str())?.at(record.head.point.checkpoint)?;
        let value = snapshot.get("text")?;
        let is_right = value.as_ref().and_then(Value::as_str) == Some(&*text(entity, n, author));
        ensure(is_right, || format!("the text of {} is not that of call {n}", record.id))?;
    }
    Ok(SeenCalls { first: n, authors: vec![author] })
}

fn memory_namespace(entity: &str) -> Result<KvNamespace, StoreError> {
    KvNamespace::new(entity.split('-'))
}

/// Returns the changes of a call, one for each key.
pub(super) fn memory_changes(
    store: &Store,
    entity: &str,
    n: i64,
    author: Author,
) -> Result<Vec<KvChange>, ReadFailure> {
    let members = [
        ("n".to_owned(), Value::from(n)),
        ("author".to_owned(), Value::from(i64::from(author))),
        ("text".to_owned(), text(entity, n, author).into()),
    ];
    let value = Encoded::encode(&Value::from(members.into_iter().collect::<Map>()))?;
    let put = |key: &str| {
        let (namespace, now) = (memory_namespace(entity)?, store.now());
        Ok(KvChange::Put { namespace, key: key.to_owned(), value: value.clone(), now, expires_at: None })
    };
    ["a", "b"].into_iter().map(put).collect()
}

fn read_memory(store: &Store, entity: &str) -> Result<SeenCalls, ReadFailure> {
    let mut found: Vec<Value> = Vec::new();
    store.backend().side_tables()?.kv_entries(Some(&memory_namespace(entity)?), store.now(), &mut |record| {
        found.push(record.value.decode()?);
        Ok(true)
    })?;
    let [a, b] = &found[..] else {
        ensure(found.is_empty(), || format!("{entity} has {} keys of two", found.len()))?;
        return Ok(SeenCalls::default());
    };
    ensure(a == b, || format!("the keys of {entity} differ"))?;
    let number = |name: &str| a.get(name).and_then(Value::as_int);
    let (Some(n), Some(author)) = (number("n"), number("author")) else {
        return Err(ReadFailure::Wrong(format!("{entity} has a value without a number")));
    };
    let is_right = a.get("text").and_then(Value::as_str) == Some(&*text(entity, n, author as Author));
    ensure(is_right, || format!("the text of {entity} is not that of call {n}"))?;
    Ok(SeenCalls { first: n, authors: vec![author as Author] })
}

/// Verifies the whole history of an entity: each checkpoint has one call more than the one before it.
pub(super) fn verify_history(store: &Store, entity: &str, last: i64) -> Result<(), ReadFailure> {
    let threads = match EntityKind::of(entity) {
        EntityKind::Memory => return Ok(()),
        EntityKind::Pair => sides(entity).to_vec(),
        _ => vec![entity.to_owned()],
    };
    for name in threads {
        let thread = store.thread(&name)?;
        let mut steps = 0;
        for snapshot in thread.history()? {
            let snapshot = snapshot?;
            steps += 1;
            match EntityKind::of(entity) {
                EntityKind::Walk => _ = verify_walk(entity, &snapshot.state()?)?,
                EntityKind::Pair => {
                    let n = last + 1 - steps;
                    ensure(snapshot.step() == n, || format!("{name} has step {} in place {n}", snapshot.step()))?;
                }
                // The state of each checkpoint would take the square of their number.
                _ if steps % 16 == 1 => {
                    let seen = verify_tally(entity, &snapshot.state()?)?;
                    ensure(seen.last() == last + 1 - steps, || format!("{name} has call {} twice", seen.last()))?;
                }
                _ => _ = snapshot.get("turn")?,
            }
        }
        let is_walk = EntityKind::of(entity) == EntityKind::Walk;
        ensure(is_walk || steps == last, || format!("{name} has {steps} checkpoints after call {last}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_continues_those_before_it() {
        let seen = |first, authors: &[Author]| SeenCalls { first, authors: authors.to_vec() };
        assert!(seen(1, &[7, 8]).continues(&seen(1, &[7])) && seen(1, &[7]).continues(&SeenCalls::default()));
        assert!(!seen(1, &[7]).continues(&seen(1, &[7, 8])), "it went back");
        assert!(!seen(1, &[7, 9, 9]).continues(&seen(1, &[7, 8])), "a call is another one");
        assert!(seen(5, &[3]).continues(&seen(4, &[2])) && !seen(5, &[3]).continues(&seen(5, &[2])));
        assert_eq!((seen(5, &[3]).last(), SeenCalls::default().last()), (5, 0));
    }
}
