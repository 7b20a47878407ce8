//! The imports between the files of the engine: circles, and the directions between the folders of the SQLite backend.
//!
//! A file imports another one if a `use` or a path leads to an item of it. A path through a re-export leads to the file
//! that holds the item, so a `pub use` is no import of its own. *Absent:* test code, and calls of methods, which need
//! no path.

use std::collections::{BTreeMap, BTreeSet};

use crate::rules::{Violation, is_test_file};
use crate::scan::{Source, first_word};

/// Files that may import each other in a circle.
const CIRCLE_MAX: usize = 6;

/// Folders whose circles are not bounded: the typed layer of the state, and the suite of the backends.
const UNBOUNDED: &[&str] = &["state", "store::conformance"];

/// The folder whose rooms have directions.
const ROOMS: &str = "store::sqlite";

/// For each sentence, the rooms that it is about, and the rooms of which they import nothing. `sql` stands for every
/// file of statements.
const DIRECTIONS: &[(&str, &[&str], &[&str])] = &[
    ("a read needs no writer", &["read"], &["commit", "writer", "remove"]),
    ("checking stands above reading", &["read", "verify"], &["check"]),
    ("checking stands above reading", &["verify"], &["read", "commit"]),
    ("a commit erases nothing", &["commit"], &["remove"]),
    ("a codec knows no queries", &["rows"], &["sql", "read", "commit", "verify"]),
    ("a description knows no codec", &["tables"], &["rows", "read", "commit", "verify", "check"]),
];

/// Re-exports that a path may go through.
const STEPS_MAX: usize = 8;

/// A path from the root of the crate.
type Path = Vec<String>;

/// A file with the paths that it names.
struct Module<'s> {
    source: &'s Source,
    /// The imported names with their paths.
    names: BTreeMap<String, Path>,
    /// The modules that are imported with `*`.
    globs: Vec<Path>,
    /// The paths that are imported or used, with their places.
    paths: Vec<(usize, Path)>,
}

/// The files of a crate by their modules.
pub(crate) struct Imports<'s>(BTreeMap<Path, Module<'s>>);

impl<'s> Imports<'s> {
    /// Reads the imports of the files of the engine, those that hold tests alone left out.
    pub(crate) fn of(sources: &[&'s Source]) -> Self {
        let files = sources.iter().filter(|source| !is_test_file(&source.path));
        let mut modules: BTreeMap<Path, Module<'s>> =
            files.filter_map(|source| Some((module_of(&source.path)?, Module::new(source)))).collect();
        let known: BTreeSet<Path> = modules.keys().cloned().collect();
        for (path, module) in &mut modules {
            module.read(path, &known);
        }
        Self(modules)
    }

    /// Returns the module of the longest part of a path, and the rest of the path.
    fn split<'p>(&self, path: &'p [String]) -> (&'p [String], &'p [String]) {
        let count = (0..=path.len()).rev().find(|count| self.0.contains_key(&path[..*count]));
        path.split_at(count.unwrap_or(0))
    }

    /// Returns the module that holds the item of a path; `None` for the root of the crate, which re-exports alone.
    fn target(&self, path: &[String]) -> Option<Path> {
        let mut path = path.to_vec();
        for _ in 0..STEPS_MAX {
            let (module, rest) = self.split(&path);
            let found = self.0.get(module)?;
            let Some(name) = rest.first() else { break };
            path = match found.names.get(name) {
                Some(to) => to.iter().chain(&rest[1..]).cloned().collect(),
                None => match found.globs.iter().find(|glob| self.defines(glob, name)) {
                    Some(glob) => glob.iter().chain(rest).cloned().collect(),
                    None => break,
                },
            };
        }
        let (module, _) = self.split(&path);
        (!module.is_empty()).then(|| module.to_vec())
    }

    /// Returns whether a module defines an item.
    fn defines(&self, module: &[String], name: &str) -> bool {
        let kinds = ["fn", "struct", "enum", "const", "static", "type", "trait"];
        self.0.get(module).is_some_and(|module| {
            let words: Vec<&str> = module.source.words().map(|(_, word)| word).collect();
            words.windows(2).any(|pair| kinds.contains(&pair[0]) && pair[1] == name)
        })
    }

