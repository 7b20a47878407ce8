//! The handle of a store, which a program opens, clones and shares.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::base::limits::UPDATE_ATTEMPTS_MAX;
use crate::base::{CheckpointId, Clock, IdSource, Namespace, RunId, ThreadId, Timestamp};
use crate::span::span;

use super::check::{CheckReport, CheckedUpTo};
use super::cipher::Key;
use super::error::StoreError;
use super::heads::{CachedHead, HeadCache, HeadKey};
use super::lease::LeaseOwner;
use super::log::{CommitHandle, Erasure, FileStore, Log, LogExt};
use super::memory::MemoryBackend;
use super::options::OpenOptions;
use super::record::TimerRecord;
use super::recovery::{Recovery, Restored, WalReset};
use super::side_tables::CacheChange;
use super::sqlite::SqliteBackend;
use super::stats::{Compaction, RebuiltObject, StoreStats};
use super::unblock::BlockingThreads;

/// A store: one file with the history of any number of threads. Cheap to clone; all clones are the same store.
///
/// The log is reached through `Store::thread`, the key-value memory through [`Store::kv`].
#[doc(alias = "checkpointer")]
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    backend: Arc<dyn Log>,
    heads: HeadCache,
    ids: Mutex<IdSource>,
    actor: Option<Arc<str>>,
    clock: Arc<dyn Clock>,
    /// The last change of the cache that was submitted.
    cache_change: Mutex<Option<CommitHandle>>,
    /// Commits of abandoned runs that were pending.
    left: Mutex<Vec<CommitHandle>>,
    threads: Arc<BlockingThreads>,
}

