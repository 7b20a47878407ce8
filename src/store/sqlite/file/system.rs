//! Everything that differs between operating systems: the identity, the protection and the change of a file.
//!
//! Unix: a file is its device and inode, and owners and modes are compared. Windows: an open file can be neither
//! removed nor replaced, because SQLite opens it without `FILE_SHARE_DELETE`, and access follows the lists of its
//! folder, so there is nothing to compare. Locks are SQLite's alone (`fcntl` on Unix, `LockFileEx` on Windows), and the
//! store renames nothing. *Absent:* meaning: callers decide what to refuse.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// The identity of a file under all its paths.
pub(crate) type FileId = (u64, u64);

/// The state of a file that is read without locks: a write changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    id: Option<FileId>,
    bytes: u64,
    modified: Option<SystemTime>,
    /// Seconds and nanoseconds of the last change of the inode, which no program can set back.
    changed: (i64, i64),
}

impl Stamp {
    /// Returns the stamp of a file.
    pub(crate) fn of(meta: &Metadata) -> Self {
        Self { id: id(meta), bytes: meta.len(), modified: meta.modified().ok(), changed: changed(meta) }
    }
}

/// The owner and the permissions that the files beside a store are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protection {
    /// `None` if the operating system does not tell it.
    owner: Option<u32>,
    group: Option<u32>,
    mode: u32,
}

impl Protection {
    /// The protection of a file that this process makes: its owner alone may read and write it.
    pub(crate) fn of_new() -> Self {
        Self { owner: effective_user(), group: None, mode: 0o600 }
    }
}

#[cfg(unix)]
mod unix {
    use super::*;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};

    /// Returns the identity of a file.
    pub(crate) fn id(meta: &Metadata) -> Option<FileId> {
        Some((meta.dev(), meta.ino()))
    }

    /// Returns the number of names of a file.
    pub(crate) fn links(meta: &Metadata) -> u64 {
        meta.nlink()
    }

    pub(crate) fn changed(meta: &Metadata) -> (i64, i64) {
        (meta.ctime(), meta.ctime_nsec())
    }

    /// Opens a file for reading. A FIFO in its place does not block, and a symbolic link is not followed.
    pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
        fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path)
    }

    /// Fills a buffer from a place of a file.
    pub(crate) fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
    }

    /// Makes a folder that only its owner can read and write.
    pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
        fs::DirBuilder::new().mode(0o700).create(path)
    }

    /// Makes a file that only its owner can read and write.
    pub(crate) fn create_new(path: &Path) -> io::Result<File> {
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
    }

    impl Protection {
        /// Returns the protection of a file.
        pub(crate) fn of(meta: &Metadata) -> Self {
            Self { owner: Some(meta.uid()), group: Some(meta.gid()), mode: meta.mode() & 0o777 }
        }

        /// Returns whether a file beside the store belongs to somebody who may write to the store anyway.
        pub(crate) fn trusts_owner_of(self, beside: &Metadata) -> bool {
            let owner = Some(beside.uid());
            let known = [self.owner, effective_user(), Some(0)];
            let shares_group = self.mode & 0o020 != 0 && self.group == Some(beside.gid());
            self.owner.is_none() || known.contains(&owner) || self.mode & 0o002 != 0 || shares_group
        }

        /// Returns the mode that a looser file beside the store should have; `None` if it is as strict as the store.
        pub(crate) fn stricter_mode(self, beside: &Metadata) -> Option<u32> {
            let mode = beside.mode() & 0o777;
            (mode & !self.mode != 0).then_some(mode & self.mode)
        }
    }

    /// Returns whether a file belongs to the user of this process; true if the operating system does not tell.
    pub(crate) fn is_own(meta: &Metadata) -> bool {
        effective_user().is_none_or(|user| user == meta.uid())
    }

    /// Returns the permissions of a file.
    pub(crate) fn mode(meta: &Metadata) -> u32 {
        meta.mode() & 0o777
    }

    /// Sets the permissions of a file.
    pub(crate) fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }

    /// Returns the user of this process, if the operating system tells it (Linux).
    pub(crate) fn effective_user() -> Option<u32> {
        fs::metadata("/proc/self").ok().map(|meta| meta.uid())
    }

    /// Returns whether this process has a descriptor of the file; true where descriptors are not listed.
    pub(crate) fn has_descriptor(file: FileId) -> bool {
        let Ok(listed) = fs::read_dir("/dev/fd") else { return true };
        listed.flatten().any(|entry| fs::metadata(entry.path()).is_ok_and(|meta| id(&meta) == Some(file)))
    }

    /// Makes the names in a folder survive a power cut.
    pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }
}

#[cfg(not(unix))]
mod other {
    use super::*;

    pub(crate) fn id(_meta: &Metadata) -> Option<FileId> {
        None
    }

