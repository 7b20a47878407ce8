//! A layer below SQLite: a VFS that forwards every call to that of the operating system and shows it to a
//! [`FolderWatch`].
//!
//! It is registered as the default VFS, so that the store opens its files through it without knowing. Only files in a
//! folder that is watched are shown; all others pass through. Shared memory is forwarded unmodified: its pages are
//! mapped by the operating system, and only the calls themselves can be made to fail.
//!
//! This is the only module with `unsafe`. Its invariants: a [`ShimFile`] stands at the beginning of the memory that
//! SQLite allocates for a file, and the file of the operating system stands behind it in the same memory
//! (`szOsFile` is the size of both); `handle` is a box from the successful `xOpen` to `xClose`; the VFS structs are
//! leaked, so pointers to them stay valid for ever. No panic leaves a callback: the hooks return codes.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use annals::rusqlite::ffi;

use crate::watch::{FileCall, FileHandle, FolderWatch};

/// The memory of an open file, before the file of the operating system. SQLite aligns it to 8 bytes, not more.
#[repr(C)]
struct ShimFile {
    /// SQLite reads the methods of a file at its beginning.
    methods: ffi::sqlite3_file,
    handle: *mut FileHandle,
}

/// The VFS of the operating system, which the shim forwards to.
struct System(*mut ffi::sqlite3_vfs);

// SAFETY: the struct is registered with SQLite for ever and is not changed; SQLite itself shares it between threads.
unsafe impl Send for System {}
// SAFETY: as above.
unsafe impl Sync for System {}

static SYSTEM: OnceLock<System> = OnceLock::new();
/// The seed of the randomness that SQLite asks for, plus the bytes given since; 0 asks the operating system.
static RANDOM: AtomicU64 = AtomicU64::new(0);

/// Registers the shim as the default VFS, once.
pub(crate) fn install() {
    SYSTEM.get_or_init(|| {
        // SAFETY: SQLite returns its default VFS, which lives as long as the process; the copy is leaked before it is
        // registered, and only fields that the documentation lets a shim set are changed.
        unsafe {
            let system = ffi::sqlite3_vfs_find(ptr::null());
            assert!(!system.is_null(), "SQLite has a default VFS");
            let mut shim: ffi::sqlite3_vfs = ptr::read(system);
            shim.szOsFile = (size_of::<ShimFile>() as c_int) + (*system).szOsFile;
            shim.pNext = ptr::null_mut();
            shim.zName = c"annals-sim".as_ptr();
            shim.pAppData = ptr::null_mut();
            shim.xOpen = Some(vfs_open);
            shim.xDelete = Some(vfs_delete);
            shim.xAccess = Some(vfs_access);
            shim.xFullPathname = Some(vfs_full_pathname);
            shim.xRandomness = Some(vfs_randomness);
            shim.xCurrentTime = Some(vfs_current_time);
            shim.xCurrentTimeInt64 = Some(vfs_current_time_int64);
            let shim = Box::leak(Box::new(shim));
            assert_eq!(ffi::sqlite3_vfs_register(shim, 1), ffi::SQLITE_OK);
            System(system)
        }
    });
}

/// Makes the randomness and the time that SQLite asks for follow from a seed other than 0; 0 ends that. The salts of
/// the WAL and of journals are drawn from it.
pub(crate) fn seed_randomness(seed: u64) {
    RANDOM.store(seed, Ordering::SeqCst);
    // SAFETY: a length of 0 makes SQLite draw a new seed the next time; the pointer is not read.
    unsafe { ffi::sqlite3_randomness(0, ptr::null_mut()) };
}

fn system() -> *mut ffi::sqlite3_vfs {
    SYSTEM.get().map_or(ptr::null_mut(), |system| system.0)
}

/// Calls a method of the VFS of the operating system.
macro_rules! forward {
    ($method:ident($($argument:expr),*)) => {{
        let system = system();
        match (*system).$method {
            Some(method) => method(system, $($argument),*),
            None => ffi::SQLITE_ERROR,
        }
    }};
}

/// Calls a method of the file of the operating system behind a shim file.
macro_rules! forward_file {
    ($file:expr, $method:ident($($argument:expr),*)) => {{
        let real = real($file);
        match (*(*real).pMethods).$method {
            Some(method) => method(real, $($argument),*),
            None => ffi::SQLITE_IOERR,
        }
    }};
}

/// Returns the file of the operating system behind a shim file.
///
/// # Safety
/// `file` was opened by [`vfs_open`].
unsafe fn real(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: `szOsFile` reserves the memory of the real file right behind the shim.
    unsafe { file.cast::<ShimFile>().add(1).cast() }
}

