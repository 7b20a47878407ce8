//! Rules for the documents: the paths, crates, types and dependencies that they name are those of the repository.

use std::collections::BTreeMap;
use std::path::Path;

use crate::house::Files;
use crate::rules::Violation;

/// Documents whose paths in code spans must exist.
const WITH_PATHS: &[&str] =
    &["README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/design.md", "docs/parity.md"];
const ARCHITECTURE: &str = "docs/architecture.md";
const DESIGN: &str = "docs/design.md";
const GLOSSARY: &str = "docs/glossary.md";

/// Returns the code spans of a line.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Returns the lines outside fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((at + 1, line))
    })
}

fn is_path(span: &str) -> bool {
    let plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "/_-.".contains(c));
    let ends = [".rs", ".md", ".sql", ".toml", ".txt", "/"].iter().any(|end| span.ends_with(end));
    plain && ends && span.contains('/') && !span.starts_with('/')
}

/// Returns whether a file or a folder has this path, or a path that ends with it.
fn exists(files: &Files, path: &str) -> bool {
    let inner = format!("/{path}");
    files.keys().any(|file| match path.ends_with('/') {
        true => file.starts_with(path) || file.contains(&inner),
        false => file == path || file.ends_with(&inner),
    })
}

/// The paths that documents name exist.
pub(crate) fn paths(files: &Files) -> Vec<Violation> {
    let mut violations = Vec::new();
    for document in WITH_PATHS {
        for (line, text) in prose(files.get(*document).map_or("", String::as_str)) {
            for span in spans(text).filter(|span| is_path(span) && !exists(files, span)) {
                violations.push(Violation::of(*document, line, format!("`{span}` does not exist")));
            }
        }
    }
    violations
}

/// Each crate has a row in the table of the workspace.
pub(crate) fn crates(files: &Files) -> Vec<Violation> {
    let text = files.get(ARCHITECTURE).map_or("", String::as_str);
    let folders = files.keys().filter_map(|path| path.strip_suffix("/Cargo.toml"));
    let unnamed = folders.filter(|folder| !text.contains(&format!("| `{folder}`")));
    unnamed.map(|folder| Violation::of(ARCHITECTURE, 0, format!("`{folder}` is not in the workspace table"))).collect()
}

/// Each type of the table of types is declared at the place that its row names.
pub(crate) fn types(files: &Files) -> Vec<Violation> {
    let text = files.get(ARCHITECTURE).map_or("", String::as_str);
    let rows = text.lines().enumerate().skip_while(|(_, line)| !line.starts_with("| type | place |"));
    let mut violations = Vec::new();
    for (at, row) in rows.skip(2).take_while(|(_, line)| line.starts_with('|')) {
        let mut cells = row.split('|').skip(1);
        let (names, places) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        let places: Vec<&str> = spans(places).collect();
        for name in spans(names) {
            let declared = |text: &str| {
                ["struct", "enum", "trait", "type"].iter().any(|word| {
                    let declaration = format!("{word} {name}");
                    text.match_indices(&declaration).any(|(from, _)| {
                        let next = text[from + declaration.len()..].chars().next();
                        !next.is_some_and(|c| c.is_alphanumeric() || c == '_')
                    })
                })
            };
            let found = files.iter().any(|(path, text)| places.iter().any(|at| path.starts_with(at)) && declared(text));
            if !found {
                let places = places.join(", ");
                violations.push(Violation::of(ARCHITECTURE, at + 1, format!("`{name}` is not declared in {places}")));
            }
        }
    }
    violations
}

/// No noun has two rows in the tables of nouns of the glossary.
pub(crate) fn nouns(files: &Files) -> Vec<Violation> {
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    let mut violations = Vec::new();
    let mut of_nouns = false;
    for (line, text) in prose(files.get(GLOSSARY).map_or("", String::as_str)) {
        of_nouns = text.starts_with("| noun |") || (of_nouns && text.starts_with('|'));
        let nouns = text.split('|').nth(1).filter(|_| of_nouns && !text.starts_with("| noun |")).unwrap_or_default();
        for noun in nouns.split(',').map(str::trim).filter(|noun| !noun.is_empty() && *noun != "---") {
            if let Some(first) = rows.insert(noun, line) {
                violations.push(Violation::of(GLOSSARY, line, format!("`{noun}` has a row already, at line {first}")));
            }
        }
    }
    if rows.is_empty() {
        violations.push(Violation::of(GLOSSARY, 0, "it has no table of nouns"));
    }
    violations
}

/// Each dependency of a package has a reason in the design document.
pub(crate) fn dependencies(files: &Files) -> Vec<Violation> {
    let text = files.get(DESIGN).map_or("", String::as_str);
    let reasons = &text[text.find("## Dependencies").unwrap_or(text.len())..];
    let mut violations = Vec::new();
    for (path, manifest) in files.iter().filter(|(path, _)| Path::new(path).ends_with("Cargo.toml")) {
        let mut section = "";
        for (at, line) in manifest.lines().enumerate() {
            if line.starts_with('[') {
                section = line;
                continue;
            }
            let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
            let is_dependency = section.ends_with("dependencies]") && line.contains('=') && !name.starts_with('#');
            if is_dependency && !name.starts_with("annals") && !reasons.contains(&format!("`{name}`")) {
                violations.push(Violation::of(path, at + 1, format!("`{name}` has no reason in {DESIGN}")));
            }
        }
    }
    violations
}

/// The results of the last full run of `crates/annals-sim`.
const RESULTS: &str = "docs/reliability.json";

