//! The workload: actors on the public API of the engine and of the executor, each with threads of its own.
//!
//! An actor runs turns of a graph with parallel nodes and subgraphs (all durabilities), interrupts and resume values,
//! sleeps and their timers, edits of the past, forks, updates without a graph, also of maps and texts, deletes,
//! prunings, copies of threads, transactions on a table of the application, and changes of the key-value memory; it
//! copies the WAL and the store, and compacts the file. Verbs
//! that the store gains become variants of [`Act`].

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use annals::base::{Clock, Timestamp};
use annals::history::PrunePolicy;
use annals::state::{KeyMap, Text};
use annals::store::batch::{Batch, NewCheckpoint, Parent};
use annals::store::log::Log;
use annals::store::{Erasure, OpenOptions, Source, StoreError, Synchronous};
use annals_graph::Durability;
use annals_graph::graph::Persistence;
use annals_graph::prelude::*;

use crate::proxy::{Calls, LedgerEntry, Proxy};
use crate::rng::Rng;
use crate::sql;
use crate::trace::ScratchFolder;

/// The timestamp at which every workload begins.
const BEGIN_US: i64 = 1_790_000_000_000_000;
/// Microseconds that a sleeping task sleeps.
const NAP_US: i64 = 3_600_000_000;

/// A clock that goes on by a millisecond when an actor begins an act, and stands still during the act. Threads of the
/// store and of the executor read it at any time: were a read to move it, they would decide which timestamps a workload
/// stores.
#[derive(Clone, Debug)]
struct ActClock(Arc<AtomicI64>);

impl ActClock {
    fn begin_act(&self) {
        self.0.fetch_add(1_000, Ordering::SeqCst);
    }
}

impl Clock for ActClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

/// The size of a workload.
#[derive(Clone, Debug)]
pub(crate) struct WorkloadShape {
    pub(crate) seed: u64,
    /// The number of the process: 0, or 1 for the second one on the file.
    pub(crate) process: u8,
    /// Threads of the operating system at the same time.
    pub(crate) actors: usize,
    /// Acts of each actor in a round.
    pub(crate) acts: usize,
    /// Times that the store is opened.
    pub(crate) rounds: usize,
    /// Bytes of the longest texts.
    pub(crate) text_max: usize,
    pub(crate) synchronous: Synchronous,
    /// Milliseconds that a commit waits for another process.
    pub(crate) busy_ms: u64,
    /// True if no batch is submitted to the background: then a seed decides every byte.
    pub(crate) waits: bool,
    /// Compactions among 100 acts, and the bytes that each has to free, at most.
    pub(crate) compactions: usize,
    pub(crate) freed_max: usize,
}

#[derive(State, Clone, Default, Debug)]
struct WorkloadState {
    #[channel(messages)]
    messages: Messages,
    #[channel(append)]
    log: List<String>,
    #[channel(last)]
    turn: i64,
    #[channel(last)]
    note: String,
    #[channel(map)]
    facts: KeyMap<String>,
    #[channel(text)]
    story: Text,
}

/// The state of the subgraph. Its list is its own: one that both had would double in each turn.
#[derive(State, Clone, Default, Debug)]
struct Deep {
    #[channel(messages)]
    messages: Messages,
    #[channel(append)]
    depths: List<String>,
    #[channel(last)]
    turn: i64,
}

/// The graphs that the actors run.
struct Graphs {
    /// Two nodes side by side, and after them two subgraphs: one that retains its state, and one that begins anew in
    /// each turn.
    parallel: CompiledGraph<WorkloadState>,
    /// A node that interrupts, beside one that does not.
    asking: CompiledGraph<WorkloadState>,
    /// A node that sleeps.
    napping: CompiledGraph<WorkloadState>,
}

fn graphs() -> &'static Graphs {
    static GRAPHS: OnceLock<Graphs> = OnceLock::new();
    GRAPHS.get_or_init(|| Graphs::make().expect("the graphs compile"))
}

