//! Every maximum of the engine, in one place. A value past a limit is refused with an error that names field and limit.

/// Bytes of a thread id.
pub const THREAD_ID_BYTES_MAX: usize = 1_024;
/// Bytes of a namespace path.
pub const NAMESPACE_BYTES_MAX: usize = 4_096;
/// Bytes of a channel or node name.
pub const NAME_BYTES_MAX: usize = 256;
/// Bytes of an item id (a message id).
pub const ITEM_ID_BYTES_MAX: usize = 1_024;
/// Channels that one batch may change, and that one graph may have.
pub const CHANNELS_MAX: usize = 10_000;
/// Writes that one task may make in a superstep.
pub const TASK_WRITES_MAX: usize = 10_000;
/// Tasks of one superstep.
pub const TASKS_MAX: usize = 100_000;
/// Checkpoints in one batch.
pub const BATCH_CHECKPOINTS_MAX: usize = 1_000;
/// Bytes of one encoded value.
pub const VALUE_BYTES_MAX: usize = 64 << 20;
/// Items that an export or import did not understand and that its report names; the others are counted.
pub const PROBLEMS_MAX: usize = 100;
/// Messages that one checkpoint of an import brings.
pub const IMPORT_MESSAGES_MAX: usize = 1_000;
/// Bytes of messages after which an import makes a checkpoint, however few they are.
pub const IMPORT_BYTES_MAX: usize = 8 << 20;
/// Bytes of the text of one item of an import, which is held as a whole.
pub const IMPORT_ITEM_BYTES_MAX: usize = 128 << 20;
/// Bytes of the metadata of a checkpoint, as JSON text.
pub const METADATA_BYTES_MAX: usize = 1 << 20;
/// Graphs around one that a checkpoint may name.
pub const PARENTS_MAX: usize = 256;
/// Lists that lie below one another, each beginning as the next.
pub const LIST_REFERENCES_MAX: usize = 256;
/// Digits of an integer (as in Python).
pub const INTEGER_DIGITS_MAX: usize = 4_300;
/// Nesting of a decoded value.
pub const VALUE_DEPTH_MAX: usize = 128;
/// Values inside one decoded value.
pub const VALUE_NODES_MAX: usize = 4_000_000;
/// Values of up to this many bytes stand where a payload id would stand: a reference would cost as much.
pub const INLINE_BYTES_MAX: usize = 24;
/// Texts and data from this size on are stored once per content (BLAKE3).
pub const BLOB_BYTES_MIN: usize = 1_536;
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
/// Expired entries that a commit of new ones takes away.
pub const KV_EXPIRED_MAX: u32 = 16;
/// Items that a search of the key-value memory gives, unless set otherwise (as in LangGraph).
pub const KV_SEARCH_DEFAULT: usize = 10;
/// Namespaces that a listing of the key-value memory gives, unless set otherwise (as in LangGraph).
pub const KV_NAMESPACES_DEFAULT: usize = 100;
/// Threads that one call may delete.
pub const DELETED_THREADS_MAX: usize = 1_000;
/// Bytes of the idempotency key of a run.
pub const RUN_KEY_BYTES_MAX: usize = 1_024;
/// Rows that one page of a listing may hold.
pub const PAGE_ROWS_MAX: usize = 10_000;
/// Batches that one transaction takes along.
pub const GROUP_BATCHES_MAX: usize = 256;
/// Batches that may wait for the background writer before a submitter has to wait.
pub const QUEUE_BATCHES_MAX: usize = 1_024;
/// Threads that run the nodes of one process, unless set otherwise.
pub const NODE_THREADS_DEFAULT: usize = 32;
/// Supersteps of one run, unless set otherwise (the default of LangGraph 1.2).
pub const RECURSION_LIMIT_DEFAULT: u64 = 10_007;

const _: () = assert!(INLINE_BYTES_MAX < BLOB_BYTES_MIN && BLOB_BYTES_MIN < VALUE_BYTES_MAX);
const _: () = assert!(VALUE_BYTES_MAX < IMPORT_ITEM_BYTES_MAX);
const _: () = assert!(GROUP_BATCHES_MAX <= QUEUE_BATCHES_MAX);
const _: () = assert!(ITEM_ID_BYTES_MAX <= BLOB_BYTES_MIN);
const _: () = assert!(INDEX_SNAPSHOT_INTERVAL.is_power_of_two());