/// The document that cites all counts, and those that may cite some.
const CITING_ALL: &str = "docs/guides/durability.md";
const CITING: &[&str] = &["README.md", CITING_ALL, "docs/reliability.md"];

/// The counts that documents cite are those of the results: a number of cuts, faults, flips and so on, with the number
/// that went wrong.
pub(crate) fn reliability(files: &Files) -> Vec<Violation> {
    let results = files.get(RESULTS).map_or("", String::as_str);
    let phrases = [
        ("power_cuts_run", "power cuts", "power_cuts_lost", "lost"),
        ("faults_run", "injected errors", "faults_lied", "lied"),
        ("kills_run", "kills", "kills_lost", "lost"),
        ("flips_run", "flipped bytes", "flips_wrong", "wrong"),
        ("forgeries_run", "forged files", "forgeries_missed", "missed"),
        ("mutants_run", "mutants", "mutants_open", "open"),
    ];
    let mut violations = Vec::new();
    for (run, of, bad, how) in phrases {
        let (Some(runs), Some(failures)) = (number_of(results, run), number_of(results, bad)) else {
            violations.push(Violation::of(RESULTS, 0, format!("it does not hold {run} and {bad}")));
            continue;
        };
        let phrase = format!("{} {of}, {} {how}", grouped(runs), grouped(failures));
        for document in CITING {
            let text = files.get(*document).map_or("", String::as_str);
            let cites = *document == CITING_ALL || text.contains(&format!(" {of}, "));
            if cites && !text.contains(&phrase) {
                violations.push(Violation::of(*document, 0, format!("by {RESULTS} it must say `{phrase}`")));
            }
        }
    }
    violations
}

/// Returns the number of a member of a JSON object.
fn number_of(json: &str, name: &str) -> Option<u64> {
    let (_, rest) = json.split_once(&format!("\"{name}\":"))?;
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Writes a number with commas between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(entries: &[(&str, &str)]) -> Files {
        entries.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn paths_that_do_not_exist_are_found() {
        let text = "`src/a.rs` `a/b.rs` `src/c.rs`\n```\n`x/y.rs`\n```\n`src/none/` `src/`\n";
        let found = paths(&files(&[("README.md", text), ("src/a.rs", ""), ("src/a/b.rs", "")]));
        assert_eq!(found.iter().map(|one| one.line).collect::<Vec<_>>(), [1, 5]);
    }

    #[test]
    fn crates_without_a_row_are_found() {
        let table = (ARCHITECTURE, "| `crates/a` | x |\n");
        assert_eq!(crates(&files(&[table, ("crates/a/Cargo.toml", ""), ("crates/b/Cargo.toml", "")])).len(), 1);
    }

    #[test]
    fn types_that_are_declared_elsewhere_are_found() {
        let table = (ARCHITECTURE, "| type | place |\n| --- | --- |\n| `A`, `B`, `C` | `src/x.rs` | z |\n\n`D`\n");
        let found = types(&files(&[table, ("src/x.rs", "pub struct A;\nenum Bee {}\n"), ("src/y.rs", "trait C {}")]));
        assert_eq!(found.len(), 2, "{}", found[0]);
    }

    #[test]
    fn nouns_with_two_rows_are_found() {
        let text = "| noun | upstream | meaning |\n| --- | --- | --- |\n| a, b | | x |\n| c | a | y |\n\n\
                    | noun | upstream | meaning |\n| --- | --- | --- |\n| d, a | | z |\n\n\
                    | word | upstream | here |\n| --- | --- | --- |\n| c | | z |\n";
        let found = nouns(&files(&[(GLOSSARY, text)]));
        assert_eq!(found.iter().map(|one| one.line).collect::<Vec<_>>(), [8]);
        assert_eq!(nouns(&files(&[(GLOSSARY, "no table")])).len(), 1);
    }

    #[test]
    fn dependencies_without_a_reason_are_found() {
        let manifest = "[dependencies]\na = \"1\"\nb.workspace = true\n# c = 1\n[dev-dependencies]\nd = \"1\"\n[features]\ne = []\n";
        let design = (DESIGN, "`d`\n## Dependencies\n| `a` | x |\n");
        let found = dependencies(&files(&[design, ("Cargo.toml", manifest)]));
        assert_eq!(found.iter().map(|one| one.line).collect::<Vec<_>>(), [3, 6]);
    }

    #[test]
    fn counts_that_differ_from_the_results_are_found() {
        let results = "{\"power_cuts_run\": 12345, \"power_cuts_lost\": 0, \"faults_run\": 7, \"faults_lied\": 1,\n\
                       \"kills_run\": 500, \"kills_lost\": 0, \"flips_run\": 1000, \"flips_wrong\": 10,\n\
                       \"forgeries_run\": 20, \"forgeries_missed\": 0, \"mutants_run\": 30, \"mutants_open\": 2}";
        let readme = "12,345 power cuts, 0 lost; 7 injected errors, 0 lied; 500 kills, 0 lost; 1,000 flipped bytes, \
                      10 wrong; 20 forged files, 0 missed; 30 mutants, 2 open";
        let citing = [(CITING[0], readme), (CITING[1], readme)];
        let found = reliability(&files(&[citing[0], citing[1], (RESULTS, results)]));
        assert_eq!(found.len(), 2, "7 injected errors, 1 lied, in two documents");
        assert_eq!(reliability(&files(&[citing[0], (RESULTS, results)])).len(), 1 + 6, "a document is missing");
        assert_eq!(reliability(&files(&[citing[0], citing[1], (RESULTS, "{}")])).len(), 6);
    }
}