/// Returns the watch of a file.
///
/// # Safety
/// As [`real`].
unsafe fn handle<'a>(file: *mut ffi::sqlite3_file) -> &'a FileHandle {
    // SAFETY: the box lives until `xClose`, and SQLite does not call a closed file.
    unsafe { &*(*file.cast::<ShimFile>()).handle }
}

/// Returns a path that SQLite gives; `None` for a temporary file.
///
/// # Safety
/// `name` is null or ends with a NUL.
unsafe fn path<'a>(name: *const c_char) -> Option<&'a Path> {
    if name.is_null() {
        return None;
    }
    // SAFETY: by the contract of this function.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    Some(Path::new(std::str::from_utf8(bytes).ok()?))
}

unsafe extern "C" fn vfs_open(
    _: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite gives memory of `szOsFile` bytes, and reads `pMethods` even of a file that failed to open.
    unsafe {
        let shim = file.cast::<ShimFile>();
        (*shim).methods.pMethods = ptr::null();
        (*shim).handle = ptr::null_mut();
        let real = real(file);
        (*real).pMethods = ptr::null();
        let path = path(name);
        let opened = FolderWatch::open(path, flags, || forward!(xOpen(name, real, flags, out_flags)));
        match opened {
            Ok(handle) => {
                (*shim).handle = Box::into_raw(Box::new(handle));
                (*shim).methods.pMethods = &METHODS;
                ffi::SQLITE_OK
            }
            Err(code) => {
                // SQLite does not close a file without methods, so the real one is closed here.
                if !(*real).pMethods.is_null() {
                    _ = forward_file!(file, xClose());
                }
                code
            }
        }
    }
}

unsafe extern "C" fn vfs_delete(_: *mut ffi::sqlite3_vfs, name: *const c_char, sync_dir: c_int) -> c_int {
    // SAFETY: `name` ends with a NUL.
    unsafe { FolderWatch::delete(path(name), sync_dir != 0, || forward!(xDelete(name, sync_dir))) }
}

unsafe extern "C" fn vfs_access(_: *mut ffi::sqlite3_vfs, name: *const c_char, flags: c_int, out: *mut c_int) -> c_int {
    // SAFETY: `name` ends with a NUL; the rest is forwarded.
    unsafe { FolderWatch::call_on(path(name), FileCall::Access, || forward!(xAccess(name, flags, out))) }
}

unsafe extern "C" fn vfs_full_pathname(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    length: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: forwarded.
    unsafe { forward!(xFullPathname(name, length, out)) }
}

unsafe extern "C" fn vfs_randomness(_: *mut ffi::sqlite3_vfs, length: c_int, out: *mut c_char) -> c_int {
    let seed = RANDOM.load(Ordering::SeqCst);
    // SAFETY: `out` has `length` bytes.
    unsafe {
        if seed == 0 {
            return forward!(xRandomness(length, out));
        }
        let mut rng = crate::rng::Rng::new(seed);
        for at in 0..usize::try_from(length).unwrap_or(0) {
            *out.add(at) = rng.next() as c_char;
        }
    }
    length
}

/// Days from the Julian epoch to 2026-01-01, which is the time of every seed.
const SEEDED_DAY: f64 = 2_461_041.5;

