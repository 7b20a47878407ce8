//! Errors of the store. Every message states the resulting state of the file.

use std::path::PathBuf;

use crate::base::CodecError;
use crate::base::IdError;
use crate::base::{CheckpointId, Namespace, ThreadId, Timestamp, variants};

/// An error of the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A field of a batch or query is not valid. Nothing was written.
    #[error("{field} is not valid: {reason}; nothing was written")]
    Invalid {
        /// The field.
        field: &'static str,
        /// The reason, with the limit.
        reason: String,
    },
    /// A namespace cannot hold an entry of the key-value memory (`InvalidNamespaceError`). Nothing was written.
    #[error("namespace {namespace:?} of the key-value memory is not valid: {reason}; nothing was written")]
    InvalidNamespace {
        /// Its labels.
        namespace: Vec<String>,
        /// The reason.
        reason: String,
    },
    /// The [`Embedder`](super::kv::Embedder) of an index failed. Nothing was written.
    #[error("the embedder of the key-value memory failed: {source}; nothing was written")]
    Embedding {
        /// Its error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An id is not valid. Nothing was written.
    #[error(transparent)]
    Id(#[from] IdError),
    /// A head that the batch builds on has moved. Nothing was written; load the new head and decide.
    #[error(
        "the head of thread {thread} {}is {}, not {}: another run wrote to it; nothing was written",
        in_namespace(namespace),
        or_none(found),
        or_none(expected)
    )]
    Conflict {
        /// The thread.
        thread: ThreadId,
        /// The namespace whose head moved.
        namespace: Namespace,
        /// The head the batch was built on.
        expected: Option<CheckpointId>,
        /// The head in the file.
        found: Option<CheckpointId>,
    },
    /// The heads are those the batch builds on, but the namespace has a checkpoint with a greater id than the first one
    /// of the batch: another writer stored a branch after the id was minted, and left the head where it was. Nothing
    /// was written; give the checkpoints [new ids](super::batch::Batch::remint_ids) and commit again, as
    /// [`Store::commit_reminting`](super::Store::commit_reminting) does.
    #[error(
        "checkpoint {id} is not greater than {newest}, the newest of thread {thread}: another writer stored a branch; nothing was written"
    )]
    StaleId {
        /// The thread.
        thread: ThreadId,
        /// The namespace.
        namespace: Namespace,
        /// The first checkpoint of the batch.
        id: CheckpointId,
        /// The newest checkpoint of the namespace.
        newest: CheckpointId,
    },
    /// Another owner has the lease of the thread. Nothing was written; repeating is safe, and succeeds once the lease
    /// is released or has expired.
    #[error("thread {thread} is leased by {owner} until {until}; nothing was written")]
    Leased {
        /// The thread.
        thread: ThreadId,
        /// The owner, as [`LeaseOwner`](super::lease::LeaseOwner) is written.
        owner: String,
        /// The timestamp at which the lease expires, unless its owner renews it.
        until: Timestamp,
    },
    /// Another owner has claimed the thread since: the lease had expired, or it was broken. Nothing was written.
    #[error("the lease of thread {thread} was lost to {owner}; nothing was written")]
    LeaseLost {
        /// The thread.
        thread: ThreadId,
        /// The owner of the lease, as [`LeaseOwner`](super::lease::LeaseOwner) is written.
        owner: String,
    },
    /// A claim would exceed a limit of a [group](super::lease::LeaseGroup) of leases. Nothing was written; repeating is
    /// safe, and succeeds once a lease of the group is released or has expired, or the rate allows another claim.
    #[error("the limit of lease group {group} is reached{}; nothing was written", until_of(until))]
    LeaseLimit {
        /// The name of the group.
        group: String,
        /// The timestamp from which on the rate allows a claim; `None` if the number of live leases is the limit.
        until: Option<Timestamp>,
    },
    /// A field of a thread, such as the name of a branch, has changed since it was read. Nothing was written; read it
    /// again and decide.
    #[error("{field} of thread {thread} has changed; nothing was written")]
    FieldConflict {
        /// The thread.
        thread: ThreadId,
        /// The field.
        field: String,
    },
    /// The checkpoint id is taken by another checkpoint. Nothing was written.
    #[error("checkpoint {id} is already stored with other content; nothing was written")]
    Duplicate {
        /// The id.
        id: CheckpointId,
    },
    /// The thread does not exist.
    #[error("thread {id} is not in this store")]
    ThreadNotFound {
        /// Its id.
        id: ThreadId,
    },
    /// The thread has no branch with this name.
    #[error("thread {thread} has no branch with the name {name:?}")]
    BranchNotFound {
        /// The thread.
        thread: ThreadId,
        /// The name.
        name: String,
    },
    /// No interrupt with this id is open at the head of the thread. Nothing was written.
    #[error("interrupt {id} is not open in thread {thread}: open are {open:?}; nothing was written")]
    InterruptNotOpen {
        /// The thread.
        thread: ThreadId,
        /// The id that was given.
        id: String,
        /// The ids of the open interrupts.
        open: Vec<String>,
    },
    /// The thread has ended: it takes neither resume values nor signals. Nothing was written.
    #[error("thread {thread} is {status}; nothing was written")]
    ThreadEnded {
        /// The thread.
        thread: ThreadId,
        /// Its status: `done` or `cancelled`.
        status: &'static str,
    },
    /// The checkpoint does not exist.
    #[error("checkpoint {id} is not in thread {thread}")]
    CheckpointNotFound {
        /// The thread that was searched.
        thread: ThreadId,
        /// The id, or the prefix that was given.
        id: String,
    },
    /// The checkpoint was pruned: the store holds its id, its place and its time, and no state. Its descendants are
    /// whole.
    #[error("checkpoint {id} of thread {thread} was pruned: its state is not stored any more")]
    CheckpointPruned {
        /// The thread.
        thread: ThreadId,
        /// The id.
        id: CheckpointId,
    },
    /// Other threads were forked from a thread that was to be deleted: their state is partly its. Nothing was deleted;
    /// delete them along with it, in one call.
    #[error("thread {thread} cannot be deleted: {} forked from it; nothing was deleted", forks_of(forks, *more))]
    ForkedOff {
        /// The thread.
        thread: ThreadId,
        /// The threads that were forked from it, the first 16 at most.
        forks: Vec<ThreadId>,
        /// True if others were forked from it too.
        more: bool,
    },
    /// A text is not a point of a history: it does not follow the grammar of `Store::point`.
    #[error("{text:?} is not a point: {expected} expected at byte {at}")]
    InvalidPoint {
        /// The text, cut to 256 characters.
        text: String,
        /// The byte of the text at which reading ended.
        at: usize,
        /// The element that is expected there.
        expected: &'static str,
    },
    /// An id prefix fits several checkpoints.
    #[error("prefix {prefix} fits several checkpoints, among them {}", list(matches))]
    Ambiguous {
        /// The prefix.
        prefix: String,
        /// Some of those it fits.
        matches: Vec<CheckpointId>,
    },
    /// The beginning of a thread id fits several threads.
    #[error("{prefix} is the beginning of several thread ids, among them {}", thread_list(matches))]
    AmbiguousThread {
        /// The beginning.
        prefix: String,
        /// Some of those it fits.
        matches: Vec<ThreadId>,
    },
    /// A statement of a [transaction](super::Store::transaction) failed, or reaches a part of the file that is not the
    /// application's. The statement changed nothing; unless the function of the transaction goes on, the transaction is
    /// rolled back.
    #[error("statement {statement} of the transaction failed{}: {reason}; it changed nothing", at_byte(*at))]
    Sql {
        /// The number of the statement in the transaction, from 1.
        statement: usize,
        /// The byte of its text at which the error was found, if SQLite told it.
        at: Option<usize>,
        /// The kind of the constraint that the statement violates, if it does.
        constraint: Option<SqlConstraint>,
        /// The message of SQLite, or the limit.
        reason: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// This store, or this run, does not support the request. Nothing was written.
    #[error("{feature} needs a store that has it: {reason}; nothing was written")]
    Unsupported {
        /// The call.
        feature: &'static str,
        /// The reason.
        reason: String,
    },
    /// Another process holds a lock of the store. Nothing was written; repeating is safe.
    #[error("{} uses the store and did not finish within {waited_ms} ms; nothing was written", process(holder))]
    Busy {
        /// The wait, in milliseconds; 0 for a call that never waits.
        waited_ms: u64,
        /// The id of the process that held the write lock when the wait ended, if the operating system told it (Linux).
        holder: Option<u32>,
    },
    /// The disk refused the write. Nothing was written.
    #[error("the write failed and was rolled back; nothing was written: {reason}")]
    Write {
        /// The message of the disk or of SQLite.
        reason: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The disk did not confirm the write, also when it was repeated: it may or may not be there after a restart.
    /// Repeat the same batch, which is safe.
    #[error("the disk did not confirm a commit, so its outcome is unknown; repeating the same batch is safe: {reason}")]
    OutcomeUnknown {
        /// The message of the disk or of SQLite.
        reason: String,
    },
    /// The handle accepts no more writes, because of an earlier failure that it could not repair. This batch was never
    /// tried: nothing was written. Reopen the store and repeat it.
    #[error("this handle accepts no more writes, reopen the store; nothing was written: {reason}")]
    HandleClosed {
        /// The earlier failure.
        reason: String,
    },
    /// The file, its write-ahead log or its shared memory was removed or replaced while this handle had it open. The
    /// commit may be in the file at the path or not: reopen the store, which shows its commits. The handle
    /// accepts no more writes.
    #[error(
        "{}: {found} while the store was open; whether the commit is in the file at this path is not known, reopen the \
         store",
        path.display()
    )]
    FileReplaced {
        /// The path.
        path: PathBuf,
        /// The finding.
        found: String,
    },
    /// The write-ahead log beside the file does not continue it: it is that of another file, or older or newer than the
    /// file. Neither was changed.
    #[error(
        "{} was not opened: {reason}; nothing was changed. Put the right file and log side by side, restore a backup \
         with `annals restore`, or let `annals doctor --fix` put the log aside",
        path.display()
    )]
    ForeignLog {
        /// The file.
        path: PathBuf,
        /// The finding.
        reason: String,
    },
    /// The write-ahead log of the file is missing, or a part of it: the last commits before it was copied are not
    /// there. Nothing was changed. A file without its log can be opened for reading.
    #[error(
        "{} was not opened for writing: {reason}; nothing was changed. Put the log beside the file again, restore a \
         backup with `annals restore`, or accept the loss with `annals doctor --fix`",
        path.display()
    )]
    LogMissing {
        /// The file.
        path: PathBuf,
        /// The finding.
        reason: String,
    },
    /// The write-ahead log is past its limit, and a reader keeps it from being copied into the file. Nothing was
    /// written; repeating is safe, and succeeds once the reader has ended.
    #[error(
        "the write-ahead log has {wal_bytes} bytes, past the limit of {limit_bytes}, and a reader keeps it from being \
         copied; nothing was written"
    )]
    WalLimit {
        /// Bytes of the log that are in use.
        wal_bytes: u64,
        /// The limit, from `OpenOptions::wal_limit_bytes`.
        limit_bytes: u64,
    },
    /// The store was opened for reading only. Nothing was written.
    #[error("the store is open for reading only; nothing was written")]
    ReadOnly,
    /// The file cannot be opened.
    #[error("{} cannot be opened: {reason}; it was not changed", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The file is not a store of `annals`. It was not changed.
    #[error("{} is not an annals store: {reason}; it was not changed", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// The evidence.
        reason: String,
    },
    /// The file was written by a newer version. It was not changed.
    #[error("{} has format {found}, this version reads up to {supported}; it was not changed", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The format of the file.
        found: i64,
        /// The newest format this version knows.
        supported: i64,
    },
    /// The store is encrypted, or its checksums have a key, and it was opened without that. It was not changed.
    #[error("{} is opened with the key {key:?} alone, which was not given; it was not changed", path.display())]
    KeyRequired {
        /// The file.
        path: PathBuf,
        /// The id of the key.
        key: String,
    },
    /// The store was opened with a key that is not its own. It was not changed.
    #[error("{} is opened with the key {key:?} alone, and the given key {given:?} is not the same; it was not changed", path.display())]
    WrongKey {
        /// The file.
        path: PathBuf,
        /// The id of its key.
        key: String,
        /// The id of the key that was given.
        given: String,
    },
    /// A key was given for a store with content that has no key. It was not changed.
    #[error("{} has no key, so its content cannot be trusted with the key {given:?}; it was not changed", path.display())]
    NotKeyed {
        /// The file.
        path: PathBuf,
        /// The id of the key that was given.
        given: String,
    },
    /// The file was written by a build before the first release, whose formats no version reads. It was not changed.
    #[error(
        "{} has the unreleased format {found} of a build before the first release, which this version does not read; \
         it was not changed",
        path.display()
    )]
    UnreleasedFormat {
        /// The file.
        path: PathBuf,
        /// The number of the format in that build.
        found: i64,
    },
    /// The file is damaged: a checksum does not fit, or a row does not match the format.
    #[error("the store is damaged at {place}: {reason}")]
    Corrupt {
        /// Table and row.
        place: String,
        /// The mismatch.
        reason: String,
    },
    /// The schema of the file is not the one that this version makes: another program has added an index, a view, a
    /// trigger or a table that reaches the store, or has removed or changed an index, a view or a trigger of it. The
    /// rows are not said to be damaged. Nothing was written; [`Store::repair_schema`](super::Store::repair_schema)
    /// makes each object anew that is missing or differs. The caller removes an added one.
    #[error("the {kind} {name:?} {change}; nothing was written; {}", remedy(*change, statement))]
    SchemaChanged {
        /// The kind of the object: `index`, `table`, `trigger` or `view`.
        kind: String,
        /// Its name, cut to 64 characters.
        name: String,
        /// The change.
        change: SchemaChange,
        /// The statement that removes an object that was added, for any SQLite tool; `None` for another change, and for
        /// a name that is too long or not printable.
        statement: Option<String>,
    },
    /// A stored value cannot be decoded.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// Reading failed.
    #[error("reading the store failed: {reason}")]
    Read {
        /// The message of the disk or of SQLite.
        reason: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

variants! {
    /// A change of the schema of a file by another program.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum SchemaChange {
        /// The object is not one of the store.
        Added => "is not made by this version",
        /// The table of an application has a foreign key to a table of the store.
        Refers => "refers to a table of the store",
        /// The object of the store is not there.
        Missing => "is missing",
        /// The object of the store is another one.
        Differs => "differs from the one that this version makes",
    }
    /// Returns the change, as a message has it.
    fn text -> &'static str, Display
}

