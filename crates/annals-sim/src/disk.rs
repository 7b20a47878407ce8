//! The model of a disk: what may be on it after a power cut.
//!
//! Synced data survives whole. Of each unsynced write, nothing, everything or any sectors of 512 bytes survive; so do
//! changes of the size and of names. A sync of the folder makes all names durable. After a sync that failed, the writes
//! before it are never synced again: each is on the disk or not, and later syncs do not change that.

use std::collections::HashMap;
use std::sync::Arc;

use crate::log::{DiskOp, NAMES, StoreFile};
use crate::rng::Rng;

/// Bytes that a disk writes whole or not at all.
const SECTOR: u64 = 512;

/// The share of the unsynced operations that survives a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutMode {
    /// None of them.
    Nothing,
    /// All of them: the process ended, and the power stayed on.
    Everything,
    /// A random subset of whole writes.
    Subset,
    /// Random sectors, each with this probability in percent.
    Torn(usize),
    /// All writes up to a random one.
    Prefix,
}

impl CutMode {
    /// All of them; the cuts take them in turn.
    pub(crate) const ALL: [Self; 7] =
        [Self::Nothing, Self::Everything, Self::Subset, Self::Torn(50), Self::Torn(10), Self::Torn(90), Self::Prefix];
}

#[derive(Clone, Debug)]
enum DiskChange {
    Write { offset: u64, bytes: Arc<[u8]> },
    Truncate(u64),
}

#[derive(Clone, Debug)]
struct Pending {
    change: DiskChange,
    /// Set by a sync that failed: whether the change is on the disk.
    fate: Option<bool>,
}

#[derive(Clone, Debug, Default)]
struct Inode {
    durable: Vec<u8>,
    live: Vec<u8>,
    pending: Vec<Pending>,
}

/// The contents of the files by [`StoreFile`], `None` for a name that is not there.
pub(crate) type Image = [Option<Vec<u8>>; NAMES];

/// A disk after some operations of a log.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    inodes: Vec<Inode>,
    by_number: HashMap<u64, usize>,
    names: [Option<usize>; NAMES],
    durable_names: [Option<usize>; NAMES],
    /// Changes of names that no sync of the folder has made durable.
    pending_names: Vec<(StoreFile, Option<usize>)>,
    rng: Rng,
}

