//! The files of a source: walking a folder, and recognising each file by its content.
//!
//! Invariant: nothing is written beside the files. Symbolic links to folders, and special files, are not followed.

use std::fs;
use std::io::{BufRead, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::database::{self, SourceDatabase};
use crate::error::{ImportError, SourceFault};
use crate::lines::FirstLines;
use crate::model::SourceKind;
use crate::output::{ReadOutput, SessionSink};
use crate::sources::chat::{self, ChatLayout};
use crate::sources::claude::{self, ClaudeFiles};
use crate::sources::codex::{self, CodexFiles, CodexLayout, RolloutFile};
use crate::sources::{goose, opencode, zed};
use crate::{document, lines};

/// A file of a source.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    pub(crate) path: PathBuf,
    /// The path within the folder that is imported.
    pub(crate) name: String,
}

impl SourceFile {
    /// Returns the file name without its endings.
    pub(crate) fn stem(&self) -> &str {
        let name = self.path.file_name().and_then(|name| name.to_str()).unwrap_or(&self.name);
        let name = name.strip_suffix(".zst").unwrap_or(name);
        name.strip_suffix(".jsonl").or_else(|| name.strip_suffix(".json")).unwrap_or(name)
    }

    fn file_name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or("")
    }
}

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
    let mut found = FoundFiles::default();
    let metadata = fs::metadata(path).map_err(|error| ImportError::io(path, error))?;
    if metadata.is_dir() {
        sorted(path)?;
        found.folder(path, path);
    } else {
        fs::File::open(path).map_err(|error| ImportError::io(path, error))?;
        found.add(path, path.parent().unwrap_or(Path::new("")));
    }
    let FoundFiles { files, trees, unreadable } = found;
    let mut groups = FileGroups::default();
    let count = files.len() + trees.len();
    debug_assert!(files.iter().all(|file| !file.name.is_empty()), "a file has a name within the folder");
    let mut out = ReadOutput::new(sink, None);
    for (place, reason) in unreadable {
        out.fault(SourceFault::Unreadable(reason), place)?;
    }
    for (done, file) in files.into_iter().enumerate() {
        out.sink.progress(done, count);
        groups.sort(file, only, &mut out)?;
    }
    let takes = |kind: SourceKind| only.is_none_or(|only| only == kind);
    let trees = trees.into_iter().filter(|_| takes(SourceKind::Opencode)).collect();
    groups.read(trees, &mut out)?;
    out.sink.progress(count, count);
    Ok(())
}

