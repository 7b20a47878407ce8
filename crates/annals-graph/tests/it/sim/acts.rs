//! Scripts of acts on one thread: inputs, resume values, edits of the root graph and inside subgraphs, replays and
//! forks of older checkpoints, each of them repeated through crashes, lost commits, drains and cancels until it is
//! acknowledged.
//!
//! The law: *each input is consumed once, no acknowledged edit is lost, and after every act the view of the thread
//! equals that in a session without trouble.* The three parts are asserted apart: the first two on every session, also
//! on the one without trouble, the third by comparing the two.

use std::pin::Pin;
use std::sync::Arc;

use annals::base::CheckpointId;
use annals::state::DynState;
use annals::store::log::{Log, LogExt};
use annals_graph::prelude::*;
use annals_graph::task::{Interrupt, RunControl};
use annals_graph::{Durability, Error};

use super::disk::{Crash, Disk, Mutant};
use super::nested::{Inside, Nested, list, resume_value, text};
use super::turns::{Fate, Turns};
use super::{Rng, World, seeds, seeds_of_environment};
use crate::cases;
use crate::clock::SimClock;

/// The numbers of seeds: in the test command, and in all.
const SEEDS: (u64, u64) = (30, 4_000);
/// The numbers of those for which every crash point and every drain is tried.
const THOROUGH: (u64, u64) = (1, 60);

/// One act of a script.
#[derive(Clone, Debug)]
enum Act {
    /// Gives the thread an input, perhaps with an idempotency key.
    Start { keyed: bool },
    /// Answers all open interrupts.
    Resume { by_id: bool },
    /// Edits a subgraph at its head, or at its head after an earlier act, and perhaps runs at the edit.
    EditInside { which: usize, back: usize, node: &'static str, runs: bool },
    /// Edits the root graph at its head or at an earlier checkpoint.
    Edit { back: Back, node: String },
    /// Runs at an earlier checkpoint of the root graph.
    Replay(Back),
    /// Continues on a new thread that is a fork of a checkpoint.
    Fork(Back),
}

/// An earlier checkpoint.
#[derive(Clone, Copy, Debug)]
enum Back {
    /// So many checkpoints before the head.
    Steps(u64),
    /// The head after an earlier act.
    Act(usize),
}

/// The trouble of a session.
#[derive(Clone, Debug, Default)]
struct Trouble {
    crash: Option<Crash>,
    faults: Vec<u64>,
    failures: bool,
    stops: usize,
    drains: usize,
    /// The turn before which the run is drained.
    drain_at: Option<u64>,
    mutant: Option<Mutant>,
}

/// A subgraph that waits at an interrupt.
struct Place {
    thread: Thread,
    inside: Inside,
}

/// The thread between two acts.
struct Seen {
    head: Option<CheckpointId>,
    ended: bool,
    open: Vec<Interrupt>,
    lines: Vec<String>,
    places: Vec<Place>,
    shown: String,
}

/// A script that is played.
struct Session<'a> {
    seed: u64,
    trouble: &'a Trouble,
    durability: Durability,
    /// True if one task runs after another.
    narrow: bool,
    /// True if the blocking driver runs the graph, on this thread.
    blocking: bool,
    graph: CompiledGraph<DynState>,
    parts: Vec<Inside>,
    names: Vec<String>,
    turns: Turns,
    disk: Arc<Disk>,
    clock: SimClock,
    thread: Thread,
    rng: Rng,
    fate: Fate,
    /// True if the last run came to its end or to an interrupt.
    stopped: bool,
    /// The heads after the acts.
    heads: Vec<Snapshot>,
    /// The heads of subgraphs that waited at an interrupt after an act.
    inside: Vec<Snapshot>,
    /// The last edit inside a subgraph, if there were only resume values since: its mark, and the nodes to the
    /// subgraph.
    edited: Option<(String, String)>,
}

