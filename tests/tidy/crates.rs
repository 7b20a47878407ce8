//! The rules that look at a crate as a whole, its floor and its names, and the counts of the report.

use std::collections::BTreeMap;

use crate::house::Files;
use crate::items::{self, Kind, Named};
use crate::prose::places;
use crate::rules::{Violation, is_test_file, split_name};
use crate::scan::Source;

/// A crate of the workspace.
pub(crate) struct Crate {
    pub(crate) name: &'static str,
    /// The folder of its sources.
    pub(crate) src: &'static str,
    /// The crates of the workspace that its manifest may name as dependencies.
    pub(crate) may_use: &'static [&'static str],
}

/// The published libraries, from the ground up.
pub(crate) const LIBRARIES: &[Crate] = &[
    Crate { name: "annals-base", src: "crates/annals-base/src/", may_use: &[] },
    Crate { name: "annals-messages", src: "crates/annals-messages/src/", may_use: &["annals-base"] },
    Crate { name: "annals-derive", src: "crates/annals-derive/src/", may_use: &[] },
    Crate { name: "annals", src: "src/", may_use: &["annals-base", "annals-messages", "annals-derive"] },
    Crate { name: "annals-runs", src: "crates/annals-runs/src/", may_use: &["annals"] },
    Crate { name: "annals-graph", src: "crates/annals-graph/src/", may_use: &["annals", "annals-runs"] },
    Crate {
        name: "annals-pydantic-ai",
        src: "crates/annals-pydantic-ai/src/",
        may_use: &["annals-base", "annals-messages", "annals-graph"],
    },
    Crate {
        name: "annals-import",
        src: "crates/annals-import/src/",
        may_use: &["annals-base", "annals-messages", "annals", "annals-runs"],
    },
    Crate {
        name: "annals-langgraph",
        src: "crates/annals-langgraph/src/",
        may_use: &["annals-base", "annals-messages", "annals", "annals-import", "annals-runs"],
    },
    Crate { name: "annals-postgres", src: "crates/annals-postgres/src/", may_use: &["annals"] },
    Crate { name: "annals-mcp", src: "crates/annals-mcp/src/", may_use: &["annals", "annals-runs"] },
    Crate { name: "annals-view", src: "crates/annals-view/src/", may_use: &["annals", "annals-runs"] },
    Crate { name: "annals-page", src: "crates/annals-page/src/", may_use: &["annals", "annals-runs", "annals-view"] },
    Crate {
        name: "annals-agents",
        src: "crates/annals-agents/src/",
        may_use: &["annals", "annals-base", "annals-messages", "annals-graph", "annals-pydantic-ai"],
    },
    Crate { name: "annals-flow", src: "crates/annals-flow/src/", may_use: &["annals", "annals-graph"] },
];

impl Crate {
    fn sources<'a>(&'a self, files: &'a Files) -> impl Iterator<Item = (&'a String, &'a String)> {
        files.iter().filter(|(path, _)| self.holds(path))
    }

    /// Returns whether a file is one of its sources, and of no test. The conformance suite is a test that is published.
    fn holds(&self, path: &str) -> bool {
        let is_suite = is_test_file(path) || path.starts_with("src/store/conformance/");
        path.starts_with(self.src) && path.ends_with(".rs") && !is_suite
    }

    fn manifest(&self) -> String {
        format!("{}Cargo.toml", self.src.trim_end_matches("src/"))
    }
}

/// The dependencies of a crate on others of the workspace go down.
pub(crate) fn floors(files: &Files, sources: &[&Source], libraries: &[Crate]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for library in libraries {
        let path = library.manifest();
        let mut in_dependencies = false;
        for (number, line) in files.get(&path).map_or("", String::as_str).lines().enumerate() {
            if line.starts_with('[') {
                in_dependencies = line.trim() == "[dependencies]";
            }
            let name: String = line.chars().take_while(|c| c.is_alphanumeric() || *c == '-').collect();
            if in_dependencies && name.starts_with("annals") && !library.may_use.contains(&name.as_str()) {
                let what = format!("{} must not depend on {name}: dependencies go down", library.name);
                violations.push(Violation::of(&path, number + 1, what));
            }
        }
        // The derive macro spells the crate for which it generates code.
        let own = sources.iter().filter(|source| library.holds(&source.path) && library.name != "annals-derive");
        for source in own {
            for (at, word) in source.words().filter(|(at, word)| source.code[at + word.len()..].starts_with("::")) {
                let name = word.replace('_', "-");
                let known = libraries.iter().any(|other| other.name == name) && name != library.name;
                if known && !library.may_use.contains(&name.as_str()) {
                    violations.push(Violation::at(source, at, format!("{} must not use `{word}`", library.name)));
                }
            }
        }
    }
    violations
}

