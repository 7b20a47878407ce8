//! Every maximum of the engine, in one place. A value past a limit is refused with an error that names field and limit.

use std::time::Duration;

/// Bytes of a thread id.
pub const THREAD_ID_BYTES_MAX: usize = 1_024;
/// The shortest duration of a lease.
pub const LEASE_MIN: Duration = Duration::from_millis(10);
/// The duration of the lease of a run, unless it sets another one. It is renewed after a third of it.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);
/// The duration of a transaction on the tables of an application; others wait for the writer role meanwhile.
pub const TRANSACTION_TIME_MAX: Duration = Duration::from_secs(5);
/// Statements of a transaction on the tables of an application.
pub const TRANSACTION_STATEMENTS_MAX: usize = 100_000;
/// Bytes of the text of one of its statements.
pub const STATEMENT_BYTES_MAX: usize = 1 << 20;
/// Runs that one claim may take.
pub const CLAIM_RUNS_MAX: usize = 256;
/// The greatest priority of a queued run. The default is 0.
pub const PRIORITY_MAX: u8 = 9;
/// Groups that one claim of a lease may name.
pub const LEASE_GROUPS_MAX: usize = 16;
/// Bytes of a namespace path.
pub const NAMESPACE_BYTES_MAX: usize = 4_096;
/// Bytes of a channel or node name.
pub const NAME_BYTES_MAX: usize = 256;
/// Bytes of an item id (a message id).
pub const ITEM_ID_BYTES_MAX: usize = 1_024;
/// The first position of a list channel that holds a map. The positions below are those of lists.
pub const MAP_POSITION_MIN: u64 = 1 << 40;
/// The first position of a list channel that holds a text. The positions from [`MAP_POSITION_MIN`] on and below are
/// those of maps.
pub const TEXT_POSITION_MIN: u64 = 1 << 41;
/// Tasks of one superstep.
pub const TASKS_MAX: usize = 100_000;
/// Attempts of an update without a graph, each on the head that a faster writer left.
pub const UPDATE_ATTEMPTS_MAX: usize = 64;
/// Waits of a commit of a run, or of a transaction of a task, for the lock of the file, each as long as that of another
/// commit.
pub const RUN_LOCK_WAITS_MAX: u32 = 12;
/// Checkpoints in one batch.
pub const BATCH_CHECKPOINTS_MAX: usize = 1_000;
/// Bytes of one encoded value.
pub const VALUE_BYTES_MAX: usize = 64 << 20;
/// Lists that lie below one another, each beginning as the next.
pub const LIST_REFERENCES_MAX: usize = 256;
/// Digits of an integer (as in Python).
pub const INTEGER_DIGITS_MAX: usize = 4_300;
/// Lists, objects and extensions inside one another in a value that is encoded.
pub const VALUE_DEPTH_MAX: usize = 128;
/// Extensions inside one another of which the fields are shown or searched: a payload is decoded at each level.
pub const SHOWN_EXTENSIONS_MAX: usize = 16;
/// Values inside one value that is encoded.
pub const VALUE_NODES_MAX: usize = 4_000_000;
/// Lists, objects and extensions inside one another in a value that is decoded: a record that wraps an encoded value
/// adds some.
pub(crate) const DECODED_DEPTH_MAX: usize = VALUE_DEPTH_MAX + 16;
/// Values inside one value that is decoded: a record that wraps an encoded value adds some.
pub(crate) const DECODED_NODES_MAX: usize = VALUE_NODES_MAX + 1_024;
/// Depth at which serializing a value in memory ends: a guard of the stack, above every limit of a format.
pub(crate) const SERIALIZED_DEPTH_MAX: usize = 512;
/// Changes of the key-value memory or of the cache that one commit may make.
pub const KV_CHANGES_MAX: usize = 10_000;
/// Expired entries that a commit of new ones takes away.
pub const KV_EXPIRED_MAX: u32 = 16;
/// Threads that one call may delete.
pub const DELETED_THREADS_MAX: usize = 1_000;
/// Forks that the refusal to delete a thread names.
pub const FORKS_SHOWN_MAX: usize = 16;
/// Bytes of the idempotency key of a run.
pub const RUN_KEY_BYTES_MAX: usize = 1_024;
/// Rows that one page of a listing may hold.
pub const PAGE_ROWS_MAX: usize = 10_000;
/// Checkpoints, operations or threads that a walk through a history reads at once.
pub const HISTORY_PAGE_ROWS: usize = 64;
/// Bytes of a fact about a thread.
pub const FACT_BYTES_MAX: usize = 64 << 10;
/// Batches that one transaction takes along.
pub const GROUP_BATCHES_MAX: usize = 256;
/// Commits of a graph that a run has submitted and not awaited; before the next one it waits for the oldest.
pub const PENDING_COMMITS_MAX: usize = 256;
/// Duration for which an idle thread of a pool waits for work before it ends.
pub const POOL_IDLE: Duration = Duration::from_secs(10);

const _: () = assert!(VALUE_DEPTH_MAX < DECODED_DEPTH_MAX && VALUE_NODES_MAX < DECODED_NODES_MAX);
const _: () = assert!(DECODED_DEPTH_MAX < SERIALIZED_DEPTH_MAX && DECODED_DEPTH_MAX < u16::MAX as usize);

// The store

/// Intervals of 100 ns since 1582-10-15 in the timestamp of an id, which has 60 bits.
pub(crate) const ID_TICKS_MAX: u64 = (1 << 60) - 1;
/// Payloads of up to this many bytes are collected before they are hashed.
pub const COLLECTED_BYTES_MAX: usize = 16 << 10;

// Messages