/// The course of a session.
struct Course {
    /// The acts, each with the view of the thread after it.
    trace: Vec<String>,
    log: Vec<String>,
    writes: u64,
    /// Number of turns in which the simulator decided what happens.
    decisions: u64,
    /// Number of batches that a broken backend has changed.
    broken: u64,
}

fn play(seed: u64, trouble: &Trouble) -> Course {
    let mut rng = Rng(seed.rotate_left(23) ^ 0xac75);
    let durability = [Durability::Sync, Durability::Async, Durability::Exit][rng.below(3)];
    let (narrow, acts, blocking) = (rng.chance(30), 3 + rng.below(6), rng.chance(25));
    let disk = Disk::new(trouble.crash, trouble.faults.clone());
    disk.break_as(trouble.mutant);
    if blocking {
        disk.write_at_once();
    }
    let clock = SimClock::default();
    let options = OpenOptions::new().clock(clock.clone()).id_seed(seed);
    let store = Store::with_backend(Arc::clone(&disk) as Arc<dyn Log>, options);
    let turns = Turns::default();
    let world = World {
        turns: turns.clone(),
        cache: store.cache(),
        failures: trouble.failures,
        hangs: false,
        tried: Arc::default(),
    };
    let nested = Nested::of(seed);
    let (graph, parts) = nested.build(&world);
    let fate = Fate { stops: trouble.stops, drains: trouble.drains, drain_at: trouble.drain_at, ..Fate::default() };
    let mut session = Session {
        seed,
        trouble,
        durability,
        narrow: narrow || blocking,
        blocking,
        graph,
        parts,
        names: nested.names(),
        turns: turns.clone(),
        disk: Arc::clone(&disk),
        clock,
        thread: store.thread("t").unwrap(),
        rng: Rng(seed ^ 0x0dd),
        fate,
        stopped: true,
        heads: Vec::new(),
        inside: Vec::new(),
        edited: None,
    };
    let trace = (0..acts).map(|number| session.act(number)).collect();
    let decisions = session.fate.decisions;
    Course { trace, log: turns.log(), writes: disk.writes(), decisions, broken: disk.broken() }
}

