//! The files of a store, and those that come from other moments, machines and stores.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use annals::rusqlite::config::DbConfig;
use annals::rusqlite::{self, Connection};

use super::process::{OrderedProcess, WorkerProgram};
use crate::log::STORE;
use crate::sql;
use crate::trace::{ScratchFolder, remove_store};

/// A file of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccidentTarget {
    Main,
    Log,
    Memory,
}

impl AccidentTarget {
    /// All of them, with their names.
    pub(super) const ALL: [(Self, &'static str); 3] =
        [(Self::Main, "file"), (Self::Log, "log"), (Self::Memory, "memory")];

    /// Returns the path of the file beside that of the store.
    pub(super) fn of(self, store: &Path) -> PathBuf {
        let mut path = store.as_os_str().to_owned();
        path.push(["", "-wal", "-shm"][self as usize]);
        PathBuf::from(path)
    }
}

/// The bytes of a file.
pub(super) type FileBytes = Arc<[u8]>;

/// The files of a store at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StoreFiles([Option<FileBytes>; 3]);

impl StoreFiles {
    /// Reads the files at a path.
    pub(super) fn read(store: &Path) -> Self {
        Self(AccidentTarget::ALL.map(|(target, _)| std::fs::read(target.of(store)).ok().map(Arc::from)))
    }

    /// Writes the files to a path, in place of all that is there.
    pub(super) fn lay(&self, store: &Path) -> Result<(), String> {
        remove_store(store);
        for ((target, _), bytes) in AccidentTarget::ALL.into_iter().zip(&self.0) {
            if let Some(bytes) = bytes {
                std::fs::write(target.of(store), bytes).map_err(|error| error.to_string())?;
                restrict(&target.of(store))?;
            }
        }
        Ok(())
    }

    /// Returns the bytes of one of them.
    pub(super) fn get(&self, target: AccidentTarget) -> Option<&FileBytes> {
        self.0[target as usize].as_ref()
    }

    /// Returns these files with one of another moment.
    pub(super) fn with(mut self, target: AccidentTarget, other: &Self) -> Self {
        self.0[target as usize].clone_from(&other.0[target as usize]);
        self
    }

    /// Returns whether file and log are the same. The shared memory is made anew by each first opening, and an empty
    /// log is as good as none.
    pub(super) fn is_same_store(&self, other: &Self) -> bool {
        let log = |files: &Self| files.get(AccidentTarget::Log).filter(|bytes| !bytes.is_empty()).cloned();
        self.get(AccidentTarget::Main) == other.get(AccidentTarget::Main) && log(self) == log(other)
    }
}

/// Gives a file the mode of a store: SQLite refuses no other one, but the library does not take files that others can
/// read beside one that they cannot.
pub(super) fn restrict(path: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(|error| error.to_string())
}

/// The items of an author, from the first number to the last one.
pub(super) fn items(author: &str, numbers: std::ops::RangeInclusive<u64>) -> Vec<String> {
    numbers.map(|n| format!("{author}-{n}")).collect()
}

/// The files of the history of a store, of its copy on another machine, and of others. Items are numbered from 1.
#[derive(Clone, Debug)]
pub(super) struct FileHistory {
    pub(super) encrypted: bool,
    /// Closed with 10 items, then with 20.
    pub(super) ten: StoreFiles,
    pub(super) twenty: StoreFiles,
    /// Open between those two, with 15 items.
    pub(super) fifteen: StoreFiles,
    /// Closed with 30 items, and open before that with 25.
    pub(super) thirty: StoreFiles,
    pub(super) twenty_five: StoreFiles,
    /// Killed with 30 items, and open before that with 25, of which the backup was made.
    pub(super) killed: StoreFiles,
    pub(super) before_kill: StoreFiles,
    pub(super) backup: StoreFiles,
    /// The store with 20 items, to which another machine added 10: open and closed.
    pub(super) twin_open: StoreFiles,
    pub(super) twin: StoreFiles,
    /// Another store with 25 items, of which 5 are in the log; and closed.
    pub(super) other_open: StoreFiles,
    pub(super) other: StoreFiles,
    /// The store of another program, with a log.
    pub(super) stranger: StoreFiles,
}

/// A store under construction.
struct Building<'a> {
    program: &'a WorkerProgram,
    store: PathBuf,
    encrypted: bool,
}

impl Building<'_> {
    /// Opens the store and commits.
    fn commit(&self, author: &str, numbers: std::ops::RangeInclusive<u64>) -> Result<OrderedProcess, String> {
        let mut worker = OrderedProcess::start(self.program, &self.store, author, self.encrypted, "write")?;
        worker.must("open")?;
        worker.must(&format!("commit {} {}", numbers.start(), numbers.end() + 1))?;
        Ok(worker)
    }

