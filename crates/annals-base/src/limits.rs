//! Every maximum of the engine, in one place. A value past a limit is refused with an error that names field and limit.

use std::time::Duration;

/// Bytes of a thread id.
pub const THREAD_ID_BYTES_MAX: usize = 1_024;
/// The shortest duration of a lease.
pub const LEASE_MIN: Duration = Duration::from_millis(10);
/// The longest duration of a lease.
pub const LEASE_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);
/// The duration of the lease of a run, unless it sets another one. It is renewed after a third of it.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);
/// Continuations of a run whose process died, before a worker marks it as stuck, unless the worker sets another number.
pub const RECOVERIES_DEFAULT: u64 = 10;
/// Duration for which the thread that renews leases waits for another one before it ends.
pub const RENEWAL_IDLE: Duration = Duration::from_secs(5);
/// Pause between two looks of a run with a lease at a cancel or a pause of its thread.
pub const CONTROL_INTERVAL: Duration = Duration::from_millis(50);
/// The longest pause of a worker between two looks at its clock, which may jump.
pub const WORKER_IDLE: Duration = Duration::from_secs(1);
/// The duration of a transaction on the tables of an application; others wait for the writer role meanwhile.
pub const TRANSACTION_TIME_MAX: Duration = Duration::from_secs(5);
/// Instructions of SQLite between two comparisons of a transaction with that duration: some tenths of a millisecond.
pub const TRANSACTION_STEPS_BETWEEN: i32 = 10_000;
/// Statements of a transaction on the tables of an application.
pub const TRANSACTION_STATEMENTS_MAX: usize = 100_000;
/// Bytes of the text of one of its statements.
pub const STATEMENT_BYTES_MAX: usize = 1 << 20;
/// Rows that one of its queries returns.
pub const STATEMENT_ROWS_MAX: usize = 1_000_000;
/// Threads, or checkpoints, that a worker reads at once.
pub const WORKER_PAGE_ROWS: usize = 256;
/// The longest pause between two attempts to claim a thread while waiting for its lease.
pub const LEASE_RETRY: Duration = Duration::from_secs(1);
/// The longest pause of a worker between two looks for the commits of other processes, where the system does not
/// announce them; and the time for which a worker without room gathers commits.
pub const WORKER_POLL: Duration = Duration::from_millis(5);
/// The pause between two looks of a worker at the schedules that processes may have changed.
pub const SCHEDULE_LOOK: Duration = Duration::from_secs(1);
/// The delay past which a due time of a schedule counts as missed.
pub const SCHEDULE_LATE_MAX: Duration = Duration::from_secs(60);
/// Missed runs of a schedule that a worker enqueues.
pub const SCHEDULE_RUNS_MAX: usize = 1_000;
/// The pause of a worker after which it asks again for the claims that a limit has refused.
pub const WORKER_ASK: Duration = Duration::from_millis(20);
/// Runs that a worker knows to be due. The others stay in their queues.
pub const WORKER_AGENDA_MAX: usize = 1_024;
/// The greatest priority of a queued run. The default is 0.
pub const PRIORITY_MAX: u8 = 9;
/// Groups that one claim of a lease may name.
pub const LEASE_GROUPS_MAX: usize = 16;
/// Bytes of the name of a group: the name of a queue, of a key, and a value.
pub const LEASE_GROUP_BYTES_MAX: usize = 8 * NAME_BYTES_MAX;
/// Live leases that a group may allow, and claims within a period.
pub const LEASE_GROUP_LIMIT_MAX: u64 = 10_000;
/// Bytes of the text of a point, or of a range of two points.
pub const POINT_BYTES_MAX: usize = 8_192;
/// Bytes of a namespace path.
pub const NAMESPACE_BYTES_MAX: usize = 4_096;
/// Bytes of a channel or node name.
pub const NAME_BYTES_MAX: usize = 256;
/// Number of supersteps after which a run stores the version of its graph again, so that it is found without reading
/// the whole run.
pub const GRAPH_CODE_STEPS: i64 = 64;
/// Longest pause before another attempt in which a run that is recorded waits; before a longer one it ends, and the
/// task sleeps.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);
/// Pause before the second attempt of a task, unless its policy sets another one (as in LangGraph).
pub const RETRY_INTERVAL_DEFAULT: Duration = Duration::from_millis(500);
/// Longest pause between two attempts of a task, unless its policy sets another one (as in LangGraph).
pub const RETRY_INTERVAL_MAX_DEFAULT: Duration = Duration::from_secs(128);
/// Attempts of a task whose errors are stored, the newest.
pub const ATTEMPTS_STORED_MAX: usize = 100;
/// Bytes of the stored error of an attempt that was followed by another one.
pub const ATTEMPT_ERROR_BYTES_MAX: usize = 2_048;
/// Bytes of an item id (a message id).
pub const ITEM_ID_BYTES_MAX: usize = 1_024;
/// Bytes of a key of a map channel.
pub const MAP_KEY_BYTES_MAX: usize = 1_024;
/// The first position of a list channel that holds a map. The positions below are those of lists.
pub const MAP_POSITION_MIN: u64 = 1 << 40;
/// The first position of a list channel that holds a text. The positions from [`MAP_POSITION_MIN`] on and below are
/// those of maps.
pub const TEXT_POSITION_MIN: u64 = 1 << 41;
/// One past the last position of a list channel that holds a text.
pub const TEXT_POSITION_END: u64 = 1 << 42;
/// Positions at which an entry of a map may lie: that of the hash of its key, and those after it.
pub const MAP_KEY_POSITIONS: u64 = 16;
/// Channels that one batch may change, and that one graph may have.
pub const CHANNELS_MAX: usize = 10_000;
/// Writes that one task may make in a superstep.
pub const TASK_WRITES_MAX: usize = 10_000;
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
/// Problems that one report names: damaged rows of a check, and items that an export or import did not understand.
pub const PROBLEMS_MAX: usize = 100;
/// Bytes of the place, and of the reason, in an error of damage.
pub const ERROR_TEXT_BYTES_MAX: usize = 1_000;
/// Placeholders of damaged items that one read of a list makes.
pub const PLACEHOLDERS_MAX: usize = 10_000;
/// Messages that one checkpoint of an import brings.
pub const IMPORT_MESSAGES_MAX: usize = 1_000;
/// Bytes of messages after which an import makes a checkpoint, however few they are.
pub const IMPORT_BYTES_MAX: usize = 8 << 20;
/// Bytes of the text of one item of an import, which is held as a whole.
pub const IMPORT_ITEM_BYTES_MAX: usize = 128 << 20;
/// Bytes of the metadata of a checkpoint, as JSON text.
pub const METADATA_BYTES_MAX: usize = 1 << 20;
/// Distance of the step of a checkpoint from 0, so that a step plus a recursion limit is far from the borders of an
/// `i64`.
pub const STEP_MAX: i64 = 1 << 53;
/// Graphs around one that a checkpoint may name.
pub const PARENTS_MAX: usize = 256;
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
pub const DECODED_DEPTH_MAX: usize = VALUE_DEPTH_MAX + 16;
/// Values inside one value that is decoded: a record that wraps an encoded value adds some.
pub const DECODED_NODES_MAX: usize = VALUE_NODES_MAX + 1_024;
/// Depth at which serializing a value in memory ends: a guard of the stack, above every limit of a format.
pub const SERIALIZED_DEPTH_MAX: usize = 512;
/// Lists and objects inside one another in a JSON text. A message stores them up to 8 levels deeper, in a map of
/// fields.
pub const JSON_DEPTH_MAX: usize = VALUE_DEPTH_MAX - 16;
/// Values inside one JSON text.
pub const JSON_NODES_MAX: usize = VALUE_NODES_MAX - 1_024;
/// Values of up to this many bytes stand where a payload id would stand: a reference would cost as much.
pub const INLINE_BYTES_MAX: usize = 24;
/// Texts and data from this size on are stored once per content (BLAKE3).
pub const BLOB_BYTES_MIN: usize = 1_536;
/// Bytes of the id of a key.
pub const KEY_ID_BYTES_MAX: usize = 255;
/// A branch writes the list of its newest channel rows every so many positions.
pub const INDEX_SNAPSHOT_INTERVAL: u64 = 64;
/// Labels of a namespace of the key-value memory or of the cache.
pub const KV_LABELS_MAX: usize = 32;
/// Bytes of a namespace of the key-value memory or of the cache, all labels together.
pub const KV_NAMESPACE_BYTES_MAX: usize = 4_096;
/// Bytes of a key of the key-value memory or of the cache.
pub const KV_KEY_BYTES_MAX: usize = 1_024;
/// Changes of the key-value memory or of the cache that one commit may make.
pub const KV_CHANGES_MAX: usize = 10_000;
/// Duration by which the cached writes of a call outlive its cached result, which is looked up first.
pub const CACHE_WRITES_MARGIN: Duration = Duration::from_secs(1);
/// Expired entries that a commit of new ones takes away.
pub const KV_EXPIRED_MAX: u32 = 16;
/// Pause between two looks of a follower of the log at the counter that other processes change.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(20);
/// The longest such pause where the system announces that another process may be about to commit.
pub const WATCH_IDLE: Duration = Duration::from_secs(1);
/// The pause after such an announcement. Each further one is twice as long.
pub const WATCH_HINTED: Duration = Duration::from_millis(1);
/// Changes in a row that were not announced, after which a follower no longer relies on announcements.
pub const WATCH_UNHINTED_MAX: u32 = 3;
/// The pause of the thread that reads the events of write-ahead logs: those that come meanwhile are one.
pub const WAL_EVENT_PAUSE: Duration = Duration::from_millis(5);
/// Longest wait of the thread that wakes asynchronous followers before it looks whether they are gone. A commit ends
/// it.
pub const WATCH_WAIT: Duration = Duration::from_secs(3_600);
/// Checkpoints that a follower of the log reads at once.
pub const WATCH_PAGE_ROWS: usize = 256;
/// Vectors of an entry of the key-value memory.
pub const KV_VECTORS_MAX: usize = 1_024;
/// Bytes of the path of an indexed field of the key-value memory.
pub const KV_FIELD_BYTES_MAX: usize = 1_024;
/// Dimensions of a vector of the key-value memory.
pub const EMBEDDING_DIMS_MAX: usize = 16_384;
/// Entries of the key-value memory that a sweep removes, or a search prolongs, in one commit.
pub const KV_SWEEP_MAX: usize = 1_000;
/// Items that a search of the key-value memory gives, unless set otherwise (as in LangGraph).
pub const KV_SEARCH_DEFAULT: usize = 10;
/// Namespaces that a listing of the key-value memory gives, unless set otherwise (as in LangGraph).
pub const KV_NAMESPACES_DEFAULT: usize = 100;
/// Bytes of the text of a search.
pub const SEARCH_TEXT_BYTES_MAX: usize = 1_024;
/// Hits of a page of a search.
pub const SEARCH_HITS_MAX: usize = 1_000;
/// Hits of a page of a search, unless set otherwise.
pub const SEARCH_HITS_DEFAULT: usize = 20;
/// Grams of the words of a search by which its index is read.
pub const SEARCH_GRAMS_MAX: usize = 16;
/// Entries of one checkpoint in the search index.
pub const SEARCH_ENTRIES_MAX: i64 = 1 << 24;
/// Threads of a listing, unless set otherwise.
pub const THREADS_LISTED_DEFAULT: usize = 50;
/// Checkpoints that the table of threads may lag behind the log before a commit lets it follow.
pub const THREADS_TAIL_MAX: i64 = 128;
/// Checkpoints that the table of threads follows in one transaction.
pub const THREADS_FOLLOWED_MAX: i64 = 1_024;
/// Checkpoints that a search scans before it lets the index follow.
pub const SEARCH_TAIL_MAX: u64 = 256;
/// Cost of one transaction that indexes texts: one for each gram, entry and checkpoint, about half a microsecond.
pub const INDEX_COST_MAX: usize = 8_192;
/// The pause between two such transactions.
pub const FOLLOW_INTERVAL: Duration = Duration::from_millis(1);
/// Bytes of a stored text that a search reads: its beginning.
pub const SEARCHED_BYTES_MAX: usize = 64 << 10;
/// Characters of a snippet; a longer first match is shown whole.
pub const SNIPPET_CHARS_MAX: usize = 160;
/// Characters of a snippet before its first match.
pub const SNIPPET_LEAD_CHARS: usize = 40;
/// Threads that one call may delete.
pub const DELETED_THREADS_MAX: usize = 1_000;
/// Forks that the refusal to delete a thread names.
pub const FORKS_SHOWN_MAX: usize = 16;
/// Threads that are noted as users of a name; a name with more stays when they are deleted.
pub const NAME_USERS_MAX: usize = 8;
/// Bytes of the idempotency key of a run.
pub const RUN_KEY_BYTES_MAX: usize = 1_024;
/// Bytes of a position in the log.
pub const POSITION_BYTES_MAX: usize = 23;
/// Rows that one page of a listing may hold.
pub const PAGE_ROWS_MAX: usize = 10_000;
/// Checkpoints, operations or threads that a walk through a history reads at once.
pub const HISTORY_PAGE_ROWS: usize = 64;
/// Checkpoints and stored operations that a walk through the operations of a thread reads first; each further page is
/// twice as long.
pub const OPERATION_ROWS_MIN: usize = 4;
/// Checkpoints that a point with a distance from the head passes over at once.
pub const POINT_PAGE_ROWS: u64 = 256;
/// Versions that the first read of the values of a channel over time brings; each further one brings more.
pub const EVOLUTION_PAGE_MIN: usize = 4;
/// Versions that one read of the values of a channel over time brings.
pub const EVOLUTION_PAGE_MAX: usize = 1_024;
/// Characters of a value in a line of a diff.
pub const BRIEF_CHARS_MAX: usize = 100;
/// Bytes of the actor of an operation.
pub const ACTOR_BYTES_MAX: usize = 256;
/// Bytes of a fact about a thread.
pub const FACT_BYTES_MAX: usize = 64 << 10;
/// Changes of one operation.
pub const OPERATION_CHANGES_MAX: usize = 10_000;
/// Batches that one transaction takes along.
pub const GROUP_BATCHES_MAX: usize = 256;
/// Commits of a graph that a run has submitted and not awaited; before the next one it waits for the oldest.
pub const PENDING_COMMITS_MAX: usize = 256;
/// Threads that run the nodes of one process, unless set otherwise.
pub const NODE_THREADS_DEFAULT: usize = 32;
/// Threads of a store that run the blocking calls of asynchronous callers.
pub const UNBLOCK_THREADS_MAX: usize = 256;
/// Duration for which an idle thread of a pool waits for work before it ends.
pub const POOL_IDLE: Duration = Duration::from_secs(10);
/// Duration in which no task of a superstep is taken up, after which more threads are woken for its tasks.
pub const TASKS_ALONE: Duration = Duration::from_micros(10);
/// Events that are queued for a slow reader of a stream before the nodes that emit them wait too.
pub const QUEUED_EVENTS_MAX: usize = 256;
/// Supersteps that a drawing follows: a loop of plain edges never ends.
pub const DRAWING_STEPS_MAX: usize = 251;
/// Nodes of a graph whose drawing is stored for viewers.
pub const DRAWING_NODES_MAX: usize = 200;
/// Pairs of a graph and a store of which a process remembers that the store has the drawing.
pub const DRAWN_GRAPHS_MAX: usize = 1_024;
/// Supersteps of one run, unless set otherwise (the default of LangGraph 1.2).
pub const RECURSION_LIMIT_DEFAULT: u64 = 10_007;