impl Session<'_> {
    /// Plays the next act. Returns it with the view of the thread after it.
    fn act(&mut self, number: usize) -> String {
        let before = self.look();
        let act = self.choose(number, &before);
        self.turns.note(format!("act {number}: {act:?}"));
        if !matches!(act, Act::Resume { .. } | Act::EditInside { .. }) {
            self.edited = None;
        }
        self.stopped = true;
        match &act {
            Act::Start { keyed } => self.start(number, *keyed, &before),
            Act::Resume { by_id } => self.resume(number, *by_id, &before),
            Act::EditInside { which, back, node, runs } => {
                self.edit_inside(number, &before, *which, *back, node, *runs);
            }
            Act::Edit { back, node } => self.edit(number, *back, node),
            Act::Replay(back) => {
                let old = self.find(*back);
                self.run_at(&old, before.head);
            }
            Act::Fork(back) => self.fork(number, *back),
        }
        self.settle();
        let after = self.look();
        self.heads.extend(self.alive(|session| Ok(session.thread.head()?)));
        for place in &after.places {
            self.inside.extend(self.alive(|_| Ok(place.thread.head()?)));
        }
        if after.ended {
            self.assert_told();
        }
        let shown = format!("{number} {act:?}: {}", after.shown);
        self.turns.note(shown.clone());
        shown
    }

    /// Chooses an act by the seed and by the view of the thread.
    fn choose(&self, number: usize, seen: &Seen) -> Act {
        let mut rng = Rng(self.seed ^ (number as u64 + 1).wrapping_mul(0x1234_5678_9abc_def1));
        if seen.head.is_none() {
            return Act::Start { keyed: rng.chance(30) };
        }
        let back = |rng: &mut Rng| match rng.chance(50) || self.durability == Durability::Exit {
            // The number of checkpoints that durability-exit stores depends on the number of runs.
            true => Back::Act(rng.below(self.heads.len())),
            false => Back::Steps(rng.below(6) as u64),
        };
        let node = |rng: &mut Rng| self.names[rng.below(self.names.len())].clone();
        let is_open = !seen.open.is_empty();
        match rng.below(20) {
            0..=7 if is_open => Act::Resume { by_id: rng.chance(50) },
            0..=7 => Act::Start { keyed: rng.chance(30) },
            8..=14 if !seen.places.is_empty() => {
                let which = rng.below(seen.places.len());
                let node = if rng.chance(70) { "note" } else { "ask" };
                // A run at an edit is a new branch, on which a subgraph without persisted state begins anew, as in
                // LangGraph.
                let persists = !seen.places[which].thread.namespace().as_str().contains(':');
                let back = if persists && rng.chance(40) { 1 + rng.below(3) } else { 0 };
                Act::EditInside { which, back, node, runs: back > 0 || (persists && rng.chance(40)) }
            }
            8..=12 => Act::Start { keyed: false },
            13..=15 => Act::Edit { back: back(&mut rng), node: node(&mut rng) },
            16 | 17 => Act::Replay(back(&mut rng)),
            _ => Act::Fork(back(&mut rng)),
        }
    }

    /// Reads until it succeeds: a commit that a dropped run has submitted may meet the crash in a read.
    fn alive<T>(&self, read: impl Fn(&Self) -> Result<T, Error>) -> T {
        for _ in 0..3 {
            match read(self) {
                Ok(value) => return value,
                Err(error) => assert!(self.disk.revive(), "seed {}: {error} {:#?}", self.seed, self.turns.log()),
            }
            self.restart();
        }
        panic!("seed {}: the store cannot be read", self.seed)
    }

    fn look(&self) -> Seen {
        self.alive(|session| {
            let state = session.graph.get_state(&session.thread)?;
            let mut shown = view(&state, "lines");
            let mut places = Vec::new();
            // Durability-exit need not store a subgraph that has ended.
            for task in state.tasks.iter().filter(|task| task.result.is_none()) {
                if let Some(inside) = session.parts.iter().find(|part| part.node == task.name) {
                    let path = format!("{}:{}", task.name, task.id);
                    find_places(&session.thread, path, inside, &mut places, &mut shown)?;
                }
            }
            Ok(Seen {
                head: state.checkpoint,
                ended: state.tasks.is_empty(),
                open: state.interrupts,
                lines: list(&state.values, "lines"),
                places,
                shown,
            })
        })
    }

    fn head(&self) -> Option<CheckpointId> {
        self.alive(|session| Ok(session.thread.head()?.map(|head| head.id())))
    }

    fn find(&self, back: Back) -> Snapshot {
        match back {
            Back::Act(at) => self.heads[at].clone(),
            Back::Steps(steps) => self.alive(|session| before_head(&session.thread, steps)),
        }
    }

    /// Runs once, on the thread or at a checkpoint.
    fn run(&mut self, at: Option<&Snapshot>, input: Input, key: Option<&str>) {
        let control = RunControl::new();
        // A run at a checkpoint that is drained before it begins leaves a fork at which subgraphs have not begun yet.
        if self.fate.drains > 0 && at.is_none() && self.rng.chance(12) {
            self.fate.drains -= 1;
            control.request_drain("before it begins");
            self.turns.note("a run is drained before it begins".into());
        }
        self.fate.controls = vec![control.clone()];
        let run = match at {
            Some(snapshot) => self.graph.run(snapshot),
            None => self.graph.run(&self.thread),
        };
        let mut run = run.control(&control).timer(self.clock.clone()).durability(self.durability);
        if let Some(key) = key {
            run = run.idempotency_key(key);
        }
        if self.narrow {
            run = run.concurrency_max(1);
        }
        if self.blocking {
            let drains = self.fate.drains > 0 && self.rng.chance(40);
            let drain_after = drains.then(|| self.rng.below(9) as u64);
            self.fate.drains -= usize::from(drains);
            let end = self.turns.run_blocking(&control, drain_after, || run.invoke(input));
            return self.note_ends(&[end]);
        }
        let future: Pin<Box<dyn Future<Output = Result<Outcome<DynState>, Error>> + '_>> =
            Box::pin(async move { run.ainvoke(input).await });
        let ends = self.turns.run(vec![future], &self.disk, &self.clock, &mut self.fate, &mut self.rng);
        self.note_ends(&ends);
    }

    /// Notes the end of a run, none if the run was dropped.
    fn note_ends(&mut self, ends: &[Result<Outcome<DynState>, Error>]) {
        self.stopped = matches!(ends, [Ok(Outcome::Done(_) | Outcome::Interrupted { .. })]);
        for end in ends {
            self.turns.note(match end {
                Ok(outcome) => format!("{outcome:?}"),
                Err(error) => {
                    assert!(!self.is_calm(), "seed {}: {error} {:#?}", self.seed, self.turns.log());
                    format!("error {error}")
                }
            });
        }
        // A run is drained for the end of its process.
        let is_drained = matches!(ends, [Ok(Outcome::Drained { .. })]);
        if self.disk.revive() || is_drained {
            self.stopped = false;
            self.restart();
        }
    }

    fn is_calm(&self) -> bool {
        let Trouble { crash, faults, failures, stops, drains, drain_at, mutant } = self.trouble;
        let hard = crash.is_some() || !faults.is_empty() || *failures || mutant.is_some();
        !hard && *stops == 0 && *drains == 0 && drain_at.is_none()
    }

    /// Checks the store after a crash, with an empty cache.
    fn restart(&self) {
        self.turns.note("restart".into());
        self.thread.store().clear_head_cache();
        let report = self.thread.store().check().unwrap();
        assert!(report.problems.is_empty(), "seed {}: {:?}", self.seed, report.problems);
    }

    /// Continues until the run comes to its end or to an interrupt.
    fn settle(&mut self) {
        for _ in 0..60 {
            if self.stopped {
                return;
            }
            self.run(None, Input::Continue, None);
        }
        panic!("seed {} comes to no end: {:#?}", self.seed, self.turns.log());
    }

    /// Repeats an act until it is acknowledged, or until a look shows that it was stored.
    fn repeat(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        for _ in 0..60 {
            if done(self) {
                return;
            }
        }
        panic!("seed {}: the act comes to no end: {:#?}", self.seed, self.turns.log());
    }

    fn start(&mut self, number: usize, keyed: bool, before: &Seen) {
        let mark = format!("in {number}");
        let update = DynUpdate::new().set("lines", Value::List(vec![mark.clone().into()])).set("topic", mark.clone());
        let input = annals_graph::IntoInput::<DynState, _>::into_input(update);
        let key = keyed.then(|| format!("request {number}"));
        let before = before.head;
        self.repeat(|session| {
            session.run(None, input.clone(), key.as_deref());
            if keyed { session.stopped } else { session.head() != before }
        });
        self.settle();
        let given = self.look().lines.iter().filter(|line| **line == mark).count();
        assert_eq!(given, 1, "seed {}: {mark} is consumed once: {:#?}", self.seed, self.turns.log());
    }

    /// Answers the open interrupts. A value without an id is given by a run with a key, which binds the value to the
    /// interrupt: without a key a run that continues after a crash offers the value again, as in LangGraph.
    fn resume(&mut self, number: usize, by_id: bool, before: &Seen) {
        let asked: Vec<_> = before.open.iter().map(|interrupt| interrupt.value.clone()).collect();
        let mut round = 0;
        self.repeat(|session| {
            session.settle();
            let open = session.look().open;
            let rest: Vec<_> = open.iter().filter(|interrupt| asked.contains(&interrupt.value)).collect();
            let (value, key) = match rest.as_slice() {
                [] => return true,
                [one] if open.len() == 1 && !by_id => {
                    round += 1;
                    (resume_value(&one.value), Some(format!("answer {number} {round}")))
                }
                rest => {
                    let values = rest.iter().map(|open| (open.id.clone(), resume_value(&open.value)));
                    (Value::Map(values.collect()), None)
                }
            };
            let input = Input::Command(Command::resume(value));
            session.run(None, input.clone(), key.as_deref());
            for _ in 0..60 {
                if session.stopped || key.is_none() {
                    break;
                }
                session.run(None, input.clone(), key.as_deref());
            }
            false
        });
    }

    /// Runs at a checkpoint until the run has moved the head or, if it runs at an edited head, come to its end.
    fn run_at(&mut self, at: &Snapshot, before: Option<CheckpointId>) {
        self.repeat(|session| {
            session.run(Some(at), Input::Continue, None);
            session.stopped || session.head() != before
        });
    }

    fn edit_inside(&mut self, number: usize, before: &Seen, which: usize, back: usize, node: &str, runs: bool) {
        let Place { thread, inside } = &before.places[which];
        let mark = format!("edit {number}");
        let mut edited = None;
        let earlier = self.inside.iter().rev().filter(|head| head.point().namespace == *thread.namespace());
        let old = match earlier.clone().take(back + 1).last().filter(|_| back > 0) {
            Some(old) => old.clone(),
            None => self.alive(|_| Ok(thread.at("~0")?)),
        };
        self.repeat(|session| {
            let update = DynUpdate::new().set(inside.list, Value::List(vec![mark.clone().into()]));
            let result = match back {
                0 => inside.graph.update_state(thread, update, node),
                _ => inside.graph.update_state(&old, update, node),
            };
            match result {
                Ok(snapshot) => edited = Some(snapshot),
                Err(error) => {
                    assert!(!session.is_calm(), "seed {}: {error} {:#?}", session.seed, session.turns.log());
                    session.turns.note(format!("edit: {error}"));
                    if session.disk.revive() {
                        session.restart();
                    }
                    // The commit may have been stored though it was not acknowledged.
                    let lists = |head: &Snapshot| Ok::<_, Error>(shown_list(head, inside.list)?.contains(&mark));
                    let head = session.alive(|_| Ok(thread.head()?));
                    edited = head.filter(|head| session.alive(|_| lists(head)));
                }
            }
            edited.is_some()
        });
        let Some(edited) = edited else { return };
        let stored = self.alive(|_| shown_list(&edited, inside.list));
        let count = stored.iter().filter(|line| **line == mark).count();
        assert_eq!(count, 1, "seed {}: {mark} is stored: {:#?}", self.seed, self.turns.log());
        if runs {
            self.run_at(&edited, before.head);
            self.settle();
        }
        // An edit of one subgraph may make another one begin anew, and its edits with it.
        self.edited = Some((mark, nodes_of(thread.namespace().as_str())));
    }

    fn edit(&mut self, number: usize, back: Back, node: &str) {
        let old = self.find(back);
        let mark = format!("edit {number}");
        self.repeat(|session| {
            let update = DynUpdate::new().set("lines", Value::List(vec![mark.clone().into()]));
            let edited = session.graph.update_state(&old, update, node);
            if let Err(error) = &edited {
                assert!(!session.is_calm(), "seed {}: {error} {:#?}", session.seed, session.turns.log());
                session.turns.note(format!("edit: {error}"));
                if session.disk.revive() {
                    session.restart();
                }
            }
            // The commit may have been stored though it was not acknowledged.
            let is_stored = session.look().lines.contains(&mark);
            let log = session.turns.log();
            assert!(is_stored || edited.is_err(), "seed {}: {mark} was acknowledged: {log:#?}", session.seed);
            is_stored
        });
        self.settle_anew();
    }

    fn fork(&mut self, number: usize, back: Back) {
        let (old, name) = (self.find(back), format!("fork {number}"));
        self.repeat(|session| {
            if let Err(error) = old.fork_to(&name) {
                session.turns.note(format!("fork: {error}"));
                if session.disk.revive() {
                    session.restart();
                }
            }
            session.alive(|session| Ok(session.thread.store().thread(&name)?.head()?.is_some()))
        });
        self.thread = self.thread.store().thread(&name).unwrap();
        self.heads.clear();
        self.inside.clear();
        self.settle_anew();
    }

    fn settle_anew(&mut self) {
        self.stopped = false;
        self.settle();
    }

    /// Asserts that the subgraph that was edited has told the edit.
    fn assert_told(&mut self) {
        if let Some((mark, nodes)) = self.edited.take() {
            let told = self.alive(|session| {
                let backend = session.thread.store().backend();
                let mut told = false;
                for namespace in backend.namespaces(session.thread.id())? {
                    if nodes_of(namespace.as_str()) == nodes {
                        let head = session.thread.with_namespace(namespace).head()?;
                        let topic = head.map(|head| head.get("topic")).transpose()?.flatten();
                        told |= topic.is_some_and(|topic| text(&topic).contains(&mark));
                    }
                }
                Ok(told)
            });
            assert!(told, "seed {}: {mark} in {nodes} is lost: {:#?}", self.seed, self.turns.log());
        }
    }
}