impl Disk {
    /// Makes an empty disk. The seed decides the fate of writes before a failed sync.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            inodes: Vec::new(),
            by_number: HashMap::new(),
            names: [None; NAMES],
            durable_names: [None; NAMES],
            pending_names: Vec::new(),
            rng: Rng::stream(seed, 0xd15c),
        }
    }

    /// Makes a disk with durable files.
    pub(crate) fn with(image: &Image, seed: u64) -> Self {
        let mut disk = Self::new(seed);
        for (name, content) in StoreFile::ALL.into_iter().zip(image) {
            let Some(content) = content else { continue };
            disk.names[name as usize] = Some(disk.inodes.len());
            disk.inodes.push(Inode { durable: content.clone(), live: content.clone(), pending: Vec::new() });
        }
        disk.durable_names = disk.names;
        disk
    }

    /// Makes the next operation of the log.
    pub(crate) fn apply(&mut self, op: &DiskOp) {
        match op {
            DiskOp::Found { name, ino, size } => self.find(*name, *ino, *size),
            DiskOp::Create { name, ino } => {
                let inode = self.add(*ino);
                self.name(*name, Some(inode));
            }
            DiskOp::Write { ino, offset, bytes } => {
                self.change(*ino, DiskChange::Write { offset: *offset, bytes: Arc::clone(bytes) });
            }
            DiskOp::Truncate { ino, size } => self.change(*ino, DiskChange::Truncate(*size)),
            DiskOp::Sync { ino, folder } => self.sync(*ino, *folder),
            DiskOp::SyncFailed { ino } => {
                let pending = self.by_number.get(ino).map(|inode| &mut self.inodes[*inode].pending);
                for pending in pending.into_iter().flatten().filter(|pending| pending.fate.is_none()) {
                    pending.fate = Some(self.rng.chance(50));
                }
            }
            DiskOp::Delete { name, syncs_folder } => {
                self.name(*name, None);
                if *syncs_folder {
                    self.sync_names();
                }
            }
            DiskOp::Begin { .. } | DiskOp::Ack { .. } | DiskOp::Fail { .. } => {}
        }
    }

    fn add(&mut self, ino: u64) -> usize {
        self.by_number.insert(ino, self.inodes.len());
        self.inodes.push(Inode::default());
        self.inodes.len() - 1
    }

    fn find(&mut self, name: StoreFile, ino: u64, size: u64) {
        if let Some(known) = self.names[name as usize] {
            // A disk that was made with files learns their numbers when they are opened.
            self.by_number.insert(ino, known);
            return;
        }
        let inode = self.add(ino);
        let zeros = vec![0; usize::try_from(size).unwrap_or(0)];
        self.inodes[inode] = Inode { durable: zeros.clone(), live: zeros, pending: Vec::new() };
        self.names[name as usize] = Some(inode);
        self.durable_names[name as usize] = Some(inode);
    }

    fn name(&mut self, name: StoreFile, inode: Option<usize>) {
        self.names[name as usize] = inode;
        self.pending_names.push((name, inode));
    }

    fn change(&mut self, ino: u64, change: DiskChange) {
        let Some(inode) = self.by_number.get(&ino).map(|inode| &mut self.inodes[*inode]) else { return };
        make(&mut inode.live, &change);
        inode.pending.push(Pending { change, fate: None });
    }

    fn sync(&mut self, ino: u64, folder: bool) {
        if let Some(inode) = self.by_number.get(&ino).map(|inode| &mut self.inodes[*inode]) {
            for pending in inode.pending.drain(..).filter(|pending| pending.fate != Some(false)) {
                make(&mut inode.durable, &pending.change);
            }
        }
        if folder {
            self.sync_names();
        }
    }

    fn sync_names(&mut self) {
        self.durable_names = self.names;
        self.pending_names.clear();
    }

    /// Returns the files after a power cut.
    pub(crate) fn cut(&self, mode: CutMode, rng: &mut Rng) -> Image {
        if mode == CutMode::Everything {
            return self.names.map(|inode| inode.map(|inode| self.inodes[inode].live.clone()));
        }
        let mut names = self.durable_names;
        let some = mode != CutMode::Nothing;
        for (name, inode) in &self.pending_names {
            if some && rng.chance(50) {
                names[*name as usize] = *inode;
            }
        }
        names.map(|inode| inode.map(|inode| self.inodes[inode].after_cut(mode, rng)))
    }
}

impl Inode {
    fn after_cut(&self, mode: CutMode, rng: &mut Rng) -> Vec<u8> {
        let mut content = self.durable.clone();
        let end = match mode {
            CutMode::Prefix => rng.below(self.pending.len() + 1),
            _ => self.pending.len(),
        };
        for pending in &self.pending[..end] {
            match (mode, pending.fate) {
                (_, Some(false)) => {}
                (_, Some(true)) | (CutMode::Prefix | CutMode::Everything, None) => make(&mut content, &pending.change),
                (CutMode::Nothing, None) => {}
                (CutMode::Subset, None) => {
                    if rng.chance(50) {
                        make(&mut content, &pending.change);
                    }
                }
                (CutMode::Torn(percent), None) => tear(&mut content, &pending.change, percent, rng),
            }
        }
        content
    }
}

fn make(content: &mut Vec<u8>, change: &DiskChange) {
    match change {
        DiskChange::Truncate(size) => content.resize(*size as usize, 0),
        DiskChange::Write { offset, bytes } => {
            let (begin, end) = (*offset as usize, *offset as usize + bytes.len());
            if content.len() < end {
                content.resize(end, 0);
            }
            content[begin..end].copy_from_slice(bytes);
        }
    }
}

