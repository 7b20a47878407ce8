//! Checks that imports go down: the imports that a folder may have, the words that it must never mention, and the
//! clients that do not call the backend.

use crate::rules::Violation;
use crate::scan::{Source, first_word};

/// For each folder of `src`, from the ground up, the folders it may import. `error` stands for `src/error.rs`. The
/// three folders of floor 1 do not see each other. `task` and `graph` lie beside each other: a node takes the context
/// of its task, and the context names the graph of the task.
pub(crate) const MAY_IMPORT: &[(&str, &[&str])] = &[
    // Crates of their own, which the engine shows under these names.
    ("base", &[]),
    ("message", &["base"]),
    ("channel", &["base"]),
    ("store", &["base"]),
    ("state", &["base", "channel", "message"]),
    ("history", &["base", "channel", "message", "store", "state", "error"]),
    // Of the store only the handles of the key-value memory and of the cache, which runs are lent.
    ("task", &["base", "channel", "message", "state", "store", "graph"]),
    ("graph", &["base", "channel", "message", "state", "store", "task"]),
    ("exec", &["base", "channel", "graph", "task", "state", "store"]),
    ("run", &["base", "state", "store", "graph", "task", "exec"]),
    ("stream", &["base", "message", "state", "graph", "task", "exec"]),
    (
        "drive",
        &["base", "channel", "message", "store", "state", "history", "graph", "task", "exec", "run", "stream", "error"],
    ),
];

/// Words that must not stand in the code of a folder, even where an import would be allowed.
pub(crate) const NEVER_MENTIONS: &[(&str, &[&str])] = &[
    ("channel", &["rusqlite", "Message", "Store", "StateGraph"]),
    ("state", &["rusqlite", "Store", "Log", "LogExt", "store"]),
    ("history", &["rusqlite", "CompiledGraph", "StateGraph"]),
    ("task", &["rusqlite", "Store", "Log", "LogExt", "Batch", "Machine"]),
    ("graph", &["rusqlite", "Store", "Log", "LogExt", "Batch", "Machine"]),
    // It works on the records and batches of the store, which are data.
    (
        "exec",
        &[
            "rusqlite",
            "Store",
            "Log",
            "LogExt",
            "OpenOptions",
            "CommitHandle",
            "Clock",
            "SystemClock",
            "ElapsedTime",
            "thread",
            "async",
        ],
    ),
    // The tree of a run decides; it reads, waits and locks nothing.
    (
        "run",
        &[
            "rusqlite",
            "Store",
            "Log",
            "LogExt",
            "CommitHandle",
            "Clock",
            "SystemClock",
            "ElapsedTime",
            "Mutex",
            "Thread",
            "thread",
        ],
    ),
    ("stream", &["rusqlite", "Store", "Log", "LogExt", "Machine", "thread"]),
    ("drive", &["rusqlite", "SqliteBackend"]),
];

/// Words of [`NEVER_MENTIONS`] that are also common names, so that only the path counts.
const AS_PATH_ONLY: &[(&str, &str)] = &[("thread", "std::thread"), ("store", "crate::store")];

/// Returns the path of a file below `src` of the engine or of the executor.
fn relative(path: &str) -> Option<&str> {
    path.strip_prefix("src/").or_else(|| path.strip_prefix("crates/annals-graph/src/"))
}

/// Returns the folder of `src` a file belongs to; `None` for the files at the root and outside `src`.
pub(crate) fn folder_of(path: &str) -> Option<&str> {
    let (folder, _) = relative(path)?.split_once('/')?;
    Some(folder)
}

/// Returns the number of modules above a file: 1 for `src/store/mod.rs`, 2 for `src/store/batch.rs`.
fn depth(path: &str) -> usize {
    let inside = relative(path).unwrap_or(path).trim_end_matches(".rs").trim_end_matches("/mod");
    inside.split('/').count()
}