    /// Returns the files that each file imports, of those that are bounded.
    fn edges(&self) -> BTreeMap<&Path, BTreeSet<Path>> {
        let is_bounded = |path: &[String]| !UNBOUNDED.iter().any(|folder| is_below(path, folder));
        let modules = self.0.iter().filter(|(path, _)| !path.is_empty() && is_bounded(path));
        modules
            .map(|(path, module)| {
                let targets = module.paths.iter().filter_map(|(_, path)| self.target(path));
                (path, targets.filter(|target| target != path && is_bounded(target)).collect())
            })
            .collect()
    }

    /// Returns the circles: the greatest sets of files of which each one leads to every other one.
    pub(crate) fn circles(&self) -> Vec<Vec<String>> {
        let edges = self.edges();
        let mut reached: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
        for &start in edges.keys() {
            let mut seen = BTreeSet::new();
            let mut open = vec![start];
            while let Some(next) = open.pop() {
                open.extend(edges.get(next).into_iter().flatten().filter(|target| seen.insert(*target)));
            }
            reached.insert(start, seen);
        }
        let mut circles = BTreeSet::new();
        for (&start, seen) in &reached {
            let circle: Vec<String> = seen
                .iter()
                .filter(|other| reached.get(*other).is_some_and(|back| back.contains(start)))
                .map(|other| other.join("::"))
                .collect();
            circles.extend((circle.len() > 1).then_some(circle));
        }
        circles.into_iter().collect()
    }
}

impl<'s> Module<'s> {
    fn new(source: &'s Source) -> Self {
        Self { source, names: BTreeMap::new(), globs: Vec::new(), paths: Vec::new() }
    }

    /// Reads the `use` declarations, then the paths of the other code.
    fn read(&mut self, own: &[String], known: &BTreeSet<Path>) {
        let (source, tests) = (self.source, self.source.test_blocks());
        let inline = source.inline_modules();
        let place = |at: usize| -> Path {
            let inside = inline.iter().filter(|(_, block)| block.contains(&at)).map(|(name, _)| name.clone());
            own.iter().cloned().chain(inside).collect()
        };
        let is_test = |at: usize| tests.iter().any(|block| block.contains(&at));
        let mut declared = Vec::new();
        for at in source.places("use").filter(|at| !is_test(*at)) {
            let Some(length) = source.code[at..].find(';') else { continue };
            declared.push(at..at + length);
            let before = source.code[..at].trim_end();
            let is_shown = before.ends_with("pub") || before.ends_with(')');
            for (path, name) in leaves(&source.code[at + 3..at + length]) {
                let Some(path) = absolute(&place(at), &path, known) else { continue };
                if !is_shown {
                    self.paths.push((at, path.clone()));
                }
                match name.as_str() {
                    "*" => self.globs.push(path),
                    _ => _ = self.names.insert(name, path),
                }
            }
        }
        let mut end = 0;
        for (at, word) in source.words() {
            if at < end || is_test(at) || declared.iter().any(|range| range.contains(&at)) {
                continue;
            }
            let path = segments(&source.code[at..]);
            end = at + word.len();
            if path.len() < 2 || source.code[..at].ends_with("::") {
                continue;
            }
            let path = match self.names.get(word) {
                Some(to) => Some(to.iter().chain(&path[1..]).cloned().collect()),
                None => absolute(&place(at), &path, known),
            };
            self.paths.extend(path.map(|path| (at, path)));
        }
    }
}

/// Returns the module of a file below `src`.
fn module_of(path: &str) -> Option<Path> {
    let path = path.strip_prefix("src/")?.strip_suffix(".rs")?;
    let mut module: Path = path.split('/').map(str::to_owned).collect();
    module.pop_if(|name| name == "mod" || name == "lib");
    Some(module)
}

/// Returns whether a module is a folder, or lies below it.
fn is_below(path: &[String], folder: &str) -> bool {
    let mut path = path.iter();
    folder.split("::").all(|name| path.next().is_some_and(|found| found == name))
}

/// Returns a path from the root of the crate; `None` for one into another crate, and for one into test code.
fn absolute(own: &[String], path: &[String], known: &BTreeSet<Path>) -> Option<Path> {
    let supers = path.iter().take_while(|name| *name == "super").count();
    let join = |above: &[String], rest: &[String]| -> Path { above.iter().chain(rest).cloned().collect() };
    let found = match path.first()?.as_str() {
        "crate" => path[1..].to_vec(),
        "self" => join(own, &path[1..]),
        "super" => join(&own[..own.len().checked_sub(supers)?], &path[supers..]),
        name => {
            let child = join(own, &[name.to_owned()]);
            known.contains(&child).then(|| join(own, path))?
        }
    };
    (!found.iter().any(|name| name == "tests")).then_some(found)
}