/// The kind of a constraint of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SqlConstraint {
    /// `UNIQUE`, or a primary key.
    Unique,
    /// `NOT NULL`.
    NotNull,
    /// `CHECK`.
    Check,
    /// `REFERENCES`.
    ForeignKey,
    /// Another one.
    Other,
}

impl StoreError {
    /// Returns the kind of the constraint that a statement of a [transaction](super::Store::transaction) violates;
    /// `None` for another error.
    pub fn constraint(&self) -> Option<SqlConstraint> {
        match self {
            Self::Sql { constraint, .. } => *constraint,
            _ => None,
        }
    }

    /// Returns the thread that was not deleted because another one was forked from it.
    pub(crate) fn forked_off(&self) -> Option<&ThreadId> {
        match self {
            Self::ForkedOff { thread, .. } => Some(thread),
            _ => None,
        }
    }

    /// Returns the code of the error, as `CHECKPOINT_NOT_FOUND`. LangGraph has no codes for these errors; those of this
    /// library do not change. `docs/parity.md` lists them with their classes.
    pub fn code(&self) -> &'static str {
        self.class_and_code().1
    }

    /// Returns the name of the error class that LangGraph, or its SQLite saver, raises in its place: `Exception` if it
    /// has none for it.
    pub fn class(&self) -> &'static str {
        self.class_and_code().0
    }

    fn class_and_code(&self) -> (&'static str, &'static str) {
        match self {
            Self::Invalid { .. } => ("ValueError", "INVALID_ARGUMENT"),
            Self::InvalidNamespace { .. } => ("InvalidNamespaceError", "INVALID_NAMESPACE"),
            // The embedder of the caller raises its own.
            Self::Embedding { .. } => ("Exception", "EMBEDDING_FAILED"),
            Self::Id(_) => ("ValueError", "INVALID_ID"),
            Self::Conflict { .. } => ("Exception", "CONFLICT"),
            Self::StaleId { .. } => ("Exception", "STALE_ID"),
            Self::Leased { .. } => ("Exception", "LEASED"),
            Self::LeaseLost { .. } => ("Exception", "LEASE_LOST"),
            Self::LeaseLimit { .. } => ("Exception", "LEASE_LIMIT"),
            Self::FieldConflict { .. } => ("Exception", "FIELD_CONFLICT"),
            Self::Duplicate { .. } => ("Exception", "DUPLICATE_CHECKPOINT"),
            // Raised by a run that continues from there; reading it reports nothing.
            Self::ThreadNotFound { .. } => ("EmptyInputError", "THREAD_NOT_FOUND"),
            Self::CheckpointNotFound { .. } => ("EmptyInputError", "CHECKPOINT_NOT_FOUND"),
            Self::CheckpointPruned { .. } => ("EmptyInputError", "CHECKPOINT_PRUNED"),
            Self::BranchNotFound { .. } => ("ValueError", "BRANCH_NOT_FOUND"),
            Self::InterruptNotOpen { .. } => ("UnknownInterruptError", "INTERRUPT_NOT_OPEN"),
            Self::ThreadEnded { .. } => ("Exception", "THREAD_ENDED"),
            Self::ForkedOff { .. } => ("Exception", "FORKED_OFF"),
            Self::InvalidPoint { .. } => ("ValueError", "INVALID_POINT"),
            Self::Ambiguous { .. } | Self::AmbiguousThread { .. } => ("Exception", "AMBIGUOUS"),
            Self::Sql { constraint: Some(_), .. } => ("IntegrityError", "CONSTRAINT"),
            Self::Sql { .. } => ("OperationalError", "SQL_FAILED"),
            Self::Unsupported { .. } => ("NotImplementedError", "UNSUPPORTED"),
            Self::Busy { .. } => ("OperationalError", "BUSY"),
            Self::Write { .. } => ("OperationalError", "WRITE_FAILED"),
            Self::OutcomeUnknown { .. } => ("OperationalError", "OUTCOME_UNKNOWN"),
            Self::HandleClosed { .. } => ("ProgrammingError", "HANDLE_CLOSED"),
            Self::FileReplaced { .. } => ("OperationalError", "FILE_REPLACED"),
            Self::ForeignLog { .. } => ("OperationalError", "FOREIGN_LOG"),
            Self::LogMissing { .. } => ("OperationalError", "LOG_MISSING"),
            Self::WalLimit { .. } => ("OperationalError", "WAL_LIMIT"),
            Self::ReadOnly => ("OperationalError", "READ_ONLY"),
            Self::Open { .. } => ("OperationalError", "CANNOT_OPEN"),
            Self::NotAStore { .. } => ("DatabaseError", "NOT_A_STORE"),
            Self::NewerFormat { .. } => ("Exception", "NEWER_FORMAT"),
            Self::KeyRequired { .. } => ("ValueError", "KEY_REQUIRED"),
            Self::WrongKey { .. } => ("ValueError", "WRONG_KEY"),
            Self::NotKeyed { .. } => ("ValueError", "NOT_KEYED"),
            Self::UnreleasedFormat { .. } => ("Exception", "UNRELEASED_FORMAT"),
            Self::Corrupt { .. } => ("DatabaseError", "CORRUPT"),
            Self::SchemaChanged { .. } => ("DatabaseError", "SCHEMA_CHANGED"),
            Self::Codec(CodecError::Decode { .. }) => ("ValueError", "INVALID_VALUE"),
            Self::Codec(CodecError::ForeignCodec { .. }) => ("NotImplementedError", "INVALID_VALUE"),
            Self::Codec(_) => ("TypeError", "INVALID_VALUE"),
            Self::Read { .. } => ("OperationalError", "READ_FAILED"),
        }
    }
}

