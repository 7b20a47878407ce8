//! A worker: a process that uses the store until it is killed, or until its standard input ends.
//!
//! It reports each step as a line on its standard output before it begins and after it is acknowledged, so that nothing
//! that it was told is unknown to the parent process. It verifies all that it reads.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use annals::base::{CheckpointId, Clock as _, SystemClock};
use annals::store::batch::Batch;
use annals::store::log::{Log, LogExt};
use annals::store::{OpenOptions, SqliteBackend, StoreError};
use annals_graph::Durability;
use annals_graph::prelude::*;

use super::tally::{self, EntityKind, ReadFailure, SeenCalls, TallyState, WalkState};
use super::{WorkerArgs, WorkerControl, WorkerRole};
use crate::rng::Rng;
use crate::trace::remove_store;

/// Set once the parent process wants the worker to end, or has itself ended.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Writes a line of the report. A single write of fewer bytes than a pipe holds at once is whole or absent.
fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    if output.write_all(format!("{}\n", line.replace('\n', " ")).as_bytes()).and_then(|()| output.flush()).is_err() {
        // The parent process is gone.
        std::process::exit(0);
    }
}

/// Runs a worker until it is told to end. Returns whether it found no problem.
pub(super) fn run(job: &WorkerArgs) -> bool {
    std::panic::set_hook(Box::new(|panic| say(&format!("X panic: {panic}"))));
    std::thread::spawn(|| {
        // The end of the input and an error mean the same.
        _ = std::io::stdin().read_to_end(&mut Vec::new());
        ENDS.store(true, Ordering::SeqCst);
    });
    let done = match job.role {
        WorkerRole::Writer => ChildWorker::open(job).and_then(|mut worker| worker.repeat(ChildWorker::write)),
        WorkerRole::Maintainer => ChildWorker::open(job).and_then(|mut worker| worker.repeat(ChildWorker::maintain)),
        WorkerRole::Reader => read_until_the_end(job),
    };
    if let Err(failure) = &done {
        say(&format!("X {failure}"));
    }
    done.is_ok()
}

fn options(job: &WorkerArgs) -> OpenOptions {
    OpenOptions::new().busy_timeout_ms(job.busy_ms)
}

/// Opens the store. Another process may hold a lock for longer than the limit.
fn open(job: &WorkerArgs, options: &OpenOptions) -> Result<Arc<SqliteBackend>, ReadFailure> {
    say("V open");
    loop {
        match SqliteBackend::open(&job.store(), options) {
            Err(StoreError::Busy { .. }) if !ENDS.load(Ordering::SeqCst) => {}
            opened => return Ok(Arc::new(opened?)),
        }
    }
}

struct ChildWorker<'a> {
    job: &'a WorkerArgs,
    backend: Arc<SqliteBackend>,
    store: Store,
    graph: CompiledGraph<WalkState>,
    rng: Rng,
    /// The number of threads and copies that it has made.
    made: usize,
}

impl<'a> ChildWorker<'a> {
    fn open(job: &'a WorkerArgs) -> Result<Self, ReadFailure> {
        let backend = open(job, &options(job))?;
        let store = Store::with_backend(Arc::clone(&backend) as Arc<dyn Log>, options(job));
        let rng = Rng::stream(job.seed, u64::from(job.author));
        Ok(Self { job, backend, store, graph: tally::walk_graph()?, rng, made: 0 })
    }

    fn repeat(&mut self, mut step: impl FnMut(&mut Self) -> Result<(), ReadFailure>) -> Result<(), ReadFailure> {
        while !ENDS.load(Ordering::SeqCst) {
            step(self)?;
            std::thread::sleep(Duration::from_micros(self.rng.below(800) as u64));
        }
        say("V close");
        Ok(())
    }