/// Makes some sectors of a write. The file may have its new size although none of them is there.
fn tear(content: &mut Vec<u8>, change: &DiskChange, percent: usize, rng: &mut Rng) {
    let DiskChange::Write { offset, bytes } = change else {
        if rng.chance(percent) {
            make(content, change);
        }
        return;
    };
    let end = offset + bytes.len() as u64;
    if rng.chance(percent) && (content.len() as u64) < end {
        content.resize(end as usize, 0);
    }
    let mut at = *offset;
    while at < end {
        let next = ((at / SECTOR + 1) * SECTOR).min(end);
        if rng.chance(percent) {
            let part = bytes[(at - offset) as usize..(next - offset) as usize].into();
            make(content, &DiskChange::Write { offset: at, bytes: part });
        }
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(ino: u64, offset: u64, bytes: &[u8]) -> DiskOp {
        DiskOp::Write { ino, offset, bytes: bytes.into() }
    }

    fn disk(ops: &[DiskOp]) -> Disk {
        let mut disk = Disk::new(1);
        ops.iter().for_each(|op| disk.apply(op));
        disk
    }

    const MAIN: DiskOp = DiskOp::Found { name: StoreFile::Main, ino: 1, size: 0 };

    #[test]
    fn synced_writes_survive_and_others_may_not() {
        let disk = disk(&[MAIN, write(1, 0, b"aa"), DiskOp::Sync { ino: 1, folder: false }, write(1, 1, b"bb")]);
        let mut rng = Rng::new(1);
        assert_eq!(disk.cut(CutMode::Nothing, &mut rng)[0].as_deref(), Some(&b"aa"[..]));
        assert_eq!(disk.cut(CutMode::Everything, &mut rng)[0].as_deref(), Some(&b"abb"[..]));
        let mut seen: Vec<Vec<u8>> = (0..50).filter_map(|_| disk.cut(CutMode::Torn(50), &mut rng)[0].clone()).collect();
        seen.sort();
        seen.dedup();
        // The size may be new with none of the bytes.
        assert_eq!(seen, [b"aa".to_vec(), b"aa\0".to_vec(), b"abb".to_vec()]);
    }

    #[test]
    fn writes_are_torn_at_sectors() {
        let disk = disk(&[MAIN, write(1, 500, &[1; 600])]);
        let mut rng = Rng::new(2);
        for _ in 0..50 {
            let content = disk.cut(CutMode::Torn(50), &mut rng)[0].clone().unwrap_or_default();
            for sector in [500..512, 512..1024, 1024..1100] {
                let bytes = content.get(sector).unwrap_or(&[]);
                assert!(bytes.windows(2).all(|pair| pair[0] == pair[1]), "a sector is whole");
            }
        }
    }

    #[test]
    fn names_need_a_sync_of_the_folder() {
        let create = DiskOp::Create { name: StoreFile::Wal, ino: 2 };
        let data = [MAIN, create, write(2, 0, b"w")];
        let mut rng = Rng::new(3);
        assert_eq!(disk(&data).cut(CutMode::Nothing, &mut rng)[1], None);
        let found = (0..50).filter(|_| disk(&data).cut(CutMode::Subset, &mut rng)[1].is_some()).count();
        assert!((10..40).contains(&found), "{found}");
        let mut synced = disk(&data);
        synced.apply(&DiskOp::Sync { ino: 2, folder: true });
        synced.apply(&DiskOp::Delete { name: StoreFile::Wal, syncs_folder: false });
        assert_eq!(synced.cut(CutMode::Nothing, &mut rng)[1].as_deref(), Some(&b"w"[..]), "the name comes back");
        synced.apply(&DiskOp::Delete { name: StoreFile::Journal, syncs_folder: true });
        assert_eq!(synced.cut(CutMode::Nothing, &mut rng)[1], None, "one sync of the folder is for all names");
    }

    #[test]
    fn writes_before_a_failed_sync_are_not_synced_later() {
        let (mut lost, mut survived) = (0, 0);
        for seed in 0..50 {
            let mut disk = Disk::new(seed);
            for op in [MAIN, write(1, 0, b"a"), DiskOp::SyncFailed { ino: 1 }, write(1, 1, b"b")] {
                disk.apply(&op);
            }
            disk.apply(&DiskOp::Sync { ino: 1, folder: false });
            match disk.cut(CutMode::Nothing, &mut Rng::new(1))[0].as_deref() {
                Some(b"\0b") => lost += 1,
                Some(b"ab") => survived += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(lost > 10 && survived > 10, "{lost} lost, {survived} survived");
    }
}
