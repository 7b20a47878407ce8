//! Watches the files of a folder below SQLite: records what reaches the disk, and makes calls fail.

use std::ffi::c_int;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use annals::rusqlite::ffi;
use parking_lot::{Mutex, RwLock};

use crate::log::{DiskLog, DiskOp, StoreFile};

/// A call on a file or on a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileCall {
    Open,
    Delete,
    Access,
    Read,
    Write,
    Truncate,
    Sync,
    FileSize,
    Lock,
    Unlock,
    ReservedLock,
    ShmMap,
    ShmLock,
    ShmUnlock,
}

/// Number of the variants of [`FileCall`].
const CALLS: usize = FileCall::ShmUnlock as usize + 1;

/// An error of the disk, of the memory or of the locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FaultKind {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// The call that fails.
    pub(crate) call: FileCall,
    /// The result code.
    code: c_int,
    /// True if half of the bytes of a write reach the file before it fails.
    half: bool,
}

const fn kind(name: &'static str, call: FileCall, code: c_int) -> FaultKind {
    FaultKind { name, call, code, half: false }
}

/// Every kind of fault.
pub(crate) const FAULT_KINDS: &[FaultKind] = &[
    kind("write", FileCall::Write, ffi::SQLITE_IOERR_WRITE),
    FaultKind { half: true, ..kind("write-half", FileCall::Write, ffi::SQLITE_IOERR_WRITE) },
    kind("full", FileCall::Write, ffi::SQLITE_FULL),
    FaultKind { half: true, ..kind("full-half", FileCall::Write, ffi::SQLITE_FULL) },
    kind("fsync", FileCall::Sync, ffi::SQLITE_IOERR_FSYNC),
    kind("read", FileCall::Read, ffi::SQLITE_IOERR_READ),
    kind("read-nomem", FileCall::Read, ffi::SQLITE_IOERR_NOMEM),
    kind("truncate", FileCall::Truncate, ffi::SQLITE_IOERR_TRUNCATE),
    kind("delete", FileCall::Delete, ffi::SQLITE_IOERR_DELETE),
    kind("cantopen", FileCall::Open, ffi::SQLITE_CANTOPEN),
    kind("open-nomem", FileCall::Open, ffi::SQLITE_NOMEM),
    kind("access", FileCall::Access, ffi::SQLITE_IOERR_ACCESS),
    kind("fstat", FileCall::FileSize, ffi::SQLITE_IOERR_FSTAT),
    kind("lock", FileCall::Lock, ffi::SQLITE_IOERR_LOCK),
    kind("lock-busy", FileCall::Lock, ffi::SQLITE_BUSY),
    kind("reserved-lock", FileCall::ReservedLock, ffi::SQLITE_IOERR_CHECKRESERVEDLOCK),
    kind("shm-map", FileCall::ShmMap, ffi::SQLITE_IOERR_SHMMAP),
    kind("shm-lock", FileCall::ShmLock, ffi::SQLITE_IOERR_SHMLOCK),
    kind("shm-busy", FileCall::ShmLock, ffi::SQLITE_BUSY),
];

/// A full disk, on which the `-shm` file cannot grow.
#[cfg(test)]
const NO_ROOM_FOR_LOCKS: FaultKind = kind("shm-size", FileCall::ShmMap, ffi::SQLITE_IOERR_SHMSIZE);

/// A fault at the n-th call of its kind, counted from 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InjectedFault {
    pub(crate) kind: FaultKind,
    pub(crate) nth: u64,
    /// True if all later calls of the kind fail as well; of a lock that is taken, [`BUSY_CALLS`] of them.
    pub(crate) persistent: bool,
}

/// Calls for which a lock stays taken: SQLite waits up to 10 s for a lock that is never given back.
const BUSY_CALLS: u64 = 20;

/// A halt of the next call of a kind, before it reaches the operating system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallHalt {
    pub(crate) call: FileCall,
    /// Returns when the call may go on.
    pub(crate) wait: fn(),
}