/// Returns every name that a path from the root of the crate leads to first, with its place.
pub(crate) fn imports(source: &Source) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let modules = source.inline_modules();
    let mut chain_end = 0;
    for (at, word) in source.words() {
        let end = at + word.len();
        match word {
            "crate" | "annals" => heads(source, end, &mut found),
            "super" if at >= chain_end => {
                let (mut supers, mut end) = (1, end);
                while let Some(rest) = source.code[end..].strip_prefix("::super") {
                    supers += 1;
                    end = source.code.len() - rest.len();
                }
                chain_end = end;
                let inside = modules.iter().filter(|(_, block)| block.contains(&at)).count();
                if supers >= depth(&source.path) + inside {
                    heads(source, end, &mut found);
                }
            }
            _ => {}
        }
    }
    found
}

/// Adds the first names after a path: one, or those of a group.
fn heads(source: &Source, end: usize, found: &mut Vec<(usize, String)>) {
    let (at, rest) = source.after(end);
    let Some(rest) = rest.strip_prefix("::") else { return };
    let (at, rest) = (at + 2 + rest.len() - rest.trim_start().len(), rest.trim_start());
    if !rest.starts_with('{') {
        let name = first_word(rest);
        if !name.is_empty() {
            found.push((at, name.to_owned()));
        }
        return;
    }
    let mut level = 0;
    let mut wants_name = false;
    for (offset, c) in rest.char_indices() {
        match c {
            '{' => {
                level += 1;
                wants_name = level == 1;
            }
            '}' => {
                level -= 1;
                if level == 0 {
                    return;
                }
            }
            ',' if level == 1 => wants_name = true,
            c if wants_name && !c.is_whitespace() => {
                wants_name = false;
                found.push((at + offset, first_word(&rest[offset..]).to_owned()));
            }
            _ => {}
        }
    }
}

/// Imports that go up or sideways, and words that do not belong on the floor.
pub(crate) fn floors(source: &Source) -> Vec<Violation> {
    let Some(folder) = folder_of(&source.path) else { return Vec::new() };
    let mut violations = Vec::new();
    let Some((_, may)) = MAY_IMPORT.iter().find(|(name, _)| *name == folder) else {
        return vec![Violation::at(source, 0, format!("folder `{folder}` is on no floor: add it to the table"))];
    };
    let folders: Vec<&str> = MAY_IMPORT.iter().map(|(name, _)| *name).collect();
    for (at, name) in imports(source) {
        let of_root = name.starts_with(char::is_uppercase) || name == "prelude" || name == "error" || name == "*";
        let known = folders.contains(&name.as_str()) || of_root;
        if known && name != folder && !may.contains(&name.as_str()) {
            violations.push(Violation::at(source, at, format!("`{folder}` must not import `{name}`: imports go down")));
        }
    }
    let never = NEVER_MENTIONS.iter().find(|(name, _)| *name == folder).map_or(&[][..], |(_, words)| words);
    for word in never {
        let found: Vec<usize> = match AS_PATH_ONLY.iter().find(|(name, _)| name == word) {
            Some((_, path)) => source.code.match_indices(path).map(|(at, _)| at).collect(),
            None => source.places(word).collect(),
        };
        violations.extend(
            found.into_iter().map(|at| Violation::at(source, at, format!("`{folder}` must not mention `{word}`"))),
        );
    }
    violations
}

/// Programs, libraries and examples that reach the log through `Store`, `Thread` and `Snapshot` alone.
const WITHOUT_BACKEND: &[&str] = &[
    "crates/annals-agents/src/",
    "crates/annals-cli/src/",
    "crates/annals-flow/src/",
    "crates/annals-graph/examples/",
    "crates/annals-import/src/",
    "crates/annals-mcp/src/",
    "crates/annals-page/src/",
    "examples/",
];

/// The file among them that takes the backend of a store once, to wrap it in a layer.
const WRAPS_BACKEND: &str = "crates/annals-cli/src/demo/kill.rs";