const _: () = assert!(INLINE_BYTES_MAX < BLOB_BYTES_MIN && BLOB_BYTES_MIN < VALUE_BYTES_MAX);
const _: () = assert!(JSON_DEPTH_MAX + 8 <= VALUE_DEPTH_MAX && JSON_NODES_MAX < VALUE_NODES_MAX);
const _: () = assert!(VALUE_DEPTH_MAX < DECODED_DEPTH_MAX && VALUE_NODES_MAX < DECODED_NODES_MAX);
const _: () = assert!(DECODED_DEPTH_MAX < SERIALIZED_DEPTH_MAX && DECODED_DEPTH_MAX < u16::MAX as usize);
const _: () = assert!(VALUE_BYTES_MAX < IMPORT_ITEM_BYTES_MAX);
const _: () = assert!(ITEM_ID_BYTES_MAX <= BLOB_BYTES_MIN);
const _: () = assert!(INDEX_SNAPSHOT_INTERVAL.is_power_of_two());
const _: () =
    assert!(MAP_POSITION_MIN + MAP_KEY_POSITIONS < TEXT_POSITION_MIN && TEXT_POSITION_MIN < TEXT_POSITION_END);
const _: () = assert!(MAP_KEY_BYTES_MAX < VALUE_BYTES_MAX);
const _: () =
    assert!(LEASE_MIN.as_nanos() < LEASE_DEFAULT.as_nanos() && LEASE_DEFAULT.as_nanos() < LEASE_MAX.as_nanos());
