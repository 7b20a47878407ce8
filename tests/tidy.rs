//! The rules of the house, as a test: it reads the files of the repository and names the file and line of what breaks
//! a rule. Each rule is shown planted violations in the tests beside it, so that none can be empty.

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

#[path = "tidy/circles.rs"]
mod circles;
#[path = "tidy/crates.rs"]
mod crates;
#[path = "tidy/documents.rs"]
mod documents;
#[path = "tidy/floors.rs"]
mod floors;
#[path = "tidy/house.rs"]
mod house;
#[path = "tidy/items.rs"]
mod items;
#[path = "tidy/prose.rs"]
mod prose;
#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/scan.rs"]
mod scan;
#[path = "tidy/standing.rs"]
mod standing;

use std::path::Path;
use std::sync::OnceLock;

use house::Files;
use rules::Violation;
use scan::Source;

/// The text files of the repository, read once.
fn repository() -> &'static Files {
    static FILES: OnceLock<Files> = OnceLock::new();
    FILES.get_or_init(|| house::read(Path::new(env!("CARGO_MANIFEST_DIR"))))
}

/// Returns the Rust files whose path begins with one of `under`, with their texts.
fn rust_files(under: &'static [&'static str]) -> impl Iterator<Item = (&'static String, &'static String)> {
    let rust = |path: &str| path.ends_with(".rs") && under.iter().any(|start| path.starts_with(start));
    repository().iter().filter(move |(path, _)| rust(path))
}

/// Returns the sources whose path begins with one of `under`; each file is scanned once.
fn sources(under: &'static [&'static str]) -> Vec<&'static Source> {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    let all = SOURCES.get_or_init(|| {
        let files: Vec<_> = rust_files(EVERYTHING).collect();
        let read = |files: &[(&'static String, &'static String)]| {
            files.iter().map(|(path, text)| Source::new(path.as_str(), text)).collect::<Vec<_>>()
        };
        // The tests wait for this: each core reads a part.
        let parts = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            let readers: Vec<_> =
                files.chunks(files.len().div_ceil(parts)).map(|part| scope.spawn(move || read(part))).collect();
            readers.into_iter().flat_map(|reader| reader.join().expect("a file is read")).collect()
        })
    });
    let found: Vec<&Source> =
        all.iter().filter(|source| under.iter().any(|start| source.path.starts_with(start))).collect();
    assert!(!found.is_empty(), "no files under {under:?}");
    found
}

fn none(violations: impl IntoIterator<Item = Violation>) {
    let shown: Vec<String> = violations.into_iter().map(|violation| violation.to_string()).collect();
    assert!(shown.is_empty(), "{} violations:\n{}", shown.len(), shown.join("\n"));
}

/// Files that are shipped.
const PRODUCT: &[&str] = &["src/", "crates/"];
/// Those, and the files that test and measure them.
const EVERYTHING: &[&str] = &["src/", "crates/", "tests/", "examples/", "benches/"];

#[test]
fn imports_go_down() {
    none(sources(&["src/", "crates/annals-graph/src/"]).into_iter().flat_map(floors::floors));
}

#[test]
fn circles_of_imports_are_small() {
    none(circles::circles(&circles::Imports::of(&sources(&["src/"]))));
}

#[test]
fn rooms_of_the_backend_import_in_their_directions() {
    none(circles::directions(&circles::Imports::of(&sources(&["src/"]))));
}

#[test]
fn every_file_says_what_it_is() {
    none(sources(EVERYTHING).into_iter().flat_map(rules::header));
}

#[test]
fn files_and_functions_are_small() {
    none(sources(EVERYTHING).into_iter().flat_map(rules::size));
}

#[test]
fn sql_stands_in_one_file() {
    none(sources(PRODUCT).into_iter().flat_map(rules::sql));
}

#[test]
fn the_library_is_silent() {
    none(sources(PRODUCT).into_iter().flat_map(rules::printing));
}

#[test]
fn nothing_is_left_over() {
    none(sources(EVERYTHING).into_iter().flat_map(rules::leftovers));
}

#[test]
fn time_and_settings_are_arguments() {
    none(sources(PRODUCT).into_iter().flat_map(rules::ambient));
}

#[test]
fn public_names_are_those_of_the_glossary() {
    let synonyms = house::synonyms(repository());
    assert!(synonyms.len() > 10, "the glossary forbids {synonyms:?}");
    none(sources(PRODUCT).into_iter().flat_map(|source| rules::names(source, &synonyms)));
}

