//! Sources cut at random bytes: no panic, an end, and exact counts where the lines before the cut decide them.

use std::fs;

use annals::store::Store;
use annals_import::{Importer, SourceKind, export_turns};
use serde_json::{Value as Json, json};

use crate::fixtures::{Fixture, fixtures, largest, read};

/// Cuts of a fixture at most; a long one has as many as read this number of bytes, and at least the least number,
/// unless all cases are asked for.
const CUTS: u64 = 1_000;
const CUTS_LEAST: u64 = 4;
/// Cuts of all fixtures of a program at least.
const CUTS_OF_SOURCE: u64 = 24;
const BYTES: u64 = 50_000;

/// Returns how many cases a test runs: a share of them in the test command, all with the variable `ANNALS_ALL_CASES`.
#[allow(clippy::disallowed_methods, reason = "all cases are run when they are asked for")]
fn cases(share: u64, all: u64) -> u64 {
    if std::env::var_os("ANNALS_ALL_CASES").is_some() { all } else { share }
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
    let fixtures = fixtures();
    let least = |source| {
        let of_source = fixtures.iter().filter(|other| other.source == source).count() as u64;
        CUTS_LEAST.max(CUTS_OF_SOURCE.div_ceil(of_source))
    };
    // Each second fixture in a thread of its own.
    std::thread::scope(|scope| {
        for first in 0..2 {
            let (fixtures, least) = (&fixtures, &least);
            scope.spawn(move || {
                for (seed, fixture) in fixtures.iter().enumerate().skip(first).step_by(2) {
                    cut_at_random_bytes(fixture, least(fixture.source), seed as u64);
                }
            });
        }
    });
}