/// The file that names the special writes of executors.
const SPECIAL_WRITES: &str = "crates/annals-runs/src/special.rs";

/// Words of runs that the engine does not know, besides the channels of special writes.
const RUN_WORDS: &[&str] = &["branch:to:", "signals:mailbox", "stuck"];

/// The engine is a log: it does not know the words of the runs that are stored on it.
pub(crate) fn run_words(files: &Files) -> Vec<Violation> {
    let specials = files.iter().find(|(path, _)| path.as_str() == SPECIAL_WRITES).map_or("", |(_, text)| text.as_str());
    let channels: Vec<String> = specials
        .split('"')
        .filter(|text| text.starts_with("__") && text.ends_with("__"))
        .map(|channel| channel.to_owned())
        .collect();
    let words = || RUN_WORDS.iter().copied().chain(channels.iter().map(String::as_str));
    let mut found = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| path.starts_with("src/") && path.ends_with(".rs")) {
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.to_lowercase();
            found.extend(words().filter(|word| text.contains(word)).map(|word| {
                Violation::of(path, line, format!("`{word}` is a word of runs, which `annals-runs` owns"))
            }));
        }
    }
    found
}

/// The places of crates that share the modules `internal` of `annals-base` and `annals-messages`, and of the programs
/// that compare these with Python and fuzz them. Every other file is a client of the public API.
const SHARING_INTERNALS: &[&str] = &[
    "src/",
    "crates/annals-base/",
    "crates/annals-messages/",
    "crates/annals-pydantic-ai/",
    "crates/annals-agents/",
    "crates/annals-parity/",
    "tests/fuzz/",
];

/// Clients of the public API do not name the modules `internal`.
pub(crate) fn internals(source: &Source) -> Vec<Violation> {
    if SHARING_INTERNALS.iter().any(|start| source.path.starts_with(start)) {
        return Vec::new();
    }
    let is_path =
        |at: usize| source.code[..at].trim_end().ends_with("::") || source.code[at..].starts_with("internal::");
    let found = source.places("internal").filter(|at| is_path(*at));
    found.map(|at| Violation::at(source, at, "`internal` is not part of the public interface of a crate")).collect()
}

/// Names that the page `annals::store` may list: those of users, and the modules of the others.
pub(crate) const STORE_NAMES_MAX: usize = 45;

/// The page of the store has room for the names of users alone.
pub(crate) fn store_page(files: &Files) -> Vec<Violation> {
    let path = "src/store/mod.rs";
    let names = items::page(path, files.get(path).map_or("", String::as_str));
    let is_over = names.len() > STORE_NAMES_MAX;
    let what = || format!("the page lists {} names, {STORE_NAMES_MAX} are allowed: {}", names.len(), names.join(", "));
    is_over.then(|| Violation::of(path, 0, what())).into_iter().collect()
}

/// Returns the number of public items of a crate, with those that rustdoc hides and those that calls of macros declare;
/// without fields and variants, and without its module `internal`, which promises nothing.
pub(crate) fn public_items(files: &Files, library: &Crate) -> usize {
    let promised = library.sources(files).filter(|(path, _)| !path.contains("/src/internal/"));
    promised.map(|(path, text)| public(path, text).filter(counts).count()).sum()
}

/// Public structs whose fields are their definition, so that a literal stays right.
const BY_LITERAL: &[&str] = &["Encoded"];

/// A public struct can get another field without breaking a caller: it is `#[non_exhaustive]`, or has a private field.
/// A tuple struct wraps its value and is exempt.
pub(crate) fn open_structs(path: &str, text: &str) -> Vec<Violation> {
    if !is_library(path) || is_test_file(path) || path.contains("/src/internal/") {
        return Vec::new();
    }
    let open = items::open_structs(path, text).into_iter().filter(|item| !BY_LITERAL.contains(&item.name.as_str()));
    open.map(|item| Violation::of(path, item.line, format!("`{}` is not `#[non_exhaustive]`", item.name))).collect()
}

fn public(path: &str, text: &str) -> impl Iterator<Item = Named> {
    items::of(path, text).into_iter().filter(|item| item.is_public)
}