/// Returns the checkpoint so many steps before the head of a namespace, or the oldest one of it that is nearer.
fn before_head(thread: &Thread, steps: u64) -> Result<Snapshot, Error> {
    let mut found = thread.at("~0")?;
    for _ in 0..steps {
        // The lineage of a fork goes on in the thread it was forked from.
        match found.parent()?.filter(|parent| parent.point().thread == *thread.id()) {
            Some(parent) => found = parent,
            None => break,
        }
    }
    Ok(found)
}

/// Returns the nodes of a path of tasks.
fn nodes_of(path: &str) -> String {
    path.split('|').map(|part| part.split(':').next().unwrap_or_default()).collect::<Vec<_>>().join("|")
}

fn shown_list(head: &Snapshot, channel: &str) -> Result<Vec<String>, Error> {
    let list = head.get(channel)?;
    Ok(list.as_ref().and_then(Value::as_list).unwrap_or_default().iter().map(text).collect())
}

/// Returns a state as text.
fn view(state: &annals_graph::StateSnapshot<DynState>, channel: &str) -> String {
    let open: Vec<_> = state.interrupts.iter().map(|interrupt| text(&interrupt.value)).collect();
    let lines = list(&state.values, channel);
    format!("{lines:?} topic {:?} next {:?} open {open:?}", text(state.values.get("topic")), state.next)
}