impl Graphs {
    fn make() -> Result<Self> {
        let says = |name: &'static str| {
            move |chat: &WorkloadState| {
                let text = format!("{name} in turn {} after {} messages", chat.turn, chat.messages.len());
                let id = format!("{name}-{}", chat.turn % 3);
                let fact = (format!("{name} {}", chat.turn % 4), text.clone());
                let update = WorkloadState::update().messages([Message::ai(text).with_id(id)]);
                Ok(update.log([format!("{name} {}", chat.turn)]).facts([fact]).story(format!("{name}. ")))
            }
        };
        let deep = |deep: &Deep| {
            let text = format!("deep in turn {} after {} messages", deep.turn, deep.messages.len());
            let message = Message::ai(text).with_id(format!("deep-{}", deep.turn % 3));
            Ok(Deep::update().messages([message]).depths([format!("deep {}", deep.turn)]))
        };
        let inside = |persistence| {
            StateGraph::<Deep>::new().node("deep", deep).edge(START, "deep").persistence(persistence).compile()
        };
        let (inner, once) = (inside(Persistence::PerThread)?, inside(Persistence::PerInvocation)?);
        let parallel = StateGraph::<WorkloadState>::new()
            .node("left", says("left"))
            .node("right", says("right"))
            .node("inner", inner)
            .node("once", once)
            .edge(START, "left")
            .edge(START, "right")
            .join(["left", "right"], "inner")
            .edge("inner", "once")
            .compile()?;
        let ask = |chat: &WorkloadState, ctx: &Context| {
            let first = ctx.interrupt(format!("first of turn {}?", chat.turn))?;
            let second = ctx.interrupt("second?")?;
            Ok(WorkloadState::update().log([format!("asked: {first:?}, {second:?}")]))
        };
        let asking = StateGraph::<WorkloadState>::new()
            .node("ask", ask)
            .node("beside", says("beside"))
            .edge(START, "ask")
            .edge(START, "beside")
            .compile()?;
        let nap = |chat: &WorkloadState, ctx: &Context| {
            ctx.sleep_until(Timestamp::from_micros(BEGIN_US + NAP_US * (1 + chat.turn)))?;
            Ok(WorkloadState::update().log(["awake".to_string()]))
        };
        let napping = StateGraph::<WorkloadState>::new().node("nap", nap).edge(START, "nap").compile()?;
        Ok(Self { parallel, asking, napping })
    }
}

/// The step that an actor takes.
#[derive(Clone, Copy, Debug)]
enum Act {
    Turn(Durability),
    Update,
    Maps,
    Ask,
    Nap,
    Fork,
    Edit,
    Delete,
    Prune,
    CopyThread,
    Transact,
    Remember,
    Forget,
    CopyWal,
    Backup,
    Compact,
}

impl Act {
    fn draw(rng: &mut Rng, compactions: usize) -> Self {
        if rng.chance(compactions) {
            return Self::Compact;
        }
        match rng.below(100) {
            0..14 => Self::Turn(Durability::Sync),
            14..22 => Self::Turn(Durability::Async),
            22..28 => Self::Turn(Durability::Exit),
            28..37 => Self::Update,
            37..44 => Self::Maps,
            44..52 => Self::Ask,
            52..56 => Self::Nap,
            56..62 => Self::Fork,
            62..68 => Self::Edit,
            68..72 => Self::Delete,
            72..79 => Self::Prune,
            79..82 => Self::CopyThread,
            82..86 => Self::Transact,
            86..92 => Self::Remember,
            92..94 => Self::Forget,
            94..97 => Self::CopyWal,
            _ => Self::Backup,
        }
    }
}

/// The phase of a thread: an open interrupt or a sleeping task is ended before another graph runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    Asked(u8),
    Napping,
}

/// A thread of an actor.
#[derive(Clone, Debug)]
struct OwnedThread {
    name: String,
    phase: Phase,
    turn: i64,
    /// The thread that it was forked from.
    source: Option<String>,
}

/// A user of the store, on one thread of the operating system.
struct Actor {
    name: String,
    rng: Rng,
    text_max: usize,
    waits: bool,
    compactions: usize,
    freed_max: usize,
    owned: Vec<OwnedThread>,
    made: usize,
    keys: usize,
    /// The rows that it has written to the application's table.
    rows: i64,
    /// The last step, for the text of a failure.
    at_work: String,
    clock: ActClock,
}

