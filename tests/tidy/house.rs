//! The rules that look at the repository as a whole.

use std::collections::BTreeMap;
use std::path::Path;

use crate::rules::Violation;

/// The files of the repository that are text, by path.
pub(crate) type Files = BTreeMap<String, String>;

/// The schema file of the format with the FNV-1a hash of its bytes. Before the first release it changes with the stored
/// file of `tests/compat`, which is made anew; a release makes it final.
pub(crate) const FINAL_SCHEMA: &[(&str, u64)] = &[("schema/sqlite/schema.sql", 0xc212_6789_36a5_579a)];

/// The extensions of text files.
const TEXT: &[&str] = &["rs", "toml", "md", "sql", "sh", "py", "json", "yml", "yaml", "txt", "lock"];

/// Reads the repository at `root`: no build folders, no hidden ones but those of continuous integration.
pub(crate) fn read(root: &Path) -> Files {
    let mut files = Files::new();
    walk(root, root, &mut files);
    files
}

fn walk(root: &Path, folder: &Path, files: &mut Files) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let hidden = name.starts_with('.') && !matches!(name.as_str(), ".ci" | ".github" | ".gitignore");
        if hidden || name == "target" {
            continue;
        }
        if path.is_dir() {
            walk(root, &path, files);
            continue;
        }
        let shown = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
        let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
        if TEXT.contains(&ending) || shown.starts_with(".ci/") || name.starts_with("LICENSE") {
            files.insert(shown, std::fs::read_to_string(&path).unwrap());
        }
    }
}

/// Words that do not belong in the repository: places on somebody's machine, and how the work was organised.
pub(crate) fn foreign_words(files: &Files) -> Vec<Violation> {
    // Put together, so that this file does not hold them.
    let places = [concat!("/wo", "rk/"), concat!("/ho", "me/"), concat!("/Use", "rs/"), concat!("/ro", "ot/")];
    let words = [concat!("suba", "gent"), concat!("sub-a", "gent")];
    let mut violations = Vec::new();
    for (path, text) in files {
        for (number, line) in text.lines().enumerate() {
            // The histories of other programs name folders of the people who wrote them.
            let place = places.iter().filter(|_| !path.starts_with("tests/parity/agents/")).find(|place| {
                // A place begins a path: `a/home/b` is a relative one.
                let begins = |(at, _): (usize, &str)| {
                    !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '-' || c == '.')
                };
                line.match_indices(**place).any(begins)
            });
            // Vectors repeat the words of the reference.
            let lower = if path.starts_with("tests/parity/") { String::new() } else { line.to_lowercase() };
            let word = words.iter().find(|word| lower.contains(**word));
            if let Some(found) = place.or(word) {
                violations.push(Violation::of(
                    path,
                    number + 1,
                    format!("`{found}` does not belong in the repository"),
                ));
            }
        }
    }
    violations
}

/// Every file of a test binary or a folder is declared where it belongs, or it is never compiled.
pub(crate) fn forgotten(files: &Files) -> Vec<Violation> {
    let mut violations = Vec::new();
    for path in files.keys().filter(|path| path.ends_with(".rs")) {
        let Some((parents, name)) = parents_of(path) else { continue };
        let parent = parents.iter().find_map(|parent| files.get(parent).map(|text| (parent, text)));
        match parent {
            Some((_, text)) if declares(text, name) => {}
            Some((parent, _)) => violations.push(Violation::of(path, 0, format!("not declared in {parent}"))),
            None => {
                violations.push(Violation::of(path, 0, format!("no file declares it: there is none of {parents:?}")))
            }
        }
    }
    violations
}