const _: () = assert!(RENEWAL_IDLE.as_nanos() < LEASE_DEFAULT.as_nanos());
const _: () = assert!(RETRY_INTERVAL_DEFAULT.as_nanos() < RETRY_PAUSE_MAX.as_nanos());
const _: () = assert!(RETRY_PAUSE_MAX.as_nanos() < RETRY_INTERVAL_MAX_DEFAULT.as_nanos());
const _: () = assert!(WATCH_HINTED.as_nanos() < WATCH_INTERVAL.as_nanos());
const _: () = assert!(WATCH_INTERVAL.as_nanos() < WATCH_IDLE.as_nanos());
const _: () = assert!(WATCH_IDLE.as_nanos() < WATCH_WAIT.as_nanos());
const _: () = assert!(OPERATION_ROWS_MIN <= HISTORY_PAGE_ROWS);
const _: () = assert!(HISTORY_PAGE_ROWS <= PAGE_ROWS_MAX && POINT_PAGE_ROWS <= PAGE_ROWS_MAX as u64);
const _: () = assert!(EVOLUTION_PAGE_MIN < EVOLUTION_PAGE_MAX && EVOLUTION_PAGE_MAX <= PAGE_ROWS_MAX);
const _: () = assert!(TASKS_ALONE.as_nanos() < POOL_IDLE.as_nanos());