fn counts(item: &Named) -> bool {
    item.kind != Kind::Part
}

const ASSERTIONS: &[&str] = &["assert", "assert_eq", "assert_ne", "debug_assert", "debug_assert_eq", "debug_assert_ne"];

/// Returns the assertions of a crate per 1,000 code lines, tests not counted.
pub(crate) fn assertions<'a>(sources: impl IntoIterator<Item = &'a Source>, library: &Crate) -> f64 {
    let (mut found, mut lines) = (0_usize, 0_usize);
    for source in sources.into_iter().filter(|source| library.holds(&source.path)) {
        let tests = source.test_blocks();
        let calls = source.words().filter(|(at, word)| {
            let is_call = ASSERTIONS.contains(word) && source.code[at + word.len()..].starts_with('!');
            is_call && !tests.iter().any(|block| block.contains(at))
        });
        found += calls.count();
        let in_tests: usize = tests.iter().map(|block| source.code_lines(block.clone())).sum();
        lines += source.code_lines(0..source.code.len()) - in_tests;
    }
    1_000.0 * found as f64 / lines.max(1) as f64
}

/// Every maximum and every duration of a library stands in a file `limits.rs`.
pub(crate) fn maxima(path: &str, text: &str) -> Vec<Violation> {
    if path.ends_with("/limits.rs") || !is_library(path) || is_test_file(path) {
        return Vec::new();
    }
    // SQL texts that ask for a maximum are not limits.
    let is_max = |item: &Named| item.name.ends_with("_MAX") && !path.ends_with("/sql.rs");
    let limits = items::of(path, text)
        .into_iter()
        .filter(|item| item.kind == Kind::Duration || (item.kind == Kind::Const && is_max(item)));
    limits.map(|item| Violation::of(path, item.line, format!("`{}` belongs into limits.rs", item.name))).collect()
}

/// The name of a type is used once in the workspace, tests not counted; each crate has an `Error` and a `Result`.
pub(crate) fn type_names(files: &Files) -> Vec<Violation> {
    let mut found: BTreeMap<String, Vec<(String, usize)>> = BTreeMap::new();
    for (path, text) in files.iter().filter(|(path, _)| is_published(path) || is_program(path)) {
        for item in items::of(path, text).into_iter().filter(|item| item.kind == Kind::Type) {
            found.entry(item.name).or_default().push((path.clone(), item.line));
        }
    }
    let twice =
        found.into_iter().filter(|(name, places)| places.len() > 1 && !["Error", "Result"].contains(&name.as_str()));
    twice
        .map(|(name, places)| {
            let others: Vec<String> =
                places[..places.len() - 1].iter().map(|(path, line)| format!("{path}:{line}")).collect();
            let (path, line) = &places[places.len() - 1];
            Violation::of(path, *line, format!("the type name `{name}` is used in {} too", others.join(" and ")))
        })
        .collect()
}

/// Returns true for a source file that is published: of a library or of the command.
pub(crate) fn is_published(path: &str) -> bool {
    (is_library(path) || path.starts_with("crates/annals-cli/src/")) && path.ends_with(".rs") && !is_test_file(path)
}

/// Returns true for a source file of a program that is never published: the harnesses and the figures.
fn is_program(path: &str) -> bool {
    let of_programs = ["crates/annals-sim/src/", "crates/annals-parity/src/", "benches/"];
    of_programs.iter().any(|start| path.starts_with(start)) && path.ends_with(".rs") && !is_test_file(path)
}

/// Returns true for a file of a published library.
pub(crate) fn is_library(path: &str) -> bool {
    LIBRARIES.iter().any(|library| path.starts_with(library.src))
}

/// Words that public names do not contain, with the words of the field that replace them.
pub(crate) const NAME_WORDS: &[(&str, &str)] = &[
    ("question", "interrupt"),
    ("questions", "interrupts"),
    ("answer", "resume value"),
    ("answers", "resume values"),
    ("piece", "chunk"),
    ("pieces", "chunks"),
    ("sum", "checksum or hash"),
    ("sums", "checksums or hashes"),
    ("anchor", "index snapshot"),
    ("anchors", "index snapshots"),
    ("slot", "position"),
    ("slots", "positions"),
    ("cut", "range delete"),
    ("cuts", "range deletes"),
    ("kept", "cached, persisted or retained"),
    ("moment", "timestamp"),
    ("moments", "timestamps"),
    ("inside", "subgraph"),
    ("whoever", "a noun"),
    ("nobody", "a noun"),
];

