//! The log of a workload: the operations that reached the disk, between the begins and the ends of its calls.
//!
//! The order in the log is that of the effects: an operation is made while the log is held. A log is in memory, or in a
//! file that several processes append to.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

/// The store's file, or one beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreFile {
    Main,
    Wal,
    Journal,
}

/// Number of the variants of [`StoreFile`].
pub(crate) const NAMES: usize = StoreFile::Journal as usize + 1;

/// The name of the store's file in every folder.
pub(crate) const STORE: &str = "n.db";

impl StoreFile {
    /// All of them.
    pub(crate) const ALL: [Self; NAMES] = [Self::Main, Self::Wal, Self::Journal];

    /// Returns the name of a path, `None` for a file of another kind.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        Self::ALL.into_iter().find(|name| path.file_name().is_some_and(|file| file == name.file()))
    }

    /// Returns the file name.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Self::Main => STORE,
            Self::Wal => "n.db-wal",
            Self::Journal => "n.db-journal",
        }
    }
}

/// An operation on the disk, or the begin or the end of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DiskOp {
    /// A file was opened that another layer had made: it is durable with its size of zeros.
    Found { name: StoreFile, ino: u64, size: u64 },
    /// A file was made.
    Create { name: StoreFile, ino: u64 },
    /// Bytes were written.
    Write { ino: u64, offset: u64, bytes: Arc<[u8]> },
    /// The size was set.
    Truncate { ino: u64, size: u64 },
    /// A sync, of the folder as well if `folder` says so.
    Sync { ino: u64, folder: bool },
    /// A sync that failed.
    SyncFailed { ino: u64 },
    /// A name was removed.
    Delete { name: StoreFile, syncs_folder: bool },
    /// A call of the workload began.
    Begin { process: u8, fact: u32 },
    /// A call of the workload was acknowledged.
    Ack { process: u8, fact: u32 },
    /// A call of the workload failed.
    Fail { process: u8, fact: u32 },
}

/// A log that a workload is recorded in.
#[derive(Debug)]
pub(crate) struct DiskLog {
    sink: Mutex<Sink>,
}

#[derive(Debug)]
enum Sink {
    Memory(Vec<DiskOp>),
    Shared(File),
}

impl DiskLog {
    /// Makes a log in memory.
    pub(crate) fn memory() -> Self {
        Self { sink: Mutex::new(Sink::Memory(Vec::new())) }
    }

    /// Opens a log in a file that other processes append to as well.
    pub(crate) fn shared(path: &Path) -> io::Result<Self> {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { sink: Mutex::new(Sink::Shared(file)) })
    }

    /// Runs a step that pushes its operations, while no other thread or process does.
    pub(crate) fn record<T>(&self, step: impl FnOnce(&mut Vec<DiskOp>) -> T) -> T {
        match &mut *self.sink.lock() {
            Sink::Memory(ops) => step(ops),
            Sink::Shared(file) => {
                file.lock().expect("the log can be locked");
                let mut ops = Vec::new();
                let result = step(&mut ops);
                let mut bytes = Vec::new();
                ops.iter().for_each(|op| encode(op, &mut bytes));
                file.write_all(&bytes).expect("the log can be written");
                file.unlock().expect("the log can be unlocked");
                result
            }
        }
    }

    /// Takes the operations so far from a log in memory.
    pub(crate) fn take(&self) -> Vec<DiskOp> {
        match &mut *self.sink.lock() {
            Sink::Memory(ops) => std::mem::take(ops),
            Sink::Shared(_) => Vec::new(),
        }
    }
}