/// Calls of `Store::backend` by clients.
pub(crate) fn backends(source: &Source) -> Vec<Violation> {
    if !WITHOUT_BACKEND.iter().any(|start| source.path.starts_with(start)) {
        return Vec::new();
    }
    let is_method = |at: &usize| {
        source.code[..*at].trim_end().ends_with("::") || source.after(at + "backend".len()).1.starts_with('(')
    };
    let found = source.places("backend").filter(is_method).skip(usize::from(source.path == WRAPS_BACKEND));
    let what = "a client must not call `backend`: `Store`, `Thread` and `Snapshot` have the reads";
    found.map(|at| Violation::at(source, at, what)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        floors(&Source::new(path, text)).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn imports_that_go_up_or_sideways_are_found() {
        assert_eq!(lines("src/store/batch.rs", "use crate::base::Value;\nuse crate::message::Message;\n"), [2]);
        assert_eq!(lines("src/channel/topic.rs", "fn f() { crate::store::x() }"), [1]);
        assert_eq!(lines("src/channel/id.rs", "use crate::{\n    base::Value,\n    exec::{RunError, graph},\n};"), [3]);
        assert_eq!(lines("src/graph/node.rs", "use super::super::drive::Run;\nuse super::command::Command;"), [1]);
        assert_eq!(lines("src/graph/mod.rs", "use super::history::Thread;"), [1]);
        assert_eq!(lines("src/state/mod.rs", "use annals::graph::END;\nuse annals_derive::State;"), [1]);
        assert_eq!(
            lines("src/exec/plan.rs", "use crate::error::Error;\nuse crate::Result;\nuse crate::prelude::*;"),
            [1, 2, 3]
        );
        assert_eq!(lines("src/newcomer/mod.rs", ""), [1]);
    }

    #[test]
    fn a_module_inside_a_file_is_one_step_deeper() {
        let text = "mod tests {\n    use super::super::graph;\n    use super::super::super::graph;\n}";
        assert_eq!(lines("src/store/batch.rs", text), [3]);
    }

    #[test]
    fn imports_that_go_down_and_words_in_comments_are_fine() {
        let text = "//! See [`Thread`](crate::history::Thread).\nuse crate::state::State;\nuse super::compiled::Graph;\nlet x = \"crate::drive\";";
        assert_eq!(lines("src/graph/node.rs", text), [0; 0]);
        assert_eq!(
            lines("src/store/memory/tree.rs", "use super::super::batch::Batch;\nuse crate::store::CheckpointRef;"),
            [0; 0]
        );
        assert_eq!(lines("src/error.rs", "use crate::exec::RunError;"), [0; 0]);
    }

    #[test]
    fn the_executor_may_have_the_stores_data_and_not_the_store() {
        assert_eq!(lines("src/exec/machine.rs", "use crate::store::{Batch, NewWrite};\nuse crate::store::Store;"), [2]);
        assert_eq!(lines("src/exec/machine.rs", "fn f(thread: u8) {}\nfn g() { std::thread::yield_now() }"), [2]);
        assert_eq!(lines("src/state/mod.rs", "let store = 1;\nuse crate::store::Batch;"), [2, 2]);
    }

    #[test]
    fn clients_that_call_the_backend_are_found() {
        let lines = |path: &str, text: &str| -> Vec<usize> {
            backends(&Source::new(path, text)).iter().map(|violation| violation.line).collect()
        };
        let text = "let backend = 1; // store.backend()\nat.store()\n.backend ()\n.state(p);\nlet f = Store::backend;";
        for path in ["crates/annals-page/src/live.rs", "crates/annals-graph/examples/chat.rs", "examples/chat/main.rs"]
        {
            assert_eq!(lines(path, text), [3, 5]);
        }
        assert_eq!(lines("crates/annals-langgraph/src/read.rs", text), [0; 0]);
        assert_eq!(lines(WRAPS_BACKEND, "store.backend();\nself.backend.commit(b);\nstore.backend();"), [3]);
    }

    #[test]
    fn the_table_itself_goes_down() {
        for (floor, (folder, may)) in MAY_IMPORT.iter().enumerate() {
            for other in may.iter().filter(|other| **other != "error") {
                let below = MAY_IMPORT.iter().position(|(name, _)| name == other).unwrap();
                let beside = (*folder, *other) == ("task", "graph");
                assert!(below < floor || beside, "{folder} may not import {other}");
            }
        }
    }
}