/// Shows the subgraph of an open task and those inside it. Those that wait at an interrupt are places for an edit.
fn find_places(
    thread: &Thread,
    path: String,
    inside: &Inside,
    places: &mut Vec<Place>,
    shown: &mut String,
) -> Result<(), Error> {
    let thread = thread.in_namespace(&path)?;
    let state = inside.graph.get_state(&thread)?;
    if state.checkpoint.is_none() {
        return Ok(());
    }
    *shown = format!("{shown}; {}: {}", nodes_of(&path), view(&state, inside.list));
    let thread = thread.with_namespace(state.namespace.clone());
    if !state.interrupts.is_empty() {
        places.push(Place { thread: thread.clone(), inside: inside.clone() });
    }
    let Some(deep) = &inside.deep else { return Ok(()) };
    for task in state.tasks.iter().filter(|task| task.name == deep.node && task.result.is_none()) {
        let path = format!("{}|{}:{}", thread.namespace(), task.name, task.id);
        find_places(&thread, path, deep, places, shown)?;
    }
    Ok(())
}

/// Plays the script of a seed through one random trouble, and compares with the session without.
pub(super) fn one_seed(seed: u64) {
    let calm = play(seed, &Trouble::default());
    let mut rng = Rng(seed.wrapping_mul(37) ^ 0x5ce1e);
    let crash = Crash { at: rng.below(calm.writes as usize) as u64, kept: rng.chance(50) };
    let trouble = Trouble {
        crash: rng.chance(70).then_some(crash),
        faults: if rng.chance(30) { vec![rng.below(calm.writes as usize) as u64] } else { Vec::new() },
        failures: rng.chance(30),
        stops: if rng.chance(40) { 1 + rng.below(3) } else { 0 },
        drains: if rng.chance(60) { 1 + rng.below(4) } else { 0 },
        ..Trouble::default()
    };
    let troubled = play(seed, &trouble);
    assert_eq!(troubled.trace, calm.trace, "seed {seed}, {trouble:?}: {:#?} {:#?}", calm.log, troubled.log);
}