// The store

/// Intervals of 100 ns since 1582-10-15 in the timestamp of an id, which has 60 bits.
pub(crate) const ID_TICKS_MAX: u64 = (1 << 60) - 1;
/// Decoded heads that a handle of a store caches; they are searched in order.
pub const HEADS_MAX: usize = 256;
/// Namespaces, and checkpoints, that the writer of a file caches; past it the cache is emptied.
pub const WRITER_CACHE_MAX: usize = 4_096;
/// Places of rows that the writer retains for the next index snapshots; past it they are forgotten.
pub const PLACES_CACHE_MAX: usize = 16 * WRITER_CACHE_MAX;
/// Pages that one transaction of a compaction returns.
pub const COMPACT_PAGES_MAX: usize = 64;
/// Lost things that the report of a recovery names.
pub const LOST_MAX: usize = 10_000;
/// Rows that a recovery reads at once, until one of them is damaged.
pub const SCAN_ROWS: usize = 64;
/// Bytes of metadata and tasks past which a replay writes the checkpoints that it has read.
pub const REPLAY_BYTES: usize = 1 << 20;
/// Listings of the locks of the system that are read until one shows the holder: other locks change meanwhile.
pub const LOCK_LISTINGS_MAX: usize = 8;
/// Capacity of the buffer for a listing of the locks of the system: more than a busy machine lists.
pub const LOCK_LISTING_BYTES: usize = 64 << 10;
/// Ranges of rows that a recovery passes over in one table.
pub const SCAN_FAILURES_MAX: usize = 100_000;
/// Copies of files of an older format that are retained beside one store.
pub const OLDER_COPIES_MAX: usize = 100;
/// Names that the readers of a file cache, and as many that its writer does.
pub const NAMES_CACHE_MAX: usize = 65_536;
/// Groups of batches that one thread writes before it hands the writer role over: its caller waits that long at most.
pub const LEADER_GROUPS_MAX: usize = 4;
/// Idle connections that a pool of readers retains.
pub const IDLE_READERS_MAX: usize = 8;
/// Prepared statements that a connection caches: more than the library has.
pub const STATEMENTS_MAX: usize = 96;
/// Payloads of up to this many bytes are collected before they are hashed.
pub const COLLECTED_BYTES_MAX: usize = 16 << 10;
/// Spin before a thread parks: about one fsync of a fast disk. Parking and waking cost both sides together some 40 us;
/// where an fsync takes milliseconds, spinning first costs a few percent of one CPU.
pub const SPIN_BEFORE_PARK: Duration = Duration::from_micros(150);
/// Duration for which the leader lingers for followers to enqueue their next batch, so that one fsync serves them all:
/// with 8 threads a group grows from 5.6 to 6.4 batches.
pub const GROUP_LINGER: Duration = Duration::from_micros(40);
/// Duration for which the background writer lingers for a further batch when no caller waits for the submitted ones.
pub const SUBMIT_LINGER: Duration = Duration::from_micros(100);
/// Longest first pause between two attempts at a lock that another process holds: about the time of a commit.
pub const LOCK_RETRY_MIN: Duration = Duration::from_micros(250);
/// Longest pause between two attempts at a lock that another process holds. The handler of SQLite sleeps up to 100 ms,
/// so that one of 16 processes waited 1.3 s of 1.4 s while the others committed.
pub const LOCK_RETRY_MAX: Duration = Duration::from_millis(3);
/// Wait for a lock of another process after which the attempts come more often, so that a process that has waited long
/// is ahead of those that come.
pub const LOCK_WAIT_LONG: Duration = Duration::from_millis(100);
/// Longest wait in the queue for the write lock. A process in it that is stopped holds up those that came after it.
pub const LOCK_QUEUE_MAX: Duration = Duration::from_millis(500);
/// Time in which a process that has passed the queue may begin further transactions without it. With a queue for each
/// transaction, two processes wrote 700 transactions a second in place of 1,700.
pub const LOCK_TURN: Duration = Duration::from_millis(4);
/// Time after which a writer looks up the names of its log and of the shared memory again: a look costs 2 % of a commit
/// that is not synced. A log without a name is seen at the next commit.
pub const LOG_NAMES_TIME: Duration = Duration::from_millis(10);
/// Longest pause between two attempts of the process at the front of the queue. With short ones it would end the turn
/// of the process before it after one transaction, and take the time of that process.
pub const LOCK_FRONT_PAUSE: Duration = Duration::from_millis(1);
/// Cost of the rows of deleted threads that one transaction reclaims; a row costs one, and one more for every
/// [`RECLAIM_ROW_BYTES`] of its value: together some milliseconds.
pub const RECLAIM_COST_MAX: usize = 768;
/// Bytes of a value that are reclaimed at the cost of a row.
pub const RECLAIM_ROW_BYTES: usize = 512;
/// Transactions in which the call that deletes a thread reclaims its rows before it leaves the rest to the background.
pub const RECLAIM_SLICES: usize = 4;
/// Time between two transactions of the background that reclaim rows, in which other writers get the lock.
pub const RECLAIM_INTERVAL: Duration = Duration::from_millis(5);
/// Checkpoints that one transaction prunes.
pub const PRUNE_CHECKPOINTS_MAX: i64 = 64;
/// Checkpoints that an estimate of a pruning looks at together.
pub const PRUNE_ESTIMATED_MAX: i64 = 1_024;
/// Time between two transactions that prune, in which other writers get the lock.
pub const PRUNE_INTERVAL: Duration = Duration::from_millis(1);
/// Transactions at whose begin a handle tries to empty the write-ahead log that it found, while others use the file.
pub const INHERITED_WAL_ATTEMPTS_MAX: usize = 8;
/// Positions below the end of a list whose items the end tells to exist, if the list has deletes.
pub const LIST_RUN_MAX: u64 = 127;
/// Checkpoints that are recognized in the lost end of a write-ahead log.
pub const LOST_CHECKPOINTS_MAX: usize = 10_000;
/// Readings of a write-ahead log whose end changes while a check reads it.
pub const LOG_READINGS_MAX: usize = 8;
/// Files that a restoration puts aside beside one store.
pub const ASIDE_NAMES_MAX: usize = 1_000;
/// Backoff of the background after it failed to empty the log or to reclaim rows.
pub const RECLAIM_RETRY: Duration = Duration::from_millis(250);
/// Longest time between two looks of the background at the threads in the trash.
pub const TRASH_INTERVAL: Duration = Duration::from_secs(60);
/// Wait for another process that holds the write lock, unless set otherwise.
pub const BUSY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Bytes of decoded heads that a handle of a store caches, unless set otherwise.
pub const HEAD_CACHE_BYTES_DEFAULT: usize = 64 << 20;
/// Duration for which a file that is read without locks must not have changed before it is read: longer than the
/// resolution of the timestamps of a file system.
pub const STAMP_SETTLE: Duration = Duration::from_millis(10);
/// Items that a reader collects in one read transaction before they are visited.
pub const ITEM_PAGE_ROWS_MAX: usize = 512;
/// Bytes of items after which a reader ends its read transaction and visits them.
pub const ITEM_PAGE_BYTES_MAX: usize = 1 << 20;
/// Payloads with one item id, and branches, in which an item is looked for before its list is searched.
pub const FOUND_ITEMS_MAX: usize = 8;
/// Checkpoints whose versions the first transaction of a walk along a lineage reads; each further one reads more.
pub const VERSION_PAGE_MIN: i64 = 16;
/// Checkpoints whose versions one transaction reads.
pub const VERSION_PAGE_MAX: i64 = 4_096;
/// Bytes by which the write-ahead log grows before it is copied into the file.
pub const WAL_COPY_BYTES: u64 = 4 << 20;
/// Bytes by which the write-ahead log grows before its size is compared with its limit.
pub const WAL_MEASURED_BYTES: u64 = 1 << 20;
/// Attempts to copy the whole write-ahead log before it is truncated.
pub const WAL_TRUNCATE_ATTEMPTS_MAX: usize = 3;
/// Bytes of the write-ahead log past which its last frames are copied while no batch is written.
pub const WAL_RESTART_BYTES: u64 = 16 << 20;
/// Bytes of the write-ahead log past which its file is truncated as well.
pub const WAL_TRUNCATE_BYTES: u64 = 64 << 20;
/// Bytes of the write-ahead log past which commits fail while a reader keeps it from being copied, unless set
/// otherwise.
pub const WAL_LIMIT_BYTES_DEFAULT: u64 = 1 << 30;
/// First pause before the write-ahead log is copied again after a reader was in the way.
pub const WAL_RETRY_MIN: Duration = Duration::from_millis(50);
/// Longest pause before the write-ahead log is copied again after a reader was in the way.
pub const WAL_RETRY_MAX: Duration = Duration::from_secs(1);

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

