//! The trace of a workload, and the verdict on a store after a power cut.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use annals::store::Synchronous;

use crate::log::{self, DiskLog, DiskOp, STORE};
use crate::model::{self, CallEffect};
use crate::observe::StoreView;
use crate::proxy::Calls;
use crate::rng::Rng;
use crate::watch::FolderWatch;
use crate::workload::{self, WorkloadShape};

/// A recorded workload.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    pub(crate) ops: Vec<DiskOp>,
    /// The calls of each process.
    pub(crate) facts: [Vec<CallEffect>; 2],
    /// The begin and the acknowledgement of each call in `ops`, and its effects, by entity.
    pub(crate) entities: BTreeMap<String, Vec<EntityChange>>,
}

/// A change of an entity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntityChange {
    begin: usize,
    ack: usize,
    /// The hash of the entity afterwards, 0 if it is gone.
    after: u64,
    /// The call.
    fact: (u8, u32),
}

/// The verdict on a store after a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CutVerdict {
    Good,
    /// Acknowledged changes are not there: the entity, and their number.
    Lost(String, usize),
    /// The store shows something that no call has written, or half of a call.
    Wrong(String),
}

/// A folder that is removed when it is dropped: in memory where the machine has such a place.
#[derive(Debug)]
pub(crate) struct ScratchFolder(PathBuf);

impl ScratchFolder {
    /// Makes an empty folder.
    pub(crate) fn new() -> std::io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let memory = Path::new("/dev/shm");
        let place = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let name = format!("annals-sim-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst));
        let folder = place.canonicalize()?.join(name);
        std::fs::create_dir(&folder)?;
        Ok(Self(folder))
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Leaves the files for an examination. Returns the place.
    pub(crate) fn leave(self) -> String {
        std::mem::ManuallyDrop::new(self).0.display().to_string()
    }

    /// Returns the path of the store in it.
    pub(crate) fn store(&self) -> PathBuf {
        self.0.join(STORE)
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        // A folder that stays is small, and the next start of the machine removes it.
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Removes a file of a store and those beside it; what stays goes with its folder.
pub(crate) fn remove_store(path: &Path) {
    for ending in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        _ = std::fs::remove_file(PathBuf::from(name));
    }
}

/// The kinds of workloads, which seeds take in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkloadKind {
    /// One actor.
    Single,
    /// Three actors on one handle: group commit.
    Group,
    /// Two processes on one file.
    Processes,
    /// Texts of up to 600,000 bytes, so that the background copies the WAL.
    Large,
    /// One actor that compacts the file often.
    Compaction,
}

impl WorkloadKind {
    /// Returns the kind of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        match seed % 16 {
            3 | 11 => Self::Processes,
            7 => Self::Large,
            13 => Self::Compaction,
            n if n % 2 == 0 => Self::Single,
            _ => Self::Group,
        }
    }

    /// Returns the workload of a seed for one of the processes.
    pub(crate) fn shape(self, seed: u64, process: u8, synchronous: Synchronous) -> WorkloadShape {
        let mut rng = Rng::stream(seed, 1);
        let mut shape = WorkloadShape {
            seed,
            process,
            actors: 1,
            acts: 5 + rng.below(6),
            rounds: 1 + rng.below(2),
            text_max: 9_000,
            synchronous,
            busy_ms: 60_000,
            waits: false,
            compactions: 3,
            freed_max: 60_000,
        };
        match self {
            Self::Single => {}
            Self::Compaction => (shape.compactions, shape.freed_max) = (50, 600_000),
            Self::Group => (shape.actors, shape.acts, shape.rounds) = (3, 3 + rng.below(3), 1 + rng.below(2)),
            // A commit that meets a lock is refused soon, and the outcome of each batch is known.
            Self::Processes => (shape.rounds, shape.busy_ms, shape.waits) = (2, 500, true),
            Self::Large => (shape.actors, shape.acts, shape.rounds, shape.text_max) = (2, 35, 1, 600_000),
        }
        shape
    }
}