#[derive(Default)]
struct FoundFiles {
    files: Vec<SourceFile>,
    /// Folders in which opencode stored its sessions.
    trees: Vec<opencode::StorageTree>,
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
        // The description of a helper is read with its transcript.
        if claude::describes_helper(path) {
            return;
        }
        // If a plain file and a compressed one stand side by side, the plain one counts.
        if file_name.strip_suffix(".zst").is_some_and(|of| path.with_file_name(of).is_file()) {
            return;
        }
        self.files.push(SourceFile { path: path.to_owned(), name });
    }

    fn folder(&mut self, folder: &Path, root: &Path) {
        if let Some(tree) = opencode::StorageTree::recognise(folder) {
            self.trees.push(tree);
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

/// The recognised files, by program.
#[derive(Default)]
struct FileGroups {
    codex: CodexFiles,
    claude: ClaudeFiles,
    goose: Vec<SourceFile>,
    databases: Vec<(SourceKind, SourceFile, SourceDatabase)>,
    chats: Vec<(SourceFile, ChatLayout)>,
}

impl FileGroups {
    /// Recognises a file.
    fn sort(
        &mut self,
        file: SourceFile,
        only: Option<SourceKind>,
        out: &mut ReadOutput<'_>,
    ) -> Result<(), ImportError> {
        out.source = only;
        let takes = |kind: SourceKind| only.is_none_or(|only| only == kind);
        if file.file_name() == "session_index.jsonl" && takes(SourceKind::Codex) {
            self.codex.add_index(&file.path);
            return Ok(());
        }
        let mut head = Vec::new();
        let read = fs::File::open(&file.path).and_then(|opened| opened.take(64).read_to_end(&mut head));
        if let Err(error) = read {
            return out.whole_fault(SourceFault::Unreadable(error.to_string()), &file.name);
        }
        if head.is_empty() {
            return out.whole("empty_file", &file.name);
        }
        if head.starts_with(database::MAGIC) {
            let open = match SourceDatabase::open(&file.path) {
                Ok(open) => open,
                Err(SourceFault::Unreadable(reason)) => {
                    return out.whole_fault(SourceFault::Unreadable(reason), &file.name);
                }
                Err(_) => return out.whole("unrecognised_file", &file.name),
            };
            return match database::recognise(&open).filter(|kind| takes(*kind)) {
                Some(kind) => {
                    self.databases.push((kind, file, open));
                    Ok(())
                }
                None => out.whole("unrecognised_file", &file.name),
            };
        }
        match first_byte(&file.path) {
            Ok(Some(b'[')) if takes(SourceKind::Chat) => {
                let mut first = None;
                let fault = document::each_item(&file.path, |_, item| {
                    first = Some(item);
                    Ok(ControlFlow::Break(()))
                })?;
                if let Some(layout) = first.as_ref().and_then(ChatLayout::of_array) {
                    self.chats.push((file, layout));
                    return Ok(());
                }
                unrecognised(&file, fault, out)
            }
            Ok(Some(b'{' | 0)) => self.sort_lines(file, takes, out),
            Ok(_) => unrecognised(&file, None, out),
            Err(fault) => unrecognised(&file, Some(fault), out),
        }
    }

    /// Recognises a file of JSON lines, or one that is a single object.
    fn sort_lines(
        &mut self,
        file: SourceFile,
        takes: impl Fn(SourceKind) -> bool,
        out: &mut ReadOutput<'_>,
    ) -> Result<(), ImportError> {
        let FirstLines { json: lines, mut fault } = lines::first_lines(&file.path);
        if let Some(first) = lines.first() {
            if let Some(layout) = codex::recognise(first).filter(|_| takes(SourceKind::Codex)) {
                self.codex.add(RolloutFile::new(file, layout, first));
                return Ok(());
            }
            if takes(SourceKind::ClaudeCode) && claude::recognise(&lines) {
                self.claude.add(file);
                return Ok(());
            }
            if takes(SourceKind::Goose) && goose::recognise(&lines) {
                self.goose.push(file);
                return Ok(());
            }
            if let Some(layout) = ChatLayout::of_lines(&lines).filter(|_| takes(SourceKind::Chat)) {
                self.chats.push((file, layout));
                return Ok(());
            }
        }
        if takes(SourceKind::Codex) && file.file_name().ends_with(".json") {
            match document::whole(&file.path) {
                Ok(document) if codex::is_document(&document) => {
                    self.codex.add(RolloutFile::new(file, CodexLayout::Document, &document));
                    return Ok(());
                }
                Ok(_) => {}
                Err(of_document) => fault = Some(of_document),
            }
        }
        unrecognised(&file, fault, out)
    }

    fn read(self, trees: Vec<opencode::StorageTree>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
        self.codex.read(out)?;
        self.claude.read(out)?;
        let mut of_opencode = std::collections::HashSet::new();
        for (kind, file, database) in &self.databases {
            out.source = Some(*kind);
            out.file(&file.name, |out| match kind {
                SourceKind::Goose => goose::read_database(database, file, out),
                SourceKind::Opencode => opencode::read_database(database, file, &mut of_opencode, out),
                _ => zed::read_database(database, file, out),
            })?;
        }
        for tree in trees {
            out.source = Some(SourceKind::Opencode);
            tree.read(&of_opencode, out)?;
        }
        for file in &self.goose {
            out.source = Some(SourceKind::Goose);
            out.file(&file.name, |out| goose::read_lines(file, out))?;
        }
        for (file, layout) in &self.chats {
            out.source = Some(SourceKind::Chat);
            out.file(&file.name, |out| chat::read(file, *layout, out))?;
        }
        Ok(())
    }
}

/// Reports a file that no reader takes: a file that is too large or unreadable as such.
fn unrecognised(file: &SourceFile, fault: Option<SourceFault>, out: &mut ReadOutput<'_>) -> Result<(), ImportError> {
    match fault {
        Some(fault @ (SourceFault::TooLarge(_) | SourceFault::Unreadable(_))) => out.whole_fault(fault, &file.name),
        Some(SourceFault::NotJson | SourceFault::NumberRange | SourceFault::Frame(_)) | None => {
            out.whole("unrecognised_file", &file.name)
        }
    }
}

/// Returns the first byte of the content that is not white space; 0 for a line that is not text.
fn first_byte(path: &Path) -> Result<Option<u8>, SourceFault> {
    let mut input = lines::open(path);
    let mark = "\u{feff}".as_bytes();
    loop {
        let bytes = input.fill_buf()?;
        if bytes.is_empty() {
            return Ok(None);
        }
        if bytes.starts_with(mark) {
            input.consume(mark.len());
            continue;
        }
        match bytes.iter().position(|byte| !byte.is_ascii_whitespace()) {
            Some(at) => return Ok(Some(bytes[at])),
            None => {
                let read = bytes.len();
                input.consume(read);
            }
        }
    }
}

/// Returns whether a JSON value has a member that is not null.
pub(crate) fn has(of: &Json, name: &str) -> bool {
    !of[name].is_null()
}
