//! The rules that look at one file.

use std::fmt;

use crate::crates::is_library;
use crate::scan::{Source, first_word};

/// Code lines that a file may have.
pub(crate) const FILE_LINES_MAX: usize = 600;
/// Code lines that a function may have.
pub(crate) const FUNCTION_LINES_MAX: usize = 70;

/// A broken rule and its place.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) path: String,
    /// Counted from 1; 0 for the file as a whole.
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl Violation {
    pub(crate) fn at(source: &Source, place: usize, what: impl Into<String>) -> Self {
        Self { path: source.path.clone(), line: source.line_of(place), what: what.into() }
    }

    pub(crate) fn of(path: impl Into<String>, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.into(), line, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Returns true for a file that holds tests alone.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Returns true for a file of a library or of a program, tests excluded.
fn is_product(path: &str) -> bool {
    ["src/", "crates/", "benches/"].iter().any(|start| path.starts_with(start)) && !is_test_file(path)
}

/// The first line of a file describes the file.
pub(crate) fn header(source: &Source) -> Vec<Violation> {
    let missing = !source.has_header;
    missing.then(|| Violation::of(&source.path, 1, "the file begins without a `//!` header")).into_iter().collect()
}

/// A file and a function fit into a head. A test may take as many lines as its case has.
pub(crate) fn size(source: &Source) -> Vec<Violation> {
    let mut violations = Vec::new();
    let tests = source.test_blocks();
    let lines = source.code_lines(0..source.code.len());
    if lines > FILE_LINES_MAX {
        violations.push(Violation::of(&source.path, 0, format!("{lines} code lines, {FILE_LINES_MAX} are allowed")));
    }
    for at in source.places("fn") {
        let (_, rest) = source.after(at + 2);
        let name = first_word(rest);
        // `fn(..)` is a type.
        let Some(block) = source.block_after(at).filter(|_| !name.is_empty()) else { continue };
        let lines = source.code_lines(at..block.end);
        let is_test = !is_product(&source.path) || tests.iter().any(|block| block.contains(&at));
        if lines > FUNCTION_LINES_MAX && !is_test {
            let what = format!("function `{name}` has {lines} code lines, {FUNCTION_LINES_MAX} are allowed");
            violations.push(Violation::at(source, at, what));
        }
    }
    violations
}

/// Returns true if a text is SQL. Statements in capitals are found anywhere, others only where they begin the text.
pub(crate) fn is_sql(text: &str) -> bool {
    let starts: Vec<&str> = crate::scan::words(text).map(|(_, word)| word).collect();
    let pair = |first: &str, second: &str| starts.windows(2).any(|words| words[0] == first && words[1] == second);
    let update = starts.windows(3).any(|words| words[0] == "UPDATE" && words[2] == "SET");
    let begins = |sql: &str| text.trim_start().to_ascii_lowercase().starts_with(sql);
    pair("INSERT", "INTO")
        || pair("INSERT", "OR")
        || pair("DELETE", "FROM")
        || ["TABLE", "INDEX", "TRIGGER", "VIEW"].iter().any(|what| pair("CREATE", what))
        || update
        || starts.iter().any(|word| *word == "SELECT" || *word == "PRAGMA" || *word == "SAVEPOINT")
        || ["select ", "insert into ", "delete from ", "create table ", "pragma ", "begin immediate"]
            .into_iter()
            .any(begins)
}

/// The folders of the backends that speak SQL.
const SQL_BACKENDS: [&str; 2] = ["src/store/sqlite/", "crates/annals-postgres/src/"];

/// Returns true for a file that holds the statements of a backend, or of one of its folders.
pub(crate) fn is_statements(path: &str) -> bool {
    SQL_BACKENDS.iter().any(|folder| path.starts_with(folder)) && path.ends_with("/sql.rs")
}

/// SQL stands in files of its own. The tests of the SQLite backend damage files by hand and may spell it, and so may
/// the case of the suite that runs statements of an application.
pub(crate) fn sql(source: &Source) -> Vec<Violation> {
    let path = source.path.as_str();
    let looks = path.starts_with("src/")
        || path.starts_with("crates/annals-cli/src/")
        || path.starts_with("crates/annals-postgres/src/");
    let is_test = path.starts_with("src/store/sqlite/tests/") || path == "src/store/conformance/transactions.rs";
    if !looks || is_statements(path) || is_test {
        return Vec::new();
    }
    let tests = if path.starts_with("src/store/sqlite/") { source.test_blocks() } else { Vec::new() };
    let strings =
        source.strings.iter().filter(|(at, text)| is_sql(text) && !tests.iter().any(|block| block.contains(at)));
    strings.map(|(at, _)| Violation::at(source, *at, "SQL outside the files `sql.rs` of a backend")).collect()
}

/// Finds calls of macros.
fn macros<'a>(source: &'a Source, names: &'a [&'a str], why: &'a str) -> impl Iterator<Item = Violation> + 'a {
    let calls =
        source.words().filter(|(at, word)| names.contains(word) && source.code[at + word.len()..].starts_with('!'));
    calls.map(move |(at, word)| Violation::at(source, at, format!("`{word}!` {why}")))
}

/// The library is silent.
pub(crate) fn printing(source: &Source) -> Vec<Violation> {
    if !is_library(&source.path) {
        return Vec::new();
    }
    macros(source, &["print", "println", "eprint", "eprintln"], "prints: the library is silent").collect()
}

/// Files that may hold unsafe code; neither is published.
const UNSAFE: &[&str] = &["benches/src/allocs.rs", "crates/annals-sim/src/vfs.rs"];

/// Nothing is left for later, switched off or unchecked.
pub(crate) fn leftovers(source: &Source) -> Vec<Violation> {
    let names = ["todo", "unimplemented", "dbg"];
    let mut violations: Vec<Violation> = macros(source, &names, "is a leftover").collect();
    // An allocator that counts, for a figure, and a file system layer that SQLite calls cannot be written without.
    if !UNSAFE.contains(&source.path.as_str()) {
        violations.extend(source.places("unsafe").map(|at| Violation::at(source, at, "`unsafe`")));
    }
    let ignored = source.places("ignore").filter(|at| source.code[..*at].trim_end().ends_with("#["));
    violations.extend(ignored.map(|at| Violation::at(source, at, "an ignored test")));
    violations
}

/// Time and settings are arguments, but for tests.
pub(crate) fn ambient(source: &Source) -> Vec<Violation> {
    if !is_library(&source.path) || is_test_file(&source.path) || source.path == "crates/annals-base/src/time.rs" {
        return Vec::new();
    }
    let calls = ["Instant::now", "SystemTime::now", "env::var", "env::var_os", "env::vars", "env::home_dir"];
    let mut violations = Vec::new();
    for call in calls {
        for (at, _) in source.code.match_indices(call) {
            let whole = first_word(&source.code[at + call.len()..]).is_empty();
            let begins = !source.code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            if whole && begins {
                violations.push(Violation::at(source, at, format!("`{call}`: the library takes it as an argument")));
            }
        }
    }
    violations
}

/// Splits a name into its words, lower case: `HeadCache` and `head_cache` alike.
pub(crate) fn split_name(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut last = '_';
    let mut rest = name.chars().peekable();
    while let Some(c) = rest.next() {
        // `headCache` and the last capital of `HTTPCache` begin a word.
        let after_lower = last.is_lowercase() || last.is_ascii_digit();
        let ends_capitals = last.is_uppercase() && rest.peek().is_some_and(|next| next.is_lowercase());
        if last == '_' || (c.is_uppercase() && (after_lower || ends_capitals)) {
            words.push(String::new());
        }
        if let (Some(word), true) = (words.last_mut(), c != '_') {
            word.extend(c.to_lowercase());
        }
        last = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// Names with `get_` that the field itself has.
const GETTERS: &[&str] = &["get_state", "get_state_history", "get_graph", "get_subgraphs"];

/// Names of a field that we follow, in which a word of ours has another meaning.
const UPSTREAM_NAMES: &[&str] = &["conversation_id"];

/// Public names are those of the glossary.
pub(crate) fn names(source: &Source, synonyms: &[String]) -> Vec<Violation> {
    if !is_library(&source.path) {
        return Vec::new();
    }
    let kinds = ["fn", "struct", "enum", "trait", "type", "const", "static", "mod"];
    let mut violations = Vec::new();
    for at in source.places("pub") {
        let (mut at, mut rest) = source.after(at + 3);
        // `pub(crate)` is not public.
        while matches!(first_word(rest), "async" | "const") && !is_const_item(rest) {
            (at, rest) = source.after(at + first_word(rest).len());
        }
        let kind = first_word(rest);
        if !kinds.contains(&kind) {
            continue;
        }
        let (at, rest) = source.after(at + kind.len());
        let name = first_word(rest);
        if let Some(why) = bad_name(kind, name, synonyms).filter(|_| !UPSTREAM_NAMES.contains(&name)) {
            violations.push(Violation::at(source, at, format!("public name `{name}`: {why}")));
        }
    }
    violations
}

fn is_const_item(rest: &str) -> bool {
    let after = rest.strip_prefix("const").map(str::trim_start);
    after.is_some_and(|after| !matches!(first_word(after), "fn" | "async"))
}

fn bad_name(kind: &str, name: &str, synonyms: &[String]) -> Option<String> {
    let words = split_name(name);
    for synonym in synonyms {
        let parts = split_name(synonym);
        if words.windows(parts.len()).any(|window| window == parts) {
            return Some(format!("`{synonym}` is not a word of the glossary"));
        }
    }
    let is_type = matches!(kind, "struct" | "enum" | "trait" | "type");
    if is_type && words.first().is_some_and(|word| word == "base") {
        return Some("a type says what it is, not that others build on it".into());
    }
    if kind == "fn" && name.starts_with("get_") && !name.ends_with("_mut") && !GETTERS.contains(&name) {
        return Some("no `get_` but where the field's own name has it".into());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    type Rule = fn(&Source) -> Vec<Violation>;

    fn lines(rule: Rule, path: &str, text: &str) -> Vec<usize> {
        rule(&Source::new(path, text)).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn a_missing_header_is_found() {
        assert_eq!(lines(header, "src/a.rs", "use std::fmt;\n"), [1]);
        assert_eq!(lines(header, "src/a.rs", "// no\n//! late\n"), [1]);
        assert_eq!(lines(header, "src/a.rs", "\n//! What it is.\n"), [0; 0]);
    }

    #[test]
    fn large_files_and_functions_are_found() {
        let long = format!("fn long() {{\n{}}}\n", "    step();\n".repeat(FUNCTION_LINES_MAX - 1));
        assert_eq!(lines(size, "src/a.rs", &long), [1]);
        assert_eq!(lines(size, "tests/it/a.rs", &long), [0; 0]);
        assert_eq!(lines(size, "src/a/tests/b.rs", &long), [0; 0]);
        assert_eq!(lines(size, "src/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{long}}}\n{long}")), [75]);
        let fits = format!("fn fits() {{\n{}}}\n", "    step();\n\n    // why\n".repeat(FUNCTION_LINES_MAX - 2));
        assert_eq!(lines(size, "src/a.rs", &fits), [0; 0]);
        let file = "const A: u8 = 0;\n".repeat(FILE_LINES_MAX + 1);
        assert_eq!(lines(size, "src/a.rs", &file), [0]);
        assert_eq!(lines(size, "src/a.rs", &file[..file.len() - 17]), [0; 0]);
    }

    #[test]
    fn sql_outside_its_file_is_found() {
        let texts = [
            "SELECT 1",
            "select a from b",
            "WITH x AS (SELECT 1)",
            "INSERT INTO a VALUES (1)",
            "INSERT OR IGNORE INTO a VALUES (1)",
            "UPDATE a SET b = 1",
            "DELETE FROM a",
            "CREATE TABLE a (b)",
            "PRAGMA user_version",
            "pragma user_version",
            "BEGIN IMMEDIATE",
        ];
        for text in texts {
            let code = format!("fn f() {{\n    run(\"{text}\");\n}}");
            assert_eq!(lines(sql, "src/store/sqlite/read/record.rs", &code), [2], "{text}");
            assert_eq!(lines(sql, "crates/annals-cli/src/main.rs", &code), [2], "{text}");
            assert_eq!(lines(sql, "src/store/sqlite/sql.rs", &code), [0; 0]);
            let test = format!("#[cfg(test)]\nmod tests {{ {code} }}");
            assert_eq!(lines(sql, "src/store/sqlite/read/record.rs", &test), [0; 0]);
            assert_eq!(lines(sql, "src/history/compare/diff.rs", &test), [3]);
        }
        for text in ["an update sets it", "nothing was selected", "it cannot be deleted from here", "UPDATE is refused"]
        {
            assert!(!is_sql(text), "{text}");
        }
        assert_eq!(lines(sql, "src/history/compare/diff.rs", "// SELECT 1\n/// `SELECT 1`\nfn f() {}"), [0; 0]);
    }

    #[test]
    fn printing_in_the_library_is_found() {
        for call in ["println!(\"a\")", "eprintln!()", "print!(\"a\")", "std::eprint!(\"a\")"] {
            let code = format!("fn f() {{\n    {call};\n}}");
            assert_eq!(lines(printing, "src/a/b.rs", &code), [2], "{call}");
            assert_eq!(lines(printing, "crates/annals-cli/src/main.rs", &code), [0; 0]);
        }
        assert_eq!(
            lines(printing, "src/a/b.rs", "/// println!(\"a\")\nfn print() { write!(f, \"println!\") }"),
            [0; 0]
        );
    }

    #[test]
    fn leftovers_are_found() {
        let code = "fn f() { todo!() }\nfn g() { unimplemented!() }\nfn h() { dbg!(1); }\n#[ignore]\nfn i() {}\n#[ignore = \"slow\"]\nfn j() {}\nfn k() { unsafe { l() } }";
        let mut found = lines(leftovers, "src/a/b.rs", code);
        found.sort_unstable();
        assert_eq!(found, [1, 2, 3, 4, 6, 8]);
        let fine = "//! todo!\nfn ignore() { let unsafe_code = \"unsafe\"; }\n/// ```ignore\nfn dbg() {}";
        assert_eq!(lines(leftovers, "src/a/b.rs", fine), [0; 0]);
    }

    #[test]
    fn clocks_and_the_environment_are_found() {
        let code = "fn f() {\n    std::env::var(\"A\");\n    Instant::now();\n    std::time::SystemTime::now();\n    env::var_os(\"A\");\n}";
        let mut found = lines(ambient, "src/drive/run.rs", code);
        found.sort_unstable();
        assert_eq!(found, [2, 3, 4, 5]);
        assert_eq!(lines(ambient, "crates/annals-base/src/time.rs", code), [0; 0]);
        assert_eq!(lines(ambient, "crates/annals-cli/src/main.rs", code), [0; 0]);
        assert_eq!(
            lines(ambient, "src/a/b.rs", "// Instant::now\nfn f() { MyInstant::now(); env::variety() }"),
            [0; 0]
        );
    }

    #[test]
    fn synonyms_in_public_names_are_found() {
        let synonyms = ["manager", "savepoint", "conversation_id", "impl"].map(str::to_owned);
        let bad = [
            "pub struct StateManager;",
            "pub fn savepoint_of() {}",
            "pub const fn conversation_id_of() {}",
            "pub enum HTTPManager {}",
            "pub trait BaseStore {}",
            "pub fn get_thread() {}",
            "pub async fn open_savepoint() {}",
            "pub const MANAGER: u8 = 0;",
            "pub struct ThreadImpl;",
        ];
        for text in bad {
            let found = names(&Source::new("src/a/b.rs", text), &synonyms);
            assert_eq!(found.len(), 1, "{text}");
        }
        let fine = "pub(crate) struct StateManager;\nfn savepoint() {}\n/// pub fn savepoint\npub fn get_state() {}\npub fn get_mut() {}\npub fn conversation_id() {}\npub fn database() {}\npub fn base_of() {}\npub fn simple() {}\npub use a::Manager;";
        assert!(names(&Source::new("src/a/b.rs", fine), &synonyms).is_empty());
    }

    #[test]
    fn names_are_split_into_words() {
        assert_eq!(split_name("HeadCache"), ["head", "cache"]);
        assert_eq!(split_name("head_cache"), ["head", "cache"]);
        assert_eq!(split_name("RECURSION_LIMIT"), ["recursion", "limit"]);
        assert_eq!(split_name("_HTTPCache2Tail"), ["http", "cache2", "tail"]);
        assert_eq!(split_name("xxh3_128"), ["xxh3", "128"]);
    }
}
