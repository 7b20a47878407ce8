//! The limits that the engine alone uses; those that others see are in `annals_base::limits`.

use std::time::Duration;

use crate::base::limits::{
    BATCH_CHECKPOINTS_MAX, COLLECTED_BYTES_MAX, DELETED_THREADS_MAX, HISTORY_PAGE_ROWS, ITEM_ID_BYTES_MAX,
    LEASE_DEFAULT, LEASE_MIN, MAP_POSITION_MIN, NAME_BYTES_MAX, PAGE_ROWS_MAX, TEXT_POSITION_MIN, VALUE_BYTES_MAX,
};

/// Decoded heads that a handle of a store caches; they are searched in order.
pub(crate) const HEADS_MAX: usize = 256;
/// Bytes of a position in the log.
pub(crate) const POSITION_BYTES_MAX: usize = 23;
/// The longest duration of a lease.
pub(crate) const LEASE_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);
/// Instructions of SQLite between two comparisons of a transaction with its longest duration: some tenths of a
/// millisecond.
pub(crate) const TRANSACTION_STEPS_BETWEEN: i32 = 10_000;
/// Rows that a query of a transaction returns.
pub(crate) const STATEMENT_ROWS_MAX: usize = 1_000_000;
/// Bytes of the name of a group: the name of a queue, of a key, and a value.
pub(crate) const LEASE_GROUP_BYTES_MAX: usize = 8 * NAME_BYTES_MAX;
/// Runs that a claim passes over because a limit refuses them.
pub(crate) const CLAIM_CANDIDATES_MAX: usize = 1_024;
/// Runs of a queue that a claim reads at once, when those before them are passed over.
pub(crate) const CLAIM_PAGE_ROWS: usize = 256;
/// Timers that have passed, of which a claim orders the runs by priority and age.
pub(crate) const CLAIM_TIMERS: usize = 64;
/// Live leases that a group may allow, and claims within a period.
pub(crate) const LEASE_GROUP_LIMIT_MAX: u64 = 10_000;
/// Threads that a walk over all of them reads at once.
pub(crate) const WORKER_PAGE_ROWS: usize = 256;
/// Channels that one batch may change, and that one graph may have.
pub(crate) const CHANNELS_MAX: usize = 10_000;
/// Problems that one report names: damaged rows of a check, and items that an export or import did not understand.
pub(crate) const PROBLEMS_MAX: usize = 100;
/// Characters of a value in a line of a diff.
pub(crate) const BRIEF_CHARS_MAX: usize = 100;
/// Lost things that the report of a recovery names.
pub(crate) const LOST_MAX: usize = 10_000;
/// Messages that one checkpoint of an import brings.
pub(crate) const IMPORT_MESSAGES_MAX: usize = 1_000;
/// Bytes of the text of a point, or of a range of two points.
pub(crate) const POINT_BYTES_MAX: usize = 8_192;
/// Bytes of a key of a map channel.
pub(crate) const MAP_KEY_BYTES_MAX: usize = 1_024;
/// One past the last position of a list channel that holds a text.
pub(crate) const TEXT_POSITION_END: u64 = 1 << 42;
/// Positions at which an entry of a map may lie: that of the hash of its key, and those after it.
pub(crate) const MAP_KEY_POSITIONS: u64 = 16;
/// Writes that one task may make in a superstep.
pub(crate) const TASK_WRITES_MAX: usize = 10_000;
/// Bytes of the place, and of the reason, in an error of damage.
pub(crate) const ERROR_TEXT_BYTES_MAX: usize = 1_000;
/// Placeholders of damaged items that one read of a list makes.
pub(crate) const PLACEHOLDERS_MAX: usize = 10_000;
/// Bytes of messages after which an import makes a checkpoint, however few they are.
pub(crate) const IMPORT_BYTES_MAX: usize = 8 << 20;
/// Bytes of the metadata of a checkpoint, as JSON text.
pub(crate) const METADATA_BYTES_MAX: usize = 1 << 20;
/// Checkpoints whose writes a copy reads at once.
pub(crate) const COPY_PAGE_WRITES: usize = 64;
/// Bytes of values after which a copy reads no further writes at once, however few they are.
pub(crate) const COPY_PAGE_BYTES: usize = 8 << 20;
/// Bytes of values after which a copy to another store commits, however few checkpoints they are.
pub(crate) const COPY_PART_BYTES: usize = 8 << 20;
/// Checkpoints whose writes a repeated copy compares at once.
pub(crate) const COPY_WRITES_COMPARED: usize = 256;
/// Distance of the step of a checkpoint from 0, so that a step plus a recursion limit is far from the borders of an
/// `i64`.
pub(crate) const STEP_MAX: i64 = 1 << 53;
/// Graphs around one that a checkpoint may name.
pub(crate) const PARENTS_MAX: usize = 256;
/// Values of up to this many bytes stand where a payload id would stand: a reference would cost as much.
pub(crate) const INLINE_BYTES_MAX: usize = 24;
/// Texts and data from this size on are stored once per content (BLAKE3).
pub(crate) const BLOB_BYTES_MIN: usize = 1_536;
/// Bytes of the id of a key.
pub(crate) const KEY_ID_BYTES_MAX: usize = 255;
/// A branch writes the list of its newest channel rows every so many positions.
pub(crate) const INDEX_SNAPSHOT_INTERVAL: u64 = 64;
/// Labels of a namespace of the key-value memory or of the cache.
pub(crate) const KV_LABELS_MAX: usize = 32;
/// Bytes of a namespace of the key-value memory or of the cache, all labels together.
pub(crate) const KV_NAMESPACE_BYTES_MAX: usize = 4_096;
/// Bytes of a key of the key-value memory or of the cache.
pub(crate) const KV_KEY_BYTES_MAX: usize = 1_024;
/// Pause between two looks of a follower of the log at the counter that other processes change.
pub(crate) const WATCH_INTERVAL: Duration = Duration::from_millis(20);
/// The longest such pause where the system announces that another process may be about to commit.
pub(crate) const WATCH_IDLE: Duration = Duration::from_secs(1);
/// The pause after such an announcement. Each further one is twice as long.
pub(crate) const WATCH_HINTED: Duration = Duration::from_millis(1);
/// Changes in a row that were not announced, after which a follower no longer relies on announcements.
pub(crate) const WATCH_UNHINTED_MAX: u32 = 3;
/// The pause of the thread that reads the events of write-ahead logs: those that come meanwhile are one.
pub(crate) const WAL_EVENT_PAUSE: Duration = Duration::from_millis(5);
/// Longest wait of the thread that wakes asynchronous followers before it looks whether they are gone. A commit ends
/// it.
pub(crate) const WATCH_WAIT: Duration = Duration::from_secs(3_600);
/// Checkpoints that a follower of the log reads at once.
pub(crate) const WATCH_PAGE_ROWS: usize = 256;
/// Vectors of an entry of the key-value memory.
pub(crate) const KV_VECTORS_MAX: usize = 1_024;
/// Bytes of the path of an indexed field of the key-value memory.
pub(crate) const KV_FIELD_BYTES_MAX: usize = 1_024;
/// Dimensions of a vector of the key-value memory.
pub(crate) const EMBEDDING_DIMS_MAX: usize = 16_384;
/// Entries of the key-value memory that a sweep removes, or a search prolongs, in one commit.
pub(crate) const KV_SWEEP_MAX: usize = 1_000;
/// Items that a search of the key-value memory gives, unless set otherwise (as in LangGraph).
pub(crate) const KV_SEARCH_DEFAULT: usize = 10;
/// Namespaces that a listing of the key-value memory gives, unless set otherwise (as in LangGraph).
pub(crate) const KV_NAMESPACES_DEFAULT: usize = 100;
/// Bytes of the text of a search.
pub(crate) const SEARCH_TEXT_BYTES_MAX: usize = 1_024;
/// Hits of a page of a search.
pub(crate) const SEARCH_HITS_MAX: usize = 1_000;
/// Hits of a page of a search, unless set otherwise.
pub(crate) const SEARCH_HITS_DEFAULT: usize = 20;
/// Grams of the words of a search by which its index is read.
pub(crate) const SEARCH_GRAMS_MAX: usize = 8;
/// Entries of one checkpoint in the search index.
pub(crate) const SEARCH_ENTRIES_MAX: i64 = 1 << 24;
/// Threads of a listing, unless set otherwise.
pub(crate) const THREADS_LISTED_DEFAULT: usize = 50;
/// Checkpoints that the table of threads may lag behind the log before a commit lets it follow.
pub(crate) const THREADS_TAIL_MAX: i64 = 128;
/// Checkpoints that the table of threads follows in one transaction.
pub(crate) const THREADS_FOLLOWED_MAX: i64 = 1_024;
/// Checkpoints that a search scans before it lets the index follow.
pub(crate) const SEARCH_TAIL_MAX: u64 = 256;
/// Cost of one transaction that indexes texts: one for each gram, entry and checkpoint, about half a microsecond.
pub(crate) const INDEX_COST_MAX: usize = 8_192;
/// The pause between two such transactions.
pub(crate) const FOLLOW_INTERVAL: Duration = Duration::from_millis(1);
/// Bytes of a stored text that a search reads: its beginning.
pub(crate) const SEARCHED_BYTES_MAX: usize = 64 << 10;
/// Characters of a snippet; a longer first match is shown whole.
pub(crate) const SNIPPET_CHARS_MAX: usize = 160;
/// Characters of a snippet before its first match.
pub(crate) const SNIPPET_LEAD_CHARS: usize = 40;
/// Threads that are noted as users of a name; a name with more stays when they are deleted.
pub(crate) const NAME_USERS_MAX: usize = 8;
/// Checkpoints and stored operations that a walk through the operations of a thread reads first; each further page is
/// twice as long.
pub(crate) const OPERATION_ROWS_MIN: usize = 4;
/// Checkpoints that a point with a distance from the head passes over at once.
pub(crate) const POINT_PAGE_ROWS: u64 = 256;
/// Versions that the first read of the values of a channel over time brings; each further one brings more.
pub(crate) const EVOLUTION_PAGE_MIN: usize = 4;
/// Versions that one read of the values of a channel over time brings.
pub(crate) const EVOLUTION_PAGE_MAX: usize = 1_024;
/// Bytes of the actor of an operation.
pub(crate) const ACTOR_BYTES_MAX: usize = 256;
/// Changes of one operation.
pub(crate) const OPERATION_CHANGES_MAX: usize = 10_000;
/// Threads of a store that run the blocking calls of asynchronous callers.
pub(crate) const UNBLOCK_THREADS_MAX: usize = 256;
/// Names of a batch that are compared with each other to find one that comes twice; more are put into a set.
pub(crate) const NAMES_COMPARED_MAX: usize = 8;
/// Namespaces, and checkpoints, that the writer of a file caches; past it the cache is emptied.
pub(crate) const WRITER_CACHE_MAX: usize = 4_096;
/// Places of rows that the writer retains for the next index snapshots; past it they are forgotten.
pub(crate) const PLACES_CACHE_MAX: usize = 16 * WRITER_CACHE_MAX;
/// Pages that one transaction of a compaction returns.
pub(crate) const COMPACT_PAGES_MAX: usize = 64;
/// Rows that a recovery reads at once, until one of them is damaged.
pub(crate) const SCAN_ROWS: usize = 64;
/// Bytes of metadata and tasks past which a replay writes the checkpoints that it has read.
pub(crate) const REPLAY_BYTES: usize = 1 << 20;
/// Listings of the locks of the system that are read until one shows the holder: other locks change meanwhile.
pub(crate) const LOCK_LISTINGS_MAX: usize = 8;
/// Capacity of the buffer for a listing of the locks of the system: more than a busy machine lists.
pub(crate) const LOCK_LISTING_BYTES: usize = 64 << 10;
/// Ranges of rows that a recovery passes over in one table.
pub(crate) const SCAN_FAILURES_MAX: usize = 100_000;
/// Names that the readers of a file cache, and as many that its writer does.
pub(crate) const NAMES_CACHE_MAX: usize = 65_536;
/// Groups of batches that one thread writes before it hands the writer role over: its caller waits that long at most.
pub(crate) const LEADER_GROUPS_MAX: usize = 4;
/// Idle connections that a pool of readers retains.
pub(crate) const IDLE_READERS_MAX: usize = 8;
/// Prepared statements that a connection caches: more than the library has.
pub(crate) const STATEMENTS_MAX: usize = 96;
/// Spin before a thread parks: about one fsync of a fast disk. Parking and waking cost both sides together some 40 us;
/// where an fsync takes milliseconds, spinning first costs a few percent of one CPU.
pub(crate) const SPIN_BEFORE_PARK: Duration = Duration::from_micros(150);
/// Duration for which the leader lingers for followers to enqueue their next batch, so that one fsync serves them all:
/// with 8 threads a group grows from 5.6 to 6.4 batches.
pub(crate) const GROUP_LINGER: Duration = Duration::from_micros(40);
/// Duration for which the background writer lingers for a further batch when no caller waits for the submitted ones.
pub(crate) const SUBMIT_LINGER: Duration = Duration::from_micros(100);
/// Longest first pause between two attempts at a lock that another process holds: about the time of a commit.
pub(crate) const LOCK_RETRY_MIN: Duration = Duration::from_micros(250);
/// Longest pause between two attempts at a lock that another process holds. The handler of SQLite sleeps up to 100 ms,
/// so that one of 16 processes waited 1.3 s of 1.4 s while the others committed.
pub(crate) const LOCK_RETRY_MAX: Duration = Duration::from_millis(3);
/// Wait for a lock of another process after which the attempts come more often, so that a process that has waited long
/// is ahead of those that come.
pub(crate) const LOCK_WAIT_LONG: Duration = Duration::from_millis(100);
/// Longest wait in the queue for the write lock. A process in it that is stopped holds up those that came after it.
pub(crate) const LOCK_QUEUE_MAX: Duration = Duration::from_millis(500);
/// Time in which a process that has passed the queue may begin further transactions without it. With a queue for each
/// transaction, two processes wrote 700 transactions a second in place of 1,700.
pub(crate) const LOCK_TURN: Duration = Duration::from_millis(4);
/// Time after which a writer looks up the names of its log and of the shared memory again: a look costs 2 % of a commit
/// that is not synced. A log without a name is seen at the next commit.
pub(crate) const LOG_NAMES_TIME: Duration = Duration::from_millis(10);
/// Longest pause between two attempts of the process at the front of the queue. With short ones it would end the turn
/// of the process before it after one transaction, and take the time of that process.
pub(crate) const LOCK_FRONT_PAUSE: Duration = Duration::from_millis(1);
/// Cost of the rows of deleted threads that one transaction reclaims; a row costs one, and one more for every
/// [`RECLAIM_ROW_BYTES`] of its value: together some milliseconds.
pub(crate) const RECLAIM_COST_MAX: usize = 768;
/// Bytes of a value that are reclaimed at the cost of a row.
pub(crate) const RECLAIM_ROW_BYTES: usize = 512;
/// Transactions in which the call that deletes a thread reclaims its rows before it leaves the rest to the background.
pub(crate) const RECLAIM_SLICES: usize = 4;
/// Time between two transactions of the background that reclaim rows, in which other writers get the lock.
pub(crate) const RECLAIM_INTERVAL: Duration = Duration::from_millis(5);
/// Checkpoints that one transaction prunes.
pub(crate) const PRUNE_CHECKPOINTS_MAX: i64 = 64;
/// Checkpoints that an estimate of a pruning looks at together.
pub(crate) const PRUNE_ESTIMATED_MAX: i64 = 1_024;
/// Time between two transactions that prune, in which other writers get the lock.
pub(crate) const PRUNE_INTERVAL: Duration = Duration::from_millis(1);
/// Transactions at whose begin a handle tries to empty the write-ahead log that it found, while others use the file.
pub(crate) const INHERITED_WAL_ATTEMPTS_MAX: usize = 8;
/// Positions below the end of a list whose items the end tells to exist, if the list has deletes.
pub(crate) const LIST_RUN_MAX: u64 = 127;
/// Checkpoints that are recognized in the lost end of a write-ahead log.
pub(crate) const LOST_CHECKPOINTS_MAX: usize = 10_000;
/// Readings of a write-ahead log whose end changes while a check reads it.
pub(crate) const LOG_READINGS_MAX: usize = 8;
/// Files that a restoration puts aside beside one store.
pub(crate) const ASIDE_NAMES_MAX: usize = 1_000;
/// Backoff of the background after it failed to empty the log or to reclaim rows.
pub(crate) const RECLAIM_RETRY: Duration = Duration::from_millis(250);
/// Longest time between two looks of the background at the threads in the trash.
pub(crate) const TRASH_INTERVAL: Duration = Duration::from_secs(60);
/// Wait for another process that holds the write lock, unless set otherwise.
pub(crate) const BUSY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Bytes of decoded heads that a handle of a store caches, unless set otherwise.
pub(crate) const HEAD_CACHE_BYTES_DEFAULT: usize = 64 << 20;
/// Duration for which a file that is read without locks must not have changed before it is read: longer than the
/// resolution of the timestamps of a file system.
pub(crate) const STAMP_SETTLE: Duration = Duration::from_millis(10);
/// Items that a reader collects in one read transaction before they are visited.
pub(crate) const ITEM_PAGE_ROWS_MAX: usize = 512;
/// Bytes of items after which a reader ends its read transaction and visits them.
pub(crate) const ITEM_PAGE_BYTES_MAX: usize = 1 << 20;
/// Payloads with one item id, and branches, in which an item is looked for before its list is searched.
pub(crate) const FOUND_ITEMS_MAX: usize = 8;
/// Checkpoints whose versions the first transaction of a walk along a lineage reads; each further one reads more.
pub(crate) const VERSION_PAGE_MIN: i64 = 16;
/// Checkpoints whose versions one transaction reads.
pub(crate) const VERSION_PAGE_MAX: i64 = 4_096;
/// Bytes by which the write-ahead log grows before it is copied into the file.
pub(crate) const WAL_COPY_BYTES: u64 = 4 << 20;
/// Bytes by which the write-ahead log grows before its size is compared with its limit.
pub(crate) const WAL_MEASURED_BYTES: u64 = 1 << 20;
/// Attempts to copy the whole write-ahead log before it is truncated.
pub(crate) const WAL_TRUNCATE_ATTEMPTS_MAX: usize = 3;
/// Bytes of the write-ahead log past which its last frames are copied while no batch is written.
pub(crate) const WAL_RESTART_BYTES: u64 = 16 << 20;
/// Bytes of the write-ahead log past which its file is truncated as well.
pub(crate) const WAL_TRUNCATE_BYTES: u64 = 64 << 20;
/// Bytes of the write-ahead log past which commits fail while a reader keeps it from being copied, unless set
/// otherwise.
pub(crate) const WAL_LIMIT_BYTES_DEFAULT: u64 = 1 << 30;
/// First pause before the write-ahead log is copied again after a reader was in the way.
pub(crate) const WAL_RETRY_MIN: Duration = Duration::from_millis(50);
/// Longest pause before the write-ahead log is copied again after a reader was in the way.
pub(crate) const WAL_RETRY_MAX: Duration = Duration::from_secs(1);

