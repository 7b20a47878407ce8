//! Benches of the engine: append, group commit, merge by id, fork, tail, whole state, history, diff.
//!
//! A conversation has a message of 500 bytes in each commit. Commits are not synced, except those of the group commit.
//! Benches that depend on the length run at 1,000 and at 10,000 messages.
#![allow(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use annals::base::CheckpointId;
use annals::history::diff;
use annals::prelude::*;
use annals::state::{BoxWrite, Layout};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use tempfile::TempDir;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Lengths of the conversations.
const LENGTHS: [usize; 2] = [1_000, 10_000];
/// Threads that commit at once.
const THREADS: usize = 8;

#[derive(State, Clone, Default)]
struct StoredChat {
    #[channel(messages)]
    messages: Messages,
}

/// A file with one conversation.
struct ChatFile {
    folder: TempDir,
    length: usize,
    checkpoints: Vec<CheckpointId>,
}

impl ChatFile {
    fn new(length: usize) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let chat =
            open(&folder.path().join("chat.db"), Synchronous::Normal)?.thread("chat")?.with_state::<StoredChat>();
        let append = |n| -> Result<CheckpointId> { Ok(chat.update(StoredChat::update().messages([message(n)]))?) };
        let checkpoints = (0..length).map(append).collect::<Result<_>>()?;
        Ok(Self { folder, length, checkpoints })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("chat.db")
    }

    fn thread(&self) -> Result<Thread> {
        Ok(open(&self.path(), Synchronous::Normal)?.thread("chat")?)
    }

    /// Opens a copy of the file in a folder of its own.
    fn copy(&self) -> Result<(TempDir, Thread)> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("chat.db");
        std::fs::copy(self.path(), &path)?;
        let thread = open(&path, Synchronous::Normal)?.thread("chat")?;
        Ok((folder, thread))
    }

    fn id(&self, name: &str) -> BenchmarkId {
        BenchmarkId::new(name, self.length)
    }
}

fn open(path: &Path, synchronous: Synchronous) -> Result<Store> {
    Ok(Store::open_with(path, OpenOptions::new().synchronous(synchronous))?)
}

fn message(n: usize) -> Message {
    Message::ai(format!("{n:<500}")).with_id(format!("message-{n}"))
}

/// Appends so many messages to a copy of the conversation, whose state is loaded.
fn append(conversation: &ChatFile, count: u64) -> Result<Duration> {
    let (_folder, thread) = conversation.copy()?;
    let chat = thread.with_state::<StoredChat>();
    assert_eq!(chat.state()?.messages.len(), conversation.length);
    let messages: Vec<Message> = (0..count as usize).map(|n| message(conversation.length + n)).collect();
    let start = Instant::now();
    for message in messages {
        chat.update(StoredChat::update().messages([message]))?;
    }
    Ok(start.elapsed())
}

/// Appends so many messages to each of eight conversations of a new file, on a thread each; every commit is synced.
fn group_commit(count: u64) -> Result<Duration> {
    let folder = tempfile::tempdir()?;
    let store = open(&folder.path().join("group.db"), Synchronous::Full)?;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let work = |at: usize| {
            let store = store.clone();
            scope.spawn(move || -> Result<()> {
                let chat = store.thread(format!("chat-{at}"))?.with_state::<StoredChat>();
                (0..count as usize)
                    .try_for_each(|n| Ok(chat.update(StoredChat::update().messages([message(n)])).map(|_| ())?))
            })
        };
        let workers: Vec<_> = (0..THREADS).map(work).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a committing thread panicked")?)
    })?;
    Ok(start.elapsed())
}

/// Makes threads of so many checkpoints of a copy of the conversation.
fn fork(conversation: &ChatFile, count: u64) -> Result<Duration> {
    let (_folder, thread) = conversation.copy()?;
    let start = Instant::now();
    for n in 0..count as usize {
        // A stride that is prime to the length visits the checkpoints in a scattered order.
        let checkpoint = conversation.checkpoints[n * 7_919 % conversation.length];
        black_box(thread.at(checkpoint)?.fork_to(format!("fork-{n}"))?);
    }
    Ok(start.elapsed())
}

fn head(thread: &Thread) -> Result<Snapshot> {
    Ok(thread.head()?.ok_or("there is no head")?)
}

fn writes(criterion: &mut Criterion, conversations: &[ChatFile]) {
    let mut group = criterion.benchmark_group("engine");
    for conversation in conversations {
        group.bench_function(conversation.id("append"), |bencher| {
            bencher.iter_custom(|count| append(conversation, count).expect("messages are appended"));
        });
        group.bench_function(conversation.id("fork"), |bencher| {
            bencher.iter_custom(|count| fork(conversation, count).expect("checkpoints are forked"));
        });
    }
    group.throughput(Throughput::Elements(THREADS as u64));
    group.bench_function("group commit, 8 threads, synced", |bencher| {
        bencher.iter_custom(|count| group_commit(count).expect("threads commit"));
    });
    group.finish();
}

/// Merges a message with the id of another one into a list, as at the end of a superstep.
fn merges(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engine");
    for length in LENGTHS {
        let schema = Schema::<StoredChat>::of();
        let (mut state, mut present) = (schema.initial(), true);
        let all: Vec<Message> = (0..length).map(message).collect();
        schema.update(&mut state, 0, &mut present, vec![BoxWrite::new(all)]).expect("the list is merged");
        let mut n = 0;
        group.bench_function(BenchmarkId::new("merge by id", length), |bencher| {
            let changed = || {
                n += 1;
                let id = format!("message-{}", n * 7_919 % length);
                vec![BoxWrite::new(vec![Message::ai(format!("changed {n}")).with_id(id)])]
            };
            let merge = |write| schema.update(&mut state, 0, &mut present, write).expect("a message is merged");
            bencher.iter_batched(changed, merge, BatchSize::SmallInput);
        });
    }
    group.finish();
}

fn reads(criterion: &mut Criterion, conversations: &[ChatFile]) {
    let mut group = criterion.benchmark_group("engine");
    for conversation in conversations {
        let thread = conversation.thread().expect("the file is opened");
        group.bench_function(conversation.id("tail of 50"), |bencher| {
            bencher.iter(|| head(&thread).expect("the head is read").tail("messages", 50).expect("items are read"));
        });
        group.bench_function(conversation.id("whole state"), |bencher| {
            bencher.iter(|| head(&thread).expect("the head is read").state::<StoredChat>().expect("the state is read"));
        });
        group.bench_function(conversation.id("history"), |bencher| {
            bencher.iter(|| {
                let history = thread.history().expect("the history is read");
                let count = history.filter(Result::is_ok).count();
                assert_eq!(count, conversation.length);
            });
        });
        let middle = thread.at(conversation.checkpoints[conversation.length / 2]).expect("a checkpoint is read");
        let head = head(&thread).expect("the head is read");
        group.bench_function(conversation.id("diff of two halves"), |bencher| {
            bencher.iter(|| diff(&middle, &head).expect("two states are compared"));
        });
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default()
        .without_plots()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let conversations = LENGTHS.map(|length| ChatFile::new(length).expect("a conversation is written"));
    writes(&mut criterion, &conversations);
    merges(&mut criterion);
    reads(&mut criterion, &conversations);
    criterion.final_summary();
}