/// A folder that is watched as long as it is registered.
#[derive(Debug)]
pub(crate) struct FolderWatch {
    folder: PathBuf,
    log: Option<Arc<DiskLog>>,
    fault: Mutex<Option<InjectedFault>>,
    halt: Mutex<Option<CallHalt>>,
    counts: [AtomicU64; CALLS],
    fired: AtomicU64,
}

/// The folders that are watched.
static WATCHED: RwLock<Vec<Arc<FolderWatch>>> = RwLock::new(Vec::new());

/// An open file of SQLite.
#[derive(Debug)]
pub(crate) struct FileHandle {
    watch: Option<Arc<FolderWatch>>,
    /// The file's number on the disk, if its operations are recorded.
    ino: Option<u64>,
    /// True until the first sync of a WAL or journal that may have been made: that one syncs the folder as well.
    syncs_folder: AtomicBool,
}

impl FolderWatch {
    /// Watches a folder. Files in it that are opened from now on are recorded in `log`, if there is one.
    pub(crate) fn register(folder: &Path, log: Option<Arc<DiskLog>>) -> WatchGuard {
        let watch = Arc::new(Self {
            folder: folder.to_path_buf(),
            log,
            fault: Mutex::new(None),
            halt: Mutex::new(None),
            counts: [const { AtomicU64::new(0) }; CALLS],
            fired: AtomicU64::new(0),
        });
        WATCHED.write().push(Arc::clone(&watch));
        WatchGuard(watch)
    }

    fn of(path: Option<&Path>) -> Option<Arc<Self>> {
        let path = path?;
        let folder = path.parent()?;
        WATCHED.read().iter().find(|watch| watch.folder == folder).cloned()
    }

    /// Sets the fault to come, or none, and counts the calls anew.
    pub(crate) fn set_fault(&self, fault: Option<InjectedFault>) {
        *self.fault.lock() = fault;
        self.counts.iter().for_each(|count| count.store(0, Ordering::SeqCst));
        self.fired.store(0, Ordering::SeqCst);
    }

    /// Sets a halt, which happens once.
    pub(crate) fn set_halt(&self, halt: CallHalt) {
        *self.halt.lock() = Some(halt);
    }

    /// Returns the number of calls since the fault was set.
    pub(crate) fn calls(&self, call: FileCall) -> u64 {
        self.counts[call as usize].load(Ordering::SeqCst)
    }

    /// Returns the number of calls that were made to fail.
    pub(crate) fn fired(&self) -> u64 {
        self.fired.load(Ordering::SeqCst)
    }

    fn hit(&self, call: FileCall) -> Option<FaultKind> {
        let halt = self.halt.lock().take_if(|halt| halt.call == call);
        if let Some(halt) = halt {
            (halt.wait)();
        }
        let count = self.counts[call as usize].fetch_add(1, Ordering::SeqCst) + 1;
        let fault = (*self.fault.lock()).filter(|fault| fault.kind.call == call)?;
        let lasts = match (fault.persistent, fault.kind.code) {
            (false, _) => 1,
            (true, ffi::SQLITE_BUSY) => BUSY_CALLS,
            (true, _) => u64::MAX,
        };
        let fails = count >= fault.nth && count - fault.nth < lasts;
        if fails {
            self.fired.fetch_add(1, Ordering::SeqCst);
        }
        fails.then_some(fault.kind)
    }

