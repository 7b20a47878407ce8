//! The facts of the programs: `docs/agents.md` has their table, and each program has fixtures.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use annals_import::{SourceKind, sources_table};

use crate::fixtures::fixtures;

/// The marks around the table.
const BEGIN: &str = "<!-- sources -->\n";
const END: &str = "<!-- end -->";

/// With the environment variable `ANNALS_SNAPSHOTS=renew` the test writes the table anew.
#[test]
#[allow(clippy::disallowed_methods, reason = "the table is written when it is asked for")]
fn the_document_has_the_table_of_all_programs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/agents.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (table, after) = rest.split_once(END).unwrap();
    if std::env::var_os("ANNALS_SNAPSHOTS").is_some_and(|value| value == "renew") {
        fs::write(&path, format!("{before}{BEGIN}{}{END}{after}", sources_table())).unwrap();
        return;
    }
    assert_eq!(table, sources_table());
}

#[test]
fn each_program_has_fixtures_and_facts_that_are_whole() {
    let with_fixtures: HashSet<SourceKind> = fixtures().iter().map(|fixture| fixture.source).collect();
    for kind in SourceKind::ALL {
        let facts = kind.facts();
        assert!(with_fixtures.contains(&kind), "{kind} has no fixture");
        assert!(![facts.programs, facts.versions, facts.lost].contains(&""), "{kind}");
        assert!(facts.checked.len() == 7 && facts.checked.starts_with("202"), "{kind}: {}", facts.checked);
        for place in facts.places {
            assert!(!place.path.starts_with('/') && !place.path.contains(".."), "{place}");
        }
    }
}