/// Returns the files that may declare a module, and its name; `None` for the root of a crate.
fn parents_of(path: &str) -> Option<(Vec<String>, &str)> {
    let (folder, file) = path.rsplit_once('/')?;
    let mut name = file.strip_suffix(".rs")?;
    let mut folder = folder;
    let is_root = |folder: &str| folder == "src" || folder.ends_with("/src") || folder == "tests/it";
    // Cargo finds these by itself: a binary each.
    let of_binaries = matches!(folder, "tests" | "benches" | "examples")
        || folder.ends_with("/src/bin")
        || folder.ends_with("/examples");
    if is_root(folder) && matches!(name, "lib" | "main") || of_binaries {
        return None;
    }
    if !(is_root(folder) || folder.starts_with("src/") || folder.contains("/src/") || folder.starts_with("tests/")) {
        return None;
    }
    if name == "mod" {
        (folder, name) = folder.rsplit_once('/')?;
    }
    let parents = match folder {
        folder if is_root(folder) => vec![format!("{folder}/lib.rs"), format!("{folder}/main.rs")],
        folder => vec![format!("{folder}/mod.rs"), format!("{folder}.rs")],
    };
    Some((parents, name))
}

fn declares(text: &str, name: &str) -> bool {
    let declaration = format!("mod {name};");
    text.lines().map(str::trim).any(|line| !line.starts_with("//") && line.ends_with(&declaration))
}

/// There are two test binaries, and cargo knows both.
pub(crate) fn test_binaries(files: &Files) -> Vec<Violation> {
    let manifest = files.get("Cargo.toml").map_or("", String::as_str);
    let known: Vec<&str> = value_lines(manifest, "path").filter(|path| path.starts_with("tests/")).collect();
    let mut violations = Vec::new();
    for wanted in ["tests/it/main.rs", "tests/tidy.rs"] {
        if !known.contains(&wanted) {
            violations.push(Violation::of("Cargo.toml", 0, format!("{wanted} is not a test of the package")));
        }
    }
    for path in files.keys().filter(|path| path.starts_with("tests/") && path.ends_with(".rs")) {
        if path.matches('/').count() == 1 && path != "tests/tidy.rs" {
            violations.push(Violation::of(path, 0, "a third test binary: put it into tests/it"));
        }
    }
    violations
}

/// Returns the values of the lines `key = "value"`.
fn value_lines<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| {
        let value = line.trim().strip_prefix(key)?.trim_start().strip_prefix('=')?.trim();
        value.strip_prefix('"')?.split('"').next()
    })
}

/// The README names the Rust version that the manifest asks for, and no other.
pub(crate) fn rust_version(files: &Files) -> Vec<Violation> {
    let manifest = files.get("Cargo.toml").map_or("", String::as_str);
    let Some(wanted) = value_lines(manifest, "rust-version").next() else {
        return vec![Violation::of("Cargo.toml", 0, "it has no rust-version")];
    };
    let readme = files.get("README.md").map_or("", String::as_str);
    let mut named = 0;
    let mut violations = Vec::new();
    for (number, line) in readme.lines().enumerate() {
        for (at, prefix) in line.match_indices("Rust 1.") {
            named += 1;
            let found: String = line[at + prefix.len()..].chars().take_while(char::is_ascii_digit).collect();
            if format!("1.{found}") != wanted {
                violations.push(Violation::of(
                    "README.md",
                    number + 1,
                    format!("Rust 1.{found}, but the manifest asks for {wanted}"),
                ));
            }
        }
    }
    if named == 0 {
        violations.push(Violation::of("README.md", 0, format!("it does not say that Rust {wanted} is needed")));
    }
    violations
}

/// Returns the targets of the links in a Markdown text, with their lines. Code blocks hold none.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_code = false;
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for (at, mark) in line.match_indices("](") {
            let rest = &line[at + mark.len()..];
            found.extend(rest.split_once(')').map(|(target, _)| (number + 1, target.to_owned())));
        }
    }
    found
}

