//! All fixtures: read, stored and exported, and stored a second time.

use std::fs;
use std::path::{Path, PathBuf};

use annals::store::Store;
use annals_import::{Importer, SourceKind, TurnsCollector, export_turns, read_sessions};
use serde_json::Value as Json;

use crate::compare;

/// The number of fixtures: a fixture that is lost fails the tests.
const FIXTURES: usize = 119;

/// A fixture: its name, its source, its folder and the expected document.
pub(crate) struct Fixture {
    pub(crate) name: String,
    pub(crate) source: SourceKind,
    pub(crate) input: PathBuf,
    pub(crate) expected: Json,
}

/// Returns all fixtures.
pub(crate) fn fixtures() -> Vec<Fixture> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/agents");
    let mut fixtures = Vec::new();
    for source in folders(&root) {
        for folder in folders(&source) {
            let name = format!("{}/{}", file_name(&source), file_name(&folder));
            // An empty folder is not part of a checkout.
            let expected = fs::read(folder.join("expected.json")).unwrap();
            fixtures.push(Fixture {
                name,
                source: file_name(&source).parse().unwrap(),
                input: folder.join("input"),
                expected: serde_json::from_slice(&expected).unwrap(),
            });
        }
    }
    assert_eq!(fixtures.len(), FIXTURES);
    fixtures
}

fn folders(of: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(of).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

/// Returns the largest file of a folder, with its path within it.
pub(crate) fn largest(folder: &Path) -> PathBuf {
    let mut folders = vec![folder.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push((fs::metadata(&path).unwrap().len(), path));
            }
        }
    }
    files.sort();
    files.pop().unwrap().1
}

/// Reads a source without a store.
pub(crate) fn read(path: &Path, only: Option<SourceKind>) -> Json {
    let mut collector = TurnsCollector::default();
    read_sessions(path, only, &mut collector).unwrap();
    collector.into_document()
}

#[test]
fn every_fixture_is_read_with_and_without_its_source() {
    for fixture in fixtures() {
        for only in [None, Some(fixture.source)] {
            let compared = compare::document(&fixture.expected, &read(&fixture.input, only));
            assert_eq!(compared, Ok(()), "{} with {only:?}", fixture.name);
        }
    }
}

#[test]
fn every_fixture_is_stored_and_exported_and_a_second_import_changes_nothing() {
    for fixture in fixtures() {
        let store = Store::memory();
        let first = Importer::new(&store).run(&fixture.input).unwrap();
        let exported = export_turns(&store).unwrap();
        assert_eq!(compare::document(&fixture.expected, &exported), Ok(()), "{}", fixture.name);
        let position = store.watch().unwrap().position();

        let second = Importer::new(&store).run(&fixture.input).unwrap();
        assert_eq!((second.messages, second.checkpoints), (0, 0), "{}", fixture.name);
        assert_eq!(second.threads_unchanged, first.threads_new, "{}", fixture.name);
        assert_eq!(export_turns(&store).unwrap(), exported, "{}", fixture.name);
        assert_eq!(store.watch().unwrap().position(), position, "{}", fixture.name);
    }
}

#[test]
fn the_fixtures_in_one_store_do_not_disturb_each_other() {
    let store = Store::memory();
    let (mut threads, mut unknown) = (0, 0);
    for fixture in fixtures() {
        let summary = Importer::new(&store).run(&fixture.input).unwrap();
        threads += summary.threads_new;
        unknown += summary.not_understood.values().sum::<u64>();
    }
    let exported = export_turns(&store).unwrap();
    assert_eq!(exported["threads"].as_array().unwrap().len() as u64, threads);
    let counts = exported["not_understood"].as_object().unwrap();
    assert_eq!(counts.values().map(|count| count.as_u64().unwrap()).sum::<u64>(), unknown);
    assert!(threads > 100 && unknown > 20, "{threads} threads, {unknown} records");
}
