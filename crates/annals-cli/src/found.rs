//! The histories on this machine: the places of each program that exist, and what stands in them.
//!
//! A group is read as one: its sessions name only each other. *Absent:* reading the histories, see `histories`.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use annals_import::{PlaceBase, SourceKind, SourcePlace};

/// Files and folders that are imported together.
#[derive(Clone, Debug)]
pub(crate) struct HistoryGroup {
    pub(crate) source: Option<SourceKind>,
    pub(crate) paths: Vec<PathBuf>,
}

/// The content of a group at a time: the number of files, their bytes, and a hash of their names, lengths and times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupStamp {
    pub(crate) files: usize,
    pub(crate) bytes: u64,
    hash: u64,
}

impl HistoryGroup {
    /// Looks at the files of the group.
    pub(crate) fn stamp(&self) -> GroupStamp {
        let (mut stamp, mut hasher) = (GroupStamp::default(), DefaultHasher::new());
        self.paths.iter().for_each(|path| add(path, &mut stamp, &mut hasher));
        stamp.hash = hasher.finish();
        stamp
    }
}

fn add(path: &Path, stamp: &mut GroupStamp, hasher: &mut DefaultHasher) {
    // A file that was removed since the folder was listed counts as absent.
    let Ok(metadata) = fs::symlink_metadata(path) else { return };
    if metadata.is_dir() {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        entries.sort();
        entries.iter().for_each(|entry| add(entry, stamp, hasher));
        return;
    }
    stamp.files += 1;
    stamp.bytes += metadata.len();
    (path, metadata.len(), metadata.modified().ok()).hash(hasher);
    // The log of a database that is a place itself.
    for ending in ["-wal", "-journal"] {
        let mut beside = path.as_os_str().to_owned();
        beside.push(ending);
        let beside = fs::metadata(beside).ok();
        beside.map(|metadata| (metadata.len(), metadata.modified().ok())).hash(hasher);
    }
}

/// Returns the groups on this machine, of one program or of all.
pub(crate) fn groups(only: Option<SourceKind>) -> Vec<HistoryGroup> {
    let kinds = SourceKind::ALL.into_iter().filter(|kind| only.is_none_or(|only| only == *kind));
    kinds.flat_map(groups_of).collect()
}

fn groups_of(kind: SourceKind) -> Vec<HistoryGroup> {
    let mut paths: Vec<PathBuf> = kind.facts().places.iter().flat_map(resolved).collect();
    paths.sort();
    paths.dedup_by(|a, b| same(a, b));
    let group = |paths| HistoryGroup { source: Some(kind), paths };
    if !kind.facts().has_own_folders {
        return if paths.is_empty() { Vec::new() } else { vec![group(paths)] };
    }
    // Each entry of a place is a group of its own.
    let entries = paths.into_iter().flat_map(|path| {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        entries.sort();
        entries
    });
    entries.map(|path| group(vec![path])).collect()
}

fn same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Returns the existing paths of a place.
fn resolved(place: &SourcePlace) -> Vec<PathBuf> {
    let mut paths = folders(place.base);
    for part in place.path.split('/').filter(|part| !part.is_empty()) {
        paths = match part {
            "*" => paths
                .iter()
                .flat_map(|path| fs::read_dir(path).into_iter().flatten().flatten())
                .map(|of| of.path())
                .collect(),
            part => paths.into_iter().map(|path| path.join(part)).collect(),
        };
    }
    paths.retain(|path| path.exists());
    paths
}

/// Returns the folders of this machine for which a base stands.
#[allow(clippy::disallowed_methods, reason = "programs put their files where the environment says")]
fn folders(base: PlaceBase) -> Vec<PathBuf> {
    let named = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || env::home_dir().filter(|home| !home.as_os_str().is_empty());
    let below = |path: &str| home().map(|home| home.join(path));
    let is = |system: &str| env::consts::OS == system;
    let found = match base {
        PlaceBase::Home => home(),
        PlaceBase::Config if is("macos") => below("Library/Application Support"),
        PlaceBase::Config if is("windows") => named("APPDATA"),
        PlaceBase::Config => named("XDG_CONFIG_HOME").or_else(|| below(".config")),
        PlaceBase::Data if is("macos") => below("Library/Application Support"),
        PlaceBase::Data if is("windows") => named("LOCALAPPDATA"),
        PlaceBase::Data => named("XDG_DATA_HOME").or_else(|| below(".local/share")),
        PlaceBase::Working => Some(PathBuf::from(".")),
        PlaceBase::Variable(name) => {
            let value = named(name).unwrap_or_default();
            let value = value.to_str().unwrap_or("").split(',').map(str::trim).filter(|part| !part.is_empty());
            return value.map(PathBuf::from).collect();
        }
        _ => None,
    };
    found.into_iter().collect()
}

/// Returns a path with `~` for the home folder.
pub(crate) fn short(path: &Path) -> String {
    let home = env::home_dir().filter(|home| home.as_os_str() != OsStr::new(""));
    match home.and_then(|home| path.strip_prefix(home).ok().map(Path::to_owned)) {
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    }
}