    /// Opens a file by `real`.
    pub(crate) fn open(path: Option<&Path>, flags: c_int, real: impl FnOnce() -> c_int) -> Result<FileHandle, c_int> {
        let watch = Self::of(path);
        let plain = |watch| FileHandle { watch, ino: None, syncs_folder: AtomicBool::new(false) };
        let as_result = |code| if code == ffi::SQLITE_OK { Ok(()) } else { Err(code) };
        let Some(known) = &watch else { return as_result(real()).map(|()| plain(None)) };
        if let Some(kind) = known.hit(FileCall::Open) {
            return Err(kind.code);
        }
        let (Some(log), Some((path, name))) = (&known.log, path.and_then(|path| Some((path, StoreFile::of(path)?))))
        else {
            return as_result(real()).map(|()| plain(watch));
        };
        let opened = log.record(|ops| {
            let existed = path.exists();
            as_result(real())?;
            let Ok(meta) = std::fs::metadata(path) else { return Err(ffi::SQLITE_IOERR_FSTAT) };
            let (ino, size) = (meta.ino(), meta.len());
            ops.push(if existed { DiskOp::Found { name, ino, size } } else { DiskOp::Create { name, ino } });
            Ok(ino)
        });
        let made = flags & ffi::SQLITE_OPEN_CREATE != 0 && name != StoreFile::Main;
        opened.map(|ino| FileHandle { watch, ino: Some(ino), syncs_folder: AtomicBool::new(made) })
    }

    /// Deletes a name by `real`.
    pub(crate) fn delete(path: Option<&Path>, syncs_folder: bool, real: impl FnOnce() -> c_int) -> c_int {
        let Some(watch) = Self::of(path) else { return real() };
        if let Some(kind) = watch.hit(FileCall::Delete) {
            return kind.code;
        }
        let (Some(log), Some(name)) = (&watch.log, path.and_then(StoreFile::of)) else { return real() };
        log.record(|ops| {
            let code = real();
            if code == ffi::SQLITE_OK {
                ops.push(DiskOp::Delete { name, syncs_folder });
            }
            code
        })
    }

    /// Makes any other call on a name by `real`.
    pub(crate) fn call_on(path: Option<&Path>, call: FileCall, real: impl FnOnce() -> c_int) -> c_int {
        match Self::of(path).and_then(|watch| watch.hit(call)) {
            Some(kind) => kind.code,
            None => real(),
        }
    }
}

impl FileHandle {
    fn log(&self) -> Option<(&DiskLog, u64)> {
        Some((self.watch.as_ref()?.log.as_deref()?, self.ino?))
    }

    /// Makes a call that changes nothing on the disk.
    pub(crate) fn call(&self, call: FileCall, real: impl FnOnce() -> c_int) -> c_int {
        match self.watch.as_ref().and_then(|watch| watch.hit(call)) {
            Some(kind) => kind.code,
            None => real(),
        }
    }

    /// Writes bytes.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8], real: impl FnOnce(&[u8]) -> c_int) -> c_int {
        let fault = self.watch.as_ref().and_then(|watch| watch.hit(FileCall::Write));
        let bytes = match fault {
            Some(kind) if !kind.half => return kind.code,
            Some(_) => &bytes[..bytes.len() / 2],
            None => bytes,
        };
        let code = match self.log() {
            None => real(bytes),
            Some((log, ino)) => log.record(|ops| {
                let code = real(bytes);
                if code == ffi::SQLITE_OK {
                    ops.push(DiskOp::Write { ino, offset, bytes: bytes.into() });
                }
                code
            }),
        };
        fault.map_or(code, |kind| kind.code)
    }

    /// Sets the size.
    pub(crate) fn truncate(&self, size: u64, real: impl FnOnce() -> c_int) -> c_int {
        if let Some(kind) = self.watch.as_ref().and_then(|watch| watch.hit(FileCall::Truncate)) {
            return kind.code;
        }
        let Some((log, ino)) = self.log() else { return real() };
        log.record(|ops| {
            let code = real();
            if code == ffi::SQLITE_OK {
                ops.push(DiskOp::Truncate { ino, size });
            }
            code
        })
    }

    /// Makes everything written so far durable. A failed sync is recorded: the kernel forgets that the pages are dirty.
    pub(crate) fn sync(&self, real: impl FnOnce() -> c_int) -> c_int {
        let fault = self.watch.as_ref().and_then(|watch| watch.hit(FileCall::Sync));
        let Some((log, ino)) = self.log() else { return fault.map_or_else(real, |kind| kind.code) };
        log.record(|ops| {
            let code = fault.map_or_else(real, |kind| kind.code);
            if code == ffi::SQLITE_OK {
                ops.push(DiskOp::Sync { ino, folder: self.syncs_folder.swap(false, Ordering::SeqCst) });
            } else {
                ops.push(DiskOp::SyncFailed { ino });
            }
            code
        })
    }
}