impl Store {
    /// Opens the store in the file at `path` with the default options, and makes it if it is missing.
    ///
    /// # Errors
    /// [`StoreError::NotAStore`], [`StoreError::NewerFormat`], [`StoreError::UnreleasedFormat`],
    /// [`StoreError::Corrupt`], [`StoreError::Open`], [`StoreError::Busy`]: the file is not changed.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_with(path, OpenOptions::new())
    }

    /// Opens the store in the file at `path`.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self, StoreError> {
        let backend = SqliteBackend::open(path.as_ref(), &options)?;
        Ok(Self::with_backend(Arc::new(backend), options))
    }

    /// Makes a store in memory. It lasts as long as its handles, and checks more strictly than a file does.
    pub fn memory() -> Self {
        Self::with_backend(Arc::new(MemoryBackend::new()), OpenOptions::new())
    }

    /// Makes a store on a backend.
    pub fn with_backend(backend: Arc<dyn Log>, options: OpenOptions) -> Self {
        Self(Arc::new(Inner {
            backend,
            heads: HeadCache::new(options.head_cache_bytes),
            ids: Mutex::new(options.id_seed.map_or_else(IdSource::new, IdSource::from_seed)),
            actor: options.actor,
            clock: options.clock,
            cache_change: Mutex::default(),
            left: Mutex::default(),
            threads: Arc::default(),
        }))
    }

    /// Returns the backend: the log in plain data and ids.
    pub fn backend(&self) -> &Arc<dyn Log> {
        &self.0.backend
    }

    fn file(&self) -> Option<&dyn FileStore> {
        self.0.backend.capabilities().file
    }

    /// Writes a batch to the log and returns when it is durable.
    ///
    /// # Errors
    /// As [`Log::submit`].
    pub fn commit(&self, batch: &super::batch::Batch) -> Result<(), StoreError> {
        span!("commit", thread = ?batch.thread, checkpoints = batch.checkpoints.len(), writes = batch.writes.len());
        self.0.backend.commit(batch)
    }

    /// Writes a batch as [`Store::commit`]. If another writer has stored a branch with greater ids, while the heads are
    /// those that the batch expects, its checkpoints get [new ids](super::batch::Batch::remint_ids). The batch has no
    /// chain.
    ///
    /// # Errors
    /// [`StoreError::StaleId`] if other writers were faster 64 times in a row; as [`Log::submit`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    /// use annals::store::Source;
    /// use annals::store::batch::{Batch, NewCheckpoint, Parent};
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// let thread = store.thread("trip")?;
    /// let early = store.mint_checkpoint(0, None);
    /// let head = thread.append("messages", [Message::human("hi")])?;
    /// let mut batch = Batch::new(thread.id().clone(), thread.namespace().clone(), Some(head));
    /// batch.checkpoints.push(NewCheckpoint::new(early, Some(Parent::Local(head)), 1, Source::Update, store.now()));
    /// store.commit_reminting(&mut batch)?;
    /// assert_eq!(thread.head()?.expect("a head").id(), batch.checkpoints[0].id);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(hidden)]
    pub fn commit_reminting(&self, batch: &mut super::batch::Batch) -> Result<(), StoreError> {
        debug_assert!(batch.chain.is_none(), "the chain of a batch that was refused has ended");
        let mut attempt = 1;
        loop {
            match self.commit(batch) {
                Err(StoreError::StaleId { namespace, newest, .. }) if attempt < UPDATE_ATTEMPTS_MAX => {
                    _ = batch.remint_ids(&namespace, &newest);
                    attempt += 1;
                }
                done => return done,
            }
        }
    }

    /// Hands a batch to the background writer and returns at once; the handle, which is a future, reports when it is
    /// durable. Batches are in memory until they are written: a caller that submits many waits for handles in between.
    pub fn submit(&self, batch: super::batch::Batch) -> CommitHandle {
        span!("submit", thread = ?batch.thread, checkpoints = batch.checkpoints.len(), writes = batch.writes.len());
        self.0.backend.submit(batch)
    }

    /// Returns the sizes of the file and of its write-ahead log, and the health of this handle. It takes no lock of the
    /// file.
    ///
    /// # Errors
    /// [`StoreError::Read`].
    ///
    /// # Example: a program that watches its store
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// let store = Store::open(folder.path().join("notes.db"))?;
    /// let stats = store.stats()?;
    /// assert_eq!((stats.format, stats.file_bytes % stats.page_bytes), (1, 0));
    /// assert!(stats.file_bytes > 0 && stats.wal_copied_frames <= stats.wal_frames);
    /// if stats.is_wal_large() {
    ///     // A reader of another process has been open for long: commits may soon be refused.
    /// }
    /// assert_eq!((stats.oldest_reader, stats.wal_error), (None, None));
    /// # Ok(())
    /// # }
    /// ```
    pub fn stats(&self) -> Result<StoreStats, StoreError> {
        self.file().map_or_else(|| Ok(StoreStats::default()), FileStore::stats)
    }

    /// Returns free pages to the file system, while others read and write: in transactions of at most 64 pages, which
    /// others wait for no longer than for a commit. A compaction that is interrupted continues with the next call. The
    /// file itself gets shorter when the write-ahead log has been copied into it. Deleted threads leave free pages once
    /// their space is reclaimed ([`Store::reclaim`]).
    ///
    /// # Errors
    /// [`StoreError::Busy`]; [`StoreError::Write`]; [`StoreError::OutcomeUnknown`]; [`StoreError::ReadOnly`].
    ///
    /// # Example
    /// ```
    /// use annals::store::Store;
    ///
    /// # fn main() -> Result<(), annals::store::StoreError> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// let store = Store::open(folder.path().join("notes.db"))?;
    /// let done = store.compact()?;
    /// assert!(done.bytes_after <= done.bytes_before && done.free_pages == 0);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "vacuum")]
    pub fn compact(&self) -> Result<Compaction, StoreError> {
        span!("compact");
        self.0.backend.flush();
        self.file().map_or_else(|| Ok(Compaction::default()), FileStore::compact)
    }

    /// Writes the sound part of the store at `from`, which may be damaged, to a new store at `to`, and reports the
    /// losses. `from` is not changed: no handle may have it open. Of each lineage the longest beginning whose checksums
    /// verify is recovered, with its writes and timers, and each entry of the key-value memory whose check matches. A
    /// file of an older format is recovered to the newest one.
    ///
    /// # Errors
    /// [`StoreError::NotAStore`] if nothing shows that it is one; [`StoreError::NewerFormat`]; [`StoreError::Open`];
    /// [`StoreError::KeyRequired`] of a store that has a key, which [`Store::recover_with`] takes; [`StoreError::Busy`]
    /// if it changes meanwhile; [`StoreError::Invalid`] if something exists at `to`; [`StoreError::Write`], after which
    /// nothing is left at `to`.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Note { text: String }
    ///
    /// # fn main() -> Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let (damaged, recovered) = (folder.path().join("notes.db"), folder.path().join("recovered.db"));
    /// Store::open(&damaged)?.thread("monday")?.update(Note::update().text("eggs"))?;
    /// let report = Store::recover(&damaged, &recovered)?;
    /// assert!(report.is_complete(), "{:?}", report.lost);
    /// assert_eq!((report.threads, report.checkpoints), (1, 1));
    /// assert!(Store::open(&recovered)?.check()?.problems.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn recover(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Recovery, StoreError> {
        Self::recover_with(from, to, &OpenOptions::new())
    }

    /// Recovers a damaged store that has keys, as [`Store::recover`] does: of the options, the key, the key of the
    /// checksums and the cipher count. The new store has the same keys, and what their checksums do not cover is lost.
    /// A store whose rows of keys are damaged is not recovered: nothing can be opened without them.
    ///
    /// # Errors
    /// As [`Store::recover`]; [`StoreError::WrongKey`], and [`StoreError::NotKeyed`] of a store without a key.
    pub fn recover_with(
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        options: &OpenOptions,
    ) -> Result<Recovery, StoreError> {
        super::sqlite::recover(from.as_ref(), to.as_ref(), options)
    }

    /// Makes the views, indexes and triggers of a store anew that another program has removed or changed, and returns
    /// them. The store need not be open, and cannot be: such a file is refused. `visit` is told of each object before
    /// it is made, since an index of a large store takes some time. Rows are neither read nor changed otherwise; those
    /// that were changed while a trigger was missing are found by [`Store::check`]. Of the options, the keys, the wait
    /// for other processes and the network file systems count.
    ///
    /// # Errors
    /// [`StoreError::SchemaChanged`] for an object that another program has added, which is not removed;
    /// [`StoreError::Corrupt`] if a table is missing or differs; those of [`Store::open_with`] for a file that is not a
    /// store of this format or has another key; [`StoreError::Busy`], [`StoreError::Write`]. The file is not changed.
    ///
    /// # Example
    /// ```
    /// use annals::store::{OpenOptions, Store};
    ///
    /// # fn main() -> annals::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("notes.db");
    /// drop(Store::open(&path)?);
    /// # let other_program = annals::rusqlite::Connection::open(&path).unwrap();
    /// other_program.execute_batch("DROP VIEW v_threads").unwrap();
    /// # drop(other_program);
    /// assert!(Store::open(&path).is_err());
    /// let rebuilt = Store::repair_schema(&path, &OpenOptions::new(), |_| {})?;
    /// assert_eq!(rebuilt[0].to_string(), "view v_threads");
    /// Store::open(&path)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn repair_schema(
        path: impl AsRef<Path>,
        options: &OpenOptions,
        mut visit: impl FnMut(&RebuiltObject),
    ) -> Result<Vec<RebuiltObject>, StoreError> {
        super::sqlite::repair_schema(path.as_ref(), options, &mut visit)
    }

    /// Removes the file of a store in which nothing is stored, and returns whether it did: a command that had made a
    /// new store and then failed leaves nothing behind. A store stays if a row of any table but that of its keys, a
    /// table of an application or a search index is in it, or if a handle of any process has it open. Of the options
    /// the same count as for [`Store::repair_schema`].
    ///
    /// # Errors
    /// Those of [`Store::open_with`]. The file is not removed.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("notes.db");
    /// let store = Store::open(&path)?;
    /// assert!(!Store::remove_empty(&path, &OpenOptions::new())?, "it is open");
    /// drop(store);
    /// assert!(Store::remove_empty(&path, &OpenOptions::new())? && !path.exists());
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove_empty(path: impl AsRef<Path>, options: &OpenOptions) -> Result<bool, StoreError> {
        super::sqlite::remove_empty(path.as_ref(), options)
    }

    /// Puts a copy of a backup at a path. The backup is verified as [`Store::check`] does, and copied first; a file at
    /// the path gets another name beside it, with its log, and is not changed. So a crash leaves the old file or the
    /// restored one at the path. To copy a file over another by hand is not safe: SQLite would replay the log of the
    /// old file over the new one, which [`Store::open`] refuses.
    ///
    /// # Errors
    /// Those of [`Store::open_with`] for the backup; [`StoreError::Corrupt`] if it has a problem; [`StoreError::Busy`]
    /// if a process has the file at the path open; [`StoreError::Invalid`] and [`StoreError::Write`] if it cannot be
    /// written. The file at the path keeps its content.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    /// use annals::store::Store;
    ///
    /// # fn main() -> Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let (path, backup) = (folder.path().join("notes.db"), folder.path().join("notes-2026-11-22.db"));
    /// let store = Store::open(&path)?;
    /// store.backup(&backup)?;
    /// drop(store);
    /// let restored = Store::restore(&backup, &path, &OpenOptions::new())?;
    /// assert_eq!(restored.put_aside.len(), 1, "the old file has another name now");
    /// Store::open(&path)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn restore(
        backup: impl AsRef<Path>,
        path: impl AsRef<Path>,
        options: &OpenOptions,
    ) -> Result<Restored, StoreError> {
        super::sqlite::restore(backup.as_ref(), path.as_ref(), options)
    }

    /// Makes a store usable that [`Store::open`] refuses with [`StoreError::ForeignLog`] or [`StoreError::LogMissing`].
    /// A log that does not continue the file gets another name. Commits that were in a missing log are given up.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if a process has the file open; [`StoreError::Write`]; those of an open of a file that is
    /// not a store.
    pub fn reset_wal(path: impl AsRef<Path>) -> Result<WalReset, StoreError> {
        super::sqlite::reset_wal(path.as_ref())
    }

    /// Returns a description of a log that the file lacks: it was copied without its log, or the log was removed. Such
    /// a store is open for reading only, and shows the commits up to the last copy of the log. `None` of any other
    /// store.
    pub fn missing_wal(&self) -> Option<String> {
        self.file().and_then(FileStore::missing_wal)
    }

    /// Copies the store to a new file, which holds one moment of it: all that was committed before the call, and of
    /// later commits the whole or nothing. Writers go on meanwhile. The copy has no free pages, is for its owner alone,
    /// and is on the disk when the call returns. Threads whose deletion is still pending are in it, and their space is
    /// pending there too.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if something exists at the path or it cannot be written; [`StoreError::Busy`] and
    /// [`StoreError::Write`], after which nothing is left at the path.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// let store = Store::open(folder.path().join("notes.db"))?;
    /// let copy = folder.path().join("notes-2026-11-22.db");
    /// store.backup(&copy)?;
    /// assert!(Store::open(&copy)?.check()?.problems.is_empty());
    /// assert!(store.backup(&copy).is_err(), "an older backup is not replaced");
    /// # Ok(())
    /// # }
    /// ```
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<(), StoreError> {
        let to = to.as_ref();
        let reason = || format!("{}: the store has no file to copy", to.display());
        let none = || StoreError::Invalid { field: "path of the backup", reason: reason() };
        self.file().ok_or_else(none)?.backup(to)
    }

    /// Changes the key with which an encrypted store is opened. One row is written, however large the store is; handles
    /// that are open go on. The old key opens older copies of the file, and the root key in them opens the file as
    /// well: the change protects against a key that leaks later, not against one that leaked together with a copy.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the store is not encrypted, or for an id above its limit; [`StoreError::ReadOnly`],
    /// [`StoreError::Busy`], [`StoreError::Write`]: the key is as before.
    ///
    /// # Example
    /// ```
    /// # #[cfg(feature = "encryption")] {
    /// use annals::store::{Key, OpenOptions, Store};
    ///
    /// # fn main() -> annals::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("secret.db");
    /// # let (old, new) = (Key::new([1; 32]), Key::new([2; 32]));
    /// let store = Store::open_with(&path, OpenOptions::new().key(old.clone()))?;
    /// store.change_key(&new)?;
    /// drop(store);
    /// assert!(Store::open_with(&path, OpenOptions::new().key(old)).is_err());
    /// Store::open_with(&path, OpenOptions::new().key(new))?;
    /// # Ok(())
    /// # }
    /// # main().unwrap();
    /// # }
    /// ```
    pub fn change_key(&self, key: &Key) -> Result<(), StoreError> {
        self.file().ok_or_else(not_encrypted)?.change_key(key)
    }

    /// Seals the values that are written from now on with a new data key, which bounds how much one key seals. Values
    /// that are stored stay readable. Another handle that is open uses the new key once it is opened again.
    ///
    /// # Errors
    /// As [`Store::change_key`].
    pub fn rotate_data_key(&self) -> Result<(), StoreError> {
        self.file().ok_or_else(not_encrypted)?.rotate_data_key()
    }

    /// Verifies every row and checksum.
    ///
    /// # Errors
    /// [`StoreError::Read`] if the file cannot be read at all. Problems of the file are in the report.
    pub fn check(&self) -> Result<CheckReport, StoreError> {
        span!("check");
        self.0.backend.check()
    }

    /// Verifies the checkpoints that are newer than a point at which a check ended ([`CheckReport::up_to`]), with their
    /// rows. The cost is that of the newer rows.
    ///
    /// Older rows are read only where a newer one refers to them. Not verified are the pages of the file, the
    /// timestamps of threads, the tables beside the log and leftover rows (I1, I14 to I17 and I21 of `docs/format.md`),
    /// and writes that were added to an older checkpoint, until it has a newer child.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if the point is not one of this file; [`StoreError::Read`] if it cannot be read at all.
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    /// use annals::store::check::CheckedUpTo;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Log { #[channel(append)] lines: List<String> }
    ///
    /// # fn main() -> Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// let store = Store::open(folder.path().join("log.db"))?;
    /// let thread = store.thread("t")?;
    /// thread.update(Log::update().lines(["one".to_string()]))?;
    /// let point = store.check()?.up_to.expect("the store is sound").to_string();
    ///
    /// thread.update(Log::update().lines(["two".to_string()]))?;
    /// let report = store.check_since(&point.parse::<CheckedUpTo>()?)?;
    /// assert_eq!((report.checkpoints, report.problems.len()), (1, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub fn check_since(&self, point: &CheckedUpTo) -> Result<CheckReport, StoreError> {
        span!("check_since");
        self.0.backend.check_since(point)
    }

    /// Returns the actor that operations through this handle name by default.
    pub(crate) fn actor(&self) -> Option<&Arc<str>> {
        self.0.actor.as_ref()
    }

    /// Returns the present timestamp by the clock of this store.
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// Returns the time since a fixed point, by the clock of this store; it does not jump when the time of day is set.
    pub fn elapsed(&self) -> std::time::Duration {
        self.0.clock.elapsed()
    }

    /// Mints a checkpoint id for `step` that is greater than `after`.
    pub fn mint_checkpoint(&self, step: i64, after: Option<&CheckpointId>) -> CheckpointId {
        self.0.ids.lock().checkpoint(self.now(), step, after)
    }

    /// Mints a run id.
    pub fn mint_run(&self) -> RunId {
        self.0.ids.lock().run()
    }

    /// Mints the owner of a lease.
    pub fn mint_owner(&self) -> LeaseOwner {
        LeaseOwner::new(self.0.ids.lock().uuid_v4().into_bytes())
    }

    /// Mints a seed for a source of ids of the caller.
    pub fn mint_seed(&self) -> u64 {
        self.0.ids.lock().random()
    }

    /// Submits changes of the cache, and stores the handle for later reads.
    pub(super) fn submit_cache(&self, changes: Vec<CacheChange>) -> CommitHandle {
        // Under the lock, so that the handle kept is that of the last change.
        let mut last = self.0.cache_change.lock();
        let handle = match self.0.backend.side_tables() {
            Ok(beside) => beside.submit_cache(changes),
            Err(error) => CommitHandle::settled(Err(error)),
        };
        *last = Some(handle.clone());
        handle
    }

    /// Waits for the changes of the cache that were submitted; they are made in their order.
    pub(super) fn wait_for_cache(&self) {
        let last = self.0.cache_change.lock().take();
        if let Some(handle) = last.filter(|handle| !handle.is_settled()) {
            self.0.backend.flush();
            handle.wait_until_settled();
        }
    }

    /// Deletes a thread with everything in it: its checkpoints, its values, what its tasks wrote, its timers, and the
    /// names that only it used. One that does not exist is passed over. It cannot be undone; the key-value memory and
    /// the cache do not belong to a thread. A run in progress on the thread gets a conflict.
    ///
    /// When the call returns, the thread is hidden: no read shows it, and its id can be used again. Its bytes are
    /// overwritten in steps. [`Erasure::Erased`] says that none is left in the file and in its write-ahead log,
    /// [`Erasure::ErasePending`] that the rest goes in the background, or in [`Store::reclaim`]. Until then
    /// [`CheckReport::erasing`] counts the thread.
    ///
    /// # Errors
    /// [`StoreError::ForkedOff`] if another thread was forked from it: delete both with [`Store::delete_threads`];
    /// [`StoreError::Id`] as for [`Store::thread`]; [`StoreError::Busy`]; [`StoreError::Write`], also if the disk is
    /// full, with the room that a deletion needs; [`StoreError::OutcomeUnknown`], [`StoreError::ReadOnly`].
    ///
    /// # Example
    /// ```
    /// use annals::prelude::*;
    /// use annals::store::Erasure;
    ///
    /// #[derive(State, Clone, Default)]
    /// struct Note { text: String }
    ///
    /// # fn main() -> Result<()> {
    /// let store = Store::memory();
    /// let thread = store.thread("monday")?;
    /// thread.update(Note::update().text("private"))?;
    /// thread.at("~0")?.fork_to("tuesday")?;
    ///
    /// let refused = store.delete_thread("monday").unwrap_err();
    /// assert!(refused.to_string().contains("thread tuesday was forked from it"), "{refused}");
    /// if let Erasure::ErasePending { .. } = store.delete_threads(["monday", "tuesday"])? {
    ///     // A reader holds the log, or there is much to erase.
    ///     assert!(store.reclaim()?.is_erased());
    /// }
    /// assert!(store.threads()?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "delete")]
    pub fn delete_thread(&self, id: impl AsRef<str>) -> Result<Erasure, StoreError> {
        self.delete_threads([id])
    }

    /// Deletes threads with everything in them: all of them, or none; see [`Store::delete_thread`].
    ///
    /// # Errors
    /// As [`Store::delete_thread`]; [`StoreError::Invalid`] for more than 1,000 threads.
    pub fn delete_threads(&self, ids: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Erasure, StoreError> {
        let threads = ids.into_iter().map(ThreadId::new).collect::<Result<Vec<_>, _>>()?;
        let threads = &*threads;
        span!("delete_threads", threads = threads.len());
        self.0.backend.flush();
        let erasure = self.0.backend.delete_threads(threads)?;
        self.0.heads.forget(threads);
        Ok(erasure)
    }

    /// Erases what deleted threads have left in the file and in its write-ahead log: in transactions of some
    /// milliseconds, between which others write. Returns when nothing is left, or when a reader has held the log for
    /// 250 ms.
    ///
    /// # Errors
    /// [`StoreError::Busy`], [`StoreError::Write`], [`StoreError::OutcomeUnknown`], [`StoreError::ReadOnly`];
    /// [`StoreError::Corrupt`] for a row that cannot be deleted. The threads stay deleted.
    ///
    /// # Example
    /// ```
    /// use annals::store::{Erasure, Store};
    ///
    /// # fn main() -> Result<(), annals::store::StoreError> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// let store = Store::open(folder.path().join("notes.db"))?;
    /// assert_eq!(store.reclaim()?, Erasure::Erased);
    /// # Ok(())
    /// # }
    /// ```
    pub fn reclaim(&self) -> Result<Erasure, StoreError> {
        span!("reclaim");
        self.file().map_or(Ok(Erasure::Erased), FileStore::reclaim)
    }

    /// Lists the sleeping tasks (`Context::sleep_until` of annals-graph), by the timestamp at which they wake: all, or
    /// those that can resume at `due_by`. A run of their graph on their thread with `Input::Continue` wakes them.
    ///
    /// # Errors
    /// [`StoreError::Read`], [`StoreError::Corrupt`].
    pub fn timers(&self, due_by: Option<Timestamp>) -> Result<Vec<TimerRecord>, StoreError> {
        self.0.backend.timers(due_by, usize::MAX)
    }

    /// Returns the sleeping task that wakes first, `None` without one.
    ///
    /// # Errors
    /// As [`Store::timers`].
    pub fn next_timer(&self) -> Result<Option<TimerRecord>, StoreError> {
        Ok(self.0.backend.timers(None, 1)?.pop())
    }

    /// Hands over the handles of an abandoned run, for [`Store::flush_abandoned`].
    #[doc(hidden)]
    pub fn abandon_commits(&self, handles: impl IntoIterator<Item = CommitHandle>) {
        self.0.left.lock().extend(handles.into_iter().filter(|handle| !handle.is_settled()));
    }

    /// Waits for the commits that abandoned runs submitted, so that the next run reads them. Their errors are dropped:
    /// the caller is gone.
    #[doc(hidden)]
    pub fn flush_abandoned(&self) {
        let left = std::mem::take(&mut *self.0.left.lock());
        if left.iter().any(|handle| !handle.is_settled()) {
            self.0.backend.flush();
        }
        left.into_iter().for_each(|handle| handle.wait_until_settled());
    }

    /// Returns the threads that run the blocking calls of asynchronous callers.
    pub(super) fn blocking_threads(&self) -> &Arc<BlockingThreads> {
        &self.0.threads
    }

    /// Takes the cached head of a namespace as `schema` decoded it, whatever checkpoint it is of. For executors.
    #[doc(hidden)]
    pub fn take_head(&self, thread: &ThreadId, namespace: &Namespace, schema: HeadKey) -> Option<CachedHead> {
        self.0.heads.take(thread, namespace, schema)
    }

    /// Caches a head, in place of an older one of the same namespace. For executors.
    #[doc(hidden)]
    pub fn cache_head(&self, head: CachedHead) {
        self.0.heads.put(head);
    }

    /// Empties the cache of decoded heads; the next run loads its head from the file.
    pub fn clear_head_cache(&self) {
        self.0.heads.clear();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("backend", &self.0.backend).finish_non_exhaustive()
    }
}

fn not_encrypted() -> StoreError {
    StoreError::Invalid { field: "key", reason: "the store is not encrypted".into() }
}
