//! Jobs of the writer role: a batch of the log, changes of the tables beside it, an operation, or a step of the
//! erasure of threads. *Absent:* how each of them is written.

use crate::limits::{COMPACT_PAGES_MAX, RECLAIM_COST_MAX, RECLAIM_ROW_BYTES};
use crate::store::batch::{
    Batch, ChangeValue, CommitChain, Data, ItemOp, NewCheckpoint, NewWrites, WriteValue, validate_deleted,
};
use crate::store::error::StoreError;
use crate::store::side_tables::{CacheChange, KvChange};
use crate::store::sqlite::commit::caches::Caches;
use crate::store::sqlite::commit::operation::{self, OperationJob};
use crate::store::sqlite::fault::Res;
use crate::store::sqlite::index::projection::ProjectionJob;
use crate::store::sqlite::keys::KeyChange;
use crate::store::sqlite::remove::erase::{self, EraseJob, EraseStep};
use crate::store::sqlite::remove::prune::{self, PruneJob};
use crate::store::sqlite::rewrite::compact_step;
use crate::store::sqlite::rewrite::compact_step::CompactJob;
use crate::store::sqlite::side::lease::claim::{self, ClaimJob};
use crate::store::sqlite::side::{cache, kv, lease};
use crate::store::sqlite::sql;
use rusqlite::Connection;

/// Declares the jobs: of each the part that is borrowed from whoever waits for it.
macro_rules! jobs {
    ($($job:ident($part:ty)),* $(,)?) => {
        /// A job that waits for a leader.
        #[derive(Clone, Debug)]
        #[allow(clippy::large_enum_variant, reason = "most jobs are batches, and a box would cost each an allocation")]
        pub(crate) enum Job {
            $($job(<$part as ToOwned>::Owned)),*
        }

        /// A job, borrowed from whoever waits for it.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum JobRef<'a> {
            $($job(&'a $part)),*
        }

        impl Job {
            /// Returns a borrowed view.
            pub(crate) fn as_ref(&self) -> JobRef<'_> {
                match self {
                    $(Self::$job(job) => JobRef::$job(job)),*
                }
            }
        }

        impl JobRef<'_> {
            /// Returns an owned copy.
            pub(crate) fn to_job(self) -> Job {
                match self {
                    $(Self::$job(job) => Job::$job(job.to_owned())),*
                }
            }
        }
    };
}

jobs! {
    Log(Batch),
    Kv([KvChange]),
    Cache([CacheChange]),
    Erase(EraseJob),
    Keys(KeyChange),
    Compact(CompactJob),
    Operation(OperationJob),
    Projection(ProjectionJob),
    Prune(PruneJob),
    Claim(ClaimJob),
}

impl<'a> JobRef<'a> {
    /// Checks it against the limits.
    pub(crate) fn validate(self) -> Result<(), StoreError> {
        match self {
            Self::Log(batch) => batch.validate(),
            Self::Kv(changes) => KvChange::validate(changes),
            Self::Cache(changes) => CacheChange::validate(changes),
            Self::Erase(job) => match &job.step {
                EraseStep::Hide(threads) | EraseStep::HideAlone(threads) => validate_deleted(threads),
                EraseStep::HideTrash(..) | EraseStep::Detach(_) | EraseStep::Reclaim | EraseStep::Forget(_) => Ok(()),
            },
            Self::Keys(change) => change.validate(),
            Self::Compact(_) | Self::Projection(_) | Self::Prune(_) => Ok(()),
            Self::Operation(job) => job.operation.validate(),
            Self::Claim(job) => job.query.validate(),
        }
    }

