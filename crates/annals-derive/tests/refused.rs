//! Tests the compiler errors for structs that `#[derive(State)]` refuses: each file of `tests/refused` is compiled, and
//! the errors are those of the file beside it.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the library of the macro that cargo built last, beside this test.
fn library() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let name = format!("{}annals_derive-", std::env::consts::DLL_PREFIX);
    let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let is_library = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == std::env::consts::DLL_EXTENSION)
            && path.file_name().unwrap().to_string_lossy().starts_with(&name)
    };
    files.filter(is_library).max_by_key(|path| path.metadata().unwrap().modified().unwrap()).unwrap()
}

/// Returns the errors of a file, without the lines that count them.
fn errors(library: &Path, file: &str, out: &Path) -> String {
    let root = env!("CARGO_MANIFEST_DIR");
    let output = Command::new("rustc")
        .args(["--edition", "2024", "--emit", "metadata", file])
        .arg("--out-dir")
        .arg(out)
        .arg("--extern")
        .arg(format!("annals_derive={}", library.display()))
        .current_dir(root)
        .output()
        .unwrap();
    assert!(!output.status.success(), "{file} is accepted");
    let errors = String::from_utf8(output.stderr).unwrap();
    let of_mistakes =
        |paragraph: &&str| !paragraph.starts_with("error: aborting") && !paragraph.starts_with("For more");
    errors.trim_end().split("\n\n").filter(of_mistakes).collect::<Vec<_>>().join("\n\n")
}

#[test]
fn the_errors_stand_where_the_mistake_is() {
    let (library, out) = (library(), tempfile::tempdir().unwrap());
    let mut files: Vec<String> =
        fs::read_dir("tests/refused").unwrap().map(|file| file.unwrap().path().display().to_string()).collect();
    files.retain(|file| file.ends_with(".rs"));
    assert_eq!(files.len(), 8, "files were added or removed");
    for file in files {
        let expected = fs::read_to_string(file.replace(".rs", ".stderr")).unwrap();
        assert_eq!(errors(&library, &file, out.path()), expected.trim_end(), "{file}");
    }
}
