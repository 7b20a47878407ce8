//! The files of a source: walking a folder, and giving each file to the program that recognises it.
//!
//! Invariant: nothing is written beside the files. Symbolic links to folders, and special files, are not followed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{ImportError, SourceFault};
use crate::output::{ReadOutput, SessionSink};
use crate::probe::{FileProbe, NotProbed, SourceFile};
use crate::sources::{HistorySource, SourceKind};

/// Reads the histories in a file or folder and gives them to a sink. Files are recognised by their content; with
/// `only`, a file of another program counts as `unrecognised_file`.
///
/// The source is not written to. Of a file of JSON lines one line is in memory, and of a source one session, beside the
/// main lines of sessions that were forked.
///
/// # Errors
/// [`ImportError::Io`] if the file or folder cannot be read; a file within the folder that cannot is counted as
/// `unreadable`. An error of the sink.
pub fn read_sessions(path: &Path, only: Option<SourceKind>, sink: &mut dyn SessionSink) -> Result<(), ImportError> {
    read_all(&[path], only, sink)
}

/// Reads the histories in several files and folders as those of one machine: titles in one place are those of sessions
/// in another. Of several places, files are named with their whole paths.
///
/// # Errors
/// As [`read_sessions`].
pub(crate) fn read_all(
    paths: &[&Path],
    only: Option<SourceKind>,
    sink: &mut dyn SessionSink,
) -> Result<(), ImportError> {
    let kinds = SourceKind::ALL.into_iter().filter(|kind| only.is_none_or(|only| only == *kind));
    let mut found = FoundFiles { readers: kinds.map(|kind| (kind, kind.reader())).collect(), ..FoundFiles::default() };
    for path in paths {
        let metadata = fs::metadata(path).map_err(|error| ImportError::io(*path, error))?;
        let root = |of: &Path| if paths.len() > 1 { PathBuf::new() } else { of.to_owned() };
        if metadata.is_dir() {
            sorted(path)?;
            found.folder(path, &root(path));
        } else {
            fs::File::open(path).map_err(|error| ImportError::io(*path, error))?;
            found.add(path, &root(path.parent().unwrap_or(Path::new(""))));
        }
    }
    let FoundFiles { mut readers, files, folders, unreadable } = found;
    let count = files.len() + folders;
    debug_assert!(files.iter().all(|file| !file.name.is_empty()), "a file has a name within the folder");
    let mut out = ReadOutput::new(sink, only);
    for (place, reason) in unreadable {
        out.fault(SourceFault::Unreadable(reason), place)?;
    }
    for (done, file) in files.into_iter().enumerate() {
        out.sink.progress(done, count);
        recognise(file, &mut readers, &mut out)?;
    }
    for (kind, reader) in readers {
        out.source = Some(kind);
        reader.read(&mut out)?;
    }
    out.sink.progress(count, count);
    Ok(())
}

/// The readers of an import, in the order in which they are tried.
type Readers = Vec<(SourceKind, Box<dyn HistorySource>)>;

/// Gives a file to the reader that recognises it, or reports it.
fn recognise(file: SourceFile, readers: &mut Readers, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
    // Every program is asked, as some take note of such a file.
    if readers.iter_mut().fold(false, |is_beside, (_, reader)| reader.is_beside(&file) || is_beside) {
        return Ok(());
    }
    let (file, fault) = match FileProbe::open(file)? {
        Ok(probe) if readers.iter_mut().any(|(_, reader)| reader.recognise(&probe)) => return Ok(()),
        Ok(probe) => probe.into_fault(),
        Err(failed) => failed,
    };
    match fault {
        NotProbed::Empty => out.whole("empty_file", &file.name),
        NotProbed::Unknown => out.whole("unrecognised_file", &file.name),
        NotProbed::Fault(fault) => out.whole_fault(fault, &file.name),
    }
}

#[derive(Default)]
struct FoundFiles {
    readers: Readers,
    files: Vec<SourceFile>,
    /// The number of folders that are read as a whole.
    folders: usize,
    /// Folders that cannot be read, each with the reason.
    unreadable: Vec<(String, String)>,
}

impl FoundFiles {
    fn add(&mut self, path: &Path, root: &Path) {
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
        let file_name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        // The log of a database is read with it.
        for ending in ["-wal", "-shm", "-journal"] {
            if file_name.strip_suffix(ending).is_some_and(|of| path.with_file_name(of).is_file()) {
                return;
            }
        }
        // If a plain file and a compressed one stand side by side, the plain one counts.
        if file_name.strip_suffix(".zst").is_some_and(|of| path.with_file_name(of).is_file()) {
            return;
        }
        self.files.push(SourceFile { path: path.to_owned(), name });
    }

    fn folder(&mut self, folder: &Path, root: &Path) {
        if self.readers.iter_mut().any(|(_, reader)| reader.recognise_folder(folder)) {
            self.folders += 1;
            return;
        }
        let paths = match sorted(folder) {
            Ok(paths) => paths,
            Err(error) => {
                let name = folder.strip_prefix(root).unwrap_or(folder).to_string_lossy().into_owned();
                self.unreadable.push((name, error.to_string()));
                return;
            }
        };
        for path in paths {
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            if metadata.is_dir() {
                self.folder(&path, root);
            } else if fs::metadata(&path).is_ok_and(|metadata| metadata.is_file()) {
                self.add(&path, root);
            }
        }
    }
}

/// Returns the entries of a folder in the order of their names.
pub(crate) fn sorted(folder: &Path) -> Result<Vec<PathBuf>, ImportError> {
    let entries = fs::read_dir(folder).map_err(|error| ImportError::io(folder, error))?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| ImportError::io(folder, error))?;
    paths.sort();
    Ok(paths)
}