    /// Returns the chain of commits that it is one of.
    pub(crate) fn chain(self) -> Option<&'a CommitChain> {
        match self {
            Self::Log(batch) => batch.chain.as_ref(),
            _ => None,
        }
    }

    /// Returns whether it stores a checkpoint, by whose id it is found again.
    pub(crate) fn stores_checkpoint(self) -> bool {
        matches!(self, Self::Log(batch) if batch.parts().any(|part| !part.checkpoints.is_empty()))
    }

    /// Writes it in the transaction that is open.
    pub(crate) fn write(self, conn: &Connection, caches: &mut Caches) -> Res<()> {
        debug_assert!(self.validate().is_ok(), "a job is validated before it is queued");
        match self {
            Self::Log(batch) => lease::write(conn, caches, batch),
            Self::Kv(changes) => kv::write(conn, &caches.keys, changes),
            Self::Cache(changes) => cache::write(conn, &caches.keys, changes),
            Self::Erase(job) => erase::step(conn, caches, job),
            Self::Keys(change) => caches.keys.change(conn, change),
            Self::Compact(job) => compact_step::step(conn, job),
            Self::Operation(job) => operation::write(conn, caches, job),
            Self::Projection(job) => job.write(conn, caches),
            Self::Prune(job) => prune::step(conn, caches, job),
            Self::Claim(job) => claim::claim(conn, caches, job),
        }
    }

    /// Returns about how many frames it adds to the WAL: its pages at the ends of the tables, and its bytes.
    pub(crate) fn frames(self) -> u64 {
        let bytes: usize = match self {
            Self::Log(batch) => batch.parts().map(batch_bytes).sum::<usize>() + 28_000 * batch.then.len(),
            Self::Kv(changes) => changes.iter().map(kv_bytes).sum(),
            Self::Cache(changes) => changes.iter().map(cache_bytes).sum(),
            Self::Erase(job) => match &job.step {
                EraseStep::Hide(_) | EraseStep::Reclaim => RECLAIM_COST_MAX * RECLAIM_ROW_BYTES,
                EraseStep::Detach(removal) => 256 * removal.namespaces.len(),
                EraseStep::HideAlone(_) | EraseStep::HideTrash(..) | EraseStep::Forget(_) => 0,
            },
            Self::Prune(_) => RECLAIM_COST_MAX * RECLAIM_ROW_BYTES,
            Self::Keys(_) => 0,
            Self::Claim(job) => 512 * job.query.owners.len(),
            Self::Operation(job) => 512 * job.operation.changes.len(),
            Self::Projection(job) => job.bytes(),
            // A page that is moved, the page that it is moved to, and their parents.
            Self::Compact(_) => 3 * COMPACT_PAGES_MAX * sql::PAGE_BYTES as usize,
        };
        7 + bytes as u64 / 4_000
    }
}

fn kv_bytes(change: &KvChange) -> usize {
    match change {
        KvChange::Put { value, .. } => 256 + value.bytes.len(),
        KvChange::SetVectors { vectors, .. } => {
            vectors.iter().map(|vector| 256 + vector.field.len() + 4 * vector.values.len()).sum()
        }
        KvChange::Delete { .. }
        | KvChange::SetLifetime { .. }
        | KvChange::Prolong { .. }
        | KvChange::DeleteExpired { .. } => 256,
    }
}

fn cache_bytes(change: &CacheChange) -> usize {
    match change {
        CacheChange::Put { value, .. } => 256 + value.bytes.len(),
        CacheChange::Clear { .. } | CacheChange::ClearNamespace { .. } => 256,
    }
}

fn batch_bytes(batch: &Batch) -> usize {
    batch.writes.iter().map(writes_bytes).sum::<usize>() + batch.checkpoints.iter().map(checkpoint_bytes).sum::<usize>()
}

fn writes_bytes(new: &NewWrites) -> usize {
    let one = |value: &WriteValue| match value {
        WriteValue::Null => 0,
        WriteValue::One(payload) => payload.len(),
        WriteValue::Items(items) => items.iter().map(|item| item.len() + 64).sum(),
        WriteValue::Delta(delta) => 256 + delta.items.iter().map(|item| item.len() + 64).sum::<usize>(),
    };
    new.writes.iter().map(|write| 64 + one(&write.value)).sum()
}

fn checkpoint_bytes(new: &NewCheckpoint) -> usize {
    let data = |data: &Data| match data {
        Data::New(payload) => payload.len(),
        Data::OfWrite(_) => 0,
    };
    let changes = new.changes.iter().map(|change| match &change.value {
        ChangeValue::Empty => 32,
        ChangeValue::Value(value) => 32 + data(value),
        ChangeValue::Items(items) => {
            items.iter().map(|item| 32 + if let ItemOp::Put(value) = &item.op { data(value) } else { 0 }).sum()
        }
    });
    256 + changes.sum::<usize>() + new.consumed.iter().map(writes_bytes).sum::<usize>()
}