/// Every document can be reached from the README, and every link between documents leads somewhere.
pub(crate) fn documents(files: &Files) -> Vec<Violation> {
    let is_document = |path: &str| path.ends_with(".md") && (path.starts_with("docs/") || !path.contains('/'));
    let mut reached = vec!["README.md".to_owned()];
    let mut violations = Vec::new();
    let mut at = 0;
    while at < reached.len() {
        let path = reached[at].clone();
        at += 1;
        let Some(text) = files.get(&path) else { continue };
        for (line, link) in links(text) {
            if link.contains("://") || link.starts_with('#') || link.starts_with("mailto:") {
                continue;
            }
            let target = resolve(&path, link.split('#').next().unwrap_or(""));
            if !files.contains_key(&target) && !files.keys().any(|file| file.starts_with(&format!("{target}/"))) {
                violations.push(Violation::of(&path, line, format!("the link to {link} leads nowhere")));
            } else if is_document(&target) && !reached.contains(&target) {
                reached.push(target);
            }
        }
    }
    let lost =
        files.keys().filter(|path| path.starts_with("docs/") && path.ends_with(".md") && !reached.contains(path));
    violations.extend(lost.map(|path| Violation::of(path, 0, "no link leads here from the README")));
    violations
}

/// Returns where a link in a file leads, from the root of the repository.
fn resolve(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// FNV-1a, 64 bits.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The schema files are those of the table, and the formats of a release are in it: once the changelog has a version,
/// the table is not empty.
pub(crate) fn schema(files: &Files, formats: &[(&str, u64)]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, hash) in formats {
        let reason = match files.get(*path).map(|text| fnv(text.as_bytes())) {
            Some(found) if found == *hash => continue,
            Some(found) => format!(
                "the schema was edited: its hash is {found:#018x}; make the stored file anew (tests/compat/make.sh)"
            ),
            None => "the schema file of the format is missing".to_owned(),
        };
        violations.push(Violation::of(*path, 0, reason));
    }
    let changes = files.get("CHANGELOG.md").map_or("", String::as_str);
    let has_release = changes
        .lines()
        .any(|line| line.strip_prefix("## [").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())));
    if has_release && formats.is_empty() {
        violations.push(Violation::of(
            "CHANGELOG.md",
            0,
            "a version is released and its schema files are not in the table",
        ));
    }
    violations
}

/// Returns the code of the blocks of a language in a Markdown text.
pub(crate) fn blocks(text: &str, language: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Option<Vec<&str>> = None;
    let mut wanted = false;
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(_), Some(lines)) => {
                let code = lines.join("\n");
                found.extend(wanted.then_some(code));
                open = None;
            }
            (Some(info), None) => {
                wanted = info.trim() == language;
                open = Some(Vec::new());
            }
            (None, Some(lines)) => lines.push(line),
            (None, None) => {}
        }
    }
    found
}

/// The example of the README is one that is compiled and run: a doc test of the front page, but for its hidden lines.
pub(crate) fn example(files: &Files) -> Vec<Violation> {
    let readme = files.get("README.md").map_or("", String::as_str);
    let fronts = ["src/lib.rs", "crates/annals-graph/src/lib.rs"].iter().filter_map(|path| files.get(*path));
    let page = fronts.flat_map(|front| front.lines().filter_map(|line| line.strip_prefix("//!")));
    let page: Vec<&str> = page.map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
    let visible = |block: String| {
        let lines = block.lines().filter(|line| !(line.trim_start() == "#" || line.trim_start().starts_with("# ")));
        lines.collect::<Vec<_>>().join("\n")
    };
    let tested: Vec<String> =
        [blocks(&page.join("\n"), ""), blocks(&page.join("\n"), "rust")].concat().into_iter().map(visible).collect();
    let shown = blocks(readme, "rust");
    let mut violations = Vec::new();
    if shown.is_empty() {
        violations.push(Violation::of("README.md", 0, "it shows no example"));
    }
    for _ in shown.iter().filter(|block| !tested.contains(block)) {
        violations.push(Violation::of(
            "README.md",
            0,
            "its example is not a doc test of the front page of annals or annals-graph",
        ));
    }
    violations
}

