//! The histories of other programs by the command: a third of the fixtures of each program, or all of them, are
//! imported and exported as the library does it, whose documents are compared with the expected ones in its own tests.

use std::fs;
use std::path::{Path, PathBuf};

use annals::store::Store;
use annals_import::{Importer, export_turns};

use super::{Bench, cases, code, stderr};

/// The number of fixtures: a fixture that is lost fails the test.
const FIXTURES: usize = 119;

fn folders(of: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(of).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

#[test]
fn fixtures_are_imported_and_exported_by_the_command() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/agents");
    let mut fixtures = 0;
    for source in folders(&root) {
        let kind = source.file_name().unwrap().to_str().unwrap();
        let folders = folders(&source);
        fixtures += folders.len();
        for folder in folders.into_iter().step_by(cases(5, 1)) {
            let (bench, input) = (Bench::new(), folder.join("input"));
            let place = folder.display();
            let import = bench.annals(&["import", input.to_str().unwrap(), "--from", kind]);
            let store = Store::memory();
            let summary = Importer::new(&store).only(kind.parse().unwrap()).run(&input).unwrap();
            // An import without a thread fails.
            assert_eq!(code(&import), i32::from(summary.threads() == 0), "{place}: {}", stderr(&import));

            let exported = bench.annals(&["export", "--all", "--format", "turns-json"]);
            assert_eq!(code(&exported), 0, "{place}: {}", stderr(&exported));
            let mut document: serde_json::Value = serde_json::from_slice(&exported.stdout).unwrap();
            // The version of what the command prints.
            assert_eq!(document.as_object_mut().unwrap().remove("schema"), Some(1.into()), "{place}");
            assert_eq!(document, export_turns(&store).unwrap(), "{place}");
        }
    }
    assert_eq!(fixtures, FIXTURES);
}