#[test]
fn comments_are_no_wider_than_code() {
    none(rust_files(EVERYTHING).flat_map(|(path, text)| prose::wide(path, text)));
}

#[test]
fn dependencies_go_down() {
    none(crates::floors(repository(), &sources(PRODUCT), crates::LIBRARIES));
}

#[test]
fn the_engine_does_not_know_runs() {
    none(crates::run_words(repository()));
}

#[test]
fn clients_use_the_public_interface() {
    none(sources(EVERYTHING).into_iter().flat_map(crates::internals));
}

#[test]
fn clients_do_not_call_the_backend() {
    none(sources(EVERYTHING).into_iter().flat_map(floors::backends));
}

#[test]
fn public_structs_can_grow() {
    let found = rust_files(PRODUCT).flat_map(|(path, text)| crates::open_structs(path, text)).collect();
    none(crates::but_for(standing::OPEN_STRUCTS, found));
}

#[test]
fn maxima_stand_in_limits() {
    let found = rust_files(PRODUCT).flat_map(|(path, text)| crates::maxima(path, text)).collect();
    none(crates::but_for(standing::MAXIMA, found));
}

#[test]
fn a_type_name_is_used_once() {
    none(crates::but_for(standing::TYPE_NAMES, crates::type_names(repository())));
}

#[test]
fn banned_words_stay_out_of_public_names() {
    let files = rust_files(PRODUCT).filter(|(path, _)| crates::is_library(path) && crates::is_published(path));
    let found = files.flat_map(|(path, text)| crates::name_words(path, text)).collect();
    none(crates::but_for(standing::NAMES, found));
}

#[test]
fn banned_phrases_stay_out_of_messages() {
    let sources = sources(PRODUCT).into_iter().filter(|source| crates::is_published(&source.path));
    none(sources.flat_map(crates::message_phrases));
}

#[test]
fn no_file_is_forgotten() {
    none(house::forgotten(repository()));
}

#[test]
fn there_are_two_test_binaries() {
    none(house::test_binaries(repository()));
}

#[test]
fn words_of_a_machine_stay_out() {
    none(house::foreign_words(repository()));
}

#[test]
fn schema_files_of_final_formats_do_not_change() {
    none(house::schema(repository(), house::FINAL_SCHEMA));
}

#[test]
fn the_readme_names_the_rust_version() {
    none(house::rust_version(repository()));
}

#[test]
fn documents_are_linked() {
    none(house::documents(repository()));
}

#[test]
fn documents_name_existing_files_crates_and_types() {
    let files = repository();
    none(documents::paths(files).into_iter().chain(documents::crates(files)).chain(documents::types(files)));
}

#[test]
fn no_noun_has_two_rows_in_the_glossary() {
    none(documents::nouns(repository()));
}

#[test]
fn every_dependency_has_a_reason() {
    none(documents::dependencies(repository()));
}

#[test]
fn the_readme_gives_the_counts_of_the_last_full_run() {
    none(documents::reliability(repository()));
}

#[test]
fn the_tests_of_the_parity_table_are_there() {
    none(house::named_tests(repository()));
}

#[test]
fn the_readme_gives_two_commands_and_a_tested_example() {
    let files = repository();
    none(house::commands(files).into_iter().chain(house::example(files)));
}

#[test]
fn the_page_of_the_store_lists_the_names_of_users() {
    none(crates::store_page(repository()));
}

/// Prints counts that a review looks at: `cargo test -p annals --test tidy report -- --nocapture`.
#[test]
fn report() {
    let files = repository();
    println!("{:<20} {:>12} {:>28}", "crate", "public items", "assertions per 1,000 lines");
    let mut all = 0;
    for library in crates::LIBRARIES {
        let (items, density) = (crates::public_items(files, library), crates::assertions(sources(PRODUCT), library));
        println!("{:<20} {items:>12} {density:>28.2}", library.name);
        assert!(items > 0, "{} has no source files", library.name);
        all += items;
    }
    println!("{:<20} {all:>12}", "all");
    for circle in circles::Imports::of(&sources(&["src/"])).circles() {
        println!("{} files import each other: {}", circle.len(), circle.join(", "));
    }
    let (lines, found) = prose::headless(files);
    assert!(lines > 1_000, "{lines} comment lines");
    println!("{} clauses without a subject in {lines} comment lines:", found.len());
    found.iter().for_each(|clause| println!("  {clause}"));
}