#[test]
fn inputs_are_consumed_once_and_edits_are_not_lost_whatever_happens() {
    seeds(0, cases(SEEDS.0, SEEDS.1), one_seed);
}

#[test]
fn a_crash_at_any_write_and_a_drain_at_any_turn_lose_nothing() {
    seeds(1_000_000, 1_000_000 + cases(THOROUGH.0, THOROUGH.1), |seed| {
        let calm = play(seed, &Trouble::default());
        let same = |trouble: Trouble| {
            let troubled = play(seed, &trouble);
            assert_eq!(troubled.trace, calm.trace, "seed {seed}, {trouble:?}: {:#?} {:#?}", calm.log, troubled.log);
        };
        for at in 0..calm.writes {
            for kept in [false, true] {
                same(Trouble { crash: Some(Crash { at, kept }), ..Trouble::default() });
            }
        }
        for at in 0..calm.decisions {
            same(Trouble { drain_at: Some(at), ..Trouble::default() });
        }
    });
}

#[test]
fn scripts_that_did_not_hold_once_do() {
    for seed in [5712, 7380, 8486, 9704, 11405, 12399, 13436, 18801, 50654, 63690] {
        one_seed(seed);
    }
}

/// A million seeds, as those of the simulator.
#[test]
fn on_demand() {
    seeds_of_environment(one_seed);
}