    fn write(&mut self) -> Result<(), ReadFailure> {
        let slot = self.job.slot;
        match self.rng.below(100) {
            0..35 => self.add(&format!("own-{slot}")),
            35..50 => self.add("shared"),
            50..65 => self.add(&format!("pair-{slot}")),
            65..75 => self.add(&format!("memory-{slot}")),
            75..92 => self.walk(&format!("walk-{slot}")),
            _ => self.pass(6),
        }
    }

    /// Makes the next call on an entity that is not of a graph.
    fn add(&mut self, entity: &str) -> Result<(), ReadFailure> {
        let author = self.job.author;
        if EntityKind::of(entity) == EntityKind::Own
            && self.job.control == Some(WorkerControl::Rewound)
            && self.rng.chance(10)
        {
            _ = self.store.delete_thread(entity)?;
        }
        let (head, n) = match EntityKind::of(entity) {
            EntityKind::Own | EntityKind::Shared => self.head_of(entity)?,
            _ => (None, tally::read(&self.store, entity)?.last() + 1),
        };
        let (store, control) = (self.store.clone(), self.job.control);
        self.call(entity, n, move || match EntityKind::of(entity) {
            EntityKind::Pair => commit_pair(&store, tally::pair_batches(&store, entity, n, author)?, control),
            EntityKind::Memory => {
                let changes = tally::memory_changes(&store, entity, n, author)?;
                Ok(store.backend().side_tables()?.commit_kv(&changes)?)
            }
            _ => {
                let thread = store.thread(entity)?.with_state::<TallyState>();
                thread.update_at(head, tally::tally_change(entity, n, author))?;
                Ok(())
            }
        })
    }

    /// Returns the head of a thread and the number of the next call.
    fn head_of(&self, entity: &str) -> Result<(Option<CheckpointId>, i64), ReadFailure> {
        let Some(head) = self.store.thread(entity)?.head()? else { return Ok((None, 1)) };
        Ok((Some(head.id()), tally::verify_tally(entity, &head.state()?)?.last() + 1))
    }

    /// Makes a call and reports it. A refusal that the documentation allows is reported, others are failures.
    fn call(&self, entity: &str, n: i64, make: impl FnOnce() -> Result<(), ReadFailure>) -> Result<(), ReadFailure> {
        say(&format!("B {entity} {n}"));
        let control = self.job.control;
        if control == Some(WorkerControl::EarlyAck) {
            say(&format!("A {entity} {n}"));
        }
        let begin = SystemClock.elapsed();
        let failure = match make() {
            Ok(()) if control == Some(WorkerControl::FalseRefusal) => {
                say(&format!("F {entity} {n} conflict"));
                return Ok(());
            }
            Ok(()) => {
                say(&format!("A {entity} {n}"));
                return Ok(());
            }
            Err(failure) => failure,
        };
        let ReadFailure::Error(error) = &failure else { return Err(failure) };
        match error.as_store() {
            Some(StoreError::Busy { waited_ms, holder }) => {
                // Each commit of a turn of a graph has a limit of its own.
                let is_one_commit = EntityKind::of(entity) != EntityKind::Walk;
                let measured = (SystemClock.elapsed() - begin).as_millis() as u64;
                say_busy(entity, n, if is_one_commit { measured.max(*waited_ms) } else { *waited_ms }, *holder);
            }
            Some(StoreError::Conflict { .. }) if EntityKind::of(entity) == EntityKind::Shared => {
                say(&format!("F {entity} {n} conflict"));
                return Ok(());
            }
            _ => return Err(failure),
        }
        // A turn of a graph has several commits, and those before the refused one stay.
        let is_there = tally::read(&self.store, entity)?.calls().any(|call| call == (n, self.job.author));
        if is_there && EntityKind::of(entity) != EntityKind::Walk {
            return Err(ReadFailure::Wrong(format!("call {n} of {entity} was refused and is there")));
        }
        Ok(())
    }