    fn read(&self) -> StoreFiles {
        StoreFiles::read(&self.store)
    }

    /// Closes the store.
    fn close(&self, worker: OrderedProcess) -> StoreFiles {
        worker.finish();
        self.read()
    }
}

impl FileHistory {
    /// Makes the files.
    pub(super) fn make(program: &WorkerProgram, encrypted: bool) -> Result<Self, String> {
        let scratch = ScratchFolder::new().map_err(|error| error.to_string())?;
        let building = Building { program, store: scratch.path().join(STORE), encrypted };
        let ten = building.close(building.commit("mine", 1..=10)?);
        let mut worker = building.commit("mine", 11..=15)?;
        let fifteen = building.read();
        worker.must("commit 16 21")?;
        let twenty = building.close(worker);

        let mut worker = building.commit("mine", 21..=25)?;
        let twenty_five = building.read();
        worker.must("commit 26 31")?;
        let thirty = building.close(worker);

        twenty.lay(&building.store)?;
        let worker = building.commit("twin", 21..=30)?;
        let twin_open = building.read();
        let twin = building.close(worker);

        twenty.lay(&building.store)?;
        let mut worker = building.commit("mine", 21..=25)?;
        let copy = scratch.path().join("backup.db");
        worker.must(&format!("backup {}", copy.display()))?;
        let before_kill = building.read();
        worker.must("commit 26 31")?;
        worker.kill();
        let killed = building.read();
        let backup = StoreFiles::read(&copy);

        remove_store(&building.store);
        building.close(building.commit("other", 1..=20)?);
        let worker = building.commit("other", 21..=25)?;
        let other_open = building.read();
        let other = building.close(worker);
        remove_store(&building.store);
        let stranger = stranger(&building.store).map_err(|error| error.to_string())?;
        Ok(Self {
            encrypted,
            ten,
            twenty,
            fifteen,
            thirty,
            twenty_five,
            killed,
            before_kill,
            backup,
            twin_open,
            twin,
            other_open,
            other,
            stranger,
        })
    }
}

/// Makes the store of another program.
fn stranger(path: &Path) -> rusqlite::Result<StoreFiles> {
    let conn = Connection::open(path)?;
    conn.execute_batch(sql::STRANGER)?;
    let files = StoreFiles::read(path);
    drop(conn);
    remove_store(path);
    Ok(files)
}

/// Brings a store to its state of an earlier moment without the library: a log that holds all pages of the earlier file
/// is laid beside it, and SQLite copies that log into it.
pub(super) fn replay_older(store: &Path, older: &StoreFiles) -> Result<(), String> {
    let failed = |error: rusqlite::Error| error.to_string();
    let copy = store.with_file_name("older.db");
    older.lay(&copy)?;
    let conn = Connection::open(&copy).map_err(failed)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map_err(failed)?;
    conn.execute_batch(sql::REWRITE).map_err(failed)?;
    drop(conn);
    let now = StoreFiles::read(store).with(AccidentTarget::Log, &StoreFiles::read(&copy));
    now.lay(store)?;
    remove_store(&copy);
    let conn = Connection::open(store).map_err(failed)?;
    conn.execute_batch(sql::COPY_LOG).map_err(failed)?;
    drop(conn);
    remove_beside(store);
    Ok(())
}

fn remove_beside(store: &Path) {
    for target in [AccidentTarget::Log, AccidentTarget::Memory] {
        // SQLite has removed them, unless it was kept from that.
        _ = std::fs::remove_file(target.of(store));
    }
}
