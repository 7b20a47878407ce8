//! Measures the disk under the figures: its file system, the cost of an fsync, and stores on the disk.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annals::store::{OpenOptions, SqliteBackend, Store, StoreError, Synchronous};

use crate::stats::{median, timed};
use crate::{Bench, Result};

/// A store with its backend, whose counters and WAL the seam does not show.
#[derive(Clone)]
pub(crate) struct OpenedStore {
    pub(crate) store: Store,
    pub(crate) backend: Arc<SqliteBackend>,
}

/// Opens a store.
pub(crate) fn open(path: &Path, synchronous: Synchronous) -> Result<OpenedStore> {
    let options = OpenOptions::new().synchronous(synchronous);
    let backend = Arc::new(SqliteBackend::open(path, &options)?);
    let store = Store::with_backend(backend.clone(), options);
    Ok(OpenedStore { store, backend })
}

impl OpenedStore {
    /// Returns the size of the file when the WAL is in it.
    pub(crate) fn bytes(&self, path: &Path) -> Result<u64> {
        self.empty_wal()?;
        Ok(fs::metadata(path)?.len())
    }

    /// Copies the whole WAL into the file. The store's own copying thread may be in the way for a moment.
    pub(crate) fn empty_wal(&self) -> Result<()> {
        for _ in 0..100 {
            match self.backend.checkpoint_wal() {
                Err(StoreError::Busy { .. }) => std::thread::sleep(Duration::from_millis(20)),
                done => return Ok(done?),
            }
        }
        Err("the WAL cannot be copied: it is busy".into())
    }

    /// Verifies every row and sum, and that there are `checkpoints` of them.
    pub(crate) fn verify(&self, checkpoints: u64) -> Result<()> {
        let report = self.store.check()?;
        if !report.problems.is_empty() {
            return Err(format!("the store does not check: {:?}", report.problems).into());
        }
        same("checkpoints in the store", report.checkpoints, checkpoints)
    }
}

/// Returns an error if a measurement did not do the expected work.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<()> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?} where {expected:?} was expected").into()) }
}

/// A file that grows by synced blocks.
pub(crate) struct Fsync(File);

impl Fsync {
    /// Makes the file.
    pub(crate) fn new(bench: &Bench, name: &str) -> Result<Self> {
        Ok(Self(File::create(bench.file(name)?)?))
    }

    /// Appends 4 KiB, and returns how many microseconds it took until they were on the disk.
    pub(crate) fn sample(&mut self) -> Result<f64> {
        let block = [0x5a_u8; 4_096];
        let (us, ()) = timed(|| {
            self.0.write_all(&block)?;
            Ok(self.0.sync_data()?)
        })?;
        Ok(us)
    }

    /// Returns the median of so many samples.
    pub(crate) fn block(&mut self, samples: usize) -> Result<f64> {
        Ok(median(&(0..samples).map(|_| self.sample()).collect::<Result<Vec<_>>>()?))
    }
}

/// Measures `fsync_us`: the median of the medians of runs.
pub(crate) fn fsync_us(bench: &Bench) -> Result<f64> {
    let mut file = Fsync::new(bench, "fsync")?;
    let mut runs = Vec::new();
    for _ in 0..bench.runs(5, 2) {
        runs.push(file.block(bench.runs(200, 20))?);
    }
    Ok(median(&runs))
}

/// Returns the type of the file system a folder is on.
pub(crate) fn file_system(dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mount = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let (at, kind) = (fields.next()?, fields.next()?);
            dir.starts_with(at).then_some((at.len(), kind))
        })
        .max_by_key(|(length, _)| *length);
    mount.map_or_else(|| "unknown".into(), |(_, kind)| kind.to_owned())
}