/// Phrases that messages do not contain.
pub(crate) const MESSAGE_PHRASES: &[&str] = &[
    "question",
    "questions",
    "piece",
    "pieces",
    "anchor",
    "anchors",
    "slot",
    "slots",
    "kept",
    "moment",
    "moments",
    "is no",
    "are no",
    "nobody",
    "whoever",
];

/// Banned words in the public names of a file.
pub(crate) fn name_words(path: &str, text: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    for item in public(path, text) {
        for word in split_name(&item.name) {
            if let Some((_, better)) = NAME_WORDS.iter().find(|(banned, _)| *banned == word) {
                let what = format!("public name `{}`: say {better}, not {word}", item.name);
                violations.push(Violation::of(path, item.line, what));
            }
        }
    }
    violations
}

/// Banned phrases in the messages of a file: its string literals of more than one word, outside tests.
pub(crate) fn message_phrases(source: &Source) -> Vec<Violation> {
    let mut violations = Vec::new();
    if crate::rules::is_statements(&source.path) {
        // Its strings are statements, some of them in parts, which name the columns.
        return violations;
    }
    let tests = source.test_blocks();
    let messages = source.strings.iter().filter(|(at, text)| {
        text.trim().contains(' ') && !crate::rules::is_sql(text) && !tests.iter().any(|block| block.contains(at))
    });
    for (at, text) in messages {
        // That something does not exist is said plainly.
        let lower = text.to_lowercase().replace("there is no ", "").replace("there are no ", "");
        let found = MESSAGE_PHRASES.iter().filter(|phrase| !places(&lower, phrase).is_empty());
        violations.extend(found.map(|phrase| Violation::at(source, *at, format!("a message says `{phrase}`: {text}"))));
    }
    violations
}