/// Ends the watch of a folder when it is dropped. Files that are open stay watched.
#[derive(Debug)]
pub(crate) struct WatchGuard(Arc<FolderWatch>);

impl std::ops::Deref for WatchGuard {
    type Target = FolderWatch;

    fn deref(&self) -> &FolderWatch {
        &self.0
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        WATCHED.write().retain(|watch| !Arc::ptr_eq(watch, &self.0));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::trace::ScratchFolder;
    use annals::store::{OpenOptions, Store, StoreError};

    fn always(kind: FaultKind) -> Option<InjectedFault> {
        Some(InjectedFault { kind, nth: 1, persistent: true })
    }

    fn store(path: &Path, thread: &str) -> Store {
        let store = Store::open(path).unwrap();
        store.thread(thread).unwrap().write().set("n", 1).commit().unwrap();
        store
    }

    #[test]
    fn a_file_on_a_full_disk_is_read_with_its_log() {
        crate::vfs::install();
        let scratch = ScratchFolder::new().unwrap();
        let path = scratch.store();
        drop(store(&path, "in the file"));
        // The files of a process that was killed: its last commit stands in the log alone.
        let open = store(&path, "in the log");
        let crashed = ScratchFolder::new().unwrap();
        for ending in ["", "-wal"] {
            let name = format!("{}{ending}", path.file_name().unwrap().to_str().unwrap());
            std::fs::copy(scratch.path().join(&name), crashed.path().join(&name)).unwrap();
        }
        drop(open);
        for (folder, log_bytes, threads) in [(&scratch, false, 2), (&crashed, true, 2)] {
            let path = folder.store();
            let before = std::fs::read(&path).unwrap();
            let watched = FolderWatch::register(folder.path(), None);
            watched.set_fault(always(NO_ROOM_FOR_LOCKS));
            let log = || {
                let mut name = path.as_os_str().to_owned();
                name.push("-wal");
                std::fs::metadata(name).map_or(0, |log| log.len())
            };
            let bytes = log();
            assert_eq!(bytes > 0, log_bytes);
            let reader = Store::open_with(&path, OpenOptions::new().read_only(true)).unwrap();
            for _ in 0..3 {
                assert_eq!(reader.threads().unwrap().len(), threads);
            }
            assert!(reader.check().unwrap().problems.is_empty());
            assert!(watched.fired() > 0);
            // Between its reads another process gets the file.
            watched.set_fault(None);
            assert_eq!(
                Store::open_with(&path, OpenOptions::new().read_only(true)).unwrap().threads().unwrap().len(),
                2
            );
            watched.set_fault(always(NO_ROOM_FOR_LOCKS));
            drop(reader);
            assert_eq!((std::fs::read(&path).unwrap(), log()), (before, bytes), "nothing was written");
            watched.set_fault(None);
            drop(store(&path, "later"));
        }
    }

    #[test]
    fn a_first_open_without_room_leaves_no_file_and_a_later_one_none_less() {
        crate::vfs::install();
        let scratch = ScratchFolder::new().unwrap();
        let path = scratch.store();
        let full = *FAULT_KINDS.iter().find(|kind| kind.name == "full").unwrap();
        let watched = FolderWatch::register(scratch.path(), None);
        watched.set_fault(always(full));
        let error = Store::open(&path).unwrap_err();
        assert!(matches!(&error, StoreError::Open { .. }) && error.to_string().contains("disk is full"), "{error}");
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
        // A file that was empty before stays: another process may have made it.
        std::fs::write(&path, "").unwrap();
        Store::open(&path).unwrap_err();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        watched.set_fault(None);
        drop(store(&path, "a"));
        let before = std::fs::read(&path).unwrap();
        watched.set_fault(always(full));
        // The writes of an open depend on the file; the rows stay as they were in any case.
        drop(Store::open(&path));
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}