/// The calls that failed, with their errors.
type Failures = Vec<String>;

impl Actor {
    fn new(shape: &WorkloadShape, number: usize, clock: &ActClock) -> Self {
        Self {
            name: format!("p{}a{number}", shape.process),
            rng: Rng::stream(shape.seed, 100 + 10 * u64::from(shape.process) + number as u64),
            text_max: shape.text_max,
            waits: shape.waits,
            compactions: shape.compactions,
            freed_max: shape.freed_max,
            owned: Vec::new(),
            made: 0,
            keys: 0,
            rows: 0,
            at_work: String::new(),
            clock: clock.clone(),
        }
    }

    fn text(&mut self) -> String {
        let size = match self.rng.below(10) {
            0..7 => 10 + self.rng.below(150),
            7..9 => self.rng.below(3_000),
            _ => self.rng.below(self.text_max),
        };
        let mut text = format!("{:016x} ", self.rng.next());
        while text.len() < size {
            text.push(char::from(b'a' + (text.len() % 23) as u8));
        }
        text
    }

    fn add(&mut self, source: Option<String>) -> usize {
        self.made += 1;
        let name = format!("{}-{}", self.name, self.made);
        self.owned.push(OwnedThread { name, phase: Phase::Idle, turn: 0, source });
        self.owned.len() - 1
    }

    /// Picks a thread, sometimes a new one.
    fn pick(&mut self) -> usize {
        if self.owned.is_empty() || (self.owned.len() < 4 && self.rng.chance(25)) {
            return self.add(None);
        }
        self.rng.below(self.owned.len())
    }

    fn step(&mut self, store: &Store, proxy: &Proxy) -> Result<()> {
        self.clock.begin_act();
        let at = self.pick();
        let act = Act::draw(&mut self.rng, self.compactions);
        self.at_work = format!("{act:?} on {}", self.owned[at].name);
        match (act, self.owned[at].phase) {
            (Act::Turn(_) | Act::Ask | Act::Nap, Phase::Asked(_) | Phase::Napping) => self.finish(store, at),
            (Act::Turn(Durability::Async), Phase::Idle) if self.waits => {
                self.run(store, at, &graphs().parallel, Durability::Sync).map(|_| ())
            }
            (Act::Turn(durability), Phase::Idle) => self.run(store, at, &graphs().parallel, durability).map(|_| ()),
            (Act::Ask, Phase::Idle) => {
                let open = self.run(store, at, &graphs().asking, Durability::Sync)?;
                self.owned[at].phase = if open { Phase::Asked(0) } else { Phase::Idle };
                Ok(())
            }
            (Act::Nap, Phase::Idle) => {
                let open = self.run(store, at, &graphs().napping, Durability::Sync)?;
                self.owned[at].phase = if open { Phase::Napping } else { Phase::Idle };
                Ok(())
            }
            (Act::Update, _) => self.update(store, at),
            (Act::Maps, _) => self.maps(store, at),
            // A part of a pruning may be done when another process locks the file, so no outcome is certain.
            (Act::Prune, _) if self.waits => self.update(store, at),
            (Act::Prune, _) => self.prune(store, at),
            (Act::CopyThread, _) => self.copy(store, at),
            (Act::Transact, _) => self.transact(store, proxy, at),
            (Act::Fork, _) => self.fork(store, at),
            (Act::Edit, _) => self.edit(store, at),
            (Act::Delete, _) => self.delete(store, at),
            (Act::Remember, _) => {
                self.keys += 1;
                let (key, text) = (format!("k{}", self.rng.below(4)), self.text());
                let members = [("n".to_owned(), Value::from(self.keys as i64)), ("text".to_owned(), text.into())];
                let value = Value::from(members.into_iter().collect::<annals::base::Map>());
                let inner = if self.rng.chance(50) { "a" } else { "b" };
                store.kv().put([self.name.as_str(), inner], key, value)?;
                Ok(())
            }
            (Act::Forget, _) => {
                let (key, inner) = (format!("k{}", self.rng.below(4)), if self.rng.chance(50) { "a" } else { "b" });
                store.kv().delete([self.name.as_str(), inner], key)?;
                Ok(())
            }
            (Act::CopyWal, _) => match proxy.checkpoint_wal() {
                // Another process may read at the time.
                Err(StoreError::Busy { .. }) => Ok(()),
                copied => Ok(copied?),
            },
            (Act::Backup, _) => self.back_up(store),
            (Act::Compact, _) => self.compact(store, at),
        }
    }

