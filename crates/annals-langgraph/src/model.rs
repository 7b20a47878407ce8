//! The plain data that LangGraph hands to a saver and gets back from it.
//!
//! *Absent:* the meaning of the bytes of a value; they are those of LangGraph's serializer.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use annals_base::Map;

/// The tag of values that LangGraph's serializer writes as MessagePack.
pub const MSGPACK: &str = "msgpack";

/// A value as LangGraph's serializer gives it (`dumps_typed`): a tag and bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Typed {
    /// The form of the bytes: `msgpack`, `json`, `null`, `bytes`, `bytearray`, `pickle`, `msgpack+aes`, ... At most
    /// 255 bytes.
    pub tag: Cow<'static, str>,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl Typed {
    /// Makes a value of a tag and bytes.
    pub fn new(tag: impl Into<Cow<'static, str>>, bytes: Vec<u8>) -> Self {
        Self { tag: tag.into(), bytes }
    }

    /// Makes a value of MessagePack.
    pub fn msgpack(bytes: Vec<u8>) -> Self {
        Self::new(MSGPACK, bytes)
    }
}

/// The place of a checkpoint, as the member `configurable` of a config names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Config {
    /// `thread_id`: any text, the empty one included.
    pub thread: String,
    /// `checkpoint_ns`; empty for the outermost graph.
    pub namespace: String,
    /// `checkpoint_id`. `None` and the empty text stand for the newest checkpoint in a read, and for no parent in a
    /// put.
    pub checkpoint: Option<String>,
}

impl Config {
    /// Makes the config of a namespace.
    pub fn new(thread: impl Into<String>, namespace: impl Into<String>) -> Self {
        Self { thread: thread.into(), namespace: namespace.into(), checkpoint: None }
    }

    /// Returns the config of a checkpoint of the namespace.
    #[must_use]
    pub fn at(&self, checkpoint: impl Into<String>) -> Self {
        Self { checkpoint: Some(checkpoint.into()), ..self.clone() }
    }

    /// Returns the id of the checkpoint; `None` for the empty text.
    pub fn checkpoint(&self) -> Option<&str> {
        self.checkpoint.as_deref().filter(|id| !id.is_empty())
    }
}

/// The version of a channel.
#[derive(Clone, Debug, PartialEq)]
pub enum SaverVersion {
    /// A number, as `BaseCheckpointSaver.get_next_version` counts.
    Integer(i64),
    /// A text, as savers count: 32 digits, a point and a suffix.
    Text(String),
    /// A float.
    Float(f64),
}

/// The channels that a checkpoint updated, `updated_channels`.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum UpdatedChannels {
    /// The checkpoint has no such member.
    #[default]
    Absent,
    /// The member is `None`.
    Unknown,
    /// The channels.
    Names(Vec<String>),
}

/// The versions that a node has seen, by channel (`versions_seen`).
pub type SeenVersions = Vec<(String, SaverVersion)>;

/// A checkpoint to be stored.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SaverCheckpoint {
    /// `id`.
    pub id: String,
    /// `v`; `None` if the checkpoint has no such member.
    pub v: Option<i64>,
    /// `ts`; `None` if the checkpoint has no such member.
    pub ts: Option<String>,
    /// `channel_versions`.
    pub versions: Vec<(String, SaverVersion)>,
    /// `versions_seen`, by node.
    pub seen: Vec<(String, SeenVersions)>,
    /// `updated_channels`.
    pub updated: UpdatedChannels,
    /// The other members of the checkpoint, such as `pending_sends`.
    pub extra: Vec<(String, Typed)>,
    /// `channel_values`: every channel that holds a value. A channel that is not listed holds none.
    pub values: Vec<(String, NewValue)>,
    /// The metadata.
    pub metadata: Map,
}

/// The value of a channel in a [`SaverCheckpoint`].
#[derive(Clone, Debug, PartialEq)]
pub enum NewValue {
    /// The value is that of the parent.
    Same,
    /// A value. If it is a `msgpack` array, its items are compared with those of the parent.
    Typed(Typed),
    /// A list: items of the parent's list, and new ones.
    Items(Vec<SaverItem>),
}

/// Items of a list in a [`SaverCheckpoint`].
#[derive(Clone, Debug, PartialEq)]
pub enum SaverItem {
    /// The items that stand at these indexes of the parent's list. Such indexes ascend in a list.
    Same(Range<u32>),
    /// An item that the parent's list does not have.
    New(Typed),
}

impl SaverCheckpoint {
    /// Starts a checkpoint of format 4 without channels and metadata.
    pub fn new(id: impl Into<String>, ts: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            v: Some(4),
            ts: Some(ts.into()),
            versions: Vec::new(),
            seen: Vec::new(),
            updated: UpdatedChannels::Unknown,
            extra: Vec::new(),
            values: Vec::new(),
            metadata: Map::new(),
        }
    }
}