    /// Ends the turn that another process has left, or runs one.
    fn walk(&mut self, entity: &str) -> Result<(), ReadFailure> {
        let durability = [Durability::Sync, Durability::Async, Durability::Exit][self.rng.below(3)];
        let thread = self.store.thread(entity)?;
        let state: WalkState = thread.head()?.map_or(Ok(WalkState::default()), |head| head.state())?;
        let run = self.graph.run(&thread).durability(durability);
        if tally::walk_has_ended(&state) {
            let (n, author) = (state.turn + 1, self.job.author);
            return self.call(entity, n, || {
                run.invoke(tally::walk_input(n, author))?;
                Ok(())
            });
        }
        match run.invoke(Input::Continue) {
            Ok(outcome) if !tally::walk_has_ended(outcome.state()) => {
                Err(ReadFailure::Wrong(format!("a run went on with {entity}, and its turn has not ended")))
            }
            done => unless_busy("continue", done.map(|_| ())).map(|_| ()),
        }
    }

    /// Makes a thread with a fork, and deletes both.
    fn pass(&mut self, length: usize) -> Result<(), ReadFailure> {
        self.made += 1;
        let name = format!("passing-{}-{}", self.job.author, self.made);
        let fork = format!("{name}.fork");
        let thread = self.store.thread(&name)?;
        for n in 1..=1 + self.rng.below(length) {
            let change = tally::tally_change(&name, n as i64, self.job.author);
            if unless_busy("update", thread.update(change).map(|_| ()))?.is_none() {
                return Ok(());
            }
        }
        if let Some(head) = thread.head()? {
            unless_busy("fork", head.fork_to(&fork).map(|_| ()))?;
        }
        say("V delete");
        say(&format!("D {name}"));
        say(&format!("D {fork}"));
        if unless_busy("delete", self.store.delete_threads([&name, &fork]))?.is_none() {
            return Ok(());
        }
        say(&format!("d {name}"));
        say(&format!("d {fork}"));
        for name in [&name, &fork] {
            if self.store.thread(name)?.head()?.is_some() {
                return Err(ReadFailure::Wrong(format!("{name} was deleted and is shown")));
            }
        }
        Ok(())
    }

    fn maintain(&mut self) -> Result<(), ReadFailure> {
        match self.rng.below(100) {
            0..15 => {
                say("V copy-wal");
                match self.backend.checkpoint_wal() {
                    // It waits for no other process.
                    Err(StoreError::Busy { .. }) => {}
                    copied => copied?,
                }
            }
            15..32 => self.back_up()?,
            32..45 => {
                say("V reclaim");
                unless_busy("reclaim", self.store.reclaim())?;
            }
            45..67 => self.compact()?,
            67..75 => {
                say("V check");
                if let Some(problem) = self.store.check()?.problems.first() {
                    return Err(ReadFailure::Wrong(format!("check finds {problem}")));
                }
            }
            _ => self.pass(40)?,
        }
        Ok(())
    }

    fn compact(&mut self) -> Result<(), ReadFailure> {
        say("V compact");
        if self.job.control == Some(WorkerControl::CopiedCompaction) {
            self.made += 1;
            let copy = self.job.folder.join(format!("compact-{}-{}.db", self.job.author, self.made));
            self.store.backup(&copy)?;
            return std::fs::rename(&copy, self.job.store()).map_err(|error| ReadFailure::Wrong(error.to_string()));
        }
        unless_busy("compact", self.store.compact()).map(|_| ())
    }

