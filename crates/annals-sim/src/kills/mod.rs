//! Kills: several processes write to and read from one file, and are killed or stopped at random times.
//!
//! A run consists of rounds, each with a file of its own. The parent process kills workers and starts others in their
//! place; at the end of a round it closes the workers and compares all that the file shows with the ledger.

mod ledger;
mod process;
mod round;
mod tally;
mod worker;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::log::STORE;
use crate::rng::Rng;
use round::Round;

/// The work of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkerRole {
    /// Commits to entities of its own and to one that all writers share.
    Writer,
    /// Copies the WAL, makes backups, deletes threads, reclaims their space, compacts and checks the file.
    Maintainer,
    /// Reads all entities.
    Reader,
}

/// A planted fault of a worker, which the parent process must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerControl {
    /// A call is acknowledged before its commit.
    EarlyAck,
    /// The two threads of a pair are written in two commits.
    HalfCommit,
    /// A call that was stored is reported as refused.
    FalseRefusal,
    /// A thread is deleted and written anew.
    Rewound,
    /// A backup takes the place of the file that is to be compacted.
    CopiedCompaction,
}

impl WorkerControl {
    /// All of them, with their names.
    pub(crate) const ALL: [(Self, &'static str); 5] = [
        (Self::EarlyAck, "killed-early-ack"),
        (Self::HalfCommit, "killed-half-commit"),
        (Self::FalseRefusal, "false-refusal"),
        (Self::Rewound, "rewound"),
        (Self::CopiedCompaction, "copied-compaction"),
    ];
}

const ROLES: [(WorkerRole, &str); 3] =
    [(WorkerRole::Writer, "writer"), (WorkerRole::Maintainer, "maintainer"), (WorkerRole::Reader, "reader")];

/// The arguments of a worker.
#[derive(Clone, Debug)]
struct WorkerArgs {
    role: WorkerRole,
    folder: PathBuf,
    /// The place of a writer among the writers: those that follow it go on with its entities.
    slot: usize,
    /// The number of writers.
    writers: usize,
    author: tally::Author,
    seed: u64,
    /// Milliseconds that a call waits for a lock.
    busy_ms: u64,
    control: Option<WorkerControl>,
}

impl WorkerArgs {
    fn store(&self) -> PathBuf {
        self.folder.join(STORE)
    }

    fn to_words(&self) -> Vec<String> {
        let role = ROLES.iter().find(|(role, _)| *role == self.role).map_or("", |(_, name)| name);
        let control =
            WorkerControl::ALL.iter().find(|(control, _)| Some(*control) == self.control).map_or("-", |(_, name)| name);
        let numbers = [self.slot as u64, self.writers as u64, u64::from(self.author), self.seed, self.busy_ms];
        let mut words = vec![role.to_owned(), self.folder.display().to_string(), control.to_owned()];
        words.extend(numbers.iter().map(u64::to_string));
        words
    }

    fn parse(words: &[String]) -> Option<Self> {
        let [role, folder, control, slot, writers, author, seed, busy_ms] = words else { return None };
        Some(Self {
            role: ROLES.iter().find(|(_, name)| name == role)?.0,
            folder: PathBuf::from(folder),
            control: WorkerControl::ALL.iter().find(|(_, name)| name == control).map(|(control, _)| *control),
            slot: slot.parse().ok()?,
            writers: writers.parse().ok()?,
            author: author.parse().ok()?,
            seed: seed.parse().ok()?,
            busy_ms: busy_ms.parse().ok()?,
        })
    }
}

/// Runs a worker, whose arguments a parent process has given. Returns whether it found no problem; `None` if they are
/// not those of a worker.
pub(crate) fn work(words: &[String]) -> Option<bool> {
    WorkerArgs::parse(words).map(|job| worker::run(&job))
}

/// The kills and stops of a run.
#[derive(Clone, Debug)]
pub(crate) struct KillPlan {
    pub(crate) seed: u64,
    pub(crate) kills: u64,
    /// Workers that are stopped while they hold the write lock.
    pub(crate) stops: u64,
    /// The time for which they are stopped.
    pub(crate) stop: Duration,
    pub(crate) control: Option<WorkerControl>,
}

/// The counts of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct KillCounts {
    /// Processes that were killed.
    pub(crate) run: u64,
    /// Rounds after which an acknowledged call was not there.
    pub(crate) lost: u64,
    /// Rounds in which a call was there in part, a reader saw a wrong state, a caller got an unexpected error, a worker
    /// did not end, or a check found a problem.
    pub(crate) wrong: u64,
    pub(crate) rounds: u64,
    /// Processes that were stopped with the write lock.
    pub(crate) stopped: u64,
    /// Calls of others that were refused meanwhile, with the stopped process named.
    pub(crate) named: u64,
    /// The longest wait of these calls.
    pub(crate) longest_refusal_ms: u64,
    pub(crate) acknowledged: u64,
    /// Complete passes of readers.
    pub(crate) passes: u64,
    /// Backups of killed processes that were whole.
    pub(crate) backups: u64,
    /// Deleted threads, and those of them with a text that the closed file still holds.
    pub(crate) erased: u64,
    pub(crate) erased_left: u64,
    /// Calls refused because of a lock.
    pub(crate) busy: u64,
    /// Kills by the last reported step of the process, and by the lock that it held.
    pub(crate) steps: BTreeMap<String, u64>,
    pub(crate) locks: BTreeMap<&'static str, u64>,
    pub(crate) failures: Vec<String>,
}

/// Kills of a round: then its file is verified, and the next round begins with a new one.
const KILLS_PER_ROUND: u64 = 25;

/// The work that is killed in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RoundKind {
    Kills,
    Stop,
}

/// Kills and stops workers.
pub(crate) fn run(plan: &KillPlan) -> Result<KillCounts, String> {
    let mut counts = KillCounts::default();
    let (mut number, mut stops) = (0, 0);
    while counts.run < plan.kills || stops < plan.stops {
        // Stops are spread over the run.
        let is_stop = stops < plan.stops && counts.run * plan.stops >= stops * plan.kills;
        let kind = if is_stop { RoundKind::Stop } else { RoundKind::Kills };
        let mut round = Round::start(plan, Rng::stream(plan.seed, number).next(), kind)?;
        let left = plan.kills - counts.run;
        match kind {
            RoundKind::Kills => round.kill(KILLS_PER_ROUND.min(left))?,
            RoundKind::Stop => {
                stops += 1;
                round.stop_and_go(plan.stop)?;
            }
        }
        number += 1;
        let is_bad = round.end(&mut counts);
        if is_bad && plan.control.is_some() {
            break;
        }
    }
    Ok(counts)
}