/// The rule for a put whose parent is not the head any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LostRace {
    /// A put on a parent that this saver handed out as the newest checkpoint, and that is not the head any more, is
    /// refused with [`SaverError::Conflict`](crate::SaverError::Conflict). A put on a parent that was asked for by its
    /// id is a branch.
    #[default]
    Refuse,
    /// Every put on a parent that is not the head is a branch.
    Branch,
}

/// A stored checkpoint, `CheckpointTuple`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Tuple {
    /// Thread, namespace and id.
    pub config: Config,
    /// `v`, as it was put.
    pub v: Option<i64>,
    /// `ts`, as it was put.
    pub ts: Option<String>,
    /// `channel_versions`, sorted by channel.
    pub versions: Vec<(String, SaverVersion)>,
    /// `versions_seen`, sorted by node, and of each by channel.
    pub seen: Vec<(String, SeenVersions)>,
    /// `updated_channels`, as it was put.
    pub updated: UpdatedChannels,
    /// The other members of the checkpoint, as they were put.
    pub extra: Vec<(String, Typed)>,
    /// `channel_values`, sorted by channel.
    pub values: Vec<(String, StoredValue)>,
    /// The metadata.
    pub metadata: Map,
    /// The parent, which need not be stored.
    pub parent: Option<Config>,
    /// `pending_writes`, in the order of path, task and index.
    pub writes: Vec<SaverWrite>,
}

/// The result of [`Saver::reread`](crate::Saver::reread).
#[derive(Clone, Debug, PartialEq)]
pub enum Reread {
    /// The checkpoint is not stored.
    Absent,
    /// It is the known one; its pending writes.
    Known(Vec<SaverWrite>),
    /// It is another one.
    Other(Box<Tuple>),
}

/// The value of a channel in a [`Tuple`].
#[derive(Clone, Debug, PartialEq)]
pub enum StoredValue {
    /// One value. A `null` comes back as the `msgpack` nil.
    Typed(Typed),
    /// A list, item by item: as one value, a `msgpack` array of them.
    Items(Vec<Arc<Typed>>),
}

/// A list of these items.
impl From<Vec<Typed>> for StoredValue {
    fn from(items: Vec<Typed>) -> Self {
        Self::Items(items.into_iter().map(Arc::new).collect())
    }
}

/// A write of a task of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SaverWrite {
    /// The task.
    pub task: String,
    /// The path of the task.
    pub path: String,
    /// The position of the write in the task; negative for special channels.
    pub index: i32,
    /// The channel.
    pub channel: Arc<str>,
    /// The value, with the tag that it was written with.
    pub value: Typed,
}

impl SaverWrite {
    /// Makes a write of a task.
    pub fn new(
        task: impl Into<String>,
        path: impl Into<String>,
        index: i32,
        channel: impl Into<Arc<str>>,
        value: Typed,
    ) -> Self {
        Self { task: task.into(), path: path.into(), index, channel: channel.into(), value }
    }
}

/// A listing of checkpoints, the greatest id first.
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct ListQuery {
    /// One thread, or all.
    pub thread: Option<String>,
    /// One namespace, or all of them mixed.
    pub namespace: Option<String>,
    /// Only the checkpoints with this id.
    pub checkpoint: Option<String>,
    /// Members that the metadata must have. Numbers and truth values that Python takes for equal are equal, and null
    /// finds a missing member.
    pub filter: Map,
    /// Only checkpoints whose id is less, as text.
    pub before: Option<String>,
    /// The maximum number of tuples.
    pub limit: Option<usize>,
}

impl ListQuery {
    /// Lists the checkpoints of all threads.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists the checkpoints of a thread, in all namespaces.
    pub fn of_thread(thread: impl Into<String>) -> Self {
        Self { thread: Some(thread.into()), ..Self::default() }
    }

    /// Lists the checkpoints of a namespace.
    pub fn of_namespace(thread: impl Into<String>, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..Self::of_thread(thread) }
    }
}

/// The writes to a channel on the way from an ancestor to a checkpoint (`get_delta_channel_history`).
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct DeltaHistory {
    /// The channel.
    pub channel: String,
    /// The writes of the ancestors, the oldest first.
    pub writes: Vec<SaverWrite>,
    /// The value of the nearest ancestor that has one.
    pub seed: Option<StoredValue>,
}

/// The checkpoints that a prune removes from a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PruneStrategy {
    /// Everything but the checkpoint with the greatest id of each namespace.
    #[default]
    KeepLatest,
    /// Everything.
    Delete,
}