    fn update(&mut self, store: &Store, at: usize) -> Result<()> {
        let text = self.text();
        let id = format!("said-{}", self.rng.below(5));
        let change = WorkloadState::update().note(text.clone()).messages([Message::human(text).with_id(id)]);
        store.thread(&self.owned[at].name)?.update(change)?;
        // An update of the engine leaves no task that is due.
        self.owned[at].phase = Phase::Idle;
        Ok(())
    }

    /// Changes a map and a text without a graph.
    fn maps(&mut self, store: &Store, at: usize) -> Result<()> {
        let (text, key, gone) = (self.text(), self.rng.below(6), self.rng.below(6));
        let part: String = text.chars().take(40).collect();
        let write = store.thread(&self.owned[at].name)?.write().put("facts", &format!("fact {key}"), text);
        write.remove("facts", &format!("fact {gone}")).append_text("story", part).commit()?;
        self.owned[at].phase = Phase::Idle;
        Ok(())
    }

    /// Prunes a thread down to its last checkpoints. Their states stay.
    fn prune(&mut self, store: &Store, at: usize) -> Result<()> {
        let thread = store.thread(&self.owned[at].name)?;
        let shown = || -> Result<_> {
            Ok(match thread.head()? {
                Some(head) => Some((head.id(), head.values()?)),
                None => None,
            })
        };
        let before = shown()?;
        let kept = 1 + self.rng.below(4) as u64;
        let pruned = thread.prune(&PrunePolicy::new().keep_last(kept));
        assert_eq!(shown()?, before, "the head shows what it showed before the pruning");
        Ok(_ = pruned?)
    }

    /// Copies a thread, which goes on without the original.
    fn copy(&mut self, store: &Store, at: usize) -> Result<()> {
        let thread = store.thread(&self.owned[at].name)?;
        if thread.head()?.is_none() || self.owned.len() > 5 {
            return Ok(());
        }
        let copy = self.add(None);
        let name = self.owned[copy].name.clone();
        self.owned[copy] = OwnedThread { name: name.clone(), ..self.owned[at].clone() };
        match thread.copy_to(&name) {
            Ok(_) => Ok(()),
            Err(error) => {
                self.owned.remove(copy);
                Err(error.into())
            }
        }
    }