impl Trace {
    /// Records the workload of a seed.
    ///
    /// # Errors
    /// If a call failed without a fault of the disk, or the model refuses a call that the file accepted.
    pub(crate) fn record(seed: u64, synchronous: Synchronous) -> Result<Self, String> {
        let scratch = ScratchFolder::new().map_err(|error| error.to_string())?;
        let kind = WorkloadKind::of(seed);
        if kind == WorkloadKind::Processes {
            return Self::of_processes(seed, synchronous, &scratch);
        }
        let shape = kind.shape(seed, 0, synchronous);
        let log = Arc::new(DiskLog::memory());
        let watched = FolderWatch::register(scratch.path(), Some(Arc::clone(&log)));
        let calls = Calls::new(Arc::clone(&log), 0, false);
        let failures = workload::run(&scratch.store(), &shape, &calls);
        drop(watched);
        if let Some(failure) = failures.first() {
            return Err(format!("a call failed without a fault: {failure}"));
        }
        Ok(Self::new(log.take(), [model::facts(&calls.take())?, Vec::new()]))
    }

    /// Records two processes: this one, and this program again with the verb `writer`.
    fn of_processes(seed: u64, synchronous: Synchronous, scratch: &ScratchFolder) -> Result<Self, String> {
        let failed = |error: std::io::Error| error.to_string();
        let shared = scratch.path().join("log");
        let child = Command::new(std::env::current_exe().map_err(failed)?)
            .arg("writer")
            .arg(scratch.path())
            .arg(seed.to_string())
            .arg(if synchronous == Synchronous::Full { "full" } else { "normal" })
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let own = writer(scratch, &shared, seed, 0, synchronous);
        let output = child.wait_with_output().map_err(failed)?;
        if !output.status.success() {
            return Err(format!("the second process ended with {}", output.status));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let facts = [own?, facts_of_lines(&text)?];
        Ok(Self::new(log::read_shared(&shared).map_err(failed)?, facts))
    }

    /// Makes a trace of a log and the calls in it.
    pub(crate) fn new(ops: Vec<DiskOp>, facts: [Vec<CallEffect>; 2]) -> Self {
        let mut trace = Self { ops, facts, entities: BTreeMap::new() };
        trace.index();
        trace
    }

    /// Returns the operations between the begin and the end of each call that works on the file.
    pub(crate) fn spans(&self) -> Vec<Range<usize>> {
        let (mut spans, mut open) = (Vec::new(), None);
        for (at, op) in self.ops.iter().enumerate() {
            let (DiskOp::Begin { process, fact } | DiskOp::Ack { process, fact } | DiskOp::Fail { process, fact }) = op
            else {
                continue;
            };
            // Of the second process, the effects of its calls alone are known.
            let known = self.facts[usize::from(*process)].get(*fact as usize);
            if known.is_some_and(|known| known.upkeep.is_some()) {
                match (op, open) {
                    (DiskOp::Begin { .. }, None) => open = Some((fact, at)),
                    (DiskOp::Ack { .. } | DiskOp::Fail { .. }, Some((begun, begin))) if begun == fact => {
                        spans.push(begin..at);
                        open = None;
                    }
                    _ => {}
                }
            }
        }
        spans
    }

    /// Finds the begins and the acknowledgements anew, after `ops` were changed.
    pub(crate) fn index(&mut self) {
        let mut acks: BTreeMap<(u8, u32), usize> = BTreeMap::new();
        for (at, op) in self.ops.iter().enumerate() {
            if let DiskOp::Ack { process, fact } = op {
                acks.insert((*process, *fact), at);
            }
        }
        self.entities.clear();
        for (begin, op) in self.ops.iter().enumerate() {
            let DiskOp::Begin { process, fact } = op else { continue };
            let ack = acks.get(&(*process, *fact)).copied().unwrap_or(usize::MAX);
            let Some(known) = self.facts[usize::from(*process)].get(*fact as usize) else { continue };
            for (entity, after) in &known.effects {
                let change = EntityChange { begin, ack, after: *after, fact: (*process, *fact) };
                self.entities.entry(entity.clone()).or_default().push(change);
            }
        }
    }

    /// Judges the content of a store after a cut behind the first `end` operations.
    pub(crate) fn judge(&self, view: &StoreView, end: usize) -> CutVerdict {
        // Calls that were under way, with whether each of their entities shows them.
        let mut shown: BTreeMap<(u8, u32), Vec<(bool, bool)>> = BTreeMap::new();
        for (entity, changes) in &self.entities {
            let begun = changes.iter().take_while(|change| change.begin < end).count();
            // All calls before an acknowledged one of the same actor have ended.
            let acknowledged = changes[..begun].iter().rposition(|change| change.ack < end).map_or(0, |last| last + 1);
            let found = view.get(entity).copied().unwrap_or(0);
            let after = |count: usize| count.checked_sub(1).map_or(0, |last| changes[last].after);
            if !(acknowledged..=begun).any(|count| after(count) == found) {
                return match (0..acknowledged).rev().find(|count| after(*count) == found) {
                    Some(count) => CutVerdict::Lost(entity.clone(), acknowledged - count),
                    None => CutVerdict::Wrong(format!("{entity} is none of its states")),
                };
            }
            for (count, change) in changes.iter().enumerate().take(begun).skip(acknowledged) {
                let (old, new) = (after(count), change.after);
                if old != new {
                    shown.entry(change.fact).or_default().push((found == old, found == new));
                }
            }
        }
        if let Some(entity) = view.keys().find(|entity| !self.entities.contains_key(*entity)) {
            return CutVerdict::Wrong(format!("{entity} was never written"));
        }
        let half = shown.values().any(|parts| parts.iter().any(|part| part.0) && parts.iter().any(|part| part.1));
        if half {
            CutVerdict::Wrong("a call is there for one thread and not for another".into())
        } else {
            CutVerdict::Good
        }
    }
}

/// Runs the workload of one of two processes.
pub(crate) fn writer(
    scratch: &ScratchFolder,
    shared: &Path,
    seed: u64,
    process: u8,
    synchronous: Synchronous,
) -> Result<Vec<CallEffect>, String> {
    let log = Arc::new(DiskLog::shared(shared).map_err(|error| error.to_string())?);
    let _watched = FolderWatch::register(scratch.path(), Some(Arc::clone(&log)));
    let calls = Calls::new(log, process, true);
    let shape = WorkloadKind::Processes.shape(seed, process, synchronous);
    let failures = workload::run(&scratch.store(), &shape, &calls);
    // A call may find the file locked by the other process, and calls after it may miss that one.
    let is_busy = |failure: &String| ["Busy", "BUSY", "locked"].iter().any(|word| failure.contains(word));
    match failures.first().filter(|first| !is_busy(first)) {
        Some(failure) => Err(format!("a call failed without a fault: {failure}")),
        None => model::facts(&calls.take()),
    }
}

/// The second process: runs its workload in the folder of the first, and returns its calls as lines of text.
pub(crate) fn second_process(folder: &Path, seed: u64, synchronous: Synchronous) -> Result<String, String> {
    // The first process removes the folder.
    let scratch = std::mem::ManuallyDrop::new(ScratchFolder(folder.to_path_buf()));
    let facts = writer(&scratch, &folder.join("log"), seed, 1, synchronous)?;
    let line = |fact: &CallEffect| {
        let effects: Vec<String> = fact.effects.iter().map(|(entity, after)| format!("{entity}\t{after}")).collect();
        effects.join("\t") + "\n"
    };
    Ok(facts.iter().map(line).collect())
}

fn facts_of_lines(text: &str) -> Result<Vec<CallEffect>, String> {
    let fact = |line: &str| {
        let fields: Vec<&str> = line.split('\t').filter(|field| !field.is_empty()).collect();
        let effect = |pair: &[&str]| match pair {
            [entity, after] => Ok(((*entity).to_owned(), after.parse().map_err(|_| format!("not a hash: {after}"))?)),
            _ => Err(format!("not the effects of a call: {line}")),
        };
        Ok(CallEffect { effects: fields.chunks(2).map(effect).collect::<Result<_, String>>()?, upkeep: None })
    };
    text.lines().map(fact).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Records a workload; files are numbered in the order in which they are made.
    fn recorded(seed: u64) -> Vec<DiskOp> {
        crate::vfs::install();
        crate::vfs::seed_randomness(seed);
        let scratch = ScratchFolder::new().unwrap();
        let log = Arc::new(DiskLog::memory());
        let watched = FolderWatch::register(scratch.path(), Some(Arc::clone(&log)));
        let shape = WorkloadShape { waits: true, ..WorkloadKind::Single.shape(seed, 0, Synchronous::Full) };
        let failures = workload::run(&scratch.store(), &shape, &Calls::new(Arc::clone(&log), 0, true));
        drop(watched);
        assert!(failures.is_empty(), "{failures:?}");
        let mut known: Vec<u64> = Vec::new();
        let mut number = |ino: &mut u64| {
            let place = known.iter().position(|other| other == ino).unwrap_or_else(|| {
                known.push(*ino);
                known.len() - 1
            });
            *ino = place as u64;
        };
        let mut ops = log.take();
        for op in &mut ops {
            match op {
                DiskOp::Found { ino, .. }
                | DiskOp::Create { ino, .. }
                | DiskOp::Write { ino, .. }
                | DiskOp::Truncate { ino, .. } => number(ino),
                DiskOp::Sync { ino, .. } | DiskOp::SyncFailed { ino } => number(ino),
                DiskOp::Delete { .. } | DiskOp::Begin { .. } | DiskOp::Ack { .. } | DiskOp::Fail { .. } => {}
            }
        }
        ops
    }

    /// The name of the test that runs itself in a process of its own.
    const ALONE: &str = "trace::tests::a_seed_repeats_a_workload_byte_for_byte";

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the process of its own is told so by a variable")]
    fn a_seed_repeats_a_workload_byte_for_byte() {
        // SQLite has one source of randomness for a process, from which the threads of other tests draw.
        if std::env::var_os("ANNALS_SIM_ALONE").is_none() {
            let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
            let output = alone.args(["--exact", ALONE]).env("ANNALS_SIM_ALONE", "1").output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{text}");
            return;
        }
        // The first file that a process opens draws more: the schema it is compared with is made once.
        recorded(2);
        let first = recorded(2);
        assert!(first.len() > 200, "{}", first.len());
        for _ in 0..5 {
            let again = recorded(2);
            let differs = first.iter().zip(&again).position(|(op, other)| op != other);
            assert!(differs.is_none() && first.len() == again.len(), "{differs:?} of {}", first.len());
        }
        assert_ne!(first, recorded(4));
    }

    #[test]
    fn a_change_that_was_lost_or_torn_is_judged_so() {
        let effects = |names: &[(&str, u64)]| CallEffect {
            effects: names.iter().map(|(name, hash)| ((*name).to_owned(), *hash)).collect(),
            upkeep: None,
        };
        let call = |fact| [DiskOp::Begin { process: 0, fact }, DiskOp::Ack { process: 0, fact }];
        let ops = [call(0), call(1)].concat();
        let facts = vec![effects(&[("t:a", 1), ("t:b", 2)]), effects(&[("t:a", 3), ("t:b", 0)])];
        let trace = Trace::new(ops, [facts, Vec::new()]);
        let view = |names: &[(&str, u64)]| names.iter().map(|(name, hash)| ((*name).to_owned(), *hash)).collect();
        assert_eq!(trace.judge(&view(&[("t:a", 1), ("t:b", 2)]), 2), CutVerdict::Good);
        assert_eq!(trace.judge(&view(&[]), 2), CutVerdict::Lost("t:a".into(), 1));
        assert_eq!(trace.judge(&view(&[]), 1), CutVerdict::Good);
        assert!(matches!(trace.judge(&view(&[("t:a", 1)]), 1), CutVerdict::Wrong(_)), "one thread without the other");
        assert!(matches!(trace.judge(&view(&[("t:a", 3), ("t:b", 2)]), 3), CutVerdict::Wrong(_)), "half of a call");
        assert_eq!(trace.judge(&view(&[("t:a", 3)]), 3), CutVerdict::Good);
        assert!(matches!(trace.judge(&view(&[("t:a", 7), ("t:b", 2)]), 2), CutVerdict::Wrong(_)), "an unknown state");
        let stranger = view(&[("t:a", 1), ("t:b", 2), ("t:c", 1)]);
        assert!(matches!(trace.judge(&stranger, 2), CutVerdict::Wrong(_)), "a thread that was never written");
    }
}
