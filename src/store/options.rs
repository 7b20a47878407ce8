//! The options with which a store is opened. *Absent:* the opening, which is that of the handle and its backend.

use std::sync::Arc;

use crate::base::limits::NAME_BYTES_MAX;
use crate::base::{Clock, SystemClock, debug_fields, setters};
use crate::limits::{BUSY_TIMEOUT_DEFAULT, HEAD_CACHE_BYTES_DEFAULT, WAL_LIMIT_BYTES_DEFAULT};

use super::cipher::{Cipher, Key};
use super::error::StoreError;
use super::sqlite::GivenKeys;

/// The durability of an acknowledged commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Synchronous {
    /// It is on the disk and survives a power cut (an fsync per commit or group of commits).
    #[default]
    Full,
    /// It survives the end of the process; a power cut may take the last commits, never more than a tail of them.
    Normal,
}

/// How to open a store.
///
/// # Example
/// ```
/// use annals::store::{OpenOptions, Store, Synchronous};
///
/// # fn main() -> Result<(), annals::store::StoreError> {
/// # let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("notes.db");
/// let store = Store::open_with(&path, OpenOptions::new().synchronous(Synchronous::Normal))?;
/// drop(store);
/// let reader = Store::open_with(&path, OpenOptions::new().read_only(true))?;
/// assert!(reader.threads()?.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct OpenOptions {
    pub(crate) synchronous: Synchronous,
    pub(crate) read_only: bool,
    pub(crate) create: bool,
    pub(crate) busy_timeout_ms: u64,
    pub(crate) network_file_system: bool,
    pub(crate) full_fsync: bool,
    pub(crate) wal_limit_bytes: u64,
    pub(crate) head_cache_bytes: usize,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) id_seed: Option<u64>,
    pub(crate) actor: Option<Arc<str>>,
    pub(crate) app_version: Option<Arc<str>>,
    pub(crate) keys: GivenKeys,
}

impl OpenOptions {
    /// Returns the defaults: durable commits, created if missing, 5 s of waiting for other processes, 64 MiB of cached
    /// heads.
    pub fn new() -> Self {
        Self {
            synchronous: Synchronous::Full,
            read_only: false,
            create: true,
            busy_timeout_ms: BUSY_TIMEOUT_DEFAULT.as_millis() as u64,
            network_file_system: false,
            full_fsync: true,
            wal_limit_bytes: WAL_LIMIT_BYTES_DEFAULT,
            head_cache_bytes: HEAD_CACHE_BYTES_DEFAULT,
            clock: Arc::new(SystemClock),
            id_seed: None,
            actor: None,
            app_version: None,
            keys: GivenKeys::default(),
        }
    }

    setters! {
        /// Sets the durability of an acknowledged commit. Default: [`Synchronous::Full`].
        pub fn synchronous(synchronous: Synchronous) { .synchronous = synchronous }

        /// Opens an existing store for reading only: the file and its write-ahead log are not written. Like every
        /// connection, a reader shares its locks in the `-shm` file beside the store, and makes it, with an empty
        /// `-wal`, if it is missing; both are removed when the last handle is closed, if the reader may write to the
        /// file. In a folder that refuses them, and on a full disk, the file is read without locks: should it change
        /// during a read, that fails with [`StoreError::Busy`] and can be repeated. If its log is not empty on a full
        /// disk, each read keeps other connections out while it lasts. Default: off.
        ///
        /// [`StoreError::Busy`]: super::StoreError::Busy
        pub fn read_only(read_only: bool) { .read_only = read_only }

        /// Makes the file if it is missing. Default: on.
        pub fn create(create: bool) { .create = create }
    }

    /// Returns whether an opening may make a store that is missing, for backends outside of this crate.
    pub fn may_create(&self) -> bool {
        self.create && !self.read_only
    }

