//! The rules of the house, as a test: it reads the files of the repository and names the file and line of what breaks
//! a rule. Each rule is shown planted violations in the tests beside it, so that none can be empty.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/floors.rs"]
mod floors;
#[path = "tidy/house.rs"]
mod house;
#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/scan.rs"]
mod scan;

use std::path::Path;

use house::Files;
use rules::Violation;
use scan::Source;

fn repository() -> Files {
    house::read(Path::new(env!("CARGO_MANIFEST_DIR")))
}

/// The Rust files whose path begins with one of `under`.
fn sources(under: &[&str]) -> Vec<Source> {
    let files = repository();
    let rust =
        files.iter().filter(|(path, _)| path.ends_with(".rs") && under.iter().any(|start| path.starts_with(start)));
    let sources: Vec<Source> = rust.map(|(path, text)| Source::new(path.as_str(), text)).collect();
    assert!(!sources.is_empty(), "no files under {under:?}");
    sources
}

fn none(violations: impl IntoIterator<Item = Violation>) {
    let shown: Vec<String> = violations.into_iter().map(|violation| violation.to_string()).collect();
    assert!(shown.is_empty(), "{} violations:\n{}", shown.len(), shown.join("\n"));
}

/// Files that are shipped.
const PRODUCT: &[&str] = &["src/", "crates/"];
/// Those, and the files that try them.
const EVERYTHING: &[&str] = &["src/", "crates/", "tests/", "examples/", "benches/"];

#[test]
fn imports_go_down() {
    none(sources(&["src/", "crates/annals-graph/src/"]).iter().flat_map(floors::floors));
}

#[test]
fn every_file_says_what_it_is() {
    none(sources(EVERYTHING).iter().flat_map(rules::header));
}

#[test]
fn files_and_functions_are_small() {
    none(sources(EVERYTHING).iter().flat_map(rules::size));
}

#[test]
fn sql_stands_in_one_file() {
    none(sources(PRODUCT).iter().flat_map(rules::sql));
}

#[test]
fn the_library_is_silent() {
    none(sources(PRODUCT).iter().flat_map(rules::printing));
}

#[test]
fn nothing_is_left_over() {
    none(sources(EVERYTHING).iter().flat_map(rules::leftovers));
}

#[test]
fn time_and_settings_are_arguments() {
    none(sources(&["src/"]).iter().flat_map(rules::ambient));
}

#[test]
fn public_names_are_those_of_the_glossary() {
    let synonyms = house::synonyms(&repository());
    assert!(synonyms.len() > 10, "the glossary forbids {synonyms:?}");
    none(sources(PRODUCT).iter().flat_map(|source| rules::names(source, &synonyms)));
}

#[test]
fn no_file_is_forgotten() {
    none(house::forgotten(&repository()));
}

#[test]
fn there_are_two_test_binaries() {
    none(house::test_binaries(&repository()));
}

#[test]
fn words_of_a_machine_stay_out() {
    none(house::foreign_words(&repository()));
}

#[test]
fn released_schema_files_do_not_change() {
    none(house::schema(&repository(), house::RELEASED_SCHEMA));
}

#[test]
fn the_readme_names_the_rust_version() {
    none(house::rust_version(&repository()));
}

#[test]
fn documents_are_linked() {
    none(house::documents(&repository()));
}

#[test]
fn documents_name_existing_files_crates_and_types() {
    let files = repository();
    none(documents::paths(&files).into_iter().chain(documents::crates(&files)).chain(documents::types(&files)));
}

#[test]
fn every_dependency_has_a_reason() {
    none(documents::dependencies(&repository()));
}

#[test]
fn the_tests_of_the_parity_table_are_there() {
    none(house::named_tests(&repository()));
}

#[test]
fn the_readme_gives_two_commands_and_a_tested_example() {
    let files = repository();
    none(house::commands(&files).into_iter().chain(house::example(&files)));
}
