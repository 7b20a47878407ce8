//! Imports of sources that have changed: grown, torn and whole again, rolled back.

use std::fs;

use annals::store::Store;
use annals_import::{Importer, export_turns};
use serde_json::Value as Json;

use crate::compare;
use crate::fixtures::{fixtures, read};

/// Returns the only file of lines of a fixture, with its name.
fn lines_of(name: &str) -> (String, String) {
    let fixture = fixtures().into_iter().find(|fixture| fixture.name == name).unwrap();
    let mut folders = vec![fixture.input];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "jsonl") {
                return (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap());
            }
        }
    }
    panic!("{name} has no lines");
}

fn ids(document: &Json) -> Vec<String> {
    let turns = document["threads"][0]["turns"].as_array().cloned().unwrap_or_default();
    let messages = turns.iter().flat_map(|turn| turn["messages"].as_array().unwrap().clone());
    messages.map(|message| message["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_file_that_grows_line_by_line_yields_the_main_line_of_the_whole_file() {
    for name in [
        "codex/basic",
        "codex/no-ids",
        "codex/compacted",
        "claude-code/basic",
        "claude-code/several-in-one",
        "chat/role-lines",
    ] {
        let (file, text) = lines_of(name);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file);
        let store = Store::memory();
        let mut end = 0;
        for line in text.split_inclusive('\n') {
            end += line.len();
            fs::write(&path, &text[..end]).unwrap();
            Importer::new(&store).run(folder.path()).unwrap();
        }
        let exported = export_turns(&store).unwrap();
        let whole = read(folder.path(), None);
        assert_eq!(ids(&exported), ids(&whole), "{name}");
        assert_eq!(exported["threads"][0]["turns"], whole["threads"][0]["turns"], "{name}");
        assert_eq!(compare::document(&whole["not_understood"], &exported["not_understood"]), Ok(()), "{name}");
    }
}

#[test]
fn a_grown_file_adds_only_what_is_new() {
    let (file, text) = lines_of("claude-code/long");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(file);
    // A cut before a request of the user ends a turn.
    let cut = text
        .match_indices("\n{")
        .map(|(at, _)| at + 1)
        .filter(|at| text[*at..].contains("\"type\":\"user\""))
        .nth(60)
        .unwrap();
    fs::write(&path, &text[..cut]).unwrap();
    let store = Store::memory();
    let first = Importer::new(&store).run(folder.path()).unwrap();
    fs::write(&path, &text).unwrap();
    let second = Importer::new(&store).run(folder.path()).unwrap();
    assert_eq!((second.threads_new, second.threads_grown), (0, 1));
    assert_eq!(first.messages + second.messages, ids(&read(folder.path(), None)).len() as u64);
}

#[test]
fn a_torn_line_that_is_whole_later_is_no_longer_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.jsonl");
    let lines = ["{\"role\":\"user\",\"content\":\"a\"}", "{\"role\":\"assistant\",\"content\":\"b\"}"];
    fs::write(&path, format!("{}\n{}", lines[0], &lines[1][..12])).unwrap();
    let store = Store::memory();
    Importer::new(&store).run(&path).unwrap();
    assert_eq!(export_turns(&store).unwrap()["not_understood"]["torn_last_line"], 1);
    fs::write(&path, format!("{}\n{}\n", lines[0], lines[1])).unwrap();
    let summary = Importer::new(&store).run(&path).unwrap();
    assert_eq!(summary.messages, 1);
    let exported = export_turns(&store).unwrap();
    assert_eq!((ids(&exported).len(), exported["not_understood"].as_object().unwrap().len()), (2, 0));
}

#[test]
fn a_session_that_was_rolled_back_retains_the_old_line_as_a_branch() {
    let (file, text) = lines_of("codex/rolled-back");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(file);
    let before = text.find("thread_rolled_back").unwrap();
    let before = text[..before].rfind('\n').unwrap() + 1;
    fs::write(&path, &text[..before]).unwrap();
    let store = Store::memory();
    Importer::new(&store).run(folder.path()).unwrap();
    fs::write(&path, &text).unwrap();
    Importer::new(&store).run(folder.path()).unwrap();
    let (exported, whole) = (export_turns(&store).unwrap(), read(folder.path(), None));
    assert_eq!(compare::document(&whole, &exported), Ok(()));
}