fn encode(op: &DiskOp, out: &mut Vec<u8>) {
    let mut put = |tag: u8, numbers: [u64; 3], bytes: &[u8]| {
        out.push(tag);
        numbers.iter().for_each(|number| out.extend(number.to_le_bytes()));
        out.extend((bytes.len() as u64).to_le_bytes());
        out.extend(bytes);
    };
    match op {
        DiskOp::Found { name, ino, size } => put(0, [*name as u64, *ino, *size], &[]),
        DiskOp::Create { name, ino } => put(1, [*name as u64, *ino, 0], &[]),
        DiskOp::Write { ino, offset, bytes } => put(2, [*ino, *offset, 0], bytes),
        DiskOp::Truncate { ino, size } => put(3, [*ino, *size, 0], &[]),
        DiskOp::Sync { ino, folder } => put(4, [*ino, u64::from(*folder), 0], &[]),
        DiskOp::SyncFailed { ino } => put(5, [*ino, 0, 0], &[]),
        DiskOp::Delete { name, syncs_folder } => put(6, [*name as u64, u64::from(*syncs_folder), 0], &[]),
        DiskOp::Begin { process, fact } => put(7, [u64::from(*process), u64::from(*fact), 0], &[]),
        DiskOp::Ack { process, fact } => put(8, [u64::from(*process), u64::from(*fact), 0], &[]),
        DiskOp::Fail { process, fact } => put(9, [u64::from(*process), u64::from(*fact), 0], &[]),
    }
}

/// Reads a log that processes have appended to.
pub(crate) fn read_shared(path: &Path) -> io::Result<Vec<DiskOp>> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    let mut rest = &bytes[..];
    let mut ops = Vec::new();
    while !rest.is_empty() {
        ops.push(decode(&mut rest).ok_or(io::ErrorKind::InvalidData)?);
    }
    Ok(ops)
}

fn decode(rest: &mut &[u8]) -> Option<DiskOp> {
    let mut take = |count: usize| {
        let (taken, after) = rest.split_at_checked(count)?;
        *rest = after;
        Some(taken)
    };
    let tag = *take(1)?.first()?;
    let mut number = || Some(u64::from_le_bytes(take(8)?.try_into().ok()?));
    let (a, b, c, length) = (number()?, number()?, number()?, number()?);
    let bytes = take(usize::try_from(length).ok()?)?;
    let name = || StoreFile::ALL.get(usize::try_from(a).ok()?).copied();
    let fact = || Some((u8::try_from(a).ok()?, u32::try_from(b).ok()?));
    Some(match tag {
        0 => DiskOp::Found { name: name()?, ino: b, size: c },
        1 => DiskOp::Create { name: name()?, ino: b },
        2 => DiskOp::Write { ino: a, offset: b, bytes: bytes.into() },
        3 => DiskOp::Truncate { ino: a, size: b },
        4 => DiskOp::Sync { ino: a, folder: b != 0 },
        5 => DiskOp::SyncFailed { ino: a },
        6 => DiskOp::Delete { name: name()?, syncs_folder: b != 0 },
        7 => fact().map(|(process, fact)| DiskOp::Begin { process, fact })?,
        8 => fact().map(|(process, fact)| DiskOp::Ack { process, fact })?,
        9 => fact().map(|(process, fact)| DiskOp::Fail { process, fact })?,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_read_as_they_were_written() {
        let ops = [
            DiskOp::Found { name: StoreFile::Main, ino: 7, size: 3 },
            DiskOp::Create { name: StoreFile::Wal, ino: 8 },
            DiskOp::Write { ino: 8, offset: 32, bytes: [1, 2, 3][..].into() },
            DiskOp::Truncate { ino: 8, size: 0 },
            DiskOp::Sync { ino: 8, folder: true },
            DiskOp::SyncFailed { ino: 7 },
            DiskOp::Delete { name: StoreFile::Journal, syncs_folder: false },
            DiskOp::Begin { process: 1, fact: 4 },
            DiskOp::Ack { process: 1, fact: 4 },
            DiskOp::Fail { process: 1, fact: 5 },
        ];
        let mut bytes = Vec::new();
        ops.iter().for_each(|op| encode(op, &mut bytes));
        let mut rest = &bytes[..];
        let read: Vec<DiskOp> = std::iter::from_fn(|| decode(&mut rest)).collect();
        assert_eq!(read, ops);
        assert!(decode(&mut &bytes[..bytes.len() - 1][..9]).is_none());
    }
}