    /// Writes a row of the application's table, with a checkpoint or alone.
    fn transact(&mut self, store: &Store, proxy: &Proxy, at: usize) -> Result<()> {
        let thread = store.thread(&self.owned[at].name)?;
        let head = thread.head()?.filter(|_| self.rng.chance(50)).map(|head| head.id());
        let batch = head.map(|head| {
            let id = store.mint_checkpoint(0, Some(&head));
            let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), Some(head));
            batch.checkpoints.push(NewCheckpoint::new(id, Some(Parent::Local(head)), 0, Source::Update, store.now()));
            Box::new(batch)
        });
        self.rows += 1;
        let (actor, number, text) = (self.name.clone(), self.rows, self.text());
        let entry = LedgerEntry { actor, number, text, clears: self.rng.chance(30), batch };
        let LedgerEntry { actor, text, clears, batch, .. } = entry.clone();
        proxy.account(entry, || {
            store.transaction_with(|tx| {
                tx.execute_batch(sql::LEDGER)?;
                if clears {
                    tx.execute(sql::LEDGER_CLEAR, (&actor, number))?;
                }
                tx.execute(sql::LEDGER_INSERT, (&actor, number, &text))?;
                Ok::<_, StoreError>(((), batch.map(|batch| *batch)))
            })
        })?;
        if head.is_some() {
            self.owned[at].phase = Phase::Idle;
        }
        Ok(())
    }

    /// Frees pages before others that are in use, and returns them to the file system.
    fn compact(&mut self, store: &Store, at: usize) -> Result<()> {
        self.made += 1;
        let passing = format!("{}-passing-{}", self.name, self.made);
        let text = "p".repeat(4_096 + self.rng.below(self.freed_max));
        store.thread(&passing)?.update(WorkloadState::update().note(text))?;
        self.update(store, at)?;
        let _: Erasure = store.delete_threads([&passing])?;
        if self.rng.chance(50) {
            let _: Erasure = store.reclaim()?;
        }
        match store.compact() {
            // Another process may write at the time.
            Err(StoreError::Busy { .. }) => Ok(()),
            compacted => Ok(_ = compacted?),
        }
    }

    /// Copies the store to a folder without faults. A copy is whole and has the heads of the actor; a failed one leaves
    /// no file.
    fn back_up(&self, store: &Store) -> Result<()> {
        let scratch =
            ScratchFolder::new().map_err(|error| StoreError::Read { reason: error.to_string(), source: None })?;
        let head_of = |store: &Store, owned: &OwnedThread| {
            Ok::<_, StoreError>(store.thread(&owned.name)?.head()?.map(|it| it.id()))
        };
        let heads = |store: &Store| self.owned.iter().map(|owned| head_of(store, owned)).collect::<Result<Vec<_>, _>>();
        let before = heads(store)?;
        if let Err(error) = store.backup(scratch.store()) {
            let left = std::fs::read_dir(scratch.path()).map_or(0, Iterator::count);
            assert_eq!(left, 0, "a failed backup leaves a file: {error}");
            return Err(error.into());
        }
        let copy = Store::open_with(scratch.store(), OpenOptions::new().read_only(true))?;
        let report = copy.check()?;
        assert!(report.problems.is_empty(), "a backup has problems: {:?}", report.problems);
        assert_eq!(heads(&copy)?, before, "a backup has the heads of the store");
        Ok(())
    }

    /// Runs a graph with a new input. Returns whether it stopped at an interrupt or a sleep.
    fn run(
        &mut self,
        store: &Store,
        at: usize,
        graph: &CompiledGraph<WorkloadState>,
        durability: Durability,
    ) -> Result<bool> {
        let text = self.text();
        let owned = &mut self.owned[at];
        owned.turn += 1;
        let id = format!("human-{}", owned.turn);
        let input =
            WorkloadState::update().turn(owned.turn).messages([Message::human(text.clone()).with_id(id.clone())]);
        let thread = store.thread(&owned.name)?;
        let run = graph.run(&thread).durability(durability);
        // Side by side, nodes store their writes in the order in which they end.
        let run = if self.waits { run.concurrency_max(1) } else { run };
        let outcome = run.invoke(input)?;
        let said = outcome.state().messages.iter().find(|message| message.id.as_deref() == Some(&*id));
        let found = said.map(|message| message.text().to_string());
        assert_eq!(found.as_deref(), Some(&*text), "the state has the text that was written");
        Ok(!outcome.is_done())
    }

    /// Ends an open interrupt or a sleep.
    fn finish(&mut self, store: &Store, at: usize) -> Result<()> {
        let text = self.text();
        let owned = &mut self.owned[at];
        let thread = store.thread(&owned.name)?;
        match owned.phase {
            Phase::Asked(answered) => {
                let outcome =
                    graphs().asking.run(&thread).durability(Durability::Sync).invoke(Command::resume(text))?;
                owned.phase = if outcome.is_done() { Phase::Idle } else { Phase::Asked(answered + 1) };
            }
            _ => {
                self.clock.0.fetch_max(BEGIN_US + NAP_US * (2 + owned.turn), Ordering::SeqCst);
                graphs().napping.run(&thread).durability(Durability::Sync).invoke(Input::Continue)?;
                owned.phase = Phase::Idle;
            }
        }
        Ok(())
    }

    fn fork(&mut self, store: &Store, at: usize) -> Result<()> {
        let thread = store.thread(&self.owned[at].name)?;
        let history: Vec<_> = thread.history()?.take(4).collect::<std::result::Result<_, _>>()?;
        if history.is_empty() || self.owned.len() > 5 {
            return Ok(());
        }
        let point = &history[self.rng.below(history.len())];
        let source = self.owned[at].name.clone();
        let fork = self.add(Some(source));
        match point.fork_to(&self.owned[fork].name) {
            Ok(_) => Ok(()),
            Err(error) => {
                self.owned.remove(fork);
                Err(error.into())
            }
        }
    }

    /// Changes the state at an earlier checkpoint, which opens a branch.
    fn edit(&mut self, store: &Store, at: usize) -> Result<()> {
        let text = self.text();
        let thread = store.thread(&self.owned[at].name)?;
        let history: Vec<_> = thread.history()?.take(3).collect::<std::result::Result<_, _>>()?;
        if history.is_empty() || self.owned[at].phase != Phase::Idle {
            return Ok(());
        }
        let point = &history[self.rng.below(history.len())];
        let change = WorkloadState::update().note(text).log(["edited".to_string()]);
        graphs().parallel.update_state(point, change, "left")?;
        Ok(())
    }

    /// Deletes a thread with those that were forked from it.
    fn delete(&mut self, store: &Store, at: usize) -> Result<()> {
        let mut names = vec![self.owned[at].name.clone()];
        // A fork comes after its source.
        for owned in &self.owned {
            if owned.source.as_ref().is_some_and(|source| names.contains(source)) {
                names.push(owned.name.clone());
            }
        }
        // The bytes may go later: a fault can keep the log from being emptied.
        let _: Erasure = store.delete_threads(&names)?;
        self.owned.retain(|owned| !names.contains(&owned.name));
        Ok(())
    }
}