/// There are two commands to set everything up, and continuous integration runs the second.
pub(crate) fn commands(files: &Files) -> Vec<Violation> {
    let readme = files.get("README.md").map_or("", String::as_str);
    let lines: Vec<String> =
        blocks(readme, "sh").iter().flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    let tests = lines.iter().filter(|line| line.starts_with("cargo test")).count();
    let demos = lines.iter().filter(|line| line.ends_with("-- demo")).count();
    let whole = tests == 1 && demos == 1;
    (!whole)
        .then(|| Violation::of("README.md", 0, "it gives one command for the demo and one for the tests"))
        .into_iter()
        .collect()
}

/// The tests that the parity table names are there: the last column names functions, between backticks.
pub(crate) fn named_tests(files: &Files) -> Vec<Violation> {
    let table = files.get("docs/parity.md").map_or("", String::as_str);
    let rust = || files.iter().filter(|(path, _)| path.ends_with(".rs")).map(|(_, text)| text);
    let mut violations = Vec::new();
    let rows = table.lines().enumerate().filter(|(_, line)| line.starts_with("| ") && line.ends_with(" |"));
    for (number, row) in rows {
        let last = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or("");
        for name in last.split('`').skip(1).step_by(2) {
            // A sentence in snake case is a test; a file or a category is not.
            let is_test = name.matches('_').count() > 1 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            if is_test && !rust().any(|text| text.contains(&format!("fn {name}("))) {
                violations.push(Violation::of("docs/parity.md", number + 1, format!("there is no test `{name}`")));
            }
        }
    }
    violations
}