    setters! {
        /// Sets how many milliseconds a commit waits for another process; then it fails with [`StoreError::Busy`],
        /// which names that process if the operating system tells it. Default: 5,000.
        ///
        /// [`StoreError::Busy`]: super::StoreError::Busy
        pub fn busy_timeout_ms(busy_timeout_ms: u64) { .busy_timeout_ms = busy_timeout_ms }

        /// Allows a file on a network file system (NFS, SMB, 9p, ...), where processes on different machines share
        /// neither locks nor memory: only one machine may use it at a time. Such file systems are recognized on Linux
        /// alone. Default: off, they are refused.
        pub fn network_file_system(network_file_system: bool) { .network_file_system = network_file_system }

        /// Flushes the cache of the drive with every fsync on macOS (`PRAGMA fullfsync`, `checkpoint_fullfsync`), where
        /// an fsync alone leaves data in it: it takes milliseconds, and without it a power cut may take acknowledged
        /// commits. Elsewhere it changes nothing. Default: on.
        pub fn full_fsync(full_fsync: bool) { .full_fsync = full_fsync }

        /// Sets the bytes of the write-ahead log past which a commit fails with [`StoreError::WalLimit`] while a reader
        /// keeps the log from being copied into the file; [`StoreStats::is_wal_large`] warns at half of them. A single
        /// commit may be larger. Default: 1 GiB; `u64::MAX` for no limit.
        ///
        /// [`StoreError::WalLimit`]: super::StoreError::WalLimit
        /// [`StoreStats::is_wal_large`]: super::stats::StoreStats::is_wal_large
        pub fn wal_limit_bytes(wal_limit_bytes: u64) { .wal_limit_bytes = wal_limit_bytes }

        /// Sets the bytes of decoded heads that are cached. Default: 64 MiB; 0 caches none. The head that was used last
        /// is cached whatever its size, so that a write to a long thread does not load it again.
        pub fn head_cache_bytes(head_cache_bytes: usize) { .head_cache_bytes = head_cache_bytes }

        /// Sets the clock that stamps checkpoints. Default: that of the operating system.
        pub fn clock(clock: impl Clock) { .clock = Arc::new(clock) }

        /// Names the user, the program or the part of a program that makes the operations of the store, such as moves
        /// of heads. At most 256 bytes. Default: none.
        pub fn actor(actor: impl Into<Arc<str>>) { .actor = Some(actor.into()) }
    }

    /// Names the version of the application, which each checkpoint that it writes to a file retains:
    /// [`CheckpointRecord::app_version`]. Default: none.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] for a text of more than 256 bytes.
    ///
    /// [`CheckpointRecord::app_version`]: super::record::CheckpointRecord::app_version
    pub fn app_version(mut self, version: impl Into<Arc<str>>) -> Result<Self, StoreError> {
        let version = version.into();
        if version.len() > NAME_BYTES_MAX {
            let reason = format!("{} bytes are above the limit of {NAME_BYTES_MAX}", version.len());
            return Err(StoreError::Invalid { field: "options.app_version", reason });
        }
        self.app_version = Some(version);
        Ok(self)
    }

    setters! {
        /// Sets the seed of the random parts of ids, so that a simulation with a clock of its own is repeatable. Two
        /// handles with one seed may mint the same ids: not for a store that others write to. Default: a seed from the
        /// operating system.
        pub fn id_seed(seed: u64) { .id_seed = Some(seed) }

        /// Sets the key of an encrypted store. A new store, or one without content, becomes encrypted with it; a plain
        /// store is refused, and an encrypted one is opened with its key alone. Values of messages, channels, writes,
        /// the key-value memory and the cache are sealed; ids, names, times and sizes are not (SECURITY.md). Default:
        /// no key.
        ///
        /// # Example: an encrypted store
        /// ```
        /// # #[cfg(feature = "encryption")] {
        /// use annals::prelude::*;
        /// use annals::store::{Key, OpenOptions, StoreError};
        /// # #[derive(State, Clone, Default)]
        /// # struct Note { text: String }
        ///
        /// # fn main() -> Result<()> {
        /// # let folder = tempfile::tempdir().unwrap();
        /// let path = folder.path().join("secret.db");
        /// # let bytes = [7; 32];
        /// let key = Key::new(bytes); // 32 random bytes, from a key store
        /// let store = Store::open_with(&path, OpenOptions::new().key(key.clone()))?;
        /// store.thread("alice")?.update(Note::update().text("meet at noon"))?;
        /// drop(store);
        ///
        /// assert!(matches!(Store::open(&path), Err(StoreError::KeyRequired { key: id, .. }) if id == key.id()));
        /// let store = Store::open_with(&path, OpenOptions::new().key(key))?;
        /// assert_eq!(store.thread("alice")?.with_state::<Note>().state()?.text, "meet at noon");
        /// # Ok(())
        /// # }
        /// # main().unwrap();
        /// # }
        /// ```
        pub fn key(key: Key) { .keys.key = Some(key) }

        /// Sets the cipher of an encrypted store; its name must be that of the cipher with which the store was made.
        /// Default: XChaCha20-Poly1305, with the feature `encryption`.
        pub fn cipher(cipher: impl Cipher) { .keys.cipher = Some(Arc::new(cipher)) }

        /// Sets the key of the checksums of a store whose content is in the clear. A writer of the file without the key
        /// cannot make a history that [`Store::check`] accepts, but can take away the newest commits. A new store, or
        /// one without content, gets the key; another one is opened with its own alone. An encrypted store has keyed
        /// checksums without this. Default: no key.
        ///
        /// [`Store::check`]: super::Store::check
        pub fn checksum_key(key: Key) { .keys.checksum_key = Some(key) }
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

debug_fields!(OpenOptions {
    synchronous,
    read_only,
    create,
    busy_timeout_ms,
    network_file_system,
    full_fsync,
    wal_limit_bytes,
    head_cache_bytes
});