/// Returns how many of the seeds a broken backend comes into effect in, and how many of these fail.
fn caught(mutant: Mutant, drains: usize, seeds: std::ops::Range<u64>) -> (usize, usize) {
    let (mut broken, mut failed) = (0, 0);
    for seed in seeds {
        let calm = play(seed, &Trouble::default());
        let trouble = Trouble { mutant: Some(mutant), drains, ..Trouble::default() };
        match std::panic::catch_unwind(|| play(seed, &trouble)) {
            Ok(course) if course.broken > 0 => {
                broken += 1;
                failed += usize::from(course.trace != calm.trace);
            }
            Ok(_) => {}
            Err(_) => {
                broken += 1;
                failed += 1;
            }
        }
    }
    (broken, failed)
}

#[test]
fn a_backend_that_drops_an_edit_of_a_subgraph_is_caught() {
    let (broken, failed) = caught(Mutant::DropsEdits, 0, 0..cases(24, 200));
    assert!(broken > 5, "{broken} sessions lost an edit");
    assert_eq!(failed, broken, "sessions that were caught");
}

#[test]
fn a_run_that_forgets_its_input_when_it_is_drained_is_caught() {
    let (broken, failed) = caught(Mutant::ForgetsDrainedInput, 4, 0..cases(32, 400));
    assert!(broken > 6, "{broken} sessions lost an input");
    // The others go back to a checkpoint before the input is read.
    assert!(failed * 20 > broken * 19, "{failed} of {broken} sessions were caught");
}