/// Returns the names of a path that a text begins with.
fn segments(text: &str) -> Path {
    let (mut path, mut rest) = (Path::new(), text);
    loop {
        let name = first_word(rest);
        if name.is_empty() {
            return path;
        }
        path.push(name.to_owned());
        match rest[name.len()..].strip_prefix("::") {
            Some(next) => rest = next,
            None => return path,
        }
    }
}

/// Returns the paths of a `use` tree, each with the name that it gives: `*` for all names of a module.
fn leaves(tree: &str) -> Vec<(Path, String)> {
    let tree = tree.trim();
    let prefix = segments(tree);
    let rest = tree[prefix.join("::").len()..].trim_start_matches("::").trim();
    if let Some(group) = rest.strip_prefix('{') {
        let all = branches(group.trim_end_matches('}')).into_iter().flat_map(leaves);
        let joined = all.map(|(path, name)| match (path.as_slice(), prefix.last()) {
            ([only], Some(last)) if only == "self" => {
                (prefix.clone(), if name == "self" { last.clone() } else { name })
            }
            _ => (prefix.iter().chain(&path).cloned().collect(), name),
        });
        return joined.collect();
    }
    let Some(last) = prefix.last() else { return Vec::new() };
    let name = match rest.strip_prefix("as ") {
        Some(alias) => first_word(alias.trim_start()).to_owned(),
        None if rest == "*" => "*".to_owned(),
        None => last.clone(),
    };
    vec![(prefix, name)]
}

/// Splits a group of a `use` tree at its commas.
fn branches(group: &str) -> Vec<&str> {
    let (mut found, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (at, c) in group.char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            found.push(&group[start..at]);
            start = at + 1;
        }
    }
    found.push(&group[start..]);
    found
}

/// Circles of more files than are allowed.
pub(crate) fn circles(imports: &Imports<'_>) -> Vec<Violation> {
    let large = imports.circles().into_iter().filter(|circle| circle.len() > CIRCLE_MAX);
    large
        .map(|circle| {
            let what = format!("{} files import each other, {CIRCLE_MAX} may: {}", circle.len(), circle.join(", "));
            Violation::of("src", 0, what)
        })
        .collect()
}