/// Leaves out the violations that stand until they are repaired, by the name between backticks. A name that violates
/// nothing is itself a violation, so that the list only shrinks.
pub(crate) fn but_for(standing: &[&str], violations: Vec<Violation>) -> Vec<Violation> {
    let matches = |violation: &Violation, name: &str| violation.what.contains(&format!("`{name}`"));
    let unused = standing.iter().filter(|name| !violations.iter().any(|violation| matches(violation, name)));
    let mut left: Vec<Violation> = unused
        .map(|name| Violation::of("tests/tidy/standing.rs", 0, format!("`{name}` is repaired: remove it")))
        .collect();
    left.extend(violations.into_iter().filter(|violation| !standing.iter().any(|name| matches(violation, name))));
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(entries: &[(&str, &str)]) -> Files {
        entries.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    fn found(violations: &[Violation]) -> Vec<(&str, usize)> {
        violations.iter().map(|violation| (violation.path.as_str(), violation.line)).collect()
    }

    fn planted_crate() -> Crate {
        let src = "crates/annals-graph/src/";
        Crate { name: "annals-graph", src, may_use: &["annals"] }
    }

    #[test]
    fn dependencies_that_go_up_are_found() {
        let manifest = "[package]\nname = \"annals-graph\"\n[dependencies]\nannals = \"1\"\nannals-base = \"1\"\n\
                        [dev-dependencies]\nannals-messages = \"1\"\n";
        let planted = files(&[("crates/annals-graph/Cargo.toml", manifest)]);
        let text = "use annals::base;\nuse annals_messages::Message;\nuse annals_graph::x;";
        let source = Source::new("crates/annals-graph/src/a.rs", text);
        let libraries =
            [planted_crate(), Crate { name: "annals-messages", src: "crates/annals-messages/src/", ..planted_crate() }];
        let places = [("crates/annals-graph/Cargo.toml", 5), ("crates/annals-graph/src/a.rs", 2)];
        assert_eq!(found(&floors(&planted, &[&source], &libraries)), places);
    }

    #[test]
    fn words_of_runs_in_the_engine_are_found() {
        let files: Files = [
            (SPECIAL_WRITES, "Self::Error => \"__error__\","),
            ("src/store/a.rs", "fine\nlet a = \"branch:to:b\";\n// a Stuck run\nlet b = \"__error__\";"),
            ("crates/annals-graph/src/b.rs", "__error__"),
        ]
        .map(|(path, text)| (path.to_owned(), text.to_owned()))
        .into_iter()
        .collect();
        let lines: Vec<usize> = run_words(&files).iter().map(|violation| violation.line).collect();
        assert_eq!(lines, [2, 3, 4]);
    }

    #[test]
    fn internals_in_clients_are_found() {
        let text = "use annals::base::internal::hash;\nuse annals::base::{Value, internal::Stopwatch};\n\
                    use annals::message::internal;\nlet internal = 1;\n";
        let lines = |path: &str| -> Vec<usize> {
            internals(&Source::new(path, text)).iter().map(|violation| violation.line).collect()
        };
        assert_eq!(lines("crates/annals-graph/src/a.rs"), [1, 2, 3]);
        assert_eq!(lines("crates/annals-graph/tests/it/a.rs"), [1, 2, 3]);
        assert_eq!(lines("src/store/a.rs"), [0; 0]);
    }

    #[test]
    fn public_items_are_counted_without_fields_and_tests() {
        let text = "pub fn a() {}\npub(crate) fn b() {}\npub enum C { D }\n";
        let planted =
            files(&[("crates/annals-graph/src/a.rs", text), ("crates/annals-graph/src/tests.rs", "pub fn f() {}")]);
        assert_eq!(public_items(&planted, &planted_crate()), 2);
    }

    #[test]
    fn assertions_are_counted_without_those_of_tests() {
        let text = "fn a() {\n    debug_assert!(b);\n    assert_eq!(c, d);\n}\n#[cfg(test)]\nmod tests {\n    fn e() {\n        assert!(f);\n    }\n}\n";
        let planted = Source::new("crates/annals-graph/src/a.rs", text);
        // The attribute is a line of code.
        assert_eq!(assertions([&planted], &planted_crate()), 1_000.0 * 2.0 / 5.0);
    }

    #[test]
    fn a_maximum_elsewhere_is_found() {
        let text = "const A: u8 = 0;\nconst B_MAX: u8 = 0;\nimpl C {\n    pub const D_MAX: u8 = 0;\n}";
        assert_eq!(found(&maxima("src/a.rs", text)), [("src/a.rs", 2), ("src/a.rs", 4)]);
        assert_eq!(found(&maxima("src/limits.rs", text)), []);
        let waits = "use std::time::Duration;\n\nconst IDLE: Duration = Duration::from_secs(1);";
        assert_eq!(
            found(&maxima("crates/annals-graph/src/drive/a.rs", waits)),
            [("crates/annals-graph/src/drive/a.rs", 3)]
        );
        assert_eq!(found(&maxima("crates/annals-flow/src/limits.rs", waits)), []);
        assert_eq!(found(&maxima("src/a/tests/b.rs", text)), []);
    }

    #[test]
    fn a_type_name_that_is_used_twice_is_found() {
        let planted = files(&[
            ("src/a.rs", "struct Share;\nstruct B;\n#[cfg(test)]\nmod tests { struct B; }"),
            ("crates/annals-cli/src/a.rs", "enum C {}\n\npub(crate) trait Share {}"),
            ("crates/annals-cli/tests/a.rs", "struct C;"),
            ("crates/annals-sim/src/a.rs", "struct D;"),
            ("benches/src/a.rs", "\ntype D = u8;\ntype Result = D;"),
        ]);
        assert_eq!(found(&type_names(&planted)), [("crates/annals-sim/src/a.rs", 1), ("src/a.rs", 1)]);
    }

    #[test]
    fn banned_words_are_found() {
        let names = "pub struct AnswerList { pub slot: u8, sum: u8 }\nfn question() {}\npub fn summary() {}";
        assert_eq!(found(&name_words("src/a.rs", names)), [("src/a.rs", 1), ("src/a.rs", 1)]);
        let text = "#[error(\"it is no state\")]\nstruct A;\nfn f() { g(\"slot\"); g(\"A Slot {x}\"); g(\"is not it\") }\n\
                    #[cfg(test)]\nmod tests { fn h() { g(\"is no b\") } }";
        assert_eq!(found(&message_phrases(&Source::new("src/a.rs", text))), [("src/a.rs", 1), ("src/a.rs", 3)]);
    }

    #[test]
    fn the_list_of_standing_violations_shrinks() {
        let violation = || vec![Violation::of("src/a.rs", 1, "the type name `A` is used twice")];
        assert!(but_for(&["A"], violation()).is_empty());
        assert_eq!(found(&but_for(&["B"], violation())), [("tests/tidy/standing.rs", 0), ("src/a.rs", 1)]);
    }
}