    pub(crate) fn links(_meta: &Metadata) -> u64 {
        1
    }

    pub(crate) fn changed(_meta: &Metadata) -> (i64, i64) {
        (0, 0)
    }

    pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
        File::open(path)
    }

    pub(crate) fn read_at(mut file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
        use std::io::{Read as _, Seek as _, SeekFrom};
        let before = file.stream_position()?;
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(bytes)?;
        file.seek(SeekFrom::Start(before)).map(drop)
    }

    pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    pub(crate) fn create_new(path: &Path) -> io::Result<File> {
        File::create_new(path)
    }

    impl Protection {
        pub(crate) fn of(_meta: &Metadata) -> Self {
            Self::of_new()
        }

        pub(crate) fn trusts_owner_of(self, _beside: &Metadata) -> bool {
            true
        }

        pub(crate) fn stricter_mode(self, _beside: &Metadata) -> Option<u32> {
            None
        }
    }

    pub(crate) fn is_own(_meta: &Metadata) -> bool {
        true
    }

    pub(crate) fn mode(_meta: &Metadata) -> u32 {
        0o600
    }

    pub(crate) fn set_mode(_path: &Path, _mode: u32) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn effective_user() -> Option<u32> {
        None
    }

    /// Locks belong to a descriptor here, so closing another one drops none.
    pub(crate) fn has_descriptor(_file: FileId) -> bool {
        false
    }

    pub(crate) fn sync_folder(_folder: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(not(unix))]
use other::{changed, effective_user};
#[cfg(not(unix))]
pub(crate) use other::{
    create_folder, create_new, has_descriptor, id, is_own, links, mode, open_to_read, read_at, set_mode, sync_folder,
};
#[cfg(unix)]
use unix::{changed, effective_user};
#[cfg(unix)]
pub(crate) use unix::{
    create_folder, create_new, has_descriptor, id, is_own, links, mode, open_to_read, read_at, set_mode, sync_folder,
};

/// File systems whose files may be open on several machines: these share neither memory nor, on many of them, locks.
const NETWORK_FILE_SYSTEMS: [&str; 26] = [
    "9p",
    "acfs",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "coda",
    "davfs",
    "fuse.ceph",
    "fuse.davfs",
    "fuse.gcsfuse",
    "fuse.glusterfs",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.sshfs",
    "gfs2",
    "gpfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "ocfs2",
    "pvfs2",
    "smb2",
    "smb3",
    "smbfs",
];

/// Returns the type of the file system that an absolute path is on; `None` where the operating system does not list its
/// mounts as Linux does.
pub(crate) fn file_system(path: &Path) -> Option<String> {
    file_system_in(&fs::read_to_string("/proc/self/mountinfo").ok()?, path)
}

/// Returns whether files on a file system of this type may be open on several machines.
pub(crate) fn is_network_file_system(kind: &str) -> bool {
    NETWORK_FILE_SYSTEMS.contains(&kind)
}

/// Finds the mount of a path in lines as `36 35 98:0 / /mnt/a rw,noatime master:1 - ext4 /dev/root rw`.
fn file_system_in(mounts: &str, path: &Path) -> Option<String> {
    let mount = |line: &str| -> Option<(usize, String)> {
        let (place, kind) = line.split_once(" - ")?;
        let point = unescaped(place.split(' ').nth(4)?);
        let kind = kind.split(' ').next()?.to_owned();
        path.starts_with(&point).then_some((point.len(), kind))
    };
    // Of two mounts on one folder, the later one is on top.
    mounts.lines().filter_map(mount).max_by_key(|(length, _)| *length).map(|(_, kind)| kind)
}