unsafe extern "C" fn vfs_current_time(_: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    // SAFETY: `out` is a number to be written.
    unsafe {
        if RANDOM.load(Ordering::SeqCst) == 0 {
            return forward!(xCurrentTime(out));
        }
        *out = SEEDED_DAY;
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn vfs_current_time_int64(_: *mut ffi::sqlite3_vfs, out: *mut ffi::sqlite3_int64) -> c_int {
    // SAFETY: as above.
    unsafe {
        if RANDOM.load(Ordering::SeqCst) == 0 {
            return forward!(xCurrentTimeInt64(out));
        }
        *out = (SEEDED_DAY * 86_400_000.0) as ffi::sqlite3_int64;
    }
    ffi::SQLITE_OK
}

/// Version 2: without `xFetch`, so that no write goes past the shim through a mapping.
static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(file_close),
    xRead: Some(file_read),
    xWrite: Some(file_write),
    xTruncate: Some(file_truncate),
    xSync: Some(file_sync),
    xFileSize: Some(file_size),
    xLock: Some(file_lock),
    xUnlock: Some(file_unlock),
    xCheckReservedLock: Some(file_check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(file_sector_size),
    xDeviceCharacteristics: Some(file_device_characteristics),
    xShmMap: Some(file_shm_map),
    xShmLock: Some(file_shm_lock),
    xShmBarrier: Some(file_shm_barrier),
    xShmUnmap: Some(file_shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

unsafe extern "C" fn file_close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: `xOpen` made the box, and this is the last call on the file.
    unsafe {
        let code = forward_file!(file, xClose());
        let shim = file.cast::<ShimFile>();
        drop(Box::from_raw((*shim).handle));
        (*shim).handle = ptr::null_mut();
        (*shim).methods.pMethods = ptr::null();
        code
    }
}

unsafe extern "C" fn file_read(
    file: *mut ffi::sqlite3_file,
    out: *mut c_void,
    length: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: the file is open; the rest is forwarded.
    unsafe { handle(file).call(FileCall::Read, || forward_file!(file, xRead(out, length, offset))) }
}

unsafe extern "C" fn file_write(
    file: *mut ffi::sqlite3_file,
    data: *const c_void,
    length: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: the file is open, and `data` has `length` bytes; a hook may ask for fewer of them to be written.
    unsafe {
        let bytes = std::slice::from_raw_parts(data.cast::<u8>(), usize::try_from(length).unwrap_or(0));
        handle(file).write(offset as u64, bytes, |bytes| {
            forward_file!(file, xWrite(bytes.as_ptr().cast(), bytes.len() as c_int, offset))
        })
    }
}

unsafe extern "C" fn file_truncate(file: *mut ffi::sqlite3_file, size: ffi::sqlite3_int64) -> c_int {
    // SAFETY: the file is open.
    unsafe { handle(file).truncate(size as u64, || forward_file!(file, xTruncate(size))) }
}

unsafe extern "C" fn file_sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: the file is open.
    unsafe { handle(file).sync(|| forward_file!(file, xSync(flags))) }
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, out: *mut ffi::sqlite3_int64) -> c_int {
    // SAFETY: the file is open.
    unsafe { handle(file).call(FileCall::FileSize, || forward_file!(file, xFileSize(out))) }
}

unsafe extern "C" fn file_lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: the file is open.
    unsafe { handle(file).call(FileCall::Lock, || forward_file!(file, xLock(level))) }
}

unsafe extern "C" fn file_unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: the file is open.
    unsafe { handle(file).call(FileCall::Unlock, || forward_file!(file, xUnlock(level))) }
}

unsafe extern "C" fn file_check_reserved_lock(file: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: the file is open.
    unsafe { handle(file).call(FileCall::ReservedLock, || forward_file!(file, xCheckReservedLock(out))) }
}

unsafe extern "C" fn file_control(file: *mut ffi::sqlite3_file, op: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: forwarded.
    unsafe { forward_file!(file, xFileControl(op, argument)) }
}

unsafe extern "C" fn file_sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: forwarded.
    unsafe { forward_file!(file, xSectorSize()) }
}

unsafe extern "C" fn file_device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: forwarded.
    unsafe { forward_file!(file, xDeviceCharacteristics()) }
}

unsafe extern "C" fn file_shm_map(
    file: *mut ffi::sqlite3_file,
    page: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: the file is open; SQLite expects a null pointer beside an error.
    unsafe {
        handle(file).call(FileCall::ShmMap, || forward_file!(file, xShmMap(page, size, extend, out))).also(|code| {
            if code != ffi::SQLITE_OK && code != ffi::SQLITE_READONLY {
                *out = ptr::null_mut();
            }
        })
    }
}

unsafe extern "C" fn file_shm_lock(file: *mut ffi::sqlite3_file, offset: c_int, n: c_int, flags: c_int) -> c_int {
    // SAFETY: the file is open. An unlock is not made to fail: SQLite ignores its result, and a lock without an owner
    // would stay.
    unsafe {
        let call = if flags & ffi::SQLITE_SHM_UNLOCK == 0 { FileCall::ShmLock } else { FileCall::ShmUnlock };
        handle(file).call(call, || forward_file!(file, xShmLock(offset, n, flags)))
    }
}

unsafe extern "C" fn file_shm_barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: forwarded.
    unsafe {
        let real = real(file);
        if let Some(barrier) = (*(*real).pMethods).xShmBarrier {
            barrier(real);
        }
    }
}

unsafe extern "C" fn file_shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    // SAFETY: forwarded.
    unsafe { forward_file!(file, xShmUnmap(delete)) }
}

/// Runs a step with a result code and returns the code.
trait Also {
    fn also(self, step: impl FnOnce(c_int)) -> c_int;
}

impl Also for c_int {
    fn also(self, step: impl FnOnce(c_int)) -> c_int {
        step(self);
        self
    }
}