fn in_namespace(namespace: &Namespace) -> String {
    if namespace.is_root() { String::new() } else { format!("in namespace {namespace} ") }
}

fn or_none(id: &Option<CheckpointId>) -> String {
    id.as_ref().map_or_else(|| "none".into(), ToString::to_string)
}

fn at_byte(at: Option<usize>) -> String {
    at.map_or_else(String::new, |at| format!(" at byte {at}"))
}

fn remedy(change: SchemaChange, statement: &Option<String>) -> String {
    match (change, statement) {
        (SchemaChange::Missing | SchemaChange::Differs, _) => "`annals doctor --fix` makes it anew".into(),
        (_, Some(statement)) => format!("`{statement}` removes it"),
        (_, None) => "a tool of SQLite removes it".into(),
    }
}

fn until_of(until: &Option<Timestamp>) -> String {
    until.map_or_else(String::new, |until| format!(" until {until}"))
}

fn process(holder: &Option<u32>) -> String {
    holder.map_or_else(|| "another process".into(), |id| format!("process {id}"))
}

fn list(ids: &[CheckpointId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn thread_list(ids: &[ThreadId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn forks_of(forks: &[ThreadId], more: bool) -> String {
    let names = forks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if more {
        format!("threads {names} and others were")
    } else if forks.len() == 1 {
        format!("thread {names} was")
    } else {
        format!("threads {names} were")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each() -> Vec<(&'static str, StoreError)> {
        let (thread, namespace) = (|| ThreadId::new("t").expect("a thread id"), Namespace::root);
        let (id, path, reason) = (CheckpointId::default(), || PathBuf::from("a.db"), || "why".to_owned());
        let field = "thread";
        vec![
            ("Invalid", StoreError::Invalid { field, reason: reason() }),
            ("Embedding", StoreError::Embedding { source: reason().into() }),
            ("InvalidNamespace", StoreError::InvalidNamespace { namespace: Vec::new(), reason: reason() }),
            ("Id", ThreadId::new("").expect_err("it is empty").into()),
            (
                "Conflict",
                StoreError::Conflict { thread: thread(), namespace: namespace(), expected: None, found: None },
            ),
            ("StaleId", StoreError::StaleId { thread: thread(), namespace: namespace(), id, newest: id }),
            ("Leased", StoreError::Leased { thread: thread(), owner: reason(), until: Timestamp::from_micros(1) }),
            ("LeaseLost", StoreError::LeaseLost { thread: thread(), owner: reason() }),
            ("LeaseLimit", StoreError::LeaseLimit { group: reason(), until: None }),
            ("FieldConflict", StoreError::FieldConflict { thread: thread(), field: reason() }),
            ("Duplicate", StoreError::Duplicate { id }),
            ("ThreadNotFound", StoreError::ThreadNotFound { id: thread() }),
            ("CheckpointNotFound", StoreError::CheckpointNotFound { thread: thread(), id: reason() }),
            ("CheckpointPruned", StoreError::CheckpointPruned { thread: thread(), id }),
            ("BranchNotFound", StoreError::BranchNotFound { thread: thread(), name: reason() }),
            ("InterruptNotOpen", StoreError::InterruptNotOpen { thread: thread(), id: reason(), open: Vec::new() }),
            ("ThreadEnded", StoreError::ThreadEnded { thread: thread(), status: "done" }),
            ("ForkedOff", StoreError::ForkedOff { thread: thread(), forks: vec![thread()], more: false }),
            ("InvalidPoint", StoreError::InvalidPoint { text: reason(), at: 0, expected: "a thread" }),
            ("Ambiguous", StoreError::Ambiguous { prefix: reason(), matches: vec![id] }),
            ("AmbiguousThread", StoreError::AmbiguousThread { prefix: reason(), matches: vec![thread()] }),
            ("Sql", StoreError::Sql { statement: 1, at: None, constraint: None, reason: reason(), source: None }),
            ("Unsupported", StoreError::Unsupported { feature: field, reason: reason() }),
            ("Busy", StoreError::Busy { waited_ms: 1, holder: Some(7) }),
            ("Write", StoreError::Write { reason: reason(), source: None }),
            ("OutcomeUnknown", StoreError::OutcomeUnknown { reason: reason() }),
            ("HandleClosed", StoreError::HandleClosed { reason: reason() }),
            ("FileReplaced", StoreError::FileReplaced { path: path(), found: reason() }),
            ("ForeignLog", StoreError::ForeignLog { path: path(), reason: reason() }),
            ("LogMissing", StoreError::LogMissing { path: path(), reason: reason() }),
            ("WalLimit", StoreError::WalLimit { wal_bytes: 2, limit_bytes: 1 }),
            ("ReadOnly", StoreError::ReadOnly),
            ("Open", StoreError::Open { path: path(), reason: reason(), source: None }),
            ("NotAStore", StoreError::NotAStore { path: path(), reason: reason() }),
            ("NewerFormat", StoreError::NewerFormat { path: path(), found: 2, supported: 1 }),
            ("KeyRequired", StoreError::KeyRequired { path: path(), key: reason() }),
            ("WrongKey", StoreError::WrongKey { path: path(), key: reason(), given: reason() }),
            ("NotKeyed", StoreError::NotKeyed { path: path(), given: reason() }),
            ("UnreleasedFormat", StoreError::UnreleasedFormat { path: path(), found: 2 }),
            ("Corrupt", StoreError::Corrupt { place: reason(), reason: reason() }),
            (
                "SchemaChanged",
                StoreError::SchemaChanged {
                    kind: "view".into(),
                    name: reason(),
                    change: SchemaChange::Added,
                    statement: None,
                },
            ),
            ("Codec", CodecError::TooLarge { bytes: 1 }.into()),
            ("Read", StoreError::Read { reason: reason(), source: None }),
        ]
    }

    #[test]
    fn the_table_of_errors_is_what_they_tell() {
        let text = include_str!("../../docs/parity.md");
        let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| `StoreError::")).collect();
        let errors = one_of_each();
        assert_eq!(rows.len(), errors.len());
        for ((name, error), row) in errors.iter().zip(rows) {
            let told = format!("| `StoreError::{name}` | `{}` | `{}`", error.code(), error.class());
            assert!(row.starts_with(&told), "{told} is not what is written: {row}");
        }
    }
}