/// Imports between rooms against their direction. A path counts as it is written, and as re-exports lead it.
pub(crate) fn directions(imports: &Imports<'_>) -> Vec<Violation> {
    let room = |path: &[String], name: &str| match name {
        "sql" => is_below(path, ROOMS) && path.last().is_some_and(|last| last == "sql"),
        _ => is_below(path, &format!("{ROOMS}::{name}")),
    };
    let mut violations = Vec::new();
    for (sentence, of, nothing_of) in DIRECTIONS {
        let modules = imports.0.iter().filter(|(path, _)| of.iter().any(|name| room(path, name)));
        for (module, (at, path)) in modules.flat_map(|(_, module)| module.paths.iter().map(move |path| (module, path)))
        {
            let targets = [Some(imports.split(path).0.to_vec()), imports.target(path)];
            if let Some(name) = nothing_of.iter().find(|name| targets.iter().flatten().any(|to| room(to, name))) {
                violations.push(Violation::at(module.source, *at, format!("it imports `{name}`: {sentence}")));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Vec<Source> {
        files.iter().map(|(path, text)| Source::new(*path, text)).collect()
    }

    /// Returns the circles of some files.
    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let sources = sources(files);
        Imports::of(&sources.iter().collect::<Vec<_>>()).circles()
    }

    /// Returns the files and lines that break a sentence.
    fn broken(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let sources = sources(files);
        let violations = directions(&Imports::of(&sources.iter().collect::<Vec<_>>()));
        violations.into_iter().map(|violation| (violation.path, violation.line)).collect()
    }

    #[test]
    fn a_circle_is_found_by_imports_and_by_paths() {
        let files = [
            ("src/a/mod.rs", "mod b;\nuse self::b::B;"),
            ("src/a/b.rs", "fn f() { crate::c::g() }"),
            ("src/c.rs", "use crate::{d::{self as e, X}, base::Y};"),
            ("src/d.rs", "use super::a;\nfn g() { a::h() }"),
            ("src/f.rs", "use crate::a::A;"),
        ];
        assert_eq!(found(&files), [["a", "a::b", "c", "d"]]);
        assert_eq!(found(&files[1..]), [[""; 0]; 0], "without the first file there is none");
    }

    #[test]
    fn a_circle_of_seven_files_is_refused_and_one_of_six_is_not() {
        let circle = |count: usize| {
            let names = |at: usize| (format!("src/m{at}.rs"), format!("use crate::m{};", (at + 1) % count));
            let files: Vec<Source> = (0..count).map(names).map(|(path, text)| Source::new(path, &text)).collect();
            circles(&Imports::of(&files.iter().collect::<Vec<_>>())).len()
        };
        assert_eq!((circle(CIRCLE_MAX), circle(CIRCLE_MAX + 1)), (0, 1));
    }

    #[test]
    fn a_path_through_a_re_export_leads_to_the_file_of_the_item() {
        let files = [
            ("src/lib.rs", "pub use a::A;\nmod a;\nmod c;"),
            ("src/a/mod.rs", "pub mod b;\npub use b::*;\npub use self::inner::A;\nmod inner;"),
            ("src/a/b.rs", "pub struct B;"),
            ("src/a/inner.rs", "use crate::c;\npub struct A;"),
            ("src/c.rs", "use crate::A;\nuse crate::a::B;"),
        ];
        assert_eq!(found(&files), [["a::inner", "c"]]);
    }

    #[test]
    fn test_code_and_unbounded_folders_are_left_out() {
        let test = "#[cfg(test)]\nmod tests { use crate::b::B; }\nuse super::tests::T;";
        assert_eq!(found(&[("src/a.rs", test), ("src/b.rs", "use crate::a::A;")]), [[""; 0]; 0]);
        let typed = [("src/state/a.rs", "use super::b;"), ("src/state/b.rs", "use super::a;")];
        assert_eq!(found(&typed), [[""; 0]; 0]);
    }

    #[test]
    fn each_sentence_is_broken_by_a_planted_import() {
        let planted = |from: &str, code: &str| {
            let rooms = ["read", "commit", "writer", "remove", "check", "verify", "rows", "tables"];
            let mut files: Vec<(String, String)> = rooms
                .iter()
                .map(|room| (format!("src/store/sqlite/{room}/mod.rs"), "mod x;".to_owned()))
                .chain(rooms.iter().map(|room| (format!("src/store/sqlite/{room}/x.rs"), "pub fn f() {}".to_owned())))
                .collect();
            files.push(("src/store/sqlite/sql.rs".to_owned(), "pub const ALL: u8 = 0;".to_owned()));
            files.push(("src/store/sqlite/rows/sql.rs".to_owned(), "pub const OWN: u8 = 0;".to_owned()));
            let path = format!("src/store/sqlite/{from}/planted.rs");
            files.push((path.clone(), format!("//! x\n{code}")));
            let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            let broken = broken(&files);
            assert!(broken.iter().all(|(found, line)| (found.as_str(), *line) == (path.as_str(), 2)), "{broken:?}");
            !broken.is_empty()
        };
        let absolute = |room: &str| format!("use crate::store::sqlite::{room}::x;");
        for (from, to) in [("read", "commit"), ("read", "writer"), ("read", "remove")] {
            assert!(planted(from, &absolute(to)), "a read needs no writer: {to}");
        }
        assert!(planted("read", &absolute("check")) && planted("verify", &absolute("check")));
        assert!(planted("verify", "fn g() { super::super::read::x::f() }"));
        assert!(planted("verify", "use super::super::{commit::x, rows};"));
        assert!(planted("commit", &absolute("remove")));
        for room in ["read", "commit", "verify"] {
            assert!(planted("rows", &absolute(room)), "a codec knows no queries: {room}");
        }
        assert!(planted("tables", &absolute("rows")) && !planted("rows", &absolute("tables")));
        assert!(planted("rows", "use super::super::sql;") && planted("rows", "use super::sql::OWN;"));
        for (from, to) in [("read", "rows"), ("read", "verify"), ("commit", "read"), ("remove", "commit")] {
            assert!(!planted(from, &absolute(to)), "{from} may import {to}");
        }
        assert!(!planted("read", "use super::super::sql;") && !planted("check", &absolute("read")));
    }
}
