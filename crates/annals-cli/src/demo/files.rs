//! Lists the text files of a folder: text by their name, sorted, with limits.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The endings of text files.
const ENDINGS: [&str; 5] = ["md", "txt", "rst", "org", "adoc"];
/// Larger files are left out.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The highest number of files; the first by path are read.
const FILES_MAX: usize = 500;
/// The highest depth of nested folders.
const DEPTH_MAX: usize = 32;

/// A file to read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TextFile {
    /// Its path in the folder, with `/` between its parts.
    pub(crate) path: String,
    pub(crate) bytes: u64,
}

/// The argument of `read`, which does not see the state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FileRef {
    pub(crate) folder: String,
    pub(crate) file: TextFile,
}

/// Lists the text files of a folder, hidden ones and links left out, sorted by path.
pub(crate) fn list(folder: &Path) -> io::Result<Vec<TextFile>> {
    let mut files = Vec::new();
    let mut folders = vec![(folder.to_path_buf(), String::new(), 0)];
    while let Some((path, prefix, depth)) = folders.pop() {
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            // A folder below that may not be read is left out; the one that was asked for must be readable.
            Err(_) if depth > 0 => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let (kind, path) = (entry.file_type()?, format!("{prefix}{name}"));
            if name.starts_with('.') {
                continue;
            }
            if kind.is_dir() && depth < DEPTH_MAX {
                folders.push((entry.path(), format!("{path}/"), depth + 1));
            } else if kind.is_file() && is_text(&name) {
                let bytes = entry.metadata()?.len();
                if bytes <= FILE_BYTES_MAX {
                    files.push(TextFile { path, bytes });
                }
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.truncate(FILES_MAX);
    debug_assert!(files.is_sorted_by(|a, b| a.path < b.path));
    Ok(files)
}

fn is_text(name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    ending.is_some_and(|ending| ENDINGS.contains(&ending.as_str()))
}

/// Returns the `docs` of the project, if the current folder is within it.
pub(crate) fn project_docs() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let root = here.ancestors().find(|folder| folder.join("crates/annals-cli/Cargo.toml").is_file())?;
    Some(root.join("docs")).filter(|docs| docs.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_files_are_listed_in_order() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("sub/.hidden")).unwrap();
        for name in ["b.md", "a.TXT", "sub/c.rst", "sub/.hidden/d.md", ".e.md", "f.rs", "md"] {
            fs::write(folder.path().join(name), "text").unwrap();
        }
        fs::write(folder.path().join("big.md"), vec![b'x'; FILE_BYTES_MAX as usize + 1]).unwrap();
        let paths: Vec<String> = list(folder.path()).unwrap().into_iter().map(|file| file.path).collect();
        assert_eq!(paths, ["a.TXT", "b.md", "sub/c.rst"]);
        assert!(list(&folder.path().join("missing")).is_err());
    }
}
