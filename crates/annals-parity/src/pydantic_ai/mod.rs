//! Runs the vectors of PydanticAI's messages on the public API, and compares the results with those of the reference.
//!
//! *Absent:* models; those of agents follow a script.

mod agent;
mod agent_stream;
mod compare;
mod mapping;
mod ops;
mod stream;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use annals::base::{Map, Value};
use annals::message::internal::{JsonStyle, json_loads, json_write};

use crate::{RunnerResult, files};

/// The file with the names of the vectors that still fail.
const OPEN: &str = "open.txt";

/// Reads the vectors of a folder, in the order of its files.
fn vectors(folder: &Path) -> RunnerResult<Vec<(String, Value)>> {
    let mut found = Vec::new();
    for path in files(folder)? {
        let text = std::fs::read_to_string(&path)?;
        let document = json_loads(&text, true).map_err(|error| format!("{}: {error}", path.display()))?;
        let category = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let vectors = document.get("vectors").unwrap_or(&document).as_list().unwrap_or_default();
        found.extend(vectors.iter().map(|vector| (category.clone(), vector.clone())));
    }
    Ok(found)
}

fn text<'a>(vector: &'a Value, name: &str) -> &'a str {
    vector.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Runs the vectors of a folder and writes a line with the result of each; one that cannot be run is named on stderr.
pub(crate) fn run(folder: &Path, out: &Path) -> RunnerResult<usize> {
    let mut lines = String::new();
    let mut count = 0;
    for (_, vector) in vectors(folder)? {
        let id = text(&vector, "id");
        let result = match ops::result(&vector) {
            Ok(result) => result,
            Err(error) => {
                eprintln!("{id}: {error}");
                continue;
            }
        };
        let line = Map::from_iter([("id".to_owned(), id.into()), ("result".to_owned(), result)]);
        // In ASCII: a text may hold a character that a reader of lines takes for the end of one.
        let style = JsonStyle { ascii: true, ..JsonStyle::PYDANTIC };
        _ = writeln!(lines, "{}", json_write(&line.into(), style));
        count += 1;
    }
    std::fs::write(out, lines)?;
    Ok(count)
}

/// Copies vectors into one file for each category, a line for each.
pub(crate) fn pack(folder: &Path, out: &Path) -> RunnerResult<usize> {
    let mut by_category: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (category, vector) in vectors(folder)? {
        by_category.entry(category).or_default().push(json_write(&vector, JsonStyle::PYDANTIC));
    }
    std::fs::create_dir_all(out)?;
    for (category, vectors) in &by_category {
        std::fs::write(out.join(format!("{category}.json")), format!("[\n{}\n]\n", vectors.join(",\n")))?;
    }
    Ok(by_category.values().map(Vec::len).sum())
}

/// Runs the vectors of a folder and returns the contradictions to its list of failing ones, with their number.
pub(crate) fn verify(folder: &Path) -> RunnerResult<(usize, String)> {
    let open = std::fs::read_to_string(folder.join(OPEN))?;
    let open: Vec<&str> = open.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let (mut count, mut surprises) = (0, String::new());
    for (_, vector) in vectors(folder)? {
        count += 1;
        let id = text(&vector, "id");
        let problem = match ops::result(&vector) {
            Ok(result) => compare::problem(&vector, &result),
            Err(error) => Some(format!("\n  {error}")),
        };
        match (problem, open.contains(&id)) {
            (Some(problem), false) => _ = writeln!(surprises, "FAIL {id}{problem}"),
            (None, true) => _ = writeln!(surprises, "{id} gives what the reference gives: take it off the list {OPEN}"),
            _ => {}
        }
    }
    Ok((count, surprises))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vector_gives_what_the_reference_gives() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/parity/pydantic_ai");
        let (count, surprises) = verify(&folder).expect("the vectors are readable");
        assert!(count >= 536, "only {count} vectors were found");
        assert!(surprises.is_empty(), "{surprises}");
    }

    #[test]
    fn a_wrong_result_is_found() {
        let folder = tempfile::tempdir().expect("there is room");
        let vector = r#"[{"id":"usage/x","op":"usage","input":{"kind":"request","do":"load","a":{}},"expect":{"has_values":1}}]"#;
        std::fs::write(folder.path().join("usage.json"), vector).expect("it is written");
        std::fs::write(folder.path().join(OPEN), "").expect("it is written");
        let (_, surprises) = verify(folder.path()).expect("it is readable");
        assert!(surprises.contains("/has_values: expected 1, got false"), "{surprises}");
        std::fs::write(folder.path().join(OPEN), "usage/x\n").expect("it is written");
        assert_eq!(verify(folder.path()).expect("it is readable"), (1, String::new()));
    }
}