/// Runs a workload on the file at `path`. Returns the errors that callers were told of.
pub(crate) fn run(path: &Path, shape: &WorkloadShape, calls: &Arc<Calls>) -> Failures {
    let clock = ActClock(Arc::new(AtomicI64::new(BEGIN_US + i64::from(shape.process))));
    let mut actors: Vec<Actor> = (0..shape.actors).map(|number| Actor::new(shape, number, &clock)).collect();
    let mut failures = Vec::new();
    for round in 0..shape.rounds {
        let options = OpenOptions::new()
            .synchronous(shape.synchronous)
            .busy_timeout_ms(shape.busy_ms)
            .clock(clock.clone())
            .id_seed(Rng::stream(shape.seed, 7 + round as u64 + 1_000 * u64::from(shape.process)).next());
        let proxy = match Proxy::open(path, &options, calls) {
            Ok(proxy) => proxy,
            Err(error) => {
                failures.push(format!("open: {}: {error}", error.code()));
                continue;
            }
        };
        let store = Store::with_backend(Arc::clone(&proxy) as Arc<dyn Log>, options);
        let unknown = calls.unknown();
        let round = |actor: &mut Actor| {
            let mut failures = Vec::new();
            for _ in 0..shape.acts {
                if let Err(error) = actor.step(&store, &proxy) {
                    failures.push(format!("{}: {:?}: {error}", actor.at_work, error.kind()));
                }
                // A handle that is poisoned is reopened in the next round; until then it must only refuse.
                if calls.unknown() > unknown + 1 {
                    break;
                }
            }
            failures
        };
        if let [actor] = &mut actors[..] {
            failures.extend(round(actor));
        } else {
            std::thread::scope(|scope| {
                let threads: Vec<_> = actors.iter_mut().map(|actor| scope.spawn(|| round(actor))).collect();
                for thread in threads {
                    match thread.join() {
                        Ok(told) => failures.extend(told),
                        Err(panic) => std::panic::resume_unwind(panic),
                    }
                }
            });
        }
        drop((store, proxy));
        // Threads of a run may hold the handle for a moment after the run has returned.
        calls.wait_until_closed();
    }
    failures
}