    /// Copies the store to a new file, and verifies the copy.
    fn back_up(&mut self) -> Result<(), ReadFailure> {
        self.made += 1;
        let path = self.job.folder.join(format!("copy-{}-{}.db", self.job.author, self.made));
        let entities = tally::entities(self.job.writers);
        let last = |store: &Store| {
            let read = |entity: &String| Ok::<_, ReadFailure>(tally::read(store, entity)?.last());
            entities.iter().map(read).collect::<Result<Vec<i64>, _>>()
        };
        let before = last(&self.store)?;
        say("V backup");
        if unless_busy("backup", self.store.backup(&path))?.is_none() {
            return Ok(());
        }
        say("V verify-backup");
        let copy = Store::open_with(&path, OpenOptions::new().read_only(true))?;
        if let Some(problem) = copy.check()?.problems.first() {
            return Err(ReadFailure::Wrong(format!("check of a backup finds {problem}")));
        }
        for ((entity, before), after) in entities.iter().zip(before).zip(last(&copy)?) {
            if after < before {
                return Err(ReadFailure::Wrong(format!(
                    "a backup has call {after} of {entity}, and {before} was there"
                )));
            }
        }
        drop(copy);
        remove_store(&path);
        Ok(())
    }
}

/// Reports a call that another process kept from its lock, and returns `None` for it.
fn unless_busy<T, E: Into<annals_graph::Error>>(call: &str, result: Result<T, E>) -> Result<Option<T>, ReadFailure> {
    match result.map_err(Into::into) {
        Ok(value) => Ok(Some(value)),
        Err(error) => {
            let Some(StoreError::Busy { waited_ms, holder }) = error.as_store() else {
                return Err(ReadFailure::Error(Box::new(error)));
            };
            say_busy(call, 0, *waited_ms, *holder);
            Ok(None)
        }
    }
}

/// Reports a call that was refused because of a lock: the milliseconds that it waited, and the process that held it.
fn say_busy(entity: &str, n: i64, waited_ms: u64, holder: Option<u32>) {
    let holder = holder.map_or_else(|| "-".to_owned(), |holder| holder.to_string());
    say(&format!("F {entity} {n} busy {waited_ms} {holder}"));
}

/// Commits the changes of a pair in one batch.
fn commit_pair(store: &Store, batches: Vec<Batch>, control: Option<WorkerControl>) -> Result<(), ReadFailure> {
    if control == Some(WorkerControl::HalfCommit) {
        for batch in &batches {
            store.commit(batch)?;
        }
        return Ok(());
    }
    Batch::of_all(batches).map_or(Ok(()), |batch| Ok(store.commit(&batch)?))
}

/// Reads everything again and again: with a handle that stays open for reading or for writing, or with a new one for
/// each pass.
fn read_until_the_end(job: &WorkerArgs) -> Result<(), ReadFailure> {
    let options = options(job).head_cache_bytes(0).read_only(!job.author.is_multiple_of(3));
    let reopens = job.author % 3 == 1;
    let mut known: BTreeMap<String, SeenCalls> = BTreeMap::new();
    let mut open_store = None;
    while !ENDS.load(Ordering::SeqCst) {
        let store = match open_store.take() {
            Some(store) => store,
            None => Store::with_backend(open(job, &options)?, options.clone()),
        };
        say("V read");
        read_all(job, &store, &mut known)?;
        say("H");
        if !reopens {
            open_store = Some(store);
        }
    }
    Ok(())
}

fn read_all(job: &WorkerArgs, store: &Store, known: &mut BTreeMap<String, SeenCalls>) -> Result<(), ReadFailure> {
    for entity in tally::entities(job.writers) {
        let seen = tally::read(store, &entity)?;
        let before = known.get(&entity).cloned().unwrap_or_default();
        if !seen.continues(&before) {
            let (from, to) = (before.last(), seen.last());
            return Err(ReadFailure::Wrong(format!("{entity} went back or was changed, from call {from} to {to}")));
        }
        if let Some((n, author)) = seen.calls().last().filter(|_| seen.last() > before.last()) {
            say(&format!("S {entity} {n} {author}"));
        }
        known.insert(entity, seen);
    }
    for record in store.threads()?.iter().filter(|record| EntityKind::of(record.id.as_str()) == EntityKind::Passing) {
        match tally::read(store, record.id.as_str()) {
            // It was deleted in the meantime.
            Err(failure) if failure.is_not_found() => {}
            read => _ = read?,
        }
    }
    Ok(())
}
