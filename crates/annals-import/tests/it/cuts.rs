//! Sources cut at random bytes: no panic, an end, and exact counts where the lines before the cut decide them.

use std::fs;
use std::path::{Path, PathBuf};

use annals_import::SourceKind;
use serde_json::Value as Json;

use crate::fixtures::{fixtures, read};

/// Cuts of a fixture at most; a long one has as many as read this number of bytes, and at least the least number.
const CUTS: u64 = 1_000;
const CUTS_LEAST: u64 = 20;
const BYTES: u64 = 500_000;

/// Returns the largest file of a folder, with its path within it.
fn largest(folder: &Path) -> PathBuf {
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

/// Returns the next number of a sequence that looks random (SplitMix64).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the counts of the lines of a cut file: not JSON, and torn.
fn counts(bytes: &[u8]) -> (u64, u64) {
    let text = String::from_utf8_lossy(bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let (mut broken, mut torn) = (0, 0);
    for line in text.split_inclusive('\n') {
        let is_json = line.trim().is_empty() || serde_json::from_str::<Json>(line).is_ok();
        match (is_json, line.ends_with('\n')) {
            (true, _) => {}
            (false, true) => broken += 1,
            (false, false) => torn += 1,
        }
    }
    (broken, torn)
}

#[test]
fn a_fixture_that_is_cut_at_any_byte_has_exact_counts() {
    let mut seed = 7;
    for fixture in fixtures() {
        let file = largest(&fixture.input);
        let bytes = fs::read(&file).unwrap();
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        let is_lines = name.ends_with(".jsonl");
        // Cuts of a file without bytes are all alike.
        let cuts = if bytes.is_empty() { 1 } else { (BYTES / bytes.len() as u64).clamp(CUTS_LEAST, CUTS) };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(&name);
        for cut in 0..cuts {
            let end = if cut == 0 { 0 } else { (next(&mut seed) % (bytes.len() as u64 + 1)) as usize };
            fs::write(&path, &bytes[..end]).unwrap();
            let document = read(&path, Some(fixture.source));
            let counted = |kind: &str| document["not_understood"][kind].as_u64().unwrap_or(0);
            let place = format!("{} cut at {end}", fixture.name);
            assert_eq!(
                counted("empty_file") > 0,
                end == 0 || (counted("empty_file") == 1 && document["threads"] == Json::Array(Vec::new())),
                "{place}"
            );
            if is_lines && counted("unrecognised_file") + counted("empty_file") == 0 {
                assert_eq!((counted("not_json"), counted("torn_last_line")), counts(&bytes[..end]), "{place}");
            }
            // A JSON file of opencode is recognised by its folder alone.
            let is_alone = fixture.source != SourceKind::Chat && !name.ends_with(".json");
            if end == bytes.len() && is_alone {
                assert_eq!(counted("unrecognised_file"), 0, "{place}");
            }
        }
    }
}

#[test]
fn the_messages_of_a_cut_file_are_those_of_its_whole_lines() {
    let mut seed = 11;
    for name in ["codex/no-ids", "claude-code/basic", "chat/role-lines"] {
        let fixture = fixtures().into_iter().find(|fixture| fixture.name == name).unwrap();
        let file = largest(&fixture.input);
        let bytes = fs::read(&file).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file.file_name().unwrap());
        for _ in 0..100 {
            let end = (next(&mut seed) % bytes.len() as u64) as usize;
            let line_end = bytes[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            if line_end == 0 || serde_json::from_slice::<Json>(&bytes[line_end..end]).is_ok() {
                continue;
            }
            fs::write(&path, &bytes[..end]).unwrap();
            let cut = read(&path, None);
            fs::write(&path, &bytes[..line_end]).unwrap();
            let whole = read(&path, None);
            assert_eq!(cut["threads"], whole["threads"], "{name} cut at {end}");
        }
    }
}