const _: () = assert!(INLINE_BYTES_MAX < BLOB_BYTES_MIN && BLOB_BYTES_MIN < VALUE_BYTES_MAX);
const _: () = assert!(ITEM_ID_BYTES_MAX <= BLOB_BYTES_MIN);
const _: () = assert!(INDEX_SNAPSHOT_INTERVAL.is_power_of_two());
const _: () =
    assert!(MAP_POSITION_MIN + MAP_KEY_POSITIONS < TEXT_POSITION_MIN && TEXT_POSITION_MIN < TEXT_POSITION_END);
const _: () = assert!(MAP_KEY_BYTES_MAX < VALUE_BYTES_MAX);
const _: () =
    assert!(LEASE_MIN.as_nanos() < LEASE_DEFAULT.as_nanos() && LEASE_DEFAULT.as_nanos() < LEASE_MAX.as_nanos());
const _: () = assert!(WATCH_HINTED.as_nanos() < WATCH_INTERVAL.as_nanos());
const _: () = assert!(WATCH_INTERVAL.as_nanos() < WATCH_IDLE.as_nanos());
const _: () = assert!(WATCH_IDLE.as_nanos() < WATCH_WAIT.as_nanos());
const _: () = assert!(OPERATION_ROWS_MIN <= HISTORY_PAGE_ROWS);
const _: () = assert!(HISTORY_PAGE_ROWS <= PAGE_ROWS_MAX && POINT_PAGE_ROWS <= PAGE_ROWS_MAX as u64);
const _: () = assert!(EVOLUTION_PAGE_MIN < EVOLUTION_PAGE_MAX && EVOLUTION_PAGE_MAX <= PAGE_ROWS_MAX);
const _: () = assert!(BLOB_BYTES_MIN < COLLECTED_BYTES_MAX && COLLECTED_BYTES_MAX < VALUE_BYTES_MAX);
const _: () = assert!(GROUP_LINGER.as_nanos() < SUBMIT_LINGER.as_nanos());
const _: () = assert!(SUBMIT_LINGER.as_nanos() < SPIN_BEFORE_PARK.as_nanos());
const _: () = assert!(SPIN_BEFORE_PARK.as_nanos() < LOCK_RETRY_MIN.as_nanos());
const _: () = assert!(LOCK_RETRY_MIN.as_nanos() < LOCK_RETRY_MAX.as_nanos());
const _: () = assert!(LOCK_RETRY_MAX.as_nanos() < LOCK_WAIT_LONG.as_nanos());
const _: () = assert!(LOCK_FRONT_PAUSE.as_nanos() < LOCK_TURN.as_nanos());
const _: () = assert!(LOCK_TURN.as_nanos() < LOCK_WAIT_LONG.as_nanos());
const _: () = assert!(LOCK_WAIT_LONG.as_nanos() < LOCK_QUEUE_MAX.as_nanos());
const _: () = assert!(LOCK_QUEUE_MAX.as_nanos() < BUSY_TIMEOUT_DEFAULT.as_nanos());
const _: () = assert!(WAL_MEASURED_BYTES < WAL_COPY_BYTES);
const _: () = assert!(WAL_COPY_BYTES < WAL_RESTART_BYTES && WAL_RESTART_BYTES < WAL_TRUNCATE_BYTES);
const _: () =
    assert!(WAL_TRUNCATE_BYTES < WAL_LIMIT_BYTES_DEFAULT && WAL_RETRY_MIN.as_nanos() < WAL_RETRY_MAX.as_nanos());
const _: () = assert!(ITEM_PAGE_BYTES_MAX < VALUE_BYTES_MAX && ITEM_PAGE_ROWS_MAX < PAGE_ROWS_MAX);
const _: () = assert!(BATCH_CHECKPOINTS_MAX <= WRITER_CACHE_MAX && DELETED_THREADS_MAX <= WRITER_CACHE_MAX);
const _: () = assert!(CHANNELS_MAX <= NAMES_CACHE_MAX);
const _: () = assert!(SEARCH_HITS_DEFAULT <= SEARCH_HITS_MAX && SNIPPET_LEAD_CHARS < SNIPPET_CHARS_MAX);
const _: () = assert!(SEARCH_TEXT_BYTES_MAX < SEARCHED_BYTES_MAX);
const _: () = assert!(RECLAIM_INTERVAL.as_nanos() < RECLAIM_RETRY.as_nanos());