/// Returns the forbidden synonyms of the glossary: the lines of its block `synonyms`, as `wrong -> right`.
pub(crate) fn synonyms(files: &Files) -> Vec<String> {
    let glossary = files.get("docs/glossary.md").map_or("", String::as_str);
    let lines = blocks(glossary, "synonyms").join("\n");
    lines.lines().filter_map(|line| Some(line.split_once("->")?.0.trim().to_owned())).collect()
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

    #[test]
    fn foreign_words_are_found() {
        let path = format!("one\nsee {}x\n", concat!("/wo", "rk/"));
        let word = format!("a {} did it", concat!("Suba", "gent"));
        let planted = files(&[
            ("docs/a.md", &path),
            ("src/b.rs", &word),
            ("tests/parity/b.json", &word),
            ("docs/c.md", concat!("frame/", "work", "/x, network, at home")),
        ]);
        assert_eq!(found(&foreign_words(&planted)), [("docs/a.md", 2), ("src/b.rs", 1)]);
    }

    #[test]
    fn forgotten_files_are_found() {
        let planted = files(&[
            ("src/lib.rs", "mod a;\n// mod b;\n"),
            ("src/a/mod.rs", "pub mod c;\n"),
            ("src/a/c.rs", ""),
            ("src/a/c/e.rs", ""),
            ("src/a/d.rs", ""),
            ("src/b.rs", ""),
            ("tests/it/main.rs", "mod x;"),
            ("tests/it/x.rs", ""),
            ("tests/it/y.rs", ""),
            ("tests/tidy.rs", ""),
            ("tests/fuzz/src/lib.rs", ""),
            ("tests/fuzz/src/bin/target.rs", ""),
            ("tests/fuzz/examples/seeds.rs", ""),
        ]);
        let lost = ["src/a/c/e.rs", "src/a/d.rs", "src/b.rs", "tests/it/y.rs"].map(|path| (path, 0));
        assert_eq!(found(&forgotten(&planted)), lost);
    }

    #[test]
    fn a_third_test_binary_is_found() {
        let manifest = "[[test]]\npath = \"tests/it/main.rs\"\n[[test]]\npath = \"tests/tidy.rs\"\n";
        let planted = files(&[("Cargo.toml", manifest), ("tests/tidy.rs", ""), ("tests/more.rs", "")]);
        assert_eq!(found(&test_binaries(&planted)), [("tests/more.rs", 0)]);
        assert_eq!(test_binaries(&files(&[("Cargo.toml", "")])).len(), 2);
    }

    #[test]
    fn another_rust_version_is_found() {
        let manifest = ("Cargo.toml", "[workspace.package]\nrust-version = \"1.89\"\n");
        let old = files(&[manifest, ("README.md", "Needs Rust 1.89.\nOr Rust 1.80.\n")]);
        assert_eq!(found(&rust_version(&old)), [("README.md", 2)]);
        assert_eq!(rust_version(&files(&[manifest, ("README.md", "Needs Rust.")])).len(), 1);
        assert_eq!(rust_version(&files(&[manifest, ("README.md", "Needs Rust 1.89.")])).len(), 0);
    }

    #[test]
    fn lost_documents_and_dead_links_are_found() {
        let planted = files(&[
            ("README.md", "[a](docs/a.md), [web](https://example.com), [dead](docs/x.md)\n```\n[no](y.md)\n```\n"),
            ("docs/a.md", "\n[b](b.md#part) [up](../README.md) [code](../src)\n"),
            ("docs/b.md", ""),
            ("docs/c.md", ""),
            ("src/lib.rs", ""),
        ]);
        assert_eq!(found(&documents(&planted)), [("README.md", 1), ("docs/c.md", 0)]);
    }

    #[test]
    fn an_edited_schema_is_found() {
        let text = "CREATE TABLE a (b);\n";
        let path = "schema/sqlite/schema.sql";
        let planted = files(&[(path, text), ("CHANGELOG.md", "## [0.1.0] - 2026-12-01\n")]);
        let released = fnv(text.as_bytes());
        assert_eq!(found(&schema(&planted, &[(path, released)])), []);
        assert_eq!(found(&schema(&planted, &[(path, released ^ 1)])), [(path, 0)]);
        assert_eq!(found(&schema(&planted, &[])), [("CHANGELOG.md", 0)]);
        assert_eq!(found(&schema(&files(&[]), &[(path, released)])), [(path, 0)]);
        assert_eq!(fnv(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn an_untested_example_is_found() {
        let readme = ("README.md", "```rust\nfn main() {\n    a();\n}\n```\n");
        let same = files(&[
            readme,
            (
                "crates/annals-graph/src/lib.rs",
                "//! ```\n//! fn main() {\n//!     # hidden();\n//!     a();\n//! }\n//! ```\n",
            ),
        ]);
        assert_eq!(example(&same).len(), 0);
        let other = files(&[
            readme,
            ("crates/annals-graph/src/lib.rs", "//! ```\n//! fn main() {\n//!     b();\n//! }\n//! ```\n"),
        ]);
        assert_eq!(example(&other).len(), 1);
        assert_eq!(example(&files(&[("README.md", "")])).len(), 1);
    }

    #[test]
    fn a_third_command_is_found() {
        let good = "```sh\ncargo run --release -- demo\ncargo test --workspace\n```\n";
        assert_eq!(commands(&files(&[("README.md", good)])).len(), 0);
        let more = format!("{good}```sh\ncargo test --doc\n```\n");
        assert_eq!(commands(&files(&[("README.md", &more)])).len(), 1);
        assert_eq!(commands(&files(&[("README.md", "```sh\ncargo test\n```\n")])).len(), 1);
    }

    #[test]
    fn a_missing_test_is_found() {
        let table =
            "| `a` | `b_c_d_e` | `it_is_there`, `it_is_gone`, vectors `update_state` |\n| `x_y_z_a` | none | |\n";
        let planted = files(&[("docs/parity.md", table), ("tests/it/a.rs", "fn it_is_there() {}")]);
        let violations = named_tests(&planted);
        assert_eq!(found(&violations), [("docs/parity.md", 1)]);
        assert!(violations[0].what.contains("it_is_gone"));
    }

    #[test]
    fn synonyms_come_from_the_glossary() {
        let glossary = ("docs/glossary.md", "text\n```synonyms\nsession -> thread\nsave_point -> checkpoint\n```\n");
        assert_eq!(synonyms(&files(&[glossary])), ["session", "save_point"]);
    }
}