fn cut_at_random_bytes(fixture: &Fixture, least: u64, mut seed: u64) {
    let file = largest(&fixture.input);
    let bytes = fs::read(&file).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap().to_owned();
    let is_lines = name.ends_with(".jsonl");
    // Cuts of a file without bytes are all alike.
    let cuts = match bytes.len() as u64 {
        0 => 1,
        len => cases((BYTES / len).clamp(least, CUTS), CUTS),
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(&name);
    for cut in 0..cuts {
        let end = if cut == 0 { 0 } else { (next(&mut seed) % (bytes.len() as u64 + 1)) as usize };
        fs::write(&path, &bytes[..end]).unwrap();
        let document = read(&path, Some(fixture.source));
        let counted = |kind: &str| document["not_understood"][kind].as_u64().unwrap_or(0);
        let place = format!("{} cut at {end}", fixture.name);
        let is_empty = end == 0 || (counted("empty_file") == 1 && document["threads"] == Json::Array(Vec::new()));
        // A text of Aider holds several chats, of which one may be empty.
        if fixture.source != SourceKind::Aider {
            assert_eq!(counted("empty_file") > 0, is_empty, "{place}");
        }
        if is_lines && counted("unrecognised_file") + counted("empty_file") == 0 {
            assert_eq!((counted("not_json"), counted("torn_last_line")), counts(&bytes[..end]), "{place}");
        }
        // An array that ends early is reported with its fault.
        let is_cut_array = name.ends_with(".json") && document["threads"] != json!([]);
        if is_cut_array && !bytes[end..].trim_ascii().is_empty() {
            assert_eq!(counted("not_json"), 1, "{place}");
        }
        // A JSON file of opencode is recognised by its folder alone.
        let is_alone = fixture.source != SourceKind::Chat && !name.ends_with(".json");
        if end == bytes.len() && is_alone {
            assert_eq!(counted("unrecognised_file"), 0, "{place}");
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
        for _ in 0..cases(40, 100) {
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

/// Returns the lines of a file of a number: a rollout, a transcript, or lines of roles, with 2 to 9 messages.
fn lines_of_file(number: u64, seed: &mut u64) -> (String, Vec<String>) {
    let count = 2 + next(seed) % 8;
    let at = |second: u64| format!("2026-03-02T10:00:{second:02}.000Z");
    let role = |message: u64| if message.is_multiple_of(2) { "user" } else { "assistant" };
    // Texts of one to four bytes a character, so that cuts fall into characters as well.
    let text = |message: u64| format!("message {message} of {number}: ä€𝄞 \\\"");
    let line = |message: u64| match number % 3 {
        0 => {
            let kind = if message.is_multiple_of(2) { "input_text" } else { "output_text" };
            let content = json!([{"type": kind, "text": text(message)}]);
            let payload = json!({"type": "message", "role": role(message), "content": content});
            json!({"timestamp": at(message), "type": "response_item", "payload": payload})
        }
        1 => {
            let parent = message.checked_sub(1).map(|of| format!("u{number}-{of}"));
            let message_of =
                json!({"id": format!("m{number}-{message}"), "role": role(message), "content": text(message)});
            json!({"uuid": format!("u{number}-{message}"), "parentUuid": parent, "sessionId": format!("s{number}"),
                "timestamp": at(message), "type": role(message), "message": message_of})
        }
        _ => json!({"role": role(message), "content": text(message)}),
    };
    let mut lines: Vec<String> = (0..count).map(|message| line(message).to_string()).collect();
    let name = match number % 3 {
        0 => {
            let payload = json!({"id": format!("s{number}"), "timestamp": at(0)});
            lines.insert(0, json!({"timestamp": at(0), "type": "session_meta", "payload": payload}).to_string());
            format!("rollout-{number}.jsonl")
        }
        1 => format!("s{number}.jsonl"),
        _ => format!("log-{number}.jsonl"),
    };
    (name, lines)
}

/// Returns the messages of the threads of a document. The id of a chat that has grown is that of its begin, so threads
/// are sorted by their messages.
fn messages(document: &Json) -> Vec<Vec<Json>> {
    let threads = document["threads"].as_array().unwrap().iter();
    let of = |thread: &Json| {
        let turns = thread["turns"].as_array().unwrap().iter();
        turns.flat_map(|turn| turn["messages"].as_array().unwrap().clone()).collect()
    };
    let mut all: Vec<Vec<Json>> = threads.map(of).collect();
    all.sort_by_key(|messages| messages.iter().map(Json::to_string).collect::<String>());
    all
}

#[test]
fn files_cut_at_random_bytes_have_exact_counts_and_grow_without_duplicates() {
    let files = cases(300, 1_000);
    let mut seed = 20_261_123;
    let folder = tempfile::tempdir().unwrap();
    let (mut messages_whole, mut torn, mut empty, mut unrecognised, mut threads) = (0, 0, 0, 0, 0);
    let mut whole = Vec::new();
    for number in 0..files {
        let (name, lines) = lines_of_file(number, &mut seed);
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let end = (next(&mut seed) % (text.len() as u64 + 1)) as usize;
        fs::write(folder.path().join(&name), &text.as_bytes()[..end]).unwrap();
        whole.push((name, text.clone()));
        // The lines that are whole, a last one without its newline included.
        let (mut from, mut readable) = (0, 0);
        for line in &lines {
            readable += u64::from(from + line.len() <= end);
            from += line.len() + 1;
        }
        let is_torn = end > 0
            && text.as_bytes()[end - 1] != b'\n'
            && !lines
                .iter()
                .scan(0, |at, line| Some(std::mem::replace(at, *at + line.len() + 1) + line.len()))
                .any(|of| of == end);
        match (end, readable) {
            (0, _) => empty += 1,
            (_, 0) => unrecognised += 1,
            (_, readable) => {
                threads += 1;
                torn += u64::from(is_torn);
                messages_whole += readable - u64::from(number.is_multiple_of(3));
            }
        }
    }
    let store = Store::memory();
    let first = Importer::new(&store).run(folder.path()).unwrap();
    let counted = |kind: &str| first.not_understood.get(kind).copied().unwrap_or(0);
    assert_eq!((first.threads_new, first.messages), (threads, messages_whole));
    assert_eq!((counted("torn_last_line"), counted("empty_file")), (torn, empty));
    assert_eq!(counted("unrecognised_file"), unrecognised);
    assert_eq!(first.not_understood.values().sum::<u64>(), torn + empty + unrecognised);
    let again = Importer::new(&store).run(folder.path()).unwrap();
    assert_eq!((again.messages, again.checkpoints, again.threads_unchanged), (0, 0, threads));

    for (name, text) in &whole {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let grown = Importer::new(&store).run(folder.path()).unwrap();
    assert!(grown.not_understood.is_empty(), "{:?}", grown.not_understood);
    assert_eq!(grown.threads_new, files - threads);
    let exported = export_turns(&store).unwrap();
    assert_eq!(messages(&exported), messages(&read(folder.path(), None)));
    let total: usize = messages(&exported).iter().map(Vec::len).sum();
    assert_eq!(first.messages + grown.messages, total as u64, "no message is stored twice");
}