/// Decodes the octal escapes of a path in a list of mounts.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_found_by_their_mounts() {
        let mounts = "22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
                      30 22 0:40 / /srv/shared\\040data rw shared:7 - nfs4 host:/export rw\n\
                      31 22 0:41 / /srv/shared\\040data/scratch rw - tmpfs tmpfs rw\n\
                      32 22 0:42 / /mnt/me/remote rw - fuse.sshfs host: rw\n\
                      33 22 0:43 / /mnt/me/vault rw - fuse.gocryptfs vault rw\n";
        for (path, kind, is_network) in [
            ("/srv/shared data/a.db", "nfs4", true),
            ("/mnt/me/remote/a.db", "fuse.sshfs", true),
            ("/a.db", "ext4", false),
            ("/srv/shared data/scratch/a.db", "tmpfs", false),
            ("/srv/shared database/a.db", "ext4", false),
            ("/mnt/me/vault/a.db", "fuse.gocryptfs", false),
        ] {
            assert_eq!(file_system_in(mounts, Path::new(path)).as_deref(), Some(kind), "{path}");
            assert_eq!(is_network_file_system(kind), is_network, "{kind}");
        }
        assert_eq!(file_system_in("", Path::new("/a.db")), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_file_system_of_a_path_is_read_from_the_mounts_of_the_process() {
        assert_eq!(file_system(Path::new("/proc/self/status")).as_deref(), Some("proc"));
    }

    #[test]
    fn the_list_of_network_file_systems_is_sorted() {
        assert!(NETWORK_FILE_SYSTEMS.is_sorted());
    }

    /// A folder with a file of this mode, and what the operating system says of the file.
    #[cfg(unix)]
    fn file_of(bits: u32) -> (tempfile::TempDir, Metadata) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "x").unwrap();
        set_mode(&path, bits).unwrap();
        let meta = fs::metadata(&path).unwrap();
        (folder, meta)
    }

    /// A file that another user owns, if this process may give files away.
    #[cfg(unix)]
    fn foreign_file(bits: u32) -> Option<(tempfile::TempDir, Metadata)> {
        let (folder, _) = file_of(bits);
        let path = folder.path().join("a");
        std::os::unix::fs::chown(&path, Some(65_534), Some(65_533)).ok()?;
        let meta = fs::metadata(&path).unwrap();
        Some((folder, meta))
    }

    #[cfg(unix)]
    #[test]
    fn a_file_tells_its_mode_its_names_its_owner_and_its_last_change() {
        use std::os::unix::fs::MetadataExt;
        let (folder, meta) = file_of(0o640);
        assert_eq!((mode(&meta), links(&meta), is_own(&meta)), (0o640, 1, true));
        let protection = Protection { owner: Some(meta.uid()), group: Some(meta.gid()), mode: 0o640 };
        assert_eq!(Protection::of(&meta), protection);
        assert_eq!(changed(&meta), (meta.ctime(), meta.ctime_nsec()));
        assert!(meta.ctime() > 1_000_000);
        fs::hard_link(folder.path().join("a"), folder.path().join("b")).unwrap();
        assert_eq!(links(&fs::metadata(folder.path().join("a")).unwrap()), 2);
        if cfg!(target_os = "linux") {
            assert_eq!(effective_user(), Some(meta.uid()), "a file belongs to the user who made it");
            assert_eq!(Protection::of_new(), Protection { owner: Some(meta.uid()), group: None, mode: 0o600 });
        }
        if let Some((_folder, meta)) = foreign_file(0o600) {
            assert!(!is_own(&meta));
        }
    }

    #[cfg(unix)]
    #[test]
    fn the_owner_of_a_file_is_trusted_who_may_write_to_the_store() {
        let store = |owner, group, mode| Protection { owner, group, mode };
        let (_folder, own) = file_of(0o600);
        assert!(store(Some(65_532), None, 0o600).trusts_owner_of(&own), "it is this user");
        let Some((_folder, foreign)) = foreign_file(0o600) else { return };
        for trusting in [
            store(Some(65_534), None, 0o600),
            store(None, None, 0o600),
            store(Some(65_532), Some(65_533), 0o620),
            store(Some(65_532), Some(65_531), 0o602),
            store(Some(65_532), None, 0o606),
        ] {
            assert!(trusting.trusts_owner_of(&foreign), "{trusting:?}");
        }
        for wary in [
            store(Some(65_532), Some(65_533), 0o600),
            store(Some(65_532), Some(65_533), 0o640),
            store(Some(65_532), Some(65_531), 0o620),
            store(Some(65_532), None, 0o660),
            store(Some(65_532), Some(65_533), 0o604),
        ] {
            assert!(!wary.trusts_owner_of(&foreign), "{wary:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_beside_the_store_gets_no_permission_that_the_store_does_not_have() {
        for (store, beside, stricter) in [
            (0o600, 0o600, None),
            (0o600, 0o400, None),
            (0o644, 0o640, None),
            (0o600, 0o644, Some(0o600)),
            (0o640, 0o666, Some(0o640)),
            (0o640, 0o604, Some(0o600)),
            (0o600, 0o620, Some(0o600)),
            (0o400, 0o600, Some(0o400)),
        ] {
            let protection = Protection { mode: store, ..Protection::of_new() };
            let (_folder, meta) = file_of(beside);
            assert_eq!(protection.stricter_mode(&meta), stricter, "{store:o}, {beside:o}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_is_gone_is_not_made_durable() {
        let folder = tempfile::tempdir().unwrap();
        sync_folder(folder.path()).unwrap();
        assert!(sync_folder(&folder.path().join("gone")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_descriptor_of_a_file_is_seen_while_it_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "x").unwrap();
        let id = id(&fs::metadata(&path).unwrap()).unwrap();
        assert!(!has_descriptor(id));
        let file = File::open(&path).unwrap();
        assert!(has_descriptor(id));
        drop(file);
        assert!(!has_descriptor(id));
    }
}
