//! Kills of a migration: several processes open a file of an older format, and each of them would migrate it.

use std::time::Duration;

use annals::store::Store;

use super::WorkerRole;
use super::round::Round;
use crate::cuts::{lay, left_by_migration};
use crate::observe::{self, Deadline};
use crate::older;

/// The processes that open the file.
const OPENERS: usize = 2;

impl Round {
    /// Lays a file of an older format and starts the processes that open it.
    pub(super) fn start_migration(&mut self) -> Result<(), String> {
        self.counts.migrations = 1;
        let (image, shown) = older::file()?;
        lay(self.scratch.path(), &image)?;
        self.ledger.lock().migrated = observe::hash_of(&shown);
        (0..OPENERS).try_for_each(|slot| self.add(WorkerRole::Opener, slot))
    }

    /// Kills so many processes, until one has migrated the file, and starts another one in the place of each.
    pub(super) fn kill_migrations(&mut self, kills: u64) -> Result<(), String> {
        while self.counts.run < kills {
            let place = self.rng.below(self.workers.len());
            self.wait_for_begin(place);
            std::thread::sleep(Duration::from_micros(self.rng.below(10_000) as u64));
            if self.rng.chance(50) {
                self.wait_for_lock(place);
            }
            let has_ended = {
                let ledger = self.ledger.lock();
                !ledger.problems.is_empty() || ledger.workers.values().any(|reports| reports.passes > 0)
            };
            if has_ended {
                self.workers.iter().for_each(|worker| worker.go_on());
                return Ok(());
            }
            let victim = self.workers.swap_remove(place);
            let job = self.kill_one(victim);
            self.add(job.role, job.slot)?;
        }
        Ok(())
    }

    /// Waits until a process has reported its first step.
    fn wait_for_begin(&self, place: usize) {
        let author = self.workers[place].job.author;
        for _ in 0..1_000 {
            if self.ledger.lock().workers.contains_key(&author) {
                return;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Verifies that the next open finishes the migration: the file has the newest format and the same content as
    /// before, and no copy is left.
    pub(super) fn verify_migrated(&mut self) -> Result<(), String> {
        let store = Store::open(self.scratch.store()).map_err(|error| format!("the file does not open: {error}"))?;
        if let Some(problem) = left_by_migration(self.scratch.path(), &store) {
            return Err(problem);
        }
        if let Some(problem) = store.check().map_err(|error| error.to_string())?.problems.first() {
            return Err(format!("check finds {problem} after a migration"));
        }
        let shown = observe::everything(&store, Deadline::after(Duration::from_secs(300)));
        if shown.map_err(|error| error.to_string())? == older::file()?.1 {
            Ok(())
        } else {
            Err("a migrated file shows something else than before".into())
        }
    }
}
