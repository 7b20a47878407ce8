//! The files that a command writes as results: their path, size and hash.
//!
//! Invariant: a result is the hash of the whole file as it was read after the command. *Absent:* the content, which
//! stays where the command wrote it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use annals_graph::annals::base::{Map, Value};
use sha2::{Digest, Sha256};

use crate::limits::RESULT_FILE_BYTES_MAX;

/// A file that cannot be a result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResultFileError {
    #[error("file {} of `files` cannot be read after the command: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{} of `files` is not a file", path.display())]
    NotAFile { path: PathBuf },
    #[error("file {} of `files` has more than {RESULT_FILE_BYTES_MAX} bytes", path.display())]
    TooLong { path: PathBuf },
    #[error("the run was cancelled while file {} of `files` was read", path.display())]
    Cancelled { path: PathBuf },
}

/// Returns `{"path", "bytes", "sha256"}` of a file.
pub(crate) fn result_of(path: &Path, is_cancelled: &dyn Fn() -> bool) -> Result<Value, ResultFileError> {
    let failed = |source| ResultFileError::Io { path: path.to_owned(), source };
    // Before it is opened: a named pipe without a writer would block.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(ResultFileError::NotAFile { path: path.to_owned() });
    }
    let mut file = File::open(path).map_err(failed)?;
    let (mut hasher, mut bytes, mut buffer) = (Sha256::new(), 0_u64, vec![0; 1 << 16]);
    loop {
        let n = match file.read(&mut buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            read => read.map_err(failed)?,
        };
        if n == 0 {
            break;
        }
        bytes += n as u64;
        if bytes > RESULT_FILE_BYTES_MAX {
            return Err(ResultFileError::TooLong { path: path.to_owned() });
        }
        if is_cancelled() {
            return Err(ResultFileError::Cancelled { path: path.to_owned() });
        }
        hasher.update(&buffer[..n]);
    }
    let digits: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    let members: Map = [
        ("path".to_owned(), Value::from(path.display().to_string())),
        ("bytes".to_owned(), Value::from(i64::try_from(bytes).unwrap_or(i64::MAX))),
        ("sha256".to_owned(), Value::from(digits)),
    ]
    .into_iter()
    .collect();
    Ok(Value::Map(members))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_size_and_its_hash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, "abc").unwrap();
        let result = result_of(&path, &|| false).unwrap();
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!((result.get("bytes"), result.get("sha256")), (Some(&Value::from(3)), Some(&Value::from(hash))));
        assert!(matches!(result_of(folder.path(), &|| false), Err(ResultFileError::NotAFile { .. })));
        assert!(matches!(result_of(&folder.path().join("b"), &|| false), Err(ResultFileError::Io { .. })));
        assert!(matches!(result_of(&path, &|| true), Err(ResultFileError::Cancelled { .. })));
        #[cfg(unix)]
        {
            let pipe = folder.path().join("pipe");
            assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            assert!(matches!(result_of(&pipe, &|| false), Err(ResultFileError::NotAFile { .. })));
        }
    }
}