// Messages

/// Code points of a message-like object that an error repeats (as in LangChain).
pub const MESSAGE_EXCERPT_CHARS_MAX: usize = 500;
/// Objects inside one another in token counts that are added (as in LangChain).
pub const USAGE_DEPTH_MAX: usize = 100;
/// Levels of objects and lists of a value in which dumps of messages are read (as in LangChain).
pub const LOAD_DEPTH_MAX: usize = 200;
/// Messages of a channel whose ids a stream copies when a task reads them; it searches a longer list.
pub const STREAM_IDS_COPIED_MAX: usize = 256;
/// Code points of an argument or a result in a conversation as XML (as in LangChain).
pub const XML_TEXT_CHARS_MAX: usize = 500;
/// Code points of the id of a tool call in a conversation as XML.
pub const XML_ID_CHARS_MAX: usize = 64;
/// Exponent of a decimal number of PydanticAI, in either direction, so that no arithmetic on it overflows (as in
/// Python).
pub const DECIMAL_EXPONENT_MAX: i64 = 999_999_999_999_999_999;

const _: () = assert!(DECIMAL_EXPONENT_MAX < i64::MAX / 4);
const _: () = assert!(USAGE_DEPTH_MAX < VALUE_DEPTH_MAX && XML_ID_CHARS_MAX < XML_TEXT_CHARS_MAX);
